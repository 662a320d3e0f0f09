//! A scripted node: JSON-RPC over HTTP, answered by a closure.
//!
//! `Chain` is a closure's usual heart: it answers truthfully from blocks in memory. A test that wants a lie wraps it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use landfall_chain::{BlockHash, BlockRef, BlockSource, Chain, FinalityRule, Network, Tip};
use landfall_evm::{EvmSource, network};
use serde_json::{Value, json};
use tokio::sync::{OwnedRwLockWriteGuard, RwLock};
use tokio::task::JoinSet;

/// A result, or a JSON-RPC error.
pub(crate) type Answer = Result<Value, (i64, String)>;

/// As the code of an error: the answer leaves this call out.
pub(crate) const LEFT_OUT: i64 = 0;

/// Stands in an answer for a text that no `Value` holds, or that differs from case to case.
pub(crate) const MARK: &str = "@@";

/// What a node may write where a number is expected.
pub(crate) const ANYTHING: [&str; 20] = [
    r#""0x9""#,
    r#""9""#,
    r#""0x""#,
    r#""""#,
    r#""0x-1""#,
    r#""0xzz""#,
    r#""é""#,
    r#""\u0030x1""#,
    r#""0xfffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff""#,
    "1",
    "-1",
    "1.5",
    "1e999",
    "123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890",
    "null",
    "true",
    "{}",
    r#"{"hex":"0x1","more":[1]}"#,
    "[]",
    r#"["0x1"]"#,
];

pub(crate) struct Node {
    address: String,
    http_requests: Arc<AtomicUsize>,
    _task: JoinSet<()>,
}

impl Node {
    pub(crate) async fn start(answer: impl Fn(&str, &Value) -> Answer + Send + Sync + 'static) -> Node {
        Node::start_http(StatusCode::OK, answer).await
    }

    pub(crate) async fn start_http(
        status: StatusCode,
        answer: impl Fn(&str, &Value) -> Answer + Send + Sync + 'static,
    ) -> Node {
        Node::start_rewritten(status, |reply| reply, answer).await
    }

    /// `rewrite` has the last word about a reply's text: what a `Value` cannot hold, or not as deep.
    pub(crate) async fn start_rewritten(
        status: StatusCode,
        rewrite: impl Fn(String) -> String + Send + Sync + 'static,
        answer: impl Fn(&str, &Value) -> Answer + Send + Sync + 'static,
    ) -> Node {
        let reported = Arc::new((rewrite, answer));
        Node::start_raw(move |_, body| {
            let (rewrite, answer) = reported.as_ref();
            let reply = rewrite(reply(&body, answer));
            async move { (status, [("content-type", "application/json")], reply).into_response() }
        })
        .await
    }

    /// Writes `text` wherever [`MARK`] stands.
    pub(crate) async fn start_marked(
        text: &'static str,
        answer: impl Fn(&str, &Value) -> Answer + Send + Sync + 'static,
    ) -> Node {
        let mark = format!("\"{MARK}\"");
        Node::start_rewritten(StatusCode::OK, move |reply| reply.replace(&mark, text), answer).await
    }

