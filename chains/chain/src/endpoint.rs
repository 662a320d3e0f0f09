//! The health of the nodes behind a source. It reads no chain, so it is not part of the trait. The source writes it;
//! the watcher copies it to the store, where other processes read it.
//!
//! An endpoint is named by host and port. Its path, query and credentials are secrets and never get here.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What is known of one endpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EndpointStatus {
    /// Host and port, with `#2` behind it where two endpoints share them.
    pub id: String,
    /// Its state.
    pub state: EndpointState,
    /// Why it is in this state. While it is healthy, what an operator should know of it: mostly nothing.
    pub reason: String,
    /// The newest block number it reported.
    pub latest: Option<u64>,
    /// How long its requests take: a moving average.
    pub latency_ms: Option<u64>,
    /// The calls that it refuses until a person does something about it, by method and, where that matters, by what is
    /// asked. An answer to such a call removes its entry.
    pub refused: BTreeMap<&'static str, Refused>,
}

/// A call that an endpoint refuses for good.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// What it said last, and what to do about it.
    pub why: String,
    /// How often it has refused since it answered last.
    pub times: u64,
}

/// Whether an endpoint is of use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EndpointState {
    /// Not asked yet.
    Untried,
    /// Its last answer was good.
    Healthy,
    /// Its last answer was an error.
    Failing,
    /// It must not be asked: wrong chain, failed proof. It is polled again now and then.
    Quarantined,
}

/// The endpoints of one source; clones share the state.
#[derive(Clone, Debug)]
pub struct Endpoints(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    statuses: Mutex<Vec<EndpointStatus>>,
    agree: AtomicUsize,
    /// An operator's override of `agree`; 0 is none.
    agree_override: AtomicUsize,
}

impl EndpointState {
    /// The name that is stored and shown.
    pub const fn name(self) -> &'static str {
        match self {
            EndpointState::Untried => "untried",
            EndpointState::Healthy => "healthy",
            EndpointState::Failing => "failing",
            EndpointState::Quarantined => "quarantined",
        }
    }
}

impl Endpoints {
    /// One status per id, untried.
    pub fn new(ids: impl IntoIterator<Item = String>) -> Self {
        let untried = |id| EndpointStatus {
            id,
            state: EndpointState::Untried,
            reason: String::new(),
            latest: None,
            latency_ms: None,
            refused: BTreeMap::new(),
        };
        Endpoints(Arc::new(Shared {
            statuses: Mutex::new(ids.into_iter().map(untried).collect()),
            agree: AtomicUsize::new(1),
            agree_override: AtomicUsize::new(0),
        }))
    }

    /// How many endpoints must report the same as final before it counts; at least one.
    pub fn agree(&self) -> usize {
        match self.0.agree_override.load(Ordering::Relaxed) {
            0 => self.0.agree.load(Ordering::Relaxed),
            count => count,
        }
    }

    /// Sets what is configured.
    pub fn set_agree(&self, count: usize) {
        self.0.agree.store(count.max(1), Ordering::Relaxed);
    }

    /// An operator's override of the configuration; `None` ends it. It counts from the source's next call. The caller
    /// records who decided, and why.
    pub fn override_agree(&self, count: Option<usize>) {
        self.0.agree_override.store(count.map_or(0, |count| count.max(1)), Ordering::Relaxed);
    }

    /// The statuses as they are now, in the order of configuration.
    pub fn snapshot(&self) -> Vec<EndpointStatus> {
        self.lock().clone()
    }

    /// The endpoint at `index` answered; `latest` when the answer reported its newest block.
    pub fn answered(&self, index: usize, latest: Option<u64>) {
        self.healthy(index, latest, None, "");
    }

    /// As [`Endpoints::answered`], with how long its requests take and what an operator should know of it.
    pub fn healthy(&self, index: usize, latest: Option<u64>, latency_ms: Option<u64>, note: &str) {
        let mut statuses = self.lock();
        let status = &mut statuses[index];
        status.state = EndpointState::Healthy;
        note.clone_into(&mut status.reason);
        status.latest = latest.or(status.latest);
        status.latency_ms = latency_ms.or(status.latency_ms);
    }

    /// The endpoint at `index` did not serve, for `reason`.
    pub fn failed(&self, index: usize, state: EndpointState, reason: &str) {
        let mut statuses = self.lock();
        statuses[index].state = state;
        reason.clone_into(&mut statuses[index].reason);
    }

    /// The endpoint at `index` refuses calls of `method`, and will until a person acts: `why` says what to do.
    pub fn refuses(&self, index: usize, method: &'static str, why: &str) {
        let mut statuses = self.lock();
        let refused = statuses[index].refused.entry(method).or_insert_with(|| Refused { why: String::new(), times: 0 });
        why.clone_into(&mut refused.why);
        refused.times += 1;
    }

    /// The endpoint at `index` answered a call of `method`.
    pub fn serves(&self, index: usize, method: &str) {
        self.lock()[index].refused.remove(method);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<EndpointStatus>> {
        // A panic elsewhere cannot leave a status half written in a way that matters.
        self.0.statuses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
