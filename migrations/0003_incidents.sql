-- What a person must look at, what operators decided, and what a watcher warns of.

CREATE TABLE incidents (
    id TEXT NOT NULL PRIMARY KEY,
    chain TEXT NOT NULL,
    kind TEXT NOT NULL,
    what TEXT NOT NULL,
    -- Of a reorg: the fork point.
    block_number BIGINT,
    opened_us BIGINT NOT NULL,
    -- When it was last met again.
    seen_us BIGINT NOT NULL,
    resolved_us BIGINT,
    resolution TEXT NOT NULL
);
CREATE UNIQUE INDEX incidents_open ON incidents (chain, kind) WHERE resolved_us IS NULL;

-- An operator's word to a chain's watcher: halt, resume, or something in place of a rule. Each has an entry in audit.
CREATE TABLE overrides (
    chain TEXT NOT NULL,
    kind TEXT NOT NULL,
    value TEXT NOT NULL,
    reason TEXT NOT NULL,
    until_us BIGINT NOT NULL,
    created_us BIGINT NOT NULL,
    PRIMARY KEY (chain, kind)
);

-- Insert only: who decided what, and why.
CREATE TABLE audit (
    id TEXT NOT NULL PRIMARY KEY,
    at_us BIGINT NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    chain TEXT NOT NULL,
    what TEXT NOT NULL,
    reason TEXT NOT NULL
);
CREATE INDEX audit_newest ON audit (at_us DESC, id DESC);

-- Conditions that are no failure yet: finality stalls, too few endpoints agree. A JSON array of texts.
ALTER TABLE chain_status ADD COLUMN alarms TEXT NOT NULL DEFAULT '[]';
-- When the newest final block last advanced.
ALTER TABLE chain_status ADD COLUMN finalized_us BIGINT NOT NULL DEFAULT 0;
