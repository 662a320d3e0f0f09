//! `landfall backfill` and `landfall rescan`: past ranges of final blocks, with a progress bar on a terminal and a line
//! every few seconds elsewhere.
//!
//! Exit codes: 0 all is done (rescan: and nothing differs); 1 stopped before (Ctrl-C, SIGTERM, traces that no endpoint
//! serves), differences, or a contradiction that a person must check; 2 bad input.

mod difference;

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use landfall_chain::{Address, AddressSource, BlockSource, Chain, Family, Proof, ReadProof, Retry, Searching};
use serde::Serialize;

use crate::cli::bar::{Screen, Shown};
use crate::cli::past::difference::DifferenceLine;
use crate::cli::{asked_to_stop, existing, json_line, load};
use crate::time::Clock;
use crate::watcher::{Backfill, Difference, Job, Progress, Rescan, Scope, Span, TickError};
use crate::{app, random};

const RETRY_FIRST: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(10);
/// How often a trace is asked for before the command gives up and says so. A node that has pruned its state never has
/// the trace, and each node says that in its own way.
const TRACE_TRIES_MAX: u32 = 20;
/// How often the progress of a search is shown.
const SEARCH_LOOK: Duration = Duration::from_millis(500);
/// How long to wait before the next check whether the blocks are final.
const FINAL_LOOK: Duration = Duration::from_secs(2);
const TRACED_BLOCKS: &str = "blocks traced";

#[derive(Args, Debug)]
pub(super) struct BackfillArgs {
    /// The chain, for example BASE_MAINNET.
    #[arg(long)]
    chain: Chain,
    /// The first block or slot, inclusive.
    #[arg(long, value_name = "NUMBER", required_unless_present_any = ["account", "address"])]
    from: Option<u64>,
    /// The last block or slot, inclusive; it must be final. With --address or --account it may be left out: then all is
    /// read up to where `landfall run` watches them from, and what of that is not final yet is waited for. On Solana
    /// whatever their signatures lead to is read, back to --from or to the first slot.
    #[arg(long, value_name = "NUMBER", requires = "from", required_unless_present_any = ["account", "address"])]
    to: Option<u64>,
    /// End with one JSON object.
    #[arg(long)]
    json: bool,
    /// Only for the addresses of this account.
    #[arg(long, value_name = "ID", conflicts_with = "address")]
    account: Option<String>,
    /// Only for this address; may be repeated.
    #[arg(long)]
    address: Vec<String>,
    /// How blocks are searched: receipts of every block, or logs and then receipts of those that may credit. On a chain
    /// with native = "trace", every block is traced after that in either case: no log shows where value moved inside of
    /// transactions. On a chain whose own logs show native movements, logs do not show the fees of transactions that
    /// moved nothing. Not on Solana, where every slot is read or, of addresses, those that their signatures name.
    #[arg(long, value_name = "receipts|logs")]
    proof: Option<ReadProof>,
    /// Count what would be recorded, and record nothing.
    #[arg(long)]
    dry_run: bool,
}

#[derive(Args, Debug)]
pub(super) struct RescanArgs {
    /// The chain, for example BASE_MAINNET.
    #[arg(long)]
    chain: Chain,
    /// The first block or slot, inclusive.
    #[arg(long, value_name = "NUMBER")]
    from: u64,
    /// The last block or slot, inclusive; it must be final.
    #[arg(long, value_name = "NUMBER")]
    to: u64,
    /// One JSON object on each line: the differences as they are found, and at the end the summary, which has `done`.
    #[arg(long)]
    json: bool,
    /// Record deposits, debits, fees and arrivals that are no deposits, where they are missing.
    #[arg(long)]
    repair: bool,
}

