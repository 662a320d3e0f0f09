//! The lane of the traces: found behind the roots and beside them, confirmed only with a second witness, never FAILED
//! for want of one, and complete when it says so.

pub(crate) mod believed;
pub(crate) mod early_witness;
pub(crate) mod trace_again;
pub(crate) mod traced_past;
pub(crate) mod untraced;
pub(crate) mod witnessed_early;

use std::time::Duration;

use landfall::deposit::DepositStatus::{Confirmed, Failed, Pending};
use landfall::health::{ChainReport, Status};
use landfall::store::status;
use landfall::store::{Connection, movements};
use landfall::time::Pulse;
use landfall::watcher::Traced;
use landfall_chain::{AssetId, Lane, U256};
use landfall_sim::{Fault, SimLeg, SimTx};
use tokio_util::sync::CancellationToken;

use crate::delivery::engine::until;
use crate::harness::books::events;
use crate::harness::postgres::{ENGINES, Engine};
use crate::harness::world::{
    CHAIN, FAILED_GRACE, FINALITY_DEPTH, TOKEN, World, address, report, report_as, until_called,
};

pub(crate) const ALICE: u8 = 0xa1;
pub(crate) const BOB: u8 = 0xb0;
const PAYER: u8 = 0x01;

pub(crate) async fn world() -> World {
    let mut world = World::traced(Engine::Sqlite, 1).await;
    world.watch("alice", address(ALICE)).await;
    world.chain.mine_empty(1);
    world.catch_up().await;
    world
}

pub(crate) fn inner(nonce: u64, to: u8, amount: u64) -> SimTx {
    SimTx::new(address(PAYER), nonce, vec![SimLeg::inner(address(PAYER), address(to), amount)])
}

fn token(nonce: u64, to: u8, amount: u64) -> SimTx {
    let leg = SimLeg { asset: TOKEN, ..SimLeg::native(address(PAYER), address(to), amount) };
    SimTx::new(address(PAYER), nonce, vec![leg])
}

/// The same, after the lane has said something.
pub(crate) async fn report_after(world: &World) -> ChainReport {
    world.say("").await;
    report(world).await
}

#[tokio::test]
async fn value_that_moves_inside_is_pending_by_its_trace_and_confirmed_with_the_balances_that_agree() {
    for engine in ENGINES {
        let mut world = World::traced(engine, 1).await;
        world.watch("alice", address(ALICE)).await;
        world.chain.mine(vec![inner(0, ALICE, 5), token(1, ALICE, 6)]);
        let ticked = world.tick().await;
        assert_eq!((ticked.pending, world.deposits().await.len()), (1, 1), "the token; nothing inside is seen yet");
        let traced = world.trace().await;
        assert_eq!((traced.traced, traced.pending), (1, 1));
        world.chain.mine_empty(FINALITY_DEPTH);
        world.tick().await;
        assert_eq!(
            (world.status_of(5).await, world.status_of(6).await),
            (Pending, Confirmed),
            "the token waits for nothing"
        );
        assert_eq!(world.trace().await.confirmed, 1);
        assert_eq!(world.status_of(5).await, Confirmed);
        world.close().await;
    }
}

#[tokio::test]
async fn equal_legs_inside_count_on_behind_those_of_the_roots_whichever_lane_came_first() {
    let mut world = world().await;
    let legs = [SimLeg::inner, SimLeg::native, SimLeg::inner].map(|leg| leg(address(PAYER), address(ALICE), 5));
    world.chain.mine(vec![SimTx::new(address(PAYER), 0, legs.to_vec())]);
    world.chain.mine_empty(FINALITY_DEPTH);
    world.catch_up().await;
    let mut nths: Vec<u32> = world.deposits().await.iter().map(|deposit| deposit.nth).collect();
    nths.sort_unstable();
    assert_eq!(nths, [0, 1, 2]);
    assert!(world.deposits().await.iter().all(|deposit| deposit.status == Confirmed), "what was paid covers all three");
    world.close().await;
}

#[tokio::test]
async fn a_leg_inside_that_is_confirmed_first_stands_in_nobody_elses_way() {
    let mut world = world().await;
    let legs =
        vec![SimLeg::native(address(PAYER), address(ALICE), 5), SimLeg::inner(address(PAYER), address(ALICE), 7)];
    world.chain.mine(vec![SimTx::new(address(PAYER), 0, legs)]);
    world.catch_up().await;
    world.chain.mine_empty(FINALITY_DEPTH);
    // tip, the new blocks, then the evidence, which cannot be had: the block is final all the same.
    world.chain.script([Fault::Late(Duration::ZERO), Fault::Late(Duration::ZERO), Fault::Fail]);
    assert!(world.try_tick().await.unwrap_err().may_pass());
    world.trace().await;
    assert_eq!((world.status_of(5).await, world.status_of(7).await), (Pending, Confirmed));
    world.catch_up().await;
    assert_eq!(world.status_of(5).await, Confirmed, "12 were paid in all, and each lane knows its own");
    world.close().await;
}

