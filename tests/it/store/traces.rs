//! What is untraced, from both ends; which deposits of traces are due for a witness; what the lane says of itself.

use std::time::Duration;

use landfall::store::cursors::{self, Cursor};
use landfall::store::deposits;
use landfall::store::traces::{self, TraceStatus, Tried};
use landfall::time::Timestamp;
use landfall_chain::{Lane, Proof};

use super::cast::{CHAIN, NOW, OTHER_CHAIN, block, connect, deposit, insert, missing, prepare, settleable, write};
use crate::harness::postgres::TestStore;

on_both_engines!(
    blocks_are_untraced_until_they_are_marked_and_again_when_they_are_connected_again,
    a_block_that_is_not_canonical_cannot_be_marked,
    deposits_of_each_lane_are_settled_by_it_and_doubts_put_them_off,
    a_deposit_that_a_trace_ever_showed_is_looked_for_by_the_lane_of_the_traces,
    the_lane_reports_how_far_it_is_and_since_when_it_is_behind,
    the_newest_block_that_long_waits_to_be_traced_is_reported_of_each_chain,
);

async fn untraced(store: &TestStore, limit: u32) -> Vec<u64> {
    untraced_from(store, 0, limit).await
}

async fn untraced_from(store: &TestStore, from: u64, limit: u32) -> Vec<u64> {
    let blocks = traces::untraced(&mut store.db.read().await.unwrap(), CHAIN, from, NOW, limit).await.unwrap();
    blocks.iter().map(|block| block.number).collect()
}

async fn connect_untraced(store: &TestStore, numbers: impl IntoIterator<Item = u64> + Send) {
    write(store, async |tx| {
        Cursor::lock(tx, CHAIN).await.unwrap();
        for number in numbers {
            cursors::connect(tx, CHAIN, &block(number, 1), false).await.unwrap();
        }
    })
    .await;
}

async fn mark(store: &TestStore, number: u64) {
    write(store, async |tx| traces::mark(tx, CHAIN, &block(number, 1).header.block, Proof::OneEndpoint).await.unwrap())
        .await;
}

async fn blocks_are_untraced_until_they_are_marked_and_again_when_they_are_connected_again(store: TestStore) {
    connect(&store, &[block(1, 1)]).await;
    connect_untraced(&store, 2..=9).await;
    assert_eq!(untraced(&store, 2).await, [2, 3, 8, 9], "from both ends");
    assert_eq!(untraced(&store, 6).await, [2, 3, 4, 5, 6, 7, 8, 9], "each once");
    assert_eq!(untraced_from(&store, 5, 2).await, [5, 6, 8, 9], "those below are left alone");
    for number in [2, 9] {
        mark(&store, number).await;
    }
    assert_eq!(untraced(&store, 1).await, [3, 8]);
    write(&store, async |tx| cursors::disconnect(tx, CHAIN, &block(8, 1).header.block).await.unwrap()).await;
    connect_untraced(&store, [9]).await;
    assert_eq!(untraced(&store, 1).await, [3, 9], "the watch list may have grown meanwhile");
    assert!(traces::untraced(&mut store.db.read().await.unwrap(), OTHER_CHAIN, 0, NOW, 9).await.unwrap().is_empty());
}

async fn a_block_that_is_not_canonical_cannot_be_marked(store: TestStore) {
    connect_untraced(&store, 1..=2).await;
    write(&store, async |tx| cursors::disconnect(tx, CHAIN, &block(1, 1).header.block).await.unwrap()).await;
    let mut tx = store.db.begin().await.unwrap();
    assert!(traces::mark(&mut tx, CHAIN, &block(2, 1).header.block, Proof::OneEndpoint).await.is_err());
}

async fn deposits_of_each_lane_are_settled_by_it_and_doubts_put_them_off(store: TestStore) {
    connect(&store, &[block(1, 1), block(2, 1)]).await;
    let [by_roots, by_trace] = [insert(&store, deposit(1)).await, insert(&store, deposit(2)).await];
    let at = block(2, 1).header.block;
    write(&store, async |tx| {
        deposits::include(tx, &by_roots, &at, Lane::Block).await.unwrap();
        deposits::include(tx, &by_trace, &at, Lane::Traces).await.unwrap();
    })
    .await;
    assert_eq!(settleable(&store, 9, 9).await, [(2, by_roots.id)]);
    let due = async |through: u64, now: Timestamp| -> Vec<_> {
        let mut reader = store.db.read().await.unwrap();
        let due = traces::settleable(&mut reader, CHAIN, through, now, 9).await.unwrap();
        due.into_iter().map(|due| (due.block, due.deposit.id)).collect()
    };
    assert_eq!(due(2, NOW).await, [(at, by_trace.id)]);
    assert_eq!(due(1, NOW).await, [], "not final yet");

    let doubt = async |why: &'static str| {
        let pause = |tries: u32| Duration::from_secs(u64::from(tries + 1));
        let tried = Tried { block: Some(at.hash), is_final: true, at: NOW };
        write(&store, async |tx| traces::doubt(tx, CHAIN, by_trace.id, why, tried, None, pause).await.unwrap()).await
    };
    assert_eq!((doubt("first").await, doubt("second").await), (0, 1));
    assert_eq!(due(2, NOW.plus(Duration::from_millis(1_999))).await, []);
    assert_eq!(due(2, NOW.plus(Duration::from_secs(2))).await.len(), 1);
    let mut reader = store.db.read().await.unwrap();
    assert_eq!(traces::doubt_of(&mut reader, by_trace.id).await.unwrap().as_deref(), Some("second"));
    assert_eq!(traces::doubt_of(&mut reader, by_roots.id).await.unwrap(), None);
    write(&store, async |tx| traces::settled(tx, by_trace.id).await.unwrap()).await;
    assert_eq!(traces::doubt_of(&mut reader, by_trace.id).await.unwrap(), None);
}

