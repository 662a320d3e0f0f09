//! Reads final blocks that were read already once more, in full, and tells where our record says otherwise.
//!
//! Compared are the block's hash, the deposits that its legs to watched addresses must have made, and the deposits that
//! were seen in it. Legs from before their address was watched are no difference: nobody has read them yet, and
//! backfill is for them. With `repair`, what is missing is recorded as a backfill would; nothing is ever taken away.

use std::fmt;

use landfall_chain::{Address, Block, BlockHash, BlockRef, BlockSource, TxId};

use crate::deposit::{DepositId, DepositStatus};
use crate::store::cursors;
use crate::store::{accounts, deposits};
use crate::time::Timestamp;
use crate::watcher::backfill::{Progress, first_read};
use crate::watcher::{BackfillError, TickError, Watcher};

/// Where chain and record differ.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Difference {
    /// Our record has another block there.
    OtherBlock { finalized: BlockRef, ours: BlockHash },
    /// A leg to a watched address made no deposit.
    Missing { block: BlockRef, deposit: DepositId, tx: TxId, recipient: Address },
    /// A leg to a watched address is final, and its deposit FAILED.
    Failed { block: BlockRef, deposit: DepositId, recipient: Address },
    /// A deposit was seen in the block, and its leg is not there.
    NotThere { block: BlockRef, deposit: DepositId, status: DepositStatus },
}

/// A rescan under way.
#[derive(Debug)]
pub struct Rescan<S> {
    watcher: Watcher<S>,
    repair: bool,
    progress: Progress,
    /// What was found since it was last taken.
    differences: Vec<Difference>,
}

impl<S: BlockSource> Rescan<S> {
    /// Checks the range: final, and read already.
    ///
    /// # Errors
    /// See [`BackfillError`].
    pub async fn begin(watcher: Watcher<S>, from: u64, to: u64, repair: bool) -> Result<Self, BackfillError> {
        let until = watcher.check_range(from, to).await?;
        watcher.watch_list.follow(&mut watcher.db.read().await?).await?;
        let progress = Progress { from, until, next: first_read(from), found: 0, confirmed: 0 };
        Ok(Rescan { watcher, repair, progress, differences: Vec::new() })
    }

    /// Reads and compares some blocks, and mends what can be when asked to.
    ///
    /// # Errors
    /// See [`TickError`].
    pub async fn step(&mut self, now: Timestamp) -> Result<(), TickError> {
        if self.is_done() {
            return Ok(());
        }
        let blocks = self.watcher.final_blocks(self.progress.next, self.progress.until).await?;
        let mut differences = Vec::new();
        for block in &blocks {
            let found = self.compare(block).await?;
            let missing: Vec<Address> = found.iter().filter_map(Difference::recipient).collect();
            if self.repair && !missing.is_empty() {
                let wanted = |address: &Address| missing.contains(address);
                let ticked = self.watcher.credit_final(std::slice::from_ref(block), &wanted, now).await?;
                self.progress.confirmed += ticked.confirmed;
            }
            differences.extend(found);
        }
        self.progress.found += u64::try_from(differences.len()).unwrap_or(u64::MAX);
        self.differences.extend(differences);
        self.progress.next = blocks.last().map_or(self.progress.next, |block| block.header.block.number + 1);
        Ok(())
    }

    pub fn is_done(&self) -> bool {
        self.progress.next > self.progress.until
    }

    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// The differences that were found since this was last asked.
    pub fn take_differences(&mut self) -> Vec<Difference> {
        std::mem::take(&mut self.differences)
    }

    async fn compare(&self, block: &Block) -> Result<Vec<Difference>, TickError> {
        let (chain, at) = (self.watcher.chain(), block.header.block);
        let mut reader = self.watcher.db.read().await?;
        let mut differences = Vec::new();
        match cursors::canonical_at(&mut reader, chain, at.number).await? {
            Some(ours) if ours != at.hash => {
                return Ok(vec![Difference::OtherBlock { finalized: at, ours }]);
            }
            Some(_) | None => {}
        }
        for leg in self.watcher.wanted_legs(block, &|_| true) {
            let (deposit, recipient) = (leg.hash().deposit_id(), *leg.recipient());
            match deposits::by_leg(&mut reader, &leg.hash()).await? {
                Some(recorded) if recorded.status == DepositStatus::Failed => {
                    differences.push(Difference::Failed { block: at, deposit, recipient });
                }
                Some(_) => {}
                None => {
                    let from = accounts::watched_from(&mut reader, chain, &recipient).await?;
                    if from.is_some_and(|from| from <= at.number) {
                        differences.push(Difference::Missing { block: at, deposit, tx: leg.tx(), recipient });
                    }
                }
            }
        }
        for deposit in deposits::in_block(&mut reader, chain, &at.hash).await? {
            if !self.watcher.has_leg(block, &deposit) {
                let (deposit, status) = (deposit.id, deposit.status);
                differences.push(Difference::NotThere { block: at, deposit, status });
            }
        }
        Ok(differences)
    }
}

impl Difference {
    /// Whom something must be recorded for.
    fn recipient(&self) -> Option<Address> {
        match self {
            Difference::Missing { recipient, .. } | Difference::Failed { recipient, .. } => Some(*recipient),
            Difference::OtherBlock { .. } | Difference::NotThere { .. } => None,
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Difference::OtherBlock { finalized, ours } => {
                write!(f, "block {finalized} is final, but our record has {ours} at its number")
            }
            Difference::Missing { block, deposit, tx, recipient } => {
                write!(f, "block {block}: deposit {deposit} to {recipient} in transaction {tx} is not on record")
            }
            Difference::Failed { block, deposit, .. } => {
                write!(f, "block {block}: deposit {deposit} is FAILED, but its transaction is in this final block")
            }
            Difference::NotThere { block, deposit, status } => {
                write!(f, "block {block}: deposit {deposit} ({status}) was seen in it, but its leg is not there")
            }
        }
    }
}
