//! A node that says what the test put on the table, and a source for each chain that asks it.
//!
//! The smallest HTTP there is, in the same thread as the source, so that a million questions take minutes. What is
//! put on the table is text: it need not be JSON. Every input is really read, and by a source that knows nothing of an
//! earlier one: before each, the node is honest for a moment, and a source that does not believe it is made anew.

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use alloy::primitives::B256;
use landfall_chain::{BlockSource, EndpointState, Network};
use landfall_evm::EvmSource;
use landfall_rpc::Timings;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use url::Url;

use super::corpus::BLOCK;
use crate::mint;

pub(super) const CHAIN_ID: &str = "eth_chainId";

/// What is done to the body of an answer, after it was put together.
pub(super) type Spoil = Box<dyn FnMut(Vec<u8>) -> Vec<u8> + Send>;

/// What the node says.
#[derive(Default)]
pub(super) struct Table {
    /// The results of each method in the order of the calls; the last one stands for all further calls.
    results: HashMap<&'static str, Vec<String>>,
    spoil: Option<Spoil>,
    /// Calls that were answered.
    served: HashMap<String, usize>,
    /// The bodies as they were sent.
    said: Vec<Vec<u8>>,
}

/// The node and its sources.
pub(super) struct Door {
    runtime: Runtime,
    table: Arc<Mutex<Table>>,
    url: String,
    sources: HashMap<String, EvmSource>,
}

#[derive(Deserialize)]
struct Call<'a> {
    #[serde(borrow)]
    id: &'a RawValue,
    method: &'a str,
}

impl Door {
    pub(super) fn open() -> Door {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (table, url) = node(&runtime);
        Door { runtime, table, url, sources: HashMap::new() }
    }

    /// What `question` learns from a source of `network` while `table` lies on the node's table.
    pub(super) fn ask<'d, T: 'd>(
        &'d mut self,
        network: &Network,
        lay: impl Fn() -> Table,
        question: impl AsyncFn(&EvmSource) -> T,
    ) -> T {
        let source = self.ready(network);
        let mut table = lay();
        table.results.entry(CHAIN_ID).or_insert_with(|| vec![chain_id(network)]);
        *lock(&self.table) = table;
        let learnt = self.runtime.block_on(question(&source));
        let served = mem::take(&mut lock(&self.table).served);
        assert!(served.keys().any(|method| method != CHAIN_ID), "the source does not ask its node");
        self.sources.insert(network.chain_ref.clone(), source);
        learnt
    }

    /// A source whose node has reported its chain id, and nothing that was ever final: what it learnt from an earlier input
    /// is none of this one's.
    fn ready(&mut self, network: &Network) -> EvmSource {
        let is_healthy = |source: &EvmSource| source.endpoints().snapshot()[0].state == EndpointState::Healthy;
        let before = self.sources.remove(&network.chain_ref).filter(is_healthy);
        if let Some(source) = before.filter(|source| self.greets(network, source)) {
            return source;
        }
        // A lone endpoint that proved a lie is asked again after a pause: with production's, most inputs would wait.
        let url: Url = self.url.parse().unwrap();
        let source = EvmSource::at(network.clone(), vec![url.into()], Timings::SHORT).unwrap();
        assert!(self.greets(network, &source), "an honest node is believed");
        source
    }

    fn greets(&self, network: &Network, source: &EvmSource) -> bool {
        *lock(&self.table) = honest(chain_id(network));
        self.runtime.block_on(source.tip()).is_ok_and(|tip| tip.finalized.is_none())
    }

    /// The results in the bodies that were sent last, as far as they are JSON.
    pub(super) fn said(&self) -> Vec<Value> {
        let bodies =
            lock(&self.table).said.iter().map(|body| serde_json::from_slice(body).unwrap_or_default()).collect();
        let bodies: Vec<Value> = bodies;
        let entries =
            bodies.into_iter().flat_map(|body| if let Value::Array(entries) = body { entries } else { vec![body] });
        entries.map(|mut entry| entry.get_mut("result").map(Value::take).unwrap_or_default()).collect()
    }

