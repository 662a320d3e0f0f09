//! Alarms: conditions that are no failure yet.
//! - The newest block stays the same.
//! - Finality stands still while the chain goes on.
//! - Endpoints do not agree on what is final, or follow different branches.
//! - An endpoint refuses a call until a person acts.
//! - An endpoint that may know a missing deposit cannot be asked.
//!
//! An alarm comes by time and goes by itself. It changes nothing: what may be confirmed is decided elsewhere.

use std::collections::BTreeMap;
use std::time::Duration;

use landfall_chain::{BlockRef, EndpointStatus, Fate, Finality, Network, Refused, Tip};

use crate::deposit::Deposit;
use crate::store::status::LastStatus;
use crate::time::Timestamp;
use crate::watcher::settle::missing::unanswered;

/// How long the node's own tag may stand still: it moves in steps of up to 7 minutes, and waits for L1 on a rollup.
const TAG_STALL: Duration = Duration::from_secs(30 * 60);
/// How long a count of confirmations may stand still, in addition to so many block times.
const COUNT_STALL: Duration = Duration::from_secs(10 * 60);
const COUNT_STALL_BLOCKS: u32 = 20;
/// How long the newest block may stay the same, and how many block times at least: slots without a block are usual.
const BLOCK_STALL: Duration = Duration::from_secs(5 * 60);
const BLOCK_STALL_BLOCKS: u32 = 25;
/// How the alarm's text begins; a restart finds it by this.
const NO_NEWER: &str = "no newer block than ";
/// How long too few endpoints may agree.
const WAITING_MAX: Duration = Duration::from_secs(10 * 60);
/// For how long an endpoint must keep refusing, and after how long without a refusal its alarm ends.
const REFUSED_MAX: Duration = Duration::from_secs(5 * 60);
const REFUSED_KEPT: Duration = Duration::from_secs(60 * 60);
/// How long endpoints may follow different branches.
const FORKED_MAX: Duration = Duration::from_secs(60);

/// What a watcher warns of, and since when.
#[derive(Debug)]
pub(in crate::watcher) struct Alarms {
    stall_after: Duration,
    /// `None` where blocks come on demand.
    still_after: Option<Duration>,
    newest: Newest,
    /// When the source last reported the end of the chain.
    reported_at: Option<Timestamp>,
    /// The alarm from before a restart, until a newer block is reported.
    stood_still: Option<String>,
    /// Since when the chain has been going on while nothing more became final.
    moving_since: Option<Timestamp>,
    waiting: Option<(Timestamp, String)>,
    forked: Option<(Timestamp, String)>,
    /// Since when connected blocks could not be cross-checked, and why.
    unseen: Option<(Timestamp, String)>,
    /// Since when a final block is not shown as it must be while its deposits wait; which block, and why.
    withheld: Option<(Timestamp, BlockRef, String)>,
    /// A deposit in no block that endpoints may know which could not be asked. Of several, the one that has been
    /// missing longest past its grace.
    unanswered: Option<Unanswered>,
    /// By endpoint and method.
    refused: BTreeMap<(String, &'static str), Refusing>,
}

/// An endpoint refuses a call until a person does something about it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Refusing {
    since: Timestamp,
    last_at: Timestamp,
    times: u64,
    /// The reason given the first time.
    why: String,
}

/// A missing deposit that only endpoints which could not be asked may know. `since` is when it was first missing; `why`
/// is the first reason.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Unanswered {
    since: Timestamp,
    deposit: Deposit,
    endpoints: String,
    why: String,
}

/// The newest blocks that were reported, and when each last advanced.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Newest {
    latest: u64,
    latest_at: Timestamp,
    finalized: Option<u64>,
    finalized_at: Timestamp,
}

/// How long the newest final block of this network may stand still before it is an alarm.
pub(in crate::watcher) fn stall_after(network: &Network) -> Duration {
    let Finality { rule, .. } = &network.finality;
    if rule.tag.is_some() || rule.l1_blocks > 0 {
        return TAG_STALL;
    }
    COUNT_STALL + Duration::from_millis(network.block_time_ms) * COUNT_STALL_BLOCKS
}

/// How long the newest block of this network may stay the same before it is an alarm.
pub fn block_stall(network: &Network) -> Duration {
    BLOCK_STALL.max(Duration::from_millis(network.block_time_ms) * BLOCK_STALL_BLOCKS)
}

