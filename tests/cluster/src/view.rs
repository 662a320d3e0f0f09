//! What of a ledger a node has: how far it is, what its own ledger lost, what its lists leave out.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;

use landfall_chain::BlockRef;
use serde_json::Value;

use crate::block::Block;
use crate::ledger::State;
use crate::node::Lists;

/// What a node sees.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) ledger: &'a State,
    /// The newest slot that it calls confirmed, and the newest that it calls final; both hold a block.
    pub(crate) confirmed: u64,
    pub(crate) finalized: u64,
    /// What was below this slot it threw away.
    pub(crate) first: u64,
    /// Slots whose blocks fell into a hole of its ledger.
    pub(crate) lost: &'a BTreeSet<u64>,
    /// Whether it says that what is left stands on what is left.
    pub(crate) links_over: bool,
    /// Whether calls are answered of whatever slot it has come to.
    pub(crate) is_of_any_context: bool,
    /// Slots that its lists leave out.
    pub(crate) unlisted: &'a BTreeSet<u64>,
    pub(crate) lists: Lists,
    /// Accounts that a test reports, by key, as `getAccountInfo` has them.
    pub(crate) accounts: &'a BTreeMap<String, Value>,
    /// The slot for which several accounts at once are reported, whatever is asked.
    pub(crate) accounts_at: Option<u64>,
    /// Whether all other accounts are not there.
    pub(crate) is_bare: bool,
}

/// How sure a node must be of what it reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Commitment {
    Processed,
    Confirmed,
    Finalized,
}

impl<'a> View<'a> {
    /// The newest slot that counts at `commitment`. What is processed is confirmed here.
    pub(crate) fn slot(&self, commitment: Commitment) -> u64 {
        match commitment {
            Commitment::Processed | Commitment::Confirmed => self.confirmed,
            Commitment::Finalized => self.finalized,
        }
    }

    /// The block in `slot`, when it has it and calls it confirmed.
    pub(crate) fn block(&self, slot: u64) -> Option<&'a Arc<Block>> {
        let has = slot <= self.confirmed && slot >= self.first && !self.lost.contains(&slot);
        self.ledger.blocks.get(&slot).filter(|_| has)
    }

    /// What it says that `block` stands on.
    pub(crate) fn parent(&self, block: &Block) -> BlockRef {
        let below = self.ledger.blocks.range(..block.slot).rev().map(|(_, below)| below);
        let mut left = below.filter(|below| !self.lost.contains(&below.slot));
        let reported = if self.links_over { left.next() } else { None };
        reported.map_or(block.parent, |parent| parent.reference())
    }

    /// The blocks that it has in these slots.
    pub(crate) fn blocks(&self, slots: RangeInclusive<u64>) -> impl DoubleEndedIterator<Item = &'a Arc<Block>> {
        let (view, slots) = (*self, (*slots.start()).max(self.first)..=(*slots.end()).min(self.confirmed));
        let range = (!slots.is_empty()).then(|| view.ledger.blocks.range(slots));
        range.into_iter().flatten().map(|(_, block)| block).filter(move |block| view.block(block.slot).is_some())
    }

    /// The newest block of the ledger at or below `slot`, whether its body is lost or not.
    pub(crate) fn bank(&self, slot: u64) -> &'a Arc<Block> {
        let newest = self.ledger.blocks.range(..=slot).next_back().or_else(|| self.ledger.blocks.iter().next());
        newest.map(|(_, block)| block).expect("a ledger has a block")
    }
}
