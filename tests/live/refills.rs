//! A sponsor below its floor, on a real node: the treasury refills it, and then it carries a payment.

use std::time::{Duration, Instant};

use landfall::amount::{from_decimal, to_decimal};
use landfall_chain::{Address, Family, U256};
use serde_json::{Value, json};

use crate::stage::{Engine, Stage};
use crate::transfers::{Bench, ETHER};

/// Longer than the sender waits between two checks of what sponsors own.
const PATIENCE: Duration = Duration::from_secs(150);
/// What sponsor 0 has left, in wei.
const LEFT: u64 = 12_345;

impl Bench {
    fn listed(&self, number: usize) -> Value {
        let listed = self.stage.ok(&["sponsor", "list", "--json"]);
        serde_json::from_str(listed.lines().nth(number).unwrap()).unwrap()
    }

    async fn count(&self, of: &Address) -> Value {
        self.stage.node.rpc("eth_getTransactionCount", json!([of.to_string(), "latest"])).await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sponsor_below_its_floor_is_refilled_by_the_treasury_and_then_carries_a_payment() {
    let stage = Stage::new(Engine::Postgres).await;
    stage.configure(&stage.store, "transfers = { floor = \"0.5\", refill_to = \"2\" }\n");
    let mut bench = Bench::on(stage).await;
    let chain = ["--chain", "ETHEREUM_TESTNET", "--reason", "a test"];
    bench.stage.ok(&[&["sponsor", "add", "--treasury"][..], &chain].concat());
    let listed = bench.listed(2);
    assert_eq!((&listed["role"], &listed["state"]), (&json!("treasury"), &json!("active")), "{listed}");
    let treasury = Address::parse(Family::Evm, listed["address"].as_str().unwrap()).unwrap();
    bench.stage.pay_native(treasury, 10 * ETHER).await;
    // One alone may carry, and has nothing to pay with.
    bench.stage.ok(&[&["sponsor", "pause", "1"][..], &chain].concat());
    let sponsor = bench.sponsors[0];
    let set = json!([sponsor.to_string(), format!("{LEFT:#x}")]);
    bench.stage.node.rpc("anvil_setBalance", set).await.unwrap();
    let id = bench.send(1, "2.5").await;
    let begun = Instant::now();
    while bench.stage.node.balance(&sponsor).await.unwrap() <= U256::from(LEFT) {
        assert!(begun.elapsed() < PATIENCE, "{}", bench.log());
        bench.stage.node.mine(1).await.unwrap();
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    println!("refilled after {} ms", begun.elapsed().as_millis());
    loop {
        bench.stage.node.mine(1).await.unwrap();
        let transfer = bench.transfer(&id).await;
        if transfer["status"] == "CONFIRMED" {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{transfer}\n{}", bench.log());
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert_eq!((bench.bobs().await, bench.count(&sponsor).await), (2_500_000, json!("0x1")));
    assert_eq!(bench.count(&treasury).await, json!("0x1"), "one refill");
    let shown: Value =
        serde_json::from_str(&bench.stage.ok(&["sponsor", "show", "0", "--chain", "ETHEREUM_TESTNET", "--json"]))
            .unwrap();
    let given = U256::from(2 * ETHER - LEFT);
    let [refill] = &shown["refills"].as_array().unwrap()[..] else { panic!("{shown}") };
    assert_eq!((&refill["state"], &refill["amount"]), (&json!("landed"), &json!(given.to_string())), "{shown}");
    let ledger = bench.stage.ok(&["gas", "ledger", "--json"]);
    let entries = ledger.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let costs: Vec<Value> = entries.filter(|entry| entry["route"] == "refill").collect();
    let [cost] = &costs[..] else { panic!("{costs:?}") };
    assert_eq!((&cost["borne_by"], &cost["transaction_hash"]), (&json!("PLATFORM"), &refill["transaction_hash"]));
    let fee = from_decimal(cost["amount"].as_str().unwrap(), 18).unwrap();
    let has = bench.stage.node.balance(&treasury).await.unwrap();
    assert_eq!(has + given + fee, U256::from(10 * ETHER), "to the wei");
    println!("the treasury gave {} ETH for {} ETH of gas", to_decimal(given, 18), to_decimal(fee, 18));
    let (code, _) = bench.service.unwrap().stop();
    assert_eq!(code, Some(0));
}
