//! JSON-RPC over HTTP to one endpoint: a batch of calls is one request.
//!
//! Promises: every request ends within [`CALL_TIMEOUT`]; no redirect is followed and no proxy of the environment is
//! used; nothing of the URL but host and port gets into an error, a log or a `Debug` text, not even where a node
//! repeats it in its own message. Retries nothing, chooses nothing: that is `pool`'s.

use std::fmt;
use std::time::Duration;

use alloy::rpc::client::RpcClient;
use alloy::transports::http::Http;
use alloy::transports::{TransportError, TransportErrorKind};
use serde_json::Value;
use serde_json::value::RawValue;
use tracing::Dispatch;
use tracing::instrument::WithSubscriber;
use url::Url;

const CALL_TIMEOUT: Duration = Duration::from_secs(15);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A node's own words are shown up to here.
const MESSAGE_CHARS_MAX: usize = 200;
/// Shorter parts of a URL, such as `v2`, are no secrets and would disfigure messages.
const SECRET_CHARS_MIN: usize = 4;

/// One endpoint that speaks JSON-RPC.
pub(crate) struct Rpc {
    client: RpcClient,
    secrets: Vec<String>,
}

/// One call of a batch.
pub(crate) struct Call {
    pub(crate) method: &'static str,
    pub(crate) params: Value,
}

/// What a node said against one call.
pub(crate) struct NodeError {
    pub(crate) code: i64,
    /// Its words, shortened, without secrets.
    pub(crate) message: String,
}

/// A whole request that came to nothing, in words.
pub(crate) struct Failure(pub(crate) String);

/// The answer to one call; `null` is an answer.
pub(crate) type Answer = Result<Box<RawValue>, NodeError>;

/// The HTTP client that all endpoints of a source share.
pub(crate) fn http_client() -> Result<reqwest::Client, reqwest::Error> {
    // An error says that the process has a provider already, which serves as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .timeout(CALL_TIMEOUT)
        .connect_timeout(CONNECT_TIMEOUT)
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .build()
}

impl Rpc {
    pub(crate) fn new(http: reqwest::Client, url: &Url) -> Self {
        Rpc { client: RpcClient::new(Http::with_client(http, url.clone()), false), secrets: secrets(url) }
    }

    /// Sends all `calls` in one request; the answers stand in their order.
    pub(crate) async fn batch(&self, calls: &[Call]) -> Result<Vec<Answer>, Failure> {
        let mut batch = self.client.new_batch();
        let mut waiters = Vec::with_capacity(calls.len());
        for call in calls {
            let waiter = batch.add_call::<_, Box<RawValue>>(call.method, &call.params);
            waiters.push(waiter.map_err(|error| self.failure(&error))?);
        }
        // alloy opens a span that holds the whole URL, key included: no subscriber may see it.
        batch.send().with_subscriber(Dispatch::none()).await.map_err(|error| self.failure(&error))?;
        let mut answers = Vec::with_capacity(calls.len());
        for waiter in waiters {
            answers.push(match waiter.await {
                Ok(answer) => Ok(answer),
                Err(TransportError::ErrorResp(error)) => Err(self.node_error(error.code, &error.message)),
                Err(error) => return Err(self.failure(&error)),
            });
        }
        Ok(answers)
    }

    /// Foreign text, fit to be shown: without secrets and control characters, on one line, not too long.
    pub(crate) fn clean(&self, text: &str) -> String {
        let hidden = self.secrets.iter().fold(text.to_owned(), |text, secret| text.replace(secret, "***"));
        hidden.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MESSAGE_CHARS_MAX).collect()
    }

    fn node_error(&self, code: i64, message: &str) -> NodeError {
        NodeError { code, message: self.clean(message) }
    }

    /// Never by `Display`: those of reqwest and alloy hold the URL and the whole body.
    fn failure(&self, error: &TransportError) -> Failure {
        let text = match error {
            TransportError::ErrorResp(error) => self.node_error(error.code, &error.message).to_string(),
            TransportError::Transport(TransportErrorKind::HttpError(error)) => format!("HTTP status {}", error.status),
            TransportError::Transport(TransportErrorKind::HttpErrorWithRetryAfter { error, .. }) => {
                format!("HTTP status {}", error.status)
            }
            TransportError::Transport(TransportErrorKind::MissingBatchResponse(_)) => {
                "the answer leaves out a part of the batch".to_owned()
            }
            TransportError::Transport(TransportErrorKind::Custom(error)) => {
                error.downcast_ref().map_or_else(|| "the request failed".to_owned(), http_failure)
            }
            TransportError::DeserError { err, .. } => format!("the answer is no JSON-RPC: {err}"),
            _ => "the request failed".to_owned(),
        };
        Failure(self.clean(&text))
    }
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the node says {:?} (code {})", self.message, self.code)
    }
}

fn http_failure(error: &reqwest::Error) -> String {
    let what = if error.is_timeout() {
        return format!("no answer within {} s", CALL_TIMEOUT.as_secs());
    } else if error.is_connect() {
        "cannot connect"
    } else if error.is_body() || error.is_decode() {
        "the answer broke off"
    } else {
        "the request failed"
    };
    // The innermost cause is of the operating system or of TLS, and knows no URL.
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause.and_then(std::error::Error::source) {
        cause = Some(inner);
    }
    cause.map_or_else(|| what.to_owned(), |cause| format!("{what}: {cause}"))
}

/// Every part of a URL that could be a key.
fn secrets(url: &Url) -> Vec<String> {
    let mut parts = vec![url.username().to_owned(), url.password().unwrap_or_default().to_owned()];
    parts.extend(url.path_segments().into_iter().flatten().map(str::to_owned));
    parts.extend(url.query().map(str::to_owned));
    parts.extend(url.query_pairs().flat_map(|(key, value)| [key.into_owned(), value.into_owned()]));
    parts.retain(|part| part.chars().count() >= SECRET_CHARS_MIN);
    // The longest first: a part of a secret must not hide the rest of it from the search.
    parts.sort_by_key(|part| std::cmp::Reverse(part.len()));
    parts
}
