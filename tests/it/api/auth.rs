//! Who may ask what, and how much: keys, scopes, signatures, limits, and the code of each refusal, through the router
//! over a real store. What makes a signature good is `signatures`'s to test.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::ConnectInfo;
use axum::http::{HeaderMap, Method, Request, StatusCode};
use futures_util::stream;
use landfall::api::{Api, Limits, Settings, openapi_json};
use landfall::key::{Algorithm, ApiKey, Environment, KEYS_MAX, Scope, Scopes};
use landfall::registry::{self, ChangeKeyError, CreateKeyError};
use landfall::store::{Connection, Db, Engine as Connected, Pools, identities, keys};
use landfall::time::{Clock, Timestamp};
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tower::ServiceExt as _;

use crate::follow::signers::{self, Signer, public_key};
use crate::harness::postgres::{ENGINES, Engine, TestStore};
use crate::harness::world::tester;

const LIST: &str = "/v2/crypto/deposits?account_id=a";
const HOST: &str = "api.example.com";
const NOW: u64 = 1_750_000_000;
const PATIENCE: Duration = Duration::from_secs(60);
/// For what happens at once; machines that test are busy.
const SOON: Duration = Duration::from_secs(10);

/// A served store; its clock stands still.
struct Door {
    store: TestStore,
    api: Api,
    clock: Arc<AtomicI64>,
    made: u8,
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Value,
}

impl Door {
    async fn new(limits: Limits) -> Self {
        Door::on(Engine::Sqlite, limits).await
    }

    async fn on(engine: Engine, limits: Limits) -> Self {
        let store = TestStore::fresh(engine).await;
        let clock = Arc::new(AtomicI64::new(Timestamp::from_secs(NOW).0));
        let api = api(&store.db, limits, &clock);
        Door { store, api, clock, made: 0 }
    }

    /// The same store behind an API that cuts nothing off.
    fn patient(self) -> Self {
        let api = api(&self.store.db, patient(), &self.clock);
        Door { api, ..self }
    }

    async fn key(&mut self, scopes: impl Into<Scopes>) -> ApiKey {
        self.made += 1;
        let random = [self.made; ApiKey::RANDOM_BYTES];
        let what = ("test", &scopes.into());
        registry::create_key(&self.store.db, Environment::Test, what, &random, &tester(Timestamp(1))).await.unwrap()
    }

    async fn get(&self, key: &ApiKey, path: &str) -> Answer {
        self.send(request(&Method::GET, path, key)).await
    }

    async fn send(&self, request: Request<Body>) -> Answer {
        send(&self.api, request).await
    }

    fn advance(&self, secs: i64) {
        self.clock.fetch_add(secs * 1_000_000, Ordering::Relaxed);
    }

    fn secs(&self) -> u64 {
        u64::try_from(self.clock.load(Ordering::Relaxed) / 1_000_000).unwrap()
    }

    async fn last_used(&self) -> Vec<Option<Timestamp>> {
        let listed = keys::list(&mut self.store.db.read().await.unwrap()).await.unwrap();
        listed.into_iter().map(|key| key.last_used_at).collect()
    }

    /// A signed request.
    fn signed(&self, signer: &Signer, key: &ApiKey, (method, path): (&Method, &str), nonce: &str) -> Request<Body> {
        let claims = signers::claims(key.id(), HOST, (method.as_str(), path, b""), nonce, self.secs());
        let mut request = request(method, path, key);
        request.headers_mut().insert("x-request-signature", signer.usual(&claims).parse().unwrap());
        request
    }
}

impl Answer {
    fn assert(&self, status: u16, code: &str) {
        assert_eq!((self.status.as_u16(), self.body["code"].as_str()), (status, Some(code)), "{}", self.body);
        assert_eq!(self.headers["content-type"], "application/problem+json");
        assert_eq!(self.body["request_id"].as_str(), Some(self.headers["x-request-id"].to_str().unwrap()));
    }

    fn detail(&self) -> &str {
        self.body["detail"].as_str().unwrap()
    }

    fn retry_after(&self) -> u64 {
        self.headers["retry-after"].to_str().unwrap().parse().unwrap()
    }
}

fn api(db: &Db, limits: Limits, clock: &Arc<AtomicI64>) -> Api {
    let clock = Arc::clone(clock);
    let clock = Clock::new(move || Timestamp(clock.load(Ordering::Relaxed)));
    Api::new(db.clone(), Settings { host: HOST.to_owned(), limits, ..Settings::of(Environment::Test) }, clock)
}

/// Cuts nothing off, however slow the machine is.
fn patient() -> Limits {
    Limits { request_timeout: PATIENCE, ..Limits::default() }
}

fn request(method: &Method, path: &str, key: &ApiKey) -> Request<Body> {
    let request = Request::builder().method(method).uri(path);
    request.header("authorization", format!("Bearer {}", key.reveal())).body(Body::empty()).unwrap()
}

