-- How much an endpoint's failures weigh, and when it was last tried while it fails. It only adds: a program of before
-- goes by failures and probe_us, which keep their meaning.

-- ACTIVE: what its failures in a row weigh; at 100 it is OPEN. The first failure of an event weighs most.
ALTER TABLE webhooks ADD COLUMN strain BIGINT NOT NULL DEFAULT 0;
-- When a probe last began. An event that was never attempted is not kept waiting for the next one in the schedule.
ALTER TABLE webhooks ADD COLUMN probed_us BIGINT NOT NULL DEFAULT 0;
