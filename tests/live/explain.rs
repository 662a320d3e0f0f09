//! `landfall deposit explain` on a real node: each leg with its verdict, and exit codes that mean something.

use landfall::sandbox::token;
use landfall_chain::U256;
use serde_json::{Value, json};

use crate::stage::{Engine, Stage, address};

const ALICE: u8 = 0xa1;
const BOB: u8 = 0xb0;

fn explained(stage: &Stage, hash: &str) -> Value {
    serde_json::from_str(&stage.ok(&["deposit", "explain", "ETHEREUM_TESTNET", hash, "--json"])).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_leg_of_a_transaction_is_explained_from_pending_to_credited() {
    let mut stage = Stage::new(Engine::Sqlite).await;
    stage.set_up("alice", &address(ALICE)).await;
    let service = stage.start();
    stage.until_caught_up().await;
    let twins = token::pay(&[(address(ALICE), U256::from(5_000_000)), (address(BOB), U256::from(7))]);
    stage.call(stage.token, twins).await;
    stage.node.mine(1).await.unwrap();
    let deposits = stage.until("one PENDING", |deposits| deposits.len() == 1).await;
    let hash = deposits[0]["transaction_hash"].as_str().unwrap();

    let reported = explained(&stage, hash);
    assert_eq!(reported["chain"], "ETHEREUM_TESTNET");
    assert_eq!((&reported["transaction_hash"], &reported["block"]["final"]), (&json!(hash), &json!(false)));
    let legs = reported["legs"].as_array().unwrap();
    let verdicts: Vec<(&Value, &Value)> = legs.iter().map(|leg| (&leg["verdict"], &leg["amount"])).collect();
    assert_eq!(verdicts, [(&json!("pending"), &json!("5")), (&json!("not_watched"), &json!("0.000007"))]);
    assert_eq!(legs[0]["deposit"]["id"], deposits[0]["id"]);
    assert_eq!(legs[0]["asset"], stage.token.to_string());

    stage.node.mine(3).await.unwrap();
    stage.until_status("5", "CONFIRMED").await;
    assert_eq!(explained(&stage, hash)["legs"][0]["verdict"], "credited");
    let table = stage.ok(&["deposit", "explain", "ETHEREUM_TESTNET", hash]);
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].starts_with(hash) && lines[0].ends_with("final"), "{table}");
    assert!(table.contains("credited             5 USDC from "), "{table}");

    let unknown = format!("0x{}", "ab".repeat(32));
    let output = stage.run(&["deposit", "explain", "ETHEREUM_TESTNET", &unknown, "--json"]);
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(1), [].as_slice()));
    assert_eq!(service.stop().0, Some(0));

    let Stage { node, folder, .. } = stage;
    drop(node);
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_landfall"))
        .current_dir(folder.path())
        .args(["deposit", "explain", "ETHEREUM_TESTNET", hash])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "a node that is down cannot tell: unknown is something else");
}
