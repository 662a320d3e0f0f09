//! The endpoints of one network: which is asked, what they agree on, and what is known of each.
//!
//! Promises: the newest block of the best endpoint counts, but never one below what was agreed to be final. A slow or
//! failing endpoint delays nobody: polls run beside each other, one of each endpoint at a time, and outlive the call
//! that began them. Cool-downs are shorter while too few endpoints remain; where none remains, a poll waits a little
//! for the first to end. An endpoint that failed is asked again while all others have not answered. Deliberately not
//! here: what the endpoints are asked (the family's), who serves a read (`reads`), whether they agree (`agree`), which
//! branch they follow (`branches`), who leads (`heads`). Nor what became of a transaction (`fates`), and who is handed one
//! (`broadcast`).

pub(crate) mod agree;
pub(crate) mod branches;
pub(crate) mod broadcast;
pub(crate) mod calls;
pub(crate) mod endpoint;
pub(crate) mod fates;
pub(crate) mod heads;
pub(crate) mod learnt;
pub(crate) mod outcome;
pub(crate) mod pace;
pub(crate) mod places;
pub(crate) mod poll;
pub(crate) mod reads;
pub(crate) mod wake;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::join_all;
use landfall_chain::{BlockRef, Chain, Endpoints, Tip};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::dialect::{Dialect, Question};
use crate::error::RpcError;
use crate::http::{Rpc, http_client};
use crate::pool::agree::{Agreement, Vote};
use crate::pool::branches::Branches;
use crate::pool::endpoint::{Availability, Endpoint, Said};
use crate::pool::places::{EndpointUrl, Place};
use crate::pool::poll::Polling;
use crate::pool::wake::WakeUp;
use crate::timings::Timings;

/// How many endpoints must agree on what is final, where as many are configured and nothing else is set.
const AGREE_DEFAULT: usize = 2;

/// The endpoints of one network.
#[derive(Debug)]
pub struct Pool<D: Dialect> {
    chain: Chain,
    dialect: Arc<D>,
    timings: Timings,
    endpoints: Vec<Arc<Endpoint<D>>>,
    statuses: Endpoints,
    agreement: Mutex<Agreement>,
    branches: Mutex<Branches>,
    /// Whose newest block was reported last: it is asked first, so that the next reads are of the same branch.
    leader: Mutex<Option<usize>>,
    polls: Mutex<JoinSet<()>>,
    news: Arc<Notify>,
    wake_ups: Vec<WakeUp>,
    wake_up: Arc<Notify>,
}

/// How long polls are waited for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// The first good one, and a little for others.
    Grace,
    All,
}

impl<D: Dialect> Pool<D> {
    /// The endpoints at `urls`. Touches no network.
    ///
    /// # Errors
    /// A URL that cannot be used, a header that cannot be sent, and nothing to read from.
    pub fn over(dialect: D, chain: Chain, urls: Vec<EndpointUrl>, timings: Timings) -> Result<Self, RpcError> {
        let places = Place::all(chain, urls)?;
        let statuses = Endpoints::new(places.iter().map(|place| place.id.clone()));
        let is_encrypted = places.iter().any(|place| place.url.scheme() == "https");
        // A builder's error cannot hold a URL: it has seen none.
        let http = http_client(is_encrypted, &timings);
        let http = http.map_err(|error| RpcError::Client { chain, reason: error.to_string() })?;
        let (mut endpoints, mut wake_ups, wake_up) = (Vec::new(), Vec::new(), Arc::new(Notify::new()));
        for (index, Place { id, url, headers, wakes }) in places.into_iter().enumerate() {
            let (statuses, notify) = (statuses.clone(), Arc::clone(&wake_up));
            if wakes {
                let subscription = D::SUBSCRIPTION;
                wake_ups.push(WakeUp { index, url, headers, subscription, statuses, notify });
            } else {
                let rpc = Rpc::new(http.clone(), &url, headers, D::CODES, &timings);
                endpoints.push(Endpoint::new(chain, index, id, rpc, statuses, timings));
            }
        }
        if endpoints.is_empty() {
            return Err(RpcError::NoUrl { chain });
        }
        statuses.set_agree(AGREE_DEFAULT.min(endpoints.len()));
        Ok(Pool {
            chain,
            timings,
            endpoints,
            statuses,
            agreement: Mutex::new(Agreement::new(dialect.rules())),
            branches: Mutex::default(),
            dialect: Arc::new(dialect),
            leader: Mutex::new(None),
            polls: Mutex::new(JoinSet::new()),
            news: Arc::new(Notify::new()),
            wake_ups,
            wake_up,
        })
    }

