//! The examples of `openapi.json` are what the router really answers. One story is played over a simulated chain. Each
//! operation is called, and refused in each way that it documents, and the answers must be those that are committed.
//!
//! Renewed by `LANDFALL_RENEW=1 cargo test --test it api::examples`, then `landfall openapi > openapi.json`. Ids and
//! times follow from the story; what is drawn at random, signing keys above all, is made up.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use futures_util::stream;
use landfall::api::{Api, Limits, Settings, openapi_json};
use landfall::event::{FEED_TYPES, TEST_EVENT, TransferEvent};
use landfall::feed::Numberer;
use landfall::gas::OverCredit;
use landfall::identity::Change;
use landfall::key::{ApiKey, Environment, Scope, Scopes};
use landfall::operator::Operator;
use landfall::policy::{Policy, PolicyScope};
use landfall::registry;
use landfall::store::{Db, Pools};
use landfall::time::Clock;
use landfall::transfer::{Announcement, FailureCode, State};
use landfall::watcher::{BalanceWatch, BalancesRead};
use landfall_chain::{Signer, U256};
use landfall_sim::{SimLeg, SimTx, WEALTH};
use serde_json::{Map, Value, json};
use tower::ServiceExt as _;

use crate::api::json_schema::{assert_valid, faults};
use crate::api::transfer_events::{announce, in_state, stored};
use crate::api::transfers::{end, manage};
use crate::harness::postgres::Engine;
use crate::harness::signer::SignerDouble;
use crate::harness::world::{CHAIN, FINALITY_DEPTH, TOKEN, World, address, network, report, tester};

const COMMITTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/api/examples.json");
const RENEW: &str =
    "renew them: LANDFALL_RENEW=1 cargo test --test it api_examples; then landfall openapi > openapi.json";
const ALICE: u8 = 0xa1;
const PAYER: u8 = 0x01;
/// Longer than any answer takes, however slow the machine is.
const PATIENCE: Duration = Duration::from_secs(60);
static DOCUMENT: LazyLock<Value> = LazyLock::new(|| serde_json::from_str(&openapi_json()).unwrap());
const REQUEST_ID: &str = "req_00064f2b91d3a6c0_1f";

/// The router and what it was asked.
struct Scene {
    document: Value,
    world: World,
    router: Router,
    made: BTreeMap<String, Asked>,
    /// What was drawn at random, and what stands for it.
    made_up: Vec<(String, String)>,
}

/// An operation: a request that was taken, and its answers.
#[derive(Default)]
struct Asked {
    parameters: Map<String, Value>,
    body: Option<Value>,
    answers: Map<String, Value>,
}

/// How an operation is asked.
#[derive(Default)]
struct Ask<'a> {
    parameters: &'a [(&'a str, Value)],
    body: Option<Value>,
}

