-- What addresses hold, compared with what is on record of them.

-- What came to an address in some blocks is found by this; NULL where a version of before recorded it.
ALTER TABLE inclusions ADD COLUMN recipient {{blob}};
CREATE INDEX inclusions_recipient ON inclusions (chain, recipient, block_number);
-- Whose tokens stand in other accounts than the one that is read.
CREATE INDEX unattributed_stray ON unattributed (chain, recipient, asset) WHERE reason = 'ineligible_token_account';

-- Two readings between which more or less moved than was on record. It names no transaction, and is no deposit.
CREATE TABLE unexplained (
    chain TEXT NOT NULL,
    address {{blob}} NOT NULL,
    asset {{blob}} NOT NULL,
    -- What was held after the older block, and after the newer one, in base units.
    from_number BIGINT NOT NULL,
    had {{blob}} NOT NULL,
    had_text TEXT NOT NULL,
    to_number BIGINT NOT NULL,
    has {{blob}} NOT NULL,
    has_text TEXT NOT NULL,
    found_us BIGINT NOT NULL,
    PRIMARY KEY (chain, to_number, address, asset)
);

-- From which block on all that moves of an asset is seen, by the settings in words; NULL where it is not, and then nothing is
-- compared.
ALTER TABLE balance_assets ADD COLUMN explained_from BIGINT;
ALTER TABLE balance_assets ADD COLUMN explained_by TEXT;
-- The newest reading that was compared: what came and went is counted from behind its block.
ALTER TABLE balances ADD COLUMN base_number BIGINT;
ALTER TABLE balances ADD COLUMN base_amount {{blob}};
