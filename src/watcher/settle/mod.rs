//! Settles: CONFIRMED or FAILED, on evidence from a final block of our own chain, read again and proved again. Where no
//! roots prove a block, what was read when it was connected is as good (`reported_blocks`). A record that one endpoint
//! reported is first replaced by what two report (`replace_record`); only then is anything judged by it.
//!
//! A block is final when the source's final block has the hash that our chain has at its number: then everything below
//! hangs on it by parent links. One comparison proves all of it, and nothing is settled before it holds.
//! What only a trace shows is settled elsewhere (see `witness`). The exception is what a tier or an operator calls
//! final earlier. That is CONFIRMED here by the witness that was kept of it; without one it waits.

pub(super) mod by_witness;
pub(super) mod early;
pub(super) mod evidence;
pub(super) mod over_credit;
pub(super) mod reported_blocks;

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{StreamExt, stream};
use landfall_chain::{
    AssetTransfer, Block, BlockRef, BlockSource, Fate, Lane, Payer, Read, SenderRule, SourceErrorKind, Tip, with_causes,
};
use tracing::{info, warn};

use crate::deposit::{Deposit, DepositStatus, LegHash};
use crate::overrides::{AuditEntry, Overrides};
use crate::store::cursors::{self, Cursor};
use crate::store::deposits::{self, Missing};
use crate::store::witnesses::{self, SeenInTrace};
use crate::store::{Reader, Tx, asset_facts, audit};
use crate::time::Timestamp;
use crate::watcher::balances::short;
use crate::watcher::books::Books;
use crate::watcher::books::leg::leg_in;
use crate::watcher::books::leg::{announce, leg_of, paid_by, prove_signer};
use crate::watcher::books::replace_record::is_weaker;
use crate::watcher::books::senders::{self, Senders};
use crate::watcher::settle::by_witness::{WitnessVerdict, by_witness};
use crate::watcher::settle::early::{Due, Grant};
use crate::watcher::settle::evidence::{Excess, guard_both_forms, guard_sum, paid_in_tx};
use crate::watcher::traces::balances::guard_logged;
use crate::watcher::{TickError, Ticked, Watcher};

/// How many deposits a tick settles at most, in how many blocks, and how many missing ones it looks for.
const TICK_DEPOSITS_MAX: u32 = 500;
const TICK_EVIDENCE_MAX: usize = 20;
const TICK_MISSING_MAX: u32 = 10;
/// How many blocks are read again at once.
const READS_AHEAD_MAX: usize = 4;

impl<S: BlockSource> Watcher<S> {
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

