//! `landfall sponsor add|list|pause|resume|release`.

use std::path::Path;
use std::time::Duration;

use clap::{Args, Subcommand};
use landfall_chain::Chain;
use serde::Serialize;

use crate::cli::{Why, as_operator, existing, json_line};
use crate::store::sponsors::{self, Sponsor as Listed};
use crate::store::{Db, guards};
use crate::transfer::SponsorState;

/// How long addresses are waited for, and how often they are looked for.
const DERIVED_TIME_MAX: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(250);

#[derive(Subcommand, Debug)]
pub(super) enum Sponsor {
    /// Make further addresses that pay for transactions of a chain. The process that has the signer derives them; fund
    /// them then.
    Add {
        /// For example BASE_MAINNET.
        #[arg(long)]
        chain: Chain,
        #[arg(long, default_value = "1")]
        count: usize,
        #[command(flatten)]
        why: Why,
    },
    /// Show the addresses that pay for transactions.
    List {
        /// Of this chain only.
        #[arg(long)]
        chain: Option<Chain>,
        /// A JSON object for each, one a line.
        #[arg(long)]
        json: bool,
    },
    /// Give an active one nothing new to carry; what it carries already is watched to its end.
    Pause(One),
    /// Let a paused one carry again.
    Resume(One),
    /// Let a quarantined one carry again, when nobody else uses its key any more.
    Release(One),
}

#[derive(Args, Debug)]
pub(super) struct One {
    /// Its number on its chain.
    number: u32,
    #[arg(long)]
    chain: Chain,
    #[command(flatten)]
    why: Why,
}

#[derive(Serialize)]
struct Line {
    chain: &'static str,
    number: u32,
    /// Null until a process with a signer has derived it.
    address: Option<String>,
    state: &'static str,
    /// What guards of payments hold for it, on Solana: it comes back.
    locked_lamports: u64,
}

impl Sponsor {
    pub(super) async fn run(self, config: &Path) -> anyhow::Result<()> {
        use SponsorState::{Active, Paused, Quarantined};
        let db = existing(config).await?;
        match self {
            Sponsor::Add { chain, count, why } => {
                let added = as_operator(&why.reason, async |operator| operator.add_sponsors(&db, chain, count).await);
                show_added(&db, chain, &added.await?).await
            }
            Sponsor::List { chain, json } => list(&db, chain, json).await,
            Sponsor::Pause(one) => one.set(&db, (Active, Paused)).await,
            Sponsor::Resume(one) => one.set(&db, (Paused, Active)).await,
            Sponsor::Release(one) => one.set(&db, (Quarantined, Active)).await,
        }
    }
}

impl One {
    async fn set(self, db: &Db, states: (SponsorState, SponsorState)) -> anyhow::Result<()> {
        let One { number, chain, why } = self;
        as_operator(&why.reason, async |operator| operator.set_sponsor(db, chain, number, states).await).await?;
        say!("sponsor {number} of {chain} is {}", states.1.name());
        Ok(())
    }
}

/// Shows the new ones, with their addresses if a running process derives them soon.
async fn show_added(db: &Db, chain: Chain, added: &[u32]) -> anyhow::Result<()> {
    let read = async || -> anyhow::Result<Vec<Listed>> {
        let mut all = sponsors::of_chain(&mut db.read().await?, chain).await?;
        all.retain(|sponsor| added.contains(&sponsor.number));
        Ok(all)
    };
    let derived = async {
        loop {
            let shown = read().await?;
            if shown.iter().all(|sponsor| sponsor.address.is_some()) {
                return Ok::<_, anyhow::Error>(shown);
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    match tokio::time::timeout(DERIVED_TIME_MAX, derived).await {
        Ok(shown) => shown?.iter().for_each(|sponsor| say!("{}", line(chain, sponsor))),
        Err(_) => {
            read().await?.iter().for_each(|sponsor| say!("{}", line(chain, sponsor)));
            complain!(
                "landfall: the addresses are made when `landfall run` runs with a signer; `sponsor list` shows them then"
            );
        }
    }
    Ok(())
}

async fn list(db: &Db, of: Option<Chain>, json: bool) -> anyhow::Result<()> {
    let mut reader = db.read().await?;
    for chain in Chain::ALL.into_iter().filter(|chain| of.is_none_or(|of| of == *chain)) {
        let locked = guards::locked(&mut reader, chain).await?;
        for sponsor in sponsors::of_chain(&mut reader, chain).await? {
            let lamports =
                locked.iter().find(|(of, _)| Some(*of) == sponsor.address).map_or(0, |(_, lamports)| *lamports);
            let of_guards =
                if lamports > 0 { format!(", {lamports} lamports locked in guards") } else { String::new() };
            let text = format!("{}{of_guards}", line(chain, &sponsor));
            say!("{}", if json { json_line(&Line::of(chain, &sponsor, lamports))? } else { text });
        }
    }
    Ok(())
}

fn line(chain: Chain, sponsor: &Listed) -> String {
    let address = sponsor.address.map_or("not derived yet".to_owned(), |address| address.to_string());
    format!("{chain} {} {address} {}", sponsor.number, sponsor.state.name())
}

impl Line {
    fn of(chain: Chain, sponsor: &Listed, locked_lamports: u64) -> Self {
        let Listed { number, address, state, .. } = sponsor;
        Line {
            chain: chain.name(),
            number: *number,
            address: address.map(|address| address.to_string()),
            state: state.name(),
            locked_lamports,
        }
    }
}
