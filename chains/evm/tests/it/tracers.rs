//! Who is asked for traces, how, how often, and what it means when they differ or fail.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use futures_util::future::join_all;
use futures_util::stream;
use landfall_chain::{
    BlockSource, Chain, EndpointState, Lane, Legs, Native, NativeSource, Proof, Read, SourceErrorKind,
};
use landfall_evm::{EvmSource, network};
use serde_json::{Value, json};

use crate::mint::{self, Tx};
use crate::node::{Ledger, Live, Node, chain_id, led_by_first, mainnet, reply};
use crate::trace::{FLAT, FULL, LISTED, NESTED, address, flat, frame, nested, traced, tracing};

/// A block with one transaction, and its trace, in which `amount` moves inside.
pub(crate) fn reported(amount: u64) -> (Ledger, Value, Value) {
    let ledger = Ledger::of(mint::chain(5, vec![vec![Tx::default()]]));
    let block = ledger.blocks[&5].0.clone();
    let inner = frame("CALL", address(0xbb), address(0x0b), amount, vec![]);
    let traces = nested(&block, &[frame("CALL", address(0xaa), address(0xbb), 0, vec![inner])]);
    let flat = flat(&block, &traces);
    (ledger, traces, flat)
}

/// A node that traces by `method`; by none when it is neither.
pub(crate) async fn tracer(method: &'static str, amount: u64) -> Node {
    let (ledger, nested, flat) = reported(amount);
    Node::start(tracing(ledger, method, if method == FLAT { flat } else { nested })).await
}

/// A node that refuses every trace with these words.
async fn refusing(code: i64, words: &'static str) -> Node {
    let (ledger, ..) = reported(5);
    Node::start(move |method, params| match method {
        NESTED | FLAT => Err((code, words.to_owned())),
        _ => ledger.answer(method, params),
    })
    .await
}

/// A node that traces by `method`, and may change its mind.
pub(crate) async fn live(method: &'static str, amount: u64) -> Live {
    let (ledger, nested, flat) = reported(amount);
    let live = Live::start(ledger.clone()).await;
    let answer = tracing(ledger, method, if method == FLAT { flat } else { nested });
    live.lie(move |method, params| Some(answer(method, params)));
    live
}

/// How many calls for blocks with content, and for traces, came since the last time this was asked.
pub(crate) fn take_reads(node: &Live) -> (usize, usize) {
    let calls = node.take_calls();
    let count = |methods: &[&str]| calls.iter().filter(|(method, _)| methods.contains(&method.as_str())).count();
    (count(&["eth_getBlockReceipts"]), count(&[NESTED, FLAT]))
}

pub(crate) async fn proof(source: &EvmSource, read: Read) -> Proof {
    let block = source.blocks(5..=5, read).await.unwrap().remove(0);
    assert_eq!(block.transfers.len(), 1);
    block.proof
}

#[tokio::test]
async fn a_traced_block_costs_two_requests_and_the_method_is_asked_for_once() {
    // The block with its receipts, and its traces. The first read finds out which method there is.
    for (method, first) in [(NESTED, 2), (FLAT, 3)] {
        let node = tracer(method, 5).await;
        let source = node.source(traced());
        source.check().await.unwrap();
        node.take_requests();
        for expected in [first, 2, 2] {
            assert_eq!(proof(&source, LISTED).await, Proof::OneEndpoint);
            assert_eq!(node.take_requests(), expected, "{method}");
        }
    }
}

#[tokio::test]
async fn the_traces_of_several_blocks_are_one_request_and_no_more_than_eight_are_asked_for() {
    let tx = |nonce| vec![Tx { nonce, ..Tx::default() }];
    let ledger = Ledger::of(mint::chain(5, (0..20).map(|nonce| if nonce == 1 { vec![] } else { tx(nonce) }).collect()));
    let fails = Arc::new(AtomicBool::new(false));
    let failing = fails.clone();
    let node = Node::start(move |method, params| match method {
        NESTED if failing.load(Ordering::Relaxed) => Err((-32000, "execution timeout".to_owned())),
        NESTED => {
            let (block, _) = ledger.blocks.values().find(|(block, _)| block["hash"] == params[0]).unwrap();
            Ok(nested(block, &[frame("CALL", address(0xaa), address(0xbb), 0, vec![])]))
        }
        _ => ledger.answer(method, params),
    })
    .await;
    let source = node.source(traced());
    source.check().await.unwrap();
    node.take_requests();
    let blocks = source.blocks(5..=24, LISTED).await.unwrap();
    assert_eq!((blocks.len(), node.take_requests()), (8, 2));
    // Nothing has to be traced of a block without transactions: the roots prove that.
    let proofs: Vec<Proof> = blocks.iter().map(|block| block.proof).collect();
    assert_eq!(proofs[..3], [Proof::OneEndpoint, Proof::Roots, Proof::OneEndpoint]);
    // What is too much for a node is asked for in smaller parts, down to one block, and then in larger ones again.
    let width = async |source: &EvmSource| source.blocks(5..=24, LISTED).await.map(|blocks| blocks.len());
    fails.store(true, Ordering::Relaxed);
    for _ in 0..5 {
        assert_eq!(width(&source).await.unwrap_err().kind, SourceErrorKind::Transient);
    }
    fails.store(false, Ordering::Relaxed);
    assert_eq!(
        (width(&source).await.unwrap(), width(&source).await.unwrap(), width(&source).await.unwrap()),
        (1, 2, 3)
    );
}

