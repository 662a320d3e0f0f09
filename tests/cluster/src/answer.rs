//! The methods: what a node with a view of a ledger answers to one call, as agave does it.
//!
//! It holds us to what may be asked for: `processed` is refused where agave refuses it, a range of more than 500,000
//! slots is, and a version that is not asked for is.

use landfall_chain::Address;
use serde_json::{Value, json};

use crate::block::{Block, Details, base58};
use crate::history;
use crate::refusal::Refusal;
use crate::tx::Shape;
use crate::view::{Commitment, View};

const RANGE_MAX: u64 = 500_000;
const STATUSES_MAX: usize = 256;
/// For how many blocks a blockhash may be used.
const BLOCKHASH_LIFE: u64 = 150;
const NO_COMMITMENT: &str = "Method does not support commitment below `confirmed`";

/// One call.
pub(crate) struct Call {
    pub(crate) id: Value,
    pub(crate) method: String,
    pub(crate) params: Value,
}

/// A node's refusal.
#[derive(Clone, Debug)]
pub(crate) struct Refused {
    pub(crate) code: i64,
    pub(crate) message: String,
    pub(crate) data: Option<Value>,
}

/// A result as JSON text, or a refusal.
pub(crate) type Answer = Result<String, Refused>;

impl Refused {
    pub(crate) fn params(message: impl Into<String>) -> Self {
        Refused { code: Refusal::InvalidParams.code(), message: message.into(), data: None }
    }
}

impl Commitment {
    /// As the configuration of a call says; `finalized` where it does not.
    fn of(how: &Value) -> Result<Self, Refused> {
        match how["commitment"].as_str() {
            None | Some("finalized") => Ok(Commitment::Finalized),
            Some("confirmed") => Ok(Commitment::Confirmed),
            Some("processed") => Ok(Commitment::Processed),
            Some(other) => Err(Refused::params(format!("Invalid params: unknown variant `{other}`"))),
        }
    }

    /// The same, of a method that reports only what is confirmed.
    pub(crate) fn of_history(how: &Value) -> Result<Self, Refused> {
        match Commitment::of(how)? {
            Commitment::Processed => Err(Refused::params(NO_COMMITMENT)),
            sure => Ok(sure),
        }
    }
}

pub(crate) fn answer(view: &View<'_>, genesis: &str, call: &Call) -> Answer {
    let params = &call.params;
    let reported = match call.method.as_str() {
        "getGenesisHash" => json!(genesis),
        "getVersion" => json!({ "solana-core": "4.2.2", "feature-set": 1 }),
        "getHealth" => json!("ok"),
        "getSlot" => json!(context(view, &params[0])?),
        "getBlockHeight" => json!(view.bank(context(view, &params[0])?).height),
        "getLatestBlockhash" => latest_blockhash(view, &params[0])?,
        "getBlocks" => blocks(view, params)?,
        "getBlock" => return block(view, params),
        "getFirstAvailableBlock" => json!(view.first),
        "getBlockTime" => json!(found(view, slot_of(&params[0])?)?.time),
        "getTransaction" => return history::transaction(view, params),
        "getSignatureStatuses" => statuses(view, params)?,
        "getSignaturesForAddress" => history::signatures(view, params)?,
        "getBalance" => with_context(view, &params[1], |slot| json!(history::balance(view, &params[0], slot)))?,
        "getAccountInfo" => with_context(view, &params[1], |slot| in_account(view, &params[0], slot))?,
        "getMultipleAccounts" => {
            let keys = params[0].as_array().cloned().unwrap_or_default();
            let all = |slot| keys.iter().map(|key| in_account(view, key, slot)).collect::<Value>();
            match view.accounts_at {
                Some(slot) => json!({ "context": { "slot": slot }, "value": all(slot) }),
                None => with_context(view, &params[1], all)?,
            }
        }
        _ => return Err(Refusal::MethodNotFound.to_call(&Value::Null)),
    };
    Ok(reported.to_string())
}

/// What a test sets for an account, or what the ledger's transactions left there.
fn in_account(view: &View<'_>, key: &Value, slot: u64) -> Value {
    let reported = key.as_str().and_then(|key| view.accounts.get(key)).cloned();
    reported.unwrap_or_else(|| account(if view.is_bare { 0 } else { history::balance(view, key, slot) }))
}

/// The slot that a call is answered of; refused when that is below the one that it must reach.
pub(crate) fn context(view: &View<'_>, how: &Value) -> Result<u64, Refused> {
    let slot = view.slot(Commitment::of(how)?);
    match how["minContextSlot"].as_u64() {
        Some(least) if least > slot && !view.is_of_any_context => {
            let data = Some(json!({ "contextSlot": slot }));
            Err(Refused { data, ..Refusal::MinContextSlotNotReached.to_call(&Value::Null) })
        }
        Some(_) | None => Ok(slot),
    }
}

fn with_context(view: &View<'_>, how: &Value, value: impl FnOnce(u64) -> Value) -> Result<Value, Refused> {
    let slot = context(view, how)?;
    Ok(json!({ "context": { "apiVersion": "4.2.2", "slot": slot }, "value": value(slot) }))
}

