//! Where two mechanisms meet: reorgs and the watch list, traces that lag and deposits that are looked for, what an
//! endpoint keeps to itself and what is final. Each was a missed deposit or a false FAILED once, or could have been.

use std::time::Duration;

use landfall::deposit::DepositStatus::{Confirmed, Pending};
use landfall::watcher::{Backfill, BackfillError, Job, Scope, Start, TickError};
use landfall_chain::{AssetId, ReadProof};
use landfall_sim::{Fault, Lie, SimChain, SimLeg, SimTx};

use crate::harness::books::events;
use crate::harness::postgres::{Engine, TestStore};
use crate::harness::world::{CHAIN, FAILED_GRACE, FINALITY_DEPTH, TOKEN, World, address, report_as};

const ALICE: u8 = 0xa1;
const BOB: u8 = 0xb0;
const PAYER: u8 = 0x01;
const NO_FAULT: Fault = Fault::Late(Duration::ZERO);

fn inner(nonce: u64, amount: u64) -> SimTx {
    SimTx::new(address(PAYER), nonce, vec![SimLeg::inner(address(0x99), address(ALICE), amount)])
}

fn token(nonce: u64, from: u8, amount: u64) -> SimTx {
    let leg = SimLeg { asset: TOKEN, ..SimLeg::native(address(from), address(ALICE), amount) };
    SimTx::new(address(PAYER), nonce, vec![leg])
}

#[tokio::test]
async fn what_a_reorg_moves_below_the_block_that_its_address_was_reported_is_found_by_a_trace_too() {
    let mut world = World::traced(Engine::Sqlite, 1).await;
    world.chain.mine_empty(5);
    world.catch_up().await;
    world.watch("alice", address(ALICE)).await;
    // In the block that was reported, which is never traced before a reorg mines the payment in an earlier one.
    world.chain.mine(vec![inner(0, 5)]);
    world.tick().await;
    world.chain.fork_at(3);
    world.chain.mine(vec![inner(0, 5)]);
    world.chain.mine_empty(2 * FINALITY_DEPTH);
    world.catch_up().await;
    assert_eq!(world.status_of(5).await, Confirmed);
    world.close().await;
}

#[tokio::test]
async fn a_deposit_of_a_trace_does_not_fail_while_blocks_wait_to_be_traced() {
    let mut world = World::traced(Engine::Sqlite, 2).await;
    world.watch("alice", address(ALICE)).await;
    world.chain.mine_empty(1);
    world.chain.mine(vec![inner(0, 5)]);
    world.catch_up().await;
    world.chain.fork_at(1);
    world.chain.mine_empty(2 * FINALITY_DEPTH);
    world.catch_up().await;
    assert_eq!(world.status_of(5).await, Pending, "it has been looked for, and its grace has begun");
    // It is mined after all. No trace can be had, and the endpoint that is asked for its fate does not know it.
    world.pass(FAILED_GRACE);
    world.chain.mine(vec![inner(0, 5)]);
    world.chain.mine_empty(FINALITY_DEPTH);
    world.tick().await;
    world.chain.script_traces([Fault::Fail; 100]);
    world.chain.script([Fault::Empty]);
    assert!(world.try_trace().await.unwrap_err().may_pass());
    assert_eq!(world.status_of(5).await, Pending, "a block that is not traced yet may hold it");
    world.chain.behave();
    world.catch_up().await;
    assert_eq!(world.status_of(5).await, Confirmed);
    world.close().await;
}

#[tokio::test]
async fn a_final_block_that_is_said_to_hold_a_transaction_and_cannot_be_read_fails_no_deposit() {
    let mut world = World::new(3).await;
    world.watch("alice", address(ALICE)).await;
    let listed = world.network.assets.clone();
    world.chain.mine_empty(1);
    world.chain.mine(vec![token(0, 0x98, 5)]);
    world.catch_up().await;
    world.chain.fork_at(1);
    // Its block is read while the token is not listed, for longer than the grace.
    world.restart_listing(listed.iter().filter(|asset| asset.id == AssetId::Native).cloned().collect());
    world.chain.mine(vec![token(0, 0x98, 5)]);
    world.chain.mine_empty(2 * FINALITY_DEPTH);
    world.catch_up().await;
    world.pass(FAILED_GRACE);
    world.restart_listing(listed);
    world.chain.mine_empty(1);
    // tip, blocks, fate; then the block that it is in, which is not reported.
    world.chain.script([NO_FAULT, NO_FAULT, NO_FAULT, Fault::Empty]);
    world.tick_or_fail_for_now().await;
    assert_eq!(world.status_of(5).await, Pending, "an empty answer proves nothing");
    world.chain.behave();
    world.chain.mine_empty(1);
    world.catch_up().await;
    assert_eq!(world.status_of(5).await, Confirmed);
    world.close().await;
}

