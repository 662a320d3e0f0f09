//! Endpoints that fail, and what is new or was let go meanwhile: how long it waits, what it costs, who is reported.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use landfall::delivery::Delivered;
use landfall::health::Status;
use landfall::store::endpoints;

use crate::delivery::engine::{DAY, assert_all_in_order, done, refusing, status_of, write};
use crate::delivery::{Answer, Receiver, amount_and_status, attempts, delivery, pay, register, tick, world};
use crate::harness::postgres::{ENGINES, Engine};
use crate::harness::world::{FINALITY_DEPTH, World};

/// How many requests reported a deposit of this amount.
fn reported_of(receiver: &Receiver, amount: &str) -> usize {
    receiver.received().iter().filter(|received| amount_and_status(&received.body).0.ends_with(amount)).count()
}

/// More than could have five attempts each under way at once.
const CROWD: usize = 110;

async fn crowd(world: &World, receiver: &Receiver) {
    for index in 0..CROWD {
        register(world, &format!("hook-{index}"), &receiver.url("/")).await;
    }
}

#[tokio::test]
async fn what_failed_leaves_a_quarter_of_all_slots_to_what_is_new() {
    let receiver = Receiver::new(|_| Answer::Status(500)).await;
    let mut world = world(Engine::Sqlite).await;
    crowd(&world, &receiver).await;
    pay(&mut world, &[1, 2, 3, 4]).await;
    let delivery = delivery(&world);
    while receiver.received().len() < 4 * CROWD {
        delivery.tick().await.unwrap();
    }
    world.pass(Duration::from_secs(2));
    pay(&mut world, &[5]).await;
    let Delivered { to_be_retried, .. } = delivery.tick().await.unwrap();
    assert_eq!(reported_of(&receiver, "5"), CROWD, "every new one");
    assert!((CROWD + 200..=512).contains(&to_be_retried), "{to_be_retried}: and most of the others");
    world.close().await;
}

#[tokio::test]
async fn what_a_dead_process_left_leaves_a_quarter_of_all_slots_to_what_is_new() {
    let receiver = Receiver::scripted([]).await;
    let mut world = world(Engine::Sqlite).await;
    crowd(&world, &receiver).await;
    pay(&mut world, &[1, 2, 3, 4, 5]).await;
    write(&world, "UPDATE deliveries SET queue = 'LEASED', attempt = 1, next_us = 0").await;
    pay(&mut world, &[6]).await;
    // A tick claims once: no attempt that is over leaves its slot to another.
    tick(&world).await;
    let attempts = attempts(world.db()).await;
    let new = attempts.iter().filter(|attempt| attempt.attempt == 1).count();
    assert_eq!(new, CROWD, "every new one");
    let others = attempts.len() - new;
    assert!((200..=512 - CROWD).contains(&others), "{others}: and most of the others");
    world.close().await;
}

#[tokio::test]
async fn an_endpoint_that_fails_again_behind_its_probe_costs_what_was_let_go_two_attempts() {
    for engine in ENGINES {
        let accepts = Arc::new(AtomicUsize::new(0));
        let left = Arc::clone(&accepts);
        let receiver = Receiver::new(move |_| {
            let accepted = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
            Answer::Status(if accepted.is_ok() { 200 } else { 503 })
        })
        .await;
        let mut world = world(engine).await;
        register(&world, "hook", &receiver.url("/")).await;
        pay(&mut world, &(1..=40).collect::<Vec<_>>()).await;
        let delivery = delivery(&world);
        assert_eq!(delivery.tick().await.unwrap(), done(0, 8));
        write(&world, "UPDATE deliveries SET queue = 'HELD', failures = 38 WHERE queue = 'FIRST'").await;
        for _ in 0..2 {
            accepts.store(1, Ordering::SeqCst);
            world.pass(Duration::from_secs(600));
            assert_eq!(delivery.tick().await.unwrap(), done(1, 0), "the probe");
            let mut failed = 0;
            for _ in 0..9 {
                failed += delivery.tick().await.unwrap().to_be_retried;
            }
            assert_eq!((failed, status_of(&world, "hook").await.0.as_str()), (2, "FAILING"), "{engine:?}");
        }
        accepts.store(1_000, Ordering::SeqCst);
        world.pass(Duration::from_secs(600));
        while delivery.tick().await.unwrap() != Delivered::default() {}
        assert_all_in_order(&world, &receiver).await;
        world.close().await;
    }
}

