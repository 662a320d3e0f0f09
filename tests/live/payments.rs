//! The payments of `credits`: one chain with every way to pay, and to seem to pay, that a contract can show.
//!
//! Played once for all tests of this binary: on anvil, each transaction in a block of its own, all final, read by the
//! real program with one endpoint. What it then lists and explains is kept, and everything that ran is ended. A deposit
//! of a transaction that no test knows fails them all.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use landfall::sandbox::token;
use landfall_chain::{Address, U256};
use serde_json::{Value, json};

use crate::contracts::{BIG_TOKEN, FAKE_USDC, FEE_TOKEN, INSIDE, ODD_TOKEN, ROUTER, call, number, word};
use crate::stage::{Engine, Stage};

pub(crate) const ALICE: Address = Address::Evm([0xa1; 20]);
/// Nobody pays her: she has what the payments tip, and what her balance is set to.
pub(crate) const CAROL: Address = Address::Evm([0xca; 20]);
/// Has letters, which EIP-55 writes in mixed case.
pub(crate) const SHOP: Address = Address::Evm([0xfe; 20]);
pub(crate) const STORE: Address = Address::Evm([0xed; 20]);
/// Enough for `Inside.all`.
const GAS: u64 = 3_000_000;
const PATIENCE: Duration = Duration::from_secs(120);
const LISTED: &str = "[[chains.ETHEREUM_TESTNET.assets]]\nsymbol = \"ODD\"\ndecimals = 6\ncontract = \"{odd}\"\n\
                      [[chains.ETHEREUM_TESTNET.assets]]\nsymbol = \"BIG\"\ndecimals = 6\ncontract = \"{big}\"\n";

/// What became of the payments.
pub(crate) struct Played {
    pub(crate) payer: Address,
    /// One of our accounts, whose key the node has.
    pub(crate) bob: Address,
    pub(crate) outsider: Address,
    reported: BTreeMap<&'static str, Reported>,
}

/// What the program reports of one transaction.
pub(crate) struct Reported {
    pub(crate) deposits: Vec<Value>,
    pub(crate) legs: Vec<Value>,
}

/// The payments, played now or before.
pub(crate) fn played() -> &'static Played {
    static PLAYED: OnceLock<Option<Played>> = OnceLock::new();
    // On a thread of its own: a test may have a runtime already, and none outlives its test.
    let play = || tokio::runtime::Runtime::new().unwrap().block_on(play());
    let played = PLAYED.get_or_init(|| std::thread::spawn(play).join().ok());
    played.as_ref().expect("the payments were played; if not, standard error says above why")
}

/// What is reported of the transaction that was sent under this name.
pub(crate) fn reported(name: &str) -> &'static Reported {
    played().reported.get(name).unwrap_or_else(|| panic!("no transaction was sent as {name:?}"))
}

impl Played {
    /// The deposits to `address`, of whatever transaction.
    pub(crate) fn of(&self, address: &Address) -> impl Iterator<Item = &Value> {
        let address = address.to_string();
        self.reported.values().flat_map(|reported| &reported.deposits).filter(move |d| d["account_address"] == address)
    }
}

impl Reported {
    /// Account, amount and symbol of each deposit, in alphabetical order.
    pub(crate) fn credits(&self) -> Vec<String> {
        let text = |deposit: &Value, field: &str| deposit[field].as_str().unwrap().to_owned();
        let credit =
            |d: &Value| format!("{} {} {}", text(d, "account_id"), text(d, "amount"), text(d, "currency_symbol"));
        let mut credits: Vec<String> = self.deposits.iter().map(credit).collect();
        credits.sort_unstable();
        credits
    }

    /// Verdict and base units of each leg to `recipient`, those of the roots first.
    pub(crate) fn verdicts(&self, recipient: &Address) -> Vec<String> {
        let reported =
            |leg: &Value| format!("{} {}", leg["verdict"].as_str().unwrap(), leg["base_units"].as_str().unwrap());
        let theirs = |leg: &&Value| leg["destination_address"] == recipient.to_string();
        self.legs.iter().filter(theirs).map(reported).collect()
    }

    /// What a field of each deposit says.
    pub(crate) fn each(&self, field: &str) -> Vec<&str> {
        self.deposits.iter().map(|deposit| deposit[field].as_str().unwrap_or_default()).collect()
    }
}

