//! The admin listener: `/livez`, `/readyz`, `/status`. For machines beside this one; no key, so bound to loopback by
//! default.
//!
//! `/livez` says that the workers' loops turn, and asks neither store nor node: a store that is down must not make
//! a supervisor restart everything.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};

use crate::health::{HEARTBEAT_MAX, Status};
use crate::store::Db;
use crate::time::{Clock, Pulse};

#[derive(Clone, Debug)]
struct Admin {
    db: Db,
    clock: Clock,
    pulses: Vec<Pulse>,
}

/// The admin routes; `pulses` are those of the workers.
pub fn router(db: Db, clock: Clock, pulses: Vec<Pulse>) -> Router {
    Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/status", get(status))
        .with_state(Admin { db, clock, pulses })
}

async fn livez(State(admin): State<Admin>) -> Response {
    let now = admin.clock.now();
    match admin.pulses.iter().find(|pulse| now.since(pulse.last()) > HEARTBEAT_MAX) {
        None => "ok\n".into_response(),
        Some(pulse) => (StatusCode::SERVICE_UNAVAILABLE, format!("{} does not turn\n", pulse.name())).into_response(),
    }
}

async fn readyz(State(admin): State<Admin>) -> Response {
    match admin.db.check_schema().await {
        Ok(()) => "ok\n".into_response(),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")).into_response(),
    }
}

async fn status(State(admin): State<Admin>) -> Response {
    match Status::read(&admin.db, admin.clock.now()).await {
        Ok(status) => Json(status).into_response(),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")).into_response(),
    }
}
