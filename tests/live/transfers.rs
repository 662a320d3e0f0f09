//! Money out, end to end: a real node, the real program with its signer, the token that takes EIP-3009. What was paid is
//! read from the node.

use std::time::{Duration, Instant};

use landfall::amount::to_decimal;
use landfall::sandbox::token;
use landfall::time::Timestamp;
use landfall_chain::{Address, Family, U256};
use landfall_signer::Words;
use serde_json::{Value, json};

use crate::contracts::{call, word};
use crate::fiat_token;
use crate::stage::{Engine, Service, Stage, address, free_port, make_keystore};

pub(crate) const BOB: u8 = 0xb0;
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);
pub(crate) const ETHER: u64 = 1_000_000_000_000_000_000;

/// A stage with a keystore, an account whose address is derived, and sponsors that are funded.
pub(crate) struct Bench {
    pub(crate) stage: Stage,
    pub(crate) service: Option<Service>,
    /// The process that has the keys, where it is one of its own.
    pub(crate) signer: Option<Service>,
    client: reqwest::Client,
    pub(crate) api: String,
    pub(crate) key: String,
    /// What all keys are derived of: those of wallets, and those of sponsors.
    pub(crate) seeds: [Words; 2],
    /// What alice pays from.
    pub(crate) alice: Address,
    pub(crate) sponsors: Vec<Address>,
}

impl Bench {
    pub(crate) async fn new(engine: Engine) -> Self {
        Bench::on(Stage::new(engine).await).await
    }

    /// With the real USDC, FiatTokenV2_2 behind its proxy.
    pub(crate) async fn with_real_usdc() -> Self {
        let mut stage = Stage::new(Engine::Sqlite).await;
        fiat_token::place(&mut stage, "USDC").await;
        Bench::on(stage).await
    }

    pub(crate) async fn on(stage: Stage) -> Self {
        let keystore = "signer = \"keystore:keys\"\npassphrase_file = \"passphrase\"";
        Bench::signing_by(stage, keystore).await
    }

