//! The chain itself: its canonical blocks, what was dropped by forks, and how it is changed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use landfall_chain::{
    Address, AssetFacts, AssetId, AssetTransfer, Block, BlockHash, BlockRef, Debits, Fee, Header, Inside, Lane, Mark,
    Proof, Rejected, SenderRule, Signers, TxId, TxLife, TxRef, U256, Verdict, number_equal_legs,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::Notify;

use crate::Fault;
use crate::pay::Paying;

const GENESIS_SECS: u64 = 1_700_000_000;
/// So long after the one before it comes a block, until a test says otherwise.
const BLOCK_SECS: u64 = 12;
/// What every transaction costs its signer, unless it says otherwise.
const FEE: u64 = 21;
/// What everybody owns of every asset before block 1: more than any test moves.
pub const WEALTH: u128 = 1 << 100;

/// A movement of value inside a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SimLeg {
    pub asset: AssetId,
    pub sender: Address,
    pub recipient: Address,
    pub amount: U256,
    /// What shows it: the roots, or a trace only.
    pub lane: Lane,
}

/// A transaction: mined again with other legs it is the same transaction executed differently.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SimTx {
    pub tx: TxRef,
    pub legs: Vec<SimLeg>,
    /// What its signer pays for it; whoever has none pays nothing.
    pub fee: U256,
    /// What the node says that it paid, where a part of it is in no root.
    pub reported_fee: Option<U256>,
    /// What looks like a credit in it and is none.
    pub rejected: Vec<(SimLeg, Verdict)>,
    /// What every tracer reports in place of the legs that only a trace shows, where tracers are wrong; the legs stay
    /// the truth.
    pub misreported: Option<Vec<SimLeg>>,
    /// Uses of intents.
    pub marks: Vec<Mark>,
    /// Who pays for it; of one without a nonce it stands nowhere else.
    pub fee_payer: Address,
}

/// A mined block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SimBlock {
    pub header: Header,
    pub txs: Vec<SimTx>,
    pub fee_recipient: Option<Address>,
}

/// A chain; clones share it.
#[derive(Clone)]
pub struct SimChain(Arc<Mutex<State>>);

/// Runs before each call, with the chain unlocked.
type BeforeCall = Box<dyn FnMut(&SimChain) + Send>;

pub(crate) struct State {
    pub(crate) blocks: Vec<SimBlock>,
    /// Numbers to leave out before the next block.
    skip: u64,
    block_secs: u64,
    /// How far the newest final block is behind the newest; `None` while nothing becomes final.
    finality_depth: Option<u64>,
    finalized: Option<BlockRef>,
    /// As `finality_depth`, for each tier.
    tier_depths: Vec<Option<u64>>,
    /// The branch that was dropped last.
    pub(crate) dropped: Vec<SimBlock>,
    rng: StdRng,
    pub(crate) faults: VecDeque<Fault>,
    /// Of reads of traces.
    pub(crate) trace_faults: VecDeque<Fault>,
    /// Lets the held call answer.
    pub(crate) release: Arc<Notify>,
    /// How often a call met each fault; a lie, how often it reported another block than there is.
    pub(crate) struck: BTreeMap<(Lane, &'static str), u64>,
    /// Whether full reads of traces come from two endpoints that agree.
    pub(crate) traced_twice: bool,
    pub(crate) second_hangs: bool,
    /// Whether those two run the same engine.
    pub(crate) one_engine: bool,
    /// Addresses that have code although nothing ever left them inside of a transaction.
    pub(crate) with_code: BTreeSet<Address>,
    pub(crate) balances_withheld: bool,
    pub(crate) untraceable: BTreeSet<u64>,
    /// Of how many blocks behind the newest the state is there.
    pub(crate) state_kept: Option<u64>,
    pub(crate) calls: u64,
    pub(crate) holdings_withheld: bool,
    /// Whose holdings endpoints report differently.
    pub(crate) disputed: BTreeSet<Address>,
    /// Tokens whose holders no endpoint reports.
    pub(crate) unreported: Vec<AssetId>,
    /// What it reports of assets.
    pub(crate) facts: BTreeMap<AssetId, AssetFacts>,
    /// The first and the last block that endpoints report holdings of, if not the one that they are asked for.
    pub(crate) reported_of: Option<(u64, u64)>,
    /// Of how many addresses the holdings were asked for.
    pub(crate) holdings_reported: u64,
    /// What balances changed by without a leg: in which block, whose, of what.
    shifts: Vec<(u64, Address, AssetId, i64)>,
    before_call: Option<BeforeCall>,
    pub(crate) paying: Paying,
}

impl SimLeg {
    pub fn native(sender: Address, recipient: Address, amount: u64) -> Self {
        SimLeg { asset: AssetId::Native, sender, recipient, amount: U256::from(amount), lane: Lane::Block }
    }

