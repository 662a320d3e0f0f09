//! Transfers through the router, over a simulated chain and real stores of both engines: what is accepted, what a request
//! that comes again is answered, what is refused and with which words, and that no money is reserved twice.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Method, Request, StatusCode, header};
use landfall::account::{AccountType, NewAccount};
use landfall::amount::from_decimal;
use landfall::api::{self, Limits, Settings};
use landfall::config::Config;
use landfall::gas::GasCurrency;
use landfall::identity::Change;
use landfall::key::{ApiKey, Environment, Scope, Scopes};
use landfall::operator::Operator;
use landfall::overrides::Author;
use landfall::registry::{self, SweepOrder};
use landfall::request::Made;
use landfall::store::wallets::{self, Wallet};
use landfall::store::{Pools, sponsors};
use landfall::time::Timestamp;
use landfall::watcher::{BalanceWatch, BalancesRead};
use landfall_chain::{Address, Family, Signer, U256};
use landfall_sim::{SimLeg, SimTx, WEALTH};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tower::ServiceExt as _;

use crate::harness::postgres::{ENGINES, Engine};
use crate::harness::signer::SignerDouble;
use crate::harness::world::{CHAIN, FINALITY_DEPTH, TOKEN, World, address, report, tester};

const ALICE: u8 = 0xa1;
const BOB: u8 = 0xb0;
const STRANGER: u8 = 0x77;
const PAYER: u8 = 0x01;
/// Where Carol pays from, and a further address of hers.
const CAROL: [u8; 2] = [0xca, 0xcb];
pub(crate) const PATH: &str = "/v2/crypto/transfers";
pub(crate) const REQUEST: &str = "00000000-0000-4000-8000-000000000001";
const OTHER: &str = "00000000-0000-4000-8000-000000000002";
/// What Alice was paid, in base units of USDC and of ETH.
const USDC: u64 = 10_000_000;
const WEI: u64 = 5_000_000_000;

/// A world in which Alice has money at an address of ours, served by a router that may sign.
pub(crate) struct Bench {
    pub(crate) world: World,
    router: Router,
    key: String,
}

impl Bench {
    pub(crate) async fn on(engine: Engine) -> Self {
        let mut world = World::on(engine, 1).await;
        let mut watch =
            BalanceWatch::new(world.chain.clone(), world.db().clone(), &world.network, 20, "one".to_owned());
        watch.tick(world.now(), 0).await.unwrap();
        for (account, who) in [("alice", ALICE), ("bob", BOB)] {
            world.watch(account, address(who)).await;
        }
        manage(&world, "alice", ALICE).await;
        world.chain.mine_empty(FINALITY_DEPTH + 1);
        world.catch_up().await;
        // Everybody owns a sum beyond all belief at first.
        let everything = SimLeg { amount: U256::from(WEALTH), ..SimLeg::native(address(ALICE), address(PAYER), 0) };
        let tokens = SimLeg { asset: TOKEN, ..everything };
        world
            .chain
            .mine(vec![SimTx::new(address(ALICE), 0, vec![tokens]), SimTx::new(address(ALICE), 1, vec![everything])]);
        let usdc = SimLeg { asset: TOKEN, ..SimLeg::native(address(PAYER), address(ALICE), USDC) };
        let eth = SimLeg::native(address(PAYER), address(ALICE), WEI);
        world.chain.mine(vec![SimTx::new(address(PAYER), 0, vec![usdc]), SimTx::new(address(PAYER), 1, vec![eth])]);
        world.chain.mine_empty(FINALITY_DEPTH);
        world.catch_up().await;
        while watch.tick(world.now(), 0).await.unwrap() != BalancesRead::default() {}
        report(&world).await;
        let (router, key) = serve(&world, true, &[Scope::Read, Scope::Transfers]).await;
        Bench { world, router, key }
    }

    async fn new() -> Self {
        Bench::on(Engine::Sqlite).await
    }

    pub(crate) async fn post(&self, body: &Value) -> (StatusCode, Value) {
        send(&self.router, &self.key, Method::POST, PATH, body.to_string()).await
    }

    pub(crate) async fn get(&self, path: &str) -> (StatusCode, Value) {
        send(&self.router, &self.key, Method::GET, path, String::new()).await
    }

    /// A transfer that must be new.
    pub(crate) async fn accepted(&self, body: &Value) -> Value {
        let (status, transfer) = self.post(body).await;
        assert_eq!(status, StatusCode::CREATED, "{transfer}");
        transfer
    }

    async fn assert_refused(&self, body: &Value, status: u16, code: &str, detail: &str) {
        let (found, problem) = self.post(body).await;
        assert_eq!((found.as_u16(), &problem["code"]), (status, &json!(code)), "{problem}");
        let said = problem["detail"].as_str().unwrap();
        assert!(said.contains(detail), "{said:?} for {body}");
    }

    /// Asserts that a list is refused for this parameter, and for nothing else.
    async fn assert_list_refused(&self, query: &str, parameter: &str, detail: &str) {
        let (status, problem) = self.get(&format!("{PATH}?{query}")).await;
        assert_eq!((status.as_u16(), &problem["code"]), (400, &json!("INVALID_ARGUMENT")), "{query}: {problem}");
        assert_eq!(problem["errors"], json!([{ "parameter": parameter, "detail": detail }]), "{query}");
    }

