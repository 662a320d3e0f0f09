//! Another delegate is taken while transfers are under way: each is paid once, by the one that was in use when it was
//! accepted.

use landfall::operator::Operator;
use landfall::store::delegates::Taken;
use landfall::transfer::{DELEGATE_TIME, FailureCode, State, TransferId};
use landfall_chain::{Address, Delegate, Route};

use super::{Bench, LEASE_OVER, alice, by_delegate, send_by};
use crate::harness::books::rows;
use crate::harness::postgres::{ENGINES, Engine};

const OWN: Delegate = Delegate::Own { implementation: Address::Evm([0xd2; 20]) };

impl Bench {
    /// The token is sent by a delegate, and the network lists another one behind it.
    async fn with_two_delegates(engine: Engine) -> Bench {
        let mut bench = Bench::on(engine, 2).await;
        send_by(&mut bench.world, by_delegate(0xd1));
        bench.world.network.delegates.push(OWN);
        bench.start_again();
        bench
    }

    /// Another process, with what the network lists now.
    fn start_again(&mut self) {
        self.world.pass(LEASE_OVER);
        self.restart();
    }

    async fn take(&self, delegate: &Delegate) -> Taken {
        let operator = self.world.operator();
        operator.take_delegate(self.world.db(), (&self.world.network, delegate)).await.unwrap()
    }

    /// Blocks until a final one shows what others have paid.
    async fn until_taken(&mut self) {
        let from = self.world.now().plus(DELEGATE_TIME);
        while self.final_time() < from {
            self.block().await;
        }
    }

    async fn route(&self, id: TransferId) -> String {
        self.shown(id).await.route
    }

    async fn intended(&self) -> usize {
        let intents: Vec<(String,)> = rows(self.world.db(), "SELECT transfer_id FROM intents").await;
        intents.len()
    }

    /// Of each authorization the code that it names, by nonce.
    async fn implementations(&self) -> Vec<Vec<u8>> {
        let text = "SELECT implementation FROM authorizations ORDER BY nonce";
        rows::<(Vec<u8>,)>(self.world.db(), text).await.into_iter().map(|(code,)| code).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_transfer_is_paid_by_the_delegate_that_was_in_use_when_it_was_accepted() {
    for engine in ENGINES {
        let mut bench = Bench::with_two_delegates(engine).await;
        let (first, own) = (by_delegate(0xd1), Route::Delegate(OWN));
        let signed = bench.accept(1, 1_000_000).await;
        bench.settle().await;
        let unsigned = bench.accept(2, 2_000_000).await;
        assert_eq!(bench.take(&OWN).await.route(), first.to_string());
        let early = bench.accept(3, 3_000_000).await;
        for id in [signed, unsigned] {
            assert_eq!(bench.until_ended(id).await, State::Confirmed, "{engine:?}");
            assert_eq!(bench.route(id).await, first.to_string());
        }
        assert_eq!(bench.until_ended(early).await, State::Dropped(FailureCode::NeverSigned));
        assert_eq!((bench.route(early).await, bench.intended().await), (own.to_string(), 2));
        bench.until_taken().await;
        let late = bench.accept(4, 1_000_000).await;
        assert_eq!(bench.until_ended(late).await, State::Confirmed, "{engine:?}");
        assert_eq!((bench.route(late).await, bench.payments(late).len()), (own.to_string(), 1));
        let Route::Delegate(first) = first else { panic!("{first}") };
        let implementations = bench.implementations().await;
        for delegate in [&first, &OWN] {
            assert!(implementations.contains(&delegate.implementation().as_bytes().to_vec()), "{delegate}");
        }
        // And back: the first one waits as long as any other.
        assert!(bench.take(&first).await.is(&OWN));
        let again = bench.accept(5, 1_000_000).await;
        assert_eq!(bench.until_ended(again).await, State::Dropped(FailureCode::NeverSigned));
        bench.until_taken().await;
        let back = bench.accept(6, 1_000_000).await;
        assert_eq!(bench.until_ended(back).await, State::Confirmed, "{engine:?}");
        assert_eq!(bench.route(back).await, by_delegate(0xd1).to_string());
        bench.close().await;
    }
}

/// A lost store had it paid by the earlier delegate, and nobody watched the wallet then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_earlier_delegate_has_paid_is_never_signed_for_a_later_one() {
    for engine in ENGINES {
        let mut bench = Bench::with_two_delegates(engine).await;
        let first = bench.accept(1, 1_000_000).await;
        assert_eq!(bench.until_ended(first).await, State::Confirmed);
        bench.take(&OWN).await;
        bench.until_taken().await;
        let id = bench.accept(2, 2_000_000).await;
        let key = id.intent_key(&bench.world.network.chain_ref, &alice());
        bench.world.chain.use_unseen(alice(), key, &by_delegate(0xd1));
        for _ in 0..60 {
            bench.block().await;
        }
        assert_eq!((bench.state(id).await, bench.intended().await), (State::Accepted, 1), "{engine:?}");
        let other = bench.accept(3, 1_000_000).await;
        assert_eq!(bench.until_ended(other).await, State::Confirmed, "it keeps no other from its turn");
        bench.close().await;
    }
}

#[tokio::test]
async fn while_a_delegate_that_was_in_use_is_not_listed_nothing_is_signed_for_any() {
    let mut bench = Bench::with_two_delegates(Engine::Sqlite).await;
    let first = bench.accept(1, 1_000_000).await;
    assert_eq!(bench.until_ended(first).await, State::Confirmed);
    bench.take(&OWN).await;
    bench.until_taken().await;
    bench.take(&bench.world.network.delegates[0]).await;
    bench.until_taken().await;
    bench.world.network.delegates.pop();
    bench.start_again();
    let id = bench.accept(2, 1_000_000).await;
    bench.settle().await;
    assert_eq!((bench.state(id).await, bench.intended().await), (State::Accepted, 1));
    bench.world.network.delegates.push(OWN);
    bench.start_again();
    assert_eq!(bench.until_ended(id).await, State::Confirmed);
    bench.close().await;
}

#[tokio::test]
async fn a_delegate_is_taken_once_with_an_entry_in_the_audit_and_never_by_a_dry_run() {
    for engine in ENGINES {
        let bench = Bench::with_two_delegates(engine).await;
        let (tries, network) = (Operator { dry_run: true, ..bench.world.operator() }, &bench.world.network);
        let dry = tries.take_delegate(bench.world.db(), (network, &OWN)).await.unwrap();
        assert!(dry.is(&network.delegates[0]));
        let text = "SELECT number FROM delegates ORDER BY number";
        assert_eq!(rows::<(i64,)>(bench.world.db(), text).await, []);
        assert!(bench.take(&OWN).await.is(&network.delegates[0]));
        assert!(bench.take(&OWN).await.is(&OWN), "it is in use already");
        assert_eq!(rows::<(i64,)>(bench.world.db(), text).await, [(0,), (1,)]);
        let audit = "SELECT action FROM audit WHERE action = 'take_delegate'";
        assert_eq!(rows::<(String,)>(bench.world.db(), audit).await.len(), 1, "{engine:?}");
        bench.close().await;
    }
}