#[tokio::test]
async fn a_second_endpoint_that_fails_does_not_narrow_what_the_first_one_traces() {
    let txs = (0..20).map(|nonce| vec![Tx { nonce, ..Tx::default() }]).collect();
    let ledger = Ledger::of(mint::chain(5, txs));
    let (one, other) = (Live::start(ledger.clone()).await, Live::start(ledger.clone()).await);
    one.lie(move |method, params| {
        let (block, _) = ledger.blocks.values().find(|(block, _)| method == NESTED && block["hash"] == params[0])?;
        Some(Ok(nested(block, &[frame("CALL", address(0xaa), address(0xbb), 0, vec![])])))
    });
    other.lie(|method, _| (method == NESTED).then(|| Err((-32000, "header not found".to_owned()))));
    let source = led_by_first(traced(), &[&one, &other]).await;
    take_reads(&other);
    for _ in 0..3 {
        assert_eq!(source.blocks(5..=24, FULL).await.unwrap().len(), 8);
        assert!(take_reads(&other).1 > 0, "it was asked");
    }
}

#[tokio::test]
async fn what_is_not_traced_costs_no_trace_and_has_no_internal_legs() {
    let (ledger, traces, _) = reported(5);
    let mut top_level = mainnet();
    top_level.native = Native::TOP_LEVEL;
    let mut logged = traced();
    logged.native.eip7708_from = Some(5);
    let logs_of_polygon = network(Chain::PolygonMainnet).unwrap();
    assert_eq!(logs_of_polygon.native.source, NativeSource::LogTransfer);
    for network in [top_level, logged, logs_of_polygon] {
        let ledger = Ledger { chain_id: chain_id(network.chain), ..ledger.clone() };
        let node = Node::start(tracing(ledger, NESTED, traces.clone())).await;
        let source = node.source(network);
        source.check().await.unwrap();
        node.take_requests();
        let block = source.blocks(5..=5, FULL).await.unwrap().remove(0);
        assert_eq!((block.transfers.len(), block.rejected.len(), block.proof), (0, 0, Proof::Roots));
        assert_eq!(node.take_requests(), 1);
    }
    // [E20] one below the height from which on the chain logs every movement, the trace is the source still.
    let mut logged = traced();
    logged.native.eip7708_from = Some(6);
    assert_eq!(
        proof(&Node::start(tracing(ledger, NESTED, traces)).await.source(logged), FULL).await,
        Proof::OneEndpoint
    );
}

#[tokio::test]
async fn the_lane_of_roots_never_asks_for_a_trace() {
    let (ledger, traces, _) = reported(5);
    let node = Node::start(tracing(ledger, NESTED, traces)).await;
    let source = node.source(traced());
    source.check().await.unwrap();
    node.take_requests();
    let block = source.blocks(5..=5, Read::FULL).await.unwrap().remove(0);
    assert_eq!((block.transfers.len(), block.proof, node.take_requests()), (0, Proof::Roots, 1));
}

#[tokio::test]
async fn rejected_movements_are_reported_only_when_they_are_asked_for() {
    let node = tracer(NESTED, 0).await;
    for (legs, expected) in [(Legs::Creditable, 0), (Legs::Explained, 1)] {
        let block = node.source(traced()).blocks(5..=5, Read { legs, ..LISTED }).await.unwrap().remove(0);
        assert_eq!(block.rejected.len(), expected);
    }
}

