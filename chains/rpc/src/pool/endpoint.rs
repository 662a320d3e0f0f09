//! One endpoint: its own head, and whether it is of use now.
//!
//! Promises: it is asked for blocks only after it reported the network's chain id. A false report and a wrong chain
//! put it into quarantine, which only a sound poll on the agreed chain ends. A failure starts a cool-down that grows,
//! and is shorter while too few endpoints remain. An endpoint that times out becomes unresponsive: nobody waits for it
//! who has others. Who is asked when is `pool`'s; what it is asked is `calls`'s.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use landfall_chain::{BlockHash, BlockRef, Chain, EndpointState, Endpoints, Retry};
use tokio::time::Instant;

use crate::dialect::{Dialect, Fault, HeadReport};
use crate::http::Rpc;
use crate::pool::learnt::Learnt;
use crate::pool::pace::Pace;
use crate::timings::Timings;

/// A quarantine is divided by this while fewer endpoints have a vote than must agree: 1 s becomes 200 ms, 60 s become
/// 12 s.
const SHORTAGE_DIVISOR: u32 = 5;
/// How many polls in a row must show the same that is too new: one damaged answer does not count.
const NEWER_POLLS: u32 = 3;
/// For how long an endpoint that showed the agreed block is not asked for it again, where each hash is a request.
/// Longer than a report of what is final is kept on Solana (`poll_cache`), after which another block is agreed on.
const SHOWN_FOR: Duration = Duration::from_secs(15);
/// How often an endpoint must report its chain id again: a URL may be pointed to another node at any time.
const CHAIN_ID_EVERY: Duration = Duration::from_secs(3_600);

/// One endpoint and its place in the statuses.
pub struct Endpoint<D: Dialect> {
    pub chain: Chain,
    /// Its place in the configuration and in the statuses.
    pub index: usize,
    /// Host and port; `#2` where two share them.
    pub id: String,
    pub timings: Timings,
    pub(crate) learnt: Learnt,
    pub(crate) pace: Pace,
    /// The pace of what is asked aside.
    pub(crate) pace_aside: Pace,
    pub(crate) rpc: Rpc,
    statuses: Endpoints,
    standing: Mutex<Standing<D>>,
    me: Weak<Self>,
}

/// What is known of an endpoint now.
struct Standing<D: Dialect> {
    /// When it last reported the chain id of the network.
    chain_polled_at: Option<Instant>,
    said: Option<Said>,
    /// The agreed block that it showed last, and when it was asked for it.
    shown: Option<(BlockRef, Instant)>,
    memory: D::Memory,
    trouble: Option<Trouble>,
    cools_down: Retry,
    quarantines: Retry,
    timeouts_in_a_row: Retry,
    unresponsive: Option<Unresponsive>,
    failed_at: Option<Instant>,
    /// A poll is under way.
    polled: bool,
    /// Its last poll showed what only a newer version can prove: the failure, what it is, and how often in a row.
    newer: Option<(D::Error, String, u32)>,
    /// How many polls it has answered.
    answers: u64,
    /// Its last poll was answered within the time that others wait for it.
    prompt: bool,
    /// Moving average of a request; `None` before the first one.
    latency_ms: Option<u64>,
    /// What an operator should know of it while it is healthy: how it came back, what was missing last, and what no
    /// other endpoint checks.
    note: String,
    not_found: String,
    unchecked: &'static str,
}

/// What it reported in its last good poll.
pub(crate) struct Said {
    pub(crate) latest: BlockRef,
    /// The newest final number by each rule.
    pub(crate) finals: Vec<Option<u64>>,
    pub(crate) hashes: BTreeMap<u64, BlockHash>,
    /// When it was asked.
    at: Instant,
}

/// Why an endpoint is not asked.
#[derive(Clone, Copy)]
struct Trouble {
    quarantined: bool,
    wrong_chain: bool,
    since: Instant,
    /// When its cool-down began, and how long that is while enough endpoints remain.
    from: Instant,
    cooldown: Duration,
}

/// It timed out.
#[derive(Clone, Debug)]
struct Unresponsive {
    why: String,
    /// Until when it counts as unresponsive, and for how long that was to be.
    until: Instant,
    cooldown: Duration,
}

