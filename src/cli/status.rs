//! `landfall status` and `landfall health`.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use crate::cli::{json_line, open_existing};
use crate::config::Config;
use crate::health::{ChainReport, Status};
use crate::store::Db;
use crate::time::Clock;

#[derive(Args, Debug)]
pub(super) struct Show {
    /// One JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub(super) struct Health {
    /// How far behind a chain may be, for example 60s or 5m.
    #[arg(long, default_value = "60s", value_parser = duration)]
    max_lag: Duration,
}

impl Show {
    pub(super) async fn run(self, db: &Db) -> anyhow::Result<()> {
        let status = Status::read(db, Clock::system().now()).await?;
        if self.json {
            println!("{}", json_line(&status)?);
            return Ok(());
        }
        println!(
            "{:<18} {:<12} {:>12} {:>12} {:>12} {:>6}  proof",
            "chain", "state", "latest", "final", "cursor", "lag"
        );
        for chain in &status.chains {
            println!("{}", line(chain));
            for endpoint in &chain.endpoints {
                println!("  {} {} {}", endpoint.id, endpoint.state, endpoint.reason);
            }
            traces(chain).iter().for_each(|line| println!("  {line}"));
            if !chain.reason.is_empty() {
                println!("  {}", chain.reason);
            }
        }
        let age = status.events.oldest_secs.map_or(String::new(), |secs| format!(", the oldest {secs} s old"));
        println!("{} deliveries pending{age}", status.events.pending);
        Ok(())
    }
}

impl Health {
    pub(super) async fn run(self, config: &Config) -> anyhow::Result<ExitCode> {
        let status = Status::read(&open_existing(&config.store).await?, Clock::system().now()).await?;
        let complaints = status.complaints(&config.chains.keys().copied().collect(), self.max_lag);
        if complaints.is_empty() {
            println!("healthy");
            return Ok(ExitCode::SUCCESS);
        }
        println!("unhealthy");
        for complaint in complaints {
            println!("  {complaint}");
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

/// Of a chain that is traced: how far, why not farther, and what waits for a second witness.
fn traces(chain: &ChainReport) -> Vec<String> {
    let traced = chain.traced.map(|through| format!("native currency complete up to block {through}"));
    let said = [&chain.traces_reason, &chain.traces_alarm].into_iter().filter(|text| !text.is_empty());
    traced.into_iter().chain(said.map(|text| format!("traces: {text}"))).collect()
}

/// `90`, `90s`, `5m`, `2h`.
fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(['s', 'm', 'h']);
    let unit = match &text[digits.len()..] {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3_600,
        _ => return Err("expected a number and s, m or h, for example 60s".to_owned()),
    };
    let count: u64 = digits.parse().map_err(|_| "expected a number and s, m or h, for example 60s".to_owned())?;
    Ok(Duration::from_secs(count.saturating_mul(unit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit() {
        for (text, secs) in [("60s", 60), ("5m", 300), ("2h", 7_200), ("7", 7)] {
            assert_eq!(duration(text), Ok(Duration::from_secs(secs)));
        }
        for text in ["", "s", "1d", "-1s", "1.5s", "1ms"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
