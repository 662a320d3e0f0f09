//! The official verifiers of Standard Webhooks, from npm and PyPI, on the bytes that a receiver gets from us.
//!
//! `scripts/test` installs them and names the Python in `LANDFALL_PYTHON`. What is sent is sent by the product; the
//! verifiers are reported nothing but the key, the headers and the body.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::http::HeaderMap;
use axum::routing::post;
use landfall::delivery::Delivery;
use landfall::overrides::Author;
use landfall::registry::{self, NewWebhook};
use landfall::resolver::Resolver;
use landfall::store::Db;
use landfall::time::Clock;
use landfall::webhook::{AllowedNetworks, signing_key, symmetric_key, verification_key};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::stage::variable;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/live/verifiers");
/// A minute beyond the five that a signature holds: clocks are set back by less.
const TOO_OLD_SECS: i64 = 360;

/// What a receiver got.
#[derive(Clone, Debug)]
struct Request {
    headers: BTreeMap<String, String>,
    body: String,
}

impl Request {
    /// What a verifier is asked.
    fn with(&self, key: &str) -> Value {
        json!({ "key": key, "headers": self.headers, "body": self.body })
    }

    fn changed(&self, header: &str, value: &str) -> Self {
        let mut changed = self.clone();
        changed.headers.insert(header.to_owned(), value.to_owned());
        changed
    }
}

/// What `program script` says of each request.
fn verdicts(program: &str, script: &str, requests: &[Value]) -> Vec<bool> {
    let script = format!("{FOLDER}/{script}");
    let mut command = Command::new(program);
    let mut child = command.arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(serde_json::to_string(requests).unwrap().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{program} failed");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Two requests of a webhook that signs with Ed25519 too, before and after a rotation; the keys, old and new.
async fn delivered() -> ([Request; 2], [String; 2]) {
    let log = Arc::new(Mutex::new(Vec::new()));
    let shared = Arc::clone(&log);
    let receive = move |headers: HeaderMap, body: String| {
        let shared = Arc::clone(&shared);
        async move {
            let headers = headers.iter().map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()));
            shared.lock().unwrap().push(Request { headers: headers.collect(), body });
        }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let mut server = JoinSet::new();
    server.spawn(async move { axum::serve(listener, Router::new().route("/", post(receive))).await.unwrap() });

    let folder = tempfile::tempdir().unwrap();
    let db =
        Db::open(&format!("sqlite:{}", folder.path().join("landfall.db").display()).parse().unwrap()).await.unwrap();
    db.migrate().await.unwrap();
    let (clock, inside) = (Clock::system(), "127.0.0.0/8".parse::<AllowedNetworks>().unwrap());
    let webhook = NewWebhook { url: &url, label: "b\u{fc}cher", allowed_networks: &inside, ed25519: true };
    let by = Author { actor: "test", reason: "", now: clock.now() };
    let added = registry::add_webhook(&db, Some(&Resolver::system()), &webhook, &[7; 84], &by).await.unwrap();
    let delivery = Delivery::new(db.clone(), clock.clone(), || 200).unwrap();
    registry::test_webhook(&db, &added.id, &[1; 32], clock.now()).await.unwrap();
    assert_eq!(delivery.tick().await.unwrap().delivered, 1);
    let hour = Duration::from_secs(3_600);
    let rotated = registry::rotate_webhook_key(&db, &added.id, hour, &[8; 72], &by).await.unwrap();
    registry::test_webhook(&db, &added.id, &[2; 32], clock.now()).await.unwrap();
    assert_eq!(delivery.tick().await.unwrap().delivered, 1);
    let requests = log.lock().unwrap().clone().try_into().unwrap();
    (requests, [added.signing_key, rotated.signing_key])
}

#[tokio::test]
async fn the_official_verifiers_take_what_we_sign_and_nothing_else() {
    let ([before, after], keys) = delivered().await;
    let [old, new] = keys.each_ref().map(|keys| symmetric_key(keys));
    let stranger = signing_key([9; 32]);
    let late = before.headers["webhook-timestamp"].parse::<i64>().unwrap() - TOO_OLD_SECS;
    let forged = Request { body: before.body.replace("webhook_test", "deposit_v2"), ..before.clone() };
    let cases = [
        (before.with(old), true),
        (before.with(new), false),
        (after.with(old), true),
        (after.with(new), true),
        (before.with(&stranger), false),
        (forged.with(old), false),
        (before.changed("webhook-id", "another").with(old), false),
        (before.changed("webhook-timestamp", &late.to_string()).with(old), false),
        (before.changed("webhook-signature", &after.headers["webhook-signature"]).with(old), false),
    ];
    let (requests, expected): (Vec<_>, Vec<_>) = cases.into_iter().unzip();
    assert_eq!(verdicts("node", "verify.mjs", &requests), expected, "npm's");
    assert_eq!(verdicts(&variable("LANDFALL_PYTHON"), "verify.py", &requests), expected, "PyPI's");

    let [old, new] = keys.each_ref().map(|keys| verification_key(keys).unwrap());
    let cases = [
        (before.with(&old), true),
        (before.with(&new), false),
        (after.with(&old), true),
        (after.with(&new), true),
        (forged.with(&old), false),
    ];
    let (public, expected): (Vec<_>, Vec<_>) = cases.into_iter().unzip();
    assert_eq!(verdicts("node", "verify.mjs", &public), expected, "Ed25519");
    println!("verifiers: npm {}, PyPI {}, Ed25519 {} requests judged", requests.len(), requests.len(), public.len());
}
