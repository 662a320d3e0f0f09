//! What each refusal of a block comes to: it is asked for elsewhere, the range ends before it where nobody has it, and
//! it is never passed over.

use std::time::Duration;

use landfall_chain::{BlockSource, EndpointState, SourceErrorKind};
use landfall_cluster::{Instead, Ledger, Node, Refusal, Tx};
use landfall_solana::{Options, SolanaSource};
use serde_json::{Value, json};

use crate::made::Made;
use crate::sources::{blocks, leads, slots, source, two};

const REFUSALS: [(Instead, EndpointState); 25] = [
    (Instead::Null, EndpointState::Healthy),
    (Instead::Refuse(Refusal::BlockNotAvailable), EndpointState::Healthy),
    (Instead::Refuse(Refusal::SlotSkipped), EndpointState::Healthy),
    (Instead::Refuse(Refusal::LongTermStorageSlotSkipped), EndpointState::Healthy),
    (Instead::Refuse(Refusal::BlockCleanedUp), EndpointState::Healthy),
    (Instead::Refuse(Refusal::BlockStatusNotAvailableYet), EndpointState::Healthy),
    (Instead::Refuse(Refusal::LongTermStorageUnreachable), EndpointState::Healthy),
    (Instead::Refuse(Refusal::NodeUnhealthy), EndpointState::Failing),
    (Instead::Refuse(Refusal::HistoryNotAvailable), EndpointState::Failing),
    (Instead::Refuse(Refusal::InvalidParams), EndpointState::Failing),
    (Instead::Refuse(Refusal::Internal), EndpointState::Failing),
    (Instead::Refuse(Refusal::PreflightFailure), EndpointState::Failing),
    (Instead::Refuse(Refusal::KeyExcluded), EndpointState::Failing),
    (Instead::Refuse(Refusal::Scan), EndpointState::Failing),
    (Instead::Refuse(Refusal::MinContextSlotNotReached), EndpointState::Failing),
    (Instead::Refuse(Refusal::FilterTransactionNotFound), EndpointState::Failing),
    (Instead::Refuse(Refusal::NoSlotHistory), EndpointState::Failing),
    (Instead::Refuse(Refusal::RateLimited), EndpointState::Failing),
    // Of calls that we do not make.
    (Instead::Refuse(Refusal::Other(-32_003)), EndpointState::Failing),
    (Instead::Refuse(Refusal::Other(-32_006)), EndpointState::Failing),
    (Instead::Refuse(Refusal::Other(-32_008)), EndpointState::Failing),
    (Instead::Refuse(Refusal::Other(-32_013)), EndpointState::Failing),
    (Instead::Refuse(Refusal::Other(-32_017)), EndpointState::Failing),
    (Instead::Refuse(Refusal::Other(-32_018)), EndpointState::Failing),
    (Instead::Refuse(Refusal::Other(-32_022)), EndpointState::Failing),
];

#[tokio::test]
async fn no_refusal_is_taken_for_an_empty_slot() {
    for (instead, _) in REFUSALS {
        let node = Node::start(&Ledger::of(10..=16)).await;
        let source = source(&[&node]);
        node.answer_instead(12, instead);
        assert_eq!(slots(&source, 10, 16).await, [10, 11], "{instead:?}");
        let error = blocks(&source, 12, 16).await.unwrap_err();
        assert_eq!(error.kind, SourceErrorKind::Transient, "{instead:?}");
        node.behave();
        assert_eq!(slots(&source, 10, 16).await, [10, 11, 12, 13, 14, 15, 16], "{instead:?}");
    }
}

#[tokio::test]
async fn what_one_endpoint_refuses_another_is_asked_for() {
    for (instead, state) in REFUSALS {
        let (ahead, other, source) = two().await;
        ahead.answer_instead(12, instead);
        assert_eq!(slots(&source, 10, 12).await, [10, 11, 12], "{instead:?}");
        assert_eq!(other.calls("getBlock", Some(12)), 1, "{instead:?}");
        assert_eq!(source.endpoints().snapshot()[0].state, state, "{instead:?}");
    }
}

#[tokio::test]
async fn what_a_person_must_mend_is_said_in_the_status_of_the_endpoint() {
    let never = "it never will: have its history and indexes switched on, or take it out";
    let wrong = "what is asked for is not understood there, and a person must look";
    for (refusal, advice) in [
        (Refusal::HistoryNotAvailable, Some(never)),
        (Refusal::KeyExcluded, Some(never)),
        (Refusal::Scan, Some(never)),
        (Refusal::NoSlotHistory, Some(never)),
        (Refusal::InvalidParams, Some(wrong)),
        (Refusal::InvalidRequest, Some(wrong)),
        (Refusal::Internal, None),
        (Refusal::NodeUnhealthy, None),
    ] {
        let (ahead, _other, source) = two().await;
        ahead.answer_instead(12, Instead::Refuse(refusal));
        assert_eq!(slots(&source, 10, 12).await, [10, 11, 12], "{refusal:?}");
        let reason = source.endpoints().snapshot()[0].reason.clone();
        assert!(reason.contains(&refusal.code().to_string()), "{refusal:?}: {reason}");
        assert_eq!([never, wrong].into_iter().find(|said| reason.contains(said)), advice, "{refusal:?}: {reason}");
    }
}

