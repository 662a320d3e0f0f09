//! Traces again what one endpoint told alone, when two can tell it: a leg that it left out, no deposit and no witness asks for.
//!
//! Promises: what was told while no second endpoint could be asked, or while it lagged behind, is asked of two later on, as long
//! as the block is on record for finality's sake; where they differ then, what each of them tells is recorded. Where no block
//! was ever told by two, nothing is asked twice. New blocks come first: old ones are few in each tick, wait for no slow answer,
//! and are rarely tried while it is in vain.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use landfall_chain::{AddressSource, Block, BlockHash, BlockRef, BlockSource, Proof, Read, ReadProof};

use crate::store::cursors::Cursor;
use crate::store::traces;
use crate::time::Timestamp;
use crate::watcher::TickError;
use crate::watcher::connect::FINAL_BLOCKS_KEPT;
use crate::watcher::report::told;
use crate::watcher::trace_lane::{LISTED, READS_AHEAD_MAX, Reading, TraceLane, Traced, is_disputed};
use crate::watcher::witness::pause_after;

/// How many blocks on one endpoint's word are looked at, of the newest.
const BLOCKS_MAX: u32 = 4_096;
/// How long a block waits before it is traced again, for a second endpoint may only be late; and how long nothing is tried when
/// nothing was had, or nothing is due.
const PAUSE: Duration = Duration::from_secs(30);
/// A trace that takes longer is had in vain: new blocks wait for it.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// What is known of tracing again.
#[derive(Debug, Default)]
pub(super) struct Again {
    /// When it is tried next.
    next: Timestamp,
    /// Whether two told what was tried last: then several are, in each tick.
    two_tell: bool,
    tried: HashMap<BlockHash, Tried>,
}

/// What became of a block so far.
#[derive(Clone, Copy, Debug)]
struct Tried {
    /// How often in vain.
    times: u32,
    next: Timestamp,
}

/// What two tell of a block.
enum Told {
    Alike(Box<Block>),
    Differently,
}

impl Again {
    /// Of `alone`, blocks on one endpoint's word, the newest first, those to be tried now: before others whoever was tried less.
    fn wanted(&mut self, alone: &[BlockRef], now: Timestamp) -> Vec<BlockRef> {
        let hashes: HashSet<BlockHash> = alone.iter().map(|block| block.hash).collect();
        self.tried.retain(|hash, _| hashes.contains(hash));
        let first = Tried { times: 0, next: now.plus(PAUSE) };
        let tried = alone.iter().map(|block| (*self.tried.entry(block.hash).or_insert(first), block));
        let mut due: Vec<(u32, BlockRef)> =
            tried.filter(|(tried, _)| tried.next <= now).map(|(tried, block)| (tried.times, *block)).collect();
        due.sort_by_key(|(times, _)| *times);
        let at_once = if self.two_tell { READS_AHEAD_MAX } else { 1 };
        due.into_iter().take(at_once).map(|(_, block)| block).collect()
    }

    /// It stays one endpoint's word.
    fn put_off(&mut self, block: &BlockRef, now: Timestamp) {
        let tried = self.tried.entry(block.hash).or_insert(Tried { times: 0, next: now });
        *tried = Tried { times: tried.times + 1, next: now.plus(pause_after(tried.times)) };
    }
}

impl<S: BlockSource + AddressSource> TraceLane<S> {
    /// Traces the newest blocks that are one endpoint's word once more, where two tell blocks.
    pub(super) async fn trace_again(&self, now: Timestamp, traced: &mut Traced) -> Result<(), TickError> {
        if self.again().next > now {
            return Ok(());
        }
        let wanted = self.told_alone(now).await?;
        let mut reads =
            stream::iter(wanted).map(async |wanted| (wanted, self.ask_two(&wanted).await)).buffered(READS_AHEAD_MAX);
        let mut two_tell = false;
        while let Some((wanted, read)) = reads.next().await {
            let told = told(read)?.ok().flatten();
            two_tell |= told.is_some();
            if !self.is_borne_out(&wanted, told, now, traced).await? {
                self.again().put_off(&wanted, now);
            }
        }
        let mut again = self.again();
        again.two_tell = two_tell;
        if !two_tell {
            again.next = now.plus(PAUSE);
        }
        Ok(())
    }

    /// The blocks to be tried now; none where two have told none.
    async fn told_alone(&self, now: Timestamp) -> Result<Vec<BlockRef>, TickError> {
        let (chain, mut reader) = (self.chain(), self.db.read().await?);
        if traces::told_by(&mut reader, chain, Proof::TwoEndpoints).await?.is_none() {
            return Ok(Vec::new());
        }
        let finalized = Cursor::load(&mut reader, chain).await?.finalized;
        let from = finalized.map_or(0, |finalized| finalized.number.saturating_sub(FINAL_BLOCKS_KEPT));
        let mut alone = traces::told_alone(&mut reader, chain, from, BLOCKS_MAX).await?;
        alone.retain(|block| self.network.native.is_traced(block.number));
        Ok(self.again().wanted(&alone, now))
    }

    /// What two tell of `wanted`; `None` when one does, or takes too long.
    async fn ask_two(&self, wanted: &BlockRef) -> Result<Option<Told>, TickError> {
        let read = self.read_again(wanted, Read { proof: ReadProof::Full, ..LISTED });
        match tokio::time::timeout(WAIT_MAX, read).await {
            Ok(Ok(block)) => Ok((block.proof == Proof::TwoEndpoints).then(|| Told::Alike(Box::new(block)))),
            Ok(Err(error)) if is_disputed(&error) => Ok(Some(Told::Differently)),
            Ok(Err(error)) => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// Records what two tell; whether the block is more than one endpoint's word now. Where they differ it stays complete, for
    /// nobody may know better any more: each one's legs are recorded, and wait for a witness.
    async fn is_borne_out(
        &self,
        wanted: &BlockRef,
        told_by_two: Option<Told>,
        now: Timestamp,
        traced: &mut Traced,
    ) -> Result<bool, TickError> {
        let mut recorded = Traced::default();
        let is_borne_out = match told_by_two {
            Some(Told::Alike(block)) => told(self.record(&block, Reading::Whole, now, &mut recorded).await)?.is_ok(),
            Some(Told::Differently) => {
                tracing::warn!(chain = %self.chain(), block = wanted.number, "two endpoints tell different traces of a block that one told alone");
                self.hear_each(wanted, now, &mut Vec::new(), &mut recorded).await?;
                false
            }
            None => false,
        };
        traced.pending += recorded.pending;
        traced.witnessed += recorded.witnessed;
        Ok(is_borne_out)
    }
}
