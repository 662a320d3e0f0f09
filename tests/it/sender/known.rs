//! Requests of which something is known when they are accepted. Blocks show the payment to a store that was set back,
//! or an acceptance was cut off before. Each makes one transfer, and nothing else is accepted under its id.

use axum::http::{Method, StatusCode};
use landfall::gas::OverCredit;
use landfall::identity::Change;
use landfall::key::Scope;
use landfall::policy::{Policy, PolicyScope};
use landfall::registry::{self, AcceptError, Terms};
use landfall::request::Made;
use landfall::store::wallets;
use landfall::transfer::{Order, State, Transfer, TransferId};
use landfall_chain::{AssetId, U256};
use serde_json::json;

use super::{BOB, Bench, LEASE_OVER, USDC, alice};
use crate::api::transfers::{PATH, REQUEST, pay, send, serve};
use crate::harness::books::rows;
use crate::harness::lanes::{cuts, cuts_of};
use crate::harness::postgres::{ENGINES, Engine};
use crate::harness::world::{CHAIN, address, poll_for, report};

/// Nothing is billed beyond the credit.
const TERMS: Terms = Terms { can_sign: true, over_credit: OverCredit::Refuse };
/// More than any acceptance has.
const AWAITS_MAX: u32 = 1_000;
/// Fewer than each has.
const AWAITS_MIN: u32 = 15;
const MISSES_MAX: u32 = 3;

/// What refuses a transfer that is new.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Against {
    Frozen,
    Quarantined,
    Limited,
    Credit,
    /// The lost transfer paid all that there was.
    Spent,
    /// Nobody says that the chain is followed.
    Unread,
    Halted,
}

/// Each with a part of what it refuses with.
const AGAINST: [(Against, &str); 7] = [
    (Against::Frozen, "account alice is Frozen"),
    (Against::Quarantined, "account alice pays nothing before a person has checked"),
    (Against::Limited, "leaves 0.0005 USDC in one transfer"),
    (Against::Credit, "100 USD are left of the gas credit"),
    (Against::Spent, "0 base units are available, and 1000 are to be paid"),
    (Against::Unread, "what the account has on ETHEREUM_TESTNET is not known"),
    (Against::Halted, "the sending of transfers on ETHEREUM_TESTNET is stopped by an operator"),
];

impl Against {
    async fn arise(self, bench: &mut Bench) {
        let (operator, now) = (bench.world.operator(), bench.world.now());
        match self {
            Against::Frozen => {
                operator.change_identity(bench.world.db(), "default", Change::Suspend).await.unwrap();
            }
            Against::Quarantined => {
                let mut tx = bench.world.db().begin().await.unwrap();
                wallets::quarantine(&mut tx, &alice(), now).await.unwrap();
                tx.commit().await.unwrap();
            }
            Against::Limited => {
                let scope = PolicyScope::Account("alice".to_owned());
                let limits = vec!["TRANSACTION:USDC:amount=0.0005".parse().unwrap()];
                let policy = Policy::new("a test".to_owned(), scope, None, limits, now).unwrap();
                let networks = [bench.world.network.clone()];
                operator.add_policy(bench.world.db(), &policy, &networks).await.unwrap();
            }
            Against::Credit => {
                // One transfer may cost more than all of it.
                bench.world.network.sending.first_cost = 1_000_000_000_000_000_000;
                bench.set_price("3000").await;
            }
            Against::Halted => operator.halt_sending(bench.world.db(), &[CHAIN]).await.unwrap(),
            Against::Spent | Against::Unread => {}
        }
        if self != Against::Unread {
            report(&bench.world).await;
        }
    }
}

/// A bench whose store was set back to before it accepted the first transfer of Alice's, which paid so much. It
/// recovers, as the page of the restore says, and has read the blocks since.
async fn set_back(engine: Engine, amount: u64) -> (Bench, TransferId) {
    let mut bench = Bench::on(engine, 1).await;
    bench.settle().await;
    let backup = bench.world.store.back_up().await;
    let lost = bench.accept(1, amount).await;
    assert_eq!(bench.until_ended(lost).await, State::Confirmed);
    let restored = bench.world.store.restored(&backup).await;
    let world = bench.world.beside(restored);
    std::mem::replace(&mut bench.world, world).abandon();
    bench.world.operator().recover_sending(bench.world.db(), &[CHAIN]).await.unwrap();
    bench.world.pass(LEASE_OVER);
    bench.restart();
    bench.follow().await;
    assert_eq!(on_record(&bench).await, (0, 0, 0, 0), "{engine:?}: the store knows nothing of {lost}");
    (bench, lost)
}

/// What a request of Alice's client is answered.
async fn ask(bench: &Bench, order: &Order) -> Result<(Transfer, Made), AcceptError> {
    registry::accept_transfer(bench.world.db(), order, TERMS, bench.world.now()).await
}

