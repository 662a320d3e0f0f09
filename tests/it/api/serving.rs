//! How the program listens: what becomes of clients that are slow, silent, or too many, and of a request that is under
//! way at the stop.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::ConnectInfo;
use axum::routing::get;
use futures_util::stream;
use landfall::app::Serving;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const REQUEST: &[u8] = b"GET /peer HTTP/1.1\r\nhost: here\r\n\r\n";
const HEAD_TIME: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(60);
/// For what happens at once; machines that test are busy.
const SOON: Duration = Duration::from_secs(10);
/// For a connection on which nothing comes.
const MOMENT: Duration = Duration::from_millis(100);
const STREAMED: usize = 16 << 10;

/// A server; it ends with its owner.
struct Server {
    address: SocketAddr,
    stop: CancellationToken,
    /// A request for `/slow` has come in, and may be answered.
    slow: [Arc<Notify>; 2],
    /// How many bytes of `/stream` were taken from the handler.
    streamed: Arc<AtomicUsize>,
    tasks: JoinSet<()>,
}

impl Server {
    async fn start(connections_max: usize, head_time_max: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        let slow = [Arc::new(Notify::new()), Arc::new(Notify::new())];
        let (of_slow, streamed) = (slow.clone(), Arc::new(AtomicUsize::new(0)));
        let of_stream = Arc::clone(&streamed);
        let endless = move || {
            of_stream.fetch_add(STREAMED, Ordering::Relaxed);
            Ok::<_, std::io::Error>(Bytes::from_static(&[b'x'; STREAMED]))
        };
        let router = Router::new()
            .route("/large", get(|| async { vec![b'x'; 64 << 20] }))
            .route("/stream", get(|| async move { Body::from_stream(stream::repeat_with(endless)) }))
            .route("/peer", get(|ConnectInfo(peer): ConnectInfo<SocketAddr>| async move { peer.to_string() }))
            .route(
                "/slow",
                get(move || async move {
                    of_slow[0].notify_one();
                    of_slow[1].notified().await;
                    "at last"
                }),
            );
        let (mut tasks, stopped) = (JoinSet::new(), stop.clone());
        let serving = Serving { head_time_max, ..Serving::of(connections_max) };
        tasks.spawn(async move { serving.serve(listener, router, &stopped).await });
        Server { address, stop, slow, streamed, tasks }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// From 127.0.0.`host`.
    async fn connect_from(&self, host: u8) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, host], 0).into()).unwrap();
        socket.connect(self.address).await.unwrap()
    }

    /// What is answered to this, up to the end of the connection.
    async fn answer(&self, request: &[u8]) -> String {
        let mut client = self.connect().await;
        client.write_all(request).await.unwrap();
        let mut answer = Vec::new();
        tokio::time::timeout(SOON, client.read_to_end(&mut answer)).await.expect("it is answered").unwrap();
        String::from_utf8(answer).unwrap()
    }
}

/// Asks and is answered, soon.
async fn ask(client: &mut TcpStream) {
    client.write_all(REQUEST).await.unwrap();
    tokio::time::timeout(SOON, until(client, "127.0.0.")).await.expect("it is answered");
}

/// Whether the server has left it open. Nothing is on its way.
async fn is_open(client: &mut TcpStream) -> bool {
    tokio::time::timeout(MOMENT, client.read(&mut [0])).await.is_err()
}

/// Reads until this is there.
async fn until(stream: &mut TcpStream, wanted: &str) {
    let mut read = Vec::new();
    let reading = async {
        while !String::from_utf8_lossy(&read).contains(wanted) {
            assert!(stream.read_buf(&mut read).await.unwrap() > 0, "it ended: {}", String::from_utf8_lossy(&read));
        }
    };
    tokio::time::timeout(PATIENCE, reading).await.unwrap();
}

#[tokio::test]
async fn a_request_is_answered_and_reports_who_asked() {
    let server = Server::start(8, 2 * PATIENCE).await;
    let mut client = server.connect().await;
    for _ in 0..2 {
        client.write_all(REQUEST).await.unwrap();
        let peer = client.local_addr().unwrap().to_string();
        until(&mut client, &peer).await;
    }
}

