//! Settles: CONFIRMED or FAILED, on evidence from a final block of our own chain, read again and proved again. Where no
//! roots prove a block, what was read when it was connected is as good (`reported_blocks`). A record that one endpoint
//! reported is first replaced by what two report (`replace_record`); only then is anything judged by it.
//!
//! A block is final when the source's final block has the hash that our chain has at its number: then everything below
//! hangs on it by parent links. One comparison proves all of it, and nothing is settled before it holds.
//! What only a trace shows is settled elsewhere (see `witness`). The exception is what a tier or an operator calls
//! final earlier. That is CONFIRMED here by the witness that was kept of it; without one it waits.

pub(super) mod early;
pub(super) mod evidence;
pub(super) mod missing;
pub(super) mod over_credit;
pub(super) mod reported_blocks;
pub(super) mod verdict;

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{StreamExt, stream};
use landfall_chain::{
    AssetTransfer, Block, BlockRef, BlockSource, Lane, Read, SenderRule, SourceErrorKind, Tip, with_causes,
};
use tracing::warn;

use crate::deposit::{Deposit, LegHash};
use crate::overrides::Overrides;
use crate::store::cursors::{self, Cursor};
use crate::store::{Reader, deposits};
use crate::time::Timestamp;
use crate::watcher::books::Books;
use crate::watcher::books::leg::leg_of;
use crate::watcher::books::replace_record::is_weaker;
use crate::watcher::books::senders::{self, Senders};
use crate::watcher::settle::early::{Due, Grant};
use crate::watcher::settle::verdict::{FinalBy, OfBlock, is_ours};
use crate::watcher::{Follower, TickError, Ticked};

/// How many deposits a tick settles at most, in how many blocks, and how many missing ones it looks for.
const TICK_DEPOSITS_MAX: u32 = 500;
const TICK_EVIDENCE_MAX: usize = 20;
const TICK_MISSING_MAX: u32 = 10;
/// How many blocks are read again at once.
const READS_AHEAD_MAX: usize = 4;

