//! The traces of a block that is too heavy to be traced at once: a few of its transactions at a time.
//!
//! A transaction is asked for by its hash. A node on another branch would trace it in another block, where it may have
//! moved something else. So the node must say before and after each part which block it is in. Promises: every
//! transaction that is not proved to have failed is traced, and is judged as if the block had been traced at once. A
//! failure here returns the error with which the block was refused.

use landfall_chain::BlockHash;
use landfall_rpc::{Call, RpcError};
use serde_json::json;
use serde_json::value::RawValue;

use crate::dialect::Endpoint;
use crate::error::EvmError;
use crate::traces::TX_TIMEOUT;
use crate::traces::call_tracer;
use crate::traces::engine::{self, Engine};
use crate::traces::frames::{self, Malformed, Moved, ProvedTx};
use crate::traces::witnesses::Asked;
use crate::wire::WirePlace;

const TRACE: &str = "debug_traceTransaction";
const PLACE: &str = "eth_getTransactionByHash";
/// How many transactions are traced in one request.
const TXS_MAX: usize = 16;

/// What moved in the only block of `asked` that must be traced, after it was `refused`.
///
/// # Errors
/// `refused`, when its cause is not that one block is too heavy, or when this way fails too.
pub(crate) async fn read(
    endpoint: &Endpoint,
    asked: &[Asked],
    refused: EvmError,
) -> Result<(Engine, Vec<Moved>), EvmError> {
    let traced = asked.iter().filter(|block| !block.txs.is_empty()).count();
    if traced != 1 || !is_too_heavy(&refused) {
        return Err(refused);
    }
    let (mut all, mut engine) = (Vec::with_capacity(asked.len()), Engine::Unknown);
    for block in asked {
        match moved(endpoint, block).await {
            Ok((by, moved)) => {
                // Blocks that are not traced have no reading.
                engine = by.unwrap_or(engine);
                all.push(moved);
            }
            Err(error) => {
                tracing::debug!(chain = %endpoint.chain, "a block was not traced by its transactions either: {error}");
                return Err(refused);
            }
        }
    }
    Ok((engine, all))
}

/// What moved, and the engine that reported it, where anything was asked.
async fn moved(endpoint: &Endpoint, block: &Asked) -> Result<(Option<Engine>, Moved), EvmError> {
    let (mut all, mut engine): (Moved, Option<Engine>) = (Moved::default(), None);
    let needed: Vec<&ProvedTx> = block.txs.iter().filter(|tx| tx.may_have_moved()).collect();
    for txs in needed.chunks(TXS_MAX) {
        let place = |tx: &&ProvedTx| Call { method: PLACE, params: json!([tx.hash()]) };
        let trace = |tx: &&ProvedTx| Call {
            method: TRACE,
            params: json!([tx.hash(), { "tracer": "callTracer", "timeout": TX_TIMEOUT }]),
        };
        let calls = txs.first().map(place).into_iter().chain(txs.iter().map(trace)).chain(txs.last().map(place));
        let calls: Vec<Call> = calls.collect();
        let (by, answers) = engine::ask_with(endpoint, calls.clone()).await?;
        engine = Some(engine.map_or(by, |before| before.and(by)));
        let mut txs = txs.iter();
        for (call, answer) in calls.iter().zip(answers) {
            let answer = answer.map_err(|error| endpoint.refused(call.method, &error))?;
            let unusable =
                |reason: &str| endpoint.unusable(call.method, &format!("block {}: {reason}", block.at.number));
            if call.method == PLACE {
                let place: Option<WirePlace> = endpoint.parse(PLACE, &answer)?;
                if place.is_none_or(|place| BlockHash(place.block_hash.0) != block.at.hash) {
                    return Err(unusable("one of its transactions is in another block there"));
                }
            } else if let Some(tx) = txs.next() {
                let json: &RawValue = endpoint.parse(TRACE, &answer)?;
                let judged =
                    call_tracer::read_one(tx.hash(), json.get()).and_then(|trace| frames::moved_in(tx, &trace));
                let Moved { legs, rejected, created, set_aside } =
                    judged.map_err(|Malformed(reason)| unusable(&reason))?;
                all.legs.extend(legs);
                all.rejected.extend(rejected);
                all.created.extend(created);
                all.set_aside += set_aside;
            }
            // Megabytes of text: others may run.
            tokio::task::yield_now().await;
        }
    }
    Ok((engine, all))
}

/// Whether the block was refused for its size or for the time that it takes.
pub(crate) fn is_too_heavy(refused: &EvmError) -> bool {
    const WORDS: [&str; 10] = [
        "timeout",
        "timed out",
        "no answer within",
        "the answer is larger than",
        "too large",
        "too big",
        "response size",
        "http status 408",
        "http status 413",
        "http status 504",
    ];
    let EvmError::Rpc(RpcError::Call { reason, .. } | RpcError::Answer { reason, .. }) = refused else { return false };
    let reason = reason.to_lowercase();
    WORDS.iter().any(|words| reason.contains(words))
}
