//! Alarms: conditions that are no failure yet. Finality that stands still while the chain goes on, and endpoints that do
//! not agree on it.
//!
//! An alarm comes by time and goes by itself. It changes nothing: what may be confirmed is decided elsewhere.

use std::time::Duration;

use landfall_chain::{Finality, Network, Tip};

use crate::time::Timestamp;

/// How long the node's own tag may stand still: it moves in steps of up to 7 minutes, and waits for L1 on a rollup.
const TAG_STALL: Duration = Duration::from_secs(30 * 60);
/// How long a count of confirmations may stand still, beside so many block times.
const COUNT_STALL: Duration = Duration::from_secs(10 * 60);
const COUNT_STALL_BLOCKS: u32 = 20;
/// How long too few endpoints may agree.
const WAITING_MAX: Duration = Duration::from_secs(10 * 60);

/// What a watcher warns of, and since when.
#[derive(Debug)]
pub(super) struct Alarms {
    stall_after: Duration,
    newest: Newest,
    /// Since when the chain has been going on while nothing more became final.
    moving_since: Option<Timestamp>,
    waiting: Option<(Timestamp, String)>,
}

/// The newest blocks that were told, and when each last advanced.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Newest {
    latest: u64,
    latest_at: Timestamp,
    finalized: Option<u64>,
    finalized_at: Timestamp,
}

/// How long the newest final block of this network may stand still before it is an alarm.
pub(super) fn stall_after(network: &Network) -> Duration {
    let Finality { rule, .. } = &network.finality;
    if rule.tag.is_some() || rule.l1_blocks > 0 {
        return TAG_STALL;
    }
    COUNT_STALL + Duration::from_millis(network.block_time_ms) * COUNT_STALL_BLOCKS
}

impl Alarms {
    pub(super) fn new(stall_after: Duration) -> Self {
        Alarms { stall_after, newest: Newest::default(), moving_since: None, waiting: None }
    }

    /// Takes up what a former watcher told, so that a restart ends no alarm.
    pub(super) fn take_up(&mut self, (latest, finalized, finalized_at): (Option<u64>, Option<u64>, Timestamp)) {
        let Some(latest) = latest else { return };
        self.newest = Newest { latest, latest_at: finalized_at, finalized, finalized_at };
        self.moving_since = (finalized_at != Timestamp::EPOCH).then_some(finalized_at);
    }

    /// Takes in where the chain ends now.
    pub(super) fn observe(&mut self, tip: &Tip, now: Timestamp) {
        let Newest { latest, latest_at, finalized, finalized_at } = &mut self.newest;
        let told = tip.finalized.map(|block| block.number);
        if told > *finalized || *finalized_at == Timestamp::EPOCH {
            (*finalized, *finalized_at) = (told.max(*finalized), now);
            self.moving_since = None;
        }
        if tip.latest.number > *latest {
            // A chain that stood still for as long was not expected to finalize anything meanwhile.
            let stood_still = now.since(*latest_at) > self.stall_after;
            (*latest, *latest_at) = (tip.latest.number, now);
            self.moving_since = self.moving_since.filter(|_| !stood_still).or(Some(now));
        }
        self.waiting = tip.waiting.clone().map(|text| match self.waiting.take() {
            Some((since, _)) => (since, text),
            None => (now, text),
        });
    }

    /// What is to be warned of now, in words that stay the same while it lasts.
    pub(super) fn texts(&self, now: Timestamp) -> Vec<String> {
        let mut texts = Vec::new();
        let Newest { finalized, finalized_at, .. } = self.newest;
        if self.moving_since.is_some_and(|since| now.since(since) > self.stall_after) {
            texts.push(match finalized {
                Some(number) => format!("finality stalled: block {number} is final since {finalized_at}"),
                None => format!("finality stalled: no block is final since {finalized_at}"),
            });
        }
        if let Some((since, text)) = self.waiting.as_ref().filter(|(since, _)| now.since(*since) > WAITING_MAX) {
            texts.push(format!("nothing newer is final since {since}: {text}"));
        }
        texts
    }

    /// When the newest final block last advanced.
    pub(super) fn finalized_at(&self) -> Timestamp {
        self.newest.finalized_at
    }
}

#[cfg(test)]
mod tests {
    use landfall_chain::{BlockHash, BlockRef, Chain, FinalityRule, Native, Tag};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(600);
    const MINUTE: Duration = Duration::from_secs(60);

