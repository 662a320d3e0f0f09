//! What each endpoint reported a moment ago, so that it is not asked again at once: a cluster makes several blocks a
//! second, and light calls are counted.
//!
//! Promises: what is kept is the endpoint's own report and is never used as another one's. It is kept for times, never
//! for slots; with a poll of 0 nothing is kept. An older report is late by that time at most, and never wrong for it:
//! what was final stays so, and the newest block is only older than it could be.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use landfall_chain::{BlockHash, BlockRef};
use tokio::time::Instant;

/// However rare the polls are, wake-ups may make more of them.
const CONFIRMED_KEPT_MAX: Duration = Duration::from_millis(1_200);
/// By which part of a poll reports end before their time: no poll begins exactly when it is due.
const EARLY_PART: u32 = 16;
/// How many polls a report of what is final is kept for. When the next one is higher, two more light calls may follow:
/// a header at the endpoint that is ahead, and a list where slots hold no block.
const FINALIZED_POLLS: u32 = 5;
/// How many polls a newest block stands for while a node behind the same address answers that has not reached it: some
/// five seconds.
const BEHIND_POLLS: u32 = 6;
/// For how many polls a node must have reached what was reported before it. After that a cluster may have been set
/// back.
const REACHED_POLLS: u32 = 33;

/// What is kept of all endpoints of a network, by their names.
#[derive(Debug)]
pub(crate) struct PollCache {
    poll: Duration,
    by: Mutex<HashMap<String, Polled>>,
}

/// What is kept of one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Polled {
    pub(crate) confirmed: Option<PolledBlock>,
    pub(crate) finalized: Option<PolledBlock>,
    /// By slot; `None` where it has no block to report.
    hashes: BTreeMap<u64, (Option<BlockHash>, Instant)>,
}

/// A newest block as it was reported.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PolledBlock {
    pub(crate) block: BlockRef,
    polled_at: Instant,
    /// When it was last asked for: later than it was reported where a node answered that had not reached it.
    asked_at: Instant,
}

impl PollCache {
    pub(crate) fn new(poll: Duration) -> Self {
        PollCache { poll, by: Mutex::default() }
    }

    pub(crate) fn of(&self, endpoint: &str) -> Polled {
        self.by.lock().unwrap_or_else(PoisonError::into_inner).get(endpoint).cloned().unwrap_or_default()
    }

    pub(crate) fn keep(&self, endpoint: &str, polled: Polled) {
        self.by.lock().unwrap_or_else(PoisonError::into_inner).insert(endpoint.to_owned(), polled);
    }

    /// For how long a newest block is not asked for again.
    pub(crate) fn confirmed_for(&self) -> Duration {
        (self.poll - self.poll / EARLY_PART).min(CONFIRMED_KEPT_MAX)
    }

    /// The same for what is final, and for the hash of a slot.
    pub(crate) fn finalized_for(&self) -> Duration {
        self.poll * FINALIZED_POLLS - self.poll / EARLY_PART
    }

    /// For how long a report stands while a node says that it has not reached it.
    pub(crate) fn behind_for(&self) -> Duration {
        self.poll * BEHIND_POLLS
    }

    /// For how long a node must have reached a report to be asked.
    pub(crate) fn reached_for(&self) -> Duration {
        self.poll * REACHED_POLLS
    }
}

impl Polled {
    /// Its report of a slot, if it has given one: `Some(None)` is that it has no block there.
    pub(crate) fn hash(&self, slot: u64, within: Duration) -> Option<Option<BlockHash>> {
        self.hashes.get(&slot).filter(|(_, at)| at.elapsed() < within).map(|(hash, _)| *hash)
    }

    pub(crate) fn say_hash(&mut self, slot: u64, hash: Option<BlockHash>, now: Instant) {
        self.hashes.insert(slot, (hash, now));
    }

    pub(crate) fn forget_hashes(&mut self) {
        self.hashes.clear();
    }

