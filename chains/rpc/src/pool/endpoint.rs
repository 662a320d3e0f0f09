//! One endpoint: its own head, and whether it is of use now.
//!
//! Promises: it is asked for blocks only after it told the network's chain id; what is false and a wrong chain put it
//! into quarantine, which only a sound poll on the agreed chain ends; a failure makes it rest for a growing while,
//! and for less where it is lacked; a silence makes it one that nobody waits for who has others. Who is asked when is `pool`'s, what it is asked `calls`'s.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use landfall_chain::{BlockHash, BlockRef, Chain, EndpointState, Endpoints, Retry};
use tokio::time::Instant;

use crate::dialect::{Dialect, Fault, Word};
use crate::http::Rpc;
use crate::pool::learnt::Learnt;
use crate::pool::pace::Pace;

/// How long an endpoint rests after a failure, at first and at most.
const REST_FIRST: Duration = Duration::from_millis(200);
const REST_MAX: Duration = Duration::from_secs(10);
/// How long a quarantine lasts before it is looked at again, at first and at most.
const QUARANTINE_FIRST: Duration = Duration::from_secs(1);
const QUARANTINE_MAX: Duration = Duration::from_secs(60);
/// How long nobody waits who has others for one that was silent, at first and at most: longer than it takes until its next poll
/// has been in vain too.
const SILENCE_FIRST: Duration = Duration::from_secs(45);
const SILENCE_MAX: Duration = Duration::from_secs(300);
/// What is left of a quarantine while fewer endpoints can be heard than must agree: 1 s becomes 200 ms, 60 s become 12 s.
const LACKED_DIVISOR: u32 = 5;
/// The longest rest of a quarantine while nobody can be read from: what it says is proved all the same, and who asks for
/// the tip pauses by himself.
const LAST_RESORT_REST: Duration = Duration::from_millis(200);
/// How many polls in a row must show the same that is too new: one spoilt answer is none.
const NEWER_POLLS: u32 = 3;
/// For how long one that showed the block that was agreed on is not asked for it again, where hashes are asked one by one:
/// longer than a word on what is final is kept on Solana (`told`), behind which another block is agreed on.
const SHOWN_FOR: Duration = Duration::from_secs(15);
/// How often an endpoint must tell its chain id again: a URL may be pointed to another node at any time.
const CHAIN_ID_EVERY: Duration = Duration::from_secs(3_600);
/// After as long without a failure, rests begin small again.
const CALM: Duration = Duration::from_secs(60);
const CALM_AFTER_QUARANTINE: Duration = Duration::from_secs(600);

/// One endpoint and its place in the statuses.
pub struct Endpoint<D: Dialect> {
    pub chain: Chain,
    /// Its place in the configuration and in the statuses.
    pub(crate) index: usize,
    /// Host and port; `#2` where two share them.
    pub id: String,
    pub(crate) learnt: Learnt,
    pub(crate) pace: Pace,
    /// Of what is asked aside.
    pub(crate) pace_aside: Pace,
    pub(crate) rpc: Rpc,
    statuses: Endpoints,
    standing: Mutex<Standing<D>>,
    me: Weak<Self>,
}

/// What is known of an endpoint now.
struct Standing<D: Dialect> {
    /// When it last told the chain id of the network.
    told_chain_at: Option<Instant>,
    said: Option<Said>,
    /// The block that was agreed on and that it showed last, and when it was asked for that.
    shown: Option<(BlockRef, Instant)>,
    memory: D::Memory,
    trouble: Option<Trouble>,
    rests: Retry,
    quarantines: Retry,
    silences: Retry,
    silence: Option<Silence>,
    failed_at: Option<Instant>,
    /// A poll is under way.
    polled: bool,
    /// Its last poll showed what only a newer version can prove: the failure, what it is, and how often in a row.
    newer: Option<(D::Error, String, u32)>,
    /// How many polls it has answered.
    answers: u64,
    /// Its last poll came within the time that others wait for it.
    prompt: bool,
    /// Moving average of a request; `None` before the first.
    latency_ms: Option<u64>,
    /// What to know of it while it is healthy: how it came back, what it lacked last, and what nobody else checks.
    note: String,
    lacked: String,
    unchecked: &'static str,
}