fn from(mut request: Request<Body>, ip: [u8; 4]) -> Request<Body> {
    request.extensions_mut().insert(ConnectInfo(SocketAddr::from((ip, 40_000))));
    request
}

async fn send(api: &Api, request: Request<Body>) -> Answer {
    let response = api.router().oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let bytes = to_bytes(body, usize::MAX).await.unwrap();
    let body = if bytes.is_empty() { Value::Null } else { serde_json::from_slice(&bytes).unwrap() };
    Answer { status: parts.status, headers: parts.headers, body }
}

fn all_but(scope: Scope) -> Scopes {
    let others: Vec<Scope> = Scope::ALL.into_iter().filter(|one| *one != scope && *one != Scope::Admin).collect();
    Scopes::of(&others).unwrap()
}

#[tokio::test]
async fn a_revoked_key_is_refused_by_the_next_request_at_every_instance() {
    for engine in ENGINES {
        let mut door = Door::on(engine, patient()).await;
        let key = door.key(Scope::Read).await;
        let other = door.key(Scope::Read).await;
        let beside = api(&door.store.db, patient(), &door.clock);
        for _ in 0..3 {
            assert_eq!(door.get(&key, LIST).await.status, 200);
            assert_eq!(send(&beside, request(&Method::GET, LIST, &key)).await.status, 200);
        }
        registry::revoke_key(&door.store.db, key.id(), &tester(Timestamp(7))).await.unwrap();
        registry::revoke_key(&door.store.db, key.id(), &tester(Timestamp(8))).await.unwrap();
        let refused = door.get(&key, LIST).await;
        refused.assert(401, "UNAUTHORIZED");
        assert_eq!(refused.detail(), "the API key is revoked");
        send(&beside, request(&Method::GET, LIST, &key)).await.assert(401, "UNAUTHORIZED");
        assert_eq!(door.get(&other, LIST).await.status, 200);
        let listed = keys::list(&mut door.store.db.read().await.unwrap()).await.unwrap();
        let revoked: Vec<_> = listed.iter().map(|key| key.revoked_at).collect();
        assert_eq!(revoked, [Some(Timestamp(7)), None], "the first time stays");
        // Without the secret, an answer does not show that there was such a key.
        let mut random = [1; ApiKey::RANDOM_BYTES];
        random[39] = 2;
        let guess = ApiKey::generate(Environment::Test, &random);
        assert_eq!((guess.id(), door.get(&guess, LIST).await.detail()), (key.id(), "the API key is not known"));
        let unknown = registry::revoke_key(&door.store.db, "nosuch00", &tester(Timestamp(7))).await;
        assert!(matches!(unknown, Err(ChangeKeyError::Unknown(_))));
    }
}

#[tokio::test]
async fn a_test_key_whose_prefix_is_rewritten_opens_no_store_that_is_switched_to_live() {
    for engine in ENGINES {
        let mut door = Door::on(engine, patient()).await;
        let key = door.key(Scope::Read).await;
        let rewritten = ApiKey::generate(Environment::Live, &[door.made; ApiKey::RANDOM_BYTES]);
        assert_eq!((rewritten.id(), rewritten.secret_hash()), (key.id(), key.secret_hash()), "only the prefix differs");
        let live = Api::new(door.store.db.clone(), Settings::of(Environment::Live), Clock::system());
        let refused = send(&live, request(&Method::GET, LIST, &rewritten)).await;
        refused.assert(401, "UNAUTHORIZED");
        assert_eq!(refused.detail(), "the API key is not known");
        assert_eq!(door.get(&key, LIST).await.status, 200, "{engine:?}: where it was made for it works");
    }
}

/// A POST of an identity whose `text` is sent only on a signal, and a signal that all else of it has been checked.
fn held_back(key: &ApiKey, text: &'static str) -> (Request<Body>, oneshot::Receiver<()>, oneshot::Sender<()>) {
    let ((report, is_read), (let_go, held)) = (oneshot::channel(), oneshot::channel());
    let body = stream::once(async move {
        report.send(()).unwrap();
        held.await.unwrap();
        Ok::<_, std::io::Error>(Bytes::from(text))
    });
    let mut request = post(key, "/v2/identities", "");
    *request.body_mut() = Body::from_stream(body);
    (request, is_read, let_go)
}

