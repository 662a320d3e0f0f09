//! What one endpoint was found to serve: batches or none, how many calls in a request, how wide a range of a search,
//! which methods, and when it may be asked again. How fast it may be asked is `pace`'s.
//!
//! Promises: what is learnt only makes us ask for less or later, so it cannot make an answer wrong. All of it is
//! forgotten with the process; that something is not served, after ten minutes.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::limits::Limit;
use crate::pool::calls::Weight;
use crate::timings::Timings;

/// How many blocks one range of a search covers at first, and at most: reth serves as many.
const RANGE_FIRST: u64 = 100;
const RANGE_MAX: u64 = 100_000;
/// How long a refusal of a method, or of batches, is believed: plans change, and nodes are repaired.
const UNSUPPORTED: Duration = Duration::from_secs(600);

/// An answer of more bytes makes the next requests smaller: all of it is held in memory, as are those that are asked
/// ahead.
const ANSWER_BYTES_WANTED: usize = 16 << 20;

#[derive(Debug)]
pub(crate) struct Learnt {
    timings: Timings,
    facts: Mutex<Facts>,
}

#[derive(Debug)]
struct Facts {
    batch: usize,
    /// What the endpoint says it serves at most; a batch grows up to here again.
    batch_most: usize,
    /// How many calls that are asked aside one request may hold. It only shrinks: nothing else is learnt of their
    /// answers.
    batch_aside: usize,
    /// That it refuses batches as a whole; and batches that are asked aside.
    no_batches: Option<NoBatches>,
    no_batches_aside: Option<NoBatches>,
    range: u64,
    /// What the endpoint says it serves at most; a range grows up to here again.
    range_most: u64,
    pause: Option<Pause>,
    /// When it said of a method that it does not serve it.
    unsupported: BTreeMap<&'static str, Instant>,
}

/// It refused a batch as a whole, and served a call of it that was asked for alone.
#[derive(Clone, Debug)]
struct NoBatches {
    since: Instant,
    said: String,
    /// Its message may also mean how much was asked lately.
    is_doubtful: bool,
}

/// It reported that it was asked too much.
#[derive(Clone, Copy, Debug)]
struct Pause {
    from: Instant,
    until: Instant,
    /// It reported for how long: then nothing makes it shorter.
    is_named: bool,
}

impl Learnt {
    /// Nothing yet: a request may hold as many as `batch_max` calls.
    pub(crate) fn new(batch_max: usize, timings: Timings) -> Self {
        let facts = Mutex::new(Facts {
            batch: batch_max,
            batch_most: batch_max,
            batch_aside: batch_max,
            no_batches: None,
            no_batches_aside: None,
            range: RANGE_FIRST,
            range_most: RANGE_MAX,
            pause: None,
            unsupported: BTreeMap::new(),
        });
        Learnt { timings, facts }
    }

    /// How many calls of such weight one request may hold.
    pub(crate) fn batch(&self, weight: Weight, now: Instant) -> usize {
        let facts = self.facts();
        let (batch, refused) = match weight {
            Weight::Counts => (facts.batch, &facts.no_batches),
            Weight::Aside => (facts.batch_aside, &facts.no_batches_aside),
        };
        let is_believed = |it: &NoBatches| now.duration_since(it.since) < UNSUPPORTED;
        if refused.as_ref().is_some_and(is_believed) { 1 } else { batch }
    }

    /// It refused a batch of such weight with this message, and served a call of it that was asked for alone.
    pub(crate) fn batch_refused(&self, said: &str, limit: Option<Limit>, weight: Weight, now: Instant) {
        let refused = NoBatches { since: now, said: said.to_owned(), is_doubtful: limit.is_some_and(is_rate) };
        let mut facts = self.facts();
        // What holds for light calls holds for heavy ones; the reverse is not known.
        if weight == Weight::Counts {
            facts.no_batches = Some(refused.clone());
        }
        facts.no_batches_aside = Some(refused);
    }

    /// It answered a batch of such weight.
    pub(crate) fn batch_served(&self, weight: Weight) {
        let mut facts = self.facts();
        match weight {
            Weight::Counts => facts.no_batches = None,
            Weight::Aside => facts.no_batches_aside = None,
        }
    }

