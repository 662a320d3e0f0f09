//! One attempt: sign, POST, read a little of the answer. Only a 2xx within the time is "delivered"; every other
//! answer, and none, is "not known to have arrived" and is sent again.

use std::error::Error;
use std::time::Duration;

use reqwest::redirect::Policy;

use crate::delivery::signature::sign;
use crate::store::deliveries::{AttemptLog, Claimed};
use crate::time::{Clock, Timestamp};

/// For the whole attempt: name, connection, TLS, answer, body.
pub(super) const ATTEMPT_TIME_MAX: Duration = Duration::from_secs(15);
const RESPONSE_BYTES_MAX: usize = 16 * 1024;
const RESPONSE_HEAD_BYTES: usize = 1024;

/// A client that goes where it is told and nowhere else.
pub(super) fn client() -> reqwest::Result<reqwest::Client> {
    // Installed once per process; a second time changes nothing.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .redirect(Policy::none())
        .no_proxy()
        // What an answer says is of little use; unpacking a hostile one is work for nothing.
        .no_gzip()
        .user_agent(concat!("Landfall/", env!("CARGO_PKG_VERSION")))
        .build()
}

/// Makes the attempt. Delivered when the log's error is empty.
pub(super) async fn attempt(client: &reqwest::Client, claimed: &Claimed, clock: &Clock) -> AttemptLog {
    let started_at = clock.now();
    let mut log = AttemptLog {
        started_at,
        duration: Duration::ZERO,
        status: None,
        error: String::new(),
        response_head: String::new(),
    };
    match tokio::time::timeout(ATTEMPT_TIME_MAX, post(client, claimed, started_at, &mut log)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => log.error = error,
        Err(_) => log.error = format!("no complete answer within {} s", ATTEMPT_TIME_MAX.as_secs()),
    }
    log.duration = clock.now().since(started_at);
    log
}

async fn post(client: &reqwest::Client, claimed: &Claimed, at: Timestamp, log: &mut AttemptLog) -> Result<(), String> {
    let timestamp = at.0.div_euclid(1_000_000);
    let signature = sign(&claimed.signing_key, &claimed.event_id, timestamp, &claimed.payload)
        .map_err(|_| "the stored signing key cannot be read".to_owned())?;
    let request = client
        .post(&claimed.url)
        .header("content-type", "application/json")
        .header("webhook-id", &claimed.event_id)
        .header("webhook-timestamp", timestamp)
        .header("webhook-signature", signature)
        .body(claimed.payload.clone());
    let mut response = request.send().await.map_err(|error| describe(error.without_url()))?;
    log.status = Some(response.status().as_u16());
    let mut body = Vec::new();
    while body.len() < RESPONSE_BYTES_MAX {
        match response.chunk().await {
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Ok(None) | Err(_) => break,
        }
    }
    body.truncate(RESPONSE_HEAD_BYTES);
    // PostgreSQL's TEXT does not take NUL.
    log.response_head = String::from_utf8_lossy(&body).replace('\0', "\u{fffd}");
    if response.status().is_success() { Ok(()) } else { Err(format!("the receiver answered {}", response.status())) }
}

/// An error and its causes in one line; reqwest's own text says little.
fn describe(error: reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
