//! What becomes of endpoints that fail, are slow, say no or come back after days: who waits for whom, and that nothing
//! is ever lost. Each hole that was read in others' code has its test here or in `delivery.rs`.
//!
//! Time is the world's; a day passes when a test says so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use landfall::delivery::{Delivered, Delivery};
use landfall::store::endpoints;
use landfall::store::{Connection, Engine as Connected};
use landfall::time::Pulse;
use sqlx::AssertSqlSafe;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::delivery::{
    Answer, MICROSECOND, Receiver, amount_and_status, attempts, delivery, pay, register, tick, world,
};
use crate::harness::books::events;
use crate::harness::postgres::{ENGINES, Engine};
use crate::harness::world::{FINALITY_DEPTH, World};

pub(crate) const DAY: Duration = Duration::from_secs(86_400);

/// A receiver that refuses until it is reported otherwise.
pub(crate) async fn refusing() -> (Receiver, Arc<AtomicBool>) {
    let well = Arc::new(AtomicBool::new(false));
    let is_well = Arc::clone(&well);
    let receiver =
        Receiver::new(move |_| Answer::Status(if is_well.load(Ordering::Relaxed) { 200 } else { 500 })).await;
    (receiver, well)
}

pub(crate) async fn status_of(world: &World, webhook: &str) -> (String, i64, i64) {
    let text = "SELECT status, failures, in_flight_max FROM webhooks WHERE id = $1";
    match world.db().read().await.unwrap().engine() {
        Connected::Postgres(connection) => sqlx::query_as(text).bind(webhook).fetch_one(connection).await.unwrap(),
        Connected::Sqlite(connection) => sqlx::query_as(text).bind(webhook).fetch_one(connection).await.unwrap(),
    }
}

pub(crate) async fn write(world: &World, text: impl Into<String>) {
    let mut tx = world.db().begin().await.unwrap();
    let text = AssertSqlSafe(text.into());
    match tx.engine() {
        Connected::Postgres(connection) => drop(sqlx::query(text).execute(connection).await.unwrap()),
        Connected::Sqlite(connection) => drop(sqlx::query(text).execute(connection).await.unwrap()),
    }
    tx.commit().await.unwrap();
}

async fn resume(world: &World, webhook: &str) {
    let mut tx = world.db().begin().await.unwrap();
    assert!(endpoints::resume(&mut tx, webhook, world.now()).await.unwrap());
    tx.commit().await.unwrap();
}

pub(crate) fn done(delivered: usize, to_be_retried: usize) -> Delivered {
    Delivered { delivered, to_be_retried }
}

/// Everything arrived, and of each deposit in its order.
pub(crate) async fn assert_all_in_order(world: &World, receiver: &Receiver) {
    let mut reported: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for received in receiver.received() {
        let (amount, status) = amount_and_status(&received.body);
        let statuses = reported.entry(amount).or_default();
        if statuses.last() != Some(&status) {
            statuses.push(status);
        }
    }
    let in_order =
        |statuses: &Vec<String>| statuses.iter().zip(["PENDING", "CONFIRMED"]).all(|(found, wanted)| found == wanted);
    assert!(reported.values().all(|statuses| statuses.len() <= 2 && in_order(statuses)), "{reported:#?}");
    let arrived: BTreeSet<String> = receiver.bodies().into_iter().collect();
    let stored: BTreeSet<String> = events(world.db()).await.into_iter().map(|event| event.payload).collect();
    assert_eq!(arrived, stored, "nothing is lost");
}

