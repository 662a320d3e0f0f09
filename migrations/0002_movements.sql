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
    -- Position among the legs of the block in its lane.
    ordinal BIGINT NOT NULL,
    tx_id {{blob}} NOT NULL,
    asset {{blob}} NOT NULL,
    sender {{blob}} NOT NULL,
    recipient {{blob}} NOT NULL,
    amount {{blob}} NOT NULL,
    amount_text TEXT NOT NULL,
    PRIMARY KEY (chain, block_hash, lane, ordinal)
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
