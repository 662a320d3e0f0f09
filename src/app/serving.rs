//! Serves a router on a listener.
//!
//! Promises:
//! - A slow client holds nothing for long. A connection is closed if no whole head of a request arrives in time, at
//!   first or between two requests. It is reset if its client reads nothing of an answer for as long.
//! - The memory for one client, here and in the system, is bounded, whatever the client sends and does not read.
//! - Connections are bounded, in all and for each address, so the rest of the process keeps its file descriptors.
//! - At a bound, the connection that has been idle longest is closed for a new one: of all, or of the address at its
//!   share.
//! - No connection is closed while a request on it is under way. Answers are sent at once. A stop answers each request
//!   that is under way.

mod connection;

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::ConnectInfo;
use axum::http::{HeaderValue, StatusCode, Version, header};
use axum::response::IntoResponse as _;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::{self, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, warn};

use crate::api::counted_as;
use connection::{Connection, Stream};

/// Longer than the 60 s for which balancers keep an unused connection: the balancer must close it first, not us.
const HEAD_TIME_MAX: Duration = Duration::from_secs(75);
/// How long to wait after no connection could be accepted, for example because file descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// By how much a head may exceed the limit and still be read, so that the API refuses it with a problem of its own.
const HEAD_BYTES_ABOVE: usize = 4 * 1024;
/// The least that the server reads at once.
const READ_BYTES_MIN: usize = 8 * 1024;
/// What the system keeps of an answer that its client does not take. Linux counts twice as much.
const SEND_BUFFER_BYTES: usize = 64 * 1024;
/// Browsers must not guess another type than an answer declares.
const NO_GUESS: HeaderValue = HeaderValue::from_static("nosniff");
/// How often the same warning is logged at most.
const SAID_EVERY: Duration = Duration::from_secs(60);

/// The limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Serving {
    /// How many connections may be open at the same time; at least 1.
    pub connections_max: usize,
    /// How many of these may be from one address (IPv6: from one /64); at least 1.
    pub address_connections_max: usize,
    /// How long the head of a request may take, counted from the connection or the answer before. Also how long a
    /// client may read nothing of an answer.
    pub head_time_max: Duration,
    /// The largest head of a request. A slightly longer head is still read and refused by the API; a longer one is
    /// refused by the server.
    pub head_bytes_max: usize,
}

/// The connections that are open.
struct Open {
    serving: Serving,
    tasks: JoinSet<()>,
    connections: HashMap<task::Id, Arc<Connection>>,
    /// Notified when a connection has become idle.
    idle: Arc<Notify>,
    said_full: Option<Instant>,
    said_share: Option<Instant>,
}

impl Serving {
    /// With a quarter for each address, and the default time and size.
    pub fn of(connections_max: usize) -> Self {
        Serving {
            connections_max,
            address_connections_max: (connections_max / 4).max(1),
            head_time_max: HEAD_TIME_MAX,
            head_bytes_max: 16 * 1024,
        }
    }

    /// Serves until `stop`, then finishes the requests that are under way.
    pub async fn serve(self, listener: TcpListener, router: Router, stop: &CancellationToken) {
        let mut open = Open::new(self);
        let idle = Arc::clone(&open.idle);
        let mut coming = None;
        loop {
            if let Some((client, peer)) = coming.take() {
                coming = open.take_in(client, peer, &router, stop).await;
            }
            tokio::select! {
                () = stop.cancelled() => break,
                true = open.ended() => {}
                () = idle.notified(), if coming.is_some() => {}
                accepted = listener.accept(), if coming.is_none() => match accepted {
                    Ok(accepted) => coming = Some(accepted),
                    Err(error) if is_of_one(error.kind()) => debug!("a client left before it was accepted: {error}"),
                    Err(error) => {
                        error!("no connection can be accepted: {error}");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
        drop(listener);
        while open.ended().await {}
    }

    async fn connection(self, stream: TcpStream, router: Router, connection: Arc<Connection>, stop: CancellationToken) {
        // Otherwise the second part of an answer would wait until the client confirms the first. An error here means
        // that the client is gone, which is noticed later.
        let _ = stream.set_nodelay(true);
        let _ = SockRef::from(&stream).set_send_buffer_size(SEND_BUFFER_BYTES);
        let app = TowerToHyperService::new(router);
        let asked = Arc::clone(&connection);
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(ConnectInfo(asked.peer));
            let (connection, refused) = (Arc::clone(&asked), refused(&request));
            let answering = app.call(request);
            async move {
                let _under_way = connection.ask()?;
                let mut response = match refused {
                    Some(status) => status.into_response(),
                    None => answering.await.unwrap_or_else(|never| match never {}),
                };
                response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, NO_GUESS);
                Ok::<_, io::Error>(response)
            }
        });
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(self.head_time_max);
        builder.max_buf_size(self.head_bytes_max.saturating_add(HEAD_BYTES_ABOVE).max(READ_BYTES_MIN));
        let stream = TokioIo::new(Stream::new(stream, self.head_time_max, Arc::clone(&connection)));
        let mut serving = pin!(builder.serve_connection(stream, service));
        let ended = tokio::select! {
            ended = serving.as_mut() => ended,
            () = connection.closed() => return,
            () = stop.cancelled() => {
                serving.as_mut().graceful_shutdown();
                serving.await
            }
        };
        if let Err(error) = ended {
            debug!("a connection ended early: {error}");
        }
    }
}

impl Open {
    fn new(serving: Serving) -> Self {
        Open {
            serving,
            tasks: JoinSet::new(),
            connections: HashMap::new(),
            idle: Arc::default(),
            said_full: None,
            said_share: None,
        }
    }

