//! What fits a tier of the network is CONFIRMED before its block is final for all; what a reorg takes back of that needs a
//! person.

use std::time::Duration;

use landfall::store::gas_ledger::Listed;
use landfall::transfer::State;
use landfall::watcher::TickError;

use super::{Bench, gas};
use crate::harness::books::rows;
use crate::harness::postgres::{ENGINES, Engine};
use crate::harness::world::{CHAIN, FINALITY_DEPTH, TOKEN};

const UP_TO: u64 = 1_000;
const DEPTH: u64 = 3;

impl Bench {
    async fn tiered(engine: Engine) -> Self {
        let mut bench = Bench::on(engine, 1).await;
        bench.world.set_tiers(&[(TOKEN, UP_TO, DEPTH)]);
        bench.settle().await;
        bench
    }

    async fn granted(&self) -> i64 {
        let counted: Vec<(i64,)> = rows(self.world.db(), "SELECT COUNT(*) FROM marks WHERE is_granted").await;
        counted[0].0
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_fits_a_tier_is_confirmed_early_and_its_cost_is_booked_when_it_is_final() {
    for engine in ENGINES {
        let mut bench = Bench::tiered(engine).await;
        let (small, large) = (bench.accept(1, UP_TO).await, bench.accept(2, UP_TO + 1).await);
        bench.settle().await;
        bench.block().await;
        bench.blocks(DEPTH - 1).await;
        assert_eq!((bench.state(small).await, bench.state(large).await), (State::Included, State::Included));
        bench.block().await;
        assert_eq!((bench.state(small).await, bench.state(large).await), (State::Confirmed, State::Included));
        let costs = |entries: &[Listed]| entries.iter().filter(|of| of.entry.kind.name() == "COST").count();
        let early = gas::ledger(&bench.world).await;
        assert_eq!(costs(&early), 0, "no block of a cost is final");
        assert!(early.iter().all(|of| of.entry.kind.name() != "RELEASE"), "what it costs is still held");
        bench.blocks(FINALITY_DEPTH - DEPTH).await;
        assert_eq!(bench.state(large).await, State::Confirmed);
        let entries = gas::ledger(&bench.world).await;
        assert_eq!(costs(&entries), 2);
        assert_eq!(entries.iter().filter(|of| of.entry.kind.name() == "RELEASE").count(), 2);
        bench.close().await;
    }
}

#[tokio::test]
async fn the_cost_of_the_last_one_is_booked_too() {
    let mut bench = Bench::tiered(Engine::Sqlite).await;
    let id = bench.accept(1, UP_TO).await;
    assert_eq!(bench.until_ended(id).await, State::Confirmed);
    bench.blocks(FINALITY_DEPTH).await;
    // The ledger is even with the chain's own, and nothing else is settled that would book it.
    bench.close().await;
}

#[tokio::test]
async fn an_operator_who_calls_a_block_final_confirms_what_is_paid_in_it() {
    let mut bench = Bench::on(Engine::Sqlite, 1).await;
    let id = bench.accept(1, UP_TO).await;
    bench.settle().await;
    bench.blocks(2).await;
    assert_eq!(bench.state(id).await, State::Included);
    let (through, hour) = (bench.world.chain.latest().number, Duration::from_secs(3_600));
    bench.world.operator().confirm_through(bench.world.db(), CHAIN, through, hour).await.unwrap();
    bench.follow().await;
    assert_eq!(bench.state(id).await, State::Confirmed);
    let audited = "SELECT what FROM audit WHERE action = 'confirmed_by_override'";
    let audited: Vec<(String,)> = rows(bench.world.db(), audited).await;
    assert!(audited.iter().any(|(what,)| what.contains(&id.to_string())), "{audited:?}");
    bench.blocks(FINALITY_DEPTH).await;
    bench.close().await;
}

#[tokio::test]
async fn what_a_reorg_takes_back_before_it_is_confirmed_is_granted_anew() {
    let mut bench = Bench::tiered(Engine::Sqlite).await;
    bench.accept(1, UP_TO).await;
    bench.settle().await;
    let below = bench.world.chain.latest().number;
    for _ in 0..=DEPTH {
        bench.world.chain.mine_pool();
    }
    bench.world.catch_up().await;
    assert_eq!(bench.granted().await, 1, "no sender has confirmed it yet");
    bench.world.chain.fork_at(below);
    bench.world.chain.mine_empty(DEPTH + 2);
    bench.world.catch_up().await;
    assert_eq!(bench.granted().await, 0);
    bench.world.abandon();
}

#[tokio::test]
async fn a_reorg_that_takes_back_what_a_tier_confirmed_needs_a_person_and_pays_nothing_again() {
    let mut bench = Bench::tiered(Engine::Sqlite).await;
    let id = bench.accept(1, UP_TO).await;
    bench.settle().await;
    let below = bench.world.chain.latest().number;
    bench.blocks(DEPTH + 1).await;
    assert_eq!(bench.state(id).await, State::Confirmed);
    bench.world.chain.fork_at(below);
    bench.world.chain.forget_pool();
    bench.world.chain.mine_empty(FINALITY_DEPTH + 5);
    bench.world.keep_time();
    match bench.world.try_tick().await {
        Err(TickError::PostFinalityReorg { confirmed, .. }) => assert_eq!(confirmed, 1),
        other => panic!("{other:?}"),
    }
    bench.world.operator().accept_reorg(bench.world.db(), CHAIN).await.unwrap();
    bench.follow().await;
    bench.blocks(3).await;
    assert_eq!((bench.state(id).await, bench.payments(id).len()), (State::Confirmed, 0));
    assert_eq!(bench.attempts().await.len(), 1);
    bench.blocks(FINALITY_DEPTH).await;
    let entries = gas::ledger(&bench.world).await;
    assert!(entries.iter().any(|of| of.entry.kind.name() == "RELEASE"), "nothing is held for ever");
    bench.world.abandon();
}
