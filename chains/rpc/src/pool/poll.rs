//! One poll of one endpoint; it runs to its end even if nobody waits for it any more.
//!
//! Promises: a report is accepted only when it is proved, and from a quarantined endpoint only when it shows the block
//! that several agreed on last. However a poll ends, those who wait for news are notified.

use std::sync::Arc;

use landfall_chain::BlockRef;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::dialect::{Dialect, Fault, Question};
use crate::pool::endpoint::Endpoint;

/// Ends a poll, however it ends.
pub(crate) struct Polling<D: Dialect> {
    pub(crate) dialect: Arc<D>,
    pub(crate) endpoint: Arc<Endpoint<D>>,
    pub(crate) news: Arc<Notify>,
}

impl<D: Dialect> Polling<D> {
    pub(crate) async fn run(self, question: Question, anchor: Option<BlockRef>) {
        let endpoint = &*self.endpoint;
        let begun = Instant::now();
        let is_quarantined = endpoint.is_quarantined();
        let outcome = self.dialect.poll(endpoint, &question).await;
        endpoint.set_newer(match &outcome {
            Err(error) => match D::fault(error) {
                Fault::TooNew { what, .. } => Some((error.clone(), what)),
                Fault::Failing | Fault::NotFound | Fault::Unsound | Fault::WrongChain | Fault::Permanent => None,
            },
            Ok(_) => None,
        });
        match outcome {
            Ok(word) => {
                let shows = |anchor: BlockRef| word.hashes.get(&anchor.number) == Some(&anchor.hash);
                if is_quarantined && !anchor.is_none_or(shows) {
                    endpoint.stays_out();
                } else {
                    endpoint.polled(&*self.dialect, word, begun, question.which_chain);
                }
                endpoint.set_prompt(begun.elapsed() <= endpoint.timings.grace);
            }
            Err(error) => match D::fault(&error) {
                Fault::Unsound | Fault::WrongChain => endpoint.failed(&error),
                Fault::Failing | Fault::NotFound | Fault::TooNew { .. } | Fault::Permanent if is_quarantined => {
                    endpoint.stays_out();
                }
                Fault::Failing | Fault::NotFound | Fault::TooNew { .. } | Fault::Permanent => endpoint.failed(&error),
            },
        }
    }
}

impl<D: Dialect> Drop for Polling<D> {
    fn drop(&mut self) {
        self.endpoint.end_poll();
        self.news.notify_waiters();
    }
}