    /// How many transfers a page of the list has, and the cursor of the next one.
    async fn page(&self, query: &str) -> (usize, Option<String>) {
        let (status, page) = self.get(&format!("{PATH}?{query}")).await;
        assert_eq!(status, StatusCode::OK, "{query}: {page}");
        (page["transfers"].as_array().unwrap().len(), page["cursor"].as_str().map(str::to_owned))
    }

    /// What Alice may spend of USDC.
    pub(crate) async fn available(&self) -> String {
        let (status, body) = self.get("/v2/accounts/alice/balances?symbol=USDC").await;
        assert_eq!(status, StatusCode::OK, "{body}");
        body["balances"][0]["available"].as_str().unwrap().to_owned()
    }

    /// How many transfers are listed.
    pub(crate) async fn count(&self) -> usize {
        let (status, body) = self.get(&format!("{PATH}?limit=100")).await;
        assert_eq!(status, StatusCode::OK, "{body}");
        body["transfers"].as_array().unwrap().len()
    }
}

/// Notes that we hold the key of an account's address.
pub(crate) async fn manage(world: &World, account: &str, who: u8) {
    let wallet = Wallet {
        address: address(who),
        account_id: account.to_owned(),
        tag: String::new(),
        path: "m/44'/60'/0'/0/0".to_owned(),
        key_id: "test".to_owned(),
    };
    let mut tx = world.db().begin().await.unwrap();
    wallets::add(&mut tx, &wallet, world.now()).await.unwrap();
    tx.commit().await.unwrap();
}

/// Ends a transfer so, as the sender will: this version has none.
pub(crate) async fn end(world: &World, id: &str, status: &str) {
    let (confirmed, code) = match status {
        "CONFIRMED" => (Some(world.now().0), None),
        "FAILED" => (None, Some("REVERTED")),
        _ => (None, Some("WINDOW_ELAPSED")),
    };
    let sql = "UPDATE transfers SET status = $1, state = $2, confirmed_us = $3, failure_code = $4 WHERE id = $5";
    macro_rules! run {
        ($pool:expr) => {
            sqlx::query(sql)
                .bind(status)
                .bind(status.to_lowercase())
                .bind(confirmed)
                .bind(code)
                .bind(id)
                .execute($pool)
                .await
                .unwrap()
                .rows_affected()
        };
    }
    let ended = match world.db().pools() {
        Pools::Postgres(pool) => run!(pool),
        Pools::Sqlite { write, .. } => run!(write),
    };
    assert_eq!(ended, 1);
}

/// A router over the world, and a key with these scopes.
pub(crate) async fn serve(world: &World, can_sign: bool, scopes: &[Scope]) -> (Router, String) {
    let scopes = Scopes::of(scopes).unwrap();
    let random = [u8::from(can_sign); ApiKey::RANDOM_BYTES];
    let by = tester(world.now());
    let key = registry::create_key(world.db(), Environment::Test, ("test", &scopes), &random, &by).await;
    let key = key.unwrap().reveal();
    let limits = Limits { ip_requests_per_sec: 0, key_requests_per_sec: 0, ..Limits::default() };
    let networks = vec![world.network.clone()];
    let signer = can_sign.then(|| Arc::new(SignerDouble::default()) as Arc<dyn Signer>);
    let settings = Settings { limits, networks, signer, ..Settings::of(Environment::Test) };
    (api::Api::new(world.db().clone(), settings, world.clock()).router(), key)
}

pub(crate) async fn send(router: &Router, key: &str, method: Method, path: &str, body: String) -> (StatusCode, Value) {
    let request = Request::builder().method(method).uri(path).header(header::AUTHORIZATION, format!("Bearer {key}"));
    let request = request.header(header::CONTENT_TYPE, "application/json");
    let response = router.clone().oneshot(request.body(Body::from(body)).unwrap()).await.unwrap();
    let status = response.status();
    let bytes = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, serde_json::from_slice(&bytes).unwrap())
}

/// Alice pays a stranger so much USDC.
pub(crate) fn pay(request_id: &str, amount: &str) -> Value {
    let destination = json!({ "address": address(STRANGER).to_string(), "chain": "ETHEREUM_TESTNET" });
    json!({
        "request_id": request_id, "account_id": "alice", "currency_symbol": "USDC", "amount": amount,
        "address_destination": destination,
    })
}

/// The same with the destination in the other form.
fn flat(mut body: Value) -> Value {
    let fields = body.as_object_mut().unwrap();
    let destination = fields.remove("address_destination").unwrap();
    fields.insert("destination_address".to_owned(), destination["address"].clone());
    fields.insert("destination_chain".to_owned(), destination["chain"].clone());
    body
}

fn with(mut body: Value, field: &str, value: Value) -> Value {
    body[field] = value;
    body
}

