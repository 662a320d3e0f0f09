//! What every request meets first and every answer last: its id, its size, its place among others.
//!
//! Promises: each answer carries `X-Request-Id`, which each line that is logged meanwhile carries too; a request that
//! is too much is refused before anything is looked up for it; an answer keeps its place until the client has taken it, and
//! one that waits gives its place up meanwhile; a handler that panics answers 500. Keys are not known here, and no header,
//! query or body is ever logged. What the server cannot read as a request never comes here: it answers 400, 414 or 431 by
//! itself, without a body or an id.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{ConnectInfo, Request, State};
use axum::http::uri::{Authority, PathAndQuery};
use axum::http::{HeaderName, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use hyper::body::{Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;
use tracing::{Instrument, debug, error, info_span};

use crate::api::AppState;
use crate::api::problem::Problem;
use crate::time::Timestamp;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// `: ` and the end of the line.
const BYTES_PER_HEADER: usize = 4;

/// Numbers requests: the time of the start and a count, so that two processes do not give the same one.
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

/// A place among the requests that are being answered, which the request's handler may leave before it has answered. Given back
/// when nobody has it any more.
#[derive(Clone, Debug)]
pub(super) struct Place(Arc<Mutex<Option<OwnedSemaphorePermit>>>);

impl Place {
    fn of(permit: OwnedSemaphorePermit) -> Self {
        Place(Arc::new(Mutex::new(Some(permit))))
    }

    /// Lets another request come in.
    pub(super) fn leave(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// An answer's body that keeps a place, and so does each part of it until it is sent: the server takes a part from here long
/// before its client does.
struct Placed {
    body: Body,
    place: Place,
}

/// A part of an answer that is being sent.
struct PlacedBytes {
    bytes: Bytes,
    _place: Place,
}

impl HttpBody for Placed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Placed { body, place } = &mut *self;
        Pin::new(body)
            .poll_frame(context)
            .map_ok(|frame| frame.map_data(|bytes| Bytes::from_owner(PlacedBytes { bytes, _place: place.clone() })))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl AsRef<[u8]> for PlacedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Admits a request, has it answered, and signs the answer with its id.
pub(super) async fn answer(State(state): State<AppState>, mut request: Request, next: Next) -> Response {
    let id = state.request_ids.next();
    let span = info_span!("request", request_id = %id);
    let work = async {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let (mut response, place) = match admit(&state, &request) {
            Ok(place) => {
                request.extensions_mut().insert(place.clone());
                (run(request, next).await, Some(place))
            }
            Err(problem) => (problem.into_response(), None),
        };
        // An answer to HEAD has no body.
        if let Some(problem) = response.extensions_mut().remove::<Problem>().filter(|_| method != Method::HEAD) {
            problem.write_to(&mut response, &id);
        }
        debug!(%method, path, status = response.status().as_u16(), "answered");
        match place {
            Some(place) => response.map(|body| Body::new(Placed { body, place })),
            None => response,
        }
    };
    let mut response = work.instrument(span).await;
    if let Ok(id) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}

/// A place among the requests that are being answered, for one that may come in.
fn admit(state: &AppState, request: &Request) -> Result<Place, Problem> {
    let most = state.settings.limits.header_bytes;
    if head_bytes(request) > most {
        return Err(Problem::headers_too_large(most));
    }
    state.gate.check_ip(client(request)).map_err(|wait| Problem::rate_limited("from this address", wait))?;
    Arc::clone(&state.gate.places).try_acquire_owned().map(Place::of).map_err(|_| Problem::overloaded())
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

/// Whose request it is: who connected. Requests that came over no connection are all of the same client.
fn client(request: &Request) -> IpAddr {
    let connected = request.extensions().get::<ConnectInfo<SocketAddr>>();
    connected.map_or(Ipv4Addr::UNSPECIFIED.into(), |ConnectInfo(address)| address.ip())
}