    /// Forgets the slots that were reported longer ago.
    pub(crate) fn forget(&mut self, within: Duration) {
        self.hashes.retain(|_, (_, at)| at.elapsed() < within);
    }
}

impl PolledBlock {
    pub(crate) fn at(block: BlockRef, now: Instant) -> Self {
        PolledBlock { block, polled_at: now, asked_at: now }
    }

    /// The same, after a node was asked for it that had not reached it.
    pub(crate) fn asked(self, now: Instant) -> Self {
        PolledBlock { asked_at: now, ..self }
    }

    pub(crate) fn is_reported(&self, within: Duration) -> bool {
        self.polled_at.elapsed() < within
    }

    pub(crate) fn is_asked(&self, within: Duration) -> bool {
        self.asked_at.elapsed() < within
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEC: Duration = Duration::from_secs(1);

    fn block(number: u64) -> BlockRef {
        BlockRef { number, hash: BlockHash([1; 32]) }
    }

    #[test]
    fn words_are_kept_for_parts_and_multiples_of_a_poll() {
        let cache = PollCache::new(Duration::from_millis(1_250));
        assert_eq!(
            cache.confirmed_for(),
            Duration::from_micros(1_171_875),
            "less than a poll: the next one asks again"
        );
        assert_eq!(PollCache::new(Duration::from_secs(3_600)).confirmed_for(), Duration::from_millis(1_200));
        assert_eq!(cache.finalized_for(), Duration::from_micros(6_171_875), "the fifth poll asks again");
        assert_eq!(cache.behind_for(), Duration::from_millis(7_500), "longer than the word on what is final is kept");
        assert_eq!(cache.reached_for(), Duration::from_millis(41_250));
        let none = PollCache::new(Duration::ZERO);
        let of_none = [none.confirmed_for(), none.finalized_for(), none.behind_for(), none.reached_for()];
        assert_eq!(of_none, [Duration::ZERO; 4]);
    }

    #[test]
    fn a_word_is_reported_until_it_is_too_old_and_then_forgotten() {
        let ago = Instant::now().checked_sub(10 * SEC).expect("the machine runs for longer");
        let mut polled = Polled::default();
        polled.say_hash(6, None, ago);
        polled.say_hash(8, Some(BlockHash([8; 32])), Instant::now());
        let newest = PolledBlock::at(block(5), ago);
        let of_both = [newest.is_reported(3_600 * SEC), newest.is_reported(9 * SEC), newest.is_asked(9 * SEC)];
        assert_eq!(of_both, [true, false, false]);
        let asked = newest.asked(Instant::now());
        assert_eq!(
            [asked.is_reported(9 * SEC), asked.is_asked(9 * SEC)],
            [false, true],
            "no word is younger for a question"
        );
        assert_eq!((polled.hash(6, 3_600 * SEC), polled.hash(6, 9 * SEC)), (Some(None), None));
        assert_eq!((polled.hash(8, Duration::ZERO), polled.hash(9, 3_600 * SEC)), (None, None));
        polled.forget(3_600 * SEC);
        assert_eq!(polled.hash(6, 3_600 * SEC), Some(None));
        polled.forget(9 * SEC);
        assert_eq!(polled.hash(6, 3_600 * SEC), None);
        assert_eq!(polled.hash(8, 3_600 * SEC), Some(Some(BlockHash([8; 32]))));
        polled.forget_hashes();
        assert_eq!(polled.hash(8, 3_600 * SEC), None);
    }

    #[test]
    fn each_endpoints_words_are_its_own() {
        let cache = PollCache::new(SEC);
        let polled = Polled { confirmed: Some(PolledBlock::at(block(7), Instant::now())), ..Polled::default() };
        cache.keep("one", polled);
        assert_eq!(cache.of("one").confirmed.map(|newest| newest.block), Some(block(7)));
        assert!(cache.of("other").confirmed.is_none());
    }
}
