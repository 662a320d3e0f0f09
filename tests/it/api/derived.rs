//! Addresses that the signer derives, through the router and over real stores of both engines: which accounts get which,
//! what the same request is answered, and that nothing is done while the signer is away.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Router;
use axum::http::{Method, StatusCode};
use landfall::api::{self, Settings};
use landfall::identity::Change;
use landfall::store::{accounts, audit};
use landfall::time::Clock;
use landfall_chain::{Chain, Family, KeyPath};
use serde_json::{Value, json};

use crate::api::accounts::{ADDRESS, Api, NOW, OTHER, OWNER, accounts_of, assert_refused, form, send};
use crate::harness::postgres::{ENGINES, Engine};
use crate::harness::signer::SignerDouble;

const PATH: &str = "/v2/accounts";
/// The chains that [`Api`] follows.
const FOLLOWED: [&str; 3] = ["ETHEREUM_TESTNET", "BASE_MAINNET", "SOLANA_MAINNET"];

/// A request that names no addresses.
fn bare(request_id: &str, kind: &str) -> Value {
    json!({ "request_id": request_id, "identity_id": "default", "type": kind })
}

/// A request with these addresses.
fn having(request_id: &str, kind: &str, addresses: Value) -> Value {
    let mut body = bare(request_id, kind);
    body["addresses"] = addresses;
    body
}

/// What the signer derives for an account.
fn derived(family: Family, account: &Value, tag: &str) -> String {
    SignerDouble::address(&KeyPath::of_wallet(family, account.as_str().unwrap(), tag)).to_string()
}

/// The store of `api`, served with these settings.
fn served(api: &Api, settings: Settings) -> Router {
    api::Api::new(api.db().clone(), settings, Clock::new(|| NOW)).router()
}

async fn post(router: &Router, api: &Api, path: &str, body: &Value) -> (StatusCode, Value) {
    send(router, &api.key, Method::POST, path, body.to_string()).await
}

fn assert_problem((status, body): &(StatusCode, Value), expected: u16, code: &str, detail: &str) {
    assert_eq!((status.as_u16(), &body["code"]), (expected, &json!(code)), "{body}");
    assert_eq!(body["detail"], detail);
}

/// Both kinds of entries that an account with addresses makes.
async fn recorded(api: &Api) -> (usize, usize) {
    let mut reader = api.db().read().await.unwrap();
    (accounts_of(api.db()).await, audit::newest(&mut reader, audit::About::All, 100).await.unwrap().len())
}

#[tokio::test]
async fn who_names_no_addresses_gets_one_of_each_family_on_every_chain_that_is_followed() {
    for engine in ENGINES {
        let signer = Arc::new(SignerDouble::default());
        let api = Api::signing(engine, signer.clone()).await;
        for (request_id, kind) in [("r-1", "SEGREGATED"), ("r-2", "OMNIBUS")] {
            let asked = signer.asked();
            let (status, opened) = api.post(PATH, &bare(request_id, kind)).await;
            assert_eq!(status, StatusCode::CREATED, "{opened}");
            let [evm, solana] = [Family::Evm, Family::Solana].map(|family| derived(family, &opened["id"], ""));
            let expected = json!([
                { "chains": FOLLOWED[..2], "address": evm, "managed": true },
                { "chains": FOLLOWED[2..], "address": solana, "managed": true },
            ]);
            assert_eq!(opened["addresses"], expected, "{engine:?}");
            let path = format!("{PATH}/{}", opened["id"].as_str().unwrap());
            assert_eq!(api.get(&path).await, (StatusCode::OK, opened.clone()));
            let listed = api.get(&format!("{PATH}?limit=1")).await.1;
            assert_eq!(listed["accounts"], json!([opened]));

            signer.set_away(true);
            assert_eq!(api.post(PATH, &bare(request_id, kind)).await, (StatusCode::OK, opened), "{engine:?}");
            signer.set_away(false);
            assert_eq!(signer.asked(), asked + 1, "a request that is on record is answered without the signer");
        }
    }
}

