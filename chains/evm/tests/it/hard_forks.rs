//! What only a newer version can prove: a header field that nobody knew, at one endpoint and at all. And heads that end
//! below what was agreed to be final.

use std::time::{Duration, Instant};

use alloy::primitives::B256;
use landfall_chain::{BlockSource, EndpointState, Read, ReadProof, SourceError, SourceErrorKind};
use landfall_evm::EvmSource;
use serde_json::{Value, json};

use crate::forge;
use crate::mint::{self, Tx};
use crate::node::{Answer, Ledger, Live, hear_all, led_by_first, mainnet, settled, source};

/// Blocks 1 to 20; other ones from `from` on.
fn fork(from: u64) -> Ledger {
    let nonce = |number: u64| if number >= from { 1_000 + number } else { number };
    let paying = |number| vec![Tx { nonce: nonce(number), value: 1, ..Tx::default() }];
    Ledger::of(mint::chain(1, (1..=20).map(paying).collect()))
}

fn ledger(latest: u64, finalized: u64) -> Ledger {
    fork(1_000).up_to(latest, Some(finalized))
}

async fn two() -> (Live, Live, EvmSource) {
    let (first, second) = (Live::start(ledger(20, 10)).await, Live::start(ledger(20, 10)).await);
    let source = source(mainnet(), &[&first.node, &second.node]);
    source.check().await.unwrap();
    (first, second, source)
}

/// Headers with a field more, and so with another hash.
fn with_field(name: &'static str, value: Value) -> impl Fn(&str, &Value) -> Option<Answer> + Send + 'static {
    move |method, params| {
        let mut answer = (method == "eth_getBlockByNumber").then(|| ledger(20, 10).answer(method, params).unwrap())?;
        if answer.is_object() {
            answer[name] = value.clone();
            answer["hash"] = json!(format!("0x{:064x}", 0x77));
        }
        Some(Ok(answer))
    }
}

fn newer() -> impl Fn(&str, &Value) -> Option<Answer> + Send + 'static {
    with_field("futureRoot", json!(format!("0x{:064x}", 5)))
}

async fn until_permanent(source: &EvmSource) -> SourceError {
    let begun = Instant::now();
    loop {
        match source.tip().await {
            Err(error) if error.kind == SourceErrorKind::Permanent => return error,
            outcome => assert!(begun.elapsed() < Duration::from_secs(60), "{outcome:?}"),
        }
    }
}

#[tokio::test]
async fn a_header_field_of_the_future_at_the_only_endpoint_asks_for_an_upgrade() {
    let node = Live::start(ledger(20, 10)).await;
    let source = node.node.source(mainnet());
    source.tip().await.unwrap();
    node.lie(newer());
    // One answer may be spoilt; three in a row are not.
    for _ in 0..2 {
        assert_eq!(source.tip().await.unwrap_err().kind, SourceErrorKind::Transient);
    }
    let error = source.tip().await.unwrap_err();
    assert!(error.needs_upgrade && error.kind == SourceErrorKind::Permanent, "{error}");
    let text = error.to_string();
    assert!(text.contains("\"futureRoot\"") && text.contains("an upgrade is needed"), "{text}");
    node.report_the_truth();
    assert_eq!(source.tip().await.unwrap().latest.number, 20);
}

/// Block 16 with one transaction of a type that nobody knows, whose receipt has not what each has today.
fn of_another_shape() -> (Value, Value) {
    let (block, mut receipts) = forge::block(&[forge::newer(5, vec![])], &[]);
    receipts[0].as_object_mut().unwrap().remove("cumulativeGasUsed");
    (block, receipts)
}

