//! What operators see of events and do with them: lists, one event with its deliveries and attempts, and sending again.
//!
//! Sending again changes no event and no order. At each endpoint the events of a deposit, transfer or identity are due
//! in their order. A later one that is under way is called off, and is sent after the earlier one. What is sent again comes
//! after what is new.

use std::time::Duration;

use sqlx_macros::FromRow;

use crate::store::deliveries::{self, AttemptLog};
use crate::store::sql::{fetch_all, fetch_optional, statements};
use crate::store::{Connection, StoreError, Tx, uint};
use crate::time::Timestamp;

#[derive(Clone, PartialEq, Eq, Debug, FromRow)]
pub struct EventRow {
    pub id: String,
    pub r#type: String,
    pub aggregateid: String,
    pub account_id: String,
    pub status: String,
    pub payload: String,
    pub position: i64,
    pub created_us: i64,
    /// To how many endpoints it must still be delivered.
    pub pending: i64,
}

/// Which events: of an account and its identity, or of all, by the time they were written, both bounds inclusive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EventFilter {
    pub account: Option<String>,
    pub from: Timestamp,
    pub to: Timestamp,
    /// Only those that some endpoint has not received yet.
    pub pending: bool,
}

/// The state of an event at an endpoint.
#[derive(Clone, PartialEq, Eq, Debug, FromRow)]
pub struct DeliveryRow {
    pub webhook_id: String,
    pub state: String,
    pub queue: String,
    pub attempt: i64,
    pub failures: i64,
    pub next_us: i64,
}

/// What is due again, and where.
#[derive(FromRow)]
struct Due {
    webhook_id: String,
    aggregateid: String,
    position: i64,
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
    LIST = "SELECT id, type, aggregateid, account_id, status, payload, position, created_us, \
              (SELECT COUNT(*) FROM deliveries JOIN webhooks ON webhooks.id = deliveries.webhook_id \
               WHERE event_id = events.id AND state = 'PENDING' AND webhooks.status <> 'DELETED') AS pending \
            FROM events WHERE (created_us, aggregateid, position) > ($1, $2, $3) AND created_us >= $1 AND created_us <= $4 \
            ORDER BY created_us, aggregateid, position LIMIT $5";
    // The account's own and those of its identity, each found by its index.
    LIST_OF_ACCOUNT = "SELECT id, type, aggregateid, account_id, status, payload, position, created_us, \
              (SELECT COUNT(*) FROM deliveries JOIN webhooks ON webhooks.id = deliveries.webhook_id \
               WHERE event_id = events.id AND state = 'PENDING' AND webhooks.status <> 'DELETED') AS pending \
            FROM events WHERE id IN ( \
              SELECT id FROM (SELECT id FROM events WHERE account_id = $6 \
                AND (created_us, aggregateid, position) > ($1, $2, $3) AND created_us >= $1 AND created_us <= $4 \
                ORDER BY created_us, aggregateid, position LIMIT $5) AS own \
              UNION ALL \
              SELECT id FROM (SELECT id FROM events WHERE aggregatetype = 'identity' \
                AND aggregateid = (SELECT identity_id FROM accounts WHERE id = $6) \
                AND (created_us, aggregateid, position) > ($1, $2, $3) AND created_us >= $1 AND created_us <= $4 \
                ORDER BY created_us, aggregateid, position LIMIT $5) AS of_identity) \
            ORDER BY created_us, aggregateid, position LIMIT $5";
    BY_ID = "SELECT id, type, aggregateid, account_id, status, payload, position, created_us, \
               (SELECT COUNT(*) FROM deliveries JOIN webhooks ON webhooks.id = deliveries.webhook_id \
               WHERE event_id = events.id AND state = 'PENDING' AND webhooks.status <> 'DELETED') AS pending \
             FROM events WHERE id = $1";
    DELIVERIES = "SELECT webhook_id, state, queue, attempt, failures, next_us FROM deliveries WHERE event_id = $1 ORDER BY webhook_id";
    ATTEMPTS = "SELECT webhook_id, attempt, started_us, duration_us, status, error, response_head FROM attempts \
                WHERE event_id = $1 ORDER BY started_us, webhook_id, attempt";
    // For both statements: a test event belongs to its own webhook alone, and a muted status is not sent again.
    REPLAY = "UPDATE deliveries SET state = 'PENDING', queue = 'AGAIN', failures = 0, next_us = $3 \
              WHERE event_id = $1 AND ($2 = '' OR webhook_id = $2) AND (state = 'DELIVERED' OR queue IN ('AGAIN', 'HELD')) \
              AND EXISTS (SELECT 1 FROM webhooks WHERE webhooks.id = deliveries.webhook_id AND webhooks.status <> 'DELETED') \
              AND NOT EXISTS (SELECT 1 FROM events JOIN muted_statuses ON muted_statuses.organization_id = events.organization_id \
              AND muted_statuses.type = events.type AND muted_statuses.status = events.status WHERE events.id = deliveries.event_id) \
              RETURNING webhook_id, aggregateid, position";
    SEND = "INSERT INTO deliveries (event_id, webhook_id, aggregateid, position, state, attempt, next_us) \
            SELECT events.id, webhooks.id, events.aggregateid, events.position, 'PENDING', 0, $3 \
            FROM events JOIN webhooks ON webhooks.organization_id = events.organization_id \
            WHERE events.id = $1 AND webhooks.id = $2 AND webhooks.status <> 'DELETED' AND events.aggregatetype <> 'webhook' \
            AND NOT EXISTS (SELECT 1 FROM muted_statuses \
            WHERE muted_statuses.organization_id = events.organization_id AND muted_statuses.type = events.type \
            AND muted_statuses.status = events.status) \
            ON CONFLICT (event_id, webhook_id) DO NOTHING RETURNING webhook_id, aggregateid, position";
    IS_ENDPOINT = "SELECT id FROM webhooks WHERE id = $1 AND status <> 'DELETED'";
}

