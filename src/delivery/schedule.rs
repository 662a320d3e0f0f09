//! When an event that did not arrive is sent again. A table gives the waits for seven days; then the event is held. Of
//! all held events of an endpoint one is attempted every six hours, for ever. Nothing is ever dropped. An event that
//! did not arrive holds up only the later ones of its own deposit.

use std::time::Duration;

use landfall_chain::retry::jitter;

/// The waits after the first, second, third .. failed attempt.
const WAITS_SECS: [u64; 10] = [2, 5, 15, 60, 5 * 60, 15 * 60, 30 * 60, 60 * 60, 2 * 60 * 60, 4 * 60 * 60];
pub(super) const LAST_WAIT: Duration = Duration::from_secs(6 * 60 * 60);
/// An event that was never attempted waits no longer than this for a probe of a failing endpoint.
pub(super) const FIRST_WAIT_MAX: Duration = Duration::from_secs(10 * 60);
/// For so long a failing webhook is probed at least once a minute.
pub(super) const PROBED_OFTEN: Duration = Duration::from_secs(60 * 60);
pub(super) const PROBED_OFTEN_WAIT_MAX: Duration = Duration::from_secs(60);
/// So many attempts take seven and a half days, give or take some hours of jitter; then the event is held.
const ATTEMPTS_MAX: u32 = 40;
/// A receiver may always ask for a wait up to this.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(10 * 60);

/// Whether an event that has failed so often is held.
pub(super) fn is_held(failures: u32) -> bool {
    failures >= ATTEMPTS_MAX
}

/// How long to wait after the `failures`-th failed attempt in a row (1 for the first): the table's wait, changed by up
/// to a fifth by `random`. Longer if the receiver asks for it, up to twice the wait or ten minutes, whichever is more.
pub(super) fn wait_after(failures: u32, retry_after: Option<Duration>, random: u64) -> Duration {
    let index = usize::try_from(failures.saturating_sub(1)).unwrap_or(usize::MAX);
    let step = WAITS_SECS.get(index).map_or(LAST_WAIT, |secs| Duration::from_secs(*secs));
    let step = jitter(step, random);
    retry_after.map_or(step, |asked| asked.clamp(step, RETRY_AFTER_MAX.max(2 * step)))
}

/// The longest wait that [`wait_after`] can give, whatever a receiver asks for and with any `random`.
pub(super) fn longest_wait(failures: u32) -> Duration {
    const MOST_JITTER: u64 = 400;
    wait_after(failures, Some(Duration::MAX), MOST_JITTER)
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt as _, SeedableRng as _};

    use super::*;

    const NO_JITTER: u64 = 200;

    fn wait(failures: u32) -> u64 {
        wait_after(failures, None, NO_JITTER).as_secs()
    }

    #[test]
    fn the_waits_grow_to_six_hours_and_40_attempts_take_seven_days() {
        let waits: Vec<u64> = (1..=12).map(wait).collect();
        assert_eq!(waits, [2, 5, 15, 60, 300, 900, 1800, 3600, 7200, 14400, 21600, 21600]);
        assert_eq!((1..).find(|failures| is_held(*failures)), Some(40));
        let mut rng = StdRng::seed_from_u64(20_261_124);
        let mut taken = || -> Duration { (1..40).map(|failures| wait_after(failures, None, rng.random())).sum() };
        let taken: Vec<u64> = (0..1_000).map(|_| taken().as_secs() / 86_400).collect();
        assert!(taken.iter().all(|days| *days == 7 || *days == 8), "{taken:?}");
        assert_eq!(wait(u32::MAX), LAST_WAIT.as_secs());
    }

    #[test]
    fn a_receiver_is_answered_within_bounds() {
        let asked = |failures, secs| wait_after(failures, Some(Duration::from_secs(secs)), NO_JITTER).as_secs();
        assert_eq!([asked(1, 0), asked(1, 1), asked(1, 120), asked(1, 600), asked(1, 86_400)], [2, 2, 120, 600, 600]);
        assert_eq!([asked(8, 60), asked(8, 4_000), asked(8, 9_000)], [3_600, 4_000, 7_200], "twice the step");
        assert_eq!([longest_wait(1), longest_wait(5)].map(|wait| wait.as_secs()), [600, 720]);
        assert_eq!(longest_wait(u32::MAX), LAST_WAIT * 12 / 5);
        let jittered = wait_after(1, Some(Duration::ZERO), 0);
        assert_eq!(jittered, Duration::from_millis(1_600));
    }
}
