//! The endpoints of one network: which is asked, what they agree on, and what is known of each.
//!
//! Promises: the newest block of the best endpoint counts, but never one below what was agreed to be final; a slow or
//! failing one delays nobody: polls run beside each other, one of each endpoint at a time, and outlive the call that
//! began them. Who rests is asked earlier where it is lacked, and waited for a little where there is nobody else. A read
//! that fails is tried again at once on each other endpoint that is of use, once. What one endpoint alone does not
//! understand is its own failure. Deliberately not here: what the endpoints say (`tip`, `read`), whether they agree
//! (`agree`), who leads (`heads`).

pub(crate) mod agree;
pub(crate) mod calls;
pub(crate) mod endpoint;
pub(crate) mod heads;
pub(crate) mod learnt;
pub(crate) mod limits;
pub(crate) mod outcome;
pub(crate) mod poll;
pub(crate) mod tip;
pub(crate) mod wake;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use landfall_chain::{BlockRef, Chain, Endpoints, Tip};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::error::EvmError;
use crate::pool::agree::{Agreement, Voice};
use crate::pool::endpoint::{Endpoint, Use};
use crate::pool::outcome::Outcome;
use crate::pool::poll::{GRACE, Polling};
use crate::pool::tip::Question;

/// The endpoints of one network.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) chain: Chain,
    chain_id: u64,
    pub(crate) endpoints: Vec<Arc<Endpoint>>,
    pub(crate) statuses: Endpoints,
    agreement: Mutex<Agreement>,
    question: Question,
    /// Whose newest block was told last: it is asked first, so that what follows is of the same branch.
    leader: Mutex<Option<usize>>,
    polls: Mutex<JoinSet<()>>,
    news: Arc<Notify>,
}

/// What a read needs of the endpoint that serves it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Need {
    /// Blocks from here
    pub(crate) first: u64,
    /// to here, inclusive.
    pub(crate) last: u64,
    pub(crate) methods: &'static [&'static str],
}

/// How long polls are waited for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// The first good one, and a little for others.
    Grace,
    All,
}

impl Pool {
    pub(crate) fn new(
        chain: Chain,
        chain_id: u64,
        endpoints: Vec<Endpoint>,
        statuses: Endpoints,
        agreement: Agreement,
    ) -> Self {
        Pool {
            chain,
            chain_id,
            endpoints: endpoints.into_iter().map(Arc::new).collect(),
            statuses,
            question: Question::of(&agreement.rules),
            agreement: Mutex::new(agreement),
            leader: Mutex::new(None),
            polls: Mutex::new(JoinSet::new()),
            news: Arc::new(Notify::new()),
        }
    }

    /// Asks every endpoint that is due, and waits for all of them.
    pub(crate) async fn check(&self) -> Result<(), EvmError> {
        self.poll(&BTreeSet::new(), Wait::All, || false).await;
        self.hear();
        match self.endpoints.iter().find(|endpoint| endpoint.is_of_wrong_chain()) {
            Some(wrong) => Err(EvmError::NoEndpoint { chain: self.chain, reasons: wrong.reason(), permanent: true }),
            None if self.good().count() == self.endpoints.len() => Ok(()),
            None => Err(self.nobody()),
        }
    }

    /// Where the chain ends, and what is final.
    pub(crate) async fn tip(&self) -> Result<Tip, EvmError> {
        let mut voices = self.poll_and_hear().await;
        // Nothing was ever final, and a hash is all that lacks: worth another request, once.
        if self.agreement().is_first_to_come() {
            voices = self.poll_and_hear().await;
        }
        if voices.is_empty() {
            return Err(self.nobody());
        }
        // What is agreed is taken once: another call may add to it meanwhile, and the newest block must reach it.
        let (finalized, tiers, waiting, newest) = {
            let agreement = self.agreement();
            (agreement.finalized(), agreement.tiers(), agreement.waiting(), agreement.newest())
        };
        Ok(Tip { latest: self.lead(newest)?, finalized, tiers, waiting })
    }

