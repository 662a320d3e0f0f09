//! What one client may take of the running program while others pay, read and supervise: everything at once. Only names
//! of webhooks that nobody answers for are elsewhere (`it delivery::names`): they need a resolver of their own.
//!
//! In the full run for 60 s, with the default configuration and alone on the machine, held to its times. Otherwise for
//! a few seconds, with a quarter of all counts and beside other tests: every request is answered, and every deposit
//! comes.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

use crate::stage::{Engine, Service, Stage, address, full};

const CHAINS: [&str; 5] =
    ["ETHEREUM_TESTNET", "ETHEREUM_MAINNET", "BASE_MAINNET", "OPTIMISM_MAINNET", "POLYGON_MAINNET"];
/// What a deposit may take from its block to the API's answer, and a supervisor's question.
const DEPOSIT_MAX: Duration = Duration::from_secs(3);
const LIVE_MAX: Duration = Duration::from_secs(1);
/// What 99 of 100 well-behaved requests may take: in a build for tests, beside this test, twice what users have.
const REQUEST_MAX: Duration = Duration::from_secs(1);
const MEMORY_KB_MAX: u64 = 150_000;
const PATIENCE: Duration = Duration::from_secs(60);

/// Where the program listens, and how much is thrown at it.
#[derive(Clone, Copy)]
struct Place {
    api: SocketAddr,
    admin: SocketAddr,
    /// By what all counts are divided.
    share: usize,
}

fn client(number: u8) -> reqwest::Client {
    let from = IpAddr::V4(Ipv4Addr::new(127, 0, 0, number));
    reqwest::Client::builder().no_proxy().local_address(from).build().unwrap()
}

async fn connect(number: u8, to: SocketAddr) -> Option<TcpStream> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((Ipv4Addr::new(127, 0, 0, number), 0).into()).unwrap();
    socket.connect(to).await.ok()
}

