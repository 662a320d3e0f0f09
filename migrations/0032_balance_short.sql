-- Incidents that name an address and an asset: what the address holds contradicts CONFIRMED deposits.

-- NULL for all other incidents. One of a kind is open for each address and asset.
ALTER TABLE incidents ADD COLUMN address {{blob}};
ALTER TABLE incidents ADD COLUMN asset {{blob}};
DROP INDEX incidents_open;
CREATE UNIQUE INDEX incidents_open ON incidents (chain, kind, deposit_id) WHERE resolved_us IS NULL AND address IS NULL;
CREATE UNIQUE INDEX incidents_open_of ON incidents (chain, kind, address, asset) WHERE resolved_us IS NULL;

-- The incident that the two readings are part of; NULL where they are part of none.
ALTER TABLE unexplained ADD COLUMN incident_id TEXT;
CREATE INDEX unexplained_incident ON unexplained (incident_id);
-- A deposit may become CONFIRMED after the balance behind its block was compared.
CREATE INDEX unexplained_address ON unexplained (chain, address, asset, to_number);
