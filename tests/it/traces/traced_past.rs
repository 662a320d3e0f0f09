//! `landfall backfill` and `rescan` on a network that is traced: what moved inside of past transactions is found,
//! witnessed and reported like everything else, behind the roots and never in their way.

use std::collections::BTreeSet;

use landfall::deposit::DepositStatus::{Confirmed, Pending};
use landfall::store::cursors::Cursor;
use landfall::watcher::{Backfill, Difference, Job, Progress, Rescan, Scope};
use landfall_chain::{Native, NativeSource, Proof, ReadProof};
use landfall_sim::{Fault, SimLeg, SimPool, SimTx};

use crate::harness::books::events;
use crate::harness::lanes::{cuts, cuts_of};
use crate::harness::postgres::{ENGINES, Engine, TestStore};
use crate::harness::world::{CHAIN, FINALITY_DEPTH, TOKEN, World, address};
use crate::past::rescan::execute;

const ALICE: u8 = 0xa1;
const BOB: u8 = 0xb0;
const PAYER: u8 = 0x01;
const PROOFS: [ReadProof; 2] = [ReadProof::Full, ReadProof::Candidate];

fn inner(nonce: u64, to: u8, amount: u64) -> SimTx {
    SimTx::new(address(PAYER), nonce, vec![SimLeg::inner(address(PAYER), address(to), amount)])
}

/// Alice is watched from the start; 60 blocks have passed. Bob was paid inside in 5 and 40, three times the same in 20,
/// of which once by the transaction itself, and a token in 30; in 45 he paid inside. He is added now.
async fn late_bob(engine: Engine) -> World {
    let mut world = World::traced(engine, 1).await;
    world.watch("alice", address(ALICE)).await;
    for number in 1..=60 {
        let equal = [SimLeg::inner, SimLeg::native, SimLeg::inner];
        let token = SimLeg { asset: TOKEN, ..SimLeg::native(address(PAYER), address(BOB), 30) };
        world.chain.mine(match number {
            5 => vec![inner(5, BOB, 5)],
            10 => vec![inner(10, ALICE, 10)],
            20 => vec![SimTx::new(address(PAYER), 20, equal.map(|leg| leg(address(PAYER), address(BOB), 20)).to_vec())],
            30 => vec![SimTx::new(address(PAYER), 30, vec![token])],
            40 => vec![inner(40, BOB, 40)],
            45 => vec![SimTx::new(address(PAYER), 45, vec![SimLeg::inner(address(BOB), address(PAYER), 3)])],
            _ => vec![],
        });
    }
    world.catch_up().await;
    assert_eq!(world.deposits().await.len(), 1);
    world.watch("bob", address(BOB)).await;
    world
}

fn job(proof: ReadProof) -> Job {
    Job { from: 1, to: Some(50), proof, scope: Scope::All, dry_run: false }
}

async fn begin(world: &World, job: &Job) -> Backfill<SimPool> {
    Backfill::begin(world.another_watcher(), job.clone()).await.unwrap()
}

/// To its end; errors may pass.
async fn run(world: &World, job: &Job) -> Progress {
    let mut backfill = begin(world, job).await;
    for _ in 0..1_000 {
        if backfill.is_done() {
            return backfill.progress();
        }
        let stepped = backfill.step(world.now()).await;
        stepped.inspect_err(|error| assert!(error.may_pass(), "{error}")).ok();
    }
    panic!("the backfill does not end");
}

async fn cursor(world: &World) -> Cursor {
    Cursor::load(&mut world.db().read().await.unwrap(), CHAIN).await.unwrap()
}

fn ids(events: Vec<crate::harness::books::EventRow>) -> BTreeSet<String> {
    events.into_iter().map(|event| event.id).collect()
}

