//! `landfall status` and `landfall health`.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use crate::cli::{duration, json_line, open_existing};
use crate::config::Config;
use crate::health::{
    ChainReport, EndpointReport, GasReport, OverrideReport, SenderReport, SignerReport, SinkReport, SponsorReport,
    Status, WebhookReport,
};
use crate::time::Clock;

#[derive(Args, Debug)]
pub(super) struct Show {
    /// One JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub(super) struct Health {
    /// How far behind a chain, the feed, a sink or what is due at a webhook may be, for example 60s or 5m.
    #[arg(long, default_value = "60s", value_parser = duration)]
    max_lag: Duration,
}

impl Show {
    pub(super) async fn run(self, config: &Config) -> anyhow::Result<()> {
        let db = open_existing(&config.store).await?;
        let status = Status::read(&db, Clock::system().now()).await?;
        let status = status.of_configured(&config.chains.keys().copied().collect());
        if self.json {
            say!("{}", json_line(&status)?);
            return Ok(());
        }
        say!("{:<18} {:<12} {:>12} {:>12} {:>12} {:>6}  proof", "chain", "state", "latest", "final", "cursor", "lag");
        for chain in &status.chains {
            say!("{}", line(chain));
            for endpoint in &chain.endpoints {
                say!("  {}", of_endpoint(endpoint));
            }
            traces(chain).iter().for_each(|line| say!("  {line}"));
            if !chain.reason.is_empty() {
                say!("  {}", chain.reason);
            }
            chain.assets.iter().for_each(|asset| say!("  {asset}"));
            chain.nobodys.iter().for_each(|nobodys| say!("  {nobodys}"));
            sending(chain).iter().for_each(|line| say!("  {line}"));
            for alarm in &chain.alarms {
                say!("  alarm: {alarm}");
            }
            for OverrideReport { kind, value, reason, until } in &chain.overrides {
                say!("  override until {until}: {kind} {value} ({reason})");
            }
        }
        let age = status.events.oldest_secs.map_or(String::new(), |secs| format!(", the oldest {secs} s old"));
        say!("{} deliveries pending{age}", status.events.pending);
        for webhook in &status.webhooks {
            say!("  {}", of_webhook(webhook));
            if let Some(failure) = &webhook.last_failure {
                say!("    last failure: {failure}");
            }
        }
        let waits =
            status.feed.lag_secs.map_or(String::new(), |secs| format!(", the oldest without a number {secs} s old"));
        say!("{} events in the feed{waits}", status.feed.last);
        status.sinks.iter().for_each(|sink| say!("{}", of_sink(sink)));
        Ok(())
    }
}

impl Health {
    pub(super) async fn run(self, config: &Config) -> anyhow::Result<ExitCode> {
        let status = Status::read(&open_existing(&config.store).await?, Clock::system().now()).await?;
        let complaints = status.complaints(&config.chains.keys().copied().collect(), self.max_lag);
        if complaints.is_empty() {
            say!("healthy");
            return Ok(ExitCode::SUCCESS);
        }
        say!("unhealthy");
        for complaint in complaints {
            say!("  {complaint}");
        }
        Ok(ExitCode::FAILURE)
    }
}

fn line(chain: &ChainReport) -> String {
    let number = |number: Option<u64>| number.map_or("-".to_owned(), |number| number.to_string());
    let lag = chain.lag_secs.map_or("-".to_owned(), |secs| format!("{secs} s"));
    let ChainReport { chain, state, latest, finalized, cursor, proof, .. } = chain;
    let (latest, finalized, cursor) = (number(*latest), number(*finalized), number(*cursor));
    format!("{chain:<18} {state:<12} {latest:>12} {finalized:>12} {cursor:>12} {lag:>6}  {proof}")
}

/// Its name and state, then what is known of it: its newest block, its latency, and the reason for its state.
fn of_endpoint(EndpointReport { id, state, reason, latest, latency_ms }: &EndpointReport) -> String {
    let latest = latest.map(|number| format!(", newest block {number}"));
    let latency = latency_ms.map(|millis| format!(", {millis} ms"));
    let reason = (!reason.is_empty()).then(|| format!(": {reason}"));
    [Some(format!("{id} {state}")), latest, latency, reason].into_iter().flatten().collect()
}