    /// Native value that a contract moves inside of a transaction: only a trace shows it.
    pub fn inner(sender: Address, recipient: Address, amount: u64) -> Self {
        SimLeg { lane: Lane::Traces, ..SimLeg::native(sender, recipient, amount) }
    }
}

impl SimLeg {
    fn transfer(&self, tx: TxRef) -> AssetTransfer {
        let SimLeg { asset, sender, recipient, amount, .. } = *self;
        AssetTransfer { tx, asset, sender, sender_rule: SenderRule::Reported, recipient, amount, nth: 0 }
    }
}

impl SimTx {
    fn paid(&self) -> Option<Fee> {
        let payer = match self.tx.life {
            TxLife::Nonce { signer, .. } => signer,
            TxLife::Block => self.fee_payer,
        };
        let (amount, proved) = (self.reported_fee.unwrap_or(self.fee), self.reported_fee.is_none());
        Some(Fee { tx: self.tx, payer, amount, outlay: self.outlay(payer), proved })
    }

    /// What its legs of the native currency took of who paid for it, where blocks report balances, as Solana's do.
    fn outlay(&self, payer: Address) -> i128 {
        if self.tx.life != TxLife::Block {
            return 0;
        }
        let native = self.legs.iter().filter(|leg| leg.asset == AssetId::Native && leg.lane == Lane::Block);
        let change = native.map(|leg| {
            let amount = i128::try_from(leg.amount).expect("no test moves so much");
            amount * (i128::from(leg.sender == payer) - i128::from(leg.recipient == payer))
        });
        change.sum()
    }

    /// A transaction with an id of its own: `signer` and `nonce` make it.
    pub fn new(signer: Address, nonce: u64, legs: Vec<SimLeg>) -> Self {
        let mut id = [0; 32];
        let signer_bytes = signer.as_bytes();
        id[..20].copy_from_slice(&signer_bytes[..20]);
        id[24..].copy_from_slice(&nonce.to_be_bytes());
        let tx = TxRef { id: TxId::Evm(id), life: TxLife::Nonce { signer, nonce } };
        SimTx {
            tx,
            legs,
            fee: U256::from(FEE),
            reported_fee: None,
            rejected: Vec::new(),
            misreported: None,
            marks: Vec::new(),
            fee_payer: signer,
        }
    }

    /// The same, of which every tracer reports `legs` and not what moved inside.
    #[must_use]
    pub fn misreported_as(self, legs: Vec<SimLeg>) -> Self {
        SimTx { misreported: Some(legs), ..self }
    }

    /// As tracers report it.
    fn as_reported(&self) -> SimTx {
        let mut copy = self.clone();
        if let Some(reported) = copy.misreported.take() {
            copy.legs.retain(|leg| leg.lane == Lane::Block);
            copy.legs.extend(reported.into_iter().map(|leg| SimLeg { lane: Lane::Traces, ..leg }));
        }
        copy
    }

