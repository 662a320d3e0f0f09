//! Answers that are lost, nodes that forget, carriers that fail, processes that die or are paused: paid once all the same.

use std::cell::Cell;
use std::process::Command;
use std::time::Duration;

use landfall::transfer::{FailureCode, State};
use landfall_chain::U256;
use landfall_sim::{Fault, SendFault};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::{Bench, LEASE_OVER, PAYER, USDC, alice, may_pass, sender, token};
use crate::harness::books::rows;
use crate::harness::lanes::cuts;
use crate::harness::postgres::{ENGINES, Engine};
use crate::harness::world::address;

/// More than any tick here has.
const AWAITS_MAX: u32 = 1_000;
const MISSES_MAX: u32 = 3;
/// Says to a process of the tests that its disk is to be full.
const FULL: &str = "LANDFALL_TEST_FULL_STORE";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t10_whatever_a_node_says_of_a_broadcast_it_is_paid_once() {
    let faults = [SendFault::Silent, SendFault::Lost, SendFault::Forgotten, SendFault::Refused, SendFault::NonceUsed];
    for engine in ENGINES {
        let mut bench = Bench::on(engine, 1).await;
        let mut ids = Vec::new();
        for (n, fault) in (0..).zip(faults) {
            ids.push(bench.accept(n, 1_000).await);
            bench.world.chain.script_sends([fault]);
            bench.settle().await;
            bench.blocks(2).await;
        }
        for id in ids {
            assert_eq!(bench.until_ended(id).await, State::Confirmed);
            assert_eq!(bench.payments(id).len(), 1);
        }
        assert_eq!(
            bench.attempts().await.len(),
            faults.len(),
            "the same bytes are sent again, and no other nonce is used"
        );
        assert_eq!(bench.world.chain.sends_struck().len(), faults.len());
        bench.close().await;
    }
}

#[tokio::test]
async fn a_request_that_nobody_answers_keeps_no_other_transfer_from_its_turn() {
    let mut bench = Bench::on(Engine::Sqlite, 1).await;
    // The sponsor is derived, and then checked.
    bench.tick().await;
    bench.tick().await;
    let ids = [bench.accept(1, 1_000).await, bench.accept(2, 1_000).await];
    bench.world.chain.script([Fault::Fail]);
    bench.settle().await;
    let states = [bench.state(ids[0]).await, bench.state(ids[1]).await];
    assert!(states.contains(&State::Accepted) && states.contains(&State::Carried), "one rests: {states:?}");
    for id in ids {
        assert_eq!(bench.until_ended(id).await, State::Confirmed);
    }
    bench.close().await;
}

#[tokio::test]
async fn t14_what_a_node_forgot_is_sent_again_as_the_same_bytes() {
    let mut bench = Bench::on(Engine::Sqlite, 1).await;
    let id = bench.accept(1, 1_000).await;
    bench.settle().await;
    bench.world.chain.forget_pool();
    // The block is empty, and behind it the bytes are sent again.
    bench.block().await;
    assert_eq!(bench.state(id).await, State::Carried);
    assert_eq!(bench.world.chain.pooled().len(), 1);
    bench.block().await;
    assert_eq!(bench.state(id).await, State::Included);
    assert_eq!(bench.until_ended(id).await, State::Confirmed);
    assert_eq!(bench.attempts().await.len(), 1);
    bench.close().await;
}

