//! What is to be sent where: claimed for a time, and fenced by the number of the attempt.
//!
//! A delivery is leased only if every earlier event of the same deposit is delivered to that webhook. One that is
//! claimed too early is put aside (WAITING) until the earlier one has arrived, so that no claim walks over it again. An
//! ack changes a row only while it still has the claimed attempt's number: a late ack changes nothing.

use std::time::Duration;

use sqlx_macros::FromRow;

use crate::store::sinks::Kind;
use crate::store::sql::{execute, fetch_all, fetch_optional, statements};
use crate::store::{Connection, StoreError, Tx, int, parsed, uint};
use crate::time::Timestamp;

/// When a delivery that was put aside because of an ack under way is tried again.
const GIVEN_BACK: Duration = Duration::from_millis(50);
/// When a waiting delivery is tried again, even if no ack has made it due.
const LOOKED_AT_AGAIN: Duration = Duration::from_secs(60 * 60);
/// How many attempts of one delivery stay on record.
const ATTEMPTS_KEPT_MAX: u32 = 50;
/// The age of a queue is taken from so many of its deliveries: those that are due first.
pub(super) const HEAD_MAX: i64 = 1_000;

/// Among how many of a queue the last failure is looked for.
const FAILED_MAX: i64 = 100;

/// A delivery that is ours to attempt until its lease ends.
#[derive(Clone, PartialEq, Eq)]
pub struct Claimed {
    pub event_id: String,
    pub webhook_id: String,
    pub aggregate_id: String,
    /// The position of its event among those of its deposit.
    pub position: i64,
    /// 1 for the first attempt.
    pub attempt: u32,
    /// How many attempts have failed since it was written or replayed.
    pub failures: u32,
    /// Its event's `type`, and the event's account; that is empty for an event of an identity.
    pub event_type: String,
    pub account_id: String,
    pub payload: String,
    pub kind: Kind,
    pub url: String,
    /// The internal networks that the webhook may reach, separated by commas.
    pub allowed_networks: String,
    /// Secrets, separated by spaces: each signs.
    pub signing_key: String,
}

/// How an attempt went, for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AttemptLog {
    pub started_at: Timestamp,
    pub duration: Duration,
    pub status: Option<u16>,
    /// Empty if it was delivered.
    pub error: String,
    pub response_head: String,
    /// How long the receiver asks us to wait.
    pub retry_after: Option<Duration>,
}

/// A claim under way: its number, its time, the end of its lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claim {
    /// Unique to this claim.
    pub owner: i64,
    pub now: Timestamp,
    pub lease_until: Timestamp,
}

/// How many were leased of a queue: those that were never attempted before, and those that were.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Taken {
    pub first: u32,
    pub again: u32,
    /// How many others were put aside because of an earlier event.
    pub aside: u32,
}

/// How old the undelivered events of a webhook are; `None` if all are delivered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Age {
    /// When the oldest event was made.
    pub made_at: Option<Timestamp>,
    /// Since when an event waits: since it was first due, or if it has failed, since it was made.
    pub waits_since: Option<Timestamp>,
}

/// How an attempt failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    pub event_id: String,
    pub at: Timestamp,
    pub error: String,
}

/// Where a delivery stands that is to be attempted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Queue {
    First,
    Again,
    /// Its lease has ended.
    Lapsed,
    /// It has waited for an earlier event for so long that it is tried again.
    Waiting,
    Held,
}

