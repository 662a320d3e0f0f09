//! Keys of ours that somebody else uses, on a real node: the sponsor or the wallet signs nothing more, and others go on.

use std::time::{Duration, Instant};

use landfall::sandbox::token;
use landfall_chain::{Address, U256};
use serde_json::{Value, json};

use crate::stage::{Engine, address};
use crate::transfers::{BOB, Bench, PATIENCE};

impl Bench {
    /// A transaction that `from` never asked us for: the node signs it in its name.
    async fn spend(&self, from: &Address, to: &Address, value: &str, data: &str) {
        let from = from.to_string();
        self.stage.node.rpc("anvil_impersonateAccount", json!([from])).await.unwrap();
        let tx = json!({ "from": from, "to": to.to_string(), "value": value, "data": data });
        self.stage.node.rpc("eth_sendTransaction", json!([tx])).await.unwrap();
        self.stage.node.mine(1).await.unwrap();
    }

    /// Waits until this many incidents of what nobody here signed are open.
    async fn until_foreign(&self, count: usize) -> String {
        let begun = Instant::now();
        loop {
            let open = self.stage.ok(&["incident", "list"]);
            if open.matches("foreign_spend").count() == count {
                return open;
            }
            assert!(begun.elapsed() < PATIENCE, "{open}\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn states(&self) -> Vec<String> {
        let lines = self.stage.ok(&["sponsor", "list", "--json"]);
        let state = |line: &str| serde_json::from_str::<Value>(line).unwrap()["state"].as_str().unwrap().to_owned();
        lines.lines().map(state).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn t13_a_sponsor_whose_key_somebody_else_uses_is_quarantined_by_its_nonce_and_another_carries() {
    let bench = Bench::new(Engine::Sqlite).await;
    let sponsor = bench.sponsors[0];
    bench.spend(&sponsor, &address(BOB), "0x1", "0x").await;
    // It is not final yet, and carries still; what it carries lands.
    let first = bench.send(1, "1").await;
    bench.stage.node.mine(3).await.unwrap();
    let open = bench.until_foreign(1).await;
    assert!(open.contains(&sponsor.to_string()) && open.contains("with nonce 0"), "{open}");
    assert_eq!(bench.states(), ["quarantined", "active"]);
    let before =
        bench.stage.node.rpc("eth_getTransactionCount", json!([sponsor.to_string(), "pending"])).await.unwrap();
    let second = bench.send(2, "1").await;
    let begun = Instant::now();
    for id in [&first, &second] {
        while bench.transfer(id).await["status"] != "CONFIRMED" {
            bench.stage.node.mine(1).await.unwrap();
            assert!(begun.elapsed() < PATIENCE, "{}", bench.log());
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }
    assert_eq!(bench.bobs().await, 2_000_000, "each once");
    let after = bench.stage.node.rpc("eth_getTransactionCount", json!([sponsor.to_string(), "pending"])).await.unwrap();
    assert_eq!(before, after, "the quarantined one signed nothing more");
    bench.stage.ok(&["sponsor", "release", "0", "--chain", "ETHEREUM_TESTNET", "--reason", "it was the test"]);
    bench.until_foreign(0).await;
    assert_eq!(bench.states(), ["active", "active"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wallet_that_lost_what_nobody_here_signed_pays_nothing_before_it_is_released() {
    let bench = Bench::new(Engine::Sqlite).await;
    let paid = bench.send(1, "1").await;
    bench.until_sent(0, 1).await;
    bench.stage.node.mine(3).await.unwrap();
    bench.until_status(&paid, "CONFIRMED").await;
    // Its own transaction, whose gas somebody gave it.
    let gas = json!([bench.alice.to_string(), "0xde0b6b3a7640000"]);
    bench.stage.node.rpc("anvil_setBalance", gas).await.unwrap();
    let theft = token::transfer(&address(0x77), U256::from(1_000_000));
    bench.spend(&bench.alice, &bench.stage.token, "0x0", &theft).await;
    bench.stage.node.mine(3).await.unwrap();
    let open = bench.until_foreign(2).await;
    assert!(open.contains(&bench.alice.to_string()), "{open}");
    let account = bench.get("/v2/accounts").await["accounts"][0]["id"].as_str().unwrap().to_owned();
    let body = json!({
        "request_id": "00000000-0000-4000-8000-000000000002", "account_id": account, "currency_symbol": "USDC",
        "amount": "1", "address_destination": { "address": address(BOB).to_string(), "chain": "ETHEREUM_TESTNET" },
    });
    let (status, problem) = bench.post("/v2/crypto/transfers", &body).await;
    assert_eq!((status, &problem["code"]), (409, &json!("ACCOUNT_NOT_ACTIVE")), "{problem}");
    bench.stage.ok(&["account", "release", &account, "--reason", "it was the test"]);
    bench.until_foreign(0).await;
    bench.until_available("USDC", "8").await;
    let next = bench.send(2, "1").await;
    bench.until_sent(1, 1).await;
    bench.stage.node.mine(3).await.unwrap();
    bench.until_status(&next, "CONFIRMED").await;
    assert_eq!(bench.bobs().await, 2_000_000);
}
