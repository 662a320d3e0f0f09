//! A proxy before a node: it may be slow, and may know no method of `debug` and `trace`, which anvil cannot be told to.
//!
//! It ends with its owner.

use std::future::IntoFuture;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::post;
use landfall::sandbox::anvil::Anvil;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

pub(crate) struct Proxy {
    pub(crate) url: String,
    manner: Arc<Mutex<Manner>>,
    _server: JoinSet<std::io::Result<()>>,
}

/// How it answers from now on.
#[derive(Clone, Copy, Default)]
struct Manner {
    latency: Duration,
    refuses_traces: bool,
}

type Node = (reqwest::Client, String, Arc<Mutex<Manner>>);

impl Proxy {
    /// Before `node`, at once and with all that it knows.
    pub(crate) async fn start(node: &Anvil) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let manner = Arc::<Mutex<Manner>>::default();
        let behind: Node = (client, node.url().to_owned(), Arc::clone(&manner));
        let router = Router::new().route("/", post(forward)).with_state(behind);
        let mut server = JoinSet::new();
        server.spawn(axum::serve(listener, router).into_future());
        Proxy { url, manner, _server: server }
    }

    /// Each request waits so long for its answer.
    pub(crate) fn set_latency(&self, latency: Duration) {
        self.manner.lock().unwrap().latency = latency;
    }

    /// Whether the methods of two namespaces do not exist here.
    pub(crate) fn refuse_traces(&self, refuses: bool) {
        self.manner.lock().unwrap().refuses_traces = refuses;
    }
}

/// Answers what is refused itself, and has the rest answered.
async fn forward(State((client, url, manner)): State<Node>, body: String) -> String {
    let Manner { latency, refuses_traces } = *manner.lock().unwrap();
    tokio::time::sleep(latency).await;
    let asked: Value = serde_json::from_str(&body).unwrap();
    let calls = asked.as_array().cloned().unwrap_or_else(|| vec![asked.clone()]);
    let mut answers = Vec::with_capacity(calls.len());
    for call in calls {
        let method = call["method"].as_str().unwrap();
        if refuses_traces && (method.starts_with("debug_") || method.starts_with("trace_")) {
            let error =
                json!({ "code": -32601, "message": format!("the method {method} does not exist/is not available") });
            answers.push(json!({ "jsonrpc": "2.0", "id": call["id"], "error": error }));
            continue;
        }
        let request = client.post(&url).header("content-type", "application/json").body(call.to_string());
        let answer = request.send().await.unwrap().text().await.unwrap();
        answers.push(serde_json::from_str(&answer).unwrap());
    }
    if asked.is_array() { Value::from(answers).to_string() } else { answers.remove(0).to_string() }
}
