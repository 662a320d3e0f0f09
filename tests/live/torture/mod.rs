//! Payments while processes are killed and answers are lost; on an EVM chain pools forget and blocks are replaced, too. Then
//! a store, the signer's journal or both are set back, or a copy of the store runs beside the original with the same keys.
//!
//! The real program on each engine, its signer in a process of its own, a real node or cluster. Each request asks for an amount
//! of its own, so that what was paid for it is read from the node alone. On a cluster the time of the chain is that of the
//! clock, and deadlines are waited for: only the full run sets anything back there.
//!
//! At the end the receiver of webhooks has each event of each transfer that the feed has, in its order.

mod evm;
mod solana;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use landfall::amount::{from_decimal, to_decimal};
use landfall::event::EventId;
use landfall::receiver::{Received, Receiver};
use landfall::transfer::{Announcement, TransferId};
use landfall_chain::U256;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

use crate::postgres::copied_database;
use crate::stage::{Engine, Service, free_port, full, given_seed, program};

const KILLS: u32 = 10;
const KILLS_FULL: u32 = 20;
/// How many transfers a run asks for at most, and how long the program lives between two kills.
const ASKED_MAX: u32 = 100;
const LIFE_MAX: Duration = Duration::from_secs(10);
/// Of the token that is paid.
const DECIMALS: u8 = 6;
/// What alice has of it, in base units.
const FUNDS: u64 = 10_000_000;
/// How long nothing may come further before the test gives up: longer than a window, and what proves that it is over.
const STANDSTILL_MAX: Duration = Duration::from_secs(600);
const LANDING_TIME: Duration = Duration::from_secs(60);
const LEAPS_MAX: u32 = 3;
/// Of the feed.
const PAGE_EVENTS: usize = 100;
const ANNOUNCEMENTS: [Announcement; 6] = [
    Announcement::Submitted,
    Announcement::Included,
    Announcement::Displaced,
    Announcement::Confirmed,
    Announcement::Failed,
    Announcement::Dropped,
];

/// The id of an event, and what it announces.
type Event = (String, String);
/// By transfer, in their order.
type Events = BTreeMap<String, Vec<Event>>;

/// The chain that is paid on, with a deployment that nothing runs of.
trait Ground {
    const CHAIN: &str;
    const SYMBOL: &str;
    /// Of the currency that sponsors pay.
    const NATIVE_DECIMALS: u8;

    /// Where the program runs.
    fn folder(&self) -> &Path;
    fn receiver(&self) -> &Receiver;
    /// Who pays, and who is paid.
    fn alice(&self) -> String;
    fn bob(&self) -> String;
    /// A block, where none comes by itself.
    async fn mine(&self);
    /// One of the faults that its chain or node may have; which one.
    async fn disturb(&mut self, rng: &mut StdRng) -> &'static str;
    /// No answer is late or lost any more.
    fn behave(&self);
    /// Its time leaps beyond every deadline that can have been signed, where it can leap.
    async fn leap(&self);
    /// How often alice paid each amount to bob.
    async fn paid(&self) -> BTreeMap<u64, u32>;
    /// What bob has of the token.
    async fn bobs(&self) -> u64;
    /// What the sponsors own together, in base units.
    async fn sponsors_have(&self) -> U256;
}

/// The processes of a deployment, and how they are reached.
struct Deployment {
    api: String,
    key: String,
    service: Option<Service>,
    signer: Option<Service>,
}

