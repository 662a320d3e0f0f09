//! What two endpoints report alike and was never paid: clients share mistakes, and the balances decide.
//!
//! anvil (revm of before July 2026) reports an earlier movement of value once more, as a SELFDESTRUCT frame, when a
//! contract that was there before destroys itself with itself as heir. The contracts are real. They are deployed by
//! transactions, because after `anvil_setCode` the proof of the block before does not verify.

use std::time::{Duration, Instant};

use landfall_chain::{Address, Family};
use serde_json::{Value, json};

use crate::proxy::Proxy;
use crate::stage::{Engine, Stage, address, pay_inside};

const ALICE: u8 = 0xa1;
const ETHER: &str = "0xde0b6b3a7640000";
/// ADDRESS, SELFDESTRUCT.
const DESTROYS_ITSELF: &str = "30ff";

/// The code of a call with all gas, of `value` (an instruction) and so many bytes of zeros.
fn call(to: &Address, value: &str, bytes: u8) -> String {
    format!("6000600060{bytes:02x}6000{value}73{}5af150", plain(to))
}

fn plain(address: &Address) -> String {
    address.to_string().trim_start_matches("0x").to_lowercase()
}

const NOTHING: &str = "6000";
const ITS_VALUE: &str = "34";

/// A contract that pays all that it has to `heir` when it is called with data, and keeps what it is paid otherwise.
fn forwarder(heir: &Address) -> String {
    format!("361560265760006000600060004773{}5af1505b00", plain(heir))
}

/// Deploys a contract with this code; its address.
async fn deploy(stage: &Stage, from: &Address, code: &str) -> Address {
    let length = code.len() / 2;
    let init = format!("0x61{length:04x}600e60003961{length:04x}6000f3{code}");
    let receipt = send(stage, json!({ "from": from.to_string(), "data": init, "gas": "0x100000" })).await;
    Address::parse(Family::Evm, receipt["contractAddress"].as_str().unwrap()).unwrap()
}

/// Sends and mines a transaction, which must succeed; its receipt.
async fn send(stage: &Stage, tx: Value) -> Value {
    let hash = stage.node.rpc("eth_sendTransaction", json!([tx])).await.unwrap();
    stage.node.mine(1).await.unwrap();
    let receipt = stage.node.rpc("eth_getTransactionReceipt", json!([hash])).await.unwrap();
    assert_eq!(receipt["status"], "0x1", "{receipt}");
    receipt
}

async fn pay(stage: &Stage, from: &Address, to: &Address) {
    send(stage, json!({ "from": from.to_string(), "to": to.to_string(), "value": ETHER, "gas": "0x100000" })).await;
}

/// A stage whose chain one node reports as two endpoints, with an account to deploy from and the contract that destroys
/// itself.
async fn stage() -> (Stage, Proxy, Address, Address) {
    let stage = Stage::new(Engine::Sqlite).await;
    let proxy = Proxy::start(stage.node.url()).await;
    let url = stage.node.url();
    stage.replace_in_config(&format!("[\"{url}\"]"), &format!("[\"{url}\", \"{}\"]", proxy.url));
    let from = stage.node.accounts().await.unwrap()[1];
    let destroys = deploy(&stage, &from, DESTROYS_ITSELF).await;
    send(&stage, json!({ "from": from.to_string(), "to": destroys.to_string() })).await;
    (stage, proxy, from, destroys)
}

fn of_status<'d>(deposits: &'d [Value], status: &str) -> Vec<&'d Value> {
    deposits.iter().filter(|deposit| deposit["status"] == status).collect()
}

