//! An answer of 200 MB, and the real process: it gives the answer up, says so, stays small, and goes on afterwards.
//!
//! The node does not say how long its answer will be, so only reading it shows that it is too long. What counts is the
//! most memory that the process ever held, as the kernel reports it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use landfall_node::{Chain, Fault, Server, Tx, When};
use serde_json::Value;

use crate::harness::follower::{Mode, network};

const HUGE: usize = 200_000_000;
/// The limit of the transport.
const READ_MAX_KIB: u64 = 128 << 10;
/// The chain is asked by a poll or a read, and beside them by the lane of traces.
const AT_ONCE: u64 = 2;
/// Buffers of the connection, and the tables of the allocator for the above.
const BESIDE_KIB: u64 = 24 << 10;
const ALICE: [u8; 20] = [0xa1; 20];
/// A slow machine reads no answer up to the limit before its call is over; it is asked for again and again.
const PATIENCE: Duration = Duration::from_secs(600);

#[tokio::test]
async fn an_answer_of_200_mb_is_given_up_on_in_bounded_memory_and_the_process_goes_on() {
    let chain = Chain::of(&network(Mode::Receipts), 1);
    let server = Server::start(chain.clone(), 1).await.unwrap();
    chain.mine(vec![Tx::pay(0, 0, ALICE.into(), 5)]);
    let folder = crate::harness::postgres::folder();
    let service = Service::start(folder.path(), &server.url());
    service.until("the first block is followed", || service.amounts().len() == 1).await;
    let before = service.peak_kib();

    server.misbehave(Fault::Huge(HUGE), When::Always);
    chain.mine(vec![Tx::pay(0, 1, ALICE.into(), 6)]);
    let is_reported = || server.struck(Fault::Huge(HUGE)) >= 3 && service.reason().contains("larger than 128 MiB");
    service.until("the size of the answer is told", is_reported).await;
    let during = service.peak_kib();
    assert_eq!(service.amounts().len(), 1, "nothing can have been read");

    server.behave();
    service.until("the second block is followed", || service.amounts().len() == 2).await;
    let (more, strikes) = (during - before, server.struck(Fault::Huge(HUGE)));
    println!("{strikes} answers of {HUGE} bytes: at most {before} KiB before them, {more} KiB more with them");
    assert!(more <= AT_ONCE * (READ_MAX_KIB + BESIDE_KIB), "{more} KiB more than {before} KiB");
}

/// A running `landfall run`; killed when dropped.
struct Service {
    child: Child,
    folder: PathBuf,
}

impl Service {
    fn start(folder: &Path, url: &str) -> Self {
        let config = format!(
            "[api]\nlisten = \"127.0.0.1:0\"\nenvironment = \"test\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
             [chains.ETHEREUM_TESTNET]\nrpc = [\"{url}\"]\nstart = 1\npoll_ms = 50\n\
             finality = \"finalized\"\n"
        );
        std::fs::write(folder.join("landfall.toml"), config).unwrap();
        let address = format!("ETHEREUM_TESTNET=0x{}", hex::encode(ALICE));
        run(folder, &["account", "add", "--account", "alice", "--type", "SEGREGATED", "--address", &address]);
        let mut command = program(folder);
        command.arg("run").stdout(Stdio::null()).stderr(Stdio::null());
        Service { child: command.spawn().unwrap(), folder: folder.to_owned() }
    }

    /// The amounts of all deposits.
    fn amounts(&self) -> Vec<String> {
        let deposits = run(&self.folder, &["deposit", "list", "--json"]);
        let amount = |line| serde_json::from_str::<Value>(line).unwrap()["amount"].to_string();
        deposits.lines().map(amount).collect()
    }

    /// What is known of the endpoint.
    fn reason(&self) -> String {
        let status: Value = serde_json::from_str(&run(&self.folder, &["status", "--json"])).unwrap();
        status["chains"][0]["endpoints"][0]["reason"].to_string()
    }

    /// The most memory that the process ever held.
    fn peak_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        peak.unwrap().trim().trim_end_matches(" kB").parse().unwrap()
    }

    async fn until(&self, what: &str, wanted: impl Fn() -> bool) {
        let begun = Instant::now();
        while !wanted() {
            assert!(begun.elapsed() < PATIENCE, "{what} did not come true: {}", self.reason());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn program(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_landfall"));
    command.current_dir(folder);
    command
}

/// What a command says that must succeed.
fn run(folder: &Path, arguments: &[&str]) -> String {
    let output = program(folder).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
