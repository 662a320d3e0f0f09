-- Since when each asset is followed, why an address is to be read, and what nobody tells of it.

CREATE TABLE balance_assets (
    chain TEXT NOT NULL,
    asset {{blob}} NOT NULL,
    -- The first block that was searched for it: what moved of it before was not seen.
    followed_from BIGINT NOT NULL,
    -- Since when nobody tells how much of it anybody holds; NULL while somebody does.
    untold_us BIGINT,
    PRIMARY KEY (chain, asset)
);

-- 'moved': something moved in that block, or may have up to it without being seen. The others are read at whichever block is
-- final, and have the number 0: 'added', 'listed' (an asset), 'taken_back' (what was read of a final block is not true).
ALTER TABLE balances_due ADD COLUMN reason TEXT NOT NULL DEFAULT 'moved';
-- Since when it was asked for and not told alike, of which assets, and when it is asked for again.
ALTER TABLE balances_due ADD COLUMN untold_us BIGINT;
ALTER TABLE balances_due ADD COLUMN untold_assets TEXT NOT NULL DEFAULT '';
ALTER TABLE balances_due ADD COLUMN again_us BIGINT NOT NULL DEFAULT 0;
UPDATE balances_due SET reason = 'added' WHERE block_number = 0;
CREATE INDEX balances_due_reason ON balances_due (chain, reason, queued_us);
CREATE INDEX balances_due_untold ON balances_due (chain, untold_us) WHERE untold_us IS NOT NULL;