/// How much is on record at one moment: requests, transfers, what is held for them, and the states that they entered.
async fn on_record(bench: &Bench) -> (i64, i64, i64, i64) {
    let text = "SELECT (SELECT COUNT(*) FROM requests), (SELECT COUNT(*) FROM transfers), \
                (SELECT COUNT(*) FROM gas_ledger WHERE kind = 'HOLD'), (SELECT COUNT(*) FROM transfer_changes)";
    let counts: Vec<(i64, i64, i64, i64)> = rows(bench.world.db(), text).await;
    counts[0]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_blocks_show_as_paid_is_recorded_again_and_confirmed_whatever_refuses_a_new_transfer() {
    for engine in ENGINES {
        for (against, refusal) in AGAINST {
            let amount = if against == Against::Spent { USDC } else { 1_000 };
            let (mut bench, lost) = set_back(engine, amount).await;
            against.arise(&mut bench).await;
            let signed = bench.signer.seq();
            let refused = ask(&bench, &bench.order(2, 1_000)).await.unwrap_err().to_string();
            assert!(refused.contains(refusal), "{engine:?}, {against:?}: {refused}");
            let again = bench.order(1, amount);
            let (transfer, made) = ask(&bench, &again).await.unwrap();
            assert_eq!((transfer.id, transfer.state, made), (lost, State::Accepted, Made::Now), "{against:?}");
            assert_eq!(bench.until_ended(lost).await, State::Confirmed, "{engine:?}, {against:?}");
            assert_eq!(bench.history(lost).await, ["accepted", "carried", "included", "confirmed"]);
            assert_eq!((bench.payments(lost).len(), bench.signer.seq()), (1, signed), "{against:?}");
            assert_eq!(bench.available().await, U256::from(USDC - amount), "{against:?}: it is taken off once");
            assert_eq!(on_record(&bench).await, (1, 1, 1, 4), "{engine:?}, {against:?}");
            let ended = ask(&bench, &again).await.unwrap_err();
            assert!(matches!(ended, AcceptError::Duplicate { transfer, .. } if transfer == lost), "{ended}");
            bench.close().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_the_id_of_a_lost_transfer_that_paid_nothing_else_is_accepted_and_its_id_is_named() {
    for engine in ENGINES {
        let (mut bench, lost) = set_back(engine, 1_000).await;
        report(&bench.world).await;
        let same = bench.order(1, 1_000);
        let eth = bench.world.network.asset(&AssetId::Native).unwrap().clone();
        for other in [
            bench.order(1, 2_000),
            Order { asset: eth, ..same.clone() },
            Order { destination: address(BOB), ..same.clone() },
        ] {
            let refused = ask(&bench, &other).await.unwrap_err();
            assert!(
                matches!(refused, AcceptError::Mismatch { transfer: Some(id) } if id == lost),
                "{engine:?}: {refused}, for {other:?}"
            );
        }
        let (router, key) = serve(&bench.world, true, &[Scope::Transfers]).await;
        let post = async |body: String| send(&router, &key, Method::POST, PATH, body).await;
        let mut eth = pay(REQUEST, "0.001");
        eth["currency_symbol"] = json!("ETH");
        for other in [pay(REQUEST, "0.002"), eth] {
            let (status, problem) = post(other.to_string()).await;
            assert_eq!((status.as_u16(), &problem["code"]), (409, &json!("IDEMPOTENCY_MISMATCH")), "{problem}");
            assert_eq!(problem["transfer_id"], json!(lost.to_string()), "{engine:?}: {problem}");
        }
        assert_eq!(on_record(&bench).await, (0, 0, 0, 0), "{engine:?}: a refusal records nothing");
        // The request as it was is the transfer.
        let (status, transfer) = post(pay(REQUEST, "0.001").to_string()).await;
        assert_eq!((status, &transfer["id"]), (StatusCode::CREATED, &json!(lost.to_string())), "{transfer}");
        assert_eq!(bench.until_ended(lost).await, State::Confirmed);
        let (status, problem) = post(pay(REQUEST, "0.001").to_string()).await;
        assert_eq!((status.as_u16(), &problem["code"]), (409, &json!("DUPLICATE_TRANSACTION")), "{problem}");
        assert_eq!((on_record(&bench).await, bench.payments(lost).len()), ((1, 1, 1, 4), 1));
        bench.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acceptance_that_is_cut_off_at_any_await_leaves_nothing_or_all_and_its_request_makes_one_transfer() {
    for engine in ENGINES {
        let bench = Bench::on(engine, 0).await;
        report(&bench.world).await;
        let all = |count: u32| (i64::from(count), i64::from(count), i64::from(count), i64::from(count));
        let (mut crashes, mut misses) = (0, 0);
        for (nth, wakeups) in (1..).zip(cuts(AWAITS_MAX)) {
            let order = bench.order(wakeups, 1_000);
            let over = poll_for(ask(&bench, &order), wakeups).await.map(Result::unwrap);
            // A commit that was under way may arrive later, and then as a whole.
            let found = on_record(&bench).await;
            let is_all = found == all(nth);
            assert!(
                is_all || over.is_none() && found == all(nth - 1),
                "{engine:?}: cut off at await {wakeups}, {found:?} are on record behind {:?}",
                all(nth - 1)
            );
            let (transfer, made) = ask(&bench, &order).await.unwrap();
            assert!(made == Made::Before || !is_all, "{engine:?}: await {wakeups} made it, and it is made again");
            assert_eq!((transfer.request_id, transfer.state), (order.request_id, State::Accepted));
            assert_eq!(on_record(&bench).await, all(nth), "{engine:?}: cut off at await {wakeups}");
            let left = U256::from(USDC - 1_000 * u64::from(nth));
            assert_eq!(bench.available().await, left, "{engine:?}: cut off at await {wakeups}");
            crashes += u32::from(over.is_none());
            misses = if over.is_none() { 0 } else { misses + 1 };
            if misses > MISSES_MAX {
                break;
            }
        }
        println!("{engine:?}: cut off at {crashes} awaits");
        assert!(
            crashes >= cuts_of(AWAITS_MIN) && misses > MISSES_MAX,
            "{engine:?}: {crashes} crashes, and {misses} acceptances in a row ended before one"
        );
        bench.close().await;
    }
}
