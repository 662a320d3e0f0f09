-- Identities in their core, what people decided about them, and requests that a client may send again.

ALTER TABLE identities ADD COLUMN label TEXT NOT NULL DEFAULT '';
-- Empty when there is none.
ALTER TABLE identities ADD COLUMN sub_status TEXT NOT NULL DEFAULT '';
ALTER TABLE identities ADD COLUMN fiat_operations_enabled BOOLEAN NOT NULL DEFAULT false;

-- Insert only: each change of an identity's status, who decided it and why.
CREATE TABLE identity_changes (
    identity_id TEXT NOT NULL REFERENCES identities (id),
    -- 0 for the first.
    position BIGINT NOT NULL,
    at_us BIGINT NOT NULL,
    actor TEXT NOT NULL,
    reason TEXT NOT NULL,
    previous_status TEXT NOT NULL,
    previous_sub_status TEXT NOT NULL,
    status TEXT NOT NULL,
    sub_status TEXT NOT NULL,
    PRIMARY KEY (identity_id, position)
);

-- Never forgotten: a request that comes again after years still makes nothing new.
CREATE TABLE requests (
    organization_id TEXT NOT NULL,
    request_id TEXT NOT NULL,
    -- Of all that it asked for.
    digest {{blob}} NOT NULL,
    -- What it made.
    object_id TEXT NOT NULL,
    created_us BIGINT NOT NULL,
    PRIMARY KEY (organization_id, request_id)
);

-- The request that opened it; empty for one that an operator registered.
ALTER TABLE accounts ADD COLUMN request_id TEXT NOT NULL DEFAULT '';
CREATE INDEX accounts_newest ON accounts (organization_id, created_us DESC, id DESC);
CREATE INDEX accounts_identity ON accounts (identity_id, created_us DESC, id DESC);
CREATE INDEX watched_addresses_account ON watched_addresses (account_id, chain, address);
