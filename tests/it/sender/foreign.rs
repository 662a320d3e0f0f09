//! What leaves wallets and sponsors without a signature of ours: who it left signs nothing more until a person releases it.
//! And what looks like it and is none: reorgs, copies of the store, and stores that were set back.

use landfall::incident::{Incident, IncidentKind};
use landfall::registry::{self, AcceptError};
use landfall::store::wallets;
use landfall::transfer::{SponsorState, State};
use landfall_chain::{AssetId, Effect, Family, Mark, U256};
use landfall_sim::SimTx;

use super::{BOB, Bench, LEASE_OVER, PAYER, STRANGER, alice, sender, token};
use crate::harness::books::rows;
use crate::harness::postgres::{ENGINES, Engine};
use crate::harness::world::{CHAIN, FINALITY_DEPTH, TOKEN, address, report};
use crate::past::unexplained::backfill;

impl Bench {
    /// What is open of what nobody here signed.
    pub(super) async fn foreign(&self) -> Vec<Incident> {
        let incidents = self.world.incidents().await.into_iter();
        incidents.filter(|it| it.kind == IncidentKind::ForeignSpend && it.resolved_at.is_none()).collect()
    }

    /// Whether Alice's wallet signs nothing.
    async fn is_quarantined(&self) -> bool {
        let mut reader = self.world.db().read().await.unwrap();
        wallets::quarantined(&mut reader, Family::Evm).await.unwrap().contains(&alice())
    }

    async fn sponsor_states(&self) -> Vec<String> {
        let states: Vec<(String,)> = rows(self.world.db(), "SELECT state FROM sponsors ORDER BY number").await;
        states.into_iter().map(|(state,)| state).collect()
    }

    /// Nothing is called foreign, and nobody is quarantined.
    async fn assert_nothing_foreign(&self) {
        assert_eq!(self.foreign().await, []);
        assert!(self.sponsor_states().await.iter().all(|state| state == "active"));
        assert!(!self.is_quarantined().await);
    }

    /// What a request of Alice's client is answered now.
    async fn refused(&self, n: u32) -> AcceptError {
        report(&self.world).await;
        let order = self.order(n, 1_000);
        registry::accept_transfer(self.world.db(), &order, true, self.world.now()).await.unwrap_err()
    }