/// The summary of `--json`. For a rescan `found` counts differences.
#[derive(Serialize)]
struct Summary<'a> {
    chain: &'a str,
    from: u64,
    /// The last block that was to be read.
    until: u64,
    next: u64,
    found: u64,
    confirmed: u64,
    /// Deposits that a trace showed and that wait for a second witness.
    unwitnessed: u64,
    traces: TracesSummary,
    /// The weakest proof of all that was read; a backfill counts earlier runs too. Absent if nothing was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    proof: Option<&'static str>,
    /// `read`, or `of_movements` if transactions that moved nothing were not read.
    fees: &'static str,
    done: bool,
}

/// How far value that moves inside of transactions is covered.
#[derive(Serialize)]
struct TracesSummary {
    /// `read`, `unread` or `not_traced`.
    state: &'static str,
    /// The first block that is not traced, when it is `unread`.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<u64>,
}

/// A long read, step by step.
trait Work {
    async fn step(&mut self, clock: &Clock) -> Result<(), TickError>;
    fn progress(&self) -> Progress;
    fn shown(&self) -> Shown;
    /// Whether the next step reads the roots. These are retried without an end.
    fn is_at_roots(&self) -> bool;

    /// What the last step was waiting for, if it could not go on.
    fn waits_for(&self) -> Option<String> {
        None
    }

    /// Where a step reports its progress if it is a search of its own.
    fn searching(&self) -> Option<Searching> {
        None
    }

    /// The lines to print so far.
    fn take_lines(&mut self) -> anyhow::Result<Vec<String>> {
        Ok(Vec::new())
    }
}

impl<S: BlockSource + AddressSource + Clone> Work for Backfill<S> {
    async fn step(&mut self, clock: &Clock) -> Result<(), TickError> {
        Backfill::step(self, clock.now()).await
    }

    fn progress(&self) -> Progress {
        Backfill::progress(self)
    }

    /// One lane after the other: their speeds are not related.
    fn shown(&self) -> Shown {
        let (Progress { next, until, traces, .. }, numbers) = (self.progress(), self.numbers());
        match traces {
            Some(Span { next, until: last }) if self.progress().next > until => {
                Shown { what: TRACED_BLOCKS, numbers, next, until: last }
            }
            Some(_) | None => Shown { what: numbers, numbers, next, until },
        }
    }

    fn is_at_roots(&self) -> bool {
        self.progress().next <= self.progress().until
    }

    fn waits_for(&self) -> Option<String> {
        let (chain, until) = (self.chain(), Backfill::waits_for(self)?);
        let number = chain.family().number();
        Some(format!(
            "{chain}: waiting until {number} {until} is final and `landfall run` has read it; behind it the addresses are watched"
        ))
    }

    fn searching(&self) -> Option<Searching> {
        Backfill::searching(self)
    }
}

/// A rescan, and the form in which its differences are printed.
struct Comparing<S> {
    rescan: Rescan<S>,
    json: bool,
}

impl<S: BlockSource + AddressSource + Clone> Work for Comparing<S> {
    async fn step(&mut self, clock: &Clock) -> Result<(), TickError> {
        self.rescan.step(clock.now()).await
    }

    fn take_lines(&mut self) -> anyhow::Result<Vec<String>> {
        let (chain, differences) = (self.rescan.chain(), self.rescan.take_differences());
        let line = |difference: &Difference| match self.json {
            true => json_line(&DifferenceLine::of(chain, difference)),
            false => Ok(difference.to_string()),
        };
        differences.iter().map(line).collect()
    }

    fn progress(&self) -> Progress {
        self.rescan.progress()
    }

    fn shown(&self) -> Shown {
        let numbers = self.rescan.numbers();
        Shown { what: numbers, numbers, next: self.rescan.next(), until: self.progress().until }
    }

    fn is_at_roots(&self) -> bool {
        self.rescan.next() >= self.progress().next
    }
}

/// Says which part of the range is left to `landfall run`.
fn report_of_cut(chain: Chain, to: Option<u64>, until: u64) {
    if to.is_some_and(|to| until < to) {
        let numbers = chain.family().numbers();
        complain!("{chain}: {numbers} above {until} are left to `landfall run`, which has not read them yet");
    }
}

