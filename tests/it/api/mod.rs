//! The HTTP interface, through its router, over a real store: what it answers, what it refuses, and how it says so.
//!
//! Requests go through the same `router` that `landfall run` serves. Lists also run on PostgreSQL, because what
//! counts as text and how it is ordered is the engine's.

pub(crate) mod accounts;
pub(crate) mod auth;
pub(crate) mod balances;
pub(crate) mod bounds;
pub(crate) mod browse;
pub(crate) mod bulk;
pub(crate) mod by_hand;
pub(crate) mod compulsory;
pub(crate) mod derived;
pub(crate) mod events;
pub(crate) mod examples;
pub(crate) mod identities;
pub(crate) mod identity_events;
pub(crate) mod json_schema;
pub(crate) mod policies;
pub(crate) mod serving;
pub(crate) mod shares;
pub(crate) mod signatures;
pub(crate) mod transfer_events;
pub(crate) mod transfers;
pub(crate) mod webhooks;

use std::collections::BTreeSet;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use landfall::api::{DepositResource, openapi_json, router};
use landfall::deposit::{Deposit, DepositStatus, Leg};
use landfall::event::EventId;
use landfall::key::{ApiKey, Environment, Scope};
use landfall::store::accounts::WatchLists;
use landfall::store::keys::{self, KeyRow};
use landfall::store::{Db, Pools, deposits};
use landfall::time::Timestamp;
use landfall_chain::{Address, AssetId, Chain, SenderRule, TxId, TxLife, TxRef, U256};
use serde_json::{Value, json};
use sqlx::postgres::PgPoolOptions;
use tower::ServiceExt as _;

use crate::harness::postgres::{ENGINES, Engine, TestStore};
use crate::past::long_lists::run;

const DEPOSITS: &str = "/v2/crypto/deposits";
/// 2025-06-15T15:06:40Z.
const NOON: i64 = 1_750_000_000_000_000;
const SECOND: i64 = 1_000_000;
const MISSING_KEY: &str = "expected one header `Authorization: Bearer <API_KEY>`";
const UNKNOWN_LIST_PARAMETER: &str = "is unknown: the parameters are account_id, destination_chain, currency_symbol, \
                                      start_time, end_time, limit, cursor";
const BAD_TIME: &str = "must be an RFC 3339 date-time with at most 9 fractional digits, for example \
                        2026-01-31T23:59:59Z; the + of an offset is sent as %2B";
const BAD_CHAIN: &str = "must be one of ETHEREUM_MAINNET, POLYGON_MAINNET, ETHEREUM_TESTNET, OPTIMISM_SEPOLIA, \
                         BASE_MAINNET, BASE_SEPOLIA, OPTIMISM_MAINNET, POLYGON_AMOY, SOLANA_MAINNET, SOLANA_DEVNET";
const BAD_LIMIT: &str = "must be an integer from 1 to 25";
const BAD_TEXT: &str = "must be UTF-8 without control characters";
const BAD_CURSOR: &str = "must be a cursor that this list gave";
const OTHER_FILTERS: &str = "belongs to other filters: send those of the page before";

/// A served store with one key.
struct Api {
    store: TestStore,
    router: Router,
    key: ApiKey,
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    /// Null when there is none.
    body: Value,
}

impl Api {
    async fn new() -> Self {
        Api::on(Engine::Sqlite).await
    }

    async fn on(engine: Engine) -> Self {
        let store = TestStore::fresh(engine).await;
        let key = ApiKey::generate(Environment::Test, &[1; ApiKey::RANDOM_BYTES]);
        let row = KeyRow {
            id: key.id().into(),
            name: "test".into(),
            secret_hash: key.secret_hash().to_vec(),
            environment: Environment::Test,
            scopes: Scope::Read.into(),
        };
        let mut tx = store.db.begin().await.unwrap();
        assert!(keys::insert(&mut tx, &row, landfall::key::KEYS_MAX, Timestamp(0)).await.unwrap());
        tx.commit().await.unwrap();
        Api { router: router(store.db.clone(), Environment::Test), store, key }
    }

