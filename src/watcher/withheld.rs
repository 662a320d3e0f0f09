//! Final blocks that one endpoint alone tells, while two must: their deposits wait, and nothing else does.
//!
//! To ask again costs such a block's megabytes and its endpoints' patience, so each rests before that, longer each time.

use std::collections::BTreeMap;
use std::time::Duration;

use landfall_chain::BlockRef;

use crate::time::Timestamp;

/// How long a block rests when it was asked for in vain: twice as long each time.
const REST_MIN: Duration = Duration::from_secs(1);
const REST_MAX: Duration = Duration::from_secs(60);

/// By number.
#[derive(Debug, Default)]
pub(super) struct Withheld {
    blocks: BTreeMap<u64, Resting>,
}

#[derive(Debug)]
struct Resting {
    block: BlockRef,
    why: String,
    rest: Duration,
    due: Timestamp,
}

impl Withheld {
    /// Why the block is not to be asked for now; `None` when it may be.
    pub(super) fn rests(&self, block: &BlockRef, now: Timestamp) -> Option<&str> {
        let resting = self.blocks.get(&block.number).filter(|resting| resting.block == *block && now < resting.due)?;
        Some(&resting.why)
    }

    /// It was asked for in vain.
    pub(super) fn note(&mut self, block: BlockRef, why: String, now: Timestamp) {
        // Nobody asks for those any more.
        self.blocks.retain(|_, resting| now.since(resting.due) < REST_MAX);
        let before = self.blocks.get(&block.number).filter(|before| before.block == block);
        let rest = before.map_or(REST_MIN, |before| (before.rest * 2).min(REST_MAX));
        self.blocks.insert(block.number, Resting { block, why, rest, due: now.plus(rest) });
    }
}

#[cfg(test)]
mod tests {
    use landfall_chain::BlockHash;

    use super::*;

    #[test]
    fn a_block_rests_twice_as_long_each_time_up_to_a_minute() {
        let block = |number| BlockRef { number, hash: BlockHash([7; 32]) };
        let (mut withheld, mut now, mut rests) = (Withheld::default(), Timestamp(0), Vec::new());
        for _ in 0..8 {
            assert_eq!(withheld.rests(&block(1), now), None);
            withheld.note(block(1), "why".to_owned(), now);
            let begun = now;
            while withheld.rests(&block(1), now) == Some("why") {
                now = now.plus(Duration::from_millis(500));
            }
            rests.push(now.since(begun).as_secs());
        }
        assert_eq!(rests, [1, 2, 4, 8, 16, 32, 60, 60]);

        withheld.note(block(1), "why".to_owned(), now);
        let other = BlockRef { hash: BlockHash([8; 32]), ..block(1) };
        assert!(withheld.rests(&block(2), now).is_none() && withheld.rests(&other, now).is_none());
        now = now.plus(REST_MAX * 2);
        withheld.note(block(1), "why".to_owned(), now);
        assert_eq!(withheld.rests(&block(1), now.plus(REST_MIN)), None, "nobody had asked for it, and it begins anew");
    }
}
