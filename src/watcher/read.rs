//! How blocks are read: how many at once, in how many reads, in which steps, and how far they hang together.
//!
//! Promises: memory is bounded, by `width_max` times `ahead` blocks and by what is in them. The next reads become
//! narrower after a read that fails, shows less than was asked for, or shows very much. After any other read they
//! become wider again.

use std::ops::RangeInclusive;

use landfall_chain::{Block, BlockRef, Debits, Lane, Legs, Read, ReadProof, SourceError};

/// How many blocks one read asks for at most, and one transaction records. A read that failed halves the number, any
/// other adds one: what is too much for a node at once is asked for in parts.
pub(in crate::watcher) const READ_BLOCKS_MAX: u64 = 20;
/// How many reads are under way at once; together with the above it bounds memory.
pub(in crate::watcher) const READS_AHEAD_MAX: usize = 4;
/// How many blocks a tick connects at most.
pub(in crate::watcher) const TICK_BLOCKS_MAX: u64 = 100;
/// How many final blocks stay on record below the newest final one, to find fork points.
pub(in crate::watcher) const FINAL_BLOCKS_KEPT: u64 = 1_024;
/// A block's trace has some megabytes and is work for a node, so few are read at once.
const TRACED_BLOCKS_MAX: u64 = 4;
const TRACED_STEP_BLOCKS: u64 = 32;

/// How many legs and fees one read may show, and one step: some 300 bytes each, and as much again while they are read.
const READ_LEGS_MAX: usize = 40_000;
pub(in crate::watcher) const STEP_LEGS_MAX: usize = 200_000;

#[derive(Debug)]
pub(in crate::watcher) struct Window {
    pub(in crate::watcher) read: Read,
    /// How many blocks a read asks for now.
    pub(in crate::watcher) width: u64,
    width_max: u64,
    pub(in crate::watcher) ahead: usize,
    /// How many numbers a step covers.
    pub(in crate::watcher) step: u64,
}

impl Window {
    pub(in crate::watcher) fn roots() -> Self {
        let (width, ahead, step) = (READ_BLOCKS_MAX, READS_AHEAD_MAX, TICK_BLOCKS_MAX);
        Window { read: Read::FULL, width, width_max: width, ahead, step }
    }

    /// What an endpoint leaves out of a trace is missed for good, so two endpoints are asked where there are two.
    pub(in crate::watcher) fn traces() -> Self {
        let read = Read { lane: Lane::Traces, proof: ReadProof::Full, legs: Legs::Creditable };
        let (width, ahead, step) = (TRACED_BLOCKS_MAX, READS_AHEAD_MAX, TRACED_STEP_BLOCKS);
        Window { read, width, width_max: width, ahead, step }
    }

    /// Adapts the width to the outcome of a read of `asked`.
    pub(in crate::watcher) fn learn(&mut self, asked: &RangeInclusive<u64>, read: &Result<Vec<Block>, SourceError>) {
        self.width = match read {
            Err(_) => self.width / 2,
            Ok(blocks) if legs(blocks) > READ_LEGS_MAX => self.width / 2,
            Ok(blocks) => match blocks.last().map(|last| last.header.block.number) {
                Some(last) if last < *asked.end() => last.saturating_sub(*asked.start()) + 1,
                Some(_) | None => self.width + 1,
            },
        }
        .clamp(1, self.width_max);
    }
}

/// How many legs, debits, fees, marks and rejected legs there are in blocks.
pub(in crate::watcher) fn legs(blocks: &[Block]) -> usize {
    let of = |block: &Block| {
        // On EVM debits are the legs themselves.
        let debits = if let Debits::Net(debits) = &block.debits { debits.len() } else { 0 };
        let moved = block.transfers.len() + debits + block.fees.len();
        moved + block.marks.len() + block.unattributed.len() + block.rejected.len()
    };
    blocks.iter().map(of).sum()
}

/// The reads of one tick: blocks `at + 1 ..= latest`, cut to what a tick connects, `width` blocks each.
pub(in crate::watcher) fn ranges(at: u64, latest: u64, width: u64) -> impl Iterator<Item = RangeInclusive<u64>> {
    let last = latest.min(at.saturating_add(TICK_BLOCKS_MAX));
    let mut first = at + 1;
    std::iter::from_fn(move || {
        let range = first..=last.min(first + (width - 1));
        first = range.end() + 1;
        (!range.is_empty()).then_some(range)
    })
}

