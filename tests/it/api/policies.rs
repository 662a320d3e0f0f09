//! Operators' limits on transfers, through the router and through the registry, on real stores of both engines: what fits
//! is accepted, what does not is refused with what is left, and many at once are counted one after the other.

use std::time::Duration;

use axum::http::StatusCode;
use landfall::gas::GasCurrency;
use landfall::identity::Change;
use landfall::operator::{Operator, PolicyChangeError};
use landfall::policy::{Policy, PolicyLimit, PolicyScope};
use landfall::registry::{self, AcceptError};
use landfall::store::{audit, policies};
use landfall::transfer::Order;
use landfall_chain::{Chain, U256};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::api::transfers::{Bench, end, pay};
use crate::harness::postgres::{ENGINES, Engine};
use crate::harness::world::{CHAIN, TOKEN, World, address, report};
use crate::past::rescan::execute;

const DAY: Duration = Duration::from_secs(24 * 3_600);

fn everybody() -> PolicyScope {
    PolicyScope::Organization("default".to_owned())
}

fn policy(world: &World, scope: PolicyScope, chain: Option<Chain>, limits: &[&str]) -> Policy {
    let limits: Vec<PolicyLimit> = limits.iter().map(|limit| limit.parse().unwrap()).collect();
    Policy::new("a test".to_owned(), scope, chain, limits, world.now()).unwrap()
}

/// Puts such a policy in force; returns its id.
async fn limit(world: &World, scope: PolicyScope, limits: &[&str]) -> String {
    let policy = policy(world, scope, None, limits);
    let networks = [world.network.clone()];
    world.operator().add_policy(world.db(), &policy, &networks).await.unwrap();
    policy.id
}

/// Alice's client asks for a transfer of so many base units: `n` makes its request id.
fn order(world: &World, n: u32, amount: u64) -> Order {
    Order {
        request_id: id(n).parse().unwrap(),
        account_id: "alice".to_owned(),
        chain: CHAIN,
        chain_ref: world.network.chain_ref.clone(),
        asset: world.network.asset(&TOKEN).unwrap().clone(),
        amount: U256::from(amount),
        destination: address(0x77),
        gas: GasCurrency::of(&world.network).unwrap(),
    }
}

fn id(n: u32) -> String {
    format!("00000000-0000-4000-8000-{n:012}")
}

