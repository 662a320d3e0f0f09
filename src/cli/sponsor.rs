//! `landfall sponsor add|list|show|pause|resume|quarantine|release`.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Subcommand};
use landfall_chain::Chain;
use serde::Serialize;

use crate::cli::{How, PAGE_ROWS, existing, json_line};
use crate::store::refills::{self, Refilling};
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
        /// The chain's treasury in their place: it carries nothing, and refills each sponsor that owns less than `floor`. A
        /// chain has one.
        #[arg(long, conflicts_with = "count")]
        treasury: bool,
        #[command(flatten)]
        how: How,
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
    /// Show one, and what the treasury gave it, newest first; of the treasury what it gave: exit 0 found, 1 unknown.
    Show {
        /// Its number on its chain.
        number: u32,
        #[arg(long)]
        chain: Chain,
        /// One JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Give an active one nothing new to carry; what it carries already is watched to its end.
    Pause(One),
    /// Let a paused one carry again.
    Resume(One),
    /// Let one sign nothing more, because somebody else may have its key; others carry what it carried.
    Quarantine(One),
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
    how: How,
}

#[derive(Serialize)]
struct Line {
    chain: &'static str,
    number: u32,
    /// `sponsor` or `treasury`.
    role: &'static str,
    /// Null until a process with a signer has derived it.
    address: Option<String>,
    state: &'static str,
    /// What guards of payments hold for it, on Solana: it comes back.
    locked_lamports: u64,
}

/// A sponsor, and the refills that it has a part in.
#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    sponsor: Line,
    refills: Vec<RefillLine>,
}

#[derive(Serialize)]
struct RefillLine {
    recorded_at: String,
    /// The number of the sponsor that is refilled, and the treasury's nonce.
    number: u32,
    nonce: u64,
    /// In base units of the native currency.
    amount: String,
    /// `open`, `landed`, or `passed`: its nonce is used, by none of its transactions on record.
    state: &'static str,
    transaction_hash: Option<String>,
}

