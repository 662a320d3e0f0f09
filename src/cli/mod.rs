//! The command line: thin. Each verb opens what it needs, calls one room, prints.
//!
//! Results go to stdout, logs and errors to stderr. Exit codes: 0 done; 1 not well, or ended unasked; 2 bad input, or
//! not known; 141 nobody reads stdout. Names, flags and files are a contract.

#![deny(clippy::print_stdout)]

#[macro_use]
mod out;

mod account;
mod audit;
mod bar;
mod catch_up;
mod chain;
mod deposit;
mod doctor;
mod duration;
mod event;
mod gas;
mod identity;
mod incident;
mod key;
mod past;
mod policy;
mod run;
mod sandbox;
mod sender;
mod signer;
mod sponsor;
mod status;
mod transfer;
mod webhook;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, ensure};
use clap::{Args, Parser, Subcommand};
use indicatif::MultiProgress;
use nix::unistd::{Uid, User};
use tokio::signal::unix::{SignalKind, signal};
use tracing::info;

use crate::app::{self, Migrate};
use crate::config::Config;
use crate::operator::Operator;
use crate::printable::is_control;
use crate::secrets::without;
use crate::store::{Db, OpenError, StoreUrl};
use crate::time::Clock;
use duration::duration;

/// The environment variable that names the person.
const ACTOR: &str = "LANDFALL_ACTOR";
/// How many rows of a long list are read at a time.
const PAGE_ROWS: u32 = 500;

/// Watches chains for deposits to a custody service's accounts, confirms them and reports them to clients.
#[derive(Parser, Debug)]
#[command(version, propagate_version = true)]
pub struct Cli {
    /// The configuration.
    #[arg(long, global = true, default_value = "landfall.toml", value_name = "FILE")]
    config: PathBuf,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand, Debug)]
enum Verb {
    /// Watch the configured chains, deliver events, serve the API.
    Run(run::Run),
    /// Bring the store's schema to this program's version.
    Migrate,
    /// Say whether all is well: exit 0 healthy, 1 unhealthy, 2 not known.
    Health(status::Health),
    /// Check what sending needs, by asking it now: exit 0 all is there, 1 something is not, 2 not known.
    Doctor(doctor::Doctor),
    /// Show where each chain stands.
    Status(status::Show),
    /// The accounts and addresses that are watched.
    #[command(subcommand)]
    Account(account::Account),
    /// Who accounts belong to.
    #[command(subcommand)]
    Identity(identity::Identity),
    /// The keys of the API.
    #[command(subcommand)]
    Key(key::Key),
    /// The receivers of events.
    #[command(subcommand)]
    Webhook(webhook::Webhook),
    /// The events that clients receive, and sending them again.
    #[command(subcommand)]
    Event(event::Event),
    /// The deposits that were found, and why what was not found is none.
    #[command(subcommand)]
    Deposit(deposit::Deposit),
    /// The transfers that accounts asked for, and what is known of each.
    #[command(subcommand)]
    Transfer(transfer::Transfer),
    /// Stop the sending of transfers, let it go on, show where it stands.
    #[command(subcommand)]
    Sender(sender::Sender),
    /// The addresses that pay for transactions.
    #[command(subcommand)]
    Sponsor(sponsor::Sponsor),
    /// What sending costs: the credit, the ledger, prices, bills.
    #[command(subcommand)]
    Gas(gas::Gas),
    /// What may be sent: limits of accounts, of identities, and of everybody.
    #[command(subcommand)]
    Policy(policy::Policy),
    /// Read past final blocks again for deposits from before an address or asset was there; beside `run`, or without.
    Backfill(past::BackfillArgs),
    /// Read past final blocks again and report where the record differs: exit 0 nowhere, 1 somewhere.
    Rescan(past::RescanArgs),
    /// Halt and resume a chain, override its rules.
    #[command(subcommand)]
    Chain(chain::Chain),
    /// What people decided.
    #[command(subcommand)]
    Audit(audit::Audit),
    /// What a person must check.
    #[command(subcommand)]
    Incident(incident::Incident),
    /// The keys of managed addresses and of sponsors.
    #[command(subcommand)]
    Signer(signer::Signer),
    /// Print the API's OpenAPI document.
    Openapi,
    /// Show the main job on a private chain, from the first deposit to the signed webhook.
    Sandbox(sandbox::Sandbox),
}

