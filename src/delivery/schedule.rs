//! When an event that did not arrive is sent again: a table, and every six hours behind its end, for ever. Nothing is
//! ever dropped; a held event holds the later ones of its own deposit only.

use std::time::Duration;

/// The waits after the first, second, third .. attempt that failed.
const WAITS_SECS: [u64; 10] = [2, 5, 15, 60, 5 * 60, 15 * 60, 30 * 60, 60 * 60, 2 * 60 * 60, 4 * 60 * 60];
const LAST_WAIT_SECS: u64 = 6 * 60 * 60;

/// How long to wait after `attempt` (1 for the first) has failed, before jitter.
pub(super) fn wait_after(attempt: u32) -> Duration {
    let index = usize::try_from(attempt.saturating_sub(1)).unwrap_or(usize::MAX);
    Duration::from_secs(WAITS_SECS.get(index).copied().unwrap_or(LAST_WAIT_SECS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_waits_grow_to_six_hours_and_37_attempts_take_seven_days() {
        let waits: Vec<u64> = (1..=12).map(|attempt| wait_after(attempt).as_secs()).collect();
        assert_eq!(waits, [2, 5, 15, 60, 300, 900, 1800, 3600, 7200, 14400, 21600, 21600]);
        let days = (1..37).map(|attempt| wait_after(attempt).as_secs()).sum::<u64>() / 86_400;
        assert_eq!(days, 6, "the 37th attempt is made on the seventh day");
        assert_eq!(wait_after(u32::MAX).as_secs(), LAST_WAIT_SECS);
    }
}
