//! `landfall backfill`: what came before an address was watched is found once, with the ids it always has, whatever
//! fails on the way and whoever works beside it.

use std::collections::BTreeSet;

use landfall::deposit::DepositStatus::{Confirmed, Pending};
use landfall::store::coverage;
use landfall::store::cursors::Cursor;
use landfall::watcher::{Backfill, BackfillError, Job, Progress, Scope, TickError};
use landfall_chain::{ReadProof, U256};
use landfall_sim::{Fault, SimLeg, SimPool, SimTx};

use crate::harness::books::events;
use crate::harness::lanes::{cuts, cuts_of};
use crate::harness::postgres::{ENGINES, Engine, TestStore};
use crate::harness::world::{CHAIN, FINALITY_DEPTH, TOKEN, World, address};

const ALICE: u8 = 0xa1;
const BOB: u8 = 0xb0;
const PAYER: u8 = 0x01;
const PROOFS: [ReadProof; 2] = [ReadProof::Full, ReadProof::Candidate];

fn payment(nonce: u64, to: u8, amount: u64) -> SimTx {
    SimTx::new(address(PAYER), nonce, vec![SimLeg::native(address(PAYER), address(to), amount)])
}

/// Alice is watched from the start; 60 blocks have passed, Bob was paid in 5, 20 (twice) and 40, and is added now.
async fn late_bob(engine: Engine) -> World {
    let mut world = World::on(engine, 1).await;
    world.watch("alice", address(ALICE)).await;
    for number in 1..=60 {
        let token = SimLeg { asset: TOKEN, ..SimLeg::native(address(PAYER), address(BOB), 20) };
        world.chain.mine(match number {
            5 => vec![payment(5, BOB, 5)],
            10 => vec![payment(10, ALICE, 10)],
            20 => vec![SimTx::new(address(PAYER), 20, vec![token, token])],
            40 => vec![payment(40, BOB, 40)],
            _ => vec![],
        });
    }
    world.catch_up().await;
    assert_eq!(world.deposits().await.len(), 1);
    world.watch("bob", address(BOB)).await;
    world
}

fn job(from: u64, to: u64, proof: ReadProof) -> Job {
    Job { from, to: Some(to), proof, scope: Scope::All, dry_run: false }
}

async fn begin(world: &World, job: &Job) -> Result<Backfill<SimPool>, BackfillError> {
    Backfill::begin(world.another_watcher(), job.clone()).await
}

/// To its end; errors may pass.
async fn run(world: &World, job: &Job) -> Progress {
    let mut backfill = begin(world, job).await.unwrap();
    for _ in 0..1_000 {
        if backfill.is_done() {
            return backfill.progress();
        }
        let stepped = backfill.step(world.now()).await;
        stepped.inspect_err(|error| assert!(error.may_pass(), "{error}")).ok();
    }
    panic!("the backfill does not end");
}

#[tokio::test]
async fn what_came_before_an_address_was_added_is_credited_once() {
    for (engine, proof) in ENGINES.into_iter().flat_map(|engine| PROOFS.map(|proof| (engine, proof))) {
        let mut world = late_bob(engine).await;
        let progress = run(&world, &job(1, 50, proof)).await;
        assert_eq!((progress.found, progress.confirmed), (4, 4), "{engine:?} {proof:?}");
        let deposits = world.deposits().await;
        assert_eq!(deposits.len(), 5);
        assert!(deposits.iter().all(|deposit| deposit.status == Confirmed));
        let statuses: Vec<String> = events(world.db()).await.into_iter().map(|event| event.status).collect();
        assert_eq!(statuses, ["PENDING", "CONFIRMED"].repeat(5));
        // Again, and by the watcher beside: nothing more.
        assert_eq!(run(&world, &job(1, 50, proof)).await.found, 0);
        world.chain.mine_empty(3);
        world.catch_up().await;
        assert_eq!(events(world.db()).await.len(), 10);
        world.close().await;
    }
}

