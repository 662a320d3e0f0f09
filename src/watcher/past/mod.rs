//! What backfill and rescan share beside reading: which past blocks may be read, and the progress in each lane.
//!
//! Deliberately not here: which addresses are searched for, and what is done with what is found.

pub(super) mod backfill;
pub(super) mod final_range;
pub(super) mod progress;
pub(super) mod rescan;

use std::collections::BTreeSet;

use landfall_chain::{Address, BlockRef, BlockSource, Chain, Proof};

use crate::store::cursors::Cursor;
use crate::store::{StoreError, accounts};
use crate::watcher::books::Books;
use crate::watcher::{TickError, halted};

#[derive(Debug, thiserror::Error)]
pub enum BackfillError {
    #[error("{chain}: from block {from} to block {to} is no range")]
    NoRange { chain: Chain, from: u64, to: u64 },
    #[error("{chain}: block {to} is not final yet; the newest final block is {}",
        finalized.map_or("not known".to_owned(), |finalized| finalized.number.to_string()))]
    NotFinal { chain: Chain, to: u64, finalized: Option<BlockRef> },
    #[error(
        "{chain}: block {from} is above block {cursor}, which is as far as `landfall run` has come; it reads the rest itself"
    )]
    NotRead { chain: Chain, from: u64, cursor: u64 },
    #[error(
        "{chain}: block {from} is above block {until}, the newest that may be searched: there is nothing to be found yet"
    )]
    Above { chain: Chain, from: u64, until: u64 },
    #[error(
        "{chain} is searched block by block, or for single addresses; say which blocks with --from and --to, or whose with \
         --address or --account"
    )]
    NoScope { chain: Chain },
    #[error("{chain} is searched block by block: say which with --from and --to")]
    NoEnd { chain: Chain },
    #[error("{chain}: nothing is known to be final yet")]
    NothingFinal { chain: Chain },
    #[error("{address} is not watched on {chain}; add it with `landfall account add` first")]
    NotWatched { chain: Chain, address: Address },
    #[error("account {account} has no address on {chain}")]
    NoAddress { chain: Chain, account: String },
    #[error(transparent)]
    Tick(#[from] TickError),
}

/// What one lane has still to read of a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    pub next: u64,
    /// Inclusive: with 5 and 7, blocks 5, 6 and 7 are left.
    pub until: u64,
}

/// How far a backfill or rescan has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    pub from: u64,
    /// The last block that is read; less than what was asked for if `run` has not come that far.
    pub until: u64,
    /// The next block to read in the lane of the roots.
    pub next: u64,
    /// What is left of the traces; `None` where no block of the range is traced.
    pub traces: Option<Span>,
    /// Deposits that became PENDING, or would, or differ.
    pub found: u64,
    pub confirmed: u64,
    /// Deposits that a trace showed and no second witness corroborated; they stay PENDING.
    pub doubted: u64,
    /// The weakest proof of what was read in the lane of the roots, including what was read before a stop.
    pub proof: Option<Proof>,
}

impl Span {
    pub fn is_done(&self) -> bool {
        self.next > self.until
    }
}

impl Progress {
    /// The progress before anything of `from..=until` is read.
    pub(in crate::watcher) fn begun(from: u64, until: u64, traces: Option<Span>) -> Self {
        let next = first_read(from);
        Progress { from, until, next, traces, found: 0, confirmed: 0, doubted: 0, proof: None }
    }

    /// Something was read with `proof`.
    pub(in crate::watcher) fn stands_on(&mut self, proof: Proof) {
        self.proof = Some(self.proof.map_or(proof, |before| before.weaker(proof)));
    }

    pub fn is_done(&self) -> bool {
        self.next > self.until && self.untraced().is_none()
    }

    /// What the traces have still to read; `None` when they are done.
    pub fn untraced(&self) -> Option<Span> {
        self.traces.filter(|traces| !traces.is_done())
    }
}

impl<S: BlockSource> Books<S> {
    /// The last block of `from..=to` that may be read: all up to it are final, and `run` has read them.
    pub(in crate::watcher) async fn check_range(&self, from: u64, to: u64) -> Result<u64, BackfillError> {
        let chain = self.chain();
        if from > to {
            return Err(BackfillError::NoRange { chain, from, to });
        }
        if self.source.final_at(to).await.map_err(TickError::from)?.is_none() {
            let finalized = self.source.tip().await.map_err(TickError::from)?.finalized;
            // Where numbers are passed over there may be no block at this one.
            if finalized.is_none_or(|finalized| finalized.number < to) {
                return Err(BackfillError::NotFinal { chain, to, finalized });
            }
        }
        let Some(cursor) = Cursor::load(&mut self.db.read().await?, chain).await?.at else { return Ok(to) };
        if cursor.number < from {
            return Err(BackfillError::NotRead { chain, from, cursor: cursor.number });
        }
        Ok(to.min(cursor.number))
    }

    /// The last block that is final and that `run` has read, if it has read any; `None` while nothing is known to be
    /// final.
    pub(in crate::watcher) async fn newest_past(&self) -> Result<Option<u64>, TickError> {
        let Some(finalized) = self.source.tip().await?.finalized else { return Ok(None) };
        let cursor = Cursor::load(&mut self.db.read().await?, self.chain()).await?.at;
        Ok(Some(cursor.map_or(finalized.number, |cursor| cursor.number.min(finalized.number))))
    }

    /// The last block that is not matched against all of these addresses: `run` matches from the next one on. `None` on
    /// a chain that was never followed.
    pub(in crate::watcher) async fn last_unwatched(
        &self,
        addresses: &BTreeSet<Address>,
    ) -> Result<Option<u64>, StoreError> {
        let (chain, mut reader) = (self.chain(), self.db.read().await?);
        if Cursor::load(&mut reader, chain).await?.at.is_none() {
            return Ok(None);
        }
        let mut last = 0;
        for address in addresses {
            let from = accounts::watched_from(&mut reader, chain, address).await?.unwrap_or_default();
            last = last.max(from.saturating_sub(1));
        }
        Ok(Some(last))
    }

    /// An error if the chain is halted, or a person must decide before anything is credited.
    pub(in crate::watcher) async fn check_not_halted(&self) -> Result<(), TickError> {
        match halted(&mut self.db.read().await?, self.chain()).await? {
            Some(halted) => Err(halted),
            None => Ok(()),
        }
    }

    /// The traces of `from..=until`; `None` where none of them is traced.
    pub(in crate::watcher) fn traced_span(&self, from: u64, until: u64) -> Option<Span> {
        let native = &self.network.native;
        let last = native.eip7708_from.map_or(until, |logged| until.min(logged.saturating_sub(1)));
        native.is_traced(from).then_some(Span { next: from, until: last }).filter(|span| !span.is_done())
    }
}

/// Block 0 has no transactions and no parent.
pub(in crate::watcher) fn first_read(from: u64) -> u64 {
    from.max(1)
}

impl From<StoreError> for BackfillError {
    fn from(error: StoreError) -> Self {
        BackfillError::Tick(error.into())
    }
}