    /// The block at `number`, when it is final and as many endpoints as must agree show the same.
    pub(crate) async fn final_at(&self, number: u64) -> Result<Option<BlockRef>, EvmError> {
        let must = self.statuses.agree();
        let agreed = || Agreement::at(&self.hear(), number, must);
        // A poll may have been under way that did not ask for this number.
        for _ in 0..2 {
            self.poll(&BTreeSet::from([number]), Wait::All, || agreed().is_some()).await;
            if let Some(block) = agreed() {
                return Ok(Some(block));
            }
        }
        if self.good().next().is_none() { Err(self.nobody()) } else { Ok(None) }
    }

    /// Reads from the best endpoint for `need`, and from the next when it fails.
    pub(crate) async fn call<'a, T>(
        &'a self,
        need: Need,
        read: impl Fn(&'a Endpoint) -> BoxFuture<'a, Result<T, EvmError>> + Send,
    ) -> Result<T, EvmError> {
        let mut outcome = Outcome::new(self);
        for endpoint in self.candidates(need).await {
            let begun = Instant::now();
            match read(endpoint).await {
                Ok(value) => {
                    endpoint.answered(begun, None);
                    outcome.one_understands();
                    return Ok(value);
                }
                Err(error) => outcome.failed(endpoint, error)?,
            }
        }
        Err(outcome.error())
    }

    /// As [`Pool::call`], of a list with an item for each block. An endpoint whose own newest block says that it has
    /// more than it shows is left for another; the longest list counts, for a reorg may have cut it.
    pub(crate) async fn call_range<'a, T: Send>(
        &'a self,
        need: Need,
        most: usize,
        read: impl Fn(&'a Endpoint) -> BoxFuture<'a, Result<Vec<T>, EvmError>> + Send,
    ) -> Result<Vec<T>, EvmError> {
        let mut outcome = Outcome::new(self);
        let wanted = usize::try_from((need.last + 1).saturating_sub(need.first)).unwrap_or(usize::MAX).min(most);
        let mut longest: Option<Vec<T>> = None;
        for endpoint in self.candidates(need).await {
            let begun = Instant::now();
            match read(endpoint).await {
                Ok(items) => {
                    let is_whole = items.len() >= wanted;
                    let is_short = !is_whole && endpoint.head().is_some_and(|head| head >= need.last);
                    if is_short {
                        endpoint.failed(&endpoint.shows_too_little(need, items.len()));
                    } else {
                        endpoint.answered(begun, None);
                    }
                    outcome.one_understands();
                    if longest.as_ref().is_none_or(|longest| longest.len() < items.len()) {
                        longest = Some(items);
                    }
                    if is_whole || !is_short {
                        break;
                    }
                }
                Err(error) => outcome.failed(endpoint, error)?,
            }
        }
        longest.ok_or_else(|| outcome.error())
    }

    /// The endpoints for a read, the best first.
    pub(crate) async fn candidates(&self, need: Need) -> Vec<&Endpoint> {
        let (mut candidates, now) = (self.of_use(need).await, Instant::now());
        // Who failed a moment ago is asked only when there is nobody else.
        if candidates.iter().any(|endpoint| endpoint.standing(now) < Use::Resting) {
            candidates.retain(|endpoint| endpoint.standing(now) < Use::Resting);
        }
        candidates
    }

