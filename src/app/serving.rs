//! Serves a router on a listener.
//!
//! Promises: a client that is slow or silent holds nothing for long: a connection on which no whole head of a request arrives in time is
//! closed, the first time and between two requests, and so is one that takes nothing of its answer for as long. So many connections and
//! no more are open: others wait in the system's queue, which is said, and what else this process does keeps its file descriptors.
//! Answers are sent at once. At the stop each request under way is answered.

use std::io::{self, ErrorKind, IoSlice};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::Sleep;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, warn};

/// Longer than the 60 s for which balancers keep a connection that nobody uses: whoever closes it first must not be us.
const HEAD_TIME_MAX: Duration = Duration::from_secs(75);
/// What fails to be accepted for want of something is tried again after this time.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// How much is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Serving {
    /// Open at the same time; at least 1.
    pub connections_max: usize,
    /// For the head of a request to arrive, from the connection or the answer before on; and for a part of an answer to be taken.
    pub head_time_max: Duration,
}

impl Serving {
    /// With the usual time.
    pub fn of(connections_max: usize) -> Self {
        Serving { connections_max, head_time_max: HEAD_TIME_MAX }
    }

    /// Serves until `stop`, and what is under way then to its end.
    pub async fn serve(self, listener: TcpListener, router: Router, stop: &CancellationToken) {
        let mut connections = JoinSet::new();
        let mut had_room = true;
        loop {
            let has_room = connections.len() < self.connections_max;
            if had_room && !has_room {
                warn!("{} clients are connected, which is as many as may; others wait", self.connections_max);
            }
            had_room = has_room;
            tokio::select! {
                () = stop.cancelled() => break,
                Some(_) = connections.join_next() => {}
                accepted = listener.accept(), if has_room => match accepted {
                    Ok((stream, peer)) => {
                        drop(connections.spawn(self.connection(stream, peer, router.clone(), stop.clone())));
                    }
                    Err(error) if is_of_one(error.kind()) => debug!("a client left before it was accepted: {error}"),
                    Err(error) => {
                        error!("no connection can be accepted: {error}");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
        drop(listener);
        while connections.join_next().await.is_some() {}
    }

    async fn connection(self, stream: TcpStream, peer: SocketAddr, router: Router, stop: CancellationToken) {
        // An answer in two parts would wait for the client's word that it has the first. Who is gone will be found to be.
        let _ = stream.set_nodelay(true);
        let app = TowerToHyperService::new(router);
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(ConnectInfo(peer));
            app.call(request)
        });
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(self.head_time_max);
        let mut connection =
            pin!(builder.serve_connection(TokioIo::new(Taken::new(stream, self.head_time_max)), service));
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            debug!("a connection ended early: {error}");
        }
    }
}

/// A stream that fails when the other side takes nothing for too long.
struct Taken {
    stream: TcpStream,
    time_max: Duration,
    /// Running while something waits to be taken.
    over: Option<Pin<Box<Sleep>>>,
}

impl Taken {
    fn new(stream: TcpStream, time_max: Duration) -> Self {
        Taken { stream, time_max, over: None }
    }

    /// What became of a write, or that it has waited for too long.
    fn timed<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.over = None;
            return written;
        }
        let over = self.over.get_or_insert_with(|| Box::pin(tokio::time::sleep(self.time_max)));
        over.as_mut().poll(context).map(|()| Err(ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Taken {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for Taken {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.timed(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.timed(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Whether it concerns one client alone.
fn is_of_one(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::ConnectionRefused | ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset)
}
