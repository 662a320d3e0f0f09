-- Pages of deposits go by time and by the bytes of ids, which on PostgreSQL no index with the database's own collation serves: where that one
-- orders words as a language does, pages left deposits out.

DROP INDEX deposits_account;
DROP INDEX deposits_kind;
DROP INDEX deposits_newest;
CREATE INDEX deposits_account ON deposits (organization_id, account_id, created_us DESC, id{{by_bytes}} DESC);
CREATE INDEX deposits_kind ON deposits (account_id, chain, symbol, created_us DESC, id{{by_bytes}} DESC);
CREATE INDEX deposits_newest ON deposits (organization_id, created_us DESC, id{{by_bytes}} DESC);
