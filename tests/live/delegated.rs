//! Money out by a delegate, end to end: the native currency and tokens that take no signed authorizations, with MetaMask's
//! real contracts. What was paid is read from the node.

use std::time::{Duration, Instant};

use landfall::amount::to_decimal;
use landfall_chain::{Address, Family, U256};
use serde_json::{Value, json};

use crate::contracts::BIG_TOKEN;
use crate::delegate_contracts::{self, Contracts};
use crate::fiat_token;
use crate::stage::{Engine, Stage, address};
use crate::strangers::pooled;
use crate::transfers::{BOB, Bench, ETHER, PATIENCE, events};

/// A bench whose chain has the delegate's contracts, and on which alice has one ether.
pub(crate) async fn bench(stage: Stage) -> (Bench, Contracts) {
    let contracts = delegate_contracts::place(&stage).await;
    let mut bench = Bench::on(stage).await;
    bench.stage.pay_native(bench.alice, ETHER).await;
    bench.stage.node.mine(3).await.unwrap();
    bench.stage.until_status("1", "CONFIRMED").await;
    bench.until_available("ETH", "1").await;
    (bench, contracts)
}

async fn plain() -> (Bench, Contracts) {
    bench(Stage::new(Engine::Sqlite).await).await
}

impl Bench {
    pub(crate) async fn wei_of(&self, who: &Address) -> u64 {
        self.stage.node.balance(who).await.unwrap().try_into().unwrap()
    }

