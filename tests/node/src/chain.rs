//! The chain itself: its canonical blocks, what was dropped by forks, and how it is changed.
//!
//! The verbs are those of `landfall_sim::SimChain`. Clones share the chain; each server shows it in its own way.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use alloy::eips::eip4895::Withdrawal;
use alloy::primitives::{Address, B256};
use landfall_chain::{BlockHash, BlockRef, Network};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::block::{Block, LedgerLeg};
use crate::branch::Branches;
use crate::mint::{self, Place};
use crate::tx::Tx;

/// A chain; clones share it.
#[derive(Clone)]
pub struct Chain(Arc<Mutex<State>>);

pub(crate) struct State {
    pub(crate) chain_id: u64,
    /// The canonical ones; recorded blocks need not be neighbours.
    pub(crate) blocks: BTreeMap<u64, Arc<Block>>,
    /// Every block that ever was canonical.
    pub(crate) known: HashMap<B256, Arc<Block>>,
    /// The blocks that each transaction was ever in, and its place there.
    pub(crate) places: HashMap<B256, Vec<(B256, usize)>>,
    pub(crate) finalized: Option<BlockRef>,
    pub(crate) branches: Branches,
    finality_depth: Option<u64>,
    /// Stand in the next block.
    withdrawals: Vec<Withdrawal>,
    withdrawn: u64,
    rng: StdRng,
}

impl Chain {
    /// A chain with nothing but block 0.
    pub fn new(chain_id: u64, seed: u64) -> Self {
        let chain = Chain::empty(chain_id, seed);
        let mut state = chain.lock();
        let genesis = mint::genesis(B256::new(state.rng.random()));
        state.append(Arc::new(genesis));
        drop(state);
        chain
    }

    /// A chain with the network's id.
    ///
    /// # Panics
    /// The network is none of EVM.
    pub fn of(network: &Network, seed: u64) -> Self {
        let id = network.chain_ref.strip_prefix("eip155:").and_then(|id| id.parse().ok());
        Chain::new(id.expect("an EVM network"), seed)
    }

    /// A chain without any block, for recorded ones.
    pub fn empty(chain_id: u64, seed: u64) -> Self {
        Chain(Arc::new(Mutex::new(State {
            chain_id,
            blocks: BTreeMap::new(),
            known: HashMap::new(),
            places: HashMap::new(),
            finalized: None,
            branches: Branches::default(),
            finality_depth: None,
            withdrawals: Vec::new(),
            withdrawn: 0,
            rng: StdRng::seed_from_u64(seed),
        })))
    }

    /// Mines a block with these transactions on the newest one.
    pub fn mine(&self, txs: Vec<Tx>) -> BlockRef {
        let mut state = self.lock();
        let withdrawals = std::mem::take(&mut state.withdrawals);
        let salt = B256::new(state.rng.random());
        let parent = state.latest();
        let block = mint::block(&Place { chain_id: state.chain_id, parent: &parent, salt }, txs, withdrawals);
        state.append(Arc::new(block))
    }

    /// Mines `count` empty blocks.
    pub fn mine_empty(&self, count: u64) {
        for _ in 0..count {
            self.mine(Vec::new());
        }
    }

    /// The beacon chain pays this in the next block.
    pub fn withdraw(&self, address: Address, gwei: u64) {
        let mut state = self.lock();
        let index = state.withdrawn;
        state.withdrawn += 1;
        state.withdrawals.push(Withdrawal { index, validator_index: 7, address, amount: gwei });
    }

    /// Drops every block above `number`; their transactions, in order. Below the final block too, when reported so:
    /// what is final then stays what was last said.
    pub fn fork_at(&self, number: u64) -> Vec<Tx> {
        let dropped = self.lock().blocks.split_off(&(number + 1));
        dropped.values().flat_map(|block| block.txs().to_vec()).collect()
    }

    /// Makes these blocks, oldest first, the canonical ones: a branch that won after all, or another chain.
    ///
    /// # Panics
    /// Without any block.
    pub fn restore(&self, blocks: Vec<Arc<Block>>) {
        assert!(!blocks.is_empty(), "a chain has at least one block");
        let mut state = self.lock();
        state.blocks.clear();
        blocks.into_iter().for_each(|block| state.remember(block));
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

    /// Branches that a lying server shows pay this address, in the native currency and in `token`.
    pub fn bait(&self, to: Address, token: Address) {
        self.lock().branches.bait = Some((to, token));
    }

    /// The newest block.
    pub fn latest(&self) -> BlockRef {
        self.lock().latest().reference()
    }

    /// The newest final block.
    pub fn finalized(&self) -> Option<BlockRef> {
        self.lock().finalized
    }

    /// The canonical blocks, oldest first.
    pub fn blocks(&self) -> Vec<Arc<Block>> {
        self.lock().blocks.values().cloned().collect()
    }

    /// The canonical block with this number.
    pub fn block(&self, number: u64) -> Option<Arc<Block>> {
        self.lock().blocks.get(&number).cloned()
    }

    /// Whether this block is canonical.
    pub fn has(&self, block: &BlockRef) -> bool {
        self.block(block.number).is_some_and(|ours| BlockHash(ours.hash.0) == block.hash)
    }

    /// What moved through transactions in canonical blocks up to `through`, inclusive.
    pub fn ledger(&self, through: u64) -> Vec<LedgerLeg> {
        let state = self.lock();
        state.blocks.range(..=through).flat_map(|(_, block)| block.ledger().to_vec()).collect()
    }

    pub(crate) fn insert(&self, block: Block) {
        self.lock().remember(Arc::new(block));
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // A test that panicked has failed already.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    pub(crate) fn latest(&self) -> Arc<Block> {
        let (_, block) = self.blocks.last_key_value().expect("a chain has at least one block");
        block.clone()
    }

    fn append(&mut self, block: Arc<Block>) -> BlockRef {
        let reference = block.reference();
        self.remember(block);
        self.finalize();
        reference
    }

    fn remember(&mut self, block: Arc<Block>) {
        for (at, tx) in block.txs.iter().enumerate() {
            let places = self.places.entry(tx.hash).or_default();
            if places.iter().all(|(known, _)| *known != block.hash) {
                places.push((block.hash, at));
            }
        }
        self.known.insert(block.hash, block.clone());
        self.blocks.insert(block.number, block);
    }

    fn finalize(&mut self) {
        let (Some(depth), Some((latest, _))) = (self.finality_depth, self.blocks.last_key_value()) else { return };
        let Some(candidate) = latest.checked_sub(depth).and_then(|number| self.blocks.get(&number)) else { return };
        if self.finalized.is_none_or(|finalized| finalized.number <= candidate.number) {
            self.finalized = Some(candidate.reference());
        }
    }
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Chain at {}", self.latest())
    }
}
