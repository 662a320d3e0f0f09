//! `landfall key create|list|revoke|pair`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::Subcommand;
use serde::Serialize;

use crate::cli::{Why, as_operator, duration, json_line, load, open_existing, open_or_make};
use crate::key::{PublicKey, Scope, Scopes};
use crate::operator::Operator;
use crate::overrides::Author;
use crate::store::Db;
use crate::store::keys::{self, ListedKey};
use crate::{random, registry};

#[derive(Subcommand, Debug)]
pub(super) enum Key {
    /// Make a key. It is printed alone on stdout, this once; only its hash is kept.
    Create {
        /// What it is for.
        #[arg(long)]
        name: String,
        /// What it may do: read, write, webhooks, transfers, admin (all of it); repeat it, or put commas between.
        #[arg(long, default_value = "read", value_delimiter = ',')]
        scope: Vec<Scope>,
    },
    /// Show every key: what it may do, when it was last used, whether it is revoked.
    List {
        /// A line of JSON for each.
        #[arg(long)]
        json: bool,
    },
    /// Revoke a key for good. The next request with it is refused.
    Revoke {
        /// Its id: the 8 characters behind lf_live_ or lf_test_.
        id: String,
        #[command(flatten)]
        why: Why,
    },
    /// Pair a public key with a key. From now on its requests must be signed, for ever.
    Pair {
        /// The id of the API key: the 8 characters behind lf_live_ or lf_test_.
        id: String,
        /// PEM of an Ed25519, a P-256, or an RSA public key of at least 2048 bits.
        #[arg(long, value_name = "FILE")]
        public_key: PathBuf,
        /// How long the public key of before still signs. One from before that ends now.
        #[arg(long, default_value = "24h", value_parser = duration)]
        previous_for: Duration,
        #[command(flatten)]
        why: Why,
    },
}

#[derive(Serialize)]
struct Shown<'a> {
    id: &'a str,
    name: &'a str,
    environment: &'static str,
    scopes: Vec<&'static str>,
    created_at: String,
    last_used_at: Option<String>,
    revoked_at: Option<String>,
    signed: bool,
}

impl Key {
    pub(super) async fn run(self, config: &Path) -> anyhow::Result<()> {
        let config = load(config)?;
        match self {
            Key::Create { name, scope } => {
                let scopes = Scopes::of(&scope).context("a key needs a scope")?;
                let db = open_or_make(&config.store).await?;
                let what = (name.as_str(), &scopes);
                let created = as_operator("", async |Operator { actor, reason, now, .. }| {
                    let by = Author { actor, reason, now };
                    registry::create_key(&db, config.environment, what, &random::bytes(), &by).await
                });
                say!("{}", created.await?.reveal());
            }
            Key::List { json } => list(&open_existing(&config.store).await?, json).await?,
            Key::Revoke { id, why } => {
                let db = open_existing(&config.store).await?;
                let revoked = as_operator(&why.reason, async |by| {
                    anyhow::Ok(registry::revoke_key(&db, &id, &by.author()?).await?)
                });
                revoked.await?;
                say!("API key {id} is revoked");
            }
            Key::Pair { id, public_key, previous_for, why } => {
                let file = public_key.display().to_string();
                let text = std::fs::read_to_string(&public_key).with_context(|| format!("cannot read {file}"))?;
                let key = PublicKey::from_pem(&text).with_context(|| file.clone())?;
                let db = open_existing(&config.store).await?;
                let paired = as_operator(&why.reason, async |by| {
                    anyhow::Ok(registry::pair_key(&db, &id, &key, previous_for, &by.author()?).await?)
                });
                paired.await?;
                let (algorithm, fingerprint) = (key.algorithm().name(), key.fingerprint());
                say!("API key {id} is paired with the {algorithm} key {fingerprint}");
                say!("its requests need X-Request-Signature, with sub {id} and aud {}", host(&config));
            }
        }
        Ok(())
    }
}

/// What signatures must name as their audience, as far as the configuration alone decides it.
fn host(config: &crate::config::Config) -> String {
    config.api_settings(config.api_listen, Vec::new()).host
}

async fn list(db: &Db, json: bool) -> anyhow::Result<()> {
    let listed = keys::list(&mut db.read().await?).await?;
    for key in &listed {
        if json {
            say!("{}", json_line(&Shown::of(key))?);
        } else {
            say!("{}", line(key));
        }
    }
    if listed.is_empty() && !json {
        say!("no keys; `landfall key create --name NAME` makes one");
    }
    Ok(())
}

fn line(key: &ListedKey) -> String {
    let used = key.last_used_at.map_or_else(|| "never used".to_owned(), |at| format!("last used {at}"));
    let signed = if key.is_signed { ", signed" } else { "" };
    let revoked = key.revoked_at.map_or_else(String::new, |at| format!(", revoked {at}"));
    format!("{}  {}  {}{signed}, created {}, {used}{revoked}", key.id, key.name, key.scopes, key.created_at)
}

impl<'a> Shown<'a> {
    fn of(key: &'a ListedKey) -> Self {
        Shown {
            id: &key.id,
            name: &key.name,
            environment: key.environment.name(),
            scopes: key.scopes.names(),
            created_at: key.created_at.to_string(),
            last_used_at: key.last_used_at.map(|at| at.to_string()),
            revoked_at: key.revoked_at.map(|at| at.to_string()),
            signed: key.is_signed,
        }
    }
}