/// Runs with these disasters, one after the other, each on a ground of its own.
async fn torture<G: Ground>(
    engine: Engine,
    disasters: impl Iterator<Item = Option<Disaster>>,
    ground: impl AsyncFn(Engine) -> (G, Deployment),
) {
    let mode = if full() { "full" } else { "bounded" };
    let (begun, mut tally, mut runs) = (Instant::now(), BTreeMap::new(), 0);
    for (disaster, seed) in disasters.zip(given_seed()..) {
        println!("{engine:?}: {disaster:?}, seed {seed}, {} s after the begin", begun.elapsed().as_secs());
        let (ground, deployment) = ground(engine).await;
        run(ground, deployment, (disaster, seed), &mut tally).await;
        runs += 1;
    }
    let secs = begun.elapsed().as_secs();
    println!("{mode}: {} on {engine:?}: {runs} runs of payments in {secs} s: {tally:?}", G::CHAIN);
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

async fn run<G: Ground>(
    ground: G,
    deployment: Deployment,
    (disaster, seed): (Option<Disaster>, u64),
    tally: &mut BTreeMap<String, u64>,
) {
    let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(5)).build().unwrap();
    let (rng, asked, ids, account) = (StdRng::seed_from_u64(seed), 0, BTreeMap::new(), String::new());
    let mut run = Run { ground, deployment, rng, client, account, asked, ids, set_back_at: None, tally };
    run.account = run.alices_account().await;
    let had = run.ground.sponsors_have().await;
    run.until_available(&to_decimal(U256::from(FUNDS), DECIMALS)).await;
    run.deployment.service.take().unwrap().kill();
    let no_rates = "environment = \"test\"\nip_requests_per_sec = 0\nkey_requests_per_sec = 0";
    run.replace_in_config("environment = \"test\"", no_rates);
    let longest = run.until_one_more_is_confirmed().await;
    let kills = if full() { KILLS_FULL } else { KILLS };
    let saved_at = run.rng.random_range(0..kills);
    let mut saved = None;
    for kill in 0..kills {
        if kill == saved_at && disaster.is_some() {
            saved = Some(run.saved().await);
        }
        run.live(longest).await;
    }
    let mut copy = None;
    match disaster.zip(saved) {
        None => {}
        Some((Disaster::StoreSetBack, saved)) => run.set_back(&saved.store),
        Some((Disaster::JournalSetBack, saved)) => run.set_journal_back(&saved.journal),
        Some((Disaster::BothSetBack, saved)) => {
            run.set_back(&saved.store);
            run.set_journal_back(&saved.journal);
        }
        Some((Disaster::CopyBeside, _)) => copy = Some(run.copy_beside().await),
    }
    run.count(&disaster.map_or("no disaster".to_owned(), |disaster| format!("{disaster:?}")));
    run.come_to_rest(copy.as_mut(), disaster).await;
    run.assert_paid_once(had, copy.as_ref(), disaster).await;
}

struct Run<'t, G> {
    ground: G,
    deployment: Deployment,
    rng: StdRng,
    client: reqwest::Client,
    account: String,
    /// The requests 1 to this were made; each asks for so many base units.
    asked: u32,
    /// By the number of the request.
    ids: BTreeMap<u32, String>,
    /// How many events had arrived when the store was set back, if it was.
    set_back_at: Option<usize>,
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

