//! HTTP and JSON-RPC that go wrong: what is too much is asked for in parts, what does not fit is no answer.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use landfall_chain::{BlockSource, EndpointState, Read, SourceErrorKind};
use landfall_evm::{EndpointUrl, EvmSource, Timings};
use serde_json::{Value, json};

use crate::mint::{self, Tx};
use crate::node::{Ledger, Node, mainnet, reply, until};

fn ledger() -> Ledger {
    let paying = |nonce| vec![Tx { nonce, value: 1, ..Tx::default() }];
    Ledger { finalized: Some(5), ..Ledger::of(mint::chain(1, (0..20).map(paying).collect())) }
}

fn truth(body: &str) -> String {
    reply(body, &|method: &str, params: &Value| ledger().answer(method, params))
}

fn calls(body: &str) -> usize {
    serde_json::from_str::<Value>(body).unwrap().as_array().map_or(1, Vec::len)
}

/// A node that answers the truth unless `instead` says something else.
async fn node(instead: impl Fn(&str) -> Option<Response> + Clone + Send + Sync + 'static) -> Node {
    Node::start_raw(move |_, body| {
        let response = instead(&body).unwrap_or_else(|| truth(&body).into_response());
        async move { response }
    })
    .await
}

#[tokio::test]
async fn a_batch_that_is_too_large_is_asked_in_parts_and_the_size_is_remembered() {
    let object = |text: &str| Some(json!({ "id": null, "error": { "code": -32600, "message": text } }).to_string());
    let status = |status: StatusCode| move |text: &str| Some((status, text.to_owned()).into_response());
    type Refuse = Arc<dyn Fn(&str) -> Option<Response> + Send + Sync>;
    let refusals: [(Refuse, usize); 5] = [
        (Arc::new(move |_| status(StatusCode::PAYLOAD_TOO_LARGE)("")), 5),
        (Arc::new(move |_| object("batch too large").map(IntoResponse::into_response)), 5),
        (
            Arc::new(move |_| object("Batch of more than 3 requests are not allowed").map(IntoResponse::into_response)),
            3,
        ),
        (Arc::new(move |_| status(StatusCode::BAD_REQUEST)(&object("batch too large")?)), 5),
        // geth: the error of the first call, and nothing of the rest.
        (
            Arc::new(move |body| {
                let id = serde_json::from_str::<Value>(body).unwrap()[0]["id"].clone();
                let error = json!([{ "id": id, "error": { "code": -32600, "message": "batch too large" } }]);
                Some(error.to_string().into_response())
            }),
            5,
        ),
    ];
    for (index, (refuse, most)) in refusals.into_iter().enumerate() {
        let sizes = Arc::new(Mutex::new(Vec::new()));
        let seen = sizes.clone();
        let node = node(move |body| {
            seen.lock().unwrap().push(calls(body));
            if calls(body) > 5 { refuse(body) } else { None }
        })
        .await;
        let source = node.source(mainnet());
        assert_eq!(source.blocks(1..=20, Read::FULL).await.unwrap().len(), 20, "{index}");
        sizes.lock().unwrap().clear();
        assert_eq!(source.headers(1..=20).await.unwrap().len(), 20);
        let sizes = sizes.lock().unwrap();
        assert!(sizes.iter().all(|size| *size <= most), "{index}: {sizes:?}");
        assert_eq!(source.endpoints().snapshot()[0].state, EndpointState::Healthy);
    }
}