    /// Puts deposits on record, and their accounts.
    async fn record<'a>(&self, deposits: impl IntoIterator<Item = &'a Deposit>) {
        let mut tx = self.store.db.begin().await.unwrap();
        for deposit in deposits {
            ensure_account(&mut tx, &deposit.account_id).await;
            let pending = Deposit { status: DepositStatus::Pending, confirmed_at: None, ..deposit.clone() };
            deposits::insert(&mut tx, &pending).await.unwrap();
            if deposit.status != DepositStatus::Pending {
                deposits::set_status(&mut tx, deposit, DepositStatus::Pending).await.unwrap();
            }
        }
        tx.commit().await.unwrap();
    }

    /// A GET request with the key.
    async fn get(&self, path: &str) -> Answer {
        self.send(&Method::GET, path, &[&format!("Bearer {}", self.key.reveal())]).await
    }

    /// A GET of the list of `acc_1`; more parameters follow in the raw query.
    async fn list(&self, query: &str) -> Answer {
        self.get(&format!("{DEPOSITS}?account_id=acc_1{query}")).await
    }

    async fn send(&self, method: &Method, path: &str, authorizations: &[&str]) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        for authorization in authorizations {
            request = request.header(header::AUTHORIZATION, *authorization);
        }
        let response = self.router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = to_bytes(body, usize::MAX).await.unwrap();
        let body = if bytes.is_empty() { Value::Null } else { serde_json::from_slice(&bytes).unwrap() };
        Answer { status: parts.status, headers: parts.headers, body }
    }
}

impl Answer {
    fn header(&self, name: header::HeaderName) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    fn ok(&self) -> &Value {
        assert_eq!(self.status, StatusCode::OK, "{}", self.body);
        assert_eq!(self.header(header::CONTENT_TYPE), Some("application/json"));
        &self.body
    }

    /// The ids of a list.
    fn ids(&self) -> Vec<String> {
        let deposits = self.ok()["deposits"].as_array().unwrap();
        deposits.iter().map(|deposit| deposit["id"].as_str().unwrap().to_owned()).collect()
    }

    fn cursor(&self) -> Option<&str> {
        self.ok().get("cursor").map(|cursor| cursor.as_str().unwrap())
    }

    /// Asserts that this is a problem, whole.
    fn assert_problem(&self, status: u16, code: &str, title: &str, detail: &str) {
        let problem = format!("urn:landfall:problem:{code}");
        let expected = json!({ "type": problem, "title": title, "status": status, "detail": detail, "code": code });
        self.assert_problem_body(status, &expected);
    }

    /// Asserts that these parameters were refused with these details, and nothing else.
    fn assert_invalid(&self, errors: &[(&str, &str)]) {
        let details: Vec<_> = errors.iter().map(|(parameter, detail)| format!("{parameter} {detail}")).collect();
        let errors = errors.iter().map(|(parameter, detail)| json!({ "parameter": parameter, "detail": detail }));
        let expected = json!({
            "type": "urn:landfall:problem:INVALID_ARGUMENT",
            "title": "Invalid argument",
            "status": 400,
            "detail": details.join("; "),
            "code": "INVALID_ARGUMENT",
            "errors": errors.collect::<Vec<_>>(),
        });
        self.assert_problem_body(400, &expected);
    }

    fn assert_problem_body(&self, status: u16, expected: &Value) {
        let mut body = self.body.clone();
        let id = body.as_object_mut().unwrap().remove("request_id").unwrap();
        assert_eq!(id.as_str(), Some(self.headers["x-request-id"].to_str().unwrap()));
        assert_eq!(&body, expected);
        assert_eq!(self.status.as_u16(), status);
        assert_eq!(self.header(header::CONTENT_TYPE), Some("application/problem+json"));
        let www_authenticate = (status == 401).then_some("Bearer");
        assert_eq!(self.header(header::WWW_AUTHENTICATE), www_authenticate);
        assert_eq!(self.headers.contains_key(header::ALLOW), status == 405);
    }
}

pub(crate) async fn ensure_account(tx: &mut landfall::store::Tx, id: &str) {
    let account = landfall::account::NewAccount {
        id: id.to_owned(),
        identity_id: None,
        kind: landfall::account::AccountType::Segregated,
        addresses: [].into(),
    };
    let mut lists = WatchLists::lock(tx, &[].into()).await.unwrap();
    lists.add(tx, &account, Timestamp(0)).await.unwrap();
}

/// A PENDING deposit of 1.5 USDC to `acc_1` on Base; `nth` makes it another one.
pub(crate) fn deposit(nth: u32, created_us: i64) -> Deposit {
    let leg = Leg {
        chain_ref: "eip155:8453",
        tx: TxId::Evm([0x11; 32]),
        asset: AssetId::Token(Address::Evm([0x70; 20])),
        recipient: Address::Evm([0x22; 20]),
        amount: U256::from(1_500_000),
        nth,
    };
    let signer = Address::Evm([0x33; 20]);
    Deposit {
        id: leg.hash().deposit_id(),
        leg_hash: leg.hash(),
        account_id: "acc_1".into(),
        source_account_id: None,
        chain: Chain::BaseMainnet,
        tx: TxRef { id: leg.tx, life: TxLife::Nonce { signer, nonce: 7 } },
        asset: leg.asset,
        sender: signer,
        sender_rule: SenderRule::Reported,
        recipient: leg.recipient,
        amount: leg.amount,
        nth,
        symbol: "USDC".into(),
        decimals: 6,
        status: DepositStatus::Pending,
        created_at: Timestamp(created_us),
        confirmed_at: None,
        is_self_transfer: false,
    }
}

