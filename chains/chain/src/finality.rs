//! When a block counts as final: facts of a network, or an operator's override. How a chain reports it is its
//! adapter's.

use serde::Deserialize;

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

/// The tag that a node gives to blocks that it will not replace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tag {
    /// `finalized`.
    Finalized,
    /// `safe`.
    Safe,
}

/// How a rule is written: the key `finality`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RuleName {
    /// The node's `finalized` tag.
    Finalized,
    /// The node's `safe` tag.
    Safe,
    /// Blocks on top, and no tag.
    Confirmations,
}

/// The keys of a rule do not go together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{key}: {what}")]
pub struct RuleError {
    /// The key that is wrong.
    pub key: &'static str,
    /// What to write instead.
    pub what: &'static str,
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

impl FinalityRule {
    /// The rule that the keys `finality`, `confirmations` and `l1_blocks` make up. Beside a tag, `confirmations` must
    /// hold too.
    ///
    /// # Errors
    /// Keys that do not go together.
    pub fn of_keys(name: RuleName, confirmations: Option<u64>, l1_blocks: Option<u64>) -> Result<Self, RuleError> {
        let tag = match name {
            RuleName::Finalized => Some(Tag::Finalized),
            RuleName::Safe => Some(Tag::Safe),
            RuleName::Confirmations => None,
        };
        let wrong = |key, what| Err(RuleError { key, what });
        match (confirmations, l1_blocks) {
            (None, _) if tag.is_none() => wrong("confirmations", "finality = \"confirmations\" needs this number"),
            (Some(0), _) => wrong("confirmations", "expected at least 1: the newest block is never final"),
            (_, Some(_)) if tag != Some(Tag::Safe) => {
                wrong("l1_blocks", "counts only together with finality = \"safe\"")
            }
            (_, Some(0)) => wrong("l1_blocks", "expected at least 1"),
            (confirmations, l1_blocks) => Ok(FinalityRule {
                tag,
                confirmations: confirmations.unwrap_or_default(),
                l1_blocks: l1_blocks.unwrap_or_default(),
            }),
        }
    }
}

impl FinalityRule {
    /// Whether what this rule calls final is final by `other` too.
    pub fn implies(&self, other: &FinalityRule) -> bool {
        let tag = match (self.tag, other.tag) {
            (_, None) | (Some(Tag::Finalized), Some(_)) | (Some(Tag::Safe), Some(Tag::Safe)) => true,
            (None, Some(_)) | (Some(Tag::Safe), Some(Tag::Finalized)) => false,
        };
        tag && self.confirmations >= other.confirmations && self.l1_blocks >= other.l1_blocks
    }
}

impl From<FinalityRule> for Finality {
    fn from(rule: FinalityRule) -> Self {
        Finality { rule, tiers: Vec::new() }
    }
}
