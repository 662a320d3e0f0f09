//! Cross-checks connected blocks before they count as final, on chains whose hashes cover neither a block's parent nor
//! its content. There the final block proves nothing about those below.
//!
//! Promises:
//! - Nothing counts as final that was not checked, however far behind it is, except what an operator left to one
//!   endpoint.
//! - What endpoints agree on against our record is reported, to be disconnected.
//! - The number through which all was checked is on record. All blocks that we connected above it stay on record,
//!   whichever process checks.
//!
//! Deliberately not here: what endpoints are asked, and when they agree (that is the source's).

use landfall_chain::{BlockRef, BlockSource, Tip};

use crate::overrides::Overrides;
use crate::store::StoreError;
use crate::store::cursors::{self, Cursor};
use crate::watcher::read::FINAL_BLOCKS_KEPT;
use crate::watcher::{Follower, TickError};

/// How many blocks one check covers at most; a tick connects fewer.
const LOOK_BLOCKS_MAX: u32 = 1_024;

impl<S: BlockSource> Follower<S> {
    /// The lowest number, up to the final block, at which endpoints agree on something else than our record has; `None`
    /// if nothing differs.
    pub(in crate::watcher) async fn cross_check(
        &self,
        at: &BlockRef,
        tip: &Tip,
        orders: &Overrides,
    ) -> Result<Option<u64>, TickError> {
        let chain = self.chain();
        let Some(finalized) = tip.finalized.filter(|_| !chain.family().has_roots()) else { return Ok(None) };
        let through = at.number.min(finalized.number);
        let mut reader = self.db.read().await?;
        let looked = Cursor::load(&mut reader, chain).await?.looked;
        // Checked blocks are doubted in two cases: a person accepts that they were replaced, or they passed over a
        // number that is final now.
        let doubted = match &orders.accepted {
            Some((down_to, _)) => Some(*down_to),
            None => cursors::passed_over(&mut reader, chain, through).await?.map(|below| below.number),
        };
        drop(reader);
        if let Some(from) = doubted.filter(|from| *from < looked)
            && let Some(otherwise) = self.look_behind(from, through).await?
        {
            return Ok(Some(otherwise));
        }
        self.look_above(looked, through).await
    }

    /// Checks what stands on our block at `from`, or on the one below if there is none. Where blocks were forgotten,
    /// the gap between two blocks on record shows nothing.
    async fn look_behind(&self, from: u64, through: u64) -> Result<Option<u64>, TickError> {
        let linked = cursors::stands_on(&mut self.db.read().await?, self.chain(), from).await?;
        let Some((below, above)) = linked.filter(|(below, _)| below.number < through) else { return Ok(None) };
        let ours = if above.number <= through { std::slice::from_ref(&above) } else { &[] };
        Ok(self.source.cross_check(&below, below.number + 1..=through.min(above.number), ours, true).await?)
    }

    /// Checks our blocks above `looked`, `LOOK_BLOCKS_MAX` at most, and records through which number nothing differed.
    async fn look_above(&self, looked: u64, through: u64) -> Result<Option<u64>, TickError> {
        if through <= looked {
            return Ok(None);
        }
        let mut reader = self.db.read().await?;
        let from = cursors::canonical_through(&mut reader, self.chain(), looked).await?;
        let from = from.map_or(looked, |below| below.number);
        let seen = cursors::canonical_from(&mut reader, self.chain(), (from, through), LOOK_BLOCKS_MAX).await?;
        drop(reader);
        let is_cut = u32::try_from(seen.len()) == Ok(LOOK_BLOCKS_MAX);
        let Some((lowest, ours)) = seen.split_first() else { return Ok(None) };
        let through = ours.last().filter(|_| is_cut).map_or(through, |last| last.number);
        let otherwise = self.source.cross_check(lowest, lowest.number + 1..=through, ours, true).await?;
        if otherwise.is_none() {
            self.note_looked(looked, &seen, through).await?;
        }
        Ok(otherwise)
    }

    /// Records that all of ours above `looked` and through that number was `seen`, and forgets what is no longer
    /// needed.
    async fn note_looked(&self, looked: u64, seen: &[BlockRef], through: u64) -> Result<(), TickError> {
        let (chain, Some(lowest)) = (self.chain(), seen.first()) else { return Ok(()) };
        let mut tx = self.db.begin().await?;
        let cursor = Cursor::lock(&mut tx, chain).await?;
        // Another process recorded it.
        if cursor.looked >= through {
            return Ok(());
        }
        let ours = cursors::canonical_from(&mut tx, chain, (lowest.number, through), LOOK_BLOCKS_MAX).await?;
        // They were disconnected meanwhile. Blocks connected above them are no reason to check anew.
        if cursor.looked < looked || ours != seen {
            return Err(StoreError::Moved { chain }.into());
        }
        Cursor::look(&mut tx, chain, through).await?;
        let [from, below] = [cursor.looked, through].map(|number| number.saturating_sub(FINAL_BLOCKS_KEPT));
        cursors::prune(&mut tx, chain, from, below).await?;
        Ok(tx.commit().await?)
    }
}
