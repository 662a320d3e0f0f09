//! Settles what only a trace shows. A trace is an endpoint's report, so a final block is not enough: balances must
//! agree, or two endpoints of different engines (`balances`).
//!
//! A deposit is judged by the witness that was kept of it (`settle::verdict`), usually when the block was traced
//! (`early_witness`). One without a witness first seeks it here.
//! Promises: what is doubtful stays PENDING, with a reason that operators see, and is tried again with growing pauses;
//! doubt alone never makes it FAILED. A leg that was never paid is FAILED as soon as balances exclude it, or two
//! engines deny it. What the roots prove never waits here.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use landfall_chain::{Address, AddressSource, Block, BlockRef, BlockSource, Inside, Lane, Read, Retry};
use tracing::warn;

use crate::deposit::{Deposit, DepositStatus};
use crate::store::cursors::{self, Cursor};
use crate::store::deposits::{self, Missing};
use crate::store::traces::Tried;
use crate::store::witnesses::SeenInTrace;
use crate::store::{Tx, traces, witnesses};
use crate::time::Timestamp;
use crate::watcher::books::leg::shows;
use crate::watcher::error::or_reason;
use crate::watcher::settle::missing::{Found, Leg, Search, Untraced, final_block, leg_by_roots, settle_missing};
use crate::watcher::settle::verdict::{self, Doubted, FinalBy, OfBlock, Settled};
use crate::watcher::traces::balances::Belief;
use crate::watcher::traces::early_witness::of_all;
use crate::watcher::traces::{Reading, TraceLane, Traced};
use crate::watcher::{TickError, halted};

/// How many deposits a tick settles at most, in how many blocks, and how many missing ones it looks for.
const TICK_DEPOSITS_MAX: u32 = 200;
const TICK_EVIDENCE_MAX: usize = 8;
const TICK_MISSING_MAX: u32 = 10;
/// How long a deposit without a witness waits for the next try: twice as long each time, up to the maximum.
const PAUSE_FIRST: Duration = Duration::from_secs(10);
const PAUSE_MAX: Duration = Duration::from_secs(600);
/// Before its block is final, nodes have its state for minutes only: 128 blocks are four on a chain of 2 s.
const PAUSE_FIRST_EARLY: Duration = Duration::from_secs(2);

/// A block of ours, read again.
pub(in crate::watcher) struct Evidence {
    pub(in crate::watcher) traces: Block,
    /// What is proved of the same block, and who reported its traces.
    pub(in crate::watcher) inside: Arc<Inside>,
    pub(in crate::watcher) reading: Reading,
}

impl<S: BlockSource + AddressSource> TraceLane<S> {
    pub(in crate::watcher) async fn settle(&self, now: Timestamp, traced: &mut Traced) -> Result<(), TickError> {
        let chain = self.chain();
        let mut reader = self.db.read().await?;
        let Some(finalized) = Cursor::load(&mut reader, chain).await?.finalized else { return Ok(()) };
        // While a person must decide, nothing is settled in this lane either.
        if halted(&mut reader, chain).await?.is_some() {
            return Ok(());
        }
        let due = traces::settleable(&mut reader, chain, finalized.number, now, TICK_DEPOSITS_MAX).await?;
        let missing = deposits::missing(&mut reader, chain, Lane::Traces, finalized.number, TICK_MISSING_MAX).await?;
        drop(reader);

        let list_is_cut = u32::try_from(due.len()) == Ok(TICK_DEPOSITS_MAX);
        let mut by_block: BTreeMap<u64, (BlockRef, Vec<Deposit>)> = BTreeMap::new();
        for due in due {
            let (_, deposits) = by_block.entry(due.block.number).or_insert_with(|| (due.block, Vec::new()));
            deposits.push(due.deposit);
        }
        // Each of them is settled or put off, so more is due only if this list was cut.
        traced.more |= list_is_cut || by_block.len() > TICK_EVIDENCE_MAX || missing.len() == TICK_MISSING_MAX as usize;
        for (block, deposits) in by_block.into_values().take(TICK_EVIDENCE_MAX) {
            self.settle_block(&block, deposits, now, traced).await?;
        }
        for missing in missing {
            self.look_for(missing, &finalized, now, traced).await?;
        }
        Ok(())
    }

