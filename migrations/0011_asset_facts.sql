-- What a chain itself says of each listed asset: one endpoint's word, put before people. No credit is decided by it.

CREATE TABLE asset_facts (
    chain TEXT NOT NULL,
    asset {{blob}} NOT NULL,
    symbol TEXT NOT NULL,
    -- When it was last told; null while it never was, as is all that was told then.
    told_us BIGINT,
    -- The program that keeps it: by name where it keeps tokens, else by address, and nothing more is told then.
    program TEXT,
    decimals BIGINT,
    freeze_authority TEXT,
    permanent_delegate TEXT,
    -- Hundredths of a percent, and the most base units.
    fee_basis_points BIGINT,
    fee_maximum TEXT,
    -- Names as JSON arrays: all extensions, and those by which others may move, stop, hide or shrink a holding.
    extensions TEXT NOT NULL,
    risks TEXT NOT NULL,
    -- How it differs from what is listed; empty when it does not.
    differs TEXT NOT NULL,
    -- Why the last look told nothing; empty when it did.
    reason TEXT NOT NULL,
    PRIMARY KEY (chain, asset)
);