statements! {
    // A materialized list: PostgreSQL may run a subquery with a limit again for each row, and claim more than the
    // limit.
    TAKE = "WITH claimable AS MATERIALIZED (SELECT event_id FROM deliveries \
              WHERE webhook_id = $1 AND state = 'PENDING' AND queue = $2 AND next_us <= $3 \
              ORDER BY next_us, event_id LIMIT $4" [" FOR UPDATE SKIP LOCKED"] ") \
            UPDATE deliveries SET queue = 'LEASED', attempt = attempt + 1, owner = $5, next_us = $6 \
            WHERE webhook_id = $1 AND event_id IN (SELECT event_id FROM claimable) RETURNING position, attempt";
    // The conditions on owner and deposit are written so that no index of a whole queue fits them: a planner without
    // statistics would walk over a backlog with it. The earlier delivery is locked, so whoever acknowledges it waits,
    // and then finds this one waiting. One that is being acknowledged right now cannot be locked; its followers wait
    // for a moment only.
    PARK = "UPDATE deliveries SET queue = 'WAITING', attempt = attempt - 1, next_us = $3 \
            WHERE owner = $1 AND webhook_id = $2 AND queue = 'LEASED' AND state <> 'DELIVERED' AND EXISTS \
              (SELECT 1 FROM deliveries AS earlier WHERE earlier.webhook_id = deliveries.webhook_id \
               AND earlier.aggregateid = deliveries.aggregateid AND earlier.position < deliveries.position AND earlier.state <> 'DELIVERED'" [" FOR SHARE SKIP LOCKED"] ") \
            RETURNING attempt";
    GIVE_BACK = "UPDATE deliveries SET queue = 'WAITING', attempt = attempt - 1, next_us = $3 \
                 WHERE owner = $1 AND webhook_id = $2 AND queue = 'LEASED' AND state <> 'DELIVERED' AND EXISTS \
                   (SELECT 1 FROM deliveries AS earlier WHERE earlier.webhook_id = deliveries.webhook_id \
                    AND earlier.aggregateid = deliveries.aggregateid AND earlier.position < deliveries.position AND earlier.state <> 'DELIVERED') \
                 RETURNING attempt";
    TAKEN = "SELECT event_id, webhook_id, deliveries.aggregateid AS aggregate_id, deliveries.position, attempt, deliveries.failures, \
             type AS event_type, account_id, payload, kind, url, allowed_networks, \
             signing_key || CASE WHEN previous_key_expires_us > $2 AND previous_signing_key <> '' THEN ' ' || previous_signing_key \
             ELSE '' END AS signing_key FROM deliveries \
             JOIN events ON events.id = deliveries.event_id JOIN webhooks ON webhooks.id = deliveries.webhook_id \
             WHERE owner = $1 AND queue = 'LEASED' AND state <> 'DELIVERED' ORDER BY events.created_us, event_id, webhook_id";
    DELIVERED = "UPDATE deliveries SET state = 'DELIVERED', queue = 'DONE' \
                 WHERE event_id = $1 AND webhook_id = $2 AND attempt = $3 AND state = 'PENDING' AND queue = 'LEASED'";
    // Also updates those that do not wait: one that is just being put aside is locked, and is WAITING when we get it.
    NEXT = "UPDATE deliveries SET next_us = CASE queue WHEN 'WAITING' THEN $4 ELSE next_us END, \
            queue = CASE WHEN queue <> 'WAITING' THEN queue WHEN attempt = 0 THEN 'FIRST' ELSE 'AGAIN' END \
            WHERE webhook_id = $1 AND aggregateid = $2 AND position > $3 AND state <> 'DELIVERED'";
    // Like NEXT, it waits for the holder of a row and sees the outcome. A delivery that is then leased has no attempt
    // that counts.
    CALL_OFF = "UPDATE deliveries SET next_us = CASE queue WHEN 'LEASED' THEN $4 ELSE next_us END, \
                queue = CASE queue WHEN 'LEASED' THEN 'WAITING' ELSE queue END \
                WHERE webhook_id = $1 AND aggregateid = $2 AND position > $3 AND state <> 'DELIVERED'";
    RETRY = "UPDATE deliveries SET queue = $5, next_us = $4, failures = failures + CASE WHEN EXISTS \
               (SELECT 1 FROM webhooks WHERE id = $2 AND status = 'FAILING' AND status_since_us > $6) THEN 0 ELSE 1 END \
             WHERE event_id = $1 AND webhook_id = $2 AND attempt = $3 AND state = 'PENDING' AND queue = 'LEASED'";
    LOG = "INSERT INTO attempts (event_id, webhook_id, attempt, started_us, duration_us, status, error, response_head) \
           VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (event_id, webhook_id, attempt) DO NOTHING";
    LAST_ATTEMPT = "SELECT attempt, started_us, duration_us, status, error, response_head FROM attempts \
                    WHERE event_id = $1 AND webhook_id = $2 ORDER BY attempt DESC LIMIT 1";
    LAST_FAILURE = "SELECT attempts.event_id, started_us, error FROM (SELECT event_id FROM deliveries WHERE webhook_id = $1 \
                      AND state = 'PENDING' AND queue = $2 ORDER BY next_us, event_id LIMIT $3) AS head \
                    JOIN attempts ON attempts.event_id = head.event_id AND attempts.webhook_id = $1 \
                    WHERE error <> '' ORDER BY started_us DESC, attempts.event_id LIMIT 1";
    AGE = "SELECT MIN(events.created_us), MIN(CASE WHEN failures > 0 OR queue = 'HELD' THEN events.created_us ELSE next_us END) \
           FROM (SELECT event_id, failures, queue, next_us FROM deliveries WHERE webhook_id = $1 AND state = 'PENDING' AND queue = $2 \
             ORDER BY next_us, event_id LIMIT $3) AS head JOIN events ON events.id = head.event_id";
    FORGET = "DELETE FROM attempts WHERE event_id = $1 AND webhook_id = $2 AND attempt <= $3";
}

