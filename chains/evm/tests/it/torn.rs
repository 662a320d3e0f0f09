//! Receipts of another block than the one that came with them: no lie, but a reorg or another node between two calls.
//! They are asked for again by hash; what does not fit then either is an error that may pass.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use landfall_chain::{BlockSource, EndpointState, Read, SourceErrorKind};
use serde_json::{Value, json};

use crate::mint::{self, Tx};
use crate::node::{Answer, Ledger, Node, mainnet};

fn ledger() -> Ledger {
    let paying = |nonce| vec![Tx { nonce, value: 1, ..Tx::default() }];
    Ledger::of(mint::chain(5, (0..3).map(paying).collect()))
}

fn is_hash(params: &Value) -> bool {
    params[0].as_str().unwrap().len() == 66
}

#[tokio::test]
async fn receipts_that_do_not_fit_are_asked_for_again_by_hash() {
    let other_txs: Vec<Tx> = (0..2).map(|nonce| Tx { nonce, value: 9, ..Tx::default() }).collect();
    let (_, other) = mint::block(6, alloy::primitives::B256::repeat_byte(9), &other_txs);
    let shorter = json!([other[0]]);
    let cases: [Answer; 5] =
        [Ok(other), Ok(shorter), Ok(Value::Null), Ok(json!([])), Err((-32000, "header not found".to_owned()))];
    for torn in cases {
        let (ledger, said) = (ledger(), format!("{torn:?}"));
        let node = Node::start(move |method, params| match method {
            "eth_getBlockReceipts" if !is_hash(params) && params[0] == "0x6" => torn.clone(),
            _ => ledger.answer(method, params),
        })
        .await;
        let source = node.source(mainnet());
        source.check().await.unwrap();
        node.take_requests();
        let blocks = source.blocks(5..=7, Read::FULL).await.unwrap();
        assert_eq!((blocks.len(), node.take_requests()), (3, 2), "{said}");
        assert!(blocks.iter().all(|block| block.transfers.len() == 1));
    }
}

#[tokio::test]
async fn only_what_does_not_fit_is_asked_for_again() {
    let asked = Arc::new(AtomicUsize::new(0));
    let (ledger, count) = (ledger(), asked.clone());
    let node = Node::start(move |method, params| match method {
        "eth_getBlockReceipts" if is_hash(params) => {
            count.fetch_add(1, Ordering::Relaxed);
            ledger.answer(method, params)
        }
        "eth_getBlockReceipts" if params[0] == "0x6" => Ok(Value::Null),
        _ => ledger.answer(method, params),
    })
    .await;
    assert_eq!(node.source(mainnet()).blocks(5..=7, Read::FULL).await.unwrap().len(), 3);
    assert_eq!(asked.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn what_does_not_fit_by_hash_either_is_an_error_that_may_pass() {
    let (_, other) = mint::block(6, alloy::primitives::B256::repeat_byte(9), &[Tx { value: 9, ..Tx::default() }]);
    for torn in [other, Value::Null, json!([])] {
        let ledger = ledger();
        let node = Node::start(move |method, params| {
            let block = ledger.blocks[&6].0["hash"].clone();
            match method {
                "eth_getBlockReceipts" if params[0] == "0x6" || params[0] == block => Ok(torn.clone()),
                _ => ledger.answer(method, params),
            }
        })
        .await;
        let source = node.source(mainnet());
        let error = source.blocks(5..=7, Read::FULL).await.unwrap_err();
        assert_eq!(error.kind, SourceErrorKind::Transient, "{error}");
        assert_ne!(source.endpoints().snapshot()[0].state, EndpointState::Quarantined, "{error}");
        assert_eq!(source.blocks(5..=5, Read::FULL).await.unwrap().len(), 1, "the others can be read");
    }
}

#[tokio::test]
async fn receipts_that_name_the_block_and_do_not_fit_are_a_lie_and_the_only_endpoint_is_soon_asked_again() {
    let (ledger, lies) = (ledger(), Arc::new(AtomicBool::new(true)));
    let lying = lies.clone();
    let node = Node::start(move |method, params| {
        let mut answer = ledger.answer(method, params)?;
        if method == "eth_getBlockReceipts" && lying.load(Ordering::Relaxed) {
            answer[0]["cumulativeGasUsed"] = json!("0x1");
        }
        Ok(answer)
    })
    .await;
    let source = node.source(mainnet());
    for _ in 0..2 {
        source.check().await.unwrap();
        let error = source.blocks(5..=7, Read::FULL).await.unwrap_err();
        assert!(error.to_string().contains("do not make up the header's receiptsRoot"), "{error}");
        assert_eq!(source.endpoints().snapshot()[0].state, EndpointState::Quarantined);
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    lies.store(false, Ordering::Relaxed);
    assert_eq!(source.blocks(5..=7, Read::FULL).await.unwrap().len(), 3);
}
