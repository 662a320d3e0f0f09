//! The examples of receivers, in Rust, TypeScript and Python, as an integrator runs them: each gets what the service
//! sends, and what it must not believe, and is killed in between.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use landfall::time::Clock;
use landfall::webhook::{sign, signing_key};
use reqwest::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpSocket;

use crate::stage::{Engine, Stage, address, binary, kept_port, variable};

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
const NODE_MODULES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/nodes/node_modules");
const PATIENCE: Duration = Duration::from_secs(60);
/// Shorter than the receivers wait for a body.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);
/// A minute beyond the five that a signature holds: clocks are set back by less.
const TOO_OLD_SECS: i64 = 360;

/// A receiver and what it keeps, from one start to the next.
struct Example {
    name: &'static str,
    program: Vec<String>,
    port: u16,
    /// Keeps the port until the first start.
    kept: Option<TcpSocket>,
    folder: TempDir,
    running: Option<Child>,
}

impl Example {
    fn all() -> [Example; 3] {
        let rust = Path::new(binary()).with_file_name("examples").join("receiver");
        assert!(rust.exists(), "{} is missing: cargo build --workspace --examples", rust.display());
        let typescript = tempfile::tempdir().unwrap();
        let python = format!("{EXAMPLES}/receivers/receiver.py");
        let compiled = compile(typescript.path()).display().to_string();
        [
            Example::new("Rust", vec![rust.display().to_string()], tempfile::tempdir().unwrap()),
            Example::new("TypeScript", vec!["node".to_owned(), compiled], typescript),
            Example::new("Python", vec![variable("LANDFALL_PYTHON"), python], tempfile::tempdir().unwrap()),
        ]
    }

