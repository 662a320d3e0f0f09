//! A node of a Solana cluster, scripted: blocks in slots of its own, and what it lacks, leaves out and refuses.
//!
//! It answers as agave does (codes and words of `custom_error.rs`), one call at a time. A blockhash is made of the slot
//! and of the fork that the block is on. The watcher's tests in `tests/it` use it too. It holds us to what we must ask for: `confirmed`, no rewards, no batches.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use axum::Router;
use landfall_chain::{Address, Block, BlockHash, BlockRef, Chain, Legs, Read, ReadProof, SourceError};
use landfall_solana::{Sample, SolanaSource, network};
use serde_json::{Value, json};
use tokio::task::JoinSet;

pub(crate) const GENESIS: &str = "5eykt4UsFv8P8NJdTREpY1vzqKqZKvdpKuc147dw2N9d";
pub(crate) const TIME: u64 = 1_790_000_000;

/// A block as a node tells it.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) slot: u64,
    pub(crate) parent: BlockRef,
    pub(crate) fork: u8,
    pub(crate) time: Option<u64>,
    pub(crate) txs: Vec<Value>,
}

/// What a node answers to `getBlock` of one slot instead of a block.
#[derive(Clone, Debug)]
pub(crate) enum Instead {
    Error(i64, &'static str),
    Null,
    /// To those that ask for less than this transaction version; the headers are told.
    Needs(u8),
    /// As before, whatever is asked for.
    NeverEnough,
}

pub(crate) struct State {
    pub(crate) blocks: BTreeMap<u64, Told>,
    pub(crate) finalized: u64,
    pub(crate) genesis: String,
    /// Left out of lists.
    pub(crate) unlisted: BTreeSet<u64>,
    pub(crate) instead: BTreeMap<u64, Instead>,
    /// What is answered to `getTransaction`, by signature; null for others.
    pub(crate) transactions: BTreeMap<String, Answer>,
    /// It answers nothing, and closes nothing.
    pub(crate) silent: bool,
    /// What `getLatestBlockhash` shows at `confirmed` where a node answers that lags.
    pub(crate) lagging: Option<u64>,
    /// Method, and the slot where there is one.
    pub(crate) calls: Vec<(String, u64)>,
}

pub(crate) struct Node {
    pub(crate) address: String,
    state: Mutex<State>,
    tasks: Mutex<JoinSet<()>>,
}

pub(crate) fn hash(slot: u64, fork: u8) -> BlockHash {
    let mut bytes = [fork; 32];
    bytes[..8].copy_from_slice(&slot.to_be_bytes());
    BlockHash(bytes)
}

pub(crate) fn at(slot: u64) -> BlockRef {
    BlockRef { number: slot, hash: hash(slot, 0) }
}

fn base58(hash: BlockHash) -> String {
    Address::Solana(hash.0).to_string()
}

/// Empty blocks in these slots, each on the one before it; the first on the slot below it.
pub(crate) fn chain(slots: impl IntoIterator<Item = u64>) -> BTreeMap<u64, Told> {
    let mut parent = None;
    let mut blocks = BTreeMap::new();
    for slot in slots {
        let stands_on = parent.unwrap_or_else(|| at(slot - 1));
        let told = Told { slot, parent: stands_on, fork: 0, time: Some(TIME + slot), txs: Vec::new() };
        parent = Some(told.block());
        blocks.insert(slot, told);
    }
    blocks
}

/// The same with every block from `slot` on of another fork.
pub(crate) fn forked(mut blocks: BTreeMap<u64, Told>, slot: u64, fork: u8) -> BTreeMap<u64, Told> {
    let mut parent = None;
    for told in blocks.range_mut(slot..).map(|(_, told)| told) {
        told.parent = parent.unwrap_or(told.parent);
        told.fork = fork;
        parent = Some(told.block());
    }
    blocks
}

impl Told {
    pub(crate) fn block(&self) -> BlockRef {
        BlockRef { number: self.slot, hash: hash(self.slot, self.fork) }
    }
}

impl Node {
    pub(crate) async fn start(blocks: BTreeMap<u64, Told>) -> Arc<Node> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let node = Arc::new(Node { address, state: Mutex::new(State::of(blocks)), tasks: Mutex::new(JoinSet::new()) });
        let serving = Arc::downgrade(&node);
        let router = Router::new().fallback(move |body: String| {
            let serving = serving.upgrade();
            let silent = serving.as_ref().is_some_and(|node| node.state().silent);
            let reply = serving.map(|node| node.reply(&body)).unwrap_or_default();
            async move {
                if silent {
                    std::future::pending::<()>().await;
                }
                ([("content-type", "application/json")], reply)
            }
        });
        node.tasks.lock().unwrap().spawn(async move { axum::serve(listener, router).await.unwrap() });
        node
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// One more block, in the next slot, with these transactions.
    pub(crate) fn grow(&self, txs: Vec<Value>) -> BlockRef {
        let mut state = self.state();
        let parent = state.blocks[&state.latest()].block();
        let slot = parent.number + 1;
        let told = Told { slot, parent, fork: 0, time: Some(TIME + slot), txs };
        let block = told.block();
        state.blocks.insert(slot, told);
        block
    }

