//! One poll of one endpoint, which runs to its end whoever stops waiting for it.
//!
//! Promises: what it says is taken only when it is proved, and of an endpoint in quarantine only when it shows the block
//! that several agreed on last. However a poll ends, who waits for news is told.

use std::sync::Arc;
use std::time::Duration;

use landfall_chain::BlockRef;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::error::EvmError;
use crate::pool::endpoint::Endpoint;
use crate::pool::tip::{Question, read_word};

/// How long the first good answer waits for those of other endpoints that are usually as fast.
pub(crate) const GRACE: Duration = Duration::from_millis(300);

/// Ends a poll, however it ends.
pub(crate) struct Polling {
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) news: Arc<Notify>,
}

impl Polling {
    pub(crate) async fn run(self, question: Question, anchor: Option<BlockRef>) {
        let endpoint = &*self.endpoint;
        let begun = Instant::now();
        let is_quarantined = endpoint.is_quarantined();
        let outcome = read_word(endpoint, &question).await;
        endpoint.set_newer(match &outcome {
            Err(EvmError::NewHeader { block, field, .. }) => Some((*block, field.clone())),
            Ok(_) | Err(_) => None,
        });
        match outcome {
            Ok(word) => {
                let shows = |anchor: BlockRef| word.hashes.get(&anchor.number) == Some(&anchor.hash);
                if is_quarantined && !anchor.is_none_or(shows) {
                    endpoint.stays_out();
                } else {
                    endpoint.told(word, begun, question.chain_id.is_some());
                }
                endpoint.set_prompt(begun.elapsed() <= GRACE);
            }
            Err(error @ (EvmError::ProofFailed { .. } | EvmError::WrongChain { .. })) => endpoint.failed(&error),
            Err(_) if is_quarantined => endpoint.stays_out(),
            Err(error) => endpoint.failed(&error),
        }
    }
}

impl Drop for Polling {
    fn drop(&mut self) {
        self.endpoint.end_poll();
        self.news.notify_waiters();
    }
}