#[tokio::test]
async fn slow_and_failing_traces_delay_no_token_by_one_tick() {
    let mut world = world().await;
    world.chain.mine_empty(1);
    world.tick().await;
    for number in 0..20 {
        let hour = Fault::Late(Duration::from_secs(3_600));
        world.chain.script_traces(std::iter::repeat_n(if number % 2 == 0 { hour } else { Fault::Fail }, 16));
        world.chain.mine(vec![token(2 * number, ALICE, number + 1), inner(2 * number + 1, ALICE, 100 + number)]);
        // The lane is in the middle of a trace that takes an hour, or fails at once, while the other one ticks.
        let (lane, now) = (world.watcher_lane(), world.now());
        let traces = async {
            assert!(lane.tick(now).await.is_err(), "a trace of an hour is over");
            std::future::pending::<()>().await;
        };
        let ticked = tokio::select! {
            () = traces => unreachable!("it waits for ever"),
            ticked = world.try_tick() => ticked.unwrap(),
        };
        assert_eq!((ticked.connected, ticked.pending, ticked.caught_up), (1, 1, true));
        world.chain.behave();
    }
    world.chain.behave();
    world.chain.mine_empty(FINALITY_DEPTH);
    world.catch_up().await;
    assert_eq!(world.deposits().await.iter().filter(|deposit| deposit.status == Confirmed).count(), 40);
    world.close().await;
}

#[tokio::test]
async fn a_block_is_complete_for_native_only_when_its_trace_is_in_and_status_says_so() {
    let mut world = world().await;
    world.say("").await;
    assert_eq!(report(&world).await.traced, Some(1));
    world.chain.mine(vec![inner(0, ALICE, 5)]);
    world.chain.mine_empty(2);
    world.tick().await;
    world.chain.script_traces([Fault::Refuse]);
    // The first block's trace is refused; that holds up neither of the others.
    let traced = world.trace().await;
    assert_eq!((traced.traced, traced.put_off), (2, 1));
    world.pass(Duration::from_secs(61));
    world.say("").await;
    let reported = report(&world).await;
    assert_eq!(
        (reported.traced, reported.traces_lag_secs),
        (Some(1), Some(61)),
        "blocks 3 and 4 are traced, and 2 is not"
    );
    assert_eq!(reported.traces_put_off, 1);
    assert!(reported.traces_put_off_reason.contains("not to offer this call"), "{reported:?}");
    let status = Status::read(world.db(), world.now()).await.unwrap();
    let complaints = status.complaints(&[CHAIN].into(), Duration::from_secs(60));
    assert_eq!(complaints.len(), 1, "{complaints:?}");
    assert!(
        complaints[0].starts_with("ETHEREUM_TESTNET: its traces are 61 s behind (the sim was told"),
        "{complaints:?}"
    );

    world.catch_up().await;
    world.say("").await;
    let reported = report(&world).await;
    assert_eq!((reported.traced, reported.traces_lag_secs, reported.traces_reason.as_str()), (Some(4), Some(0), ""));
    assert_eq!(world.status_of(5).await, Pending);
    assert!(
        Status::read(world.db(), world.now())
            .await
            .unwrap()
            .complaints(&[CHAIN].into(), Duration::from_secs(60))
            .is_empty()
    );
    landfall::watcher::not_traced(world.db(), &world.network).await.unwrap();
    assert_eq!(report(&world).await.traced, None, "and nothing is said of a network that is not traced");
    world.close().await;
}

/// What `health` says of it.
async fn unwitnessed(world: &World) -> Vec<String> {
    report(world).await;
    let status = Status::read(world.db(), world.now()).await.unwrap();
    let complaints = status.complaints(&[CHAIN].into(), Duration::from_secs(60));
    complaints.into_iter().filter(|complaint| complaint.contains("doubtful deposits")).collect()
}

#[tokio::test]
async fn without_a_second_witness_a_deposit_stays_pending_with_a_reason_and_is_tried_with_growing_pauses() {
    let mut world = world().await;
    world.chain.mine(vec![inner(0, ALICE, 5)]);
    world.chain.withhold_balances(true);
    world.chain.mine_empty(FINALITY_DEPTH);
    world.catch_up().await;
    world.say("").await;
    let reported = report(&world).await;
    assert!(reported.traces_alarm.contains("cannot be had: the state of block"), "{reported:?}");
    assert_eq!(unwitnessed(&world).await, Vec::<String>::new(), "it may pass");
    let mut tried_after = Vec::new();
    let mut waited = 0;
    while tried_after.len() < 4 {
        world.pass(Duration::from_secs(1));
        waited += 1;
        if world.trace().await.doubted == 1 {
            tried_after.push(std::mem::take(&mut waited));
        }
    }
    assert_eq!(tried_after, [10, 20, 40, 80]);
    world.say("").await;
    let [complaint] = &unwitnessed(&world).await[..] else { panic!("one complaint") };
    assert!(
        complaint
            .starts_with("ETHEREUM_TESTNET: 1 of final blocks wait for long: doubtful deposits, PENDING: 1; deposit "),
        "{complaint}"
    );
    for _ in 0..48 {
        world.pass(FAILED_GRACE);
        world.trace().await;
        world.tick().await;
    }
    assert_eq!(world.status_of(5).await, Pending, "two days, and it is not FAILED");
    world.chain.withhold_balances(false);
    world.pass(Duration::from_secs(600));
    assert_eq!(world.trace().await.confirmed, 1);
    assert_eq!(report(&world).await.traces_alarm, "");
    world.close().await;
}

