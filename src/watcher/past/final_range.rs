//! Final blocks, above or below the cursor: read in one lane, linked, tied at their end to what the source calls final,
//! and credited. Backfill and rescan share this.
//!
//! Promises: a block is used only if parent links put it below a final one, or if enough endpoints call it final.
//! Nothing is recorded of a block that contradicts our record. CONFIRMED is decided by `settle`'s own judge, in a
//! transaction of its own. The cursor never moves.

use std::ops::RangeInclusive;

use futures_util::{StreamExt, stream};
use landfall_chain::{
    Address, AddressSource, Block, BlockRef, BlockSource, Found, Header, Lane, Named, Proof, Read, Search, Watched,
};

use crate::deposit::Deposit;
use crate::store::Tx;
use crate::store::cursors::{self, Cursor};
use crate::store::{traces, witnesses};
use crate::time::Timestamp;
use crate::watcher::books::Books;
use crate::watcher::books::matched::Matched;
use crate::watcher::books::record::Whose;
use crate::watcher::books::replace_record::is_weaker;
use crate::watcher::books::senders;
use crate::watcher::read::{READS_AHEAD_MAX, TICK_BLOCKS_MAX, ranges};
use crate::watcher::read::{STEP_LEGS_MAX, Window, legs};
use crate::watcher::settle::verdict::{FinalBy, OfBlock};
use crate::watcher::traces::early_witness::of_all;
use crate::watcher::{TickError, Ticked, TraceLane, Traced};

/// How many blocks one search by logs spans.
const SCAN_BLOCKS_MAX: u64 = 6_000;
/// How many steps are searched for the next block, where numbers are skipped.
const EMPTY_STEPS_MAX: usize = 100;

#[derive(Debug)]
pub(in crate::watcher) struct Past {
    /// Linked by their parents; empty if every number up to `through` is passed over.
    pub(in crate::watcher) blocks: Vec<Block>,
    /// Up to here, inclusive, there is no other block.
    pub(in crate::watcher) through: u64,
}

/// Where to look: every block up to `through` that is not among `hits` holds nothing of ours.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::watcher) struct Scanned {
    pub(in crate::watcher) through: u64,
    pub(in crate::watcher) hits: Vec<Hit>,
    /// What proves that `hits` is complete.
    pub(in crate::watcher) proof: Proof,
}

#[derive(Default, Debug)]
pub(in crate::watcher) struct Full {
    /// Without numbers that were named and have no block.
    pub(in crate::watcher) blocks: Vec<Block>,
    /// The first that was not read, if any; those before it were read.
    pub(in crate::watcher) unread: Option<u64>,
}

/// A block that must be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::watcher) enum Hit {
    /// Known to be final.
    Tied(BlockRef),
    /// Nothing is known of it but its number.
    Named(u64),
}

type Credited<'b> = (&'b Block, Vec<Deposit>);

impl Hit {
    pub(in crate::watcher) fn number(&self) -> u64 {
        match self {
            Hit::Tied(block) => block.number,
            Hit::Named(number) => *number,
        }
    }
}

impl<S: BlockSource> Books<S> {
    /// Blocks `first..=to` as `window` reads them, or so many of the front as a step takes: at least one, or the proof
    /// that there is none.
    pub(in crate::watcher) async fn final_blocks(
        &self,
        first: u64,
        to: u64,
        window: &mut Window,
    ) -> Result<Past, TickError> {
        let (mut blocks, mut looked) = (Vec::new(), first - 1);
        // If every number of a step was skipped, the parent of the next block shows it.
        for _ in 0..EMPTY_STEPS_MAX {
            let from = looked + 1;
            looked = to.min(looked.saturating_add(window.step));
            blocks = self.read_ahead(from..=looked, window).await?;
            if !blocks.is_empty() || looked == to {
                break;
            }
        }
        if blocks.is_empty() {
            let next = self.passed_over(first, looked).await?;
            self.look_at_past(&[next]).await?;
            return Ok(Past { blocks, through: looked });
        }
        let hanging = hanging(first, blocks.iter().map(|block| &block.header));
        blocks.truncate(hanging);
        let last = blocks.last().map(|block| block.header.block);
        let through = self.tie(first, last).await?.number;
        let headers: Vec<Header> = blocks.iter().map(|block| block.header).collect();
        self.look_at_past(&headers).await?;
        Ok(Past { blocks, through })
    }

