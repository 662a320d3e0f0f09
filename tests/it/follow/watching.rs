//! From a block to CONFIRMED, and everything a source can leave out on the way.

use std::sync::Arc;
use std::time::Duration;

use landfall::account::{AccountType, NewAccount};
use landfall::deposit::DepositStatus::{Confirmed, Pending};
use landfall::deposit::{Deposit, DepositId, LegHash};
use landfall::health::Status;
use landfall::incident::IncidentKind;
use landfall::registry;
use landfall::store::deposits;
use landfall::time::{Pulse, Timestamp};
use landfall::watcher::{Follower, Settings, Start, TickError};
use landfall_chain::{Address, AssetId, Endpoints, ReadProof, U256};
use landfall_sim::{Fault, SimChain, SimLeg, SimTx};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::follow::finality::{state_is, until};
use crate::harness::books::events;
use crate::harness::postgres::{ENGINES, Engine, TestStore};
use crate::harness::world::{
    CHAIN, FAILED_GRACE, FINALITY_DEPTH, TOKEN, World, address, network, unlisted_token, until_called,
};

const ALICE: u8 = 0xa1;
const BOB: u8 = 0xb0;
const PAYER: u8 = 0x01;

fn payment(nonce: u64, to: u8, amount: u64) -> SimTx {
    SimTx::new(address(PAYER), nonce, vec![SimLeg::native(address(PAYER), address(to), amount)])
}

async fn world() -> World {
    let world = World::new(1).await;
    world.watch("alice", address(ALICE)).await;
    world
}

#[tokio::test]
async fn a_deposit_is_pending_with_its_block_and_confirmed_when_final() {
    let mut world = world().await;
    world.chain.mine(vec![payment(0, ALICE, 5)]);
    assert_eq!(world.tick().await.pending, 1);
    assert_eq!(world.status_of(5).await, Pending);

    world.chain.mine_empty(FINALITY_DEPTH - 1);
    world.catch_up().await;
    assert_eq!(world.status_of(5).await, Pending, "one block too early");

    world.chain.mine_empty(1);
    assert_eq!(world.tick().await.confirmed, 1);
    assert_eq!(world.status_of(5).await, Confirmed);
    let statuses: Vec<String> = events(world.db()).await.into_iter().map(|event| event.status).collect();
    assert_eq!(statuses, ["PENDING", "CONFIRMED"]);
    world.close().await;
}

#[tokio::test]
async fn a_deposit_first_seen_when_final_gets_the_same_events() {
    let mut world = world().await;
    world.chain.mine(vec![payment(0, ALICE, 5)]);
    world.chain.mine_empty(FINALITY_DEPTH + 3);
    world.catch_up().await;
    assert_eq!(world.status_of(5).await, Confirmed);
    assert_eq!(events(world.db()).await.len(), 2);
    world.close().await;
}

#[tokio::test]
async fn equal_legs_of_one_transaction_are_two_deposits() {
    let mut world = world().await;
    let leg = SimLeg { asset: TOKEN, ..SimLeg::native(address(PAYER), address(ALICE), 5) };
    world.chain.mine(vec![SimTx::new(address(PAYER), 0, vec![leg, leg])]);
    world.chain.mine_empty(FINALITY_DEPTH);
    world.catch_up().await;
    let deposits = world.deposits().await;
    assert_eq!(deposits.len(), 2);
    assert_ne!(deposits[0].id, deposits[1].id);
    assert!(deposits.iter().all(|deposit| deposit.status == Confirmed && deposit.symbol == "USDC"));
    world.close().await;
}

#[tokio::test]
async fn only_listed_assets_to_watched_addresses_are_credited() {
    let mut world = world().await;
    let legs = vec![
        SimLeg { asset: unlisted_token(), ..SimLeg::native(address(PAYER), address(ALICE), 1) },
        SimLeg::native(address(PAYER), address(BOB), 2),
        SimLeg { asset: AssetId::Native, ..SimLeg::native(address(PAYER), address(ALICE), 3) },
    ];
    world.chain.mine(vec![SimTx::new(address(PAYER), 0, legs)]);
    world.catch_up().await;
    let amounts: Vec<U256> = world.deposits().await.iter().map(|deposit| deposit.amount).collect();
    assert_eq!(amounts, [U256::from(3)]);
    world.close().await;
}

