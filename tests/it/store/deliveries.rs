//! Deliveries: what a claim takes and in which order, how long it holds, and that nobody else takes the same.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use landfall::event::Event;
use landfall::store::deliveries::{self, Claimed, Queue};
use landfall::store::events::{self, History};
use landfall::store::{Connection, Engine as Connected, Tx, deposits, endpoints};
use landfall::time::Timestamp;
use sqlx::AssertSqlSafe;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::cast::{
    LEASE, NOW, append, claim, claim_in, claimed_once, deposit, insert, prepare, register, rows, run, write,
};
use crate::harness::postgres::{Engine, TestStore};

on_both_engines!(
    a_claim_takes_what_was_written_first_and_no_more_than_its_limit,
    a_claim_keeps_its_limit_when_the_planner_believes_that_there_is_one_delivery,
    a_later_event_of_a_deposit_waits_for_the_earlier_at_the_same_webhook_only,
    a_lease_that_ends_gives_the_delivery_to_the_next,
    a_late_acknowledgement_changes_nothing,
    two_who_claim_at_once_never_get_the_same_delivery,
    what_waits_is_not_walked_over_again_and_is_due_when_the_earlier_has_arrived,
    what_waits_and_nobody_calls_is_looked_at_again_after_an_hour,
    of_many_attempts_the_newest_fifty_are_kept,
);

/// The queue of each delivery, by the position of its event.
async fn queues(store: &TestStore) -> Vec<(i64, String, i64)> {
    rows(
        &store.db,
        "SELECT position, queue, attempt FROM deliveries WHERE state = 'PENDING' ORDER BY aggregateid, position",
    )
    .await
}

async fn what_waits_is_not_walked_over_again_and_is_due_when_the_earlier_has_arrived(store: TestStore) {
    register(&store, "hook").await;
    let one = insert(&store, deposit(1)).await;
    append(&store, &Event::entered(&one, 0)).await.unwrap();
    append(&store, &Event::entered(&one.confirm(NOW).unwrap(), 0)).await.unwrap();
    let claimed = claim(&store, NOW, 9).await;
    assert_eq!(claimed.len(), 1);
    let named = |position, queue: &str, attempt| (position, queue.to_owned(), attempt);
    assert_eq!(queues(&store).await, [named(0, "LEASED", 1), named(1, "WAITING", 0)]);
    assert_eq!(claim(&store, NOW, 9).await, [], "in no queue that is looked at");
    let next = NOW.plus(Duration::from_secs(2));
    write(&store, async |tx| deliveries::retry_at(tx, &claimed[0], next, Queue::Again, NOW).await.unwrap()).await;
    assert_eq!(queues(&store).await, [named(0, "AGAIN", 1), named(1, "WAITING", 0)], "it has not arrived");
    let claimed = claim(&store, next, 9).await;
    write(&store, async |tx| deliveries::delivered(tx, &claimed[0], next).await.unwrap()).await;
    assert_eq!(queues(&store).await, [named(1, "FIRST", 0)]);
    assert_eq!(claim(&store, next, 9).await[0].position, 1);
}

async fn what_waits_and_nobody_calls_is_looked_at_again_after_an_hour(store: TestStore) {
    let first = two_events(&store).await;
    assert_eq!(claim(&store, NOW, 9).await, []);
    write(&store, async |tx| {
        deliveries::retry_at(tx, &first, NOW.plus(Duration::from_secs(1_000_000)), Queue::Again, NOW).await.unwrap()
    })
    .await;
    let hour = Duration::from_secs(3_600);
    assert_eq!(claim(&store, NOW.plus(hour), 9).await, [], "the earlier has not arrived");
    let waits = (1, "WAITING".to_owned(), 0);
    assert_eq!(queues(&store).await[1], waits);
    // Acknowledged without a call to the later one.
    run(&store.db, "UPDATE deliveries SET state = 'DELIVERED' WHERE position = 0").await;
    assert_eq!(claim(&store, Timestamp(NOW.plus(2 * hour).0 - 1), 9).await, []);
    assert_eq!(claim(&store, NOW.plus(2 * hour), 9).await[0].position, 1);
}

