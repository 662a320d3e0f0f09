//! Takes the second witness of what a trace shows when the block is traced: nodes forget the state of a block long before
//! it is final on some chains, and then neither another trace of it nor its balances can be had.
//!
//! Promises: a witness is kept with the sighting and is of one block only; a block that pays nobody of ours costs no request.
//! What has none yet is tried again with growing pauses while its block is not final. Nothing is settled here: a leg that a
//! witness denies fails when the block is final, not before. Two endpoints' word takes the place of what was kept; balances
//! count only where nothing that is kept contradicts them.

use std::collections::{BTreeMap, HashMap};

use landfall_chain::{Address, AddressSource, Block, BlockHash, BlockRef, BlockSource, Proof, Read};
use tracing::warn;

use crate::deposit::{Deposit, DepositStatus};
use crate::store::cursors::{self, Cursor};
use crate::store::traces::Tried;
use crate::store::witnesses::{Kept, Sighted, WitnessedBy};
use crate::store::{Tx, traces, witnesses};
use crate::time::Timestamp;
use crate::watcher::TickError;
use crate::watcher::evidence::{leg_in, paid_in_tx, shows};
use crate::watcher::leg::prove_signer;
use crate::watcher::report::told;
use crate::watcher::second_witness::{contradicted, paid_in_block};
use crate::watcher::trace_lane::{Reading, TraceLane, Traced};
use crate::watcher::witness::Evidence;

/// How many deposits a tick seeks a witness for at most, and in how many blocks that must be read again for it.
const TICK_DEPOSITS_MAX: u32 = 200;
const TICK_AGAIN_MAX: usize = 8;

/// Deposits that have no witness, each with the reason.
type Doubted = Vec<(Deposit, String)>;

impl<S: BlockSource + AddressSource> TraceLane<S> {
    /// Seeks the witness of deposits in blocks that are not final yet. `fresh` are readings of blocks as one endpoint has
    /// just told them: they need not be traced again.
    pub(super) async fn seek_witnesses(
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
        for block in fresh {
            readings.entry(block.header.block.hash).or_default().push(block);
        }
        let mut by_block: BTreeMap<u64, (BlockRef, Vec<Deposit>)> = BTreeMap::new();
        for due in due {
            by_block.entry(due.block.number).or_insert_with(|| (due.block, Vec::new())).1.push(due.deposit);
        }
        let mut again = 0;
        for (block, deposits) in by_block.into_values() {
            let doubted = match (self.not_traced(&block), readings.remove(&block.hash)) {
                (Some(why), _) => of_all(deposits, &why),
                (None, Some(readings)) => self.witness_fresh(&block, readings, deposits, traced).await?,
                (None, None) if again == TICK_AGAIN_MAX => {
                    traced.more = true;
                    continue;
                }
                (None, None) => {
                    again += 1;
                    self.witness_again(&block, deposits, now, traced).await?
                }
            };
            self.put_off_witness(&block, doubted, now, traced).await?;
        }
        Ok(())
    }

    /// By readings that are at hand.
    async fn witness_fresh(
        &self,
        block: &BlockRef,
        readings: Vec<Block>,
        deposits: Vec<Deposit>,
        traced: &mut Traced,
    ) -> Result<Doubted, TickError> {
        let roots = match told(self.read_again(block, Read::FULL).await)? {
            Ok(roots) => roots,
            Err(why) => return Ok(of_all(deposits, &why)),
        };
        let mut doubted = Vec::new();
        for traces in readings {
            let evidence = Evidence { roots: roots.clone(), traces, reading: Reading::Whole };
            // Each reading may witness what the one before did not.
            doubted = self.keep_witnesses(&evidence, traced).await?;
        }
        Ok(doubted)
    }

    /// By a reading of its own.
    async fn witness_again(
        &self,
        block: &BlockRef,
        deposits: Vec<Deposit>,
        now: Timestamp,
        traced: &mut Traced,
    ) -> Result<Doubted, TickError> {
        let evidence = match self.told_evidence(block).await? {
            Ok(evidence) => evidence,
            Err(why) => return Ok(of_all(deposits, &why)),
        };
        // A fuller read may show what the first one hid.
        let mut recorded = Traced::default();
        let read = told(self.record(&evidence.traces, evidence.reading, now, &mut recorded).await)?;
        traced.pending += recorded.pending;
        traced.witnessed += recorded.witnessed;
        match read {
            Ok(_) => self.keep_witnesses(&evidence, traced).await,
            Err(why) => Ok(of_all(deposits, &why)),
        }
    }

    /// Keeps what somebody else bears out of the evidence, recipient by recipient; what nobody does.
    async fn keep_witnesses(&self, evidence: &Evidence, traced: &mut Traced) -> Result<Doubted, TickError> {
        let block = evidence.roots.header.block;
        let mut open: BTreeMap<Address, Vec<Deposit>> = BTreeMap::new();
        for Sighted { deposit, kept } in
            witnesses::in_block(&mut self.db.read().await?, self.chain(), &block.hash).await?
        {
            if kept.is_none() && deposit.status == DepositStatus::Pending {
                open.entry(deposit.recipient).or_default().push(deposit);
            }
        }
        let mut doubted = Vec::new();
        for (address, deposits) in open {
            let borne_out = told(self.bear_out(evidence, &address, &deposits).await)?.and_then(|borne_out| borne_out);
            match borne_out {
                Ok(()) => doubted.extend(self.keep_of(evidence, &address, deposits, traced).await?),
                Err(why) => doubted.extend(of_all(deposits, &why)),
            }
        }
        Ok(doubted)
    }

