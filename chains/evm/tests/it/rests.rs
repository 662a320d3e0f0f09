//! Who rests and why: asked earlier where it is lacked, left alone where it asked for that, and reported with its reason.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use axum::response::IntoResponse;
use futures_util::future::join_all;
use landfall_chain::{BlockSource, EndpointState, Read, SourceErrorKind};
use landfall_evm::EvmSource;
use serde_json::{Value, json};

use crate::mint::{self, Tx};
use crate::node::{self, Answer, Ledger, Live, Node, hear_all, led_by_first, mainnet, source, takes_less_than, until};

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
    takes_less_than(Duration::from_millis(700), async || {
        let (first, second, source) = two().await;
        for node in [&first, &second] {
            node.lie(forged);
        }
        // The quarantines begin within this call.
        let begun = Instant::now();
        source.blocks(6..=6, Read::FULL).await.unwrap_err();
        assert_eq!(states(&source), [EndpointState::Quarantined; 2]);
        for node in [&first, &second] {
            node.report_the_truth();
        }
        assert_eq!(source.tip().await.unwrap().latest.number, 20);
        let took = begun.elapsed();
        assert!(took >= Duration::from_millis(200), "{took:?}");
        assert_eq!(source.blocks(6..=6, Read::FULL).await.unwrap().len(), 1);
        took
    })
    .await;
}

#[tokio::test]
async fn a_quarantine_that_finds_nothing_better_is_not_hammered() {
    let (first, second, source) = two().await;
    for node in [&first, &second] {
        node.lie(forged);
    }
    let begun = Instant::now();
    source.blocks(6..=6, Read::FULL).await.unwrap_err();
    for node in [&first, &second] {
        refuse(node, "down");
        node.node.take_requests();
    }
    let mut asked = [0, 0];
    until("both are asked again", async || {
        source.tip().await.unwrap_err();
        asked[0] += first.node.take_requests();
        asked[1] += second.node.take_requests();
        begun.elapsed() > Duration::from_secs(1) && asked.into_iter().all(|asked| asked >= 2)
    })
    .await;
    // Each time after 200 ms at the least, and once at the end of the second that is shown.
    let most = begun.elapsed().as_millis() / 200 + 1;
    assert!(asked.into_iter().all(|asked| asked <= usize::try_from(most).unwrap()), "{asked:?} requests, not {most}");
}

#[tokio::test]
async fn while_too_few_can_agree_a_quarantine_is_shorter() {
    takes_less_than(Duration::from_millis(750), async || {
        let (first, second) = (Live::start(ledger()).await, Live::start(ledger()).await);
        let source = led_by_first(mainnet(), &[&first, &second]).await;
        first.lie(forged);
        let begun = Instant::now();
        source.blocks(6..=6, Read::FULL).await.unwrap();
        assert_eq!(states(&source), [EndpointState::Quarantined, EndpointState::Healthy]);
        first.report_the_truth();
        until("it is back", async || {
            source.tip().await.unwrap();
            states(&source)[0] == EndpointState::Healthy
        })
        .await;
        // A whole quarantine is 800 ms at the least.
        begun.elapsed()
    })
    .await;
}

#[tokio::test]
async fn too_many_requests_at_one_endpoint_never_stop_reading_from_the_other() {
    takes_less_than(Duration::from_millis(700), async || {
        let (first, second, source) = two().await;
        let mut longest = Duration::ZERO;
        for (limited, other) in [(&first, &second), (&second, &first), (&first, &second)] {
            refuse(limited, "rate limit exceeded");
            other.report_the_truth();
            let begun = Instant::now();
            // One retry at most: who was limited a moment ago is the only one now.
            let tip = match source.tip().await {
                Ok(tip) => tip,
                Err(_) => source.tip().await.unwrap(),
            };
            assert_eq!(tip.latest.number, 20);
            assert_eq!(source.blocks(6..=6, Read::FULL).await.unwrap().len(), 1);
            longest = longest.max(begun.elapsed());
        }
        longest
    })
    .await;
}

