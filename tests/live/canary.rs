//! Secrets stay where they are: canaries in every place that may hold one, the real process at its most talkative, and
//! everything that it printed or answered searched for them.

use std::fs::File;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::stage::{Engine, Stage, address, binary, free_port};

/// In each part of an RPC URL, in a header, in the URL of a NATS server and its credentials, in the store's password, in
/// what is asked of the API.
const CANARY: &str = "canary";
/// Where the events of a webhook go is its owner's to see, and no log's.
const HOOK: &str = "http://127.0.0.2:9/hook-path?token=hook-token";
const OF_HOOK: [&str; 3] = ["127.0.0.2", "hook-path", "hook-token"];
/// What a NATS server is signed in with: a seed of zeros, with its checksum.
const SEED: &str = "SUAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAEQ";
/// The public key of RFC 8032's first test.
const PUBLIC_KEY: &str = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n-----END PUBLIC KEY-----\n";
const PATIENCE: Duration = Duration::from_secs(60);

/// A running service whose every line is kept; killed when dropped.
struct Talkative(std::process::Child);

impl Drop for Talkative {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_is_in_an_answer_or_a_log_however_much_is_logged() {
    let [port, admin] = [free_port(), free_port()];
    let mut stage = stage_of_secrets(port, admin).await;

    let hook = "http://canary-user:canary@127.0.0.1:9/canary-hook?token=canary-token";
    let refused = stage.run(&["webhook", "add", "--url", hook, "--allow-private", "127.0.0.0/8", "--json"]);
    let hook = stage.ok(&["webhook", "add", "--url", HOOK, "--allow-private", "127.0.0.0/8", "--json"]);
    let hook: Value = serde_json::from_str(&hook).unwrap();
    let key = stage.ok(&["key", "create", "--name", "live", "--scope", "read,webhooks"]).trim().to_owned();
    let mut secrets: Vec<String> = vec![CANARY.into(), SEED[8..].into(), key[16..59].into(), signing_key(&hook)];

    let log = stage.folder.path().join("talkative.log");
    let output = File::create(&log).unwrap();
    let mut command = Command::new(binary());
    command.current_dir(stage.folder.path()).arg("run").env("LANDFALL_LOG", "debug");
    let mut service = Talkative(command.stdout(output.try_clone().unwrap()).stderr(output).spawn().unwrap());
    stage.pay_native(address(0xa1), 7).await;
    stage.node.mine(3).await.unwrap();
    // The second endpoint is dead, so nothing is CONFIRMED; the webhook and NATS are dead, so its event waits.
    stage.until_status("0.000000000000000007", "PENDING").await;

