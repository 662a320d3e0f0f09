//! What a person cancels that may be with a node already: the token is asked to refuse it, once, and the chain decides.

use std::time::Duration;

use landfall::gas::Bearer;
use landfall::store::gas_ledger;
use landfall::transfer::{FailureCode, State, TransferId};
use landfall_chain::U256;
use landfall_sim::SendFault;

use super::{Bench, LEASE_OVER, USDC};
use crate::harness::books::rows;
use crate::harness::lanes::{cuts, cuts_of};
use crate::harness::postgres::{ENGINES, Engine};

const CANCELLED: State = State::Dropped(FailureCode::Cancelled);
const WINDOW_ELAPSED: State = State::Dropped(FailureCode::WindowElapsed);
/// A second longer than a window.
const WINDOW_OVER: Duration = Duration::from_secs(301);

impl Bench {
    /// Of each attempt what it is for, its nonce and its number there.
    async fn purposes(&self, id: TransferId) -> Vec<(String, i64, i64)> {
        let text = "SELECT transfer_id, purpose, nonce, try FROM transfer_attempts ORDER BY recorded_us, nonce, try";
        let all: Vec<(String, String, i64, i64)> = rows(self.world.db(), text).await;
        all.into_iter()
            .filter(|(of, ..)| *of == id.to_string())
            .map(|(_, what, nonce, nth)| (what, nonce, nth))
            .collect()
    }

    async fn bearers(&self, id: TransferId) -> Vec<Bearer> {
        let costs = gas_ledger::costs_of(&mut self.world.db().read().await.unwrap(), id).await.unwrap();
        costs.into_iter().map(|cost| cost.bearer).collect()
    }
}

fn payment(nonce: i64, nth: i64) -> (String, i64, i64) {
    ("payment".to_owned(), nonce, nth)
}

fn cancellation(nonce: i64, nth: i64) -> (String, i64, i64) {
    ("cancellation".to_owned(), nonce, nth)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_cancelled_is_replaced_by_its_cancellation_and_dropped_when_that_is_final() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine, 1).await;
        let id = bench.accept(1, 1_000).await;
        bench.settle().await;
        assert!(bench.cancel(id).await.unwrap());
        bench.settle().await;
        assert_eq!(bench.purposes(id).await, [payment(0, 0), cancellation(0, 1)]);
        bench.block().await;
        assert_eq!(bench.state(id).await, State::Carried, "its block is not final");
        assert_eq!(bench.available().await, U256::from(USDC - 1_000));
        assert_eq!(bench.until_ended(id).await, CANCELLED);
        let dropped = bench.shown(id).await;
        assert_eq!(dropped.reason, Some("an operator cancelled it".to_owned()));
        assert!(bench.world.now() < dropped.deadline, "not only when its window is over");
        assert_eq!(bench.history(id).await, ["accepted", "carried", "dropped"]);
        assert_eq!((bench.payments(id).len(), bench.available().await), (0, U256::from(USDC)));
        assert_eq!(bench.bearers(id).await, [Bearer::Customer]);
        // Nothing that was signed can pay any more.
        bench.world.chain.pool_all();
        bench.blocks(2).await;
        assert_eq!(bench.payments(id), []);
        assert_eq!(bench.purposes(id).await.len(), 2);
        bench.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancellation_that_loses_the_race_changes_nothing() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine, 1).await;
        let id = bench.accept(1, 1_000).await;
        bench.settle().await;
        bench.cancel(id).await.unwrap();
        bench.world.chain.script_sends([SendFault::Forgotten]);
        bench.settle().await;
        assert_eq!(bench.purposes(id).await, [payment(0, 0), cancellation(0, 1)]);
        assert_eq!(bench.until_ended(id).await, State::Confirmed);
        assert_eq!((bench.payments(id).len(), bench.available().await), (1, U256::from(USDC - 1_000)));
        assert_eq!(bench.purposes(id).await.len(), 2, "nothing more is sent");
        bench.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_reorg_takes_back_is_cancelled_and_not_carried_again() {
    let mut bench = Bench::on(Engine::Sqlite, 1).await;
    let id = bench.accept(1, 1_000).await;
    bench.settle().await;
    bench.block().await;
    assert_eq!(bench.state(id).await, State::Included);
    bench.cancel(id).await.unwrap();
    bench.settle().await;
    assert_eq!(bench.purposes(id).await, [payment(0, 0)], "a block shows it paid");
    let latest = bench.world.chain.latest().number;
    bench.world.chain.fork_at(latest - 1);
    bench.world.chain.forget_pool();
    bench.world.chain.mine_empty(2);
    bench.follow().await;
    assert_eq!(bench.until_ended(id).await, CANCELLED);
    assert_eq!(bench.payments(id), []);
    // And one that takes back the cancellation has it sent again.
    let other = bench.accept(2, 1_000).await;
    bench.settle().await;
    bench.cancel(other).await.unwrap();
    bench.settle().await;
    bench.block().await;
    let latest = bench.world.chain.latest().number;
    bench.world.chain.fork_at(latest - 1);
    bench.world.chain.forget_pool();
    bench.world.chain.mine_empty(2);
    bench.follow().await;
    assert_eq!(bench.until_ended(other).await, CANCELLED);
    bench.close().await;
}

