//! What `landfall deposit show` prints: one deposit as the API shows it, and what the record has beyond that.

use std::process::ExitCode;

use serde::Serialize;

use crate::api::DepositResource;
use crate::cli::json_line;
use crate::deposit::{Deposit, DepositId};
use crate::store::Db;
use crate::store::deposits::{self, SeenIn};

/// `deposit show --json`.
#[derive(Serialize)]
struct Record {
    #[serde(flatten)]
    resource: DepositResource,
    /// How the source is known: `reported`, `only_payer`, `instruction`, `mint`, `fee_payer`, or `stand_in` if no
    /// endpoint could be asked.
    source_rule: &'static str,
    /// `native`, or the token's contract or mint.
    asset: String,
    base_units: String,
    /// Its number among equal legs of its transaction.
    nth: u32,
    /// The newest block that it was seen in; null where none is kept.
    block: Option<Place>,
}

#[derive(Serialize)]
struct Place {
    number: u64,
    hash: String,
    /// Whether the block is on our chain now.
    canonical: bool,
    /// Which lane showed it: `roots` or `traces`.
    lane: &'static str,
}

impl Record {
    fn of(deposit: &Deposit, seen_in: Option<SeenIn>) -> Self {
        Record {
            resource: DepositResource::of(deposit),
            source_rule: deposit.sender_rule.name(),
            asset: deposit.asset.to_string(),
            base_units: deposit.amount.to_string(),
            nth: deposit.nth,
            block: seen_in.map(|seen| Place {
                number: seen.block.number,
                hash: seen.block.hash.text(deposit.chain.family()),
                canonical: seen.canonical,
                lane: seen.lane.name(),
            }),
        }
    }

    fn lines(&self) -> Vec<String> {
        let Record { resource, source_rule, .. } = self;
        let DepositResource { id, status, amount, currency_symbol, destination_chain, .. } = resource;
        let place = self.block.as_ref().map_or("no block on record".to_owned(), |block| {
            let what = if block.canonical { "" } else { ", which our chain has left" };
            format!("block {} ({}){what}", block.number, block.hash)
        });
        vec![
            format!("deposit {id}: {amount} {currency_symbol} on {destination_chain}, {status}"),
            format!("to   {} of {}", resource.account_address, resource.account_id),
            format!("from {} ({source_rule})", resource.source_address),
            format!("in   {}, {place}", resource.transaction_hash),
            format!("made {}, confirmed {}", resource.created_at, resource.confirmed_at),
        ]
    }
}

pub(super) async fn one(db: &Db, id: DepositId, json: bool) -> anyhow::Result<ExitCode> {
    let mut reader = db.read().await?;
    let Some(deposit) = deposits::by_id(&mut reader, id).await? else {
        complain!("landfall: no deposit {id} is on record");
        return Ok(ExitCode::FAILURE);
    };
    let record = Record::of(&deposit, deposits::seen_in(&mut reader, id).await?);
    if json {
        say!("{}", json_line(&record)?);
    } else {
        record.lines().iter().for_each(|line| say!("{line}"));
    }
    Ok(ExitCode::SUCCESS)
}