impl Bench {
    /// A transfer that a policy refuses; returns the policy and what it leaves.
    async fn refused(&self, n: u32, amount: &str) -> (String, Value) {
        let (status, problem) = self.post(&pay(&id(n), amount)).await;
        assert_eq!((status.as_u16(), &problem["code"]), (422, &json!("TRANSACTION_LIMIT_EXCEEDED")), "{problem}");
        (problem["policy_id"].as_str().unwrap().to_owned(), problem["left"].clone())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_hundred_requests_at_once_against_a_limit_of_ten_ten_are_accepted() {
    for engine in ENGINES {
        let bench = Bench::on(engine).await;
        limit(&bench.world, everybody(), &["DAY:USDC:count=10"]).await;
        let mut asked = JoinSet::new();
        for n in 0..100 {
            let (db, order, now) = (bench.world.db().clone(), order(&bench.world, n, 1_000), bench.world.now());
            asked.spawn(async move { registry::accept_transfer(&db, &order, true, now).await });
        }
        let answers = asked.join_all().await;
        let accepted = answers.iter().filter(|answer| answer.is_ok()).count();
        let refused = answers.iter().filter(|answer| matches!(answer, Err(AcceptError::OverLimit(_)))).count();
        assert_eq!((accepted, refused), (10, 90), "{engine:?}");
        assert_eq!((bench.count().await, bench.available().await.as_str()), (10, "9.99"));
        bench.world.abandon();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_leaves_what_was_not_accepted_and_what_did_not_pay() {
    for engine in ENGINES {
        let bench = Bench::on(engine).await;
        let of_alice = PolicyScope::Account("alice".to_owned());
        let policy = limit(&bench.world, of_alice, &["DAY:USDC:amount=5", "TRANSACTION:USDC:amount=3"]).await;
        let left =
            |period: &str, amount: &str| json!({ "period": period, "currency_symbol": "USDC", "amount": amount });
        assert_eq!(bench.refused(1, "3.000001").await, (policy.clone(), left("TRANSACTION", "3")));
        assert_eq!((bench.count().await, bench.available().await.as_str()), (0, "10"), "a refusal records nothing");
        let first = bench.accepted(&pay(&id(1), "3")).await;
        assert_eq!(bench.refused(2, "2.000001").await, (policy.clone(), left("DAY", "2")));
        let second = bench.accepted(&pay(&id(2), "2")).await;
        assert_eq!(bench.refused(3, "0.000001").await, (policy.clone(), left("DAY", "0")));
        // The very requests that were accepted are answered, whatever is left.
        let (status, again) = bench.post(&pay(&id(1), "3")).await;
        assert_eq!((status, &again["id"]), (StatusCode::OK, &first["id"]));
        for (transfer, status) in [(&first, "CONFIRMED"), (&second, "DROPPED")] {
            end(&bench.world, transfer["id"].as_str().unwrap(), status).await;
        }
        assert_eq!(bench.refused(3, "2.5").await, (policy.clone(), left("DAY", "2")));
        let third = bench.accepted(&pay(&id(3), "2")).await;
        end(&bench.world, third["id"].as_str().unwrap(), "FAILED").await;
        assert_eq!(bench.refused(4, "2.5").await, (policy.clone(), left("DAY", "2")));
        // 24 hours behind its acceptance it does not count any more, and a moment before it does.
        bench.world.pass(DAY - Duration::from_micros(1));
        report(&bench.world).await;
        assert_eq!(bench.refused(4, "2.5").await, (policy, left("DAY", "2")));
        bench.world.pass(Duration::from_micros(1));
        report(&bench.world).await;
        bench.accepted(&pay(&id(4), "2.5")).await;
        bench.world.abandon();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_week_and_a_month_roll_and_each_counts_to_the_microsecond_what_may_have_paid() {
    let (week, month, moment) = (DAY * 7, DAY * 30, Duration::from_micros(1));
    for engine in ENGINES {
        let bench = Bench::on(engine).await;
        let policy = limit(&bench.world, everybody(), &["WEEK:USDC:amount=5", "MONTH:USDC:amount=6"]).await;
        let left = |period: &str, amount: &str| {
            (policy.clone(), json!({ "period": period, "currency_symbol": "USDC", "amount": amount }))
        };
        let go_on = async |time: Duration| {
            bench.world.pass(time);
            report(&bench.world).await;
        };
        bench.accepted(&pay(&id(1), "3")).await;
        // What was handed to nodes counts as what was accepted.
        execute(bench.world.db(), "UPDATE transfers SET status = 'SUBMITTED', state = 'carried'").await;
        let dropped = bench.accepted(&pay(&id(2), "2")).await;
        assert_eq!(bench.refused(3, "0.5").await, left("WEEK", "0"), "{engine:?}");
        end(&bench.world, dropped["id"].as_str().unwrap(), "DROPPED").await;
        go_on(week - moment).await;
        assert_eq!(bench.refused(3, "2.5").await, left("WEEK", "2"), "{engine:?}: a moment less than 7 days ago");
        go_on(moment).await;
        bench.accepted(&pay(&id(3), "2.5")).await;
        // The month counts on.
        assert_eq!(bench.refused(4, "1").await, left("MONTH", "0.5"), "{engine:?}");
        go_on(month - week - moment).await;
        assert_eq!(bench.refused(4, "1").await, left("MONTH", "0.5"), "{engine:?}: a moment less than 30 days ago");
        go_on(moment).await;
        bench.accepted(&pay(&id(4), "3.5")).await;
        assert_eq!(bench.refused(5, "0.5").await, left("MONTH", "0"), "{engine:?}");
        bench.world.abandon();
    }
}

#[tokio::test]
async fn all_policies_that_apply_must_leave_room_and_the_narrower_is_named() {
    let bench = Bench::on(Engine::Sqlite).await;
    let wide = limit(&bench.world, everybody(), &["WEEK:USDC:amount=4"]).await;
    let narrow = limit(&bench.world, PolicyScope::Identity("default".to_owned()), &["MONTH:USDC:amount=2"]).await;
    // These limit others: another account, another currency, another chain.
    limit(&bench.world, PolicyScope::Account("bob".to_owned()), &["DAY:USDC:amount=0.1"]).await;
    limit(&bench.world, everybody(), &["TRANSACTION:ETH:amount=0.1"]).await;
    let elsewhere = policy(&bench.world, everybody(), Some(Chain::BaseMainnet), &["DAY:USDC:amount=0.1"]);
    let mut networks = [bench.world.network.clone(), bench.world.network.clone()];
    networks[1].chain = Chain::BaseMainnet;
    bench.world.operator().add_policy(bench.world.db(), &elsewhere, &networks).await.unwrap();
    assert_eq!(bench.refused(1, "4.5").await.0, narrow, "it is too much for both");
    assert_eq!(bench.refused(1, "2.5").await.0, narrow);
    bench.accepted(&pay(&id(1), "2")).await;
    bench.world.operator().remove_policy(bench.world.db(), &narrow).await.unwrap();
    assert_eq!(bench.refused(2, "2.5").await.0, wide);
    bench.accepted(&pay(&id(2), "2")).await;
    bench.world.abandon();
}

#[tokio::test]
async fn a_policy_is_shown_as_it_was_made_also_when_it_is_removed() {
    let bench = Bench::on(Engine::Sqlite).await;
    let of_alice = PolicyScope::Account("alice".to_owned());
    let made_at = bench.world.now().to_string();
    let made = limit(&bench.world, of_alice, &["DAY:USDC:amount=1000.5,count=10", "MONTH:ETH:amount=2"]).await;
    let path = format!("/v2/transaction-limits/policies/{made}");
    let mut shown = json!({
        "id": made, "label": "a test", "status": "ACTIVE", "scope": { "type": "ACCOUNT", "id": "alice" },
        "limits": [
            { "period": "DAY", "currency_symbol": "USDC", "amount": "1000.5", "count": 10 },
            { "period": "MONTH", "currency_symbol": "ETH", "amount": "2" },
        ],
        "created_at": made_at, "updated_at": made_at,
    });
    assert_eq!(bench.get(&path).await, (StatusCode::OK, shown.clone()));
    bench.world.pass(Duration::from_secs(60));
    bench.world.operator().remove_policy(bench.world.db(), &made).await.unwrap();
    (shown["status"], shown["updated_at"]) = (json!("REMOVED"), json!(bench.world.now().to_string()));
    assert_eq!(bench.get(&path).await, (StatusCode::OK, shown));
    for unknown in ["0", "00000000-0000-8000-8000-000000000000"] {
        let (status, problem) = bench.get(&format!("/v2/transaction-limits/policies/{unknown}")).await;
        assert_eq!((status.as_u16(), &problem["code"]), (404, &json!("NOT_FOUND")), "{problem}");
    }
    let mut reader = bench.world.db().read().await.unwrap();
    assert_eq!(policies::list(&mut reader, false).await.unwrap(), []);
    assert_eq!(policies::list(&mut reader, true).await.unwrap().len(), 1);
    let audited = audit::newest(&mut reader, audit::About::All, 10).await.unwrap();
    let actions: Vec<(&str, &str)> = audited.iter().map(|it| (it.action.as_str(), it.reason.as_str())).collect();
    assert_eq!(actions[..2], [("remove_policy", "a test"), ("add_policy", "a test")]);
    drop(reader);
    bench.world.abandon();
}

#[tokio::test]
async fn a_policy_of_what_is_not_there_is_refused_and_nothing_is_recorded() {
    let bench = Bench::on(Engine::Sqlite).await;
    let (world, networks) = (&bench.world, [bench.world.network.clone()]);
    let of = |scope: PolicyScope, chain: Option<Chain>, limit: &str| policy(world, scope, chain, &[limit]);
    for (policy, said) in [
        (
            of(everybody(), None, "DAY:USDT:amount=1"),
            "USDT is not listed on any chain that is followed: they are ETH, USDC",
        ),
        (
            of(everybody(), Some(Chain::BaseMainnet), "DAY:USDC:amount=1"),
            "USDC is not listed on BASE_MAINNET: they are ",
        ),
        (of(everybody(), None, "DAY:USDC:amount=0.0000001"), "0.0000001 USDC has more decimals than USDC has"),
        (of(PolicyScope::Account("nobody".to_owned()), None, "DAY:USDC:amount=1"), "there is no account nobody"),
        (of(PolicyScope::Identity("nobody".to_owned()), None, "DAY:USDC:amount=1"), "there is no identity nobody"),
        (
            of(PolicyScope::Organization("other".to_owned()), None, "DAY:USDC:amount=1"),
            "there is no organization other",
        ),
    ] {
        let refused = world.operator().add_policy(world.db(), &policy, &networks).await.unwrap_err().to_string();
        assert!(refused.starts_with(said), "{refused}");
    }
    let dry = of(everybody(), None, "DAY:USDC:amount=1");
    let tried = Operator { dry_run: true, ..world.operator() };
    tried.add_policy(world.db(), &dry, &networks).await.unwrap();
    let nameless = Operator { reason: " ", ..world.operator() };
    let refused = nameless.add_policy(world.db(), &dry, &networks).await.unwrap_err();
    assert!(matches!(refused, PolicyChangeError::Decide(_)), "{refused}");
    let unknown = world.operator().remove_policy(world.db(), &dry.id).await.unwrap_err();
    assert!(matches!(unknown, PolicyChangeError::Unknown(_)), "{unknown}");
    assert_eq!(policies::list(&mut world.db().read().await.unwrap(), true).await.unwrap(), []);
    bench.accepted(&pay(&id(1), "10")).await;
    bench.world.abandon();
}

#[tokio::test]
async fn an_account_that_is_frozen_is_refused_before_its_limits_are_counted() {
    let bench = Bench::on(Engine::Sqlite).await;
    limit(&bench.world, everybody(), &["TRANSACTION:USDC:amount=1"]).await;
    bench.world.operator().change_identity(bench.world.db(), "default", Change::Suspend).await.unwrap();
    let (status, problem) = bench.post(&pay(&id(1), "2")).await;
    assert_eq!((status.as_u16(), &problem["code"]), (409, &json!("ACCOUNT_NOT_ACTIVE")), "{problem}");
    bench.world.abandon();
}
