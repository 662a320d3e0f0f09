//! What arrived and is no deposit: once for each block however often it is read, listed newest first page by page, and
//! kept when old blocks are forgotten.

use landfall::deposit::Leg;
use landfall::store::unattributed::{self, Arrival};
use landfall::store::{cursors, deposits};
use landfall_chain::{AssetId, AssetTransfer, Rejected, SenderRule, TxId, TxLife, TxRef, U256, Verdict};

use super::cast::{CHAIN, OTHER_CHAIN, account, add, address, block, canonical, connect, deposit, write};
use crate::harness::postgres::TestStore;

on_both_engines!(
    what_is_recorded_twice_counts_once_and_only_in_canonical_blocks,
    pages_hold_each_arrival_once_newest_first,
    pruning_keeps_blocks_with_arrivals,
    the_rule_of_a_sender_survives_storage,
);

fn arrival(tag: u8, verdict: Verdict) -> Rejected {
    let tx = TxRef { id: TxId::Evm([tag; 32]), life: TxLife::Block };
    let (sender, recipient, amount) = (address(9), address(0xa1), U256::from(tag));
    let (asset, sender_rule) = (AssetId::Native, SenderRule::StandIn);
    Rejected { transfer: AssetTransfer { tx, asset, sender, sender_rule, recipient, amount, nth: 0 }, verdict }
}

async fn record(store: &TestStore, number: u64, rejected: &Rejected) {
    let AssetTransfer { tx, asset, recipient, amount, nth, .. } = rejected.transfer;
    let leg = Leg { chain_ref: "eip155:11155111", tx: tx.id, asset, recipient, amount, nth }.hash();
    let at = block(number, 1).header.block;
    write(store, async |tx| unattributed::insert(tx, CHAIN, &at, &leg, rejected).await.unwrap()).await;
}

async fn arrived(store: &TestStore) -> U256 {
    let mut reader = store.db.read().await.unwrap();
    unattributed::arrived(&mut reader, CHAIN, &address(0xa1), &AssetId::Native, &(0..=9)).await.unwrap()
}

async fn list(store: &TestStore, all: bool, after: Option<&Arrival>, limit: u32) -> Vec<Arrival> {
    let mut reader = store.db.read().await.unwrap();
    assert_eq!(unattributed::list(&mut reader, OTHER_CHAIN, all, after, limit).await.unwrap(), []);
    unattributed::list(&mut reader, CHAIN, all, after, limit).await.unwrap()
}

async fn what_is_recorded_twice_counts_once_and_only_in_canonical_blocks(store: TestStore) {
    connect(&store, &[block(1, 1), block(2, 1)]).await;
    for _ in 0..2 {
        record(&store, 2, &arrival(5, Verdict::IneligibleTokenAccount)).await;
        record(&store, 2, &arrival(5, Verdict::RentRefund)).await;
    }
    assert_eq!(arrived(&store).await, U256::from(10));
    assert_eq!(list(&store, false, None, 10).await.len(), 1, "rent that came back is for the books alone");
    assert_eq!(list(&store, true, None, 10).await.len(), 2);
    let fork_point = block(1, 1).header.block;
    write(&store, async |tx| cursors::disconnect(tx, CHAIN, &fork_point).await.unwrap()).await;
    assert_eq!((arrived(&store).await, list(&store, true, None, 10).await), (U256::ZERO, vec![]));
}

async fn pages_hold_each_arrival_once_newest_first(store: TestStore) {
    add(&store, &account("alice", &[(CHAIN, address(0xa1))])).await.unwrap();
    connect(&store, &[1, 2, 3].map(|number| block(number, 1))).await;
    for (number, tag) in [(1, 1), (1, 2), (1, 3), (2, 4), (3, 5), (3, 6)] {
        record(&store, number, &arrival(tag, Verdict::IneligibleTokenAccount)).await;
    }
    let whole = list(&store, false, None, 10).await;
    let numbers: Vec<u64> = whole.iter().map(|arrival| arrival.block.number).collect();
    assert_eq!(numbers, [3, 3, 2, 1, 1, 1]);
    for width in 1..=4 {
        let mut paged: Vec<Arrival> = Vec::new();
        loop {
            let page = list(&store, false, paged.last(), width).await;
            if page.is_empty() {
                break;
            }
            paged.extend(page);
        }
        assert_eq!(paged, whole, "{width} a page");
    }
    let first = &whole[5];
    assert_eq!((first.account_id.as_deref(), first.sender_rule), (Some("alice"), SenderRule::StandIn));
    assert_eq!((first.at, first.is_final), (landfall::time::Timestamp::from_secs(12), false));
}

async fn pruning_keeps_blocks_with_arrivals(store: TestStore) {
    connect(&store, &[1, 2, 3].map(|number| block(number, 1))).await;
    record(&store, 2, &arrival(5, Verdict::IneligibleTokenAccount)).await;
    write(&store, async |tx| cursors::prune(tx, CHAIN, 0, 4).await.unwrap()).await;
    assert_eq!(canonical(&store, 0, 9).await, [block(2, 1).header.block]);
    assert_eq!(arrived(&store).await, U256::from(5));
}

async fn the_rule_of_a_sender_survives_storage(store: TestStore) {
    add(&store, &account("alice", &[])).await.unwrap();
    let of = deposit(1);
    assert_eq!(of.sender_rule, SenderRule::Reported);
    let later = landfall::deposit::Deposit { sender: address(7), sender_rule: SenderRule::Instruction, ..of.clone() };
    write(&store, async |tx| deposits::insert(tx, &of).await.unwrap()).await;
    write(&store, async |tx| deposits::set_sender(tx, &later).await.unwrap()).await;
    let mut reader = store.db.read().await.unwrap();
    assert_eq!(deposits::by_id(&mut reader, of.id).await.unwrap(), Some(later));
}
