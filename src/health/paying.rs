//! All that is reported of sending on a chain: its sender, its signer, its gas, and what a person should check of them.

use std::time::Duration;

use landfall_chain::Chain;
use serde::Serialize;

use crate::health::SenderReport;
use crate::store::sender_reports::{self, SenderStatus};
use crate::store::{Connection, StoreError, gas_ledger, prices};
use crate::time::Timestamp;

/// A signer that has been away for longer is an alarm.
const AWAY_MAX: Duration = Duration::from_secs(5 * 60);
/// What has waited for a price for longer, and a price that is older than it may be for longer, is an alarm.
const UNPRICED_MAX: Duration = Duration::from_secs(5 * 60);

/// What is reported of sending on a chain; nothing where nobody sends or wants to.
#[derive(Debug, Default)]
pub(super) struct Sending {
    pub(super) sender: Option<SenderReport>,
    pub(super) signer: Option<SignerReport>,
    pub(super) gas: Option<GasReport>,
}

/// What the process that sends last reported of its signer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct SignerReport {
    /// `ready`, or `away`: it does not answer.
    pub state: &'static str,
    /// For how long it has been away; null while it is not.
    pub away_secs: Option<u64>,
    /// Why; empty while it is not.
    pub reason: String,
}

/// What transactions of the chain are paid in, its price, and what waits for one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct GasReport {
    pub symbol: String,
    /// What one unit costs in USD, and how long ago that was observed; null before the first price.
    pub usd: Option<String>,
    pub price_secs: Option<u64>,
    /// How many entries of the ledger wait for a price, and for how long the oldest has.
    pub unpriced: u64,
    pub unpriced_secs: Option<u64>,
    /// For how long the price is older than it may be; null while it is not, and where a person sets it.
    pub stale_secs: Option<u64>,
}

impl Sending {
    pub(super) async fn read(
        connection: &mut impl Connection,
        chain: Chain,
        now: Timestamp,
    ) -> Result<Self, StoreError> {
        let Some(sender) = SenderReport::read(connection, chain, now).await? else { return Ok(Sending::default()) };
        let (mut signer, mut gas) = (None, None);
        if let Some(reported) = sender_reports::last(connection, chain).await? {
            // A report of a process that is gone says nothing of the signer now.
            signer = sender.leader.is_some().then(|| SignerReport::of(&reported, now));
            gas = Some(GasReport::read(connection, chain, &reported.symbol, now).await?);
        }
        Ok(Sending { sender: Some(sender), signer, gas })
    }

    /// What a person should check.
    pub(super) fn alarms(&self) -> Vec<String> {
        let alarms = self.sender.iter().flat_map(SenderReport::alarms);
        let of_signer = self.signer.iter().filter_map(SignerReport::alarm);
        alarms.chain(of_signer).chain(self.gas.iter().filter_map(GasReport::alarm)).collect()
    }
}

impl SignerReport {
    pub(super) fn of(reported: &SenderStatus, now: Timestamp) -> Self {
        match &reported.signer_away {
            None => SignerReport { state: "ready", away_secs: None, reason: String::new() },
            Some((since, reason)) => {
                let away_secs = Some(now.since(*since).as_secs());
                SignerReport { state: "away", away_secs, reason: reason.clone() }
            }
        }
    }

    pub(super) fn alarm(&self) -> Option<String> {
        let is_late = self.away_secs.is_some_and(|secs| secs > AWAY_MAX.as_secs());
        is_late.then(|| format!("the signer does not answer, so nothing is signed: {}", self.reason))
    }
}

impl GasReport {
    pub(super) async fn read(
        connection: &mut impl Connection,
        chain: Chain,
        symbol: &str,
        now: Timestamp,
    ) -> Result<Self, StoreError> {
        let price = prices::of_moment(connection, symbol, now).await?;
        let (unpriced, since) = gas_ledger::unpriced_since(connection, chain).await?;
        let good_until = prices::good_until(connection, symbol).await?.filter(|until| *until < now);
        Ok(GasReport {
            symbol: symbol.to_owned(),
            usd: price.as_ref().map(|observed| observed.price.to_string()),
            price_secs: price.map(|observed| now.since(observed.at).as_secs()),
            unpriced,
            unpriced_secs: since.map(|since| now.since(since).as_secs()),
            stale_secs: good_until.map(|until| now.since(until).as_secs()),
        })
    }

    pub(super) fn alarm(&self) -> Option<String> {
        let GasReport { symbol, unpriced, unpriced_secs, stale_secs, .. } = self;
        let is_late = |secs: &Option<u64>| secs.is_some_and(|secs| secs > UNPRICED_MAX.as_secs());
        if is_late(unpriced_secs) {
            let what = "entries of the gas ledger wait for a price";
            return Some(format!("{unpriced} {what}: `landfall gas price set {symbol}`"));
        }
        is_late(stale_secs).then(|| {
            let what = "is older than `transfers.prices.max_age_secs`";
            format!("the price of {symbol} {what}: see the log, or `landfall gas price set {symbol}`")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signer_that_is_away_for_five_minutes_and_a_price_that_is_missing_for_so_long_are_alarms() {
        let now = Timestamp(1_800_000_000_000_000);
        let away = |secs| {
            let since = now.minus(Duration::from_secs(secs));
            let signer_away = Some((since, "no socket".to_owned()));
            SignerReport::of(&SenderStatus { heartbeat_at: now, symbol: "ETH".to_owned(), signer_away }, now)
        };
        assert_eq!(away(300).alarm(), None);
        let alarm = "the signer does not answer, so nothing is signed: no socket";
        assert_eq!(away(301).alarm().as_deref(), Some(alarm));
        let gas_of = |unpriced_secs, stale_secs| GasReport {
            symbol: "ETH".to_owned(),
            usd: None,
            price_secs: None,
            unpriced: 2,
            unpriced_secs,
            stale_secs,
        };
        let gas = |secs| gas_of(secs, None);
        assert_eq!([None, Some(300)].map(|secs| gas(secs).alarm()), [None, None]);
        assert_eq!(gas_of(None, Some(300)).alarm(), None);
        let alarm = "the price of ETH is older than `transfers.prices.max_age_secs`: see the log, or `landfall gas price set ETH`";
        assert_eq!(gas_of(None, Some(301)).alarm().as_deref(), Some(alarm));
        let alarm = "2 entries of the gas ledger wait for a price: `landfall gas price set ETH`";
        assert_eq!(gas(Some(301)).alarm().as_deref(), Some(alarm));
    }
}
