//! What one endpoint is asked, and how its answers and refusals are named.
//!
//! Promises: what is too much for the node at once is asked for in parts. A batch that it refuses as a whole is asked
//! for call by call. What it says of its limits is learnt. Every error names the endpoint and the method, and no
//! secret. Calls that are asked aside (traces, account proofs) say nothing of how the endpoint serves all else: no
//! pause and no latency is learnt from them, and their pace and batch size are their own. Retries nothing.

use serde::Deserialize;
use tokio::time::Instant;

use crate::dialect::Dialect;
use crate::error::RpcError;
use crate::http::answer::{Answer, Raw};
use crate::http::{Call, Failure, NodeError};
use crate::limits::Limit;
use crate::pool::endpoint::Endpoint;

/// What the answers to some calls say of the endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Weight {
    /// How it serves.
    Counts,
    /// Nothing of all else: such calls are expensive, often served by other machines and paid for by another tariff.
    Aside,
}

/// What is done with a batch that is refused as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Whole {
    OneByOne,
    Fails,
}

impl<D: Dialect> Endpoint<D> {
    /// Sends all calls, in one request where the node serves as many; the answers are in their order. What is too much
    /// for the node at once is asked for in parts, and a batch that it refuses as a whole call by call.
    ///
    /// # Errors
    /// No answer to one of the parts, or none that can be parsed. A call that the node refused is no error here: the
    /// refusal is among the answers.
    pub async fn ask(&self, calls: &[Call]) -> Result<Vec<Answer>, D::Error> {
        self.ask_in_parts(calls, Weight::Counts, Whole::OneByOne).await
    }

    /// As [`Endpoint::ask`], but a batch that the node refuses as a whole fails: for a caller who knows which call may
    /// be the cause.
    ///
    /// # Errors
    /// As [`Endpoint::ask`].
    pub async fn ask_together(&self, calls: &[Call]) -> Result<Vec<Answer>, D::Error> {
        self.ask_in_parts(calls, Weight::Counts, Whole::Fails).await
    }

    /// As [`Endpoint::ask`], for calls that other reads must never wait for: if they are slow, or too many, everything
    /// else is still asked.
    ///
    /// # Errors
    /// As [`Endpoint::ask`].
    pub async fn ask_aside(&self, calls: &[Call]) -> Result<Vec<Answer>, D::Error> {
        self.ask_in_parts(calls, Weight::Aside, Whole::OneByOne).await
    }

    async fn ask_in_parts(&self, calls: &[Call], weight: Weight, whole: Whole) -> Result<Vec<Answer>, D::Error> {
        let mut answers = Vec::with_capacity(calls.len());
        let mut width = self.learnt.batch(weight, Instant::now());
        while let Some(next) = calls.get(answers.len()) {
            let cooldown = &calls[answers.len()..];
            let part = &cooldown[..cooldown.len().min(width)];
            match self.exchange(part, weight).await {
                Ok(more) => answers.extend(more),
                Err(Failure { limit: Some(Limit::BatchTooLarge { .. }), .. }) if part.len() > 1 => {
                    width = self.learnt.batch(weight, Instant::now()).min(part.len() / 2).max(1);
                }
                // So many of these blocks are too much: that says nothing of others.
                Err(Failure { limit: Some(Limit::TooManyResults { .. }), .. }) if part.len() > 1 => {
                    width = part.len() / 2;
                }
                Err(Failure { refused: Some(code), reason, limit }) if part.len() > 1 && whole == Whole::OneByOne => {
                    let alone = self.one_by_one(part, code, weight).await;
                    let alone = alone.map_err(|failure| self.call_error(next.method, failure.reason))?;
                    let Some(alone) = alone else { return Err(self.call_error(next.method, reason)) };
                    // Where one call alone is refused too, the batch may have been refused because of it.
                    if alone.iter().all(Result::is_ok) {
                        self.learnt.batch_refused(&reason, limit, weight, Instant::now());
                    }
                    answers.extend(alone);
                }
                Err(failure) => return Err(self.call_error(next.method, failure.reason)),
            }
        }
        Ok(answers)
    }

    /// The answers to the calls of a batch that was refused as a whole with this code, each asked for alone. `None` as
    /// soon as one of them is refused with the same code: then batches were not the cause.
    async fn one_by_one(&self, batch: &[Call], code: i64, weight: Weight) -> Result<Option<Vec<Answer>>, Failure> {
        let mut answers = Vec::with_capacity(batch.len());
        for call in batch {
            answers.extend(self.exchange(std::slice::from_ref(call), weight).await?);
            if answers.last().is_some_and(|answer| answer.as_ref().is_err_and(|error| error.code == code)) {
                return Ok(None);
            }
        }
        Ok(Some(answers))
    }

