//! `landfall incident list|show|resolve`.

use anyhow::Context;
use clap::Subcommand;
use landfall_chain::Chain;
use serde::Serialize;

use crate::cli::{Why, as_operator, json_line};
use crate::incident;
use crate::store::{Db, incidents};

#[derive(Subcommand, Debug)]
pub(super) enum Incident {
    /// Show the open incidents, oldest first.
    List {
        /// The resolved ones too.
        #[arg(long)]
        all: bool,
        /// A JSON object for each incident, one a line.
        #[arg(long)]
        json: bool,
    },
    /// Show one incident.
    Show {
        id: String,
        /// One JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Close an incident that a person has checked.
    Resolve {
        id: String,
        #[command(flatten)]
        why: Why,
    },
}

#[derive(Serialize)]
struct Line<'a> {
    id: &'a str,
    chain: Chain,
    kind: &'static str,
    what: &'a str,
    /// Null for one about the chain or a balance.
    deposit_id: Option<String>,
    /// Null but for one about a balance: whose, and of what (`native`, or the token's contract or mint).
    address: Option<String>,
    asset: Option<String>,
    opened_at: String,
    seen_at: String,
    resolved_at: Option<String>,
    resolution: &'a str,
}

impl Incident {
    pub(super) async fn run(self, db: &Db) -> anyhow::Result<()> {
        match self {
            Incident::List { all, json } => {
                let mut reader = db.read().await?;
                let listed =
                    if all { incidents::all(&mut reader).await? } else { incidents::open(&mut reader).await? };
                for incident in &listed {
                    say!("{}", if json { json_line(&Line::of(incident))? } else { headline(incident) });
                }
            }
            Incident::Show { id, json } => {
                let incident = incidents::by_id(&mut db.read().await?, &id).await?;
                let incident = incident.with_context(|| format!("there is no incident {id}"))?;
                if json {
                    say!("{}", json_line(&Line::of(&incident))?);
                } else {
                    say!("{}", headline(&incident));
                    say!("{}", incident.what);
                }
            }
            Incident::Resolve { id, why } => {
                as_operator(&why.reason, async |operator| operator.resolve(db, &id).await).await?;
                say!("{id} is resolved");
            }
        }
        Ok(())
    }
}

impl<'a> Line<'a> {
    fn of(incident: &'a incident::Incident) -> Self {
        Line {
            id: &incident.id,
            chain: incident.chain,
            kind: incident.kind.name(),
            what: &incident.what,
            deposit_id: incident.deposit.map(|deposit| deposit.to_string()),
            address: incident.holding.map(|(address, _)| address.to_string()),
            asset: incident.holding.map(|(_, asset)| asset.to_string()),
            opened_at: incident.opened_at.to_string(),
            seen_at: incident.seen_at.to_string(),
            resolved_at: incident.resolved_at.map(|at| at.to_string()),
            resolution: &incident.resolution,
        }
    }
}

fn headline(incident: &incident::Incident) -> String {
    let incident::Incident { id, chain, kind, opened_at, seen_at, resolved_at, resolution, .. } = incident;
    let state = match resolved_at {
        None => "open".to_owned(),
        Some(at) => format!("resolved at {at}: {resolution}"),
    };
    let kind = match (incident.deposit, incident.holding) {
        (Some(deposit), _) => format!("{kind} (deposit {deposit})"),
        (None, Some((address, asset))) => format!("{kind} ({asset} of {address})"),
        (None, None) => kind.to_string(),
    };
    format!("{id} {chain} {kind}, met at {opened_at}, last at {seen_at}, {state}")
}
