//! The outbox: events are written in the transaction of the change, with one delivery for each webhook that is not
//! deleted; a failing or paused one gets its events later. A webhook that is registered under
//! `identities::lock_organization` gets each event that commits after that. `aggregateid` is the deposit, the transfer or
//! the identity, within which events keep their order. Events of an identity have no account.

use crate::deposit::{DepositId, DepositStatus};
use crate::event::{DEPOSIT_EVENT, Event, IDENTITY_EVENT, IdentityEvent, TEST_EVENT, TestEvent, TransferEvent};
use crate::identity::DEFAULT_IDENTITY;
use crate::store::error::expect_one;
use crate::store::sql::{execute, fetch_all, fetch_optional, statements};
use crate::store::{ORGANIZATION, StoreError, Tx, int, uint};
use crate::time::Timestamp;
use crate::transfer::{Announcement, TransferId};

statements! {
    HISTORY = "SELECT status FROM events WHERE aggregateid = $1 ORDER BY position";
    NEXT_POSITION = "SELECT CAST(COUNT(*) AS BIGINT) FROM events WHERE aggregateid = $1";
    PLACE = "SELECT CAST(COUNT(*) AS BIGINT), CAST(COALESCE(SUM(CASE WHEN status = $2 THEN 1 ELSE 0 END), 0) AS BIGINT) \
             FROM events WHERE aggregateid = $1";
    // Whoever changes which webhooks get events waits for this row until we have committed, or we wait for them.
    // ENQUEUE then sees their change, because a new statement reads what was committed before it. Writers of events
    // share the row.
    INSERT = "INSERT INTO events (id, aggregatetype, aggregateid, type, payload, organization_id, account_id, status, \
              nth_entry, position, created_us) \
              SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11 FROM identities WHERE identities.id = $12" [" FOR SHARE"] "";
    ENQUEUE = "INSERT INTO deliveries (event_id, webhook_id, aggregateid, position, state, attempt, next_us) \
               SELECT events.id, webhooks.id, events.aggregateid, events.position, 'PENDING', 0, events.created_us \
               FROM events JOIN webhooks ON webhooks.organization_id = events.organization_id \
               WHERE events.id = $1 AND webhooks.status <> 'DELETED' AND NOT EXISTS (SELECT 1 FROM muted_statuses \
               WHERE muted_statuses.organization_id = events.organization_id AND muted_statuses.type = events.type \
               AND muted_statuses.status = events.status)";
    ENQUEUE_TEST = "INSERT INTO deliveries (event_id, webhook_id, aggregateid, position, state, attempt, next_us) \
                    VALUES ($1, $2, $1, 0, 'PENDING', 0, $3)";
}

/// The statuses that the deposit has had, as its events record them.
#[derive(Debug)]
pub struct History(Vec<String>);

impl History {
    pub async fn of(tx: &mut Tx, deposit: DepositId) -> Result<Self, StoreError> {
        let rows = fetch_all!(tx, (String,), HISTORY, deposit.to_string())?;
        Ok(History(rows.into_iter().map(|(status,)| status).collect()))
    }

    /// How often the deposit has entered `status`.
    pub fn entries(&self, status: DepositStatus) -> u32 {
        let entries = self.0.iter().filter(|past| *past == status.name()).count();
        u32::try_from(entries).unwrap_or(u32::MAX)
    }
}

/// An event as its table has it.
struct Row<'a> {
    id: &'a str,
    /// Type and id of the object within which events keep their order.
    aggregate: (&'static str, &'a str),
    kind: &'static str,
    payload: &'a str,
    /// Empty for an event that belongs to no single account.
    account_id: &'a str,
    status: &'static str,
    nth_entry: i64,
    position: i64,
}

/// Writes an event after `history`, and its deliveries.
pub async fn append(tx: &mut Tx, event: &Event, history: &History, now: Timestamp) -> Result<(), StoreError> {
    let Event { id, deposit_id, account_id, status, nth_entry, payload } = event;
    let row = Row {
        id: &id.to_string(),
        aggregate: ("deposit", &deposit_id.to_string()),
        kind: DEPOSIT_EVENT,
        payload,
        account_id,
        status: status.name(),
        nth_entry: i64::from(*nth_entry),
        position: int(history.0.len()),
    };
    insert(tx, &row, now).await?;
    execute!(tx, ENQUEUE, row.id).map(drop)
}

/// The position of the next event of an identity; the caller holds its lock.
pub async fn next_position(tx: &mut Tx, aggregate_id: &str) -> Result<u32, StoreError> {
    let count = fetch_optional!(tx, (i64,), NEXT_POSITION, aggregate_id)?.map_or(0, |(count,)| count);
    uint("position", count)
}

/// The position of the next event of a transfer, and how often it was announced so; the caller holds its lock.
pub async fn place(tx: &mut Tx, transfer: TransferId, announcement: Announcement) -> Result<(u32, u32), StoreError> {
    let row = fetch_optional!(tx, (i64, i64), PLACE, transfer.to_string(), announcement.name())?;
    let (position, earlier) = row.unwrap_or_default();
    Ok((uint("position", position)?, uint("count of announcements", earlier)?))
}

/// Writes an event of a transfer at its [`place`], and its deliveries.
pub async fn append_transfer(
    tx: &mut Tx,
    event: &TransferEvent,
    position: u32,
    now: Timestamp,
) -> Result<(), StoreError> {
    let TransferEvent { id, transfer_id, account_id, announcement, nth_entry, payload } = event;
    let transfer_id = transfer_id.to_string();
    let row = Row {
        id: &id.to_string(),
        aggregate: ("transfer", &transfer_id),
        kind: event.kind(),
        payload,
        account_id,
        status: announcement.name(),
        nth_entry: i64::from(*nth_entry),
        position: i64::from(position),
    };
    insert(tx, &row, now).await?;
    execute!(tx, ENQUEUE, row.id).map(drop)
}

pub async fn append_identity(tx: &mut Tx, event: &IdentityEvent, now: Timestamp) -> Result<(), StoreError> {
    let IdentityEvent { id, identity_id, status, position, payload } = event;
    let row = Row {
        id: &id.to_string(),
        aggregate: ("identity", identity_id),
        kind: IDENTITY_EVENT,
        payload,
        account_id: "",
        status: status.name(),
        nth_entry: 0,
        position: i64::from(*position),
    };
    insert(tx, &row, now).await?;
    execute!(tx, ENQUEUE, row.id).map(drop)
}

/// Writes a test event, and its one delivery.
pub async fn append_test(tx: &mut Tx, event: &TestEvent, now: Timestamp) -> Result<(), StoreError> {
    let id = event.id.to_string();
    let row = Row {
        id: &id,
        aggregate: ("webhook", &id),
        kind: TEST_EVENT,
        payload: &event.payload,
        account_id: "",
        status: "TEST",
        nth_entry: 0,
        position: 0,
    };
    insert(tx, &row, now).await?;
    let queued = execute!(tx, ENQUEUE_TEST, &id, &event.webhook_id, now.0)?;
    expect_one("insert delivery of a test event", queued)
}

async fn insert(tx: &mut Tx, row: &Row<'_>, now: Timestamp) -> Result<(), StoreError> {
    let Row { id, aggregate: (of, aggregate_id), kind, payload, account_id, status, nth_entry, position } = row;
    let inserted = execute!(
        tx,
        INSERT,
        id,
        of,
        aggregate_id,
        kind,
        payload,
        ORGANIZATION,
        account_id,
        status,
        nth_entry,
        position,
        now.0,
        DEFAULT_IDENTITY
    )?;
    expect_one("insert event", inserted)
}
