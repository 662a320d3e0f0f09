//! Guards that are taken back: of paid transfers alone, once nothing that they refuse can live any more. What the sponsors
//! own is compared with the books.

use std::time::Duration;

use landfall::store::guards;
use landfall::transfer::{FailureCode, State, TransferId};
use landfall_chain::{IntentKey, U256};
use landfall_sim::{GUARD_RENT, SendFault, SimChain, SimLeg, SimTx};

use super::gas::assert_sponsors_even;
use super::{Bench, LEASE_OVER, STRANGER, alice};
use crate::harness::books::rows;
use crate::harness::lanes::{cuts, cuts_of};
use crate::harness::postgres::{ENGINES, Engine};
use crate::harness::world::{CHAIN, address};
use crate::past::rescan::execute;

/// So long guards are kept here, in hours and in blocks of 12 seconds.
const KEPT_HOURS: u32 = 1;
pub(super) const KEPT_BLOCKS: u64 = 300;
/// Behind that a blockhash of that time is dead.
pub(super) const DEAD_BLOCKS: u64 = 151;
/// Longer than the sender waits between two looks.
const LOOK: Duration = Duration::from_secs(11);

impl Bench {
    /// With guards that are kept for an hour.
    pub(super) async fn keeping(engine: Engine) -> Self {
        let mut bench = Bench::guarded(engine).await;
        bench.world.network.sending.guard_retention_hours = KEPT_HOURS;
        bench.sender = super::sender(&bench.world, &bench.signer, 0);
        bench
    }

    pub(super) async fn pay(&mut self, n: u32) -> TransferId {
        let id = self.accept(n, 1_000).await;
        self.settle().await;
        assert_eq!(self.until_ended(id).await, State::Confirmed);
        id
    }

    /// So many empty blocks, and what follows.
    pub(super) async fn empty(&mut self, count: u64) {
        self.world.chain.mine_empty(count);
        self.world.pass(LOOK);
        self.follow().await;
    }

    fn key(&self, id: TransferId) -> IntentKey {
        IntentKey::of(&self.world.network.chain_ref, id.0.as_bytes())
    }

    pub(super) fn holds(&self, id: TransferId) -> U256 {
        self.world.chain.guard_holds(&alice(), &self.key(id))
    }

    /// The state of each guard that is on record, in the order of transfers.
    async fn guards(&self) -> Vec<String> {
        let states: Vec<(String,)> = rows(self.world.db(), "SELECT state FROM guards ORDER BY transfer_id").await;
        states.into_iter().map(|(state,)| state).collect()
    }

    /// The states of the reclaims, in their order.
    pub(super) async fn reclaims(&self) -> Vec<String> {
        let text = "SELECT state FROM reclaims ORDER BY sponsor, number";
        rows(self.world.db(), text).await.into_iter().map(|(state,)| state).collect()
    }

    /// As [`Bench::accept`], and what follows. `is_late`: her address came on record behind all blocks that were read.
    async fn accept_late(&mut self, n: u32, is_late: bool) -> TransferId {
        execute(self.world.db(), "UPDATE watched_addresses SET from_number = 1").await;
        let id = self.accept(n, 1_000).await;
        if is_late {
            let text = format!("UPDATE watched_addresses SET from_number = {}", self.world.chain.latest().number + 1);
            execute(self.world.db(), text.leak()).await;
        }
        self.settle().await;
        id
    }

