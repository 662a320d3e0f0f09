//! Receipts from before Byzantium, which have a state root where later ones have a status (EIP-658).
//!
//! geth keeps these roots. reth and Erigon do not: they show a status instead, which they found by running the
//! transaction again, so these receipts cannot be proved with them. That is no lie: another endpoint reads the block,
//! and the state of this one stays as it was.

use landfall_chain::Chain;

use crate::dialect::Endpoint;
use crate::error::{Check, EvmError};
use crate::proof::Refusal;
use crate::read::FullBlock;
use crate::wire::WireReceipt;

/// The first block of Byzantium. Every other network of ours began behind it.
const BYZANTIUM: (Chain, u64) = (Chain::EthereumMainnet, 4_370_000);

/// Why `endpoint` is of no use for `block`, whose receipts were refused, if only their state roots are missing.
pub(crate) fn lacks_roots(
    endpoint: &Endpoint,
    block: &FullBlock<'_>,
    receipts: &[WireReceipt<'_>],
    refusal: &Refusal,
) -> Option<EvmError> {
    let (chain, first) = BYZANTIUM;
    // Its header is proved: chains for tests have blocks with these numbers too, and no such receipts.
    let is_of_then = block.number.0 < first && block.base_fee_per_gas.is_none();
    let is_old = endpoint.chain == chain && is_of_then && !receipts.is_empty();
    let has_none = receipts.iter().all(|receipt| receipt.root.and_then(|root| root.to_array::<32>()).is_none());
    let is_of_roots = matches!(refusal, Refusal::Unproved(Check::ReceiptsRoot) | Refusal::Incomplete { .. });
    (is_old && has_none && is_of_roots).then(|| {
        let what = format!(
            "keeps no state roots in the receipts of before Byzantium (block {first}), as reth and Erigon do not, so \
             block {} cannot be proved there; name an endpoint that does, such as geth, for blocks as old",
            block.number.0
        );
        endpoint.lacks(what)
    })
}