fn with<'a>(parameters: &'a [(&'a str, Value)]) -> Ask<'a> {
    Ask { parameters, body: None }
}

fn sent<'a>(body: Value) -> Ask<'a> {
    Ask { parameters: &[], body: Some(body) }
}

impl Scene {
    async fn new() -> Self {
        let world = World::on(Engine::Sqlite, 1).await;
        for (n, scope) in [Scope::Admin, Scope::Read, Scope::Webhooks].into_iter().enumerate() {
            let (scopes, random) = (Scopes::of(&[scope]).unwrap(), random(n));
            registry::create_key(world.db(), Environment::Test, ("test", &scopes), &random, &tester(world.now()))
                .await
                .unwrap();
        }
        // Everybody owns a sum beyond all belief at first.
        let everything =
            SimLeg { asset: TOKEN, amount: U256::from(WEALTH), ..SimLeg::native(address(ALICE), address(PAYER), 0) };
        world.chain.mine(vec![SimTx::new(address(ALICE), 0, vec![everything])]);
        let document = serde_json::from_str(&openapi_json()).unwrap();
        let router = serve(world.db(), world.clock(), no_rates());
        Scene { document, world, router, made: BTreeMap::new(), made_up: Vec::new() }
    }

    /// Asks with a key that may do all, and notes the answer.
    async fn ask(&mut self, id: &str, status: u16, ask: Ask<'_>) -> Value {
        let request = self.request(id, &ask, Scope::Admin);
        let (found, answer) = send(&self.router, request).await;
        assert_eq!(found, status, "{id}: {answer}");
        let shown = ask.parameters.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        let (body, asked) = (ask.body.clone(), self.made.entry(id.to_owned()).or_default());
        if status < 300 && !asked.answers.keys().any(|status| status.starts_with('2')) {
            (asked.parameters, asked.body) = (shown, body);
        }
        asked.answers.insert(status.to_string(), answer.clone());
        answer
    }

    /// As [`Scene::ask`], where the operation refuses with several codes of this status.
    async fn refused(&mut self, id: &str, status: u16, code: &str, ask: Ask<'_>) {
        let (found, answer) = send(&self.router, self.request(id, &ask, Scope::Admin)).await;
        assert_eq!((found, &answer["code"]), (status, &json!(code)), "{id}: {answer}");
        self.made.entry(id.to_owned()).or_default().answers.insert(format!("{status} {code}"), answer);
    }

    /// A request for an operation: what its path has no place for goes into the query.
    fn request(&self, id: &str, ask: &Ask<'_>, scope: Scope) -> Request<Body> {
        let (method, path) = place(&self.document, id);
        let (mut path, mut query) = (path.to_owned(), url::form_urlencoded::Serializer::new(String::new()));
        for (name, value) in ask.parameters {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let hole = format!("{{{name}}}");
            if path.contains(&hole) {
                path = path.replace(&hole, &text);
            } else {
                query.append_pair(name, &text);
            }
        }
        let query = query.finish();
        let uri = if query.is_empty() { path } else { format!("{path}?{query}") };
        let key = ApiKey::generate(
            Environment::Test,
            &random(usize::from(scope != Scope::Admin) + usize::from(scope == Scope::Webhooks)),
        );
        let request = Request::builder().method(method.to_uppercase().as_str()).uri(uri);
        let request = request.header(header::AUTHORIZATION, format!("Bearer {}", key.reveal()));
        let request = request.header(header::CONTENT_TYPE, "application/json");
        request.body(ask.body.as_ref().map_or_else(Body::empty, |body| Body::from(body.to_string()))).unwrap()
    }

    /// Asks with a key that may do something else.
    async fn ask_without_scope(&mut self, id: &str) {
        let (method, path) = place(&self.document, id);
        let needed = &self.document["paths"][path][method]["security"][0]["bearer"][0];
        let other = if needed == "read" { Scope::Webhooks } else { Scope::Read };
        let request = self.request(id, &Ask::default(), other);
        let (status, answer) = send(&self.router, request).await;
        assert_eq!(status, 403, "{id}: {answer}");
        self.made.get_mut(id).unwrap().answers.insert("403".to_owned(), answer);
    }

    /// From now on this text, which was drawn at random, is shown as another of its form.
    fn make_up(&mut self, value: &Value, shown: &str) {
        self.made_up.push((value.as_str().unwrap().to_owned(), shown.to_owned()));
    }

    /// Mines what was paid, follows it and reads what is there.
    async fn follow(&mut self, watch: &mut BalanceWatch<landfall_sim::SimChain>, blocks: u64) {
        self.world.chain.mine_empty(blocks);
        self.world.pass(Duration::from_secs(12 * (blocks + 1)));
        self.world.catch_up().await;
        while watch.tick(self.world.now(), 0).await.unwrap() != BalancesRead::default() {}
        report(&self.world).await;
    }

    fn pay(&self, nonce: u64, amount: u64) {
        let leg = SimLeg { asset: TOKEN, ..SimLeg::native(address(PAYER), address(ALICE), amount) };
        self.world.chain.mine(vec![SimTx::new(address(PAYER), nonce, vec![leg])]);
    }

    /// The text of the file.
    fn text(&self, refusals: &BTreeMap<&str, Value>, events: &Value) -> String {
        let operations: Map<String, Value> = self.made.iter().map(|(id, asked)| (id.clone(), asked.shown())).collect();
        let all = json!({ "operations": operations, "refusals": refusals, "events": events });
        let mut text = serde_json::to_string_pretty(&all).unwrap();
        for (real, shown) in &self.made_up {
            text = text.replace(real, shown);
        }
        text.push('\n');
        text
    }
}

impl Asked {
    fn shown(&self) -> Value {
        let mut shown = json!({ "parameters": self.parameters, "answers": self.answers });
        if let Some(body) = &self.body {
            shown["body"] = body.clone();
        }
        shown
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_examples_of_the_document_are_what_is_answered() {
    let mut scene = Scene::new().await;
    let (identity, account) = open(&mut scene).await;
    let deposit = deposits(&mut scene, &account).await;
    list(&mut scene, &identity, &account, &deposit).await;
    let announced = transfers(&mut scene, &account).await;
    let mut events = webhooks(&mut scene, &identity).await;
    for event in announced {
        events[event.kind()] = serde_json::from_str(&event.payload).unwrap();
    }
    let mut form = transfer(&account);
    form["request_id"] = json!("b0c8d5f4-8f0e-4a53-b1f7-5b2f4c8a9e31");
    scene.refused("create_transfer", 409, "ACCOUNT_NOT_ACTIVE", sent(form)).await;
    refuse_parameters(&mut scene, &account).await;
    let refusals = refusals(&mut scene).await;

    let text = scene.text(&refusals, &events);
    assert!(!text.contains("lf_test_") && !text.contains("lf_live_"), "a key is in an example");
    #[expect(clippy::disallowed_methods, reason = "the test's own environment")]
    if std::env::var("LANDFALL_RENEW").is_ok() {
        std::fs::write(COMMITTED, &text).unwrap();
    }
    let committed = std::fs::read_to_string(COMMITTED).unwrap();
    let differs = committed.lines().zip(text.lines()).find(|(one, other)| one != other);
    assert!(committed == text, "the examples are out of date at {differs:?}; {RENEW}");
    scene.world.abandon();
}

/// An identity and its account, each asked for twice and contradicted.
async fn open(scene: &mut Scene) -> (Value, Value) {
    let form =
        json!({ "request_id": "0a1c3a0e-90b0-4f0c-8d52-2f0a3a4c9d11", "type": "INDIVIDUAL", "label": "customer 4711" });
    let id = scene.ask("create_identity", 201, sent(form.clone())).await["id"].clone();
    scene.ask("create_identity", 200, sent(form.clone())).await;
    let mut other = form;
    other["type"] = json!("BUSINESS");
    scene.ask("create_identity", 409, sent(other)).await;
    scene.ask("create_identity", 400, sent(json!({ "request_id": "1", "type": "PERSON" }))).await;

    let addresses = json!([{ "chains": ["ETHEREUM_TESTNET"], "address": address(ALICE).to_string() }]);
    let form = json!({
        "request_id": "b2f7a7cc-2f36-4f3b-9f43-0e2b2b8f7c15", "identity_id": id, "type": "SEGREGATED", "addresses": addresses,
    });
    let account = scene.ask("create_account", 201, sent(form.clone())).await["id"].clone();
    scene.ask("create_account", 200, sent(form.clone())).await;
    let mut other = form.clone();
    other["type"] = json!("OMNIBUS");
    scene.ask("create_account", 409, sent(other)).await;
    let mut malformed = form;
    malformed["addresses"][0]["address"] = json!("0x5aaeb6053F3E94C9b9A09f33669435E7Ef1BeAed");
    scene.ask("create_account", 400, sent(malformed)).await;
    further_addresses(scene, &id, &account).await;
    (id, account)
}

/// A pooled account with addresses that are derived; another gets none.
async fn further_addresses(scene: &mut Scene, identity: &Value, segregated: &Value) {
    let add = "add_account_address";
    let pooled = json!({
        "request_id": "c4d8f0a2-7b61-4e0a-8c35-91d2e6a7b804", "identity_id": identity, "type": "OMNIBUS",
    });
    let unsigned = Api::new(scene.world.db().clone(), settings(no_rates(), false), scene.world.clock()).router();
    let signing = std::mem::replace(&mut scene.router, unsigned);
    scene.refused("create_account", 503, "SIGNER_UNAVAILABLE", sent(pooled.clone())).await;
    scene.router = signing;
    let (status, pooled) = send(&scene.router, scene.request("create_account", &sent(pooled), Scope::Admin)).await;
    assert_eq!(status, 201, "{pooled}");
    let form = json!({ "request_id": "f7a1b3c5-2d4e-4f68-9a0b-1c2d3e4f5a6b", "chains": ["ETHEREUM_TESTNET"] });
    let of = |account: &Value| [("account_id", account.clone())];
    let pooled = of(&pooled["id"]);
    let ask = |body: &Value| Ask { body: Some(body.clone()), ..with(&pooled) };
    let mut other = form.clone();
    other["request_id"] = json!("0d9c8b7a-6f5e-4d3c-8b2a-190817263544");
    let unsigned = Api::new(scene.world.db().clone(), settings(no_rates(), false), scene.world.clock()).router();
    let signing = std::mem::replace(&mut scene.router, unsigned);
    scene.refused(add, 503, "SIGNER_UNAVAILABLE", ask(&form)).await;
    scene.router = signing;
    scene.ask(add, 201, ask(&form)).await;
    scene.ask(add, 200, ask(&form)).await;
    let mut mismatch = form.clone();
    mismatch["chains"] = json!(["BASE_SEPOLIA"]);
    scene.refused(add, 409, "IDEMPOTENCY_MISMATCH", ask(&mismatch)).await;
    let mut malformed = form.clone();
    malformed["chains"] = json!([]);
    scene.ask(add, 400, ask(&malformed)).await;
    scene.refused(add, 409, "ACCOUNT_SEGREGATED", Ask { body: Some(other.clone()), ..with(&of(segregated)) }).await;
    scene.ask(add, 404, Ask { body: Some(other), ..with(&of(&json!("acc_unknown"))) }).await;
}

/// Three deposits, the last of which is not final yet; the id of the first.
async fn deposits(scene: &mut Scene, account: &Value) -> Value {
    let world = &scene.world;
    let mut watch = BalanceWatch::new(world.chain.clone(), world.db().clone(), &world.network, 20, "one".to_owned());
    // The assets are followed from the first block on.
    watch.tick(world.now(), 0).await.unwrap();
    scene.world.chain.mine_empty(FINALITY_DEPTH + 1);
    scene.world.catch_up().await;
    scene.ask("get_account_balances", 503, with(&[("account_id", account.clone())])).await;
    scene.pay(0, 1_250_500_000);
    scene.pay(1, 20_000_000);
    scene.follow(&mut watch, FINALITY_DEPTH).await;
    scene.pay(2, 750_000);
    scene.follow(&mut watch, 1).await;
    let of = ("account_id", account.clone());
    scene.ask("get_account_balances", 200, with(&[of.clone(), ("symbol", json!("USDC"))])).await;
    let listed =
        scene.ask("list_deposits", 200, with(&[of, ("currency_symbol", json!("USDC")), ("limit", json!(2))])).await;
    let mut numberer = Numberer::new(scene.world.db().clone(), "test".to_owned());
    numberer.tick(scene.world.now()).await.unwrap();
    listed["deposits"][1]["id"].clone()
}

/// What there is now.
async fn list(scene: &mut Scene, identity: &Value, account: &Value, deposit: &Value) {
    scene.ask("get_identity", 200, with(&[("identity_id", identity.clone())])).await;
    let of = [("account_id", account.clone())];
    scene.ask("get_account", 200, with(&of)).await;
    scene.ask("get_account_coverage", 200, with(&of)).await;
    scene.ask("list_accounts", 200, with(&[("limit", json!(25))])).await;
    scene.ask("list_assets", 200, with(&[("chain", json!("ETHEREUM_TESTNET"))])).await;
    scene.ask("get_deposit", 200, with(&[("deposit_id", deposit.clone())])).await;
    scene.ask("list_events", 200, with(&[("after", json!(0)), ("limit", json!(2))])).await;
}

/// A transfer of the account, asked for twice, contradicted and refused; an event of each of its types.
async fn transfers(scene: &mut Scene, account: &Value) -> [TransferEvent; 3] {
    let create = "create_transfer";
    report(&scene.world).await;
    let form = transfer(account);
    let (same, other) = (form["request_id"].as_str().unwrap(), "b0c8d5f4-8f0e-4a53-b1f7-5b2f4c8a9e31");
    let with_amount = |request_id: &str, amount: &str| {
        let mut form = form.clone();
        (form["request_id"], form["amount"]) = (json!(request_id), json!(amount));
        sent(form)
    };
    scene.refused(create, 422, "SOURCE_NOT_MANAGED", sent(form.clone())).await;
    manage(&scene.world, account.as_str().unwrap(), ALICE).await;
    let (signing, unsigned) = (scene.router.clone(), settings(no_rates(), false));
    scene.router = Api::new(scene.world.db().clone(), unsigned, scene.world.clock()).router();
    scene.refused(create, 503, "TRANSFERS_NOT_CONFIGURED", sent(form.clone())).await;
    scene.router = signing;
    scene.world.operator().halt_sending(scene.world.db(), &[CHAIN]).await.unwrap();
    scene.refused(create, 503, "SENDING_HALTED", sent(form.clone())).await;
    scene.world.operator().resume_sending(scene.world.db(), &[CHAIN]).await.unwrap();
    let mut eth = form.clone();
    (eth["request_id"], eth["currency_symbol"]) = (json!(other), json!("ETH"));
    scene.refused(create, 422, "ASSET_NOT_SENDABLE", sent(eth)).await;
    let id = scene.ask(create, 201, sent(form.clone())).await["id"].clone();
    scene.ask(create, 200, sent(form.clone())).await;
    scene.refused(create, 409, "IDEMPOTENCY_MISMATCH", with_amount(same, "13")).await;
    scene.ask(create, 400, with_amount(other, "1e3")).await;
    scene.refused(create, 422, "INSUFFICIENT_FUNDS", with_amount(other, "1000000")).await;
    limits(scene, account, with_amount(other, "2")).await;
    credit(scene, with_amount(other, "2")).await;
    scene.ask("get_transfer", 200, with(&[("transfer_id", id.clone())])).await;
    scene.ask("get_transfer", 400, with(&[("transfer_id", id.clone()), ("expand", json!("all"))])).await;
    scene.ask("list_transfers", 200, with(&[("account_id", account.clone()), ("limit", json!(25))])).await;
    let accepted = stored(&scene.world, id.as_str().unwrap()).await;
    let carried = in_state(&scene.world, &accepted, State::Carried);
    let included = in_state(&scene.world, &carried, State::Included);
    let submitted = announce(&scene.world, &carried, Announcement::Submitted, None).await;
    let included = announce(&scene.world, &included, Announcement::Included, Some(15)).await;
    end(&scene.world, id.as_str().unwrap(), "CONFIRMED").await;
    scene.refused(create, 409, "DUPLICATE_TRANSACTION", sent(form.clone())).await;
    // The chain was not read for so long that what left the address is not known.
    scene.world.pass(Duration::from_secs(6 * 60));
    scene.refused(create, 503, "BALANCE_UNKNOWN", with_amount(other, "1")).await;
    let dropped = in_state(&scene.world, &carried, State::Dropped(FailureCode::WindowElapsed));
    [submitted, included, announce(&scene.world, &dropped, Announcement::Dropped, None).await]
}

/// The gas credit, and what a service that bills nothing beyond it refuses.
async fn credit(scene: &mut Scene, asked: Ask<'_>) {
    let networks = [scene.world.network.clone()];
    scene.ask("get_gas_credit", 200, with(&[])).await;
    scene.ask("get_gas_credit", 400, with(&[("expand", json!("all"))])).await;
    // One transfer may cost more than all of it.
    let mut dear = scene.world.network.clone();
    dear.sending.first_cost = 1_000_000_000_000_000_000;
    let price = "3000".parse().unwrap();
    scene.world.operator().set_price(scene.world.db(), "ETH", price, &networks).await.unwrap();
    let refusing = Settings { over_credit: OverCredit::Refuse, networks: vec![dear], ..settings(no_rates(), true) };
    let billing = std::mem::replace(
        &mut scene.router,
        Api::new(scene.world.db().clone(), refusing, scene.world.clock()).router(),
    );
    scene.refused("create_transfer", 422, "GAS_CREDIT_EXHAUSTED", asked).await;
    scene.router = billing;
}

/// A policy that leaves too little for this transfer, and its end.
async fn limits(scene: &mut Scene, account: &Value, asked: Ask<'_>) {
    let (world, networks) = (&scene.world, [scene.world.network.clone()]);
    let limits = ["TRANSACTION:USDC:amount=20", "DAY:USDC:amount=14,count=100"].map(|limit| limit.parse().unwrap());
    let scope = PolicyScope::Account(account.as_str().unwrap().to_owned());
    let policy = Policy::new("customer 4711".to_owned(), scope, None, limits.to_vec(), world.now()).unwrap();
    world.operator().add_policy(world.db(), &policy, &networks).await.unwrap();
    scene.refused("create_transfer", 422, "TRANSACTION_LIMIT_EXCEEDED", asked).await;
    let of = ("policy_id", json!(policy.id));
    scene.ask("get_transaction_limit_policy", 200, with(std::slice::from_ref(&of))).await;
    scene.ask("get_transaction_limit_policy", 400, with(&[of, ("expand", json!("all"))])).await;
    scene.world.operator().remove_policy(scene.world.db(), &policy.id).await.unwrap();
}

/// The account pays 12.5 USDC.
fn transfer(account: &Value) -> Value {
    json!({
        "request_id": "6d1f9f7e-3f0a-4f39-9c53-0f5a4a3b7d20", "account_id": account, "currency_symbol": "USDC",
        "amount": "12.5",
        "address_destination": { "address": address(PAYER).to_string(), "chain": "ETHEREUM_TESTNET" },
    })
}

/// The life of a webhook; what it is sent.
async fn webhooks(scene: &mut Scene, identity: &Value) -> Value {
    let form = json!({ "url": "https://example.com/hooks", "label": "ledger" });
    let created = scene.ask("create_webhook", 201, sent(form)).await;
    scene.make_up(&created["id"], "wh_5f1d7a0c93b24e86a1c0d2e4");
    scene.make_up(&created["signing_key_id"], "sk_9b1e4c7a2d5f8063");
    scene.make_up(&created["signing_key"], "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=");
    scene.ask("create_webhook", 400, sent(json!({ "url": "http://example.com/hooks" }))).await;
    let of = [("webhook_id", created["id"].clone())];
    scene.ask("get_webhook", 200, with(&of)).await;
    scene.ask("list_webhooks", 200, Ask::default()).await;
    let rotation = Ask { body: Some(json!({ "previous_key_valid_secs": 86_400 })), ..with(&of) };
    let rotated = scene.ask("rotate_webhook_key", 200, rotation).await;
    scene.make_up(&rotated["signing_key_id"], "sk_60f3a1c2e4b59d78");
    scene.make_up(&rotated["signing_key"], "whsec_ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8=");
    let again = || Ask { body: Some(json!({ "previous_key_valid_secs": 86_400 })), ..with(&of) };
    for _ in 0..2 {
        send(&scene.router, scene.request("rotate_webhook_key", &again(), Scope::Admin)).await;
    }
    scene.ask("rotate_webhook_key", 409, again()).await;
    let too_long = Ask { body: Some(json!({ "previous_key_valid_secs": 604_801 })), ..with(&of) };
    scene.ask("rotate_webhook_key", 400, too_long).await;
    let tested = scene.ask("test_webhook", 202, with(&of)).await;
    scene.make_up(&tested["event_id"], "5d0e3c3a-7f0b-8a52-9c8e-0a4b7f1d2e63");
    scene.ask("test_webhook", 400, Ask { body: Some(json!({ "event": "deposit_v2" })), ..with(&of) }).await;
    scene.ask("delete_webhook", 400, with(&[of[0].clone(), ("force", json!(true))])).await;
    let (world, identity) = (&scene.world, identity.as_str().unwrap());
    let operator = Operator { reason: "a key was reported lost", ..world.operator() };
    operator.change_identity(world.db(), identity, Change::Suspend).await.unwrap();
    let (suspended, test) = (sent_as(world, "identity_status_update").await, sent_as(world, "webhook_test").await);
    scene.ask("delete_webhook", 200, with(&of)).await;
    let deposit = &scene.made["list_events"].answers["200"]["events"][0]["event"];
    json!({ "deposit_v2": deposit, "identity_status_update": suspended, "webhook_test": test })
}

/// The one event of a type.
async fn sent_as(world: &World, kind: &str) -> Value {
    let Pools::Sqlite { read, .. } = world.db().pools() else { panic!("SQLite") };
    let payload = sqlx::query_as("SELECT payload FROM events WHERE type = ?").bind(kind);
    let (payload,): (String,) = payload.fetch_one(read).await.unwrap();
    serde_json::from_str(&payload).unwrap()
}

/// What no object and no parameter is.
async fn refuse_parameters(scene: &mut Scene, account: &Value) {
    for (id, name, unknown) in [
        ("get_identity", "identity_id", "idn_unknown"),
        ("get_account", "account_id", "acc_unknown"),
        ("get_account_balances", "account_id", "acc_unknown"),
        ("get_account_coverage", "account_id", "acc_unknown"),
        ("get_deposit", "deposit_id", "00000000-0000-8000-8000-000000000000"),
        ("get_transfer", "transfer_id", "00000000-0000-8000-8000-000000000000"),
        ("get_transaction_limit_policy", "policy_id", "00000000-0000-8000-8000-000000000000"),
        ("get_webhook", "webhook_id", "wh_unknown"),
        ("delete_webhook", "webhook_id", "wh_unknown"),
        ("rotate_webhook_key", "webhook_id", "wh_unknown"),
        ("test_webhook", "webhook_id", "wh_unknown"),
    ] {
        scene.ask(id, 404, with(&[(name, json!(unknown))])).await;
    }
    let created =
        scene.ask("create_webhook", 201, sent(json!({ "url": "https://example.com/hooks", "label": "ledger" }))).await;
    let created_first = scene.made_up[0].0.clone();
    // The first one's answer stays, as its request does.
    let asked = scene.made.get_mut("create_webhook").unwrap();
    asked.answers["201"]["id"] = json!(created_first);
    for (at, field) in ["signing_key_id", "signing_key"].into_iter().enumerate() {
        asked.answers["201"][field] = json!(scene.made_up[at + 1].0);
    }
    let unknown = ("expand", json!("all"));
    let identity = scene.made["get_identity"].parameters["identity_id"].clone();
    let deposit = scene.made["get_deposit"].parameters["deposit_id"].clone();
    for (id, parameters) in [
        ("get_identity", vec![("identity_id", identity), unknown.clone()]),
        ("get_account", vec![("account_id", account.clone()), unknown.clone()]),
        ("get_account_balances", vec![("account_id", account.clone()), ("chain", json!("BASE"))]),
        ("get_account_coverage", vec![("account_id", account.clone()), unknown.clone()]),
        ("get_deposit", vec![("deposit_id", deposit), unknown.clone()]),
        ("get_webhook", vec![("webhook_id", created["id"].clone()), unknown.clone()]),
        ("list_webhooks", vec![unknown]),
        ("list_accounts", vec![("limit", json!(101))]),
        ("list_assets", vec![("chain", json!("BASE"))]),
        ("list_deposits", vec![("limit", json!(26))]),
        ("list_transfers", vec![("status", json!("PENDING"))]),
        ("list_events", vec![("after", json!(1_000_000))]),
    ] {
        scene.ask(id, 400, with(&parameters)).await;
    }
}

/// What any operation may be refused with: each of them is, with the same words.
async fn refusals(scene: &mut Scene) -> BTreeMap<&'static str, Value> {
    let ids: Vec<String> = scene.made.keys().cloned().collect();
    for id in &ids {
        scene.ask_without_scope(id).await;
    }
    let (db, clock) = (scene.world.db().clone(), scene.world.clock());
    let limited = |limits: Limits| serve(&db, clock.clone(), limits);
    let mut found = BTreeMap::new();
    let routers = [
        ("UNAUTHORIZED", limited(no_rates())),
        ("METHOD_NOT_ALLOWED", limited(no_rates())),
        ("PAYLOAD_TOO_LARGE", limited(no_rates())),
        ("RATE_LIMITED", limited(Limits { ip_requests_per_sec: 1, ..no_rates() })),
        ("HEADERS_TOO_LARGE", limited(no_rates())),
        ("OVERLOADED", limited(Limits { concurrent_requests: 0, ..no_rates() })),
        ("INTERNAL", limited(no_rates())),
    ];
    for (code, router) in routers {
        if code == "INTERNAL" {
            let Pools::Sqlite { write, .. } = db.pools() else { panic!("SQLite") };
            sqlx::query("ALTER TABLE api_keys RENAME TO lost").execute(write).await.unwrap();
        }
        for id in &ids {
            let answer = loop {
                let request = spoilt(scene.request(id, &Ask::default(), Scope::Admin), code);
                let (_, answer) = send(&router, request).await;
                // Until it is too many.
                if answer["code"] == code || code != "RATE_LIMITED" {
                    break answer;
                }
            };
            assert_eq!(answer["code"], code, "{id}: {answer}");
            assert_eq!(found.entry(code).or_insert_with(|| answer.clone()), &answer, "{id}");
        }
        if code == "INTERNAL" {
            let Pools::Sqlite { write, .. } = db.pools() else { panic!("SQLite") };
            sqlx::query("ALTER TABLE lost RENAME TO api_keys").execute(write).await.unwrap();
        }
    }
    // What never comes to an end takes a while to be refused: one operation stands for all.
    let slow = limited(Limits { request_timeout: Duration::from_secs(2), ..no_rates() });
    let mut dripping = scene.request("list_assets", &Ask::default(), Scope::Admin);
    *dripping.body_mut() = Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>());
    let (status, answer) = send(&slow, dripping).await;
    assert_eq!(status, 408);
    found.insert("REQUEST_TIMEOUT", answer);
    let writer = db.begin().await.unwrap();
    let form = json!({ "request_id": "late", "type": "BUSINESS" });
    let (status, answer) = send(&slow, scene.request("create_identity", &sent(form), Scope::Admin)).await;
    assert_eq!(status, 503, "{answer}");
    drop(writer);
    found.insert("TIMEOUT", answer);
    found
}

/// The request as it is refused with this code.
fn spoilt(mut request: Request<Body>, code: &str) -> Request<Body> {
    match code {
        "UNAUTHORIZED" => drop(request.headers_mut().remove(header::AUTHORIZATION)),
        "METHOD_NOT_ALLOWED" => *request.method_mut() = Method::PATCH,
        "PAYLOAD_TOO_LARGE" => drop(request.headers_mut().insert(header::CONTENT_LENGTH, 1_048_577.into())),
        "HEADERS_TOO_LARGE" => drop(request.headers_mut().insert("x", "x".repeat(16 * 1024).parse().unwrap())),
        _ => {}
    }
    request
}

#[test]
fn every_operation_and_status_has_an_example_that_its_schema_takes() {
    let document: Value = serde_json::from_str(&openapi_json()).unwrap();
    let mut checked = 0;
    for (id, operation) in operations(&document) {
        for (status, response) in operation["responses"].as_object().unwrap() {
            for content in response["content"].as_object().into_iter().flat_map(Map::values) {
                let shown = examples(&document, content);
                assert!(!shown.is_empty(), "{id} {status} has no example; {RENEW}");
                for example in shown {
                    assert_valid(&document, &content["schema"], example, &format!("{id} {status}"));
                    if content["schema"]["$ref"] == "#/components/schemas/Problem" {
                        assert_eq!(example["status"].to_string(), *status, "{id}");
                    }
                    checked += 1;
                }
            }
        }
        for content in operation["requestBody"]["content"].as_object().into_iter().flat_map(Map::values) {
            let example = content.get("example");
            assert!(example.is_some() || id == "test_webhook", "{id} has no example of its body; {RENEW}");
            if let Some(example) = example {
                assert_valid(&document, &content["schema"], example, id);
                checked += 1;
            }
        }
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            if let Some(example) = parameter.get("example") {
                assert_valid(&document, &parameter["schema"], example, &format!("{id} {}", parameter["name"]));
                checked += 1;
            } else {
                assert!(parameter["in"] != "path", "{id} {} has no example; {RENEW}", parameter["name"]);
            }
        }
    }
    let Value::Object(pushed) = &document["webhooks"] else { panic!("what is sent is described") };
    let types: BTreeSet<&str> = FEED_TYPES.into_iter().chain([TEST_EVENT]).collect();
    assert_eq!(pushed.keys().map(String::as_str).collect::<BTreeSet<_>>(), types);
    for (kind, item) in pushed {
        let content = &item["post"]["requestBody"]["content"]["application/json"];
        assert_eq!(content["example"]["type"], *kind);
        assert_valid(&document, &content["schema"], &content["example"], kind);
        let mut spoilt = content["example"].clone();
        spoilt["data"]["more"] = json!(1);
        assert!(!faults(&document, &content["schema"], &spoilt, "").is_empty(), "{kind}: nothing else is sent");
    }
    println!("{checked} examples were held to their schemas");
    assert!(checked > 200, "{checked}");
}

/// The examples of a body, or what they refer to.
fn examples<'a>(document: &'a Value, content: &'a Value) -> Vec<&'a Value> {
    let named = content["examples"].as_object().into_iter().flat_map(Map::values);
    let named = named.map(|named| match named["$ref"].as_str() {
        Some(place) => &document.pointer(place.trim_start_matches('#')).unwrap()["value"],
        None => &named["value"],
    });
    content.get("example").into_iter().chain(named).collect()
}

fn operations(document: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let items = document["paths"].as_object().unwrap().values();
    let operations = items.flat_map(|item| item.as_object().unwrap().values());
    operations.map(|operation| (operation["operationId"].as_str().unwrap(), operation))
}

/// Method and path of an operation.
fn place<'a>(document: &'a Value, id: &str) -> (&'a str, &'a str) {
    let items = document["paths"].as_object().unwrap().iter();
    let mut found = items.flat_map(|(path, item)| {
        let mut operations = item.as_object().unwrap().iter();
        let method =
            operations.find(|(_, operation)| operation["operationId"] == id).map(|(method, _)| method.as_str());
        method.map(|method| (method, path.as_str()))
    });
    found.next().unwrap_or_else(|| panic!("no operation {id}"))
}