#[tokio::test]
async fn what_follows_from_each_reaction() {
    // Whether the endpoint is as good as before; whether a person is reported if it goes on; whether it is asked for the
    // next block as soon as it is healthy, which after a pause is a matter of time.
    let cases = [
        ("LeaveOpen", Refusal::BlockNotAvailable, (true, false, Some(true))),
        ("AskArchive", Refusal::BlockCleanedUp, (true, false, Some(true))),
        ("AskAgain", Refusal::BlockStatusNotAvailableYet, (true, false, Some(true))),
        ("AskElsewhere", Refusal::NodeUnhealthy, (false, false, Some(true))),
        ("BackOff", Refusal::RateLimited, (false, false, None)),
        ("Drop", Refusal::HistoryNotAvailable, (false, true, Some(true))),
        ("Page", Refusal::InvalidParams, (false, true, Some(true))),
    ];
    for (reaction, refusal, expected) in cases {
        let (ahead, other, source) = two().await;
        ahead.answer_instead(12, Instead::Refuse(refusal));
        assert_eq!(slots(&source, 12, 12).await, [12], "{reaction}: it is read elsewhere");
        let status = || source.endpoints().snapshot().swap_remove(0);
        let is_good = status().state == EndpointState::Healthy;
        let is_healthy = async {
            while status().state != EndpointState::Healthy {
                tokio::time::sleep(Duration::from_millis(50)).await;
                source.tip().await.unwrap();
            }
        };
        tokio::time::timeout(Duration::from_secs(60), is_healthy).await.unwrap();
        leads(&source, 16).await;
        let is_reported = status().refused.contains_key("getBlock with transactions");
        assert_eq!(slots(&source, 13, 13).await, [13], "{reaction}");
        let is_asked = expected.2.map(|_| ahead.calls("getBlock", Some(13)) == 1);
        assert_eq!((is_good, is_reported, is_asked), expected, "{reaction}");
        // What nobody else has it is asked for all the same, and answers.
        other.lose([14]);
        assert_eq!(slots(&source, 14, 14).await, [14], "{reaction}");
        assert!(status().refused.is_empty(), "{reaction}");
    }
}

#[tokio::test]
async fn the_version_that_is_configured_leaves_for_the_node_or_else_1() {
    let mainnet = landfall_solana::network(landfall_chain::Chain::SolanaMainnet).unwrap();
    for (max_transaction_version, asked) in [(None, 1), (Some(0), 0), (Some(3), 3)] {
        let node = Node::start(&Ledger::of(10..=12)).await;
        let options = Options { max_transaction_version, ..Options::default() };
        let url: url::Url = node.url().parse().unwrap();
        let source = SolanaSource::at(&mainnet, vec![url.into()], &options).unwrap();
        assert_eq!(slots(&source, 10, 12).await, [10, 11, 12]);
        let last = node.counts().last;
        assert_eq!(last["getBlock"][1]["maxSupportedTransactionVersion"], json!(asked), "{last:?}");
    }
}

#[tokio::test]
async fn a_version_that_nodes_ask_for_is_remembered() {
    let node = Node::start(&Ledger::of(10..=13)).await;
    let source = source(&[&node]);
    [11, 13].into_iter().for_each(|slot| node.answer_instead(slot, Instead::Needs(2)));
    assert_eq!(slots(&source, 11, 11).await, [11]);
    assert_eq!(node.calls("getBlock", Some(11)), 2);
    assert_eq!(slots(&source, 12, 13).await, [12, 13]);
    assert_eq!(node.calls("getBlock", Some(13)), 1, "asked for as what it holds, at once");
}

