//! Operators' overrides of the watchers' rules: one of a kind for each chain.

use landfall_chain::Chain;

use crate::overrides::{Decision, Override};
use crate::store::error::expect_one;
use crate::store::sql::{execute, fetch_all, statements};
use crate::store::{Connection, StoreError, Tx};
use crate::time::Timestamp;

statements! {
    PUT = "INSERT INTO overrides (chain, kind, value, reason, until_us, created_us) VALUES ($1, $2, $3, $4, $5, $6) \
           ON CONFLICT (chain, kind) DO UPDATE SET value = excluded.value, reason = excluded.reason, \
           until_us = excluded.until_us, created_us = excluded.created_us";
    REMOVE = "DELETE FROM overrides WHERE chain = $1 AND kind = $2";
    OF_CHAIN = "SELECT kind, value, reason, until_us, created_us FROM overrides WHERE chain = $1 ORDER BY kind";
}

/// Records a decision, in place of an earlier one of its kind.
pub async fn put(tx: &mut Tx, chain: Chain, decision: &Decision) -> Result<(), StoreError> {
    let Decision { action, reason, until, created_at } = decision;
    let put = execute!(tx, PUT, chain.name(), action.kind(), action.value(), reason, until.0, created_at.0)?;
    expect_one("record an override", put)
}

/// Removes the decision of this kind; returns whether there was one.
pub async fn remove(tx: &mut Tx, chain: Chain, kind: &str) -> Result<bool, StoreError> {
    Ok(execute!(tx, REMOVE, chain.name(), kind)? > 0)
}

/// The decisions about a chain, including expired ones.
pub async fn of_chain(connection: &mut impl Connection, chain: Chain) -> Result<Vec<Decision>, StoreError> {
    type Row = (String, String, String, i64, i64);
    let rows = fetch_all!(connection, Row, OF_CHAIN, chain.name())?;
    let decisions = rows.into_iter().map(|(kind, value, reason, until, created)| {
        let action = Override::read(&kind, &value).map_err(|error| StoreError::inconsistent("override", error))?;
        Ok(Decision { action, reason, until: Timestamp(until), created_at: Timestamp(created) })
    });
    decisions.collect()
}