impl Alarms {
    pub(in crate::watcher) fn new(stall_after: Duration, still_after: Option<Duration>) -> Self {
        Alarms {
            stall_after,
            still_after,
            newest: Newest::default(),
            reported_at: None,
            stood_still: None,
            moving_since: None,
            waiting: None,
            forked: None,
            unseen: None,
            withheld: None,
            unanswered: None,
            refused: BTreeMap::new(),
        }
    }

    /// Loads what an earlier watcher reported, so that a restart ends no alarm.
    pub(in crate::watcher) fn resume(&mut self, reported: LastStatus) {
        let LastStatus { latest: Some(latest), finalized, finalized_at, heartbeat_at, alarms } = reported else {
            return;
        };
        self.newest = Newest { latest, latest_at: heartbeat_at, finalized, finalized_at };
        let may_stand = self.still_after.is_some();
        self.stood_still = alarms.into_iter().find(|text| may_stand && text.starts_with(NO_NEWER));
        self.moving_since = (finalized_at != Timestamp::EPOCH).then_some(finalized_at);
    }

    /// Records where the chain ends now.
    pub(in crate::watcher) fn observe(&mut self, tip: &Tip, now: Timestamp) {
        let Newest { latest, latest_at, finalized, finalized_at } = &mut self.newest;
        let reported = tip.finalized.map(|block| block.number);
        if reported > *finalized || *finalized_at == Timestamp::EPOCH {
            (*finalized, *finalized_at) = (reported.max(*finalized), now);
            self.moving_since = None;
            // Something newer is final: an endpoint that is always a block behind starts its wait anew.
            self.waiting = None;
        }
        self.reported_at = Some(now);
        if *latest_at == Timestamp::EPOCH {
            *latest_at = now;
        }
        if tip.latest.number > *latest {
            self.stood_still = None;
            // A chain that stood still for so long could not finalize anything meanwhile.
            let stood_still = now.since(*latest_at) > self.stall_after;
            (*latest, *latest_at) = (tip.latest.number, now);
            self.moving_since = self.moving_since.filter(|_| !stood_still).or(Some(now));
        }
        self.waiting = tip.waiting.clone().map(|text| match self.waiting.take() {
            Some((since, _)) => (since, text),
            None => (now, text),
        });
        self.forked = tip.forked.clone().map(|text| self.forked.take().unwrap_or((now, text)));
    }

    /// Records a cross-check of connected blocks; `in_vain` says why it failed, and the first reason is kept.
    pub(in crate::watcher) fn looked(&mut self, in_vain: Option<String>, now: Timestamp) {
        self.unseen = in_vain.map(|text| self.unseen.take().unwrap_or((now, text)));
    }

    /// Records the final block whose deposits have waited longest because it is not shown as it must be, or that there
    /// is none.
    pub(in crate::watcher) fn withheld(&mut self, oldest: Option<(Timestamp, BlockRef, String)>) {
        self.withheld = oldest;
    }

    /// Records that a deposit in no block was looked for. `missing` is since when, if its grace is over.
    pub(in crate::watcher) fn sought(&mut self, deposit: &Deposit, missing: Option<Timestamp>, fate: &Fate) {
        let is_same = |known: &mut Unanswered| known.deposit.id == deposit.id;
        let (Fate::Unanswered { endpoints, why }, Some(since)) = (fate, missing) else {
            self.unanswered.take_if(is_same);
            return;
        };
        self.unanswered.take_if(|known| is_same(known) && known.endpoints != *endpoints);
        if self.unanswered.as_ref().is_none_or(|known| since < known.since) {
            let (deposit, endpoints, why) = (deposit.clone(), endpoints.clone(), why.clone());
            self.unanswered = Some(Unanswered { since, deposit, endpoints, why });
        }
    }

    /// The deposit that the alarm names. It may have been found in a block since.
    pub(in crate::watcher) fn unanswered(&self) -> Option<&Deposit> {
        self.unanswered.as_ref().map(|unanswered| &unanswered.deposit)
    }

    /// Whether that deposit is still missing; if not, its alarm ends.
    pub(in crate::watcher) fn keep_unanswered(&mut self, is_missing: bool) {
        self.unanswered.take_if(|_| !is_missing);
    }

