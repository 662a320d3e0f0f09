//! Deposits: stored whole and once, with a status that changes only as it may; what is to be settled, what is missing,
//! and how they are listed.

use std::collections::BTreeSet;

use landfall::deposit::DepositStatus::{Confirmed, Failed, Pending};
use landfall::deposit::{Deposit, DepositId, LegHash};
use landfall::store::StoreError;
use landfall::store::cursors;
use landfall::store::deposits::{self, DepositFilter};
use landfall::time::Timestamp;
use landfall_chain::{Address, AssetId, Chain, Lane, TxId, TxLife, TxRef, U256};

use super::cast::{
    CHAIN, LEASE, NOW, OTHER_CHAIN, account, add, address, block, connect, deposit, include, insert, list, missing,
    prepare, rows, settleable, write,
};
use crate::harness::postgres::TestStore;

on_both_engines!(
    every_field_of_a_deposit_survives,
    a_leg_is_refused_the_second_time,
    a_status_changes_only_from_what_it_was,
    a_confirmed_deposit_stays_confirmed,
    a_confirmed_deposit_without_its_time_is_refused,
    pending_deposits_in_canonical_blocks_are_settleable_up_to_a_height,
    a_pending_deposit_in_no_canonical_block_is_missing_once_its_height_is_final,
    what_is_missing_longest_is_looked_for_first_and_what_was_never_looked_for_before_all,
    confirmed_amounts_are_those_of_one_transaction_asset_and_recipient,
    confirmed_deposits_above_a_block_are_counted,
    deposits_are_listed_by_each_filter_with_both_bounds_included,
    deposits_made_at_one_moment_are_listed_page_by_page_without_loss,
);

async fn every_field_of_a_deposit_survives(store: TestStore) {
    let evm = Deposit { source_account_id: Some("alice".to_owned()), ..deposit(1) };
    let solana = Deposit {
        chain: Chain::SolanaMainnet,
        tx: TxRef { id: TxId::Solana([9; 64]), life: evm.tx.life },
        asset: AssetId::Token(Address::Solana([7; 32])),
        sender: Address::Solana([0; 32]),
        recipient: Address::Solana([0xff; 32]),
        symbol: "ÜSD\u{20bf}".to_owned(),
        ..deposit(2)
    };
    let extreme = Deposit {
        asset: AssetId::Token(address(3)),
        tx: TxRef { life: TxLife::Nonce { signer: address(9), nonce: u64::MAX }, ..evm.tx },
        amount: U256::MAX,
        nth: u32::MAX,
        decimals: u8::MAX,
        created_at: Timestamp(i64::MAX),
        ..deposit(3)
    };
    let least = Deposit { amount: U256::from(1), nth: 0, decimals: 0, created_at: Timestamp(-1), ..deposit(4) };
    prepare(&store).await;
    let mut reader = store.db.read().await.unwrap();
    for given in [evm, solana, extreme, least] {
        write(&store, async |tx| deposits::insert(tx, &given).await.unwrap()).await;
        assert_eq!(deposits::by_id(&mut reader, given.id).await.unwrap().as_ref(), Some(&given));
        assert_eq!(deposits::by_leg(&mut reader, &given.leg_hash).await.unwrap(), Some(given));
    }
    let confirmed = deposit(1).confirm(NOW).unwrap();
    write(&store, async |tx| deposits::set_status(tx, &confirmed, Pending).await.unwrap()).await;
    let read = deposits::by_id(&mut reader, confirmed.id).await.unwrap().unwrap();
    assert_eq!((read.status, read.confirmed_at), (Confirmed, Some(NOW)));
    assert_eq!(deposits::by_id(&mut reader, deposit(5).id).await.unwrap(), None);
    assert_eq!(deposits::by_leg(&mut reader, &LegHash([5; 32])).await.unwrap(), None);
    let texts: Vec<(String,)> = rows(&store.db, "SELECT amount_text FROM deposits ORDER BY amount DESC").await;
    assert_eq!(texts[0].0, U256::MAX.to_string(), "for people, and the bytes order as the numbers do");
    assert_eq!(texts.last().unwrap().0, "1");
}

