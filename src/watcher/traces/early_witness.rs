//! Judges what a trace shows when the block is traced. On some chains nodes forget the state of a block long before it
//! is final; then neither another trace nor its balances can be read.
//!
//! Promises: what is believed is kept with the sighting, for one block only. A block that concerns none of our
//! addresses costs no request, any other two light ones for each `ADDRESSES_MAX` addresses. What is doubtful is tried
//! again with growing pauses, here while its block is not final (`witness` does it afterwards). Nothing is settled here:
//! a leg that is denied fails when the block is final, not before. After each reading that adds a leg, all legs to its
//! address are judged anew.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use landfall_chain::{Address, AddressSource, Block, BlockHash, BlockRef, BlockSource, Lane};
use tracing::warn;

use crate::deposit::{Deposit, DepositId, DepositStatus};
use crate::store::cursors::{self, Cursor};
use crate::store::movements::Debited;
use crate::store::traces::Tried;
use crate::store::witnesses::{Kept, SeenInTrace, WitnessedBy};
use crate::store::{Tx, movements, witnesses};
use crate::time::Timestamp;
use crate::watcher::TickError;
use crate::watcher::error::or_reason;
use crate::watcher::settle::verdict::Doubted;
use crate::watcher::traces::balances::{Belief, Judged, Judgement, States};
use crate::watcher::traces::witness::Evidence;
use crate::watcher::traces::{Reading, TraceLane, Traced};

/// For how many deposits a tick seeks a witness at most, and in how many blocks that must be read again for it.
const TICK_DEPOSITS_MAX: u32 = 200;
const TICK_AGAIN_MAX: usize = 8;

/// For how many addresses the states are requested at once: where a node refuses many, each try gets further.
const ADDRESSES_MAX: usize = 25;

impl<S: BlockSource + AddressSource> TraceLane<S> {
    /// Seeks the witness of deposits in blocks that are not final yet. `fresh` are readings that were just made: they
    /// need not be traced again.
    pub(in crate::watcher) async fn seek_witnesses(
        &self,
        fresh: Vec<Block>,
        now: Timestamp,
        traced: &mut Traced,
    ) -> Result<(), TickError> {
        let (chain, mut reader) = (self.chain(), self.db.read().await?);
        let finalized = Cursor::load(&mut reader, chain).await?.finalized;
        let due = witnesses::due(&mut reader, chain, finalized.as_ref(), now, TICK_DEPOSITS_MAX).await?;
        drop(reader);
        let mut readings: HashMap<BlockHash, Vec<Block>> = HashMap::new();
        let mut by_block: BTreeMap<u64, (BlockRef, Vec<Deposit>)> = BTreeMap::new();
        for block in fresh {
            // Also blocks in which an address only lost something, as the trace reports.
            let at = block.header.block;
            by_block.entry(at.number).or_insert_with(|| (at, Vec::new()));
            readings.entry(at.hash).or_default().push(block);
        }
        for due in due {
            by_block.entry(due.block.number).or_insert_with(|| (due.block, Vec::new())).1.push(due.deposit);
        }
        let mut again = 0;
        for (block, deposits) in by_block.into_values() {
            let doubted = match (self.not_traced(&block), readings.remove(&block.hash)) {
                (Some(why), _) => of_all(deposits, &why),
                (None, Some(readings)) => self.witness_fresh(readings, traced).await?,
                (None, None) if again == TICK_AGAIN_MAX => {
                    traced.more = true;
                    continue;
                }
                (None, None) => {
                    again += 1;
                    self.witness_again(&block, deposits, now, traced).await?
                }
            };
            let tried = Tried { block: Some(block.hash), is_final: false, at: now };
            self.put_off_witness(doubted, tried, traced).await?;
        }
        Ok(())
    }

    /// Judges by readings of one block that are at hand.
    async fn witness_fresh(&self, readings: Vec<Block>, traced: &mut Traced) -> Result<Vec<Doubted>, TickError> {
        // An address that any reading reports as created may have run code.
        let ran_code: BTreeSet<Address> =
            readings.iter().filter_map(|block| block.inside.as_ref()).flat_map(|it| &it.ran_code).copied().collect();
        let mut doubted = Vec::new();
        for traces in readings {
            let mut evidence = self.evidence_of(traces, Reading::Whole)?;
            Arc::make_mut(&mut evidence.inside).ran_code.clone_from(&ran_code);
            // Each reading may decide what the one before did not.
            doubted = self.keep_witnesses(&evidence, traced).await?;
        }
        Ok(doubted)
    }

