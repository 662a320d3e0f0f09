//! Accounts, identities, assets and coverage through the router, over real stores of both engines: what a repeated
//! request makes, how pages follow each other, and what the interface has given up.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Method, Request, StatusCode, header};
use landfall::account::{AccountType, Derived, NewAccount};
use landfall::api::{self, Limits, Settings, openapi_json};
use landfall::identity::{Change, IdentityType, NewIdentity};
use landfall::key::{ApiKey, Environment, Scope, Scopes};
use landfall::operator::Operator;
use landfall::registry::{self, DerivedAddresses};
use landfall::store::backfills::{self, BackfillRow};
use landfall::store::cursors::{self, Cursor};
use landfall::store::{Db, Pools, accounts, audit, native_settings};
use landfall::time::{Clock, Timestamp};
use landfall_chain::{
    Address, Block, BlockHash, BlockRef, Chain, Debits, Family, Header, Lane, Native, NativeSource, Proof, ReadProof,
    Signer, Signers,
};
use serde_json::{Value, json};
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tower::ServiceExt as _;

use crate::harness::postgres::{ENGINES, Engine, TestStore};
use crate::harness::world;
use crate::harness::world::tester;

pub(crate) const ADDRESS: &str = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed";
pub(crate) const OTHER: &str = "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359";
pub(crate) const OWNER: &str = "9xQeWvG816bUx9EPjHmaT23yvVM2ZWbrrpZb9PusVFin";
pub(crate) const NOW: Timestamp = Timestamp(1_800_000_000_000_000);
/// What the interface has given up: fields, values and names that no answer and no event may have.
const GIVEN_UP: [&str; 10] = [
    "kyc_status",
    "kyb_status",
    "frozen",
    "account_status",
    "account_type",
    "LEDGER",
    "ONCHAIN",
    "compliance_check_status_update",
    "account_freeze_status_update",
    "stablecoins",
];

/// A served store with one key.
pub(crate) struct Api {
    store: TestStore,
    router: Router,
    pub(crate) key: String,
    signer: Option<Arc<dyn Signer>>,
}

impl Api {
    async fn on(engine: Engine) -> Self {
        Api::with(engine, None).await
    }

    pub(crate) async fn signing(engine: Engine, signer: Arc<dyn Signer>) -> Self {
        Api::with(engine, Some(signer)).await
    }

    async fn with(engine: Engine, signer: Option<Arc<dyn Signer>>) -> Self {
        let store = TestStore::fresh(engine).await;
        let random = [1; ApiKey::RANDOM_BYTES];
        let scopes = Scopes::of(&[Scope::Read, Scope::Write]).unwrap();
        let key =
            registry::create_key(&store.db, Environment::Test, ("test", &scopes), &random, &tester(NOW)).await.unwrap();
        let served = api::Api::new(store.db.clone(), settings(signer.clone()), Clock::new(|| NOW));
        Api { router: served.router(), store, key: key.reveal(), signer }
    }

    pub(crate) fn settings(&self) -> Settings {
        settings(self.signer.clone())
    }

    async fn new() -> Self {
        Api::on(Engine::Sqlite).await
    }

    pub(crate) fn db(&self) -> &Db {
        &self.store.db
    }

