//! Hands a transaction to two endpoints, where there are two.
//!
//! Promises: nothing is sent twice to one endpoint. An endpoint that hangs delays nobody: when one has taken the
//! transaction, the other has a moment more to take it too. An endpoint that does not take transactions still serves
//! all reads as before. What a refusal means stands in the family's table; a refusal that is not in it is
//! [`BroadcastResponse::Unknown`], which decides nothing.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use landfall_chain::{BroadcastResponse, TxId};
use serde_json::Value;

use crate::dialect::Dialect;
use crate::http::Call;
use crate::pool::Pool;
use crate::pool::endpoint::Endpoint;
use crate::pool::reads::Need;

/// A transaction goes to so many endpoints.
const BROADCAST_TO_MAX: usize = 2;
/// How long the second is waited for when the first has taken it.
const SECOND_TIME_MAX: Duration = Duration::from_secs(2);

/// What is in a node's message, in lower case, and what that means. The first row that fits counts.
pub type Words = [(&'static str, BroadcastResponse)];

/// What a refusal in these words means.
pub fn refusal(words: &Words, message: &str) -> BroadcastResponse {
    let message = message.to_lowercase();
    let row = words.iter().find(|(words, _)| message.contains(words));
    row.map_or(BroadcastResponse::Unknown, |(_, response)| *response)
}

impl<D: Dialect> Pool<D> {
    /// Hands a transaction over by this method; the best that one of two endpoints said, by what `words` say of
    /// refusals.
    pub async fn broadcast(
        &self,
        tx: &TxId,
        (methods, params): (&'static [&'static str; 1], Value),
        words: &Words,
    ) -> BroadcastResponse {
        let call = [Call { method: methods[0], params }];
        let endpoints = self.of_use(Need { methods, ..Need::default() }).await;
        let mut sent: FuturesUnordered<_> =
            endpoints.into_iter().take(BROADCAST_TO_MAX).map(|endpoint| send(endpoint, tx, &call, words)).collect();
        let mut responses = Vec::new();
        while let Some(response) = sent.next().await {
            responses.push(response);
            if matches!(response, BroadcastResponse::Pooled | BroadcastResponse::Known) {
                // One has it. The other has a moment to take it too, for one that hangs must hold up nobody.
                let others = tokio::time::timeout(SECOND_TIME_MAX, sent.collect::<Vec<_>>());
                responses.extend(others.await.unwrap_or_default());
                break;
            }
        }
        BroadcastResponse::best(&responses)
    }
}

async fn send<D: Dialect>(endpoint: &Endpoint<D>, tx: &TxId, call: &[Call; 1], words: &Words) -> BroadcastResponse {
    let said = match endpoint.ask_aside(call).await.as_deref() {
        Ok([Ok(answer)]) => {
            let is_ours = endpoint.parse::<&str>(call[0].method, answer).is_ok_and(|id| is_of(tx, id));
            return if is_ours { BroadcastResponse::Pooled } else { BroadcastResponse::Unknown };
        }
        Ok([Err(error)]) => error.message.clone(),
        Ok(answers) => format!("{} answers to one call", answers.len()),
        Err(error) => {
            tracing::warn!(chain = %endpoint.chain, tx = %tx, "handing a transaction to an endpoint failed: {error}");
            return BroadcastResponse::Unknown;
        }
    };
    let response = refusal(words, &said);
    tracing::debug!(chain = %endpoint.chain, endpoint = %endpoint.id, tx = %tx, "{response:?}: {said}");
    response
}

/// Whether `text` names the transaction. In base58, unlike in hex, upper and lower case differ.
fn is_of(tx: &TxId, text: &str) -> bool {
    let named = tx.to_string();
    match tx {
        TxId::Evm(_) => text.eq_ignore_ascii_case(&named),
        TxId::Solana(_) => text == named,
    }
}
