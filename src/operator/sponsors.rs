//! Operators add sponsors, pause, resume and release them, and release quarantined wallets. A release closes the
//! incident.

use landfall_chain::{Address, Chain};

use crate::incident::IncidentKind;
use crate::operator::{DecideError, Operator};
use crate::store::cursors::Cursor;
use crate::store::sponsors::{self, Sponsor};
use crate::store::{Db, StoreError, incidents, wallets};
use crate::transfer::SponsorState;

/// How many sponsors one chain may have.
const SPONSORS_MAX: usize = 256;

/// Why a sponsor was neither added nor changed.
#[derive(Debug, thiserror::Error)]
pub enum SponsorError {
    #[error("{chain}: a chain has at most {SPONSORS_MAX} sponsors, and {there} are there")]
    TooMany { chain: Chain, there: usize },
    #[error("{chain} has its treasury: it is sponsor {number}")]
    HasTreasury { chain: Chain, number: u32 },
    #[error("{chain} has no sponsor {number}; `landfall sponsor list` shows those that are")]
    Unknown { chain: Chain, number: u32 },
    #[error("sponsor {number} of {chain} is {}, not {}", state.name(), expected.name())]
    Otherwise { chain: Chain, number: u32, state: SponsorState, expected: SponsorState },
    #[error(transparent)]
    Decide(#[from] DecideError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Operator<'_> {
    /// Asks for `count` more sponsors of the chain; returns their numbers. A process with a signer derives their
    /// addresses.
    ///
    /// # Errors
    /// When the chain would have too many.
    pub async fn add_sponsors(&self, db: &Db, chain: Chain, count: usize) -> Result<Vec<u32>, SponsorError> {
        let mut tx = self.begin(db).await?;
        // Who adds others at the same time waits here: numbers follow each other.
        Cursor::lock(&mut tx, chain).await?;
        self.write_down(&mut tx, chain, "add_sponsors", &count.to_string()).await?;
        let there = sponsors::of_chain(&mut tx, chain).await?.len();
        if there + count > SPONSORS_MAX {
            return Err(SponsorError::TooMany { chain, there });
        }
        for _ in 0..count {
            sponsors::add(&mut tx, chain, false, self.now).await?;
        }
        let all = sponsors::of_chain(&mut tx, chain).await?;
        self.end(tx).await?;
        Ok(all.iter().skip(there).map(|sponsor| sponsor.number).collect())
    }

    /// Asks for the treasury of the chain, which refills its sponsors; returns its number.
    ///
    /// # Errors
    /// When the chain has one.
    pub async fn add_treasury(&self, db: &Db, chain: Chain) -> Result<u32, SponsorError> {
        let mut tx = self.begin(db).await?;
        Cursor::lock(&mut tx, chain).await?;
        self.write_down(&mut tx, chain, "add_treasury", "").await?;
        let there = sponsors::of_chain(&mut tx, chain).await?;
        if let Some(treasury) = there.iter().find(|sponsor| sponsor.is_treasury) {
            return Err(SponsorError::HasTreasury { chain, number: treasury.number });
        }
        sponsors::add(&mut tx, chain, true, self.now).await?;
        let treasury = sponsors::of_chain(&mut tx, chain).await?.into_iter().find(|sponsor| sponsor.is_treasury);
        self.end(tx).await?;
        Ok(treasury.map_or(0, |treasury| treasury.number))
    }

    /// Moves a sponsor from a state to another.
    ///
    /// # Errors
    /// When there is no such sponsor, or it is in another state.
    pub async fn set_sponsor(
        &self,
        db: &Db,
        chain: Chain,
        number: u32,
        (from, to): (SponsorState, SponsorState),
    ) -> Result<(), SponsorError> {
        let mut tx = self.begin(db).await?;
        let all = sponsors::of_chain(&mut tx, chain).await?;
        let is_it = |sponsor: &&Sponsor| sponsor.number == number;
        let state = all.iter().find(is_it).ok_or(SponsorError::Unknown { chain, number })?.state;
        if state != from {
            return Err(SponsorError::Otherwise { chain, number, state, expected: from });
        }
        sponsors::set_state(&mut tx, chain, number, (from, to)).await?;
        if from == SponsorState::Quarantined {
            sponsors::restart(&mut tx, chain, number).await?;
            if let Some(address) = all.iter().find(is_it).and_then(|sponsor| sponsor.address) {
                incidents::resolve_of(&mut tx, (IncidentKind::ForeignSpend, &address), self.reason, self.now).await?;
            }
        }
        self.write_down(&mut tx, chain, "set_sponsor", &format!("{number} {}", to.name())).await?;
        Ok(self.end(tx).await?)
    }

    /// Has a sponsor sign nothing more until a person releases it.
    ///
    /// # Errors
    /// When there is no such sponsor, or it is quarantined.
    pub async fn quarantine_sponsor(&self, db: &Db, chain: Chain, number: u32) -> Result<(), SponsorError> {
        let all = sponsors::of_chain(&mut db.read().await?, chain).await?;
        let state = all.iter().find(|sponsor| sponsor.number == number).map(|sponsor| sponsor.state);
        let from = match state.ok_or(SponsorError::Unknown { chain, number })? {
            SponsorState::Quarantined => SponsorState::Active,
            state => state,
        };
        self.set_sponsor(db, chain, number, (from, SponsorState::Quarantined)).await
    }

    /// Lets the quarantined wallets of an account sign again; returns them.
    ///
    /// # Errors
    /// See [`DecideError`].
    pub async fn release_wallets(&self, db: &Db, account_id: &str) -> Result<Vec<Address>, DecideError> {
        let mut tx = self.begin(db).await?;
        let quarantined = wallets::quarantined_of(&mut tx, account_id).await?;
        if quarantined.is_empty() {
            return Ok(quarantined);
        }
        wallets::release(&mut tx, account_id).await?;
        for address in &quarantined {
            incidents::resolve_of(&mut tx, (IncidentKind::ForeignSpend, address), self.reason, self.now).await?;
        }
        let each = quarantined.iter().map(Address::to_string).collect::<Vec<_>>().join(" ");
        self.record(&mut tx, "release_wallets", &format!("{account_id} {each}")).await?;
        self.end(tx).await?;
        Ok(quarantined)
    }
}