    /// Whatever HTTP allows.
    pub(crate) async fn start_raw<F: Future<Output = Response> + Send>(
        respond: impl Fn(HeaderMap, String) -> F + Clone + Send + Sync + 'static,
    ) -> Node {
        let http_requests = Arc::new(AtomicUsize::new(0));
        let count = http_requests.clone();
        let router = Router::new().fallback(move |headers: HeaderMap, body: String| {
            count.fetch_add(1, Ordering::Relaxed);
            respond(headers, body)
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let mut task = JoinSet::new();
        task.spawn(async move { axum::serve(listener, router).await.unwrap() });
        Node { address, http_requests, _task: task }
    }

    /// Host and port.
    pub(crate) fn id(&self) -> &str {
        &self.address
    }

    /// A source that knows this node only.
    pub(crate) fn source(&self, network: Network) -> EvmSource {
        EvmSource::new(network, &[format!("http://{}", self.address).parse().unwrap()]).unwrap()
    }

    /// HTTP requests since the last time this was asked.
    pub(crate) fn take_requests(&self) -> usize {
        self.http_requests.swap(0, Ordering::Relaxed)
    }
}

/// A source that knows these nodes.
pub(crate) fn source(network: Network, nodes: &[&Node]) -> EvmSource {
    let urls: Vec<url::Url> = nodes.iter().map(|node| format!("http://{}", node.id()).parse().unwrap()).collect();
    EvmSource::new(network, &urls).unwrap()
}

/// The same, which has heard all of them.
pub(crate) async fn hearing(network: Network, nodes: &[&Node]) -> EvmSource {
    let source = source(network, nodes);
    hear_all(&source).await;
    source
}

/// Hears every endpoint that may be asked: a tip waits only a moment for who is late, and goes without his voice when the
/// machine stands still. First a poll that was under way, then what they say now, then the hash that is worth asking for.
pub(crate) async fn hear_all(source: &EvmSource) {
    for _ in 0..3 {
        // Some are meant to fail.
        source.check().await.ok();
    }
}

/// The tip when all have been heard.
pub(crate) async fn settled(source: &EvmSource) -> Tip {
    hear_all(source).await;
    source.tip().await.unwrap()
}

/// A source with these nodes, of which the first one leads and is asked first, however fast they are: it alone has reported
/// a tip, and who leads stays before others at its number.
pub(crate) async fn led_by_first(network: Network, nodes: &[&Live]) -> EvmSource {
    let source = source(network, &nodes.iter().map(|live| &live.node).collect::<Vec<_>>());
    let mut held = Vec::new();
    for live in &nodes[1..] {
        held.push(live.hold().await);
    }
    source.tip().await.unwrap();
    drop(held);
    // Once for the answers that were held, and once so that all are known to be prompt.
    for _ in 0..2 {
        source.check().await.unwrap();
    }
    source
}

/// Waits for `is_so`, up to a minute: how long it takes is the machine's affair.
pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !is_so().await {
        assert!(begun.elapsed() < Duration::from_secs(60), "never: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// That `what` takes less than `most` at its best, of up to 30 tries: other load only ever makes it slower.
pub(crate) async fn takes_less_than(most: Duration, mut what: impl AsyncFnMut() -> Duration) {
    let mut best = Duration::MAX;
    for _ in 0..30 {
        best = best.min(what().await);
        if best < most {
            return;
        }
    }
    panic!("{best:?} at its best, and not less than {most:?}");
}

/// A node whose knowledge and manners change while it runs.
pub(crate) struct Live {
    pub(crate) node: Node,
    pub(crate) ledger: Arc<Mutex<Ledger>>,
    pub(crate) delay_ms: Arc<AtomicU64>,
    /// Answers instead of the ledger, where it does.
    pub(crate) lie: Arc<Mutex<Option<Lie>>>,
    calls: Arc<Mutex<Vec<(String, Value)>>>,
    /// Closed while somebody holds it.
    gate: Arc<RwLock<()>>,
}

pub(crate) type Lie = Box<dyn Fn(&str, &Value) -> Option<Answer> + Send>;

impl Live {
    pub(crate) async fn start(ledger: Ledger) -> Live {
        let (ledger, delay_ms) = (Arc::new(Mutex::new(ledger)), Arc::new(AtomicU64::new(0)));
        let (lie, calls) = (Arc::new(Mutex::new(None::<Lie>)), Arc::new(Mutex::new(Vec::new())));
        let (truth, delay, lies, reported) = (ledger.clone(), delay_ms.clone(), lie.clone(), calls.clone());
        let gate = Arc::new(RwLock::new(()));
        let passing = gate.clone();
        let respond = move |_: HeaderMap, body: String| {
            let body = reply(&body, &|method: &str, params: &Value| {
                reported.lock().unwrap().push((method.to_owned(), params.clone()));
                let lie = lies.lock().unwrap().as_ref().and_then(|lie| lie(method, params));
                lie.unwrap_or_else(|| truth.lock().unwrap().answer(method, params))
            });
            let (delay, passing) = (delay.load(Ordering::Relaxed), passing.clone());
            async move {
                drop(passing.read().await);
                tokio::time::sleep(Duration::from_millis(delay)).await;
                ([("content-type", "application/json")], body).into_response()
            }
        };
        Live { node: Node::start_raw(respond).await, ledger, delay_ms, lie, calls, gate }
    }

    pub(crate) fn lie(&self, lie: impl Fn(&str, &Value) -> Option<Answer> + Send + 'static) {
        *self.lie.lock().unwrap() = Some(Box::new(lie));
    }

    pub(crate) fn report_the_truth(&self) {
        *self.lie.lock().unwrap() = None;
    }

    /// Nobody gets an answer while this is held.
    pub(crate) async fn hold(&self) -> OwnedRwLockWriteGuard<()> {
        self.gate.clone().write_owned().await
    }

    pub(crate) fn set_delay_ms(&self, delay: u64) {
        self.delay_ms.store(delay, Ordering::Relaxed);
    }

    /// The methods of the calls since the last time this was asked.
    pub(crate) fn take_calls(&self) -> Vec<(String, Value)> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }
}

pub(crate) fn reply(body: &str, answer: &impl Fn(&str, &Value) -> Answer) -> String {
    let one = |call: &Value| match answer(call["method"].as_str().unwrap(), &call["params"]) {
        Err((LEFT_OUT, _)) => Value::Null,
        Ok(result) => json!({ "jsonrpc": "2.0", "id": call["id"], "result": result }),
        Err((code, message)) => {
            json!({ "jsonrpc": "2.0", "id": call["id"], "error": { "code": code, "message": message } })
        }
    };
    match serde_json::from_str(body).unwrap() {
        Value::Array(calls) => calls.iter().map(one).filter(|answer| !answer.is_null()).collect::<Value>().to_string(),
        call => one(&call).to_string(),
    }
}

fn recorded(prefix: &str, number: u64, part: &str) -> Value {
    let path = format!("{}/testdata/{prefix}_{number}_{part}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// A truthful node's knowledge: blocks with their receipts.
#[derive(Clone, Default)]
pub(crate) struct Ledger {
    pub(crate) chain_id: u64,
    pub(crate) blocks: BTreeMap<u64, (Value, Value)>,
    pub(crate) finalized: Option<u64>,
    /// As `finalized`, where it is not set.
    pub(crate) safe: Option<u64>,
}

impl Ledger {
    /// A chain with one block of `testdata`, for example `("eth_mainnet", 468_179)`.
    pub(crate) fn recorded(chain: Chain, prefix: &str, number: u64) -> Ledger {
        let mut ledger = Ledger::recorded_without_receipts(chain, prefix, number);
        ledger.blocks.entry(number).and_modify(|(_, receipts)| *receipts = recorded(prefix, number, "receipts"));
        ledger
    }

    /// The same with a block whose receipts nobody recorded.
    pub(crate) fn recorded_without_receipts(chain: Chain, prefix: &str, number: u64) -> Ledger {
        Ledger { chain_id: chain_id(chain), ..Ledger::of([(recorded(prefix, number, "block"), Value::Null)]) }
    }

    /// Ethereum mainnet with these blocks.
    pub(crate) fn of(blocks: impl IntoIterator<Item = (Value, Value)>) -> Ledger {
        let number = |block: &Value| u64::from_str_radix(&block["number"].as_str().unwrap()[2..], 16).unwrap();
        let blocks = blocks.into_iter().map(|(block, receipts)| (number(&block), (block, receipts))).collect();
        Ledger { chain_id: 1, blocks, ..Ledger::default() }
    }

    /// The same chain up to here.
    pub(crate) fn up_to(&self, latest: u64, finalized: Option<u64>) -> Ledger {
        let blocks = self.blocks.range(..=latest).map(|(number, block)| (*number, block.clone())).collect();
        Ledger { blocks, finalized, ..self.clone() }
    }

    /// The block at this number, by name.
    pub(crate) fn reference(&self, number: u64) -> BlockRef {
        let hash: alloy::primitives::B256 = self.blocks[&number].0["hash"].as_str().unwrap().parse().unwrap();
        BlockRef { number, hash: BlockHash(hash.0) }
    }

    pub(crate) fn answer(&self, method: &str, params: &Value) -> Answer {
        match method {
            "eth_chainId" => Ok(json!(format!("{:#x}", self.chain_id))),
            "eth_getBlockByNumber" => Ok(self.block(params[0].as_str().unwrap())),
            "eth_getBlockByHash" => {
                Ok(self.by_hash(params[0].as_str().unwrap()).map_or(Value::Null, |found| found.0.clone()))
            }
            "eth_getBlockReceipts" => Ok(self.receipts(params[0].as_str().unwrap())),
            "eth_getLogs" => Ok(self.logs(&params[0])),
            method => Err((-32601, format!("the method {method} does not exist"))),
        }
    }

    fn block(&self, tag: &str) -> Value {
        let number = match tag {
            "latest" => self.blocks.keys().last().copied(),
            "finalized" => self.finalized,
            "safe" => self.safe.or(self.finalized),
            number => u64::from_str_radix(number.strip_prefix("0x").unwrap(), 16).ok(),
        };
        let block = number.and_then(|number| self.blocks.get(&number));
        block.map_or(Value::Null, |(block, _)| block.clone())
    }

    /// By hash, or by number.
    fn receipts(&self, block: &str) -> Value {
        let by_number = || self.blocks.get(&u64::from_str_radix(block.strip_prefix("0x")?, 16).ok()?);
        let found = self.by_hash(block).or_else(by_number);
        found.map_or(Value::Null, |(_, receipts)| receipts.clone())
    }

    fn by_hash(&self, hash: &str) -> Option<&(Value, Value)> {
        self.blocks.values().find(|(block, _)| block["hash"] == hash)
    }

    /// The logs of a block by hash, or of a range, with these contracts and these first topics.
    fn logs(&self, filter: &Value) -> Value {
        let number =
            |name: &str| u64::from_str_radix(filter[name].as_str().unwrap().strip_prefix("0x").unwrap(), 16).unwrap();
        let found: Vec<&(Value, Value)> = match filter["blockHash"].as_str() {
            Some(hash) => self.by_hash(hash).into_iter().collect(),
            None => self.blocks.range(number("fromBlock")..=number("toBlock")).map(|(_, found)| found).collect(),
        };
        let holds = |list: &Value, item: &Value| list.as_array().unwrap().contains(item);
        let mut logs = Vec::new();
        for (block, receipts) in found {
            for receipt in receipts.as_array().unwrap() {
                for log in receipt["logs"].as_array().unwrap() {
                    if holds(&filter["address"], &log["address"]) && holds(&filter["topics"][0], &log["topics"][0]) {
                        let mut log = log.clone();
                        log["blockNumber"] = block["number"].clone();
                        log["transactionHash"] = receipt["transactionHash"].clone();
                        log["transactionIndex"] = receipt["transactionIndex"].clone();
                        log["removed"] = json!(false);
                        logs.push(log);
                    }
                }
            }
        }
        json!(logs)
    }
}

/// What the node of this chain reports as its id.
pub(crate) fn chain_id(chain: Chain) -> u64 {
    network(chain).unwrap().chain_ref["eip155:".len()..].parse().unwrap()
}

/// Ethereum, where the tag alone decides: the chains of these tests are short.
pub(crate) fn mainnet() -> Network {
    Network { finality: FinalityRule::FINALIZED.into(), ..network(Chain::EthereumMainnet).unwrap() }
}
