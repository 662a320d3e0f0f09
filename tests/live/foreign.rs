//! Somebody else has a copy of the keystore, and signs with a sponsor's real key, on a real node.

use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall::time::Clock;
use landfall_chain::{
    Address, AssetId, Carried, Carrier, Family, Intent, KeyPath, Route, SignRequest, SignedIntent, Signer as _, U256,
};
use landfall_signer::{Embedded, Passphrase, Policy, Sendable};
use serde_json::{Value, json};

use crate::stage::{Engine, address};
use crate::transfers::{Bench, PATIENCE};

const CHAIN: &str = "ETHEREUM_TESTNET";

impl Bench {
    fn sponsor(&self, number: usize) -> Value {
        let listed = self.stage.ok(&["sponsor", "list", "--json"]);
        serde_json::from_str(listed.lines().nth(number).unwrap()).unwrap()
    }

    async fn nonce(&self, of: &Address) -> u64 {
        let count = self.stage.node.rpc("eth_getTransactionCount", json!([of.to_string(), "latest"])).await.unwrap();
        u64::from_str_radix(count.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
    }

    /// Mines until it is as `wanted`.
    async fn mined_until(&self, what: &str, wanted: impl Fn() -> bool) {
        let begun = Instant::now();
        while !wanted() {
            assert!(begun.elapsed() < PATIENCE, "{what} did not come true\n{}", self.log());
            self.stage.node.mine(1).await.unwrap();
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }

    async fn is_confirmed(&self, nth: u32) {
        let id = self.send(nth, "1").await;
        let begun = Instant::now();
        while self.transfer(&id).await["status"] != "CONFIRMED" {
            assert!(begun.elapsed() < PATIENCE, "{}", self.log());
            self.stage.node.mine(1).await.unwrap();
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }

    fn health(&self) -> (Option<i32>, String) {
        let health = self.stage.run(&["health"]);
        (health.status.code(), String::from_utf8(health.stdout).unwrap())
    }

    /// A transaction of the first sponsor that this program knows nothing of: it carries what a wallet pays that is nobody's here.
    async fn stolen(&self, nonce: u64) -> Vec<u8> {
        let (from, to) = (self.stage.folder.path().join("keys"), self.stage.folder.path().join("stolen"));
        std::fs::create_dir(&to).unwrap();
        std::fs::set_permissions(&to, std::fs::metadata(&from).unwrap().permissions()).unwrap();
        for file in std::fs::read_dir(&from).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
        }
        let chain_id = self.stage.node.rpc("eth_chainId", json!([])).await.unwrap();
        let chain_id = u64::from_str_radix(chain_id.as_str().unwrap().trim_start_matches("0x"), 16).unwrap();
        let (chain_ref, asset) = (format!("eip155:{chain_id}"), AssetId::Token(self.stage.token));
        let route = Route::Erc3009 { name: "USD Coin".to_owned(), version: "2".to_owned() };
        let (assets, caps, cost_max) = (vec![(asset, route.clone())], Vec::new(), u128::MAX);
        let policy = Policy::new([Sendable { chain_ref: chain_ref.clone(), assets, caps, cost_max, refill_max: 0 }]);
        let passphrase = Passphrase::from_file(&self.stage.folder.path().join("passphrase")).unwrap();
        let now = || u64::try_from(Clock::system().now().0 / 1_000_000).unwrap();
        let thief = Embedded::open(&to, &passphrase, policy, Arc::new(now)).unwrap();
        let (wallet, path) =
            (KeyPath::of_wallet(Family::Evm, "mallory", ""), KeyPath::of_sponsor(Family::Evm, &chain_ref, 0));
        let payer = thief.addresses(&[wallet]).await.unwrap()[0];
        let intent = Intent {
            transfer_id: [7; 16],
            chain_ref,
            route,
            asset,
            payer,
            destination: address(0x66),
            amount: U256::from(1),
            deadline: now() + 300,
        };
        let request = SignRequest::Intent { path: wallet, intent: intent.clone(), heals: 0 };
        let signature = thief.sign(&[request]).await.unwrap().pop().unwrap().unwrap().bytes;
        let carried = Carried::Payment { signed: SignedIntent { intent, signature }, authorization: None };
        let (gas_limit, max_fee, tip) = (200_000, 50_000_000_000, 1_000_000_000);
        let carrier = Carrier { sponsor: self.sponsors[0], carried, nonce, gas_limit, max_fee, tip };
        thief.sign(&[SignRequest::Carrier { path, carrier }]).await.unwrap().pop().unwrap().unwrap().bytes
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sponsor_whose_real_key_somebody_else_uses_signs_nothing_more_until_it_is_released() {
    let bench = Bench::new(Engine::Postgres).await;
    let [first, second] = bench.sponsors[..] else { panic!("two sponsors") };
    bench.is_confirmed(1).await;
    assert_eq!(bench.health().0, Some(0), "{}", bench.health().1);
    let had = [bench.nonce(&first).await, bench.nonce(&second).await];
    let raw = format!("0x{}", hex::encode(bench.stolen(had[0]).await));
    bench.stage.node.rpc("eth_sendRawTransaction", json!([raw])).await.unwrap();
    let begun = Instant::now();
    bench.mined_until("quarantine", || bench.sponsor(0)["state"] == "quarantined").await;
    println!("quarantined {} ms after it was sent", begun.elapsed().as_millis());
    assert_eq!(bench.nonce(&first).await, had[0] + 1, "his transaction, with the real key");
    let (code, said) = bench.health();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("foreign_spend"), "{said}");
    // The other one carries all.
    for nth in 2..5 {
        bench.is_confirmed(nth).await;
    }
    assert_eq!([bench.nonce(&first).await, bench.nonce(&second).await], [had[0] + 1, had[1] + 3]);
    assert_eq!((bench.sponsor(0)["state"].clone(), bench.health().0), (json!("quarantined"), Some(1)));
    let reason = ["--chain", CHAIN, "--reason", "the copy is destroyed"];
    bench.stage.ok(&[&["sponsor", "release", "0"][..], &reason].concat());
    assert_eq!(bench.sponsor(0)["state"], "active");
    bench.stage.ok(&[&["sponsor", "pause", "1"][..], &reason].concat());
    bench.is_confirmed(5).await;
    assert_eq!([bench.nonce(&first).await, bench.nonce(&second).await], [had[0] + 2, had[1] + 3], "behind his nonce");
    bench.stage.ok(&[&["sponsor", "resume", "1"][..], &reason].concat());
    let (code, said) = bench.health();
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(bench.service.unwrap().stop().0, Some(0));
}
