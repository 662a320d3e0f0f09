//! That no answer of the API grows with what is on record, and that limits hold whoever comes at once.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody as _, to_bytes};
use axum::extract::ConnectInfo;
use axum::http::{HeaderValue, Method, Request, Response, StatusCode, header};
use futures_util::{StreamExt as _, stream};
use landfall::account::{AccountType, NewAccount};
use landfall::api::{self, Limits, Settings};
use landfall::app::Serving;
use landfall::key::{ApiKey, Environment, Scope, Scopes};
use landfall::overrides::Author;
use landfall::registry::{self, CreateKeyError, NewWebhook, WebhookError};
use landfall::resolver::Resolver;
use landfall::store::{Connection, Db, Engine as Connected, Pools, identities};
use landfall::time::{Clock, Timestamp};
use landfall::webhook::AllowedNetworks;
use landfall_chain::{Address, Chain};
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::harness::postgres::{ENGINES, Engine, TestStore};
use crate::harness::world::tester;
use crate::past::long_lists::{run, watch_many};

const NOW: Timestamp = Timestamp(1_800_000_000_000_000);
/// No part of an answer is larger: 1,000 ids of 128 characters that JSON writes as two each.
const PART_MAX: usize = 300_000;
/// A page of accounts: 10,000 addresses, each with its chain.
const PAGE_MAX: usize = 1_500_000;
const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// For a request that waits for its body: whoever is refused is so at once, and machines that test are busy.
const MOMENT: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(10);
const LOOKS_MAX: usize = 3_000;

struct Api {
    store: TestStore,
    router: Router,
    key: String,
}

impl Api {
    async fn with_places(engine: Engine, concurrent_requests: u32) -> Self {
        let store = TestStore::fresh(engine).await;
        let scopes = Scopes::of(&[Scope::Read, Scope::Write]).unwrap();
        let random = [1; ApiKey::RANDOM_BYTES];
        let key =
            registry::create_key(&store.db, Environment::Test, ("test", &scopes), &random, &tester(NOW)).await.unwrap();
        let no_rates = Limits { ip_requests_per_sec: 0, key_requests_per_sec: 0, ..Limits::default() };
        let limits = Limits { concurrent_requests, ..no_rates };
        let settings = Settings { limits, ..Settings::of(Environment::Test) };
        let router = api::Api::new(store.db.clone(), settings, Clock::new(|| NOW)).router();
        Api { store, router, key: key.reveal() }
    }

    async fn send(&self, method: Method, path: &str, body: String) -> Response<Body> {
        let request = Request::builder().method(method).uri(path);
        let request = request.header(header::AUTHORIZATION, format!("Bearer {}", self.key));
        let request = request.header(header::CONTENT_TYPE, "application/json").body(Body::from(body)).unwrap();
        self.router.clone().oneshot(request).await.unwrap()
    }

    async fn get(&self, path: &str) -> Response<Body> {
        self.send(Method::GET, path, String::new()).await
    }
}

/// Gives an identity so many accounts more, the longest ids there may be, of characters that mean something in JSON.
async fn give(db: &Db, identity: &str, name: &str, count: u32) {
    let rest = "]\"\\,".repeat(29);
    let text = format!(
        "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {count}) \
         INSERT INTO accounts (id, organization_id, identity_id, type, created_us) \
         SELECT '{name}' || (10000000 + n) || '{rest}', 'default', '{identity}', 'OMNIBUS', n / 3 FROM numbers"
    );
    run(db, text).await;
}

fn ids(name: &str, count: u32) -> Vec<String> {
    (1..=count).map(|n| format!("{name}{}{}", 10_000_000 + n, "]\"\\,".repeat(29))).collect()
}

