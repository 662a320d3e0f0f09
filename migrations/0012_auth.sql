-- What a key may do, whether it still may, when it was last used. Keys from before could only read: so they do.
ALTER TABLE api_keys ADD COLUMN scopes TEXT NOT NULL DEFAULT 'read';
ALTER TABLE api_keys ADD COLUMN revoked_us BIGINT;
ALTER TABLE api_keys ADD COLUMN last_used_us BIGINT;

-- The public keys that sign for an API key. One row, even an expired one, makes signing compulsory for ever.
CREATE TABLE public_keys (
    key_id TEXT NOT NULL REFERENCES api_keys (id),
    -- SubjectPublicKeyInfo (RFC 5280), which says the algorithm too.
    spki {{blob}} NOT NULL,
    created_us BIGINT NOT NULL,
    -- Until when it signs; NULL is for ever.
    valid_until_us BIGINT,
    PRIMARY KEY (key_id, spki)
);

-- The nonces of signed requests that change something, as hashes, until nobody could use them again.
CREATE TABLE request_nonces (
    nonce {{blob}} NOT NULL PRIMARY KEY,
    expires_us BIGINT NOT NULL
);
CREATE INDEX request_nonces_expired ON request_nonces (expires_us);
