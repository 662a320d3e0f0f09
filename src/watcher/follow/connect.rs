//! Connects blocks: fetched ahead in parallel, linked by parent, matched with the watch list, recorded in one
//! transaction for each read.
//!
//! The parent links show what a source left out or tore apart; the cursor then stays where the links hold.
//! Some blocks are read by their logs only, or reported by one endpoint where two must agree. Such a block is read
//! again in full before it is recorded if it may concern a watched address: candidates are never credited. While no
//! second endpoint answers, one endpoint's report makes a deposit PENDING, and never CONFIRMED.

use futures_util::{StreamExt, stream};
use landfall_chain::{Block, BlockRef, BlockSource, Endpoints, Header, Lane, Read, SourceError, SourceErrorKind, Tip};

use crate::store::StoreError;
use crate::store::cursors::{self, Cursor};
use crate::time::Timestamp;
use crate::watcher::books::Books;
use crate::watcher::books::matched::Matched;
use crate::watcher::books::record::Whose;
use crate::watcher::books::replace_record::{is_weaker, take_out};
use crate::watcher::books::senders::{self, Senders};
use crate::watcher::follow::native_setting::require_setting;
use crate::watcher::read::{FINAL_BLOCKS_KEPT, READ_BLOCKS_MAX, READS_AHEAD_MAX, TICK_BLOCKS_MAX, linked, ranges};
use crate::watcher::settle::reported_blocks::ReportedBlocks;
use crate::watcher::{Follower, TickError, Ticked};

/// How far back each transaction looks for blocks to forget: more than it ever adds.
const PRUNE_WINDOW: u64 = 4_096;

impl<S: BlockSource> Follower<S> {
    /// Connects what comes after `at`, as far as the source has it and a tick goes. If the first block does not stand
    /// on `at`, that is a reorg, which the caller undoes.
    pub(in crate::watcher) async fn connect(
        &mut self,
        mut at: BlockRef,
        tip: &Tip,
        now: Timestamp,
        ticked: &mut Ticked,
    ) -> Result<Connected, TickError> {
        let Follower { books, endpoints, payers, reported, read_width, settings, absent, .. } = self;
        let source = &books.source;
        let mut writer = Writer { books, endpoints, payers, reported };
        let read = Read { proof: settings.proof, ..Read::FULL };
        // If nothing was shown right above `at`, the parent of the next block shows whether all between was skipped.
        // The numbers right above are read all the same: an endpoint that reports a block far above must not hide what
        // is there.
        let looked = absent.take().filter(|absent| absent.above == at).map(|absent| absent.through);
        let (latest, width) = (tip.latest.number, *read_width);
        let further = looked.into_iter().flat_map(|looked| ranges(looked, latest, width));
        let mut reads = stream::iter(ranges(at.number, latest, width).chain(further))
            .map(|range| source.blocks(range, read))
            .buffered(READS_AHEAD_MAX);
        let (above, mut stray, mut unread, mut is_empty) = (at, None, None, true);
        let is_near = |next: &Header| next.block.number <= above.number.saturating_add(TICK_BLOCKS_MAX);
        while let Some(read) = reads.next().await {
            *read_width = if read.is_ok() { (*read_width + 1).min(READ_BLOCKS_MAX) } else { (*read_width / 2).max(1) };
            let mut blocks = match read {
                Ok(blocks) => blocks,
                // What was recorded stays; the next tick begins with this read and reports its error.
                Err(_) if at != above => break,
                Err(error) => {
                    unread = Some(put_off(error.into())?);
                    break;
                }
            };
            let shown = blocks.len();
            is_empty &= shown == 0;
            let first = blocks.first().map(|block| block.header);
            // A block far above is read again from where our chain ends now.
            if at != above && !first.as_ref().is_none_or(is_near) {
                break;
            }
            blocks.truncate(linked(&at, &blocks).len());
            stray = first.filter(|_| blocks.is_empty());
            match writer.record(&at, blocks, tip.finalized, now, ticked).await {
                Ok((last, recorded)) => {
                    at = last;
                    if recorded < shown {
                        break;
                    }
                }
                Err(error) => {
                    // What stands on it is read again with it: read less at once until it can be recorded.
                    *read_width = (*read_width / 2).max(1);
                    unread = Some(put_off(error)?);
                    break;
                }
            }
        }
        drop(reads);
        // A block far above whose parent we were not shown is no fork: the numbers between are asked for again. It is a
        // fork, at any distance, if its parent is at or below our number and is not our block.
        let is_fork = |next: &Header| at != above || is_near(next) || next.parent.number <= above.number;
        let stray = stray.filter(is_fork);
        let through = latest.min(looked.unwrap_or(above.number).saturating_add(TICK_BLOCKS_MAX));
        if is_empty && unread.is_none() && through < latest {
            *absent = Some(Absent { above, through });
        }
        Ok(Connected { at, stray, unread })
    }
}

