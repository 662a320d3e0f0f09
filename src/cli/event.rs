//! `landfall event list|show|replay`: the events of clients, how far their deliveries are, and sending them again.

use std::fmt;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, ensure};
use chrono::DateTime;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use landfall_chain::Retry;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::time::sleep;

use crate::cli::{PAGE_ROWS, as_operator, json_line};
use crate::event::DEPOSIT_EVENT;
use crate::operator::{DecideError, Operator};
use crate::random;
use crate::store::deliveries::AttemptLog;
use crate::store::replay::{self, After, DeliveryRow, EventFilter, EventRow};
use crate::store::{Db, identities, webhooks};
use crate::time::{Clock, Timestamp};

/// How many events are made due again in one transaction. Whoever writes events waits for it.
const REPLAYED_AT_ONCE: u32 = 100;
/// How often a page is tried if it fails for a reason that may pass.
const PAGE_TRIES_MAX: u32 = 5;
const RETRY_FIRST: Duration = Duration::from_millis(200);
const RETRY_MAX: Duration = Duration::from_secs(2);

#[derive(Subcommand, Debug)]
pub(super) enum Event {
    /// Show events, oldest first.
    List {
        #[command(flatten)]
        which: Which,
        /// Only those that some webhook has not got yet.
        #[arg(long)]
        pending: bool,
        /// A JSON object for each event, one a line.
        #[arg(long)]
        json: bool,
    },
    /// Show one event with its deliveries and attempts: exit 0 found, 1 unknown.
    Show {
        id: String,
        /// One JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Send events again, in the order of each deposit, transfer and identity, but for statuses that are not sent.
    /// Receivers deduplicate them as ever.
    #[command(
        override_usage = "landfall event replay <ID | --account ID | --from TIME [--to TIME]> [--webhook ID] [OPTIONS] --reason TEXT"
    )]
    Replay {
        /// This one.
        #[arg(conflicts_with_all = ["account", "from", "to"])]
        id: Option<String>,
        #[command(flatten)]
        which: Which,
        /// To this webhook only, also what was written before it was there.
        #[arg(long, value_name = "ID")]
        webhook: Option<String>,
        /// Why, for the audit.
        #[arg(long, value_name = "TEXT", required_unless_present = "dry_run")]
        reason: Option<String>,
        /// Change nothing, say what would be sent.
        #[arg(long)]
        dry_run: bool,
        /// One JSON object.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args, Debug)]
pub(super) struct Which {
    /// Of this account, and of the identity that it belongs to.
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    account: Option<String>,
    /// Written at this time or later, for example 2026-01-31T00:00:00Z.
    #[arg(long, value_name = "TIME", value_parser = time)]
    from: Option<Timestamp>,
    /// Written at this time or earlier.
    #[arg(long, value_name = "TIME", value_parser = time)]
    to: Option<Timestamp>,
}

#[derive(Serialize)]
struct Line<'a> {
    id: &'a str,
    r#type: &'a str,
    /// The deposit, the transfer or the identity.
    aggregate_id: &'a str,
    /// Empty for an event of an identity.
    account_id: &'a str,
    status: &'a str,
    created_at: String,
    pending: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deliveries: Option<Vec<Delivery>>,
}

#[derive(Serialize)]
struct Delivery {
    webhook_id: String,
    /// DELIVERED, or how it is pending: FIRST, AGAIN, LEASED, WAITING, HELD.
    state: String,
    attempts: i64,
    /// When it is due; for a LEASED one, when the lease ends.
    next_at: Option<String>,
    log: Vec<Attempt>,
}

#[derive(Serialize)]
struct Attempt {
    attempt: u32,
    at: String,
    duration_ms: u128,
    status: Option<u16>,
    error: String,
    response_head: String,
}

#[derive(Serialize, Default)]
struct Replayed {
    events: usize,
    deliveries: usize,
    /// Events that were left out because their status is not sent.
    left_out: usize,
    dry_run: bool,
}

