//! A door before a node: a process of its own that counts what is asked for, and takes of transactions what a pool of geth
//! takes, which anvil has no rules for. This process sends it commands on its standard input.
//!
//! `counts` answers how many calls of each method came since the last `counts`; its own calls are not among them. It ends
//! with its input.

use std::collections::BTreeMap;
use std::future::IntoFuture;
use std::io::{BufReader, Write};
use std::net::Ipv4Addr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use axum::Router;
use axum::extract::State;
use axum::routing::post;
use landfall_node::U256;
use landfall_node::pool::{Client, Offer, Pool, Sender};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::cluster::line;

pub(crate) const SERVE: &str = "serve-door";
const HANDS_OVER: &str = "eth_sendRawTransaction";

/// A door, until it is dropped.
pub(crate) struct Door {
    pub(crate) url: String,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Door {
    /// Before the node at `url`.
    ///
    /// # Errors
    /// The process cannot be started.
    pub(crate) fn start(url: &str) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command.args([SERVE, url]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take().context("a pipe")?;
        let mut output = BufReader::new(child.stdout.take().context("a pipe")?);
        let url = line(&mut output)?;
        Ok(Door { url, child, input, output })
    }

    /// How often each method was asked for since this was last asked.
    pub(crate) fn take_counts(&mut self) -> anyhow::Result<BTreeMap<String, u64>> {
        writeln!(self.input, "counts")?;
        Ok(serde_json::from_str(&line(&mut self.output)?)?)
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What stands behind it.
struct Behind {
    client: reqwest::Client,
    url: String,
    pool: Mutex<Pool>,
    counts: Mutex<BTreeMap<String, u64>>,
}

impl Behind {
    async fn ask(&self, body: String) -> anyhow::Result<String> {
        let request = self.client.post(&self.url).header("content-type", "application/json").body(body);
        Ok(request.send().await?.text().await?)
    }

    /// What it is refused with, if it is.
    async fn refused(&self, params: &Value) -> anyhow::Result<Option<String>> {
        let raw = params[0].as_str().context("a transaction")?;
        let offer = Offer::read(&hex::decode(raw)?).context("a signed transaction")?;
        let from = offer.sender.to_string();
        let asked: Vec<Value> = (0..)
            .zip(["eth_getTransactionCount", "eth_getBalance", "eth_getCode"])
            .map(|(id, method)| json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": [from, "latest"] }))
            .collect();
        let answers: Vec<Value> = serde_json::from_str(&self.ask(Value::from(asked).to_string()).await?)?;
        let of = |id: u64| {
            let answer = answers.iter().find(|answer| answer["id"] == id).context("an answer")?;
            answer["result"].as_str().with_context(|| format!("a result, and not {answer}"))
        };
        let number = |id| anyhow::Ok(U256::from_str_radix(of(id)?.trim_start_matches("0x"), 16)?);
        let sender = Sender { nonce: number(0)?.to::<u64>(), balance: number(1)?, is_delegated: of(2)? != "0x" };
        let taken = self.pool.lock().unwrap_or_else(PoisonError::into_inner).offer(offer.clone(), sender);
        Ok(taken.err().map(|refusal| Client::Geth.words(refusal, &offer, sender)))
    }

    async fn answer(&self, body: String) -> anyhow::Result<String> {
        let asked: Value = serde_json::from_str(&body)?;
        let calls = asked.as_array().map_or_else(|| std::slice::from_ref(&asked), Vec::as_slice);
        {
            let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
            for call in calls {
                *counts.entry(call["method"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
            }
        }
        if asked["method"] == HANDS_OVER
            && let Some(words) = self.refused(&asked["params"]).await?
        {
            let error = json!({ "code": -32000, "message": words });
            return Ok(json!({ "jsonrpc": "2.0", "id": asked["id"], "error": error }).to_string());
        }
        self.ask(body).await
    }
}

async fn forward(State(behind): State<Arc<Behind>>, body: String) -> String {
    behind.answer(body).await.unwrap_or_default()
}

/// The door's own process.
pub(crate) async fn serve(words: &[String]) -> anyhow::Result<()> {
    let [url] = words else { anyhow::bail!("{SERVE} takes the URL of a node") };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    // Another one may be installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().no_proxy().build()?;
    println!("http://{}", listener.local_addr()?);
    let behind = Arc::new(Behind { client, url: url.clone(), pool: Mutex::default(), counts: Mutex::default() });
    let router = Router::new().route("/", post(forward)).with_state(Arc::clone(&behind));
    let mut server = JoinSet::new();
    server.spawn(axum::serve(listener, router).into_future());
    let (reported, mut report) = tokio::sync::mpsc::channel::<String>(1);
    let reader = std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if reported.blocking_send(line).is_err() {
                break;
            }
        }
    });
    while report.recv().await.is_some() {
        let counts = std::mem::take(&mut *behind.counts.lock().unwrap_or_else(PoisonError::into_inner));
        println!("{}", serde_json::to_string(&counts)?);
    }
    reader.join().ok().context("the reader of the input failed")
}
