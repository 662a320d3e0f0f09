//! What is final: by each rule of the networks, with one endpoint and with several that lag, lie or stand on a fork.

use std::time::{Duration, Instant};

use landfall_chain::{
    AssetId, BlockRef, BlockSource, Chain, EndpointState, Fate, Finality, FinalityRule, Network, SourceErrorKind, Tag,
    Tier, TxId, TxLife, TxRef, U256,
};
use landfall_evm::{EvmSource, network};
use serde_json::{Value, json};

use crate::mint::{self, Tx};
use crate::node::{Answer, Ledger, Live, chain_id, hear_all, mainnet, settled, source};

/// How long a tip waits for others behind the first answer.
const GRACE: Duration = Duration::from_millis(300);

/// Blocks 1 to 40; other ones from `from` on.
fn fork(from: u64) -> Ledger {
    let nonce = |number: u64| if number >= from { 1_000 + number } else { number };
    let paying = |number| vec![Tx { nonce: nonce(number), value: 1, ..Tx::default() }];
    Ledger::of(mint::chain(1, (1..=40).map(paying).collect()))
}

fn ledger(latest: u64, finalized: u64) -> Ledger {
    fork(1_000).up_to(latest, Some(finalized))
}

fn with(finality: impl Into<Finality>) -> Network {
    Network { finality: finality.into(), ..mainnet() }
}

async fn pair(network: Network, first: Ledger, second: Ledger) -> (Live, Live, EvmSource) {
    let (first, second) = (Live::start(first).await, Live::start(second).await);
    let source = source(network, &[&first.node, &second.node]);
    (first, second, source)
}

fn number(block: Option<BlockRef>) -> Option<u64> {
    block.map(|block| block.number)
}

#[tokio::test]
async fn two_endpoints_agree_on_what_both_call_final() {
    let (_a, second, source) = pair(mainnet(), ledger(30, 20), ledger(30, 20)).await;
    let tip = settled(&source).await;
    assert_eq!((tip.finalized, tip.waiting), (Some(ledger(30, 20).reference(20)), None));
    *second.ledger.lock().unwrap() = ledger(31, 25);
    assert_eq!(number(settled(&source).await.finalized), Some(20), "the first does not call it final yet");
}

#[tokio::test]
async fn an_endpoint_that_stands_still_is_named_where_nothing_is_final_without_it() {
    let (first, frozen, source) = pair(mainnet(), ledger(30, 20), ledger(30, 20)).await;
    assert_eq!(settled(&source).await.waiting, None);
    let mut reported = Vec::new();
    for (latest, finalized) in [(33, 23), (36, 26), (40, 30)] {
        *first.ledger.lock().unwrap() = ledger(latest, finalized);
        let tip = settled(&source).await;
        assert_eq!((tip.latest.number, number(tip.finalized)), (latest, Some(20)));
        reported.push(tip.waiting.unwrap());
    }
    let (agreed, id) = (ledger(30, 20).reference(20), frozen.node.id());
    let expected = format!("1 of the 2 endpoints that must agree call a newer block final than {agreed}: not {id}");
    assert_eq!(reported, [&*expected; 3]);
    assert_eq!(source.endpoints().snapshot()[1].state, EndpointState::Healthy);
    *frozen.ledger.lock().unwrap() = ledger(40, 30);
    let tip = settled(&source).await;
    assert_eq!((number(tip.finalized), tip.waiting), (Some(30), None));
}

#[tokio::test]
async fn an_endpoint_that_calls_a_block_final_and_never_shows_it_is_named() {
    let answers: [fn() -> Answer; 2] = [|| Ok(Value::Null), || Err((-32_000, "header not found".to_owned()))];
    for answer in answers {
        let (first, hiding, source) = pair(mainnet(), ledger(30, 20), ledger(30, 20)).await;
        assert_eq!(settled(&source).await.waiting, None);
        *first.ledger.lock().unwrap() = ledger(36, 26);
        *hiding.ledger.lock().unwrap() = ledger(36, 30);
        hiding.lie(move |_, params| (params[0] == "0x1a").then(answer));
        let expected = format!(
            "1 of the 2 endpoints that must agree show block 26, which they call final: not {}",
            hiding.node.id()
        );
        for _ in 0..2 {
            let tip = settled(&source).await;
            assert_eq!((number(tip.finalized), tip.waiting), (Some(20), Some(expected.clone())));
        }
        hiding.report_the_truth();
        assert_eq!(number(settled(&source).await.finalized), Some(26));
    }
}

