//! A proxy before a node, for what anvil has no setting for: it may be slow, lose what the node answers to those who hand
//! it transactions, and may know no method of `debug` and `trace`, or lie in them.
//!
//! anvil 1.7.1 answers nothing any more once a block was mined while it answered `debug_traceBlockByHash`: it takes a
//! read lock twice, and the miner waits for the lock in between. (With traces asked for without a pause it lasted some
//! 1,000 blocks.) A test that mines much has its traces asked for through a proxy, and the blocks mined between them.
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
use landfall_chain::Address;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{RwLock, oneshot};
use tokio::task::JoinSet;

pub(crate) struct Proxy {
    pub(crate) url: String,
    behind: Arc<Behind>,
    _server: JoinSet<std::io::Result<()>>,
}

/// The node, and how much of it is shown.
struct Behind {
    client: reqwest::Client,
    url: String,
    manner: Mutex<Manner>,
    /// Held for reading while a trace is answered.
    traces: Arc<RwLock<()>>,
    /// What the node was asked for: it goes on with that when who asked is gone.
    asked: Mutex<JoinSet<()>>,
}

/// How it answers from now on.
#[derive(Clone, Default)]
struct Manner {
    latency: Duration,
    loses_answers: bool,
    refuses_traces: bool,
    lie_in_traces: Option<Lie>,
}

/// What is reported, and what in its place.
#[derive(Clone)]
struct Lie {
    payee: String,
    instead: String,
}

impl Proxy {
    /// Before `node`, at once and with all that it knows.
    pub(crate) async fn start(node: &Anvil) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let behind = Arc::new(Behind {
            client: reqwest::Client::builder().no_proxy().build().unwrap(),
            url: node.url().to_owned(),
            manner: Mutex::default(),
            traces: Arc::default(),
            asked: Mutex::default(),
        });
        let router = Router::new().route("/", post(forward)).with_state(Arc::clone(&behind));
        let mut server = JoinSet::new();
        server.spawn(axum::serve(listener, router).into_future());
        Proxy { url, behind, _server: server }
    }

    /// Mines a block while `node` answers no trace.
    pub(crate) async fn mine(&self, node: &Anvil) {
        let _none = self.behind.traces.write().await;
        node.mine(1).await.unwrap();
    }

    /// Each request waits so long for its answer.
    pub(crate) fn set_latency(&self, latency: Duration) {
        self.behind.manner.lock().unwrap().latency = latency;
    }

    /// Whether nobody learns what became of a transaction that he hands to the node.
    pub(crate) fn lose_answers(&self, loses: bool) {
        self.behind.manner.lock().unwrap().loses_answers = loses;
    }

    /// Whether the methods of two namespaces do not exist here.
    pub(crate) fn refuse_traces(&self, refuses: bool) {
        self.behind.manner.lock().unwrap().refuses_traces = refuses;
    }

    /// Traces report that whatever paid `payee` paid `instead`.
    pub(crate) fn trace_instead(&self, payee: &Address, instead: &Address) {
        let [payee, instead] = [payee, instead].map(|of| format!(r#""to":"{}""#, of.to_string().to_lowercase()));
        self.behind.manner.lock().unwrap().lie_in_traces = Some(Lie { payee, instead });
    }
}

impl Behind {
    async fn ask(&self, call: String, is_of_traces: bool) -> String {
        let request = self.client.post(&self.url).header("content-type", "application/json").body(call);
        let traces = Arc::clone(&self.traces);
        let (report, reported) = oneshot::channel();
        self.asked.lock().unwrap().spawn(async move {
            let _one = if is_of_traces { Some(traces.read_owned().await) } else { None };
            let answer = request.send().await.unwrap().text().await.unwrap();
            // Who asked may be gone.
            let _ = report.send(answer);
        });
        reported.await.unwrap()
    }
}

/// Answers what is refused itself, and has the rest answered.
async fn forward(State(behind): State<Arc<Behind>>, body: String) -> String {
    let Manner { latency, loses_answers, refuses_traces, lie_in_traces } = behind.manner.lock().unwrap().clone();
    tokio::time::sleep(latency).await;
    let asked: Value = serde_json::from_str(&body).unwrap();
    let calls = asked.as_array().cloned().unwrap_or_else(|| vec![asked.clone()]);
    let mut answers = Vec::with_capacity(calls.len());
    for call in calls {
        let method = call["method"].as_str().unwrap();
        let is_of_traces = method.starts_with("debug_") || method.starts_with("trace_");
        if refuses_traces && is_of_traces {
            let error =
                json!({ "code": -32601, "message": format!("the method {method} does not exist/is not available") });
            answers.push(json!({ "jsonrpc": "2.0", "id": call["id"], "error": error }));
            continue;
        }
        let mut answer = behind.ask(call.to_string(), is_of_traces).await;
        if loses_answers && method == "eth_sendRawTransaction" {
            return String::new();
        }
        if let (true, Some(Lie { payee, instead })) = (is_of_traces, &lie_in_traces) {
            answer = answer.replace(payee, instead);
        }
        answers.push(serde_json::from_str(&answer).unwrap());
    }
    if asked.is_array() { Value::from(answers).to_string() } else { answers.remove(0).to_string() }
}
