//! HTTP: the interface's requests, answered from the store.
//!
//! Promises: every request carries a valid key; refusals come in the order 401, 404 (path), 405, 400, each as an
//! RFC 9457 problem; what a request does not know is refused, never ignored. No business rule lives here.
//!
//! The map: `auth` checks the key, each resource has a file, `query`, `time_bound` and `body` read what was sent, `cursor`
//! finds the next page, `problem` is every refusal, `openapi` describes it all.

mod accounts;
mod assets;
mod auth;
mod body;
mod coverage;
mod cursor;
mod deposits;
mod identities;
mod openapi;
mod problem;
mod query;
mod time_bound;

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use landfall_chain::Network;

use crate::key::Environment;
use crate::store::Db;
use crate::time::Clock;

pub use deposits::DepositResource;
pub use openapi::openapi_json;
use problem::Problem;

/// What the interface needs to know beside the store.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Keys of another one are refused.
    pub environment: Environment,
    pub clock: Clock,
    /// The chains that are followed.
    pub networks: Vec<Network>,
}

/// What handlers share.
#[derive(Clone, Debug)]
struct AppState {
    db: Db,
    environment: Environment,
    clock: Clock,
    networks: Arc<[Network]>,
}

/// The whole interface.
pub fn router(db: Db, settings: Settings) -> Router {
    let Settings { environment, clock, networks } = settings;
    let state = AppState { db, environment, clock, networks: networks.into() };
    let routes = Router::new()
        .route("/v2/accounts", get(accounts::list).post(accounts::open))
        .route("/v2/accounts/{account_id}", get(accounts::by_id))
        .route("/v2/accounts/{account_id}/coverage", get(coverage::of_account))
        .route("/v2/assets", get(assets::list))
        .route("/v2/identities", post(identities::open))
        .route("/v2/identities/{identity_id}", get(identities::by_id))
        .route("/v2/crypto/deposits", get(deposits::list))
        .route("/v2/crypto/deposits/{deposit_id}", get(deposits::by_id))
        .method_not_allowed_fallback(async || Problem::method_not_allowed())
        .fallback(async || Problem::not_found("there is nothing at this path"))
        .with_state(state.clone());
    // Around the routes and not on each of them: a refused key must not learn from `Allow` which paths there are.
    Router::new().fallback_service(routes).layer(from_fn_with_state(state, auth::require_key))
}