    fn tip(latest: u64, finalized: Option<u64>) -> Tip {
        let block = |number| BlockRef { number, hash: BlockHash([0; 32]) };
        Tip { latest: block(latest), finalized: finalized.map(block), tiers: Vec::new(), waiting: None }
    }

    fn minute(number: u32) -> Timestamp {
        Timestamp(1_800_000_000_000_000).plus(MINUTE * number)
    }

    #[test]
    fn what_a_stall_is_depends_on_the_rule() {
        let network = |rule: FinalityRule, block_time_ms| Network {
            chain: Chain::BaseMainnet,
            chain_ref: String::new(),
            block_time_ms,
            finality: rule.into(),
            native: Native::TOP_LEVEL,
            assets: Vec::new(),
        };
        let both = FinalityRule { tag: Some(Tag::Safe), confirmations: 5, l1_blocks: 0 };
        for tagged in [FinalityRule::FINALIZED, FinalityRule::SAFE, both] {
            assert_eq!(stall_after(&network(tagged, 2_000)), Duration::from_secs(1_800));
        }
        let counted = network(FinalityRule::confirmations(12), 12_000);
        assert_eq!(stall_after(&counted), Duration::from_secs(600 + 240));
    }

    #[test]
    fn finality_stalls_when_the_chain_goes_on_without_it_and_not_when_the_chain_stands_still() {
        let mut alarms = Alarms::new(LIMIT);
        alarms.observe(&tip(100, Some(90)), minute(0));
        for number in 1..=10 {
            alarms.observe(&tip(100 + u64::from(number), Some(90)), minute(number));
            assert!(alarms.texts(minute(number)).is_empty(), "minute {number}");
        }
        alarms.observe(&tip(112, Some(90)), minute(11));
        assert_eq!(alarms.texts(minute(11)), [format!("finality stalled: block 90 is final since {}", minute(0))]);
        alarms.observe(&tip(112, Some(91)), minute(13));
        assert!(alarms.texts(minute(13)).is_empty(), "it goes by itself");

        // The whole chain stands still for an hour, then goes on: finality gets its time from there.
        alarms.observe(&tip(112, Some(91)), minute(60));
        assert!(alarms.texts(minute(60)).is_empty());
        alarms.observe(&tip(113, Some(91)), minute(73));
        assert!(alarms.texts(minute(73)).is_empty());
        alarms.observe(&tip(114, Some(91)), minute(80));
        alarms.observe(&tip(115, Some(91)), minute(84));
        assert_eq!(alarms.texts(minute(84)).len(), 1);
    }

    #[test]
    fn a_chain_on_which_nothing_ever_becomes_final_is_told_too() {
        let mut alarms = Alarms::new(LIMIT);
        alarms.observe(&tip(1, None), minute(0));
        alarms.observe(&tip(2, None), minute(6));
        alarms.observe(&tip(3, None), minute(12));
        assert_eq!(alarms.texts(minute(12)), [format!("finality stalled: no block is final since {}", minute(0))]);
    }

    #[test]
    fn a_restart_ends_no_alarm() {
        let mut alarms = Alarms::new(LIMIT);
        alarms.take_up((Some(100), Some(90), minute(0)));
        alarms.observe(&tip(101, Some(90)), minute(8));
        assert!(alarms.texts(minute(9)).is_empty());
        alarms.observe(&tip(102, Some(90)), minute(11));
        assert_eq!(alarms.texts(minute(11)).len(), 1);
        assert_eq!(alarms.finalized_at(), minute(0));
    }

    #[test]
    fn too_few_endpoints_that_agree_are_an_alarm_after_ten_minutes() {
        let mut alarms = Alarms::new(LIMIT * 6);
        let waiting = |text: &str| Tip { waiting: Some(text.to_owned()), ..tip(100, Some(90)) };
        alarms.observe(&waiting("1 of 2 agree"), minute(0));
        alarms.observe(&waiting("0 of 2 agree"), minute(10));
        assert!(alarms.texts(minute(10)).is_empty());
        assert_eq!(alarms.texts(minute(11)), [format!("nothing newer is final since {}: 0 of 2 agree", minute(0))]);
        alarms.observe(&tip(100, Some(90)), minute(12));
        assert!(alarms.texts(minute(30)).is_empty());
    }
}