/// What it said in its last good poll.
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
    /// From when it rests, and for how long where it is not lacked.
    from: Instant,
    rest: Duration,
}

/// It let a request wait in vain.
#[derive(Clone, Debug)]
struct Silence {
    why: String,
    /// Until when it is not waited for, and for how long that was to be.
    until: Instant,
    rest: Duration,
}

/// What is lacked while an endpoint rests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lack {
    Nothing,
    /// Fewer can be heard than must agree on what is final.
    Voices,
    /// Nobody can be read from.
    Everybody,
}

/// Of how much use an endpoint is now, the best first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Use {
    /// Healthy.
    Good,
    /// It failed, and has rested.
    Again,
    /// It failed a moment ago.
    Resting,
    /// It said that it must be left alone, or has not told its chain id, or is in quarantine.
    None,
}

impl<D: Dialect> Endpoint<D> {
    pub(crate) fn new(chain: Chain, index: usize, id: String, rpc: Rpc, statuses: Endpoints) -> Arc<Self> {
        let standing = Mutex::new(Standing {
            told_chain_at: None,
            said: None,
            shown: None,
            memory: D::Memory::default(),
            trouble: None,
            rests: Retry::new(REST_FIRST, REST_MAX),
            quarantines: Retry::new(QUARANTINE_FIRST, QUARANTINE_MAX),
            silences: Retry::new(SILENCE_FIRST, SILENCE_MAX),
            silence: None,
            failed_at: None,
            polled: false,
            newer: None,
            answers: 0,
            prompt: true,
            latency_ms: None,
            note: String::new(),
            lacked: String::new(),
            unchecked: "",
        });
        let learnt = Learnt::new(D::BATCH_MAX);
        let (pace, pace_aside) = (Pace::default(), Pace::default());
        Arc::new_cyclic(|me| {
            let me = Weak::clone(me);
            Endpoint { chain, index, id, learnt, pace, pace_aside, rpc, statuses, standing, me }
        })
    }

    /// The same endpoint, for who must own what it asks.
    pub fn share(&self) -> Arc<Self> {
        self.me.upgrade().expect("`new` makes it inside of an Arc, which whoever calls this holds")
    }

    /// Its own newest block, as far as it told it.
    pub fn head(&self) -> Option<u64> {
        self.lock().said.as_ref().map(|said| said.latest.number)
    }

