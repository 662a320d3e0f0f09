//! Two processes on one store, of which one sends: it stands still in the middle of attempts and goes on later, or is
//! killed. The other one takes over, each request is paid once, and who was replaced writes nothing.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use landfall::amount::to_decimal;
use landfall_chain::{Address, U256};
use serde_json::Value;
use sqlx::Connection as _;
use tempfile::TempDir;

use crate::failure_codes::paid;
use crate::stage::{Engine, Service, Stage, address, free_port};
use crate::transfers::{BOB, Bench, PATIENCE};

/// What the log of a process says when it begins to send, and when it finds that another one does.
const LEADS: &str = "this process sends transfers on ETHEREUM_TESTNET";
const TAKEN_OVER: &str = "another process sends transfers on ETHEREUM_TESTNET now; this one writes nothing";
/// Until the other one has sent something. A lease of 15 s runs out meanwhile, and machines are slow.
const TAKEOVER_MAX: Duration = Duration::from_secs(60);
/// Of USDC.
const DECIMALS: u8 = 6;

/// Two processes with one signer. The one that sends is the bench's own; what follows asks the one beside it.
struct Pair {
    leader: Option<Service>,
    bench: Bench,
    /// Where the one beside runs.
    _folder: TempDir,
    /// Of what was asked for: the first is for one base unit, the second for two.
    ids: Vec<String>,
}

impl Pair {
    async fn new() -> Self {
        let stage = Stage::new(Engine::Postgres).await;
        let mut bench = Bench::signing_by(stage, "signer = \"unix:signer.sock\"").await;
        let (folder, api) = beside(&bench);
        let leader = bench.service.replace(Service::start(folder.path()));
        bench.api = api;
        bench.until_served().await;
        // With an old newest block nothing is signed.
        bench.stage.node.mine(1).await.unwrap();
        let pair = Pair { leader, bench, _folder: folder, ids: Vec::new() };
        assert_eq!([pair.led(), pair.bench.log().matches(LEADS).count()], [1, 0], "{}", pair.bench.log());
        pair
    }

    /// How often the bench's own process began to send.
    fn led(&self) -> usize {
        self.leader.as_ref().unwrap().log().matches(LEADS).count()
    }

    /// Who sends, by the name that its process gave itself.
    fn sender(&self) -> String {
        let status = self.bench.stage.ok(&["sender", "status", "--json"]);
        let status: Value = serde_json::from_str(status.lines().next().unwrap()).unwrap();
        status["sender"]["leader"].as_str().unwrap_or_else(|| panic!("{status}")).to_owned()
    }

    /// Asks for the next transfer.
    async fn ask(&mut self) -> String {
        let nth = u32::try_from(self.ids.len()).unwrap() + 1;
        let id = self.bench.send(nth, &to_decimal(U256::from(nth), DECIMALS)).await;
        self.ids.push(id.clone());
        id
    }

    /// Some are with the node, which mines none of them, and others are about to be.
    async fn have_attempts_under_way(&mut self) {
        for _ in 0..3 {
            let id = self.ask().await;
            self.bench.until_status(&id, "SUBMITTED").await;
        }
        for _ in 0..3 {
            self.ask().await;
        }
    }

    /// Waits until what is asked for now is sent by the one beside; `ended` is when the other one did its last.
    async fn until_taken_over(&mut self, ended: Instant) {
        let id = self.ask().await;
        self.bench.until_status(&id, "SUBMITTED").await;
        let took = ended.elapsed();
        println!("takeover: {:.1} s (goal < 20)", took.as_secs_f64());
        assert!(took < TAKEOVER_MAX, "{took:?}\n{}", self.bench.log());
        assert_eq!(self.bench.log().matches(LEADS).count(), 1, "{}", self.bench.log());
    }

