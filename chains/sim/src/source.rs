//! The chain as a source: what a node that knows it would answer, faults included.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use landfall_chain::{
    AccountState, Address, AddressSource, AssetFacts, AssetId, AssetSource, AssetTransfer, Block, BlockRef,
    BlockSource, Candidates, Fate, Found, Header, Holding, HoldingSource, Holdings, Lane, Legs, Payer, Proof, Read,
    ReadProof, Search, Signers, SourceError, Tip, TxLife, TxRef, U256, Watched,
};

use crate::ledger::{SimBlock, SimLeg, State};
use crate::{Fault, SimChain};

/// How long a second endpoint hangs.
const SECOND_HANGS: Duration = Duration::from_millis(2_200);

impl BlockSource for SimChain {
    async fn tip(&self) -> Result<Tip, SourceError> {
        let fault = self.call().await?;
        let state = self.lock();
        let behind = match fault {
            Some(Fault::Empty) => return Err(failure("tip")),
            Some(Fault::Lag(behind)) => behind,
            Some(_) | None => 0,
        };
        let latest = state.latest().header.block.number.saturating_sub(behind);
        let latest = state.at_or_below(latest);
        // A node that lags knows less that is final, too.
        let finalized = state.finalized().filter(|finalized| finalized.number <= latest.number);
        let above = state.blocks.partition_point(|block| block.header.block.number <= latest.number);
        Ok(Tip { latest, finalized, tiers: state.tiers(&state.blocks[..above]), waiting: None, forked: None })
    }

    async fn headers(&self, range: RangeInclusive<u64>) -> Result<Vec<Header>, SourceError> {
        let fault = self.call().await?;
        let state = self.lock();
        Ok(state.served(range, fault).iter().map(|block| block.header).collect())
    }

    async fn blocks(&self, range: RangeInclusive<u64>, read: Read) -> Result<Vec<Block>, SourceError> {
        let fault = match read.lane {
            Lane::Block => self.call().await?,
            Lane::Traces => self.call_for_traces().await?,
        };
        let blocks = {
            let mut state = self.lock();
            let mut truth = state.served(range.clone(), fault).to_vec();
            if read.lane == Lane::Traces {
                truth = truth.iter().map(SimBlock::as_reported).collect();
            }
            let reported: Vec<SimBlock> = truth.iter().map(|block| as_reported(block, read.lane, fault)).collect();
            let is_untrue = fault.is_some_and(Fault::is_lie) && reported != truth;
            if let Some(lie) = fault.filter(|_| is_untrue) {
                state.strike(read.lane, lie);
            }
            state.can_trace(&range, read, is_untrue)?;
            reported.into_iter().map(|block| state.read(block, read, fault)).collect()
        };
        if fault == Some(Fault::Held) {
            self.released().await;
        }
        let hangs = self.lock().second_hangs;
        if hangs && read.lane == Lane::Traces && read.proof == ReadProof::Full {
            tokio::time::sleep(SECOND_HANGS).await;
        }
        Ok(blocks)
    }

    async fn final_at(&self, number: u64) -> Result<Option<BlockRef>, SourceError> {
        let fault = self.call().await?;
        let state = self.lock();
        let is_final = state.finalized().is_some_and(|finalized| number <= finalized.number);
        Ok(state.served(number..=number, fault).first().filter(|_| is_final).map(|block| block.header.block))
    }

    /// As on a chain whose roots prove both.
    async fn cross_check(
        &self,
        _: &BlockRef,
        _: RangeInclusive<u64>,
        _: &[BlockRef],
        _: bool,
    ) -> Result<Option<u64>, SourceError> {
        Ok(None)
    }

    /// Each leg names it.
    async fn payers(&self, _: &BlockRef, transfers: &[AssetTransfer]) -> Result<Vec<Payer>, SourceError> {
        Ok(transfers.iter().map(AssetTransfer::payer).collect())
    }

    async fn fate(&self, tx: &TxRef, at: &BlockRef) -> Result<Fate, SourceError> {
        let fault = self.call().await?;
        let state = self.lock();
        let known = state.served(0..=u64::MAX, fault);
        if let Some(block) = known.iter().find(|block| block.txs.iter().any(|mined| mined.tx.id == tx.id)) {
            return Ok(Fate::In(block.header.block));
        }
        let TxLife::Nonce { signer, nonce } = tx.life else { return Ok(Fate::Unknown) };
        let used_up = known.iter().take_while(|block| block.header.block.number <= at.number).any(|block| {
            block.txs.iter().any(|mined| match mined.tx.life {
                TxLife::Nonce { signer: other, nonce: used } => other == signer && used >= nonce,
                TxLife::Block => false,
            })
        });
        Ok(if used_up { Fate::Superseded(*at) } else { Fate::Unknown })
    }
}

