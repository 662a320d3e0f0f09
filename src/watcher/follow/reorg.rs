//! Reorgs: checks whether our newest block is still canonical, finds the fork point, disconnects what is above it.
//!
//! Nothing is deleted: a disconnected block and what was seen in it stay on record, and may be connected again. What
//! counted as final is disconnected only when a person accepts it. That it was replaced, or that all of our record was,
//! needs the same agreement as what is final.

use landfall_chain::{BlockHash, BlockRef, BlockSource, Header, Tip};
use tracing::warn;

use crate::incident::IncidentKind;
use crate::overrides::{Override, Overrides};
use crate::store::cursors::{self, Cursor};
use crate::store::{
    Connection, StoreError, Tx, accounts, audit, balances, deposits, incidents, marks, native_settings, overrides,
};
use crate::time::Timestamp;
use crate::watcher::read::FINAL_BLOCKS_KEPT;
use crate::watcher::settle::over_credit;
use crate::watcher::settle::verdict::audited;
use crate::watcher::{Follower, Replaced, TickError, Ticked};

/// How many headers the first read backwards covers; each further one covers four times as many, up to the maximum.
const LOOK_BACK: u64 = 16;
const LOOK_BACK_MAX: u64 = 256;
/// How many empty reads are made in search of the next block, where numbers are skipped.
const EMPTY_READS_MAX: usize = 100;

/// What must not be disconnected without a person.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Guard {
    replaced: Replaced,
    /// How many CONFIRMED deposits and transfers stand above the fork point.
    confirmed: u64,
}

