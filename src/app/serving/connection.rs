//! One connection: its client, since when it is idle, and its stream.
//!
//! Promises: a connection that is closed for another one is idle, and no request on it is acted upon after that. It is
//! idle while no request on it is under way, even while its client slowly sends one or reads an answer. Idle time
//! counts from the last byte.

use std::io::{self, ErrorKind, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::Sleep;

/// The state of a connection.
pub(super) struct Connection {
    pub peer: SocketAddr,
    /// The address that it counts for.
    pub counted_as: IpAddr,
    state: Mutex<State>,
    closing: Notify,
    /// Notified when it becomes idle.
    idle: Arc<Notify>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Idle { since: Instant },
    UnderWay,
    Closed,
}

/// A request is under way for as long as this lives.
pub(super) struct UnderWay(Arc<Connection>);

impl Connection {
    pub(super) fn new(peer: SocketAddr, counted_as: IpAddr, idle: Arc<Notify>) -> Self {
        let state = Mutex::new(State::Idle { since: Instant::now() });
        Connection { peer, counted_as, state, closing: Notify::new(), idle }
    }

    /// Begins a request.
    ///
    /// # Errors
    /// When the connection was closed for another.
    pub(super) fn ask(self: Arc<Self>) -> io::Result<UnderWay> {
        let mut state = self.state();
        if *state == State::Closed {
            return Err(ErrorKind::ConnectionAborted.into());
        }
        *state = State::UnderWay;
        drop(state);
        Ok(UnderWay(self))
    }

    /// Something was sent or received.
    fn moved(&self) {
        let mut state = self.state();
        if let State::Idle { since } = &mut *state {
            *since = Instant::now();
        }
    }

    pub(super) fn idle_since(&self) -> Option<Instant> {
        match *self.state() {
            State::Idle { since } => Some(since),
            State::UnderWay | State::Closed => None,
        }
    }

    /// Closes it if it is idle; false if it is not.
    pub(super) fn close(&self) -> bool {
        let mut state = self.state();
        if !matches!(*state, State::Idle { .. }) {
            return false;
        }
        *state = State::Closed;
        self.closing.notify_one();
        true
    }

    /// Waits until [`Connection::close`] was called.
    pub(super) async fn closed(&self) {
        self.closing.notified().await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        *self.0.state() = State::Idle { since: Instant::now() };
        self.0.idle.notify_one();
    }
}

/// A stream that fails when the other side reads nothing for too long. It notes in its connection when bytes were sent
/// or received.
pub(super) struct Stream {
    stream: TcpStream,
    connection: Arc<Connection>,
    time_max: Duration,
    /// Runs while written bytes wait to be read.
    over: Option<Pin<Box<Sleep>>>,
}

impl Stream {
    pub(super) fn new(stream: TcpStream, time_max: Duration, connection: Arc<Connection>) -> Self {
        Stream { stream, connection, time_max, over: None }
    }

    /// What became of a write, or that it has waited for too long.
    fn timed<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.connection.moved();
            self.over = None;
            return written;
        }
        let over = self.over.get_or_insert_with(|| Box::pin(tokio::time::sleep(self.time_max)));
        over.as_mut().poll(context).map(|()| Err(ErrorKind::TimedOut.into()))
    }
}

/// If nobody reads an answer, the system discards the bytes that it still has to send.
impl Drop for Stream {
    fn drop(&mut self) {
        if self.over.is_some() {
            let _ = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(context, into);
        if read.is_ready() {
            self.connection.moved();
        }
        read
    }
}

impl AsyncWrite for Stream {
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
