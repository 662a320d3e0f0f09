//! Events: written once, numbered in order, and given to the webhooks that are active at their moment.

use std::cell::Cell;
use std::time::Duration;

use landfall::deposit::DepositId;
use landfall::deposit::DepositStatus::{Confirmed, Failed, Pending};
use landfall::event::Event;
use landfall::store::events::{self, History};
use landfall::store::sinks::{self, Kind, NATS};
use landfall::store::{StoreError, Tx, identities, webhooks};

use super::cast::{NOW, append, claim, deposit, insert, register, rows, run, webhook, write};
use crate::harness::postgres::{Engine, TestStore};

on_both_engines!(
    an_event_is_refused_the_second_time,
    events_of_a_deposit_are_numbered_in_order_and_their_entries_counted,
    an_event_is_for_each_webhook_of_its_moment_that_is_not_deleted,
    a_rolled_back_event_leaves_no_delivery,
    who_cannot_keep_events_from_being_written_registers_nothing,
);

async fn an_event_is_refused_the_second_time(store: TestStore) {
    let deposit = insert(&store, deposit(1)).await;
    append(&store, &Event::entered(&deposit, 0)).await.unwrap();
    let again = append(&store, &Event::entered(&deposit, 0)).await.unwrap_err();
    assert!(matches!(again, StoreError::Failed { .. }) && !again.may_pass(), "{again:?}");

    let mut tx = store.db.begin().await.unwrap();
    let stale = History::of(&mut tx, DepositId(uuid::Uuid::nil())).await.unwrap();
    let same_place = events::append(&mut tx, &Event::entered(&deposit, 1), &stale, NOW).await;
    assert!(matches!(same_place, Err(StoreError::Failed { .. })), "two events cannot be first");
    drop(tx);
    assert_eq!(crate::harness::books::events(&store.db).await.len(), 1);
}

async fn events_of_a_deposit_are_numbered_in_order_and_their_entries_counted(store: TestStore) {
    let deposit = insert(&store, deposit(1)).await;
    let other = insert(&store, self::deposit(2)).await;
    let failed = deposit.clone().fail().unwrap();
    append(&store, &Event::entered(&other, 0)).await.unwrap();
    let given = [Event::entered(&deposit, 0), Event::entered(&failed, 0), Event::entered(&deposit, 1)];
    for event in &given {
        append(&store, event).await.unwrap();
    }
    let stored = crate::harness::books::events(&store.db).await;
    let stored = stored.iter().filter(|event| event.aggregateid == deposit.id.to_string());
    for ((position, stored), given) in stored.enumerate().zip(&given) {
        assert_eq!(stored.position, i64::try_from(position).unwrap());
        assert_eq!((&stored.id, &stored.payload), (&given.id.to_string(), &given.payload));
        assert_eq!((stored.status.as_str(), stored.nth_entry), (given.status.name(), i64::from(given.nth_entry)));
    }
    let history = write(&store, async |tx| History::of(tx, deposit.id).await.unwrap()).await;
    assert_eq!([Pending, Failed, Confirmed].map(|status| history.entries(status)), [2, 1, 0]);
    let outbox = "SELECT id, aggregatetype, aggregateid, type, payload FROM events WHERE position = 2";
    let outbox: Vec<(String, String, String, String, String)> = rows(&store.db, outbox).await;
    let [.., last] = given;
    let (id, payload) = (last.id.to_string(), last.payload);
    let expected = (id, "deposit".to_owned(), deposit.id.to_string(), "deposit_v2".to_owned(), payload);
    assert_eq!(outbox, [expected], "as Debezium's outbox router reads it");
}

async fn an_event_is_for_each_webhook_of_its_moment_that_is_not_deleted(store: TestStore) {
    let deposit = insert(&store, deposit(1)).await;
    for webhook in ["active", "deleted", "gone", "open", "paused"] {
        register(&store, webhook).await;
    }
    run(&store.db, "UPDATE webhooks SET status = UPPER(id)").await;
    let event = Event::entered(&deposit, 0);
    append(&store, &event).await.unwrap();
    register(&store, "later").await;
    let text = "SELECT webhook_id, event_id, state, attempt, next_us FROM deliveries ORDER BY webhook_id";
    let delivery = |webhook: &str| (webhook.to_owned(), event.id.to_string(), "PENDING".to_owned(), 0, NOW.0);
    let expected: [(String, String, String, i64, i64); 4] = ["active", "gone", "open", "paused"].map(delivery);
    assert_eq!(rows::<(String, String, String, i64, i64)>(&store.db, text).await, expected);
}

