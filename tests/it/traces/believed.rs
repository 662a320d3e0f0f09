//! Tracers that err: alone, both alike, and both as the same program. What the chain's own balances do not hold is
//! never CONFIRMED, and what they hold is, wherever they can report.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use landfall::deposit::{Deposit, DepositStatus};
use landfall::operator::DecideDepositError;
use landfall::store::deposits::{self, DepositFilter};
use landfall::watcher::Rescan;
use landfall_chain::{Address, AssetId, Lane, U256};
use landfall_node::{Chain, Frame, Mistake, Tx};
use landfall_sim::{Fault, SimLeg, SimPool, SimTx};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::harness::books::events;
use crate::harness::follower::{Followed, Mode};
use crate::harness::lanes::{full, given_seed, on_every_processor};
use crate::harness::postgres::{ENGINES, Engine, TestStore};
use crate::harness::world::{CHAIN, FINALITY_DEPTH, World, address, report};

const ALICE: u8 = 0xa1;
const BOB: u8 = 0xb0;
const PAYER: u8 = 0x01;

/// Who errs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Who {
    One,
    Both,
    BothAsOneProgram,
}

fn node_address(who: u8) -> landfall_node::Address {
    landfall_node::Address::repeat_byte(who)
}

/// A block that pays Alice 1,000 inside of its first transaction, tries to pay her 7 in the second, and pays Bob 5 at
/// the end.
fn block() -> Vec<Tx> {
    let (router, alice) = (node_address(0xcc), node_address(ALICE));
    let failed = Frame { is_reverted: true, ..Frame::call(router, alice, U256::from(7)) };
    let fails = Tx { frames: vec![failed], ..Tx::pay(1, 0, router, 7) };
    vec![Tx::forward(0, 0, router, alice, 1_000), fails, Tx::pay(2, 0, node_address(BOB), 5)]
}

/// The deposits once all is final and nothing more is decided.
async fn settled(mistake: Mistake, who: Who) -> Vec<Deposit> {
    let chain = Chain::new(11_155_111, 7);
    chain.set_finality_depth(Some(6));
    let watched = [ALICE, BOB].map(|who| Address::Evm([who; 20])).to_vec();
    let mut follower = Followed::new(chain.clone(), Mode::Traces, &[1, 2], watched).await;
    for (server, client) in follower.servers.iter().zip(["Geth/v1.16.7", "reth/v1.9.3"]) {
        server.call_itself(if who == Who::BothAsOneProgram { "Geth/v1.16.7" } else { client });
        server.err(Some(mistake).filter(|_| who != Who::One));
    }
    follower.servers[0].err(Some(mistake));
    chain.mine_empty(1);
    follower.rest().await.unwrap();
    chain.mine(block());
    for mined in 0..20 {
        follower.tick().await.ok();
        follower.trace().await.ok();
        follower.pass(Duration::from_secs(3));
        chain.mine_empty(u64::from(mined < 10));
    }
    deposits::list(&mut follower.db().read().await.unwrap(), &DepositFilter::default(), 100).await.unwrap()
}

