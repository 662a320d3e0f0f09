//! The outbox: events are written in the transaction of the change, with one delivery for each webhook that is not
//! deleted: what a failing or paused one does not get now is kept for it.

use crate::deposit::{DepositId, DepositStatus};
use crate::event::{DEPOSIT_EVENT, Event, TEST_EVENT, TestEvent};
use crate::store::error::expect_one;
use crate::store::sql::{execute, fetch_all, statements};
use crate::store::{ORGANIZATION, StoreError, Tx, int};
use crate::time::Timestamp;

statements! {
    HISTORY = "SELECT status FROM events WHERE aggregateid = $1 ORDER BY position";
    INSERT = "INSERT INTO events (id, aggregatetype, aggregateid, type, payload, organization_id, account_id, status, \
              nth_entry, position, created_us) VALUES ($1, 'deposit', $2, $3, $4, $5, $6, $7, $8, $9, $10)";
    ENQUEUE = "INSERT INTO deliveries (event_id, webhook_id, aggregateid, position, state, attempt, next_us, lease_until_us) \
               SELECT events.id, webhooks.id, events.aggregateid, events.position, 'PENDING', 0, events.created_us, 0 \
               FROM events JOIN webhooks ON webhooks.organization_id = events.organization_id \
               WHERE events.id = $1 AND webhooks.status <> 'DELETED' AND NOT EXISTS (SELECT 1 FROM muted_statuses \
               WHERE muted_statuses.organization_id = events.organization_id AND muted_statuses.status = events.status)";
    INSERT_TEST = "INSERT INTO events (id, aggregatetype, aggregateid, type, payload, organization_id, account_id, status, \
                   nth_entry, position, created_us) VALUES ($1, 'webhook', $1, $2, $3, $4, '', 'TEST', 0, 0, $5)";
    ENQUEUE_TEST = "INSERT INTO deliveries (event_id, webhook_id, aggregateid, position, state, attempt, next_us, lease_until_us) \
                    VALUES ($1, $2, $1, 0, 'PENDING', 0, $3, 0)";
}

/// What the deposit has gone through, as its events tell.
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

/// Writes an event behind `history`, and its deliveries.
pub async fn append(tx: &mut Tx, event: &Event, history: &History, now: Timestamp) -> Result<(), StoreError> {
    let (id, deposit, status) = (event.id.to_string(), event.deposit_id.to_string(), event.status.name());
    let (entry, position) = (i64::from(event.nth_entry), int(history.0.len()));
    let inserted = execute!(
        tx,
        INSERT,
        &id,
        deposit,
        DEPOSIT_EVENT,
        &event.payload,
        ORGANIZATION,
        &event.account_id,
        status,
        entry,
        position,
        now.0
    )?;
    expect_one("insert event", inserted)?;
    execute!(tx, ENQUEUE, &id).map(drop)
}

/// Writes a test event, and its one delivery.
pub async fn append_test(tx: &mut Tx, event: &TestEvent, now: Timestamp) -> Result<(), StoreError> {
    let id = event.id.to_string();
    let inserted = execute!(tx, INSERT_TEST, &id, TEST_EVENT, &event.payload, ORGANIZATION, now.0)?;
    expect_one("insert test event", inserted)?;
    let queued = execute!(tx, ENQUEUE_TEST, &id, &event.webhook_id, now.0)?;
    expect_one("insert delivery of a test event", queued)
}
