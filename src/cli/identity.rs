//! `landfall identity add|list|show|suspend|reinstate|terminate`.

use std::path::Path;

use anyhow::bail;
use clap::{Args, Subcommand};
use serde::Serialize;

use crate::cli::{Why, as_operator, existing, json_line, open};
use crate::identity::{Change, Identity as Listed, NewIdentity, SubStatus};
use crate::registry;
use crate::store::Db;
use crate::store::identities::{self, Decision};
use crate::time::Clock;

#[derive(Subcommand, Debug)]
pub(super) enum Identity {
    /// Register an identity that is onboarded: it is ACTIVE, and accounts can name it.
    Add {
        /// The identity's id.
        #[arg(long, value_name = "ID")]
        identity: String,
        /// INDIVIDUAL or BUSINESS.
        #[arg(long, value_name = "TYPE")]
        r#type: String,
        /// What it is called.
        #[arg(long, default_value = "")]
        label: String,
        /// It may also use fiat operations.
        #[arg(long)]
        fiat: bool,
    },
    /// Show the identities.
    List {
        /// A JSON object for each identity, one a line.
        #[arg(long)]
        json: bool,
    },
    /// Show one identity, and who changed its status when and why, oldest first.
    Show {
        id: String,
        /// End with one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Suspend an ACTIVE identity: its accounts are FROZEN. What arrives for them is recorded all the same.
    Suspend(Decide),
    /// Make a SUSPENDED identity ACTIVE again.
    Reinstate(Decide),
    /// End an identity for ever: its accounts are CLOSED. What arrives for them is recorded all the same.
    Terminate(Decide),
}

#[derive(Args, Debug)]
pub(super) struct Decide {
    id: String,
    #[command(flatten)]
    why: Why,
}

#[derive(Serialize)]
struct Line<'a> {
    id: &'a str,
    r#type: &'static str,
    label: &'a str,
    status: &'static str,
    sub_status: &'static str,
    fiat_operations_enabled: bool,
}

#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    identity: Line<'a>,
    changes: Vec<ChangeLine<'a>>,
}

#[derive(Serialize)]
struct ChangeLine<'a> {
    at: String,
    actor: &'a str,
    reason: &'a str,
    previous_status: &'static str,
    status: &'static str,
}

impl Identity {
    pub(super) async fn run(self, config: &Path) -> anyhow::Result<()> {
        match self {
            Identity::Add { identity, r#type, label, fiat } => {
                let new = NewIdentity { kind: r#type.parse()?, label, fiat_operations_enabled: fiat };
                let now = Clock::system().now();
                let added = registry::add_identity(&open(config).await?, &identity, &new, now).await?;
                say!("identity {} is {}", added.id, added.status);
                Ok(())
            }
            Identity::List { json } => list(&existing(config).await?, json).await,
            Identity::Show { id, json } => show(&existing(config).await?, &id, json).await,
            Identity::Suspend(decision) => decision.take(config, Change::Suspend).await,
            Identity::Reinstate(decision) => decision.take(config, Change::Reinstate).await,
            Identity::Terminate(decision) => decision.take(config, Change::Terminate).await,
        }
    }
}

impl Decide {
    async fn take(self, config: &Path, change: Change) -> anyhow::Result<()> {
        let db = existing(config).await?;
        let Decide { id, why } = self;
        let changed = as_operator(&why.reason, async |operator| operator.change_identity(&db, &id, change).await);
        say!("identity {id} is {}", changed.await?.status);
        Ok(())
    }
}

async fn list(db: &Db, json: bool) -> anyhow::Result<()> {
    for identity in identities::list(&mut db.read().await?).await? {
        say!("{}", if json { json_line(&Line::of(&identity))? } else { line(&identity) });
    }
    Ok(())
}

async fn show(db: &Db, id: &str, json: bool) -> anyhow::Result<()> {
    let mut reader = db.read().await?;
    let Some(identity) = identities::by_id(&mut reader, id).await? else {
        bail!("there is no identity {id}; `landfall identity list` shows those that are");
    };
    let decisions = identities::decisions(&mut reader, id).await?;
    if json {
        let changes = decisions.iter().map(ChangeLine::of).collect();
        say!("{}", json_line(&Shown { identity: Line::of(&identity), changes })?);
        return Ok(());
    }
    say!("{}", line(&identity));
    for Decision { at, actor, reason, from, to } in &decisions {
        say!("{at} {actor} {from} -> {to}: {reason}");
    }
    Ok(())
}

fn line(identity: &Listed) -> String {
    let Listed { id, kind, label, status, .. } = identity;
    format!("{id} {kind} {status} {label}")
}

impl<'a> Line<'a> {
    fn of(identity: &'a Listed) -> Self {
        let Listed { id, kind, label, fiat_operations_enabled, status, sub_status } = identity;
        let (r#type, status, sub_status) = (kind.name(), status.name(), SubStatus::text(*sub_status));
        Line { id, r#type, label, status, sub_status, fiat_operations_enabled: *fiat_operations_enabled }
    }
}

impl<'a> ChangeLine<'a> {
    fn of(decision: &'a Decision) -> Self {
        let Decision { at, actor, reason, from, to } = decision;
        ChangeLine { at: at.to_string(), actor, reason, previous_status: from.name(), status: to.name() }
    }
}