    /// Another transaction that uses the same nonce: only one of the two can land.
    pub fn replaced_by(&self, legs: Vec<SimLeg>) -> Self {
        let TxId::Evm(mut id) = self.tx.id else { return self.clone() };
        id[20] = id[20].wrapping_add(1);
        SimTx {
            tx: TxRef { id: TxId::Evm(id), ..self.tx },
            legs,
            rejected: Vec::new(),
            marks: Vec::new(),
            ..self.clone()
        }
    }
}

impl SimChain {
    /// A chain with nothing but block 0.
    pub fn new(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let nowhere = BlockRef { number: 0, hash: BlockHash([0; 32]) };
        let block = BlockRef { number: 0, hash: BlockHash(rng.random()) };
        let genesis = SimBlock {
            header: Header { block, parent: nowhere, time_secs: GENESIS_SECS },
            txs: Vec::new(),
            fee_recipient: None,
        };
        SimChain(Arc::new(Mutex::new(State {
            blocks: vec![genesis],
            skip: 0,
            block_secs: BLOCK_SECS,
            finality_depth: None,
            finalized: None,
            tier_depths: Vec::new(),
            dropped: Vec::new(),
            rng,
            faults: VecDeque::new(),
            trace_faults: VecDeque::new(),
            release: Arc::default(),
            struck: BTreeMap::new(),
            traced_twice: false,
            second_hangs: false,
            one_engine: false,
            with_code: BTreeSet::new(),
            balances_withheld: false,
            untraceable: BTreeSet::new(),
            state_kept: None,
            calls: 0,
            holdings_withheld: false,
            disputed: BTreeSet::new(),
            unreported: Vec::new(),
            facts: BTreeMap::new(),
            reported_of: None,
            holdings_reported: 0,
            shifts: Vec::new(),
            before_call: None,
            paying: Paying::new(),
        })))
    }

    /// Mines a block with these transactions on the newest one.
    pub fn mine(&self, txs: Vec<SimTx>) -> BlockRef {
        let mut state = self.lock();
        let Header { block: parent, time_secs: parent_secs, .. } = state.latest().header;
        let number = parent.number + 1 + std::mem::take(&mut state.skip);
        let block = BlockRef { number, hash: BlockHash(state.rng.random()) };
        let time_secs = parent_secs + (number - parent.number) * state.block_secs;
        state.blocks.push(SimBlock { header: Header { block, parent, time_secs }, txs, fee_recipient: None });
        state.finalize();
        block
    }

    /// Mines `count` empty blocks.
    pub fn mine_empty(&self, count: u64) {
        for _ in 0..count {
            self.mine(Vec::new());
        }
    }

    /// From now on each number is so many seconds after the one before it.
    pub fn set_block_secs(&self, secs: u64) {
        self.lock().block_secs = secs;
    }

    /// Leaves out `count` numbers before the next block, as chains with slots do.
    pub fn skip(&self, count: u64) {
        self.lock().skip += count;
    }

    /// Drops every block above `number`; returns their transactions, in order. It may go below the final block: what
    /// is final then stays what was last reported.
    pub fn fork_at(&self, number: u64) -> Vec<SimTx> {
        let mut state = self.lock();
        let keep = state.blocks.partition_point(|block| block.header.block.number <= number).max(1);
        let dropped = state.blocks.split_off(keep);
        let txs: Vec<SimTx> = dropped.iter().flat_map(|block| block.txs.clone()).collect();
        state.paying.pool_again(&txs);
        if !dropped.is_empty() {
            state.dropped = dropped;
        }
        txs
    }

    /// Makes these blocks the canonical ones: a branch that won after all, or another chain.
    pub fn restore(&self, blocks: Vec<SimBlock>) {
        assert!(!blocks.is_empty(), "a chain has at least block 0");
        self.lock().blocks = blocks;
    }

    /// From now on a block is final when it has `depth` blocks on top; `None` stops finality where it is.
    pub fn set_finality_depth(&self, depth: Option<u64>) {
        let mut state = self.lock();
        state.finality_depth = depth;
        state.finalize();
    }

