//! On a cluster behind a proxy: its blocks come by themselves, and none is replaced.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use futures_util::future::join_all;
use landfall::receiver::Receiver;
use landfall_chain::U256;
use rand::RngExt;
use rand::rngs::StdRng;
use serde_json::{Value, json};

use crate::proxy::Proxy;
use crate::solana::programs::TOKEN;
use crate::solana::stage::Stage;
use crate::solana::transfers::Bench;
use crate::stage::{Engine, full, given_seed};
use crate::torture::{Deployment, Disaster, Ground, torture};

/// How many of the newest transactions a node lists at most: more than a run makes.
const LISTED_MAX: usize = 1_000;
const RUNS_FULL: usize = 4;

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_killed_or_lost_each_request_is_paid_once() {
    let engines = [Engine::Sqlite, Engine::Postgres];
    // A bounded run takes one of them.
    let taken = if full() { &engines[..] } else { &engines[usize::from(given_seed() % 2 == 1)..][..1] };
    join_all(taken.iter().map(|engine| torture(*engine, disasters(), Cluster::new))).await;
}

/// In the full run one of each, behind one without.
fn disasters() -> impl Iterator<Item = Option<Disaster>> {
    let set_back = if full() { RUNS_FULL } else { 0 };
    std::iter::once(None).chain(Disaster::ALL.into_iter().cycle().take(set_back).map(Some))
}

struct Cluster {
    bench: Bench,
    proxy: Proxy,
}

impl Cluster {
    async fn new(engine: Engine) -> (Self, Deployment) {
        let stage = Stage::new(engine).await;
        let proxy = Proxy::start(&stage.cluster.url).await;
        let signer = "signer = \"unix:signer.sock\"";
        let mut bench = Bench::signing_by(stage, (TOKEN, "spl_token"), signer, Some(&proxy.url)).await;
        let (service, signer) = (bench.service.take(), bench.signer.take());
        let deployment = Deployment { api: bench.api.clone(), key: bench.key.clone(), service, signer };
        (Cluster { bench, proxy }, deployment)
    }

    /// By how much a transaction changed what bob has of the token.
    fn gained(&self, transaction: &Value) -> u64 {
        let held = |when: &str| -> u64 {
            let of = transaction["meta"][when].as_array().unwrap().iter();
            let bobs = of.filter(|balance| balance["owner"] == self.bob().as_str());
            bobs.map(|balance| balance["uiTokenAmount"]["amount"].as_str().unwrap().parse::<u64>().unwrap()).sum()
        };
        held("postTokenBalances") - held("preTokenBalances")
    }
}

impl Ground for Cluster {
    const CHAIN: &str = crate::solana::follower::CHAIN.name();
    const SYMBOL: &str = "TOK";
    const NATIVE_DECIMALS: u8 = 9;

    fn folder(&self) -> &Path {
        self.bench.stage.folder()
    }

    fn receiver(&self) -> &Receiver {
        &self.bench.stage.receiver
    }

    fn alice(&self) -> String {
        self.bench.alice.to_string()
    }

    fn bob(&self) -> String {
        self.bench.bob.to_string()
    }

    async fn mine(&self) {}

    async fn disturb(&mut self, rng: &mut StdRng) -> &'static str {
        if rng.random_bool(0.5) {
            self.proxy.lose_answers(rng.random_bool(0.5));
            return "answers lost or not";
        }
        self.proxy.set_latency(Duration::from_millis(rng.random_range(0..50)));
        "other latencies"
    }

    fn behave(&self) {
        self.proxy.lose_answers(false);
        self.proxy.set_latency(Duration::ZERO);
    }

    /// Its time is the clock's.
    async fn leap(&self) {}

    async fn paid(&self) -> BTreeMap<u64, u32> {
        let (cluster, account) = (&self.bench.stage.cluster, self.bench.token.ata(&self.bench.bob).to_string());
        let how = json!([account, { "limit": LISTED_MAX, "commitment": "confirmed" }]);
        let listed = cluster.rpc("getSignaturesForAddress", how).await;
        let listed = listed.as_array().unwrap();
        assert!(listed.len() < LISTED_MAX);
        let mut paid = BTreeMap::new();
        for landed in listed.iter().filter(|landed| landed["err"].is_null()) {
            let how = json!({ "encoding": "json", "maxSupportedTransactionVersion": 0, "commitment": "confirmed" });
            let transaction = cluster.rpc("getTransaction", json!([landed["signature"], how])).await;
            *paid.entry(self.gained(&transaction)).or_default() += 1;
        }
        paid
    }

    async fn bobs(&self) -> u64 {
        self.bench.stage.cluster.tokens(&self.bench.token.ata(&self.bench.bob)).await
    }

    async fn sponsors_have(&self) -> U256 {
        let (cluster, mut sum) = (&self.bench.stage.cluster, 0);
        for sponsor in &self.bench.sponsors {
            sum += cluster.lamports(sponsor).await;
        }
        U256::from(sum)
    }
}
