//! Witnesses that are taken when a block is traced: kept by block hash, compared when the block is final, sought again
//! while it is not, and never counted twice.

use std::time::Duration;

use landfall::deposit::DepositStatus::{Confirmed, Failed, Pending};
use landfall::store::{Connection, Engine as Connected};
use landfall::watcher::not_traced;
use landfall_chain::{Lane, Native, NativeSource};
use landfall_sim::{Fault, SimLeg, SimTx};

use crate::harness::books::events;
use crate::harness::lanes::cuts;
use crate::harness::postgres::{ENGINES, Engine};
use crate::harness::world::{FINALITY_DEPTH, World, address, report, until_called};

const ALICE: u8 = 0xa1;
const BOB: u8 = 0xb0;
const PAYER: u8 = 0x01;
/// Much less than what is not final: a full node that is no archive.
const STATE_KEPT: u64 = 3;

async fn world(engine: Engine) -> World {
    let mut world = World::traced(engine, 1).await;
    world.watch("alice", address(ALICE)).await;
    world.chain.keep_state(Some(STATE_KEPT));
    world.chain.mine_empty(1);
    world.catch_up().await;
    world
}

fn inner(nonce: u64, to: u8, amount: u64) -> SimTx {
    SimTx::new(address(PAYER), nonce, vec![SimLeg::inner(address(PAYER), address(to), amount)])
}

/// Mines until all that was is final, and follows it; nobody has the state of the older blocks any more.
async fn until_final(world: &mut World) {
    for _ in 0..=FINALITY_DEPTH {
        world.chain.mine_empty(1);
        world.catch_up().await;
    }
}

/// What `status` warns of.
async fn alarm(world: &World) -> String {
    report(world).await.traces_alarm
}

async fn execute(world: &World, text: &'static str) {
    let mut tx = world.db().begin().await.unwrap();
    match tx.engine() {
        Connected::Postgres(connection) => drop(sqlx::query(text).execute(connection).await.unwrap()),
        Connected::Sqlite(connection) => drop(sqlx::query(text).execute(connection).await.unwrap()),
    }
    tx.commit().await.unwrap();
}

async fn confirmed(world: &World) -> Vec<String> {
    let confirmed = world.deposits().await.into_iter().filter(|deposit| deposit.status == Confirmed);
    let mut amounts: Vec<String> = confirmed.map(|deposit| deposit.amount.to_string()).collect();
    amounts.sort_unstable();
    amounts
}

#[tokio::test]
async fn a_node_that_forgets_its_state_before_the_block_is_final_is_witness_enough() {
    for engine in ENGINES {
        for twice in [false, true] {
            let mut world = world(engine).await;
            world.chain.trace_twice(twice);
            // Two engines do where no balances can be had.
            world.chain.withhold_balances(twice);
            world.chain.mine(vec![inner(0, ALICE, 5)]);
            world.tick().await;
            let traced = world.trace().await;
            assert_eq!((traced.pending, traced.witnessed, traced.doubted), (1, 1, 0), "{twice}");
            until_final(&mut world).await;
            assert_eq!(world.status_of(5).await, Confirmed, "{twice}");
            assert_eq!(alarm(&world).await, "");
            world.close().await;
        }
    }
}

#[tokio::test]
async fn what_was_witnessed_is_settled_without_another_trace_also_by_a_new_process() {
    let mut world = world(Engine::Sqlite).await;
    world.chain.mine(vec![inner(0, ALICE, 5)]);
    world.tick().await;
    assert_eq!(world.trace().await.witnessed, 1);
    world.restart();
    world.chain.keep_state(Some(0));
    until_final(&mut world).await;
    assert_eq!(world.status_of(5).await, Confirmed);
    world.close().await;
}

#[tokio::test]
async fn a_crash_between_the_trace_and_its_witness_loses_neither() {
    for wakeups in cuts(60) {
        let mut world = world(Engine::Sqlite).await;
        world.chain.mine(vec![inner(0, ALICE, 5)]);
        world.tick().await;
        world.crash_trace_within(wakeups).await;
        world.catch_up().await;
        until_final(&mut world).await;
        assert_eq!(world.status_of(5).await, Confirmed, "{wakeups}");
        world.close().await;
    }
}