    /// From now on a block is final for tier i when it has `depths[i]` blocks on top; `None` stands for no such block.
    pub fn set_tier_depths(&self, depths: Vec<Option<u64>>) {
        self.lock().tier_depths = depths;
    }

    /// The newest block that is final for each tier.
    pub fn tiers(&self) -> Vec<Option<BlockRef>> {
        let state = self.lock();
        state.tiers(&state.blocks)
    }

    /// Says from now on that `block` is final, whatever it is.
    pub fn claim_final(&self, block: BlockRef) {
        self.lock().finalized = Some(block);
    }

    /// The next calls misbehave, one fault each.
    pub fn script(&self, faults: impl IntoIterator<Item = Fault>) {
        self.lock().faults.extend(faults);
    }

    /// The next reads of traces misbehave, one fault each. Reads of the roots do not take them.
    pub fn script_traces(&self, faults: impl IntoIterator<Item = Fault>) {
        self.lock().trace_faults.extend(faults);
    }

    /// Lets the held call answer; while none is held, the next one that would be.
    pub fn release(&self) {
        self.lock().release.notify_one();
    }

    /// Whether full reads of traces come from two endpoints, from now on; one that lies is contradicted by the other.
    pub fn trace_twice(&self, twice: bool) {
        self.lock().traced_twice = twice;
    }

    /// Whether the two endpoints that trace run the same engine, from now on; else they run different ones.
    pub fn run_one_engine(&self, one: bool) {
        self.lock().one_engine = one;
    }

    /// From now on `address` has code. An address that ever lost something inside of a transaction has code anyhow.
    pub fn put_code(&self, address: Address) {
        self.lock().with_code.insert(address);
    }

    /// Whether the second endpoint takes more than two seconds and reports no trace, from now on.
    pub fn hang_second(&self, hangs: bool) {
        self.lock().second_hangs = hangs;
    }

    /// The blocks that cannot be traced, from now on; all others can.
    pub fn withhold_traces(&self, numbers: impl IntoIterator<Item = u64>) {
        self.lock().untraceable = numbers.into_iter().collect();
    }

    /// From now on there are no traces and no balances of blocks more than `blocks` behind the newest; `None` ends
    /// that.
    pub fn keep_state(&self, blocks: Option<u64>) {
        self.lock().state_kept = blocks;
    }

    /// Whether balances cannot be had, from now on.
    pub fn withhold_balances(&self, withheld: bool) {
        self.lock().balances_withheld = withheld;
    }

    /// Whether no endpoint reports what addresses hold, from now on.
    pub fn withhold_holdings(&self, withheld: bool) {
        self.lock().holdings_withheld = withheld;
    }

    /// Whose holdings endpoints report differently, from now on.
    pub fn dispute_holdings(&self, of: impl IntoIterator<Item = Address>) {
        self.lock().disputed = of.into_iter().collect();
    }

    /// Tokens whose holders no endpoint reports, from now on.
    pub fn leave_unreported(&self, tokens: impl IntoIterator<Item = AssetId>) {
        self.lock().unreported = tokens.into_iter().collect();
    }

    /// It reports this of an asset, or nothing, as when nobody answers.
    pub fn report_asset(&self, asset: AssetId, facts: Option<AssetFacts>) {
        let mut state = self.lock();
        match facts {
            Some(facts) => drop(state.facts.insert(asset, facts)),
            None => drop(state.facts.remove(&asset)),
        }
    }

    /// The numbers of the first and the last block that endpoints report holdings of, whatever they are asked for.
    pub fn report_holdings_of(&self, blocks: Option<(u64, u64)>) {
        self.lock().reported_of = blocks;
    }

    /// Of how many addresses the holdings were asked for.
    pub fn holdings_reported(&self) -> u64 {
        self.lock().holdings_reported
    }

    /// A balance changes by so many base units in the newest block, and no leg shows it.
    pub fn shift_balance(&self, of: Address, asset: AssetId, by: i64) {
        let mut state = self.lock();
        let number = state.latest().header.block.number;
        state.shifts.push((number, of, asset, by));
    }