#[tokio::test]
async fn addresses_that_are_given_and_derived_stand_beside_each_other() {
    for engine in ENGINES {
        let api = Api::signing(engine, Arc::new(SignerDouble::default())).await;
        let addresses = json!([
            { "chains": ["BASE_MAINNET"], "address": ADDRESS },
            { "chains": ["SOLANA_DEVNET", "BASE_MAINNET"] },
            { "chains": ["BASE_SEPOLIA"] },
        ]);
        let (status, opened) = api.post(PATH, &having("r-1", "OMNIBUS", addresses)).await;
        assert_eq!(status, StatusCode::CREATED, "{opened}");
        let [evm, solana] = [Family::Evm, Family::Solana].map(|family| derived(family, &opened["id"], ""));
        let found: BTreeSet<String> = opened["addresses"].as_array().unwrap().iter().map(Value::to_string).collect();
        let expected = [
            json!({ "chains": ["BASE_MAINNET"], "address": ADDRESS, "managed": false }),
            json!({ "chains": ["BASE_MAINNET", "BASE_SEPOLIA"], "address": evm, "managed": true }),
            json!({ "chains": ["SOLANA_DEVNET"], "address": solana, "managed": true }),
        ];
        assert_eq!(found, expected.iter().map(Value::to_string).collect(), "{engine:?}: one address of each family");

        // The same request in another spelling, and what is another one.
        let merged = json!([
            { "chains": ["BASE_SEPOLIA", "SOLANA_DEVNET", "BASE_MAINNET"] },
            { "chains": ["BASE_MAINNET"], "address": ADDRESS.to_lowercase() },
        ]);
        let again = api.post(PATH, &having("r-1", "OMNIBUS", merged)).await;
        assert_eq!(again, (StatusCode::OK, opened), "{engine:?}");
        let fewer = json!([{ "chains": ["BASE_MAINNET"], "address": ADDRESS }, { "chains": ["SOLANA_DEVNET"] }]);
        for other in [having("r-1", "OMNIBUS", fewer), bare("r-1", "OMNIBUS")] {
            let (status, problem) = api.post(PATH, &other).await;
            assert_eq!((status.as_u16(), &problem["code"]), (409, &json!("IDEMPOTENCY_MISMATCH")), "{problem}");
        }
    }
}

#[tokio::test]
async fn a_segregated_account_has_no_second_address_on_a_family() {
    let api = Api::signing(Engine::Sqlite, Arc::new(SignerDouble::default())).await;
    let both = json!([{ "chains": ["BASE_MAINNET"], "address": ADDRESS }, { "chains": ["BASE_SEPOLIA"] }]);
    let refused = api.post(PATH, &having("r-1", "SEGREGATED", both)).await;
    let detail = "must give a SEGREGATED account one address on each family of chains, not one that is derived too";
    assert_refused(&refused, &[("addresses", detail)]);
    let one_each = json!([{ "chains": ["SOLANA_MAINNET"], "address": OWNER }, { "chains": ["BASE_SEPOLIA"] }]);
    let (status, opened) = api.post(PATH, &having("r-1", "SEGREGATED", one_each)).await;
    assert_eq!(status, StatusCode::CREATED, "{opened}");
    let path = format!("{PATH}/{}/addresses", opened["id"].as_str().unwrap());
    let further = api.post(&path, &json!({ "request_id": "r-2", "chains": ["BASE_MAINNET"] })).await;
    let detail = "the account is SEGREGATED: it has one address on each family of chains, and gets no further one";
    assert_problem(&further, 409, "ACCOUNT_SEGREGATED", detail);
}

#[tokio::test]
async fn while_the_signer_is_away_nothing_is_done_and_the_request_may_come_again() {
    for engine in ENGINES {
        let signer = Arc::new(SignerDouble::default());
        let api = Api::signing(engine, signer.clone()).await;
        let (_, pooled) = api.post(PATH, &bare("r-0", "OMNIBUS")).await;
        let further = format!("{PATH}/{}/addresses", pooled["id"].as_str().unwrap());
        let one = json!({ "request_id": "r-2", "chains": ["BASE_MAINNET"] });
        let before = recorded(&api).await;
        signer.set_away(true);
        let detail = "the signer cannot be reached, so no address was derived; nothing was done, send it again later";
        assert_problem(&api.post(PATH, &bare("r-1", "OMNIBUS")).await, 503, "SIGNER_UNAVAILABLE", detail);
        assert_problem(&api.post(&further, &one).await, 503, "SIGNER_UNAVAILABLE", detail);
        // What is wrong with it is reported first.
        let mut nobodys = bare("r-1", "OMNIBUS");
        nobodys["identity_id"] = json!("nobody");
        let refused = api.post(PATH, &nobodys).await;
        assert_refused(&refused, &[("identity_id", "is refused: there is no identity nobody")]);
        let unknown = api.post(&format!("{PATH}/acc_unknown/addresses"), &one).await;
        assert_problem(&unknown, 404, "NOT_FOUND", "no account has this id");
        assert_eq!(recorded(&api).await, before, "{engine:?}");
        // Addresses that are given need no signer.
        assert_eq!(api.post(PATH, &form("r-3", "default", OTHER)).await.0, StatusCode::CREATED);

        signer.set_away(false);
        // Another content than the one that was refused.
        assert_eq!(api.post(PATH, &bare("r-1", "SEGREGATED")).await.0, StatusCode::CREATED, "{engine:?}");
        assert_eq!(api.post(&further, &one).await.0, StatusCode::CREATED, "{engine:?}");
    }
}

