//! How the results of attempts change an endpoint: when it is spared, when it is trusted again, and how fast.
//!
//! Pure. One event that is refused again and again says little about its endpoint; many events that fail say more. An
//! endpoint that is back is trusted step by step, and counts as failing again at the second failure. No attempt changes
//! what a person decided (paused, deleted).

use std::time::Duration;

use crate::delivery::schedule::{PROBED_OFTEN, PROBED_OFTEN_WAIT_MAX, is_held, wait_after};
use crate::delivery::slots::ENDPOINT_IN_FLIGHT_MAX;
use crate::store::endpoints::{Health, Status};
use crate::time::Timestamp;

/// So much strain opens the breaker. Any arrival resets the strain.
const STRAIN_MAX: u32 = 100;
/// Strain of an event's first failure since it was written, replayed or released, or since the endpoint's status
/// changed. Five of them open the breaker.
const STRAIN_FIRST: u32 = 20;
/// The same while the endpoint is back and not fully trusted. Two open the breaker, so that not all released events
/// fail once more.
const STRAIN_FIRST_BACK: u32 = 50;
/// Strain of each further failure: it says something about the event. A hundred of them say something about the
/// endpoint too.
const STRAIN_AGAIN: u32 = 1;
/// The value of `failures` when the breaker opens; from here on it counts probes.
const FAILURES_AT_OPENING: u32 = 5;
/// So many probes count during the first hour: their waits grow to a minute and no further.
const PROBES_AT_FIRST: u32 = 3;

/// The result of an attempt, as far as it concerns the endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    Arrived,
    Failed,
    /// It answered 410: it wants no events.
    Gone,
}

/// An attempt that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ending {
    pub(super) outcome: Outcome,
    pub(super) began_at: Timestamp,
    /// How often its event had failed before.
    pub(super) failures: u32,
    /// When it was attempted before, if that is on record.
    pub(super) attempted_at: Option<Timestamp>,
    /// How long the receiver asks us to wait.
    pub(super) retry_after: Option<Duration>,
    pub(super) random: u64,
}

/// The endpoint's health after attempts that ended together at `now`. After the first arrival 1, 2, 4 .. may be under
/// way. However many arrive together, the number doubles at most.
pub(super) fn after_all(before: Health, endings: &[Ending], now: Timestamp) -> Health {
    let is_trusted = before.in_flight_max >= ENDPOINT_IN_FLIGHT_MAX;
    let after = endings.iter().fold(before, |health, ending| after(health, ending, is_trusted, now));
    let is_back = before.status == Status::Failing && after.status != Status::Failing;
    let most = if is_back { 1 } else { before.in_flight_max.saturating_mul(2).max(1) };
    let since = if after.status == before.status { before.since } else { now };
    Health { in_flight_max: after.in_flight_max.min(most), since, ..after }
}

fn after(health: Health, ending: &Ending, is_trusted: bool, now: Timestamp) -> Health {
    match (ending.outcome, health.status) {
        (Outcome::Arrived, Status::Failing) => {
            Health { status: Status::Active, failures: 0, strain: 0, in_flight_max: 1, ..health }
        }
        (Outcome::Arrived, Status::Active) => {
            let in_flight_max = health.in_flight_max.saturating_mul(2).clamp(1, ENDPOINT_IN_FLIGHT_MAX);
            Health { failures: 0, strain: 0, in_flight_max, ..health }
        }
        (Outcome::Gone, Status::Active | Status::Failing) => Health { status: Status::Gone, ..health },
        (Outcome::Failed, Status::Active) => {
            let strain = health.strain.saturating_add(strain_of(ending, health.since, is_trusted));
            let failures = health.failures.saturating_add(u32::from(ending.failures == 0)).min(FAILURES_AT_OPENING);
            if strain < STRAIN_MAX {
                Health { strain, failures, ..health }
            } else {
                open(Health { strain, failures: FAILURES_AT_OPENING, ..health }, ending, now)
            }
        }
        // An attempt that began before the breaker opened is no probe.
        (Outcome::Failed, Status::Failing) if ending.began_at > health.since => {
            open(Health { failures: health.failures.saturating_add(1), ..health }, ending, now)
        }
        (Outcome::Arrived | Outcome::Failed | Outcome::Gone, _) => health,
    }
}

