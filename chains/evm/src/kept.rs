//! Proved blocks that wait for the lane of the traces, so that it does not read and prove them a second time.
//!
//! Promises: each is returned once, for the next trace of the block only; a caller who judges a deposit has the roots
//! read again first, which forgets what was kept before. A block that was read again replaces the one at its number. A
//! range is returned only if all its blocks are kept and linked. At most [`KEPT_MAX`] blocks are held, the newest; a
//! missing one is read again, as if none had been kept. It does not know what is canonical: the lane compares hashes
//! with the record.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::{Mutex, PoisonError};

use landfall_chain::Block;

use crate::traces::frames::ProvedTx;

/// As many as are traced at once. With its encoded transactions a block is some hundred kilobytes, at most megabytes.
const KEPT_MAX: usize = 8;

/// A block as the roots prove it, with what its traces must agree with.
pub(crate) type ProvedBlock = (Block, Vec<ProvedTx>);

/// By number.
#[derive(Debug, Default)]
pub(crate) struct Kept(Mutex<BTreeMap<u64, ProvedBlock>>);

impl Kept {
    /// Forgets what was kept of these numbers: they are read again.
    pub(crate) fn forget(&self, range: &RangeInclusive<u64>) {
        self.with(|kept| kept.retain(|number, _| !range.contains(number)));
    }

    /// Keeps the newest of `proved`, and returns the blocks alone.
    pub(crate) fn keep(&self, proved: Vec<ProvedBlock>) -> Vec<Block> {
        let older = proved.len().saturating_sub(KEPT_MAX);
        let mut blocks = Vec::with_capacity(proved.len());
        self.with(|kept| {
            for (index, (block, txs)) in proved.into_iter().enumerate() {
                if index >= older {
                    kept.insert(block.header.block.number, (block.clone(), txs));
                }
                blocks.push(block);
            }
            while kept.len() > KEPT_MAX {
                kept.pop_first();
            }
        });
        blocks
    }

    /// The blocks of `range`, when all of them are kept and each stands on the one before it. They are kept no longer.
    pub(crate) fn take(&self, range: RangeInclusive<u64>) -> Option<Vec<ProvedBlock>> {
        let wanted = usize::try_from(range.end().checked_sub(*range.start())?).ok()?.checked_add(1)?;
        self.with(|kept| {
            let linked: Vec<(u64, _)> = kept.range(range).map(|(number, (block, _))| (*number, block.header)).collect();
            let hangs_together = linked.windows(2).all(|pair| pair[1].1.parent == pair[0].1.block);
            let taken = || linked.iter().filter_map(|(number, _)| kept.remove(number)).collect();
            (linked.len() == wanted && hangs_together).then(taken)
        })
    }

    fn with<T>(&self, work: impl FnOnce(&mut BTreeMap<u64, ProvedBlock>) -> T) -> T {
        // Each change leaves it whole: a panic elsewhere does not matter.
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
