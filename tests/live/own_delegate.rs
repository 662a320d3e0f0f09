//! Money out by Landfall's own delegate, end to end on a private chain. What was paid is read from the node.

use std::time::{Duration, Instant};

use landfall::sandbox::delegate;
use landfall_chain::{Address, Delegate, U256};
use serde_json::json;

use crate::contracts::BIG_TOKEN;
use crate::delegate_contracts::Contracts;
use crate::stage::{Engine, Stage, address};
use crate::transfers::{BOB, Bench, ETHER, PATIENCE};
use crate::{delegated, fiat_token};

const OWN: Delegate = Delegate::Own { implementation: Address::Evm([0x5a; 20]) };
/// It reverts whatever it is asked.
const REVERTS: &str = "0x5f5ffd";

/// A bench whose chain has both delegates, and alice one ether and 7 BIG.
async fn bench() -> (Bench, Contracts) {
    let mut stage = Stage::new(Engine::Sqlite).await;
    let more = format!(
        "own_delegate = \"{}\"\nassets = [{{ symbol = \"BIG\", contract = \"{BIG_TOKEN}\", decimals = 6, delegate = true }}]\n",
        OWN.implementation()
    );
    stage.configure(&stage.store, &more);
    fiat_token::place(&mut stage, "USDC").await;
    let owner = stage.node.accounts().await.unwrap()[1];
    delegate::place(&stage.node, &OWN, &owner).await.unwrap();
    let (mut bench, contracts) = delegated::bench(stage).await;
    let mint = landfall::sandbox::token::mint(&bench.alice, U256::from(7_000_000));
    bench.stage.call(BIG_TOKEN, mint).await;
    bench.stage.node.mine(3).await.unwrap();
    bench.stage.until_status("7", "CONFIRMED").await;
    bench.until_available("BIG", "7").await;
    (bench, contracts)
}

impl Bench {
    /// Takes the own delegate, and has the time pass that the first signature waits for.
    async fn take_own(&self) {
        let arguments = ["sender", "delegate", "--chain", "ETHEREUM_TESTNET", "--set", "own", "--reason", "a test"];
        let taken = self.stage.ok(&arguments);
        assert!(taken.contains(&format!("are paid by {OWN}, in place of metamask")), "{taken}");
        self.stage.sqlite("UPDATE delegates SET since_us = since_us - 400000000").await;
    }

    /// Mines until the transfer has this status.
    async fn mine_until(&self, id: &str, status: &str) -> serde_json::Value {
        let begun = Instant::now();
        while self.transfer(id).await["status"] != status {
            self.stage.node.mine(1).await.unwrap();
            assert!(begun.elapsed() < PATIENCE, "{:#}\n{}", self.explained(id), self.log());
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        self.transfer(id).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn native_currency_and_a_token_are_paid_by_the_own_delegate_once_it_is_taken_and_usdc_goes_on() {
    let (bench, contracts) = bench().await;
    let acting = |of: &Address| format!("0xef0100{}", hex::encode(of.as_bytes()));
    let before = bench.sent().await;
    let earlier = bench.send_of(1, "ETH", "0.25").await;
    bench.until_carried(before).await;
    bench.until_status(&earlier, "CONFIRMED").await;
    assert_eq!(bench.code_of(&bench.alice).await, acting(&contracts.implementation));
    bench.take_own().await;
    let native = bench.send_of(2, "ETH", "0.25").await;
    bench.until_carried(before + 1).await;
    let confirmed = bench.until_status(&native, "CONFIRMED").await;
    assert_eq!(bench.kind_of(&confirmed).await, "0x4", "it brought another authorization");
    assert_eq!(bench.code_of(&bench.alice).await, acting(&OWN.implementation()));
    assert_eq!((bench.wei_of(&address(BOB)).await, bench.wei_of(&bench.alice).await), (ETHER / 2, ETHER / 2));
    let token = bench.send_of(3, "BIG", "2.5").await;
    bench.until_carried(before + 2).await;
    let confirmed = bench.until_status(&token, "CONFIRMED").await;
    assert_eq!(bench.kind_of(&confirmed).await, "0x2", "the delegate is there");
    let of = async |who: Address| bench.stage.node.balance_of(&BIG_TOKEN, &who).await.unwrap();
    assert_eq!((of(address(BOB)).await, of(bench.alice).await), (U256::from(2_500_000), U256::from(4_500_000)));
    // FiatToken asks the wallet's code (ERC-1271).
    let usdc = bench.send(4, "2.5").await;
    bench.until_carried(before + 3).await;
    bench.until_status(&usdc, "CONFIRMED").await;
    assert_eq!((bench.bobs().await, &bench.explained(&usdc)["route"]), (2_500_000, &json!("erc3009")));
    let routes = [&earlier, &native].map(|id| bench.explained(id)["route"].as_str().unwrap().to_owned());
    assert!(routes[0].starts_with("delegate metamask 0x63c0c19a"), "{routes:?}");
    assert_eq!(routes[1], format!("delegate {OWN}"));
    let status = bench.stage.ok(&["sender", "status"]);
    assert!(status.contains(&format!("wallets pay by {OWN}")), "{status}");
    let [metamask, first, later] =
        [bench.gas_of(&earlier).await, bench.gas_of(&native).await, bench.gas_of(&token).await];
    println!("gas: {metamask} by metamask, {first} of the first by own, {later} of a token by own");
    let (code, _) = bench.service.unwrap().stop();
    assert_eq!(code, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_that_the_own_delegate_settled_without_paying_is_failed_and_the_money_is_free() {
    let (bench, _) = bench().await;
    bench.take_own().await;
    let before = bench.sent().await;
    let id = bench.send_of(1, "BIG", "2.5").await;
    bench.until_sent(before, 1).await;
    let code = bench.code_of(&BIG_TOKEN).await;
    bench.stage.node.set_code(&BIG_TOKEN, REVERTS).await.unwrap();
    // The first has too little gas for a failure to count, so it uses nothing up, and the second settles it.
    let failed = bench.mine_until(&id, "FAILED").await;
    assert_eq!(failed["failure_details"]["code"], "REVERTED", "{failed:#}");
    let explained = bench.explained(&id);
    let attempts = explained["attempts"].as_array().unwrap().len();
    assert_eq!(attempts, 2, "{explained:#}");
    println!("a failure that counts used {} gas", bench.gas_of(&id).await);
    bench.stage.node.set_code(&BIG_TOKEN, &code).await.unwrap();
    let of = async |who: Address| bench.stage.node.balance_of(&BIG_TOKEN, &who).await.unwrap();
    assert_eq!((of(address(BOB)).await, of(bench.alice).await), (U256::ZERO, U256::from(7_000_000)));
    bench.until_available("BIG", "7").await;
    bench.until_announced(&id, &["SUBMITTED", "FAILED"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unlisted_delegate_cannot_be_taken() {
    let stage = Stage::new(Engine::Sqlite).await;
    let arguments = ["sender", "delegate", "--chain", "ETHEREUM_TESTNET", "--set", "own", "--reason", "a test"];
    let refused = stage.run(&arguments);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(
        !refused.status.success() && said.contains("lists no delegate \"own\"; expected one of: metamask"),
        "{said}"
    );
}
