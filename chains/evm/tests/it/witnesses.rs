//! What it means when endpoints that trace the same block agree, differ, or cannot say.

use landfall_chain::{BlockSource, Proof, SourceErrorKind, U256};
use serde_json::{Value, json};

use crate::mint::{self, Tx};
use crate::node::{Answer, Ledger, Node, hearing, led_by_first};
use crate::trace::{FLAT, FULL, LISTED, NESTED, address, frame, nested, traced, tracing};
use crate::tracers::{live, proof, reported, take_reads, tracer};

#[tokio::test]
async fn two_endpoints_that_report_the_same_are_two_witnesses() {
    for (one, other) in [(NESTED, NESTED), (NESTED, FLAT), (FLAT, NESTED)] {
        let (one, other) = (live(one, 5).await, live(other, 5).await);
        let source = led_by_first(traced(), &[&one, &other]).await;
        other.node.take_requests();
        assert_eq!(proof(&source, LISTED).await, Proof::OneEndpoint);
        assert_eq!(other.node.take_requests(), 0, "one is enough for a candidate");
        assert_eq!(proof(&source, FULL).await, Proof::TwoEndpoints);
    }
}

#[tokio::test]
async fn two_endpoints_that_differ_are_an_error_that_names_both_and_the_transaction() {
    let one = tracer(NESTED, 5).await;
    // Another amount, and none at all.
    for amount in [6, 0] {
        let other = tracer(NESTED, amount).await;
        let (ledger, ..) = reported(5);
        for nodes in [[&one, &other], [&other, &one]] {
            let source = hearing(traced(), &nodes).await;
            let error = source.blocks(5..=5, FULL).await.unwrap_err();
            assert_eq!(error.kind, SourceErrorKind::Transient);
            let (block, _) = &ledger.blocks[&5];
            let mut ids = [one.id(), other.id()];
            ids.sort_unstable();
            let expected = format!(
                "ETHEREUM_MAINNET: endpoints {} and {} tell different traces of transaction {} in block 5 ({})",
                ids[0],
                ids[1],
                block["transactions"][0]["hash"].as_str().unwrap(),
                block["hash"].as_str().unwrap(),
            );
            assert_eq!(error.to_string(), expected);
        }
    }
}

#[tokio::test]
async fn one_endpoint_that_differs_does_not_hold_up_what_two_others_agree_on() {
    for lie in [6, 0] {
        let (lying, one) = (live(NESTED, lie).await, live(NESTED, 5).await);
        let other = live(FLAT, 5).await;
        let source = led_by_first(traced(), &[&lying, &one, &other]).await;
        take_reads(&lying);
        let block = source.blocks(5..=5, FULL).await.unwrap().remove(0);
        assert_eq!((block.proof, block.transfers.len()), (Proof::TwoEndpoints, 1));
        assert_eq!(block.transfers[0].amount, U256::from(5));
        assert!(take_reads(&lying).1 > 0, "it was asked first");
        // Two that agree need no third.
        lying.lie(|method, _| (method == NESTED).then(|| Ok(reported(5).1)));
        let nodes = [&lying, &one, &other];
        nodes.iter().for_each(|node| drop(node.take_calls()));
        assert_eq!(proof(&source, FULL).await, Proof::TwoEndpoints);
        assert_eq!(nodes.iter().filter(|node| take_reads(node).1 > 0).count(), 2);
    }
}

#[tokio::test]
async fn of_three_endpoints_two_must_agree_on_each_block_not_the_same_two_on_all() {
    let txs = |nonce| vec![Tx { nonce, ..Tx::default() }];
    let ledger = Ledger::of(mint::chain(5, (0..3).map(txs).collect()));
    // Each of three errs in another block.
    let mut nodes = Vec::new();
    for wrong in 5..=7 {
        let known = ledger.clone();
        let answer = move |method: &str, params: &Value| -> Answer {
            let found = known.blocks.iter().find(|(_, (block, _))| method == NESTED && block["hash"] == params[0]);
            let Some((number, (block, _))) = found else { return known.answer(method, params) };
            let amount = if *number == wrong { 1 + wrong } else { 100 };
            let inner = frame("CALL", address(0xbb), address(0x0b), amount, vec![]);
            Ok(nested(block, &[frame("CALL", address(0xaa), address(0xbb), 0, vec![inner])]))
        };
        nodes.push(Node::start(answer).await);
    }
    let source = hearing(traced(), &[&nodes[0], &nodes[1], &nodes[2]]).await;
    let blocks = source.blocks(5..=7, FULL).await.unwrap();
    let reported: Vec<(Proof, U256)> = blocks.iter().map(|block| (block.proof, block.transfers[0].amount)).collect();
    assert_eq!(reported, vec![(Proof::TwoEndpoints, U256::from(100)); 3]);
    // Two of them agree on one block only; of the others nobody's word counts.
    let two = hearing(traced(), &[&nodes[0], &nodes[1]]).await;
    let error = two.blocks(5..=7, FULL).await.unwrap_err();
    assert!(error.to_string().contains("tell different traces"), "{error}");
    assert_eq!(two.blocks(7..=7, FULL).await.unwrap()[0].proof, Proof::TwoEndpoints);
}

