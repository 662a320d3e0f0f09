//! What the watch list selects of a block: everything in it that is somebody's, and nothing else.
//!
//! A block is matched once, by `Books::select`; whether it must be read in full, whose senders are named and what is
//! recorded follow from what was selected. Most blocks select nothing: that costs look-ups, and no memory.
//! It carries the number of the list that it was selected from. Only with the list's newest number may the block be
//! recorded (see `record`). If the list has grown, the block is selected anew.

use landfall_chain::{Address, AssetTransfer, Fee, Header, Mark, Network, Proof, Rejected, Signers};

use crate::store::cursors::Cursor;
use crate::watcher::books::leg::{WatchedLeg, leg_of};

#[derive(Debug)]
pub(in crate::watcher) struct Matched {
    pub(in crate::watcher) header: Header,
    pub(in crate::watcher) proof: Proof,
    pub(in crate::watcher) signers: Signers,
    /// The number of the newest address in the list by which it was selected.
    pub(in crate::watcher) watch_seq: u64,
    /// Legs of listed assets to watched addresses.
    pub(in crate::watcher) legs: Vec<AssetTransfer>,
    /// What left watched addresses, of listed assets.
    pub(in crate::watcher) debits: Vec<AssetTransfer>,
    /// Fees that watched addresses paid.
    pub(in crate::watcher) fees: Vec<Fee>,
    /// Uses of intents of watched addresses.
    pub(in crate::watcher) marks: Vec<Mark>,
    /// What came to watched addresses and is no deposit.
    pub(in crate::watcher) arrivals: Vec<Rejected>,
}

impl Matched {
    /// Whether nothing in the block is anybody's.
    pub(in crate::watcher) fn is_empty(&self) -> bool {
        self.legs.is_empty() && self.movers().next().is_none()
    }

    /// Whether it was selected from the list that belongs to `cursor`: nobody adds to that while the row is locked.
    pub(in crate::watcher) fn is_current(&self, cursor: &Cursor) -> bool {
        self.watch_seq >= cursor.watch_seq
    }

    /// Whether the block must be read in full before it is recorded: it holds something of ours, and its proof is too
    /// weak to credit anything. `agree` is how many endpoints must agree.
    pub(in crate::watcher) fn needs_full_read(&self, agree: usize) -> bool {
        let is_candidate = match self.proof {
            Proof::Roots | Proof::TwoEndpoints => false,
            Proof::Bloom => true,
            // Where one endpoint suffices, a full read proves no more.
            Proof::OneEndpoint => agree > 1,
        };
        is_candidate && !self.is_empty()
    }

    /// Each leg with what the network lists of its asset.
    pub(in crate::watcher) fn watched_legs<'m>(
        &'m self,
        network: &'m Network,
    ) -> impl Iterator<Item = WatchedLeg<'m>> + 'm {
        self.legs.iter().filter_map(|transfer| WatchedLeg::of(network, transfer))
    }

    /// Keeps the legs to `wanted` addresses. All that else is somebody's stays if any of it is a wanted address's.
    pub(in crate::watcher) fn keep(&mut self, wanted: impl Fn(&Address) -> bool) {
        self.legs.retain(|leg| wanted(&leg.recipient));
        if !self.movers().any(wanted) {
            (self.debits, self.fees, self.marks, self.arrivals) = Default::default();
        }
    }

    /// With the senders that were named in `before`, an earlier selection from the same block.
    pub(in crate::watcher) fn named_as(mut self, before: &Matched) -> Self {
        // A list only grows: the legs of before are among these, in the same order.
        let mut named = before.legs.iter().peekable();
        for leg in &mut self.legs {
            if let Some(known) = named.next_if(|known| leg_of("", known) == leg_of("", leg)) {
                (leg.sender, leg.sender_rule) = (known.sender, known.sender_rule);
            }
        }
        self
    }

    /// Whose debits, fees, marks, and arrivals that are no deposits, are in the block.
    fn movers(&self) -> impl Iterator<Item = &Address> {
        let debited = self.debits.iter().map(|debit| &debit.sender);
        let paid = self.fees.iter().map(|fee| &fee.payer);
        let marked = self.marks.iter().map(|mark| &mark.payer);
        debited.chain(paid).chain(marked).chain(self.arrivals.iter().map(|rejected| &rejected.transfer.recipient))
    }
}

