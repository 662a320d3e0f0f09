//! Payments of USDC from `POST /v2/crypto/transfers` to CONFIRMED, by the real program on a real anvil with a block each
//! second: how many a second when as many as can be are asked for, and when a signature leaves when 50 a second are. Beside
//! them what anvil itself takes, and what the program asks it for. On SQLite, and on PostgreSQL where
//! `LANDFALL_TEST_POSTGRES` names a server.
//!
//! Service, signer, anvil, database and callers share the processors of one machine.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use landfall::amount::to_decimal;
use landfall::sandbox::anvil::{Anvil, AnvilOptions, TxRequest};
use landfall::sandbox::token;
use landfall::time::Clock;
use landfall_chain::{Address, Family, U256};
use landfall_signer::Passphrase;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::caller::{Caller, quantiles};
use crate::database::Place;
use crate::{LOGGED, Size, network, process, ratio, signing, token as listed_token};

const CHAIN: &str = "ETHEREUM_TESTNET";
const CHAIN_ID: u64 = 11_155_111;
const SPONSORS: u32 = 16;
/// How many requests ask at the same time when as many as can be are to be paid.
const CALLERS: usize = 8;
/// So many a second are asked for when the time to the first signature counts.
const PACE: u32 = 50;
/// How long the chain is watched while nothing is sent.
const IDLE: Duration = Duration::from_secs(10);
const STANDSTILL_MAX: Duration = Duration::from_secs(300);
/// Every payment pays one base unit of a token with 6 decimals.
const DECIMALS: u8 = 6;
const ONE: u64 = 1;
/// What each sponsor owns: 1,000 ether, in wei.
const SPONSOR_OWNS: &str = "0x3635c9adc5dea00000";

pub(crate) async fn measure(size: Size) -> anyhow::Result<()> {
    let raw = raw(size).await?;
    println!("anvil alone takes {raw:.0} token transfers a second, of which it signs each");
    for place in Place::all() {
        place.with(async |url| on(url, place.engine(), raw, size).await).await?;
    }
    Ok(())
}

/// How many transfers of the token anvil takes in a second, from accounts that it signs for.
async fn raw(size: Size) -> anyhow::Result<f64> {
    let folder = tempfile::tempdir()?;
    let (node, token) = chain(folder.path()).await?;
    let (payers, count) = (node.accounts().await?, size.pick(20, 400, 1_000));
    for payer in &payers {
        let data = token::mint(payer, U256::from(1_000_000));
        node.send(&TxRequest { from: *payer, nonce: 0, to: token, value: U256::ZERO, data }).await?;
    }
    node.mine(1).await?;
    let begun = Instant::now();
    let sending = payers.iter().map(async |payer| {
        for nonce in 1..=count {
            let data = token::transfer(&bob()?, U256::from(ONE));
            node.send(&TxRequest { from: *payer, nonce, to: token, value: U256::ZERO, data }).await?;
        }
        anyhow::Ok(())
    });
    futures_util::future::try_join_all(sending).await?;
    node.mine(1).await?;
    let paid = u64::try_from(payers.len())? * count;
    while node.balance_of(&token, &bob()?).await? < U256::from(paid * ONE) {
        node.mine(1).await?;
    }
    Ok(float(paid)? / begun.elapsed().as_secs_f64())
}

