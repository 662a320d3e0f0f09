-- What watched addresses held at a final block, and whose holdings are to be read.

CREATE TABLE balances (
    chain TEXT NOT NULL,
    address {{blob}} NOT NULL,
    asset {{blob}} NOT NULL,
    amount {{blob}} NOT NULL,
    amount_text TEXT NOT NULL,
    -- The final block that it is true of. On Solana it is told by its number alone.
    block_number BIGINT NOT NULL,
    block_hash {{blob}},
    -- 'two_endpoints' or 'one_endpoint': whose word it is.
    proof TEXT NOT NULL,
    read_us BIGINT NOT NULL,
    PRIMARY KEY (chain, address, asset)
);
-- Those that were read longest ago.
CREATE INDEX balances_read ON balances (chain, read_us);
-- Those of blocks that are taken back.
CREATE INDEX balances_block ON balances (chain, block_number);

-- An address whose holdings are to be read once this block is final; 0 when they were never read.
CREATE TABLE balances_due (
    chain TEXT NOT NULL,
    address {{blob}} NOT NULL,
    block_number BIGINT NOT NULL,
    queued_us BIGINT NOT NULL,
    PRIMARY KEY (chain, address, block_number)
);
CREATE INDEX balances_due_next ON balances_due (chain, block_number, queued_us);

-- What is not available of an account is looked for by account.
CREATE INDEX deposits_pending_account ON deposits (account_id, status) WHERE status = 'PENDING';
