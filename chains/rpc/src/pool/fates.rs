//! What became of a transaction, by all endpoints that may know it.
//!
//! Promises: one that knows its block ends the search; every other one is asked before the transaction counts as unknown, and one
//! that could not be asked leaves it open, for it may know the block. Believes no block that it is told: who asks reads it.

use futures_util::future::BoxFuture;
use landfall_chain::{BlockRef, Fate};

use crate::dialect::{Dialect, Fault};
use crate::pool::Pool;
use crate::pool::endpoint::Endpoint;
use crate::pool::reads::{Heard, Need};

impl<D: Dialect> Pool<D> {
    /// The fate of a transaction at the final block `at`, as `read` asks one endpoint for it. That it can never land is believed when
    /// as many report it as must agree: one without its receipt cannot tell whether it used up its nonce itself.
    ///
    /// # Errors
    /// What no endpoint can answer.
    pub async fn fate<'a>(
        &'a self,
        at: &BlockRef,
        read: impl Fn(&'a Endpoint<D>) -> BoxFuture<'a, Result<Fate, D::Error>> + Send,
    ) -> Result<Fate, D::Error> {
        let need = Need { first: at.number, last: at.number, methods: &[] };
        let is_found = |told: &[(&Endpoint<D>, Fate)]| told.iter().any(|(_, fate)| matches!(fate, Fate::In(_)));
        let Heard { told, unheard, .. } = match self.call_each(need, Vec::new(), read, is_found).await {
            Err(error) if matches!(D::fault(&error), Fault::Failing | Fault::Unsound | Fault::Lacking) => {
                let all: Vec<&str> = self.endpoints.iter().map(|endpoint| &*endpoint.id).collect();
                return Ok(Fate::Unheard { endpoints: all.join(", "), why: error.to_string() });
            }
            heard => heard?,
        };
        let mut unheard: Vec<(String, String)> =
            unheard.into_iter().map(|(endpoint, why)| (endpoint.id.clone(), why)).collect();
        let mut superseded = 0;
        for (_, fate) in told {
            match fate {
                Fate::In(_) => return Ok(fate),
                Fate::Superseded(_) => superseded += 1,
                Fate::Unknown => {}
                Fate::Unheard { endpoints, why } => unheard.push((endpoints, why)),
            }
        }
        if !unheard.is_empty() {
            unheard.sort_unstable();
            let (endpoints, why): (Vec<_>, Vec<_>) = unheard.into_iter().unzip();
            return Ok(Fate::Unheard { endpoints: endpoints.join(", "), why: why.join("; ") });
        }
        Ok(if superseded >= self.must_agree().max(1) { Fate::Superseded(*at) } else { Fate::Unknown })
    }
}