    /// As it is while others use the same signer: another process on a copy of the store.
    async fn beside(&self) -> Bench {
        let copy = self.copied().await;
        let signer = self.signer.clone();
        let sender = sender(&copy.world, &signer, 1_000);
        Bench { signer, sender, ..copy }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_left_a_wallet_without_our_signature_stops_it_until_a_person_releases_it() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine, 1).await;
        let paid = bench.accept(1, 1_000).await;
        assert_eq!(bench.until_ended(paid).await, State::Confirmed);
        bench.assert_nothing_foreign().await;
        let theft = bench.by_hand(vec![token(alice(), address(STRANGER), 700)]);
        let id = theft.tx.id;
        bench.world.chain.mine(vec![theft]);
        let block = bench.world.chain.latest();
        bench.blocks(FINALITY_DEPTH - 1).await;
        assert!(!bench.is_quarantined().await, "that block is not final yet");
        // It was accepted before, and is not signed any more.
        bench.signer.away(true);
        let waiting = bench.accept(2, 1_000).await;
        bench.world.chain.mine_empty(1);
        bench.world.keep_time();
        bench.world.catch_up().await;
        bench.sender.tick(&bench.world.clock()).await.ok();
        assert!(!bench.is_quarantined().await, "the journal cannot be asked who signed it");
        bench.signer.away(false);
        bench.world.pass(std::time::Duration::from_secs(6));
        bench.settle().await;
        assert!(bench.is_quarantined().await);
        let [incident] = &bench.foreign().await[..] else { panic!("one incident") };
        assert_eq!((incident.holding, incident.block_number), (Some((alice(), TOKEN)), Some(block.number)));
        assert!(incident.what.contains(&id.to_string()), "{}", incident.what);
        assert_eq!((bench.state(waiting).await, bench.signer.deadline(waiting.0.as_bytes())), (State::Accepted, None));
        assert!(matches!(bench.refused(3).await, AcceptError::Quarantined(_)));
        let released = bench.world.operator().release_wallets(bench.world.db(), "alice").await.unwrap();
        assert_eq!((released, bench.foreign().await.len()), (vec![alice()], 0));
        bench.world.pass(std::time::Duration::from_secs(11));
        assert_eq!(bench.until_ended(waiting).await, State::Confirmed);
        let next = bench.accept(3, 1_000).await;
        assert_eq!(bench.until_ended(next).await, State::Confirmed);
        bench.assert_nothing_foreign().await;
        backfill(&bench.world, (block.number, bench.world.chain.finalized().unwrap().number)).await;
        bench.blocks(1).await;
        bench.assert_nothing_foreign().await;
        bench.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_paid_with_the_key_of_a_transfer_and_is_not_that_transfer_is_foreign() {
    for engine in ENGINES {
        for (to, amount) in [(BOB, 1_000), (BOB, 5), (STRANGER, 1_001)] {
            let mut bench = Bench::on(engine, 1).await;
            bench.signer.away(true);
            let id = bench.accept(1, 1_000).await;
            let key = bench.shown(id).await.intent_key;
            let leg = token(alice(), address(to), amount);
            let mut theft = bench.by_hand(vec![leg]);
            let effect = Effect::Paid { destination: leg.recipient, amount: leg.amount };
            theft.marks = vec![Mark { tx: theft.tx, payer: alice(), key, asset: TOKEN, effect }];
            bench.world.chain.mine(vec![theft]);
            bench.signer.away(false);
            bench.blocks(FINALITY_DEPTH).await;
            bench.world.pass(std::time::Duration::from_secs(6));
            bench.settle().await;
            assert!(bench.is_quarantined().await, "{to} {amount}");
            let [incident] = &bench.foreign().await[..] else { panic!("one incident") };
            assert_eq!(incident.holding, Some((alice(), TOKEN)));
            assert!(matches!(bench.refused(2).await, AcceptError::Quarantined(_)));
            bench.close().await;
        }
    }
}

#[tokio::test]
async fn a_sponsor_that_a_person_quarantines_carries_nothing_more_until_it_is_released() {
    let mut bench = Bench::on(Engine::Sqlite, 1).await;
    let quarantine = async |bench: &Bench| {
        bench.world.operator().quarantine_sponsor(bench.world.db(), CHAIN, 0).await.map_err(|error| error.to_string())
    };
    quarantine(&bench).await.unwrap();
    assert_eq!(bench.sponsor_states().await, ["quarantined"]);
    assert!(quarantine(&bench).await.unwrap_err().contains("is quarantined"));
    let id = bench.accept(1, 1_000).await;
    bench.settle().await;
    assert_eq!(bench.attempts().await, []);
    let released = (SponsorState::Quarantined, SponsorState::Active);
    bench.world.operator().set_sponsor(bench.world.db(), CHAIN, 0, released).await.unwrap();
    bench.world.pass(std::time::Duration::from_secs(31));
    assert_eq!(bench.until_ended(id).await, State::Confirmed);
    bench.close().await;
}

#[tokio::test]
async fn a_transaction_of_a_wallets_own_is_foreign_whatever_it_moves() {
    let mut bench = Bench::on(Engine::Sqlite, 1).await;
    bench.world.chain.mine(vec![SimTx::new(alice(), 1, Vec::new())]);
    bench.blocks(FINALITY_DEPTH).await;
    let [incident] = &bench.foreign().await[..] else { panic!("one incident") };
    assert_eq!(incident.holding, Some((alice(), AssetId::Native)));
    assert!(incident.what.contains("with nonce 1"), "{}", incident.what);
    assert!(bench.is_quarantined().await);
    bench.close().await;
}

#[tokio::test]
async fn what_a_reorg_took_back_was_never_spent() {
    let mut bench = Bench::on(Engine::Sqlite, 1).await;
    bench.settle().await;
    let theft = bench.by_hand(vec![token(alice(), address(STRANGER), 700)]);
    let of_sponsor = SimTx::new(bench.sponsor(0), 0, Vec::new());
    let latest = bench.world.chain.latest().number;
    bench.world.chain.mine(vec![theft, of_sponsor]);
    bench.follow().await;
    bench.world.chain.fork_at(latest);
    bench.world.chain.mine_empty(2);
    bench.blocks(FINALITY_DEPTH).await;
    bench.assert_nothing_foreign().await;
    let left: Vec<(i64,)> = rows(bench.world.db(), "SELECT COUNT(*) FROM spends WHERE is_open").await;
    assert_eq!(left, [(0,)], "it is judged, and forgotten");
    bench.close().await;
}

#[tokio::test]
async fn our_signature_explains_what_it_pays_whoever_carries_it_and_nothing_more() {
    for more in [0, 1] {
        let mut bench = Bench::on(Engine::Sqlite, 0).await;
        let id = bench.accept(1, 1_000).await;
        bench.settle().await;
        let key = id.intent_key(&bench.world.network.chain_ref, &alice());
        let mut carrier = bench.by_hand(vec![token(alice(), address(STRANGER), 1_000)]);
        let effect = Effect::Paid { destination: address(STRANGER), amount: U256::from(1_000) };
        carrier.marks = vec![Mark { tx: carrier.tx, payer: alice(), key, asset: TOKEN, effect }];
        if more > 0 {
            carrier.legs.push(token(alice(), address(PAYER), more));
        }
        bench.world.chain.mine(vec![carrier]);
        bench.blocks(FINALITY_DEPTH).await;
        assert_eq!(bench.state(id).await, State::Confirmed);
        assert_eq!(bench.is_quarantined().await, more > 0);
        bench.world.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fee_of_a_sponsor_that_is_in_no_attempt_names_its_nonce_and_others_carry() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine, 2).await;
        let ids = [bench.accept(1, 1_000).await, bench.accept(2, 1_000).await];
        bench.settle().await;
        // At a nonce that we used, too: ours lands never, and no number of transactions shows it.
        bench.world.chain.forget_pool();
        bench.world.chain.mine(vec![SimTx::new(bench.sponsor(0), 0, Vec::new())]);
        bench.blocks(FINALITY_DEPTH).await;
        let [incident] = &bench.foreign().await[..] else { panic!("one incident") };
        assert_eq!(incident.holding, Some((bench.sponsor(0), AssetId::Native)));
        assert!(incident.what.contains("with nonce 0"), "{}", incident.what);
        assert_eq!(bench.sponsor_states().await, ["quarantined", "active"]);
        for id in ids {
            assert_eq!(bench.until_ended(id).await, State::Confirmed);
        }
        let next = bench.accept(3, 1_000).await;
        assert_eq!(bench.until_ended(next).await, State::Confirmed);
        bench.release_sponsor(0).await;
        bench.assert_nothing_foreign().await;
        bench.blocks(FINALITY_DEPTH).await;
        bench.assert_nothing_foreign().await;
        bench.close().await;
    }
}