/// What is missing while an endpoint cools down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shortage {
    Nothing,
    /// Fewer have a vote than must agree on what is final.
    Votes,
    /// No endpoint can be read from.
    Everybody,
}

/// How useful an endpoint is now, the best first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Availability {
    /// Healthy.
    Good,
    /// It failed, and its cool-down is over.
    Again,
    /// It failed a moment ago.
    CoolingDown,
    /// It refused requests for their rate, or has not reported its chain id, or is in quarantine.
    None,
}

impl<D: Dialect> Endpoint<D> {
    pub(crate) fn new(
        chain: Chain,
        index: usize,
        id: String,
        rpc: Rpc,
        statuses: Endpoints,
        timings: Timings,
    ) -> Arc<Self> {
        let standing = Mutex::new(Standing {
            chain_polled_at: None,
            said: None,
            shown: None,
            memory: D::Memory::default(),
            trouble: None,
            cools_down: timings.cooldown.retry(),
            quarantines: timings.quarantine.retry(),
            timeouts_in_a_row: timings.unresponsive.retry(),
            unresponsive: None,
            failed_at: None,
            polled: false,
            newer: None,
            answers: 0,
            prompt: true,
            latency_ms: None,
            note: String::new(),
            not_found: String::new(),
            unchecked: "",
        });
        let learnt = Learnt::new(D::BATCH_MAX, timings);
        let (pace, pace_aside) = (Pace::new(timings), Pace::new(timings));
        Arc::new_cyclic(|me| {
            let me = Weak::clone(me);
            Endpoint { chain, index, id, timings, learnt, pace, pace_aside, rpc, statuses, standing, me }
        })
    }

    /// The same endpoint, for a caller who must own it.
    pub fn share(&self) -> Arc<Self> {
        self.me.upgrade().expect("`new` makes it inside of an Arc, which whoever calls this holds")
    }

    /// Its own newest block, if it reported one.
    pub fn head(&self) -> Option<u64> {
        self.lock().said.as_ref().map(|said| said.latest.number)
    }

    /// Its own newest block, while that is below `number` and the endpoint is healthy: then it need not be asked for
    /// `number`.
    pub fn head_below(&self, number: u64) -> Option<u64> {
        self.vote(Instant::now(), |said| said.latest.number).filter(|head| *head < number)
    }

    /// A request took so long.
    pub(crate) fn took(&self, took: Duration) {
        let took = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let mut standing = self.lock();
        standing.latency_ms = Some(standing.latency_ms.map_or(took, |before| (before * 7 + took) / 8));
    }

    pub(crate) fn latency_ms(&self) -> Option<u64> {
        self.lock().latency_ms
    }

    /// How useful it is now.
    pub(crate) fn standing(&self, now: Instant) -> Availability {
        let standing = self.lock();
        if standing.chain_polled_at.is_none() || self.learnt.cooldown(now).is_some() {
            return Availability::None;
        }
        match standing.trouble {
            None => Availability::Good,
            Some(trouble) if trouble.quarantined => Availability::None,
            Some(trouble) if trouble.until(Shortage::Nothing, &self.timings) <= now => Availability::Again,
            Some(_) => Availability::CoolingDown,
        }
    }

    pub(crate) fn is_of_wrong_chain(&self) -> bool {
        self.lock().trouble.is_some_and(|trouble| trouble.wrong_chain)
    }

    /// Whether it cannot be asked now, but would be believed.
    pub(crate) fn response_would_count(&self, now: Instant) -> bool {
        self.standing(now) == Availability::None && !self.is_quarantined()
    }

    /// What it reported in its last poll, while it is healthy.
    pub(crate) fn vote<T>(&self, now: Instant, read: impl FnOnce(&Said) -> T) -> Option<T> {
        (self.standing(now) == Availability::Good).then_some(())?;
        self.lock().said.as_ref().map(read)
    }

    /// Takes the right to poll it, when it is due: one poll at a time, none while it cools down.
    pub(crate) fn begin_poll(&self, shortage: Shortage, now: Instant) -> bool {
        let is_due = self.cools_down_until(shortage).is_none_or(|until| until <= now);
        let mut standing = self.lock();
        let begins = is_due && !standing.polled;
        standing.polled |= begins;
        begins
    }

