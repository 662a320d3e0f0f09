//! Which method each endpoint traces with, as far as it was found out.
//!
//! Promises: that an endpoint has neither is forgotten after ten minutes: whoever pays for traces meanwhile, or mends a
//! node, is to be noticed. Which one it has stands until it does not answer any more.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::traces::Method;

/// How long an endpoint is believed that it has neither.
const NEITHER: Duration = Duration::from_secs(600);

/// What endpoints were found to have, and when, by their ids; `None`: neither.
#[derive(Default, Debug)]
pub(crate) struct Methods(Mutex<HashMap<String, (Option<Method>, Instant)>>);

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

    fn found(&self) -> MutexGuard<'_, HashMap<String, (Option<Method>, Instant)>> {
        // Each entry is a fact of its own: none is left half written.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
