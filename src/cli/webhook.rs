//! `landfall webhook`: the receivers of events, as operators see them. Only here may one be allowed to reach internal
//! networks.

mod listen;
mod show;

use std::path::Path;
use std::time::Duration;

use anyhow::{bail, ensure};
use clap::Subcommand;
use serde::Serialize;
use url::Url;

use crate::cli::{Why, as_operator, duration, existing, json_line, load, open};
use crate::deposit::DepositStatus;
use crate::operator::Operator;
use crate::overrides::Author;
use crate::random;
use crate::registry::{self, NewWebhook, WebhookError};
use crate::resolver::Resolver;
use crate::store::endpoints::Status;
use crate::store::{Db, deliveries, endpoints, replay, sinks, webhooks};
use crate::time::Clock;
use crate::webhook::{AllowedNetworks, Cidr, PREVIOUS_KEY_TIME_MAX, Target, symmetric_key, target, verification_key};

/// How long a test event is waited for.
const TEST_TIME_MAX: Duration = Duration::from_secs(30);
const TEST_POLL: Duration = Duration::from_millis(100);

#[derive(Subcommand, Debug)]
pub(super) enum Webhook {
    /// Register a receiver; it gets the events that come from now on. Its signing key is shown this once.
    Add(Add),
    /// Every receiver that is sent to by HTTP; `landfall status` shows a NATS stream.
    List {
        /// Those instead that were removed and for which events are held, with how many.
        #[arg(long)]
        removed: bool,
        /// A JSON object per line.
        #[arg(long)]
        json: bool,
    },
    /// One receiver.
    Show {
        id: String,
        #[arg(long)]
        json: bool,
    },
    /// Have `landfall run` send it an event of type webhook_test, and report what came of it: exit 0 it arrived, 1 it
    /// did not.
    Test {
        id: String,
        #[arg(long)]
        json: bool,
    },
    /// Give it another signing key, shown this once. The one before signs too for a while.
    Rotate {
        id: String,
        /// How long the key before signs too; 0s when others know it.
        #[arg(long, default_value = "24h", value_parser = duration, value_name = "TIME")]
        previous_for: Duration,
        #[command(flatten)]
        why: Why,
        /// A JSON object with id and secret.
        #[arg(long)]
        json: bool,
    },
    /// Send it nothing until it is resumed; its events are kept.
    Pause {
        id: String,
        #[command(flatten)]
        why: Why,
    },
    /// Send it all that was kept: after a pause, after it answered 410, or at once when it fails.
    Resume {
        id: String,
        #[command(flatten)]
        why: Why,
    },
    /// Send it nothing more. What was not delivered to it is held.
    Remove {
        id: String,
        #[command(flatten)]
        why: Why,
    },
    /// Which statuses of deposits are sent, to every receiver alike; shows them when none are named.
    Statuses {
        /// PENDING, CONFIRMED, FAILED, or `all`.
        statuses: Vec<String>,
        /// Why, for the audit: needed for a change.
        #[arg(long, value_name = "TEXT", requires = "statuses", default_value = "", hide_default_value = true)]
        reason: String,
    },
    /// Receive on this machine, at any path; verify and print.
    Listen(listen::Listen),
}

#[derive(clap::Args, Debug)]
pub(super) struct Add {
    /// Where events are sent.
    #[arg(long)]
    url: String,
    /// What it is called.
    #[arg(long, default_value = "")]
    label: String,
    /// Let it reach this network inside, by plain http too, for example 10.0.0.0/8; repeats.
    #[arg(long, value_name = "CIDR")]
    allow_private: Vec<Cidr>,
    /// Sign with Ed25519 (v1a) too, for receivers that hold a public key.
    #[arg(long)]
    ed25519: bool,
    /// A JSON object with id and secret.
    #[arg(long)]
    json: bool,
}

/// The new keys, shown this once.
#[derive(Serialize)]
struct Keys<'a> {
    id: &'a str,
    secret: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    verification_key: Option<String>,
}

#[derive(Serialize)]
struct Tested<'a> {
    event_id: &'a str,
    arrived: bool,
    attempt: u32,
    status: Option<u16>,
    error: &'a str,
    milliseconds: u128,
}