async fn a_rolled_back_event_leaves_no_delivery(store: TestStore) {
    let deposit = insert(&store, deposit(1)).await;
    register(&store, "hook").await;
    let mut tx = store.db.begin().await.unwrap();
    let history = History::of(&mut tx, deposit.id).await.unwrap();
    events::append(&mut tx, &Event::entered(&deposit, 0), &history, NOW).await.unwrap();
    drop(tx);
    assert_eq!(claim(&store, NOW, 9).await, []);
    let text = "SELECT (SELECT COUNT(*) FROM events) + (SELECT COUNT(*) FROM deliveries)";
    assert_eq!(rows::<(i64,)>(&store.db, text).await, [(0,)]);
}

async fn who_cannot_keep_events_from_being_written_registers_nothing(store: TestStore) {
    run(&store.db, "UPDATE identities SET id = 'another'").await;
    let mut tx = store.db.begin().await.unwrap();
    let error = identities::lock_organization(&mut tx).await.unwrap_err();
    assert_eq!(error.to_string(), "stored identity cannot be read: default is not there");
    assert!(!error.may_pass());
}

/// What makes a PENDING event one for somebody.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Change {
    Webhook,
    Sink,
    Unmuted,
}

impl Change {
    const ALL: [Change; 3] = [Change::Webhook, Change::Sink, Change::Unmuted];

    /// A store where it has not been made yet. SQLite has one writer: there one is over before the other begins.
    async fn store(self) -> TestStore {
        let store = TestStore::fresh(Engine::Postgres).await;
        if self == Change::Unmuted {
            register(&store, "hook").await;
            write(&store, async |tx| webhooks::mute(tx, &[Pending]).await.unwrap()).await;
        }
        store
    }

    async fn make(self, tx: &mut Tx) {
        match self {
            Change::Webhook => {
                identities::lock_organization(tx).await.unwrap();
                webhooks::insert(tx, &webhook("hook"), NOW).await.unwrap();
            }
            Change::Sink => sinks::ensure(tx, NATS, Kind::Nats, "nats:LANDFALL", NOW).await.unwrap(),
            Change::Unmuted => webhooks::mute(tx, &[]).await.unwrap(),
        }
    }
}

/// Until the other transaction waits for a lock, or is over.
async fn until_it_waits(store: &TestStore, is_over: &Cell<bool>) {
    let waiting = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    while !is_over.get() && rows::<(i32,)>(&store.db, waiting).await.is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn an_event_that_is_written_while_somebody_is_registered_is_for_them() {
    let mut missed = Vec::new();
    for change in Change::ALL {
        let store = change.store().await;
        let event = Event::entered(&insert(&store, deposit(1)).await, 0);
        let is_over = Cell::new(false);
        let mut changing = store.db.begin().await.unwrap();
        change.make(&mut changing).await;
        let writing = async {
            append(&store, &event).await.unwrap();
            is_over.set(true);
        };
        let committing = async {
            until_it_waits(&store, &is_over).await;
            changing.commit().await.unwrap();
        };
        tokio::join!(writing, committing);
        if rows::<(String,)>(&store.db, "SELECT state FROM deliveries").await.len() != 1 {
            missed.push(change);
        }
    }
    assert_eq!(missed, []);
}

#[tokio::test]
async fn who_is_registered_while_an_event_is_written_is_reported_so_when_that_is_on_record() {
    let mut early = Vec::new();
    for change in Change::ALL {
        let store = change.store().await;
        let event = Event::entered(&insert(&store, deposit(1)).await, 0);
        let is_over = Cell::new(false);
        let mut writing = store.db.begin().await.unwrap();
        let history = History::of(&mut writing, event.deposit_id).await.unwrap();
        events::append(&mut writing, &event, &history, NOW).await.unwrap();
        let changing = async {
            write(&store, async |tx| change.make(tx).await).await;
            let on_record = crate::harness::books::events(&store.db).await.len();
            is_over.set(true);
            on_record
        };
        let committing = async {
            until_it_waits(&store, &is_over).await;
            writing.commit().await.unwrap();
        };
        let (on_record, ()) = tokio::join!(changing, committing);
        if on_record != 1 {
            early.push(change);
        }
    }
    assert_eq!(early, [], "an event that was for nobody is committed behind the answer");
}

#[tokio::test]
async fn who_write_events_do_not_wait_for_each_other() {
    let store = TestStore::fresh(Engine::Postgres).await;
    let mut open = Vec::new();
    for tag in 1..=3 {
        let event = Event::entered(&insert(&store, deposit(tag)).await, 0);
        let mut tx = store.db.begin().await.unwrap();
        let history = History::of(&mut tx, event.deposit_id).await.unwrap();
        events::append(&mut tx, &event, &history, NOW).await.unwrap();
        open.push(tx);
    }
    for tx in open {
        tx.commit().await.unwrap();
    }
    assert_eq!(crate::harness::books::events(&store.db).await.len(), 3);
}
