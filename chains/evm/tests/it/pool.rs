//! Several endpoints: the best head counts, nobody waits for a slow one, a read that fails is tried elsewhere, and who
//! is left out comes back.

use std::time::{Duration, Instant};

use landfall_chain::{BlockSource, EndpointState, Read, SourceErrorKind};
use landfall_evm::EvmSource;
use serde_json::{Value, json};

use crate::mint::{self, Tx};
use crate::node::{Answer, Ledger, Live, hear_all, led_by_first, mainnet, source, takes_less_than, until};

/// Blocks 1 to 20 with one payment each; `fork` makes other blocks of those from `from` on.
fn chain(from: usize, fork: u64) -> Ledger {
    let nonce = |index: usize| if index + 1 >= from { fork * 1_000 } else { 0 } + u64::try_from(index).unwrap();
    let paying = |index| vec![Tx { nonce: nonce(index), value: 1, ..Tx::default() }];
    Ledger { finalized: Some(5), ..Ledger::of(mint::chain(1, (0..20).map(paying).collect())) }
}

fn ledger() -> Ledger {
    chain(1, 0)
}

fn states(source: &EvmSource) -> Vec<EndpointState> {
    source.endpoints().snapshot().into_iter().map(|status| status.state).collect()
}

fn reason(source: &EvmSource, index: usize) -> String {
    source.endpoints().snapshot().remove(index).reason
}

async fn two(first: Ledger, second: Ledger) -> (Live, Live, EvmSource) {
    let (first, second) = (Live::start(first).await, Live::start(second).await);
    let source = source(mainnet(), &[&first.node, &second.node]);
    (first, second, source)
}

/// The same, of which the first is asked first.
async fn led(first: Ledger, second: Ledger) -> (Live, Live, EvmSource) {
    let (first, second) = (Live::start(first).await, Live::start(second).await);
    let source = led_by_first(mainnet(), &[&first, &second]).await;
    (first, second, source)
}

async fn latest(source: &EvmSource) -> u64 {
    source.tip().await.unwrap().latest.number
}

/// Receipts that are not those of the block.
fn forged(ledger: &Ledger) -> impl Fn(&str, &Value) -> Option<Answer> + Send + 'static {
    let ledger = ledger.clone();
    move |method, params| {
        let mut answer = (method == "eth_getBlockReceipts").then(|| ledger.answer(method, params).unwrap())?;
        answer[0]["cumulativeGasUsed"] = json!("0x1");
        Some(Ok(answer))
    }
}

#[tokio::test]
async fn the_highest_head_counts_and_one_that_lags_takes_nothing_back() {
    let (ahead, lagging, source) = two(ledger().up_to(10, Some(5)), ledger().up_to(8, Some(5))).await;
    source.check().await.unwrap();
    assert_eq!(latest(&source).await, 10);
    for head in [9, 10, 7] {
        *lagging.ledger.lock().unwrap() = ledger().up_to(head, Some(5));
        assert_eq!(latest(&source).await, 10);
    }
    *lagging.ledger.lock().unwrap() = ledger().up_to(12, Some(5));
    until("the lagging one's head", async || latest(&source).await == 12).await;
    *ahead.ledger.lock().unwrap() = ledger().up_to(15, Some(5));
    until("the other's head", async || latest(&source).await == 15).await;
    let reported: Vec<_> = source.endpoints().snapshot().into_iter().map(|status| status.latest).collect();
    assert_eq!(reported, [Some(15), Some(12)], "each has its own head");
}

#[tokio::test]
async fn a_head_that_goes_back_on_the_only_endpoint_is_reported_as_it_is() {
    let node = Live::start(ledger().up_to(10, Some(5))).await;
    let source = node.node.source(mainnet());
    assert_eq!(latest(&source).await, 10);
    *node.ledger.lock().unwrap() = ledger().up_to(8, Some(3));
    let tip = source.tip().await.unwrap();
    assert_eq!(tip.latest, ledger().reference(8));
    assert_eq!(tip.finalized, Some(ledger().reference(5)), "what was final stays final");
}

