//! Which blocks a node shows: the chain, cut at the node's own head, or a branch of it.

use std::sync::Arc;

use alloy::primitives::B256;
use serde_json::Value;

use crate::block::Block;
use crate::chain::State;

/// What one answer is given from.
#[derive(Clone, Copy)]
pub(crate) struct View<'s> {
    pub(crate) state: &'s State,
    /// The newest block that it knows.
    head: u64,
    /// Stands instead of the chain's own blocks from its first number on; mostly empty.
    branch: &'s [Arc<Block>],
}

impl<'s> View<'s> {
    /// The chain as a node knows it that is so many blocks behind.
    pub(crate) fn behind(state: &'s State, behind: u64) -> Self {
        let newest = state.blocks.last_key_value().map_or(0, |(number, _)| *number);
        let wanted = newest.saturating_sub(behind);
        let head = state.blocks.range(..=wanted).next_back().map_or(newest, |(number, _)| *number);
        View { state, head, branch: &[] }
    }

    /// The chain with a branch that is not its own.
    pub(crate) fn on(state: &'s State, branch: &'s [Arc<Block>]) -> Self {
        View { head: branch.last().map_or(0, |block| block.number), state, branch }
    }

    pub(crate) fn head(&self) -> u64 {
        self.head
    }

    pub(crate) fn latest(&self) -> Option<&'s Arc<Block>> {
        self.at(self.head)
    }

    /// The block that this node calls final: what it does not know yet, it cannot.
    pub(crate) fn finalized(&self) -> Option<&'s Arc<Block>> {
        let block = self.state.finalized?;
        let hash = B256::new(block.hash.0);
        self.state.known.get(&hash).filter(|block| block.number <= self.head)
    }

    pub(crate) fn at(&self, number: u64) -> Option<&'s Arc<Block>> {
        if number > self.head {
            return None;
        }
        match self.branch.first() {
            Some(first) if number >= first.number => self.branch.iter().find(|block| block.number == number),
            _ => self.state.blocks.get(&number),
        }
    }

    /// Also one that was dropped by a fork: nodes keep those.
    pub(crate) fn by_hash(&self, hash: B256) -> Option<&'s Arc<Block>> {
        let known = self.branch.iter().find(|block| block.hash == hash).or_else(|| self.state.known.get(&hash));
        known.filter(|block| block.number <= self.head)
    }

    pub(crate) fn is_canonical(&self, block: &Block) -> bool {
        self.at(block.number).is_some_and(|ours| ours.hash == block.hash)
    }

    /// The canonical block with this transaction, and its place there.
    pub(crate) fn place(&self, tx: B256) -> Option<(&'s Arc<Block>, usize)> {
        let of_branch = self.branch.iter().find_map(|block| Some((block, index_of(block, tx)?)));
        of_branch.or_else(|| {
            let places = self.state.places.get(&tx)?;
            let mut known = places.iter().filter_map(|(hash, at)| Some((self.by_hash(*hash)?, *at)));
            known.find(|(block, _)| self.is_canonical(block))
        })
    }

    /// The block that a parameter means: a tag, a number, a hash, or an object with either (EIP-1898).
    pub(crate) fn block(&self, parameter: &Value) -> Option<&'s Arc<Block>> {
        match parameter {
            Value::Null => self.latest(),
            Value::Object(named) => {
                let block = named.get("blockHash").or_else(|| named.get("blockNumber"))?;
                let must_be_canonical = named.get("requireCanonical").is_some_and(|must| *must == true);
                self.block(block).filter(|block| !must_be_canonical || self.is_canonical(block))
            }
            Value::String(text) if text.len() == 66 => self.by_hash(text.parse().ok()?),
            Value::String(text) => match text.as_str() {
                "latest" | "pending" => self.latest(),
                "safe" | "finalized" => self.finalized(),
                "earliest" => self.state.blocks.values().next(),
                number => self.at(u64::from_str_radix(number.strip_prefix("0x")?, 16).ok()?),
            },
            _ => None,
        }
    }
}

fn index_of(block: &Block, tx: B256) -> Option<usize> {
    block.txs.iter().position(|mined| mined.hash == tx)
}