    /// Proves that `first..=to`, of which nothing is shown, holds no block: the next block above is final, and its
    /// parent is below `first`. An empty response alone proves nothing. Returns that next block.
    async fn passed_over(&self, first: u64, to: u64) -> Result<Header, TickError> {
        let mut from = to.saturating_add(1);
        for _ in 0..EMPTY_STEPS_MAX {
            let last = from.saturating_add(TICK_BLOCKS_MAX - 1);
            if let Some(next) = self.source.headers(from..=last).await?.first() {
                // One endpoint reports a list of headers, and with it what a block stands on.
                let number = next.block.number;
                let reported = self.source.blocks(number..=number, Read::FULL).await?;
                let header = reported.first().map(|block| block.header);
                let above = header.filter(|header| header.block == next.block && header.parent.number < first);
                let above = above.ok_or_else(|| self.not_shown(first))?;
                self.tie(first, Some(above.block)).await?;
                return Ok(above);
            }
            from = last.saturating_add(1);
        }
        Err(self.not_shown(first))
    }

    /// Checks, where parent links do not prove it, that enough endpoints show the same blocks with the same content as
    /// were `read`. The range begins above the parent of the first and ends at the last.
    async fn look_at_past(&self, read: &[Header]) -> Result<(), TickError> {
        let (Some(lowest), Some(highest)) = (read.first(), read.last()) else { return Ok(()) };
        let ours: Vec<BlockRef> = read.iter().map(|header| header.block).collect();
        let range = lowest.parent.number + 1..=highest.block.number;
        match self.source.cross_check(&lowest.parent, range, &ours, false).await? {
            None => Ok(()),
            Some(number) => {
                let noun = self.chain().family().number();
                Err(self.contradiction(format!("endpoints agree on another content of {noun} {number} than was read")))
            }
        }
    }

    /// What the source shows of `range`, up to the first failure.
    async fn read_ahead(&self, range: RangeInclusive<u64>, window: &mut Window) -> Result<Vec<Block>, TickError> {
        let read = window.read;
        let mut reads = stream::iter(ranges(range.start().saturating_sub(1), *range.end(), window.width))
            .map(async |asked| (asked.clone(), self.source.blocks(asked, read).await))
            .buffered(window.ahead);
        let mut blocks: Vec<Block> = Vec::new();
        while legs(&blocks) < STEP_LEGS_MAX
            && let Some((asked, read)) = reads.next().await
        {
            window.learn(&asked, &read);
            match read {
                Ok(part) => blocks.extend(part),
                Err(error) if blocks.is_empty() => return Err(error.into()),
                // What was read before is of use; the next step meets the error again.
                Err(_) => break,
            }
        }
        Ok(blocks)
    }

