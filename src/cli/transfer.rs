//! `landfall transfer create|list|show|explain|cancel`.

use std::path::Path;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use landfall_chain::{Chain, Family, Route};
use serde::Serialize;

use crate::amount::to_decimal;
use crate::api::{TransferAsked, TransferResource, create_transfer};
use crate::app;
use crate::cli::{How, PAGE_ROWS, existing, json_line, load, open_existing};
use crate::config::Config;
use crate::random;
use crate::registry::Terms;
use crate::request::Made;
use crate::store::attempts::{self, Attempt, IntentRow};
use crate::store::transfers::{self, Change, TransferFilter};
use crate::store::{Db, marks};
use crate::time::Timestamp;
use crate::transfer::{RequestId, State, Transfer as Sent, TransferId, TransferStatus};

#[derive(Subcommand, Debug)]
pub(super) enum Transfer {
    /// Send money of an account, as a client would by `POST /v2/crypto/transfers`: the same checks, limits and refusals, whose codes
    /// docs/reference/problems.md has. The same request makes nothing new.
    Create(Create),
    /// Show every transfer, newest first.
    List {
        /// A JSON object for each transfer, one a line, as the API shows it.
        #[arg(long)]
        json: bool,
    },
    /// Show one transfer as the API shows it: exit 0 found, 1 unknown.
    Show {
        /// The transfer's id.
        id: TransferId,
        /// One JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Show why a transfer is what it is: each state and its evidence, each attempt, each block that shows its use: exit
    /// 0 found, 1 unknown.
    Explain {
        /// The transfer's id.
        id: TransferId,
        /// One JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Sign and send no payment of a transfer from now on. What a token with EIP-3009 may have been sent is cancelled there: then it
    /// is DROPPED, unless it is paid first. What else was signed may still be paid until its deadline. A final block behind
    /// that proves that nothing was paid: then it is FAILED, or DROPPED where it was signed
    Cancel {
        /// The transfer's id.
        id: TransferId,
        #[command(flatten)]
        how: How,
    },
}

#[derive(Args, Debug)]
pub(super) struct Create {
    /// The id of the account that pays.
    account: String,
    /// For example BASE_MAINNET.
    #[arg(long)]
    chain: Chain,
    /// The ticker of the asset on that chain.
    #[arg(long, value_name = "SYMBOL")]
    asset: String,
    /// Who is paid.
    #[arg(long, value_name = "ADDRESS")]
    to: String,
    /// In the asset's major unit.
    #[arg(long)]
    amount: String,
    /// A UUID: one request pays once, however often it comes. A new one where it is missing.
    #[arg(long, value_name = "UUID")]
    request_id: Option<RequestId>,
    #[command(flatten)]
    how: How,
}

#[derive(Serialize)]
struct Explained {
    #[serde(flatten)]
    transfer: Shown,
    /// How far it has come: `accepted`, `carried`, `included`, `expiring`, `confirmed`, `failed` or `dropped`.
    state: &'static str,
    route: String,
    /// The one-time key, in hexadecimal.
    intent_key: String,
    changes: Vec<ChangeLine>,
    intents: Vec<IntentLine>,
    attempts: Vec<AttemptLine>,
    marks: Vec<MarkLine>,
}

/// A transfer that a person cancels.
#[derive(Serialize)]
struct Cancelled {
    #[serde(flatten)]
    transfer: Shown,
    /// Its payer has signed it, or may have: it may still be paid.
    signed: bool,
}

/// A transfer as the API shows it, and what it is for: `PAYMENT` or `SWEEP`.
#[derive(Serialize)]
pub(super) struct Shown {
    kind: &'static str,
    #[serde(flatten)]
    resource: TransferResource,
}

#[derive(Serialize)]
struct ChangeLine {
    at: String,
    state: String,
    evidence: String,
    /// The block that showed it, and its time, as the chain says it; null where none did.
    block_number: Option<u64>,
    block_hash: Option<String>,
    block_time: Option<String>,
    /// The endpoints that reported the state of the key in that block; none where our own blocks showed it.
    reported_by: Vec<String>,
}

#[derive(Serialize)]
struct IntentLine {
    /// As it stands in the signature, in seconds since 1970.
    deadline: u64,
    signed: bool,
}

#[derive(Serialize)]
struct AttemptLine {
    /// `payment`, `cancellation`, or `clearing`: what takes its wallet's delegate away.
    purpose: &'static str,
    recorded_at: String,
    sponsor: String,
    nonce: u64,
    /// 0 for the first at its nonce.
    nth: u32,
    gas_limit: u64,
    /// In base units of the native currency, as text.
    max_fee: String,
    tip: String,
    /// Null until it is signed.
    transaction_hash: Option<String>,
    /// When it was last handed to a node, and what the node made of it.
    sent_at: Option<String>,
    response: Option<String>,
    /// Of one that makes a guard, with the number of the block that has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    blockhash: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    blockhash_of: Option<u64>,
}

#[derive(Serialize)]
struct MarkLine {
    block_number: u64,
    block_hash: String,
    /// Whether the block is on our chain now.
    canonical: bool,
    transaction_hash: String,
    /// `paid`, `nothing` or `cancelled`.
    effect: &'static str,
}

impl Transfer {
    pub(super) async fn run(self, config: &Path) -> anyhow::Result<ExitCode> {
        match self {
            Transfer::Create(create) => create.run(&load(config)?).await.map(|()| ExitCode::SUCCESS),
            Transfer::List { json } => list(&existing(config).await?, json).await.map(|()| ExitCode::SUCCESS),
            Transfer::Show { id, json } => show(&existing(config).await?, id, json).await,
            Transfer::Explain { id, json } => explain(&existing(config).await?, id, json).await,
            Transfer::Cancel { id, how } => {
                cancel(&existing(config).await?, id, &how).await.map(|()| ExitCode::SUCCESS)
            }
        }
    }
}

impl Create {
    async fn run(self, config: &Config) -> anyhow::Result<()> {
        let Create { account, chain, asset, to, amount, request_id, how } = self;
        let mut network = app::network(chain, config.chain(chain)?)?;
        config.restrict(std::slice::from_mut(&mut network));
        let request_id = request_id.unwrap_or_else(|| RequestId::random(random::bytes())).to_string();
        // Who repeats it without this id, because the answer was lost, pays a second time.
        complain!("request {request_id}: repeat it with --request-id {request_id}");
        let asked = TransferAsked { request_id, account_id: account, symbol: asset, amount, destination: to, chain };
        let terms = Terms { can_sign: config.signer.is_some(), over_credit: config.over_credit };
        let db = open_existing(&config.store).await?;
        let created = how.decide(async |by| {
            anyhow::Ok(create_transfer(&db, &[network], (terms, by.dry_run), asked, &by.author()?).await?)
        });
        let (transfer, made) = created.await?;
        if how.json {
            say!("{}", json_line(&Shown::of(&transfer))?);
        } else {
            lines(&transfer).iter().for_each(|line| say!("{line}"));
        }
        match (made, how.dry_run) {
            (Made::Before, true) => complain!("landfall: it was asked for before"),
            (Made::Before, false) => complain!("landfall: it was asked for before; nothing was changed"),
            (Made::Now, _) => {}
        }
        Ok(())
    }
}

async fn list(db: &Db, json: bool) -> anyhow::Result<()> {
    let mut reader = db.read().await?;
    let mut filter = TransferFilter::default();
    loop {
        let page = transfers::list(&mut reader, &filter, PAGE_ROWS).await?;
        for transfer in &page {
            say!("{}", if json { json_line(&Shown::of(transfer))? } else { line(transfer) });
        }
        match page.last() {
            Some(last) => filter.after = Some((last.created_at, last.id)),
            None => return Ok(()),
        }
    }
}

async fn cancel(db: &Db, id: TransferId, how: &How) -> anyhow::Result<()> {
    let (transfer, signed) = how.decide(async |operator| operator.cancel_transfer(db, id).await).await?;
    let deadline = transfer.deadline;
    let what = if transfer.state.status() == TransferStatus::Submitted && transfer.route == Route::ERC3009 {
        "may be with a node: its cancellation is sent to the token; it is paid if that comes too late".to_owned()
    } else if signed {
        format!("was signed: nothing more is sent for it; it may still be paid until {deadline}")
    } else {
        format!(
            "is not signed any more: it becomes FAILED when a final block behind {deadline} proves that nothing was paid"
        )
    };
    if how.json {
        say!("{}", json_line(&Cancelled { transfer: Shown::of(&transfer), signed })?);
    } else if how.dry_run {
        say!("transfer {id} would be cancelled; it {what}");
    } else {
        say!("transfer {id} {what}");
    }
    Ok(())
}

async fn show(db: &Db, id: TransferId, json: bool) -> anyhow::Result<ExitCode> {
    let Some(transfer) = transfers::by_id(&mut db.read().await?, id).await? else { return Ok(unknown(id)) };
    if json {
        say!("{}", json_line(&Shown::of(&transfer))?);
    } else {
        lines(&transfer).iter().for_each(|line| say!("{line}"));
    }
    Ok(ExitCode::SUCCESS)
}

async fn explain(db: &Db, id: TransferId, json: bool) -> anyhow::Result<ExitCode> {
    let mut reader = db.read().await?;
    let Some(transfer) = transfers::by_id(&mut reader, id).await? else { return Ok(unknown(id)) };
    let explained = Explained {
        transfer: Shown::of(&transfer),
        state: transfer.state.name(),
        route: transfer.route.clone(),
        intent_key: hex::encode(transfer.intent_key.0),
        changes: transfers::history(&mut reader, id)
            .await?
            .into_iter()
            .map(|change| ChangeLine::of(change, &transfer))
            .collect(),
        intents: attempts::intents_of(&mut reader, id).await?.iter().map(IntentLine::of).collect(),
        attempts: attempts::of_transfer(&mut reader, id).await?.into_iter().map(AttemptLine::of).collect(),
        marks: marks::of_transfer(&mut reader, &transfer)
            .await?
            .into_iter()
            .map(|(seen, canonical)| MarkLine {
                block_number: seen.block.number,
                block_hash: seen.block.hash.text(transfer.chain.family()),
                canonical,
                transaction_hash: seen.tx.to_string(),
                effect: seen.effect.name(),
            })
            .collect(),
    };
    if json {
        say!("{}", json_line(&explained)?);
        return Ok(ExitCode::SUCCESS);
    }
    lines(&transfer).iter().for_each(|line| say!("{line}"));
    explained.lines().iter().for_each(|line| say!("{line}"));
    Ok(ExitCode::SUCCESS)
}

fn unknown(id: TransferId) -> ExitCode {
    complain!("landfall: no transfer {id} is on record");
    ExitCode::FAILURE
}

fn line(transfer: &Sent) -> String {
    let Sent { id, account_id, chain, symbol, state, created_at, destination, .. } = transfer;
    let amount = to_decimal(transfer.amount, transfer.decimals);
    let status = state.status();
    let kind = transfer.kind.name().to_lowercase();
    format!("{created_at} {id} {status:<9} {kind}: {amount} {symbol} of {account_id} to {destination} on {chain}")
}

fn lines(transfer: &Sent) -> Vec<String> {
    let Sent { id, account_id, chain, symbol, state, source, destination, deadline, .. } = transfer;
    let (amount, status) = (to_decimal(transfer.amount, transfer.decimals), state.status());
    let place = transfer.tx.map_or("no block of ours".to_owned(), |tx| tx.to_string());
    let mut lines = vec![
        format!(
            "{} {id}: {amount} {symbol} on {chain}, {status} ({})",
            transfer.kind.name().to_lowercase(),
            state.name()
        ),
        format!("from {source} of {account_id}"),
        format!("to   {destination}"),
        format!("in   {place}"),
        format!("made {}, may be included until {deadline}", transfer.created_at),
    ];
    if let (Some(code), Some(reason)) = (state.failure(), &transfer.reason) {
        lines.push(format!("why  {}: {reason}", code.name()));
    } else if let Some(obstacle) = transfer.obstacle.filter(|_| *state == State::Accepted) {
        let why = transfer.reason.as_deref().map_or(String::new(), |why| format!(": {why}"));
        lines.push(format!("kept from being sent by {}{why}", obstacle.code().name()));
    }
    lines
}

impl Shown {
    pub(super) fn of(transfer: &Sent) -> Self {
        Shown { kind: transfer.kind.name(), resource: TransferResource::of(transfer) }
    }
}

impl ChangeLine {
    fn of(change: Change, transfer: &Sent) -> Self {
        ChangeLine {
            at: change.at.to_string(),
            state: change.state,
            evidence: change.evidence,
            block_number: change.block.map(|block| block.number),
            block_hash: change.block.map(|block| block.hash.text(transfer.chain.family())),
            block_time: change.block_time.map(|time| time.to_string()),
            reported_by: change.reported_by,
        }
    }
}

impl IntentLine {
    fn of(intent: &IntentRow) -> Self {
        IntentLine { deadline: intent.deadline_secs, signed: intent.signature.is_some() }
    }
}

impl AttemptLine {
    fn of(attempt: Attempt) -> Self {
        AttemptLine {
            purpose: attempt.purpose.name(),
            recorded_at: attempt.recorded_at.to_string(),
            sponsor: attempt.sponsor.to_string(),
            nonce: attempt.nonce,
            nth: attempt.nth,
            gas_limit: attempt.gas_limit,
            max_fee: attempt.max_fee.to_string(),
            tip: attempt.tip.to_string(),
            transaction_hash: attempt.signed.map(|(_, id)| id.to_string()),
            sent_at: attempt.resent_at.map(|at| at.to_string()),
            response: attempt.response,
            blockhash: attempt.guarding.map(|guarding| guarding.recent.hash.text(Family::Solana)),
            blockhash_of: attempt.guarding.map(|guarding| guarding.recent.number),
        }
    }
}

impl Explained {
    fn lines(&self) -> Vec<String> {
        let key = format!("key  {}, by {}", self.intent_key, self.route);
        let intents = self.intents.iter().map(|IntentLine { deadline, signed }| {
            let deadline = Timestamp::from_secs(*deadline);
            format!("{} to pay until {deadline}", if *signed { "signed" } else { "not signed" })
        });
        let changes = self.changes.iter().map(|change| {
            let ChangeLine { at, state, evidence, block_time, reported_by, .. } = change;
            let block = change.block_number.zip(change.block_hash.as_ref());
            let block = block.map_or(String::new(), |(number, hash)| format!(", block {number} ({hash})"));
            let time = block_time.as_ref().map_or(String::new(), |time| format!(" of {time}"));
            let by = reported_by.join(", ");
            let by = if by.is_empty() { by } else { format!(", the state of the key reported by {by}") };
            format!("{at} {state} by {evidence}{block}{time}{by}")
        });
        let attempts = self.attempts.iter().map(|attempt| {
            let AttemptLine { purpose, recorded_at, sponsor, nonce, nth, max_fee, .. } = attempt;
            let id = attempt.transaction_hash.as_deref().unwrap_or("not signed");
            let response = attempt.response.as_deref().unwrap_or("not sent");
            if let Some((blockhash, block)) = attempt.blockhash.as_ref().zip(attempt.blockhash_of) {
                return format!(
                    "{recorded_at} attempt of {sponsor} on blockhash {blockhash} of block {block}, at {max_fee} \
                     millionths of a lamport a unit: {id}, {response}"
                );
            }
            format!(
                "{recorded_at} {purpose}: attempt {nth} at nonce {nonce} of {sponsor}, at most {max_fee} a gas: {id}, {response}"
            )
        });
        let marks = self.marks.iter().map(|mark| {
            let MarkLine { block_number, block_hash, canonical, transaction_hash, effect } = mark;
            let left = if *canonical { "" } else { ", which our chain has left" };
            format!("block {block_number} ({block_hash}){left} shows its use: {effect}, in {transaction_hash}")
        });
        std::iter::once(key).chain(intents).chain(changes).chain(attempts).chain(marks).collect()
    }
}
