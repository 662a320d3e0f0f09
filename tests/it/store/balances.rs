//! What makes an address due to be read, and until when.

use std::time::Duration;

use landfall::store::balances::{self, Reading, Reason, Unreported};
use landfall::store::{movements, unattributed};
use landfall_chain::{
    Address, AssetId, AssetTransfer, Chain, Fee, Lane, Proof, Rejected, SenderRule, TxId, TxLife, TxRef, U256, Verdict,
};

use super::cast::{CHAIN, NOW, OTHER_CHAIN, address, block, connect, deposit, include, insert, write};
use crate::harness::postgres::TestStore;

on_both_engines!(
    whatever_is_recorded_of_a_watched_address_makes_it_due_once_it_is_final,
    who_is_added_is_due_at_once_and_a_reading_ends_it,
    what_moved_of_one_asset_is_not_in_what_was_read_of_another,
    who_is_added_is_due_again_when_all_that_leaves_is_seen,
    who_is_not_reported_rests_for_as_long_as_it_was_not,
);

const ALICE: u8 = 0xa1;

fn transfer(sender: u8, recipient: u8) -> AssetTransfer {
    AssetTransfer {
        tx: TxRef { id: TxId::Evm([7; 32]), life: TxLife::Block },
        asset: AssetId::Native,
        sender: address(sender),
        sender_rule: SenderRule::Reported,
        recipient: address(recipient),
        amount: U256::from(7),
        nth: 0,
    }
}

async fn moved(store: &TestStore, through: u64) -> Vec<Address> {
    balances::moved_by(&mut store.db.read().await.unwrap(), CHAIN, through, NOW, 9).await.unwrap()
}

/// Reads her at the block.
async fn read(store: &TestStore, number: u64) {
    read_asset(store, AssetId::Native, number).await;
    write(store, async |tx| balances::done(tx, CHAIN, &address(ALICE), number).await.unwrap()).await;
}

async fn read_asset(store: &TestStore, asset: AssetId, number: u64) {
    let (who, amount) = (address(ALICE), U256::from(number));
    let reading = Reading { address: &who, asset, amount, number, hash: None, proof: Proof::OneEndpoint };
    write(store, async |tx| balances::set(tx, CHAIN, &reading, true, NOW).await.unwrap()).await;
}

async fn queued(store: &TestStore, chain: Chain, reason: Reason) -> Vec<Address> {
    balances::queued(&mut store.db.read().await.unwrap(), chain, reason, NOW, 9).await.unwrap()
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
                write(&store, async |tx| movements::debit(tx, CHAIN, &at, Lane::Block, &leg, &gone).await.unwrap())
                    .await;
            }
            7 => {
                let fee = Fee {
                    tx: transfer(1, 2).tx,
                    payer: address(ALICE),
                    amount: U256::from(7),
                    outlay: 0,
                    proved: true,
                };
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
    let others = Fee { tx: transfer(1, 2).tx, payer: address(9), amount: U256::from(7), outlay: 0, proved: true };
    let newest = block(9, 1).header.block;
    write(&store, async |tx| movements::fee(tx, CHAIN, &newest, &others).await.unwrap()).await;
    assert_eq!(moved(&store, 99).await, []);
}

async fn who_is_added_is_due_at_once_and_a_reading_ends_it(store: TestStore) {
    super::cast::prepare(&store).await;
    assert_eq!(queued(&store, CHAIN, Reason::Added).await, [address(ALICE)]);
    assert_eq!(queued(&store, OTHER_CHAIN, Reason::Added).await, []);
    read(&store, 3).await;
    assert_eq!(queued(&store, CHAIN, Reason::Added).await, []);
    super::cast::prepare(&store).await;
    assert_eq!(queued(&store, CHAIN, Reason::Added).await, [], "who is there already is not added");
    write(&store, async |tx| balances::disconnect_to(tx, CHAIN, 3, NOW).await.unwrap()).await;
    assert_eq!(queued(&store, CHAIN, Reason::TakenBack).await, [], "block 3 stands");
    write(&store, async |tx| balances::disconnect_to(tx, CHAIN, 2, NOW).await.unwrap()).await;
    assert_eq!(queued(&store, CHAIN, Reason::TakenBack).await, [address(ALICE)]);
    assert_eq!(queued(&store, CHAIN, Reason::Added).await, []);
    let known = balances::of_account(&mut store.db.read().await.unwrap(), "alice", NOW).await.unwrap();
    assert_eq!((known.len(), known[0].held.len()), (1, 0), "nothing is known of her");
}