#[tokio::test]
async fn a_leg_that_one_of_two_endpoints_hides_at_the_first_read_is_not_missed() {
    let mut world = world().await;
    world.chain.trace_twice(true);
    world.chain.mine(vec![inner(0, ALICE, 5)]);
    world.tick().await;
    // Alone, each of them is asked too, and both hide it.
    world.chain.script_traces([Fault::Hide(address(ALICE)); 3]);
    // They differ: the block is not complete, says why, and is tried again.
    let error = world.try_trace().await.unwrap_err();
    world.say(&error.to_string()).await;
    let reported = report(&world).await;
    assert_eq!((reported.traced, reported.traces_by_two), (Some(1), None), "{reported:?}");
    assert!(reported.traces_reason.contains("two endpoints tell different traces of block 2"), "{reported:?}");
    assert_eq!(world.trace().await.pending, 1);
    world.chain.mine_empty(FINALITY_DEPTH);
    world.catch_up().await;
    assert_eq!(world.status_of(5).await, Confirmed);
    world.close().await;
}

#[tokio::test]
async fn status_says_up_to_which_block_two_endpoints_reported_the_traces_and_where_one_did() {
    let mut world = world().await;
    world.say("").await;
    let reported = report(&world).await;
    assert_eq!((reported.traces_by_two, reported.traces_by_one), (None, Some(1)), "one endpoint traces");
    world.chain.trace_twice(true);
    world.chain.mine_empty(2);
    world.catch_up().await;
    let reported = report(&world).await;
    assert_eq!((reported.traces_by_two, reported.traces_by_one), (Some(3), Some(1)));
    // The second one fails, and so do balances: the lane goes on.
    world.chain.trace_twice(false);
    world.chain.withhold_balances(true);
    world.chain.mine(vec![inner(0, ALICE, 5)]);
    world.catch_up().await;
    let reported = report(&world).await;
    assert_eq!((reported.traced, reported.traces_by_two, reported.traces_by_one), (Some(4), Some(3), Some(4)));
    // It is back before the block is final, and corroborates what one endpoint reported.
    world.chain.trace_twice(true);
    world.chain.mine_empty(FINALITY_DEPTH);
    world.catch_up().await;
    assert_eq!(world.status_of(5).await, Confirmed);
    let reported = report(&world).await;
    assert_eq!((reported.traces_by_two, reported.traces_by_one), (Some(14), Some(1)));
    world.close().await;
}

#[tokio::test]
async fn blocks_that_cannot_be_traced_are_put_off_and_starve_no_other() {
    for engine in ENGINES {
        let mut world = World::traced(engine, 1).await;
        world.watch("alice", address(ALICE)).await;
        world.chain.set_finality_depth(None);
        // The 20 oldest and the 20 newest are too much for the node; of the 20 between one pays.
        for number in 1..=60 {
            world.chain.mine(if number == 30 { vec![inner(0, ALICE, 5)] } else { vec![] });
        }
        while !world.tick().await.caught_up {}
        world.chain.withhold_traces((1..=20).chain(41..=60));
        let mut ticks = 0;
        while world.deposits().await.is_empty() {
            ticks += 1;
            assert!(ticks <= 5, "16 that cannot be traced must not keep the others from it");
            world.try_trace().await.ok();
            world.pass(Duration::from_secs(1));
        }
        // Nor do they slow down what comes: each is tried again with growing pauses, and the lane does not fail.
        let mut tried = Vec::new();
        for _ in 0..200 {
            world.chain.mine_empty(1);
            world.tick().await;
            world.pass(Duration::from_secs(1));
            let traced = world.trace().await;
            assert!(traced.traced >= 1, "the newest, at once");
            tried.push(traced.put_off);
        }
        let [early, late] = [&tried[..50], &tried[150..]].map(|tries| tries.iter().sum::<u64>());
        assert!(early > 40 && late < early / 2, "{early} tries at first, {late} in the end");
        world.say("").await;
        let reported = report(&world).await;
        assert_eq!((reported.traced, reported.traces_put_off), (Some(0), 40), "{reported:?}");
        assert!(reported.traces_put_off_reason.contains("takes too long"), "{reported:?}");
        world.chain.withhold_traces([]);
        world.pass(Duration::from_secs(600));
        world.catch_up().await;
        world.say("").await;
        let reported = report(&world).await;
        assert_eq!((reported.traced, reported.traces_put_off), (Some(260), 0));
        world.chain.set_finality_depth(Some(FINALITY_DEPTH));
        world.catch_up().await;
        assert_eq!(world.status_of(5).await, Confirmed);
        world.close().await;
    }
}

