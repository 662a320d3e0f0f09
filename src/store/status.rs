//! What watchers last reported of themselves, for the processes that do not watch: `status`, `health`, the API.

use std::collections::BTreeSet;

use landfall_chain::{Chain, EndpointStatus};
use sqlx_macros::FromRow;

use crate::store::deliveries::Failure;
use crate::store::sql::{execute, fetch_all, fetch_optional, statements};
use crate::store::{Connection, StoreError, Tx, deliveries, endpoints, int, parsed, uint};
use crate::time::Timestamp;

/// A watcher's report of its chain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChainStatus {
    pub chain: Chain,
    pub state: String,
    /// Why it is in this state; empty if all is well.
    pub reason: String,
    pub proof: String,
    pub latest: Option<u64>,
    pub finalized: Option<u64>,
    /// The last connected block.
    pub cursor: Option<u64>,
    /// When the cursor last stood at the newest block; the epoch if it never did.
    pub caught_up_at: Timestamp,
    pub heartbeat_at: Timestamp,
    pub endpoints: Vec<EndpointRow>,
    /// When the newest final block last advanced; the epoch if it never did.
    pub finalized_at: Timestamp,
    /// Conditions that are no failure yet.
    pub alarms: Vec<String>,
}

/// A watcher's report of one of its endpoints.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EndpointRow {
    pub id: String,
    pub state: String,
    pub reason: String,
    pub latest: Option<u64>,
    /// How long its requests take: a moving average.
    pub latency_ms: Option<u64>,
}

/// The state of a webhook's deliveries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WebhookStatus {
    pub id: String,
    pub status: endpoints::Status,
    /// The epoch if it never changed.
    pub since: Timestamp,
    pub pending: u64,
    /// How many of them have failed for seven days.
    pub held: u64,
    /// When the next delivery is due, or the next lease ends; without those that wait for another event or are held.
    pub due_at: Option<Timestamp>,
    /// The highest number of failures in a row among those that are tried again next.
    pub failures: u64,
    /// How one of those that have not arrived failed last.
    pub last_failure: Option<Failure>,
}

/// What an earlier watcher reported: where its chain ends, and its alarms.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LastStatus {
    pub latest: Option<u64>,
    pub finalized: Option<u64>,
    /// When the newest final block had last advanced.
    pub finalized_at: Timestamp,
    pub heartbeat_at: Timestamp,
    pub alarms: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueStatus {
    pub pending: u64,
    /// When the oldest undelivered event was made, see [`deliveries::age`].
    pub oldest_at: Option<Timestamp>,
}

statements! {
    // A new process that has not asked a node yet keeps what the earlier one knew.
    RECORD = "INSERT INTO chain_status (chain, state, reason, proof, latest, finalized, caught_up_us, heartbeat_us, finalized_us, alarms) \
              VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (chain) DO UPDATE SET state = excluded.state, \
              reason = excluded.reason, proof = excluded.proof, \
              latest = COALESCE(excluded.latest, chain_status.latest), \
              finalized = COALESCE(excluded.finalized, chain_status.finalized), heartbeat_us = excluded.heartbeat_us, \
              caught_up_us = CASE excluded.caught_up_us WHEN 0 THEN chain_status.caught_up_us ELSE excluded.caught_up_us END, \
              finalized_us = CASE excluded.finalized_us WHEN 0 THEN chain_status.finalized_us ELSE excluded.finalized_us END, \
              alarms = excluded.alarms";
    LAST = "SELECT latest, finalized, finalized_us, heartbeat_us, alarms FROM chain_status WHERE chain = $1";
    HALTED = "SELECT reason FROM chain_status WHERE chain = $1 AND state = 'halted' AND NOT EXISTS (SELECT 1 FROM overrides \
              WHERE overrides.chain = chain_status.chain AND overrides.kind = 'resume' AND overrides.created_us > chain_status.heartbeat_us)";
    CAUGHT_UP = "SELECT caught_up_us FROM chain_status WHERE chain = $1";
    FOLLOWED_SINCE = "SELECT chain FROM chain_status WHERE caught_up_us BETWEEN $1 AND $2 AND heartbeat_us <= $2 AND state <> 'halted'";
    FORGET_ENDPOINTS = "DELETE FROM endpoint_status WHERE chain = $1";
    RECORD_ENDPOINT = "INSERT INTO endpoint_status (chain, id, ordinal, state, reason, latest, latency_ms) \
                       VALUES ($1, $2, $3, $4, $5, $6, $7)";
    CHAINS = "SELECT chain_status.chain, state, reason, proof, latest, finalized, cursors.number AS cursor, \
              caught_up_us, heartbeat_us, finalized_us, alarms FROM chain_status LEFT JOIN cursors ON cursors.chain = chain_status.chain \
              ORDER BY chain_status.chain";
    ENDPOINTS = "SELECT chain, id, state, reason, latest, latency_ms FROM endpoint_status ORDER BY chain, ordinal";
    QUEUE = "SELECT webhook_id, pending \
             FROM (SELECT webhook_id, COUNT(*) AS pending FROM deliveries WHERE state = 'PENDING' GROUP BY webhook_id) AS counts \
             JOIN webhooks ON webhooks.id = webhook_id WHERE webhooks.status <> 'DELETED' ORDER BY webhook_id";
    WEBHOOKS = "SELECT webhooks.id, status, status_since_us, \
                (SELECT COUNT(*) FROM deliveries WHERE webhook_id = webhooks.id AND state = 'PENDING') AS pending, \
                (SELECT COUNT(*) FROM deliveries WHERE webhook_id = webhooks.id AND state = 'PENDING' AND queue = 'HELD') AS held, \
                (SELECT MIN(next_us) FROM deliveries WHERE webhook_id = webhooks.id AND state = 'PENDING' AND queue = 'FIRST') AS first_us, \
                (SELECT MIN(next_us) FROM deliveries WHERE webhook_id = webhooks.id AND state = 'PENDING' AND queue = 'AGAIN') AS again_us, \
                (SELECT MIN(next_us) FROM deliveries WHERE webhook_id = webhooks.id AND state = 'PENDING' AND queue = 'LEASED') AS leased_us, \
                (SELECT MAX(failures) FROM (SELECT failures FROM deliveries \
                 WHERE webhook_id = webhooks.id AND state = 'PENDING' AND queue = 'AGAIN' ORDER BY next_us, event_id LIMIT $1) AS head) AS failures \
                FROM webhooks WHERE kind = 'WEBHOOK' AND status <> 'DELETED' ORDER BY created_us, webhooks.id";
}