/// Their ids in the order of a list: newest first, then the highest id.
fn in_order<'a>(deposits: impl IntoIterator<Item = &'a Deposit>) -> Vec<String> {
    let mut deposits: Vec<_> = deposits.into_iter().collect();
    deposits.sort_by_key(|deposit| std::cmp::Reverse((deposit.created_at, deposit.id)));
    deposits.iter().map(|deposit| deposit.id.to_string()).collect()
}

#[tokio::test]
async fn a_deposit_is_shown_with_the_fields_of_the_interface_and_no_others() {
    let api = Api::new().await;
    let deposit = deposit(0, NOON);
    api.record([&deposit]).await;
    let expected = json!({
        "id": deposit.id.to_string(),
        "dedup_key": EventId::dedup_key(&deposit.leg_hash).to_string(),
        "account_id": "acc_1",
        "account_address": "0x2222222222222222222222222222222222222222",
        "source_address": "0x3333333333333333333333333333333333333333",
        "source_type": "ON_CHAIN",
        "currency_symbol": "USDC",
        "amount": "1.5",
        "destination_chain": "BASE_MAINNET",
        "transaction_hash": "0x1111111111111111111111111111111111111111111111111111111111111111",
        "status": "PENDING",
        "confirmed_at": "1970-01-01T00:00:00Z",
        "created_at": "2025-06-15T15:06:40Z",
    });
    assert_eq!(api.get(&format!("{DEPOSITS}/{}", deposit.id)).await.ok(), &expected);
    assert_eq!(api.list("").await.ok(), &json!({ "deposits": [expected] }));
    assert_eq!(serde_json::to_value(DepositResource::of(&deposit)).unwrap(), expected, "as the command line shows it");
}

#[tokio::test]
async fn a_confirmed_deposit_reports_when_and_one_of_an_account_reports_whose() {
    let api = Api::new().await;
    let confirmed = Deposit { source_account_id: Some("acc_2".into()), ..deposit(0, NOON) };
    let confirmed = confirmed.confirm(Timestamp(NOON + SECOND / 2)).unwrap();
    let failed = deposit(1, NOON).fail().unwrap();
    api.record([&confirmed, &failed]).await;
    let shown = api.get(&format!("{DEPOSITS}/{}", confirmed.id)).await;
    assert_eq!(shown.ok()["status"], "CONFIRMED");
    assert_eq!(shown.ok()["confirmed_at"], "2025-06-15T15:06:40.500Z");
    assert_eq!(shown.ok()["source_type"], "ACCOUNT");
    assert_eq!(shown.ok()["source_account_id"], "acc_2");
    let shown = api.get(&format!("{DEPOSITS}/{}", failed.id)).await;
    assert_eq!(shown.ok()["status"], "FAILED");
    assert_eq!(shown.ok()["confirmed_at"], "1970-01-01T00:00:00Z");
}

#[tokio::test]
async fn an_unknown_account_has_no_deposits() {
    for engine in ENGINES {
        let api = Api::on(engine).await;
        api.record([&deposit(0, NOON)]).await;
        for account in ["acc_2", "ACC_1", "acc_1%20", "%27", "%25", "%F0%9F%92%B0", &"a".repeat(5_000)] {
            let answer = api.get(&format!("{DEPOSITS}?account_id={account}")).await;
            assert_eq!(answer.ok(), &json!({ "deposits": [] }), "{account}");
        }
    }
}

