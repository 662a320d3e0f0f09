//! What stops the sending: an operator who halts a chain, and accounts that are frozen or closed. From then on nothing
//! is signed for the first time, what was sent runs to its end, and nothing ends without its proof.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use landfall::account::{AccountStatus, AccountType, NewAccount};
use landfall::gas::OverCredit;
use landfall::identity::{Change, IdentityType, NewIdentity};
use landfall::registry::{self, AcceptError, Terms};
use landfall::request::Made;
use landfall::sender::Sender;
use landfall::store::sponsors;
use landfall::time::Timestamp;
use landfall::transfer::{FailureCode, Order, SponsorState, State, Transfer, TransferId};
use landfall::watcher::{BalanceWatch, BalancesRead, Follower, Ticked};
use landfall_chain::{Chain, Network, U256};
use landfall_sim::{Fault, SendFault, SimChain, SimPool, SimSigner};

use super::{Bench, LEASE_OVER, TICKS_MAX, USDC, alice, may_pass};
use crate::harness::books::rows;
use crate::harness::postgres::{ENGINES, Engine, TestStore};
use crate::harness::world::{CHAIN, FINALITY_DEPTH, World, erc3009, report};
use crate::past::rescan::execute;

/// Another chain on the same store.
const OTHER: Chain = Chain::BaseSepolia;
/// Its watcher reports the same as that of the first.
const FOLLOWED_TOO: &str = "INSERT INTO chain_status (chain, state, reason, proof, latest, finalized, caught_up_us, \
                            heartbeat_us, finalized_us, alarms) SELECT 'BASE_SEPOLIA', state, reason, proof, latest, \
                            finalized, caught_up_us, heartbeat_us, finalized_us, alarms FROM chain_status";
/// Alice's, where it is not the default one, which cannot be terminated.
const IDENTITY: &str = "acme";
const REFUSE: Terms = Terms { can_sign: true, over_credit: OverCredit::Refuse };
/// An attempt that makes a guard is followed by another one after so long.
const NEXT: Duration = Duration::from_secs(21);

async fn stop(world: &World) {
    world.operator().halt_sending(world.db(), &[CHAIN]).await.unwrap();
}

async fn resume(world: &World) {
    assert_eq!(world.operator().resume_sending(world.db(), &[CHAIN]).await.unwrap(), [CHAIN], "it was stopped");
}

impl Bench {
    /// With one sponsor, and Alice in an identity that can be terminated.
    async fn of_identity(engine: Engine) -> Self {
        let store = TestStore::fresh(engine).await;
        let new = NewIdentity { kind: IdentityType::Individual, label: String::new(), fiat_operations_enabled: false };
        registry::add_identity(&store.db, IDENTITY, &new, Timestamp::EPOCH).await.unwrap();
        let (identity_id, addresses) = (Some(IDENTITY.to_owned()), BTreeSet::new());
        let account = NewAccount { id: "alice".to_owned(), identity_id, kind: AccountType::Segregated, addresses };
        registry::add_accounts(&store.db, &[account], Timestamp::EPOCH).await.unwrap();
        Bench::by_route(store, 1, 1, erc3009()).await
    }

    /// The types of the events of a transfer, in their order.
    async fn events_of(&self, id: TransferId) -> Vec<String> {
        let text = "SELECT aggregateid, type FROM events ORDER BY aggregateid, position";
        let all: Vec<(String, String)> = rows(self.world.db(), text).await;
        all.into_iter().filter(|(of, _)| *of == id.to_string()).map(|(_, kind)| kind).collect()
    }

    /// As [`Bench::accept`], where nothing is to be billed: what is answered.
    async fn ask(&self, n: u32, amount: u64) -> Result<(Transfer, Made), AcceptError> {
        report(&self.world).await;
        registry::accept_transfer(self.world.db(), &self.order(n, amount), REFUSE, self.world.now()).await
    }