impl Event {
    pub(super) async fn run(self, db: &Db) -> anyhow::Result<ExitCode> {
        match self {
            Event::List { which, pending, json } => list(db, &which.filter(pending), json).await?,
            Event::Show { id, json } => return show(db, &id, json).await,
            Event::Replay { id, which, webhook, reason, dry_run, json } => {
                if let Some(webhook) = &webhook {
                    let known = replay::is_endpoint(&mut db.read().await?, webhook).await?;
                    ensure!(known, "there is no webhook {webhook}");
                }
                let is_open = id.is_none() && which.account.is_none() && which.from.is_none();
                ensure!(!is_open, "say which events: the id of one, --account ID, or since when by --from TIME");
                let reason = reason.unwrap_or_default();
                let done = as_operator(&reason, async |by| {
                    let to = webhook.as_deref();
                    let what = format!("{} to {}", id.as_deref().unwrap_or(&which.text()), to.unwrap_or("all"));
                    let replay = Replay { db, webhook: to, dry_run, by, what };
                    match &id {
                        Some(id) => replay.one(id).await,
                        None => replay.all(&which.filter(false)).await,
                    }
                });
                let done = done.await?;
                say!("{}", if json { json_line(&done)? } else { done.to_string() });
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Which {
    fn filter(&self, pending: bool) -> EventFilter {
        let (from, to) = (self.from.unwrap_or(Timestamp::EPOCH), self.to.unwrap_or(Timestamp(i64::MAX)));
        EventFilter { account: self.account.clone(), from, to, pending }
    }

    /// The filter as the audit shows it.
    fn text(&self) -> String {
        let account = self.account.as_ref().map(|account| format!("of {account}"));
        let [from, to] =
            [("from", self.from), ("until", self.to)].map(|(word, at)| at.map(|at| format!("{word} {at}")));
        let parts: Vec<String> = [account, from, to].into_iter().flatten().collect();
        format!("events {}", parts.join(" "))
    }
}

/// Where events are sent again, whether it is a dry run, who decided it, and how the audit names it.
struct Replay<'a> {
    db: &'a Db,
    webhook: Option<&'a str>,
    dry_run: bool,
    by: Operator<'a>,
    what: String,
}

impl Replay<'_> {
    async fn one(&self, id: &str) -> anyhow::Result<Replayed> {
        let event = replay::by_id(&mut self.db.read().await?, id).await?;
        let event = event.with_context(|| format!("there is no event {id}"))?;
        Ok(self.patiently(async || self.page(std::slice::from_ref(&event)).await).await?)
    }

    /// Page by page, each in a transaction of its own.
    async fn all(&self, filter: &EventFilter) -> anyhow::Result<Replayed> {
        let mut done = Replayed { dry_run: self.dry_run, ..Replayed::default() };
        let mut after: Option<After> = None;
        loop {
            let page = self.patiently(async || self.page_behind(filter, after.as_ref()).await);
            let (Replayed { events, deliveries, left_out, .. }, next) =
                page.await.with_context(|| stopped(&done, after.as_ref()))?;
            done.events += events;
            done.deliveries += deliveries;
            done.left_out += left_out;
            if next.is_none() {
                return Ok(done);
            }
            after = next;
        }
    }

    /// Repeats a step that fails for a reason that may pass, such as a deadlock with deliveries that are under way.
    async fn patiently<T>(&self, step: impl AsyncFn() -> Result<T, DecideError>) -> Result<T, DecideError> {
        let mut retry = Retry::new(RETRY_FIRST, RETRY_MAX);
        for _ in 1..PAGE_TRIES_MAX {
            match step().await {
                Err(DecideError::Store(error)) if error.may_pass() => sleep(retry.next_delay(random::number())).await,
                done => return done,
            }
        }
        step().await
    }

    async fn page_behind(
        &self,
        filter: &EventFilter,
        after: Option<&After>,
    ) -> Result<(Replayed, Option<After>), DecideError> {
        let (page, next) = replay::list(&mut self.db.read().await?, filter, after, REPLAYED_AT_ONCE).await?;
        Ok((self.page(&page).await?, next))
    }

    /// A dry run does the same and rolls it back.
    async fn page(&self, events: &[EventRow]) -> Result<Replayed, DecideError> {
        let now = Clock::system().now();
        let mut done = Replayed { dry_run: self.dry_run, ..Replayed::default() };
        let mut tx = self.db.begin().await?;
        if !self.dry_run {
            // Otherwise an event that is written meanwhile could be sent before an earlier one of its deposit, which is
            // due again from here on.
            identities::lock_organization(&mut tx).await?;
        }
        let muted = webhooks::muted(&mut tx).await?;
        let is_muted = |event: &&EventRow| {
            event.r#type == DEPOSIT_EVENT && muted.iter().any(|status| status.name() == event.status)
        };
        done.left_out = events.iter().filter(is_muted).count();
        for event in events {
            let deliveries = replay::replay(&mut tx, &event.id, self.webhook, now).await?;
            done.deliveries += deliveries;
            done.events += usize::from(deliveries > 0);
        }
        if !self.dry_run {
            // For a later page it is the same entry, and is there already.
            self.by.record(&mut tx, "replay", &self.what).await?;
            tx.commit().await?;
        }
        Ok(done)
    }
}

impl fmt::Display for Replayed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Replayed { events, deliveries, left_out, dry_run } = self;
        let words = if *dry_run { "would be sent again" } else { "are sent again" };
        write!(f, "{events} events {words}, in {deliveries} deliveries")?;
        if *left_out > 0 {
            write!(f, "; {left_out} left out, for their status is not sent: see `landfall webhook statuses`")?;
        }
        Ok(())
    }
}