#[tokio::test]
async fn blocks_are_read_from_an_endpoint_that_has_them() {
    let (ahead, lagging, source) = two(ledger().up_to(10, Some(5)), ledger().up_to(8, Some(5))).await;
    ahead.set_delay_ms(30);
    source.check().await.unwrap();
    assert_eq!(latest(&source).await, 10);
    // The last poll of the one that lags is over.
    hear_all(&source).await;
    lagging.take_calls();
    assert_eq!(source.blocks(9..=10, Read::FULL).await.unwrap().len(), 2);
    assert_eq!(source.headers(1..=10).await.unwrap().len(), 10);
    assert_eq!(lagging.take_calls(), []);
}

#[tokio::test]
async fn a_read_that_fails_is_tried_at_once_elsewhere_and_the_caller_sees_no_error() {
    let (first, second, source) = led(ledger(), ledger()).await;
    latest(&source).await;
    for message in ["oops", "rate limit exceeded", "header not found", "missing trie node"] {
        first.lie(move |method, _| (method == "eth_getBlockReceipts").then(|| Err((-32000, message.to_owned()))));
        until("the first is asked again", async || {
            latest(&source).await;
            states(&source)[0] == EndpointState::Healthy
        })
        .await;
        assert_eq!(source.blocks(1..=3, Read::FULL).await.unwrap().len(), 3, "{message}");
        if states(&source)[0] == EndpointState::Failing {
            assert!(reason(&source, 0).contains(message), "{}", reason(&source, 0));
        }
    }
    assert!(second.take_calls().iter().any(|(method, _)| method == "eth_getBlockReceipts"));
}

#[tokio::test]
async fn an_endpoint_that_shows_less_than_its_head_says_is_left_for_another() {
    let (first, _second, source) = led(ledger(), ledger().up_to(18, Some(5))).await;
    first.lie(|method, params| (method == "eth_getBlockByNumber" && params[0] == "0x9").then_some(Ok(Value::Null)));
    assert_eq!(source.blocks(5..=12, Read::FULL).await.unwrap().len(), 8);
    assert_eq!(states(&source), [EndpointState::Failing, EndpointState::Healthy]);
    let expected = "shows 4 of the blocks 5 to 12, although its newest block is 20";
    assert!(reason(&source, 0).contains(expected), "{}", reason(&source, 0));
    // Where it has rested by now it is polled, and is not to come back.
    first.lie(|_, _| Some(Err((-32000, "out of order".to_owned()))));
    assert_eq!(latest(&source).await, 18, "nor does its head count while it rests");
}

#[tokio::test]
async fn a_slow_endpoint_delays_nobody_and_its_word_still_counts() {
    let chain = ledger();
    let (fast, slow, source) = two(chain.up_to(10, Some(5)), chain.up_to(12, Some(5))).await;
    source.check().await.unwrap();
    slow.set_delay_ms(900);
    latest(&source).await;
    takes_less_than(Duration::from_millis(400), async || {
        let begun = Instant::now();
        for head in 13..=17 {
            *fast.ledger.lock().unwrap() = chain.up_to(head, Some(5));
            // A machine that is busy with else for so long spoils this try.
            if latest(&source).await != head {
                return Duration::MAX;
            }
        }
        begun.elapsed()
    })
    .await;
    *fast.ledger.lock().unwrap() = chain.up_to(17, Some(9));
    *slow.ledger.lock().unwrap() = chain.up_to(20, Some(9));
    until("the slow one's head", async || latest(&source).await == 20).await;
    until("agreement", async || source.tip().await.unwrap().finalized == Some(chain.reference(9))).await;
    let status = source.endpoints().snapshot().remove(1);
    assert!(status.latency_ms.unwrap() > 100 && status.state == EndpointState::Healthy, "{status:?}");
}

#[tokio::test]
async fn a_failing_endpoint_is_asked_again_only_after_growing_pauses() {
    let (good, bad, source) = two(ledger(), ledger()).await;
    bad.lie(|_, _| Some(Err((-32000, "out of order".to_owned()))));
    let (begun, mut asked, mut polls) = (Instant::now(), 0, 0);
    until("it is asked three times", async || {
        latest(&source).await;
        (asked, polls) = (asked + bad.node.take_requests(), polls + good.node.take_requests());
        begun.elapsed() > Duration::from_millis(1_500) && asked >= 3 && polls > 50
    })
    .await;
    // At once, then after pauses of 200 ms, 400 ms, .., each a fifth shorter at the least; one more may be under way.
    let pauses = u32::try_from(asked - 2).unwrap();
    let least = Duration::from_millis(160) * (2_u32.pow(pauses) - 1);
    assert!(begun.elapsed() >= least, "{asked} of {polls} in {:?}", begun.elapsed());
    bad.report_the_truth();
    until("it is back", async || {
        latest(&source).await;
        states(&source)[1] == EndpointState::Healthy
    })
    .await;
}