#[tokio::test]
async fn a_witness_counts_for_its_own_block_only() {
    for first_wins in [false, true] {
        let mut world = world(Engine::Sqlite).await;
        world.chain.mine(vec![inner(0, ALICE, 5)]);
        world.tick().await;
        assert_eq!(world.trace().await.witnessed, 1);
        let branch = world.chain.blocks();
        world.chain.fork_at(1);
        world.chain.mine(vec![inner(0, ALICE, 5), inner(1, BOB, 1)]);
        world.chain.mine_empty(1);
        world.chain.withhold_balances(true);
        world.catch_up().await;
        assert!(alarm(&world).await.contains("the state of block"), "{}", alarm(&world).await);
        if first_wins {
            world.chain.restore(branch);
            world.chain.mine_empty(2);
        }
        until_final(&mut world).await;
        // Nobody corroborates the other block.
        assert_eq!(world.status_of(5).await, if first_wins { Confirmed } else { Pending });
        world.close().await;
    }
}

#[tokio::test]
async fn what_has_no_witness_yet_is_tried_again_with_growing_pauses_before_its_block_is_final() {
    let mut world = world(Engine::Sqlite).await;
    world.chain.mine(vec![inner(0, ALICE, 5)]);
    world.chain.withhold_balances(true);
    world.tick().await;
    let traced = world.trace().await;
    assert_eq!((traced.pending, traced.witnessed, traced.doubted), (1, 0, 1));
    let (mut tried_after, mut waited) = (Vec::new(), 0);
    while tried_after.len() < 5 {
        world.pass(Duration::from_secs(1));
        waited += 1;
        if world.trace().await.doubted == 1 {
            tried_after.push(std::mem::take(&mut waited));
        }
    }
    assert_eq!(tried_after, [2, 4, 8, 16, 32]);
    let alarm_of_one = alarm(&world).await;
    assert!(alarm_of_one.contains("cannot be had: the state of block "), "{alarm_of_one}");
    world.chain.withhold_balances(false);
    world.pass(Duration::from_secs(64));
    assert_eq!(world.trace().await.witnessed, 1);
    assert_eq!((alarm(&world).await.as_str(), world.status_of(5).await), ("", Pending));
    until_final(&mut world).await;
    assert_eq!(world.status_of(5).await, Confirmed);
    world.close().await;
}

#[tokio::test]
async fn a_lie_that_a_witness_denies_fails_when_its_block_is_final_and_not_before() {
    for engine in ENGINES {
        let mut world = world(engine).await;
        world.chain.script_traces([Fault::Invent(address(ALICE), 1_000)]);
        world.chain.mine(vec![inner(0, BOB, 5), inner(1, ALICE, 7)]);
        world.tick().await;
        assert_eq!(world.trace().await.witnessed, 2, "the balances exclude the one and are explained by the other");
        for _ in 1..FINALITY_DEPTH {
            world.chain.mine_empty(1);
            world.catch_up().await;
            assert_eq!((world.status_of(1_000).await, world.status_of(7).await), (Pending, Pending));
        }
        until_final(&mut world).await;
        assert_eq!((world.status_of(1_000).await, world.status_of(7).await), (Failed, Confirmed));
        let statuses: Vec<String> = events(world.db()).await.into_iter().map(|event| event.status).collect();
        assert_eq!(statuses.iter().filter(|status| *status == "FAILED").count(), 1);
        world.abandon();
    }
}

/// 3 and 2 came in; the first reading reports them as 5 of the first transaction, which the balances corroborate. Then
/// the block is disconnected and connected again, and reported as it is.
async fn reported_in_two_ways(twice: bool) -> World {
    let mut world = world(Engine::Sqlite).await;
    world.chain.mine(vec![inner(0, ALICE, 3), inner(1, ALICE, 2)]);
    world.chain.script_traces([Fault::Merge(address(ALICE))]);
    world.tick().await;
    assert_eq!(world.trace().await.witnessed, 1);
    let branch = world.chain.blocks();
    world.chain.fork_at(1);
    world.chain.mine_empty(2);
    world.catch_up().await;
    world.chain.restore(branch);
    world.chain.mine_empty(1);
    world.chain.trace_twice(twice);
    world.catch_up().await;
    assert_eq!(world.deposits().await.len(), 3);
    world
}