#[tokio::test]
async fn an_endpoint_without_both_methods_is_reported_with_what_to_do_and_asked_again() {
    let (ledger, traces, _) = reported(5);
    let paid = Arc::new(AtomicBool::new(false));
    let enabled = paid.clone();
    let answer = tracing(ledger, NESTED, traces);
    let node = Node::start(move |method, params| match method {
        NESTED if !enabled.load(Ordering::Relaxed) => {
            Err((-32600, format!("{method} is not available on the Free tier")))
        }
        _ => answer(method, params),
    })
    .await;
    let source = node.source(traced());
    let error = source.blocks(5..=5, LISTED).await.unwrap_err();
    let expected = format!(
        "ETHEREUM_MAINNET: no endpoint knows debug_traceBlockByHash or trace_block ({} asked), so value that moved \
         inside of transactions is not seen; add an endpoint that traces to chains.ETHEREUM_MAINNET.rpc, or declare \
         that it is not seen with chains.ETHEREUM_MAINNET.native = \"top_level\"",
        node.id()
    );
    assert_eq!((error.kind, error.to_string()), (SourceErrorKind::Permanent, expected));
    // Its blocks are as good as before.
    assert_eq!(source.endpoints().snapshot()[0].state, EndpointState::Healthy);
    source.blocks(5..=5, Read::FULL).await.unwrap();
    paid.store(true, Ordering::Relaxed);
    assert_eq!(proof(&source, LISTED).await, Proof::OneEndpoint);
}

#[tokio::test]
async fn the_words_of_a_missing_method_are_reported_from_those_of_a_missing_block_or_state() {
    let missing = [
        (-32601, "the method debug_traceBlockByHash does not exist/is not available"),
        (-32601, "Method not found"),
        (-32604, "Method not enabled"),
        (-32600, "The method 'trace_block' is found but the namespace 'Trace' is disabled for http://127.0.0.1"),
        (-32600, "trace_block is not available on the Free tier - upgrade to Pay As You Go"),
        (-32600, "Unsupported method: debug_traceBlockByHash on ETH_MAINNET"),
        (-32004, "Method not supported"),
        (-32075, "Method disabled"),
        (-32000, "rpc method is not whitelisted"),
        (-32701, "method debug_traceBlockByHash is not allowed"),
        (-32000, "the method debug_traceBlockByHash is not supported on this blockchain"),
    ];
    for (code, words) in missing {
        let error = refusing(code, words).await.source(traced()).blocks(5..=5, LISTED).await.unwrap_err();
        assert!(error.to_string().contains("no endpoint knows"), "{words}: {error}");
    }
    let other = [
        (-32000, "header not found"),
        (-32000, "block 0x12 not found"),
        (-32000, "trace_block: block not found"),
        (-32000, "missing trie node 5e1c (path ) state 0x5e1c is not available, not found"),
        (-32000, "required historical state unavailable (reexec=128)"),
        (-32000, "historical state is not available in path scheme yet"),
        (-32000, "debug_traceBlockByHash: state of block 0x12 is not available"),
        (-32000, "trace_block is not supported for pruned blocks"),
        (-32603, "method debug_traceBlockByHash failed: required state not found"),
        (-32000, "execution timeout"),
        (-32005, "daily request count exceeded, request rate limited"),
    ];
    for (code, words) in other {
        let node = refusing(code, words).await;
        let source = node.source(traced());
        source.check().await.unwrap();
        node.take_requests();
        let error = source.blocks(5..=5, LISTED).await.unwrap_err();
        assert_eq!(error.kind, SourceErrorKind::Transient);
        assert!(error.to_string().contains(words), "{error}");
        assert!(error.to_string().contains(&format!("endpoint {} failed {NESTED}", node.id())), "{error}");
        // The block with its receipts, and its traces by both methods. A heavy block is tried in parts.
        assert_eq!(node.take_requests(), if words == "execution timeout" { 4 } else { 3 }, "{words}");
        // Nor does it say anything of other reads, which neither fail nor wait.
        assert_eq!(source.endpoints().snapshot()[0].state, EndpointState::Healthy);
        assert_eq!(source.blocks(5..=5, Read::FULL).await.unwrap().len(), 1, "{words}");
        assert_eq!(node.take_requests(), 1, "{words}");
    }
}

#[tokio::test]
async fn another_endpoint_traces_what_the_first_one_read() {
    let (plain, other) = (live("neither", 5).await, live(FLAT, 5).await);
    let source = led_by_first(traced(), &[&plain, &other]).await;
    take_reads(&plain);
    assert_eq!(proof(&source, FULL).await, Proof::OneEndpoint);
    assert_eq!((take_reads(&plain), take_reads(&other)), ((1, 2), (0, 2)));
    assert_eq!(proof(&source, FULL).await, Proof::OneEndpoint);
    assert_eq!(take_reads(&plain), (1, 0), "it was remembered that it traces nothing");
}