#[tokio::test]
async fn no_mistake_of_one_tracer_or_of_both_is_confirmed_beyond_what_the_balances_hold() {
    for mistake in Mistake::ALL {
        for who in [Who::One, Who::Both, Who::BothAsOneProgram] {
            let deposits = settled(mistake, who).await;
            let status = |to: u8, amount: u64| {
                let is_it = |it: &&Deposit| it.recipient == Address::Evm([to; 20]) && it.amount == U256::from(amount);
                deposits.iter().filter(is_it).map(|it| it.status).collect::<Vec<_>>()
            };
            let reported = format!("{mistake:?} by {who:?}: {deposits:#?}");
            let sum = |to: u8| -> U256 {
                let to_it = deposits.iter().filter(|it| it.recipient == Address::Evm([to; 20]));
                to_it.filter(|it| it.status == DepositStatus::Confirmed).map(|it| it.amount).sum()
            };
            assert!(sum(ALICE) <= U256::from(1_000) && sum(BOB) == U256::from(5), "{reported}");
            // The real one, wherever anybody reports it and the balances leave one choice.
            let real = match (mistake, who) {
                (Mistake::OtherTransaction, Who::One) => &[DepositStatus::Pending, DepositStatus::Pending][..],
                (Mistake::ReportedTwice, _) => &[DepositStatus::Confirmed, DepositStatus::Failed],
                (
                    Mistake::LeftOut | Mistake::UnknownKind | Mistake::InsideFailed,
                    Who::Both | Who::BothAsOneProgram,
                ) => &[],
                (Mistake::WrongValue | Mistake::WrongRecipient, Who::Both | Who::BothAsOneProgram) => &[],
                (_, _) => &[DepositStatus::Confirmed],
            };
            let mut found = status(ALICE, 1_000);
            found.sort_by_key(|status| status.name() != "CONFIRMED");
            assert_eq!(found, real, "{reported}");
            // What never was.
            let false_ones = [(ALICE, 7), (ALICE, 1_001), (BOB, 1_000)].map(|(to, amount)| status(to, amount)).concat();
            let is_open = mistake == Mistake::WrongValue && who != Who::One;
            let expected = if is_open { DepositStatus::Pending } else { DepositStatus::Failed };
            assert!(false_ones.iter().all(|status| *status == expected), "{reported}");
        }
    }
}

fn inner(nonce: u64, to: u8, amount: u64) -> SimTx {
    SimTx::new(address(PAYER), nonce, vec![SimLeg::inner(address(PAYER), address(to), amount)])
}

async fn until_final(world: &mut World) {
    for _ in 0..=FINALITY_DEPTH {
        world.chain.mine_empty(1);
        world.catch_up().await;
    }
}

/// A world in which one payment of 5 is reported under two transactions, by two endpoints of one engine.
async fn doubtful(engine: Engine) -> World {
    let mut world = World::traced(engine, 1).await;
    world.watch("alice", address(ALICE)).await;
    world.chain.trace_twice(true);
    world.chain.run_one_engine(true);
    world.chain.mine_empty(1);
    world.catch_up().await;
    let reported = vec![SimLeg::inner(address(PAYER), address(ALICE), 5)];
    world.chain.mine(vec![inner(0, ALICE, 5), SimTx::new(address(PAYER), 1, Vec::new()).misreported_as(reported)]);
    until_final(&mut world).await;
    world
}

#[tokio::test]
async fn a_person_decides_what_is_doubtful_and_never_for_more_than_the_balances_hold() {
    for engine in ENGINES {
        let mut world = doubtful(engine).await;
        let ids: Vec<_> = world.deposits().await.into_iter().map(|deposit| (deposit.id, deposit.status)).collect();
        let [(one, DepositStatus::Pending), (other, DepositStatus::Pending)] = ids[..] else { panic!("{ids:?}") };
        let alarm = report(&world).await.traces_alarm;
        assert!(alarm.contains("more than one choice") && alarm.contains("landfall deposit decide"), "{alarm}");
        assert!(alarm.contains(&one.to_string()) || alarm.contains(&other.to_string()), "{alarm}");
        // Nodes forget the state; what the balances once allowed is remembered.
        world.chain.keep_state(Some(0));
        world.pass(Duration::from_secs(700));
        assert_eq!(world.trace().await.doubted, 2);
        let (operator, db) = (world.operator(), world.db().clone());
        let decided = operator.decide_deposit(&db, one, true).await.unwrap();
        assert_eq!(decided.id, one);
        let error = operator.decide_deposit(&db, other, true).await.unwrap_err();
        assert!(matches!(error, DecideDepositError::TooMuch { .. }), "{error}");
        operator.decide_deposit(&db, other, false).await.unwrap();
        until_final(&mut world).await;
        let status =
            |id| async move { deposits::by_id(&mut db.read().await.unwrap(), id).await.unwrap().unwrap().status };
        assert_eq!(status.clone()(one).await, DepositStatus::Confirmed);
        assert_eq!(status(other).await, DepositStatus::Failed);
        let error = operator.decide_deposit(world.db(), one, false).await.unwrap_err();
        assert!(error.to_string().contains("is CONFIRMED, which nobody changes"), "{error}");
        assert_eq!(report(&world).await.traces_alarm, "");
        world.abandon();
    }
}