#[derive(FromRow)]
struct ClaimedRow {
    event_id: String,
    webhook_id: String,
    aggregate_id: String,
    position: i64,
    attempt: i64,
    failures: i64,
    event_type: String,
    account_id: String,
    payload: String,
    kind: String,
    url: String,
    allowed_networks: String,
    signing_key: String,
}

impl Claim {
    /// Leases at most `limit` due deliveries of a queue, those that have waited longest. What was never attempted is
    /// due whatever time its writer's clock gave it.
    pub async fn take(self, tx: &mut Tx, webhook: &str, queue: Queue, limit: u32) -> Result<Taken, StoreError> {
        let due = if queue == Queue::First { Timestamp(i64::MAX) } else { self.now };
        self.take_due(tx, webhook, queue, due, limit).await
    }

    /// Leases one of a queue, due or not; but a lease must have ended, and one that waits for another event must be
    /// due.
    pub async fn take_one(self, tx: &mut Tx, webhook: &str, queue: Queue) -> Result<Taken, StoreError> {
        let due = if matches!(queue, Queue::Lapsed | Queue::Waiting) { self.now } else { Timestamp(i64::MAX) };
        self.take_due(tx, webhook, queue, due, 1).await
    }

    async fn take_due(
        self,
        tx: &mut Tx,
        webhook: &str,
        queue: Queue,
        due: Timestamp,
        limit: u32,
    ) -> Result<Taken, StoreError> {
        let Claim { owner, lease_until, .. } = self;
        let limit = i64::from(limit);
        let taken = fetch_all!(tx, (i64, i64), TAKE, webhook, queue.name(), due.0, limit, owner, lease_until.0)?;
        self.put_aside(tx, webhook, &taken).await
    }

    /// Puts those that must wait aside again. They are locked by now, and every later read is newer than the lock: on
    /// PostgreSQL no ack of an earlier event can slip in between.
    async fn put_aside(self, tx: &mut Tx, webhook: &str, rows: &[(i64, i64)]) -> Result<Taken, StoreError> {
        let mut taken = Taken::default();
        rows.iter().for_each(|(_, attempt)| *taken.of_attempt(*attempt) += 1);
        if rows.iter().all(|(position, _)| *position == 0) {
            return Ok(taken);
        }
        let parked = fetch_all!(tx, (i64,), PARK, self.owner, webhook, self.now.plus(LOOKED_AT_AGAIN).0)?;
        let given_back = fetch_all!(tx, (i64,), GIVE_BACK, self.owner, webhook, self.now.plus(GIVEN_BACK).0)?;
        for (attempt_before,) in parked.into_iter().chain(given_back) {
            *taken.of_attempt(attempt_before + 1) -= 1;
            taken.aside += 1;
        }
        Ok(taken)
    }

    /// Everything that was leased by this claim.
    pub async fn taken(self, tx: &mut Tx) -> Result<Vec<Claimed>, StoreError> {
        let rows = fetch_all!(tx, ClaimedRow, TAKEN, self.owner, self.now.0)?;
        rows.into_iter().map(Claimed::try_from).collect()
    }
}

impl Taken {
    pub fn count(self) -> u32 {
        self.first + self.again
    }

    fn of_attempt(&mut self, attempt: i64) -> &mut u32 {
        if attempt == 1 { &mut self.first } else { &mut self.again }
    }
}

impl Claimed {
    pub fn is_first(&self) -> bool {
        self.attempt == 1
    }
}

/// The claimed delivery arrived, and the next event of its deposit is due. False if the claim was no longer ours.
pub async fn delivered(tx: &mut Tx, claimed: &Claimed, now: Timestamp) -> Result<bool, StoreError> {
    let Claimed { event_id, webhook_id, aggregate_id, position, attempt, .. } = claimed;
    if execute!(tx, DELIVERED, event_id, webhook_id, i64::from(*attempt))? != 1 {
        return Ok(false);
    }
    execute!(tx, NEXT, webhook_id, aggregate_id, *position, now.0)?;
    Ok(true)
}

/// An event of this deposit will be sent again: later ones that are under way wait for it, and are then sent once more.
pub async fn call_off_later(
    tx: &mut Tx,
    webhook_id: &str,
    aggregate_id: &str,
    position: i64,
    now: Timestamp,
) -> Result<(), StoreError> {
    execute!(tx, CALL_OFF, webhook_id, aggregate_id, position, now.plus(LOOKED_AT_AGAIN).0).map(drop)
}