#[tokio::test]
async fn of_two_readings_that_the_balances_allow_neither_is_confirmed_by_them() {
    let mut world = reported_in_two_ways(false).await;
    let alarm = alarm(&world).await;
    assert!(alarm.contains("more than one choice of what the traces report makes that up"), "{alarm}");
    until_final(&mut world).await;
    assert_eq!(confirmed(&world).await, [""; 0], "5 were paid in all, and nobody knows as which");
    assert_eq!(world.incidents().await, []);
    world.abandon();
}

#[tokio::test]
async fn of_two_readings_that_the_balances_allow_two_engines_say_which() {
    let mut world = reported_in_two_ways(true).await;
    assert_eq!(confirmed(&world).await, [""; 0]);
    until_final(&mut world).await;
    assert_eq!(confirmed(&world).await, ["2", "3"], "5 were paid in all");
    assert_eq!(world.status_of(5).await, Failed);
    world.abandon();
}

#[tokio::test]
async fn two_readings_that_were_both_witnessed_never_credit_more_than_was_paid() {
    let mut world = reported_in_two_ways(true).await;
    // As if the first witness stood beside the second: nothing but the sums is left to report.
    execute(&world, "UPDATE inclusions SET witness = 'balances', witness_shows = true WHERE witness IS NOT NULL").await;
    execute(
        &world,
        "UPDATE inclusions SET paid_in_tx = (SELECT amount FROM deposits WHERE deposits.id = deposit_id) WHERE witness IS NOT NULL",
    )
    .await;
    until_final(&mut world).await;
    let sum: u64 = confirmed(&world).await.iter().map(|amount| amount.parse::<u64>().unwrap()).sum();
    assert_eq!(sum, 5, "{:?} of 5", confirmed(&world).await);
    assert!(!world.incidents().await.is_empty());
    world.abandon();
}

#[tokio::test]
async fn what_its_transaction_was_credited_in_another_block_counts_against_what_was_witnessed() {
    let mut world = reported_in_two_ways(true).await;
    // As after a reorg that took back what counted as final, and that was accepted: 5 of the first transaction are
    // CONFIRMED.
    execute(&world, "UPDATE deposits SET status = 'CONFIRMED', confirmed_us = 1 WHERE amount_text = '5'").await;
    let elsewhere = "UPDATE inclusions SET block_hash = zeroblob(32) WHERE deposit_id IN (SELECT id FROM deposits WHERE amount_text = '5')";
    execute(&world, elsewhere).await;
    until_final(&mut world).await;
    assert_eq!(confirmed(&world).await, ["2", "5"], "the first transaction pays 3 now, and 5 are credited of it");
    assert!(world.incidents().await[0].what.contains("8 base units would be confirmed of what transaction"));
    world.abandon();
}

#[tokio::test]
async fn what_a_network_is_not_traced_for_any_more_is_settled_by_its_witness_or_says_why_not() {
    let traced = Native { source: NativeSource::Trace, eip7708_from: None };
    // With logs from block 3 on, the lane goes on below it; at and above it no trace is read.
    for native in [Native { eip7708_from: Some(3), ..traced }, Native::TOP_LEVEL] {
        let mut world = world(Engine::Sqlite).await;
        world.watch("bob", address(BOB)).await;
        world.chain.mine(vec![inner(0, ALICE, 5)]);
        world.catch_up().await;
        world.chain.withhold_balances(true);
        world.chain.mine(vec![inner(1, BOB, 7)]);
        world.catch_up().await;
        world.network.native = native;
        world.restart();
        if native == Native::TOP_LEVEL {
            assert!(not_traced(world.db(), &world.network).await.unwrap(), "something is left to settle");
        }
        let lane = world.another_watcher().leftover_lane();
        for _ in 0..=FINALITY_DEPTH {
            world.chain.mine_empty(1);
            world.tick().await;
            lane.tick(world.now()).await.unwrap();
        }
        assert_eq!((world.status_of(5).await, world.status_of(7).await), (Confirmed, Pending));
        let alarm = alarm(&world).await;
        assert!(alarm.contains(": block 3 is not traced any more"), "{alarm}");
        // Once it is traced again, it is settled.
        world.network.native = traced;
        world.chain.keep_state(None);
        world.chain.withhold_balances(false);
        world.restart();
        world.pass(Duration::from_secs(600));
        world.catch_up().await;
        assert_eq!(world.status_of(7).await, Confirmed);
        assert!(!not_traced(world.db(), &world.network).await.unwrap());
        world.close().await;
    }
}

