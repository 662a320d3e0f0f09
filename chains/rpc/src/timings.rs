//! How long endpoints are waited for and left alone.
//!
//! Promises: a pool keeps one `Timings` for its whole life. They decide when something is asked and never what is
//! believed, so tests may shorten them. Deliberately not here: for how long something counts that was reported or
//! learnt, and how often a tip is polled.

use std::time::Duration;

use landfall_chain::Retry;

/// What lasts longer each time in a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Doubling {
    pub first: Duration,
    pub most: Duration,
}

/// The waits of one pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timings {
    /// Within this time every request ends, and a connection is open.
    pub call_timeout: Duration,
    pub connect_timeout: Duration,
    /// The cool-down after a failure.
    pub cooldown: Doubling,
    /// How long a quarantine lasts before the endpoint is polled again.
    pub quarantine: Doubling,
    /// How long an endpoint that timed out counts as unresponsive: longer than it takes until its next poll has timed
    /// out too.
    pub unresponsive: Doubling,
    /// The longest quarantine while no endpoint can be read from. What it reports is proved all the same, and whoever
    /// asks for the tip pauses by himself.
    pub last_resort_cooldown: Duration,
    /// After so long without a failure, cool-downs begin small again; and quarantines.
    pub calm: Duration,
    pub calm_after_quarantine: Duration,
    /// How long the first good answer to a poll waits for the answers of endpoints that are usually as fast.
    pub grace: Duration,
    /// How long a poll waits for the first cool-down to end, where no endpoint can be asked before.
    pub first_cooled_down_max: Duration,
    /// After how long a poll that has no answer yet asks those again that failed, beside those that have not answered.
    /// A caller of the tip pauses only between his calls.
    pub again_after: Duration,
    /// How long an endpoint is left alone that reports too much without a time, and at most.
    pub pause: Duration,
    pub pause_max: Duration,
    /// The gap between two requests after a first refusal, and the largest one: with that, an endpoint that refuses
    /// everything is asked as often as its pauses allow.
    pub gap: Doubling,
    /// A gap below this is none.
    pub gap_least: Duration,
    /// A refusal so soon after another has the same cause: a node that counts by windows refuses everything until its
    /// window ends.
    pub episode: Duration,
    /// How often an answer narrows the gap.
    pub narrowing_every: Duration,
    /// For so long after a refusal the gap stays wider than the one that was refused.
    pub gap_calm: Duration,
    /// How long a second endpoint is waited for that does not have a block yet: some slots, which take 200 to 400 ms
    /// each. And how often it is checked meanwhile whether a poll is due.
    pub second_wait: Duration,
    pub second_wait_check: Duration,
    /// Between the tries of a call in the middle of a list of signatures.
    pub page_again: [Duration; 4],
}

impl Timings {
    pub const PRODUCTION: Timings = Timings {
        call_timeout: Duration::from_secs(15),
        connect_timeout: Duration::from_secs(5),
        cooldown: Doubling { first: Duration::from_millis(200), most: Duration::from_secs(10) },
        quarantine: Doubling { first: Duration::from_secs(1), most: Duration::from_secs(60) },
        unresponsive: Doubling { first: Duration::from_secs(45), most: Duration::from_secs(300) },
        last_resort_cooldown: Duration::from_millis(200),
        calm: Duration::from_secs(60),
        calm_after_quarantine: Duration::from_secs(600),
        grace: Duration::from_millis(300),
        first_cooled_down_max: Duration::from_secs(1),
        again_after: Duration::from_millis(200),
        pause: Duration::from_secs(1),
        pause_max: Duration::from_secs(300),
        gap: Doubling { first: Duration::from_millis(50), most: Duration::from_secs(1) },
        gap_least: Duration::from_millis(2),
        episode: Duration::from_secs(3),
        narrowing_every: Duration::from_secs(1),
        gap_calm: Duration::from_secs(60),
        second_wait: Duration::from_millis(1_500),
        second_wait_check: Duration::from_millis(100),
        page_again: [
            Duration::from_millis(250),
            Duration::from_secs(1),
            Duration::from_secs(3),
            Duration::from_secs(8),
        ],
    };

    /// For tests: a twentieth of [`Timings::PRODUCTION`], but what waits for an answer leaves a loaded machine time to
    /// give one.
    pub const SHORT: Timings = {
        let long = Timings::PRODUCTION;
        let [first, second, third, last] = long.page_again;
        Timings {
            call_timeout: Duration::from_secs(5),
            cooldown: long.cooldown.shortened(),
            quarantine: long.quarantine.shortened(),
            // In proportion to `call_timeout`.
            unresponsive: Doubling { first: Duration::from_secs(15), most: Duration::from_secs(100) },
            last_resort_cooldown: shortened(long.last_resort_cooldown),
            calm: shortened(long.calm),
            calm_after_quarantine: shortened(long.calm_after_quarantine),
            first_cooled_down_max: shortened(long.first_cooled_down_max),
            again_after: shortened(long.again_after),
            pause: shortened(long.pause),
            pause_max: shortened(long.pause_max),
            gap: long.gap.shortened(),
            gap_least: shortened(long.gap_least),
            episode: shortened(long.episode),
            narrowing_every: shortened(long.narrowing_every),
            gap_calm: shortened(long.gap_calm),
            second_wait: shortened(long.second_wait),
            second_wait_check: shortened(long.second_wait_check),
            page_again: [shortened(first), shortened(second), shortened(third), shortened(last)],
            ..long
        }
    };
}

impl Default for Timings {
    fn default() -> Self {
        Timings::PRODUCTION
    }
}

impl Doubling {
    pub(crate) fn retry(self) -> Retry {
        Retry::new(self.first, self.most)
    }

    const fn shortened(self) -> Self {
        Doubling { first: shortened(self.first), most: shortened(self.most) }
    }
}

const fn shortened(of: Duration) -> Duration {
    of.checked_div(20).expect("twenty is not zero")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn production_waits_for_so_long() {
        let expected = "Timings { call_timeout: 15s, connect_timeout: 5s, \
            cooldown: Doubling { first: 200ms, most: 10s }, quarantine: Doubling { first: 1s, most: 60s }, \
            unresponsive: Doubling { first: 45s, most: 300s }, last_resort_cooldown: 200ms, calm: 60s, \
            calm_after_quarantine: 600s, grace: 300ms, first_cooled_down_max: 1s, again_after: 200ms, pause: 1s, \
            pause_max: 300s, gap: Doubling { first: 50ms, most: 1s }, gap_least: 2ms, episode: 3s, \
            narrowing_every: 1s, gap_calm: 60s, second_wait: 1.5s, second_wait_check: 100ms, \
            page_again: [250ms, 1s, 3s, 8s] }";
        assert_eq!(format!("{:?}", Timings::PRODUCTION), expected);
        assert_eq!(Timings::default(), Timings::PRODUCTION);
    }

    #[test]
    fn short_waits_stand_to_each_other_as_those_of_production_do() {
        for timings in [Timings::PRODUCTION, Timings::SHORT] {
            let Timings { call_timeout, connect_timeout, cooldown, quarantine, unresponsive, .. } = timings;
            assert!(connect_timeout <= call_timeout && 2 * call_timeout < unresponsive.first);
            assert!(cooldown.most < timings.calm && quarantine.most < timings.calm_after_quarantine);
            assert!(timings.last_resort_cooldown < timings.first_cooled_down_max);
            assert!(timings.gap_least < timings.gap.first && timings.gap.most < timings.episode);
            assert!(timings.second_wait_check < timings.second_wait && timings.second_wait < call_timeout);
            assert!(timings.page_again.is_sorted());
        }
    }
}