async fn a_leg_is_refused_the_second_time(store: TestStore) {
    let first = insert(&store, deposit(1)).await;
    let same_id = Deposit { leg_hash: LegHash([9; 32]), ..first.clone() };
    let same_leg = Deposit { id: deposit(2).id, ..first.clone() };
    for second in [first.clone(), same_id, same_leg] {
        let mut tx = store.db.begin().await.unwrap();
        let refused = deposits::insert(&mut tx, &second).await.unwrap_err();
        assert!(matches!(refused, StoreError::Failed { .. }) && !refused.may_pass(), "{refused:?}");
    }
    assert_eq!(list(&store, &DepositFilter::default(), 9).await, [first]);
}

async fn a_status_changes_only_from_what_it_was(store: TestStore) {
    let pending = insert(&store, deposit(1)).await;
    let confirmed = pending.clone().confirm(NOW).unwrap();
    let failed = pending.clone().fail().unwrap();
    write(&store, async |tx| {
        let refused = deposits::set_status(tx, &confirmed, Failed).await.unwrap_err();
        assert!(matches!(refused, StoreError::RowsAffected { expected: 1, actual: 0, .. }), "{refused:?}");
        deposits::set_status(tx, &failed, Pending).await.unwrap();
        let refused = deposits::set_status(tx, &confirmed, Pending).await.unwrap_err();
        assert!(matches!(refused, StoreError::RowsAffected { expected: 1, actual: 0, .. }), "{refused:?}");
        let revived = failed.clone().revive().unwrap();
        deposits::set_status(tx, &revived, Failed).await.unwrap();
        let unknown = deposit(2).confirm(NOW).unwrap();
        assert!(deposits::set_status(tx, &unknown, Pending).await.is_err());
    })
    .await;
    assert_eq!(list(&store, &DepositFilter::default(), 9).await, [pending]);
}

async fn a_confirmed_deposit_stays_confirmed(store: TestStore) {
    let pending = insert(&store, deposit(1)).await;
    let confirmed = pending.clone().confirm(NOW).unwrap();
    write(&store, async |tx| deposits::set_status(tx, &confirmed, Pending).await.unwrap()).await;
    let failed = Deposit { status: Failed, ..pending.clone() };
    let later = Deposit { confirmed_at: Some(NOW.plus(LEASE)), ..confirmed.clone() };
    for to in [&pending, &failed, &later] {
        for from in [Pending, Failed, Confirmed] {
            let mut tx = store.db.begin().await.unwrap();
            let changed = deposits::set_status(&mut tx, to, from).await;
            assert!(changed.is_err(), "CONFIRMED at {NOW} became {} at {:?}", to.status, to.confirmed_at);
        }
    }
    assert_eq!(list(&store, &DepositFilter::default(), 9).await, [confirmed]);
}

async fn a_confirmed_deposit_without_its_time_is_refused(store: TestStore) {
    let pending = insert(&store, deposit(1)).await;
    let without = Deposit { status: Confirmed, ..pending.clone() };
    let too_early = Deposit { confirmed_at: Some(NOW), ..pending.clone() };
    for contradiction in [without, too_early] {
        let mut tx = store.db.begin().await.unwrap();
        let refused = deposits::set_status(&mut tx, &contradiction, Pending).await;
        assert!(matches!(refused, Err(StoreError::Failed { .. })), "{refused:?}");
    }
    assert_eq!(list(&store, &DepositFilter::default(), 9).await, [pending]);
}

async fn pending_deposits_in_canonical_blocks_are_settleable_up_to_a_height(store: TestStore) {
    connect(&store, &[block(1, 1), block(2, 1), block(3, 1)]).await;
    let mut placed = Vec::new();
    for (tag, number) in [(1, 3), (2, 2), (3, 2), (4, 1), (5, 1)] {
        let deposit = insert(&store, deposit(tag)).await;
        include(&store, &deposit, &block(number, 1)).await;
        placed.push((number, deposit.id));
    }
    insert(&store, deposit(6)).await;
    let (done, lost) = (deposit(4).confirm(NOW).unwrap(), deposit(5).fail().unwrap());
    write(&store, async |tx| {
        deposits::set_status(tx, &done, Pending).await.unwrap();
        deposits::set_status(tx, &lost, Pending).await.unwrap();
    })
    .await;
    placed.retain(|(_, id)| *id != done.id && *id != lost.id);
    placed.sort_by_key(|(number, id)| (*number, id.to_string()));
    assert_eq!(settleable(&store, 3, 9).await, placed, "lowest blocks first, and none in no block");
    assert_eq!(settleable(&store, 2, 9).await, placed[..2], "the height is included");
    assert_eq!(settleable(&store, 3, 2).await, placed[..2], "no more than the limit");
    assert_eq!(settleable(&store, 1, 9).await, [], "what is CONFIRMED or FAILED is not asked for again");

    write(&store, async |tx| cursors::disconnect(tx, CHAIN, &block(2, 1).header.block).await.unwrap()).await;
    assert_eq!(settleable(&store, 3, 9).await, placed[..2], "a disconnected block is no evidence");
}