    /// The fees of the newest block go to `of`: so much, and no leg shows it.
    pub fn pay_fees_to(&self, of: Address, by: i64) {
        if let Some(newest) = self.lock().blocks.last_mut() {
            newest.fee_recipient = Some(of);
        }
        self.shift_balance(of, AssetId::Native, by);
    }

    /// Runs `f` before each call from now on: a chain that moves while it is read.
    pub fn before_each_call(&self, f: impl FnMut(&SimChain) + Send + 'static) {
        self.lock().before_call = Some(Box::new(f));
    }

    /// No more faults, and nothing runs before calls.
    pub fn behave(&self) {
        let mut state = self.lock();
        state.faults.clear();
        state.trace_faults.clear();
        state.balances_withheld = false;
        state.before_call = None;
    }

    /// How often a call met each scripted fault, by its name; a lie, how often it reported another block than there
    /// is.
    pub fn struck(&self) -> BTreeMap<(Lane, &'static str), u64> {
        self.lock().struck.clone()
    }

    /// How many calls were made.
    pub fn calls(&self) -> u64 {
        self.lock().calls
    }

    /// The newest block.
    pub fn latest(&self) -> BlockRef {
        self.lock().latest().header.block
    }

    /// The newest final block.
    pub fn finalized(&self) -> Option<BlockRef> {
        self.lock().finalized
    }

    /// The canonical blocks, oldest first.
    pub fn blocks(&self) -> Vec<SimBlock> {
        self.lock().blocks.clone()
    }

    /// What an address owns of an asset after block `number`.
    pub fn balance(&self, address: &Address, asset: &AssetId, number: u64) -> U256 {
        self.lock().balance(address, asset, number)
    }

