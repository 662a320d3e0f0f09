//! What the process that sends on a chain last reported, for the processes that do not: `status` and `health`.

use landfall_chain::{Chain, U256};
use sqlx_macros::FromRow;

use crate::store::error::expect_one;
use crate::store::sql::{execute, fetch_optional, statements};
use crate::store::{Connection, StoreError, Tx, parsed};
use crate::time::Timestamp;

/// The last report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SenderStatus {
    pub heartbeat_at: Timestamp,
    /// What its transactions are paid in.
    pub symbol: String,
    /// Since when its signer has not answered, and why; `None` while it does.
    pub signer_away: Option<(Timestamp, String)>,
}

statements! {
    REPORT = "INSERT INTO sender_reports (chain, heartbeat_us, symbol, signer_away_us, signer_reason) VALUES ($1, $2, $3, $4, $5) \
              ON CONFLICT (chain) DO UPDATE SET heartbeat_us = excluded.heartbeat_us, symbol = excluded.symbol, \
              signer_away_us = CASE WHEN excluded.signer_away_us IS NULL THEN NULL \
              ELSE COALESCE(sender_reports.signer_away_us, excluded.signer_away_us) END, signer_reason = excluded.signer_reason";
    REPORTED = "SELECT heartbeat_us, symbol, signer_away_us, signer_reason FROM sender_reports WHERE chain = $1";
    SURCHARGED = "UPDATE sender_reports SET surcharge = $2 WHERE chain = $1";
    SURCHARGE = "SELECT surcharge FROM sender_reports WHERE chain = $1";
}

#[derive(FromRow)]
struct Row {
    heartbeat_us: i64,
    symbol: String,
    signer_away_us: Option<i64>,
    signer_reason: Option<String>,
}

/// Records a report; `away` is why the signer does not answer. Since when is what the first report of it said.
pub async fn record(
    tx: &mut Tx,
    chain: Chain,
    symbol: &str,
    away: Option<&str>,
    now: Timestamp,
) -> Result<(), StoreError> {
    let since = away.map(|_| now.0);
    let recorded = execute!(tx, REPORT, chain.name(), now.0, symbol, since, away)?;
    expect_one("record a sender's report", recorded)
}

/// The last report; `None` where nobody ever sent.
pub async fn last(connection: &mut impl Connection, chain: Chain) -> Result<Option<SenderStatus>, StoreError> {
    let row = fetch_optional!(connection, Row, REPORTED, chain.name())?;
    Ok(row.map(|Row { heartbeat_us, symbol, signer_away_us, signer_reason }| SenderStatus {
        heartbeat_at: Timestamp(heartbeat_us),
        symbol,
        signer_away: signer_away_us.map(|since| (Timestamp(since), signer_reason.unwrap_or_default())),
    }))
}

/// Records what the chain takes of a usual transaction on top of gas, beside the last report.
pub async fn surcharged(tx: &mut Tx, chain: Chain, surcharge: U256) -> Result<(), StoreError> {
    execute!(tx, SURCHARGED, chain.name(), surcharge.to_string())?;
    Ok(())
}

/// What the chain took of a usual transaction on top of gas when that was last asked; nothing where it never was.
pub async fn surcharge(connection: &mut impl Connection, chain: Chain) -> Result<U256, StoreError> {
    let row = fetch_optional!(connection, (Option<String>,), SURCHARGE, chain.name())?;
    let Some(text) = row.and_then(|(surcharge,)| surcharge) else { return Ok(U256::ZERO) };
    parsed("surcharge", &text)
}
