//! Endpoints that are no webhooks: set by the operator's configuration, never by clients of the API.
//!
//! A sink is a row among the webhooks, so that queues, order, breaker and replay are the same; clients never see it.
//! Each process reports its connection in a table beside it.

use std::time::Duration;

use sqlx_macros::FromRow;

use crate::store::sql::{execute, fetch_all, fetch_optional, statements};
use crate::store::{Connection, ORGANIZATION, StoreError, Tx, deliveries, identities, parsed, uint};
use crate::time::Timestamp;

/// The endpoint of a NATS stream.
pub const NATS: &str = "nats";
/// For how long a report that the sink is up counts.
const REPORT_COUNTS: Duration = Duration::from_secs(30);

/// How events are sent to an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Webhook,
    Nats,
}

/// The state of a sink's connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    Up,
    /// It cannot be reached.
    Away,
    /// It can be reached, but is not what it must be: a person must repair it.
    Refused,
}

/// What a process reports of its connection to a sink.
#[derive(Clone, Copy, Debug)]
pub struct SinkReport<'a> {
    pub owner: &'a str,
    pub state: State,
    /// Why it is not up; empty if it is.
    pub reason: &'a str,
}

/// The last report of a sink.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SinkStatus {
    pub id: String,
    /// The endpoint's status, as `endpoints::Status` names it.
    pub status: String,
    /// `None` before the first report.
    pub state: Option<State>,
    pub reason: String,
    pub since: Timestamp,
    pub heartbeat_at: Timestamp,
    pub pending: u64,
    /// Since when an event waits for it, see [`deliveries::Age`].
    pub oldest_at: Option<Timestamp>,
}

statements! {
    IS_KEPT = "SELECT 1 FROM webhooks WHERE id = $1 AND kind = $2 AND url = $3 AND status <> 'DELETED'";
    ENSURE = "INSERT INTO webhooks (id, kind, organization_id, url, label, status, allowed_networks, signing_key_id, \
              signing_key, signing_key_created_us, created_us) VALUES ($1, $2, $3, $4, '', 'ACTIVE', '', '', '', $5, $5) \
              ON CONFLICT (id) DO UPDATE SET url = excluded.url, \
              status_since_us = CASE webhooks.status WHEN 'DELETED' THEN excluded.created_us ELSE webhooks.status_since_us END, \
              failures = CASE webhooks.status WHEN 'DELETED' THEN 0 ELSE webhooks.failures END, \
              strain = CASE webhooks.status WHEN 'DELETED' THEN 0 ELSE webhooks.strain END, \
              in_flight_max = CASE webhooks.status WHEN 'DELETED' THEN 1 ELSE webhooks.in_flight_max END, \
              releasing = webhooks.releasing OR webhooks.status = 'DELETED', \
              status = CASE webhooks.status WHEN 'DELETED' THEN 'ACTIVE' ELSE webhooks.status END";
    GIVE_UP = "UPDATE webhooks SET status = 'DELETED', status_since_us = $2 WHERE id = $1 AND kind <> 'WEBHOOK' AND status <> 'DELETED'";
    SAY = "INSERT INTO sink_status (id, owner, state, reason, since_us, heartbeat_us) VALUES ($1, $2, $3, $4, $5, $5) \
           ON CONFLICT (id) DO UPDATE SET owner = excluded.owner, state = excluded.state, reason = excluded.reason, \
           since_us = CASE sink_status.state WHEN excluded.state THEN sink_status.since_us ELSE excluded.since_us END, \
           heartbeat_us = excluded.heartbeat_us \
           WHERE sink_status.owner = excluded.owner OR excluded.state = 'up' OR sink_status.state <> 'up' OR sink_status.heartbeat_us <= $6";
    ALL = "SELECT webhooks.id, webhooks.status, COALESCE(state, '') AS state, COALESCE(reason, '') AS reason, \
           COALESCE(since_us, 0) AS since_us, COALESCE(heartbeat_us, 0) AS heartbeat_us, \
           (SELECT COUNT(*) FROM deliveries WHERE webhook_id = webhooks.id AND deliveries.state = 'PENDING') AS pending \
           FROM webhooks LEFT JOIN sink_status ON sink_status.id = webhooks.id \
           WHERE kind <> 'WEBHOOK' AND webhooks.status <> 'DELETED' ORDER BY webhooks.id";
}

#[derive(FromRow)]
struct Row {
    id: String,
    status: String,
    state: String,
    reason: String,
    since_us: i64,
    heartbeat_us: i64,
    pending: i64,
}

/// From now on events are kept for the sink. One that was given up starts anew, one that is paused stays so.
pub async fn ensure(tx: &mut Tx, id: &str, kind: Kind, url: &str, now: Timestamp) -> Result<(), StoreError> {
    // If nothing is new, a starting process must not wait for events that are being written.
    if fetch_optional!(tx, (i32,), IS_KEPT, id, kind.name(), url)?.is_some() {
        return Ok(());
    }
    identities::lock_organization(tx).await?;
    execute!(tx, ENSURE, id, kind.name(), ORGANIZATION, url, now.0).map(drop)
}

/// No further event is kept for the sink; what was not delivered to it is held. False if there is no such sink.
pub async fn give_up(tx: &mut Tx, id: &str, now: Timestamp) -> Result<bool, StoreError> {
    Ok(execute!(tx, GIVE_UP, id, now.0)? == 1)
}

/// Records a process's report; "not up" does not replace a fresh "up" of another process.
pub async fn say(tx: &mut Tx, id: &str, report: SinkReport<'_>, now: Timestamp) -> Result<(), StoreError> {
    let SinkReport { owner, state, reason } = report;
    execute!(tx, SAY, id, owner, state.name(), reason, now.0, now.minus(REPORT_COUNTS).0).map(drop)
}

/// Every sink that was not given up.
pub async fn all(connection: &mut impl Connection) -> Result<Vec<SinkStatus>, StoreError> {
    let mut sinks = Vec::new();
    for row in fetch_all!(connection, Row, ALL)? {
        let oldest_at = deliveries::age(connection, &row.id).await?.waits_since;
        sinks.push(SinkStatus::of(row, oldest_at)?);
    }
    Ok(sinks)
}

impl Kind {
    const ALL: [Kind; 2] = [Kind::Webhook, Kind::Nats];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Webhook => "WEBHOOK",
            Kind::Nats => "NATS",
        }
    }
}

impl State {
    const ALL: [State; 3] = [State::Up, State::Away, State::Refused];

    pub fn name(self) -> &'static str {
        match self {
            State::Up => "up",
            State::Away => "away",
            State::Refused => "refused",
        }
    }
}

impl std::str::FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Kind::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| text.to_owned())
    }
}

impl std::str::FromStr for State {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        State::ALL.into_iter().find(|state| state.name() == text).ok_or_else(|| text.to_owned())
    }
}

impl SinkStatus {
    fn of(row: Row, oldest_at: Option<Timestamp>) -> Result<Self, StoreError> {
        let Row { id, status, state, reason, since_us, heartbeat_us, pending } = row;
        Ok(SinkStatus {
            id,
            status,
            state: (!state.is_empty()).then(|| parsed("state", &state)).transpose()?,
            reason,
            since: Timestamp(since_us),
            heartbeat_at: Timestamp(heartbeat_us),
            pending: uint("count", pending)?,
            oldest_at,
        })
    }
}
