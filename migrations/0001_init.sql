-- One text for both engines. {{blob}} is BYTEA on PostgreSQL and BLOB on SQLite; no other type differs.
-- Numbers are BIGINT, times microseconds since 1970, amounts 32 bytes big endian beside their decimal text.

CREATE TABLE identities (
    id TEXT NOT NULL PRIMARY KEY,
    organization_id TEXT NOT NULL,
    type TEXT NOT NULL,
    status TEXT NOT NULL,
    created_us BIGINT NOT NULL
);
-- Accounts that name no identity belong to this one.
INSERT INTO identities (id, organization_id, type, status, created_us) VALUES ('default', 'default', 'BUSINESS', 'ACTIVE', 0);

CREATE TABLE accounts (
    id TEXT NOT NULL PRIMARY KEY,
    organization_id TEXT NOT NULL,
    identity_id TEXT NOT NULL REFERENCES identities (id),
    type TEXT NOT NULL,
    created_us BIGINT NOT NULL
);

-- Where each chain's watcher stands. watch_seq is the number of the newest watched address: whoever adds one takes
-- this row's lock, and whoever connects a block compares it, so no block is matched against an outdated list.
CREATE TABLE cursors (
    chain TEXT NOT NULL PRIMARY KEY,
    number BIGINT,
    hash {{blob}},
    final_number BIGINT,
    final_hash {{blob}},
    watch_seq BIGINT NOT NULL
);

CREATE TABLE watched_addresses (
    chain TEXT NOT NULL REFERENCES cursors (chain),
    address {{blob}} NOT NULL,
    account_id TEXT NOT NULL REFERENCES accounts (id),
    seq BIGINT NOT NULL,
    from_number BIGINT NOT NULL,
    PRIMARY KEY (chain, address),
    UNIQUE (chain, seq)
);

-- The newest connected blocks: the locator of fork points. Disconnecting clears canonical and deletes nothing.
CREATE TABLE blocks (
    chain TEXT NOT NULL REFERENCES cursors (chain),
    hash {{blob}} NOT NULL,
    number BIGINT NOT NULL,
    parent_hash {{blob}} NOT NULL,
    time_us BIGINT NOT NULL,
    proof TEXT NOT NULL,
    canonical BOOLEAN NOT NULL,
    PRIMARY KEY (chain, hash)
);
CREATE UNIQUE INDEX blocks_canonical ON blocks (chain, number) WHERE canonical;
CREATE INDEX blocks_number ON blocks (chain, number);

CREATE TABLE deposits (
    id TEXT NOT NULL PRIMARY KEY,
    leg_hash {{blob}} NOT NULL UNIQUE,
    organization_id TEXT NOT NULL,
    account_id TEXT NOT NULL REFERENCES accounts (id),
    source_account_id TEXT,
    chain TEXT NOT NULL,
    tx_id {{blob}} NOT NULL,
    tx_life {{blob}} NOT NULL,
    asset {{blob}} NOT NULL,
    sender {{blob}} NOT NULL,
    recipient {{blob}} NOT NULL,
    amount {{blob}} NOT NULL,
    amount_text TEXT NOT NULL,
    nth BIGINT NOT NULL,
    symbol TEXT NOT NULL,
    decimals BIGINT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('PENDING', 'CONFIRMED', 'FAILED')),
    created_us BIGINT NOT NULL,
    confirmed_us BIGINT,
    -- Since when its transaction is in no block although its height is final.
    missing_since_us BIGINT,
    -- The final block at which it was last looked for.
    missing_number BIGINT,
    CHECK ((status = 'CONFIRMED') = (confirmed_us IS NOT NULL))
);
CREATE INDEX deposits_account ON deposits (organization_id, account_id, created_us DESC, id DESC);
CREATE INDEX deposits_newest ON deposits (organization_id, created_us DESC, id DESC);
-- The status stands in it too: without it SQLite's planner prefers an index over every deposit of the chain.
CREATE INDEX deposits_pending ON deposits (chain, status) WHERE status = 'PENDING';
CREATE INDEX deposits_tx ON deposits (tx_id);