impl Webhook {
    /// Whether all was well.
    pub(super) async fn run(self, config: &Path) -> anyhow::Result<bool> {
        match self {
            Webhook::Add(webhook) => webhook.run(&open(config).await?).await?,
            Webhook::List { removed: false, json } => show::list(&existing(config).await?, json).await?,
            Webhook::List { removed: true, json } => show::removed(&existing(config).await?, json).await?,
            Webhook::Show { id, json } => show::one(&existing(config).await?, &id, json).await?,
            Webhook::Test { id, json } => return test(&existing(config).await?, &id, json).await,
            Webhook::Rotate { id, previous_for, why, json } => {
                let db = existing(config).await?;
                as_operator(&why.reason, async |by| rotate(&db, &id, previous_for, by, json).await).await?;
            }
            Webhook::Pause { id, why } => {
                let db = existing(config).await?;
                as_operator(&why.reason, async |by| pause(&db, &id, by).await).await?;
            }
            Webhook::Resume { id, why } => {
                let db = existing(config).await?;
                as_operator(&why.reason, async |by| resume(&db, &id, by).await).await?;
            }
            Webhook::Remove { id, why } if id == sinks::NATS => {
                as_operator(&why.reason, async |by| give_up(&id, config, by).await).await?;
            }
            Webhook::Remove { id, why } => {
                let db = existing(config).await?;
                let removed = as_operator(&why.reason, async |by| {
                    anyhow::Ok(registry::remove_webhook(&db, &id, &by.author()?).await?)
                });
                removed.await?;
                say!("webhook {id} is removed; what was not delivered to it is held");
            }
            Webhook::Statuses { statuses, reason } => {
                let db = open(config).await?;
                as_operator(&reason, async |by| sent(&db, &statuses, by).await).await?;
            }
            Webhook::Listen(listen) => listen.run().await?,
        }
        Ok(true)
    }
}

impl Add {
    async fn run(self, db: &Db) -> anyhow::Result<()> {
        let allowed_networks = AllowedNetworks::new(self.allow_private.clone())?;
        let Add { url, label, ed25519, .. } = &self;
        let webhook = NewWebhook { url, label, allowed_networks: &allowed_networks, ed25519: *ed25519 };
        let added = as_operator("", async |Operator { actor, reason, now, .. }| {
            let by = Author { actor, reason, now };
            registry::add_webhook(db, Some(&Resolver::system()), &webhook, &random::bytes(), &by).await
        });
        let added = added.await.map_err(|error| match error.downcast_ref() {
            Some(WebhookError::Url(error)) if error.needs_allowance() => {
                anyhow::anyhow!("{error}; {}", allowance(&self.url))
            }
            _ => error,
        })?;
        if !self.json {
            say!("webhook {} sends to {}", added.id, added.url);
        }
        report_keys(&added.id, &added.signing_key, self.json)
    }
}

/// Which flag allows a URL that leads to an internal network.
fn allowance(url: &str) -> String {
    match Url::parse(url).map(|url| target(&url)) {
        Ok(Ok(Target::Address(address))) => {
            let bits = if address.is_ipv4() { 32 } else { 128 };
            format!("`--allow-private {address}/{bits}` lets it be sent to")
        }
        _ => "`--allow-private` with the network of its addresses, such as `--allow-private 10.0.0.0/8`, lets it be sent to".to_owned(),
    }
}

fn report_keys(id: &str, keys: &str, json: bool) -> anyhow::Result<()> {
    let keys = Keys { id, secret: symmetric_key(keys), verification_key: verification_key(keys) };
    if json {
        say!("{}", json_line(&keys)?);
        return Ok(());
    }
    say!("signing key, shown this once: {}", keys.secret);
    if let Some(key) = keys.verification_key {
        say!("verification key (Ed25519, public): {key}");
    }
    Ok(())
}

async fn rotate(db: &Db, id: &str, previous_for: Duration, by: Operator<'_>, json: bool) -> anyhow::Result<()> {
    if previous_for > PREVIOUS_KEY_TIME_MAX {
        bail!("--previous-for: at most 7 days");
    }
    let rotated = registry::rotate_webhook_key(db, id, previous_for, &random::bytes(), &by.author()?).await?;
    if !json {
        say!("webhook {id} signs with key {}", rotated.signing_key_id);
        if previous_for.is_zero() {
            say!("the key before no longer signs");
        } else {
            say!("the key before signs too until {}", rotated.previous_key_expires_at);
        }
    }
    report_keys(id, &rotated.signing_key, json)
}

async fn pause(db: &Db, id: &str, by: Operator<'_>) -> anyhow::Result<()> {
    let mut tx = db.begin().await?;
    ensure!(replay::is_endpoint(&mut tx, id).await?, "there is no webhook {id}");
    if endpoints::pause(&mut tx, id, by.now).await? {
        by.record(&mut tx, "pause_webhook", id).await?;
        tx.commit().await?;
    }
    say!("webhook {id} is paused until `landfall webhook resume {id} --reason TEXT`; its events are kept");
    Ok(())
}

/// As removing a webhook, for the sink; refused while `run` would register it again.
async fn give_up(id: &str, config: &Path, by: Operator<'_>) -> anyhow::Result<()> {
    let is_configured = load(config)?.nats.is_some();
    ensure!(!is_configured, "{id} is configured: take the section [nats] out of {} first", config.display());
    let db = existing(config).await?;
    let mut tx = db.begin().await?;
    ensure!(sinks::give_up(&mut tx, id, by.now).await?, "there is no {id} to remove");
    by.record(&mut tx, "remove_webhook", id).await?;
    tx.commit().await?;
    say!("{id} is removed; what was not delivered to it is held");
    Ok(())
}

