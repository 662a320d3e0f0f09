//! `landfall backfill` and `proof = "logs"` on a real node: what was paid before an address was added is found beside
//! the running service, and each deposit is credited and reported once.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use crate::stage::{Engine, Stage, address};

const ALICE: u8 = 0xa1;
const BOB: u8 = 0xb0;
const CHAIN: &str = "ETHEREUM_TESTNET";

#[tokio::test(flavor = "multi_thread")]
async fn deposits_from_before_an_address_was_added_are_found_beside_the_service_on_sqlite() {
    from_before_it_was_added(Engine::Sqlite, "receipts", &["--account", "bob"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deposits_from_before_an_address_was_added_are_found_by_logs_beside_the_service_on_postgresql() {
    from_before_it_was_added(Engine::Postgres, "logs", &["--address", &address(BOB).to_string()]).await;
}

async fn from_before_it_was_added(engine: Engine, proof: &str, scope: &[&str]) {
    let mut stage = Stage::new(engine).await;
    stage.set_up("alice", &address(ALICE)).await;
    let service = stage.start();
    stage.until_caught_up().await;
    stage.pay_native(address(BOB), 7).await;
    stage.pay_token(address(BOB), 5_000_000).await;
    stage.node.mine(1).await.unwrap();
    stage.pay_token(address(ALICE), 6_000_000).await;
    stage.node.mine(30).await.unwrap();
    stage.until_status("6", "CONFIRMED").await;
    stage.until_caught_up().await;

    let spec = format!("{CHAIN}={}", address(BOB));
    stage.ok(&["account", "add", "--account", "bob", "--type", "SEGREGATED", "--address", &spec]);
    let newest = stage.node.block("latest").await.unwrap().number;
    let refused = stage.run(&["backfill", "--chain", CHAIN, "--from", "0", "--to", &newest.to_string()]);
    let line = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(line.contains(&format!("block {newest} is not final yet; the newest final block is ")), "{line}");

    let to = stage.node.block("finalized").await.unwrap().number.to_string();
    let range = ["--chain", CHAIN, "--from", "0", "--to", &to, "--json"];
    let backfill = |more: &[&str]| -> Value {
        let arguments = [&["backfill"], range.as_slice(), &["--proof", proof], more].concat();
        serde_json::from_str(&stage.ok(&arguments)).unwrap()
    };
    assert_eq!(backfill(&["--dry-run"])["found"], 2);
    assert_eq!(stage.deposits().len(), 1);
    let of_alice = backfill(&["--dry-run", "--address", &address(ALICE).to_string()]);
    assert_eq!(of_alice["found"], 0, "what she was paid is on record, and Bob's payments are not hers");
    let done = backfill(scope);
    assert_eq!((&done["found"], &done["done"]), (&2.into(), &true.into()), "{done}");
    // By the backfill, or by the service beside it, whoever came first.
    assert!(stage.deposits().iter().all(|deposit| deposit["status"] == "CONFIRMED"), "{:?}", stage.deposits());
    assert_eq!(done["fees"], "read", "native movements are not logged here: transactions are read");
    assert_eq!(backfill(&[])["found"], 0);
    let rescan = stage.ok(&[&["rescan"], range.as_slice()].concat());
    assert_eq!(serde_json::from_str::<Value>(&rescan).unwrap()["found"], 0);

    // The service goes on, and now knows Bob too.
    stage.pay_native(address(BOB), 9).await;
    stage.node.mine(5).await.unwrap();
    stage.until_status("0.000000000000000009", "CONFIRMED").await;
    let deposits =
        stage.until("four CONFIRMED", |d| d.len() == 4 && d.iter().all(|d| d["status"] == "CONFIRMED")).await;
    for _ in 0..1_200 {
        if stage.receiver.log().len() >= 8 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let mut reported: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for event in stage.receiver.log() {
        reported.entry(event.field("id").to_owned()).or_default().push(event.field("status").to_owned());
    }
    assert_eq!(reported.len(), deposits.len());
    assert!(reported.values().all(|statuses| statuses == &["PENDING", "CONFIRMED"]), "{reported:?}");
    assert_eq!(service.stop().0, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chain_followed_by_logs_finds_the_same_deposits() {
    let mut stage = Stage::new(Engine::Sqlite).await;
    stage.configure("sqlite:landfall.db", "proof = \"logs\"\n");
    stage.set_up("alice", &address(ALICE)).await;
    let service = stage.start();
    stage.until_caught_up().await;
    stage.pay_native(address(ALICE), 7).await;
    stage.pay_token(address(ALICE), 5_000_000).await;
    stage.node.mine(1).await.unwrap();
    stage.pay_token(address(BOB), 6_000_000).await;
    stage.node.mine(5).await.unwrap();
    let deposits = stage.until("two CONFIRMED", |d| d.len() == 2 && d.iter().all(|d| d["status"] == "CONFIRMED")).await;
    let mut amounts: Vec<&str> = deposits.iter().map(|deposit| deposit["amount"].as_str().unwrap()).collect();
    amounts.sort_unstable();
    assert_eq!(amounts, ["0.000000000000000007", "5"]);
    assert_eq!(stage.status()["proof"], "bloom");
    assert_eq!(service.stop().0, Some(0));
}
