//! Blocks that were connected to be traced when the network's setting changes. Nothing that moved inside of them is
//! missed silently, and nothing of it is credited twice, by its trace and by the chain's own logs.

use std::time::Duration;

use landfall::deposit::DepositStatus::{Confirmed, Failed, Pending};
use landfall::health::{ChainReport, Status};
use landfall::incident::IncidentKind;
use landfall::store::status::{self, ChainStatus};
use landfall::time::{Pulse, Timestamp};
use landfall::watcher::{Backfill, Job, Rescan, Scope, TraceLane, not_traced};
use landfall_chain::{Lane, Native, NativeSource, ReadProof};
use landfall_sim::{Fault, SimLeg, SimPool, SimTx};
use tokio_util::sync::CancellationToken;

use crate::delivery::engine::until;
use crate::harness::books::events;
use crate::harness::lanes::cuts;
use crate::harness::postgres::{ENGINES, Engine};
use crate::harness::world::{CHAIN, FINALITY_DEPTH, World, address, cut_off};
use crate::past::rescan::execute;

const ALICE: u8 = 0xa1;
const BOB: u8 = 0xb0;
const PAYER: u8 = 0x01;
const TRACED: Native = Native { source: NativeSource::Trace, eip7708_from: None };
/// The settings by which the chain's own logs report block 2.
const LOGGED: [Native; 3] = [
    Native { eip7708_from: Some(2), ..TRACED },
    Native { eip7708_from: Some(2), ..Native::TOP_LEVEL },
    Native { source: NativeSource::LogTransfer, eip7708_from: None },
];

async fn world(engine: Engine) -> World {
    let mut world = World::traced(engine, 1).await;
    world.watch("alice", address(ALICE)).await;
    world.chain.mine_empty(1);
    world.catch_up().await;
    world
}

fn inner(nonce: u64, to: u8, amount: u64) -> SimTx {
    SimTx::new(address(PAYER), nonce, vec![SimLeg::inner(address(PAYER), address(to), amount)])
}

/// Restarts with another setting; the lane that is there whether the network is traced or not.
fn restart_with(world: &mut World, native: Native) -> TraceLane<SimPool> {
    world.network.native = native;
    world.restart();
    world.another_watcher().leftover_lane()
}

/// From here on, the chain's own logs report what moved inside of block `number`: the same block.
fn log(world: &World, number: usize) {
    let mut blocks = world.chain.blocks();
    blocks[number].txs.iter_mut().flat_map(|tx| &mut tx.legs).for_each(|leg| leg.lane = Lane::Block);
    world.chain.restore(blocks);
}

/// Reads the blocks from number `from` to number 2 again.
async fn backfill(world: &World, from: u64) {
    let job = Job { from, to: Some(2), proof: ReadProof::Full, scope: Scope::All, dry_run: false };
    let mut backfill = Backfill::begin(world.another_watcher(), job).await.unwrap();
    while !backfill.is_done() {
        backfill.step(world.now()).await.unwrap();
    }
}

async fn until_final(world: &mut World, lane: &TraceLane<SimPool>) {
    for _ in 0..=FINALITY_DEPTH {
        world.chain.mine_empty(1);
        world.tick().await;
        lane.tick(world.now()).await.unwrap();
    }
}

/// What `status` says of the chain.
async fn report(world: &World) -> ChainReport {
    let word = ChainStatus {
        chain: CHAIN,
        state: "following".to_owned(),
        reason: String::new(),
        proof: "roots".to_owned(),
        latest: None,
        finalized: None,
        cursor: None,
        caught_up_at: world.now(),
        heartbeat_at: world.now(),
        endpoints: Vec::new(),
        finalized_at: Timestamp::EPOCH,
        alarms: Vec::new(),
    };
    let mut tx = world.db().begin().await.unwrap();
    status::record(&mut tx, &word, &[]).await.unwrap();
    tx.commit().await.unwrap();
    Status::read(world.db(), world.now()).await.unwrap().chains.remove(0)
}