    /// Mines until each is CONFIRMED.
    async fn until_all_are_confirmed(&self) {
        let begun = Instant::now();
        for id in &self.ids {
            while self.bench.transfer(id).await["status"] != "CONFIRMED" {
                assert!(begun.elapsed() < PATIENCE, "{:#}\n{}", self.bench.explained(id), self.bench.log());
                self.bench.stage.node.mine(1).await.unwrap();
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        }
    }

    /// By the token's own log, and by what the sponsors sent.
    async fn assert_each_is_paid_once(&self) {
        let count = u64::try_from(self.ids.len()).unwrap();
        let mut left = paid(&self.bench).await;
        left.sort_unstable_by_key(|(_, amount)| *amount);
        let once: Vec<(Address, u64)> = (1..=count).map(|amount| (address(BOB), amount)).collect();
        assert_eq!(left, once);
        assert_eq!(self.bench.sent().await, count, "one transaction for each");
        for id in &self.ids {
            let explained = self.bench.explained(id);
            let place = |attempt: &Value| (attempt["sponsor"].to_string(), attempt["nonce"].to_string());
            let places: BTreeSet<_> = explained["attempts"].as_array().unwrap().iter().map(place).collect();
            assert_eq!(places.len(), 1, "no attempt with another nonce: {explained:#}");
        }
    }

    /// What a sender has on record of transfers, row by row.
    async fn recorded(&self) -> Vec<String> {
        const ROWS: &str = "SELECT i::text FROM intents AS i UNION ALL SELECT a::text FROM transfer_attempts AS a \
                            UNION ALL SELECT c::text FROM transfer_changes AS c ORDER BY 1";
        let mut connection = sqlx::PgConnection::connect(&self.bench.stage.store).await.unwrap();
        let rows: Vec<String> = sqlx::query_scalar(ROWS).fetch_all(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        rows
    }
}

/// A folder for another process on the store of the bench, with the same signer, and where its API is.
fn beside(bench: &Bench) -> (TempDir, String) {
    let (ours, folder) = (bench.stage.folder.path(), tempfile::tempdir().unwrap());
    let config = std::fs::read_to_string(ours.join("landfall.toml")).unwrap();
    let listen = format!("127.0.0.1:{}", free_port());
    let socket = format!("unix:{}", ours.join("signer.sock").display());
    let config = config.replace(bench.api.trim_start_matches("http://"), &listen).replace("unix:signer.sock", &socket);
    std::fs::write(folder.path().join("landfall.toml"), config).unwrap();
    (folder, format!("http://{listen}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn who_sends_and_stands_still_is_replaced_and_writes_nothing_when_it_goes_on() {
    let mut pair = Pair::new().await;
    let first = pair.sender();
    pair.have_attempts_under_way().await;
    let stopped = Instant::now();
    pair.leader.as_ref().unwrap().signal("STOP");
    pair.until_taken_over(stopped).await;
    let second = pair.sender();
    assert_ne!(second, first);
    // Nothing is left to do for anybody.
    pair.until_all_are_confirmed().await;
    let before = pair.recorded().await;

    let stopped = pair.leader.as_ref().unwrap();
    stopped.signal("CONT");
    let begun = Instant::now();
    while !stopped.log().contains(TAKEN_OVER) {
        assert!(begun.elapsed() < PATIENCE, "{}", stopped.log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(pair.recorded().await, before, "it writes nothing");
    // Nor does it send what comes now.
    pair.ask().await;
    pair.until_all_are_confirmed().await;
    pair.assert_each_is_paid_once().await;
    assert_eq!((pair.sender(), pair.led()), (second, 1), "it stays beside");
    let Pair { leader, bench, .. } = pair;
    assert_eq!((leader.unwrap().stop().0, bench.service.unwrap().stop().0), (Some(0), Some(0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_sends_and_is_killed_in_the_middle_of_attempts_is_replaced_and_each_request_is_paid_once() {
    let mut pair = Pair::new().await;
    let first = pair.sender();
    pair.have_attempts_under_way().await;
    let killed = Instant::now();
    pair.leader.take().unwrap().kill();
    pair.until_taken_over(killed).await;
    assert_ne!(pair.sender(), first);
    pair.until_all_are_confirmed().await;
    pair.assert_each_is_paid_once().await;
    assert_eq!(pair.bench.service.unwrap().stop().0, Some(0));
}