/// Whether an endpoint is said to be left alone, for what is left of 299 s.
fn is_left_alone(text: &str) -> bool {
    let left = text.split_once("must be left alone for another ").and_then(|(_, left)| left.split_once(' '));
    left.is_some_and(|(secs, _)| secs.parse::<u64>().is_ok_and(|secs| (1..=299).contains(&secs)))
}

#[tokio::test]
async fn a_pause_that_was_asked_for_is_kept_and_named_although_the_status_is_healthy() {
    let node = Live::start(ledger()).await;
    let source = node.node.source(mainnet());
    source.tip().await.unwrap();
    node.lie(|method, _| {
        (method == "eth_getBlockReceipts").then(|| Err((-32_005, "rate limit exceeded, retry in 299s".to_owned())))
    });
    source.blocks(6..=6, Read::FULL).await.unwrap_err();
    node.node.take_requests();
    let error = source.tip().await.unwrap_err();
    assert_eq!(error.kind, SourceErrorKind::Transient);
    let text = error.to_string();
    assert!(text.contains("retry in 299s") && is_left_alone(&text), "{text}");
    assert_eq!(node.node.take_requests(), 0);
}

#[tokio::test]
async fn why_nobody_can_be_asked_names_each_endpoint_with_its_own_reason() {
    let (first, second, source) = two().await;
    source.set_agree(1).unwrap();
    // Its note while it is healthy is no reason.
    hear_all(&source).await;
    assert!(source.endpoints().snapshot()[0].reason.contains("checked by no other"));
    refuse(&first, "limited to 3 requests per second, retry in 299s");
    refuse(&second, "out of order");
    let text = source.tip().await.unwrap_err().to_string();
    assert!(!text.contains("checked by no other"), "{text}");
    let reported: Vec<&str> = text.split("; ").collect();
    assert!(
        reported.len() == 2 && reported[0].contains(first.node.id()) && reported[1].contains(second.node.id()),
        "{text}"
    );
    assert!(is_left_alone(reported[0]) && reported[1].contains("out of order"), "{text}");
}

/// A node that refuses one request when it is told to, and names no pause.
async fn refusing_once() -> (Node, Arc<AtomicBool>) {
    let (refuses, ledger) = (Arc::new(AtomicBool::new(false)), Arc::new(ledger()));
    let reported = Arc::clone(&refuses);
    let node = Node::start_raw(move |_, body| {
        let (is_refused, ledger) = (reported.swap(false, Ordering::Relaxed), Arc::clone(&ledger));
        async move {
            if is_refused {
                return StatusCode::TOO_MANY_REQUESTS.into_response();
            }
            let reply = node::reply(&body, &|method: &str, params: &Value| ledger.answer(method, params));
            ([("content-type", "application/json")], reply).into_response()
        }
    })
    .await;
    (node, refuses)
}