    /// Until when it is not polled; `None` when it does not cool down.
    pub(crate) fn cools_down_until(&self, shortage: Shortage) -> Option<Instant> {
        let of_trouble = self.lock().trouble.map(|trouble| trouble.until(shortage, &self.timings));
        let last_resort = (shortage == Shortage::Everybody).then_some(self.timings.last_resort_cooldown);
        of_trouble.max(self.learnt.cools_down_until(last_resort))
    }

    pub(crate) fn end_poll(&self) {
        self.lock().polled = false;
    }

    pub(crate) fn is_polled(&self) -> bool {
        self.lock().polled
    }

    pub(crate) fn is_prompt(&self) -> bool {
        self.lock().prompt
    }

    pub(crate) fn set_prompt(&self, prompt: bool) {
        self.lock().prompt = prompt;
    }

    pub(crate) fn answers(&self) -> u64 {
        self.lock().answers
    }

    /// Whether it has shown `agreed` a moment ago, and need not show it again.
    pub(crate) fn has_shown(&self, agreed: BlockRef, now: Instant) -> bool {
        let mut standing = self.lock();
        let said = standing.said.as_ref().filter(|said| said.hashes.get(&agreed.number) == Some(&agreed.hash));
        if let Some(at) = said.map(|said| said.at) {
            standing.shown = Some((agreed, at));
        }
        standing.shown.is_some_and(|(block, at)| block == agreed && now.duration_since(at) < SHOWN_FOR)
    }

    /// Whether its next poll asks for its chain id: before the first answer, in quarantine, and once an hour.
    pub(crate) fn must_prove_its_chain(&self, now: Instant) -> bool {
        let standing = self.lock();
        standing.chain_polled_at.is_none_or(|polled_at| now.duration_since(polled_at) >= CHAIN_ID_EVERY)
            || standing.trouble.is_some_and(|trouble| trouble.quarantined)
    }

    pub(crate) fn is_quarantined(&self) -> bool {
        self.lock().trouble.is_some_and(|trouble| trouble.quarantined)
    }

    /// A poll that began at `begun` reported this, and the chain id if `with_chain`. It ends a quarantine that began
    /// before the poll, for the caller has seen that the report is proved. It also ends a pause that began before the
    /// poll.
    pub(crate) fn polled(&self, dialect: &D, report: HeadReport<D::Marks>, begun: Instant, with_chain: bool) {
        let latest = report.latest.number;
        self.learnt.answered(begun);
        let mut standing = self.lock();
        // It was asked before it was found to lie: it has not shown that it is sound again.
        if standing.trouble.is_some_and(|trouble| trouble.quarantined && begun < trouble.since) {
            return;
        }
        if with_chain {
            standing.chain_polled_at = Some(begun);
        }
        let finals = dialect.finals(&report, &mut standing.memory);
        standing.said = Some(Said { latest: report.latest, finals, hashes: report.hashes, at: begun });
        standing.answers += 1;
        if let Some(Trouble { quarantined: true, .. }) = standing.trouble {
            standing.trouble = None;
            let reason = self.reason();
            standing.note = format!("back from quarantine with {}; it was: {reason}", D::SOUND);
        }
        drop(standing);
        self.answered(begun, Some(latest));
    }

    /// How much longer it must be left alone because it refused requests for their rate; 0 where it did not.
    pub fn cooldown(&self) -> Duration {
        self.learnt.cooldown(Instant::now()).unwrap_or_default()
    }

    /// It answered what was asked at `begun`. An answer does not undo a failure that came after its question.
    pub fn answered(&self, begun: Instant, latest: Option<u64>) {
        let Timings { calm, calm_after_quarantine, .. } = self.timings;
        let mut standing = self.lock();
        match standing.trouble {
            Some(trouble) if trouble.quarantined || begun < trouble.since => return,
            Some(_) | None => standing.trouble = None,
        }
        if standing.failed_at.is_none_or(|failed_at| begun.duration_since(failed_at) > calm) {
            standing.cools_down.reset();
        }
        if standing.failed_at.is_none_or(|failed_at| begun.duration_since(failed_at) > calm_after_quarantine) {
            standing.quarantines.reset();
        }
        let is_over =
            |unresponsive: &Unresponsive| begun.saturating_duration_since(unresponsive.until) > calm_after_quarantine;
        if standing.unresponsive.as_ref().is_some_and(is_over) {
            standing.unresponsive = None;
            standing.timeouts_in_a_row.reset();
        }
        let no_batches = self.learnt.why_no_batches();
        let known: Vec<&str> = [&*standing.note, &*standing.not_found, &*no_batches, standing.unchecked]
            .into_iter()
            .filter(|text| !text.is_empty())
            .collect();
        let (latency_ms, known) = (standing.latency_ms, known.join("; "));
        drop(standing);
        self.statuses.healthy(self.index, latest, latency_ms, &known);
    }

