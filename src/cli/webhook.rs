//! `landfall webhook add`.

use clap::Subcommand;
use serde::Serialize;

use crate::cli::json_line;
use crate::store::Db;
use crate::store::webhooks::{self, WebhookRow};
use crate::time::Clock;
use crate::{random, webhook};

#[derive(Subcommand, Debug)]
pub(super) enum Webhook {
    /// Register a receiver; it gets the events that come from now on. Its signing key is shown this once.
    Add {
        /// Where events are sent.
        #[arg(long)]
        url: String,
        /// What it is called.
        #[arg(long, default_value = "")]
        label: String,
        /// Take plain http and addresses of private networks.
        #[arg(long)]
        allow_private: bool,
        /// A JSON object with id and secret.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Serialize)]
struct Added<'a> {
    id: &'a str,
    secret: &'a str,
}

impl Webhook {
    pub(super) async fn run(self, db: &Db) -> anyhow::Result<()> {
        let Webhook::Add { url, label, allow_private, json } = self;
        let url = webhook::check_url(&url, allow_private)?;
        let added = add(db, url.as_str(), &label, allow_private).await?;
        if json {
            println!("{}", json_line(&Added { id: &added.id, secret: &added.signing_key })?);
        } else {
            println!("webhook {} sends to {url}", added.id);
            println!("signing key, shown this once: {}", added.signing_key);
        }
        Ok(())
    }
}

/// Registers a webhook under a new id with a new signing key.
pub(crate) async fn add(db: &Db, url: &str, label: &str, allow_private: bool) -> anyhow::Result<WebhookRow> {
    let row = WebhookRow {
        id: format!("wh_{}", hex::encode(random::bytes::<12>())),
        url: url.to_owned(),
        label: label.to_owned(),
        allow_private,
        signing_key_id: format!("sk_{}", hex::encode(random::bytes::<8>())),
        signing_key: webhook::signing_key(random::bytes()),
    };
    let mut tx = db.begin().await?;
    webhooks::insert(&mut tx, &row, Clock::system().now()).await?;
    tx.commit().await?;
    Ok(row)
}