async fn a_pending_deposit_in_no_canonical_block_is_missing_once_its_height_is_final(store: TestStore) {
    connect(&store, &[block(1, 1), block(2, 1), block(3, 1)]).await;
    let orphan = insert(&store, deposit(1)).await;
    include(&store, &orphan, &block(2, 1)).await;
    let twice = insert(&store, deposit(2)).await;
    include(&store, &twice, &block(2, 1)).await;
    assert_eq!(missing(&store, 9, 9).await, [], "both are in a canonical block");

    write(&store, async |tx| cursors::disconnect(tx, CHAIN, &block(1, 1).header.block).await.unwrap()).await;
    connect(&store, &[block(2, 2), block(3, 2)]).await;
    include(&store, &twice, &block(3, 2)).await;
    assert_eq!(missing(&store, 1, 9).await, [], "block 2 is not final yet");
    assert_eq!(missing(&store, 2, 9).await, [orphan.id], "2 is final, and the other is in another block");

    write(&store, async |tx| cursors::disconnect(tx, CHAIN, &block(2, 2).header.block).await.unwrap()).await;
    assert_eq!(missing(&store, 2, 9).await, [orphan.id], "the other was seen at 3, above what is final");
    assert_eq!(BTreeSet::from_iter(missing(&store, 3, 9).await), [orphan.id, twice.id].into());
    assert_eq!(missing(&store, 3, 1).await.len(), 1, "no more than the limit");
    let mut reader = store.db.read().await.unwrap();
    for (deposit, through, expected) in [(&orphan, 1, false), (&orphan, 2, true), (&twice, 2, false), (&twice, 3, true)]
    {
        assert_eq!(deposits::is_missing(&mut reader, deposit, Lane::Block, through).await.unwrap(), expected);
    }
    let failed = orphan.clone().fail().unwrap();
    write(&store, async |tx| deposits::set_status(tx, &failed, Pending).await.unwrap()).await;
    assert!(!deposits::is_missing(&mut reader, &orphan, Lane::Block, 3).await.unwrap(), "FAILED is decided");
    assert_eq!(missing(&store, 3, 9).await, [twice.id]);
    assert_eq!(deposits::missing(&mut reader, OTHER_CHAIN, Lane::Block, 3, 9).await.unwrap(), []);
}

async fn what_is_missing_longest_is_looked_for_first_and_what_was_never_looked_for_before_all(store: TestStore) {
    connect(&store, &[block(1, 1)]).await;
    let [young, old, never] = [deposit(1), deposit(2), deposit(3)];
    for deposit in [&young, &old, &never] {
        insert(&store, deposit.clone()).await;
        include(&store, deposit, &block(1, 1)).await;
    }
    write(&store, async |tx| {
        cursors::disconnect(tx, CHAIN, &block(0, 1).header.block).await.unwrap();
        deposits::miss(tx, young.id, 1, NOW).await.unwrap();
        deposits::miss(tx, old.id, 0, Timestamp(5)).await.unwrap();
        deposits::miss(tx, old.id, 1, NOW).await.unwrap();
    })
    .await;
    assert_eq!(missing(&store, 1, 9).await, [never.id], "the others were looked for at 1");
    assert_eq!(missing(&store, 2, 9).await, [never.id, old.id, young.id]);
    let mut reader = store.db.read().await.unwrap();
    let since: Vec<_> =
        deposits::missing(&mut reader, CHAIN, Lane::Block, 2, 9).await.unwrap().iter().map(|m| m.since).collect();
    assert_eq!(since, [None, Some(Timestamp(5)), Some(NOW)], "the earlier time stays");

    include(&store, &old, &block(1, 1)).await;
    assert_eq!(missing(&store, 2, 9).await, {
        let mut never_looked_for = [never.id, old.id];
        never_looked_for.sort_by_key(DepositId::to_string);
        [never_looked_for[0], never_looked_for[1], young.id]
    });
}