#[tokio::test]
async fn receipts_of_another_shape_behind_a_type_of_the_future_ask_for_an_upgrade() {
    let (first, second) = (Live::start(Ledger::of([of_another_shape()])).await, Live::start(Ledger::default()).await);
    // With the block, and by its hash where the node had not yet any by number.
    for is_late in [false, true] {
        first.lie(move |method, params| {
            let by_number = params[0].as_str().is_some_and(|block| block.len() < 10);
            (is_late && method == "eth_getBlockReceipts" && by_number).then_some(Ok(Value::Null))
        });
        for read in [Read::FULL, Read { proof: ReadProof::Candidate, ..Read::FULL }] {
            let error = first.node.source(mainnet()).blocks(16..=16, read).await.unwrap_err();
            assert!(error.needs_upgrade && error.kind == SourceErrorKind::Permanent, "{is_late} {read:?}: {error}");
            let text = error.to_string();
            assert!(text.contains("block 16 (0x") && text.contains("a transaction of type 0x05"), "{text}");
        }
    }
    first.report_the_truth();
    // All who answer must show it.
    let (known, receipts) = mint::block(16, B256::repeat_byte(1), &[Tx::default()]);
    for (ledger, needs_upgrade) in
        [(Ledger::of([(known.clone(), receipts.clone())]), false), (Ledger::of([of_another_shape()]), true)]
    {
        *second.ledger.lock().unwrap() = ledger;
        let source = led_by_first(mainnet(), &[&first, &second]).await;
        match source.blocks(16..=16, Read::FULL).await {
            Ok(blocks) => assert!(!needs_upgrade && blocks.len() == 1),
            Err(error) => assert!(needs_upgrade && error.needs_upgrade, "{error}"),
        }
    }
    // Of transactions that are known it is a malformed answer.
    let mut receipts = receipts;
    receipts[0].as_object_mut().unwrap().remove("cumulativeGasUsed");
    *first.ledger.lock().unwrap() = Ledger::of([(known, receipts)]);
    let error = first.node.source(mainnet()).blocks(16..=16, Read::FULL).await.unwrap_err();
    assert!(!error.needs_upgrade && error.kind == SourceErrorKind::Transient, "{error}");
}

#[tokio::test]
async fn one_endpoint_alone_cannot_halt_a_chain_that_another_understands() {
    let (first, second, source) = two().await;
    first.lie(newer());
    for _ in 0..5 {
        assert_eq!(source.tip().await.unwrap().latest.number, 20);
        assert_eq!(source.blocks(6..=6, Read::FULL).await.unwrap().len(), 1);
    }
    let status = source.endpoints().snapshot().remove(0);
    assert!(status.state == EndpointState::Failing && status.reason.contains("futureRoot"), "{status:?}");
    // The other is silent: still one word alone.
    second.lie(|_, _| Some(Err((-32000, "down".to_owned()))));
    for _ in 0..6 {
        assert_eq!(source.tip().await.unwrap_err().kind, SourceErrorKind::Transient);
    }
    // Another field is another story.
    second.lie(with_field("otherRoot", json!("0x5")));
    for _ in 0..6 {
        assert_eq!(source.tip().await.unwrap_err().kind, SourceErrorKind::Transient);
    }
    second.lie(newer());
    assert!(until_permanent(&source).await.needs_upgrade);
}

#[tokio::test]
async fn an_endpoint_in_quarantine_that_shows_the_same_counts() {
    let (first, second) = (Live::start(ledger(20, 10)).await, Live::start(ledger(20, 10)).await);
    let source = led_by_first(mainnet(), &[&first, &second]).await;
    first.lie(|method, params| {
        let mut answer = (method == "eth_getBlockReceipts").then(|| ledger(20, 10).answer(method, params).unwrap())?;
        answer[0]["cumulativeGasUsed"] = json!("0x1");
        Some(Ok(answer))
    });
    source.blocks(6..=6, Read::FULL).await.unwrap();
    assert_eq!(source.endpoints().snapshot()[0].state, EndpointState::Quarantined);
    for node in [&first, &second] {
        node.lie(newer());
    }
    assert!(until_permanent(&source).await.needs_upgrade);
}

