-- Reading past ranges again, on demand: where each stands, so that it can be taken up again.

CREATE TABLE backfills (
    chain TEXT NOT NULL,
    -- Both inclusive, as they were asked for.
    from_number BIGINT NOT NULL,
    to_number BIGINT NOT NULL,
    -- 'receipts' or 'logs'.
    proof TEXT NOT NULL,
    -- The addresses that were asked for, as text; empty for all.
    scope TEXT NOT NULL,
    -- What was looked for: the newest watched address and the listed assets. With others it begins again.
    basis TEXT NOT NULL,
    -- The next block to read; to_number + 1 when all is done.
    next_number BIGINT NOT NULL,
    found BIGINT NOT NULL,
    created_us BIGINT NOT NULL,
    updated_us BIGINT NOT NULL,
    PRIMARY KEY (chain, from_number, to_number, proof, scope)
);
