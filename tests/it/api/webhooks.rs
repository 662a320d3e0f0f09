//! `/v2/webhooks` through the router: what is answered, what is refused, and what the receivers then get.
//!
//! No name is looked up.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Method, Request, header};
use landfall::api::{Settings, openapi_json};
use landfall::deposit::DepositStatus;
use landfall::key::{ApiKey, Environment, Scope};
use landfall::overrides::AuditEntry;
use landfall::registry;
use landfall::store::deliveries::{Claim, Claimed, Queue};
use landfall::store::feed;
use landfall::store::sinks::{self, Kind, NATS};
use landfall::store::{Connection, Db, Engine as Connected, audit, endpoints, webhooks};
use landfall::time::{Clock, Timestamp};
use landfall::webhook::{is_signed, sign};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::harness::postgres::{ENGINES, Engine, TestStore};
use crate::harness::world::tester;

/// 2025-06-15T15:06:40Z.
const NOON: Timestamp = Timestamp(1_750_000_000_000_000);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

struct Api {
    store: TestStore,
    router: Router,
    key: ApiKey,
    /// Microseconds.
    now: Arc<AtomicI64>,
}

impl Api {
    async fn on(engine: Engine) -> Self {
        let store = TestStore::fresh(engine).await;
        let what = ("test", &Scope::Webhooks.into());
        let random = [1; ApiKey::RANDOM_BYTES];
        let key =
            registry::create_key(&store.db, Environment::Test, what, &random, &tester(Timestamp(0))).await.unwrap();
        let now = Arc::new(AtomicI64::new(NOON.0));
        let reported = Arc::clone(&now);
        let clock = Clock::new(move || Timestamp(reported.load(Ordering::Relaxed)));
        let api = landfall::api::Api::new(store.db.clone(), Settings::of(Environment::Test), clock);
        Api { store, router: api.router(), key, now }
    }

    /// A request with the key; what is sent is sent as JSON.
    async fn send(&self, method: Method, path: &str, body: Option<&str>) -> (u16, Value) {
        let mut request = Request::builder().method(method).uri(path);
        request = request.header(header::AUTHORIZATION, format!("Bearer {}", self.key.reveal()));
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json; charset=utf-8");
        }
        self.answer(request.body(Body::from(body.unwrap_or_default().to_owned())).unwrap()).await
    }

    async fn answer(&self, request: Request<Body>) -> (u16, Value) {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let bytes = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }

    async fn create(&self, body: &Value) -> Value {
        let (status, webhook) = self.send(Method::POST, "/v2/webhooks", Some(&body.to_string())).await;
        assert_eq!(status, 201, "{webhook}");
        webhook
    }

    /// The keys that sign for the only delivery that is due at `now`.
    async fn signing(&self, now: Timestamp) -> String {
        let claimed = due(&self.store.db, now).await;
        let [claimed] = &claimed[..] else { panic!("one is due: {claimed:?}") };
        claimed.signing_key.clone()
    }
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_else(|| panic!("{name} in {value}"))
}