async fn on(url: &str, engine: &str, raw: f64, size: Size) -> anyhow::Result<()> {
    let mut bench = Bench::new(url).await?;
    bench.node.mine_every(1).await?;
    let before = bench.used()?;
    tokio::time::sleep(size.pick(IDLE / 5, IDLE, IDLE)).await;
    let idle = bench.used()?.less(&before);

    let (count, before, begun) = (size.pick(40, 3_000, 20_000), bench.used()?, Instant::now());
    let times = bench.ask_for(count, None).await?;
    let (accepted, polls) = (begun.elapsed(), bench.until_paid(count).await?);
    let took = begun.elapsed();
    bench.until_confirmed().await?;
    let mut used = bench.used()?.less(&before);
    // Not the service asked for these.
    used.by_method.entry("eth_call".to_owned()).and_modify(|calls| *calls -= polls);
    let a_second = float(count)? / took.as_secs_f64();
    println!("{engine}: {count} transfers, {SPONSORS} sponsors, {CALLERS} callers with an account each");
    println!("  paid a second: {a_second:.0} (goal >= 100), {:.2} of what anvil takes alone", ratio(a_second, raw));
    println!("  accepted a second: {:.0} (no goal)", float(count)? / accepted.as_secs_f64());
    let (p50, p99) = quantiles(times);
    println!("  POST, {CALLERS} at a time: p50 {p50:.1} ms, p99 {p99:.1} ms (no goal)");
    let per = (used.calls() - idle.calls() / float(idle.blocks)? * float(used.blocks)?) / float(count)?;
    println!("  calls of the node for each transfer: {per:.2} (goal <= 4)");
    for (method, calls) in &used.by_method {
        let of_block = ratio(float(*idle.by_method.get(method).unwrap_or(&0))?, float(idle.blocks)?);
        let each = ratio(float(*calls)?, float(count)?);
        println!("    {method}: {each:.2} for each, {of_block:.2} in each block where nothing is sent");
    }
    let millis = used.cpu.as_secs_f64() * 1_000.0 / float(count)?;
    println!("  processor time of service and signer for each transfer: {millis:.1} ms (no goal)");

    let paced = size.pick(50, 1_000, 6_000);
    let times = bench.ask_for(paced, Some(PACE)).await?;
    bench.until_confirmed().await?;
    let (p50, p99) = quantiles(times);
    println!("  POST at {PACE} a second: p50 {p50:.1} ms, p99 {p99:.1} ms (goal < 30)");
    let (p50, p99) = quantiles(bench.until_submitted(paced).await?);
    println!("  from acceptance to SUBMITTED at {PACE} a second: p50 {p50:.0} ms, p99 {p99:.0} ms (goal < 1000)");
    Ok(())
}

/// What the node was asked for, how many blocks it has, and what the service used.
struct Used {
    by_method: BTreeMap<String, u64>,
    blocks: u64,
    cpu: Duration,
}

impl Used {
    fn less(&self, before: &Used) -> Used {
        let less = |(method, calls): (&String, &u64)| {
            let calls = calls - before.by_method.get(method).copied().unwrap_or(0);
            (calls > 0).then(|| (method.clone(), calls))
        };
        let by_method = self.by_method.iter().filter_map(less).collect();
        Used { by_method, blocks: self.blocks - before.blocks, cpu: self.cpu - before.cpu }
    }

    fn calls(&self) -> f64 {
        self.by_method.values().map(|calls| u32::try_from(*calls).map_or(f64::INFINITY, f64::from)).sum()
    }
}

/// A service that sends, its chain, and payers with money.
pub(crate) struct Bench {
    folder: tempfile::TempDir,
    pub(crate) node: Anvil,
    token: Address,
    service: Service,
    pub(crate) api: SocketAddr,
    pub(crate) key: String,
    /// Of each caller, an account that pays.
    pub(crate) accounts: Vec<String>,
    /// So many transfers were asked for.
    asked: u64,
}