/// The host's clock is behind the deadline, and the chain's is not: a block may pay it still.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_cancelled_while_it_expires_is_ended_on_the_chain_or_by_its_window_and_never_paid() {
    let cases = [(false, CANCELLED, "an operator cancelled it"), (true, WINDOW_ELAPSED, "no block up to the end")];
    for (engine, (is_lost, expected, why)) in ENGINES.into_iter().flat_map(|engine| cases.map(|case| (engine, case))) {
        let mut bench = Bench::on(engine, 1).await;
        let id = bench.accept(1, 1_000).await;
        bench.settle().await;
        bench.world.pass(WINDOW_OVER);
        bench.settle().await;
        assert_eq!(bench.state(id).await, State::Expiring, "{engine:?}");
        if is_lost {
            bench.world.chain.forget_pool();
            bench.world.chain.script_sends([SendFault::Lost; 400]);
        }
        assert!(bench.cancel(id).await.unwrap());
        bench.settle().await;
        let both = [payment(0, 0), cancellation(0, 1)];
        assert_eq!((bench.purposes(id).await, bench.state(id).await), (both.to_vec(), State::Expiring), "{engine:?}");
        assert_eq!(bench.until_ended(id).await, expected, "{engine:?}");
        let reason = bench.shown(id).await.reason.unwrap();
        assert!(reason.starts_with(why), "{engine:?}: {reason}");
        assert_eq!(bench.history(id).await, ["accepted", "carried", "expiring", "dropped"], "{engine:?}");
        assert_eq!(bench.purposes(id).await, both, "{engine:?}: no further payment, and no further cancellation");
        assert_eq!((bench.payments(id).len(), bench.available().await), (0, U256::from(USDC)), "{engine:?}");
        bench.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_no_block_can_pay_any_more_is_not_cancelled_on_the_chain_and_ends_as_what_ran_out_of_time() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine, 1).await;
        let id = bench.accept(1, 1_000).await;
        bench.world.chain.script_sends([SendFault::Lost; 400]);
        bench.settle().await;
        let deadline = bench.shown(id).await.deadline;
        while bench.world.chain_time() < deadline {
            bench.block().await;
        }
        assert_eq!(bench.state(id).await, State::Expiring, "{engine:?}: that block is not final");
        let signed = bench.signer.seq();
        assert!(bench.cancel(id).await.unwrap());
        assert_eq!(bench.until_ended(id).await, WINDOW_ELAPSED, "{engine:?}");
        let purposes = bench.purposes(id).await;
        assert!(purposes.iter().all(|(purpose, ..)| purpose == "payment"), "{engine:?}: {purposes:?}");
        assert_eq!((bench.signer.seq(), bench.payments(id).len()), (signed, 0), "{engine:?}: nothing more is signed");
        assert_eq!(bench.available().await, U256::from(USDC), "{engine:?}");
        bench.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_at_any_moment_leaves_one_cancellation_that_is_sent() {
    let mut cut_off = 0;
    for wakeups in cuts(50) {
        let mut bench = Bench::on(Engine::Sqlite, 1).await;
        let id = bench.accept(1, 1_000).await;
        bench.settle().await;
        bench.world.chain.forget_pool();
        bench.cancel(id).await.unwrap();
        cut_off += u32::from(bench.crash_within(wakeups).await);
        bench.world.pass(LEASE_OVER);
        bench.follow().await;
        assert_eq!(bench.until_ended(id).await, CANCELLED, "after {wakeups} wake-ups");
        let sent = bench.purposes(id).await.len();
        assert!(sent <= 3, "{sent} attempts after {wakeups} wake-ups");
        bench.close().await;
    }
    assert!(cut_off > cuts_of(15), "only {cut_off} ticks were cut off");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_of_the_store_that_goes_on_paying_pays_at_most_once_and_both_say_the_same() {
    for pays in [false, true] {
        let mut ours = Bench::on(Engine::Sqlite, 1).await;
        let id = ours.accept(1, 1_000).await;
        ours.settle().await;
        let mut theirs = ours.copied().await;
        theirs.world.pass(LEASE_OVER);
        ours.cancel(id).await.unwrap();
        if pays {
            ours.world.chain.script_sends([SendFault::Forgotten]);
        }
        ours.settle().await;
        theirs.settle().await;
        for _ in 0..60 {
            if ours.state(id).await.status().is_terminal() && theirs.state(id).await.status().is_terminal() {
                break;
            }
            ours.world.chain.mine_pool();
            theirs.follow().await;
            ours.follow().await;
        }
        let expected = if pays { State::Confirmed } else { CANCELLED };
        assert_eq!((ours.state(id).await, theirs.state(id).await), (expected, expected));
        assert_eq!(ours.payments(id).len(), usize::from(pays));
        theirs.close().await;
        ours.close().await;
    }
}

/// The signer's journal has the cancellation, and the store is an old copy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_lost_a_cancellation_finds_it_in_the_journal_and_carries_it() {
    let mut before = Bench::on(Engine::Sqlite, 1).await;
    let id = before.accept(1, 1_000).await;
    before.settle().await;
    let mut restored = before.copied().await;
    before.cancel(id).await.unwrap();
    before.settle().await;
    before.world.chain.forget_pool();
    restored.signer = before.signer.clone();
    restored.restart();
    restored.world.pass(LEASE_OVER);
    restored.settle().await;
    assert!(restored.shown(id).await.cancelled_at.is_some());
    assert_eq!(restored.until_ended(id).await, State::Dropped(FailureCode::WindowElapsed), "it recovered meanwhile");
    assert_eq!(restored.payments(id), []);
    before.world.abandon();
    restored.close().await;
}
