//! Limits that operators put on transfers, and what transfers have used of them.
//!
//! Who accepts a transfer locks the policies that apply to it, in the order of their ids, and counts only then. So what
//! others accept meanwhile is counted, and nobody waits in a circle.

use landfall_chain::Chain;
use sqlx_macros::FromRow;

use crate::policy::{Major, Period, Policy, PolicyLimit, PolicyScope, PolicyStatus, Used};
use crate::store::deposits::amount_of;
use crate::store::error::expect_one;
use crate::store::sql::{execute, fetch_all, fetch_optional, statements};
use crate::store::{Connection, ORGANIZATION, StoreError, Tx, int, parsed, uint};
use crate::time::Timestamp;

statements! {
    INSERT = "INSERT INTO policies (id, organization_id, label, status, scope, scope_id, chain, created_us, updated_us) \
              VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8)";
    INSERT_LIMIT = "INSERT INTO policy_limits (policy_id, position, period, symbol, amount, count) VALUES ($1, $2, $3, $4, $5, $6)";
    REMOVE = "UPDATE policies SET status = 'REMOVED', updated_us = $1 WHERE id = $2 AND organization_id = $3 AND status = 'ACTIVE'";
    BY_ID = "SELECT id, label, status, scope, scope_id, chain, created_us, updated_us FROM policies WHERE id = $1 AND organization_id = $2";
    LIST = "SELECT id, label, status, scope, scope_id, chain, created_us, updated_us FROM policies \
            WHERE organization_id = $1 AND (status = 'ACTIVE' OR $2) ORDER BY created_us, id";
    IN_FORCE = "SELECT COUNT(*) FROM policies WHERE organization_id = $1 AND status = 'ACTIVE'";
    LIMITS = "SELECT period, symbol, amount, count FROM policy_limits WHERE policy_id = $1 ORDER BY position";
    LOCK_APPLYING = "SELECT id, label, status, scope, scope_id, chain, created_us, updated_us FROM policies \
                     WHERE organization_id = $1 AND status = 'ACTIVE' \
                     AND (scope = 'ORGANIZATION' OR (scope = 'IDENTITY' AND scope_id = $2) OR (scope = 'ACCOUNT' AND scope_id = $3)) \
                     AND (chain IS NULL OR chain = $4) \
                     AND EXISTS (SELECT 1 FROM policy_limits AS l WHERE l.policy_id = policies.id AND l.symbol = $5) \
                     ORDER BY id" [" FOR UPDATE"] "";
    // What did not pay does not count, and what may still pay does.
    USED_BY_ALL = "SELECT amount, decimals FROM transfers WHERE organization_id = $1 AND created_us > $2 AND symbol = $3 \
                   AND status NOT IN ('FAILED', 'DROPPED') AND kind = 'PAYMENT' AND (CAST($4 AS TEXT) IS NULL OR chain = $4)";
    USED_BY_IDENTITY = "SELECT amount, decimals FROM transfers WHERE identity_id = $1 AND created_us > $2 AND symbol = $3 \
                        AND status NOT IN ('FAILED', 'DROPPED') AND kind = 'PAYMENT' AND (CAST($4 AS TEXT) IS NULL OR chain = $4)";
    USED_BY_ACCOUNT = "SELECT amount, decimals FROM transfers WHERE account_id = $1 AND created_us > $2 AND symbol = $3 \
                       AND status NOT IN ('FAILED', 'DROPPED') AND kind = 'PAYMENT' AND (CAST($4 AS TEXT) IS NULL OR chain = $4)";
}

#[derive(FromRow)]
struct Row {
    id: String,
    label: String,
    status: String,
    scope: String,
    scope_id: String,
    chain: Option<String>,
    created_us: i64,
    updated_us: i64,
}

/// Whose transfer of which currency is to be counted.
#[derive(Clone, Copy, Debug)]
pub struct Payer<'p> {
    pub account_id: &'p str,
    pub identity_id: &'p str,
    pub chain: Chain,
    pub symbol: &'p str,
}

/// Puts a policy in force.
pub async fn insert(tx: &mut Tx, policy: &Policy) -> Result<(), StoreError> {
    let Policy { id, label, status, scope, chain, limits, created_at, .. } = policy;
    let (of, of_id, on) = (scope.name(), scope.id(), chain.map(Chain::name));
    let inserted = execute!(tx, INSERT, id, ORGANIZATION, label, status.name(), of, of_id, on, created_at.0)?;
    expect_one("insert a policy", inserted)?;
    for (position, PolicyLimit { period, symbol, amount, count }) in limits.iter().enumerate() {
        let (amount, count) = (amount.map(|amount| amount.to_string()), count.map(int));
        let inserted = execute!(tx, INSERT_LIMIT, id, int(position), period.name(), symbol, amount, count)?;
        expect_one("insert a limit of a policy", inserted)?;
    }
    Ok(())
}