#[tokio::test]
async fn a_wrong_hash_beside_what_nodes_are_known_to_add_is_a_lie_and_no_fork() {
    let cases = [("author", json!("0x5")), ("future", json!(5)), ("futureRoot", Value::Null), ("x", json!(["0x5"]))];
    for (name, value) in cases {
        let node = Live::start(ledger(20, 10)).await;
        node.lie(with_field(name, value));
        let source = node.node.source(mainnet());
        let error = source.tip().await.unwrap_err();
        assert_eq!(error.kind, SourceErrorKind::Transient, "{name}: {error}");
        assert_eq!(source.endpoints().snapshot()[0].state, EndpointState::Quarantined, "{name}");
    }
}

#[tokio::test]
async fn who_ends_below_what_was_agreed_to_be_final_does_not_lead() {
    let (first, second, source) = two().await;
    assert_eq!(source.tip().await.unwrap().finalized, Some(ledger(20, 10).reference(10)));
    *first.ledger.lock().unwrap() = ledger(5, 3);
    for _ in 0..3 {
        let tip = source.tip().await.unwrap();
        assert_eq!((tip.latest.number, tip.finalized), (20, Some(ledger(20, 10).reference(10))));
    }
    let waiting = settled(&source).await.waiting.unwrap();
    assert!(waiting.starts_with("1 of the 2 endpoints that must agree have reached block 10 "), "{waiting}");
    assert!(waiting.ends_with(&format!("not {}", first.node.id())), "{waiting}");
    second.lie(|_, _| Some(Err((-32000, "down".to_owned()))));
    for (below, shown) in
        [(ledger(5, 3), "is 5 (0x"), (ledger(9, 9), "is 9 (0x"), (fork(3).up_to(10, None), "is 10 (0x")]
    {
        *first.ledger.lock().unwrap() = below;
        hear_all(&source).await;
        let error = source.tip().await.unwrap_err();
        assert_eq!(error.kind, SourceErrorKind::Transient);
        let text = error.to_string();
        assert!(text.contains(first.node.id()) && text.contains(shown), "{text}");
        assert!(
            text.ends_with(&format!("but block {} was agreed to be final", ledger(20, 10).reference(10))),
            "{text}"
        );
    }
    *first.ledger.lock().unwrap() = ledger(11, 8);
    let tip = source.tip().await.unwrap();
    assert_eq!((tip.latest.number, tip.finalized), (11, Some(ledger(20, 10).reference(10))), "nothing is forgotten");
}

#[tokio::test]
async fn the_only_endpoint_set_back_below_what_was_final_is_an_error_until_it_is_back() {
    let node = Live::start(ledger(20, 16)).await;
    let source = node.node.source(mainnet());
    assert_eq!(source.tip().await.unwrap().finalized, Some(ledger(20, 16).reference(16)));
    *node.ledger.lock().unwrap() = ledger(5, 3);
    for _ in 0..3 {
        let error = source.tip().await.unwrap_err();
        assert_eq!(error.kind, SourceErrorKind::Transient);
        assert!(error.to_string().contains("block 16 (0x"), "{error}");
    }
    *node.ledger.lock().unwrap() = ledger(17, 12);
    let tip = source.tip().await.unwrap();
    assert_eq!((tip.latest.number, tip.finalized), (17, Some(ledger(20, 16).reference(16))));
}

#[tokio::test]
async fn from_the_start_two_on_different_forks_make_nothing_final_and_say_so() {
    let (first, second) = (Live::start(ledger(20, 10)).await, Live::start(fork(3).up_to(20, Some(10))).await);
    let source = source(mainnet(), &[&first.node, &second.node]);
    for _ in 0..3 {
        assert_eq!(source.tip().await.unwrap().finalized, None);
    }
    let waiting = settled(&source).await.waiting.unwrap();
    assert!(waiting.starts_with("1 of 2 endpoints agree on block 10, and 2 must: "), "{waiting}");
}