#[tokio::test]
async fn the_sender_is_named_when_it_is_one_of_ours() {
    let mut world = world().await;
    world.watch("payer", address(PAYER)).await;
    world.chain.mine(vec![payment(0, ALICE, 5)]);
    world.catch_up().await;
    let deposit = &world.deposits().await[0];
    assert_eq!((deposit.account_id.as_str(), deposit.source_account_id.as_deref()), ("alice", Some("payer")));
    let payload = &events(world.db()).await[0].payload;
    assert!(payload.contains("\"source_type\":\"ACCOUNT\"") && !payload.contains("source_account_id"), "{payload}");
    world.close().await;
}

#[tokio::test]
async fn an_address_added_while_the_tick_reads_is_matched_in_that_very_block() {
    let mut world = world().await;
    world.tick().await;
    world.chain.mine(vec![payment(0, BOB, 7)]);
    // While the block is read BOB is added: before the block is recorded, after the list was loaded.
    world.chain.script([Fault::Late(Duration::ZERO), Fault::Held]);
    let db = world.db().clone();
    let now = world.now();
    let (chain, before) = (world.chain.clone(), world.chain.calls());
    let adding = async {
        until_called(&chain, before + 2).await;
        crate::harness::world::watch(&db, "bob", address(BOB), now).await;
        chain.release();
    };
    let (ticked, ()) = tokio::join!(world.try_tick(), adding);
    assert_eq!(ticked.unwrap().pending, 1);
    assert_eq!(world.status_of(7).await, Pending);
    world.close().await;
}

#[tokio::test]
async fn an_empty_or_failed_answer_moves_nothing_and_loses_nothing() {
    for fault in [Fault::Empty, Fault::Fail, Fault::Lag(1)] {
        for call in 0..4 {
            let mut world = world().await;
            world.chain.mine(vec![payment(0, ALICE, 5)]);
            world.chain.script(std::iter::repeat_n(Fault::Late(Duration::ZERO), call).chain([fault]));
            world.tick_or_fail_for_now().await;
            world.chain.behave();
            world.chain.mine_empty(FINALITY_DEPTH);
            world.catch_up().await;
            assert_eq!(world.status_of(5).await, Confirmed, "{fault:?} at call {call}");
            world.close().await;
        }
    }
}

#[tokio::test]
async fn a_source_that_leaves_out_a_block_is_not_believed() {
    let mut world = world().await;
    world.tick().await;
    world.chain.mine(vec![payment(0, ALICE, 5)]);
    world.chain.mine_empty(2);
    // tip is right; the blocks come from a node that has none of them.
    world.chain.script([Fault::Late(Duration::ZERO), Fault::Empty]);
    let error = world.try_tick().await.unwrap_err();
    assert!(error.may_pass() && error.to_string().contains("but no block on top of 0 ("), "{error}");
    world.catch_up().await;
    assert_eq!(world.status_of(5).await, Pending);
    world.close().await;
}

#[tokio::test]
async fn a_lagging_endpoint_is_no_reorg() {
    let mut world = world().await;
    world.chain.mine(vec![payment(0, ALICE, 5)]);
    world.chain.mine_empty(5);
    world.catch_up().await;
    world.chain.script([Fault::Lag(4)]);
    let ticked = world.tick().await;
    assert_eq!((ticked.disconnected, ticked.connected), (0, 0));
    world.close().await;
}

#[tokio::test]
async fn skipped_numbers_are_reported_by_parent_links() {
    let mut world = world().await;
    world.chain.mine(vec![payment(0, ALICE, 5)]);
    world.chain.skip(3);
    world.chain.mine(vec![payment(1, ALICE, 6)]);
    world.chain.skip(30);
    world.chain.mine(vec![payment(2, ALICE, 7)]);
    world.chain.mine_empty(FINALITY_DEPTH);
    world.catch_up().await;
    assert_eq!(world.deposits().await.iter().filter(|deposit| deposit.status == Confirmed).count(), 3);
    world.close().await;
}

#[tokio::test]
async fn catching_up_connects_in_bounded_ticks_and_reads_each_block_once() {
    let mut world = world().await;
    world.chain.mine_empty(999);
    world.chain.mine(vec![payment(0, ALICE, 5)]);
    world.tick().await;
    let before = world.chain.calls();
    let mut ticks = 0;
    while !world.tick().await.caught_up {
        ticks += 1;
    }
    assert_eq!(ticks, 8, "100 blocks a tick");
    // A tip for each tick and a read for each 20 blocks; the reads that a tick cannot use are not made.
    assert_eq!(world.chain.calls() - before, 9 + 45);
    assert_eq!(world.status_of(5).await, Pending);
    world.close().await;
}

