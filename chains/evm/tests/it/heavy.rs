//! Blocks that are too heavy to be traced, or held, at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::http::StatusCode;
use axum::response::IntoResponse;
use landfall_chain::{BlockSource, Proof, Read, ReadProof, SourceErrorKind, U256};
use serde_json::{Value, json};

use crate::mint::{self, Tx};
use crate::node::{Ledger, Live, Node, reply};
use crate::trace::{LISTED, NESTED, address, frame, nested, traced};

/// How a block is refused that is asked for at once: whole, or one of its transactions.
#[derive(Clone, Copy, Debug)]
enum Refused {
    Block(&'static str),
    Transaction(&'static str),
}

/// Forty transactions of which every fifth failed; each pays inside what its place says. Traced one by one only.
async fn heavy(refused: Refused, other_block: Option<usize>) -> (Live, Vec<U256>) {
    let txs = (0..40).map(|nonce| Tx { nonce, success: nonce % 5 != 0, ..Tx::default() }).collect();
    let ledger = Ledger::of(mint::chain(5, vec![txs]));
    let block = ledger.blocks[&5].0.clone();
    let live = Live::start(ledger).await;
    let lie = move |method: &str, params: &Value| {
        let index = || block["transactions"].as_array().unwrap().iter().position(|tx| tx["hash"] == params[0]).unwrap();
        match method {
            NESTED => Some(match refused {
                Refused::Block(words) => Err((-32000, words.to_owned())),
                Refused::Transaction(words) => {
                    let root = frame("CALL", address(0xaa), address(0xbb), 0, vec![]);
                    let mut reported = nested(&block, &vec![root; 40]);
                    let hash = reported[7]["txHash"].take();
                    reported[7] = json!({ "txHash": hash, "error": words });
                    Ok(reported)
                }
            }),
            "debug_traceTransaction" => {
                assert_eq!(params[1], json!({ "tracer": "callTracer", "timeout": "12s" }));
                let amount = u64::try_from(index()).unwrap();
                assert_ne!(amount % 5, 0, "its receipt says that it failed");
                let inner = frame("CALL", address(0xbb), address(0x0b), amount, vec![]);
                Some(Ok(frame("CALL", address(0xaa), address(0xbb), 0, vec![inner])))
            }
            "eth_getTransactionByHash" => {
                let other = other_block == Some(index());
                let hash = if other { json!(format!("0x{}", "22".repeat(32))) } else { block["hash"].clone() };
                Some(Ok(json!({ "blockHash": hash, "blockNumber": "0x5" })))
            }
            _ => None,
        }
    };
    live.lie(lie);
    (live, (0..40_u64).filter(|amount| amount % 5 != 0).map(U256::from).collect())
}

#[tokio::test]
async fn a_block_that_is_too_heavy_to_be_traced_at_once_is_traced_by_its_transactions() {
    let of_block = ["execution timeout", "response is too big", "request timed out"].map(Refused::Block);
    for refused in of_block.into_iter().chain([Refused::Transaction("execution timeout")]) {
        let (live, expected) = heavy(refused, None).await;
        let block = live.node.source(traced()).blocks(5..=5, LISTED).await.unwrap().remove(0);
        let amounts: Vec<U256> = block.transfers.iter().map(|leg| leg.amount).collect();
        assert_eq!((amounts, block.proof), (expected, Proof::OneEndpoint), "{refused:?}");
    }
    // Of other words it is not: they are about the node.
    let (live, _) = heavy(Refused::Block("header not found"), None).await;
    let error = live.node.source(traced()).blocks(5..=5, LISTED).await.unwrap_err();
    assert!(error.to_string().contains("header not found"), "{error}");
    let calls = live.take_calls();
    assert!(calls.iter().all(|(method, _)| method != "debug_traceTransaction"), "{calls:?}");
}

#[tokio::test]
async fn a_transaction_that_is_in_another_block_there_is_not_believed() {
    // Sixteen are asked for at once, and the first and the last of them say where they are.
    for index in [1, 19, 21, 39] {
        let (live, _) = heavy(Refused::Block("execution timeout"), Some(index)).await;
        let error = live.node.source(traced()).blocks(5..=5, LISTED).await.unwrap_err();
        assert_eq!(error.kind, SourceErrorKind::Transient);
        // The words of what was asked first.
        assert!(error.to_string().contains("execution timeout"), "{error}");
    }
}

#[tokio::test]
async fn traces_that_are_too_much_at_once_leave_what_else_is_asked_for_as_it_was() {
    let txs = |nonce| vec![Tx { nonce, ..Tx::default() }];
    let ledger = Ledger::of(mint::chain(5, (0..4).map(txs).collect()));
    let answer = move |method: &str, params: &Value| match method {
        NESTED => {
            let block =
                ledger.blocks.values().map(|(block, _)| block).find(|block| block["hash"] == params[0]).unwrap();
            Ok(nested(block, &[frame("CALL", address(0xaa), address(0xbb), 0, vec![])]))
        }
        _ => ledger.answer(method, params),
    };
    let answer = Arc::new(answer);
    let node = Node::start_raw(move |_, body| {
        let is_too_much = body.matches(NESTED).count() > 1;
        let reply = if is_too_much { String::new() } else { reply(&body, answer.as_ref()) };
        let status = if is_too_much { StatusCode::PAYLOAD_TOO_LARGE } else { StatusCode::OK };
        async move { (status, [("content-type", "application/json")], reply).into_response() }
    })
    .await;
    let source = node.source(traced());
    source.check().await.unwrap();
    let mut requests = Vec::new();
    for read in [Read::FULL, LISTED, Read::FULL, LISTED] {
        node.take_requests();
        assert_eq!(source.blocks(5..=8, read).await.unwrap().len(), 4);
        requests.push(node.take_requests());
    }
    assert_eq!((requests[0], requests[2]), (1, 1), "blocks and receipts: {requests:?}");
    assert!(requests[3] < requests[1], "what is served of traces is known by then: {requests:?}");
}

/// Each block of the answers is `kib` heavier than it would be.
async fn padded(kib: Arc<AtomicUsize>) -> Node {
    let ledger = Ledger::of(mint::chain(5, (0..4).map(|nonce| vec![Tx { nonce, ..Tx::default() }]).collect()));
    Node::start(move |method, params| {
        let mut answer = ledger.answer(method, params)?;
        if let Some(block) = answer.as_object_mut().filter(|_| method == "eth_getBlockByNumber") {
            block.insert("padding".to_owned(), "x".repeat(kib.load(Ordering::Relaxed) << 10).into());
        }
        Ok(answer)
    })
    .await
}

#[tokio::test]
async fn what_is_too_much_to_hold_at_once_is_asked_for_in_parts() {
    let kib = Arc::new(AtomicUsize::new(5 << 10));
    let node = padded(Arc::clone(&kib)).await;
    let source = node.source(traced());
    source.check().await.unwrap();
    for read in [Read::FULL, Read { proof: ReadProof::Candidate, ..Read::FULL }] {
        let requests = async |times: usize| {
            let mut requests = Vec::new();
            for _ in 0..times {
                node.take_requests();
                let blocks = source.blocks(5..=8, read).await.unwrap();
                assert_eq!(blocks.iter().map(|block| block.header.block.number).collect::<Vec<_>>(), [5, 6, 7, 8]);
                requests.push(node.take_requests());
            }
            requests
        };
        kib.store(5 << 10, Ordering::Relaxed);
        let heavy = requests(3).await;
        assert_eq!(heavy[1..], [heavy[0] + 1; 2], "{read:?}: twenty MiB, then ten at a time");
        kib.store(0, Ordering::Relaxed);
        let light = requests(8).await;
        assert_eq!(light[7], heavy[0], "{read:?}: {light:?}");
    }
}