#[tokio::test]
async fn a_new_event_waits_ten_minutes_at_most_for_the_probe_of_an_endpoint_that_fails() {
    for engine in ENGINES {
        let (receiver, well) = refusing().await;
        let mut world = world(engine).await;
        register(&world, "hook", &receiver.url("/")).await;
        pay(&mut world, &[1, 2, 3, 4, 5]).await;
        let delivery = delivery(&world);
        for _ in 0..72 {
            delivery.tick().await.unwrap();
            world.pass(DAY / 24);
        }
        while delivery.tick().await.unwrap() == Delivered::default() {
            world.pass(DAY / 24);
        }
        let before = receiver.received().len();
        pay(&mut world, &[16, 17]).await;
        for _ in 0..60 {
            world.pass(Duration::from_secs(60));
            delivery.tick().await.unwrap();
        }
        assert_eq!(receiver.received().len() - before, 2, "each once, and then the schedule");

        pay(&mut world, &[18]).await;
        well.store(true, Ordering::Relaxed);
        assert_eq!(delivery.tick().await.unwrap(), done(1, 0), "the last probe is ten minutes ago");
        while delivery.tick().await.unwrap() != Delivered::default() {}
        assert_all_in_order(&world, &receiver).await;
        world.close().await;
    }
}

#[tokio::test]
async fn during_the_first_hour_a_probe_comes_each_minute_and_holds_no_event() {
    for engine in ENGINES {
        let (receiver, well) = refusing().await;
        let mut world = world(engine).await;
        register(&world, "hook", &receiver.url("/")).await;
        pay(&mut world, &[1, 2, 3, 4, 5]).await;
        let delivery = delivery(&world);
        while status_of(&world, "hook").await.0 != "FAILING" {
            delivery.tick().await.unwrap();
        }
        // The first waits are shorter.
        world.pass(Duration::from_secs(60));
        for minute in 0..58 {
            assert_eq!(delivery.tick().await.unwrap(), done(0, 1), "{engine:?}: minute {minute}");
            world.pass(Duration::from_secs(60));
        }
        let webhook = Status::read(world.db(), world.now()).await.unwrap().webhooks.remove(0);
        assert_eq!(
            (webhook.pending, webhook.held, webhook.failures),
            (5, 0, 1),
            "{engine:?}: its probes say nothing of them"
        );
        let failure = webhook.last_failure.unwrap();
        assert_eq!(failure.error, "the receiver answered 500 Internal Server Error", "{engine:?}");

        well.store(true, Ordering::Relaxed);
        assert_eq!(delivery.tick().await.unwrap(), done(1, 0), "within a minute");
        while delivery.tick().await.unwrap() != Delivered::default() {}
        assert_all_in_order(&world, &receiver).await;
        assert_eq!(Status::read(world.db(), world.now()).await.unwrap().webhooks.remove(0).last_failure, None);
        world.close().await;
    }
}

#[tokio::test]
async fn three_refused_events_in_a_quiet_hour_keep_back_no_others() {
    let receiver = Receiver::new(|received| {
        let refused = amount_and_status(&received.body).0.ends_with('9');
        Answer::Status(if refused { 500 } else { 200 })
    })
    .await;
    let mut world = world(Engine::Sqlite).await;
    register(&world, "hook", &receiver.url("/")).await;
    pay(&mut world, &[9, 19, 29]).await;
    let delivery = delivery(&world);
    for _ in 0..60 {
        delivery.tick().await.unwrap();
        world.pass(Duration::from_secs(60));
    }
    assert_eq!(status_of(&world, "hook").await.0, "ACTIVE");
    pay(&mut world, &[1]).await;
    assert_eq!(delivery.tick().await.unwrap().delivered, 1, "at once");
    world.close().await;
}