#[tokio::test]
async fn while_nothing_can_be_traced_no_block_is_put_off() {
    let mut world = world().await;
    world.chain.mine(vec![inner(0, ALICE, 5)]);
    world.tick().await;
    world.pass(Duration::from_secs(1));
    for _ in 0..30 {
        world.chain.script_traces([Fault::Fail; 1]);
        assert!(world.try_trace().await.unwrap_err().may_pass());
        world.pass(Duration::from_secs(10));
    }
    assert_eq!(world.trace().await.pending, 1, "at once when traces can be had again");
    world.close().await;
}

#[tokio::test]
async fn a_second_endpoint_that_never_answers_is_left_out_for_a_while() {
    let mut world = world().await;
    world.chain.trace_twice(true);
    world.chain.hang_second(true);
    for slow in [true, false] {
        world.chain.mine_empty(1);
        world.tick().await;
        let begun = tokio::time::Instant::now();
        assert_eq!(world.trace().await.traced, 1);
        assert_eq!(begun.elapsed() > Duration::from_secs(2), slow);
    }
    assert_eq!(report_after(&world).await.traces_by_one, Some(3));
    world.chain.hang_second(false);
    world.pass(Duration::from_secs(60));
    world.chain.mine_empty(1);
    world.catch_up().await;
    assert_eq!(report_after(&world).await.traces_by_two, Some(4));
    world.close().await;
}

#[tokio::test]
async fn two_endpoints_that_agree_are_witness_enough() {
    let mut world = world().await;
    world.chain.withhold_balances(true);
    world.chain.trace_twice(true);
    world.chain.mine(vec![inner(0, ALICE, 5)]);
    world.chain.mine_empty(FINALITY_DEPTH);
    world.catch_up().await;
    assert_eq!(world.status_of(5).await, Confirmed);
    world.close().await;
}

#[tokio::test]
async fn a_leg_that_an_endpoint_invents_fails_when_the_balances_agree_with_a_trace_without_it() {
    let mut world = world().await;
    world.chain.script_traces([Fault::Invent(address(ALICE), 1_000)]);
    world.chain.mine(vec![inner(0, BOB, 5), inner(1, ALICE, 7)]);
    world.catch_up().await;
    assert_eq!(world.status_of(1_000).await, Pending, "one endpoint's word");
    world.chain.mine_empty(FINALITY_DEPTH);
    world.catch_up().await;
    assert_eq!((world.status_of(1_000).await, world.status_of(7).await), (Failed, Confirmed));
    let statuses: Vec<String> = events(world.db()).await.into_iter().map(|event| event.status).collect();
    assert_eq!(statuses.iter().filter(|status| *status == "FAILED").count(), 1);
    // What was invented is in the inclusions for ever: the balances of the books do not agree with them.
    world.abandon();
}

#[tokio::test]
async fn a_leg_that_an_endpoint_invents_each_time_is_never_confirmed() {
    let mut world = world().await;
    // The balances of who runs code deny nothing.
    world.chain.put_code(address(ALICE));
    let invented = Fault::Invent(address(ALICE), 1_000);
    world.chain.script_traces([invented]);
    world.chain.mine(vec![inner(0, BOB, 5)]);
    world.catch_up().await;
    world.chain.set_finality_depth(None);
    world.chain.mine_empty(FINALITY_DEPTH + 2);
    world.catch_up().await;
    world.chain.set_finality_depth(Some(FINALITY_DEPTH));
    world.tick().await;
    for _ in 0..5 {
        world.chain.script_traces([invented]);
        world.trace().await;
        world.chain.behave();
        world.pass(Duration::from_secs(600));
    }
    world.say("").await;
    assert_eq!(world.status_of(1_000).await, Pending, "the balances do not agree");
    assert!(report(&world).await.traces_alarm.contains("do not agree"), "{:?}", report(&world).await.traces_alarm);
    let statuses: Vec<String> = events(world.db()).await.into_iter().map(|event| event.status).collect();
    assert_eq!(statuses, ["PENDING"]);
    world.abandon();
}

