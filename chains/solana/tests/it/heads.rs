//! Where the chain ends, what is final, which cluster an endpoint serves, and where a transaction is said to be.

use landfall_chain::{BlockRef, BlockSource, EndpointState, Fate, SourceErrorKind, TxId, TxLife, TxRef};
use landfall_cluster::{Fault, Ledger, Node, Tx, When, hash};

use crate::made::Made;
use crate::sources::{at, hear_all, settled, slots, source};

#[tokio::test]
async fn the_newest_slot_that_two_call_final_is_final() {
    let (ahead, behind) =
        (Node::start(&Ledger::of([10, 11, 12, 15, 16])).await, Node::start(&Ledger::of([10, 11, 12, 15])).await);
    let source = source(&[&ahead, &behind]);
    ahead.call_final(12);
    behind.call_final(11);
    let tip = settled(&source).await;
    assert_eq!((tip.latest, tip.finalized), (at(16), Some(at(11))));
    ahead.call_final(15);
    behind.call_final(15);
    let tip = settled(&source).await;
    assert_eq!((tip.finalized, tip.waiting), (Some(at(15)), None));
    assert_eq!(source.final_at(12).await.unwrap(), Some(at(12)));
    assert_eq!(source.final_at(13).await.unwrap(), None, "nobody has a block there");
    assert_eq!(source.final_at(16).await.unwrap(), None, "not final yet");
}

#[tokio::test]
async fn one_poll_is_two_light_calls() {
    let node = Node::start(&Ledger::of(10..=16)).await;
    let source = source(&[&node]);
    source.tip().await.unwrap();
    assert_eq!((node.calls("getGenesisHash", None), node.calls("getLatestBlockhash", None)), (1, 2));
    source.tip().await.unwrap();
    assert_eq!((node.calls("getGenesisHash", None), node.calls("getLatestBlockhash", None)), (1, 4));
    assert_eq!(node.calls("getBlock", None), 0);
}

#[tokio::test]
async fn two_that_call_different_blocks_final_are_waited_for() {
    let (one, other) = (Node::start(&Ledger::of(10..=16)).await, Node::start(&Ledger::of(10..=16).forked_at(12)).await);
    let source = source(&[&one, &other]);
    one.call_final(14);
    other.call_final(14);
    let tip = settled(&source).await;
    assert_eq!(tip.finalized, None);
    assert!(tip.waiting.unwrap().starts_with("1 of 2 endpoints agree on block 14, and 2 must"));
}

#[tokio::test]
async fn finality_that_catches_up_with_the_newest_block_and_stalls_is_reported_as_it_is() {
    let node = Node::start(&Ledger::of(10..=16)).await;
    let source = source(&[&node]);
    for finalized in [16, 16, 16] {
        node.call_final(finalized);
        let tip = source.tip().await.unwrap();
        assert_eq!((tip.latest, tip.finalized), (at(16), Some(at(16))));
    }
    node.show(&Ledger::of(10..=18));
    assert_eq!(source.tip().await.unwrap().finalized, Some(at(16)), "it stalls");
}

#[tokio::test]
async fn another_genesis_is_another_cluster_and_nothing_is_read_there() {
    let (right, wrong) = (Node::start(&Ledger::of(10..=16)).await, Node::start(&Ledger::of(10..=90)).await);
    wrong.set_genesis("EtWTRABZaYq6iMfeYKouRu166VU2xqa1wcaWoxPkrZBG");
    let source = source(&[&wrong, &right]);
    let error = source.check().await.unwrap_err();
    assert_eq!(error.kind, SourceErrorKind::Permanent);
    let expected = format!(
        "endpoint {} serves the cluster with genesis hash EtWTRABZaYq6iMfeYKouRu166VU2xqa1wcaWoxPkrZBG, but \
         SOLANA_MAINNET is 5eykt4UsFv8P8NJdTREpY1vzqKqZKvdpKuc147dw2N9d; check chains.SOLANA_MAINNET.rpc",
        wrong.id()
    );
    assert_eq!(error.to_string(), expected);
    assert_eq!(source.tip().await.unwrap().latest, at(16));
    assert_eq!(slots(&source, 10, 16).await.len(), 7);
    assert_eq!(wrong.calls("getBlock", None) + wrong.calls("getBlocks", None), 0);
    assert_eq!(source.endpoints().snapshot()[0].state, EndpointState::Quarantined);
}

#[tokio::test]
async fn where_a_transaction_is_said_to_be_is_a_hint_and_silence_says_nothing() {
    let ledger = Ledger::of(10..=16);
    let tx = Made::default().account("payer", [5_000, 3_000]).account("ours", [0, 2_000]).tx();
    ledger.put(12, Tx::raw(&tx));
    let (knows, ignorant) = (Node::start(&ledger).await, Node::start(&Ledger::of(10..=17)).await);
    let source = source(&[&ignorant, &knows]);
    hear_all(&source).await;
    let of = |byte| TxRef { id: TxId::Solana([byte; 64]), life: TxLife::Block };
    let found = BlockRef { number: 12, hash: hash(12, 0) };
    assert_eq!(source.fate(&of(7), &at(15)).await.unwrap(), Fate::In(found));
    assert_eq!(source.fate(&of(8), &at(15)).await.unwrap(), Fate::Unknown);
    // Who fails at it may have known; who is left alone for a moment after that, too.
    knows.confine("getSignatureStatuses");
    knows.misbehave(Fault::ServerError, When::Always);
    for _ in 0..3 {
        let fate = source.fate(&of(7), &at(15)).await.unwrap();
        assert!(matches!(&fate, Fate::Unanswered { endpoints, .. } if *endpoints == knows.id()), "{fate:?}");
    }
    let foreign = TxRef { id: TxId::Evm([7; 32]), life: TxLife::Block };
    assert_eq!(source.fate(&foreign, &at(15)).await.unwrap_err().kind, SourceErrorKind::Permanent);
}
