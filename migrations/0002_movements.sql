-- What is kept of a block beside its credits: whether it was traced, what left watched addresses, what they paid.

-- A block of a network that is not traced counts as traced.
ALTER TABLE blocks ADD COLUMN traced BOOLEAN NOT NULL DEFAULT true;
CREATE INDEX blocks_untraced ON blocks (chain, number) WHERE canonical AND NOT traced;

-- What showed the leg in this block: 'roots' or 'traces'.
ALTER TABLE inclusions ADD COLUMN lane TEXT NOT NULL DEFAULT 'roots';

-- Legs out of watched addresses. Which of them count is told by blocks.canonical.
CREATE TABLE debits (
    chain TEXT NOT NULL,
    block_hash {{blob}} NOT NULL,
    block_number BIGINT NOT NULL,
    lane TEXT NOT NULL,
    -- The content of the leg, as deposits have it: the same leg of a block stands here once, however often it is read.
    leg_hash {{blob}} NOT NULL,
    tx_id {{blob}} NOT NULL,
    asset {{blob}} NOT NULL,
    sender {{blob}} NOT NULL,
    recipient {{blob}} NOT NULL,
    amount {{blob}} NOT NULL,
    amount_text TEXT NOT NULL,
    PRIMARY KEY (chain, block_hash, leg_hash)
);
CREATE INDEX debits_sender ON debits (chain, sender, block_number);

-- What watched addresses paid for transactions, in base units of the native currency.
CREATE TABLE fees (
    chain TEXT NOT NULL,
    block_hash {{blob}} NOT NULL,
    block_number BIGINT NOT NULL,
    tx_id {{blob}} NOT NULL,
    payer {{blob}} NOT NULL,
    amount {{blob}} NOT NULL,
    amount_text TEXT NOT NULL,
    PRIMARY KEY (chain, block_hash, tx_id)
);
CREATE INDEX fees_payer ON fees (chain, payer, block_number);

-- Deposits that a trace showed, in a final block, and that no second witness has confirmed yet.
CREATE TABLE unwitnessed (
    deposit_id TEXT NOT NULL PRIMARY KEY REFERENCES deposits (id),
    chain TEXT NOT NULL,
    tries BIGINT NOT NULL,
    -- When it is tried again.
    next_us BIGINT NOT NULL,
    reason TEXT NOT NULL
);

-- What the lane of the traces last said of itself; no row where a network is not traced.
CREATE TABLE trace_status (
    chain TEXT NOT NULL PRIMARY KEY,
    -- Why it does not get on; empty when all is well.
    reason TEXT NOT NULL,
    -- When every connected block was last traced; 0 when that never was.
    caught_up_us BIGINT NOT NULL
);
