//! A server: one endpoint's way of showing a chain. It runs on the runtime it was started on, until it is dropped.
//!
//! Several may show one chain, each with its own head, faults, limits and latency.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::answer::{self, Answer, Call, Refused};
use crate::branch::Salt;
use crate::chain::Chain;
use crate::fault::{Fault, NO_BATCHES};
use crate::http::{self, Manner, Reply};
use crate::logs::LogLimits;
use crate::mistake::Mistake;
use crate::spoil::spoil;
use crate::strikes::{Strikes, When};
use crate::view::View;

/// geth's `--rpc.batch-request-limit`.
const BATCH_MAX: usize = 1000;
const SERVER_ERRORS: [&str; 4] =
    ["500 Internal Server Error", "502 Bad Gateway", "503 Service Unavailable", "504 Gateway Timeout"];

/// One endpoint.
pub struct Server {
    address: String,
    state: Arc<Mutex<State>>,
    _tasks: JoinSet<()>,
}

/// What a server was asked.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Counts {
    pub requests: u64,
    /// By method.
    pub calls: BTreeMap<String, u64>,
    pub bytes_in: u64,
    pub bytes_out: u64,
}

struct State {
    chain: Chain,
    behind: u64,
    latency: Duration,
    limits: LogLimits,
    batch_max: usize,
    missing: Vec<String>,
    /// Of how many blocks behind its head it has the state.
    state_kept: Option<u64>,
    strikes: Strikes<Fault>,
    /// What its tracer gets wrong.
    mistake: Option<Mistake>,
    /// What it says that it is.
    client: String,
    counts: Counts,
    rng: StdRng,
}