    /// The chain is connected up to `at`, and `finalized` is final: a report far above that was not its end.
    pub(in crate::watcher) fn reached(&mut self, at: &BlockRef, finalized: Option<&BlockRef>, tip: &Tip) {
        let Newest { latest, finalized: final_number, .. } = &mut self.newest;
        *latest = (*latest).min(tip.latest.number.max(at.number));
        if let Some(reported) = tip.finalized {
            let known = finalized.map_or(reported.number, |known| known.number.max(reported.number));
            *final_number = (*final_number).min(Some(known));
        }
    }

    /// Records what endpoints refuse now.
    pub(in crate::watcher) fn responses(&mut self, endpoints: &[EndpointStatus], now: Timestamp) {
        let mut before = std::mem::take(&mut self.refused);
        for endpoint in endpoints {
            for (method, Refused { why, times }) in &endpoint.refused {
                let key = (endpoint.id.clone(), *method);
                let new = || Refusing { since: now, last_at: now, times: *times, why: why.clone() };
                let mut refusing = before.remove(&key).unwrap_or_else(new);
                if refusing.times != *times {
                    (refusing.times, refusing.last_at) = (*times, now);
                }
                self.refused.insert(key, refusing);
            }
        }
    }

    /// The blocks above a fork point were disconnected: the chain goes on from where it ends now.
    pub(in crate::watcher) fn taken_back(&mut self, tip: &Tip, now: Timestamp) {
        (self.newest.latest, self.newest.latest_at) = (tip.latest.number, now);
        self.stood_still = None;
    }

    /// Since when the source has reported no newer block, if that is too long. A source that reports nothing at all is
    /// another failure.
    pub(in crate::watcher) fn still_since(&self) -> Option<Timestamp> {
        let (reported_at, latest_at) = (self.reported_at?, self.newest.latest_at);
        let is_late = self.still_after.is_some_and(|limit| reported_at.since(latest_at) > limit);
        (self.stood_still.is_some() || is_late).then_some(latest_at)
    }

    /// The alarms that are on, in texts that stay the same while they last.
    pub(in crate::watcher) fn texts(&self, now: Timestamp) -> Vec<String> {
        let Newest { latest, finalized, finalized_at, .. } = self.newest;
        let still = self.still_since().map(|since| format!("{NO_NEWER}{latest} is told since {since}"));
        let mut texts: Vec<_> = self.stood_still.clone().or(still).into_iter().collect();
        if self.moving_since.is_some_and(|since| now.since(since) > self.stall_after) {
            texts.push(match finalized {
                Some(number) => format!("finality stalled: block {number} is final since {finalized_at}"),
                None => format!("finality stalled: no block is final since {finalized_at}"),
            });
        }
        if let Some((since, text)) = self.forked.as_ref().filter(|(since, _)| now.since(*since) > FORKED_MAX) {
            texts.push(format!("since {since}, {text}"));
        }
        for ((endpoint, method), Refusing { since, last_at, why, .. }) in &self.refused {
            // One refusal is no proof that it will go on.
            if last_at.since(*since) > REFUSED_MAX && now.since(*last_at) <= REFUSED_KEPT {
                texts.push(format!("since {since}, endpoint {endpoint} refuses {method}: {why}"));
            }
        }
        if let Some((since, block, why)) = self.withheld.as_ref().filter(|(since, ..)| now.since(*since) > WAITING_MAX)
        {
            texts.push(format!("since {since}, the deposits of block {block}, which is final, wait: {why}"));
        }
        if let Some(Unanswered { since, deposit, why, .. }) = &self.unanswered {
            texts.push(format!("since {since}, {}", unanswered(deposit, why)));
        }
        let waits = [&self.waiting, &self.unseen].into_iter().flatten();
        for (since, text) in waits.filter(|(since, _)| now.since(*since) > WAITING_MAX) {
            texts.push(format!("nothing newer is final since {since}: {text}"));
        }
        texts
    }

    /// When the newest final block last advanced.
    pub(in crate::watcher) fn finalized_at(&self) -> Timestamp {
        self.newest.finalized_at
    }
}

