//! What polls cost, what is kept between them, and nodes that lag behind one address.

use std::time::{Duration, Instant};

use landfall_chain::{BlockSource, Chain, EndpointState, Read, SourceErrorKind};
use landfall_cluster::{Fault, Ledger, Node, When};
use landfall_solana::{EndpointUrl, Options, SolanaSource, network};

use crate::sources::{at, settled, slots, two};

fn polled(nodes: &[&Node], poll: Duration) -> SolanaSource {
    let url = |node: &&Node| EndpointUrl::from(node.url().parse::<url::Url>().unwrap());
    let options = Options { poll, ..Options::default() };
    SolanaSource::at(&network(Chain::SolanaMainnet).unwrap(), nodes.iter().map(url).collect(), &options).unwrap()
}

fn latest_calls(node: &Node) -> u64 {
    node.calls("getLatestBlockhash", None)
}

#[tokio::test]
async fn what_was_reported_a_moment_ago_is_not_asked_again() {
    let node = Node::start(&Ledger::of(10..=16)).await;
    // So long that nothing is forgotten while this test runs.
    let source = polled(&[&node], Duration::from_secs(3_600));
    assert_eq!(source.tip().await.unwrap().latest, at(16));
    for _ in 0..20 {
        source.tip().await.unwrap();
    }
    let asked = latest_calls(&node);
    assert!(asked < 20, "looked at twenty times at once, it was asked {asked} times");
    // The word on what is final is an hour old at most; the newest block is asked for again after 0.8 s.
    node.ledger().grow(Vec::new());
    node.call_final(15);
    until(|| async { source.tip().await.unwrap().latest == at(17) }).await;
    assert_eq!(source.tip().await.unwrap().finalized, Some(at(10)));
}

#[tokio::test]
async fn what_is_final_is_asked_again_after_five_polls() {
    let (one, other) = (Node::start(&Ledger::of(10..=16)).await, Node::start(&Ledger::of(10..=16)).await);
    let source = polled(&[&one, &other], Duration::from_millis(40));
    source.tip().await.unwrap();
    one.call_final(15);
    other.call_final(14);
    until(|| async { source.tip().await.unwrap().finalized == Some(at(14)) }).await;
    other.call_final(16);
    until(|| async { source.tip().await.unwrap().finalized == Some(at(15)) }).await;
}

#[tokio::test]
async fn a_hash_that_two_must_agree_on_is_asked_once_for_a_while() {
    let (one, other) = (Node::start(&Ledger::of(10..=16)).await, Node::start(&Ledger::of(10..=16)).await);
    one.call_final(15);
    other.call_final(14);
    // They differ about slot 14, so it is wanted for as long as they do.
    other.ledger().amend(14, |block| block.branch = 1);
    let source = polled(&[&one, &other], Duration::from_secs(3_600));
    for _ in 0..20 {
        assert_eq!(source.tip().await.unwrap().finalized, None);
    }
    assert_eq!((one.calls("getBlock", Some(14)), other.calls("getBlock", Some(14))), (1, 0));
}

#[tokio::test]
async fn a_newest_block_of_a_moment_ago_is_no_word_on_what_is_final_now() {
    let ledger = Ledger::of(10..=16);
    let (one, other) = (Node::start(&ledger).await, Node::start(&ledger).await);
    // A newest block is kept for 375 ms, what is final for 1,975 ms.
    let source = polled(&[&one, &other], Duration::from_millis(400));
    let begun = Instant::now();
    source.tip().await.unwrap();
    tokio::time::sleep_until((begun + Duration::from_millis(1_700)).into()).await;
    assert_eq!(source.tip().await.unwrap().latest, at(16));
    ledger.roll_back_to(13);
    for _ in 14..=20 {
        ledger.grow(Vec::new());
    }
    ledger.finalize(18);
    until(|| async { source.tip().await.unwrap().finalized == Some(ledger.finalized()) }).await;
    assert_ne!(source.final_at(16).await.unwrap(), Some(at(16)), "it was taken back before it could be final");
}

#[tokio::test]
async fn a_newest_block_of_a_moment_ago_contradicts_no_final_one_of_now() {
    let ledger = Ledger::of(10..=16);
    let node = Node::start(&ledger).await;
    // A newest block is kept for 375 ms, what is final for 1,975 ms.
    let source = polled(&[&node], Duration::from_millis(400));
    let begun = Instant::now();
    source.tip().await.unwrap();
    tokio::time::sleep_until((begun + Duration::from_millis(1_900)).into()).await;
    assert_eq!(source.tip().await.unwrap().latest, at(16));
    ledger.roll_back_to(13);
    for _ in 14..=16 {
        ledger.grow(Vec::new());
    }
    ledger.finalize(16);
    assert_ne!(ledger.latest(), at(16));
    until(|| async {
        let tip = source.tip().await.unwrap();
        assert_eq!(
            source.endpoints().snapshot()[0].state,
            EndpointState::Healthy,
            "what it told before is out of date"
        );
        tip.finalized == Some(ledger.finalized()) && tip.latest == ledger.latest()
    })
    .await;
}

