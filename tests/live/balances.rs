//! What the API says that an account has is what the node says: native and tokens, after deposits, and after payments
//! that Landfall had no part in.

use std::time::{Duration, Instant};

use landfall::amount::to_decimal;
use landfall::sandbox::anvil::TxRequest;
use landfall::sandbox::token;
use landfall_chain::{Address, U256};
use serde_json::Value;

use crate::stage::{Engine, Stage, address};

const PATIENCE: Duration = Duration::from_secs(180);
const ETHER: u64 = 1_000_000_000_000_000_000;

/// A client of the API.
pub(crate) struct Client {
    http: reqwest::Client,
    url: String,
    key: String,
}

impl Client {
    /// Of an API that is going to listen at a free port, which `listen` writes into the configuration.
    pub(crate) fn new(key: &str, listen: impl FnOnce(&str)) -> Self {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        listen(&format!("127.0.0.1:{port}"));
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        Client { http, url: format!("http://127.0.0.1:{port}"), key: key.trim().to_owned() }
    }

    /// Symbol, total and available of each line; the whole answer where there is none, and nothing while nobody
    /// answers.
    async fn balances(&self, account: &str) -> Result<Vec<[String; 3]>, Value> {
        let request = self.http.get(format!("{}/v2/accounts/{account}/balances", self.url));
        let Ok(answer) = request.header("authorization", format!("Bearer {}", self.key)).send().await else {
            return Err(Value::Null);
        };
        let (status, text) = (answer.status(), answer.text().await.unwrap());
        let answer: Value = serde_json::from_str(&text).unwrap();
        if status == 503 {
            assert_eq!(answer["code"], "BALANCE_UNKNOWN", "{answer}");
            return Err(answer);
        }
        assert_eq!(status, 200, "{answer}");
        let fields = ["symbol", "total", "available"];
        let lines = answer["balances"].as_array().unwrap().iter();
        Ok(lines.map(|line| fields.map(|field| line[field].as_str().unwrap().to_owned())).collect())
    }

    /// Waits until this asset is all that is not known.
    pub(crate) async fn until_unknown(&self, account: &str, symbol: &str) {
        let (begun, alone) = (Instant::now(), format!("({symbol}) is not known"));
        loop {
            let reported = self.balances(account).await;
            if reported.as_ref().is_err_and(|answer| answer["detail"].as_str().is_some_and(|it| it.contains(&alone))) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "not {symbol} alone is unknown: {reported:#?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until these are the lines; how long it took.
    pub(crate) async fn until(&self, account: &str, expected: &[[String; 3]]) -> Duration {
        let begun = Instant::now();
        loop {
            let reported = self.balances(account).await;
            if reported.as_deref() == Ok(expected) {
                return begun.elapsed();
            }
            assert!(begun.elapsed() < PATIENCE, "{reported:#?} is not {expected:#?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// What the node says that an address has now: ether and USDC.
async fn has(stage: &Stage, who: &Address) -> [U256; 2] {
    [stage.node.balance(who).await.unwrap(), stage.node.balance_of(&stage.token, who).await.unwrap()]
}

/// The lines of an account that has this in total, and that of it is available. Nobody has any of the third asset.
fn lines(total: [U256; 2], available: [U256; 2]) -> [[String; 3]; 3] {
    let line = |symbol: &str, index: usize, decimals| {
        let text = |amounts: [U256; 2]| to_decimal(amounts[index], decimals);
        [symbol.to_owned(), text(total), text(available)]
    };
    [line("ETH", 0, 18), line("USDC", 1, 6), ["EURC", "0", "0"].map(str::to_owned)]
}

#[tokio::test(flavor = "multi_thread")]
async fn balances_are_what_the_node_says_on_sqlite() {
    balances_are_what_the_node_says(Engine::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn balances_are_what_the_node_says_on_postgresql() {
    balances_are_what_the_node_says(Engine::Postgres).await;
}

async fn balances_are_what_the_node_says(engine: Engine) {
    let mut stage = Stage::new(engine).await;
    // The node signs for her, as somebody would who has her key.
    let alice = stage.node.accounts().await.unwrap()[2];
    stage.set_up("alice", &alice).await;
    let client = Client::new(&stage.ok(&["key", "create", "--name", "live"]), |listen| {
        stage.replace_in_config("[api]\nlisten = \"127.0.0.1:0\"", &format!("[api]\nlisten = \"{listen}\""));
    });
    let service = stage.start();
    let had = has(&stage, &alice).await;
    // The assets are followed from behind the block that was reached when they were first looked at: that one becomes
    // final, too.
    let begun = Instant::now();
    while client.balances("alice").await.is_err() {
        assert!(begun.elapsed() < PATIENCE, "what alice has is never known");
        stage.node.mine(1).await.unwrap();
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    client.until("alice", &lines(had, had)).await;

    stage.pay_native(alice, 3 * ETHER / 2).await;
    stage.pay_token(alice, 5_000_000).await;
    stage.node.mine(1).await.unwrap();
    stage.until("two PENDING", |deposits| deposits.len() == 2).await;
    client.until("alice", &lines(had, had)).await;
    stage.node.mine(2).await.unwrap();
    let has_now = has(&stage, &alice).await;
    assert_eq!(has_now, [had[0] + U256::from(3 * ETHER / 2), had[1] + U256::from(5_000_000)]);
    let took = client.until("alice", &lines(has_now, has_now)).await;
    println!("{engine:?}: a deposit is in the balance {} ms after its block is final", took.as_millis());

    let had = has_now;
    for (nonce, (to, value, data)) in [
        (address(9), U256::from(ETHER / 4), "0x".to_owned()),
        (stage.token, U256::ZERO, token::transfer(&address(9), U256::from(2_000_000))),
    ]
    .into_iter()
    .enumerate()
    {
        let nonce = u64::try_from(nonce).unwrap();
        stage.node.send(&TxRequest { from: alice, nonce, to, value, data }).await.unwrap();
    }
    stage.node.mine(1).await.unwrap();
    let left = has(&stage, &alice).await;
    assert!(left[0] < had[0] - U256::from(ETHER / 4), "there is a fee");
    assert_eq!(left[1], had[1] - U256::from(2_000_000));
    client.until("alice", &lines(had, left)).await;
    stage.node.mine(2).await.unwrap();
    let took = client.until("alice", &lines(left, left)).await;
    println!("{engine:?}: a payment of hers is out of the balance {} ms after its block is final", took.as_millis());

    // Added beside the service: the first reading is made at once.
    let spec = format!("ETHEREUM_TESTNET={}", address(9));
    stage.ok(&["account", "add", "--account", "late", "--type", "OMNIBUS", "--address", &spec]);
    let late = has(&stage, &address(9)).await;
    // What left it before it was watched is not in the books until all of that is final.
    assert_eq!(client.balances("late").await.unwrap_err()["code"], "BALANCE_UNKNOWN");
    stage.node.mine(2).await.unwrap();
    let took = client.until("late", &lines(late, late)).await;
    println!("{engine:?}: the first reading came {} ms after all of it was final", took.as_millis());
    assert_eq!(service.stop().0, Some(0));
}
