//! `landfall doctor`.

use std::process::ExitCode;

use clap::Args;
use landfall_chain::Chain;
use serde::Serialize;

use crate::app;
use crate::cli::{json_line, open_existing};
use crate::config::Config;
use crate::doctor::{Line, Verdict};
use crate::time::Clock;

#[derive(Args, Debug)]
pub(super) struct Doctor {
    /// A JSON object for each thing that is checked, one a line.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Checked<'l> {
    kind: &'static str,
    /// Null for what is of all chains.
    chain: Option<&'static str>,
    verdict: &'static str,
    what: &'l str,
}

impl<'l> Checked<'l> {
    fn of(line: &'l Line) -> Self {
        let Line { kind, chain, verdict, what } = line;
        Checked { kind, chain: chain.map(Chain::name), verdict: verdict.name(), what }
    }
}

impl Doctor {
    pub(super) async fn run(self, config: &Config) -> anyhow::Result<ExitCode> {
        let db = open_existing(&config.store).await?;
        let lines = app::examine(config, &db, Clock::system().now()).await?;
        for line in &lines {
            let text = if self.json { json_line(&Checked::of(line))? } else { line.to_string() };
            say!("{text}");
        }
        let has_failed = lines.iter().any(|line| line.verdict == Verdict::Fail);
        Ok(if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}