#[cfg(test)]
mod tests {
    use landfall_chain::{BlockHash, Chain, Endpoints, FinalityRule, Native, Sending, Tag};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(600);
    const MINUTE: Duration = Duration::from_secs(60);

    fn tip(latest: u64, finalized: Option<u64>) -> Tip {
        let block = |number| BlockRef { number, hash: BlockHash([0; 32]) };
        Tip { latest: block(latest), finalized: finalized.map(block), tiers: Vec::new(), waiting: None, forked: None }
    }

    /// Block 100 and, since minute 0, block 90.
    fn reported(heartbeat_at: Timestamp, alarms: &[&str]) -> LastStatus {
        let alarms = alarms.iter().copied().map(str::to_owned).collect();
        LastStatus { latest: Some(100), finalized: Some(90), finalized_at: minute(0), heartbeat_at, alarms }
    }

    fn minute(number: u32) -> Timestamp {
        Timestamp(1_800_000_000_000_000).plus(MINUTE * number)
    }

    #[test]
    fn what_cannot_be_looked_at_once_more_is_an_alarm_after_ten_minutes() {
        let mut alarms = Alarms::new(10 * LIMIT, None);
        let mut texts = |why: Option<&str>, minutes: u32| {
            let now = minute(minutes);
            alarms.observe(&tip(100, Some(90)), now);
            alarms.looked(why.map(str::to_owned), now);
            alarms.texts(now)
        };
        assert!(texts(Some("one"), 0).is_empty() && texts(Some("another"), 10).is_empty());
        assert_eq!(texts(Some("another"), 11), [format!("nothing newer is final since {}: one", minute(0))]);
        assert!(texts(None, 12).is_empty() && texts(Some("again"), 13).is_empty());
    }

    #[test]
    fn a_final_block_that_is_not_shown_as_it_must_be_is_an_alarm_after_ten_minutes() {
        let mut alarms = Alarms::new(10 * LIMIT, None);
        let block = tip(7, None).latest;
        let mut texts = |since: Option<u32>, minutes: u32| {
            alarms.withheld(since.map(|since| (minute(since), block, "why".to_owned())));
            alarms.texts(minute(minutes))
        };
        assert!(texts(Some(0), 0).is_empty() && texts(Some(0), 10).is_empty());
        let reported = format!("since {}, the deposits of block {block}, which is final, wait: why", minute(0));
        assert_eq!(texts(Some(0), 11), [reported]);
        assert!(texts(None, 12).is_empty() && texts(Some(12), 13).is_empty());
    }

    #[test]
    fn an_end_that_was_reported_falsely_is_none_to_wait_for() {
        let mut alarms = Alarms::new(LIMIT, Some(LIMIT));
        let cursor = |number| tip(number, None).latest;
        alarms.observe(&tip(7_000, Some(6_990)), minute(0));
        for number in 1..40 {
            let reported = tip(100 + u64::from(number), Some(90 + u64::from(number)));
            alarms.observe(&reported, minute(number));
            alarms.reached(&reported.latest, Some(&cursor(90)), &reported);
            assert_eq!((alarms.texts(minute(number)), alarms.still_since()), (Vec::new(), None));
        }
        // Endpoints that are one block apart and stand still are not a chain that goes on.
        for number in 40..60 {
            let reported = tip(139 - u64::from(number % 2), Some(129));
            alarms.observe(&reported, minute(number));
            alarms.reached(&cursor(139), Some(&cursor(129)), &reported);
        }
        assert_eq!(alarms.still_since(), Some(minute(39)));
    }

    #[test]
    fn an_endpoint_that_goes_on_refusing_for_five_minutes_is_an_alarm_until_it_answers_or_is_not_asked_any_more() {
        let endpoints = Endpoints::new(["a".to_owned(), "b".to_owned()]);
        let mut alarms = Alarms::new(10 * LIMIT, None);
        let mut texts = |minutes: u32| {
            alarms.responses(&endpoints.snapshot(), minute(minutes));
            alarms.texts(minute(minutes))
        };
        endpoints.refuses(0, "getBlock", "by chance");
        endpoints.refuses(1, "getBlock", "why");
        assert!(texts(0).is_empty() && texts(5).is_empty());
        endpoints.refuses(1, "getBlock", "another word");
        let reported = [format!("since {}, endpoint b refuses getBlock: why", minute(0))];
        assert_eq!((texts(6), texts(66)), (reported.to_vec(), reported.to_vec()));
        assert!(texts(67).is_empty(), "nobody has asked it for an hour");
        endpoints.refuses(1, "getBlock", "why");
        assert_eq!(texts(68), reported);
        endpoints.serves(1, "getBlock");
        assert!(texts(69).is_empty());
        endpoints.refuses(1, "getBlock", "again");
        assert!(texts(70).is_empty(), "it begins anew");
    }