#[tokio::test]
async fn each_filter_lets_through_what_it_says() {
    let api = Api::new().await;
    let base = deposit(0, NOON);
    let older = deposit(1, NOON - SECOND);
    let newer = deposit(2, NOON + 1);
    let ether = Deposit { symbol: "ETH".into(), ..deposit(3, NOON) };
    let polygon = Deposit { chain: Chain::PolygonMainnet, ..deposit(4, NOON) };
    let foreign = Deposit { account_id: "acc_2".into(), ..deposit(5, NOON) };
    api.record([&base, &older, &newer, &ether, &polygon, &foreign]).await;
    let cases = [
        ("", vec![&base, &older, &newer, &ether, &polygon]),
        ("&destination_chain=POLYGON_MAINNET", vec![&polygon]),
        ("&destination_chain=SOLANA_MAINNET", vec![]),
        ("&currency_symbol=ETH", vec![&ether]),
        ("&currency_symbol=eth", vec![]),
        ("&destination_chain=BASE_MAINNET&currency_symbol=USDC&limit=25", vec![&base, &older, &newer]),
        ("&start_time=2025-06-15T15:06:40Z", vec![&base, &newer, &ether, &polygon]),
        ("&end_time=2025-06-15T15:06:40Z", vec![&base, &older, &ether, &polygon]),
        ("&start_time=2025-06-15T15:06:40.000001Z", vec![&newer]),
        ("&start_time=2025-06-15T15:06:40.000000001Z", vec![&newer]),
        ("&end_time=2025-06-15T15:06:39.999999999Z", vec![&older]),
        ("&start_time=2025-06-15T15:06:40Z&end_time=2025-06-15T15:06:40Z", vec![&base, &ether, &polygon]),
        ("&start_time=2025-06-15T17:06:40%2B02:00&end_time=2025-06-15T08:06:40-07:00", vec![&base, &ether, &polygon]),
        ("&start_time=2025-06-15T15:06:40.000000001Z&end_time=2025-06-15T15:06:40.000000002Z", vec![]),
        ("&start_time=0000-01-01T00:00:00Z&end_time=9999-12-31T23:59:59.999999999Z&currency_symbol=ETH", vec![&ether]),
    ];
    for (query, expected) in cases {
        assert_eq!(api.list(query).await.ids(), in_order(expected), "{query}");
    }
}

#[tokio::test]
async fn a_page_has_ten_deposits_unless_another_number_up_to_25_is_asked_for() {
    let api = Api::new().await;
    let deposits: Vec<_> = (0..26).map(|nth| deposit(nth, NOON)).collect();
    api.record(&deposits).await;
    for (query, expected) in [("", 10), ("&limit=1", 1), ("&limit=10", 10), ("&limit=25", 25)] {
        assert_eq!(api.list(query).await.ids(), in_order(&deposits)[..expected], "{query}");
    }
}

#[tokio::test]
async fn pages_show_every_deposit_once_and_the_last_one_has_no_cursor() {
    for engine in ENGINES {
        let api = Api::on(engine).await;
        // Three times, so that pages end within and between deposits of the same time.
        let deposits: Vec<_> = (0..12).map(|nth| deposit(nth, NOON + i64::from(nth % 3))).collect();
        api.record(&deposits).await;
        for limit in 1..=13 {
            let mut shown = Vec::new();
            let mut query = format!("&limit={limit}");
            let pages = loop {
                let page = api.list(&query).await;
                shown.push(page.ids());
                let Some(cursor) = page.cursor() else { break shown.len() };
                query = format!("&limit={limit}&cursor={cursor}");
            };
            assert_eq!(shown.concat(), in_order(&deposits), "pages of {limit}");
            assert_eq!(pages, 12_usize.div_ceil(limit), "a last page is never empty");
        }
    }
}

#[tokio::test]
async fn pages_stay_where_they_are_when_deposits_arrive_or_change() {
    let api = Api::new().await;
    let deposits: Vec<_> = (0..4).map(|nth| deposit(nth, NOON)).collect();
    api.record(&deposits).await;
    let first = api.list("&limit=2").await;
    let next = format!("&limit=2&cursor={}", first.cursor().unwrap());
    let before = api.list(&next).await.ids();

    let shown_last = deposits.iter().find(|deposit| deposit.id.to_string() == first.ids()[1]).unwrap();
    let confirmed = shown_last.clone().confirm(Timestamp(NOON + SECOND)).unwrap();
    let mut tx = api.store.db.begin().await.unwrap();
    deposits::set_status(&mut tx, &confirmed, DepositStatus::Pending).await.unwrap();
    tx.commit().await.unwrap();
    api.record(&[deposit(4, NOON + 1), deposit(5, NOON + SECOND)]).await;

    assert_eq!(api.list(&next).await.ids(), before);
    assert_eq!([first.ids(), before].concat(), in_order(&deposits));
}