#[tokio::test]
async fn a_key_that_is_revoked_or_paired_while_a_body_is_awaited_does_nothing() {
    const TEXT: &str = r#"{"request_id":"held","type":"BUSINESS"}"#;
    for engine in ENGINES {
        let mut door = Door::on(engine, patient()).await;
        let (revoked, paired) = (door.key(Scope::Write).await, door.key(Scope::Write).await);
        let (db, by) = (&door.store.db, &tester(Timestamp(7)));
        let public = public_key(Algorithm::EdDsa);
        let meanwhile = async |key: &ApiKey, request: (Request<Body>, oneshot::Receiver<()>, oneshot::Sender<()>)| {
            let (request, is_read, let_go) = request;
            let change = async {
                tokio::time::timeout(PATIENCE, is_read).await.expect("its body is awaited").unwrap();
                if key.id() == revoked.id() {
                    registry::revoke_key(db, key.id(), by).await.unwrap();
                } else {
                    registry::pair_key(db, key.id(), &public, Duration::ZERO, by).await.unwrap();
                }
                let_go.send(()).unwrap();
            };
            tokio::join!(door.send(request), change).0
        };
        let refused = meanwhile(&revoked, held_back(&revoked, TEXT)).await;
        refused.assert(401, "UNAUTHORIZED");
        assert_eq!(refused.detail(), "the API key is revoked");
        let unsigned = meanwhile(&paired, held_back(&paired, TEXT)).await;
        unsigned.assert(401, "UNAUTHORIZED");
        assert!(unsigned.detail().starts_with("this API key is paired"), "{}", unsigned.detail());

        // A request that was signed before the key was paired is answered.
        let claims =
            signers::claims(paired.id(), HOST, ("POST", "/v2/identities", TEXT.as_bytes()), "0123456789abcdef", NOW);
        let mut signed = post(&paired, "/v2/identities", TEXT);
        let token = Signer::of(Algorithm::EdDsa).usual(&claims);
        signed.headers_mut().insert("x-request-signature", token.parse().unwrap());
        assert_eq!(door.send(signed).await.status, 201, "{engine:?}: nothing had been done");
    }
}

#[tokio::test]
async fn a_revoked_key_makes_room_for_another() {
    assert_eq!(KEYS_MAX, 50, "as the interface says");
    let mut door = Door::new(patient()).await;
    let first = door.key(Scope::Read).await;
    for _ in 1..KEYS_MAX {
        door.key(Scope::Admin).await;
    }
    let more = async |number| {
        let (what, random) = (("more", &Scope::Read.into()), [number; ApiKey::RANDOM_BYTES]);
        registry::create_key(&door.store.db, Environment::Test, what, &random, &tester(Timestamp(1))).await
    };
    assert!(matches!(more(200).await, Err(CreateKeyError::TooMany)));
    registry::revoke_key(&door.store.db, first.id(), &tester(Timestamp(7))).await.unwrap();
    more(201).await.unwrap();
    assert!(matches!(more(202).await, Err(CreateKeyError::TooMany)));
}

/// The operations of the document: method, path with something in its parameters, the scope it names.
fn operations() -> Vec<(Method, String, Scope)> {
    let document: Value = serde_json::from_str(&openapi_json()).unwrap();
    let mut found = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        let concrete: Vec<&str> = path.split('/').map(|part| if part.starts_with('{') { "x" } else { part }).collect();
        for (method, operation) in item.as_object().unwrap() {
            let scope = operation["security"][0]["bearer"][0].as_str();
            let scope = scope.unwrap_or_else(|| panic!("{method} {path} names no scope in the document"));
            found.push((method.to_uppercase().parse().unwrap(), concrete.join("/"), scope.parse().unwrap()));
        }
    }
    found
}

#[tokio::test]
async fn each_operation_is_refused_without_the_scope_that_the_document_names_and_not_with_it() {
    let mut door = Door::new(patient()).await;
    let mut with = BTreeMap::new();
    for scope in Scope::ALL {
        with.insert(scope, (door.key(scope).await, door.key(all_but(scope)).await));
    }
    let operations = operations();
    assert!(operations.len() >= 2);
    for (method, path, scope) in operations {
        let (has, lacks) = &with[&scope];
        let refused = door.send(request(&method, &path, lacks)).await;
        refused.assert(403, "FORBIDDEN");
        assert_eq!(refused.detail(), format!("this API key does not have the scope `{}`", scope.name()));
        for key in [has, &with[&Scope::Admin].0] {
            assert_ne!(door.send(request(&method, &path, key)).await.status, 403, "{method} {path}");
        }
    }
}

#[tokio::test]
async fn a_path_and_its_methods_are_looked_at_before_the_scope_and_the_scope_before_parameters() {
    let mut door = Door::new(patient()).await;
    let key = door.key(Scope::Webhooks).await;
    door.get(&key, "/v2/nowhere").await.assert(404, "NOT_FOUND");
    door.send(request(&Method::DELETE, LIST, &key)).await.assert(405, "METHOD_NOT_ALLOWED");
    door.get(&key, "/v2/crypto/deposits?limit=0").await.assert(403, "FORBIDDEN");
    door.send(request(&Method::HEAD, LIST, &key)).await.headers.get("x-request-id").unwrap();
}

