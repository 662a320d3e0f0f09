-- What an account ever got is told asset by asset: of three tokens that had one symbol, one after the other, the first and the last were found.

DROP INDEX deposits_kind;
CREATE INDEX deposits_kind ON deposits (account_id, chain, symbol, asset, created_us DESC, id{{by_bytes}} DESC);
