//! Traces made to measure: frames as `callTracer` tells them, the same in the form of `trace_block`, and nodes that
//! tell them of a block.

use alloy::primitives::Address;
use axum::http::StatusCode;
use landfall_chain::{Block, BlockSource, Lane, Legs, NativeSource, Network, Read, ReadProof, SourceError};
use serde_json::{Value, json};

use crate::node::{Answer, Ledger, Node, mainnet};

pub(crate) const NESTED: &str = "debug_traceBlockByHash";
pub(crate) const FLAT: &str = "trace_block";
/// Traces by one endpoint, what is no credit too.
pub(crate) const LISTED: Read = Read { lane: Lane::Traces, proof: ReadProof::Candidate, legs: Legs::Explained };
/// Traces by two endpoints where there are two.
pub(crate) const FULL: Read = Read { proof: ReadProof::Full, ..LISTED };

pub(crate) const fn address(byte: u8) -> Address {
    Address::repeat_byte(byte)
}

/// A frame as `callTracer` reports it.
pub(crate) fn frame(kind: &str, from: Address, to: Address, value: u64, calls: Vec<Value>) -> Value {
    let mut frame = json!({ "from": from, "gas": "0x5208", "input": "0x", "to": to, "type": kind });
    if !calls.is_empty() {
        frame["calls"] = calls.into();
    }
    if kind != "STATICCALL" {
        frame["value"] = json!(format!("{value:#x}"));
    }
    frame
}

pub(crate) fn failed(mut frame: Value) -> Value {
    frame["error"] = json!("execution reverted");
    frame
}

/// Root frames as the traces of `block`, in its order.
pub(crate) fn nested(block: &Value, roots: &[Value]) -> Value {
    let hashes = block["transactions"].as_array().unwrap().iter().map(|tx| &tx["hash"]);
    hashes.zip(roots).map(|(hash, root)| json!({ "txHash": hash, "result": root })).collect()
}

/// The same traces in the form of `trace_block`.
pub(crate) fn flat(block: &Value, nested: &Value) -> Value {
    let mut frames = Vec::new();
    for (position, trace) in nested.as_array().unwrap().iter().enumerate() {
        // Innermost last: frames wait here with their way down.
        let mut waiting = vec![(Vec::new(), &trace["result"])];
        while let Some((way, frame)) = waiting.pop() {
            let calls = frame["calls"].as_array().map(Vec::as_slice).unwrap_or_default();
            let mut flat = flat_frame(frame);
            flat["blockHash"] = block["hash"].clone();
            flat["transactionHash"] = trace["txHash"].clone();
            flat["transactionPosition"] = json!(position);
            flat["traceAddress"] = json!(way);
            flat["subtraces"] = json!(calls.len());
            frames.push(flat);
            let inside = calls.iter().enumerate().map(|(index, call)| ([way.as_slice(), &[index]].concat(), call));
            waiting.extend(inside.rev());
        }
    }
    frames.into()
}

fn flat_frame(frame: &Value) -> Value {
    let kind = frame["type"].as_str().unwrap();
    let (from, to, value) = (&frame["from"], &frame["to"], &frame["value"]);
    let error = frame.get("error").map(|_| "Reverted");
    match kind {
        "SELFDESTRUCT" => json!({
            "type": "suicide", "action": { "address": from, "refundAddress": to, "balance": value }, "result": null,
        }),
        "CREATE" | "CREATE2" => json!({
            "type": "create", "action": { "from": from, "value": value, "init": "0x" }, "error": error,
            "result": { "address": to, "code": "0x" },
        }),
        _ => json!({
            "type": "call", "error": error, "result": { "output": "0x" },
            "action": { "callType": kind.to_lowercase(), "from": from, "to": to, "value": value, "input": "0x" },
        }),
    }
}

/// Mainnet as a network that is traced.
pub(crate) fn traced() -> Network {
    let mut network = mainnet();
    network.native.source = NativeSource::Trace;
    network
}

/// What a node answers that knows `ledger`, and of its block `traces`, by `method` only.
pub(crate) fn tracing(ledger: Ledger, method: &'static str, traces: Value) -> impl Fn(&str, &Value) -> Answer {
    move |asked, params| {
        let (number, (block, _)) = ledger.blocks.first_key_value().unwrap();
        match asked {
            NESTED if method == NESTED => {
                assert_eq!(*params, json!([block["hash"], { "tracer": "callTracer", "timeout": "12s" }]));
                Ok(traces.clone())
            }
            FLAT if method == FLAT => {
                assert_eq!(*params, json!([format!("{number:#x}")]));
                Ok(traces.clone())
            }
            _ => ledger.answer(asked, params),
        }
    }
}

/// The one block of `ledger`, read from a node that reports `traces` by `method`.
pub(crate) async fn read(
    network: Network,
    ledger: Ledger,
    method: &'static str,
    traces: Value,
) -> Result<Block, SourceError> {
    read_rewritten(network, ledger, method, traces, |reply| reply).await
}

pub(crate) async fn read_rewritten(
    network: Network,
    ledger: Ledger,
    method: &'static str,
    traces: Value,
    rewrite: impl Fn(String) -> String + Send + Sync + 'static,
) -> Result<Block, SourceError> {
    let number = *ledger.blocks.keys().next().unwrap();
    let node = Node::start_rewritten(StatusCode::OK, rewrite, tracing(ledger, method, traces)).await;
    let mut blocks = node.source(network).blocks(number..=number, LISTED).await?;
    assert_eq!(blocks.len(), 1);
    Ok(blocks.remove(0))
}
