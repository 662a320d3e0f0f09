//! JSON-RPC over HTTP to one endpoint: a batch of calls is one request, and its answers are parts of one body.
//!
//! Promises:
//! - Every request ends within [`Timings::call_timeout`]. No redirect is followed, and no proxy of the environment is used.
//! - An answer has the id of its call, or it is none. A body of more than [`ANSWER_BYTES_MAX`] is cut off and never
//!   held.
//! - Of a URL only host and port get into an error, a log or a `Debug` text, and nothing of a header, not even where a
//!   node repeats it in its own message.
//!
//! Deliberately not here: retries and the choice of an endpoint, which are `pool`'s.

pub(crate) mod answer;
mod body;
pub(crate) mod envelope;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use reqwest::header::{ACCEPT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Response, StatusCode};
use serde::Serialize;
use serde_json::Value;
use tracing::Dispatch;
use tracing::instrument::WithSubscriber;
use url::Url;

use crate::http::answer::{Answer, Broken};
use crate::http::body::Unread;
use crate::limits::{Codes, Limit};
use crate::timings::Timings;

/// After unpacking. A thousand full blocks of a busy chain are more, but nobody asks for as many at once.
const ANSWER_BYTES_MAX: usize = 128 << 20;
/// How much is read of the body of an HTTP status that is no success.
const REFUSAL_BYTES_MAX: usize = 64 << 10;
/// How much is shown of a node's own message.
const MESSAGE_CHARS_MAX: usize = 200;
/// Shorter parts of a URL, such as `v2`, are no secrets and would disfigure messages.
const SECRET_CHARS_MIN: usize = 4;

/// One endpoint that speaks JSON-RPC.
pub(crate) struct Rpc {
    http: reqwest::Client,
    url: Url,
    headers: HeaderMap,
    secrets: Secrets,
    codes: &'static Codes,
    call_timeout: Duration,
    next_id: AtomicU64,
}

/// One call of a batch.
#[derive(Clone, Debug)]
pub struct Call {
    pub method: &'static str,
    pub params: Value,
}

/// How a node refused one call.
#[derive(Debug)]
pub struct NodeError {
    pub code: i64,
    /// Its message, shortened, without secrets.
    pub message: String,
    pub limit: Option<Limit>,
}

/// A whole request that failed, in words.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) reason: String,
    pub(crate) limit: Option<Limit>,
    /// The node answered and refused the request as a whole, and not for how much was asked lately: its code, 0 where
    /// it gave none. Where the request is a batch, that may be the reason.
    pub(crate) refused: Option<i64>,
}

/// Every part of a URL and of headers that could be a key.
#[derive(Clone)]
pub(crate) struct Secrets(pub(crate) Vec<String>);

/// The HTTP client that all endpoints of a pool share. Where no URL `is_encrypted` it trusts no certificate: reading
/// the system's takes longer than a hundred calls.
pub(crate) fn http_client(is_encrypted: bool, timings: &Timings) -> Result<reqwest::Client, reqwest::Error> {
    // An error says that the process has a provider already, which serves as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = reqwest::Client::builder()
        .timeout(timings.call_timeout)
        .connect_timeout(timings.connect_timeout)
        .redirect(reqwest::redirect::Policy::none())
        .no_gzip()
        .no_proxy();
    if is_encrypted { builder.build() } else { builder.tls_certs_only([]).build() }
}

/// The headers of an endpoint; `None` when one of them cannot be sent.
pub(crate) fn header_map(headers: &[(String, String)]) -> Option<HeaderMap> {
    let header = |(name, value): &(String, String)| {
        let mut value = HeaderValue::from_str(value).ok()?;
        value.set_sensitive(true);
        Some((HeaderName::from_bytes(name.as_bytes()).ok()?, value))
    };
    headers.iter().map(header).collect()
}

#[derive(Serialize)]
struct Request<'a> {
    jsonrpc: &'static str,
    id: u64,
    method: &'a str,
    params: &'a Value,
}

impl Rpc {
    pub(crate) fn new(
        http: reqwest::Client,
        url: &Url,
        headers: HeaderMap,
        codes: &'static Codes,
        timings: &Timings,
    ) -> Self {
        let (secrets, call_timeout) = (Secrets::of(url, &headers), timings.call_timeout);
        Rpc { http, url: url.clone(), headers, secrets, codes, call_timeout, next_id: AtomicU64::new(1) }
    }

    /// Sends all `calls` in one request; the answers stand in their order.
    pub(crate) async fn batch(&self, calls: &[Call]) -> Result<Vec<Answer>, Failure> {
        let ids = u64::try_from(calls.len()).unwrap_or(u64::MAX);
        let first_id = self.next_id.fetch_add(ids, Ordering::Relaxed);
        let request = |(id, call): (u64, &'_ Call)| -> Value {
            let Call { method, params } = call;
            serde_json::to_value(Request { jsonrpc: "2.0", id, method, params }).expect("text, numbers and JSON")
        };
        let mut requests: Vec<Value> = (first_id..).zip(calls).map(request).collect();
        // Some nodes serve no batches, and a single call needs none.
        let request = if requests.len() == 1 { requests.remove(0) } else { Value::Array(requests) };
        // reqwest and hyper may log the whole URL, key included: no subscriber may see it.
        let body = self.exchange(request.to_string()).with_subscriber(Dispatch::none()).await?;
        answer::parse(body, first_id, calls.len(), &self.secrets, self.codes).map_err(|broken| self.broken(broken))
    }

    /// Foreign text, fit to be shown: without secrets and control characters, on one line, not too long.
    pub(crate) fn clean(&self, text: &str) -> String {
        self.secrets.clean(text)
    }

