//! Identities, and what people decided about them.
//!
//! A change repeats the old status in its WHERE and writes its entry in the same transaction.

use sqlx_macros::FromRow;

use crate::identity::{DEFAULT_IDENTITY, Identity, IdentityStatus, NewIdentity};
use crate::store::error::expect_one;
use crate::store::sql::{execute, fetch_all, fetch_optional, statements};
use crate::store::{Connection, ORGANIZATION, StoreError, Tx, parsed};
use crate::time::Timestamp;

/// A change of an identity's status, on record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decided<'a> {
    pub at: Timestamp,
    pub actor: &'a str,
    pub reason: &'a str,
}

statements! {
    BY_ID = "SELECT id, type, label, fiat_operations_enabled, status, sub_status FROM identities \
             WHERE id = $1 AND organization_id = $2";
    LOCK = "SELECT id, type, label, fiat_operations_enabled, status, sub_status FROM identities \
            WHERE id = $1 AND organization_id = $2" [" FOR UPDATE"] "";
    LIST = "SELECT id, type, label, fiat_operations_enabled, status, sub_status FROM identities \
            WHERE organization_id = $1 ORDER BY id";
    INSERT = "INSERT INTO identities (id, organization_id, type, label, fiat_operations_enabled, status, sub_status, created_us) \
              VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (id) DO NOTHING";
    SET_STATUS = "UPDATE identities SET status = $1, sub_status = $2 WHERE id = $3 AND organization_id = $4 AND status = $5";
    CHANGES = "SELECT CAST(COUNT(*) AS BIGINT) FROM identity_changes WHERE identity_id = $1";
    APPEND = "INSERT INTO identity_changes (identity_id, position, at_us, actor, reason, previous_status, previous_sub_status, \
              status, sub_status) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
    DECISIONS = "SELECT at_us, actor, reason, previous_status, status FROM identity_changes WHERE identity_id = $1 ORDER BY position";
    ACCOUNTS_BEHIND = "SELECT created_us, id FROM accounts \
                       WHERE identity_id = $1 AND (created_us, id" [" COLLATE \"C\""] ") > ($2, $3) \
                       ORDER BY created_us, id" [" COLLATE \"C\""] " LIMIT $4";
    LOCK_ORGANIZATION = "SELECT id FROM identities WHERE id = $1" [" FOR NO KEY UPDATE"] "";
}

#[derive(FromRow)]
struct IdentityRow {
    id: String,
    r#type: String,
    label: String,
    fiat_operations_enabled: bool,
    status: String,
    sub_status: String,
}

#[derive(FromRow)]
struct DecisionRow {
    at_us: i64,
    actor: String,
    reason: String,
    previous_status: String,
    status: String,
}

/// A change of an identity's status that a person decided, as it was recorded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decision {
    pub at: Timestamp,
    pub actor: String,
    pub reason: String,
    pub from: IdentityStatus,
    pub to: IdentityStatus,
}

pub async fn by_id(connection: &mut impl Connection, id: &str) -> Result<Option<Identity>, StoreError> {
    fetch_optional!(connection, IdentityRow, BY_ID, id, ORGANIZATION)?.map(identity).transpose()
}

/// As [`by_id`], and no other transaction changes it before the end of this one.
pub async fn lock(tx: &mut Tx, id: &str) -> Result<Option<Identity>, StoreError> {
    fetch_optional!(tx, IdentityRow, LOCK, id, ORGANIZATION)?.map(identity).transpose()
}

pub async fn list(connection: &mut impl Connection) -> Result<Vec<Identity>, StoreError> {
    fetch_all!(connection, IdentityRow, LIST, ORGANIZATION)?.into_iter().map(identity).collect()
}

