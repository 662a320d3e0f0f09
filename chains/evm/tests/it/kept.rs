//! A block that the roots have just proved is traced without being read again; for everything else it is.

use alloy::primitives::Address;
use landfall_chain::{Block, BlockSource, Lane, Legs, Proof, Read, ReadProof};
use serde_json::Value;

use crate::mint::{self, Tx};
use crate::node::{Ledger, Live, hearing};
use crate::trace::{FULL, LISTED, NESTED, address, frame, nested, traced};

const SIGNER: Address = address(0xaa);
const ALICE: Address = address(0x0a);
const BOB: Address = address(0x0b);
const FIRST: Read = Read { legs: Legs::Creditable, ..LISTED };
const BLOCK: &str = "eth_getBlockByNumber";
const RECEIPTS: &str = "eth_getBlockReceipts";

/// Blocks from 5 on in which the signer pays `value` to Alice.
fn ledger(value: u64, blocks: usize) -> Ledger {
    let tx = |nonce| Tx { to: Some(ALICE), value, nonce, ..Tx::default() };
    Ledger::of(mint::chain(5, (0..blocks).map(|nonce| vec![tx(u64::try_from(nonce).unwrap())]).collect()))
}

/// A node that shows the blocks, and in the trace of each that Alice pays on to Bob.
async fn tracing(ledger: &Ledger) -> Live {
    let live = Live::start(ledger.clone()).await;
    let truth = live.ledger.clone();
    live.lie(move |method, params| {
        (method == NESTED).then(|| {
            let truth = truth.lock().unwrap();
            let (block, _) = truth.blocks.values().find(|(block, _)| block["hash"] == params[0]).unwrap();
            let value = u64::from_str_radix(&block["transactions"][0]["value"].as_str().unwrap()[2..], 16).unwrap();
            let inside = frame("CALL", ALICE, BOB, value, vec![]);
            Ok(nested(block, &[frame("CALL", SIGNER, ALICE, value, vec![inside])]))
        })
    });
    live
}

/// What was asked of blocks since this was last asked.
fn asked(live: &Live) -> Vec<String> {
    let is_of_block = |(method, params): &(String, Value)| method != BLOCK || params[1] == Value::Bool(true);
    let calls = live.take_calls().into_iter().filter(is_of_block).map(|(method, _)| method);
    calls.filter(|method| [BLOCK, RECEIPTS, NESTED].contains(&method.as_str())).collect()
}

fn amounts(blocks: &[Block]) -> Vec<u64> {
    blocks.iter().flat_map(|block| &block.transfers).map(|leg| leg.amount.try_into().unwrap()).collect()
}

#[tokio::test]
async fn a_block_that_the_roots_proved_is_traced_without_being_read_again() {
    let ledger = ledger(9, 2);
    let live = tracing(&ledger).await;
    let (source, other) = (live.node.source(traced()), live.node.source(traced()));
    source.blocks(5..=6, Read::FULL).await.unwrap();
    assert_eq!(asked(&live), [BLOCK, RECEIPTS, BLOCK, RECEIPTS]);
    let kept = source.blocks(5..=6, FIRST).await.unwrap();
    assert_eq!(asked(&live), [NESTED, NESTED]);
    // As who reads them for the first time sees them.
    assert_eq!(kept, other.blocks(5..=6, FIRST).await.unwrap());
    assert_eq!(asked(&live), [BLOCK, RECEIPTS, BLOCK, RECEIPTS, NESTED, NESTED]);
    assert_eq!(amounts(&kept), [9, 9]);
    // Once: whoever comes back has a reason to doubt.
    assert_eq!(kept, source.blocks(5..=6, FIRST).await.unwrap());
    assert_eq!(asked(&live), [BLOCK, RECEIPTS, BLOCK, RECEIPTS, NESTED, NESTED]);
}