impl<G: Ground> Run<'_, G> {
    fn count(&mut self, what: &str) {
        *self.tally.entry(what.to_owned()).or_default() += 1;
    }

    fn folder(&self) -> &Path {
        self.ground.folder()
    }

    /// The result of a command that must succeed.
    fn ok(&self, arguments: &[&str]) -> String {
        ok(self.folder(), arguments)
    }

    fn log(&self) -> String {
        self.deployment.service.as_ref().map(Service::log).unwrap_or_default()
    }

    fn replace_in_config(&self, from: &str, to: &str) {
        let path = self.folder().join("landfall.toml");
        let config = fs::read_to_string(&path).unwrap().replace(from, to);
        fs::write(&path, config).unwrap();
    }

    async fn get(&self, api: &str, path: &str) -> (u16, Value) {
        let request = self.client.get(format!("{api}{path}")).bearer_auth(&self.deployment.key).timeout(LANDING_TIME);
        let answer = request.send().await.unwrap();
        let status = answer.status().as_u16();
        (status, serde_json::from_str(&answer.text().await.unwrap()).unwrap())
    }

    async fn alices_account(&self) -> String {
        let (status, accounts) = self.get(&self.deployment.api, "/v2/accounts").await;
        assert_eq!(status, 200, "{accounts}");
        let (of, alice) = (accounts["accounts"].as_array().unwrap(), self.ground.alice());
        let account = of.iter().find(|account| account["addresses"][0]["address"] == alice.as_str());
        account.unwrap()["id"].as_str().unwrap().to_owned()
    }

    /// Lets the service live while requests come, until one more is CONFIRMED; how long it lives at most from now on.
    async fn until_one_more_is_confirmed(&mut self) -> Duration {
        let (service, begun) = (Service::start(self.folder()), Instant::now());
        loop {
            self.step().await;
            let confirmed = self.listed().iter().any(|transfer| transfer["status"] == "CONFIRMED");
            if confirmed {
                break;
            }
            assert!(begun.elapsed() < STANDSTILL_MAX, "{}", service.log());
        }
        service.kill();
        begun.elapsed().min(LIFE_MAX)
    }

    /// One life of the service, which ends at a random moment; sometimes the signer's, too.
    async fn live(&mut self, longest: Duration) {
        let service = Service::start(self.folder());
        let until = Instant::now() + self.rng.random_range(Duration::from_millis(20)..longest);
        while Instant::now() < until {
            self.step().await;
            let pause = self.rng.random_range(5..80);
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
        service.kill();
        self.count("kills");
        if self.rng.random_bool(0.2) {
            self.deployment.signer.take().unwrap().kill();
            self.deployment.signer = Some(Service::start_signer(self.folder()));
            self.count("kills of the signer");
        }
    }

    async fn step(&mut self) {
        let api = self.deployment.api.clone();
        match self.rng.random_range(0..100) {
            0..15 if self.asked < ASKED_MAX => {
                self.asked += 1;
                self.ask(&api, self.asked).await;
            }
            15..25 if self.asked > 0 => {
                let again = self.rng.random_range(1..=self.asked);
                self.ask(&api, again).await;
            }
            25..85 => self.ground.mine().await,
            _ => {
                let what = self.ground.disturb(&mut self.rng).await;
                self.count(what);
            }
        }
    }

    /// Asks for a transfer; whether it is on record then. The same request is the same transfer, whoever answers.
    async fn ask(&mut self, api: &str, nth: u32) -> bool {
        let body = json!({
            "request_id": format!("00000000-0000-4000-8000-{nth:012}"),
            "account_id": self.account,
            "currency_symbol": G::SYMBOL,
            "amount": to_decimal(U256::from(nth), DECIMALS),
            "address_destination": { "address": self.ground.bob(), "chain": G::CHAIN },
        });
        let request = self.client.post(format!("{api}/v2/crypto/transfers")).bearer_auth(&self.deployment.key);
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
        lines(&self.ok(&["transfer", "list", "--json"]))
    }

    /// A copy of the store, of which no process is there.
    async fn copied_store(&self, name: &str) -> String {
        let folder = self.folder();
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
        self.folder().join("keys/journal")
    }

    /// From now on the service uses another store.
    fn set_back(&mut self, store: &str) {
        let config = fs::read_to_string(self.folder().join("landfall.toml")).unwrap();
        let url = config.lines().find(|line| line.starts_with("url = ")).unwrap();
        self.replace_in_config(url, &format!("url = \"{store}\""));
        self.set_back_at = Some(self.ground.receiver().log().len());
    }

    fn set_journal_back(&mut self, journal: &[u8]) {
        self.deployment.signer.take().unwrap().kill();
        fs::write(self.journal(), journal).unwrap();
        self.deployment.signer = Some(Service::start_signer(self.folder()));
    }

    /// Another deployment on a copy of the store, with the same signer; both are asked for a while.
    async fn copy_beside(&mut self) -> Copy {
        let folder = tempfile::tempdir().unwrap();
        let ours = self.folder().to_owned();
        let store = self.copied_store("copy.db").await;
        let store = match store.strip_prefix("sqlite:") {
            Some(file) => format!("sqlite:{}", ours.join(file).display()),
            None => store,
        };
        let port = free_port();
        let config = fs::read_to_string(ours.join("landfall.toml")).unwrap();
        let url = config.lines().find(|line| line.starts_with("url = ")).unwrap();
        let socket = ours.join("signer.sock");
        let listen = self.deployment.api.trim_start_matches("http://");
        let config = config
            .replace(url, &format!("url = \"{store}\""))
            .replace("unix:signer.sock", &format!("unix:{}", socket.display()))
            .replace(listen, &format!("127.0.0.1:{port}"));
        fs::write(folder.path().join("landfall.toml"), config).unwrap();
        let api = format!("http://127.0.0.1:{port}");
        let original = Service::start(self.folder());
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

    /// All faults end, everything is asked for once more, and the chain's time goes beyond every deadline.
    async fn come_to_rest(&mut self, copy: Option<&mut Copy>, disaster: Option<Disaster>) {
        self.ground.behave();
        self.deployment.service = Some(Service::start(self.folder()));
        let mut apis = vec![self.deployment.api.clone()];
        if let Some(copy) = copy {
            copy.service = Some(Service::start(copy.folder.path()));
            apis.push(copy.api.clone());
        }
        let (begun, mut unasked) = (Instant::now(), Vec::new());
        unasked.extend(apis.iter().flat_map(|api| (1..=self.asked).map(move |nth| (api.clone(), nth))));
        while let Some((api, nth)) = unasked.pop() {
            if !self.ask(&api, nth).await {
                unasked.push((api, nth));
                self.ground.mine().await;
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            assert!(begun.elapsed() < STANDSTILL_MAX, "{nth} is not taken: {}", self.log());
        }
        // What was handed over lands first: it is given up only when its window is over by our own clock, too.
        let begun = Instant::now();
        while begun.elapsed() < LANDING_TIME
            && self.everywhere(&apis).await.iter().any(|transfer| transfer["status"] == "SUBMITTED")
        {
            self.ground.mine().await;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        if disaster.is_some() {
            // A signer whose journal lost entries signs nothing before a person says so.
            self.ok(&["signer", "adopt", "--reason", "a test"]);
        }
        self.ground.leap().await;
        let (mut moved, mut least, mut leaps) = (Instant::now(), usize::MAX, 1);
        loop {
            self.ground.mine().await;
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
                self.ground.leap().await;
                leaps += 1;
            }
            assert!(moved.elapsed() < STANDSTILL_MAX, "{open} have not ended: {}", self.log());
        }
    }

    /// Each transfer as each deployment reports it.
    async fn everywhere(&self, apis: &[String]) -> Vec<Value> {
        let mut all = Vec::new();
        for api in apis {
            for id in self.ids.values() {
                let (status, transfer) = self.get(api, &format!("/v2/crypto/transfers/{id}")).await;
                assert_eq!(status, 200, "{transfer}");
                all.push(transfer);
            }
        }
        all
    }

    async fn assert_paid_once(&mut self, had: U256, copy: Option<&Copy>, disaster: Option<Disaster>) {
        let paid = self.ground.paid().await;
        assert!(paid.values().all(|times| *times == 1), "paid twice: {paid:?}");
        let apis: Vec<String> =
            [Some(&self.deployment.api), copy.map(|copy| &copy.api)].into_iter().flatten().cloned().collect();
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
        assert_eq!(self.ground.bobs().await, sum, "the chain's own books");
        self.until_available(&to_decimal(U256::from(FUNDS - sum), DECIMALS)).await;
        self.assert_announced(&ends).await;
        self.assert_in_order(copy, &ends).await;
        self.assert_ledger(had - self.ground.sponsors_have().await, disaster);
        for incident in lines(&self.ok(&["incident", "list", "--json"])) {
            // Where the journal is gone too, nothing says any more that we sent what a sponsor has sent.
            let is_expected = incident["kind"] == "store_behind"
                || matches!(disaster, Some(Disaster::BothSetBack)) && incident["kind"] == "foreign_spend";
            assert!(is_expected, "{disaster:?}: {incident}");
        }
    }

    /// Waits until alice may spend so much.
    async fn until_available(&self, amount: &str) {
        let path = format!("/v2/accounts/{}/balances?symbol={}", self.account, G::SYMBOL);
        let begun = Instant::now();
        loop {
            let (status, balances) = self.get(&self.deployment.api, &path).await;
            if status == 200 && balances["balances"][0]["available"] == amount {
                return;
            }
            assert!(begun.elapsed() < STANDSTILL_MAX, "{balances}\n{}", self.log());
            self.ground.mine().await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// What clients were sent of each transfer ends as it ended.
    async fn assert_announced(&self, ends: &BTreeMap<String, &str>) {
        let begun = Instant::now();
        loop {
            let mut announced: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
            for received in self.ground.receiver().log() {
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
            assert!(begun.elapsed() < STANDSTILL_MAX, "not all that ended is announced: {}", self.log());
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// What the feed of a deployment has of alice's account.
    async fn fed(&self, api: &str) -> Events {
        let (mut fed, mut after) = (Vec::new(), 0);
        loop {
            let path = format!("/v2/events?after={after}&account_id={}&limit={PAGE_EVENTS}", self.account);
            let (status, page) = self.get(api, &path).await;
            assert_eq!(status, 200, "{page}");
            let events = page["events"].as_array().unwrap();
            fed.extend(events.iter().map(|entry| entry["event"].clone()));
            after = page["next"].as_u64().unwrap();
            if events.len() < PAGE_EVENTS {
                return by_transfer(fed.iter().map(|event| (event["id"].as_str().unwrap(), &event["data"])));
            }
        }
    }

    /// The feeds of these deployments, once each has the end of each transfer and nothing is pending at the receiver.
    async fn until_delivered(&self, deployments: &[(&str, &Path)], ends: &BTreeMap<String, &str>) -> Vec<Events> {
        let begun = Instant::now();
        loop {
            let (mut feeds, mut pending) = (Vec::new(), String::new());
            for (api, folder) in deployments {
                feeds.push(self.fed(api).await);
                pending.push_str(&ok(folder, &["event", "list", "--pending", "--json"]));
            }
            let is_open = |feed: &Events, id: &str| of(feed, id).last().is_none_or(|(_, last)| !is_end(last));
            let open = ends.keys().find(|id| feeds.iter().any(|feed| is_open(feed, id)));
            if open.is_none() && pending.is_empty() {
                return feeds;
            }
            assert!(begun.elapsed() < STANDSTILL_MAX, "no end of {open:?}; pending: {pending}{}", self.log());
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// The receiver got each event of each feed at least once, and those of a transfer in their order.
    async fn assert_in_order(&self, copy: Option<&Copy>, ends: &BTreeMap<String, &str>) {
        let mut deployments = vec![(self.deployment.api.as_str(), self.folder())];
        deployments.extend(copy.map(|copy| (copy.api.as_str(), copy.folder.path())));
        let feeds = self.until_delivered(&deployments, ends).await;
        let log = self.ground.receiver().log();
        let (lost, kept) = log.split_at(self.set_back_at.unwrap_or(0));
        let [all, lost, kept] = [&log[..], lost, kept].map(arrived);
        for (id, end) in ends {
            for fed in feeds.iter().map(|feed| of(feed, id)) {
                assert_valid(id, fed);
                let is_confirmed = fed.last().is_some_and(|(_, last)| last == "CONFIRMED");
                assert_eq!(is_confirmed, *end == "CONFIRMED", "{id} is {end}: {fed:?}");
                assert!(is_within(fed, of(&all, id)), "{id}: {fed:?} came as {:?}", of(&all, id));
            }
            let [feed] = &feeds[..] else {
                // Which of them sent an event is not known. Neither sends what it has not.
                let strange = of(&all, id).iter().find(|event| !feeds.iter().any(|feed| of(feed, id).contains(event)));
                assert_eq!(strange, None, "{id}: no feed has it");
                continue;
            };
            assert_valid(id, &without_repeats(of(&lost, id)));
            // Of the store of now all that it has, but for what had arrived before it was saved.
            let came = of(&kept, id);
            let is_the_rest = |came: &[Event]| of(feed, id).ends_with(&without_repeats(came));
            // One may have been under way when its process was killed.
            let late = usize::from(self.set_back_at.is_some() && !came.is_empty());
            assert!(is_the_rest(came) || is_the_rest(&came[late..]), "{id}: {:?} came as {came:?}", of(feed, id));
        }
    }

    /// What left the sponsors is booked to the base unit, or locked in guards on record, also what a copy sent and what a lost
    /// store had sent. Where the journal is gone too, nothing says that this was ours.
    fn assert_ledger(&self, left: U256, disaster: Option<Disaster>) {
        let costs = lines(&self.ok(&["gas", "ledger", "--json"]));
        let amount = |entry: &Value| from_decimal(entry["amount"].as_str().unwrap(), G::NATIVE_DECIMALS).unwrap();
        let booked: U256 = costs.iter().filter(|entry| entry["kind"] == "COST").map(amount).sum();
        let sponsors = lines(&self.ok(&["sponsor", "list", "--json"]));
        let locked: u64 = sponsors.iter().map(|sponsor| sponsor["locked_lamports"].as_u64().unwrap()).sum();
        println!("{disaster:?}: {left} base units left, {booked} are booked, {locked} locked");
        let known = booked + U256::from(locked);
        assert!(known <= left, "{disaster:?}: {booked} base units are booked and {locked} locked, {left} left");
        if !matches!(disaster, Some(Disaster::BothSetBack)) {
            assert_eq!(known, left);
        }
    }
}

fn is_open(transfer: &Value) -> bool {
    !is_end(transfer["status"].as_str().unwrap())
}

fn is_end(name: &str) -> bool {
    ["CONFIRMED", "FAILED", "DROPPED"].contains(&name)
}

/// Events by what they are of: each with its id and its data. INCLUDED and DISPLACED are no statuses.
fn by_transfer<'e>(events: impl Iterator<Item = (&'e str, &'e Value)>) -> Events {
    let mut of = Events::new();
    for (id, data) in events {
        let announced = data["stage"].as_str().or(data["status"].as_str()).unwrap_or_default();
        let transfer = data["id"].as_str().unwrap_or_default();
        of.entry(transfer.to_owned()).or_default().push((id.to_owned(), announced.to_owned()));
    }
    of
}

fn arrived(log: &[Received]) -> Events {
    by_transfer(log.iter().map(|received| (received.id.as_str(), &received.data)))
}

fn of<'e>(events: &'e Events, transfer: &str) -> &'e [Event] {
    events.get(transfer).map(Vec::as_slice).unwrap_or_default()
}

/// Each where it arrived first.
fn without_repeats(events: &[Event]) -> Vec<Event> {
    let mut first: Vec<Event> = Vec::new();
    for event in events {
        if !first.contains(event) {
            first.push(event.clone());
        }
    }
    first
}

/// Whether `arrived` has all of these in their order, whatever comes in between.
fn is_within(events: &[Event], arrived: &[Event]) -> bool {
    let mut arrived = arrived.iter();
    events.iter().all(|event| arrived.any(|it| it == event))
}

/// Asserts that these may be the first events of a transfer: each follows from the one before, and has its own id.
fn assert_valid(transfer: &str, events: &[Event]) {
    let (id, mut before) = (transfer.parse::<TransferId>().unwrap(), "");
    for (position, (event, name)) in events.iter().enumerate() {
        let follows = matches!(
            (before, name.as_str()),
            ("", "SUBMITTED" | "FAILED" | "DROPPED")
                | ("SUBMITTED" | "DISPLACED", "INCLUDED" | "FAILED" | "DROPPED")
                | ("INCLUDED", "DISPLACED" | "CONFIRMED")
        );
        assert!(follows, "{transfer}: {name} behind {before:?}: {events:?}");
        let nth = events[..position].iter().filter(|(_, earlier)| earlier == name).count();
        let announcement = ANNOUNCEMENTS.into_iter().find(|it| it.name() == name.as_str()).unwrap();
        let own = EventId::of_transfer(id, announcement, u32::try_from(nth).unwrap()).to_string();
        assert_eq!(*event, own, "{transfer}: {name} for the {nth}th time: {events:?}");
        before = name;
    }
}

/// The result of a command that must succeed there.
fn ok(folder: &Path, arguments: &[&str]) -> String {
    let output = program(folder).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