#[tokio::test]
async fn a_webhook_is_registered_shown_and_deleted_and_its_key_is_reported_once() {
    for engine in ENGINES {
        let api = Api::on(engine).await;
        assert_eq!(api.send(Method::GET, "/v2/webhooks", None).await, (200, json!({ "webhooks": [] })));
        let created = api.create(&json!({ "url": "https://Example.com/hooks", "label": "ledger" })).await;
        let id = text(&created, "id");
        let expected = json!({
            "id": id,
            "url": "https://example.com/hooks",
            "label": "ledger",
            "status": "ACTIVE",
            "created_at": "2025-06-15T15:06:40Z",
            "signing_key_id": text(&created, "signing_key_id"),
            "signing_key_created_at": "2025-06-15T15:06:40Z",
        });
        assert!(text(&created, "signing_key").starts_with("whsec_"));
        let mut shown = created.clone();
        shown.as_object_mut().unwrap().remove("signing_key");
        assert_eq!(shown, expected, "the interface's fields and no others");
        let path = format!("/v2/webhooks/{id}");
        assert_eq!(api.send(Method::GET, &path, None).await, (200, expected.clone()));
        assert_eq!(api.send(Method::GET, "/v2/webhooks", None).await, (200, json!({ "webhooks": [expected] })));

        assert_eq!(api.send(Method::DELETE, &path, None).await, (200, json!({})));
        for (method, path) in [
            (Method::GET, path.clone()),
            (Method::DELETE, path.clone()),
            (Method::POST, format!("{path}/rotate-key")),
            (Method::POST, format!("{path}/test")),
            (Method::GET, "/v2/webhooks/%00".to_owned()),
            (Method::GET, "/v2/webhooks/%ff".to_owned()),
        ] {
            let (status, problem) = api.send(method.clone(), &path, None).await;
            assert_eq!((status, text(&problem, "code")), (404, "NOT_FOUND"), "{method} {path}");
        }
        assert_eq!(api.send(Method::GET, "/v2/webhooks", None).await, (200, json!({ "webhooks": [] })));
    }
}

#[tokio::test]
async fn what_a_client_does_about_webhooks_stands_in_the_audit_under_its_key() {
    for engine in ENGINES {
        let api = Api::on(engine).await;
        let created = api.create(&json!({ "url": "https://example.com/a-secret-path", "label": "ledger" })).await;
        let (id, path) = (text(&created, "id"), format!("/v2/webhooks/{}", text(&created, "id")));
        api.now.fetch_add(1, Ordering::Relaxed);
        let (_, rotated) = api.send(Method::POST, &format!("{path}/rotate-key"), None).await;
        api.now.fetch_add(1, Ordering::Relaxed);
        for status in [200, 404] {
            assert_eq!(api.send(Method::DELETE, &path, None).await.0, status);
        }
        let found = audit::newest(&mut api.store.db.read().await.unwrap(), audit::About::All, 3).await.unwrap();
        let entry = |after: i64, action: &str, what: String| AuditEntry {
            at: Timestamp(NOON.0 + after),
            actor: format!("API key {}", api.key.id()),
            action: action.to_owned(),
            chain: None,
            what,
            reason: String::new(),
        };
        let expected = [
            entry(2, "remove_webhook", id.to_owned()),
            entry(1, "rotate_webhook_key", format!("{id} to {}", text(&rotated, "signing_key_id"))),
            entry(0, "add_webhook", id.to_owned()),
        ];
        assert_eq!(found, expected, "{engine:?}");
    }
}

#[tokio::test]
async fn what_is_undelivered_to_a_deleted_webhook_is_held() {
    for engine in ENGINES {
        let api = Api::on(engine).await;
        let created = api.create(&json!({ "url": "https://example.com/" })).await;
        let path = format!("/v2/webhooks/{}", text(&created, "id"));
        assert_eq!(api.send(Method::POST, &format!("{path}/test"), None).await.0, 202);
        api.send(Method::DELETE, &path, None).await;
        assert_eq!(due(&api.store.db, NOON).await, [], "it is not sent");
        let pending = "SELECT COUNT(*) FROM deliveries WHERE state = 'PENDING'";
        assert_eq!(count(&api.store.db, pending).await, 1, "nor dropped");
    }
}

