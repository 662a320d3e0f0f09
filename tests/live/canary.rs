//! Secrets stay where they are. Canaries are in every place that may hold a secret; a key and a request's signature are
//! made on the way. The real process logs everything that it can, each command and each operation is run, and all that
//! was printed or answered is searched for them. What a service reports that sends is searched for keys and for
//! signatures of payments.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use clap::CommandFactory;
use landfall::cli::Cli;
use landfall::incident::{Incident, IncidentKind};
use landfall::store::{Db, incidents};
use landfall::time::Clock;
use landfall_chain::{Address, Chain, Family, KeyPath};
use ring::signature::Ed25519KeyPair;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use sqlx::Connection as _;

use crate::failure_codes::waiting;
use crate::hook::Hook;
use crate::raw_keys;
use crate::stage::{CHAIN_ID, Engine, PASSPHRASE, Service, Stage, address, binary, free_port};
use crate::tls::{self, Terminator};
use crate::transfers::Bench;

/// In each part of an RPC URL, in a header, in the URL of a NATS server and its credentials, in the store's password,
/// in what is asked of the API.
const CANARY: &str = "canary";
/// Where the events of a webhook go is its owner's to see, and no log's.
const HOOK: &str = "http://127.0.0.2:9/hook-path?token=hook-token";
/// Of a name that nobody has, and of a receiver that takes what comes; the certificate of the one at the last address
/// is of another.
const OF_HOOKS: [&str; 5] = ["127.0.0.2", "hook-path", "hook-token", "hook-name", TLS_HOST];
const TLS_HOST: &str = "127.0.0.3";
/// What a NATS server is signed in with: a seed of zeros, with its checksum.
const SEED: &str = "SUAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAEQ";
/// The private and the public key of RFC 8032's first test.
const PRIVATE_KEY: &str = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60";
const PUBLIC_KEY: &str = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n-----END PUBLIC KEY-----\n";
const CHAIN: &str = "ETHEREUM_TESTNET";
/// Of blocks that are final by one word, for the other endpoint is dead.
const RANGE: [&str; 8] = ["--config", "agree.toml", "--chain", CHAIN, "--from", "0", "--to", "1"];
const WHY: [&str; 2] = ["--reason", "a test"];
const PATIENCE: Duration = Duration::from_secs(60);
/// Of processes that log all that they can.
const TALKATIVE: [(&str, &str); 1] = [("LANDFALL_LOG", "trace")];