#[tokio::test]
async fn what_moved_inside_before_an_address_was_added_is_credited_once_with_the_ids_it_always_has() {
    let late = late_bob(Engine::Sqlite).await;
    let mut straight = late.again(TestStore::fresh(Engine::Sqlite).await);
    late.close().await;
    straight.watch("alice", address(ALICE)).await;
    straight.watch("bob", address(BOB)).await;
    straight.catch_up().await;
    let expected = ids(events(straight.db()).await);
    assert_eq!(expected.len(), 14);
    straight.close().await;
    for (engine, proof) in ENGINES.into_iter().flat_map(|engine| PROOFS.map(|proof| (engine, proof))) {
        let mut world = late_bob(engine).await;
        let before = cursor(&world).await;
        let progress = run(&world, &job(proof)).await;
        assert_eq!((progress.found, progress.confirmed, progress.doubted), (6, 6, 0), "{engine:?} {proof:?}");
        assert_eq!(cursor(&world).await, before, "it never moves");
        let deposits = world.deposits().await;
        assert!(deposits.iter().all(|deposit| deposit.status == Confirmed), "{deposits:#?}");
        let mut equal: Vec<u32> =
            deposits.iter().filter(|it| it.amount == landfall_chain::U256::from(20)).map(|it| it.nth).collect();
        equal.sort_unstable();
        assert_eq!(equal, [0, 1, 2], "those inside count on behind the transaction's own");
        assert_eq!(ids(events(world.db()).await), expected, "{engine:?} {proof:?}");
        // Again, and by the watcher and its lane beside: nothing more.
        assert_eq!(run(&world, &job(proof)).await.found, 0);
        world.chain.mine_empty(3);
        world.catch_up().await;
        assert_eq!(events(world.db()).await.len(), 14);
        world.close().await;
    }
}

#[tokio::test]
async fn a_dry_run_counts_what_moved_inside_and_a_scope_is_for_its_addresses_only() {
    let world = late_bob(Engine::Sqlite).await;
    world.watch("carol", address(0xc0)).await;
    assert_eq!(run(&world, &Job { dry_run: true, ..job(ReadProof::Candidate) }).await.found, 6);
    let carol = Job { scope: Scope::Account("carol".to_owned()), ..job(ReadProof::Full) };
    assert_eq!(run(&world, &carol).await.found, 0);
    assert_eq!(world.deposits().await.len(), 1);
    let bob = Job { scope: Scope::Addresses([address(BOB)].into()), ..job(ReadProof::Full) };
    assert_eq!(run(&world, &bob).await.found, 6);
    world.close().await;
}

#[tokio::test]
async fn the_roots_come_first_and_each_lane_goes_on_where_it_stopped() {
    for proof in PROOFS {
        let world = late_bob(Engine::Sqlite).await;
        let mut backfill = begin(&world, &job(proof)).await;
        while backfill.progress().next <= 50 {
            backfill.step(world.now()).await.unwrap();
            assert_eq!(backfill.progress().untraced().unwrap().next, 1, "no trace before the last root");
        }
        assert_eq!(world.deposits().await.len(), 3, "the token and the transaction's own value, {proof:?}");
        backfill.step(world.now()).await.unwrap();
        let stopped = backfill.progress();
        assert_eq!((stopped.untraced().unwrap().next, stopped.is_done()), (33, false));
        drop(backfill);

        let calls = world.chain.calls();
        let mut again = begin(&world, &job(proof)).await;
        assert_eq!(again.progress(), Progress { confirmed: 0, ..stopped });
        while !again.is_done() {
            again.step(world.now()).await.unwrap();
        }
        assert!(world.chain.calls() - calls < 20, "what was read is not read again: {}", world.chain.calls() - calls);
        assert_eq!(again.progress().found, 6);
        assert!(world.deposits().await.iter().all(|deposit| deposit.status == Confirmed));
        // Done: the same once more begins again, and so does one for a longer watch list.
        assert_eq!(begin(&world, &job(proof)).await.progress().untraced().unwrap().next, 1);
        world.close().await;
    }
}

