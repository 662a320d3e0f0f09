//! The health of the endpoints of events: which have something due, which fail, what is released to them.
//!
//! A row here is a webhook's; its URL and keys are in `webhooks.rs`. What follows from a failure is decided in
//! `delivery`. Nothing here waits for a row that another transaction holds.

use std::time::Duration;

use sqlx_macros::FromRow;

use crate::store::sinks::Kind;
use crate::store::sql::{execute, fetch_all, fetch_optional, statements};
use crate::store::{Connection, StoreError, Tx, parsed, uint};
use crate::time::Timestamp;

/// What is due within this time is not released: it comes by itself, and what was released and fails again is not
/// released once more.
const SOON: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Status {
    Active,
    /// It fails: one event is attempted now and then, and nothing else.
    Failing,
    /// By a person, until a person resumes it.
    Paused,
    /// It answered 410; until a person resumes it.
    Gone,
    Deleted,
}

/// What is remembered of an endpoint's attempts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Health {
    pub status: Status,
    pub since: Timestamp,
    /// Active: how many events failed in a row. Failing: those that opened the breaker, and each probe since then.
    pub failures: u32,
    /// The total weight of its failures in a row.
    pub strain: u32,
    /// How many may be under way at once.
    pub in_flight_max: u32,
    /// While it fails, nothing is attempted before this time; otherwise, nothing that has failed for seven days.
    pub probe_at: Timestamp,
    /// When a probe last began.
    pub probed_at: Timestamp,
}

/// An endpoint with something to do, and in which of its queues.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Busy {
    pub id: String,
    pub kind: Kind,
    pub url: String,
    pub health: Health,
    pub releasing: bool,
    pub first: bool,
    pub again: bool,
    /// A lease has ended without a result.
    pub lapsed: bool,
    /// A delivery has waited for an earlier event for very long.
    pub waiting: bool,
    /// A delivery that failed for seven days is due.
    pub held: bool,
    /// Something is not under way, due or not.
    pub any: bool,
}