    /// It did not serve. A failed proof and a wrong chain put it into quarantine.
    pub fn failed(&self, error: &D::Error) {
        let fault = D::fault(error);
        let wrong_chain = fault == Fault::WrongChain;
        let quarantined = wrong_chain || fault == Fault::Unsound;
        let now = Instant::now();
        let mut standing = self.lock();
        if standing.trouble.is_some_and(|trouble| trouble.quarantined) && !quarantined {
            return;
        }
        let random = self.spread(now);
        let cooldown =
            if quarantined { &mut standing.quarantines } else { &mut standing.cools_down }.next_delay(random);
        standing.trouble = Some(Trouble { quarantined, wrong_chain, since: now, from: now, cooldown });
        standing.failed_at = Some(now);
        standing.note.clear();
        standing.not_found.clear();
        drop(standing);
        let state = if quarantined { EndpointState::Quarantined } else { EndpointState::Failing };
        self.statuses.failed(self.index, state, &error.to_string());
    }

    /// It timed out, whatever else it answers. Each timeout after it was unresponsive makes the next such time longer.
    pub(crate) fn was_unresponsive(&self, why: &D::Error, now: Instant) {
        let random = self.spread(now);
        let mut standing = self.lock();
        let lasting = standing
            .unresponsive
            .as_ref()
            .filter(|unresponsive| unresponsive.until > now)
            .map(|unresponsive| unresponsive.cooldown);
        let cooldown = lasting.unwrap_or_else(|| standing.timeouts_in_a_row.next_delay(random));
        standing.unresponsive = Some(Unresponsive { why: why.to_string(), until: now + cooldown, cooldown });
    }

    /// Why nobody waits for it now who has others; `None` while it is responsive.
    pub(crate) fn unresponsive(&self, now: Instant) -> Option<String> {
        let standing = self.lock();
        standing
            .unresponsive
            .as_ref()
            .filter(|unresponsive| unresponsive.until > now)
            .map(|unresponsive| unresponsive.why.clone())
    }

    /// It refuses such calls until a person acts: `why` says what to do.
    pub fn refuses(&self, method: &'static str, why: &str) {
        self.statuses.refuses(self.index, method, &self.clean(why));
    }

    /// It answered such a call. The pool reports calls that are named by their method alone.
    pub fn serves(&self, method: &str) {
        self.statuses.serves(self.index, method);
    }

    /// It does not have what it was asked for. That is no failure; its status shows it while it is healthy.
    pub(crate) fn not_found(&self, error: &D::Error) {
        self.lock().not_found = error.to_string();
    }

    /// A quarantined endpoint could not show that it is sound again.
    pub(crate) fn stays_out(&self) {
        let now = Instant::now();
        let random = self.spread(now);
        let mut standing = self.lock();
        let cooldown = standing.quarantines.next_delay(random);
        if let Some(trouble) = &mut standing.trouble {
            (trouble.from, trouble.cooldown) = (now, cooldown);
        }
    }

    /// What its last polls showed alike that only a newer version can prove.
    pub(crate) fn newer(&self) -> Option<(D::Error, String)> {
        let newer = self.lock().newer.clone();
        newer.filter(|(.., polls)| *polls >= NEWER_POLLS).map(|(error, what, _)| (error, what))
    }

    /// What a poll showed that only a newer version can prove; `None` when it ended otherwise.
    pub(crate) fn set_newer(&self, shown: Option<(D::Error, String)>) {
        let mut standing = self.lock();
        let before = standing.newer.take();
        standing.newer = shown.map(|(error, what)| {
            let polls = before.filter(|(_, before, _)| *before == what).map_or(0, |(.., polls)| polls);
            (error, what, polls + 1)
        });
    }

