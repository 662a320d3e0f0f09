//! Registered webhooks: their keys, and which statuses of deposits an organization does not want to be sent. Endpoints
//! of other kinds (`sinks`) are no webhooks, and are not found here.
//!
//! A deleted webhook keeps its row, because what was not delivered to it is held and never dropped.

use sqlx_macros::FromRow;

use crate::deposit::DepositStatus;
use crate::event::DEPOSIT_EVENT;
use crate::store::endpoints::Status;
use crate::store::error::expect_one;
use crate::store::sql::{execute, fetch_all, fetch_optional, statements};
use crate::store::{Connection, ORGANIZATION, StoreError, Tx, identities, parsed, uint};
use crate::time::Timestamp;
use crate::webhook::AllowedNetworks;

#[derive(Clone)]
pub struct WebhookRow {
    pub id: String,
    pub url: String,
    pub label: String,
    pub allowed_networks: AllowedNetworks,
    pub signing_key_id: String,
    /// Secrets, separated by spaces.
    pub signing_key: String,
}

#[derive(Clone)]
pub struct Webhook {
    pub id: String,
    pub url: String,
    pub label: String,
    pub status: Status,
    pub allowed_networks: AllowedNetworks,
    pub created_at: Timestamp,
    pub signing_key_id: String,
    /// Secrets, separated by spaces.
    pub signing_key: String,
    pub signing_key_created_at: Timestamp,
    /// Earlier secrets that still sign for a time, newest first, separated by spaces; empty if there are none.
    pub previous_signing_key: String,
    /// When the earlier keys stop signing; in the past if there are none.
    pub previous_key_expires_at: Timestamp,
}

/// The keys that sign from now on, and the earlier ones that also sign for a time.
#[derive(Clone, Copy)]
pub struct Rotation<'a> {
    pub id: &'a str,
    pub signing_key_id: &'a str,
    pub signing_key: &'a str,
    /// Separated by spaces; empty if there are none.
    pub previous_signing_key: &'a str,
    pub previous_expires_at: Timestamp,
}

#[derive(FromRow)]
struct Row {
    id: String,
    url: String,
    label: String,
    status: String,
    allowed_networks: String,
    created_us: i64,
    signing_key_id: String,
    signing_key: String,
    signing_key_created_us: i64,
    previous_signing_key: String,
    previous_key_expires_us: i64,
}

#[derive(FromRow)]
struct Removed {
    #[sqlx(flatten)]
    row: Row,
    pending: i64,
}

statements! {
    INSERT = "INSERT INTO webhooks (id, organization_id, url, label, status, allowed_networks, signing_key_id, \
              signing_key, signing_key_created_us, created_us) VALUES ($1, $2, $3, $4, 'ACTIVE', $5, $6, $7, $8, $8)";
    COUNT = "SELECT COUNT(*) FROM webhooks WHERE organization_id = $1 AND kind = 'WEBHOOK' AND status <> 'DELETED'";
    LIST = "SELECT * FROM webhooks WHERE organization_id = $1 AND kind = 'WEBHOOK' AND status <> 'DELETED' ORDER BY created_us, id";
    REMOVED = "SELECT webhooks.*, pending FROM (SELECT webhook_id, COUNT(*) AS pending FROM deliveries WHERE state = 'PENDING' \
               GROUP BY webhook_id) AS counts JOIN webhooks ON webhooks.id = webhook_id \
               WHERE organization_id = $1 AND kind = 'WEBHOOK' AND status = 'DELETED' ORDER BY created_us, id";
    BY_ID = "SELECT * FROM webhooks WHERE organization_id = $1 AND id = $2 AND kind = 'WEBHOOK' AND status <> 'DELETED'";
    LOCK = "SELECT * FROM webhooks WHERE organization_id = $1 AND id = $2 AND kind = 'WEBHOOK' AND status <> 'DELETED'" [" FOR UPDATE"] "";
    ROTATE = "UPDATE webhooks SET previous_signing_key = $5, previous_key_expires_us = $6, signing_key_id = $2, signing_key = $3, \
              signing_key_created_us = $4 WHERE organization_id = $7 AND id = $1 AND kind = 'WEBHOOK' AND status <> 'DELETED'";
    DELETE = "UPDATE webhooks SET status = 'DELETED', status_since_us = $3 \
              WHERE organization_id = $1 AND id = $2 AND kind = 'WEBHOOK' AND status <> 'DELETED'";
    MUTED = "SELECT status FROM muted_statuses WHERE organization_id = $1 AND type = $2 ORDER BY status";
    UNMUTE = "DELETE FROM muted_statuses WHERE organization_id = $1 AND type = $2";
    MUTE = "INSERT INTO muted_statuses (organization_id, type, status) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
}

