//! On anvil behind a proxy: blocks are mined by the test, pools forget, and blocks are replaced.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use landfall::receiver::Receiver;
use landfall_chain::U256;
use rand::RngExt;
use rand::rngs::StdRng;
use serde_json::json;

use crate::contracts::word;
use crate::proxy::Proxy;
use crate::stage::{Engine, Stage, address, full, given_seed};
use crate::torture::{Deployment, Disaster, Ground, torture};
use crate::transfers::{BOB, Bench};

const RUNS_FULL: usize = 25;
/// Beyond every deadline that can have been signed.
const LEAP_SECS: u64 = 400;
const TRANSFER: &str = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef";

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_killed_lost_or_set_back_each_request_is_paid_once_or_never_on_sqlite() {
    torture(Engine::Sqlite, disasters(0), Anvil::new).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_killed_lost_or_set_back_each_request_is_paid_once_or_never_on_postgresql() {
    torture(Engine::Postgres, disasters(2), Anvil::new).await;
}

/// Each once, from the `first` on. In a bounded run one of them: two engines and two commits meet all.
fn disasters(first: usize) -> impl Iterator<Item = Option<Disaster>> {
    let (begin, runs) = if full() { (0, RUNS_FULL) } else { (usize::from(given_seed() % 2 == 1), 1) };
    Disaster::ALL.into_iter().cycle().skip(first + begin).take(runs).map(Some)
}

struct Anvil {
    bench: Bench,
    proxy: Proxy,
}

impl Anvil {
    async fn new(engine: Engine) -> (Self, Deployment) {
        let stage = Stage::new(engine).await;
        let proxy = Proxy::start(stage.node.url()).await;
        stage.replace_in_config(stage.node.url(), &proxy.url);
        let mut bench = Bench::signing_by(stage, "signer = \"unix:signer.sock\"").await;
        let (service, signer) = (bench.service.take(), bench.signer.take());
        let deployment = Deployment { api: bench.api.clone(), key: bench.key.clone(), service, signer };
        (Anvil { bench, proxy }, deployment)
    }
}

impl Ground for Anvil {
    const CHAIN: &str = "ETHEREUM_TESTNET";
    const SYMBOL: &str = "USDC";
    const NATIVE_DECIMALS: u8 = 18;

    fn folder(&self) -> &Path {
        self.bench.stage.folder.path()
    }

    fn receiver(&self) -> &Receiver {
        &self.bench.stage.receiver
    }

    fn alice(&self) -> String {
        self.bench.alice.to_string()
    }

    fn bob(&self) -> String {
        address(BOB).to_string()
    }

    async fn mine(&self) {
        self.proxy.mine(&self.bench.stage.node).await;
    }

    async fn disturb(&mut self, rng: &mut StdRng) -> &'static str {
        let node = &self.bench.stage.node;
        match rng.random_range(0..15) {
            0..4 => {
                node.reorg(1).await.unwrap();
                "reorgs"
            }
            4..8 => {
                node.rpc("anvil_dropAllTransactions", json!([])).await.unwrap();
                "forgotten pools"
            }
            8..12 => {
                self.proxy.lose_answers(rng.random_bool(0.5));
                "answers lost or not"
            }
            _ => {
                self.proxy.set_latency(Duration::from_millis(rng.random_range(0..50)));
                "other latencies"
            }
        }
    }

    fn behave(&self) {
        self.proxy.lose_answers(false);
        self.proxy.set_latency(Duration::ZERO);
    }

    async fn leap(&self) {
        self.bench.stage.node.put_forward(LEAP_SECS).await.unwrap();
    }

    async fn paid(&self) -> BTreeMap<u64, u32> {
        let [from, to] = [self.bench.alice, address(BOB)].map(|of| json!(format!("{:#066x}", word(&of))));
        let topics = [json!(TRANSFER), from, to];
        let filter = json!({ "fromBlock": "0x0", "address": self.bench.stage.token.to_string(), "topics": topics });
        let logs = self.bench.stage.node.rpc("eth_getLogs", json!([filter])).await.unwrap();
        let mut paid = BTreeMap::new();
        for log in logs.as_array().unwrap() {
            let amount = u64::from_str_radix(log["data"].as_str().unwrap().trim_start_matches("0x"), 16).unwrap();
            *paid.entry(amount).or_default() += 1;
        }
        paid
    }

    async fn bobs(&self) -> u64 {
        self.bench.bobs().await
    }

    async fn sponsors_have(&self) -> U256 {
        self.bench.sponsors_have().await
    }
}
