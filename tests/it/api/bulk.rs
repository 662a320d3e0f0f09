//! Nobody takes everybody's share of the store: one key that opens accounts in bulk holds up neither deposits nor other
//! keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request, StatusCode, header};
use landfall::api::{self, Limits, Settings};
use landfall::key::{ApiKey, Environment, Scope, Scopes};
use landfall::registry;
use landfall::store::Db;
use landfall::time::Clock;
use landfall_sim::{SimLeg, SimTx};
use serde_json::json;
use tokio::task::JoinSet;
use tower::ServiceExt as _;

use crate::harness::lanes::full;
use crate::harness::postgres::ENGINES;
use crate::harness::world::{World, address, tester};

const ALICE: u8 = 0xa1;
const PAYER: u8 = 0x01;
const CHAINS: [&str; 5] =
    ["ETHEREUM_TESTNET", "ETHEREUM_MAINNET", "BASE_MAINNET", "OPTIMISM_MAINNET", "POLYGON_MAINNET"];
/// How many requests of the bulk key are under way at any time, and how many addresses each brings.
const AT_ONCE: u64 = 100;
const ADDRESSES: u64 = 100;
/// What reads of other keys may take meanwhile, all but one in a hundred.
const READS_P99_MAX: Duration = Duration::from_millis(300);
/// What a deposit may take from its block to its record: it took 31 s, and takes milliseconds without a flood.
const DEPOSIT_MAX: Duration = Duration::from_secs(3);
/// Beside other tests on few processors; before registrations were taken in turn it was 31 s.
const DEPOSIT_MAX_BESIDE_OTHERS: Duration = Duration::from_secs(10);

/// Who asks the API.
#[derive(Clone)]
struct Client {
    router: Router,
    key: String,
}

impl Client {
    async fn new(db: &Db, router: &Router, scope: Scope, number: u8) -> Self {
        let (scopes, random) = (Scopes::of(&[scope]).unwrap(), [number; ApiKey::RANDOM_BYTES]);
        let by = tester(Clock::system().now());
        let key = registry::create_key(db, Environment::Test, ("test", &scopes), &random, &by).await.unwrap();
        Client { router: router.clone(), key: key.reveal() }
    }

    async fn send(&self, method: Method, path: &str, body: String) -> StatusCode {
        let request = Request::builder().method(method).uri(path);
        let request = request.header(header::AUTHORIZATION, format!("Bearer {}", self.key));
        let request = request.header(header::CONTENT_TYPE, "application/json").body(Body::from(body)).unwrap();
        let answer = self.router.clone().oneshot(request).await.unwrap();
        let status = answer.status();
        drop(axum::body::to_bytes(answer.into_body(), usize::MAX).await.unwrap());
        status
    }

    async fn open(&self, number: u64) -> StatusCode {
        let of = |at: u64| format!("0x{:040x}", (1 << 60) + number * ADDRESSES + at);
        let addresses: Vec<_> = (0..ADDRESSES).map(|at| json!({ "chains": CHAINS, "address": of(at) })).collect();
        let body = json!({
            "request_id": format!("bulk-{number}"),
            "identity_id": "default",
            "type": "OMNIBUS",
            "addresses": addresses,
        });
        self.send(Method::POST, "/v2/accounts", body.to_string()).await
    }
}

/// Opens accounts, so many at once, until it is stopped; the answers.
async fn flood(client: Client, stop: Arc<AtomicBool>) -> Vec<StatusCode> {
    let (next, mut clients) = (Arc::new(AtomicU64::new(0)), JoinSet::new());
    for _ in 0..AT_ONCE {
        let (client, next, stop) = (client.clone(), Arc::clone(&next), Arc::clone(&stop));
        clients.spawn(async move {
            let mut answers = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                answers.push(client.open(next.fetch_add(1, Ordering::Relaxed)).await);
            }
            answers
        });
    }
    clients.join_all().await.into_iter().flatten().collect()
}

/// Reads, one request after another, until it is stopped; how long each took.
async fn read(client: Client, stop: Arc<AtomicBool>) -> Vec<Duration> {
    let mut times = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let begun = Instant::now();
        assert_eq!(client.send(Method::GET, "/v2/accounts?limit=1", String::new()).await, StatusCode::OK);
        times.push(begun.elapsed());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    times
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_key_that_opens_accounts_in_bulk_holds_up_neither_deposits_nor_others() {
    let time = Duration::from_secs(if full() { 60 } else { 4 });
    for engine in ENGINES {
        let mut world = World::on(engine, 1).await;
        world.watch("alice", address(ALICE)).await;
        world.chain.mine_empty(1);
        world.catch_up().await;
        let no_rates = Limits { ip_requests_per_sec: 0, key_requests_per_sec: 0, ..Limits::default() };
        let settings = Settings { limits: no_rates, ..Settings::of(Environment::Test) };
        let router = api::Api::new(world.db().clone(), settings, Clock::system()).router();
        let bulk = Client::new(world.db(), &router, Scope::Write, 1).await;
        let other = Client::new(world.db(), &router, Scope::Write, 2).await;
        let reader = Client::new(world.db(), &router, Scope::Read, 3).await;
        let stop = Arc::new(AtomicBool::new(false));
        let (mut flooding, mut reading) = (JoinSet::new(), JoinSet::new());
        flooding.spawn(flood(bulk, Arc::clone(&stop)));
        reading.spawn(read(reader, Arc::clone(&stop)));
        tokio::time::sleep(Duration::from_millis(500)).await;

        let (begun, mut deposits, mut opened) = (Instant::now(), Vec::new(), Vec::new());
        while begun.elapsed() < time {
            let nonce = deposits.len() as u64 + 1;
            let pay = SimLeg::native(address(PAYER), address(ALICE), nonce);
            world.chain.mine(vec![SimTx::new(address(PAYER), nonce, vec![pay])]);
            let paid = Instant::now();
            world.catch_up().await;
            assert_eq!(world.deposits().await.len() as u64, nonce);
            deposits.push(paid.elapsed());
            let asked = Instant::now();
            assert_eq!(other.open(1_000_000 + nonce).await, StatusCode::CREATED, "{engine:?}");
            opened.push(asked.elapsed());
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        stop.store(true, Ordering::Relaxed);
        let (answers, mut times) = (flooding.join_all().await.concat(), reading.join_all().await.concat());
        times.sort();
        let made = answers.iter().filter(|status| **status == StatusCode::CREATED).count();
        let [slowest, opening] = [deposits, opened].map(|times| times.into_iter().max().unwrap());
        println!(
            "{engine:?}: {made} accounts of {ADDRESSES} addresses on {} chains by one key; slowest deposit {slowest:.2?}, slowest \
             account of another key {opening:.2?}, {} reads: p50 {:.1?}, p99 {:.1?}",
            CHAINS.len(),
            times.len(),
            times[times.len() / 2],
            times[times.len() * 99 / 100],
        );
        let most = if full() { DEPOSIT_MAX } else { DEPOSIT_MAX_BESIDE_OTHERS };
        assert!(slowest <= most && opening <= most, "{engine:?}: {slowest:?}, {opening:?}");
        // Beside other tests it says nothing.
        assert!(!full() || times[times.len() * 99 / 100] < READS_P99_MAX, "{engine:?}");
        // No answer says that something failed. A request that waited for too long is answered so, and comes again.
        let failed = answers.iter().find(|status| ![201, 503].contains(&status.as_u16()));
        assert_eq!((failed, made > 0), (None, true), "{engine:?}");
        world.close().await;
    }
}
