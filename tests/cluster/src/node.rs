//! One endpoint: what of a ledger it shows, how it misbehaves, what it was asked. It runs on the runtime it was started
//! on, until it is dropped.
//!
//! Several may show one ledger, each with its own head, holes and faults. Batches are not served: many providers count
//! or refuse them, and we send none.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use landfall_node::When;
use landfall_node::http::{self, Manner, Reply, Request};
use landfall_node::strikes::Strikes;
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::answer::{Answer, Call, Refused, answer};
use crate::block::{Block, hash};
use crate::fault::Fault;
use crate::ledger::{self, Ledger};
use crate::refusal::Refusal;
use crate::spoil::spoil;
use crate::tx::Tx;
use crate::view::View;

/// That of mainnet.
pub const GENESIS: &str = "5eykt4UsFv8P8NJdTREpY1vzqKqZKvdpKuc147dw2N9d";
/// How many blocks of a branch that never wins replace those of the ledger.
const LIE_DEPTH: usize = 3;
const LIE: u64 = u64::MAX - 1;

/// In which order signatures of one slot are reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SlotOrder {
    /// As agave's own storage reported them for long.
    BySignature,
    /// As they stand in the block, the last first.
    ByIndex,
    /// In one way at one call, and in the other at the next: two storages behind one address.
    Turning,
}

/// What a node makes of the signature behind which a page is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Before {
    Known,
    /// Every page is the newest one.
    Ignored,
    /// It is refused as one that the node does not know.
    Unknown,
    /// The node does not know it and reports nothing behind it.
    Nothing,
}

/// How a node reports the signatures of an account.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lists {
    pub order: SlotOrder,
    /// No page is longer.
    pub page_max: usize,
    /// All lists end behind so many, whatever there is.
    pub ends_after: Option<usize>,
    pub before: Before,
    /// The first page names this slot, too.
    pub invents: Option<u64>,
}

impl Default for Lists {
    fn default() -> Self {
        let order = SlotOrder::ByIndex;
        Lists { order, page_max: 1_000, ends_after: None, before: Before::Known, invents: None }
    }
}

/// What a node answers to `getBlock` of one slot instead of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Instead {
    Refuse(Refusal),
    Null,
    /// To those that ask for less than this transaction version; the headers are reported.
    Needs(u8),
    /// As before, whatever is asked for.
    NeverEnough,
}

/// What a node answers to `getTransaction` of one signature: a result, or a refusal's code and words.
pub type OwnAnswer = Result<Value, (i64, String)>;

/// What a node answers to every call of one method: a result, or the whole error with its `data`.
pub type MethodAnswer = Result<Value, Value>;

/// What a node was asked.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Counts {
    /// By method, and by slot where one was asked for, else 0.
    pub calls: BTreeMap<(String, u64), u64>,
    /// How many of these asked for a block's header alone.
    pub headers: u64,
    /// Of the answers as they were sent, by method.
    pub bytes: BTreeMap<String, u64>,
    /// The parameters of the last call of each method.
    pub last: BTreeMap<String, Value>,
}

/// One endpoint.
pub struct Node {
    address: String,
    state: Arc<Mutex<State>>,
    _tasks: JoinSet<()>,
}

struct State {
    ledger: Ledger,
    genesis: String,
    behind: u64,
    finalized: Option<u64>,
    /// Where finality stood when a test stopped it.
    still_at: u64,
    first: u64,
    lost: BTreeSet<u64>,
    unlisted: BTreeSet<u64>,
    instead: BTreeMap<u64, Instead>,
    /// By method.
    methods: BTreeMap<String, MethodAnswer>,
    /// By signature.
    transactions: BTreeMap<String, OwnAnswer>,
    accounts: BTreeMap<String, Value>,
    accounts_at: Option<u64>,
    is_bare: bool,
    lists: Lists,
    compresses: bool,
    latency: Duration,
    is_silent: bool,
    bait: Vec<Tx>,
    strikes: Strikes<Fault>,
    confined: Option<&'static str>,
    counts: Counts,
    rng: StdRng,
}