    /// The answers, when the node refused none of the calls.
    ///
    /// # Errors
    /// As [`Endpoint::ask`], and the first refusal.
    pub async fn ask_all(&self, calls: &[Call]) -> Result<Vec<Raw>, D::Error> {
        let answers = self.ask(calls).await?.into_iter().zip(calls);
        answers.map(|(answer, call)| answer.map_err(|error| self.refused(call.method, &error))).collect()
    }

    /// Reads an answer to `method`.
    ///
    /// # Errors
    /// When it is not what was asked for.
    pub fn parse<'a, T: Deserialize<'a>>(&self, method: &'static str, answer: &'a Raw) -> Result<T, D::Error> {
        serde_json::from_str(answer.get()).map_err(|error| self.unusable(method, &error.to_string()))
    }

    /// The node said no to a call.
    pub fn refused(&self, method: &'static str, error: &NodeError) -> D::Error {
        self.call_error(method, error.to_string())
    }

    /// Whether it has not refused the method lately.
    pub fn may_serve(&self, method: &str) -> bool {
        self.learnt.is_served(method, Instant::now())
    }

    /// The node answered, but not with what was asked for.
    pub fn unusable(&self, method: &'static str, reason: &str) -> D::Error {
        let reason = self.rpc.clean(reason);
        RpcError::Answer { chain: self.chain, endpoint: self.id.clone(), method, reason }.into()
    }

    /// It does not have what was asked for, and serves all else.
    pub fn lacks(&self, what: String) -> D::Error {
        RpcError::Lacks { chain: self.chain, endpoint: self.id.clone(), what }.into()
    }

    /// Foreign text, fit to be shown: without secrets and control characters, on one line, not too long.
    pub fn clean(&self, text: &str) -> String {
        self.rpc.clean(text)
    }

    /// How many blocks one range of a search at this endpoint may cover.
    pub fn range_width(&self) -> u64 {
        self.learnt.range_width()
    }

    /// A range of `width` blocks was too much. Returns whether a narrower one is worth a try.
    pub fn range_refused(&self, limit: Limit, width: u64) -> bool {
        self.learnt.range_refused(limit, width)
    }

    /// A range of `width` blocks was served with so many bytes.
    pub fn range_served(&self, width: u64, bytes: usize) {
        self.learnt.range_served(width, bytes);
    }

    /// How many calls one request to this endpoint may hold, unless they are asked aside.
    pub fn batch_width(&self) -> usize {
        self.learnt.batch(Weight::Counts, Instant::now())
    }

    fn call_error(&self, method: &'static str, reason: String) -> D::Error {
        RpcError::Call { chain: self.chain, endpoint: self.id.clone(), method, reason }.into()
    }

    /// One request, when it is its turn. Its limits are learnt. A call of a batch that reports too large a batch or
    /// result fails the whole.
    async fn exchange(&self, calls: &[Call], weight: Weight) -> Result<Vec<Answer>, Failure> {
        let pace = match weight {
            Weight::Counts => &self.pace,
            Weight::Aside => &self.pace_aside,
        };
        pace.turn().await;
        let begun = Instant::now();
        let outcome = self.rpc.batch(calls).await;
        let now = Instant::now();
        let method = calls.first().map_or("", |call| call.method);
        let learn = |limit: Limit, method| {
            if matches!(limit, Limit::RateLimited { pause: None }) {
                pace.refused(begun, now);
            }
            self.learnt.refused(limit, method, calls.len(), weight, now);
        };
        let answers = match outcome {
            Ok(answers) => answers,
            Err(failure) => {
                // A refusal of a batch may not hold for its calls.
                if let Some(limit) = failure.limit.filter(|_| calls.len() == 1 || failure.refused.is_none()) {
                    learn(limit, method);
                }
                // Whatever came of it in the end, somebody waited.
                if weight == Weight::Counts && now - begun >= self.timings.connect_timeout {
                    self.was_unresponsive(&self.call_error(method, failure.reason.clone()), now);
                }
                return Err(failure);
            }
        };
        if calls.len() > 1 {
            self.learnt.batch_served(weight);
        }
        if weight == Weight::Counts {
            self.took(now - begun);
            self.learnt.sent(calls.len(), answers.iter().flatten().map(|answer| answer.get().len()).sum());
        }
        let refusals = answers.iter().filter_map(|answer| answer.as_ref().err()?.limit);
        if !refusals.into_iter().any(|limit| matches!(limit, Limit::RateLimited { .. })) {
            pace.answered(now);
        }
        for (answer, call) in answers.iter().zip(calls) {
            if answer.is_ok() {
                self.serves(call.method);
            }
            let Err(error @ NodeError { limit: Some(limit), .. }) = answer else { continue };
            learn(*limit, call.method);
            if calls.len() > 1 && matches!(limit, Limit::BatchTooLarge { .. } | Limit::TooManyResults { .. }) {
                return Err(Failure::from(error));
            }
        }
        Ok(answers)
    }
}
