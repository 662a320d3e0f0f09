//! Chooses the endpoint that serves a read, and the next one when that fails.
//!
//! Promises: a read that fails is tried at once on each other usable endpoint, once. If one endpoint alone does not
//! understand a call, that is its own failure (`outcome`). Nothing is decided about what was read: a short list is only
//! a reason to ask another endpoint.
//!
//! The order of endpoints: those that serve the methods; then healthy ones, then those after a cool-down, then those in
//! cool-down. Among equals these come last:
//! - those in the minority
//! - unresponsive ones
//! - those behind the blocks of the read
//! - those that may not be asked yet (`pace`)
//!
//! An endpoint in cool-down is asked only if there is no other, or for a second vote. An unresponsive one is not asked
//! for a second vote while others respond. A quarantined one is never asked.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::time::Instant;

use crate::dialect::{Dialect, Fault};
use crate::pool::endpoint::{Availability, Endpoint};
use crate::pool::outcome::Outcome;
use crate::pool::{Pool, Wait};

/// What a read needs of the endpoint that serves it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Need {
    /// Blocks from here
    pub first: u64,
    /// to here, inclusive.
    pub last: u64,
    pub methods: &'static [&'static str],
}

/// What several endpoints reported of one thing.
#[derive(Debug)]
pub struct Responses<'a, D: Dialect, T> {
    /// In the order in which they were asked.
    pub reported: Vec<(&'a Endpoint<D>, T)>,
    /// Who failed at it, and how; without those that only do not have it.
    pub failed: Vec<(&'a Endpoint<D>, D::Error)>,
    /// Why others reported nothing.
    pub missing: Vec<String>,
    /// One of those does not have it (yet), and serves all else.
    pub is_not_found: bool,
    /// Those of them that could not be asked, or failed at it, and whose vote would count.
    pub unanswered: Vec<(&'a Endpoint<D>, String)>,
}

impl<D: Dialect> Pool<D> {
    /// Reads from the best endpoint for `need`, and from the next when it fails.
    ///
    /// # Errors
    /// When all failed, the last failure, or that an upgrade is needed. What no other endpoint could answer either, at
    /// once.
    pub async fn call<'a, T>(
        &'a self,
        need: Need,
        read: impl Fn(&'a Endpoint<D>) -> BoxFuture<'a, Result<T, D::Error>> + Send,
    ) -> Result<T, D::Error> {
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

    /// As [`Pool::call`], for a list with an item for each number, on chains that skip none. An endpoint whose own
    /// newest block says that it has more than it shows is left for another. The longest list counts, for a reorg may
    /// have made it shorter.
    ///
    /// # Errors
    /// As [`Pool::call`]; a short list is no error.
    pub async fn call_range<'a, T: Send>(
        &'a self,
        need: Need,
        most: usize,
        read: impl Fn(&'a Endpoint<D>) -> BoxFuture<'a, Result<Vec<T>, D::Error>> + Send,
    ) -> Result<Vec<T>, D::Error> {
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
                    if let Some(last) =
                        u64::try_from(items.len()).ok().and_then(|count| (need.first + count).checked_sub(1))
                    {
                        outcome.one_understands_through(last);
                    }
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
        match longest {
            // An endpoint that has none of the blocks says nothing of what others show in them.
            Some(items) if items.is_empty() => outcome.newer().map_or(Ok(items), Err),
            Some(items) => Ok(items),
            None => Err(outcome.error()),
        }
    }

    /// Records why `endpoint` did not serve a read that goes on at others.
    pub fn noted(&self, endpoint: &Endpoint<D>, error: &D::Error) {
        match D::fault(error) {
            Fault::NotFound => endpoint.not_found(error),
            Fault::Failing | Fault::Unsound | Fault::WrongChain | Fault::TooNew { .. } | Fault::Permanent => {
                endpoint.failed(error);
            }
        }
    }

    /// Reads from one endpoint after the other until `enough`, for what several must report alike. `reported` is what
    /// some of them reported before. Also asks those in cool-down, but unresponsive ones only when all are.
    ///
    /// # Errors
    /// What no endpoint can answer, and why none reported anything.
    pub async fn call_each<'a, T: Send>(
        &'a self,
        need: Need,
        reported: Vec<(&'a Endpoint<D>, T)>,
        read: impl Fn(&'a Endpoint<D>) -> BoxFuture<'a, Result<T, D::Error>> + Send,
        enough: impl Fn(&[(&'a Endpoint<D>, T)]) -> bool + Send,
    ) -> Result<Responses<'a, D, T>, D::Error> {
        self.call_each_but(Vec::new(), need, reported, read, enough).await
    }

    /// As [`Pool::call_each`], without those that have already `failed`.
    ///
    /// # Errors
    /// As [`Pool::call_each`].
    pub async fn call_each_but<'a, T: Send>(
        &'a self,
        failed: Vec<(&'a Endpoint<D>, D::Error)>,
        need: Need,
        reported: Vec<(&'a Endpoint<D>, T)>,
        read: impl Fn(&'a Endpoint<D>) -> BoxFuture<'a, Result<T, D::Error>> + Send,
        enough: impl Fn(&[(&'a Endpoint<D>, T)]) -> bool + Send,
    ) -> Result<Responses<'a, D, T>, D::Error> {
        let mut outcome = Outcome::new(self);
        let mut responses =
            Responses { reported, failed, missing: Vec::new(), is_not_found: false, unanswered: Vec::new() };
        let mut unasked: BTreeSet<usize> = self.endpoints.iter().map(|endpoint| endpoint.index).collect();
        let of_use = self.of_use(need).await;
        let begun = Instant::now();
        let is_answered = of_use.iter().any(|endpoint| endpoint.unresponsive(begun).is_none());
        for endpoint in of_use {
            unasked.remove(&endpoint.index);
            if responses.reported.iter().any(|(other, _)| std::ptr::eq(*other, endpoint)) {
                continue;
            }
            if enough(&responses.reported) {
                break;
            }
            if let Some(why) = endpoint.unresponsive(begun).filter(|_| is_answered) {
                responses.missing.push(why.clone());
                responses.unanswered.push((endpoint, why));
                continue;
            }
            if let Some((_, error)) = responses.failed.iter().find(|(other, _)| std::ptr::eq(*other, endpoint)) {
                responses.missing.push(error.to_string());
                responses.unanswered.push((endpoint, error.to_string()));
                outcome.failed_before(error);
                continue;
            }
            let begun = Instant::now();
            match read(endpoint).await {
                Ok(value) => {
                    endpoint.answered(begun, None);
                    responses.reported.push((endpoint, value));
                }
                Err(error) => {
                    responses.missing.push(error.to_string());
                    let is_not_found = D::fault(&error) == Fault::NotFound;
                    responses.is_not_found |= is_not_found;
                    if !is_not_found {
                        responses.unanswered.push((endpoint, error.to_string()));
                        responses.failed.push((endpoint, endpoint.as_its_own(error.clone())));
                    }
                    outcome.failed(endpoint, error)?;
                }
            }
        }
        if responses.reported.is_empty() {
            return Err(outcome.error());
        }
        outcome.one_understands();
        let now = Instant::now();
        for endpoint in self.endpoints.iter().filter(|endpoint| unasked.contains(&endpoint.index)) {
            let why = endpoint.why_of_no_use(now);
            if endpoint.response_would_count(now) {
                responses
                    .unanswered
                    .push((endpoint, why.clone().unwrap_or_else(|| "it could not be asked".to_owned())));
            }
            responses.missing.extend(why);
        }
        Ok(responses)
    }

    /// Whether an endpoint cannot be asked now whose vote would count: it must be left alone, or has not reported its
    /// chain yet. A quarantined one would not be believed.
    pub fn misses_somebody(&self) -> bool {
        let now = Instant::now();
        self.endpoints.iter().any(|endpoint| endpoint.response_would_count(now))
    }

    /// The endpoints for a read, the best first.
    pub async fn candidates(&self, need: Need) -> Vec<&Endpoint<D>> {
        let (mut candidates, now) = (self.of_use(need).await, Instant::now());
        // Those in cool-down are asked only when there is no other.
        if candidates.iter().any(|endpoint| endpoint.standing(now) < Availability::CoolingDown) {
            candidates.retain(|endpoint| endpoint.standing(now) < Availability::CoolingDown);
        }
        candidates
    }

    /// The same, followed by those in cool-down, for a caller that needs a second vote. While none is healthy, it
    /// polls first.
    pub async fn of_use(&self, need: Need) -> Vec<&Endpoint<D>> {
        if self.good().next().is_none() {
            self.poll(&BTreeSet::new(), Wait::Grace, || false).await;
        }
        let (now, leader) = (Instant::now(), *self.leader());
        let branches = self.branches();
        let of_use = |(_, endpoint): &(usize, &Arc<Endpoint<D>>)| endpoint.standing(now) < Availability::None;
        let mut endpoints: Vec<(usize, &Arc<Endpoint<D>>)> = self.endpoints.iter().enumerate().filter(of_use).collect();
        endpoints.sort_by_cached_key(|(place, endpoint)| {
            let serves = need.methods.iter().all(|method| endpoint.learnt.is_served(method, now));
            let head = endpoint.head().unwrap_or_default();
            let missing = need.last.saturating_sub(head);
            let (wait, leads) = (endpoint.pace.wait(now), leader == Some(endpoint.index));
            let minorities = !leads && branches.is_minority(*place);
            // It may report its head and no block: each read would wait for it again.
            let (standing, is_unresponsive) = (endpoint.standing(now), endpoint.unresponsive(now).is_some());
            (
                !serves,
                standing,
                minorities,
                is_unresponsive,
                missing,
                wait,
                !leads,
                endpoint.latency_ms(),
                endpoint.index,
            )
        });
        endpoints.into_iter().map(|(_, endpoint)| &**endpoint).collect()
    }
}
