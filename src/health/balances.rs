//! Balances in the status report: tokens and addresses that no endpoint reports, and since when. Without a report a
//! balance is not refreshed, and without a first one it is not known at all, so this is a fault.

use std::time::Duration;

use landfall_chain::Chain;

use crate::store::balances::{self, Unreported};
use crate::store::{Connection, StoreError};
use crate::time::Timestamp;

/// How long a balance may be without a report.
const UNREPORTED_MAX: Duration = Duration::from_secs(30 * 60);
/// How many addresses are named.
const NAMED_MAX: usize = 3;

/// The alarms. Their texts stay the same while a fault lasts.
pub(super) async fn alarms(
    connection: &mut impl Connection,
    chain: Chain,
    now: Timestamp,
) -> Result<Vec<String>, StoreError> {
    let before = now.minus(UNREPORTED_MAX);
    let mut alarms = Vec::new();
    for followed in balances::followed(connection, chain).await? {
        if let Some(since) = followed.unreported_since.filter(|since| *since <= before) {
            let asset = followed.asset;
            alarms.push(format!("balances: since {since} no endpoint reports who holds how much of {asset}"));
        }
    }
    let limit = u32::try_from(NAMED_MAX + 1).unwrap_or(u32::MAX);
    let unreported = balances::unreported(connection, chain, before, limit).await?;
    for Unreported { address, assets, since } in unreported.iter().take(NAMED_MAX) {
        alarms.push(format!(
            "balances: since {since} endpoints do not report alike how much of {assets} {address} holds"
        ));
    }
    if unreported.len() > NAMED_MAX {
        alarms.push("balances: nor do they report it of others".to_owned());
    }
    Ok(alarms)
}