/// Ten blocks of 20,001 legs are enough.
#[tokio::test]
async fn a_step_ends_when_it_holds_enough() {
    let mut world = World::on(Engine::Sqlite, 1).await;
    let stranger = SimLeg::native(address(PAYER), address(0xdd), 1);
    for number in 1..=12 {
        let crowd = SimTx::new(address(PAYER), 100 + number, vec![stranger; 20_001]);
        world.chain.mine(vec![payment(number, BOB, number), crowd]);
    }
    world.chain.mine_empty(FINALITY_DEPTH);
    world.catch_up().await;
    world.watch("bob", address(BOB)).await;
    let mut backfill = begin(&world, &job(1, 12, ReadProof::Candidate)).await.unwrap();
    let mut steps = Vec::new();
    while !backfill.is_done() {
        backfill.step(world.now()).await.unwrap();
        steps.push((backfill.progress().next, backfill.progress().found));
    }
    assert_eq!(steps, [(11, 10), (13, 12)]);
    world.close().await;
}

#[tokio::test]
async fn the_ids_are_those_of_a_watcher_that_knew_the_address_all_along() {
    let world = late_bob(Engine::Sqlite).await;
    run(&world, &job(1, 50, ReadProof::Full)).await;
    let mut straight = World::of(world.chain.clone(), TestStore::fresh(Engine::Sqlite).await);
    straight.watch("alice", address(ALICE)).await;
    straight.watch("bob", address(BOB)).await;
    straight.catch_up().await;
    let ids = |events: Vec<crate::harness::books::EventRow>| {
        events.into_iter().map(|event| event.id).collect::<BTreeSet<_>>()
    };
    assert_eq!(ids(events(world.db()).await), ids(events(straight.db()).await));
    world.close().await;
    straight.close().await;
}

#[tokio::test]
async fn a_scope_is_for_its_addresses_only() {
    let world = late_bob(Engine::Sqlite).await;
    world.watch("carol", address(0xc0)).await;
    let of = |scope: Scope| Job { scope, ..job(1, 50, ReadProof::Full) };
    assert_eq!(run(&world, &of(Scope::Account("carol".to_owned()))).await.found, 0);
    assert_eq!(run(&world, &of(Scope::Addresses([address(BOB)].into()))).await.found, 4);
    let unknown = begin(&world, &of(Scope::Account("dave".to_owned()))).await.unwrap_err();
    assert_eq!(unknown.to_string(), "account dave has no address on ETHEREUM_TESTNET");
    let stranger = begin(&world, &of(Scope::Addresses([address(0xdd)].into()))).await.unwrap_err();
    assert!(
        stranger.to_string().ends_with("is not watched on ETHEREUM_TESTNET; add it with `landfall account add` first")
    );
    world.close().await;
}

#[tokio::test]
async fn without_an_end_it_goes_on_to_where_its_addresses_are_watched_and_waits_for_that_to_be_final() {
    for (engine, proof) in ENGINES.into_iter().flat_map(|engine| PROOFS.map(|proof| (engine, proof))) {
        let mut world = World::on(engine, 1).await;
        world.watch("alice", address(ALICE)).await;
        for number in 1..=60 {
            world.chain.mine(if number % 20 == 15 { vec![payment(number, BOB, number)] } else { vec![] });
        }
        world.catch_up().await;
        world.watch("bob", address(BOB)).await;
        let all = Job { to: None, ..job(1, 0, proof) };
        let refused = begin(&world, &all).await.unwrap_err();
        assert!(matches!(refused, BackfillError::NoEnd { .. }), "{refused}");
        let job = Job { scope: Scope::Addresses([address(ALICE), address(BOB)].into()), ..all };
        let dry = Job { dry_run: true, ..job.clone() };
        for (job, final_before) in [(dry, 50), (job.clone(), 55)] {
            let mut backfill = begin(&world, &job).await.unwrap();
            for _ in 0..10 {
                backfill.step(world.now()).await.unwrap();
            }
            let Progress { next, until, found, .. } = backfill.progress();
            let found_before = 2 + u64::from(final_before == 55);
            assert_eq!((next, until, found), (final_before + 1, 60, found_before), "{engine:?} {proof:?}");
            assert_eq!((backfill.is_done(), backfill.waits_for()), (false, Some(60)));
            // Nobody follows the chain meanwhile.
            world.chain.mine_empty(5);
        }
        // It goes on where it stopped, and nothing above is its own.
        world.chain.mine(vec![payment(71, BOB, 71)]);
        let begun = begin(&world, &job).await.unwrap();
        assert_eq!((begun.progress().next, begun.waits_for()), (56, None));
        let progress = run(&world, &job).await;
        assert_eq!((progress.next, progress.found, world.deposits().await.len()), (61, 3, 3));
        let covered = coverage::of_account(&mut world.db().read().await.unwrap(), "bob").await.unwrap().remove(0);
        assert_eq!((covered.watched_from, covered.backfilled[0].from, covered.backfilled[0].to), (61, 1, 60));
        world.catch_up().await;
        assert_eq!(world.deposits().await.len(), 4);
        world.close().await;
    }
}

