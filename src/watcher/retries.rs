//! Final blocks that are not shown as they must be: their deposits wait, and nothing else does.
//!
//! To read such a block again costs megabytes where two endpoints must report it. So the block is asked for again only
//! after a pause, longer each time.

use std::collections::BTreeMap;
use std::time::Duration;

use landfall_chain::BlockRef;

use crate::time::Timestamp;

/// How long to wait before a block is asked for again: twice as long after each failure.
const REST_MIN: Duration = Duration::from_secs(1);
const REST_MAX: Duration = Duration::from_secs(60);
/// When a block that nobody asks for any more is forgotten. On a rollup, finality advances in steps of many minutes,
/// and what is missing is looked for at each step.
const KEPT: Duration = Duration::from_secs(30 * 60);

/// By number.
#[derive(Debug, Default)]
pub(in crate::watcher) struct Withheld {
    blocks: BTreeMap<u64, Unseen>,
}

#[derive(Debug)]
struct Unseen {
    block: BlockRef,
    since: Timestamp,
    /// The reason given the first time.
    why: String,
    rest: Duration,
    /// When it may be asked for again.
    due: Timestamp,
}

impl Withheld {
    /// Whether the block is not to be asked for now.
    pub(in crate::watcher) fn rests(&self, block: &BlockRef, now: Timestamp) -> bool {
        self.blocks.get(&block.number).is_some_and(|unseen| unseen.block == *block && now < unseen.due)
    }

    /// Records that the block was asked for and not shown.
    pub(in crate::watcher) fn note(&mut self, block: BlockRef, why: String, rests: bool, now: Timestamp) {
        // Two deposits of one block ask for it at once.
        if self.rests(&block, now) {
            return;
        }
        let before = self.blocks.remove(&block.number).filter(|before| before.block == block);
        let longer = before.as_ref().map_or(REST_MIN, |before| (before.rest * 2).clamp(REST_MIN, REST_MAX));
        let rest = if rests { longer } else { Duration::ZERO };
        let (since, why) = before.map_or((now, why), |before| (before.since, before.why));
        self.blocks.insert(block.number, Unseen { block, since, why, rest, due: now.plus(rest) });
    }

    pub(in crate::watcher) fn shown(&mut self, block: &BlockRef) {
        self.blocks.remove(&block.number);
    }

    /// The block that has been waited for longest, with since when and why. Forgets those that nobody asks for any
    /// more.
    pub(in crate::watcher) fn oldest(&mut self, now: Timestamp) -> Option<(Timestamp, BlockRef, String)> {
        self.blocks.retain(|_, unseen| now.since(unseen.due) <= KEPT);
        let oldest = self.blocks.values().min_by_key(|unseen| unseen.since)?;
        Some((oldest.since, oldest.block, oldest.why.clone()))
    }
}

#[cfg(test)]
mod tests {
    use landfall_chain::BlockHash;

    use super::*;

    fn block(number: u64, hash: u8) -> BlockRef {
        BlockRef { number, hash: BlockHash([hash; 32]) }
    }

    fn second(number: u32) -> Timestamp {
        Timestamp(0).plus(Duration::from_secs(1) * number)
    }

    #[test]
    fn a_block_rests_twice_as_long_each_time_up_to_a_minute() {
        let (mut withheld, mut now, mut rests) = (Withheld::default(), second(0), Vec::new());
        for _ in 0..8 {
            // Two failures of one tick count once.
            withheld.note(block(1, 7), "why".to_owned(), true, now);
            withheld.note(block(1, 7), "why".to_owned(), true, now);
            let begun = now;
            while withheld.rests(&block(1, 7), now) {
                now = now.plus(Duration::from_millis(500));
            }
            rests.push(now.since(begun).as_secs());
        }
        assert_eq!(rests, [1, 2, 4, 8, 16, 32, 60, 60]);
        withheld.note(block(1, 7), "why".to_owned(), true, now);
        assert!(!withheld.rests(&block(1, 8), now) && !withheld.rests(&block(2, 7), now));
        withheld.shown(&block(1, 7));
        withheld.note(block(1, 7), "why".to_owned(), true, now);
        assert!(!withheld.rests(&block(1, 7), now.plus(REST_MIN)), "it begins anew");
    }

    #[test]
    fn what_is_waited_for_longest_is_reported_until_it_is_shown_or_nobody_asks() {
        let mut withheld = Withheld::default();
        withheld.note(block(2, 7), "first".to_owned(), false, second(0));
        withheld.note(block(1, 7), "second".to_owned(), true, second(1));
        withheld.note(block(2, 7), "another word".to_owned(), false, second(50));
        assert!(!withheld.rests(&block(2, 7), second(50)), "to ask for it costs little");
        assert_eq!(withheld.oldest(second(50)), Some((second(0), block(2, 7), "first".to_owned())));
        withheld.shown(&block(2, 7));
        assert_eq!(withheld.oldest(second(60)), Some((second(1), block(1, 7), "second".to_owned())));
        assert!(withheld.oldest(second(1_802)).is_some());
        assert_eq!(withheld.oldest(second(1_803)), None);
    }
}