#[tokio::test]
async fn after_a_rotation_both_keys_sign_until_the_time_that_is_reported() {
    for engine in ENGINES {
        let api = Api::on(engine).await;
        let created = api.create(&json!({ "url": "https://example.com/" })).await;
        let path = format!("/v2/webhooks/{}", text(&created, "id"));
        assert_eq!(api.send(Method::POST, &format!("{path}/test"), None).await.0, 202);
        let old = text(&created, "signing_key");
        assert_eq!(api.signing(NOON).await, old);

        let (status, rotated) = api.send(Method::POST, &format!("{path}/rotate-key"), None).await;
        assert_eq!((status, text(&rotated, "previous_key_expires_at")), (200, "2025-06-16T15:06:40Z"));
        assert_ne!(rotated["signing_key_id"], created["signing_key_id"]);
        let new = text(&rotated, "signing_key");
        let header = sign(&api.signing(NOON).await, "id", 7, "body").unwrap();
        assert!(is_signed(new, "id", 7, "body", &header) && is_signed(old, "id", 7, "body", &header), "{header}");
        assert_eq!(api.signing(Timestamp(NOON.plus(DAY).0 - 1)).await, format!("{new} {old}"));
        assert_eq!(api.signing(NOON.plus(DAY)).await, new, "then the new one alone");
        let (_, shown) = api.send(Method::GET, &path, None).await;
        assert_eq!(shown["previous_key_expires_at"], "2025-06-16T15:06:40Z");
        assert!(shown.get("signing_key").is_none());
        api.now.store(NOON.plus(DAY).0, Ordering::Relaxed);
        let (_, shown) = api.send(Method::GET, &path, None).await;
        assert_eq!(shown.get("previous_key_expires_at"), None, "it is over");
        api.now.store(NOON.0, Ordering::Relaxed);

        let compromised = Some(r#"{"previous_key_valid_secs":0}"#);
        let (_, last) = api.send(Method::POST, &format!("{path}/rotate-key"), compromised).await;
        assert!(last.get("previous_key_expires_at").is_none(), "{last}");
        assert_eq!(api.signing(NOON).await, text(&last, "signing_key"), "neither of the two before signs");
        let kept = "SELECT COUNT(*) FROM webhooks WHERE previous_signing_key <> ''";
        assert_eq!(count(&api.store.db, kept).await, 0, "a key that others know is not kept");
    }
}

#[tokio::test]
async fn a_rotation_that_is_asked_for_again_ends_no_key_that_still_signs() {
    for engine in ENGINES {
        let api = Api::on(engine).await;
        let created = api.create(&json!({ "url": "https://example.com/", "ed25519": true })).await;
        let path = format!("/v2/webhooks/{}", text(&created, "id"));
        assert_eq!(api.send(Method::POST, &format!("{path}/test"), None).await.0, 202);
        let signed = async |at: Timestamp| sign(&api.signing(at).await, "id", 7, "body").unwrap();
        let ask = async |valid_secs: u64, at: Timestamp| {
            api.now.store(at.0, Ordering::Relaxed);
            let body = json!({ "previous_key_valid_secs": valid_secs }).to_string();
            api.send(Method::POST, &format!("{path}/rotate-key"), Some(&body)).await
        };
        let rotate = async |valid_secs: u64, at: Timestamp| {
            let (status, rotated) = ask(valid_secs, at).await;
            assert_eq!(status, 200, "{rotated}");
            rotated
        };
        let (day, minute) = (86_400, Duration::from_secs(60));
        // The receiver knows the first key. The answer that reported the second was lost.
        let mut keys = vec![created];
        keys.push(rotate(day, NOON).await);
        // For less time: what was promised to the first stays.
        keys.push(rotate(3_600, NOON.plus(minute)).await);
        assert_eq!(text(&keys[2], "previous_key_expires_at"), text(&keys[1], "previous_key_expires_at"));
        // And no fourth beside three that still sign: none of them stops before the time that it was reported.
        keys.push(rotate(day, NOON.plus(minute * 2)).await);
        let until = NOON.plus(minute * 2 + DAY);
        assert_eq!(text(&keys[3], "previous_key_expires_at"), until.to_string());
        for (valid_secs, minutes) in [(1, 3), (7 * day, 24 * 60 + 1)] {
            let (status, refused) = ask(valid_secs, NOON.plus(minute * minutes)).await;
            assert_eq!((status, text(&refused, "code")), (409, "PREVIOUS_KEYS_VALID"), "{engine:?}: {refused}");
            assert!(text(&refused, "detail").contains(&until.to_string()), "{refused}");
        }
        let header = signed(Timestamp(until.0 - 1)).await;
        for key in &keys {
            assert!(is_signed(text(key, "signing_key"), "id", 7, "body", &header), "{engine:?}: {header}");
            assert!(is_signed(text(key, "verification_key"), "id", 7, "body", &header), "{engine:?}: {header}");
        }
        assert_eq!(signed(until).await.split(' ').count(), 2, "then the newest alone");
        // What no longer signed is not taken along.
        rotate(day, NOON.plus(DAY * 3)).await;
        assert_eq!(signed(NOON.plus(DAY * 3)).await.split(' ').count(), 4, "the newest and the one before");
        // Who must end a key that others know is never refused.
        for minutes in 1..=2 {
            rotate(day, NOON.plus(DAY * 3 + minute * minutes)).await;
        }
        let (at_once, behind) = (NOON.plus(DAY * 3 + minute * 3), NOON.plus(DAY * 3));
        assert_eq!(ask(day, at_once).await.0, 409);
        let last = rotate(0, at_once).await;
        assert_eq!(last["previous_key_expires_at"], Value::Null);
        for (at, who) in [(at_once, "the newest alone, at once"), (behind, "also for who has a clock that is behind")] {
            assert_eq!(signed(at).await.split(' ').count(), 2, "{engine:?}: {who}");
        }
        rotate(day, at_once).await;
    }
}

#[tokio::test]
async fn ed25519_is_signed_beside_when_it_is_asked_for_and_rotates_too() {
    let api = Api::on(Engine::Sqlite).await;
    let created = api.create(&json!({ "url": "https://example.com/", "ed25519": true })).await;
    let path = format!("/v2/webhooks/{}", text(&created, "id"));
    api.send(Method::POST, &format!("{path}/test"), None).await;
    let (_, rotated) = api.send(Method::POST, &format!("{path}/rotate-key"), Some("{}")).await;
    assert_ne!(created["verification_key"], rotated["verification_key"]);
    let header = sign(&api.signing(NOON).await, "id", 7, "body").unwrap();
    let kinds: Vec<&str> = header.split(' ').map(|signature| signature.split(',').next().unwrap()).collect();
    assert_eq!(kinds, ["v1", "v1a", "v1", "v1a"]);
    for key in [&created, &rotated]
        .into_iter()
        .flat_map(|webhook| ["signing_key", "verification_key"].map(|name| text(webhook, name)))
    {
        assert!(is_signed(key, "id", 7, "body", &header), "{key}");
    }
    let (_, shown) = api.send(Method::GET, &path, None).await;
    assert_eq!(shown["verification_key"], rotated["verification_key"], "a public key may be asked for again");
    assert!(!shown.to_string().contains("whsk_") && !rotated.to_string().contains("whsk_"));
}

#[tokio::test]
async fn a_registration_says_nothing_of_what_a_name_stands_for() {
    let api = Api::on(Engine::Sqlite).await;
    // The first stands for 127.0.0.1 wherever names are looked up at all, the second for nothing: neither is asked for.
    for name in ["localtest.me", "nobody.example.com", "example.com"] {
        let created = api.create(&json!({ "url": format!("https://{name}/") })).await;
        assert_eq!(text(&created, "status"), "ACTIVE", "{name}: each connection is vetted");
    }
}

#[tokio::test]
async fn what_a_registration_must_not_say_is_refused_by_its_name() {
    let api = Api::on(Engine::Sqlite).await;
    let long = format!(r#"{{"url":"https://example.com/","label":"{}"}}"#, "x".repeat(257));
    let unknown = || "is no field of this object: they are url, label, ed25519".to_owned();
    let must_be = |wanted: &str| format!("must be {wanted}");
    let inside = |host: &str| format!("is not taken: {host} is not reachable from the internet");
    let cases = [
        ("", "body", must_be("an object, and ends before one does")),
        ("{}", "url", "is required".to_owned()),
        ("[]", "body", must_be("an object")),
        (r#"["https://a.com/","x",false]"#, "body", must_be("an object")),
        ("null", "body", must_be("an object")),
        ("{", "body", must_be("an object, and ends before one does")),
        ("{'url':1}", "body", "cannot be read as JSON from line 1, column 2 on".to_owned()),
        (r#"{"url":"https://a.com/"} {}"#, "body", must_be("one object, and goes on from line 1, column 26 on")),
        (r#"{"url":7}"#, "url", must_be("a string")),
        (r#"{"url":""}"#, "url", "is not taken: relative URL without a base".to_owned()),
        (r#"{"url":"https://a.com/","url":"https://b.com/"}"#, "url", "must not be repeated".to_owned()),
        (r#"{"url":"https://a.com/","allow_private":["10.0.0.0/8"]}"#, "allow_private", unknown()),
        (r#"{"url":"https://a.com/","allowed_networks":"10.0.0.0/8"}"#, "allowed_networks", unknown()),
        (r#"{"url":"https://a.com/","Label":"x"}"#, "Label", unknown()),
        (r#"{"url":"https://a.com/","label":null}"#, "label", must_be("a string")),
        (r#"{"url":"https://a.com/","ed25519":"yes"}"#, "ed25519", must_be("true or false")),
        (&long, "label", "is refused: a label has at most 256 characters, none of them a control character".to_owned()),
        (r#"{"url":"http://a.com/"}"#, "url", "is not taken: scheme \"http\"; expected https".to_owned()),
        (r#"{"url":"https://127.1/"}"#, "url", inside("127.0.0.1")),
        (r#"{"url":"https://a.com:22/"}"#, "url", "is not taken: port 22; expected 443 or one from 1024 on".to_owned()),
    ];
    for (body, parameter, detail) in cases {
        let (status, problem) = api.send(Method::POST, "/v2/webhooks", Some(body)).await;
        assert_eq!((status, text(&problem, "code")), (400, "INVALID_ARGUMENT"), "{body}");
        let [error] = problem["errors"].as_array().unwrap().as_slice() else { panic!("{body}: {problem}") };
        assert_eq!(error["parameter"], parameter, "{body}: {problem}");
        assert_eq!(text(error, "detail"), detail, "{body}: {problem}");
        assert!(!problem.to_string().contains("10.0.0.1"), "{problem}");
    }
    let request = Request::post("/v2/webhooks").header(header::AUTHORIZATION, format!("Bearer {}", api.key.reveal()));
    let (status, problem) = api.answer(request.body(Body::from(r#"{"url":"https://a.com/"}"#)).unwrap()).await;
    assert_eq!((status, text(&problem, "detail")), (400, "body must be sent as Content-Type: application/json"));
    let created = api.create(&json!({ "url": "https://a.com/" })).await;
    let path = format!("/v2/webhooks/{}/rotate-key", text(&created, "id"));
    for (seconds, must_be) in [
        ("-1", "an integer of at least 0, without a fraction"),
        ("1.0", "an integer of at least 0, without a fraction"),
        ("604801", "an integer from 0 to 604800"),
    ] {
        let body = format!(r#"{{"previous_key_valid_secs":{seconds}}}"#);
        let (status, problem) = api.send(Method::POST, &path, Some(&body)).await;
        let detail = format!("previous_key_valid_secs must be {must_be}");
        assert_eq!((status, text(&problem, "detail")), (400, detail.as_str()));
    }
    let test = format!("/v2/webhooks/{}/test", text(&created, "id"));
    let (status, problem) = api.send(Method::POST, &test, Some(r#"{"url":"x"}"#)).await;
    assert_eq!((status, text(&problem, "detail")), (400, "url is no field of this object: it has none"));
    assert_eq!(api.send(Method::GET, "/v2/webhooks?limit=1", None).await.0, 400);
    assert_eq!(api.send(Method::PUT, "/v2/webhooks", None).await.0, 405);
    assert_eq!(count(&api.store.db, "SELECT COUNT(*) FROM webhooks").await, 1, "what is refused leaves nothing behind");
}

#[tokio::test]
async fn there_are_as_many_webhooks_as_the_document_says_and_no_more() {
    for engine in ENGINES {
        let api = Api::on(engine).await;
        api.create(&json!({ "url": "https://example.com/" })).await;
        let copies = "INSERT INTO webhooks (id, organization_id, url, label, status, signing_key_id, signing_key, \
                      signing_key_created_us, created_us) WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers \
                      WHERE n < 998) SELECT 'wh_' || n, organization_id, url, label, status, signing_key_id, \
                      signing_key, signing_key_created_us, created_us FROM webhooks, numbers";
        let mut tx = api.store.db.begin().await.unwrap();
        let written = match tx.engine() {
            Connected::Postgres(connection) => sqlx::query(copies).execute(connection).await.unwrap().rows_affected(),
            Connected::Sqlite(connection) => sqlx::query(copies).execute(connection).await.unwrap().rows_affected(),
        };
        tx.commit().await.unwrap();
        assert_eq!(written, 998);
        let last = api.create(&json!({ "url": "https://example.com/" })).await;
        let body = json!({ "url": "https://example.com/" }).to_string();
        let (status, problem) = api.send(Method::POST, "/v2/webhooks", Some(&body)).await;
        let detail = "url is not taken: there are 1000 webhooks already, the most that are allowed";
        assert_eq!((status, text(&problem, "detail")), (400, detail), "{engine:?}");
        api.send(Method::DELETE, &format!("/v2/webhooks/{}", text(&last, "id")), None).await;
        api.create(&json!({ "url": "https://example.com/" })).await;
    }
    let document: Value = serde_json::from_str(&openapi_json()).unwrap();
    let said = &document["paths"]["/v2/webhooks"]["post"]["description"];
    assert!(said.as_str().unwrap().contains("At most 1,000"), "{said}");
}

#[tokio::test]
async fn statuses_that_an_organization_does_not_want_are_not_sent_and_keep_their_ids() {
    for engine in ENGINES {
        let mut world = crate::harness::world::World::on(engine, 11).await;
        let alice = crate::harness::world::address(0xa1);
        world.watch("alice", alice).await;
        world.chain.mine_empty(1);
        let mut tx = world.db().begin().await.unwrap();
        let row = webhooks::WebhookRow {
            id: "hook".into(),
            url: "https://example.com/".into(),
            label: String::new(),
            allowed_networks: landfall::webhook::AllowedNetworks::default(),
            signing_key_id: "key".into(),
            signing_key: landfall::webhook::signing_key([1; 32]),
        };
        webhooks::insert(&mut tx, &row, world.now()).await.unwrap();
        webhooks::mute(&mut tx, &[DepositStatus::Pending]).await.unwrap();
        tx.commit().await.unwrap();
        let leg = landfall_sim::SimLeg::native(crate::harness::world::address(1), alice, 5);
        world.chain.mine(vec![landfall_sim::SimTx::new(crate::harness::world::address(1), 0, vec![leg])]);
        world.catch_up().await;
        assert_eq!(count(world.db(), "SELECT COUNT(*) FROM deliveries").await, 0, "PENDING is not sent");
        world.chain.mine_empty(crate::harness::world::FINALITY_DEPTH);
        world.catch_up().await;
        let events = crate::harness::books::events(world.db()).await;
        let [pending, confirmed] = &events[..] else { panic!("two events") };
        let mut tx = world.db().begin().await.unwrap();
        assert_eq!(feed::number(&mut tx, 9).await.unwrap(), 2);
        tx.commit().await.unwrap();
        let reported: Value =
            [pending, confirmed].map(|event| serde_json::from_str::<Value>(&event.payload).unwrap()).into();
        assert_eq!(fed(&world).await, reported, "and in the feed all the same");
        let envelope: Value = serde_json::from_str(&confirmed.payload).unwrap();
        assert_eq!(envelope["data"]["dedup_key"], pending.id.as_str(), "the id of PENDING/0, sent or not");
        let claimed = due(world.db(), world.now()).await;
        assert_eq!(
            claimed.iter().map(|claimed| &claimed.event_id).collect::<Vec<_>>(),
            [&confirmed.id],
            "nor waited for"
        );
        world.close().await;
    }
}

/// The events that `GET /v2/events` answers, without their numbers.
async fn fed(world: &crate::harness::world::World) -> Value {
    let (what, random) = (("test", &Scope::Read.into()), [1; ApiKey::RANDOM_BYTES]);
    let key = registry::create_key(world.db(), Environment::Test, what, &random, &tester(world.now())).await.unwrap();
    let api = landfall::api::Api::new(world.db().clone(), Settings::of(Environment::Test), world.clock());
    let request = Request::builder().uri("/v2/events?after=0");
    let request = request.header(header::AUTHORIZATION, format!("Bearer {}", key.reveal()));
    let response = api.router().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    let list: Value = serde_json::from_slice(&to_bytes(response.into_body(), usize::MAX).await.unwrap()).unwrap();
    list["events"].as_array().unwrap().iter().map(|entry| entry["event"].clone()).collect()
}

/// What is claimed at `now`, with a lease that is over: it may be claimed again at once.
async fn due(db: &Db, now: Timestamp) -> Vec<Claimed> {
    let mut tx = db.begin().await.unwrap();
    static OWNER: AtomicI64 = AtomicI64::new(1);
    let claim = Claim { owner: OWNER.fetch_add(1, Ordering::Relaxed), now, lease_until: Timestamp(0) };
    for endpoint in endpoints::busy(&mut tx, now).await.unwrap() {
        for queue in [Queue::Lapsed, Queue::First] {
            claim.take(&mut tx, &endpoint.id, queue, 9).await.unwrap();
        }
    }
    let claimed = claim.taken(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    claimed
}

/// What a count of the test's own reports.
async fn count(db: &Db, text: &'static str) -> i64 {
    let (count,): (i64,) = match db.read().await.unwrap().engine() {
        Connected::Postgres(connection) => sqlx::query_as(text).fetch_one(connection).await.unwrap(),
        Connected::Sqlite(connection) => sqlx::query_as(text).fetch_one(connection).await.unwrap(),
    };
    count
}

#[tokio::test]
async fn a_sink_of_the_operators_is_no_webhook_to_clients() {
    for engine in ENGINES {
        let api = Api::on(engine).await;
        let mut tx = api.store.db.begin().await.unwrap();
        sinks::ensure(&mut tx, NATS, Kind::Nats, "nats:LANDFALL", NOON).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(api.send(Method::GET, "/v2/webhooks", None).await, (200, json!({ "webhooks": [] })), "{engine:?}");
        let calls = [
            (Method::GET, "/v2/webhooks/nats"),
            (Method::DELETE, "/v2/webhooks/nats"),
            (Method::POST, "/v2/webhooks/nats/rotate-key"),
            (Method::POST, "/v2/webhooks/nats/test"),
        ];
        for (method, path) in calls {
            let (status, problem) = api.send(method.clone(), path, None).await;
            assert_eq!((status, &problem["code"]), (404, &json!("NOT_FOUND")), "{engine:?} {method} {path}");
        }
        let sinks = sinks::all(&mut api.store.db.read().await.unwrap()).await.unwrap();
        assert_eq!((sinks.len(), sinks[0].status.as_str()), (1, "ACTIVE"), "{engine:?}");
    }
}
