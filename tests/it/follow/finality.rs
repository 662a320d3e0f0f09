//! What may be confirmed when: tiers, stalled finality, operators' overrides, and chains that a person halts and
//! resumes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use landfall::account::{AccountType, NewAccount};
use landfall::deposit::DepositId;
use landfall::deposit::DepositStatus::{Confirmed, Failed, Pending};
use landfall::health::Status;
use landfall::incident::{Incident, IncidentKind};
use landfall::operator::{DecideError, Operator};
use landfall::overrides::AuditEntry;
use landfall::registry;
use landfall::store::cursors::Cursor;
use landfall::store::{audit, incidents, status};
use landfall::time::{Clock, Pulse};
use landfall::watcher::{Follower, Settings, Start, TickError, block_stall};
use landfall_chain::{Address, AssetId, Chain, Endpoints, FinalityRule, Network, ReadProof, SourceError, U256};
use landfall_sim::{Fault, Lie, SimChain, SimLeg, SimPool, SimTx};
use tokio_util::sync::CancellationToken;

use crate::delivery::engine;
use crate::follow::nodes::is_rollup;
use crate::harness::books::events;
use crate::harness::world::{CHAIN, FINALITY_DEPTH, TOKEN, World, address, until_called};

const ALICE: u8 = 0xa1;
const PAYER: u8 = 0x01;
const HOUR: Duration = Duration::from_secs(3_600);
const MINUTE: Duration = Duration::from_secs(60);
/// Small tokens after 2 blocks, more of them after 5; 3 wei at once.
const TIERS: [(AssetId, u64, u64); 3] = [(TOKEN, 100, 2), (TOKEN, 1_000, 5), (AssetId::Native, 3, 0)];

fn token(nonce: u64, amount: u64) -> SimTx {
    let leg = SimLeg { asset: TOKEN, ..SimLeg::native(address(PAYER), address(ALICE), amount) };
    SimTx::new(address(PAYER), nonce, vec![leg])
}

fn native(nonce: u64, amount: u64) -> SimTx {
    SimTx::new(address(PAYER), nonce, vec![SimLeg::native(address(PAYER), address(ALICE), amount)])
}

async fn world() -> World {
    let world = World::new(7).await;
    world.watch("alice", address(ALICE)).await;
    world.chain.mine_empty(1);
    world
}

async fn tiered() -> World {
    let mut world = world().await;
    world.set_tiers(&TIERS);
    world
}

/// Makes everything final, so that the books can be checked against the final chain.
async fn finish(mut world: World) {
    world.follow_empty(2 * FINALITY_DEPTH).await;
    world.close().await;
}

async fn audited(world: &World) -> Vec<AuditEntry> {
    let mut entries = audit::newest(&mut world.db().read().await.unwrap(), audit::About::All, 100).await.unwrap();
    entries.reverse();
    entries
}

async fn id_of(world: &World, amount: u64) -> DepositId {
    let deposits = world.deposits().await;
    deposits.iter().find(|deposit| deposit.amount == U256::from(amount)).expect("a deposit with this amount").id
}

/// The fork point of a reorg that needs a person, and how many CONFIRMED deposits stand above it.
fn reorg(error: &TickError) -> (u64, u64) {
    match error {
        TickError::PostFinalityReorg { fork_point, confirmed, .. } => (fork_point.number, *confirmed),
        other => panic!("no reorg below what was final: {other}"),
    }
}

/// The open incident about the deposit with this amount.
async fn incident_of(world: &World, amount: u64) -> Incident {
    let id = id_of(world, amount).await;
    let open = incidents::open(&mut world.db().read().await.unwrap()).await.unwrap();
    open.into_iter().find(|incident| incident.deposit == Some(id)).expect("an open incident about it")
}

async fn status(world: &World) -> Status {
    Status::read(world.db(), world.now()).await.unwrap()
}