    /// Where in `first..=to`, or in the part of it that one search spans, a `watched` address may be named.
    pub(in crate::watcher) async fn search(&self, first: u64, to: u64, watched: Watched<'_>) -> Result<Found, TickError>
    where
        S: AddressSource,
    {
        let to = match self.source.search() {
            Search::ByRange => to.min(first.saturating_add(SCAN_BLOCKS_MAX - 1)),
            Search::ByAddress => to,
        };
        Ok(self.source.candidates(first..=to, watched).await?)
    }

    /// What a search `found` from `first` on, tied to what the source calls final.
    pub(in crate::watcher) async fn scanned(&self, first: u64, found: &Found) -> Result<Scanned, TickError> {
        match found {
            Found::Linked(candidates) => {
                let hanging = hanging(first, candidates.headers.iter());
                let last = candidates.headers[..hanging].last().map(|header| header.block);
                let through = self.tie(first, last).await?.number;
                let hits = candidates.hits.iter().filter(|hit| hit.number <= through).copied().map(Hit::Tied);
                Ok(Scanned { through, hits: hits.collect(), proof: Proof::Bloom })
            }
            Found::Named(Named { through, numbers, proof }) => {
                let hits = numbers.iter().copied().map(Hit::Named).collect();
                Ok(Scanned { through: *through, hits, proof: *proof })
            }
        }
    }

    /// The blocks of `hits` in full, up to the first that cannot be read, or until they hold enough for a step.
    pub(in crate::watcher) async fn full_blocks(&self, hits: &[Hit]) -> Result<Full, TickError> {
        let (mut tied, mut full) = (Vec::with_capacity(hits.len()), Full::default());
        for (index, hit) in hits.iter().enumerate() {
            match self.tied(hit).await {
                Ok(block) => tied.extend(block),
                Err(error) if index == 0 => return Err(error),
                Err(_) => {
                    full.unread = Some(hit.number());
                    break;
                }
            }
        }
        let mut reads =
            stream::iter(&tied).map(async |hit| (hit.number, self.full_block(hit).await)).buffered(READS_AHEAD_MAX);
        while let Some((number, read)) = reads.next().await {
            match read {
                // There is enough for this step; what was read ahead is read again later.
                Ok(_) if legs(&full.blocks) >= STEP_LEGS_MAX => full.unread = Some(number),
                Ok(block) => {
                    full.blocks.push(block);
                    continue;
                }
                Err(error) if full.blocks.is_empty() => return Err(error),
                // What was read before is of use; the next step meets the error again.
                Err(_) => full.unread = Some(number),
            }
            break;
        }
        Ok(full)
    }

    async fn full_block(&self, hit: &BlockRef) -> Result<Block, TickError> {
        let read = self.source.blocks(hit.number..=hit.number, Read::FULL).await?;
        let block = read.into_iter().next().filter(|block| block.header.block == *hit);
        block.ok_or_else(|| self.contradiction(format!("final block {hit} is not shown again")))
    }

    /// The block of a hit, which is final. No link ties a block that was only named to a final one. So enough endpoints
    /// must call the same block final, or the chain must pass over its number: then `None`.
    async fn tied(&self, hit: &Hit) -> Result<Option<BlockRef>, TickError> {
        let number = match *hit {
            Hit::Tied(block) => return Ok(Some(block)),
            Hit::Named(number) => number,
        };
        if let Some(block) = self.source.final_at(number).await? {
            return Ok(Some(block));
        }
        if self.passed_over(number, number).await.is_ok() {
            return Ok(None);
        }
        let what = "is said to name a watched address, and not enough endpoints call the same block there final";
        Err(self.contradiction(format!("block {number} {what}")))
    }

    /// Proves that `last` is what the source calls final at its number: then everything below it is final too.
    async fn tie(&self, first: u64, last: Option<BlockRef>) -> Result<BlockRef, TickError> {
        let last = last.ok_or_else(|| self.not_shown(first))?;
        match self.source.final_at(last.number).await? {
            Some(finalized) if finalized == last => Ok(last),
            other => {
                let other = other.map_or("none".to_owned(), |other| other.to_string());
                Err(self.contradiction(format!("block {last} was read, but what is final at its number is {other}")))
            }
        }
    }

    fn not_shown(&self, first: u64) -> TickError {
        self.contradiction(format!("final block {first} is not shown"))
    }

    fn contradiction(&self, what: String) -> TickError {
        TickError::Contradiction { chain: self.chain(), what }
    }

    /// Records what the roots of final blocks credit to `wanted` addresses: PENDING in one transaction, CONFIRMED in
    /// the next.
    pub(in crate::watcher) async fn credit_final(
        &self,
        blocks: &[Block],
        wanted: &(dyn Fn(&Address) -> bool + Sync),
        now: Timestamp,
    ) -> Result<Ticked, TickError> {
        let mut matched: Vec<Matched> = blocks.iter().map(|block| self.select(block)).collect();
        // Every turn but the last is repeated because addresses were added meanwhile.
        let (pending, credited) = loop {
            self.name_senders(blocks, &mut matched, wanted, now).await?;
            if let Some(recorded) = self.record_final(blocks, &mut matched, Lane::Block, wanted, now).await? {
                break recorded;
            }
        };
        let mut ticked = Ticked { pending, ..Ticked::default() };
        let cursor = Cursor::load(&mut self.db.read().await?, self.chain()).await?;
        // Above what was cross-checked nothing counts as final. It may be disconnected, and the watcher confirms it in
        // turn.
        let is_settled = |block: &Block| cursor.at.is_none() || self.is_looked_at(&cursor, block.header.block.number);
        for (block, pending) in credited.into_iter().filter(|(block, _)| is_settled(block)) {
            let of_block = OfBlock::final_by(FinalBy::Source, block.header.block, pending);
            self.judge(block, of_block, now, &mut ticked).await?;
        }
        Ok(ticked)
    }

    /// Names who paid what is about to be recorded; where our record is replaced, for all recipients. No fee payer
    /// stands in while no endpoint can be asked: past blocks are read again.
    async fn name_senders(
        &self,
        blocks: &[Block],
        matched: &mut [Matched],
        wanted: &(dyn Fn(&Address) -> bool + Sync),
        now: Timestamp,
    ) -> Result<(), TickError> {
        for (block, matched) in blocks.iter().zip(matched) {
            let is_replaced = is_weaker(&mut self.db.read().await?, self.chain(), block).await?;
            let legs = matched.legs.iter_mut().filter(|leg| is_replaced || wanted(&leg.recipient));
            senders::name(&self.source, &block.header, legs, now).await?;
        }
        Ok(())
    }

    /// As [`Books::credit_final`], for what the traces of final blocks show: CONFIRMED only with a second witness.
    pub(in crate::watcher) async fn credit_traced(
        &self,
        lane: &TraceLane<S>,
        blocks: &[Block],
        wanted: &(dyn Fn(&Address) -> bool + Sync),
        now: Timestamp,
    ) -> Result<Traced, TickError>
    where
        S: AddressSource,
    {
        let (pending, credited) = self.record_traced(blocks, wanted, now).await?;
        let mut traced = Traced { pending, ..Traced::default() };
        for (block, mut deposits) in credited {
            let doubted = match lane.reported_evidence(&block.header.block).await? {
                Ok(evidence) => {
                    // A fuller read may show what the first one hid.
                    let again = std::slice::from_ref(&evidence.traces);
                    let (pending, more) = self.record_traced(again, wanted, now).await?;
                    traced.pending += pending;
                    let more: Vec<Deposit> = more.into_iter().flat_map(|(_, deposits)| deposits).collect();
                    deposits.retain(|deposit| more.iter().all(|more| more.id != deposit.id));
                    deposits.extend(more);
                    lane.keep_witnesses(&evidence, &mut traced).await?
                }
                Err(why) => of_all(deposits.clone(), &why),
            };
            let seen_in = block.header.block;
            let of_block = OfBlock { seen_in, lane: Lane::Traces, deposits, final_by: FinalBy::Source };
            lane.judge(of_block, doubted, now, &mut traced).await?;
        }
        Ok(traced)
    }

    /// As [`Books::record_final`], for traces, which name who paid.
    async fn record_traced<'b>(
        &self,
        blocks: &'b [Block],
        wanted: &(dyn Fn(&Address) -> bool + Sync),
        now: Timestamp,
    ) -> Result<(u64, Vec<Credited<'b>>), TickError> {
        let mut matched: Vec<Matched> = blocks.iter().map(|block| self.select(block)).collect();
        loop {
            if let Some(recorded) = self.record_final(blocks, &mut matched, Lane::Traces, wanted, now).await? {
                return Ok(recorded);
            }
        }
    }