impl Node {
    /// Shows `ledger` on a free port of 127.0.0.1.
    ///
    /// # Panics
    /// No port can be had.
    pub async fn start(ledger: &Ledger) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound").to_string();
        let state = Arc::new(Mutex::new(State::of(ledger.clone())));
        let (mut tasks, serving) = (JoinSet::new(), Arc::clone(&state));
        tasks.spawn(http::accept(listener, move |request| lock(&serving).reply(&request)));
        Node { address, state, _tasks: tasks }
    }

    /// Host and port.
    pub fn id(&self) -> &str {
        &self.address
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Goes over to another ledger: another branch, say.
    pub fn show(&self, ledger: &Ledger) {
        self.lock().ledger = ledger.clone();
    }

    pub fn ledger(&self) -> Ledger {
        self.lock().ledger.clone()
    }

    /// Knows nothing of the newest `slots`.
    pub fn lag(&self, slots: u64) {
        self.lock().behind = slots;
    }

    /// Calls this final, whatever its ledger does; `None` is what the ledger does.
    pub fn call_final(&self, slot: impl Into<Option<u64>>) {
        self.lock().finalized = slot.into();
    }

    pub fn set_genesis(&self, genesis: &str) {
        genesis.clone_into(&mut self.lock().genesis);
    }

    /// Its ledger lost these slots: neither lists nor blocks show them.
    pub fn lose(&self, slots: impl IntoIterator<Item = u64>) {
        self.lock().lost.extend(slots);
    }

    /// Has again what it lost, and lists what it left out.
    pub fn find_all(&self) {
        let mut state = self.lock();
        state.lost.clear();
        state.unlisted.clear();
    }

    /// Its lists leave these slots out.
    pub fn unlist(&self, slots: impl IntoIterator<Item = u64>) {
        self.lock().unlisted.extend(slots);
    }

    /// Keeps nothing below this slot.
    pub fn prune(&self, first: u64) {
        self.lock().first = first;
    }

    /// What it answers to `getBlock` of this slot.
    pub fn answer_instead(&self, slot: u64, instead: Instead) {
        self.lock().instead.insert(slot, instead);
    }

    /// What it answers to every call of this method, which its ledger may have no answer to.
    pub fn answer_method(&self, method: &str, answer: MethodAnswer) {
        self.lock().methods.insert(method.to_owned(), answer);
    }

    /// Its ledger answers this method again.
    pub fn forget_method(&self, method: &str) {
        self.lock().methods.remove(method);
    }

    /// What it answers to `getTransaction` of this signature, whatever its ledger holds.
    pub fn answer_transaction(&self, signature: &str, answer: OwnAnswer) {
        self.lock().transactions.insert(signature.to_owned(), answer);
    }

    /// What it answers to `getAccountInfo` and `getMultipleAccounts` of this account from now on; null is an account
    /// that is not there.
    pub fn report_account(&self, key: &str, account: Value) {
        self.lock().accounts.insert(key.to_owned(), account);
    }

    /// From now on it reports several accounts at once as of this slot, whatever slot it is asked for.
    pub fn report_accounts_at(&self, slot: impl Into<Option<u64>>) {
        self.lock().accounts_at = slot.into();
    }

    /// Accounts that a test did not set are not there: what transactions left in them is not searched for.
    pub fn forget_accounts(&self) {
        self.lock().is_bare = true;
    }

    pub fn set_order(&self, order: SlotOrder) {
        self.lock().lists.order = order;
    }

    /// How it reports the signatures of accounts from now on.
    pub fn set_lists(&self, lists: Lists) {
        self.lock().lists = lists;
    }

    /// Whether it compresses answers for those that take it; agave itself does not, providers do.
    pub fn set_gzip(&self, compresses: bool) {
        self.lock().compresses = compresses;
    }

    /// Every answer takes so long to begin.
    pub fn set_latency(&self, latency: Duration) {
        self.lock().latency = latency;
    }

    /// Whether it answers nothing, and closes nothing.
    pub fn set_silent(&self, is_silent: bool) {
        self.lock().is_silent = is_silent;
    }

    /// What the blocks of [`Fault::AnotherFork`] hold, to be believed by nobody.
    pub fn set_bait(&self, bait: Vec<Tx>) {
        self.lock().bait = bait;
    }

    /// Misbehaves from now on.
    pub fn misbehave(&self, fault: Fault, when: When) {
        let mut state = self.lock();
        let of_ledger = state.ledger.lock().finalized;
        state.still_at = state.finalized.unwrap_or(of_ledger);
        state.strikes.add(fault, when);
    }

    /// Faults, and silence, strike calls of this method only; `None` is all.
    pub fn confine(&self, method: impl Into<Option<&'static str>>) {
        self.lock().confined = method.into();
    }

    /// No more faults, and a block in each slot that has one. What else was set stays.
    pub fn behave(&self) {
        let mut state = self.lock();
        state.strikes.clear();
        state.confined = None;
        state.instead.clear();
    }

    /// How often this fault has struck so far.
    pub fn struck(&self, fault: Fault) -> u64 {
        self.lock().strikes.struck(&fault)
    }

    /// How often `method` was called, for this slot where one is given.
    pub fn calls(&self, method: &str, slot: Option<u64>) -> u64 {
        let state = self.lock();
        let is_it = |of: &&(String, u64)| of.0 == method && slot.is_none_or(|slot| of.1 == slot);
        state.counts.calls.iter().filter(|(of, _)| is_it(of)).map(|(_, times)| times).sum()
    }

    /// How many blocks it was asked for, and how many light calls it had: all others, and blocks of which only the
    /// header was asked for.
    pub fn blocks_and_light_calls(&self) -> (u64, u64) {
        let state = self.lock();
        let of = |is_block: bool| {
            let calls = state.counts.calls.iter().filter(move |((method, _), _)| (method == "getBlock") == is_block);
            calls.map(|(_, times)| times).sum::<u64>()
        };
        let headers = state.counts.headers;
        (of(true) - headers, of(false) + headers)
    }

    pub fn counts(&self) -> Counts {
        self.lock().counts.clone()
    }

    /// Counts from nothing again.
    pub fn forget_counts(&self) {
        self.lock().counts = Counts::default();
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
    fn of(ledger: Ledger) -> Self {
        State {
            ledger,
            genesis: GENESIS.to_owned(),
            behind: 0,
            finalized: None,
            still_at: 0,
            first: 0,
            lost: BTreeSet::new(),
            unlisted: BTreeSet::new(),
            instead: BTreeMap::new(),
            methods: BTreeMap::new(),
            transactions: BTreeMap::new(),
            accounts: BTreeMap::new(),
            accounts_at: None,
            is_bare: false,
            lists: Lists::default(),
            compresses: true,
            latency: Duration::ZERO,
            is_silent: false,
            bait: Vec::new(),
            strikes: Strikes::default(),
            confined: None,
            counts: Counts::default(),
            rng: StdRng::seed_from_u64(0),
        }
    }

    fn reply(&mut self, request: &Request) -> Reply {
        let call: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        assert!(call.is_object(), "a batch, or no JSON: {call}");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let call = Call { id: call["id"].clone(), method: text(&call["method"]), params: call["params"].clone() };
        let asked = (call.method.clone(), call.params[0].as_u64().unwrap_or_default());
        *self.counts.calls.entry(asked).or_default() += 1;
        self.counts.headers += u64::from(call.params[1]["transactionDetails"] == "none");
        self.counts.last.insert(call.method.clone(), call.params.clone());
        let mut reply = Reply {
            status: "200 OK",
            retry_after_secs: None,
            is_gzip: false,
            body: Vec::new(),
            manner: Manner::Whole,
            latency: if self.is_silent && self.may_strike(&call.method) { Duration::MAX } else { self.latency },
        };
        let faults = self.struck_by(&call.method);
        if !refuses(&faults, &mut reply) {
            reply.body = self.body(&call, &faults);
        }
        if request.accepts_gzip && (self.compresses || faults.contains(&Fault::BrokenGzip)) {
            (reply.body, reply.is_gzip) = (gzip(&reply.body), true);
        }
        if faults.contains(&Fault::BrokenGzip) {
            reply.body.truncate(reply.body.len() / 2);
        }
        *self.counts.bytes.entry(call.method).or_default() += u64::try_from(reply.body.len()).unwrap_or(u64::MAX);
        reply
    }

    /// The faults that strike this request as a whole, and what the node has while it is answered.
    fn struck_by(&mut self, method: &str) -> Vec<Fault> {
        let mut hit = self.strikes.active();
        let may_strike = self.may_strike(method);
        hit.retain(|fault| {
            let fits = match fault {
                Fault::FinalEarly | Fault::FinalStill => method == "getLatestBlockhash",
                Fault::AnyContext => method == "getBlocks",
                Fault::Hole | Fault::LinkedOver => matches!(method, "getBlocks" | "getBlock"),
                _ => fault.is_of_transport() || fault.is_of_view(),
            };
            may_strike && fits && self.strikes.hits(*fault, &mut self.rng)
        });
        hit
    }

    fn may_strike(&self, method: &str) -> bool {
        self.confined.is_none_or(|confined| confined == method)
    }

    fn body(&mut self, call: &Call, faults: &[Fault]) -> Vec<u8> {
        let answer = self.answer(call, faults);
        let id = if faults.contains(&Fault::WrongId) { json!(u64::MAX) } else { call.id.clone() };
        let mut body = match answer {
            Ok(text) => format!(r#"{{"jsonrpc":"2.0","result":{text},"id":{id}}}"#),
            Err(refused) => {
                let mut error = json!({ "code": refused.code, "message": refused.message });
                if let Some(data) = refused.data {
                    error["data"] = data;
                }
                format!(r#"{{"jsonrpc":"2.0","error":{error},"id":{id}}}"#)
            }
        }
        .into_bytes();
        if faults.contains(&Fault::Truncated) {
            body.truncate(body.len() / 2);
        }
        body
    }

    fn answer(&mut self, call: &Call, faults: &[Fault]) -> Answer {
        if let Some(instead) = self.instead(call) {
            return instead;
        }
        let asked = self.counts.calls.get(&(call.method.clone(), 0)).copied().unwrap_or_default();
        let may_strike = self.may_strike(&call.method);
        let State { ledger, genesis, strikes, rng, unlisted, lists, bait, accounts, accounts_at, is_bare, .. } = self;
        let mut lists = *lists;
        if lists.order == SlotOrder::Turning && asked.is_multiple_of(2) {
            lists.order = SlotOrder::BySignature;
        }
        let real = ledger.lock();
        let lie = faults.contains(&Fault::AnotherFork).then(|| lying(&real, bait));
        let shown = lie.as_ref().unwrap_or(&real);
        let newest = shown.latest().slot;
        let more = faults.iter().map(|fault| match fault {
            Fault::Stale(more) => *more,
            Fault::HeadBack(more) if !strikes.struck(fault).is_multiple_of(2) => *more,
            _ => 0,
        });
        let oldest = shown.blocks.keys().next().copied().unwrap_or_default();
        let reported = newest.saturating_sub(self.behind + more.sum::<u64>()).max(oldest);
        let below = |slot: u64| shown.blocks.range(..=slot).next_back().map_or(oldest, |(slot, _)| *slot);
        let confirmed = below(reported);
        let mut finalized = self.finalized.unwrap_or(shown.finalized).min(confirmed);
        let mut first = self.first;
        let mut lost = self.lost.clone();
        for fault in faults {
            match fault {
                Fault::FinalEarly => finalized = confirmed,
                Fault::FinalStill => finalized = finalized.min(self.still_at),
                Fault::Pruned(kept) => first = first.max(confirmed.saturating_sub(*kept)),
                Fault::Hole | Fault::LinkedOver => {
                    lost.extend(shown.blocks.keys().filter(|slot| slot.is_multiple_of(3)))
                }
                _ => {}
            }
        }
        let finalized = below(finalized);
        let view = View {
            ledger: shown,
            confirmed,
            finalized,
            first,
            lost: &lost,
            links_over: faults.contains(&Fault::LinkedOver),
            is_of_any_context: faults.contains(&Fault::AnyContext),
            unlisted: &*unlisted,
            lists,
            accounts: &*accounts,
            accounts_at: *accounts_at,
            is_bare: *is_bare,
        };
        let mut reported = answer(&view, genesis, call);
        for fault in strikes.active().into_iter().filter(|_| may_strike) {
            if let Some(spoilt) = spoil(fault, &view, call, &reported)
                && strikes.hits(fault, rng)
            {
                reported = spoilt;
            }
        }
        reported
    }

    /// The answers that a test set in place of a method's, of one block or of one transaction.
    fn instead(&self, call: &Call) -> Option<Answer> {
        if let Some(own) = self.methods.get(&call.method) {
            let refused = |error: Value| Refused {
                code: error["code"].as_i64().unwrap_or_default(),
                message: error["message"].as_str().unwrap_or_default().to_owned(),
                data: error.get("data").cloned(),
            };
            return Some(own.clone().map(|reported| reported.to_string()).map_err(refused));
        }
        let asked = &call.params[0];
        if call.method == "getTransaction" {
            let own = self.transactions.get(asked.as_str()?)?.clone();
            let refused = |(code, message)| Refused { code, message, data: None };
            return Some(own.map(|reported| reported.to_string()).map_err(refused));
        }
        let instead = self.instead.get(&asked.as_u64()?).filter(|_| call.method == "getBlock")?;
        let is_header = call.params[1]["transactionDetails"] == "none";
        match instead {
            Instead::Refuse(refusal) => Some(Err(refusal.to_call(asked))),
            Instead::Null => Some(Ok("null".to_owned())),
            Instead::Needs(version) => {
                let most = call.params[1]["maxSupportedTransactionVersion"].as_u64();
                let is_enough = is_header || most.is_some_and(|most| most >= u64::from(*version));
                (!is_enough).then(|| Err(Refusal::TransactionVersion(*version).to_call(asked)))
            }
            Instead::NeverEnough => (!is_header).then(|| Err(Refusal::TransactionVersion(9).to_call(asked))),
        }
    }
}

/// The ledger with its newest blocks replaced by those of a branch that never wins.
fn lying(real: &ledger::State, bait: &[Tx]) -> ledger::State {
    let mut lie = real.clone();
    let above = real.blocks.range(real.finalized + 1..).map(|(slot, _)| *slot);
    let replaced: Vec<u64> = above.rev().take(LIE_DEPTH).collect();
    let mut parent = None;
    for slot in replaced.into_iter().rev() {
        let reported = lie.blocks.get_mut(&slot).expect("it was listed");
        let block = Block { branch: LIE, txs: bait.to_vec(), ..Block::clone(reported) };
        let block = Block { parent: parent.unwrap_or(block.parent), ..block };
        parent = Some(landfall_chain::BlockRef { number: slot, hash: hash(slot, LIE) });
        *reported = Arc::new(block);
    }
    lie
}

/// Whether the request is not answered at all, or not with an answer.
fn refuses(faults: &[Fault], reply: &mut Reply) -> bool {
    for fault in faults {
        match *fault {
            Fault::TooManyRequests { retry_after_secs } => {
                reply.status = "429 Too Many Requests";
                reply.retry_after_secs = retry_after_secs;
                reply.body = br#"{"error":"rate limit exceeded"}"#.to_vec();
            }
            Fault::ServerError => {
                reply.status = "502 Bad Gateway";
                reply.body = b"<html><h1>502 Bad Gateway</h1></html>".to_vec();
            }
            Fault::Page => reply.body = b"<!doctype html><html><body>Checking your browser</body></html>".to_vec(),
            Fault::Reset => reply.manner = Manner::Reset,
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

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(body).expect("into memory");
    encoder.finish().expect("into memory")
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Node at {}", self.address)
    }
}