/// Given with each decision of a person.
#[derive(Args, Debug)]
struct Why {
    /// Why, for the audit.
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

/// Given with each decision about what is sent.
#[derive(Args, Debug)]
struct How {
    #[command(flatten)]
    why: Why,
    /// Check it and show what would change, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// A JSON object for each thing that changes, one a line.
    #[arg(long)]
    json: bool,
}

impl How {
    /// As [`as_operator`]; on a dry run nothing changes, and that is said.
    async fn decide<T, E>(&self, decide: impl AsyncFnOnce(Operator<'_>) -> Result<T, E>) -> anyhow::Result<T>
    where
        anyhow::Error: From<E>,
    {
        let decided = acting(&self.why.reason, self.dry_run, decide).await?;
        if self.dry_run {
            complain_of_no_change();
        }
        Ok(decided)
    }

    /// What something is now, or would be.
    fn is(&self) -> &'static str {
        if self.dry_run { "would be" } else { "is" }
    }
}

/// The command line. An error is shown without the URLs in it, which may hold secrets.
///
/// # Errors
/// The exit code, if there is nothing to do: help was asked for, or the command line is wrong.
pub fn parsed() -> Result<Cli, ExitCode> {
    Cli::try_parse().map_err(|error| {
        let written = std::env::args_os().filter_map(|argument| argument.into_string().ok());
        let urls: Vec<String> = written.filter(|argument| argument.contains("://")).flat_map(url_of).collect();
        if urls.is_empty() || !error.use_stderr() {
            // Nobody may be there to read it.
            let _ = error.print();
        } else {
            eprint!("{}", without(&error.render().to_string(), urls));
        }
        ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
    })
}

/// An argument with a URL; if a flag stands before the URL, the URL alone too.
fn url_of(argument: String) -> Vec<String> {
    let flagged = argument.split_once('=').filter(|(flag, _)| flag.starts_with('-'));
    let alone = flagged.map(|(_, url)| url.to_owned());
    [Some(argument), alone].into_iter().flatten().collect()
}

impl Cli {
    /// The log filter unless LANDFALL_LOG is set.
    pub fn log_filter(&self) -> &'static str {
        match self.verb {
            // The sandbox uses the terminal itself.
            Verb::Sandbox(_) => "error",
            Verb::Backfill(_) | Verb::Rescan(_) | Verb::Doctor(_) => "warn",
            // At info sqlx logs every slow statement and hyper every connection. Connections to NATS are logged by
            // `delivery`.
            _ => "info,sqlx=warn,hyper=warn,async_nats=off",
        }
    }

