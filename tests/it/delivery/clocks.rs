//! Clocks that were ahead: what they wrote puts nothing off, and takes nothing from those that are at work.

use std::time::Duration;

use landfall::delivery::{Delivered, Delivery};
use landfall::time::{Clock, Timestamp};

use crate::delivery::engine::{status_of, write};
use crate::delivery::{Receiver, attempts, delivery, pay, register, tick, world};
use crate::harness::postgres::{ENGINES, Engine};

const ONE: Delivered = Delivered { delivered: 1, to_be_retried: 0 };

#[tokio::test]
async fn what_a_clock_that_was_ahead_has_put_off_is_due_at_once() {
    const PUT_OFF: [&str; 5] = [
        // As after a computer's clock was in another time zone.
        "UPDATE deliveries SET next_us = next_us + 7200000000",
        "UPDATE deliveries SET next_us = next_us + 7200000000, queue = 'AGAIN', failures = 3, attempt = 3",
        "UPDATE deliveries SET next_us = next_us + 31536000000000, queue = 'AGAIN', failures = 9, attempt = 9",
        "UPDATE deliveries SET next_us = next_us + 31536000000000, queue = 'HELD', failures = 40, attempt = 40",
        "UPDATE deliveries SET next_us = next_us + 31536000000000, queue = 'WAITING'",
    ];
    for engine in ENGINES {
        let receiver = Receiver::scripted([]).await;
        let mut world = world(engine).await;
        register(&world, "hook", &receiver.url("/")).await;
        for (amount, put_off) in (1..).zip(PUT_OFF) {
            pay(&mut world, &[amount]).await;
            write(&world, put_off).await;
            assert_eq!(tick(&world).await, ONE, "{engine:?}: {put_off}");
        }
        world.close().await;
    }
}

#[tokio::test]
async fn an_endpoint_whose_next_probe_a_clock_that_was_ahead_has_put_off_is_probed_at_once() {
    for engine in ENGINES {
        let receiver = Receiver::scripted([]).await;
        let mut world = world(engine).await;
        register(&world, "hook", &receiver.url("/")).await;
        pay(&mut world, &[5]).await;
        write(
            &world,
            "UPDATE webhooks SET status = 'FAILING', failures = 9, status_since_us = created_us + 31536000000000, \
             probed_us = created_us + 31536000000000, probe_us = created_us + 31536000000000",
        )
        .await;
        assert_eq!(tick(&world).await, ONE, "{engine:?}");
        assert_eq!(status_of(&world, "hook").await.0, "ACTIVE");
        world.close().await;
    }
}

#[tokio::test]
async fn what_clocks_may_differ_by_changes_nothing() {
    let receiver = Receiver::scripted([]).await;
    let mut world = world(ENGINES[0]).await;
    register(&world, "hook", &receiver.url("/")).await;
    pay(&mut world, &[5]).await;
    // It failed once. What never did is due whatever a clock said.
    write(&world, "UPDATE deliveries SET next_us = next_us + 30000000, queue = 'AGAIN', failures = 1, attempt = 1")
        .await;
    assert_eq!(tick(&world).await, Delivered::default());
    world.pass(Duration::from_secs(30));
    assert_eq!(tick(&world).await, ONE);
    world.close().await;
}

#[tokio::test]
async fn what_a_machine_wrote_whose_clock_is_ahead_is_sent_at_once_by_whoever_delivers_it() {
    let now = "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)";
    for (written_secs, clock_secs) in [(30, 30), (7, 8), (30, 0), (-30, -30)] {
        let receiver = Receiver::scripted([]).await;
        let mut world = world(Engine::Postgres).await;
        register(&world, "hook", &receiver.url("/")).await;
        pay(&mut world, &[5]).await;
        write(&world, format!("UPDATE deliveries SET next_us = {now} + {written_secs} * 1000000")).await;
        let clock = Clock::new(move || Timestamp(Clock::system().now().0 + clock_secs * 1_000_000));
        let delivery = Delivery::new(world.db().clone(), clock, || 200).unwrap().by_the_shared_clock();
        assert_eq!(delivery.tick().await.unwrap(), ONE, "{written_secs} s, {clock_secs} s");
        world.close().await;
    }
}

#[tokio::test]
async fn a_lease_that_ends_too_far_ahead_is_left_to_its_holder_for_as_long_as_an_attempt_may_take() {
    for engine in ENGINES {
        let receiver = Receiver::scripted([]).await;
        let mut world = world(engine).await;
        register(&world, "hook", &receiver.url("/")).await;
        pay(&mut world, &[5]).await;
        write(&world, "UPDATE deliveries SET queue = 'LEASED', attempt = 1, next_us = next_us + 7200000000").await;
        let delivery = delivery(&world);
        for _ in 0..2 {
            assert_eq!(delivery.tick().await.unwrap(), Delivered::default(), "{engine:?}: it may be under way");
            world.pass(Duration::from_secs(59));
        }
        world.pass(Duration::from_secs(60));
        assert_eq!(delivery.tick().await.unwrap(), ONE, "{engine:?}");
        assert_eq!(attempts(world.db()).await[0].attempt, 2);
        world.close().await;
    }
}

#[tokio::test]
async fn a_process_whose_clock_is_wrong_goes_by_the_databases_and_takes_no_lease_of_others() {
    // One clock is all there is on SQLite.
    for (off_secs, sign) in [(600, 1), (600, -1)] {
        let receiver = Receiver::scripted([]).await;
        let mut world = world(Engine::Postgres).await;
        register(&world, "hook", &receiver.url("/")).await;
        pay(&mut world, &[5, 6]).await;
        // One is being sent by another process, the other has just come.
        let leased = "UPDATE deliveries SET queue = CASE amounts.nth WHEN 1 THEN 'LEASED' ELSE 'FIRST' END, attempt = 2 - amounts.nth, \
                      next_us = CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT) + CASE amounts.nth WHEN 1 THEN 55000000 ELSE 0 END \
                      FROM (SELECT event_id, ROW_NUMBER() OVER (ORDER BY event_id) AS nth FROM deliveries) AS amounts \
                      WHERE amounts.event_id = deliveries.event_id";
        write(&world, leased).await;
        let wrong = Clock::new(move || Timestamp(Clock::system().now().0 + sign * off_secs * 1_000_000));
        let delivery = Delivery::new(world.db().clone(), wrong, || 200).unwrap().by_the_shared_clock();
        assert_eq!(delivery.tick().await.unwrap(), ONE, "{sign}: what is due, and not what is leased");
        assert_eq!(attempts(world.db()).await[0].attempt, 1);
        world.close().await;
    }
}
