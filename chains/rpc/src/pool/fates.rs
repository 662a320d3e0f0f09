//! What became of a transaction, by all endpoints that may know it.
//!
//! Promises: an endpoint that knows the transaction's block ends the search. All others are asked before the
//! transaction counts as unknown. One that could not be asked leaves it open, for it may know the block. The reported
//! block is not believed: the caller reads it.

use futures_util::future::BoxFuture;
use landfall_chain::{BlockRef, Fate};

use crate::dialect::{Dialect, Fault};
use crate::pool::Pool;
use crate::pool::endpoint::Endpoint;
use crate::pool::reads::{Need, Responses};

impl<D: Dialect> Pool<D> {
    /// The fate of a transaction at the final block `at`, as `read` asks one endpoint for it. That it can never land
    /// is believed when as many endpoints report it as must agree: one that has no receipt of it cannot know whether
    /// the transaction itself used up its nonce.
    ///
    /// # Errors
    /// What no endpoint can answer.
    pub async fn fate<'a>(
        &'a self,
        at: &BlockRef,
        read: impl Fn(&'a Endpoint<D>) -> BoxFuture<'a, Result<Fate, D::Error>> + Send,
    ) -> Result<Fate, D::Error> {
        let need = Need { first: at.number, last: at.number, methods: &[] };
        let is_found = |reported: &[(&Endpoint<D>, Fate)]| reported.iter().any(|(_, fate)| matches!(fate, Fate::In(_)));
        let Responses { reported, unanswered, .. } = match self.call_each(need, Vec::new(), read, is_found).await {
            Err(error) if matches!(D::fault(&error), Fault::Failing | Fault::Unsound | Fault::NotFound) => {
                let all: Vec<&str> = self.endpoints.iter().map(|endpoint| &*endpoint.id).collect();
                return Ok(Fate::Unanswered { endpoints: all.join(", "), why: error.to_string() });
            }
            responses => responses?,
        };
        let mut unanswered: Vec<(String, String)> =
            unanswered.into_iter().map(|(endpoint, why)| (endpoint.id.clone(), why)).collect();
        let mut superseded = 0;
        for (_, fate) in reported {
            match fate {
                Fate::In(_) => return Ok(fate),
                Fate::Superseded(_) => superseded += 1,
                Fate::Unknown => {}
                Fate::Unanswered { endpoints, why } => unanswered.push((endpoints, why)),
            }
        }
        if !unanswered.is_empty() {
            unanswered.sort_unstable();
            let (endpoints, why): (Vec<_>, Vec<_>) = unanswered.into_iter().unzip();
            return Ok(Fate::Unanswered { endpoints: endpoints.join(", "), why: why.join("; ") });
        }
        Ok(if superseded >= self.must_agree().max(1) { Fate::Superseded(*at) } else { Fate::Unknown })
    }
}