#[tokio::test]
async fn where_they_differ_the_lower_counts_once_both_show_it() {
    let (_a, second, source) = pair(mainnet(), ledger(30, 20), ledger(30, 12)).await;
    let (both, begun) = (Some(ledger(30, 20).reference(12)), Instant::now());
    let first = source.tip().await.unwrap().finalized;
    // At once, unless the machine stood still and one was not heard.
    assert!(first == both || begun.elapsed() >= GRACE, "{first:?}");
    assert_eq!(settled(&source).await.finalized, both);
    *second.ledger.lock().unwrap() = ledger(30, 18);
    assert_eq!(number(settled(&source).await.finalized), Some(18));
    *second.ledger.lock().unwrap() = ledger(30, 10);
    assert_eq!(number(settled(&source).await.finalized), Some(18), "never a lower one");
}

#[tokio::test]
async fn what_one_alone_calls_final_is_not() {
    let (_a, _b, source) = pair(mainnet(), ledger(40, 40), ledger(40, 10)).await;
    let tip = settled(&source).await;
    assert_eq!((tip.latest.number, number(tip.finalized)), (40, Some(10)));
}

#[tokio::test]
async fn a_fork_between_two_stops_finality_and_says_so() {
    let (first, second, source) = pair(mainnet(), ledger(30, 10), ledger(30, 10)).await;
    assert_eq!(number(settled(&source).await.finalized), Some(10));
    *first.ledger.lock().unwrap() = fork(15).up_to(30, Some(20));
    *second.ledger.lock().unwrap() = ledger(30, 20);
    let tip = settled(&source).await;
    assert_eq!(number(tip.finalized), Some(10));
    let waiting = tip.waiting.unwrap();
    assert!(waiting.starts_with("1 of 2 endpoints agree on block 20, and 2 must: "), "{waiting}");
    assert!(waiting.contains(first.node.id()) && waiting.contains(second.node.id()), "{waiting}");
    *first.ledger.lock().unwrap() = ledger(30, 20);
    let tip = settled(&source).await;
    assert_eq!((tip.finalized, tip.waiting), (Some(ledger(30, 20).reference(20)), None));
}

#[tokio::test]
async fn two_that_agree_put_a_third_on_another_fork_out() {
    let (a, b, c) =
        (Live::start(ledger(30, 10)).await, Live::start(ledger(30, 10)).await, fork(15).up_to(40, Some(20)));
    let c = Live::start(c).await;
    let source = source(mainnet(), &[&a.node, &b.node, &c.node]);
    source.check().await.unwrap();
    for node in [&a, &b] {
        *node.ledger.lock().unwrap() = ledger(30, 20);
    }
    let tip = settled(&source).await;
    assert_eq!(tip.finalized, Some(ledger(30, 20).reference(20)));
    let status = source.endpoints().snapshot().remove(2);
    assert_eq!(status.state, EndpointState::Quarantined);
    assert!(
        status.reason.contains("shows 20 (0x") && status.reason.contains("but others agree on 20 (0x"),
        "{status:?}"
    );
    assert_eq!(source.tip().await.unwrap().latest.number, 30, "its newer blocks count no longer");
}

#[tokio::test]
async fn an_endpoint_on_a_dead_fork_with_the_highest_head_is_put_out_though_it_calls_nothing_final_there() {
    // It stands before the fork with what it calls final, and its own blocks go on.
    let dead = fork(15).up_to(40, Some(10));
    let (a, b) = (Live::start(ledger(30, 20)).await, Live::start(ledger(30, 20)).await);
    let dead = Live::start(dead).await;
    let source = source(mainnet(), &[&dead.node, &a.node, &b.node]);
    source.check().await.unwrap();
    let tip = settled(&source).await;
    assert_eq!((tip.latest, tip.finalized), (ledger(30, 20).reference(30), Some(ledger(30, 20).reference(20))));
    assert_eq!(source.endpoints().snapshot().remove(0).state, EndpointState::Quarantined);
}

