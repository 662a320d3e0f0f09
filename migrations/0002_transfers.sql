-- Money out: the addresses that we hold keys of, and what accounts send from them. Types and times as in 0001.

-- Addresses whose keys the signer holds. An address is a function of the account alone, so a restored row is the same row.
CREATE TABLE wallets (
    -- 'evm' or 'solana': an EVM address is one wallet on every EVM chain.
    family TEXT NOT NULL,
    address {{blob}} NOT NULL,
    account_id TEXT NOT NULL REFERENCES accounts (id),
    -- Empty for the address that pays; of a further deposit address the request that asked for it.
    tag TEXT NOT NULL,
    -- Where the signer derives its key, and from which of its seeds.
    path TEXT NOT NULL,
    key_id TEXT NOT NULL,
    created_us BIGINT NOT NULL,
    PRIMARY KEY (family, address),
    UNIQUE (account_id, family, tag)
);

CREATE TABLE transfers (
    id TEXT NOT NULL PRIMARY KEY,
    organization_id TEXT NOT NULL,
    request_id TEXT NOT NULL,
    account_id TEXT NOT NULL REFERENCES accounts (id),
    identity_id TEXT NOT NULL REFERENCES identities (id),
    chain TEXT NOT NULL,
    asset {{blob}} NOT NULL,
    symbol TEXT NOT NULL,
    decimals BIGINT NOT NULL,
    amount {{blob}} NOT NULL,
    amount_text TEXT NOT NULL,
    -- The address that pays: it is fixed here, and never chosen by what it holds.
    source {{blob}} NOT NULL,
    destination {{blob}} NOT NULL,
    -- The account that is paid, when the destination is one of ours.
    destination_account_id TEXT,
    -- 'accepted', 'carried', 'included', 'expiring', 'confirmed', 'failed' or 'dropped'; the status follows from it.
    state TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('ACCEPTED', 'SUBMITTED', 'CONFIRMED', 'FAILED', 'DROPPED')),
    -- Of a FAILED or DROPPED one.
    failure_code TEXT,
    reason TEXT,
    tx_id {{blob}},
    created_us BIGINT NOT NULL,
    updated_us BIGINT NOT NULL,
    submitted_us BIGINT,
    confirmed_us BIGINT,
    -- Stands in each signature; only healing moves it.
    deadline_us BIGINT NOT NULL,
    CHECK ((status = 'CONFIRMED') = (confirmed_us IS NOT NULL)),
    CHECK ((status IN ('FAILED', 'DROPPED')) = (failure_code IS NOT NULL))
);
-- Pages go by time and by the bytes of ids.
CREATE INDEX transfers_newest ON transfers (organization_id, created_us DESC, id{{by_bytes}} DESC);
CREATE INDEX transfers_account ON transfers (account_id, created_us DESC, id{{by_bytes}} DESC);
CREATE INDEX transfers_identity ON transfers (identity_id, created_us DESC, id{{by_bytes}} DESC);
-- What is reserved of an account, and what the sender still has to do.
CREATE INDEX transfers_open ON transfers (account_id, chain, status) WHERE status IN ('ACCEPTED', 'SUBMITTED');

-- Insert only: each state that a transfer entered, and by which evidence.
CREATE TABLE transfer_changes (
    transfer_id TEXT NOT NULL REFERENCES transfers (id),
    -- 0 for the first, which is that it was accepted.
    position BIGINT NOT NULL,
    at_us BIGINT NOT NULL,
    state TEXT NOT NULL,
    evidence TEXT NOT NULL,
    PRIMARY KEY (transfer_id, position)
);
