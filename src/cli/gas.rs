//! `landfall gas show|ledger|price|bill`.

mod bill;

use std::path::Path;

use clap::Subcommand;
use landfall_chain::Network;
use serde::Serialize;

use crate::amount::to_decimal;
use crate::api::GasCreditResource;
use crate::app;
use crate::cli::{How, PAGE_ROWS, existing, json_line, load, open_existing};
use crate::gas::{Bearer, Observation, Price as Usd};
use crate::store::gas_ledger::{self, Listed};
use crate::store::{Db, prices};
use crate::time::Clock;
use bill::Bill;

#[derive(Subcommand, Debug)]
pub(super) enum Gas {
    /// Show what was given, used, held and billed.
    Show {
        /// One JSON object, as the API shows it.
        #[arg(long)]
        json: bool,
    },
    /// Show the entries of the ledger, newest first.
    Ledger {
        /// Only costs that wait for a price.
        #[arg(long)]
        unpriced: bool,
        /// A JSON object for each, one a line.
        #[arg(long)]
        json: bool,
    },
    /// What native currencies cost.
    #[command(subcommand)]
    Price(Price),
    /// Show what was charged in a month, as CSV.
    Bill(Bill),
}

#[derive(Subcommand, Debug)]
pub(super) enum Price {
    /// Set what one unit of a native currency costs, from now on. What waits for a price is priced by it.
    Set {
        /// For example ETH.
        symbol: String,
        /// In USD, more than 0, at most 12 decimals.
        // Else a price below 0 would be an unknown flag.
        #[arg(allow_negative_numbers = true)]
        usd: Usd,
        #[command(flatten)]
        how: How,
    },
    /// Show the newest price of each currency.
    List {
        /// A JSON object for each, one a line.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Serialize)]
struct PriceLine {
    symbol: String,
    usd: String,
    source: &'static str,
    observed_at: String,
}

/// An entry of the ledger. What it has not is null.
#[derive(Serialize)]
struct EntryLine {
    kind: &'static str,
    at: String,
    transfer_id: Option<String>,
    account_id: Option<String>,
    chain: Option<&'static str>,
    /// By which way a payment is sent, or what else it was for.
    route: Option<String>,
    transaction_hash: Option<String>,
    block_number: Option<u64>,
    /// In the native currency's major unit.
    amount: Option<String>,
    currency_symbol: Option<String>,
    borne_by: Option<&'static str>,
    /// Null until it is priced.
    usd: Option<String>,
    credit_usd: Option<String>,
    billed_usd: Option<String>,
    platform_usd: Option<String>,
    price_usd: Option<String>,
    price_source: Option<&'static str>,
    price_observed_at: Option<String>,
    priced_at: Option<String>,
}

impl Gas {
    pub(super) async fn run(self, config: &Path) -> anyhow::Result<()> {
        match self {
            Gas::Show { json } => show(&existing(config).await?, json).await,
            Gas::Ledger { unpriced, json } => ledger(&existing(config).await?, unpriced, json).await,
            Gas::Price(Price::Set { symbol, usd, how }) => {
                let config = load(config)?;
                let networks = config.chains.iter().map(|(chain, settings)| app::network(*chain, settings));
                let networks: Vec<Network> = networks.collect::<Result<_, _>>()?;
                let db = open_existing(&config.store).await?;
                let set = how.decide(async |by| by.set_price(&db, &symbol, usd, &networks).await).await?;
                let costs = if how.dry_run { "would cost" } else { "costs" };
                let text = format!("one {symbol} {costs} {usd} USD");
                say!("{}", if how.json { json_line(&PriceLine::of(&set))? } else { text });
                Ok(())
            }
            Gas::Price(Price::List { json }) => {
                for observation in prices::newest(&mut existing(config).await?.read().await?).await? {
                    let Observation { symbol, price, source, at } = &observation;
                    let text = format!("{symbol} {price} USD, {} at {at}", source.name());
                    say!("{}", if json { json_line(&PriceLine::of(&observation))? } else { text });
                }
                Ok(())
            }
            Gas::Bill(bill) => bill.run(&existing(config).await?).await,
        }
    }
}

async fn show(db: &Db, json: bool) -> anyhow::Result<()> {
    let mut reader = db.read().await?;
    let (credit, unpriced) = (gas_ledger::credit(&mut reader).await?, gas_ledger::unpriced_costs(&mut reader).await?);
    if json {
        say!("{}", json_line(&GasCreditResource::of(credit, unpriced, Clock::system().now()))?);
        return Ok(());
    }
    say!("granted   {} USD", credit.granted);
    say!("used      {} USD", credit.used);
    say!("held      {} USD", credit.held);
    say!("remaining {} USD", credit.remaining());
    say!("billable  {} USD", credit.billed);
    say!("platform  {} USD", credit.platform);
    say!("unpriced  {unpriced} costs");
    Ok(())
}

async fn ledger(db: &Db, unpriced: bool, json: bool) -> anyhow::Result<()> {
    let mut reader = db.read().await?;
    let mut last: Option<Listed> = None;
    loop {
        let after = last.as_ref().map(|last| (last.entry.at, last.key.as_str()));
        let page = gas_ledger::newest(&mut reader, after, PAGE_ROWS).await?;
        let waits = |listed: &&Listed| listed.entry.landed.is_some() && listed.entry.pricing.is_none();
        for listed in page.iter().filter(|listed| !unpriced || waits(listed)) {
            let line = EntryLine::of(listed);
            say!("{}", if json { json_line(&line)? } else { line.text() });
        }
        last = page.into_iter().next_back();
        if last.is_none() {
            return Ok(());
        }
    }
}

impl PriceLine {
    fn of(observation: &Observation) -> Self {
        let Observation { symbol, price, source, at } = observation;
        PriceLine { symbol: symbol.clone(), usd: price.to_string(), source: source.name(), observed_at: at.to_string() }
    }
}

impl EntryLine {
    fn of(listed: &Listed) -> Self {
        let (entry, of, pricing) = (&listed.entry, listed.entry.transfer.as_ref(), listed.entry.pricing.as_ref());
        let (by, split) = (pricing.and_then(|pricing| pricing.by.as_ref()), pricing.filter(|_| entry.landed.is_some()));
        EntryLine {
            kind: entry.kind.name(),
            at: entry.at.to_string(),
            transfer_id: of.and_then(|of| of.id).map(|id| id.to_string()),
            account_id: listed.account_id.clone(),
            chain: of.map(|of| of.chain.name()),
            route: of.map(|of| of.route.clone()),
            transaction_hash: entry.landed.map(|(tx, _)| tx.to_string()),
            block_number: entry.landed.map(|(_, block)| block.number),
            amount: of.map(|of| to_decimal(of.amount, of.decimals)),
            currency_symbol: of.map(|of| of.symbol.clone()),
            borne_by: entry.bearer.map(Bearer::name),
            usd: pricing.map(|pricing| pricing.usd.to_string()),
            credit_usd: split.map(|pricing| pricing.split.credit.to_string()),
            billed_usd: split.map(|pricing| pricing.split.billed.to_string()),
            platform_usd: split.map(|pricing| pricing.split.platform.to_string()),
            price_usd: by.map(|by| by.price.to_string()),
            price_source: by.map(|by| by.source.name()),
            price_observed_at: by.map(|by| by.at.to_string()),
            priced_at: pricing.map(|pricing| pricing.at.to_string()),
        }
    }

    fn text(&self) -> String {
        let EntryLine { kind, at, .. } = self;
        let usd = self.usd.as_ref().map_or("not priced".to_owned(), |usd| format!("{usd} USD"));
        let of = match (&self.transfer_id, &self.route) {
            (Some(id), _) => format!(" of transfer {id}"),
            (None, Some(what)) => format!(" of a {what}"),
            (None, None) => String::new(),
        };
        let amount = self.amount.as_ref().zip(self.currency_symbol.as_ref());
        let amount = amount.map_or(String::new(), |(amount, symbol)| format!(" ({amount} {symbol})"));
        let tx = self.transaction_hash.as_ref().map_or(String::new(), |tx| format!(" for {tx}"));
        format!("{at} {kind:<7} {usd}{amount}{of}{tx}")
    }
}