fn strain_of(ending: &Ending, since: Timestamp, is_trusted: bool) -> u32 {
    let is_first = ending.failures == 0 || ending.attempted_at.is_none_or(|at| at <= since);
    match ending.failures {
        // One stands for all held ones, every six hours.
        failures if is_held(failures) => 0,
        _ if !is_first => STRAIN_AGAIN,
        _ if is_trusted => STRAIN_FIRST,
        _ => STRAIN_FIRST_BACK,
    }
}

/// Opens the breaker: nothing is attempted until the next probe.
fn open(health: Health, ending: &Ending, now: Timestamp) -> Health {
    // Attempts that end together with the one that opens it are no probes either.
    let since = if health.status == Status::Failing { health.since } else { now };
    let is_recent = now.since(since) < PROBED_OFTEN;
    let most = if is_recent { FAILURES_AT_OPENING + PROBES_AT_FIRST } else { u32::MAX };
    let failures = health.failures.min(most);
    let step = failures.saturating_sub(FAILURES_AT_OPENING).saturating_add(1);
    let wait = wait_after(step, ending.retry_after, ending.random);
    // A receiver may ask for a longer wait.
    let most = if is_recent { PROBED_OFTEN_WAIT_MAX.max(ending.retry_after.unwrap_or_default()) } else { wait };
    Health { status: Status::Failing, since, failures, probe_at: now.plus(wait.min(most)), ..health }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WELL: Health = Health {
        status: Status::Active,
        since: Timestamp(0),
        failures: 0,
        strain: 0,
        in_flight_max: ENDPOINT_IN_FLIGHT_MAX,
        probe_at: Timestamp(0),
        probed_at: Timestamp(0),
    };

    fn ending(outcome: Outcome) -> Ending {
        let attempted_at = Some(Timestamp(i64::MAX));
        Ending { outcome, began_at: Timestamp(1), failures: 0, attempted_at, retry_after: None, random: 200 }
    }

    fn all(outcomes: &[Outcome]) -> Health {
        outcomes.iter().fold(WELL, |health, outcome| after_all(health, &[ending(*outcome)], Timestamp(1)))
    }

    fn at(secs: i64) -> Timestamp {
        Timestamp(secs * 1_000_000)
    }

    #[test]
    fn five_failures_in_a_row_open_it_and_one_that_arrives_begins_the_count_anew() {
        assert_eq!(all(&[Outcome::Failed; 4]), Health { failures: 4, strain: 80, ..WELL });
        let (since, probe_at) = (Timestamp(1), Timestamp(2_000_001));
        let open = Health { status: Status::Failing, failures: 5, strain: 100, since, probe_at, ..WELL };
        assert_eq!(all(&[Outcome::Failed; 5]), open);
        assert_eq!(all(&[Outcome::Failed; 9]), open, "what was under way when it opened changes nothing");
        let broken = [&[Outcome::Failed; 4][..], &[Outcome::Arrived], &[Outcome::Failed; 4]].concat();
        assert_eq!(all(&broken).status, Status::Active);
    }

    #[test]
    fn an_event_that_is_refused_for_ever_does_not_open_it() {
        let mut health = WELL;
        for failures in 0..42 {
            health = after_all(health, &[Ending { failures, ..ending(Outcome::Failed) }], at(i64::from(failures)));
        }
        assert_eq!(health, Health { failures: 1, strain: 59, ..WELL });
    }

    #[test]
    fn five_events_that_fail_open_it_however_often_each_of_them_fails_between() {
        let mut health = WELL;
        for failures in [0, 1, 2, 0, 1, 0, 1, 2, 3, 0] {
            assert_eq!(health.status, Status::Active);
            health = after_all(health, &[Ending { failures, ..ending(Outcome::Failed) }], at(9));
        }
        assert_eq!((health.status, health.strain), (Status::Active, 86));
        assert_eq!(after_all(health, &[ending(Outcome::Failed)], at(9)).status, Status::Failing);
    }

    #[test]
    fn events_that_failed_before_open_it_when_a_hundred_of_them_fail_in_a_row() {
        let again = Ending { failures: 3, ..ending(Outcome::Failed) };
        let health = (0..99).fold(WELL, |health, _| after_all(health, &[again], at(9)));
        assert_eq!(health.status, Status::Active);
        assert_eq!(after_all(health, &[again], at(9)).status, Status::Failing);
        assert_eq!(after_all(after_all(health, &[ending(Outcome::Arrived)], at(9)), &[again], at(9)).strain, 1);
    }

    #[test]
    fn one_that_is_back_and_fails_again_is_open_at_the_second_failure_and_not_by_one_event_alone() {
        let back = after_all(all(&[Outcome::Failed; 5]), &[ending(Outcome::Arrived)], at(9));
        let failed = after_all(back, &[ending(Outcome::Failed)], at(9));
        assert_eq!((failed.status, failed.strain), (Status::Active, 50));
        let open = after_all(failed, &[ending(Outcome::Failed)], at(9));
        assert_eq!((open.status, open.failures), (Status::Failing, 5), "the first probe is soon");
        assert_eq!(open.probe_at, at(11));
        let alone = (0..42).map(|failures| Ending { failures, ..ending(Outcome::Failed) });
        let alone = alone.fold(back, |health, ending| after_all(health, &[ending], at(9)));
        assert_eq!((alone.status, alone.strain), (Status::Active, 89));
        let before = Ending { failures: 7, attempted_at: Some(back.since), ..ending(Outcome::Failed) };
        assert_eq!(after_all(back, &[before], at(9)).strain, 50, "it failed before the endpoint was back");
        let trusted = (0..3).fold(back, |health, _| after_all(health, &[ending(Outcome::Arrived)], at(9)));
        assert_eq!(after_all(trusted, &[ending(Outcome::Failed)], at(9)).strain, 20, "wholly trusted again");
    }

    #[test]
    fn a_probe_comes_each_minute_for_an_hour_and_then_by_the_schedule_and_a_receiver_may_ask_for_more_time() {
        let mut health = after_all(WELL, &[ending(Outcome::Failed); 8], at(100));
        let (mut waits, mut now) = (Vec::new(), at(100));
        for _ in 0..100 {
            waits.push(health.probe_at.since(now).as_secs());
            now = health.probe_at;
            let random = u64::try_from(waits.len()).unwrap() * 7;
            let random = if now.since(at(100)) < PROBED_OFTEN { random } else { 200 };
            health =
                after_all(health, &[Ending { began_at: now, failures: 9, random, ..ending(Outcome::Failed) }], now);
        }
        let (often, rarely) = waits.split_at(waits.iter().position(|wait| *wait > 60).unwrap());
        assert!(often.len() > 60 && often.iter().sum::<u64>() >= 3_600, "{often:?}");
        assert_eq!(rarely[..9], [300, 900, 1_800, 3_600, 7_200, 14_400, 21_600, 21_600, 21_600]);
        let health = after_all(WELL, &[ending(Outcome::Failed); 5], at(100));
        let busy = Ending { began_at: at(102), retry_after: Some(Duration::from_secs(90)), ..ending(Outcome::Failed) };
        assert_eq!(after_all(health, &[busy], at(102)).probe_at, at(192));
    }

    #[test]
    fn the_first_that_arrives_closes_it_and_then_one_two_four_and_eight_are_under_way() {
        let mut health = all(&[Outcome::Failed; 9]);
        let mut ramp = Vec::new();
        for _ in 0..6 {
            health = after_all(health, &[ending(Outcome::Arrived)], at(9));
            ramp.push(health.in_flight_max);
        }
        assert_eq!(ramp, [1, 2, 4, 8, 8, 8]);
        assert_eq!((health.status, health.failures), (Status::Active, 0));
        let closed = after_all(all(&[Outcome::Failed; 5]), &[ending(Outcome::Arrived); 4], at(9));
        assert_eq!(closed.in_flight_max, 1);
        assert_eq!(after_all(closed, &[ending(Outcome::Arrived); 4], at(9)).in_flight_max, 2);
    }

    #[test]
    fn a_410_puts_it_aside_and_no_attempt_undoes_what_a_person_must() {
        assert_eq!(all(&[Outcome::Gone]).status, Status::Gone);
        assert_eq!(all(&[&[Outcome::Failed; 5][..], &[Outcome::Gone]].concat()).status, Status::Gone);
        for status in [Status::Paused, Status::Gone, Status::Deleted] {
            for outcome in [Outcome::Arrived, Outcome::Failed, Outcome::Gone] {
                let before = Health { status, failures: 9, ..WELL };
                assert_eq!(after_all(before, &[ending(outcome)], at(9)), before, "{outcome:?}");
            }
        }
    }
}
