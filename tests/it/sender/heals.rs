//! Transfers whose window a reorg used up, and those that an operator ends.

use std::time::Duration;

use landfall::event::TransferData;
use landfall::operator::{CancelError, Operator};
use landfall::transfer::{FailureCode, State, TransferId, TransferStatus, WINDOW};
use landfall_chain::U256;

use super::{Bench, LEASE_OVER, USDC, may_pass};
use crate::harness::postgres::{ENGINES, Engine};

const THREE_BLOCKS: Duration = Duration::from_secs(36);

impl Bench {
    /// One of the last blocks before its deadline includes it.
    async fn include_before_its_deadline(&mut self, id: TransferId) {
        let deadline = self.shown(id).await.deadline;
        while self.world.now().plus(THREE_BLOCKS) < deadline {
            assert_eq!(self.state(id).await, State::Carried);
            self.world.chain.forget_pool();
            self.block().await;
        }
        self.block().await;
        assert_eq!(self.state(id).await, State::Included);
        assert!(self.world.now() < deadline);
    }

    /// A reorg takes back the newest block, and the chain goes on without what was in it.
    fn take_back(&self) {
        let latest = self.world.chain.latest().number;
        self.world.chain.fork_at(latest - 1);
        self.world.chain.forget_pool();
        self.world.chain.mine_empty(5);
        self.world.keep_time();
    }

    async fn displace_behind_its_deadline(&mut self, id: TransferId) {
        let deadline = self.shown(id).await.deadline;
        self.include_before_its_deadline(id).await;
        self.take_back();
        self.follow().await;
        assert!(self.world.now() >= deadline);
    }

    /// Until when a block may pay it, as clients are shown it.
    pub(super) async fn expires_at(&self, id: TransferId) -> Option<String> {
        TransferData::of(&self.shown(id).await).expires_at
    }

    /// As [`Bench::follow`], while a part of the ticks may fail.
    async fn follow_in_part(&mut self) {
        self.world.keep_time();
        self.world.catch_up().await;
        for _ in 0..3 {
            self.sender.tick(&self.world.clock()).await.inspect_err(|error| assert!(may_pass(error))).ok();
        }
    }