impl<S: BlockSource> Follower<S> {
    pub(in crate::watcher) async fn settle(
        &mut self,
        at: &BlockRef,
        tip: &Tip,
        orders: &Overrides,
        now: Timestamp,
        ticked: &mut Ticked,
    ) -> Result<(), TickError> {
        self.note_final(at, tip).await?;
        self.close_over_credited(now).await?;
        let mut reader = self.db.read().await?;
        let finalized = Cursor::load(&mut reader, self.chain()).await?.finalized;
        let due = self.due(&mut reader, at, tip, orders, finalized).await?;
        let missing = match &finalized {
            Some(finalized) => {
                deposits::missing(&mut reader, self.chain(), Lane::Block, finalized.number, TICK_MISSING_MAX).await?
            }
            None => Vec::new(),
        };
        drop(reader);
        self.grant_payments(at, tip, orders, finalized, now).await?;

        let list_is_cut = u32::try_from(due.len()).is_ok_and(|count| count >= TICK_DEPOSITS_MAX);
        let mut by_block: BTreeMap<u64, OfBlock> = BTreeMap::new();
        for Due { settleable, grant } in due {
            let of_block = by_block
                .entry(settleable.block.number)
                .or_insert_with(|| OfBlock::final_by(FinalBy::Record, settleable.block, Vec::new()));
            of_block.deposits.push(settleable.deposit);
            of_block.grant(grant);
        }
        let (highest, listed) = (by_block.keys().next_back().copied(), by_block.len());
        by_block.retain(|_, OfBlock { seen_in, .. }| {
            !self.withheld.rests(seen_in, now) || self.reported.of(seen_in, self.endpoints.agree()).is_some()
        });
        let mut all_are_read = by_block.len() == listed;
        let is_full = by_block.len() > TICK_EVIDENCE_MAX;
        let last = if is_full { by_block.keys().take(TICK_EVIDENCE_MAX).next_back().copied() } else { highest };
        let blocks_are_left = list_is_cut || is_full;
        let last = last.filter(|_| blocks_are_left);
        let missing_are_left = u32::try_from(missing.len()) == Ok(TICK_MISSING_MAX);
        // The reads borrow the watcher. If a tick ends early, the wait for senders begins anew.
        let mut payers = std::mem::take(&mut self.replacing_record);
        let mut reads = stream::iter(by_block.into_values().take(TICK_EVIDENCE_MAX))
            .map(async |of_block| match self.reported_of(&of_block).await {
                Ok(Some(reported)) => (Ok(Ok(reported)), of_block, false),
                Ok(None) => (self.evidence(&of_block.seen_in).await, of_block, true),
                Err(error) => (Err(error), of_block, false),
            })
            .buffered(READS_AHEAD_MAX);
        // What cannot be read now must not hold up the rest: its error is returned at the end.
        let (mut unread, mut is_disputed, mut looked) = (Ok(()), false, Vec::new());
        while let Some((evidence, mut of_block, is_whole)) = reads.next().await {
            let read = match evidence {
                // Of a block that was kept since it was connected, we have only the legs.
                Ok(Ok(evidence)) if is_whole => {
                    let named = self.replaced_record(&evidence, &mut of_block, &mut payers, now, ticked).await?;
                    named.map(|()| Ok(evidence))
                }
                evidence => evidence,
            };
            match read {
                Ok(Ok(evidence)) => {
                    looked.push((of_block.seen_in, None));
                    self.judge(&evidence, of_block, now, ticked).await?;
                }
                Ok(Err(unshown)) => {
                    all_are_read = false;
                    looked.push((of_block.seen_in, Some(unshown)));
                }
                Err(error) => {
                    is_disputed |= matches!(&error, TickError::Source(error) if error.is_disputed);
                    (unread, all_are_read) = (unread.and(Err(error)), false);
                }
            }
        }
        drop(reads);
        self.replacing_record = payers;
        if is_disputed {
            self.reported.forget_alone();
        }
        // They must not keep blocks behind them waiting: the next tick goes on from there, and then starts again from
        // the lowest.
        self.settle_from = last.filter(|_| !all_are_read).map_or(0, |last| last + 1);
        if let Some(finalized) = finalized.filter(|_| all_are_read && !blocks_are_left) {
            self.reported.forget_through(finalized.number);
        }
        for (missing, finalized) in missing.into_iter().zip(std::iter::repeat(finalized).flatten()) {
            match self.look_for(missing, &finalized, now).await {
                Ok(settled) => ticked.failed += settled.failed,
                Err(TickError::Source(error)) => unread = unread.and(Err(error.into())),
                Err(error) => return Err(error),
            }
        }
        if let Some(deposit) = self.alarms.unanswered() {
            let mut reader = self.db.read().await?;
            let is_missing = deposits::is_missing(&mut reader, deposit, Lane::Block, u64::MAX).await?;
            self.alarms.keep_unanswered(is_missing);
        }
        for (block, unshown) in looked {
            // Of two blocks with one number, the other is not ours any more.
            self.withheld.retain(|other| other.number != block.number || *other == block);
            match unshown {
                None => self.withheld.succeeded(&block),
                Some(Unshown { why, rests }) => self.withheld.failed(block, why, rests, now),
            }
        }
        self.alarms.withheld(self.withheld.oldest(now));
        // Blocks that cannot be read again yet must not be asked for in a tight loop.
        ticked.more_to_settle = missing_are_left || blocks_are_left && ticked.confirmed > 0;
        unread
    }

    /// The deposits that may be confirmed now: those at or below the final block, and those that need less.
    async fn due(
        &self,
        reader: &mut Reader,
        at: &BlockRef,
        tip: &Tip,
        orders: &Overrides,
        finalized: Option<BlockRef>,
    ) -> Result<Vec<Due>, TickError> {
        let mut due = Vec::new();
        if let Some(finalized) = &finalized {
            let range = (self.settle_from, finalized.number);
            let found = deposits::settleable(reader, self.chain(), range, TICK_DEPOSITS_MAX).await?;
            due.extend(found.into_iter().map(|settleable| Due { settleable, grant: None }));
        }
        due.extend(self.granted(reader, at, tip, orders, finalized, TICK_DEPOSITS_MAX).await?);
        Ok(due)
    }

