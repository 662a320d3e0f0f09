//! Accounts and watch lists: from which block an address is watched, what contradicts the record, and what two who add
//! at once do to each other.

use std::time::Duration;

use landfall::account::{AccountType, NewAccount};
use landfall::store::accounts::{self, AddAccountError, WatchLists};
use landfall::store::cursors::Cursor;
use landfall_chain::Address;
use tokio::task::JoinSet;

use super::cast::{CHAIN, NOW, OTHER_CHAIN, account, add, address, block, connect, cursor, prepare, write};
use crate::harness::postgres::TestStore;

on_both_engines!(
    an_address_is_watched_from_the_block_behind_the_cursor,
    adding_the_same_again_changes_nothing,
    what_contradicts_the_record_is_refused_with_what_is_recorded,
    two_who_add_on_two_chains_do_not_wait_for_each_other_for_ever,
    two_who_add_one_new_account_on_different_chains_both_succeed,
    a_rolled_back_address_leaves_the_watch_list_unchanged,
);

async fn an_address_is_watched_from_the_block_behind_the_cursor(store: TestStore) {
    add(&store, &account("early", &[(CHAIN, address(1))])).await.unwrap();
    connect(&store, &[block(7, 1)]).await;
    write(&store, async |tx| Cursor::place(tx, CHAIN, &block(7, 1).header.block).await.unwrap()).await;
    add(&store, &account("late", &[(CHAIN, address(2)), (OTHER_CHAIN, address(2))])).await.unwrap();
    assert_eq!(cursor(&store).await.watch_seq, 2);

    let mut reader = store.db.read().await.unwrap();
    let accounts = accounts::list(&mut reader).await.unwrap();
    let found: Vec<_> = accounts.iter().map(|account| (account.id.as_str(), account.addresses.clone())).collect();
    let early = vec![(CHAIN, address(1), 0)];
    let late = vec![(OTHER_CHAIN, address(2), 0), (CHAIN, address(2), 8)];
    assert_eq!(found, [("early", early), ("late", late)]);
    assert!(accounts.iter().all(|account| account.kind == AccountType::Segregated && account.identity_id == "default"));

    let watched = accounts::watched_since(&mut reader, CHAIN, 0, 9).await.unwrap();
    let found: Vec<_> = watched.iter().map(|watched| (watched.seq, watched.address)).collect();
    assert_eq!(found, [(1, address(1)), (2, address(2))]);
    assert_eq!(accounts::watched_since(&mut reader, CHAIN, 1, 9).await.unwrap(), watched[1..]);
    assert_eq!(accounts::watched_since(&mut reader, CHAIN, 0, 1).await.unwrap(), watched[..1]);
    assert_eq!(accounts::watched_since(&mut reader, CHAIN, 2, 9).await.unwrap(), []);
    for (at, owner) in [(1, Some("early")), (2, Some("late")), (3, None)] {
        assert_eq!(accounts::owner(&mut reader, CHAIN, &address(at)).await.unwrap().as_deref(), owner);
    }
    let elsewhere = accounts::owner(&mut reader, OTHER_CHAIN, &address(1)).await.unwrap();
    assert_eq!(elsewhere, None, "watched on another chain");
}

async fn adding_the_same_again_changes_nothing(store: TestStore) {
    let once = account("alice", &[(CHAIN, address(1))]);
    add(&store, &once).await.unwrap();
    let before = accounts::list(&mut store.db.read().await.unwrap()).await.unwrap();
    add(&store, &once).await.unwrap();
    let named = NewAccount { identity_id: Some("default".to_owned()), ..once };
    add(&store, &named).await.unwrap();
    assert_eq!(accounts::list(&mut store.db.read().await.unwrap()).await.unwrap(), before);
    assert_eq!(cursor(&store).await.watch_seq, 1, "watchers have nothing to read again");
    add(&store, &account("alice", &[(CHAIN, address(2))])).await.unwrap();
    assert_eq!(cursor(&store).await.watch_seq, 2, "an account can get more addresses");
}

