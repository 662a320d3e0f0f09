//! A service that sends on a chain of its own, accounts that pay, and callers who ask for transfers.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use landfall::time::Clock;
use landfall_chain::{Address, Chain};
use landfall_signer::Passphrase;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::caller::Caller;
use crate::{process, signing};

pub(crate) const SPONSORS: usize = 16;
/// How many requests ask at the same time when as many as can be are to be paid.
pub(crate) const CALLERS: usize = 8;
pub(crate) const STANDSTILL_MAX: Duration = Duration::from_secs(300);

/// What each transfer is.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) chain: Chain,
    pub(crate) symbol: &'static str,
    /// A decimal.
    pub(crate) amount: String,
    pub(crate) to: Address,
}

/// A service on a chain of which `N` is the node.
pub(crate) struct Bench<N> {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) node: N,
    service: Service,
    pub(crate) api: SocketAddr,
    pub(crate) key: String,
    /// Of each caller, an account that pays.
    pub(crate) accounts: Vec<String>,
    order: Order,
    /// So many transfers were asked for.
    asked: u64,
}

/// Who needs money: the addresses of sponsors, and those that accounts pay from.
pub(crate) struct Poor {
    pub(crate) sponsors: Vec<Address>,
    pub(crate) payers: Vec<Address>,
}

impl<N> Bench<N> {
    /// Starts it over `node`; `section` is what its configuration has of the chain, and `native` what gas is paid in.
    pub(crate) async fn over(
        (folder, node): (tempfile::TempDir, N),
        url: &str,
        (section, native): (&str, &str),
        order: Order,
    ) -> anyhow::Result<(Self, Poor)> {
        let (api, chain) = (free_address()?, order.chain.name());
        let config = format!(
            "[store]\nurl = \"{url}\"\n[api]\nlisten = \"{api}\"\nenvironment = \"test\"\nip_requests_per_sec = 0\n\
             key_requests_per_sec = 0\n[admin]\nlisten = \"127.0.0.1:0\"\n[transfers]\nsigner = \"keystore:keys\"\n\
             passphrase_file = \"passphrase\"\n[chains.{chain}]\n{section}"
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
        ok(&["sponsor", "add", "--chain", chain, "--count", &count, "--reason", "a benchmark"])?;
        ok(&["gas", "price", "set", native, "3000", "--reason", "a benchmark"])?;
        // The service derives their addresses.
        while ok(&["sponsor", "list", "--json"])?.contains("null") {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let family = order.chain.family();
        let read = |address: &Value| {
            let address = address.as_str().with_context(|| format!("a derived address, and not {address}"))?;
            Address::parse(family, address).with_context(|| format!("an address, and not {address}"))
        };
        let mut poor = Poor { sponsors: Vec::new(), payers: Vec::new() };
        for line in ok(&["sponsor", "list", "--json"])?.lines() {
            poor.sponsors.push(read(&serde_json::from_str::<Value>(line)?["address"])?);
        }
        let mut accounts = Vec::new();
        for nth in 0..CALLERS {
            let asked = json!({ "request_id": format!("payer-{nth}"), "identity_id": "house", "type": "SEGREGATED" });
            let (status, opened) = caller.post("/v2/accounts", &asked).await?;
            anyhow::ensure!(status == 201, "{opened}");
            accounts.push(opened["id"].as_str().context("an account")?.to_owned());
            poor.payers.push(read(&opened["addresses"][0]["address"])?);
        }
        Ok((Bench { folder, node, service, api, key, accounts, order, asked: 0 }, poor))
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
            let (account, order) = (self.accounts[usize::try_from(lane)?].clone(), self.order.clone());
            asking.spawn(async move {
                let mut times = Vec::new();
                for nth in (0..count).skip(usize::try_from(lane)?).step_by(CALLERS) {
                    if let Some(a_second) = a_second {
                        let due = begun + Duration::from_secs_f64(float(nth)? / f64::from(a_second));
                        tokio::time::sleep_until(due.into()).await;
                    }
                    times.push(ask(&mut caller, &account, &order, first + nth).await?);
                }
                anyhow::Ok(times)
            });
        }
        let times = asking.join_all().await.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
        Ok(times.into_iter().flatten().collect())
    }

    /// Waits until `paid` says that so many stand in blocks; how often it was asked.
    pub(crate) async fn until_paid(
        &self,
        count: u64,
        paid: impl AsyncFn() -> anyhow::Result<u64>,
    ) -> anyhow::Result<u64> {
        let (begun, mut polls) = (Instant::now(), 1);
        while paid().await? < count {
            anyhow::ensure!(begun.elapsed() < STANDSTILL_MAX, "not all is paid: {}", self.log());
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
    pub(crate) async fn until_submitted(&self, count: u64) -> anyhow::Result<Vec<Duration>> {
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

    /// What service and signer used of the processors.
    pub(crate) fn cpu(&self) -> anyhow::Result<Duration> {
        process::cpu_of(self.service.0.id())
    }

    fn log(&self) -> String {
        self.service.log(self.folder.path())
    }
}

/// Asks for one transfer until it is accepted; how long that answer took.
async fn ask(caller: &mut Caller, account: &str, order: &Order, nth: u64) -> anyhow::Result<Duration> {
    let asked = json!({
        "request_id": format!("00000000-0000-4000-8000-{nth:012}"),
        "account_id": account,
        "currency_symbol": order.symbol,
        "amount": order.amount,
        "address_destination": { "address": order.to.to_string(), "chain": order.chain.name() },
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

pub(crate) fn float(count: u64) -> anyhow::Result<f64> {
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