statements! {
    // Without deleted endpoints, however many there are: their deliveries are held forever. Each EXISTS reads one row
    // of its own queue, whatever the backlog. The last condition is a scalar subquery: for a join PostgreSQL may read
    // all that is pending.
    BUSY = "SELECT webhooks.id, kind, url, status, status_since_us, failures, strain, in_flight_max, probe_us, probed_us, releasing, \
              EXISTS (SELECT 1 FROM deliveries WHERE webhook_id = webhooks.id AND state = 'PENDING' AND queue = 'FIRST') AS first, \
              EXISTS (SELECT 1 FROM deliveries WHERE webhook_id = webhooks.id AND state = 'PENDING' AND queue = 'AGAIN' AND next_us <= $1) AS again, \
              EXISTS (SELECT 1 FROM deliveries WHERE webhook_id = webhooks.id AND state = 'PENDING' AND queue = 'LEASED' AND next_us <= $1) AS lapsed, \
              EXISTS (SELECT 1 FROM deliveries WHERE webhook_id = webhooks.id AND state = 'PENDING' AND queue = 'WAITING' AND next_us <= $1) AS waiting, \
              EXISTS (SELECT 1 FROM deliveries WHERE webhook_id = webhooks.id AND state = 'PENDING' AND queue = 'HELD' AND next_us <= $1) AS held, \
              EXISTS (SELECT 1 FROM deliveries WHERE webhook_id = webhooks.id AND state = 'PENDING' AND queue IN ('FIRST', 'AGAIN', 'HELD')) AS any_left \
            FROM webhooks WHERE status <> 'DELETED' AND status IN ('ACTIVE', 'FAILING') \
            AND (SELECT state FROM deliveries WHERE webhook_id = webhooks.id AND state = 'PENDING' LIMIT 1) = 'PENDING' ORDER BY webhooks.id";
    HEALTH = "SELECT status, status_since_us, failures, strain, in_flight_max, probe_us, probed_us FROM webhooks WHERE id = $1" [" FOR NO KEY UPDATE"] "";
    SET_HEALTH = "UPDATE webhooks SET status = $2, status_since_us = $3, failures = $4, in_flight_max = $5, probe_us = $6, strain = $8 \
                  WHERE id = $1 AND status = $7";
    PROBE = "WITH free AS MATERIALIZED (SELECT id FROM webhooks WHERE id = $1 AND (probe_us <= $2 OR (probed_us <= $4 AND status_since_us <= $4)) \
               ORDER BY id LIMIT 1" [" FOR NO KEY UPDATE SKIP LOCKED"] ") \
            UPDATE webhooks SET probe_us = $3, probed_us = $2 WHERE id IN (SELECT id FROM free)";
    SET_RELEASING = "UPDATE webhooks SET releasing = TRUE WHERE id = $1";
    // Sees what is left even if another process that claims has just locked it.
    RELEASED = "WITH free AS MATERIALIZED (SELECT id FROM webhooks WHERE id = $1 ORDER BY id LIMIT 1" [" FOR NO KEY UPDATE SKIP LOCKED"] ") \
                UPDATE webhooks SET releasing = FALSE WHERE id IN (SELECT id FROM free) AND NOT EXISTS \
                  (SELECT 1 FROM deliveries WHERE webhook_id = $1 AND state = 'PENDING' AND queue = 'HELD') AND NOT EXISTS \
                  (SELECT 1 FROM deliveries WHERE webhook_id = $1 AND state = 'PENDING' AND queue = 'AGAIN' AND next_us > $2)";
    RELEASE_HELD = "WITH held AS MATERIALIZED (SELECT event_id FROM deliveries WHERE webhook_id = $1 AND state = 'PENDING' AND queue = 'HELD' \
                      ORDER BY next_us, event_id LIMIT $3" [" FOR UPDATE SKIP LOCKED"] ") \
                    UPDATE deliveries SET queue = 'AGAIN', failures = 0, next_us = $2 \
                    WHERE webhook_id = $1 AND event_id IN (SELECT event_id FROM held)";
    RELEASE_AGAIN = "WITH later AS MATERIALIZED (SELECT event_id FROM deliveries WHERE webhook_id = $1 AND state = 'PENDING' AND queue = 'AGAIN' \
                       AND next_us > $4 ORDER BY next_us DESC, event_id LIMIT $3" [" FOR UPDATE SKIP LOCKED"] ") \
                     UPDATE deliveries SET failures = 0, next_us = $2 WHERE webhook_id = $1 AND event_id IN (SELECT event_id FROM later)";
    PAUSE = "UPDATE webhooks SET status = 'PAUSED', status_since_us = $2 WHERE id = $1 AND status NOT IN ('PAUSED', 'DELETED')";
    RESUME = "UPDATE webhooks SET status = 'ACTIVE', status_since_us = $2, failures = 0, strain = 0, in_flight_max = 1, releasing = TRUE \
              WHERE id = $1 AND status IN ('PAUSED', 'GONE', 'FAILING')";
}

#[derive(FromRow)]
struct HealthRow {
    status: String,
    status_since_us: i64,
    failures: i64,
    strain: i64,
    in_flight_max: i64,
    probe_us: i64,
    probed_us: i64,
}

#[derive(FromRow)]
struct BusyRow {
    id: String,
    kind: String,
    url: String,
    #[sqlx(flatten)]
    health: HealthRow,
    releasing: bool,
    first: bool,
    again: bool,
    lapsed: bool,
    waiting: bool,
    held: bool,
    any_left: bool,
}

/// The endpoints that may get events and have some, due or not.
pub async fn busy(connection: &mut impl Connection, now: Timestamp) -> Result<Vec<Busy>, StoreError> {
    let rows = fetch_all!(connection, BusyRow, BUSY, now.0)?;
    let read = |row: BusyRow| {
        let BusyRow { id, kind, url, health, releasing, first, again, lapsed, waiting, held, any_left: any } = row;
        let kind = parsed("kind", &kind)?;
        Ok(Busy { id, kind, url, health: health.try_into()?, releasing, first, again, lapsed, waiting, held, any })
    };
    rows.into_iter().map(read).collect()
}

