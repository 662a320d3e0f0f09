//! Reads final blocks again that were read before, in full and in both lanes, and reports where our record differs.
//!
//! It compares:
//! - the block's hash, and the numbers that the chain passes over;
//! - the deposits that the block's legs to watched addresses must have made or been seen again by;
//! - the deposits that were seen in the block;
//! - what left watched addresses, and the fees that they paid.
//!
//! Traces are compared with what two endpoints report, if there are two. Legs from before their address was watched are
//! no difference: they were never read, and backfill is for them. With `repair`, what is missing is recorded as a
//! backfill would, and the record of a block from one endpoint is replaced by what two report (`replace_record`).
//! Nothing else is removed.

use std::fmt;

use landfall_chain::{Address, AddressSource, Block, BlockHash, BlockRef, BlockSource, Chain, Lane, Proof, TxId};

use crate::deposit::{Deposit, DepositId, DepositStatus};
use crate::store::cursors;
use crate::store::{accounts, deposits};
use crate::time::Timestamp;
use crate::watcher::books::Books;
use crate::watcher::books::movements::{self, Movement, Unmatched};
use crate::watcher::books::replace_record::is_weaker;
use crate::watcher::past::final_range::Past;
use crate::watcher::past::{Progress, Span, first_read};
use crate::watcher::read::Window;
use crate::watcher::{BackfillError, Follower, TickError, TraceLane};

/// Where chain and record differ.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Difference {
    /// Our record has another block there.
    OtherBlock { finalized: BlockRef, ours: BlockHash },
    /// Our record has a block there, in which these deposits were seen, and the final chain has none.
    NoBlock { ours: BlockRef, deposits: Vec<(DepositId, DepositStatus)> },
    /// A leg to a watched address made no deposit.
    Missing { block: BlockRef, deposit: DepositId, tx: TxId, recipient: Address, proof: Proof },
    /// A leg to a watched address is final, and its deposit FAILED.
    Failed { block: BlockRef, deposit: DepositId, recipient: Address, proof: Proof },
    /// A leg to a watched address is in the block, and its deposit, which was seen elsewhere, was not seen there.
    Unseen { block: BlockRef, deposit: DepositId, status: DepositStatus, recipient: Address, proof: Proof },
    /// A deposit was seen in the block, and its leg is not there.
    NotThere { block: BlockRef, deposit: DepositId, status: DepositStatus, proof: Proof },
    /// What left a watched address, or a fee that it paid, is not on record, or a fee has another amount there.
    Unbooked { block: BlockRef, movement: Movement, of: Address, tx: TxId, proof: Proof },
    /// Such a movement is on record, and not in the block.
    Unmoved { block: BlockRef, movement: Movement, of: Address, tx: TxId, proof: Proof },
}

#[derive(Debug)]
pub struct Rescan<S> {
    books: Books<S>,
    lane: Option<TraceLane<S>>,
    repair: bool,
    /// Both lanes advance together, so that one number says where to begin again.
    progress: Progress,
    roots: Window,
    traces: Window,
    /// What was found since it was last taken.
    differences: Vec<Difference>,
}

impl<S: BlockSource + AddressSource + Clone> Rescan<S> {
    /// Checks the range: it must be final, and read already.
    ///
    /// # Errors
    /// See [`BackfillError`].
    pub async fn begin(follower: Follower<S>, from: u64, to: u64, repair: bool) -> Result<Self, BackfillError> {
        let lane = follower.trace_lane();
        let books = follower.books;
        let until = books.check_range(from, to).await?;
        if repair {
            books.check_not_halted().await?;
        }
        books.watch_list.follow(&mut books.db.read().await?).await?;
        let traces = books.traced_span(first_read(from), until).filter(|_| lane.is_some());
        let progress = Progress::begun(from, until, traces);
        let (roots, traces) = (Window::roots(), Window::traces());
        Ok(Rescan { books, lane, repair, progress, roots, traces, differences: Vec::new() })
    }

    /// Reads and compares some blocks of one lane, and repairs what can be repaired if asked to.
    ///
    /// # Errors
    /// See [`TickError`].
    pub async fn step(&mut self, now: Timestamp) -> Result<(), TickError> {
        let next = self.progress.next;
        match self.progress.untraced().filter(|span| span.next < next) {
            Some(span) => self.step_traces(span, span.until.min(next - 1), now).await,
            None if next <= self.progress.until => self.step_roots(now).await,
            None => Ok(()),
        }
    }

