//! Polygon's state-syncs: what comes over the bridge from Ethereum, executed behind a block's transactions.
//!
//! Since Madhugiri (PIP-74) they are a transaction of type 0x7f, the last of its block, in both roots and in the
//! bloom. Its payload stands in no block that a node answers with, so its encoding is asked for by itself.
//! Before, they were in no root. Some nodes nevertheless add a pseudo transaction and a pseudo receipt to their
//! answers (bor `internal/ethapi/api.go`, with `types.NewBorTransaction` and `GetDerivedBorTxHash`). These are set
//! aside before anything is proved, and never credited: nothing in the header tells whether they are true or whole.
//! The receipt is handed out for who wants to explain what it claims.

use alloy::primitives::{Address, B256, keccak256};
use landfall_chain::Chain;
use landfall_rpc::{Call, Raw};
use serde_json::json;

use crate::dialect::Endpoint;
use crate::error::EvmError;
use crate::networks;
use crate::stack::Stack;
use crate::wire::{Kind, WireBlock, WireReceipt, WireTx};

/// Of all nodes; of those that serve no other.
const RAW_BY_HASH: [&str; 2] = ["eth_getRawTransactionByHash", "debug_getRawTransaction"];
const PSEUDO_PREFIX: &[u8] = b"matic-bor-receipt-";

/// The miner in the header of every block of Polygon: nobody. Some versions of Erigon state the validator instead, whom
/// they recover from the signature in `extraData` (erigon, pull request 6080).
pub(crate) fn miner(chain: Chain) -> Option<Address> {
    (networks::stack(chain) == Stack::Polygon).then_some(Address::ZERO)
}

/// Takes the pseudo transaction out of a block as a node returned it.
pub(crate) fn set_aside_tx(stack: Stack, block: &mut WireBlock<'_, Vec<WireTx<'_>>>) {
    let pseudo = pseudo_hash(block.number.0, &block.hash);
    let is_pseudo = |tx: &WireTx<'_>| {
        let nobody = tx.from == Address::ZERO && tx.to == Some(Address::ZERO) && tx.value.0.is_zero();
        Kind::parse(tx.kind, stack) == Ok(Kind::Legacy) && nobody && tx.hash == pseudo
    };
    if stack == Stack::Polygon && block.transactions.last().is_some_and(is_pseudo) {
        block.transactions.pop();
    }
}

/// Takes the pseudo receipt out of the receipts of `block`. Nodes may show it with or without the transaction.
pub(crate) fn set_aside_receipt<'a, T>(
    stack: Stack,
    block: &WireBlock<'_, T>,
    receipts: &mut Vec<WireReceipt<'a>>,
) -> Option<WireReceipt<'a>> {
    let pseudo = || pseudo_hash(block.number.0, &block.hash);
    receipts.pop_if(|last| stack == Stack::Polygon && last.transaction_hash == pseudo())
}

/// The index of the 0x7f transaction, whose encoding must be asked for.
pub(crate) fn state_sync(stack: Stack, block: &WireBlock<'_, Vec<WireTx<'_>>>) -> Option<usize> {
    block.transactions.iter().position(|tx| Kind::parse(tx.kind, stack) == Ok(Kind::StateSync))
}

/// The encoding of the transaction `hash`, from a node that does not give it by its place in the block. Whatever
/// comes back is judged by the hash.
pub(crate) async fn encoding(endpoint: &Endpoint, hash: &B256) -> Result<Raw, EvmError> {
    let mut error = None;
    for method in RAW_BY_HASH {
        let call = Call { method, params: json!([hash]) };
        match endpoint.ask(&[call]).await?.pop() {
            Some(Ok(answer)) if answer.get() != "null" => return Ok(answer),
            Some(Ok(_)) | None => error = error.or_else(|| Some(endpoint.unusable(method, "no such transaction"))),
            Some(Err(refusal)) => error = error.or_else(|| Some(endpoint.refused(method, &refusal))),
        }
    }
    Err(error.unwrap_or_else(|| endpoint.unusable(RAW_BY_HASH[0], "no answer")))
}

/// No transaction of the chain can have this hash: it holds the hash of the block that would hold the transaction.
fn pseudo_hash(number: u64, block: &B256) -> B256 {
    keccak256([PSEUDO_PREFIX, number.to_be_bytes().as_slice(), block.as_slice()].concat())
}
