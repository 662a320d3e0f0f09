//! The codes of `failure_details` that no other file shows, as the API reports them on a real node: each with its
//! reason. By the token's own log nothing was paid, and the money is free again.
//!
//! `strangers` uses some of it: the leap of the chain's clock, what is signed and waits, and what leaves alice later.

use std::time::{Duration, Instant};

use landfall::transfer::TransferId;
use landfall_chain::{Address, Chain, Family, Intent, KeyPath, SignRequest, Signer as _, U256};
use serde_json::{Value, json};
use sha3::{Digest as _, Keccak256};

use crate::contracts::{call, number, word};
use crate::foreign::now_secs;
use crate::stage::{Engine, address};
use crate::strangers::call_from_outside;
use crate::transfers::{Bench, PATIENCE};

/// Who is paid what was meant for bob.
const MALLORY: u8 = 0x66;
/// It reverts whatever it is asked, and is no listed delegate.
const STRANGE_CODE: &str = "0x5f5ffd";
/// keccak256("Transfer(address,address,uint256)")
const TRANSFER: &str = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef";
/// Where OpenZeppelin's ERC20Upgradeable keeps its balances (ERC-7201, `ERC20StorageLocation`).
const BALANCES: &str = "52c63247e1f47db19d5ce0460030c497f067ca4cebf71ba98eeadabe20bace00";
/// Beyond each deadline that there can be.
const LEAP_SECS: u64 = 400;

/// What left alice by the token's own log, in its order: who was paid, and how much.
pub(crate) async fn paid(bench: &Bench) -> Vec<(Address, u64)> {
    let topics = json!([TRANSFER, format!("{:#066x}", word(&bench.alice))]);
    let filter = json!({ "fromBlock": "0x0", "address": bench.stage.token.to_string(), "topics": topics });
    let logs = bench.stage.node.rpc("eth_getLogs", json!([filter])).await.unwrap();
    let of = |log: &Value| {
        let to = &log["topics"][2].as_str().unwrap()[26..];
        let amount = log["data"].as_str().unwrap().trim_start_matches("0x");
        (Address::parse(Family::Evm, &format!("0x{to}")).unwrap(), u64::from_str_radix(amount, 16).unwrap())
    };
    logs.as_array().unwrap().iter().map(of).collect()
}

/// The chain's clock leaps, and a final block is beyond each deadline.
pub(crate) async fn leap(bench: &Bench) {
    bench.stage.node.put_forward(LEAP_SECS).await.unwrap();
    bench.stage.node.mine(3).await.unwrap();
}

/// Further blocks come, and with them no payment of hers, and nothing of a sponsor.
pub(crate) async fn nothing_follows(bench: &Bench, left: &[(Address, u64)], sent: u64) {
    bench.stage.node.mine(3).await.unwrap();
    bench.stage.until_caught_up().await;
    assert_eq!((paid(bench).await, bench.sent().await), (left.to_vec(), sent), "{}", bench.log());
}

