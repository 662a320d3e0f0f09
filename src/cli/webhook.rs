//! `landfall webhook add`.

use clap::Subcommand;
use serde::Serialize;

use crate::cli::json_line;
use crate::random;
use crate::registry::{self, NewWebhook};
use crate::store::Db;
use crate::time::Clock;

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
        let webhook = NewWebhook { url: &url, label: &label, allow_private };
        let added = registry::add_webhook(db, &webhook, &random::bytes(), Clock::system().now()).await?;
        if json {
            println!("{}", json_line(&Added { id: &added.id, secret: &added.signing_key })?);
        } else {
            println!("webhook {} sends to {}", added.id, added.url);
            println!("signing key, shown this once: {}", added.signing_key);
        }
        Ok(())
    }
}
