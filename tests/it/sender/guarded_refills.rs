//! Refills where transactions have no nonces, as on Solana: each has a number, and the number a guard that is made once and
//! stays. What moved is compared with the chain's own ledger.

use std::time::Duration;

use landfall::store::refills::RefillState;
use landfall::transfer::{SponsorState, State, TransferId};
use landfall_chain::{IntentKey, Refill, Route, TxLife, TxRef, U256};
use landfall_sim::{GUARD_RENT, SendFault, SimLeg, SimTx, WEALTH};

use super::refills::{MINUTE, REFILL_TO, states};
use super::{Bench, LEASE_OVER, STRANGER, sender};
use crate::harness::books::rows;
use crate::harness::lanes::{cuts, cuts_of};
use crate::harness::postgres::{ENGINES, Engine, TestStore};
use crate::harness::world::{FINALITY_DEPTH, address};

/// What a transaction costs.
const FEE: u64 = 21;
/// An attempt follows another one after so long.
const NEXT: Duration = Duration::from_secs(21);
/// What a sponsor is given.
const GIVEN: u64 = 1_000;
/// A blockhash is dead behind so many blocks.
const DEAD_BLOCKS: u64 = 160;
/// As many as a recovery takes, with those that make them final.
const RECOVERY_BLOCKS: u64 = 220;

impl Bench {
    /// With so many sponsors, all below the floor, and behind them the treasury.
    async fn guarded_refilling(engine: Engine, sponsors: u32) -> Self {
        let route = Route::Guard { program: None, decimals: 6 };
        Bench::by_route(TestStore::fresh(engine).await, 1, sponsors, route).await.with_treasury().await
    }

    /// What all own is read before anything is given.
    async fn read_first(mut self) -> Self {
        self.set_floor(1, 2);
        self.hour().await;
        self.set_floor(WEALTH + 1, REFILL_TO);
        self
    }

    /// The one-time key of the treasury's refill with this number.
    fn refill_key(&self, nonce: u64) -> IntentKey {
        let chain_ref = &self.world.network.chain_ref;
        IntentKey::of(chain_ref, &Refill::id(chain_ref, &self.treasury(), nonce))
    }

    /// What the ledger says that transactions cost that are not on record.
    async fn unrecorded_costs(&self) -> Vec<String> {
        let text = "SELECT amount_text FROM gas_ledger WHERE route = 'unrecorded' ORDER BY entry";
        rows(self.world.db(), text).await.into_iter().map(|(amount,)| amount).collect()
    }

