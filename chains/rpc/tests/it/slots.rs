//! A family of chains whose blocks stand in slots, and nodes of it that answer one call at a time.
//!
//! Every seventh slot holds no block, and neither does slot 13. A block's hash is its slot, 32 times; on the fork every
//! bit of it is turned. A node that is sent a batch counts it and refuses. Nothing is proved here: the family's word is
//! what agreement makes of it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::http::HeaderMap;
use landfall_chain::{BlockHash, BlockRef};
use landfall_rpc::{Call, Codes, Dialect, Endpoint, Fault, HeadReport, Question, RpcError, Subscription};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::task::JoinSet;

pub(crate) const GENESIS: &str = "genesis";

#[derive(Debug)]
pub(crate) struct Slots;

#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum SlotError {
    #[error(transparent)]
    Rpc(#[from] RpcError),
    #[error("endpoint {endpoint} serves another cluster than {GENESIS}")]
    WrongCluster { endpoint: String },
}

/// A block as nodes report it: where it is, and its hash.
#[derive(Deserialize)]
struct BlockResponse {
    slot: u64,
    hash: u8,
}

impl Dialect for Slots {
    type Error = SlotError;
    /// The newest slot that the node calls final.
    type Marks = u64;
    type Memory = ();

    const CODES: &'static Codes = &Codes { batch_too_large: &[], pruned: &[-32_001], limit_exceeded: &[] };
    const BATCH_MAX: usize = 1;
    const BLOCKS: &'static str = "getBlock";
    const IDENTITY: &'static str = "genesis hash";
    const SOUND: &'static str = "the right genesis hash";
    const SUBSCRIPTION: Subscription = Subscription { request: "", head: |_| None };

    fn fault(error: &SlotError) -> Fault {
        match error {
            SlotError::Rpc(error) => error.fault(),
            SlotError::WrongCluster { .. } => Fault::WrongChain,
        }
    }

    async fn poll(&self, endpoint: &Endpoint<Self>, question: &Question) -> Result<HeadReport<u64>, SlotError> {
        if question.which_chain {
            let answers = endpoint.ask_all(&[Call { method: "getGenesisHash", params: json!([]) }]).await?;
            let genesis: &str = endpoint.parse("getGenesisHash", &answers[0])?;
            if genesis != GENESIS {
                return Err(SlotError::WrongCluster { endpoint: endpoint.id.clone() });
            }
        }
        let of = |commitment| Call { method: "getLatestBlockhash", params: json!([commitment]) };
        let answers = endpoint.ask_all(&[of("confirmed"), of("finalized")]).await?;
        let latest: BlockResponse = endpoint.parse("getLatestBlockhash", &answers[0])?;
        let finalized: BlockResponse = endpoint.parse("getLatestBlockhash", &answers[1])?;
        let mut hashes = BTreeMap::from([latest.block(), finalized.block()].map(|block| (block.number, block.hash)));
        let calls: Vec<Call> =
            question.numbers.iter().map(|slot| Call { method: "getBlock", params: json!([slot]) }).collect();
        for answer in endpoint.ask(&calls).await? {
            // No block in this slot, or none yet: it has no say.
            let Ok(answer) = answer else { continue };
            let block = endpoint.parse::<BlockResponse>("getBlock", &answer)?.block();
            hashes.insert(block.number, block.hash);
        }
        Ok(HeadReport { latest: latest.block(), hashes, marks: finalized.slot })
    }

    fn rules(&self) -> usize {
        1
    }

    fn finals(&self, word: &HeadReport<u64>, (): &mut ()) -> Vec<Option<u64>> {
        vec![Some(word.marks)]
    }
}

impl BlockResponse {
    fn block(&self) -> BlockRef {
        BlockRef { number: self.slot, hash: BlockHash([self.hash; 32]) }
    }
}

/// What a node is, to be changed while it serves.
pub(crate) struct Node {
    pub(crate) address: String,
    pub(crate) latest: AtomicU64,
    pub(crate) finalized: AtomicU64,
    pub(crate) forked: AtomicBool,
    pub(crate) genesis: Mutex<String>,
    /// To every `getBlock`: code and message.
    pub(crate) refuses: Mutex<Option<(i64, String)>>,
    pub(crate) batches: AtomicUsize,
    pub(crate) accepts_gzip: AtomicBool,
    tasks: Mutex<JoinSet<()>>,
}

impl Node {
    pub(crate) async fn start(latest: u64, finalized: u64) -> Arc<Node> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let node = Arc::new(Node {
            address: listener.local_addr().unwrap().to_string(),
            latest: latest.into(),
            finalized: finalized.into(),
            forked: AtomicBool::new(false),
            genesis: Mutex::new(GENESIS.to_owned()),
            refuses: Mutex::default(),
            batches: AtomicUsize::new(0),
            accepts_gzip: AtomicBool::new(false),
            tasks: Mutex::new(JoinSet::new()),
        });
        let serving = Arc::downgrade(&node);
        let router = Router::new().fallback(move |headers: HeaderMap, body: String| {
            let reply = serving.upgrade().map(|node| node.reply(&headers, &body)).unwrap_or_default();
            async move { ([("content-type", "application/json")], reply) }
        });
        node.tasks.lock().unwrap().spawn(async move { axum::serve(listener, router).await.unwrap() });
        node
    }

    fn reply(&self, headers: &HeaderMap, body: &str) -> String {
        let encodings = headers.get("accept-encoding").and_then(|value| value.to_str().ok()).unwrap_or_default();
        self.accepts_gzip.store(encodings.contains("gzip"), Relaxed);
        let request: Value = serde_json::from_str(body).unwrap();
        if request.is_array() {
            self.batches.fetch_add(1, Relaxed);
            return json!({ "jsonrpc": "2.0", "id": null, "error": { "code": -32_600, "message": "no" } }).to_string();
        }
        let answer = self.answer(request["method"].as_str().unwrap(), &request["params"][0]);
        match answer {
            Ok(result) => json!({ "jsonrpc": "2.0", "id": request["id"], "result": result }),
            Err((code, message)) => {
                json!({ "jsonrpc": "2.0", "id": request["id"], "error": { "code": code, "message": message } })
            }
        }
        .to_string()
    }

    fn answer(&self, method: &str, param: &Value) -> Result<Value, (i64, String)> {
        let slot = match (method, param.as_str()) {
            ("getGenesisHash", _) => return Ok(json!(*self.genesis.lock().unwrap())),
            ("getLatestBlockhash", Some("finalized")) => self.finalized.load(Relaxed),
            ("getLatestBlockhash", _) => self.latest.load(Relaxed),
            _ => {
                if let Some(refusal) = self.refuses.lock().unwrap().clone() {
                    return Err(refusal);
                }
                param.as_u64().unwrap()
            }
        };
        if slot > self.latest.load(Relaxed) {
            return Err((-32_004, format!("Block not available for slot {slot}")));
        }
        if slot % 7 == 0 && method == "getBlock" || slot == 13 {
            return Err((
                -32_007,
                format!("Slot {slot} was skipped, or missing due to ledger jump to recent snapshot"),
            ));
        }
        let hash = u8::try_from(slot).unwrap();
        Ok(json!({ "slot": slot, "hash": if self.forked.load(Relaxed) { !hash } else { hash } }))
    }
}
