//! What a fault makes of one answer.
//!
//! A fault that fits a call but would change nothing (an empty list cannot be emptied) has not struck.

use std::ops::RangeInclusive;

use serde_json::{Value, json};

use crate::answer::{Answer, Call};
use crate::block::{base58, hash};
use crate::fault::Fault;
use crate::view::{Commitment, View};

/// A branch that no ledger is on.
const NOWHERE: u64 = u64::MAX;
const DEVNET: &str = "EtWTRABZaYq6iMfeYKouRu166VU2xqa1wcaWoxPkrZBG";
/// How far above the newest block a final one is named.
const AHEAD: u64 = 3;

/// The spoilt answer; `None` where the fault does not fit.
pub(crate) fn spoil(fault: Fault, view: &View<'_>, call: &Call, answer: &Answer) -> Option<Answer> {
    let method = call.method.as_str();
    if let Fault::Refuse(refusal) = fault {
        return refusal.fits(method).then(|| Err(refusal.to_call(&call.params[0])));
    }
    let text = answer.as_deref().ok()?;
    let is_whole = method == "getBlock" && call.params[1]["transactionDetails"] != "none";
    let is_list = method == "getBlocks" && text != "[]";
    let is_final = method == "getLatestBlockhash" && call.params[0]["commitment"] != "confirmed";
    let is_newest = method == "getLatestBlockhash" && !is_final;
    match fault {
        Fault::Null => (text != "null").then(|| Ok("null".to_owned())),
        Fault::NullMeta if is_whole => changed(text, |block| first_tx(block, |tx| tx["meta"] = Value::Null)),
        Fault::NoMeta if is_whole => {
            changed(text, |block| first_tx(block, |tx| drop(tx.as_object_mut().and_then(|tx| tx.remove("meta")))))
        }
        Fault::NoErr if is_whole => changed(text, |block| {
            first_tx(block, |tx| drop(tx["meta"].as_object_mut().and_then(|meta| meta.remove("err"))))
        }),
        Fault::NoTime if method == "getBlock" => changed(text, |block| {
            block["blockTime"] = Value::Null;
            true
        }),
        Fault::NoTime if method == "getBlockTime" => Some(Ok("null".to_owned())),
        Fault::LeftOut if is_whole => changed(text, |block| {
            let txs = block["transactions"].as_array_mut().filter(|txs| !txs.is_empty());
            txs.map(|txs| txs.remove(0)).is_some()
        }),
        Fault::Unordered if is_whole => changed(text, |block| {
            let txs = block["transactions"].as_array_mut().into_iter().flatten();
            txs.map(turned_round).fold(false, |any, is_turned| any | is_turned)
        }),
        Fault::ShortList if is_list => changed(text, |list| {
            // Another fault may have made something else of it.
            let slots = list.as_array_mut().filter(|slots| !slots.is_empty());
            slots.map(|slots| slots.remove(slots.len() / 2)).is_some()
        }),
        Fault::EmptyList => is_list.then(|| Ok("[]".to_owned())),
        Fault::LongList if method == "getBlocks" => {
            let all = json!(asked_slots(view, &call.params)?.collect::<Vec<u64>>()).to_string();
            (text != all).then_some(Ok(all))
        }
        Fault::WrongParent if method == "getBlock" => changed(text, |block| {
            block["previousBlockhash"] = json!(base58(hash(block["parentSlot"].as_u64().unwrap_or_default(), NOWHERE)));
            true
        }),
        Fault::FinalOnFork if is_final => named(text, view.finalized),
        Fault::FinalAhead if is_final => named(text, view.confirmed + AHEAD),
        Fault::HeadAhead(slots) if is_newest => named(text, view.confirmed + slots),
        Fault::WrongGenesis => (method == "getGenesisHash").then(|| Ok(json!(DEVNET).to_string())),
        // Those of whole requests and of views, and those that do not fit.
        _ => None,
    }
}

/// The answer to `getLatestBlockhash` with a block in `slot` that is nowhere.
fn named(text: &str, slot: u64) -> Option<Answer> {
    changed(text, |latest| {
        latest["context"]["slot"] = json!(slot);
        latest["value"]["blockhash"] = json!(base58(hash(slot, NOWHERE)));
        true
    })
}

/// The slots that a list is asked for, as far as the node has come; `None` where it would refuse.
fn asked_slots(view: &View<'_>, params: &Value) -> Option<RangeInclusive<u64>> {
    let how = if params[1].is_object() { &params[1] } else { &params[2] };
    let newest = view.slot(Commitment::of_history(how).ok()?);
    let (first, last) = (params[0].as_u64()?, params[1].as_u64().unwrap_or(newest));
    Some(first.max(view.first)..=last.min(newest))
}

fn changed(text: &str, change: impl FnOnce(&mut Value) -> bool) -> Option<Answer> {
    let mut answer = serde_json::from_str(text).ok()?;
    change(&mut answer).then(|| Ok(answer.to_string()))
}

fn first_tx(block: &mut Value, change: impl FnOnce(&mut Value)) -> bool {
    let first = block["transactions"].as_array_mut().and_then(|txs| txs.first_mut());
    first.map(change).is_some()
}

/// Turns the token balances of a transaction round; whether there is more than one.
fn turned_round(tx: &mut Value) -> bool {
    let mut is_turned = false;
    for side in ["preTokenBalances", "postTokenBalances"] {
        // Another fault may have taken them away.
        if let Some(held) = tx.pointer_mut(&format!("/meta/{side}")).and_then(Value::as_array_mut) {
            held.reverse();
            is_turned |= held.len() > 1;
        }
    }
    is_turned
}