    /// Judges by a new reading.
    pub(in crate::watcher) async fn witness_again(
        &self,
        block: &BlockRef,
        deposits: Vec<Deposit>,
        now: Timestamp,
        traced: &mut Traced,
    ) -> Result<Vec<Doubted>, TickError> {
        let evidence = match self.reported_evidence(block).await? {
            Ok(evidence) => evidence,
            Err(why) => return Ok(of_all(deposits, &why)),
        };
        // A fuller read may show what the first one hid.
        let mut recorded = Traced::default();
        let read = or_reason(self.record(&evidence.traces, evidence.reading, now, &mut recorded).await)?;
        traced.pending += recorded.pending;
        match read {
            Ok(_) => self.keep_witnesses(&evidence, traced).await,
            Err(why) => Ok(of_all(deposits, &why)),
        }
    }

    /// Keeps what is believed of the block, address by address, and removes debits that cannot have happened; returns
    /// what is doubtful.
    pub(in crate::watcher) async fn keep_witnesses(
        &self,
        evidence: &Evidence,
        traced: &mut Traced,
    ) -> Result<Vec<Doubted>, TickError> {
        let header = evidence.inside.roots.header;
        let mut reader = self.db.read().await?;
        let sighted = witnesses::in_block(&mut reader, self.chain(), &header.block.hash).await?;
        let debited = movements::debits_in(&mut reader, self.chain(), &header.block.hash).await?;
        drop(reader);
        let open = |it: &&SeenInTrace| it.kept.is_none() && it.deposit.status == DepositStatus::Pending;
        let lost = debited.iter().filter(|it| it.lane == Lane::Traces).map(|it| it.sender);
        let addresses: BTreeSet<Address> =
            sighted.iter().filter(open).map(|it| it.deposit.recipient).chain(lost).collect();
        let addresses: Vec<Address> = addresses.into_iter().collect();
        if addresses.is_empty() {
            return Ok(Vec::new());
        }
        let mut doubted = Vec::new();
        for (at, some) in addresses.chunks(ADDRESSES_MAX).enumerate() {
            let states = match or_reason(self.states(&header, some).await)? {
                Ok(states) => states,
                Err(why) => {
                    // What was decided before stays: the next try gets further.
                    let rest: HashSet<Address> = addresses[at * ADDRESSES_MAX..].iter().copied().collect();
                    let open = sighted.iter().filter(open).filter(|it| rest.contains(&it.deposit.recipient));
                    doubted.extend(of_all(open.map(|it| it.deposit.clone()).collect(), &why));
                    return Ok(doubted);
                }
            };
            let mut judged = Vec::with_capacity(some.len());
            for address in some {
                let deposits = sighted.iter().map(|it| &it.deposit).filter(|it| it.recipient == *address);
                let deposits: Vec<Deposit> = deposits.cloned().collect();
                match or_reason(self.judge_address(evidence, &states, address, &deposits).await)? {
                    Ok(judgement) => judged.push((*address, judgement)),
                    Err(why) => {
                        let open = sighted.iter().filter(open).filter(|it| it.deposit.recipient == *address);
                        doubted.extend(of_all(open.map(|it| it.deposit.clone()).collect(), &why));
                    }
                }
            }
            doubted.extend(self.keep_of(evidence, &states, judged, traced).await?);
        }
        Ok(doubted)
    }