    /// The body of a good answer.
    async fn exchange(&self, request: String) -> Result<Vec<u8>, Failure> {
        let post = self.http.post(self.url.clone()).headers(self.headers.clone());
        let post = post.header(CONTENT_TYPE, "application/json").header(ACCEPT_ENCODING, body::ENCODING);
        let sent = post.body(request).send().await;
        let response = sent.map_err(|error| self.failure(&http_failure(&error, self.call_timeout), None))?;
        if response.status().is_success() {
            return match body::read(response, ANSWER_BYTES_MAX).await {
                Ok(Some(body)) => Ok(body),
                Ok(None) => {
                    let reason = format!("the answer is larger than {} MiB", ANSWER_BYTES_MAX >> 20);
                    Err(self.failure(&reason, Some(Limit::TooManyResults { range: None })))
                }
                Err(error) => Err(self.failure(&unread(&error, self.call_timeout), None)),
            };
        }
        Err(self.refused(response).await)
    }

    /// An HTTP status that is no success, with the node's message.
    async fn refused(&self, response: Response) -> Failure {
        let status = response.status();
        let wait = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        let pause = wait.map(Duration::from_secs);
        let body = body::read(response, REFUSAL_BYTES_MAX).await.ok().flatten();
        let body = body.and_then(|body| String::from_utf8(body).ok()).unwrap_or_default();
        let said = answer::refusal(&body, &self.secrets, self.codes);
        let limit = match (status, said.as_ref().and_then(|said| said.limit)) {
            (StatusCode::TOO_MANY_REQUESTS, said) => {
                let said = match said {
                    Some(Limit::RateLimited { pause }) => pause,
                    _ => None,
                };
                Some(Limit::RateLimited { pause: pause.or(said) })
            }
            (_, Some(limit)) => Some(limit),
            (StatusCode::PAYLOAD_TOO_LARGE, None) => Some(Limit::BatchTooLarge { most: None }),
            (StatusCode::SERVICE_UNAVAILABLE, None) if pause.is_some() => Some(Limit::RateLimited { pause }),
            (_, None) => None,
        };
        let refused = match &said {
            Some(error) => error.of_the_request(),
            None => limit.is_none().then_some(0),
        };
        let said = said.map(|said| said.to_string()).or_else(|| answer::text(&body, &self.secrets));
        let said = said.map(|said| format!(": {said}")).unwrap_or_default();
        let reason = format!("HTTP status {}{said}", status.as_u16());
        Failure { refused: refused.filter(|_| is_of_the_request(status)), ..self.failure(&reason, limit) }
    }

    fn broken(&self, broken: Broken) -> Failure {
        match broken {
            Broken::Refused(error) => Failure::from(&error),
            Broken::Text(text) => Failure { refused: Some(0), ..self.failure(&text, None) },
            Broken::Unusable(reason) => self.failure(&reason, None),
        }
    }

    fn failure(&self, reason: &str, limit: Option<Limit>) -> Failure {
        Failure { reason: self.clean(reason), limit, refused: None }
    }
}

impl NodeError {
    /// Its code, where it may concern the request itself: not its size, nor how much was asked lately. The bare code
    /// for an exceeded limit does not say which limit.
    fn of_the_request(&self) -> Option<i64> {
        let is_of_it = match self.limit {
            None | Some(Limit::Unsupported) => true,
            Some(Limit::RateLimited { pause: None }) => Limit::of(self.code, &self.message, &Codes::NONE).is_none(),
            Some(_) => false,
        };
        is_of_it.then_some(self.code)
    }
}

impl From<&NodeError> for Failure {
    fn from(error: &NodeError) -> Self {
        Failure { reason: error.to_string(), limit: error.limit, refused: error.of_the_request() }
    }
}

/// Whether an HTTP status may concern the request itself: not who asks, how much was asked lately, or servers behind.
fn is_of_the_request(status: StatusCode) -> bool {
    let is_of_others = matches!(status.as_u16(), 401 | 402 | 407 | 408 | 429 | 502 | 503 | 504);
    (status.is_client_error() || status.is_server_error()) && !is_of_others
}

impl Secrets {
    pub(crate) fn of(url: &Url, headers: &HeaderMap) -> Self {
        let mut parts = vec![url.username().to_owned(), url.password().unwrap_or_default().to_owned()];
        parts.extend(url.path_segments().into_iter().flatten().map(str::to_owned));
        parts.extend(url.query().map(str::to_owned));
        parts.extend(url.query_pairs().flat_map(|(key, value)| [key.into_owned(), value.into_owned()]));
        for value in headers.values().filter_map(|value| value.to_str().ok()) {
            parts.push(value.to_owned());
            parts.extend(value.split_whitespace().map(str::to_owned));
        }
        parts.retain(|part| part.chars().count() >= SECRET_CHARS_MIN);
        // The longest first: a part of a secret must not hide the rest of it from the search.
        parts.sort_by_key(|part| std::cmp::Reverse(part.len()));
        Secrets(parts)
    }

    pub(crate) fn clean(&self, text: &str) -> String {
        let hidden = self.0.iter().fold(text.to_owned(), |text, secret| text.replace(secret, "***"));
        hidden.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MESSAGE_CHARS_MAX).collect()
    }
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the node says {:?} (code {})", self.message, self.code)
    }
}

fn unread(error: &Unread, call_timeout: Duration) -> String {
    match error {
        Unread::Http(error) => http_failure(error, call_timeout),
        Unread::Packed(error) => format!("the answer does not unpack: {error}"),
        Unread::Encoded => format!("the answer is packed by another encoding than {}", body::ENCODING),
    }
}

/// Never by `Display`: that of reqwest holds the URL.
fn http_failure(error: &reqwest::Error, call_timeout: Duration) -> String {
    let what = if error.is_timeout() {
        return format!("no answer within {} s", call_timeout.as_secs());
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
