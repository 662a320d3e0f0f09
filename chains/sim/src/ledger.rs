//! The chain itself: its canonical blocks, what was dropped by forks, and how it is changed.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use landfall_chain::{
    Address, AssetId, AssetTransfer, Block, BlockHash, BlockRef, Header, Proof, Signers, TxId, TxLife, TxRef, U256,
    number_equal_legs,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::Fault;

const GENESIS_SECS: u64 = 1_700_000_000;
const BLOCK_SECS: u64 = 12;

/// A movement of value inside a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SimLeg {
    pub asset: AssetId,
    pub sender: Address,
    pub recipient: Address,
    pub amount: U256,
}

/// A transaction: mined again with other legs it is the same transaction executed differently.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SimTx {
    pub tx: TxRef,
    pub legs: Vec<SimLeg>,
}

/// A mined block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SimBlock {
    pub header: Header,
    pub txs: Vec<SimTx>,
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
    /// How far the newest final block is behind the newest; `None` while nothing becomes final.
    finality_depth: Option<u64>,
    finalized: Option<BlockRef>,
    rng: StdRng,
    pub(crate) faults: VecDeque<Fault>,
    pub(crate) calls: u64,
    before_call: Option<BeforeCall>,
}

impl SimLeg {
    pub fn native(sender: Address, recipient: Address, amount: u64) -> Self {
        SimLeg { asset: AssetId::Native, sender, recipient, amount: U256::from(amount) }
    }
}

impl SimTx {
    /// A transaction with an id of its own: `signer` and `nonce` make it.
    pub fn new(signer: Address, nonce: u64, legs: Vec<SimLeg>) -> Self {
        let mut id = [0; 32];
        let signer_bytes = signer.as_bytes();
        id[..20].copy_from_slice(&signer_bytes[..20]);
        id[24..].copy_from_slice(&nonce.to_be_bytes());
        SimTx { tx: TxRef { id: TxId::Evm(id), life: TxLife::Nonce { signer, nonce } }, legs }
    }

    /// Another transaction that uses the same nonce: only one of the two can land.
    pub fn replaced_by(&self, legs: Vec<SimLeg>) -> Self {
        let TxId::Evm(mut id) = self.tx.id else { return self.clone() };
        id[20] = id[20].wrapping_add(1);
        SimTx { tx: TxRef { id: TxId::Evm(id), ..self.tx }, legs }
    }
}

impl SimChain {
    /// A chain with nothing but block 0.
    pub fn new(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let nowhere = BlockRef { number: 0, hash: BlockHash([0; 32]) };
        let block = BlockRef { number: 0, hash: BlockHash(rng.random()) };
        let genesis = SimBlock { header: Header { block, parent: nowhere, time_secs: GENESIS_SECS }, txs: Vec::new() };
        SimChain(Arc::new(Mutex::new(State {
            blocks: vec![genesis],
            skip: 0,
            finality_depth: None,
            finalized: None,
            rng,
            faults: VecDeque::new(),
            calls: 0,
            before_call: None,
        })))
    }

    /// Mines a block with these transactions on the newest one.
    pub fn mine(&self, txs: Vec<SimTx>) -> BlockRef {
        let mut state = self.lock();
        let parent = state.latest().header.block;
        let number = parent.number + 1 + std::mem::take(&mut state.skip);
        let block = BlockRef { number, hash: BlockHash(state.rng.random()) };
        let time_secs = GENESIS_SECS + number * BLOCK_SECS;
        state.blocks.push(SimBlock { header: Header { block, parent, time_secs }, txs });
        state.finalize();
        block
    }

    /// Mines `count` empty blocks.
    pub fn mine_empty(&self, count: u64) {
        for _ in 0..count {
            self.mine(Vec::new());
        }
    }

    /// Leaves out `count` numbers before the next block, as chains with slots do.
    pub fn skip(&self, count: u64) {
        self.lock().skip += count;
    }

    /// Drops every block above `number`; their transactions, in order. Below the final block too, when told so:
    /// what is final then stays what was last said.
    pub fn fork_at(&self, number: u64) -> Vec<SimTx> {
        let mut state = self.lock();
        let keep = state.blocks.partition_point(|block| block.header.block.number <= number).max(1);
        state.blocks.split_off(keep).into_iter().flat_map(|block| block.txs).collect()
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

    /// Says from now on that `block` is final, whatever it is.
    pub fn claim_final(&self, block: BlockRef) {
        self.lock().finalized = Some(block);
    }

    /// The next calls misbehave, one fault each.
    pub fn script(&self, faults: impl IntoIterator<Item = Fault>) {
        self.lock().faults.extend(faults);
    }

    /// Runs `f` before each call from now on: a chain that moves while it is read.
    pub fn before_each_call(&self, f: impl FnMut(&SimChain) + Send + 'static) {
        self.lock().before_call = Some(Box::new(f));
    }

    /// No more faults, and nothing runs before calls.
    pub fn behave(&self) {
        let mut state = self.lock();
        state.faults.clear();
        state.before_call = None;
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
    /// The block as a source hands it over.
    pub fn to_block(&self) -> Block {
        let mut transfers: Vec<AssetTransfer> = Vec::new();
        for SimTx { tx, legs } in &self.txs {
            transfers.extend(legs.iter().map(|leg| {
                let SimLeg { asset, sender, recipient, amount } = *leg;
                AssetTransfer { tx: *tx, asset, sender, recipient, amount, nth: 0 }
            }));
        }
        number_equal_legs(&mut transfers);
        Block {
            header: self.header,
            txs: self.txs.iter().map(|tx| tx.tx.id).collect(),
            transfers,
            fees: Vec::new(),
            rejected: Vec::new(),
            proof: Proof::Roots,
            signers: Signers::default(),
        }
    }
}

impl SimBlock {
    /// The block as a source hands it over that read its logs only: who is named is true, what they got is not. Who
    /// records a candidate gets other ids and amounts than the chain has.
    pub(crate) fn to_candidates(&self) -> Block {
        let mut block = self.to_block();
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

    pub(crate) fn finalized(&self) -> Option<BlockRef> {
        self.finalized
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
