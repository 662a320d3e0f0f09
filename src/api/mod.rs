//! HTTP: the interface's requests, answered from the store.
//!
//! Promises: every request carries a valid key, and a signature once a public key is paired. Refusals come in the order
//! 401, 404 (path), 405, 403 (scope), 400, each as an RFC 9457 problem. A field or parameter that is not known is
//! refused, never ignored. No business rule lives here.
//!
//! The map:
//! - before a handler: `middleware` admits a request and gives it an id, `auth` checks key and signature, `scope` what
//!   the key may do, `limits`, `places` and `turns` how much is done at once;
//! - in a handler: each resource has a file; `query`, `time_bound` and `json` read the request, `cursor` finds the next
//!   page, `problem` is every refusal;
//! - beside requests: `by_hand` is what operators ask for by the same forms, `housekeeping` writes what was noted, `long_poll` wakes requests that wait for events;
//! - for readers: `openapi` is the document, `webhook_bodies` its part on what receivers are sent, `examples` its
//!   examples, and `browse` serves it.

mod accounts;
mod addresses;
mod assets;
mod auth;
mod balances;
mod browse;
mod by_hand;
mod coverage;
mod cursor;
mod deposits;
mod events;
mod examples;
mod gas;
mod housekeeping;
mod identities;
mod json;
mod limits;
mod long_poll;
mod middleware;
mod nonces;
mod openapi;
mod places;
mod policies;
mod problem;
mod query;
mod scope;
mod settings;
mod time_bound;
mod transfers;
mod turns;
mod webhook_bodies;
mod webhooks;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use tokio_util::sync::CancellationToken;

use crate::key::{Environment, Scope};
use crate::store::{Db, StoreError};
use crate::time::Clock;

pub use by_hand::{Refusal, TransferAsked, add_addresses, create_transfer};
pub use deposits::DepositResource;
pub use gas::GasCreditResource;
use housekeeping::LastUsed;
use limits::Gate;
pub use limits::counted_as;
use long_poll::Tail;
use middleware::RequestIds;
use nonces::Nonces;
pub use openapi::openapi_json;
pub use policies::PolicyResource;
use problem::Problem;
use scope::{needs, needs_and_may_wait, signed};
pub use settings::{Limits, Settings};
pub use transfers::TransferResource;
use turns::Turns;

/// How many connections to the store requests use for reading, and how many for writing. The others are left to
/// watchers and workers.
const READERS: u32 = 8;
const WRITERS: u32 = 4;
/// How many accounts are opened at the same time: each holds up the chains of its addresses. Two, because one may wait
/// for a chain that somebody else holds.
const OPENED_AT_ONCE: usize = 2;

/// The API over a store.
#[derive(Clone, Debug)]
pub struct Api(AppState);

/// What all handlers share.
#[derive(Clone, Debug)]
struct AppState {
    db: Db,
    clock: Clock,
    settings: Arc<Settings>,
    request_ids: Arc<RequestIds>,
    gate: Arc<Gate>,
    nonces: Arc<Nonces>,
    last_used: Arc<LastUsed>,
    tail: Arc<Tail>,
    /// For opening accounts.
    turns: Arc<Turns>,
    /// Ends requests that wait.
    stop: CancellationToken,
}

impl Api {
    pub fn new(db: Db, settings: Settings, clock: Clock) -> Self {
        Api(AppState {
            db: db.with_share(READERS, WRITERS),
            request_ids: Arc::new(RequestIds::new(clock.now())),
            gate: Arc::new(Gate::new(&settings.limits)),
            settings: Arc::new(settings),
            clock,
            nonces: Arc::default(),
            last_used: Arc::default(),
            tail: Arc::default(),
            turns: Arc::new(Turns::of(OPENED_AT_ONCE)),
            stop: CancellationToken::new(),
        })
    }

