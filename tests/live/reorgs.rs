//! Reorgs on a real node, by the rows of the catalogue of failures: the transactions are real, and so are their hashes.

use landfall::sandbox::token;
use landfall_chain::U256;
use serde_json::{Value, json};

use crate::contracts::{NOISE, PAY_BY_BLOCK, REVERT_ON_ODD_BLOCK, pay_by_block, pay_unless_odd, shout};
use crate::stage::{Engine, Service, Stage, address};

const ALICE: u8 = 0xa1;
const BOB: u8 = 0xb0;

async fn stage() -> (Stage, Service) {
    let stage = Stage::new(Engine::Sqlite).await;
    stage.set_up("alice", &address(ALICE)).await;
    let spec = format!("ETHEREUM_TESTNET={}", address(BOB));
    stage.ok(&["account", "add", "--account", "bob", "--type", "SEGREGATED", "--address", &spec]);
    let service = stage.start();
    stage.until_caught_up().await;
    (stage, service)
}

fn ids(deposits: &[Value]) -> Vec<String> {
    let mut ids: Vec<String> = deposits.iter().map(|deposit| deposit["id"].as_str().unwrap().to_owned()).collect();
    ids.sort_unstable();
    ids
}

#[tokio::test(flavor = "multi_thread")]
async fn r1_a_transaction_mined_again_with_shifted_log_indexes_keeps_its_ids_and_is_credited_once() {
    let (mut stage, _service) = stage().await;
    let legs = [(address(ALICE), U256::from(5_000_000)), (address(BOB), U256::from(7_000_000))];
    let paid = stage.call(stage.token, token::pay(&legs)).await;
    stage.node.mine(1).await.unwrap();
    let before = stage.until("two PENDING", |deposits| deposits.len() == 2).await;
    let tx = before[0]["transaction_hash"].clone();
    let first_log = async |stage: &Stage| {
        stage.node.rpc("eth_getTransactionReceipt", json!([tx])).await.unwrap()["logs"][0]["logIndex"].clone()
    };
    assert_eq!(first_log(&stage).await, "0x0");

    stage.node.reorg(1).await.unwrap();
    // Another account shouts first, so that the logs of the payment move behind its own.
    let other = stage.node.accounts().await.unwrap()[1];
    let noise =
        landfall::sandbox::anvil::TxRequest { from: other, nonce: 0, to: NOISE, value: U256::ZERO, data: shout(3) };
    stage.node.send(&noise).await.unwrap();
    stage.send_again(&paid).await;
    stage.node.mine(3).await.unwrap();
    let after = stage.until("two CONFIRMED", |d| d.len() == 2 && d.iter().all(|d| d["status"] == "CONFIRMED")).await;
    assert_eq!(ids(&after), ids(&before));
    assert_ne!(first_log(&stage).await, "0x0", "the indexes of its logs are others now");
    assert_eq!(stage.node.balance_of(&stage.token, &address(ALICE)).await.unwrap(), U256::from(5_000_000));
}

