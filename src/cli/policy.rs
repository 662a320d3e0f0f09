//! `landfall policy add|list|show|remove`.

use std::path::Path;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use landfall_chain::{Chain, Network};

use crate::api::PolicyResource;
use crate::app;
use crate::cli::{How, existing, json_line, load, open_existing};
use crate::config::Config;
use crate::operator::Operator;
use crate::policy::{Policy as Listed, PolicyLimit, PolicyScope};
use crate::store::{Db, ORGANIZATION, policies};

#[derive(Subcommand, Debug)]
pub(super) enum Policy {
    /// Limit what may be sent, from now on. What was accepted before counts, too.
    Add(Add),
    /// Show the policies that are in force.
    List {
        /// Those that were removed, too.
        #[arg(long)]
        all: bool,
        /// A JSON object for each, one a line, as the API shows it.
        #[arg(long)]
        json: bool,
    },
    /// Show one policy: exit 0 found, 1 unknown.
    Show {
        /// The policy's id.
        id: String,
        /// One JSON object, as the API shows it.
        #[arg(long)]
        json: bool,
    },
    /// End a policy: from now on it limits nothing.
    Remove {
        /// The policy's id.
        id: String,
        #[command(flatten)]
        how: How,
    },
}

#[derive(Args, Debug)]
pub(super) struct Add {
    /// What it is called.
    #[arg(long, default_value = "")]
    label: String,
    /// Limit the transfers of this account; without it and --identity, those of everybody together.
    #[arg(long, value_name = "ID", conflicts_with = "identity")]
    account: Option<String>,
    /// Limit the transfers of all accounts of this identity together.
    #[arg(long, value_name = "ID")]
    identity: Option<String>,
    /// Count only transfers on this chain.
    #[arg(long)]
    chain: Option<Chain>,
    /// PERIOD:SYMBOL:amount=A, PERIOD:SYMBOL:count=N or both, as in DAY:USDC:amount=1000,count=10; repeat it. The
    /// periods are TRANSACTION, DAY, WEEK (7 days) and MONTH (30 days).
    #[arg(long, required = true)]
    limit: Vec<PolicyLimit>,
    #[command(flatten)]
    how: How,
}

impl Policy {
    pub(super) async fn run(self, config: &Path) -> anyhow::Result<ExitCode> {
        match self {
            Policy::Add(add) => add.run(&load(config)?).await?,
            Policy::List { all, json } => {
                for policy in policies::list(&mut existing(config).await?.read().await?, all).await? {
                    show(&policy, json)?;
                }
            }
            Policy::Show { id, json } => {
                let Some(policy) = policies::by_id(&mut existing(config).await?.read().await?, &id).await? else {
                    complain!("landfall: there is no policy {id}");
                    return Ok(ExitCode::FAILURE);
                };
                show(&policy, json)?;
            }
            Policy::Remove { id, how } => {
                let db = existing(config).await?;
                let removed = how.decide(async |by| by.remove_policy(&db, &id).await).await?;
                if how.json {
                    show(&removed, true)?;
                } else {
                    say!("policy {id} {} removed", how.is());
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Add {
    async fn run(self, config: &Config) -> anyhow::Result<()> {
        let Add { label, account, identity, chain, limit, how } = self;
        let scope = match (account, identity) {
            (Some(account), _) => PolicyScope::Account(account),
            (None, Some(identity)) => PolicyScope::Identity(identity),
            (None, None) => PolicyScope::Organization(ORGANIZATION.to_owned()),
        };
        let networks = config.chains.iter().map(|(chain, settings)| app::network(*chain, settings));
        let networks: Vec<Network> = networks.collect::<Result<_, _>>()?;
        let db: Db = open_existing(&config.store).await?;
        let added = how.decide(async |by: Operator<'_>| {
            let policy = Listed::new(label, scope, chain, limit, by.now)?;
            by.add_policy(&db, &policy, &networks).await?;
            anyhow::Ok(policy)
        });
        show(&added.await?, how.json)
    }
}

fn show(policy: &Listed, json: bool) -> anyhow::Result<()> {
    if json {
        say!("{}", json_line(&PolicyResource::of(policy))?);
        return Ok(());
    }
    let Listed { id, label, status, scope, chain, limits, .. } = policy;
    let whose = match scope {
        PolicyScope::Organization(_) => "everybody".to_owned(),
        PolicyScope::Identity(id) => format!("identity {id}"),
        PolicyScope::Account(id) => format!("account {id}"),
    };
    let on = chain.map_or(String::new(), |chain| format!(" on {chain}"));
    say!("{id} {} of {whose}{on} {label}", status.name());
    limits.iter().for_each(|limit| say!("  at most {limit}"));
    Ok(())
}
