//! How fast one endpoint may be asked: the least time between two requests, learnt from what it refuses.
//!
//! Promises: nobody waits for an endpoint that never refuses. A refusal that names no time doubles the gap, once in
//! three seconds and up to one second. Seconds in which it answers narrow the gap, but for a minute not down to what
//! was refused. A caller who stops waiting takes nobody's turn. All of it is forgotten with the process.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::timings::Timings;

/// An answer narrows the gap by one part of so many. A node that counts requests by the second refuses before the gap
/// is far below what it serves.
const NARROWING: u32 = 8;
/// By which part the gap stays wider for a while than the one that was refused.
const CALM_MARGIN: u32 = 4;

#[derive(Debug)]
pub(crate) struct Pace {
    timings: Timings,
    facts: Mutex<Facts>,
}

#[derive(Debug, Default)]
struct Facts {
    gap: Duration,
    /// When the last request began.
    last: Option<Instant>,
    /// When the gap was last changed.
    changed: Option<Instant>,
    refusal: Option<Refusal>,
}

#[derive(Clone, Copy, Debug)]
struct Refusal {
    at: Instant,
    /// The gap that was kept, and was too small.
    gap: Duration,
}

impl Pace {
    pub(crate) fn new(timings: Timings) -> Self {
        Pace { timings, facts: Mutex::default() }
    }

    /// Waits until a request may begin, which it does then.
    pub(crate) async fn turn(&self) {
        while let Some(until) = self.take(Instant::now()) {
            tokio::time::sleep_until(until).await;
        }
    }

    /// How long a request would wait for its turn.
    pub(crate) fn wait(&self, now: Instant) -> Duration {
        self.facts().next().map_or(Duration::ZERO, |next| next.saturating_duration_since(now))
    }

    /// What was asked at `begun` was too much, and the endpoint did not say for how long.
    pub(crate) fn refused(&self, begun: Instant, now: Instant) {
        let mut facts = self.facts();
        // What was asked before the gap was widened, or just after, says nothing of it.
        if facts.refusal.is_some_and(|refusal| begun < refusal.at + self.timings.episode) {
            return;
        }
        (facts.refusal, facts.changed) = (Some(Refusal { at: now, gap: facts.gap }), Some(now));
        facts.gap = (facts.gap * 2).clamp(self.timings.gap.first, self.timings.gap.most);
    }

    /// It answered, and refused nothing.
    pub(crate) fn answered(&self, now: Instant) {
        let Timings { narrowing_every, gap_calm, gap_least, .. } = self.timings;
        let mut facts = self.facts();
        if facts.changed.is_none_or(|changed| now.saturating_duration_since(changed) < narrowing_every) {
            return;
        }
        let young = facts.refusal.filter(|refusal| now.saturating_duration_since(refusal.at) < gap_calm);
        let least = young.map_or(Duration::ZERO, |refusal| refusal.gap + refusal.gap / CALM_MARGIN);
        let narrower = (facts.gap - facts.gap / NARROWING).max(least).min(facts.gap);
        (facts.gap, facts.changed) = if narrower < gap_least { (Duration::ZERO, None) } else { (narrower, Some(now)) };
    }

    /// Begins a request, or says until when it must wait.
    fn take(&self, now: Instant) -> Option<Instant> {
        let mut facts = self.facts();
        let until = facts.next().filter(|next| *next > now);
        if until.is_none() {
            facts.last = Some(now);
        }
        until
    }