    /// Why it is of no use; `None` while it is.
    pub(crate) fn why_of_no_use(&self, now: Instant) -> Option<String> {
        if self.standing(now) == Availability::Good {
            return None;
        }
        let reason = self.lock().trouble.map(|_| self.reason());
        let Endpoint { chain, id, .. } = self;
        match self.learnt.cooldown(now).map(|cooldown| cooldown.as_millis().div_ceil(1_000)) {
            Some(secs) => {
                let text = format!("{chain}: endpoint {id} must be left alone for another {secs} s");
                Some(reason.map_or(text.clone(), |reason| format!("{reason} ({text})")))
            }
            None => {
                Some(reason.unwrap_or_else(|| format!("{chain}: endpoint {id} has not told its {} yet", D::IDENTITY)))
            }
        }
    }

    /// What its status says.
    pub(crate) fn reason(&self) -> String {
        self.statuses.snapshot().get(self.index).map(|status| status.reason.clone()).unwrap_or_default()
    }

    pub(crate) fn set_unchecked(&self, unchecked: &'static str) {
        self.lock().unchecked = unchecked;
    }

    /// Varies the cool-downs of endpoints, so that they are not all asked again at once. No secret depends on it.
    fn spread(&self, now: Instant) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.index, &self.id, now.into_std()).hash(&mut hasher);
        hasher.finish()
    }

    fn lock(&self) -> MutexGuard<'_, Standing<D>> {
        // Each write leaves it whole: a panic elsewhere says nothing of it.
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Trouble {
    fn until(&self, shortage: Shortage, timings: &Timings) -> Instant {
        let cooldown = match shortage {
            // It must be pointed elsewhere first.
            _ if self.wrong_chain => self.cooldown,
            Shortage::Nothing => self.cooldown,
            Shortage::Votes if self.quarantined => self.cooldown / SHORTAGE_DIVISOR,
            Shortage::Votes => self.cooldown,
            Shortage::Everybody if self.quarantined => self.cooldown.min(timings.last_resort_cooldown),
            Shortage::Everybody => Duration::ZERO,
        };
        self.from + cooldown
    }
}