#[tokio::test]
async fn lies_that_cancel_out_in_the_balances_are_not_witnessed_by_them() {
    // What came in and went out again; and what came in to one who is said to have paid so much more for a transaction.
    let dear = |fee: u64| SimTx { reported_fee: Some(U256::from(fee)), ..SimTx::new(address(ALICE), 0, vec![]) };
    let (churn, invent) = (Fault::Churn(address(ALICE), 1_000), Fault::Invent(address(ALICE), 1_000));
    for (tx, lie, why) in [
        (inner(0, BOB, 5), churn, "value left it inside of transactions"),
        (dear(21 + 1_000), invent, "paid for a transaction, of which a part is the node's word"),
    ] {
        let mut world = world().await;
        world.chain.put_code(address(ALICE));
        world.chain.mine(vec![tx]);
        world.chain.script_traces([lie]);
        world.catch_up().await;
        assert_eq!(world.status_of(1_000).await, Pending);
        world.chain.set_finality_depth(None);
        world.chain.mine_empty(FINALITY_DEPTH);
        world.catch_up().await;
        world.chain.set_finality_depth(Some(FINALITY_DEPTH));
        world.tick().await;
        world.chain.script_traces([lie]);
        assert_eq!(world.trace().await.doubted, 1);
        assert_eq!(world.status_of(1_000).await, Pending, "{why}");
        world.say("").await;
        let alarm = report(&world).await.traces_alarm;
        assert!(alarm.contains(why) && alarm.contains("two endpoints of different engines must report"), "{alarm}");
        // Without it nothing is judged by balances either: the same lies could hide what is there.
        world.pass(Duration::from_secs(600));
        assert_eq!(world.trace().await.doubted, 1);
        world.chain.trace_twice(true);
        world.pass(Duration::from_secs(600));
        assert_eq!(world.trace().await.failed, 1, "{why}");
        world.abandon();
    }
}

#[tokio::test]
async fn the_balances_of_the_fee_recipient_are_no_witness_that_the_fees_came_from_inside() {
    let mut world = world().await;
    // One trace reports, as often as it is asked for, that just so much came to her by a transaction.
    let invent = Fault::Invent(address(ALICE), 1_000);
    world.chain.mine(vec![inner(0, BOB, 5)]);
    world.chain.pay_fees_to(address(ALICE), 1_000);
    world.chain.script_traces([invent; 2]);
    world.catch_up().await;
    assert_eq!(world.status_of(1_000).await, Pending);
    world.chain.mine_empty(FINALITY_DEPTH);
    world.tick().await;
    world.chain.script_traces([invent]);
    world.pass(Duration::from_secs(600));
    world.trace().await;
    assert_eq!(world.status_of(1_000).await, Pending, "the balances agree, and prove nothing");
    world.say("").await;
    let alarm = report(&world).await.traces_alarm;
    assert!(alarm.contains("the fees of the block went to"), "{alarm}");
    world.chain.trace_twice(true);
    world.pass(Duration::from_secs(600));
    assert_eq!(world.trace().await.failed, 1);
    world.abandon();
}

#[tokio::test]
async fn whoever_is_paid_and_pays_inside_of_one_block_is_witnessed_by_a_second_trace() {
    let mut world = world().await;
    let on = SimLeg::inner(address(ALICE), address(BOB), 4);
    world.chain.mine(vec![inner(0, ALICE, 5), SimTx::new(address(PAYER), 1, vec![on])]);
    world.chain.mine_empty(FINALITY_DEPTH);
    world.catch_up().await;
    assert_eq!(world.status_of(5).await, Pending);
    world.chain.trace_twice(true);
    world.pass(Duration::from_secs(600));
    world.catch_up().await;
    assert_eq!(world.status_of(5).await, Confirmed);
    world.close().await;
}

#[tokio::test]
async fn a_leg_that_an_endpoint_hides_is_found_when_the_balances_do_not_agree_with_what_it_shows() {
    let mut world = world().await;
    // Of who runs no code the balances say all that came.
    world.chain.put_code(address(ALICE));
    world.chain.mine(vec![inner(0, ALICE, 5), inner(1, ALICE, 7)]);
    world.tick().await;
    world.chain.mine(vec![inner(2, ALICE, 9)]);
    world.chain.set_finality_depth(None);
    world.chain.mine_empty(FINALITY_DEPTH + 2);
    world.chain.withhold_balances(true);
    world.catch_up().await;
    world.chain.withhold_balances(false);
    world.chain.set_finality_depth(Some(FINALITY_DEPTH));
    world.tick().await;
    // The first read showed all of them; what is read again of the first block hides them.
    world.chain.script_traces([Fault::Hide(address(ALICE))]);
    let traced = world.trace().await;
    assert_eq!((traced.doubted, traced.confirmed), (2, 1));
    assert_eq!((world.status_of(5).await, world.status_of(7).await), (Pending, Pending));
    assert_eq!(world.status_of(9).await, Confirmed, "another block's is held up by nothing");
    world.chain.behave();
    world.pass(Duration::from_secs(600));
    world.catch_up().await;
    assert_eq!((world.status_of(5).await, world.status_of(7).await), (Confirmed, Confirmed));
    world.close().await;
}