fn serve(db: &Db, clock: Clock, limits: Limits) -> Router {
    Api::new(db.clone(), settings(limits, true), clock).router()
}

fn settings(limits: Limits, can_sign: bool) -> Settings {
    let signer = can_sign.then(|| Arc::new(SignerDouble::default()) as Arc<dyn Signer>);
    Settings { limits, networks: vec![network()], signer, ..Settings::of(Environment::Test) }
}

fn no_rates() -> Limits {
    Limits { ip_requests_per_sec: 0, key_requests_per_sec: 0, request_timeout: PATIENCE, ..Limits::default() }
}

fn random(n: usize) -> [u8; ApiKey::RANDOM_BYTES] {
    [u8::try_from(n + 1).unwrap(); ApiKey::RANDOM_BYTES]
}

/// The answer; its request's number says how often was asked before, which is no part of it.
async fn send(router: &Router, request: Request<Body>) -> (u16, Value) {
    let asked = (request.method().clone(), request.uri().path().to_owned());
    let response = router.clone().oneshot(request).await.unwrap();
    let status = response.status();
    assert_reported(asked, status, response.headers());
    let bytes = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    let mut body: Value = serde_json::from_slice(&bytes).unwrap();
    if status >= StatusCode::BAD_REQUEST {
        body["request_id"] = json!(REQUEST_ID);
    }
    (status.as_u16(), body)
}