/// A process that is killed when dropped.
struct Running(std::process::Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// All that was reported, and what must not be in it.
struct Output {
    folder: PathBuf,
    secrets: Vec<String>,
    texts: Vec<String>,
    /// Neither may report where webhooks lead.
    of_others: Vec<String>,
    /// The commands that ran, without what they were given.
    commands: BTreeSet<String>,
    /// The operations that were asked for, by method and path.
    operations: BTreeSet<String>,
}

impl Output {
    /// Of commands that run in this folder; none yet.
    fn of(folder: &Path, secrets: Vec<String>) -> Self {
        Output {
            folder: folder.to_owned(),
            secrets,
            texts: Vec::new(),
            of_others: Vec::new(),
            commands: BTreeSet::new(),
            operations: BTreeSet::new(),
        }
    }

    /// Runs a command that ends so; its result.
    fn run(&mut self, arguments: &[&str], code: i32) -> String {
        self.run_for(arguments, &[code], |_| Vec::new())
    }

    /// As `run`, of a command that reports secrets, this once: nothing else may show them, nor may it report others.
    fn run_for(&mut self, arguments: &[&str], codes: &[i32], secrets: impl Fn(&str) -> Vec<String>) -> String {
        let mut command = Command::new(binary());
        command.current_dir(&self.folder).args(arguments).env("LANDFALL_LOG", "debug").stdin(Stdio::null());
        let output = command.output().unwrap();
        let [reported, logged] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        let code = output.status.code().unwrap();
        assert!(codes.contains(&code), "{arguments:?} ended with {code}: {reported}{logged}");
        self.commands.insert(leaf(arguments));
        self.of_others.push(logged);
        self.keep(reported.clone(), secrets(&reported));
        reported
    }

    /// Keeps a text that reports these secrets, without them.
    fn keep(&mut self, text: String, secrets: Vec<String>) {
        self.texts.push(secrets.iter().fold(text, |text, secret| text.replace(secret.as_str(), "")));
        self.secrets.extend(secrets);
    }

    /// Asks for an operation of the API; the body of an answer with this status.
    async fn ask(
        &mut self,
        api: &str,
        key: &str,
        (method, path): (&str, &str),
        body: Option<Value>,
        status: u16,
    ) -> Value {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let mut request = client.request(method.parse().unwrap(), format!("{api}{path}")).bearer_auth(key);
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        let answer = request.send().await.unwrap();
        let (found, headers) = (answer.status(), format!("{:?}", answer.headers()));
        let text = answer.text().await.unwrap();
        assert_eq!(found, status, "{method} {path}: {text}");
        self.operations.insert(format!("{method} {}", path.split('?').next().unwrap()));
        self.of_others.push(headers);
        let value: Value = serde_json::from_str(&text).unwrap_or_default();
        let secrets = value["signing_key"].as_str().map(secret_of).into_iter().collect();
        if found.is_success() && path.starts_with("/v2/webhooks") {
            self.keep(text, secrets);
        } else {
            self.of_others.push(text);
        }
        value
    }

    fn config(&self) -> String {
        std::fs::read_to_string(self.folder.join("landfall.toml")).unwrap()
    }

    fn assert_silent(&self, log: &str) {
        for text in self.of_others.iter().map(String::as_str).chain([log]) {
            for line in text.lines() {
                let reported = OF_HOOKS.iter().find(|part| line.contains(**part));
                assert_eq!(reported, None, "where a webhook's events go is told: {line}");
            }
        }
        for text in self.texts.iter().chain(&self.of_others).map(String::as_str).chain([log]) {
            for line in text.lines() {
                let reported = self.secrets.iter().find(|secret| line.contains(*secret));
                assert_eq!(reported, None, "a secret is told: {line}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_is_in_an_answer_or_a_log_however_much_is_logged() {
    let [port, admin] = [free_port(), free_port()];
    let mut stage = stage_of_secrets(port, admin).await;
    let mut reported = Output::of(stage.folder.path(), vec![CANARY.into(), SEED[8..].into()]);
    let Terminator { address: tls, _task } = Terminator::at(&format!("{TLS_HOST}:0"), stage.node.url()).await;
    let hostile = "http://canary-user:canary@127.0.0.1:9/canary-hook?token=canary-token";
    reported.run(&["webhook", "add", "--url", hostile, "--allow-private", "127.0.0.0/8", "--json"], 2);
    let hook = add_hook(&mut reported, HOOK);
    add_hook(&mut reported, &format!("https://{tls}/hook-path?token=hook-token"));
    let taking = Hook::start(Duration::from_millis(1)).await;
    add_hook(&mut reported, &format!("{}?token=hook-token", taking.url));
    let key = ["key", "create", "--name", "live", "--scope", "read,write,webhooks,transfers"];
    let key = reported.run_for(&key, &[0], |key| vec![key[16..59].to_owned()]).trim().to_owned();

    let log = stage.folder.path().join("talkative.log");
    let output = File::create(&log).unwrap();
    let mut command = Command::new(binary());
    command.current_dir(stage.folder.path()).arg("run").env("LANDFALL_LOG", "trace,async_nats::connector=trace");
    // So far it is trusted: whose certificate it is decides.
    command.env("SSL_CERT_FILE", tls::file("ca.pem"));
    let mut service = Running(command.stdout(output.try_clone().unwrap()).stderr(output).spawn().unwrap());
    stage.pay_native(address(0xa1), 7).await;
    stage.node.mine(3).await.unwrap();
    // The second endpoint is dead, so nothing is CONFIRMED; two webhooks and NATS are dead, so its event waits for
    // them.
    stage.until_status("0.000000000000000007", "PENDING").await;

    let log_now = || std::fs::read_to_string(&log).unwrap();
    reported.of_others.extend(ask_amiss(port, admin, &key).await);
    let begun = Instant::now();
    let words = ["answered", "127.0.0.1:9", "nats", &hook, "certificate not accepted", "SOLANA_DEVNET"];
    while !words.iter().all(|word| log_now().contains(word)) {
        assert!(begun.elapsed() < PATIENCE, "requests, the dead endpoint, NATS or the webhooks: {}", log_now());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // Once more, for the webhooks have failed by now.
    reported.of_others.extend(ask_amiss(port, admin, &key).await);
    taking.until("its event", PATIENCE, |reported| !reported.is_empty()).await;
    ask_all(&mut reported, &stage, port, &key).await;
    ask_signed(&mut reported, port).await;
    look(&mut reported, &stage, &hook);
    decide(&mut reported, &hook, &key[8..16]).await;
    keep_keys(&mut reported);
    send(&mut reported);
    listen(&mut reported).await;
    refuse(&mut reported);

    assert!(service.0.try_wait().unwrap().is_none(), "it runs on: {}", log_now());
    let log = log_now();
    let bytes: usize = reported.texts.iter().chain(&reported.of_others).map(String::len).sum();
    println!("{} bytes of log and {bytes} bytes of answers", log.len());
    reported.secrets.extend(ed25519_keys(&stage).await);
    assert!(log.contains("DEBUG"), "it is not at its most talkative");
    reported.assert_silent(&log);
    assert_eq!(reported.commands, commands(), "every command is run");
    let asked = |operation: &String| reported.operations.iter().any(|asked| is_of(asked, operation));
    let forgotten: Vec<String> = operations().into_iter().filter(|operation| !asked(operation)).collect();
    assert!(forgotten.is_empty(), "nobody asked for {forgotten:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_key_and_no_payers_signature_is_in_a_log_an_answer_or_an_event_of_a_service_that_sends() {
    let (stage, admin) = (Stage::new(Engine::Postgres).await, free_port());
    stage.replace_in_config("[admin]\nlisten = \"127.0.0.1:0\"", &format!("[admin]\nlisten = \"127.0.0.1:{admin}\""));
    let mut bench = Bench::signing_by(stage, "signer = \"unix:signer.sock\"").await;
    let alice = bench.get("/v2/accounts").await["accounts"][0]["id"].as_str().unwrap().to_owned();
    be_talkative(&mut bench).await;
    let before = bench.sent().await;
    let paid = bench.send(2, "2.5").await;
    bench.until_sent(before, 1).await;
    bench.stage.node.mine(3).await.unwrap();
    bench.until_status(&paid, "CONFIRMED").await;
    let unsent = waiting(&bench, "USDC", "1").await;
    bench.until_logged("no sponsor may carry them now").await;
    let carol = json!({ "request_id": "carol", "identity_id": "house", "type": "SEGREGATED" });
    let (status, carol) = bench.post("/v2/accounts", &carol).await;
    assert_eq!(status, 201, "{carol}");
    bench.until_announced(&paid, &["SUBMITTED", "INCLUDED", "CONFIRMED"]).await;

    let secrets = secrets_of(&bench, &alice, &carol).await;
    let mut reported = Output::of(bench.stage.folder.path(), secrets);
    ask_of_transfers(&mut reported, &bench, &alice, [&paid, &unsent]).await;
    for path in ["/status", "/readyz", "/metrics"] {
        reported.ask(&format!("http://127.0.0.1:{admin}"), &bench.key, ("GET", path), None, 200).await;
    }
    report_transfers(&mut reported, [&paid, &unsent]);
    let events = bench.stage.receiver.log();
    reported.texts.extend(events.iter().map(|received| received.data.to_string()));
    assert_eq!(bench.explained(&unsent)["attempts"], json!([]), "nobody has its signature but us");
    end(&mut bench);
    // Both families are derived, where it is logged most.
    reported.run(&["signer", "addresses", "keys", "--account", &alice, "--passphrase-file", "passphrase"], 0);

    let logs = ["landfall.log", "signer.log"].map(|log| bench.stage.folder.path().join(log));
    let log = logs.map(|log| std::fs::read_to_string(log).unwrap()).concat();
    let bytes: usize = reported.texts.iter().chain(&reported.of_others).map(String::len).sum();
    println!("{} bytes of log, {bytes} bytes of answers and {} events", log.len(), events.len());
    assert!(log.contains("DEBUG") && log.contains(&unsent), "it is not at its most talkative");
    reported.assert_silent(&log);
}

/// Both processes would leave no core file, and end well.
fn end(bench: &mut Bench) {
    for process in [bench.service.take(), bench.signer.take()] {
        let process = process.unwrap();
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", process.pid())).unwrap();
        let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
        assert_eq!(core.split_whitespace().skip(4).take(2).collect::<Vec<_>>(), ["0", "0"], "{core}");
        assert_eq!(process.stop().0, Some(0));
    }
}

/// From now on the service and its signer log all that they can. A chain of Solana, which nothing answers for, has
/// accounts opened with keys of both families.
async fn be_talkative(bench: &mut Bench) {
    end(bench);
    bench.stage.replace_in_config("[admin]", "[chains.SOLANA_DEVNET]\nrpc = [\"http://127.0.0.1:9\"]\n\n[admin]");
    let folder = bench.stage.folder.path();
    bench.signer = Some(Service::start_signer_with(folder, &TALKATIVE));
    bench.service = Some(Service::start_with(folder, &TALKATIVE));
    bench.until_served().await;
}

/// What must be nowhere: parts of both phrases, the passphrase, keys that were used, and what alice signed. One of her
/// payments has not left; what she signed for the other one had not either, for a while.
async fn secrets_of(bench: &Bench, alice: &str, carol: &Value) -> Vec<String> {
    const SIGNATURES: &str = "SELECT signature FROM intents WHERE signature IS NOT NULL";
    let mut secrets = vec![PASSPHRASE.to_owned()];
    for seed in &bench.seeds {
        let phrase = seed.phrase();
        let parts: Vec<&str> = phrase.split(' ').collect();
        assert_eq!(parts.len(), 24);
        // Three in a row are nowhere by chance.
        secrets.extend(parts.windows(3).map(|three| three.join(" ")));
    }
    let [wallets, sponsors] = &bench.seeds;
    let of_alice = raw_keys::evm_key(wallets, &KeyPath::of_wallet(Family::Evm, alice, ""));
    let sponsor = KeyPath::of_sponsor(Family::Evm, &format!("eip155:{CHAIN_ID}"), 0);
    let of_sponsor = raw_keys::evm_key(sponsors, &sponsor);
    let derived = [of_alice, of_sponsor].map(raw_keys::evm_address);
    assert_eq!(derived, [bench.alice, bench.sponsors[0]], "these are the keys that pay");
    let path = KeyPath::of_wallet(Family::Solana, carol["id"].as_str().unwrap(), "");
    let of_carol = raw_keys::solana_key(wallets, &path);
    assert!(carol.to_string().contains(&raw_keys::solana_address(&of_carol).to_string()), "{carol}");
    for key in [of_alice.to_be_bytes::<32>(), of_sponsor.to_be_bytes::<32>(), of_carol] {
        secrets.extend(forms(&key));
    }
    // As programs of Solana write a key.
    secrets.push(Address::Solana(of_carol).to_string());
    let mut store = sqlx::PgConnection::connect(&bench.stage.store).await.unwrap();
    let signatures: Vec<Vec<u8>> = sqlx::query_scalar(SIGNATURES).fetch_all(&mut store).await.unwrap();
    assert_eq!(signatures.iter().map(Vec::len).collect::<Vec<_>>(), [65, 65]);
    // r and s: what a token is called with has v elsewhere.
    secrets.extend(signatures.iter().flat_map(|signature| forms(&signature[..64])));
    secrets
}

/// How programs write bytes.
fn forms(bytes: &[u8]) -> Vec<String> {
    let numbers: Vec<String> = bytes.iter().map(u8::to_string).collect();
    // The last digits would depend on what comes behind.
    let in_threes = &bytes[..bytes.len() / 3 * 3];
    let (hexadecimal, base64) = (hex::encode(bytes), BASE64_STANDARD.encode(in_threes));
    vec![hexadecimal.to_uppercase(), hexadecimal, base64, numbers.join(", "), numbers.join(",")]
}

/// What the API reports of an account and its transfers.
async fn ask_of_transfers(reported: &mut Output, bench: &Bench, alice: &str, ids: [&str; 2]) {
    let account = format!("/v2/accounts/{alice}");
    let [paid, unsent] = ids.map(|id| format!("/v2/crypto/transfers/{id}"));
    for path in [
        "/v2/accounts",
        &account,
        &format!("{account}/balances?symbol=USDC"),
        "/v2/crypto/transfers",
        &paid,
        &unsent,
        "/v2/gas-credit",
        "/v2/events",
    ] {
        reported.ask(&bench.api, &bench.key, ("GET", path), None, 200).await;
    }
}

/// What the command line reports of two transfers, and of who sends.
fn report_transfers(reported: &mut Output, ids: [&str; 2]) {
    for id in ids {
        for command in ["show", "explain"] {
            reported.run(&["transfer", command, id], 0);
            reported.run(&["transfer", command, id, "--json"], 0);
        }
    }
    for command in [
        &["transfer", "list"][..],
        &["sender", "status"],
        &["sponsor", "list"],
        &["gas", "show"],
        &["gas", "ledger"],
        &["account", "list"],
        &["event", "list"],
        &["incident", "list"],
        &["audit", "list"],
        &["status"],
    ] {
        reported.run(command, 0);
        reported.run(&[command, &["--json"]].concat(), 0);
    }
    reported.run(&["sponsor", "show", "0", "--chain", CHAIN], 0);
    reported.run(&["signer", "verify-journal", "keys"], 0);
    // The chain of Solana cannot be read.
    for command in ["health", "doctor"] {
        reported.run_for(&[command], &[0, 1], |_| Vec::new());
    }
}

/// What reports how things are.
fn look(reported: &mut Output, stage: &Stage, hook: &str) {
    let event = reported.run(&["event", "list", "--json"], 0);
    let event: Value = serde_json::from_str(event.lines().next().unwrap()).unwrap();
    let event = event["id"].as_str().unwrap();
    let deposit = &stage.deposits()[0];
    let [deposit, paid] = ["id", "transaction_hash"].map(|field| deposit[field].as_str().unwrap());
    let agree = reported.config().replace("poll_ms = 50", "poll_ms = 50\nagree = 1");
    std::fs::write(reported.folder.join("agree.toml"), agree).unwrap();
    // Whether it is late already is a matter of time.
    reported.run_for(&["health"], &[0, 1], |_| Vec::new());
    reported.run_for(&["doctor"], &[0, 1], |_| Vec::new());
    reported.run(&["deposit", "explain", "SOLANA_DEVNET", &"1".repeat(64)], 2);
    let commands: [(&[&str], i32); 29] = [
        (&["status"], 0),
        (&["status", "--json"], 0),
        (&["migrate"], 0),
        (&["openapi"], 0),
        (&["account", "list"], 0),
        (&["account", "list", "--json"], 0),
        (&["key", "list"], 0),
        (&["key", "list", "--json"], 0),
        (&["deposit", "list", "--json"], 0),
        (&["deposit", "show", deposit], 0),
        (&["deposit", "decide", deposit, "--fail", "--reason", "nobody doubts it"], 2),
        (&["deposit", "unattributed"], 0),
        (&["deposit", "explain", CHAIN, paid], 0),
        (&["deposit", "explain", CHAIN, paid, "--json"], 0),
        (&[&["backfill"][..], &RANGE].concat(), 0),
        (&[&["rescan"][..], &RANGE].concat(), 0),
        (&["event", "list"], 0),
        (&["event", "list", "--pending", "--json"], 0),
        (&["event", "show", event], 0),
        (&["event", "show", event, "--json"], 0),
        (&[&["event", "replay", event, "--json"][..], &WHY].concat(), 0),
        (&[&["event", "replay", "--account", "alice"][..], &WHY].concat(), 0),
        (&[&["event", "replay", "--from", "2020-01-01T00:00:00Z", "--webhook", hook][..], &WHY].concat(), 0),
        (&["webhook", "list"], 0),
        (&["webhook", "list", "--json"], 0),
        (&["webhook", "show", hook], 0),
        (&["webhook", "show", hook, "--json"], 0),
        (&["webhook", "test", hook], 1),
        (&["webhook", "statuses"], 0),
    ];
    for (command, code) in commands {
        reported.run(command, code);
    }
}

/// What people decide.
async fn decide(reported: &mut Output, hook: &str, key: &str) {
    std::fs::write(reported.folder.join("accounts.csv"), accounts_csv()).unwrap();
    let incident = meet_incident(&reported.config()).await;
    let commands: [(&[&str], i32); 29] = [
        (&["account", "add", "--account", "bob", "--type", "OMNIBUS", "--address", &at(0xb0)], 0),
        (&["account", "import", "accounts.csv"], 0),
        (&["identity", "add", "--identity", "acme", "--type", "BUSINESS"], 0),
        (&["identity", "suspend", "acme"], 0),
        (&["identity", "reinstate", "acme"], 0),
        (&["identity", "terminate", "acme"], 0),
        (&["identity", "show", "acme", "--json"], 0),
        (&["identity", "list"], 0),
        (&["key", "revoke", key], 0),
        (&["webhook", "pause", hook], 0),
        (&["webhook", "test", hook], 2),
        (&["webhook", "resume", hook], 0),
        (&["webhook", "statuses", "all"], 0),
        (&["webhook", "remove", hook], 0),
        (&["webhook", "remove", "nats"], 2),
        (&["incident", "list", "--json"], 0),
        (&["incident", "show", &incident], 0),
        (&["incident", "resolve", &incident], 0),
        (&["chain", "override", CHAIN, "accept-reorg"], 2),
        (&["chain", "override", CHAIN, "confirm", "--through", "1"], 0),
        (&["chain", "override", CHAIN, "finality", "--agree", "1", "--for", "1m"], 0),
        (&["chain", "override", CHAIN, "clear"], 0),
        (&["chain", "halt", CHAIN], 0),
        (&["status"], 0),
        (&["chain", "resume", CHAIN], 0),
        (&["audit", "list"], 0),
        (&["audit", "list", "--json"], 0),
        (&["chain", "audit"], 0),
        (&["chain", "audit", "--json"], 0),
    ];
    let rotate = [&["webhook", "rotate", hook, "--json"][..], &WHY].concat();
    reported.run_for(&rotate, &[0], |reported| vec![secret(reported)]);
    let reasoned = reasoned();
    for (command, code) in commands {
        let why: &[&str] = if reasoned.contains(&leaf(command)) { &WHY } else { &[] };
        reported.run(&[command, why].concat(), code);
    }
}

/// Keystores: their words are shown once, and passphrases never.
fn keep_keys(reported: &mut Output) {
    let folder = reported.folder.clone();
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    };
    write("passphrase", "canary-passphrase\n");
    let file = ["--passphrase-file", "passphrase"];
    let init = [&["signer", "init", "keys", "--print-words-without-asking"][..], &file].concat();
    let phrases = |reported: &str| -> Vec<String> {
        let lines = reported.lines().take(2).map(|line| line.split_once(' ').unwrap().1.to_owned());
        lines.collect()
    };
    let shown = reported.run_for(&init, &[0], phrases);
    for (name, phrase) in ["sponsors.words", "wallets.words"].into_iter().zip(phrases(&shown)) {
        write(name, &phrase);
    }
    let words = ["--wallets", "wallets.words", "--sponsors", "sponsors.words"];
    reported.run(&[&["signer", "import", "others"][..], &words, &file].concat(), 0);
    reported.run(&[&["signer", "import", "others"][..], &words, &file].concat(), 2);
    reported.run(&[&["signer", "addresses", "others", "--account", "alice"][..], &file].concat(), 0);
    reported.run(&["signer", "verify-journal", "others"], 0);
    write("next", "canary-passphrase-too\n");
    let rotate = [&["signer", "rotate-passphrase", "others", "--new-passphrase-file", "next"][..], &file].concat();
    reported.run(&rotate, 0);
    // The old one does not open it any more.
    reported.run(&rotate, 2);
    // A file is there.
    reported.run(&[&["signer", "serve", "others", "--socket", "passphrase"][..], &file].concat(), 2);
}

/// A receiver of one's own, which somebody else sends something to.
async fn listen(reported: &mut Output) {
    let key = reported.run_for(
        &["webhook", "add", "--url", HOOK, "--allow-private", "127.0.0.0/8", "--json"],
        &[0],
        |reported| vec![secret(reported)],
    );
    let key: Value = serde_json::from_str(&key).unwrap();
    std::fs::write(reported.folder.join("hook.key"), key["secret"].as_str().unwrap()).unwrap();
    let port = free_port().to_string();
    let mut command = Command::new(binary());
    command.current_dir(&reported.folder).args(["webhook", "listen", "--key-file", "hook.key"]);
    command.args(["--listen", &format!("127.0.0.1:{port}")]).env("LANDFALL_LOG", "debug");
    let mut running = Running(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let mut said = BufReader::new(running.0.stderr.take().unwrap()).lines();
    let first = said.find(|line| line.as_ref().unwrap().starts_with("listening on ")).unwrap().unwrap();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let url = first.trim_start_matches("listening on ").to_owned();
    assert!(!client.post(url).body("forged").send().await.unwrap().status().is_success());
    let refused = said.find(|line| line.as_ref().unwrap().starts_with("refused ")).unwrap().unwrap();
    assert!(Command::new("kill").args(["-TERM", &running.0.id().to_string()]).status().unwrap().success());
    assert!(running.0.wait().unwrap().success());
    reported.of_others.extend([first, refused]);
    reported.of_others.extend(said.map(Result::unwrap));
    reported.commands.insert("webhook listen".to_owned());
}

/// Configurations that are refused, each for something beside or within what is secret.
fn refuse(reported: &mut Output) {
    let config = reported.config();
    for (from, to) in [
        ("#canary-fragment\"", "#canary-fragment"),
        ("x-api-key = \"canary-header\"", "x-api-key = [\"canary-header\"]"),
        ("\"canary-header\" } }", "\"canary-header\" }, more = \"canary-more\" }"),
        ("http://canary-user", "gopher://canary-user"),
        ("postgres://postgres:canary-store", "gopher://postgres:canary-store"),
        ("nats://canary-user", "gopher://canary-user"),
        ("credentials = \"nats.creds\"", "credentials = \"canary/nats.creds\""),
        ("postgres:canary-store@127.0.0.1", "postgres:canary-store@canary host"),
        ("postgres:canary-store@", "postgres:12/canary-store@"),
        ("postgres:canary-store@", "postgres:canary@canary-store@"),
        ("postgres:canary-store@", "canary-user:canary-store@"),
        ("?passwrod=canary-parameter", "?sslmode=canary-parameter"),
        ("?passwrod=canary-parameter", "?options=-c%20work_mem=canary"),
        ("http://canary-user:canary-password@", "http://canary-user:12/canary-password@"),
        ("\"http://canary-user:canary-password@127.0.0.1", "\"canary-user"),
        ("nats://canary-user:canary-password@", "nats://canary-user:12/canary-password@"),
        ("x-api-key = ", "\"x-api-key: canary\" = "),
    ] {
        assert!(config.contains(from), "{from}");
        std::fs::write(reported.folder.join("spoilt.toml"), config.replace(from, to)).unwrap();
        reported.run(&["run", "--config", "spoilt.toml"], 2);
    }
    reported.run(&["webhook", "add", "https://canary-user:canary@a.example/"], 2);
    reported.run(&["webhook", "add", "--uri=https://canary-user:canary@a.example/"], 2);
    reported.run(&["webhook", "add", "--url", "canary:canary"], 2);
}

/// Registers a webhook that is not there; its id.
fn add_hook(reported: &mut Output, url: &str) -> String {
    let add = ["webhook", "add", "--url", url, "--allow-private", "127.0.0.0/8", "--ed25519", "--json"];
    let added = reported.run_for(&add, &[0], |reported| vec![secret(reported)]);
    let added: Value = serde_json::from_str(&added).unwrap();
    added["id"].as_str().unwrap().to_owned()
}

/// The keys by which webhooks are signed with Ed25519, which nobody is ever reported.
async fn ed25519_keys(stage: &Stage) -> Vec<String> {
    const KEYS: &str = "SELECT signing_key || ' ' || previous_signing_key FROM webhooks";
    let mut store = sqlx::PgConnection::connect(&stage.store).await.unwrap();
    let keys: Vec<String> = sqlx::query_scalar(KEYS).fetch_all(&mut store).await.unwrap();
    let keys: Vec<String> = keys
        .iter()
        .flat_map(|keys| keys.split(' '))
        .filter_map(|key| key.strip_prefix("whsk_"))
        .map(String::from)
        .collect();
    assert!(keys.len() > 3, "of each of the webhooks, and one from before a rotation");
    keys
}

/// Something that a person must look at.
async fn meet_incident(config: &str) -> String {
    let url = config.lines().find_map(|line| line.strip_prefix("url = \"")).unwrap().trim_end_matches('"');
    let db = Db::open(&url.parse().unwrap()).await.unwrap();
    let now = Clock::system().now();
    let incident = Incident::open(Chain::EthereumTestnet, IncidentKind::AssetMismatch, "a test".to_owned(), None, now);
    let mut tx = db.begin().await.unwrap();
    incidents::meet(&mut tx, &incident).await.unwrap();
    tx.commit().await.unwrap();
    incident.id
}

fn accounts_csv() -> String {
    format!("account_id,type,chains,address\ncarol,SEGREGATED,{CHAIN},{}\n", address(0xc0))
}

fn at(who: u8) -> String {
    format!("{CHAIN}={}", address(who))
}

/// The signing key that a command reports once, as JSON.
fn secret(reported: &str) -> String {
    let reported: Value = serde_json::from_str(reported).unwrap();
    secret_of(reported["secret"].as_str().unwrap())
}

fn secret_of(key: &str) -> String {
    key.trim_start_matches("whsec_").to_owned()
}

/// The commands by their names, from the root on.
fn leaves(command: &clap::Command, name: &str, found: &mut Vec<(String, clap::Command)>) {
    if !command.has_subcommands() {
        found.push((name.to_owned(), command.clone()));
    }
    for sub in command.get_subcommands() {
        leaves(sub, format!("{name} {}", sub.get_name()).trim(), found);
    }
}

fn all_leaves() -> Vec<(String, clap::Command)> {
    let mut found = Vec::new();
    leaves(&Cli::command(), "", &mut found);
    found
}

/// Sponsors, the switch and transfers, beside a service that has no signer.
fn send(reported: &mut Output) {
    let there = ["--chain", "ETHEREUM_TESTNET", "--reason", "a test"];
    for (command, code) in [
        (&["sponsor", "add"][..], 0),
        (&["sponsor", "add", "--treasury"], 0),
        (&["sponsor", "pause", "0"], 0),
        (&["sponsor", "resume", "0"], 0),
        (&["sponsor", "quarantine", "0"], 0),
        (&["sponsor", "release", "0"], 0),
        // It is not quarantined any more.
        (&["sponsor", "release", "0"], 2),
        (&["sender", "halt"], 0),
        (&["sender", "resume"], 0),
        // It pays already.
        (&["sender", "delegate", "--set", "metamask"], 0),
        // There is no signer.
        (&["sender", "recover"], 2),
    ] {
        reported.run(&[command, &there].concat(), code);
    }
    for command in [&["sponsor", "list"][..], &["sender", "status"], &["transfer", "list"]] {
        reported.run(command, 0);
    }
    reported.run(&["sponsor", "show", "1", "--chain", "ETHEREUM_TESTNET"], 0);
    reported.run(&["signer", "adopt", "--reason", "a test"], 0);
    limit(reported);
    pay_gas(reported);
    let unknown = "bac872c0-9656-8527-b18f-fc8f02a10278";
    for command in ["show", "explain"] {
        reported.run(&["transfer", command, unknown], 1);
    }
    reported.run(&["transfer", "cancel", unknown, "--reason", "live"], 2);
    // There is no signer.
    reported.run(&[&["account", "sweep", "nobody", "--asset", "ETH"][..], &there].concat(), 2);
    reported.run(&[&["account", "release", "nobody"][..], &WHY].concat(), 2);
    reported.run(&["account", "addresses", "alice", "--json"], 0);
    let to = address(0xb0).to_string();
    let paid = ["transfer", "create", "alice", "--asset", "ETH", "--to", &to, "--amount", "1"];
    reported.run(&[&paid[..], &there].concat(), 2);
}

/// Policies on transfers.
fn limit(reported: &mut Output) {
    let add = ["policy", "add", "--limit", "DAY:ETH:amount=1000", "--reason", "a test", "--json"];
    reported.run(&add, 0);
    reported.run(&["policy", "list"], 0);
    reported.run(&["policy", "show", "unknown"], 1);
    // It is not in force.
    reported.run(&["policy", "remove", "unknown", "--reason", "a test"], 2);
}

/// What sending costs.
fn pay_gas(reported: &mut Output) {
    reported.run(&["gas", "price", "set", "ETH", "3000", "--reason", "a test"], 0);
    for command in [&["gas", "price", "list"][..], &["gas", "show"], &["gas", "ledger"]] {
        reported.run(command, 0);
    }
    reported.run(&["gas", "bill", "--month", "2026-11"], 0);
}

/// Every command; the show has a chain of its own, and nobody's secrets.
fn commands() -> BTreeSet<String> {
    all_leaves().into_iter().map(|(name, _)| name).filter(|name| name != "sandbox").collect()
}

/// Those that take a reason.
fn reasoned() -> BTreeSet<String> {
    let takes = |command: &clap::Command| command.get_arguments().any(|argument| argument.get_id() == "reason");
    all_leaves().into_iter().filter(|(_, command)| takes(command)).map(|(name, _)| name).collect()
}

/// Which command these arguments are of.
fn leaf(arguments: &[&str]) -> String {
    let words: Vec<&str> = arguments.iter().copied().filter(|word| *word != CHAIN).collect();
    let names = commands();
    let named = (1..=words.len()).map(|count| words[..count].join(" ")).find(|name| names.contains(name));
    named.unwrap_or_else(|| panic!("no command: {arguments:?}"))
}

/// The operations of the document, and what is there without a key.
fn operations() -> Vec<String> {
    const DOCUMENT: &str = include_str!("../../openapi.json");
    let document: Value = serde_json::from_str(DOCUMENT).unwrap();
    let of = |(path, item): (&String, &Value)| {
        let methods = item.as_object().unwrap().keys().map(|method| format!("{} {path}", method.to_uppercase()));
        methods.collect::<Vec<_>>()
    };
    let documented = document["paths"].as_object().unwrap().iter().flat_map(of);
    documented.chain(["GET /docs/".to_owned(), "GET /openapi.json".to_owned()]).collect()
}

/// Whether a request was for this operation.
fn is_of(asked: &str, operation: &str) -> bool {
    let (asked, operation) = (asked.split('/'), operation.split('/'));
    asked.clone().count() == operation.clone().count()
        && asked.zip(operation).all(|(asked, part)| part.starts_with('{') || asked == part)
}

/// A stage with canaries wherever its configuration may hold a secret; the API and the operators' routes at these
/// ports.
async fn stage_of_secrets(port: u16, admin: u16) -> Stage {
    let stage = Stage::new(Engine::Postgres).await;
    // The test's server asks nobody for a password.
    stage.replace_in_config("postgres://postgres@", "postgres://postgres:canary-store@");
    let (_, place) = stage.store.rsplit_once('@').unwrap();
    // Mistyped, and read by nobody.
    stage.replace_in_config(place, &format!("{place}?passwrod=canary-parameter"));
    stage.set_up("alice", &address(0xa1)).await;
    stage.replace_in_config("[api]\nlisten = \"127.0.0.1:0\"", &format!("[api]\nlisten = \"127.0.0.1:{port}\""));
    stage.replace_in_config("[admin]\nlisten = \"127.0.0.1:0\"", &format!("[admin]\nlisten = \"127.0.0.1:{admin}\""));
    let node = stage.node.url().to_owned();
    let dead = "http://canary-user:canary-password@127.0.0.1:9/canary-path?key=canary-query#canary-fragment";
    let with_secrets = format!("{{ url = \"{dead}\", headers = {{ x-api-key = \"canary-header\" }} }}");
    let wake_up = "\"ws://127.0.0.1:9/canary-wake-up?key=canary\"";
    stage.replace_in_config(&format!("\"{node}\""), &format!("\"{node}\", {with_secrets}, {wake_up}"));
    let solana = format!("[chains.SOLANA_DEVNET]\nrpc = [{with_secrets}, {wake_up}]\n\n[admin]");
    stage.replace_in_config("[admin]", &solana);
    let nats =
        "[nats]\nurls = [\"nats://canary-user:canary-password@127.0.0.1:9\"]\ncredentials = \"nats.creds\"\n\n[admin]";
    let credentials = format!(
        "-----BEGIN NATS USER JWT-----\ncanary.canary.canary\n------END NATS USER JWT------\n\n\
         -----BEGIN USER NKEY SEED-----\n{SEED}\n------END USER NKEY SEED------\n"
    );
    std::fs::write(stage.folder.path().join("nats.creds"), credentials).unwrap();
    std::fs::write(stage.folder.path().join("client.pem"), PUBLIC_KEY).unwrap();
    stage.replace_in_config("[admin]", nats);
    stage
}

/// Each operation, done and refused.
async fn ask_all(reported: &mut Output, stage: &Stage, port: u16, key: &str) {
    let api = format!("http://127.0.0.1:{port}");
    let deposit = stage.deposits()[0]["id"].as_str().unwrap().to_owned();
    let form = json!({ "request_id": "i", "type": "BUSINESS", "label": "live" });
    let identity = reported.ask(&api, key, ("POST", "/v2/identities"), Some(form), 201).await;
    let identity = identity["id"].as_str().unwrap();
    let addresses = json!([{ "chains": [CHAIN], "address": address(0xd0).to_string() }]);
    let form = json!({ "request_id": "a", "identity_id": identity, "type": "SEGREGATED", "addresses": addresses });
    reported.ask(&api, key, ("POST", "/v2/accounts"), Some(form), 201).await;
    // This service has no signer, and alice is SEGREGATED.
    let form = json!({ "request_id": "b", "chains": [CHAIN] });
    reported.ask(&api, key, ("POST", "/v2/accounts/alice/addresses"), Some(form), 409).await;
    for (path, status) in [
        ("/v2/accounts", 200),
        ("/v2/accounts/alice", 200),
        ("/v2/accounts/alice/balances", 503),
        ("/v2/accounts/alice/coverage", 200),
        (&format!("/v2/identities/{identity}"), 200),
        ("/v2/assets", 200),
        ("/v2/crypto/deposits?account_id=alice", 200),
        (&format!("/v2/crypto/deposits/{deposit}"), 200),
        ("/v2/crypto/transfers?account_id=alice", 200),
        ("/v2/crypto/transfers/00000000-0000-8000-8000-000000000000", 404),
        ("/v2/transaction-limits/policies/00000000-0000-8000-8000-000000000000", 404),
        ("/v2/gas-credit", 200),
        ("/v2/events", 200),
        ("/v2/webhooks", 200),
        ("/v2/webhooks/unknown", 404),
        ("/docs/", 200),
        ("/openapi.json", 200),
    ] {
        reported.ask(&api, key, ("GET", path), None, status).await;
    }
    let form = json!({
        "request_id": "6d1f9f7e-3f0a-4f39-9c53-0f5a4a3b7d20", "account_id": "alice", "currency_symbol": "ETH",
        "amount": "0.000000000000000001",
        "address_destination": { "address": address(0xd0).to_string(), "chain": CHAIN },
    });
    reported.ask(&api, key, ("POST", "/v2/crypto/transfers"), Some(form), 422).await;
    let form =
        json!({ "url": "https://hook-name.example/hook-path?token=hook-token", "label": "hook", "ed25519": true });
    let made = reported.ask(&api, key, ("POST", "/v2/webhooks"), Some(form), 201).await;
    let path = format!("/v2/webhooks/{}", made["id"].as_str().unwrap());
    reported.ask(&api, key, ("GET", &path), None, 200).await;
    reported.ask(&api, key, ("POST", &format!("{path}/rotate-key")), None, 200).await;
    reported.ask(&api, key, ("POST", &format!("{path}/test")), Some(json!({})), 202).await;
    reported.ask(&api, key, ("POST", &format!("{path}/test")), Some(json!({ "event": "hook" })), 400).await;
    reported.ask(&api, key, ("DELETE", &path), None, 200).await;
    reported.ask(&api, key, ("DELETE", &path), None, 404).await;
}

/// A request that is signed as it must be, and the same one once more: who reads its token within its time may be the
/// first to send it.
async fn ask_signed(reported: &mut Output, port: u16) {
    let create = ["key", "create", "--name", "signing", "--scope", "read"];
    let key = reported.run_for(&create, &[0], |key| vec![key[16..59].to_owned()]).trim().to_owned();
    let pair = [&["key", "pair", "--public-key", "client.pem", &key[8..16]][..], &WHY].concat();
    let paired = reported.run(&pair, 0);
    let host = paired.trim_end().rsplit(' ').next().unwrap();
    let (path, secs) = ("/v2/assets", Clock::system().now().0 / 1_000_000);
    let claims = json!({
        "sub": key[8..16], "aud": host, "method": "GET", "uri": path, "bodyHash": hex::encode(Sha256::digest(b"")),
        "nonce": "0123456789abcdef", "iat": secs, "exp": secs + 60,
    });
    let signed = [r#"{"alg":"EdDSA","typ":"JWT"}"#, &claims.to_string()]
        .map(|part| BASE64_URL_SAFE_NO_PAD.encode(part))
        .join(".");
    let pair = Ed25519KeyPair::from_seed_unchecked(&hex::decode(PRIVATE_KEY).unwrap()).unwrap();
    let signature = BASE64_URL_SAFE_NO_PAD.encode(pair.sign(signed.as_bytes()));
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    for status in [200, 401] {
        let request = client.get(format!("http://127.0.0.1:{port}{path}")).bearer_auth(&key);
        let answer = request.header("x-request-signature", format!("{signed}.{signature}")).send().await.unwrap();
        assert_eq!(answer.status(), status);
        reported.of_others.push(format!("{:?}", answer.headers()));
        reported.of_others.push(answer.text().await.unwrap());
    }
    reported.secrets.push(signature);
}

/// Requests that are answered and refused; whatever came back, headers and all.
async fn ask_amiss(port: u16, admin: u16, key: &str) -> Vec<String> {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let api = format!("http://127.0.0.1:{port}");
    let admin = format!("http://127.0.0.1:{admin}");
    let list = "/v2/crypto/deposits?account_id=alice";
    let bearer = format!("Bearer {key}");
    let mistyped = format!("Bearer {}{}", &key[..64], if key.ends_with('x') { 'y' } else { 'x' });
    let hooks = format!("{api}/v2/webhooks");
    let hostile = r#"{"url":"ftp://canary-user:canary@127.0.0.1/canary","label":7}"#;
    let get = |url: String| client.get(url);
    let cases = [
        (get(format!("{api}{list}&limit=0")), bearer.as_str(), 400),
        (get(format!("{api}/nowhere")), &bearer, 404),
        (get(format!("{api}{list}")), &mistyped, 401),
        (get(format!("{api}{list}")), "Bearer canary-key", 401),
        (get(format!("{api}{list}")), "canary", 401),
        (client.post(hooks).header("content-type", "application/json").body(hostile), &bearer, 400),
        (get(format!("{api}{list}")).header("x-request-signature", "canary.canary.canary"), &mistyped, 401),
        (get(format!("{admin}/status")), "canary", 200),
        (get(format!("{admin}/readyz")), "canary", 200),
        (get(format!("{admin}/metrics")), "canary", 200),
    ];
    let mut said = Vec::new();
    for (request, authorization, status) in cases {
        let answer = request.header("authorization", authorization).send().await.unwrap();
        assert_eq!(answer.status(), status, "{}", answer.url());
        said.push(format!("{:?}", answer.headers()));
        said.push(answer.text().await.unwrap());
    }
    said
}
