//! Who rests and why: asked earlier where it is lacked, left alone where it asked for that, and told with its reason.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use axum::response::IntoResponse;
use landfall_chain::{BlockSource, EndpointState, Read, SourceErrorKind};
use landfall_evm::EvmSource;
use serde_json::{Value, json};

use crate::mint::{self, Tx};
use crate::node::{self, Answer, Ledger, Live, Node, led_by_first, mainnet, source, takes_less_than, until};

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
            node.tell_the_truth();
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
        first.tell_the_truth();
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
            other.tell_the_truth();
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
    assert!(text.contains("retry in 299s") && text.contains("must be left alone for another 29"), "{text}");
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
    refuse(&first, "limited to 3 requests per second, retry in 299s");
    refuse(&second, "out of order");
    let text = source.tip().await.unwrap_err().to_string();
    assert!(!text.contains("checked by no other"), "{text}");
    let told: Vec<&str> = text.split("; ").collect();
    assert!(told.len() == 2 && told[0].contains(first.node.id()) && told[1].contains(second.node.id()), "{text}");
    assert!(told[0].contains("must be left alone for another 29") && told[1].contains("out of order"), "{text}");
}

/// A node that serves a request each 60 ms, and two at once; how many it has refused so far.
async fn limited() -> (Node, Arc<AtomicUsize>) {
    const EVERY: Duration = Duration::from_millis(60);
    let (refused, ledger) = (Arc::new(AtomicUsize::new(0)), Arc::new(ledger()));
    let (count, full_at) = (Arc::clone(&refused), Arc::new(Mutex::new(Instant::now())));
    let node = Node::start_raw(move |_, body| {
        let now = Instant::now();
        let mut full_at = full_at.lock().unwrap();
        let serves = *full_at <= now + EVERY;
        if serves {
            *full_at = (*full_at).max(now) + EVERY;
        } else {
            count.fetch_add(1, Ordering::Relaxed);
        }
        let ledger = Arc::clone(&ledger);
        async move {
            if !serves {
                return StatusCode::TOO_MANY_REQUESTS.into_response();
            }
            let reply = node::reply(&body, &|method: &str, params: &Value| ledger.answer(method, params));
            ([("content-type", "application/json")], reply).into_response()
        }
    })
    .await;
    (node, refused)
}

#[tokio::test]
async fn how_fast_an_endpoint_may_be_asked_is_learnt_and_its_refusals_stop_growing() {
    const READS: usize = 60;
    let (node, refused) = limited().await;
    let source = node.source(mainnet());
    let mut halves = Vec::new();
    for _ in 0..2 {
        let before = refused.load(Ordering::Relaxed);
        for _ in 0..READS {
            until("the block is read", async || match source.blocks(6..=6, Read::FULL).await {
                Ok(blocks) => blocks.len() == 1,
                Err(error) => {
                    assert_eq!(error.kind, SourceErrorKind::Transient, "{error}");
                    false
                }
            })
            .await;
        }
        halves.push(refused.load(Ordering::Relaxed) - before);
    }
    // Who learns nothing is refused at every third read or so. Other load makes us slower, and is refused less.
    assert!(halves[0] > 0 && halves[0] <= 15 && halves[1] <= 4, "{halves:?}");
}

#[tokio::test]
async fn another_healthy_endpoint_is_asked_rather_than_one_that_must_be_waited_for() {
    takes_less_than(Duration::from_millis(700), async || {
        let behind = || Live::start(ledger().up_to(19, Some(5)));
        let (first, second) = (behind().await, behind().await);
        let source = led_by_first(mainnet(), &[&first, &second]).await;
        refuse(&first, "rate limit exceeded");
        source.blocks(6..=6, Read::FULL).await.unwrap();
        first.tell_the_truth();
        until("the first is back, and leads", async || {
            let latest = source.tip().await.unwrap().latest;
            first.ledger.lock().unwrap().blocks = ledger().blocks;
            latest.number == 20
        })
        .await;
        first.node.take_requests();
        let begun = Instant::now();
        // Waited for each time, the first would take a second and a half.
        for _ in 0..30 {
            source.blocks(6..=6, Read::FULL).await.unwrap();
        }
        assert!(first.node.take_requests() > 0, "it leads: who need not wait for it asks it");
        begun.elapsed()
    })
    .await;
}