/// The first blocks, as long as each stands on `at` or on the one before it.
pub(in crate::watcher) fn linked<'b>(at: &BlockRef, blocks: &'b [Block]) -> &'b [Block] {
    let mut parent = *at;
    let broken = blocks.iter().position(|block| {
        let stands = block.header.parent == parent && block.header.block.number > parent.number;
        parent = block.header.block;
        !stands
    });
    &blocks[..broken.unwrap_or(blocks.len())]
}

#[cfg(test)]
mod tests {
    use landfall_chain::{
        Address, AssetId, AssetTransfer, BlockHash, BlockRef, Fee, Header, Proof, Rejected, SenderRule, Signers, TxId,
        TxLife, TxRef, U256, Verdict,
    };

    use super::*;

    fn block(number: u64) -> Block {
        let [block, parent] = [number, number - 1].map(|number| BlockRef { number, hash: BlockHash([0; 32]) });
        Block {
            header: Header { block, parent, time_secs: 0 },
            txs: Vec::new(),
            transfers: Vec::new(),
            debits: Debits::ByLegs,
            unattributed: Vec::new(),
            fees: Vec::new(),
            marks: Vec::new(),
            rejected: Vec::new(),
            fee_recipient: None,
            proof: Proof::Roots,
            signers: Signers::default(),
            inside: None,
        }
    }

    #[test]
    fn failures_and_short_answers_make_reads_narrower_and_whole_ones_wider() {
        let mut window = Window::roots();
        let failed = || Err(SourceError::transient("too much"));
        let widths: Vec<u64> = (0..6)
            .map(|_| {
                window.learn(&(1..=20), &failed());
                window.width
            })
            .collect();
        assert_eq!(widths, [10, 5, 2, 1, 1, 1]);
        window.learn(&(1..=1), &Ok(vec![block(1)]));
        assert_eq!(window.width, 2);
        window.learn(&(10..=20), &Ok((10..=16).map(block).collect()));
        assert_eq!(window.width, 7, "7 of 11 were shown");
        window.learn(&(10..=20), &Ok(Vec::new()));
        assert_eq!(window.width, 8, "numbers may be skipped");
        (0..50).for_each(|_| window.learn(&(1..=1), &Ok(vec![block(1)])));
        assert_eq!(window.width, READ_BLOCKS_MAX);
        let fee = Fee {
            tx: TxRef { id: TxId::Evm([0; 32]), life: TxLife::Block },
            payer: Address::Evm([0; 20]),
            amount: U256::ZERO,
            outlay: 0,
            proved: true,
        };
        let heavy = Block { fees: vec![fee; READ_LEGS_MAX + 1], ..block(1) };
        window.learn(&(1..=1), &Ok(vec![heavy]));
        assert_eq!(window.width, READ_BLOCKS_MAX / 2, "very much is in them");
    }

    #[test]
    fn everything_that_a_block_names_counts_for_what_is_in_memory() {
        let tx = TxRef { id: TxId::Solana([0; 64]), life: TxLife::Block };
        let (sender, sender_rule, amount) = (Address::Solana([1; 32]), SenderRule::OnlyPayer, U256::ZERO);
        let leg = AssetTransfer { tx, asset: AssetId::Native, sender, sender_rule, recipient: sender, amount, nth: 0 };
        let fee = Fee { tx, payer: sender, amount, outlay: 0, proved: false };
        let rejected = Rejected { transfer: leg.clone(), verdict: Verdict::UnlistedToken };
        let full = Block {
            transfers: vec![leg.clone(); 1],
            debits: Debits::Net(vec![leg; 20]),
            unattributed: vec![rejected.clone(); 300],
            fees: vec![fee; 4_000],
            rejected: vec![rejected; 50_000],
            ..block(1)
        };
        assert_eq!(legs(&[full.clone(), full]), 2 * 54_321);
    }

    #[test]
    fn a_tick_reads_in_ranges_without_gaps_and_stops_at_its_limit() {
        assert_eq!(ranges(5, 5, 20).count(), 0);
        assert_eq!(ranges(9, 5, 20).count(), 0);
        assert_eq!(ranges(5, 6, 20).collect::<Vec<_>>(), [6..=6]);
        assert_eq!(ranges(0, 41, 20).collect::<Vec<_>>(), [1..=20, 21..=40, 41..=41]);
        assert_eq!(ranges(0, 3, 1).collect::<Vec<_>>(), [1..=1, 2..=2, 3..=3]);
        assert_eq!(ranges(10, u64::MAX, 20).map(|r| r.end() - r.start() + 1).sum::<u64>(), TICK_BLOCKS_MAX);
    }
}
