//! How past blocks of one lane are read: how many at once, in how many reads, in which steps.
//!
//! Promises: memory is bounded, by `width_max` times `ahead` blocks and by what is in them. The next reads become
//! narrower after a read that fails, shows less than was asked for, or shows very much. After any other read they
//! become wider again.

use std::ops::RangeInclusive;

use landfall_chain::{Block, Debits, Lane, Legs, Read, ReadProof, SourceError};

use crate::watcher::follow::connect::{READ_BLOCKS_MAX, READS_AHEAD_MAX, TICK_BLOCKS_MAX};

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

/// How many legs, debits, fees and rejected legs there are in blocks.
pub(in crate::watcher) fn legs(blocks: &[Block]) -> usize {
    let of = |block: &Block| {
        // On EVM debits are the legs themselves.
        let debits = if let Debits::Net(debits) = &block.debits { debits.len() } else { 0 };
        block.transfers.len() + debits + block.fees.len() + block.unattributed.len() + block.rejected.len()
    };
    blocks.iter().map(of).sum()
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
        let fee = Fee { tx, payer: sender, amount, proved: false };
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
}