#[tokio::test(flavor = "multi_thread")]
async fn r2_the_same_transaction_in_another_block_pays_another_amount() {
    let (mut stage, _service) = stage().await;
    let paid = stage.call(PAY_BY_BLOCK, pay_by_block(&stage.token, &address(ALICE))).await;
    stage.node.mine(1).await.unwrap();
    let first = stage.until("a first amount", |deposits| deposits.len() == 1).await[0].clone();

    stage.node.reorg(1).await.unwrap();
    stage.node.mine(1).await.unwrap();
    stage.send_again(&paid).await;
    stage.node.mine(1).await.unwrap();
    let both = stage.until("a second amount", |deposits| deposits.len() == 2).await;
    assert!(both.iter().all(|d| d["status"] == "PENDING" && d["transaction_hash"] == first["transaction_hash"]));

    stage.node.mine(3).await.unwrap();
    let settled = stage.until("both settled", |d| d.iter().all(|d| d["status"] != "PENDING")).await;
    for deposit in settled {
        let expected = if deposit["id"] == first["id"] { "FAILED" } else { "CONFIRMED" };
        assert_eq!(deposit["status"], expected, "{deposit}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r3_an_orphaned_transaction_that_never_returns_fails_and_one_that_returns_is_confirmed() {
    let (mut stage, _service) = stage().await;
    stage.pay_token(address(ALICE), 3_000_000).await;
    stage.node.mine(1).await.unwrap();
    stage.until_status("3", "PENDING").await;
    stage.node.reorg(1).await.unwrap();
    // Other people's blocks go on; the payer's nonce stays unused, so only the grace can report.
    for _ in 0..40 {
        stage.node.mine(1).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    stage.until_status("3", "FAILED").await;

    stage.disconnect_to(1);
    let returning = stage.pay_token(address(ALICE), 4_000_000).await;
    stage.node.mine(1).await.unwrap();
    stage.until_status("4", "PENDING").await;
    stage.node.reorg(1).await.unwrap();
    stage.until_caught_up().await;
    stage.send_again(&returning).await;
    stage.node.mine(3).await.unwrap();
    stage.until_status("4", "CONFIRMED").await;
    assert_eq!(stage.deposits().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn r4_a_replaced_transaction_fails_when_the_winner_is_final() {
    let (mut stage, _service) = stage().await;
    stage.pay_token(address(ALICE), 3_000_000).await;
    stage.node.mine(1).await.unwrap();
    stage.until_status("3", "PENDING").await;
    stage.node.reorg(1).await.unwrap();
    stage.disconnect_to(1);
    stage.pay_token(address(BOB), 9_000_000).await;
    stage.node.mine(4).await.unwrap();
    stage.until_status("3", "FAILED").await;
    stage.until_status("9", "CONFIRMED").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r5_a_transaction_that_reverts_the_second_time_fails_at_finality() {
    let (mut stage, _service) = stage().await;
    if stage.node.block("latest").await.unwrap().number % 2 == 0 {
        stage.node.mine(1).await.unwrap();
    }
    let data = pay_unless_odd(&stage.token, &address(ALICE), 6_000_000);
    let paid = stage.call(REVERT_ON_ODD_BLOCK, data).await;
    stage.node.mine(1).await.unwrap();
    stage.until_status("6", "PENDING").await;
    stage.node.reorg(1).await.unwrap();
    stage.send_again(&paid).await;
    stage.node.mine(1).await.unwrap();
    stage.until_caught_up().await;
    assert_eq!(stage.deposits()[0]["status"], "PENDING", "it may flip back");
    stage.node.mine(3).await.unwrap();
    stage.until_status("6", "FAILED").await;
    assert_eq!(stage.node.balance_of(&stage.token, &address(ALICE)).await.unwrap(), U256::ZERO);
}

#[tokio::test(flavor = "multi_thread")]
async fn r6_a_reorg_below_finalized_halts_the_chain_and_says_what_to_do() {
    let (mut stage, mut service) = stage().await;
    stage.pay_token(address(ALICE), 3_000_000).await;
    stage.node.mine(3).await.unwrap();
    stage.until_status("3", "CONFIRMED").await;
    stage.node.reorg(5).await.unwrap();
    stage.node.mine(1).await.unwrap();
    let mut status = stage.status();
    for _ in 0..1_200 {
        if status["state"] == "halted" {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        status = stage.status();
    }
    assert_eq!(status["state"], "halted", "{status}");
    let reason = status["reason"].as_str().unwrap();
    assert!(
        reason.contains("was final and is no longer canonical") && reason.contains("1 confirmed deposits"),
        "{reason}"
    );
    assert_eq!(stage.run(&["health"]).status.code(), Some(1));
    assert_eq!(stage.deposits()[0]["status"], "CONFIRMED", "nothing is taken back silently");
    assert!(service.is_running(), "the other chains go on");

    // A person looks at the incident, and lets the chain go on without a restart.
    let incident: Value = serde_json::from_str(&stage.ok(&["incident", "list", "--json"])).unwrap();
    assert_eq!(incident["kind"], "post_finality_reorg", "{incident}");
    let reason = "compared with an independent node";
    stage.ok(&["chain", "override", "ETHEREUM_TESTNET", "accept-reorg", "--reason", reason]);
    stage.until_caught_up().await;
    // The decision resolves it, and names each deposit whose block was taken back.
    let incident: Value = serde_json::from_str(&stage.ok(&["incident", "list", "--json"])).unwrap();
    assert_eq!(incident["kind"], "over_credited", "{incident}");
    assert_eq!(incident["deposit_id"], stage.deposits()[0]["id"], "{incident}");
    stage.ok(&["incident", "resolve", incident["id"].as_str().unwrap(), "--reason", "taken back in the books"]);
    assert_eq!(stage.ok(&["incident", "list"]), "");
    assert_eq!(stage.deposits()[0]["status"], "CONFIRMED", "what was told stays told");
    stage.disconnect_to(1);
    stage.pay_token(address(ALICE), 4_000_000).await;
    stage.node.mine(3).await.unwrap();
    stage.until_status("4", "CONFIRMED").await;
    assert!(stage.ok(&["chain", "audit"]).contains(reason));
}

#[tokio::test(flavor = "multi_thread")]
async fn r6_what_a_confirmed_transaction_pays_after_a_reorg_below_finalized_is_never_credited_beside_it() {
    let (mut stage, mut service) = stage().await;
    let paid = stage.call(PAY_BY_BLOCK, pay_by_block(&stage.token, &address(ALICE))).await;
    stage.node.mine(3).await.unwrap();
    let confirmed = |deposits: &[Value]| deposits.iter().filter(|d| d["status"] == "CONFIRMED").count();
    let first = stage.until("a first amount CONFIRMED", |d| confirmed(d) == 1).await[0].clone();
    stage.node.reorg(5).await.unwrap();
    stage.node.mine(3).await.unwrap();
    until_halted(&stage, "was final and is no longer canonical").await;
    stage.ok(&["chain", "override", "ETHEREUM_TESTNET", "accept-reorg", "--reason", "compared with another node"]);
    stage.until_caught_up().await;

    // The same transaction, in another block: another amount. The first was reported, and stays; both would be too
    // much.
    stage.send_again(&paid).await;
    stage.node.mine(4).await.unwrap();
    let both = stage.until("the second amount", |deposits| deposits.len() == 2).await;
    let held = both.iter().find(|deposit| deposit["id"] != first["id"]).unwrap()["id"].as_str().unwrap().to_owned();
    let incidents = || -> Vec<Value> {
        stage.ok(&["incident", "list", "--json"]).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let is_about_it = |incident: &Value| incident["kind"] == "over_credited" && incident["deposit_id"] == *held;
    for _ in 0..1_200 {
        if incidents().iter().any(is_about_it) {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert!(incidents().iter().any(is_about_it), "{:?}", incidents());
    stage.node.mine(4).await.unwrap();
    stage.until_caught_up().await;
    let both = stage.deposits();
    assert_eq!((both.len(), confirmed(&both)), (2, 1), "{both:?}");
    let still = both.iter().find(|deposit| deposit["id"] == first["id"]).unwrap();
    assert_eq!((&still["status"], &still["amount"]), (&first["status"], &first["amount"]));
    assert!(both.iter().all(|deposit| deposit["transaction_hash"] == first["transaction_hash"]));
    assert!(service.is_running(), "{}", service.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn r11_what_only_replaced_blocks_hold_is_reported_and_the_end_is_that_of_a_straight_scan() {
    let (mut stage, service) = stage().await;
    // Bob is paid, and a block later nobody. Then both blocks are replaced, by as many: Bob's payment is gone, and the
    // lower one of the new holds one for Alice, whom no block named before.
    stage.pay_native(address(BOB), 3).await;
    stage.node.mine(2).await.unwrap();
    stage.until_status("0.000000000000000003", "PENDING").await;
    let newest = stage.node.block("latest").await.unwrap();
    let from = stage.node.accounts().await.unwrap()[1];
    let pays = json!({
        "from": from.to_string(),
        "to": address(ALICE).to_string(),
        "value": "0x5",
        "gas": "0x5208",
        "maxFeePerGas": "0x77359400",
        "maxPriorityFeePerGas": "0x0",
    });
    stage.node.rpc("anvil_reorg", json!([2, [[pays, 0]]])).await.unwrap();
    let replaced = stage.node.block("latest").await.unwrap();
    assert!(replaced.number == newest.number && replaced.hash != newest.hash, "{replaced} {newest}");
    stage.until_status("0.000000000000000005", "PENDING").await;
    // Another payment takes the nonce of Bob's, so that it can never return.
    stage.disconnect_to(1);
    stage.pay_native(stage.token, 0).await;
    stage.node.mine(4).await.unwrap();
    let settled = stage.until("both settled", |d| d.len() == 2 && d.iter().all(|d| d["status"] != "PENDING")).await;
    for deposit in &settled {
        let expected = if deposit["account_id"] == "alice" { "CONFIRMED" } else { "FAILED" };
        assert_eq!(deposit["status"], expected, "{deposit}");
    }
    assert_eq!(service.stop().0, Some(0));

    // Who reads the chain for the first time now finds what is CONFIRMED, and nothing else.
    stage.configure("sqlite:straight.db", "");
    for (account, who) in [("alice", ALICE), ("bob", BOB)] {
        let spec = format!("ETHEREUM_TESTNET={}", address(who));
        stage.ok(&["account", "add", "--account", account, "--type", "SEGREGATED", "--address", &spec]);
    }
    let _service = stage.start();
    let straight = stage.until("one CONFIRMED", |d| d.iter().any(|d| d["status"] == "CONFIRMED")).await;
    let confirmed: Vec<Value> = settled.into_iter().filter(|deposit| deposit["status"] == "CONFIRMED").collect();
    assert_eq!(ids(&straight), ids(&confirmed));
}

#[tokio::test(flavor = "multi_thread")]
async fn r12_a_stop_of_many_blocks_leaves_none_unread() {
    let (mut stage, service) = stage().await;
    stage.pay_token(address(ALICE), 1_000_000).await;
    stage.node.mine(1).await.unwrap();
    stage.until_status("1", "PENDING").await;
    service.kill();
    // At the beginning, in the middle and at the end of more than a few ticks read.
    for (before, amount) in [(1, 2_000_000), (700, 3_000_000), (700, 4_000_000)] {
        stage.node.mine(before).await.unwrap();
        stage.pay_token(address(ALICE), amount).await;
    }
    stage.node.mine(3).await.unwrap();
    let _service = stage.start();
    stage.until("four CONFIRMED", |d| d.len() == 4 && d.iter().all(|d| d["status"] == "CONFIRMED")).await;
}

async fn until_halted(stage: &Stage, reason: &str) {
    let halted = |status: &Value| status["state"] == "halted" && status["reason"].as_str().unwrap().contains(reason);
    let mut status = stage.status();
    for _ in 0..1_200 {
        if halted(&status) {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        status = stage.status();
    }
    panic!("not halted because {reason:?}: {status}");
}