async fn a_deposit_that_a_trace_ever_showed_is_looked_for_by_the_lane_of_the_traces(store: TestStore) {
    connect(&store, &[block(1, 1), block(2, 1)]).await;
    let [by_roots, by_both] = [insert(&store, deposit(1)).await, insert(&store, deposit(2)).await];
    let [one, two] = [block(1, 1).header.block, block(2, 1).header.block];
    write(&store, async |tx| {
        deposits::include(tx, &by_roots, &two, Lane::Block).await.unwrap();
        deposits::include(tx, &by_both, &two, Lane::Block).await.unwrap();
        deposits::include(tx, &by_both, &one, Lane::Traces).await.unwrap();
        cursors::disconnect(tx, CHAIN, &block(0, 1).header.block).await.unwrap();
    })
    .await;
    assert_eq!(missing(&store, 5, 9).await, [by_roots.id]);
    let mut reader = store.db.read().await.unwrap();
    let found = deposits::missing(&mut reader, CHAIN, Lane::Traces, 5, 9).await.unwrap();
    assert_eq!(found.iter().map(|missing| missing.deposit.id).collect::<Vec<_>>(), [by_both.id]);
    assert!(deposits::is_missing(&mut reader, &by_both, Lane::Traces, 5).await.unwrap());
    assert!(!deposits::is_missing(&mut reader, &by_both, Lane::Block, 5).await.unwrap());
    let seen = deposits::seen_in(&mut reader, by_both.id).await.unwrap().unwrap();
    assert_eq!((seen.block, seen.lane, seen.canonical), (two, Lane::Block, false));
}

async fn the_lane_reports_how_far_it_is_and_since_when_it_is_behind(store: TestStore) {
    prepare(&store).await;
    let say = async |reason: &str, now: Timestamp| {
        write(&store, async |tx| traces::say(tx, CHAIN, reason, now).await.unwrap()).await;
        traces::statuses(&mut store.db.read().await.unwrap()).await.unwrap().remove(0)
    };
    let nothing = TraceStatus {
        chain: CHAIN,
        traced: None,
        reason: String::new(),
        caught_up_at: NOW,
        unwitnessed: 0,
        unwitnessed_for_long: 0,
        unwitnessed_reason: String::new(),
        by_two: None,
        by_one: None,
        put_off: 0,
        put_off_reason: String::new(),
    };
    assert_eq!(say("", NOW).await, nothing, "before the first block");
    write(&store, async |tx| {
        for number in 6..=8 {
            cursors::connect(tx, CHAIN, &block(number, 1), false).await.unwrap();
        }
        Cursor::place(tx, CHAIN, &block(8, 1).header.block).await.unwrap();
    })
    .await;
    mark(&store, 8).await;
    let behind = say("no traces", NOW.plus(Duration::from_secs(5))).await;
    let reason = "no traces".to_owned();
    assert_eq!(behind, TraceStatus { traced: Some(5), by_one: Some(8), reason, ..nothing.clone() }, "since when stays");
    mark(&store, 6).await;
    mark(&store, 7).await;
    let later = NOW.plus(Duration::from_secs(9));
    assert_eq!(say("", later).await, TraceStatus { traced: Some(8), by_one: Some(8), caught_up_at: later, ..nothing });

    let doubted = insert(&store, deposit(1)).await;
    for (tries, is_final, for_long) in [(5, false, 0), (4, true, 0), (1, true, 1)] {
        for _ in 0..tries {
            let tried = Tried { block: None, is_final, at: NOW };
            write(&store, async |tx| {
                traces::doubt(tx, CHAIN, doubted.id, "why", tried, None, |_| Duration::ZERO).await.unwrap();
            })
            .await;
        }
        let reported = say("", later).await;
        let reason = format!("deposit {}: why", doubted.id);
        assert_eq!(
            (reported.unwitnessed, reported.unwitnessed_for_long, reported.unwitnessed_reason),
            (1, for_long, reason)
        );
    }
    write(&store, async |tx| traces::forget(tx, CHAIN).await.unwrap()).await;
    assert_eq!(traces::statuses(&mut store.db.read().await.unwrap()).await.unwrap(), []);
}

async fn the_newest_block_that_long_waits_to_be_traced_is_reported_of_each_chain(store: TestStore) {
    connect(&store, &[block(1, 1)]).await;
    connect_untraced(&store, 2..=9).await;
    let since = async |secs: i64| {
        let found =
            traces::untraced_since(&mut store.db.read().await.unwrap(), Timestamp(secs * 1_000_000)).await.unwrap();
        found.into_iter().collect::<Vec<_>>()
    };
    // Block 5 is of second 60.
    for (secs, expected) in [(24, None), (60, Some(4)), (61, Some(5)), (9_999, Some(9))] {
        assert_eq!(since(secs).await, Vec::from_iter(expected.map(|number| (CHAIN, number))), "{secs}");
    }
    for number in [2, 3, 4, 9] {
        mark(&store, number).await;
    }
    assert_eq!(since(60).await, []);
    write(&store, async |tx| cursors::disconnect(tx, CHAIN, &block(7, 1).header.block).await.unwrap()).await;
    assert_eq!(since(9_999).await, [(CHAIN, 7)], "what is not on our chain moved nothing");
}