#[tokio::test]
async fn while_an_endpoint_fails_one_event_is_attempted_by_the_schedule_and_then_one_two_four_eight() {
    for engine in ENGINES {
        let (receiver, well) = refusing().await;
        let mut world = world(engine).await;
        register(&world, "hook", &receiver.url("/")).await;
        pay(&mut world, &(1..=30).collect::<Vec<_>>()).await;
        let delivery = delivery(&world);
        assert_eq!(delivery.tick().await.unwrap(), done(0, 8), "as many as one endpoint may have");
        assert_eq!(status_of(&world, "hook").await.0, "FAILING");
        for wait_secs in [2, 5, 15, 60, 300] {
            assert_eq!(delivery.tick().await.unwrap(), Delivered::default(), "nothing until the probe is due");
            world.pass(Duration::from_secs(wait_secs));
            assert_eq!(delivery.tick().await.unwrap(), done(0, 1), "the probe after {wait_secs} s");
        }
        assert_eq!(attempts(world.db()).await.len(), 8 + 5, "nothing but the probe spends an attempt");

        well.store(true, Ordering::Relaxed);
        world.pass(Duration::from_secs(900));
        let mut ramp = Vec::new();
        for _ in 0..6 {
            ramp.push(delivery.tick().await.unwrap().delivered);
        }
        assert_eq!(ramp, [1, 1, 2, 4, 8, 8], "the probe, and then twice as many each time");
        while delivery.tick().await.unwrap() != Delivered::default() {}
        assert_eq!(status_of(&world, "hook").await, ("ACTIVE".to_owned(), 0, 8));
        assert_all_in_order(&world, &receiver).await;
        world.close().await;
    }
}

#[tokio::test]
async fn of_two_processes_one_probes_an_endpoint_that_fails() {
    for engine in ENGINES {
        let (receiver, _) = refusing().await;
        let mut world = world(engine).await;
        register(&world, "hook", &receiver.url("/")).await;
        pay(&mut world, &(1..=30).collect::<Vec<_>>()).await;
        let (one, other) = (delivery(&world), delivery(&world));
        one.tick().await.unwrap();
        assert_eq!(status_of(&world, "hook").await.0, "FAILING");
        let before = attempts(world.db()).await.len();
        for (probes, wait_secs) in (1..).zip([2, 5, 15, 60, 300]) {
            world.pass(Duration::from_secs(wait_secs));
            let (first, second) = tokio::join!(one.tick(), other.tick());
            assert_eq!(first.unwrap().to_be_retried + second.unwrap().to_be_retried, 1, "{engine:?}, {wait_secs} s");
            assert_eq!(attempts(world.db()).await.len(), before + probes);
        }
        world.close().await;
    }
}

#[tokio::test]
async fn a_receiver_that_is_dark_for_eight_days_gets_every_event_in_order_per_deposit() {
    for engine in ENGINES {
        let (receiver, well) = refusing().await;
        let mut world = world(engine).await;
        register(&world, "hook", &receiver.url("/")).await;
        let delivery = delivery(&world);
        for day in 1..=8_u64 {
            pay(&mut world, &[100 * day + 1, 100 * day + 2, 100 * day + 3]).await;
            world.chain.mine_empty(FINALITY_DEPTH);
            world.catch_up().await;
            for _ in 0..24 {
                delivery.tick().await.unwrap();
                world.pass(DAY / 24);
            }
        }
        let tries = receiver.received().len();
        // Three events do not open it on the first day; then there are probes, and one for each that is new.
        assert!((20..100).contains(&tries), "{tries} attempts in eight days: the breaker spares it");
        assert_eq!(events(world.db()).await.len(), 48);

        well.store(true, Ordering::Relaxed);
        let mut delivered = 0;
        for _ in 0..100 {
            world.pass(Duration::from_secs(600));
            delivered += delivery.tick().await.unwrap().delivered;
        }
        assert_eq!(delivered, 48);
        assert_all_in_order(&world, &receiver).await;
        world.close().await;
    }
}