#[tokio::test]
async fn an_identity_is_reported_with_all_its_accounts_in_parts_of_a_bounded_size() {
    for engine in ENGINES {
        let api = Api::with_places(engine, 1).await;
        let form = json!({ "request_id": "r", "type": "BUSINESS", "label": "[]\"], \u{e9}" }).to_string();
        let made = api.send(Method::POST, "/v2/identities", form.clone()).await;
        assert_eq!(made.status(), StatusCode::CREATED);
        let made: Value = serde_json::from_slice(&to_bytes(made.into_body(), PART_MAX).await.unwrap()).unwrap();
        let id = made["id"].as_str().unwrap().to_owned();
        let mut expected = made.clone();
        let mut whole = Vec::new();
        // On both sides of what is read at once.
        for (name, more) in [("aaaa", 999), ("bbbb", 1), ("cccc", 1), ("dddd", 1_500)] {
            give(&api.store.db, &id, name, more).await;
            whole.extend(ids(name, more).into_iter().zip((1..=more).map(|n| n / 3)));
            whole.sort_by(|(a, a_time), (b, b_time)| (a_time, a).cmp(&(b_time, b)));
            expected["account_ids"] = whole.iter().map(|(id, _)| Value::from(id.as_str())).collect();
            let path = format!("/v2/identities/{id}");
            let asked = [(Method::GET, path.as_str(), String::new()), (Method::POST, "/v2/identities", form.clone())];
            for (method, path, body) in asked {
                let answer = api.send(method, path, body).await;
                assert_eq!((answer.status(), &answer.headers()[header::CONTENT_TYPE]), (StatusCode::OK, &JSON));
                let parts: Vec<Bytes> = answer.into_body().into_data_stream().map(Result::unwrap).collect().await;
                let largest = parts.iter().map(Bytes::len).max().unwrap();
                assert!(largest <= PART_MAX, "{engine:?}: {largest} bytes at once");
                let reported: Value = serde_json::from_slice(&parts.concat()).unwrap();
                assert_eq!(reported, expected, "{engine:?}: {} accounts", whole.len());
            }
        }
    }
}

/// The pages of a list of accounts, one after the other: of each account its id and how many addresses it is reported
/// with.
async fn pages(api: &Api, filter: &str) -> Vec<Vec<(String, usize)>> {
    let (mut pages, mut cursor) = (Vec::new(), String::new());
    loop {
        let answer = api.get(&format!("/v2/accounts?limit=100{filter}{cursor}")).await;
        assert_eq!(answer.status(), StatusCode::OK);
        let page: Value = serde_json::from_slice(&to_bytes(answer.into_body(), PAGE_MAX).await.unwrap()).unwrap();
        let reported = page["accounts"].as_array().unwrap().iter().map(|account| {
            (account["id"].as_str().unwrap().to_owned(), account["addresses"].as_array().unwrap().len())
        });
        pages.push(reported.collect());
        let Some(next) = page.get("cursor") else { return pages };
        cursor = format!("&cursor={}", next.as_str().unwrap());
    }
}

#[tokio::test]
async fn a_page_of_accounts_ends_before_it_has_more_addresses_than_one_account_may_have() {
    for engine in ENGINES {
        let api = Api::with_places(engine, 1).await;
        let db = &api.store.db;
        for (index, id) in [1_u8, 2, 3, 4, 5, 6].into_iter().zip(["old", "bare", "many", "more", "newer", "new"]) {
            let addresses =
                if id == "bare" { vec![] } else { vec![(Chain::EthereumTestnet, Address::Evm([index; 20]))] };
            let account = NewAccount {
                id: id.to_owned(),
                identity_id: None,
                kind: AccountType::Omnibus,
                addresses: addresses.into_iter().collect(),
            };
            registry::add_accounts(db, &[account], Timestamp(NOW.0 + i64::from(index))).await.unwrap();
        }
        watch_many(db, engine, "many", (100_001, 109_999)).await;
        watch_many(db, engine, "more", (200_001, 209_998)).await;
        let page = |accounts: &[(&str, usize)]| -> Vec<(String, usize)> {
            accounts.iter().map(|(id, addresses)| ((*id).to_owned(), *addresses)).collect()
        };
        let expected = [
            page(&[("new", 1), ("newer", 1)]),
            page(&[("more", 9_999)]),
            page(&[("many", 10_000), ("bare", 0)]),
            page(&[("old", 1)]),
        ];
        for filter in ["", "&identity_ids=default&identity_ids=nobody"] {
            assert_eq!(pages(&api, filter).await, expected, "{engine:?} {filter}");
        }
        // Such a page goes on at the same place when an account has got more than it may.
        watch_many(db, engine, "many", (300_001, 300_005)).await;
        assert_eq!(pages(&api, "").await[2], page(&[("many", 10_005)]), "{engine:?}: one is always told");
    }
}

#[tokio::test]
async fn an_answer_in_parts_that_cannot_be_reported_to_its_end_is_cut_off() {
    let api = Api::with_places(Engine::Sqlite, 8).await;
    give(&api.store.db, "default", "a", 2_500).await;
    let mut parts = api.get("/v2/identities/default").await.into_body().into_data_stream();
    assert!(parts.next().await.unwrap().is_ok());
    run(&api.store.db, "ALTER TABLE accounts RENAME TO gone".to_owned()).await;
    assert!(parts.next().await.unwrap().is_err(), "who was told a part must not take it for the whole");
}