impl<S: BlockSource> Follower<S> {
    /// Whether the source's tip contradicts our chain. A tip below our cursor whose hash is ours is an endpoint that
    /// lags, no reorg. A fork that shows only at the next block's parent is found by `connect`.
    pub(in crate::watcher) async fn is_off_chain(&self, at: &BlockRef, tip: &Tip) -> Result<bool, TickError> {
        let reported = [Some(tip.latest), tip.finalized].into_iter().chain(tip.tiers.iter().copied()).flatten();
        let mut reader = self.db.read().await?;
        for block in reported.filter(|block| block.number <= at.number) {
            let ours = cursors::canonical_at(&mut reader, self.chain(), block.number).await?;
            if ours.is_some_and(|ours| ours != block.hash) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Disconnects every block above the fork point, in one transaction with the cursor; returns the fork point. `None`
    /// if the anchor is gone and nothing stood on it: the next tick sets a new one.
    pub(in crate::watcher) async fn disconnect(
        &self,
        at: &BlockRef,
        tip: &Tip,
        orders: &Overrides,
        now: Timestamp,
        ticked: &mut Ticked,
    ) -> Result<Option<BlockRef>, TickError> {
        let fork_point = match self.fork_point(at, tip).await {
            Ok(fork_point) if fork_point == *at => return Ok(Some(fork_point)),
            Ok(fork_point) => fork_point,
            Err(deep @ TickError::DeepReorg { oldest, .. }) => {
                self.refute(None, at, tip).await?;
                if self.forget_anchor(at).await? {
                    return Ok(None);
                }
                self.require_replaced(oldest).await?;
                return Err(deep);
            }
            Err(error) => return Err(error),
        };
        self.refute(Some(&fork_point), at, tip).await?;
        let guard = self.guarded(&mut self.db.read().await?, &fork_point).await?;
        let accepted = orders.accepted.as_ref().filter(|(down_to, _)| *down_to <= fork_point.number);
        if let Some(guard) = guard.as_ref().filter(|_| accepted.is_none()) {
            self.require_agreement(guard, &fork_point, at, tip).await?;
        }
        let mut tx = self.db.begin().await?;
        let cursor = Cursor::lock(&mut tx, self.chain()).await?;
        // Another process confirmed more or moved the cursor: the source was asked too little.
        if self.guarded(&mut tx, &fork_point).await? != guard || cursor.at != Some(*at) {
            return Err(StoreError::Moved { chain: self.chain() }.into());
        }
        if let Some(Guard { replaced, confirmed }) = guard {
            match accepted {
                Some((_, reason)) => self.accept(&mut tx, &fork_point, reason, now).await?,
                None => {
                    return Err(TickError::PostFinalityReorg { chain: self.chain(), replaced, fork_point, confirmed });
                }
            }
        }
        self.shift_back(tx, at, &fork_point, ticked).await?;
        Ok(Some(fork_point))
    }

    /// Disconnects our block at `number` and all above it, and whatever was connected across its absence, because
    /// enough endpoints agree on something else. Returns the block below, on which blocks are connected again.
    ///
    /// # Errors
    /// What counted as final is disconnected only if an operator accepted it.
    pub(in crate::watcher) async fn disconnect_to(
        &self,
        at: &BlockRef,
        number: u64,
        orders: &Overrides,
        now: Timestamp,
        ticked: &mut Ticked,
    ) -> Result<BlockRef, TickError> {
        let (chain, noun) = (self.chain(), self.chain().family().number());
        let mut reader = self.db.read().await?;
        let fork_point = cursors::canonical_through(&mut reader, chain, number.saturating_sub(1)).await?;
        drop(reader);
        let what = format!("endpoints agree on another content of {noun} {number} than our record has");
        let Some(fork_point) = fork_point else {
            return Err(TickError::Contradiction { chain, what: format!("{what}, and nothing below it is on record") });
        };
        let mut tx = self.db.begin().await?;
        if Cursor::lock(&mut tx, chain).await?.at != Some(*at) {
            return Err(StoreError::Moved { chain }.into());
        }
        let accepted = orders.accepted.as_ref().filter(|(down_to, _)| *down_to <= fork_point.number);
        match (self.guarded(&mut tx, &fork_point).await?, accepted) {
            (None, _) => {}
            (Some(_), Some((_, reason))) => self.accept(&mut tx, &fork_point, reason, now).await?,
            (Some(Guard { replaced, confirmed }), None) => {
                // What was not cross-checked yet is read again, or not at all.
                let otherwise = match replaced {
                    Replaced::Final(_) => format!(
                        "; where it is not accepted, `landfall chain resume {chain}` first, then `landfall rescan --chain {chain} \
                         --from {number} --to {number} --repair` credits what it pays"
                    ),
                    Replaced::Confirmed(_) => String::new(),
                };
                warn!(
                    chain = %chain,
                    "{what}, and it counted as final. Where a person accepts it, it is read again{otherwise}",
                );
                return Err(TickError::PostFinalityReorg { chain, replaced, fork_point, confirmed });
            }
        }
        warn!(chain = %chain, "{what}: it is read again");
        self.shift_back(tx, at, &fork_point, ticked).await?;
        Ok(fork_point)
    }

    async fn shift_back(
        &self,
        mut tx: Tx,
        at: &BlockRef,
        fork_point: &BlockRef,
        ticked: &mut Ticked,
    ) -> Result<(), TickError> {
        Cursor::shift(&mut tx, self.chain(), at, fork_point).await?;
        let depth = cursors::disconnect(&mut tx, self.chain(), fork_point).await?;
        marks::withdraw(&mut tx, self.chain(), fork_point.number).await?;
        accounts::lower_from(&mut tx, self.chain(), fork_point.number + 1).await?;
        native_settings::lower(&mut tx, self.chain(), fork_point.number + 1).await?;
        tx.commit().await?;
        warn!(chain = %self.chain(), depth, "reorg of depth {depth} on {}: disconnected above {fork_point}", self.chain());
        ticked.disconnected += depth;
        Ok(())
    }

    /// What stands above the fork point and must not be disconnected without a person; `None` if nothing does.
    async fn guarded(
        &self,
        connection: &mut impl Connection,
        fork_point: &BlockRef,
    ) -> Result<Option<Guard>, StoreError> {
        let finalized = Cursor::load(connection, self.chain()).await?.finalized;
        let (confirmed, highest) = deposits::confirmed_above(connection, self.chain(), fork_point.number).await?;
        let (paid, highest_paid) = marks::granted_above(connection, self.chain(), fork_point.number).await?;
        let (confirmed, highest) = (confirmed + paid, highest.max(highest_paid));
        let is_final = finalized.filter(|finalized| finalized.number > fork_point.number).map(Replaced::Final);
        Ok(is_final.or(highest.map(Replaced::Confirmed)).map(|replaced| Guard { replaced, confirmed }))
    }

    /// One endpoint reports headers. The final block that enough endpoints agree on refutes them if it is a block of
    /// ours above the fork point: then that endpoint is on a stale fork, and we are not.
    async fn refute(&self, fork_point: Option<&BlockRef>, at: &BlockRef, tip: &Tip) -> Result<(), TickError> {
        let from = fork_point.map_or(0, |fork_point| fork_point.number + 1);
        for (agreed, ours) in self.agreed(from, at, tip).await? {
            if agreed.hash == ours {
                let what = format!("a fork is shown below block {agreed}, which is agreed to be final, and ours");
                return Err(TickError::Contradiction { chain: self.chain(), what });
            }
        }
        Ok(())
    }

    /// That a final block of ours was replaced needs the agreement that a final block needs. The agreed block must not
    /// be ours, and must hang on the fork point by parent links that pass none of ours.
    async fn require_agreement(
        &self,
        guard: &Guard,
        fork_point: &BlockRef,
        at: &BlockRef,
        tip: &Tip,
    ) -> Result<(), TickError> {
        let number = match guard.replaced {
            Replaced::Final(finalized) => finalized.number,
            Replaced::Confirmed(number) => number,
        };
        let reported = self.agreed(fork_point.number + 1, at, tip).await?.into_iter().map(|(block, _)| block);
        let agreed = match reported.min_by_key(|block| block.number) {
            Some(block) => Some(block),
            None => self.source.final_at(number).await?,
        };
        let what = match agreed {
            Some(agreed) if self.leads_off(fork_point, &agreed).await? => return Ok(()),
            Some(agreed) => {
                format!("what leads from block {fork_point} to block {agreed}, which is agreed, is not shown")
            }
            None => "no final block there is agreed yet".to_owned(),
        };
        let what = format!("a fork is shown below block {number}, which counted as final; {what}");
        Err(TickError::Contradiction { chain: self.chain(), what })
    }

    /// Only headers, from one endpoint, show that all of our record was replaced. So enough endpoints must call another
    /// block final at the number of the `oldest` on record.
    async fn require_replaced(&self, oldest: u64) -> Result<(), TickError> {
        let ours = cursors::canonical_at(&mut self.db.read().await?, self.chain(), oldest).await?;
        let what = match self.source.final_at(oldest).await? {
            Some(agreed) if ours != Some(agreed.hash) => return Ok(()),
            Some(_) => "which is agreed to be final",
            None => "and no block is agreed to be final there",
        };
        let what = format!("a fork is shown below block {oldest}, the oldest on record, {what}");
        Err(TickError::Contradiction { chain: self.chain(), what })
    }

    /// Whether the source's headers lead from the fork point to the block `to` without any block of ours.
    async fn leads_off(&self, fork_point: &BlockRef, to: &BlockRef) -> Result<bool, TickError> {
        let mut parent = *fork_point;
        let mut from = parent.number + 1;
        while from <= to.number {
            let range = from..=to.number.min(from + LOOK_BACK_MAX - 1);
            let headers = self.source.headers(range.clone()).await?;
            let mut reader = self.db.read().await?;
            let ours = cursors::canonical_in(&mut reader, self.chain(), *range.start(), *range.end()).await?;
            drop(reader);
            if headers.iter().any(|header| ours.contains(&header.block)) {
                return Ok(false);
            }
            from = headers.last().map_or(*range.end(), |last| last.block.number) + 1;
            for header in headers {
                if header.parent != parent {
                    return Ok(false);
                }
                parent = header.block;
            }
        }
        Ok(parent == *to)
    }

    /// What `tip` reports as final from block `from` up to the end of our chain, each with the hash of our block there.
    async fn agreed(&self, from: u64, at: &BlockRef, tip: &Tip) -> Result<Vec<(BlockRef, BlockHash)>, StoreError> {
        let reported = [tip.finalized].into_iter().chain(tip.tiers.iter().copied()).flatten();
        let mut agreed = Vec::new();
        let mut reader = self.db.read().await?;
        for block in reported.filter(|block| (from..=at.number).contains(&block.number)) {
            let ours = cursors::canonical_at(&mut reader, self.chain(), block.number).await?;
            agreed.extend(ours.map(|ours| (block, ours)));
        }
        Ok(agreed)
    }

    /// Disconnects what was final down to the fork point, once, because an operator accepted it; resolves the incident.
    async fn accept(&self, tx: &mut Tx, fork_point: &BlockRef, reason: &str, now: Timestamp) -> Result<(), TickError> {
        let chain = self.chain();
        over_credit::taken_back(tx, chain, fork_point, now).await?;
        Cursor::refinalize(tx, chain, fork_point).await?;
        balances::disconnect_to(tx, chain, fork_point.number, now).await?;
        overrides::remove(tx, chain, (Override::AcceptReorg { down_to: 0 }).kind()).await?;
        for incident in incidents::open(tx).await? {
            if incident.chain == chain && incident.kind == IncidentKind::PostFinalityReorg {
                incidents::resolve(tx, &incident.id, &format!("accepted: {reason}"), now).await?;
            }
        }
        let what = format!("blocks above {fork_point} are taken back although they counted as final");
        audit::append(tx, &audited(self.chain(), "accepted_reorg", what, reason, now)).await?;
        Ok(())
    }

    /// Forgets the anchor if nothing was ever recorded above it; returns whether it did.
    async fn forget_anchor(&self, at: &BlockRef) -> Result<bool, TickError> {
        let mut tx = self.db.begin().await?;
        Cursor::lock(&mut tx, self.chain()).await?;
        let forgotten = Cursor::unplace(&mut tx, self.chain(), at).await?;
        tx.commit().await?;
        if forgotten {
            warn!(chain = %self.chain(), "block {at}, which {} was taken up at, is gone; it is taken up anew", self.chain());
        }
        Ok(forgotten)
    }

    /// The newest block that is both on our chain and on the source's.
    async fn fork_point(&self, at: &BlockRef, tip: &Tip) -> Result<BlockRef, TickError> {
        let chain = self.chain();
        let mut reader = self.db.read().await?;
        let finalized = Cursor::load(&mut reader, chain).await?.finalized.map_or(0, |finalized| finalized.number);
        // Evidence of long ago stays on record too; a fork that deep needs a person whatever its depth.
        let oldest = cursors::oldest_from(&mut reader, chain, finalized.saturating_sub(FINAL_BLOCKS_KEPT)).await?;
        let oldest = oldest.unwrap_or(at.number);
        drop(reader);
        // The newest block may come from an endpoint that lags behind what is final: that is no deeper fork.
        let reported = [Some(tip.latest), tip.finalized].into_iter().chain(tip.tiers.iter().copied()).flatten();
        let newest = reported.map(|block| block.number).max().unwrap_or(at.number);
        let mut highest = at.number.min(newest);
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

    /// The source's headers `lowest..=highest`, none missing. If a response ended early, blocks that the source does
    /// not have yet would look forked.
    async fn complete_headers(&self, lowest: u64, highest: u64, tip: &Tip) -> Result<Vec<Header>, TickError> {
        let headers = self.source.headers(lowest..=highest).await?;
        let linked = headers.windows(2).all(|pair| pair[1].parent == pair[0].block);
        let last = headers.last().map(|header| header.block);
        let mut complete = linked && last.is_some_and(|last| last.number == highest);
        if linked && !complete {
            // On chains that skip numbers, the next block's parent shows that there is nothing between.
            complete = self.first_above(highest, tip).await?.is_some_and(|next| match last {
                Some(last) => next.parent == last,
                None => next.parent.number < lowest,
            });
        }
        if complete {
            return Ok(headers);
        }
        let what = format!("the newest block is {}, but headers {lowest} to {highest} are not all shown", tip.latest);
        Err(TickError::Contradiction { chain: self.chain(), what })
    }

    /// The source's first header above `number`. It may lie behind as many skipped numbers as [`EMPTY_READS_MAX`] reads
    /// cover.
    async fn first_above(&self, number: u64, tip: &Tip) -> Result<Option<Header>, TickError> {
        let mut from = number + 1;
        for _ in 0..EMPTY_READS_MAX {
            if from > tip.latest.number {
                break;
            }
            let to = tip.latest.number.min(from + LOOK_BACK_MAX - 1);
            let headers = self.source.headers(from..=to).await?;
            if let Some(first) = headers.into_iter().next() {
                return Ok(Some(first));
            }
            from = to + 1;
        }
        Ok(None)
    }
}
