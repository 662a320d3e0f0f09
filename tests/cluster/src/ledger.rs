//! The chain of one branch: blocks in slots, and what of them is final.
//!
//! Several nodes may show one ledger. A fork is another ledger, which shares what lies below it. Promises: a block
//! stands on the newest one below its slot; what is final is never taken back, unless a test says so; what is final
//! only grows.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use landfall_chain::BlockRef;

use crate::block::{Block, TIME, hash};
use crate::tx::{Payment, Tx};

/// How the cluster makes blocks final.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Finality {
    /// So many blocks behind the newest one, as Tower does: 31 on mainnet.
    Behind(usize),
    /// As soon as they are confirmed, as under Alpenglow.
    AtOnce,
    /// Not by itself: it stands still until [`Ledger::finalize`], or another rule, lets it go on.
    Stalled,
}

/// A chain; clones are the same chain.
#[derive(Clone)]
pub struct Ledger {
    state: Arc<Mutex<State>>,
    /// How many branches there are of this cluster.
    branches: Arc<AtomicU64>,
}

/// What a node reads of it.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) blocks: BTreeMap<u64, Arc<Block>>,
    pub(crate) finalized: u64,
    branch: u64,
    rule: Finality,
}

impl Ledger {
    /// One block, which is final, in this slot; it stands on the slot below it.
    pub fn starting_at(slot: u64) -> Self {
        let parent = BlockRef { number: slot - 1, hash: hash(slot - 1, 0) };
        let first = Block { slot, parent, branch: 0, height: slot / 2, time: time_of(slot), txs: Vec::new() };
        let blocks = BTreeMap::from([(slot, Arc::new(first))]);
        let state = State { blocks, finalized: slot, branch: 0, rule: Finality::Stalled };
        Ledger { state: Arc::new(Mutex::new(state)), branches: Arc::new(AtomicU64::new(0)) }
    }

    /// Empty blocks in these slots, ascending, of which the first is final.
    pub fn of(slots: impl IntoIterator<Item = u64>) -> Self {
        let mut slots = slots.into_iter();
        let ledger = Ledger::starting_at(slots.next().expect("a slot"));
        for slot in slots {
            ledger.produce(slot, Vec::new());
        }
        ledger
    }

    /// A block in `slot`, on the newest one: what lies between was skipped.
    pub fn produce(&self, slot: u64, txs: Vec<Tx>) -> BlockRef {
        let mut state = self.lock();
        let below = Arc::clone(state.latest());
        assert!(slot > below.slot, "slot {slot} is not above slot {}", below.slot);
        let (parent, branch, height) = (below.reference(), state.branch, below.height + 1);
        let block = Block { slot, parent, branch, height, time: time_of(slot), txs };
        let reference = block.reference();
        state.blocks.insert(slot, Arc::new(block));
        state.settle();
        reference
    }

    /// A block in the next slot.
    pub fn grow(&self, txs: Vec<Tx>) -> BlockRef {
        self.produce(self.latest().number + 1, txs)
    }

    /// Every block above `slot` is gone, and what comes instead has other hashes; the transactions that were in them.
    pub fn roll_back_to(&self, slot: u64) -> Vec<Tx> {
        let mut state = self.lock();
        assert!(slot >= state.finalized, "slot {} is final", state.finalized);
        let gone = state.blocks.split_off(&(slot + 1));
        state.branch = self.next_branch();
        gone.values().flat_map(|block| block.txs.clone()).collect()
    }

    /// Another ledger, which has the blocks up to `slot` in common with this one; nothing above it is final there.
    #[must_use]
    pub fn branch_at(&self, slot: u64) -> Self {
        let mut state = self.lock().clone();
        drop(state.blocks.split_off(&(slot + 1)));
        state.finalized = state.finalized.min(state.latest().slot);
        state.branch = self.next_branch();
        Ledger { state: Arc::new(Mutex::new(state)), branches: Arc::clone(&self.branches) }
    }

    /// The same chain with other blocks in the same slots from `slot` on.
    #[must_use]
    pub fn forked_at(&self, slot: u64) -> Self {
        let fork = self.branch_at(slot - 1);
        let above: Vec<Arc<Block>> = self.lock().blocks.range(slot..).map(|(_, block)| Arc::clone(block)).collect();
        for block in above {
            fork.produce(block.slot, block.txs.clone());
        }
        fork
    }

    /// Changes what stands in a block; its hash says nothing of it.
    pub fn amend(&self, slot: u64, change: impl FnOnce(&mut Block)) {
        let mut state = self.lock();
        change(Arc::make_mut(state.blocks.get_mut(&slot).expect("a block in this slot")));
    }

    /// Adds a transaction to a block that is there.
    pub fn put(&self, slot: u64, tx: Tx) {
        self.amend(slot, |block| block.txs.push(tx));
    }

    /// From now on blocks become final in this way.
    pub fn set_finality(&self, rule: Finality) {
        let mut state = self.lock();
        state.rule = rule;
        state.settle();
    }

    /// The newest block at or below `slot`, and all below it, are final.
    pub fn finalize(&self, slot: u64) {
        let mut state = self.lock();
        let newest = state.blocks.range(..=slot).next_back().map_or(0, |(slot, _)| *slot);
        state.finalized = state.finalized.max(newest);
    }

    pub fn latest(&self) -> BlockRef {
        self.lock().latest().reference()
    }

    pub fn finalized(&self) -> BlockRef {
        let state = self.lock();
        state.blocks[&state.finalized].reference()
    }

    /// The block in `slot`, if there is one.
    pub fn block(&self, slot: u64) -> Option<Arc<Block>> {
        self.lock().blocks.get(&slot).cloned()
    }

    /// All blocks, ascending.
    pub fn blocks(&self) -> Vec<Arc<Block>> {
        self.lock().blocks.values().cloned().collect()
    }

    /// What final blocks above `slot` pay, each with its slot and transaction: what is true.
    pub fn paid_above(&self, slot: u64) -> Vec<(u64, Tx, Payment)> {
        let state = self.lock();
        let mut paid = Vec::new();
        if slot < state.finalized {
            for block in state.blocks.range(slot + 1..=state.finalized).map(|(_, block)| block) {
                for tx in &block.txs {
                    paid.extend(tx.payments.iter().map(|payment| (block.slot, tx.clone(), *payment)));
                }
            }
        }
        paid
    }

    /// How many blocks there are above `slot`.
    pub fn blocks_above(&self, slot: u64) -> usize {
        self.lock().blocks.range(slot + 1..).count()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // A test that panicked has failed already.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_branch(&self) -> u64 {
        self.branches.fetch_add(1, Ordering::Relaxed) + 1
    }
}

impl State {
    pub(crate) fn latest(&self) -> &Arc<Block> {
        self.blocks.values().next_back().expect("a ledger has a block")
    }

    fn settle(&mut self) {
        let behind = match self.rule {
            Finality::Stalled => return,
            Finality::AtOnce => 0,
            Finality::Behind(blocks) => blocks,
        };
        if let Some(newest) = self.blocks.keys().rev().nth(behind) {
            self.finalized = self.finalized.max(*newest);
        }
    }
}

fn time_of(slot: u64) -> Option<i64> {
    i64::try_from(TIME + slot).ok()
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        write!(f, "Ledger through {}, final through {}", state.latest().slot, state.finalized)
    }
}
