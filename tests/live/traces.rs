//! Value that moves inside of transactions, on a real node that traces and behind one that does not.
//!
//! The second is the first one behind a proxy, which knows no method of `debug` and `trace`: anvil has no such setting.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::contracts::ROUTER;
use crate::proxy::Proxy;
use crate::stage::{Engine, Stage, address, pay_inside};

const ALICE: u8 = 0xa1;
const BOB: u8 = 0xb0;

#[tokio::test(flavor = "multi_thread")]
async fn what_a_contract_pays_inside_is_pending_and_then_confirmed_by_the_balances_with_one_endpoint() {
    let mut stage = Stage::new(Engine::Sqlite).await;
    stage.set_up("alice", &address(ALICE)).await;
    let service = stage.start();
    stage.until_caught_up().await;
    pay_inside(&stage, &address(ALICE), 7).await;
    stage.pay_token(address(ALICE), 5_000_000).await;
    stage.node.mine(1).await.unwrap();
    let deposits = stage.until("two PENDING", |deposits| deposits.len() == 2).await;
    assert!(deposits.iter().all(|deposit| deposit["status"] == "PENDING"), "{deposits:#?}");
    let inside = deposits.iter().find(|deposit| deposit["currency_symbol"] == "ETH").unwrap();
    assert_eq!(inside["source_address"], ROUTER.to_string());

    stage.node.mine(2).await.unwrap();
    stage.until_status("0.000000000000000007", "CONFIRMED").await;
    stage.until_status("5", "CONFIRMED").await;
    let status = until(&stage, "all traced", |status| status["traced"] == status["latest"]).await;
    assert_eq!((&status["traces_reason"], &status["traces_alarm"]), (&json!(""), &json!("")));
    let shown = stage.ok(&["status"]);
    assert!(shown.contains(&format!("native currency complete up to block {}", status["traced"])), "{shown}");
    stage.until_healthy().await;
    assert_eq!(service.stop().0, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_balances_exclude_fails_and_tokens_do_not_wait_for_it() {
    let mut stage = Stage::new(Engine::Sqlite).await;
    let proxy = Proxy::start(stage.node.url()).await;
    proxy.trace_instead(&address(BOB), &address(ALICE));
    stage.replace_in_config(stage.node.url(), &proxy.url);
    stage.set_up("alice", &address(ALICE)).await;
    let service = stage.start();
    stage.until_caught_up().await;
    pay_inside(&stage, &address(BOB), 7).await;
    stage.pay_token(address(ALICE), 5_000_000).await;
    stage.node.mine(3).await.unwrap();
    stage.until_status("5", "CONFIRMED").await;
    stage.until_status("0.000000000000000007", "FAILED").await;
    assert_eq!(service.stop().0, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_balances_of_who_gets_the_fees_of_the_block_confirm_nothing() {
    let stage = Stage::new(Engine::Sqlite).await;
    stage.set_up("alice", &address(ALICE)).await;
    let service = stage.start();
    stage.until_caught_up().await;
    pay_inside(&stage, &address(ALICE), 7).await;
    // [E9] The block's tips are hers, which no transaction and no trace reports.
    stage.node.rpc("anvil_setCoinbase", json!([address(ALICE).to_string()])).await.unwrap();
    stage.node.mine(1).await.unwrap();
    stage.node.rpc("anvil_setCoinbase", json!([address(0).to_string()])).await.unwrap();
    stage.node.mine(2).await.unwrap();
    until_alarm(&stage, "the fees of the block went to").await;
    stage.until_status("0.000000000000000007", "PENDING").await;
    assert_eq!(service.stop().0, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_without_traces_harms_no_token_says_why_and_top_level_silences_it() {
    let mut stage = Stage::new(Engine::Sqlite).await;
    let proxy = Proxy::start(stage.node.url()).await;
    proxy.refuse_traces(true);
    let config = stage.replace_in_config(stage.node.url(), &proxy.url);
    stage.set_up("alice", &address(ALICE)).await;
    let service = stage.start();
    stage.until_caught_up().await;
    let inside = pay_inside(&stage, &address(ALICE), 7).await;
    stage.pay_native(address(ALICE), 3).await;
    stage.pay_token(address(ALICE), 5_000_000).await;
    stage.node.mine(3).await.unwrap();
    stage.until_status("5", "CONFIRMED").await;
    stage.until_status("0.000000000000000003", "CONFIRMED").await;
    assert_eq!(stage.deposits().len(), 2, "what moved inside is not known");
    let reason = |status: &Value| status["traces_reason"].as_str().is_some_and(|reason| reason.contains("trace"));
    let status = until(&stage, "the reason", reason).await;
    assert!(
        status["traces_reason"].as_str().unwrap().contains("native = \"top_level\""),
        "it says what to do: {status}"
    );
    assert_eq!((&status["state"], &status["cursor"]), (&json!("following"), &status["latest"]), "{status}");
    let explained = explained(&stage, &inside);
    assert_eq!(explained["traces"]["state"], "unavailable", "{explained}");
    assert!(explained["legs"].as_array().unwrap().iter().all(|leg| leg["lane"] == "roots"), "{explained}");
    assert_eq!(service.stop().0, Some(0));

    let path = stage.folder.path().join("landfall.toml");
    std::fs::write(path, config.replace("poll_ms = 50", "poll_ms = 50\nnative = \"top_level\"")).unwrap();
    let service = stage.start();
    let silent = |status: &Value| status["traces_reason"] == "" && status["traced"].is_null();
    until(&stage, "silence", |status| silent(status) && status["state"] == "following").await;
    stage.until_healthy().await;
    assert_eq!(self::explained(&stage, &inside)["traces"]["state"], "not_traced");
    assert_eq!(stage.deposits().len(), 2);
    assert_eq!(service.stop().0, Some(0));
}

/// Waits until the chain's alarm of traces says why.
async fn until_alarm(stage: &Stage, why: &str) {
    let says_why = |status: &Value| status["traces_alarm"].as_str().is_some_and(|alarm| alarm.contains(why));
    until(stage, why, says_why).await;
}

fn explained(stage: &Stage, hash: &str) -> Value {
    serde_json::from_str(&stage.ok(&["deposit", "explain", "ETHEREUM_TESTNET", hash, "--json"])).unwrap()
}

/// Waits until the status of the chain is as `wanted`.
async fn until(stage: &Stage, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        let status = stage.status();
        if wanted(&status) {
            return status;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{what} did not come true: {status}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
