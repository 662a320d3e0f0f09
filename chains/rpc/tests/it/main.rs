//! The crate through its door, with a family that is nobody's: blocks stand in slots, some slots hold none, and no node
//! serves a batch. That a family like this needs no more than its `Dialect` is what is shown here.
//!
//! - `slots`: the family, and nodes of it that lie and fail on command
//!
//! What the pool does in all its corners is shown in `chains/evm/tests/it`, against nodes whose blocks are proved.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed, and says where")]

mod slots;

use std::sync::atomic::Ordering::Relaxed;

use landfall_chain::{BlockHash, BlockRef, Chain, EndpointState, Tip};
use landfall_rpc::{Call, EndpointUrl, Need, Pool, RpcError, Timings};
use serde_json::json;

use crate::slots::{GENESIS, Node, SlotError, Slots};

fn pool(nodes: &[&Node]) -> Pool<Slots> {
    let url = |node: &&Node| {
        let url = format!("http://user:kanary@{}/kanary-path?key=kanary-key", node.address).parse().unwrap();
        EndpointUrl { url, headers: vec![("x-key".to_owned(), "kanary-header".to_owned())] }
    };
    Pool::over(Slots, Chain::SolanaMainnet, nodes.iter().map(url).collect(), Timings::PRODUCTION).unwrap()
}

/// The tip when all endpoints have been heard: by itself it waits only a moment for who is late, and goes without his voice
/// when the machine stands still. First a poll that was under way, then what they say now, then the hash that is worth
/// asking for.
async fn settled(pool: &Pool<Slots>) -> Tip {
    for _ in 0..3 {
        pool.check().await.unwrap();
    }
    pool.tip().await.unwrap()
}

fn at(slot: u64) -> Option<BlockRef> {
    let hash = BlockHash([u8::try_from(slot).unwrap(); 32]);
    Some(BlockRef { number: slot, hash })
}

#[tokio::test]
async fn what_two_endpoints_show_in_one_slot_is_final_without_a_batch() {
    let (ahead, behind) = (Node::start(20, 12).await, Node::start(19, 10).await);
    let pool = pool(&[&ahead, &behind]);
    let tip = settled(&pool).await;
    assert_eq!((Some(tip.latest), tip.finalized), (at(20), at(10)));
    // Nothing was produced in slot 13: nobody has a word about it, and the newest slot that both show counts.
    ahead.finalized.store(14, Relaxed);
    behind.finalized.store(12, Relaxed);
    let tip = settled(&pool).await;
    assert_eq!((Some(tip.latest), tip.finalized), (at(20), at(12)));
    assert_eq!(pool.final_at(11).await.unwrap(), at(11));
    assert_eq!(pool.final_at(7).await.unwrap(), None, "an empty slot");
    assert_eq!(ahead.batches.load(Relaxed) + behind.batches.load(Relaxed), 0);
}

#[tokio::test]
async fn two_that_differ_about_a_slot_are_waited_for_with_both_hashes() {
    let (one, other) = (Node::start(20, 10).await, Node::start(20, 10).await);
    other.forked.store(true, Relaxed);
    let pool = pool(&[&one, &other]);
    let tip = settled(&pool).await;
    assert_eq!(tip.finalized, None);
    let waiting = tip.waiting.unwrap();
    assert!(waiting.starts_with("1 of 2 endpoints agree on block 10, and 2 must"), "{waiting}");
}

#[tokio::test]
async fn another_genesis_is_a_wrong_chain_and_nothing_is_read_there() {
    let (right, wrong) = (Node::start(20, 10).await, Node::start(90, 80).await);
    *wrong.genesis.lock().unwrap() = "another".to_owned();
    let pool = pool(&[&wrong, &right]);
    let error = pool.check().await.unwrap_err();
    assert!(matches!(error, SlotError::Rpc(RpcError::NoEndpoint { permanent: true, .. })), "{error}");
    assert_eq!(error.to_string(), format!("endpoint {} serves another cluster than {GENESIS}", wrong.address));
    assert_eq!(Some(pool.tip().await.unwrap().latest), at(20));
    assert_eq!(pool.endpoints().snapshot()[0].state, EndpointState::Quarantined);
    let need = Need { first: 15, last: 15, methods: &[] };
    assert_eq!(pool.candidates(need).await.len(), 1);
}

#[tokio::test]
async fn a_read_that_fails_is_answered_elsewhere_and_reports_no_secret() {
    let (bad, good) = (Node::start(21, 10).await, Node::start(20, 10).await);
    let pool = pool(&[&bad, &good]);
    settled(&pool).await;
    *bad.refuses.lock().unwrap() = Some((-32_005, "unhealthy; kanary-key, kanary-header".to_owned()));
    let need = Need { first: 15, last: 15, methods: &[] };
    let read = || {
        pool.call(need, |endpoint| {
            Box::pin(async move {
                let calls = [15, 16].map(|slot| Call { method: "getBlock", params: json!([slot]) });
                let answers = endpoint.ask_all(&calls).await?;
                Ok((endpoint.id.clone(), answers.len()))
            })
        })
    };
    assert_eq!(read().await.unwrap(), (good.address.clone(), 2));
    let reason = pool.endpoints().snapshot()[0].reason.clone();
    let expected = format!(
        "SOLANA_MAINNET: endpoint {} failed getBlock: the node says \"unhealthy; ***, ***\" (code -32005)",
        bad.address
    );
    assert_eq!(reason, expected);
    // To this family the code means no limit: the endpoint failed, and was not asked to be left alone.
    assert_eq!(pool.endpoints().snapshot()[0].state, EndpointState::Failing);
    assert!(good.accepts_gzip.load(Relaxed), "blocks are large, and providers compress");
    assert_eq!(bad.batches.load(Relaxed) + good.batches.load(Relaxed), 0);
}
