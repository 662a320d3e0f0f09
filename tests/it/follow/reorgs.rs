//! Reorgs, by the rows of the catalogue of failures (R1 ..): ids unchanged, each deposit credited once, what vanished
//! FAILED after finality and not before. R7 and R8 stand in `finality.rs`, R9 and R10 in `delivery.rs`; R11 is
//! `histories.rs` at random. `rows.rs` is the index.

use std::collections::BTreeSet;
use std::time::Duration;

use landfall::deposit::DepositId;
use landfall::deposit::DepositStatus::{Confirmed, Failed, Pending};
use landfall::store::cursors;
use landfall::watcher::{Start, TickError};
use landfall_sim::{Fault, SimChain, SimLeg, SimTx};

use crate::harness::books::events;
use crate::harness::postgres::{Engine, TestStore};
use crate::harness::world::{CHAIN, FAILED_GRACE, FINALITY_DEPTH, TOKEN, World, address};

const ALICE: u8 = 0xa1;
const BOB: u8 = 0xb0;
const PAYER: u8 = 0x01;
const OTHER: u8 = 0x02;

fn payment(nonce: u64, amount: u64) -> SimTx {
    SimTx::new(address(PAYER), nonce, vec![token(ALICE, amount)])
}

fn token(to: u8, amount: u64) -> SimLeg {
    SimLeg { asset: TOKEN, ..SimLeg::native(address(PAYER), address(to), amount) }
}

fn unrelated(nonce: u64) -> SimTx {
    SimTx::new(address(OTHER), nonce, vec![SimLeg::native(address(OTHER), address(OTHER + 1), 1)])
}

async fn world() -> World {
    let world = World::new(7).await;
    world.watch("alice", address(ALICE)).await;
    world.watch("bob", address(BOB)).await;
    world.chain.mine_empty(1);
    world
}

async fn ids(world: &World) -> BTreeSet<DepositId> {
    world.deposits().await.iter().map(|deposit| deposit.id).collect()
}

async fn statuses(world: &World) -> Vec<String> {
    events(world.db()).await.into_iter().map(|event| event.status).collect()
}

#[tokio::test]
async fn r1_a_transaction_mined_again_behind_another_keeps_its_ids_and_is_credited_once() {
    let mut world = world().await;
    let paid = SimTx::new(address(PAYER), 0, vec![token(ALICE, 5), token(BOB, 7)]);
    world.follow(vec![paid.clone()]).await;
    let before = ids(&world).await;

    world.chain.fork_at(1);
    world.chain.mine(vec![unrelated(0), paid]);
    world.finalize().await;
    assert_eq!(ids(&world).await, before);
    assert_eq!((world.status_of(5).await, world.status_of(7).await), (Confirmed, Confirmed));
    assert_eq!(events(world.db()).await.len(), 4, "no event tells of the reorg");
    world.close().await;
}

#[tokio::test]
async fn r2_a_transaction_executed_again_with_another_amount_is_another_deposit() {
    let mut world = world().await;
    world.follow(vec![payment(0, 1_269)]).await;
    world.chain.fork_at(1);
    world.chain.mine_empty(2);
    world.follow(vec![payment(0, 1_782)]).await;
    assert_eq!((world.status_of(1_269).await, world.status_of(1_782).await), (Pending, Pending));

    world.finalize().await;
    assert_eq!((world.status_of(1_269).await, world.status_of(1_782).await), (Failed, Confirmed));
    world.close().await;
}

#[tokio::test]
async fn r3_an_orphaned_transaction_that_never_returns_fails_after_the_grace_and_not_before() {
    let mut world = world().await;
    world.follow(vec![payment(0, 5)]).await;
    world.chain.fork_at(1);
    world.follow_empty(FINALITY_DEPTH + 1).await;
    assert_eq!(world.status_of(5).await, Pending, "it may still return");

    world.pass(FAILED_GRACE - Duration::from_secs(1));
    world.follow_empty(1).await;
    assert_eq!(world.status_of(5).await, Pending, "a second too early");

    world.pass(Duration::from_secs(1));
    world.follow_empty(1).await;
    assert_eq!(world.status_of(5).await, Failed);
    world.close().await;
}