#[tokio::test]
async fn while_two_endpoints_differ_about_a_block_who_leads_goes_on_until_the_other_is_well_ahead() {
    let (first, second, source) = pair(mainnet(), ledger(30, 10), ledger(29, 10)).await;
    assert_eq!(settled(&source).await.latest, ledger(30, 10).reference(30));
    *second.ledger.lock().unwrap() = fork(25).up_to(31, Some(10));
    // Who leads must not be the late one: where they differ, that loses it the lead.
    second.set_delay_ms(30);
    let tip = settled(&source).await;
    assert_eq!(tip.latest, ledger(30, 10).reference(30), "its branch is one longer, and may be dead");
    let forked = tip.forked.unwrap();
    assert!(forked.starts_with("endpoints follow different branches: of block 30, "), "{forked}");
    assert!(forked.contains(first.node.id()) && forked.contains(second.node.id()), "{forked}");
    let held = first.hold().await;
    assert_eq!(source.tip().await.unwrap().latest, fork(25).reference(31), "who leads is silent, and said that before");
    drop(held);
    assert_eq!(settled(&source).await.latest, fork(25).reference(31), "who leads now goes on to lead");
    *first.ledger.lock().unwrap() = ledger(31, 10);
    *second.ledger.lock().unwrap() = fork(25).up_to(32, Some(10));
    assert_eq!(settled(&source).await.latest, fork(25).reference(32));
    *first.ledger.lock().unwrap() = fork(25).up_to(33, Some(10));
    let tip = settled(&source).await;
    assert_eq!((tip.latest, tip.forked), (fork(25).reference(33), None));
}

#[tokio::test]
async fn of_three_endpoints_the_one_on_a_branch_of_its_own_does_not_lead_however_long_it_is() {
    let dead = Live::start(fork(25).up_to(40, Some(10))).await;
    let (a, b) = (Live::start(ledger(30, 10)).await, Live::start(ledger(29, 10)).await);
    let source = source(mainnet(), &[&dead.node, &a.node, &b.node]);
    source.check().await.unwrap();
    *b.ledger.lock().unwrap() = ledger(30, 10);
    let tip = settled(&source).await;
    assert_eq!(tip.latest, ledger(30, 10).reference(30));
    assert!(tip.forked.is_some());
    let headers = source.headers(25..=30).await.unwrap();
    assert!(headers.iter().all(|header| header.block == ledger(30, 10).reference(header.block.number)));
    assert_eq!(source.endpoints().snapshot()[0].state, EndpointState::Healthy, "nobody is convicted: it may yet win");
}

#[tokio::test]
async fn too_few_healthy_endpoints_wait_and_a_person_may_decide_otherwise() {
    let (_a, second, source) = pair(mainnet(), ledger(30, 10), ledger(30, 10)).await;
    assert_eq!(number(settled(&source).await.finalized), Some(10));
    _a.ledger.lock().unwrap().finalized = Some(20);
    second.lie(|_, _| Some(Err((-32000, "out of order".to_owned()))));
    let tip = settled(&source).await;
    assert_eq!((tip.latest.number, number(tip.finalized)), (30, Some(10)));
    let waiting = tip.waiting.unwrap();
    assert!(waiting.starts_with("1 of the 2 endpoints that must agree on what is final can be asked; "), "{waiting}");
    assert!(waiting.contains("out of order"), "{waiting}");
    assert_eq!(source.final_at(15).await.unwrap(), None);

    source.endpoints().override_agree(Some(1));
    let tip = settled(&source).await;
    assert_eq!((number(tip.finalized), tip.waiting), (Some(20), None));
    assert_eq!(source.final_at(15).await.unwrap(), Some(ledger(30, 20).reference(15)));
    source.endpoints().override_agree(None);
    _a.ledger.lock().unwrap().finalized = Some(25);
    assert_eq!(number(settled(&source).await.finalized), Some(20));
}

#[tokio::test]
async fn one_endpoint_works_and_its_status_says_what_is_not_checked() {
    let node = Live::start(ledger(30, 10)).await;
    let source = node.node.source(mainnet());
    assert_eq!(number(source.tip().await.unwrap().finalized), Some(10));
    source.tip().await.unwrap();
    let status = source.endpoints().snapshot().remove(0);
    let expected = "what it calls final is checked by no other endpoint: it is the only one";
    assert_eq!((status.state, status.reason.as_str()), (EndpointState::Healthy, expected));
}

