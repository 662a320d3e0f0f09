//! `landfall deposit list`.

use clap::Subcommand;

use crate::amount::to_decimal;
use crate::api::DepositResource;
use crate::cli::json_line;
use crate::store::Db;
use crate::store::deposits::{self, DepositFilter};

const PAGE_ROWS: u32 = 500;

#[derive(Subcommand, Debug)]
pub(super) enum Deposit {
    /// Show every deposit, newest first.
    List {
        /// A JSON object for each deposit, one a line, as the API shows it.
        #[arg(long)]
        json: bool,
    },
}

impl Deposit {
    pub(super) async fn run(self, db: &Db) -> anyhow::Result<()> {
        let Deposit::List { json } = self;
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
}

fn line(deposit: &crate::deposit::Deposit) -> String {
    let amount = to_decimal(deposit.amount, deposit.decimals);
    let crate::deposit::Deposit { id, account_id, chain, symbol, status, created_at, .. } = deposit;
    format!("{created_at} {id} {status:<9} {amount} {symbol} to {account_id} on {chain} in {}", deposit.tx.id)
}