    pub(crate) async fn signing_by(stage: Stage, signer: &str) -> Self {
        let port = free_port();
        stage.replace_in_config("[api]\nlisten = \"127.0.0.1:0\"", &format!("[api]\nlisten = \"127.0.0.1:{port}\""));
        stage.replace_in_config("[chains.", &format!("[transfers]\n{signer}\n[chains."));
        let seeds = make_keystore(stage.folder.path());
        let scopes = ["key", "create", "--name", "live", "--scope", "read", "--scope", "write", "--scope", "transfers"];
        let key = stage.ok(&scopes).trim().to_owned();
        let service = Some(stage.start());
        let signer = signer.starts_with("signer = \"unix:").then(|| Service::start_signer(stage.folder.path()));
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let nobody = address(0);
        let (api, sponsors) = (format!("http://127.0.0.1:{port}"), Vec::new());
        let mut bench = Bench { stage, service, signer, client, api, key, seeds, alice: nobody, sponsors };
        bench.until_served().await;
        bench.stage.ok(&["identity", "add", "--identity", "house", "--type", "BUSINESS"]);
        let asked = json!({ "request_id": "alice", "identity_id": "house", "type": "SEGREGATED" });
        let begun = Instant::now();
        let opened = loop {
            let opened = bench.post("/v2/accounts", &asked).await;
            // The signer may not listen yet.
            if opened.0 != 503 || begun.elapsed() > PATIENCE {
                break opened;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        assert_eq!(opened.0, 201, "{}", opened.1);
        let derived = opened.1["addresses"][0]["address"].as_str().unwrap_or_else(|| panic!("{}", opened.1));
        bench.alice = Address::parse(Family::Evm, derived).unwrap();
        let added = bench.stage.ok(&[
            "webhook",
            "add",
            "--url",
            bench.stage.receiver.url(),
            "--allow-private",
            "127.0.0.0/8",
            "--json",
        ]);
        let added: Value = serde_json::from_str(&added).unwrap();
        bench.stage.receiver.set_key(added["secret"].as_str().unwrap());
        bench.stage.ok(&["sponsor", "add", "--chain", "ETHEREUM_TESTNET", "--count", "2", "--reason", "a test"]);
        for line in bench.stage.ok(&["sponsor", "list", "--json"]).lines() {
            let sponsor: Value = serde_json::from_str(line).unwrap();
            bench.sponsors.push(Address::parse(Family::Evm, sponsor["address"].as_str().unwrap()).unwrap());
        }
        for sponsor in bench.sponsors.clone() {
            bench.stage.pay_native(sponsor, ETHER).await;
        }
        let mint = token::mint(&bench.alice, U256::from(10_000_000));
        bench.stage.call(bench.stage.token, mint).await;
        bench.stage.node.mine(3).await.unwrap();
        bench.stage.until_status("10", "CONFIRMED").await;
        bench.until_available("USDC", "10").await;
        bench
    }

    pub(crate) async fn until_served(&self) {
        let begun = Instant::now();
        while self.client.get(format!("{}/v2/assets", self.api)).send().await.is_err() {
            assert!(begun.elapsed() < PATIENCE, "{}", self.service.as_ref().unwrap().log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let request = self.client.post(format!("{}{path}", self.api)).bearer_auth(&self.key);
        answered(request.header("content-type", "application/json").body(body.to_string())).await
    }

    pub(crate) async fn asked(&self, path: &str) -> (u16, Value) {
        answered(self.client.get(format!("{}{path}", self.api)).bearer_auth(&self.key)).await
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        let (status, body) = self.asked(path).await;
        assert_eq!(status, 200, "{body}");
        body
    }

    /// Waits until alice may spend so much.
    pub(crate) async fn until_available(&self, symbol: &str, amount: &str) {
        let begun = Instant::now();
        let account = self.get("/v2/accounts").await["accounts"][0]["id"].as_str().unwrap().to_owned();
        let path = format!("/v2/accounts/{account}/balances?symbol={symbol}");
        loop {
            let (status, balances) = self.asked(&path).await;
            if status == 200 && balances["balances"][0]["available"] == amount {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{balances}\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Asks for a transfer of USDC to bob, until what alice has is known.
    pub(crate) async fn send(&self, nth: u32, amount: &str) -> String {
        self.send_of(nth, "USDC", amount).await
    }

    pub(crate) fn log(&self) -> String {
        self.service.as_ref().unwrap().log()
    }

    /// As [`Bench::send`], of another asset.
    pub(crate) async fn send_of(&self, nth: u32, symbol: &str, amount: &str) -> String {
        let body = json!({
            "request_id": format!("00000000-0000-4000-8000-{nth:012}"),
            "account_id": self.get("/v2/accounts").await["accounts"][0]["id"],
            "currency_symbol": symbol,
            "amount": amount,
            "address_destination": { "address": address(BOB).to_string(), "chain": "ETHEREUM_TESTNET" },
        });
        let begun = Instant::now();
        loop {
            let (status, answer) = self.post("/v2/crypto/transfers", &body).await;
            if status == 201 {
                return answer["id"].as_str().unwrap().to_owned();
            }
            assert!(status == 503 && begun.elapsed() < PATIENCE, "{status} {answer}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// What the transaction took that paid it, or that failed.
    pub(crate) async fn gas_of(&self, id: &str) -> u64 {
        let transfer = self.transfer(id).await;
        let failed = &transfer["failure_details"]["transaction_hash"];
        let hash = if failed.is_null() { &transfer["transaction_hash"] } else { failed };
        let receipt = self.stage.node.rpc("eth_getTransactionReceipt", json!([hash])).await.unwrap();
        u64::from_str_radix(receipt["gasUsed"].as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
    }

    pub(crate) async fn transfer(&self, id: &str) -> Value {
        self.get(&format!("/v2/crypto/transfers/{id}")).await
    }

    pub(crate) fn explained(&self, id: &str) -> Value {
        serde_json::from_str(&self.stage.ok(&["transfer", "explain", id, "--json"])).unwrap()
    }

    /// Waits until a transfer is as `wanted`.
    pub(crate) async fn until(&self, id: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let transfer = self.transfer(id).await;
            if wanted(&transfer) {
                return transfer;
            }
            let explain = || self.stage.ok(&["transfer", "explain", id]);
            assert!(
                begun.elapsed() < PATIENCE,
                "{what} did not come true: {transfer:#}\n{}\n{}",
                explain(),
                self.service.as_ref().unwrap().log()
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub(crate) async fn until_status(&self, id: &str, status: &str) -> Value {
        self.until(id, status, |transfer| transfer["status"] == status).await
    }

    /// What bob has of USDC, as the node says.
    pub(crate) async fn bobs(&self) -> u64 {
        self.stage.node.balance_of(&self.stage.token, &address(BOB)).await.unwrap().try_into().unwrap()
    }

    /// The transactions of the pool and of the newest blocks that sponsors sent.
    pub(crate) async fn sent(&self) -> u64 {
        self.counted("pending").await
    }

    /// Those of the newest blocks alone.
    pub(crate) async fn mined(&self) -> u64 {
        self.counted("latest").await
    }

    async fn counted(&self, tag: &str) -> u64 {
        let mut counted = 0;
        for sponsor in &self.sponsors {
            let count = self.stage.node.rpc("eth_getTransactionCount", json!([sponsor.to_string(), tag])).await;
            counted += u64::from_str_radix(count.unwrap().as_str().unwrap().trim_start_matches("0x"), 16).unwrap();
        }
        counted
    }

    /// What the sponsors have together of the native currency.
    pub(crate) async fn sponsors_have(&self) -> U256 {
        let mut sum = U256::ZERO;
        for sponsor in &self.sponsors {
            sum += self.stage.node.balance(sponsor).await.unwrap();
        }
        sum
    }

    /// Waits until the pool of the node holds so many transactions of sponsors more than `before`.
    pub(crate) async fn until_sent(&self, before: u64, more: u64) {
        let begun = Instant::now();
        while self.sent().await < before + more {
            assert!(begun.elapsed() < PATIENCE, "{}", self.service.as_ref().unwrap().log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_is_paid_by_a_sponsor_and_confirmed_on_sqlite() {
    is_paid_and_confirmed(Engine::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_is_paid_by_a_sponsor_and_confirmed_on_postgresql() {
    is_paid_and_confirmed(Engine::Postgres).await;
}

async fn is_paid_and_confirmed(engine: Engine) {
    let bench = Bench::new(engine).await;
    bench.stage.ok(&["gas", "price", "set", "ETH", "3000", "--reason", "a test"]);
    let (before, had) = (bench.sent().await, bench.sponsors_have().await);
    let begun = Instant::now();
    let id = bench.send(1, "2.5").await;
    let submitted = bench.until_status(&id, "SUBMITTED").await;
    println!("{engine:?}: SUBMITTED {} ms after it was asked for", begun.elapsed().as_millis());
    assert_eq!(submitted["transaction_hash"], "", "no block shows it yet");
    bench.until_sent(before, 1).await;
    bench.stage.node.mine(1).await.unwrap();
    let included = bench.until(&id, "included", |transfer| transfer["transaction_hash"] != "").await;
    assert_eq!(included["status"], "SUBMITTED");
    assert_eq!(bench.bobs().await, 2_500_000);
    bench.stage.node.mine(2).await.unwrap();
    let confirmed = bench.until_status(&id, "CONFIRMED").await;
    assert_eq!(confirmed["transaction_hash"], included["transaction_hash"]);
    assert_eq!(bench.bobs().await, 2_500_000, "once");
    let alice = bench.stage.node.balance(&bench.alice).await.unwrap();
    assert_eq!(alice, U256::ZERO, "she owns nothing of the currency that gas costs");
    assert_eq!(bench.sent().await, before + 1, "one attempt");
    let cost = to_decimal(had - bench.sponsors_have().await, 18);
    let fee = &confirmed["network_fee"];
    assert_eq!((&fee["amount"], &fee["charged_to"]), (&json!(cost), &json!("CREDIT")), "to the wei: {fee}");
    let credit = bench.get("/v2/gas-credit").await;
    assert_eq!((&credit["used_usd"], &credit["held_usd"]), (&fee["usd"], &json!("0")), "{credit}");
    let (code, _) = bench.service.unwrap().stop();
    assert_eq!(code, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_operator_creates_on_the_command_line_is_paid_once_and_is_what_a_client_would_get() {
    let bench = Bench::new(Engine::Sqlite).await;
    let account = bench.get("/v2/accounts").await["accounts"][0]["id"].as_str().unwrap().to_owned();
    let (to, request_id) = (address(BOB).to_string(), "00000000-0000-4000-8000-000000000001");
    let what = ["--chain", "ETHEREUM_TESTNET", "--asset", "USDC", "--to", &to, "--amount", "2.5", "--json"];
    let create =
        [&["transfer", "create", &account, "--request-id", request_id, "--reason", "a refund"][..], &what].concat();
    let read = |text: String| serde_json::from_str::<Value>(&text).unwrap();
    let tried = read(bench.stage.ok(&[&create[..], &["--dry-run"]].concat()));
    assert_eq!(bench.get("/v2/crypto/transfers").await["transfers"], json!([]));
    let made = read(bench.stage.ok(&create));
    assert_eq!((&made["id"], &made["status"]), (&tried["id"], &json!("ACCEPTED")));
    let id = made["id"].as_str().unwrap();
    bench.until_status(id, "SUBMITTED").await;
    bench.until_sent(0, 1).await;
    assert_eq!(read(bench.stage.ok(&create))["id"], made["id"], "the same request");
    bench.stage.node.mine(3).await.unwrap();
    bench.until_status(id, "CONFIRMED").await;
    assert_eq!(bench.bobs().await, 2_500_000, "once");
    let audit = bench.stage.ok(&["audit", "list"]);
    assert!(audit.contains("create_transfer") && audit.contains("a refund"), "{audit}");
    assert_eq!(bench.service.unwrap().stop().0, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signer_in_a_process_of_its_own_signs_and_while_it_is_away_transfers_wait() {
    let stage = Stage::new(Engine::Postgres).await;
    let mut bench = Bench::signing_by(stage, "signer = \"unix:signer.sock\"").await;
    let before = bench.sent().await;
    bench.signer.take().unwrap().kill();
    let id = bench.send(1, "2.5").await;
    let begun = Instant::now();
    while !bench.service.as_ref().unwrap().log().contains("the signer is not available") {
        assert!(begun.elapsed() < PATIENCE, "{}", bench.service.as_ref().unwrap().log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(bench.transfer(&id).await["status"], "ACCEPTED");
    let carol = json!({ "request_id": "carol", "identity_id": "house", "type": "SEGREGATED" });
    let (status, problem) = bench.post("/v2/accounts", &carol).await;
    assert_eq!((status, &problem["code"]), (503, &json!("SIGNER_UNAVAILABLE")), "{problem}");
    bench.signer = Some(Service::start_signer(bench.stage.folder.path()));
    bench.until_sent(before, 1).await;
    bench.stage.node.mine(3).await.unwrap();
    bench.until_status(&id, "CONFIRMED").await;
    assert_eq!((bench.bobs().await, bench.sent().await), (2_500_000, before + 1), "once");
    assert_eq!(bench.post("/v2/accounts", &carol).await.0, 201);
    let (code, _) = bench.signer.take().unwrap().stop();
    assert_eq!(code, Some(0));
    assert!(!bench.stage.folder.path().join("signer.sock").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_further_address_received_is_swept_and_paid_out() {
    let mut bench = Bench::new(Engine::Sqlite).await;
    let pool = json!({ "request_id": "pool", "identity_id": "house", "type": "OMNIBUS" });
    let (status, pool) = bench.post("/v2/accounts", &pool).await;
    assert_eq!(status, 201, "{pool}");
    let account = pool["id"].as_str().unwrap();
    let further = json!({ "request_id": "customer-1", "chains": ["ETHEREUM_TESTNET"] });
    let (status, further) = bench.post(&format!("/v2/accounts/{account}/addresses"), &further).await;
    assert_eq!(status, 201, "{further}");
    let derived = |of: &Value| Address::parse(Family::Evm, of["addresses"][0]["address"].as_str().unwrap()).unwrap();
    let (paying, further) = (derived(&pool), derived(&further));
    bench.stage.call(bench.stage.token, token::mint(&further, U256::from(7_000_000))).await;
    bench.stage.node.mine(3).await.unwrap();
    bench.stage.until_status("7", "CONFIRMED").await;
    let before = bench.sent().await;
    let sweep = ["account", "sweep", account, "--chain", "ETHEREUM_TESTNET", "--asset", "USDC", "--reason", "a test"];
    let begun = Instant::now();
    let swept = loop {
        let said = bench.stage.ok(&sweep);
        if said.contains("transfer ") {
            break said;
        }
        // What the address has is read in a while.
        assert!(begun.elapsed() < PATIENCE, "{said}\n{}", bench.log());
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert!(swept.contains(&format!("7 USDC from {further} to {paying}")), "{swept}");
    bench.until_sent(before, 1).await;
    bench.stage.node.mine(3).await.unwrap();
    let balances = format!("/v2/accounts/{account}/balances?symbol=USDC");
    while bench.stage.node.balance_of(&bench.stage.token, &paying).await.unwrap() != U256::from(7_000_000)
        || bench.asked(&balances).await.1["balances"][0]["available"] != "7"
    {
        assert!(begun.elapsed() < PATIENCE, "{}", bench.log());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let deposits = bench.get(&format!("/v2/crypto/deposits?account_id={account}")).await;
    assert_eq!(deposits["deposits"].as_array().unwrap().len(), 1, "the sweep is no deposit: {deposits}");
    assert_eq!(bench.get("/v2/crypto/transfers").await["transfers"], json!([]), "and no client's transfer");
    let listed = bench.stage.ok(&["transfer", "list", "--json"]);
    assert!(listed.contains(r#""kind":"SWEEP""#), "{listed}");
}

/// What `transferWithAuthorization` of FiatTokenV2_2 takes by hand, without its proxy: 96,000 gas to a new recipient, 78,901 to
/// one that has the token. Its proxy takes some 7,000 more.
const GAS: [u64; 2] = [103_000, 85_901];

#[tokio::test(flavor = "multi_thread")]
async fn the_real_usdc_pays_once_and_a_recipient_that_it_refuses_is_paid_nothing() {
    let mut bench = Bench::with_real_usdc().await;
    let before = bench.sent().await;
    let id = bench.send(1, "2").await;
    bench.until_sent(before, 1).await;
    bench.stage.node.mine(3).await.unwrap();
    bench.until_status(&id, "CONFIRMED").await;
    let second = bench.send(3, "0.5").await;
    bench.until_sent(before + 1, 1).await;
    bench.stage.node.mine(3).await.unwrap();
    bench.until_status(&second, "CONFIRMED").await;
    assert_eq!(bench.bobs().await, 2_500_000);
    for (what, id, most) in [("a new recipient", &id, GAS[0]), ("one that has USDC", &second, GAS[1])] {
        let gas = bench.gas_of(id).await;
        println!("to pay {what} in the real USDC took {gas} gas");
        assert!(10 * gas <= 11 * most, "{gas}, and {most} were measured by hand");
    }
    // FiatToken refuses a recipient on its list, so no carrier is even tried.
    let blacklist = call("blacklist(address)", &[word(&address(BOB))]);
    bench.stage.call(bench.stage.token, blacklist).await;
    bench.stage.node.mine(1).await.unwrap();
    let refused = bench.send(2, "1").await;
    let begun = Instant::now();
    while !bench.service.as_ref().unwrap().log().contains("on its blacklist") {
        assert!(begun.elapsed() < PATIENCE, "{}", bench.service.as_ref().unwrap().log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    bench.stage.node.rpc("evm_increaseTime", json!([400])).await.unwrap();
    bench.stage.node.mine(3).await.unwrap();
    let failed = bench.until_status(&refused, "FAILED").await;
    let failure = &failed["failure_details"];
    assert_eq!(failure["code"], "DESTINATION_REFUSED");
    assert!(failure["reason"].as_str().unwrap().contains(&address(BOB).to_string()), "{failure}");
    assert_eq!((bench.bobs().await, bench.sent().await), (2_500_000, before + 2), "nothing was sent for it");
    until_announced(&bench, &id, &["SUBMITTED", "INCLUDED", "CONFIRMED"]).await;
    until_announced(&bench, &refused, &["FAILED"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_real_usdc_is_paused_nothing_is_signed_and_the_transfer_fails_on_proof() {
    let mut bench = Bench::with_real_usdc().await;
    let before = bench.sent().await;
    bench.stage.call(bench.stage.token, call("pause()", &[])).await;
    bench.stage.node.mine(1).await.unwrap();
    let id = bench.send(1, "2.5").await;
    let begun = Instant::now();
    while !bench.log().contains("its owner stopped all payments") {
        assert!(begun.elapsed() < PATIENCE, "{}", bench.log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(bench.explained(&id)["intents"], json!([]), "nothing is signed");
    assert!(bench.stage.ok(&["transfer", "explain", &id]).contains("kept from being sent by TOKEN_PAUSED"));
    bench.stage.node.rpc("evm_increaseTime", json!([400])).await.unwrap();
    bench.stage.node.mine(3).await.unwrap();
    let failed = bench.until_status(&id, "FAILED").await;
    assert_eq!(failed["failure_details"]["code"], "TOKEN_PAUSED");
    assert_eq!((bench.bobs().await, bench.sent().await), (0, before));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_of_the_real_usdc_that_waits_for_a_block_is_cancelled_and_its_money_is_free() {
    is_cancelled(Bench::with_real_usdc().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_of_openzeppelins_token_that_waits_for_a_block_is_cancelled_and_its_money_is_free() {
    is_cancelled(Bench::new(Engine::Postgres).await).await;
}

async fn is_cancelled(bench: Bench) {
    let before = bench.sent().await;
    let id = bench.send(1, "2.5").await;
    bench.until_sent(before, 1).await;
    let said = bench.stage.ok(&["transfer", "cancel", &id, "--reason", "a test"]);
    assert!(said.contains("its cancellation is sent to the token"), "{said}");
    let attempts = || bench.explained(&id)["attempts"].clone();
    let begun = Instant::now();
    while attempts()[1]["response"] != "pooled" {
        assert!(begun.elapsed() < PATIENCE, "{:#}\n{}", attempts(), bench.log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!([&attempts()[0]["purpose"], &attempts()[1]["purpose"]], ["payment", "cancellation"]);
    assert_eq!(attempts()[0]["nonce"], attempts()[1]["nonce"], "it takes the payment's place");
    bench.stage.node.mine(3).await.unwrap();
    let dropped = bench.until_status(&id, "DROPPED").await;
    let failure = &dropped["failure_details"];
    assert_eq!(
        (&failure["code"], &failure["transaction_hash"]),
        (&json!("CANCELLED"), &attempts()[1]["transaction_hash"])
    );
    assert_eq!(bench.explained(&id)["marks"][0]["effect"], "cancelled");
    bench.until_available("USDC", "10").await;
    assert_eq!((bench.bobs().await, bench.sent().await), (0, before + 1));
    until_announced(&bench, &id, &["SUBMITTED", "DROPPED"]).await;
}

/// Waits until the receiver was sent this of a transfer, in this order, and nothing else.
async fn until_announced(bench: &Bench, id: &str, expected: &[&str]) {
    let begun = Instant::now();
    while events(bench, id) != expected {
        assert!(begun.elapsed() < PATIENCE, "{:?}, not {expected:?}", events(bench, id));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// What the receiver was sent of a transfer, in the order in which it came.
pub(crate) fn events(bench: &Bench, id: &str) -> Vec<String> {
    let mut announced = Vec::new();
    for received in bench.stage.receiver.log().iter().filter(|received| received.field("id") == id) {
        let stage = received.field("stage");
        announced.push(match stage.is_empty() {
            true => received.field("status").to_owned(),
            false => stage.to_owned(),
        });
    }
    announced
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_reorg_takes_back_is_carried_again_and_paid_once() {
    let bench = Bench::new(Engine::Sqlite).await;
    let before = bench.sent().await;
    let id = bench.send(1, "1").await;
    bench.until_sent(before, 1).await;
    bench.stage.node.mine(1).await.unwrap();
    bench.until(&id, "included", |transfer| transfer["transaction_hash"] != "").await;
    bench.stage.node.reorg(1).await.unwrap();
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
    assert_eq!(bench.bobs().await, 1_000_000, "once");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_carried_is_dropped_when_a_final_block_is_beyond_its_deadline() {
    let bench = Bench::new(Engine::Sqlite).await;
    for number in ["0", "1"] {
        bench.stage.ok(&["sponsor", "pause", number, "--chain", "ETHEREUM_TESTNET", "--reason", "a test"]);
    }
    let id = bench.send(1, "10").await;
    let begun = Instant::now();
    while bench.explained(&id)["intents"][0]["signed"] != true {
        assert!(begun.elapsed() < PATIENCE, "{:#}", bench.explained(&id));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(bench.transfer(&id).await["status"], "ACCEPTED");
    // The chain's clock leaps; a final block must be beyond the deadline.
    bench.stage.node.rpc("evm_increaseTime", json!([400])).await.unwrap();
    bench.stage.node.mine(1).await.unwrap();
    bench.stage.until_caught_up().await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(bench.transfer(&id).await["status"], "ACCEPTED", "that block is not final yet");
    bench.stage.node.mine(2).await.unwrap();
    let dropped = bench.until_status(&id, "DROPPED").await;
    assert_eq!(dropped["failure_details"]["code"], "WINDOW_ELAPSED");
    assert_eq!(bench.bobs().await, 0);
    is_proved(&bench, &id).await;
    let account = bench.transfer(&id).await["account_id"].as_str().unwrap().to_owned();
    let balances = bench.get(&format!("/v2/accounts/{account}/balances?symbol=USDC")).await;
    assert_eq!(balances["balances"][0]["available"], "10", "what was reserved is free again");
}

/// It is shown by which block it was dropped, with that block's own time, and which endpoint reported its key unused.
async fn is_proved(bench: &Bench, id: &str) {
    let explained = bench.explained(id);
    let proof = explained["changes"].as_array().unwrap().last().unwrap();
    let endpoint = bench.stage.node.url().trim_start_matches("http://").trim_end_matches('/');
    let by = (&proof["state"], &proof["evidence"], &proof["reported_by"]);
    assert_eq!(by, (&json!("dropped"), &json!("never_used"), &json!([endpoint])), "{explained:#}");
    let block = bench.stage.node.rpc("eth_getBlockByHash", json!([proof["block_hash"], false])).await.unwrap();
    let secs = u64::from_str_radix(block["timestamp"].as_str().unwrap().trim_start_matches("0x"), 16).unwrap();
    assert!(secs >= explained["intents"][0]["deadline"].as_u64().unwrap(), "{explained:#}");
    let time = Timestamp::from_secs(secs).to_string();
    assert_eq!(proof["block_time"], json!(time));
    let text = bench.stage.ok(&["transfer", "explain", id]);
    let [hash, key] = [&proof["block_hash"], &explained["intent_key"]].map(|field| field.as_str().unwrap());
    let shown = format!("({hash}) of {time}, the state of the key reported by {endpoint}");
    assert!(text.contains(&shown) && text.contains(&format!("key  {key}, by ")), "{text}");
}

/// A file that its owner alone may read.
async fn answered(request: reqwest::RequestBuilder) -> (u16, Value) {
    let answer = request.send().await.unwrap();
    let status = answer.status().as_u16();
    (status, serde_json::from_str(&answer.text().await.unwrap()).unwrap())
}
