//! Serves a router on a listener.
//!
//! Promises: a client that is slow or silent holds nothing for long: a connection on which no whole head of a request arrives in time is
//! closed, the first time and between two requests. So many connections and no more are open: others wait in the system's queue, and
//! what else this process does keeps its file descriptors. Answers are sent at once. At the stop each request under way is answered.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error};

/// Longer than the 60 s for which balancers keep a connection that nobody uses: whoever closes it first must not be us.
const HEAD_TIME_MAX: Duration = Duration::from_secs(75);
/// What fails to be accepted for want of something is tried again after this time.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// How much is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Serving {
    /// Open at the same time; at least 1.
    pub connections_max: usize,
    /// For the head of a request to arrive, from the connection or the answer before on.
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
        loop {
            let has_room = connections.len() < self.connections_max;
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
        let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
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

/// Whether it concerns one client alone.
fn is_of_one(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::ConnectionRefused | ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset)
}