    /// What ended it stands on record with the time of the block that showed it, and the endpoints that reported the state of
    /// the key in it.
    async fn assert_evidence(&self, id: TransferId, evidence: &str, endpoints: &[&str]) {
        let changes = self.changes(id).await;
        let Some(ended) = changes.last() else { panic!("{id} has no history") };
        let block = ended.block.unwrap();
        let blocks = self.world.chain.blocks();
        let shown = blocks.iter().find(|shown| shown.header.block == block).unwrap();
        assert_eq!(ended.block_time, Some(Timestamp::from_secs(shown.header.time_secs)), "{ended:?}");
        let reported_by: Vec<&str> = ended.reported_by.iter().map(String::as_str).collect();
        assert_eq!((ended.evidence.as_str(), &reported_by[..]), (evidence, endpoints), "{ended:?}");
        let accepted = (changes[0].block, changes[0].block_time, changes[0].reported_by.len());
        assert_eq!(accepted, (None, None, 0), "it was accepted in no block");
    }

    /// The request that comes again is answered with its transfer, as that is now.
    async fn assert_answered(&self, n: u32, amount: u64, id: TransferId) {
        let answered = self.ask(n, amount).await.unwrap();
        assert_eq!(answered, (self.shown(id).await, Made::Before));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_sending_is_stopped_nothing_is_signed_or_sent_and_what_was_sent_is_confirmed() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine, 1).await;
        let carried = bench.accept(1, 4_000_000).await;
        bench.settle().await;
        assert_eq!(bench.state(carried).await, State::Carried);
        let unsigned = bench.accept(2, 1_000_000).await;
        let deadline = bench.shown(unsigned).await.deadline;
        stop(&bench.world).await;
        let signed = bench.signer.seq();
        // Each broadcast would meet one of these, and be counted.
        bench.world.chain.script_sends([SendFault::Refused; 100]);
        bench.settle().await;
        while bench.final_time() < deadline {
            assert_eq!(bench.state(unsigned).await, State::Accepted, "{engine:?}: it is not proved");
            assert_eq!(bench.available().await, U256::from(USDC - 5_000_000), "{engine:?}: its money is reserved");
            bench.block().await;
        }
        assert_eq!(bench.state(carried).await, State::Confirmed, "{engine:?}");
        let dropped = bench.shown(unsigned).await;
        let why = "an operator had stopped the sending until the end of the window";
        assert_eq!(dropped.state, State::Dropped(FailureCode::SenderStopped), "{engine:?}");
        assert_eq!(dropped.reason.as_deref(), Some(why));
        bench.assert_evidence(unsigned, "never_used", &["sim"]).await;
        bench.assert_evidence(carried, "final", &[]).await;
        assert_eq!(bench.available().await, U256::from(USDC - 4_000_000), "{engine:?}: its money is free again");
        assert_eq!((bench.signer.seq(), bench.attempts().await.len()), (signed, 1), "{engine:?}");
        assert_eq!(bench.world.chain.sends_struck(), BTreeMap::new(), "{engine:?}: nothing was handed to a node");
        bench.world.chain.take_sends();
        resume(&bench.world).await;
        let further = bench.accept(3, 1_000_000).await;
        assert_eq!(bench.until_ended(further).await, State::Confirmed, "{engine:?}");
        assert_eq!(bench.signer.deadline(unsigned.0.as_bytes()), None, "{engine:?}");
        assert_eq!(bench.events_of(unsigned).await, ["transfer_failed"], "{engine:?}");
        let expected = ["transfer_submitted", "transfer_reconciliation", "transfer_reconciliation"];
        assert_eq!(bench.events_of(carried).await, expected, "{engine:?}");
        bench.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_that_no_node_has_when_the_sending_is_stopped_are_handed_over_behind_the_stop_and_pay_once() {
    for (engine, is_first) in ENGINES.into_iter().flat_map(|engine| [(engine, true), (engine, false)]) {
        let mut bench = Bench::on(engine, 1).await;
        bench.world.chain.script_sends([SendFault::Lost]);
        let id = bench.accept(1, 1_000_000).await;
        bench.settle().await;
        if is_first {
            // As a process leaves it that died with the bytes on record, before it handed them over.
            let text = "UPDATE transfer_attempts SET sent_us = NULL, resent_us = NULL, response = NULL";
            execute(bench.world.db(), text).await;
            bench.restart();
            bench.world.pass(LEASE_OVER);
        }
        stop(&bench.world).await;
        let signed = bench.signer.seq();
        bench.world.chain.script_sends([SendFault::Refused; 100]);
        bench.settle().await;
        // Longer than bytes wait to be sent again, and shorter than it takes until their fees are raised.
        bench.blocks(2).await;
        let struck = bench.world.chain.sends_struck();
        assert_eq!(struck, BTreeMap::from([("lost", 1)]), "{engine:?}, first: {is_first}");
        assert_eq!((bench.state(id).await, bench.signer.seq()), (State::Carried, signed));
        bench.world.chain.take_sends();
        resume(&bench.world).await;
        bench.settle().await;
        assert_eq!(bench.world.chain.pooled(), [(bench.sponsor(0), 0)], "{engine:?}, first: {is_first}");
        assert_eq!(bench.until_ended(id).await, State::Confirmed, "{engine:?}, first: {is_first}");
        assert_eq!((bench.payments(id).len(), bench.attempts().await.len()), (1, 1));
        bench.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_keeps_a_transfer_with_a_guard_from_its_next_attempt() {
    for engine in ENGINES {
        let mut bench = Bench::guarded(engine).await;
        let id = bench.accept(1, 1_000_000).await;
        bench.settle().await;
        stop(&bench.world).await;
        bench.world.chain.forget_pool();
        let signed = bench.signer.seq();
        // Longer than it takes until another attempt is made.
        bench.blocks(3).await;
        assert_eq!((bench.signer.seq(), bench.attempts().await.len()), (signed, 1), "{engine:?}");
        assert!(bench.world.chain.pooled_guarded().is_empty(), "{engine:?}");
        resume(&bench.world).await;
        bench.settle().await;
        assert_eq!(bench.attempts().await.len(), 2, "{engine:?}");
        assert_eq!(bench.until_ended(id).await, State::Confirmed, "{engine:?}");
        assert_eq!(bench.payments(id).len(), 1, "{engine:?}");
        bench.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tick_that_is_under_way_signs_and_sends_nothing_more_from_the_stop_on() {
    for engine in ENGINES {
        let mut held = 0;
        for calls in 0..6 {
            let mut bench = Bench::on(engine, 1).await;
            // The sponsor is derived, and then checked.
            bench.tick().await;
            bench.tick().await;
            let id = bench.accept(1, 1_000_000).await;
            // It stands still in its call after so many others, and meanwhile a person stops the sending.
            let (world, signer) = (&bench.world, bench.signer.clone());
            world.chain.script(vec![Fault::Late(Duration::ZERO); calls]);
            world.chain.script([Fault::Held]);
            let is_held = || world.chain.struck().keys().any(|(_, fault)| *fault == Fault::Held.name());
            let (clock, has_ended) = (world.clock(), Cell::new(false));
            let ticks = async {
                let ended = bench.sender.tick(&clock).await;
                has_ended.set(true);
                ended
            };
            let stops = async {
                while !is_held() && !has_ended.get() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                stop(world).await;
                let before = (signer.seq(), world.chain.pooled());
                world.chain.behave();
                world.chain.release();
                (is_held(), before)
            };
            let (ticked, (was_held, before)) = tokio::join!(ticks, stops);
            if let Err(error) = &ticked {
                assert!(may_pass(error), "{error}");
            }
            bench.settle().await;
            let now = (bench.signer.seq(), bench.world.chain.pooled());
            assert_eq!(now, before, "{engine:?}, {calls} calls: {ticked:?}");
            if was_held {
                held += 1;
                let found = (bench.state(id).await, bench.attempts().await.len());
                assert_eq!(found, (State::Accepted, 0), "{engine:?}, {calls} calls");
            }
            resume(&bench.world).await;
            assert_eq!(bench.until_ended(id).await, State::Confirmed, "{engine:?}, {calls} calls");
            assert_eq!(bench.payments(id).len(), 1, "{engine:?}, {calls} calls");
            bench.close().await;
        }
        assert!(held > 2, "{engine:?}: {held} ticks stood still");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_behind_the_signature_makes_no_carrier_and_what_it_outlasts_is_dropped_as_what_was_signed() {
    for (engine, outlasts) in ENGINES.into_iter().flat_map(|engine| [(engine, false), (engine, true)]) {
        // Nobody can carry it yet.
        let mut bench = Bench::on(engine, 0).await;
        let id = bench.accept(1, 1_000_000).await;
        let deadline = bench.shown(id).await.deadline;
        bench.settle().await;
        assert!(bench.signer.deadline(id.0.as_bytes()).is_some(), "{engine:?}: it is signed");
        stop(&bench.world).await;
        bench.add_sponsors(1).await;
        let signed = bench.signer.seq();
        if outlasts {
            while bench.final_time() < deadline {
                assert_eq!(bench.state(id).await, State::Accepted, "{engine:?}: it is not proved");
                bench.block().await;
            }
            assert_eq!(bench.state(id).await, State::Dropped(FailureCode::WindowElapsed), "{engine:?}");
        } else {
            bench.blocks(5).await;
            assert_eq!(bench.state(id).await, State::Accepted, "{engine:?}");
        }
        assert_eq!((bench.signer.seq(), bench.attempts().await.len()), (signed, 0), "{engine:?}");
        resume(&bench.world).await;
        if outlasts {
            bench.blocks(2).await;
            assert_eq!((bench.payments(id).len(), bench.available().await), (0, U256::from(USDC)), "{engine:?}");
            assert_eq!(bench.events_of(id).await, ["transfer_failed"], "{engine:?}");
        } else {
            assert_eq!(bench.until_ended(id).await, State::Confirmed, "{engine:?}");
            assert_eq!(bench.payments(id).len(), 1, "{engine:?}");
        }
        bench.close().await;
    }
}

/// Another chain on the store of a bench, with a watcher, a signer and a sender of its own.
struct Beside {
    chain: SimChain,
    network: Network,
    watcher: Follower<SimPool>,
    sender: Sender<SimChain>,
}

impl Beside {
    /// With a sponsor. It has as many blocks as the first one, and Alice owns there what everybody does at first.
    async fn of(bench: &Bench) -> Self {
        let (world, db, now) = (&bench.world, bench.world.db(), bench.world.now());
        let chain = SimChain::new(2);
        chain.set_finality_depth(Some(FINALITY_DEPTH));
        let network = Network { chain: OTHER, chain_ref: "eip155:84532".to_owned(), ..world.network.clone() };
        let mut watch = BalanceWatch::new(chain.clone(), db.clone(), &network, 20, "one".to_owned());
        watch.tick(now, 0).await.unwrap();
        let (id, addresses) = ("alice".to_owned(), [(OTHER, alice())].into());
        let account = NewAccount { id, identity_id: None, kind: AccountType::Segregated, addresses };
        registry::add_accounts(db, &[account], now).await.unwrap();
        let mut tx = db.begin().await.unwrap();
        sponsors::add(&mut tx, OTHER, false, now).await.unwrap();
        tx.commit().await.unwrap();
        let watcher = world.watcher_of(SimPool::of(chain.clone()), network.clone());
        let signer = SimSigner::of(chain.clone());
        let owner = "process 0".to_owned();
        let sender = Sender::new(chain.clone(), db.clone(), network.clone(), Arc::new(signer), owner);
        let mut beside = Beside { chain, network, watcher, sender };
        beside.chain.mine_empty(FINALITY_DEPTH + 1);
        beside.catch_up(world).await;
        beside.chain.mine_empty(world.chain.latest().number - beside.chain.latest().number);
        beside.catch_up(world).await;
        while watch.tick(now, 0).await.unwrap() != BalancesRead::default() {}
        beside
    }

    async fn catch_up(&mut self, world: &World) {
        for _ in 0..1_000 {
            let ticked = self.watcher.tick(world.now()).await.unwrap();
            if (Ticked { tip: None, caught_up: true, ..Ticked::default() }) == (Ticked { tip: None, ..ticked }) {
                return;
            }
        }
        panic!("the watcher of {OTHER} does not come to rest");
    }

    async fn accept(&self, bench: &Bench, n: u32) -> TransferId {
        report(&bench.world).await;
        execute(bench.world.db(), FOLLOWED_TOO).await;
        let chain_ref = self.network.chain_ref.clone();
        let order = Order { chain: OTHER, chain_ref, ..bench.order(n, 1_000_000) };
        registry::accept_transfer(bench.world.db(), &order, true, bench.world.now()).await.unwrap().0.id
    }

    /// As [`Bench::block`].
    async fn block(&mut self, world: &World) {
        self.chain.mine_pool();
        self.catch_up(world).await;
        for _ in 0..TICKS_MAX {
            let ticked = self.sender.tick(&world.clock()).await.unwrap().unwrap();
            if (ticked.changed, ticked.sent) == (0, 0) {
                return;
            }
        }
        panic!("the sender of {OTHER} does not come to rest");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_of_one_chain_leaves_the_sender_of_another_at_work() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine, 1).await;
        let mut beside = Beside::of(&bench).await;
        let here = bench.accept(1, 1_000_000).await;
        stop(&bench.world).await;
        let there = beside.accept(&bench, 2).await;
        // One in which it is carried, one that includes it, and one more than makes that final.
        for _ in 0..FINALITY_DEPTH + 3 {
            bench.block().await;
            beside.block(&bench.world).await;
        }
        assert_eq!(bench.state(there).await, State::Confirmed, "{engine:?}");
        assert_eq!((bench.state(here).await, bench.signer.seq()), (State::Accepted, 0), "{engine:?}");
        bench.world.operator().halt_sending(bench.world.db(), &[OTHER]).await.unwrap();
        resume(&bench.world).await;
        assert_eq!(bench.until_ended(here).await, State::Confirmed, "{engine:?}");
        let of_there = there.intent_key(&beside.network.chain_ref, &alice());
        let paid_there = beside.chain.payments().remove(&of_there).unwrap_or_default();
        assert_eq!((bench.payments(here).len(), paid_there.len()), (1, 1), "{engine:?}");
        // Its books name two chains.
        bench.world.abandon();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_known_is_answered_with_its_transfer_while_the_sending_is_stopped() {
    for (engine, is_carried) in ENGINES.into_iter().flat_map(|engine| [(engine, true), (engine, false)]) {
        let mut bench = Bench::on(engine, 1).await;
        let id = bench.accept(1, 1_000_000).await;
        if is_carried {
            bench.settle().await;
        }
        stop(&bench.world).await;
        bench.assert_answered(1, 1_000_000, id).await;
        let other = bench.ask(1, 2_000_000).await.unwrap_err();
        assert!(matches!(other, AcceptError::Mismatch { transfer: Some(known) } if known == id), "{engine:?}: {other}");
        let new = bench.ask(2, 1_000_000).await.unwrap_err();
        assert!(matches!(new, AcceptError::Halted(chain) if chain == CHAIN), "{engine:?}: {new}");
        assert_eq!(bench.available().await, U256::from(USDC - 1_000_000), "{engine:?}: reserved once");
        resume(&bench.world).await;
        assert_eq!(bench.until_ended(id).await, State::Confirmed, "{engine:?}");
        assert_eq!(bench.payments(id).len(), 1, "{engine:?}");
        bench.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_known_is_answered_with_its_transfer_when_the_gas_credit_is_used_up() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine, 1).await;
        // 120 USD.
        bench.world.chain.set_carrier_fee(240_000_000_000_000_000);
        bench.set_price("500").await;
        let first = bench.ask(1, 1_000).await.unwrap().0.id;
        bench.settle().await;
        bench.blocks(FINALITY_DEPTH).await;
        assert_eq!(bench.state(first).await, State::Included, "{engine:?}: what it cost is not booked");
        let known = bench.ask(2, 1_000).await.unwrap().0.id;
        bench.block().await;
        assert_eq!(bench.state(first).await, State::Confirmed, "{engine:?}");
        assert!(!bench.state(known).await.status().is_terminal(), "{engine:?}");
        let new = bench.ask(3, 1_000).await.unwrap_err();
        assert!(matches!(new, AcceptError::CreditExhausted { .. }), "{engine:?}: {new}");
        bench.assert_answered(2, 1_000, known).await;
        assert_eq!(bench.until_ended(known).await, State::Confirmed, "{engine:?}");
        assert_eq!(bench.payments(known).len(), 1, "{engine:?}");
        bench.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_an_account_that_is_frozen_or_closed_what_was_signed_runs_to_its_end_and_nothing_more_is_signed() {
    let cases = [(Change::Suspend, AccountStatus::Frozen), (Change::Terminate, AccountStatus::Closed)];
    for (engine, (change, status)) in ENGINES.into_iter().flat_map(|engine| cases.map(|case| (engine, case))) {
        let mut bench = Bench::of_identity(engine).await;
        let carried = bench.accept(1, 1_000_000).await;
        bench.settle().await;
        let (active, paused) = (SponsorState::Active, SponsorState::Paused);
        let operator = bench.world.operator();
        operator.set_sponsor(bench.world.db(), CHAIN, 0, (active, paused)).await.unwrap();
        let signed = bench.accept(2, 2_000_000).await;
        bench.settle().await;
        assert!(bench.signer.deadline(signed.0.as_bytes()).is_some(), "{engine:?}: it is signed");
        assert_eq!((bench.state(carried).await, bench.state(signed).await), (State::Carried, State::Accepted));
        let unsigned = bench.accept(3, 3_000_000).await;
        let deadline = bench.shown(unsigned).await.deadline;
        operator.change_identity(bench.world.db(), IDENTITY, change).await.unwrap();
        let new = bench.ask(4, 1_000_000).await.unwrap_err();
        assert!(matches!(new, AcceptError::NotActive { status: of, .. } if of == status), "{engine:?}: {new}");
        operator.set_sponsor(bench.world.db(), CHAIN, 0, (paused, active)).await.unwrap();
        // What nodes forgot is sent again.
        bench.world.chain.forget_pool();
        bench.settle().await;
        assert_eq!(bench.state(signed).await, State::Carried, "{engine:?} {change:?}");
        while bench.final_time() < deadline {
            assert_eq!(bench.state(unsigned).await, State::Accepted, "{engine:?} {change:?}: it is not proved");
            bench.block().await;
        }
        for id in [carried, signed] {
            assert_eq!(bench.state(id).await, State::Confirmed, "{engine:?} {change:?}");
            assert_eq!(bench.payments(id).len(), 1, "{engine:?} {change:?}");
        }
        let failed = State::Failed(FailureCode::AccountNotActive);
        assert_eq!(bench.state(unsigned).await, failed, "{engine:?} {change:?}");
        assert_eq!(bench.signer.deadline(unsigned.0.as_bytes()), None, "{engine:?} {change:?}");
        assert_eq!(bench.available().await, U256::from(USDC - 3_000_000), "{engine:?}: its money is free again");
        if change == Change::Suspend {
            let operator = bench.world.operator();
            operator.change_identity(bench.world.db(), IDENTITY, Change::Reinstate).await.unwrap();
            let further = bench.accept(5, 1_000_000).await;
            assert_eq!(bench.until_ended(further).await, State::Confirmed, "{engine:?}");
        }
        bench.close().await;
    }
}

/// The account was asked once, before its one intent was signed; each attempt makes the guard of that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_later_attempt_of_a_transfer_with_a_guard_is_signed_although_its_account_was_frozen_behind_the_first() {
    for engine in ENGINES {
        let mut bench = Bench::guarded(engine).await;
        let id = bench.accept(1, 1_000_000).await;
        bench.settle().await;
        assert_eq!(bench.attempts().await.len(), 1, "{engine:?}");
        let operator = bench.world.operator();
        operator.change_identity(bench.world.db(), "default", Change::Suspend).await.unwrap();
        let signed = bench.signer.seq();
        // No node has the first attempt any more, nor gets it again.
        bench.world.chain.forget_pool();
        bench.world.chain.script_sends([SendFault::Lost]);
        bench.world.pass(NEXT);
        bench.world.chain.mine_some(0);
        bench.follow().await;
        let attempts = bench.attempts().await;
        assert_eq!((attempts.len(), bench.signer.seq()), (2, signed + 1), "{engine:?}");
        assert_eq!(bench.world.chain.pooled_guarded().len(), 1, "{engine:?}");
        bench.block().await;
        let included = bench.shown(id).await;
        assert_eq!(included.state, State::Included, "{engine:?}");
        assert_eq!(included.tx.map(|tx| tx.as_bytes().to_vec()), attempts[1].4, "{engine:?}: the later one paid");
        assert_eq!(bench.until_ended(id).await, State::Confirmed, "{engine:?}");
        assert_eq!(bench.payments(id).len(), 1, "{engine:?}");
        bench.close().await;
    }
}