#[tokio::test]
async fn without_an_end_what_is_watched_from_the_first_block_on_is_done_at_once() {
    let mut world = World::new(1).await;
    world.watch("alice", address(ALICE)).await;
    world.chain.mine(vec![payment(1, ALICE, 1)]);
    world.chain.mine_empty(20);
    let job = Job { to: None, scope: Scope::Account("alice".to_owned()), ..job(1, 0, ReadProof::Full) };
    let refused = begin(&world, &job).await.unwrap_err();
    assert!(matches!(refused, BackfillError::NoEnd { .. }), "{refused}");
    world.catch_up().await;
    let backfill = begin(&world, &job).await.unwrap();
    assert!(backfill.is_done(), "{:?}", backfill.progress());
    world.close().await;
}

#[tokio::test]
async fn a_range_that_is_not_final_is_refused_and_one_that_was_not_read_is_left_to_the_watcher() {
    let world = late_bob(Engine::Sqlite).await;
    let error = begin(&world, &job(1, 51, ReadProof::Full)).await.unwrap_err();
    assert_eq!(error.to_string(), "ETHEREUM_TESTNET: block 51 is not final yet; the newest final block is 50");
    let error = begin(&world, &job(9, 8, ReadProof::Full)).await.unwrap_err();
    assert_eq!(error.to_string(), "ETHEREUM_TESTNET: from block 9 to block 8 is no range");
    // The watcher stands still at 60 while the chain goes on.
    world.chain.mine(vec![payment(61, BOB, 61)]);
    world.chain.mine_empty(20);
    assert_eq!(run(&world, &job(0, 0, ReadProof::Full)).await.next, 1, "block 0 holds nothing");
    let progress = run(&world, &job(55, 70, ReadProof::Full)).await;
    assert_eq!((progress.until, progress.next, progress.found), (60, 61, 0));
    let error = begin(&world, &job(61, 70, ReadProof::Full)).await.unwrap_err();
    assert!(matches!(error, BackfillError::NotRead { cursor: 60, .. }), "{error}");
    world.close().await;
}

#[tokio::test]
async fn it_goes_on_where_it_stopped_and_begins_again_for_a_longer_watch_list() {
    for proof in PROOFS {
        let world = late_bob(Engine::Sqlite).await;
        world.chain.mine_empty(300);
        let mut world = world;
        world.catch_up().await;
        let mut backfill = begin(&world, &job(1, 350, proof)).await.unwrap();
        backfill.step(world.now()).await.unwrap();
        let stopped_at = backfill.progress().next;
        drop(backfill);
        if proof == ReadProof::Full {
            assert_eq!(stopped_at, 101);
            world.network.assets[1].from_block = 30;
            let since = begin(&world, &job(1, 350, proof)).await.unwrap();
            assert_eq!(since.progress().next, 1, "an asset counts from another block on");
            world.network.assets[1].from_block = 0;
            let again = begin(&world, &job(1, 350, proof)).await.unwrap();
            assert_eq!((again.progress().next, again.progress().found), (101, 4));
            assert_eq!(begin(&world, &job(1, 349, proof)).await.unwrap().progress().next, 1, "another range");
            world.watch("carol", address(0xc0)).await;
            assert_eq!(begin(&world, &job(1, 350, proof)).await.unwrap().progress().next, 1);
        }
        assert_eq!(run(&world, &job(1, 350, proof)).await.next, 351);
        world.close().await;
    }
}