    pub fn timings(&self) -> &Timings {
        &self.timings
    }

    /// How its endpoints are polled.
    pub fn dialect(&self) -> &D {
        &self.dialect
    }

    /// Sets how many endpoints must agree on what is final. Without this call it is two, or one where there is only
    /// one. An operator may override it at run time: [`Endpoints::override_agree`].
    ///
    /// # Errors
    /// More than are configured, and zero.
    pub fn set_agree(&self, agree: usize) -> Result<(), RpcError> {
        let (chain, endpoints) = (self.chain, self.endpoints.len());
        if !(1..=endpoints).contains(&agree) {
            return Err(RpcError::Agree { chain, agree, endpoints });
        }
        self.statuses.set_agree(agree);
        Ok(())
    }

    /// The states of the endpoints; clones share them.
    pub fn endpoints(&self) -> Endpoints {
        self.statuses.clone()
    }

    /// Notified when there may be a new block, if a `ws` URL says so while [`Pool::listen`] runs.
    pub fn wake_up(&self) -> Arc<Notify> {
        Arc::clone(&self.wake_up)
    }

    /// Listens for wake-ups, for ever. Without a `ws` URL it does nothing.
    pub fn listen(&self) -> impl Future<Output = ()> + Send + use<D> {
        let listeners: Vec<_> = self.wake_ups.iter().cloned().map(WakeUp::listen).collect();
        async move {
            join_all(listeners).await;
            std::future::pending().await
        }
    }

    /// Asks every endpoint that is due, and waits for all of them.
    ///
    /// # Errors
    /// Permanent when one serves another chain; transient when one is not healthy.
    pub async fn check(&self) -> Result<(), D::Error> {
        self.poll(&BTreeSet::new(), Wait::All, || false).await;
        self.hear();
        match self.endpoints.iter().find(|endpoint| endpoint.is_of_wrong_chain()) {
            Some(wrong) => {
                Err(RpcError::NoEndpoint { chain: self.chain, reasons: wrong.reason(), permanent: true }.into())
            }
            None if self.good().count() == self.endpoints.len() => Ok(()),
            None => Err(self.nobody()),
        }
    }

    /// Where the chain ends, and what is final.
    ///
    /// # Errors
    /// When no endpoint is healthy, or none reports a newest block that reaches what is final.
    pub async fn tip(&self) -> Result<Tip, D::Error> {
        let mut votes = self.poll_and_hear().await;
        // Nothing was ever final, and only a hash is missing: worth another request, once.
        if self.agreement().is_first_to_come() {
            votes = self.poll_and_hear().await;
        }
        if votes.is_empty() {
            return Err(self.nobody());
        }
        // What is agreed is read once: another call may add to it meanwhile, and the newest block must reach it.
        let (finalized, tiers, waiting, newest) = {
            let agreement = self.agreement();
            (agreement.finalized(), agreement.tiers(), agreement.waiting(), agreement.newest())
        };
        let forked = self.branches().differ();
        Ok(Tip { latest: self.lead(newest)?, finalized, tiers, waiting, forked })
    }