/// Registers a webhook; it gets the events that come from now on. The caller holds `identities::lock_organization`.
pub async fn insert(tx: &mut Tx, webhook: &WebhookRow, now: Timestamp) -> Result<(), StoreError> {
    let WebhookRow { id, url, label, allowed_networks, signing_key_id, signing_key } = webhook;
    let networks = allowed_networks.to_string();
    let inserted = execute!(tx, INSERT, id, ORGANIZATION, url, label, networks, signing_key_id, signing_key, now.0)?;
    expect_one("insert webhook", inserted)
}

/// How many webhooks there are.
pub async fn count(connection: &mut impl Connection) -> Result<u64, StoreError> {
    let row = fetch_optional!(connection, (i64,), COUNT, ORGANIZATION)?;
    row.map_or(Ok(0), |(count,)| uint("count of webhooks", count))
}

/// Every webhook that is not deleted, the oldest first.
pub async fn list(connection: &mut impl Connection) -> Result<Vec<Webhook>, StoreError> {
    let rows = fetch_all!(connection, Row, LIST, ORGANIZATION)?;
    rows.into_iter().map(Row::read).collect()
}

/// The deleted webhooks for which events are held, with how many.
pub async fn removed(connection: &mut impl Connection) -> Result<Vec<(Webhook, u64)>, StoreError> {
    let rows = fetch_all!(connection, Removed, REMOVED, ORGANIZATION)?;
    rows.into_iter().map(|Removed { row, pending }| Ok((row.read()?, uint("pending", pending)?))).collect()
}

/// A webhook that is not deleted.
pub async fn by_id(connection: &mut impl Connection, id: &str) -> Result<Option<Webhook>, StoreError> {
    fetch_optional!(connection, Row, BY_ID, ORGANIZATION, id)?.map(Row::read).transpose()
}

/// As [`by_id`], and no other transaction changes it before the end of this one.
pub async fn lock(tx: &mut Tx, id: &str) -> Result<Option<Webhook>, StoreError> {
    fetch_optional!(tx, Row, LOCK, ORGANIZATION, id)?.map(Row::read).transpose()
}

/// Replaces the keys. False if there is no such webhook.
pub async fn rotate(tx: &mut Tx, rotation: &Rotation<'_>, now: Timestamp) -> Result<bool, StoreError> {
    let Rotation { id, signing_key_id, signing_key, previous_signing_key: previous, previous_expires_at } = rotation;
    let expires = previous_expires_at.0;
    Ok(execute!(tx, ROTATE, *id, *signing_key_id, *signing_key, now.0, *previous, expires, ORGANIZATION)? == 1)
}

/// Sends nothing more to a webhook; what is undelivered stays held. False if there is no such webhook.
pub async fn delete(tx: &mut Tx, id: &str, now: Timestamp) -> Result<bool, StoreError> {
    Ok(execute!(tx, DELETE, ORGANIZATION, id, now.0)? == 1)
}

/// The muted statuses of deposits, whose events are not sent. Those of other types are always sent.
pub async fn muted(connection: &mut impl Connection) -> Result<Vec<DepositStatus>, StoreError> {
    let rows = fetch_all!(connection, (String,), MUTED, ORGANIZATION, DEPOSIT_EVENT)?;
    rows.into_iter().map(|(status,)| parsed("status", &status)).collect()
}

/// Mutes exactly these statuses of deposits from now on.
pub async fn mute(tx: &mut Tx, statuses: &[DepositStatus]) -> Result<(), StoreError> {
    identities::lock_organization(tx).await?;
    execute!(tx, UNMUTE, ORGANIZATION, DEPOSIT_EVENT)?;
    for status in statuses {
        execute!(tx, MUTE, ORGANIZATION, DEPOSIT_EVENT, status.name())?;
    }
    Ok(())
}

impl Row {
    fn read(self) -> Result<Webhook, StoreError> {
        Ok(Webhook {
            id: self.id,
            url: self.url,
            label: self.label,
            status: parsed("status", &self.status)?,
            allowed_networks: parsed("allowed networks", &self.allowed_networks)?,
            created_at: Timestamp(self.created_us),
            signing_key_id: self.signing_key_id,
            signing_key: self.signing_key,
            signing_key_created_at: Timestamp(self.signing_key_created_us),
            previous_signing_key: self.previous_signing_key,
            previous_key_expires_at: Timestamp(self.previous_key_expires_us),
        })
    }
}

impl std::fmt::Debug for WebhookRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WebhookRow").field("id", &self.id).field("label", &self.label).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Webhook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Webhook").field("id", &self.id).field("label", &self.label).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Rotation<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rotation").field("id", &self.id).finish_non_exhaustive()
    }
}
