//! When a block counts as final: facts of a network, or an operator's word. How a chain tells is its adapter's.

use crate::{AssetId, U256};

/// When a block counts as one that can no longer be replaced: a rule, and earlier ones for small amounts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finality {
    /// What every amount waits for, unless a tier says less.
    pub rule: FinalityRule,
    /// Exceptions; of those that fit a deposit, the first counts.
    pub tiers: Vec<Tier>,
}

/// What one block must have behind it. All parts that are set must hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FinalityRule {
    /// The node's tag must have reached it.
    pub tag: Option<Tag>,
    /// So many blocks must stand on it: with 12 and a newest block 100, block 88 is final. 0 asks for none.
    pub confirmations: u64,
    /// So many L1 blocks must have passed since the tag first covered it (OP stack). 0 asks for none.
    pub l1_blocks: u64,
}

/// A node's word for blocks that it will not take back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tag {
    /// `finalized`.
    Finalized,
    /// `safe`.
    Safe,
}

/// Deposits of one asset up to an amount wait for less.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tier {
    /// What moves.
    pub asset: AssetId,
    /// In base units, inclusive: with 1000, a deposit of 1000 fits.
    pub up_to: U256,
    /// What such a deposit waits for.
    pub rule: FinalityRule,
}

impl FinalityRule {
    /// The node's `finalized` tag, and nothing else.
    pub const FINALIZED: FinalityRule = FinalityRule { tag: Some(Tag::Finalized), confirmations: 0, l1_blocks: 0 };
    /// The node's `safe` tag, and nothing else.
    pub const SAFE: FinalityRule = FinalityRule { tag: Some(Tag::Safe), confirmations: 0, l1_blocks: 0 };

    /// So many blocks on top, and nothing else.
    pub const fn confirmations(count: u64) -> Self {
        FinalityRule { tag: None, confirmations: count, l1_blocks: 0 }
    }
}

impl From<FinalityRule> for Finality {
    fn from(rule: FinalityRule) -> Self {
        Finality { rule, tiers: Vec::new() }
    }
}
