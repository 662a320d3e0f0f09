//! What ran inside of a block's transactions, as nodes write it: geth's `callTracer`, and Parity's `trace_block`.
//!
//! Written when asked for. Both show a failed frame with an error, and the frames in it as if nothing had happened:
//! that is how nodes do it, and what a reader must know.

use alloy::primitives::{Address, Bytes, U256};
use serde_json::{Value, json};

use crate::block::{Block, MadeOf};
use crate::mint::recipient;
use crate::tx::{Frame, FrameKind, Tx};
use crate::wallet::payer;

const GETH_ERROR: &str = "execution reverted";
const PARITY_ERROR: &str = "Reverted";

/// The answer to `debug_traceBlockByHash` with the `callTracer`.
pub(crate) fn geth(block: &Block) -> String {
    if let MadeOf::Record { traces: Some(traces) } = &block.made_of {
        return traces.clone();
    }
    let one = |(tx, mined): (&Tx, &crate::block::MinedTx)| json!({ "txHash": mined.hash, "result": call(&root(tx)) });
    block.txs().iter().zip(&block.txs).map(one).collect::<Value>().to_string()
}

/// The answer to `trace_block`.
pub(crate) fn parity(block: &Block) -> String {
    let mut traces = Vec::new();
    for (position, (tx, mined)) in block.txs().iter().zip(&block.txs).enumerate() {
        let first = traces.len();
        flatten(&root(tx), Vec::new(), &mut traces);
        for trace in &mut traces[first..] {
            trace["blockHash"] = json!(block.hash);
            trace["blockNumber"] = json!(block.number);
            trace["transactionHash"] = json!(mined.hash);
            trace["transactionPosition"] = json!(position);
        }
    }
    Value::Array(traces).to_string()
}

/// A frame with what the transaction's own one has besides.
struct Shown<'a> {
    kind: FrameKind,
    from: Address,
    to: Address,
    value: U256,
    input: Bytes,
    gas: u64,
    is_reverted: bool,
    frames: &'a [Frame],
}

/// The transaction itself, as the outermost frame.
fn root(tx: &Tx) -> Shown<'_> {
    let kind = if tx.to.is_some() { FrameKind::Call } else { FrameKind::Create };
    let (from, to, input) = (payer(tx.payer), recipient(tx), tx.input.clone());
    let (value, gas, is_reverted) = (tx.value, tx.gas(), !tx.success);
    Shown { kind, from, to, value, input, gas, is_reverted, frames: &tx.frames }
}

fn shown(frame: &Frame) -> Shown<'_> {
    let Frame { kind, from, to, value, is_reverted, ref frames } = *frame;
    Shown { kind, from, to, value, input: Bytes::new(), gas: 700, is_reverted, frames }
}

fn call(frame: &Shown<'_>) -> Value {
    let kind = match frame.kind {
        FrameKind::Call => "CALL",
        FrameKind::DelegateCall => "DELEGATECALL",
        FrameKind::Create => "CREATE",
        FrameKind::SelfDestruct => "SELFDESTRUCT",
    };
    let gas = format!("{:#x}", frame.gas);
    let mut call = json!({
        "type": kind, "from": frame.from, "to": frame.to, "value": format!("{:#x}", frame.value), "gas": gas,
        "gasUsed": gas, "input": frame.input,
    });
    if frame.is_reverted {
        call["error"] = json!(GETH_ERROR);
    }
    if !frame.frames.is_empty() {
        call["calls"] = frame.frames.iter().map(|frame| self::call(&shown(frame))).collect();
    }
    call
}

fn flatten(frame: &Shown<'_>, path: Vec<usize>, traces: &mut Vec<Value>) {
    let (from, to, value) = (frame.from, frame.to, format!("{:#x}", frame.value));
    let gas = format!("{:#x}", frame.gas);
    let called =
        |how| json!({ "callType": how, "from": from, "to": to, "value": value, "gas": gas, "input": frame.input });
    let (kind, action, result) = match frame.kind {
        FrameKind::Call => ("call", called("call"), json!({ "gasUsed": gas, "output": "0x" })),
        FrameKind::DelegateCall => ("call", called("delegatecall"), json!({ "gasUsed": gas, "output": "0x" })),
        FrameKind::Create => (
            "create",
            json!({ "from": from, "gas": gas, "init": frame.input, "value": value }),
            json!({ "address": to, "code": "0x", "gasUsed": gas }),
        ),
        FrameKind::SelfDestruct => {
            ("suicide", json!({ "address": from, "balance": value, "refundAddress": to }), Value::Null)
        }
    };
    let mut trace = json!({
        "type": kind, "action": action, "result": result, "subtraces": frame.frames.len(), "traceAddress": path,
    });
    if frame.is_reverted {
        trace["result"] = Value::Null;
        trace["error"] = json!(PARITY_ERROR);
    }
    traces.push(trace);
    for (index, inner) in frame.frames.iter().enumerate() {
        flatten(&shown(inner), [path.as_slice(), &[index]].concat(), traces);
    }
}