#[tokio::test]
async fn a_cursor_goes_with_its_filters_and_with_any_limit() {
    let api = Api::new().await;
    let deposits: Vec<_> = (0..5).map(|nth| deposit(nth, NOON)).collect();
    api.record(&deposits).await;
    let filters = "&currency_symbol=USDC&start_time=2025-06-15T15:06:40Z";
    let first = api.list(&format!("{filters}&limit=1")).await;
    let cursor = format!("&cursor={}", first.cursor().unwrap());

    assert_eq!(api.list(&format!("{filters}{cursor}")).await.ids(), in_order(&deposits)[1..]);
    let same = "&start_time=2025-06-15T17:06:40.000%2B02:00&currency_symbol=USDC";
    assert_eq!(api.list(&format!("{cursor}{same}")).await.ids(), in_order(&deposits)[1..], "in other words");
    let others = [
        String::new(),
        "&currency_symbol=USDC".to_owned(),
        filters.replace("USDC", "ETH"),
        filters.replace(":40Z", ":41Z"),
        filters.replace("start_time", "end_time"),
        format!("{filters}&end_time=2025-06-15T15:06:40Z"),
        format!("{filters}&destination_chain=BASE_MAINNET"),
    ];
    for other in others {
        api.list(&format!("{other}{cursor}")).await.assert_invalid(&[("cursor", OTHER_FILTERS)]);
    }
    let foreign = format!("{DEPOSITS}?account_id=acc_2{filters}{cursor}");
    api.get(&foreign).await.assert_invalid(&[("cursor", OTHER_FILTERS)]);
}

#[tokio::test]
async fn a_bad_parameter_is_refused_by_its_name() {
    let api = Api::new().await;
    let cases = [
        ("", "account_id", "is required"),
        ("account_id=", "account_id", "must not be empty"),
        ("account_id", "account_id", "must not be empty"),
        ("account_id=a%00b", "account_id", BAD_TEXT),
        ("account_id=a%0A", "account_id", BAD_TEXT),
        ("account_id=%FF", "account_id", BAD_TEXT),
        ("account_id=a&account_id=a", "account_id", "must not be repeated"),
        ("account_id=a&destination_chain=", "destination_chain", BAD_CHAIN),
        ("account_id=a&destination_chain=CHAIN_UNSPECIFIED", "destination_chain", BAD_CHAIN),
        ("account_id=a&destination_chain=base_mainnet", "destination_chain", BAD_CHAIN),
        ("account_id=a&destination_chain=BITCOIN_MAINNET", "destination_chain", BAD_CHAIN),
        ("account_id=a&destination_chain=BASE_MAINNET,POLYGON_MAINNET", "destination_chain", BAD_CHAIN),
        ("account_id=a&currency_symbol=", "currency_symbol", "must not be empty"),
        ("account_id=a&currency_symbol=US%00DC", "currency_symbol", BAD_TEXT),
        ("account_id=a&start_time=", "start_time", BAD_TIME),
        ("account_id=a&start_time=2025-06-15", "start_time", BAD_TIME),
        ("account_id=a&start_time=1750000000", "start_time", BAD_TIME),
        ("account_id=a&start_time=2025-06-15T17:06:40+02:00", "start_time", BAD_TIME),
        ("account_id=a&end_time=2025-06-15T15:06:40", "end_time", BAD_TIME),
        ("account_id=a&end_time=2025-06-15T15:06:40.0000000001Z", "end_time", BAD_TIME),
        ("account_id=a&end_time=2025-02-29T15:06:40Z", "end_time", BAD_TIME),
        (
            "account_id=a&start_time=2025-06-15T15:06:40.000000002Z&end_time=2025-06-15T15:06:40.000000001Z",
            "start_time",
            "must not be after end_time",
        ),
        ("account_id=a&limit=", "limit", BAD_LIMIT),
        ("account_id=a&limit=0", "limit", BAD_LIMIT),
        ("account_id=a&limit=26", "limit", BAD_LIMIT),
        ("account_id=a&limit=-1", "limit", BAD_LIMIT),
        ("account_id=a&limit=%2B5", "limit", BAD_LIMIT),
        ("account_id=a&limit=05", "limit", BAD_LIMIT),
        ("account_id=a&limit=5.0", "limit", BAD_LIMIT),
        ("account_id=a&limit=ten", "limit", BAD_LIMIT),
        ("account_id=a&limit=4294967301", "limit", BAD_LIMIT),
        ("account_id=a&cursor=", "cursor", BAD_CURSOR),
        ("account_id=a&cursor=abc", "cursor", BAD_CURSOR),
        ("account_id=a&cursor=Af4jH75pb5e3AAY3naBbYAEAAAAAAAAAAAAAAAASNFZ4", "cursor", OTHER_FILTERS),
        ("account_id=a&accountId=a", "accountId", UNKNOWN_LIST_PARAMETER),
        ("account_id=a&destinationChain=BASE_MAINNET", "destinationChain", UNKNOWN_LIST_PARAMETER),
        ("account_id=a&Limit=5", "Limit", UNKNOWN_LIST_PARAMETER),
        ("account_id=a&limit[]=5", "limit[]", UNKNOWN_LIST_PARAMETER),
        ("account_id=a&=5", "", UNKNOWN_LIST_PARAMETER),
    ];
    for (query, parameter, detail) in cases {
        println!("{query}");
        api.get(&format!("{DEPOSITS}?{query}")).await.assert_invalid(&[(parameter, detail)]);
    }
    api.get(DEPOSITS).await.assert_invalid(&[("account_id", "is required")]);
}