#[tokio::test]
async fn r3_an_orphaned_transaction_that_returns_is_confirmed() {
    let mut world = world().await;
    world.follow(vec![payment(0, 5)]).await;
    world.chain.fork_at(1);
    world.follow_empty(FINALITY_DEPTH + 3).await;
    world.chain.mine(vec![payment(0, 5)]);
    world.finalize().await;
    assert_eq!(world.status_of(5).await, Confirmed);
    assert_eq!(statuses(&world).await, ["PENDING", "CONFIRMED"]);
    world.close().await;
}

#[tokio::test]
async fn a_failed_deposit_that_is_mined_after_all_is_pending_again_and_then_confirmed() {
    let mut world = world().await;
    world.follow(vec![payment(0, 5)]).await;
    world.chain.fork_at(1);
    world.follow_empty(FINALITY_DEPTH + 1).await;
    world.pass(FAILED_GRACE);
    world.follow_empty(1).await;
    assert_eq!(world.status_of(5).await, Failed);

    world.follow(vec![payment(0, 5)]).await;
    assert_eq!(world.status_of(5).await, Pending);
    world.finalize().await;
    assert_eq!(world.status_of(5).await, Confirmed);
    assert_eq!(statuses(&world).await, ["PENDING", "FAILED", "PENDING", "CONFIRMED"]);
    world.close().await;
}

#[tokio::test]
async fn r4_a_replaced_transaction_fails_when_the_winner_is_final() {
    let mut world = world().await;
    let paid = payment(0, 5);
    world.follow(vec![paid.clone()]).await;
    world.chain.fork_at(1);
    world.follow(vec![paid.replaced_by(vec![token(BOB, 9)])]).await;
    assert_eq!((world.status_of(5).await, world.status_of(9).await), (Pending, Pending));
    world.finalize().await;
    assert_eq!((world.status_of(5).await, world.status_of(9).await), (Failed, Confirmed));
    world.close().await;
}

#[tokio::test]
async fn r5_a_transaction_that_reverts_the_second_time_fails_at_finality() {
    let mut world = world().await;
    world.follow(vec![payment(0, 5)]).await;
    world.chain.fork_at(1);
    world.chain.mine(vec![SimTx { legs: Vec::new(), ..payment(0, 5) }]);
    world.follow_empty(FINALITY_DEPTH - 1).await;
    assert_eq!(world.status_of(5).await, Pending, "it may flip back");
    world.follow_empty(1).await;
    assert_eq!(world.status_of(5).await, Failed);
    world.close().await;
}

#[tokio::test]
async fn r11_however_a_reorg_of_two_blocks_arrives_the_end_is_that_of_a_straight_scan() {
    // What becomes of the payment: mined again at once, or later, or with another amount, or in vain, or replaced, or
    // gone.
    let outcomes: [fn() -> Vec<Vec<SimTx>>; 6] = [
        || vec![vec![payment(0, 5)], vec![], vec![]],
        || vec![vec![], vec![unrelated(0)], vec![payment(0, 5)]],
        || vec![vec![], vec![payment(0, 6)], vec![]],
        || vec![vec![SimTx { legs: Vec::new(), ..payment(0, 5) }], vec![], vec![]],
        || vec![vec![payment(0, 5).replaced_by(vec![token(BOB, 9)])], vec![], vec![]],
        || vec![vec![], vec![], vec![]],
    ];
    // After how many blocks of the new branch it is looked at: after each, or not before all of them stand there.
    for (at, outcome) in outcomes.iter().enumerate() {
        for looks in 0..8_u32 {
            let mut world = world().await;
            world.chain.mine(vec![payment(0, 5)]);
            world.follow_empty(1).await;
            world.chain.fork_at(1);
            for (place, txs) in (0_u32..).zip(outcome()) {
                world.chain.mine(txs);
                if looks & (1 << place) != 0 {
                    world.tick_or_fail_for_now().await;
                    world.restart();
                }
            }
            world.finalize().await;
            world.pass(FAILED_GRACE);
            world.follow_empty(1).await;
            let mut straight = world.again(TestStore::fresh(Engine::Sqlite).await);
            straight.watch("alice", address(ALICE)).await;
            straight.watch("bob", address(BOB)).await;
            straight.catch_up().await;
            let confirmed = async |world: &World| -> BTreeSet<DepositId> {
                let all = world.deposits().await;
                all.iter().filter(|deposit| deposit.status == Confirmed).map(|deposit| deposit.id).collect()
            };
            assert_eq!(confirmed(&world).await, confirmed(&straight).await, "outcome {at}, looks {looks:03b}");
            let open = world.deposits().await.iter().filter(|deposit| deposit.status == Pending).count();
            assert_eq!(open, 0, "outcome {at}, looks {looks:03b}");
            straight.close().await;
            world.close().await;
        }
    }
}