impl Server {
    /// Shows `chain` on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// No port can be had.
    pub async fn start(chain: Chain, seed: u64) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let state = Arc::new(Mutex::new(State {
            chain,
            behind: 0,
            latency: Duration::ZERO,
            limits: LogLimits::default(),
            batch_max: BATCH_MAX,
            missing: Vec::new(),
            state_kept: None,
            strikes: Strikes::default(),
            mistake: None,
            client: "landfall-node/v1".to_owned(),
            counts: Counts::default(),
            rng: StdRng::seed_from_u64(seed),
        }));
        let mut tasks = JoinSet::new();
        let serving = Arc::clone(&state);
        tasks.spawn(http::accept(listener, move |request| lock(&serving).reply(&request.body)));
        Ok(Server { address, state, _tasks: tasks })
    }

    /// Host and port.
    pub fn id(&self) -> &str {
        &self.address
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// From now on the server knows all but the newest `behind` blocks.
    pub fn lag(&self, behind: u64) {
        self.lock().behind = behind;
    }

    /// Every answer takes so long to begin.
    pub fn set_latency(&self, latency: Duration) {
        self.lock().latency = latency;
    }

    pub fn set_log_limits(&self, limits: LogLimits) {
        self.lock().limits = limits;
    }

    /// A batch of more calls is refused as a whole.
    pub fn set_batch_max(&self, calls: usize) {
        self.lock().batch_max = calls;
    }

    /// These methods do not exist here.
    pub fn set_missing(&self, methods: &[&str]) {
        self.lock().missing = methods.iter().map(|&method| method.to_owned()).collect();
    }

    /// Neither the state nor traces can be had of blocks more than `blocks` behind its head, as with a full node that
    /// is no archive.
    pub fn keep_state(&self, blocks: u64) {
        self.lock().state_kept = Some(blocks);
    }

    /// Its tracer errs so from now on, or does not; it traces by `callTracer` only.
    pub fn err(&self, mistake: Option<Mistake>) {
        self.lock().mistake = mistake;
        self.set_missing(&["trace_block"]);
    }

    /// What it says from now on that it is, as `web3_clientVersion` does.
    pub fn call_itself(&self, client: &str) {
        self.lock().client = client.to_owned();
    }

    /// Misbehaves from now on.
    pub fn misbehave(&self, fault: Fault, when: When) {
        self.lock().strikes.add(fault, when);
    }

    /// No more faults. What was set otherwise stays.
    pub fn behave(&self) {
        self.lock().strikes.clear();
    }

    /// How often this fault has struck so far.
    pub fn struck(&self, fault: Fault) -> u64 {
        self.lock().strikes.struck(&fault)
    }

    pub fn counts(&self) -> Counts {
        self.lock().counts.clone()
    }

    /// The counts since the last time they were taken.
    pub fn take_counts(&self) -> Counts {
        std::mem::take(&mut self.lock().counts)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // A test that panicked has failed already.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    fn reply(&mut self, body: &[u8]) -> Reply {
        let (calls, is_batch) = parse(body);
        self.counts.requests += 1;
        self.counts.bytes_in += length(body);
        for call in &calls {
            *self.counts.calls.entry(call.method.clone()).or_default() += 1;
        }
        let mut reply = Reply {
            status: "200 OK",
            retry_after_secs: None,
            is_gzip: false,
            body: Vec::new(),
            manner: Manner::Whole,
            latency: self.latency,
        };
        let faults = self.of_request(calls.len());
        if !self.refuses(&faults, &mut reply) {
            reply.body = self.body(&calls, is_batch, &faults);
        }
        if faults.contains(&Fault::Truncated) {
            reply.body.truncate(reply.body.len() / 2);
        }
        self.counts.bytes_out += if let Manner::Huge(bytes) = reply.manner {
            u64::try_from(bytes).unwrap_or(u64::MAX)
        } else {
            length(&reply.body)
        };
        reply
    }

    /// The faults that strike this request as a whole.
    fn of_request(&mut self, calls: usize) -> Vec<Fault> {
        let mut hit = self.strikes.active();
        hit.retain(|fault| match fault {
            Fault::TornBatch | Fault::PartialBatch | Fault::NoBatches(_) => {
                calls > 1 && self.strikes.hits(*fault, &mut self.rng)
            }
            Fault::TooManyRequests { .. }
            | Fault::ServerError
            | Fault::Reset
            | Fault::Drip(_)
            | Fault::Truncated
            | Fault::WrongId
            | Fault::AnotherFork
            | Fault::Stale(_)
            | Fault::HeadBack(_)
            | Fault::Huge(_) => self.strikes.hits(*fault, &mut self.rng),
            _ => false,
        });
        hit
    }

    /// Whether the request is not answered at all, or not with an answer.
    fn refuses(&self, faults: &[Fault], reply: &mut Reply) -> bool {
        for fault in faults {
            match *fault {
                Fault::TooManyRequests { retry_after_secs } => {
                    reply.status = "429 Too Many Requests";
                    reply.retry_after_secs = retry_after_secs;
                    reply.body = br#"{"error":"rate limit exceeded"}"#.to_vec();
                }
                Fault::ServerError => {
                    let strike = usize::try_from(self.strikes.struck(fault)).unwrap_or_default();
                    reply.status = SERVER_ERRORS[strike % SERVER_ERRORS.len()];
                    reply.body = format!("<html><h1>{}</h1></html>", reply.status).into_bytes();
                }
                Fault::NoBatches(way) => {
                    let (status, body) = NO_BATCHES[way % NO_BATCHES.len()];
                    (reply.status, reply.body) = (status, body.as_bytes().to_vec());
                }
                Fault::Reset => reply.manner = Manner::Reset,
                Fault::Huge(bytes) => reply.manner = Manner::Huge(bytes),
                Fault::Drip(total) => {
                    reply.manner = Manner::Drip(total);
                    continue;
                }
                _ => continue,
            }
            return true;
        }
        false
    }

    fn body(&mut self, calls: &[Call], is_batch: bool, faults: &[Fault]) -> Vec<u8> {
        if calls.len() > self.batch_max {
            return json!({ "jsonrpc": "2.0", "id": null, "error": { "code": -32_600, "message": "batch too large" } })
                .to_string()
                .into_bytes();
        }
        let answers = self.answers(calls, faults);
        let answered = if faults.contains(&Fault::PartialBatch) { calls.len() - 1 } else { calls.len() };
        let mut body = Vec::with_capacity(answers.iter().flatten().map(|text| text.len() + 64).sum::<usize>() + 2);
        body.extend_from_slice(if is_batch { b"[" } else { b"" });
        for (index, (call, answer)) in calls.iter().zip(&answers).take(answered).enumerate() {
            let id = if faults.contains(&Fault::WrongId) { json!(987_654) } else { call.id.clone() };
            body.extend_from_slice(if index == 0 { b"" } else { b"," });
            match answer {
                Ok(result) => {
                    body.extend_from_slice(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"#).as_bytes());
                    body.extend_from_slice(result.as_bytes());
                    body.push(b'}');
                }
                Err(Refused { code, message }) => {
                    let error = json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } });
                    body.extend_from_slice(error.to_string().as_bytes());
                }
            }
        }
        body.extend_from_slice(if is_batch { b"]" } else { b"" });
        body
    }

    fn answers(&mut self, calls: &[Call], faults: &[Fault]) -> Vec<Answer> {
        let State { chain, behind, limits, missing, state_kept, strikes, mistake, client, rng, .. } = self;
        let active = strikes.active();
        let mut state = chain.lock();
        let names_final = active.iter().any(|fault| matches!(fault, Fault::FinalOnFork | Fault::FinalAhead));
        let lie = if names_final { state.branch(Salt::Final) } else { Vec::new() };
        let fork = faults.contains(&Fault::AnotherFork).then(|| state.branch(Salt::Fork));
        let torn = faults.contains(&Fault::TornBatch).then(|| state.branch(Salt::Torn));
        let state = &*state;
        let more = faults.iter().map(|fault| match fault {
            Fault::Stale(more) => *more,
            Fault::HeadBack(more) if !strikes.struck(fault).is_multiple_of(2) => *more,
            _ => 0,
        });
        let own = match &fork {
            Some(branch) => View::on(state, branch),
            None => View::behind(state, *behind + more.sum::<u64>()),
        };
        let half = calls.len() / 2;
        let one = |(index, call): (usize, &Call)| {
            let view = torn.as_ref().filter(|_| index >= half).map_or(own, |branch| View::on(state, branch));
            if missing.contains(&call.method) {
                return Err(Refused::no_such_method(&call.method));
            }
            if state_kept.is_some_and(|kept| answer::needs_state_behind(&view, call, kept)) {
                return Err(Refused::new(-32_000, "missing trie node: the state is not available"));
            }
            if call.method == "web3_clientVersion" {
                return Ok(json!(client).to_string());
            }
            let mut answer = answer::answer(&view, call, limits);
            if let (Some(mistake), "debug_traceBlockByHash", Ok(text)) = (*mistake, call.method.as_str(), &answer) {
                answer = Ok(mistake.made_in(text).unwrap_or_else(|| text.clone()));
            }
            for fault in &active {
                if let Some(spoilt) = spoil(*fault, &view, call, &answer, &lie)
                    && strikes.hits(*fault, rng)
                {
                    answer = spoilt;
                }
            }
            answer
        };
        calls.iter().enumerate().map(one).collect()
    }
}

/// The calls of a request, and whether they came as a batch.
fn parse(body: &[u8]) -> (Vec<Call>, bool) {
    let call = |call: Value| Call {
        id: call["id"].clone(),
        method: call["method"].as_str().unwrap_or_default().to_owned(),
        params: call["params"].clone(),
    };
    match serde_json::from_slice(body) {
        Ok(Value::Array(calls)) => (calls.into_iter().map(call).collect(), true),
        Ok(one) => (vec![call(one)], false),
        Err(_) => (Vec::new(), false),
    }
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Server at {}", self.address)
    }
}