    async fn step_roots(&mut self, now: Timestamp) -> Result<(), TickError> {
        let Progress { next, until, .. } = self.progress;
        let Past { blocks, through } = self.books.final_blocks(next, until, &mut self.roots).await?;
        for block in &blocks {
            let at = block.header.block.number;
            let mut found = self.passed_over(self.progress.next, at).await?;
            found.extend(self.compare(block, Lane::Block).await?);
            let (db, chain) = (&self.books.db, self.books.chain());
            // Which of two blocks is canonical is for the watcher to decide.
            let is_ours = !found.iter().any(|difference| matches!(difference, Difference::OtherBlock { .. }));
            let is_restated = self.repair && is_ours && is_weaker(&mut db.read().await?, chain, block).await?;
            if let Some(missing) = self.to_mend(&found).or_else(|| is_restated.then(Vec::new)) {
                let one = std::slice::from_ref(block);
                let wanted = |address: &Address| missing.contains(address);
                let ticked = self.books.credit_final(one, &wanted, now).await?;
                self.progress.confirmed += ticked.confirmed;
            }
            self.progress.stands_on(block.proof);
            self.report(found);
            self.progress.next = at + 1;
        }
        let found = self.passed_over(self.progress.next, through + 1).await?;
        self.report(found);
        self.progress.next = through + 1;
        Ok(())
    }

    async fn step_traces(&mut self, span: Span, until: u64, now: Timestamp) -> Result<(), TickError> {
        let Past { blocks, through } = self.books.final_blocks(span.next, until, &mut self.traces).await?;
        for block in &blocks {
            let found = self.compare(block, Lane::Traces).await?;
            if let (Some(missing), Some(lane)) = (self.to_mend(&found), &self.lane) {
                let one = std::slice::from_ref(block);
                let wanted = |address: &Address| missing.contains(address);
                let traced = self.books.credit_traced(lane, one, &wanted, now).await?;
                self.progress.confirmed += traced.confirmed;
                self.progress.doubted += traced.doubted;
            }
            self.report(found);
            self.progress.traces = Some(Span { next: block.header.block.number + 1, ..span });
        }
        self.progress.traces = Some(Span { next: through + 1, ..span });
        Ok(())
    }

    /// Adds what was found in a block, which is then done: an error in the next block reports nothing twice.
    fn report(&mut self, found: Vec<Difference>) {
        self.progress.found += u64::try_from(found.len()).unwrap_or(u64::MAX);
        self.differences.extend(found);
    }

    /// The addresses for which something must be recorded; `None` without repair or if there are none.
    fn to_mend(&self, found: &[Difference]) -> Option<Vec<Address>> {
        let missing: Vec<Address> = found.iter().filter_map(Difference::whose).collect();
        (self.repair && !missing.is_empty()).then_some(missing)
    }

    pub fn is_done(&self) -> bool {
        self.progress.is_done()
    }

    pub fn chain(&self) -> Chain {
        self.books.chain()
    }

    /// The noun for what the progress counts.
    pub fn numbers(&self) -> &'static str {
        self.books.chain().family().numbers()
    }

    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// The next block that is not compared in both lanes.
    pub fn next(&self) -> u64 {
        let Progress { next, .. } = self.progress;
        self.progress.untraced().map_or(next, |span| span.next.min(next))
    }

    /// The differences that were found since the last call.
    pub fn take_differences(&mut self) -> Vec<Difference> {
        std::mem::take(&mut self.differences)
    }

    /// What our record has at the numbers `from..below`, which the final chain passes over, and which deposits were
    /// seen there.
    async fn passed_over(&self, from: u64, below: u64) -> Result<Vec<Difference>, TickError> {
        if from >= below {
            return Ok(Vec::new());
        }
        let (chain, mut differences) = (self.books.chain(), Vec::new());
        let mut reader = self.books.db.read().await?;
        for ours in cursors::canonical_in(&mut reader, chain, from, below - 1).await?.into_iter().rev() {
            let seen = deposits::in_block(&mut reader, chain, &ours.hash, Lane::Block).await?;
            let deposits = seen.into_iter().map(|deposit| (deposit.id, deposit.status)).collect();
            differences.push(Difference::NoBlock { ours, deposits });
        }
        Ok(differences)
    }

    async fn compare(&self, block: &Block, lane: Lane) -> Result<Vec<Difference>, TickError> {
        let (chain, at, proof) = (self.books.chain(), block.header.block, block.proof);
        let mut reader = self.books.db.read().await?;
        let mut differences = Vec::new();
        match cursors::canonical_at(&mut reader, chain, at.number).await? {
            Some(ours) if ours != at.hash => {
                // Reported once, by the lane of the roots.
                let other = Difference::OtherBlock { finalized: at, ours };
                return Ok(if lane == Lane::Block { vec![other] } else { Vec::new() });
            }
            Some(_) | None => {}
        }
        // A leg is seen in a block once, by whichever lane was first.
        let by_roots = deposits::in_block(&mut reader, chain, &at.hash, Lane::Block).await?;
        let by_traces = deposits::in_block(&mut reader, chain, &at.hash, Lane::Traces).await?;
        let Books { network, watch_list, .. } = &self.books;
        for leg in self.books.select(block).watched_legs(network) {
            let (deposit, recipient) = (leg.hash().deposit_id(), *leg.recipient());
            match deposits::by_leg(&mut reader, &leg.hash()).await? {
                Some(Deposit { status: DepositStatus::Failed, .. }) => {
                    differences.push(Difference::Failed { block: at, deposit, recipient, proof });
                }
                Some(_) if by_roots.iter().chain(&by_traces).any(|seen| seen.id == deposit) => {}
                Some(Deposit { status, .. }) => {
                    differences.push(Difference::Unseen { block: at, deposit, status, recipient, proof });
                }
                None => {
                    let from = accounts::watched_from(&mut reader, chain, &recipient).await?;
                    if from.is_some_and(|from| from <= at.number) {
                        differences.push(Difference::Missing { block: at, deposit, tx: leg.tx(), recipient, proof });
                    }
                }
            }
        }
        for deposit in if lane == Lane::Block { by_roots } else { by_traces } {
            if !self.books.has_leg(block, &deposit) {
                let (deposit, status) = (deposit.id, deposit.status);
                differences.push(Difference::NotThere { block: at, deposit, status, proof });
            }
        }
        for unmatched in movements::compare(&mut reader, network, watch_list, block, lane).await? {
            let Unmatched { movement, of, tx, proof, is_on_record } = unmatched;
            differences.push(match is_on_record {
                true => Difference::Unmoved { block: at, movement, of, tx, proof },
                false => Difference::Unbooked { block: at, movement, of, tx, proof },
            });
        }
        Ok(differences)
    }
}

