//! What a node reports of single transactions and of single accounts.
//!
//! Signatures come newest first. Within a slot agave's own storage and its long-term storage order them differently: by
//! signature or by index, as a test says. Signatures in a hole of the ledger are not in these lists either.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::answer::{Answer, Refused, context, supported};
use crate::block::Block;
use crate::node::{Before, SlotOrder};
use crate::refusal::Refusal;
use crate::tx::{Shape, Tx};
use crate::view::{Commitment, View};

const SIGNATURES_MAX: u64 = 1_000;

/// The newest block that holds this transaction.
pub(crate) fn place<'a>(view: &View<'a>, signature: &str) -> Option<(&'a Block, &'a Tx)> {
    let holds =
        |block: &'a Arc<Block>| block.txs.iter().find(|tx| tx.signature() == signature).map(|tx| (&**block, tx));
    view.blocks(view.first..=view.confirmed).rev().find_map(holds)
}

pub(crate) fn status_of(view: &View<'_>, slot: u64) -> &'static str {
    if slot <= view.finalized { "finalized" } else { "confirmed" }
}

/// `getTransaction`: null for what is not known.
pub(crate) fn transaction(view: &View<'_>, params: &Value) -> Answer {
    let (signature, how) = (text_of(&params[0])?, &params[1]);
    let newest = view.slot(Commitment::of_history(how)?);
    let Some((block, tx)) = place(view, signature).filter(|(block, _)| block.slot <= newest) else {
        return Ok("null".to_owned());
    };
    supported(tx.version.number(), how)?;
    let text = tx.text(Shape::Json);
    let reported = json!({ "slot": block.slot, "blockTime": block.time }).to_string();
    Ok(format!("{},{}", &reported[..reported.len() - 1], &text[1..]))
}

/// `getSignaturesForAddress`.
pub(crate) fn signatures(view: &View<'_>, params: &Value) -> Result<Value, Refused> {
    let (key, how) = (text_of(&params[0])?, &params[1]);
    context(view, how)?;
    let newest = view.slot(Commitment::of_history(how)?);
    let limit = how["limit"].as_u64().unwrap_or(SIGNATURES_MAX);
    if !(1..=SIGNATURES_MAX).contains(&limit) {
        return Err(Refused::params(format!("Invalid limit; max {SIGNATURES_MAX}")));
    }
    let all = in_order(view, newest);
    let at = |bound: &Value| match bound.as_str() {
        None => Ok(None),
        Some(signature) => match all.iter().position(|(_, tx)| tx.signature() == signature) {
            Some(at) => Ok(Some(at)),
            None => Err(Refusal::FilterTransactionNotFound.to_call(bound)),
        },
    };
    // Both exclusive: what is reported lies behind `before` and in front of `until`.
    let first = match view.lists.before {
        Before::Ignored => 0,
        Before::Unknown if !how["before"].is_null() => {
            return Err(Refusal::FilterTransactionNotFound.to_call(&how["before"]));
        }
        Before::Nothing if !how["before"].is_null() => all.len(),
        Before::Known | Before::Unknown | Before::Nothing => at(&how["before"])?.map_or(0, |at| at + 1),
    };
    let end = at(&how["until"])?.unwrap_or(all.len()).max(first);
    let limit = usize::try_from(limit).expect("a thousand at most").min(view.lists.page_max);
    let all_of_it = all.iter().enumerate().filter(|(_, (_, tx))| tx.names(key));
    let ours = all_of_it.take(view.lists.ends_after.unwrap_or(usize::MAX)).filter(|(at, _)| (first..end).contains(at));
    let mut reported: Vec<Value> = ours
        .take(limit)
        .map(|(_, (block, tx))| {
            json!({
                "signature": tx.signature(), "slot": block.slot, "err": tx.err(), "memo": null, "blockTime": block.time,
                "confirmationStatus": status_of(view, block.slot),
            })
        })
        .collect();
    if let Some(slot) = view.lists.invents.filter(|_| how["before"].is_null() && !reported.is_empty()) {
        let below = reported.iter().position(|known| known["slot"].as_u64() < Some(slot)).unwrap_or(reported.len());
        reported.insert(below, json!({ "signature": bs58::encode([3; 64]).into_string(), "slot": slot, "err": null }));
    }
    Ok(reported.into())
}

/// All transactions up to `newest`, newest first, in this node's order within a slot.
fn in_order<'a>(view: &View<'a>, newest: u64) -> Vec<(&'a Block, &'a Tx)> {
    let mut all = Vec::new();
    for block in view.blocks(view.first..=newest).rev() {
        let mut txs: Vec<&Tx> = block.txs.iter().collect();
        match view.lists.order {
            SlotOrder::ByIndex | SlotOrder::Turning => txs.reverse(),
            SlotOrder::BySignature => txs.sort_by(|a, b| b.signature().cmp(a.signature())),
        }
        all.extend(txs.into_iter().map(|tx| (&**block, tx)));
    }
    all
}

/// What the newest transaction at or below `slot` that names the account left it with; 0 where none does.
pub(crate) fn balance(view: &View<'_>, key: &Value, slot: u64) -> u64 {
    let Some(key) = key.as_str() else { return 0 };
    let left = |tx: &Tx| {
        let tx: Value = serde_json::from_str(tx.text(Shape::Accounts)).ok()?;
        let keys = tx["transaction"]["accountKeys"].as_array()?;
        tx["meta"]["postBalances"][keys.iter().position(|known| known["pubkey"] == key)?].as_u64()
    };
    let touched = |block: &Arc<Block>| block.txs.iter().rev().filter(|tx| tx.names(key)).find_map(left);
    view.blocks(view.first..=slot).rev().find_map(touched).unwrap_or_default()
}

fn text_of(parameter: &Value) -> Result<&str, Refused> {
    let text = parameter.as_str().filter(|text| bs58::decode(text).into_vec().is_ok());
    text.ok_or_else(|| Refused::params(format!("Invalid param: {parameter} is not base58")))
}
