//! What others do behind our signature, on a real node: a stranger carries it himself, a token stops paying, or the
//! delegate's manager does. What was paid is read from the token's own log, and of ether from the node.

use landfall::amount::to_decimal;
use landfall_chain::Address;
use serde_json::{Value, json};

use crate::contracts::{call, word};
use crate::delegated;
use crate::failure_codes::{leap, nothing_follows, sponsors, until_kept, waiting};
use crate::stage::{Engine, Stage, address};
use crate::transfers::{BOB, Bench, ETHER};

/// Somebody from outside calls the token, by the node's account with this number: his transaction, which the next block
/// holds.
pub(crate) async fn call_from_outside(bench: &Bench, number: usize, data: &str) -> Value {
    let from = bench.stage.node.accounts().await.unwrap()[number].to_string();
    let tx = json!([{ "from": from, "to": bench.stage.token.to_string(), "data": data, "gas": "0x7a120" }]);
    bench.stage.node.rpc("eth_sendTransaction", tx).await.unwrap()
}

/// The first attempt of a transfer, as the node's pool shows it to everybody.
pub(crate) async fn pooled(bench: &Bench, id: &str) -> Value {
    let hash = bench.explained(id)["attempts"][0]["transaction_hash"].clone();
    let pool = bench.stage.node.rpc("txpool_content", json!([])).await.unwrap();
    let mut pending = pool["pending"].as_object().unwrap().values().flat_map(|of| of.as_object().unwrap().values());
    pending.find(|tx| tx["hash"] == hash).cloned().unwrap_or_else(|| panic!("{hash} is not in {pool:#}"))
}

/// The node forgets it, as nodes do, and gets it again behind what came meanwhile: it mines in the order of arrival.
async fn comes_again(bench: &Bench, ours: &Value, before: u64) {
    let forgotten = bench.stage.node.rpc("anvil_dropTransaction", json!([ours["hash"]])).await.unwrap();
    assert_eq!(forgotten, ours["hash"]);
    bench.until_sent(before, 1).await;
}

