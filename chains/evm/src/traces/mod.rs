//! What moved inside of the transactions of proved blocks, as endpoints trace it.
//!
//! No root covers a trace. So each block says how many endpoints reported it, one or two that agree (`witnesses`), and
//! whether these run different software (`engine`). The method that works at an endpoint is found by asking, and
//! remembered; a missing one is asked for again after ten minutes. Blocks that need no trace are proved as they are:
//! they have no transactions, or their network is not traced, or its own logs report every movement (EIP-7708).
//! Promises: only internal legs are returned, numbered behind the equal ones that the roots prove. A trace that
//! contradicts the proved block is never believed. A failure to trace does not change the endpoint's state in the
//! pool: it may still read tokens well.

pub(crate) mod call_tracer;
mod disputed;
pub(crate) mod engine;
pub(crate) mod frames;
mod methods;
pub(crate) mod one_by_one;
pub(crate) mod trace_block;
pub(crate) mod witnesses;

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use alloy::primitives::B256;
use landfall_chain::{
    AssetTransfer, Block, BlockRef, Debits, Inside, Legs, Native, Read, ReadProof, TxId, number_equal_legs,
};
use landfall_rpc::{Answer, Call, Need, NodeError, Raw};
use serde_json::json;
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::dialect::{Endpoint, Pool};
use crate::error::EvmError;
use crate::kept::ProvedBlock;
use crate::traces::disputed::Disputed;
use crate::traces::engine::Engine;
use crate::traces::frames::{Malformed, Moved, ProvedTx, Trace};
use crate::traces::methods::Methods;
use crate::traces::witnesses::{Asked, Believed, Reading};

/// Traces of one block of mainnet are some megabytes, and take a node a second: what is asked for in one request
/// must come back within its timeout.
const TRACED_MAX: u64 = 8;
/// How long a node may take for one transaction. geth gives up after 5 s without this option (`eth/tracers/api.go`),
/// and then fails the whole block. It is less than a request may take. A node without such a limit ignores it.
pub(crate) const TX_TIMEOUT: &str = "12s";
/// JSON-RPC's code for an unknown method, and Besu's for one that is switched off.
const UNKNOWN_METHOD: [i64; 2] = [-32_601, -32_604];

/// Reads the traces of one network.
#[derive(Debug)]
pub(crate) struct Tracer {
    native: Native,
    methods: Methods,
    disputed: Disputed,
    /// How many blocks are traced at once: fewer after a failed request, more after one that succeeded.
    width: AtomicU64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Method {
    CallTracer,
    TraceBlock,
}

/// What an endpoint reported of all blocks, and the engine that it ran.
type TraceReading = (Engine, Vec<Moved>);

impl Tracer {
    pub(crate) fn new(native: Native) -> Self {
        Tracer { native, methods: Methods::default(), disputed: Disputed::default(), width: AtomicU64::new(TRACED_MAX) }
    }

    /// Whether block `number` has to be traced.
    pub(crate) fn traces(&self, number: u64) -> bool {
        self.native.is_traced(number)
    }

    /// As much of `range` as is traced at once: of 5..=100 with a width of 8, 5..=12.
    pub(crate) fn narrow(&self, range: RangeInclusive<u64>) -> RangeInclusive<u64> {
        let last = range.start().saturating_add(self.width.load(Ordering::Relaxed).saturating_sub(1));
        *range.start()..=last.min(*range.end())
    }

    /// The blocks of the lane of traces, from blocks as the roots prove them.
    pub(crate) async fn blocks(
        &self,
        pool: &Pool,
        proved: Vec<ProvedBlock>,
        read: Read,
    ) -> Result<Vec<Block>, EvmError> {
        let (blocks, asked): (Vec<Block>, Vec<Asked>) = proved.into_iter().map(|proved| self.asked(proved)).unzip();
        let mut readings = Vec::new();
        if asked.iter().any(|block| !block.txs.is_empty()) {
            readings = self.readings(pool, &asked, read.proof).await?;
        }
        let reported =
            witnesses::believed(pool.chain(), &asked, readings).inspect_err(|_| self.disputed.note(&asked))?;
        let believed = blocks.into_iter().zip(&asked).zip(reported);
        Ok(believed.map(|((roots, asked), believed)| in_lane(roots, asked, believed, read.legs)).collect())
    }

    fn asked(&self, (block, txs): ProvedBlock) -> (Block, Asked) {
        let at = block.header.block;
        let txs = if self.native.is_traced(at.number) { txs } else { Vec::new() };
        (block, Asked { at, txs })
    }