impl<D: Dialect> fmt::Debug for Endpoint<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("chain", &self.chain).field("id", &self.id).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderMap;

    use super::*;
    use crate::dialect::{Question, Subscription};
    use crate::error::RpcError;
    use crate::http::http_client;
    use crate::limits::Codes;

    const TIMINGS: Timings = Timings::PRODUCTION;

    /// A family whose endpoints are never asked.
    #[derive(Debug)]
    struct Silent;

    #[derive(Clone, Debug, thiserror::Error)]
    enum SilentError {
        #[error(transparent)]
        Rpc(#[from] RpcError),
        #[error("another chain")]
        WrongChain,
    }

    impl Dialect for Silent {
        type Error = SilentError;
        type Marks = ();
        type Memory = ();

        const CODES: &'static Codes = &Codes::NONE;
        const BATCH_MAX: usize = 1;
        const BLOCKS: &'static str = "blocks";
        const IDENTITY: &'static str = "chain id";
        const SOUND: &'static str = "the right chain id";
        const SUBSCRIPTION: Subscription = Subscription { request: "", head: |_| None };

        fn fault(error: &SilentError) -> Fault {
            match error {
                SilentError::Rpc(error) => error.fault(),
                SilentError::WrongChain => Fault::WrongChain,
            }
        }

        async fn poll(&self, endpoint: &Endpoint<Self>, _: &Question) -> Result<HeadReport<()>, SilentError> {
            Err(endpoint.unusable(Self::BLOCKS, "nobody asks"))
        }

        fn rules(&self) -> usize {
            0
        }

        fn finals(&self, _: &HeadReport<()>, (): &mut ()) -> Vec<Option<u64>> {
            Vec::new()
        }
    }

    fn endpoint() -> Arc<Endpoint<Silent>> {
        let statuses = Endpoints::new(["a:1".to_owned()]);
        let url = "http://a:1".parse().expect("a URL");
        let rpc =
            Rpc::new(http_client(false, &TIMINGS).expect("a client"), &url, HeaderMap::new(), Silent::CODES, &TIMINGS);
        Endpoint::new(Chain::EthereumMainnet, 0, "a:1".to_owned(), rpc, statuses, TIMINGS)
    }

    #[test]
    fn the_chain_id_is_asked_for_at_first_and_each_hour() {
        let (endpoint, now) = (endpoint(), Instant::now());
        assert!(endpoint.must_prove_its_chain(now));
        endpoint.lock().chain_polled_at = Some(now);
        assert!(!endpoint.must_prove_its_chain(now + CHAIN_ID_EVERY - Duration::from_secs(1)));
        assert!(endpoint.must_prove_its_chain(now + CHAIN_ID_EVERY));
    }

    #[test]
    fn a_poll_that_began_before_a_quarantine_does_not_end_it() {
        let (endpoint, before) = (endpoint(), Instant::now());
        let block = BlockRef { number: 7, hash: BlockHash([1; 32]) };
        let report = || HeadReport { latest: block, hashes: BTreeMap::new(), marks: () };
        let (chain, id) = (Chain::EthereumMainnet, endpoint.id.clone());
        endpoint.failed(&RpcError::Contradicts { chain, endpoint: id, says: block, agreed: block }.into());
        endpoint.polled(&Silent, report(), before, true);
        assert!(endpoint.is_quarantined());
        assert_eq!((endpoint.head(), endpoint.answers()), (None, 0), "nor is its word taken");
        endpoint.polled(&Silent, report(), Instant::now(), true);
        assert!(!endpoint.is_quarantined());
        assert_eq!(endpoint.head(), Some(7));
    }

    #[test]
    fn who_is_silent_again_and_again_is_waited_for_ever_less_often() {
        let (endpoint, mut now) = (endpoint(), Instant::now());
        let (chain, id) = (Chain::EthereumMainnet, endpoint.id.clone());
        let why = RpcError::Call { chain, endpoint: id, method: "m", reason: "no answer".to_owned() }.into();
        let mut cools_down = Vec::new();
        for _ in 0..6 {
            assert_eq!(endpoint.unresponsive(now), None);
            endpoint.was_unresponsive(&why, now);
            // A request that was under way at the same time fails alike.
            endpoint.was_unresponsive(&why, now);
            assert!(endpoint.unresponsive(now).is_some_and(|text| text.contains("no answer")));
            let cooldown = endpoint.lock().unresponsive.as_ref().expect("it was silent").cooldown;
            cools_down.push(cooldown);
            now += cooldown;
            endpoint.answered(now, None);
        }
        assert!(cools_down[..3].is_sorted() && cools_down[2] > cools_down[0] * 2, "{cools_down:?}");
        assert!(
            cools_down
                .iter()
                .all(|cooldown| (TIMINGS.unresponsive.first / 5 * 4..=TIMINGS.unresponsive.most / 5 * 6)
                    .contains(cooldown)),
            "{cools_down:?}"
        );
    }

    #[test]
    fn a_rest_is_as_long_as_who_lacks_the_endpoint_lets_it_be() {
        let cools_down = |error: SilentError| {
            let endpoint = endpoint();
            endpoint.failed(&error);
            let trouble = endpoint.lock().trouble.expect("it failed");
            let until = |shortage| trouble.until(shortage, &TIMINGS).duration_since(trouble.from);
            (trouble.cooldown, [Shortage::Nothing, Shortage::Votes, Shortage::Everybody].map(until))
        };
        let (chain, endpoint) = (Chain::EthereumMainnet, String::new());
        let block = BlockRef { number: 1, hash: BlockHash([1; 32]) };
        let (cooldown, quarantined) =
            cools_down(RpcError::Contradicts { chain, endpoint: endpoint.clone(), says: block, agreed: block }.into());
        assert_eq!(quarantined, [cooldown, cooldown / SHORTAGE_DIVISOR, TIMINGS.last_resort_cooldown]);
        let (cooldown, failing) =
            cools_down(RpcError::Call { chain, endpoint, method: "m", reason: String::new() }.into());
        assert_eq!(failing, [cooldown, cooldown, Duration::ZERO]);
        let (cooldown, elsewhere) = cools_down(SilentError::WrongChain);
        assert_eq!(elsewhere, [cooldown; 3], "it must be pointed elsewhere first");
    }
}