fn without(mut body: Value, field: &str) -> Value {
    body.as_object_mut().unwrap().remove(field).unwrap();
    body
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transfer_is_accepted_once_reserved_and_shown_alike_everywhere() {
    for engine in ENGINES {
        let bench = Bench::on(engine).await;
        assert_eq!(bench.available().await, "10");
        let transfer = bench.accepted(&pay(REQUEST, "2.5")).await;
        let now = bench.world.now().to_string();
        let shown = json!({
            "id": "bac872c0-9656-8527-b18f-fc8f02a10278",
            "request_id": REQUEST,
            "account_id": "alice",
            "identity_id": "default",
            "source_address": address(ALICE).to_string(),
            "address_destination": { "address": address(STRANGER).to_string(), "chain": "ETHEREUM_TESTNET" },
            "destination_address": address(STRANGER).to_string(),
            "destination_chain": "ETHEREUM_TESTNET",
            "currency_symbol": "USDC",
            "amount": "2.5",
            "status": "ACCEPTED",
            "transaction_hash": "",
            "created_at": now,
            "updated_at": now,
        });
        assert_eq!(transfer, shown);
        assert_eq!(bench.available().await, "7.5");
        // The same request, in either form and in upper case, is this transfer.
        for again in [pay(REQUEST, "2.5"), flat(pay(REQUEST, "2.50")), pay(&REQUEST.to_uppercase(), "2.5")] {
            assert_eq!(bench.post(&again).await, (StatusCode::OK, shown.clone()));
        }
        let path = format!("{PATH}/{}", transfer["id"].as_str().unwrap());
        assert_eq!(bench.get(&path).await, (StatusCode::OK, shown.clone()));
        let listed = bench.get(&format!("{PATH}?account_id=alice")).await;
        assert_eq!(listed, (StatusCode::OK, json!({ "transfers": [shown] })));
        assert_eq!(bench.available().await, "7.5");
        bench.world.abandon();
    }
}

#[tokio::test]
async fn a_request_id_with_other_content_is_refused_and_names_the_transfer() {
    let bench = Bench::new().await;
    let transfer = bench.accepted(&pay(REQUEST, "1")).await;
    let elsewhere = json!({ "address": address(BOB).to_string(), "chain": "ETHEREUM_TESTNET" });
    for other in [pay(REQUEST, "1.000001"), with(pay(REQUEST, "1"), "address_destination", elsewhere)] {
        let (status, problem) = bench.post(&other).await;
        assert_eq!((status.as_u16(), &problem["code"]), (409, &json!("IDEMPOTENCY_MISMATCH")), "{problem}");
        assert_eq!(problem["transfer_id"], transfer["id"]);
    }
    assert_eq!(bench.count().await, 1);
    bench.world.abandon();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_whose_transfer_has_ended_is_a_duplicate_and_what_did_not_pay_is_free_again() {
    for engine in ENGINES {
        let bench = Bench::on(engine).await;
        for (n, status) in ["CONFIRMED", "FAILED", "DROPPED"].into_iter().enumerate() {
            let body = pay(&format!("00000000-0000-4000-8000-0000000000{}", n + 10), "4");
            let transfer = bench.accepted(&body).await;
            assert_eq!(bench.available().await, "6");
            end(&bench.world, transfer["id"].as_str().unwrap(), status).await;
            let (found, problem) = bench.post(&body).await;
            assert_eq!((found.as_u16(), &problem["code"]), (409, &json!("DUPLICATE_TRANSACTION")), "{problem}");
            assert_eq!((&problem["transfer_id"], &problem["transfer_status"]), (&transfer["id"], &json!(status)));
            // Other content under the same id is a mismatch at whatever state.
            let (_, other) = bench.post(&with(body, "amount", json!("5"))).await;
            assert_eq!(other["code"], "IDEMPOTENCY_MISMATCH");
            assert_eq!(bench.available().await, "10");
        }
        bench.world.abandon();
    }
}

#[tokio::test]
async fn a_refusal_records_nothing_so_the_same_request_may_come_again() {
    let bench = Bench::new().await;
    let all = pay(REQUEST, "10");
    bench
        .assert_refused(
            &pay(REQUEST, "10.000001"),
            422,
            "INSUFFICIENT_FUNDS",
            "10.000001 USDC are to be paid, and 10 USDC",
        )
        .await;
    assert_eq!(bench.count().await, 0);
    // All of a balance may be paid, by the very request that was refused.
    bench.accepted(&all).await;
    assert_eq!(bench.available().await, "0");
    bench.assert_refused(&pay(OTHER, "0.000001"), 422, "INSUFFICIENT_FUNDS", "0 USDC are available").await;
    bench.world.abandon();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_that_want_the_same_money_as_many_get_it_as_there_is() {
    for engine in ENGINES {
        let bench = Bench::on(engine).await;
        let mut asked = JoinSet::new();
        for n in 0..20_u32 {
            let body = pay(&format!("00000000-0000-4000-8000-0000000000{:02}", n + 10), "1.5").to_string();
            let (router, key) = (bench.router.clone(), bench.key.clone());
            asked.spawn(async move { send(&router, &key, Method::POST, PATH, body).await });
        }
        let answers = asked.join_all().await;
        let accepted = answers.iter().filter(|(status, _)| *status == StatusCode::CREATED).count();
        let refused = answers.iter().filter(|(_, body)| body["code"] == "INSUFFICIENT_FUNDS").count();
        assert_eq!((accepted, refused), (6, 14), "{answers:?}");
        assert_eq!((bench.count().await, bench.available().await.as_str()), (6, "1"));
        bench.world.abandon();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t17_one_request_sent_many_times_at_once_makes_one_transfer() {
    for engine in ENGINES {
        let bench = Bench::on(engine).await;
        let mut asked = JoinSet::new();
        for _ in 0..100 {
            let (router, key, body) = (bench.router.clone(), bench.key.clone(), pay(REQUEST, "4").to_string());
            asked.spawn(async move { send(&router, &key, Method::POST, PATH, body).await });
        }
        let answers = asked.join_all().await;
        let made = answers.iter().filter(|(status, _)| *status == StatusCode::CREATED).count();
        assert!(answers.iter().all(|(status, _)| status.is_success()), "{answers:?}");
        assert_eq!((made, bench.count().await, bench.available().await.as_str()), (1, 1, "6"));
        bench.world.abandon();
    }
}

#[tokio::test]
async fn amounts_that_can_be_read_two_ways_or_not_at_all_are_refused_by_name() {
    let bench = Bench::new().await;
    let huge = format!("1{}", "0".repeat(78));
    for amount in
        ["1e3", "+1", " 1", "1 ", "01", "1.", ".5", "0", "0.0", "-1", "NaN", "", "1.0000001", "1.0000000", "1,5", &huge]
    {
        let (status, problem) = bench.post(&pay(REQUEST, amount)).await;
        assert_eq!(
            (status.as_u16(), &problem["errors"][0]["parameter"]),
            (400, &json!("amount")),
            "{amount:?}: {problem}"
        );
    }
    let (status, problem) = bench.post(&with(pay(REQUEST, "1"), "amount", json!(1))).await;
    assert_eq!((status.as_u16(), &problem["errors"][0]["parameter"]), (400, &json!("amount")), "{problem}");
    assert_eq!(bench.count().await, 0);
    bench.world.abandon();
}

#[tokio::test]
async fn destinations_that_are_no_ones_or_said_twice_are_refused_with_what_to_send() {
    let bench = Bench::new().await;
    let to = |address: &str, chain: &str| json!({ "address": address, "chain": chain });
    let stranger = address(STRANGER).to_string();
    let place = |address: &str| with(pay(REQUEST, "1"), "address_destination", to(address, "ETHEREUM_TESTNET"));
    let refused = [
        (place("0x0000000000000000000000000000000000000000"), "address_destination.address", "the zero address"),
        (place("0x5aaeb6053F3E94C9b9A09f33669435E7Ef1BeAed"), "address_destination.address", "checksum"),
        (place("9xQeWvG816bUx9EPjHmaT23yvVM2ZWbrrpZb9PusVFin"), "address_destination.address", ""),
        (
            place(&landfall_chain::Address::Evm([0x70; 20]).to_string()),
            "address_destination.address",
            "the token itself",
        ),
        (place(&address(ALICE).to_string()), "address_destination.address", "the address that pays"),
        (
            with(pay(REQUEST, "1"), "address_destination", to(&stranger, "BASE_MAINNET")),
            "address_destination.chain",
            "not followed",
        ),
        (
            with(pay(REQUEST, "1"), "address_destination", to(&stranger, "CHAIN_UNSPECIFIED")),
            "address_destination.chain",
            "must be one of",
        ),
        (with(pay(REQUEST, "1"), "destination_address", json!(stranger)), "address_destination", "must be sent alone"),
        (without(pay(REQUEST, "1"), "address_destination"), "address_destination", "is required"),
        (without(flat(pay(REQUEST, "1")), "destination_chain"), "destination_chain", "is required"),
        (without(flat(pay(REQUEST, "1")), "destination_address"), "destination_address", "is required"),
        (with(pay(REQUEST, "1"), "destinationAddress", json!(stranger)), "destinationAddress", "is no field"),
        (with(pay(REQUEST, "1"), "currency_symbol", json!("USDT")), "currency_symbol", "they are ETH, USDC"),
        (with(pay(REQUEST, "1"), "account_id", json!("nobody")), "account_id", "names no account"),
        (without(pay(REQUEST, "1"), "request_id"), "request_id", "is required"),
        (pay("4711", "1"), "request_id", "must be a UUID"),
        (pay("00000000-0000-0000-0000-000000000000", "1"), "request_id", "not all zeros"),
    ];
    for (body, field, detail) in refused {
        let (status, problem) = bench.post(&body).await;
        assert_eq!((status.as_u16(), &problem["code"]), (400, &json!("INVALID_ARGUMENT")), "{problem}");
        let errors = problem["errors"].as_array().unwrap();
        let said = errors.iter().find(|error| error["parameter"] == field).unwrap_or_else(|| panic!("{problem}"));
        assert!(said["detail"].as_str().unwrap().contains(detail), "{problem}");
    }
    assert_eq!(bench.count().await, 0);
    bench.world.abandon();
}

#[tokio::test]
async fn an_address_that_pays_for_transactions_here_is_no_destination_and_its_field_says_what_to_send() {
    let bench = Bench::new().await;
    let payers = [0x5a, 0x5b].map(address);
    let mut tx = bench.world.db().begin().await.unwrap();
    for (number, payer) in (0_u32..).zip(&payers) {
        let is_treasury = number == 1;
        sponsors::add(&mut tx, CHAIN, is_treasury, bench.world.now()).await.unwrap();
        let watched = (u64::from(number) + 100, 1);
        assert!(sponsors::derived(&mut tx, CHAIN, (number, payer), watched).await.unwrap());
    }
    tx.commit().await.unwrap();
    for payer in payers {
        let to = json!({ "address": payer.to_string(), "chain": "ETHEREUM_TESTNET" });
        let body = with(pay(REQUEST, "1"), "address_destination", to);
        for (body, field) in [(flat(body.clone()), "destination_address"), (body, "address_destination.address")] {
            let (status, problem) = bench.post(&body).await;
            assert_eq!((status.as_u16(), &problem["code"]), (400, &json!("INVALID_ARGUMENT")), "{problem}");
            let detail = "is an address that pays for transactions here; send to another one";
            assert_eq!(problem["errors"], json!([{ "parameter": field, "detail": detail }]), "{body}");
        }
    }
    // Nothing was recorded or reserved: the same request is taken for another destination.
    assert_eq!(bench.count().await, 0);
    bench.accepted(&pay(REQUEST, "10")).await;
    bench.world.abandon();
}

#[tokio::test]
async fn what_is_ours_is_named_as_the_account_that_is_paid() {
    let bench = Bench::new().await;
    let bob = json!({ "address": address(BOB).to_string(), "chain": "ETHEREUM_TESTNET" });
    let transfer = bench.accepted(&with(pay(REQUEST, "1"), "address_destination", bob)).await;
    assert_eq!(transfer["destination_account_id"], "bob");
    bench.world.abandon();
}

#[tokio::test]
async fn an_account_that_is_frozen_closed_or_imported_pays_nothing() {
    let bench = Bench::new().await;
    let from_bob = with(pay(REQUEST, "1"), "account_id", json!("bob"));
    bench.assert_refused(&from_bob, 422, "SOURCE_NOT_MANAGED", "account bob has no address on ETHEREUM_TESTNET").await;
    let before = bench.accepted(&pay(OTHER, "1")).await;
    let operator = Operator { actor: "olga", reason: "a test", now: bench.world.now(), dry_run: false };
    operator.change_identity(bench.world.db(), "default", Change::Suspend).await.unwrap();
    bench.assert_refused(&pay(REQUEST, "1"), 409, "ACCOUNT_NOT_ACTIVE", "the account is FROZEN").await;
    // What was accepted before is still answered.
    assert_eq!(bench.post(&pay(OTHER, "1")).await, (StatusCode::OK, before));
    bench.world.abandon();
}

#[tokio::test]
async fn while_the_balance_is_not_known_nothing_is_accepted_and_nothing_recorded() {
    let bench = Bench::new().await;
    let accepted = bench.accepted(&pay(OTHER, "1")).await;
    bench.world.pass(std::time::Duration::from_secs(6 * 60));
    bench.assert_refused(&pay(REQUEST, "1"), 503, "BALANCE_UNKNOWN", "ETHEREUM_TESTNET is not known").await;
    let (status, again) = bench.post(&pay(OTHER, "1")).await;
    assert_eq!((status, &again["id"]), (StatusCode::OK, &accepted["id"]));
    report(&bench.world).await;
    bench.accepted(&pay(REQUEST, "1")).await;
    bench.world.abandon();
}

#[tokio::test]
async fn without_a_signer_or_without_the_scope_nothing_is_sent() {
    let bench = Bench::new().await;
    let (unsigned, key) = serve(&bench.world, false, &[Scope::Admin]).await;
    let (status, problem) = send(&unsigned, &key, Method::POST, PATH, pay(REQUEST, "1").to_string()).await;
    assert_eq!((status.as_u16(), &problem["code"]), (503, &json!("TRANSFERS_NOT_CONFIGURED")), "{problem}");
    let (status, problem) = send(&unsigned, &key, Method::POST, PATH, pay(REQUEST, "11").to_string()).await;
    assert_eq!((status.as_u16(), &problem["code"]), (422, &json!("INSUFFICIENT_FUNDS")), "{problem}");
    let scopes = Scopes::of(&[Scope::Write, Scope::Read, Scope::Webhooks]).unwrap();
    let random = [7; ApiKey::RANDOM_BYTES];
    let now = tester(bench.world.now());
    let key =
        registry::create_key(bench.world.db(), Environment::Test, ("test", &scopes), &random, &now).await.unwrap();
    let (status, problem) = send(&bench.router, &key.reveal(), Method::POST, PATH, pay(REQUEST, "1").to_string()).await;
    assert_eq!((status.as_u16(), &problem["code"]), (403, &json!("FORBIDDEN")), "{problem}");
    assert_eq!(bench.count().await, 0);
    bench.world.abandon();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_hang_together_and_filters_let_through_what_they_name() {
    for engine in ENGINES {
        let bench = Bench::on(engine).await;
        let mut ids = Vec::new();
        for n in 10..15 {
            let request_id = format!("00000000-0000-4000-8000-0000000000{n}");
            ids.push(bench.accepted(&pay(&request_id, "0.1")).await["id"].clone());
            if n == 12 {
                // Two of one time are in the order of their ids.
                bench.world.pass(std::time::Duration::from_secs(1));
            }
        }
        let mut seen = Vec::new();
        let mut cursor = String::new();
        loop {
            let (status, page) = bench.get(&format!("{PATH}?identity_ids=default&limit=2{cursor}")).await;
            assert_eq!(status, StatusCode::OK, "{page}");
            seen.extend(page["transfers"].as_array().unwrap().iter().map(|transfer| transfer["id"].clone()));
            let Some(next) = page["cursor"].as_str() else { break };
            cursor = format!("&cursor={next}");
        }
        assert_eq!(seen.len(), 5);
        let newest: Vec<&Value> = seen.iter().take(2).collect();
        assert!(ids[3..].iter().all(|id| newest.contains(&id)), "{seen:?} {ids:?}");
        assert!(ids.iter().all(|id| seen.contains(id)));

        let start = bench.world.now();
        let (before, request) = (Timestamp(start.0 - 1), "00000000-0000-4000-8000-000000000011");
        let counts = [
            ("account_id=alice".to_owned(), 5),
            ("account_id=alice&identity_id=default".to_owned(), 5),
            ("account_id=alice&identity_id=other".to_owned(), 0),
            ("account_id=nobody".to_owned(), 0),
            ("identity_ids=default&identity_ids=other".to_owned(), 5),
            ("identity_id=default&identity_ids=other".to_owned(), 5),
            ("identity_id=other".to_owned(), 0),
            ("destination_chain=ETHEREUM_TESTNET".to_owned(), 5),
            ("destination_chain=BASE_MAINNET".to_owned(), 0),
            ("currency_symbol=ETH".to_owned(), 0),
            ("status=ACCEPTED".to_owned(), 5),
            ("status=DROPPED".to_owned(), 0),
            (format!("request_id={request}"), 1),
            (format!("start_time={start}"), 2),
            (format!("end_time={before}"), 3),
        ];
        for (query, count) in counts {
            let (status, page) = bench.get(&format!("{PATH}?{query}")).await;
            assert_eq!((status, page["transfers"].as_array().map(Vec::len)), (StatusCode::OK, Some(count)), "{query}");
        }
        for query in ["status=PENDING", "limit=101", "request_id=1", "accountId=alice"] {
            assert_eq!(bench.get(&format!("{PATH}?{query}")).await.0, StatusCode::BAD_REQUEST, "{query}");
        }
        let (_, page) = bench.get(&format!("{PATH}?limit=2")).await;
        let cursor = page["cursor"].as_str().unwrap();
        let other = bench.get(&format!("{PATH}?status=ACCEPTED&cursor={cursor}")).await;
        assert_eq!(other.0, StatusCode::BAD_REQUEST, "{}", other.1);
        bench.world.abandon();
    }
}

#[tokio::test]
async fn a_page_has_25_transfers_unless_the_limit_says_otherwise_and_100_at_most() {
    let bench = Bench::new().await;
    for n in 10..36 {
        bench.accepted(&pay(&format!("00000000-0000-4000-8000-0000000000{n}"), "0.1")).await;
    }
    let (first, cursor) = bench.page("").await;
    assert_eq!(first, 25);
    assert_eq!(bench.page(&format!("cursor={}", cursor.unwrap())).await, (1, None));
    assert_eq!(bench.page("limit=100").await, (26, None));
    assert_eq!(bench.page("limit=26").await, (26, None));
    assert_eq!(bench.page("limit=1").await.0, 1);
    for limit in ["0", "101", "-1", "01", "25.0", ""] {
        bench.assert_list_refused(&format!("limit={limit}"), "limit", "must be an integer from 1 to 100").await;
    }
    bench.world.abandon();
}

#[tokio::test]
async fn a_list_takes_25_identities_and_one_more_by_its_own_name() {
    let bench = Bench::new().await;
    bench.accepted(&pay(REQUEST, "1")).await;
    let others = |count: u32| (0..count).map(|n| format!("identity_ids=other{n}")).collect::<Vec<_>>().join("&");
    let too_many = "must not be sent more than 25 times";
    bench.assert_list_refused(&format!("{}&identity_ids=default", others(25)), "identity_ids", too_many).await;
    for (query, count) in [
        (format!("{}&identity_ids=default", others(24)), 1),
        (format!("{}&identity_id=default", others(25)), 1),
        (others(25), 0),
    ] {
        assert_eq!(bench.page(&query).await, (count, None), "{query}");
    }
    bench.world.abandon();
}

#[tokio::test]
async fn a_time_range_that_ends_before_it_starts_is_refused_and_one_moment_is_a_range() {
    let bench = Bench::new().await;
    bench.accepted(&pay(REQUEST, "1")).await;
    let now = bench.world.now();
    let (before, ends) = (Timestamp(now.0 - 1), "must not be after end_time");
    bench.assert_list_refused(&format!("start_time={now}&end_time={before}"), "start_time", ends).await;
    // Before they are rounded to what is kept, the other way round in the query, and by another offset.
    for (start, end) in [
        ("2026-01-31T12:00:00.000000002Z", "2026-01-31T12:00:00.000000001Z"),
        ("2026-01-31T12:00:00Z", "2026-01-31T12:59:59%2B01:00"),
    ] {
        bench.assert_list_refused(&format!("end_time={end}&start_time={start}"), "start_time", ends).await;
    }
    assert_eq!(bench.page(&format!("start_time={now}&end_time={now}")).await, (1, None));
    assert_eq!(bench.page(&format!("start_time={before}&end_time={before}")).await, (0, None));
    bench.world.abandon();
}

/// An operator has what is at Carol's further address brought to the one that pays; the id of that sweep.
async fn swept(bench: &mut Bench) -> String {
    let world = &mut bench.world;
    let (id, addresses) = ("carol".to_owned(), CAROL.map(|who| (CHAIN, address(who))).into());
    let account = NewAccount { id: id.clone(), identity_id: None, kind: AccountType::Omnibus, addresses };
    registry::add_accounts(world.db(), &[account], world.now()).await.unwrap();
    manage(world, "carol", CAROL[0]).await;
    let further = Wallet {
        address: address(CAROL[1]),
        account_id: id.clone(),
        tag: "r-1".to_owned(),
        path: "m/44'/60'/0'/0/1".to_owned(),
        key_id: "test".to_owned(),
    };
    let mut tx = world.db().begin().await.unwrap();
    wallets::add(&mut tx, &further, world.now()).await.unwrap();
    tx.commit().await.unwrap();
    // Everybody owns a sum beyond all belief at first. It is read once all that leaves is seen.
    world.chain.mine_empty(FINALITY_DEPTH + 1);
    world.catch_up().await;
    // The lease of the watch that the bench had.
    world.pass(std::time::Duration::from_secs(61));
    let mut watch = BalanceWatch::new(world.chain.clone(), world.db().clone(), &world.network, 20, "one".to_owned());
    while watch.tick(world.now(), 0).await.unwrap() != BalancesRead::default() {}
    report(world).await;
    let order = SweepOrder {
        request_id: REQUEST.parse().unwrap(),
        account_id: id,
        chain: CHAIN,
        chain_ref: world.network.chain_ref.clone(),
        asset: world.network.asset(&TOKEN).unwrap().clone(),
        gas: GasCurrency::of(&world.network).unwrap(),
    };
    let by = Author { actor: "ops", reason: "a test", now: world.now() };
    let swept = registry::sweep(world.db(), &order, (true, false), &by).await.unwrap();
    let [(sweep, Made::Now)] = &swept.transfers[..] else { panic!("one sweep: {swept:?}") };
    sweep.id.to_string()
}

#[tokio::test]
async fn a_sweep_is_not_found_by_its_id_nor_listed() {
    let mut bench = Bench::new().await;
    let sweep = swept(&mut bench).await;
    for id in [sweep.as_str(), "00000000-0000-8000-8000-000000000000", "0"] {
        let (status, problem) = bench.get(&format!("{PATH}/{id}")).await;
        assert_eq!((status.as_u16(), &problem["code"]), (404, &json!("NOT_FOUND")), "{id}: {problem}");
        assert_eq!(problem["detail"], "no transfer has this id", "{id}");
    }
    let of_request = format!("request_id={REQUEST}");
    for query in ["", "account_id=carol", "identity_id=default", "status=ACCEPTED", of_request.as_str()] {
        assert_eq!(bench.page(query).await, (0, None), "{query}");
    }
    // Its request is an operator's: a client's with the same id is another one.
    let transfer = bench.accepted(&pay(REQUEST, "1")).await;
    assert_ne!(transfer["id"], json!(sweep));
    assert_eq!(bench.page("").await, (1, None));
    bench.world.abandon();
}

#[tokio::test]
async fn what_one_asset_reserves_is_not_taken_off_another() {
    let bench = Bench::new().await;
    let available = async || {
        let (_, body) = bench.get("/v2/accounts/alice/balances").await;
        let lines = body["balances"].as_array().unwrap().clone();
        let [eth, usdc] = [0, 1].map(|at| lines[at]["available"].as_str().unwrap().to_owned());
        (from_decimal(&eth, 18).unwrap(), usdc)
    };
    let (eth, _) = available().await;
    bench.accepted(&pay(REQUEST, "1")).await;
    assert_eq!(available().await, (eth, "9".to_owned()));
    bench.world.abandon();
}

#[tokio::test]
async fn an_asset_without_a_route_is_credited_and_not_sent() {
    let bench = Bench::new().await;
    let eth = with(pay(REQUEST, "0.000000001"), "currency_symbol", json!("ETH"));
    bench.assert_refused(&eth, 422, "ASSET_NOT_SENDABLE", "ETH cannot be sent on ETHEREUM_TESTNET").await;
    assert_eq!(bench.count().await, 0);
    bench.world.abandon();
}

#[tokio::test]
async fn what_the_configuration_refuses_to_send_is_listed_and_credited_all_the_same() {
    let mut bench = Bench::new().await;
    let before = bench.accepted(&pay(OTHER, "1")).await;
    let text = "[api]\nenvironment = \"test\"\n[chains.ETHEREUM_TESTNET]\nrpc = [\"http://a\"]\n\
                [chains.ETHEREUM_TESTNET.transfers]\nrefuse = [\"USDC\"]\n";
    let config = Config::parse("landfall.toml", text, |_| None).unwrap();
    let settings = config.api_settings(([127, 0, 0, 1], 80).into(), vec![bench.world.network.clone()]);
    let signer = Some(Arc::new(SignerDouble::default()) as Arc<dyn Signer>);
    let settings = Settings { signer, ..settings };
    bench.router = api::Api::new(bench.world.db().clone(), settings, bench.world.clock()).router();
    let refused = "USDC cannot be sent on ETHEREUM_TESTNET";
    bench.assert_refused(&pay(REQUEST, "1"), 422, "ASSET_NOT_SENDABLE", refused).await;
    // What was accepted before is still answered.
    assert_eq!(bench.post(&pay(OTHER, "1")).await, (StatusCode::OK, before));
    let usdc = SimLeg { asset: TOKEN, ..SimLeg::native(address(PAYER), address(ALICE), 3_000_000) };
    bench.world.chain.mine(vec![SimTx::new(address(PAYER), 2, vec![usdc])]);
    bench.world.chain.mine_empty(FINALITY_DEPTH);
    bench.world.catch_up().await;
    let (_, deposits) = bench.get("/v2/crypto/deposits?account_id=alice&currency_symbol=USDC").await;
    let listed = deposits["deposits"].as_array().unwrap().iter();
    let statuses: Vec<&Value> = listed.filter(|deposit| deposit["amount"] == "3").map(|it| &it["status"]).collect();
    assert_eq!(statuses, [&json!("CONFIRMED")], "{deposits}");
    let (_, assets) = bench.get("/v2/assets").await;
    let symbols: Vec<&Value> = assets["assets"].as_array().unwrap().iter().map(|asset| &asset["symbol"]).collect();
    assert_eq!(symbols, ["ETH", "USDC"]);
    bench.world.abandon();
}

#[tokio::test]
async fn an_account_sends_from_the_address_that_was_derived_for_it_and_not_from_one_that_was_imported() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine).await;
        let (scopes, by) = (Scopes::of(&[Scope::Write]).unwrap(), tester(bench.world.now()));
        let random = [7; ApiKey::RANDOM_BYTES];
        let key = registry::create_key(bench.world.db(), Environment::Test, ("test", &scopes), &random, &by).await;
        let key = key.unwrap().reveal();
        let open = async |body: Value| {
            let (status, account) = send(&bench.router, &key, Method::POST, "/v2/accounts", body.to_string()).await;
            assert_eq!(status, StatusCode::CREATED, "{account}");
            account
        };
        let form =
            |request_id: &str| json!({ "request_id": request_id, "identity_id": "default", "type": "SEGREGATED" });
        let imported = json!([{ "chains": ["ETHEREUM_TESTNET"], "address": address(0xc0).to_string() }]);
        let imported = open(with(form("imported"), "addresses", imported)).await;
        let managed = open(form("managed")).await;
        let source = managed["addresses"][0]["address"].as_str().unwrap();
        assert_eq!(managed["addresses"][0]["managed"], true);

        let mut watch = BalanceWatch::new(
            bench.world.chain.clone(),
            bench.world.db().clone(),
            &bench.world.network,
            20,
            "one".to_owned(),
        );
        let to = Address::parse(Family::Evm, source).unwrap();
        let usdc = SimLeg { asset: TOKEN, ..SimLeg::native(address(PAYER), to, USDC) };
        bench.world.chain.mine(vec![SimTx::new(address(PAYER), 2, vec![usdc])]);
        bench.world.chain.mine_empty(FINALITY_DEPTH);
        bench.world.catch_up().await;
        // The lease of the watch that the bench had.
        bench.world.pass(std::time::Duration::from_secs(61));
        while watch.tick(bench.world.now(), 0).await.unwrap() != BalancesRead::default() {}
        report(&bench.world).await;

        let from_imported = with(pay(REQUEST, "1"), "account_id", imported["id"].clone());
        bench.assert_refused(&from_imported, 422, "SOURCE_NOT_MANAGED", "whose key is held here").await;
        let transfer = bench.accepted(&with(pay(REQUEST, "1"), "account_id", managed["id"].clone())).await;
        assert_eq!(transfer["source_address"], source, "{engine:?}");
        bench.world.abandon();
    }
}
