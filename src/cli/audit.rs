//! `landfall audit list`: who decided what, when and why. `landfall chain audit` is the same of chains alone.

use std::path::Path;

use clap::Subcommand;
use landfall_chain::Chain;
use serde::Serialize;

use crate::cli::{existing, json_line};
use crate::overrides::AuditEntry;
use crate::store::Db;
use crate::store::audit::{self, About};

/// How many entries are shown.
const ROWS: u32 = 1_000;

#[derive(Subcommand, Debug)]
pub(super) enum Audit {
    /// Show who decided what, and why, newest first: about chains, identities, deposits, webhooks, events and API keys.
    List {
        /// Only what was decided about this chain.
        #[arg(long)]
        chain: Option<Chain>,
        /// A JSON object for each entry, one a line.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Serialize)]
struct Line<'a> {
    at: String,
    actor: &'a str,
    action: &'a str,
    chain: Option<Chain>,
    what: &'a str,
    reason: &'a str,
}

impl Audit {
    pub(super) async fn run(self, config: &Path) -> anyhow::Result<()> {
        let Audit::List { chain, json } = self;
        list(&existing(config).await?, chain.map_or(About::All, About::Chain), json).await
    }
}

pub(super) async fn list(db: &Db, about: About, json: bool) -> anyhow::Result<()> {
    for entry in audit::newest(&mut db.read().await?, about, ROWS).await? {
        say!("{}", if json { json_line(&Line::of(&entry))? } else { line(&entry) });
    }
    Ok(())
}

impl<'a> Line<'a> {
    fn of(entry: &'a AuditEntry) -> Self {
        let AuditEntry { at, actor, action, chain, what, reason } = entry;
        Line { at: at.to_string(), actor, action, chain: *chain, what, reason }
    }
}

fn line(entry: &AuditEntry) -> String {
    let AuditEntry { at, actor, action, chain, what, reason } = entry;
    let chain = chain.map_or("-", Chain::name);
    let reason = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
    format!("{at} {chain} {actor} {action} {what}{reason}")
}