/// Ends a policy; returns whether there was one in force. It is kept, to be shown.
pub async fn remove(tx: &mut Tx, id: &str, now: Timestamp) -> Result<bool, StoreError> {
    Ok(execute!(tx, REMOVE, now.0, id, ORGANIZATION)? == 1)
}

pub async fn by_id(connection: &mut impl Connection, id: &str) -> Result<Option<Policy>, StoreError> {
    match fetch_optional!(connection, Row, BY_ID, id, ORGANIZATION)? {
        Some(row) => policy(connection, row).await.map(Some),
        None => Ok(None),
    }
}

/// The policies that are in force, or all that ever were; the oldest first.
pub async fn list(connection: &mut impl Connection, with_removed: bool) -> Result<Vec<Policy>, StoreError> {
    let rows = fetch_all!(connection, Row, LIST, ORGANIZATION, with_removed)?;
    policies(connection, rows).await
}

/// How many are in force.
pub async fn in_force(connection: &mut impl Connection) -> Result<u64, StoreError> {
    let row = fetch_optional!(connection, (i64,), IN_FORCE, ORGANIZATION)?;
    row.map_or(Ok(0), |(count,)| uint("count of policies", count))
}

/// The policies that limit such a transfer, locked for the transaction.
pub async fn lock_applying(tx: &mut Tx, payer: Payer<'_>) -> Result<Vec<Policy>, StoreError> {
    let Payer { account_id, identity_id, chain, symbol } = payer;
    let rows = fetch_all!(tx, Row, LOCK_APPLYING, ORGANIZATION, identity_id, account_id, chain.name(), symbol)?;
    policies(tx, rows).await
}

/// What transfers have used of a policy's limit since it began to count, up to now.
pub async fn used(
    connection: &mut impl Connection,
    policy: &Policy,
    limit: &PolicyLimit,
    now: Timestamp,
) -> Result<Used, StoreError> {
    let Some(length) = limit.period.length() else { return Ok(Used::default()) };
    let (since, symbol, chain) = (now.minus(length).0, limit.symbol.as_str(), policy.chain.map(Chain::name));
    type Counted = (Vec<u8>, i64);
    let rows = match &policy.scope {
        PolicyScope::Organization(id) => fetch_all!(connection, Counted, USED_BY_ALL, id, since, symbol, chain)?,
        PolicyScope::Identity(id) => fetch_all!(connection, Counted, USED_BY_IDENTITY, id, since, symbol, chain)?,
        PolicyScope::Account(id) => fetch_all!(connection, Counted, USED_BY_ACCOUNT, id, since, symbol, chain)?,
    };
    let mut used = Used { count: rows.len() as u64, ..Used::default() };
    for (amount, decimals) in rows {
        used.amount = used.amount.plus(Major::of(amount_of(&amount)?, uint("decimals", decimals)?));
    }
    Ok(used)
}

async fn policies(connection: &mut impl Connection, rows: Vec<Row>) -> Result<Vec<Policy>, StoreError> {
    let mut found = Vec::with_capacity(rows.len());
    for row in rows {
        found.push(policy(connection, row).await?);
    }
    Ok(found)
}

async fn policy(connection: &mut impl Connection, row: Row) -> Result<Policy, StoreError> {
    type Limit = (String, String, Option<String>, Option<i64>);
    let limits = fetch_all!(connection, Limit, LIMITS, &row.id)?.into_iter().map(|(period, symbol, amount, count)| {
        Ok(PolicyLimit {
            period: parsed::<Period>("period", &period)?,
            symbol,
            amount: amount.map(|amount| parsed::<Major>("amount of a limit", &amount)).transpose()?,
            count: count.map(|count| uint("count of a limit", count)).transpose()?,
        })
    });
    let scope = PolicyScope::read(&row.scope, row.scope_id);
    Ok(Policy {
        limits: limits.collect::<Result<_, StoreError>>()?,
        label: row.label,
        status: parsed::<PolicyStatus>("status of a policy", &row.status)?,
        scope: scope.map_err(|error| StoreError::inconsistent("scope of a policy", error))?,
        chain: row.chain.map(|chain| parsed("chain", &chain)).transpose()?,
        created_at: Timestamp(row.created_us),
        updated_at: Timestamp(row.updated_us),
        id: row.id,
    })
}
