//! Connects blocks: fetched ahead in parallel, linked by parent, matched with the watch list, recorded in one
//! transaction for each read.
//!
//! The parent links show what a source left out or tore apart; the cursor then stays where the links hold.
//! Some blocks are read by their logs only, or reported by one endpoint where two must agree. Such a block is read
//! again in full before it is recorded if it may concern a watched address: candidates are never credited. While no
//! second endpoint answers, one endpoint's report makes a deposit PENDING, and never CONFIRMED.

use std::collections::BTreeSet;

use futures_util::{StreamExt, stream};
use landfall_chain::{
    AssetTransfer, Block, BlockRef, BlockSource, Endpoints, Header, Lane, Network, Proof, Read, SourceError,
    SourceErrorKind, Tip,
};

use crate::store::cursors::{self, Cursor};
use crate::store::{Db, StoreError};
use crate::time::Timestamp;
use crate::watcher::books::leg::{WatchedLeg, prove_signer};
use crate::watcher::books::movements::{self, Whose};
use crate::watcher::books::replace_record::{is_weaker, take_out};
use crate::watcher::books::senders::{self, Senders};
use crate::watcher::books::watch_list::WatchList;
use crate::watcher::follow::native_setting::require_setting;
use crate::watcher::read::{FINAL_BLOCKS_KEPT, READ_BLOCKS_MAX, READS_AHEAD_MAX, TICK_BLOCKS_MAX, linked, ranges};
use crate::watcher::settle::reported_blocks::ReportedBlocks;
use crate::watcher::{TickError, Ticked, Watcher};

/// How far back each transaction looks for blocks to forget: more than it ever adds.
const PRUNE_WINDOW: u64 = 4_096;