#[tokio::test]
async fn everything_wrong_with_a_request_is_reported_at_once_up_to_20_of_it() {
    let api = Api::new().await;
    let query = "pageSize=5&destination_chain=BTC&limit=0&cursor=x&start_time=now&limit=1";
    api.get(&format!("{DEPOSITS}?{query}")).await.assert_invalid(&[
        ("pageSize", UNKNOWN_LIST_PARAMETER),
        ("limit", "must not be repeated"),
        ("account_id", "is required"),
        ("destination_chain", BAD_CHAIN),
        ("start_time", BAD_TIME),
        ("limit", BAD_LIMIT),
    ]);
    let many = api.list(&"&x=1".repeat(4_000)).await;
    many.assert_invalid(&[("x", UNKNOWN_LIST_PARAMETER); 20]);
}

#[tokio::test]
async fn a_deposit_that_is_not_there_is_not_found() {
    let api = Api::new().await;
    let recorded = deposit(0, NOON);
    api.record([&recorded]).await;
    let id = recorded.id.to_string();
    let (upper, bare) = (id.to_uppercase(), id.replace('-', ""));
    for id in [&deposit(1, NOON).id.to_string(), &upper, &bare, &format!("{id}0"), "0", "null", "%FF", "%00", "a%2Fb"] {
        let answer = api.get(&format!("{DEPOSITS}/{id}")).await;
        answer.assert_problem(404, "NOT_FOUND", "Not found", "no deposit has this id");
    }
    let answer = api.get(&format!("{DEPOSITS}/{id}?account_id=acc_1")).await;
    answer.assert_invalid(&[("account_id", "is unknown: this request takes no parameters")]);
    assert_eq!(api.get(&format!("{DEPOSITS}/{id}?")).await.ok()["id"], id);
}

