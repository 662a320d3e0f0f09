//! How blocks are linked: what the slots between two blocks are.
//!
//! Only the next block proves that a slot holds no block: its parent lies before that slot. No error, no null and no
//! list of slots ever proves it: each may mean that this node does not have the block.

use std::ops::Range;

use landfall_chain::{BlockRef, Header};

/// How the next block that was read is linked to the last connected one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Link {
    /// It stands on it. The slots between, if any, are proved to hold no block: with 5 on 3, `skipped` is `4..5`.
    Stands { skipped: Range<u64> },
    /// It stands on a block that was not read: that one is asked for first, elsewhere if need be.
    Missing { parent: u64 },
    /// It stands on another chain than ours: the fork point lies at or below its parent.
    Forked,
}

/// How `next` stands to `last`.
pub fn link(last: &BlockRef, next: &Header) -> Link {
    let (slot, parent) = (next.block.number, next.parent);
    if parent == *last && slot > parent.number {
        Link::Stands { skipped: last.number + 1..slot }
    } else if parent.number > last.number {
        Link::Missing { parent: parent.number }
    } else {
        Link::Forked
    }
}

#[cfg(test)]
mod tests {
    use landfall_chain::BlockHash;

    use super::*;

    fn block(number: u64, hash: u8) -> BlockRef {
        BlockRef { number, hash: BlockHash([hash; 32]) }
    }

    #[test]
    fn a_slot_is_absent_only_when_the_next_connected_block_jumps_over_it() {
        let last = block(100, 1);
        let cases = [
            ("the next slot", 101, block(100, 1), Link::Stands { skipped: 101..101 }),
            ("three slots without a block", 104, block(100, 1), Link::Stands { skipped: 101..104 }),
            ("a block between is missing", 104, block(102, 7), Link::Missing { parent: 102 }),
            ("the same slot, another hash", 101, block(100, 2), Link::Forked),
            ("the same hash, another slot", 101, block(99, 1), Link::Forked),
            ("an older parent", 101, block(98, 9), Link::Forked),
            ("a block that stands on itself", 100, block(100, 1), Link::Forked),
        ];
        for (what, number, parent, expected) in cases {
            let next = Header { block: block(number, 50), parent, time_secs: 0 };
            assert_eq!(link(&last, &next), expected, "{what}");
        }
    }

    #[test]
    fn the_last_slot_that_there_can_be_does_not_overflow() {
        let last = block(u64::MAX, 1);
        let next = Header { block: last, parent: last, time_secs: 0 };
        assert_eq!(link(&last, &next), Link::Forked);
    }
}
