//! `landfall rescan`: the record is compared with the chain, and what is missing is reported, and mended when asked to.

use landfall::deposit::DepositStatus::{Confirmed, Pending};
use landfall::store::{Connection, Db, Engine as Connected};
use landfall::watcher::{BackfillError, Difference, Movement, Rescan};
use landfall_chain::Lane;
use landfall_sim::{SimLeg, SimPool, SimTx};

use crate::harness::postgres::{ENGINES, Engine};
use crate::harness::world::{World, address};

const ALICE: u8 = 0xa1;
const BOB: u8 = 0xb0;
const PAYER: u8 = 0x01;

fn payment(nonce: u64, to: u8, amount: u64) -> SimTx {
    SimTx::new(address(PAYER), nonce, vec![SimLeg::native(address(PAYER), address(to), amount)])
}

/// Alice was paid in blocks 3 and 6, Bob before he was watched in block 4; all is settled up to block 40.
async fn settled(engine: Engine) -> World {
    let mut world = World::on(engine, 1).await;
    world.watch("alice", address(ALICE)).await;
    for number in 1..=40 {
        world.chain.mine(match number {
            3 => vec![payment(3, ALICE, 3)],
            4 => vec![payment(4, BOB, 4)],
            6 => vec![payment(6, ALICE, 6)],
            _ => vec![],
        });
    }
    world.catch_up().await;
    world.watch("bob", address(BOB)).await;
    world
}

async fn rescan(world: &World, repair: bool) -> Vec<Difference> {
    let mut rescan = Rescan::<SimPool>::begin(world.another_watcher(), 1, 30, repair).await.unwrap();
    let mut differences = Vec::new();
    while !rescan.is_done() {
        rescan.step(world.now()).await.unwrap();
        differences.extend(rescan.take_differences());
    }
    assert_eq!(rescan.progress().found, differences.len() as u64);
    differences
}