#[tokio::test]
async fn without_a_key_every_request_is_unauthorized_whatever_else_is_wrong_with_it() {
    let api = Api::new().await;
    let paths = ["/", DEPOSITS, "/v2/crypto/deposits/x", "/v2/crypto/deposits?limit=0", "/nowhere", "/v2/crypto"];
    for path in paths {
        for method in [Method::GET, Method::POST, Method::DELETE, Method::OPTIONS] {
            let answer = api.send(&method, path, &[]).await;
            answer.assert_problem(401, "UNAUTHORIZED", "Unauthorized", MISSING_KEY);
        }
    }
    let head = api.send(&Method::HEAD, DEPOSITS, &[]).await;
    assert_eq!(head.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_key_that_is_not_valid_is_refused_and_reported_why_only_where_that_gives_nothing_away() {
    let api = Api::new().await;
    let key = api.key.reveal();
    let malformed = "malformed API key: expected lf_live_ or lf_test_ and 57 letters and digits";
    let mistyped = format!("{}x", &key[..64]);
    let live = ApiKey::generate(Environment::Live, &[1; ApiKey::RANDOM_BYTES]).reveal();
    let mut random = [1; ApiKey::RANDOM_BYTES];
    random[39] = 2;
    let same_id = ApiKey::generate(Environment::Test, &random);
    assert_eq!(same_id.id(), api.key.id());
    let unknown_id = ApiKey::generate(Environment::Test, &[2; ApiKey::RANDOM_BYTES]);
    let cases = [
        (key.clone(), MISSING_KEY),
        (format!("Basic {key}"), MISSING_KEY),
        (format!("Bearer{key}"), MISSING_KEY),
        ("Bearer".to_owned(), MISSING_KEY),
        ("Bearer ".to_owned(), malformed),
        (format!("Bearer {key} {key}"), malformed),
        ("Bearer sk_live_abc".to_owned(), malformed),
        (format!("Bearer {mistyped}"), "wrong checksum in the API key; check it for a typing error"),
        (format!("Bearer {live}"), "this is a live key and this is the test environment"),
        (format!("Bearer {}", same_id.reveal()), "the API key is not known"),
        (format!("Bearer {}", unknown_id.reveal()), "the API key is not known"),
    ];
    for (authorization, detail) in cases {
        let answer = api.send(&Method::GET, "/", &[&authorization]).await;
        answer.assert_problem(401, "UNAUTHORIZED", "Unauthorized", detail);
    }
    let (one, two) = (format!("Bearer {key}"), format!("Bearer {}", unknown_id.reveal()));
    for both in [[&*one, &*two], [&*two, &*one], [&*one, &*one]] {
        let answer = api.send(&Method::GET, "/", &both).await;
        answer.assert_problem(401, "UNAUTHORIZED", "Unauthorized", MISSING_KEY);
    }
}

#[tokio::test]
async fn the_scheme_of_the_key_is_read_in_any_case() {
    let api = Api::new().await;
    let key = api.key.reveal();
    for authorization in [format!("Bearer {key}"), format!("bearer {key}"), format!("BEARER  {key}")] {
        let answer = api.send(&Method::GET, "/v2/crypto/deposits?account_id=a", &[&authorization]).await;
        assert_eq!(answer.ok(), &json!({ "deposits": [] }), "{authorization}");
    }
}

#[tokio::test]
async fn an_unknown_path_is_not_found_before_its_method_or_parameters_are_looked_at() {
    let api = Api::new().await;
    let authorization = format!("Bearer {}", api.key.reveal());
    let paths = [
        "/",
        "/v2",
        "/v2/crypto/deposits/",
        "/v2/crypto/deposits/a/b",
        "/v1/crypto/deposits",
        "/V2/crypto/deposits",
        "/livez",
    ];
    for path in paths {
        for method in [Method::GET, Method::POST, Method::OPTIONS] {
            let answer = api.send(&method, &format!("{path}?limit=0"), &[&authorization]).await;
            answer.assert_problem(404, "NOT_FOUND", "Not found", "there is nothing at this path");
        }
    }
}

#[tokio::test]
async fn a_method_that_a_path_does_not_take_is_refused_with_those_it_takes() {
    let api = Api::new().await;
    let authorization = format!("Bearer {}", api.key.reveal());
    for path in ["/v2/crypto/deposits?limit=0", "/v2/crypto/deposits/x?limit=0"] {
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS, Method::TRACE] {
            let answer = api.send(&method, path, &[&authorization]).await;
            let detail = "this path does not take this method; `Allow` names those it takes";
            answer.assert_problem(405, "METHOD_NOT_ALLOWED", "Method not allowed", detail);
            assert_eq!(answer.header(header::ALLOW), Some("GET,HEAD"));
        }
    }
}

#[tokio::test]
async fn head_is_answered_as_get_without_the_body() {
    let api = Api::new().await;
    let authorization = format!("Bearer {}", api.key.reveal());
    for (path, status) in [("/v2/crypto/deposits?account_id=a", 200), (DEPOSITS, 400), ("/v2/crypto/deposits/x", 404)] {
        let head = api.send(&Method::HEAD, path, &[&authorization]).await;
        let get = api.get(path).await;
        assert_eq!((head.status.as_u16(), &head.body), (status, &Value::Null), "{path}");
        assert_eq!(
            (get.status, &get.headers[header::CONTENT_TYPE]),
            (head.status, &head.headers[header::CONTENT_TYPE])
        );
    }
}

#[tokio::test]
async fn a_failing_store_is_an_internal_error_that_says_nothing_of_its_cause() {
    let api = Api::new().await;
    let Pools::Sqlite { write, .. } = api.store.db.pools() else { panic!("the store is SQLite") };
    sqlx::query("ALTER TABLE deposits RENAME TO elsewhere").execute(write).await.unwrap();
    let detail = "the request could not be answered; try again later";
    let by_id = format!("{DEPOSITS}/{}", deposit(0, NOON).id);
    for path in ["/v2/crypto/deposits?account_id=a", &by_id] {
        api.get(path).await.assert_problem(500, "INTERNAL", "Internal error", detail);
    }
}

#[tokio::test]
async fn a_database_that_cannot_be_reached_is_a_503_that_says_when_to_come_back() {
    // Taken, and given back: nobody listens there.
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let pool = PgPoolOptions::new().acquire_timeout(Duration::from_millis(300));
    let pool = pool.connect_lazy(&format!("postgres://me@{nobody}/landfall")).unwrap();
    let db = Db::from(Pools::Postgres(pool));
    let refused = db.read().await.unwrap_err();
    let why = std::error::Error::source(&refused).unwrap().to_string();
    assert!(refused.is_away() && why.contains("Connection refused"), "{why}");
    let api = Api { router: router(db, Environment::Test), ..Api::new().await };
    let answer = api.get("/v2/crypto/deposits?account_id=a").await;
    assert_eq!(answer.header(header::RETRY_AFTER), Some("5"));
    let detail = "the database cannot be reached; nothing was done, send it again later";
    answer.assert_problem(503, "OVERLOADED", "Overloaded", detail);
}

#[tokio::test]
async fn a_key_that_cannot_be_right_is_refused_without_asking_the_store() {
    let api = Api::new().await;
    run(&api.store.db, "ALTER TABLE api_keys RENAME TO gone".to_owned()).await;
    let key = api.key.reveal();
    let live = ApiKey::generate(Environment::Live, &[1; ApiKey::RANDOM_BYTES]).reveal();
    for authorization in [format!("Bearer {}x", &key[..64]), format!("Bearer {live}"), "Bearer x".to_owned()] {
        let answer = api.send(&Method::GET, DEPOSITS, &[&authorization]).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{authorization}");
    }
    let detail = "the request could not be answered; try again later";
    api.get(DEPOSITS).await.assert_problem(500, "INTERNAL", "Internal error", detail);
}

#[test]
fn openapi_json_is_current() {
    let committed = include_str!("../../../openapi.json");
    assert!(committed == openapi_json(), "openapi.json is out of date; renew it: landfall openapi > openapi.json");
}

/// What the router serves, read where it is put together and from what each path says that it takes.
#[tokio::test]
async fn all_that_is_served_is_in_the_document() {
    let document: Value = serde_json::from_str(&openapi_json()).unwrap();
    let documented = document["paths"].as_object().unwrap();
    let served = include_str!("../../../src/api/mod.rs").split('"').filter(|text| text.starts_with("/v2/"));
    assert_eq!(documented.keys().map(String::as_str).collect::<BTreeSet<_>>(), served.collect());
    let api = Api::new().await;
    for (path, item) in documented {
        let refused = api.send(&Method::PATCH, path, &[&format!("Bearer {}", api.key.reveal())]).await;
        let allowed = refused.header(header::ALLOW).unwrap_or_else(|| panic!("{path}: {}", refused.body));
        let taken: BTreeSet<String> =
            allowed.split(',').map(|method| method.trim().to_lowercase()).filter(|method| method != "head").collect();
        assert_eq!(item.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>(), taken, "{path}");
    }
}

#[tokio::test]
async fn the_openapi_document_says_what_is_served() {
    let api = Api::new().await;
    let deposit = Deposit { source_account_id: Some("acc_2".into()), ..deposit(0, NOON) };
    api.record([&deposit]).await;
    let document: Value = serde_json::from_str(&openapi_json()).unwrap();
    assert_eq!(document["openapi"], "3.1.0");
    assert_eq!(document["security"], json!([{ "bearer": [] }]));
    for path in ["/v2/crypto/deposits", "/v2/crypto/deposits/{deposit_id}"] {
        assert!(document["paths"].get(path).is_some(), "{path}");
    }

    let schemas = &document["components"]["schemas"];
    let shown = api.list("&limit=1").await;
    let fields: Vec<_> = shown.ok()["deposits"][0].as_object().unwrap().keys().collect();
    let properties: Vec<_> = schemas["Deposit"]["properties"].as_object().unwrap().keys().collect();
    assert_eq!(fields, properties);
    assert_eq!(schemas["Deposit"]["required"].as_array().unwrap().len(), 13);
    assert!(!schemas["Deposit"]["required"].as_array().unwrap().contains(&json!("source_account_id")));
    for schema in ["Deposit", "DepositList"] {
        assert_eq!(schemas[schema]["additionalProperties"], false, "{schema}");
    }

    let parameters = document["paths"]["/v2/crypto/deposits"]["get"]["parameters"].as_array().unwrap();
    let names: Vec<_> = parameters.iter().map(|parameter| parameter["name"].as_str().unwrap()).collect();
    let unknown = UNKNOWN_LIST_PARAMETER.replace("is unknown: the parameters are ", "");
    assert_eq!(names.join(", "), unknown);
    for parameter in parameters {
        assert_eq!(parameter["required"], parameter["name"] == "account_id");
    }
    assert_eq!(parameters[5]["schema"]["maximum"], 25);
    for chain in schemas["Chain"]["enum"].as_array().unwrap() {
        api.list(&format!("&destination_chain={}", chain.as_str().unwrap())).await.ok();
    }
}
