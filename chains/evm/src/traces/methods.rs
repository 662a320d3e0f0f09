//! Which method each endpoint traces with, as far as it was found out.
//!
//! Promises: that an endpoint has neither is forgotten after ten minutes: whoever pays for traces meanwhile, or mends a
//! node, is to be noticed. Which one it has stands until it does not answer any more.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::dialect::Endpoint;
use crate::traces::Method;
use crate::traces::engine::Engine;

/// How long an endpoint is believed that it has neither.
const NEITHER: Duration = Duration::from_secs(600);

/// What endpoints were found to have, and when, by their ids; `None`: neither.
#[derive(Default, Debug)]
pub(crate) struct Methods {
    found: Mutex<HashMap<String, (Option<Method>, Instant)>>,
    /// Which engine each ran last: it says only whom to ask first.
    engines: Mutex<HashMap<String, Engine>>,
    /// Who refuses a whole request for the sake of the question which version it is.
    without_version: Mutex<HashSet<String>>,
}

/// What is known of one endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Known {
    Nothing,
    Neither,
    Has(Method),
}

impl Methods {
    pub(crate) fn of(&self, id: &str, now: Instant) -> Known {
        match self.found().get(id) {
            Some((Some(method), _)) => Known::Has(*method),
            Some((None, at)) if now.duration_since(*at) < NEITHER => Known::Neither,
            Some((None, _)) | None => Known::Nothing,
        }
    }

    /// The endpoint has this one, or neither.
    pub(crate) fn remember(&self, id: &str, method: Option<Method>, now: Instant) {
        self.found().insert(id.to_owned(), (method, now));
    }

    pub(crate) fn forget(&self) {
        self.found().clear();
    }

    /// The endpoint ran this engine when it was last asked.
    pub(crate) fn note(&self, id: &str, engine: Engine) {
        self.engines().insert(id.to_owned(), engine);
    }

    /// Behind the first of `endpoints`, those that ran another engine than it come before all others, and before those that are
    /// known to run the same who was never asked.
    pub(crate) fn other_engines_next(&self, endpoints: &mut [&Endpoint]) {
        let engines = self.engines();
        if let Some((first, others)) = endpoints.split_first_mut() {
            let first = engines.get(&first.id).copied().unwrap_or(Engine::Unknown);
            others.sort_by_key(|other| match engines.get(&other.id) {
                Some(engine) if engine.differs_from(first) => 0,
                None => 1,
                Some(_) => 2,
            });
        }
    }

    /// Whether the endpoint refused no request yet because it was asked for its version, too.
    pub(crate) fn asks_version(&self, id: &str) -> bool {
        !self.without_version().contains(id)
    }

    /// The endpoint answers when it is not asked for its version, and not when it is.
    pub(crate) fn leave_version_out(&self, id: &str) {
        self.without_version().insert(id.to_owned());
    }

    fn without_version(&self) -> MutexGuard<'_, HashSet<String>> {
        // As `found`.
        self.without_version.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn engines(&self) -> MutexGuard<'_, HashMap<String, Engine>> {
        // As `found`.
        self.engines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn found(&self) -> MutexGuard<'_, HashMap<String, (Option<Method>, Instant)>> {
        // Each entry is a fact of its own: none is left half written.
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn that_an_endpoint_traces_nothing_is_forgotten_after_ten_minutes_and_its_method_is_not() {
        let (methods, now) = (Methods::default(), Instant::now());
        assert_eq!(methods.of("a:1", now), Known::Nothing);
        methods.remember("a:1", None, now);
        methods.remember("b:1", Some(Method::TraceBlock), now);
        let known = |secs| ["a:1", "b:1"].map(|id| methods.of(id, now + Duration::from_secs(secs)));
        assert_eq!(known(599), [Known::Neither, Known::Has(Method::TraceBlock)]);
        assert_eq!(known(600), [Known::Nothing, Known::Has(Method::TraceBlock)]);
        methods.forget();
        assert_eq!(known(0), [Known::Nothing; 2]);
    }
}