/// Forges the books.
pub(crate) async fn execute(db: &Db, text: &'static str) {
    let mut tx = db.begin().await.unwrap();
    match tx.engine() {
        Connected::Postgres(connection) => drop(sqlx::query(text).execute(connection).await.unwrap()),
        Connected::Sqlite(connection) => drop(sqlx::query(text).execute(connection).await.unwrap()),
    }
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn a_record_that_agrees_with_the_chain_differs_nowhere() {
    for engine in ENGINES {
        let world = settled(engine).await;
        assert_eq!(rescan(&world, false).await, [], "what came before Bob was watched is for backfill: {engine:?}");
        assert_eq!(rescan(&world, true).await, []);
        assert_eq!(world.deposits().await.len(), 2);
        world.close().await;
    }
}

#[tokio::test]
async fn a_missing_deposit_is_reported_and_mended() {
    for engine in ENGINES {
        let world = settled(engine).await;
        let lost =
            world.deposits().await.into_iter().find(|deposit| deposit.amount == landfall_chain::U256::from(6)).unwrap();
        for text in [
            "DELETE FROM inclusions WHERE deposit_id IN (SELECT id FROM deposits WHERE amount_text = '6')",
            "DELETE FROM events WHERE aggregateid IN (SELECT id FROM deposits WHERE amount_text = '6')",
            "DELETE FROM deposits WHERE amount_text = '6'",
        ] {
            execute(world.db(), text).await;
        }
        let differences = rescan(&world, false).await;
        let [Difference::Missing { block, deposit, tx, recipient, .. }] = differences.as_slice() else {
            panic!("{differences:?}")
        };
        assert_eq!((block.number, *deposit, *tx, *recipient), (6, lost.id, lost.tx.id, address(ALICE)));
        assert!(differences[0].to_string().contains("is not on record"), "{}", differences[0]);
        assert_eq!(world.deposits().await.len(), 1, "told only");
        assert_eq!(rescan(&world, true).await.len(), 1);
        assert_eq!(rescan(&world, false).await, []);
        let mended = world.deposits().await;
        assert_eq!((mended.len(), mended[0].status), (2, Confirmed));
        assert!(mended.iter().any(|deposit| deposit.id == lost.id));
        world.close().await;
    }
}

#[tokio::test]
async fn a_deposit_whose_leg_is_not_there_and_another_block_are_reported_and_left_alone() {
    let world = settled(Engine::Sqlite).await;
    execute(world.db(), "UPDATE deposits SET leg_hash = amount WHERE amount_text = '3'").await;
    let differences = rescan(&world, false).await;
    assert!(
        matches!(differences.as_slice(), [Difference::Missing { .. }, Difference::NotThere { status: Confirmed, .. }]),
        "{differences:?}"
    );
    world.abandon();

    let world = settled(Engine::Sqlite).await;
    execute(world.db(), "UPDATE blocks SET hash = zeroblob(32) WHERE number = 9").await;
    for repair in [false, true] {
        let differences = rescan(&world, repair).await;
        assert!(matches!(differences.as_slice(), [Difference::OtherBlock { .. }]), "{differences:?}");
    }
    assert_eq!(world.deposits().await.len(), 2);
    world.close().await;
}

#[tokio::test]
async fn a_failed_deposit_in_a_final_block_is_reported_and_revived() {
    let world = settled(Engine::Sqlite).await;
    for text in [
        "UPDATE deposits SET status = 'FAILED', confirmed_us = NULL WHERE amount_text = '3'",
        "DELETE FROM events WHERE status = 'CONFIRMED' AND aggregateid IN (SELECT id FROM deposits WHERE amount_text = '3')",
    ] {
        execute(world.db(), text).await;
    }
    assert!(matches!(rescan(&world, true).await.as_slice(), [Difference::Failed { .. }]));
    assert_eq!(world.status_of(3).await, Confirmed);
    assert_eq!(rescan(&world, false).await, []);
    world.abandon();
}

#[tokio::test]
async fn a_deposit_that_was_not_seen_in_the_final_block_that_pays_it_is_reported_and_mended() {
    for (engine, lane) in ENGINES.into_iter().flat_map(|engine| [(engine, Lane::Block), (engine, Lane::Traces)]) {
        let mut world = World::traced(engine, 1).await;
        world.chain.trace_twice(true);
        world.watch("alice", address(ALICE)).await;
        let paid = payment(0, ALICE, 3);
        let paid = paid.replaced_by(vec![SimLeg { lane, ..paid.legs[0] }]);
        world.chain.mine(vec![paid.clone()]);
        world.catch_up().await;
        assert_eq!(world.status_of(3).await, Pending, "{engine:?}, {lane:?}");
        // Seen in a block that is gone; of the one that pays it now, the record does not report.
        world.chain.fork_at(0);
        world.chain.mine_empty(1);
        world.chain.mine(vec![paid]);
        world.chain.mine_empty(40);
        world.catch_up().await;
        let lost = "DELETE FROM inclusions WHERE block_number = 2";
        for texts in [
            [
                lost,
                "UPDATE deposits SET status = 'PENDING', confirmed_us = NULL",
                "DELETE FROM events WHERE status = 'CONFIRMED'",
            ]
            .as_slice(),
            &[lost],
        ] {
            for text in texts {
                execute(world.db(), text).await;
            }
            let before = world.status_of(3).await;
            for repair in [false, true] {
                let differences = rescan(&world, repair).await;
                let [Difference::Unseen { block, status, recipient, .. }] = differences.as_slice() else {
                    panic!("{differences:?}: {engine:?}, {lane:?}")
                };
                assert_eq!((block.number, *status, *recipient), (2, before, address(ALICE)));
                assert!(differences[0].to_string().contains("was not seen in it"), "{}", differences[0]);
            }
            assert_eq!(world.status_of(3).await, Confirmed, "{engine:?}, {lane:?}");
            assert_eq!(rescan(&world, false).await, []);
        }
        world.close().await;
    }
}

#[tokio::test]
async fn what_left_an_address_and_what_it_paid_are_compared_and_what_is_missing_is_mended() {
    for engine in ENGINES {
        let mut world = settled(engine).await;
        let out = |from: u8| SimTx::new(address(from), 1, vec![SimLeg::native(address(from), address(PAYER), 2)]);
        // Bob is watched only behind block 40.
        world.chain.mine(vec![out(ALICE)]);
        world.chain.mine(vec![out(BOB)]);
        world.chain.mine_empty(40);
        world.catch_up().await;
        let rescan = async |repair| {
            let mut rescan = Rescan::<SimPool>::begin(world.another_watcher(), 1, 50, repair).await.unwrap();
            while !rescan.is_done() {
                rescan.step(world.now()).await.unwrap();
            }
            let reported = rescan.take_differences();
            reported
                .into_iter()
                .map(|difference| match difference {
                    Difference::Unbooked { block, movement, of, .. } => (block.number, movement, of, true),
                    Difference::Unmoved { block, movement, of, .. } => (block.number, movement, of, false),
                    other => panic!("{other}"),
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(rescan(false).await, [], "{engine:?}");
        execute(world.db(), "DELETE FROM debits WHERE block_number = 41").await;
        execute(world.db(), "DELETE FROM fees WHERE block_number = 42").await;
        let lacking = [(41, Movement::Debit, address(ALICE), true), (42, Movement::Fee, address(BOB), true)];
        assert_eq!(rescan(false).await, lacking);
        assert_eq!(rescan(true).await, lacking);
        assert_eq!(rescan(false).await, []);
        // What is on record and was never there is reported, and stays.
        execute(
            world.db(),
            "UPDATE fees SET amount = (SELECT amount FROM debits WHERE block_number = 42) WHERE block_number = 42",
        )
        .await;
        execute(world.db(), "UPDATE debits SET leg_hash = block_hash WHERE block_number = 41").await;
        let (alice, bob) = (address(ALICE), address(BOB));
        for repair in [true, false] {
            let mut reported = rescan(repair).await;
            reported.retain(|difference| *difference != (41, Movement::Debit, alice, true));
            let unmoved = (41, Movement::Debit, alice, false);
            assert_eq!(reported, [unmoved, (42, Movement::Fee, bob, false), (42, Movement::Fee, bob, true)]);
        }
        world.abandon();
    }
}

#[tokio::test]
async fn what_was_not_read_yet_is_not_rescanned() {
    let world = settled(Engine::Sqlite).await;
    let not_final = Rescan::<SimPool>::begin(world.another_watcher(), 1, 31, false).await.unwrap_err();
    assert!(matches!(not_final, BackfillError::NotFinal { to: 31, .. }), "{not_final}");
    world.chain.mine_empty(30);
    let not_read = Rescan::<SimPool>::begin(world.another_watcher(), 41, 50, false).await.unwrap_err();
    assert!(matches!(not_read, BackfillError::NotRead { cursor: 40, .. }), "{not_read}");
    world.close().await;
}