    /// Waits until the receiver was sent all of this.
    pub(crate) async fn until_announced(&self, id: &str, announced: &[&str]) {
        let begun = Instant::now();
        while events(self, id).len() < announced.len() {
            assert!(begun.elapsed() < PATIENCE, "{:?}\n{}", events(self, id), self.log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(events(self, id), announced);
    }

    pub(crate) async fn code_of(&self, who: &Address) -> String {
        let code = self.stage.node.rpc("eth_getCode", json!([who.to_string(), "latest"])).await.unwrap();
        code.as_str().unwrap().to_owned()
    }

    /// The newest transaction that a sponsor sent, once the pool has more than `before`.
    pub(crate) async fn until_carried(&self, before: u64) {
        self.until_sent(before, 1).await;
        self.stage.node.mine(3).await.unwrap();
    }

    pub(crate) async fn kind_of(&self, transfer: &Value) -> Value {
        let hash = transfer["transaction_hash"].clone();
        self.stage.node.rpc("eth_getTransactionByHash", json!([hash])).await.unwrap()["type"].clone()
    }

    pub(crate) async fn until_logged(&self, words: &str) {
        let begun = Instant::now();
        while !self.log().contains(words) {
            assert!(begun.elapsed() < PATIENCE, "{}", self.log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn native_currency_is_paid_once_while_a_sponsor_pays_the_gas_on_sqlite() {
    native_is_paid(Engine::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn native_currency_is_paid_once_while_a_sponsor_pays_the_gas_on_postgresql() {
    native_is_paid(Engine::Postgres).await;
}

async fn native_is_paid(engine: Engine) {
    let (bench, contracts) = bench(Stage::new(engine).await).await;
    let before = bench.sent().await;
    assert_eq!(bench.code_of(&bench.alice).await, "0x");
    let id = bench.send_of(1, "ETH", "0.25").await;
    bench.until_sent(before, 1).await;
    assert_eq!(bench.transfer(&id).await["status"], "SUBMITTED");
    bench.stage.node.mine(1).await.unwrap();
    let included = bench.until(&id, "included", |transfer| transfer["transaction_hash"] != "").await;
    assert_eq!(included["status"], "SUBMITTED");
    bench.stage.node.mine(2).await.unwrap();
    let confirmed = bench.until_status(&id, "CONFIRMED").await;
    assert_eq!(bench.wei_of(&address(BOB)).await, ETHER / 4, "once");
    assert_eq!(bench.wei_of(&bench.alice).await, ETHER - ETHER / 4, "she pays her amount and no gas");
    assert_eq!(bench.kind_of(&confirmed).await, "0x4", "it brought the authorization");
    let acting = format!("0xef0100{}", hex::encode(contracts.implementation.as_bytes()));
    assert_eq!(bench.code_of(&bench.alice).await, acting);
    assert_eq!(bench.sent().await, before + 1, "one attempt");
    bench.until_announced(&id, &["SUBMITTED", "INCLUDED", "CONFIRMED"]).await;
    // The delegate is still there, so the next one brings nothing beside. All that is left may go.
    let rest = bench.send_of(2, "ETH", "0.75").await;
    bench.until_carried(before + 1).await;
    let confirmed = bench.until_status(&rest, "CONFIRMED").await;
    assert_eq!(bench.kind_of(&confirmed).await, "0x2");
    assert_eq!((bench.wei_of(&address(BOB)).await, bench.wei_of(&bench.alice).await), (ETHER, 0));
    // What left her address is explained.
    let (code, _) = bench.service.unwrap().stop();
    assert_eq!(code, Some(0));
}

/// What a wallet pays with exactly so much gas to who runs no code.
const PLAIN_GAS: &str = "0x5208";

impl Bench {
    /// Pays alice from outside with exactly 21,000 gas, in a block of its own; whether it arrived.
    async fn deposit_with_plain_gas(&self, wei: u64) -> bool {
        let from = self.stage.node.accounts().await.unwrap()[2].to_string();
        let to = self.alice.to_string();
        let tx = json!([{ "from": from, "to": to, "value": format!("{wei:#x}"), "gas": PLAIN_GAS }]);
        let hash = self.stage.node.rpc("eth_sendTransaction", tx).await.unwrap();
        self.stage.node.mine(1).await.unwrap();
        let receipt = self.stage.node.rpc("eth_getTransactionReceipt", json!([hash])).await.unwrap();
        receipt["status"] == "0x1"
    }

    async fn nonce_of(&self, who: &Address) -> Value {
        self.stage.node.rpc("eth_getTransactionCount", json!([who.to_string(), "latest"])).await.unwrap()
    }
}

/// By which the enforcer of ids knows a transfer.
fn id_of(bench: &Bench, transfer: &str) -> [u8; 32] {
    let mut id = [0; 32];
    hex::decode_to_slice(bench.explained(transfer)["intent_key"].as_str().unwrap(), &mut id[..24]).unwrap();
    id
}

/// While the wallet has no code, somebody makes the calls of our carriers by himself: of one that paid, and of one that the pool
/// has. Both fail, and use no id.
async fn nobody_redeems(bench: &Bench, contracts: &Contracts, [paid, unpaid]: [&str; 2]) {
    let node = &bench.stage.node;
    let landed = json!([bench.transfer(paid).await["transaction_hash"]]);
    let landed = node.rpc("eth_getTransactionByHash", landed).await.unwrap();
    let waiting = pooled(bench, unpaid).await;
    // The node forgets it, with the authorization that it brings.
    node.rpc("anvil_dropTransaction", json!([waiting["hash"]])).await.unwrap();
    let have = async || [bench.wei_of(&bench.alice).await, bench.wei_of(&address(BOB)).await];
    let (had, mut theirs) = (have().await, Vec::new());
    for carrier in [landed, waiting] {
        assert_eq!(Address::parse(Family::Evm, carrier["to"].as_str().unwrap()).unwrap(), contracts.manager);
        theirs.push(contracts.call(&bench.stage, &contracts.manager, carrier["input"].as_str().unwrap()).await);
    }
    node.mine(1).await.unwrap();
    for hash in theirs {
        let receipt = node.rpc("eth_getTransactionReceipt", json!([hash])).await.unwrap();
        assert_eq!((&receipt["status"], &receipt["logs"]), (&json!("0x0"), &json!([])), "{receipt}");
    }
    let is_used = async |transfer: &str| {
        let id = id_of(bench, transfer);
        contracts.is_used(&bench.stage, &bench.alice, &id).await
    };
    assert_eq!([is_used(paid).await, is_used(unpaid).await], [true, false]);
    assert_eq!((have().await, bench.code_of(&bench.alice).await), (had, "0x".to_owned()));
    bench.stage.until_caught_up().await;
    assert_eq!(bench.transfer(unpaid).await["status"], "SUBMITTED");
    assert_eq!(bench.explained(unpaid)["marks"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_a_payment_the_delegate_is_gone_again_so_nobody_redeems_and_a_deposit_with_21000_gas_arrives() {
    let (bench, contracts) = plain().await;
    let (before, had) = (bench.sent().await, bench.sponsors_have().await);
    let id = bench.send_of(1, "ETH", "0.25").await;
    bench.until_carried(before).await;
    bench.until_status(&id, "CONFIRMED").await;
    assert_ne!(bench.code_of(&bench.alice).await, "0x");
    assert!(!bench.deposit_with_plain_gas(ETHER / 8).await, "her delegate's code takes gas");
    bench.until_sent(before, 2).await;
    bench.stage.node.mine(3).await.unwrap();
    assert_eq!(
        (bench.code_of(&bench.alice).await, bench.nonce_of(&bench.alice).await),
        ("0x".to_owned(), json!("0x2"))
    );
    let explained = bench.explained(&id);
    let purposes: Vec<&Value> = explained["attempts"].as_array().unwrap().iter().map(|it| &it["purpose"]).collect();
    assert_eq!(purposes, ["payment", "clearing"]);
    assert!(bench.deposit_with_plain_gas(ETHER / 8).await);
    bench.stage.node.mine(2).await.unwrap();
    bench.stage.until_status("0.125", "CONFIRMED").await;
    // Its customer bears both transactions, to the wei.
    let cost = to_decimal(had - bench.sponsors_have().await, 18);
    bench.until(&id, "both are booked", |transfer| transfer["network_fee"]["amount"] == cost).await;
    let gas = bench.stage.node.rpc("eth_getTransactionReceipt", json!([explained["attempts"][1]["transaction_hash"]]));
    println!("taking one delegate away used {} gas", gas.await.unwrap()["gasUsed"]);
    bench.until_available("ETH", "0.875").await;
    let second = bench.send_of(2, "ETH", "0.25").await;
    bench.until_sent(before, 3).await;
    nobody_redeems(&bench, &contracts, [&id, &second]).await;
    bench.until_carried(before + 2).await;
    let confirmed = bench.until_status(&second, "CONFIRMED").await;
    assert_eq!(bench.kind_of(&confirmed).await, "0x4", "it brought the authorization again");
    assert_eq!((bench.wei_of(&address(BOB)).await, bench.nonce_of(&bench.alice).await), (ETHER / 2, json!("0x3")));
    let (code, _) = bench.service.unwrap().stop();
    assert_eq!(code, Some(0));
}

/// It takes nothing from who pays for his own gas. Where somebody else does, it hashes half a megabyte.
const SLY: &str = "0x323314600e57620800005f2050005b00";

#[tokio::test(flavor = "multi_thread")]
async fn a_recipient_that_burns_a_sponsors_gas_is_found_out_before_anything_is_sent() {
    let (bench, _) = plain().await;
    let before = bench.sent().await;
    bench.stage.node.set_code(&address(BOB), SLY).await.unwrap();
    let id = bench.send_of(1, "ETH", "0.5").await;
    bench.until_logged("gas of a sponsor, and may take 300000").await;
    assert_eq!(bench.explained(&id)["intents"][0]["signed"], true, "it passed the trial");
    bench.stage.node.rpc("evm_increaseTime", json!([400])).await.unwrap();
    bench.stage.node.mine(3).await.unwrap();
    let failed = bench.until_status(&id, "FAILED").await;
    assert_eq!(failed["failure_details"]["code"], "SIMULATION_FAILED");
    assert_eq!((bench.sent().await, bench.wei_of(&bench.alice).await), (before, ETHER));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_without_signed_authorizations_is_paid_by_the_delegate_once() {
    let stage = Stage::new(Engine::Sqlite).await;
    let asset =
        format!("assets = [{{ symbol = \"BIG\", contract = \"{BIG_TOKEN}\", decimals = 6, delegate = true }}]\n");
    stage.configure(&stage.store, &asset);
    let (mut bench, _) = bench(stage).await;
    let mint = landfall::sandbox::token::mint(&bench.alice, U256::from(7_000_000));
    bench.stage.call(BIG_TOKEN, mint).await;
    bench.stage.node.mine(3).await.unwrap();
    bench.stage.until_status("7", "CONFIRMED").await;
    bench.until_available("BIG", "7").await;
    let before = bench.sent().await;
    let id = bench.send_of(1, "BIG", "2.5").await;
    bench.until_carried(before).await;
    let confirmed = bench.until_status(&id, "CONFIRMED").await;
    assert_eq!(bench.kind_of(&confirmed).await, "0x4");
    let of = async |who: Address| bench.stage.node.balance_of(&BIG_TOKEN, &who).await.unwrap();
    assert_eq!((of(address(BOB)).await, of(bench.alice).await), (U256::from(2_500_000), U256::from(4_500_000)));
    assert_eq!(bench.wei_of(&bench.alice).await, ETHER);
    bench.until_announced(&id, &["SUBMITTED", "INCLUDED", "CONFIRMED"]).await;
    assert_eq!(bench.sent().await, before + 1, "one attempt");
}

/// FiatToken asks the code of a payer that has some (ERC-1271), and the delegate's answers for the payer's key.
#[tokio::test(flavor = "multi_thread")]
async fn t19_the_real_usdc_is_still_sent_by_its_own_route_from_a_wallet_with_a_delegate() {
    let mut stage = Stage::new(Engine::Sqlite).await;
    fiat_token::place(&mut stage, "USDC").await;
    let (bench, _) = bench(stage).await;
    let before = bench.sent().await;
    let native = bench.send_of(1, "ETH", "0.5").await;
    bench.until_carried(before).await;
    bench.until_status(&native, "CONFIRMED").await;
    assert_ne!(bench.code_of(&bench.alice).await, "0x");
    let usdc = bench.send(2, "2.5").await;
    bench.until_carried(before + 1).await;
    bench.until_status(&usdc, "CONFIRMED").await;
    assert_eq!(bench.bobs().await, 2_500_000);
    assert_eq!(bench.explained(&usdc)["route"], "erc3009");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_native_payment_that_a_reorg_takes_back_is_carried_again_and_paid_once() {
    let (bench, _) = plain().await;
    let before = bench.sent().await;
    let id = bench.send_of(1, "ETH", "0.25").await;
    bench.until_sent(before, 1).await;
    bench.stage.node.mine(1).await.unwrap();
    bench.until(&id, "included", |transfer| transfer["transaction_hash"] != "").await;
    bench.stage.node.reorg(1).await.unwrap();
    assert_eq!(bench.code_of(&bench.alice).await, "0x", "the reorg took her delegate too");
    bench.stage.node.mine(1).await.unwrap();
    let explained = || bench.explained(&id);
    let begun = Instant::now();
    while !explained()["changes"].as_array().unwrap().iter().any(|change| change["evidence"] == "displaced") {
        assert!(begun.elapsed() < PATIENCE, "{:#}", explained());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let begun = Instant::now();
    while bench.transfer(&id).await["status"] != "CONFIRMED" {
        bench.stage.node.mine(1).await.unwrap();
        assert!(begun.elapsed() < PATIENCE, "{:#}", explained());
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert_eq!(bench.wei_of(&address(BOB)).await, ETHER / 4, "once");
    assert_eq!(bench.wei_of(&bench.alice).await, ETHER - ETHER / 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_native_payment_that_nobody_carried_is_dropped_with_proof_and_a_forged_use_changes_nothing() {
    let (bench, contracts) = plain().await;
    for number in ["0", "1"] {
        bench.stage.ok(&["sponsor", "pause", number, "--chain", "ETHEREUM_TESTNET", "--reason", "a test"]);
    }
    let id = bench.send_of(1, "ETH", "1").await;
    let begun = Instant::now();
    while bench.explained(&id)["intents"][0]["signed"] != true {
        assert!(begun.elapsed() < PATIENCE, "{:#}\n{}", bench.explained(&id), bench.log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let forged = contracts.forge(&bench.stage, &bench.alice, &id_of(&bench, &id)).await;
    bench.stage.node.mine(3).await.unwrap();
    let receipt = bench.stage.node.rpc("eth_getTransactionReceipt", json!([forged])).await.unwrap();
    assert_eq!((&receipt["status"], receipt["logs"].as_array().unwrap().len()), (&json!("0x1"), 1), "{receipt}");
    bench.stage.until_caught_up().await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(bench.transfer(&id).await["status"], "ACCEPTED");
    assert_eq!(bench.explained(&id)["marks"], json!([]));
    bench.stage.node.rpc("evm_increaseTime", json!([400])).await.unwrap();
    bench.stage.node.mine(3).await.unwrap();
    let dropped = bench.until_status(&id, "DROPPED").await;
    assert_eq!(dropped["failure_details"]["code"], "WINDOW_ELAPSED");
    assert_eq!((bench.wei_of(&address(BOB)).await, bench.wei_of(&bench.alice).await), (0, ETHER));
    bench.until_announced(&id, &["DROPPED"]).await;
}

/// It hashes half a megabyte: some 700,000 gas.
const GREEDY: &str = "0x620800005f205000";

#[tokio::test(flavor = "multi_thread")]
async fn a_recipient_that_takes_too_much_gas_is_paid_nothing() {
    let (bench, _) = plain().await;
    let before = bench.sent().await;
    bench.stage.node.set_code(&address(BOB), GREEDY).await.unwrap();
    let id = bench.send_of(1, "ETH", "0.5").await;
    bench.until_logged("more than the 300000 gas that it may take").await;
    bench.stage.node.rpc("evm_increaseTime", json!([400])).await.unwrap();
    bench.stage.node.mine(3).await.unwrap();
    let failed = bench.until_status(&id, "FAILED").await;
    assert_eq!(failed["failure_details"]["code"], "DESTINATION_REFUSED");
    assert_eq!((bench.sent().await, bench.explained(&id)["intents"].clone()), (before, json!([])));
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_manager_is_paused_nothing_is_signed_and_the_transfer_is_truly_dropped() {
    let (bench, contracts) = plain().await;
    contracts.pause(&bench.stage, true).await;
    let before = bench.sent().await;
    let id = bench.send_of(1, "ETH", "0.5").await;
    bench.until_logged("of the delegate is paused").await;
    bench.stage.node.rpc("evm_increaseTime", json!([400])).await.unwrap();
    bench.stage.node.mine(3).await.unwrap();
    let dropped = bench.until_status(&id, "DROPPED").await;
    assert_eq!(dropped["failure_details"]["code"], "NEVER_SIGNED");
    assert_eq!((bench.sent().await, bench.wei_of(&bench.alice).await), (before, ETHER));
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_signed_where_a_contract_of_the_delegate_or_the_payer_has_other_code() {
    let (bench, contracts) = plain().await;
    let before = bench.sent().await;
    let code = bench.code_of(&contracts.executions).await;
    bench.stage.node.set_code(&contracts.executions, &bench.code_of(&contracts.times).await).await.unwrap();
    let id = bench.send_of(1, "ETH", "0.25").await;
    bench.until_logged(&format!("executions {} of the delegate has other code", contracts.executions)).await;
    assert_eq!(bench.explained(&id)["intents"], json!([]));
    bench.stage.node.set_code(&contracts.executions, &code).await.unwrap();
    let strange = format!("0xef0100{}", hex::encode([0x57; 20]));
    bench.stage.node.set_code(&bench.alice, &strange).await.unwrap();
    bench.until_logged("has code that is no listed delegate's").await;
    assert_eq!(bench.explained(&id)["intents"], json!([]));
    bench.stage.node.set_code(&bench.alice, "0x").await.unwrap();
    bench.until_carried(before).await;
    bench.until_status(&id, "CONFIRMED").await;
    assert_eq!(bench.wei_of(&address(BOB)).await, ETHER / 4);
}