#[tokio::test]
async fn without_a_signer_an_address_must_be_given_and_what_was_made_is_answered_all_the_same() {
    let api = Api::signing(Engine::Sqlite, Arc::new(SignerDouble::default())).await;
    let (_, opened) = api.post(PATH, &bare("r-1", "OMNIBUS")).await;
    let without = served(&api, Settings { signer: None, ..api.settings() });
    let again = post(&without, &api, PATH, &bare("r-1", "OMNIBUS")).await;
    assert_eq!(again, (StatusCode::OK, opened));
    let detail = "no signer is configured, so no address can be derived: send the address";
    for body in [bare("r-2", "OMNIBUS"), having("r-2", "OMNIBUS", json!([{ "chains": ["BASE_MAINNET"] }]))] {
        assert_problem(&post(&without, &api, PATH, &body).await, 503, "SIGNER_UNAVAILABLE", detail);
    }
}

#[tokio::test]
async fn the_request_is_the_same_after_other_chains_were_configured() {
    let api = Api::signing(Engine::Sqlite, Arc::new(SignerDouble::default())).await;
    let (_, opened) = api.post(PATH, &bare("r-1", "OMNIBUS")).await;
    let networks = api.settings().networks.into_iter().filter(|network| network.chain == Chain::BaseMainnet);
    let fewer = served(&api, Settings { networks: networks.collect(), ..api.settings() });
    assert_eq!(post(&fewer, &api, PATH, &bare("r-1", "OMNIBUS")).await, (StatusCode::OK, opened));
    let (_, later) = post(&fewer, &api, PATH, &bare("r-2", "OMNIBUS")).await;
    assert_eq!(later["addresses"][0]["chains"], json!(["BASE_MAINNET"]), "the chains of that moment");
}

#[tokio::test]
async fn a_store_that_was_set_back_gets_the_same_addresses_again() {
    let mut made = Vec::new();
    for engine in [Engine::Sqlite, Engine::Sqlite, Engine::Postgres] {
        let api = Api::signing(engine, Arc::new(SignerDouble::default())).await;
        let (status, opened) = api.post(PATH, &bare("r-1", "OMNIBUS")).await;
        assert_eq!(status, StatusCode::CREATED);
        let path = format!("{PATH}/{}/addresses", opened["id"].as_str().unwrap());
        let further = api.post(&path, &json!({ "request_id": "r-2", "chains": ["BASE_MAINNET"] })).await;
        assert_eq!(further.0, StatusCode::CREATED);
        made.push((opened, further.1));
    }
    assert_eq!(made[0], made[1]);
    assert_eq!(made[0], made[2]);
}