/// Opens so many connections again and again, says this on each, and reads nothing.
async fn hold(number: u8, to: SocketAddr, count: usize, said: String) {
    loop {
        let mut held = Vec::new();
        for _ in 0..count {
            let Some(mut stream) = connect(number, to).await else { continue };
            // It may be closed at once.
            let _ = stream.write_all(said.as_bytes()).await;
            held.push(stream);
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
}

/// Opens accounts with 100 addresses on five chains, again and again.
async fn bulk(key: String, place: Place, [next, made]: [Arc<AtomicU64>; 2]) {
    let client = client(2);
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let of = |at: u64| format!("0x{:040x}", (1_u128 << 100) + u128::from(number * 100 + at));
        let addresses: Vec<_> = (0..100).map(|at| json!({ "chains": CHAINS, "address": of(at) })).collect();
        let id = format!("bulk-{number}");
        let body = json!({ "request_id": id, "identity_id": "default", "type": "OMNIBUS", "addresses": addresses });
        let request = client.post(format!("http://{}/v2/accounts", place.api)).bearer_auth(&key);
        let request = request.header("content-type", "application/json").body(body.to_string());
        // Refused or not, it comes again; a hundred of them in less time would cost this test more than the program.
        if let Ok(answer) = request.send().await {
            made.fetch_add(u64::from(answer.status() == 201), Ordering::Relaxed);
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// All of them, until they are dropped; `made` counts the accounts that they open.
fn attack(place: Place, [write, read]: [String; 2], made: &Arc<AtomicU64>) -> JoinSet<()> {
    let (mut attackers, next, Place { api, admin, share }) = (JoinSet::new(), Arc::default(), place);
    for _ in 0..100 / share {
        attackers.spawn(bulk(write.clone(), place, [Arc::clone(&next), Arc::clone(made)]));
    }
    attackers.spawn(hold(3, api, 800 / share, String::new()));
    attackers.spawn(hold(3, admin, 200 / share, String::new()));
    let head = |rest: &str| format!("GET /docs/{rest} HTTP/1.1\r\nhost: localhost\r\n");
    let body = format!(
        "POST /v2/accounts HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {read}\r\ncontent-type: application/json\r\n\
         content-length: 1000000\r\n\r\n{{"
    );
    attackers.spawn(hold(4, api, 512 / share, body));
    attackers.spawn(hold(5, api, 80 / share, format!("{}\r\n", head("swagger-ui-bundle.js"))));
    attackers.spawn(hold(6, api, 600 / share, format!("{}x-filler: {}", head(""), "x".repeat(400_000))));
    attackers
}

/// The answer to a well-behaved request, and how long it took.
async fn get(client: &reqwest::Client, url: &str, key: &str) -> (u16, Value, Duration) {
    let begun = Instant::now();
    let answer = client.get(url).bearer_auth(key).send().await.unwrap();
    let status = answer.status().as_u16();
    let body = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap_or(Value::Null);
    (status, body, begun.elapsed())
}

fn memory_kb(service: &Service) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", service.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// An address that the log names behind these words.
async fn listens(service: &Service, words: &str) -> SocketAddr {
    let begun = Instant::now();
    loop {
        let log = service.log();
        if let Some((_, behind)) = log.split_once(words) {
            return behind.split_whitespace().next().unwrap().parse().unwrap();
        }
        assert!(begun.elapsed() < PATIENCE, "{log}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn under_attack(engine: Engine) {
    let (time, share, mode) =
        if full() { (Duration::from_secs(60), 1, "full") } else { (Duration::from_secs(8), 4, "bounded") };
    let mut stage = Stage::new(engine).await;
    let admin_port = crate::stage::free_port();
    stage.replace_in_config(
        "[admin]\nlisten = \"127.0.0.1:0\"",
        &format!("[admin]\nlisten = \"127.0.0.1:{admin_port}\""),
    );
    // Who opens accounts in bulk is inside of his rate.
    stage.replace_in_config("[api]\n", "[api]\nkey_requests_per_sec = 0\n");
    if share > 1 {
        stage.replace_in_config("[api]\n", "[api]\nconnections = 200\nconcurrent_requests = 128\n");
    }
    stage.set_up("alice", &address(0xa1)).await;
    let create =
        |name: &str, scopes: &str| stage.ok(&["key", "create", "--name", name, "--scope", scopes]).trim().to_owned();
    let keys = [create("bulk", "write"), create("bodies", "read")];
    let honest = create("honest", "read");
    let service = stage.start();
    let api = listens(&service, "listening on http://").await;
    let place = Place { api, admin: (Ipv4Addr::LOCALHOST, admin_port).into(), share };
    stage.until_caught_up().await;
    let before = memory_kb(&service);

    let made = Arc::new(AtomicU64::new(0));
    let attackers = attack(place, keys, &made);
    let (client, live) = (client(1), format!("http://{}/livez", place.admin));
    let deposits = format!("http://{api}/v2/crypto/deposits?account_id=alice&limit=20");
    let (mut times, mut slowest, mut live_slowest, mut memory) = (Vec::new(), Duration::ZERO, Duration::ZERO, before);
    let (begun, mut paid, mut reported) = (Instant::now(), 1_u64, Duration::ZERO);
    tokio::time::sleep(Duration::from_secs(1)).await;
    while begun.elapsed() < time {
        // Amounts are shown without zeros at their end.
        paid += 10;
        stage.pay_native(address(0xa1), paid).await;
        stage.node.mine(1).await.unwrap();
        let mined = Instant::now();
        loop {
            let (status, page, took) = get(&client, &deposits, &honest).await;
            assert_eq!(status, 200, "{engine:?}: {page}");
            times.push(took);
            // Those of one second are in no order.
            let shown = page["deposits"].as_array().unwrap();
            if shown.iter().any(|deposit| deposit["amount"] == format!("0.{paid:018}")) {
                break;
            }
            assert!(mined.elapsed() < PATIENCE, "{engine:?}: {page}: {}", service.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        slowest = slowest.max(mined.elapsed());
        // At least the PENDING event of each deposit.
        while stage.receiver.log().len() < usize::try_from(paid / 10).unwrap() {
            assert!(mined.elapsed() < PATIENCE, "{engine:?}: {}", service.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        reported = reported.max(mined.elapsed());
        let (status, _, took) = get(&client, &live, "").await;
        assert_eq!(status, 200, "{engine:?}");
        (live_slowest, memory) = (live_slowest.max(took), memory.max(memory_kb(&service)));
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    drop(attackers);
    times.sort();
    let at = |percent: usize| times[times.len() * percent / 100];
    println!(
        "{mode}, {engine:?}: under attack for {} s: {} deposits, slowest {slowest:.2?}, its event {reported:.2?}; {} accounts opened in bulk; /livez at most {live_slowest:.2?}; {} requests: p50 \
         {:.1?}, p99 {:.1?}; memory {} MB before, {} at the most",
        time.as_secs(),
        paid / 10,
        made.load(Ordering::Relaxed),
        times.len(),
        at(50),
        at(99),
        before / 1_000,
        memory / 1_000,
    );
    assert!(made.load(Ordering::Relaxed) > 0, "{engine:?}: nobody opens accounts in bulk");
    if full() {
        assert!(reported <= DEPOSIT_MAX && live_slowest <= LIVE_MAX, "{engine:?}: {reported:?}, {live_slowest:?}");
        assert!(at(99) <= REQUEST_MAX, "{engine:?}: {:?}", at(99));
    }
    assert!(memory < MEMORY_KB_MAX, "{engine:?}: {memory} kB");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_at_once_starves_nobody() {
    for engine in [Engine::Sqlite, Engine::Postgres] {
        under_attack(engine).await;
    }
}
