//! Somebody else has a copy of the keystore, and signs with the real key of a sponsor or of a wallet, on a real node.

use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall::sandbox::token;
use landfall::time::Clock;
use landfall_chain::{
    Address, AssetId, Carried, Carrier, Family, Intent, KeyPath, Refill, Route, SignRequest, SignedIntent, Signer as _,
    U256,
};
use landfall_evm::pay;
use landfall_signer::{Embedded, Passphrase, Policy, Sendable};
use serde_json::{Value, json};

use crate::raw_keys;
use crate::stage::{CHAIN_ID, Engine, address};
use crate::transfers::{BOB, Bench, ETHER, PATIENCE};

const CHAIN: &str = "ETHEREUM_TESTNET";

/// Seconds since 1970.
pub(crate) fn now_secs() -> u64 {
    u64::try_from(Clock::system().now().0 / 1_000_000).unwrap()
}

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
        self.mined_until_confirmed(&id).await;
    }

    async fn mined_until_confirmed(&self, id: &str) {
        let begun = Instant::now();
        while self.transfer(id).await["status"] != "CONFIRMED" {
            assert!(begun.elapsed() < PATIENCE, "{}", self.log());
            self.stage.node.mine(1).await.unwrap();
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }

    /// The id of the account that was opened last.
    async fn newest_account(&self) -> String {
        self.get("/v2/accounts").await["accounts"][0]["id"].as_str().unwrap().to_owned()
    }

    /// Another account, that has 5 USDC; its id.
    async fn open_another_account(&mut self) -> String {
        let carol = json!({ "request_id": "carol", "identity_id": "house", "type": "SEGREGATED" });
        let (status, carol) = self.post("/v2/accounts", &carol).await;
        assert_eq!(status, 201, "{carol}");
        let derived = Address::parse(Family::Evm, carol["addresses"][0]["address"].as_str().unwrap()).unwrap();
        self.stage.call(self.stage.token, token::mint(&derived, U256::from(5_000_000))).await;
        self.stage.node.mine(3).await.unwrap();
        self.stage.until_status("5", "CONFIRMED").await;
        let (account, begun) = (carol["id"].as_str().unwrap().to_owned(), Instant::now());
        let balances = format!("/v2/accounts/{account}/balances?symbol=USDC");
        while self.asked(&balances).await.1["balances"][0]["available"] != "5" {
            assert!(begun.elapsed() < PATIENCE, "{}", self.log());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        account
    }

    /// What is answered to the request for 1 USDC of this account, once what it has is known.
    async fn answer_to(&self, account: &str, nth: u32) -> (u16, Value) {
        let body = json!({
            "request_id": format!("00000000-0000-4000-8000-{nth:012}"),
            "account_id": account,
            "currency_symbol": "USDC",
            "amount": "1",
            "address_destination": { "address": address(BOB).to_string(), "chain": CHAIN },
        });
        let begun = Instant::now();
        loop {
            let (status, answer) = self.post("/v2/crypto/transfers", &body).await;
            if status != 503 {
                return (status, answer);
            }
            assert!(begun.elapsed() < PATIENCE, "{answer}\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// As `is_confirmed`, of this account.
    async fn is_confirmed_of(&self, account: &str, nth: u32) {
        let (status, transfer) = self.answer_to(account, nth).await;
        assert_eq!(status, 201, "{transfer}");
        self.mined_until_confirmed(transfer["id"].as_str().unwrap()).await;
    }

    /// A transaction of alice's own, signed with her real key: it gives a quarter of an ether to somebody.
    async fn theft(&self, account: &str, to: Address) -> String {
        let key = raw_keys::evm_key(&self.seeds[0], &KeyPath::of_wallet(Family::Evm, account, ""));
        let nonce = self.nonce(&self.alice).await;
        // That of a refill is a plain transfer of value, whoever signs it.
        let (chain_ref, amount) = (format!("eip155:{CHAIN_ID}"), U256::from(ETHER / 4));
        let carried = Carried::Refill(Refill { chain_ref, number: 0, recipient: to, amount });
        let (gas_limit, max_fee, tip) = (21_000, 50_000_000_000, 1_000_000_000);
        let carrier = Carrier { sponsor: self.alice, carried, nonce, gas_limit, max_fee, tip };
        let unsigned = pay::carrier(&carrier).unwrap();
        let digest = unsigned.digest();
        let signature = raw_keys::sign(key, &digest);
        assert_eq!(pay::signer_of(&digest, &signature), Some(self.alice), "her key");
        format!("0x{}", hex::encode(unsigned.signed(&signature).0))
    }

    fn health(&self) -> (Option<i32>, String) {
        let health = self.stage.run(&["health"]);
        (health.status.code(), String::from_utf8(health.stdout).unwrap())
    }

    /// Somebody who has a copy of the keystore as it is now, and has it sign for these assets by these routes.
    pub(crate) fn thief(&self, chain_ref: &str, assets: Vec<(AssetId, Route)>) -> Embedded {
        let (from, to) = (self.stage.folder.path().join("keys"), self.stage.folder.path().join("stolen"));
        std::fs::create_dir(&to).unwrap();
        std::fs::set_permissions(&to, std::fs::metadata(&from).unwrap().permissions()).unwrap();
        for file in std::fs::read_dir(&from).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
        }
        let (chain_ref, caps, cost_max) = (chain_ref.to_owned(), Vec::new(), u128::MAX);
        let policy = Policy::new([Sendable { chain_ref, assets, caps, cost_max, refill_max: 0 }]);
        let passphrase = Passphrase::from_file(&self.stage.folder.path().join("passphrase")).unwrap();
        Embedded::open(&to, &passphrase, policy, Arc::new(now_secs)).unwrap()
    }

    /// A transaction of the first sponsor that this program knows nothing of: it carries what a wallet pays that is nobody's here.
    async fn stolen(&self, nonce: u64) -> Vec<u8> {
        let chain_id = self.stage.node.rpc("eth_chainId", json!([])).await.unwrap();
        let chain_id = u64::from_str_radix(chain_id.as_str().unwrap().trim_start_matches("0x"), 16).unwrap();
        let (chain_ref, asset) = (format!("eip155:{chain_id}"), AssetId::Token(self.stage.token));
        let route = Route::Erc3009 { name: "USD Coin".to_owned(), version: "2".to_owned() };
        let thief = self.thief(&chain_ref, vec![(asset, route.clone())]);
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
            deadline: now_secs() + 300,
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

#[tokio::test(flavor = "multi_thread")]
async fn a_wallet_whose_real_key_somebody_else_uses_pays_nothing_until_it_is_released_and_others_pay_meanwhile() {
    let mut bench = Bench::new(Engine::Postgres).await;
    let alice = bench.newest_account().await;
    let carol = bench.open_another_account().await;
    bench.stage.pay_native(bench.alice, ETHER).await;
    bench.stage.node.mine(3).await.unwrap();
    bench.stage.until_status("1", "CONFIRMED").await;
    bench.is_confirmed_of(&alice, 1).await;
    bench.stage.until_healthy().await;
    let (thief, had) = (address(0x66), bench.nonce(&bench.alice).await);
    let raw = bench.theft(&alice, thief).await;
    bench.stage.node.rpc("eth_sendRawTransaction", json!([raw])).await.unwrap();
    let begun = Instant::now();
    let incidents = || bench.stage.ok(&["incident", "list"]);
    bench.mined_until("an incident", || incidents().contains("foreign_spend")).await;
    println!("quarantined {} ms after it was sent", begun.elapsed().as_millis());
    assert_eq!(bench.nonce(&bench.alice).await, had + 1, "his transaction, with her real key");
    assert_eq!(bench.stage.node.balance(&thief).await.unwrap(), U256::from(ETHER / 4));
    assert_eq!(incidents().lines().count(), 1, "{}", incidents());
    assert!(incidents().contains(&bench.alice.to_string()), "{}", incidents());
    let (code, said) = bench.health();
    assert!(code == Some(1) && said.contains("foreign_spend"), "{said}");
    let (status, refused) = bench.answer_to(&alice, 2).await;
    assert_eq!((status, &refused["code"]), (409, &json!("ACCOUNT_NOT_ACTIVE")), "{refused}");
    let why = "pays nothing before a person has checked what left its address";
    assert!(refused["detail"].as_str().unwrap().contains(why), "{refused}");
    bench.is_confirmed_of(&carol, 3).await;
    let released = bench.stage.ok(&["account", "release", &alice, "--reason", "the copy is destroyed"]);
    assert_eq!(released, format!("{} of account {alice} signs again\n", bench.alice));
    // A refusal recorded nothing: the same request may come again.
    bench.is_confirmed_of(&alice, 2).await;
    assert_eq!((bench.bobs().await, bench.nonce(&bench.alice).await), (3_000_000, had + 1));
    assert_eq!(incidents(), "");
    bench.stage.until_healthy().await;
    assert_eq!(bench.service.unwrap().stop().0, Some(0));
}