#[tokio::test]
async fn an_answer_keeps_its_place_until_the_last_of_it_is_sent() {
    let api = Api::with_places(Engine::Sqlite, 1).await;
    let path = "/v2/assets";
    let refused = async || api.get(path).await.status() == StatusCode::SERVICE_UNAVAILABLE;
    let answer = api.get(path).await;
    assert!(refused().await, "it is not sent yet");
    let mut body = answer.into_body();
    let exact = body.size_hint().exact();
    let part = body.frame_of_all().await;
    assert_eq!(exact, u64::try_from(part.len()).ok(), "how long it is can still be told");
    drop(body);
    assert!(refused().await, "the server has it, and its client may not");
    drop(part);
    assert!(!refused().await, "it is over");
}

trait FrameOfAll {
    async fn frame_of_all(&mut self) -> Bytes;
}

impl FrameOfAll for Body {
    /// The only part that it has.
    async fn frame_of_all(&mut self) -> Bytes {
        let frame = std::future::poll_fn(|context| std::pin::Pin::new(&mut *self).poll_frame(context)).await;
        frame.unwrap().unwrap().into_data().unwrap()
    }
}

#[tokio::test]
async fn a_client_that_takes_nothing_of_its_answers_keeps_its_place_and_no_more() {
    let api = Api::with_places(Engine::Sqlite, 1).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, stop, mut serving) = (listener.local_addr().unwrap(), CancellationToken::new(), JoinSet::new());
    let (router, stopped) = (api.router.clone(), stop.clone());
    serving.spawn(async move { Serving::of(8).serve(listener, router, &stopped).await });
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    let mut deaf = socket.connect(address).await.unwrap();
    assert_eq!(api.get("/v2/assets").await.status(), StatusCode::OK);
    // 150 kB each: sooner or later they fill what the system keeps for a connection, and then no more is asked.
    give(&api.store.db, "default", "aaaa", 1_000).await;
    let request =
        format!("GET /v2/identities/default HTTP/1.1\r\nhost: here\r\nauthorization: Bearer {}\r\n\r\n", api.key);
    let (asked, mut writing) = (Arc::new(AtomicU32::new(0)), JoinSet::new());
    let asking = asked.clone();
    writing.spawn(async move {
        while deaf.write_all(request.as_bytes()).await.is_ok() {
            asking.fetch_add(1, Ordering::Relaxed);
        }
    });
    let (mut before, mut still) = (0, 0);
    for _ in 0..LOOKS_MAX {
        tokio::time::sleep(PAUSE).await;
        let now = asked.load(Ordering::Relaxed);
        still = if now == before { still + 1 } else { 0 };
        before = now;
        // Nobody else has come in yet, so what it waits to be taken is an answer, and no refusal.
        if still == 50 {
            break;
        }
    }
    let mut in_a_row = 0;
    for _ in 0..LOOKS_MAX {
        let is_refused = api.get("/v2/assets").await.status() == StatusCode::SERVICE_UNAVAILABLE;
        in_a_row = if is_refused { in_a_row + 1 } else { 0 };
        if in_a_row == 5 {
            break;
        }
        tokio::time::sleep(PAUSE).await;
    }
    assert_eq!(in_a_row, 5, "an answer that nobody takes is in nobody's place");
    // It leaves, and somebody else comes in.
    writing.shutdown().await;
    for _ in 0..LOOKS_MAX {
        if api.get("/v2/assets").await.status() == StatusCode::OK {
            return;
        }
        tokio::time::sleep(PAUSE).await;
    }
    panic!("the place of a client that is gone is lost");
}

#[tokio::test]
async fn a_head_that_is_too_large_is_a_problem_and_what_http_cannot_take_a_bare_refusal() {
    let api = Api::with_places(Engine::Sqlite, 8).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, stop, mut serving) = (listener.local_addr().unwrap(), CancellationToken::new(), JoinSet::new());
    let (router, stopped) = (api.router.clone(), stop.clone());
    serving.spawn(async move { Serving::of(8).serve(listener, router, &stopped).await });
    let answer = async |request: String| {
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let get = |uri: usize, headers: &str| {
        let path = format!("/{}", "x".repeat(uri - 1));
        format!("GET {path} HTTP/1.1\r\nhost: here\r\nconnection: close\r\n{headers}\r\n")
    };
    let of_headers = "host: here\r\nconnection: close\r\n".len();
    for (uri, status) in [(16_384 - of_headers, 401), (16_385 - of_headers, 431), (20_000, 431)] {
        let answer = answer(get(uri, "")).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "a URI of {uri} bytes: {answer}");
        assert!(answer.contains("\r\nx-request-id: req_") && answer.contains("\"request_id\":\"req_"), "{answer}");
        assert_eq!(answer.contains("\"code\":\"HEADERS_TOO_LARGE\""), status == 431, "{answer}");
    }
    let many = "x: y\r\n".repeat(101);
    // As long as the server reads of it: what lay behind that could reset the connection before the answer was read.
    let unended = get(30_000, "")[..20_480].to_owned();
    for (request, status) in [(unended, 431), (get(1, &many), 431), ("no request\r\n\r\n".to_owned(), 400)] {
        let answer = answer(request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        assert!(answer.ends_with("\r\n\r\n") && !answer.contains("x-request-id"), "nothing of ours: {answer}");
    }
}

