//! The real program delivers: two of them on one database, one that is stopped and goes on, kill -9 in the middle of
//! attempts, and a database that crashes under them. Nothing is lost; what is sent again had an unknown outcome.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use landfall::sandbox::token;
use landfall_chain::U256;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::Value;
use sqlx::Connection as _;

use crate::hook::{Arrived, Hook};
use crate::postgres::Server;
use crate::stage::{Engine, Stage, address, full};

const ALICE: u8 = 0xa1;
const BLOCK_DEPOSITS: usize = 8;
const PATIENCE: Duration = Duration::from_secs(60);
/// What a kill interrupts is attempted again when its lease of 60 s ends.
const LEASES_PATIENCE: Duration = Duration::from_secs(180);

/// A stage whose only webhook is the hook.
async fn set_up(stage: &Stage, hook: &Hook) {
    let spec = format!("ETHEREUM_TESTNET={}", address(ALICE));
    stage.ok(&["account", "add", "--account", "alice", "--type", "SEGREGATED", "--address", &spec]);
    stage.ok(&["webhook", "add", "--url", &hook.url, "--allow-private", "127.0.0.0/8", "--json"]);
}

/// One block with deposits of alice.
async fn pay(stage: &mut Stage) {
    let legs = [(address(ALICE), U256::ONE); BLOCK_DEPOSITS];
    stage.call(stage.token, token::pay(&legs)).await;
    stage.node.mine(1).await.unwrap();
}

/// What `event show` reports of an event's only delivery: its state, and the attempts on record.
fn delivery(stage: &Stage, event: &str) -> (String, Vec<Value>) {
    let shown: Value = serde_json::from_str(&stage.ok(&["event", "show", event, "--json"])).unwrap();
    let delivery = &shown["deliveries"][0];
    (delivery["state"].as_str().unwrap().to_owned(), delivery["log"].as_array().unwrap().clone())
}

/// The same, with no more than the numbers of the attempts.
fn shown(stage: &Stage, event: &str) -> (String, Vec<u64>) {
    let (state, attempts) = delivery(stage, event);
    (state, attempts.iter().map(|attempt| attempt["attempt"].as_u64().unwrap()).collect())
}

/// An event that came again did so because answers were late, where the machine stood still: each of its requests was
/// an attempt on record, and all but the last have failed.
fn assert_answers_were_late(stage: &Stage, hook: &Hook, event: &str) {
    let (times, (_, attempts)) = (hook.times()[event], delivery(stage, event));
    let failed = attempts.iter().filter(|attempt| attempt["error"] != "").count();
    assert!(times <= attempts.len() && failed + 1 == attempts.len(), "{event} came {times} times: {attempts:#?}");
}

/// The events that are on record as delivered.
fn delivered(stage: &Stage) -> BTreeSet<String> {
    let listed = stage.ok(&["event", "list", "--json"]);
    let events = listed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    events.filter(|event| event["pending"] == 0).map(|event| event["id"].as_str().unwrap().to_owned()).collect()
}

/// How often each event came that was on record as delivered when the service or its store was killed.
#[derive(Default)]
struct Settled(BTreeMap<String, usize>);

impl Settled {
    fn add(&mut self, delivered: BTreeSet<String>, hook: &Hook) {
        let times = hook.times();
        for event in delivered {
            let count = times[&event];
            self.0.entry(event).or_insert(count);
        }
    }

    fn assert_none_came_again(&self, hook: &Hook) {
        let times = hook.times();
        let again: Vec<_> = self.0.iter().filter(|(event, count)| times[*event] != **count).collect();
        assert!(again.is_empty(), "what is on record as delivered is not sent again: {again:?}");
    }
}

