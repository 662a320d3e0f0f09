//! A proxy before a node, for what anvil has no setting for: it may be slow, lose what the node answers to those who hand
//! it transactions, and may know no method of `debug` and `trace`, or lie in them. It may be there with no node behind it.
//! It may keep the rules of a pool ([`Rules`]), which anvil has none of.
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
use axum::http::StatusCode;
use axum::routing::post;
use landfall::sandbox::anvil::Anvil;
use landfall_chain::Address;
use landfall_node::U256;
use landfall_node::pool::{Client, Offer, Sender};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{RwLock, oneshot};
use tokio::task::JoinSet;

use crate::pool_rules::{Judged, Rules};

/// The methods that hand a transaction to a node.
const HANDING_OVER: [&str; 2] = ["eth_sendRawTransaction", "sendTransaction"];

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
    /// What is taken of those who hand over transactions, where anything is refused.
    rules: Mutex<Option<Rules>>,
    /// What the node was asked for: it goes on with that when who asked is gone.
    asked: Mutex<JoinSet<()>>,
}

/// How it answers from now on.
#[derive(Clone, Default)]
struct Manner {
    is_away: bool,
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
    /// Before the node at `url`, at once and with all that it knows.
    pub(crate) async fn start(url: &str) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        // A cluster closes a connection that was idle for some seconds, perhaps just as a call begins.
        let client = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).build().unwrap();
        let behind = Arc::new(Behind {
            client,
            url: url.to_owned(),
            manner: Mutex::default(),
            traces: Arc::default(),
            rules: Mutex::default(),
            asked: Mutex::default(),
        });
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().route("/", post(serve)).with_state(Arc::clone(&behind));
        let mut server = JoinSet::new();
        server.spawn(axum::serve(listener, router).into_future());
        Proxy { url, behind, _server: server }
    }

    /// Mines a block while `node` answers no trace.
    pub(crate) async fn mine(&self, node: &Anvil) {
        let _none = self.behind.traces.write().await;
        node.mine(1).await.unwrap();
    }

    /// From now on it takes what such a node's pool would take. `seed` decides what goes wrong on the way.
    pub(crate) fn keep_rules(&self, client: Client, seed: u64) {
        *self.behind.rules.lock().unwrap() = Some(Rules::of(client, seed));
    }

    /// Changes the rules that it keeps.
    pub(crate) fn rules<T>(&self, change: impl FnOnce(&mut Rules) -> T) -> T {
        change(self.behind.rules.lock().unwrap().as_mut().expect("rules are kept"))
    }

    /// Whether the node is away: then nobody is answered, as by a gateway that has none left.
    pub(crate) fn be_away(&self, is_away: bool) {
        self.behind.manner.lock().unwrap().is_away = is_away;
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
            // The test may be over, and the node with it.
            let Ok(answered) = request.send().await else { return };
            let Ok(answer) = answered.text().await else { return };
            // Who asked may be gone.
            let _ = report.send(answer);
        });
        reported.await.unwrap_or_default()
    }
}

impl Behind {
    /// One call of the proxy's own.
    async fn call(&self, method: &str, params: Value) -> Value {
        let call = json!({ "jsonrpc": "2.0", "id": 0, "method": method, "params": params });
        let answer = self.ask(call.to_string(), false).await;
        serde_json::from_str::<Value>(&answer).unwrap_or_default()["result"].take()
    }

    /// What becomes of a transaction that is handed over; `None` without rules.
    async fn judged(&self, params: &Value) -> Option<Judged> {
        let doubles_gas = self.rules.lock().unwrap().as_ref()?.doubles_gas;
        let raw = params[0].as_str().unwrap().trim_start_matches("0x");
        let offer = Offer::read(&hex::decode(raw).unwrap()).expect("a signed transaction");
        let from = offer.sender.to_string();
        let number = async |method| quantity(&self.call(method, json!([from, "latest"])).await);
        let code = self.call("eth_getCode", json!([from, "latest"])).await;
        let sender = Sender {
            nonce: number("eth_getTransactionCount").await.to::<u64>(),
            balance: number("eth_getBalance").await,
            is_delegated: code != "0x",
        };
        let mut gas_min = 0;
        if doubles_gas && offer.authorities.is_empty() {
            let (to, value, data) = (offer.to, format!("{:#x}", offer.value), offer.input.to_string());
            let estimate =
                self.call("eth_estimateGas", json!([{ "from": from, "to": to, "value": value, "data": data }])).await;
            // What fails now takes no estimate.
            gas_min = estimate.as_str().map_or(0, |_| 2 * quantity(&estimate).to::<u64>());
        }
        Some(self.rules.lock().unwrap().as_mut()?.judge(offer, sender, gas_min))
    }
}

/// A number in hexadecimal digits.
fn quantity(value: &Value) -> U256 {
    U256::from_str_radix(value.as_str().unwrap_or("0").trim_start_matches("0x"), 16).unwrap()
}

fn error(id: &Value, code: i64, message: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } })
}

async fn serve(State(behind): State<Arc<Behind>>, body: String) -> Result<String, StatusCode> {
    let is_away = behind.manner.lock().unwrap().is_away;
    if is_away { Err(StatusCode::SERVICE_UNAVAILABLE) } else { Ok(forward(&behind, body).await) }
}

/// Answers what is refused itself, and has the rest answered.
async fn forward(behind: &Behind, body: String) -> String {
    let Manner { latency, loses_answers, refuses_traces, lie_in_traces, is_away: _ } =
        behind.manner.lock().unwrap().clone();
    tokio::time::sleep(latency).await;
    let asked: Value = serde_json::from_str(&body).unwrap();
    let calls = asked.as_array().cloned().unwrap_or_else(|| vec![asked.clone()]);
    let mut answers = Vec::with_capacity(calls.len());
    for call in calls {
        let method = call["method"].as_str().unwrap();
        let is_of_traces = method.starts_with("debug_") || method.starts_with("trace_");
        if refuses_traces && is_of_traces {
            let words = format!("the method {method} does not exist/is not available");
            answers.push(error(&call["id"], -32601, &words));
            continue;
        }
        let judged = match method {
            "eth_sendRawTransaction" => behind.judged(&call["params"]).await,
            _ => None,
        };
        match judged {
            Some(Judged::Refused(words)) => {
                answers.push(error(&call["id"], -32000, &words));
                continue;
            }
            Some(Judged::Forgotten(hash)) => {
                answers.push(json!({ "jsonrpc": "2.0", "id": call["id"], "result": hash }));
                continue;
            }
            Some(Judged::Late(pause)) => tokio::time::sleep(pause).await,
            Some(Judged::Taken | Judged::Silent) | None => {}
        }
        let is_silent = matches!(judged, Some(Judged::Silent));
        let mut answer = behind.ask(call.to_string(), is_of_traces).await;
        if is_silent || loses_answers && HANDING_OVER.contains(&method) {
            return String::new();
        }
        if let (true, Some(Lie { payee, instead })) = (is_of_traces, &lie_in_traces) {
            answer = answer.replace(payee, instead);
        }
        let Ok(mut answer) = serde_json::from_str::<Value>(&answer) else { return String::new() };
        let doubles_gas = behind.rules.lock().unwrap().as_ref().is_some_and(|rules| rules.doubles_gas);
        if method == "eth_estimateGas" && doubles_gas && answer["result"].is_string() {
            answer["result"] = json!(format!("{:#x}", quantity(&answer["result"]) * U256::from(2)));
        }
        answers.push(answer);
    }
    if asked.is_array() { Value::from(answers).to_string() } else { answers.remove(0).to_string() }
}
