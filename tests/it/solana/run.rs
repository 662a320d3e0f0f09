//! Solana in the program as operators run it: the real binary against a scripted node.

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use landfall_chain::Address;
use landfall_cluster::{GENESIS, Ledger, Node};
use serde_json::Value;
use tempfile::TempDir;

use crate::solana::{OURS, payment};

const WAIT_MAX: Duration = Duration::from_secs(60);

/// A folder with a configuration, and the node that it names.
struct Desk {
    folder: TempDir,
    node: Node,
}

/// `landfall run`, killed when it is dropped.
struct Running(Child);

impl Desk {
    async fn new(keys: &str) -> Self {
        let ledger = Ledger::of([10, 11, 14, 15]);
        ledger.put(14, payment());
        let desk = Desk { folder: crate::harness::postgres::folder(), node: Node::start(&ledger).await };
        desk.configure(keys);
        desk
    }

    fn configure(&self, keys: &str) {
        let text = format!(
            "[api]\nlisten = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n[chains.SOLANA_MAINNET]\n\
             rpc = [\"http://{}/canary\"]\nstart = 11\npoll_ms = 50\n{keys}\n",
            self.node.id()
        );
        std::fs::write(self.folder.path().join("landfall.toml"), text).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_landfall"));
        command.current_dir(self.folder.path()).args(arguments);
        command
    }

    /// In a thread of its own, for the node answers in this one.
    async fn run(&self, arguments: &[&str]) -> Output {
        let mut command = self.command(arguments);
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let said = [output.stdout.as_slice(), &output.stderr].concat();
        assert!(!String::from_utf8_lossy(&said).contains("canary"), "a secret is told");
        output
    }

    async fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments).await;
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    fn start(&self) -> Running {
        let log = std::fs::File::create(self.log()).unwrap();
        Running(self.command(&["run"]).stdout(Stdio::null()).stderr(log).spawn().unwrap())
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// The only deposit, once it has this status.
    async fn deposit(&self, status: &str) -> Value {
        let begun = Instant::now();
        loop {
            let listed = self.ok(&["deposit", "list", "--json"]).await;
            let deposits: Vec<Value> = listed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            if let [deposit] = deposits.as_slice()
                && deposit["status"] == status
            {
                return deposit.clone();
            }
            let log = std::fs::read_to_string(self.log()).unwrap();
            assert!(begun.elapsed() < WAIT_MAX, "no {status}: {deposits:?}\n{log}");
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn sol_goes_through_the_program_from_its_slot_to_confirmed() {
    let desk = Desk::new("").await;
    let ours = format!("SOLANA_MAINNET={OURS}");
    desk.ok(&["account", "add", "--account", "ours", "--type", "SEGREGATED", "--address", &ours]).await;
    let running = desk.start();
    let pending = desk.deposit("PENDING").await;
    assert_eq!((&pending["amount"], &pending["currency_symbol"]), (&"0.002".into(), &"SOL".into()), "{pending}");
    desk.node.call_final(15);
    let confirmed = desk.deposit("CONFIRMED").await;
    assert_eq!(confirmed["id"], pending["id"]);
    assert_eq!(confirmed["transaction_hash"], payment().signature());

    let status: Value = serde_json::from_str(&desk.ok(&["status", "--json"]).await).unwrap();
    let chain = &status["chains"][0];
    assert_eq!((&chain["chain"], &chain["state"]), (&"SOLANA_MAINNET".into(), &"following".into()), "{chain}");
    assert_eq!((&chain["cursor"], &chain["proof"]), (&15.into(), &"one_endpoint".into()), "{chain}");
    assert_eq!(chain["endpoints"][0]["state"], "healthy");
    assert_eq!(desk.ok(&["health"]).await, "healthy\n");
    drop(running);

    let log = std::fs::read_to_string(desk.log()).unwrap();
    assert!(!log.contains("canary") && log.contains("confirmed"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_another_cluster_ends_the_start_with_one_line() {
    let desk = Desk::new("").await;
    desk.node.set_genesis(&Address::Solana([7; 32]).to_string());
    let refused = desk.run(&["run"]).await;
    assert_eq!(refused.status.code(), Some(2));
    let lines = text(&refused.stderr);
    let expected = format!(
        "landfall: endpoint {} serves the cluster with genesis hash {}, but SOLANA_MAINNET is {GENESIS}; check \
         chains.SOLANA_MAINNET.rpc",
        desk.node.id(),
        Address::Solana([7; 32])
    );
    assert_eq!(lines.lines().last(), Some(expected.as_str()), "{lines}");

    // Once configured with this cluster's genesis, it follows it.
    desk.configure(&format!("genesis = \"{}\"", Address::Solana([7; 32])));
    let ours = format!("SOLANA_MAINNET={OURS}");
    desk.ok(&["account", "add", "--account", "ours", "--type", "SEGREGATED", "--address", &ours]).await;
    let _running = desk.start();
    desk.deposit("PENDING").await;
}