#[derive(FromRow)]
struct ChainRow {
    chain: String,
    state: String,
    reason: String,
    proof: String,
    latest: Option<i64>,
    finalized: Option<i64>,
    cursor: Option<i64>,
    caught_up_us: i64,
    heartbeat_us: i64,
    finalized_us: i64,
    alarms: String,
}

/// Writes a watcher's report. Its `cursor` and `endpoints` are ignored: the cursor has its own row, and `endpoints` is
/// passed in.
pub async fn record(tx: &mut Tx, status: &ChainStatus, endpoints: &[EndpointStatus]) -> Result<(), StoreError> {
    let chain = status.chain.name();
    let (latest, finalized) = (status.latest.map(int), status.finalized.map(int));
    let (caught_up, heartbeat) = (status.caught_up_at.0, status.heartbeat_at.0);
    let alarms = serde_json::to_string(&status.alarms).unwrap_or_else(|_| "[]".to_owned());
    execute!(
        tx,
        RECORD,
        chain,
        &status.state,
        &status.reason,
        &status.proof,
        latest,
        finalized,
        caught_up,
        heartbeat,
        status.finalized_at.0,
        alarms
    )?;
    execute!(tx, FORGET_ENDPOINTS, chain)?;
    for (ordinal, endpoint) in endpoints.iter().enumerate() {
        let EndpointStatus { id, state, reason, latest, latency_ms, refused: _ } = endpoint;
        let (state, latest, latency_ms) = (state.name(), latest.map(int), latency_ms.map(int));
        execute!(tx, RECORD_ENDPOINT, chain, id, int(ordinal), state, reason, latest, latency_ms)?;
    }
    Ok(())
}

/// When the chain's cursor last stood at the newest block, as an earlier watcher reported.
pub async fn caught_up_at(connection: &mut impl Connection, chain: Chain) -> Result<Option<Timestamp>, StoreError> {
    let row = fetch_optional!(connection, (i64,), CAUGHT_UP, chain.name())?;
    Ok(row.map(|(at,)| Timestamp(at)))
}

/// Why the chain's watcher last reported that it is halted; `None` if it did not, or a person has resumed the chain
/// since.
pub async fn halted(connection: &mut impl Connection, chain: Chain) -> Result<Option<String>, StoreError> {
    let row = fetch_optional!(connection, (String,), HALTED, chain.name())?;
    Ok(row.map(|(reason,)| reason))
}