#[tokio::test]
async fn what_fails_for_seven_days_is_held_and_the_first_that_arrives_lets_all_go() {
    for engine in ENGINES {
        let poison = Arc::new(AtomicBool::new(true));
        let refuses = Arc::clone(&poison);
        let receiver = Receiver::new(move |received| {
            let poisoned = amount_and_status(&received.body).0.ends_with("99");
            Answer::Status(if poisoned && refuses.load(Ordering::Relaxed) { 500 } else { 200 })
        })
        .await;
        let mut world = world(engine).await;
        register(&world, "hook", &receiver.url("/")).await;
        pay(&mut world, &[199, 299, 399]).await;
        let delivery = delivery(&world);
        assert_eq!(delivery.tick().await.unwrap(), done(0, 3));
        // As after 39 attempts.
        write(&world, "UPDATE deliveries SET failures = 39").await;
        world.pass(Duration::from_secs(2));
        assert_eq!(delivery.tick().await.unwrap(), done(0, 3));
        for _ in 0..3 {
            world.pass(DAY / 4);
            assert_eq!(delivery.tick().await.unwrap(), done(0, 1), "one for all of them, every six hours");
            assert_eq!(delivery.tick().await.unwrap(), done(0, 0));
        }
        poison.store(false, Ordering::Relaxed);
        world.pass(DAY / 4);
        assert_eq!(delivery.tick().await.unwrap(), done(1, 0));
        assert_eq!(delivery.tick().await.unwrap(), done(2, 0), "the others at once");
        pay(&mut world, &[400]).await;
        assert_eq!(delivery.tick().await.unwrap(), done(1, 0), "and none is left to be let go");
        world.close().await;
    }
}

#[tokio::test]
async fn an_event_is_attempted_forty_times_in_seven_days_before_it_is_held() {
    let receiver = Receiver::new(|received| {
        let poisoned = amount_and_status(&received.body).0.ends_with('9');
        Answer::Status(if poisoned { 500 } else { 200 })
    })
    .await;
    let mut world = world(Engine::Sqlite).await;
    register(&world, "hook", &receiver.url("/")).await;
    pay(&mut world, &[9]).await;
    let delivery = delivery(&world);
    let failures = async |world: &World| {
        let mut reader = world.db().read().await.unwrap();
        let Connected::Sqlite(connection) = reader.engine() else { panic!("SQLite") };
        let text = "SELECT failures, queue = 'HELD' FROM deliveries ORDER BY failures DESC LIMIT 1";
        sqlx::query_as::<_, (i64, bool)>(text).fetch_one(connection).await.unwrap()
    };
    let mut rounds = 0;
    let held_after = loop {
        delivery.tick().await.unwrap();
        if let (failures, true) = failures(&world).await {
            break failures;
        }
        assert!(rounds < 10 * 8, "it is never held");
        // What arrives beside it speaks for the endpoint.
        pay(&mut world, &[rounds * 10]).await;
        world.pass(DAY / 8);
        rounds += 1;
    };
    assert_eq!((held_after, status_of(&world, "hook").await.0.as_str()), (40, "ACTIVE"));
    assert!(rounds >= 7 * 8, "{rounds} times three hours");
    world.close().await;
}

#[tokio::test]
async fn events_that_are_refused_for_ever_keep_back_no_others() {
    for engine in ENGINES {
        let receiver = Receiver::new(|received| {
            let refused = amount_and_status(&received.body).0.ends_with('9');
            Answer::Status(if refused { 400 } else { 200 })
        })
        .await;
        let mut world = world(engine).await;
        register(&world, "hook", &receiver.url("/")).await;
        pay(&mut world, &[9]).await;
        let delivery = delivery(&world);
        for _ in 0..48 {
            world.pass(DAY / 24);
            delivery.tick().await.unwrap();
        }
        assert_eq!(status_of(&world, "hook").await.0, "ACTIVE", "one event does not speak for its endpoint");
        pay(&mut world, &[1]).await;
        assert_eq!(delivery.tick().await.unwrap().delivered, 1, "at once");

        // Many of them do, until the next that is not refused is the probe.
        pay(&mut world, &[19, 29, 39, 49, 59]).await;
        delivery.tick().await.unwrap();
        assert_eq!(status_of(&world, "hook").await.0, "FAILING");
        for _ in 0..48 {
            world.pass(DAY / 24);
            delivery.tick().await.unwrap();
        }
        pay(&mut world, &[2, 3, 4]).await;
        world.pass(DAY / 4);
        assert_eq!(delivery.tick().await.unwrap().delivered, 1, "what never failed is tried before what did");
        assert_eq!(status_of(&world, "hook").await.0, "ACTIVE");
        for _ in 0..4 {
            delivery.tick().await.unwrap();
        }
        let arrived: BTreeSet<String> = attempts_that_arrived(&world).await;
        assert_eq!(arrived.len(), 4, "all that are not refused");
        world.close().await;
    }
}

