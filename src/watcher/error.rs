//! How a tick fails, and whether the next one may succeed.

use landfall_chain::{BlockHash, BlockRef, Chain, SourceError, SourceErrorKind, with_causes};

use crate::deposit::{DepositId, InvalidTransition};
use crate::incident::IncidentKind;
use crate::store::StoreError;

/// Why a tick ended early. What it had committed before stays, and the next tick continues from there.
#[derive(Debug, thiserror::Error)]
pub enum TickError {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The source reports two things that cannot both be true; another response may make sense.
    #[error("{chain}: {what}")]
    Contradiction { chain: Chain, what: String },
    #[error(
        "{chain}: a reorg reaches below block {oldest}, the oldest on record; nothing was changed, and the other chains go \
         on. Check that every endpoint is on the right chain, then `landfall chain resume {chain} --reason TEXT`; if the chain really was \
         replaced that deep, read it anew into an empty store with `start` at a block below the fork: the same deposits \
         get the same ids"
    )]
    DeepReorg { chain: Chain, oldest: u64 },
    #[error(
        "{chain}: {replaced} (the fork point is block {fork_point}); {confirmed} confirmed deposits and \
         transfers stand above it. Nothing was changed and nothing more will be confirmed. Compare with an independent node; then either `landfall chain \
         resume {chain}`, when the nodes were wrong, or `landfall chain override {chain} accept-reorg`: what is CONFIRMED \
         stays so"
    )]
    PostFinalityReorg { chain: Chain, replaced: Replaced, fork_point: BlockRef, confirmed: u64 },
    #[error("{chain}: halted by an operator: {reason}; `landfall chain resume {chain} --reason TEXT` lets it go on")]
    HaltedByOperator { chain: Chain, reason: String },
    /// Halted by what its own watcher met and recorded.
    #[error(
        "{chain} is halted, and nothing is credited until a person has decided: `landfall status` says why, `landfall chain \
         resume {chain} --reason TEXT` lets it go on"
    )]
    Halted { chain: Chain },
    #[error(
        "{chain}: deposit {deposit} was seen in block {block}, which is final now, proved, and read without it: the \
         configuration has changed (is its asset still listed?) or this version reads otherwise. Nothing was changed; \
         put it back and restart, or `landfall chain resume {chain} --reason TEXT`"
    )]
    LegMissing { chain: Chain, block: BlockRef, deposit: DepositId },
    #[error(
        "{chain}: block {finalized} is final, but our record has {ours} at its number; nothing was recorded. Compare with \
         an independent node: either this one is not on the chain, or a block that was final was replaced"
    )]
    OtherOnRecord { chain: Chain, finalized: BlockRef, ours: BlockHash },
    #[error(transparent)]
    Transition(#[from] InvalidTransition),
}

/// Which block of ours was replaced although it should not have been.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Replaced {
    #[error("block {0} was final and is no longer canonical")]
    Final(BlockRef),
    /// Final by a tier or by an operator's override, above what is final for all.
    #[error("block {0} counted as final for a confirmed deposit and is no longer canonical")]
    Confirmed(u64),
}

impl TickError {
    /// The kind of incident that a person must look at; `None` if the error may pass, a person halted the chain, or the
    /// incident is already on record.
    pub fn incident(&self) -> Option<IncidentKind> {
        if self.may_pass() {
            return None;
        }
        match self {
            TickError::PostFinalityReorg { .. } => Some(IncidentKind::PostFinalityReorg),
            TickError::DeepReorg { .. } => Some(IncidentKind::DeepReorg),
            TickError::LegMissing { .. } => Some(IncidentKind::LegMissing),
            TickError::Source(error) if error.needs_upgrade => Some(IncidentKind::UpgradeNeeded),
            TickError::Source(_) => Some(IncidentKind::SourceRefused),
            TickError::Store(_) | TickError::OtherOnRecord { .. } | TickError::Transition(_) => {
                Some(IncidentKind::InconsistentStore)
            }
            TickError::Contradiction { .. } | TickError::HaltedByOperator { .. } | TickError::Halted { .. } => None,
        }
    }

    /// The fork point of a reorg that needs a person.
    pub(in crate::watcher) fn fork_point(&self) -> Option<u64> {
        match self {
            TickError::PostFinalityReorg { fork_point, .. } => Some(fork_point.number),
            TickError::Source(_)
            | TickError::Store(_)
            | TickError::Contradiction { .. }
            | TickError::DeepReorg { .. }
            | TickError::HaltedByOperator { .. }
            | TickError::Halted { .. }
            | TickError::LegMissing { .. }
            | TickError::OtherOnRecord { .. }
            | TickError::Transition(_) => None,
        }
    }

    /// Whether a later tick may succeed without a person doing anything.
    pub fn may_pass(&self) -> bool {
        match self {
            TickError::Source(error) => error.kind == SourceErrorKind::Transient,
            TickError::Store(error) => error.may_pass(),
            TickError::Contradiction { .. } => true,
            TickError::DeepReorg { .. }
            | TickError::PostFinalityReorg { .. }
            | TickError::HaltedByOperator { .. }
            | TickError::Halted { .. }
            | TickError::LegMissing { .. }
            | TickError::OtherOnRecord { .. }
            | TickError::Transition(_) => false,
        }
    }
}

/// Turns an error of the source into the inner error, a reason to wait; store errors and all others stay errors.
pub(in crate::watcher) fn or_reason<T>(read: Result<T, TickError>) -> Result<Result<T, String>, TickError> {
    match read {
        Ok(read) => Ok(Ok(read)),
        Err(error @ (TickError::Source(_) | TickError::Contradiction { .. })) => Ok(Err(with_causes(&error))),
        Err(error) => Err(error),
    }
}
