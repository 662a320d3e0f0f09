//! A store that was set back under a signer that was not: the real program with its keystore, and a real node.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sqlx::Connection as _;

use crate::stage::{Engine, Stage};
use crate::transfers::{Bench, PATIENCE};

impl Bench {
    /// Sends so much, and waits until it is CONFIRMED.
    async fn pay(&self, nth: u32, amount: &str) -> String {
        let before = self.sent().await;
        let id = self.send(nth, amount).await;
        self.until_sent(before, 1).await;
        self.stage.node.mine(3).await.unwrap();
        self.until_status(&id, "CONFIRMED").await;
        id
    }

    fn stop(&mut self) {
        assert_eq!(self.service.take().unwrap().stop().0, Some(0));
    }

    async fn start(&mut self) {
        self.service = Some(self.stage.start());
        self.until_served().await;
    }

    /// Waits until what the sponsors own was read after a block behind `above`; the oldest of these blocks. A process reads it
    /// when it starts.
    async fn until_read(&self, above: u64) -> u64 {
        let path = self.stage.folder.path().join("landfall.db");
        let begun = Instant::now();
        loop {
            let mut connection = sqlx::SqliteConnection::connect(&format!("sqlite:{}", path.display())).await.unwrap();
            let read: Vec<(i64,)> =
                sqlx::query_as("SELECT number FROM sponsor_books").fetch_all(&mut connection).await.unwrap();
            connection.close().await.unwrap();
            let oldest = read.iter().map(|(number,)| u64::try_from(*number).unwrap()).min().unwrap_or_default();
            if read.len() == self.sponsors.len() && oldest > above {
                return oldest;
            }
            assert!(begun.elapsed() < PATIENCE, "{read:?}\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Waits until the chain recovers, or does not.
    async fn until_recovering(&self, recovers: bool) {
        let begun = Instant::now();
        loop {
            let status = self.stage.ok(&["sender", "status", "--json"]);
            let status: Value = serde_json::from_str(status.lines().next().unwrap()).unwrap();
            if status["sender"]["recovering"].is_null() != recovers {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{status}\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_was_set_back_is_noticed_by_the_journal_and_pays_nothing_twice() {
    let mut bench = Bench::on(Stage::new(Engine::Sqlite).await).await;
    bench.pay(1, "1").await;
    bench.stop();
    bench.start().await;
    let first = bench.until_read(0).await;
    bench.stop();
    let store = bench.stage.folder.path().join("landfall.db");
    let copy = bench.stage.folder.path().join("copy.db");
    fs::copy(&store, &copy).unwrap();
    bench.start().await;
    let second = bench.pay(2, "2").await;
    bench.stop();
    bench.start().await;
    bench.until_read(first).await;
    assert_eq!(
        bench.stage.ok(&["incident", "list"]),
        "",
        "all that the journal has is on record, and so is all that was spent"
    );
    bench.stop();
    for part in ["landfall.db-wal", "landfall.db-shm"] {
        fs::remove_file(bench.stage.folder.path().join(part)).ok();
    }
    fs::copy(&copy, &store).unwrap();
    let sent = bench.sent().await;
    bench.start().await;
    bench.until_recovering(true).await;
    assert!(bench.stage.ok(&["incident", "list"]).contains("store_behind"));
    assert_eq!(bench.send(2, "2").await, second, "the same request is the same transfer");
    bench.until_status(&second, "CONFIRMED").await;
    assert_eq!((bench.bobs().await, bench.sent().await), (3_000_000, sent));
    // The chain's clock leaps: a final block stands behind all that may have been signed.
    bench.stage.node.rpc("evm_increaseTime", json!([375])).await.unwrap();
    bench.stage.node.mine(4).await.unwrap();
    bench.until_recovering(false).await;
    assert_eq!((bench.bobs().await, bench.sent().await), (3_000_000, sent), "once");
    // What the lost store had paid is booked again, to the wei.
    bench.until_read(first).await;
    let incidents = bench.stage.ok(&["incident", "list"]);
    assert!(!incidents.contains("ledger_differs"), "{incidents}");
    let ledger = bench.stage.ok(&["gas", "ledger", "--json"]);
    let costs: Vec<Value> = ledger.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let borne = costs.iter().filter(|entry| entry["kind"] == "COST").map(|entry| entry["borne_by"].clone());
    let mut borne: Vec<String> = borne.map(|by| by.as_str().unwrap().to_owned()).collect();
    borne.sort();
    assert_eq!(borne, ["CUSTOMER", "PLATFORM"]);
    bench.stop();
}