async fn confirmed(world: &World) -> Vec<String> {
    let confirmed = world.deposits().await.into_iter().filter(|deposit| deposit.status == Confirmed);
    let mut amounts: Vec<String> = confirmed.map(|deposit| deposit.amount.to_string()).collect();
    amounts.sort_unstable();
    amounts
}

#[tokio::test]
async fn a_block_that_was_to_be_traced_is_read_by_the_chains_own_logs_where_those_report_it_by_now() {
    for engine in ENGINES {
        for native in LOGGED {
            let mut world = world(engine).await;
            world.chain.mine(vec![inner(0, ALICE, 5), inner(1, BOB, 7)]);
            world.tick().await;
            // Bob is watched from the next block on.
            world.watch("bob", address(BOB)).await;
            let lane = restart_with(&mut world, native);
            log(&world, 2);
            world.chain.withhold_traces([2]);
            assert!(not_traced(world.db(), &world.network).await.unwrap(), "{native:?}: a block is to be read");
            let traced = lane.tick(world.now()).await.unwrap();
            assert_eq!((traced.traced, traced.pending), (1, 1), "{native:?}");
            until_final(&mut world, &lane).await;
            assert!(!not_traced(world.db(), &world.network).await.unwrap(), "{native:?}: nothing is left");
            assert_eq!(confirmed(&world).await, ["5"], "{native:?}");
            assert_eq!(report(&world).await.traces_alarm, "");
            world.abandon();
        }
    }
}