    /// Requests that wait are answered at once when `stop` comes.
    #[must_use]
    pub fn stopped_by(self, stop: CancellationToken) -> Self {
        Api(AppState { stop, ..self.0 })
    }

    /// The whole interface.
    pub fn router(&self) -> Router {
        let state = self.0.clone();
        let hooks = |route| needs(Scope::Webhooks, route);
        let routes = Router::new()
            .route(
                "/v2/accounts",
                needs(Scope::Read, get(accounts::list)).merge(needs(Scope::Write, post(accounts::open))),
            )
            .route("/v2/accounts/{account_id}", needs(Scope::Read, get(accounts::by_id)))
            .route("/v2/accounts/{account_id}/addresses", needs(Scope::Write, post(addresses::add)))
            .route("/v2/accounts/{account_id}/balances", needs(Scope::Read, get(balances::of_account)))
            .route("/v2/accounts/{account_id}/coverage", needs(Scope::Read, get(coverage::of_account)))
            .route("/v2/assets", needs(Scope::Read, get(assets::list)))
            .route("/v2/events", needs_and_may_wait(Scope::Read, events::WAIT_MAX, get(events::list)))
            .route("/v2/gas-credit", needs(Scope::Read, get(gas::credit)))
            .route("/v2/identities", needs(Scope::Write, post(identities::open)))
            .route("/v2/identities/{identity_id}", needs(Scope::Read, get(identities::by_id)))
            .route("/v2/crypto/deposits", needs(Scope::Read, get(deposits::list)))
            .route("/v2/crypto/deposits/{deposit_id}", needs(Scope::Read, get(deposits::by_id)))
            .route(
                "/v2/crypto/transfers",
                needs(Scope::Read, get(transfers::list)).merge(signed(
                    state.settings.require_signed_transfers,
                    needs(Scope::Transfers, post(transfers::create)),
                )),
            )
            .route("/v2/crypto/transfers/{transfer_id}", needs(Scope::Read, get(transfers::by_id)))
            .route("/v2/transaction-limits/policies/{policy_id}", needs(Scope::Read, get(policies::by_id)))
            .route("/v2/webhooks", hooks(get(webhooks::list).post(webhooks::create)))
            .route("/v2/webhooks/{webhook_id}", hooks(get(webhooks::by_id).delete(webhooks::delete)))
            .route("/v2/webhooks/{webhook_id}/rotate-key", hooks(post(webhooks::rotate_key)))
            .route("/v2/webhooks/{webhook_id}/test", hooks(post(webhooks::test)))
            .method_not_allowed_fallback(async || Problem::method_not_allowed())
            .fallback(async || Problem::nothing_here())
            .with_state(state.clone());
        // Around the whole router, not on each route: with a refused key a client must not learn from `Allow` which
        // paths exist.
        Router::new()
            .fallback_service(routes)
            // `auth` bounds the body. The limit of axum, 2 MB, would be below what may be configured.
            .layer(DefaultBodyLimit::disable())
            .layer(from_fn_with_state(state.clone(), auth::require_key))
            .merge(browse::routes(&state))
            .layer(from_fn_with_state(state, middleware::answer))
    }

    /// How many requests wait for an event.
    pub fn waiting(&self) -> usize {
        self.0.tail.waiting()
    }

    /// Writes when keys were last used, and deletes what is no longer needed.
    ///
    /// # Errors
    /// When the store cannot be written; nothing is lost by it.
    pub async fn tick(&self) -> Result<(), StoreError> {
        housekeeping::tick(&self.0).await
    }

    /// Ticks again and again, and wakes requests that wait for events, until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let AppState { tail, db, .. } = self.0.clone();
        tokio::join!(housekeeping::run(self.0, stop.clone()), tail.run(&db, &stop));
    }
}

/// The API with default settings. Keys of another environment than `environment` are refused.
pub fn router(db: Db, environment: Environment) -> Router {
    Api::new(db, Settings::of(environment), Clock::system()).router()
}