#[tokio::test]
async fn a_client_that_never_ends_its_request_is_left_and_so_is_one_that_asks_no_more() {
    let server = Server::start(8, HEAD_TIME).await;
    let mut silent = server.connect().await;
    let mut served = server.connect().await;
    served.write_all(REQUEST).await.unwrap();
    until(&mut served, "127.0.0.1").await;
    let mut slow = server.connect().await;
    slow.write_all(b"GET /peer HTTP/1.1\r\nhost: here\r\nx-slow: ").await.unwrap();
    let begun = Instant::now();
    // A byte now and then, as long as they are taken.
    while slow.write_all(b"x").await.is_ok() {
        assert!(begun.elapsed() < PATIENCE, "it is listened to for ever");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for client in [&mut silent, &mut served] {
        let ended = tokio::time::timeout(PATIENCE, client.read_to_end(&mut Vec::new())).await;
        assert!(ended.is_ok(), "it may stay for ever");
    }
}

#[tokio::test]
async fn one_client_too_many_is_served_when_another_has_gone() {
    let server = Server::start(1, HEAD_TIME).await;
    let mut idle = server.connect().await;
    idle.write_all(REQUEST).await.unwrap();
    let peer = idle.local_addr().unwrap().to_string();
    until(&mut idle, &peer).await;
    let mut other = server.connect().await;
    other.write_all(REQUEST).await.unwrap();
    until(&mut other, "127.0.0.1").await;
    // Its end was sent before the other was taken in.
    match idle.try_read(&mut [0]) {
        Ok(0) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        open => panic!("both were open: {open:?}"),
    }
}

#[tokio::test]
async fn what_is_under_way_at_the_stop_is_answered_and_nobody_else_comes_in() {
    let mut server = Server::start(8, 2 * PATIENCE).await;
    let mut idle = server.connect().await;
    idle.write_all(REQUEST).await.unwrap();
    let peer = idle.local_addr().unwrap().to_string();
    until(&mut idle, &peer).await;
    let mut client = server.connect().await;
    client.write_all(b"GET /slow HTTP/1.1\r\nhost: here\r\n\r\n").await.unwrap();
    server.slow[0].notified().await;
    server.stop.cancel();
    let ended = tokio::time::timeout(PATIENCE, idle.read_to_end(&mut Vec::new())).await;
    assert!(ended.is_ok(), "who asks nothing is not waited for");
    assert_eq!(TcpStream::connect(server.address).await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    server.slow[1].notify_one();
    until(&mut client, "at last").await;
    let over = tokio::time::timeout(PATIENCE, server.tasks.join_next()).await;
    assert!(matches!(over, Ok(Some(Ok(())))), "it ends with the last of them");
}

#[tokio::test]
async fn an_address_holds_a_quarter_of_the_connections_and_its_own_longest_idle_one_makes_room() {
    let server = Server::start(16, 2 * PATIENCE).await;
    let mut held = Vec::new();
    for _ in 0..40 {
        held.push(server.connect().await);
    }
    // They are taken in one after the other.
    ask(&mut server.connect_from(2).await).await;
    let mut open = Vec::new();
    for client in &mut held {
        open.push(is_open(client).await);
    }
    let expected: Vec<bool> = (0..40).map(|index| index >= 36).collect();
    assert_eq!(open, expected);
    ask(held.last_mut().unwrap()).await;
    ask(&mut server.connect().await).await;
}

#[tokio::test]
async fn an_address_that_asks_on_all_its_connections_gets_no_further_one_and_others_do() {
    let server = Server::start(4, 2 * PATIENCE).await;
    let mut busy = server.connect().await;
    busy.write_all(b"GET /slow HTTP/1.1\r\nhost: here\r\n\r\n").await.unwrap();
    server.slow[0].notified().await;
    let mut more = server.connect().await;
    let refused = tokio::time::timeout(SOON, more.read(&mut [0])).await.expect("it is closed at once");
    assert!(matches!(refused, Ok(0) | Err(_)));
    ask(&mut server.connect_from(2).await).await;
    server.slow[1].notify_one();
    until(&mut busy, "at last").await;
}

#[tokio::test]
async fn where_all_connections_are_taken_the_longest_idle_one_is_closed_for_a_new_one() {
    let server = Server::start(8, 2 * PATIENCE).await;
    let mut busy = server.connect_from(1).await;
    busy.write_all(b"GET /slow HTTP/1.1\r\nhost: here\r\n\r\n").await.unwrap();
    server.slow[0].notified().await;
    let mut held = Vec::new();
    for host in [1, 2, 2, 3, 3, 4, 4] {
        let mut client = server.connect_from(host).await;
        ask(&mut client).await;
        held.push(client);
    }
    // The first is used again, so the second has been idle for longest.
    ask(&mut held[0]).await;
    ask(&mut server.connect_from(5).await).await;
    let mut open = Vec::new();
    for client in &mut held {
        open.push(is_open(client).await);
    }
    assert_eq!(open, [true, false, true, true, true, true, true]);
    server.slow[1].notify_one();
    until(&mut busy, "at last").await;
}

#[tokio::test]
async fn who_comes_while_every_connection_is_asked_on_waits_for_the_first_that_is_idle() {
    let server = Server::start(1, 2 * PATIENCE).await;
    let mut busy = server.connect_from(1).await;
    busy.write_all(b"GET /slow HTTP/1.1\r\nhost: here\r\n\r\n").await.unwrap();
    server.slow[0].notified().await;
    let mut next = server.connect_from(2).await;
    next.write_all(REQUEST).await.unwrap();
    assert!(is_open(&mut next).await);
    server.slow[1].notify_one();
    until(&mut busy, "at last").await;
    tokio::time::timeout(SOON, until(&mut next, "127.0.0.2")).await.expect("it is answered");
}

#[tokio::test]
async fn a_head_that_never_ends_is_refused_before_it_takes_much_memory() {
    let server = Server::start(8, 2 * PATIENCE).await;
    let head = format!("GET / HTTP/1.1\r\nhost: here\r\nx: {}", "x".repeat(20_480 - 31));
    assert_eq!(head.len(), 20_480);
    let answer = server.answer(head.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
}

#[tokio::test]
async fn little_is_kept_of_an_answer_that_nobody_takes() {
    let server = Server::start(8, 2 * PATIENCE).await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    let mut deaf = socket.connect(server.address).await.unwrap();
    deaf.write_all(b"GET /stream HTTP/1.1\r\nhost: here\r\n\r\n").await.unwrap();
    let (mut before, mut still) = (0, 0);
    while still < 10 {
        tokio::time::sleep(MOMENT).await;
        let now = server.streamed.load(Ordering::Relaxed);
        still = if now > 0 && now == before { still + 1 } else { 0 };
        before = now;
    }
    assert!(before <= 768 << 10, "{before} bytes are kept for a client that takes none");
}

#[tokio::test]
async fn a_client_that_takes_nothing_of_its_answer_is_reset() {
    for close in ["", "connection: close\r\n"] {
        let server = Server::start(8, HEAD_TIME).await;
        let mut deaf = server.connect().await;
        deaf.write_all(format!("GET /large HTTP/1.1\r\nhost: here\r\n{close}\r\n").as_bytes()).await.unwrap();
        tokio::time::sleep(5 * HEAD_TIME).await;
        let end = tokio::time::timeout(SOON, deaf.read_to_end(&mut Vec::new())).await.expect("it ends");
        assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionReset, "else what it does not take is kept for it");
    }
}

#[tokio::test]
async fn a_request_names_one_host_and_no_transfer_coding_but_chunked() {
    let server = Server::start(8, 2 * PATIENCE).await;
    for (head, status) in [
        ("GET /peer HTTP/1.1\r\n", 400),
        ("GET /peer HTTP/1.1\r\nhost: a\r\nhost: a\r\n", 400),
        ("GET /peer HTTP/1.0\r\nhost: a\r\nhost: a\r\n", 400),
        ("GET /peer HTTP/1.0\r\n", 200),
        ("GET /peer HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip, chunked\r\n", 501),
        ("GET /peer HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n", 501),
        ("GET /peer HTTP/1.1\r\nhost: a\r\ntransfer-encoding: Chunked\r\n", 200),
        // How long such a body is cannot be known: the server's own refusal (RFC 9112, 6.3).
        ("GET /peer HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip\r\n", 400),
    ] {
        let answer = server.answer(format!("{head}connection: close\r\n\r\n0\r\n\r\n").as_bytes()).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")) || answer.starts_with(&format!("HTTP/1.0 {status} ")),
            "{head}: {answer}"
        );
    }
}

#[tokio::test]
async fn no_answer_lets_a_browser_guess_what_it_is() {
    let server = Server::start(8, 2 * PATIENCE).await;
    for path in ["/peer", "/nothing"] {
        let answer =
            server.answer(format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").as_bytes()).await;
        assert!(answer.contains("\r\nx-content-type-options: nosniff\r\n"), "{answer}");
    }
}