#[tokio::test]
async fn without_traces_the_roots_are_credited_and_what_is_not_covered_is_reported_and_stays_on_record() {
    let world = late_bob(Engine::Sqlite).await;
    let mut backfill = begin(&world, &job(ReadProof::Full)).await;
    world.chain.script_traces(std::iter::repeat_n(Fault::Refuse, 20));
    let refused = loop {
        if let Err(error) = backfill.step(world.now()).await {
            break error;
        }
        assert!(!backfill.is_done(), "nothing was traced");
    };
    assert!(!refused.may_pass(), "a person must know: {refused}");
    assert_eq!(world.deposits().await.iter().filter(|deposit| deposit.status == Confirmed).count(), 3);
    let untraced = backfill.progress().untraced().unwrap();
    assert_eq!((untraced.next, untraced.until, backfill.is_done()), (1, 50, false));
    drop(backfill);
    world.chain.behave();
    let again = begin(&world, &job(ReadProof::Full)).await;
    assert_eq!((again.progress().next, again.progress().untraced()), (51, Some(untraced)), "on record");
    assert_eq!(run(&world, &job(ReadProof::Full)).await.found, 6);
    world.close().await;
}

#[tokio::test]
async fn a_trace_without_a_second_witness_stays_pending_and_is_confirmed_by_whoever_comes_next() {
    for by_backfill in [true, false] {
        let mut world = late_bob(Engine::Sqlite).await;
        world.chain.withhold_balances(true);
        let progress = run(&world, &job(ReadProof::Full)).await;
        assert_eq!((progress.found, progress.confirmed, progress.doubted), (6, 2, 4));
        let pending = async |world: &World| world.deposits().await.iter().filter(|it| it.status == Pending).count();
        assert_eq!(pending(&world).await, 4);
        world.chain.behave();
        if by_backfill {
            let again = run(&world, &job(ReadProof::Full)).await;
            assert_eq!((again.found, again.confirmed, again.doubted), (0, 4, 0));
        } else {
            world.pass(std::time::Duration::from_secs(600));
            world.catch_up().await;
        }
        assert_eq!(pending(&world).await, 0, "{by_backfill}");
        world.close().await;
    }
}

#[tokio::test]
async fn a_leg_that_an_endpoint_invents_in_the_past_is_never_confirmed() {
    let world = late_bob(Engine::Sqlite).await;
    let mut backfill = begin(&world, &job(ReadProof::Full)).await;
    while backfill.progress().next <= 50 {
        backfill.step(world.now()).await.unwrap();
    }
    world.chain.script_traces(std::iter::repeat_n(Fault::Invent(address(BOB), 1_000), 100));
    while !backfill.is_done() {
        backfill.step(world.now()).await.unwrap();
    }
    // Each of the blocks with a transaction claims it; the balances corroborate none of them.
    let invented: Vec<_> =
        world.deposits().await.into_iter().filter(|it| it.amount == landfall_chain::U256::from(1_000)).collect();
    assert!(!invented.is_empty() && invented.iter().all(|deposit| deposit.status == Pending), "{invented:#?}");
    assert!(backfill.progress().doubted >= invented.len() as u64);
    world.abandon();
}