    /// As many readings as `proof` wants, or as the endpoints give; at least one. An endpoint that has the blocks is
    /// asked first, then one that last ran another engine. While no two agree, the next one is asked: one mistaken
    /// endpoint must not hold up what two others know.
    async fn readings<'p>(
        &self,
        pool: &'p Pool,
        asked: &[Asked],
        proof: ReadProof,
    ) -> Result<Vec<Reading<'p>>, EvmError> {
        let number = |block: Option<&Asked>| block.map_or(0, |block| block.at.number);
        let need = Need { first: number(asked.first()), last: number(asked.last()), methods: &[] };
        let mut endpoints = pool.of_use(need).await;
        match proof {
            ReadProof::Candidate => self.disputed.take_turns(asked, &mut endpoints),
            ReadProof::Full => self.methods.other_engines_next(&mut endpoints),
        }
        let Some(reader) = endpoints.first().copied() else { return Err(pool.nobody()) };
        let mut readings = Vec::new();
        let (mut failure, mut without, mut reader_failed) = (None, Vec::new(), false);
        for endpoint in endpoints {
            let is_enough = match proof {
                ReadProof::Candidate => !readings.is_empty(),
                ReadProof::Full => witnesses::agree(asked, &readings),
            };
            if is_enough {
                break;
            }
            match self.reading(endpoint, asked).await {
                Ok(Some((engine, moved))) => {
                    self.methods.note_engine(&endpoint.id, engine);
                    readings.push(Reading { endpoint, engine, moved });
                }
                Ok(None) => without.push(endpoint.id.as_str()),
                Err(error) => {
                    tracing::warn!(chain = %reader.chain, "an endpoint told no trace that can be used: {error}");
                    failure = failure.or(Some(error));
                    reader_failed |= std::ptr::eq(endpoint, reader);
                }
            }
        }
        // A second witness that never answers must not slow down the first.
        self.learn(reader_failed || readings.is_empty());
        if readings.is_empty() {
            // Endpoints that can trace by now must be found again.
            self.methods.forget();
            let (chain, endpoints) = (reader.chain, without.join(", "));
            return Err(failure.unwrap_or(EvmError::NoTraces { chain, endpoints }));
        }
        Ok(readings)
    }

    /// What `endpoint` reports of all blocks, in one request; `None` when it cannot trace. One method may work where
    /// the other fails, for any reason: each has faults of its own.
    async fn reading(&self, endpoint: &Endpoint, asked: &[Asked]) -> Result<Option<TraceReading>, EvmError> {
        let now = Instant::now();
        let mut failures = Vec::new();
        for method in self.methods.of(&endpoint.id, now) {
            // Tried again only where the method that worked is gone: then another node may answer there.
            if !failures.is_empty() && self.methods.is_missing(&endpoint.id, method, now) {
                continue;
            }
            match reported(endpoint, method, asked).await {
                Ok(Some(moved)) => {
                    self.methods.worked(&endpoint.id, method);
                    return Ok(Some(moved));
                }
                Ok(None) => self.methods.missing(&endpoint.id, method, now),
                Err(error) => failures.push(error),
            }
        }
        // It may have failed at one transaction, and know the others.
        failures.sort_by_key(|error| !one_by_one::is_too_heavy(error));
        match failures.into_iter().next() {
            Some(error) => one_by_one::read(endpoint, asked, error).await.map(Some),
            None => Ok(None),
        }
    }

    fn learn(&self, failed: bool) {
        let width = self.width.load(Ordering::Relaxed);
        let width = if failed { width / 2 } else { width + 1 };
        self.width.store(width.clamp(1, TRACED_MAX), Ordering::Relaxed);
    }
}

impl Method {
    const ALL: [Method; 2] = [Method::CallTracer, Method::TraceBlock];

    const fn name(self) -> &'static str {
        match self {
            Method::CallTracer => "debug_traceBlockByHash",
            Method::TraceBlock => "trace_block",
        }
    }

    fn call(self, block: &BlockRef) -> Call {
        let params = match self {
            Method::CallTracer => json!([block.hash.to_string(), { "tracer": "callTracer", "timeout": TX_TIMEOUT }]),
            // There is no call by hash: each frame names its block.
            Method::TraceBlock => json!([format!("{:#x}", block.number)]),
        };
        Call { method: self.name(), params }
    }

    fn parse(self, endpoint: &Endpoint, Asked { at, txs }: &Asked, answer: &Raw) -> Result<Vec<Trace>, EvmError> {
        let read = match self {
            Method::CallTracer => call_tracer::read(endpoint.parse::<&RawValue>(self.name(), answer)?.get(), txs.len()),
            Method::TraceBlock => trace_block::read(B256::from(at.hash.0), endpoint.parse(self.name(), answer)?),
        };
        read.map_err(|malformed| self.unusable(endpoint, at, &malformed))
    }

    fn unusable(self, endpoint: &Endpoint, block: &BlockRef, Malformed(reason): &Malformed) -> EvmError {
        endpoint.unusable(self.name(), &format!("block {}: {reason}", block.number))
    }
}

