//! Which scope a route needs, stated beside the route for each of its methods, how long it may take, and whether it must be
//! signed.
//!
//! `needs(Scope::Read, get(list)).merge(needs(Scope::Write, post(create)))`. Promises: a refusal comes after 404 and
//! 405, and before anything of the request is read. A handler is cut off when its time is over. A test compares each
//! operation of the document with what its route refuses.

use std::time::Duration;

use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::routing::MethodRouter;

use crate::api::AppState;
use crate::api::problem::Problem;
use crate::key::{Scope, Scopes};

/// The sender of a request whose key and signature are good.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    /// The id of its key.
    pub key_id: String,
    pub scopes: Scopes,
    /// A paired key signed it.
    pub is_signed: bool,
    /// How long the answer may take.
    pub patience: Duration,
}

impl Caller {
    /// How the audit names it.
    pub(super) fn actor(&self) -> String {
        format!("API key {}", self.key_id)
    }
}

/// These methods of a route, for keys with this scope only.
pub(super) fn needs(scope: Scope, route: MethodRouter<AppState>) -> MethodRouter<AppState> {
    needs_and_may_wait(scope, Duration::ZERO, route)
}

/// As [`needs`], for methods that may wait for something before they answer, for up to this time.
pub(super) fn needs_and_may_wait(
    scope: Scope,
    wait: Duration,
    route: MethodRouter<AppState>,
) -> MethodRouter<AppState> {
    route.route_layer(from_fn(move |request: Request, next: Next| check((scope, wait), request, next)))
}

/// These methods of a route, where `compulsory` for signed requests only. Stated around [`needs`], so that it comes before the scope.
pub(super) fn signed(compulsory: bool, route: MethodRouter<AppState>) -> MethodRouter<AppState> {
    if compulsory { route.route_layer(from_fn(check_signed)) } else { route }
}

async fn check_signed(request: Request, next: Next) -> Result<Response, Problem> {
    let caller = request.extensions().get::<Caller>().ok_or_else(Problem::failed)?;
    if !caller.is_signed {
        let what = "a transfer is created here by signed requests only: pair a public key with this API key, and send \
                    `X-Request-Signature: <JWT>`";
        return Err(Problem::unauthorized(what.to_owned()));
    }
    Ok(next.run(request).await)
}

async fn check((scope, wait): (Scope, Duration), request: Request, next: Next) -> Result<Response, Problem> {
    // Without a caller the request has bypassed the check of its key, which must not happen.
    let caller = request.extensions().get::<Caller>().ok_or_else(Problem::failed)?;
    if !caller.scopes.give(scope) {
        return Err(Problem::forbidden(scope));
    }
    tokio::time::timeout(caller.patience + wait, next.run(request)).await.map_err(|_| Problem::timeout())
}