async fn of_many_attempts_the_newest_fifty_are_kept(store: TestStore) {
    let claimed = claimed_once(&store).await;
    for attempt in 1..=120 {
        let log = deliveries::AttemptLog {
            started_at: NOW,
            duration: Duration::ZERO,
            status: Some(500),
            error: "the receiver answered 500".to_owned(),
            response_head: String::new(),
            retry_after: None,
        };
        let claimed = Claimed { attempt, ..claimed.clone() };
        write(&store, async |tx| deliveries::log(tx, &claimed, &log).await.unwrap()).await;
    }
    let kept = rows::<(i64, i64, i64)>(&store.db, "SELECT COUNT(*), MIN(attempt), MAX(attempt) FROM attempts").await;
    assert_eq!(kept, [(50, 71, 120)]);
}

/// A deposit with two events, the first of them leased.
async fn two_events(store: &TestStore) -> Claimed {
    let first = claimed_once(store).await;
    append(store, &Event::entered(&deposit(1).confirm(NOW).unwrap(), 0)).await.unwrap();
    first
}

#[tokio::test]
async fn while_an_earlier_event_is_being_acknowledged_the_later_one_neither_goes_nor_is_forgotten() {
    // SQLite has one writer: there one is over before the other begins.
    let store = TestStore::fresh(Engine::Postgres).await;
    let first = two_events(&store).await;
    let mut acknowledging = store.db.begin().await.unwrap();
    assert!(deliveries::delivered(&mut acknowledging, &first, NOW).await.unwrap());
    assert_eq!(claim(&store, NOW, 9).await, [], "what is being acknowledged may still fail");
    acknowledging.commit().await.unwrap();
    let later = NOW.plus(Duration::from_secs(1));
    assert_eq!(claim(&store, later, 9).await.len(), 1, "given back, and due in a moment");
}

#[tokio::test]
async fn while_somebody_holds_the_earlier_event_the_later_one_waits_for_a_moment_and_is_not_taken_again_at_once() {
    let store = TestStore::fresh(Engine::Postgres).await;
    two_events(&store).await;
    let mut holding = store.db.begin().await.unwrap();
    let Connected::Postgres(connection) = holding.engine() else { panic!("PostgreSQL") };
    let hold = "UPDATE deliveries SET state = 'DELIVERED', queue = 'DONE' WHERE position = 0";
    sqlx::query(hold).execute(connection).await.unwrap();
    assert_eq!(claim(&store, NOW, 9).await, []);
    let waits = (1, "WAITING".to_owned(), 0);
    assert_eq!(queues(&store).await[1], waits);
    holding.commit().await.unwrap();
    assert_eq!(claim(&store, NOW, 9).await, []);
    assert_eq!(claim(&store, NOW.plus(Duration::from_millis(50)), 9).await.len(), 1);
}

#[tokio::test]
async fn whoever_acknowledges_waits_for_who_puts_the_later_one_aside_and_then_frees_it() {
    let store = TestStore::fresh(Engine::Postgres).await;
    let first = two_events(&store).await;
    let mut claiming = store.db.begin().await.unwrap();
    assert_eq!(claim_in(&mut claiming, NOW, 9).await, []);
    let db = store.db.clone();
    let mut acknowledging = JoinSet::new();
    acknowledging.spawn(async move {
        let mut tx = db.begin().await.unwrap();
        assert!(deliveries::delivered(&mut tx, &first, NOW).await.unwrap());
        tx.commit().await.unwrap();
    });
    let early = tokio::time::timeout(Duration::from_millis(300), acknowledging.join_next()).await;
    assert!(early.is_err(), "the claim holds the earlier event");
    claiming.commit().await.unwrap();
    acknowledging.join_next().await.unwrap().unwrap();
    assert_eq!(claim(&store, NOW, 9).await.len(), 1);
}