#[tokio::test]
async fn the_last_use_of_keys_is_written_for_many_requests_at_once() {
    for engine in ENGINES {
        let mut door = Door::on(engine, patient()).await;
        let (one, two) = (door.key(Scope::Read).await, door.key(Scope::Read).await);
        for _ in 0..20 {
            door.get(&one, LIST).await;
            door.advance(1);
        }
        door.get(&ApiKey::generate(Environment::Test, &[99; ApiKey::RANDOM_BYTES]), LIST).await;
        assert_eq!(door.last_used().await, [None, None], "no request wrote anything");
        door.api.tick().await.unwrap();
        assert_eq!(door.last_used().await, [Some(Timestamp::from_secs(NOW + 19)), None]);
        let mut tx = door.store.db.begin().await.unwrap();
        keys::used(&mut tx, two.id(), Timestamp(5)).await.unwrap();
        keys::used(&mut tx, two.id(), Timestamp(3)).await.unwrap();
        tx.commit().await.unwrap();
        door.api.tick().await.unwrap();
        let expected = [Some(Timestamp::from_secs(NOW + 19)), Some(Timestamp(5))];
        assert_eq!(door.last_used().await, expected, "and never goes back");
    }
}

#[tokio::test]
async fn a_paired_key_must_sign_every_request_and_no_signature_counts_twice() {
    for engine in ENGINES {
        let mut door = Door::on(engine, patient()).await;
        let key = door.key(Scope::Read).await;
        let signer = Signer::of(Algorithm::Es256);
        let get = (&Method::GET, LIST);
        assert_eq!(door.get(&key, LIST).await.status, 200);
        assert_eq!(
            door.send(door.signed(&signer, &key, get, "0123456789abcdef0")).await.status,
            200,
            "not compulsory yet"
        );
        let (public, day) = (public_key(Algorithm::Es256), Duration::from_secs(86_400));
        registry::pair_key(&door.store.db, key.id(), &public, day, &tester(Timestamp(1))).await.unwrap();

        let unsigned = door.get(&key, LIST).await;
        unsigned.assert(401, "UNAUTHORIZED");
        let missing = "this API key is paired with a public key: expected one header `X-Request-Signature: <JWT>`";
        assert_eq!(unsigned.detail(), missing);
        door.get(&key, "/v2/nowhere").await.assert(401, "UNAUTHORIZED");

        assert_eq!(door.send(door.signed(&signer, &key, get, "0123456789abcdef1")).await.status, 200);
        let replayed = door.send(door.signed(&signer, &key, get, "0123456789abcdef1")).await;
        replayed.assert(401, "UNAUTHORIZED");
        assert_eq!(replayed.detail(), "X-Request-Signature has a nonce that was used before");
        let twice = door.signed(&signer, &key, get, "0123456789abcdef2");
        let mut both = request(&Method::GET, LIST, &key);
        for token in [&twice.headers()["x-request-signature"]; 2] {
            both.headers_mut().append("x-request-signature", token.clone());
        }
        assert_eq!(door.send(both).await.detail(), missing, "two headers");
        let other_query =
            door.signed(&signer, &key, (&Method::GET, "/v2/crypto/deposits?account_id=b"), "0123456789abcdef3");
        let mut moved = request(&Method::GET, LIST, &key);
        moved.headers_mut().insert("x-request-signature", other_query.headers()["x-request-signature"].clone());
        assert_eq!(door.send(moved).await.detail(), "X-Request-Signature is not for this request: uri differs");

        // What may change something is taken in the store: by whichever instance, also one that starts anew.
        let post = (&Method::POST, LIST);
        door.send(door.signed(&signer, &key, post, "0123456789abcdef4")).await.assert(405, "METHOD_NOT_ALLOWED");
        let beside = api(&door.store.db, patient(), &door.clock);
        let again = send(&beside, door.signed(&signer, &key, post, "0123456789abcdef4")).await;
        assert_eq!(again.detail(), "X-Request-Signature has a nonce that was used before");
        door.api.tick().await.unwrap();
        door.send(door.signed(&signer, &key, post, "0123456789abcdef4")).await.assert(401, "UNAUTHORIZED");
        // When no token with it could be good any more, it is forgotten: this one is another, of that later time.
        door.advance(3_600 + 151);
        door.api.tick().await.unwrap();
        door.send(door.signed(&signer, &key, post, "0123456789abcdef4")).await.assert(405, "METHOD_NOT_ALLOWED");
    }
}