#[tokio::test]
async fn more_than_are_configured_cannot_agree() {
    let (_a, _b, source) = pair(mainnet(), ledger(30, 10), ledger(30, 10)).await;
    assert_eq!(source.endpoints().agree(), 2);
    let error = source.set_agree(3).unwrap_err();
    let expected =
        "ETHEREUM_MAINNET: 3 endpoints must agree, but 2 are configured; check chains.ETHEREUM_MAINNET.agree";
    assert_eq!(error.to_string(), expected);
    assert!(source.set_agree(0).is_err());
    source.set_agree(1).unwrap();
    assert_eq!(number(source.tip().await.unwrap().finalized), Some(10));
}

#[tokio::test]
async fn by_confirmations_two_must_show_the_same_block_too() {
    let rule = FinalityRule::confirmations(12);
    let (first, second, source) = pair(with(rule), ledger(30, 0), ledger(29, 0)).await;
    assert_eq!(settled(&source).await.finalized, Some(ledger(30, 0).reference(17)));
    *first.ledger.lock().unwrap() = fork(18).up_to(32, None);
    *second.ledger.lock().unwrap() = ledger(32, 0);
    let tip = settled(&source).await;
    assert_eq!(number(tip.finalized), Some(17));
    assert!(tip.waiting.unwrap().starts_with("1 of 2 endpoints agree on block 20, and 2 must: "));
}

#[tokio::test]
async fn a_tag_and_confirmations_is_the_lower_of_both() {
    let rule = |confirmations| FinalityRule { tag: Some(Tag::Finalized), confirmations, l1_blocks: 0 };
    for (confirmations, expected) in [(0, 20), (5, 20), (10, 20), (11, 19), (25, 5), (30, 0)] {
        let node = Live::start(ledger(30, 20)).await;
        let tip = settled(&node.node.source(with(rule(confirmations)))).await;
        let expected = (expected > 0).then(|| ledger(30, 20).reference(expected));
        assert_eq!(tip.finalized, expected, "{confirmations}");
    }
    let never = Live::start(Ledger { finalized: None, ..ledger(30, 20) }).await;
    assert_eq!(settled(&never.node.source(with(rule(5)))).await.finalized, None, "no tag, no finality");
}

#[tokio::test]
async fn each_tier_has_its_own_final_block() {
    let tier = |confirmations| Tier {
        asset: AssetId::Native,
        up_to: U256::from(1),
        rule: FinalityRule::confirmations(confirmations),
    };
    let finality = Finality { rule: FinalityRule::FINALIZED, tiers: vec![tier(3), tier(12)] };
    let (_a, _b, source) = pair(with(finality), ledger(30, 10), ledger(28, 10)).await;
    let tip = settled(&source).await;
    assert_eq!(number(tip.finalized), Some(10));
    assert_eq!(tip.tiers, [25, 16].map(|number| Some(ledger(30, 10).reference(number))));
}

#[tokio::test]
async fn of_two_branches_a_tier_convicts_nobody_for_either_may_win() {
    let tier = Tier { asset: AssetId::Native, up_to: U256::from(1), rule: FinalityRule::confirmations(1) };
    let finality = Finality { rule: FinalityRule::FINALIZED, tiers: vec![tier] };
    let (a, b) = (Live::start(ledger(30, 10)).await, Live::start(ledger(30, 10)).await);
    let third = Live::start(fork(28).up_to(30, Some(10))).await;
    let source = source(with(finality), &[&a.node, &b.node, &third.node]);
    let tip = settled(&source).await;
    assert_eq!(
        (tip.finalized, tip.tiers),
        (Some(ledger(30, 10).reference(10)), vec![Some(ledger(30, 10).reference(29))])
    );
    assert!(source.endpoints().snapshot().iter().all(|status| status.state == EndpointState::Healthy));
    // Its branch won: those that were two follow it.
    for node in [&a, &b, &third] {
        *node.ledger.lock().unwrap() = fork(28).up_to(40, Some(30));
    }
    assert_eq!(settled(&source).await.finalized, Some(fork(28).reference(30)));
}