    /// The same with those behind that failed a moment ago, for who needs a second witness. Asks for their heads first
    /// while none has told one.
    pub(crate) async fn of_use(&self, need: Need) -> Vec<&Endpoint> {
        if self.good().next().is_none() {
            self.poll(&BTreeSet::new(), Wait::Grace, || false).await;
        }
        let (now, leader) = (Instant::now(), *self.leader());
        let of_use = |endpoint: &&Arc<Endpoint>| endpoint.standing(now) < Use::None;
        let mut endpoints: Vec<&Endpoint> = self.endpoints.iter().filter(of_use).map(|endpoint| &**endpoint).collect();
        endpoints.sort_by_cached_key(|endpoint| {
            let serves = need.methods.iter().all(|method| endpoint.learnt.is_served(method));
            let head = endpoint.head().unwrap_or_default();
            let missing = need.last.saturating_sub(head);
            let leads = leader == Some(endpoint.index);
            (!serves, endpoint.standing(now), missing, !leads, endpoint.latency_ms(), endpoint.index)
        });
        endpoints
    }

    /// Records that an answer of the endpoint named `id` was found to be a lie, after the call had ended well.
    pub(crate) fn disprove(&self, id: &str, error: &EvmError) {
        if let Some(endpoint) = self.endpoints.iter().find(|endpoint| endpoint.id == id) {
            endpoint.failed(error);
        }
    }

    /// How many endpoints must say the same before it counts.
    pub(crate) fn must_agree(&self) -> usize {
        self.statuses.agree()
    }

    async fn poll_and_hear(&self) -> Vec<Voice> {
        self.poll(&BTreeSet::new(), Wait::Grace, || false).await;
        self.hear()
    }

    /// Begins a poll of every endpoint that is due, and waits for polls as `wait` says or until `enough`.
    async fn poll(&self, numbers: &BTreeSet<u64>, wait: Wait, enough: impl Fn() -> bool + Send) {
        let before: Vec<u64> = self.endpoints.iter().map(|endpoint| endpoint.answers()).collect();
        self.begin_polls(numbers);
        if let Some(rested) = self.first_rested() {
            tokio::time::sleep_until(rested).await;
            self.begin_polls(numbers);
        }
        let mut give_up: Option<Instant> = None;
        loop {
            // First in line for news, then looking: nothing that comes between is missed.
            let news = self.news.notified();
            tokio::pin!(news);
            news.as_mut().enable();
            let open = || self.endpoints.iter().filter(|endpoint| endpoint.is_polled());
            let has_answer = self.endpoints.iter().zip(&before).any(|(endpoint, before)| endpoint.answers() > *before);
            let worth = || open().any(|endpoint| endpoint.is_prompt());
            if enough() || open().next().is_none() || wait == Wait::Grace && has_answer && !worth() {
                return;
            }
            if wait == Wait::Grace && has_answer && give_up.is_none() {
                give_up = Some(Instant::now() + GRACE);
            }
            match give_up {
                None => news.await,
                Some(at) => {
                    if tokio::time::timeout_at(at, news).await.is_err() {
                        // Its answer is taken when it comes; nobody waits for it until it is faster.
                        open().for_each(|endpoint| endpoint.set_prompt(false));
                        return;
                    }
                }
            }
        }
    }

    fn begin_polls(&self, numbers: &BTreeSet<u64>) {
        let (now, lack) = (Instant::now(), self.lack());
        let (wanted, anchor) = {
            let agreement = self.agreement();
            // What one endpoint alone calls final says nothing of another, nor of itself when it stops lying.
            (&agreement.wanted() | numbers, agreement.finalized().filter(|_| self.must_agree() > 1))
        };
        // Whoever is not needed to agree may be on another fork, and show it by the block that was agreed on.
        let may_convict = self.endpoints.len() > self.must_agree();
        let mut polls = self.polls.lock().unwrap_or_else(PoisonError::into_inner);
        while polls.try_join_next().is_some() {}
        for endpoint in self.endpoints.iter().filter(|endpoint| endpoint.begin_poll(lack, now)) {
            let polling = Polling { endpoint: Arc::clone(endpoint), news: Arc::clone(&self.news) };
            let chain_id = endpoint.must_prove_its_chain(now).then_some(self.chain_id);
            let mut question = Question { chain_id, numbers: wanted.clone(), ..self.question.clone() };
            question.numbers.extend(anchor.filter(|_| may_convict || endpoint.is_quarantined()).map(|it| it.number));
            polls.spawn(async move { polling.run(question, anchor).await });
        }
    }

