//! The admin listener: `/livez`, `/readyz`, `/status`, `/metrics`. It is for programs on this machine. It asks for no
//! key, so it listens on loopback by default.
//!
//! `/livez` reports that the workers' loops run, and asks neither store nor node. Else a supervisor would restart
//! everything while only the store is down.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use landfall_chain::Chain;

use crate::health::{HEARTBEAT_MAX, Status, metrics};
use crate::hosts;
use crate::store::Db;
use crate::time::{Clock, Pulse};

/// How far something may be behind before it is counted as a complaint: as `landfall health` has it.
const LAG_MAX: Duration = Duration::from_secs(60);

/// What can be asked once the store is open: the store, the workers' pulses, and the chains that are followed.
#[derive(Debug)]
pub struct Started {
    pub db: Db,
    pub pulses: Vec<Pulse>,
    pub chains: BTreeSet<Chain>,
}

#[derive(Clone, Debug)]
struct Admin {
    started: Arc<OnceLock<Started>>,
    clock: Clock,
}

/// The admin routes, under an address, `localhost` or `host`. While `started` is empty, the process waits for the
/// store: it is alive, but not ready.
pub fn router(started: Arc<OnceLock<Started>>, clock: Clock, host: Option<String>) -> Router {
    let routes = Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/status", get(status))
        .route("/metrics", get(metrics))
        .with_state(Admin { started, clock });
    hosts::only(routes, host.into_iter().collect(), "admin.host")
}

async fn livez(State(admin): State<Admin>) -> Response {
    let now = admin.clock.now();
    let pulses = admin.started.get().map(|started| started.pulses.as_slice()).unwrap_or_default();
    match pulses.iter().find(|pulse| now.since(pulse.last()) > HEARTBEAT_MAX) {
        None => "ok\n".into_response(),
        Some(pulse) => unavailable(format!("{} does not turn", pulse.name())),
    }
}

async fn readyz(State(admin): State<Admin>) -> Response {
    let Some(started) = admin.started.get() else { return not_open() };
    match started.db.check_schema().await {
        Ok(()) => "ok\n".into_response(),
        Err(error) => unavailable(error),
    }
}

async fn status(State(admin): State<Admin>) -> Response {
    let Some(started) = admin.started.get() else { return not_open() };
    match Status::read(&started.db, admin.clock.now()).await {
        Ok(status) => Json(status.of_configured(&started.chains)).into_response(),
        Err(error) => unavailable(error),
    }
}

async fn metrics(State(admin): State<Admin>) -> Response {
    let Some(started) = admin.started.get() else { return not_open() };
    match Status::read(&started.db, admin.clock.now()).await {
        Ok(status) => {
            let complaints = status.complaints(&started.chains, LAG_MAX).len();
            let text = metrics::rendered(&status.of_configured(&started.chains), complaints);
            ([(CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
        }
        Err(error) => unavailable(error),
    }
}

fn not_open() -> Response {
    unavailable("the store is not open yet")
}

fn unavailable(why: impl Display) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response()
}
