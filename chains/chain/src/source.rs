//! What a watcher reads of a chain.
//!
//! Invariant: an answer that is empty, short or missing is never proof of anything. What a source returns as a
//! block is proved by the source itself; what is absent is told by parent links only.

use std::error::Error;
use std::fmt;
use std::ops::RangeInclusive;

use crate::{Block, BlockRef, Header, Tip, TxRef};

/// A chain that can be read. Every call is bounded in time and retries nothing: the caller decides.
pub trait BlockSource: Send + Sync + 'static {
    /// The newest block and the newest final one.
    fn tip(&self) -> impl Future<Output = Result<Tip, SourceError>> + Send;

    /// The headers of `range` that are canonical now, ascending. Both ends are inclusive: `5..=7` is three numbers.
    /// Fewer may come back when the source does not have them (yet).
    fn headers(&self, range: RangeInclusive<u64>) -> impl Future<Output = Result<Vec<Header>, SourceError>> + Send;

    /// As [`BlockSource::headers`], with the content of each block, proved.
    fn blocks(&self, range: RangeInclusive<u64>) -> impl Future<Output = Result<Vec<Block>, SourceError>> + Send;

    /// What became of a transaction, judged at the final block `at`.
    fn fate(&self, tx: &TxRef, at: &BlockRef) -> impl Future<Output = Result<Fate, SourceError>> + Send;
}

/// What became of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// The source says it is in this block. Read the block before believing it.
    In(BlockRef),
    /// What it needed was used up by another transaction at or before this block: it can never land.
    Superseded(BlockRef),
    /// Neither is known; it may still land.
    Unknown,
}

/// Whether the same call may succeed later without a person doing anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SourceErrorKind {
    /// Try again, soon or elsewhere.
    Transient,
    /// Trying again is useless: a person must act.
    Permanent,
}

/// A failed read, with the one bit the caller needs, decided where the failure was seen.
pub struct SourceError {
    /// Transient or permanent.
    pub kind: SourceErrorKind,
    cause: Box<dyn Error + Send + Sync>,
}

impl SourceError {
    /// A failure that may pass.
    pub fn transient(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        SourceError { kind: SourceErrorKind::Transient, cause: cause.into() }
    }

    /// A failure that stays until a person acts.
    pub fn permanent(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        SourceError { kind: SourceErrorKind::Permanent, cause: cause.into() }
    }
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cause.fmt(f)
    }
}

impl fmt::Debug for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.cause)
    }
}

impl Error for SourceError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.source()
    }
}
