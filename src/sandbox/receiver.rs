//! A webhook receiver as a client would write one: believes nothing that is not signed, answers 200, keeps a log.
//!
//! Promises: what is in the log was signed with the key in use, within five minutes, and is an envelope of the
//! interface; everything else is refused and counted. It does not deduplicate: who reads the log does.

use std::future::IntoFuture;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use serde::Deserialize;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::delivery::sign;
use crate::event::DEPOSIT_EVENT;
use crate::time::{Clock, Timestamp};

/// What a signature's time may differ from ours, as Standard Webhooks recommends.
const TOLERANCE: Duration = Duration::from_secs(5 * 60);
/// What the log holds; beyond it, events are answered 503 and come again.
const RECEIVED_MAX: usize = 100_000;

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
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope {
    id: String,
    r#type: String,
    data: Value,
}

impl Receiver {
    /// Listens on a free port of this machine. Until [`Receiver::set_key`], everything is refused.
    ///
    /// # Errors
    /// When it cannot listen.
    pub async fn start(clock: Clock) -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let url = format!("http://{}/", listener.local_addr()?);
        let shared = Arc::new(Shared { clock, log: watch::Sender::new(Log::default()) });
        let router = Router::new().route("/", post(receive)).with_state(Arc::clone(&shared));
        let mut server = JoinSet::new();
        server.spawn(axum::serve(listener, router).into_future());
        Ok(Receiver { url, shared, _server: server })
    }

    /// The URL to register.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The signing key that holds from here on.
    pub fn set_key(&self, key: &str) {
        key.clone_into(&mut self.shared.log.send_modify_with().key);
    }

    /// Everything that arrived, in the order of arrival.
    pub fn log(&self) -> Vec<Received> {
        self.log_after(0)
    }

    /// What arrived after the first `count`.
    pub fn log_after(&self, count: usize) -> Vec<Received> {
        self.shared.log.borrow().received.get(count..).unwrap_or_default().to_vec()
    }

    /// How often something was refused: a wrong signature, or no envelope.
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

async fn receive(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: String) -> StatusCode {
    let mut answer = StatusCode::OK;
    let now = shared.clock.now();
    shared.log.send_modify(|log| match log.accept(&headers, &body, now) {
        Ok(received) => log.received.push(received),
        Err(status) => {
            log.refused += 1;
            answer = status;
        }
    });
    answer
}

impl Log {
    fn accept(&self, headers: &HeaderMap, body: &str, now: Timestamp) -> Result<Received, StatusCode> {
        let header = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if !is_signed(&self.key, [header("webhook-id"), header("webhook-timestamp"), header("webhook-signature")], body, now)
        {
            return Err(StatusCode::UNAUTHORIZED);
        }
        if self.received.len() >= RECEIVED_MAX {
            return Err(StatusCode::SERVICE_UNAVAILABLE);
        }
        let envelope: Envelope = serde_json::from_str(body).map_err(|_| StatusCode::BAD_REQUEST)?;
        let Envelope { id, r#type, data } = envelope;
        if id != header("webhook-id") || r#type != DEPOSIT_EVENT {
            return Err(StatusCode::BAD_REQUEST);
        }
        Ok(Received { id, data })
    }
}
