//! Who rests and why: asked earlier where it is lacked, left alone where it asked for that, and told with its reason.

use std::time::{Duration, Instant};

use landfall_chain::{BlockSource, EndpointState, Read, SourceErrorKind};
use landfall_evm::EvmSource;
use serde_json::{Value, json};

use crate::mint::{self, Tx};
use crate::node::{Answer, Ledger, Live, mainnet, source};

/// Blocks 1 to 20 with one payment each, the first five final.
fn ledger() -> Ledger {
    let paying = |nonce| vec![Tx { nonce, value: 1, ..Tx::default() }];
    Ledger { finalized: Some(5), ..Ledger::of(mint::chain(1, (0..20).map(paying).collect())) }
}

async fn two() -> (Live, Live, EvmSource) {
    let (first, second) = (Live::start(ledger()).await, Live::start(ledger()).await);
    let source = source(mainnet(), &[&first.node, &second.node]);
    source.check().await.unwrap();
    (first, second, source)
}

/// Receipts that are not those of the block.
fn forged(method: &str, params: &Value) -> Option<Answer> {
    let mut answer = (method == "eth_getBlockReceipts").then(|| ledger().answer(method, params).unwrap())?;
    answer[0]["cumulativeGasUsed"] = json!("0x1");
    Some(Ok(answer))
}

fn refuse(node: &Live, message: &'static str) {
    node.lie(move |_, _| Some(Err((-32_005, message.to_owned()))));
}

fn states(source: &EvmSource) -> Vec<EndpointState> {
    source.endpoints().snapshot().into_iter().map(|status| status.state).collect()
}

#[tokio::test]
async fn when_nobody_else_can_be_read_from_a_quarantine_is_looked_at_after_a_fifth_of_a_second() {
    let (first, second, source) = two().await;
    for node in [&first, &second] {
        node.lie(forged);
    }
    source.blocks(6..=6, Read::FULL).await.unwrap_err();
    assert_eq!(states(&source), [EndpointState::Quarantined; 2]);
    for node in [&first, &second] {
        node.tell_the_truth();
        node.node.take_requests();
    }
    let begun = Instant::now();
    assert_eq!(source.tip().await.unwrap().latest.number, 20);
    assert!((100..700).contains(&begun.elapsed().as_millis()), "{:?}", begun.elapsed());
    assert_eq!(source.blocks(6..=6, Read::FULL).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_quarantine_that_finds_nothing_better_is_not_hammered() {
    let (first, second, source) = two().await;
    for node in [&first, &second] {
        node.lie(forged);
    }
    source.blocks(6..=6, Read::FULL).await.unwrap_err();
    for node in [&first, &second] {
        refuse(node, "down");
        node.node.take_requests();
    }
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(1) {
        source.tip().await.unwrap_err();
    }
    for node in [&first, &second] {
        let asked = node.node.take_requests();
        assert!((2..=7).contains(&asked), "{asked} requests in a second");
    }
}

#[tokio::test]
async fn while_too_few_can_agree_a_quarantine_is_shorter() {
    let (first, second, source) = two().await;
    second.set_delay_ms(20);
    first.lie(forged);
    while states(&source) != [EndpointState::Quarantined, EndpointState::Healthy] {
        source.tip().await.unwrap();
        source.blocks(6..=6, Read::FULL).await.unwrap();
    }
    first.tell_the_truth();
    let begun = Instant::now();
    while states(&source)[0] != EndpointState::Healthy {
        source.tip().await.unwrap();
        assert!(begun.elapsed() < Duration::from_millis(750), "a whole second where one would do");
    }
}

#[tokio::test]
async fn too_many_requests_at_one_endpoint_never_stop_reading_from_the_other() {
    let (first, second, source) = two().await;
    for (limited, other) in [(&first, &second), (&second, &first), (&first, &second)] {
        refuse(limited, "rate limit exceeded");
        other.tell_the_truth();
        let begun = Instant::now();
        // One retry at most: who was limited a moment ago is the only one now.
        let tip = match source.tip().await {
            Ok(tip) => tip,
            Err(_) => source.tip().await.unwrap(),
        };
        assert_eq!(tip.latest.number, 20);
        assert_eq!(source.blocks(6..=6, Read::FULL).await.unwrap().len(), 1);
        assert!(begun.elapsed() < Duration::from_millis(700), "{:?}", begun.elapsed());
    }
}

#[tokio::test]
async fn a_pause_that_was_asked_for_is_kept_and_named_although_the_status_is_healthy() {
    let node = Live::start(ledger()).await;
    let source = node.node.source(mainnet());
    source.tip().await.unwrap();
    node.lie(|method, _| {
        (method == "eth_getBlockReceipts").then(|| Err((-32_005, "rate limit exceeded, retry in 7s".to_owned())))
    });
    source.blocks(6..=6, Read::FULL).await.unwrap_err();
    node.node.take_requests();
    let error = source.tip().await.unwrap_err();
    assert_eq!(error.kind, SourceErrorKind::Transient);
    let text = error.to_string();
    assert!(text.contains("retry in 7s") && text.contains("must be left alone for another 7 s"), "{text}");
    assert_eq!(node.node.take_requests(), 0);
}

#[tokio::test]
async fn why_nobody_can_be_asked_names_each_endpoint_with_its_own_reason() {
    let (first, second, source) = two().await;
    source.set_agree(1).unwrap();
    // Its note while it is healthy is no reason.
    source.tip().await.unwrap();
    source.tip().await.unwrap();
    assert!(source.endpoints().snapshot()[0].reason.contains("checked by no other"));
    refuse(&first, "limited to 3 requests per second, retry in 9s");
    refuse(&second, "out of order");
    let text = source.tip().await.unwrap_err().to_string();
    assert!(!text.contains("checked by no other"), "{text}");
    let told: Vec<&str> = text.split("; ").collect();
    assert!(told.len() == 2 && told[0].contains(first.node.id()) && told[1].contains(second.node.id()), "{text}");
    assert!(told[0].contains("must be left alone for another 9 s") && told[1].contains("out of order"), "{text}");
}
