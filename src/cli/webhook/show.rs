//! `landfall webhook list|show`: the record of receivers. Signing keys are never shown again.

use anyhow::{Context, ensure};
use serde::Serialize;

use crate::cli::json_line;
use crate::health::FailureReport;
use crate::store::webhooks::{self, Webhook};
use crate::store::{Db, deliveries, sinks};
use crate::time::{Clock, Timestamp};
use crate::webhook::verification_key;

#[derive(Serialize)]
struct Shown<'a> {
    id: &'a str,
    url: &'a str,
    label: &'a str,
    status: &'a str,
    created_at: String,
    signing_key_id: &'a str,
    signing_key_created_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    previous_key_expires_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    verification_key: Option<String>,
    allowed_networks: String,
    /// How many events are held for one that was removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    held: Option<u64>,
    /// How a delivery that has not arrived failed last; only if one webhook is shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_failure: Option<FailureReport>,
}

/// Webhooks that were removed with undelivered events; a replay gives these to another webhook.
pub(super) async fn removed(db: &Db, json: bool) -> anyhow::Result<()> {
    let now = Clock::system().now();
    for (webhook, held) in &webhooks::removed(&mut db.read().await?).await? {
        let shown = Shown { held: Some(*held), ..Shown::of(webhook, now) };
        if json {
            say!("{}", json_line(&shown)?);
        } else {
            say!("{}  {held} held  {}  {}", shown.id, shown.url, shown.label);
        }
    }
    Ok(())
}

pub(super) async fn list(db: &Db, json: bool) -> anyhow::Result<()> {
    let now = Clock::system().now();
    for webhook in &webhooks::list(&mut db.read().await?).await? {
        let shown = Shown::of(webhook, now);
        if json {
            say!("{}", json_line(&shown)?);
        } else {
            say!("{}  {:<8} {}  {}", shown.id, shown.status, shown.url, shown.label);
        }
    }
    Ok(())
}

pub(super) async fn one(db: &Db, id: &str, json: bool) -> anyhow::Result<()> {
    ensure!(id != sinks::NATS, "{id} is a stream and no webhook: `landfall status` shows it");
    let mut reader = db.read().await?;
    let webhook = webhooks::by_id(&mut reader, id).await?.context("no webhook has this id")?;
    let last_failure = deliveries::last_failure(&mut reader, id).await?.map(FailureReport::from);
    let shown = Shown { last_failure, ..Shown::of(&webhook, Clock::system().now()) };
    if json {
        say!("{}", json_line(&shown)?);
        return Ok(());
    }
    say!("{}  {}", shown.id, shown.status);
    say!("url          {}", shown.url);
    say!("label        {}", shown.label);
    say!("created      {}", shown.created_at);
    say!("signing key  {}, made {}", shown.signing_key_id, shown.signing_key_created_at);
    if let Some(until) = &shown.previous_key_expires_at {
        say!("key before   signs too until {until}");
    }
    if let Some(key) = &shown.verification_key {
        say!("Ed25519      {key}");
    }
    if !shown.allowed_networks.is_empty() {
        say!("may reach    {}", shown.allowed_networks);
    }
    if let Some(failure) = &shown.last_failure {
        say!("last failure {failure}");
    }
    Ok(())
}

impl<'a> Shown<'a> {
    fn of(webhook: &'a Webhook, now: Timestamp) -> Self {
        let previous = webhook.previous_key_expires_at;
        Shown {
            id: &webhook.id,
            url: &webhook.url,
            label: &webhook.label,
            status: webhook.status.name(),
            created_at: webhook.created_at.to_string(),
            signing_key_id: &webhook.signing_key_id,
            signing_key_created_at: webhook.signing_key_created_at.to_string(),
            previous_key_expires_at: (previous > now).then(|| previous.to_string()),
            verification_key: verification_key(&webhook.signing_key),
            allowed_networks: webhook.allowed_networks.to_string(),
            held: None,
            last_failure: None,
        }
    }
}