/// The ways in which nodes refuse a batch of any size, and what of it an operator is shown.
const NO_BATCHES: [(u16, &str, &str); 12] = [
    (400, "Batch requests are not supported", "HTTP status 400: the node says \"Batch requests are not supported\""),
    (403, "", "HTTP status 403"),
    (
        405,
        "<html><h1>405 Not Allowed</h1></html>",
        "HTTP status 405: the node says \"<html><h1>405 Not Allowed</h1></html>\"",
    ),
    (500, "", "HTTP status 500"),
    (501, "no", "HTTP status 501: the node says \"no\""),
    (400, r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid Request"}}"#, "(code -32600)"),
    (
        200,
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}"#,
        "\"Parse error\" (code -32700)",
    ),
    (
        200,
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no arrays"}}"#,
        "\"no arrays\" (code -32600)",
    ),
    (200, r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32005,"message":"no"}}"#, "\"no\" (code -32005)"),
    (200, r#"{"error":{"code":-32601,"message":"the method undefined is not supported"}}"#, "(code -32601)"),
    (
        200,
        r#"[{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no arrays"}}]"#,
        "\"no arrays\" (code -32600)",
    ),
    (200, "send one call at a time", "the node says \"send one call at a time\""),
];

/// What such a node says to a batch.
fn refusal((status, text, _): (u16, &'static str, &str)) -> Response {
    (StatusCode::from_u16(status).unwrap(), text).into_response()
}

#[tokio::test]
async fn a_node_without_batches_is_asked_call_by_call_whatever_it_says_to_them() {
    for way in NO_BATCHES {
        let sizes = Arc::new(Mutex::new(Vec::new()));
        let seen = sizes.clone();
        let node = node(move |body| {
            seen.lock().unwrap().push(calls(body));
            (calls(body) > 1).then(|| refusal(way))
        })
        .await;
        let source = node.source(mainnet());
        let tip = source.tip().await.unwrap_or_else(|error| panic!("{way:?}: {error}"));
        assert_eq!(tip.latest.number, 20);
        assert_eq!(source.blocks(1..=20, Read::FULL).await.unwrap().len(), 20, "{way:?}");
        assert_eq!(source.headers(1..=20).await.unwrap().len(), 20);
        // Once, and once more for what is asked aside at most.
        let batches = sizes.lock().unwrap().iter().filter(|size| **size > 1).count();
        assert_eq!(batches, 1, "{way:?}");
        source.check().await.unwrap();
        let status = source.endpoints().snapshot().remove(0);
        assert_eq!(status.state, EndpointState::Healthy, "{way:?}");
        let expected = "serves no batches, so each call is a request of its own: ";
        assert!(status.reason.contains(expected) && status.reason.contains(way.2), "{way:?}: {}", status.reason);
    }
}

#[tokio::test]
async fn a_single_call_that_is_refused_in_the_same_way_is_no_lack_of_batches() {
    for way in NO_BATCHES {
        let refused = Arc::new(AtomicUsize::new(0));
        let count = refused.clone();
        let node = node(move |_| (count.fetch_add(1, Ordering::Relaxed) < 6).then(|| refusal(way))).await;
        let source = node.source(mainnet());
        source.tip().await.unwrap_err();
        until("it serves again", async || source.check().await.is_ok()).await;
        node.take_requests();
        assert_eq!(source.headers(1..=20).await.unwrap().len(), 20);
        assert_eq!(node.take_requests(), 1, "{way:?}");
        let reason = source.endpoints().snapshot().remove(0).reason;
        assert!(!reason.contains("serves no batches"), "{way:?}: {reason}");
    }
}

#[tokio::test]
async fn a_batch_refused_for_what_was_asked_lately_is_not_asked_call_by_call() {
    let too_much = |status: u16, text: &'static str| (status, text, "");
    let object = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32005,"message":"daily request count exceeded, request rate limited"}}"#;
    for way in [too_much(429, "slow down"), too_much(200, object), too_much(503, "busy"), too_much(401, "who are you?")]
    {
        let node = node(move |body| (calls(body) > 1).then(|| refusal(way))).await;
        let source = node.source(mainnet());
        source.tip().await.unwrap_err();
        assert_eq!(node.take_requests(), 1, "{way:?}");
    }
}