    /// Whether a new source takes a node for one of `network` that answers `id` when asked for its chain id.
    pub(super) fn believes_chain_id(&mut self, network: &Network, id: &str) -> bool {
        let source = EvmSource::new(network.clone(), &[self.url.parse().unwrap()]).unwrap();
        *lock(&self.table) = honest(id.to_owned());
        self.runtime.block_on(source.check()).is_ok()
    }
}

/// A node's table and its URL. It runs as long as `runtime` does.
pub(super) fn node(runtime: &Runtime) -> (Arc<Mutex<Table>>, String) {
    let table: Arc<Mutex<Table>> = Arc::default();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let shared = table.clone();
    runtime.spawn(async move {
        let mut connections = tokio::task::JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            connections.spawn(serve(stream, shared.clone()));
        }
    });
    (table, url)
}

pub(super) fn chain_id(network: &Network) -> String {
    let id: u64 = network.chain_ref["eip155:".len()..].parse().unwrap();
    format!("\"{id:#x}\"")
}

/// A chain of one block, none of it final.
pub(super) fn honest(chain_id: String) -> Table {
    let (block, _) = mint::block(0, B256::ZERO, &[]);
    Table::new([(CHAIN_ID, chain_id), (BLOCK, block.to_string()), (BLOCK, "null".to_owned())], None)
}

async fn serve(mut stream: TcpStream, table: Arc<Mutex<Table>>) {
    let mut received = Vec::new();
    loop {
        let request = loop {
            if let Some(request) = whole_request(&received) {
                break request;
            }
            if stream.read_buf(&mut received).await.unwrap_or(0) == 0 {
                return;
            }
        };
        let body = lock(&table).answer(&received[request.0..request.1]);
        received.drain(..request.1);
        let head =
            format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
        let _ = stream.write_all(&[head.as_bytes(), &body].concat()).await;
    }
}

/// Where the body of the first request begins and ends, when all of it has arrived.
fn whole_request(received: &[u8]) -> Option<(usize, usize)> {
    let head = received.windows(4).position(|window| window == b"\r\n\r\n")?;
    let text = std::str::from_utf8(&received[..head]).unwrap().to_ascii_lowercase();
    let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let end = head + 4 + length.parse::<usize>().unwrap();
    (received.len() >= end).then_some((head + 4, end))
}

impl Table {
    /// The answers to each method in their order, and what is done to a whole body.
    pub(super) fn new(answers: impl IntoIterator<Item = (&'static str, String)>, spoil: Option<Spoil>) -> Table {
        let mut results: HashMap<&'static str, Vec<String>> = HashMap::new();
        answers.into_iter().for_each(|(method, text)| results.entry(method).or_default().push(text));
        Table { results, spoil, ..Table::default() }
    }

    /// With a further answer.
    pub(super) fn and(mut self, method: &'static str, text: String) -> Table {
        self.results.entry(method).or_default().push(text);
        self
    }

    /// How often the method was asked for.
    pub(super) fn served(&self, method: &str) -> usize {
        self.served.get(method).copied().unwrap_or_default()
    }

    fn answer(&mut self, request: &[u8]) -> Vec<u8> {
        let (calls, batch): (Vec<Call<'_>>, bool) = match serde_json::from_slice(request) {
            Ok(calls) => (calls, true),
            Err(_) => (vec![serde_json::from_slice(request).unwrap()], false),
        };
        let answers: Vec<String> = calls.iter().map(|call| self.one(call)).collect();
        let body = if batch { format!("[{}]", answers.join(",")) } else { answers.concat() };
        let body = match &mut self.spoil {
            Some(spoil) if calls.iter().all(|call| call.method != CHAIN_ID) => spoil(body.into_bytes()),
            _ => body.into_bytes(),
        };
        self.said.push(body.clone());
        body
    }

    fn one(&mut self, call: &Call<'_>) -> String {
        let before = self.served.entry(call.method.to_owned()).or_default();
        let result = self.results.get(call.method).and_then(|results| results.get(*before).or(results.last()));
        *before += 1;
        match result {
            Some(result) => format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, call.id),
            None => {
                format!(r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":-32601,"message":"no such method"}}}}"#, call.id)
            }
        }
    }
}

pub(super) fn lock(table: &Mutex<Table>) -> std::sync::MutexGuard<'_, Table> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}