/// A request with this key whose body does not come to its end: so much of it comes, and then nothing.
fn unended(key: &str, bytes: usize) -> Request<Body> {
    let sent = stream::iter((bytes > 0).then(|| Ok::<_, std::io::Error>(Bytes::from(vec![b' '; bytes]))));
    let request = Request::post("/v2/accounts").header(header::AUTHORIZATION, format!("Bearer {key}"));
    request.body(Body::from_stream(sent.chain(stream::pending()))).unwrap()
}

impl Api {
    /// Sends such requests until one is refused, with what it says, and holds the others.
    async fn hold(&self, holding: &mut JoinSet<Response<Body>>, key: &str, bytes: usize) -> (usize, StatusCode) {
        for held in 0..1_000 {
            let (sending, mut last) = (self.router.clone().oneshot(unended(key, bytes)), JoinSet::new());
            last.spawn(async move { sending.await.unwrap() });
            match tokio::time::timeout(MOMENT, last.join_next()).await {
                Ok(refused) => return (held, refused.unwrap().unwrap().status()),
                Err(_) => drop(holding.spawn(async move { last.join_next().await.unwrap().unwrap() })),
            }
        }
        panic!("never refused");
    }
}

#[tokio::test]
async fn bodies_that_never_come_hold_a_quarter_of_the_places_of_one_key() {
    let api = Api::with_places(Engine::Sqlite, 16).await;
    let scopes = Scopes::of(&[Scope::Write]).unwrap();
    let random = [2; ApiKey::RANDOM_BYTES];
    let other = registry::create_key(&api.store.db, Environment::Test, ("other", &scopes), &random, &tester(NOW)).await;
    let mut holding = JoinSet::new();
    assert_eq!(api.hold(&mut holding, &other.unwrap().reveal(), 0).await, (4, StatusCode::TOO_MANY_REQUESTS));
    assert_eq!(api.get("/v2/assets").await.status(), StatusCode::OK, "another key is answered");
    assert_eq!(api.hold(&mut holding, &api.key, 0).await, (4, StatusCode::TOO_MANY_REQUESTS));
    holding.shutdown().await;
    assert_eq!(api.get("/v2/assets").await.status(), StatusCode::OK, "who has gone holds nothing");
}

#[tokio::test]
async fn a_large_body_takes_more_places_than_a_small_one_and_always_has_enough_when_it_is_alone() {
    // A key has 16, and 1 MiB takes 16.
    let api = Api::with_places(Engine::Sqlite, 64).await;
    let mut holding = JoinSet::new();
    assert_eq!(api.hold(&mut holding, &api.key, 200 << 10).await, (4, StatusCode::TOO_MANY_REQUESTS));
    holding.shutdown().await;
    for places in [1, 4, 64] {
        let api = Api::with_places(Engine::Sqlite, places).await;
        let answer = api.send(Method::POST, "/v2/accounts", " ".repeat(1 << 20)).await;
        assert_eq!(answer.status(), StatusCode::BAD_REQUEST, "it is read, with {places} places");
    }
}