#[tokio::test]
async fn an_answer_that_is_too_large_for_a_batch_is_asked_in_parts() {
    let node = node(|body| {
        let receipts = body.matches("eth_getBlockReceipts").count();
        let error = json!({ "code": -32003, "message": "response too large" });
        let refused = |body: &str| -> String {
            let mut answers: Value = serde_json::from_str(&truth(body)).unwrap();
            for answer in answers.as_array_mut().unwrap().iter_mut().skip(4) {
                *answer = json!({ "id": answer["id"], "error": error });
            }
            answers.to_string()
        };
        (receipts > 4).then(|| refused(body).into_response())
    })
    .await;
    assert_eq!(node.source(mainnet()).blocks(1..=20, Read::FULL).await.unwrap().len(), 20);
}

/// Runs `decides` until it does, `most` times at most: while the machine stands still, time passes that a run needs.
async fn until_decided(most: usize, mut decides: impl AsyncFnMut() -> bool) {
    for _ in 0..most {
        if decides().await {
            return;
        }
    }
    panic!("the machine stood still {most} times");
}

#[tokio::test]
async fn who_asks_for_a_pause_gets_it() {
    until_decided(3, async || {
        let limited = Arc::new(AtomicUsize::new(0));
        let node = node(move |body| {
            let first = body.contains("0x9") && limited.fetch_add(1, Ordering::Relaxed) == 0;
            first.then(|| (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "2")], "slow down").into_response())
        })
        .await;
        let source = node.source(mainnet());
        source.tip().await.unwrap();
        let begun = Instant::now();
        let error = source.blocks(9..=9, Read::FULL).await.unwrap_err();
        assert_eq!(error.kind, SourceErrorKind::Transient);
        assert!(error.to_string().contains("HTTP status 429"), "{error}");
        node.take_requests();
        let tip = source.tip().await;
        // The last second of a pause is waited for.
        if begun.elapsed() >= Duration::from_secs(1) {
            return false;
        }
        let error = tip.unwrap_err();
        assert!(error.to_string().contains("HTTP status 429"), "{error}");
        assert_eq!(node.take_requests(), 0, "not a word before the pause is over");
        until("the pause is over", async || source.tip().await.is_ok()).await;
        assert!(begun.elapsed() >= Duration::from_secs(2), "{:?}", begun.elapsed());
        assert_eq!(source.blocks(9..=9, Read::FULL).await.unwrap().len(), 1);
        true
    })
    .await;
}

#[tokio::test]
async fn an_http_status_is_named_with_what_the_node_says() {
    let body = json!({ "id": 1, "error": { "code": -32000, "message": "no backend is healthy" } }).to_string();
    let node = node(move |_| Some((StatusCode::SERVICE_UNAVAILABLE, body.clone()).into_response())).await;
    let error = node.source(mainnet()).tip().await.unwrap_err();
    let expected = "HTTP status 503: the node says \"no backend is healthy\" (code -32000)";
    assert!(error.to_string().ends_with(expected), "{error}");
}

#[tokio::test]
async fn a_body_without_end_is_cut_off() {
    until_decided(5, async || {
        let sent = Arc::new(Mutex::new(Vec::new()));
        let bodies = sent.clone();
        let node = node(move |body| {
            if !body.contains("eth_getBlockReceipts") {
                return None;
            }
            let count = Arc::new(AtomicUsize::new(0));
            bodies.lock().unwrap().push(count.clone());
            let endless = stream::repeat_with(move || {
                count.fetch_add(1, Ordering::Relaxed);
                Ok::<_, std::io::Error>(vec![b' '; 1 << 20])
            });
            Some(Body::from_stream(endless).into_response())
        })
        .await;
        let error = node.source(mainnet()).blocks(1..=1, Read::FULL).await.unwrap_err();
        assert_eq!(error.kind, SourceErrorKind::Transient);
        if error.to_string().contains("no answer within 15 s") {
            return false;
        }
        assert!(error.to_string().contains("the answer is larger than 128 MiB"), "{error}");
        // Once for the block with its receipts, and once for the receipts alone, as a smaller part.
        let mebibytes: Vec<usize> = sent.lock().unwrap().iter().map(|count| count.load(Ordering::Relaxed)).collect();
        assert!(mebibytes.len() == 2 && mebibytes.iter().all(|sent| (128..160).contains(sent)), "{mebibytes:?}");
        true
    })
    .await;
    let node = node_with_length(200 << 20).await;
    let error = node.source(mainnet()).tip().await.unwrap_err();
    assert!(error.to_string().contains("the answer is larger than 128 MiB"), "{error}");
}

