//! Speaks as much of NATS as publishing to a stream needs, and answers as a test says. The real server is for the live
//! ring.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// What becomes of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    Stored,
    /// The stream says why not.
    Refused,
    /// The connection ends without a word.
    Cut,
}

/// A message as it came.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Published {
    pub(crate) subject: String,
    pub(crate) headers: String,
    pub(crate) payload: String,
}

/// A server; it ends with its owner.
pub(crate) struct NatsDouble {
    pub(crate) url: String,
    shared: Arc<Shared>,
    _served: JoinSet<()>,
}

struct Shared {
    script: Mutex<VecDeque<Answer>>,
    published: Mutex<Vec<Published>>,
    connections: Mutex<usize>,
    window_secs: u64,
}

impl NatsDouble {
    /// Answers messages in turn as `script` says, and stores what comes behind its end; its stream knows them again for
    /// so long.
    pub(crate) async fn start(script: impl IntoIterator<Item = Answer>, window_secs: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("nats://{}", listener.local_addr().unwrap());
        let (published, connections) = (Mutex::default(), Mutex::default());
        let script = Mutex::new(script.into_iter().collect());
        let shared = Arc::new(Shared { script, published, connections, window_secs });
        let (mut served, serving) = (JoinSet::new(), Arc::clone(&shared));
        served.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                *serving.connections.lock().unwrap() += 1;
                let serving = Arc::clone(&serving);
                // Whoever is cut off, or goes, is no fault.
                connections.spawn(async move { serve(stream, &serving).await.ok() });
            }
        });
        NatsDouble { url, shared, _served: served }
    }

    /// Every message so far.
    pub(crate) fn published(&self) -> Vec<Published> {
        self.shared.published.lock().unwrap().clone()
    }

    /// How many connections were made.
    pub(crate) fn connections(&self) -> usize {
        *self.shared.connections.lock().unwrap()
    }
}

impl Published {
    pub(crate) fn header(&self, name: &str) -> &str {
        let value = self.headers.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.unwrap_or_default().trim()
    }
}

async fn serve(stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    let (read, mut write) = stream.into_split();
    let info = json!({
        "server_id": "double", "server_name": "double", "version": "2.9.10", "go": "", "host": "127.0.0.1", "port": 4222,
        "headers": true, "max_payload": 1_048_576, "proto": 1, "jetstream": true,
    });
    write.write_all(format!("INFO {info}\r\n").as_bytes()).await?;
    let (mut lines, mut inbox) = (BufReader::new(read), String::new());
    loop {
        let mut line = String::new();
        if lines.read_line(&mut line).await? == 0 {
            return Ok(());
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["PING"] => write.write_all(b"PONG\r\n").await?,
            ["SUB", _, id] => inbox = id.to_owned(),
            [verb @ ("PUB" | "HPUB"), subject, reply, .., size] => {
                let head = if verb == "HPUB" { words[3].parse().unwrap() } else { 0 };
                let mut body = vec![0; size.parse::<usize>().unwrap() + 2];
                lines.read_exact(&mut body).await?;
                let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
                let (headers, payload) = (text(&body[..head]), text(&body[head..body.len() - 2]));
                let message = Published { subject: subject.to_owned(), headers, payload };
                let Some(answer) = answer(shared, message) else { return Ok(()) };
                let said = format!("MSG {reply} {inbox} {}\r\n{answer}\r\n", answer.len());
                write.write_all(said.as_bytes()).await?;
            }
            _ => {}
        }
    }
}

/// `None` ends the connection.
fn answer(shared: &Shared, message: Published) -> Option<String> {
    if message.subject.starts_with("$JS.API.STREAM.INFO.") {
        return Some(stream(shared.window_secs));
    }
    let mut published = shared.published.lock().unwrap();
    published.push(message);
    match shared.script.lock().unwrap().pop_front().unwrap_or(Answer::Stored) {
        Answer::Stored => Some(json!({ "stream": "LANDFALL", "seq": published.len() }).to_string()),
        Answer::Refused => {
            // PostgreSQL's TEXT does not take its end.
            let error = json!({ "code": 503, "err_code": 10_077, "description": "maximum messages exceeded\0" });
            Some(json!({ "stream": "LANDFALL", "seq": 0, "error": error }).to_string())
        }
        Answer::Cut => None,
    }
}

fn stream(window_secs: u64) -> String {
    let never = "0001-01-01T00:00:00Z";
    json!({
        "type": "io.nats.jetstream.api.v1.stream_info_response",
        "config": {
            "name": "LANDFALL", "subjects": ["landfall.>"], "retention": "limits", "max_consumers": -1, "max_msgs": -1,
            "max_bytes": -1, "max_age": 0, "discard": "old", "storage": "file", "num_replicas": 1,
            "duplicate_window": window_secs * 1_000_000_000,
        },
        "created": "2026-11-22T00:00:00Z",
        "state": { "messages": 0, "bytes": 0, "first_seq": 0, "first_ts": never, "last_seq": 0, "last_ts": never, "consumer_count": 0 },
    })
    .to_string()
}