/// Its id and status, then what has not arrived.
fn of_webhook(webhook: &WebhookReport) -> String {
    let WebhookReport { id, status, since, pending, held, oldest_due_secs, .. } = webhook;
    let since = since.as_ref().map(|since| format!(" since {since}"));
    let held = (*held > 0).then(|| format!(", {held} of them held"));
    let due = oldest_due_secs.map(|secs| format!(", the oldest due for {secs} s"));
    let rest = [since, Some(format!(", {pending} pending")), held, due];
    [Some(format!("webhook {id} {status}"))].into_iter().chain(rest).flatten().collect()
}

/// Its state, since when, and what waits.
fn of_sink(SinkReport { id, status, state, reason, secs, pending, oldest_secs }: &SinkReport) -> String {
    let age = oldest_secs.map_or(String::new(), |secs| format!(", the oldest {secs} s old"));
    let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    format!("{id} {status}, {state} for {secs} s, {pending} events wait{age}{reason}")
}

/// For a chain that is traced: how far, by how many endpoints, what stops it, and what waits for a second witness.
fn traces(chain: &ChainReport) -> Vec<String> {
    let traced = chain.traced.map(|through| format!("native currency complete up to block {through}"));
    let reported_by = match (chain.traces_by_two, chain.traces_by_one) {
        (None, None) => None,
        (Some(two), None) => Some(format!("reported by two endpoints up to block {two}")),
        (Some(two), Some(one)) if one < two => Some(format!(
            "reported by two endpoints up to block {two}, but block {one} and maybe earlier ones by one alone"
        )),
        (Some(two), Some(one)) => {
            Some(format!("reported by one endpoint alone up to block {one}; the last that two reported is block {two}"))
        }
        (None, Some(one)) => Some(format!("reported by one endpoint alone, up to block {one}")),
    };
    let put_off = (chain.traces_put_off > 0).then(|| {
        format!(
            "blocks put off, because they cannot be traced: {}; {}",
            chain.traces_put_off, chain.traces_put_off_reason
        )
    });
    let said = [&chain.traces_reason, &chain.traces_alarm].into_iter().filter(|text| !text.is_empty()).cloned();
    let said = reported_by.into_iter().chain(said).chain(put_off).map(|text| format!("traces: {text}"));
    traced.into_iter().chain(said).collect()
}

/// Who sends its transfers, what is under way, and who pays for it; nothing where nobody sends.
fn sending(chain: &ChainReport) -> Vec<String> {
    let Some(SenderReport { state, halted, waiting, in_flight, expiring, oldest_secs, sponsors, .. }) = &chain.sender
    else {
        return Vec::new();
    };
    let halted = halted.as_ref().map_or(String::new(), |halted| format!(" since {halted}"));
    let age = oldest_secs.map_or(String::new(), |secs| format!(", the oldest {secs} s old"));
    let mut lines =
        vec![format!("sender {state}{halted}: {waiting} wait, {in_flight} in flight, {expiring} expiring{age}")];
    for SponsorReport { number, is_treasury, address, state, poor_secs } in sponsors {
        let address = address.as_ref().map_or(String::new(), |address| format!(" {address}"));
        let poor = poor_secs.map_or(String::new(), |secs| format!(", owns too little for {secs} s"));
        let what = if *is_treasury { "treasury" } else { "sponsor" };
        lines.push(format!("{what} {number}{address} {state}{poor}"));
    }
    if let Some(SignerReport { state, away_secs: Some(secs), reason }) = &chain.signer {
        lines.push(format!("signer {state} for {secs} s: {reason}"));
    }
    if let Some(GasReport { symbol, usd, price_secs, unpriced, .. }) = &chain.gas {
        let price = usd
            .as_ref()
            .zip(*price_secs)
            .map_or("no price".to_owned(), |(usd, secs)| format!("{usd} USD, set {secs} s ago"));
        lines.push(format!("gas in {symbol}: {price}; {unpriced} entries wait for a price"));
    }
    lines
}