#[tokio::test]
async fn a_release_is_not_over_while_somebody_else_holds_what_is_left_of_it() {
    // SQLite has one writer: there one is over before the other begins.
    for left in ["queue = 'HELD'", "queue = 'AGAIN', next_us = next_us + 3600000000"] {
        let store = TestStore::fresh(Engine::Postgres).await;
        two_events(&store).await;
        run(&store.db, AssertSqlSafe(format!("UPDATE deliveries SET {left} WHERE position = 0"))).await;
        write(&store, async |tx| endpoints::set_releasing(tx, "hook").await.unwrap()).await;
        let mut claiming = store.db.begin().await.unwrap();
        assert_eq!(claim_in(&mut claiming, NOW, 9).await, [], "the later one is put aside, and the earlier one locked");
        let release = async |tx: &mut Tx| {
            let held = endpoints::release_held(tx, "hook", NOW, 9).await.unwrap();
            let again = endpoints::release_again(tx, "hook", NOW, 9).await.unwrap();
            endpoints::released(tx, "hook", NOW).await.unwrap();
            held + again
        };
        assert_eq!(write(&store, release).await, 0, "{left}: it waits for nobody");
        claiming.commit().await.unwrap();
        let is_releasing =
            async || write(&store, async |tx| endpoints::busy(tx, NOW).await.unwrap()).await[0].releasing;
        assert!(is_releasing().await, "{left}: it is not let go yet");
        assert_eq!(write(&store, release).await, 1, "{left}");
        assert!(!is_releasing().await, "{left}");
    }
}

async fn a_claim_takes_what_was_written_first_and_no_more_than_its_limit(store: TestStore) {
    const COUNT: u8 = 150;
    prepare(&store).await;
    register(&store, "a").await;
    let mut ids = Vec::new();
    write(&store, async |tx| {
        for tag in 1..=COUNT {
            let deposit = deposit(tag);
            deposits::insert(tx, &deposit).await.unwrap();
            let history = History::of(tx, deposit.id).await.unwrap();
            let event = Event::entered(&deposit, 0);
            let at = Timestamp(NOW.0 + i64::from(tag / 10));
            events::append(tx, &event, &history, at).await.unwrap();
            ids.push((at, event.id.to_string(), "a".to_owned()));
        }
    })
    .await;
    ids.sort();
    let mut rest = ids;
    for (round, limit) in [1, 2, 7, 32, 1, 100, 7, 1_000].into_iter().enumerate() {
        if round == 4 {
            // The planner now knows the table, and may choose another way.
            run(&store.db, "ANALYZE").await;
        }
        let taken = rest.len().min(usize::try_from(limit).unwrap());
        let expected: BTreeSet<_> = rest.drain(..taken).map(|(_, event, hook)| (event, hook)).collect();
        let claimed = claim(&store, NOW, limit).await;
        assert_eq!(claimed.len(), taken, "round {round}: a limit of {limit}");
        let found: BTreeSet<_> = claimed.into_iter().map(|claimed| (claimed.event_id, claimed.webhook_id)).collect();
        assert_eq!(found, expected, "round {round}: what has waited longest comes first");
    }
    assert_eq!(claim(&store, NOW, 1_000).await, [], "every delivery is claimed once");
}

async fn a_claim_keeps_its_limit_when_the_planner_believes_that_there_is_one_delivery(store: TestStore) {
    prepare(&store).await;
    register(&store, "hook").await;
    let event = |tag| Event::entered(&deposit(tag), 0);
    insert(&store, deposit(1)).await;
    append(&store, &event(1)).await.unwrap();
    run(&store.db, "ANALYZE").await;
    // They fit on the one page that the planner has seen.
    for tag in 2..=30 {
        insert(&store, deposit(tag)).await;
        append(&store, &event(tag)).await.unwrap();
    }
    for limit in [1, 2, 7] {
        let claimed = claim(&store, NOW, limit).await.len();
        assert_eq!(claimed, usize::try_from(limit).unwrap(), "more are under way than there may be");
    }
}