    let mut said = vec![String::from_utf8_lossy(&refused.stderr).into_owned()];
    said.extend(ask(port, admin, &key).await);
    let begun = Instant::now();
    let log_now = || std::fs::read_to_string(&log).unwrap();
    let hook = hook["id"].as_str().unwrap();
    while !["answered", "127.0.0.1:9", "nats", hook].iter().all(|word| log_now().contains(word)) {
        assert!(begun.elapsed() < PATIENCE, "requests, the dead endpoint, NATS or the webhook: {}", log_now());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let rotated = stage.ok(&["webhook", "rotate", hook, "--reason", "a test", "--json"]);
    secrets.push(signing_key(&serde_json::from_str(&rotated).unwrap()));
    secrets.push(rotate(port, &key, hook).await);
    let event = stage.ok(&["event", "list", "--json"]);
    let event: Value = serde_json::from_str(event.lines().next().unwrap()).unwrap();
    let event = event["id"].as_str().unwrap();
    let deposit = &stage.deposits()[0];
    let [deposit, paid] = ["id", "transaction_hash"].map(|field| deposit[field].as_str().unwrap());
    let chain = "ETHEREUM_TESTNET";
    let commands: [&[&str]; 29] = [
        &["status"],
        &["status", "--json"],
        &["health"],
        &["account", "list"],
        &["identity", "add", "--identity", "acme", "--type", "BUSINESS"],
        &["identity", "suspend", "acme", "--reason", "a test"],
        &["identity", "show", "acme", "--json"],
        &["key", "list"],
        &["key", "pair", "--public-key", "client.pem", &key[8..16], "--reason", "a test"],
        &["deposit", "list", "--json"],
        &["deposit", "show", deposit],
        &["deposit", "unattributed"],
        &["deposit", "explain", chain, paid],
        &["deposit", "explain", chain, paid, "--json"],
        &["backfill", "--chain", chain, "--from", "0", "--to", "1"],
        &["rescan", "--chain", chain, "--from", "0", "--to", "1"],
        &["event", "list"],
        &["event", "list", "--pending", "--json"],
        &["event", "show", event, "--json"],
        &["event", "replay", event, "--reason", "a test", "--json"],
        &["webhook", "list"],
        &["webhook", "list", "--json"],
        &["webhook", "show", hook],
        &["webhook", "test", hook],
        &["webhook", "statuses"],
        &["incident", "list"],
        &["chain", "audit"],
        &["chain", "audit", "--json"],
        &["webhook", "remove", "nats", "--reason", "a test"],
    ];
    for command in commands {
        let output = Command::new(binary())
            .current_dir(stage.folder.path())
            .args(command)
            .env("LANDFALL_LOG", "debug")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let [told, warned] = [&output.stdout, &output.stderr].map(|said| String::from_utf8_lossy(said).into_owned());
        assert!(!warned.contains("Usage:"), "{command:?}: {warned}");
        said.extend([told, warned]);
    }
    assert!(service.0.try_wait().unwrap().is_none(), "it runs on: {}", log_now());
    let log = log_now();
    println!("{} bytes of log and {} bytes of answers", log.len(), said.iter().map(String::len).sum::<usize>());
    assert!(log.contains("DEBUG"), "nothing was logged at debug");
    for line in log.lines() {
        assert!(!OF_HOOK.iter().any(|part| line.contains(part)), "where a webhook's events go is logged: {line}");
    }
    for text in said.iter().chain([&log]) {
        for line in text.lines() {
            let told = secrets.iter().find(|secret| line.contains(*secret));
            assert_eq!(told, None, "a secret is told: {line}");
        }
    }
}

/// A stage with canaries wherever its configuration may hold a secret; the API and the operators' routes at these ports.
async fn stage_of_secrets(port: u16, admin: u16) -> Stage {
    let stage = Stage::new(Engine::Postgres).await;
    // The test's server asks nobody for a password.
    stage.replace_in_config("postgres://postgres@", "postgres://postgres:canary-store@");
    stage.set_up("alice", &address(0xa1)).await;
    stage.replace_in_config("[api]\nlisten = \"127.0.0.1:0\"", &format!("[api]\nlisten = \"127.0.0.1:{port}\""));
    stage.replace_in_config("[admin]\nlisten = \"127.0.0.1:0\"", &format!("[admin]\nlisten = \"127.0.0.1:{admin}\""));
    let node = stage.node.url().to_owned();
    let dead = "http://canary-user:canary-password@127.0.0.1:9/canary-path?key=canary-query#canary-fragment";
    let with_secrets = format!("{{ url = \"{dead}\", headers = {{ x-api-key = \"canary-header\" }} }}");
    let wake_up = "\"ws://127.0.0.1:9/canary-wake-up?key=canary\"";
    stage.replace_in_config(&format!("\"{node}\""), &format!("\"{node}\", {with_secrets}, {wake_up}"));
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

/// The signing key that a command tells once.
fn signing_key(told: &Value) -> String {
    told["secret"].as_str().unwrap().trim_start_matches("whsec_").to_owned()
}

/// A signing key that the API made.
async fn rotate(port: u16, key: &str, hook: &str) -> String {
    let url = format!("http://127.0.0.1:{port}/v2/webhooks/{hook}/rotate-key");
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let answer = client.post(url).bearer_auth(key).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    let answer: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    answer["signing_key"].as_str().unwrap().trim_start_matches("whsec_").to_owned()
}

/// Requests that are answered and refused; whatever came back, headers and all.
async fn ask(port: u16, admin: u16, key: &str) -> Vec<String> {
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
        (get(format!("{api}{list}")), bearer.as_str(), 200),
        (get(format!("{api}{list}&limit=0")), &bearer, 400),
        (get(format!("{api}/nowhere")), &bearer, 404),
        (get(format!("{api}{list}")), &mistyped, 401),
        (get(format!("{api}{list}")), "Bearer canary-key", 401),
        (get(format!("{api}{list}")), "canary", 401),
        (get(format!("{api}/v2/events")), &bearer, 200),
        (get(hooks.clone()), &bearer, 200),
        (client.post(hooks).header("content-type", "application/json").body(hostile), &bearer, 400),
        (get(format!("{api}{list}")).header("x-request-signature", "canary.canary.canary"), &mistyped, 401),
        (get(format!("{admin}/status")), "canary", 200),
        (get(format!("{admin}/readyz")), "canary", 200),
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