#[tokio::test]
async fn value_that_another_reading_shows_in_other_transactions_is_not_credited_twice() {
    for twice in [false, true] {
        let mut world = World::traced(Engine::Sqlite, 1).await;
        world.watch("alice", address(ALICE)).await;
        world.chain.mine_empty(1);
        world.catch_up().await;
        world.chain.mine(vec![inner(0, ALICE, 3), inner(1, ALICE, 2)]);
        // The tip of the lane and its evidence are reported as 5 by the first transaction, which the balances
        // corroborate.
        world.chain.script_traces([Fault::Merge(address(ALICE))]);
        world.catch_up().await;
        world.chain.set_finality_depth(None);
        world.chain.mine_empty(FINALITY_DEPTH);
        world.catch_up().await;
        world.chain.set_finality_depth(Some(FINALITY_DEPTH));
        world.tick().await;
        world.chain.script_traces([Fault::Merge(address(ALICE))]);
        assert_eq!(world.trace().await.confirmed, 1);
        world.chain.behave();

        world.chain.trace_twice(twice);
        let job = Job { from: 1, to: Some(2), ..job(ReadProof::Full) };
        let progress = run(&world, &job).await;
        assert_eq!((progress.found, progress.confirmed, progress.doubted), (2, 0, if twice { 0 } else { 2 }));
        for _ in 0..3 {
            world.pass(std::time::Duration::from_secs(600));
            world.catch_up().await;
        }
        let confirmed = world.deposits().await.into_iter().filter(|it| it.status == Confirmed);
        let confirmed: Vec<_> = confirmed.map(|deposit| deposit.amount.to_string()).collect();
        assert_eq!(confirmed, ["5"], "5 were paid in all");
        let incidents: Vec<String> = world.incidents().await.into_iter().map(|incident| incident.what).collect();
        assert_eq!(incidents.len(), if twice { 2 } else { 0 }, "{incidents:#?}");
        let of_block = "7 base units would be confirmed of what the inside of the transactions of block 2 paid to";
        assert_eq!(incidents.iter().any(|what| what.contains(of_block)), twice, "{incidents:#?}");
        world.abandon();
    }
}

#[tokio::test]
async fn no_fault_of_the_traces_makes_it_miss_or_credit_twice() {
    for (fault, at) in
        [Fault::Fail, Fault::Empty, Fault::Lag(30)].into_iter().flat_map(|fault| (0..8).map(move |at| (fault, at)))
    {
        let world = late_bob(Engine::Sqlite).await;
        let late = Fault::Late(std::time::Duration::ZERO);
        world.chain.script_traces(std::iter::repeat_n(late, at).chain([fault, fault]));
        run(&world, &job(ReadProof::Full)).await;
        world.chain.behave();
        // A witness that could not be read is no witness: the next run asks again.
        run(&world, &job(ReadProof::Full)).await;
        let deposits = world.deposits().await;
        assert_eq!(deposits.len(), 7, "{fault:?} {at}");
        assert!(deposits.iter().all(|deposit| deposit.status == Confirmed), "{fault:?} {at}: {deposits:#?}");
        world.close().await;
    }
}

