//! Reorgs: is our newest block still canonical, where is the fork point, take back what is above it.
//!
//! Nothing is deleted: a disconnected block and what was seen in it stay on record, and may be connected again.

use landfall_chain::{BlockRef, BlockSource, Header, Tip};
use tracing::warn;

use crate::store::cursors::{self, Cursor};
use crate::store::deposits;
use crate::watcher::connect::FINAL_BLOCKS_KEPT;
use crate::watcher::{TickError, Ticked, Watcher};

/// How many headers the first look back reads; each further one reads four times as many, up to the maximum.
const LOOK_BACK: u64 = 16;
const LOOK_BACK_MAX: u64 = 256;

impl<S: BlockSource> Watcher<S> {
    /// Whether what the source told of its tip contradicts our chain. A tip below our cursor with a hash that is
    /// ours is an endpoint that lags, no reorg. A fork that shows only at the next block's parent is `connect`'s to see.
    pub(super) async fn is_off_chain(&self, at: &BlockRef, tip: &Tip) -> Result<bool, TickError> {
        let told = [Some(tip.latest), tip.finalized].into_iter().flatten();
        let mut reader = self.db.read().await?;
        for block in told.filter(|block| block.number <= at.number) {
            let ours = cursors::canonical_at(&mut reader, self.chain(), block.number).await?;
            if ours.is_some_and(|ours| ours != block.hash) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Takes back every block above the fork point, in one transaction with the cursor; the fork point.
    pub(super) async fn disconnect(
        &self,
        at: &BlockRef,
        tip: &Tip,
        ticked: &mut Ticked,
    ) -> Result<BlockRef, TickError> {
        let fork_point = self.fork_point(at, tip).await?;
        if fork_point == *at {
            return Ok(fork_point);
        }
        let mut tx = self.db.begin().await?;
        let cursor = Cursor::lock(&mut tx, self.chain()).await?;
        if let Some(finalized) = cursor.finalized.filter(|finalized| fork_point.number < finalized.number) {
            let confirmed = deposits::confirmed_above(&mut tx, self.chain(), fork_point.number).await?;
            return Err(TickError::PostFinalityReorg { chain: self.chain(), finalized, fork_point, confirmed });
        }
        Cursor::shift(&mut tx, self.chain(), at, &fork_point).await?;
        let depth = cursors::disconnect(&mut tx, self.chain(), &fork_point).await?;
        tx.commit().await?;
        warn!(chain = %self.chain(), depth, "reorg of depth {depth} on {}: disconnected above {fork_point}", self.chain());
        ticked.disconnected += depth;
        Ok(fork_point)
    }

    /// The newest block that is both on our chain and on the source's.
    async fn fork_point(&self, at: &BlockRef, tip: &Tip) -> Result<BlockRef, TickError> {
        let chain = self.chain();
        let mut reader = self.db.read().await?;
        let finalized = Cursor::load(&mut reader, chain).await?.finalized.map_or(0, |finalized| finalized.number);
        // Evidence of long ago stays on record too; a fork as deep is beyond help whatever its depth.
        let oldest = cursors::oldest_from(&mut reader, chain, finalized.saturating_sub(FINAL_BLOCKS_KEPT)).await?;
        let oldest = oldest.unwrap_or(at.number);
        drop(reader);
        let mut highest = at.number.min(tip.latest.number);
        let mut width = LOOK_BACK;
        while highest >= oldest {
            let lowest = highest.saturating_sub(width - 1).max(oldest);
            let theirs = self.complete_headers(lowest, highest, tip).await?;
            let ours = cursors::canonical_in(&mut self.db.read().await?, chain, lowest, highest).await?;
            let common = |block: &&BlockRef| theirs.iter().any(|header| header.block == **block);
            if let Some(fork_point) = ours.iter().find(common) {
                return Ok(*fork_point);
            }
            let Some(below) = lowest.checked_sub(1) else { break };
            highest = below;
            width = (width * 4).min(LOOK_BACK_MAX);
        }
        Err(TickError::DeepReorg { chain, oldest })
    }

    /// The source's headers `lowest..=highest`, none missing: an answer that ends early would make blocks look forked
    /// that the source merely does not have yet.
    async fn complete_headers(&self, lowest: u64, highest: u64, tip: &Tip) -> Result<Vec<Header>, TickError> {
        let headers = self.source.headers(lowest..=highest).await?;
        let linked = headers.windows(2).all(|pair| pair[1].parent == pair[0].block);
        let complete = match headers.last() {
            Some(last) if linked && last.block.number == highest => true,
            // On chains that skip numbers, the next block tells by its parent that there is nothing between.
            Some(last) if linked => {
                let above = highest + 1..=tip.latest.number.min(highest + LOOK_BACK_MAX);
                !above.is_empty()
                    && self.source.headers(above).await?.first().is_some_and(|next| next.parent == last.block)
            }
            Some(_) | None => false,
        };
        if complete {
            return Ok(headers);
        }
        let what = format!("the newest block is {}, but headers {lowest} to {highest} are not all shown", tip.latest);
        Err(TickError::Contradiction { chain: self.chain(), what })
    }
}