-- Every block that a deposit was ever seen in; which of them count is told by blocks.canonical.
CREATE TABLE inclusions (
    deposit_id TEXT NOT NULL REFERENCES deposits (id),
    chain TEXT NOT NULL,
    block_hash {{blob}} NOT NULL,
    block_number BIGINT NOT NULL,
    PRIMARY KEY (deposit_id, block_hash)
);
CREATE INDEX inclusions_block ON inclusions (chain, block_hash);

-- Insert only. The columns id, aggregatetype, aggregateid, type and payload are those of Debezium's outbox router.
CREATE TABLE events (
    id TEXT NOT NULL PRIMARY KEY,
    aggregatetype TEXT NOT NULL,
    aggregateid TEXT NOT NULL,
    type TEXT NOT NULL,
    payload TEXT NOT NULL,
    organization_id TEXT NOT NULL,
    account_id TEXT NOT NULL,
    status TEXT NOT NULL,
    nth_entry BIGINT NOT NULL,
    -- Position among the events of its aggregate, from 0.
    position BIGINT NOT NULL,
    created_us BIGINT NOT NULL,
    UNIQUE (aggregateid, position)
);

CREATE TABLE webhooks (
    id TEXT NOT NULL PRIMARY KEY,
    organization_id TEXT NOT NULL,
    url TEXT NOT NULL,
    label TEXT NOT NULL,
    status TEXT NOT NULL,
    allow_private BOOLEAN NOT NULL,
    signing_key_id TEXT NOT NULL,
    signing_key TEXT NOT NULL,
    signing_key_created_us BIGINT NOT NULL,
    created_us BIGINT NOT NULL
);

CREATE TABLE deliveries (
    event_id TEXT NOT NULL REFERENCES events (id),
    webhook_id TEXT NOT NULL REFERENCES webhooks (id),
    aggregateid TEXT NOT NULL,
    position BIGINT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('PENDING', 'DELIVERED')),
    -- How many attempts were begun: the fencing token of a claim.
    attempt BIGINT NOT NULL,
    next_us BIGINT NOT NULL,
    lease_until_us BIGINT NOT NULL,
    PRIMARY KEY (event_id, webhook_id)
);
CREATE INDEX deliveries_due ON deliveries (next_us) WHERE state = 'PENDING';
CREATE INDEX deliveries_order ON deliveries (webhook_id, aggregateid, position);

CREATE TABLE attempts (
    event_id TEXT NOT NULL,
    webhook_id TEXT NOT NULL,
    attempt BIGINT NOT NULL,
    started_us BIGINT NOT NULL,
    duration_us BIGINT NOT NULL,
    -- The HTTP status, when there was an answer.
    status BIGINT,
    error TEXT NOT NULL,
    response_head TEXT NOT NULL,
    PRIMARY KEY (event_id, webhook_id, attempt)
);

CREATE TABLE api_keys (
    id TEXT NOT NULL PRIMARY KEY,
    organization_id TEXT NOT NULL,
    name TEXT NOT NULL,
    secret_hash {{blob}} NOT NULL,
    created_us BIGINT NOT NULL
);

-- What a watcher last said of itself, for other processes: status, health.
CREATE TABLE chain_status (
    chain TEXT NOT NULL PRIMARY KEY,
    state TEXT NOT NULL,
    reason TEXT NOT NULL,
    proof TEXT NOT NULL,
    latest BIGINT,
    finalized BIGINT,
    -- When the cursor last stood at the newest block.
    caught_up_us BIGINT NOT NULL,
    heartbeat_us BIGINT NOT NULL
);

CREATE TABLE endpoint_status (
    chain TEXT NOT NULL,
    id TEXT NOT NULL,
    ordinal BIGINT NOT NULL,
    state TEXT NOT NULL,
    reason TEXT NOT NULL,
    latest BIGINT,
    PRIMARY KEY (chain, id)
);