/// The events that have arrived.
async fn attempts_that_arrived(world: &World) -> BTreeSet<String> {
    let text = "SELECT DISTINCT event_id FROM attempts WHERE error = ''";
    let rows: Vec<String> = match world.db().read().await.unwrap().engine() {
        Connected::Postgres(connection) => sqlx::query_scalar(text).fetch_all(connection).await.unwrap(),
        Connected::Sqlite(connection) => sqlx::query_scalar(text).fetch_all(connection).await.unwrap(),
    };
    rows.into_iter().collect()
}

#[tokio::test]
async fn a_410_and_a_pause_wait_for_a_person_and_keep_every_event() {
    for engine in ENGINES {
        let receiver = Receiver::scripted([Answer::Status(410)]).await;
        let mut world = world(engine).await;
        register(&world, "hook", &receiver.url("/")).await;
        pay(&mut world, &[5]).await;
        assert_eq!(tick(&world).await, done(0, 1));
        assert_eq!(status_of(&world, "hook").await.0, "GONE");
        world.chain.mine_empty(FINALITY_DEPTH);
        world.catch_up().await;
        world.pass(8 * DAY);
        assert_eq!(tick(&world).await, Delivered::default(), "nobody knocks again");
        resume(&world, "hook").await;
        for _ in 0..3 {
            tick(&world).await;
        }
        assert_all_in_order(&world, &receiver).await;

        let mut tx = world.db().begin().await.unwrap();
        assert!(endpoints::pause(&mut tx, "hook", world.now()).await.unwrap());
        tx.commit().await.unwrap();
        pay(&mut world, &[7]).await;
        world.pass(DAY);
        assert_eq!(tick(&world).await, Delivered::default());
        resume(&world, "hook").await;
        assert_eq!(tick(&world).await, done(1, 0));
        assert_all_in_order(&world, &receiver).await;
        world.close().await;
    }
}

#[tokio::test]
async fn a_receiver_that_asks_for_time_gets_it_within_bounds() {
    // The world's clock stands at 2027-01-15T08:00:00Z.
    let cases = [
        (429, "120", 120),
        (503, "120", 120),
        (429, "1", 2),
        (429, "86400", 600),
        (500, "120", 2),
        (429, "soon", 2),
        (429, "Fri, 15 Jan 2027 08:02:00 GMT", 120),
        (503, "Sat, 16 Jan 2027 08:02:00 GMT", 600),
        (429, "Fri, 15 Jan 2027 07:00:00 GMT", 2),
    ];
    for (status, asked, secs) in cases {
        let receiver = Receiver::scripted([Answer::Busy(status, asked.to_owned())]).await;
        let mut world = world(Engine::Sqlite).await;
        register(&world, "hook", &receiver.url("/")).await;
        pay(&mut world, &[5]).await;
        assert_eq!(tick(&world).await, done(0, 1));
        world.pass(Duration::from_secs(secs) - Duration::from_micros(1));
        assert_eq!(tick(&world).await, Delivered::default(), "{status} with {asked}");
        world.pass(Duration::from_micros(1));
        assert_eq!(tick(&world).await, done(1, 0), "{status} with {asked}");
        world.close().await;
    }
}

/// Runs a delivery while `work` is done.
pub(crate) async fn running(world: &World, work: impl Future<Output = ()>) {
    let stop = CancellationToken::new();
    let mut running = JoinSet::new();
    let delivery = Delivery::new(world.db().clone(), world.clock(), || 200).unwrap();
    running.spawn(delivery.run(Pulse::new("delivery", world.now()), stop.clone()));
    work.await;
    running.abort_all();
}