async fn what_contradicts_the_record_is_refused_with_what_is_recorded(store: TestStore) {
    let alice = account("alice", &[(CHAIN, address(1))]);
    add(&store, &alice).await.unwrap();
    let cases = [
        (
            account("bob", &[(CHAIN, address(1))]),
            format!("{} on ETHEREUM_TESTNET belongs to account alice already", address(1)),
        ),
        (
            NewAccount { kind: AccountType::Omnibus, ..alice.clone() },
            "account alice exists with type SEGREGATED, not OMNIBUS".to_owned(),
        ),
        (
            NewAccount { identity_id: Some("acme".to_owned()), ..alice },
            "account alice exists with identity default, not acme".to_owned(),
        ),
        (
            NewAccount { identity_id: Some("acme".to_owned()), ..account("bob", &[(CHAIN, address(2))]) },
            "there is no identity acme".to_owned(),
        ),
    ];
    for (given, expected) in cases {
        let refused = add(&store, &given).await.unwrap_err();
        assert!(!matches!(refused, AddAccountError::Store(_)), "{refused:?}");
        assert_eq!(refused.to_string(), expected);
    }
    let mut reader = store.db.read().await.unwrap();
    assert_eq!(accounts::list(&mut reader).await.unwrap().len(), 1, "nothing of it stays");
    add(&store, &account("bob", &[(OTHER_CHAIN, address(1))])).await.unwrap();
}

async fn two_who_add_on_two_chains_do_not_wait_for_each_other_for_ever(store: TestStore) {
    const ROUNDS: u8 = 20;
    let mut adders = JoinSet::new();
    for (who, chains) in [(1, [CHAIN, OTHER_CHAIN]), (2, [OTHER_CHAIN, CHAIN])] {
        let db = store.db.clone();
        adders.spawn(async move {
            for round in 0..ROUNDS {
                let address = Address::Evm([[who; 10], [round; 10]].concat().try_into().unwrap());
                let account = account(&format!("{who}-{round}"), &chains.map(|chain| (chain, address)));
                let mut tx = db.begin().await.unwrap();
                let mut lists = WatchLists::lock(&mut tx, &chains.into()).await.unwrap();
                lists.add(&mut tx, &account, NOW).await.unwrap();
                lists.publish(&mut tx).await.unwrap();
                tx.commit().await.unwrap();
            }
        });
    }
    adders.join_all().await;
    let mut reader = store.db.read().await.unwrap();
    for chain in [CHAIN, OTHER_CHAIN] {
        let watched = accounts::watched_since(&mut reader, chain, 0, 1_000).await.unwrap();
        let seqs: Vec<u64> = watched.iter().map(|watched| watched.seq).collect();
        assert_eq!(seqs, (1..=u64::from(2 * ROUNDS)).collect::<Vec<_>>(), "without a gap on {chain}");
    }
}

async fn two_who_add_one_new_account_on_different_chains_both_succeed(store: TestStore) {
    let mut first = store.db.begin().await.unwrap();
    let mut lists = WatchLists::lock(&mut first, &[CHAIN].into()).await.unwrap();
    lists.add(&mut first, &account("alice", &[(CHAIN, address(1))]), NOW).await.unwrap();
    let mut second = JoinSet::new();
    let db = store.db.clone();
    second.spawn(async move {
        let mut tx = db.begin().await?;
        let mut lists = WatchLists::lock(&mut tx, &[OTHER_CHAIN].into()).await?;
        lists.add(&mut tx, &account("alice", &[(OTHER_CHAIN, address(1))]), NOW).await?;
        lists.publish(&mut tx).await?;
        tx.commit().await?;
        Ok::<(), AddAccountError>(())
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    lists.publish(&mut first).await.unwrap();
    first.commit().await.unwrap();
    let second = second.join_all().await.remove(0);
    assert!(second.is_ok(), "the account was added by another meanwhile: {second:?}");
    let accounts = accounts::list(&mut store.db.read().await.unwrap()).await.unwrap();
    assert_eq!(accounts.iter().map(|account| account.addresses.len()).collect::<Vec<_>>(), [2]);
}

async fn a_rolled_back_address_leaves_the_watch_list_unchanged(store: TestStore) {
    prepare(&store).await;
    let before = cursor(&store).await;
    let mut tx = store.db.begin().await.unwrap();
    let mut lists = WatchLists::lock(&mut tx, &[CHAIN].into()).await.unwrap();
    lists.add(&mut tx, &account("bob", &[(CHAIN, address(0xb0))]), NOW).await.unwrap();
    lists.publish(&mut tx).await.unwrap();
    drop(tx);
    assert_eq!(cursor(&store).await, before);
    let mut reader = store.db.read().await.unwrap();
    assert_eq!(accounts::watched_since(&mut reader, CHAIN, before.watch_seq, 9).await.unwrap(), []);
    assert_eq!(accounts::list(&mut reader).await.unwrap().len(), 1);
}
