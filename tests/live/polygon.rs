//! Polygon on a node that is no bor: what POL's own contract logs, beside what the chain would.

use landfall_chain::{Address, U256};
use serde_json::{Value, json};

use crate::contracts::{call, number, word};
use crate::stage::{Engine, Stage, address, node};

const AMOY_CHAIN_ID: u64 = 80_002;
const ALICE: u8 = 0xa1;
/// Where Polygon has the contract.
const POL: Address = Address::Evm([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0x10]);
const MRC20: &str = include_str!("../../nodes/contracts/Mrc20.json");

#[tokio::test(flavor = "multi_thread")]
async fn e17_what_pols_own_contract_logs_is_no_credit_beside_the_chains_log() {
    let stage = Stage::new(Engine::Sqlite).await;
    let amoy = node(stage.folder.path(), AMOY_CHAIN_ID).await;
    let config = format!(
        "[api]\nlisten = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n[chains.POLYGON_AMOY]\nrpc = [\"{}\"]\nstart = 0\n\
         poll_ms = 50\nfinality = \"finalized\"\n",
        amoy.url()
    );
    std::fs::write(stage.folder.path().join("landfall.toml"), config).unwrap();
    let spec = format!("POLYGON_AMOY={}", address(ALICE));
    stage.ok(&["account", "add", "--account", "alice", "--type", "SEGREGATED", "--address", &spec]);
    let compiled: Value = serde_json::from_str(MRC20).unwrap();
    amoy.set_code(&POL, compiled["runtime"].as_str().unwrap()).await.unwrap();
    amoy.rpc("anvil_setBalance", json!([POL.to_string(), "0xffff"])).await.unwrap();
    let payer = amoy.accounts().await.unwrap()[0];
    let mut sent = Vec::new();
    for (function, amount) in [("transfer(address,uint256)", 7), ("transferAsOnBor(address,uint256)", 8)] {
        let data = call(function, &[word(&address(ALICE)), number(amount)]);
        let request = json!({ "from": payer.to_string(), "to": POL.to_string(), "data": data });
        let hash = amoy.rpc("eth_sendTransaction", json!([request])).await.unwrap();
        amoy.mine(1).await.unwrap();
        sent.push(hash.as_str().unwrap().to_owned());
    }
    amoy.mine(3).await.unwrap();
    assert_eq!(amoy.balance(&address(ALICE)).await.unwrap(), U256::from(15));

    let service = stage.start();
    let deposits = stage.until("one CONFIRMED", |d| d.iter().any(|d| d["status"] == "CONFIRMED")).await;
    let reported: Vec<_> =
        deposits.iter().map(|d| [&d["amount"], &d["currency_symbol"], &d["source_address"]]).collect();
    assert_eq!(reported, [[&json!("0.000000000000000008"), &json!("POL"), &json!(POL.to_string())]]);
    assert_eq!(deposits[0]["transaction_hash"], sent[1]);
    // What bor did not log was not seen, and what the contract says of it is nothing.
    let verdicts = |hash: &str| -> Vec<Value> {
        let reported: Value =
            serde_json::from_str(&stage.ok(&["deposit", "explain", "POLYGON_AMOY", hash, "--json"])).unwrap();
        reported["legs"].as_array().unwrap().iter().map(|leg| leg["verdict"].clone()).collect()
    };
    assert!(verdicts(&sent[0]).iter().all(|verdict| verdict != "credited"), "{:?}", verdicts(&sent[0]));
    assert_eq!(verdicts(&sent[1]).iter().filter(|verdict| *verdict == "credited").count(), 1);
    assert_eq!(service.stop().0, Some(0));
}