/// How far a replay came before it stopped, and how to continue.
fn stopped(done: &Replayed, after: Option<&After>) -> String {
    let Replayed { events, dry_run, .. } = done;
    match after {
        Some((at, ..)) if !dry_run => {
            format!("stopped: {events} events are sent again, up to {at}; the same command with --from {at} goes on")
        }
        Some(_) | None => "stopped: nothing is sent again".to_owned(),
    }
}

async fn list(db: &Db, filter: &EventFilter, json: bool) -> anyhow::Result<()> {
    let mut reader = db.read().await?;
    let mut after = None;
    loop {
        let (page, next) = replay::list(&mut reader, filter, after.as_ref(), PAGE_ROWS).await?;
        for event in &page {
            say!("{}", if json { json_line(&Line::of(event))? } else { headline(event) });
        }
        if next.is_none() {
            return Ok(());
        }
        after = next;
    }
}

async fn show(db: &Db, id: &str, json: bool) -> anyhow::Result<ExitCode> {
    let mut reader = db.read().await?;
    let Some(event) = replay::by_id(&mut reader, id).await? else {
        complain!("landfall: there is no event {id}");
        return Ok(ExitCode::FAILURE);
    };
    let attempts = replay::attempts(&mut reader, id).await?;
    let rows = replay::deliveries(&mut reader, id).await?;
    let deliveries: Vec<Delivery> = rows.into_iter().map(|row| Delivery::of(row, &attempts)).collect();
    if json {
        let payload: Box<RawValue> = serde_json::from_str(&event.payload).context("the stored payload")?;
        let line = Line { payload: Some(&payload), deliveries: Some(deliveries), ..Line::of(&event) };
        say!("{}", json_line(&line)?);
        return Ok(ExitCode::SUCCESS);
    }
    say!("{}", headline(&event));
    say!("{}", event.payload);
    deliveries.iter().flat_map(Delivery::lines).for_each(|line| say!("{line}"));
    Ok(ExitCode::SUCCESS)
}

impl<'a> Line<'a> {
    fn of(event: &'a EventRow) -> Self {
        let EventRow { id, r#type, aggregateid: aggregate_id, account_id, status, created_us, pending, .. } = event;
        let created_at = Timestamp(*created_us).to_string();
        Line {
            id,
            r#type,
            aggregate_id,
            account_id,
            status,
            created_at,
            pending: *pending,
            payload: None,
            deliveries: None,
        }
    }
}

impl Delivery {
    fn of(row: DeliveryRow, attempts: &[(String, u32, AttemptLog)]) -> Self {
        let DeliveryRow { webhook_id, state, queue, attempt, next_us, .. } = row;
        let pending = state == "PENDING";
        let own = attempts.iter().filter(|(webhook, ..)| *webhook == webhook_id);
        let log = own.map(|(_, attempt, log)| Attempt::of(*attempt, log)).collect();
        let next_at = (pending && queue != "WAITING").then(|| Timestamp(next_us).to_string());
        Delivery { state: if pending { queue } else { state }, attempts: attempt, next_at, log, webhook_id }
    }

    fn lines(&self) -> Vec<String> {
        let Delivery { webhook_id, state, attempts, next_at, log } = self;
        let next = next_at.as_ref().map_or(String::new(), |at| format!(", due at {at}"));
        let mut lines = vec![format!("to {webhook_id}: {state}, {attempts} attempts{next}")];
        lines.extend(log.iter().map(|attempt| {
            let Attempt { attempt, at, duration_ms, status, error, response_head } = attempt;
            // A stream has no status: it reports where it has stored the event.
            let answer = match status {
                Some(status) => status.to_string(),
                None if error.is_empty() && !response_head.is_empty() => response_head.clone(),
                None => "no answer".to_owned(),
            };
            format!("  {attempt} at {at}: {answer} after {duration_ms} ms {error}").trim_end().to_owned()
        }));
        lines
    }
}

impl Attempt {
    fn of(attempt: u32, log: &AttemptLog) -> Self {
        let AttemptLog { started_at, duration, status, error, response_head, .. } = log.clone();
        let (at, duration_ms) = (started_at.to_string(), duration.as_millis());
        Attempt { attempt, at, duration_ms, status, error, response_head }
    }
}

fn headline(event: &EventRow) -> String {
    let EventRow { id, r#type: kind, account_id, status, created_us, pending, aggregateid, .. } = event;
    let created_at = Timestamp(*created_us);
    let pending = if *pending == 0 { String::new() } else { format!(", pending at {pending} webhooks") };
    let account = if account_id.is_empty() { String::new() } else { format!(" for {account_id}") };
    format!("{created_at} {id} {kind} {status} of {aggregateid}{account}{pending}")
}

fn time(text: &str) -> Result<Timestamp, String> {
    let time = DateTime::parse_from_rfc3339(text);
    time.map(|time| Timestamp(time.timestamp_micros()))
        .map_err(|_| "expected a time such as 2026-01-31T00:00:00Z".to_owned())
}
