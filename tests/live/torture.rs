//! Payments while processes are killed, answers are lost, pools forget and blocks are replaced; then a store, the signer's
//! journal or both are set back, or a copy of the store runs beside the original with the same keys.
//!
//! The real program on each engine, its signer in a process of its own, a real node. Each request asks for an amount of its
//! own, so that what was paid for it is read from the node's own log. Two runs on each engine, 50 in the full run.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use landfall::amount::{from_decimal, to_decimal};
use landfall_chain::U256;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

use crate::contracts::word;
use crate::postgres::copied_database;
use crate::proxy::Proxy;
use crate::stage::{Engine, Service, Stage, address, free_port, full, given_seed};
use crate::transfers::{BOB, Bench};

const KILLS: u32 = 10;
const KILLS_FULL: u32 = 20;
const RUNS: u64 = 2;
const RUNS_FULL: u64 = 25;
const DECIMALS: u8 = 6;
/// How long nothing may come further before the test gives up.
const STANDSTILL_MAX: Duration = Duration::from_secs(400);
const LANDING_TIME: Duration = Duration::from_secs(60);
/// Beyond every deadline that can have been signed.
const LEAP_SECS: u64 = 400;
const LEAPS_MAX: u32 = 3;
const TRANSFER: &str = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef";

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_killed_lost_or_set_back_each_request_is_paid_once_or_never_on_sqlite() {
    torture(Engine::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_killed_lost_or_set_back_each_request_is_paid_once_or_never_on_postgresql() {
    torture(Engine::Postgres).await;
}

async fn torture(engine: Engine) {
    let (runs, mode) = if full() { (RUNS_FULL, "full") } else { (RUNS, "bounded") };
    let (begun, mut tally) = (Instant::now(), BTreeMap::new());
    // Each engine begins elsewhere, so that even two runs on each meet all of them.
    let first = if engine == Engine::Sqlite { 0 } else { 2 };
    for (disaster, seed) in Disaster::ALL.into_iter().cycle().skip(first).zip(given_seed()..given_seed() + runs) {
        println!("{engine:?}: {disaster:?}, seed {seed}, {} s after the begin", begun.elapsed().as_secs());
        run(engine, disaster, seed, &mut tally).await;
    }
    println!("{mode}: {engine:?}: {runs} runs of payments in {} s: {tally:?}", begun.elapsed().as_secs());
}

/// What is set back, or runs twice, behind the kills.
#[derive(Clone, Copy, Debug)]
enum Disaster {
    StoreSetBack,
    CopyBeside,
    JournalSetBack,
    BothSetBack,
}

impl Disaster {
    const ALL: [Disaster; 4] =
        [Disaster::StoreSetBack, Disaster::CopyBeside, Disaster::JournalSetBack, Disaster::BothSetBack];
}

async fn run(engine: Engine, disaster: Disaster, seed: u64, tally: &mut BTreeMap<String, u64>) {
    let stage = Stage::new(engine).await;
    let proxy = Proxy::start(&stage.node).await;
    stage.replace_in_config(stage.node.url(), &proxy.url);
    let no_rates = "environment = \"test\"\nip_requests_per_sec = 0\nkey_requests_per_sec = 0";
    stage.replace_in_config("environment = \"test\"", no_rates);
    let bench = Bench::signing_by(stage, "signer = \"unix:signer.sock\"").await;
    let had = bench.sponsors_have().await;
    let account = bench.get("/v2/accounts").await["accounts"][0]["id"].as_str().unwrap().to_owned();
    let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(5)).build().unwrap();
    let (rng, asked, ids) = (StdRng::seed_from_u64(seed), 0, BTreeMap::new());
    let mut run = Run { bench, proxy, rng, client, account, asked, ids, tally };
    run.bench.service.take().unwrap().kill();
    let longest = run.until_one_more_is_confirmed().await;
    let kills = if full() { KILLS_FULL } else { KILLS };
    let saved_at = run.rng.random_range(0..kills);
    let mut saved = None;
    for kill in 0..kills {
        if kill == saved_at {
            saved = Some(run.saved().await);
        }
        run.live(longest).await;
    }
    let (saved, mut copy) = (saved.unwrap(), None);
    match disaster {
        Disaster::StoreSetBack => run.set_back(&saved.store),
        Disaster::JournalSetBack => run.set_journal_back(&saved.journal),
        Disaster::BothSetBack => {
            run.set_back(&saved.store);
            run.set_journal_back(&saved.journal);
        }
        Disaster::CopyBeside => copy = Some(run.copy_beside().await),
    }
    run.count(&format!("{disaster:?}"));
    run.come_to_rest(copy.as_mut()).await;
    run.assert_paid_once(had, copy.as_ref(), disaster).await;
}

struct Run<'t> {
    bench: Bench,
    proxy: Proxy,
    rng: StdRng,
    client: reqwest::Client,
    account: String,
    /// The requests 1 to this were made; each asks for so many base units.
    asked: u32,
    /// By the number of the request.
    ids: BTreeMap<u32, String>,
    tally: &'t mut BTreeMap<String, u64>,
}