/// Says how much will come.
async fn node_with_length(bytes: usize) -> Node {
    node(move |_| {
        let never = stream::pending::<Result<Vec<u8>, std::io::Error>>();
        let length = [("content-length", bytes.to_string())];
        Some((length, Body::from_stream(never)).into_response())
    })
    .await
}

#[tokio::test]
async fn answers_with_wrong_double_or_missing_ids_are_none() {
    type Change = fn(&mut Vec<Value>);
    let cases: [(Change, &str); 4] = [
        (|answers| answers[1]["id"] = json!(999_999), "an answer has the id 999999, which no call had"),
        (|answers| answers[1]["id"] = answers[0]["id"].clone(), "two answers have the id "),
        (|answers| drop(answers.remove(1)), "the answer leaves out a part of the batch: the id "),
        (|answers| answers[1] = json!({ "id": answers[1]["id"] }), "has neither result nor error"),
    ];
    for (change, expected) in cases {
        let node = node(move |body| {
            let mut answers: Value = serde_json::from_str(&truth(body)).unwrap();
            let is_blocks = body.contains("true");
            change(answers.as_array_mut().filter(|_| is_blocks)?);
            Some(answers.to_string().into_response())
        })
        .await;
        let error = node.source(mainnet()).blocks(1..=3, Read::FULL).await.unwrap_err();
        assert_eq!(error.kind, SourceErrorKind::Transient);
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[tokio::test]
async fn answers_in_another_order_are_answers() {
    let node = node(|body| {
        let mut answers: Value = serde_json::from_str(&truth(body)).unwrap();
        answers.as_array_mut()?.reverse();
        Some(answers.to_string().into_response())
    })
    .await;
    assert_eq!(node.source(mainnet()).blocks(1..=20, Read::FULL).await.unwrap().len(), 20);
}

#[tokio::test]
async fn truncated_and_foreign_bodies_are_failures() {
    for body in ["", "[", "{\"jsonrpc\":\"2.0\"", "<html>busy</html>", "null", "[]", "{}"] {
        let node = node(move |_| Some(body.into_response())).await;
        let error = node.source(mainnet()).tip().await.unwrap_err();
        assert_eq!(error.kind, SourceErrorKind::Transient, "{body}: {error}");
    }
}

#[tokio::test]
async fn headers_are_sent_with_every_request() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let node = Node::start_raw(move |headers: HeaderMap, body| {
        log.lock().unwrap().push(headers.get("authorization").map(|value| value.to_str().unwrap().to_owned()));
        async move { truth(&body).into_response() }
    })
    .await;
    let url = format!("http://{}", node.id()).parse().unwrap();
    let headers = vec![("Authorization".to_owned(), "Bearer key".to_owned())];
    let source = EvmSource::at(mainnet(), vec![EndpointUrl { url, headers }], Timings::PRODUCTION).unwrap();
    source.tip().await.unwrap();
    source.blocks(1..=2, Read::FULL).await.unwrap();
    source.headers(1..=2).await.unwrap();
    let seen = seen.lock().unwrap();
    assert!(seen.len() >= 3 && seen.iter().all(|value| value.as_deref() == Some("Bearer key")), "{seen:?}");
    let url =
        EndpointUrl { url: "http://localhost".parse().unwrap(), headers: vec![("a b".to_owned(), String::new())] };
    let error = EvmSource::at(mainnet(), vec![url], Timings::PRODUCTION).unwrap_err().to_string();
    assert!(error.contains("rpc url 1 has a header that cannot be sent"), "{error}");
}