#[tokio::test]
async fn how_fast_an_endpoint_may_be_asked_is_learnt_of_one_refusal() {
    // 50 ms lie between two requests then, and less only when a second has passed.
    const READS: u32 = 18;
    let (node, refuses) = refusing_once().await;
    let source = node.source(mainnet());
    source.tip().await.unwrap();
    refuses.store(true, Ordering::Relaxed);
    let begun = Instant::now();
    let error = source.blocks(6..=6, Read::FULL).await.unwrap_err();
    assert_eq!(error.kind, SourceErrorKind::Transient, "{error}");
    for _ in 0..READS {
        assert_eq!(source.blocks(6..=6, Read::FULL).await.unwrap().len(), 1);
    }
    assert!(begun.elapsed() >= READS * Duration::from_millis(50), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn another_healthy_endpoint_is_asked_rather_than_one_that_must_be_waited_for() {
    let behind = || Live::start(ledger().up_to(19, Some(5)));
    let (first, second) = (behind().await, behind().await);
    let source = led_by_first(mainnet(), &[&first, &second]).await;
    refuse(&first, "rate limit exceeded");
    source.blocks(6..=6, Read::FULL).await.unwrap();
    first.report_the_truth();
    until("the first is back, and leads", async || {
        let latest = source.tip().await.unwrap().latest;
        first.ledger.lock().unwrap().blocks = ledger().blocks;
        latest.number == 20
    })
    .await;
    let is_read_from = |node: &Live| node.take_calls().iter().any(|(method, _)| method == "eth_getBlockReceipts");
    first.take_calls();
    until("who need not wait for the first asks it", async || {
        source.blocks(6..=6, Read::FULL).await.unwrap();
        is_read_from(&first)
    })
    .await;
    second.take_calls();
    // At once: one of them at most finds that it need not wait.
    let reads = join_all((0..10).map(|_| source.blocks(6..=6, Read::FULL))).await;
    assert!(reads.iter().all(Result::is_ok), "{reads:?}");
    assert!(is_read_from(&second));
}

/// A node that lets whoever asks for blocks wait in vain while it is told to; and how often it was asked for some.
async fn silent_on_blocks() -> (Node, Arc<AtomicBool>, Arc<AtomicUsize>) {
    let (hangs, asked, ledger) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)), Arc::new(ledger()));
    let (reported, count) = (Arc::clone(&hangs), Arc::clone(&asked));
    let node = Node::start_raw(move |_, body| {
        let is_of_blocks = body.contains("eth_getBlockReceipts");
        count.fetch_add(usize::from(is_of_blocks), Ordering::Relaxed);
        let (is_silent, ledger) = (is_of_blocks && reported.load(Ordering::Relaxed), Arc::clone(&ledger));
        async move {
            if is_silent {
                // Longer than a request takes that comes to something.
                tokio::time::sleep(Duration::from_millis(5_100)).await;
                return StatusCode::GATEWAY_TIMEOUT.into_response();
            }
            let reply = node::reply(&body, &|method: &str, params: &Value| ledger.answer(method, params));
            ([("content-type", "application/json")], reply).into_response()
        }
    })
    .await;
    (node, hangs, asked)
}

#[tokio::test]
async fn who_lets_blocks_wait_in_vain_is_asked_for_them_once_and_does_not_lead_beside_a_healthy_one() {
    let (first, hangs, asked) = silent_on_blocks().await;
    let second = Live::start(ledger().up_to(19, Some(5))).await;
    let source = source(mainnet(), &[&first, &second.node]);
    hear_all(&source).await;
    assert_eq!(source.tip().await.unwrap().latest.number, 20, "the first leads");
    hangs.store(true, Ordering::Relaxed);
    assert_eq!(source.blocks(6..=6, Read::FULL).await.unwrap().len(), 1);
    until("its polls are answered again", async || {
        source.tip().await.unwrap();
        states(&source)[0] == EndpointState::Healthy
    })
    .await;
    for number in 7..=12 {
        assert_eq!(source.tip().await.unwrap().latest.number, 19);
        assert_eq!(source.blocks(number..=number, Read::FULL).await.unwrap().len(), 1);
    }
    assert_eq!(asked.load(Ordering::Relaxed), 1);

    refuse(&second, "out of order");
    hangs.store(false, Ordering::Relaxed);
    until("there is nobody else", async || source.tip().await.unwrap().latest.number == 20).await;
    assert_eq!(source.blocks(6..=6, Read::FULL).await.unwrap().len(), 1);
    assert_eq!(asked.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn who_failed_is_asked_again_while_another_is_silent() {
    let (first, second) = (Live::start(ledger()).await, Live::start(ledger()).await);
    let source = source(mainnet(), &[&first.node, &second.node]);
    for is_known in [false, true] {
        if is_known {
            hear_all(&source).await;
        }
        let fails = AtomicBool::new(true);
        first.lie(move |_, _| fails.swap(false, Ordering::Relaxed).then(|| Err((-32_000, "out of order".to_owned()))));
        let held = second.hold().await;
        first.node.take_requests();
        let begun = Instant::now();
        assert_eq!(source.tip().await.unwrap().latest.number, 20, "{is_known}");
        // A little later, so that it is not hammered.
        assert!(begun.elapsed() >= Duration::from_millis(150), "{:?}", begun.elapsed());
        assert_eq!(first.node.take_requests(), 2, "{is_known}");
        drop(held);
    }
}