/// Waits until two processes have claimed something on PostgreSQL: each numbers its claims from a random place on.
async fn until_two_have_claims(stage: &Stage) {
    const OWNERS: &str = "SELECT DISTINCT owner >> 32 FROM deliveries WHERE owner <> 0";
    let mut connection = sqlx::PgConnection::connect(&stage.store).await.unwrap();
    let begun = Instant::now();
    loop {
        let owners: Vec<i64> = sqlx::query_scalar(OWNERS).fetch_all(&mut connection).await.unwrap();
        if owners.len() == 2 {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{} processes have claims", owners.len());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    connection.close().await.unwrap();
}

async fn until_all_acknowledged(stage: &Stage) {
    let begun = Instant::now();
    loop {
        let status: Value = serde_json::from_str(&stage.ok(&["status", "--json"])).unwrap();
        if status["events"]["pending"] == 0 {
            return;
        }
        assert!(begun.elapsed() < LEASES_PATIENCE, "{status}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_instances_send_each_event_once_and_one_that_was_stopped_writes_nothing_when_it_goes_on() {
    let mut stage = Stage::new(Engine::Postgres).await;
    let hook = Hook::start(Duration::from_millis(40)).await;
    set_up(&stage, &hook).await;
    let old = stage.start();
    let new = stage.start();
    // They share a log.
    hook.until("both", PATIENCE, |_| old.log().matches("listening on http://").count() == 2).await;
    // While nothing is answered, two blocks are more than one of them has slots for: both send some.
    hook.set_open(false);
    for _ in 0..2 {
        pay(&mut stage).await;
    }
    until_two_have_claims(&stage).await;
    hook.set_open(true);
    for _ in 2..10 {
        pay(&mut stage).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    stage.node.mine(3).await.unwrap();
    let both = 2 * 10 * BLOCK_DEPOSITS;
    hook.until("all of two instances", LEASES_PATIENCE, |_| hook.times().len() == both).await;
    until_all_acknowledged(&stage).await;
    assert_eq!(hook.assert_all_in_order(10 * BLOCK_DEPOSITS), []);
    let late = hook.repeated();
    late.iter().for_each(|event| assert_answers_were_late(&stage, &hook, event));
    assert_eq!(new.stop().0, Some(0));

    // The old one has attempts under way when it is stopped.
    let so_far = hook.reported().len();
    hook.set_open(false);
    pay(&mut stage).await;
    hook.until("attempts under way", PATIENCE, |reported| reported.len() == so_far + BLOCK_DEPOSITS).await;
    old.signal("STOP");
    let held: BTreeSet<String> = hook.reported().split_off(so_far).into_iter().map(|reported| reported.event).collect();
    let new = stage.start();
    hook.set_open(true);
    stage.node.mine(3).await.unwrap();
    let all = both + 2 * BLOCK_DEPOSITS;
    hook.until("all by the new one", LEASES_PATIENCE, |_| hook.times().len() == all).await;
    hook.until("again", LEASES_PATIENCE, |_| held.is_subset(&hook.repeated())).await;
    hook.until("the acknowledgements", PATIENCE, |_| held.iter().all(|event| shown(&stage, event).0 == "DELIVERED"))
        .await;
    let before: Vec<_> = held.iter().map(|event| shown(&stage, event)).collect();
    let sent = hook.reported().len();

    old.signal("CONT");
    hook.until("its answers", PATIENCE, |_| old.log().matches("ended after its lease").count() >= held.len()).await;
    let after: Vec<_> = held.iter().map(|event| shown(&stage, event)).collect();
    assert_eq!(after, before, "it writes nothing");
    assert!(after.iter().all(|(_, numbers)| !numbers.contains(&1)), "{after:?}");
    assert_eq!(hook.reported().len(), sent, "and sends nothing");
    assert_eq!(hook.repeated(), &held | &late, "only what nobody knew the outcome of came again");
    assert_eq!(hook.assert_all_in_order(11 * BLOCK_DEPOSITS), []);
    println!(
        "{both} events by two instances, each once but for {} answered too late; {} attempts of the stopped one changed nothing",
        late.len(),
        held.len()
    );
    assert_eq!((old.stop().0, new.stop().0), (Some(0), Some(0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_9_in_the_middle_of_attempts_loses_no_event_on_sqlite() {
    kills(Engine::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_9_in_the_middle_of_attempts_loses_no_event_on_postgresql() {
    kills(Engine::Postgres).await;
}

async fn kills(engine: Engine) {
    let (count, mode) = if full() { (300, "full") } else { (15, "bounded") };
    let mut rng = StdRng::seed_from_u64(20_261_122);
    let mut stage = Stage::new(engine).await;
    let hook = Hook::start(Duration::from_millis(120)).await;
    set_up(&stage, &hook).await;
    let (mut in_the_middle, mut interrupted, mut settled) = (0, BTreeSet::new(), Settled::default());
    for life in 0..count {
        // In every second life nothing is answered: its kill interrupts what came, however slow the machine is.
        let is_answered = life % 2 == 1;
        hook.set_open(is_answered);
        let before = hook.reported().len();
        let service = stage.start();
        pay(&mut stage).await;
        hook.until("something to interrupt", PATIENCE, |reported| reported.len() > before).await;
        if is_answered {
            tokio::time::sleep(Duration::from_millis(rng.random_range(0..150))).await;
        }
        service.kill();
        hook.set_open(true);
        let (reported, delivered) = (hook.reported(), delivered(&stage));
        let is_cut_off = |reported: &Arrived| !delivered.contains(&reported.event);
        in_the_middle += usize::from(reported[before..].iter().any(is_cut_off));
        interrupted
            .extend(reported.iter().filter(|reported| is_cut_off(reported)).map(|reported| reported.event.clone()));
        settled.add(delivered, &hook);
    }
    stage.node.mine(3).await.unwrap();
    let service = stage.start();
    let deposits = count * BLOCK_DEPOSITS;
    hook.until("every event", LEASES_PATIENCE, |_| hook.times().len() == 2 * deposits).await;
    let behind = hook.assert_all_in_order(deposits);
    assert_eq!(behind, [], "a later event is not sent while the outcome of an earlier one is unknown");
    assert!(2 * in_the_middle >= count, "{in_the_middle} of {count} kills interrupted an attempt");
    // Nobody knows whether they arrived.
    hook.until("those that were cut off, again", LEASES_PATIENCE, |_| interrupted.is_subset(&hook.repeated())).await;
    settled.assert_none_came_again(&hook);
    let repeats = hook.reported().len() - hook.times().len();
    println!(
        "{mode}, {engine:?}: {in_the_middle} of {count} kills in the middle of {} attempts, {} events, 0 lost, {repeats} \
         sent again",
        interrupted.len(),
        2 * deposits
    );
    assert_eq!(service.stop().0, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_crashes_in_the_middle_of_attempts_loses_no_event() {
    const ROUNDS: usize = 5;
    let server = Server::new();
    server.start();
    let mut stage = Stage::new(Engine::Sqlite).await;
    stage.configure(&server.url(), "");
    let hook = Hook::start(Duration::from_millis(300)).await;
    set_up(&stage, &hook).await;
    let mut service = stage.start();
    for round in 0..ROUNDS {
        let before = hook.reported().len();
        pay(&mut stage).await;
        hook.until("attempts under way", PATIENCE, |reported| reported.len() > before).await;
        server.stop_at_once();
        // They end while there is nothing to write it down in.
        tokio::time::sleep(Duration::from_millis(400)).await;
        assert!(service.is_running(), "round {round}: {}", service.log());
        server.start();
    }
    stage.node.mine(3).await.unwrap();
    let deposits = ROUNDS * BLOCK_DEPOSITS;
    hook.until("every event", LEASES_PATIENCE, |_| hook.times().len() == 2 * deposits).await;
    assert_eq!(hook.assert_all_in_order(deposits), []);
    assert_eq!(hook.repeated(), BTreeSet::new(), "who made the attempts knows how they ended");
    println!("{ROUNDS} crashes, {} events, 0 lost, 0 sent again", 2 * deposits);
    assert_eq!(service.stop().0, Some(0));
}