impl AddressSource for SimChain {
    fn search(&self) -> Search {
        Search::ByRange
    }

    async fn candidates(&self, range: RangeInclusive<u64>, watched: Watched<'_>) -> Result<Found, SourceError> {
        let fault = self.call().await?;
        let state = self.lock();
        let served = state.served(range, fault);
        let is_hit = |block: &&SimBlock| {
            let mut legs = block.txs.iter().flat_map(|tx| &tx.legs);
            // Every seventh block is a false alarm, as blooms give them.
            block.header.block.number.is_multiple_of(7)
                || legs.any(|leg| watched.contains(&leg.recipient) || watched.contains(&leg.sender))
        };
        Ok(Found::Linked(Candidates {
            headers: served.iter().map(|block| block.header).collect(),
            hits: served.iter().filter(is_hit).map(|block| block.header.block).collect(),
        }))
    }

    async fn account_states(&self, addresses: &[Address], at: &BlockRef) -> Result<Vec<AccountState>, SourceError> {
        self.before_call();
        let state = self.lock();
        if !state.blocks.iter().any(|block| block.header.block == *at) {
            return Err(SourceError::transient(format!("block {at} is not known")));
        }
        if state.balances_withheld || state.has_forgotten(at.number) {
            return Err(SourceError::state_gone(format!("the state of block {at} cannot be had")));
        }
        let balance = |address: &Address| state.balance(address, &AssetId::Native, at.number);
        let of = |address: &Address| AccountState { balance: balance(address), has_code: state.has_code(address) };
        Ok(addresses.iter().map(of).collect())
    }
}

impl AssetSource for SimChain {
    async fn facts(&self, asset: &AssetId, _: u64) -> Result<Option<AssetFacts>, SourceError> {
        let reported = self.lock().facts.get(asset).cloned();
        reported.map(Some).ok_or_else(|| SourceError::transient(format!("nobody reports what {asset} is")))
    }
}

impl HoldingSource for SimChain {
    async fn holdings(
        &self,
        addresses: &[Address],
        assets: &[AssetId],
        at: &BlockRef,
    ) -> Result<Holdings, SourceError> {
        self.before_call();
        let mut state = self.lock();
        state.holdings_reported += u64::try_from(addresses.len()).unwrap_or(u64::MAX);
        let known = state.blocks.iter().any(|block| block.header.block == *at);
        if state.holdings_withheld || !known || state.has_forgotten(at.number) {
            return Err(SourceError::transient(format!("the state of block {at} cannot be had")));
        }
        let of = |address: &Address, asset: &AssetId| {
            let is_reported = !state.disputed.contains(address) && !state.unreported.contains(asset);
            let reported_of = state.reported_of.unwrap_or((at.number, at.number));
            let held = |(number, through)| Holding { amount: state.balance(address, asset, number), number, through };
            is_reported.then(|| held(reported_of))
        };
        let of_address = |address: &Address| assets.iter().map(|asset| of(address, asset)).collect();
        Ok(Holdings { proof: Proof::TwoEndpoints, amounts: addresses.iter().map(of_address).collect() })
    }
}

impl SimChain {
    pub(crate) async fn call(&self) -> Result<Option<Fault>, SourceError> {
        self.take(Lane::Block, |state| state.faults.pop_front()).await
    }

    /// A call of who sends. While it is held, it has not been answered.
    pub(crate) async fn call_to_pay(&self) -> Result<Option<Fault>, SourceError> {
        let fault = self.call().await?;
        if fault == Some(Fault::Held) {
            self.released().await;
        }
        Ok(fault)
    }

    async fn released(&self) {
        let release = Arc::clone(&self.lock().release);
        release.notified().await;
    }

    async fn call_for_traces(&self) -> Result<Option<Fault>, SourceError> {
        self.take(Lane::Traces, |state| state.trace_faults.pop_front()).await
    }

    /// Counts a call and takes its fault.
    async fn take(&self, lane: Lane, next: impl Fn(&mut State) -> Option<Fault>) -> Result<Option<Fault>, SourceError> {
        self.before_call();
        let fault = {
            let mut state = self.lock();
            state.calls += 1;
            let fault = next(&mut state);
            // A lie is counted where it is reported.
            if let Some(fault) = fault.filter(|fault| !fault.is_lie()) {
                state.strike(lane, fault);
            }
            fault
        };
        match fault {
            Some(Fault::Fail) => Err(failure("call")),
            Some(Fault::Refuse) => Err(SourceError::permanent("the sim was told not to offer this call")),
            Some(Fault::Late(time)) => {
                tokio::time::sleep(time).await;
                Ok(fault)
            }
            Some(_) | None => Ok(fault),
        }
    }
}

