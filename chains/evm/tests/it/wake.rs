//! What wakes up: a new head over WebSocket, once. What does not: repetitions, silence, garbage, dead servers.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use landfall_chain::{BlockSource, EndpointState};
use landfall_evm::EvmSource;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use crate::mint::{self, Tx};
use crate::node::{Ledger, Node, mainnet, until};

async fn node() -> Node {
    let ledger = Ledger { finalized: Some(1), ..Ledger::of(mint::chain(1, vec![vec![Tx::default()]])) };
    Node::start(move |method, params| ledger.answer(method, params)).await
}

/// A source over `node` and the server that `listener` is.
fn source(node: &Node, listener: &TcpListener) -> (EvmSource, Arc<Notify>, JoinSet<()>) {
    let ws = format!("ws://{}/kanary-path?key=kanary-key", listener.local_addr().unwrap());
    let urls: Vec<url::Url> = [format!("http://{}", node.id()), ws].iter().map(|url| url.parse().unwrap()).collect();
    let source = EvmSource::new(mainnet(), &urls).unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(source.listen());
    let wake_up = source.wake_up();
    (source, wake_up, tasks)
}

async fn accept(listener: &TcpListener) -> WebSocketStream<TcpStream> {
    let (stream, _) = listener.accept().await.unwrap();
    let mut socket = tokio_tungstenite::accept_async(stream).await.unwrap();
    let asked = socket.next().await.unwrap().unwrap();
    assert!(asked.to_text().unwrap().contains("\"eth_subscribe\",\"params\":[\"newHeads\"]"), "{asked}");
    socket.send(Message::text(r#"{"jsonrpc":"2.0","id":1,"result":"0x1"}"#)).await.unwrap();
    socket
}

fn head(hash: &str) -> Message {
    let head = format!(r#"{{"number":"0xffffff","hash":"{hash}","parentHash":"0x0"}}"#);
    Message::text(format!(
        r#"{{"jsonrpc":"2.0","method":"eth_subscription","params":{{"subscription":"0x1","result":{head}}}}}"#
    ))
}

async fn is_woken(wake_up: &Notify) -> bool {
    tokio::time::timeout(Duration::from_secs(60), wake_up.notified()).await.is_ok()
}

/// That it is not, as long as anybody may wait for that.
async fn sleeps_on(wake_up: &Notify) -> bool {
    tokio::time::timeout(Duration::from_millis(400), wake_up.notified()).await.is_err()
}

#[tokio::test]
async fn a_new_head_wakes_up_once_and_is_never_data() {
    let (node, listener) = (node().await, TcpListener::bind("127.0.0.1:0").await.unwrap());
    let (source, wake_up, _tasks) = source(&node, &listener);
    let mut socket = accept(&listener).await;
    assert!(sleeps_on(&wake_up).await, "a subscription is no head");
    socket.send(head("0xaa")).await.unwrap();
    assert!(is_woken(&wake_up).await);
    socket.send(head("0xaa")).await.unwrap();
    assert!(sleeps_on(&wake_up).await, "the same again");
    socket.send(head("0xbb")).await.unwrap();
    assert!(is_woken(&wake_up).await);
    let status = source.endpoints().snapshot().remove(1);
    assert_eq!(status.id, format!("{} (wake-ups)", listener.local_addr().unwrap()));
    assert_eq!((status.state, status.reason.as_str()), (EndpointState::Healthy, "wake-ups only"));
    assert_eq!((status.latest, source.tip().await.unwrap().latest.number), (None, 1));
}

#[tokio::test]
async fn garbage_wakes_nobody_and_a_connection_that_ends_is_taken_up_again() {
    let (node, listener) = (node().await, TcpListener::bind("127.0.0.1:0").await.unwrap());
    let (source, wake_up, _tasks) = source(&node, &listener);
    let mut socket = accept(&listener).await;
    for garbage in ["", "null", "[]", "{\"params\":{\"result\":{}}}", "{\"params\":{\"result\":{\"hash\":7}}}"] {
        socket.send(Message::text(garbage)).await.unwrap();
    }
    socket.send(Message::binary(vec![0; 1_000])).await.unwrap();
    assert!(sleeps_on(&wake_up).await);
    // Far more than a head can be: the connection is given up.
    let _ = socket.send(Message::text("x".repeat(1 << 20))).await;
    drop(socket);
    let mut socket = accept(&listener).await;
    let reason = source.endpoints().snapshot().remove(1).reason;
    assert!(reason.starts_with("wake-ups: ") && !reason.contains("kanary"), "{reason}");
    socket.send(head("0xaa")).await.unwrap();
    assert!(is_woken(&wake_up).await);
    assert!(source.tip().await.is_ok());
}

#[tokio::test]
async fn a_server_that_refuses_is_reported_without_secrets_and_hurts_nobody() {
    let (node, listener) = (node().await, TcpListener::bind("127.0.0.1:0").await.unwrap());
    let (source, _wake_up, _tasks) = source(&node, &listener);
    let (stream, _) = listener.accept().await.unwrap();
    let refusal = "HTTP/1.1 403 kanary-key\r\ncontent-length: 0\r\n\r\n";
    stream.writable().await.unwrap();
    stream.try_write(refusal.as_bytes()).unwrap();
    let status = || source.endpoints().snapshot().remove(1);
    until("the refusal is told", async || status().state == EndpointState::Failing).await;
    let status = status();
    assert_eq!(status.reason, "wake-ups: HTTP status 403");
    assert!(!format!("{source:?} {status:?}").contains("kanary"));
    assert_eq!(source.tip().await.unwrap().latest.number, 1);
}

#[tokio::test]
async fn wake_ups_alone_are_no_source() {
    let urls: [url::Url; 1] = ["wss://a.example/1".parse().unwrap()];
    let error = EvmSource::new(mainnet(), &urls).unwrap_err().to_string();
    assert_eq!(error, "ETHEREUM_MAINNET: no endpoint is configured; set chains.ETHEREUM_MAINNET.rpc");
}