async fn receipt(bench: &Bench, hash: &Value) -> Value {
    bench.stage.node.rpc("eth_getTransactionReceipt", json!([hash])).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn t27_what_a_stranger_takes_from_the_pool_pays_once_and_our_own_carrier_fails_for_nothing() {
    let bench = Bench::with_real_usdc().await;
    bench.stage.ok(&["gas", "price", "set", "ETH", "3000", "--reason", "a test"]);
    let (before, had) = (bench.sent().await, bench.sponsors_have().await);
    let id = bench.send(1, "2.5").await;
    bench.until_sent(before, 1).await;
    let ours = pooled(&bench, &id).await;
    let signed = ours["input"].as_str().unwrap();
    let theirs = call_from_outside(&bench, 3, signed).await;
    comes_again(&bench, &ours, before).await;
    bench.stage.node.mine(3).await.unwrap();
    let confirmed = bench.until_status(&id, "CONFIRMED").await;
    assert_eq!(confirmed["transaction_hash"], theirs, "whoever carried it");
    let [of_theirs, of_ours] = [receipt(&bench, &theirs).await, receipt(&bench, &ours["hash"]).await];
    assert_eq!((&of_theirs["status"], &of_ours["status"]), (&json!("0x1"), &json!("0x0")), "{of_ours}");
    assert_eq!(of_theirs["blockNumber"], of_ours["blockNumber"], "ours came behind it");
    let explained = bench.explained(&id);
    assert_eq!(explained["attempts"].as_array().unwrap().len(), 1, "{explained:#}");
    assert_eq!(explained["marks"].as_array().unwrap().len(), 1, "{explained:#}");
    let (fee, cost) = (&confirmed["network_fee"], to_decimal(had - bench.sponsors_have().await, 18));
    assert_eq!((&fee["amount"], &fee["charged_to"]), (&json!(cost), &json!("PLATFORM")), "{fee}");
    bench.until_announced(&id, &["SUBMITTED", "INCLUDED", "CONFIRMED"]).await;
    bench.until_available("USDC", "7.5").await;
    // Once more, from somebody else.
    let again = call_from_outside(&bench, 4, signed).await;
    nothing_follows(&bench, &[(address(BOB), 2_500_000)], before + 1).await;
    assert_eq!(receipt(&bench, &again).await["status"], "0x0");
    assert_eq!(bench.transfer(&id).await["status"], "CONFIRMED");
    bench.stage.until_healthy().await;
    assert_eq!(bench.service.unwrap().stop().0, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn t27_a_carrier_that_a_pause_made_fail_for_nothing_is_followed_by_another_that_pays_once() {
    let mut bench = Bench::with_real_usdc().await;
    let (before, token) = (bench.sent().await, bench.stage.token);
    let id = bench.send(1, "2.5").await;
    bench.until_sent(before, 1).await;
    let ours = pooled(&bench, &id).await;
    bench.stage.call(token, call("pause()", &[])).await;
    comes_again(&bench, &ours, before).await;
    bench.stage.node.mine(1).await.unwrap();
    bench.stage.until_caught_up().await;
    let failed = receipt(&bench, &ours["hash"]).await;
    assert_eq!(failed["status"], "0x0", "{failed}");
    assert_eq!(bench.transfer(&id).await["status"], "SUBMITTED");
    assert_eq!(bench.explained(&id)["marks"], json!([]));
    bench.stage.call(token, call("unpause()", &[])).await;
    bench.stage.node.mine(1).await.unwrap();
    bench.until_sent(before, 2).await;
    bench.stage.node.mine(3).await.unwrap();
    bench.until_status(&id, "CONFIRMED").await;
    nothing_follows(&bench, &[(address(BOB), 2_500_000)], before + 2).await;
    bench.until_announced(&id, &["SUBMITTED", "INCLUDED", "CONFIRMED"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_signed_when_the_real_usdc_is_paused_is_never_carried_and_fails_on_proof() {
    let (stop, go_on) = (|_: &Address| call("pause()", &[]), |_: &Address| call("unpause()", &[]));
    is_never_carried((stop, go_on), "paused").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_signed_when_the_real_usdc_blacklists_its_payer_is_never_carried_and_fails_on_proof() {
    let stop = |payer: &Address| call("blacklist(address)", &[word(payer)]);
    let go_on = |payer: &Address| call("unBlacklist(address)", &[word(payer)]);
    is_never_carried((stop, go_on), "blacklisted").await;
}

/// The token's owner stops what is signed, and lets the token go on when it has ended. `why`: the token's own reason.
async fn is_never_carried((stop, go_on): (impl Fn(&Address) -> String, impl Fn(&Address) -> String), why: &str) {
    let mut bench = Bench::with_real_usdc().await;
    let (before, token, payer) = (bench.sent().await, bench.stage.token, bench.alice);
    let id = waiting(&bench, "USDC", "2.5").await;
    bench.stage.call(token, stop(&payer)).await;
    bench.stage.node.mine(1).await.unwrap();
    sponsors(&bench, "resume");
    until_kept(&bench, &id, "SIMULATION_FAILED").await;
    leap(&bench).await;
    has_failed(&bench, &id, why).await;
    bench.until_available("USDC", "10").await;
    bench.stage.call(token, go_on(&payer)).await;
    nothing_follows(&bench, &[], before).await;
    bench.until_announced(&id, &["FAILED"]).await;
}

/// Waits until it has failed because the chain would refuse it, which no transaction had to show.
async fn has_failed(bench: &Bench, id: &str, why: &str) {
    let failed = bench.until_status(id, "FAILED").await;
    let failure = &failed["failure_details"];
    assert_eq!(
        (&failure["code"], &failure["transaction_hash"]),
        (&json!("SIMULATION_FAILED"), &Value::Null),
        "{failed:#}"
    );
    let reason = failure["reason"].as_str().unwrap();
    assert!(reason.contains(why) && reason.ends_with("nothing was paid"), "{reason}");
    assert_eq!(bench.explained(id)["attempts"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_signed_when_the_manager_is_paused_is_never_carried_and_fails_on_proof() {
    let (bench, contracts) = delegated::bench(Stage::new(Engine::Sqlite).await).await;
    let before = bench.sent().await;
    let id = waiting(&bench, "ETH", "0.5").await;
    contracts.pause(&bench.stage, true).await;
    sponsors(&bench, "resume");
    until_kept(&bench, &id, "SIMULATION_FAILED").await;
    leap(&bench).await;
    has_failed(&bench, &id, "revert").await;
    bench.until_available("ETH", "1").await;
    contracts.pause(&bench.stage, false).await;
    nothing_follows(&bench, &[], before).await;
    assert_eq!((bench.wei_of(&address(BOB)).await, bench.wei_of(&bench.alice).await), (0, ETHER));
    assert_eq!(bench.code_of(&bench.alice).await, "0x", "not even its authorization was used");
    bench.until_announced(&id, &["FAILED"]).await;
}