#[tokio::test]
async fn t27_a_carrier_that_fails_for_nothing_is_followed_by_another_or_by_the_end_of_the_window() {
    for comes_back in [true, false] {
        let mut bench = Bench::on(Engine::Sqlite, 1).await;
        let id = bench.accept(1, 9_000_000).await;
        bench.settle().await;
        // Somebody else has Alice's money for a while.
        let gone = bench.by_hand(vec![token(alice(), address(PAYER), USDC)]);
        bench.world.chain.mine(vec![gone]);
        bench.block().await;
        assert_eq!((bench.state(id).await, bench.payments(id).len()), (State::Carried, 0));
        assert_eq!(bench.world.chain.sent(&bench.sponsor(0)), 1, "it cost its fee");
        bench.blocks(5).await;
        assert_eq!(bench.state(id).await, State::Carried);
        if comes_back {
            let back = bench.by_hand(vec![token(address(PAYER), alice(), USDC)]);
            bench.world.chain.mine(vec![back]);
            bench.follow().await;
            assert_eq!(bench.until_ended(id).await, State::Confirmed);
            assert_eq!(bench.payments(id)[0].amount, U256::from(9_000_000));
        } else {
            assert_eq!(bench.until_ended(id).await, State::Dropped(FailureCode::WindowElapsed));
        }
        bench.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t18_a_crash_at_any_await_of_a_tick_pays_once_and_leaves_no_gap() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine, 2).await;
        let (mut crashes, mut misses, mut ids) = (0, 0, Vec::new());
        for wakeups in cuts(AWAITS_MAX) {
            ids.push(bench.accept(wakeups, 1_000).await);
            let was_cut_off = bench.crash_within(wakeups).await;
            bench.world.pass(LEASE_OVER);
            bench.blocks(1).await;
            // The tick that finds it included, or confirmed, is cut off, too.
            bench.world.chain.mine_pool();
            bench.world.keep_time();
            bench.world.catch_up().await;
            bench.crash_within(wakeups).await;
            bench.world.pass(LEASE_OVER);
            bench.blocks(1).await;
            crashes += u32::from(was_cut_off);
            misses = if was_cut_off { 0 } else { misses + 1 };
            if misses > MISSES_MAX {
                break;
            }
        }
        for id in &ids {
            assert_eq!(bench.until_ended(*id).await, State::Confirmed);
        }
        println!("{engine:?}: cut off at {crashes} awaits, {} transfers", ids.len());
        assert!(crashes > 5 && misses > MISSES_MAX, "{crashes} crashes, and the tick never ended before one");
        assert_eq!(bench.behind().await, [], "what is signed and not recorded yet was recorded to be signed");
        for number in 0..2 {
            let sponsor = bench.sponsor(number);
            let attempts = bench.attempts().await;
            let of_sponsor = attempts.iter().filter(|(of, ..)| of == sponsor.as_bytes());
            let mut nonces: Vec<i64> = of_sponsor.map(|(_, nonce, ..)| *nonce).collect();
            nonces.dedup();
            let all: Vec<i64> = (0..i64::try_from(nonces.len()).unwrap()).collect();
            assert_eq!(nonces, all, "nonces of sponsor {number}");
        }
        bench.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_was_paused_writes_nothing_after_another_took_over() {
    for engine in ENGINES {
        let mut held = 0;
        for calls in 0..6 {
            let mut bench = Bench::on(engine, 1).await;
            bench.settle().await;
            let id = bench.accept(1, 1_000).await;
            // It stands still in its call after so many others, for longer than its lease.
            let chain = &bench.world.chain;
            chain.script(vec![Fault::Late(Duration::ZERO); calls]);
            chain.script([Fault::Held]);
            let is_held = || chain.struck().keys().any(|(_, fault)| *fault == Fault::Held.name());
            let mut rival = sender(&bench.world, &bench.signer, 77);
            let (clock, has_ended) = (bench.world.clock(), Cell::new(false));
            let paused = async {
                let ended = bench.sender.tick(&clock).await;
                has_ended.set(true);
                ended
            };
            let takes_over = async {
                while !is_held() && !has_ended.get() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                bench.world.pass(LEASE_OVER);
                chain.behave();
                let taken = rival.tick(&clock).await;
                chain.release();
                taken
            };
            let (paused, taken) = tokio::join!(paused, takes_over);
            held += u32::from(is_held());
            if let Err(error) = &paused {
                assert!(may_pass(error), "{error}");
            }
            assert!(taken.unwrap().is_some(), "{calls} calls");
            bench.sender = rival;
            assert_eq!(bench.until_ended(id).await, State::Confirmed);
            assert_eq!(bench.attempts().await.len(), 1, "{calls} calls");
            assert_eq!(bench.history(id).await, ["accepted", "carried", "included", "confirmed"]);
            bench.close().await;
        }
        assert!(held > 2, "{held} ticks stood still");
    }
}

#[tokio::test]
async fn while_the_signer_is_away_what_was_carried_goes_on_and_what_ran_out_of_time_ends() {
    let mut bench = Bench::on(Engine::Sqlite, 1).await;
    let carried = bench.accept(1, 1_000).await;
    bench.settle().await;
    bench.world.chain.forget_pool();
    bench.signer.away(true);
    let mut unsigned = Vec::new();
    // Each minute there is one more that cannot be signed, and one more sponsor that has no address.
    for n in 2..10 {
        unsigned.push(bench.accept(n, 1_000).await);
        bench.add_sponsors(1).await;
        for _ in 0..5 {
            bench.world.chain.mine_pool();
            bench.world.keep_time();
            bench.world.catch_up().await;
            for _ in 0..3 {
                bench.sender.tick(&bench.world.clock()).await.inspect_err(|error| assert!(may_pass(error))).ok();
            }
        }
    }
    assert_eq!(bench.state(carried).await, State::Confirmed, "its bytes are sent again without the signer");
    // It was asked for its signature: nobody knows what became of that.
    assert_eq!(bench.state(unsigned[0]).await, State::Dropped(FailureCode::WindowElapsed));
    bench.signer.away(false);
    for id in unsigned {
        bench.until_ended(id).await;
    }
    bench.close().await;
}

/// The disk is full in another process, so that the limit is not that of all tests.
#[test]
fn a_full_disk_under_the_store_signs_nothing_and_what_waits_is_paid_once_there_is_room() {
    let output = Command::new("sh")
        .args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "sender::faults::a_process_with_a_full_disk_under_its_store"])
        .env(FULL, "1")
        .output()
        .unwrap();
    let [said, complaint] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    assert!(output.status.success() && said.contains("1 passed"), "{said}\n{complaint}");
}

/// Not a test of its own: the process of the test above.
#[tokio::test]
async fn a_process_with_a_full_disk_under_its_store() {
    #[expect(clippy::disallowed_methods, reason = "how the test above talks to its other process")]
    let is_asked_for = std::env::var_os(FULL).is_some();
    if !is_asked_for {
        return;
    }
    let mut bench = Bench::on(Engine::Sqlite, 1).await;
    bench.settle().await;
    let id = bench.accept(1, 1_000).await;
    let (soft, hard) = getrlimit(Resource::RLIMIT_FSIZE).unwrap();
    setrlimit(Resource::RLIMIT_FSIZE, 1, hard).unwrap();
    for _ in 0..3 {
        let error = bench.sender.tick(&bench.world.clock()).await.unwrap_err();
        assert!(may_pass(&error), "{error}");
    }
    assert_eq!(bench.signer.seq(), 0, "nothing is signed");
    setrlimit(Resource::RLIMIT_FSIZE, soft, hard).unwrap();
    let intents: Vec<(String,)> = rows(bench.world.db(), "SELECT transfer_id FROM intents").await;
    assert_eq!((bench.state(id).await, intents.len(), bench.attempts().await.len()), (State::Accepted, 0, 0));
    assert_eq!(bench.until_ended(id).await, State::Confirmed);
    assert_eq!((bench.payments(id).len(), bench.attempts().await.len()), (1, 1));
    bench.close().await;
}
