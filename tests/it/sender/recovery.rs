//! Stores that may be old copies: their chain recovers. Nothing is signed and nothing is DROPPED before a final block behind
//! all that may have been signed; what blocks show is believed all the while; it ends by itself.

use std::time::Duration;

use landfall::incident::{Incident, IncidentKind};
use landfall::store::recoveries::{self, Recovery};
use landfall::transfer::{FailureCode, State};
use landfall_chain::{Family, Intent, KeyPath, Route, SignRequest, Signer as _, U256};
use landfall_sim::SimSigner;

use super::{Bench, LEASE_OVER, STRANGER, alice, sender};
use crate::harness::books::rows;
use crate::harness::postgres::{ENGINES, Engine, TestStore};
use crate::harness::world::{CHAIN, TOKEN, address, erc3009, report};

impl Bench {
    async fn recovery(&self) -> Option<Recovery> {
        recoveries::of_chain(&mut self.world.db().read().await.unwrap(), CHAIN).await.unwrap()
    }

    pub(super) async fn recovers(&self) -> bool {
        self.recovery().await.is_some()
    }

    /// A process on the store as it is now, and the signer that is there: what is signed from now on only its journal knows.
    async fn set_back(&self) -> Bench {
        let copy = self.copied().await;
        let signer = self.signer.clone();
        let sender = sender(&copy.world, &signer, 1_000);
        Bench { signer, sender, ..copy }
    }

    /// The store as it was takes the place of the one that is there, and with it the journal, or not.
    pub(super) fn set_back_to(&mut self, earlier: Bench, with_journal: bool) {
        std::mem::replace(&mut self.world, earlier.world).abandon();
        if with_journal {
            self.signer = earlier.signer;
        }
        self.restart();
    }

    /// What the payer's key signs, of the transfers on record.
    async fn intents(&self) -> Vec<(String, i64)> {
        rows(self.world.db(), "SELECT transfer_id, deadline_secs FROM intents ORDER BY deadline_secs").await
    }

    /// The incidents of a store that is behind which are open.
    pub(super) async fn behind(&self) -> Vec<Incident> {
        let incidents = self.world.incidents().await.into_iter();
        incidents.filter(|it| it.kind == IncidentKind::StoreBehind && it.resolved_at.is_none()).collect()
    }

