-- A listed asset that the chain says otherwise of than the configuration does is held: nothing of it is CONFIRMED. So is one that
-- the chain was not asked for yet. What was told is what as many endpoints as must agree report since.
ALTER TABLE asset_facts ADD COLUMN is_held BOOLEAN NOT NULL DEFAULT FALSE;
