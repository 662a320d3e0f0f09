-- The addresses that were asked for are no part of the key any more: an entry of PostgreSQL's index takes 2,704 bytes, some sixty of them.

CREATE TABLE backfills_of_many (
    chain TEXT NOT NULL,
    -- Both inclusive, as they were asked for.
    from_number BIGINT NOT NULL,
    to_number BIGINT NOT NULL,
    -- 'receipts' or 'logs'.
    proof TEXT NOT NULL,
    -- The addresses that were asked for, as text; empty for all.
    scope TEXT NOT NULL,
    -- What stands for them in the key: they themselves, or the SHA-256 of many, but in rows from before.
    scope_key TEXT NOT NULL,
    -- What was looked for: the newest watched address and the listed assets. With others it begins again.
    basis TEXT NOT NULL,
    -- The next block to read; to_number + 1 when all is done.
    next_number BIGINT NOT NULL,
    found BIGINT NOT NULL,
    created_us BIGINT NOT NULL,
    updated_us BIGINT NOT NULL,
    PRIMARY KEY (chain, from_number, to_number, proof, scope_key)
);
INSERT INTO backfills_of_many
    SELECT chain, from_number, to_number, proof, scope, scope, basis, next_number, found, created_us, updated_us FROM backfills;
DROP TABLE backfills;
ALTER TABLE backfills_of_many RENAME TO backfills;