#[tokio::test]
async fn an_instance_whose_clock_is_ahead_forgets_no_nonce_that_others_would_take() {
    for engine in ENGINES {
        let mut door = Door::on(engine, patient()).await;
        let key = door.key(Scope::Read).await;
        let (public, signer) = (public_key(Algorithm::EdDsa), Signer::of(Algorithm::EdDsa));
        registry::pair_key(&door.store.db, key.id(), &public, Duration::ZERO, &tester(Timestamp(1))).await.unwrap();
        let post = || door.signed(&signer, &key, (&Method::POST, LIST), "0123456789abcdef0");
        door.send(post()).await.assert(405, "METHOD_NOT_ALLOWED");
        for minutes in [2, 60] {
            let ahead = Arc::new(AtomicI64::new(Timestamp::from_secs(NOW + minutes * 60).0));
            api(&door.store.db, patient(), &ahead).tick().await.unwrap();
            door.send(post()).await.assert(401, "UNAUTHORIZED");
        }
    }
}

#[tokio::test]
async fn the_body_is_signed_too() {
    let mut door = Door::new(patient()).await;
    let key = door.key(Scope::Read).await;
    let day = Duration::from_secs(86_400);
    registry::pair_key(&door.store.db, key.id(), &public_key(Algorithm::EdDsa), day, &tester(Timestamp(1)))
        .await
        .unwrap();
    let signer = Signer::of(Algorithm::EdDsa);
    let post = |signed: &[u8], sent: &'static [u8], nonce| {
        let claims = signers::claims(key.id(), HOST, ("POST", LIST, signed), nonce, NOW);
        let request = Request::post(LIST).header("authorization", format!("Bearer {}", key.reveal()));
        request.header("x-request-signature", signer.usual(&claims)).body(Body::from(sent)).unwrap()
    };
    door.send(post(b"{}", b"{}", "0123456789abcdef1")).await.assert(405, "METHOD_NOT_ALLOWED");
    for (signed, sent) in [(&b"{}"[..], &b"{ }"[..]), (b"", b"{}"), (b"{}", b"")] {
        let refused = door.send(post(signed, sent, "0123456789abcdef2")).await;
        assert_eq!(refused.detail(), "X-Request-Signature is not for this request: bodyHash differs");
    }
}

#[tokio::test]
async fn a_public_key_is_followed_by_another_and_never_by_none() {
    for engine in ENGINES {
        let mut door = Door::on(engine, patient()).await;
        let key = door.key(Scope::Read).await;
        let pair = async |algorithm, hours: u64, secs: u64| {
            let (public, previous_for) = (public_key(algorithm), Duration::from_secs(hours * 3_600));
            registry::pair_key(&door.store.db, key.id(), &public, previous_for, &tester(Timestamp::from_secs(secs)))
                .await
        };
        let mut nonce = 0;
        let mut works = async |algorithm| {
            nonce += 1;
            let nonce = format!("0123456789abcdef-{nonce}");
            let request = door.signed(&Signer::of(algorithm), &key, (&Method::GET, LIST), &nonce);
            door.send(request).await.status == 200
        };
        pair(Algorithm::Rs256, 24, NOW).await.unwrap();
        assert!(works(Algorithm::Rs256).await && !works(Algorithm::EdDsa).await);
        assert!(matches!(pair(Algorithm::Rs256, 24, NOW).await, Err(ChangeKeyError::Paired(_))));
        pair(Algorithm::EdDsa, 1, NOW).await.unwrap();
        assert!(works(Algorithm::Rs256).await && works(Algorithm::EdDsa).await, "both, for an hour");
        door.advance(3_599);
        assert!(works(Algorithm::Rs256).await && works(Algorithm::EdDsa).await);
        door.advance(1);
        assert!(!works(Algorithm::Rs256).await && works(Algorithm::EdDsa).await);
        pair(Algorithm::Es256, 0, door.secs()).await.unwrap();
        assert!(!works(Algorithm::EdDsa).await && works(Algorithm::Es256).await, "at once");

        // Also when no public key is valid any more, nothing goes unsigned.
        expire_public_keys(&door.store.db).await;
        assert!(!works(Algorithm::Es256).await);
        door.get(&key, LIST).await.assert(401, "UNAUTHORIZED");
        registry::revoke_key(&door.store.db, key.id(), &tester(Timestamp(7))).await.unwrap();
        let revoked = pair(Algorithm::EdDsa, 0, NOW).await;
        assert!(matches!(revoked, Err(ChangeKeyError::Revoked(_))));
    }
}

async fn expire_public_keys(db: &Db) {
    let text = "UPDATE public_keys SET valid_until_us = 1";
    match db.pools() {
        Pools::Sqlite { write, .. } => drop(sqlx::query(text).execute(write).await.unwrap()),
        Pools::Postgres(pool) => drop(sqlx::query(text).execute(pool).await.unwrap()),
    }
}

