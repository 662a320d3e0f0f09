//! `landfall identity add|list|suspend|reinstate|terminate`.

use std::path::Path;

use clap::{Args, Subcommand};
use serde::Serialize;

use crate::cli::chain::Why;
use crate::cli::{as_operator, existing, json_line, open};
use crate::identity::{Change, Identity as Listed, NewIdentity, SubStatus};
use crate::registry;
use crate::store::{Db, identities};
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
    /// Suspend an ACTIVE identity: its accounts are FROZEN. What arrives for them is recorded all the same.
    Suspend(Decision),
    /// Make a SUSPENDED identity ACTIVE again.
    Reinstate(Decision),
    /// End an identity for ever: its accounts are CLOSED. What arrives for them is recorded all the same.
    Terminate(Decision),
}

#[derive(Args, Debug)]
pub(super) struct Decision {
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

impl Identity {
    pub(super) async fn run(self, config: &Path) -> anyhow::Result<()> {
        match self {
            Identity::Add { identity, r#type, label, fiat } => {
                let new = NewIdentity { kind: r#type.parse()?, label, fiat_operations_enabled: fiat };
                let now = Clock::system().now();
                let added = registry::add_identity(&open(config).await?, &identity, &new, now).await?;
                println!("identity {} is {}", added.id, added.status);
                Ok(())
            }
            Identity::List { json } => list(&existing(config).await?, json).await,
            Identity::Suspend(decision) => decision.take(config, Change::Suspend).await,
            Identity::Reinstate(decision) => decision.take(config, Change::Reinstate).await,
            Identity::Terminate(decision) => decision.take(config, Change::Terminate).await,
        }
    }
}

impl Decision {
    async fn take(self, config: &Path, change: Change) -> anyhow::Result<()> {
        let db = existing(config).await?;
        let Decision { id, why } = self;
        let changed = as_operator(&why.reason, async |operator| operator.change_identity(&db, &id, change).await);
        println!("identity {id} is {}", changed.await?.status);
        Ok(())
    }
}

async fn list(db: &Db, json: bool) -> anyhow::Result<()> {
    for identity in identities::list(&mut db.read().await?).await? {
        let Listed { id, kind, label, fiat_operations_enabled, status, sub_status } = &identity;
        if json {
            let (r#type, status, sub_status) = (kind.name(), status.name(), SubStatus::text(*sub_status));
            let fiat_operations_enabled = *fiat_operations_enabled;
            println!("{}", json_line(&Line { id, r#type, label, status, sub_status, fiat_operations_enabled })?);
        } else {
            println!("{id} {kind} {status} {label}");
        }
    }
    Ok(())
}
