//! Skipped slots, holes in a ledger, forks at `confirmed`: what comes back hangs together, and nothing is passed over that
//! a parent does not pass over.

use landfall_chain::{AssetId, BlockSource, EndpointState, Lane, Proof, Read, SourceErrorKind, U256};
use landfall_cluster::{Fault, Instead, Ledger, Node, TIME, Tx, When, hash};
use serde_json::json;

use crate::fixtures::address;
use crate::made::{Made, key};
use crate::sources::{blocks, leads, slots, source, two};

#[tokio::test]
async fn skipped_slots_are_passed_over_by_parent_links_and_each_block_is_read_once() {
    let node = Node::start(&Ledger::of([10, 11, 14, 15])).await;
    let source = source(&[&node]);
    assert_eq!(slots(&source, 10, 15).await, [10, 11, 14, 15]);
    assert_eq!((node.calls("getBlock", None), node.calls("getBlocks", None)), (4, 1));
    // More would cost more: rewards, and blocks that are not decided.
    let asked = node.counts().last;
    assert_eq!(asked["getBlocks"][2]["commitment"], "confirmed");
    let how = &asked["getBlock"][1];
    assert_eq!((&how["commitment"], &how["rewards"]), (&json!("confirmed"), &json!(false)));
    assert_eq!(how["transactionDetails"], "accounts");
    let headers = source.headers(11..=14).await.unwrap();
    assert_eq!(headers[1].parent, headers[0].block);
    assert_eq!(headers.iter().map(|header| header.time_secs - TIME).collect::<Vec<_>>(), [11, 14]);
    assert_eq!(slots(&source, 12, 13).await, [] as [u64; 0], "a range that is skipped as a whole");
    assert_eq!(source.headers(16..=20).await.unwrap(), [], "not there yet");
}

#[tokio::test]
async fn blocks_that_a_ledger_lost_are_named_by_their_child_and_read_elsewhere() {
    let (ahead, other, source) = two().await;
    ahead.lose([12, 13]);
    assert_eq!(slots(&source, 10, 15).await, [10, 11, 12, 13, 14, 15]);
    assert_eq!((other.calls("getBlock", Some(12)), other.calls("getBlock", Some(13))), (1, 1));
    assert_eq!(other.calls("getBlock", Some(14)), 0, "what the first has is not read elsewhere");
    // A hole at the front of the range is one too.
    assert_eq!(slots(&source, 12, 15).await, [12, 13, 14, 15]);
    assert_eq!(slots(&source, 13, 15).await, [13, 14, 15]);
    let headers = source.headers(11..=15).await.unwrap();
    assert_eq!(headers.len(), 5);
    // One that is as long as the range: the list of another endpoint counts.
    assert_eq!(slots(&source, 12, 13).await, [12, 13]);
    assert!(source.endpoints().snapshot().iter().all(|endpoint| endpoint.state == EndpointState::Healthy));
}

#[tokio::test]
async fn with_one_endpoint_a_range_ends_before_what_its_ledger_lost() {
    let node = Node::start(&Ledger::of(10..=16)).await;
    let source = source(&[&node]);
    node.call_final(14);
    node.lose([12, 13]);
    assert_eq!(slots(&source, 10, 16).await, [10, 11]);
    let headers = source.headers(10..=16).await.unwrap();
    assert_eq!(headers.iter().map(|header| header.block.number).collect::<Vec<_>>(), [10, 11]);
    // Nothing can be shown: then it is said why.
    let error = blocks(&source, 12, 16).await.unwrap_err();
    assert_eq!(error.kind, SourceErrorKind::Transient);
    assert!(error.to_string().contains("does not tell block 13: the node says \"Slot 13 was skipped"), "{error}");
}

#[tokio::test]
async fn a_block_that_only_the_list_leaves_out_is_asked_for_by_its_slot() {
    let node = Node::start(&Ledger::of(10..=16)).await;
    let source = source(&[&node]);
    node.unlist([11, 12, 15]);
    assert_eq!(slots(&source, 10, 16).await, [10, 11, 12, 13, 14, 15, 16]);
    // Nothing stands on the last of them within the range: it is left out, and named by the block behind it.
    assert_eq!(slots(&source, 10, 15).await, [10, 11, 12, 13, 14]);
    assert_eq!(slots(&source, 15, 16).await, [15, 16]);
}

