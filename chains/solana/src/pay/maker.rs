//! Finds who made a guard that no block of ours shows, by the guard's own transactions, as endpoints report them.
//!
//! The maker is the transaction that succeeded and before which the guard had no lamports, and after which it had some.
//! A guard comes into being once, because only the payer's key could empty it.
//! Promises: a maker counts only if as many endpoints as must agree report the same one, and no endpoint that was asked
//! reports another. Finding none proves nothing.

use landfall_chain::{Maker, TxId};
use landfall_rpc::Call;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::calls::{TRANSACTION, failed};
use crate::dialect::Endpoint;
use crate::error::SolanaError;
use crate::signatures::{FIRST_AVAILABLE, SIGNATURES};

/// The most that a node gives at once, and how many such pages are read: anybody may send lamports to a guard.
const PAGE_MAX: usize = 1_000;
const PAGES_MAX: usize = 20;
/// How many of the oldest are read: before the maker there is none that succeeded.
const READ_MAX: usize = 20;
/// As blocks are asked for, so that no version of transactions is refused.
const VERSION: u8 = 1;

#[derive(Deserialize)]
struct WireNamed {
    signature: String,
    err: Option<Value>,
}

#[derive(Deserialize)]
struct WireTransaction {
    meta: Option<WireMeta>,
    transaction: WireContent,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireMeta {
    err: Option<Value>,
    pre_balances: Vec<u64>,
    post_balances: Vec<u64>,
}

#[derive(Deserialize)]
struct WireContent {
    message: WireMessage,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireMessage {
    account_keys: Vec<WireKey>,
}

#[derive(Deserialize)]
struct WireKey {
    pubkey: String,
    signer: bool,
}

/// Who made `guard`, by this endpoint, which has slot `at`; `None` where it does not know.
pub(super) async fn reported(
    endpoint: &Endpoint,
    (guard, payer): (&str, &str),
    at: u64,
) -> Result<Option<Maker>, SolanaError> {
    for signature in named(endpoint, guard, at).await?.iter().rev().take(READ_MAX) {
        let how =
            json!({ "encoding": "jsonParsed", "commitment": "finalized", "maxSupportedTransactionVersion": VERSION });
        let tx: Option<WireTransaction> = ask(endpoint, TRANSACTION, json!([signature, how])).await?;
        let Some(tx) = tx else { return Err(endpoint.unusable(TRANSACTION, "it named a transaction that it lacks")) };
        let Some(is_payers) = tx.makes(guard, payer) else { continue };
        let bytes = bs58::decode(signature).into_vec().ok().and_then(|bytes| <[u8; 64]>::try_from(bytes).ok());
        let bytes = bytes.ok_or_else(|| endpoint.unusable(SIGNATURES, "it named no signature"))?;
        return Ok(Some(Maker { tx: TxId::Solana(bytes), is_payers }));
    }
    Ok(None)
}

/// Whether the guard was ever there from slot `from` up to `at`, by this endpoint.
///
/// # Errors
/// It does not keep all of that, or reports more than anybody reads.
pub(super) async fn was_made(endpoint: &Endpoint, guard: &str, (from, at): (u64, u64)) -> Result<bool, SolanaError> {
    let named = named(endpoint, guard, at).await?;
    // What it prunes while it is asked is known only afterwards.
    let first: u64 = ask(endpoint, FIRST_AVAILABLE, json!([])).await?;
    if named.is_empty() && first > from.saturating_add(1) {
        let what = format!("it keeps nothing below slot {first}, and the list must reach slot {from}");
        return Err(endpoint.unusable(FIRST_AVAILABLE, &what));
    }
    Ok(!named.is_empty())
}

/// What succeeded of the transactions that name the account, the newest first, by an endpoint that has slot `at`.
///
/// A page may be shorter than it was asked for, and empty where the node does not know what it is to begin behind. So each
/// page begins with the last one that is known, and the list ends with a page that has no other.
async fn named(endpoint: &Endpoint, account: &str, at: u64) -> Result<Vec<String>, SolanaError> {
    let mut all: Vec<WireNamed> = Vec::new();
    for _ in 0..PAGES_MAX {
        let mut how = json!({ "limit": PAGE_MAX, "commitment": "finalized", "minContextSlot": at });
        if let Some(behind) = all.len().checked_sub(2) {
            how["before"] = json!(all[behind].signature);
        }
        let page: Vec<WireNamed> = ask(endpoint, SIGNATURES, json!([account, how])).await?;
        let known = all.pop();
        let follows = |known: &WireNamed| page.first().is_some_and(|first| first.signature == known.signature);
        if !known.as_ref().is_none_or(follows) {
            return Err(endpoint.unusable(SIGNATURES, "a page that does not begin where the last one ended"));
        }
        let is_end = page.len() <= usize::from(known.is_some());
        all.extend(page);
        if is_end {
            let succeeded = all.into_iter().filter(|named| named.err.is_none());
            return Ok(succeeded.map(|named| named.signature).collect());
        }
    }
    Err(endpoint.unusable(SIGNATURES, "more transactions than anybody reads"))
}

impl WireTransaction {
    /// Whether the payer's key signed what made the guard; `None` where this did not make it.
    fn makes(&self, guard: &str, payer: &str) -> Option<bool> {
        let WireMeta { err, pre_balances, post_balances } = self.meta.as_ref()?;
        let keys = &self.transaction.message.account_keys;
        let at = keys.iter().position(|key| key.pubkey == guard)?;
        let is_whole = err.is_none() && pre_balances.len() == keys.len() && post_balances.len() == keys.len();
        let is_made = is_whole && pre_balances[at] == 0 && post_balances[at] > 0;
        is_made.then(|| keys.iter().any(|key| key.signer && key.pubkey == payer))
    }
}

async fn ask<T: DeserializeOwned>(endpoint: &Endpoint, method: &'static str, params: Value) -> Result<T, SolanaError> {
    let answer = endpoint.ask_aside(&[Call { method, params }]).await?.into_iter().next();
    let answer = answer.ok_or_else(|| endpoint.unusable(method, "no answer"))?;
    endpoint.parse(method, &answer.map_err(|error| failed(endpoint, method, &error))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tx(err: Value, guard: [u64; 2], is_signed: bool) -> WireTransaction {
        serde_json::from_value(json!({
            "meta": { "err": err, "preBalances": [9, guard[0], 5], "postBalances": [8, guard[1], 5] },
            "transaction": { "message": { "accountKeys": [
                { "pubkey": "sponsor", "signer": true, "writable": true },
                { "pubkey": "guard", "signer": false, "writable": true },
                { "pubkey": "payer", "signer": is_signed, "writable": false },
            ] } },
        }))
        .unwrap()
    }

    #[test]
    fn the_maker_is_what_brought_the_guard_from_nothing_up_and_succeeded() {
        let of = |tx: WireTransaction| tx.makes("guard", "payer");
        assert_eq!(of(tx(Value::Null, [0, 1], true)), Some(true));
        assert_eq!(of(tx(Value::Null, [0, 1], false)), Some(false));
        for none in
            [tx(json!("AccountInUse"), [0, 1], false), tx(Value::Null, [1, 2], false), tx(Value::Null, [0, 0], false)]
        {
            assert_eq!(of(none), None);
        }
        assert_eq!(tx(Value::Null, [0, 1], false).makes("another", "payer"), None);
        let mut short = tx(Value::Null, [0, 1], false);
        short.meta.as_mut().unwrap().post_balances.pop();
        assert_eq!(of(short), None);
    }
}
