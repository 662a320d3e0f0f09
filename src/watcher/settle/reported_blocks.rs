//! Keeps what was read of blocks that credit somebody, until they are final, where to read them again would prove no
//! more.
//!
//! No root covers a block of Solana: one endpoint reports it, or two report it alike, and the chain of hashes makes its
//! hash final. To read it again asks the same endpoints again, and costs megabytes for each block with a hit. So its
//! deposits are settled by what was read when it was connected.
//! Promises: what roots or a bloom prove is never kept, for it is proved anew. A block that is connected again replaces
//! what was kept of its number. The newest [`LEGS_MAX`] legs are kept, and whatever is not here is read again.
//! Deliberately not here: what is on record. A process that starts anew knows nothing, and reads.

use std::collections::BTreeMap;

use landfall_chain::{AssetTransfer, Block, BlockRef, Debits, Proof};

/// Of the blocks' credits; some 10 MB in all. Usually there are far fewer until blocks are final, except while finality
/// stalls or a chain catches up.
const LEGS_MAX: usize = 32_768;

/// By number.
#[derive(Debug, Default)]
pub(in crate::watcher) struct ReportedBlocks {
    blocks: BTreeMap<u64, Block>,
    legs: usize,
}

impl ReportedBlocks {
    /// Keeps of `block`, which was connected, these legs.
    pub(in crate::watcher) fn keep(&mut self, block: &Block, legs: &[AssetTransfer]) {
        let number = block.header.block.number;
        self.drop_at(number);
        match block.proof {
            Proof::Roots | Proof::Bloom => return,
            Proof::TwoEndpoints | Proof::OneEndpoint => {}
        }
        if legs.is_empty() {
            return;
        }
        let transfers = legs.to_vec();
        self.legs += transfers.len();
        let (txs, debits, unattributed) = (Vec::new(), Debits::Net(Vec::new()), Vec::new());
        let (fees, marks, rejected, signers) = (Vec::new(), Vec::new(), Vec::new(), block.signers.clone());
        let Block { header, fee_recipient, proof, .. } = *block;
        let inside = None;
        let kept = Block {
            header,
            txs,
            transfers,
            debits,
            unattributed,
            fees,
            marks,
            rejected,
            fee_recipient,
            proof,
            signers,
            inside,
        };
        self.blocks.insert(number, kept);
        while self.legs > LEGS_MAX
            && let Some(lowest) = self.blocks.keys().next().copied()
        {
            self.drop_at(lowest);
        }
    }

    /// What was kept of this very block, if enough endpoints reported it: two of them, or one where `agree` is at most
    /// 1.
    pub(in crate::watcher) fn of(&self, block: &BlockRef, agree: usize) -> Option<&Block> {
        let is_reported = |reported: &&Block| reported.proof == Proof::TwoEndpoints || agree <= 1;
        self.blocks.get(&block.number).filter(|reported| reported.header.block == *block).filter(is_reported)
    }

    /// Forgets what one endpoint alone reported: where endpoints differ, it is no evidence any more.
    pub(in crate::watcher) fn forget_alone(&mut self) {
        let alone = |(number, block): (&u64, &Block)| (block.proof == Proof::OneEndpoint).then_some(*number);
        for number in self.blocks.iter().filter_map(alone).collect::<Vec<_>>() {
            self.drop_at(number);
        }
    }

    /// Forgets all blocks up to this number, inclusive.
    pub(in crate::watcher) fn forget_through(&mut self, number: u64) {
        while let Some(lowest) = self.blocks.keys().next().copied().filter(|lowest| *lowest <= number) {
            self.drop_at(lowest);
        }
    }

    fn drop_at(&mut self, number: u64) {
        let dropped = self.blocks.remove(&number);
        self.legs -= dropped.map_or(0, |block| block.transfers.len());
    }
}

#[cfg(test)]
mod tests {
    use landfall_chain::{Address, AssetId, BlockHash, Header, SenderRule, Signers, TxId, TxLife, TxRef, U256};

    use super::*;

    fn at(number: u64, hash: u8) -> BlockRef {
        BlockRef { number, hash: BlockHash([hash; 32]) }
    }

    fn block(at: BlockRef, legs: usize, proof: Proof) -> Block {
        let tx = TxRef { id: TxId::Solana([1; 64]), life: TxLife::Block };
        let [sender, recipient] = [Address::Solana([2; 32]), Address::Solana([3; 32])];
        let (asset, amount, sender_rule) = (AssetId::Native, U256::from(5), SenderRule::Reported);
        let leg = AssetTransfer { tx, asset, sender, sender_rule, recipient, amount, nth: 0 };
        Block {
            header: Header { block: at, parent: at, time_secs: 1 },
            txs: vec![tx.id],
            transfers: vec![leg; legs],
            debits: Debits::Net(Vec::new()),
            unattributed: Vec::new(),
            fees: Vec::new(),
            marks: Vec::new(),
            rejected: Vec::new(),
            fee_recipient: None,
            proof,
            signers: Signers::default(),
            inside: None,
        }
    }

    fn keep(reported: &mut ReportedBlocks, block: Block) {
        reported.keep(&block, &block.transfers);
    }

    #[test]
    fn only_the_very_block_counts_and_only_on_as_many_words_as_must_agree() {
        let mut reported = ReportedBlocks::default();
        for (number, proof) in [(1, Proof::TwoEndpoints), (2, Proof::OneEndpoint), (3, Proof::Roots), (4, Proof::Bloom)]
        {
            keep(&mut reported, block(at(number, 7), 1, proof));
        }
        let known = |agree| (1..=4).filter(|number| reported.of(&at(*number, 7), agree).is_some()).collect::<Vec<_>>();
        assert_eq!((known(1), known(2)), (vec![1, 2], vec![1]));
        assert_eq!(reported.of(&at(1, 8), 1), None, "another block in the same slot");
        keep(&mut reported, block(at(1, 8), 1, Proof::TwoEndpoints));
        assert!(reported.of(&at(1, 7), 1).is_none() && reported.of(&at(1, 8), 1).is_some());
        keep(&mut reported, block(at(1, 7), 0, Proof::TwoEndpoints));
        assert!(reported.of(&at(1, 8), 1).is_none(), "connected anew, with nothing of ours");
    }

    #[test]
    fn the_newest_legs_are_kept_and_what_is_final_is_forgotten() {
        let mut reported = ReportedBlocks::default();
        for number in 1..=5 {
            keep(&mut reported, block(at(number, 7), LEGS_MAX / 4, Proof::TwoEndpoints));
        }
        let known = |reported: &ReportedBlocks| reported.blocks.keys().copied().collect::<Vec<_>>();
        assert_eq!((known(&reported), reported.legs), (vec![2, 3, 4, 5], LEGS_MAX));
        reported.forget_through(3);
        assert_eq!((known(&reported), reported.legs), (vec![4, 5], LEGS_MAX / 2));
        reported.forget_through(9);
        assert_eq!((known(&reported), reported.legs), (Vec::new(), 0));
    }
}
