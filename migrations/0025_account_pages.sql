-- Pages of accounts go by time and by the bytes of ids, which on PostgreSQL no index with the database's own collation serves. All that one
-- import brings has one time: each page sorted all of it.

DROP INDEX accounts_newest;
DROP INDEX accounts_identity;
CREATE INDEX accounts_newest ON accounts (organization_id, created_us DESC, id{{by_bytes}} DESC);
CREATE INDEX accounts_identity ON accounts (identity_id, created_us DESC, id{{by_bytes}} DESC);
