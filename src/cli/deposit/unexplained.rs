//! The lines of `landfall deposit unattributed` without a transaction: addresses that hold more or less than the record
//! explains. A difference that is explained by now, because its blocks were read again, is not shown.

use landfall_chain::{Chain, Network};
use serde::Serialize;

use crate::amount::to_decimal;
use crate::balance::{Moved, Readings, Unexplained};
use crate::cli::{PAGE_ROWS, json_line};
use crate::store::Reader;
use crate::store::unexplained::{self, Entry};

/// `deposit unattributed --json`, one a line.
#[derive(Serialize)]
struct Line {
    chain: &'static str,
    /// `unexplained_balance`.
    reason: &'static str,
    account_id: Option<String>,
    destination_address: String,
    /// `native`, or the token's contract or mint.
    asset: String,
    /// Null where the asset is not listed.
    currency_symbol: Option<String>,
    /// By how much more is held than is explained, in the major unit. Negative if less is held; null where the asset is
    /// not listed.
    amount: Option<String>,
    base_units: String,
    /// The amount held after this block, what came and left above it up to the newer block, and the amount held after
    /// that.
    since_block_number: u64,
    had_base_units: String,
    came_base_units: String,
    left_base_units: String,
    block_number: u64,
    held_base_units: String,
    found_at: String,
}

impl Line {
    /// `None` if the record explains it.
    fn of(entry: Entry, moved: &Moved, network: Option<&Network>) -> Option<Self> {
        let Readings { chain, address, asset, had, has } = entry.readings;
        let (sign, amount) = match entry.readings.unexplained(moved)? {
            Unexplained::More(amount) => ("", amount),
            Unexplained::Less(amount) => ("-", amount),
        };
        let listed = network.and_then(|network| network.asset(&asset));
        Some(Line {
            chain: chain.name(),
            reason: "unexplained_balance",
            account_id: entry.account_id,
            destination_address: address.to_string(),
            asset: asset.to_string(),
            currency_symbol: listed.map(|listed| listed.symbol.clone()),
            amount: listed.map(|listed| format!("{sign}{}", to_decimal(amount, listed.decimals))),
            base_units: format!("{sign}{amount}"),
            since_block_number: had.number,
            had_base_units: had.amount.to_string(),
            came_base_units: moved.came.to_string(),
            left_base_units: moved.left.to_string(),
            block_number: has.number,
            held_base_units: has.amount.to_string(),
            found_at: entry.found_at.to_string(),
        })
    }

    fn text(&self) -> String {
        let what = match (&self.amount, &self.currency_symbol) {
            (Some(amount), Some(symbol)) => format!("{amount} {symbol}"),
            _ => format!("{} base units of {}", self.base_units, self.asset),
        };
        let Line { reason, found_at, chain, destination_address, since_block_number, block_number, .. } = self;
        let whose = self.account_id.as_deref().unwrap_or("nobody");
        format!(
            "{found_at} {reason:<24} {what} of {whose} at {destination_address} on {chain} above {since_block_number} \
             through {block_number}"
        )
    }
}

/// Prints the unexplained balances of `chain`.
pub(super) async fn list(
    reader: &mut Reader,
    chain: Chain,
    network: Option<&Network>,
    json: bool,
) -> anyhow::Result<()> {
    let mut after: Option<Entry> = None;
    loop {
        let page = unexplained::list(reader, chain, after.as_ref(), PAGE_ROWS).await?;
        after = page.last().cloned();
        for entry in page {
            let moved = unexplained::moved(reader, &entry.readings).await?;
            // If thousands of movements were found later, they are not added up, and there is no line.
            if let Some(line) = moved.and_then(|moved| Line::of(entry, &moved, network)) {
                say!("{}", if json { json_line(&line)? } else { line.text() });
            }
        }
        if after.is_none() {
            return Ok(());
        }
    }
}
