//! Several endpoints as an operator meets them: the real program over JSON-RPC servers that fail, what `status` says of
//! each, and the override that lets fewer agree. And the real source under the watcher when its only endpoint is set
//! back.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use landfall_chain::Address;
use landfall_node::{Chain, Fault, NO_BATCHES, Server, Tx, When};
use serde_json::Value;
use tempfile::TempDir;

use crate::harness::follower::{Followed, Mode, network};

const FINALITY_DEPTH: u64 = 2;
const WATCHED: [u8; 20] = [0xa1; 20];

/// The program, at work in a folder until it is dropped.
struct Running {
    folder: TempDir,
    child: Child,
}

impl Running {
    fn start(servers: &[&Server]) -> Self {
        let folder = crate::harness::postgres::folder();
        let urls: Vec<String> = servers.iter().map(|server| format!("\"{}\"", server.url())).collect();
        let config = format!(
            "[api]\nenvironment = \"test\"\nlisten = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
             [chains.ETHEREUM_TESTNET]\nrpc = [{}]\nstart = 1\nnative = \"top_level\"\npoll_ms = 50\n\
             finality = \"finalized\"\n",
            urls.join(", ")
        );
        std::fs::write(folder.path().join("landfall.toml"), config).unwrap();
        let child = program(folder.path()).arg("run").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Running { folder, child }
    }

    fn command(&self, arguments: &[&str]) -> Output {
        program(self.folder.path()).args(arguments).output().unwrap()
    }