#[tokio::test]
async fn an_address_that_asks_too_much_is_refused_before_its_key_is_looked_at_and_let_in_again() {
    let mut door = Door::new(Limits { ip_requests_per_sec: 1, ..patient() }).await;
    let key = door.key(Scope::Read).await;
    let bad = || from(Request::get(LIST).body(Body::empty()).unwrap(), [192, 0, 2, 1]);
    door.send(bad()).await.assert(401, "UNAUTHORIZED");
    door.send(bad()).await.assert(401, "UNAUTHORIZED");
    let good = |host| from(request(&Method::GET, LIST, &key), [192, 0, 2, host]);
    let begun = Instant::now();
    let refused = loop {
        let answer = door.send(good(1)).await;
        // Each second lets one more in.
        if answer.status != 200 {
            break answer;
        }
        assert!(begun.elapsed() < PATIENCE, "never refused");
    };
    refused.assert(429, "RATE_LIMITED");
    assert_eq!(refused.retry_after(), 1);
    assert_eq!(door.send(good(2)).await.status, 200, "another address");
    let begun = Instant::now();
    while door.send(good(1)).await.status != 200 {
        assert!(begun.elapsed() < PATIENCE, "never let in again");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_key_that_asks_too_much_is_refused_and_others_are_not() {
    let mut door = Door::new(Limits { key_requests_per_sec: 2, ip_requests_per_sec: 0, ..patient() }).await;
    let (one, two) = (door.key(Scope::Read).await, door.key(Scope::Read).await);
    let begun = Instant::now();
    let mut answered = 0;
    let refused = loop {
        let answer = door.get(&one, LIST).await;
        if answer.status != 200 {
            break answer;
        }
        answered += 1;
        assert!(begun.elapsed() < PATIENCE, "never refused");
    };
    assert!(answered >= 4, "two seconds' worth at once, and not {answered}");
    refused.assert(429, "RATE_LIMITED");
    assert!(refused.retry_after() >= 1);
    assert_eq!(door.get(&two, LIST).await.status, 200);
}

/// A body that never comes.
fn never() -> Body {
    Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>())
}

#[tokio::test]
async fn a_key_that_asks_too_much_is_refused_before_its_bodies_are_read() {
    let mut door = Door::new(Limits { key_requests_per_sec: 1, ip_requests_per_sec: 0, ..patient() }).await;
    let key = door.key(Scope::Write).await;
    let mut waiting = JoinSet::new();
    for _ in 0..20 {
        let (api, mut slow) = (door.api.clone(), request(&Method::POST, "/v2/accounts", &key));
        *slow.body_mut() = never();
        waiting.spawn(async move { send(&api, slow).await });
    }
    let refused = tokio::time::timeout(SOON, waiting.join_next()).await.expect("some are refused").unwrap().unwrap();
    refused.assert(429, "RATE_LIMITED");
}

#[tokio::test]
async fn a_paired_key_without_a_signature_is_refused_before_its_body_is_read() {
    let mut door = Door::new(patient()).await;
    let key = door.key(Scope::Write).await;
    let public = public_key(Algorithm::EdDsa);
    registry::pair_key(&door.store.db, key.id(), &public, Duration::ZERO, &tester(Timestamp(1))).await.unwrap();
    for token in [None, Some("a.b"), Some("a.b.c.d"), Some("no token")] {
        let mut slow = request(&Method::POST, "/v2/accounts", &key);
        *slow.body_mut() = never();
        if let Some(token) = token {
            slow.headers_mut().insert("x-request-signature", token.parse().unwrap());
        }
        let refused = tokio::time::timeout(SOON, door.send(slow)).await.expect("nothing of it is read");
        refused.assert(401, "UNAUTHORIZED");
        assert!(refused.detail().contains("X-Request-Signature"), "{token:?}: {}", refused.detail());
    }
}

#[tokio::test]
async fn what_is_too_large_is_refused_at_its_limit() {
    let limits = Limits { body_bytes: 2_000, header_bytes: 2_000, ..patient() };
    let mut door = Door::new(limits).await;
    let key = door.key(Scope::Read).await;
    let post = |body: Body| {
        let mut post = request(&Method::POST, LIST, &key);
        *post.body_mut() = body;
        post
    };
    let chunks = |count: usize| {
        let chunk = || Ok::<_, std::io::Error>(Bytes::from_static(&[b' '; 1_000]));
        Body::from_stream(stream::iter((0..count).map(move |_| chunk())))
    };
    door.send(post(chunks(2))).await.assert(405, "METHOD_NOT_ALLOWED");
    door.send(post(chunks(3))).await.assert(413, "PAYLOAD_TOO_LARGE");
    door.send(post(Body::from_stream(stream::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from_static(&[0; 512]))))))
        .await
        .assert(413, "PAYLOAD_TOO_LARGE");
    // By its declared length it is refused before the key is checked, and not read.
    let declared = Request::post(LIST).header("content-length", "2001").body(Body::empty()).unwrap();
    door.send(declared).await.assert(413, "PAYLOAD_TOO_LARGE");
    let with_header = |bytes: usize| {
        let mut get = request(&Method::GET, LIST, &key);
        let rest = bytes - LIST.len() - ("authorization".len() + 4 + "Bearer ".len() + 65) - ("x".len() + 4);
        get.headers_mut().insert("x", "a".repeat(rest).parse().unwrap());
        get
    };
    assert_eq!(door.send(with_header(2_000)).await.status, 200);
    door.send(with_header(2_001)).await.assert(431, "HEADERS_TOO_LARGE");
    door.get(&key, &format!("{LIST}{}", "a".repeat(1_900))).await.assert(431, "HEADERS_TOO_LARGE");
}