#[tokio::test]
async fn a_method_that_disappears_is_replaced_by_the_other() {
    let (ledger, nested, flat) = reported(5);
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let node = Node::start(move |method, params| match method {
        NESTED if count.fetch_add(1, Ordering::Relaxed) == 0 => Ok(nested.clone()),
        FLAT => Ok(flat.clone()),
        _ => ledger.answer(method, params),
    })
    .await;
    let source = node.source(traced());
    for _ in 0..3 {
        assert_eq!(proof(&source, LISTED).await, Proof::OneEndpoint);
    }
    assert_eq!(asked.load(Ordering::Relaxed), 2);
}

/// A way in which one method of tracing fails at a node whose other one works.
#[derive(Clone, Copy, Debug)]
enum Broken {
    Status(StatusCode),
    /// The body of an HTTP answer with the status 200.
    Body(&'static str),
    Refused(i64, &'static str),
    /// More than is read.
    TooLarge,
    Silence,
}

const BROKEN: [Broken; 13] = [
    Broken::Status(StatusCode::FORBIDDEN),
    Broken::Status(StatusCode::INTERNAL_SERVER_ERROR),
    Broken::Status(StatusCode::BAD_GATEWAY),
    Broken::Status(StatusCode::GATEWAY_TIMEOUT),
    Broken::Body(""),
    Broken::Body(r#"{"jsonrpc":"2.0","id":3,"result":[{"txHash":"0x"#),
    Broken::Refused(-32_603, "Internal error"),
    Broken::Refused(-32_000, "words that nobody knows"),
    Broken::Refused(-32_000, "missing trie node 5e1c (path ) state 0x5e1c is not available, not found"),
    Broken::Refused(-32_000, "execution timeout"),
    Broken::Refused(-32_005, "limit exceeded"),
    Broken::TooLarge,
    Broken::Silence,
];

impl Broken {
    async fn respond(self, body: &str) -> Response {
        match self {
            Broken::Status(status) => (status, "<html>no</html>").into_response(),
            Broken::Body(body) => body.into_response(),
            Broken::Refused(code, words) => {
                reply(body, &|_: &str, _: &Value| Err((code, words.to_owned()))).into_response()
            }
            Broken::TooLarge => {
                let never = stream::pending::<Result<Vec<u8>, std::io::Error>>();
                ([("content-length", "200000000")], Body::from_stream(never)).into_response()
            }
            Broken::Silence => std::future::pending().await,
        }
    }
}

/// A node at which the method `bad` is broken so, and the other one works; which methods it was asked for traces by.
async fn half_broken(bad: &'static str, broken: Broken) -> (Node, Arc<Mutex<Vec<&'static str>>>) {
    let (ledger, nested, flat) = reported(5);
    let asked = Arc::new(Mutex::new(Vec::new()));
    let (calls, answers) = (asked.clone(), Arc::new((ledger, nested, flat)));
    let node = Node::start_raw(move |_, body| {
        let method = [NESTED, FLAT].into_iter().find(|method| body.contains(*method));
        calls.lock().unwrap().extend(method);
        let answers = answers.clone();
        async move {
            if method == Some(bad) {
                return broken.respond(&body).await;
            }
            let (ledger, nested, flat) = answers.as_ref();
            let answer = |method: &str, params: &Value| match method {
                NESTED => Ok(nested.clone()),
                FLAT => Ok(flat.clone()),
                _ => ledger.answer(method, params),
            };
            ([("content-type", "application/json")], reply(&body, &answer)).into_response()
        }
    })
    .await;
    (node, asked)
}

#[tokio::test]
async fn when_one_method_fails_in_whatever_way_the_other_is_asked_before_the_block_is_put_off() {
    let one = async |bad: &'static str, broken: Broken| {
        let (node, asked) = half_broken(bad, broken).await;
        let source = node.source(traced());
        for _ in 0..3 {
            let blocks =
                source.blocks(5..=5, LISTED).await.unwrap_or_else(|error| panic!("{bad}: {broken:?}: {error}"));
            assert_eq!((blocks[0].transfers.len(), blocks[0].proof), (1, Proof::OneEndpoint), "{bad}: {broken:?}");
        }
        // What works is remembered. A request that is refused as a whole is asked call by call before.
        let (mut broke, mut worked) = (asked.lock().unwrap().clone(), Vec::new());
        if bad == NESTED {
            worked = broke.split_off(broke.iter().position(|method| *method == FLAT).unwrap());
            broke.dedup();
        }
        let expected: [&[&str]; 2] = if bad == NESTED { [&[NESTED], &[FLAT; 3]] } else { [&[NESTED; 3], &[]] };
        assert_eq!([&broke[..], &worked], expected, "{bad}: {broken:?}");
        assert_eq!(source.endpoints().snapshot()[0].state, EndpointState::Healthy, "{bad}: {broken:?}");
    };
    join_all(BROKEN.into_iter().flat_map(|broken| [one(NESTED, broken), one(FLAT, broken)])).await;
}

#[tokio::test]
async fn a_method_that_worked_and_breaks_is_left_for_the_other_and_the_other_for_it_when_that_breaks() {
    let (ledger, nested, flat) = reported(5);
    let broken = Arc::new(Mutex::new(""));
    let (asked, bad) = (Arc::new(Mutex::new(Vec::new())), broken.clone());
    let calls = asked.clone();
    let node = Node::start(move |method, params| {
        calls.lock().unwrap().extend([NESTED, FLAT].into_iter().find(|it| *it == method));
        match method {
            _ if method == *bad.lock().unwrap() => Err((-32_603, "Internal error".to_owned())),
            NESTED => Ok(nested.clone()),
            FLAT => Ok(flat.clone()),
            _ => ledger.answer(method, params),
        }
    })
    .await;
    let source = node.source(traced());
    for (bad, expected) in
        [("", &[NESTED][..]), (NESTED, &[NESTED, FLAT]), ("", &[FLAT]), (FLAT, &[FLAT, NESTED]), (FLAT, &[NESTED])]
    {
        *broken.lock().unwrap() = bad;
        assert_eq!(proof(&source, LISTED).await, Proof::OneEndpoint);
        assert_eq!(std::mem::take(&mut *asked.lock().unwrap()), expected, "{bad}");
    }
}

#[tokio::test]
async fn a_method_that_an_endpoint_does_not_have_is_asked_for_once_however_often_the_other_fails() {
    let (failing, other) = (live("neither", 5).await, live(NESTED, 5).await);
    failing.lie(|method, _| (method == NESTED).then(|| Err((-32_000, "header not found".to_owned()))));
    let source = led_by_first(traced(), &[&failing, &other]).await;
    take_reads(&failing);
    let mut traces = Vec::new();
    for _ in 0..3 {
        assert_eq!(proof(&source, FULL).await, Proof::OneEndpoint);
        traces.push(take_reads(&failing).1);
    }
    assert_eq!(traces, [2, 1, 1]);
}

#[tokio::test]
async fn what_one_method_reports_in_no_usable_way_is_asked_for_by_the_other() {
    let (ledger, mut broken, flat) = reported(5);
    let nested = broken.clone();
    broken[0]["result"]["to"] = json!(address(0x77));
    for (bad, answers) in [(NESTED, [broken.clone(), flat]), (FLAT, [nested, json!([])])] {
        let (ledger, asked) = (ledger.clone(), Arc::new(std::sync::Mutex::new(Vec::new())));
        let calls = asked.clone();
        let node = Node::start(move |method, params| match method {
            NESTED | FLAT => {
                calls.lock().unwrap().push(method.to_owned());
                Ok(answers[usize::from(method == FLAT)].clone())
            }
            _ => ledger.answer(method, params),
        })
        .await;
        let source = node.source(traced());
        for _ in 0..2 {
            assert_eq!(proof(&source, LISTED).await, Proof::OneEndpoint, "{bad}");
        }
        // The one that was of use is asked first from then on.
        let expected: &[&str] = if bad == NESTED { &[NESTED, FLAT, FLAT] } else { &[NESTED, NESTED] };
        assert_eq!(*asked.lock().unwrap(), expected, "{bad}");
    }
    // Neither is of use: what was wrong first is reported.
    let node = Node::start(move |method, params| match method {
        NESTED => Ok(broken.clone()),
        FLAT => Ok(json!([])),
        _ => ledger.answer(method, params),
    })
    .await;
    let error = node.source(traced()).blocks(5..=5, LISTED).await.unwrap_err();
    assert_eq!(error.kind, SourceErrorKind::Transient);
    assert!(error.to_string().contains("its root frame has another recipient"), "{error}");
}

#[test]
fn the_lane_of_these_tests_is_that_of_traces() {
    assert_eq!((LISTED.lane, FULL.lane), (Lane::Traces, Lane::Traces));
}
