//! kill -9 at random moments while deposits flow, on each engine: nothing lost, nothing twice, every event delivered
//! at least once and in order for each deposit. 22 kills each, 550 in the full run.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use landfall::sandbox::token;
use landfall_chain::U256;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::Value;

use crate::proxy::Proxy;
use crate::stage::{Engine, Stage, address, full};

/// So many lives that end at random, for each of which the pace is taken.
const KILLS_AT_A_PACE: u32 = 10;
const PACES: u32 = 2;
const PACES_FULL: u32 = 50;
/// How many blocks come in one life at most: on a slow machine more would only pile up.
const BLOCKS_A_LIFE: u32 = 20;
const ALICE: u8 = 0xa1;
/// How long nothing may come further before the test gives up.
const STANDSTILL_MAX: Duration = Duration::from_secs(120);

#[tokio::test(flavor = "multi_thread")]
async fn kills_at_random_moments_lose_nothing_and_credit_nothing_twice_on_sqlite() {
    kill_at_random_moments(Engine::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_at_random_moments_lose_nothing_and_credit_nothing_twice_on_postgresql() {
    kill_at_random_moments(Engine::Postgres).await;
}

async fn kill_at_random_moments(engine: Engine) {
    let begun = Instant::now();
    let mut rng = StdRng::seed_from_u64(20_261_121);
    let mut stage = Stage::new(engine).await;
    let proxy = Proxy::start(stage.node.url()).await;
    stage.replace_in_config(stage.node.url(), &proxy.url);
    stage.set_up("alice", &address(ALICE)).await;
    let mut sent = 0_u64;
    let (paces, mode) = if full() { (PACES_FULL, "full") } else { (PACES, "bounded") };
    for _ in 0..paces {
        // Twice as long as this machine takes now, whatever else it does: the kills must hit work, not only starts.
        let longest = 2 * until_one_more_is_confirmed(&mut stage, &proxy, &mut rng, &mut sent).await;
        for _ in 0..KILLS_AT_A_PACE {
            let service = stage.start();
            let until = Instant::now() + rng.random_range(Duration::from_millis(20)..longest);
            let mut blocks = 0..BLOCKS_A_LIFE;
            while Instant::now() < until {
                if blocks.next().is_some() {
                    sent += flow(&mut stage, &proxy, &mut rng).await;
                }
                tokio::time::sleep(Duration::from_millis(rng.random_range(5..60))).await;
            }
            service.kill();
        }
    }
    let made = stage.deposits();
    println!("{engine:?}: {} deposits found and {} confirmed between the kills", made.len(), confirmed(&made));
    assert!(!stage.receiver.log().is_empty());

    stage.node.mine(3).await.unwrap();
    let service = stage.start();
    let deposits = at_rest(&stage, sent).await;
    assert_books(&stage, &deposits, sent).await;
    assert_eq!(service.stop().0, Some(0));
    let events = stage.receiver.log().len();
    println!(
        "{mode}, {engine:?}: {} kills, {sent} deposits, {events} events arrived, in {} s",
        paces * (KILLS_AT_A_PACE + 1),
        begun.elapsed().as_secs()
    );
}

/// Lets the service live, while deposits flow, until one that was not is CONFIRMED, and kills it; how long that took.
async fn until_one_more_is_confirmed(stage: &mut Stage, proxy: &Proxy, rng: &mut StdRng, sent: &mut u64) -> Duration {
    let before = confirmed(&stage.deposits());
    let (service, started) = (stage.start(), Instant::now());
    let mut blocks = 0..BLOCKS_A_LIFE;
    while confirmed(&stage.deposits()) <= before {
        assert!(started.elapsed() < STANDSTILL_MAX, "nothing is confirmed: {}", service.log());
        if blocks.next().is_some() {
            *sent += flow(stage, proxy, rng).await;
        }
    }
    service.kill();
    started.elapsed()
}

fn confirmed(deposits: &[Value]) -> usize {
    deposits.iter().filter(|deposit| deposit["status"] == "CONFIRMED").count()
}

/// One block with some deposits in it; how many.
async fn flow(stage: &mut Stage, proxy: &Proxy, rng: &mut StdRng) -> u64 {
    let count = rng.random_range(0..3_u64);
    for _ in 0..count {
        // Two equal legs of a token, or native value: amounts repeat, so that equal deposits are common.
        stage.pay_native(address(ALICE), 1).await;
    }
    let twins = [(address(ALICE), U256::ONE), (address(ALICE), U256::ONE)];
    stage.call(stage.token, token::pay(&twins)).await;
    proxy.mine(&stage.node).await;
    count + 2
}

/// Waits until every deposit is CONFIRMED and nothing is left to deliver.
async fn at_rest(stage: &Stage, sent: u64) -> Vec<Value> {
    let (mut moved, mut furthest) = (Instant::now(), (0, u64::MAX));
    loop {
        let status: Value = serde_json::from_str(&stage.ok(&["status", "--json"])).unwrap();
        let deposits = stage.deposits();
        let (confirmed, left) = (confirmed(&deposits), status["events"]["pending"].as_u64().unwrap());
        if u64::try_from(confirmed).unwrap() >= sent && left == 0 {
            return deposits;
        }
        if confirmed > furthest.0 || left < furthest.1 {
            (moved, furthest) = (Instant::now(), (confirmed, left));
        }
        assert!(moved.elapsed() < STANDSTILL_MAX, "{confirmed} of {sent} are confirmed; {status}");
        // What a kill interrupted is sent again when its lease of 60 s ends.
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

async fn assert_books(stage: &Stage, deposits: &[Value], sent: u64) {
    assert_eq!(u64::try_from(deposits.len()).unwrap(), sent, "as many deposits as legs");
    let ids: BTreeSet<String> = deposits.iter().map(|d| d["id"].to_string()).collect();
    assert_eq!(ids.len(), deposits.len());
    let tokens = deposits.iter().filter(|d| d["currency_symbol"] == "USDC").count();
    let balance = stage.node.balance_of(&stage.token, &address(ALICE)).await.unwrap();
    assert_eq!(balance, U256::from(tokens), "the chain's own books");
    let native = stage.node.balance(&address(ALICE)).await.unwrap();
    assert_eq!(native, U256::from(deposits.len() - tokens), "the chain's own books");

    let mut arrived: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    for event in stage.receiver.log() {
        let seen = arrived.entry(event.field("id").to_owned()).or_default();
        let named = (event.field("status").to_owned(), event.id.clone());
        if !seen.contains(&named) {
            seen.push(named);
        }
    }
    assert_eq!(stage.receiver.refused(), 0);
    assert_eq!(arrived.len(), deposits.len(), "every deposit is told");
    for (deposit, events) in arrived {
        let statuses: Vec<&str> = events.iter().map(|(status, _)| status.as_str()).collect();
        assert_eq!(statuses, ["PENDING", "CONFIRMED"], "{deposit}: each once but for repeats, in order");
    }
}