impl State {
    fn strike(&mut self, lane: Lane, fault: Fault) {
        *self.struck.entry((lane, fault.name())).or_default() += 1;
    }

    fn at_or_below(&self, number: u64) -> BlockRef {
        let above = self.blocks.partition_point(|block| block.header.block.number <= number);
        self.blocks[above.saturating_sub(1)].header.block
    }

    /// The blocks of `range` that a node with this fault has.
    fn served(&self, range: RangeInclusive<u64>, fault: Option<Fault>) -> &[SimBlock] {
        let known = match fault {
            Some(Fault::Empty) => 0,
            Some(Fault::Lag(behind)) => {
                let latest = self.latest().header.block.number.saturating_sub(behind);
                self.blocks.partition_point(|block| block.header.block.number <= latest)
            }
            Some(_) | None => self.blocks.len(),
        };
        let known = &self.blocks[..known];
        let from = known.partition_point(|block| block.header.block.number < *range.start());
        let to = known.partition_point(|block| block.header.block.number <= *range.end());
        &known[from..to.max(from)]
    }
}

impl State {
    /// Whether there is a trace: some blocks are too heavy for every node, and of two that differ neither is believed.
    fn can_trace(&self, range: &RangeInclusive<u64>, read: Read, is_untrue: bool) -> Result<(), SourceError> {
        if read.lane == Lane::Block {
            return Ok(());
        }
        if let Some(number) = self.untraceable.iter().find(|number| range.contains(number)) {
            return Err(SourceError::transient(format!("the trace of block {number} takes too long")));
        }
        if self.has_forgotten(*range.start()) {
            return Err(SourceError::transient(format!("the state of block {} is forgotten", range.start())));
        }
        if is_untrue && self.traced_twice && read.proof == ReadProof::Full {
            return Err(SourceError::disputed(format!(
                "two endpoints tell different traces of block {}",
                range.start()
            )));
        }
        Ok(())
    }

    /// A block as a source hands it over that was reported so.
    fn read(&self, reported: SimBlock, read: Read, fault: Option<Fault>) -> Block {
        let mut reported = match (read.lane, read.proof) {
            (Lane::Block, ReadProof::Candidate) => reported.to_candidates(),
            (lane, _) => reported.to_block(lane),
        };
        if read.lane == Lane::Traces && read.proof == ReadProof::Full && self.traced_twice {
            reported.proof = if self.second_hangs { Proof::OneEndpoint } else { Proof::TwoEndpoints };
            if let Some(inside) = reported.inside.as_mut().map(Arc::make_mut) {
                inside.by_two_engines = !self.second_hangs && !self.one_engine;
            }
        }
        if read.legs == Legs::Creditable {
            reported.rejected.clear();
        }
        if fault == Some(Fault::Forge) {
            reported.signers =
                Signers::new(|tx| Err(SourceError::transient(format!("{} was signed by another", tx.id))));
        }
        reported
    }
}

/// A block as a node reports it that may lie.
fn as_reported(block: &SimBlock, lane: Lane, fault: Option<Fault>) -> SimBlock {
    let mut reported = block.clone();
    match fault {
        Some(Fault::Invent(to, amount)) => {
            if let Some(tx) = reported.txs.first_mut() {
                let leg = SimLeg { lane, ..SimLeg::native(to, to, amount) };
                tx.legs.push(SimLeg { sender: Address::Evm([0xee; 20]), ..leg });
            }
        }
        Some(Fault::Churn(who, amount)) => {
            if let Some(tx) = reported.txs.first_mut() {
                let other = Address::Evm([0xee; 20]);
                for (sender, recipient) in [(other, who), (who, other)] {
                    tx.legs.push(SimLeg { lane, ..SimLeg::native(sender, recipient, amount) });
                }
            }
        }
        Some(Fault::Merge(to)) => merge(&mut reported, to, lane),
        Some(Fault::Hide(from)) => {
            reported.txs.iter_mut().for_each(|tx| tx.legs.retain(|leg| leg.recipient != from || leg.lane != lane));
        }
        Some(_) | None => {}
    }
    reported
}

/// Shows all payments to `to` that the lane shows as one.
fn merge(block: &mut SimBlock, to: Address, lane: Lane) {
    let mut merged: Option<SimLeg> = None;
    for tx in &mut block.txs {
        tx.legs.retain(|leg| {
            let is_other = (leg.recipient, leg.lane) != (to, lane);
            if !is_other {
                let amount = merged.map_or(U256::ZERO, |merged| merged.amount) + leg.amount;
                merged = Some(SimLeg { amount, ..*leg });
            }
            is_other
        });
    }
    if let Some(tx) = block.txs.first_mut() {
        tx.legs.extend(merged);
    }
}

fn failure(what: &str) -> SourceError {
    SourceError::transient(format!("the sim was told to fail this {what}"))
}