#[tokio::test]
async fn on_the_op_stack_l1_blocks_must_pass_since_safe_first_covered_a_block() {
    let rule = FinalityRule { tag: Some(Tag::Safe), confirmations: 0, l1_blocks: 1 };
    let base = Network { finality: rule.into(), ..network(Chain::BaseMainnet).unwrap() };
    let ledger = |latest, safe| Ledger { chain_id: chain_id(Chain::BaseMainnet), ..ledger(latest, safe) };
    let (first, second, source) = pair(base.clone(), ledger(20, 10), ledger(20, 10)).await;
    let at = |node: &Live, l1: u64| {
        node.lie(move |method, params| {
            (method == "eth_call").then(|| {
                let asked = json!({ "to": "0x4200000000000000000000000000000000000015", "data": "0x8381f58a" });
                assert_eq!((&params[0], &params[1]), (&asked, &json!("latest")));
                Ok(json!(format!("{l1:#066x}")))
            })
        });
    };
    let step = async |l1: [u64; 2], safe: u64| {
        for (node, l1) in [(&first, l1[0]), (&second, l1[1])] {
            at(node, l1);
            *node.ledger.lock().unwrap() = ledger(30, safe);
        }
        number(settled(&source).await.finalized)
    };
    // An L1 block takes 10.8 s at the least.
    const L1_BLOCK: Duration = Duration::from_millis(11_000);
    assert_eq!(step([100, 100], 10).await, None);
    assert_eq!(step([100, 100], 15).await, None);
    let begun = Instant::now();
    let is_early = |reported: Option<u64>| reported.is_none() || begun.elapsed() >= L1_BLOCK;
    assert!(is_early(step([112, 112], 20).await), "the number leaps");
    tokio::time::sleep(L1_BLOCK).await;
    assert_eq!(step([112, 100], 20).await, None, "one alone cannot hurry it");
    assert_eq!(step([112, 112], 20).await, Some(15));
    assert_eq!(step([113, 113], 25).await, Some(20));
    let ethereum = Network { finality: rule.into(), ..mainnet() };
    let url: [url::Url; 1] = ["http://localhost".parse().unwrap()];
    assert!(
        EvmSource::new(ethereum, &url).unwrap_err().to_string().contains("which only blocks called safe on the OP")
    );
}

#[tokio::test]
async fn a_block_at_a_number_is_final_when_both_say_so() {
    let (first, second, source) = pair(mainnet(), ledger(30, 20), ledger(30, 18)).await;
    for number in [18, 3, 1] {
        assert_eq!(source.final_at(number).await.unwrap(), Some(ledger(30, 20).reference(number)));
    }
    for number in [19, 20, 21, 99] {
        assert_eq!(source.final_at(number).await.unwrap(), None, "{number}");
    }
    *second.ledger.lock().unwrap() = fork(3).up_to(30, Some(20));
    assert_eq!(source.final_at(2).await.unwrap(), Some(ledger(30, 20).reference(2)));
    assert_eq!(source.final_at(4).await.unwrap(), None);
    for node in [&first, &second] {
        node.lie(|_, _| Some(Err((-32000, "down".to_owned()))));
    }
    assert_eq!(source.final_at(2).await.unwrap_err().kind, SourceErrorKind::Transient);
}

#[tokio::test]
async fn finality_costs_no_request_beyond_the_poll() {
    let both = FinalityRule { confirmations: 12, ..FinalityRule::FINALIZED };
    for rule in [FinalityRule::FINALIZED, FinalityRule::confirmations(12), both] {
        let (first, _b, source) = pair(with(rule), ledger(30, 10), ledger(30, 8)).await;
        hear_all(&source).await;
        first.node.take_requests();
        for latest in 31..=40 {
            *first.ledger.lock().unwrap() = ledger(latest, 10);
            // The poll of a tip, to its end: what is under way still would not be begun again.
            source.check().await.unwrap();
        }
        assert_eq!(first.node.take_requests(), 10);
        for _ in 0..10 {
            source.tip().await.unwrap();
        }
        assert!(first.node.take_requests() <= 10, "{rule:?}");
    }
}

