//! Secrets stay where they are: canaries in every place that may hold one, the real process at its most talkative, and
//! everything that it printed or answered searched for them.

use std::fs::File;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::stage::{Engine, Stage, address, binary, free_port};

/// In each part of an RPC URL, in a header, in a webhook's URL.
const CANARY: &str = "canary";
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
    let mut stage = Stage::new(Engine::Sqlite).await;
    stage.set_up("alice", &address(0xa1)).await;
    let [port, admin] = [free_port(), free_port()];
    stage.replace_in_config("[api]\nlisten = \"127.0.0.1:0\"", &format!("[api]\nlisten = \"127.0.0.1:{port}\""));
    stage.replace_in_config("[admin]\nlisten = \"127.0.0.1:0\"", &format!("[admin]\nlisten = \"127.0.0.1:{admin}\""));
    let node = stage.node.url().to_owned();
    let dead = "http://canary-user:canary-password@127.0.0.1:9/canary-path?key=canary-query#canary-fragment";
    let with_secrets = format!("{{ url = \"{dead}\", headers = {{ x-api-key = \"canary-header\" }} }}");
    let wake_up = "\"ws://127.0.0.1:9/canary-wake-up?key=canary\"";
    stage.replace_in_config(&format!("\"{node}\""), &format!("\"{node}\", {with_secrets}, {wake_up}"));

    let hook = "http://canary-user:canary@127.0.0.1:9/canary-hook?token=canary-token";
    let refused = stage.run(&["webhook", "add", "--url", hook, "--allow-private", "--json"]);
    let hook = "http://127.0.0.1:9/canary-hook?token=canary-token";
    let hook = stage.ok(&["webhook", "add", "--url", hook, "--allow-private", "--json"]);
    let hook: Value = serde_json::from_str(&hook).unwrap();
    let key = stage.ok(&["key", "create", "--name", "live"]).trim().to_owned();
    let secrets = [CANARY, &key[16..59], hook["secret"].as_str().unwrap().trim_start_matches("whsec_")];

    let log = stage.folder.path().join("talkative.log");
    let output = File::create(&log).unwrap();
    let mut command = Command::new(binary());
    command.current_dir(stage.folder.path()).arg("run").env("LANDFALL_LOG", "debug");
    let mut service = Talkative(command.stdout(output.try_clone().unwrap()).stderr(output).spawn().unwrap());
    stage.pay_native(address(0xa1), 7).await;
    stage.node.mine(3).await.unwrap();
    // The second endpoint is dead, so nothing is CONFIRMED; the webhook is dead, so its event waits.
    stage.until_status("0.000000000000000007", "PENDING").await;

    let mut said = vec![String::from_utf8_lossy(&refused.stderr).into_owned()];
    said.extend(ask(port, admin, &key).await);
    let begun = Instant::now();
    let log_now = || std::fs::read_to_string(&log).unwrap();
    while !(log_now().contains("answered") && log_now().contains("127.0.0.1:9")) {
        assert!(begun.elapsed() < PATIENCE, "neither requests nor the dead endpoint were logged: {}", log_now());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for command in
        [&["status"][..], &["status", "--json"], &["health"], &["key", "list"], &["deposit", "list", "--json"]]
    {
        let output = Command::new(binary())
            .current_dir(stage.folder.path())
            .args(command)
            .env("LANDFALL_LOG", "debug")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        said.push(String::from_utf8_lossy(&output.stdout).into_owned());
        said.push(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    assert!(service.0.try_wait().unwrap().is_none(), "it runs on: {}", log_now());
    let log = log_now();
    println!("{} bytes of log and {} bytes of answers", log.len(), said.iter().map(String::len).sum::<usize>());
    assert!(log.contains("DEBUG"), "nothing was logged at debug");
    for text in said.iter().chain([&log]) {
        for line in text.lines() {
            let told = secrets.iter().find(|secret| line.contains(**secret));
            assert_eq!(told, None, "a secret is told: {line}");
        }
    }
}

/// Requests that are answered and refused; whatever came back, headers and all.
async fn ask(port: u16, admin: u16, key: &str) -> Vec<String> {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let api = format!("http://127.0.0.1:{port}");
    let admin = format!("http://127.0.0.1:{admin}");
    let list = "/v2/crypto/deposits?account_id=alice";
    let bearer = format!("Bearer {key}");
    let mistyped = format!("Bearer {}{}", &key[..64], if key.ends_with('x') { 'y' } else { 'x' });
    let cases = [
        (format!("{api}{list}"), bearer.as_str(), 200),
        (format!("{api}{list}&limit=0"), &bearer, 400),
        (format!("{api}/nowhere"), &bearer, 404),
        (format!("{api}{list}"), &mistyped, 401),
        (format!("{api}{list}"), "Bearer canary-key", 401),
        (format!("{api}{list}"), "canary", 401),
        (format!("{admin}/status"), "canary", 200),
        (format!("{admin}/readyz"), "canary", 200),
    ];
    let mut said = Vec::new();
    for (url, authorization, status) in cases {
        let answer = client.get(&url).header("authorization", authorization).send().await.unwrap();
        assert_eq!(answer.status(), status, "{url}");
        said.push(format!("{:?}", answer.headers()));
        said.push(answer.text().await.unwrap());
    }
    said
}