    /// What an operator should know of an endpoint that serves no batches; empty where it does.
    pub(crate) fn why_no_batches(&self) -> String {
        let facts = self.facts();
        match (&facts.no_batches, &facts.no_batches_aside) {
            (Some(NoBatches { said, .. }), _) => {
                format!("serves no batches, so each call is a request of its own: {said}")
            }
            (None, Some(NoBatches { said, .. })) => {
                format!("serves no batches of traces and account proofs, so each is a request of its own: {said}")
            }
            (None, None) => String::new(),
        }
    }

    /// How many blocks one range of a search may cover.
    pub(crate) fn range_width(&self) -> u64 {
        self.facts().range
    }

    /// Whether it has not refused the method in the last ten minutes.
    pub(crate) fn is_served(&self, method: &str, now: Instant) -> bool {
        let said_at = self.facts().unsupported.get(method).copied();
        said_at.is_none_or(|said_at| now.duration_since(said_at) >= UNSUPPORTED)
    }

    /// How much longer the endpoint must be left alone.
    pub(crate) fn cooldown(&self, now: Instant) -> Option<Duration> {
        let until = self.facts().pause?.until;
        until.checked_duration_since(now).filter(|cooldown| !cooldown.is_zero())
    }

    /// Until when the endpoint is not polled. A pause that it did not name itself is no longer than `most`.
    pub(crate) fn cools_down_until(&self, most: Option<Duration>) -> Option<Instant> {
        let Pause { from, until, is_named } = self.facts().pause?;
        Some(most.filter(|_| !is_named).map_or(until, |most| until.min(from + most)))
    }

    /// It answered to what was asked at `begun`: an earlier pause is over.
    pub(crate) fn answered(&self, begun: Instant) {
        let mut facts = self.facts();
        facts.pause = facts.pause.filter(|pause| pause.from > begun);
    }

    /// A request of so many `calls` of such weight met a limit, or its call of `method` did.
    pub(crate) fn refused(&self, limit: Limit, method: &'static str, calls: usize, weight: Weight, now: Instant) {
        let mut facts = self.facts();
        match limit {
            Limit::BatchTooLarge { most } if calls > 1 => {
                let most = most.and_then(|most| usize::try_from(most).ok()).filter(|most| *most < calls);
                let most = most.unwrap_or(calls / 2);
                // As many light ones may be served where so many heavy ones are not; the reverse is not known.
                facts.batch_aside = facts.batch_aside.min(most).max(1);
                if weight == Weight::Counts {
                    facts.batch_most = facts.batch_most.min(most).max(1);
                    facts.batch = facts.batch.min(facts.batch_most);
                }
            }
            // Such calls are often paid for by another tariff.
            Limit::RateLimited { .. } if weight == Weight::Aside => {
                facts.no_batches_aside.take_if(|it| it.is_doubtful);
            }
            Limit::RateLimited { pause } => {
                facts.no_batches.take_if(|it| it.is_doubtful);
                facts.no_batches_aside.take_if(|it| it.is_doubtful);
                let until = now + pause.unwrap_or(self.timings.pause).min(self.timings.pause_max);
                if facts.pause.is_none_or(|before| before.until < until) {
                    facts.pause = Some(Pause { from: now, until, is_named: pause.is_some() });
                }
            }
            Limit::Unsupported => {
                facts.unsupported.insert(method, now);
            }
            Limit::BatchTooLarge { .. }
            | Limit::RangeTooWide { .. }
            | Limit::TooManyResults { .. }
            | Limit::NotThereYet
            | Limit::Pruned => {}
        }
    }

    /// The answers to a request with `calls` calls had so many bytes.
    pub(crate) fn sent(&self, calls: usize, bytes: usize) {
        // One call cannot be made smaller here: the width of a range is learnt from ranges.
        if calls < 2 {
            return;
        }
        let mut facts = self.facts();
        if bytes > ANSWER_BYTES_WANTED {
            facts.batch = facts.batch.min(calls / 2);
        } else if 2 * calls > facts.batch && bytes <= ANSWER_BYTES_WANTED / 2 {
            // Twice as much would do.
            facts.batch = (facts.batch + facts.batch / 8 + 1).min(facts.batch_most);
        }
    }

    /// A range of `width` blocks was too much. Returns whether a narrower one is worth a try.
    pub(crate) fn range_refused(&self, limit: Limit, width: u64) -> bool {
        let mut facts = self.facts();
        let suggested = match limit {
            Limit::RangeTooWide { most } => most,
            Limit::TooManyResults { range } => range,
            Limit::BatchTooLarge { .. }
            | Limit::RateLimited { .. }
            | Limit::NotThereYet
            | Limit::Pruned
            | Limit::Unsupported => return false,
        };
        // A suggestion that is no narrower than what was refused is of no use.
        let narrower = suggested.filter(|suggested| *suggested < width).unwrap_or(width / 2).max(1);
        if matches!(limit, Limit::RangeTooWide { .. }) {
            facts.range_most = facts.range_most.min(narrower);
        }
        facts.range = facts.range.min(narrower);
        width > 1
    }

