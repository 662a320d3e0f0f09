//! `deposit explain`: each leg of a transaction has a verdict with a code of the closed list, and nothing is claimed
//! that cannot be had.

use landfall::account::{AccountType, NewAccount};
use landfall::incident::{Incident, IncidentKind};
use landfall::registry;
use landfall::store::incidents;
use landfall::watcher::explain::{ExplainError, Explanation, TraceReading, explain};
use landfall_chain::{Chain, Lane, TxId, Verdict};
use landfall_sim::{Fault, SimLeg, SimTx};

use crate::harness::postgres::Engine;
use crate::harness::world::{FAILED_GRACE, FINALITY_DEPTH, TOKEN, World, address, unlisted_token};

const ALICE: u8 = 0xa1;
const BOB: u8 = 0xb0;
const CAROL: u8 = 0xc0;
const DAVE: u8 = 0xd0;
const PAYER: u8 = 0x01;

async fn world() -> World {
    let mut world = World::traced(Engine::Sqlite, 1).await;
    world.watch("alice", address(ALICE)).await;
    world.chain.mine_empty(1);
    world.catch_up().await;
    world
}

fn leg(to: u8, amount: u64) -> SimLeg {
    SimLeg::native(address(PAYER), address(to), amount)
}

fn inner(to: u8, amount: u64) -> SimLeg {
    SimLeg::inner(address(PAYER), address(to), amount)
}

fn pay(legs: Vec<SimLeg>) -> SimTx {
    SimTx::new(address(PAYER), 0, legs)
}

async fn ask(world: &World, tx: TxId) -> Option<Explanation> {
    explain(&world.chain, world.db(), &world.network, tx).await.unwrap()
}

/// Amount, lane and verdict of each leg.
fn verdicts(explanation: &Explanation) -> Vec<(u64, Lane, Verdict)> {
    explanation.legs.iter().map(|leg| (leg.transfer.amount.to(), leg.lane, leg.verdict)).collect()
}

#[tokio::test]
async fn every_leg_of_a_transaction_has_its_verdict() {
    let mut world = world().await;
    let elsewhere = NewAccount {
        id: "carol".to_owned(),
        identity_id: None,
        kind: AccountType::Segregated,
        addresses: [(Chain::BaseSepolia, address(CAROL))].into(),
    };
    registry::add_accounts(world.db(), &[elsewhere], world.now()).await.unwrap();
    let token = SimLeg { asset: TOKEN, ..leg(ALICE, 2) };
    let mut tx =
        pay(vec![leg(ALICE, 1), token, leg(BOB, 3), leg(CAROL, 4), leg(DAVE, 5), inner(ALICE, 6), inner(BOB, 7)]);
    tx.rejected = vec![
        (SimLeg { asset: unlisted_token(), ..leg(ALICE, 8) }, Verdict::UnlistedToken),
        // As of ERC-721.
        (SimLeg { asset: TOKEN, ..leg(ALICE, 1) }, Verdict::UnlistedToken),
        (inner(ALICE, 9), Verdict::RevertedFrame),
    ];
    let id = tx.tx.id;
    world.chain.mine(vec![tx, SimTx::new(address(BOB), 0, vec![leg(ALICE, 99)])]);
    world.catch_up().await;
    world.watch("dave", address(DAVE)).await;

    let expected = |ours: Verdict| {
        [
            (1, Lane::Block, ours),
            (2, Lane::Block, ours),
            (3, Lane::Block, Verdict::NotWatched),
            (4, Lane::Block, Verdict::ChainNotRegistered),
            (5, Lane::Block, Verdict::NotWatchedThen),
            (8, Lane::Block, Verdict::UnlistedToken),
            (1, Lane::Block, Verdict::UnlistedToken),
            (6, Lane::Traces, ours),
            (7, Lane::Traces, Verdict::NotWatched),
            (9, Lane::Traces, Verdict::RevertedFrame),
        ]
    };
    let reported = ask(&world, id).await.unwrap();
    assert_eq!(verdicts(&reported), expected(Verdict::Pending));
    assert_eq!((reported.is_final, &reported.traces), (false, &TraceReading::Read));
    assert_eq!(reported.legs[3].why, "its recipient is watched on BASE_SEPOLIA");
    assert_eq!(reported.legs[4].why, "its recipient is watched from block 3 on");
    assert_eq!(reported.legs[5].why, "its token is not listed");
    assert_eq!(reported.legs[6].why, "its contract is listed, but this Transfer tells no amount (ERC-721)");
    assert_eq!(reported.legs[0].deposit.as_ref().map(|deposit| deposit.account_id.as_str()), Some("alice"));

    world.chain.mine_empty(FINALITY_DEPTH);
    world.catch_up().await;
    let reported = ask(&world, id).await.unwrap();
    assert_eq!(verdicts(&reported), expected(Verdict::Credited));
    assert!(reported.is_final);
    world.close().await;
}