async fn confirmed_amounts_are_those_of_one_transaction_asset_and_recipient(store: TestStore) {
    let of = deposit(1);
    let leg = |tag: u8, amount: u64| Deposit { tx: of.tx, amount: U256::from(amount), ..deposit(tag) };
    let others = [
        Deposit { asset: AssetId::Native, ..leg(4, 100) },
        Deposit { recipient: address(9), ..leg(5, 200) },
        Deposit { tx: deposit(6).tx, ..leg(6, 300) },
        Deposit { chain: OTHER_CHAIN, ..leg(7, 400) },
    ];
    let of = Deposit { asset: AssetId::Token(address(7)), ..of };
    let same = [leg(2, 5), leg(3, 7)].map(|leg| Deposit { asset: of.asset, ..leg });
    let others = others.map(|other| match other.asset {
        AssetId::Native if other.amount == U256::from(100) => other,
        _ => Deposit { asset: of.asset, ..other },
    });
    insert(&store, of.clone()).await;
    for given in same.into_iter().chain(others) {
        let confirmed = insert(&store, given).await.confirm(NOW).unwrap();
        write(&store, async |tx| deposits::set_status(tx, &confirmed, Pending).await.unwrap()).await;
    }
    let amounts = write(&store, async |tx| deposits::confirmed_of(tx, &of, Lane::Block).await.unwrap()).await;
    assert_eq!(BTreeSet::from_iter(amounts), [U256::from(5), U256::from(7)].into(), "and not the PENDING one itself");
}

async fn confirmed_deposits_above_a_block_are_counted(store: TestStore) {
    connect(&store, &[block(1, 1), block(2, 1)]).await;
    for (tag, number, confirmed) in [(1, 1, true), (2, 2, true), (3, 2, false)] {
        let deposit = insert(&store, deposit(tag)).await;
        include(&store, &deposit, &block(number, 1)).await;
        if confirmed {
            let confirmed = deposit.confirm(NOW).unwrap();
            write(&store, async |tx| deposits::set_status(tx, &confirmed, Pending).await.unwrap()).await;
        }
    }
    let mut reader = store.db.read().await.unwrap();
    for (above, count) in [(0, 2), (1, 1), (2, 0)] {
        assert_eq!(deposits::confirmed_above(&mut reader, CHAIN, above).await.unwrap().0, count, "above {above}");
    }
    assert_eq!(deposits::confirmed_above(&mut reader, OTHER_CHAIN, 0).await.unwrap(), (0, None));
}