    fn ok(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The chain's part of `status --json`, as soon as `is_so`.
    fn until(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let output = self.command(&["status", "--json"]);
            let status: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            let chain = status["chains"][0].clone();
            if is_so(&chain) {
                return chain;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "never: {what}; {chain}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn program(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_landfall"));
    command.current_dir(folder);
    command
}

fn chain(blocks: u64) -> Chain {
    let chain = Chain::of(&network(Mode::Receipts), 7);
    chain.set_finality_depth(Some(FINALITY_DEPTH));
    chain.mine_empty(blocks);
    chain
}

#[tokio::test(flavor = "multi_thread")]
async fn while_one_of_two_is_down_nothing_is_final_until_an_operator_lets_one_decide() {
    let chain = chain(10);
    let (good, down) = (Server::start(chain.clone(), 1).await.unwrap(), Server::start(chain.clone(), 2).await.unwrap());
    down.misbehave(Fault::ServerError, When::Always);
    let running = Running::start(&[&good, &down]);
    let is_read = |chain: &Value| chain["cursor"] == 10 && chain["endpoints"][1]["state"] == "failing";
    let status = running.until("every block is read", is_read);
    assert_eq!((&status["finalized"], &status["endpoints"][0]["latest"]), (&Value::Null, &Value::from(10)));
    assert_eq!(status["endpoints"][0]["state"], "healthy");
    assert!(
        status["endpoints"][0]["latency_ms"].is_u64() && status["endpoints"][1]["latency_ms"].is_null(),
        "{status}"
    );
    assert!(status["endpoints"][1]["reason"].as_str().unwrap().contains("HTTP status 50"), "{status}");
    let text = running.ok(&["status"]);
    let line = text.lines().find(|line| line.contains(good.id())).unwrap();
    assert!(line.contains(" healthy, newest block 10, ") && line.contains(" ms"), "{line}");

    let decide = ["chain", "override", "ETHEREUM_TESTNET"];
    let agree = ["finality", "--agree", "1", "--for", "30m", "--reason", "one node is down"];
    running.ok(&[decide.as_slice(), &agree].concat());
    let is_final = |number: u64| move |chain: &Value| chain["finalized"] == number;
    let status = running.until("one alone decides", is_final(8));
    assert_eq!(status["overrides"][0]["value"], "1");
    let unchecked = |chain: &Value| chain["endpoints"][0]["reason"].as_str().unwrap_or_default().contains("agree is 1");
    running.until("what is not checked is said", unchecked);

    running.ok(&[decide.as_slice(), &["clear", "--reason", "both again"]].concat());
    running.until("the override has ended", |chain| chain["overrides"].as_array().is_some_and(Vec::is_empty));
    running.until("nothing is unchecked", |chain| !unchecked(chain));
    chain.mine_empty(5);
    running.until("the new blocks are read", |chain| chain["cursor"] == 15);
    assert_eq!(running.until("a status", |_| true)["finalized"], 8, "one alone decides no more");
    down.behave();
    running.until("both agree", is_final(13));
    let audit = running.ok(&["chain", "audit"]);
    assert!(audit.contains("one node is down") && audit.contains("both again"), "{audit}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_without_batches_is_followed_call_by_call_and_status_shows_how_it_refused_them() {
    let chain = chain(10);
    let mut runs = Vec::new();
    for (way, (_, said)) in NO_BATCHES.into_iter().enumerate() {
        let server = Server::start(chain.clone(), 1).await.unwrap();
        server.misbehave(Fault::NoBatches(way), When::Always);
        runs.push((Running::start(&[&server]), server, said));
    }
    for (running, server, said) in &runs {
        let status = running.until("every block is read", |chain| chain["cursor"] == 10 && chain["finalized"] == 8);
        let endpoint = &status["endpoints"][0];
        assert_eq!(endpoint["state"], "healthy", "{said}: {status}");
        let reason = endpoint["reason"].as_str().unwrap();
        assert!(reason.starts_with("serves no batches, so each call is a request of its own: "), "{said}: {reason}");
        // Of JSON its message, of all else the text.
        let message = serde_json::from_str::<Value>(said).ok();
        let said = message.as_ref().and_then(|json| json["error"]["message"].as_str()).unwrap_or(said);
        assert!(reason.contains(said), "{said}: {reason}");
        assert!(running.ok(&["status"]).contains("serves no batches"), "{said}");
        // Asked for once, or twice where that was at the same time.
        assert!(server.struck(Fault::NoBatches(0)) <= 2, "{said}: {}", server.struck(Fault::NoBatches(0)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_endpoint_says_in_status_what_no_other_checks() {
    let only = Server::start(chain(5), 1).await.unwrap();
    let running = Running::start(&[&only]);
    let note = "what it calls final is checked by no other endpoint: it is the only one";
    running.until("the note", |chain| chain["endpoints"][0]["reason"] == note);
    assert!(running.ok(&["status"]).contains(note));
}

#[tokio::test]
async fn an_endpoint_that_is_set_back_below_what_was_final_is_no_reorg() {
    let chain = Chain::of(&network(Mode::Receipts), 7);
    chain.set_finality_depth(Some(2 * FINALITY_DEPTH));
    let mut follower = Followed::new(chain, Mode::Receipts, &[1], vec![Address::Evm(WATCHED)]).await;
    follower.chain.mine(vec![Tx::pay(0, 0, WATCHED.into(), 5)]);
    follower.chain.mine_empty(20);
    follower.rest().await.unwrap();
    let cursor = follower.cursor().await;
    follower.servers[0].lag(12);
    for _ in 0..3 {
        let error = follower.tick().await.unwrap_err();
        assert!(error.may_pass() && error.to_string().contains("was agreed to be final"), "{error}");
    }
    // A new process knows nothing of what was agreed: what is final on record reports it, and nothing is taken back
    // either.
    follower.restart();
    for _ in 0..3 {
        let error = follower.tick().await.unwrap_err();
        assert!(error.may_pass() && error.to_string().contains("which is final here"), "{error}");
    }
    assert_eq!(follower.cursor().await, cursor);
    follower.servers[0].lag(0);
    follower.chain.mine_empty(1);
    follower.rest().await.unwrap();
    let audit = follower.audit().await;
    assert!(audit.is_clean() && audit.legs == 1, "{audit:?}");
}
