//! A real `nats-server` with JetStream that can be killed, stopped and started, what its stream holds, and a door before it
//! behind which acknowledgements get lost.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::{Ipv4Addr, TcpStream as StdTcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use async_nats::jetstream::{self, Context};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::stage::{free_port, variable};

const STREAM: &str = "LANDFALL";
const PATIENCE: Duration = Duration::from_secs(60);

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

/// Leads to a server, until it is told to lose acknowledgements. It ends with its owner.
pub(crate) struct LossyDoor {
    pub(crate) url: String,
    to_lose: Arc<AtomicUsize>,
    _served: JoinSet<()>,
}

impl NatsServer {
    /// A running server without any stream.
    pub(crate) fn start() -> Self {
        let mut server = NatsServer { folder: tempfile::tempdir().unwrap(), port: free_port(), child: None };
        server.start_again();
        server
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Starts it on what is left on the disk.
    pub(crate) fn start_again(&mut self) {
        let log = File::options().create(true).append(true).open(self.folder.path().join("log")).unwrap();
        let child = Command::new(variable("LANDFALL_NATS_SERVER"))
            .args(["-a", "127.0.0.1", "-p", &self.port.to_string(), "-js", "-sd"])
            .arg(self.folder.path().join("data"))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        self.child = Some(child.unwrap());
        let begun = Instant::now();
        while StdTcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_err() {
            let log = || std::fs::read_to_string(self.folder.path().join("log")).unwrap();
            assert!(begun.elapsed() < PATIENCE, "nats-server does not listen: {}", log());
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
        jetstream::new(async_nats::connect(self.url()).await.unwrap())
    }

    /// Everything in the stream, in its order; nothing while there is no stream.
    pub(crate) async fn stored(&self) -> Vec<Stored> {
        let Ok(mut stream) = self.context().await.get_stream(STREAM).await else { return Vec::new() };
        let state = stream.info().await.unwrap().state.clone();
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
            let state = match self.context().await.get_stream(STREAM).await {
                Ok(stream) => stream.cached_info().state.messages,
                Err(_) => 0,
            };
            if usize::try_from(state).unwrap() >= count {
                return;
            }
            assert!(begun.elapsed() < patience, "{state} of {count} are stored");
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
    let mut told: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for Stored { subject, message_id, payload } in stored {
        let envelope: Value = serde_json::from_str(payload).unwrap();
        assert_eq!(envelope["id"], message_id.as_str());
        assert_eq!(subject, &format!("landfall.deposit_v2.{account}"));
        let (deposit, status) = (envelope["data"]["id"].to_string(), envelope["data"]["status"].as_str().unwrap());
        told.entry(deposit).or_default().push(status.to_owned());
    }
    assert!(told.values().all(|statuses| statuses == &["PENDING", "CONFIRMED"]), "in order: {told:#?}");
}
