//! The cursor and its blocks: placed once, moved only from where it stands, taken back in a reorg, pruned.

use landfall::store::StoreError;
use landfall::store::cursors::{self, Cursor};
use landfall_chain::Block;

use super::cast::{CHAIN, OTHER_CHAIN, block, canonical, connect, cursor, deposit, include, insert, rows, write};
use crate::harness::postgres::TestStore;

on_both_engines!(
    a_cursor_is_placed_once,
    a_cursor_moves_only_from_where_it_stands,
    an_older_final_block_changes_nothing,
    what_was_looked_at_goes_back_with_the_cursor,
    a_number_is_passed_over_by_the_link_above_it,
    disconnecting_a_block_deletes_nothing_and_it_can_be_connected_again,
    two_canonical_blocks_at_one_number_are_refused,
    pruning_keeps_blocks_in_which_a_deposit_was_seen,
);

async fn a_cursor_is_placed_once(store: TestStore) {
    assert_eq!(cursor(&store).await, Cursor { at: None, finalized: None, looked: 0, watch_seq: 0 });
    let (first, second) = (block(5, 1).header.block, block(6, 1).header.block);
    write(&store, async |tx| {
        Cursor::lock(tx, CHAIN).await.unwrap();
        Cursor::place(tx, CHAIN, &first).await.unwrap();
        let refused = Cursor::place(tx, CHAIN, &second).await.unwrap_err();
        assert!(matches!(refused, StoreError::Moved { chain: CHAIN }), "{refused:?}");
        assert!(refused.may_pass());
    })
    .await;
    assert_eq!(cursor(&store).await.at, Some(first));
    let other = Cursor::load(&mut store.db.read().await.unwrap(), OTHER_CHAIN).await.unwrap();
    assert_eq!(other.at, None, "another chain has a cursor of its own");
}

async fn a_cursor_moves_only_from_where_it_stands(store: TestStore) {
    let [old, stale, new, back] = [(5, 1), (5, 2), (6, 1), (4, 1)].map(|(number, tag)| block(number, tag).header.block);
    write(&store, async |tx| {
        Cursor::lock(tx, CHAIN).await.unwrap();
        Cursor::place(tx, CHAIN, &old).await.unwrap();
        for wrong in [&stale, &new] {
            let refused = Cursor::shift(tx, CHAIN, wrong, &new).await;
            assert!(matches!(refused, Err(StoreError::Moved { chain: CHAIN })), "{refused:?}");
        }
    })
    .await;
    assert_eq!(cursor(&store).await.at, Some(old), "nothing has changed");
    write(&store, async |tx| Cursor::shift(tx, CHAIN, &old, &new).await.unwrap()).await;
    assert_eq!(cursor(&store).await.at, Some(new));
    write(&store, async |tx| Cursor::shift(tx, CHAIN, &new, &back).await.unwrap()).await;
    assert_eq!(cursor(&store).await.at, Some(back), "a reorg takes it back");
}

async fn an_older_final_block_changes_nothing(store: TestStore) {
    let newer = block(10, 1).header.block;
    write(&store, async |tx| {
        Cursor::lock(tx, CHAIN).await.unwrap();
        Cursor::finalize(tx, CHAIN, &newer).await.unwrap();
        for older in [block(9, 1), block(10, 2)] {
            Cursor::finalize(tx, CHAIN, &older.header.block).await.unwrap();
        }
    })
    .await;
    assert_eq!(cursor(&store).await.finalized, Some(newer), "also not another block at the same number");
    let newest = block(11, 2).header.block;
    write(&store, async |tx| Cursor::finalize(tx, CHAIN, &newest).await.unwrap()).await;
    assert_eq!(cursor(&store).await.finalized, Some(newest));
}

async fn what_was_looked_at_goes_back_with_the_cursor(store: TestStore) {
    let [first, newest, fork_point, beside] =
        [(5, 1), (20, 1), (12, 1), (14, 2)].map(|(number, tag)| block(number, tag).header.block);
    write(&store, async |tx| {
        Cursor::lock(tx, CHAIN).await.unwrap();
        Cursor::place(tx, CHAIN, &first).await.unwrap();
        assert_eq!(Cursor::load(tx, CHAIN).await.unwrap().looked, 5, "what it begins on");
        Cursor::shift(tx, CHAIN, &first, &newest).await.unwrap();
        Cursor::look(tx, CHAIN, 18).await.unwrap();
    })
    .await;
    assert_eq!(cursor(&store).await.looked, 18);
    write(&store, async |tx| Cursor::shift(tx, CHAIN, &newest, &fork_point).await.unwrap()).await;
    assert_eq!(cursor(&store).await.looked, 12);
    write(&store, async |tx| Cursor::shift(tx, CHAIN, &fork_point, &beside).await.unwrap()).await;
    assert_eq!(cursor(&store).await.looked, 12);
}

