//! What is on record of the sponsors' books: readings, and what moved between them by blocks alone. What the ledger has of it is
//! in `sender::books`.

use landfall::balance::Moved;
use landfall::store::sponsor_books::{self, Kept, Owned};
use landfall::store::{balances, cursors, movements, sponsors, unattributed};
use landfall_chain::{Address, AssetId, AssetTransfer, Fee, Rejected, SenderRule, TxId, TxLife, TxRef, U256, Verdict};

use super::cast::{CHAIN, NOW, OTHER_CHAIN, address, block, connect, deposit, write};
use crate::harness::postgres::TestStore;

on_both_engines!(
    readings_stay_until_another_one_and_not_beyond_a_reorg_of_their_block,
    what_came_counts_in_canonical_blocks_and_what_is_in_no_ledger_left_by_nobody,
);

const SPONSOR: u8 = 0x50;

fn owned(number: u64, amount: u64) -> Owned {
    Owned { block: block(number, 1).header.block, amount: U256::from(amount) }
}

async fn kept(store: &TestStore) -> Option<Kept> {
    sponsor_books::of_sponsor(&mut store.db.read().await.unwrap(), CHAIN, &address(SPONSOR)).await.unwrap()
}

async fn moved(store: &TestStore, between: (u64, u64)) -> (U256, U256) {
    let mut reader = store.db.read().await.unwrap();
    let Moved { came, left, .. } = sponsor_books::moved(&mut reader, CHAIN, &address(SPONSOR), between).await.unwrap();
    (came, left)
}

async fn readings_stay_until_another_one_and_not_beyond_a_reorg_of_their_block(store: TestStore) {
    assert_eq!(kept(&store).await, None);
    let moved = Moved { came: U256::from(3), left: U256::MAX, ..Moved::default() };
    let first = Kept { newest: owned(10, 7), since: None };
    let second = Kept { newest: owned(20, 0), since: Some((owned(10, 7), moved)) };
    for written in [first, second, first, second] {
        write(&store, async |tx| {
            sponsor_books::keep(tx, CHAIN, &address(SPONSOR), &written).await.unwrap();
            sponsor_books::keep(tx, CHAIN, &address(0x51), &first).await.unwrap();
        })
        .await;
        assert_eq!(kept(&store).await, Some(written));
    }
    for (chain, number, stays) in [(OTHER_CHAIN, 1, true), (CHAIN, 20, true), (CHAIN, 19, false)] {
        write(&store, async |tx| balances::disconnect_to(tx, chain, number, NOW).await.unwrap()).await;
        assert_eq!(kept(&store).await, Some(second).filter(|_| stays), "{number}");
    }
}

async fn what_came_counts_in_canonical_blocks_and_what_is_in_no_ledger_left_by_nobody(store: TestStore) {
    let blocks: Vec<_> = (1..=5).map(|number| block(number, 1)).collect();
    connect(&store, &blocks).await;
    let tx_of = |tag: u8| TxRef { id: TxId::Evm([tag; 32]), life: TxLife::Block };
    let arrives = |to: Address, amount: u64, asset: AssetId, verdict: Verdict| {
        let (tx, sender_rule, sender) = (tx_of(9), SenderRule::Reported, address(1));
        let transfer =
            AssetTransfer { tx, asset, sender, sender_rule, recipient: to, amount: U256::from(amount), nth: 0 };
        Rejected { transfer, verdict }
    };
    let native = |amount, verdict| arrives(address(SPONSOR), amount, AssetId::Native, verdict);
    let token = AssetId::Token(Address::Evm([0x70; 20]));
    let came = [
        (2, native(1, Verdict::OwnGasTopup)),
        (3, native(10, Verdict::OwnGasTopup)),
        (4, native(100, Verdict::RentRefund)),
        (5, native(1_000, Verdict::OwnGasTopup)),
        (3, native(7, Verdict::IneligibleTokenAccount)),
        (3, arrives(address(2), 7, AssetId::Native, Verdict::OwnGasTopup)),
        (3, arrives(address(SPONSOR), 7, token, Verdict::OwnGasTopup)),
    ];
    write(&store, async |tx| {
        sponsors::add(tx, CHAIN, false, NOW).await.unwrap();
        assert!(sponsors::derived(tx, CHAIN, (0, &address(SPONSOR)), (1, 0)).await.unwrap());
        for (tag, (number, rejected)) in (1_u8..).zip(&came) {
            let (at, leg) = (block(*number, 1).header.block, deposit(tag).leg_hash);
            unattributed::insert(tx, CHAIN, &at, &leg, rejected).await.unwrap();
        }
        for (tag, outlay) in [(1, 0), (2, 890_880), (3, -20_000)] {
            let (amount, at) = (U256::from(5), block(3, 1).header.block);
            let fee = Fee { tx: tx_of(tag), payer: address(SPONSOR), amount, outlay, proved: true };
            movements::fee(tx, CHAIN, &at, &fee).await.unwrap();
        }
    })
    .await;
    let all = U256::from(20_110);
    assert_eq!(moved(&store, (2, 4)).await, (all, U256::ZERO), "above 2, and up to 4");
    assert_eq!(moved(&store, (4, 4)).await, (U256::ZERO, U256::ZERO));
    write(&store, async |tx| cursors::disconnect(tx, CHAIN, &block(3, 1).header.block).await.unwrap()).await;
    assert_eq!(moved(&store, (2, 5)).await, (U256::from(20_010), U256::ZERO));
}