/// The end of a page of events: when its last one was written, its deposit, its position there.
pub type After = (Timestamp, String, i64);

/// At most `limit` events after `after`, oldest first and each deposit's in their order, and where the next page
/// begins; `None` after the last. Events that are written later are not waited for.
pub async fn list(
    connection: &mut impl Connection,
    filter: &EventFilter,
    after: Option<&After>,
    limit: u32,
) -> Result<(Vec<EventRow>, Option<After>), StoreError> {
    let (at, of, position) = after.map_or((filter.from, "", -1), |(at, of, position)| (*at, of, *position));
    let (to, count) = (filter.to.0, i64::from(limit));
    let mut rows = match &filter.account {
        None => fetch_all!(connection, EventRow, LIST, at.0, of, position, to, count)?,
        Some(account) => fetch_all!(connection, EventRow, LIST_OF_ACCOUNT, at.0, of, position, to, count, account)?,
    };
    let last = rows.last().filter(|_| i64::try_from(rows.len()) == Ok(count));
    let next = last.map(|last| (Timestamp(last.created_us), last.aggregateid.clone(), last.position));
    rows.retain(|row| !filter.pending || row.pending > 0);
    Ok((rows, next))
}

pub async fn by_id(connection: &mut impl Connection, id: &str) -> Result<Option<EventRow>, StoreError> {
    fetch_optional!(connection, EventRow, BY_ID, id)
}

/// Its state at each endpoint.
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

/// Makes an event due again where it was delivered or will be tried later; at `webhook` even if it was never to be
/// delivered there. Returns at how many endpoints: none while its status is muted. Of several events the earlier ones
/// of a deposit come first.
pub async fn replay(tx: &mut Tx, id: &str, webhook: Option<&str>, now: Timestamp) -> Result<usize, StoreError> {
    let mut due = fetch_all!(tx, Due, REPLAY, id, webhook.unwrap_or_default(), now.0)?;
    if let Some(webhook) = webhook {
        due.extend(fetch_all!(tx, Due, SEND, id, webhook, now.0)?);
    }
    for Due { webhook_id, aggregateid, position } in &due {
        deliveries::call_off_later(tx, webhook_id, aggregateid, *position, now).await?;
    }
    Ok(due.len())
}

pub async fn is_endpoint(connection: &mut impl Connection, id: &str) -> Result<bool, StoreError> {
    Ok(fetch_optional!(connection, (String,), IS_ENDPOINT, id)?.is_some())
}
