//! Transactions: all or nothing, also when the work is dropped anywhere.

use std::task::Poll;

use landfall::event::Event;
use landfall::store::deposits::{self, DepositFilter};
use landfall::store::events::{self, History};

use super::cast::{NOW, deposit, insert, list, prepare, rows};
use crate::harness::postgres::TestStore;

on_both_engines!(
    a_transaction_that_is_dropped_is_rolled_back,
    a_transaction_that_is_cut_off_anywhere_leaves_all_or_nothing,
);

async fn a_transaction_that_is_dropped_is_rolled_back(store: TestStore) {
    prepare(&store).await;
    let mut tx = store.db.begin().await.unwrap();
    deposits::insert(&mut tx, &deposit(1)).await.unwrap();
    assert_eq!(list(&store, &DepositFilter::default(), 9).await, [], "nobody sees it before the commit");
    drop(tx);
    assert_eq!(list(&store, &DepositFilter::default(), 9).await, []);
    insert(&store, deposit(1)).await;
    assert_eq!(list(&store, &DepositFilter::default(), 9).await, [deposit(1)], "and nothing is held up");
}

async fn a_transaction_that_is_cut_off_anywhere_leaves_all_or_nothing(store: TestStore) {
    const TRIES: u8 = 100;
    // More than there are in the work; how many there are depends on how quick the database is.
    const AWAITS_MAX: u8 = 20;
    prepare(&store).await;
    let mut ended = 0;
    for tag in 1..=TRIES {
        let awaits = tag % AWAITS_MAX;
        let deposit = deposit(tag);
        let mut work = Box::pin(async {
            let mut tx = store.db.begin().await.unwrap();
            deposits::insert(&mut tx, &deposit).await.unwrap();
            let history = History::of(&mut tx, deposit.id).await.unwrap();
            events::append(&mut tx, &Event::entered(&deposit, 0), &history, NOW).await.unwrap();
            tx.commit().await.unwrap();
        });
        let mut awaits_left = awaits;
        let reached_its_end = std::future::poll_fn(|cx| match work.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(true),
            Poll::Pending if awaits_left == 0 => Poll::Ready(false),
            Poll::Pending => {
                awaits_left -= 1;
                Poll::Pending
            }
        });
        ended += u8::from(reached_its_end.await);
        drop(work);
        // One look: a commit that was cut off may still be under way.
        let text = format!(
            "SELECT (SELECT COUNT(*) FROM deposits WHERE id = '{0}'), (SELECT COUNT(*) FROM events WHERE aggregateid = '{0}')",
            deposit.id
        );
        let [(there, announced)] = rows::<(i64, i64)>(&store.db, &text).await[..] else { panic!("one row") };
        assert_eq!(there, announced, "cut off after {awaits} awaits");
    }
    assert!(ended > 0 && ended < TRIES, "{ended} of {TRIES} ended: some must be cut off, and some must not");
}