/// The chains whose cursor last stood at the newest block between `since` and `until`. Without those that are halted:
/// their record may not be true. Without those whose watcher's last sign of life is later than `until`: a clock that
/// runs ahead would make an old reading look fresh.
pub async fn followed_since(
    connection: &mut impl Connection,
    since: Timestamp,
    until: Timestamp,
) -> Result<BTreeSet<Chain>, StoreError> {
    let rows = fetch_all!(connection, (String,), FOLLOWED_SINCE, since.0, until.0)?;
    rows.into_iter().map(|(chain,)| parsed("chain", &chain)).collect()
}

pub async fn last(connection: &mut impl Connection, chain: Chain) -> Result<Option<LastStatus>, StoreError> {
    type Row = (Option<i64>, Option<i64>, i64, i64, String);
    let read = |(latest, finalized, finalized_at, heartbeat_at, alarms): Row| {
        Ok(LastStatus {
            latest: optional(latest)?,
            finalized: optional(finalized)?,
            finalized_at: Timestamp(finalized_at),
            heartbeat_at: Timestamp(heartbeat_at),
            alarms: texts(&alarms)?,
        })
    };
    fetch_optional!(connection, Row, LAST, chain.name())?.map(read).transpose()
}

pub async fn chains(connection: &mut impl Connection) -> Result<Vec<ChainStatus>, StoreError> {
    let rows = fetch_all!(connection, ChainRow, CHAINS)?;
    let mut statuses = rows.into_iter().map(ChainStatus::try_from).collect::<Result<Vec<_>, _>>()?;
    type Row = (String, String, String, String, Option<i64>, Option<i64>);
    for (chain, id, state, reason, latest, latency_ms) in fetch_all!(connection, Row, ENDPOINTS)? {
        let (latest, latency_ms) = (optional(latest)?, optional(latency_ms)?);
        let endpoint = EndpointRow { id, state, reason, latest, latency_ms };
        if let Some(status) = statuses.iter_mut().find(|status| status.chain.name() == chain) {
            status.endpoints.push(endpoint);
        }
    }
    Ok(statuses)
}

pub async fn queue(connection: &mut impl Connection) -> Result<QueueStatus, StoreError> {
    let mut queue = QueueStatus { pending: 0, oldest_at: None };
    for (webhook, count) in fetch_all!(connection, (String, i64), QUEUE)? {
        queue.pending += uint::<u64>("count", count)?;
        queue.oldest_at = deliveries::earliest(queue.oldest_at, deliveries::age(connection, &webhook).await?.made_at);
    }
    Ok(queue)
}

pub async fn webhooks(connection: &mut impl Connection) -> Result<Vec<WebhookStatus>, StoreError> {
    type Row = (String, String, i64, i64, i64, Option<i64>, Option<i64>, Option<i64>, Option<i64>);
    let read = |(id, status, since, pending, held, first, again, leased, failures): Row| {
        Ok(WebhookStatus {
            id,
            status: parsed("status", &status)?,
            since: Timestamp(since),
            pending: uint("count", pending)?,
            held: uint("count", held)?,
            due_at: [first, again, leased].into_iter().flatten().min().map(Timestamp),
            failures: uint("failures", failures.unwrap_or_default())?,
            last_failure: None,
        })
    };
    let rows = fetch_all!(connection, Row, WEBHOOKS, deliveries::HEAD_MAX)?;
    let mut webhooks = rows.into_iter().map(read).collect::<Result<Vec<WebhookStatus>, StoreError>>()?;
    // Most have none.
    for webhook in webhooks.iter_mut().filter(|webhook| webhook.failures > 0 || webhook.held > 0) {
        webhook.last_failure = deliveries::last_failure(connection, &webhook.id).await?;
    }
    Ok(webhooks)
}

impl TryFrom<ChainRow> for ChainStatus {
    type Error = StoreError;

    fn try_from(row: ChainRow) -> Result<Self, StoreError> {
        Ok(ChainStatus {
            chain: parsed("chain", &row.chain)?,
            state: row.state,
            reason: row.reason,
            proof: row.proof,
            latest: optional(row.latest)?,
            finalized: optional(row.finalized)?,
            cursor: optional(row.cursor)?,
            caught_up_at: Timestamp(row.caught_up_us),
            heartbeat_at: Timestamp(row.heartbeat_us),
            endpoints: Vec::new(),
            finalized_at: Timestamp(row.finalized_us),
            alarms: texts(&row.alarms)?,
        })
    }
}

fn texts(alarms: &str) -> Result<Vec<String>, StoreError> {
    serde_json::from_str(alarms).map_err(|error| StoreError::inconsistent("alarms", error))
}

fn optional(number: Option<i64>) -> Result<Option<u64>, StoreError> {
    number.map(|number| uint("number", number)).transpose()
}