    /// As many blocks as it takes until the chain has recovered.
    pub(super) async fn until_recovered(&mut self) {
        for _ in 0..super::BLOCKS_MAX {
            if !self.recovers().await {
                return;
            }
            self.block().await;
        }
        panic!("it does not end");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chain_that_a_person_has_recover_signs_nothing_and_drops_nothing_until_a_late_final_block() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine, 1).await;
        bench.settle().await;
        let carried = bench.accept(1, 1_000).await;
        bench.settle().await;
        bench.world.chain.forget_pool();
        let signed = bench.signer.seq();
        bench.world.operator().recover_sending(bench.world.db(), &[CHAIN]).await.unwrap();
        let waiting = bench.accept(2, 1_000).await;
        // What is on record is sent again, and what blocks show of it counts.
        bench.world.pass(Duration::from_secs(11));
        bench.settle().await;
        bench.blocks(11).await;
        assert_eq!(bench.state(carried).await, State::Confirmed);
        // Past its deadline by a final block, and there is no verdict.
        let deadline = bench.shown(waiting).await.deadline;
        while bench.final_time() < deadline {
            assert_eq!(bench.state(waiting).await, State::Accepted);
            bench.block().await;
        }
        assert_eq!((bench.state(waiting).await, bench.recovers().await), (State::Accepted, true));
        assert_eq!(bench.signer.seq(), signed);
        bench.until_recovered().await;
        assert_eq!(bench.until_ended(waiting).await, State::Dropped(FailureCode::NeverSigned));
        assert_eq!(bench.behind().await, [], "a person knows already");
        let next = bench.accept(3, 1_000).await;
        assert_eq!(bench.until_ended(next).await, State::Confirmed);
        bench.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payment_with_our_key_for_an_unknown_transfer_has_the_chain_recover_and_is_an_incident() {
    let mut before = Bench::on(Engine::Sqlite, 1).await;
    before.settle().await;
    let mut restored = before.copied().await;
    let lost = before.accept(1, 1_000).await;
    before.settle().await;
    before.block().await;
    assert_eq!((before.recovers().await, before.behind().await.len()), (false, 0), "it knows what it pays");
    restored.world.pass(LEASE_OVER);
    restored.follow().await;
    assert!(restored.recovers().await);
    let [incident] = &restored.behind().await[..] else { panic!("one incident") };
    let paid = before.payments(lost)[0];
    assert!(incident.what.contains(&paid.tx.to_string()), "{}", incident.what);
    assert_eq!(incident.block_number, Some(paid.block.number));
    // The same request again is the same transfer: its payment is there already.
    assert_eq!(restored.accept(1, 1_000).await, lost);
    let other = restored.accept(2, 1_000).await;
    restored.settle().await;
    assert_eq!((restored.state(lost).await, restored.state(other).await), (State::Included, State::Accepted));
    assert_eq!(restored.until_ended(lost).await, State::Confirmed);
    restored.until_recovered().await;
    assert_eq!(restored.until_ended(other).await, State::Dropped(FailureCode::NeverSigned));
    assert_eq!((restored.attempts().await.len(), restored.payments(lost).len()), (0, 1));
    // What was noticed once has it recover once. The incident waits for a person.
    assert_eq!((restored.recovers().await, restored.behind().await.len()), (false, 1));
    restored.close().await;
    before.close().await;
}

#[tokio::test]
async fn with_guards_a_recovery_lasts_until_no_blockhash_that_may_have_been_named_is_alive() {
    let route = Route::Guard { program: None, decimals: 6 };
    let mut bench = Bench::by_route(TestStore::fresh(Engine::Sqlite).await, 1, 1, route).await;
    bench.settle().await;
    bench.world.operator().recover_sending(bench.world.db(), &[CHAIN]).await.unwrap();
    let until = bench.world.now().plus(Duration::from_secs(360));
    while bench.final_time() < until {
        bench.block().await;
    }
    bench.blocks(150).await;
    assert!(bench.recovers().await);
    bench.block().await;
    assert!(!bench.recovers().await);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_only_the_signers_journal_knows_is_put_on_record_and_waited_for() {
    for lands in [false, true] {
        let mut before = Bench::on(Engine::Sqlite, 1).await;
        before.settle().await;
        let known = before.accept(1, 1_000).await;
        let mut restored = before.set_back().await;
        before.settle().await;
        before.accept(2, 1_000).await;
        before.settle().await;
        if !lands {
            before.world.chain.forget_pool();
        }
        restored.world.pass(LEASE_OVER);
        restored.settle().await;
        assert!(restored.recovers().await);
        let [incident] = &restored.behind().await[..] else { panic!("one incident") };
        assert!(incident.what.contains("has 4 signatures that are not on record"), "{}", incident.what);
        let deadline = restored.shown(known).await.deadline.0 / 1_000_000;
        assert_eq!(restored.intents().await, [(known.to_string(), deadline)]);
        let expected = if lands { State::Confirmed } else { State::Dropped(FailureCode::WindowElapsed) };
        assert_eq!(restored.until_ended(known).await, expected);
        restored.until_recovered().await;
        // Nobody else used the sponsor, and what it never sent is no gap for long.
        let next = restored.accept(3, 1_000).await;
        assert_eq!(restored.until_ended(next).await, State::Confirmed);
        let nonces: Vec<i64> = restored.attempts().await.iter().map(|(_, nonce, ..)| *nonce).collect();
        assert_eq!(nonces, [if lands { 2 } else { 0 }]);
        let states: Vec<(String,)> = rows(restored.world.db(), "SELECT state FROM sponsors ORDER BY number").await;
        assert_eq!(states, [("active".to_owned(),)]);
        restored.close().await;
        before.follow().await;
        before.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_later_deadline_that_only_the_journal_knows_counts_for_the_proof_and_for_the_recovery() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine, 0).await;
        let id = bench.accept(1, 1_000).await;
        bench.settle().await;
        let first = bench.shown(id).await.deadline;
        // As another store would that saw a reorg.
        let deadline = first.plus(Duration::from_secs(300));
        let intent = Intent {
            transfer_id: *id.0.as_bytes(),
            chain_ref: bench.world.network.chain_ref.clone(),
            route: erc3009(),
            asset: TOKEN,
            payer: alice(),
            destination: address(STRANGER),
            amount: U256::from(1_000),
            deadline: u64::try_from(deadline.0 / 1_000_000).unwrap(),
        };
        let path = KeyPath::of_wallet(Family::Evm, "alice", "");
        bench.signer.sign(&[SignRequest::Intent { path, intent, heals: 1 }]).await.unwrap()[0].clone().unwrap();
        bench.restart();
        bench.world.pass(LEASE_OVER);
        bench.settle().await;
        assert_eq!((bench.shown(id).await.deadline, bench.intents().await.len()), (deadline, 2));
        assert_eq!(bench.recovery().await.unwrap().until, deadline.plus(Duration::from_secs(60)));
        while bench.final_time() < deadline {
            assert!(!bench.state(id).await.status().is_terminal());
            bench.block().await;
        }
        assert_eq!(bench.until_ended(id).await, State::Dropped(FailureCode::WindowElapsed));
        bench.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_signer_or_one_whose_journal_was_set_back_signs_nothing_before_it_is_adopted() {
    for engine in ENGINES {
        for id in ["sim", "another"] {
            let mut bench = Bench::on(engine, 1).await;
            let paid = bench.accept(1, 1_000).await;
            assert_eq!(bench.until_ended(paid).await, State::Confirmed);
            let signer = bench.signer.clone();
            bench.signer = SimSigner::named(id, bench.world.chain.clone());
            bench.restart();
            bench.world.pass(LEASE_OVER);
            let waiting = bench.accept(2, 1_000).await;
            bench.settle().await;
            assert_eq!((bench.state(waiting).await, bench.signer.seq()), (State::Accepted, 0));
            let alarms = report(&bench.world).await.alarms;
            let [alarm] = &alarms[..] else { panic!("{alarms:?}") };
            assert!(alarm.contains("landfall signer adopt"), "{alarm}");
            // The one that it was signs again without a word of anybody.
            let strange = std::mem::replace(&mut bench.signer, signer);
            bench.restart();
            bench.world.pass(LEASE_OVER);
            bench.settle().await;
            assert_eq!(bench.state(waiting).await, State::Carried);
            assert_eq!(report(&bench.world).await.alarms, Vec::<String>::new());
            bench.signer = strange;
            bench.restart();
            bench.world.pass(LEASE_OVER);
            assert_eq!(bench.world.operator().adopt_signer(bench.world.db()).await.unwrap(), 1);
            let next = bench.accept(3, 1_000).await;
            for id in [waiting, next] {
                assert_eq!(bench.until_ended(id).await, State::Confirmed);
            }
            assert!(bench.signer.seq() > 0);
            assert_eq!((bench.recovers().await, bench.behind().await), (false, Vec::new()));
            bench.close().await;
        }
    }
}
