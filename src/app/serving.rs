//! Serves a router on a listener.
//!
//! Promises: a client that is slow or silent holds nothing for long: a connection on which no whole head of a request arrives in time is
//! closed, the first time and between two requests, and one that takes nothing of its answer for as long is reset. What is kept for
//! one, here and by the system, is bounded whatever it sends and does not take. So many connections and
//! no more are open, so many of one address, and what else this process does keeps its file descriptors. Where as many are open as may
//! be, the connection that has been idle longest is closed for a new one: of all, or of the address that has its share. No connection
//! is closed while a request on it is under way. Answers are sent at once. At the stop each request under way is answered.

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

/// Longer than the 60 s for which balancers keep a connection that nobody uses: whoever closes it first must not be us.
const HEAD_TIME_MAX: Duration = Duration::from_secs(75);
/// What fails to be accepted for want of something is tried again after this time.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// What may arrive of a head above what is taken, so that it is still refused in the words of who answers.
const HEAD_BYTES_ABOVE: usize = 4 * 1024;
/// The least that the server reads at once.
const READ_BYTES_MIN: usize = 8 * 1024;
/// What the system keeps of an answer that its client does not take. Linux counts twice as much.
const SEND_BUFFER_BYTES: usize = 64 * 1024;
/// Nothing that is served is anything else than it says, whatever it looks like to a browser.
const NO_GUESS: HeaderValue = HeaderValue::from_static("nosniff");
/// How often the same is said at most.
const SAID_EVERY: Duration = Duration::from_secs(60);

/// How much is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Serving {
    /// Open at the same time; at least 1.
    pub connections_max: usize,
    /// Of these, from one address (IPv6: from one /64); at least 1.
    pub address_connections_max: usize,
    /// For the head of a request to arrive, from the connection or the answer before on; and for a part of an answer to be taken.
    pub head_time_max: Duration,
    /// Of the head of a request; a little more is read, and what is longer yet is refused by the server alone.
    pub head_bytes_max: usize,
}

/// The connections that are open.
struct Open {
    serving: Serving,
    tasks: JoinSet<()>,
    connections: HashMap<task::Id, Arc<Connection>>,
    /// Told when a connection has become idle.
    idle: Arc<Notify>,
    said_full: Option<Instant>,
    said_share: Option<Instant>,
}

impl Serving {
    /// With a quarter for each address, and the usual time and size.
    pub fn of(connections_max: usize) -> Self {
        Serving {
            connections_max,
            address_connections_max: (connections_max / 4).max(1),
            head_time_max: HEAD_TIME_MAX,
            head_bytes_max: 16 * 1024,
        }
    }

    /// Serves until `stop`, and what is under way then to its end.
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
        // An answer in two parts would wait for the client's word that it has the first. Who is gone will be found to be.
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

    /// Serves a client, or leaves it where its address has its share and asks on all of it. Given back, it waits: all connections
    /// are asked on.
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
            // Else a request has come in on it meanwhile.
            if longest.close() {
                break *id;
            }
        };
        while self.connections.contains_key(&left) && self.ended().await {}
        true
    }
}

/// Whether a request is refused before it is answered: who stands in between could take it for another, or its body for shorter.
/// Whom it is for is named once, by HTTP/1.0 at most once (RFC 9112, 3.2); of transfer codings chunked alone is known (6.1).
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

/// Whether something is to be said that was not said lately.
fn is_due(last: &mut Option<Instant>) -> bool {
    let is_due = last.is_none_or(|last| last.elapsed() >= SAID_EVERY);
    if is_due {
        *last = Some(Instant::now());
    }
    is_due
}

/// Whether it concerns one client alone.
fn is_of_one(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::ConnectionRefused | ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset)
}