    pub(super) async fn cancel(&self, id: TransferId) -> Result<bool, CancelError> {
        let operator = Operator { actor: "ops", reason: "asked for", now: self.world.now(), dry_run: false };
        operator.cancel_transfer(self.world.db(), id).await.map(|(_, is_signed)| is_signed)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payment_that_a_reorg_takes_back_behind_its_deadline_is_signed_again_and_paid_once() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine, 1).await;
        let id = bench.accept(1, 4_000_000).await;
        bench.settle().await;
        let first = bench.shown(id).await.deadline;
        bench.displace_behind_its_deadline(id).await;
        let healed = bench.shown(id).await;
        assert_eq!(healed.state, State::Carried);
        assert_eq!(healed.deadline.since(first).as_secs(), 300);
        assert_eq!(bench.available().await, U256::from(USDC - 4_000_000), "its money stays reserved");
        assert_eq!(bench.until_ended(id).await, State::Confirmed);
        assert_eq!(bench.payments(id).len(), 1);
        let expected = ["accepted", "carried", "included", "carried", "included", "confirmed"];
        assert_eq!(bench.history(id).await, expected);
        bench.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn until_when_a_block_may_pay_it_is_shown_from_its_first_signature_on_and_moves_with_a_heal() {
    for engine in ENGINES {
        // Nobody can carry it yet.
        let mut bench = Bench::on(engine, 0).await;
        let id = bench.accept(1, 4_000_000).await;
        let accepted = bench.shown(id).await.created_at;
        assert_eq!(bench.expires_at(id).await, None, "{engine:?}: nothing is signed");
        bench.settle().await;
        let first = accepted.plus(WINDOW).to_string();
        assert_eq!(bench.state(id).await, State::Accepted, "{engine:?}");
        assert_eq!(bench.expires_at(id).await.as_ref(), Some(&first), "{engine:?}: it is signed");
        bench.add_sponsors(1).await;
        // The sponsor is derived, and then checked.
        for _ in 0..3 {
            bench.settle().await;
        }
        assert_eq!(bench.state(id).await, State::Carried, "{engine:?}");
        assert_eq!(bench.expires_at(id).await, Some(first), "{engine:?}");
        bench.displace_behind_its_deadline(id).await;
        let healed = Some(accepted.plus(WINDOW * 2).to_string());
        assert_eq!(bench.expires_at(id).await, healed, "{engine:?}: it is healed");
        assert_eq!(bench.until_ended(id).await, State::Confirmed, "{engine:?}");
        assert_eq!(bench.expires_at(id).await, healed, "{engine:?}");
        bench.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_three_heals_a_transfer_expires_and_its_money_is_free_again() {
    let mut bench = Bench::on(Engine::Sqlite, 1).await;
    let id = bench.accept(1, 4_000_000).await;
    bench.settle().await;
    for _ in 0..4 {
        bench.displace_behind_its_deadline(id).await;
    }
    assert_eq!(bench.state(id).await, State::Expiring);
    assert_eq!(bench.until_ended(id).await, State::Dropped(FailureCode::WindowElapsed));
    assert_eq!(bench.available().await, U256::from(USDC));
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transfer_whose_heal_nobody_signs_expires_and_a_restart_heals_it_with_the_same_deadline() {
    for comes_back in [true, false] {
        let mut bench = Bench::on(Engine::Sqlite, 1).await;
        let id = bench.accept(1, 4_000_000).await;
        bench.settle().await;
        let deadline = bench.shown(id).await.deadline;
        bench.include_before_its_deadline(id).await;
        bench.take_back();
        bench.signer.away(true);
        bench.follow_in_part().await;
        let asked = bench.shown(id).await.deadline;
        assert_eq!(asked.since(deadline).as_secs(), 300, "on record before it is asked for");
        bench.restart();
        bench.world.pass(LEASE_OVER);
        let ended = if comes_back {
            bench.signer.away(false);
            bench.until_ended(id).await
        } else {
            // Also until all is over that was signed before this process began to send: the signer cannot be asked.
            for _ in 0..60 {
                bench.world.chain.mine_pool();
                bench.follow_in_part().await;
            }
            bench.state(id).await
        };
        let expected = if comes_back { State::Confirmed } else { State::Dropped(FailureCode::WindowElapsed) };
        assert_eq!(ended, expected);
        bench.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_cancelled_before_it_is_signed_is_never_signed_and_fails_on_proof() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine, 1).await;
        bench.settle().await;
        let id = bench.accept(1, 1_000).await;
        assert!(!bench.cancel(id).await.unwrap());
        assert!(!bench.cancel(id).await.unwrap(), "as often as one likes");
        bench.settle().await;
        assert_eq!(bench.state(id).await, State::Accepted, "a copy of this store may have signed it");
        assert_eq!(bench.available().await, U256::from(USDC - 1_000));
        assert_eq!(bench.until_ended(id).await, State::Failed(FailureCode::Cancelled));
        assert_eq!(bench.available().await, U256::from(USDC));
        let again = bench.cancel(id).await.unwrap_err();
        assert!(matches!(again, CancelError::Ended { status: TransferStatus::Failed, .. }), "{again}");
        assert!(bench.attempts().await.is_empty());
        assert_eq!(bench.signer.deadline(id.0.as_bytes()), None);
        bench.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_cancelled_behind_its_signature_and_cannot_be_taken_back_is_not_sent_again_and_is_watched_to_its_end() {
    for lands in [true, false] {
        let mut bench = Bench::delegated(Engine::Sqlite, 1).await;
        let id = bench.accept(1, 1_000).await;
        bench.settle().await;
        assert!(bench.cancel(id).await.unwrap());
        if !lands {
            bench.world.chain.forget_pool();
            bench.blocks(3).await;
            assert!(bench.world.chain.pooled().is_empty());
            // Others need the nonce that nobody sends any more.
            let other = bench.accept(2, 1_000).await;
            bench.settle().await;
            assert_eq!(bench.until_ended(other).await, State::Confirmed);
        }
        let expected = if lands { State::Confirmed } else { State::Dropped(FailureCode::WindowElapsed) };
        assert_eq!(bench.until_ended(id).await, expected);
        bench.close().await;
    }
}
