//! Sponsors below the floor are refilled by the treasury of their chain: one at a time, one content for each nonce, whatever
//! dies, forks, forgets or was set back. What moved is compared with the chain's own ledger.

use std::time::Duration;

use landfall::operator::SponsorError;
use landfall::store::refills::{self, RefillState, Refilling};
use landfall::store::sponsors as records;
use landfall::transfer::{SponsorState, State, TransferId};
use landfall_chain::{Address, Family, KeyPath, U256};
use landfall_sim::{SendFault, SimSigner, SimTx, WEALTH};

use super::gas::assert_sponsors_even;
use super::{Bench, LEASE_OVER, sender};
use crate::harness::books::rows;
use crate::harness::lanes::{cuts, cuts_of};
use crate::harness::postgres::{ENGINES, Engine};
use crate::harness::world::{CHAIN, FINALITY_DEPTH};
use crate::past::rescan::execute;

/// Longer than the sender waits between two checks of what sponsors own, and of what became of a refill.
pub(super) const MINUTE: Duration = Duration::from_secs(61);
/// What a sponsor owns behind a refill: it began with a little less than the floor.
pub(super) const REFILL_TO: u128 = WEALTH + 1_000;

impl Bench {
    /// With so many sponsors, all below the floor, and behind them the treasury.
    pub(super) async fn refilling(engine: Engine, sponsors: u32) -> Self {
        Bench::on(engine, sponsors).await.with_treasury().await
    }

    /// All sponsors are below the floor, and behind them is the treasury.
    pub(super) async fn with_treasury(mut self) -> Self {
        let bench = &mut self;
        bench.set_floor(WEALTH + 1, REFILL_TO);
        bench.world.operator().add_treasury(bench.world.db(), CHAIN).await.unwrap();
        // Their addresses are derived.
        bench.tick().await;
        self
    }

    /// By a process of its own.
    pub(super) fn set_floor(&mut self, floor: u128, refill_to: u128) {
        (self.world.network.sending.floor, self.world.network.sending.refill_to) = (floor, refill_to);
        self.restart();
        self.world.pass(LEASE_OVER);
    }

    pub(super) fn treasury(&self) -> Address {
        SimSigner::address(&KeyPath::of_treasury(Family::Evm, &self.world.network.chain_ref))
    }

    /// It is time to check what sponsors own, and the sender does what follows.
    pub(super) async fn minute(&mut self) {
        self.world.pass(MINUTE);
        self.settle().await;
    }

    pub(super) async fn refills(&self) -> Vec<Refilling> {
        let mut all = refills::newest(&mut self.world.db().read().await.unwrap(), CHAIN, 100).await.unwrap();
        all.sort_by_key(|refill| refill.nonce);
        all
    }

    pub(super) async fn refill_states(&self) -> Vec<RefillState> {
        self.refills().await.iter().map(|refill| refill.state).collect()
    }

    /// The nonce and the number of each attempt of the treasury.
    pub(super) async fn tries(&self) -> Vec<(i64, i64)> {
        let treasury = self.treasury();
        let of = self.attempts().await.into_iter().filter(|(sponsor, ..)| sponsor == treasury.as_bytes());
        of.map(|(_, nonce, nth, ..)| (nonce, nth)).collect()
    }

    /// The nonces of the treasury's attempts, each once.
    async fn treasury_nonces(&self) -> Vec<i64> {
        let mut nonces: Vec<i64> = self.tries().await.into_iter().map(|(nonce, _)| nonce).collect();
        nonces.dedup();
        nonces
    }

    /// What the ledger says that refills cost: who bears it, and how much.
    pub(super) async fn refill_costs(&self) -> Vec<(String, String, Option<String>)> {
        let text = "SELECT amount_text, bearer, transfer_id FROM gas_ledger WHERE route = 'refill' ORDER BY entry";
        rows(self.world.db(), text).await
    }

    pub(super) fn owns(&self, address: &Address) -> U256 {
        let latest = self.world.chain.latest().number;
        self.world.chain.balance(address, &landfall_chain::AssetId::Native, latest)
    }