async fn play() -> Played {
    let stage = Stage::new(Engine::Sqlite).await;
    let listed = LISTED.replace("{odd}", &ODD_TOKEN.to_string()).replace("{big}", &BIG_TOKEN.to_string());
    stage.configure("sqlite:landfall.db", &listed);
    let accounts = stage.node.accounts().await.unwrap();
    let (payer, bob, outsider) = (accounts[0], accounts[1], accounts[2]);
    let small = |address: Address| format!("0x{}", hex::encode(address.as_bytes()));
    let watched = [
        ("alice", ALICE.to_string()),
        ("bob", small(bob)),
        ("carol", CAROL.to_string()),
        ("shop", SHOP.to_string()),
        ("store", small(STORE)),
    ];
    for (account, address) in watched {
        let spec = format!("ETHEREUM_TESTNET={address}");
        stage.ok(&["account", "add", "--account", account, "--type", "OMNIBUS", "--address", &spec]);
    }
    stage.node.rpc("anvil_setCoinbase", json!([CAROL.to_string()])).await.unwrap();
    let mut sender = Sender { stage: &stage, payer, bob, outsider, sent: Vec::new() };
    sender.pay_by_contracts().await;
    sender.pay_by_transactions().await;
    sender.pay_tokens().await;
    sender.pay_for_others().await;
    sender.seem_to_pay().await;
    let sent = sender.sent;
    let tips = stage.node.balance(&CAROL).await.unwrap();
    let more = json!([CAROL.to_string(), format!("{:#x}", tips + U256::from(1_000_000_000_000_000_000_u64))]);
    stage.node.rpc("anvil_setBalance", more).await.unwrap();
    stage.node.mine(3).await.unwrap();
    assert!(tips > U256::ZERO && stage.node.balance(&CAROL).await.unwrap() > tips);

    let service = stage.start();
    let deposits = settled(&stage).await;
    let mut reported = BTreeMap::new();
    for (name, hash) in sent {
        let legs: Value =
            serde_json::from_str(&stage.ok(&["deposit", "explain", "ETHEREUM_TESTNET", &hash, "--json"])).unwrap();
        assert_eq!(
            (&legs["block"]["final"], &legs["traces"]["state"]),
            (&json!(true), &json!("read")),
            "{name}: {legs}"
        );
        let deposits = deposits.iter().filter(|d| d["transaction_hash"] == *hash).cloned().collect();
        let of_tx = Reported { deposits, legs: legs["legs"].as_array().unwrap().clone() };
        assert!(reported.insert(name, of_tx).is_none(), "{name} is the name of two");
    }
    assert_eq!(service.stop().0, Some(0));
    let known: usize = reported.values().map(|reported| reported.deposits.len()).sum();
    assert_eq!(known, deposits.len(), "each deposit is of a transaction that was sent to be told of: {deposits:#?}");
    Played { payer, bob, outsider, reported }
}