#[tokio::test]
async fn a_leg_that_another_pays_in_another_block_is_confirmed_with_who_paid_in_the_final_one() {
    let mut world = World::new(4).await;
    world.watch("alice", address(ALICE)).await;
    world.watch("bob", address(BOB)).await;
    world.chain.mine_empty(1);
    world.chain.mine(vec![token(0, 0x98, 5)]);
    world.catch_up().await;
    let first = world.deposits().await.remove(0);
    assert_eq!((first.sender, first.source_account_id.as_deref()), (address(0x98), None));
    world.chain.fork_at(1);
    world.chain.mine(vec![token(0, BOB, 5)]);
    world.chain.mine_empty(FINALITY_DEPTH);
    world.catch_up().await;
    let last = world.deposits().await.remove(0);
    assert_eq!((last.id, last.status, last.created_at), (first.id, Confirmed, first.created_at));
    assert_eq!((last.sender, last.source_account_id.as_deref()), (address(BOB), Some("bob")));
    let reported: Vec<(String, String)> =
        events(world.db()).await.iter().map(|event| who_paid(&event.payload)).collect();
    let expected = [("ON_CHAIN", address(0x98)), ("ACCOUNT", address(BOB))];
    assert_eq!(
        reported,
        expected.map(|(kind, from)| (kind.to_owned(), from.to_string())),
        "what was sent stays as it was"
    );
    world.close().await;
}

#[tokio::test]
async fn blocks_that_cannot_be_read_again_keep_no_later_one_waiting() {
    let mut world = World::new(5).await;
    world.watch("alice", address(ALICE)).await;
    world.chain.set_finality_depth(None);
    world.chain.mine_empty(1);
    // One more than a tick reads again.
    for amount in 1..=21 {
        world.chain.mine(vec![token(amount, 0x98, amount)]);
    }
    world.catch_up().await;
    world.chain.set_finality_depth(Some(0));
    world.chain.mine_empty(1);
    // tip, blocks; then twenty blocks that are not shown. The next tick has one evidence that is.
    world.chain.script([NO_FAULT, NO_FAULT].into_iter().chain([Fault::Empty; 20]));
    world.tick().await;
    world.chain.script([NO_FAULT, NO_FAULT].into_iter().chain([Fault::Empty; 19]));
    world.tick().await;
    assert_eq!(world.status_of(21).await, Confirmed, "those below had their turn");
    assert_eq!(world.status_of(1).await, Pending);
    world.chain.behave();
    world.tick().await;
    assert_eq!((world.status_of(1).await, world.status_of(20).await), (Confirmed, Confirmed), "and have it again");
    world.close().await;
}

#[tokio::test]
async fn a_backfill_of_a_chain_that_halts_meanwhile_records_nothing_until_it_is_resumed() {
    let mut world = World::new(6).await;
    world.chain.mine_empty(1);
    world.chain.mine(vec![token(0, 0x98, 5)]);
    world.chain.mine_empty(FINALITY_DEPTH);
    world.catch_up().await;
    world.watch("alice", address(ALICE)).await;
    let job = Job { from: 1, to: Some(2), proof: ReadProof::Full, scope: Scope::All, dry_run: false };
    let mut backfill = Backfill::begin(world.another_watcher(), job.clone()).await.unwrap();
    world.operator().halt(world.db(), CHAIN).await.unwrap();
    let begun = Backfill::begin(world.another_watcher(), job).await.unwrap_err();
    assert!(matches!(begun, BackfillError::Tick(TickError::HaltedByOperator { .. })), "{begun}");
    let refused = backfill.step(world.now()).await.unwrap_err();
    assert!(matches!(refused, TickError::HaltedByOperator { .. }), "{refused}");
    assert_eq!(world.deposits().await, []);
    world.operator().resume(world.db(), CHAIN).await.unwrap();
    report_as(&world, "halted").await;
    let refused = backfill.step(world.now()).await.unwrap_err();
    assert!(matches!(refused, TickError::Halted { .. }) && !refused.may_pass(), "{refused}");
    assert_eq!(world.deposits().await, []);
    report_as(&world, "following").await;
    backfill.step(world.now()).await.unwrap();
    assert_eq!(world.status_of(5).await, Confirmed);
    world.close().await;
}

#[tokio::test]
async fn a_chain_is_not_taken_up_on_the_header_of_an_endpoint_on_another_fork() {
    let chain = SimChain::new(7);
    chain.mine_empty(20);
    chain.fork_at(1);
    chain.mine_empty(25);
    chain.set_finality_depth(Some(FINALITY_DEPTH));
    let mut world = World::from(Start::Finalized, chain, TestStore::fresh(Engine::Sqlite).await);
    world.pool.spread(3, 2, 1);
    world.pool.lie(Some(Lie::OtherFork), 10);
    let refused = world.try_tick().await.unwrap_err();
    assert!(refused.may_pass() && refused.to_string().contains("to start from, is final, but"), "{refused}");
    world.pool.lie(None, 0);
    world.catch_up().await;
    assert_eq!(world.incidents().await, []);
    world.close().await;
}

fn who_paid(payload: &str) -> (String, String) {
    let envelope: serde_json::Value = serde_json::from_str(payload).unwrap();
    let text = |key: &str| envelope["data"][key].as_str().unwrap().to_owned();
    (text("source_type"), text("source_address"))
}
