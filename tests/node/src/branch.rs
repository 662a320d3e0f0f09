//! Branches that never win: what a lying or badly connected node shows instead of the chain.
//!
//! A branch begins above the newest final block, grows with the chain and stays one longer than it. It has none of the
//! chain's transactions; in each block the liar pays the bait, natively, in a token and inside of a transaction.
//! Whoever credits that has credited a phantom.

use std::collections::HashMap;
use std::sync::Arc;

use alloy::primitives::{Address, B256, keccak256};

use crate::block::Block;
use crate::chain::State;
use crate::mint::{self, Place};
use crate::tx::Tx;
use crate::wallet::LIAR;

/// What the liar pays, in base units.
pub const BAIT: u64 = 666;
/// How many blocks of the chain a new branch replaces, where so many are not final.
const DEPTH: u64 = 3;

/// A contract that the liar pays through.
const HANDS_ON: Address = Address::repeat_byte(0xc9);

#[derive(Default)]
pub(crate) struct Branches {
    /// Whom the liar pays, and in which token.
    pub(crate) bait: Option<(Address, Address)>,
    grown: HashMap<Salt, Vec<Arc<Block>>>,
}

/// Distinguishes branches: two lies at once contradict each other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Salt {
    /// A node that follows another fork.
    Fork,
    /// Where the second half of a torn batch comes from.
    Torn,
    /// A block that is called final.
    Final,
}

impl State {
    /// The branch as it is now, oldest block first.
    pub(crate) fn branch(&mut self, salt: Salt) -> Vec<Arc<Block>> {
        let latest = self.latest();
        let mut branch = self.branches.grown.remove(&salt).unwrap_or_default();
        if !branch.first().is_some_and(|first| self.may_begin(first)) {
            branch.clear();
        }
        let finalized = self.finalized.map_or(0, |finalized| finalized.number);
        let base = latest.number.saturating_sub(DEPTH).max(finalized).min(latest.number);
        let mut parent = branch.last().unwrap_or(&self.blocks[&base]).clone();
        while parent.number <= latest.number {
            let number = parent.number + 1;
            let name = keccak256(format!("{salt:?} {number} {}", latest.hash));
            let place = Place { chain_id: self.chain_id, parent: &parent, salt: name };
            let block = Arc::new(mint::block(&place, self.bait_txs(number), Vec::new()));
            branch.push(block.clone());
            parent = block;
        }
        self.branches.grown.insert(salt, branch.clone());
        branch
    }

    /// Whether a branch that begins with this block still stands on the chain, above what is final.
    fn may_begin(&self, first: &Block) -> bool {
        let stands = self.blocks.get(&(first.number - 1)).is_some_and(|parent| parent.hash == first.parent);
        stands && self.finalized.is_none_or(|finalized| finalized.number < first.number)
    }

    fn bait_txs(&self, number: u64) -> Vec<Tx> {
        let Some((to, token)) = self.branches.bait else { return Vec::new() };
        let nonce = 3 * number;
        vec![
            Tx::pay(LIAR, nonce, to, BAIT),
            Tx::token(LIAR, nonce + 1, token, to, BAIT),
            Tx::forward(LIAR, nonce + 2, HANDS_ON, to, BAIT),
        ]
    }
}

/// A hash that no block has.
pub(crate) const NO_BLOCK: B256 = B256::repeat_byte(0xee);