    /// Asks for more than there was, by a process of its own, so that a refill follows.
    fn want_more(&mut self) {
        self.set_floor(WEALTH + 100_000, WEALTH + 100_001);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sponsors_are_refilled_one_after_the_other_each_once_and_a_guard_stays_for_each() {
    for engine in ENGINES {
        let mut bench = Bench::guarded_refilling(engine, 2).await.read_first().await;
        bench.minute().await;
        bench.block().await;
        let given = U256::from(GIVEN);
        assert_eq!(bench.world.chain.refills(), [(bench.sponsor(0), given, 0)]);
        bench.minute().await;
        bench.minute().await;
        assert_eq!(bench.refill_states().await, [RefillState::Open], "its block is not final");
        assert_eq!(bench.tries().await, [(0, 0)]);
        bench.blocks(FINALITY_DEPTH + 1).await;
        bench.minute().await;
        assert_eq!(bench.refill_states().await, [RefillState::Landed, RefillState::Open]);
        for _ in 0..FINALITY_DEPTH + 2 {
            bench.block().await;
        }
        for _ in 0..3 {
            bench.minute().await;
            bench.block().await;
        }
        let both = [(bench.sponsor(0), given, 0), (bench.sponsor(1), given, 1)];
        assert_eq!(bench.world.chain.refills(), both, "once each");
        assert_eq!(bench.refill_states().await, [RefillState::Landed; 2]);
        let second = bench.refills().await.remove(1);
        assert_eq!(second.id, TransferId::of_refill(&bench.world.network.chain_ref, &bench.treasury(), 1));
        let (treasury, rent) = (bench.treasury(), U256::from(GUARD_RENT));
        let cost = ((GUARD_RENT + FEE).to_string(), "PLATFORM".to_owned(), None);
        assert_eq!(bench.refill_costs().await, [cost.clone(), cost]);
        for nonce in [0, 1] {
            assert_eq!(bench.world.chain.guard_holds(&treasury, &bench.refill_key(nonce)), rent);
        }
        let spent = U256::from(2 * (GIVEN + GUARD_RENT + FEE));
        assert_eq!(bench.owns(&treasury), U256::from(WEALTH) - spent, "to the lamport");
        for number in [0, 1] {
            assert_eq!(bench.owns(&bench.sponsor(number)), U256::from(REFILL_TO));
        }
        // The treasury carries no transfer. What that locks is not made up for.
        bench.set_floor(1, 2);
        let id = bench.accept(1, 1_000).await;
        bench.settle().await;
        assert_eq!(bench.until_ended(id).await, State::Confirmed);
        assert_eq!(bench.tries().await, [(0, 0), (1, 0)]);
        assert!(bench.foreign().await.is_empty());
        bench.hour().await;
        bench.assert_even().await;
        bench.close_even().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_dies_anywhere_gives_once() {
    let mut cut_off = 0;
    for wakeups in cuts(200) {
        let mut bench = Bench::guarded_refilling(Engine::Sqlite, 1).await;
        bench.world.pass(MINUTE);
        let is_cut = bench.crash_within(wakeups).await;
        cut_off += u32::from(is_cut);
        bench.world.pass(LEASE_OVER);
        bench.settle().await;
        bench.minute().await;
        bench.block().await;
        bench.blocks(FINALITY_DEPTH + 1).await;
        bench.minute().await;
        assert_eq!(bench.world.chain.refills().len(), 1, "after {wakeups} wake-ups");
        assert_eq!(bench.refill_states().await, [RefillState::Landed], "after {wakeups} wake-ups");
        bench.close_even().await;
        if !is_cut {
            break;
        }
    }
    assert!(cut_off > cuts_of(20), "only {cut_off} ticks were cut off");
    println!("{cut_off} ticks were cut off, and each sponsor was refilled once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_dies_while_a_refill_ends_books_it_once() {
    let mut cut_off = 0;
    for wakeups in cuts(200) {
        let mut bench = Bench::guarded_refilling(Engine::Sqlite, 1).await;
        bench.minute().await;
        bench.block().await;
        bench.world.chain.mine_empty(FINALITY_DEPTH + 1);
        bench.world.keep_time();
        bench.world.catch_up().await;
        let is_cut = bench.crash_within(wakeups).await;
        cut_off += u32::from(is_cut);
        bench.world.pass(LEASE_OVER);
        bench.minute().await;
        assert_eq!((bench.refill_states().await, bench.refill_costs().await.len()), (vec![RefillState::Landed], 1));
        bench.close_even().await;
        if !is_cut {
            break;
        }
    }
    assert!(cut_off > cuts_of(5), "only {cut_off} ticks were cut off");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_expired_is_given_again_with_the_same_guard_and_what_lands_too_fails() {
    for engine in ENGINES {
        let mut bench = Bench::guarded_refilling(engine, 1).await.read_first().await;
        bench.world.chain.script_sends([SendFault::Forgotten; 1_000]);
        bench.minute().await;
        bench.world.chain.mine_empty(DEAD_BLOCKS);
        bench.follow().await;
        bench.world.chain.take_sends();
        bench.minute().await;
        // On another blockhash.
        bench.world.chain.mine_empty(1);
        bench.world.pass(NEXT);
        bench.follow().await;
        let tries = bench.tries().await;
        assert!(tries.len() > 2 && tries.iter().all(|(nonce, _)| *nonce == 0), "{tries:?}");
        bench.world.chain.pool_all();
        bench.block().await;
        let (landed, failed) = bench.world.chain.landed_guarded();
        assert!(landed > 1 && landed == failed + 1 && landed < tries.len(), "{landed} landed, {failed} of them failed");
        assert_eq!(bench.world.chain.refills(), [(bench.sponsor(0), U256::from(GIVEN), 0)]);
        bench.blocks(FINALITY_DEPTH + 1).await;
        bench.minute().await;
        assert_eq!(bench.refill_states().await, [RefillState::Landed]);
        let costs: Vec<String> = bench.refill_costs().await.into_iter().map(|(amount, ..)| amount).collect();
        let with_rent = costs.iter().filter(|amount| **amount == (GUARD_RENT + FEE).to_string()).count();
        assert_eq!((costs.len(), with_rent), (landed, 1), "{costs:?}");
        println!("{engine:?}: {} attempts, {landed} landed, {failed} of them failed", tries.len());
        bench.hour().await;
        bench.assert_even().await;
        bench.close_even().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_a_node_says_of_a_broadcast_a_sponsor_is_refilled_once() {
    for fault in [SendFault::Silent, SendFault::Lost, SendFault::Forgotten, SendFault::Refused] {
        let mut bench = Bench::guarded_refilling(Engine::Sqlite, 1).await;
        bench.world.chain.script_sends([fault; 3]);
        bench.minute().await;
        bench.blocks(8).await;
        bench.minute().await;
        bench.blocks(FINALITY_DEPTH + 3).await;
        assert_eq!(bench.world.chain.refills(), [(bench.sponsor(0), U256::from(GIVEN), 0)], "{fault:?}");
        assert_eq!(bench.refill_states().await, [RefillState::Landed], "{fault:?}");
        bench.close_even().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_reorg_took_back_is_given_again_with_the_same_guard() {
    for forgets in [false, true] {
        let mut bench = Bench::guarded_refilling(Engine::Sqlite, 2).await;
        bench.minute().await;
        let latest = bench.world.chain.latest().number;
        bench.block().await;
        let [given] = bench.world.chain.refills()[..] else { panic!("one refill") };
        bench.world.chain.fork_at(latest);
        if forgets {
            bench.world.chain.forget_pool();
        }
        bench.world.chain.mine_empty(2);
        // The other sponsor is poor, too, and waits.
        bench.minute().await;
        bench.follow().await;
        assert_eq!(bench.world.chain.refills(), []);
        bench.minute().await;
        bench.block().await;
        assert_eq!(bench.world.chain.refills(), [given], "forgets: {forgets}");
        assert_eq!(bench.refills().await.len(), 1);
        bench.blocks(FINALITY_DEPTH + 1).await;
        assert_eq!(bench.refill_states().await, [RefillState::Landed]);
        bench.close_even().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_was_set_back_knows_by_the_journal_what_was_given() {
    for is_lost in [false, true] {
        let mut before = Bench::guarded_refilling(Engine::Sqlite, 2).await.read_first().await;
        let earlier = before.copied().await;
        before.minute().await;
        if is_lost {
            before.world.chain.forget_pool();
        } else {
            before.blocks(FINALITY_DEPTH + 1).await;
        }
        let refills = before.refills().await;
        let [given] = &refills[..] else { panic!("one refill: {refills:?}") };
        let (id, number, amount) = (given.id, given.number, given.amount);
        // The store alone is set back.
        before.set_back_to(earlier, false);
        before.world.pass(LEASE_OVER);
        before.follow().await;
        assert!(before.recovers().await);
        let [known] = &before.refills().await[..] else { panic!("it is known again") };
        assert_eq!((known.id, known.number, known.amount), (id, number, amount));
        before.minute().await;
        assert_eq!(before.tries().await, [], "nothing is signed while it recovers");
        // What the lost store signed is dead by then.
        before.world.chain.mine_empty(RECOVERY_BLOCKS);
        before.follow().await;
        assert!(!before.recovers().await);
        for _ in 0..3 {
            before.minute().await;
            before.blocks(FINALITY_DEPTH + 2).await;
        }
        before.minute().await;
        let given = U256::from(GIVEN);
        let all = [(before.sponsor(0), given, 0), (before.sponsor(1), given, 1)];
        assert_eq!(before.world.chain.refills(), all, "each once, and no guard twice: lost {is_lost}");
        let ended = if is_lost { RefillState::Landed } else { RefillState::Passed };
        assert_eq!(before.refill_states().await, [ended, RefillState::Landed]);
        assert_eq!(states(&before).await, [SponsorState::Active; 3]);
        assert!(before.foreign().await.is_empty());
        let costs = if is_lost { Vec::new() } else { vec![(GUARD_RENT + FEE).to_string()] };
        assert_eq!(before.unrecorded_costs().await, costs, "what a sponsor got is no cost");
        before.hour().await;
        before.assert_even().await;
        before.world.abandon();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_store_and_journal_were_set_back_the_treasurys_number_follows_the_chain() {
    for is_final in [false, true] {
        let mut before = Bench::guarded_refilling(Engine::Sqlite, 1).await.read_first().await;
        let earlier = before.copied().await;
        before.minute().await;
        before.block().await;
        if is_final {
            before.blocks(FINALITY_DEPTH + 1).await;
        }
        before.set_back_to(earlier, true);
        // What it would give then is another content.
        before.set_floor(WEALTH + 2, REFILL_TO + 7);
        for _ in 0..3 {
            before.follow().await;
            before.minute().await;
            before.blocks(FINALITY_DEPTH + 2).await;
        }
        let once = [(before.sponsor(0), U256::from(GIVEN), 0)];
        assert_eq!(before.world.chain.refills(), once, "the sponsor is rich");
        before.want_more();
        before.minute().await;
        before.blocks(FINALITY_DEPTH + 2).await;
        let numbers: Vec<u64> = before.world.chain.refills().iter().map(|(_, _, nonce)| *nonce).collect();
        assert_eq!(numbers, [0, 1], "final: {is_final}");
        assert_eq!(before.owns(&before.sponsor(0)), U256::from(WEALTH + 100_001));
        assert!(before.foreign().await.is_empty(), "{:?}", before.foreign().await);
        assert_eq!(states(&before).await, [SponsorState::Active; 2]);
        assert_eq!(before.unrecorded_costs().await, [(GUARD_RENT + FEE).to_string()]);
        before.hour().await;
        before.assert_even().await;
        before.world.abandon();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_copies_with_a_journal_each_one_gives_with_a_number_and_the_other_goes_on_behind_it() {
    let mut ours = Bench::guarded_refilling(Engine::Sqlite, 1).await;
    let mut theirs = ours.copied().await;
    theirs.set_floor(WEALTH + 2, REFILL_TO + 7);
    // It signs another content, which no node has yet.
    ours.world.chain.script_sends([SendFault::Lost; 1_000]);
    theirs.minute().await;
    assert_eq!(theirs.tries().await, [(0, 0)]);
    ours.world.chain.take_sends();
    ours.world.pass(LEASE_OVER);
    ours.minute().await;
    ours.blocks(FINALITY_DEPTH + 2).await;
    let once = [(ours.sponsor(0), U256::from(GIVEN), 0)];
    assert_eq!(ours.world.chain.refills(), once);
    // Now nodes have theirs, too, and it fails.
    ours.world.chain.pool_all();
    ours.block().await;
    assert_eq!((ours.world.chain.refills(), ours.world.chain.landed_guarded()), (once.to_vec(), (2, 1)));
    ours.blocks(FINALITY_DEPTH + 2).await;
    theirs.world.catch_up().await;
    theirs.minute().await;
    theirs.minute().await;
    assert_eq!(theirs.refill_states().await, [RefillState::Passed]);
    assert!(theirs.foreign().await.is_empty(), "{:?}", theirs.foreign().await);
    theirs.want_more();
    theirs.minute().await;
    theirs.blocks(FINALITY_DEPTH + 2).await;
    let numbers: Vec<u64> = ours.world.chain.refills().iter().map(|(_, _, nonce)| *nonce).collect();
    assert_eq!(numbers, [0, 1]);
    theirs.world.abandon();
    ours.world.abandon();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_signer_signs_one_content_for_a_number_whichever_store_asks() {
    let mut ours = Bench::guarded_refilling(Engine::Sqlite, 1).await;
    let copy = ours.copied().await;
    let (signer, sender) = (ours.signer.clone(), sender(&copy.world, &ours.signer, 1_000));
    let mut theirs = Bench { signer, sender, ..copy };
    theirs.set_floor(WEALTH + 2, REFILL_TO + 7);
    ours.world.chain.script_sends([SendFault::Lost; 1_000]);
    ours.minute().await;
    let signed = ours.signer.seq();
    theirs.minute().await;
    let [given] = &theirs.refills().await[..] else { panic!("what the journal has") };
    assert_eq!((given.amount, given.nonce), (U256::from(GIVEN), 0));
    assert_eq!(theirs.signer.seq(), signed, "nothing else was signed");
    theirs.world.abandon();
    ours.world.abandon();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guards_that_somebody_else_made_are_passed_over() {
    for (made, ticks) in [(3, 1), (40, 3)] {
        let mut bench = Bench::guarded_refilling(Engine::Sqlite, 1).await;
        for nonce in 0..made {
            bench.world.chain.make_guard(bench.refill_key(nonce));
        }
        for _ in 0..ticks {
            bench.minute().await;
        }
        bench.block().await;
        assert_eq!(bench.world.chain.refills(), [(bench.sponsor(0), U256::from(GIVEN), made)]);
        bench.blocks(FINALITY_DEPTH + 1).await;
        assert_eq!(bench.refill_states().await, [RefillState::Landed]);
        bench.close_even().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_leaves_a_treasury_beside_what_a_sponsor_gets_is_foreign() {
    let cases = [(GUARD_RENT, false), (GUARD_RENT + 2, true)];
    for (engine, (beside, is_foreign)) in ENGINES.into_iter().flat_map(|engine| cases.map(|case| (engine, case))) {
        let mut bench = Bench::guarded_refilling(engine, 1).await.read_first().await;
        bench.set_floor(1, 2);
        let (treasury, sponsor) = (bench.treasury(), bench.sponsor(0));
        let legs = [(sponsor, GIVEN), (address(STRANGER), beside)].map(|(to, of)| SimLeg::native(treasury, to, of));
        let tx = SimTx::new(treasury, 0, legs.to_vec());
        bench.world.chain.mine(vec![SimTx { tx: TxRef { life: TxLife::Block, ..tx.tx }, ..tx }]);
        bench.blocks(FINALITY_DEPTH + 1).await;
        assert_eq!(bench.foreign().await.len(), usize::from(is_foreign), "{beside}");
        let expected = if is_foreign { SponsorState::Quarantined } else { SponsorState::Active };
        assert_eq!(states(&bench).await, [SponsorState::Active, expected]);
        bench.hour().await;
        bench.assert_even().await;
        bench.world.abandon();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_given_while_sending_is_stopped_nor_to_or_by_who_is_not_active() {
    for case in ["halted", "sponsor", "treasury"] {
        let mut bench = Bench::guarded_refilling(Engine::Sqlite, 1).await;
        let (operator, chain) = (bench.world.operator(), bench.world.network.chain);
        let (active, paused) = (SponsorState::Active, SponsorState::Paused);
        match case {
            "halted" => operator.halt_sending(bench.world.db(), &[chain]).await.unwrap(),
            "sponsor" => operator.set_sponsor(bench.world.db(), chain, 0, (active, paused)).await.unwrap(),
            _ => operator.set_sponsor(bench.world.db(), chain, 1, (active, paused)).await.unwrap(),
        }
        bench.minute().await;
        bench.minute().await;
        assert_eq!((bench.refills().await.len(), bench.tries().await.len()), (0, 0), "{case}");
        bench.close_even().await;
    }
}