#[tokio::test]
async fn an_address_that_is_added_while_a_backfill_begins_is_looked_for_or_not_claimed_to_be() {
    let mut world = World::new(1).await;
    world.watch("alice", address(ALICE)).await;
    let late = |number: u8| address(0x10 + number);
    let pays =
        |number: u8| SimTx::new(address(PAYER), number.into(), vec![SimLeg::native(address(PAYER), late(number), 5)]);
    for number in 0..64 {
        world.chain.mine(vec![pays(number)]);
    }
    world.chain.mine_empty(2 * FINALITY_DEPTH);
    world.catch_up().await;
    let (mut cut_in, mut unclaimed) = (0, 0);
    for number in 0..64_u8 {
        // After so many awaits that were waited for, of which there are more or fewer each time, the address is added.
        let awaits = number % 8;
        let job = job(1, 64, ReadProof::Candidate);
        let mut begun = Box::pin(begin(&world, &job));
        let mut left = awaits;
        let early = std::future::poll_fn(|cx| match begun.as_mut().poll(cx) {
            std::task::Poll::Ready(begun) => std::task::Poll::Ready(Some(begun)),
            std::task::Poll::Pending if left == 0 => std::task::Poll::Ready(None),
            std::task::Poll::Pending => {
                left -= 1;
                std::task::Poll::Pending
            }
        });
        let early = early.await;
        let account = format!("late-{number}");
        world.watch(&account, late(number)).await;
        cut_in += u32::from(early.is_none());
        let mut backfill = match early {
            Some(begun) => begun.unwrap(),
            None => begun.await.unwrap(),
        };
        while !backfill.is_done() {
            backfill.step(world.now()).await.unwrap();
        }
        let covered = coverage::of_account(&mut world.db().read().await.unwrap(), &account).await.unwrap();
        let is_claimed = !covered[0].backfilled.is_empty();
        let is_found = world.deposits().await.iter().any(|deposit| deposit.recipient == late(number));
        assert!(is_found || !is_claimed, "after {awaits} awaits");
        unclaimed += u32::from(!is_claimed);
    }
    assert!(cut_in > 0 && unclaimed > 0, "{cut_in} {unclaimed}");
    world.close().await;
}

#[tokio::test]
async fn a_dry_run_counts_and_records_nothing() {
    for proof in PROOFS {
        let world = late_bob(Engine::Sqlite).await;
        let dry = Job { dry_run: true, ..job(1, 50, proof) };
        assert_eq!(run(&world, &dry).await.found, 4);
        assert_eq!(world.deposits().await.len(), 1);
        assert_eq!(run(&world, &dry).await.found, 4, "not even how far it came");
        assert_eq!(run(&world, &job(1, 50, proof)).await.found, 4);
        assert_eq!(run(&world, &dry).await.found, 0);
        world.close().await;
    }
}

#[tokio::test]
async fn no_fault_of_the_source_makes_it_miss_or_credit_twice() {
    for proof in PROOFS {
        for (fault, at) in
            [Fault::Fail, Fault::Empty, Fault::Lag(30)].into_iter().flat_map(|fault| (0..12).map(move |at| (fault, at)))
        {
            let world = late_bob(Engine::Sqlite).await;
            let mut backfill = begin(&world, &job(1, 50, proof)).await.unwrap();
            world.chain.script(std::iter::repeat_n(Fault::Late(std::time::Duration::ZERO), at).chain([fault, fault]));
            for _ in 0..20 {
                let stepped = backfill.step(world.now()).await;
                stepped.inspect_err(|error| assert!(error.may_pass(), "{error}")).ok();
            }
            assert!(backfill.is_done(), "{proof:?} {fault:?} {at}");
            world.chain.behave();
            assert_eq!(world.deposits().await.len(), 5, "{proof:?} {fault:?} {at}");
            world.close().await;
        }
    }
}