/// Waits until this keeps a transfer from being signed or carried.
pub(crate) async fn until_kept(bench: &Bench, id: &str, code: &str) {
    let (begun, kept) = (Instant::now(), format!("kept from being sent by {code}"));
    loop {
        let explained = bench.stage.ok(&["transfer", "explain", id]);
        if explained.contains(&kept) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{explained}\n{}", bench.log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Lets no sponsor carry anything new, or lets all go on: `pause`, `resume`.
pub(crate) fn sponsors(bench: &Bench, verb: &str) {
    for number in ["0", "1"] {
        bench.stage.ok(&["sponsor", verb, number, "--chain", "ETHEREUM_TESTNET", "--reason", "a test"]);
    }
}

/// A transfer that is signed, and waits until a sponsor may carry it.
pub(crate) async fn waiting(bench: &Bench, symbol: &str, amount: &str) -> String {
    sponsors(bench, "pause");
    let id = bench.send_of(1, symbol, amount).await;
    let begun = Instant::now();
    while bench.explained(&id)["intents"][0]["signed"] != true {
        assert!(begun.elapsed() < PATIENCE, "{:#}\n{}", bench.explained(&id), bench.log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(bench.transfer(&id).await["status"], "ACCEPTED");
    id
}

/// Nothing is signed for alice while her address has code that nobody lists: the token would ask that and not her key.
async fn put_code(bench: &Bench, code: &str) {
    bench.stage.node.set_code(&bench.alice, code).await.unwrap();
}

/// Transfers of these amounts that were accepted, and tried, and cannot be signed yet.
async fn accepted(bench: &Bench, amounts: [&str; 2]) -> [String; 2] {
    put_code(bench, STRANGE_CODE).await;
    let ids = [bench.send(1, amounts[0]).await, bench.send(2, amounts[1]).await];
    for id in &ids {
        bench.until_logged(&format!("transfer {id} is not signed: payer {} has code", bench.alice)).await;
        assert_eq!(bench.transfer(id).await["status"], "ACCEPTED");
        assert_eq!(bench.explained(id)["intents"], json!([]));
    }
    ids
}

/// Alice has so much of the token, by no transaction.
async fn set_balance(bench: &Bench, amount: u64) {
    let (token, balances) = (bench.stage.token, U256::from_str_radix(BALANCES, 16).unwrap());
    let key = [word(&bench.alice), balances].map(|part| part.to_be_bytes::<32>());
    let slot = hex::encode_prefixed(&Keccak256::digest(key.as_flattened())[..]);
    let stored = format!("{:#066x}", U256::from(amount));
    bench.stage.node.rpc("anvil_setStorageAt", json!([token.to_string(), slot, stored])).await.unwrap();
    assert_eq!(bench.stage.node.balance_of(&token, &bench.alice).await.unwrap(), U256::from(amount));
}

/// Waits until it has ended so: a client gets one event, no transaction stands with it, and nothing left alice.
async fn has_ended(bench: &Bench, id: &str, (status, code): (&str, &str), why: &str) {
    let ended = bench.until_status(id, status).await;
    let failure = &ended["failure_details"];
    assert_eq!((&failure["code"], &failure["transaction_hash"]), (&json!(code), &Value::Null), "{ended:#}");
    assert!(failure["reason"].as_str().unwrap().contains(why), "{failure}");
    assert_eq!(bench.explained(id)["intents"], json!([]), "it was never signed");
    let left = paid(bench).await;
    assert!(left.is_empty(), "{left:?}");
    bench.until_announced(id, &[status]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_operator_cancelled_or_stopped_before_its_signature_ends_with_proof_and_its_money_is_free() {
    let bench = Bench::new(Engine::Sqlite).await;
    let before = bench.sent().await;
    let [cancelled, stopped] = accepted(&bench, ["2.5", "4"]).await;
    bench.until_available("USDC", "3.5").await;
    let said = bench.stage.ok(&["transfer", "cancel", &cancelled, "--reason", "a test"]);
    assert!(said.contains("is not signed any more: it becomes FAILED"), "{said}");
    bench.stage.ok(&["sender", "halt", "--chain", "ETHEREUM_TESTNET", "--reason", "a test"]);
    // From here on only the operator keeps them from being signed.
    put_code(&bench, "0x").await;
    leap(&bench).await;
    has_ended(&bench, &cancelled, ("FAILED", "CANCELLED"), "an operator cancelled it; nothing was paid").await;
    has_ended(&bench, &stopped, ("DROPPED", "SENDER_STOPPED"), "an operator had stopped the sending").await;
    bench.until_available("USDC", "10").await;
    bench.stage.ok(&["sender", "resume", "--chain", "ETHEREUM_TESTNET", "--reason", "a test"]);
    nothing_follows(&bench, &[], before).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_accepted_and_cannot_be_paid_when_it_is_to_be_signed_fails_with_what_kept_it_and_its_money_is_free() {
    let bench = Bench::new(Engine::Postgres).await;
    let before = bench.sent().await;
    let [poor, frozen] = accepted(&bench, ["5", "2.5"]).await;
    // Enough for the second one alone.
    set_balance(&bench, 3_000_000).await;
    bench.stage.ok(&["identity", "suspend", "house", "--reason", "a test"]);
    put_code(&bench, "0x").await;
    until_kept(&bench, &poor, "INSUFFICIENT_FUNDS").await;
    until_kept(&bench, &frozen, "ACCOUNT_NOT_ACTIVE").await;
    leap(&bench).await;
    let why = format!("{} has 3000000 base units of the token, and 5000000 are to be paid", bench.alice);
    has_ended(&bench, &poor, ("FAILED", "INSUFFICIENT_FUNDS"), &why).await;
    has_ended(&bench, &frozen, ("FAILED", "ACCOUNT_NOT_ACTIVE"), "the account is not active any more").await;
    // No block took it from her, so none brings it back.
    set_balance(&bench, 10_000_000).await;
    bench.stage.ok(&["identity", "reinstate", "house", "--reason", "a test"]);
    bench.until_available("USDC", "10").await;
    nothing_follows(&bench, &[], before).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_with_which_the_payers_key_signed_something_else_is_used_already_once_that_is_final() {
    let bench = Bench::new(Engine::Sqlite).await;
    let before = bench.sent().await;
    let network = landfall_evm::network(Chain::EthereumTestnet).unwrap();
    let usdc = network.assets.into_iter().find(|asset| asset.symbol == "USDC").unwrap();
    let (chain_ref, asset, route) = (network.chain_ref, usdc.id, usdc.route.unwrap());
    // The journal in his copy knows nothing of the transfer. With it his signer would refuse.
    let thief = bench.thief(&chain_ref, vec![(asset, route.clone())]);
    let id = waiting(&bench, "USDC", "2.5").await;
    let account = bench.transfer(&id).await["account_id"].as_str().unwrap().to_owned();
    let path = KeyPath::of_wallet(Family::Evm, &account, "");
    let intent = Intent {
        transfer_id: *id.parse::<TransferId>().unwrap().0.as_bytes(),
        chain_ref,
        route,
        asset,
        payer: bench.alice,
        destination: address(MALLORY),
        amount: U256::from(1_000_000),
        deadline: now_secs() + 300,
    };
    let request = SignRequest::Intent { path, intent: intent.clone(), heals: 0 };
    let signature = thief.sign(&[request]).await.unwrap().pop().unwrap().unwrap().bytes;
    let theirs = call_from_outside(&bench, 3, &authorized(&intent, &signature)).await;
    bench.stage.node.mine(1).await.unwrap();
    bench.stage.until_caught_up().await;
    let mark = bench.explained(&id)["marks"][0].clone();
    assert_eq!((&mark["transaction_hash"], &mark["effect"]), (&theirs, &json!("paid")), "{}", bench.log());
    assert_eq!(bench.transfer(&id).await["status"], "ACCEPTED", "that block is not final yet");
    bench.stage.node.mine(2).await.unwrap();
    let failed = bench.until_status(&id, "FAILED").await;
    let failure = &failed["failure_details"];
    assert_eq!(
        (&failure["code"], &failure["transaction_hash"]),
        (&json!("INTENT_ALREADY_USED"), &theirs),
        "{failed:#}"
    );
    assert!(failure["reason"].as_str().unwrap().contains("used for something else"), "{failure}");
    // What was reserved is free; what he took is gone.
    bench.until_available("USDC", "9").await;
    bench.until_announced(&id, &["SUBMITTED", "FAILED"]).await;
    sponsors(&bench, "resume");
    nothing_follows(&bench, &[(address(MALLORY), 1_000_000)], before).await;
}

/// The call with which anybody may carry what was signed.
fn authorized(intent: &Intent, signature: &[u8]) -> String {
    let function = "transferWithAuthorization(address,address,uint256,uint256,uint256,bytes32,uint8,bytes32,bytes32)";
    let arguments = [
        word(&intent.payer),
        word(&intent.destination),
        intent.amount,
        number(0),
        number(intent.deadline),
        U256::from_be_bytes(intent.key().evm_nonce()),
        number(signature[64].into()),
        U256::from_be_slice(&signature[..32]),
        U256::from_be_slice(&signature[32..64]),
    ];
    call(function, &arguments)
}