    pub(crate) fn before_call(&self) {
        let hook = self.lock().before_call.take();
        if let Some(mut hook) = hook {
            hook(self);
            self.lock().before_call.get_or_insert(hook);
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // A test that panicked has failed already.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SimBlock {
    /// The block as a source hands it over that reads this lane. `nth` of the traces' legs continues behind those of
    /// the roots.
    pub fn to_block(&self, lane: Lane) -> Block {
        let of_lane = |lane: Lane| {
            let legs = self.txs.iter().flat_map(|tx| tx.legs.iter().map(move |leg| (tx.tx, leg)));
            legs.filter(move |(_, leg)| leg.lane == lane).map(|(tx, leg)| leg.transfer(tx))
        };
        let mut transfers: Vec<AssetTransfer> = of_lane(Lane::Block).collect();
        let behind = transfers.len();
        transfers.extend(of_lane(Lane::Traces));
        number_equal_legs(&mut transfers);
        let traced = transfers.split_off(behind);
        let rejected =
            self.txs.iter().flat_map(|tx| tx.rejected.iter().map(move |(leg, verdict)| (tx.tx, leg, *verdict)));
        let rejected = rejected.filter(|(_, leg, _)| leg.lane == lane);
        Block {
            header: self.header,
            txs: self.txs.iter().map(|tx| tx.tx.id).collect(),
            transfers: if lane == Lane::Block { transfers } else { traced },
            debits: Debits::ByLegs,
            unattributed: Vec::new(),
            fees: if lane == Lane::Block { self.txs.iter().filter_map(SimTx::paid).collect() } else { Vec::new() },
            marks: if lane == Lane::Block {
                self.txs.iter().flat_map(|tx| tx.marks.clone()).collect()
            } else {
                Vec::new()
            },
            rejected: rejected.map(|(tx, leg, verdict)| Rejected { transfer: leg.transfer(tx), verdict }).collect(),
            fee_recipient: self.fee_recipient,
            proof: if lane == Lane::Block { Proof::Roots } else { Proof::OneEndpoint },
            signers: Signers::default(),
            inside: (lane == Lane::Traces).then(|| {
                let roots = self.to_block(Lane::Block);
                Arc::new(Inside {
                    roots,
                    ran_code: BTreeSet::new(),
                    unreported_fees: BTreeSet::new(),
                    by_two_engines: false,
                })
            }),
        }
    }

    /// As tracers report it.
    pub(crate) fn as_reported(&self) -> SimBlock {
        SimBlock { txs: self.txs.iter().map(SimTx::as_reported).collect(), ..self.clone() }
    }
}

impl SimBlock {
    /// The block as a source hands it over that read only its logs: whoever is named is true, the amounts are not. A
    /// candidate that is recorded would have other ids and amounts than the chain.
    pub(crate) fn to_candidates(&self) -> Block {
        let mut block = self.to_block(Lane::Block);
        for transfer in &mut block.transfers {
            transfer.amount = transfer.amount.saturating_add(U256::from(1));
            transfer.nth = 0;
            transfer.tx.life = TxLife::Block;
        }
        Block { proof: Proof::Bloom, ..block }
    }
}

impl State {
    pub(crate) fn latest(&self) -> &SimBlock {
        self.blocks.last().expect("block 0 is never dropped")
    }

    pub(crate) fn has_forgotten(&self, number: u64) -> bool {
        self.state_kept.is_some_and(|kept| number.saturating_add(kept) < self.latest().header.block.number)
    }

    /// Transaction by transaction, with an arithmetic of its own: nothing here asks what a source would show.
    pub(crate) fn balance(&self, address: &Address, asset: &AssetId, number: u64) -> U256 {
        let mut balance = U256::from(WEALTH);
        for tx in self.blocks.iter().take_while(|block| block.header.block.number <= number).flat_map(|b| &b.txs) {
            for leg in tx.legs.iter().filter(|leg| leg.asset == *asset) {
                if leg.recipient == *address {
                    balance += leg.amount;
                }
                if leg.sender == *address {
                    balance -= leg.amount;
                }
            }
            let is_payer = match tx.tx.life {
                TxLife::Nonce { signer, .. } => signer == *address,
                TxLife::Block => tx.fee_payer == *address,
            };
            if is_payer && *asset == AssetId::Native {
                balance -= tx.fee;
            }
        }
        let shifts = self.shifts.iter().filter(|(at, of, what, _)| *at <= number && of == address && what == asset);
        for (.., by) in shifts {
            let size = U256::from(by.unsigned_abs());
            balance = if *by < 0 { balance - size } else { balance + size };
        }
        balance
    }

    /// Whether anything of `address` may leave it inside of a transaction.
    pub(crate) fn has_code(&self, address: &Address) -> bool {
        let mut legs = self.blocks.iter().flat_map(|block| &block.txs).flat_map(|tx| &tx.legs);
        self.with_code.contains(address) || legs.any(|leg| leg.lane == Lane::Traces && leg.sender == *address)
    }

    pub(crate) fn finalized(&self) -> Option<BlockRef> {
        self.finalized
    }

    /// What is final for each tier on the chain of these blocks.
    pub(crate) fn tiers(&self, blocks: &[SimBlock]) -> Vec<Option<BlockRef>> {
        let at_depth = |depth: &Option<u64>| {
            let behind = usize::try_from((*depth)?).ok()?;
            blocks.len().checked_sub(1 + behind).map(|at| blocks[at].header.block)
        };
        self.tier_depths.iter().map(at_depth).collect()
    }

    fn finalize(&mut self) {
        let Some(depth) = self.finality_depth else { return };
        let Some(at) = self.blocks.len().checked_sub(1 + usize::try_from(depth).unwrap_or(usize::MAX)) else { return };
        let candidate = self.blocks[at].header.block;
        if self.finalized.is_none_or(|finalized| finalized.number <= candidate.number) {
            self.finalized = Some(candidate);
        }
    }
}

impl fmt::Debug for SimChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimChain at {}", self.latest())
    }
}
