//! A crash at every await of a tick, one after the other: whatever was cut off, the next process ends where an
//! undisturbed one does, with the same ids.

use std::collections::BTreeSet;

use landfall::deposit::DepositStatus;
use landfall_sim::{SimChain, SimLeg, SimTx};

use crate::harness::books::events;
use crate::harness::lanes::{cuts, cuts_of};
use crate::harness::postgres::{ENGINES, TestStore};
use crate::harness::world::{FINALITY_DEPTH, World, address};

const ALICE: u8 = 0xa1;
const BOB: u8 = 0xb0;
const PAYER: u8 = 0x01;
/// More than any tick here has.
const AWAITS_MAX: u32 = 400;
const MISSES_MAX: u32 = 3;

/// What the cut off tick was about to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Work {
    Connect,
    Disconnect,
    Settle,
    Trace,
    Witness,
}

/// At each await in a full run. A bounded one takes every third, by its seed.
#[tokio::test]
async fn a_crash_at_any_await_of_a_tick_loses_nothing_and_repeats_nothing() {
    for engine in ENGINES {
        let shelf = TestStore::fresh(engine).await;
        for work in [Work::Connect, Work::Disconnect, Work::Settle, Work::Trace, Work::Witness] {
            let (undisturbed, _) = outcome(&shelf, work, None).await;
            let (mut crashes, mut misses) = (0, 0);
            for wakeups in cuts(AWAITS_MAX) {
                let (ids, cut_off) = outcome(&shelf, work, Some(wakeups)).await;
                assert_eq!(ids, undisturbed, "{engine:?}: {work:?} was cut off at await {wakeups}");
                crashes += u32::from(cut_off);
                // An answer that is there at once needs no waiting, so that the number of awaits varies a little.
                misses = if cut_off { 0 } else { misses + 1 };
                if misses > MISSES_MAX {
                    break;
                }
            }
            println!("{engine:?}: {work:?} cut off at {crashes} awaits");
            assert!(
                crashes > cuts_of(5) && misses > MISSES_MAX,
                "{crashes} crashes, and the tick never ended before one"
            );
        }
    }
}

/// The events at the end, by id, and whether the tick was cut off before it was over.
async fn outcome(shelf: &TestStore, work: Work, crash_at: Option<u32>) -> (BTreeSet<String>, bool) {
    let is_traced = matches!(work, Work::Trace | Work::Witness);
    let store = shelf.again().await;
    let chain = SimChain::new(5);
    chain.set_finality_depth(Some(FINALITY_DEPTH));
    let mut world = if is_traced { World::of_traced(chain, store) } else { World::of(chain, store) };
    world.watch("alice", address(ALICE)).await;
    world.watch("bob", address(BOB)).await;
    world.chain.mine_empty(1);
    world.catch_up().await;
    let paid =
        if is_traced { [inner(0, 5), inner(1, 5), payment(2, 6)] } else { [0, 1, 2].map(|n| payment(n, 5 + n / 2)) };
    world.chain.mine(paid.to_vec());
    match work {
        Work::Connect => {}
        Work::Trace => drop(world.tick().await),
        Work::Disconnect | Work::Settle | Work::Witness => world.catch_up().await,
    }
    match work {
        Work::Connect | Work::Trace => {}
        Work::Disconnect => {
            world.chain.fork_at(1);
            world.chain.mine_empty(1);
            world.chain.mine(paid.to_vec());
        }
        Work::Settle => world.chain.mine_empty(FINALITY_DEPTH),
        Work::Witness => {
            world.chain.mine_empty(FINALITY_DEPTH);
            while world.tick().await.confirmed == 0 {}
        }
    }
    let cut_off = match crash_at {
        Some(wakeups) if is_traced => world.crash_trace_within(wakeups).await,
        Some(wakeups) => world.crash_within(wakeups).await,
        None => false,
    };
    world.chain.mine_empty(FINALITY_DEPTH);
    world.catch_up().await;
    let confirmed = world.deposits().await.iter().filter(|d| d.status == DepositStatus::Confirmed).count();
    assert_eq!(confirmed, 3);
    let ids = events(world.db()).await.into_iter().map(|event| event.id).collect();
    world.close().await;
    (ids, cut_off)
}

/// What a contract pays to ALICE, and BOB pays something to it.
fn inner(nonce: u64, amount: u64) -> SimTx {
    let [to, back] =
        [(PAYER, ALICE, amount), (BOB, PAYER, 1)].map(|(a, b, n)| SimLeg::inner(address(a), address(b), n));
    SimTx::new(address(PAYER), nonce, vec![to, back])
}

fn payment(nonce: u64, amount: u64) -> SimTx {
    SimTx::new(address(PAYER), nonce, vec![SimLeg::native(address(PAYER), address(ALICE), amount)])
}
