//! What was reported lately and need not be asked for again at once.
//!
//! Promise: what is older than its time is not given. Memory is bounded by what is kept within that time.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// From so many on, what counts no more is forgotten.
const KEPT_MAX: usize = 4_096;

/// What was reported of each `K`, for so long as it counts.
#[derive(Debug)]
pub struct Lately<K, V> {
    kept: Mutex<HashMap<K, (Instant, V)>>,
    time: Duration,
}

impl<K: Eq + Hash, V: Copy> Lately<K, V> {
    /// Nothing yet. Each report counts for `time`.
    #[must_use]
    pub fn of(time: Duration) -> Self {
        Lately { kept: Mutex::default(), time }
    }

    /// What was reported, unless that is too long ago.
    pub fn get(&self, of: &K) -> Option<V> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get(of).filter(|(at, _)| at.elapsed() < self.time).map(|(_, value)| *value)
    }

    /// Keeps what is reported now.
    pub fn keep(&self, of: K, value: V) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT_MAX {
            kept.retain(|_, (at, _)| at.elapsed() < self.time);
        }
        kept.insert(of, (Instant::now(), value));
    }

    /// What was reported counts no more.
    pub fn forget(&self, of: &K) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).remove(of);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Duration = Duration::from_secs(60);

    #[test]
    fn what_was_reported_counts_for_its_time() {
        let lately = Lately::of(TIME);
        assert_eq!(lately.get(&1), None);
        lately.keep(1, "a");
        lately.keep(2, "b");
        assert_eq!((lately.get(&1), lately.get(&2), lately.get(&3)), (Some("a"), Some("b"), None));
        lately.kept.lock().unwrap().insert(1, (Instant::now().checked_sub(TIME).unwrap(), "a"));
        assert_eq!((lately.get(&1), lately.get(&2)), (None, Some("b")));
        lately.forget(&2);
        assert_eq!(lately.get(&2), None);
    }

    #[test]
    fn what_counts_no_more_is_forgotten() {
        let lately = Lately::of(TIME);
        let long_ago = Instant::now().checked_sub(TIME).unwrap();
        lately.kept.lock().unwrap().extend((0..KEPT_MAX).map(|n| (n, (long_ago, ()))));
        lately.keep(KEPT_MAX, ());
        assert_eq!(lately.kept.lock().unwrap().len(), 1);
    }
}
