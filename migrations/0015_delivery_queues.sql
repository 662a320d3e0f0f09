-- How deliveries stand in the queues of their endpoint, and how each endpoint does. It only adds: a program of before
-- still writes events and still finds its leases respected (lease_until_us, which nothing else uses from now on).

-- ACTIVE and OPEN (failing: one event is attempted at a time, now and then) are ours; PAUSED, GONE (it answered 410) and
-- DELETED wait for a person. What is pending stays in every one of them.
-- ACTIVE: failures in a row. OPEN: those that opened it, and each attempt since then.
ALTER TABLE webhooks ADD COLUMN failures BIGINT NOT NULL DEFAULT 0;
ALTER TABLE webhooks ADD COLUMN in_flight_max BIGINT NOT NULL DEFAULT 8;
ALTER TABLE webhooks ADD COLUMN status_since_us BIGINT NOT NULL DEFAULT 0;
-- OPEN: nothing is attempted before. ACTIVE: nothing of what was attempted for seven days.
ALTER TABLE webhooks ADD COLUMN probe_us BIGINT NOT NULL DEFAULT 0;
-- What failed is being made due at once, some at a time.
ALTER TABLE webhooks ADD COLUMN releasing BOOLEAN NOT NULL DEFAULT FALSE;

-- A PENDING delivery stands in one of these: FIRST (not failed yet), AGAIN (failed), LEASED (an attempt may be under way),
-- WAITING (for an earlier event of its deposit), HELD (failed for seven days). next_us is when it is due; of a LEASED one,
-- when the lease ends; of a WAITING one, when it is looked at though nobody said that it is its turn.
ALTER TABLE deliveries ADD COLUMN queue TEXT NOT NULL DEFAULT 'FIRST';
-- How many attempts have failed since it was written, replayed or released.
ALTER TABLE deliveries ADD COLUMN failures BIGINT NOT NULL DEFAULT 0;
-- The number of the claim that leased it.
ALTER TABLE deliveries ADD COLUMN owner BIGINT NOT NULL DEFAULT 0;
UPDATE deliveries SET failures = attempt, queue = CASE WHEN attempt > 0 THEN 'AGAIN' ELSE 'FIRST' END WHERE state = 'PENDING';
DROP INDEX deliveries_due;
CREATE INDEX deliveries_queue ON deliveries (webhook_id, queue, next_us, event_id) WHERE state = 'PENDING';
CREATE INDEX deliveries_owner ON deliveries (owner) WHERE queue = 'LEASED';
CREATE INDEX events_account ON events (account_id, created_us, id);
CREATE INDEX events_created ON events (created_us, id);
