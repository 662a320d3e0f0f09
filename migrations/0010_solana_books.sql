-- How the sender of a deposit is known, and what arrived for watched owners without being a deposit.

-- The rule that named the sender: 'told' where the leg itself does, as on EVM.
ALTER TABLE deposits ADD COLUMN sender_rule TEXT NOT NULL DEFAULT 'told';

-- What came to watched owners and is no deposit, each with its reason. Which of it counts is told by blocks.canonical.
CREATE TABLE unattributed (
    chain TEXT NOT NULL,
    block_hash {{blob}} NOT NULL,
    block_number BIGINT NOT NULL,
    -- The content of the leg, as deposits have it, and why it is no deposit: it stands here once for each block, however
    -- often that is read.
    leg_hash {{blob}} NOT NULL,
    reason TEXT NOT NULL,
    tx_id {{blob}} NOT NULL,
    asset {{blob}} NOT NULL,
    sender {{blob}} NOT NULL,
    sender_rule TEXT NOT NULL,
    recipient {{blob}} NOT NULL,
    amount {{blob}} NOT NULL,
    amount_text TEXT NOT NULL,
    PRIMARY KEY (chain, block_hash, leg_hash, reason)
);
CREATE INDEX unattributed_recipient ON unattributed (chain, recipient, block_number);
CREATE INDEX unattributed_newest ON unattributed (chain, block_number DESC);
