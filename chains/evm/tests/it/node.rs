//! A scripted node: JSON-RPC over HTTP, answered by a closure.
//!
//! `Chain` is a closure's usual heart: it answers truthfully from blocks in memory. A test that wants a lie wraps it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use landfall_chain::{Chain, Network};
use landfall_evm::{EvmSource, network};
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// A result, or a JSON-RPC error.
pub(crate) type Answer = Result<Value, (i64, String)>;

/// As the code of an error: the answer leaves this call out.
pub(crate) const LEFT_OUT: i64 = 0;

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
        let http_requests = Arc::new(AtomicUsize::new(0));
        let (count, answer, rewrite) = (http_requests.clone(), Arc::new(answer), Arc::new(rewrite));
        let router = Router::new().fallback(move |body: String| {
            count.fetch_add(1, Ordering::Relaxed);
            let reply = rewrite(reply(&body, answer.as_ref()));
            async move { (status, [("content-type", "application/json")], reply).into_response() }
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

fn reply(body: &str, answer: &impl Fn(&str, &Value) -> Answer) -> String {
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

/// A truthful node's knowledge: blocks with their receipts.
#[derive(Clone, Default)]
pub(crate) struct Ledger {
    pub(crate) chain_id: u64,
    pub(crate) blocks: BTreeMap<u64, (Value, Value)>,
    pub(crate) finalized: Option<u64>,
}

impl Ledger {
    /// A chain with one block of `testdata`, for example `("eth_mainnet", 468_179)`.
    pub(crate) fn recorded(chain: Chain, prefix: &str, number: u64) -> Ledger {
        let read = |part: &str| {
            let path = format!("{}/testdata/{prefix}_{number}_{part}.json", env!("CARGO_MANIFEST_DIR"));
            serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
        };
        Ledger { chain_id: chain_id(chain), ..Ledger::of([(read("block"), read("receipts"))]) }
    }

    /// Ethereum mainnet with these blocks.
    pub(crate) fn of(blocks: impl IntoIterator<Item = (Value, Value)>) -> Ledger {
        let number = |block: &Value| u64::from_str_radix(&block["number"].as_str().unwrap()[2..], 16).unwrap();
        let blocks = blocks.into_iter().map(|(block, receipts)| (number(&block), (block, receipts))).collect();
        Ledger { chain_id: 1, blocks, finalized: None }
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
            "finalized" | "safe" => self.finalized,
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

/// What the node of this chain tells as its id.
pub(crate) fn chain_id(chain: Chain) -> u64 {
    network(chain).unwrap().chain_ref["eip155:".len()..].parse().unwrap()
}

pub(crate) fn mainnet() -> Network {
    network(Chain::EthereumMainnet).unwrap()
}