#[tokio::test]
async fn a_leg_that_the_first_read_hid_is_recorded_by_the_full_one() {
    let mut world = world().await;
    world.watch("bob", address(BOB)).await;
    world.chain.mine(vec![inner(0, ALICE, 5), inner(1, BOB, 7)]);
    world.tick().await;
    world.chain.script_traces([Fault::Hide(address(BOB))]);
    // Without a witness the block is read again.
    world.chain.withhold_balances(true);
    assert_eq!(world.trace().await.pending, 1);
    world.chain.withhold_balances(false);
    world.chain.mine_empty(FINALITY_DEPTH);
    world.catch_up().await;
    assert_eq!((world.status_of(5).await, world.status_of(7).await), (Confirmed, Confirmed));
    world.close().await;
}

#[tokio::test]
async fn a_payer_that_is_watched_too_makes_the_balances_agree_with_its_fees() {
    let mut world = world().await;
    let paid = [SimLeg::inner(address(PAYER), address(ALICE), 50), SimLeg::native(address(ALICE), address(BOB), 7)];
    // ALICE signs: she pays the fee, sends 7 and is paid 50.
    world.chain.mine(vec![SimTx::new(address(ALICE), 0, paid.to_vec())]);
    let at = world.chain.latest().number;
    world.chain.mine_empty(FINALITY_DEPTH);
    world.catch_up().await;
    assert_eq!(world.status_of(50).await, Confirmed);
    let mut reader = world.db().read().await.unwrap();
    let spent = movements::spent(&mut reader, CHAIN, &address(ALICE), &AssetId::Native, &(0..=at)).await.unwrap();
    assert_eq!((spent.debits, spent.fees), (U256::from(7), U256::from(21)));
    let none =
        movements::spent(&mut reader, CHAIN, &address(ALICE), &AssetId::Native, &(at + 1..=u64::MAX)).await.unwrap();
    assert_eq!((none.debits, none.fees), (U256::ZERO, U256::ZERO));
    drop(reader);
    world.close().await;
}

#[tokio::test]
async fn a_reorg_while_a_trace_is_read_records_nothing_of_the_dropped_block() {
    let mut world = world().await;
    world.chain.mine(vec![inner(0, ALICE, 5)]);
    world.tick().await;
    world.chain.script_traces([Fault::Held]);
    let lane = world.watcher_lane();
    let (now, chain, before) = (world.now(), world.chain.clone(), world.chain.calls());
    // The trace is under way when the block is disconnected; the answer still comes from the dropped branch.
    let dropped = chain.blocks();
    let reorg = async {
        until_called(&chain, before + 1).await;
        chain.fork_at(1);
        chain.mine_empty(2);
        world.try_tick().await.unwrap();
        chain.restore(dropped);
        chain.release();
    };
    let (traced, ()) = tokio::join!(lane.tick(now), reorg);
    assert_eq!(traced.unwrap().traced, 0);
    assert_eq!(world.deposits().await, []);

    world.catch_up().await;
    assert_eq!(world.status_of(5).await, Pending, "connected again, traced again");
    world.chain.mine_empty(FINALITY_DEPTH);
    world.catch_up().await;
    assert_eq!(world.status_of(5).await, Confirmed);
    world.close().await;
}

#[tokio::test]
async fn a_leg_inside_that_is_mined_again_elsewhere_keeps_its_id_and_is_credited_once() {
    let mut world = world().await;
    world.chain.mine(vec![inner(0, ALICE, 5)]);
    world.catch_up().await;
    let before = world.deposits().await.remove(0).id;
    world.chain.fork_at(1);
    world.chain.mine_empty(1);
    world.chain.mine(vec![token(7, BOB, 1), inner(0, ALICE, 5)]);
    world.chain.mine_empty(FINALITY_DEPTH);
    world.catch_up().await;
    let deposits = world.deposits().await;
    assert_eq!((deposits.len(), deposits[0].id, deposits[0].status), (1, before, Confirmed));
    assert_eq!(events(world.db()).await.len(), 2);
    world.close().await;
}

#[tokio::test]
async fn a_leg_inside_that_is_gone_from_its_transaction_fails_only_when_somebody_else_agrees() {
    let mut world = world().await;
    world.chain.mine(vec![inner(0, ALICE, 5)]);
    world.catch_up().await;
    world.chain.fork_at(1);
    world.chain.mine(vec![SimTx { legs: Vec::new(), ..inner(0, ALICE, 5) }]);
    world.chain.withhold_balances(true);
    world.chain.mine_empty(FINALITY_DEPTH);
    world.catch_up().await;
    assert_eq!(world.status_of(5).await, Pending, "that it is not there is one endpoint's word, too");
    world.chain.withhold_balances(false);
    world.chain.mine_empty(1);
    world.catch_up().await;
    assert_eq!(world.status_of(5).await, Failed);
    world.close().await;
}