impl Bench {
    pub(crate) async fn new(url: &str) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let (node, token) = chain(folder.path()).await?;
        let api = free_address()?;
        let config = format!(
            "[store]\nurl = \"{url}\"\n[api]\nlisten = \"{api}\"\nenvironment = \"test\"\nip_requests_per_sec = 0\n\
             key_requests_per_sec = 0\n[admin]\nlisten = \"127.0.0.1:0\"\n[transfers]\nsigner = \"keystore:keys\"\n\
             passphrase_file = \"passphrase\"\n[chains.{CHAIN}]\nrpc = [\"{}\"]\nstart = 0\nfinality = \"finalized\"\n",
            node.url()
        );
        fs::write(folder.path().join("landfall.toml"), config)?;
        let path = folder.path().join("passphrase");
        fs::write(&path, "of the benchmark")?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        let now = u64::try_from(Clock::system().now().0 / 1_000_000)?;
        signing::make_keystore(&folder.path().join("keys"), &Passphrase::from_file(&path)?, now)?;
        let ok = |arguments: &[&str]| ok(folder.path(), arguments);
        let key =
            ok(&["key", "create", "--name", "bench", "--scope", "admin", "--scope", "transfers"])?.trim().to_owned();
        ok(&["identity", "add", "--identity", "house", "--type", "BUSINESS"])?;
        let service = Service::start(folder.path())?;
        let mut caller = loop {
            match Caller::new(api, &key).await {
                Ok(caller) => break caller,
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        };
        let count = SPONSORS.to_string();
        ok(&["sponsor", "add", "--chain", CHAIN, "--count", &count, "--reason", "a benchmark"])?;
        ok(&["gas", "price", "set", "ETH", "3000", "--reason", "a benchmark"])?;
        // The service derives their addresses.
        while ok(&["sponsor", "list", "--json"])?.contains("null") {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        for line in ok(&["sponsor", "list", "--json"])?.lines() {
            let sponsor: Value = serde_json::from_str(line)?;
            node.rpc("anvil_setBalance", json!([sponsor["address"], SPONSOR_OWNS])).await?;
        }
        let (funder, mut accounts) = (node.accounts().await?[0], Vec::new());
        for nth in 0..CALLERS {
            let asked = json!({ "request_id": format!("payer-{nth}"), "identity_id": "house", "type": "SEGREGATED" });
            let (status, opened) = caller.post("/v2/accounts", &asked).await?;
            anyhow::ensure!(status == 201, "{opened}");
            accounts.push(opened["id"].as_str().context("an account")?.to_owned());
            let payer = opened["addresses"][0]["address"].as_str().context("a derived address")?;
            let payer = Address::parse(Family::Evm, payer).context("an address")?;
            let data = token::mint(&payer, U256::from(1_000_000_000_000_u64));
            let nonce = u64::try_from(nth)?;
            node.send(&TxRequest { from: funder, nonce, to: token, value: U256::ZERO, data }).await?;
        }
        node.mine(3).await?;
        Ok(Bench { folder, node, token, service, api, key, accounts, asked: 0 })
    }

    /// Ends the service.
    pub(crate) fn stop(&mut self) {
        self.service.stop();
    }

    /// Starts the service again.
    pub(crate) async fn start(&mut self) -> anyhow::Result<()> {
        self.service = Service::start(self.folder.path())?;
        let begun = Instant::now();
        while Caller::new(self.api, &self.key).await.is_err() {
            anyhow::ensure!(begun.elapsed() < STANDSTILL_MAX, "{}", self.service.log(self.folder.path()));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Asks for so many transfers: as fast as [`CALLERS`] can, or so many a second. How long each took to be accepted.
    pub(crate) async fn ask_for(&mut self, count: u64, a_second: Option<u32>) -> anyhow::Result<Vec<Duration>> {
        let (first, begun, mut asking) = (self.asked + 1, Instant::now(), JoinSet::new());
        self.asked += count;
        for lane in 0..u64::try_from(CALLERS)? {
            let mut caller = Caller::new(self.api, &self.key).await?;
            let account = self.accounts[usize::try_from(lane)?].clone();
            asking.spawn(async move {
                let mut times = Vec::new();
                for nth in (0..count).skip(usize::try_from(lane)?).step_by(CALLERS) {
                    if let Some(a_second) = a_second {
                        let due = begun + Duration::from_secs_f64(float(nth)? / f64::from(a_second));
                        tokio::time::sleep_until(due.into()).await;
                    }
                    times.push(ask(&mut caller, &account, first + nth).await?);
                }
                anyhow::Ok(times)
            });
        }
        let times = asking.join_all().await.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
        Ok(times.into_iter().flatten().collect())
    }

    /// Waits until each of the first `count` stands in a block; how often the node was asked for that.
    async fn until_paid(&self, count: u64) -> anyhow::Result<u64> {
        let (begun, mut polls) = (Instant::now(), 1);
        while self.node.balance_of(&self.token, &bob()?).await? < U256::from(count * ONE) {
            anyhow::ensure!(
                begun.elapsed() < STANDSTILL_MAX,
                "not all is paid: {}",
                self.service.log(self.folder.path())
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
            polls += 1;
        }
        Ok(polls)
    }

    /// Waits until nothing is under way.
    pub(crate) async fn until_confirmed(&self) -> anyhow::Result<()> {
        let (mut caller, begun) = (Caller::new(self.api, &self.key).await?, Instant::now());
        for status in ["ACCEPTED", "SUBMITTED"] {
            loop {
                let page = caller.get(&format!("/v2/crypto/transfers?status={status}&limit=1")).await?;
                let page: Value = serde_json::from_slice(&page)?;
                if page["transfers"].as_array().is_some_and(Vec::is_empty) {
                    break;
                }
                anyhow::ensure!(begun.elapsed() < STANDSTILL_MAX, "{}", self.service.log(self.folder.path()));
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        Ok(())
    }

    /// Of the newest transfers, which are CONFIRMED, the time from acceptance to SUBMITTED.
    async fn until_submitted(&self, count: u64) -> anyhow::Result<Vec<Duration>> {
        let (mut caller, mut times, mut cursor) = (Caller::new(self.api, &self.key).await?, Vec::new(), String::new());
        while times.len() < usize::try_from(count)? {
            let page = caller.get(&format!("/v2/crypto/transfers?limit=100{cursor}")).await?;
            let page: Value = serde_json::from_slice(&page)?;
            for transfer in page["transfers"].as_array().context("transfers")? {
                anyhow::ensure!(transfer["status"] == "CONFIRMED", "{transfer}");
                let at = |field: &str| {
                    let text = transfer[field].as_str().with_context(|| format!("{field} of {transfer}"))?;
                    Ok::<_, anyhow::Error>(chrono::DateTime::parse_from_rfc3339(text)?)
                };
                times.push((at("submitted_at")? - at("created_at")?).to_std()?);
            }
            let Some(next) = page["cursor"].as_str() else { break };
            cursor = format!("&cursor={next}");
        }
        times.truncate(usize::try_from(count)?);
        Ok(times)
    }

    fn used(&self) -> anyhow::Result<Used> {
        // Anvil writes down each method that it is asked for, and each block.
        let log = fs::read_to_string(self.folder.path().join("anvil.log"))?;
        let mut by_method = BTreeMap::new();
        for line in log.lines() {
            let is_method = |prefix| line.starts_with(prefix) && !line.contains(' ');
            if ["eth_", "debug_", "net_", "web3_", "trace_"].into_iter().any(is_method) {
                *by_method.entry(line.to_owned()).or_default() += 1;
            }
        }
        let blocks = u64::try_from(log.matches("Block Number:").count())?;
        Ok(Used { by_method, blocks, cpu: process::cpu_of(self.service.0.id())? })
    }
}

/// Asks for one transfer until it is accepted; how long that answer took.
async fn ask(caller: &mut Caller, account: &str, nth: u64) -> anyhow::Result<Duration> {
    let asked = json!({
        "request_id": format!("00000000-0000-4000-8000-{nth:012}"),
        "account_id": account,
        "currency_symbol": "USDC",
        "amount": to_decimal(U256::from(ONE), DECIMALS),
        "address_destination": { "address": bob()?.to_string(), "chain": CHAIN },
    });
    let first = Instant::now();
    loop {
        let begun = Instant::now();
        let (status, answer) = caller.post("/v2/crypto/transfers", &asked).await?;
        match status {
            201 => return Ok(begun.elapsed()),
            // What she has is not known for a moment, or not yet all that came.
            503 | 422 if first.elapsed() < STANDSTILL_MAX => tokio::time::sleep(Duration::from_millis(50)).await,
            _ => anyhow::bail!("{status} {answer}"),
        }
    }
}

/// A chain with the listed tokens.
async fn chain(folder: &Path) -> anyhow::Result<(Anvil, Address)> {
    #[expect(clippy::disallowed_methods, reason = "the benchmark's own setting: the node that tests use")]
    let binary = std::env::var("LANDFALL_ANVIL").map_or_else(|_| PathBuf::from("anvil"), PathBuf::from);
    let log = folder.join("anvil.log");
    let node = Anvil::start(&AnvilOptions { binary, chain_id: CHAIN_ID, op_stack: false, log, keep: false }).await?;
    let network = network(LOGGED)?;
    node.place_tokens(&network).await?;
    Ok((node, Address::Evm(listed_token(&network)?.into())))
}

fn bob() -> anyhow::Result<Address> {
    Address::parse(Family::Evm, "0xb0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0").context("an address")
}

fn float(count: u64) -> anyhow::Result<f64> {
    Ok(f64::from(u32::try_from(count)?))
}

fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

fn program(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_landfall"));
    command.current_dir(folder).stdin(Stdio::null());
    command
}

fn ok(folder: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let output = program(folder).args(arguments).output()?;
    anyhow::ensure!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

/// `landfall run`, until it is dropped.
struct Service(Child);

impl Service {
    fn start(folder: &Path) -> anyhow::Result<Self> {
        let log = fs::File::create(folder.join("landfall.log"))?;
        Ok(Service(program(folder).arg("run").stdout(Stdio::null()).stderr(log).spawn()?))
    }

    fn stop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    /// The end of what it wrote.
    fn log(&self, folder: &Path) -> String {
        let log = fs::read_to_string(folder.join("landfall.log")).unwrap_or_default();
        let last: Vec<&str> = log.lines().rev().take(20).collect();
        format!("process {}: {}", self.0.id(), last.into_iter().rev().collect::<Vec<_>>().join("\n"))
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stop();
    }
}
