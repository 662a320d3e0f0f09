//! Tracing again: what one of two endpoints reported alone is reported by both once both are there, beside the lane and
//! without delaying it.

use std::time::Duration;

use landfall::deposit::DepositStatus::Confirmed;
use landfall::time::Pulse;
use landfall_sim::Fault;
use tokio_util::sync::CancellationToken;

use crate::delivery::engine::until;
use crate::harness::world::{FINALITY_DEPTH, World, address};
use crate::traces::{ALICE, BOB, inner, report_after, world};

/// A block whose only endpoint up hides what it pays: no deposit asks for anything.
async fn hidden_while_one_endpoint_is_down() -> World {
    let mut world = world().await;
    world.chain.trace_twice(true);
    world.chain.mine_empty(1);
    world.catch_up().await;
    world.chain.trace_twice(false);
    world.chain.script_traces([Fault::Hide(address(ALICE))]);
    world.chain.mine(vec![inner(0, ALICE, 5)]);
    world.catch_up().await;
    assert!(world.deposits().await.is_empty(), "hidden");
    assert_eq!(report_after(&world).await.traces_by_one, Some(3));
    world
}

/// Ticks of the lane of the traces, as many as fit into half an hour with `pause` between them; the calls of each.
async fn half_an_hour(world: &World, pause: Duration) -> Vec<u64> {
    let mut calls = Vec::new();
    for _ in 0..1_800 / pause.as_secs() {
        world.pass(pause);
        let before = world.chain.calls();
        world.trace().await;
        calls.push(world.chain.calls() - before);
    }
    calls
}

#[tokio::test]
async fn a_leg_that_the_only_endpoint_up_hides_is_found_when_a_second_one_is_back() {
    // Back before the block is final, and long after.
    for later in [1, 5 * FINALITY_DEPTH] {
        let mut world = hidden_while_one_endpoint_is_down().await;
        world.chain.mine_empty(later);
        world.catch_up().await;
        half_an_hour(&world, Duration::from_secs(30)).await;
        assert!(world.deposits().await.is_empty(), "one endpoint alone: nobody tells");
        world.chain.trace_twice(true);
        half_an_hour(&world, Duration::from_secs(30)).await;
        assert_eq!(report_after(&world).await.traces_by_one, None);
        world.chain.mine_empty(FINALITY_DEPTH);
        world.catch_up().await;
        assert_eq!(world.status_of(5).await, Confirmed);
        world.close().await;
    }
}

#[tokio::test]
async fn where_two_differ_on_what_one_reported_each_is_answered_and_a_witness_decides() {
    let mut world = hidden_while_one_endpoint_is_down().await;
    world.chain.trace_twice(true);
    // A block waits for half a minute from when it is noticed, and who notices for as long.
    for _ in 0..2 {
        world.trace().await;
        world.pass(Duration::from_secs(30));
    }
    // They differ; alone, one hides it and one does not.
    world.chain.script_traces([Fault::Hide(address(ALICE)); 2]);
    assert_eq!(world.trace().await.pending, 1);
    let reported = report_after(&world).await;
    assert_eq!(
        (reported.traced, reported.traces_by_one, reported.traces_put_off),
        (Some(3), Some(3), 0),
        "{reported:?}"
    );
    world.chain.mine_empty(FINALITY_DEPTH);
    world.catch_up().await;
    assert_eq!(world.status_of(5).await, Confirmed, "the balances agree with who showed it");
    half_an_hour(&world, Duration::from_secs(30)).await;
    assert_eq!(report_after(&world).await.traces_by_one, None, "and they agree when they are asked again");
    world.close().await;
}

#[tokio::test]
async fn what_two_cannot_report_any_more_is_asked_for_rarely_and_keeps_nothing_else_from_it() {
    let mut world = hidden_while_one_endpoint_is_down().await;
    world.chain.mine_empty(20);
    world.catch_up().await;
    world.chain.trace_twice(true);
    world.chain.withhold_traces((4..=23).chain([1]));
    let calls = half_an_hour(&world, Duration::from_secs(1)).await;
    assert_eq!(world.deposits().await.len(), 1, "the one that can be traced");
    assert!(
        calls.iter().filter(|calls| **calls > 0).count() <= 1_800 / 30 + 20,
        "one block in half a minute: {calls:?}"
    );
    assert_eq!(report_after(&world).await.traces_by_one, Some(23), "and the report goes on saying so");
    world.chain.withhold_traces([]);
    half_an_hour(&world, Duration::from_secs(30)).await;
    assert_eq!(report_after(&world).await.traces_by_one, None, "whenever they can be traced again");
    world.chain.mine_empty(FINALITY_DEPTH);
    world.catch_up().await;
    world.close().await;
}

#[tokio::test]
async fn where_no_two_report_blocks_nothing_is_traced_twice() {
    let mut world = world().await;
    world.chain.mine(vec![inner(0, BOB, 5)]);
    world.catch_up().await;
    assert_eq!(half_an_hour(&world, Duration::from_secs(30)).await, [0; 60]);
    world.close().await;
}

#[tokio::test]
async fn while_a_trace_takes_its_time_the_running_lane_traces_again_beside_it() {
    let mut world = hidden_while_one_endpoint_is_down().await;
    world.chain.trace_twice(true);
    world.chain.script_traces([Fault::Late(Duration::from_secs(3_600))]);
    world.chain.mine_empty(1);
    world.tick().await;
    let stop = CancellationToken::new();
    let look = async {
        until("all told by two", async || {
            world.pass(Duration::from_secs(30));
            report_after(&world).await.traces_by_one.is_none()
        })
        .await;
        stop.cancel();
    };
    let pulse = Pulse::new("traces", world.now());
    tokio::join!(world.watcher_lane().run(world.clock(), || 0, pulse, stop.clone()), look);
    assert_eq!(world.deposits().await.len(), 1);
    world.chain.mine_empty(FINALITY_DEPTH);
    world.catch_up().await;
    world.close().await;
}
