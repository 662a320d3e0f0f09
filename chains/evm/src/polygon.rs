//! Polygon's state-syncs: what comes over the bridge from Ethereum, executed behind a block's transactions.
//!
//! Since Madhugiri (PIP-74) they are a transaction of type 0x7f, the last of its block, in both roots and in the
//! bloom. No block that a node returns holds its payload: its input is empty, and all else that JSON shows of it is
//! zero (bor `core/types/state_sync_tx.go`). So its encoding is asked for in a call of its own. Before, they were in
//! no root. Some nodes nevertheless add a pseudo transaction and a pseudo receipt to their answers (bor
//! `internal/ethapi/api.go`, with `types.NewBorTransaction` and `GetDerivedBorTxHash`). These are set aside before
//! anything is proved, and never credited: nothing in the header proves that they are true or complete. The receipt is
//! returned to a caller who wants to explain what it claims.

use std::ops::RangeInclusive;
use std::sync::{Mutex, MutexGuard, PoisonError};

use alloy::primitives::{Address, B256, keccak256};
use landfall_chain::{BlockRef, Chain};
use landfall_rpc::{Answer, Call, Limit, Raw};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;

use crate::dialect::Endpoint;
use crate::error::EvmError;
use crate::networks;
use crate::stack::Stack;
use crate::wire::{Kind, WireBlock, WireReceipt, WireTx};

/// By its place in a block: only this can be asked for together with the block's receipts.
pub(crate) const RAW_TX: &str = "eth_getRawTransactionByBlockHashAndIndex";
/// The usual one; the one of nodes that serve no other.
const RAW_BY_HASH: [&str; 2] = ["eth_getRawTransactionByHash", RAW_LAST];
/// An endpoint that does not serve this one has been asked for all.
pub(crate) const RAW_LAST: &str = "debug_getRawTransaction";
const PSEUDO_PREFIX: &[u8] = b"matic-bor-receipt-";
/// Bor executes state-syncs in the first block of a sprint (bor `consensus/bor/bor.go`), whose number was always a
/// multiple of this.
const SPRINT_BLOCKS: u64 = 16;

/// Where a transaction stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    block: BlockRef,
    index: usize,
}

/// The last transaction of the newest block that may have state-syncs, as a poll reported it. The read of that block
/// then asks for its encoding in the same request. If it is no state-sync, that call was in vain.
#[derive(Debug, Default)]
pub(crate) struct Foreseen(Mutex<Option<Place>>);

#[derive(Deserialize)]
struct Hashes {
    transactions: Vec<IgnoredAny>,
}

impl Place {
    pub(crate) fn call(&self) -> Call {
        Call { method: RAW_TX, params: json!([self.block.hash.to_string(), format!("{:#x}", self.index)]) }
    }

    pub(crate) fn hash(&self, block: &WireBlock<'_, Vec<WireTx<'_>>>) -> Option<B256> {
        block.transactions.get(self.index).map(|tx| tx.hash)
    }
}

impl Foreseen {
    /// Notes `block`, which `answer` showed with the hashes of its transactions.
    pub(crate) fn note(&self, chain: Chain, block: BlockRef, answer: &Raw) {
        if may_sync(networks::stack(chain), block.number) {
            let txs = serde_json::from_str(answer.get()).map_or(0, |Hashes { transactions }| transactions.len());
            *self.place() = txs.checked_sub(1).map(|index| Place { block, index });
        }
    }

    /// What to ask for beside the blocks of `range`.
    pub(crate) fn within(&self, range: &RangeInclusive<u64>) -> Option<Place> {
        self.place().filter(|place| range.contains(&place.block.number))
    }

    fn place(&self) -> MutexGuard<'_, Option<Place>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

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

/// Whether the block at `number` may have state-syncs.
pub(crate) fn may_sync(stack: Stack, number: u64) -> bool {
    stack == Stack::Polygon && number.is_multiple_of(SPRINT_BLOCKS)
}

/// Where the 0x7f transaction of `at` stands, whose encoding must be asked for.
pub(crate) fn state_sync(stack: Stack, at: BlockRef, block: &WireBlock<'_, Vec<WireTx<'_>>>) -> Option<Place> {
    let index = block.transactions.iter().position(|tx| Kind::parse(tx.kind, stack) == Ok(Kind::StateSync))?;
    Some(Place { block: at, index })
}

/// Whether a node returned an encoding: for one that they do not have, geth and bor say `0x`
/// (`internal/ethapi/api.go`, nil bytes).
pub(crate) fn is_given(answer: &Raw) -> bool {
    !matches!(answer.get(), "null" | "\"0x\"")
}

/// The encoding of the transaction `hash` of `block`, from a node that answered `by_place` when it was asked for it by
/// its place there. The hash decides whether what comes back is right.
///
/// # Errors
/// The node returns it in no way; the error holds its answers. No other call returns the encoding.
pub(crate) async fn encoding(
    endpoint: &Endpoint,
    block: BlockRef,
    hash: &B256,
    by_place: &Answer,
) -> Result<Raw, EvmError> {
    let mut said = vec![refusal(endpoint, RAW_TX, by_place)?];
    for method in RAW_BY_HASH {
        let call = Call { method, params: json!([hash]) };
        let answer = endpoint.ask(&[call]).await?.pop().ok_or_else(|| endpoint.unusable(method, "no answer"))?;
        match answer {
            Ok(answer) if is_given(&answer) => return Ok(answer),
            answer => said.push(refusal(endpoint, method, &answer)?),
        }
    }
    Err(endpoint.lacks(format!(
        "gives the encoding of no state-sync (0x7f), so block {block} cannot be proved there ({}); name an endpoint that \
         serves one of these methods",
        said.join("; ")
    )))
}

/// The message of a node that does not have such a transaction, or such a method. A node that was asked too much has
/// not answered yet: that is an error.
fn refusal(endpoint: &Endpoint, method: &'static str, answer: &Answer) -> Result<String, EvmError> {
    match answer {
        Ok(answer) => Ok(format!("{method}: {}", answer.get())),
        Err(error) if matches!(error.limit, None | Some(Limit::Unsupported | Limit::Pruned)) => {
            Ok(format!("{method}: {error}"))
        }
        Err(error) => Err(endpoint.refused(method, error)),
    }
}

/// No transaction of the chain can have this hash: it holds the hash of the block that would hold the transaction.
fn pseudo_hash(number: u64, block: &B256) -> B256 {
    keccak256([PSEUDO_PREFIX, number.to_be_bytes().as_slice(), block.as_slice()].concat())
}
