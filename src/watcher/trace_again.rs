//! Traces again what one endpoint told alone, once two tell blocks: a leg that it left out, no deposit and no witness asks for.
//!
//! Promises: what was told while no second endpoint could be asked is asked of two when they can be, as long as the block is on
//! record for finality's sake, and a few times at most; a block on which they differ then is not complete any more. Where
//! nobody tells a block but one endpoint, nothing is asked twice. New blocks come first: while old ones are in vain, they are
//! rarely tried.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use landfall_chain::{AddressSource, Block, BlockHash, BlockRef, BlockSource, Proof, Read, ReadProof};

use crate::store::cursors::Cursor;
use crate::store::traces;
use crate::time::Timestamp;
use crate::watcher::TickError;
use crate::watcher::connect::FINAL_BLOCKS_KEPT;
use crate::watcher::trace_lane::{LISTED, READS_AHEAD_MAX, Reading, TraceLane, Traced, is_disputed};

/// How many blocks on one endpoint's word are looked at, of the newest.
const BLOCKS_MAX: u32 = 4_096;
/// How often a block is traced again in vain: a node that has forgotten it will not remember.
const TRIES_MAX: u32 = 5;
/// How long nothing is tried when nothing was had, or nothing is left.
const PAUSE: Duration = Duration::from_secs(60);

/// What is known of tracing again.
#[derive(Debug, Default)]
pub(super) struct Again {
    /// Whether two told what was traced last.
    pub(super) two_tell: bool,
    /// When it is tried next.
    next: Timestamp,
    /// How often a block was tried in vain.
    tries: HashMap<BlockHash, u32>,
}

impl Again {
    /// Of `alone`, blocks on one endpoint's word, those to be tried now, and whether there are more.
    fn wanted(&mut self, alone: Vec<BlockRef>, now: Timestamp) -> (Vec<BlockRef>, bool) {
        self.tries.retain(|hash, _| alone.iter().any(|block| block.hash == *hash));
        let is_left = |block: &BlockRef| self.tries.get(&block.hash).is_none_or(|tries| *tries < TRIES_MAX);
        let mut wanted: Vec<BlockRef> = alone.into_iter().filter(is_left).take(READS_AHEAD_MAX + 1).collect();
        let more = wanted.len() > READS_AHEAD_MAX;
        wanted.truncate(READS_AHEAD_MAX);
        if wanted.is_empty() {
            self.next = now.plus(PAUSE);
        }
        (wanted, more)
    }

    /// The block was tried in vain.
    fn in_vain(&mut self, block: &BlockRef) {
        *self.tries.entry(block.hash).or_default() += 1;
    }
}

impl<S: BlockSource + AddressSource> TraceLane<S> {
    /// Traces the newest blocks that are one endpoint's word once more, while two tell what is traced.
    pub(super) async fn trace_again(&self, now: Timestamp, traced: &mut Traced) -> Result<(), TickError> {
        let is_due = {
            let again = self.again();
            again.two_tell && again.next <= now
        };
        if !is_due {
            return Ok(());
        }
        let mut reader = self.db.read().await?;
        let finalized = Cursor::load(&mut reader, self.chain()).await?.finalized;
        let from = finalized.map_or(0, |finalized| finalized.number.saturating_sub(FINAL_BLOCKS_KEPT));
        let mut alone = traces::told_alone(&mut reader, self.chain(), from, BLOCKS_MAX).await?;
        drop(reader);
        alone.retain(|block| self.network.native.is_traced(block.number));
        let (wanted, more) = self.again().wanted(alone, now);
        let mut reads = stream::iter(wanted)
            .map(async |wanted| (wanted, self.read_again(&wanted, Read { proof: ReadProof::Full, ..LISTED }).await))
            .buffered(READS_AHEAD_MAX);
        let (mut tried, mut by_two) = (false, false);
        while let Some((wanted, read)) = reads.next().await {
            tried = true;
            by_two |= self.hear_again(&wanted, read, now, traced).await?;
        }
        drop(reads);
        if tried && !by_two {
            let mut again = self.again();
            (again.two_tell, again.next) = (false, now.plus(PAUSE));
        }
        traced.more |= by_two && more;
        Ok(())
    }

    /// Records what was told of a block that is on record on one endpoint's word; whether two have told it now, alike or not.
    async fn hear_again(
        &self,
        wanted: &BlockRef,
        read: Result<Block, TickError>,
        now: Timestamp,
        traced: &mut Traced,
    ) -> Result<bool, TickError> {
        let mut recorded = Traced::default();
        let heard = match read {
            Ok(block) => {
                let by_two = block.proof == Proof::TwoEndpoints;
                self.record(&block, Reading::Whole, now, &mut recorded).await.map(|_| by_two)
            }
            Err(error) if is_disputed(&error) => {
                self.dispute(wanted).await?;
                self.hear_each(wanted, now, &mut Vec::new(), &mut recorded).await?;
                self.put_off(vec![(*wanted, error)], true, now, &mut recorded).await?;
                Ok(true)
            }
            Err(error) => Err(error),
        };
        traced.pending += recorded.pending;
        traced.witnessed += recorded.witnessed;
        traced.put_off += recorded.put_off;
        match heard {
            Ok(true) => return Ok(true),
            Ok(false) | Err(TickError::Source(_) | TickError::Contradiction { .. }) => self.again().in_vain(wanted),
            Err(error) => return Err(error),
        }
        Ok(false)
    }

    /// The block is not complete: what it was complete by is contradicted.
    async fn dispute(&self, block: &BlockRef) -> Result<(), TickError> {
        let mut tx = self.db.begin().await?;
        Cursor::lock(&mut tx, self.chain()).await?;
        traces::unmark(&mut tx, self.chain(), block).await?;
        Ok(tx.commit().await?)
    }
}
