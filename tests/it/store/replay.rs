//! Sending again: in which order events are read for it, and that none overtakes an earlier one of its deposit.

use landfall::deposit::DepositStatus::Pending;
use landfall::event::{Event, TestEvent};
use landfall::store::replay::{self, EventFilter};
use landfall::store::{events, webhooks};
use landfall::time::Timestamp;
use tokio::task::JoinSet;

use super::cast::{NOW, append, claim, claim_in, deposit, insert, register, rows, run, write};
use crate::harness::postgres::{Engine, TestStore};

on_both_engines!(
    events_of_one_moment_are_read_in_the_order_of_their_deposit_across_pages,
    what_shows_that_a_webhook_works_is_never_sent_to_another,
    a_status_that_nobody_wants_is_sent_to_no_webhook_again,
    what_is_sent_again_stands_behind_what_is_new_and_ahead_of_what_is_later,
);

const DEPOSITS: u8 = 12;

/// Deposits of one moment, PENDING and CONFIRMED each: as when much is caught up with in one tick.
async fn reported(store: &TestStore) {
    register(store, "hook").await;
    for tag in 1..=DEPOSITS {
        let one = insert(store, deposit(tag)).await;
        append(store, &Event::entered(&one, 0)).await.unwrap();
        append(store, &Event::entered(&one.confirm(NOW).unwrap(), 0)).await.unwrap();
    }
}

async fn events_of_one_moment_are_read_in_the_order_of_their_deposit_across_pages(store: TestStore) {
    reported(&store).await;
    for account in [None, Some("alice".to_owned())] {
        let filter = EventFilter { account, from: Timestamp::EPOCH, to: NOW, pending: false };
        let (mut positions, mut after) = (Vec::new(), None);
        loop {
            let mut reader = store.db.read().await.unwrap();
            let (page, next) = replay::list(&mut reader, &filter, after.as_ref(), 5).await.unwrap();
            positions.extend(page.into_iter().map(|event| (event.aggregateid, event.position)));
            if next.is_none() {
                break;
            }
            after = next;
        }
        assert_eq!(positions.len(), 2 * usize::from(DEPOSITS));
        for pair in positions.chunks(2) {
            assert_eq!((&pair[0].0, pair[0].1, pair[1].1), (&pair[1].0, 0, 1), "PENDING first");
        }
    }
}

async fn what_shows_that_a_webhook_works_is_never_sent_to_another(store: TestStore) {
    register(&store, "hook").await;
    register(&store, "other").await;
    let event = TestEvent::new("hook", &[7; 32], NOW);
    write(&store, async |tx| events::append_test(tx, &event, NOW).await.unwrap()).await;
    run(&store.db, "UPDATE deliveries SET state = 'DELIVERED', queue = 'DONE', attempt = 1").await;
    for (webhook, sent) in [("other", 0), ("hook", 1)] {
        let id = event.id.to_string();
        let replayed = write(&store, async |tx| replay::replay(tx, &id, Some(webhook), NOW).await.unwrap()).await;
        assert_eq!(replayed, sent, "to {webhook}");
    }
}

/// Where the events of the only deposit stand.
async fn queues(store: &TestStore) -> Vec<(i64, String)> {
    rows(&store.db, "SELECT position, queue FROM deliveries ORDER BY position").await
}

/// A deposit whose PENDING has arrived and whose CONFIRMED has not.
async fn half_reported(store: &TestStore) -> String {
    register(store, "hook").await;
    let one = insert(store, deposit(1)).await;
    append(store, &Event::entered(&one, 0)).await.unwrap();
    append(store, &Event::entered(&one.confirm(NOW).unwrap(), 0)).await.unwrap();
    run(&store.db, "UPDATE deliveries SET state = 'DELIVERED', queue = 'DONE', attempt = 1 WHERE position = 0").await;
    rows::<(String,)>(&store.db, "SELECT id FROM events WHERE position = 0").await.remove(0).0
}

async fn a_status_that_nobody_wants_is_sent_to_no_webhook_again(store: TestStore) {
    half_reported(&store).await;
    run(&store.db, "UPDATE deliveries SET state = 'DELIVERED', queue = 'DONE', attempt = 1").await;
    register(&store, "late").await;
    write(&store, async |tx| webhooks::mute(tx, &[Pending]).await.unwrap()).await;
    let ids: Vec<(String,)> = rows(&store.db, "SELECT id FROM events ORDER BY position").await;
    for webhook in [Some("late"), Some("hook"), None] {
        for ((id,), sent) in ids.iter().zip([0, 1]) {
            run(&store.db, "UPDATE deliveries SET state = 'DELIVERED', queue = 'DONE' WHERE webhook_id = 'hook'").await;
            run(&store.db, "DELETE FROM deliveries WHERE webhook_id = 'late'").await;
            let replayed = write(&store, async |tx| replay::replay(tx, id, webhook, NOW).await.unwrap()).await;
            assert_eq!(replayed, sent, "to {webhook:?}");
        }
    }
}

async fn what_is_sent_again_stands_behind_what_is_new_and_ahead_of_what_is_later(store: TestStore) {
    let pending = half_reported(&store).await;
    assert_eq!(claim(&store, NOW, 9).await[0].position, 1, "CONFIRMED is under way");
    assert_eq!(write(&store, async |tx| replay::replay(tx, &pending, None, NOW).await.unwrap()).await, 1);
    let named = |position, queue: &str| (position, queue.to_owned());
    assert_eq!(queues(&store).await, [named(0, "AGAIN"), named(1, "WAITING")], "called off");
    assert_eq!(claim(&store, NOW, 9).await[0].position, 0, "the earlier one alone");
}

#[tokio::test]
async fn whoever_sends_again_waits_for_who_claims_the_later_one_and_calls_it_off() {
    // SQLite has one writer: there one is over before the other begins.
    let store = TestStore::fresh(Engine::Postgres).await;
    let pending = half_reported(&store).await;
    let mut claiming = store.db.begin().await.unwrap();
    assert_eq!(claim_in(&mut claiming, NOW, 9).await[0].position, 1);
    let (db, mut replaying) = (store.db.clone(), JoinSet::new());
    replaying.spawn(async move {
        let mut tx = db.begin().await.unwrap();
        assert_eq!(replay::replay(&mut tx, &pending, None, NOW).await.unwrap(), 1);
        tx.commit().await.unwrap();
    });
    let early = tokio::time::timeout(std::time::Duration::from_millis(300), replaying.join_next()).await;
    assert!(early.is_err(), "the claim holds the later event");
    claiming.commit().await.unwrap();
    replaying.join_next().await.unwrap().unwrap();
    assert_eq!(queues(&store).await[1], (1, "WAITING".to_owned()));
    assert_eq!(claim(&store, NOW, 9).await[0].position, 0);
}