#[tokio::test]
async fn the_only_endpoint_is_asked_again_at_once() {
    let node = Live::start(ledger()).await;
    let source = node.node.source(mainnet());
    node.lie(|_, _| Some(Err((-32000, "out of order".to_owned()))));
    let error = source.tip().await.unwrap_err();
    assert_eq!(error.kind, SourceErrorKind::Transient);
    assert!(error.to_string().contains("out of order"), "{error}");
    node.report_the_truth();
    assert_eq!(latest(&source).await, 20);
    assert_eq!(states(&source), [EndpointState::Healthy]);
}

#[tokio::test]
async fn a_failed_proof_quarantines_until_a_proved_header_of_the_agreed_chain() {
    let (liar, _honest, source) = led(ledger(), ledger()).await;
    // Where two must agree, the liar is lacked and looked at earlier.
    source.set_agree(1).unwrap();
    assert_eq!(source.tip().await.unwrap().finalized, Some(ledger().reference(5)));
    liar.lie(forged(&ledger()));
    let begun = Instant::now();
    assert_eq!(source.blocks(6..=6, Read::FULL).await.unwrap().len(), 1);
    assert_eq!(states(&source), [EndpointState::Quarantined, EndpointState::Healthy]);
    let expected = "the receipts do not make up the header's receiptsRoot";
    assert!(reason(&source, 0).contains(expected), "{}", reason(&source, 0));
    // However long the machine stands still, it is convicted once.
    liar.lie(|_, _| Some(Err((-32000, "out of order".to_owned()))));
    liar.take_calls();
    for _ in 0..3 {
        latest(&source).await;
        source.blocks(6..=6, Read::FULL).await.unwrap();
    }
    let asked = liar.take_calls();
    // A quarantine is 800 ms at the least.
    let meanwhile = begun.elapsed() < Duration::from_millis(800);
    assert!(!meanwhile || asked.is_empty(), "nothing is asked of it meanwhile: {asked:?}");

    // On another fork below what was agreed on it stays out, whatever it proves, where what is final is agreed on.
    source.set_agree(2).unwrap();
    *liar.ledger.lock().unwrap() = chain(3, 7);
    liar.report_the_truth();
    until("it is looked at", async || {
        latest(&source).await;
        !liar.take_calls().is_empty()
    })
    .await;
    latest(&source).await;
    assert_eq!(states(&source)[0], EndpointState::Quarantined);
    *liar.ledger.lock().unwrap() = ledger();
    until("it is back", async || {
        latest(&source).await;
        states(&source)[0] == EndpointState::Healthy
    })
    .await;
    let reason = reason(&source, 0);
    assert!(
        reason.starts_with("back from quarantine with a proved header and the right chain id; it was: "),
        "{reason}"
    );
    assert!(reason.contains(expected), "{reason}");
}

#[tokio::test]
async fn when_all_are_in_quarantine_that_may_pass_and_all_reasons_are_reported() {
    let (first, second, source) = two(ledger(), ledger()).await;
    latest(&source).await;
    first.lie(forged(&ledger()));
    second.lie(forged(&ledger()));
    source.blocks(6..=6, Read::FULL).await.unwrap_err();
    for node in [&first, &second] {
        node.lie(|_, _| Some(Err((-32000, "down".to_owned()))));
    }
    let error = source.tip().await.unwrap_err();
    assert_eq!(error.kind, SourceErrorKind::Transient);
    let text = error.to_string();
    assert!(text.contains(first.node.id()) && text.contains(second.node.id()), "{text}");
    first.report_the_truth();
    until("one is back", async || source.tip().await.is_ok()).await;
}