#[tokio::test]
async fn nothing_is_confirmed_before_our_chain_reaches_the_final_block() {
    let mut world = world().await;
    world.chain.mine(vec![payment(0, ALICE, 5)]);
    world.chain.mine_empty(300);
    let ticked = world.tick().await;
    assert!(!ticked.caught_up);
    assert_eq!(
        world.status_of(5).await,
        Pending,
        "block 1 is final for the source, but our chain does not reach its final block"
    );
    world.catch_up().await;
    assert_eq!(world.status_of(5).await, Confirmed);
    world.close().await;
}

#[tokio::test]
async fn while_finality_stalls_deposits_wait() {
    let mut world = world().await;
    world.chain.set_finality_depth(None);
    world.chain.mine(vec![payment(0, ALICE, 5)]);
    world.chain.mine_empty(100);
    world.catch_up().await;
    assert_eq!(world.status_of(5).await, Pending);
    world.chain.set_finality_depth(Some(FINALITY_DEPTH));
    world.catch_up().await;
    assert_eq!(world.status_of(5).await, Confirmed);
    world.close().await;
}

#[tokio::test]
async fn a_chain_is_taken_up_above_its_final_block_or_at_a_number_and_never_by_guess() {
    let store = TestStore::fresh(Engine::Sqlite).await;
    let mut world = World::from(Start::Finalized, SimChain::new(1), store);
    world.watch("alice", address(ALICE)).await;
    world.chain.mine(vec![payment(0, ALICE, 1)]);
    let error = world.try_tick().await.unwrap_err();
    assert!(error.may_pass() && error.to_string().contains("no block is final yet"), "{error}");
    world.chain.mine(vec![payment(1, ALICE, 2)]);
    world.chain.mine(vec![payment(2, ALICE, 3)]);
    world.chain.set_finality_depth(Some(1));
    world.catch_up().await;
    assert_eq!(world.deposits().await.len(), 1, "block 2 is final, so block 3 is the first that is read");
    world.close().await;

    let store = TestStore::fresh(Engine::Sqlite).await;
    let mut world = World::from(Start::Number(2), SimChain::new(1), store);
    world.watch("alice", address(ALICE)).await;
    world.chain.mine(vec![payment(0, ALICE, 1)]);
    world.chain.mine(vec![payment(1, ALICE, 2)]);
    world.catch_up().await;
    assert_eq!(world.status_of(2).await, Pending);
    assert_eq!(world.deposits().await.len(), 1, "2 is inclusive");
    world.close().await;
}

#[tokio::test]
async fn a_final_block_that_is_not_ours_settles_nothing_and_is_reported() {
    let mut world = world().await;
    world.chain.mine(vec![payment(0, ALICE, 5)]);
    world.chain.mine_empty(FINALITY_DEPTH);
    world.catch_up().await;
    world.chain.mine(vec![payment(1, ALICE, 6)]);
    world.chain.mine_empty(3);
    world.catch_up().await;
    let wrong = landfall_chain::BlockRef { number: world.chain.latest().number - 1, ..world.chain.latest() };
    world.chain.claim_final(wrong);
    let error = world.try_tick().await.unwrap_err();
    assert!(error.may_pass() && error.to_string().contains("is called final, but below"), "{error}");
    assert_eq!(world.status_of(6).await, Pending);
    world.close().await;
}

#[tokio::test]
async fn two_processes_on_one_store_settle_each_deposit_once_and_neither_halts() {
    for engine in ENGINES {
        let mut world = World::on(engine, 1).await;
        world.watch("alice", address(ALICE)).await;
        for nonce in 0..20 {
            world.chain.mine(vec![payment(nonce, ALICE, nonce + 1)]);
            world.tick_with_rival().await;
        }
        world.chain.mine_empty(FINALITY_DEPTH);
        for _ in 0..10 {
            world.tick_with_rival().await;
        }
        let confirmed = world.deposits().await.iter().filter(|deposit| deposit.status == Confirmed).count();
        assert_eq!(confirmed, 20, "{engine:?}");
        world.close().await;
    }
}