    /// The block at `number`, when it is final and as many endpoints as must agree show the same. `None` when too few
    /// agree.
    ///
    /// # Errors
    /// When no endpoint is healthy.
    pub async fn final_at(&self, number: u64) -> Result<Option<BlockRef>, D::Error> {
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

    /// Records that an answer of the endpoint named `id` was false, after the call had succeeded.
    pub fn disprove(&self, id: &str, error: &D::Error) {
        if let Some(endpoint) = self.endpoints.iter().find(|endpoint| endpoint.id == id) {
            endpoint.failed(error);
        }
    }

    /// Polls the endpoints that are due, for a caller who waits until one of them has come further.
    pub async fn look(&self) {
        self.poll(&BTreeSet::new(), Wait::Grace, || false).await;
    }

    /// How many endpoints must report the same before it counts.
    pub fn must_agree(&self) -> usize {
        self.statuses.agree()
    }

    async fn poll_and_hear(&self) -> Vec<Vote> {
        self.poll(&BTreeSet::new(), Wait::Grace, || false).await;
        self.hear()
    }

    /// Begins a poll of every endpoint that is due, and waits for polls as `wait` says or until `enough`.
    async fn poll(&self, numbers: &BTreeSet<u64>, wait: Wait, enough: impl Fn() -> bool + Send) {
        let before: Vec<u64> = self.endpoints.iter().map(|endpoint| endpoint.answers()).collect();
        self.begin_polls(numbers);
        if let Some(cooled_down) = self.first_cooled_down() {
            tokio::time::sleep_until(cooled_down).await;
            self.begin_polls(numbers);
        }
        let (mut give_up, mut asked_at): (Option<Instant>, _) = (None, Instant::now());
        // By then the polls that began first have ended, and the caller may learn that no endpoint answers.
        let again_until = asked_at + self.timings.call_timeout;
        loop {
            // First register for news, then check: nothing that comes between is missed.
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
                give_up = Some(Instant::now() + self.timings.grace);
            }
            let again = if has_answer || wait == Wait::All { None } else { self.next_poll(asked_at) };
            let Some(at) = give_up.or(again.filter(|at| *at < again_until)) else {
                news.await;
                continue;
            };
            if tokio::time::timeout_at(at, news).await.is_ok() {
                continue;
            }
            if give_up.is_some() {
                // Its answer is used when it comes; nobody waits for it until it is faster.
                open().for_each(|endpoint| endpoint.set_prompt(false));
                return;
            }
            asked_at = Instant::now();
            self.begin_polls(numbers);
        }
    }

    fn begin_polls(&self, numbers: &BTreeSet<u64>) {
        let (now, shortage) = (Instant::now(), self.shortage());
        let (wanted, anchor) = {
            let agreement = self.agreement();
            // What one endpoint alone calls final says nothing of another, nor of itself when it stops lying.
            (&agreement.wanted() | numbers, agreement.finalized().filter(|_| self.must_agree() > 1))
        };
        let compared = self.branches().wanted();
        // An endpoint that is not needed to agree may be on another fork. The agreed block shows it. Where a hash is a
        // request of its own, each such block is asked for once.
        let may_convict = self.endpoints.len() > self.must_agree();
        let must_show = |endpoint: &Endpoint<D>, agreed: BlockRef| {
            endpoint.is_quarantined() || may_convict && (D::BATCH_MAX > 1 || !endpoint.has_shown(agreed, now))
        };
        let mut polls = self.polls.lock().unwrap_or_else(PoisonError::into_inner);
        while polls.try_join_next().is_some() {}
        for endpoint in self.endpoints.iter().filter(|endpoint| endpoint.begin_poll(shortage, now)) {
            let (dialect, endpoint) = (Arc::clone(&self.dialect), Arc::clone(endpoint));
            let which_chain = endpoint.must_prove_its_chain(now);
            let mut question = Question { which_chain, numbers: wanted.clone() };
            question.numbers.extend(compared);
            question.numbers.extend(anchor.filter(|it| must_show(&endpoint, *it)).map(|it| it.number));
            let polling = Polling { dialect, endpoint, news: Arc::clone(&self.news) };
            polls.spawn(async move { polling.run(question, anchor).await });
        }
    }