#[tokio::test]
async fn a_body_that_may_be_large_is_read_whole() {
    let mut door = Door::new(Limits { body_bytes: 4 << 20, ..patient() }).await;
    let key = door.key(Scope::Write).await;
    let mut post = request(&Method::POST, "/v2/accounts", &key);
    post.headers_mut().insert("content-type", "application/json".parse().unwrap());
    *post.body_mut() = Body::from([vec![b' '; 3 << 20], b"{}".to_vec()].concat());
    let refused = door.send(post).await;
    refused.assert(400, "INVALID_ARGUMENT");
    assert!(refused.body.to_string().contains("is required"), "{}", refused.body);
}

#[tokio::test]
async fn a_body_that_drips_is_cut_off_and_more_than_there_are_places_for_is_shed() {
    let (concurrent_requests, request_timeout) = (1, Duration::from_secs(2));
    let unlimited = Limits { key_requests_per_sec: 0, ip_requests_per_sec: 0, ..patient() };
    let limits = Limits { concurrent_requests, request_timeout, ..unlimited };
    let mut door = Door::new(limits).await;
    let key = door.key(Scope::Read).await;
    let (report, is_read) = oneshot::channel();
    let mut report = Some(report);
    let drips = stream::poll_fn(move |_| {
        if let Some(report) = report.take() {
            report.send(()).unwrap();
        }
        Poll::<Option<Result<Bytes, std::io::Error>>>::Pending
    });
    let mut slow = request(&Method::POST, LIST, &key);
    *slow.body_mut() = Body::from_stream(drips);
    let mut waiting = JoinSet::new();
    let api = door.api.clone();
    waiting.spawn(async move { send(&api, slow).await });
    tokio::time::timeout(PATIENCE, is_read).await.expect("its body is read").unwrap();
    let shed = door.get(&key, LIST).await;
    shed.assert(503, "OVERLOADED");
    assert_eq!(shed.retry_after(), 1);
    waiting.join_next().await.unwrap().unwrap().assert(408, "REQUEST_TIMEOUT");
    assert_eq!(door.get(&key, LIST).await.status, 200, "its place is free again");
}

#[tokio::test]
async fn a_store_that_does_not_answer_in_time_is_a_timeout() {
    let limits = Limits { request_timeout: Duration::from_secs(1), ..Limits::default() };
    let mut door = Door::on(Engine::Postgres, limits).await;
    let key = door.key(Scope::Read).await;
    let Pools::Postgres(pool) = door.store.db.pools() else { panic!("PostgreSQL") };
    let mut held = pool.begin().await.unwrap();
    sqlx::query("LOCK TABLE api_keys IN ACCESS EXCLUSIVE MODE").execute(&mut *held).await.unwrap();
    door.get(&key, LIST).await.assert(503, "TIMEOUT");
    held.rollback().await.unwrap();
    assert_eq!(door.patient().get(&key, LIST).await.status, 200);
}