async fn deposits_are_listed_by_each_filter_with_both_bounds_included(store: TestStore) {
    prepare(&store).await;
    add(&store, &account("bob", &[(CHAIN, address(0xb0))])).await.unwrap();
    let at = |tag: u8, micros: i64| Deposit { created_at: Timestamp(micros), ..deposit(tag) };
    let first = at(1, 10);
    let second = Deposit { account_id: "bob".to_owned(), ..at(2, 20) };
    let third = Deposit { chain: OTHER_CHAIN, ..at(3, 30) };
    let fourth = Deposit { symbol: "USDC".to_owned(), ..at(4, 40) };
    for deposit in [&first, &second, &third, &fourth] {
        write(&store, async |tx| deposits::insert(tx, deposit).await.unwrap()).await;
    }
    let all = DepositFilter::default();
    let between = |start: i64, end: i64| DepositFilter {
        start: Some(Timestamp(start)),
        end: Some(Timestamp(end)),
        ..DepositFilter::default()
    };
    let cases = [
        (all.clone(), vec![&fourth, &third, &second, &first]),
        (DepositFilter { account_id: Some("bob".to_owned()), ..all.clone() }, vec![&second]),
        (DepositFilter { account_id: Some("carol".to_owned()), ..all.clone() }, vec![]),
        (DepositFilter { account_id: Some("b%".to_owned()), ..all.clone() }, vec![]),
        (DepositFilter { chain: Some(OTHER_CHAIN), ..all.clone() }, vec![&third]),
        (DepositFilter { symbol: Some("USDC".to_owned()), ..all.clone() }, vec![&fourth]),
        (DepositFilter { symbol: Some("usdc".to_owned()), ..all.clone() }, vec![]),
        (between(20, 30), vec![&third, &second]),
        (between(21, 29), vec![]),
        (between(20, 20), vec![&second]),
        (between(30, 20), vec![]),
        (between(i64::MIN, i64::MAX), vec![&fourth, &third, &second, &first]),
        (DepositFilter { after: Some((Timestamp(30), third.id)), ..all.clone() }, vec![&second, &first]),
        (DepositFilter { after: Some((Timestamp(25), fourth.id)), ..all }, vec![&second, &first]),
        (DepositFilter { after: Some((Timestamp(30), third.id)), ..between(15, 99) }, vec![&second]),
    ];
    for (filter, expected) in cases {
        assert_eq!(list(&store, &filter, 9).await.iter().collect::<Vec<_>>(), expected, "{filter:?}");
    }
}

async fn deposits_made_at_one_moment_are_listed_page_by_page_without_loss(store: TestStore) {
    prepare(&store).await;
    let mut expected = Vec::new();
    write(&store, async |tx| {
        for tag in 1..=20 {
            let deposit = Deposit { created_at: Timestamp(i64::from(tag / 10)), ..deposit(tag) };
            deposits::insert(tx, &deposit).await.unwrap();
            expected.push(deposit);
        }
    })
    .await;
    expected.sort_by_key(|deposit| std::cmp::Reverse((deposit.created_at, deposit.id.to_string())));
    for limit in [1, 3, 7, 20] {
        let mut filter = DepositFilter::default();
        let mut listed = Vec::new();
        while let page @ [.., last] = list(&store, &filter, limit).await.as_slice() {
            assert!(page.len() <= usize::try_from(limit).unwrap());
            filter.after = Some((last.created_at, last.id));
            listed.extend_from_slice(page);
            assert!(listed.len() <= expected.len(), "in pages of {limit}, one is listed twice");
        }
        assert_eq!(listed, expected, "in pages of {limit}");
    }
}

/// In Danish "aa" is a letter behind all others, so that an id may stand behind "g".
#[tokio::test]
async fn where_the_database_orders_words_as_a_language_does_pages_leave_out_no_deposit() {
    let store = TestStore::ordered_as("da").await;
    prepare(&store).await;
    let mut expected = Vec::new();
    write(&store, async |tx| {
        for (tag, head) in (1..).zip(["aa", "ab", "a0", "fe", "ff", "0a", "aaaa", "faa0", "00aa"].repeat(2)) {
            let id = DepositId(uuid::Uuid::parse_str(&format!("{head:0<30}{tag:02}")).unwrap());
            let symbol = if tag % 2 == 0 { "USDC" } else { "ETH" };
            let deposit = Deposit { id, symbol: symbol.to_owned(), ..deposit(tag) };
            deposits::insert(tx, &deposit).await.unwrap();
            expected.push(deposit);
        }
    })
    .await;
    expected.sort_by_key(|deposit| std::cmp::Reverse(deposit.id));
    let all = DepositFilter { end: Some(NOW), ..DepositFilter::default() };
    let of_account = DepositFilter { account_id: Some("alice".to_owned()), ..all.clone() };
    let of_chain = DepositFilter { chain: Some(CHAIN), ..of_account.clone() };
    for filter in [all, of_account, of_chain] {
        assert_eq!(page_by_page(&store, &filter, 3).await, expected, "{filter:?}");
    }
}

async fn page_by_page(store: &TestStore, filter: &DepositFilter, limit: u32) -> Vec<Deposit> {
    let (mut filter, mut listed) = (filter.clone(), Vec::new());
    while let page @ [.., last] = list(store, &filter, limit).await.as_slice() {
        filter.after = Some((last.created_at, last.id));
        listed.extend_from_slice(page);
    }
    listed
}
