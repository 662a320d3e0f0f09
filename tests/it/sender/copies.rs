//! Stores that know less than the chain: a copy that runs beside the original with the same keys, and one that was set
//! back. Each transfer pays once, and each store says what is true.

use landfall::transfer::{FailureCode, State, TransferId};

use super::{Bench, LEASE_OVER, assert_truthful, sender};
use crate::harness::postgres::Engine;

impl Bench {
    /// A process on a copy of the store as it stands, with the same keys and a copy of the journal.
    pub(super) async fn copied(&self) -> Bench {
        let world = self.world.beside(self.world.store.copied().await);
        let signer = self.signer.copied();
        let sender = sender(&world, &signer, 1_000);
        Bench { world, signer, sender, processes: 1_001, by_hand: self.by_hand }
    }

    /// Whether all of these have ended here.
    async fn have_ended(&self, ids: &[TransferId]) -> bool {
        for id in ids {
            if !self.state(*id).await.status().is_terminal() {
                return false;
            }
        }
        true
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t1_a_copy_of_the_store_beside_the_original_pays_nothing_twice() {
    for common in [0, 3] {
        let mut ours = Bench::on(Engine::Sqlite, 2).await;
        let mut ids = Vec::new();
        for n in 0..common {
            ids.push(ours.accept(n, 1_000).await);
        }
        // Half of what is known to both was carried before the copy was made.
        if common > 0 {
            ours.tick().await;
            ids.push(ours.accept(10, 1_000).await);
        }
        let mut theirs = ours.copied().await;
        ours.world.pass(LEASE_OVER);
        // The same requests come to both, and others to one of them.
        let mut both = ids.clone();
        for n in 20..23 {
            let id = ours.accept(n, 1_000).await;
            ours.settle().await;
            ours.world.pass(std::time::Duration::from_secs(7));
            assert_eq!(theirs.accept(n, 1_000).await, id);
            both.push(id);
        }
        let only_ours = [ours.accept(30, 1_000).await, ours.accept(31, 1_000).await];
        let only_theirs = [theirs.accept(40, 1_000).await, theirs.accept(41, 1_000).await];
        let (of_ours, of_theirs) = ([&both[..], &only_ours].concat(), [&both[..], &only_theirs].concat());
        for _ in 0..60 {
            if ours.have_ended(&of_ours).await && theirs.have_ended(&of_theirs).await {
                break;
            }
            ours.world.chain.mine_pool();
            theirs.follow().await;
            ours.follow().await;
        }
        for id in &both {
            assert_eq!(ours.state(*id).await, State::Confirmed);
            assert_eq!(theirs.state(*id).await, State::Confirmed);
        }
        for (bench, ids) in [(&ours, &of_ours), (&theirs, &of_theirs)] {
            for id in ids {
                let state = bench.state(*id).await;
                assert!(state.status().is_terminal(), "{id} is {state:?}");
            }
        }
        theirs.close().await;
        ours.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_was_set_back_finds_what_it_had_paid_when_the_request_comes_again() {
    let mut before = Bench::on(Engine::Sqlite, 1).await;
    before.settle().await;
    let mut restored = before.copied().await;
    let id = before.accept(1, 1_000).await;
    let confirmed = before.until_ended(id).await;
    assert_eq!(confirmed, State::Confirmed);
    // It has not read the blocks of the day yet, and signs nothing.
    assert_eq!(restored.accept(1, 1_000).await, id);
    restored.world.pass(LEASE_OVER);
    restored.settle().await;
    assert_eq!((restored.state(id).await, restored.signer.seq()), (State::Accepted, 0));
    restored.follow().await;
    assert_eq!(restored.state(id).await, State::Confirmed);
    assert_eq!(restored.history(id).await, ["accepted", "carried", "included", "confirmed"]);
    assert_eq!((restored.attempts().await.len(), restored.payments(id).len()), (0, 1));
    assert_eq!(restored.shown(id).await.tx, before.shown(id).await.tx);
    restored.close().await;
    before.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_was_set_back_while_its_bytes_wait_pays_once() {
    for forgets in [false, true] {
        let mut before = Bench::on(Engine::Sqlite, 1).await;
        before.settle().await;
        let mut restored = before.copied().await;
        let id = before.accept(1, 1_000).await;
        before.settle().await;
        restored.world.pass(LEASE_OVER);
        assert_eq!(restored.accept(1, 1_000).await, id);
        restored.follow().await;
        assert_eq!(restored.state(id).await, State::Carried);
        if forgets {
            restored.world.chain.forget_pool();
        }
        assert_eq!(restored.until_ended(id).await, State::Confirmed);
        before.follow().await;
        assert_eq!(before.state(id).await, State::Confirmed);
        assert_truthful(&before.world).await;
        restored.close().await;
        before.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_deployment_cancels_and_a_copy_of_it_pays_is_confirmed_in_both() {
    let mut ours = Bench::on(Engine::Sqlite, 1).await;
    ours.settle().await;
    let mut theirs = ours.copied().await;
    // The client asks both; only one is cancelled, before it is signed there.
    let id = ours.accept(1, 1_000).await;
    ours.cancel(id).await.unwrap();
    ours.settle().await;
    theirs.world.pass(LEASE_OVER);
    assert_eq!(theirs.accept(1, 1_000).await, id);
    assert_eq!(theirs.until_ended(id).await, State::Confirmed);
    ours.follow().await;
    assert_eq!(ours.state(id).await, State::Confirmed);
    assert_eq!((ours.attempts().await.len(), ours.payments(id).len()), (0, 1));
    theirs.close().await;
    ours.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_copy_paid_and_a_reorg_took_back_keeps_no_other_from_its_verdict() {
    let mut ours = Bench::on(Engine::Sqlite, 1).await;
    ours.settle().await;
    let mut theirs = ours.copied().await;
    let id = ours.accept(1, 1_000).await;
    ours.cancel(id).await.unwrap();
    theirs.world.pass(LEASE_OVER);
    assert_eq!(theirs.accept(1, 1_000).await, id);
    theirs.settle().await;
    ours.world.chain.mine_pool();
    ours.follow().await;
    assert_eq!((ours.state(id).await, ours.shown(id).await.cancelled_at.is_some()), (State::Included, true));
    let latest = ours.world.chain.latest().number;
    ours.world.chain.fork_at(latest - 1);
    ours.world.chain.forget_pool();
    ours.world.chain.mine_empty(2);
    ours.signer.away(true);
    let other = ours.accept(2, 1_000).await;
    ours.world.keep_time();
    ours.world.catch_up().await;
    for _ in 0..60 {
        ours.world.chain.mine_empty(1);
        ours.world.keep_time();
        ours.world.catch_up().await;
        ours.sender.tick(&ours.world.clock()).await.ok();
        if ours.have_ended(&[id, other]).await {
            break;
        }
    }
    for id in [id, other] {
        assert_eq!(ours.state(id).await, State::Dropped(FailureCode::WindowElapsed));
    }
    theirs.world.abandon();
    ours.world.abandon();
}