#[tokio::test]
async fn many_blocks_at_once_may_ask_for_a_version() {
    let node = Node::start(&Ledger::of(10..=29)).await;
    let source = source(&[&node]);
    (10..=29).for_each(|slot| node.answer_instead(slot, Instead::Needs(3)));
    assert_eq!(slots(&source, 10, 29).await, (10..=29).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_version_that_is_never_enough_needs_an_upgrade_when_all_say_so() {
    let (ahead, other, source) = two().await;
    ahead.answer_instead(12, Instead::NeverEnough);
    assert_eq!(slots(&source, 11, 12).await, [11, 12], "one endpoint alone says so");
    assert_eq!(source.endpoints().snapshot()[0].state, EndpointState::Failing);
    other.answer_instead(12, Instead::NeverEnough);
    assert_eq!(slots(&source, 11, 12).await, [11]);
    let error = loop {
        let error = blocks(&source, 12, 13).await.unwrap_err();
        // Who rests is not asked while there is another one.
        if error.needs_upgrade {
            break error;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    };
    assert_eq!(error.kind, SourceErrorKind::Permanent);
    assert!(error.to_string().contains("asks up to version 9; an upgrade is needed"), "{error}");
    assert!(error.to_string().contains("block 12 (0x000000000000000c"), "{error}");
}

#[tokio::test]
async fn a_block_without_what_became_of_a_transaction_is_refused_whole_and_nobody_is_quarantined() {
    let (ahead, other, source) = two().await;
    let mut tx = Made::default().account("payer", [5_000, 3_000]).account("ours", [0, 2_000]).tx();
    for node in [&ahead, &other] {
        node.ledger().put(12, Tx::raw(&tx));
    }
    tx["meta"] = serde_json::Value::Null;
    ahead.ledger().amend(12, |block| block.txs = vec![Tx::raw(&tx)]);
    let shown = blocks(&source, 11, 12).await.unwrap();
    assert_eq!(shown[1].transfers.len(), 1, "read elsewhere");
    let status = source.endpoints().snapshot()[0].clone();
    assert_eq!(status.state, EndpointState::Healthy, "{}", status.reason);
    other.ledger().amend(12, |block| block.txs = vec![Tx::raw(&tx)]);
    assert_eq!(slots(&source, 11, 13).await, [11], "it is in nobody's hands now, and is not passed over");
}

/// USDC that is paid, reported with so many decimals.
fn paid_with_decimals(decimals: u8) -> Value {
    let usdc = landfall_solana::network(landfall_chain::Chain::SolanaMainnet).unwrap().assets[1].id.to_string();
    let mut tx = Made::default()
        .account("A", [100, 100])
        .tokens("TA", "A", &usdc, [7, 7], [Some(50), Some(20)])
        .tokens("TW", "W", &usdc, [7, 7], [Some(0), Some(30)])
        .tx();
    for side in ["preTokenBalances", "postTokenBalances"] {
        for balance in tx["meta"][side].as_array_mut().unwrap() {
            balance["uiTokenAmount"]["decimals"] = json!(decimals);
        }
    }
    tx
}

#[tokio::test]
async fn other_decimals_than_are_listed_halt_the_chain_only_when_all_endpoints_report_them() {
    let (ahead, other, source) = two().await;
    for (node, decimals) in [(&ahead, 9), (&other, 6)] {
        node.ledger().amend(12, |block| block.txs = vec![Tx::raw(&paid_with_decimals(decimals))]);
    }
    assert_eq!(slots(&source, 12, 12).await, [12], "the other tells what is listed");
    let status = source.endpoints().snapshot()[0].clone();
    assert_eq!(status.state, EndpointState::Failing);
    assert!(status.reason.contains("no other endpoint says so: SOLANA_MAINNET: mint "), "{}", status.reason);

    let (ahead, other, source) = two().await;
    for node in [&ahead, &other] {
        node.ledger().amend(12, |block| block.txs = vec![Tx::raw(&paid_with_decimals(9))]);
    }
    let error = blocks(&source, 12, 12).await.unwrap_err();
    assert_eq!((error.kind, error.needs_upgrade), (SourceErrorKind::Permanent, false));
    let text = error.to_string();
    assert!(
        text.contains("has 9 decimals in block 12") && text.contains("is listed with 6; correct decimals in"),
        "{text}"
    );
}

#[test]
fn decimals_are_those_that_are_listed_wherever_a_mint_is_reported() {
    let rules = landfall_solana::Rules::of(&landfall_solana::network(landfall_chain::Chain::SolanaMainnet).unwrap());
    let read = |tx: &Value| crate::fixtures::read(&rules, std::slice::from_ref(tx));
    assert!(read(&paid_with_decimals(6)).is_ok());
    for (side, at) in
        [("preTokenBalances", 0), ("preTokenBalances", 1), ("postTokenBalances", 0), ("postTokenBalances", 1)]
    {
        let mut tx = paid_with_decimals(6);
        tx["meta"][side][at]["uiTokenAmount"]["decimals"] = json!(9);
        let error = read(&tx).unwrap_err();
        assert!(
            matches!(error, landfall_solana::Unusable::Decimals { reported: 9, listed: 6, .. }),
            "{side} {at}: {error}"
        );
    }
}