/// Numbers that the source showed no block for. On a chain that skips numbers that may be true, but an empty response
/// is no proof.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::watcher) struct Absent {
    above: BlockRef,
    /// Inclusive: above block 5 and through 105, 6 to 105 were asked for.
    through: u64,
}

pub(in crate::watcher) struct Connected {
    pub(in crate::watcher) at: BlockRef,
    /// The next block of the source, if it does not stand on `at`.
    pub(in crate::watcher) stray: Option<Header>,
    /// Why the block above cannot be read now; the blocks below it do not wait.
    pub(in crate::watcher) unread: Option<SourceError>,
}

/// An error that may pass is returned when all else of the tick is done.
fn put_off(error: TickError) -> Result<SourceError, TickError> {
    match error {
        TickError::Source(error) if error.kind == SourceErrorKind::Transient => Ok(error),
        error => Err(error),
    }
}

/// A block that stands on the one before it, and is to be recorded.
struct Next {
    block: Block,
    matched: Matched,
    /// One endpoint alone reports it: it is not asked for again.
    is_alone: bool,
}

impl Next {
    fn of<S>(books: &Books<S>, block: Block) -> Self {
        Next { matched: books.select(&block), block, is_alone: false }
    }

    fn needs_full_read(&self, agree: usize) -> bool {
        !self.is_alone && self.matched.needs_full_read(agree)
    }

    fn number(&self) -> u64 {
        self.block.header.block.number
    }
}

/// Records what is connected.
struct Writer<'w, S> {
    books: &'w Books<S>,
    endpoints: &'w Endpoints,
    payers: &'w mut Senders,
    reported: &'w mut ReportedBlocks,
}