#[tokio::test]
async fn what_was_searched_is_not_searched_again_because_nobody_could_be_asked_whether_it_is_final() {
    let world = late_bob(Engine::Sqlite).await;
    let job = Job { dry_run: true, ..job(1, 50, ReadProof::Candidate) };
    let calls_of = async |backfill: &mut Backfill<SimPool>| {
        let before = world.chain.calls();
        let stepped = backfill.step(world.now()).await;
        (stepped, world.chain.calls() - before)
    };
    let mut whole = begin(&world, &job).await.unwrap();
    let (stepped, calls) = calls_of(&mut whole).await;
    stepped.unwrap();
    let mut backfill = begin(&world, &job).await.unwrap();
    // The search is answered, and whether its end is final is not, three times.
    world.chain.script([Fault::Late(std::time::Duration::ZERO), Fault::Fail, Fault::Fail, Fault::Fail]);
    for expected in [2, 1, 1] {
        let (stepped, calls) = calls_of(&mut backfill).await;
        assert!(stepped.unwrap_err().may_pass());
        assert_eq!(calls, expected);
    }
    let (stepped, rest) = calls_of(&mut backfill).await;
    stepped.unwrap();
    assert_eq!((rest, backfill.progress()), (calls - 1, whole.progress()));
    world.close().await;
}

#[tokio::test]
async fn it_survives_a_crash_at_every_await() {
    for engine in ENGINES {
        let world = late_bob(engine).await;
        let mut cut_off = 0;
        for wakeups in cuts(200) {
            let mut backfill = begin(&world, &job(1, 50, ReadProof::Full)).await.unwrap();
            let mut left = wakeups;
            let mut step = Box::pin(backfill.step(world.now()));
            let is_over = std::future::poll_fn(|cx| match step.as_mut().poll(cx) {
                std::task::Poll::Ready(stepped) => {
                    stepped.inspect_err(|error| assert!(error.may_pass(), "{error}")).ok();
                    std::task::Poll::Ready(true)
                }
                std::task::Poll::Pending if left == 0 => std::task::Poll::Ready(false),
                std::task::Poll::Pending => {
                    left -= 1;
                    std::task::Poll::Pending
                }
            })
            .await;
            drop(step);
            // A commit that was cut off may be under way still: the books are read behind it.
            let mut behind = world.db().begin().await.unwrap();
            Cursor::lock(&mut behind, CHAIN).await.unwrap();
            drop(behind);
            crate::harness::books::assert_balanced(&world).await;
            if is_over {
                break;
            }
            cut_off += 1;
        }
        assert!(cut_off > cuts_of(5), "{cut_off}");
        run(&world, &job(1, 50, ReadProof::Full)).await;
        assert!(world.deposits().await.iter().all(|deposit| deposit.status == Confirmed));
        assert_eq!(world.deposits().await.len(), 5, "{engine:?}");
        world.close().await;
    }
}

#[tokio::test]
async fn beside_a_running_watcher_each_deposit_is_credited_once() {
    for engine in ENGINES {
        let mut world = late_bob(engine).await;
        let mut backfill = begin(&world, &job(1, 50, ReadProof::Full)).await.unwrap();
        for number in 61..=75 {
            world.chain.mine(vec![payment(number, BOB, number)]);
            let now = world.now();
            let (ticked, stepped) = tokio::join!(world.try_tick(), backfill.step(now));
            ticked.inspect_err(|error| assert!(error.may_pass(), "{error}")).ok();
            stepped.inspect_err(|error| assert!(error.may_pass(), "{error}")).ok();
        }
        while !backfill.is_done() {
            backfill.step(world.now()).await.unwrap();
        }
        world.chain.mine_empty(FINALITY_DEPTH);
        world.catch_up().await;
        assert_eq!(world.deposits().await.len(), 20, "{engine:?}");
        assert!(world.deposits().await.iter().all(|deposit| deposit.status == Confirmed));
        world.close().await;
    }
}