    pub(crate) async fn get(&self, path: &str) -> (StatusCode, Value) {
        send(&self.router, &self.key, Method::GET, path, String::new()).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> (StatusCode, Value) {
        send(&self.router, &self.key, Method::POST, path, body.to_string()).await
    }

    /// Opens an account that must be new; its id.
    async fn open(&self, request_id: &str, identity: &str, address: &str) -> String {
        let (status, account) = self.post("/v2/accounts", &form(request_id, identity, address)).await;
        assert_eq!(status, StatusCode::CREATED, "{account}");
        account["id"].as_str().unwrap().to_owned()
    }

    /// Registers an identity that must be new; its id.
    pub(crate) async fn identity(&self, request_id: &str) -> String {
        let (status, identity) =
            self.post("/v2/identities", &json!({ "request_id": request_id, "type": "INDIVIDUAL" })).await;
        assert_eq!(status, StatusCode::CREATED, "{identity}");
        identity["id"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn change(&self, identity: &str, change: Change) {
        let operator = Operator { actor: "olga", reason: "a test", now: NOW, dry_run: false };
        operator.change_identity(self.db(), identity, change).await.unwrap();
    }
}

fn settings(signer: Option<Arc<dyn Signer>>) -> Settings {
    let networks = [landfall_evm::network(Chain::BaseMainnet), landfall_solana::network(Chain::SolanaMainnet)];
    let networks = networks.into_iter().flatten().chain([world::network()]).collect();
    // The clock stands still, and so a rate would never let more in.
    let limits = Limits { ip_requests_per_sec: 0, key_requests_per_sec: 0, ..Limits::default() };
    Settings { limits, networks, signer, ..Settings::of(Environment::Test) }
}

pub(crate) async fn send(router: &Router, key: &str, method: Method, path: &str, body: String) -> (StatusCode, Value) {
    let request = Request::builder().method(method).uri(path).header(header::AUTHORIZATION, format!("Bearer {key}"));
    let request = request.header(header::CONTENT_TYPE, "application/json");
    let response = router.clone().oneshot(request.body(Body::from(body)).unwrap()).await.unwrap();
    let (status, kind) = (response.status(), response.headers().get(header::CONTENT_TYPE).cloned());
    let bytes = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    let expected = if status.is_success() { "application/json" } else { "application/problem+json" };
    assert_eq!(kind.unwrap(), expected, "{path}");
    (status, serde_json::from_slice(&bytes).unwrap())
}

pub(crate) fn form(request_id: &str, identity: &str, address: &str) -> Value {
    let addresses = json!([{ "chains": ["ETHEREUM_TESTNET", "BASE_SEPOLIA"], "address": address }]);
    json!({ "request_id": request_id, "identity_id": identity, "type": "SEGREGATED", "addresses": addresses })
}

/// Asserts that these fields were refused, and nothing else.
pub(crate) fn assert_refused((status, body): &(StatusCode, Value), expected: &[(&str, &str)]) {
    assert_eq!(*status, StatusCode::BAD_REQUEST, "{body}");
    assert_eq!(body["code"], "INVALID_ARGUMENT");
    let errors = body["errors"].as_array().unwrap().iter();
    let errors: Vec<_> = errors.map(|e| (e["parameter"].as_str().unwrap(), e["detail"].as_str().unwrap())).collect();
    assert_eq!(errors, expected);
}

/// The number of rows that opening an account makes.
pub(crate) async fn accounts_of(db: &Db) -> usize {
    accounts::list(&mut db.read().await.unwrap()).await.unwrap().len()
}

#[tokio::test]
async fn an_account_is_opened_once_however_often_its_request_comes() {
    for engine in ENGINES {
        let api = Api::on(engine).await;
        let identity = api.identity("i-1").await;
        let body = form("r-1", &identity, ADDRESS);
        let (status, opened) = api.post("/v2/accounts", &body).await;
        assert_eq!(status, StatusCode::CREATED, "{opened}");
        let expected = json!({
            "id": opened["id"],
            "request_id": "r-1",
            "identity_id": identity,
            "identity_type": "INDIVIDUAL",
            "type": "SEGREGATED",
            "addresses": [{ "chains": ["ETHEREUM_TESTNET", "BASE_SEPOLIA"], "address": ADDRESS, "managed": false }],
            "status": "ACTIVE",
            "identity_status": "ACTIVE",
            "identity_sub_status": "",
        });
        assert_eq!(opened, expected);
        let id = opened["id"].as_str().unwrap();
        assert_eq!(api.get(&format!("/v2/accounts/{id}")).await, (StatusCode::OK, expected.clone()));

        // The same request, in another spelling of the same content.
        let mut again = form("r-1", &identity, &ADDRESS.to_lowercase());
        again["addresses"][0]["chains"] = json!(["BASE_SEPOLIA", "ETHEREUM_TESTNET", "BASE_SEPOLIA"]);
        for body in [&body, &again] {
            assert_eq!(api.post("/v2/accounts", body).await, (StatusCode::OK, expected.clone()));
        }
        let other_type = json!({ "type": "OMNIBUS" });
        let (mut omnibus, fewer) = (body.clone(), form("r-1", &identity, OTHER));
        omnibus["type"] = other_type["type"].clone();
        for body in [&omnibus, &fewer, &form("r-1", "default", ADDRESS)] {
            let (status, problem) = api.post("/v2/accounts", body).await;
            assert_eq!((status, &problem["code"]), (StatusCode::CONFLICT, &json!("IDEMPOTENCY_MISMATCH")), "{problem}");
        }
        let as_identity = api.post("/v2/identities", &json!({ "request_id": "r-1", "type": "INDIVIDUAL" })).await;
        assert_eq!(as_identity.0, StatusCode::CONFLICT, "an id is one for all requests of an organization");
        assert_eq!(accounts_of(api.db()).await, 1);
        let identity = api.get(&format!("/v2/identities/{identity}")).await.1;
        assert_eq!(identity["account_ids"], json!([id]));
    }
}

#[tokio::test]
async fn without_the_scope_read_no_refusal_names_whose_an_address_is() {
    for engine in ENGINES {
        let api = Api::on(engine).await;
        let owner = api.open("r-1", "default", ADDRESS).await;
        let (what, random) = (("test", &Scope::Write.into()), [2; ApiKey::RANDOM_BYTES]);
        let key = registry::create_key(api.db(), Environment::Test, what, &random, &tester(NOW)).await;
        let writes = key.unwrap().reveal();
        let body = form("r-2", "default", ADDRESS);
        let blind = send(&api.router, &writes, Method::POST, "/v2/accounts", body.to_string()).await;
        let detail = format!("is refused: {ADDRESS} on ETHEREUM_TESTNET belongs to another account already");
        assert_refused(&blind, &[("addresses", &detail)]);
        let seeing = api.post("/v2/accounts", &body).await;
        let detail = format!("is refused: {ADDRESS} on ETHEREUM_TESTNET belongs to account {owner} already");
        assert_refused(&seeing, &[("addresses", &detail)]);
    }
}

#[tokio::test]
async fn what_a_key_opens_stands_in_the_audit_once_with_the_key() {
    for engine in ENGINES {
        let api = Api::on(engine).await;
        let identity = api.identity("i-1").await;
        let account = api.open("r-1", &identity, ADDRESS).await;
        let again = api.post("/v2/accounts", &form("r-1", &identity, ADDRESS)).await;
        assert_eq!(again.0, StatusCode::OK);
        api.post("/v2/identities", &json!({ "request_id": "i-1", "type": "INDIVIDUAL" })).await;
        api.post("/v2/accounts", &form("r-2", &identity, ADDRESS)).await;
        let entries = audit::newest(&mut api.db().read().await.unwrap(), audit::About::All, 10).await.unwrap();
        let opened = entries.iter().filter(|entry| entry.action.starts_with("open_"));
        let mut opened: Vec<_> = opened.map(|entry| (&*entry.actor, &*entry.action, &*entry.what)).collect();
        opened.sort_unstable();
        let actor = format!("API key {}", &api.key[8..16]);
        let of_identity = format!("{account} of {identity}");
        assert_eq!(opened, [(&*actor, "open_account", &*of_identity), (&*actor, "open_identity", &*identity)]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_with_one_id_that_come_at_once_open_one_account_and_all_get_its_id() {
    const AT_ONCE: usize = 12;
    for engine in ENGINES {
        let api = Api::on(engine).await;
        for round in 0..5 {
            let (start, mut senders) = (Arc::new(Barrier::new(AT_ONCE)), JoinSet::new());
            for sender in 0..AT_ONCE {
                let (start, router, key) = (Arc::clone(&start), api.router.clone(), api.key.clone());
                let address = Address::Evm([u8::try_from(round + 1).unwrap(); 20]).to_string();
                // Some contradict the others: whoever comes first decides who is refused.
                let mut body = form(&format!("r-{round}"), "default", &address);
                if sender % 4 == 3 {
                    body["type"] = json!("OMNIBUS");
                }
                senders.spawn(async move {
                    start.wait().await;
                    send(&router, &key, Method::POST, "/v2/accounts", body.to_string()).await
                });
            }
            let answers = senders.join_all().await;
            let of = |status: StatusCode| answers.iter().filter(move |(found, _)| *found == status);
            assert_eq!(of(StatusCode::CREATED).count(), 1, "{engine:?}: {answers:?}");
            let made = &of(StatusCode::CREATED).next().unwrap().1;
            assert!(of(StatusCode::OK).all(|(_, account)| account == made), "{engine:?}: {answers:?}");
            let refused = of(StatusCode::CONFLICT).count();
            assert_eq!(of(StatusCode::OK).count() + refused, AT_ONCE - 1, "{engine:?}: {answers:?}");
            let contradicting = AT_ONCE / 4;
            assert!(refused == contradicting || refused == AT_ONCE - contradicting, "{engine:?}: {refused}");
        }
        assert_eq!(accounts_of(api.db()).await, 5);
        println!("{engine:?}: 5 rounds of {AT_ONCE} requests at once opened 5 accounts");
    }
}

#[tokio::test]
async fn who_comes_second_waits_for_the_first_and_takes_its_place_when_that_made_nothing() {
    let api = Api::on(Engine::Postgres).await;
    let account = NewAccount {
        id: String::new(),
        identity_id: Some("default".to_owned()),
        kind: AccountType::Segregated,
        addresses: [(Chain::EthereumTestnet, Address::Evm([7; 20]))].into(),
    };
    let request = account.request("r-1", &Derived::On([].into())).unwrap();
    let mut first = api.db().begin().await.unwrap();
    landfall::store::requests::claim(&mut first, &request, "acc_first", NOW).await.unwrap();
    let mut second = JoinSet::new();
    let (db, wanted) = (api.db().clone(), request.clone());
    second.spawn(async move {
        registry::open_account(&db, &wanted, &account, &DerivedAddresses::default(), &tester(NOW)).await
    });
    let waiting =
        "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let Pools::Postgres(pool) = api.db().pools() else { panic!("PostgreSQL") };
    for _ in 0..6_000 {
        let (count,): (i64,) = sqlx::query_as(waiting).fetch_one(pool).await.unwrap();
        if count > 0 || !second.is_empty() && second.try_join_next().is_some() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(second.len(), 1, "the second does not answer while the first is under way");
    drop(first);
    let (id, made) = second.join_all().await.remove(0).unwrap();
    assert_eq!((id, made), (request.object_id("acc", "default"), landfall::request::Made::Now));
}

#[tokio::test]
async fn an_address_is_acknowledged_with_the_block_from_which_it_is_matched_on_record() {
    for engine in ENGINES {
        let api = Api::on(engine).await;
        let chain = Chain::EthereumTestnet;
        place(api.db(), chain, 41).await;
        let id = api.open("r-1", "default", ADDRESS).await;
        let listed = accounts::list(&mut api.db().read().await.unwrap()).await.unwrap();
        let from: Vec<_> = listed[0].addresses.iter().map(|(chain, _, from)| (*chain, *from)).collect();
        assert_eq!(from, [(Chain::BaseSepolia, 0), (chain, 42)]);
        let (_, coverage) = api.get(&format!("/v2/accounts/{id}/coverage")).await;
        let expected = json!({ "account_id": id, "coverage": [
            { "chain": "BASE_SEPOLIA", "address": ADDRESS, "watched_from": 0, "backfilled": [] },
            { "chain": "ETHEREUM_TESTNET", "address": ADDRESS, "watched_from": 42, "backfilled": [] },
        ] });
        assert_eq!(coverage, expected, "nothing was matched yet, and nothing is said to have been");
    }
}

#[tokio::test]
async fn coverage_reports_what_was_matched_and_what_backfills_read_for_the_address_and_nothing_else() {
    for engine in ENGINES {
        let api = Api::on(engine).await;
        let chain = Chain::EthereumTestnet;
        place(api.db(), chain, 41).await;
        let id = api.open("r-1", "default", ADDRESS).await;
        follow(api.db(), chain, 41, 45).await;
        let row = |from: u64, to: u64, next: u64, scope: &str, seq: u64| BackfillRow {
            from,
            to,
            proof: ReadProof::Full,
            lane: Lane::Block,
            scope: scope.to_owned(),
            basis: format!("{seq}/assets"),
            next,
            found: 0,
            level: None,
        };
        let rows = [
            BackfillRow { level: Some(Proof::OneEndpoint), ..row(1, 10, 11, ADDRESS, 0) },
            row(11, 20, 16, "", 1),
            row(21, 30, 31, "", 0),
            row(21, 31, 32, OTHER, 0),
            row(31, 40, 31, "", 1),
            row(1, i64::MAX.unsigned_abs() - 1, i64::MAX.unsigned_abs(), "", 1),
        ];
        let mut tx = api.db().begin().await.unwrap();
        for row in &rows {
            backfills::save(&mut tx, chain, row, NOW).await.unwrap();
        }
        let traces = BackfillRow { lane: Lane::Traces, ..row(1, 10, 6, ADDRESS, 0) };
        backfills::save(&mut tx, chain, &traces, NOW).await.unwrap();
        tx.commit().await.unwrap();

        let (_, coverage) = api.get(&format!("/v2/accounts/{id}/coverage")).await;
        let expected = json!({
            "chain": "ETHEREUM_TESTNET", "address": ADDRESS, "watched_from": 42, "complete_through": 45,
            "final_through": 44,
            "backfilled": [
                { "from": 1, "to": 10, "proof": "receipts", "traces": false, "level": "one_endpoint" },
                { "from": 1, "to": 5, "proof": "receipts", "traces": true },
                { "from": 11, "to": 15, "proof": "receipts", "traces": false },
            ],
        });
        assert_eq!(coverage["coverage"][1], expected, "{engine:?}");

        // A block that is still to be traced, on a chain that is.
        is_traced(api.db(), chain).await;
        let (_, coverage) = api.get(&format!("/v2/accounts/{id}/coverage")).await;
        assert_eq!(coverage["coverage"][1]["traced_through"], 43, "{engine:?}: 44 is not traced");

        // Nor is what was followed while nobody traced.
        let mut tx = api.db().begin().await.unwrap();
        let traced = Native { source: NativeSource::Trace, eip7708_from: None };
        for (from, native) in [(0, traced), (43, Native::TOP_LEVEL), (44, traced)] {
            native_settings::put(&mut tx, chain, from, &native).await.unwrap();
        }
        tx.commit().await.unwrap();
        let (_, coverage) = api.get(&format!("/v2/accounts/{id}/coverage")).await;
        assert_eq!(coverage["coverage"][1]["traced_through"], 42, "{engine:?}: 43 was followed without traces");
    }
}

/// As after a loss of the store: the client's request comes again.
#[tokio::test]
async fn what_an_operator_put_back_under_its_id_is_what_the_request_made() {
    for engine in ENGINES {
        let lost = Api::on(engine).await;
        let (account, identity) = (lost.open("r-1", "default", ADDRESS).await, lost.identity("i-1").await);
        let api = Api::on(engine).await;
        let restored = NewAccount {
            id: account.clone(),
            identity_id: Some("default".to_owned()),
            kind: AccountType::Segregated,
            addresses: [(Chain::EthereumTestnet, Address::parse(Family::Evm, OTHER).unwrap())].into(),
        };
        registry::add_accounts(api.db(), &[restored], NOW).await.unwrap();
        let kind = IdentityType::Business;
        let new = NewIdentity { kind, label: String::new(), fiat_operations_enabled: false };
        registry::add_identity(api.db(), &identity, &new, NOW).await.unwrap();

        let of_another_type = json!({ "request_id": "r-1", "identity_id": "default", "type": "OMNIBUS", "addresses": [
            { "chains": ["BASE_SEPOLIA"], "address": ADDRESS },
        ] });
        assert_eq!(api.post("/v2/accounts", &of_another_type).await.0, StatusCode::BAD_REQUEST, "{engine:?}");
        let (status, body) = api.post("/v2/accounts", &form("r-1", "default", ADDRESS)).await;
        assert_eq!((status, body["id"].as_str()), (StatusCode::CREATED, Some(account.as_str())), "{engine:?}: {body}");
        assert_eq!(body["request_id"], "r-1");
        let addresses = body["addresses"].to_string();
        assert!(addresses.contains(ADDRESS) && addresses.contains(OTHER), "{addresses}");
        let of_another_type = json!({ "request_id": "i-1", "type": "INDIVIDUAL" });
        assert_eq!(api.post("/v2/identities", &of_another_type).await.0, StatusCode::CONFLICT, "{engine:?}");
        let (status, body) = api.post("/v2/identities", &json!({ "request_id": "i-1", "type": "BUSINESS" })).await;
        assert_eq!((status, body["id"].as_str()), (StatusCode::CREATED, Some(identity.as_str())), "{engine:?}: {body}");
    }
}

#[tokio::test]
async fn accounts_are_listed_page_by_page_without_gaps_and_repeats() {
    for engine in ENGINES {
        let api = Api::on(engine).await;
        let mut identities = vec!["default".to_owned()];
        for index in 0..3 {
            identities.push(api.identity(&format!("i-{index}")).await);
        }
        // Many have one time, and ids whose order differs from that of a language.
        for index in 0..23_u8 {
            let name = ["a", "B", "_", "c-", "C"][usize::from(index) % 5];
            let account = NewAccount {
                id: format!("{name}{index}"),
                identity_id: Some(identities[usize::from(index) % 4].clone()),
                kind: AccountType::Omnibus,
                addresses: [(Chain::EthereumTestnet, Address::Evm([index + 1; 20]))].into(),
            };
            let at = Timestamp(NOW.0 + i64::from(index / 10));
            registry::add_accounts(api.db(), &[account], at).await.unwrap();
        }
        let ids_of = |page: &Value| -> Vec<String> {
            page["accounts"].as_array().unwrap().iter().map(|a| a["id"].as_str().unwrap().to_owned()).collect()
        };
        let by_two = format!("identity_ids={}&identity_ids={}", identities[0], identities[2]);
        let by_all: Vec<_> = identities.iter().map(|id| format!("identity_ids={id}")).collect();
        let mut whole = Vec::new();
        for (filter, expected) in [("", 23), (&by_two, 12), (&by_all.join("&"), 23), ("identity_ids=nobody", 0)] {
            for limit in [1, 4, 100] {
                let (mut ids, mut cursor) = (Vec::new(), String::new());
                loop {
                    let (status, page) = api.get(&format!("/v2/accounts?{filter}&limit={limit}{cursor}")).await;
                    assert_eq!(status, StatusCode::OK, "{page}");
                    ids.extend(ids_of(&page));
                    let Some(next) = page.get("cursor") else { break };
                    cursor = format!("&cursor={}", next.as_str().unwrap());
                }
                assert_eq!(ids.len(), expected, "{engine:?} {filter} {limit}");
                assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), expected, "none twice");
                if filter.is_empty() {
                    whole.clone_from(&ids);
                }
                let in_order: Vec<_> = whole.iter().filter(|id| ids.contains(id)).collect();
                assert_eq!(ids.iter().collect::<Vec<_>>(), in_order, "{engine:?} {filter} {limit}: newest first");
            }
        }
        let (_, page) = api.get("/v2/accounts?limit=2").await;
        let cursor = page["cursor"].as_str().unwrap();
        let other = api.get(&format!("/v2/accounts?identity_ids=default&cursor={cursor}")).await;
        assert_refused(&other, &[("cursor", "belongs to other filters: send those of the page before")]);
    }
}

#[tokio::test]
async fn a_list_of_accounts_takes_pages_of_1_to_100_and_at_most_25_identities() {
    let api = Api::new().await;
    for limit in ["0", "101", "-1", "05", "ten"] {
        let answer = api.get(&format!("/v2/accounts?limit={limit}")).await;
        assert_refused(&answer, &[("limit", "must be an integer from 1 to 100")]);
    }
    assert_eq!(api.get("/v2/accounts?limit=100").await.0, StatusCode::OK);
    let ids = |count: usize| vec!["identity_ids=a"; count].join("&");
    assert_eq!(api.get(&format!("/v2/accounts?{}", ids(25))).await.1, json!({ "accounts": [] }));
    let answer = api.get(&format!("/v2/accounts?{}", ids(26))).await;
    assert_refused(&answer, &[("identity_ids", "must not be sent more than 25 times")]);
    let known = "is unknown: the parameters are identity_ids, limit, cursor";
    for name in ["identityIds", "identity_id", "pageSize", "account_type"] {
        assert_refused(&api.get(&format!("/v2/accounts?{name}=a")).await, &[(name, known)]);
    }
    assert_refused(&api.get("/v2/accounts?limit=1&limit=1").await, &[("limit", "must not be repeated")]);
    assert_refused(&api.get("/v2/accounts?identity_ids=").await, &[("identity_ids", "must not be empty")]);
    assert_refused(&api.get("/v2/accounts?cursor=x").await, &[("cursor", "must be a cursor that this list gave")]);
}

#[tokio::test]
async fn of_all_that_is_wrong_with_a_body_the_first_twenty_are_reported() {
    let api = Api::new().await;
    let mut body = form("r-1", "default", ADDRESS);
    body["addresses"] = json!(vec![json!({ "chains": ["BASE_MAINNET"], "address": "0x5" }); 100]);
    let (status, body) = api.post("/v2/accounts", &body).await;
    assert_eq!((status, body["errors"].as_array().unwrap().len()), (StatusCode::BAD_REQUEST, 20));
    assert!(body.to_string().len() < 20_000, "{body}");
}

#[tokio::test]
async fn a_body_that_is_wrong_is_refused_by_the_names_of_its_fields() {
    let api = Api::new().await;
    let good = form("r-1", "default", ADDRESS);
    let with = |field: &str, value: Value| {
        let mut body = good.clone();
        body[field] = value;
        body
    };
    let chains = |chains: Value, address: &str| with("addresses", json!([{ "chains": chains, "address": address }]));
    let chain = "must be one of ETHEREUM_MAINNET, POLYGON_MAINNET, ETHEREUM_TESTNET, OPTIMISM_SEPOLIA, BASE_MAINNET, \
                 BASE_SEPOLIA, OPTIMISM_MAINNET, POLYGON_AMOY, SOLANA_MAINNET, SOLANA_DEVNET";
    let no_id = "an identity's id \"\": expected 1 to 128 visible ASCII characters without spaces";
    let no_owner =
        format!("is refused on SOLANA_MAINNET: malformed Solana address \"{ADDRESS}\": expected 32 bytes in base58");
    let cases = [
        (with("request_id", json!("")), "request_id", "must be 1 to 128 visible ASCII characters without spaces"),
        (with("request_id", json!("a b")), "request_id", "must be 1 to 128 visible ASCII characters without spaces"),
        (with("identity_id", json!("")), "identity_id", no_id),
        (with("identity_id", json!("nobody")), "identity_id", "is refused: there is no identity nobody"),
        (with("type", json!("segregated")), "type", "must be SEGREGATED or OMNIBUS"),
        (with("addresses", json!([])), "addresses", "must be 1 to 100 addresses"),
        (chains(json!([]), ADDRESS), "addresses[0].chains", "must be 1 to 10 chains"),
        (chains(json!(["CHAIN_UNSPECIFIED"]), ADDRESS), "addresses[0].chains[0]", chain),
        (chains(json!(["BASE_MAINNET", "SOLANA_MAINNET"]), ADDRESS), "addresses[0].address", no_owner.as_str()),
        (
            chains(json!(["BASE_MAINNET"]), "0x5AAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"),
            "addresses[0].address",
            "is refused on BASE_MAINNET: wrong checksum in address 0x5AAeb6053F3E94C9b9A09f33669435E7Ef1BeAed: its EIP-55 \
             form is 0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed; check the address for a typing error",
        ),
    ];
    for (body, field, detail) in cases {
        assert_refused(&api.post("/v2/accounts", &body).await, &[(field, detail)]);
    }
    // What serde would take for a struct.
    let listed = json!(["r-1", "default", "SEGREGATED", good["addresses"]]).to_string();
    let listed_address = with("addresses", json!([[["BASE_MAINNET"], ADDRESS]])).to_string();
    let unfinished = with("addresses", json!([{ "address": ADDRESS }]));
    assert_refused(&api.post("/v2/accounts", &unfinished).await, &[("addresses[0].chains", "is required")]);
    let unlisted = with("addresses", json!([{ "chains": "BASE_MAINNET", "address": ADDRESS }]));
    assert_refused(&api.post("/v2/accounts", &unlisted).await, &[("addresses[0].chains", "must be a list")]);
    for body in [
        listed.as_str(),
        &listed_address,
        "",
        "[]",
        "null",
        "{",
        "{}",
        "\u{0}",
        "{\"request_id\":\"a\",\"request_id\":\"b\"}",
    ] {
        let (status, problem) = send(&api.router, &api.key, Method::POST, "/v2/accounts", body.to_owned()).await;
        assert_eq!((status, &problem["code"]), (StatusCode::BAD_REQUEST, &json!("INVALID_ARGUMENT")), "{body}");
    }
    let twice = send(&api.router, &api.key, Method::POST, "/v2/accounts", format!("{good}{good}")).await;
    assert_eq!(twice.0, StatusCode::BAD_REQUEST);
    assert_eq!(accounts_of(api.db()).await, 0, "nothing of it stays");
    assert_eq!(
        api.post("/v2/accounts", &good).await.0,
        StatusCode::CREATED,
        "a refused request may come again, mended"
    );
}

#[tokio::test]
async fn an_address_of_another_account_is_refused_and_the_request_may_come_again() {
    for engine in ENGINES {
        let api = Api::on(engine).await;
        let id = api.open("r-1", "default", ADDRESS).await;
        let answer = api.post("/v2/accounts", &form("r-2", "default", ADDRESS)).await;
        let detail = format!("is refused: {ADDRESS} on ETHEREUM_TESTNET belongs to account {id} already");
        let on_base = format!("is refused: {ADDRESS} on BASE_SEPOLIA belongs to account {id} already");
        let reported = answer.1["errors"][0]["detail"].as_str().unwrap();
        assert!(reported == detail || reported == on_base, "{reported}");
        let solana = json!([{ "chains": ["SOLANA_MAINNET"], "address": OWNER }]);
        let mut mended = form("r-2", "default", ADDRESS);
        mended["addresses"] = solana;
        let (status, opened) = api.post("/v2/accounts", &mended).await;
        assert_eq!((status, &opened["addresses"][0]["address"]), (StatusCode::CREATED, &json!(OWNER)));
    }
}

#[tokio::test]
async fn an_account_is_frozen_and_closed_with_its_identity() {
    for engine in ENGINES {
        let api = Api::on(engine).await;
        let identity = api.identity("i-1").await;
        let id = api.open("r-1", &identity, ADDRESS).await;
        let shown = async || {
            let account = api.get(&format!("/v2/accounts/{id}")).await.1;
            let listed = api.get(&format!("/v2/accounts?identity_ids={identity}")).await.1;
            assert_eq!(listed["accounts"], json!([account]));
            let owner = api.get(&format!("/v2/identities/{identity}")).await.1;
            assert_eq!(account["identity_status"], owner["status"]);
            account["status"].as_str().unwrap().to_owned()
        };
        for (change, expected) in [
            (Change::Suspend, "FROZEN"),
            (Change::Reinstate, "ACTIVE"),
            (Change::Suspend, "FROZEN"),
            (Change::Terminate, "CLOSED"),
        ] {
            api.change(&identity, change).await;
            assert_eq!(shown().await, expected, "{engine:?}");
        }
        let refused = api.post("/v2/accounts", &form("r-2", &identity, OTHER)).await;
        let detail = format!("is refused: identity {identity} is TERMINATED and can open no accounts");
        assert_refused(&refused, &[("identity_id", &detail)]);
        let again = api.post("/v2/accounts", &form("r-1", &identity, ADDRESS)).await;
        assert_eq!((again.0, again.1["status"].as_str()), (StatusCode::OK, Some("CLOSED")), "what was opened stays");
    }
}

#[tokio::test]
async fn an_identity_is_registered_once_and_shown_with_all_its_fields() {
    for engine in ENGINES {
        let api = Api::on(engine).await;
        let body =
            json!({ "request_id": "i-1", "type": "BUSINESS", "label": "Acme é", "fiat_operations_enabled": true });
        let (status, made) = api.post("/v2/identities", &body).await;
        let expected = json!({
            "id": made["id"], "type": "BUSINESS", "label": "Acme é", "account_ids": [], "fiat_operations_enabled": true,
            "status": "ACTIVE", "sub_status": "",
        });
        assert_eq!((status, &made), (StatusCode::CREATED, &expected));
        assert_eq!(api.post("/v2/identities", &body).await, (StatusCode::OK, expected.clone()));
        let other = json!({ "request_id": "i-1", "type": "BUSINESS" });
        assert_eq!(api.post("/v2/identities", &other).await.0, StatusCode::CONFLICT);
        let id = made["id"].as_str().unwrap();
        assert_eq!(api.get(&format!("/v2/identities/{id}")).await, (StatusCode::OK, expected));
    }
    let api = Api::new().await;
    let default = api.get("/v2/identities/default").await.1;
    assert_eq!((default["type"].as_str(), default["status"].as_str()), (Some("BUSINESS"), Some("ACTIVE")));
    for id in ["nobody", "%00", "%FF", "a%2Fb"] {
        assert_eq!(api.get(&format!("/v2/identities/{id}")).await.0, StatusCode::NOT_FOUND, "{id}");
        assert_eq!(api.get(&format!("/v2/accounts/{id}")).await.0, StatusCode::NOT_FOUND, "{id}");
        assert_eq!(api.get(&format!("/v2/accounts/{id}/coverage")).await.0, StatusCode::NOT_FOUND, "{id}");
    }
    let bad = json!({ "request_id": "i-2", "type": "PERSON", "label": "a\nb" });
    let expected = [
        ("type", "must be INDIVIDUAL or BUSINESS"),
        ("label", "must have at most 256 characters, no control characters"),
    ];
    assert_refused(&api.post("/v2/identities", &bad).await, &expected);
}

#[tokio::test]
async fn assets_are_those_of_the_chains_that_are_followed() {
    let api = Api::new().await;
    let (status, all) = api.get("/v2/assets").await;
    assert_eq!(status, StatusCode::OK);
    let all = all["assets"].as_array().unwrap();
    let chains: BTreeSet<_> = all.iter().map(|asset| asset["chain"].as_str().unwrap()).collect();
    assert_eq!(chains, ["BASE_MAINNET", "ETHEREUM_TESTNET", "SOLANA_MAINNET"].into());
    let base = api.get("/v2/assets?chain=BASE_MAINNET").await.1;
    let expected = json!([
        { "chain": "BASE_MAINNET", "symbol": "ETH", "decimals": "18", "type": "BASE", "contract_address": "" },
        { "chain": "BASE_MAINNET", "symbol": "USDC", "decimals": "6", "type": "ERC20_TOKEN",
          "contract_address": "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913" },
    ]);
    assert_eq!(json!(base["assets"].as_array().unwrap()[..2]), expected);
    let solana = api.get("/v2/assets?chain=SOLANA_MAINNET").await.1;
    let types: BTreeSet<_> = solana["assets"].as_array().unwrap().iter().map(|a| a["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["BASE", "SPL_TOKEN"].into());
    assert_eq!(api.get("/v2/assets?chain=POLYGON_AMOY").await.1, json!({ "assets": [] }), "it is not followed");
    for query in ["chain=CHAIN_UNSPECIFIED", "chain=", "Chain=BASE_MAINNET", "chain=BASE_MAINNET&chain=BASE_MAINNET"] {
        assert_eq!(api.get(&format!("/v2/assets?{query}")).await.0, StatusCode::BAD_REQUEST, "{query}");
    }
}

#[tokio::test]
async fn the_account_types_ledger_and_onchain_are_refused() {
    let api = Api::new().await;
    for kind in ["LEDGER", "ONCHAIN"] {
        let mut body = form("r-1", "default", ADDRESS);
        body["type"] = json!(kind);
        assert_refused(&api.post("/v2/accounts", &body).await, &[("type", "must be SEGREGATED or OMNIBUS")]);
        assert!(kind.parse::<AccountType>().is_err());
    }
}

#[tokio::test]
async fn camel_case_and_the_old_names_of_fields_are_refused() {
    let api = Api::new().await;
    let good = form("r-1", "default", ADDRESS);
    for (old, new) in [
        ("requestId", "request_id"),
        ("identityId", "identity_id"),
        ("account_type", "type"),
        ("accountType", "type"),
        ("identity_type", "type"),
    ] {
        let mut renamed = good.clone();
        let value = renamed.as_object_mut().unwrap().remove(new).unwrap();
        renamed[old] = value;
        let (status, problem) = api.post("/v2/accounts", &renamed).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{old}");
        assert!(
            problem["detail"].as_str().unwrap().starts_with(&format!("{old} is no field of this object")),
            "{problem}"
        );
        let mut both = good.clone();
        both[old] = both[new].clone();
        assert_eq!(api.post("/v2/accounts", &both).await.0, StatusCode::BAD_REQUEST, "{old} beside {new}");
    }
    for sunset in ["kyc_status", "kyb_status", "frozen", "account_status"] {
        let identity = json!({ "request_id": "i", "type": "BUSINESS" });
        for (path, mut body) in [("/v2/accounts", good.clone()), ("/v2/identities", identity)] {
            body[sunset] = json!({});
            let (status, problem) = api.post(path, &body).await;
            let detail = problem["detail"].as_str().unwrap();
            assert_eq!(status, StatusCode::BAD_REQUEST, "{path} {sunset}");
            assert!(detail.starts_with(&format!("{sunset} is no field of this object")), "{detail}");
        }
    }
    let camel = json!({ "request_id": "i", "type": "BUSINESS", "fiatOperationsEnabled": true });
    assert_eq!(api.post("/v2/identities", &camel).await.0, StatusCode::BAD_REQUEST);
    assert_eq!(accounts_of(api.db()).await, 0);
}

#[tokio::test]
async fn the_path_stablecoins_transfers_is_gone() {
    let api = Api::new().await;
    for path in ["/v2/stablecoins/transfers", "/stablecoins/transfers", "/v2/stablecoins/transfers/x"] {
        for method in [Method::GET, Method::POST] {
            let (status, problem) = send(&api.router, &api.key, method, path, "{}".to_owned()).await;
            assert_eq!((status, &problem["code"]), (StatusCode::NOT_FOUND, &json!("NOT_FOUND")), "{path}");
        }
    }
}

#[tokio::test]
async fn the_blocks_that_were_sunset_are_in_no_answer_and_no_document_and_their_events_are_not_made() {
    let api = Api::new().await;
    let identity = api.identity("i-1").await;
    let id = api.open("r-1", &identity, ADDRESS).await;
    api.change(&identity, Change::Suspend).await;
    let mut said = vec![openapi_json()];
    for path in [
        "/v2/accounts".to_owned(),
        format!("/v2/accounts/{id}"),
        format!("/v2/identities/{identity}"),
        format!("/v2/accounts/{id}/coverage"),
        "/v2/assets".to_owned(),
        format!("/v2/crypto/deposits?account_id={id}"),
        "/v2/events".to_owned(),
    ] {
        let (status, body) = api.get(&path).await;
        assert_eq!(status, StatusCode::OK, "{path}");
        said.push(body.to_string());
    }
    for text in &said {
        for word in GIVEN_UP {
            // As a name or a value of its own: a description may say what is no more.
            let quoted = format!("\"{word}\"");
            assert!(!text.contains(&quoted), "{word}");
        }
    }
    let account = api.get(&format!("/v2/accounts/{id}")).await.1;
    assert_eq!(account["identity_type"], "INDIVIDUAL", "this one stays");
    let Pools::Sqlite { write, .. } = api.db().pools() else { panic!("SQLite") };
    let kinds: Vec<(String,)> = sqlx::query_as("SELECT type FROM events").fetch_all(write).await.unwrap();
    let [(kind,)] = &kinds[..] else { panic!("one event of a suspension: {kinds:?}") };
    assert_eq!(kind, "identity_status_update", "and none of those that it took the place of");
}

#[tokio::test]
async fn what_the_interface_does_not_have_is_marked_as_an_extension() {
    // What the interface's own reference names, of what is served here.
    const INTERFACE: [&str; 13] = [
        "delete /v2/webhooks/{webhook_id}",
        "get /v2/accounts",
        "get /v2/accounts/{account_id}",
        "get /v2/accounts/{account_id}/balances",
        "get /v2/assets",
        "get /v2/crypto/deposits",
        "get /v2/crypto/deposits/{deposit_id}",
        "get /v2/crypto/transfers",
        "get /v2/crypto/transfers/{transfer_id}",
        "get /v2/identities/{identity_id}",
        "get /v2/transaction-limits/policies/{policy_id}",
        "get /v2/webhooks",
        "post /v2/crypto/transfers",
    ];
    let document: Value = serde_json::from_str(&openapi_json()).unwrap();
    let is_marked = |what: &Value| what.get("x-landfall-extension") == Some(&json!(true));
    let (mut unmarked, mut parameters) = (BTreeSet::new(), BTreeSet::new());
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            if is_marked(operation) {
                continue;
            }
            unmarked.insert(format!("{method} {path}"));
            for parameter in operation["parameters"].as_array().into_iter().flatten().filter(|found| is_marked(found)) {
                parameters.insert(format!("{method} {path} {}", parameter["name"].as_str().unwrap()));
            }
        }
    }
    assert_eq!(unmarked, INTERFACE.map(str::to_owned).into());
    let extended = ["get /v2/accounts/{account_id}/balances symbol", "get /v2/crypto/transfers request_id"];
    assert_eq!(parameters, extended.map(str::to_owned).into());
    let webhooks = document["webhooks"].as_object().unwrap().iter();
    let sent: Vec<&str> =
        webhooks.filter(|(_, item)| !is_marked(&item["post"])).map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(
        sent,
        ["deposit_v2", "identity_status_update", "transfer_failed", "transfer_reconciliation", "transfer_submitted"]
    );
    let schemas = &document["components"]["schemas"];
    let fields = |schema: &str| schemas[schema]["properties"].as_object().unwrap().len();
    let required = |schema: &str| schemas[schema]["required"].as_array().unwrap().len();
    for (schema, count) in [("Account", 9), ("AccountAddress", 3), ("Identity", 7), ("Asset", 5)] {
        assert_eq!((fields(schema), required(schema)), (count, count), "{schema}");
        assert_eq!(schemas[schema]["additionalProperties"], false, "{schema}");
    }
    for (schema, own, marked) in [("AccountAddress", 2, 1), ("Balance", 7, 2), ("Webhook", 8, 2)] {
        let fields = schemas[schema]["properties"].as_object().unwrap();
        let extensions = fields.values().filter(|field| is_marked(field)).count();
        assert_eq!((fields.len() - extensions, extensions), (own, marked), "{schema}");
        assert_eq!(schemas[schema]["additionalProperties"], false, "{schema}");
    }
}

/// Takes a chain up at block `number`.
async fn place(db: &Db, chain: Chain, number: u64) {
    let mut tx = db.begin().await.unwrap();
    Cursor::lock(&mut tx, chain).await.unwrap();
    cursors::connect(&mut tx, chain, &block(number), true).await.unwrap();
    Cursor::place(&mut tx, chain, &block(number).header.block).await.unwrap();
    tx.commit().await.unwrap();
}

/// Follows a chain from block `from`, where it stands, to `to`; all but the last is final, and the last but one is not
/// traced.
async fn follow(db: &Db, chain: Chain, from: u64, to: u64) {
    for number in from + 1..=to {
        let mut tx = db.begin().await.unwrap();
        cursors::connect(&mut tx, chain, &block(number), number != to - 1).await.unwrap();
        let [before, at] = [number - 1, number].map(|number| block(number).header.block);
        Cursor::shift(&mut tx, chain, &before, &at).await.unwrap();
        Cursor::finalize(&mut tx, chain, &before).await.unwrap();
        tx.commit().await.unwrap();
    }
}

/// The chain is traced from here on.
async fn is_traced(db: &Db, chain: Chain) {
    let mut tx = db.begin().await.unwrap();
    landfall::store::traces::say(&mut tx, chain, "", NOW).await.unwrap();
    tx.commit().await.unwrap();
}

fn block(number: u64) -> Block {
    let named = |number: u64| {
        let mut hash = [9; 32];
        hash[..8].copy_from_slice(&number.to_be_bytes());
        BlockRef { number, hash: BlockHash(hash) }
    };
    let header = Header { block: named(number), parent: named(number - 1), time_secs: number };
    Block {
        header,
        txs: Vec::new(),
        transfers: Vec::new(),
        debits: Debits::ByLegs,
        unattributed: Vec::new(),
        fees: Vec::new(),
        marks: Vec::new(),
        rejected: Vec::new(),
        fee_recipient: None,
        proof: Proof::Roots,
        signers: Signers::default(),
        inside: None,
    }
}

#[tokio::test]
async fn an_address_that_is_nobodys_is_refused_and_nothing_is_opened() {
    for engine in ENGINES {
        let api = Api::on(engine).await;
        let identity = api.identity("i").await;
        let zero = "0x0000000000000000000000000000000000000000";
        let cases = [
            ("BASE_MAINNET", zero, "the zero address"),
            ("BASE_MAINNET", "0x4200000000000000000000000000000000000006", "a predeploy of the OP stack"),
            ("SOLANA_MAINNET", "11111111111111111111111111111111", "the system program"),
        ];
        for (chain, address, what) in cases {
            let addresses = json!([
                { "chains": ["BASE_MAINNET"], "address": ADDRESS }, { "chains": [chain], "address": address }
            ]);
            let form =
                json!({ "request_id": "a", "identity_id": identity, "type": "SEGREGATED", "addresses": addresses });
            let (status, problem) = api.post("/v2/accounts", &form).await;
            assert_eq!(status, StatusCode::BAD_REQUEST, "{problem}");
            let detail = format!("is refused: {address} on {chain} is {what}: nobody can spend what is sent there");
            assert_eq!(problem["errors"][0]["detail"], detail, "{problem}");
            assert_eq!(accounts::list(&mut api.db().read().await.unwrap()).await.unwrap(), []);
        }
        // The request was not used up.
        api.open("a", &identity, ADDRESS).await;
    }
}
