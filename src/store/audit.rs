//! The audit: insert only, in the transaction of the decision.

use crate::overrides::AuditEntry;
use crate::store::sql::{execute, fetch_all, statements};
use crate::store::{Connection, StoreError, Tx, parsed};
use crate::time::Timestamp;

statements! {
    APPEND = "INSERT INTO audit (id, at_us, actor, action, chain, what, reason) VALUES ($1, $2, $3, $4, $5, $6, $7) \
              ON CONFLICT (id) DO NOTHING";
    NEWEST = "SELECT at_us, actor, action, chain, what, reason FROM audit ORDER BY at_us DESC, id DESC LIMIT $1";
}

pub async fn append(tx: &mut Tx, entry: &AuditEntry) -> Result<(), StoreError> {
    let AuditEntry { at, actor, action, what, reason, .. } = entry;
    execute!(tx, APPEND, entry.id(), at.0, actor, action, entry.chain_name(), what, reason).map(drop)
}

/// At most `limit` entries, newest first.
pub async fn newest(connection: &mut impl Connection, limit: u32) -> Result<Vec<AuditEntry>, StoreError> {
    type Row = (i64, String, String, String, String, String);
    let rows = fetch_all!(connection, Row, NEWEST, i64::from(limit))?;
    let entries = rows.into_iter().map(|(at, actor, action, chain, what, reason)| {
        let chain = (!chain.is_empty()).then(|| parsed("chain", &chain)).transpose()?;
        Ok(AuditEntry { at: Timestamp(at), actor, action, chain, what, reason })
    });
    entries.collect()
}
