//! Which methods each endpoint is asked to trace with, as far as that is known.
//!
//! Promises: the method that worked last is asked first. That an endpoint does not have a method is forgotten after
//! ten minutes: it may have traces by then, or be repaired. A method that only failed is asked again.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::dialect::Endpoint;
use crate::traces::Method;
use crate::traces::engine::Engine;

/// How long an endpoint counts as being without a method.
const MISSING: Duration = Duration::from_secs(600);

/// What was learnt of endpoints, by their ids.
#[derive(Default, Debug)]
pub(crate) struct Methods {
    found: Mutex<HashMap<String, Found>>,
    /// Which engine each ran last: it only decides which is asked first.
    engines: Mutex<HashMap<String, Engine>>,
}

#[derive(Clone, Default, Debug)]
struct Found {
    worked: Option<Method>,
    /// What it said that it does not have, and when.
    missing: Vec<(Method, Instant)>,
}

impl Methods {
    /// The methods to ask the endpoint for, one after the other; empty for an endpoint that has none. A method that it
    /// did not have comes last: another node may answer there by now.
    pub(crate) fn of(&self, id: &str, now: Instant) -> Vec<Method> {
        let found = self.found().get(id).cloned().unwrap_or_default();
        let mut methods = Method::ALL.to_vec();
        methods.sort_by_key(|method| (found.is_missing(*method, now), Some(*method) != found.worked));
        let has_one = methods.first().is_some_and(|method| !found.is_missing(*method, now));
        if has_one { methods } else { Vec::new() }
    }

    /// Whether the endpoint said lately that it does not have this one.
    pub(crate) fn is_missing(&self, id: &str, method: Method, now: Instant) -> bool {
        self.found().get(id).is_some_and(|found| found.is_missing(method, now))
    }

    /// The endpoint reported traces by this one.
    pub(crate) fn worked(&self, id: &str, method: Method) {
        self.note(id, method, |found| found.worked = Some(method));
    }

    /// The endpoint said that it does not have this one.
    pub(crate) fn missing(&self, id: &str, method: Method, now: Instant) {
        self.note(id, method, |found| found.missing.push((method, now)));
    }

    pub(crate) fn forget(&self) {
        self.found().clear();
    }

    /// The endpoint ran this engine when it was last asked.
    pub(crate) fn note_engine(&self, id: &str, engine: Engine) {
        self.engines().insert(id.to_owned(), engine);
    }

    /// Sorts those behind the first of `endpoints`: first those that ran another engine than it, then those that were
    /// never asked, last those known to run the same.
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

    fn engines(&self) -> MutexGuard<'_, HashMap<String, Engine>> {
        // As `found`.
        self.engines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, id: &str, method: Method, change: impl FnOnce(&mut Found)) {
        let mut all = self.found();
        let found = all.entry(id.to_owned()).or_default();
        found.missing.retain(|(other, _)| *other != method);
        change(found);
    }

    fn found(&self) -> MutexGuard<'_, HashMap<String, Found>> {
        // Each entry is a fact of its own: none is left half written.
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Found {
    fn is_missing(&self, method: Method, now: Instant) -> bool {
        self.missing.iter().any(|(other, at)| *other == method && now.saturating_duration_since(*at) < MISSING)
    }
}

#[cfg(test)]
mod tests {
    use super::Method::{CallTracer, TraceBlock};
    use super::*;

    #[test]
    fn the_method_that_worked_last_is_asked_first_and_a_missing_one_last_for_ten_minutes() {
        let (methods, now) = (Methods::default(), Instant::now());
        let after = |secs| methods.of("a:1", now + Duration::from_secs(secs));
        assert_eq!(after(0), [CallTracer, TraceBlock]);
        methods.worked("a:1", TraceBlock);
        assert_eq!(after(1_000), [TraceBlock, CallTracer]);
        methods.missing("a:1", TraceBlock, now);
        assert_eq!((after(599), after(600)), (vec![CallTracer, TraceBlock], vec![TraceBlock, CallTracer]));
        assert!(methods.is_missing("a:1", TraceBlock, now) && !methods.is_missing("a:1", CallTracer, now));
        methods.missing("a:1", CallTracer, now);
        assert_eq!((after(599), after(600)), (vec![], vec![TraceBlock, CallTracer]));
        methods.worked("a:1", CallTracer);
        assert_eq!(after(0), [CallTracer, TraceBlock]);
        assert_eq!(methods.of("b:1", now), Method::ALL);
        methods.forget();
        assert_eq!(after(0), Method::ALL);
    }
}
