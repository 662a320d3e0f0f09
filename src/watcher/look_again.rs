//! Looks once more at connected blocks before they count as final, on chains whose hashes cover neither a block's parent nor
//! what is in it: there the final block proves nothing of those below.
//!
//! Promises: nothing counts as final that was not looked at; what endpoints agree on against our record is told to be taken
//! back. Deliberately not here: what is asked of endpoints, and when they agree (the source's). What was looked at is
//! remembered by the process only: a new one begins at what counts as final.

use landfall_chain::{BlockRef, BlockSource, Tip};

use crate::store::cursors::{self, Cursor};
use crate::watcher::connect::FINAL_BLOCKS_KEPT;
use crate::watcher::{TickError, Watcher};

impl<S: BlockSource> Watcher<S> {
    /// The lowest number up to the final block of which our record holds something else than endpoints agree on.
    pub(super) async fn look_again(&mut self, at: &BlockRef, tip: &Tip) -> Result<Option<u64>, TickError> {
        let Some(finalized) = tip.finalized.filter(|_| !self.chain().family().has_roots()) else { return Ok(None) };
        let mut reader = self.db.read().await?;
        let known = Cursor::load(&mut reader, self.chain()).await?.finalized.map_or(0, |known| known.number);
        let through = at.number.min(finalized.number);
        if through < known && self.endpoints.agree() > 1 {
            let lowest = at.number.saturating_sub(FINAL_BLOCKS_KEPT);
            let ours = cursors::canonical_in(&mut reader, self.chain(), lowest, through).await?;
            // What is below all that is on record was never read, or is forgotten.
            return Ok(ours.first().filter(|ours| ours.number < through).map(|_| through));
        }
        let from = self.looked.max(known).max(through.saturating_sub(FINAL_BLOCKS_KEPT));
        if from >= through {
            return Ok(None);
        }
        let mut ours = cursors::canonical_in(&mut reader, self.chain(), from, through).await?;
        drop(reader);
        let Some(lowest) = ours.pop() else { return Ok(None) };
        ours.reverse();
        let otherwise = self.source.look_again(lowest.number + 1..=through, &ours).await?;
        if otherwise.is_none() {
            self.looked = through;
        }
        Ok(otherwise)
    }

    /// Whether what stands at `number`, and all below it, may count as final.
    pub(super) fn is_looked_at(&self, number: u64) -> bool {
        self.chain().family().has_roots() || self.looked >= number
    }
}