#[tokio::test]
async fn only_when_all_serve_another_chain_a_person_must_act() {
    let wrong = || Ledger { chain_id: 5, ..ledger() };
    let (_a, second, source) = two(wrong(), wrong()).await;
    assert_eq!(source.tip().await.unwrap_err().kind, SourceErrorKind::Permanent);
    *second.ledger.lock().unwrap() = ledger();
    until("the second is moved to the right chain", async || source.tip().await.is_ok()).await;
    assert_eq!(states(&source), [EndpointState::Quarantined, EndpointState::Healthy]);
}

/// A transaction of a type of the future in block 7.
fn newer(ledger: &Ledger) -> impl Fn(&str, &Value) -> Option<Answer> + Send + 'static {
    let ledger = ledger.clone();
    move |method, params| {
        let is_block = method == "eth_getBlockByNumber" && params[0] == "0x7" && params[1] == true;
        let mut answer = is_block.then(|| ledger.answer(method, params).unwrap())?;
        answer["transactions"][0]["type"] = json!("0x63");
        Some(Ok(answer))
    }
}

#[tokio::test]
async fn that_an_upgrade_is_needed_counts_only_when_every_endpoint_says_so() {
    let (first, second, source) = led(ledger(), ledger()).await;
    latest(&source).await;
    first.lie(newer(&ledger()));
    assert_eq!(source.blocks(7..=7, Read::FULL).await.unwrap().len(), 1);
    assert_eq!(states(&source), [EndpointState::Failing, EndpointState::Healthy]);
    assert!(reason(&source, 0).contains("no other endpoint says so"), "{}", reason(&source, 0));
    // The other cannot be asked: still one word alone.
    second.lie(|_, _| Some(Err((-32000, "down".to_owned()))));
    for _ in 0..3 {
        let error = source.blocks(7..=7, Read::FULL).await.unwrap_err();
        assert_eq!(error.kind, SourceErrorKind::Transient, "{error}");
    }
    second.lie(newer(&ledger()));
    until("both are asked again", async || {
        latest(&source).await;
        states(&source) == [EndpointState::Healthy; 2]
    })
    .await;
    let error = source.blocks(7..=7, Read::FULL).await.unwrap_err();
    assert_eq!(error.kind, SourceErrorKind::Permanent, "{error}");
    assert!(error.to_string().contains("an upgrade is needed"), "{error}");
}

#[tokio::test]
async fn who_has_not_reached_a_block_does_not_refute_what_another_shows_in_it() {
    let (first, _second, source) = led(ledger(), ledger().up_to(6, Some(5))).await;
    latest(&source).await;
    first.lie(newer(&ledger()));
    assert_eq!(source.blocks(5..=7, Read::FULL).await.unwrap().len(), 2, "as far as the second has them");
    assert_eq!(states(&source), [EndpointState::Healthy; 2]);
}

#[tokio::test]
async fn a_method_that_is_not_served_is_remembered() {
    let (first, _second, source) = led(ledger(), ledger()).await;
    first.lie(|method, _| {
        let missing = || Err((-32601, "the method eth_getBlockReceipts does not exist/is not available".to_owned()));
        (method == "eth_getBlockReceipts").then(missing)
    });
    latest(&source).await;
    assert_eq!(source.blocks(6..=6, Read::FULL).await.unwrap().len(), 1);
    until("it is healthy again", async || {
        latest(&source).await;
        states(&source)[0] == EndpointState::Healthy
    })
    .await;
    first.take_calls();
    assert_eq!(source.blocks(6..=6, Read::FULL).await.unwrap().len(), 1);
    assert_eq!(first.take_calls(), [], "it leads, but is not asked for what it does not serve");
}

#[tokio::test]
async fn headers_come_from_whose_tip_was_reported_so_that_a_fork_is_seen_whole() {
    let (stale, moved, source) = two(ledger().up_to(10, Some(5)), ledger().up_to(9, Some(5))).await;
    source.check().await.unwrap();
    let tip = source.tip().await.unwrap();
    assert_eq!(tip.latest, ledger().reference(10));
    let fork = chain(9, 7);
    *moved.ledger.lock().unwrap() = fork.up_to(12, Some(5));
    until("the fork's head", async || source.tip().await.unwrap().latest == fork.reference(12)).await;
    let headers = source.headers(8..=10).await.unwrap();
    let numbers: Vec<_> = headers.iter().map(|header| header.block).collect();
    assert_eq!(numbers, [8, 9, 10].map(|number| fork.reference(number)));
    drop(stale);
}
