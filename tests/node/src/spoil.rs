//! What a fault makes of one answer.
//!
//! A fault that fits a call but would change nothing (an empty list cannot be emptied) has not struck.

use std::sync::Arc;

use serde_json::Value;

use crate::answer::{Answer, Call, Refused, block_text, null};
use crate::block::Block;
use crate::branch::NO_BLOCK;
use crate::fault::Fault;
use crate::view::View;

/// The spoilt answer; `None` where the fault does not fit. `lie` is the branch that final blocks are named from.
pub(crate) fn spoil(fault: Fault, view: &View<'_>, call: &Call, answer: &Answer, lie: &[Arc<Block>]) -> Option<Answer> {
    let text = answer.as_deref().ok()?;
    let method = call.method.as_str();
    let is_block = matches!(method, "eth_getBlockByNumber" | "eth_getBlockByHash");
    let is_tag = method == "eth_getBlockByNumber" && matches!(call.params[0].as_str(), Some("finalized" | "safe"));
    let is_receipts = method == "eth_getBlockReceipts";
    let is_receipt = is_receipts || method == "eth_getTransactionReceipt";
    let is_trace = matches!(method, "debug_traceBlockByHash" | "debug_traceBlockByNumber" | "trace_block");
    let is_list = text.starts_with("[{");
    match fault {
        Fault::EmptyLogs => (method == "eth_getLogs" && is_list).then(|| Ok("[]".to_owned())),
        Fault::NullBlock => (is_block && text != "null").then(|| Ok(null())),
        Fault::NullReceipts => (is_receipt && text != "null").then(|| Ok(null())),
        Fault::EmptyReceipts => (is_receipts && is_list).then(|| Ok("[]".to_owned())),
        Fault::FinalOnFork => is_tag.then(|| Ok(block_text(lie.first().map(AsRef::as_ref), &call.params))),
        Fault::FinalAhead => is_tag.then(|| Ok(block_text(lie.last().map(AsRef::as_ref), &call.params))),
        Fault::FinalEarly => is_tag.then(|| Ok(block_text(view.latest().map(AsRef::as_ref), &call.params))),
        Fault::Pruned(kept) => {
            let is_content = is_receipts || is_trace || method == "eth_getLogs";
            (is_content && is_older(view, call, kept)).then(|| Err(Refused::new(4_444, "pruned history unavailable")))
        }
        Fault::DuplicateLog if method == "eth_getLogs" => changed(text, duplicate_first),
        Fault::DuplicateLog if is_receipt => {
            changed(text, |answer| any_receipt(answer, |receipt| duplicate_first(&mut receipt["logs"])))
        }
        Fault::WrongBlockHash if method == "eth_getLogs" => changed(text, rename_block),
        Fault::WrongBlockHash if is_receipt => changed(text, |answer| any_receipt(answer, misplace)),
        Fault::MissingStatus if is_receipt => changed(text, |answer| any_receipt(answer, drop_status)),
        Fault::EmptyTraces => (is_trace && is_list).then(|| Ok("[]".to_owned())),
        Fault::UnmarkedRevert if is_trace => changed(text, unmark),
        Fault::TraceError => (method == "debug_traceBlockByHash").then(|| Err(Refused::new(-32_603, "Internal error"))),
        Fault::WrongChainId => (method == "eth_chainId").then(|| Ok(r#""0x29a""#.to_owned())),
        // Those of whole requests, and those that do not fit.
        _ => None,
    }
}

/// Whether the block, or the range's first one, is more than `kept` behind the head.
fn is_older(view: &View<'_>, call: &Call, kept: u64) -> bool {
    let asked = &call.params[0];
    let number = match asked.get("fromBlock").and_then(Value::as_str) {
        Some(from) => u64::from_str_radix(from.trim_start_matches("0x"), 16).ok(),
        None => view.block(asked).map(|block| block.number),
    };
    number.is_some_and(|number| number + kept < view.head())
}

fn changed(text: &str, change: impl FnOnce(&mut Value) -> bool) -> Option<Answer> {
    let mut answer = serde_json::from_str(text).ok()?;
    change(&mut answer).then(|| Ok(answer.to_string()))
}

/// Changes the first receipt that can be changed, of a list or alone.
fn any_receipt(answer: &mut Value, mut change: impl FnMut(&mut Value) -> bool) -> bool {
    match answer {
        Value::Array(receipts) => receipts.iter_mut().any(change),
        Value::Object(_) => change(answer),
        _ => false,
    }
}

fn duplicate_first(logs: &mut Value) -> bool {
    let Some(logs) = logs.as_array_mut() else { return false };
    let Some(first) = logs.first().cloned() else { return false };
    logs.insert(1, first);
    true
}

fn rename_block(logs: &mut Value) -> bool {
    let logs = logs.as_array_mut().map(Vec::as_mut_slice).unwrap_or_default();
    logs.iter_mut().for_each(|log| log["blockHash"] = serde_json::json!(NO_BLOCK));
    !logs.is_empty()
}

fn misplace(receipt: &mut Value) -> bool {
    receipt["blockHash"] = serde_json::json!(NO_BLOCK);
    rename_block(&mut receipt["logs"]);
    true
}

fn drop_status(receipt: &mut Value) -> bool {
    receipt.as_object_mut().is_some_and(|receipt| receipt.remove("status").is_some())
}

/// Removes the errors of all frames but the outermost.
fn unmark(answer: &mut Value) -> bool {
    let mut changed = false;
    for trace in answer.as_array_mut().map(Vec::as_mut_slice).unwrap_or_default() {
        if let Some(calls) = trace["result"].get_mut("calls") {
            changed |= unmark_calls(calls);
        } else if trace["traceAddress"].as_array().is_some_and(|path| !path.is_empty())
            && trace.as_object_mut().is_some_and(|trace| trace.remove("error").is_some())
        {
            trace["result"] = serde_json::json!({ "gasUsed": "0x0", "output": "0x" });
            changed = true;
        }
    }
    changed
}

fn unmark_calls(calls: &mut Value) -> bool {
    let mut changed = false;
    for call in calls.as_array_mut().map(Vec::as_mut_slice).unwrap_or_default() {
        changed |= call.as_object_mut().is_some_and(|call| call.remove("error").is_some());
        if let Some(inner) = call.get_mut("calls") {
            changed |= unmark_calls(inner);
        }
    }
    changed
}