    /// Settles the deposits of one final block by their witnesses, which are sought first where there are none.
    async fn settle_block(
        &self,
        block: &BlockRef,
        deposits: Vec<Deposit>,
        now: Timestamp,
        traced: &mut Traced,
    ) -> Result<(), TickError> {
        let seen = witnesses::in_block(&mut self.db.read().await?, self.chain(), &block.hash).await?;
        // If one deposit to an address is undecided, all deposits to it are judged anew.
        let is_open = |it: &SeenInTrace| it.kept.is_none() && it.deposit.status == DepositStatus::Pending;
        let open: HashSet<Address> = seen.iter().filter(|it| is_open(it)).map(|it| it.deposit.recipient).collect();
        let undecided: Vec<Deposit> = deposits.iter().filter(|it| open.contains(&it.recipient)).cloned().collect();
        let doubted = match self.not_traced(block) {
            _ if undecided.is_empty() => Vec::new(),
            Some(why) => of_all(undecided, &why),
            None => self.witness_again(block, undecided, now, traced).await?,
        };
        let of_block = OfBlock { seen_in: *block, lane: Lane::Traces, deposits, final_by: FinalBy::Record };
        self.judge(of_block, doubted, now, traced).await
    }

    /// Judges the deposits of a final block by its roots and what is kept of its trace. Those that are `doubted`, for
    /// which a witness was sought in vain, are put off.
    pub(in crate::watcher) async fn judge(
        &self,
        mut of_block: OfBlock,
        mut doubted: Vec<Doubted>,
        now: Timestamp,
        traced: &mut Traced,
    ) -> Result<(), TickError> {
        let block = of_block.seen_in;
        doubted.retain(|doubted| of_block.deposits.iter().any(|deposit| deposit.id == doubted.deposit.id));
        of_block.deposits.retain(|deposit| doubted.iter().all(|doubted| deposit.id != doubted.deposit.id));
        if !of_block.deposits.is_empty() {
            match or_reason(self.read_again(&block, Read::FULL).await)? {
                Ok(roots) => {
                    let settled = verdict::judge(&self.db, &self.network, &roots, of_block, now).await?;
                    doubted.extend(traced.take_in(settled));
                }
                Err(why) => doubted.extend(of_all(of_block.deposits, &why)),
            }
        }
        let tried = Tried { block: Some(block.hash), is_final: true, at: now };
        self.put_off_witness(doubted, tried, traced).await
    }

    /// The evidence of a block; the inner error says why it cannot be read.
    pub(in crate::watcher) async fn reported_evidence(
        &self,
        block: &BlockRef,
    ) -> Result<Result<Evidence, String>, TickError> {
        let read = self.read_traces(block).await;
        or_reason(read.and_then(|(traces, reading)| self.evidence_of(traces, reading)))
    }

    pub(in crate::watcher) fn evidence_of(&self, traces: Block, reading: Reading) -> Result<Evidence, TickError> {
        let inside = traces.inside.clone().ok_or_else(|| {
            let what = format!("the traces of block {} come without what its roots prove", traces.header.block);
            TickError::Contradiction { chain: self.chain(), what }
        })?;
        Ok(Evidence { traces, inside, reading })
    }

    /// Looks for a deposit in no block of ours, and settles it by what is found.
    async fn look_for(
        &self,
        missing: Missing,
        finalized: &BlockRef,
        now: Timestamp,
        traced: &mut Traced,
    ) -> Result<(), TickError> {
        let Missing { deposit, since } = missing;
        let mut reader = self.db.read().await?;
        let is_given_up = traces::is_given_up(&mut reader, deposit.id).await?;
        // A block that is not traced yet may hold what no trace has shown so far.
        let untraced = match traces::are_untraced(&mut reader, self.chain(), 0..=finalized.number).await? {
            false => Untraced::None,
            true => self.never_traced().map_or(Untraced::Some, Untraced::Forever),
        };
        drop(reader);
        let found = match is_given_up {
            true => Found::GivenUp,
            false => or_reason(self.find(&deposit, finalized).await)?.unwrap_or_else(Found::Failed),
        };
        let is_over = since.is_some_and(|since| now.since(since) >= self.settings.failed_grace);
        let search = Search { lane: Lane::Traces, untraced, is_over };
        let case = (deposit, found, search);
        let settled = settle_missing(&self.db, &self.network, case, finalized, now).await?;
        let tried = Tried { block: None, is_final: true, at: now };
        let doubted = traced.take_in(settled);
        self.put_off_witness(doubted, tried, traced).await
    }

    async fn find(&self, deposit: &Deposit, finalized: &BlockRef) -> Result<Found, TickError> {
        let fate = self.source.fate(&deposit.tx, finalized).await?;
        let Some(block) = final_block(&fate, finalized) else { return Ok(Found::Nowhere(fate)) };
        let ours = cursors::canonical_at(&mut self.db.read().await?, self.chain(), block.number).await?;
        if ours != Some(block.hash) {
            return Ok(Found::Unread(block));
        }
        let roots = self.read_again(&block, Read::FULL).await?;
        let leg = match leg_by_roots(&self.network, &roots, deposit) {
            Leg::Missing if !self.network.native.is_logged(block.number) => self.leg_inside(&block, deposit).await?,
            leg => leg,
        };
        Ok(Found::In(block, leg))
    }