/// Every deposit, when both lanes have read the chain through and nothing waits.
async fn settled(stage: &Stage) -> Vec<Value> {
    let latest = stage.node.block("latest").await.unwrap().number;
    let begun = Instant::now();
    loop {
        let status = stage.status();
        let deposits = stage.deposits();
        let waits = deposits.iter().any(|deposit| deposit["status"] == "PENDING");
        if status["cursor"] == latest && status["traced"] == latest && !waits {
            assert!(deposits.iter().all(|deposit| deposit["status"] == "CONFIRMED"), "{deposits:#?}");
            return deposits;
        }
        assert!(begun.elapsed() < PATIENCE, "not all is settled: {status} {deposits:#?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

struct Sender<'s> {
    stage: &'s Stage,
    payer: Address,
    bob: Address,
    outsider: Address,
    sent: Vec<(&'static str, String)>,
}

impl Sender<'_> {
    /// Rows E1, E2, E7, E8, E10: native currency, moved by contracts.
    async fn pay_by_contracts(&mut self) {
        let (payer, to) = (self.payer, word(&ALICE));
        self.send("E1", payer, ROUTER, 21, call("payAndUndo(address)", &[to])).await;
        self.send("E2 by a contract", payer, ROUTER, 22, call("payAndRevert(address)", &[to])).await;
        self.send("E7 deep", payer, ROUTER, 71, call("payDeep(address,uint256)", &[to, number(13)])).await;
        self.send("E7 every way", payer, INSIDE, 100, call("all(address)", &[to])).await;
        self.send("E7 by a contract", payer, ROUTER, 73, call("pay(address)", &[to])).await;
        self.send("E8", payer, ROUTER, 81, call("borrow(address)", &[to])).await;
        self.send("E10 native", payer, ROUTER, 102, call("payTwice(address)", &[to])).await;
    }

    /// Rows E6, E7, E11, E22, E23, E24: native currency, moved by the transaction itself.
    async fn pay_by_transactions(&mut self) {
        let (payer, bob) = (self.payer, self.bob);
        let nothing = || "0x".to_owned();
        self.send("E6 native", payer, ALICE, 0, nothing()).await;
        self.send("E7 with calldata", payer, ALICE, 72, "0xdeadbeef".to_owned()).await;
        self.send("E11 native", bob, bob, 111, nothing()).await;
        self.send("E22", payer, ALICE, 1, nothing()).await;
        self.send("E23 native", bob, ALICE, 231, nothing()).await;
        self.send("E23 by a contract", bob, ROUTER, 233, call("pay(address)", &[word(&ALICE)])).await;
        self.send("E24 shop", payer, SHOP, 241, nothing()).await;
        self.send("E24 store", payer, STORE, 242, nothing()).await;
    }

    /// Rows E2, E10, E11, E12, E16, E23, E24: listed tokens.
    async fn pay_tokens(&mut self) {
        let (payer, bob, usdc) = (self.payer, self.bob, self.stage.token);
        let transfer = |to: &Address, amount: u64| token::transfer(to, U256::from(amount));
        let twins = token::pay(&[(ALICE, U256::from(5)), (ALICE, U256::from(5))]);
        self.send("E10 tokens", payer, usdc, 0, twins).await;
        self.send("E12", payer, usdc, 0, token::mint(&ALICE, U256::from(12))).await;
        self.send("E12 for Bob", payer, usdc, 0, token::mint(&bob, U256::from(1_000))).await;
        self.send("E2 tokens", self.outsider, usdc, 0, transfer(&ALICE, 2)).await;
        self.send("E11 tokens", bob, usdc, 0, transfer(&bob, 11)).await;
        self.send("E16 least", payer, usdc, 0, transfer(&ALICE, 1)).await;
        self.send("E16 greatest", payer, BIG_TOKEN, 0, token::mint(&ALICE, U256::MAX)).await;
        self.send("E23 tokens", bob, usdc, 0, transfer(&ALICE, 232)).await;
        self.send("E24 tokens", payer, usdc, 0, transfer(&SHOP, 243)).await;
    }

    /// Rows E6, E13, E15, E23: somebody moves another's tokens, with an allowance; for an amount of nothing nobody
    /// needs one.
    async fn pay_for_others(&mut self) {
        const TRANSFER_FROM: &str = "transferFrom(address,address,uint256)";
        let (payer, outsider, usdc) = (self.payer, self.outsider, self.stage.token);
        let approve = |spender: &Address| call("approve(address,uint256)", &[word(spender), U256::MAX]);
        let (from, to) = (word(&outsider), word(&ALICE));
        self.send("the router may", payer, usdc, 0, approve(&ROUTER)).await;
        self.send("E13", payer, ROUTER, 0, call("forward(address,address,uint256)", &[word(&usdc), to, number(13)]))
            .await;
        self.send("the outsider's tokens", payer, usdc, 0, token::mint(&outsider, U256::from(100))).await;
        self.send("the payer may", outsider, usdc, 0, approve(&payer)).await;
        self.send("E15", payer, usdc, 0, call(TRANSFER_FROM, &[from, to, number(15)])).await;
        self.send("the payer may of Bob", self.bob, usdc, 0, approve(&payer)).await;
        self.send("E23 sponsored", payer, usdc, 0, call(TRANSFER_FROM, &[word(&self.bob), to, number(234)])).await;
        self.send("E6 poisoning", outsider, usdc, 0, call(TRANSFER_FROM, &[word(&self.bob), to, U256::ZERO])).await;
    }

    /// Rows E3, E4, E5, E12, E14: contracts that lie, or do not report.
    async fn seem_to_pay(&mut self) {
        let (payer, from, to) = (self.payer, word(&self.payer), word(&ALICE));
        self.send("E3", payer, ODD_TOKEN, 0, token::transfer(&ALICE, U256::from(3))).await;
        self.send("the copy's tokens", payer, FAKE_USDC, 0, token::mint(&payer, U256::from(100))).await;
        self.send("E4", payer, FAKE_USDC, 0, token::transfer(&ALICE, U256::from(4))).await;
        let with_fee = call("transferWithFee(address,uint256)", &[to, number(1_000)]);
        self.send("E5", payer, FEE_TOKEN, 0, with_fee).await;
        assert_eq!(self.stage.node.balance_of(&FEE_TOKEN, &ALICE).await.unwrap(), U256::from(990));
        self.send("E12 issued", payer, ODD_TOKEN, 0, call("issue(address,uint256)", &[to, number(120)])).await;
        self.send("E12 paid in", payer, ODD_TOKEN, 0, call("depositFor(address,uint256)", &[to, number(121)])).await;
        assert_eq!(self.stage.node.balance_of(&ODD_TOKEN, &ALICE).await.unwrap(), U256::from(241));
        self.send("E14", payer, ODD_TOKEN, 0, call("announceNft(address,address,uint256)", &[from, to, number(14)]))
            .await;
        self.send("E14 short", payer, ODD_TOKEN, 0, call("announceShort(address,address)", &[from, to])).await;
        let honest = call("announce(address,address,uint256)", &[from, to, number(140)]);
        self.send("E14 honest", payer, ODD_TOKEN, 0, honest).await;
    }

    /// Sends a transaction, which the next block holds.
    async fn send(&mut self, name: &'static str, from: Address, to: Address, value: u64, data: String) {
        let request = json!({
            "from": from.to_string(),
            "to": to.to_string(),
            "value": format!("{value:#x}"),
            "data": data,
            "gas": format!("{GAS:#x}"),
        });
        let hash = self.stage.node.rpc("eth_sendTransaction", json!([request])).await.unwrap();
        self.stage.node.mine(1).await.unwrap();
        self.sent.push((name, hash.as_str().unwrap().to_owned()));
    }
}