impl<S: BlockSource> Writer<'_, S> {
    /// Records blocks that stand on `at`, what they credit, and the cursor, in one transaction; returns the last that
    /// was recorded and how many were.
    async fn record(
        &mut self,
        at: &BlockRef,
        blocks: Vec<Block>,
        finalized: Option<BlockRef>,
        now: Timestamp,
        ticked: &mut Ticked,
    ) -> Result<(BlockRef, usize), TickError> {
        let mut next: Vec<Next> = blocks.into_iter().map(|block| Next::of(self.books, block)).collect();
        // Every turn but the last is repeated because addresses were added meanwhile.
        loop {
            self.read_in_full(&mut next).await?;
            if next.is_empty() {
                return Ok((*at, 0));
            }
            self.name_senders(&mut next, now).await?;
            if let Some(last) = self.try_record(at, &mut next, finalized, now, ticked).await? {
                return Ok((last, next.len()));
            }
        }
    }

    /// `None` if an address that was added meanwhile requires more reading: a block in full, or who paid it.
    async fn try_record(
        &mut self,
        at: &BlockRef,
        next: &mut [Next],
        finalized: Option<BlockRef>,
        now: Timestamp,
        ticked: &mut Ticked,
    ) -> Result<Option<BlockRef>, TickError> {
        let (books, chain) = (self.books, self.books.chain());
        let mut tx = books.db.begin().await?;
        let cursor = Cursor::lock(&mut tx, chain).await?;
        if cursor.at != Some(*at) {
            return Err(StoreError::Moved { chain }.into());
        }
        require_setting(&mut tx, &books.network).await?;
        let mut is_more = false;
        for Next { block, matched, .. } in next.iter_mut() {
            is_more |= books.select_again(&mut tx, &cursor, block, matched).await?;
        }
        let agree = self.endpoints.agree();
        let is_wanting = |next: &Next| next.needs_full_read(agree) || next.matched.legs.iter().any(senders::is_unnamed);
        if is_more && next.iter().any(is_wanting) {
            return Ok(None);
        }
        let (mut last, mut pending) = (*at, 0);
        for Next { block, matched, .. } in next.iter() {
            if is_weaker(&mut tx, chain, block).await? {
                take_out(&mut tx, &books.network, block).await?;
            }
            let is_traced = books.network.native.is_traced(block.header.block.number);
            cursors::connect(&mut tx, chain, block, !is_traced).await?;
            let door = (Lane::Block, Whose::WatchedNow);
            pending += books.record_block(&mut tx, &cursor, matched, door, now).await?.pending;
            last = block.header.block;
        }
        Cursor::shift(&mut tx, chain, at, &last).await?;
        // On chains without roots, blocks stay on record until they were cross-checked.
        if let Some(finalized) = finalized.filter(|_| chain.family().has_roots()) {
            let below = last.number.min(finalized.number).saturating_sub(FINAL_BLOCKS_KEPT);
            cursors::prune(&mut tx, chain, below.saturating_sub(PRUNE_WINDOW), below).await?;
        }
        tx.commit().await?;
        for Next { block, matched, .. } in next.iter() {
            self.reported.keep(block, &matched.legs);
        }
        ticked.connected += u64::try_from(next.len()).unwrap_or(u64::MAX);
        ticked.pending += pending;
        Ok(Some(last))
    }

    /// Names who paid what is about to be recorded. If no endpoint can be asked, that block and those above it are left
    /// for later: the blocks below do not wait.
    async fn name_senders(&mut self, next: &mut Vec<Next>, now: Timestamp) -> Result<(), TickError> {
        for index in 0..next.len() {
            match self.payers.name(&self.books.source, &mut next[index].matched, now).await {
                Ok(()) => {}
                Err(error) if index == 0 => return Err(error.into()),
                Err(_) => {
                    next.truncate(index);
                    break;
                }
            }
        }
        Ok(())
    }

    /// Replaces blocks that may concern a watched address by full ones. If the source now shows another block, or none
    /// that is proved, that block and those above it are left for later. Blocks that one endpoint alone reports are
    /// marked so.
    ///
    /// # Errors
    /// Why not even the first of them can be read in full, or any permanent error.
    async fn read_in_full(&self, next: &mut Vec<Next>) -> Result<(), TickError> {
        let (source, agree) = (&self.books.source, self.endpoints.agree());
        let hits = next.iter().enumerate().filter(|(_, next)| next.needs_full_read(agree));
        let hits: Vec<(usize, u64)> = hits.map(|(index, next)| (index, next.number())).collect();
        let mut reads = stream::iter(hits)
            .map(async |(index, number)| (index, source.blocks(number..=number, Read::FULL).await))
            .buffered(READS_AHEAD_MAX);
        while let Some((index, full)) = reads.next().await {
            let full = match full {
                Ok(full) => full.into_iter().next(),
                // One endpoint's report makes it PENDING, and the block says so; CONFIRMED waits for a second one.
                Err(error) if error.is_unwitnessed => {
                    next[index].is_alone = true;
                    continue;
                }
                Err(error) if index == 0 || error.kind == SourceErrorKind::Permanent => return Err(error.into()),
                // The blocks before it must not wait; the next tick begins with it.
                Err(_) => None,
            };
            // Honest endpoints may report different times of one block: a time is not part of its identity.
            let place = |block: &Block| (block.header.block, block.header.parent);
            let Some(block) = full.filter(|full| place(full) == place(&next[index].block)) else {
                next.truncate(index);
                break;
            };
            next[index] = Next::of(self.books, block);
        }
        Ok(())
    }
}
