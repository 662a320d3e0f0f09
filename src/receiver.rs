//! A webhook receiver as a client would write one: it trusts only signed events, answers 200, and keeps a log. For
//! `landfall webhook listen`, the sandbox and the tests on real nodes.
//!
//! Promises: each entry of the log was signed with the key in use, within five minutes, and is an envelope of the
//! interface. Everything else is refused and counted, with the reason. Any path is taken. It does not deduplicate:
//! readers of the log do.

use std::fmt;
use std::future::IntoFuture;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::extract::rejection::StringRejection;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use serde::Deserialize;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::event::{FEED_TYPES, TEST_EVENT};
use crate::time::{Clock, Timestamp};
use crate::webhook;

/// By how much a signature's time may differ from ours, as Standard Webhooks recommends.
const TOLERANCE: Duration = Duration::from_secs(5 * 60);
/// How many events the log holds; beyond it events are answered 503 and come again. A process that runs for long takes
/// them out.
const RECEIVED_MAX: usize = 100_000;
/// How many refusals are kept to be read; beyond it they are only counted.
const REFUSALS_MAX: usize = 1_000;
/// The headers of a signed event.
const HEADERS: [&str; 3] = ["webhook-id", "webhook-timestamp", "webhook-signature"];

/// A running receiver; it ends with its owner.
#[derive(Debug)]
pub struct Receiver {
    url: String,
    shared: Arc<Shared>,
    _server: JoinSet<std::io::Result<()>>,
}

/// An event that arrived.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Received {
    /// The envelope's.
    pub id: String,
    pub r#type: String,
    pub data: Value,
}

#[derive(Debug)]
struct Shared {
    clock: Clock,
    log: watch::Sender<Log>,
}

#[derive(Default)]
struct Log {
    key: String,
    received: Vec<Received>,
    refused: u64,
    /// Why requests were refused.
    refusals: Vec<String>,
}

