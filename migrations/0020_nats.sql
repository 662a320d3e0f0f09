-- Events to a NATS JetStream stream: one more endpoint, with deliveries, order and breaker as any other. It only adds. A process of
-- before takes it for a webhook whose URL it cannot send to: what it attempts fails, and is attempted again by one that can.

-- WEBHOOK, or NATS: that one has the id nats, and nats: with the name of its stream in place of a URL.
ALTER TABLE webhooks ADD COLUMN kind TEXT NOT NULL DEFAULT 'WEBHOOK';

-- What the processes that publish last said of their connection, for `status` and `health`. The word of one that is up
-- stands while it is repeated.
CREATE TABLE sink_status (
    id TEXT NOT NULL PRIMARY KEY,
    owner TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('up', 'away', 'refused')),
    reason TEXT NOT NULL,
    since_us BIGINT NOT NULL,
    heartbeat_us BIGINT NOT NULL
);