/// What `endpoint` reports by `method`; `None` when it does not have it.
async fn reported(endpoint: &Endpoint, method: Method, asked: &[Asked]) -> Result<Option<TraceReading>, EvmError> {
    let blocks = asked.iter().filter(|block| !block.txs.is_empty());
    let calls: Vec<Call> = blocks.map(|block| method.call(&block.at)).collect();
    let (engine, answers) = engine::ask_with(endpoint, calls).await?;
    if answers.iter().any(|answer| answer.as_ref().is_err_and(is_unknown_method)) {
        return Ok(None);
    }
    moved(endpoint, method, asked, answers).await.map(|moved| Some((engine, moved)))
}

async fn moved(
    endpoint: &Endpoint,
    method: Method,
    asked: &[Asked],
    answers: Vec<Answer>,
) -> Result<Vec<Moved>, EvmError> {
    let mut answers = answers.into_iter();
    let mut all = Vec::with_capacity(asked.len());
    for block in asked {
        if block.txs.is_empty() {
            all.push(Moved::default());
            continue;
        }
        let answer = answers.next().ok_or_else(|| endpoint.unusable(method.name(), "no answer"))?;
        let answer = answer.map_err(|error| endpoint.refused(method.name(), &error))?;
        let traces = method.parse(endpoint, block, &answer)?;
        let moved = frames::moved(&block.txs, &traces);
        let moved = moved.map_err(|malformed| method.unusable(endpoint, &block.at, &malformed))?;
        if moved.set_aside > 0 {
            let (block, count, endpoint) = (block.at.number, moved.set_aside, &endpoint.id);
            tracing::warn!(block, %endpoint, "{count} frames of the trace of block {block} are in a form that nobody knows");
        }
        all.push(moved);
        // Megabytes of text: others may run between two blocks.
        tokio::task::yield_now().await;
    }
    Ok(all)
}

/// The block as the lane of the traces shows it.
fn in_lane(roots: Block, asked: &Asked, Believed { moved, proof, by_two_engines }: Believed, legs: Legs) -> Block {
    let ran_code = asked.txs.iter().flat_map(ProvedTx::ran_code).chain(moved.created).collect();
    let reported: HashSet<TxId> = roots.fees.iter().map(|fee| fee.tx.id).collect();
    let unreported_fees = asked.txs.iter().filter_map(ProvedTx::payer).filter(|(tx, _)| !reported.contains(tx));
    let unreported_fees = unreported_fees.map(|(_, payer)| payer).collect();
    Block {
        header: roots.header,
        txs: roots.txs.clone(),
        transfers: behind(&roots.transfers, moved.legs),
        debits: Debits::ByLegs,
        unattributed: Vec::new(),
        fees: Vec::new(),
        marks: Vec::new(),
        rejected: if legs == Legs::Explained { moved.rejected } else { Vec::new() },
        fee_recipient: roots.fee_recipient,
        proof,
        signers: roots.signers.clone(),
        inside: Some(Arc::new(Inside { roots, ran_code, unreported_fees, by_two_engines })),
    }
}

/// `legs`, numbered behind the equal ones of `proved`.
fn behind(proved: &[AssetTransfer], legs: Vec<AssetTransfer>) -> Vec<AssetTransfer> {
    let mut all = proved.to_vec();
    all.extend(legs);
    number_equal_legs(&mut all);
    all.split_off(proved.len())
}

/// Whether a node says that it does not have the method at all. A message about a block or a state that it does not
/// have is not that, whatever method it names: the node may serve the next block.
fn is_unknown_method(error: &NodeError) -> bool {
    const METHOD: [&str; 2] = ["method", "namespace"];
    const NAMES: [&str; 2] = ["debug_traceblockbyhash", "trace_block"];
    const ABSENT: [&str; 2] = ["not found", "not exist"];
    const REFUSED: [&str; 7] =
        ["not available", "not supported", "unsupported", "not whitelisted", "not allowed", "not enabled", "disabled"];
    let message = error.message.to_lowercase();
    let says = |words: &[&str]| words.iter().any(|words| message.contains(words));
    // "trace_block: block not found" is about a block.
    let of_method = says(&METHOD) && (says(&ABSENT) || says(&REFUSED)) || says(&NAMES) && says(&REFUSED);
    UNKNOWN_METHOD.contains(&error.code) || of_method && !is_about_a_block(&message)
}

/// Whether a word of it, other than the name of a method, is about what a node has of one block.
fn is_about_a_block(message: &str) -> bool {
    const OF_BLOCKS: [&str; 5] = ["block", "blocks", "state", "trie", "header"];
    const BEGINNINGS: [&str; 2] = ["prun", "histor"];
    let mut words = message.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.any(|word| OF_BLOCKS.contains(&word) || BEGINNINGS.iter().any(|begin| word.starts_with(begin)))
}