    /// Waits for the end of a connection; false when none is open.
    async fn ended(&mut self) -> bool {
        let Some(ended) = self.tasks.join_next_with_id().await else { return false };
        let id = ended.map_or_else(|error| error.id(), |(id, ())| id);
        self.connections.remove(&id);
        true
    }

    /// Serves a client. Drops it if its address has its share and none of these connections is idle. Gives it back, to
    /// wait, if no connection at all is idle.
    async fn take_in(
        &mut self,
        client: TcpStream,
        peer: SocketAddr,
        router: &Router,
        stop: &CancellationToken,
    ) -> Option<(TcpStream, SocketAddr)> {
        let connection = Arc::new(Connection::new(peer, counted_as(peer.ip()), Arc::clone(&self.idle)));
        let of_address = |other: &Connection| other.counted_as == connection.counted_as;
        let (all, count) =
            (self.connections.len(), self.connections.values().filter(|other| of_address(other)).count());
        if count >= self.serving.address_connections_max {
            if is_due(&mut self.said_share) {
                warn!("{count} connections are open from {}, which is as many as one address may have", peer.ip());
            }
            if !self.make_room(of_address).await {
                return None;
            }
        } else if all >= self.serving.connections_max {
            if is_due(&mut self.said_full) {
                warn!(
                    "{all} clients are connected, which is as many as may; the longest idle one makes room, and while none is others wait"
                );
            }
            if !self.make_room(|_| true).await {
                return Some((client, peer));
            }
        }
        let served = self.serving.connection(client, router.clone(), Arc::clone(&connection), stop.clone());
        let id = self.tasks.spawn(served).id();
        self.connections.insert(id, connection);
        None
    }

    /// Closes the connection among these that has been idle longest; false when none is idle.
    async fn make_room(&mut self, among: impl Fn(&Connection) -> bool) -> bool {
        let left = loop {
            let idle = self.connections.iter().filter(|(_, connection)| among(connection));
            let idle = idle.filter_map(|(id, connection)| Some((connection.idle_since()?, id, connection)));
            let Some((_, id, longest)) = idle.min_by_key(|(since, ..)| *since) else { return false };
            // If not, a request has come in on it meanwhile.
            if longest.close() {
                break *id;
            }
        };
        while self.connections.contains_key(&left) && self.ended().await {}
        true
    }
}

/// Whether a request is refused before it is answered: an intermediary could read another target in it, or a shorter
/// body. `Host` must occur once, with HTTP/1.0 at most once (RFC 9112, 3.2). The only known transfer coding is chunked
/// (6.1).
fn refused(request: &Request<Incoming>) -> Option<StatusCode> {
    let (hosts, codings) =
        (request.headers().get_all(header::HOST), request.headers().get_all(header::TRANSFER_ENCODING));
    let hosts = hosts.iter().count();
    if hosts > 1 || hosts == 0 && request.version() >= Version::HTTP_11 {
        return Some(StatusCode::BAD_REQUEST);
    }
    let mut codings = codings.iter();
    let is_known = match (codings.next(), codings.next()) {
        (None, _) => true,
        (Some(coding), None) => coding.as_bytes().eq_ignore_ascii_case(b"chunked"),
        (Some(_), Some(_)) => false,
    };
    (!is_known).then_some(StatusCode::NOT_IMPLEMENTED)
}

/// Whether a warning is due that was not logged lately.
fn is_due(last: &mut Option<Instant>) -> bool {
    let is_due = last.is_none_or(|last| last.elapsed() >= SAID_EVERY);
    if is_due {
        *last = Some(Instant::now());
    }
    is_due
}

/// Whether the error concerns one client alone.
fn is_of_one(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::ConnectionRefused | ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset)
}