#[tokio::test]
async fn it_survives_a_crash_at_every_await_of_the_traces() {
    for engine in ENGINES {
        let world = late_bob(engine).await;
        let mut backfill = begin(&world, &job(ReadProof::Full)).await;
        while backfill.progress().next <= 50 {
            backfill.step(world.now()).await.unwrap();
        }
        drop(backfill);
        let mut cut_off = 0;
        for wakeups in cuts(300) {
            let mut backfill = begin(&world, &job(ReadProof::Full)).await;
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
        run(&world, &job(ReadProof::Full)).await;
        run(&world, &job(ReadProof::Full)).await;
        assert_eq!(world.deposits().await.len(), 7, "{engine:?}");
        assert!(world.deposits().await.iter().all(|deposit| deposit.status == Confirmed));
        world.close().await;
    }
}

#[tokio::test]
async fn beside_a_running_watcher_and_its_lane_each_deposit_is_credited_once_and_status_does_not_go_back() {
    for engine in ENGINES {
        let mut world = late_bob(engine).await;
        let mut backfill = begin(&world, &job(ReadProof::Full)).await;
        for number in 61..=75 {
            world.chain.mine(vec![inner(number, BOB, number)]);
            let (now, lane) = (world.now(), world.watcher_lane());
            let before = cursor(&world).await.at.unwrap().number;
            let (ticked, traced, stepped) = tokio::join!(world.try_tick(), lane.tick(now), backfill.step(now));
            for error in [ticked.err(), traced.err(), stepped.err()].into_iter().flatten() {
                assert!(error.may_pass(), "{error}");
            }
            assert!(cursor(&world).await.at.unwrap().number >= before);
        }
        while !backfill.is_done() {
            backfill.step(world.now()).await.unwrap();
        }
        world.chain.mine_empty(FINALITY_DEPTH);
        world.catch_up().await;
        world.pass(std::time::Duration::from_secs(600));
        world.catch_up().await;
        let deposits = world.deposits().await;
        assert_eq!(deposits.len(), 22, "{engine:?}");
        assert!(deposits.iter().all(|deposit| deposit.status == Confirmed), "{deposits:#?}");
        world.close().await;
    }
}

#[tokio::test]
async fn past_blocks_that_were_forgotten_are_no_work_of_the_running_lane() {
    let mut world = late_bob(Engine::Sqlite).await;
    world.chain.mine_empty(1_200);
    world.catch_up().await;
    run(&world, &job(ReadProof::Full)).await;
    world.say("").await;
    assert_eq!(world.trace().await.traced, 0, "the backfill has traced them itself");
    assert_eq!(world.deposits().await.len(), 7);
    world.close().await;
}

#[tokio::test]
async fn blocks_whose_own_logs_report_every_movement_are_not_traced() {
    let mut world = World::traced(Engine::Sqlite, 1).await;
    world.network.native.eip7708_from = Some(30);
    world.restart();
    world.watch("bob", address(BOB)).await;
    world.chain.mine_empty(60);
    world.catch_up().await;
    let mut backfill = begin(&world, &job(ReadProof::Full)).await;
    assert!(!backfill.leaves_out_inner_value());
    assert_eq!(backfill.progress().untraced().unwrap().until, 29);
    while !backfill.is_done() {
        backfill.step(world.now()).await.unwrap();
    }
    let above = Job { from: 30, ..job(ReadProof::Full) };
    assert_eq!(begin(&world, &above).await.progress().traces, None);
    // Nor do they show fees: a search by them says so.
    for (proof, to, leaves_out) in
        [(ReadProof::Candidate, 29, false), (ReadProof::Candidate, 30, true), (ReadProof::Full, 30, false)]
    {
        let backfill = begin(&world, &Job { to: Some(to), ..job(proof) }).await;
        assert_eq!(backfill.leaves_out_fees(), leaves_out, "{proof:?} {to}");
    }
    world.network.native = Native { source: NativeSource::LogTransfer, eip7708_from: None };
    world.restart();
    assert!(begin(&world, &job(ReadProof::Candidate)).await.leaves_out_fees());
    world.close().await;
}

async fn rescan(world: &World, repair: bool) -> Vec<Difference> {
    let mut rescan = Rescan::<SimPool>::begin(world.another_watcher(), 1, 50, repair).await.unwrap();
    let mut differences = Vec::new();
    while !rescan.is_done() {
        rescan.step(world.now()).await.unwrap();
        differences.extend(rescan.take_differences());
    }
    assert_eq!((rescan.progress().found, rescan.next()), (differences.len() as u64, 51));
    differences
}

#[tokio::test]
async fn a_rescan_reports_and_mends_what_is_missing_of_a_trace() {
    for engine in ENGINES {
        let world = late_bob(engine).await;
        assert_eq!(rescan(&world, true).await, [], "what came before Bob was watched is for backfill");
        let lost = world.deposits().await.remove(0);
        for text in [
            "DELETE FROM inclusions WHERE deposit_id IN (SELECT id FROM deposits WHERE amount_text = '10')",
            "DELETE FROM events WHERE aggregateid IN (SELECT id FROM deposits WHERE amount_text = '10')",
            "DELETE FROM deposits WHERE amount_text = '10'",
        ] {
            execute(world.db(), text).await;
        }
        let differences = rescan(&world, false).await;
        let [Difference::Missing { block, deposit, recipient, proof: Proof::OneEndpoint, .. }] = differences.as_slice()
        else {
            panic!("{differences:?}")
        };
        assert_eq!((block.number, *deposit, *recipient), (10, lost.id, address(ALICE)));
        assert!(differences[0].to_string().ends_with("(says one endpoint)"), "{}", differences[0]);
        world.chain.trace_twice(true);
        let reported = rescan(&world, true).await;
        assert!(
            matches!(reported.as_slice(), [Difference::Missing { proof: Proof::TwoEndpoints, .. }]),
            "{reported:?}"
        );
        assert_eq!(rescan(&world, false).await, []);
        let mended = world.deposits().await;
        assert_eq!((mended.len(), mended[0].id, mended[0].status), (1, lost.id, Confirmed));
        world.close().await;
    }
}

#[tokio::test]
async fn a_rescan_reports_a_deposit_that_no_trace_shows_a_failed_one_and_another_block_and_reports_each_once() {
    let world = late_bob(Engine::Sqlite).await;
    execute(world.db(), "UPDATE deposits SET leg_hash = amount WHERE amount_text = '10'").await;
    let differences = rescan(&world, false).await;
    assert!(
        matches!(differences.as_slice(), [Difference::Missing { .. }, Difference::NotThere { status: Confirmed, .. }]),
        "{differences:?}"
    );
    world.abandon();

    let world = late_bob(Engine::Sqlite).await;
    for text in [
        "UPDATE deposits SET status = 'FAILED', confirmed_us = NULL WHERE amount_text = '10'",
        "DELETE FROM events WHERE status = 'CONFIRMED' AND aggregateid IN (SELECT id FROM deposits WHERE amount_text = '10')",
    ] {
        execute(world.db(), text).await;
    }
    assert!(matches!(rescan(&world, true).await.as_slice(), [Difference::Failed { proof: Proof::OneEndpoint, .. }]));
    assert_eq!(world.status_of(10).await, Confirmed);
    world.abandon();

    let world = late_bob(Engine::Sqlite).await;
    execute(world.db(), "UPDATE blocks SET hash = zeroblob(32) WHERE number = 9").await;
    let differences = rescan(&world, false).await;
    assert!(matches!(differences.as_slice(), [Difference::OtherBlock { .. }]), "{differences:?}");
    world.close().await;
}

#[tokio::test]
async fn a_rescan_without_traces_says_so_and_reports_from_where_to_go_on() {
    let world = late_bob(Engine::Sqlite).await;
    world.chain.script_traces(std::iter::repeat_n(Fault::Refuse, 4));
    let mut rescan = Rescan::<SimPool>::begin(world.another_watcher(), 1, 50, false).await.unwrap();
    rescan.step(world.now()).await.unwrap();
    let refused = rescan.step(world.now()).await.unwrap_err();
    assert!(!refused.may_pass(), "{refused}");
    assert_eq!((rescan.progress().next, rescan.next(), rescan.is_done()), (51, 1, false));
    world.close().await;
}

#[tokio::test]
async fn nothing_is_credited_by_a_backfill_while_the_chain_is_halted() {
    let world = late_bob(Engine::Sqlite).await;
    execute(
        world.db(),
        "INSERT INTO chain_status (chain, state, reason, proof, caught_up_us, heartbeat_us) VALUES ('ETHEREUM_TESTNET', 'halted', '', 'roots', 0, 0)",
    )
    .await;
    let refused = Backfill::begin(world.another_watcher(), job(ReadProof::Full)).await.unwrap_err();
    assert!(refused.to_string().starts_with("ETHEREUM_TESTNET is halted"), "{refused}");
    let dry = Job { dry_run: true, ..job(ReadProof::Full) };
    assert_eq!(run(&world, &dry).await.found, 6, "looking is allowed");
    assert!(Rescan::<SimPool>::begin(world.another_watcher(), 1, 50, true).await.is_err());
    assert_eq!(rescan(&world, false).await, []);
    world.close().await;
}