#[tokio::test]
async fn what_balances_exclude_and_what_they_have_decided_is_no_persons_to_decide() {
    let mut world = World::traced(Engine::Sqlite, 1).await;
    world.watch("alice", address(ALICE)).await;
    world.chain.mine_empty(1);
    world.catch_up().await;
    let reported =
        vec![SimLeg::inner(address(PAYER), address(ALICE), 9), SimLeg::inner(address(PAYER), address(ALICE), 5)];
    world.chain.mine(vec![inner(0, ALICE, 5).misreported_as(reported)]);
    world.catch_up().await;
    let id_of = |amount: u64, all: &[Deposit]| all.iter().find(|it| it.amount == U256::from(amount)).unwrap().id;
    let all = world.deposits().await;
    let (operator, db) = (world.operator(), world.db().clone());
    let error = operator.decide_deposit(&db, id_of(9, &all), true).await.unwrap_err();
    assert!(matches!(error, DecideDepositError::Excluded(_)), "{error}");
    let error = operator.decide_deposit(&db, id_of(5, &all), false).await.unwrap_err();
    assert!(matches!(error, DecideDepositError::NotDoubtful(_)), "{error}");
    until_final(&mut world).await;
    assert_eq!((world.status_of(5).await, world.status_of(9).await), (DepositStatus::Confirmed, DepositStatus::Failed));
    // Whoever reads the block again when its balances cannot be had any more: it stays excluded, and nothing is
    // announced anew.
    world.chain.keep_state(None);
    world.chain.withhold_balances(true);
    let before = events(world.db()).await.len();
    let mut rescan = Rescan::<SimPool>::begin(world.another_watcher(), 2, 2, true).await.unwrap();
    for _ in 0..4 {
        rescan.step(world.now()).await.unwrap();
    }
    until_final(&mut world).await;
    assert_eq!((world.status_of(9).await, events(world.db()).await.len()), (DepositStatus::Failed, before));
    world.abandon();
}

#[tokio::test]
async fn what_a_person_confirms_holds_up_nothing_that_the_balances_confirm_beside_it() {
    let mut world = World::traced(Engine::Sqlite, 1).await;
    world.watch("alice", address(ALICE)).await;
    world.chain.mine_empty(1);
    world.catch_up().await;
    // 2 and 1 came; the 1 is reported three times, which three times 1 would explain as well.
    let leg = |amount| SimLeg::inner(address(PAYER), address(ALICE), amount);
    let paid = SimTx::new(address(PAYER), 0, vec![leg(2), leg(1)]);
    world.chain.mine(vec![paid.misreported_as(vec![leg(2), leg(1), leg(1), leg(1)])]);
    world.catch_up().await;
    let two = world.deposits().await.into_iter().find(|it| it.amount == U256::from(2)).unwrap();
    world.operator().decide_deposit(world.db(), two.id, true).await.unwrap();
    until_final(&mut world).await;
    let confirmed = world.deposits().await.into_iter().filter(|it| it.status == DepositStatus::Confirmed);
    let sum: U256 = confirmed.map(|it| it.amount).sum();
    assert_eq!((sum, world.incidents().await), (U256::from(3), vec![]));
    world.abandon();
}

#[tokio::test]
async fn a_deposit_that_its_transaction_came_back_without_is_given_up_by_a_person_where_balances_cannot_report() {
    let mut world = World::traced(Engine::Sqlite, 1).await;
    world.watch("alice", address(ALICE)).await;
    world.chain.put_code(address(ALICE));
    world.chain.mine_empty(1);
    world.catch_up().await;
    let tx = inner(0, ALICE, 5);
    world.chain.mine(vec![tx.clone()]);
    world.catch_up().await;
    world.chain.fork_at(1);
    world.chain.mine(vec![SimTx { legs: Vec::new(), ..tx }]);
    world.chain.mine_empty(1);
    until_final(&mut world).await;
    assert_eq!(world.status_of(5).await, DepositStatus::Pending);
    let [deposit] = &world.deposits().await[..] else { panic!("one") };
    let error = world.operator().decide_deposit(world.db(), deposit.id, true).await.unwrap_err();
    assert!(matches!(error, DecideDepositError::NotDoubtful(_)), "{error}");
    world.operator().decide_deposit(world.db(), deposit.id, false).await.unwrap();
    until_final(&mut world).await;
    assert_eq!(world.status_of(5).await, DepositStatus::Failed);
    world.close().await;
}

