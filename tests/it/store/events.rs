//! Events: written once, numbered in order, and given to the webhooks that are active at their moment.

use landfall::deposit::DepositId;
use landfall::deposit::DepositStatus::{Confirmed, Failed, Pending};
use landfall::event::Event;
use landfall::store::StoreError;
use landfall::store::events::{self, History};

use super::cast::{NOW, append, claim, deposit, insert, register, rows, run, write};
use crate::postgres::TestStore;

on_both_engines!(
    an_event_is_refused_the_second_time,
    events_of_a_deposit_are_numbered_in_order_and_their_entries_counted,
    an_event_is_for_each_webhook_of_its_moment_that_is_not_deleted,
    a_rolled_back_event_leaves_no_delivery,
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
    assert_eq!(crate::books::events(&store.db).await.len(), 1);
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
    let stored = crate::books::events(&store.db).await;
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
