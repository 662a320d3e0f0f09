//! Times of deliveries that lie farther ahead than any rule puts them: a clock that was ahead wrote them, and nothing
//! waits for such a time. `delivery` decides how far that is, and what is done about it.

use crate::store::sql::{execute, fetch_all, statements};
use crate::store::{Connection, StoreError, Tx};
use crate::time::Timestamp;

/// The latest time that each kind may have; what lies after it is ahead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    pub now: Timestamp,
    /// For what is due when it is written, and for when something happened.
    pub written: Timestamp,
    pub leased: Timestamp,
    pub waiting: Timestamp,
    /// For what has failed at most `soon_failures` times.
    pub soon: Timestamp,
    pub soon_failures: u32,
    /// For what has failed more often, and for probes.
    pub last: Timestamp,
}

/// A lease that ends too far ahead: its event, the number of its attempt.
pub type AheadLease = (String, i64);

statements! {
    // Checks like the delivery itself: a backlog at an endpoint costs no more than a single row, and a deleted endpoint
    // costs nothing.
    ENDPOINTS = "SELECT webhooks.id FROM webhooks WHERE status <> 'DELETED' \
                 AND (SELECT state FROM deliveries WHERE webhook_id = webhooks.id AND state = 'PENDING' LIMIT 1) = 'PENDING' \
                 AND (status_since_us > $1 OR probed_us > $1 OR probe_us > $6 \
                 OR EXISTS (SELECT 1 FROM deliveries WHERE webhook_id = webhooks.id AND state = 'PENDING' AND queue = 'FIRST' AND next_us > $1) \
                 OR EXISTS (SELECT 1 FROM deliveries WHERE webhook_id = webhooks.id AND state = 'PENDING' AND queue = 'LEASED' AND next_us > $2) \
                 OR EXISTS (SELECT 1 FROM deliveries WHERE webhook_id = webhooks.id AND state = 'PENDING' AND queue = 'WAITING' AND next_us > $3) \
                 OR EXISTS (SELECT 1 FROM deliveries WHERE webhook_id = webhooks.id AND state = 'PENDING' AND queue = 'AGAIN' AND next_us > $4 \
                            AND deliveries.failures <= $5) \
                 OR EXISTS (SELECT 1 FROM deliveries WHERE webhook_id = webhooks.id AND state = 'PENDING' AND queue = 'AGAIN' AND next_us > $6) \
                 OR EXISTS (SELECT 1 FROM deliveries WHERE webhook_id = webhooks.id AND state = 'PENDING' AND queue = 'HELD' AND next_us > $6)) \
                 ORDER BY webhooks.id";
    MAKE_DUE = "UPDATE deliveries SET next_us = $3 WHERE webhook_id = $1 AND state = 'PENDING' AND queue = $2 AND next_us > $4 AND failures <= $5";
    HEALTH = "UPDATE webhooks SET status_since_us = CASE WHEN status_since_us > $3 THEN $2 ELSE status_since_us END, \
                probed_us = CASE WHEN probed_us > $3 THEN $2 ELSE probed_us END, probe_us = CASE WHEN probe_us > $4 THEN $2 ELSE probe_us END \
              WHERE id = $1 AND (status_since_us > $3 OR probed_us > $3 OR probe_us > $4)";
    LEASES = "SELECT event_id, attempt FROM deliveries WHERE webhook_id = $1 AND state = 'PENDING' AND queue = 'LEASED' AND next_us > $2";
    END_LEASE = "UPDATE deliveries SET next_us = $4 WHERE event_id = $1 AND webhook_id = $2 AND attempt = $3 AND state = 'PENDING' AND queue = 'LEASED'";
}

/// The endpoints at which some time is ahead.
pub async fn endpoints(connection: &mut impl Connection, bounds: Bounds) -> Result<Vec<String>, StoreError> {
    let Bounds { written, leased, waiting, soon, soon_failures, last, .. } = bounds;
    let soon_failures = i64::from(soon_failures);
    let rows =
        fetch_all!(connection, (String,), ENDPOINTS, written.0, leased.0, waiting.0, soon.0, soon_failures, last.0)?;
    Ok(rows.into_iter().map(|(id,)| id).collect())
}

/// Makes what is ahead at an endpoint due now, except leases; returns how many deliveries.
pub async fn make_due(tx: &mut Tx, id: &str, bounds: Bounds) -> Result<u64, StoreError> {
    let Bounds { now, written, waiting, soon, soon_failures, last, .. } = bounds;
    execute!(tx, HEALTH, id, now.0, written.0, last.0)?;
    let (few, any) = (i64::from(soon_failures), i64::MAX);
    let of = [("FIRST", written, any), ("WAITING", waiting, any), ("AGAIN", soon, few), ("AGAIN", last, any)];
    let mut count = 0;
    for (queue, beyond, failures) in of.into_iter().chain([("HELD", last, any)]) {
        count += execute!(tx, MAKE_DUE, id, queue, now.0, beyond.0, failures)?;
    }
    Ok(count)
}

/// The leases that end too far ahead.
pub async fn leases(connection: &mut impl Connection, id: &str, bounds: Bounds) -> Result<Vec<AheadLease>, StoreError> {
    fetch_all!(connection, AheadLease, LEASES, id, bounds.leased.0)
}

/// Ends a lease, if it is still this one.
pub async fn end_lease(tx: &mut Tx, id: &str, lease: &AheadLease, now: Timestamp) -> Result<u64, StoreError> {
    let (event, attempt) = lease;
    execute!(tx, END_LEASE, event, id, *attempt, now.0)
}