    /// The votes of the healthy endpoints, after they were counted in the agreement.
    fn hear(&self) -> Vec<Vote> {
        let (must, now) = (self.statuses.agree(), Instant::now());
        self.report_what_is_not_checked(must);
        let mut agreement = self.agreement();
        let vote = |(index, endpoint): (usize, &Arc<Endpoint<D>>)| {
            endpoint.vote(now, |Said { latest, finals, hashes, .. }| {
                let (finals, hashes) = (finals.clone(), hashes.clone());
                Vote { index, id: endpoint.id.clone(), latest: *latest, finals, hashes }
            })
        };
        let mut votes: Vec<Vote> = self.endpoints.iter().enumerate().filter_map(vote).collect();
        let others: Vec<String> = self.endpoints.iter().filter_map(|endpoint| endpoint.why_of_no_use(now)).collect();
        let contradicting = agreement.hear(&votes, must, &others.join("; "));
        drop(agreement);
        for (index, says, agreed) in contradicting {
            let endpoint = &self.endpoints[index];
            let id = endpoint.id.clone();
            endpoint.failed(&RpcError::Contradicts { chain: self.chain, endpoint: id, says, agreed }.into());
            votes.retain(|vote| vote.index != index);
        }
        // Without batches a hash costs a request of its own.
        if D::BATCH_MAX > 1 {
            self.branches().hear(&votes);
        }
        votes
    }

    fn report_what_is_not_checked(&self, must: usize) {
        let unchecked = match (must, self.endpoints.len()) {
            (0 | 1, 1) => "what it calls final is checked by no other endpoint: it is the only one",
            (0 | 1, _) => "what one endpoint calls final is checked by no other: agree is 1",
            _ => "",
        };
        self.endpoints.iter().for_each(|endpoint| endpoint.set_unchecked(unchecked));
    }

    fn good(&self) -> impl Iterator<Item = &Arc<Endpoint<D>>> {
        let now = Instant::now();
        self.endpoints.iter().filter(move |endpoint| endpoint.standing(now) == Availability::Good)
    }

    /// How many endpoints could report a block: all but those of another chain.
    pub fn of_this_chain(&self) -> usize {
        self.endpoints.iter().filter(|endpoint| !endpoint.is_of_wrong_chain()).count()
    }

    pub fn chain(&self) -> Chain {
        self.chain
    }

    /// No endpoint is of use.
    pub fn nobody(&self) -> D::Error {
        if let Some(error) = self.newer() {
            return error;
        }
        let now = Instant::now();
        let reasons: Vec<String> = self.endpoints.iter().filter_map(|endpoint| endpoint.why_of_no_use(now)).collect();
        let reasons = if reasons.is_empty() {
            format!("{}: the endpoints failed a moment ago and are healthy again", self.chain)
        } else {
            reasons.join("; ")
        };
        RpcError::NoEndpoint { chain: self.chain, reasons, permanent: self.of_this_chain() == 0 }.into()
    }

    /// What only a newer version can prove, when the last polls of all endpoints showed the same: then it is a fork of
    /// the chain, and not one endpoint's lie.
    fn newer(&self) -> Option<D::Error> {
        let mut shown = self.endpoints.iter().filter(|endpoint| !endpoint.is_of_wrong_chain()).map(|one| one.newer());
        let (error, first) = shown.next()??;
        shown.all(|other| other.is_some_and(|(_, what)| what == first)).then_some(error)
    }

    pub(crate) fn agreement(&self) -> MutexGuard<'_, Agreement> {
        self.agreement.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn branches(&self) -> MutexGuard<'_, Branches> {
        self.branches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn leader(&self) -> MutexGuard<'_, Option<usize>> {
        self.leader.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