impl BackfillArgs {
    pub(super) async fn run(self, config: &Path) -> anyhow::Result<ExitCode> {
        let BackfillArgs { chain, from, to, json, account, address, proof, dry_run } = self;
        let proof = match proof {
            Some(_) if chain.family() == Family::Solana => {
                bail!("{chain} has no receipts and no logs that prove anything; leave --proof out")
            }
            None if chain.family() == Family::Solana => ReadProof::Candidate,
            proof => proof.unwrap_or(ReadProof::Full),
        };
        if from.is_none() && chain.family() != Family::Solana {
            bail!("{chain} is searched block by block; say with --from where to begin");
        }
        let scope = match account {
            Some(account) => Scope::Account(account),
            None if address.is_empty() => Scope::All,
            None => {
                let addresses = address.iter().map(|text| Address::parse(chain.family(), text));
                Scope::Addresses(addresses.collect::<Result<BTreeSet<_>, _>>()?)
            }
        };
        let job = Job { from: from.unwrap_or_default(), to, proof, scope, dry_run };
        let follower = app::follower(&load(config)?, chain, existing(config).await?).await?;
        let mut backfill = Backfill::begin(follower, job).await?;
        report_of_cut(chain, to, backfill.progress().until);
        if to.is_none() && chain.family() == Family::Evm {
            let until = backfill.progress().until;
            complain!(
                "{chain}: reads up to block {until}. The blocks behind it are matched with these addresses by `landfall run`. \
                 For an asset that was listed later, say with --to up to which block to read"
            );
        }
        let done = drive(&mut backfill, &Clock::system()).await?;
        let progress = backfill.progress();
        if !backfill.has_end() {
            let (number, next) = (chain.family().number(), progress.until + 1);
            complain!(
                "{chain} was never followed: only with start = {next} will `landfall run` leave out no {number} behind this"
            );
        }
        if json {
            let fees = if backfill.leaves_out_fees() { "of_movements" } else { "read" };
            say!("{}", json_line(&Summary { fees, ..Summary::of(chain, &progress) })?);
        } else {
            let Progress { found, confirmed, next, .. } = progress;
            let recorded = if dry_run { "would be recorded" } else { "recorded" };
            let number = chain.family().number();
            say!("{chain}: {found} deposits {recorded}, {confirmed} confirmed; the next {number} is {next}");
            of_proof(&progress).iter().for_each(|line| say!("{line}"));
            of_traces(&progress).iter().for_each(|line| say!("{line}"));
            if backfill.leaves_out_fees() {
                say!(
                    "NOT covered: the fees of transactions that moved nothing, which no log shows; --proof receipts reads them"
                );
            }
            if backfill.leaves_out_inner_value() {
                say!("value that moves inside of transactions is not looked for here (native = \"top_level\")");
            }
            if !done {
                say!("stopped before the end; the same command goes on from there");
            }
        }
        Ok(if done { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

impl RescanArgs {
    pub(super) async fn run(self, config: &Path) -> anyhow::Result<ExitCode> {
        let RescanArgs { chain, from, to, json, repair } = self;
        let follower = app::follower(&load(config)?, chain, existing(config).await?).await?;
        let mut comparing = Comparing { rescan: Rescan::begin(follower, from, to, repair).await?, json };
        report_of_cut(chain, Some(to), comparing.progress().until);
        let done = drive(&mut comparing, &Clock::system()).await?;
        let (progress, next) = (comparing.progress(), comparing.rescan.next());
        if json {
            say!("{}", json_line(&Summary { next, ..Summary::of(chain, &progress) })?);
        } else {
            let number = chain.family().number();
            say!("{chain}: {} differences; the next {number} is {next}", progress.found);
            of_proof(&progress).iter().for_each(|line| say!("{line}"));
            of_traces(&progress).iter().for_each(|line| say!("{line}"));
            if !done {
                say!("stopped before the end; the same command with --from {next} goes on from there");
            }
        }
        Ok(if done && progress.found == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

impl<'a> Summary<'a> {
    fn of(chain: Chain, progress: &Progress) -> Summary<'a> {
        let Progress { from, until, next, found, confirmed, doubted: unwitnessed, traces, proof } = *progress;
        let unread = progress.untraced().map(|span| span.next);
        let state = match (traces, unread) {
            (None, _) => "not_traced",
            (Some(_), None) => "read",
            (Some(_), Some(_)) => "unread",
        };
        let (traces, done) = (TracesSummary { state, next: unread }, progress.is_done());
        let (chain, proof) = (chain.name(), proof.map(Proof::name));
        Summary { chain, from, until, next, found, confirmed, unwitnessed, traces, proof, fees: "read", done }
    }
}

/// Which endpoints reported it, if no root proves it.
fn of_proof(progress: &Progress) -> Option<&'static str> {
    match progress.proof? {
        Proof::Roots | Proof::Bloom => None,
        Proof::TwoEndpoints => Some("two endpoints reported all of it alike (two_endpoints)"),
        Proof::OneEndpoint => Some("one endpoint alone reported some of it (one_endpoint)"),
    }
}

/// What to say about value that moved inside of transactions.
fn of_traces(progress: &Progress) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(Span { next, until }) = progress.untraced() {
        lines.push(format!(
            "NOT covered: value that moved inside of the transactions of blocks {next} to {until}, which are not traced yet"
        ));
    }
    if progress.doubted > 0 {
        let count = progress.doubted;
        lines.push(format!(
            "{count} deposits that a trace shows have no second witness and stay PENDING; `landfall run` tries again"
        ));
    }
    lines
}

/// Shows the progress of a search while a step is one.
async fn report_of_search(searching: Option<Searching>, screen: &mut Screen, clock: &Clock) -> Infallible {
    loop {
        tokio::time::sleep(SEARCH_LOOK).await;
        if let Some(searched) = searching.as_ref().and_then(Searching::now) {
            screen.search(&searched, clock);
        }
    }
}

/// Steps until the work is done, a stop is asked for, or a person must check something; whether it is done.
async fn drive(work: &mut impl Work, clock: &Clock) -> anyhow::Result<bool> {
    let asked = asked_to_stop()?;
    let mut screen = Screen::new(work.shown(), work.progress().from, clock);
    let done = drive_on(work, asked, &mut screen, clock).await?;
    screen.print(work.take_lines()?);
    Ok(done)
}

async fn drive_on(
    work: &mut impl Work,
    asked: impl Future<Output = ()>,
    screen: &mut Screen,
    clock: &Clock,
) -> anyhow::Result<bool> {
    tokio::pin!(asked);
    let mut retry = Retry::new(RETRY_FIRST, RETRY_MAX);
    let (mut failures, mut is_reported) = (0, false);
    loop {
        let progress = work.progress();
        screen.print(work.take_lines()?);
        screen.show(work.shown(), progress.found, clock);
        if progress.is_done() {
            return Ok(true);
        }
        let searching = work.searching();
        // If a step is dropped, what it had not committed is read again.
        let stepped = tokio::select! {
            stepped = work.step(clock) => stepped,
            never = report_of_search(searching, screen, clock) => match never {},
            () = &mut asked => return Ok(false),
        };
        let pause = match stepped {
            Ok(()) => {
                retry.reset();
                failures = 0;
                let Some(line) = work.waits_for() else { continue };
                if !is_reported {
                    screen.report(&line);
                    is_reported = true;
                }
                FINAL_LOOK
            }
            Err(error) if error.may_pass() && failures < TRACE_TRIES_MAX => {
                screen.say(&format!("{error}; trying again"));
                failures += u32::from(!work.is_at_roots());
                retry.next_delay(random::number())
            }
            Err(error) => {
                screen.give_up(&error.to_string());
                return Ok(false);
            }
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = &mut asked => return Ok(false),
        }
    }
}
