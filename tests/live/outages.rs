//! Databases and nodes that are down, wrong or come back. A signer that is away: `transfers`.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::failure_codes::paid;
use crate::postgres::Server;
use crate::proxy::Proxy;
use crate::stage::{Engine, Service, Stage, address, node};
use crate::transfers::{BOB, Bench, PATIENCE, events};

const ALICE: u8 = 0xa1;

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_down_at_start_is_waited_for() {
    let server = Server::new();
    let mut stage = Stage::new(Engine::Sqlite).await;
    stage.configure(&server.url(), "");
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let path = stage.folder.path().join("landfall.toml");
    let admin = format!("[admin]\nlisten = \"127.0.0.1:{port}\"");
    let config = std::fs::read_to_string(&path).unwrap().replace("[admin]\nlisten = \"127.0.0.1:0\"", &admin);
    std::fs::write(&path, config).unwrap();
    let mut service = stage.start();
    until_logged(&mut service, "cannot connect to postgres://127.0.0.1:").await;
    assert_eq!(stage.run(&["health"]).status.code(), Some(2), "health cannot tell");
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let ask = async |what: &str| client.get(format!("http://127.0.0.1:{port}/{what}")).send().await.unwrap().status();
    assert_eq!(
        (ask("livez").await.as_u16(), ask("readyz").await.as_u16()),
        (200, 503),
        "alive, not ready: nobody should restart it"
    );

    server.start();
    let begun = Instant::now();
    while !stage.run(&["status"]).status.success() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{}", service.log());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    stage.set_up("alice", &address(ALICE)).await;
    stage.pay_native(address(ALICE), 7).await;
    stage.node.mine(3).await.unwrap();
    stage.until_status("0.000000000000000007", "CONFIRMED").await;
    for what in ["livez", "readyz", "status"] {
        assert_eq!(ask(what).await, 200, "{what}");
    }
    assert_eq!(service.stop().0, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_crashes_while_running_is_waited_for_and_nothing_is_lost() {
    let server = Server::new();
    server.start();
    let mut stage = Stage::new(Engine::Sqlite).await;
    stage.configure(&server.url(), "");
    stage.set_up("alice", &address(ALICE)).await;
    let mut service = stage.start();
    for round in 0..5 {
        stage.pay_native(address(ALICE), 7).await;
        stage.node.mine(1).await.unwrap();
        server.stop_at_once();
        stage.pay_native(address(ALICE), 7).await;
        stage.node.mine(3).await.unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(service.is_running(), "round {round}: {}", service.log());
        server.start();
    }
    stage.node.mine(3).await.unwrap();
    stage.until("ten CONFIRMED", |d| d.len() == 10 && d.iter().all(|d| d["status"] == "CONFIRMED")).await;
    assert_eq!(service.stop().0, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_asked_for_while_all_nodes_are_away_and_what_is_under_way_when_the_database_crashes_is_paid_once() {
    let server = Server::new();
    server.start();
    let stage = Stage::new(Engine::Sqlite).await;
    let proxy = Proxy::start(stage.node.url()).await;
    stage.configure(&server.url(), "");
    stage.replace_in_config(stage.node.url(), &proxy.url);
    let mut bench = Bench::on(stage).await;
    let before = bench.sent().await;

    proxy.be_away(true);
    let first = bench.send(1, "1").await;
    let begun = Instant::now();
    loop {
        let health = bench.stage.run(&["health", "--max-lag", "1s"]);
        let said = String::from_utf8(health.stdout).unwrap();
        if health.status.code() == Some(1) && said.contains("ETHEREUM_TESTNET: ") && said.contains(" s behind (") {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{said}\n{}", bench.log());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    bench.until_logged("transfers on ETHEREUM_TESTNET wait and will be tried again: the chain cannot be asked: ").await;
    assert_eq!(bench.transfer(&first).await["status"], "ACCEPTED");
    assert_eq!(bench.explained(&first)["intents"], json!([]), "it waits unsigned");
    // With an old newest block nothing is signed.
    bench.stage.node.mine(1).await.unwrap();
    proxy.be_away(false);
    bench.until_sent(before, 1).await;

    // One transaction is in the pool, and another is about to be made; the block takes in what is there.
    let second = bench.send(2, "2").await;
    server.stop_at_once();
    bench.stage.node.mine(1).await.unwrap();
    server.start();
    for id in [&first, &second] {
        let (path, begun) = (format!("/v2/crypto/transfers/{id}"), Instant::now());
        while bench.asked(&path).await.1["status"] != "CONFIRMED"
            || events(&bench, id).last().is_none_or(|event| event != "CONFIRMED")
        {
            assert!(begun.elapsed() < PATIENCE, "{:?}\n{}", events(&bench, id), bench.log());
            bench.stage.node.mine(1).await.unwrap();
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }
    let mut left = paid(&bench).await;
    left.sort_unstable_by_key(|(_, amount)| *amount);
    assert_eq!(left, [(address(BOB), 1_000_000), (address(BOB), 2_000_000)]);
    assert_eq!(bench.sent().await, before + 2, "one transaction for each");
    let mut service = bench.service.take().unwrap();
    assert!(service.is_running(), "{}", service.log());
    assert_eq!(service.stop().0, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_another_chain_ends_the_start_with_one_clear_line() {
    let stage = Stage::new(Engine::Sqlite).await;
    let other = node(stage.folder.path(), 1).await;
    let config = std::fs::read_to_string(stage.folder.path().join("landfall.toml")).unwrap();
    std::fs::write(stage.folder.path().join("landfall.toml"), config.replace(stage.node.url(), other.url())).unwrap();
    let output = stage.run(&["run"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    let last = said.lines().last().unwrap();
    let endpoint = other.url().trim_start_matches("http://");
    assert_eq!(
        last,
        format!(
            "landfall: endpoint {endpoint} serves chain id 1, but ETHEREUM_TESTNET is chain id 11155111; check chains.ETHEREUM_TESTNET.rpc"
        )
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_node_turns_its_chain_red_and_the_rest_runs() {
    let mut stage = Stage::new(Engine::Sqlite).await;
    stage.configure("sqlite:landfall.db", "[chains.ETHEREUM_MAINNET]\nrpc = [\"http://127.0.0.1:9/canary-key\"]\n");
    stage.set_up("alice", &address(ALICE)).await;
    let mut service = stage.start();
    until_logged(&mut service, "ETHEREUM_MAINNET cannot be read yet and will be tried again: ").await;
    stage.pay_native(address(ALICE), 7).await;
    stage.node.mine(3).await.unwrap();
    stage.until_status("0.000000000000000007", "CONFIRMED").await;

    let status: Value = serde_json::from_str(&stage.ok(&["status", "--json"])).unwrap();
    let red = status["chains"].as_array().unwrap().iter().find(|chain| chain["chain"] == "ETHEREUM_MAINNET").unwrap();
    assert_eq!(
        (red["state"].as_str(), red["endpoints"][0]["id"].as_str()),
        (Some("failing"), Some("127.0.0.1:9")),
        "{red}"
    );
    assert!(red["reason"].as_str().unwrap().contains("127.0.0.1:9"), "{red}");
    assert_eq!(red["endpoints"][0]["state"], "failing");
    assert_eq!(stage.run(&["health"]).status.code(), Some(1));
    assert!(!service.log().contains("canary"), "the path of a URL is a secret");
    assert_eq!(service.stop().0, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_that_is_taken_is_one_clear_line() {
    let stage = Stage::new(Engine::Sqlite).await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let path = stage.folder.path().join("landfall.toml");
    let config = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, config.replacen("listen = \"127.0.0.1:0\"", &format!("listen = \"{address}\""), 1)).unwrap();
    let output = stage.run(&["run"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    let expected = format!(
        "landfall: cannot listen on {address}: Address already in use (os error 98); api.listen sets another address"
    );
    assert_eq!(said.lines().last().unwrap(), expected);
}

async fn until_logged(service: &mut Service, what: &str) {
    let begun = Instant::now();
    while !service.log().contains(what) {
        assert!(
            service.is_running() && begun.elapsed() < Duration::from_secs(60),
            "{what:?} is not in {}",
            service.log()
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn p2_two_nodes_on_two_forks_confirm_nothing() {
    let mut stage = Stage::new(Engine::Sqlite).await;
    // The same chain id, and other blocks: each calls its own final.
    let elsewhere = tempfile::tempdir().unwrap();
    let other = node(elsewhere.path(), crate::stage::CHAIN_ID).await;
    other.mine(4).await.unwrap();
    let path = stage.folder.path().join("landfall.toml");
    let alone = std::fs::read_to_string(&path).unwrap();
    let one = format!("rpc = [\"{}\"]", stage.node.url());
    assert!(alone.contains(&one));
    std::fs::write(&path, alone.replace(&one, &format!("rpc = [\"{}\", \"{}\"]", stage.node.url(), other.url())))
        .unwrap();
    stage.set_up("alice", &address(ALICE)).await;
    let mut service = stage.start();
    stage.pay_native(address(ALICE), 7).await;
    for _ in 0..20 {
        stage.node.mine(2).await.unwrap();
        other.mine(1).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        let deposits = stage.deposits();
        assert!(deposits.iter().all(|deposit| deposit["status"] == "PENDING"), "{deposits:?}");
    }
    assert!(service.is_running(), "{}", service.log());
    assert_eq!(service.stop().0, Some(0));

    // Without the other one the same deposit is confirmed at once.
    std::fs::write(&path, alone).unwrap();
    let _service = stage.start();
    stage.until_status("0.000000000000000007", "CONFIRMED").await;
}