#[tokio::test]
async fn a_leg_inside_whose_transaction_was_replaced_or_lost_fails_as_any_other() {
    let mut world = world().await;
    let (replaced, lost) = (inner(0, ALICE, 5), SimTx::new(address(PAYER + 1), 0, inner(0, ALICE, 6).legs));
    world.chain.mine(vec![replaced.clone(), lost]);
    world.catch_up().await;
    world.chain.fork_at(1);
    world.chain.mine(vec![replaced.replaced_by(Vec::new())]);
    world.chain.mine_empty(FINALITY_DEPTH);
    world.catch_up().await;
    assert_eq!((world.status_of(5).await, world.status_of(6).await), (Failed, Pending));
    world.pass(FAILED_GRACE);
    world.chain.mine_empty(1);
    world.catch_up().await;
    assert_eq!(world.status_of(6).await, Failed);
    world.close().await;
}

#[tokio::test]
async fn an_address_added_while_a_block_was_disconnected_is_matched_when_it_is_connected_again() {
    let mut world = world().await;
    world.chain.mine(vec![inner(0, BOB, 5)]);
    world.catch_up().await;
    let branch = world.chain.blocks();
    world.chain.fork_at(1);
    world.chain.mine_empty(1);
    // tip, headers; the block is taken back, and the one in its place cannot be read.
    world.chain.script([Fault::Late(Duration::ZERO), Fault::Late(Duration::ZERO), Fault::Fail]);
    assert!(world.try_tick().await.unwrap_err().may_pass());
    world.watch("bob", address(BOB)).await;
    world.chain.restore(branch);
    world.catch_up().await;
    assert_eq!(world.status_of(5).await, Pending, "its block was traced before, for a list without it");
    world.close().await;
}

#[tokio::test]
async fn an_address_is_matched_inside_from_the_block_that_it_was_reported() {
    let mut world = world().await;
    world.chain.mine(vec![inner(0, BOB, 5)]);
    world.tick().await;
    world.watch("bob", address(BOB)).await;
    world.chain.mine(vec![inner(1, BOB, 6)]);
    world.catch_up().await;
    assert_eq!(world.deposits().await.len(), 1, "the trace of the block before is read later, and was not promised");
    assert_eq!(world.status_of(6).await, Pending);
    world.close().await;
}

#[tokio::test]
async fn pruning_forgets_no_block_that_has_still_to_be_traced() {
    let mut world = world().await;
    world.chain.mine(vec![inner(0, ALICE, 5)]);
    world.chain.mine_empty(1_200);
    while !world.tick().await.caught_up {}
    world.chain.mine_empty(20);
    while !world.tick().await.caught_up {}
    let db = world.db().clone();
    let on_record = async |text: &'static str| -> i64 {
        let mut reader = db.read().await.unwrap();
        let landfall::store::Engine::Sqlite(connection) = reader.engine() else { panic!("SQLite") };
        sqlx::query_scalar(text).fetch_one(connection).await.unwrap()
    };
    assert_eq!(on_record("SELECT COUNT(*) FROM blocks WHERE NOT traced").await, 1_221);
    world.catch_up().await;
    assert_eq!(world.status_of(5).await, Confirmed);
    assert_eq!(on_record("SELECT COUNT(*) FROM blocks WHERE NOT traced").await, 0);
    let kept = on_record("SELECT COUNT(*) FROM blocks").await;
    assert!(kept < 1_060, "{kept} blocks: what was kept for the traces is forgotten behind them");
    world.close().await;
}

#[tokio::test]
async fn a_signer_that_the_node_made_up_credits_nothing_and_is_read_again() {
    let mut world = world().await;
    world.chain.mine(vec![token(0, ALICE, 5), inner(1, ALICE, 6)]);
    // tip is right; the block names another signer.
    world.chain.script([Fault::Late(Duration::ZERO), Fault::Forge]);
    let error = world.try_tick().await.unwrap_err();
    assert!(error.may_pass() && error.to_string().contains("was signed by another"), "{error}");
    assert_eq!(world.deposits().await, []);
    world.tick().await;
    world.chain.script_traces([Fault::Forge]);
    assert!(world.try_trace().await.unwrap_err().to_string().contains("was signed by another"));
    assert_eq!(world.deposits().await.len(), 1);
    world.catch_up().await;

    world.chain.mine_empty(FINALITY_DEPTH);
    // tip, the new blocks, then the evidence.
    world.chain.script([Fault::Late(Duration::ZERO), Fault::Late(Duration::ZERO), Fault::Forge]);
    assert!(world.try_tick().await.unwrap_err().to_string().contains("was signed by another"));
    assert_eq!(world.status_of(5).await, Pending);
    world.catch_up().await;
    assert_eq!((world.status_of(5).await, world.status_of(6).await), (Confirmed, Confirmed));
    world.close().await;
}