#[tokio::test]
async fn what_no_trace_can_show_is_unproved_and_the_reason_is_reported() {
    let mut world = world().await;
    let tx = pay(vec![leg(ALICE, 1), inner(ALICE, 6)]);
    world.chain.withhold_balances(true);
    world.chain.mine(vec![tx.clone()]);
    world.catch_up().await;
    world.chain.script_traces([Fault::Refuse]);
    let reported = ask(&world, tx.tx.id).await.unwrap();
    assert_eq!(verdicts(&reported), [(1, Lane::Block, Verdict::Pending), (6, Lane::Traces, Verdict::Unproved)]);
    let TraceReading::Unavailable(why) = &reported.traces else { panic!("{reported:?}") };
    assert!(why.contains("not to offer this call"), "{why}");

    world.chain.mine_empty(FINALITY_DEPTH);
    world.catch_up().await;
    let reported = ask(&world, tx.tx.id).await.unwrap();
    assert_eq!(verdicts(&reported), [(1, Lane::Block, Verdict::Credited), (6, Lane::Traces, Verdict::Pending)]);
    assert!(
        reported.legs[1].why.contains("cannot be had: the state of block"),
        "why it has no witness: {}",
        reported.legs[1].why
    );
    world.chain.withhold_balances(false);
    world.close().await;
}

#[tokio::test]
async fn a_network_that_is_not_traced_says_that_nothing_inside_was_looked_for() {
    let mut world = World::new(1).await;
    world.watch("alice", address(ALICE)).await;
    let tx = pay(vec![leg(ALICE, 1)]);
    world.chain.mine(vec![tx.clone()]);
    let reported = ask(&world, tx.tx.id).await.unwrap();
    assert_eq!(reported.legs[0].why, "the chain has not been read yet", "explained before anything is watched");
    world.catch_up().await;
    let reported = ask(&world, tx.tx.id).await.unwrap();
    assert_eq!(verdicts(&reported), [(1, Lane::Block, Verdict::Pending)]);
    assert_eq!(reported.traces, TraceReading::NotTraced);
    world.close().await;
}

#[tokio::test]
async fn a_transaction_that_nobody_knows_is_unknown_and_one_that_a_reorg_dropped_is_on_record() {
    let mut world = world().await;
    let tx = pay(vec![leg(ALICE, 1)]);
    assert_eq!(ask(&world, tx.tx.id).await, None);
    world.chain.mine(vec![tx.clone()]);
    world.catch_up().await;
    world.chain.fork_at(1);
    world.chain.mine_empty(FINALITY_DEPTH + 2);
    world.catch_up().await;
    let reported = ask(&world, tx.tx.id).await.unwrap();
    assert_eq!((reported.block, verdicts(&reported)), (None, vec![(1, Lane::Block, Verdict::Pending)]));
    world.pass(FAILED_GRACE);
    world.chain.mine_empty(1);
    world.catch_up().await;
    let reported = ask(&world, tx.tx.id).await.unwrap();
    assert_eq!(verdicts(&reported), [(1, Lane::Block, Verdict::Unproved)]);
    assert_eq!(reported.legs[0].why, "FAILED: it is in no final block");

    // Mined after all, and not connected yet.
    world.chain.mine(vec![tx.clone()]);
    let reported = ask(&world, tx.tx.id).await.unwrap();
    assert_eq!(verdicts(&reported), [(1, Lane::Block, Verdict::Pending)]);
    assert!(reported.legs[0].why.starts_with("was FAILED"), "{}", reported.legs[0].why);
    world.close().await;
}

#[tokio::test]
async fn what_a_pending_deposit_waits_for_is_reported_as_it_is() {
    let mut world = world().await;
    let tx = pay(vec![leg(ALICE, 1)]);
    world.chain.mine(vec![tx.clone()]);
    world.catch_up().await;
    let why = async |world: &World| ask(world, tx.tx.id).await.unwrap().legs[0].why.clone();
    assert_eq!(why(&world).await, "waits for its block to be final");
    world.chain.mine_empty(FINALITY_DEPTH + 2);
    assert!(why(&world).await.contains("does not count as final here yet"), "{}", why(&world).await);
    // Whoever waits for a person waits for nothing else.
    let deposit = world.deposits().await[0].clone();
    let incident = Incident::open(deposit.chain, IncidentKind::OverCredited, "both".to_owned(), None, world.now());
    let incident = Incident { deposit: Some(deposit.id), ..incident };
    let mut tx = world.db().begin().await.unwrap();
    incidents::meet(&mut tx, &incident).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(why(&world).await, format!("waits for a person: incident {} (over_credited)", incident.id));
    world.close().await;
}

#[tokio::test]
async fn a_node_that_fails_or_moves_is_an_error_and_no_verdict() {
    let mut world = world().await;
    let tx = pay(vec![leg(ALICE, 1)]);
    world.chain.mine(vec![tx.clone()]);
    world.catch_up().await;
    world.chain.script([Fault::Fail]);
    let error = explain(&world.chain, world.db(), &world.network, tx.tx.id).await.unwrap_err();
    assert!(matches!(error, ExplainError::Source(_)), "{error}");
    // tip, fate, and a block that is not shown.
    let late = Fault::Late(std::time::Duration::ZERO);
    world.chain.script([late, late, Fault::Empty]);
    let error = explain(&world.chain, world.db(), &world.network, tx.tx.id).await.unwrap_err();
    assert!(matches!(error, ExplainError::Moving { .. }), "{error}");
    world.close().await;
}