async fn resume(db: &Db, id: &str, by: Operator<'_>) -> anyhow::Result<()> {
    let mut tx = db.begin().await?;
    let resumed = endpoints::resume(&mut tx, id, by.now).await?;
    ensure!(resumed, "there is no webhook {id} that is paused, gone or failing");
    by.record(&mut tx, "resume_webhook", id).await?;
    tx.commit().await?;
    say!("webhook {id} gets its events again");
    Ok(())
}

/// Queues a test event and waits until `landfall run` has attempted it.
async fn test(db: &Db, id: &str, json: bool) -> anyhow::Result<bool> {
    let webhook = webhooks::by_id(&mut db.read().await?, id).await?;
    if let Some(status @ (Status::Paused | Status::Gone)) = webhook.map(|webhook| webhook.status) {
        bail!(
            "webhook {id} is {}, and is sent nothing until `landfall webhook resume {id} --reason TEXT`",
            status.name()
        );
    }
    let event = registry::test_webhook(db, id, &random::bytes(), Clock::system().now()).await?;
    let event_id = event.id.to_string();
    let attempted = async {
        loop {
            let mut reader = db.read().await?;
            if let Some(attempt) = deliveries::last_attempt(&mut reader, &event_id, id).await? {
                return anyhow::Ok(attempt);
            }
            drop(reader);
            tokio::time::sleep(TEST_POLL).await;
        }
    };
    let Ok(attempted) = tokio::time::timeout(TEST_TIME_MAX, attempted).await else {
        let webhook = webhooks::by_id(&mut db.read().await?, id).await?;
        bail!(unsent(&event_id, id, webhook.is_some_and(|webhook| webhook.status == Status::Failing)));
    };
    let (attempt, log) = attempted?;
    let (arrived, milliseconds) = (log.error.is_empty(), log.duration.as_millis());
    let tested = Tested { event_id: &event_id, arrived, attempt, status: log.status, error: &log.error, milliseconds };
    if json {
        say!("{}", json_line(&tested)?);
    } else if arrived {
        say!("event {event_id} arrived in {milliseconds} ms");
    } else {
        say!("event {event_id} did not arrive and is sent again later: {}", log.error);
        if !log.response_head.is_empty() {
            say!("the receiver said: {}", log.response_head);
        }
    }
    Ok(arrived)
}

/// Why a test event was not sent in time.
fn unsent(event_id: &str, id: &str, is_failing: bool) -> String {
    let secs = TEST_TIME_MAX.as_secs();
    let why = if is_failing {
        format!(
            "webhook {id} is FAILING and gets one event now and then; \
             `landfall webhook resume {id} --reason TEXT` has it sent at once"
        )
    } else {
        "is `landfall run` running?".to_owned()
    };
    format!("event {event_id} is queued and nobody sent it within {secs} s: {why}")
}

/// Shows which statuses are sent, or changes it.
async fn sent(db: &Db, statuses: &[String], by: Operator<'_>) -> anyhow::Result<()> {
    const ALL: [DepositStatus; 3] = [DepositStatus::Pending, DepositStatus::Confirmed, DepositStatus::Failed];
    if !statuses.is_empty() {
        let sent = if statuses == ["all"] {
            ALL.to_vec()
        } else {
            statuses.iter().map(|text| text.parse()).collect::<Result<Vec<_>, String>>().map_err(anyhow::Error::msg)?
        };
        let muted: Vec<_> = ALL.into_iter().filter(|status| !sent.contains(status)).collect();
        let mut tx = db.begin().await?;
        webhooks::mute(&mut tx, &muted).await?;
        let sent: Vec<_> = sent.into_iter().map(DepositStatus::name).collect();
        by.record(&mut tx, "send_statuses", &sent.join(" ")).await?;
        tx.commit().await?;
    }
    let muted = webhooks::muted(&mut db.read().await?).await?;
    let sent = ALL.into_iter().filter(|status| !muted.contains(status)).map(DepositStatus::name);
    say!("sent: {}", sent.collect::<Vec<_>>().join(" "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::unsent;

    #[test]
    fn a_test_event_that_is_not_sent_in_time_is_reported_with_what_to_do() {
        let queued = "event e is queued and nobody sent it within 30 s: ";
        assert_eq!(unsent("e", "hook", false), format!("{queued}is `landfall run` running?"));
        let open = unsent("e", "hook", true);
        assert!(open.starts_with(&format!("{queued}webhook hook is FAILING")), "{open}");
        assert!(open.contains("`landfall webhook resume hook --reason TEXT`"), "{open}");
    }
}