#[tokio::test]
async fn a_reorg_to_a_shorter_chain_is_followed() {
    let mut world = world().await;
    world.chain.mine_empty(3);
    world.chain.mine(vec![payment(0, 5)]);
    world.follow_empty(2).await;
    world.chain.fork_at(2);
    world.chain.mine(vec![payment(0, 5)]);
    let ticked = world.tick().await;
    assert_eq!((ticked.disconnected, ticked.connected), (5, 1));
    world.finalize().await;
    assert_eq!(world.status_of(5).await, Confirmed);
    world.close().await;
}

#[tokio::test]
async fn a_block_that_becomes_canonical_again_is_connected_again() {
    let mut world = world().await;
    world.follow(vec![payment(0, 5)]).await;
    let first_branch = world.chain.blocks();
    world.chain.fork_at(1);
    world.follow_empty(2).await;
    world.chain.restore(first_branch);
    world.follow_empty(2).await;
    world.finalize().await;
    assert_eq!(world.status_of(5).await, Confirmed);
    world.close().await;
}

#[tokio::test]
async fn a_reorg_in_the_middle_of_a_tick_is_seen_by_its_parent_links() {
    for at_call in 1..=4 {
        let mut world = world().await;
        world.chain.mine(vec![payment(0, 5)]);
        world.chain.mine_empty(2);
        world.tick().await;
        world.chain.mine_empty(1);
        let mut call = 0;
        world.chain.before_each_call(move |chain| {
            call += 1;
            if call == at_call {
                chain.fork_at(1);
                chain.mine_empty(1);
                chain.mine(vec![payment(0, 5)]);
                chain.mine_empty(3);
            }
        });
        world.tick_or_fail_for_now().await;
        world.chain.behave();
        world.finalize().await;
        assert_eq!(world.status_of(5).await, Confirmed, "reorg at call {at_call}");
        world.close().await;
    }
}

#[tokio::test]
async fn r6_a_reorg_below_the_final_block_changes_nothing_and_needs_a_person() {
    let mut world = world().await;
    world.chain.mine(vec![payment(0, 5)]);
    world.chain.mine_empty(FINALITY_DEPTH);
    world.follow(vec![payment(1, 6)]).await;
    assert_eq!((world.status_of(5).await, world.status_of(6).await), (Confirmed, Pending));
    let latest = world.chain.latest().number;
    let fork = world.chain.blocks();
    // The first payment is gone, and what the second one's block would wait for is final on either branch.
    world.chain.fork_at(1);
    world.chain.mine(vec![payment(1, 6)]);
    world.chain.mine_empty(latest + 5);

    for _ in 0..3 {
        let error = world.try_tick().await.unwrap_err();
        assert!(matches!(error, TickError::PostFinalityReorg { confirmed: 1, .. }) && !error.may_pass(), "{error}");
        assert_eq!((world.status_of(5).await, world.status_of(6).await), (Confirmed, Pending));
        world.pass(FAILED_GRACE);
    }
    assert_eq!(events(world.db()).await.len(), 3);
    world.chain.restore(fork);
    world.finalize().await;
    assert_eq!(world.status_of(6).await, Confirmed, "nothing was lost either");
    world.close().await;
}