async fn a_number_is_passed_over_by_the_link_above_it(store: TestStore) {
    let on = |number, parent: &Block| {
        let mut on = block(number, 1);
        on.header.parent = parent.header.block;
        on
    };
    let [two, unknown] = [2, 5].map(|number| block(number, 1));
    let (four, eight) = (on(4, &two), on(8, &unknown));
    connect(&store, &[two.clone(), four, eight]).await;
    let mut reader = store.db.read().await.unwrap();
    let mut below = Vec::new();
    for number in 1..=8 {
        below.extend(cursors::passed_over(&mut reader, CHAIN, number).await.unwrap().map(|below| (number, below)));
    }
    assert_eq!(below, [(3, two.header.block)], "what 8 stands on is not on record");
    let mut linked = Vec::new();
    for number in 1..=8 {
        let link = cursors::stands_on(&mut reader, CHAIN, number).await.unwrap();
        linked.extend(link.map(|(below, above)| (number, below.number, above.number)));
    }
    assert_eq!(linked, [(2, 2, 4), (3, 2, 4)], "what 8 stands on is not on record");
    let mut through = Vec::new();
    for number in [1, 2, 3, 9] {
        let ours = cursors::canonical_through(&mut reader, CHAIN, number).await.unwrap();
        through.push(ours.map(|ours| ours.number));
    }
    assert_eq!(through, [None, Some(2), Some(2), Some(8)]);
}

async fn disconnecting_a_block_deletes_nothing_and_it_can_be_connected_again(store: TestStore) {
    connect(&store, &[block(1, 1), block(2, 1), block(3, 1)]).await;
    let gone = write(&store, async |tx| cursors::disconnect(tx, CHAIN, &block(1, 1).header.block).await.unwrap()).await;
    assert_eq!(gone, 2, "the fork point itself stays");
    assert_eq!(canonical(&store, 0, 9).await, [block(1, 1).header.block]);
    assert_eq!(rows::<(i64,)>(&store.db, "SELECT COUNT(*) FROM blocks").await, [(3,)]);
    let again = write(&store, async |tx| cursors::disconnect(tx, CHAIN, &block(1, 1).header.block).await.unwrap());
    assert_eq!(again.await, 0);

    connect(&store, &[block(2, 2), block(3, 1)]).await;
    assert_eq!(canonical(&store, 0, 9).await, [block(3, 1), block(2, 2), block(1, 1)].map(|block| block.header.block));
    assert_eq!(canonical(&store, 2, 2).await, [block(2, 2).header.block], "both bounds are included");
    let mut reader = store.db.read().await.unwrap();
    assert_eq!(cursors::canonical_at(&mut reader, CHAIN, 2).await.unwrap(), Some(block(2, 2).header.block.hash));
    assert_eq!(cursors::canonical_at(&mut reader, CHAIN, 4).await.unwrap(), None);
    assert_eq!(cursors::oldest_from(&mut reader, CHAIN, 0).await.unwrap(), Some(1));
    assert_eq!(cursors::oldest_from(&mut reader, CHAIN, 2).await.unwrap(), Some(2));
    assert_eq!(cursors::oldest_from(&mut reader, OTHER_CHAIN, 0).await.unwrap(), None);
}

async fn two_canonical_blocks_at_one_number_are_refused(store: TestStore) {
    connect(&store, &[block(1, 1)]).await;
    let mut tx = store.db.begin().await.unwrap();
    let refused = cursors::connect(&mut tx, CHAIN, &block(1, 2), true).await.unwrap_err();
    assert!(matches!(refused, StoreError::Failed { .. }) && !refused.may_pass(), "{refused:?}");
    drop(tx);
    assert_eq!(canonical(&store, 0, 9).await, [block(1, 1).header.block]);
}

async fn pruning_keeps_blocks_in_which_a_deposit_was_seen(store: TestStore) {
    connect(&store, &[1, 2, 3, 4].map(|number| block(number, 1))).await;
    let seen = insert(&store, deposit(1)).await;
    include(&store, &seen, &block(2, 1)).await;
    let pruned = write(&store, async |tx| cursors::prune(tx, CHAIN, 0, 4).await.unwrap()).await;
    assert_eq!(pruned, 2, "1 and 3: 2 has a deposit, 4 is not below 4");
    assert_eq!(canonical(&store, 0, 9).await, [block(4, 1), block(2, 1)].map(|block| block.header.block));
}
