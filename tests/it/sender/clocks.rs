//! Clocks of hosts: how late something is signed for the first time, and what becomes of transfers where the clock is
//! ahead of the chain's, or behind it. Only the time of final blocks ends what was not paid.

use std::time::Duration;

use landfall::time::Timestamp;
use landfall::transfer::{FailureCode, State, TransferId};
use landfall_chain::U256;

use super::{Bench, USDC};
use crate::harness::postgres::{ENGINES, Engine};

/// In seconds.
const TEN_MINUTES: i64 = 600;
/// More blocks than ten minutes, a window and finality take.
const BLOCKS_AHEAD_MAX: u32 = 120;

impl Bench {
    /// The host's clock shows so many seconds more than the newest block.
    fn set_ahead(&self, secs: i64) {
        self.world.set_clock(Timestamp(self.world.chain_time().0 + secs * 1_000_000));
    }

    /// As [`Bench::block`], on a host whose clock stays so far ahead.
    async fn block_ahead(&mut self, secs: i64) {
        self.world.chain.mine_pool();
        self.set_ahead(secs);
        self.world.catch_up().await;
        self.settle().await;
    }

    /// As [`Bench::until_ended`], on such a host. What is DROPPED is so by a final block behind its deadline.
    async fn until_ended_ahead(&mut self, id: TransferId, secs: i64) -> State {
        for _ in 0..BLOCKS_AHEAD_MAX {
            let shown = self.shown(id).await;
            if let State::Dropped(_) = shown.state {
                assert!(self.final_time() >= shown.deadline, "{secs} s ahead, and too early: {shown:?}");
            }
            if shown.state.status().is_terminal() {
                return shown.state;
            }
            self.block_ahead(secs).await;
        }
        panic!("{secs} s ahead, {id} does not end: {:?}", self.shown(id).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_less_than_thirty_seconds_left_of_the_window_nothing_is_signed_for_the_first_time() {
    for (engine, left) in ENGINES.into_iter().flat_map(|engine| [(engine, 29), (engine, 30)]) {
        let mut bench = Bench::on(engine, 1).await;
        let id = bench.accept(1, 1_000_000).await;
        let deadline = bench.shown(id).await.deadline;
        // Nobody sends meanwhile: the newest block is 36 seconds before the deadline.
        bench.world.chain.mine_empty(22);
        bench.world.set_clock(deadline.minus(Duration::from_secs(left)));
        bench.world.catch_up().await;
        bench.settle().await;
        if left < 30 {
            assert_eq!((bench.state(id).await, bench.signer.seq()), (State::Accepted, 0), "{engine:?}");
            assert_eq!(bench.until_ended(id).await, State::Dropped(FailureCode::NeverSigned), "{engine:?}");
            assert_eq!(bench.signer.deadline(id.0.as_bytes()), None, "{engine:?}");
            let further = bench.accept(2, 1_000_000).await;
            assert_eq!(bench.until_ended(further).await, State::Confirmed, "{engine:?}");
        } else {
            assert_eq!(bench.state(id).await, State::Carried, "{engine:?}");
            assert_eq!(bench.until_ended(id).await, State::Confirmed, "{engine:?}");
            assert_eq!(bench.payments(id).len(), 1, "{engine:?}");
        }
        bench.close().await;
    }
}

#[tokio::test]
async fn on_a_host_ten_minutes_ahead_nothing_is_signed_and_only_a_final_block_behind_its_deadline_drops_a_transfer() {
    let mut bench = Bench::on(Engine::Sqlite, 1).await;
    let carried = bench.accept(1, 4_000_000).await;
    bench.settle().await;
    bench.set_ahead(TEN_MINUTES);
    let unsigned = bench.accept(2, 1_000_000).await;
    let deadline = bench.shown(unsigned).await.deadline;
    let signed = bench.signer.seq();
    bench.settle().await;
    assert_eq!(bench.state(carried).await, State::Expiring, "by the host's clock its window is over");
    while bench.final_time() < deadline {
        assert_eq!((bench.state(unsigned).await, bench.signer.seq()), (State::Accepted, signed));
        bench.block_ahead(TEN_MINUTES).await;
    }
    assert_eq!(bench.state(unsigned).await, State::Dropped(FailureCode::NeverSigned));
    assert_eq!(bench.state(carried).await, State::Confirmed, "a block took it before its deadline");
    assert_eq!((bench.payments(carried).len(), bench.payments(unsigned).len()), (1, 0));
    assert_eq!((bench.signer.seq(), bench.attempts().await.len()), (signed, 1));
    assert_eq!(bench.available().await, U256::from(USDC - 4_000_000));
    bench.set_ahead(0);
    let further = bench.accept(3, 1_000_000).await;
    assert_eq!(bench.until_ended(further).await, State::Confirmed);
    assert_eq!(bench.payments(further).len(), 1);
    bench.close().await;
}

#[tokio::test]
async fn what_was_accepted_by_a_clock_that_was_ahead_is_paid_once_when_the_clock_is_set_right() {
    let mut bench = Bench::on(Engine::Sqlite, 1).await;
    bench.set_ahead(TEN_MINUTES);
    let id = bench.accept(1, 1_000_000).await;
    bench.settle().await;
    for _ in 0..5 {
        bench.block_ahead(TEN_MINUTES).await;
    }
    assert_eq!((bench.state(id).await, bench.signer.seq()), (State::Accepted, 0));
    bench.set_ahead(0);
    assert_eq!(bench.until_ended(id).await, State::Confirmed);
    assert_eq!((bench.payments(id).len(), bench.attempts().await.len()), (1, 1));
    bench.close().await;
}

/// Of each: by how many seconds the clock is behind, whether a transfer is signed, and how it ends. By the chain's
/// time its window is over in a minute, before the next block, or before it was accepted.
#[tokio::test]
async fn on_a_host_that_is_behind_what_no_block_can_take_is_not_signed_and_what_is_dropped_was_not_paid() {
    let cases = [
        (240, true, State::Confirmed),
        (295, false, State::Dropped(FailureCode::NeverSigned)),
        (TEN_MINUTES, false, State::Dropped(FailureCode::NeverSigned)),
    ];
    for (behind, is_signed, expected) in cases {
        let mut bench = Bench::on(Engine::Sqlite, 1).await;
        let carried = bench.accept(1, 4_000_000).await;
        bench.settle().await;
        bench.set_ahead(-behind);
        let id = bench.accept(2, 1_000_000).await;
        bench.settle().await;
        assert_eq!(bench.signer.deadline(id.0.as_bytes()).is_some(), is_signed, "{behind} s behind");
        assert_eq!(bench.until_ended_ahead(id, -behind).await, expected, "{behind} s behind");
        assert_eq!(bench.until_ended_ahead(carried, -behind).await, State::Confirmed, "{behind} s behind");
        let is_paid = expected == State::Confirmed;
        assert_eq!((bench.payments(carried).len(), bench.payments(id).len()), (1, usize::from(is_paid)));
        assert_eq!(bench.attempts().await.len(), 1 + usize::from(is_signed), "{behind} s behind");
        let left = USDC - 4_000_000 - if is_paid { 1_000_000 } else { 0 };
        assert_eq!(bench.available().await, U256::from(left), "{behind} s behind");
        bench.set_ahead(0);
        let further = bench.accept(3, 1_000_000).await;
        assert_eq!(bench.until_ended(further).await, State::Confirmed, "{behind} s behind");
        assert_eq!(bench.payments(further).len(), 1, "{behind} s behind");
        bench.close().await;
    }
}
