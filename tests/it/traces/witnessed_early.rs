//! What a trace showed, and a tier or an operator calls final before it is final for all: it is CONFIRMED with its kept
//! witness, never without, and nothing of this makes it FAILED.

use std::time::Duration;

use landfall::deposit::DepositStatus::{Confirmed, Failed, Pending};
use landfall::store::audit;
use landfall::watcher::TickError;
use landfall_chain::AssetId;
use landfall_sim::{Fault, SimLeg, SimTx};

use crate::harness::postgres::{ENGINES, Engine};
use crate::harness::world::{CHAIN, FINALITY_DEPTH, TOKEN, World, address, until_called};
use crate::past::rescan::execute;

const ALICE: u8 = 0xa1;
const PAYER: u8 = 0x01;
const HOUR: Duration = Duration::from_secs(3_600);
/// Up to 10 base units two blocks on top are enough, up to 100 five.
const TIERS: [(AssetId, u64, u64); 3] = [(TOKEN, 1_000, 1), (AssetId::Native, 10, 2), (AssetId::Native, 100, 5)];

async fn world(engine: Engine) -> World {
    let mut world = World::traced(engine, 1).await;
    world.set_tiers(&TIERS);
    world.watch("alice", address(ALICE)).await;
    world.chain.mine_empty(1);
    world.catch_up().await;
    world
}

fn inner(nonce: u64, amount: u64) -> SimTx {
    SimTx::new(address(PAYER), nonce, vec![SimLeg::inner(address(PAYER), address(ALICE), amount)])
}

async fn until_final(world: &mut World) {
    for _ in 0..=FINALITY_DEPTH {
        world.chain.mine_empty(1);
        world.catch_up().await;
    }
}

#[tokio::test]
async fn a_tier_confirms_what_a_trace_showed_and_somebody_else_bore_out() {
    for engine in ENGINES {
        for twice in [false, true] {
            let mut world = world(engine).await;
            world.chain.trace_twice(twice);
            world.chain.mine(vec![inner(0, 5), inner(1, 11), inner(2, 101)]);
            world.catch_up().await;
            for on_top in 1..=FINALITY_DEPTH + 1 {
                world.chain.mine_empty(1);
                world.catch_up().await;
                let expected = [2, 5, FINALITY_DEPTH].map(|depth| if on_top < depth { Pending } else { Confirmed });
                let statuses = [world.status_of(5).await, world.status_of(11).await, world.status_of(101).await];
                assert_eq!(statuses, expected, "{on_top} on top");
            }
            world.close().await;
        }
    }
}

#[tokio::test]
async fn what_nobody_bore_out_waits_for_no_tier_and_no_operator_and_what_was_denied_fails_when_it_is_final() {
    let mut world = world(Engine::Sqlite).await;
    // A lie that the balances deny, and a block whose balances cannot be had.
    world.chain.script_traces([Fault::Invent(address(ALICE), 9)]);
    world.chain.mine(vec![inner(0, 7)]);
    world.tick().await;
    assert_eq!(world.trace().await.witnessed, 2);
    world.chain.withhold_balances(true);
    world.chain.mine(vec![inner(1, 5)]);
    world.catch_up().await;
    world.chain.mine_empty(3);
    world.catch_up().await;
    world.operator().confirm_through(world.db(), CHAIN, world.chain.latest().number, HOUR).await.unwrap();
    world.catch_up().await;
    assert_eq!(
        [world.status_of(7).await, world.status_of(9).await, world.status_of(5).await],
        [Confirmed, Pending, Pending]
    );
    until_final(&mut world).await;
    assert_eq!((world.status_of(9).await, world.status_of(5).await), (Failed, Pending));
    world.abandon();
}

#[tokio::test]
async fn an_operator_confirms_what_somebody_bore_out_and_it_is_audited() {
    let mut world = world(Engine::Sqlite).await;
    world.chain.mine(vec![inner(0, 1_000)]);
    world.chain.mine_empty(1);
    world.catch_up().await;
    assert_eq!(world.status_of(1_000).await, Pending);
    world.operator().confirm_through(world.db(), CHAIN, 2, HOUR).await.unwrap();
    world.catch_up().await;
    assert_eq!(world.status_of(1_000).await, Confirmed);
    let reported = audit::newest(&mut world.db().read().await.unwrap(), audit::About::All, 100).await.unwrap();
    assert!(reported.iter().any(|entry| entry.action == "confirmed_by_override"), "{reported:?}");
    world.abandon();
}

#[tokio::test]
async fn a_witness_that_is_gone_or_says_otherwise_by_then_confirms_nothing() {
    for engine in ENGINES {
        for meanwhile in ["UPDATE inclusions SET witness = NULL", "UPDATE inclusions SET witness_shows = false"] {
            let mut world = world(engine).await;
            world.chain.mine(vec![inner(0, 5)]);
            world.catch_up().await;
            // Listed before and judged after it: tip, the new blocks, then the roots of the block.
            world.chain.mine_empty(2);
            world.chain.script([Fault::Late(Duration::ZERO), Fault::Late(Duration::ZERO), Fault::Held]);
            let (db, chain, before) = (world.db().clone(), world.chain.clone(), world.chain.calls());
            let replaced = async {
                until_called(&chain, before + 3).await;
                execute(&db, meanwhile).await;
                chain.release();
            };
            let (ticked, ()) = tokio::join!(world.try_tick(), replaced);
            assert_eq!(ticked.unwrap().confirmed, 0, "{meanwhile}");
            assert_eq!(world.status_of(5).await, Pending);
            world.abandon();
        }
    }
}

#[tokio::test]
async fn a_tier_confirms_no_more_than_the_reading_that_was_borne_out_paid() {
    for too_much in
        ["UPDATE inclusions SET paid_in_tx = zeroblob(32)", "UPDATE inclusions SET paid_in_block = zeroblob(32)"]
    {
        let mut world = world(Engine::Sqlite).await;
        world.chain.mine(vec![inner(0, 5)]);
        world.catch_up().await;
        execute(world.db(), too_much).await;
        world.chain.mine_empty(2);
        world.catch_up().await;
        until_final(&mut world).await;
        assert_eq!(world.status_of(5).await, Pending, "{too_much}");
        let incidents = world.incidents().await;
        assert!(incidents.len() == 1 && incidents[0].what.contains("5 base units would be confirmed"), "{incidents:?}");
        world.abandon();
    }
}

#[tokio::test]
async fn a_reorg_below_what_a_tier_confirmed_of_a_trace_is_an_incident() {
    let mut world = world(Engine::Sqlite).await;
    world.chain.mine(vec![inner(0, 5)]);
    world.chain.mine_empty(1);
    world.catch_up().await;
    world.chain.mine_empty(1);
    world.catch_up().await;
    assert_eq!(world.status_of(5).await, Confirmed);
    world.chain.fork_at(1);
    world.chain.mine_empty(FINALITY_DEPTH + 4);
    let error = world.try_tick().await.unwrap_err();
    assert!(matches!(error, TickError::PostFinalityReorg { confirmed: 1, .. }), "{error}");
    assert_eq!(world.status_of(5).await, Confirmed);
    world.abandon();
}
