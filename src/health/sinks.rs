//! The sinks in the status report: whether a process publishes to each, and what waits. A sink that stands still for
//! longer than allowed is a fault, although none of its waiting events is lost.

use std::time::Duration;

use serde::Serialize;

use crate::health::HEARTBEAT_MAX;
use crate::store::sinks::{self, SinkStatus, State};
use crate::store::{Connection, StoreError};
use crate::time::Timestamp;

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct SinkReport {
    pub id: String,
    /// As a webhook's: ACTIVE, FAILING (it refuses events), PAUSED.
    pub status: String,
    /// `up`, `away` (not reached), `refused` (reached, but not as it must be), `silent` (no process publishes to it).
    pub state: &'static str,
    /// Why it is not up; empty when it is.
    pub reason: String,
    /// For how long this has been so.
    pub secs: u64,
    /// Events that it has not got yet.
    pub pending: u64,
    /// For how long the first of them has waited: since it was due, or since it was written if it has failed already.
    pub oldest_secs: Option<u64>,
}

impl SinkReport {
    pub(super) async fn read(connection: &mut impl Connection, now: Timestamp) -> Result<Vec<Self>, StoreError> {
        Ok(sinks::all(connection).await?.into_iter().map(|sink| SinkReport::of(sink, now)).collect())
    }

    fn of(sink: SinkStatus, now: Timestamp) -> Self {
        let SinkStatus { id, status, state, reason, since, heartbeat_at, pending, oldest_at } = sink;
        let silent = now.since(heartbeat_at);
        let (state, reason, time) = match state {
            Some(state) if silent <= HEARTBEAT_MAX => (state.name(), reason, now.since(since)),
            _ => {
                let reason = format!(
                    "no process publishes to it: run one with a section [nats], or give it up by `landfall webhook remove {id} --reason TEXT`"
                );
                ("silent", reason, silent)
            }
        };
        let oldest_secs = oldest_at.map(|at| now.since(at).as_secs());
        SinkReport { id, status, state, reason, secs: time.as_secs(), pending, oldest_secs }
    }

    pub(super) fn complaint(&self, lag_max: Duration) -> Option<String> {
        let SinkReport { id, status, state, reason, secs, pending, oldest_secs } = self;
        if *state != State::Up.name() && *secs > lag_max.as_secs() {
            return Some(format!("{id}: {state} for {secs} s, {pending} events wait: {reason}"));
        }
        let oldest = oldest_secs.filter(|oldest| *oldest > lag_max.as_secs())?;
        Some(format!("{id}: an event waits for {oldest} s, it is {status}; see `landfall event list --pending`"))
    }
}