#[tokio::test]
async fn an_endpoint_that_fails_is_probed_also_when_all_that_is_left_waits_and_nobody_calls() {
    for engine in ENGINES {
        let receiver = Receiver::scripted([]).await;
        let mut world = world(engine).await;
        register(&world, "hook", &receiver.url("/")).await;
        pay(&mut world, &[5]).await;
        world.chain.mine_empty(FINALITY_DEPTH);
        world.catch_up().await;
        assert_eq!(tick(&world).await, done(1, 0));
        // As one that stood aside while the earlier one was being acknowledged, and before that the endpoint failed.
        write(&world, "UPDATE deliveries SET queue = 'WAITING', next_us = 0 WHERE position = 1").await;
        write(&world, "UPDATE webhooks SET status = 'FAILING', failures = 5").await;
        assert_eq!(tick(&world).await, done(1, 0), "{engine:?}");
        assert_all_in_order(&world, &receiver).await;
        world.close().await;
    }
}

#[tokio::test]
async fn whoever_asks_how_things_are_is_reported_of_webhooks_that_hold_events_back() {
    // Nobody numbers the feed here.
    let of_webhooks = |status: &Status| {
        let all = status.complaints(&BTreeSet::new(), Duration::from_secs(60));
        all.into_iter().filter(|complaint| complaint.starts_with("webhook")).collect::<Vec<_>>()
    };
    for engine in ENGINES {
        let receiver = Receiver::new(|_| Answer::Status(500)).await;
        let mut world = world(engine).await;
        for webhook in ["fails", "paused"] {
            register(&world, webhook, &receiver.url("/")).await;
        }
        let mut tx = world.db().begin().await.unwrap();
        assert!(endpoints::pause(&mut tx, "paused", world.now()).await.unwrap());
        tx.commit().await.unwrap();
        pay(&mut world, &[1, 2, 3, 4, 5, 6]).await;
        world.pass(Duration::from_secs(61));
        let late = Status::read(world.db(), world.now()).await.unwrap();
        assert_eq!((late.events.pending, late.events.oldest_due_secs), (12, Some(61)));
        let complaints = of_webhooks(&late);
        assert!(complaints[0].starts_with("webhook fails: a delivery has been due for 61 s"), "{complaints:?}");
        assert_eq!(complaints.len(), 1, "{complaints:?}");

        tick(&world).await;
        write(&world, "UPDATE deliveries SET failures = 13 WHERE queue = 'AGAIN'").await;
        let failing = Status::read(world.db(), world.now()).await.unwrap().webhooks;
        assert_eq!(failing.iter().map(|webhook| webhook.failures).collect::<Vec<_>>(), [13, 0], "{engine:?}");
        write(&world, "UPDATE deliveries SET queue = 'HELD' WHERE queue = 'AGAIN'").await;
        world.pass(DAY);
        let Status { webhooks, events, .. } = Status::read(world.db(), world.now()).await.unwrap();
        assert_eq!(events.oldest_due_secs, None, "it fails: nothing is late for us");
        let [fails, paused] = &webhooks[..] else { panic!("{webhooks:?}") };
        assert_eq!((fails.status, fails.pending, fails.held), ("FAILING", 6, 6));
        assert_eq!((paused.status, paused.pending, paused.held), ("PAUSED", 6, 0));
        assert_eq!(paused.oldest_due_secs, Some(86_461));
        let complaints = of_webhooks(&Status::read(world.db(), world.now()).await.unwrap());
        let said = ["fails: fails since", "fails: 6 deliveries failed for seven days", "paused: paused since"];
        assert_eq!(complaints.len(), said.len(), "{complaints:?}");
        for (complaint, said) in complaints.iter().zip(said) {
            assert!(complaint.starts_with(&format!("webhook {said}")), "{complaint}");
        }
        world.close().await;
    }
}

#[tokio::test]
async fn what_waits_for_an_earlier_event_takes_no_slot_from_it() {
    for engine in ENGINES {
        let receiver = Receiver::scripted([]).await;
        let mut world = world(engine).await;
        register(&world, "hook", &receiver.url("/")).await;
        pay(&mut world, &[5]).await;
        write(&world, "UPDATE deliveries SET queue = 'AGAIN', attempt = 1, failures = 1").await;
        world.chain.mine_empty(FINALITY_DEPTH);
        world.catch_up().await;
        // As behind the first that arrived: one slot.
        write(&world, "UPDATE webhooks SET in_flight_max = 1").await;
        assert_eq!(tick(&world).await, done(1, 0), "{engine:?}: PENDING, though CONFIRMED is new");
        assert_eq!(tick(&world).await, done(1, 0));
        assert_all_in_order(&world, &receiver).await;
        world.close().await;
    }
}
