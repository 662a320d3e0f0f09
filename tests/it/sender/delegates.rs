//! Payments that need a delegate: what lets it act is recorded, signed once, and brought along only where it is missing.

use landfall::transfer::State;
use landfall_sim::{SendFault, SimSigner};

use super::{Bench, LEASE_OVER, by_delegate, send_by};
use crate::harness::books::rows;
use crate::harness::lanes::{cuts, cuts_of};
use crate::harness::postgres::{ENGINES, Engine};

impl Bench {
    /// From now on the token is sent by a delegate at addresses that begin with `byte`.
    fn send_by_delegate(&mut self, byte: u8) {
        send_by(&mut self.world, by_delegate(byte));
        self.world.pass(LEASE_OVER);
        self.restart();
    }

    /// Of each authorization the nonce, and whether it is signed.
    async fn authorizations(&self) -> Vec<(i64, bool)> {
        let text = "SELECT nonce, signature IS NOT NULL FROM authorizations ORDER BY wallet, nonce";
        rows(self.world.db(), text).await
    }

    /// Of each attempt the nonce of the authorization that it brings.
    async fn brought(&self) -> Vec<Option<i64>> {
        let text = "SELECT authorization_nonce FROM transfer_attempts ORDER BY recorded_us, nonce, try";
        let rows: Vec<(Option<i64>,)> = rows(self.world.db(), text).await;
        rows.into_iter().map(|(nonce,)| nonce).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_payments_of_a_wallet_bring_one_authorization_and_later_ones_none() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine, 2).await;
        bench.send_by_delegate(0xd1);
        let (first, second) = (bench.accept(1, 1_000_000).await, bench.accept(2, 2_000_000).await);
        bench.settle().await;
        let [(nonce, true)] = bench.authorizations().await[..] else { panic!("{:?}", bench.authorizations().await) };
        assert_eq!(bench.brought().await, [Some(nonce), Some(nonce)]);
        assert_eq!(bench.until_ended(first).await, State::Confirmed);
        assert_eq!(bench.until_ended(second).await, State::Confirmed);
        let third = bench.accept(3, 3_000_000).await;
        assert_eq!(bench.until_ended(third).await, State::Confirmed);
        assert_eq!(bench.brought().await, [Some(nonce), Some(nonce), None]);
        assert_eq!(bench.authorizations().await.len(), 1);
        bench.close().await;
    }
}

#[tokio::test]
async fn a_reorg_that_takes_the_delegate_away_has_it_authorized_again_with_the_same_bytes() {
    let mut bench = Bench::on(Engine::Sqlite, 1).await;
    bench.send_by_delegate(0xd1);
    let id = bench.accept(1, 1_000_000).await;
    bench.settle().await;
    bench.block().await;
    assert_eq!(bench.state(id).await, State::Included);
    let latest = bench.world.chain.latest().number;
    bench.world.chain.fork_at(latest - 1);
    bench.world.chain.mine_empty(2);
    bench.follow().await;
    assert_eq!(bench.state(id).await, State::Carried);
    assert_eq!(bench.until_ended(id).await, State::Confirmed);
    assert_eq!(bench.authorizations().await.len(), 1);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_at_any_moment_pays_once_and_signs_one_authorization_for_each_nonce() {
    let mut cut_off = 0;
    for wakeups in cuts(60) {
        let mut bench = Bench::on(Engine::Sqlite, 1).await;
        bench.send_by_delegate(0xd1);
        let id = bench.accept(1, 1_000_000).await;
        cut_off += u32::from(bench.crash_within(wakeups).await);
        bench.world.pass(LEASE_OVER);
        bench.follow().await;
        assert_eq!(bench.until_ended(id).await, State::Confirmed, "after {wakeups} wake-ups");
        assert_eq!(bench.payments(id).len(), 1);
        assert_eq!(bench.authorizations().await.len(), 1, "after {wakeups} wake-ups");
        bench.close().await;
    }
    assert!(cut_off > cuts_of(20), "only {cut_off} ticks were cut off");
}

/// A signer carries only what its own journal has.
#[tokio::test]
async fn behind_another_signer_what_lets_a_delegate_act_and_never_landed_is_signed_by_that_one() {
    let mut bench = Bench::on(Engine::Sqlite, 1).await;
    bench.send_by_delegate(0xd1);
    bench.world.chain.script_sends([SendFault::Refused; 400]);
    let lost = bench.accept(1, 1_000_000).await;
    bench.settle().await;
    assert_eq!(bench.authorizations().await, [(1, true)]);
    assert!(matches!(bench.until_ended(lost).await, State::Dropped(_)));
    bench.world.chain.take_sends();
    bench.world.chain.forget_pool();
    bench.signer = SimSigner::named("another", bench.world.chain.clone());
    bench.restart();
    bench.world.pass(LEASE_OVER);
    bench.settle().await;
    assert_eq!(bench.world.operator().adopt_signer(bench.world.db()).await.unwrap(), 1);
    let next = bench.accept(2, 1_000_000).await;
    assert_eq!(bench.until_ended(next).await, State::Confirmed);
    assert_eq!(bench.authorizations().await, [(1, true)], "of the same nonce, with the same content");
    bench.close().await;
}

/// What was signed before would still be good at the delegate that was listed then.
#[tokio::test]
async fn a_transfer_of_another_delegate_than_the_listed_one_is_neither_sent_nor_ended() {
    let mut bench = Bench::on(Engine::Sqlite, 1).await;
    bench.send_by_delegate(0xd1);
    let id = bench.accept(1, 1_000_000).await;
    bench.send_by_delegate(0xd2);
    bench.settle().await;
    for _ in 0..40 {
        bench.block().await;
    }
    assert_eq!((bench.state(id).await, bench.attempts().await.len()), (State::Accepted, 0));
    bench.send_by_delegate(0xd1);
    assert!(matches!(bench.until_ended(id).await, State::Dropped(_)));
    bench.close().await;
}