    fn facts(&self) -> MutexGuard<'_, Facts> {
        // Each write leaves it whole: a panic elsewhere does not matter.
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Facts {
    /// The earliest that the next request may begin.
    fn next(&self) -> Option<Instant> {
        self.last.map(|last| last + self.gap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRODUCTION: Timings = Timings::PRODUCTION;
    const GAP_FIRST: Duration = PRODUCTION.gap.first;

    /// A node that serves so many requests in each second, and as many at once; time is the test's.
    fn bucket(a_second: u32, begun: Instant) -> impl FnMut(Instant) -> bool {
        let every = Duration::from_secs(1) / a_second;
        let (mut left, mut filled) = (a_second, begun);
        move |now| {
            while filled + every <= now {
                filled += every;
                left = a_second.min(left + 1);
            }
            let serves = left > 0;
            left -= u32::from(serves);
            serves
        }
    }

    /// One that serves so many requests in each ten seconds.
    fn window(most: u32, begun: Instant) -> impl FnMut(Instant) -> bool {
        let (mut left, mut until) = (most, begun);
        move |now| {
            while until <= now {
                (left, until) = (most, until + Duration::from_secs(10));
            }
            let serves = left > 0;
            left -= u32::from(serves);
            serves
        }
    }

    /// How many requests were served and refused in each of ten minutes, asked one after the other by a caller that
    /// pauses a second when refused.
    fn minutes(begun: Instant, mut serves: impl FnMut(Instant) -> bool) -> Vec<(u32, u32)> {
        let pace = Pace::new(PRODUCTION);
        let (mut now, mut reported) = (begun, Vec::new());
        for minute in 1..=10 {
            let (mut served, mut refused) = (0, 0);
            while now < begun + minute * Duration::from_secs(60) {
                if let Some(until) = pace.take(now) {
                    now = until;
                    continue;
                }
                let asked = now;
                now += Duration::from_millis(1);
                if serves(asked) {
                    pace.answered(now);
                    served += 1;
                } else {
                    pace.refused(asked, now);
                    refused += 1;
                    now += Duration::from_secs(1);
                }
            }
            reported.push((served, refused));
        }
        reported
    }

    #[test]
    fn refusals_stop_growing_and_more_than_half_of_what_is_served_is_asked_for() {
        let begun = Instant::now();
        let buckets = [1, 3, 5, 10, 25, 100].map(|a_second| (60 * a_second, minutes(begun, bucket(a_second, begun))));
        let windows = [10, 40, 100].map(|most| (6 * most, minutes(begun, window(most, begun))));
        for (a_minute, reported) in buckets.into_iter().chain(windows) {
            // A caller that learns nothing is refused each second.
            assert!(reported[0].1 <= 30, "{a_minute}: {reported:?}");
            for (served, refused) in &reported[1..] {
                assert!(*refused <= 10 && *served > a_minute / 2, "{a_minute}: {reported:?}");
            }
        }
    }

    #[test]
    fn who_never_refuses_is_never_waited_for() {
        let (pace, now) = (Pace::new(PRODUCTION), Instant::now());
        for _ in 0..1_000 {
            assert_eq!((pace.take(now), pace.wait(now)), (None, Duration::ZERO));
            pace.answered(now);
        }
    }

    #[test]
    fn a_gap_doubles_once_for_all_that_was_under_way_and_up_to_a_second() {
        let (pace, begun) = (Pace::new(PRODUCTION), Instant::now());
        for millis in [10, 20, 1_000, 2_900] {
            pace.refused(begun, begun + Duration::from_millis(10));
            pace.refused(begun + Duration::from_millis(millis), begun + Duration::from_millis(millis + 1));
        }
        assert_eq!(pace.facts().gap, GAP_FIRST);
        for refusals in 1..=10_u32 {
            let at = begun + refusals * 2 * PRODUCTION.episode;
            pace.refused(at, at);
            assert_eq!(pace.facts().gap, (GAP_FIRST * 2_u32.pow(refusals.min(5))).min(PRODUCTION.gap.most));
        }
    }

    #[test]
    fn what_was_refused_is_tried_again_after_a_minute_and_forgotten_in_the_end() {
        let (pace, begun) = (Pace::new(PRODUCTION), Instant::now());
        let answers = |secs: std::ops::Range<u32>| {
            secs.for_each(|sec| (0..10).for_each(|_| pace.answered(begun + sec * PRODUCTION.narrowing_every)));
        };
        pace.refused(begun - 2 * PRODUCTION.episode, begun - 2 * PRODUCTION.episode);
        pace.refused(begun, begun);
        answers(0..1);
        assert_eq!(pace.facts().gap, 2 * GAP_FIRST, "a second has not passed");
        answers(1..2);
        assert_eq!(pace.facts().gap, 2 * GAP_FIRST - 2 * GAP_FIRST / NARROWING);
        answers(2..60);
        assert_eq!(pace.facts().gap, GAP_FIRST + GAP_FIRST / CALM_MARGIN);
        answers(60..63);
        assert!(pace.facts().gap < GAP_FIRST);
        answers(63..120);
        assert_eq!(pace.facts().gap, Duration::ZERO);
    }

    #[test]
    fn a_turn_is_taken_by_who_begins_and_by_nobody_who_waits() {
        let (pace, now) = (Pace::new(PRODUCTION), Instant::now());
        pace.refused(now, now);
        assert_eq!(pace.take(now), None);
        assert_eq!(pace.take(now), Some(now + GAP_FIRST));
        assert_eq!(
            (pace.take(now + GAP_FIRST / 2), pace.wait(now + GAP_FIRST / 2)),
            (Some(now + GAP_FIRST), GAP_FIRST / 2)
        );
        assert_eq!(pace.take(now + GAP_FIRST), None);
        assert_eq!(pace.take(now + GAP_FIRST), Some(now + 2 * GAP_FIRST));
    }
}
