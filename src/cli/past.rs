//! `landfall backfill` and `landfall rescan`: past ranges of final blocks, with a progress bar on a terminal and a line
//! every few seconds elsewhere.
//!
//! Exit codes: 0 all is done (rescan: and nothing differs); 1 stopped before, differences, or a contradiction that a
//! person must look at; 2 bad input.

use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use landfall_chain::{Address, AddressSource, BlockSource, Chain, ReadProof, Retry};
use serde::Serialize;
use tracing::warn;

use crate::cli::{asked_to_stop, existing, json_line, load};
use crate::time::Clock;
use crate::watcher::{Backfill, Job, Pace, Progress, Rescan, Scope, TickError};
use crate::{app, random};

const RETRY_FIRST: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(10);
const BAR: &str = "{bar:40} {pos}/{len} blocks, {per_sec}, {eta} left, {msg}";

/// Which blocks of which chain.
#[derive(Args, Debug)]
struct Range {
    /// The chain, for example BASE_MAINNET.
    #[arg(long)]
    chain: String,
    /// The first block, inclusive.
    #[arg(long, value_name = "NUMBER")]
    from: u64,
    /// The last block, inclusive; it must be final.
    #[arg(long, value_name = "NUMBER")]
    to: u64,
    /// End with one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub(super) struct BackfillArgs {
    #[command(flatten)]
    range: Range,
    /// Only for the addresses of this account.
    #[arg(long, value_name = "ID", conflicts_with = "address")]
    account: Option<String>,
    /// Only for this address; may be repeated.
    #[arg(long)]
    address: Vec<String>,
    /// How blocks are searched: receipts of every block, or logs and then receipts of those that may credit.
    #[arg(long, default_value = "receipts", value_name = "receipts|logs")]
    proof: String,
    /// Count what would be recorded, and record nothing.
    #[arg(long)]
    dry_run: bool,
}

#[derive(Args, Debug)]
pub(super) struct RescanArgs {
    #[command(flatten)]
    range: Range,
    /// Record deposits that are missing.
    #[arg(long)]
    repair: bool,
}

/// The summary of `--json`. A rescan's `found` are differences.
#[derive(Serialize)]
struct Summary<'a> {
    chain: &'a str,
    from: u64,
    /// The last block that was to be read.
    until: u64,
    next: u64,
    found: u64,
    confirmed: u64,
    done: bool,
}

/// A long read, step by step.
trait Work {
    async fn step(&mut self, clock: &Clock) -> Result<(), TickError>;
    fn progress(&self) -> Progress;
}

impl<S: BlockSource + AddressSource> Work for Backfill<S> {
    async fn step(&mut self, clock: &Clock) -> Result<(), TickError> {
        Backfill::step(self, clock.now()).await
    }

    fn progress(&self) -> Progress {
        Backfill::progress(self)
    }
}

impl<S: BlockSource> Work for Rescan<S> {
    async fn step(&mut self, clock: &Clock) -> Result<(), TickError> {
        let stepped = Rescan::step(self, clock.now()).await;
        for difference in self.take_differences() {
            println!("{difference}");
        }
        stepped
    }

    fn progress(&self) -> Progress {
        Rescan::progress(self)
    }
}