#[tokio::test]
async fn a_few_slots_up_to_the_newest_block_are_read_without_a_list() {
    let node = Node::start(&Ledger::of([10, 11, 12, 15, 16])).await;
    let source = polled(&[&node], Duration::ZERO);
    source.tip().await.unwrap();
    assert_eq!(slots(&source, 11, 16).await, [11, 12, 15, 16]);
    assert_eq!((node.calls("getBlocks", None), node.calls("getBlock", None)), (0, 4));
    // Further back, and up to another block, only a list reports where to look.
    assert_eq!(slots(&source, 11, 15).await, [11, 12, 15]);
    assert_eq!(node.calls("getBlocks", None), 1);
    assert_eq!(node.counts().last["getBlocks"][2]["minContextSlot"], 15, "a list of a node that is there");
}

#[tokio::test]
async fn a_list_of_slots_is_taken_of_a_node_that_has_reached_their_end() {
    let (ahead, other, source) = two().await;
    ahead.lag(6);
    assert_eq!(slots(&source, 10, 15).await, [10, 11, 12, 13, 14, 15], "the other one lists them all");
    assert_eq!((ahead.calls("getBlocks", None), other.calls("getBlocks", None)), (1, 1));
    assert_eq!(source.endpoints().snapshot()[0].state, EndpointState::Healthy, "it is only behind");
    other.lag(6);
    let error = source.blocks(10..=15, Read::FULL).await.unwrap_err();
    assert!(error.to_string().contains("does not list the slots up to 15 yet"), "{error}");
    assert_eq!(error.kind, SourceErrorKind::Transient);
}

#[tokio::test]
async fn a_list_is_asked_of_each_endpoint_as_far_as_it_has_come_itself() {
    for fault in [Fault::HeadAhead(1_000), Fault::FinalAhead] {
        let ledger = Ledger::of(10..=16);
        let (ahead, other) = (Node::start(&ledger).await, Node::start(&ledger).await);
        ahead.misbehave(fault, When::Always);
        let source = polled(&[&ahead, &other], Duration::ZERO);
        assert!(settled(&source).await.latest.number > 16, "it leads, and nobody has what it tells of");
        assert_eq!(slots(&source, 11, 19).await, [11, 12, 13, 14, 15, 16]);
        assert_eq!(other.counts().last["getBlocks"][2]["minContextSlot"], 16);
        let error = source.blocks(17..=19, Read::FULL).await.unwrap_err();
        assert!(error.to_string().contains("does not list the slots up to 19 yet"), "{error}");
    }
}

#[tokio::test]
async fn what_is_missing_below_the_newest_block_ends_the_range_with_and_without_a_list() {
    let node = Node::start(&Ledger::of(10..=16)).await;
    let source = polled(&[&node], Duration::ZERO);
    source.tip().await.unwrap();
    node.lose([13]);
    assert_eq!(slots(&source, 11, 16).await, [11, 12]);
    let error = source.blocks(13..=16, Read::FULL).await.unwrap_err();
    assert!(error.to_string().contains("does not tell block 13"), "{error}");
}

#[tokio::test]
async fn a_node_that_lags_behind_the_same_address_takes_nothing_back() {
    let node = Node::start(&Ledger::of(10..=16)).await;
    let source = polled(&[&node], Duration::from_secs(5));
    assert_eq!(source.tip().await.unwrap().latest, at(16));
    node.lag(4);
    let asked = node.calls("getLatestBlockhash", None);
    until(|| async {
        assert_eq!(source.tip().await.unwrap().latest, at(16), "its word of a moment ago stands");
        node.calls("getLatestBlockhash", None) > asked
    })
    .await;
    assert_eq!(source.endpoints().snapshot()[0].state, EndpointState::Healthy);
    node.lag(0);
    node.ledger().grow(Vec::new());
    until(|| async { source.tip().await.unwrap().latest == at(17) }).await;
}

#[tokio::test]
async fn a_node_behind_its_own_word_is_asked_no_oftener_than_another() {
    let node = Node::start(&Ledger::of(10..=16)).await;
    let source = polled(&[&node], Duration::from_secs(5));
    source.tip().await.unwrap();
    node.lag(4);
    let asked = latest_calls(&node);
    until(|| async {
        source.tip().await.unwrap();
        latest_calls(&node) > asked
    })
    .await;
    let asked = latest_calls(&node);
    for _ in 0..20 {
        assert_eq!(source.tip().await.unwrap().latest, at(16));
    }
    let more = latest_calls(&node) - asked;
    assert!(more < 10, "looked at twenty times at once, it was asked {more} times");
}

async fn until<F: Future<Output = bool>>(done: impl Fn() -> F) {
    let is_done = async {
        while !done().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), is_done).await.unwrap();
}
