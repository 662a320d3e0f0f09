//! Debits and fees: once for each block however often it is read, counted only where the block is canonical, and kept
//! when old blocks are forgotten.

use landfall::store::cursors;
use landfall::store::movements::{self, Spent};
use landfall_chain::{AssetId, AssetTransfer, Fee, Lane, SenderRule, TxId, TxLife, TxRef, U256};

use super::cast::{CHAIN, OTHER_CHAIN, address, block, canonical, connect, deposit, rows, write};
use crate::harness::postgres::TestStore;

on_both_engines!(
    what_is_recorded_twice_counts_once_and_only_in_canonical_blocks,
    sums_are_of_one_chain_address_and_asset_and_of_both_bounds,
    sums_beyond_64_bits_are_exact,
    pruning_keeps_blocks_with_debits_or_fees_and_those_that_are_not_traced,
);

const SPENDER: u8 = 0xa1;

fn transfer(tag: u8, asset: AssetId, amount: U256) -> AssetTransfer {
    let tx = TxRef { id: TxId::Evm([tag; 32]), life: TxLife::Block };
    AssetTransfer {
        tx,
        asset,
        sender: address(SPENDER),
        sender_rule: SenderRule::Reported,
        recipient: address(9),
        amount,
        nth: 0,
    }
}

async fn debit(store: &TestStore, number: u64, tag: u8, asset: AssetId, amount: U256) {
    let leg = deposit(tag).leg_hash;
    let at = block(number, 1).header.block;
    let transfer = transfer(tag, asset, amount);
    write(store, async |tx| movements::debit(tx, CHAIN, &at, Lane::Block, &leg, &transfer).await.unwrap()).await;
}

async fn fee(store: &TestStore, number: u64, tag: u8, amount: u64) {
    let tx = TxRef { id: TxId::Evm([tag; 32]), life: TxLife::Block };
    let fee = Fee { tx, payer: address(SPENDER), amount: U256::from(amount), outlay: 0, proved: true };
    let at = block(number, 1).header.block;
    write(store, async |tx| movements::fee(tx, CHAIN, &at, &fee).await.unwrap()).await;
}

async fn spent(store: &TestStore, asset: AssetId, from: u64, to: u64) -> (U256, U256) {
    let mut reader = store.db.read().await.unwrap();
    let Spent { debits, fees } =
        movements::spent(&mut reader, CHAIN, &address(SPENDER), &asset, &(from..=to)).await.unwrap();
    (debits, fees)
}

fn small(debits: u64, fees: u64) -> (U256, U256) {
    (U256::from(debits), U256::from(fees))
}

async fn what_is_recorded_twice_counts_once_and_only_in_canonical_blocks(store: TestStore) {
    connect(&store, &[block(1, 1), block(2, 1)]).await;
    for _ in 0..2 {
        debit(&store, 2, 1, AssetId::Native, U256::from(5)).await;
        debit(&store, 2, 2, AssetId::Native, U256::from(6)).await;
        fee(&store, 2, 1, 7).await;
    }
    assert_eq!(spent(&store, AssetId::Native, 0, 9).await, small(11, 7));
    let fork_point = block(1, 1).header.block;
    write(&store, async |tx| cursors::disconnect(tx, CHAIN, &fork_point).await.unwrap()).await;
    assert_eq!(
        spent(&store, AssetId::Native, 0, 9).await,
        small(0, 0),
        "of a block that was taken back nothing counts"
    );
    connect(&store, &[block(2, 1)]).await;
    debit(&store, 2, 1, AssetId::Native, U256::from(5)).await;
    assert_eq!(spent(&store, AssetId::Native, 0, 9).await, small(11, 7), "connected again, and read again");
}

async fn sums_are_of_one_chain_address_and_asset_and_of_both_bounds(store: TestStore) {
    connect(&store, &[1, 2, 3, 4].map(|number| block(number, 1))).await;
    let token = AssetId::Token(address(0x70));
    for number in 1..=4 {
        let tag = u8::try_from(number).unwrap();
        debit(&store, number, tag, AssetId::Native, U256::from(number)).await;
        debit(&store, number, 10 + tag, token, U256::from(10 * number)).await;
        fee(&store, number, tag, 100 * number).await;
    }
    assert_eq!(spent(&store, AssetId::Native, 2, 3).await, small(5, 500));
    assert_eq!(spent(&store, token, 2, 3).await, small(50, 0), "fees are paid in the native currency");
    let mut reader = store.db.read().await.unwrap();
    let nothing = Spent { debits: U256::ZERO, fees: U256::ZERO };
    for (chain, who) in [(OTHER_CHAIN, SPENDER), (CHAIN, 9)] {
        let other = movements::spent(&mut reader, chain, &address(who), &AssetId::Native, &(0..=9)).await.unwrap();
        assert_eq!(other, nothing);
    }
}

async fn sums_beyond_64_bits_are_exact(store: TestStore) {
    connect(&store, &[block(1, 1)]).await;
    let large = U256::from(1) << 200;
    debit(&store, 1, 1, AssetId::Native, large).await;
    debit(&store, 1, 2, AssetId::Native, U256::from(1)).await;
    assert_eq!(spent(&store, AssetId::Native, 0, 9).await.0, large + U256::from(1));
    let texts: Vec<(String,)> = rows(&store.db, "SELECT amount_text FROM debits ORDER BY amount").await;
    assert_eq!(texts, [("1".to_owned(),), (large.to_string(),)]);
    debit(&store, 1, 3, AssetId::Native, U256::MAX).await;
    let mut reader = store.db.read().await.unwrap();
    let sum = movements::spent(&mut reader, CHAIN, &address(SPENDER), &AssetId::Native, &(0..=9)).await;
    assert!(sum.is_err(), "more than there can be is no sum");
}

async fn pruning_keeps_blocks_with_debits_or_fees_and_those_that_are_not_traced(store: TestStore) {
    connect(&store, &[1, 2, 3].map(|number| block(number, 1))).await;
    write(&store, async |tx| {
        for number in 4..=5 {
            cursors::connect(tx, CHAIN, &block(number, 1), false).await.unwrap();
        }
        cursors::disconnect(tx, CHAIN, &block(4, 1).header.block).await.unwrap();
    })
    .await;
    debit(&store, 1, 1, AssetId::Native, U256::from(5)).await;
    fee(&store, 2, 1, 7).await;
    let pruned = write(&store, async |tx| cursors::prune(tx, CHAIN, 0, 9).await.unwrap()).await;
    assert_eq!(pruned, 2, "3, which nothing needs, and 5, which is not ours and need not be traced");
    assert_eq!(canonical(&store, 0, 9).await, [4, 2, 1].map(|number| block(number, 1).header.block));
}
