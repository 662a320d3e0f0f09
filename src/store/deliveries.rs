//! What is to be sent where, claimed for a time and fenced by the number of the attempt.
//!
//! A delivery is claimed only when no earlier event of the same deposit is still to be delivered to that webhook.
//! An ack changes a row only while it still has the claimed attempt's number: a late one changes nothing.

use std::time::Duration;

use sqlx::FromRow;

use crate::store::sql::{execute, fetch_all, fetch_optional, statements};
use crate::store::{Connection, StoreError, Tx, int, uint};
use crate::time::Timestamp;

/// A delivery that is ours to attempt until its lease ends.
#[derive(Clone, PartialEq, Eq)]
pub struct Claimed {
    pub event_id: String,
    pub webhook_id: String,
    /// 1 for the first.
    pub attempt: u32,
    pub payload: String,
    pub url: String,
    /// Those inside that the webhook may reach, separated by commas.
    pub allowed_networks: String,
    /// Secrets, separated by spaces: each signs.
    pub signing_key: String,
}

/// How an attempt went, for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AttemptLog {
    pub started_at: Timestamp,
    pub duration: Duration,
    pub status: Option<u16>,
    /// Empty when it was delivered.
    pub error: String,
    pub response_head: String,
}

statements! {
    // A list made once: PostgreSQL may run a subquery with a limit again for each row, and claim more than the limit.
    CLAIM = "WITH claimable AS MATERIALIZED (SELECT due.event_id, due.webhook_id FROM deliveries AS due \
              WHERE due.state = 'PENDING' AND due.next_us <= $2 AND due.lease_until_us <= $2 AND NOT EXISTS \
                (SELECT 1 FROM deliveries AS earlier WHERE earlier.webhook_id = due.webhook_id \
                 AND earlier.aggregateid = due.aggregateid AND earlier.position < due.position AND earlier.state = 'PENDING') \
              AND EXISTS (SELECT 1 FROM webhooks WHERE webhooks.id = due.webhook_id AND webhooks.status = 'ACTIVE') \
              ORDER BY due.next_us, due.event_id, due.webhook_id LIMIT $3" [" FOR UPDATE SKIP LOCKED"] ") \
             UPDATE deliveries SET attempt = attempt + 1, lease_until_us = $1 \
             WHERE (event_id, webhook_id) IN (SELECT event_id, webhook_id FROM claimable) \
             RETURNING event_id, webhook_id, attempt, \
               (SELECT payload FROM events WHERE events.id = deliveries.event_id) AS payload, \
               (SELECT url FROM webhooks WHERE webhooks.id = deliveries.webhook_id) AS url, \
               (SELECT allowed_networks FROM webhooks WHERE webhooks.id = deliveries.webhook_id) AS allowed_networks, \
               (SELECT signing_key || CASE WHEN previous_key_expires_us > $2 THEN ' ' || previous_signing_key ELSE '' END \
                FROM webhooks WHERE webhooks.id = deliveries.webhook_id) AS signing_key";
    DELIVERED = "UPDATE deliveries SET state = 'DELIVERED', lease_until_us = 0 \
                 WHERE event_id = $1 AND webhook_id = $2 AND attempt = $3 AND state = 'PENDING'";
    RETRY = "UPDATE deliveries SET next_us = $4, lease_until_us = 0 \
             WHERE event_id = $1 AND webhook_id = $2 AND attempt = $3 AND state = 'PENDING'";
    LOG = "INSERT INTO attempts (event_id, webhook_id, attempt, started_us, duration_us, status, error, response_head) \
           VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (event_id, webhook_id, attempt) DO NOTHING";
    LAST_ATTEMPT = "SELECT attempt, started_us, duration_us, status, error, response_head FROM attempts \
                    WHERE event_id = $1 AND webhook_id = $2 ORDER BY attempt DESC LIMIT 1";
}

#[derive(FromRow)]
struct ClaimedRow {
    event_id: String,
    webhook_id: String,
    attempt: i64,
    payload: String,
    url: String,
    allowed_networks: String,
    signing_key: String,
}

/// Claims at most `limit` due deliveries until `lease_until`.
pub async fn claim(
    tx: &mut Tx,
    now: Timestamp,
    lease_until: Timestamp,
    limit: u32,
) -> Result<Vec<Claimed>, StoreError> {
    let rows = fetch_all!(tx, ClaimedRow, CLAIM, lease_until.0, now.0, i64::from(limit))?;
    let claimed = rows.into_iter().map(|row| {
        let ClaimedRow { event_id, webhook_id, attempt, payload, url, allowed_networks, signing_key } = row;
        let attempt = uint("attempt", attempt)?;
        Ok(Claimed { event_id, webhook_id, attempt, payload, url, allowed_networks, signing_key })
    });
    claimed.collect()
}

/// The claimed delivery arrived. False when the claim was no longer ours.
pub async fn delivered(tx: &mut Tx, claimed: &Claimed) -> Result<bool, StoreError> {
    let Claimed { event_id, webhook_id, attempt, .. } = claimed;
    Ok(execute!(tx, DELIVERED, event_id, webhook_id, i64::from(*attempt))? == 1)
}

/// The claimed delivery did not arrive, or nobody knows: it is due again at `next`. False when the claim was no
/// longer ours.
pub async fn retry_at(tx: &mut Tx, claimed: &Claimed, next: Timestamp) -> Result<bool, StoreError> {
    let Claimed { event_id, webhook_id, attempt, .. } = claimed;
    Ok(execute!(tx, RETRY, event_id, webhook_id, i64::from(*attempt), next.0)? == 1)
}

/// Writes down how an attempt went.
pub async fn log(tx: &mut Tx, claimed: &Claimed, log: &AttemptLog) -> Result<(), StoreError> {
    let Claimed { event_id, webhook_id, attempt, .. } = claimed;
    let (attempt, status) = (i64::from(*attempt), log.status.map(i64::from));
    let (started, duration) = (log.started_at.0, int(log.duration.as_micros()));
    execute!(tx, LOG, event_id, webhook_id, attempt, started, duration, status, &log.error, &log.response_head)
        .map(drop)
}

/// How the last attempt went, and its number; `None` while there was none.
pub async fn last_attempt(
    connection: &mut impl Connection,
    event_id: &str,
    webhook_id: &str,
) -> Result<Option<(u32, AttemptLog)>, StoreError> {
    type Row = (i64, i64, i64, Option<i64>, String, String);
    let row = fetch_optional!(connection, Row, LAST_ATTEMPT, event_id, webhook_id)?;
    let read = |(attempt, started, duration, status, error, response_head): Row| {
        let log = AttemptLog {
            started_at: Timestamp(started),
            duration: Duration::from_micros(uint("duration", duration)?),
            status: status.map(|status| uint("status", status)).transpose()?,
            error,
            response_head,
        };
        Ok((uint("attempt", attempt)?, log))
    };
    row.map(read).transpose()
}

impl std::fmt::Debug for Claimed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Claimed { event_id, webhook_id, attempt, .. } = self;
        write!(f, "attempt {attempt} of event {event_id} to webhook {webhook_id}")
    }
}
