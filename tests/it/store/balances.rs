//! What makes an address due to be read, and until when.

use landfall::store::balances::{self, Reading};
use landfall::store::{movements, unattributed};
use landfall_chain::{
    Address, AssetId, AssetTransfer, Fee, Lane, Proof, Rejected, SenderRule, TxId, TxLife, TxRef, U256, Verdict,
};

use super::cast::{CHAIN, NOW, OTHER_CHAIN, address, block, connect, deposit, include, insert, write};
use crate::postgres::TestStore;

on_both_engines!(
    whatever_is_recorded_of_a_watched_address_makes_it_due_once_it_is_final,
    who_is_added_is_due_at_once_and_a_reading_ends_it,
);

const ALICE: u8 = 0xa1;

fn transfer(sender: u8, recipient: u8) -> AssetTransfer {
    AssetTransfer {
        tx: TxRef { id: TxId::Evm([7; 32]), life: TxLife::Block },
        asset: AssetId::Native,
        sender: address(sender),
        sender_rule: SenderRule::Told,
        recipient: address(recipient),
        amount: U256::from(7),
        nth: 0,
    }
}

async fn moved(store: &TestStore, through: u64) -> Vec<Address> {
    balances::moved_by(&mut store.db.read().await.unwrap(), CHAIN, through, 9).await.unwrap()
}

/// Reads her at the block.
async fn read(store: &TestStore, number: u64) {
    let (who, amounts) = (address(ALICE), [(AssetId::Native, U256::from(number))]);
    let reading = Reading { address: &who, number, hash: None, proof: Proof::OneEndpoint, amounts: &amounts };
    write(store, async |tx| balances::set(tx, CHAIN, &reading, NOW).await.unwrap()).await;
}

async fn whatever_is_recorded_of_a_watched_address_makes_it_due_once_it_is_final(store: TestStore) {
    let pending = insert(&store, deposit(1)).await;
    let blocks = [5, 6, 7, 8].map(|number| block(number, 1));
    connect(&store, &blocks).await;
    read(&store, 4).await;
    let leg = deposit(2).leg_hash;
    for (place, number) in (5..=8).enumerate() {
        let at = blocks[place].header.block;
        match number {
            5 => include(&store, &pending, &blocks[place]).await,
            6 => {
                let gone = transfer(ALICE, 9);
                write(&store, async |tx| movements::debit(tx, CHAIN, &at, Lane::Roots, &leg, &gone).await.unwrap())
                    .await;
            }
            7 => {
                let fee = Fee { tx: transfer(1, 2).tx, payer: address(ALICE), amount: U256::from(7), proved: true };
                write(&store, async |tx| movements::fee(tx, CHAIN, &at, &fee).await.unwrap()).await;
            }
            _ => {
                let rejected = Rejected { transfer: transfer(9, ALICE), verdict: Verdict::RentRefund };
                write(&store, async |tx| unattributed::insert(tx, CHAIN, &at, &leg, &rejected).await.unwrap()).await;
            }
        }
        assert_eq!(moved(&store, number - 1).await, [], "{number} is not final");
        assert_eq!(moved(&store, number).await, [address(ALICE)], "{number}");
        // One of an earlier block says nothing of it.
        read(&store, number - 1).await;
        assert_eq!(moved(&store, number).await, [address(ALICE)], "{number}");
        read(&store, number).await;
        assert_eq!(moved(&store, 99).await, [], "{number}");
    }
    // What was read of a later block has it already, and nobody else is read.
    include(&store, &pending, &blocks[2]).await;
    let others = Fee { tx: transfer(1, 2).tx, payer: address(9), amount: U256::from(7), proved: true };
    let newest = block(9, 1).header.block;
    write(&store, async |tx| movements::fee(tx, CHAIN, &newest, &others).await.unwrap()).await;
    assert_eq!(moved(&store, 99).await, []);
}

async fn who_is_added_is_due_at_once_and_a_reading_ends_it(store: TestStore) {
    let never_read = async |chain| balances::never_read(&mut store.db.read().await.unwrap(), chain, 9).await.unwrap();
    super::cast::prepare(&store).await;
    assert_eq!(never_read(CHAIN).await, [address(ALICE)]);
    assert_eq!(never_read(OTHER_CHAIN).await, []);
    read(&store, 3).await;
    assert_eq!(never_read(CHAIN).await, []);
    super::cast::prepare(&store).await;
    assert_eq!(never_read(CHAIN).await, [], "who is there already is not added");
    write(&store, async |tx| balances::take_back(tx, CHAIN, 3).await.unwrap()).await;
    assert_eq!(never_read(CHAIN).await, [], "block 3 stands");
    write(&store, async |tx| balances::take_back(tx, CHAIN, 2).await.unwrap()).await;
    assert_eq!(never_read(CHAIN).await, [address(ALICE)]);
    let known = balances::of_account(&mut store.db.read().await.unwrap(), "alice").await.unwrap();
    assert_eq!((known.len(), known[0].held.len()), (1, 0), "nothing is known of her");
}
