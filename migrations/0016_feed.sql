-- The feed: each event's number in one sequence without gaps, and who may write it.

-- NULL until the event is numbered; afterwards never changed. Whoever inserts an event leaves it alone, so also a process
-- of an older version cannot forget it. The events of before are numbered like new ones, in batches, by the first holder.
ALTER TABLE events ADD COLUMN feed_seq BIGINT;
CREATE UNIQUE INDEX events_feed ON events (organization_id, feed_seq) WHERE feed_seq IS NOT NULL;
CREATE INDEX events_feed_account ON events (organization_id, account_id, feed_seq) WHERE feed_seq IS NOT NULL;
CREATE INDEX events_feed_type ON events (organization_id, type, feed_seq) WHERE feed_seq IS NOT NULL;
CREATE INDEX events_feed_account_type ON events (organization_id, account_id, type, feed_seq) WHERE feed_seq IS NOT NULL;
-- What is still to be numbered. Events that only show that a webhook works are not part of the feed.
CREATE INDEX events_unnumbered ON events (organization_id, created_us, aggregateid, position)
    WHERE feed_seq IS NULL AND aggregatetype <> 'webhook';

-- Work that one process at a time does. Each taking has another epoch, which fences off whoever had it before.
CREATE TABLE leases (
    name TEXT NOT NULL PRIMARY KEY,
    owner TEXT NOT NULL,
    epoch BIGINT NOT NULL,
    expires_us BIGINT NOT NULL
);
