//! HTTP: the interface's requests, answered from the store.
//!
//! Promises: every request carries a valid key; refusals come in the order 401, 404 (path), 405, 400, each as an
//! RFC 9457 problem; what a request does not know is refused, never ignored. No business rule lives here.
//!
//! The map: `auth` checks the key, `deposits` and `webhooks` are the resources, `query`, `time_bound` and `body` read
//! what is asked, `cursor` finds the next page, `problem` is every refusal, `openapi` describes it all.

mod auth;
mod body;
mod cursor;
mod deposits;
mod openapi;
mod problem;
mod query;
mod time_bound;
mod webhooks;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};

use crate::key::Environment;
use crate::resolver::Resolver;
use crate::store::Db;
use crate::time::Clock;

pub use deposits::DepositResource;
pub use openapi::openapi_json;
use problem::Problem;

/// What handlers share.
#[derive(Clone, Debug)]
struct AppState {
    db: Db,
    environment: Environment,
    clock: Clock,
    resolver: Resolver,
}

/// The whole interface. Keys of another environment than `environment` are refused.
pub fn router(db: Db, environment: Environment) -> Router {
    router_with(db, environment, Clock::system(), Resolver::system())
}

/// As [`router`], with a clock and a resolver of one's own.
pub fn router_with(db: Db, environment: Environment, clock: Clock, resolver: Resolver) -> Router {
    let state = AppState { db, environment, clock, resolver };
    let routes = Router::new()
        .route("/v2/crypto/deposits", get(deposits::list))
        .route("/v2/crypto/deposits/{deposit_id}", get(deposits::by_id))
        .route("/v2/webhooks", get(webhooks::list).post(webhooks::create))
        .route("/v2/webhooks/{webhook_id}", get(webhooks::by_id).delete(webhooks::delete))
        .route("/v2/webhooks/{webhook_id}/rotate-key", post(webhooks::rotate_key))
        .route("/v2/webhooks/{webhook_id}/test", post(webhooks::test))
        .method_not_allowed_fallback(async || Problem::method_not_allowed())
        .fallback(async || Problem::not_found("there is nothing at this path"))
        .with_state(state.clone());
    // Around the routes and not on each of them: a refused key must not learn from `Allow` which paths there are.
    Router::new().fallback_service(routes).layer(from_fn_with_state(state, auth::require_key))
}