    /// Runs the command. `bars` are drawn below the log, on a terminal.
    ///
    /// # Errors
    /// One clear error, for stderr and exit code 2.
    pub async fn run(self, bars: &MultiProgress) -> anyhow::Result<ExitCode> {
        let config = self.config;
        match self.verb {
            Verb::Run(run) => return run.run(&load(&config)?, bars).await,
            Verb::Migrate => drop(app::open_once(&load(&config)?.store, Migrate::Always).await?),
            Verb::Health(health) => return health.run(&load(&config)?).await,
            Verb::Doctor(doctor) => return doctor.run(&load(&config)?).await,
            Verb::Status(show) => show.run(&load(&config)?).await?,
            Verb::Account(account) => account.run(&config).await?,
            Verb::Identity(identity) => identity.run(&config).await?,
            Verb::Key(key) => key.run(&config).await?,
            Verb::Webhook(webhook) => {
                return Ok(if webhook.run(&config).await? { ExitCode::SUCCESS } else { ExitCode::FAILURE });
            }
            Verb::Event(event) => return event.run(&existing(&config).await?).await,
            Verb::Deposit(deposit) => return deposit.run(&config).await,
            Verb::Transfer(transfer) => return transfer.run(&config).await,
            Verb::Sender(sender) => sender.run(&config).await?,
            Verb::Sponsor(sponsor) => return sponsor.run(&config).await,
            Verb::Gas(gas) => gas.run(&config).await?,
            Verb::Policy(policy) => return policy.run(&config).await,
            Verb::Backfill(backfill) => return backfill.run(&config).await,
            Verb::Rescan(rescan) => return rescan.run(&config).await,
            Verb::Chain(chain) => {
                let config = load(&config)?;
                chain.run(&open_existing(&config.store).await?, &config).await?;
            }
            Verb::Audit(audit) => audit.run(&config).await?,
            Verb::Incident(incident) => incident.run(&existing(&config).await?).await?,
            Verb::Signer(signer) => signer.run(&config).await?,
            Verb::Openapi => out::write(format_args!("{}", crate::api::openapi_json())),
            Verb::Sandbox(sandbox) => return sandbox.run().await,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn load(path: &Path) -> anyhow::Result<Config> {
    Ok(Config::load(path, variable)?)
}

fn variable(name: &str) -> Option<String> {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the environment")]
    let value = std::env::var(name);
    value.ok()
}

/// Runs `decide` as the person who runs this command, now.
async fn as_operator<T, E>(reason: &str, decide: impl AsyncFnOnce(Operator<'_>) -> Result<T, E>) -> anyhow::Result<T>
where
    anyhow::Error: From<E>,
{
    acting(reason, false, decide).await
}

async fn acting<T, E>(
    reason: &str,
    dry_run: bool,
    decide: impl AsyncFnOnce(Operator<'_>) -> Result<T, E>,
) -> anyhow::Result<T>
where
    anyhow::Error: From<E>,
{
    let actor = actor()?;
    Ok(decide(Operator { actor: &actor, reason, now: Clock::system().now(), dry_run }).await?)
}

fn complain_of_no_change() {
    complain!("landfall: nothing was changed");
}

/// The operating system's account of this process, which nobody can choose, after the name that the person claims. The
/// variable `USER` is a claim too, and often not set.
fn actor() -> anyhow::Result<String> {
    let uid = Uid::current();
    let account = User::from_uid(uid).ok().flatten().map_or_else(|| format!("uid {uid}"), |user| user.name);
    let Some(claimed) = variable(ACTOR).filter(|claimed| !claimed.is_empty()) else { return Ok(account) };
    ensure!(!claimed.contains(is_control), "{ACTOR}: a name has no control characters");
    Ok(format!("{claimed} (as {account})"))
}

/// The store, made if there is none. An existing one is not migrated on the way: a service may be running on it.
async fn open(config: &Path) -> anyhow::Result<Db> {
    Ok(open_or_make(&load(config)?.store).await?)
}

/// As [`open`], and says so if it makes one: another store elsewhere may have been meant.
async fn open_or_make(url: &StoreUrl) -> Result<Db, OpenError> {
    match app::open_once(url, Migrate::Never).await {
        Err(OpenError::Schema { found: None, .. }) => {
            let db = app::open_once(url, Migrate::IfEmpty).await?;
            complain!("landfall: there was no store at {url}: a new one is made");
            Ok(db)
        }
        opened => opened,
    }
}

/// The store, to read; a missing one is not created.
async fn existing(config: &Path) -> anyhow::Result<Db> {
    Ok(open_existing(&load(config)?.store).await?)
}

async fn open_existing(url: &StoreUrl) -> Result<Db, OpenError> {
    if let StoreUrl::Sqlite(path) = url
        && !path.exists()
    {
        return Err(OpenError::Missing { path: path.clone() });
    }
    app::open_once(url, Migrate::Never).await
}

/// Done when the process is asked to stop: by its supervisor or by Ctrl-C.
fn asked_to_stop() -> std::io::Result<impl Future<Output = ()>> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        info!("asked to stop");
    })
}

/// Prints why a command failed.
pub fn complain(error: &anyhow::Error) {
    complain!("landfall: {error:#}");
}

/// A line of JSON.
fn json_line(value: &impl serde::Serialize) -> anyhow::Result<String> {
    serde_json::to_string(value).context("cannot be written as JSON")
}