    /// Its ledger lost these slots: neither lists nor blocks show them.
    pub(crate) fn lose(&self, slots: impl IntoIterator<Item = u64>) {
        let mut state = self.state();
        slots.into_iter().for_each(|slot| drop(state.blocks.remove(&slot)));
    }

    /// How often `method` was called, for this slot where one is given.
    pub(crate) fn calls(&self, method: &str, slot: Option<u64>) -> usize {
        let is_it = |call: &&(String, u64)| call.0 == method && slot.is_none_or(|slot| call.1 == slot);
        self.state().calls.iter().filter(is_it).count()
    }

    fn reply(&self, body: &str) -> String {
        let request: Value = serde_json::from_str(body).unwrap();
        assert!(request.is_object(), "a batch");
        let method = request["method"].as_str().unwrap();
        let mut state = self.state();
        state.calls.push((method.to_owned(), request["params"][0].as_u64().unwrap_or_default()));
        match state.answer(method, &request["params"]) {
            Ok(result) => json!({ "jsonrpc": "2.0", "id": request["id"], "result": result }),
            Err((code, message)) => {
                json!({ "jsonrpc": "2.0", "id": request["id"], "error": { "code": code, "message": message } })
            }
        }
        .to_string()
    }
}

pub(crate) type Answer = Result<Value, (i64, String)>;

impl State {
    /// Of a node with these blocks, of which the first is final.
    pub(crate) fn of(blocks: BTreeMap<u64, Told>) -> Self {
        State {
            finalized: *blocks.keys().next().unwrap(),
            blocks,
            genesis: GENESIS.to_owned(),
            unlisted: BTreeSet::new(),
            instead: BTreeMap::new(),
            transactions: BTreeMap::new(),
            silent: false,
            lagging: None,
            calls: Vec::new(),
        }
    }

    pub(crate) fn latest(&self) -> u64 {
        *self.blocks.keys().next_back().unwrap()
    }

    fn answer(&self, method: &str, params: &Value) -> Answer {
        match method {
            "getGenesisHash" => Ok(json!(self.genesis)),
            "getLatestBlockhash" => {
                let slot = match params[0]["commitment"].as_str().unwrap() {
                    "finalized" => self.finalized,
                    "confirmed" => self.lagging.unwrap_or_else(|| self.latest()),
                    other => panic!("asked at {other}"),
                };
                if params[0]["minContextSlot"].as_u64() > Some(slot) {
                    return Err((-32_016, "Minimum context slot has not been reached".to_owned()));
                }
                let blockhash = base58(self.blocks[&slot].block().hash);
                Ok(json!({
                    "context": { "slot": slot }, "value": { "blockhash": blockhash, "lastValidBlockHeight": 1 },
                }))
            }
            "getBlocks" => {
                assert_eq!(params[2]["commitment"], "confirmed");
                let range = params[0].as_u64().unwrap()..=params[1].as_u64().unwrap();
                let slots = self.blocks.range(range).map(|(slot, _)| *slot);
                Ok(slots.filter(|slot| !self.unlisted.contains(slot)).collect())
            }
            "getBlock" => self.block(params[0].as_u64().unwrap(), &params[1]),
            "getSignatureStatuses" => {
                let has = |told: &&Told| told.txs.iter().any(|tx| tx["transaction"]["signatures"][0] == params[0][0]);
                let found = self.blocks.values().find(has);
                let status = found.map(|told| json!({ "slot": told.slot, "confirmations": null, "err": null }));
                Ok(json!({ "context": { "slot": self.latest() }, "value": [status] }))
            }
            "getTransaction" => {
                let how = &params[1];
                assert_eq!((&how["commitment"], &how["encoding"]), (&json!("confirmed"), &json!("json")));
                assert!(how["maxSupportedTransactionVersion"].as_u64() >= Some(1));
                self.transactions.get(params[0].as_str().unwrap()).cloned().unwrap_or(Ok(Value::Null))
            }
            other => Err((-32_601, format!("Method not found: {other}"))),
        }
    }

