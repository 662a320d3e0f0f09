//! One attempt: sign, POST, read a little of the answer; or publish. "Delivered" is only a 2xx, or a stream's
//! confirmation, within the time. Every other answer, and none, means "not known to have arrived", and the event is
//! sent again.

use std::time::Duration;

use chrono::DateTime;
use reqwest::StatusCode;
use reqwest::header::{HeaderMap, RETRY_AFTER};
use url::Url;

use crate::delivery::client::{Clients, describe};
use crate::delivery::nats::Nats;
use crate::store::deliveries::{AttemptLog, Claimed};
use crate::store::sinks::Kind;
use crate::time::{Clock, Timestamp};
use crate::webhook::sign;

/// The time for the whole attempt: name, connection, TLS, answer, body.
pub(super) const ATTEMPT_TIME_MAX: Duration = Duration::from_secs(15);
/// After so many bytes of the body nothing more is read. At most the connection's next buffer has been received by
/// then, and is dropped.
const RESPONSE_BYTES_MAX: usize = 16 * 1024;
/// How many bytes of the body are kept.
const RESPONSE_HEAD_BYTES: usize = 1024;

/// Makes the attempt. It was delivered if the log's error is empty.
pub(super) async fn attempt(clients: &Clients, nats: Option<&Nats>, claimed: &Claimed, clock: &Clock) -> AttemptLog {
    let started_at = clock.now();
    let mut log = AttemptLog {
        started_at,
        duration: Duration::ZERO,
        status: None,
        error: String::new(),
        response_head: String::new(),
        retry_after: None,
    };
    let sending = async {
        match claimed.kind {
            Kind::Webhook => post(clients, claimed, started_at, &mut log).await,
            Kind::Nats => publish(nats, claimed, &mut log).await,
        }
    };
    match tokio::time::timeout(ATTEMPT_TIME_MAX, sending).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => log.error = error,
        Err(_) => log.error = format!("no complete answer within {} s", ATTEMPT_TIME_MAX.as_secs()),
    }
    // PostgreSQL's TEXT refuses NUL.
    for text in [&mut log.error, &mut log.response_head] {
        *text = text.replace('\0', "\u{fffd}");
    }
    log.duration = clock.now().since(started_at);
    log
}

async fn publish(nats: Option<&Nats>, claimed: &Claimed, log: &mut AttemptLog) -> Result<(), String> {
    let nats = nats.ok_or("this process publishes to no stream")?;
    log.response_head = nats.publish(claimed).await?;
    Ok(())
}

async fn post(clients: &Clients, claimed: &Claimed, at: Timestamp, log: &mut AttemptLog) -> Result<(), String> {
    let timestamp = at.0.div_euclid(1_000_000);
    let signature = sign(&claimed.signing_key, &claimed.event_id, timestamp, &claimed.payload)
        .map_err(|_| "the stored signing key cannot be read".to_owned())?;
    let url = Url::parse(&claimed.url).map_err(|_| "the stored URL cannot be read".to_owned())?;
    let allowed = claimed.allowed_networks.parse().map_err(|_| "the stored networks cannot be read".to_owned())?;
    let client = clients.for_url(&url, &allowed)?;
    let request = client
        .post(url)
        .header("content-type", "application/json")
        .header("webhook-id", &claimed.event_id)
        .header("webhook-timestamp", timestamp)
        .header("webhook-signature", signature)
        .body(claimed.payload.clone());
    let mut response = request.send().await.map_err(describe)?;
    log.status = Some(response.status().as_u16());
    if matches!(response.status(), StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
        log.retry_after = retry_after(response.headers(), at);
    }
    let mut body = Vec::new();
    let mut left = RESPONSE_BYTES_MAX;
    while left > 0 {
        let Ok(Some(chunk)) = response.chunk().await else { break };
        left = left.saturating_sub(chunk.len());
        let missing = RESPONSE_HEAD_BYTES - body.len();
        body.extend_from_slice(&chunk[..chunk.len().min(missing)]);
    }
    log.response_head = String::from_utf8_lossy(&body).into_owned();
    if response.status().is_success() { Ok(()) } else { Err(format!("the receiver answered {}", response.status())) }
}

/// How long the receiver asks us to wait: seconds, or a date of RFC 9110.
fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(secs) = text.parse() {
        return Some(Duration::from_secs(secs));
    }
    let until = DateTime::parse_from_rfc2822(text).ok()?;
    Some(Timestamp(until.timestamp_micros()).since(now))
}
