//! A delegate is taken away again when no payment of its wallet needs it: by what the wallet signs for that, carried by a
//! sponsor, for several wallets at once.

use std::time::Duration;

use landfall::transfer::State;
use landfall_chain::U256;

use super::{Bench, LEASE_OVER, alice, by_delegate};
use crate::harness::books::rows;
use crate::harness::lanes::{cuts, cuts_of};
use crate::harness::postgres::{ENGINES, Engine, TestStore};
use crate::harness::world::FINALITY_DEPTH;

/// Longer than others are waited for.
const RIPE: Duration = Duration::from_secs(31);
/// Blocks within which a delegate is taken away.
const SOON: u64 = 10;

impl Bench {
    pub(super) async fn delegated(engine: Engine, sponsors: u32) -> Self {
        Bench::by_route(TestStore::fresh(engine).await, 1, sponsors, by_delegate(0xd1)).await
    }

    /// Of each thing that a wallet's key signed about its code: the nonce, and whether it takes code away.
    async fn given_and_taken(&self) -> Vec<(i64, bool)> {
        let text =
            "SELECT nonce, implementation FROM authorizations WHERE signature IS NOT NULL ORDER BY wallet, nonce";
        let all: Vec<(i64, Vec<u8>)> = rows(self.world.db(), text).await;
        all.into_iter().map(|(nonce, code)| (nonce, code.iter().all(|byte| *byte == 0))).collect()
    }

    /// How many wallets may have a delegate that nothing needs.
    async fn wanted(&self) -> usize {
        let wallets: Vec<(Vec<u8>,)> = rows(self.world.db(), "SELECT wallet FROM clearings ORDER BY wallet").await;
        wallets.len()
    }

