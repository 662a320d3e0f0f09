//! `landfall deposit list|show|unattributed|explain|decide`.

mod explain;
mod show;
mod unattributed;
mod unexplained;

use std::path::Path;
use std::process::ExitCode;

use clap::Subcommand;
use landfall_chain::{Chain, TxId};

use crate::amount::to_decimal;
use crate::api::DepositResource;
use crate::cli::{PAGE_ROWS, Why, as_operator, existing, json_line, load};
use crate::deposit::DepositId;
use crate::store::Db;
use crate::store::deposits::{self, DepositFilter};

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
    /// Show what arrived for accounts and is no deposit, with its reason, newest first: nothing credits it but a
    /// person. Behind it what balances hold and nothing on record explains.
    Unattributed {
        /// Of this chain only, for example SOLANA_MAINNET.
        #[arg(long)]
        chain: Option<Chain>,
        /// Own rent and own wrapped SOL that came back, too.
        #[arg(long)]
        all: bool,
        /// A JSON object for each, one a line.
        #[arg(long)]
        json: bool,
    },
    /// Say of each leg of a transaction why it is a credit or none: exit 0 found, 1 unknown, 2 could not be read.
    Explain {
        /// For example BASE_MAINNET; it must be configured.
        chain: Chain,
        /// The transaction's hash; on Solana its first signature.
        transaction: String,
        /// One JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Decide about a doubtful deposit, which neither balances nor two engines decide; it is settled when its block is
    /// final.
    Decide {
        /// The deposit's id.
        id: DepositId,
        /// It was paid. Never taken for more than the recipient's balances allow.
        #[arg(long, required_unless_present = "fail", conflicts_with = "fail")]
        confirm: bool,
        /// It was not paid.
        #[arg(long)]
        fail: bool,
        #[command(flatten)]
        why: Why,
    },
}

impl Deposit {
    pub(super) async fn run(self, config: &Path) -> anyhow::Result<ExitCode> {
        match self {
            Deposit::List { json } => list(&existing(config).await?, json).await?,
            Deposit::Show { id, json } => return show::one(&existing(config).await?, id, json).await,
            Deposit::Unattributed { chain, all, json } => unattributed::list(&load(config)?, chain, all, json).await?,
            Deposit::Explain { chain, transaction, json } => {
                let tx = TxId::parse(chain.family(), &transaction)?;
                return explain::one(&load(config)?, chain, tx, json).await;
            }
            Deposit::Decide { id, confirm, fail: _, why } => {
                let db = existing(config).await?;
                as_operator(&why.reason, async |operator| operator.decide_deposit(&db, id, confirm).await).await?;
                let what = if confirm { "CONFIRMED" } else { "FAILED" };
                say!("deposit {id} is decided: it becomes {what} when its block is final");
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

async fn list(db: &Db, json: bool) -> anyhow::Result<()> {
    let mut reader = db.read().await?;
    let mut filter = DepositFilter::default();
    loop {
        let page = deposits::list(&mut reader, &filter, PAGE_ROWS).await?;
        for deposit in &page {
            say!("{}", if json { json_line(&DepositResource::of(deposit))? } else { line(deposit) });
        }
        match page.last() {
            Some(last) => filter.after = Some((last.created_at, last.id)),
            None => return Ok(()),
        }
    }
}

fn line(deposit: &crate::deposit::Deposit) -> String {
    let amount = to_decimal(deposit.amount, deposit.decimals);
    let crate::deposit::Deposit { id, account_id, chain, symbol, status, created_at, .. } = deposit;
    format!("{created_at} {id} {status:<9} {amount} {symbol} to {account_id} on {chain} in {}", deposit.tx.id)
}