#[tokio::test]
async fn while_its_logs_cannot_be_read_such_a_block_is_asked_for_again() {
    for native in LOGGED {
        let mut world = world(Engine::Sqlite).await;
        world.chain.mine(vec![inner(0, ALICE, 5)]);
        world.tick().await;
        let lane = restart_with(&mut world, native);
        log(&world, 2);
        // As of a block that should have logged a payment, and has not.
        world.chain.script([Fault::Refuse, Fault::Fail]);
        for _ in 0..2 {
            assert!(lane.tick(world.now()).await.is_err(), "{native:?}");
            assert!(not_traced(world.db(), &world.network).await.unwrap(), "{native:?}");
            world.pass(Duration::from_secs(600));
        }
        assert_eq!(lane.tick(world.now()).await.unwrap().pending, 1, "{native:?}");
        world.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_reports_why_such_a_block_is_not_read_and_is_silent_when_it_is() {
    let mut world = world(Engine::Sqlite).await;
    world.chain.mine(vec![inner(0, ALICE, 5)]);
    world.tick().await;
    let lane = restart_with(&mut world, LOGGED[1]);
    log(&world, 2);
    world.chain.script(std::iter::repeat_n(Fault::Refuse, 10_000));
    let (stop, pulse) = (CancellationToken::new(), Pulse::new("traces", world.now()));
    let running = {
        let (stop, clock) = (stop.clone(), world.clock());
        #[expect(clippy::disallowed_methods, reason = "the test's own worker")]
        tokio::spawn(lane.run(clock, || 0, pulse, stop))
    };
    until("what fails", async || report(&world).await.traces_reason.contains("not to offer this call")).await;
    world.chain.behave();
    until("the deposit", async || world.deposits().await.len() == 1).await;
    until("silence", async || report(&world).await.traces_reason.is_empty()).await;
    stop.cancel();
    running.await.unwrap();
    assert_eq!(world.status_of(5).await, Pending);
    assert_eq!(report(&world).await.traced, None, "a network that is not traced has no traces to wait for");
    world.close().await;
}

#[tokio::test]
async fn where_neither_trace_nor_logs_report_a_block_what_waits_for_it_says_so() {
    let mut world = world(Engine::Sqlite).await;
    world.chain.withhold_traces([2]);
    world.chain.mine_empty(1);
    world.chain.mine(vec![inner(0, ALICE, 5)]);
    world.tick().await;
    assert_eq!(world.trace().await.pending, 1);
    let lane = restart_with(&mut world, Native::TOP_LEVEL);
    world.chain.fork_at(2);
    world.chain.mine(vec![inner(0, ALICE, 5).replaced_by(Vec::new())]);
    until_final(&mut world, &lane).await;
    assert_eq!(world.status_of(5).await, Pending);
    let alarm = report(&world).await.traces_alarm;
    assert!(alarm.contains("blocks that may show it were to be traced and are not any more"), "{alarm}");
    // Traced again, it is settled.
    world.chain.withhold_traces([]);
    restart_with(&mut world, TRACED);
    world.pass(Duration::from_secs(600));
    world.chain.mine_empty(1);
    world.catch_up().await;
    assert_eq!((world.status_of(5).await, report(&world).await.traces_alarm.as_str()), (Failed, ""));
    world.close().await;
}

#[tokio::test]
async fn what_a_trace_confirmed_otherwise_is_not_credited_again_by_the_logs_of_its_block() {
    for lie in [true, false] {
        let mut world = world(Engine::Sqlite).await;
        world.chain.mine(vec![inner(0, ALICE, 3), inner(1, ALICE, 2)]);
        if lie {
            // 3 and 2 came in, and are reported as 5 of the first transaction, which the balances corroborate.
            world.chain.script_traces([Fault::Merge(address(ALICE))]);
        } else {
            // Only one of them was recorded, as if the other one had been hidden.
            world.chain.trace_twice(true);
        }
        world.catch_up().await;
        world.chain.mine_empty(FINALITY_DEPTH);
        world.catch_up().await;
        if !lie {
            for text in [
                "DELETE FROM inclusions WHERE deposit_id IN (SELECT id FROM deposits WHERE amount_text = '2')",
                "DELETE FROM events WHERE aggregateid IN (SELECT id FROM deposits WHERE amount_text = '2')",
                "DELETE FROM deposits WHERE amount_text = '2'",
            ] {
                execute(world.db(), text).await;
            }
        }
        assert_eq!(confirmed(&world).await, if lie { ["5"] } else { ["3"] });
        restart_with(&mut world, LOGGED[0]);
        log(&world, 2);
        backfill(&world, 2).await;
        world.catch_up().await;
        assert_eq!(confirmed(&world).await, if lie { vec!["5"] } else { vec!["2", "3"] }, "5 were paid in all");
        let incidents = world.incidents().await;
        assert_eq!(incidents.len(), if lie { 2 } else { 0 }, "{incidents:?}");
        assert!(incidents.iter().all(|it| it.what.contains("10 base units would be confirmed of what block 2 paid")));
        world.abandon();
    }
}

#[tokio::test]
async fn what_two_endpoints_report_a_rescan_is_not_denied_by_a_witness_of_before() {
    // Past the end of a step, so that it is cut off everywhere.
    for wakeups in cuts(40) {
        let mut world = world(Engine::Sqlite).await;
        world.chain.mine(vec![inner(0, ALICE, 5)]);
        world.catch_up().await;
        world.chain.mine_empty(FINALITY_DEPTH);
        world.catch_up().await;
        // As if two engines had once denied it: balances that do are not asked again.
        for text in [
            "UPDATE deposits SET status = 'FAILED', confirmed_us = NULL",
            "DELETE FROM events WHERE status = 'CONFIRMED'",
            "UPDATE inclusions SET witness = 'two_engines', witness_shows = false",
        ] {
            execute(world.db(), text).await;
        }
        world.chain.trace_twice(true);
        for crash_after in [Some(wakeups), None] {
            let mut rescan = Rescan::<SimPool>::begin(world.another_watcher(), 2, 2, true).await.unwrap();
            rescan.step(world.now()).await.unwrap();
            match crash_after {
                Some(wakeups) => drop(cut_off(rescan.step(world.now()), wakeups).await),
                None => rescan.step(world.now()).await.unwrap(),
            }
            drop(rescan);
            world.restart();
            world.trace().await;
        }
        assert_eq!(world.status_of(5).await, Confirmed, "{wakeups}");
        let failed = events(world.db()).await.into_iter().filter(|event| event.status == "FAILED").count();
        assert_eq!(failed, 0, "cut off after {wakeups}");
        world.abandon();
    }
}

#[tokio::test]
async fn a_setting_that_would_have_shown_more_names_the_blocks_that_were_followed_without_it() {
    for engine in ENGINES {
        let mut world = World::traced(engine, 1).await;
        world.network.native = Native::TOP_LEVEL;
        world.restart();
        world.watch("alice", address(ALICE)).await;
        world.chain.mine_empty(1);
        world.catch_up().await;
        world.chain.mine(vec![inner(0, ALICE, 5)]);
        world.tick().await;
        assert_eq!((world.deposits().await.len(), world.incidents().await), (0, Vec::new()));

        // The same setting again is nothing new, and nothing is left unread by one that shows less.
        world.restart();
        world.tick().await;
        assert_eq!(world.incidents().await, Vec::new());
        let lane = restart_with(&mut world, TRACED);
        until_final(&mut world, &lane).await;
        let [incident] = world.incidents().await.try_into().unwrap();
        assert_eq!((incident.kind, incident.resolved_at), (IncidentKind::CoverageGap, None));
        let command = format!("`landfall backfill --chain {CHAIN} --from 1 --to 2`");
        assert!(incident.what.contains(&command), "{}", incident.what);
        assert_eq!(world.deposits().await.len(), 0, "the lane does not go back by itself");

        backfill(&world, 1).await;
        until_final(&mut world, &lane).await;
        assert_eq!(confirmed(&world).await, ["5"]);
        let seen = world.incidents().await;
        world.restart();
        world.tick().await;
        assert_eq!(world.incidents().await, seen, "a change is told once");
        world.abandon();
    }
}

#[tokio::test]
async fn a_process_with_another_setting_than_the_one_started_last_connects_nothing_any_more() {
    for engine in ENGINES {
        let mut world = World::traced(engine, 1).await;
        world.network.native = Native::TOP_LEVEL;
        world.restart();
        world.watch("alice", address(ALICE)).await;
        world.chain.mine_empty(1);
        world.catch_up().await;
        world.network.native = TRACED;
        let mut newer = world.another_watcher();
        newer.tick(world.now()).await.unwrap();
        world.chain.mine(vec![inner(0, ALICE, 5)]);
        let refused = world.try_tick().await.unwrap_err();
        let why = "another process was started later with native = \"trace\", this one follows ETHEREUM_TESTNET with native = \
                   \"top_level\": stop this one, or start it anew with the setting that is meant";
        assert!(refused.may_pass() && refused.to_string().contains(why), "{refused}");
        world.restart();
        let lane = world.another_watcher().leftover_lane();
        until_final(&mut world, &lane).await;
        assert_eq!(confirmed(&world).await, ["5"]);
        world.abandon();
    }
}

#[tokio::test]
async fn what_a_process_with_the_setting_of_before_still_finds_is_settled_all_the_same() {
    let mut world = world(Engine::Sqlite).await;
    world.chain.mine(vec![inner(0, ALICE, 5)]);
    world.tick().await;
    // Nothing is found yet when the one that is not traced is started.
    let older = world.another_watcher().leftover_lane();
    world.network.native = Native::TOP_LEVEL;
    assert!(not_traced(world.db(), &world.network).await.unwrap(), "the setting of before is still on record");
    let lane = world.another_watcher().leftover_lane();
    older.tick(world.now()).await.unwrap();
    world.restart();
    until_final(&mut world, &lane).await;
    assert_eq!(confirmed(&world).await, ["5"]);
    world.restart();
    assert!(!not_traced(world.db(), &world.network).await.unwrap());
    world.abandon();
}

#[tokio::test]
async fn blocks_that_are_connected_anew_count_as_followed_with_the_setting_of_then() {
    for engine in ENGINES {
        let mut world = world(engine).await;
        world.chain.mine_empty(2);
        world.catch_up().await;
        world.network.native = Native::TOP_LEVEL;
        world.restart();
        world.chain.mine_empty(1);
        world.catch_up().await;
        world.chain.fork_at(1);
        world.chain.mine(vec![inner(0, ALICE, 5)]);
        world.chain.mine_empty(4);
        world.catch_up().await;
        world.network.native = TRACED;
        world.restart();
        world.tick().await;
        let [incident] = world.incidents().await.try_into().unwrap();
        let command = format!("`landfall backfill --chain {CHAIN} --from 2 --to 6`");
        assert!(incident.what.contains(&command), "{}", incident.what);
        world.abandon();
    }
}