    /// What the healthy endpoints say, taken into the agreement.
    fn hear(&self) -> Vec<Voice> {
        let (must, now) = (self.statuses.agree(), Instant::now());
        self.tell_what_is_not_checked(must);
        let mut agreement = self.agreement();
        let voice = |(index, endpoint): (usize, &Arc<Endpoint>)| {
            endpoint.voice(now, |word, covered| {
                let finals = agreement.rules.iter().map(|rule| word.final_number(rule, covered)).collect();
                Voice { index, id: endpoint.id.clone(), latest: word.latest, finals, hashes: word.hashes.clone() }
            })
        };
        let mut voices: Vec<Voice> = self.endpoints.iter().enumerate().filter_map(voice).collect();
        let others: Vec<String> = self.endpoints.iter().filter_map(|endpoint| endpoint.why_of_no_use(now)).collect();
        let contradicting = agreement.hear(&voices, must, &others.join("; "));
        drop(agreement);
        for (index, says, agreed) in contradicting {
            let endpoint = &self.endpoints[index];
            let id = endpoint.id.clone();
            endpoint.failed(&EvmError::Contradicts { chain: self.chain, endpoint: id, says, agreed });
            voices.retain(|voice| voice.index != index);
        }
        voices
    }

    fn tell_what_is_not_checked(&self, must: usize) {
        let unchecked = match (must, self.endpoints.len()) {
            (0 | 1, 1) => "what it calls final is checked by no other endpoint: it is the only one",
            (0 | 1, _) => "what one endpoint calls final is checked by no other: agree is 1",
            _ => "",
        };
        self.endpoints.iter().for_each(|endpoint| endpoint.set_unchecked(unchecked));
    }

    fn good(&self) -> impl Iterator<Item = &Arc<Endpoint>> {
        let now = Instant::now();
        self.endpoints.iter().filter(move |endpoint| endpoint.standing(now) == Use::Good)
    }

    /// How many endpoints could tell about a block: all but those of another chain.
    pub(crate) fn of_this_chain(&self) -> usize {
        self.endpoints.iter().filter(|endpoint| !endpoint.is_of_wrong_chain()).count()
    }

    pub(crate) fn chain(&self) -> Chain {
        self.chain
    }

    /// How many endpoints there are.
    pub(crate) fn size(&self) -> usize {
        self.endpoints.len()
    }

    /// No endpoint is of use.
    pub(crate) fn nobody(&self) -> EvmError {
        if let Some((block, field)) = self.newer() {
            return EvmError::NewHeader { chain: self.chain, block, field };
        }
        let now = Instant::now();
        let reasons: Vec<String> = self.endpoints.iter().filter_map(|endpoint| endpoint.why_of_no_use(now)).collect();
        let reasons = if reasons.is_empty() {
            format!("{}: the endpoints failed a moment ago and are healthy again", self.chain)
        } else {
            reasons.join("; ")
        };
        EvmError::NoEndpoint { chain: self.chain, reasons, permanent: self.of_this_chain() == 0 }
    }

    /// What the last polls of all endpoints showed alike that only a newer version can prove: then it is a fork of the
    /// chain, and no lie of one.
    fn newer(&self) -> Option<(BlockRef, String)> {
        let mut shown = self.endpoints.iter().filter(|endpoint| !endpoint.is_of_wrong_chain()).map(|one| one.newer());
        let first = shown.next()??;
        shown.all(|other| other.is_some_and(|(_, field)| field == first.1)).then_some(first)
    }

    pub(crate) fn agreement(&self) -> MutexGuard<'_, Agreement> {
        self.agreement.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn leader(&self) -> MutexGuard<'_, Option<usize>> {
        self.leader.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