#[tokio::test]
async fn a_halted_chain_confirms_nothing_by_traces_either() {
    let mut world = world().await;
    world.chain.mine(vec![inner(0, ALICE, 5)]);
    world.chain.mine_empty(FINALITY_DEPTH);
    world.tick().await;
    for (state, confirmed) in [("halted", 0), ("following", 1)] {
        report_as(&world, state).await;
        assert_eq!(confirmed_by_traces(&world).await, confirmed, "{state}");
    }
    world.close().await;
}

/// How many deposits some ticks of the lane confirm.
async fn confirmed_by_traces(world: &World) -> u64 {
    let mut confirmed = 0;
    for _ in 0..3 {
        confirmed += world.trace().await.confirmed;
    }
    confirmed
}

#[tokio::test]
async fn a_chain_that_a_person_halts_is_not_traced_either_also_over_restarts() {
    let mut world = world().await;
    world.chain.mine(vec![inner(0, ALICE, 5)]);
    world.chain.mine_empty(FINALITY_DEPTH);
    world.tick().await;
    world.operator().halt(world.db(), CHAIN).await.unwrap();
    for _ in 0..2 {
        assert_eq!(world.trace().await, Traced::default());
        assert_eq!(world.deposits().await, []);
        world.restart();
    }
    world.operator().resume(world.db(), CHAIN).await.unwrap();
    world.catch_up().await;
    assert_eq!(world.status_of(5).await, Confirmed);
    world.close().await;
}

/// Runs the watcher of a new process until it has said something at this moment, and the state in which `is_so`.
async fn run_until(world: &World, is_so: impl Fn(&ChainReport) -> bool) {
    world.pass(Duration::from_secs(60));
    let stop = CancellationToken::new();
    let running = world.run(stop.clone());
    let look = async {
        for _ in 0..6_000 {
            let reported = status::last(&mut world.db().read().await.unwrap(), CHAIN).await.unwrap().unwrap();
            let status = Status::read(world.db(), world.now()).await.unwrap();
            if reported.heartbeat_at == world.now() && is_so(&status.chains[0]) {
                return stop.cancel();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{:#?}", Status::read(world.db(), world.now()).await.unwrap());
    };
    tokio::join!(running, look);
}

#[tokio::test]
async fn a_restart_ends_no_halt_before_a_step_has_succeeded_or_a_person_has_resumed_the_chain() {
    let mut world = world().await;
    world.chain.mine(vec![inner(0, ALICE, 5)]);
    world.chain.mine_empty(FINALITY_DEPTH);
    world.tick().await;
    report_as(&world, "halted").await;
    for _ in 0..2 {
        world.chain.script(std::iter::repeat_n(Fault::Fail, 10_000));
        run_until(&world, |_| true).await;
        world.chain.behave();
        assert_eq!(report_state(&world).await, "halted", "nothing is known that the former process did not know");
        assert_eq!(confirmed_by_traces(&world).await, 0);
    }
    world.pass(Duration::from_secs(1));
    world.operator().resume(world.db(), CHAIN).await.unwrap();
    world.chain.script(std::iter::repeat_n(Fault::Fail, 10_000));
    run_until(&world, |chain| chain.state == "failing").await;
    world.chain.behave();
    report_as(&world, "halted").await;
    run_until(&world, |chain| chain.state == "following").await;
    assert_eq!(confirmed_by_traces(&world).await, 1);
    world.close().await;
}

async fn report_state(world: &World) -> String {
    Status::read(world.db(), world.now()).await.unwrap().chains.remove(0).state
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_running_lane_says_what_fails_recovers_by_itself_and_stops_in_the_middle_of_a_trace() {
    let mut world = world().await;
    world.chain.script_traces(std::iter::repeat_n(Fault::Refuse, 10_000));
    world.chain.mine(vec![inner(0, ALICE, 5)]);
    world.tick().await;
    let (stop, clock) = (CancellationToken::new(), world.clock());
    let pulse = Pulse::new("traces", world.now());
    let running = {
        let (lane, stop) = (world.watcher_lane(), stop.clone());
        #[expect(clippy::disallowed_methods, reason = "the test's own worker")]
        tokio::spawn(lane.run(clock, || 0, pulse, stop))
    };
    until("what fails", async || report(&world).await.traces_reason.contains("not to offer this call")).await;
    world.chain.behave();
    until("the deposit", async || world.deposits().await.len() == 1).await;
    assert_eq!(world.status_of(5).await, Pending);
    world.chain.script_traces([Fault::Late(Duration::from_secs(3_600))]);
    world.chain.mine_empty(1);
    world.tick().await;
    until("a trace", async || world.chain.struck().contains_key(&(Lane::Traces, "late"))).await;
    stop.cancel();
    tokio::time::timeout(Duration::from_secs(60), running).await.unwrap().unwrap();
    world.chain.behave();
    world.close().await;
}