    fn acts(&self) -> bool {
        self.world.chain.acts_for(&alice())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_its_last_payment_a_wallets_delegate_is_taken_away_and_the_next_one_brings_it_again() {
    for engine in ENGINES {
        let mut bench = Bench::delegated(engine, 2).await;
        bench.world.chain.set_carrier_fee(7);
        let id = bench.accept(1, 1_000_000).await;
        assert_eq!(bench.until_ended(id).await, State::Confirmed);
        assert!(bench.acts());
        let fee = bench.shown(id).await.network_fee.unwrap();
        assert_eq!(fee.amount, U256::from(7));
        bench.blocks(SOON).await;
        assert!(!bench.acts());
        assert_eq!((bench.world.chain.clearings(), bench.wanted().await), (vec![1], 1));
        bench.blocks(FINALITY_DEPTH + SOON).await;
        assert_eq!(bench.wanted().await, 0, "a final block shows that it has none");
        let fee = bench.shown(id).await.network_fee.unwrap();
        assert_eq!(fee.amount, U256::from(14), "its customer bears that too");
        let second = bench.accept(2, 1_000_000).await;
        assert_eq!(bench.until_ended(second).await, State::Confirmed);
        assert_eq!(bench.given_and_taken().await, [(1, false), (2, true), (3, false)]);
        assert_eq!([bench.payments(id).len(), bench.payments(second).len()], [1, 1]);
        bench.blocks(SOON).await;
        assert_eq!((bench.acts(), bench.world.chain.clearings()), (false, vec![1, 1]));
        bench.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wallet_with_another_payment_waiting_keeps_its_delegate() {
    let mut bench = Bench::delegated(Engine::Sqlite, 1).await;
    let first = bench.accept(1, 1_000_000).await;
    assert_eq!(bench.until_ended(first).await, State::Confirmed);
    // It is not carried: gas is too dear.
    bench.world.chain.set_base_fee(1_000_000_000_000);
    bench.world.network.sending.max_fee = Some(2_000_000_000);
    bench.restart();
    let second = bench.accept(2, 1_000_000).await;
    bench.world.pass(LEASE_OVER);
    bench.settle().await;
    bench.blocks(SOON).await;
    assert_eq!((bench.acts(), bench.given_and_taken().await.len()), (true, 1));
    bench.world.chain.set_base_fee(1_000_000_000);
    assert_eq!(bench.until_ended(second).await, State::Confirmed);
    bench.blocks(SOON).await;
    assert_eq!(bench.given_and_taken().await, [(1, false), (2, true)]);
    assert_eq!((bench.acts(), bench.world.chain.clearings()), (false, vec![1]));
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payment_waits_while_the_delegate_is_taken_away_and_brings_it_again() {
    let mut bench = Bench::delegated(Engine::Sqlite, 1).await;
    let first = bench.accept(1, 1_000_000).await;
    assert_eq!(bench.until_ended(first).await, State::Confirmed);
    bench.world.pass(RIPE);
    bench.settle().await;
    assert_eq!(bench.given_and_taken().await, [(1, false), (2, true)]);
    let second = bench.accept(2, 1_000_000).await;
    bench.settle().await;
    assert_eq!(bench.attempts().await.len(), 2, "the first payment, and what takes its delegate away");
    bench.block().await;
    assert!(!bench.acts());
    assert_eq!(bench.until_ended(second).await, State::Confirmed);
    assert_eq!(bench.attempts().await.len(), 3, "it was carried once");
    assert_eq!(bench.given_and_taken().await, [(1, false), (2, true), (3, false)]);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_carrier_that_lands_behind_a_late_clearing_fails_and_another_brings_the_delegate_again() {
    let mut bench = Bench::delegated(Engine::Sqlite, 1).await;
    let first = bench.accept(1, 1_000_000).await;
    assert_eq!(bench.until_ended(first).await, State::Confirmed);
    bench.world.pass(RIPE);
    bench.settle().await;
    // Nobody mines it for longer than a payment waits.
    bench.world.chain.mine_empty(SOON);
    bench.follow().await;
    let second = bench.accept(2, 1_000_000).await;
    bench.settle().await;
    assert_eq!(bench.state(second).await, State::Carried);
    assert_eq!(bench.until_ended(second).await, State::Confirmed);
    assert_eq!(bench.payments(second).len(), 1);
    bench.blocks(FINALITY_DEPTH + SOON).await;
    assert!(!bench.acts());
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reorg_that_takes_the_clearing_back_has_it_carried_again_with_the_same_bytes() {
    for forgets in [false, true] {
        let mut bench = Bench::delegated(Engine::Sqlite, 1).await;
        let id = bench.accept(1, 1_000_000).await;
        assert_eq!(bench.until_ended(id).await, State::Confirmed);
        bench.blocks(SOON).await;
        assert!(!bench.acts());
        let latest = bench.world.chain.latest().number;
        let final_number = bench.world.chain.finalized().unwrap().number;
        bench.world.chain.fork_at(final_number);
        if forgets {
            bench.world.chain.forget_pool();
        }
        assert!(bench.acts());
        bench.world.chain.mine_empty(latest - final_number + 1);
        bench.follow().await;
        bench.blocks(FINALITY_DEPTH + 2 * SOON).await;
        assert!(!bench.acts());
        assert_eq!(bench.given_and_taken().await, [(1, false), (2, true)]);
        assert_eq!(bench.wanted().await, 0);
        bench.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_delegates_are_to_stay_nothing_is_taken_away() {
    let mut bench = Bench::delegated(Engine::Sqlite, 1).await;
    bench.world.network.sending.clears_delegates = false;
    bench.restart();
    bench.world.pass(LEASE_OVER);
    let id = bench.accept(1, 1_000_000).await;
    assert_eq!(bench.until_ended(id).await, State::Confirmed);
    bench.blocks(2 * SOON).await;
    assert_eq!((bench.acts(), bench.given_and_taken().await.len()), (true, 1));
    // Once that is changed, it is.
    bench.world.network.sending.clears_delegates = true;
    bench.restart();
    bench.world.pass(LEASE_OVER);
    bench.blocks(SOON).await;
    assert!(!bench.acts());
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_at_any_moment_signs_one_clearing_for_a_nonce_and_has_it_carried() {
    let mut cut_off = 0;
    for wakeups in cuts(60) {
        let mut bench = Bench::delegated(Engine::Sqlite, 1).await;
        let id = bench.accept(1, 1_000_000).await;
        assert_eq!(bench.until_ended(id).await, State::Confirmed);
        bench.world.pass(RIPE);
        cut_off += u32::from(bench.crash_within(wakeups).await);
        bench.world.pass(LEASE_OVER);
        bench.blocks(SOON).await;
        assert!(!bench.acts(), "after {wakeups} wake-ups");
        assert_eq!(bench.given_and_taken().await, [(1, false), (2, true)], "after {wakeups} wake-ups");
        assert_eq!(bench.payments(id).len(), 1);
        bench.close().await;
    }
    assert!(cut_off > cuts_of(20), "only {cut_off} ticks were cut off");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_of_the_store_takes_the_same_delegate_away_and_nothing_goes_to_and_fro() {
    let mut ours = Bench::delegated(Engine::Sqlite, 1).await;
    let id = ours.accept(1, 1_000_000).await;
    assert_eq!(ours.until_ended(id).await, State::Confirmed);
    let mut theirs = ours.copied().await;
    theirs.world.pass(LEASE_OVER);
    for n in 0..30 {
        if n == 12 {
            ours.accept(2, 1_000).await;
        }
        ours.world.chain.mine_pool();
        ours.follow().await;
        theirs.follow().await;
    }
    assert!(!ours.acts());
    for bench in [&ours, &theirs] {
        let signed = bench.given_and_taken().await;
        assert!(signed.iter().all(|(nonce, takes)| *takes == (nonce % 2 == 0)), "{signed:?}");
    }
    theirs.world.abandon();
    ours.close().await;
}