    /// As [`Bench::close`]; what is not refilled, or was given by another store, is in nobody's books here.
    pub(super) async fn close_even(self) {
        assert_sponsors_even(&self.world).await;
        self.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sponsors_below_the_floor_are_refilled_one_after_the_other_each_once_and_the_platform_bears_it() {
    for engine in ENGINES {
        let mut bench = Bench::refilling(engine, 2).await;
        bench.world.chain.set_carrier_fee(7);
        bench.minute().await;
        for _ in 0..4 {
            bench.minute().await;
        }
        assert_eq!((bench.treasury_nonces().await, bench.refill_states().await), (vec![0], vec![RefillState::Open]));
        bench.block().await;
        let given = U256::from(1_000);
        assert_eq!(bench.world.chain.refills(), [(bench.sponsor(0), given, 0)]);
        bench.minute().await;
        assert_eq!(bench.refills().await.len(), 1, "its block is not final");
        bench.blocks(FINALITY_DEPTH + 1).await;
        bench.minute().await;
        assert_eq!(bench.refill_states().await, [RefillState::Landed, RefillState::Open]);
        bench.blocks(FINALITY_DEPTH + 2).await;
        for _ in 0..3 {
            bench.minute().await;
            bench.block().await;
        }
        let both = [(bench.sponsor(0), given, 0), (bench.sponsor(1), given, 1)];
        assert_eq!(bench.world.chain.refills(), both, "once each");
        let [first, second] = &bench.refills().await[..] else { panic!("two refills") };
        assert_eq!(
            (first.number, second.number, first.state, second.state),
            (0, 1, RefillState::Landed, RefillState::Landed)
        );
        assert_eq!(second.id, TransferId::of_refill(&bench.world.network.chain_ref, &bench.treasury(), 1));
        let cost = ("7".to_owned(), "PLATFORM".to_owned(), None);
        assert_eq!(bench.refill_costs().await, [cost.clone(), cost]);
        assert_eq!(bench.owns(&bench.treasury()), U256::from(WEALTH - 2_014), "two refills, and their fees");
        for number in [0, 1] {
            assert_eq!(bench.owns(&bench.sponsor(number)), U256::from(REFILL_TO));
        }
        // The treasury carries no transfer, whoever else rests.
        let id = bench.accept(1, 1_000).await;
        assert_eq!(bench.until_ended(id).await, State::Confirmed);
        assert_eq!(bench.treasury_nonces().await, [0, 1]);
        assert!(bench.foreign().await.is_empty());
        bench.close_even().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_dies_anywhere_refills_once() {
    let mut cut_off = 0;
    for wakeups in cuts(200) {
        let mut bench = Bench::refilling(Engine::Sqlite, 1).await;
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
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_dies_while_a_refill_ends_books_it_once() {
    let mut cut_off = 0;
    for wakeups in cuts(200) {
        let mut bench = Bench::refilling(Engine::Sqlite, 1).await;
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
async fn two_processes_at_once_refill_once() {
    for engine in ENGINES {
        let mut bench = Bench::refilling(engine, 1).await;
        let mut other = sender(&bench.world, &bench.signer, 77);
        bench.sender.release().await.unwrap();
        for _ in 0..20 {
            bench.world.pass(Duration::from_secs(20));
            let clock = bench.world.clock();
            let (one, two) = tokio::join!(bench.sender.tick(&clock), other.tick(&clock));
            assert!(one.is_ok_and(|it| it.is_some()) | two.is_ok_and(|it| it.is_some()), "somebody sends");
        }
        assert_eq!((bench.treasury_nonces().await, bench.refills().await.len()), (vec![0], 1));
        // Either may have the turn.
        other.release().await.unwrap();
        bench.world.pass(LEASE_OVER);
        bench.blocks(FINALITY_DEPTH + 2).await;
        assert_eq!(bench.world.chain.refills().len(), 1);
        bench.close_even().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn raised_fees_keep_the_nonce_and_the_content_and_one_of_the_offers_lands() {
    let mut bench = Bench::refilling(Engine::Sqlite, 1).await;
    bench.minute().await;
    bench.world.chain.set_base_fee(1_000_000_000_000);
    // The clock is more than a minute ahead of the chain's.
    bench.blocks(16).await;
    let tries = bench.tries().await;
    assert!(tries.len() > 1 && tries.iter().all(|(nonce, _)| *nonce == 0), "{tries:?}");
    bench.world.chain.pool_all();
    bench.world.chain.set_base_fee(1);
    bench.blocks(FINALITY_DEPTH + 2).await;
    assert_eq!(bench.world.chain.refills(), [(bench.sponsor(0), U256::from(1_000), 0)]);
    assert_eq!(bench.world.chain.sent(&bench.treasury()), 1);
    bench.close_even().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_a_node_says_of_a_broadcast_a_sponsor_is_refilled_once() {
    let faults = [SendFault::Silent, SendFault::Lost, SendFault::Forgotten, SendFault::Refused, SendFault::NonceUsed];
    for fault in faults {
        let mut bench = Bench::refilling(Engine::Sqlite, 1).await;
        bench.world.chain.script_sends([fault; 3]);
        bench.minute().await;
        bench.blocks(8).await;
        bench.minute().await;
        bench.blocks(FINALITY_DEPTH + 3).await;
        assert_eq!(bench.world.chain.refills(), [(bench.sponsor(0), U256::from(1_000), 0)], "{fault:?}");
        assert_eq!(bench.refill_states().await, [RefillState::Landed], "{fault:?}");
        bench.close_even().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_reorg_took_back_is_carried_again_with_the_same_content() {
    for forgets in [false, true] {
        let mut bench = Bench::refilling(Engine::Sqlite, 2).await;
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
async fn what_final_blocks_showed_that_were_given_up_is_carried_again() {
    let mut bench = Bench::refilling(Engine::Sqlite, 1).await;
    bench.minute().await;
    // As it is on record behind a reorg of final blocks that a person accepted.
    execute(bench.world.db(), "UPDATE refills SET state = 'landed'").await;
    bench.world.chain.forget_pool();
    bench.blocks(FINALITY_DEPTH + 1).await;
    assert_eq!(bench.world.chain.refills(), []);
    bench.minute().await;
    bench.blocks(2).await;
    assert_eq!(bench.world.chain.refills(), [(bench.sponsor(0), U256::from(1_000), 0)]);
    bench.blocks(FINALITY_DEPTH + 1).await;
    assert_eq!((bench.refill_states().await, bench.treasury_nonces().await), (vec![RefillState::Landed], vec![0]));
    bench.close_even().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_was_set_back_knows_by_the_journal_what_its_treasury_gave() {
    for is_lost in [false, true] {
        let mut before = Bench::refilling(Engine::Sqlite, 2).await;
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
        before.until_recovered().await;
        before.minute().await;
        before.blocks(FINALITY_DEPTH + 2).await;
        before.minute().await;
        before.blocks(FINALITY_DEPTH + 2).await;
        before.minute().await;
        let all = [(before.sponsor(0), U256::from(1_000), 0), (before.sponsor(1), U256::from(1_000), 1)];
        assert_eq!(before.world.chain.refills(), all, "each once, and no nonce twice: lost {is_lost}");
        let ended = if is_lost { RefillState::Landed } else { RefillState::Passed };
        assert_eq!(before.refill_states().await, [ended, RefillState::Landed]);
        assert_eq!(states(&before).await, [SponsorState::Active; 3]);
        assert!(before.foreign().await.is_empty());
        before.world.abandon();
    }
}

pub(super) async fn states(bench: &Bench) -> Vec<SponsorState> {
    let all = records::of_chain(&mut bench.world.db().read().await.unwrap(), CHAIN).await.unwrap();
    all.iter().map(|sponsor| sponsor.state).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_store_and_journal_were_set_back_the_treasurys_nonce_follows_the_chain() {
    for is_final in [false, true] {
        let mut before = Bench::refilling(Engine::Sqlite, 1).await;
        let earlier = before.copied().await;
        before.minute().await;
        if is_final {
            before.blocks(FINALITY_DEPTH + 2).await;
        }
        before.set_back_to(earlier, true);
        // What it does then would be another content of the same nonce.
        before.set_floor(WEALTH + 2, REFILL_TO + 7);
        before.follow().await;
        before.minute().await;
        before.blocks(FINALITY_DEPTH + 2).await;
        before.minute().await;
        before.blocks(FINALITY_DEPTH + 2).await;
        let refills = before.world.chain.refills();
        let nonces: Vec<u64> = refills.iter().map(|(_, _, nonce)| *nonce).collect();
        assert!(nonces == [0], "one landed, and then the sponsor is rich: {refills:?}");
        // It is asked for more than that.
        before.set_floor(WEALTH + 100_000, WEALTH + 100_001);
        before.minute().await;
        before.blocks(FINALITY_DEPTH + 2).await;
        let nonces: Vec<u64> = before.world.chain.refills().iter().map(|(_, _, nonce)| *nonce).collect();
        assert_eq!(nonces, [0, 1], "final: {is_final}");
        assert_eq!(before.owns(&before.sponsor(0)), U256::from(WEALTH + 100_001));
        assert!(before.foreign().await.is_empty(), "{:?}", before.foreign().await);
        assert_eq!(states(&before).await, [SponsorState::Active; 2]);
        before.world.abandon();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_signer_refuses_another_content_for_a_nonce_and_what_its_journal_has_is_carried() {
    let mut ours = Bench::refilling(Engine::Sqlite, 1).await;
    // Another store asks the same signer.
    let copy = ours.copied().await;
    let (signer, sender) = (ours.signer.clone(), sender(&copy.world, &ours.signer, 1_000));
    let mut theirs = Bench { signer, sender, ..copy };
    theirs.set_floor(WEALTH + 2, REFILL_TO + 7);
    execute(theirs.world.db(), "UPDATE sponsors SET state = 'paused' WHERE number = 0").await;
    theirs.tick().await;
    execute(theirs.world.db(), "UPDATE sponsors SET state = 'active' WHERE number = 0").await;
    // It is on record there, and ours is signed first.
    ours.signer.away(true);
    ours.world.pass(MINUTE);
    theirs.sender.tick(&theirs.world.clock()).await.unwrap_err();
    let planned: Vec<U256> = theirs.refills().await.iter().map(|refill| refill.amount).collect();
    assert_eq!(planned, [U256::from(1_007)]);
    ours.signer.away(false);
    ours.world.chain.script_sends([SendFault::Lost; 100]);
    ours.settle().await;
    let signed = ours.signer.seq();
    assert_eq!(ours.tries().await, [(0, 0)]);
    theirs.tick().await;
    assert_eq!((theirs.refills().await.len(), theirs.tries().await.len()), (0, 0), "it is refused, and forgotten");
    theirs.minute().await;
    let [given] = &theirs.refills().await[..] else { panic!("what the journal has") };
    assert_eq!((given.amount, given.nonce), (U256::from(1_000), 0));
    assert_eq!(theirs.signer.seq(), signed, "nothing else was signed");
    ours.world.chain.take_sends();
    theirs.until_recovered().await;
    theirs.minute().await;
    theirs.blocks(FINALITY_DEPTH + 2).await;
    assert_eq!(ours.world.chain.refills()[0], (ours.sponsor(0), U256::from(1_000), 0));
    theirs.world.abandon();
    ours.world.abandon();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_treasury_that_owns_too_little_gives_nothing_and_is_an_alarm() {
    let mut bench = Bench::refilling(Engine::Sqlite, 1).await;
    bench.set_floor(WEALTH + 1, 3 * WEALTH);
    bench.minute().await;
    bench.blocks(2).await;
    assert_eq!((bench.refills().await.len(), bench.tries().await.len()), (0, 0));
    let known = records::of_chain(&mut bench.world.db().read().await.unwrap(), CHAIN).await.unwrap();
    assert!(known.iter().all(|sponsor| sponsor.poor_since.is_some()), "{known:?}");
    // It has what it would give, and nothing for the fee: others are carried.
    bench.set_floor(WEALTH + 1, 2 * WEALTH);
    bench.minute().await;
    assert_eq!(bench.refill_states().await, []);
    let id = bench.accept(1, 1_000).await;
    assert_eq!(bench.until_ended(id).await, State::Confirmed);
    assert_eq!(bench.world.chain.refills(), []);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_given_while_sending_is_stopped_or_recovers_nor_to_or_by_who_is_not_active() {
    for case in ["halted", "recovers", "sponsor", "treasury"] {
        let mut bench = Bench::refilling(Engine::Sqlite, 1).await;
        let operator = bench.world.operator();
        let (active, paused) = (SponsorState::Active, SponsorState::Paused);
        match case {
            "halted" => operator.halt_sending(bench.world.db(), &[CHAIN]).await.unwrap(),
            "recovers" => operator.recover_sending(bench.world.db(), &[CHAIN]).await.unwrap(),
            "sponsor" => operator.set_sponsor(bench.world.db(), CHAIN, 0, (active, paused)).await.unwrap(),
            _ => operator.set_sponsor(bench.world.db(), CHAIN, 1, (active, paused)).await.unwrap(),
        }
        bench.minute().await;
        bench.minute().await;
        assert_eq!((bench.refills().await.len(), bench.tries().await.len()), (0, 0), "{case}");
        bench.close_even().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_to_be_given_to_a_sponsor_that_a_person_quarantined_is_not_signed() {
    let mut bench = Bench::refilling(Engine::Sqlite, 1).await;
    bench.signer.away(true);
    bench.world.pass(MINUTE);
    bench.sender.tick(&bench.world.clock()).await.unwrap_err();
    assert_eq!((bench.refills().await.len(), bench.tries().await.len()), (1, 1), "it is on record");
    let before = bench.signer.seq();
    bench.world.operator().quarantine_sponsor(bench.world.db(), CHAIN, 0).await.unwrap();
    bench.signer.away(false);
    bench.minute().await;
    bench.minute().await;
    assert_eq!(bench.signer.seq(), before);
    let states = (SponsorState::Quarantined, SponsorState::Active);
    bench.world.operator().set_sponsor(bench.world.db(), CHAIN, 0, states).await.unwrap();
    bench.minute().await;
    bench.blocks(FINALITY_DEPTH + 2).await;
    assert_eq!(bench.world.chain.refills(), [(bench.sponsor(0), U256::from(1_000), 0)]);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_treasury_whose_key_somebody_else_uses_is_quarantined_and_goes_on_behind_his_nonce_once_released() {
    let mut bench = Bench::refilling(Engine::Sqlite, 1).await;
    bench.world.chain.script_sends([SendFault::Lost; 100]);
    bench.minute().await;
    bench.world.chain.mine(vec![SimTx::new(bench.treasury(), 0, Vec::new())]);
    bench.blocks(FINALITY_DEPTH + 1).await;
    let [incident] = &bench.foreign().await[..] else { panic!("one incident") };
    assert!(incident.what.contains("with nonce 0"), "{}", incident.what);
    assert_eq!(states(&bench).await, [SponsorState::Active, SponsorState::Quarantined]);
    bench.world.chain.take_sends();
    bench.minute().await;
    assert_eq!(bench.refill_states().await, [RefillState::Passed]);
    bench.minute().await;
    assert_eq!(bench.refills().await.len(), 1, "it signs nothing more");
    let states = (SponsorState::Quarantined, SponsorState::Active);
    bench.world.operator().set_sponsor(bench.world.db(), CHAIN, 1, states).await.unwrap();
    bench.settle().await;
    bench.minute().await;
    bench.blocks(FINALITY_DEPTH + 2).await;
    assert_eq!(bench.world.chain.refills(), [(bench.sponsor(0), U256::from(1_000), 1)]);
    assert_eq!(bench.refill_states().await, [RefillState::Passed, RefillState::Landed]);
    bench.close().await;
}

#[tokio::test]
async fn a_chain_has_one_treasury() {
    let bench = Bench::on(Engine::Sqlite, 1).await;
    let (operator, db) = (bench.world.operator(), bench.world.db());
    assert_eq!(operator.add_treasury(db, CHAIN).await.unwrap(), 1);
    let again = operator.add_treasury(db, CHAIN).await.unwrap_err();
    assert!(matches!(again, SponsorError::HasTreasury { number: 1, .. }), "{again}");
    assert_eq!(operator.add_sponsors(db, CHAIN, 1).await.unwrap(), [2]);
    bench.close().await;
}
