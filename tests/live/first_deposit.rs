//! The first deposit, end to end: a real node, the real program, a signed webhook, the API.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use landfall::sandbox::token;
use landfall_chain::U256;
use serde_json::Value;

use crate::stage::{Engine, Service, Stage, address};

const ALICE: u8 = 0xa1;
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn deposits_go_from_block_to_webhook_and_api_on_sqlite() {
    from_block_to_webhook_and_api(Engine::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deposits_go_from_block_to_webhook_and_api_on_postgresql() {
    from_block_to_webhook_and_api(Engine::Postgres).await;
}

async fn from_block_to_webhook_and_api(engine: Engine) {
    let mut stage = Stage::new(engine).await;
    stage.set_up("alice", &address(ALICE)).await;
    let service = stage.start();
    stage.until_caught_up().await;

    stage.pay_native(address(ALICE), 1_500_000_000_000_000_000).await;
    let twins = token::pay(&[(address(ALICE), U256::from(5_000_000)), (address(ALICE), U256::from(5_000_000))]);
    stage.call(stage.token, twins).await;
    stage.node.mine(1).await.unwrap();
    let mined = Instant::now();
    stage.until("three PENDING", |deposits| deposits.iter().filter(|d| d["status"] == "PENDING").count() == 3).await;
    println!(
        "{engine:?}: PENDING {} ms after its block, polled every 50 ms and asked through the command line",
        mined.elapsed().as_millis()
    );

    stage.node.mine(2).await.unwrap();
    let deposits =
        stage.until("three CONFIRMED", |d| d.len() == 3 && d.iter().all(|d| d["status"] == "CONFIRMED")).await;
    let mut reported: Vec<(&str, &str)> =
        deposits.iter().map(|d| (d["amount"].as_str().unwrap(), d["currency_symbol"].as_str().unwrap())).collect();
    reported.sort_unstable();
    assert_eq!(reported, [("1.5", "ETH"), ("5", "USDC"), ("5", "USDC")]);
    assert_eq!(stage.node.balance_of(&stage.token, &address(ALICE)).await.unwrap(), U256::from(10_000_000));

    let log = arrived(&stage, 6).await;
    assert_eq!(stage.receiver.refused(), 0, "every signature holds");
    for deposit in &deposits {
        let statuses: Vec<&str> =
            log.iter().filter(|e| e.field("id") == deposit["id"]).map(|e| e.field("status")).collect();
        assert_eq!(statuses, ["PENDING", "CONFIRMED"], "in order");
    }
    let (code, took) = service.stop();
    assert_eq!(code, Some(0));
    assert!(took < PATIENCE, "SIGTERM took {took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_answers_with_a_key_and_health_turns_with_the_service() {
    let mut stage = Stage::new(Engine::Sqlite).await;
    stage.set_up("alice", &address(ALICE)).await;
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let path = stage.folder.path().join("landfall.toml");
    let config = std::fs::read_to_string(&path).unwrap();
    let config =
        config.replacen("[api]\nlisten = \"127.0.0.1:0\"", &format!("[api]\nlisten = \"127.0.0.1:{port}\""), 1);
    std::fs::write(&path, config).unwrap();
    let key = stage.ok(&["key", "create", "--name", "live"]);
    assert_eq!(stage.run(&["health"]).status.code(), Some(1), "nobody watches yet");

    let service = stage.start();
    stage.pay_native(address(ALICE), 7).await;
    stage.node.mine(3).await.unwrap();
    stage.until_status("0.000000000000000007", "CONFIRMED").await;
    stage.until_healthy().await;

    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let url = format!("http://127.0.0.1:{port}/v2/crypto/deposits?account_id=alice");
    assert_eq!(client.get(&url).send().await.unwrap().status(), 401);
    let answer = client.get(&url).header("authorization", format!("Bearer {}", key.trim())).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    let answer: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    assert_eq!(answer["deposits"], Value::Array(stage.deposits()), "the command line shows what the API shows");
    assert_eq!(answer["deposits"][0]["status"], "CONFIRMED");
    assert_eq!(service.stop().0, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_added_beside_the_running_service_is_matched_from_the_block_it_is_reported() {
    let mut stage = Stage::new(Engine::Sqlite).await;
    stage.set_up("alice", &address(ALICE)).await;
    let _service = stage.start();
    stage.until_caught_up().await;
    for who in 1..=10 {
        let spec = format!("ETHEREUM_TESTNET={}", address(who));
        stage.ok(&["account", "add", "--account", &format!("late-{who}"), "--type", "OMNIBUS", "--address", &spec]);
        stage.pay_native(address(who), 7).await;
        stage.node.mine(1).await.unwrap();
    }
    stage.until("ten late accounts", |deposits| deposits.len() == 10).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_proxy_of_the_environment_hears_of_an_event_or_of_a_node() {
    let mut stage = Stage::new(Engine::Sqlite).await;
    stage.set_up("alice", &address(ALICE)).await;
    let node = stage.node.url().to_owned();
    let wake_up = node.replace("http://", "ws://");
    stage.replace_in_config(&format!("\"{node}\""), &format!("\"{node}\", \"{wake_up}\""));
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    proxy.set_nonblocking(true).unwrap();
    let url = format!("http://{}", proxy.local_addr().unwrap());
    let names = ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];
    let mut variables = names.map(|name| (name, url.as_str())).to_vec();
    // Those may except this machine.
    variables.extend([("NO_PROXY", ""), ("no_proxy", "")]);
    let service = Service::start_with(stage.folder.path(), &variables);
    stage.pay_native(address(ALICE), 7).await;
    stage.node.mine(3).await.unwrap();
    let begun = Instant::now();
    let is_over = || stage.receiver.log().len() == 2 || begun.elapsed() > PATIENCE;
    // Whoever asked for the proxy waits there.
    let responses = loop {
        match proxy.accept() {
            Err(error) if error.kind() == ErrorKind::WouldBlock && !is_over() => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            responses => break responses.map(drop).map_err(|error| error.kind()),
        }
    };
    assert_eq!(responses, Err(ErrorKind::WouldBlock), "a proxy was asked: {}", service.log());
    assert_eq!(stage.receiver.log().len(), 2, "PENDING and CONFIRMED: {}", service.log());
}

/// Waits until the receiver has `count` events.
async fn arrived(stage: &Stage, count: usize) -> Vec<landfall::receiver::Received> {
    for _ in 0..1_200 {
        if stage.receiver.log().len() >= count {
            return stage.receiver.log();
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{} of {count} events arrived", stage.receiver.log().len());
}
