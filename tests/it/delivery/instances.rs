//! Several deliveries on one database: each event is sent by one of them, and who stood still sends and writes nothing.
//!
//! Real processes that are stopped and killed are the live ring's (`tests/live/deliveries.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use landfall::delivery::{Delivered, Delivery};
use landfall::store::{Connection, Db, Engine as Connected};
use landfall::time::{Clock, Pulse};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::delivery::engine::{turns, until, until_decided};
use crate::delivery::{Answer, Receiver, amount_and_status, attempts, pay, register, tick, world};
use crate::harness::books::events;
use crate::harness::postgres::{ENGINES, Engine};
use crate::harness::world::{FINALITY_DEPTH, World};

const INSTANCES: usize = 3;
const HOOKS: usize = 5;
/// As many as one instance attempts at a time at one webhook.
const IN_FLIGHT: u64 = 8;

async fn pending(world: &World) -> i64 {
    let text = "SELECT COUNT(*) FROM deliveries WHERE state = 'PENDING'";
    match world.db().read().await.unwrap().engine() {
        Connected::Postgres(connection) => sqlx::query_scalar(text).fetch_one(connection).await.unwrap(),
        Connected::Sqlite(connection) => sqlx::query_scalar(text).fetch_one(connection).await.unwrap(),
    }
}

/// Whether an attempt got no answer in its 15 s.
async fn has_failed(world: &World) -> bool {
    attempts(world.db()).await.iter().any(|attempt| attempt.error.starts_with("no complete answer"))
}

/// Those who have claimed something, by the first part of their claims' numbers.
async fn owners(world: &World) -> BTreeSet<i64> {
    let text = "SELECT DISTINCT owner FROM deliveries WHERE attempt > 0";
    let claims: Vec<i64> = match world.db().read().await.unwrap().engine() {
        Connected::Postgres(connection) => sqlx::query_scalar(text).fetch_all(connection).await.unwrap(),
        Connected::Sqlite(connection) => sqlx::query_scalar(text).fetch_all(connection).await.unwrap(),
    };
    claims.into_iter().map(|claim| claim >> 40).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_on_one_database_send_each_event_once_and_in_order() {
    for engine in ENGINES {
        until_decided(|| each_event_is_sent_once_and_in_order(engine)).await;
    }
}

/// Whether none was held for so long that its attempt ended by itself and it had to be sent again.
async fn each_event_is_sent_once_and_in_order(engine: Engine) -> bool {
    // Nothing is answered before all of them have claimed. Then answers take their time, each a different one, so that
    // claims and acknowledgements of all meet.
    let (turn, claiming) = (AtomicU32::new(0), Arc::new(Semaphore::new(0)));
    let held = Arc::clone(&claiming);
    let receiver = Receiver::new(move |_| {
        let millis = turn.fetch_add(7, Ordering::Relaxed) % 25;
        let late = Answer::Late(Duration::from_millis(millis.into()));
        if held.is_closed() { late } else { Answer::Held(Arc::clone(&held), 200) }
    })
    .await;
    let mut world = world(engine).await;
    for hook in 0..HOOKS {
        register(&world, &format!("hook-{hook}"), &receiver.url(&format!("/{hook}"))).await;
    }
    let (stop, mut running) = (CancellationToken::new(), JoinSet::new());
    for instance in 0..INSTANCES {
        let db = Db::open(&world.store.url.parse().unwrap()).await.unwrap();
        // Numbers of claims that are far apart, as in processes of their own.
        let random: fn() -> u64 = [|| 200, || 1 << 40, || 1 << 50][instance];
        let delivery = Delivery::new(db, world.clock(), random).unwrap();
        let pulse = Pulse::new(instance, world.now());
        running.spawn(delivery.run(pulse.clone(), stop.clone()));
        // What is held is held for no longer than claims take.
        turns(&world, &pulse, 2).await;
    }
    // One more for each webhook than two of them take at a time.
    pay(&mut world, &(1..=2 * IN_FLIGHT + 1).collect::<Vec<_>>()).await;
    let all = async || owners(&world).await.len() == INSTANCES || has_failed(&world).await;
    until("each of them sends some", all).await;
    claiming.close();
    for round in 3..12_u64 {
        pay(&mut world, &(1..=5).map(|amount| round * 10 + amount).collect::<Vec<_>>()).await;
        // What is due is due by the world's time.
        world.pass(Duration::from_millis(100));
    }
    world.chain.mine_empty(FINALITY_DEPTH);
    world.catch_up().await;
    until("all of it is sent", async || {
        world.pass(Duration::from_millis(100));
        pending(&world).await == 0
    })
    .await;
    stop.cancel();
    running.join_all().await;

    let stored = events(world.db()).await.len();
    assert_eq!((stored, pending(&world).await), (124, 0));
    if has_failed(&world).await {
        world.close().await;
        return false;
    }
    let mut reported: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for received in receiver.received() {
        let (amount, status) = amount_and_status(&received.body);
        reported.entry((received.path, amount)).or_default().push(status);
    }
    assert_eq!(reported.len(), 62 * HOOKS);
    for (deposit, statuses) in reported {
        assert_eq!(statuses, ["PENDING", "CONFIRMED"], "{engine:?}: {deposit:?}, each once and in order");
    }
    let numbers: BTreeSet<i64> = attempts(world.db()).await.iter().map(|attempt| attempt.attempt).collect();
    assert_eq!(numbers, [1].into());
    assert_eq!(owners(&world).await, [0, 1, 1 << 10].into(), "{engine:?}: each of them sent some");
    world.close().await;
    true
}

#[tokio::test]
async fn who_stood_still_between_its_claim_and_its_attempt_sends_nothing() {
    let receiver = Receiver::scripted([]).await;
    let mut world = world(Engine::Sqlite).await;
    register(&world, "hook", &receiver.url("/")).await;
    pay(&mut world, &[5]).await;
    let (now, asked) = (world.now(), Arc::new(AtomicU32::new(0)));
    // The first that asks is the claim; then the process stands still for so long.
    let stands_still = |secs| {
        let asked = Arc::clone(&asked);
        asked.store(0, Ordering::Relaxed);
        let later = now.plus(Duration::from_secs(secs));
        Clock::new(move || if asked.fetch_add(1, Ordering::Relaxed) == 0 { now } else { later })
    };
    let slow = Delivery::new(world.db().clone(), stands_still(26), || 200).unwrap();
    assert_eq!(slow.tick().await.unwrap(), Delivered::default());
    assert_eq!(
        (receiver.received().len(), attempts(world.db()).await.len()),
        (0, 0),
        "25 s of 60 are the last moment: an attempt takes 15, and clocks may be off by 10 each"
    );

    world.pass(Duration::from_secs(59));
    assert_eq!(tick(&world).await, Delivered::default(), "its lease holds all the same");
    world.pass(Duration::from_secs(1));
    assert_eq!(tick(&world).await, Delivered { delivered: 1, to_be_retried: 0 });
    assert_eq!(attempts(world.db()).await[0].attempt, 2);
    world.close().await;
}
