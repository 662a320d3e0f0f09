//! The methods: what a node with a view of the chain answers to one call.
//!
//! What is unknown is `null` or an error, as geth does it for each method.

use alloy::consensus::EMPTY_ROOT_HASH;
use alloy::primitives::{Address, B256};
use serde_json::{Value, json};

use crate::accounts::CODE;
use crate::block::Block;
use crate::logs::{self, LogLimits};
use crate::view::View;
use crate::{text, traces};

/// One call of a request.
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
}

/// A result as JSON text, or a refusal.
pub(crate) type Answer = Result<String, Refused>;

impl Refused {
    pub(crate) fn new(code: i64, message: impl Into<String>) -> Self {
        Refused { code, message: message.into() }
    }

    pub(crate) fn no_such_method(method: &str) -> Self {
        Refused::new(-32_601, format!("the method {method} does not exist/is not available"))
    }
}

pub(crate) fn answer(view: &View<'_>, call: &Call, limits: &LogLimits) -> Answer {
    let params = &call.params;
    match call.method.as_str() {
        "eth_chainId" => Ok(quantity(view.state.chain_id)),
        "eth_blockNumber" => Ok(quantity(view.head())),
        "eth_getBlockByNumber" => by_number(view, params),
        "eth_getBlockByHash" => Ok(block_text(view.block(&params[0]).map(AsRef::as_ref), params)),
        "eth_getBlockReceipts" => Ok(view.block(&params[0]).map_or_else(null, |block| text::receipts(block))),
        "eth_getLogs" => logs::find(view, &params[0], limits),
        "eth_getTransactionReceipt" => {
            Ok(place(view, params).map_or_else(null, |(block, at)| block.txs[at].receipt.clone()))
        }
        "eth_getTransactionByHash" => {
            Ok(place(view, params).map_or_else(null, |(block, at)| block.txs[at].json.clone()))
        }
        "eth_getRawTransactionByHash" => Ok(raw(place(view, params))),
        "eth_getRawTransactionByBlockHashAndIndex" => {
            let index =
                params[1].as_str().and_then(|index| usize::from_str_radix(index.trim_start_matches("0x"), 16).ok());
            Ok(raw(view.block(&params[0]).map(AsRef::as_ref).zip(index)))
        }
        "eth_getTransactionCount" => state(view, params, |block, who| Some(quantity(block.accounts()?.get(who).nonce))),
        "eth_getBalance" => {
            state(view, params, |block, who| Some(format!(r#""{:#x}""#, block.accounts()?.get(who).balance)))
        }
        "eth_getCode" => state(view, params, |block, who| {
            let code = if block.accounts()?.get(who).has_code { &CODE[..] } else { &[] };
            Some(json!(alloy::hex::encode_prefixed(code)).to_string())
        }),
        "eth_getProof" => proof(view, params),
        "debug_traceBlockByHash" | "debug_traceBlockByNumber" => traced(view, params, traces::geth),
        "trace_block" => traced(view, params, traces::parity),
        method => Err(Refused::no_such_method(method)),
    }
}

/// Whether the call asks for the state of a block more than `kept` behind the head.
pub(crate) fn needs_state_behind(view: &View<'_>, call: &Call, kept: u64) -> bool {
    let block = match call.method.as_str() {
        "eth_getProof" => &call.params[2],
        "eth_getBalance" | "eth_getCode" | "eth_getTransactionCount" => &call.params[1],
        "debug_traceBlockByHash" | "debug_traceBlockByNumber" | "trace_block" => &call.params[0],
        _ => return false,
    };
    view.block(block).is_some_and(|block| block.number + kept < view.head())
}

fn by_number(view: &View<'_>, params: &Value) -> Answer {
    let block = view.block(&params[0]).map(AsRef::as_ref);
    match (params[0].as_str(), block) {
        (Some(tag @ ("finalized" | "safe")), None) => Err(Refused::new(-32_000, format!("{tag} block not found"))),
        (_, block) => Ok(block_text(block, params)),
    }
}

pub(crate) fn block_text(block: Option<&Block>, params: &Value) -> String {
    block.map_or_else(null, |block| text::block(block, params[1] == true))
}

fn place<'s>(view: &View<'s>, params: &Value) -> Option<(&'s Block, usize)> {
    let (block, at) = view.place(params[0].as_str()?.parse().ok()?)?;
    Some((block, at))
}

fn raw(place: Option<(&Block, usize)>) -> String {
    place.and_then(|(block, at)| block.txs.get(at)?.raw.clone()).unwrap_or_else(null)
}

/// Asks an account's state at the block of the second parameter.
fn state(view: &View<'_>, params: &Value, read: impl Fn(&Block, Address) -> Option<String>) -> Answer {
    let block = view.block(&params[1]).ok_or_else(|| Refused::new(-32_000, "header not found"))?;
    let who = address(&params[0])?;
    read(block, who).ok_or_else(|| Refused::new(-32_000, "missing trie node"))
}

fn proof(view: &View<'_>, params: &Value) -> Answer {
    let block = view.block(&params[2]).ok_or_else(|| Refused::new(-32_000, "header not found"))?;
    let who = address(&params[0])?;
    let accounts = block.accounts().ok_or_else(|| Refused::new(-32_000, "missing trie node"))?;
    let account = accounts.get(who);
    let keys = params[1].as_array().cloned().unwrap_or_default();
    let storage: Vec<Value> = keys.iter().map(|key| json!({ "key": key, "value": "0x0", "proof": [] })).collect();
    let proof = json!({
        "address": who, "balance": format!("{:#x}", account.balance), "nonce": format!("{:#x}", account.nonce),
        "codeHash": account.code_hash(), "storageHash": EMPTY_ROOT_HASH, "accountProof": accounts.proof(who),
        "storageProof": storage,
    });
    Ok(proof.to_string())
}

fn traced(view: &View<'_>, params: &Value, write: fn(&Block) -> String) -> Answer {
    let block = view.block(&params[0]);
    block.map(|block| write(block)).ok_or_else(|| Refused::new(-32_000, format!("block {} not found", params[0])))
}

fn address(parameter: &Value) -> Result<Address, Refused> {
    let address = parameter.as_str().and_then(|text| text.parse().ok());
    address.ok_or_else(|| Refused::new(-32_602, "invalid argument 0: hex string of an address expected"))
}

fn quantity(number: u64) -> String {
    format!(r#""{number:#x}""#)
}

pub(crate) fn null() -> String {
    "null".to_owned()
}

/// The hash in a parameter, when it is one.
pub(crate) fn hash(parameter: &Value) -> Option<B256> {
    parameter.as_str()?.parse().ok()
}