    /// Records the source's final block, if it is on our chain and newer than the one on record.
    async fn note_final(&self, at: &BlockRef, tip: &Tip) -> Result<(), TickError> {
        let Some(finalized) = tip.finalized.filter(|finalized| finalized.number <= at.number) else { return Ok(()) };
        let cursor = Cursor::load(&mut self.db.read().await?, self.chain()).await?;
        let is_known = cursor.finalized.is_some_and(|known| known.number >= finalized.number);
        if is_known || !self.is_looked_at(&cursor, finalized.number) {
            return Ok(());
        }
        let mut tx = self.db.begin().await?;
        let cursor = Cursor::lock(&mut tx, self.chain()).await?;
        match cursors::canonical_at(&mut tx, self.chain(), finalized.number).await? {
            // Another process disconnected blocks meanwhile.
            Some(_) if !self.is_looked_at(&cursor, finalized.number) => return Ok(()),
            Some(ours) if ours == finalized.hash => Cursor::finalize(&mut tx, self.chain(), &finalized).await?,
            Some(ours) => {
                let what = format!("block {finalized} is called final, but below {at} stands {ours} at its number");
                return Err(TickError::Contradiction { chain: self.chain(), what });
            }
            None => return Ok(()),
        }
        Ok(tx.commit().await?)
    }

    /// What was read of the block when it was connected. `None` if that is not enough to judge all of these deposits,
    /// or if another process has since recorded the block from fewer endpoints.
    async fn reported_of(&self, of_block: &OfBlock) -> Result<Option<Block>, TickError> {
        let reported = self.reported.of(&of_block.seen_in, self.endpoints.agree());
        let Some(reported) =
            reported.filter(|reported| of_block.deposits.iter().all(|deposit| self.has_leg(reported, deposit)))
        else {
            return Ok(None);
        };
        let is_weaker = is_weaker(&mut self.db.read().await?, self.chain(), reported).await?;
        Ok((!is_weaker).then(|| reported.clone()))
    }

    /// Where one endpoint reported our record of this block, replaces it by `evidence`, a whole block that two report.
    /// That takes a transaction of its own; afterwards `of_block` has the deposits that are to be judged.
    ///
    /// The inner error says why no endpoint can be asked who paid; the block waits for that as it does when it is
    /// connected.
    async fn replaced_record(
        &self,
        evidence: &Block,
        of_block: &mut OfBlock,
        payers: &mut Senders,
        now: Timestamp,
        ticked: &mut Ticked,
    ) -> Result<Result<(), TickError>, TickError> {
        if !is_weaker(&mut self.db.read().await?, self.chain(), evidence).await? {
            return Ok(Ok(()));
        }
        let mut matched = self.select(evidence);
        if let Err(error) = payers.name(&self.source, &mut matched, now).await {
            return Ok(Err(error.into()));
        }
        let mut tx = self.db.begin().await?;
        let cursor = Cursor::lock(&mut tx, self.chain()).await?;
        let block = evidence.header.block;
        if !is_ours(&mut tx, self.chain(), &block).await? {
            return Ok(Ok(()));
        }
        self.select_again(&mut tx, &cursor, evidence, &mut matched).await?;
        ticked.pending += self.replace_record(&mut tx, &cursor, evidence, &matched, now).await?;
        let mut deposits = deposits::in_block(&mut tx, self.chain(), &block.hash, Lane::Block).await?;
        tx.commit().await?;
        // A grant is only for the deposits that it listed.
        let listed = std::mem::take(&mut of_block.deposits);
        let is_granted = matches!(of_block.final_by, FinalBy::Grant(_));
        deposits.retain(|deposit| !is_granted || listed.iter().any(|listed| listed.id == deposit.id));
        of_block.deposits = deposits;
        Ok(Ok(()))
    }