#[tokio::test]
async fn what_two_endpoints_of_one_engine_report_is_no_witness_where_balances_cannot_report() {
    for one_engine in [true, false] {
        let mut world = World::traced(Engine::Sqlite, 1).await;
        world.watch("alice", address(ALICE)).await;
        world.chain.trace_twice(true);
        world.chain.run_one_engine(one_engine);
        world.chain.withhold_balances(true);
        world.chain.mine(vec![inner(0, ALICE, 5)]);
        until_final(&mut world).await;
        let expected = if one_engine { DepositStatus::Pending } else { DepositStatus::Confirmed };
        assert_eq!(world.status_of(5).await, expected);
        world.abandon();
    }
}

#[tokio::test]
async fn a_leg_out_of_an_address_without_code_is_set_aside() {
    for engine in ENGINES {
        let mut world = World::traced(engine, 1).await;
        world.watch("alice", address(ALICE)).await;
        world.chain.mine_empty(1);
        world.catch_up().await;
        // Reported is that it came and went; it only came. And that something went, where nothing moved at all.
        let came = SimLeg::inner(address(PAYER), address(ALICE), 5);
        let went = SimLeg::inner(address(ALICE), address(BOB), 5);
        world.chain.mine(vec![inner(0, ALICE, 5).misreported_as(vec![came, went])]);
        world.chain.mine(vec![SimTx::new(address(PAYER), 1, Vec::new()).misreported_as(vec![went])]);
        until_final(&mut world).await;
        assert_eq!(world.status_of(5).await, DepositStatus::Confirmed);
        let mut reader = world.db().read().await.unwrap();
        let alice = address(ALICE);
        let spent = landfall::store::movements::spent(&mut reader, CHAIN, &alice, &AssetId::Native, &(0..=100)).await;
        assert_eq!(spent.unwrap().debits, U256::ZERO);
        drop(reader);
        world.close().await;
    }
}

/// What a tracer makes of what moved inside of a transaction.
fn misreport(rng: &mut StdRng, legs: &[SimLeg]) -> Vec<SimLeg> {
    let mut reported = legs.to_vec();
    let Some(first) = legs.first().copied() else { return reported };
    match rng.random_range(0..5) {
        0 => reported.extend(vec![first; rng.random_range(1..4)]),
        1 => drop(reported.remove(0)),
        2 => reported[0].amount += U256::from(1),
        3 => reported[0].recipient = address(if first.recipient == address(ALICE) { BOB } else { ALICE }),
        _ => reported.push(SimLeg::inner(first.recipient, address(0x99), 2)),
    }
    reported
}