        let list_is_cut = u32::try_from(due.len()).is_ok_and(|count| count >= TICK_DEPOSITS_MAX);
        let mut by_block: BTreeMap<u64, OfBlock> = BTreeMap::new();
        for Due { settleable, grant } in due {
            let of_block = by_block.entry(settleable.block.number).or_insert_with(|| OfBlock::new(settleable.block));
            of_block.deposits.push(settleable.deposit);
            of_block.grant = OfBlock::stronger(of_block.grant.take(), grant);
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
            match self.trace(&missing, &finalized, now).await {
                Ok((sought, block)) => {
                    looked.extend(block);
                    let gone = missing.since.filter(|since| self.is_gone(Some(*since), now));
                    self.alarms.sought(&missing.deposit, gone, &sought.fate);
                    self.look_for(missing, sought, &finalized, now, ticked).await?;
                }
                Err(error) => unread = unread.and(Err(error)),
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
        if !self.is_ours(&mut tx, &block).await? {
            return Ok(Ok(()));
        }
        self.select_again(&mut tx, &cursor, evidence, &mut matched).await?;
        ticked.pending += self.replace_record(&mut tx, &cursor, evidence, &matched, now).await?;
        let mut deposits = deposits::in_block(&mut tx, self.chain(), &block.hash, Lane::Block).await?;
        tx.commit().await?;
        // A grant is only for the deposits that it listed.
        let listed = std::mem::take(&mut of_block.deposits);
        deposits.retain(|deposit| of_block.grant.is_none() || listed.iter().any(|listed| listed.id == deposit.id));
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
    /// Confirms the deposits of a final block, in one transaction. It is the very block that they were seen in. So if a
    /// leg is not in it now, we read it otherwise than then: no reason to fail a deposit.
    pub(in crate::watcher) async fn judge(
        &self,
        evidence: &Block,
        OfBlock { deposits, grant, .. }: OfBlock,
        now: Timestamp,
        ticked: &mut Ticked,
    ) -> Result<(), TickError> {
        let named = self.named_once_more(evidence, &deposits, now).await;
        let evidence = named.as_ref().unwrap_or(evidence);
        let mut tx = self.db.begin().await?;
        // Also keeps the block canonical until the commit: disconnecting takes the same lock.
        Cursor::lock(&mut tx, self.chain()).await?;
        let block = evidence.header.block;
        if !self.is_ours(&mut tx, &block).await? {
            return Ok(());
        }
        // All blocks below the granted block hang on it. What is final for all is never disconnected.
        if let Some(grant) = &grant
            && !self.is_ours(&mut tx, &grant.through).await?
        {
            return Ok(());
        }
        // Another process connected it on less meanwhile: it is restated first.
        if is_weaker(&mut tx, self.chain(), evidence).await? {
            return Ok(());
        }
        // A deposit is proved as its block was when it was last read.
        cursors::strengthen(&mut tx, self.chain(), &block, evidence.proof).await?;
        // What a trace showed is listed only where a tier or an operator calls its block final.
        let sighted = match &grant {
            Some(_) => witnesses::in_block(&mut tx, self.chain(), &block.hash).await?,
            None => Vec::new(),
        };
        let confirmable = asset_facts::confirmable(&mut tx, self.chain()).await?;
        for deposit in deposits {
            // Settled by another process since it was listed?
            let recorded = deposits::by_leg(&mut tx, &deposit.leg_hash).await?;
            let Some(deposit) = recorded.filter(|recorded| recorded.status == DepositStatus::Pending) else { continue };
            if confirmable.excludes(&deposit.asset, deposit.decimals) {
                continue;
            }
            let judged = match sighted.iter().find(|sighted| sighted.deposit.id == deposit.id) {
                None => self.by_roots(&mut tx, evidence, &deposit).await?,
                Some(SeenInTrace { kept: Some(kept), .. }) => {
                    match by_witness(&mut tx, &self.network, evidence, &deposit, kept).await? {
                        WitnessVerdict::Holds => Ok(kept.payer()),
                        WitnessVerdict::TooMuch(excess) => Err(excess),
                        // What to do then is decided when its block is final for all.
                        WitnessVerdict::Denied | WitnessVerdict::Unfit(_) => continue,
                    }
                }
                Some(SeenInTrace { kept: None, .. }) => continue,
            };
            let payer = match judged {
                Ok(payer) => payer,
                Err(excess) => {
                    over_credit::hold(&mut tx, &deposit, &block, &excess, now).await?;
                    continue;
                }
            };
            let deposit = paid_by(&mut tx, deposit, payer).await?;
            info!(chain = %self.chain(), tx = %deposit.tx.id, block = block.number, "deposit {} confirmed", deposit.id);
            if let Some(reason) = grant.as_ref().and_then(|grant| grant.reason.as_ref()) {
                let what = format!("deposit {} in block {block}", deposit.id);
                audit::append(&mut tx, &self.audited("confirmed_by_override", what, reason, now)).await?;
            }
            enter(&mut tx, deposit.confirm(now)?, now).await?;
            ticked.confirmed += 1;
        }
        Ok(tx.commit().await?)
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

    /// Who paid the deposit's leg, which the roots of its block show; the inner error is what would be credited too
    /// much.
    async fn by_roots(
        &self,
        tx: &mut Tx,
        evidence: &Block,
        deposit: &Deposit,
    ) -> Result<Result<Payer, Excess>, TickError> {
        let Some(leg) = leg_in(&self.network, &evidence.transfers, deposit) else {
            let block = evidence.header.block;
            return Err(TickError::LegMissing { chain: self.chain(), block, deposit: deposit.id });
        };
        prove_signer(&evidence.signers, &deposit.tx)?;
        let paid = paid_in_tx(&evidence.transfers, deposit);
        let excess = match guard_sum(tx, Lane::Block, paid, deposit).await? {
            None => guard_both_forms(tx, &self.network, &evidence.transfers, deposit).await?,
            excess => excess,
        };
        let excess = match excess {
            None => guard_logged(tx, &self.network, evidence, deposit).await?,
            excess => excess,
        };
        Ok(excess.map_or(Ok(leg.payer()), Err))
    }

    async fn is_ours(&self, tx: &mut Tx, block: &BlockRef) -> Result<bool, TickError> {
        Ok(cursors::canonical_at(tx, self.chain(), block.number).await? == Some(block.hash))
    }

    /// An audit entry for what a watcher does because an operator asked for it.
    pub(in crate::watcher) fn audited(&self, action: &str, what: String, reason: &str, now: Timestamp) -> AuditEntry {
        let [actor, action, reason] = ["landfall", action, reason].map(str::to_owned);
        AuditEntry { at: now, actor, action, chain: Some(self.chain()), what, reason }
    }
}

impl<S: BlockSource> Watcher<S> {
    /// Judges a deposit whose height is final and that is in no block of our chain.
    async fn look_for(
        &self,
        missing: Missing,
        Sought { fate, evidence, is_unread }: Sought,
        finalized: &BlockRef,
        now: Timestamp,
        ticked: &mut Ticked,
    ) -> Result<(), TickError> {
        let Missing { deposit, since } = missing;
        let mut tx = self.db.begin().await?;
        Cursor::lock(&mut tx, self.chain()).await?;
        // Connected again meanwhile, or settled by another process? Then it is no longer missing.
        if !deposits::is_missing(&mut tx, &deposit, Lane::Block, finalized.number).await? {
            return Ok(());
        }
        let found = match &evidence {
            Some(block) => self.is_ours(&mut tx, &block.header.block).await?.then_some(block),
            None => None,
        };
        // It is said to be in a final block that was not shown, and our record has no other block there.
        let is_withheld = match fate {
            _ if is_unread => true,
            Fate::In(block) if evidence.is_none() => {
                let ours = cursors::canonical_at(&mut tx, self.chain(), block.number).await?;
                ours.is_none_or(|ours| ours == block.hash)
            }
            Fate::In(_) | Fate::Superseded(_) | Fate::Unknown | Fate::Unanswered { .. } => false,
        };
        let is_shown = evidence.as_ref().is_some_and(|block| self.has_leg(block, &deposit));
        let gone = self.is_gone(since, now);
        let verdict = match (fate, found) {
            // Seen in a block of ours after all (it was read while its asset was not listed): settled from there.
            (_, Some(block)) if is_shown => {
                deposits::include(&mut tx, &deposit, &block.header.block, Lane::Block).await?;
                return Ok(tx.commit().await?);
            }
            // Where no roots prove the block, a failed transaction may be sent again and land: on Solana it need not
            // use up its nonce.
            (_, Some(block)) if block.txs.contains(&deposit.tx.id) => {
                let is_sure = self.chain().family().has_roots() || gone;
                is_sure.then(|| format!("its transaction is in final block {} without it", block.header.block.number))
            }
            // A proved block at a final height holds it, but is not on our record (any more): no reason to fail it.
            (_, None) if is_shown => None,
            (Fate::Superseded(by), _) => {
                Some(format!("another transaction took its place by final block {}", by.number))
            }
            (Fate::In(block), _) if block.number > finalized.number || is_withheld => None,
            // Nothing is judged while an endpoint that may know it cannot be asked, however long that lasts.
            (Fate::Unanswered { .. }, _) => None,
            // In no block, or in one that is not on our final chain: an index may be stale.
            (Fate::In(_) | Fate::Unknown, _) => gone.then(|| "its transaction stayed in no block".to_owned()),
        };
        // A deposit of an unlisted asset is not judged: we would not see its leg if it were there.
        match verdict.filter(|_| self.network.asset(&deposit.asset).is_some()) {
            Some(why) => self.fail(&mut tx, deposit, &why, now, ticked).await?,
            None if is_unread => deposits::withhold(&mut tx, deposit.id, finalized.number).await?,
            None => deposits::miss(&mut tx, deposit.id, finalized.number, now).await?,
        }
        Ok(tx.commit().await?)
    }

    /// Whether the search that began at `since` is over.
    fn is_gone(&self, since: Option<Timestamp>, now: Timestamp) -> bool {
        since.is_some_and(|since| now.since(since) >= self.settings.failed_grace)
    }

    /// What the source says became of the deposit's transaction. It comes with the block, if that is final and may
    /// decide now: where no roots prove it, it is read when the search begins, and at its end. Second, the block that
    /// was read, if any.
    async fn trace(
        &self,
        Missing { deposit, since }: &Missing,
        finalized: &BlockRef,
        now: Timestamp,
    ) -> Result<(Sought, Option<Looked>), TickError> {
        let nothing =
            Sought { fate: self.source.fate(&deposit.tx, finalized).await?, evidence: None, is_unread: false };
        let decides = self.chain().family().has_roots() || since.is_none() || self.is_gone(*since, now);
        let block = match nothing.fate {
            Fate::In(block) if decides && block.number <= finalized.number => block,
            Fate::In(_) | Fate::Superseded(_) | Fate::Unknown | Fate::Unanswered { .. } => return Ok((nothing, None)),
        };
        if self.withheld.rests(&block, now) {
            return Ok((Sought { is_unread: true, ..nothing }, None));
        }
        Ok(match self.evidence(&block).await? {
            Ok(evidence) => (Sought { evidence: Some(evidence), ..nothing }, Some((block, None))),
            Err(unshown) => (Sought { is_unread: unshown.rests, ..nothing }, Some((block, Some(unshown)))),
        })
    }

    async fn fail(
        &self,
        tx: &mut Tx,
        deposit: Deposit,
        why: &str,
        now: Timestamp,
        ticked: &mut Ticked,
    ) -> Result<(), TickError> {
        warn!(chain = %self.chain(), tx = %deposit.tx.id, "deposit {} failed: {why}", deposit.id);
        enter(tx, deposit.fail()?, now).await?;
        ticked.failed += 1;
        Ok(())
    }
}

/// Why a final block is no evidence yet, and whether there is a pause before it is asked for again.
struct Unshown {
    why: String,
    rests: bool,
}

/// A block that was read; if it was not shown, why.
type Looked = (BlockRef, Option<Unshown>);

/// What became of a transaction; its block, if that is to decide; whether the block cannot be read yet as it must be.
struct Sought {
    fate: Fate,
    evidence: Option<Block>,
    is_unread: bool,
}

/// The deposits of one block that may be confirmed, and by which grant, if the block is not final for all.
pub(in crate::watcher) struct OfBlock {
    seen_in: BlockRef,
    deposits: Vec<Deposit>,
    /// The highest block that any of them needs: if it is canonical, so are all below it.
    grant: Option<Grant>,
}

impl OfBlock {
    fn new(seen_in: BlockRef) -> Self {
        OfBlock::final_for_all(seen_in, Vec::new())
    }

    pub(in crate::watcher) fn final_for_all(seen_in: BlockRef, deposits: Vec<Deposit>) -> Self {
        OfBlock { seen_in, deposits, grant: None }
    }

    fn stronger(one: Option<Grant>, other: Option<Grant>) -> Option<Grant> {
        let reason = [&one, &other].into_iter().flatten().find_map(|grant| grant.reason.clone());
        let highest = one.into_iter().chain(other).max_by_key(|grant| grant.through.number)?;
        Some(Grant { reason, ..highest })
    }
}

/// Why a deposit in no block does not become FAILED, and what a person can do about it.
pub(in crate::watcher) fn unanswered(deposit: &Deposit, why: &str) -> String {
    let Deposit { id, tx, chain, .. } = deposit;
    format!(
        "deposit {id} (transaction {}) is in no block and stays PENDING, for endpoints that may know it could not be asked: {why}; \
         bring them back, or take them out of chains.{chain}.rpc",
        tx.id
    )
}

/// Writes the status to which a PENDING deposit has changed, and its event.
pub(in crate::watcher) async fn enter(tx: &mut Tx, deposit: Deposit, now: Timestamp) -> Result<(), TickError> {
    deposits::set_status(tx, &deposit, DepositStatus::Pending).await?;
    if deposit.status == DepositStatus::Confirmed {
        short::confirmed(tx, &deposit, now).await?;
    }
    Ok(announce(tx, &deposit, now).await?)
}
