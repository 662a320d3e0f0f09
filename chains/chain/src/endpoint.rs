//! The health of the nodes behind a source: no chain read, so not part of the trait. The source writes, the
//! watcher copies it to the store, where other processes look.
//!
//! An endpoint is named by host and port. Its path, query and credentials are secrets and never get here.

use std::sync::{Arc, Mutex, PoisonError};

/// What is known of one endpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EndpointStatus {
    /// Host and port, with `#2` behind it where two endpoints share them.
    pub id: String,
    /// Its state.
    pub state: EndpointState,
    /// Why it is in this state; empty while healthy.
    pub reason: String,
    /// The newest block number it told.
    pub latest: Option<u64>,
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
    /// It must not be asked: wrong chain, failed proof.
    Quarantined,
}

/// The endpoints of one source; clones share the state.
#[derive(Clone, Debug)]
pub struct Endpoints(Arc<Mutex<Vec<EndpointStatus>>>);

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
        let untried = |id| EndpointStatus { id, state: EndpointState::Untried, reason: String::new(), latest: None };
        Endpoints(Arc::new(Mutex::new(ids.into_iter().map(untried).collect())))
    }

    /// The statuses as they are now, in the order of configuration.
    pub fn snapshot(&self) -> Vec<EndpointStatus> {
        self.lock().clone()
    }

    /// The endpoint at `index` answered; `latest` when the answer told its newest block.
    pub fn answered(&self, index: usize, latest: Option<u64>) {
        let mut statuses = self.lock();
        let status = &mut statuses[index];
        status.state = EndpointState::Healthy;
        status.reason.clear();
        status.latest = latest.or(status.latest);
    }

    /// The endpoint at `index` did not serve, for `reason`.
    pub fn failed(&self, index: usize, state: EndpointState, reason: &str) {
        let mut statuses = self.lock();
        statuses[index].state = state;
        reason.clone_into(&mut statuses[index].reason);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<EndpointStatus>> {
        // A panic elsewhere cannot leave a status half written in a way that matters.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