    /// The final block `wanted`, read again. A block that is not shown as it must be is no failure, for other blocks
    /// may be shown: it returns the inner error.
    async fn evidence(&self, wanted: &BlockRef) -> Result<Result<Block, Unshown>, TickError> {
        // Where no roots prove the block, more than one endpoint must show it, which costs megabytes.
        let may_rest = !self.chain().family().has_roots();
        let evidence = match self.source.blocks(wanted.number..=wanted.number, Read::FULL).await {
            Ok(blocks) => {
                let shown = blocks.into_iter().next().filter(|block| block.header.block == *wanted);
                shown.ok_or_else(|| Unshown { why: "no endpoint shows it".to_owned(), rests: false })
            }
            Err(error) if may_rest && error.kind == SourceErrorKind::Transient && !error.is_disputed => {
                Err(Unshown { why: with_causes(&error), rests: true })
            }
            Err(error) => return Err(error.into()),
        };
        if let Err(Unshown { why, .. }) = &evidence {
            warn!(chain = %self.chain(), "final block {wanted} cannot be read again yet, its deposits wait: {why}");
        }
        Ok(evidence)
    }
}

impl<S: BlockSource> Books<S> {
    /// Judges the deposits of a block by `evidence`, with their senders.
    pub(in crate::watcher) async fn judge(
        &self,
        evidence: &Block,
        of_block: OfBlock,
        now: Timestamp,
        ticked: &mut Ticked,
    ) -> Result<(), TickError> {
        let named = self.named_once_more(evidence, &of_block.deposits, now).await;
        let evidence = named.as_ref().unwrap_or(evidence);
        ticked.confirmed += verdict::judge(&self.db, &self.network, evidence, of_block, now).await?.confirmed;
        Ok(())
    }

    /// The evidence, with the senders of those `deposits` whose sender nobody knew when they were recorded; `None`
    /// where there are none. They are asked for once more, because the event CONFIRMED is final. It waits for nobody.
    async fn named_once_more(&self, evidence: &Block, deposits: &[Deposit], now: Timestamp) -> Option<Block> {
        let unnamed = |deposit: &&Deposit| deposit.sender_rule == SenderRule::StandIn;
        let legs: BTreeSet<LegHash> = deposits.iter().filter(unnamed).map(|deposit| deposit.leg_hash).collect();
        if legs.is_empty() {
            return None;
        }
        let (mut evidence, chain_ref) = (evidence.clone(), &self.network.chain_ref);
        let wanted =
            |leg: &&mut AssetTransfer| senders::is_unnamed(leg) && legs.contains(&leg_of(chain_ref, leg).hash());
        let (header, named) = (evidence.header, evidence.transfers.iter_mut().filter(wanted));
        if let Err(error) = senders::name(&self.source, &header, named, now).await {
            let block = evidence.header.block;
            warn!(chain = %self.chain(), "who paid in final block {block} is not known, and the fee payer stands in: {error}");
        }
        Some(evidence)
    }
}

/// Why a final block is no evidence yet, and whether there is a pause before it is asked for again.
struct Unshown {
    why: String,
    rests: bool,
}

impl OfBlock {
    /// Deposits of a final block that its roots show.
    pub(in crate::watcher) fn final_by(final_by: FinalBy, seen_in: BlockRef, deposits: Vec<Deposit>) -> Self {
        OfBlock { seen_in, lane: Lane::Block, deposits, final_by }
    }

    /// Adds a grant: of several, the highest block counts. If that is canonical, so are all below it.
    fn grant(&mut self, grant: Option<Grant>) {
        let Some(mut grant) = grant else { return };
        if let FinalBy::Grant(known) = &self.final_by {
            let reason = known.reason.clone().or(grant.reason);
            let through = std::cmp::max_by_key(known.through, grant.through, |block| block.number);
            grant = Grant { through, reason };
        }
        self.final_by = FinalBy::Grant(grant);
    }
}