/// The health of an endpoint; no other transaction changes it until this one ends.
pub async fn health(tx: &mut Tx, id: &str) -> Result<Option<Health>, StoreError> {
    fetch_optional!(tx, HealthRow, HEALTH, id)?.map(Health::try_from).transpose()
}

/// Writes the new health; returns false, and writes nothing, if it no longer has the status `from`.
pub async fn set_health(tx: &mut Tx, id: &str, from: Status, health: Health) -> Result<bool, StoreError> {
    let Health { status, since, failures, strain, in_flight_max, probe_at, .. } = health;
    let [failures, strain, most] = [failures, strain, in_flight_max].map(i64::from);
    let changed =
        execute!(tx, SET_HEALTH, id, status.name(), since.0, failures, most, probe_at.0, from.name(), strain)?;
    Ok(changed == 1)
}

/// Claims the probe, if it is due or if none began since `since`; the next may be claimed at `until`. False if another
/// process claimed it.
pub async fn take_probe(
    tx: &mut Tx,
    id: &str,
    now: Timestamp,
    until: Timestamp,
    since: Option<Timestamp>,
) -> Result<bool, StoreError> {
    Ok(execute!(tx, PROBE, id, now.0, until.0, since.map_or(i64::MIN, |since| since.0))? == 1)
}

/// What failed is released from now on.
pub async fn set_releasing(tx: &mut Tx, id: &str) -> Result<(), StoreError> {
    execute!(tx, SET_RELEASING, id).map(drop)
}

/// Ends the release, unless another transaction holds this endpoint or something is left to release.
pub async fn released(tx: &mut Tx, id: &str, now: Timestamp) -> Result<(), StoreError> {
    execute!(tx, RELEASED, id, now.plus(SOON).0).map(drop)
}

/// Releases at most `limit` of those that are held; returns how many.
pub async fn release_held(tx: &mut Tx, id: &str, now: Timestamp, limit: u32) -> Result<u64, StoreError> {
    execute!(tx, RELEASE_HELD, id, now.0, i64::from(limit))
}

/// Makes at most `limit` of those that failed and would wait for longer than a minute due at once; returns how many.
pub async fn release_again(tx: &mut Tx, id: &str, now: Timestamp, limit: u32) -> Result<u64, StoreError> {
    execute!(tx, RELEASE_AGAIN, id, now.0, i64::from(limit), now.plus(SOON).0)
}

/// No attempt begins until a person resumes it. False if there is no such endpoint, or it is paused already.
pub async fn pause(tx: &mut Tx, id: &str, now: Timestamp) -> Result<bool, StoreError> {
    Ok(execute!(tx, PAUSE, id, now.0)? == 1)
}

/// All that is pending is attempted, carefully at first. False if it was not paused, gone or failing.
pub async fn resume(tx: &mut Tx, id: &str, now: Timestamp) -> Result<bool, StoreError> {
    Ok(execute!(tx, RESUME, id, now.0)? == 1)
}

impl Status {
    const ALL: [Status; 5] = [Status::Active, Status::Failing, Status::Paused, Status::Gone, Status::Deleted];

    pub fn name(self) -> &'static str {
        match self {
            Status::Active => "ACTIVE",
            Status::Failing => "FAILING",
            Status::Paused => "PAUSED",
            Status::Gone => "GONE",
            Status::Deleted => "DELETED",
        }
    }
}

impl std::str::FromStr for Status {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Status::ALL.into_iter().find(|status| status.name() == text).ok_or_else(|| text.to_owned())
    }
}

impl TryFrom<HealthRow> for Health {
    type Error = StoreError;

    fn try_from(row: HealthRow) -> Result<Self, StoreError> {
        let HealthRow { status, status_since_us, failures, strain, in_flight_max, probe_us, probed_us } = row;
        Ok(Health {
            status: parsed("status", &status)?,
            since: Timestamp(status_since_us),
            failures: uint("failures", failures)?,
            strain: uint("strain", strain)?,
            in_flight_max: uint("in_flight_max", in_flight_max)?,
            probe_at: Timestamp(probe_us),
            probed_at: Timestamp(probed_us),
        })
    }
}