#[tokio::test]
async fn the_page_has_a_few_places_of_its_own() {
    let api = Api::with_places(Engine::Sqlite, 1).await;
    let page = async |host: u8| {
        let mut request = Request::get("/openapi.json").body(Body::empty()).unwrap();
        request.extensions_mut().insert(ConnectInfo(SocketAddr::from(([192, 0, 2, host], 1))));
        api.router.clone().oneshot(request).await.unwrap()
    };
    let mut held = Vec::new();
    for host in 1..=4 {
        for _ in 0..6 {
            held.push(page(host).await);
        }
        assert_eq!(page(host).await.status(), StatusCode::from_u16(if host < 4 { 429 } else { 503 }).unwrap());
    }
    assert!(held.iter().all(|answer| answer.status() == StatusCode::OK));
    assert_eq!(page(5).await.status(), StatusCode::SERVICE_UNAVAILABLE, "all are taken");
    assert_eq!(api.get("/v2/assets").await.status(), StatusCode::OK, "and none of the interface's");
    held.pop();
    assert_eq!(page(5).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_body_that_cannot_be_read_is_a_bad_request_and_none_that_came_too_late() {
    let api = Api::with_places(Engine::Sqlite, 8).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, stop, mut serving) = (listener.local_addr().unwrap(), CancellationToken::new(), JoinSet::new());
    let (router, stopped) = (api.router.clone(), stop.clone());
    serving.spawn(async move { Serving::of(8).serve(listener, router, &stopped).await });
    for chunks in ["zz\r\n{}\r\n0\r\n\r\n", "2\r\n{}0\r\n\r\n", "fffffffffffffffffff\r\n", "-1\r\n"] {
        let mut client = TcpStream::connect(address).await.unwrap();
        let head = format!("POST /v2/accounts HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {}\r\n", api.key);
        let request = format!("{head}content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n{chunks}");
        client.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("INVALID_ARGUMENT"), "{chunks:?}: {answer}");
    }
}

/// As many as wait for a lock in this database.
async fn waiting(db: &Db) -> i64 {
    let Pools::Postgres(pool) = db.pools() else { panic!("PostgreSQL") };
    let text = "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let (count,): (i64,) = sqlx::query_as(text).fetch_one(pool).await.unwrap();
    count
}

/// What comes of `adding` when another, by `text`, has added and is not done yet when it begins.
async fn beside_another<T: Send + 'static>(
    db: &Db,
    text: String,
    adding: impl Future<Output = T> + Send + 'static,
) -> T {
    let mut other = db.begin().await.unwrap();
    identities::lock_organization(&mut other).await.unwrap();
    let Connected::Postgres(connection) = other.engine() else { panic!("PostgreSQL") };
    sqlx::query(AssertSqlSafe(text)).execute(connection).await.unwrap();
    let mut tasks = JoinSet::new();
    let handle = tasks.spawn(adding);
    let mut looks = 0;
    while waiting(db).await == 0 && !handle.is_finished() {
        looks += 1;
        assert!(looks < LOOKS_MAX, "it neither waits nor comes to an end");
        tokio::time::sleep(PAUSE).await;
    }
    other.commit().await.unwrap();
    tasks.join_next().await.unwrap().unwrap()
}

// SQLite has one writer: there one is over before the other begins.
#[tokio::test]
async fn two_who_add_keys_at_once_do_not_exceed_what_is_allowed() {
    let store = TestStore::fresh(Engine::Postgres).await;
    let key = "INSERT INTO api_keys (id, organization_id, name, secret_hash, scopes, created_us) SELECT";
    run(&store.db, format!("{key} 'k' || n, 'default', 'n', '', 'read', 0 FROM generate_series(1, 49) AS n")).await;
    let db = store.db.clone();
    let adding = async move {
        let read = Scopes::of(&[Scope::Read]).unwrap();
        registry::create_key(&db, Environment::Test, ("late", &read), &[7; ApiKey::RANDOM_BYTES], &tester(NOW)).await
    };
    let refused = beside_another(&store.db, format!("{key} 'k50', 'default', 'n', '', 'read', 0"), adding).await;
    assert!(matches!(refused, Err(CreateKeyError::TooMany)), "there were 50 when it counted");
}

#[tokio::test]
async fn two_who_add_webhooks_at_once_do_not_exceed_what_is_allowed() {
    let store = TestStore::fresh(Engine::Postgres).await;
    let webhook = "INSERT INTO webhooks (id, organization_id, url, label, status, signing_key_id, signing_key, \
                   signing_key_created_us, created_us) SELECT";
    let values = "'default', 'https://example.com/', '', 'ACTIVE', 'k', 'whsec_AAAA', 0, 0";
    run(&store.db, format!("{webhook} 'w' || n, {values} FROM generate_series(1, 999) AS n")).await;
    let db = store.db.clone();
    let adding = async move {
        let resolver = Resolver::new(|_| Ok(vec!["93.184.216.34".parse().unwrap()]));
        let none = AllowedNetworks::default();
        let new = NewWebhook { url: "https://example.com/", label: "", allowed_networks: &none, ed25519: false };
        let by = Author { actor: "olga", reason: "", now: NOW };
        registry::add_webhook(&db, Some(&resolver), &new, &[7; 84], &by).await.map(drop)
    };
    let refused = beside_another(&store.db, format!("{webhook} 'w1000', {values}"), adding).await;
    assert!(matches!(refused, Err(WebhookError::TooMany)), "there were 1,000 when it counted: {refused:?}");
}
