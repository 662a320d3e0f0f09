//! What `landfall deposit unattributed` prints: an inbox of what arrived for accounts and is no deposit. After it, for
//! each chain, come the balances that no transaction explains (`unexplained`).
//!
//! Deliberately not in it: tokens that are not listed, since anybody can send any number of them to anybody. `deposit
//! explain` shows those.

use landfall_chain::{Chain, Network};
use serde::Serialize;

use crate::amount::to_decimal;
use crate::app;
use crate::cli::deposit::unexplained;
use crate::cli::{PAGE_ROWS, json_line, open_existing};
use crate::config::Config;
use crate::store::unattributed::{self, Arrival};

/// `deposit unattributed --json`, one a line.
#[derive(Serialize)]
struct Line {
    chain: &'static str,
    /// Why it is no deposit: a code of `deposit explain`.
    reason: String,
    account_id: Option<String>,
    destination_address: String,
    source_address: String,
    source_rule: &'static str,
    /// `native`, or the token's contract or mint.
    asset: String,
    /// Null where the asset is not listed.
    currency_symbol: Option<String>,
    /// In the major unit; null where the asset is not listed.
    amount: Option<String>,
    base_units: String,
    transaction_hash: String,
    block_number: u64,
    block_hash: String,
    block_time: String,
    #[serde(rename = "final")]
    is_final: bool,
}

impl Line {
    fn of(arrival: Arrival, network: Option<&Network>) -> Self {
        let Arrival { chain, block, asset, amount, .. } = arrival;
        let listed = network.and_then(|network| network.asset(&asset));
        Line {
            chain: chain.name(),
            reason: arrival.reason,
            account_id: arrival.account_id,
            destination_address: arrival.recipient.to_string(),
            source_address: arrival.sender.to_string(),
            source_rule: arrival.sender_rule.name(),
            asset: asset.to_string(),
            currency_symbol: listed.map(|listed| listed.symbol.clone()),
            amount: listed.map(|listed| to_decimal(amount, listed.decimals)),
            base_units: amount.to_string(),
            transaction_hash: arrival.tx.to_string(),
            block_number: block.number,
            block_hash: block.hash.text(chain.family()),
            block_time: arrival.at.to_string(),
            is_final: arrival.is_final,
        }
    }

    fn text(&self) -> String {
        let what = match (&self.amount, &self.currency_symbol) {
            (Some(amount), Some(symbol)) => format!("{amount} {symbol}"),
            _ => format!("{} base units of {}", self.base_units, self.asset),
        };
        let Line { reason, block_time, chain, destination_address, transaction_hash, .. } = self;
        let whose = self.account_id.as_deref().unwrap_or("nobody");
        let state = if self.is_final { "" } else { ", not final yet" };
        format!(
            "{block_time} {reason:<24} {what} to {whose} at {destination_address} on {chain} in {transaction_hash}{state}"
        )
    }
}

/// Prints the inbox of `chain`, or of all.
pub(super) async fn list(config: &Config, chain: Option<Chain>, all: bool, json: bool) -> anyhow::Result<()> {
    let db = open_existing(&config.store).await?;
    let mut reader = db.read().await?;
    for chain in Chain::ALL.into_iter().filter(|one| chain.is_none_or(|chain| chain == *one)) {
        // Of a chain that is not configured any more, only the symbols are unknown.
        let network = config.chains.get(&chain).and_then(|settings| app::network(chain, settings).ok());
        let mut after: Option<Arrival> = None;
        loop {
            let page = unattributed::list(&mut reader, chain, all, after.as_ref(), PAGE_ROWS).await?;
            after = page.last().cloned();
            for arrival in page {
                let line = Line::of(arrival, network.as_ref());
                say!("{}", if json { json_line(&line)? } else { line.text() });
            }
            if after.is_none() {
                break;
            }
        }
        unexplained::list(&mut reader, chain, network.as_ref(), json).await?;
    }
    Ok(())
}