    /// Its own newest block, while it lies below `number` and the endpoint is healthy: then it need not be asked for that one.
    pub fn head_below(&self, number: u64) -> Option<u64> {
        self.voice(Instant::now(), |said| said.latest.number).filter(|head| *head < number)
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

    /// Of how much use it is.
    pub(crate) fn standing(&self, now: Instant) -> Use {
        let standing = self.lock();
        if standing.told_chain_at.is_none() || self.learnt.rest(now).is_some() {
            return Use::None;
        }
        match standing.trouble {
            None => Use::Good,
            Some(trouble) if trouble.quarantined => Use::None,
            Some(trouble) if trouble.until(Lack::Nothing) <= now => Use::Again,
            Some(_) => Use::Resting,
        }
    }

    pub(crate) fn is_of_wrong_chain(&self) -> bool {
        self.lock().trouble.is_some_and(|trouble| trouble.wrong_chain)
    }

    /// Whether it cannot be asked now, and would be believed.
    pub(crate) fn word_would_count(&self, now: Instant) -> bool {
        self.standing(now) == Use::None && !self.is_quarantined()
    }

    /// What it said in its last poll, while it is healthy.
    pub(crate) fn voice<T>(&self, now: Instant, read: impl FnOnce(&Said) -> T) -> Option<T> {
        (self.standing(now) == Use::Good).then_some(())?;
        self.lock().said.as_ref().map(read)
    }

    /// Takes the right to poll it, when it is due: one poll at a time, none while it rests.
    pub(crate) fn begin_poll(&self, lack: Lack, now: Instant) -> bool {
        let is_due = self.rests_until(lack).is_none_or(|until| until <= now);
        let mut standing = self.lock();
        let begins = is_due && !standing.polled;
        standing.polled |= begins;
        begins
    }

    /// Until when it is not polled; `None` when it does not rest.
    pub(crate) fn rests_until(&self, lack: Lack) -> Option<Instant> {
        let of_trouble = self.lock().trouble.map(|trouble| trouble.until(lack));
        let last_resort = (lack == Lack::Everybody).then_some(LAST_RESORT_REST);
        of_trouble.max(self.learnt.rests_until(last_resort))
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

    /// Whether it has shown `agreed` a moment ago, and need not do so again.
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
        standing.told_chain_at.is_none_or(|told_at| now.duration_since(told_at) >= CHAIN_ID_EVERY)
            || standing.trouble.is_some_and(|trouble| trouble.quarantined)
    }

    pub(crate) fn is_quarantined(&self) -> bool {
        self.lock().trouble.is_some_and(|trouble| trouble.quarantined)
    }

    /// A poll that began at `begun` told this, and the chain id if `with_chain`. It ends a quarantine that was there when
    /// it began: who calls has seen that the word is proved. It ends a pause too, which was over or is cut short.
    pub(crate) fn told(&self, dialect: &D, word: Word<D::Marks>, begun: Instant, with_chain: bool) {
        let latest = word.latest.number;
        self.learnt.answered(begun);
        let mut standing = self.lock();
        // It was asked before it was found to lie: it has not shown that it is sound again.
        if standing.trouble.is_some_and(|trouble| trouble.quarantined && begun < trouble.since) {
            return;
        }
        if with_chain {
            standing.told_chain_at = Some(begun);
        }
        let finals = dialect.finals(&word, &mut standing.memory);
        standing.said = Some(Said { latest: word.latest, finals, hashes: word.hashes, at: begun });
        standing.answers += 1;
        if let Some(Trouble { quarantined: true, .. }) = standing.trouble {
            standing.trouble = None;
            let reason = self.reason();
            standing.note = format!("back from quarantine with {}; it was: {reason}", D::SOUND);
        }
        drop(standing);
        self.answered(begun, Some(latest));
    }

    /// How much longer it is to be left alone, as it refused requests for their rate; 0 where it did not.
    pub fn rest(&self) -> Duration {
        self.learnt.rest(Instant::now()).unwrap_or_default()
    }

    /// It answered to what was asked at `begun`. An answer to an earlier question takes back no later failure.
    pub fn answered(&self, begun: Instant, latest: Option<u64>) {
        let mut standing = self.lock();
        match standing.trouble {
            Some(trouble) if trouble.quarantined || begun < trouble.since => return,
            Some(_) | None => standing.trouble = None,
        }
        if standing.failed_at.is_none_or(|failed_at| begun.duration_since(failed_at) > CALM) {
            standing.rests.reset();
        }
        if standing.failed_at.is_none_or(|failed_at| begun.duration_since(failed_at) > CALM_AFTER_QUARANTINE) {
            standing.quarantines.reset();
        }
        let calm = |silence: &Silence| begun.saturating_duration_since(silence.until) > CALM_AFTER_QUARANTINE;
        if standing.silence.as_ref().is_some_and(calm) {
            standing.silence = None;
            standing.silences.reset();
        }
        let no_batches = self.learnt.why_no_batches();
        let known: Vec<&str> = [&*standing.note, &*standing.lacked, &*no_batches, standing.unchecked]
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
        let rest = if quarantined { &mut standing.quarantines } else { &mut standing.rests }.next_delay(random);
        standing.trouble = Some(Trouble { quarantined, wrong_chain, since: now, from: now, rest });
        standing.failed_at = Some(now);
        standing.note.clear();
        standing.lacked.clear();
        drop(standing);
        let state = if quarantined { EndpointState::Quarantined } else { EndpointState::Failing };
        self.statuses.failed(self.index, state, &error.to_string());
    }

    /// It let a request wait in vain, whatever else it answers. Each such time that comes behind a rest makes the rest longer.
    pub(crate) fn was_silent(&self, why: &D::Error, now: Instant) {
        let random = self.spread(now);
        let mut standing = self.lock();
        let lasting = standing.silence.as_ref().filter(|silence| silence.until > now).map(|silence| silence.rest);
        let rest = lasting.unwrap_or_else(|| standing.silences.next_delay(random));
        standing.silence = Some(Silence { why: why.to_string(), until: now + rest, rest });
    }

    /// Why nobody waits for it now who has others.
    pub(crate) fn silence(&self, now: Instant) -> Option<String> {
        let standing = self.lock();
        standing.silence.as_ref().filter(|silence| silence.until > now).map(|silence| silence.why.clone())
    }

    /// It refuses such calls until a person does something about it: `why`, and what.
    pub fn refuses(&self, method: &'static str, why: &str) {
        self.statuses.refuses(self.index, method, &self.clean(why));
    }

    /// It answered such a call. Of what is named by its method alone the pool says so.
    pub fn serves(&self, method: &str) {
        self.statuses.serves(self.index, method);
    }

    /// It has not what it was asked for: no failure, and told with its status while it is healthy.
    pub(crate) fn lacked(&self, error: &D::Error) {
        self.lock().lacked = error.to_string();
    }

    /// A quarantined endpoint could not show that it is sound again.
    pub(crate) fn stays_out(&self) {
        let now = Instant::now();
        let random = self.spread(now);
        let mut standing = self.lock();
        let rest = standing.quarantines.next_delay(random);
        if let Some(trouble) = &mut standing.trouble {
            (trouble.from, trouble.rest) = (now, rest);
        }
    }

    /// What its last polls showed alike that only a newer version can prove.
    pub(crate) fn newer(&self) -> Option<(D::Error, String)> {
        let newer = self.lock().newer.clone();
        newer.filter(|(.., polls)| *polls >= NEWER_POLLS).map(|(error, what, _)| (error, what))
    }

    /// What a poll showed of that kind; `None` when it ended otherwise.
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
        if self.standing(now) == Use::Good {
            return None;
        }
        let reason = self.lock().trouble.map(|_| self.reason());
        let Endpoint { chain, id, .. } = self;
        match self.learnt.rest(now).map(|rest| rest.as_millis().div_ceil(1_000)) {
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

    /// Spreads the rests of endpoints, so that they are not all asked again at once. No secret hangs on it.
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
    fn until(&self, lack: Lack) -> Instant {
        let rest = match lack {
            // It must be pointed elsewhere first.
            _ if self.wrong_chain => self.rest,
            Lack::Nothing => self.rest,
            Lack::Voices if self.quarantined => self.rest / LACKED_DIVISOR,
            Lack::Voices => self.rest,
            Lack::Everybody if self.quarantined => self.rest.min(LAST_RESORT_REST),
            Lack::Everybody => Duration::ZERO,
        };
        self.from + rest
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

        async fn poll(&self, endpoint: &Endpoint<Self>, _: &Question) -> Result<Word<()>, SilentError> {
            Err(endpoint.unusable(Self::BLOCKS, "nobody asks"))
        }

        fn rules(&self) -> usize {
            0
        }

        fn finals(&self, _: &Word<()>, (): &mut ()) -> Vec<Option<u64>> {
            Vec::new()
        }
    }

    fn endpoint() -> Arc<Endpoint<Silent>> {
        let statuses = Endpoints::new(["a:1".to_owned()]);
        let url = "http://a:1".parse().expect("a URL");
        let rpc = Rpc::new(http_client(false).expect("a client"), &url, HeaderMap::new(), Silent::CODES);
        Endpoint::new(Chain::EthereumMainnet, 0, "a:1".to_owned(), rpc, statuses)
    }

    #[test]
    fn the_chain_id_is_asked_for_at_first_and_each_hour() {
        let (endpoint, now) = (endpoint(), Instant::now());
        assert!(endpoint.must_prove_its_chain(now));
        endpoint.lock().told_chain_at = Some(now);
        assert!(!endpoint.must_prove_its_chain(now + CHAIN_ID_EVERY - Duration::from_secs(1)));
        assert!(endpoint.must_prove_its_chain(now + CHAIN_ID_EVERY));
    }

    #[test]
    fn a_poll_that_began_before_a_quarantine_does_not_end_it() {
        let (endpoint, before) = (endpoint(), Instant::now());
        let block = BlockRef { number: 7, hash: BlockHash([1; 32]) };
        let word = || Word { latest: block, hashes: BTreeMap::new(), marks: () };
        let (chain, id) = (Chain::EthereumMainnet, endpoint.id.clone());
        endpoint.failed(&RpcError::Contradicts { chain, endpoint: id, says: block, agreed: block }.into());
        endpoint.told(&Silent, word(), before, true);
        assert!(endpoint.is_quarantined());
        assert_eq!((endpoint.head(), endpoint.answers()), (None, 0), "nor is its word taken");
        endpoint.told(&Silent, word(), Instant::now(), true);
        assert!(!endpoint.is_quarantined());
        assert_eq!(endpoint.head(), Some(7));
    }

    #[test]
    fn who_is_silent_again_and_again_is_waited_for_ever_less_often() {
        let (endpoint, mut now) = (endpoint(), Instant::now());
        let (chain, id) = (Chain::EthereumMainnet, endpoint.id.clone());
        let why = RpcError::Call { chain, endpoint: id, method: "m", reason: "no answer".to_owned() }.into();
        let mut rests = Vec::new();
        for _ in 0..6 {
            assert_eq!(endpoint.silence(now), None);
            endpoint.was_silent(&why, now);
            // What was asked at the same time says the same.
            endpoint.was_silent(&why, now);
            assert!(endpoint.silence(now).is_some_and(|text| text.contains("no answer")));
            let rest = endpoint.lock().silence.as_ref().expect("it was silent").rest;
            rests.push(rest);
            now += rest;
            endpoint.answered(now, None);
        }
        assert!(rests[..3].is_sorted() && rests[2] > rests[0] * 2, "{rests:?}");
        assert!(rests.iter().all(|rest| (SILENCE_FIRST / 5 * 4..=SILENCE_MAX / 5 * 6).contains(rest)), "{rests:?}");
    }

    #[test]
    fn a_rest_is_as_long_as_who_lacks_the_endpoint_lets_it_be() {
        let rests = |error: SilentError| {
            let endpoint = endpoint();
            endpoint.failed(&error);
            let trouble = endpoint.lock().trouble.expect("it failed");
            let until = |lack| trouble.until(lack).duration_since(trouble.from);
            (trouble.rest, [Lack::Nothing, Lack::Voices, Lack::Everybody].map(until))
        };
        let (chain, endpoint) = (Chain::EthereumMainnet, String::new());
        let block = BlockRef { number: 1, hash: BlockHash([1; 32]) };
        let (rest, quarantined) =
            rests(RpcError::Contradicts { chain, endpoint: endpoint.clone(), says: block, agreed: block }.into());
        assert_eq!(quarantined, [rest, rest / LACKED_DIVISOR, LAST_RESORT_REST]);
        let (rest, failing) = rests(RpcError::Call { chain, endpoint, method: "m", reason: String::new() }.into());
        assert_eq!(failing, [rest, rest, Duration::ZERO]);
        let (rest, elsewhere) = rests(SilentError::WrongChain);
        assert_eq!(elsewhere, [rest; 3], "it must be pointed elsewhere first");
    }
}