#[tokio::test]
async fn that_a_transaction_can_never_land_must_be_said_by_two() {
    let (first, second, source) = pair(mainnet(), ledger(30, 10), ledger(30, 10)).await;
    hear_all(&source).await;
    let nonce = |node: &Live, used: &'static str| {
        node.lie(move |method, _| match method {
            "eth_getTransactionReceipt" => Some(Ok(Value::Null)),
            "eth_getTransactionCount" => Some(Ok(json!(used))),
            _ => None,
        });
    };
    let at = ledger(30, 10).reference(10);
    let signer = landfall_chain::Address::Evm([0xaa; 20]);
    let tx = TxRef { id: TxId::Evm([1; 32]), life: TxLife::Nonce { signer, nonce: 3 } };
    for (used, expected) in
        [(["0x4", "0x4"], Fate::Superseded(at)), (["0x4", "0x3"], Fate::Unknown), (["0x3", "0x4"], Fate::Unknown)]
    {
        nonce(&first, used[0]);
        nonce(&second, used[1]);
        assert_eq!(source.fate(&tx, &at).await.unwrap(), expected, "{used:?}");
    }
    let place = json!({ "blockHash": at.hash.to_string(), "blockNumber": "0xa" });
    nonce(&first, "0x4");
    second.lie(move |method, _| (method == "eth_getTransactionReceipt").then(|| Ok(place.clone())));
    let begun = Instant::now();
    while source.fate(&tx, &at).await.unwrap() != Fate::In(at) {
        assert!(begun.elapsed() < Duration::from_secs(60));
    }
}

/// A payment that no ledger holds, of a signer's nonce 3.
fn sought() -> TxRef {
    let signer = landfall_chain::Address::Evm([0xaa; 20]);
    TxRef { id: TxId::Evm([1; 32]), life: TxLife::Nonce { signer, nonce: 3 } }
}

/// It answers so when it is asked for a receipt, and for a nonce that four transactions were signed with `used`.
fn answers(node: &Live, receipt: Answer, used: &'static str) {
    node.lie(move |method, _| match method {
        "eth_getTransactionReceipt" => Some(receipt.clone()),
        "eth_getTransactionCount" => Some(Ok(json!(used))),
        _ => None,
    });
}

#[tokio::test]
async fn every_endpoint_is_asked_before_a_transaction_counts_as_unknown() {
    let at = ledger(30, 10).reference(10);
    for life in [sought().life, TxLife::Block] {
        let (first, second, source) = pair(mainnet(), ledger(30, 10), ledger(30, 10)).await;
        hear_all(&source).await;
        let tx = TxRef { life, ..sought() };
        let place = json!({ "blockHash": at.hash.to_string(), "blockNumber": "0xa" });
        for (one, other) in [(&first, &second), (&second, &first)] {
            answers(one, Ok(Value::Null), "0x3");
            answers(other, Ok(place.clone()), "0x3");
            assert_eq!(source.fate(&tx, &at).await.unwrap(), Fate::In(at), "{life:?}");
        }
    }
}

#[tokio::test]
async fn a_transaction_is_neither_unknown_nor_superseded_while_an_endpoint_that_may_know_it_cannot_be_asked() {
    let at = ledger(30, 10).reference(10);
    for life in [sought().life, TxLife::Block] {
        let nodes = [Live::start(ledger(30, 10)).await, Live::start(ledger(30, 10)).await];
        let silent = Live::start(ledger(30, 10)).await;
        let source = source(mainnet(), &[&nodes[0].node, &nodes[1].node, &silent.node]);
        hear_all(&source).await;
        let tx = TxRef { life, ..sought() };
        answers(&silent, Err((-32_603, "internal error".to_owned())), "0x3");
        for used in ["0x3", "0x4"] {
            nodes.iter().for_each(|node| answers(node, Ok(Value::Null), used));
            // Who failed a moment ago is asked again, and may know as before.
            for _ in 0..2 {
                let reported = format!("{:?}", source.fate(&tx, &at).await.unwrap());
                assert!(
                    reported.starts_with("Unanswered") && reported.contains(silent.node.id()),
                    "{used} {life:?}: {reported}"
                );
            }
        }
        answers(&silent, Ok(Value::Null), "0x4");
        let expected = if life == TxLife::Block { Fate::Unknown } else { Fate::Superseded(at) };
        assert_eq!(source.fate(&tx, &at).await.unwrap(), expected);
    }
}