pub(crate) async fn until(what: &str, met: impl AsyncFn() -> bool) {
    for _ in 0..600 {
        if met().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{what} did not come true within a minute");
}

/// Repeats a run that decides nothing, three times at most in all. `run` returns whether it was over before an attempt
/// without an answer ended by itself, which it does after 15 s of this machine's time.
pub(crate) async fn until_decided(run: impl AsyncFn() -> bool) {
    for _ in 0..3 {
        if run().await {
            return;
        }
    }
    panic!("three times it took longer than an attempt may");
}

#[tokio::test]
async fn a_dead_and_a_dripping_endpoint_keep_back_nobody_else() {
    for engine in ENGINES {
        until_decided(|| all_good_ones_are_done_before_a_dripping_one(engine)).await;
    }
}

/// Whether they are done before its first attempt is over.
async fn all_good_ones_are_done_before_a_dripping_one(engine: Engine) -> bool {
    const GOOD: usize = 10;
    let (good, drip) = (Receiver::scripted([]).await, Receiver::new(|_| Answer::Drip).await);
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let mut world = world(engine).await;
    for index in 0..GOOD {
        register(&world, &format!("good-{index}"), &good.url("/")).await;
    }
    register(&world, "drip", &drip.url("/")).await;
    register(&world, "dead", &format!("http://{nobody}/")).await;
    pay(&mut world, &(1..=6).collect::<Vec<_>>()).await;
    world.chain.mine_empty(FINALITY_DEPTH);
    world.catch_up().await;
    let is_over = async || attempts(world.db()).await.iter().any(|attempt| attempt.webhook_id == "drip");
    running(&world, async {
        until("all good ones", async || good.received().len() == GOOD * 12 || is_over().await).await;
    })
    .await;
    let is_over = is_over().await;
    world.close().await;
    !is_over
}

#[tokio::test]
async fn an_attempt_that_the_store_never_takes_keeps_back_no_other() {
    // An attempt of the one that succeeds breaks a rule, whenever it is written down; or, as text that a database has
    // no place for, is no data that it takes.
    let unique =
        |id: &str| format!("CREATE UNIQUE INDEX rule ON attempts (error) WHERE event_id IN ('refused', '{id}')");
    let data =
        |id: &str| format!("CREATE INDEX rule ON attempts ((1 / (CASE event_id WHEN '{id}' THEN 0 ELSE 1 END)))");
    type Rule = fn(&str) -> String;
    let cases: [(Engine, Rule); 3] = [(Engine::Sqlite, unique), (Engine::Postgres, unique), (Engine::Postgres, data)];
    for (engine, rule) in cases {
        let receiver = Receiver::scripted([]).await;
        let mut world = world(engine).await;
        register(&world, "hook", &receiver.url("/")).await;
        pay(&mut world, &[1, 2, 3]).await;
        let refused = events(world.db()).await.swap_remove(1).id;
        write(&world, "INSERT INTO attempts VALUES ('refused', 'another', 1, 0, 0, 200, '', '')").await;
        write(&world, rule(&refused)).await;
        let open = async || pending(&world).await;
        running(&world, async { until("the two others", async || open().await == [refused.clone()]).await }).await;
        assert_eq!(receiver.received().len(), 3, "each was sent once");

        write(&world, "DROP INDEX rule").await;
        world.pass(Duration::from_secs(3_600));
        running(&world, async { until("the third", async || open().await.is_empty()).await }).await;
        assert_eq!(receiver.received().len(), 4, "it was sent again when its lease was over");
        world.close().await;
    }
}

#[tokio::test]
async fn what_cannot_be_written_down_for_as_long_as_its_lease_is_not_sent_again_by_who_knows_that_it_arrived() {
    let receiver = Receiver::scripted([]).await;
    let mut world = world(Engine::Sqlite).await;
    register(&world, "hook", &receiver.url("/")).await;
    pay(&mut world, &[1, 2, 3]).await;
    // A store that takes claims, so that it is not the store that keeps them back.
    write(&world, "ALTER TABLE attempts RENAME TO away").await;
    let pulse = Pulse::new("delivery", world.now());
    let delivery = Delivery::new(world.db().clone(), world.clock(), || 200).unwrap();
    let mut running = JoinSet::new();
    running.spawn(delivery.run(pulse.clone(), CancellationToken::new()));
    until("all three", async || receiver.received().len() == 3).await;
    // Three end, it is looked for more once or twice, and then nothing is left to do but to write them down.
    turns(&world, &pulse, 8).await;
    world.pass(Duration::from_secs(61));
    // One may be for writing them down again; the next would claim.
    turns(&world, &pulse, 3).await;
    write(&world, "ALTER TABLE away RENAME TO attempts").await;
    until("all three are written down", async || pending(&world).await.is_empty()).await;
    assert_eq!(receiver.received().len(), 3, "each was sent once");
    let numbers: Vec<i64> = attempts(world.db()).await.iter().map(|attempt| attempt.attempt).collect();
    assert_eq!(numbers, [1, 1, 1]);

    pay(&mut world, &[4]).await;
    until("the next", async || receiver.received().len() == 4).await;
    running.abort_all();
    world.close().await;
}

/// Waits until the loop of a delivery has turned so often, at least.
pub(crate) async fn turns(world: &World, pulse: &Pulse, count: usize) {
    for _ in 0..count {
        world.pass(MICROSECOND);
        until("a turn", async || pulse.last() == world.now()).await;
    }
}

#[tokio::test]
async fn what_ends_together_is_written_down_together() {
    let permits = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&permits);
    let receiver = Receiver::new(move |_| Answer::Held(Arc::clone(&held), 200)).await;
    let mut world = world(Engine::Postgres).await;
    register(&world, "hook", &receiver.url("/")).await;
    pay(&mut world, &(1..=8).collect::<Vec<_>>()).await;
    running(&world, async {
        until("all eight", async || receiver.received().len() == 8).await;
        // Whoever would write down the first that ends waits until all have ended, however slowly.
        let mut tx = world.db().begin().await.unwrap();
        let Connected::Postgres(connection) = tx.engine() else { panic!("PostgreSQL was asked for") };
        sqlx::query("LOCK TABLE attempts IN SHARE MODE").execute(connection).await.unwrap();
        permits.close();
        until("all are answered", async || receiver.waiting() == 0).await;
        drop(tx);
        until("all are written down", async || attempts(world.db()).await.len() == 8).await;
    })
    .await;
    // Each row bears the transaction that wrote it.
    let text = "SELECT COUNT(DISTINCT CAST(xmin AS TEXT)) FROM attempts";
    let mut reader = world.db().read().await.unwrap();
    let Connected::Postgres(connection) = reader.engine() else { panic!("PostgreSQL was asked for") };
    let commits: i64 = sqlx::query_scalar(text).fetch_one(connection).await.unwrap();
    println!("8 attempts were written down in {commits} transactions");
    // One of those that ended before the first was written down, one of all others, one whose answer is noticed late.
    assert!(commits <= 3, "8 attempts in {commits} transactions");
    drop(reader);
    world.close().await;
}