/// The claimed delivery did not arrive, or nobody knows: it is due again at `next`, or held then. It counts as a failure of the
/// delivery, but where its webhook fails since a time behind `uncounted`. False when the claim was no longer ours.
pub async fn retry_at(
    tx: &mut Tx,
    claimed: &Claimed,
    next: Timestamp,
    queue: Queue,
    uncounted: Timestamp,
) -> Result<bool, StoreError> {
    let Claimed { event_id, webhook_id, attempt, .. } = claimed;
    Ok(execute!(tx, RETRY, event_id, webhook_id, i64::from(*attempt), next.0, queue.name(), uncounted.0)? == 1)
}

/// Records how an attempt went; the newest `ATTEMPTS_KEPT_MAX` stay.
pub async fn log(tx: &mut Tx, claimed: &Claimed, log: &AttemptLog) -> Result<(), StoreError> {
    let Claimed { event_id, webhook_id, attempt: number, .. } = claimed;
    let (attempt, status) = (i64::from(*number), log.status.map(i64::from));
    let (started, duration) = (log.started_at.0, int(log.duration.as_micros()));
    execute!(tx, LOG, event_id, webhook_id, attempt, started, duration, status, &log.error, &log.response_head)?;
    if let Some(old) = number.checked_sub(ATTEMPTS_KEPT_MAX).filter(|old| *old > 0) {
        execute!(tx, FORGET, event_id, webhook_id, i64::from(old))?;
    }
    Ok(())
}

/// How the last attempt went, and its number; `None` while there was none.
pub async fn last_attempt(
    connection: &mut impl Connection,
    event_id: &str,
    webhook_id: &str,
) -> Result<Option<(u32, AttemptLog)>, StoreError> {
    type Row = (i64, i64, i64, Option<i64>, String, String);
    let row = fetch_optional!(connection, Row, LAST_ATTEMPT, event_id, webhook_id)?;
    let read = |(attempt, started, duration, status, error, response_head): Row| {
        let log = AttemptLog {
            started_at: Timestamp(started),
            duration: Duration::from_micros(uint("duration", duration)?),
            status: status.map(|status| uint("status", status)).transpose()?,
            error,
            response_head,
            retry_after: None,
        };
        Ok((uint("attempt", attempt)?, log))
    };
    row.map(read).transpose()
}

/// How an attempt last failed of those deliveries that have not arrived and are tried next.
pub async fn last_failure(connection: &mut impl Connection, webhook: &str) -> Result<Option<Failure>, StoreError> {
    let mut last: Option<Failure> = None;
    for queue in [Queue::Again, Queue::Held] {
        let row = fetch_optional!(connection, (String, i64, String), LAST_FAILURE, webhook, queue.name(), FAILED_MAX)?;
        let failure = row.map(|(event_id, at, error)| Failure { event_id, at: Timestamp(at), error });
        last = last.into_iter().chain(failure).max_by_key(|failure| failure.at);
    }
    Ok(last)
}

/// How old what a webhook has not got is, by what is due first in each of its queues: to look at all of a backlog would take seconds.
/// What waits for an earlier event is not older than that one.
pub async fn age(connection: &mut impl Connection, webhook: &str) -> Result<Age, StoreError> {
    let mut age = Age::default();
    for queue in [Queue::First, Queue::Again, Queue::Lapsed, Queue::Held] {
        let row = fetch_optional!(connection, (Option<i64>, Option<i64>), AGE, webhook, queue.name(), HEAD_MAX)?;
        let (made, waits) = row.unwrap_or_default();
        age.made_at = earliest(age.made_at, made.map(Timestamp));
        age.waits_since = earliest(age.waits_since, waits.map(Timestamp));
    }
    Ok(age)
}

pub(super) fn earliest(a: Option<Timestamp>, b: Option<Timestamp>) -> Option<Timestamp> {
    a.into_iter().chain(b).min()
}

impl Queue {
    fn name(self) -> &'static str {
        match self {
            Queue::First => "FIRST",
            Queue::Again => "AGAIN",
            Queue::Lapsed => "LEASED",
            Queue::Waiting => "WAITING",
            Queue::Held => "HELD",
        }
    }
}

impl TryFrom<ClaimedRow> for Claimed {
    type Error = StoreError;

    fn try_from(row: ClaimedRow) -> Result<Self, StoreError> {
        Ok(Claimed {
            event_id: row.event_id,
            webhook_id: row.webhook_id,
            aggregate_id: row.aggregate_id,
            position: row.position,
            attempt: uint("attempt", row.attempt)?,
            failures: uint("failures", row.failures)?,
            event_type: row.event_type,
            account_id: row.account_id,
            payload: row.payload,
            kind: parsed("kind", &row.kind)?,
            url: row.url,
            allowed_networks: row.allowed_networks,
            signing_key: row.signing_key,
        })
    }
}

impl std::fmt::Debug for Claimed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Claimed { event_id, webhook_id, attempt, .. } = self;
        write!(f, "attempt {attempt} of event {event_id} to webhook {webhook_id}")
    }
}