    #[test]
    fn endpoints_that_follow_different_branches_are_an_alarm_after_a_minute() {
        let mut alarms = Alarms::new(10 * LIMIT, None);
        let mut texts = |forked: Option<&str>, seconds: u32| {
            let now = minute(0).plus(Duration::from_secs(1) * seconds);
            alarms.observe(&Tip { forked: forked.map(str::to_owned), ..tip(100, Some(90)) }, now);
            alarms.texts(now)
        };
        assert!(texts(Some("one"), 0).is_empty() && texts(Some("another"), 60).is_empty());
        assert_eq!(texts(Some("another"), 61), [format!("since {}, one", minute(0))]);
        assert!(texts(None, 62).is_empty() && texts(Some("again"), 63).is_empty());
    }

    #[test]
    fn what_a_stall_is_depends_on_the_rule() {
        let network = |rule: FinalityRule, block_time_ms| Network {
            chain: Chain::BaseMainnet,
            chain_ref: String::new(),
            block_time_ms,
            finality: rule.into(),
            native: Native::TOP_LEVEL,
            wrapped: None,
            delegates: Vec::new(),
            sending: Sending::usual(30_000),
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
    fn how_long_the_newest_block_may_stay_the_same_depends_on_the_block_time() {
        let of = |block_time_ms| {
            block_stall(&Network {
                chain: Chain::BaseMainnet,
                chain_ref: String::new(),
                block_time_ms,
                finality: FinalityRule::FINALIZED.into(),
                native: Native::TOP_LEVEL,
                wrapped: None,
                delegates: Vec::new(),
                sending: Sending::usual(30_000),
                assets: Vec::new(),
            })
        };
        assert_eq!([of(300), of(2_000), of(12_000)], [5 * MINUTE; 3]);
        assert_eq!(of(60_000), 25 * MINUTE);
    }

    #[test]
    fn finality_stalls_when_the_chain_goes_on_without_it_and_not_when_the_chain_stands_still() {
        let mut alarms = Alarms::new(LIMIT, None);
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
    fn a_chain_on_which_nothing_ever_becomes_final_is_reported_too() {
        let mut alarms = Alarms::new(LIMIT, None);
        alarms.observe(&tip(1, None), minute(0));
        alarms.observe(&tip(2, None), minute(6));
        alarms.observe(&tip(3, None), minute(12));
        assert_eq!(alarms.texts(minute(12)), [format!("finality stalled: no block is final since {}", minute(0))]);
    }

    #[test]
    fn a_restart_ends_no_alarm() {
        let mut alarms = Alarms::new(LIMIT, None);
        alarms.resume(reported(minute(7), &[]));
        alarms.observe(&tip(101, Some(90)), minute(8));
        assert!(alarms.texts(minute(9)).is_empty());
        alarms.observe(&tip(102, Some(90)), minute(11));
        assert_eq!(alarms.texts(minute(11)).len(), 1);
        assert_eq!(alarms.finalized_at(), minute(0));

        // One that already stood still for too long raises the alarm at once.
        let mut alarms = Alarms::new(LIMIT, None);
        alarms.resume(reported(minute(60), &[]));
        alarms.observe(&tip(101, Some(90)), minute(61));
        assert_eq!(alarms.texts(minute(61)).len(), 1);
    }

    #[test]
    fn a_newest_block_that_stays_the_same_is_reported_until_there_is_a_newer_one() {
        let mut alarms = Alarms::new(LIMIT * 100, Some(5 * MINUTE));
        // No lower than what was reported before: a lagging endpoint answers first for a while.
        for (latest, at) in [(0, 0), (7, 1), (6, 5), (7, 6)] {
            alarms.observe(&tip(latest, None), minute(at));
            assert!(alarms.texts(minute(at)).is_empty(), "minute {at}");
            assert_eq!(alarms.still_since(), None);
        }
        assert!(alarms.texts(minute(90)).is_empty(), "nobody tells anything: another failure");
        for (latest, at) in [(7, 7), (6, 90)] {
            alarms.observe(&tip(latest, None), minute(at));
            assert_eq!(alarms.texts(minute(at)), [format!("no newer block than 7 is told since {}", minute(1))]);
            assert_eq!(alarms.still_since(), Some(minute(1)));
        }
        alarms.observe(&tip(8, None), minute(91));
        assert!(alarms.texts(minute(91)).is_empty());
        alarms.observe(&tip(8, None), minute(97));
        assert_eq!(alarms.texts(minute(97)).len(), 1);
        alarms.taken_back(&tip(5, None), minute(98));
        alarms.observe(&tip(5, None), minute(99));
        assert!(alarms.texts(minute(99)).is_empty(), "the chain was replaced by one that ends lower");

        let mut on_demand = Alarms::new(LIMIT * 1_000, None);
        for at in [0, 900] {
            on_demand.observe(&tip(7, None), minute(at));
            assert!(on_demand.texts(minute(at)).is_empty());
        }
    }

    #[test]
    fn a_restart_does_not_make_the_newest_block_newer() {
        let said = format!("no newer block than 100 is told since {}", minute(0));
        let other = "finality stalled: ..";
        let mut alarms = Alarms::new(LIMIT * 100, Some(5 * MINUTE));
        alarms.resume(reported(minute(9), &[other, &said]));
        for (latest, at) in [(100, 9), (20, 10)] {
            alarms.observe(&tip(latest, None), minute(at));
            assert_eq!(alarms.texts(minute(at)).as_slice(), std::slice::from_ref(&said));
            assert_eq!(alarms.still_since(), Some(minute(9)));
        }
        alarms.observe(&tip(101, None), minute(11));
        assert!(alarms.texts(minute(11)).is_empty());

        // It froze shortly before, or while no watcher ran.
        let mut alarms = Alarms::new(LIMIT * 100, Some(5 * MINUTE));
        alarms.resume(reported(minute(9), &[]));
        alarms.observe(&tip(100, None), minute(14));
        assert!(alarms.texts(minute(14)).is_empty());
        alarms.observe(&tip(100, None), minute(15));
        assert_eq!(alarms.texts(minute(15)), [format!("no newer block than 100 is told since {}", minute(9))]);

        // The key was set meanwhile.
        let mut alarms = Alarms::new(LIMIT * 100, None);
        alarms.resume(reported(minute(9), &[&said]));
        alarms.observe(&tip(100, None), minute(15));
        assert!(alarms.texts(minute(15)).is_empty());
    }

    #[test]
    fn too_few_endpoints_that_agree_are_an_alarm_after_ten_minutes() {
        let mut alarms = Alarms::new(LIMIT * 6, None);
        let waiting = |text: &str| Tip { waiting: Some(text.to_owned()), ..tip(100, Some(90)) };
        alarms.observe(&waiting("1 of 2 agree"), minute(0));
        alarms.observe(&waiting("0 of 2 agree"), minute(10));
        assert!(alarms.texts(minute(10)).is_empty());
        assert_eq!(alarms.texts(minute(11)), [format!("nothing newer is final since {}: 0 of 2 agree", minute(0))]);
        alarms.observe(&tip(100, Some(90)), minute(12));
        assert!(alarms.texts(minute(30)).is_empty());
    }

    #[test]
    fn while_newer_blocks_become_final_who_is_behind_is_no_alarm() {
        let mut alarms = Alarms::new(LIMIT * 6, None);
        let behind = |at: u32| {
            let number = u64::from(at);
            Tip { waiting: Some("1 of 2".to_owned()), ..tip(100 + number, Some(90 + number)) }
        };
        for at in 0..30 {
            alarms.observe(&behind(at), minute(at));
            assert!(alarms.texts(minute(at)).is_empty());
        }
        alarms.observe(&behind(29), minute(39));
        assert!(alarms.texts(minute(39)).is_empty());
        assert_eq!(alarms.texts(minute(40)), [format!("nothing newer is final since {}: 1 of 2", minute(29))]);
    }
}