impl Sponsor {
    pub(super) async fn run(self, config: &Path) -> anyhow::Result<ExitCode> {
        use SponsorState::{Active, Paused, Quarantined};
        let db = existing(config).await?;
        match self {
            Sponsor::Add { chain, treasury: true, how, .. } => {
                let added = how.decide(async |operator| operator.add_treasury(&db, chain).await).await?;
                show_added(&db, (chain, &[added]), "treasury", &how).await?;
            }
            Sponsor::Add { chain, count, treasury: false, how } => {
                let added = how.decide(async |operator| operator.add_sponsors(&db, chain, count).await).await?;
                show_added(&db, (chain, &added), "sponsor", &how).await?;
            }
            Sponsor::List { chain, json } => list(&db, chain, json).await?,
            Sponsor::Show { number, chain, json } => return show(&db, (chain, number), json).await,
            Sponsor::Pause(one) => one.set(&db, (Active, Paused)).await?,
            Sponsor::Resume(one) => one.set(&db, (Paused, Active)).await?,
            Sponsor::Quarantine(one) => one.quarantine(&db).await?,
            Sponsor::Release(one) => one.set(&db, (Quarantined, Active)).await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl One {
    async fn quarantine(self, db: &Db) -> anyhow::Result<()> {
        let One { number, chain, how } = &self;
        how.decide(async |operator| operator.quarantine_sponsor(db, *chain, *number).await).await?;
        self.show(db, SponsorState::Quarantined).await
    }

    async fn set(self, db: &Db, states: (SponsorState, SponsorState)) -> anyhow::Result<()> {
        let One { number, chain, how } = &self;
        how.decide(async |operator| operator.set_sponsor(db, *chain, *number, states).await).await?;
        self.show(db, states.1).await
    }

    /// As it is now, or would be.
    async fn show(&self, db: &Db, state: SponsorState) -> anyhow::Result<()> {
        let One { number, chain, how } = self;
        if !how.json {
            say!("sponsor {number} of {chain} {} {}", how.is(), state.name());
            return Ok(());
        }
        let known = known(db, *chain).await?.into_iter().find(|(sponsor, _)| sponsor.number == *number);
        let (sponsor, lamports) = known.with_context(|| format!("sponsor {number} of {chain} is not on record"))?;
        say!("{}", json_line(&Line::of(*chain, &Listed { state, ..sponsor }, lamports))?);
        Ok(())
    }
}

/// The sponsors of a chain, and what guards hold for each.
async fn known(db: &Db, chain: Chain) -> anyhow::Result<Vec<(Listed, u64)>> {
    let mut reader = db.read().await?;
    let locked = guards::locked(&mut reader, chain).await?;
    let with_locked = |sponsor: Listed| {
        let lamports = locked.iter().find(|(of, _)| Some(*of) == sponsor.address).map_or(0, |(_, lamports)| *lamports);
        (sponsor, lamports)
    };
    Ok(sponsors::of_chain(&mut reader, chain).await?.into_iter().map(with_locked).collect())
}

/// Shows the new ones, with their addresses if a running process derives them soon. On a dry run there are none.
async fn show_added(db: &Db, (chain, added): (Chain, &[u32]), role: &'static str, how: &How) -> anyhow::Result<()> {
    if how.dry_run {
        for number in added {
            let (state, number) = (SponsorState::Active.name(), *number);
            let text = format!("{role} {number} of {chain} would be added");
            let line = Line { chain: chain.name(), number, role, address: None, state, locked_lamports: 0 };
            say!("{}", if how.json { json_line(&line)? } else { text });
        }
        return Ok(());
    }
    let show = |sponsor: &Listed| -> anyhow::Result<()> {
        say!("{}", if how.json { json_line(&Line::of(chain, sponsor, 0))? } else { line(chain, sponsor) });
        Ok(())
    };
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
        Ok(shown) => shown?.iter().try_for_each(show)?,
        Err(_) => {
            read().await?.iter().try_for_each(show)?;
            complain!(
                "landfall: the addresses are made when `landfall run` runs with a signer; `sponsor list` shows them then"
            );
        }
    }
    Ok(())
}

async fn list(db: &Db, of: Option<Chain>, json: bool) -> anyhow::Result<()> {
    for chain in Chain::ALL.into_iter().filter(|chain| of.is_none_or(|of| of == *chain)) {
        for (sponsor, lamports) in known(db, chain).await? {
            let of_guards =
                if lamports > 0 { format!(", {lamports} lamports locked in guards") } else { String::new() };
            let text = format!("{}{of_guards}", line(chain, &sponsor));
            say!("{}", if json { json_line(&Line::of(chain, &sponsor, lamports))? } else { text });
        }
    }
    Ok(())
}

async fn show(db: &Db, (chain, number): (Chain, u32), json: bool) -> anyhow::Result<ExitCode> {
    let known = known(db, chain).await?;
    let Some((sponsor, lamports)) = known.iter().find(|(sponsor, _)| sponsor.number == number) else {
        complain!("landfall: {chain} has no sponsor {number}; `landfall sponsor list` shows those that are");
        return Ok(ExitCode::FAILURE);
    };
    let mut refills = refills::newest(&mut db.read().await?, chain, PAGE_ROWS).await?;
    refills.retain(|refill| sponsor.address.is_some_and(|of| [refill.treasury, refill.recipient].contains(&of)));
    if json {
        let refills = refills.iter().map(RefillLine::of).collect();
        say!("{}", json_line(&Shown { sponsor: Line::of(chain, sponsor, *lamports), refills })?);
        return Ok(ExitCode::SUCCESS);
    }
    say!("{}", line(chain, sponsor));
    for refill in &refills {
        let RefillLine { recorded_at, number, nonce, amount, state, transaction_hash } = RefillLine::of(refill);
        let tx = transaction_hash.map_or(String::new(), |tx| format!(" by {tx}"));
        say!("{recorded_at} refill of sponsor {number} with {amount}, nonce {nonce}: {state}{tx}");
    }
    Ok(ExitCode::SUCCESS)
}

fn line(chain: Chain, sponsor: &Listed) -> String {
    let address = sponsor.address.map_or("not derived yet".to_owned(), |address| address.to_string());
    let role = if sponsor.is_treasury { " treasury" } else { "" };
    format!("{chain} {} {address} {}{role}", sponsor.number, sponsor.state.name())
}

impl RefillLine {
    fn of(refill: &Refilling) -> Self {
        let Refilling { nonce, number, amount, recorded_at, state, tx, .. } = refill;
        RefillLine {
            recorded_at: recorded_at.to_string(),
            number: *number,
            nonce: *nonce,
            amount: amount.to_string(),
            state: state.name(),
            transaction_hash: tx.map(|tx| tx.to_string()),
        }
    }
}

impl Line {
    fn of(chain: Chain, sponsor: &Listed, locked_lamports: u64) -> Self {
        let Listed { number, is_treasury, address, state, .. } = sponsor;
        Line {
            chain: chain.name(),
            number: *number,
            role: if *is_treasury { "treasury" } else { "sponsor" },
            address: address.map(|address| address.to_string()),
            state: state.name(),
            locked_lamports,
        }
    }
}
