//! Looks once more at connected blocks before they count as final, on chains whose hashes cover neither a block's parent nor
//! what is in it: there the final block proves nothing of those below.
//!
//! Promises: nothing counts as final that was not looked at, however far behind it lies, but what an operator left to one
//! endpoint; what endpoints agree on against our record is told to be taken back. Deliberately not here: what is asked of
//! endpoints, and when they agree (the source's). What was looked at is remembered by the process only: a new one begins at
//! what counts as final.

use landfall_chain::{BlockRef, BlockSource, Tip};

use crate::store::cursors::{self, Cursor};
use crate::watcher::connect::FINAL_BLOCKS_KEPT;
use crate::watcher::{TickError, Watcher};

/// How many blocks one look is at, at most; a tick connects fewer.
const LOOK_BLOCKS_MAX: u32 = 1_024;

impl<S: BlockSource> Watcher<S> {
    /// The lowest number up to the final block of which our record holds something else than endpoints agree on.
    pub(super) async fn look_again(&mut self, at: &BlockRef, tip: &Tip) -> Result<Option<u64>, TickError> {
        let chain = self.chain();
        let Some(finalized) = tip.finalized.filter(|_| !chain.family().has_roots()) else { return Ok(None) };
        let mut reader = self.db.read().await?;
        let known = Cursor::load(&mut reader, chain).await?.finalized.map_or(0, |known| known.number);
        let through = at.number.min(finalized.number);
        if self.endpoints.agree() <= 1 {
            self.looked = through;
            return Ok(None);
        }
        let from = match self.looked {
            // What is forgotten was looked at, and below where it was taken up there is what backfills found.
            0 => known.max(cursors::unbroken_from(&mut reader, chain, at.number).await?.unwrap_or_default()),
            looked => looked.max(known),
        };
        if through < known {
            let lowest = at.number.saturating_sub(FINAL_BLOCKS_KEPT);
            let ours = cursors::canonical_in(&mut reader, chain, lowest, through).await?;
            let unbroken = cursors::unbroken_from(&mut reader, chain, at.number).await?.unwrap_or_default();
            // What is below all that is on record was never read, or is forgotten.
            return Ok(ours.first().filter(|ours| (unbroken..through).contains(&ours.number)).map(|_| through));
        }
        if from >= through {
            return Ok(None);
        }
        let ours = cursors::canonical_from(&mut reader, chain, (from, through), LOOK_BLOCKS_MAX).await?;
        drop(reader);
        let is_cut = u32::try_from(ours.len()) == Ok(LOOK_BLOCKS_MAX);
        let Some((lowest, ours)) = ours.split_first() else { return Ok(None) };
        let through = ours.last().filter(|_| is_cut).map_or(through, |last| last.number);
        let otherwise = self.source.look_again(lowest, lowest.number + 1..=through, ours).await?;
        if otherwise.is_none() {
            self.looked = through;
        }
        Ok(otherwise)
    }

    /// Whether what stands at `number`, and all below it, may count as final.
    pub(super) fn is_looked_at(&self, number: u64) -> bool {
        self.chain().family().has_roots() || self.looked >= number
    }

    /// Up to where blocks may be forgotten that are older than what is final: what is not looked at yet is needed.
    pub(super) fn forgettable(&self) -> u64 {
        if self.chain().family().has_roots() { u64::MAX } else { self.looked }
    }
}