/// Why a request is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
enum Refusal {
    #[error("only POST is taken")]
    Method,
    #[error("the body is no text: {0}")]
    Body(String),
    #[error("the header {0} is missing")]
    Header(&'static str),
    #[error("its time is more than 5 minutes from ours")]
    Time,
    #[error("not signed with this key")]
    Signature,
    #[error("the body is no envelope of an event")]
    Envelope,
    #[error("there is no room")]
    Full,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope {
    id: String,
    r#type: String,
    data: Value,
}

impl Receiver {
    /// Listens on a free port of this machine. Until [`Receiver::set_key`] is called, everything is refused.
    ///
    /// # Errors
    /// When it cannot listen.
    pub async fn start(clock: Clock) -> std::io::Result<Self> {
        Receiver::start_at((Ipv4Addr::LOCALHOST, 0).into(), clock).await
    }

    /// As [`Receiver::start`], at a given address.
    ///
    /// # Errors
    /// When it cannot listen.
    pub async fn start_at(address: SocketAddr, clock: Clock) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let url = format!("http://{}/", listener.local_addr()?);
        let shared = Arc::new(Shared { clock, log: watch::Sender::new(Log::default()) });
        let router = Router::new().fallback(receive).with_state(Arc::clone(&shared));
        let mut server = JoinSet::new();
        server.spawn(axum::serve(listener, router).into_future());
        Ok(Receiver { url, shared, _server: server })
    }

    /// The URL to register.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The signing key from now on.
    pub fn set_key(&self, key: &str) {
        self.shared.log.send_modify(|log| key.clone_into(&mut log.key));
    }

    /// Everything that arrived, in the order of arrival.
    pub fn log(&self) -> Vec<Received> {
        self.log_after(0)
    }

    /// What arrived after the first `count`.
    pub fn log_after(&self, count: usize) -> Vec<Received> {
        self.shared.log.borrow().received.get(count..).unwrap_or_default().to_vec()
    }

    /// Takes all events and refusals out of the log; waits until there is one.
    pub async fn take(&self) -> (Vec<Received>, Vec<String>) {
        let mut log = self.shared.log.subscribe();
        let mut taken = (Vec::new(), Vec::new());
        // The channel closes with the receiver, which is alive here.
        if log.wait_for(|log| !log.received.is_empty() || !log.refusals.is_empty()).await.is_err() {
            return taken;
        }
        self.shared.log.send_modify(|log| {
            taken = (std::mem::take(&mut log.received), std::mem::take(&mut log.refusals));
        });
        taken
    }

    /// How many requests were refused, for example for a wrong signature or a body that is no envelope.
    pub fn refused(&self) -> u64 {
        self.shared.log.borrow().refused
    }
}

impl Received {
    /// A field of the data; empty when it has none of this name.
    pub fn field(&self, name: &str) -> &str {
        self.data.get(name).and_then(Value::as_str).unwrap_or_default()
    }
}

async fn receive(
    State(shared): State<Arc<Shared>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Result<String, StringRejection>,
) -> StatusCode {
    let body = match body {
        _ if method != Method::POST => Err(Refusal::Method),
        body => body.map_err(|error| Refusal::Body(error.body_text())),
    };
    let mut answer = StatusCode::OK;
    let now = shared.clock.now();
    shared.log.send_modify(|log| match body.and_then(|body| log.accept(&headers, &body, now)) {
        Ok(received) => log.received.push(received),
        Err(refusal) => {
            answer = refusal.status();
            // An event that finds the log full is no fault.
            if refusal != Refusal::Full {
                log.refused += 1;
                if log.refusals.len() < REFUSALS_MAX {
                    log.refusals.push(format!("{method} {}: {refusal}", uri.path()));
                }
            }
        }
    });
    answer
}

impl Refusal {
    fn status(&self) -> StatusCode {
        match self {
            Refusal::Method => StatusCode::METHOD_NOT_ALLOWED,
            Refusal::Body(_) | Refusal::Envelope => StatusCode::BAD_REQUEST,
            Refusal::Header(_) | Refusal::Time | Refusal::Signature => StatusCode::UNAUTHORIZED,
            Refusal::Full => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

impl Log {
    fn accept(&self, headers: &HeaderMap, body: &str, now: Timestamp) -> Result<Received, Refusal> {
        check(&self.key, headers, body, now)?;
        if self.received.len() >= RECEIVED_MAX {
            return Err(Refusal::Full);
        }
        let envelope: Envelope = serde_json::from_str(body).map_err(|_| Refusal::Envelope)?;
        let Envelope { id, r#type, data } = envelope;
        let is_known = r#type == TEST_EVENT || FEED_TYPES.contains(&r#type.as_str());
        if id != header(headers, "webhook-id") || !is_known {
            return Err(Refusal::Envelope);
        }
        Ok(Received { id, r#type, data })
    }
}

/// Shows no key.
impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} received, {} refused", self.received.len(), self.refused)
    }
}

/// Checks that one of the signatures is by `key`, and recent. For a while a sender with a new key signs with both.
fn check(key: &str, headers: &HeaderMap, body: &str, now: Timestamp) -> Result<(), Refusal> {
    if let Some(missing) = HEADERS.into_iter().find(|name| !headers.contains_key(*name)) {
        return Err(Refusal::Header(missing));
    }
    let secs = header(headers, "webhook-timestamp").parse::<i64>().map_err(|_| Refusal::Time)?;
    let sent = Timestamp(secs.saturating_mul(1_000_000));
    if now.since(sent) > TOLERANCE || sent.since(now) > TOLERANCE {
        return Err(Refusal::Time);
    }
    let signatures = header(headers, "webhook-signature");
    let is_ours = !key.is_empty() && webhook::is_signed(key, header(headers, "webhook-id"), secs, body, signatures);
    if is_ours { Ok(()) } else { Err(Refusal::Signature) }
}

fn header<'h>(headers: &'h HeaderMap, name: &str) -> &'h str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::webhook::sign;

    const NOW: Timestamp = Timestamp(1_750_000_000_000_000);
    const BODY: &str = r#"{"id":"e1","type":"deposit_v2","data":{"status":"PENDING"}}"#;

    fn log() -> Log {
        Log { key: crate::webhook::signing_key([7; 32]), ..Log::default() }
    }

    /// The headers of an event `id` with `body`, signed with `key` so many seconds after [`NOW`].
    fn headers(key: &str, id: &str, body: &str, secs_later: i64) -> HeaderMap {
        let secs = NOW.0 / 1_000_000 + secs_later;
        let signature = format!("v1,bm90IGl0 {}", sign(key, id, secs, body).unwrap());
        let mut headers = HeaderMap::new();
        for (name, value) in [("webhook-id", id), ("webhook-signature", &signature)] {
            headers.insert(name, value.parse().unwrap());
        }
        headers.insert("webhook-timestamp", secs.into());
        headers
    }

    #[test]
    fn a_signed_envelope_is_taken_also_when_another_key_signed_too() {
        let log = log();
        let received = log.accept(&headers(&log.key, "e1", BODY, 0), BODY, NOW).unwrap();
        assert_eq!((received.id.as_str(), received.field("status"), received.field("none")), ("e1", "PENDING", ""));
    }

    #[test]
    fn what_is_not_signed_or_not_recent_is_refused() {
        let log = log();
        let other_key = crate::webhook::signing_key([8; 32]);
        let cases = [
            (headers(&other_key, "e1", BODY, 0), Refusal::Signature),
            (headers(&log.key, "e1", "another body", 0), Refusal::Signature),
            (headers(&log.key, "e1", BODY, 301), Refusal::Time),
            (headers(&log.key, "e1", BODY, -301), Refusal::Time),
            (HeaderMap::new(), Refusal::Header("webhook-id")),
        ];
        for (headers, refusal) in cases {
            assert_eq!(refusal.status(), StatusCode::UNAUTHORIZED);
            assert_eq!(log.accept(&headers, BODY, NOW), Err(refusal), "{headers:?}");
        }
        let no_key = Log::default();
        assert_eq!(no_key.accept(&headers(&log.key, "e1", BODY, 0), BODY, NOW), Err(Refusal::Signature));
    }

    #[test]
    fn what_is_signed_but_no_envelope_is_refused() {
        let log = log();
        for body in
            ["", "{}", r#"{"id":"e1","type":"other","data":{}}"#, r#"{"id":"e1","type":"deposit_v2","data":{},"x":1}"#]
        {
            assert_eq!(log.accept(&headers(&log.key, "e1", body, 0), body, NOW), Err(Refusal::Envelope), "{body}");
        }
        let other_id = headers(&log.key, "e2", BODY, 0);
        assert_eq!(log.accept(&other_id, BODY, NOW), Err(Refusal::Envelope), "the id that is signed is the envelope's");
    }

    #[tokio::test]
    async fn who_takes_what_came_makes_room_and_gets_refusals_only_where_something_was_wrong() {
        let clock = Clock::new(|| NOW);
        let receiver = Receiver::start(clock).await.unwrap();
        receiver.set_key(&log().key);
        let send = async |secs_later| {
            let (state, headers) = (State(Arc::clone(&receiver.shared)), headers(&log().key, "e1", BODY, secs_later));
            receive(state, Method::POST, Uri::from_static("/hooks"), headers, Ok(BODY.to_owned())).await
        };
        assert_eq!(send(0).await, StatusCode::OK);
        let one = receiver.log().remove(0);
        receiver.shared.log.send_modify(|log| log.received = vec![one; RECEIVED_MAX]);
        assert_eq!(send(0).await, StatusCode::SERVICE_UNAVAILABLE);
        let (received, refused) = receiver.take().await;
        assert_eq!((received.len(), refused.len(), receiver.refused()), (RECEIVED_MAX, 0, 0));
        assert_eq!(send(0).await, StatusCode::OK);
        assert_eq!((receiver.take().await.0.len(), receiver.log().len()), (1, 0), "nothing is kept");
        assert_eq!(send(301).await, StatusCode::UNAUTHORIZED);
        let refused = vec!["POST /hooks: its time is more than 5 minutes from ours".to_owned()];
        assert_eq!((receiver.take().await, receiver.refused()), ((Vec::new(), refused), 1));
    }
}