    /// Keeps, in one transaction, what is believed of the deposits to some addresses; returns what is doubtful.
    async fn keep_of(
        &self,
        evidence: &Evidence,
        states: &States,
        judged: Vec<(Address, Judgement)>,
        traced: &mut Traced,
    ) -> Result<Vec<Doubted>, TickError> {
        let (chain, block) = (self.chain(), evidence.inside.roots.header.block);
        let mut tx = self.db.begin().await?;
        Cursor::lock(&mut tx, chain).await?;
        if cursors::canonical_at(&mut tx, chain, block.number).await? != Some(block.hash) {
            return Ok(Vec::new());
        }
        let mut by_address: HashMap<Address, Vec<SeenInTrace>> = HashMap::new();
        for sighted in witnesses::in_block(&mut tx, chain, &block.hash).await? {
            by_address.entry(sighted.deposit.recipient).or_default().push(sighted);
        }
        let (mut doubted, mut witnessed) = (Vec::new(), 0);
        for (address, Judgement { deposits, loses_nothing_inside }) in judged {
            let by_id: HashMap<DepositId, Judged> = deposits.into_iter().map(|judged| (judged.id, judged)).collect();
            let sighted = by_address.remove(&address).unwrap_or_default();
            // Another reading added a deposit meanwhile: all of them are judged together.
            if sighted.iter().any(|it| !by_id.contains_key(&it.deposit.id)) {
                continue;
            }
            for SeenInTrace { deposit, kept } in sighted {
                let Some(judged) = by_id.get(&deposit.id) else { continue };
                if deposit.status != DepositStatus::Pending {
                    continue;
                }
                match (&judged.belief, kept) {
                    // A person decided what was doubtful: only balances that exclude it overrule that.
                    (belief, Some(Kept { by: WitnessedBy::Person, .. }))
                        if *belief != Belief::NotPaid(WitnessedBy::Balances) => {}
                    (Belief::Paid(by), _) => {
                        self.keep(&mut tx, &block, &deposit, (*by, true), judged).await?;
                        witnessed += 1;
                    }
                    (Belief::NotPaid(by), _) => {
                        self.keep(&mut tx, &block, &deposit, (*by, false), judged).await?;
                        witnessed += 1;
                    }
                    // What was decided while the state was there is not forgotten because the state is gone.
                    (Belief::Doubtful(_), Some(_)) if matches!(states, States::Gone(_)) => {}
                    (Belief::Doubtful(why), kept) => {
                        if kept.is_some() {
                            witnesses::forget(&mut tx, chain, deposit.id, &block.hash).await?;
                        }
                        let allowed = loses_nothing_inside.then_some(judged.paid_in_block);
                        doubted.push(Doubted { deposit, why: why.clone(), allowed });
                    }
                }
            }
            if loses_nothing_inside {
                self.set_aside_debits(&mut tx, &block, &address).await?;
            }
        }
        tx.commit().await?;
        traced.witnessed += witnessed;
        Ok(doubted)
    }

    /// Removes the debits of `address` that traces of the block put on record.
    async fn set_aside_debits(&self, tx: &mut Tx, block: &BlockRef, address: &Address) -> Result<(), TickError> {
        let chain = self.chain();
        let is_false = |it: &Debited| it.lane == Lane::Traces && it.sender == *address;
        for debited in movements::debits_in(tx, chain, &block.hash).await?.into_iter().filter(is_false) {
            let (of, number) = (debited.tx, block.number);
            warn!(%chain, tx = %of, "a trace of block {number} shows value leave {address} inside, which has no code: set aside");
            movements::undebit(tx, chain, block, &debited).await?;
        }
        Ok(())
    }

    pub(in crate::watcher) async fn put_off_witness(
        &self,
        doubted: Vec<Doubted>,
        tried: Tried,
        traced: &mut Traced,
    ) -> Result<(), TickError> {
        if doubted.is_empty() {
            return Ok(());
        }
        let mut tx = self.db.begin().await?;
        Cursor::lock(&mut tx, self.chain()).await?;
        for doubted in doubted {
            self.doubt(&mut tx, &doubted, tried, traced).await?;
        }
        Ok(tx.commit().await?)
    }

    /// Keeps what the witness `by` says of the deposit: whether the leg is there.
    async fn keep(
        &self,
        tx: &mut Tx,
        block: &BlockRef,
        deposit: &Deposit,
        (by, is_shown): (WitnessedBy, bool),
        judged: &Judged,
    ) -> Result<(), TickError> {
        let chain = self.chain();
        if !is_shown {
            let (id, by, number) = (deposit.id, by.name(), block.number);
            warn!(%chain, tx = %deposit.tx.id, "deposit {id} is denied by a witness ({by}); it fails when block {number} is final");
        }
        let Judged { paid_in_tx, paid_in_block, sender, .. } = *judged;
        let kept = Kept { by, is_shown, sender: sender.unwrap_or(deposit.sender), paid_in_tx, paid_in_block };
        Ok(witnesses::keep(tx, chain, deposit.id, &block.hash, &kept).await?)
    }
}

pub(in crate::watcher) fn of_all(deposits: Vec<Deposit>, why: &str) -> Vec<Doubted> {
    deposits.into_iter().map(|deposit| Doubted { deposit, why: why.to_owned(), allowed: None }).collect()
}