#[tokio::test]
async fn honest_traces_differ_in_order_and_sender_and_agree_on_who_received_what_how_often() {
    let ledger = Ledger::of(mint::chain(5, vec![vec![Tx::default()]]));
    let block = ledger.blocks[&5].0.clone();
    let (from, to) = (address(0xbb), address(0x0b));
    let report = |calls| nested(&block, &[frame("CALL", address(0xaa), from, 0, calls)]);
    let pay = |sender, amount| frame("CALL", sender, to, amount, vec![]);
    let destroyed = |sender| frame("SELFDESTRUCT", sender, address(0x0c), 7, vec![]);
    let one = report(vec![pay(from, 5), pay(from, 6), pay(from, 5), destroyed(from)]);
    let alike = report(vec![destroyed(address(0xaa)), pay(from, 6), pay(from, 5), pay(from, 5)]);
    let once = report(vec![pay(from, 5), pay(from, 6), destroyed(from)]);
    let thrice = report(vec![pay(from, 5), pay(from, 5), pay(from, 5), pay(from, 6), destroyed(from)]);
    let node = async |traces: &Value| Node::start(tracing(ledger.clone(), NESTED, traces.clone())).await;
    let first = node(&one).await;
    let second = node(&alike).await;
    let block = hearing(traced(), &[&first, &second]).await.blocks(5..=5, FULL).await.unwrap().remove(0);
    assert_eq!((block.proof, block.transfers.len()), (Proof::TwoEndpoints, 4));
    for other in [once, thrice] {
        let second = node(&other).await;
        let error = hearing(traced(), &[&first, &second]).await.blocks(5..=5, FULL).await.unwrap_err();
        assert!(error.to_string().contains("tell different traces"), "{error}");
    }
}

#[tokio::test]
async fn of_two_differing_transactions_the_first_is_named() {
    // Both pay inside; the other endpoint leaves out what the first of them pays.
    let txs = vec![Tx::default(), Tx { nonce: 1, ..Tx::default() }];
    let ledger = Ledger::of(mint::chain(5, vec![txs]));
    let block = ledger.blocks[&5].0.clone();
    let root = |calls| frame("CALL", address(0xaa), address(0xbb), 0, calls);
    let paid = || vec![frame("CALL", address(0xbb), address(0x0b), 5, vec![])];
    let (whole, part) = (nested(&block, &[root(paid()), root(paid())]), nested(&block, &[root(vec![]), root(paid())]));
    let one = Node::start(tracing(ledger.clone(), NESTED, whole)).await;
    let other = Node::start(tracing(ledger, NESTED, part)).await;
    for nodes in [[&one, &other], [&other, &one]] {
        let error = hearing(traced(), &nodes).await.blocks(5..=5, FULL).await.unwrap_err();
        assert!(error.to_string().contains(block["transactions"][0]["hash"].as_str().unwrap()), "{error}");
    }
}

#[tokio::test]
async fn a_second_endpoint_that_cannot_say_is_no_witness_and_no_obstacle() {
    let (ledger, mut lie, _) = reported(5);
    lie[0]["result"]["from"] = json!(address(0x77));
    let lagging = |method: &str, params: &Value| -> Answer {
        match method {
            NESTED => Err((-32000, "header not found".to_owned())),
            _ => reported(5).0.answer(method, params),
        }
    };
    let others = [
        Node::start(lagging).await,
        Node::start(tracing(ledger, NESTED, lie)).await,
        tracer("neither", 5).await,
        Node::start(|_, _| Ok(json!("0x5"))).await,
    ];
    for other in &others {
        let one = tracer(NESTED, 5).await;
        let source = hearing(traced(), &[&one, other]).await;
        for _ in 0..5 {
            assert_eq!(proof(&source, FULL).await, Proof::OneEndpoint);
        }
    }
    // A third one is asked then.
    let (one, third) = (tracer(NESTED, 5).await, tracer(NESTED, 5).await);
    let source = hearing(traced(), &[&one, &others[0], &third]).await;
    assert_eq!(proof(&source, FULL).await, Proof::TwoEndpoints);
}

#[tokio::test]
async fn endpoints_that_differ_on_a_block_are_answered_in_turn_when_one_is_asked_alone() {
    let (one, other) = (live(NESTED, 5).await, live(NESTED, 6).await);
    let source = led_by_first(traced(), &[&one, &other]).await;
    let amount = async || source.blocks(5..=5, LISTED).await.unwrap().remove(0).transfers[0].amount;
    assert_eq!([amount().await, amount().await], [U256::from(5); 2], "who leads, while nobody asked both");
    assert!(source.blocks(5..=5, FULL).await.unwrap_err().is_disputed);
    let mut responses = [amount().await, amount().await];
    responses.sort_unstable();
    assert_eq!(responses, [U256::from(5), U256::from(6)]);
}