#[tokio::test]
async fn a_fork_below_what_counted_as_final_halts_nothing_before_a_final_block_of_its_own_is_agreed() {
    let mut world = world().await;
    world.chain.mine(vec![payment(0, 5)]);
    world.follow_empty(FINALITY_DEPTH + 2).await;
    assert_eq!(world.status_of(5).await, Confirmed);
    let ours = world.chain.blocks();
    world.chain.set_finality_depth(None);
    world.chain.fork_at(1);
    world.chain.mine_empty(2 * FINALITY_DEPTH);
    world.chain.claim_final(world.chain.blocks()[1].header.block);
    // Headers are one endpoint's report, and what is agreed to be final lags behind.
    for _ in 0..2 {
        let error = world.try_tick().await.unwrap_err();
        assert!(matches!(error, TickError::Contradiction { .. }) && error.may_pass(), "{error}");
        assert!(error.to_string().contains("no final block there is agreed yet"), "{error}");
    }
    assert_eq!((world.incidents().await, world.status_of(5).await), (vec![], Confirmed));
    world.chain.claim_final(world.chain.latest());
    let error = world.try_tick().await.unwrap_err();
    assert!(matches!(error, TickError::PostFinalityReorg { confirmed: 1, .. }) && !error.may_pass(), "{error}");
    world.chain.restore(ours);
    world.close().await;
}

#[tokio::test]
async fn a_final_block_that_is_replaced_behind_hundreds_of_skipped_numbers_needs_a_person_too() {
    let mut world = world().await;
    world.chain.mine(vec![payment(0, 5)]);
    world.follow_empty(400).await;
    assert_eq!(world.status_of(5).await, Confirmed);
    let fork = world.chain.blocks();
    world.chain.fork_at(1);
    world.chain.skip(300);
    world.chain.mine_empty(200);
    let error = world.try_tick().await.unwrap_err();
    assert!(matches!(error, TickError::PostFinalityReorg { confirmed: 1, .. }), "{error}");
    world.chain.restore(fork);
    world.follow_empty(100).await;
    world.close().await;
}

#[tokio::test]
async fn a_reorg_deeper_than_the_record_needs_a_person() {
    let mut world = World::new(3).await;
    world.chain.set_finality_depth(None);
    world.follow_empty(5).await;
    let other = World::new(4).await;
    other.chain.mine_empty(9);
    world.chain.restore(other.chain.blocks());
    // Headers are one endpoint's report, also in a process that has read nothing else yet.
    for _ in 0..2 {
        let error = world.try_tick().await.unwrap_err();
        assert!(matches!(error, TickError::Contradiction { .. }) && error.may_pass(), "{error}");
        assert!(error.to_string().contains("and no block is agreed to be final there"), "{error}");
        world.restart();
    }
    assert_eq!(world.incidents().await, []);
    world.chain.claim_final(other.chain.blocks()[2].header.block);
    let error = world.try_tick().await.unwrap_err();
    assert!(matches!(error, TickError::DeepReorg { oldest: 0, .. }) && !error.may_pass(), "{error}");
    other.close().await;
    world.close().await;
}

#[tokio::test]
async fn a_lagging_answer_in_the_search_for_the_fork_point_only_delays_it() {
    let mut world = world().await;
    world.chain.mine(vec![payment(0, 5)]);
    world.follow_empty(4).await;
    world.chain.fork_at(1);
    world.chain.mine(vec![payment(0, 5)]);
    world.chain.mine_empty(6);
    // tip, blocks (torn), headers: the last from a node that has nothing yet.
    world.chain.script([Fault::Late(Duration::ZERO), Fault::Late(Duration::ZERO), Fault::Empty]);
    assert!(world.try_tick().await.unwrap_err().may_pass());
    world.chain.behave();
    world.finalize().await;
    assert_eq!(world.status_of(5).await, Confirmed);
    world.close().await;
}

#[tokio::test]
async fn a_short_answer_in_the_search_for_the_fork_point_is_no_deeper_fork() {
    let mut world = world().await;
    world.chain.mine(vec![payment(0, 5)]);
    world.follow_empty(FINALITY_DEPTH + 3).await;
    let fork_point = world.chain.latest().number - 1;
    world.chain.fork_at(fork_point);
    world.chain.mine_empty(4);
    // tip, blocks (torn), headers: the last from a node whose newest block is below our final one.
    world.chain.script([Fault::Late(Duration::ZERO), Fault::Late(Duration::ZERO), Fault::Lag(FINALITY_DEPTH + 4)]);
    let error = world.try_tick().await.unwrap_err();
    assert!(error.may_pass(), "blocks that a node does not have yet are not gone: {error}");
    assert_eq!(world.tick().await.disconnected, 1);
    world.catch_up().await;
    world.close().await;
}