    /// Records, in one transaction, what one lane (roots or traces) shows of final blocks. Returns how many deposits
    /// became PENDING by it, and for each block those that are PENDING now. `None` if an address was added meanwhile
    /// whose payments have no known sender.
    async fn record_final<'b>(
        &self,
        blocks: &'b [Block],
        matched: &mut [Matched],
        lane: Lane,
        wanted: &(dyn Fn(&Address) -> bool + Sync),
        now: Timestamp,
    ) -> Result<Option<(u64, Vec<Credited<'b>>)>, TickError> {
        let chain = self.chain();
        self.check_not_halted().await?;
        let mut tx = self.db.begin().await?;
        let cursor = Cursor::lock(&mut tx, chain).await?;
        let mut is_more = false;
        for (block, matched) in blocks.iter().zip(matched.iter_mut()) {
            is_more |= self.select_again(&mut tx, &cursor, block, matched).await?;
        }
        let mut legs = matched.iter().flat_map(|matched| &matched.legs);
        if is_more && legs.any(|leg| senders::is_unnamed(leg) && wanted(&leg.recipient)) {
            return Ok(None);
        }
        // Above the cursor `run` connects the blocks, also if a reorg has moved the cursor below them meanwhile.
        let above = |block: &&Block| cursor.at.is_some_and(|at| block.header.block.number > at.number);
        if let Some(block) = blocks.iter().find(above) {
            return Err(self.contradiction(format!("the cursor has gone back below block {}", block.header.block)));
        }
        let (mut count, mut credited) = (0, Vec::new());
        for (block, matched) in blocks.iter().zip(matched) {
            let at = &block.header.block;
            let is_on_record = self.check_record(&mut tx, &cursor, at).await?;
            if is_on_record && lane == Lane::Block && is_weaker(&mut tx, chain, block).await? {
                count += self.replace_record(&mut tx, &cursor, block, matched, now).await?;
            }
            matched.keep(wanted);
            if !matched.is_empty() && !is_on_record {
                // Past blocks are traced here. One on record that is not traced yet stays so: `run` was asked to trace
                // it.
                cursors::connect(&mut tx, chain, block, true).await?;
            }
            if !matched.is_empty() && is_on_record && lane == Lane::Block {
                cursors::strengthen(&mut tx, chain, at, block.proof).await?;
            }
            if lane == Lane::Traces && (is_on_record || !matched.is_empty()) {
                traces::level(&mut tx, chain, at, block.proof).await?;
            }
            let door = (lane, Whose::WatchedNow);
            let recorded = self.record_block(&mut tx, &cursor, matched, door, now).await?;
            count += recorded.pending;
            // A leg that was denied before and is shown now is judged anew, even if the lane comes to it first.
            for denied in recorded.deposits.iter().filter(|_| lane == Lane::Traces) {
                witnesses::forget_denial(&mut tx, chain, denied.id, &at.hash).await?;
            }
            if !recorded.deposits.is_empty() {
                credited.push((block, recorded.deposits));
            }
        }
        tx.commit().await?;
        Ok(Some((count, credited)))
    }

    /// Whether our chain has this final block. An error if it has another in its place. Also an error if our chain
    /// passes over it and was not cross-checked there yet: the cross-check takes the blocks on record for those that
    /// were connected.
    async fn check_record(&self, tx: &mut Tx, cursor: &Cursor, block: &BlockRef) -> Result<bool, TickError> {
        let (chain, noun) = (self.chain(), self.chain().family().number());
        match cursors::canonical_at(tx, chain, block.number).await? {
            Some(ours) if ours != block.hash => Err(TickError::OtherOnRecord { chain, finalized: *block, ours }),
            // Above what was cross-checked, all that was connected is on record.
            None if cursor.at.is_some() && !self.is_looked_at(cursor, block.number) => Err(self.contradiction(format!(
                "block {block} is final, but the chain was connected without a block in that {noun}, and endpoints have not \
                 agreed yet on which is right"
            ))),
            ours => Ok(ours.is_some()),
        }
    }

    /// Whether a watched address that is `wanted` is paid or pays in the block, or gets what is no deposit.
    pub(in crate::watcher) fn concerns(&self, block: &Block, wanted: &(dyn Fn(&Address) -> bool + Sync)) -> bool {
        let mut matched = self.select(block);
        matched.keep(wanted);
        !matched.is_empty()
    }
}

/// How many of the first headers are linked and leave out nothing from `first` on.
fn hanging<'h>(first: u64, headers: impl Iterator<Item = &'h Header>) -> usize {
    let mut parent: Option<BlockRef> = None;
    let hanging = headers.take_while(|header| {
        let stands = match parent {
            Some(parent) => header.parent == parent && header.block.number > parent.number,
            // Block 0 names itself by number as its parent.
            None => header.block.number >= first && (header.parent.number < first || header.block.number == first),
        };
        parent = Some(header.block);
        stands
    });
    hanging.count()
}