/// Registers an identity, or finds that one with its id exists; returns that one.
pub async fn ensure(tx: &mut Tx, id: &str, new: &NewIdentity, now: Timestamp) -> Result<Identity, StoreError> {
    let Identity { kind, label, fiat_operations_enabled, status, sub_status, .. } =
        Identity::register(id.to_owned(), new);
    let sub_status = crate::identity::SubStatus::text(sub_status);
    let (kind, status, fiat) = (kind.name(), status.name(), fiat_operations_enabled);
    execute!(tx, INSERT, id, ORGANIZATION, kind, label, fiat, status, sub_status, now.0)?;
    by_id(tx, id).await?.ok_or_else(|| StoreError::inconsistent("identity", "it is not there"))
}

/// Writes the status of `after`, an identity that was `before`, and who decided it.
pub async fn change(tx: &mut Tx, before: &Identity, after: &Identity, decided: &Decided<'_>) -> Result<(), StoreError> {
    let text = |identity: &Identity| (identity.status.name(), crate::identity::SubStatus::text(identity.sub_status));
    let ((from, from_sub), (to, to_sub)) = (text(before), text(after));
    let set = execute!(tx, SET_STATUS, to, to_sub, &before.id, ORGANIZATION, from)?;
    expect_one("change an identity", set)?;
    let position = fetch_optional!(tx, (i64,), CHANGES, &before.id)?.map_or(0, |(count,)| count);
    let Decided { at, actor, reason } = decided;
    let written = execute!(tx, APPEND, &before.id, position, at.0, actor, reason, from, from_sub, to, to_sub)?;
    expect_one("record a change of an identity", written)
}

/// What was decided about an identity, oldest first.
pub async fn decisions(connection: &mut impl Connection, id: &str) -> Result<Vec<Decision>, StoreError> {
    let rows = fetch_all!(connection, DecisionRow, DECISIONS, id)?;
    let decision = |row: DecisionRow| -> Result<Decision, StoreError> {
        let DecisionRow { at_us, actor, reason, previous_status, status } = row;
        let (from, to) = (parsed("identity status", &previous_status)?, parsed("identity status", &status)?);
        Ok(Decision { at: Timestamp(at_us), actor, reason, from, to })
    };
    rows.into_iter().map(decision).collect()
}

/// Makes every other caller of this, and every writer of events, wait until the end of the transaction. So a caller
/// that counts before it adds counts all, and events that commit later reach what it adds. Waits for events that are
/// being written. Must come first in a transaction. Opening accounts is not delayed.
pub async fn lock_organization(tx: &mut Tx) -> Result<(), StoreError> {
    let locked = fetch_optional!(tx, (String,), LOCK_ORGANIZATION, DEFAULT_IDENTITY)?;
    locked.map(drop).ok_or_else(|| StoreError::inconsistent("identity", format!("{DEFAULT_IDENTITY} is not there")))
}

/// The end of a part of an identity's accounts: when its last one was opened, and its id.
pub type LastAccount = (i64, String);

/// At most `limit` accounts of an identity after `last`, oldest first, and where the next part begins; `None` after the
/// end.
pub async fn accounts_behind(
    connection: &mut impl Connection,
    id: &str,
    last: Option<&LastAccount>,
    limit: u32,
) -> Result<(Vec<String>, Option<LastAccount>), StoreError> {
    let (at, behind) = last.map_or((i64::MIN, ""), |(at, id)| (*at, id.as_str()));
    let rows = fetch_all!(connection, LastAccount, ACCOUNTS_BEHIND, id, at, behind, i64::from(limit))?;
    let is_full = u32::try_from(rows.len()).is_ok_and(|count| count == limit);
    let next = rows.last().filter(|_| is_full).cloned();
    Ok((rows.into_iter().map(|(_, id)| id).collect(), next))
}

fn identity(row: IdentityRow) -> Result<Identity, StoreError> {
    let IdentityRow { id, r#type, label, fiat_operations_enabled, status, sub_status } = row;
    let sub_status = (!sub_status.is_empty()).then(|| parsed("identity sub-status", &sub_status)).transpose()?;
    let (kind, status) = (parsed("identity type", &r#type)?, parsed("identity status", &status)?);
    Ok(Identity { id, kind, label, fiat_operations_enabled, status, sub_status })
}
