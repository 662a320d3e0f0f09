//! A real `nats-server` with JetStream that can be killed, stopped and started, what its stream holds, and a door
//! before it behind which acknowledgements get lost.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use async_nats::ConnectOptions;
use async_nats::jetstream::context::{ContextBuilder, GetStreamErrorKind};
use async_nats::jetstream::stream::Stream;
use async_nats::jetstream::{Context, ErrorCode};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::stage::variable;

const STREAM: &str = "LANDFALL";
const PATIENCE: Duration = Duration::from_secs(60);
/// What the server logs before its port.
const LISTENING: &str = "Listening for client connections on 127.0.0.1:";

/// A server; killed when dropped.
pub(crate) struct NatsServer {
    folder: TempDir,
    port: u16,
    child: Option<Child>,
}

/// A message of the stream, in its order.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Stored {
    pub(crate) subject: String,
    pub(crate) message_id: String,
    pub(crate) payload: String,
}

/// Leads to a server, until a test has it lose acknowledgements. It ends with its owner.
pub(crate) struct LossyDoor {
    pub(crate) url: String,
    to_lose: Arc<AtomicUsize>,
    _served: JoinSet<()>,
}

impl NatsServer {
    /// A running server without any stream.
    pub(crate) fn start() -> Self {
        let mut server = NatsServer { folder: tempfile::tempdir().unwrap(), port: 0, child: None };
        // It chooses a free one itself: nobody takes that in between.
        server.port = server.run("-1");
        server
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Starts it on what is left on the disk.
    pub(crate) fn start_again(&mut self) {
        self.run(&self.port.to_string());
    }

    /// Runs it and waits until it listens; at which port.
    fn run(&mut self, port: &str) -> u16 {
        let path = self.folder.path().join("log");
        let child = Command::new(variable("LANDFALL_NATS_SERVER"))
            .args(["-a", "127.0.0.1", "-p", port, "-js", "-sd"])
            .arg(self.folder.path().join("data"))
            .stdout(Stdio::null())
            .stderr(File::create(&path).unwrap())
            .spawn();
        self.child = Some(child.unwrap());
        let begun = Instant::now();
        loop {
            let log = std::fs::read_to_string(&path).unwrap();
            // A line that is still being written has no end yet.
            let port = |line: &str| line.strip_suffix('\n')?.split_once(LISTENING)?.1.parse().ok();
            if let Some(port) = log.split_inclusive('\n').find_map(port) {
                return port;
            }
            assert!(begun.elapsed() < PATIENCE, "nats-server does not listen: {log}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// kill -9.
    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Stops it where it stands, or lets it go on: STOP, CONT.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &pid]).status().unwrap().success());
    }

    pub(crate) async fn context(&self) -> Context {
        let connected = ConnectOptions::new().connection_timeout(PATIENCE).connect(self.url()).await;
        ContextBuilder::new().timeout(PATIENCE).build(connected.unwrap())
    }

    /// The stream, when there is one. A server that does not report is asked again.
    async fn stream(&self) -> Option<Stream> {
        let begun = Instant::now();
        loop {
            match self.context().await.get_stream(STREAM).await {
                Ok(stream) => return Some(stream),
                Err(error) => match error.kind() {
                    GetStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NOT_FOUND => {
                        return None;
                    }
                    kind => assert!(begun.elapsed() < PATIENCE, "the server does not tell of {STREAM}: {kind:?}"),
                },
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Everything in the stream, in its order; nothing while there is no stream.
    pub(crate) async fn stored(&self) -> Vec<Stored> {
        let Some(stream) = self.stream().await else { return Vec::new() };
        let state = stream.cached_info().state.clone();
        let mut stored = Vec::new();
        if state.messages == 0 {
            return stored;
        }
        for sequence in state.first_sequence..=state.last_sequence {
            let message = stream.get_raw_message(sequence).await.unwrap();
            stored.push(Stored {
                subject: message.subject.to_string(),
                message_id: message.headers.get("Nats-Msg-Id").unwrap().to_string(),
                payload: String::from_utf8(message.payload.to_vec()).unwrap(),
            });
        }
        stored
    }

    /// Waits until the stream holds so many messages.
    pub(crate) async fn until_stored(&self, count: usize, patience: Duration) {
        let begun = Instant::now();
        loop {
            let stored = self.stream().await.map_or(0, |stream| stream.cached_info().state.messages);
            if usize::try_from(stored).unwrap() >= count {
                return;
            }
            assert!(begun.elapsed() < patience, "{stored} of {count} are stored");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl LossyDoor {
    pub(crate) async fn before(server: &NatsServer) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let url = format!("nats://{}", listener.local_addr().unwrap());
        let to_lose = Arc::<AtomicUsize>::default();
        let (port, lost) = (server.port, Arc::clone(&to_lose));
        let mut served = JoinSet::new();
        served.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (client, _) = listener.accept().await.unwrap();
                connections.spawn(lead(client, port, Arc::clone(&lost)));
            }
        });
        LossyDoor { url, to_lose, _served: served }
    }

    /// Of the next acknowledgements so many get lost, and each time the connection with them.
    pub(crate) fn lose(&self, count: usize) {
        self.to_lose.store(count, Ordering::SeqCst);
    }

    pub(crate) fn left_to_lose(&self) -> usize {
        self.to_lose.load(Ordering::SeqCst)
    }
}

/// Between a client and the server, until either ends or an acknowledgement is to be lost.
async fn lead(client: TcpStream, port: u16, to_lose: Arc<AtomicUsize>) {
    let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await else { return };
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
        (client.into_split(), server.into_split());
    let out = async { tokio::io::copy(&mut from_client, &mut to_server).await.map(drop) };
    let back = async {
        let mut bytes = vec![0; 64 * 1024];
        loop {
            let count = from_server.read(&mut bytes).await?;
            let acknowledges = bytes[..count].windows(6).any(|window| window == b"\"seq\":");
            let lose = |left: usize| left.checked_sub(1);
            let is_lost = acknowledges && to_lose.fetch_update(Ordering::SeqCst, Ordering::SeqCst, lose).is_ok();
            if count == 0 || is_lost {
                return std::io::Result::Ok(());
            }
            to_client.write_all(&bytes[..count]).await?;
        }
    };
    // However it ends, both connections end with it.
    tokio::select! { _ = out => {}, _ = back => {} }
}

/// Each event is there once, under its own id and the subject of its account, and of each deposit in its order.
pub(crate) fn assert_each_once_and_in_order(stored: &[Stored], events: &[Value], account: &str) {
    let mut wanted: Vec<&str> = events.iter().map(|event| event["id"].as_str().unwrap()).collect();
    let mut found: Vec<&str> = stored.iter().map(|message| message.message_id.as_str()).collect();
    wanted.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, wanted, "each event once");
    let mut reported: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for Stored { subject, message_id, payload } in stored {
        let envelope: Value = serde_json::from_str(payload).unwrap();
        assert_eq!(envelope["id"], message_id.as_str());
        assert_eq!(subject, &format!("landfall.deposit_v2.{account}"));
        let (deposit, status) = (envelope["data"]["id"].to_string(), envelope["data"]["status"].as_str().unwrap());
        reported.entry(deposit).or_default().push(status.to_owned());
    }
    assert!(reported.values().all(|statuses| statuses == &["PENDING", "CONFIRMED"]), "in order: {reported:#?}");
}
