//! What failed and is tried again later, in memory.
//!
//! Promises: the pauses between the tries for one key double (`Retry`), and no key delays another. It decides only when
//! something is asked for again, never what is believed: to forget all of it costs requests and nothing else.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use landfall_chain::Retry;

use crate::time::Timestamp;

/// When a key that nobody asks for any more is forgotten. On a rollup, finality advances in steps of many minutes, and
/// what is missing is looked for at each step.
const KEPT: Duration = Duration::from_secs(30 * 60);

#[derive(Debug)]
pub(in crate::watcher) struct Retries<K> {
    /// The first pause, and the longest one.
    pauses: (Duration, Duration),
    failed: HashMap<K, Failed>,
}

#[derive(Debug)]
struct Failed {
    since: Timestamp,
    /// How many tries were followed by a pause.
    tries: u32,
    /// When it may be tried again.
    due: Timestamp,
    /// The reason given the first time.
    why: String,
}

impl<K: Clone + Eq + Hash> Retries<K> {
    pub(in crate::watcher) fn new(first: Duration, max: Duration) -> Self {
        Retries { pauses: (first, max), failed: HashMap::new() }
    }

    /// Whether it is not to be tried now.
    pub(in crate::watcher) fn rests(&self, key: &K, now: Timestamp) -> bool {
        self.failed.get(key).is_some_and(|failed| now < failed.due)
    }

    /// How many tries were followed by a pause; 0 for what is not known.
    pub(in crate::watcher) fn tries(&self, key: &K) -> u32 {
        self.failed.get(key).map_or(0, |failed| failed.tries)
    }

    /// Records a failure. Where another try costs little (`is_paused` is false), it may follow at once.
    pub(in crate::watcher) fn failed(&mut self, key: K, why: String, is_paused: bool, now: Timestamp) {
        // Two that need the same try it at once: that is one failure.
        if self.rests(&key, now) {
            return;
        }
        let (first, max) = self.pauses;
        let (tries, pause) = match is_paused {
            true => (self.tries(&key) + 1, Retry::pause(first, max, self.tries(&key))),
            false => (0, Duration::ZERO),
        };
        let failed = self.failed.entry(key).or_insert(Failed { since: now, tries, due: now, why });
        (failed.tries, failed.due) = (tries, now.plus(pause));
    }

    pub(in crate::watcher) fn succeeded(&mut self, key: &K) {
        self.failed.remove(key);
    }

    /// Forgets the other keys.
    pub(in crate::watcher) fn retain(&mut self, is_wanted: impl Fn(&K) -> bool) {
        self.failed.retain(|key, _| is_wanted(key));
    }

    /// The key that has failed for longest, with since when and why. Forgets those that nobody asks for any more.
    pub(in crate::watcher) fn oldest(&mut self, now: Timestamp) -> Option<(Timestamp, K, String)> {
        self.failed.retain(|_, failed| now.since(failed.due) <= KEPT);
        let (key, oldest) = self.failed.iter().min_by_key(|(_, failed)| failed.since)?;
        Some((oldest.since, key.clone(), oldest.why.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEC: Duration = Duration::from_secs(1);

    fn second(number: u32) -> Timestamp {
        Timestamp(0).plus(SEC * number)
    }

    fn retries() -> Retries<u8> {
        Retries::new(SEC, SEC * 60)
    }

    #[test]
    fn a_key_rests_twice_as_long_each_time_up_to_the_longest_pause() {
        let (mut retries, mut now, mut rests) = (retries(), second(0), Vec::new());
        for _ in 0..8 {
            // Two failures at one time count once.
            retries.failed(1, "why".to_owned(), true, now);
            retries.failed(1, "why".to_owned(), true, now);
            let begun = now;
            while retries.rests(&1, now) {
                now = now.plus(SEC / 2);
            }
            rests.push(now.since(begun).as_secs());
        }
        assert_eq!((rests, retries.tries(&1)), (vec![1, 2, 4, 8, 16, 32, 60, 60], 8));
        retries.failed(1, "why".to_owned(), true, now);
        assert!(!retries.rests(&2, now), "no other rests with it");
        retries.succeeded(&1);
        retries.failed(1, "why".to_owned(), true, now);
        assert!(!retries.rests(&1, now.plus(SEC)), "it begins anew");
        retries.retain(|key| *key != 1);
        assert_eq!(retries.tries(&1), 0);
    }

    #[test]
    fn what_failed_for_longest_is_reported_until_it_succeeds_or_nobody_asks() {
        let mut retries = retries();
        retries.failed(2, "first".to_owned(), false, second(0));
        retries.failed(1, "second".to_owned(), true, second(1));
        retries.failed(2, "another reason".to_owned(), false, second(50));
        assert!(!retries.rests(&2, second(50)), "to ask for it costs little");
        assert_eq!(retries.oldest(second(50)), Some((second(0), 2, "first".to_owned())));
        retries.succeeded(&2);
        assert_eq!(retries.oldest(second(60)), Some((second(1), 1, "second".to_owned())));
        assert!(retries.oldest(second(1_802)).is_some());
        assert_eq!(retries.oldest(second(1_803)), None);
    }
}