impl<S: BlockSource> Watcher<S> {
    /// Connects what comes after `at`, as far as the source has it and a tick goes. If the first block does not stand
    /// on `at`, that is a reorg, which the caller undoes.
    pub(in crate::watcher) async fn connect(
        &mut self,
        mut at: BlockRef,
        tip: &Tip,
        now: Timestamp,
        ticked: &mut Ticked,
    ) -> Result<Connected, TickError> {
        let Watcher {
            source, endpoints, db, network, watch_list, payers, reported, read_width, settings, absent, ..
        } = self;
        let mut books = Books { source, endpoints, db, network, watch_list, payers, reported };
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
            match books.record(&at, &mut blocks, tip.finalized, now, ticked).await {
                Ok(last) => at = last,
                Err(error) => {
                    // What stands on it is read again with it: read less at once until it can be recorded.
                    *read_width = (*read_width / 2).max(1);
                    unread = Some(put_off(error)?);
                    break;
                }
            }
            if blocks.len() < shown {
                break;
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

/// Where blocks are recorded, and what they are matched with.
struct Books<'w, S> {
    source: &'w S,
    endpoints: &'w Endpoints,
    db: &'w Db,
    network: &'w Network,
    watch_list: &'w WatchList,
    payers: &'w mut Senders,
    reported: &'w mut ReportedBlocks,
}

impl<S: BlockSource> Books<'_, S> {
    /// Records blocks that stand on `at`, what they credit, and the cursor, in one transaction; returns the last of
    /// them. Afterwards `blocks` holds only those that were recorded.
    async fn record(
        &mut self,
        at: &BlockRef,
        blocks: &mut Vec<Block>,
        finalized: Option<BlockRef>,
        now: Timestamp,
        ticked: &mut Ticked,
    ) -> Result<BlockRef, TickError> {
        // Every turn but the last is repeated because addresses were added meanwhile.
        let mut alone = BTreeSet::new();
        loop {
            let seq = self.watch_list.seq();
            self.read_hits(blocks, &mut alone).await?;
            if blocks.is_empty() {
                return Ok(*at);
            }
            self.name_payers(blocks, now).await?;
            if let Some(last) = self.try_record(at, (seq, &alone), blocks, finalized, now, ticked).await? {
                return Ok(last);
            }
        }
    }

    /// `None` if an address that was added after `seq` requires more reading: a block in full (unless it is in
    /// `alone`), or who paid it.
    async fn try_record(
        &mut self,
        at: &BlockRef,
        (seq, alone): (u64, &BTreeSet<u64>),
        blocks: &[Block],
        finalized: Option<BlockRef>,
        now: Timestamp,
        ticked: &mut Ticked,
    ) -> Result<Option<BlockRef>, TickError> {
        let Books { endpoints, db, network, watch_list, reported, .. } = self;
        let chain = network.chain;
        let mut tx = db.begin().await?;
        let cursor = Cursor::lock(&mut tx, chain).await?;
        if cursor.at != Some(*at) {
            return Err(StoreError::Moved { chain }.into());
        }
        require_setting(&mut tx, network).await?;
        // The lane of the traces follows the same list: what is in it now may not have been there when the blocks were
        // read.
        if cursor.watch_seq > seq {
            watch_list.follow(&mut tx).await?;
            let is_unnamed =
                |block: &Block| senders::unnamed(block, |leg| senders::is_recorded(leg, network, watch_list)) > 0;
            let is_wanted = |block: &Block| {
                let is_alone = alone.contains(&block.header.block.number);
                !is_alone && must_be_read_in_full(block, watch_list, endpoints) || is_unnamed(block)
            };
            if blocks.iter().any(is_wanted) {
                return Ok(None);
            }
        }
        let (mut last, mut pending) = (*at, 0);
        for block in blocks {
            if is_weaker(&mut tx, chain, block).await? {
                take_out(&mut tx, network, block).await?;
            }
            cursors::connect(&mut tx, chain, block, !network.native.is_traced(block.header.block.number)).await?;
            for leg in WatchedLeg::among(&block.transfers, network, watch_list) {
                prove_signer(&block.signers, &leg.transfer.tx)?;
                pending += u64::from(leg.record(&mut tx, block, Lane::Block, now).await?);
            }
            movements::record(&mut tx, network, watch_list, block, Lane::Block, Whose::WatchedNow).await?;
            last = block.header.block;
        }
        Cursor::shift(&mut tx, chain, at, &last).await?;
        // On chains without roots, blocks stay on record until they were cross-checked.
        if let Some(finalized) = finalized.filter(|_| chain.family().has_roots()) {
            let below = last.number.min(finalized.number).saturating_sub(FINAL_BLOCKS_KEPT);
            cursors::prune(&mut tx, chain, below.saturating_sub(PRUNE_WINDOW), below).await?;
        }
        tx.commit().await?;
        for block in blocks {
            reported.keep(block, |leg| senders::is_recorded(leg, network, watch_list));
        }
        ticked.connected += u64::try_from(blocks.len()).unwrap_or(u64::MAX);
        ticked.pending += pending;
        Ok(Some(last))
    }

    /// Names who paid what is about to be recorded. If no endpoint can be asked, that block and those above it are left
    /// for later: the blocks below do not wait.
    async fn name_payers(&mut self, blocks: &mut Vec<Block>, now: Timestamp) -> Result<(), TickError> {
        let Books { source, network, watch_list, payers, .. } = self;
        for index in 0..blocks.len() {
            let wanted = |leg: &AssetTransfer| senders::is_recorded(leg, network, watch_list);
            match payers.name(*source, &mut blocks[index], wanted, now).await {
                Ok(()) => {}
                Err(error) if index == 0 => return Err(error.into()),
                Err(_) => {
                    blocks.truncate(index);
                    break;
                }
            }
        }
        Ok(())
    }

    /// Replaces blocks that may concern a watched address by full ones. If the source now shows another block, or none
    /// that is proved, that block and those above it are left for later. Blocks that one endpoint alone reports are
    /// added to `alone`, and not asked for again.
    ///
    /// # Errors
    /// Why not even the first of them can be read in full, or any permanent error.
    async fn read_hits(&self, blocks: &mut Vec<Block>, alone: &mut BTreeSet<u64>) -> Result<(), TickError> {
        let is_hit = |block: &Block| {
            let is_alone = alone.contains(&block.header.block.number);
            !is_alone && must_be_read_in_full(block, self.watch_list, self.endpoints)
        };
        let hits = blocks.iter().enumerate().filter(|(_, block)| is_hit(block));
        let hits: Vec<(usize, u64)> = hits.map(|(index, block)| (index, block.header.block.number)).collect();
        let source = self.source;
        let mut reads = stream::iter(hits)
            .map(async |(index, number)| (index, number, source.blocks(number..=number, Read::FULL).await))
            .buffered(READS_AHEAD_MAX);
        while let Some((index, number, full)) = reads.next().await {
            let full = match full {
                Ok(full) => full.into_iter().next(),
                // One endpoint's report makes it PENDING, and the block says so; CONFIRMED waits for a second one.
                Err(error) if error.is_unwitnessed => {
                    alone.insert(number);
                    continue;
                }
                Err(error) if index == 0 || error.kind == SourceErrorKind::Permanent => return Err(error.into()),
                // The blocks before it must not wait; the next tick begins with it.
                Err(_) => None,
            };
            // Honest endpoints may report different times of one block: a time is not part of its identity.
            let place = |block: &Block| (block.header.block, block.header.parent);
            let Some(full) = full.filter(|full| place(full) == place(&blocks[index])) else {
                blocks.truncate(index);
                break;
            };
            blocks[index] = full;
        }
        Ok(())
    }
}

/// Whether a block whose proof is too weak to credit anything may hold something that we would record.
fn must_be_read_in_full(block: &Block, watch_list: &WatchList, endpoints: &Endpoints) -> bool {
    let is_candidate = match block.proof {
        Proof::Roots | Proof::TwoEndpoints => false,
        Proof::Bloom => true,
        // Where one endpoint suffices, a full read proves no more.
        Proof::OneEndpoint => endpoints.agree() > 1,
    };
    let paid = block.transfers.iter().flat_map(|transfer| [&transfer.recipient, &transfer.sender]);
    is_candidate && watch_list.has_any(paid.chain(movements::concerned(block)))
}
