//! Registered webhooks.

use sqlx::FromRow;

use crate::store::error::expect_one;
use crate::store::sql::{execute, statements};
use crate::store::{ORGANIZATION, StoreError, Tx};
use crate::time::Timestamp;

/// A webhook as it is stored.
#[derive(Clone, FromRow)]
pub struct WebhookRow {
    pub id: String,
    pub url: String,
    pub label: String,
    pub allow_private: bool,
    pub signing_key_id: String,
    /// `whsec_` and base64: a secret.
    pub signing_key: String,
}

statements! {
    INSERT = "INSERT INTO webhooks (id, organization_id, url, label, status, allow_private, signing_key_id, signing_key, \
              signing_key_created_us, created_us) VALUES ($1, $2, $3, $4, 'ACTIVE', $5, $6, $7, $8, $8)";
}

/// Registers a webhook; it gets the events that come from now on.
pub async fn insert(tx: &mut Tx, webhook: &WebhookRow, now: Timestamp) -> Result<(), StoreError> {
    let WebhookRow { id, url, label, allow_private, signing_key_id, signing_key } = webhook;
    let inserted =
        execute!(tx, INSERT, id, ORGANIZATION, url, label, *allow_private, signing_key_id, signing_key, now.0)?;
    expect_one("insert webhook", inserted)
}

impl std::fmt::Debug for WebhookRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WebhookRow").field("id", &self.id).field("label", &self.label).finish_non_exhaustive()
    }
}
