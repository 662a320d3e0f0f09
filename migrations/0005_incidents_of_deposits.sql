-- Incidents that name a deposit, and what a reorg needs of the watch list.

-- The deposit that an incident is about; empty for one about the chain. One of a kind is open for each.
ALTER TABLE incidents ADD COLUMN deposit_id TEXT NOT NULL DEFAULT '';
DROP INDEX incidents_open;
CREATE UNIQUE INDEX incidents_open ON incidents (chain, kind, deposit_id) WHERE resolved_us IS NULL;
CREATE INDEX incidents_deposit ON incidents (deposit_id, kind);

-- After a reorg, addresses that were told a block above the fork point are watched from the one behind it.
CREATE INDEX watched_addresses_from ON watched_addresses (chain, from_number);
