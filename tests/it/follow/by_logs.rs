//! `proof = "logs"`: blocks are connected by their logs, and one that may concern us is read in full before anything is
//! recorded. The sim's candidates are false on purpose: who records one fails the books.

use std::time::Duration;

use landfall::deposit::DepositStatus::{Confirmed, Pending};
use landfall::store::{Connection, Db, Engine as Connected};
use landfall_chain::U256;
use landfall_sim::{Fault, SimLeg, SimTx};

use crate::harness::postgres::{ENGINES, Engine};
use crate::harness::world::{FINALITY_DEPTH, World, address, until_called, watch};

const ALICE: u8 = 0xa1;
const BOB: u8 = 0xb0;
const PAYER: u8 = 0x01;

fn payment(nonce: u64, to: u8, amount: u64) -> SimTx {
    SimTx::new(address(PAYER), nonce, vec![SimLeg::native(address(PAYER), address(to), amount)])
}

async fn world(engine: Engine) -> World {
    let mut world = World::on(engine, 1).await;
    world.read_by_logs();
    world.watch("alice", address(ALICE)).await;
    world
}

/// The proof on record of each canonical block from block 1 on.
async fn proofs(db: &Db) -> Vec<String> {
    let text = "SELECT proof FROM blocks WHERE canonical AND number > 0 ORDER BY number";
    let mut reader = db.read().await.unwrap();
    let rows: Vec<(String,)> = match reader.engine() {
        Connected::Postgres(connection) => sqlx::query_as(text).fetch_all(connection).await.unwrap(),
        Connected::Sqlite(connection) => sqlx::query_as(text).fetch_all(connection).await.unwrap(),
    };
    rows.into_iter().map(|(proof,)| proof).collect()
}

#[tokio::test]
async fn only_blocks_that_may_concern_us_are_read_in_full() {
    for engine in ENGINES {
        let mut world = world(engine).await;
        world.chain.mine(vec![payment(0, BOB, 5)]);
        world.chain.mine(vec![payment(1, ALICE, 6)]);
        let paid_out = SimTx::new(address(ALICE), 0, vec![SimLeg::native(address(ALICE), address(BOB), 1)]);
        world.chain.mine(vec![paid_out]);
        world.chain.mine_empty(1);
        world.tick().await;
        assert_eq!(proofs(world.db()).await, ["bloom", "roots", "roots", "bloom"], "{engine:?}");
        assert_eq!(world.status_of(6).await, Pending);
        world.chain.mine_empty(FINALITY_DEPTH);
        world.catch_up().await;
        assert_eq!(world.status_of(6).await, Confirmed);
        world.close().await;
    }
}

#[tokio::test]
async fn a_live_block_is_one_read_and_one_more_when_it_credits() {
    let mut world = world(Engine::Sqlite).await;
    world.catch_up().await;
    for (to, reads) in [(BOB, 2), (ALICE, 3)] {
        world.chain.mine(vec![payment(u64::from(to), to, u64::from(to))]);
        let before = world.chain.calls();
        world.tick().await;
        assert_eq!(world.chain.calls() - before, reads, "the tip, the block by its logs, the block in full");
    }
    world.close().await;
}

#[tokio::test]
async fn an_address_added_between_read_and_record_has_its_block_read_in_full() {
    for engine in ENGINES {
        let mut world = world(engine).await;
        world.tick().await;
        world.chain.mine(vec![payment(0, BOB, 7)]);
        // While the block is read by its logs Bob is added, after the list was loaded.
        world.chain.script([Fault::Late(Duration::ZERO), Fault::Held]);
        let (db, now) = (world.db().clone(), world.now());
        let (chain, before) = (world.chain.clone(), world.chain.calls());
        let adding = async {
            until_called(&chain, before + 2).await;
            watch(&db, "bob", address(BOB), now).await;
            chain.release();
        };
        let (ticked, ()) = tokio::join!(world.try_tick(), adding);
        assert_eq!(ticked.unwrap().pending, 1, "{engine:?}");
        assert_eq!(world.status_of(7).await, Pending);
        assert_eq!(proofs(world.db()).await, ["roots"]);
        world.close().await;
    }
}

#[tokio::test]
async fn an_address_that_another_worker_took_in_meanwhile_has_its_block_read_in_full_too() {
    let mut world = world(Engine::Sqlite).await;
    world.tick().await;
    // It follows the same list of addresses.
    let lane = world.lane_beside();
    world.chain.mine(vec![payment(0, BOB, 7)]);
    world.chain.mine(vec![payment(1, ALICE, 5)]);
    // The tip, both by their logs, and Alice's block in full, which is held.
    world.chain.script([Fault::Late(Duration::ZERO), Fault::Late(Duration::ZERO), Fault::Held]);
    let (db, now) = (world.db().clone(), world.now());
    let (chain, before) = (world.chain.clone(), world.chain.calls());
    let adding = async {
        until_called(&chain, before + 3).await;
        watch(&db, "bob", address(BOB), now).await;
        lane.tick(now).await.unwrap();
        chain.release();
    };
    let (ticked, ()) = tokio::join!(world.try_tick(), adding);
    assert_eq!(ticked.unwrap().pending, 2);
    assert_eq!(proofs(world.db()).await, ["roots", "roots"]);
    world.close().await;
}

#[tokio::test]
async fn a_block_that_is_replaced_before_it_is_read_in_full_is_not_recorded() {
    let mut world = world(Engine::Sqlite).await;
    world.catch_up().await;
    world.chain.mine_empty(1);
    world.chain.mine(vec![payment(0, ALICE, 5)]);
    let mut calls = 0;
    world.chain.before_each_call(move |chain| {
        calls += 1;
        // The tip, the two blocks by their logs; then the second in full.
        if calls == 3 {
            chain.fork_at(1);
            chain.mine(vec![payment(0, ALICE, 6)]);
        }
    });
    assert_eq!(world.tick().await.connected, 1, "the block below");
    assert_eq!(world.deposits().await, []);
    world.chain.behave();
    world.chain.mine_empty(FINALITY_DEPTH);
    world.catch_up().await;
    let amounts: Vec<U256> = world.deposits().await.iter().map(|deposit| deposit.amount).collect();
    assert_eq!(amounts, [U256::from(6)]);
    world.close().await;
}

#[tokio::test]
async fn a_failing_or_empty_full_read_records_nothing_of_its_block() {
    for fault in [Fault::Fail, Fault::Empty, Fault::Lag(1)] {
        let mut world = world(Engine::Sqlite).await;
        world.catch_up().await;
        world.chain.mine(vec![payment(0, ALICE, 5)]);
        world.chain.script([Fault::Late(Duration::ZERO), Fault::Late(Duration::ZERO), fault]);
        assert!(world.try_tick().await.unwrap_err().may_pass(), "{fault:?}");
        assert_eq!(world.deposits().await, []);
        world.tick().await;
        assert_eq!(world.status_of(5).await, Pending);
        world.close().await;
    }
}
