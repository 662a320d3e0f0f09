//! How long to wait before trying again. The policy is the `backoff` crate's, behind this one type so that
//! replacing it stays a change to one file (it is flagged unmaintained, see deny.toml).
//!
//! The jitter is ours, from injected randomness: delays are reproducible in tests.

use std::time::Duration;

use backoff::ExponentialBackoff;
use backoff::backoff::Backoff;

/// So many doublings exceed any delay.
const DOUBLINGS_MAX: u32 = 64;

/// Growing delays between the tries of one call. Never gives up: the caller decides when to stop.
#[derive(Debug)]
pub struct Retry(ExponentialBackoff);

impl Retry {
    /// Delays from `first`, doubling up to `max`.
    pub fn new(first: Duration, max: Duration) -> Self {
        Retry(ExponentialBackoff {
            current_interval: first,
            initial_interval: first,
            randomization_factor: 0.0,
            multiplier: 2.0,
            max_interval: max,
            max_elapsed_time: None,
            ..ExponentialBackoff::default()
        })
    }

    /// The delay from `first` up to `max` after a failed try, by how many tries had failed before it. It is not moved:
    /// for those who keep that number themselves.
    pub fn pause(first: Duration, max: Duration, tries: u32) -> Duration {
        let Retry(mut policy) = Retry::new(first, max);
        let mut pause = || policy.next_backoff().unwrap_or(max);
        for _ in 0..tries.min(DOUBLINGS_MAX) {
            pause();
        }
        pause()
    }

    /// The next delay, moved by up to a fifth in either direction by `random` (any 64 bits).
    pub fn next_delay(&mut self, random: u64) -> Duration {
        let delay = self.0.next_backoff().unwrap_or(self.0.max_interval);
        jitter(delay, random)
    }

    /// The call succeeded: the next delay is the first again.
    pub fn reset(&mut self) {
        self.0.reset();
    }
}

/// `delay` moved by up to a fifth in either direction by `random` (any 64 bits): 10 s becomes 8 to 12 s.
pub fn jitter(delay: Duration, random: u64) -> Duration {
    let permille = 800 + u32::try_from(random % 401).expect("less than 401");
    delay / 1000 * permille
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_maximum_and_start_again_after_a_reset() {
        let mut retry = Retry::new(Duration::from_millis(100), Duration::from_secs(1));
        let middle = 200;
        let mut delays = || (0..6).map(|_| retry.next_delay(middle).as_millis()).collect::<Vec<_>>();
        assert_eq!(delays(), [100, 200, 400, 800, 1000, 1000]);
        retry.reset();
        assert_eq!(retry.next_delay(middle).as_millis(), 100);
    }

    #[test]
    fn a_pause_follows_from_the_number_of_tries_that_failed() {
        let pause = |tries| Retry::pause(Duration::from_secs(10), Duration::from_secs(600), tries).as_secs();
        assert_eq!([0, 1, 2, 5, 6, 7, u32::MAX].map(pause), [10, 20, 40, 320, 600, 600, 600]);
        assert_eq!(Retry::pause(Duration::ZERO, Duration::ZERO, 3), Duration::ZERO);
    }

    #[test]
    fn the_jitter_stays_within_a_fifth() {
        let second = Duration::from_secs(1);
        assert_eq!(jitter(second, 0), Duration::from_millis(800));
        assert_eq!(jitter(second, 400), Duration::from_millis(1200));
        for random in [1, 17, 401, u64::MAX] {
            let delay = jitter(second, random);
            assert!(delay >= Duration::from_millis(800) && delay <= Duration::from_millis(1200));
        }
    }
}