    /// Whether somebody else agrees with what the evidence tells of `address`, to whom these deposits went.
    async fn bear_out(
        &self,
        evidence: &Evidence,
        address: &Address,
        deposits: &[Deposit],
    ) -> Result<Result<(), String>, TickError> {
        for deposit in deposits {
            prove_signer(&evidence.roots.signers, &deposit.tx)?;
        }
        let is_shown = |deposit: &Deposit| shows(&self.network, &evidence.traces.transfers, deposit);
        self.agree(evidence, address, deposits.iter().all(is_shown)).await
    }

    /// Keeps, in one transaction, what the balances of `address` bear out; what they do not, as others have said otherwise
    /// meanwhile.
    async fn keep_of(
        &self,
        evidence: &Evidence,
        address: &Address,
        deposits: Vec<Deposit>,
        traced: &mut Traced,
    ) -> Result<Doubted, TickError> {
        let (chain, block) = (self.chain(), evidence.roots.header.block);
        let mut tx = self.db.begin().await?;
        Cursor::lock(&mut tx, chain).await?;
        if cursors::canonical_at(&mut tx, chain, block.number).await? != Some(block.hash) {
            return Ok(Vec::new());
        }
        if let Some(why) = contradicted(&mut tx, &self.network, evidence, address).await? {
            return Ok(of_all(deposits, &why));
        }
        let (mut doubted, mut witnessed) = (Vec::new(), 0);
        for Sighted { deposit, kept } in witnesses::in_block(&mut tx, chain, &block.hash).await? {
            let is_meant = deposits.iter().any(|meant| meant.id == deposit.id);
            if !is_meant || kept.is_some() || deposit.status != DepositStatus::Pending {
                continue;
            }
            // What we would not see if it were there is not denied.
            let is_seen = !shows(&self.network, &evidence.roots.transfers, &deposit);
            if self.network.asset(&deposit.asset).is_none() || !is_seen {
                doubted.push((deposit, "the trace of its block does not show it".to_owned()));
                continue;
            }
            self.keep(&mut tx, &evidence.traces, &deposit, WitnessedBy::Balances).await?;
            witnessed += 1;
        }
        tx.commit().await?;
        traced.witnessed += witnessed;
        Ok(doubted)
    }

    /// Puts off what has no witness yet.
    async fn put_off_witness(
        &self,
        block: &BlockRef,
        doubted: Doubted,
        now: Timestamp,
        traced: &mut Traced,
    ) -> Result<(), TickError> {
        if doubted.is_empty() {
            return Ok(());
        }
        let tried = Tried { block: Some(block.hash), is_final: false, at: now };
        let mut tx = self.db.begin().await?;
        Cursor::lock(&mut tx, self.chain()).await?;
        for (deposit, why) in doubted {
            self.doubt(&mut tx, &deposit, &why, tried, traced).await?;
        }
        Ok(tx.commit().await?)
    }
}

impl<S> TraceLane<S> {
    /// Keeps what two endpoints told of the block, in the place of what was kept before; of how many deposits.
    pub(super) async fn keep_told_twice(&self, tx: &mut Tx, block: &Block) -> Result<u64, TickError> {
        let at = block.header.block;
        if block.proof != Proof::TwoEndpoints || !self.network.native.is_traced(at.number) {
            return Ok(0);
        }
        let mut witnessed = 0;
        for Sighted { deposit, .. } in witnesses::in_block(tx, self.chain(), &at.hash).await? {
            if deposit.status == DepositStatus::Pending && self.network.asset(&deposit.asset).is_some() {
                self.keep(tx, block, &deposit, WitnessedBy::TwoEndpoints).await?;
                witnessed += 1;
            }
        }
        Ok(witnessed)
    }

    /// Keeps that `by` bears out what `traces` tells of the deposit.
    async fn keep(&self, tx: &mut Tx, traces: &Block, deposit: &Deposit, by: WitnessedBy) -> Result<(), TickError> {
        let (chain, block) = (self.chain(), traces.header.block);
        let leg = leg_in(&self.network, &traces.transfers, deposit);
        if leg.is_none() {
            let (id, by, number) = (deposit.id, by.name(), block.number);
            warn!(%chain, tx = %deposit.tx.id, "deposit {id} is denied by a witness ({by}); it fails when block {number} is final");
        }
        let kept = Kept {
            by,
            is_shown: leg.is_some(),
            sender: leg.map_or(deposit.sender, |leg| leg.sender),
            paid_in_tx: paid_in_tx(&traces.transfers, deposit),
            paid_in_block: paid_in_block(&traces.transfers, deposit),
        };
        witnesses::keep(tx, chain, deposit.id, &block.hash, &kept).await?;
        Ok(traces::settled(tx, deposit.id).await?)
    }
}

fn of_all(deposits: Vec<Deposit>, why: &str) -> Doubted {
    deposits.into_iter().map(|deposit| (deposit, why.to_owned())).collect()
}
