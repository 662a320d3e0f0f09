//! Where signed requests are compulsory, an API key alone creates no transfer, and may all else as before.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Method, Request};
use landfall::api::{Api, Limits, Settings};
use landfall::key::{Algorithm, ApiKey, Environment, Scope, Scopes};
use landfall::registry;
use landfall_chain::Signer as Holder;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::transfers::{Bench, PATH, REQUEST, pay};
use crate::follow::signers::{self, Signer, public_key};
use crate::harness::postgres::{ENGINES, Engine};
use crate::harness::signer::SignerDouble;
use crate::harness::world::tester;

const HOST: &str = "api.example.com";

/// What is served where they are compulsory or not.
struct Door {
    bench: Bench,
    router: Router,
    made: u8,
}

impl Door {
    async fn on(engine: Engine, require_signed_transfers: bool) -> Self {
        let bench = Bench::on(engine).await;
        let limits = Limits { ip_requests_per_sec: 0, key_requests_per_sec: 0, ..Limits::default() };
        let (networks, signer) =
            (vec![bench.world.network.clone()], Some(Arc::new(SignerDouble::default()) as Arc<dyn Holder>));
        let (host, settings) = (HOST.to_owned(), Settings::of(Environment::Test));
        let settings = Settings { host, limits, networks, signer, require_signed_transfers, ..settings };
        let router = Api::new(bench.world.db().clone(), settings, bench.world.clock()).router();
        Door { bench, router, made: 100 }
    }

    async fn key(&mut self, scopes: &[Scope]) -> ApiKey {
        self.made += 1;
        let (scopes, by) = (Scopes::of(scopes).unwrap(), tester(self.bench.world.now()));
        let random = [self.made; ApiKey::RANDOM_BYTES];
        let db = self.bench.world.db();
        registry::create_key(db, Environment::Test, ("test", &scopes), &random, &by).await.unwrap()
    }

    async fn paired(&mut self, scopes: &[Scope]) -> ApiKey {
        let key = self.key(scopes).await;
        let (public, by) = (public_key(Algorithm::EdDsa), tester(self.bench.world.now()));
        registry::pair_key(self.bench.world.db(), key.id(), &public, Duration::ZERO, &by).await.unwrap();
        key
    }

    /// Status and code; `nonce` of one that is signed.
    async fn send(
        &self,
        key: &ApiKey,
        (method, path): (Method, &str),
        body: &Value,
        nonce: Option<&str>,
    ) -> (u16, Value) {
        let body = if method == Method::GET { String::new() } else { body.to_string() };
        let mut request = Request::builder().method(&method).uri(path).header("content-type", "application/json");
        request = request.header("authorization", format!("Bearer {}", key.reveal()));
        if let Some(nonce) = nonce {
            let secs = u64::try_from(self.bench.world.now().0 / 1_000_000).unwrap();
            let claims = signers::claims(key.id(), HOST, (method.as_str(), path, body.as_bytes()), nonce, secs);
            request = request.header("x-request-signature", Signer::of(Algorithm::EdDsa).usual(&claims));
        }
        let response = self.router.clone().oneshot(request.body(Body::from(body)).unwrap()).await.unwrap();
        let status = response.status().as_u16();
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, serde_json::from_slice(&body).unwrap())
    }

    async fn create(&self, key: &ApiKey, body: &Value, nonce: Option<&str>) -> (u16, Value) {
        self.send(key, (Method::POST, PATH), body, nonce).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unsigned_where_signing_is_compulsory_is_a_401_that_records_nothing() {
    for engine in ENGINES {
        let mut door = Door::on(engine, true).await;
        let (bare, idle) = (door.key(&[Scope::Transfers, Scope::Read]).await, door.key(&[Scope::Read]).await);
        let paired = door.paired(&[Scope::Transfers, Scope::Read]).await;
        // Before the scope, and before anything of the body is read.
        for (key, body) in [(&bare, pay(REQUEST, "1")), (&idle, pay(REQUEST, "1")), (&bare, json!({ "amount": 1 }))] {
            let (status, problem) = door.create(key, &body, None).await;
            assert_eq!((status, &problem["code"]), (401, &json!("UNAUTHORIZED")), "{problem}");
            assert!(problem["detail"].as_str().unwrap().contains("by signed requests only"), "{problem}");
        }
        // A key that is paired signs whatever it asks, compulsory or not.
        assert_eq!(door.create(&paired, &pay(REQUEST, "1"), None).await.0, 401);
        assert_eq!(door.bench.count().await, 0);
        let (status, transfer) = door.create(&paired, &pay(REQUEST, "1"), Some("0123456789abcdef1")).await;
        assert_eq!((status, &transfer["status"]), (201, &json!("ACCEPTED")), "{transfer}");
        // The same request by a key alone learns nothing of it.
        assert_eq!(door.create(&bare, &pay(REQUEST, "1"), None).await.0, 401);
        assert_eq!(door.create(&paired, &pay(REQUEST, "1"), Some("0123456789abcdef2")).await.0, 200);
        assert_eq!(
            door.send(&bare, (Method::GET, PATH), &Value::Null, None).await.0,
            200,
            "reading needs no signature"
        );
        assert_eq!(door.bench.count().await, 1);
        door.bench.world.close().await;
    }
}

#[tokio::test]
async fn where_they_are_not_compulsory_a_key_alone_creates_transfers() {
    let mut door = Door::on(Engine::Sqlite, false).await;
    let bare = door.key(&[Scope::Transfers]).await;
    assert_eq!(door.create(&bare, &pay(REQUEST, "1"), None).await.0, 201);
    door.bench.world.close().await;
}
