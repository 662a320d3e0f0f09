//! What follows for an endpoint from how attempts went: when it is spared, when it is trusted again, and how fast.
//!
//! Pure. One event that is refused again and again does not speak for its endpoint: what counts is that event after
//! event fails. A person's word (paused, deleted) is never undone by an attempt.

use std::time::Duration;

use crate::delivery::schedule::wait_after;
use crate::delivery::slots::ENDPOINT_IN_FLIGHT_MAX;
use crate::store::endpoints::{Health, Status};
use crate::time::Timestamp;

/// So many failures in a row open the breaker.
const FAILURES_TO_OPEN: u32 = 5;
/// An event's failures beyond this many say something about the event, and nothing more about the endpoint.
const FAILURES_THAT_COUNT: u32 = 2;

/// How an attempt went, as far as the endpoint is concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    Arrived,
    Failed,
    /// It answered 410: it does not want any.
    Gone,
}

/// An attempt that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Word {
    pub(super) outcome: Outcome,
    pub(super) began_at: Timestamp,
    /// How often its event had failed before.
    pub(super) failures: u32,
    /// How long the receiver asks us to wait.
    pub(super) retry_after: Option<Duration>,
    pub(super) random: u64,
}

/// How the endpoint does after attempts that ended together at `now`. Behind the first that arrives 1, 2, 4 .. may be
/// under way: however many arrive together, it is twice as many at most.
pub(super) fn after_all(before: Health, words: &[Word], now: Timestamp) -> Health {
    let after = words.iter().fold(before, |health, word| after(health, word, now));
    let is_back = before.status == Status::Open && after.status != Status::Open;
    let most = if is_back { 1 } else { before.in_flight_max.saturating_mul(2).max(1) };
    let since = if after.status == before.status { before.since } else { now };
    Health { in_flight_max: after.in_flight_max.min(most), since, ..after }
}

fn after(health: Health, word: &Word, now: Timestamp) -> Health {
    match (word.outcome, health.status) {
        (Outcome::Arrived, Status::Open) => Health { status: Status::Active, failures: 0, in_flight_max: 1, ..health },
        (Outcome::Arrived, Status::Active) => {
            let in_flight_max = health.in_flight_max.saturating_mul(2).clamp(1, ENDPOINT_IN_FLIGHT_MAX);
            Health { failures: 0, in_flight_max, ..health }
        }
        (Outcome::Gone, Status::Active | Status::Open) => Health { status: Status::Gone, ..health },
        (Outcome::Failed, Status::Active) if word.failures < FAILURES_THAT_COUNT => {
            let failed = Health { failures: health.failures.saturating_add(1), ..health };
            if failed.failures < FAILURES_TO_OPEN { failed } else { open(failed, word, now) }
        }
        // What began before it was opened is no probe.
        (Outcome::Failed, Status::Open) if word.began_at > health.since => {
            open(Health { failures: health.failures.saturating_add(1), ..health }, word, now)
        }
        (Outcome::Arrived | Outcome::Failed | Outcome::Gone, _) => health,
    }
}

/// Nothing is attempted until the next probe.
fn open(health: Health, word: &Word, now: Timestamp) -> Health {
    let step = health.failures.saturating_sub(FAILURES_TO_OPEN).saturating_add(1);
    let probe_at = now.plus(wait_after(step, word.retry_after, word.random));
    // Those that end together with the one that opens it are no probes either.
    let since = if health.status == Status::Open { health.since } else { now };
    Health { status: Status::Open, since, probe_at, ..health }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WELL: Health = Health {
        status: Status::Active,
        since: Timestamp(0),
        failures: 0,
        in_flight_max: ENDPOINT_IN_FLIGHT_MAX,
        probe_at: Timestamp(0),
    };

    fn word(outcome: Outcome) -> Word {
        Word { outcome, began_at: Timestamp(1), failures: 0, retry_after: None, random: 200 }
    }

    fn all(outcomes: &[Outcome]) -> Health {
        outcomes.iter().fold(WELL, |health, outcome| after_all(health, &[word(*outcome)], Timestamp(1)))
    }

    fn at(secs: i64) -> Timestamp {
        Timestamp(secs * 1_000_000)
    }

    #[test]
    fn five_failures_in_a_row_open_it_and_one_that_arrives_begins_the_count_anew() {
        assert_eq!(all(&[Outcome::Failed; 4]), Health { failures: 4, ..WELL });
        let open =
            Health { status: Status::Open, failures: 5, since: Timestamp(1), probe_at: Timestamp(2_000_001), ..WELL };
        assert_eq!(all(&[Outcome::Failed; 5]), open);
        assert_eq!(all(&[Outcome::Failed; 9]), open, "what was under way when it opened changes nothing");
        let broken = [&[Outcome::Failed; 4][..], &[Outcome::Arrived], &[Outcome::Failed; 4]].concat();
        assert_eq!(all(&broken).status, Status::Active);
    }

    #[test]
    fn an_event_that_is_refused_for_ever_does_not_open_it() {
        let mut health = WELL;
        for failures in 0..40 {
            health = after_all(health, &[Word { failures, ..word(Outcome::Failed) }], at(i64::from(failures)));
        }
        assert_eq!(health, Health { failures: 2, ..WELL });
    }

    #[test]
    fn probes_are_made_by_the_schedule_and_a_receiver_is_heard() {
        let mut health = after_all(WELL, &[word(Outcome::Failed); 8], at(100));
        let mut waits = Vec::new();
        let mut now = at(100);
        for _ in 0..13 {
            waits.push(health.probe_at.since(now).as_secs());
            now = health.probe_at;
            health = after_all(health, &[Word { began_at: now, failures: 9, ..word(Outcome::Failed) }], now);
        }
        assert_eq!(waits, [2, 5, 15, 60, 300, 900, 1_800, 3_600, 7_200, 14_400, 21_600, 21_600, 21_600]);
        let health = after_all(WELL, &[word(Outcome::Failed); 5], at(100));
        let busy = Word { began_at: at(102), retry_after: Some(Duration::from_secs(90)), ..word(Outcome::Failed) };
        assert_eq!(after_all(health, &[busy], at(102)).probe_at, at(192));
    }

    #[test]
    fn the_first_that_arrives_closes_it_and_then_one_two_four_and_eight_are_under_way() {
        let mut health = all(&[Outcome::Failed; 9]);
        let mut ramp = Vec::new();
        for _ in 0..6 {
            health = after_all(health, &[word(Outcome::Arrived)], at(9));
            ramp.push(health.in_flight_max);
        }
        assert_eq!(ramp, [1, 2, 4, 8, 8, 8]);
        assert_eq!((health.status, health.failures), (Status::Active, 0));
        let closed = after_all(all(&[Outcome::Failed; 5]), &[word(Outcome::Arrived); 4], at(9));
        assert_eq!(closed.in_flight_max, 1);
        assert_eq!(after_all(closed, &[word(Outcome::Arrived); 4], at(9)).in_flight_max, 2);
    }

    #[test]
    fn a_410_puts_it_aside_and_no_attempt_undoes_what_a_person_must() {
        assert_eq!(all(&[Outcome::Gone]).status, Status::Gone);
        assert_eq!(all(&[&[Outcome::Failed; 5][..], &[Outcome::Gone]].concat()).status, Status::Gone);
        for status in [Status::Paused, Status::Gone, Status::Deleted] {
            for outcome in [Outcome::Arrived, Outcome::Failed, Outcome::Gone] {
                let before = Health { status, failures: 9, ..WELL };
                assert_eq!(after_all(before, &[word(outcome)], at(9)), before, "{outcome:?}");
            }
        }
    }
}