#[tokio::test]
async fn where_the_chains_own_logs_report_what_moves_inside_they_must_bear_out_what_was_witnessed() {
    for logged in [false, true] {
        let mut world = world(Engine::Sqlite).await;
        world.chain.mine(vec![inner(0, ALICE, 5)]);
        world.catch_up().await;
        world.network.native.eip7708_from = Some(2);
        world.restart();
        let mut blocks = world.chain.blocks();
        if logged {
            // The same block, as its logs report it.
            blocks[2].txs[0].legs[0].lane = Lane::Block;
        }
        world.chain.restore(blocks);
        until_final(&mut world).await;
        assert_eq!(world.status_of(5).await, if logged { Confirmed } else { Pending });
        assert_eq!(alarm(&world).await.contains("the chain's own logs do not show it"), !logged);
        assert_eq!(world.incidents().await, []);
        world.abandon();
    }
}

#[tokio::test]
async fn a_block_that_is_not_final_any_more_when_its_roots_are_read_again_settles_nothing() {
    for engine in ENGINES {
        // An accepted reorg takes back what was final, and may connect the same block again.
        for (meanwhile, afterwards) in [
            ("UPDATE cursors SET final_number = 1", "UPDATE cursors SET final_number = 1"),
            ("UPDATE blocks SET canonical = false WHERE number = 2", "UPDATE blocks SET canonical = true"),
        ] {
            let mut world = world(engine).await;
            world.chain.mine(vec![inner(0, ALICE, 5)]);
            world.chain.set_finality_depth(None);
            world.chain.keep_state(None);
            world.chain.mine_empty(FINALITY_DEPTH);
            world.catch_up().await;
            world.chain.set_finality_depth(Some(FINALITY_DEPTH));
            world.tick().await;
            world.chain.script([Fault::Held]);
            let (lane, now, before) = (world.watcher_lane(), world.now(), world.chain.calls());
            let taken_back = async {
                until_called(&world.chain, before + 1).await;
                execute(&world, meanwhile).await;
                world.chain.release();
            };
            let (traced, ()) = tokio::join!(lane.tick(now), taken_back);
            assert_eq!(traced.unwrap().confirmed, 0, "{meanwhile}");
            assert_eq!(world.status_of(5).await, Pending);
            execute(&world, afterwards).await;
            world.catch_up().await;
            assert_eq!(world.status_of(5).await, Confirmed);
            world.close().await;
        }
    }
}

#[tokio::test]
async fn where_two_endpoints_differ_balances_say_who_is_right() {
    for lie in [Fault::Invent(address(ALICE), 1_000), Fault::Hide(address(ALICE))] {
        let mut world = world(Engine::Sqlite).await;
        world.chain.trace_twice(true);
        world.chain.mine(vec![inner(0, BOB, 5), inner(1, ALICE, 7)]);
        world.tick().await;
        // Together they differ; alone, the liar is asked first, and then the other one.
        world.chain.script_traces([lie, lie]);
        assert!(world.try_trace().await.unwrap_err().to_string().contains("tell different traces of block 2"));
        assert_eq!(world.status_of(7).await, Pending, "{lie:?}: one of them tells it");
        for _ in 0..=FINALITY_DEPTH {
            world.chain.mine_empty(1);
            world.tick().await;
            world.chain.behave();
            // They never come to agree on block 2.
            world.chain.withhold_traces([2]);
            world.trace().await;
        }
        assert_eq!(world.status_of(7).await, Confirmed, "{lie:?}");
        if let Fault::Invent(..) = lie {
            assert_eq!(world.status_of(1_000).await, Failed);
        }
        world.abandon();
    }
}

#[tokio::test]
async fn where_two_endpoints_differ_balances_that_could_cancel_out_say_nothing() {
    let mut world = world(Engine::Sqlite).await;
    world.chain.put_code(address(ALICE));
    world.chain.trace_twice(true);
    world.chain.mine(vec![inner(0, BOB, 5)]);
    world.tick().await;
    let lie = Fault::Churn(address(ALICE), 1_000);
    world.chain.script_traces([lie, lie, lie]);
    assert!(world.try_trace().await.is_err());
    for _ in 0..=FINALITY_DEPTH {
        world.chain.mine_empty(1);
        world.tick().await;
        world.chain.withhold_traces([2]);
        world.trace().await;
    }
    assert_eq!(world.status_of(1_000).await, Pending);
    assert_eq!(confirmed(&world).await, [""; 0]);
    world.abandon();
}