#[tokio::test]
async fn a_handler_that_does_not_answer_in_time_is_cut_off() {
    let limits = Limits { request_timeout: Duration::from_secs(1), ..Limits::default() };
    let mut door = Door::new(limits).await;
    let key = door.key(Scope::Write).await;
    let post = || post(&key, "/v2/identities", r#"{"request_id":"r","type":"BUSINESS"}"#);
    // Its key can be read meanwhile; what it asks for cannot be written.
    let writer = door.store.db.begin().await.unwrap();
    door.send(post()).await.assert(503, "TIMEOUT");
    drop(writer);
    assert_eq!(door.patient().send(post()).await.status, 201);
}

/// A request for a webhook, an identity or an account.
fn post(key: &ApiKey, path: &str, body: &'static str) -> Request<Body> {
    let mut post = request(&Method::POST, path, key);
    post.headers_mut().insert("content-type", "application/json".parse().unwrap());
    *post.body_mut() = Body::from(body);
    post
}

#[tokio::test]
async fn what_others_keep_from_being_done_is_to_be_sent_again() {
    const ACCOUNT: &str = r#"{"request_id":"a","identity_id":"default","type":"OMNIBUS","addresses":
        [{"chains":["ETHEREUM_TESTNET"],"address":"0xa1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1"}]}"#;
    for engine in ENGINES {
        // On SQLite they may wait one after another, each for as long as the product waits.
        let mut door = Door::on(engine, patient()).await;
        let db = Db::open(&door.store.url.parse().unwrap()).await.unwrap();
        door.api = api(&db, patient(), &door.clock);
        let (key, signed) = (door.key(Scope::Admin).await, door.key(Scope::Webhooks).await);
        let public = public_key(Algorithm::EdDsa);
        registry::pair_key(&door.store.db, signed.id(), &public, Duration::ZERO, &tester(Timestamp(1))).await.unwrap();
        let signer = Signer::of(Algorithm::EdDsa);
        let all = async || {
            let webhook = post(&key, "/v2/webhooks", r#"{"url":"https://93.184.216.34/"}"#);
            let identity = post(&key, "/v2/identities", r#"{"request_id":"i","type":"BUSINESS"}"#);
            let account = post(&key, "/v2/accounts", ACCOUNT);
            let removal = door.signed(&signer, &signed, (&Method::DELETE, "/v2/webhooks/x"), "0123456789abcdef");
            let (webhook, identity, account, removal) =
                tokio::join!(door.send(webhook), door.send(identity), door.send(account), door.send(removal));
            [webhook, identity, account, removal]
        };
        // Another process, which takes its time.
        let other = Db::open(&door.store.url.parse().unwrap()).await.unwrap();
        let mut tx = other.begin().await.unwrap();
        identities::lock_organization(&mut tx).await.unwrap();
        if let Connected::Postgres(connection) = tx.engine() {
            // However long it takes.
            let text = "SET LOCAL idle_in_transaction_session_timeout = 0; LOCK TABLE requests, request_nonces IN EXCLUSIVE MODE";
            sqlx::raw_sql(text).execute(connection).await.unwrap();
        }
        for refused in all().await {
            refused.assert(503, "OVERLOADED");
            assert_eq!(refused.retry_after(), 1, "{engine:?}");
        }
        tx.commit().await.unwrap();
        let done = all().await.map(|answer| answer.status.as_u16());
        assert_eq!(done, [201, 201, 201, 404], "{engine:?}: nothing was done, nor was a nonce taken");
        other.close().await;
        db.close().await;
    }
}

#[tokio::test]
async fn every_code_is_in_the_table_of_the_document_with_the_status_it_has() {
    let document: Value = serde_json::from_str(&openapi_json()).unwrap();
    let code = &document["components"]["schemas"]["Problem"]["properties"]["code"];
    let listed: Vec<&str> = code["enum"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    let table: BTreeMap<&str, u16> = (code["description"].as_str().unwrap().lines())
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` | "))
        .map(|(name, rest)| (name, rest[..3].parse().unwrap()))
        .collect();
    let names: BTreeSet<&str> = listed.iter().copied().collect();
    assert_eq!(names, table.keys().copied().collect(), "each code has its row, and no other");
    // The examples are what was answered (`api_examples`).
    let mut answered = BTreeMap::new();
    problems(&document, &mut answered);
    assert_eq!(answered, table.into_iter().map(|(name, status)| (name.to_owned(), status)).collect());
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            for status in ["401", "403", "405", "408", "413", "429", "431", "500", "503"] {
                let body = &operation["responses"][status]["content"]["application/problem+json"]["schema"]["$ref"];
                assert_eq!(body, "#/components/schemas/Problem", "{method} {path} {status}");
            }
            let reported = &operation["responses"]["503"];
            for (code, meaning) in [("OVERLOADED", "Too much at once"), ("TIMEOUT", "It took too long")] {
                let example = &reported["content"]["application/problem+json"]["examples"][code];
                assert!(example.is_object(), "{method} {path}: 503 {code}");
                assert!(
                    reported["description"].as_str().unwrap().contains(meaning),
                    "{method} {path}: {}",
                    reported["description"]
                );
            }
        }
    }
}

/// The codes of all problems in the document, each with its status.
fn problems(value: &Value, found: &mut BTreeMap<String, u16>) {
    if let (Some(code), Some(status)) = (value["code"].as_str(), value["status"].as_u64()) {
        let status = u16::try_from(status).unwrap();
        assert_eq!(*found.entry(code.to_owned()).or_insert(status), status, "{code}");
    }
    let members = value.as_object().into_iter().flat_map(|object| object.values());
    members.chain(value.as_array().into_iter().flatten()).for_each(|member| problems(member, found));
}

#[tokio::test]
async fn each_answer_has_an_id_of_its_own() {
    let mut door = Door::new(patient()).await;
    let key = door.key(Scope::Read).await;
    let mut ids = BTreeSet::new();
    for path in [LIST, "/nowhere", "/v2/crypto/deposits?limit=0"] {
        for _ in 0..10 {
            let answer = door.get(&key, path).await;
            let id = answer.headers["x-request-id"].to_str().unwrap().to_owned();
            assert!(id.starts_with("req_"), "{id}");
            assert!(ids.insert(id));
        }
    }
}
