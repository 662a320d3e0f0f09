//! What happens first with every request and last with every answer: its id, its size, the rate of its address.
//!
//! Promises: each answer carries `X-Request-Id`, and so does each line that is logged meanwhile. A request that is too
//! large or too frequent is refused before the store is asked. A handler that panics is answered 500. Keys are not
//! known here, and no header, query or body is ever logged. Input that the server cannot read as a request never comes
//! here: the server answers 400, 414, 431 or 501 by itself, without a body or an id.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::extract::{ConnectInfo, Request, State};
use axum::http::uri::{Authority, PathAndQuery};
use axum::http::{HeaderName, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use tracing::{Instrument, debug, error, info_span};

use crate::api::AppState;
use crate::api::problem::Problem;
use crate::time::Timestamp;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// `: ` and the end of the line.
const BYTES_PER_HEADER: usize = 4;

/// Numbers requests: the time of the start and a count, so that no two processes give the same number.
#[derive(Debug)]
pub(super) struct RequestIds {
    started: Timestamp,
    next: AtomicU64,
}

impl RequestIds {
    pub(super) fn new(started: Timestamp) -> Self {
        RequestIds { started, next: AtomicU64::new(0) }
    }

    fn next(&self) -> String {
        format!("req_{:016x}_{:x}", self.started.0, self.next.fetch_add(1, Ordering::Relaxed))
    }
}

/// Admits a request, has it answered, and writes the id into the answer.
pub(super) async fn answer(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let id = state.request_ids.next();
    let span = info_span!("request", request_id = %id);
    let work = async {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let mut response = match admit(&state, &request) {
            Ok(()) => run(request, next).await,
            Err(problem) => problem.into_response(),
        };
        // An answer to HEAD has no body.
        if let Some(problem) = response.extensions_mut().remove::<Problem>().filter(|_| method != Method::HEAD) {
            problem.write_to(&mut response, &id);
        }
        debug!(%method, path, status = response.status().as_u16(), "answered");
        response
    };
    let mut response = work.instrument(span).await;
    if let Ok(id) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}

/// Admits a request if it is not too large and its address is within its rate.
fn admit(state: &AppState, request: &Request) -> Result<(), Problem> {
    let most = state.settings.limits.header_bytes;
    if head_bytes(request) > most {
        return Err(Problem::headers_too_large(most));
    }
    state.gate.check_ip(client(request)).map_err(|wait| Problem::rate_limited("from this address", wait))
}

async fn run(request: Request, next: Next) -> Response {
    AssertUnwindSafe(next.run(request)).catch_unwind().await.unwrap_or_else(|_| {
        error!("a request was answered with 500: its handler panicked");
        Problem::failed().into_response()
    })
}

/// What came before the body: the URI and the headers.
fn head_bytes(request: &Request) -> usize {
    let uri = request.uri();
    let [host, rest] = [uri.authority().map(Authority::as_str), uri.path_and_query().map(PathAndQuery::as_str)];
    let uri = host.map_or(0, str::len) + rest.map_or(0, str::len);
    let of_header = |(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len() + BYTES_PER_HEADER;
    uri + request.headers().iter().map(of_header).sum::<usize>()
}

/// The address of the client that connected. Requests without a connection count as one client's.
pub(super) fn client(request: &Request) -> IpAddr {
    let connected = request.extensions().get::<ConnectInfo<SocketAddr>>();
    connected.map_or(Ipv4Addr::UNSPECIFIED.into(), |ConnectInfo(address)| address.ip())
}