#[tokio::test]
async fn a_slot_that_a_list_names_though_it_holds_no_block_is_passed_over_by_the_next_parent_only() {
    let ledger = Ledger::of([10, 11, 13, 14, 17, 18, 20]);
    ledger.finalize(20);
    let nodes = [Node::start(&ledger).await, Node::start(&ledger).await];
    let source = source(&[&nodes[0], &nodes[1]]);
    nodes.iter().for_each(|node| node.misbehave(Fault::LongList, When::Always));
    // At the front, in the middle and at the end of a range, and as all of it.
    let ranges: [(u64, u64, &[u64]); 6] = [
        (12, 14, &[13, 14]),
        (10, 18, &[10, 11, 13, 14, 17, 18]),
        (10, 12, &[10, 11]),
        (12, 12, &[]),
        (15, 16, &[]),
        (16, 19, &[17, 18]),
    ];
    for (first, last, held) in ranges {
        assert_eq!(slots(&source, first, last).await, held, "{first} to {last}");
        let headers = source.headers(first..=last).await.unwrap();
        assert_eq!(headers.iter().map(|header| header.block.number).collect::<Vec<_>>(), held, "{first} to {last}");
        // As a backfill and a rescan read.
        assert_eq!(source.blocks(first..=last, Read::FULL).await.unwrap().len(), held.len(), "{first} to {last}");
    }
    assert_eq!(slots(&source, 19, 19).await, [] as [u64; 0], "the newest block says so");
    // A block that is there and that nobody reports is passed over by none, beside which slot ever.
    nodes.iter().for_each(|node| node.lose([13]));
    assert_eq!(slots(&source, 10, 18).await, [10, 11]);
    for (first, last) in [(12, 18), (12, 12), (12, 13), (13, 13), (13, 14)] {
        let error = blocks(&source, first, last).await.unwrap_err();
        assert_eq!(error.kind, SourceErrorKind::Transient);
        assert!(error.to_string().contains("does not tell block 1"), "{first} to {last}: {error}");
    }
}

#[tokio::test]
async fn a_list_that_names_very_many_slots_that_hold_no_block_is_not_followed_to_its_end() {
    let ledger = Ledger::of([10, 111]);
    ledger.finalize(111);
    let node = Node::start(&ledger).await;
    let source = source(&[&node]);
    node.misbehave(Fault::LongList, When::Always);
    assert_eq!(slots(&source, 11, 110).await, [] as [u64; 0], "block 111 stands on block 10");
    let asked = (11..=110).filter(|slot| node.calls("getBlock", Some(*slot)) > 0).count();
    assert!((1..=34).contains(&asked), "{asked}: 32 may be wrong, and two are asked for at once");
}

#[tokio::test]
async fn of_a_fork_at_confirmed_the_blocks_of_one_branch_come_back() {
    let (ahead, other, source) = two().await;
    // The leader cannot report 13, and the other one's 13 is of another branch: 14 does not stand on it.
    let fork = other.ledger().forked_at(13);
    other.show(&fork);
    ahead.answer_instead(13, Instead::Null);
    let of_fork = fork.block(13).unwrap().reference();
    let shown = blocks(&source, 10, 15).await.unwrap();
    let hashes: Vec<_> = shown.iter().map(|block| block.header.block.hash).collect();
    assert_eq!(hashes, [hash(10, 0), hash(11, 0), hash(12, 0), of_fork.hash]);
    // Where the list leaves 13 out, 14 says which block it must be: nobody has that one.
    ahead.unlist([13]);
    assert_eq!(slots(&source, 10, 15).await, [10, 11, 12]);
    // The leader goes over to the other branch: now all of that comes.
    fork.produce(16, Vec::new());
    ahead.behave();
    ahead.find_all();
    ahead.show(&fork);
    leads(&source, 16).await;
    let shown = blocks(&source, 10, 16).await.unwrap();
    assert_eq!(
        shown.iter().map(|block| block.header.block.hash).collect::<Vec<_>>()[2..4],
        [hash(12, 0), of_fork.hash]
    );
    assert_eq!(shown.len(), 7);
}