impl Bench {
    async fn release_sponsor(&self, number: u32) {
        use landfall::transfer::SponsorState::{Active, Quarantined};
        let chain = crate::harness::world::CHAIN;
        self.world.operator().set_sponsor(self.world.db(), chain, number, (Quarantined, Active)).await.unwrap();
    }
}

#[tokio::test]
async fn a_sponsor_with_code_is_quarantined_at_the_next_check() {
    let mut bench = Bench::on(Engine::Sqlite, 2).await;
    // It is derived, and then checked.
    bench.tick().await;
    bench.tick().await;
    bench.world.chain.put_code(bench.sponsor(0));
    bench.blocks(1).await;
    bench.assert_nothing_foreign().await;
    bench.restart();
    bench.world.pass(LEASE_OVER);
    bench.block().await;
    let [incident] = &bench.foreign().await[..] else { panic!("one incident") };
    assert!(incident.what.contains("has code"), "{}", incident.what);
    assert_eq!(bench.sponsor_states().await, ["quarantined", "active"]);
    let id = bench.accept(1, 1_000).await;
    assert_eq!(bench.until_ended(id).await, State::Confirmed);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_nonce_beyond_ours_is_found_by_the_check_alone_while_nobody_asks_for_anything() {
    let mut bench = Bench::on(Engine::Sqlite, 2).await;
    bench.settle().await;
    // As on a chain that is read by its logs: no fee of it is on record.
    bench.world.chain.mine(vec![SimTx { fee: U256::ZERO, ..SimTx::new(bench.sponsor(1), 0, Vec::new()) }]);
    bench.follow().await;
    crate::past::rescan::execute(bench.world.db(), "DELETE FROM spends").await;
    bench.blocks(FINALITY_DEPTH).await;
    bench.assert_nothing_foreign().await;
    bench.world.pass(std::time::Duration::from_secs(3_600));
    bench.block().await;
    let [incident] = &bench.foreign().await[..] else { panic!("one incident") };
    assert!(incident.what.contains("nobody here signed one with nonce 0"), "{}", incident.what);
    assert_eq!(bench.sponsor_states().await, ["active", "quarantined"]);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_another_store_has_the_same_signer_sign_is_ours() {
    let mut ours = Bench::on(Engine::Sqlite, 1).await;
    ours.settle().await;
    let mut theirs = ours.beside().await;
    theirs.world.pass(LEASE_OVER);
    // Both carry one; theirs offers another fee, and lands.
    let id = ours.accept(1, 1_000).await;
    ours.settle().await;
    ours.world.chain.forget_pool();
    assert_eq!(theirs.accept(1, 1_000).await, id);
    ours.world.chain.set_base_fee(2_000_000_000);
    theirs.follow().await;
    ours.world.chain.mine_pool();
    for _ in 0..2 * FINALITY_DEPTH {
        ours.world.chain.mine_pool();
        theirs.follow().await;
        ours.follow().await;
    }
    assert_eq!((ours.state(id).await, theirs.state(id).await), (State::Confirmed, State::Confirmed));
    ours.assert_nothing_foreign().await;
    theirs.assert_nothing_foreign().await;
    theirs.close().await;
    ours.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_was_set_back_with_its_journal_calls_nothing_foreign_that_it_had_paid() {
    let mut before = Bench::on(Engine::Sqlite, 1).await;
    before.settle().await;
    let mut restored = before.copied().await;
    let lost = [before.accept(1, 1_000).await, before.accept(2, 2_000).await];
    before.settle().await;
    before.block().await;
    for id in lost {
        assert_eq!(before.state(id).await, State::Included);
    }
    restored.world.pass(LEASE_OVER);
    restored.follow().await;
    assert!(restored.recovers().await);
    restored.until_recovered().await;
    restored.assert_nothing_foreign().await;
    assert_eq!(restored.behind().await.len(), 1);
    // The sponsor goes on behind what the lost store used.
    restored.restart();
    restored.world.pass(LEASE_OVER);
    restored.block().await;
    let next = restored.accept(3, 1_000).await;
    assert_eq!(restored.until_ended(next).await, State::Confirmed);
    let nonces: Vec<i64> = restored.attempts().await.into_iter().map(|(_, nonce, ..)| nonce).collect();
    assert_eq!(nonces, [2]);
    restored.assert_nothing_foreign().await;
    restored.close().await;
    before.follow().await;
    before.close().await;
}