#[tokio::test]
async fn by_logs_too_a_block_that_is_traced_is_proved_by_its_receipts_and_no_logs_are_listed() {
    let live = tracing(&ledger(9, 2)).await;
    let source = live.node.source(traced());
    let listed = Read { proof: ReadProof::Candidate, ..Read::FULL };
    let blocks = source.blocks(5..=6, listed).await.unwrap();
    assert_eq!(blocks.iter().map(|block| block.proof).collect::<Vec<_>>(), [Proof::Roots; 2]);
    let calls = live.take_calls();
    let count = |asked: &str| calls.iter().filter(|(method, _)| method == asked).count();
    assert_eq!((count(RECEIPTS), count("eth_getLogs")), (2, 0), "{calls:?}");
    source.blocks(5..=6, FIRST).await.unwrap();
    assert_eq!(asked(&live), [NESTED, NESTED]);
}

#[tokio::test]
async fn what_is_explained_is_read_again() {
    let ledger = ledger(9, 1);
    let live = tracing(&ledger).await;
    let source = live.node.source(traced());
    for read in [LISTED, FULL] {
        source.blocks(5..=5, Read::FULL).await.unwrap();
        asked(&live);
        source.blocks(5..=5, read).await.unwrap();
        assert_eq!(asked(&live), [BLOCK, RECEIPTS, NESTED], "{read:?}");
    }
}

#[tokio::test]
async fn a_trace_that_two_endpoints_report_costs_no_second_read_of_its_block_either() {
    let ledger = ledger(9, 1);
    let (one, other) = (tracing(&ledger).await, tracing(&ledger).await);
    let source = hearing(traced(), &[&one.node, &other.node]).await;
    source.blocks(5..=5, Read::FULL).await.unwrap();
    let _ = [&one, &other].map(asked);
    let twice = Read { legs: Legs::Creditable, ..FULL };
    let blocks = source.blocks(5..=5, twice).await.unwrap();
    assert_eq!(
        (blocks[0].proof, [&one, &other].map(asked)),
        (Proof::TwoEndpoints, [vec![NESTED.to_owned()], vec![NESTED.to_owned()]])
    );
    // Whoever judges a deposit reads the roots again, beside the traces, and gets nothing that was kept before.
    source.blocks(5..=5, Read::FULL).await.unwrap();
    let _ = [&one, &other].map(asked);
    tokio::try_join!(source.blocks(5..=5, Read::FULL), source.blocks(5..=5, twice)).unwrap();
    let reads = [&one, &other].map(asked).concat();
    assert_eq!(reads.iter().filter(|method| *method == RECEIPTS).count(), 2, "{reads:?}");
}

#[tokio::test]
async fn a_block_that_was_replaced_is_never_the_one_that_is_traced() {
    let live = tracing(&ledger(9, 2)).await;
    let source = live.node.source(traced());
    source.blocks(5..=6, Read::FULL).await.unwrap();
    let replacing = ledger(7, 1);
    *live.ledger.lock().unwrap() = replacing.clone();
    // Read in full, or by its logs only: what was kept of its number is gone.
    for proof in [ReadProof::Full, ReadProof::Candidate] {
        source.blocks(5..=5, Read { lane: Lane::Block, proof, legs: Legs::Creditable }).await.unwrap();
        let blocks = source.blocks(5..=5, FIRST).await.unwrap();
        assert_eq!(blocks[0].header.block, replacing.reference(5), "{proof:?}");
        assert_eq!(amounts(&blocks), [7], "{proof:?}");
    }
    // Block 6 of before does not stand on this one: both are read again, and there is no block 6 any more.
    source.blocks(5..=5, Read::FULL).await.unwrap();
    assert_eq!(source.blocks(5..=6, FIRST).await.unwrap().len(), 1);
}

#[tokio::test]
async fn of_many_blocks_the_newest_are_kept() {
    let ledger = ledger(9, 20);
    let live = tracing(&ledger).await;
    let source = live.node.source(traced());
    source.blocks(5..=24, Read::FULL).await.unwrap();
    asked(&live);
    source.blocks(16..=16, FIRST).await.unwrap();
    assert_eq!(asked(&live), [BLOCK, RECEIPTS, NESTED]);
    source.blocks(17..=24, FIRST).await.unwrap();
    assert_eq!(asked(&live), [NESTED; 8]);
}