#[tokio::test]
async fn an_asset_that_is_no_longer_listed_fails_no_deposit() {
    let mut world = world().await;
    let leg = SimLeg { asset: TOKEN, ..SimLeg::native(address(PAYER), address(ALICE), 5) };
    let paid = SimTx::new(address(PAYER), 0, vec![leg]);
    world.chain.mine(vec![paid.clone()]);
    world.catch_up().await;
    let (listed, native_only) = (network().assets, network().assets[..1].to_vec());

    world.restart_listing(native_only.clone());
    world.chain.mine_empty(FINALITY_DEPTH);
    let error = world.try_tick().await.unwrap_err();
    assert!(matches!(error, TickError::LegMissing { .. }) && !error.may_pass(), "{error}");
    assert_eq!(world.status_of(5).await, Pending);
    world.restart_listing(listed.clone());
    world.catch_up().await;
    assert_eq!(world.status_of(5).await, Confirmed);

    // The same while the deposit is in no block: it waits, however long.
    let other = SimTx::new(address(PAYER), 1, vec![SimLeg { amount: U256::from(6), ..leg }]);
    world.chain.mine(vec![other.clone()]);
    world.catch_up().await;
    world.chain.fork_at(world.chain.latest().number - 1);
    world.chain.mine_empty(1);
    world.restart_listing(native_only);
    for _ in 0..3 {
        world.chain.mine_empty(FINALITY_DEPTH);
        world.catch_up().await;
        world.pass(FAILED_GRACE);
    }
    assert_eq!(world.status_of(6).await, Pending);
    world.restart_listing(listed);
    world.chain.mine(vec![other]);
    world.chain.mine_empty(FINALITY_DEPTH);
    world.catch_up().await;
    assert_eq!(world.status_of(6).await, Confirmed);
    world.close().await;
}

#[tokio::test]
async fn a_transaction_is_never_credited_with_more_than_it_paid() {
    let mut world = world().await;
    world.chain.mine(vec![payment(0, ALICE, 5)]);
    world.chain.mine_empty(FINALITY_DEPTH);
    world.catch_up().await;
    let confirmed = world.deposits().await.remove(0);
    // As after a fork below what was final: the books say that the next transaction paid 5 already.
    let next = payment(1, ALICE, 7);
    let before =
        Deposit { id: DepositId(uuid::Uuid::from_u128(1)), leg_hash: LegHash([1; 32]), tx: next.tx, ..confirmed };
    let mut tx = world.db().begin().await.unwrap();
    deposits::insert(&mut tx, &Deposit { status: Pending, confirmed_at: None, ..before.clone() }).await.unwrap();
    deposits::set_status(&mut tx, &before, Pending).await.unwrap();
    tx.commit().await.unwrap();

    world.chain.mine(vec![next]);
    world.chain.mine_empty(FINALITY_DEPTH);
    world.catch_up().await;
    assert_eq!(world.status_of(7).await, Pending);
    let [incident] = &world.incidents().await[..] else { panic!("one incident") };
    assert_eq!(incident.kind, IncidentKind::OverCredited);
    assert!(incident.what.contains("12 base units would be confirmed"), "{}", incident.what);
    assert!(incident.what.contains("it paid 7"), "{}", incident.what);
    // Resolved without more, it is met again.
    world.operator().resolve(world.db(), &incident.id).await.unwrap();
    world.pass(Duration::from_secs(1));
    world.catch_up().await;
    assert_eq!((world.status_of(7).await, world.incidents().await.len()), (Pending, 2));
    world.abandon();
}

#[tokio::test]
async fn created_at_is_the_time_of_the_first_block_and_stays_after_a_reorg() {
    let mut world = world().await;
    let first = world.chain.mine(vec![payment(0, ALICE, 5)]);
    world.catch_up().await;
    let created_at = Timestamp::from_secs(world.chain.blocks()[1].header.time_secs);
    assert_eq!(world.deposits().await[0].created_at, created_at);
    world.chain.fork_at(first.number - 1);
    world.chain.mine_empty(4);
    world.chain.mine(vec![payment(0, ALICE, 5)]);
    world.chain.mine_empty(FINALITY_DEPTH);
    world.catch_up().await;
    let deposit = &world.deposits().await[0];
    assert_eq!((deposit.status, deposit.created_at, deposit.confirmed_at), (Confirmed, created_at, Some(world.now())));
    world.close().await;
}

