//! Settles what only a trace shows. A trace is an endpoint's report, so a final block is not enough: balances must
//! agree, or two endpoints of different engines (`balances`).
//!
//! What was believed when the block was traced (`early_witness`) needs no trace here (`settle::by_witness`).
//! Promises: what is doubtful stays PENDING, with a reason that operators see, and is tried again with growing pauses;
//! doubt alone never makes it FAILED. A leg that was never paid is FAILED as soon as balances exclude it, or two
//! engines deny it. What the roots prove never waits here.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use landfall_chain::{Address, AddressSource, Block, BlockRef, BlockSource, Fate, Inside, Lane, Read, Retry};
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
use crate::watcher::settle::{enter, unanswered};
use crate::watcher::traces::balances::Belief;
use crate::watcher::traces::early_witness::{Doubted, of_all};
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

/// What proves that a block is final.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::watcher) enum FinalBy {
    /// Our record: it is not above the newest final block of our chain.
    Record,
    /// The caller has tied it to what the source calls final, even above our chain.
    Tie,
}

/// What is to become of a deposit that is in no block of ours.
enum Outcome {
    Seen(BlockRef, Lane),
    Failed(String),
    /// Nothing is known yet; the reason, if there is one to report.
    Waits(Option<String>),
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

    /// Settles the deposits of one final block: by their kept witnesses, or by a trace that is read again.
    async fn settle_block(
        &self,
        block: &BlockRef,
        deposits: Vec<Deposit>,
        now: Timestamp,
        traced: &mut Traced,
    ) -> Result<(), TickError> {
        let tried = Tried { block: Some(block.hash), is_final: true, at: now };
        let sighted = witnesses::in_block(&mut self.db.read().await?, self.chain(), &block.hash).await?;
        // If one deposit to an address is undecided, all deposits to it are judged anew.
        let is_open = |it: &SeenInTrace| it.kept.is_none() && it.deposit.status == DepositStatus::Pending;
        let open: HashSet<Address> = sighted.iter().filter(|it| is_open(it)).map(|it| it.deposit.recipient).collect();
        let (others, kept): (Vec<Deposit>, Vec<Deposit>) =
            deposits.into_iter().partition(|it| open.contains(&it.recipient));
        if !kept.is_empty() {
            match or_reason(self.read_again(block, Read::FULL).await)? {
                Ok(roots) => self.judge_kept(&roots, &kept, FinalBy::Record, now, traced).await?,
                Err(why) => self.doubt_all(kept, &why, tried, traced).await?,
            }
        }
        if others.is_empty() {
            return Ok(());
        }
        if let Some(why) = self.not_traced(block) {
            return self.doubt_all(others, &why, tried, traced).await;
        }
        match self.reported_evidence(block).await? {
            Ok(evidence) => {
                // A fuller read may show what the first one hid.
                let mut again = Traced::default();
                self.record(&evidence.traces, evidence.reading, now, &mut again).await?;
                traced.pending += again.pending;
                self.judge(&evidence, &others, FinalBy::Record, now, traced).await
            }
            Err(why) => self.doubt_all(others, &why, tried, traced).await,
        }
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

    /// Settles those `deposits` of a final block that are known to be paid or not paid; puts the others off.
    pub(in crate::watcher) async fn judge(
        &self,
        evidence: &Evidence,
        deposits: &[Deposit],
        final_by: FinalBy,
        now: Timestamp,
        traced: &mut Traced,
    ) -> Result<(), TickError> {
        let roots = &evidence.inside.roots;
        let mut doubted = self.keep_witnesses(evidence, traced).await?;
        self.judge_kept(roots, deposits, final_by, now, traced).await?;
        doubted.retain(|doubted| deposits.iter().any(|deposit| deposit.id == doubted.deposit.id));
        let tried = Tried { block: Some(roots.header.block.hash), is_final: true, at: now };
        self.put_off_witness(doubted, tried, traced).await
    }

    /// Judges a deposit of a trace whose height is final and that is in no block of our chain.
    async fn look_for(
        &self,
        missing: Missing,
        finalized: &BlockRef,
        now: Timestamp,
        traced: &mut Traced,
    ) -> Result<(), TickError> {
        let chain = self.chain();
        let outcome = if traces::is_given_up(&mut self.db.read().await?, missing.deposit.id).await? {
            Outcome::Failed("a person decided that it was not paid".to_owned())
        } else {
            let outcome = or_reason(self.outcome(&missing, finalized, now).await)?;
            outcome.unwrap_or_else(|why| Outcome::Waits(Some(why)))
        };
        let Missing { deposit, .. } = missing;
        let mut tx = self.db.begin().await?;
        Cursor::lock(&mut tx, chain).await?;
        // Connected again meanwhile, or settled by another process? Then it is no longer missing.
        if !deposits::is_missing(&mut tx, &deposit, Lane::Traces, finalized.number).await? {
            return Ok(());
        }
        match outcome {
            Outcome::Seen(block, lane) => {
                if cursors::canonical_at(&mut tx, chain, block.number).await? == Some(block.hash) {
                    deposits::include(&mut tx, &deposit, &block, lane).await?;
                }
            }
            // A deposit of an unlisted asset is not judged: we would not see its leg if it were there.
            Outcome::Failed(why) if self.network.asset(&deposit.asset).is_some() => {
                self.fail(&mut tx, deposit, &why, now, traced).await?;
            }
            Outcome::Failed(_) | Outcome::Waits(None) => {
                deposits::miss(&mut tx, deposit.id, finalized.number, now).await?;
            }
            Outcome::Waits(Some(why)) => {
                deposits::miss(&mut tx, deposit.id, finalized.number, now).await?;
                let tried = Tried { block: None, is_final: true, at: now };
                self.doubt(&mut tx, &Doubted { deposit, why, allowed: None }, tried, traced).await?;
            }
        }
        Ok(tx.commit().await?)
    }

    async fn outcome(&self, missing: &Missing, finalized: &BlockRef, now: Timestamp) -> Result<Outcome, TickError> {
        let Missing { deposit, since } = missing;
        // A block that is not traced yet may hold what no trace has shown so far.
        let are_untraced = traces::are_untraced(&mut self.db.read().await?, self.chain(), 0..=finalized.number).await?;
        let gone = since.is_some_and(|since| now.since(since) >= self.settings.failed_grace);
        let nowhere = || match gone {
            _ if are_untraced => Outcome::Waits(self.never_traced()),
            true => Outcome::Failed("its transaction stayed in no block".to_owned()),
            false => Outcome::Waits(None),
        };
        let block = match self.source.fate(&deposit.tx, finalized).await? {
            Fate::Superseded(_) if are_untraced => return Ok(Outcome::Waits(self.never_traced())),
            Fate::Superseded(by) => {
                return Ok(Outcome::Failed(format!("another transaction took its place by final block {}", by.number)));
            }
            Fate::In(block) if block.number > finalized.number => return Ok(Outcome::Waits(None)),
            Fate::In(block) => block,
            Fate::Unknown => return Ok(nowhere()),
            // No verdict: another endpoint may know it.
            Fate::Unanswered { why, .. } => return Ok(Outcome::Waits(gone.then(|| unanswered(deposit, &why)))),
        };
        match cursors::canonical_at(&mut self.db.read().await?, self.chain(), block.number).await? {
            Some(ours) if ours == block.hash => {}
            // The index is stale.
            Some(_) => return Ok(nowhere()),
            None => {
                return Ok(Outcome::Waits(Some(format!("it is in block {block}, which is not on record (any more)"))));
            }
        }
        let roots = self.read_again(&block, Read::FULL).await?;
        if !roots.txs.contains(&deposit.tx.id) {
            return Ok(nowhere());
        }
        self.outcome_in(roots, deposit).await
    }

    /// The outcome for a deposit whose transaction is in a final block of ours.
    async fn outcome_in(&self, roots: Block, deposit: &Deposit) -> Result<Outcome, TickError> {
        let block = roots.header.block;
        let without = Outcome::Failed(format!("its transaction is in final block {} without it", block.number));
        if shows(&self.network, &roots.transfers, deposit) {
            return Ok(Outcome::Seen(block, Lane::Block));
        }
        if self.network.native.is_logged(block.number) {
            return Ok(without);
        }
        if let Some(why) = self.not_traced(&block) {
            return Ok(Outcome::Waits(Some(why)));
        }
        let (traces, reading) = self.read_traces(&block).await?;
        let evidence = self.evidence_of(traces, reading)?;
        if shows(&self.network, &evidence.traces.transfers, deposit) {
            return Ok(Outcome::Seen(block, Lane::Traces));
        }
        Ok(match self.belief_in(&evidence, deposit).await? {
            Belief::NotPaid(_) => without,
            Belief::Paid(_) => Outcome::Waits(Some(format!(
                "the trace of final block {} does not show it, and the balances of its recipient say that it was paid",
                block.number
            ))),
            Belief::Doubtful(why) => Outcome::Waits(Some(format!(
                "the trace of final block {} does not show it, and that alone does not decide: {why}",
                block.number
            ))),
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

    pub(in crate::watcher) async fn fail(
        &self,
        tx: &mut Tx,
        deposit: Deposit,
        why: &str,
        now: Timestamp,
        traced: &mut Traced,
    ) -> Result<(), TickError> {
        warn!(chain = %self.chain(), tx = %deposit.tx.id, "deposit {} failed: {why}", deposit.id);
        traces::settled(tx, deposit.id).await?;
        enter(tx, deposit.fail()?, now).await?;
        traced.failed += 1;
        Ok(())
    }

    pub(in crate::watcher) async fn doubt_all(
        &self,
        deposits: Vec<Deposit>,
        why: &str,
        tried: Tried,
        traced: &mut Traced,
    ) -> Result<(), TickError> {
        self.put_off_witness(of_all(deposits, why), tried, traced).await
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