    /// A range of `width` blocks was served with so many bytes: the next may be a little wider, or must be narrower.
    pub(crate) fn range_served(&self, width: u64, bytes: usize) {
        let mut facts = self.facts();
        if bytes > ANSWER_BYTES_WANTED {
            facts.range = facts.range.min(width / 2).max(1);
        } else if width >= facts.range {
            facts.range = (facts.range + facts.range / 8 + 1).min(facts.range_most);
        }
    }

    fn facts(&self) -> MutexGuard<'_, Facts> {
        // Each field is a fact of its own: none is left half written.
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_rate(limit: Limit) -> bool {
    matches!(limit, Limit::RateLimited { .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn that_an_endpoint_serves_no_batches_is_forgotten_after_ten_minutes_or_when_it_serves_one() {
        let (learnt, now) = (Learnt::new(1_000, Timings::PRODUCTION), Instant::now());
        let widths = |secs| [Weight::Counts, Weight::Aside].map(|it| learnt.batch(it, now + Duration::from_secs(secs)));
        learnt.batch_refused("no traces in batches", None, Weight::Aside, now);
        assert_eq!(widths(0), [1_000, 1]);
        assert!(
            learnt
                .why_no_batches()
                .contains("of traces and account proofs, so each is a request of its own: no traces")
        );
        learnt.batch_refused("no batches", None, Weight::Counts, now);
        assert_eq!((widths(0), widths(599), widths(600)), ([1; 2], [1; 2], [1_000; 2]));
        learnt.batch_served(Weight::Counts);
        assert_eq!(widths(0), [1_000, 1]);
        learnt.batch_served(Weight::Aside);
        assert_eq!((widths(0), learnt.why_no_batches()), ([1_000; 2], String::new()));
    }

    #[test]
    fn who_refused_a_batch_with_the_code_of_a_limit_and_then_a_single_call_was_asked_too_much() {
        let (learnt, now, rate) =
            (Learnt::new(1_000, Timings::PRODUCTION), Instant::now(), Limit::RateLimited { pause: None });
        learnt.batch_refused("limit exceeded", Some(rate), Weight::Counts, now);
        assert_eq!(learnt.batch(Weight::Counts, now), 1);
        learnt.refused(rate, "m", 1, Weight::Counts, now);
        assert_eq!(learnt.batch(Weight::Counts, now), 1_000);
        learnt.batch_refused("no batches", None, Weight::Counts, now);
        learnt.refused(rate, "m", 1, Weight::Counts, now);
        assert_eq!(learnt.batch(Weight::Counts, now), 1, "that is another matter");
    }

    #[test]
    fn a_range_narrows_on_refusals_and_widens_up_to_what_is_served() {
        let learnt = Learnt::new(1_000, Timings::PRODUCTION);
        assert_eq!(learnt.range_width(), 100);
        learnt.range_served(100, 1_000);
        assert_eq!(learnt.range_width(), 113);
        assert!(learnt.range_refused(Limit::TooManyResults { range: None }, 100));
        assert_eq!(learnt.range_width(), 50);
        learnt.range_served(40, 1_000);
        assert_eq!(learnt.range_width(), 50, "a narrower range says nothing of wider ones");
        learnt.range_served(50, ANSWER_BYTES_WANTED + 1);
        assert_eq!(learnt.range_width(), 25, "it was served, and is much to hold");
        assert!(learnt.range_refused(Limit::RangeTooWide { most: Some(10) }, 25));
        learnt.range_served(10, 1_000);
        assert_eq!(learnt.range_width(), 10, "the endpoint said how many it serves");
        assert!(learnt.range_refused(Limit::TooManyResults { range: Some(10) }, 10));
        assert_eq!(learnt.range_width(), 5, "a suggestion that was refused already is none");
        assert!(!learnt.range_refused(Limit::RangeTooWide { most: None }, 1), "one block is the least");
        assert_eq!(learnt.range_width(), 1);
        assert!(!learnt.range_refused(Limit::Pruned, 100));
    }

    #[test]
    fn heavy_answers_make_batches_smaller_and_light_ones_larger_again() {
        let learnt = Learnt::new(40, Timings::PRODUCTION);
        learnt.sent(40, ANSWER_BYTES_WANTED + 1);
        assert_eq!(learnt.batch(Weight::Counts, Instant::now()), 20);
        learnt.sent(10, 1_000);
        assert_eq!(learnt.batch(Weight::Counts, Instant::now()), 20, "a smaller request says nothing of larger ones");
        learnt.sent(20, ANSWER_BYTES_WANTED);
        assert_eq!(learnt.batch(Weight::Counts, Instant::now()), 20, "a larger one would be too heavy");
        learnt.sent(20, ANSWER_BYTES_WANTED / 2);
        assert_eq!(learnt.batch(Weight::Counts, Instant::now()), 23);
        (0..20).for_each(|_| learnt.sent(40, 1_000));
        assert_eq!(learnt.batch(Weight::Counts, Instant::now()), 40);
        learnt.sent(1, ANSWER_BYTES_WANTED + 1);
        assert_eq!(learnt.batch(Weight::Counts, Instant::now()), 40, "of one call nothing is learnt");
        learnt.sent(2, ANSWER_BYTES_WANTED + 1);
        assert_eq!(learnt.batch(Weight::Counts, Instant::now()), 1, "one call is the least");
        (0..20).for_each(|_| learnt.sent(40, 1_000));
        learnt.refused(Limit::BatchTooLarge { most: Some(8) }, "m", 40, Weight::Counts, Instant::now());
        (0..20).for_each(|_| learnt.sent(40, 1_000));
        assert_eq!(learnt.batch(Weight::Counts, Instant::now()), 8, "the endpoint said how many it serves");
    }

    #[test]
    fn batches_shrink_and_rests_end() {
        let (learnt, now) = (Learnt::new(1_000, Timings::PRODUCTION), Instant::now());
        learnt.refused(Limit::BatchTooLarge { most: None }, "m", 40, Weight::Counts, now);
        assert_eq!(learnt.batch(Weight::Counts, Instant::now()), 20);
        learnt.refused(Limit::BatchTooLarge { most: Some(3) }, "m", 20, Weight::Counts, now);
        learnt.refused(Limit::BatchTooLarge { most: Some(100) }, "m", 3, Weight::Counts, now);
        assert_eq!(learnt.batch(Weight::Counts, Instant::now()), 1);
        learnt.refused(Limit::BatchTooLarge { most: None }, "m", 1, Weight::Counts, now);
        assert_eq!(learnt.batch(Weight::Counts, Instant::now()), 1);
        learnt.refused(Limit::RateLimited { pause: Some(Duration::from_secs(7)) }, "m", 1, Weight::Counts, now);
        learnt.refused(Limit::RateLimited { pause: None }, "m", 1, Weight::Counts, now);
        assert_eq!(learnt.cooldown(now), Some(Duration::from_secs(7)));
        assert_eq!(learnt.cooldown(now + Duration::from_secs(7)), None);
        learnt.refused(Limit::Unsupported, "debug_x", 1, Weight::Aside, now);
        assert!(learnt.is_served("m", now) && !learnt.is_served("debug_x", now));
        assert!(!learnt.is_served("debug_x", now + UNSUPPORTED - Duration::from_secs(1)));
        assert!(learnt.is_served("debug_x", now + UNSUPPORTED), "it may be served by now");
    }

    #[test]
    fn what_is_too_much_or_too_often_aside_is_not_for_the_rest() {
        let (learnt, now) = (Learnt::new(1_000, Timings::PRODUCTION), Instant::now());
        let widths = || [Weight::Counts, Weight::Aside].map(|weight| learnt.batch(weight, now));
        learnt.refused(Limit::BatchTooLarge { most: None }, "debug_x", 8, Weight::Aside, now);
        learnt.refused(Limit::RateLimited { pause: None }, "debug_x", 8, Weight::Aside, now);
        assert_eq!((widths(), learnt.cooldown(now)), ([1_000, 4], None));
        learnt.refused(Limit::BatchTooLarge { most: Some(100) }, "m", 1_000, Weight::Counts, now);
        assert_eq!(widths(), [100, 4]);
        learnt.refused(Limit::BatchTooLarge { most: Some(3) }, "m", 100, Weight::Counts, now);
        assert_eq!(widths(), [3, 3], "what is too much of the light is too much of the heavy");
    }
}