/// Waits, in real time, for what a running watcher writes.
pub(crate) async fn until(world: &World, what: &str, wanted: impl Fn(&Status) -> bool) {
    for _ in 0..6_000 {
        if wanted(&status(world).await) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{what} did not come true: {:#?}", status(world).await);
}

pub(crate) fn state_is(state: &str) -> impl Fn(&Status) -> bool {
    move |status| status.chains.first().is_some_and(|chain| chain.state == state)
}

#[tokio::test]
async fn a_deposit_that_fits_a_tier_waits_for_less_and_the_first_tier_that_fits_counts() {
    let mut world = tiered().await;
    world.follow(vec![token(0, 100), token(1, 101), token(2, 1_001), native(3, 3), native(4, 4)]).await;
    let expected =
        [(0, [3].as_slice()), (2, &[3, 100]), (5, &[3, 100, 101]), (FINALITY_DEPTH, &[3, 4, 100, 101, 1_001])];
    let mut on_top = 0;
    for (depth, confirmed) in expected {
        while on_top < depth {
            on_top += 1;
            world.chain.mine_empty(1);
            if on_top < depth {
                world.catch_up().await;
                let early = world.deposits().await.iter().filter(|d| d.status == Confirmed).count();
                assert!(early < confirmed.len(), "{on_top} blocks on top are too few for {depth}");
            }
        }
        world.catch_up().await;
        for amount in [3, 4, 100, 101, 1_001] {
            let expected = if confirmed.contains(&amount) { Confirmed } else { Pending };
            assert_eq!(world.status_of(amount).await, expected, "{amount} with {depth} blocks on top");
        }
    }
    assert_eq!(events(world.db()).await.len(), 10);
    finish(world).await;
}

#[tokio::test]
async fn a_tier_block_that_our_chain_does_not_have_confirms_nothing() {
    let mut world = tiered().await;
    world.chain.mine(vec![token(0, 5)]);
    world.follow_empty(1).await;
    world.chain.mine_empty(1);
    // The tip is reported, and then no block: our chain ends one below.
    world.chain.script([Fault::Late(Duration::ZERO), Fault::Empty]);
    assert!(world.try_tick().await.unwrap_err().may_pass());
    assert_eq!(world.status_of(5).await, Pending);
    world.catch_up().await;
    assert_eq!(world.status_of(5).await, Confirmed);
    finish(world).await;
}

#[tokio::test]
async fn a_tier_block_of_another_branch_confirms_nothing() {
    let mut world = tiered().await;
    world.chain.set_finality_depth(None);
    world.chain.mine(vec![token(0, 5)]);
    world.follow_empty(1).await;
    let ours = world.chain.blocks();
    // Two views of three are on another branch, where the payment has the depth; the one that is asked is on ours.
    world.chain.fork_at(1);
    world.chain.mine(vec![token(0, 5)]);
    world.chain.mine_empty(2);
    world.pool.spread(3, 2, 1);
    let agreed = world.chain.tiers()[0].unwrap();
    assert!(ours.iter().all(|block| block.header.block != agreed));
    world.pool.lie(Some(Lie::OtherFork), 10);
    for _ in 0..3 {
        world.tick_or_fail_for_now().await;
        assert_eq!(world.status_of(5).await, Pending);
    }
    world.pool.lie(None, 0);
    world.catch_up().await;
    assert_eq!(world.status_of(5).await, Confirmed);
    world.chain.set_finality_depth(Some(FINALITY_DEPTH));
    finish(world).await;
}

#[tokio::test]
async fn evidence_of_a_block_that_another_process_took_back_meanwhile_confirms_nothing() {
    let mut world = tiered().await;
    world.follow(vec![token(0, 5)]).await;
    world.chain.mine_empty(2);
    // tip, blocks, and the evidence, which is right and is held until the rival stands on the other branch.
    world.chain.script([Fault::Late(Duration::ZERO), Fault::Late(Duration::ZERO), Fault::Held]);
    let (db, chain, before) = (world.db().clone(), world.chain.clone(), world.chain.calls());
    let meanwhile = async {
        until_called(&chain, before + 3).await;
        chain.fork_at(1);
        chain.mine_empty(4);
    };
    let held = async {
        let at = async || Cursor::load(&mut db.read().await.unwrap(), CHAIN).await.unwrap().at;
        engine::until("block 5", async || at().await.is_some_and(|at| at.number == 5)).await;
        chain.release();
    };
    tokio::join!(world.tick_while_the_rival_follows(meanwhile), held);
    assert_eq!(world.status_of(5).await, Pending, "its block is gone");
    world.follow(vec![token(0, 5)]).await;
    world.follow_empty(2).await;
    assert_eq!(world.status_of(5).await, Confirmed);
    finish(world).await;
}

#[tokio::test]
async fn a_missing_deposit_fails_by_the_base_rule_only() {
    let mut world = tiered().await;
    world.follow(vec![token(0, 5)]).await;
    world.chain.fork_at(1);
    world.chain.mine(vec![token(0, 6)]);
    world.follow_empty(FINALITY_DEPTH - 1).await;
    assert_eq!((world.status_of(5).await, world.status_of(6).await), (Pending, Confirmed));
    world.follow_empty(1).await;
    assert_eq!(world.status_of(5).await, Failed);
    finish(world).await;
}

#[tokio::test]
async fn a_reorg_below_what_a_tier_confirmed_is_an_incident_and_the_deposit_stays_confirmed() {
    let mut world = tiered().await;
    world.chain.mine(vec![token(0, 5)]);
    world.follow_empty(3).await;
    assert_eq!(world.status_of(5).await, Confirmed);
    world.chain.fork_at(1);
    world.chain.mine(vec![token(0, 5)]);
    world.chain.mine_empty(4);
    for _ in 0..2 {
        let error = world.try_tick().await.unwrap_err();
        assert!(matches!(error, TickError::PostFinalityReorg { confirmed: 1, .. }), "{error}");
        world.pass(MINUTE);
    }
    let [incident] = &world.incidents().await[..] else { panic!("one incident") };
    assert_eq!((incident.kind, incident.block_number), (IncidentKind::PostFinalityReorg, Some(1)));
    assert_eq!(incident.seen_at, incident.opened_at.plus(MINUTE), "met twice, opened once");
    assert_eq!((world.status_of(5).await, events(world.db()).await.len()), (Confirmed, 2));

    world.operator().accept_reorg(world.db(), CHAIN).await.unwrap();
    world.catch_up().await;
    assert_eq!(world.incidents().await[0].resolution, "accepted: a test");
    finish(world).await;
}

#[tokio::test]
async fn r7_while_finality_stalls_deposits_wait_with_an_alarm_until_a_person_or_finality_decides() {
    let mut world = world().await;
    world.finalize().await;
    let (since, final_then) = (world.now(), world.chain.finalized().unwrap().number);
    world.chain.set_finality_depth(None);
    world.chain.mine(vec![token(0, 5)]);
    world.chain.mine(vec![token(1, 6)]);
    for minute in 1..=30 {
        world.pass(MINUTE);
        world.follow_empty(1).await;
        assert!(world.alarms().is_empty(), "minute {minute}");
    }
    world.pass(MINUTE);
    world.follow_empty(1).await;
    assert_eq!(world.alarms(), [format!("finality stalled: block {final_then} is final since {since}")]);
    assert_eq!((world.status_of(5).await, world.status_of(6).await), (Pending, Pending));

    // A person declares the first of the two blocks final.
    let first = final_then + FINALITY_DEPTH + 1;
    let refused = world.operator().confirm_through(world.db(), CHAIN, 1_000, HOUR).await;
    assert!(matches!(refused, Err(DecideError::NotOurs { number: 1_000, .. })));
    world.operator().confirm_through(world.db(), CHAIN, first, HOUR).await.unwrap();
    world.pass(MINUTE);
    world.catch_up().await;
    assert_eq!((world.status_of(5).await, world.status_of(6).await), (Confirmed, Pending));
    let actions: Vec<(String, String)> = audited(&world).await.into_iter().map(|e| (e.actor, e.action)).collect();
    let expected = [("olga", "confirm"), ("landfall", "confirmed_by_override")];
    assert_eq!(actions, expected.map(|(actor, action)| (actor.to_owned(), action.to_owned())));

    world.chain.set_finality_depth(Some(FINALITY_DEPTH));
    world.catch_up().await;
    assert_eq!(world.status_of(6).await, Confirmed);
    assert_eq!(world.alarms(), Vec::<String>::new(), "it goes by itself");
    finish(world).await;
}

#[tokio::test]
async fn a_block_that_was_declared_final_and_is_taken_back_confirms_nothing_any_more() {
    let mut world = world().await;
    world.chain.set_finality_depth(None);
    world.chain.mine(vec![token(0, 5)]);
    world.follow_empty(1).await;
    let latest = world.chain.latest().number;
    // Our chain changes between the decision and the next tick, which would act on it.
    world.operator().confirm_through(world.db(), CHAIN, latest, HOUR).await.unwrap();
    world.chain.fork_at(latest - 1);
    world.follow_empty(2).await;
    assert_eq!(world.status_of(5).await, Pending);

    world.operator().confirm_through(world.db(), CHAIN, latest, HOUR).await.unwrap();
    world.pass(HOUR);
    world.catch_up().await;
    assert_eq!(world.status_of(5).await, Pending, "its time was over");
    world.operator().confirm_through(world.db(), CHAIN, latest, HOUR).await.unwrap();
    assert_eq!(world.operator().clear(world.db(), CHAIN).await.unwrap(), 1);
    assert!(matches!(world.operator().clear(world.db(), CHAIN).await, Err(DecideError::NothingToClear { .. })));
    world.catch_up().await;
    assert_eq!(world.status_of(5).await, Pending, "it was cleared");
    world.chain.set_finality_depth(Some(FINALITY_DEPTH));
    finish(world).await;
}

#[tokio::test]
async fn while_too_few_endpoints_agree_deposits_wait_and_a_person_may_ask_for_fewer() {
    let mut world = world().await;
    world.pool.spread(2, 2, 1);
    world.chain.mine(vec![token(0, 5)]);
    // One of the two stands still, so that nothing is agreed beyond what it has.
    world.pool.lie(Some(Lie::StaleHead(FINALITY_DEPTH + 1)), 0);
    world.finalize().await;
    assert_eq!(world.status_of(5).await, Pending);
    world.pass(10 * MINUTE);
    world.catch_up().await;
    assert!(world.alarms().is_empty());
    world.pass(MINUTE);
    world.catch_up().await;
    let [alarm] = &world.alarms()[..] else { panic!("one alarm: {:?}", world.alarms()) };
    assert!(alarm.ends_with("2 endpoints must agree, and fewer do"), "{alarm}");

    assert!(matches!(world.operator().agree(world.db(), CHAIN, 0, HOUR).await, Err(DecideError::NoEndpoint { .. })));
    world.operator().agree(world.db(), CHAIN, 1, HOUR).await.unwrap();
    world.catch_up().await;
    assert_eq!(world.status_of(5).await, Confirmed);
    world.pass(HOUR);
    world.chain.mine(vec![token(1, 6)]);
    world.finalize().await;
    assert_eq!(world.status_of(6).await, Pending, "the override ended by time");
    world.pool.lie(None, 0);
    finish(world).await;
}

#[tokio::test]
async fn a_lying_final_block_is_refused_by_agreement() {
    let mut world = world().await;
    world.pool.spread(3, 2, 1);
    world.pool.lie(Some(Lie::FalseFinal), 5);
    world.follow(vec![token(0, 5)]).await;
    assert_eq!(world.status_of(5).await, Pending);
    assert!(world.pool.reported()["false final"] > 0);
    world.pool.lie(None, 0);
    finish(world).await;
}

#[tokio::test]
async fn an_endpoint_on_a_stale_fork_below_what_is_final_halts_nothing() {
    let mut world = world().await;
    world.pool.spread(3, 2, 1);
    world.chain.mine(vec![token(0, 5)]);
    world.chain.mine_empty(2);
    world.chain.fork_at(1);
    world.chain.mine(vec![token(0, 5)]);
    world.follow_empty(2 * FINALITY_DEPTH).await;
    assert_eq!(world.status_of(5).await, Confirmed);
    world.pool.lie(Some(Lie::OtherFork), 10);
    for _ in 0..3 {
        world.chain.mine_empty(1);
        let error = world.try_tick().await.unwrap_err();
        assert!(error.may_pass(), "one endpoint's word: {error}");
    }
    assert_eq!(world.incidents().await, []);
    world.pool.lie(None, 0);
    finish(world).await;
}

#[tokio::test]
async fn a_newest_block_that_lags_behind_what_is_final_is_no_deeper_fork() {
    let mut world = tiered().await;
    world.chain.set_finality_depth(None);
    world.chain.mine_empty(3);
    world.chain.mine(vec![token(0, 5)]);
    world.follow_empty(4).await;
    assert_eq!(world.status_of(5).await, Confirmed);
    // We are one block on a wrong branch; the others call another block there final for a tier.
    let fork_point = world.chain.latest().number - 1;
    world.chain.fork_at(fork_point);
    world.chain.mine_empty(6);
    world.pool.spread(2, 2, 1);
    world.chain.script([Fault::Lag(12)]);
    let ticked = world.tick_or_fail_for_now().await;
    assert!(ticked.is_none_or(|ticked| ticked.disconnected <= 1), "only the one is taken back");
    world.catch_up().await;
    assert_eq!(world.incidents().await, []);
    world.chain.set_finality_depth(Some(FINALITY_DEPTH));
    finish(world).await;
}

#[tokio::test]
async fn a_final_block_that_is_not_ours_leads_off_the_fork_also_when_the_newest_block_is_ours() {
    let mut world = world().await;
    world.chain.set_finality_depth(None);
    world.chain.mine(vec![token(0, 5)]);
    world.follow_empty(4).await;
    // We are on a branch that one endpoint of three still shows as the newest; the others call another one final.
    world.chain.fork_at(1);
    world.chain.mine(vec![token(0, 5)]);
    world.chain.mine_empty(4);
    world.chain.set_finality_depth(Some(1));
    world.chain.mine_empty(1);
    world.pool.spread(3, 2, 1);
    world.pool.lie_about_the_tip(Lie::OtherFork);
    let ticked = world.tick().await;
    assert_eq!(ticked.disconnected, 5, "down to the common block");
    world.pool.lie(None, 0);
    world.chain.set_finality_depth(Some(FINALITY_DEPTH));
    finish(world).await;
}

#[tokio::test]
async fn an_accepted_reorg_is_followed_once_down_to_where_it_was_met_and_credits_nothing_twice() {
    let mut world = world().await;
    world.chain.mine(vec![token(0, 5), token(1, 7)]);
    world.finalize().await;
    let final_then = world.chain.finalized().unwrap().number;
    assert!(matches!(world.operator().accept_reorg(world.db(), CHAIN).await, Err(DecideError::NoReorg { .. })));

    // The first payment is mined again, the second is gone.
    world.chain.fork_at(1);
    world.chain.mine(vec![token(0, 5)]);
    world.chain.mine_empty(FINALITY_DEPTH + 1);
    let error = world.try_tick().await.unwrap_err();
    assert!(matches!(error, TickError::PostFinalityReorg { confirmed: 2, .. }) && !error.may_pass(), "{error}");
    assert_eq!(error.incident(), Some(IncidentKind::PostFinalityReorg));
    assert_eq!(world.operator().accept_reorg(world.db(), CHAIN).await.unwrap(), 1);
    world.catch_up().await;
    assert_eq!((world.status_of(5).await, world.status_of(7).await), (Confirmed, Confirmed), "CONFIRMED stays");
    assert_eq!(events(world.db()).await.len(), 4, "nothing is told twice");
    assert!(world.chain.finalized().unwrap().number > final_then - 1);

    // Accepted once: the next one needs a person again.
    world.chain.fork_at(1);
    world.chain.mine_empty(3 * FINALITY_DEPTH);
    let again = world.try_tick().await.unwrap_err();
    assert!(matches!(again, TickError::PostFinalityReorg { .. }), "{again}");
    let reorgs = world.incidents().await.into_iter().filter(|one| one.kind == IncidentKind::PostFinalityReorg);
    assert_eq!(reorgs.count(), 2, "the first is resolved, so this is another one");
    let actions: Vec<String> = audited(&world).await.into_iter().map(|entry| entry.action).collect();
    assert_eq!(actions.iter().filter(|action| *action == "accepted_reorg").count(), 1);
    assert!(actions.contains(&"accept_reorg".to_owned()) && actions.contains(&"resume".to_owned()), "{actions:?}");
    world.abandon();
}

#[tokio::test]
async fn after_an_accepted_reorg_nothing_is_final_by_what_was_final_before() {
    let mut world = world().await;
    world.follow_empty(2 * FINALITY_DEPTH).await;
    let final_then = world.chain.finalized().unwrap();
    world.chain.fork_at(1);
    world.chain.mine(vec![token(0, 5)]);
    world.chain.mine_empty(final_then.number);
    world.chain.claim_final(world.chain.blocks()[2].header.block);
    // The new chain's own final block is far below the old one.
    assert!(matches!(world.try_tick().await, Err(TickError::PostFinalityReorg { .. })));
    world.chain.set_finality_depth(None);
    world.chain.claim_final(world.chain.blocks()[1].header.block);
    world.operator().accept_reorg(world.db(), CHAIN).await.unwrap();
    for _ in 0..5 {
        world.tick_or_fail_for_now().await;
    }
    assert_eq!(world.deposits().await.len(), 1);
    assert_eq!(world.status_of(5).await, Pending, "block 2 of the new chain is not final yet");
    world.chain.set_finality_depth(Some(FINALITY_DEPTH));
    finish(world).await;
}

#[tokio::test]
async fn a_transaction_that_pays_otherwise_after_an_accepted_reorg_waits_until_a_person_took_the_first_credit_back() {
    let mut world = world().await;
    world.chain.mine(vec![token(0, 5)]);
    world.finalize().await;
    world.chain.fork_at(1);
    world.chain.mine(vec![token(0, 7)]);
    world.chain.mine_empty(2 * FINALITY_DEPTH);
    assert!(world.try_tick().await.is_err());
    world.operator().accept_reorg(world.db(), CHAIN).await.unwrap();
    world.catch_up().await;
    world.chain.mine(vec![token(1, 3)]);
    world.finalize().await;
    let statuses = [world.status_of(5).await, world.status_of(7).await, world.status_of(3).await];
    assert_eq!(statuses, [Confirmed, Pending, Confirmed], "one waits, and nothing waits for it");
    let (first, second) = (incident_of(&world, 5).await, incident_of(&world, 7).await);
    assert_eq!((first.kind, second.kind), (IncidentKind::OverCredited, IncidentKind::OverCredited));
    assert!(second.what.contains("12 base units would be confirmed"), "{}", second.what);

    // To resolve the one that waits changes nothing.
    world.operator().resolve(world.db(), &second.id).await.unwrap();
    world.pass(MINUTE);
    world.catch_up().await;
    assert_eq!(world.status_of(7).await, Pending);
    assert_ne!(incident_of(&world, 7).await.id, second.id);
    // The person took the 5 back in the books: they stay CONFIRMED here, and the 7 are credited.
    world.operator().resolve(world.db(), &first.id).await.unwrap();
    world.catch_up().await;
    assert_eq!((world.status_of(5).await, world.status_of(7).await), (Confirmed, Confirmed));
    assert_eq!(incidents::open(&mut world.db().read().await.unwrap()).await.unwrap(), []);
    let resolved = audited(&world).await.into_iter().filter(|entry| entry.action == "resolve").count();
    assert_eq!(resolved, 2);
    // The books hold what the chain does not: a person decided so.
    world.abandon();
}

#[tokio::test]
async fn a_deposit_that_an_accepted_reorg_took_back_is_listed_until_its_leg_is_final_again() {
    let mut world = world().await;
    world.chain.mine(vec![token(0, 5)]);
    world.finalize().await;
    world.chain.fork_at(1);
    world.chain.mine_empty(2 * FINALITY_DEPTH);
    assert!(world.try_tick().await.is_err());
    world.operator().accept_reorg(world.db(), CHAIN).await.unwrap();
    world.catch_up().await;
    let incident = incident_of(&world, 5).await;
    assert_eq!((incident.kind, incident.block_number), (IncidentKind::OverCredited, Some(2)));
    world.follow(vec![token(0, 5)]).await;
    assert_eq!(incident_of(&world, 5).await.id, incident.id, "it is not final yet");
    world.finalize().await;
    let all = world.incidents().await;
    let resolution = &all.iter().find(|of| of.id == incident.id).unwrap().resolution;
    assert!(resolution.starts_with("its leg is in final block 22 "), "{resolution}");
    assert_eq!(events(world.db()).await.len(), 2, "it was CONFIRMED all the time");
    world.close().await;
}

#[tokio::test]
async fn a_reorg_deeper_than_the_one_that_a_person_accepted_is_refused_again() {
    let mut world = world().await;
    world.chain.mine_empty(2);
    world.chain.mine(vec![token(0, 5)]);
    world.follow_empty(5 + FINALITY_DEPTH).await;
    world.chain.fork_at(6);
    world.chain.mine_empty(2 * FINALITY_DEPTH);
    let met = world.try_tick().await.unwrap_err();
    assert_eq!(reorg(&met), (6, 0), "{met}");
    assert_eq!(world.operator().accept_reorg(world.db(), CHAIN).await.unwrap(), 6);
    // Before it is done, the chain is replaced below that.
    world.chain.fork_at(3);
    world.chain.mine_empty(3 * FINALITY_DEPTH);
    for _ in 0..2 {
        let met = world.try_tick().await.unwrap_err();
        assert_eq!(reorg(&met), (3, 1), "{met}");
        assert_eq!(world.status_of(5).await, Confirmed);
    }
    let open = incidents::open(&mut world.db().read().await.unwrap()).await.unwrap();
    assert_eq!(open.iter().map(|incident| incident.block_number).collect::<Vec<_>>(), [Some(3)]);
    assert_eq!(world.operator().accept_reorg(world.db(), CHAIN).await.unwrap(), 3);
    world.catch_up().await;
    world.chain.mine(vec![token(0, 5)]);
    finish(world).await;
}

/// A watcher as a process runs it, on a chain whose blocks come by themselves.
fn run_alarmed(world: &World, stop: &CancellationToken) -> impl Future<Output = ()> + use<> {
    let settings = Settings {
        start: Start::Number(1),
        proof: ReadProof::Full,
        poll: Duration::from_millis(10),
        failed_grace: HOUR,
        finality_stall: None,
        block_stall: Some(block_stall(&world.network)),
    };
    let endpoints = Endpoints::new(["sim".to_owned()]);
    let watcher = Follower::new(world.pool.clone(), endpoints, world.db().clone(), world.network.clone(), settings);
    watcher.run(world.clock(), || 0, Pulse::new(CHAIN, world.now()), stop.clone())
}

#[tokio::test]
async fn a_newest_block_that_stays_the_same_is_an_alarm_also_over_a_restart_and_no_balance_is_reported_by_it() {
    let world = world().await;
    let latest = world.chain.latest().number;
    let healthy = |status: &Status| status.complaints(&[CHAIN].into(), MINUTE).is_empty();
    let is_followed_within = async |time: Duration| {
        let mut reader = world.db().read().await.unwrap();
        let (since, until) = (world.now().minus(time), world.now());
        status::followed_since(&mut reader, since, until).await.unwrap().contains(&CHAIN)
    };
    let stop = CancellationToken::new();
    let operate = async {
        until(&world, "healthy", |status| state_is("following")(status) && healthy(status)).await;
        world.pass(5 * MINUTE);
        until(&world, "heard", |status| status.chains[0].lag_secs == Some(0)).await;
        assert!(healthy(&status(&world).await), "it may be by chance");
        world.pass(MINUTE);
        until(&world, "an alarm", |status| !status.chains[0].alarms.is_empty()).await;
        stop.cancel();
    };
    let since = world.now();
    tokio::join!(run_alarmed(&world, &stop), operate);
    let alarm = format!("no newer block than {latest} is told since {since}");
    let reported = status(&world).await;
    assert_eq!((&reported.chains[0].alarms, reported.chains[0].lag_secs), (&vec![alarm.clone()], Some(360)));
    assert_eq!(reported.complaints(&[CHAIN].into(), MINUTE).len(), 2, "the alarm, and behind: {reported:?}");
    assert!(is_followed_within(6 * MINUTE).await && !is_followed_within(5 * MINUTE).await);

    let stop = CancellationToken::new();
    let operate = async {
        world.pass(MINUTE);
        let anew = |status: &Status| state_is("following")(status) && status.chains[0].lag_secs == Some(420);
        until(&world, "following anew", anew).await;
        assert_eq!(status(&world).await.chains[0].alarms.as_slice(), std::slice::from_ref(&alarm));
        assert!(is_followed_within(7 * MINUTE).await && !is_followed_within(6 * MINUTE).await);
        world.chain.mine_empty(1);
        until(&world, "healthy again", healthy).await;
        assert!(is_followed_within(MINUTE).await);
        stop.cancel();
    };
    tokio::join!(run_alarmed(&world, &stop), operate);
    finish(world).await;
}

#[tokio::test]
async fn a_source_that_was_set_back_below_what_is_final_here_is_a_failure_that_may_pass() {
    let mut world = world().await;
    world.follow_empty(3 * FINALITY_DEPTH).await;
    let (all, last) = (world.chain.blocks(), world.chain.finalized().unwrap().number);
    world.restart();
    // Its blocks are ours, as far as they go.
    world.chain.restore(all.iter().filter(|block| block.header.block.number < last).cloned().collect());
    for _ in 0..2 {
        let error = world.try_tick().await.unwrap_err();
        assert!(error.may_pass() && error.to_string().contains("which is final here"), "{error}");
    }
    world.chain.restore(all);
    world.follow(vec![token(0, 5)]).await;
    assert_eq!(world.status_of(5).await, Pending);
    finish(world).await;
}

#[tokio::test]
async fn a_chain_that_a_person_halts_does_nothing_until_resumed_also_over_restarts() {
    let mut world = world().await;
    world.catch_up().await;
    world.operator().halt(world.db(), CHAIN).await.unwrap();
    world.chain.mine(vec![token(0, 5)]);
    for _ in 0..2 {
        let calls = world.chain.calls();
        let error = world.try_tick().await.unwrap_err();
        assert!(matches!(error, TickError::HaltedByOperator { .. }) && !error.may_pass(), "{error}");
        assert_eq!(world.chain.calls(), calls, "the source is not asked");
        world.restart();
    }
    assert_eq!(world.incidents().await, [], "a person did it, so nobody must look");
    let silent = Operator { reason: " ", ..world.operator() };
    assert!(matches!(silent.resume(world.db(), CHAIN).await, Err(DecideError::Reason)));
    world.operator().resume(world.db(), CHAIN).await.unwrap();
    world.catch_up().await;
    assert_eq!(world.status_of(5).await, Pending);
    finish(world).await;
}

#[tokio::test]
async fn a_running_chain_that_halted_comes_back_without_a_restart() {
    let mut world = world().await;
    world.chain.mine(vec![token(0, 5)]);
    world.finalize().await;
    // Resumed before it halts: that is no word for what comes later.
    world.operator().resume(world.db(), CHAIN).await.unwrap();
    let stop = CancellationToken::new();
    let running = world.run(stop.clone());
    let operate = async {
        until(&world, "following", state_is("following")).await;
        world.chain.fork_at(1);
        world.chain.mine(vec![token(0, 5)]);
        world.chain.mine_empty(FINALITY_DEPTH + 1);
        until(&world, "halted", state_is("halted")).await;
        let responses = status(&world).await.chains[0].clone();
        assert!(
            responses.reason.contains("landfall chain override ETHEREUM_TESTNET accept-reorg"),
            "{}",
            responses.reason
        );
        let [alarm] = &responses.alarms[..] else { panic!("one alarm: {:?}", responses.alarms) };
        assert!(alarm.contains("post_finality_reorg, is open since"), "{alarm}");
        let complaints = status(&world).await.complaints(&[CHAIN].into(), Duration::from_secs(60));
        assert_eq!(complaints.len(), 2, "halted, and an incident: {complaints:?}");

        world.pass(MINUTE);
        world.operator().resume(world.db(), CHAIN).await.unwrap();
        until(&world, "halted again", |status| state_is("halted")(status) && status.chains[0].alarms.len() == 1).await;
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        until(&world, "halted again", state_is("halted")).await;
        world.pass(MINUTE);
        world.operator().accept_reorg(world.db(), CHAIN).await.unwrap();
        until(&world, "following again", state_is("following")).await;
        assert_eq!(status(&world).await.chains[0].alarms, Vec::<String>::new());
        world.operator().halt(world.db(), CHAIN).await.unwrap();
        until(&world, "halted by hand", state_is("halted")).await;
        world.pass(MINUTE);
        world.operator().resume(world.db(), CHAIN).await.unwrap();
        until(&world, "following", state_is("following")).await;
        stop.cancel();
    };
    tokio::join!(running, operate);
    assert_eq!(world.status_of(5).await, Confirmed);
    finish(world).await;
}

#[tokio::test]
async fn an_alarm_is_shown_in_status_and_health_and_survives_a_restart() {
    let world = world().await;
    world.chain.mine_empty(FINALITY_DEPTH);
    for round in 0..2 {
        let stop = CancellationToken::new();
        let running = world.run(stop.clone());
        let operate = async {
            until(&world, "following", state_is("following")).await;
            if round == 0 {
                world.chain.set_finality_depth(None);
                world.chain.mine_empty(1);
                let latest = world.chain.latest().number;
                until(&world, "the next block", |status| status.chains[0].latest == Some(latest)).await;
                world.pass(20 * MINUTE);
                world.chain.mine_empty(1);
                let latest = world.chain.latest().number;
                until(&world, "another block", |status| status.chains[0].latest == Some(latest)).await;
                assert_eq!(status(&world).await.chains[0].alarms, Vec::<String>::new());
            } else {
                world.pass(11 * MINUTE);
                until(&world, "the alarm", |status| !status.chains[0].alarms.is_empty()).await;
                let complaints = status(&world).await.complaints(&[CHAIN].into(), Duration::from_secs(60));
                assert!(
                    complaints[0].starts_with("ETHEREUM_TESTNET: finality stalled: block 1 is final since"),
                    "{complaints:?}"
                );
                world.chain.set_finality_depth(Some(FINALITY_DEPTH));
                until(&world, "no alarm", |status| status.chains[0].alarms.is_empty()).await;
            }
            stop.cancel();
        };
        tokio::join!(running, operate);
    }
    finish(world).await;
}

#[tokio::test]
async fn a_tick_of_slow_calls_beats_and_one_that_hangs_for_ever_does_not() {
    let world = world().await;
    world.chain.script([Fault::Late(HOUR)]);
    let (stop, pulse) = (CancellationToken::new(), Pulse::new(CHAIN, world.now()));
    let before = world.chain.calls();
    let running = world.run_with(pulse.clone(), stop.clone());
    let look = async {
        until_called(&world.chain, before + 1).await;
        world.pass(9 * MINUTE);
        // Nine minutes are long, and it beats.
        until(&world, "a heartbeat", |_| pulse.last() == world.now()).await;
        let beat = world.now();
        world.pass(2 * MINUTE);
        let hangs =
            |status: &Status| status.chains[0].alarms.iter().any(|alarm| alarm.starts_with("the watcher hangs"));
        until(&world, "the alarm", hangs).await;
        assert_eq!(pulse.last(), beat, "what hangs does not beat");
        let complaints = status(&world).await.complaints(&[CHAIN].into(), HOUR);
        assert!(complaints[0].contains("no sign of life for 120 s"), "{complaints:?}");
    };
    tokio::select! {
        () = running => panic!("it was not stopped"),
        () = look => {}
    }
    world.close().await;
}

#[tokio::test]
async fn r8_on_a_rollup_depth_is_no_finality_and_the_networks_say_so() {
    for network in landfall_evm::networks() {
        let rules = [network.finality.rule].into_iter().chain(network.finality.tiers.iter().map(|tier| tier.rule));
        for rule in rules.filter(|_| is_rollup(network.chain)) {
            assert!(rule.tag.is_some(), "{}: sequencer blocks on top prove nothing about L1: {rule:?}", network.chain);
        }
        assert_ne!(network.finality.rule, FinalityRule::confirmations(0), "{}", network.chain);
    }
}

#[tokio::test]
async fn what_halts_a_chain_is_an_incident_of_its_kind_and_what_may_pass_is_none() {
    let upgrade = TickError::Source(SourceError::upgrade_needed("type 0x7f"));
    let refused = TickError::Source(SourceError::permanent("wrong chain"));
    let passing = TickError::Source(SourceError::transient("timeout"));
    let deep = TickError::DeepReorg { chain: CHAIN, oldest: 1 };
    let kinds = [&upgrade, &refused, &passing, &deep].map(TickError::incident);
    let expected =
        [Some(IncidentKind::UpgradeNeeded), Some(IncidentKind::SourceRefused), None, Some(IncidentKind::DeepReorg)];
    assert_eq!(kinds, expected);
}

#[tokio::test]
async fn an_incident_is_resolved_once_with_a_reason() {
    let mut world = World::new(3).await;
    world.chain.set_finality_depth(None);
    world.follow_empty(5).await;
    let other = World::new(4).await;
    other.chain.mine_empty(9);
    world.chain.restore(other.chain.blocks());
    world.chain.claim_final(other.chain.blocks()[2].header.block);
    assert!(matches!(world.try_tick().await, Err(TickError::DeepReorg { .. })));
    let [incident] = &world.incidents().await[..] else { panic!("one incident") };
    assert_eq!((incident.kind, incident.resolved_at), (IncidentKind::DeepReorg, None));
    world.operator().resolve(world.db(), &incident.id).await.unwrap();
    let again = world.operator().resolve(world.db(), &incident.id).await;
    assert!(matches!(again, Err(DecideError::NoIncident { .. })));
    assert!(matches!(world.operator().resolve(world.db(), "inc_0").await, Err(DecideError::NoIncident { .. })));
    assert_eq!(incidents::open(&mut world.db().read().await.unwrap()).await.unwrap(), []);
    assert_eq!(world.incidents().await[0].resolution, "a test");
    assert_eq!(audited(&world).await[0].action, "resolve");
    other.close().await;
    world.close().await;
}

#[tokio::test]
async fn r6_a_reorg_deeper_than_the_record_halts_its_chain_only_and_says_what_to_do() {
    let world = world().await;
    world.chain.mine_empty(FINALITY_DEPTH);
    let (other_chain, elsewhere) = (Chain::BaseSepolia, SimChain::new(8));
    elsewhere.set_finality_depth(Some(FINALITY_DEPTH));
    elsewhere.mine_empty(1);
    let stop = CancellationToken::new();
    let beside = Network { chain: other_chain, chain_ref: "eip155:84532".to_owned(), ..world.network.clone() };
    let beside = world.watcher_of(SimPool::of(elsewhere.clone()), beside);
    let beside = beside.run(world.clock(), || 0, Pulse::new(other_chain, world.now()), stop.clone());
    let running = world.run(stop.clone());
    let of = |status: &Status, chain: Chain| {
        let found = status.chains.iter().find(|report| report.chain == chain.name()).cloned();
        found.map(|report| (report.state, report.cursor, report.reason))
    };
    let follows = |chain: Chain, number: u64| {
        move |status: &Status| {
            of(status, chain).is_some_and(|(state, cursor, _)| state == "following" && cursor == Some(number))
        }
    };
    let operate = async {
        until(&world, "both follow", |status| follows(CHAIN, 11)(status) && follows(other_chain, 1)(status)).await;
        let another = SimChain::new(9);
        another.set_finality_depth(Some(FINALITY_DEPTH));
        another.mine_empty(3 * FINALITY_DEPTH);
        world.chain.restore(another.blocks());
        world.chain.claim_final(another.finalized().unwrap());
        let halted = |status: &Status| of(status, CHAIN).is_some_and(|(state, ..)| state == "halted");
        until(&world, "the one halts", halted).await;
        elsewhere.mine_empty(7);
        until(&world, "the other goes on", |status| halted(status) && follows(other_chain, 8)(status)).await;
        let (_, cursor, reason) = of(&status(&world).await, CHAIN).unwrap();
        assert_eq!(cursor, Some(11), "nothing was changed");
        for advice in
            ["landfall chain resume ETHEREUM_TESTNET", "an empty store with `start` at a block below the fork"]
        {
            assert!(reason.contains(advice), "{reason}");
        }
        let met = world.incidents().await.into_iter().map(|incident| (incident.chain, incident.kind));
        assert_eq!(met.collect::<Vec<_>>(), [(CHAIN, IncidentKind::DeepReorg)]);
        stop.cancel();
    };
    tokio::join!(beside, running, operate);
    world.close().await;
}

#[tokio::test]
async fn a_stop_ends_a_tick_that_waits_for_an_endpoint_that_never_answers() {
    let mut world = world().await;
    world.chain.mine(vec![token(0, 5)]);
    // The chain is started, and then no block comes any more.
    world.chain.script([Fault::Late(Duration::ZERO), Fault::Late(Duration::ZERO), Fault::Late(HOUR)]);
    let stop = CancellationToken::new();
    let running = world.run(stop.clone());
    let operate = async {
        until_called(&world.chain, 3).await;
        stop.cancel();
    };
    let both = async { tokio::join!(running, operate) };
    tokio::time::timeout(MINUTE, both).await.expect("it ends long before the hour");
    world.chain.behave();
    world.catch_up().await;
    assert_eq!(world.status_of(5).await, Pending, "nothing is lost by it");
    finish(world).await;
}

#[tokio::test]
async fn a_long_watch_list_is_loaded_page_by_page_with_a_beat_after_each() {
    const PAGES: u32 = 3;
    let world = world().await;
    let account = |page| {
        let addresses = (page * 10_000..(page + 1) * 10_000).map(|number: u32| {
            let mut bytes = [0xcc; 20];
            bytes[..4].copy_from_slice(&number.to_be_bytes());
            (CHAIN, Address::Evm(bytes))
        });
        let (id, addresses) = (format!("many-{page}"), addresses.collect());
        NewAccount { id, identity_id: None, kind: AccountType::Omnibus, addresses }
    };
    let accounts: Vec<_> = (0..PAGES).map(account).collect();
    registry::add_accounts(world.db(), &accounts, world.now()).await.unwrap();
    // The first tick hangs, so that what is counted is the loading; each look at the clock takes a second.
    world.chain.script([Fault::Late(HOUR)]);
    let (begun, looks) = (world.now(), Arc::new(AtomicU32::new(0)));
    let clock = {
        let looks = Arc::clone(&looks);
        Clock::new(move || begun.plus(Duration::from_secs(1) * looks.fetch_add(1, Ordering::Relaxed)))
    };
    let (stop, pulse) = (CancellationToken::new(), Pulse::new(CHAIN, begun));
    let running = world.another_watcher().run(clock, || 0, pulse.clone(), stop.clone());
    let operate = async {
        let loaded = format!("loads the watch list: {} addresses", PAGES * 10_000 + 1);
        until(&world, "it is loaded", |status| status.chains.first().is_some_and(|chain| chain.reason == loaded)).await;
        stop.cancel();
    };
    tokio::join!(running, operate);
    let beats = pulse.last().since(begun).as_secs();
    assert!(beats >= u64::from(PAGES), "one a page at least, and there were {beats}");
    world.close().await;
}