#[tokio::test]
async fn a_block_in_place_of_the_one_that_its_child_names_is_left_for_another_endpoint() {
    let (ahead, _other, source) = two().await;
    ahead.unlist([13]);
    ahead.ledger().amend(13, |block| block.branch = 9);
    let shown = blocks(&source, 12, 15).await.unwrap();
    assert_eq!(shown.iter().map(|block| block.header.block.hash).collect::<Vec<_>>()[1], hash(13, 0));
    assert_eq!(shown.len(), 4);
}

#[tokio::test]
async fn a_payment_is_read_with_its_block_and_is_one_endpoints_word() {
    let ledger = Ledger::of(10..=12);
    let tx = Made::default().account("payer", [5_000_000, 3_000_000]).account("ours", [0, 2_000_000]).tx();
    ledger.put(11, Tx::raw(&tx));
    let node = Node::start(&ledger).await;
    let source = source(&[&node]);
    let shown = blocks(&source, 10, 12).await.unwrap();
    let [leg] = shown[1].transfers.as_slice() else { panic!("{shown:?}") };
    assert_eq!((leg.asset, leg.amount), (AssetId::Native, U256::from(2_000_000)));
    assert_eq!((leg.sender, leg.recipient), (address(&key("payer")), address(&key("ours"))));
    assert_eq!((shown[1].proof, shown[1].fees.len()), (Proof::OneEndpoint, 1));
    let traced = source.blocks(10..=12, Read { lane: Lane::Traces, ..Read::FULL }).await.unwrap();
    assert!(traced.iter().all(|block| block.transfers.is_empty() && block.fees.is_empty()), "each leg is in one lane");
}

#[tokio::test]
async fn a_block_whose_time_is_not_reported_yet_has_that_of_the_one_before() {
    let untimed = Ledger::of(10..=13);
    for slot in [11, 12] {
        untimed.amend(slot, |block| block.time = None);
    }
    let node = Node::start(&untimed).await;
    let source = source(&[&node]);
    assert_eq!(times(blocks(&source, 10, 13).await.unwrap()), [10, 10, 10, 13]);
    assert_eq!(times(blocks(&source, 11, 13).await.unwrap()), [10, 10, 13]);
    assert_eq!(times(blocks(&source, 12, 13).await.unwrap()), [10, 13], "the one before it has none either");
}

#[tokio::test]
async fn a_time_that_one_node_does_not_report_is_answered_of_another() {
    let (ahead, other, source) = two().await;
    // Clones of a ledger share their blocks only until one of them is changed.
    [11, 12].into_iter().for_each(|slot| ahead.ledger().amend(slot, |block| block.time = None));
    assert_eq!(times(blocks(&source, 10, 13).await.unwrap()), [10, 11, 12, 13]);
    assert_eq!(times(blocks(&source, 12, 12).await.unwrap()), [12]);
    assert_eq!(source.endpoints().snapshot()[0].state, EndpointState::Healthy);
    assert_eq!(other.calls("getBlock", Some(13)), 0);
}

#[tokio::test]
async fn no_time_is_made_up_where_none_is_reported_far_and_wide() {
    let ledger = Ledger::of(10..=60);
    // None, in thousands of seconds, in milliseconds.
    let now = i64::try_from(TIME).unwrap();
    let falsely = |slot: u64| [0, now / 1_000, now * 1_000][usize::try_from(slot % 3).unwrap()];
    (10..=60).for_each(|slot| ledger.amend(slot, |block| block.time = Some(falsely(slot))));
    let node = Node::start(&ledger).await;
    let error = blocks(&source(&[&node]), 50, 50).await.unwrap_err();
    assert_eq!(error.kind, SourceErrorKind::Transient);
    assert!(error.to_string().contains("no endpoint tells when block 50 "), "{error}");
}

/// Counted from that of slot 0.
fn times(blocks: Vec<landfall_chain::Block>) -> Vec<u64> {
    blocks.iter().map(|block| block.header.time_secs - TIME).collect()
}
