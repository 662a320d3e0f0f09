//! What the API does beside requests: it writes when keys were last used, in one transaction for many requests, and
//! deletes what is no longer needed.
//!
//! Promises: no request writes in order to be noted. What could not be written is written next time. A kill loses up to
//! some seconds of "last used", which is the price.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::api::AppState;
use crate::store::{StoreError, keys, nonces};
use crate::time::Timestamp;

/// How old "last used" may be.
const PAUSE: Duration = Duration::from_secs(5);
/// How far the clocks of other machines on the same store may be behind this one's. Such a machine would accept a nonce
/// that was deleted too early.
const AHEAD_MAX: Duration = Duration::from_secs(3_600);

/// When keys were last used, where it is not written yet: at most one entry for each key.
#[derive(Debug, Default)]
pub(super) struct LastUsed(Mutex<BTreeMap<String, Timestamp>>);

impl LastUsed {
    pub(super) fn note(&self, id: &str, at: Timestamp) {
        let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match used.get_mut(id) {
            Some(last) => *last = at.max(*last),
            None => drop(used.insert(id.to_owned(), at)),
        }
    }

    fn take(&self) -> BTreeMap<String, Timestamp> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Ticks until `stop`, and once more then.
pub(super) async fn run(state: AppState, stop: CancellationToken) {
    loop {
        let stopped = stop.is_cancelled();
        if let Err(error) = tick(&state).await {
            warn!("the last use of keys could not be written and will be tried again: {error}");
        }
        if stopped {
            return;
        }
        stop.run_until_cancelled(tokio::time::sleep(PAUSE)).await;
    }
}

/// Writes when keys were last used, and deletes what is no longer needed.
pub(super) async fn tick(state: &AppState) -> Result<(), StoreError> {
    let now = state.clock.now();
    state.gate.forget();
    state.nonces.forget(now);
    let used = state.last_used.take();
    let written = write(state, &used, now).await;
    if written.is_err() {
        for (id, at) in &used {
            state.last_used.note(id, *at);
        }
    }
    written
}

async fn write(state: &AppState, used: &BTreeMap<String, Timestamp>, now: Timestamp) -> Result<(), StoreError> {
    let mut tx = state.db.begin().await?;
    for (id, at) in used {
        keys::used(&mut tx, id, *at).await?;
    }
    nonces::forget(&mut tx, now.minus(AHEAD_MAX)).await?;
    tx.commit().await
}