#[tokio::test]
async fn a_pooled_account_gets_a_further_address_once_for_each_request() {
    for engine in ENGINES {
        let signer = Arc::new(SignerDouble::default());
        let api = Api::signing(engine, signer.clone()).await;
        let (_, opened) = api.post(PATH, &bare("r-1", "OMNIBUS")).await;
        let id = opened["id"].as_str().unwrap();
        let path = format!("{PATH}/{id}/addresses");
        let body = json!({ "request_id": "r-2", "chains": ["SOLANA_DEVNET", "BASE_SEPOLIA", "BASE_MAINNET"] });
        let (status, added) = api.post(&path, &body).await;
        assert_eq!(status, StatusCode::CREATED, "{added}");
        let [evm, solana] = [Family::Evm, Family::Solana].map(|family| derived(family, &opened["id"], "r-2"));
        let expected = json!({ "account_id": id, "request_id": "r-2", "addresses": [
            { "chains": ["BASE_MAINNET", "BASE_SEPOLIA"], "address": evm, "managed": true },
            { "chains": ["SOLANA_DEVNET"], "address": solana, "managed": true },
        ] });
        assert_eq!(added, expected, "{engine:?}");
        let shown = api.get(&format!("{PATH}/{id}")).await.1["addresses"].to_string();
        assert!(shown.contains(&evm) && shown.contains(&solana), "{shown}");

        signer.set_away(true);
        let spelled = json!({ "request_id": "r-2", "chains": ["BASE_MAINNET", "BASE_SEPOLIA", "SOLANA_DEVNET"] });
        for again in [&body, &spelled] {
            assert_eq!(api.post(&path, again).await, (StatusCode::OK, expected.clone()), "{engine:?}");
        }
        let fewer = json!({ "request_id": "r-2", "chains": ["BASE_MAINNET"] });
        let used = json!({ "request_id": "r-1", "chains": ["BASE_MAINNET"] });
        for other in [fewer, used] {
            let (status, problem) = api.post(&path, &other).await;
            assert_eq!((status.as_u16(), &problem["code"]), (409, &json!("IDEMPOTENCY_MISMATCH")), "{problem}");
        }
        let of_another = api.post(&format!("{PATH}/other/addresses"), &body).await;
        assert_eq!(of_another.0, StatusCode::CONFLICT, "the account is part of the request: {}", of_another.1);
        signer.set_away(false);
        let (status, second) = api.post(&path, &json!({ "request_id": "r-3", "chains": ["BASE_MAINNET"] })).await;
        assert_eq!(status, StatusCode::CREATED, "{second}");
        assert_ne!(second["addresses"][0]["address"], added["addresses"][0]["address"]);
        let rows = accounts::list(&mut api.db().read().await.unwrap()).await.unwrap();
        assert_eq!(rows[0].addresses.len(), 3 + 3 + 1, "each is watched, on the chains that were named");
    }
}

#[tokio::test]
async fn a_request_for_a_further_address_is_refused_by_the_names_of_its_fields() {
    let api = Api::signing(Engine::Sqlite, Arc::new(SignerDouble::default())).await;
    let identity = api.identity("i-1").await;
    let mut body = bare("r-1", "OMNIBUS");
    body["identity_id"] = json!(identity);
    let (_, opened) = api.post(PATH, &body).await;
    let path = format!("{PATH}/{}/addresses", opened["id"].as_str().unwrap());
    let chain = "must be one of ETHEREUM_MAINNET, POLYGON_MAINNET, ETHEREUM_TESTNET, OPTIMISM_SEPOLIA, BASE_MAINNET, \
                 BASE_SEPOLIA, OPTIMISM_MAINNET, POLYGON_AMOY, SOLANA_MAINNET, SOLANA_DEVNET";
    let id = "must be 1 to 128 visible ASCII characters without spaces";
    for (body, field, detail) in [
        (json!({ "request_id": "", "chains": ["BASE_MAINNET"] }), "request_id", id),
        (json!({ "request_id": "r", "chains": [] }), "chains", "must be 1 to 10 chains"),
        (json!({ "request_id": "r", "chains": ["CHAIN_UNSPECIFIED"] }), "chains[0]", chain),
        (json!({ "request_id": "r" }), "chains", "is required"),
        (
            json!({ "request_id": "r", "chains": ["BASE_MAINNET"], "address": ADDRESS }),
            "address",
            "is no field of this object: they are request_id, chains",
        ),
    ] {
        assert_refused(&api.post(&path, &body).await, &[(field, detail)]);
    }
    let one = json!({ "request_id": "r", "chains": ["BASE_MAINNET"] });
    api.change(&identity, Change::Suspend).await;
    assert_eq!(api.post(&path, &one).await.0, StatusCode::CREATED, "as accounts may be opened then");
    api.change(&identity, Change::Terminate).await;
    let closed = api.post(&path, &json!({ "request_id": "r-9", "chains": ["BASE_MAINNET"] })).await;
    assert_problem(&closed, 409, "ACCOUNT_NOT_ACTIVE", "the account is CLOSED, and gets no further address");
    assert_eq!(api.post(&path, &one).await.0, StatusCode::OK, "what was made is answered");
}

#[tokio::test]
async fn an_address_that_is_null_is_not_one_that_is_left_out() {
    let api = Api::signing(Engine::Sqlite, Arc::new(SignerDouble::default())).await;
    let refused = api.post(PATH, &having("r-1", "OMNIBUS", Value::Null)).await;
    assert_refused(&refused, &[("addresses", "must be a list")]);
    let addresses = json!([{ "chains": ["BASE_MAINNET"], "address": null }]);
    let refused = api.post(PATH, &having("r-1", "OMNIBUS", addresses)).await;
    assert_refused(&refused, &[("addresses[0].address", "must be a string")]);
}
