//! What `landfall deposit explain` prints: a table, or one JSON object of a stable shape.

use std::process::ExitCode;

use landfall_chain::{Chain, Family, Lane, Network, TxId};
use serde::Serialize;

use crate::amount::to_decimal;
use crate::app::{self, note_on};
use crate::cli::{json_line, open_existing};
use crate::config::Config;
use crate::deposit::Deposit;
use crate::watcher::explain::{ExplainError, ExplainedLeg, Explanation, TraceReading, explain};

/// `deposit explain --json`.
#[derive(Serialize)]
struct Report {
    chain: &'static str,
    transaction_hash: String,
    /// Null if it is in no block (any more).
    block: Option<BlockReport>,
    traces: TracesReport,
    legs: Vec<LegReport>,
}

#[derive(Serialize)]
struct BlockReport {
    number: u64,
    hash: String,
    #[serde(rename = "final")]
    is_final: bool,
}

#[derive(Serialize)]
struct TracesReport {
    /// `read`, `not_traced`, `unavailable` or `no_block`.
    state: &'static str,
    reason: String,
}

#[derive(Serialize)]
struct LegReport {
    verdict: &'static str,
    reason: String,
    /// Which lane shows it: `roots` or `traces`.
    lane: &'static str,
    /// `native`, or the token's contract.
    asset: String,
    /// Null where the asset is not listed.
    currency_symbol: Option<String>,
    /// In the major unit; null where the asset is not listed.
    amount: Option<String>,
    base_units: String,
    source_address: String,
    /// How the source is known: `reported`, `only_payer`, `instruction`, `mint`, `fee_payer`, or `stand_in` if no
    /// endpoint was asked.
    source_rule: &'static str,
    destination_address: String,
    deposit: Option<DepositReport>,
}

#[derive(Serialize)]
struct DepositReport {
    id: String,
    account_id: String,
    status: &'static str,
}

pub(super) async fn one(config: &Config, chain: Chain, tx: TxId, json: bool) -> anyhow::Result<ExitCode> {
    let (source, network) = app::source(chain, config.chain(chain)?)?;
    let db = open_existing(&config.store).await?;
    let mut explained = explain(&source, &db, &network, tx).await;
    if let Err(ExplainError::Unanswered { .. }) = explained {
        // The first try did not wait for an endpoint that is only slow.
        source.check().await.ok();
        explained = explain(&source, &db, &network, tx).await;
    }
    let Some(explanation) = explained? else {
        let why = "it is in no block that the node knows, and no deposit of it is on record";
        complain!("landfall: {tx} on {chain}: unknown; {why}");
        return Ok(ExitCode::FAILURE);
    };
    let report = Report::of(&network, &tx, explanation);
    if json {
        say!("{}", json_line(&report)?);
    } else {
        report.lines().iter().for_each(|line| say!("{line}"));
    }
    Ok(ExitCode::SUCCESS)
}

impl Report {
    fn of(network: &Network, tx: &TxId, explanation: Explanation) -> Self {
        let Explanation { block, is_final, traces, legs } = explanation;
        let (state, reason) = match traces {
            TraceReading::Read => ("read", String::new()),
            TraceReading::NotTraced if network.chain.family() == Family::Solana => {
                ("not_traced", "balances show all that moved".to_owned())
            }
            TraceReading::NotTraced => {
                ("not_traced", "value that moves inside of transactions is not looked for here".to_owned())
            }
            TraceReading::Unavailable(why) => ("unavailable", why),
            TraceReading::NoBlock => ("no_block", String::new()),
        };
        Report {
            chain: network.chain.name(),
            transaction_hash: tx.to_string(),
            block: block.map(|block| BlockReport {
                number: block.number,
                hash: block.hash.text(network.chain.family()),
                is_final,
            }),
            traces: TracesReport { state, reason },
            legs: legs.into_iter().map(|leg| LegReport::of(network, leg)).collect(),
        }
    }

    /// The table.
    fn lines(&self) -> Vec<String> {
        let place = match &self.block {
            Some(block) if block.is_final => format!("block {} ({}), final", block.number, block.hash),
            Some(block) => format!("block {} ({}), not final yet", block.number, block.hash),
            None => "in no block now".to_owned(),
        };
        let mut lines = vec![format!("{} on {}: {place}", self.transaction_hash, self.chain)];
        match self.traces.state {
            "unavailable" => lines.push(format!(
                "no trace can be had: {}; what moved inside of the transaction is unproved",
                self.traces.reason
            )),
            "not_traced" => lines.push(format!("not traced: {}", self.traces.reason)),
            _ => {}
        }
        if self.legs.is_empty() {
            lines.push("it moves nothing that is listed".to_owned());
        }
        lines.extend(self.legs.iter().map(LegReport::line));
        lines
    }
}

impl LegReport {
    fn of(network: &Network, leg: ExplainedLeg) -> Self {
        let ExplainedLeg { lane, transfer, verdict, why, deposit } = leg;
        let asset = network.asset(&transfer.asset);
        // For a deposit on record the sender was asked for when it was recorded.
        let payer = deposit.as_ref().map_or(transfer.payer(), Deposit::payer);
        let note = asset.is_none().then(|| note_on(network.chain, &transfer.asset)).flatten();
        let reason =
            [Some(why).filter(|why| !why.is_empty()), note].into_iter().flatten().collect::<Vec<_>>().join("; ");
        LegReport {
            verdict: verdict.code(),
            reason,
            lane: lane.name(),
            asset: transfer.asset.to_string(),
            currency_symbol: asset.map(|asset| asset.symbol.clone()),
            amount: asset.map(|asset| to_decimal(transfer.amount, asset.decimals)),
            base_units: transfer.amount.to_string(),
            source_address: payer.sender.to_string(),
            source_rule: payer.rule.name(),
            destination_address: transfer.recipient.to_string(),
            deposit: deposit.map(|deposit| DepositReport {
                id: deposit.id.to_string(),
                account_id: deposit.account_id,
                status: deposit.status.name(),
            }),
        }
    }

    fn line(&self) -> String {
        let what = match (&self.amount, &self.currency_symbol) {
            (Some(amount), Some(symbol)) => format!("{amount} {symbol}"),
            _ => format!("{} base units of {}", self.base_units, self.asset),
        };
        let LegReport { verdict, source_address, destination_address, .. } = self;
        let mut line = format!("{verdict:<20} {what} from {source_address} to {destination_address}");
        if self.lane == Lane::Traces.name() {
            line += ", by trace";
        }
        if let Some(deposit) = &self.deposit {
            line += &format!(", deposit {} of {} {}", deposit.id, deposit.account_id, deposit.status);
        }
        if !self.reason.is_empty() {
            line += &format!(" ({})", self.reason);
        }
        line
    }
}