    /// What the traces of a block of ours show of a deposit whose transaction is there.
    async fn leg_inside(&self, block: &BlockRef, deposit: &Deposit) -> Result<Leg, TickError> {
        if let Some(why) = self.not_traced(block) {
            return Ok(Leg::Doubtful(why));
        }
        let (traces, reading) = self.read_traces(block).await?;
        let evidence = self.evidence_of(traces, reading)?;
        if shows(&self.network, &evidence.traces.transfers, deposit) {
            return Ok(Leg::Shown(Lane::Traces));
        }
        let doubtful = |why: String| {
            Leg::Doubtful(format!("the trace of final block {} does not show it, and {why}", block.number))
        };
        Ok(match self.belief_in(&evidence, deposit).await? {
            Belief::NotPaid(_) => Leg::Missing,
            Belief::Paid(_) => doubtful("the balances of its recipient say that it was paid".to_owned()),
            Belief::Doubtful(why) => doubtful(format!("that alone does not decide: {why}")),
        })
    }

    /// What is believed of a deposit that no reading of the block has shown.
    async fn belief_in(&self, evidence: &Evidence, deposit: &Deposit) -> Result<Belief, TickError> {
        let header = evidence.inside.roots.header;
        let sighted = witnesses::in_block(&mut self.db.read().await?, self.chain(), &header.block.hash).await?;
        let others = sighted.into_iter().map(|sighted| sighted.deposit).filter(|it| it.recipient == deposit.recipient);
        let deposits: Vec<Deposit> = others.filter(|it| it.id != deposit.id).chain([deposit.clone()]).collect();
        let states = self.states(&header, &[deposit.recipient]).await?;
        let judgement = self.judge_address(evidence, &states, &deposit.recipient, &deposits).await?;
        let judged = judgement.deposits.into_iter().find(|judged| judged.id == deposit.id);
        Ok(judged.map_or_else(|| Belief::Doubtful("it was not judged".to_owned()), |judged| judged.belief))
    }

    /// Why the block's trace is not read; `None` where it is.
    pub(in crate::watcher) fn not_traced(&self, block: &BlockRef) -> Option<String> {
        let (chain, number) = (self.chain(), block.number);
        (!self.network.native.is_traced(number)).then(|| {
            format!(
                "block {number} is not traced any more, by chains.{chain}.native or chains.{chain}.eip7708_from, and its trace \
                 had no second witness before; have it traced again until this is settled, or, where the chain's own logs \
                 tell what moves inside of transactions, read the block again (landfall backfill)"
            )
        })
    }

    /// Why blocks that were connected to be traced stay untraced; `None` where the lane will still come to them.
    fn never_traced(&self) -> Option<String> {
        let chain = self.chain();
        (!self.is_traced()).then(|| {
            format!(
                "it is in no block of ours, and blocks that may show it were to be traced and are not any more, by \
                 chains.{chain}.native; have them traced again until this is settled"
            )
        })
    }

    /// Puts a deposit off, and logs the first time.
    pub(in crate::watcher) async fn doubt(
        &self,
        tx: &mut Tx,
        Doubted { deposit, why, allowed }: &Doubted,
        tried: Tried,
        traced: &mut Traced,
    ) -> Result<(), TickError> {
        let chain = self.chain();
        let pause = if tried.is_final { pause_after } else { pause_before_final };
        if traces::doubt(tx, chain, deposit.id, why, tried, allowed.as_ref(), pause).await? == 0 {
            warn!(%chain, tx = %deposit.tx.id, "deposit {} is doubtful and stays PENDING: {why}", deposit.id);
        }
        traced.doubted += 1;
        Ok(())
    }
}

impl Traced {
    /// Counts what was settled; returns what is to be put off.
    fn take_in(&mut self, Settled { confirmed, failed, doubted }: Settled) -> Vec<Doubted> {
        self.confirmed += confirmed;
        self.failed += failed;
        doubted
    }
}

/// The pause after a failed try, by how many tries had failed before it.
pub(in crate::watcher) fn pause_after(tries: u32) -> Duration {
    Retry::pause(PAUSE_FIRST, PAUSE_MAX, tries)
}

/// As [`pause_after`], while the block is not final.
fn pause_before_final(tries: u32) -> Duration {
    Retry::pause(PAUSE_FIRST_EARLY, PAUSE_MAX, tries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_between_tries_grow_up_to_ten_minutes() {
        assert_eq!(
            [0, 1, 2, 5, 6, 7, u32::MAX].map(|tries| pause_after(tries).as_secs()),
            [10, 20, 40, 320, 600, 600, 600]
        );
        assert_eq!(
            [0, 1, 2, 8, 9, u32::MAX].map(|tries| pause_before_final(tries).as_secs()),
            [2, 4, 8, 512, 600, 600]
        );
    }
}
