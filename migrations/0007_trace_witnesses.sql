-- Who told the trace of a block, and which blocks' traces cannot be had now.

-- What stood behind the reading that is on record: 'two_endpoints', 'one_endpoint', or 'roots' where nothing had to be
-- traced; NULL where no trace was read.
ALTER TABLE blocks ADD COLUMN traced_by TEXT;
CREATE INDEX blocks_traced_by ON blocks (chain, traced_by, number) WHERE canonical AND traced_by IS NOT NULL;

-- Blocks whose last trace failed, until they are traced.
CREATE TABLE trace_failures (
    chain TEXT NOT NULL,
    block_hash {{blob}} NOT NULL,
    block_number BIGINT NOT NULL,
    -- How often it failed while other blocks could be traced: then it is the block's own failure.
    tries BIGINT NOT NULL,
    tried_us BIGINT NOT NULL,
    -- When it is tried again.
    next_us BIGINT NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (chain, block_hash)
);
