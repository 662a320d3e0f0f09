//! A store that was set back under a signer that was not: the real program with its keystore, and a real node.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

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
    let store = bench.stage.folder.path().join("landfall.db");
    let copy = bench.stage.folder.path().join("copy.db");
    fs::copy(&store, &copy).unwrap();
    bench.start().await;
    let second = bench.pay(2, "2").await;
    assert_eq!(bench.stage.ok(&["incident", "list"]), "", "all that the journal has is on record");
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
    bench.stop();
}