/// The events that some webhook has not got yet.
async fn pending(world: &World) -> Vec<String> {
    let text = "SELECT event_id FROM deliveries WHERE state = 'PENDING'";
    let rows: Vec<(String,)> = match world.db().read().await.unwrap().engine() {
        Connected::Postgres(connection) => sqlx::query_as(text).fetch_all(connection).await.unwrap(),
        Connected::Sqlite(connection) => sqlx::query_as(text).fetch_all(connection).await.unwrap(),
    };
    rows.into_iter().map(|(id,)| id).collect()
}

#[tokio::test]
async fn an_endpoint_has_eight_attempts_under_way_at_most() {
    let permits = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&permits);
    let receiver = Receiver::new(move |_| Answer::Held(Arc::clone(&held), 200)).await;
    let mut world = world(Engine::Sqlite).await;
    register(&world, "hook", &receiver.url("/")).await;
    pay(&mut world, &(1..=40).collect::<Vec<_>>()).await;
    running(&world, async {
        for arrived in 8..=40 {
            until(&format!("{arrived} of forty"), async || receiver.received().len() >= arrived).await;
            // One may leave, and one more come.
            permits.add_permits(1);
        }
    })
    .await;
    assert_eq!(receiver.most_at_once(), 8);
    world.close().await;
}

#[tokio::test]
async fn no_transaction_is_open_while_a_receiver_is_waited_for() {
    let receiver = Receiver::new(|_| Answer::Silence).await;
    let mut world = world(Engine::Sqlite).await;
    register(&world, "hook", &receiver.url("/")).await;
    pay(&mut world, &[5]).await;
    running(&world, async {
        until("the request", async || receiver.received().len() == 1).await;
        // SQLite has one writer: it would be refused.
        let begun = world.db().begin().await.unwrap();
        assert!(attempts(world.db()).await.is_empty(), "it is waited for still");
        drop(begun);
    })
    .await;
    world.close().await;
}