    fn block(&self, slot: u64, how: &Value) -> Answer {
        assert_eq!((&how["commitment"], &how["rewards"]), (&json!("confirmed"), &json!(false)));
        let is_header = how["transactionDetails"] == "none";
        let unsupported = |version: u8| {
            let message = format!(
                "Transaction version ({version}) is not supported by the requesting client. Please try the request \
                 again with the following configuration parameter: \"maxSupportedTransactionVersion\": {version}"
            );
            Err((-32_015, message))
        };
        match self.instead.get(&slot) {
            Some(Instead::Error(code, message)) => return Err((*code, (*message).to_owned())),
            Some(Instead::Null) => return Ok(Value::Null),
            Some(Instead::Needs(version))
                if !is_header && how["maxSupportedTransactionVersion"].as_u64() < Some(u64::from(*version)) =>
            {
                return unsupported(*version);
            }
            Some(Instead::NeverEnough) if !is_header => return unsupported(9),
            Some(Instead::Needs(_) | Instead::NeverEnough) | None => {}
        }
        let Some(told) = self.blocks.get(&slot) else {
            return Err(if slot > self.latest() {
                (-32_004, format!("Block not available for slot {slot}"))
            } else {
                (-32_007, format!("Slot {slot} was skipped, or missing due to ledger jump to recent snapshot"))
            });
        };
        let mut block = json!({
            "blockhash": base58(told.block().hash), "previousBlockhash": base58(told.parent.hash),
            "parentSlot": told.parent.number, "blockTime": told.time, "blockHeight": slot - 3,
        });
        if !is_header {
            assert_eq!(how["transactionDetails"], "accounts");
            block["transactions"] = json!(told.txs);
        }
        Ok(block)
    }
}

/// A source over these nodes, which compares no block that is only looked through.
pub(crate) fn source(nodes: &[&Arc<Node>]) -> SolanaSource {
    let urls: Vec<_> = nodes.iter().map(|node| format!("http://{}", node.address).parse().unwrap()).collect();
    let source = SolanaSource::new(&network(Chain::SolanaMainnet).unwrap(), &urls).unwrap();
    source.with_sample(Sample { one_in: 0, key: 0 })
}

/// Two nodes with the same blocks, 10 to 15; the first is a block ahead, so that it leads and is asked first.
pub(crate) async fn two() -> (Arc<Node>, Arc<Node>, SolanaSource) {
    let (ahead, other) = (Node::start(chain(10..=16)).await, Node::start(chain(10..=15)).await);
    let source = source(&[&ahead, &other]);
    leads(&source, 16).await;
    (ahead, other, source)
}

pub(crate) async fn leads(source: &SolanaSource, latest: u64) {
    assert_eq!(landfall_chain::BlockSource::tip(source).await.unwrap().latest.number, latest);
}

/// As one endpoint tells them.
pub(crate) async fn blocks(source: &SolanaSource, first: u64, last: u64) -> Result<Vec<Block>, SourceError> {
    let read = Read { proof: ReadProof::Listed, legs: Legs::Explained, ..Read::FULL };
    landfall_chain::BlockSource::blocks(source, first..=last, read).await
}

/// The slots of the blocks that come back, each of which stands on the one before it.
pub(crate) async fn slots(source: &SolanaSource, first: u64, last: u64) -> Vec<u64> {
    let blocks = blocks(source, first, last).await.unwrap();
    assert!(blocks.windows(2).all(|pair| pair[1].header.parent == pair[0].header.block), "{blocks:?}");
    blocks.iter().map(|block| block.header.block.number).collect()
}
