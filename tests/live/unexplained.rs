//! What an address holds and no transaction explains, on a real node: a balance that is set, as a genesis does, and a
//! listed token that keeps a fee. Payments make no such entry; nor do those of the other tests, which `Service::stop`
//! sees to.

use std::time::{Duration, Instant};

use landfall::amount::to_decimal;
use landfall::sandbox::anvil::TxRequest;
use landfall::sandbox::token;
use landfall_chain::{Address, U256};
use serde_json::{Value, json};

use crate::balances::Client;
use crate::contracts::{FEE_TOKEN, call, number, word};
use crate::stage::{Engine, Service, Stage, UNEXPLAINED, address};

const PATIENCE: Duration = Duration::from_secs(60);
const ETHER: u64 = 1_000_000_000_000_000_000;

/// A stage on which the node signs for Alice.
struct Play {
    stage: Stage,
    service: Service,
    client: Client,
    alice: Address,
}

impl Play {
    async fn new(engine: Engine) -> Self {
        let stage = Stage::new(engine).await;
        let listed =
            format!("[[chains.ETHEREUM_TESTNET.assets]]\nsymbol = \"FEE\"\ndecimals = 6\ncontract = \"{FEE_TOKEN}\"\n");
        stage.configure(&stage.store, &listed);
        let alice = stage.node.accounts().await.unwrap()[2];
        stage.set_up("alice", &alice).await;
        let client = Client::new(&stage.ok(&["key", "create", "--name", "live"]), |listen| {
            stage.replace_in_config("[api]\nlisten = \"127.0.0.1:0\"", &format!("[api]\nlisten = \"{listen}\""));
        });
        let service = stage.start();
        Play { stage, service, client, alice }
    }

    /// Until what was mined is final and she was read.
    async fn settle(&self) {
        self.stage.node.mine(3).await.unwrap();
        let node = &self.stage.node;
        let amounts = [
            ("ETH", node.balance(&self.alice).await.unwrap(), 18),
            ("USDC", node.balance_of(&self.stage.token, &self.alice).await.unwrap(), 6),
            ("EURC", U256::ZERO, 6),
            ("FEE", node.balance_of(&FEE_TOKEN, &self.alice).await.unwrap(), 6),
        ];
        let line = |(symbol, amount, decimals): (&str, U256, u8)| {
            let amount = to_decimal(amount, decimals);
            [symbol.to_owned(), amount.clone(), amount]
        };
        self.client.until("alice", &amounts.map(line)).await;
    }

    /// So much was reported in the log.
    fn end(self, reported: usize) {
        assert_eq!(self.service.log().matches(UNEXPLAINED).count(), reported);
        self.service.kill();
    }

    /// Pays her until an entry is shown: she is read because something moved, and compared where her blocks were traced
    /// by then. How often she was paid.
    async fn pay_until_reported(&mut self) -> usize {
        let (begun, mut paid) = (Instant::now(), 0);
        while self.reported().is_empty() {
            assert!(begun.elapsed() < PATIENCE, "nothing is told: {}", self.service.log());
            self.stage.pay_token(self.alice, 1_000_000).await;
            self.settle().await;
            paid += 1;
        }
        paid
    }

    /// Asset and amount of each entry.
    fn reported(&self) -> Vec<String> {
        let reported = self.stage.ok(&["deposit", "unattributed", "--json"]);
        reported.lines().map(|line| entry(&serde_json::from_str(line).unwrap())).collect()
    }
}

fn entry(line: &Value) -> String {
    assert_eq!((&line["reason"], &line["account_id"]), (&"unexplained_balance".into(), &"alice".into()), "{line}");
    format!("{} {}", line["currency_symbol"].as_str().unwrap(), line["amount"].as_str().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn e9_a_balance_that_was_set_is_reported() {
    for engine in [Engine::Sqlite, Engine::Postgres] {
        let mut play = Play::new(engine).await;
        play.settle().await;
        let alice = play.alice;
        play.stage.pay_native(alice, 3 * ETHER / 2).await;
        play.stage.pay_token(alice, 5_000_000).await;
        play.settle().await;
        let paid = token::transfer(&address(9), U256::from(2_000_000));
        for (nonce, to, value, data) in [(0, address(9), ETHER / 4, "0x".to_owned()), (1, play.stage.token, 0, paid)] {
            let tx = TxRequest { from: alice, nonce, to, value: U256::from(value), data };
            play.stage.node.send(&tx).await.unwrap();
        }
        play.settle().await;
        assert_eq!(play.stage.ok(&["deposit", "unattributed", "--json"]), "");

        let has = play.stage.node.balance(&alice).await.unwrap();
        let set = json!([alice.to_string(), format!("{:#x}", has + U256::from(7))]);
        play.stage.node.rpc("anvil_setBalance", set).await.unwrap();
        let paid = play.pay_until_reported().await;
        assert_eq!(play.reported(), ["ETH 0.000000000000000007"]);
        assert_eq!(play.stage.deposits().len(), 2 + paid);
        play.end(1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn e5_a_listed_token_that_keeps_a_fee_is_reported() {
    let mut play = Play::new(Engine::Sqlite).await;
    play.settle().await;
    // Its log says 1,000, and her balance grows by 990.
    let with_fee = call("transferWithFee(address,uint256)", &[word(&play.alice), number(1_000)]);
    play.stage.call(FEE_TOKEN, with_fee).await;
    play.settle().await;
    play.stage.until_status("0.001", "CONFIRMED").await;
    assert_eq!(play.reported(), ["FEE -0.00001"]);
    let reported = play.stage.ok(&["deposit", "unattributed"]);
    assert!(reported.contains("unexplained_balance      -0.00001 FEE of alice at "), "{reported}");

    // It contradicts a CONFIRMED deposit: a person must look.
    let open = play.stage.ok(&["incident", "list", "--json"]);
    let incident: Value = serde_json::from_str(&open).unwrap();
    let expected = ("balance_short", play.alice.to_string(), FEE_TOKEN.to_string());
    let text = |key: &str| incident[key].as_str().unwrap().to_owned();
    assert_eq!((text("kind").as_str(), text("address"), text("asset")), expected);
    let deposits = play.stage.deposits();
    let fee = deposits.iter().find(|deposit| deposit["amount"] == "0.001").unwrap();
    assert!(text("what").contains(fee["id"].as_str().unwrap()), "{incident}");
    let health = play.stage.run(&["health"]);
    let said = String::from_utf8_lossy(&health.stdout).into_owned();
    assert!(health.status.code() == Some(1) && said.contains("balance_short"), "{said}");
    play.stage.ok(&["incident", "resolve", &text("id"), "--reason", "a token that keeps a fee"]);
    play.settle().await;
    assert_eq!(play.stage.ok(&["incident", "list"]), "");
    play.end(1);
}