#[tokio::test]
async fn a_pending_deposit_of_the_watcher_in_a_final_block_is_confirmed_on_the_same_evidence() {
    let mut world = World::new(1).await;
    world.chain.set_finality_depth(None);
    world.watch("alice", address(ALICE)).await;
    let paid_in = world.chain.mine(vec![payment(0, ALICE, 5)]);
    world.chain.mine_empty(20);
    world.tick().await;
    assert_eq!(world.status_of(5).await, Pending);
    world.chain.claim_final(world.chain.latest());
    assert_eq!(run(&world, &job(paid_in.number, paid_in.number, ReadProof::Full)).await.confirmed, 1);
    assert_eq!(world.status_of(5).await, Confirmed);
    world.close().await;
}

#[tokio::test]
async fn a_final_block_that_our_record_contradicts_records_nothing() {
    for proof in PROOFS {
        let world = late_bob(Engine::Sqlite).await;
        // Another chain, of which other blocks are final.
        world.chain.fork_at(3);
        for number in 4..=70 {
            world.chain.mine(vec![payment(number, BOB, number)]);
        }
        world.chain.claim_final(world.chain.blocks()[50].header.block);
        let mut backfill = begin(&world, &job(1, 50, proof)).await.unwrap();
        let error = backfill.step(world.now()).await.unwrap_err();
        assert!(matches!(error, TickError::OtherOnRecord { .. }) && !error.may_pass(), "{error}");
        assert_eq!(world.deposits().await.len(), 1);
        world.abandon();
    }
}

#[tokio::test]
async fn a_chain_that_was_never_watched_can_be_backfilled_and_then_followed() {
    let mut world = World::new(1).await;
    world.watch("bob", address(BOB)).await;
    world.chain.mine_empty(4);
    world.chain.mine(vec![payment(5, BOB, 5)]);
    world.chain.skip(3);
    world.chain.mine(vec![payment(9, BOB, 9)]);
    world.chain.mine_empty(20);
    let to = world.chain.finalized().unwrap().number;
    assert_eq!(run(&world, &job(0, to, ReadProof::Full)).await.found, 2);
    let amounts: Vec<U256> = world.deposits().await.iter().map(|deposit| deposit.amount).collect();
    assert_eq!(amounts.len(), 2);
    world.catch_up().await;
    assert_eq!(events(world.db()).await.len(), 4);
    world.close().await;
}

#[tokio::test]
async fn blocks_that_are_not_below_a_final_one_are_not_believed() {
    for proof in PROOFS {
        let world = World::new(1).await;
        world.watch("bob", address(BOB)).await;
        world.chain.mine_empty(30);
        let truth = world.chain.blocks();
        world.chain.fork_at(3);
        world.chain.mine(vec![payment(4, BOB, 4)]);
        world.chain.mine_empty(26);
        let lie = world.chain.blocks();
        world.chain.restore(truth.clone());
        world.chain.claim_final(world.chain.blocks()[20].header.block);
        let mut backfill = begin(&world, &job(1, 15, proof)).await.unwrap();
        // The blocks come from a node on another branch; what is final, from one that knows.
        let mut calls = 0;
        world.chain.before_each_call(move |chain| {
            calls += 1;
            chain.restore(if calls == 1 { lie.clone() } else { truth.clone() });
        });
        let error = backfill.step(world.now()).await.unwrap_err();
        assert!(matches!(error, TickError::Contradiction { .. }), "{proof:?}: {error}");
        assert_eq!(world.deposits().await, []);
        world.chain.behave();
        while !backfill.is_done() {
            backfill.step(world.now()).await.unwrap();
        }
        assert_eq!(world.deposits().await, []);
        world.close().await;
    }
}
