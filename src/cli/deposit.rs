//! `landfall deposit list` and `landfall deposit explain`.

use std::path::Path;
use std::process::ExitCode;

use anyhow::bail;
use clap::Subcommand;
use landfall_chain::{Chain, TxId};

use crate::amount::to_decimal;
use crate::api::DepositResource;
use crate::cli::explain::{Report, unknown};
use crate::cli::{existing, json_line, load, open_existing, record, unattributed};
use crate::deposit::DepositId;
use crate::store::Db;
use crate::store::deposits::{self, DepositFilter};
use crate::watcher::explain::explain;

const PAGE_ROWS: u32 = 500;

#[derive(Subcommand, Debug)]
pub(super) enum Deposit {
    /// Show every deposit, newest first.
    List {
        /// A JSON object for each deposit, one a line, as the API shows it.
        #[arg(long)]
        json: bool,
    },
    /// Show one deposit with all that is on record of it: exit 0 found, 1 unknown.
    Show {
        /// The deposit's id.
        id: DepositId,
        /// One JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Show what arrived for accounts and is no deposit, with its reason, newest first: nothing credits it but a person.
    Unattributed {
        /// Of this chain only, for example SOLANA_MAINNET.
        #[arg(long)]
        chain: Option<String>,
        /// Own rent and own wrapped SOL that came back, too.
        #[arg(long)]
        all: bool,
        /// A JSON object for each arrival, one a line.
        #[arg(long)]
        json: bool,
    },
    /// Say of each leg of a transaction why it is a credit or none: exit 0 found, 1 unknown, 2 cannot tell.
    Explain {
        /// For example BASE_MAINNET; it must be configured.
        chain: String,
        /// The transaction's hash; on Solana its first signature.
        transaction: String,
        /// One JSON object.
        #[arg(long)]
        json: bool,
    },
}

impl Deposit {
    pub(super) async fn run(self, config: &Path) -> anyhow::Result<ExitCode> {
        match self {
            Deposit::List { json } => {
                show_all(&existing(config).await?, json).await?;
                Ok(ExitCode::SUCCESS)
            }
            Deposit::Show { id, json } => record::show(&existing(config).await?, id, json).await,
            Deposit::Unattributed { chain, all, json } => {
                let chain = chain.map(|chain| chain.parse()).transpose()?;
                unattributed::show(config, chain, all, json).await?;
                Ok(ExitCode::SUCCESS)
            }
            Deposit::Explain { chain, transaction, json } => {
                let chain: Chain = chain.parse()?;
                let tx = TxId::parse(chain.family(), &transaction)?;
                show_one(config, chain, tx, json).await
            }
        }
    }
}

async fn show_all(db: &Db, json: bool) -> anyhow::Result<()> {
    let mut reader = db.read().await?;
    let mut filter = DepositFilter::default();
    loop {
        let page = deposits::list(&mut reader, &filter, PAGE_ROWS).await?;
        for deposit in &page {
            println!("{}", if json { json_line(&DepositResource::of(deposit))? } else { line(deposit) });
        }
        match page.last() {
            Some(last) => filter.after = Some((last.created_at, last.id)),
            None => return Ok(()),
        }
    }
}

async fn show_one(config: &Path, chain: Chain, tx: TxId, json: bool) -> anyhow::Result<ExitCode> {
    let config = load(config)?;
    let Some(settings) = config.chains.get(&chain) else {
        bail!("{chain} is not configured; add a section [chains.{chain}]");
    };
    let (source, network) = crate::app::source(chain, settings)?;
    let db = open_existing(&config.store).await?;
    let Some(explanation) = explain(&source, &db, &network, tx).await? else {
        eprintln!("landfall: {}", unknown(chain, &tx));
        return Ok(ExitCode::FAILURE);
    };
    let report = Report::of(&network, &tx, explanation);
    if json {
        println!("{}", json_line(&report)?);
    } else {
        report.lines().iter().for_each(|line| println!("{line}"));
    }
    Ok(ExitCode::SUCCESS)
}

fn line(deposit: &crate::deposit::Deposit) -> String {
    let amount = to_decimal(deposit.amount, deposit.decimals);
    let crate::deposit::Deposit { id, account_id, chain, symbol, status, created_at, .. } = deposit;
    format!("{created_at} {id} {status:<9} {amount} {symbol} to {account_id} on {chain} in {}", deposit.tx.id)
}