#[cfg(test)]
mod tests {
    use landfall_chain::{AssetId, BlockHash, BlockRef, SenderRule, TxId, TxLife, TxRef, U256};

    use super::*;

    const CLERK: Address = Address::Solana([9; 32]);

    fn leg(to: u8, rule: SenderRule) -> AssetTransfer {
        let tx = TxRef { id: TxId::Solana([1; 64]), life: TxLife::Block };
        let (sender, recipient) = (Address::Solana([7; 32]), Address::Solana([to; 32]));
        AssetTransfer { tx, asset: AssetId::Native, sender, sender_rule: rule, recipient, amount: U256::ONE, nth: 0 }
    }

    fn matched(legs: &[u8], debits: Vec<AssetTransfer>) -> Matched {
        let block = BlockRef { number: 5, hash: BlockHash([5; 32]) };
        let header = Header { block, parent: block, time_secs: 0 };
        let (proof, signers) = (Proof::OneEndpoint, Signers::default());
        let (fees, marks, arrivals) = (Vec::new(), Vec::new(), Vec::new());
        let legs = legs.iter().map(|to| leg(*to, SenderRule::StandIn)).collect();
        Matched { header, proof, signers, watch_seq: 1, legs, debits, fees, marks, arrivals }
    }

    #[test]
    fn a_sender_that_was_named_stays_named_when_the_block_is_selected_anew() {
        let mut before = matched(&[2, 4], Vec::new());
        (before.legs[1].sender, before.legs[1].sender_rule) = (CLERK, SenderRule::Instruction);
        let now = matched(&[1, 2, 3, 4, 5], Vec::new()).named_as(&before);
        let rules: Vec<SenderRule> = now.legs.iter().map(|leg| leg.sender_rule).collect();
        let unnamed = SenderRule::StandIn;
        assert_eq!(rules, [unnamed, unnamed, unnamed, SenderRule::Instruction, unnamed]);
        assert_eq!(now.legs[3].sender, CLERK);
    }

    #[test]
    fn all_movements_of_a_block_stay_if_one_of_them_is_wanted() {
        let debits =
            || vec![leg(1, SenderRule::OnlyPayer), AssetTransfer { sender: CLERK, ..leg(1, SenderRule::Mint) }];
        let mut of_the_clerk = matched(&[2, 3], debits());
        of_the_clerk.keep(|address| *address == CLERK);
        assert_eq!((of_the_clerk.legs.len(), of_the_clerk.debits.len()), (0, 2));
        let mut of_one = matched(&[2, 3], debits());
        of_one.keep(|address| *address == Address::Solana([3; 32]));
        assert_eq!((of_one.legs.len(), of_one.debits.len()), (1, 0));
        of_one.keep(|_| false);
        assert!(of_one.is_empty());
    }

    #[test]
    fn only_a_block_with_something_of_ours_and_a_weak_proof_is_read_in_full() {
        use Proof::{Bloom, OneEndpoint, Roots, TwoEndpoints};
        for (proof, agree, expected) in [
            (Roots, 2, false),
            (TwoEndpoints, 2, false),
            (Bloom, 1, true),
            (OneEndpoint, 1, false),
            (OneEndpoint, 2, true),
        ] {
            let needs = |legs: &[u8]| Matched { proof, ..matched(legs, Vec::new()) }.needs_full_read(agree);
            assert_eq!((needs(&[1]), needs(&[])), (expected, false), "{proof:?} {agree}");
        }
    }
}