/// A receiver that answers so many requests on a connection, and hangs up behind the next one; what it counted.
struct Rude {
    url: String,
    posts: Arc<AtomicUsize>,
    connections: Arc<AtomicUsize>,
    _server: JoinSet<()>,
}

impl Rude {
    async fn start(answers: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let [posts, connections] = [(), ()].map(|()| Arc::new(AtomicUsize::new(0)));
        let (posted, connected) = (Arc::clone(&posts), Arc::clone(&connections));
        let mut server = JoinSet::new();
        server.spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                connected.fetch_add(1, Ordering::SeqCst);
                for left in (0..=answers).rev() {
                    let mut request = Vec::new();
                    while !request.ends_with(b"}") && stream.read_buf(&mut request).await.is_ok_and(|read| read > 0) {}
                    if request.is_empty() {
                        break;
                    }
                    posted.fetch_add(1, Ordering::SeqCst);
                    if left > 0 {
                        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
                    }
                }
            }
        });
        Rude { url, posts, connections, _server: server }
    }

    fn counted(&self) -> (usize, usize) {
        (self.posts.load(Ordering::SeqCst), self.connections.load(Ordering::SeqCst))
    }
}

#[tokio::test]
async fn a_connection_that_ends_behind_the_request_is_one_attempt_and_not_posted_again_at_once() {
    let receiver = Receiver::scripted([Answer::Torn]).await;
    let rude = Rude::start(0).await;
    let mut world = world(Engine::Sqlite).await;
    register(&world, "rude", &rude.url).await;
    register(&world, "hook", &receiver.url("/")).await;
    pay(&mut world, &[5]).await;
    assert_eq!(tick(&world).await, done(1, 1));
    assert_eq!(tick(&world).await, Delivered::default());
    assert_eq!(rude.counted(), (1, 1), "the body had left: the outcome is unknown");
    world.close().await;
}

/// That it was in use before says nothing of whether the request was read.
#[tokio::test]
async fn a_kept_connection_that_ends_behind_the_request_is_one_attempt_and_not_posted_again_at_once() {
    let rude = Rude::start(1).await;
    let mut world = world(Engine::Sqlite).await;
    register(&world, "rude", &rude.url).await;
    pay(&mut world, &[5]).await;
    let delivery = delivery(&world);
    assert_eq!(delivery.tick().await.unwrap(), done(1, 0));
    pay(&mut world, &[6]).await;
    assert_eq!(delivery.tick().await.unwrap(), done(0, 1));
    assert_eq!(delivery.tick().await.unwrap(), Delivered::default());
    assert_eq!(rude.counted(), (2, 1));
    world.close().await;
}

#[tokio::test]
async fn a_late_acknowledgement_is_no_word_about_the_endpoint() {
    for engine in ENGINES {
        let permits = Arc::new(Semaphore::new(0));
        let gone = Arc::clone(&permits);
        let first = AtomicBool::new(true);
        let receiver = Receiver::new(move |_| match first.swap(false, Ordering::Relaxed) {
            true => Answer::Held(Arc::clone(&gone), 410),
            false => Answer::Status(200),
        })
        .await;
        let mut world = world(engine).await;
        register(&world, "hook", &receiver.url("/")).await;
        pay(&mut world, &[5]).await;
        let slow = delivery(&world);
        let (late, again) = tokio::join!(slow.tick(), async {
            receiver.arrived().await;
            world.pass(Duration::from_secs(60));
            let again = tick(&world).await;
            permits.close();
            again
        });
        assert_eq!(again, done(1, 0), "its lease had ended");
        assert_eq!(late.unwrap(), Delivered::default(), "who was late changes nothing");
        let numbers: Vec<i64> = attempts(world.db()).await.into_iter().map(|attempt| attempt.attempt).collect();
        assert_eq!(numbers, [2]);
        let (status, failures, _) = status_of(&world, "hook").await;
        assert_eq!((status.as_str(), failures), ("ACTIVE", 0), "{engine:?}: a 410 would put it aside");
        world.close().await;
    }
}