#[tokio::test]
async fn r12_an_error_in_the_middle_of_a_range_and_a_long_stop_leave_no_block_unread() {
    for failing in 1..=6 {
        let mut world = world().await;
        for nonce in 0..90 {
            world.chain.mine(vec![payment(nonce, nonce + 1)]);
        }
        // tip, then the reads of a tick: one of them fails.
        world.chain.script(std::iter::repeat_n(Fault::Late(Duration::ZERO), failing).chain([Fault::Fail]));
        let connected = world.tick_or_fail_for_now().await.map(|ticked| ticked.connected);
        let cursor = cursors::Cursor::load(&mut world.db().read().await.unwrap(), CHAIN).await.unwrap();
        let pending = u64::try_from(world.deposits().await.len()).unwrap();
        let at = cursor.at.map_or(0, |at| at.number);
        assert_eq!(pending, at.saturating_sub(1), "{connected:?}: the cursor passes no block that was not read");
        world.chain.behave();
        // Down for longer than a tick reads.
        for nonce in 90..350 {
            world.chain.mine(vec![payment(nonce, nonce + 1)]);
        }
        world.restart();
        world.finalize().await;
        let deposits = world.deposits().await;
        assert_eq!(deposits.iter().filter(|deposit| deposit.status == Confirmed).count(), 350);
        world.close().await;
    }
}

#[tokio::test]
async fn what_is_forgotten_is_far_below_the_newest_final_block_and_below_the_cursor() {
    let mut world = world().await;
    world.chain.mine_empty(1_300);
    let numbers = async |world: &World| -> (u64, u64, usize) {
        let mut reader = world.db().read().await.unwrap();
        let ours = cursors::canonical_in(&mut reader, CHAIN, 0, 5_000).await.unwrap();
        (ours.last().unwrap().number, ours[0].number, ours.len())
    };
    world.tick().await;
    // The source's final block is far above our cursor, and our own blocks are all that we have to find a fork with.
    assert_eq!(numbers(&world).await, (0, 100, 101), "nothing is forgotten while we are behind");
    world.catch_up().await;
    let (oldest, newest, count) = numbers(&world).await;
    let finalized = world.chain.finalized().unwrap().number;
    assert_eq!((oldest, newest), (finalized - 1_024, 1_301), "1024 blocks below the final one, and no more");
    assert_eq!(u64::try_from(count).unwrap(), newest - oldest + 1, "without a gap");
    world.chain.fork_at(finalized);
    world.follow_empty(20).await;
    world.close().await;
}

/// A chain whose watching starts at the next block.
async fn started_at_the_tip() -> World {
    let chain = SimChain::new(3);
    chain.mine_empty(5);
    let world = World::from(Start::Number(6), chain, TestStore::fresh(Engine::Sqlite).await);
    world.watch("alice", address(ALICE)).await;
    world
}

#[tokio::test]
async fn the_block_below_the_start_may_be_replaced_while_nothing_stands_on_it() {
    let mut world = started_at_the_tip().await;
    world.tick().await;
    world.chain.fork_at(3);
    world.chain.mine_empty(2);
    world.chain.mine(vec![payment(0, 5)]);
    world.tick().await;
    world.catch_up().await;
    assert_eq!(world.status_of(5).await, Pending);
    assert_eq!(world.incidents().await, []);
    world.chain.set_finality_depth(Some(FINALITY_DEPTH));
    world.finalize().await;
    assert_eq!(world.status_of(5).await, Confirmed);
    world.close().await;
}

#[tokio::test]
async fn the_block_below_the_start_is_not_given_up_when_a_block_was_connected_on_it() {
    let mut world = started_at_the_tip().await;
    world.follow(vec![payment(0, 5)]).await;
    world.chain.fork_at(3);
    world.chain.mine_empty(9);
    world.chain.claim_final(world.chain.latest());
    let error = world.try_tick().await.unwrap_err();
    assert!(matches!(error, TickError::DeepReorg { oldest: 5, .. }), "{error}");
    assert_eq!(world.deposits().await.len(), 1);
    world.close().await;
}