    fn new(name: &'static str, program: Vec<String>, folder: TempDir) -> Self {
        let (port, kept) = kept_port();
        Example { name, program, port, kept: Some(kept), folder, running: None }
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    /// Starts it with a key, and waits until it answers.
    async fn start(&mut self, key: &str) {
        let output = File::options().create(true).append(true).open(self.output()).unwrap();
        let mut command = Command::new(&self.program[0]);
        command.args(&self.program[1..]).current_dir(self.folder.path()).stdin(Stdio::null()).stdout(output);
        command.env("SIGNING_KEY", key).env("PORT", self.port.to_string()).env("LEDGER", "ledger");
        command.env("NODE_PATH", NODE_MODULES);
        drop(self.kept.take());
        self.running = Some(command.spawn().unwrap());
        let begun = Instant::now();
        while tokio::net::TcpStream::connect(("127.0.0.1", self.port)).await.is_err() {
            assert!(begun.elapsed() < PATIENCE, "the {} receiver does not answer", self.name);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// kill -9.
    fn kill(&mut self) {
        if let Some(mut running) = self.running.take() {
            running.kill().unwrap();
            running.wait().unwrap();
        }
    }

    fn output(&self) -> PathBuf {
        self.folder.path().join("output")
    }

    /// What it says it credited, over all its starts.
    fn credits(&self) -> Vec<String> {
        std::fs::read_to_string(self.output()).unwrap().lines().map(str::to_owned).collect()
    }

    /// The answer's first line to a request whose length is below 0.
    async fn send_less_than_nothing(&self) -> String {
        let mut sent = tokio::net::TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        sent.write_all(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n").await.unwrap();
        let mut line = String::new();
        let answer = BufReader::new(sent).read_line(&mut line).await;
        answer.map(|_| line).unwrap()
    }

    async fn send(&self, key: &str, request: &Request<'_>) -> StatusCode {
        let body = request.body.to_string();
        let timestamp = Clock::system().now().0 / 1_000_000 - request.age_secs;
        let signature = sign(key, request.id, timestamp, &body).unwrap();
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let client = client.post(self.url()).header("webhook-id", request.id).header("webhook-signature", signature);
        let client = client.header("webhook-timestamp", timestamp.to_string());
        client.body(body).send().await.unwrap().status()
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        self.kill();
    }
}

struct Request<'a> {
    id: &'a str,
    /// Of its signature.
    age_secs: i64,
    body: Value,
}

/// Type-checks the example and makes it what node runs.
fn compile(into: &Path) -> PathBuf {
    let options = "--strict --noUncheckedIndexedAccess --target es2022 --module commonjs --moduleResolution node10 --esModuleInterop";
    let mut command = Command::new("node");
    command.arg(format!("{NODE_MODULES}/typescript/bin/tsc")).args(options.split(' '));
    command.args(["--ignoreDeprecations", "5.0", "--types", "node", "--typeRoots"]);
    command.arg(format!("{NODE_MODULES}/@types")).args(["--baseUrl", NODE_MODULES, "--outDir"]).arg(into);
    let output = command.arg(format!("{EXAMPLES}/receivers/receiver.ts")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    into.join("receiver.js")
}

fn deposit(key: &str, status: &str, amount: &str) -> Value {
    let data = json!({
        "id": "615684f4-6776-8c35-b3dd-17080e18a784", "dedup_key": key, "status": status, "account_id": "alice",
        "amount": amount, "currency_symbol": "USDC",
    });
    json!({ "id": "38603d83-3e98-84d0-8073-ab6753fb2698", "type": "deposit_v2", "data": data })
}

fn identity(event_id: &str, status: &str) -> Value {
    let identity =
        json!({ "id": "acme", "label": "", "identity_type": "BUSINESS", "status": status, "sub_status": "" });
    let data = json!({
        "identity": identity, "affected_account_ids": ["alice", "bob"], "status_reason": null, "previous_status": "ACTIVE",
        "previous_sub_status": "",
    });
    json!({ "id": event_id, "type": "identity_status_update", "data": data })
}

fn transfer(event_id: &str, kind: &str, status: &str, stage: Option<&str>) -> Value {
    let mut data = json!({
        "id": "bac872c0-9656-8527-b18f-fc8f02a10278", "status": status, "account_id": "alice", "amount": "2.5",
        "currency_symbol": "USDC",
    });
    if let Some(stage) = stage {
        data["stage"] = json!(stage);
        data["block_number"] = json!(7);
    }
    json!({ "id": event_id, "type": kind, "data": data })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_examples_believe_signed_events_only_and_credit_each_deposit_once_whatever_is_sent_again() {
    let (key, stranger) = (signing_key([3; 32]), signing_key([4; 32]));
    for mut example in Example::all() {
        let name = example.name;
        example.start(&key).await;
        let request = |body: Value| Request { id: "one", age_secs: 0, body };
        let cases = [
            (&key, request(deposit("a", "PENDING", "1250.5")), 204),
            (&stranger, request(deposit("a", "CONFIRMED", "1250.5")), 401),
            (&key, Request { age_secs: TOO_OLD_SECS, ..request(deposit("a", "CONFIRMED", "1250.5")) }, 401),
            (&key, request(deposit("a", "CONFIRMED", "1250.5")), 204),
            (&key, request(deposit("a", "CONFIRMED", "1250.5")), 204),
            // Out of order, and without its PENDING.
            (&key, request(deposit("a", "PENDING", "1250.5")), 204),
            (&key, request(deposit("b", "CONFIRMED", "0.000001")), 204),
            (&key, request(deposit("c", "FAILED", "7")), 204),
            (&key, request(json!({ "id": "test", "type": "webhook_test", "data": {} })), 204),
            (&stranger, request(identity("first", "SUSPENDED")), 401),
            (&key, request(identity("first", "SUSPENDED")), 204),
            (&key, request(identity("first", "SUSPENDED")), 204),
            (&key, request(identity("second", "ACTIVE")), 204),
            // The same status again is another change.
            (&key, request(identity("third", "SUSPENDED")), 204),
            (&key, request(transfer("t0", "transfer_submitted", "SUBMITTED", None)), 204),
            (&key, request(transfer("t1", "transfer_reconciliation", "SUBMITTED", Some("INCLUDED"))), 204),
            (&key, request(transfer("t1", "transfer_reconciliation", "SUBMITTED", Some("INCLUDED"))), 204),
            (&key, request(transfer("t2", "transfer_reconciliation", "SUBMITTED", Some("DISPLACED"))), 204),
            // The same stage again, in another block.
            (&key, request(transfer("t3", "transfer_reconciliation", "SUBMITTED", Some("INCLUDED"))), 204),
            (&key, request(transfer("t4", "transfer_reconciliation", "CONFIRMED", Some("CONFIRMED"))), 204),
            (&key, request(transfer("t5", "transfer_failed", "DROPPED", None)), 204),
        ];
        for (key, request, expected) in cases {
            assert_eq!(example.send(key, &request).await, expected, "{name}: {}", request.body);
        }
        let refused = tokio::time::timeout(ANSWER_TIME_MAX, example.send_less_than_nothing()).await;
        let refused = refused.unwrap_or_else(|_| panic!("the {name} receiver waits for a body without an end"));
        assert!(refused.split(' ').nth(1).is_some_and(|status| status.starts_with('4')), "{name}: {refused}");
        let expected = [
            "credited 1250.5 USDC to alice",
            "credited 0.000001 USDC to alice",
            "acme is SUSPENDED: alice bob",
            "acme is ACTIVE: alice bob",
            "acme is SUSPENDED: alice bob",
            "2.5 USDC from alice: SUBMITTED",
            "2.5 USDC from alice: INCLUDED",
            "2.5 USDC from alice: DISPLACED",
            "2.5 USDC from alice: INCLUDED",
            "2.5 USDC from alice: CONFIRMED",
            "2.5 USDC from alice: DROPPED",
        ];
        assert_eq!(example.credits(), expected, "{name}");
        example.kill();
        example.start(&key).await;
        for status in ["PENDING", "CONFIRMED"] {
            assert_eq!(example.send(&key, &request(deposit("a", status, "1250.5"))).await, 204, "{name}");
        }
        assert_eq!(example.send(&key, &request(identity("third", "SUSPENDED"))).await, 204, "{name}");
        let confirmed = transfer("t4", "transfer_reconciliation", "CONFIRMED", Some("CONFIRMED"));
        assert_eq!(example.send(&key, &request(confirmed)).await, 204, "{name}");
        assert_eq!(example.credits(), expected, "{name}: a restart forgets nothing");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_examples_credit_what_the_service_confirmed() {
    let mut stage = Stage::new(Engine::Sqlite).await;
    stage.set_up("alice", &address(0xa1)).await;
    let mut examples = Example::all();
    for example in &mut examples {
        let added = stage.ok(&["webhook", "add", "--url", &example.url(), "--allow-private", "127.0.0.0/8", "--json"]);
        let added: Value = serde_json::from_str(&added).unwrap();
        example.start(added["secret"].as_str().unwrap()).await;
    }
    let _service = stage.start();
    stage.pay_token(address(0xa1), 1_250_500_000).await;
    stage.node.mine(3).await.unwrap();
    for example in &examples {
        let begun = Instant::now();
        while example.credits().is_empty() {
            assert!(begun.elapsed() < PATIENCE, "the {} receiver credited nothing", example.name);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(example.credits(), ["credited 1250.5 USDC to alice"], "{}", example.name);
    }
}