impl BackfillArgs {
    pub(super) async fn run(self, config: &Path) -> anyhow::Result<ExitCode> {
        let BackfillArgs { range, account, address, proof, dry_run } = self;
        let chain: Chain = range.chain.parse()?;
        let proof = match proof.as_str() {
            "receipts" => ReadProof::Full,
            "logs" => ReadProof::Listed,
            other => bail!("unknown proof {other:?}: expected receipts or logs"),
        };
        let scope = match account {
            Some(account) => Scope::Account(account),
            None if address.is_empty() => Scope::All,
            None => {
                let addresses = address.iter().map(|text| Address::parse(chain.family(), text));
                Scope::Addresses(addresses.collect::<Result<BTreeSet<_>, _>>()?)
            }
        };
        let job = Job { from: range.from, to: range.to, proof, scope, dry_run };
        let watcher = app::watcher(&load(config)?, chain, existing(config).await?).await?;
        let mut backfill = Backfill::begin(watcher, job).await?;
        let done = drive(&mut backfill, &Clock::system()).await?;
        let progress = backfill.progress();
        if range.json {
            println!("{}", json_line(&Summary::of(chain, &progress))?);
        } else {
            let Progress { found, confirmed, next, .. } = progress;
            let recorded = if dry_run { "would be recorded" } else { "recorded" };
            println!("{chain}: {found} deposits {recorded}, {confirmed} confirmed; the next block is {next}");
            if !done {
                println!("stopped before the end; the same command goes on from there");
            }
        }
        Ok(if done { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

impl RescanArgs {
    pub(super) async fn run(self, config: &Path) -> anyhow::Result<ExitCode> {
        let RescanArgs { range, repair } = self;
        let chain: Chain = range.chain.parse()?;
        let watcher = app::watcher(&load(config)?, chain, existing(config).await?).await?;
        let mut rescan = Rescan::begin(watcher, range.from, range.to, repair).await?;
        let done = drive(&mut rescan, &Clock::system()).await?;
        let progress = rescan.progress();
        if range.json {
            println!("{}", json_line(&Summary::of(chain, &progress))?);
        } else {
            println!("{chain}: {} differences; the next block is {}", progress.found, progress.next);
        }
        Ok(if done && progress.found == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

impl<'a> Summary<'a> {
    fn of(chain: Chain, progress: &Progress) -> Summary<'a> {
        let Progress { from, until, next, found, confirmed } = *progress;
        Summary { chain: chain.name(), from, until, next, found, confirmed, done: next > until }
    }
}

/// Steps until the work is done, somebody asks to stop, or a person must look; whether it is done.
async fn drive(work: &mut impl Work, clock: &Clock) -> anyhow::Result<bool> {
    let asked = asked_to_stop()?;
    tokio::pin!(asked);
    let mut screen = Screen::new(&work.progress(), clock);
    let mut retry = Retry::new(RETRY_FIRST, RETRY_MAX);
    loop {
        let progress = work.progress();
        screen.show(&progress, clock);
        if progress.next > progress.until {
            return Ok(true);
        }
        // What a step had not committed when it was dropped is read again.
        let stepped = tokio::select! {
            stepped = work.step(clock) => stepped,
            () = &mut asked => return Ok(false),
        };
        let pause = match stepped {
            Ok(()) => {
                retry.reset();
                continue;
            }
            Err(error) if error.may_pass() => {
                screen.say(&format!("{error}; trying again"));
                retry.next_delay(random::number())
            }
            Err(error) => {
                screen.say(&error.to_string());
                return Ok(false);
            }
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = &mut asked => return Ok(false),
        }
    }
}

/// Where progress is shown: a bar on a terminal, else lines in the log.
struct Screen {
    bar: ProgressBar,
    pace: Pace,
    next: u64,
}

impl Screen {
    fn new(progress: &Progress, clock: &Clock) -> Self {
        let blocks = (progress.until + 1).saturating_sub(progress.from);
        let is_terminal = std::io::stderr().is_terminal();
        let target = if is_terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(blocks), target);
        if let Ok(style) = ProgressStyle::with_template(BAR) {
            bar.set_style(style);
        }
        // What an earlier run has read tells nothing of this one's speed.
        bar.set_position(progress.next - progress.from);
        bar.reset_eta();
        Screen { bar, pace: Pace::new(clock.now()), next: progress.next }
    }

    fn show(&mut self, progress: &Progress, clock: &Clock) {
        let Progress { from, until, next, found, .. } = *progress;
        self.bar.set_position(next - from);
        self.bar.set_message(format!("{found} found"));
        self.pace.add(next.saturating_sub(self.next));
        self.next = next;
        let left = (until + 1).saturating_sub(next);
        if left > 0
            && let Some(line) = self.pace.line(left, clock.now())
            && self.bar.is_hidden()
        {
            eprintln!("{line}, {found} found");
        }
    }

    fn say(&self, text: &str) {
        if self.bar.is_hidden() { warn!("{text}") } else { self.bar.println(text) }
    }
}
