//! `landfall gas bill`: what was charged in a month, as CSV for programs that keep books, or as JSON.

use anyhow::{Context, ensure};
use chrono::{Months, NaiveDate};
use clap::Args;
use serde::Serialize;

use crate::amount::to_decimal;
use crate::cli::{PAGE_ROWS, json_line};
use crate::gas::{ChargedTo, Usd};
use crate::store::Db;
use crate::store::gas_ledger::{self, Listed};
use crate::time::Timestamp;

const HEADER: &str = "priced_at,charged_to,usd,transfer_id,account_id,identity_id,chain,transaction_hash,amount,currency_symbol,\
                      price_usd,price_source";

/// What was charged in a month (UTC). A cost belongs to the month in which it was priced, so a past month never changes.
#[derive(Args, Debug)]
pub(in crate::cli) struct Bill {
    /// For example 2026-11.
    #[arg(long, value_parser = month)]
    month: Month,
    /// One JSON object, with the sums, instead of CSV.
    #[arg(long)]
    json: bool,
}

/// From when on, and up to when, exclusive.
#[derive(Clone, Debug)]
struct Month {
    name: String,
    from: Timestamp,
    to: Timestamp,
}

#[derive(Serialize)]
struct Shown {
    month: String,
    credit_usd: String,
    billed_usd: String,
    lines: Vec<Line>,
}

/// A part of a cost: one that crosses the credit has two.
#[derive(Serialize)]
struct Line {
    priced_at: String,
    charged_to: &'static str,
    usd: String,
    transfer_id: String,
    account_id: String,
    identity_id: String,
    chain: &'static str,
    transaction_hash: String,
    /// What the whole transaction cost, in the native currency's major unit.
    amount: String,
    currency_symbol: String,
    price_usd: String,
    price_source: &'static str,
}

impl Bill {
    pub(super) async fn run(self, db: &Db) -> anyhow::Result<()> {
        let Month { name, from, to } = self.month;
        let mut reader = db.read().await?;
        let (mut lines, mut credit, mut billed) = (Vec::new(), Usd::default(), Usd::default());
        let mut after = (from, String::new());
        loop {
            let page = gas_ledger::priced_between(&mut reader, (after.0, &after.1), to, PAGE_ROWS).await?;
            let Some(last) = page.last() else { break };
            let last_at = last.entry.pricing.as_ref().map_or(after.0, |pricing| pricing.at);
            after = (last_at, last.key.clone());
            for listed in &page {
                let Some(pricing) = &listed.entry.pricing else { continue };
                credit = credit.plus(pricing.split.credit);
                billed = billed.plus(pricing.split.billed);
                for (to, usd) in [(ChargedTo::Credit, pricing.split.credit), (ChargedTo::Billed, pricing.split.billed)]
                {
                    lines.extend(Line::of(listed, to, usd).filter(|_| usd > Usd::default()));
                }
            }
        }
        if self.json {
            let (credit_usd, billed_usd) = (credit.to_string(), billed.to_string());
            say!("{}", json_line(&Shown { month: name, credit_usd, billed_usd, lines })?);
            return Ok(());
        }
        say!("{HEADER}");
        lines.iter().for_each(|line| say!("{}", line.csv()));
        Ok(())
    }
}

impl Line {
    fn of(listed: &Listed, to: ChargedTo, usd: Usd) -> Option<Self> {
        let entry = &listed.entry;
        let (of, pricing, (tx, _)) = (entry.transfer.as_ref()?, entry.pricing.as_ref()?, entry.landed.as_ref()?);
        let by = pricing.by.as_ref()?;
        Some(Line {
            priced_at: pricing.at.to_string(),
            charged_to: to.name(),
            usd: usd.to_string(),
            transfer_id: of.id?.to_string(),
            account_id: listed.account_id.clone().unwrap_or_default(),
            identity_id: listed.identity_id.clone().unwrap_or_default(),
            chain: of.chain.name(),
            transaction_hash: tx.to_string(),
            amount: to_decimal(of.amount, of.decimals),
            currency_symbol: of.symbol.clone(),
            price_usd: by.price.to_string(),
            price_source: by.source.name(),
        })
    }

    fn csv(&self) -> String {
        let fields = [
            &self.priced_at,
            self.charged_to,
            &self.usd,
            &self.transfer_id,
            &self.account_id,
            &self.identity_id,
            self.chain,
            &self.transaction_hash,
            &self.amount,
            &self.currency_symbol,
            &self.price_usd,
            self.price_source,
        ];
        fields.map(quoted).join(",")
    }
}

/// A field of CSV (RFC 4180). An id may have a comma or a quotation mark in it.
fn quoted(field: &str) -> String {
    if field.contains([',', '"']) { format!("\"{}\"", field.replace('"', "\"\"")) } else { field.to_owned() }
}

fn month(text: &str) -> anyhow::Result<Month> {
    let expected = "expected a month such as 2026-11";
    ensure!(text.len() == 7, expected);
    let first = NaiveDate::parse_from_str(&format!("{text}-01"), "%Y-%m-%d").context(expected)?;
    let next = first.checked_add_months(Months::new(1)).context(expected)?;
    let at = |day: NaiveDate| Timestamp(day.and_time(chrono::NaiveTime::MIN).and_utc().timestamp_micros());
    Ok(Month { name: text.to_owned(), from: at(first), to: at(next) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_month_is_from_its_first_moment_up_to_the_next_one() {
        let Month { from, to, .. } = month("2026-12").unwrap();
        assert_eq!((from.to_string(), to.to_string()), ("2026-12-01T00:00:00Z".into(), "2027-01-01T00:00:00Z".into()));
        for text in ["2026-13", "2026-1", "2026", "11-2026", "2026-11-01", "", "2026/11", "2026-+1"] {
            assert!(month(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_field_with_a_comma_stays_one_field() {
        assert_eq!(["a", "a,b", "a\"b"].map(quoted), ["a", "\"a,b\"", "\"a\"\"b\""]);
    }
}