async fn what_moved_of_one_asset_is_not_in_what_was_read_of_another(store: TestStore) {
    super::cast::prepare(&store).await;
    let (token, at) = (AssetId::Token(address(0x70)), block(7, 1).header.block);
    connect(&store, &[block(7, 1)]).await;
    read(&store, 3).await;
    // Of the native currency nobody reported at block 9.
    read_asset(&store, token, 9).await;
    let leg = deposit(2).leg_hash;
    let gone = AssetTransfer { asset: token, ..transfer(ALICE, 9) };
    write(&store, async |tx| movements::debit(tx, CHAIN, &at, Lane::Block, &leg, &gone).await.unwrap()).await;
    assert_eq!(moved(&store, 99).await, [], "it is in what was read");
    let gone = transfer(ALICE, 9);
    let leg = deposit(3).leg_hash;
    write(&store, async |tx| movements::debit(tx, CHAIN, &at, Lane::Block, &leg, &gone).await.unwrap()).await;
    assert_eq!(moved(&store, 99).await, [address(ALICE)]);
    let mut reader = store.db.read().await.unwrap();
    for (from, to, expected) in [(6, 7, true), (0, 6, false), (7, 99, false)] {
        let moved = balances::moved_between(&mut reader, CHAIN, &address(ALICE), (from, to)).await.unwrap();
        assert_eq!(moved, expected, "above {from} up to {to}");
    }
}

async fn who_is_added_is_due_again_when_all_that_leaves_is_seen(store: TestStore) {
    super::cast::prepare(&store).await;
    read(&store, 3).await;
    let add = async |from| {
        let why = (Reason::Listed, from);
        write(&store, async |tx| balances::first(tx, CHAIN, &[address(ALICE)], why, NOW).await.unwrap()).await;
    };
    add(9).await;
    assert_eq!(queued(&store, CHAIN, Reason::Listed).await, [address(ALICE)]);
    read(&store, 6).await;
    assert_eq!((queued(&store, CHAIN, Reason::Listed).await, moved(&store, 7).await), (vec![], vec![]));
    assert_eq!(moved(&store, 8).await, [address(ALICE)], "block 8 is the last that was not searched");
    read(&store, 8).await;
    assert_eq!(moved(&store, 99).await, []);
    // One that is watched from the first block on has nothing to be seen later.
    add(0).await;
    assert_eq!(moved(&store, 99).await, []);
}

async fn who_is_not_reported_rests_for_as_long_as_it_was_not(store: TestStore) {
    super::cast::prepare(&store).await;
    let who = address(ALICE);
    let mut now = NOW;
    for rested in [30, 30, 60, 120, 240, 480, 960, 1_920, 3_600, 3_600] {
        write(&store, async |tx| balances::rest(tx, CHAIN, &who, (5, "USDC"), now).await.unwrap()).await;
        let due = async |at| {
            let mut reader = store.db.read().await.unwrap();
            balances::queued(&mut reader, CHAIN, Reason::Added, at, 9).await.unwrap()
        };
        assert_eq!(due(now.plus(Duration::from_secs(rested - 1))).await, []);
        now = now.plus(Duration::from_secs(rested));
        assert_eq!(due(now).await, [who]);
    }
    let unreported =
        async |before| balances::unreported(&mut store.db.read().await.unwrap(), CHAIN, before, 1).await.unwrap();
    assert_eq!(unreported(NOW.minus(Duration::from_secs(1))).await, []);
    assert_eq!(unreported(NOW).await, [Unreported { address: who, assets: "USDC".to_owned(), since: NOW }]);
    read(&store, 5).await;
    assert_eq!(unreported(now).await, []);
    // Who was looked at in its turn only is due from then on.
    write(&store, async |tx| balances::rest(tx, CHAIN, &who, (6, "USDC"), now).await.unwrap()).await;
    let moved_by = async |at| balances::moved_by(&mut store.db.read().await.unwrap(), CHAIN, 6, at, 9).await.unwrap();
    assert_eq!((moved_by(now).await, moved_by(now.plus(Duration::from_secs(30))).await), (vec![], vec![who]));
}