async fn a_later_event_of_a_deposit_waits_for_the_earlier_at_the_same_webhook_only(store: TestStore) {
    for webhook in ["a", "b"] {
        register(&store, webhook).await;
    }
    let [one, two] = [insert(&store, deposit(1)).await, insert(&store, deposit(2)).await];
    let confirmed = one.clone().confirm(NOW).unwrap();
    let [first, second, unrelated] =
        [Event::entered(&one, 0), Event::entered(&confirmed, 0), Event::entered(&two, 0)].map(Arc::new);
    for event in [&first, &second, &unrelated] {
        append(&store, event).await.unwrap();
    }
    let name = |event: &Event, webhook: &str| (event.id.to_string(), webhook.to_owned());
    let claimed = claim(&store, NOW, 9).await;
    let found: BTreeSet<_> =
        claimed.iter().map(|claimed| (claimed.event_id.clone(), claimed.webhook_id.clone())).collect();
    let expected = [name(&first, "a"), name(&first, "b"), name(&unrelated, "a"), name(&unrelated, "b")];
    assert_eq!(found, expected.into(), "another deposit is not held");

    let of = |webhook: &str| {
        let first = first.id.to_string();
        claimed.iter().find(|claimed| claimed.event_id == first && claimed.webhook_id == webhook).unwrap()
    };
    assert!(write(&store, async |tx| deliveries::delivered(tx, of("a"), NOW).await.unwrap()).await);
    let next = NOW.plus(Duration::from_secs(2));
    assert!(write(&store, async |tx| deliveries::retry_at(tx, of("b"), next, Queue::Again, NOW).await.unwrap()).await);
    let claimed = claim(&store, NOW, 9).await;
    assert_eq!(claimed.len(), 1, "held at b, where the first is to be sent again");
    assert_eq!((claimed[0].event_id.clone(), claimed[0].webhook_id.clone()), name(&second, "a"));
    assert_eq!(claimed[0].payload, second.payload);
    let claimed = claim(&store, next, 9).await;
    assert_eq!((claimed[0].event_id.clone(), claimed[0].attempt), (first.id.to_string(), 2));
    assert_eq!(claimed.len(), 1);
}

async fn a_lease_that_ends_gives_the_delivery_to_the_next(store: TestStore) {
    let lost = claimed_once(&store).await;
    assert_eq!(lost.attempt, 1);
    assert_eq!(claim(&store, Timestamp(NOW.plus(LEASE).0 - 1), 9).await, [], "a microsecond too early");
    let taken = claim(&store, NOW.plus(LEASE), 9).await;
    assert_eq!(taken, [Claimed { attempt: 2, ..lost }], "the same bytes to the same place");
}

async fn a_late_acknowledgement_changes_nothing(store: TestStore) {
    let late = claimed_once(&store).await;
    let again = claim(&store, NOW.plus(LEASE), 9).await.remove(0);
    let table = "SELECT state, attempt, next_us, queue FROM deliveries";
    let before: Vec<(String, i64, i64, String)> = rows(&store.db, table).await;
    let held = write(&store, async |tx| {
        [
            deliveries::delivered(tx, &late, NOW).await.unwrap(),
            deliveries::retry_at(tx, &late, NOW, Queue::Again, NOW).await.unwrap(),
        ]
    });
    assert_eq!(held.await, [false, false]);
    assert_eq!(rows::<(String, i64, i64, String)>(&store.db, table).await, before);

    assert!(write(&store, async |tx| deliveries::delivered(tx, &again, NOW).await.unwrap()).await);
    for claimed in [&late, &again] {
        let held = write(&store, async |tx| {
            [
                deliveries::delivered(tx, claimed, NOW).await.unwrap(),
                deliveries::retry_at(tx, claimed, NOW, Queue::Again, NOW).await.unwrap(),
            ]
        });
        assert_eq!(held.await, [false, false], "what has arrived is not sent again");
    }
    assert_eq!(claim(&store, Timestamp(i64::MAX), 9).await, []);
}

async fn two_who_claim_at_once_never_get_the_same_delivery(store: TestStore) {
    const COUNT: u8 = 120;
    prepare(&store).await;
    register(&store, "hook").await;
    for tag in 1..=COUNT {
        insert(&store, deposit(tag)).await;
        append(&store, &Event::entered(&deposit(tag), 0)).await.unwrap();
    }
    let mut claimers = JoinSet::new();
    let start = Arc::new(Barrier::new(2));
    for _ in 0..2 {
        let (db, start) = (store.db.clone(), Arc::clone(&start));
        claimers.spawn(async move {
            start.wait().await;
            let mut mine = Vec::new();
            // What the other holds locked at the moment is skipped: one empty answer is not the end.
            let mut empty = 0;
            while empty < 3 {
                let mut tx = db.begin().await.unwrap();
                let claimed = claim_in(&mut tx, NOW, 7).await;
                tx.commit().await.unwrap();
                empty = if claimed.is_empty() { empty + 1 } else { 0 };
                mine.extend(claimed);
            }
            mine
        });
    }
    let claimed = claimers.join_all().await.concat();
    assert!(claimed.iter().all(|claimed| claimed.attempt == 1));
    let ids: BTreeSet<&str> = claimed.iter().map(|claimed| claimed.event_id.as_str()).collect();
    assert_eq!((ids.len(), claimed.len()), (usize::from(COUNT), usize::from(COUNT)), "each exactly once");
}
