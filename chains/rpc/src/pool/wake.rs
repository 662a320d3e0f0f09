//! Connections that say when to poll: a subscription to new heads over WebSocket.
//!
//! Promises: what comes over them is never data, only a reason to poll a little earlier. Silence, garbage and a dead
//! server cost nothing else. At most one connection per URL; it reconnects after growing delays. Of the URL only host
//! and port are reported.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use landfall_chain::{EndpointState, Endpoints, Retry};
use reqwest::header::HeaderMap;
use tokio::sync::Notify;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message};
use tracing::instrument::WithSubscriber;
use tracing::{Dispatch, warn};
use url::Url;

use crate::dialect::Subscription;
use crate::http::Secrets;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longer than any chain's block time; then the connection counts as dead.
const SILENCE_MAX: Duration = Duration::from_secs(120);
/// Between two wake-ups, however many messages come.
const WAKE_UP_PAUSE: Duration = Duration::from_millis(100);
const RETRY_FIRST: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(60);
/// A new head is some 1 KB.
const MESSAGE_BYTES_MAX: usize = 256 << 10;

/// One connection and its place in the statuses.
#[derive(Clone)]
pub(crate) struct WakeUp {
    pub(crate) index: usize,
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    pub(crate) subscription: Subscription,
    pub(crate) statuses: Endpoints,
    pub(crate) notify: Arc<Notify>,
}

impl WakeUp {
    /// Listens for ever.
    pub(crate) async fn listen(self) {
        let mut retry = Retry::new(RETRY_FIRST, RETRY_MAX);
        let secrets = Secrets::of(&self.url, &self.headers);
        let mut said = String::new();
        loop {
            let mut heads = 0;
            // tungstenite logs its requests, key included: no subscriber may see them.
            let ended = self.follow(&mut heads).with_subscriber(Dispatch::none()).await;
            let reason = format!("wake-ups: {}", secrets.clean(&ended));
            self.statuses.failed(self.index, EndpointState::Failing, &reason);
            if heads > 0 {
                retry.reset();
            } else if reason != said {
                let endpoint = self.statuses.snapshot().swap_remove(self.index).id;
                warn!(%endpoint, "{endpoint} wakes nobody, and blocks are only polled for: {reason}");
                said = reason;
            }
            tokio::time::sleep(retry.next_delay(u64::try_from(self.index).unwrap_or_default() * 97)).await;
        }
    }

    /// Follows the connection to its end, and returns why it ended.
    async fn follow(&self, heads: &mut u64) -> String {
        let Ok(mut request) = self.url.as_str().into_client_request() else { return "the URL is unusable".to_owned() };
        request.headers_mut().extend(self.headers.clone());
        let config = WebSocketConfig::default()
            .max_message_size(Some(MESSAGE_BYTES_MAX))
            .max_frame_size(Some(MESSAGE_BYTES_MAX));
        let connect = tokio_tungstenite::connect_async_with_config(request, Some(config), false);
        let mut socket = match tokio::time::timeout(CONNECT_TIMEOUT, connect).await {
            Ok(Ok((socket, _))) => socket,
            Ok(Err(error)) => return reason_of(&error),
            Err(_) => return format!("no connection within {} s", CONNECT_TIMEOUT.as_secs()),
        };
        if let Err(error) = socket.send(Message::text(self.subscription.request)).await {
            return reason_of(&error);
        }
        let mut last = None;
        loop {
            let message = match tokio::time::timeout(SILENCE_MAX, socket.next()).await {
                Ok(Some(Ok(message))) => message,
                Ok(Some(Err(error))) => return reason_of(&error),
                Ok(None) => return "the connection ended".to_owned(),
                Err(_) => return format!("silent for {} s", SILENCE_MAX.as_secs()),
            };
            let Message::Text(text) = message else { continue };
            let head = (self.subscription.head)(&text);
            if head.is_none() || head == last {
                continue;
            }
            last = head;
            *heads += 1;
            self.statuses.healthy(self.index, None, None, "wake-ups only");
            self.notify.notify_one();
            tokio::time::sleep(WAKE_UP_PAUSE).await;
        }
    }
}

/// By kind: some texts of tungstenite hold the URL.
fn reason_of(error: &Error) -> String {
    match error {
        Error::Io(error) => format!("cannot connect: {error}"),
        Error::Http(response) => format!("HTTP status {}", response.status().as_u16()),
        Error::ConnectionClosed | Error::AlreadyClosed => "the connection ended".to_owned(),
        Error::Tls(_) => "TLS failed".to_owned(),
        Error::Capacity(_) => "a message was too large".to_owned(),
        _ => "the connection failed".to_owned(),
    }
}

impl std::fmt::Debug for WakeUp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WakeUp").field("index", &self.index).finish_non_exhaustive()
    }
}