async fn until_alarm(stage: &Stage, why: &str) -> String {
    let begun = Instant::now();
    loop {
        let status = stage.status();
        let alarm = status["traces_alarm"].as_str().unwrap_or_default();
        if alarm.contains(why) {
            return alarm.to_owned();
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{why}: {status}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_payment_that_both_endpoints_report_six_times_is_confirmed_once() {
    let (stage, _proxy, from, destroys) = stage().await;
    let alice = address(ALICE);
    let again = call(&destroys, NOTHING, 0);
    let pays = format!("{again}{}{}00", call(&alice, ITS_VALUE, 0), again.repeat(5));
    let pays = deploy(&stage, &from, &pays).await;
    stage.set_up("alice", &alice).await;
    let service = stage.start();
    stage.until_caught_up().await;
    pay(&stage, &from, &pays).await;
    let deposits = stage.until("six reports", |deposits| deposits.len() == 6).await;
    assert_eq!(of_status(&deposits, "PENDING").len(), 6, "{deposits:#?}");
    let owned = stage.node.rpc("eth_getBalance", json!([alice.to_string(), "latest"])).await.unwrap();
    assert_eq!(owned, ETHER, "one was paid");
    stage.node.mine(3).await.unwrap();
    let settled = |deposits: &[Value]| of_status(deposits, "PENDING").is_empty();
    let deposits = stage.until("all settled", settled).await;
    assert_eq!(
        (of_status(&deposits, "CONFIRMED").len(), of_status(&deposits, "FAILED").len()),
        (1, 5),
        "{deposits:#?}"
    );
    let excluded = of_status(&deposits, "FAILED")[0]["id"].as_str().unwrap();
    let refused = stage.run(&["deposit", "decide", excluded, "--confirm", "--reason", "they said so"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("is FAILED, which nobody changes"), "{refused:?}");
    stage.until_healthy().await;
    assert_eq!(service.stop().0, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_and_goes_through_a_contract_that_both_endpoints_report_four_times_waits_for_a_person() {
    let (stage, _proxy, from, destroys) = stage().await;
    let forwards = deploy(&stage, &from, &forwarder(&address(0x77))).await;
    let again = call(&destroys, NOTHING, 0);
    let (paid, flushed) = (call(&forwards, ITS_VALUE, 0), call(&forwards, NOTHING, 1));
    let pays = deploy(&stage, &from, &format!("{again}{paid}{}{flushed}{}00", again.repeat(3), again.repeat(3))).await;
    stage.set_up("alice", &forwards).await;
    let service = stage.start();
    stage.until_caught_up().await;
    pay(&stage, &from, &pays).await;
    let deposits = stage.until("four reports", |deposits| deposits.len() == 4).await;
    stage.node.mine(3).await.unwrap();
    let alarm = until_alarm(&stage, "runs code").await;
    assert!(deposits.iter().any(|it| alarm.contains(it["id"].as_str().unwrap())), "the alarm names the leg: {alarm}");
    assert_eq!(of_status(&stage.deposits(), "PENDING").len(), 4);
    let ids: Vec<&str> = deposits.iter().map(|it| it["id"].as_str().unwrap()).collect();
    stage.ok(&["deposit", "decide", ids[0], "--confirm", "--reason", "seen on another engine"]);
    for id in &ids[1..] {
        stage.ok(&["deposit", "decide", id, "--fail", "--reason", "seen on another engine"]);
    }
    let settled = |deposits: &[Value]| of_status(deposits, "PENDING").is_empty();
    let deposits = stage.until("all settled", settled).await;
    assert_eq!(
        of_status(&deposits, "CONFIRMED").iter().map(|it| it["id"].as_str().unwrap()).collect::<Vec<_>>(),
        [ids[0]]
    );
    assert_eq!(of_status(&deposits, "FAILED").len(), 3);
    let audit = stage.ok(&["chain", "audit"]);
    assert_eq!(audit.matches("decide_deposit").count(), 4, "{audit}");
    stage.until_healthy().await;
    // Between two decisions what the contract holds may be unexplained.
    service.kill();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_that_one_endpoint_leaves_out_is_confirmed_by_the_balances_when_it_is_reported_at_all() {
    let stage = Stage::new(Engine::Sqlite).await;
    let (alice, proxy) = (address(ALICE), Proxy::start(stage.node.url()).await);
    proxy.trace_instead(&alice, &address(0x55));
    let url = stage.node.url();
    stage.replace_in_config(&format!("[\"{url}\"]"), &format!("[\"{url}\", \"{}\"]", proxy.url));
    stage.set_up("alice", &alice).await;
    let service = stage.start();
    stage.until_caught_up().await;
    for wei in [3, 7] {
        pay_inside(&stage, &alice, wei).await;
        stage.node.mine(1).await.unwrap();
    }
    stage.node.mine(4).await.unwrap();
    let settled = |deposits: &[Value]| of_status(deposits, "CONFIRMED").len() == 2;
    let deposits = stage.until("both are CONFIRMED", settled).await;
    assert_eq!(deposits.len(), 2, "{deposits:#?}");
    assert_eq!(service.stop().0, Some(0));
}