    /// Lamports from a stranger to the guard of a transfer.
    fn gift(&mut self, id: TransferId, lamports: u64) -> SimTx {
        self.by_hand(vec![SimLeg::native(address(STRANGER), SimChain::guard(&alice(), &self.key(id)), lamports)])
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guards_of_paid_transfers_are_taken_back_together_behind_their_retention_and_the_books_are_even() {
    for engine in ENGINES {
        let mut bench = Bench::keeping(engine).await;
        bench.set_price("3000").await;
        let mut paid = Vec::new();
        for n in 1..=5 {
            paid.push(bench.pay(n).await);
        }
        // It never made one.
        bench.world.chain.refuse_payments(true);
        let unpaid = bench.accept(9, 1_000).await;
        bench.settle().await;
        bench.world.chain.refuse_payments(false);
        assert_sponsors_even(&bench.world).await;
        let fees = bench.shown(paid[0]).await.network_fee;
        bench.empty(KEPT_BLOCKS).await;
        bench.block().await;
        assert_eq!(bench.world.chain.landed_reclaims(), (0, 0), "old enough, and its blockhashes may live");
        assert_eq!(bench.guards().await, ["standing"; 5]);
        bench.empty(DEAD_BLOCKS + 60).await;
        bench.block().await;
        assert_eq!(bench.world.chain.landed_reclaims(), (2, 0), "four in one, and one more");
        assert_eq!(bench.guards().await, ["standing"; 5], "their blocks are not final");
        bench.empty(20).await;
        assert_eq!(
            (bench.guards().await, bench.reclaims().await),
            (vec!["reclaimed".to_owned(); 5], vec!["landed".to_owned(); 2])
        );
        for id in &paid {
            assert_eq!((bench.holds(*id), bench.state(*id).await), (U256::ZERO, State::Confirmed));
        }
        assert!(bench.state(unpaid).await.status().is_terminal());
        let text = "SELECT amount_text, bearer FROM gas_ledger WHERE kind = 'COST' ORDER BY at_us DESC, entry LIMIT 5";
        let mut costs: Vec<(String, String)> = rows(bench.world.db(), text).await;
        costs.sort();
        let costs: Vec<(&str, &str)> =
            costs.iter().map(|(amount, bearer)| (amount.as_str(), bearer.as_str())).collect();
        let (share, all) = (("5", "PLATFORM"), ("21", "PLATFORM"));
        assert_eq!(costs, [all, share, share, share, ("6", "PLATFORM")], "the platform bears it, an even share each");
        assert_eq!(bench.shown(paid[0]).await.network_fee, fees, "the customer bears none of it");
        assert_sponsors_even(&bench.world).await;
        bench.empty(400).await;
        assert_eq!(bench.world.chain.landed_reclaims(), (2, 0), "once");
        bench.close().await;
    }
}

#[tokio::test]
async fn the_guards_of_a_sponsor_that_is_paused_keep_no_other_from_its_own() {
    let mut bench = Bench::keeping(Engine::Sqlite).await;
    let of_paused = bench.pay(1).await;
    bench.add_sponsors(1).await;
    bench.settle().await;
    execute(bench.world.db(), "UPDATE sponsors SET state = 'paused' WHERE number = 0").await;
    let of_other = bench.pay(2).await;
    let mut reader = bench.world.db().read().await.unwrap();
    let standing = guards::standing(&mut reader, CHAIN, bench.world.now(), 1).await.unwrap();
    drop(reader);
    assert_eq!(
        standing.iter().map(|guard| guard.transfer_id).collect::<Vec<_>>(),
        [of_other],
        "the older one is no place"
    );
    bench.empty(KEPT_BLOCKS + DEAD_BLOCKS + 60).await;
    bench.block().await;
    bench.empty(20).await;
    assert_eq!((bench.holds(of_paused).is_zero(), bench.holds(of_other)), (false, U256::ZERO));
    execute(bench.world.db(), "UPDATE sponsors SET state = 'active' WHERE number = 0").await;
    bench.empty(1).await;
    bench.block().await;
    bench.empty(20).await;
    assert_eq!(bench.holds(of_paused), U256::ZERO);
    bench.close().await;
}

#[tokio::test]
async fn a_reclaim_that_nobody_includes_dies_by_our_count_of_blocks_and_another_one_is_made() {
    for fault in [SendFault::Silent, SendFault::Lost, SendFault::Forgotten, SendFault::Refused] {
        let mut bench = Bench::keeping(Engine::Sqlite).await;
        let id = bench.pay(1).await;
        bench.world.chain.script_sends([fault; 40]);
        bench.empty(KEPT_BLOCKS + DEAD_BLOCKS + 40).await;
        assert_eq!(bench.reclaims().await, ["open"], "{fault:?}");
        bench.world.chain.forget_pool();
        bench.empty(DEAD_BLOCKS).await;
        assert_eq!(bench.reclaims().await, ["open"], "{fault:?}: its blockhash is not dead by final blocks");
        bench.world.chain.take_sends();
        bench.empty(20).await;
        assert_eq!(bench.reclaims().await, ["dead", "open"], "{fault:?}");
        bench.block().await;
        bench.empty(20).await;
        assert_eq!(
            (bench.reclaims().await, bench.holds(id)),
            (vec!["dead".to_owned(), "landed".to_owned()], U256::ZERO)
        );
        // What was signed first cannot land any more.
        bench.world.chain.pool_all();
        bench.block().await;
        assert_eq!(bench.world.chain.landed_reclaims(), (1, 0), "{fault:?}");
        assert_sponsors_even(&bench.world).await;
        bench.close().await;
    }
}

#[tokio::test]
async fn what_came_to_a_guard_meanwhile_fails_the_reclaim_and_comes_back_with_the_next_one() {
    let mut bench = Bench::keeping(Engine::Sqlite).await;
    let (first, second) = (bench.pay(1).await, bench.pay(2).await);
    bench.empty(KEPT_BLOCKS + DEAD_BLOCKS + 60).await;
    let gift = bench.gift(second, 7);
    bench.world.chain.mine(vec![gift]);
    bench.block().await;
    assert_eq!(bench.world.chain.landed_reclaims(), (1, 1), "what is left of a guard would be too little to stay");
    bench.empty(20).await;
    assert_eq!(
        (bench.reclaims().await, bench.guards().await),
        (vec!["failed".to_owned()], vec!["standing".to_owned(); 2])
    );
    assert_sponsors_even(&bench.world).await;
    // Both are left alone for an hour, and then each is tried by itself.
    bench.world.pass(Duration::from_secs(3_600));
    bench.settle().await;
    bench.block().await;
    bench.empty(20).await;
    assert_eq!(bench.reclaims().await, ["failed", "landed", "landed"]);
    assert_eq!([bench.holds(first), bench.holds(second)], [U256::ZERO; 2]);
    let taken: Vec<(i64,)> =
        rows(bench.world.db(), "SELECT reclaim_lamports FROM guards ORDER BY reclaim_lamports").await;
    let rent = i64::try_from(GUARD_RENT).unwrap();
    assert_eq!(taken, [(rent,), (rent + 7,)]);
    assert_sponsors_even(&bench.world).await;
    bench.close().await;
}

#[tokio::test]
async fn a_guard_that_another_store_took_back_is_noted_as_gone_and_what_it_paid_stays_confirmed() {
    let mut ours = Bench::keeping(Engine::Sqlite).await;
    let id = ours.pay(1).await;
    let mut theirs = ours.copied().await;
    theirs.world.network.sending.guard_retention_hours = KEPT_HOURS;
    theirs.sender = super::sender(&theirs.world, &theirs.signer, 1_000);
    ours.world.pass(LEASE_OVER);
    ours.empty(KEPT_BLOCKS + DEAD_BLOCKS + 60).await;
    assert_eq!(ours.reclaims().await, ["open"]);
    // Both have signed one.
    theirs.world.pass(LOOK);
    theirs.follow().await;
    assert_eq!(theirs.reclaims().await, ["open"]);
    ours.block().await;
    let (landed, failed) = ours.world.chain.landed_reclaims();
    assert!(landed <= 2 && failed + 1 == landed, "one alone brought it back: {landed} {failed}");
    ours.empty(20).await;
    theirs.world.pass(LOOK);
    theirs.follow().await;
    for bench in [&mut ours, &mut theirs] {
        bench.world.pass(Duration::from_secs(3_600));
        bench.empty(20).await;
        bench.block().await;
        assert!(["reclaimed", "gone"].contains(&bench.guards().await[0].as_str()), "{:?}", bench.guards().await);
        assert_eq!((bench.state(id).await, bench.payments(id).len()), (State::Confirmed, 1));
    }
    let (_, failed_at_last) = ours.world.chain.landed_reclaims();
    assert_eq!(failed_at_last, failed, "none is made for what is gone");
    theirs.world.close().await;
    ours.close().await;
}

#[tokio::test]
async fn a_process_that_dies_anywhere_takes_a_guard_back_once() {
    let mut cut = 0;
    for wakeups in cuts(80) {
        let mut bench = Bench::keeping(Engine::Sqlite).await;
        let id = bench.pay(1).await;
        bench.world.chain.mine_empty(KEPT_BLOCKS + DEAD_BLOCKS + 60);
        bench.world.pass(LOOK);
        bench.world.keep_time();
        bench.world.catch_up().await;
        let is_cut = bench.crash_within(wakeups).await;
        cut += u32::from(is_cut);
        bench.world.pass(LEASE_OVER);
        bench.settle().await;
        bench.block().await;
        bench.empty(20).await;
        assert_eq!(
            (bench.reclaims().await, bench.holds(id)),
            (vec!["landed".to_owned()], U256::ZERO),
            "cut after {wakeups}"
        );
        assert_sponsors_even(&bench.world).await;
        bench.close().await;
        if !is_cut {
            break;
        }
    }
    assert!(cut > cuts_of(5), "{cut}");
}

#[tokio::test]
async fn a_store_and_a_journal_set_back_by_more_than_the_retention_neither_pay_again_nor_drop_what_was_paid() {
    for is_watched in [true, false] {
        let mut bench = Bench::keeping(Engine::Sqlite).await;
        bench.settle().await;
        let mut earlier = bench.copied().await;
        earlier.world.network.sending.guard_retention_hours = KEPT_HOURS;
        let paid = bench.pay(1).await;
        bench.empty(KEPT_BLOCKS + DEAD_BLOCKS + 60).await;
        bench.block().await;
        bench.empty(20).await;
        assert_eq!((bench.reclaims().await, bench.holds(paid)), (vec!["landed".to_owned()], U256::ZERO));
        // The store as it was then, and the journal with it. A person follows the page.
        bench.set_back_to(earlier, true);
        bench.world.operator().recover_sending(bench.world.db(), &[CHAIN]).await.unwrap();
        bench.world.pass(LEASE_OVER);
        bench.follow().await;
        bench.empty(DEAD_BLOCKS + 60).await;
        assert!(!bench.recovers().await);
        if !is_watched {
            execute(bench.world.db(), "DELETE FROM marks").await;
        }
        assert_eq!(bench.accept_late(1, !is_watched).await, paid);
        if is_watched {
            assert_eq!(bench.state(paid).await, State::Confirmed, "our own blocks show it");
        } else {
            bench.empty(DEAD_BLOCKS + 60).await;
            assert_eq!(bench.state(paid).await, State::Accepted, "neither paid again nor dropped");
            assert_eq!(bench.attempts().await.len(), 0);
            // Without the endpoints' lists there is no verdict of anything of hers, and nothing is paid.
            bench.world.chain.makers(true, false);
            let other = bench.accept_late(2, true).await;
            bench.empty(DEAD_BLOCKS + 60).await;
            assert_eq!((bench.state(other).await, bench.payments(other).len()), (State::Accepted, 0));
            bench.world.chain.makers(false, false);
            bench.world.pass(LOOK);
            bench.settle().await;
            assert_eq!(
                bench.state(other).await,
                State::Dropped(FailureCode::NeverSigned),
                "they show that it never was"
            );
            let next = bench.accept_late(3, true).await;
            assert_eq!(bench.until_ended(next).await, State::Confirmed);
        }
        assert_eq!(bench.payments(paid).len(), 1);
        bench.world.abandon();
    }
}

#[tokio::test]
async fn nothing_is_taken_back_while_a_person_has_stopped_the_sending_or_the_chain_recovers() {
    for recovers in [false, true] {
        let mut bench = Bench::keeping(Engine::Sqlite).await;
        bench.pay(1).await;
        let (operator, chains) = (bench.world.operator(), [CHAIN]);
        match recovers {
            true => operator.recover_sending(bench.world.db(), &chains).await.unwrap(),
            false => operator.halt_sending(bench.world.db(), &chains).await.unwrap(),
        }
        execute(bench.world.db(), "UPDATE recoveries SET until_us = until_us + 86400000000").await;
        bench.empty(KEPT_BLOCKS + DEAD_BLOCKS + 60).await;
        assert_eq!(bench.reclaims().await, [""; 0]);
        bench.world.close().await;
    }
}