/// That the document has each header of the answer; of what no operation of the path was asked, each of its operations
/// does.
fn assert_reported((method, path): (Method, String), status: StatusCode, headers: &HeaderMap) {
    let fits = |form: &str| {
        let (forms, parts): (Vec<&str>, Vec<&str>) = (form.split('/').collect(), path.split('/').collect());
        forms.len() == parts.len() && forms.iter().zip(parts).all(|(form, part)| form.starts_with('{') || *form == part)
    };
    let (_, item) = DOCUMENT["paths"].as_object().unwrap().iter().find(|(form, _)| fits(form)).unwrap();
    let method = method.as_str().to_lowercase();
    let mut asked: Vec<&Value> = item.get(&method).into_iter().collect();
    if asked.is_empty() {
        asked = item.as_object().unwrap().values().collect();
    }
    for (operation, header) in asked.iter().flat_map(|operation| headers.keys().map(move |header| (operation, header)))
    {
        let reported = operation["responses"][status.as_str()]["headers"].as_object().unwrap();
        let is_of_body = [header::CONTENT_TYPE, header::CONTENT_LENGTH].contains(header);
        let is_reported = reported.keys().any(|name| name.eq_ignore_ascii_case(header.as_str()));
        assert!(is_of_body || is_reported, "{} {status} does not tell of {header}", operation["operationId"]);
    }
}
