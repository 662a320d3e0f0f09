//! A listed token is what its contract says, on a real node: with other decimals, or without a contract, nothing of it
//! is CONFIRMED.

use std::time::{Duration, Instant};

use landfall::sandbox::token;
use landfall_chain::{Address, U256};
use serde_json::Value;

use crate::balances::Client;
use crate::contracts::FAKE_USDC;
use crate::stage::{Engine, Stage, address};

const PATIENCE: Duration = Duration::from_secs(60);
const ETHER: u64 = 1_000_000_000_000_000_000;

fn listing(symbol: &str, contract: &Address, decimals: u8) -> String {
    format!(
        "[[chains.ETHEREUM_TESTNET.assets]]\nsymbol = \"{symbol}\"\ndecimals = {decimals}\ncontract = \"{contract}\"\n"
    )
}

/// Waits for the only open incident: `asset_mismatch`.
async fn until_it_differs(stage: &Stage) -> Value {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        let open = stage.ok(&["incident", "list", "--json"]);
        if !open.is_empty() {
            let incident: Value = serde_json::from_str(&open).unwrap();
            assert_eq!(incident["kind"], "asset_mismatch", "{incident}");
            return incident;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("no incident: {:#?}", stage.deposits());
}

/// What `status` says of the asset with this symbol.
fn shown(stage: &Stage, symbol: &str) -> Value {
    let status = stage.status();
    let assets = status["assets"].as_array().unwrap();
    assets.iter().find(|asset| asset["symbol"] == symbol).unwrap_or_else(|| panic!("{symbol}: {status}")).clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_with_other_decimals_than_are_listed_is_confirmed_only_once_that_is_mended() {
    for engine in [Engine::Sqlite, Engine::Postgres] {
        let mut stage = Stage::new(engine).await;
        let alice = address(0xa1);
        stage.configure(&stage.store, &listing("WRONG", &FAKE_USDC, 18));
        stage.set_up("alice", &alice).await;
        let service = stage.start();
        stage.until_caught_up().await;
        // Five tokens, of which the contract says that they have six decimals.
        stage.call(FAKE_USDC, token::mint(&alice, U256::from(5_000_000))).await;
        stage.pay_native(alice, ETHER).await;
        stage.pay_token(alice, 7_000_000).await;
        stage.node.mine(4).await.unwrap();
        stage.until_status("1", "CONFIRMED").await;
        stage.until_status("7", "CONFIRMED").await;
        let incident = until_it_differs(&stage).await;
        stage.until_status("0.000000000005", "PENDING").await;
        let what = incident["what"].as_str().unwrap();
        let differs = format!("WRONG ({FAKE_USDC}): it has 6 decimals, and is listed with 18");
        assert!(what.contains(&differs), "{what}");
        assert_eq!(shown(&stage, "WRONG")["decimals"], 6);
        assert_eq!((&shown(&stage, "USDC")["decimals"], &shown(&stage, "USDC")["differs"]), (&6.into(), &"".into()));
        let health = stage.run(&["health"]);
        assert_eq!(health.status.code(), Some(1), "{}", String::from_utf8_lossy(&health.stdout));
        let held = stage.deposits().into_iter().find(|deposit| deposit["currency_symbol"] == "WRONG");
        let hash = held.unwrap()["transaction_hash"].as_str().unwrap().to_owned();
        let why = stage.ok(&["deposit", "explain", "ETHEREUM_TESTNET", &hash]);
        assert!(why.contains("asset_mismatch"), "{why}");

        // A restart changes nothing while nothing is mended, nor does it that the incident is resolved.
        stage.ok(&["incident", "resolve", incident["id"].as_str().unwrap(), "--reason", "overlooked"]);
        assert_eq!(service.stop().0, Some(0));
        let service = stage.start();
        stage.pay_native(alice, 2 * ETHER).await;
        stage.node.mine(4).await.unwrap();
        stage.until_status("2", "CONFIRMED").await;
        let again = until_it_differs(&stage).await;
        stage.until_status("0.000000000005", "PENDING").await;

        assert_eq!(service.stop().0, Some(0));
        stage.replace_in_config("decimals = 18", "decimals = 6");
        let service = stage.start();
        stage.until_status("5", "CONFIRMED").await;
        stage.ok(&["incident", "resolve", again["id"].as_str().unwrap(), "--reason", "mended"]);
        stage.until_healthy().await;
        let begun = Instant::now();
        while shown(&stage, "WRONG")["differs"] != "" {
            assert!(begun.elapsed() < PATIENCE, "{}", shown(&stage, "WRONG"));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(service.stop().0, Some(0));
        let mut announced = stage.receiver.log();
        announced.retain(|event| event.data["status"] == "CONFIRMED" && event.data["currency_symbol"] == "WRONG");
        let amounts: Vec<&Value> = announced.iter().map(|event| &event.data["amount"]).collect();
        assert_eq!(amounts, ["5"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listed_address_without_a_contract_is_an_incident_and_its_balance_is_not_known() {
    let stage = Stage::new(Engine::Sqlite).await;
    let (alice, nowhere) = (address(0xa1), address(0xdd));
    stage.configure(&stage.store, &listing("NONE", &nowhere, 6));
    stage.set_up("alice", &alice).await;
    let client = Client::new(&stage.ok(&["key", "create", "--name", "live"]), |listen| {
        stage.replace_in_config("[api]\nlisten = \"127.0.0.1:0\"", &format!("[api]\nlisten = \"{listen}\""));
    });
    let service = stage.start();
    stage.until_caught_up().await;
    let incident = until_it_differs(&stage).await;
    let what = incident["what"].as_str().unwrap();
    assert!(what.contains(&format!("NONE ({nowhere}): there is no contract at its address")), "{what}");
    let status = stage.ok(&["status"]);
    assert!(status.contains(&format!("NONE ({nowhere}): no contract; differs from the configuration: ")), "{status}");
    stage.node.mine(4).await.unwrap();
    client.until_unknown("alice", "NONE").await;
    assert_eq!(service.stop().0, Some(0));
}
