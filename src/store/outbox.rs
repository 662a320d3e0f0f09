//! What operators see of events and do with them: lists, one with its deliveries and attempts, and sending again.
//!
//! Sending again changes no event and no order: what is under way or waits for an earlier event of its deposit stays so.

use std::time::Duration;

use sqlx::FromRow;

use crate::store::deliveries::AttemptLog;
use crate::store::sql::{execute, fetch_all, fetch_optional, statements};
use crate::store::{Connection, StoreError, Tx, uint};
use crate::time::Timestamp;

/// An event as it was written.
#[derive(Clone, PartialEq, Eq, Debug, FromRow)]
pub struct EventRow {
    pub id: String,
    pub r#type: String,
    pub aggregateid: String,
    pub account_id: String,
    pub status: String,
    pub payload: String,
    pub created_us: i64,
    /// How many endpoints it is still to be delivered to.
    pub pending: i64,
}

/// Which events: of an account or of all, by the time they were written, both bounds inclusive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EventFilter {
    pub account: Option<String>,
    pub from: Timestamp,
    pub to: Timestamp,
    /// Only those that some endpoint has not got yet.
    pub pending: bool,
}

/// Where an event stands at an endpoint.
#[derive(Clone, PartialEq, Eq, Debug, FromRow)]
pub struct DeliveryRow {
    pub webhook_id: String,
    pub state: String,
    pub queue: String,
    pub attempt: i64,
    pub failures: i64,
    pub next_us: i64,
}

#[derive(FromRow)]
struct AttemptRow {
    webhook_id: String,
    attempt: i64,
    started_us: i64,
    duration_us: i64,
    status: Option<i64>,
    error: String,
    response_head: String,
}

statements! {
    LIST = "SELECT id, type, aggregateid, account_id, status, payload, created_us, \
              (SELECT COUNT(*) FROM deliveries WHERE event_id = events.id AND state = 'PENDING') AS pending \
            FROM events WHERE (created_us, id) > ($1, $2) AND created_us >= $1 AND created_us <= $3 ORDER BY created_us, id LIMIT $4";
    LIST_OF_ACCOUNT = "SELECT id, type, aggregateid, account_id, status, payload, created_us, \
              (SELECT COUNT(*) FROM deliveries WHERE event_id = events.id AND state = 'PENDING') AS pending \
            FROM events WHERE account_id = $5 AND (created_us, id) > ($1, $2) AND created_us >= $1 AND created_us <= $3 ORDER BY created_us, id LIMIT $4";
    BY_ID = "SELECT id, type, aggregateid, account_id, status, payload, created_us, \
               (SELECT COUNT(*) FROM deliveries WHERE event_id = events.id AND state = 'PENDING') AS pending \
             FROM events WHERE id = $1";
    DELIVERIES = "SELECT webhook_id, state, queue, attempt, failures, next_us FROM deliveries WHERE event_id = $1 ORDER BY webhook_id";
    ATTEMPTS = "SELECT webhook_id, attempt, started_us, duration_us, status, error, response_head FROM attempts \
                WHERE event_id = $1 ORDER BY started_us, webhook_id, attempt";
    REPLAY = "UPDATE deliveries SET state = 'PENDING', queue = 'FIRST', failures = 0, next_us = $3 \
              WHERE event_id = $1 AND ($2 = '' OR webhook_id = $2) AND (state = 'DELIVERED' OR queue IN ('AGAIN', 'HELD')) \
              AND EXISTS (SELECT 1 FROM webhooks WHERE webhooks.id = deliveries.webhook_id AND webhooks.status <> 'DELETED')";
    SEND = "INSERT INTO deliveries (event_id, webhook_id, aggregateid, position, state, attempt, next_us, lease_until_us) \
            SELECT events.id, webhooks.id, events.aggregateid, events.position, 'PENDING', 0, $3, 0 \
            FROM events JOIN webhooks ON webhooks.organization_id = events.organization_id \
            WHERE events.id = $1 AND webhooks.id = $2 AND webhooks.status <> 'DELETED' \
            ON CONFLICT (event_id, webhook_id) DO NOTHING";
    IS_ENDPOINT = "SELECT id FROM webhooks WHERE id = $1 AND status <> 'DELETED'";
}

/// At most `limit` events behind `after`, oldest first, and where the next page begins; `None` behind the last.
pub async fn list(
    connection: &mut impl Connection,
    filter: &EventFilter,
    after: Option<&(Timestamp, String)>,
    limit: u32,
) -> Result<(Vec<EventRow>, Option<(Timestamp, String)>), StoreError> {
    let (at, id) = after.map_or((filter.from, ""), |(at, id)| (*at, id));
    let count = i64::from(limit);
    let mut rows = match &filter.account {
        None => fetch_all!(connection, EventRow, LIST, at.0, id, filter.to.0, count)?,
        Some(account) => fetch_all!(connection, EventRow, LIST_OF_ACCOUNT, at.0, id, filter.to.0, count, account)?,
    };
    let next = rows.last().map(|last| (Timestamp(last.created_us), last.id.clone()));
    rows.retain(|row| !filter.pending || row.pending > 0);
    Ok((rows, next))
}

/// The event with this id.
pub async fn by_id(connection: &mut impl Connection, id: &str) -> Result<Option<EventRow>, StoreError> {
    fetch_optional!(connection, EventRow, BY_ID, id)
}

/// Where it stands at each endpoint.
pub async fn deliveries(connection: &mut impl Connection, id: &str) -> Result<Vec<DeliveryRow>, StoreError> {
    fetch_all!(connection, DeliveryRow, DELIVERIES, id)
}

/// The attempts on record, oldest first: endpoint, number, how it went.
pub async fn attempts(
    connection: &mut impl Connection,
    id: &str,
) -> Result<Vec<(String, u32, AttemptLog)>, StoreError> {
    let read = |row: AttemptRow| {
        let AttemptRow { webhook_id, attempt, started_us, duration_us, status, error, response_head } = row;
        let log = AttemptLog {
            started_at: Timestamp(started_us),
            duration: Duration::from_micros(uint("duration", duration_us)?),
            status: status.map(|status| uint("status", status)).transpose()?,
            error,
            response_head,
            retry_after: None,
        };
        Ok((webhook_id, uint("attempt", attempt)?, log))
    };
    fetch_all!(connection, AttemptRow, ATTEMPTS, id)?.into_iter().map(read).collect()
}

/// Makes an event due again where it was delivered or is to be tried later; at `webhook` also where it never was to be
/// delivered. At how many endpoints.
pub async fn replay(tx: &mut Tx, id: &str, webhook: Option<&str>, now: Timestamp) -> Result<u64, StoreError> {
    let replayed = execute!(tx, REPLAY, id, webhook.unwrap_or_default(), now.0)?;
    match webhook {
        None => Ok(replayed),
        Some(webhook) => Ok(replayed + execute!(tx, SEND, id, webhook, now.0)?),
    }
}

/// Whether there is such an endpoint.
pub async fn is_endpoint(connection: &mut impl Connection, id: &str) -> Result<bool, StoreError> {
    Ok(fetch_optional!(connection, (String,), IS_ENDPOINT, id)?.is_some())
}
