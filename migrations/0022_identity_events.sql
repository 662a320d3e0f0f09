-- Events of identities stand among the others: aggregatetype 'identity', aggregateid the identity's id, and no account_id, for they
-- concern all its accounts. An account's part of the feed has those of its identity too, which are found by this.

CREATE INDEX events_feed_identity ON events (organization_id, aggregateid, feed_seq)
    WHERE aggregatetype = 'identity' AND feed_seq IS NOT NULL;
