//! What is final: two endpoints must show it, however one of them lags, stalls or lies.

use std::time::Instant;

use landfall_chain::{BlockSource, EndpointState};
use landfall_cluster::{Ledger, Node};

use crate::sources::{at, settled, source};

#[tokio::test]
async fn a_second_endpoint_that_lags_holds_up_what_is_final_and_nothing_else() {
    let (one, behind) = (Node::start(&Ledger::of(10..=30)).await, Node::start(&Ledger::of(10..=18)).await);
    one.call_final(24);
    behind.call_final(12);
    let source = source(&[&one, &behind]);
    let tip = settled(&source).await;
    assert_eq!((tip.latest, tip.finalized), (at(30), Some(at(12))));
    assert_eq!(source.final_at(13).await.unwrap(), None, "one alone calls it final");
    behind.show(&Ledger::of(10..=29));
    behind.call_final(22);
    assert_eq!(settled(&source).await.finalized, Some(at(22)));
}

#[tokio::test]
async fn finality_that_stalls_at_one_endpoint_stalls_and_is_not_taken_from_the_other() {
    let (one, stalls) = (Node::start(&Ledger::of(10..=30)).await, Node::start(&Ledger::of(10..=30)).await);
    one.call_final(12);
    stalls.call_final(12);
    let source = source(&[&one, &stalls]);
    assert_eq!(settled(&source).await.finalized, Some(at(12)));
    for finalized in [20, 25, 30] {
        one.call_final(finalized);
        assert_eq!(settled(&source).await.finalized, Some(at(12)));
    }
    source.endpoints().override_agree(Some(1));
    assert_eq!(settled(&source).await.finalized, Some(at(30)), "a person's word");
}

#[tokio::test]
async fn one_endpoint_that_calls_too_much_final_or_another_branch_is_not_followed() {
    let (honest, liar) = (Node::start(&Ledger::of(10..=30)).await, Node::start(&Ledger::of(10..=30)).await);
    honest.call_final(12);
    liar.call_final(30);
    let source = source(&[&honest, &liar]);
    assert_eq!(settled(&source).await.finalized, Some(at(12)));
    // Its final blocks are of another branch now, and higher than all others.
    liar.show(&Ledger::of(10..=40).forked_at(20));
    honest.call_final(24);
    liar.call_final(40);
    let tip = settled(&source).await;
    assert!(tip.finalized.is_some_and(|finalized| finalized.number < 20), "{tip:?}");
    assert_eq!(source.final_at(24).await.unwrap(), None, "they differ on it");
}

#[tokio::test]
async fn two_that_agree_put_a_third_out_that_calls_another_branch_final() {
    let mut nodes = Vec::new();
    for _ in 0..2 {
        nodes.push(Node::start(&Ledger::of(10..=30)).await);
    }
    nodes.push(Node::start(&Ledger::of(10..=40).forked_at(20)).await);
    for (node, finalized) in nodes.iter().zip([24, 24, 38]) {
        node.call_final(finalized);
    }
    let source = source(&nodes.iter().collect::<Vec<_>>());
    source.check().await.unwrap();
    let tip = settled(&source).await;
    assert_eq!(tip.finalized, Some(at(24)));
    let liar = source.endpoints().snapshot().remove(2);
    assert_eq!(liar.state, EndpointState::Quarantined, "{}", liar.reason);
    assert_eq!(settled(&source).await.latest, at(30), "its newer blocks count no longer");
}

#[tokio::test]
async fn a_third_that_leaves_the_branch_later_is_put_out_by_the_next_block_that_two_agree_on() {
    let mut nodes = Vec::new();
    for _ in 0..3 {
        nodes.push(Node::start(&Ledger::of(10..=30)).await);
    }
    nodes.iter().for_each(|node| node.call_final(12));
    let source = source(&nodes.iter().collect::<Vec<_>>());
    source.check().await.unwrap();
    assert_eq!(settled(&source).await.finalized, Some(at(12)));
    settled(&source).await;
    // It calls nothing final there.
    nodes[2].show(&Ledger::of(10..=30).forked_at(20));
    nodes[2].call_final(12);
    nodes[..2].iter().for_each(|node| node.call_final(24));
    assert_eq!(settled(&source).await.finalized, Some(at(24)));
    settled(&source).await;
    let third = source.endpoints().snapshot().remove(2);
    assert_eq!(third.state, EndpointState::Quarantined, "{}", third.reason);
}

#[tokio::test]
async fn each_endpoint_shows_a_block_that_was_agreed_on_once() {
    let mut nodes = Vec::new();
    for _ in 0..3 {
        nodes.push(Node::start(&Ledger::of(10..=30)).await);
    }
    for (node, finalized) in nodes.iter().zip([24, 23, 22]) {
        node.call_final(finalized);
    }
    let source = source(&nodes.iter().collect::<Vec<_>>());
    let begun = Instant::now();
    source.check().await.unwrap();
    assert_eq!(settled(&source).await.finalized, Some(at(23)));
    for _ in 0..10 {
        settled(&source).await;
    }
    let [first, second, third] = [0, 1, 2].map(|node: usize| nodes[node].calls("getBlock", Some(23)));
    // What was shown counts for 15 s: a machine that took longer has it shown again.
    let most = 1 + begun.elapsed().as_secs() / 15;
    assert!([first, third].iter().all(|shown| (1..=most).contains(shown)), "{first} and {third}, not {most}");
    assert_eq!(second, 0, "it names it by itself");
}