impl Difference {
    /// The block of the final chain that differs; if there is none, ours.
    pub fn block(&self) -> BlockRef {
        match self {
            Difference::OtherBlock { finalized: block, .. }
            | Difference::NoBlock { ours: block, .. }
            | Difference::Missing { block, .. }
            | Difference::Failed { block, .. }
            | Difference::Unseen { block, .. }
            | Difference::NotThere { block, .. }
            | Difference::Unbooked { block, .. }
            | Difference::Unmoved { block, .. } => *block,
        }
    }

    /// For whom something must be recorded; `None` if nothing.
    fn whose(&self) -> Option<Address> {
        match self {
            Difference::Missing { recipient, .. }
            | Difference::Failed { recipient, .. }
            | Difference::Unseen { recipient, .. } => Some(*recipient),
            Difference::Unbooked { of, .. } => Some(*of),
            Difference::OtherBlock { .. }
            | Difference::NoBlock { .. }
            | Difference::NotThere { .. }
            | Difference::Unmoved { .. } => None,
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Difference::OtherBlock { finalized, ours } => {
                write!(f, "block {finalized} is final, but our record has {ours} at its number")
            }
            Difference::NoBlock { ours, deposits } => {
                write!(f, "our record has block {ours}, but the final chain has no block at its number")?;
                deposits
                    .iter()
                    .try_for_each(|(deposit, status)| write!(f, "; deposit {deposit} ({status}) was seen in it"))
            }
            Difference::Missing { block, deposit, tx, recipient, proof } => {
                let by = by(*proof);
                write!(f, "block {block}: deposit {deposit} to {recipient} in transaction {tx} is not on record{by}")
            }
            Difference::Failed { block, deposit, proof, .. } => {
                let by = by(*proof);
                write!(f, "block {block}: deposit {deposit} is FAILED, but its transaction is in this final block{by}")
            }
            Difference::Unseen { block, deposit, status, proof, .. } => {
                let by = by(*proof);
                write!(f, "block {block}: deposit {deposit} ({status}) was not seen in it, but its leg is there{by}")
            }
            Difference::Unbooked { block, movement, of, tx, proof } => {
                let by = by(*proof);
                write!(f, "block {block}: the {movement} of {of} in transaction {tx} is not on record{by}")
            }
            Difference::Unmoved { block, movement, of, tx, proof } => {
                let by = by(*proof);
                write!(f, "block {block}: a {movement} of {of} in transaction {tx} is on record, but not there{by}")
            }
            Difference::NotThere { block, deposit, status, proof } => {
                let by = by(*proof);
                write!(f, "block {block}: deposit {deposit} ({status}) was seen in it, but its leg is not there{by}")
            }
        }
    }
}

/// Who reports it, where no root proves it.
fn by(proof: Proof) -> &'static str {
    match proof {
        Proof::Roots | Proof::Bloom => "",
        Proof::OneEndpoint => " (says one endpoint)",
        Proof::TwoEndpoints => " (say two endpoints)",
    }
}
