//! Mistakes that others have made with money that goes out, each as a scene of ours: rows of the index of failures. The
//! other rows are where the part of the product that they concern is tested.

use std::time::Duration;

use landfall::transfer::{State, TransferId};
use landfall_sim::{Fault, SendFault};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::{Bench, may_pass};
use crate::harness::lanes::given_seed;
use crate::harness::postgres::{ENGINES, Engine};

/// Longer than bytes wait to be sent again, and shorter than it takes until another attempt is made.
const RESENT: Duration = Duration::from_secs(11);

impl Bench {
    /// It is CONFIRMED, and the chain took its key once.
    async fn assert_paid_once(&mut self, id: TransferId) {
        assert_eq!(self.until_ended(id).await, State::Confirmed);
        assert_eq!(self.payments(id).len(), 1);
    }

    /// The nonces that were given, one for each attempt.
    async fn nonces(&self) -> Vec<i64> {
        self.attempts().await.into_iter().map(|(_, nonce, ..)| nonce).collect()
    }
}

#[tokio::test]
async fn t6_with_three_of_ten_calls_failing_each_transfer_is_paid_once() {
    let seed = given_seed();
    let mut rng = StdRng::seed_from_u64(seed);
    let mut bench = Bench::on(Engine::Sqlite, 2).await;
    let mut ids = Vec::new();
    for n in 0..20 {
        ids.push(bench.accept(n, 1_000).await);
        for _ in 0..3 {
            let fails = rng.random_bool(0.3);
            bench.world.chain.script([if fails { Fault::Fail } else { Fault::Late(Duration::ZERO) }]);
            let lost = [SendFault::Silent, SendFault::Lost][rng.random_range(0..2)];
            bench.world.chain.script_sends(fails.then_some(lost));
            if let Err(error) = bench.sender.tick(&bench.world.clock()).await {
                assert!(may_pass(&error), "seed {seed}: {error}");
            }
        }
        bench.world.chain.mine_pool();
        bench.world.keep_time();
        bench.world.tick_or_fail_for_now().await;
    }
    bench.world.chain.behave();
    bench.world.chain.take_sends();
    for id in ids {
        let state = bench.until_ended(id).await;
        assert_eq!((state, bench.payments(id).len()), (State::Confirmed, 1), "seed {seed}");
    }
    bench.close().await;
}

#[tokio::test]
async fn t7_a_broadcast_that_times_out_frees_no_nonce() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine, 1).await;
        bench.world.chain.script_sends([SendFault::Lost, SendFault::Silent]);
        let id = bench.accept(1, 1_000).await;
        bench.settle().await;
        bench.world.pass(RESENT);
        bench.settle().await;
        let other = bench.accept(2, 1_000).await;
        bench.settle().await;
        assert_eq!(bench.nonces().await, [0, 1], "the first keeps its nonce, and the next one gets another");
        bench.assert_paid_once(id).await;
        bench.assert_paid_once(other).await;
        bench.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t8_what_landed_before_a_pause_of_ten_minutes_is_confirmed_behind_it() {
    for is_guarded in [false, true] {
        let mut bench =
            if is_guarded { Bench::guarded(Engine::Sqlite).await } else { Bench::on(Engine::Sqlite, 1).await };
        let id = bench.accept(1, 1_000).await;
        bench.settle().await;
        // Nobody looks for ten minutes: no status of that age is kept by any node.
        for _ in 0..50 {
            bench.world.chain.mine_pool();
        }
        bench.world.pass(Duration::from_secs(600));
        bench.restart();
        bench.settle().await;
        assert!(!bench.state(id).await.status().is_terminal(), "no verdict before the blocks are read");
        bench.follow().await;
        bench.assert_paid_once(id).await;
        bench.close().await;
    }
}

#[tokio::test]
async fn t9_a_node_that_has_processed_it_already_ends_no_attempt() {
    let mut bench = Bench::guarded(Engine::Sqlite).await;
    let id = bench.accept(1, 1_000).await;
    bench.settle().await;
    // It lands, and our own blocks are behind.
    bench.world.chain.mine_pool();
    bench.world.chain.script_sends([SendFault::NonceUsed; 5]);
    bench.world.pass(RESENT);
    bench.settle().await;
    assert_eq!((bench.state(id).await, bench.attempts().await.len()), (State::Carried, 1));
    bench.assert_paid_once(id).await;
    bench.close().await;
}

#[tokio::test]
async fn t11_a_nonce_that_is_said_to_be_too_low_brings_no_new_one() {
    let mut bench = Bench::on(Engine::Sqlite, 1).await;
    bench.world.chain.script_sends([SendFault::NonceUsed; 3]);
    let id = bench.accept(1, 1_000).await;
    for _ in 0..3 {
        bench.settle().await;
        bench.world.pass(RESENT);
    }
    assert_eq!(bench.nonces().await, [0]);
    bench.assert_paid_once(id).await;
    assert_eq!(bench.nonces().await, [0]);
    bench.close().await;
}

#[tokio::test]
async fn t12_a_lost_answer_behind_which_the_old_nonce_landed_brings_no_new_one() {
    let mut bench = Bench::on(Engine::Sqlite, 1).await;
    bench.world.chain.script_sends([SendFault::Silent]);
    let id = bench.accept(1, 1_000).await;
    bench.settle().await;
    // The chain is ahead of our blocks: an endpoint reports that the nonce is used.
    bench.world.chain.mine_pool();
    bench.world.pass(RESENT);
    bench.settle().await;
    assert_eq!(bench.nonces().await, [0]);
    bench.assert_paid_once(id).await;
    assert_eq!(bench.world.chain.sent(&bench.sponsor(0)), 1);
    bench.close().await;
}