#[tokio::test]
async fn a_watch_list_of_more_than_one_page_is_matched_whole() {
    let mut world = world().await;
    let numbered = |number: u32| {
        let mut bytes = [0xcc; 20];
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        Address::Evm(bytes)
    };
    let accounts: Vec<NewAccount> = (0..10_005)
        .map(|number| NewAccount {
            id: format!("many-{number}"),
            identity_id: None,
            kind: AccountType::Omnibus,
            addresses: [(CHAIN, numbered(number))].into(),
        })
        .collect();
    registry::add_accounts(world.db(), &accounts, world.now()).await.unwrap();
    let legs = [0, 9_999, 10_000, 10_004]
        .map(|number| SimLeg { recipient: numbered(number), ..SimLeg::native(address(PAYER), address(ALICE), 5) });
    world.chain.mine(vec![SimTx::new(address(PAYER), 0, legs.to_vec())]);
    assert_eq!(world.tick().await.pending, 4);
    world.close().await;
}

#[tokio::test]
async fn a_block_that_cannot_be_read_again_holds_up_no_other() {
    let mut world = world().await;
    world.chain.set_finality_depth(None);
    world.chain.mine(vec![payment(0, ALICE, 5)]);
    world.chain.mine(vec![payment(1, ALICE, 6)]);
    world.chain.mine_empty(FINALITY_DEPTH);
    world.catch_up().await;
    world.chain.set_finality_depth(Some(FINALITY_DEPTH));
    // tip, then the two blocks again, the first of them in vain.
    world.chain.script([Fault::Late(Duration::ZERO), Fault::Fail]);
    assert!(world.try_tick().await.unwrap_err().may_pass());
    assert_eq!((world.status_of(5).await, world.status_of(6).await), (Pending, Confirmed));
    world.catch_up().await;
    assert_eq!(world.status_of(5).await, Confirmed);
    world.close().await;
}

#[tokio::test]
async fn a_newer_block_that_cannot_be_read_holds_up_none_that_is_final() {
    let mut world = world().await;
    world.chain.mine(vec![payment(0, ALICE, 5)]);
    world.chain.mine_empty(FINALITY_DEPTH - 1);
    world.catch_up().await;
    assert_eq!(world.status_of(5).await, Pending);
    world.chain.mine_empty(1);
    // tip, then the newest block in vain.
    world.chain.script([Fault::Late(Duration::ZERO), Fault::Fail]);
    assert!(world.try_tick().await.unwrap_err().may_pass());
    assert_eq!(world.status_of(5).await, Confirmed);
    world.catch_up().await;
    world.close().await;
}

#[tokio::test]
async fn a_deposit_whose_block_was_read_while_its_asset_was_not_listed_is_found_there() {
    let mut world = world().await;
    let leg = SimLeg { asset: TOKEN, ..SimLeg::native(address(PAYER), address(ALICE), 5) };
    let paid = SimTx::new(address(PAYER), 0, vec![leg]);
    world.chain.mine(vec![paid.clone()]);
    world.catch_up().await;
    world.chain.fork_at(0);
    world.chain.mine_empty(1);
    world.restart_listing(network().assets[..1].to_vec());
    world.chain.mine(vec![paid]);
    world.catch_up().await;
    world.restart_listing(network().assets);
    world.chain.mine_empty(FINALITY_DEPTH);
    world.catch_up().await;
    assert_eq!(world.status_of(5).await, Confirmed);
    world.close().await;
}

#[tokio::test]
async fn a_wake_up_ends_the_wait_for_the_next_poll() {
    let world = World::new(61).await;
    world.chain.mine_empty(3);
    let settings = Settings {
        proof: ReadProof::Full,
        start: Start::Number(1),
        poll: Duration::from_secs(3_600),
        failed_grace: Duration::from_secs(3_600),
        finality_stall: None,
        block_stall: None,
    };
    let (wake_up, stop, random) = (Arc::new(Notify::new()), CancellationToken::new(), || 0);
    let endpoints = Endpoints::new(["sim".to_owned()]);
    let watcher = Follower::new(world.pool.clone(), endpoints, world.db().clone(), network(), settings);
    let pulse = Pulse::new("sim", world.now());
    let mut running = JoinSet::new();
    running.spawn(watcher.woken_by(wake_up.clone()).run(world.clock(), random, pulse, stop.clone()));
    // It is said when the first tick is over, which comes by itself.
    until(&world, "the first tick", state_is("following")).await;
    world.chain.mine_empty(2);
    tokio::time::sleep(Duration::from_millis(200)).await;
    let status = Status::read(world.db(), world.now()).await.unwrap();
    assert_eq!(status.chains[0].cursor, Some(3), "the next poll is an hour away");
    wake_up.notify_one();
    until(&world, "the next blocks", |status| status.chains[0].cursor == Some(5)).await;
    stop.cancel();
    running.join_all().await;
    world.close().await;
}
