-- Lists of one account's deposits on one chain, or of one asset: without it they walk over all that the account has, however few are
-- wanted. Without the organization, which an account has one of: SQLite would take deposits_account in its place.

CREATE INDEX deposits_kind ON deposits (account_id, chain, symbol, created_us DESC, id DESC);
