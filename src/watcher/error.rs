//! How a tick fails, and whether the next one may succeed.

use landfall_chain::{BlockHash, BlockRef, Chain, SourceError, SourceErrorKind, TxId};

use crate::deposit::{DepositId, InvalidTransition};
use crate::store::StoreError;

/// Why a tick ended early. What it had committed before stays, and the next tick goes on from there.
#[derive(Debug, thiserror::Error)]
pub enum TickError {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The source says two things that cannot both be true; another answer may make sense.
    #[error("{chain}: {what}")]
    Contradiction { chain: Chain, what: String },
    #[error(
        "{chain}: a reorg reaches below block {oldest}, the oldest on record; nothing was changed. Check that every \
         endpoint is on the right chain; if it is, this chain must be read again from before the fork"
    )]
    DeepReorg { chain: Chain, oldest: u64 },
    #[error(
        "{chain}: block {finalized} was final and is no longer canonical (the fork point is block {fork_point}); \
         {confirmed} confirmed deposits stand above it. Nothing was changed and nothing more will be confirmed. Compare \
         with an independent node before restarting"
    )]
    PostFinalityReorg { chain: Chain, finalized: BlockRef, fork_point: BlockRef, confirmed: u64 },
    #[error(
        "{chain}: transaction {tx} would be credited with more than it paid: {credited} base units confirmed, {paid} \
         paid in the final block; a person must decide"
    )]
    OverCredited { chain: Chain, tx: TxId, credited: String, paid: String },
    #[error(
        "{chain}: deposit {deposit} was seen in block {block}, which is final now, proved, and read without it: the \
         configuration has changed (is its asset still listed?) or this version reads otherwise. Nothing was changed; \
         put it back and restart"
    )]
    ReadOtherwise { chain: Chain, block: BlockRef, deposit: DepositId },
    #[error(
        "{chain}: block {finalized} is final, but our record has {ours} at its number; nothing was recorded. Compare with \
         an independent node: either this one is not on the chain, or a block that was final was replaced"
    )]
    OtherOnRecord { chain: Chain, finalized: BlockRef, ours: BlockHash },
    #[error(transparent)]
    Transition(#[from] InvalidTransition),
}

impl TickError {
    /// Whether a later tick may succeed without a person doing anything.
    pub fn may_pass(&self) -> bool {
        match self {
            TickError::Source(error) => error.kind == SourceErrorKind::Transient,
            TickError::Store(error) => error.may_pass(),
            TickError::Contradiction { .. } => true,
            TickError::DeepReorg { .. }
            | TickError::PostFinalityReorg { .. }
            | TickError::OverCredited { .. }
            | TickError::ReadOtherwise { .. }
            | TickError::OtherOnRecord { .. }
            | TickError::Transition(_) => false,
        }
    }
}