/// Random blocks with forks between them, whose tracers err at random, alone and alike; the ledger says what is true.
async fn history(store: TestStore, seed: u64, tally: &mut BTreeMap<&'static str, u64>) {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut world = World::traced_on(store, seed);
    for (name, who) in [("alice", ALICE), ("bob", BOB)] {
        world.watch(name, address(who)).await;
    }
    world.chain.trace_twice(rng.random_bool(0.5));
    world.chain.run_one_engine(rng.random_bool(0.5));
    world.chain.mine_empty(1);
    let mut nonce = 0;
    for _ in 0..12 {
        let mut txs = Vec::new();
        for _ in 0..rng.random_range(0..4) {
            let to = if rng.random_bool(0.5) { ALICE } else { BOB };
            let legs =
                (0..rng.random_range(0..3)).map(|_| SimLeg::inner(address(PAYER), address(to), rng.random_range(1..5)));
            let tx = SimTx::new(address(PAYER), nonce, legs.collect());
            let errs = rng.random_bool(0.3);
            let reported = misreport(&mut rng, &tx.legs);
            txs.push(if errs { tx.misreported_as(reported) } else { tx });
            nonce += 1;
        }
        if rng.random_bool(0.2) {
            world.chain.script_traces([Fault::Invent(address(ALICE), rng.random_range(1..5))]);
        }
        world.chain.mine(txs);
        if rng.random_bool(0.2) {
            let to = world.chain.latest().number - 1;
            let again = world.chain.fork_at(to);
            world.chain.mine(again);
        }
        world.try_tick().await.ok();
        world.try_trace().await.ok();
    }
    world.chain.behave();
    for _ in 0..=FINALITY_DEPTH {
        world.chain.mine_empty(1);
        for _ in 0..3 {
            world.try_tick().await.ok();
            world.try_trace().await.ok();
        }
        world.pass(Duration::from_secs(700));
    }
    let deposits = world.deposits().await;
    for block in world.chain.blocks() {
        for who in [ALICE, BOB].map(address) {
            let to_it = |leg: &&SimLeg| leg.recipient == who && leg.lane == Lane::Traces;
            let legs: Vec<&SimLeg> = block.txs.iter().flat_map(|tx| &tx.legs).filter(to_it).collect();
            let paid: U256 = legs.iter().map(|leg| leg.amount).sum();
            let is_in = |it: &&Deposit| it.recipient == who && block.txs.iter().any(|tx| tx.tx.id == it.tx.id);
            let credited: Vec<&Deposit> =
                deposits.iter().filter(is_in).filter(|it| it.status == DepositStatus::Confirmed).collect();
            let sum: U256 = credited.iter().map(|it| it.amount).sum();
            assert!(sum <= paid, "seed {seed}: {sum} of {paid} for {who} in block {}", block.header.block.number);
            *tally.entry("confirmed").or_default() += u64::try_from(credited.len()).unwrap();
            // Where every tracer reports the truth about an address, all that it was paid is CONFIRMED, or several
            // choices fit.
            let is_reported = block.txs.iter().all(|tx| tx.misreported.is_none());
            let others = deposits.iter().filter(is_in).count();
            if is_reported && others == legs.len() {
                assert_eq!(sum, paid, "seed {seed}: {who} in block {}", block.header.block.number);
                *tally.entry("whole").or_default() += 1;
            }
        }
        *tally.entry("misreported").or_default() +=
            u64::try_from(block.txs.iter().filter(|tx| tx.misreported.is_some()).count()).unwrap();
    }
    *tally.entry("failed").or_default() +=
        u64::try_from(deposits.iter().filter(|it| it.status == DepositStatus::Failed).count()).unwrap();
    world.abandon();
}

/// How many run side by side, each with a store of its own.
const LANES: usize = 4;
const LANES_OF_PROCESSOR: usize = 2;
/// Histories between two words about how far it is.
const REPORT_EVERY: u64 = 1_000;

#[test]
fn whatever_tracers_report_at_random_no_more_is_confirmed_than_the_ledger_paid() {
    let (count, mode) = if full() { (20_000, "full") } else { (60, "bounded") };
    let (begun, base) = (Instant::now(), given_seed());
    let done = AtomicU64::new(0);
    let tallies = on_every_processor((0..LANES).collect(), LANES_OF_PROCESSOR, async |lane| {
        let mut tally = BTreeMap::new();
        let shelf = TestStore::fresh(Engine::Sqlite).await;
        for seed in (base..base + count).skip(lane).step_by(LANES) {
            history(shelf.again().await, seed, &mut tally).await;
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            if done.is_multiple_of(REPORT_EVERY) {
                println!("{done} of {count} histories in {} s", begun.elapsed().as_secs());
            }
        }
        tally
    });
    let mut tally = BTreeMap::new();
    for (what, times) in tallies.into_iter().flatten() {
        *tally.entry(what).or_insert(0) += times;
    }
    println!("{mode}: {count} histories of tracers from seed {base}: {tally:?}");
    assert!(["confirmed", "whole", "misreported", "failed"].iter().all(|what| tally[what] > 20), "{tally:?}");
}