fn latest_blockhash(view: &View<'_>, how: &Value) -> Result<Value, Refused> {
    with_context(view, how, |slot| {
        let bank = view.bank(slot);
        json!({ "blockhash": base58(bank.reference().hash), "lastValidBlockHeight": bank.height + BLOCKHASH_LIFE })
    })
}

/// The end and the configuration may each be left out.
fn blocks(view: &View<'_>, params: &Value) -> Result<Value, Refused> {
    let (end, how) = if params[1].is_object() { (&Value::Null, &params[1]) } else { (&params[1], &params[2]) };
    let newest = view.slot(Commitment::of_history(how)?);
    context(view, how)?;
    let first = slot_of(&params[0])?;
    let last = end.as_u64().unwrap_or(first.saturating_add(RANGE_MAX)).min(newest);
    if end.as_u64().is_some_and(|end| end.saturating_sub(first) > RANGE_MAX) {
        return Err(Refused::params(format!("Slot range too large; max {RANGE_MAX}")));
    }
    let listed = view.blocks(first..=last).map(|block| block.slot);
    Ok(listed.filter(|slot| !view.unlisted.contains(slot)).collect())
}

/// The block in `slot`, or why it is not reported: below what is final a slot without a block counts as skipped,
/// whatever became of it; above, nothing is known of it yet.
pub(crate) fn found<'a>(view: &View<'a>, slot: u64) -> Result<&'a Block, Refused> {
    let refusal = match view.block(slot) {
        Some(block) => return Ok(block),
        None if slot < view.first => {
            let first = view.first;
            let message = format!("Block {slot} cleaned up, does not exist on node. First available block: {first}");
            return Err(Refused { message, ..Refusal::BlockCleanedUp.to_call(&json!(slot)) });
        }
        None if slot <= view.finalized => Refusal::SlotSkipped,
        None => Refusal::BlockNotAvailable,
    };
    Err(refusal.to_call(&json!(slot)))
}

fn block(view: &View<'_>, params: &Value) -> Answer {
    let (slot, how) = (slot_of(&params[0])?, &params[1]);
    let commitment = Commitment::of_history(how)?;
    if slot > view.slot(commitment) {
        return Err(Refusal::BlockNotAvailable.to_call(&json!(slot)));
    }
    let block = found(view, slot)?;
    let details = match how["transactionDetails"].as_str() {
        Some("none") => Details::None,
        Some("signatures") => Details::Signatures,
        Some("accounts") => Details::Whole(Shape::Accounts),
        None | Some("full") => Details::Whole(Shape::Json),
        Some(other) => return Err(Refused::params(format!("Invalid params: unknown variant `{other}`"))),
    };
    if let Details::Whole(_) = details {
        supported(block.version(), how)?;
    }
    let reported = Block { parent: view.parent(block), ..block.clone() };
    Ok(reported.text(details))
}

/// Refuses what holds a newer version than is asked for; without a word on it, only legacy transactions are reported.
pub(crate) fn supported(version: Option<u8>, how: &Value) -> Result<(), Refused> {
    let most = how["maxSupportedTransactionVersion"].as_u64();
    match version {
        Some(version) if most.is_none_or(|most| most < u64::from(version)) => {
            Err(Refusal::TransactionVersion(version).to_call(&Value::Null))
        }
        Some(_) | None => Ok(()),
    }
}

fn statuses(view: &View<'_>, params: &Value) -> Result<Value, Refused> {
    let asked = params[0].as_array().map(Vec::as_slice).unwrap_or_default();
    if asked.len() > STATUSES_MAX {
        return Err(Refused::params(format!("Too many inputs provided; max {STATUSES_MAX}")));
    }
    let status = |signature: &Value| {
        let (block, tx) = history::place(view, signature.as_str()?)?;
        let is_final = block.slot <= view.finalized;
        let confirmations = (!is_final).then(|| view.blocks(block.slot..=view.confirmed).count() - 1);
        let err = tx.err();
        let outcome = if err.is_null() { json!({ "Ok": null }) } else { json!({ "Err": err }) };
        Some(json!({
            "slot": block.slot, "confirmations": confirmations, "err": err, "status": outcome,
            "confirmationStatus": history::status_of(view, block.slot),
        }))
    };
    let reported: Vec<Option<Value>> = asked.iter().map(status).collect();
    Ok(json!({ "context": { "apiVersion": "4.2.2", "slot": view.confirmed }, "value": reported }))
}

/// An account without lamports is none.
fn account(lamports: u64) -> Value {
    if lamports == 0 {
        return Value::Null;
    }
    let owner = Address::Solana([0; 32]).to_string();
    json!({
        "data": ["", "base64"], "executable": false, "lamports": lamports, "owner": owner, "rentEpoch": u64::MAX,
        "space": 0,
    })
}

fn slot_of(parameter: &Value) -> Result<u64, Refused> {
    parameter.as_u64().ok_or_else(|| Refused::params(format!("Invalid params: {parameter} is no slot")))
}