/// A store and a journal as they were.
struct Saved {
    /// The URL of its store.
    store: String,
    journal: Vec<u8>,
}

/// A second deployment with the same keys: a folder and a store of its own.
struct Copy {
    folder: tempfile::TempDir,
    api: String,
    service: Option<Service>,
}

impl Run<'_> {
    fn count(&mut self, what: &str) {
        *self.tally.entry(what.to_owned()).or_default() += 1;
    }

    /// Lets the service live while requests come, until one more is CONFIRMED; how long that took.
    async fn until_one_more_is_confirmed(&mut self) -> Duration {
        let (service, begun) = (self.bench.stage.start(), Instant::now());
        loop {
            self.step().await;
            let confirmed = self.listed().iter().any(|transfer| transfer["status"] == "CONFIRMED");
            if confirmed {
                break;
            }
            assert!(begun.elapsed() < STANDSTILL_MAX, "{}", service.log());
        }
        service.kill();
        begun.elapsed()
    }

    /// One life of the service, which ends at a random moment; sometimes the signer's, too.
    async fn live(&mut self, longest: Duration) {
        let service = self.bench.stage.start();
        let until = Instant::now() + self.rng.random_range(Duration::from_millis(20)..longest);
        while Instant::now() < until {
            self.step().await;
            let pause = self.rng.random_range(5..80);
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
        service.kill();
        self.count("kills");
        if self.rng.random_bool(0.2) {
            self.bench.signer.take().unwrap().kill();
            self.bench.signer = Some(Service::start_signer(self.bench.stage.folder.path()));
            self.count("kills of the signer");
        }
    }

    async fn step(&mut self) {
        let api = self.bench.api.clone();
        match self.rng.random_range(0..100) {
            0..15 => {
                self.asked += 1;
                self.ask(&api, self.asked).await;
            }
            15..25 if self.asked > 0 => {
                let again = self.rng.random_range(1..=self.asked);
                self.ask(&api, again).await;
            }
            25..85 => self.proxy.mine(&self.bench.stage.node).await,
            85..89 => {
                self.bench.stage.node.reorg(1).await.unwrap();
                self.count("reorgs");
            }
            89..93 => {
                self.bench.stage.node.rpc("anvil_dropAllTransactions", json!([])).await.unwrap();
                self.count("forgotten pools");
            }
            93..97 => {
                let loses = self.rng.random_bool(0.5);
                self.proxy.lose_answers(loses);
                self.count("answers lost or not");
            }
            _ => self.proxy.set_latency(Duration::from_millis(self.rng.random_range(0..50))),
        }
    }

    /// Asks for a transfer; whether it is on record then. The same request is the same transfer, whoever answers.
    async fn ask(&mut self, api: &str, nth: u32) -> bool {
        let body = json!({
            "request_id": format!("00000000-0000-4000-8000-{nth:012}"),
            "account_id": self.account,
            "currency_symbol": "USDC",
            "amount": to_decimal(U256::from(nth), DECIMALS),
            "address_destination": { "address": address(BOB).to_string(), "chain": "ETHEREUM_TESTNET" },
        });
        let request = self.client.post(format!("{api}/v2/crypto/transfers")).bearer_auth(&self.bench.key);
        let sent = request.header("content-type", "application/json").body(body.to_string()).send().await;
        // It does not run yet, or was killed.
        let Ok(answer) = sent else { return false };
        let status = answer.status().as_u16();
        let Ok(text) = answer.text().await else { return false };
        let answer: Value = serde_json::from_str(&text).unwrap();
        let id = match status {
            200 | 201 => &answer["id"],
            409 => {
                assert_eq!(answer["code"], "DUPLICATE_TRANSACTION", "{answer}");
                &answer["transfer_id"]
            }
            503 => return false,
            _ => panic!("{status} {answer}"),
        };
        let id = id.as_str().unwrap().to_owned();
        assert_eq!(self.ids.entry(nth).or_insert_with(|| id.clone()), &id, "request {nth}");
        true
    }

    /// Every transfer on record.
    fn listed(&self) -> Vec<Value> {
        lines(&self.bench.stage.ok(&["transfer", "list", "--json"]))
    }

    /// A copy of the store, of which no process is there.
    async fn copied_store(&self, name: &str) -> String {
        let folder = self.bench.stage.folder.path();
        let config = fs::read_to_string(folder.join("landfall.toml")).unwrap();
        let url = config.lines().find_map(|line| line.strip_prefix("url = \"")).unwrap().trim_end_matches('"');
        let Some(file) = url.strip_prefix("sqlite:") else { return copied_database(url).await };
        for part in ["", "-wal", "-shm"] {
            let (from, to) = (folder.join(format!("{file}{part}")), folder.join(format!("{name}{part}")));
            if from.exists() {
                fs::copy(from, to).unwrap();
            }
        }
        format!("sqlite:{name}")
    }

    async fn saved(&self) -> Saved {
        let journal = fs::read(self.journal()).unwrap();
        Saved { store: self.copied_store("saved.db").await, journal }
    }

    fn journal(&self) -> PathBuf {
        self.bench.stage.folder.path().join("keys/journal")
    }

    /// From now on the service uses another store.
    fn set_back(&self, store: &str) {
        let config = fs::read_to_string(self.bench.stage.folder.path().join("landfall.toml")).unwrap();
        let url = config.lines().find(|line| line.starts_with("url = ")).unwrap();
        self.bench.stage.replace_in_config(url, &format!("url = \"{store}\""));
    }

    fn set_journal_back(&mut self, journal: &[u8]) {
        self.bench.signer.take().unwrap().kill();
        fs::write(self.journal(), journal).unwrap();
        self.bench.signer = Some(Service::start_signer(self.bench.stage.folder.path()));
    }

    /// Another deployment on a copy of the store, with the same signer; both are asked for a while.
    async fn copy_beside(&mut self) -> Copy {
        let folder = tempfile::tempdir().unwrap();
        let ours = self.bench.stage.folder.path().to_owned();
        let store = self.copied_store("copy.db").await;
        let store = match store.strip_prefix("sqlite:") {
            Some(file) => format!("sqlite:{}", ours.join(file).display()),
            None => store,
        };
        let port = free_port();
        let config = fs::read_to_string(ours.join("landfall.toml")).unwrap();
        let url = config.lines().find(|line| line.starts_with("url = ")).unwrap();
        let socket = ours.join("signer.sock");
        let listen = self.bench.api.trim_start_matches("http://");
        let config = config
            .replace(url, &format!("url = \"{store}\""))
            .replace("unix:signer.sock", &format!("unix:{}", socket.display()))
            .replace(listen, &format!("127.0.0.1:{port}"));
        fs::write(folder.path().join("landfall.toml"), config).unwrap();
        let api = format!("http://127.0.0.1:{port}");
        let original = self.bench.stage.start();
        let mut copy = Copy { service: Some(Service::start(folder.path())), folder, api };
        let until = Instant::now() + Duration::from_secs(8);
        while Instant::now() < until {
            self.step().await;
            let nth = self.rng.random_range(1..=self.asked.max(1));
            self.ask(&copy.api, nth).await;
        }
        original.kill();
        copy.service.take().unwrap().kill();
        copy
    }

    /// All faults end, everything is asked for once more, and the chain's time leaps beyond every deadline.
    async fn come_to_rest(&mut self, copy: Option<&mut Copy>) {
        self.proxy.lose_answers(false);
        self.proxy.set_latency(Duration::ZERO);
        self.bench.service = Some(self.bench.stage.start());
        let mut apis = vec![self.bench.api.clone()];
        if let Some(copy) = copy {
            copy.service = Some(Service::start(copy.folder.path()));
            apis.push(copy.api.clone());
        }
        let (begun, mut unasked) = (Instant::now(), Vec::new());
        unasked.extend(apis.iter().flat_map(|api| (1..=self.asked).map(move |nth| (api.clone(), nth))));
        while let Some((api, nth)) = unasked.pop() {
            if !self.ask(&api, nth).await {
                unasked.push((api, nth));
                self.proxy.mine(&self.bench.stage.node).await;
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            assert!(begun.elapsed() < STANDSTILL_MAX, "{nth} is not taken: {}", self.bench.log());
        }
        // What was handed over lands first: it is given up only when its window is over by our own clock, too.
        let begun = Instant::now();
        while begun.elapsed() < LANDING_TIME
            && self.everywhere(&apis).await.iter().any(|transfer| transfer["status"] == "SUBMITTED")
        {
            self.proxy.mine(&self.bench.stage.node).await;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        // A signer whose journal lost entries signs nothing before a person says so.
        self.bench.stage.ok(&["signer", "adopt", "--reason", "a test"]);
        self.bench.stage.node.put_forward(LEAP_SECS).await.unwrap();
        let (mut moved, mut least, mut leaps) = (Instant::now(), usize::MAX, 1);
        loop {
            self.proxy.mine(&self.bench.stage.node).await;
            tokio::time::sleep(Duration::from_millis(500)).await;
            let open: usize = self.everywhere(&apis).await.iter().filter(|transfer| is_open(transfer)).count();
            if open == 0 {
                return;
            }
            if open < least {
                (moved, least) = (Instant::now(), open);
            }
            // A chain that noticed late that its store was set back waits for a deadline behind that.
            if moved.elapsed() > Duration::from_secs(20) && leaps < LEAPS_MAX {
                self.bench.stage.node.put_forward(LEAP_SECS).await.unwrap();
                leaps += 1;
            }
            assert!(moved.elapsed() < STANDSTILL_MAX, "{open} have not ended: {}", self.bench.log());
        }
    }

    /// Each transfer as each deployment reports it.
    async fn everywhere(&self, apis: &[String]) -> Vec<Value> {
        let mut all = Vec::new();
        for api in apis {
            for id in self.ids.values() {
                let request = self.client.get(format!("{api}/v2/crypto/transfers/{id}")).bearer_auth(&self.bench.key);
                let answer = request.send().await.unwrap();
                let status = answer.status().as_u16();
                let transfer: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
                assert_eq!(status, 200, "{transfer}");
                all.push(transfer);
            }
        }
        all
    }

    /// How often the token paid each amount to bob from alice.
    async fn paid(&self) -> BTreeMap<u64, u32> {
        let topics = [
            json!(TRANSFER),
            json!(format!("{:#066x}", word(&self.bench.alice))),
            json!(format!("{:#066x}", word(&address(BOB)))),
        ];
        let filter = json!({ "fromBlock": "0x0", "address": self.bench.stage.token.to_string(), "topics": topics });
        let logs = self.bench.stage.node.rpc("eth_getLogs", json!([filter])).await.unwrap();
        let mut paid = BTreeMap::new();
        for log in logs.as_array().unwrap() {
            let amount = u64::from_str_radix(log["data"].as_str().unwrap().trim_start_matches("0x"), 16).unwrap();
            *paid.entry(amount).or_default() += 1;
        }
        paid
    }

    async fn assert_paid_once(&mut self, had: U256, copy: Option<&Copy>, disaster: Disaster) {
        let paid = self.paid().await;
        assert!(paid.values().all(|times| *times == 1), "paid twice: {paid:?}");
        let apis: Vec<String> =
            [Some(&self.bench.api), copy.map(|copy| &copy.api)].into_iter().flatten().cloned().collect();
        let mut ends: BTreeMap<String, &str> = BTreeMap::new();
        for transfer in self.everywhere(&apis).await {
            let amount = transfer["amount"].as_str().unwrap();
            let units = from_decimal(amount, DECIMALS).unwrap();
            let is_paid = paid.contains_key(&u64::try_from(units).unwrap());
            let status = transfer["status"].as_str().unwrap();
            assert_eq!(status == "CONFIRMED", is_paid, "{disaster:?}: {transfer:#}");
            ends.insert(transfer["id"].as_str().unwrap().to_owned(), if is_paid { "CONFIRMED" } else { "ended" });
            self.count(status);
        }
        assert_eq!(ends.len(), self.ids.len());
        let sum: u64 = paid.keys().sum();
        assert_eq!(self.bench.bobs().await, sum, "the chain's own books");
        let left = to_decimal(U256::from(10_000_000 - sum), DECIMALS);
        self.bench.until_available("USDC", &left).await;
        self.assert_announced(&ends).await;
        self.assert_ledger(had, disaster).await;
        for incident in lines(&self.bench.stage.ok(&["incident", "list", "--json"])) {
            // Where the journal is gone too, nothing says any more that we sent what a sponsor has sent.
            let is_expected = incident["kind"] == "store_behind"
                || matches!(disaster, Disaster::BothSetBack) && incident["kind"] == "foreign_spend";
            assert!(is_expected, "{disaster:?}: {incident}");
        }
    }

    /// What clients were sent of each transfer ends as it ended.
    async fn assert_announced(&self, ends: &BTreeMap<String, &str>) {
        let begun = Instant::now();
        loop {
            let mut announced: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
            for received in self.bench.stage.receiver.log() {
                let (id, status) = (received.field("id").to_owned(), received.field("status").to_owned());
                let end = match status.as_str() {
                    "CONFIRMED" => "CONFIRMED",
                    "FAILED" | "DROPPED" => "ended",
                    _ => continue,
                };
                announced.entry(id).or_default().insert(end);
            }
            let of = |id: &String| announced.get(id).cloned().unwrap_or_default();
            for (id, end) in ends {
                let strange = of(id).into_iter().find(|announced| announced != end);
                assert_eq!(strange, None, "{id} is {end}");
            }
            if ends.keys().all(|id| !of(id).is_empty()) {
                return;
            }
            assert!(begun.elapsed() < STANDSTILL_MAX, "not all that ended is announced: {}", self.bench.log());
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// What the sponsors spent is booked to the wei. A store books the attempts that it knows: not those of a copy, nor those
    /// that it lost.
    async fn assert_ledger(&self, had: U256, disaster: Disaster) {
        let spent = had - self.bench.sponsors_have().await;
        let costs = lines(&self.bench.stage.ok(&["gas", "ledger", "--json"]));
        let amount = |entry: &Value| from_decimal(entry["amount"].as_str().unwrap(), 18).unwrap();
        let booked: U256 = costs.iter().filter(|entry| entry["kind"] == "COST").map(amount).sum();
        println!("{disaster:?}: {spent} wei were spent, {booked} are booked");
        assert!(booked <= spent, "{disaster:?}: {booked} wei are booked, {spent} were spent");
        if let Disaster::JournalSetBack = disaster {
            assert_eq!(booked, spent);
        }
    }
}

fn is_open(transfer: &Value) -> bool {
    !["CONFIRMED", "FAILED", "DROPPED"].contains(&transfer["status"].as_str().unwrap())
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
