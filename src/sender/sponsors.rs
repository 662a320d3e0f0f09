//! Which sponsor carries what, and with which nonce.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use landfall_chain::{Address, KeyPath, PayingChain};
use tracing::{error, info};

use crate::sender::{Resting, SendError, Sender};
use crate::store::cursors::Cursor;
use crate::store::sponsors::{self, Sponsor};
use crate::store::{StoreError, Tx, accounts, attempts};
use crate::time::Timestamp;
use crate::transfer::SponsorState;

/// For how long an answer about a sponsor's nonce is good enough.
const LANDED_FOR: Duration = Duration::from_secs(1);

/// The sponsors of a chain by address.
pub(super) type Sponsors = BTreeMap<Address, (Ready, SponsorState)>;
/// Nonces with which something that waits may still land, and those that blocks show.
pub(super) type Held = BTreeSet<(Address, u64)>;

/// A sponsor that may carry something, and how far the chain has come with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ready {
    pub(super) number: u32,
    pub(super) address: Address,
    /// The first nonce that is ours.
    first_nonce: u64,
    /// The nonce behind the highest one that only the signer's journal knows.
    journal_nonce: u64,
    /// How many of its transactions the newest block shows, as an endpoint reports it.
    pub(super) landed: u64,
    /// The same at the newest final block, as so many endpoints report as must agree. Asked for only where `landed` is more
    /// than we sent.
    landed_final: u64,
}

impl<C: PayingChain> Sender<C> {
    /// Gives sponsors that were asked for their addresses, and records which nonce of each is the first of ours.
    pub(super) async fn derive_sponsors(&mut self, now: Timestamp) -> Result<(), SendError> {
        let chain = self.network.chain;
        let mut reader = self.db.read().await?;
        let known = sponsors::of_chain(&mut reader, chain).await?;
        let finalized = Cursor::load(&mut reader, chain).await?.finalized;
        drop(reader);
        let new: Vec<&Sponsor> = known.iter().filter(|sponsor| sponsor.first_nonce.is_none()).collect();
        if new.is_empty() {
            return Ok(());
        }
        let path = |sponsor: &&Sponsor| self.sponsor_path(sponsor.number);
        let paths: Vec<KeyPath> = new.iter().map(path).collect();
        let addresses = self.signer.addresses(&paths).await?;
        let mut derived = Vec::new();
        for (sponsor, address) in new.iter().zip(addresses) {
            derived.push((sponsor.number, address, self.chain.nonce_at(&address, finalized.as_ref()).await?));
        }
        let mut tx = self.begin(now).await?;
        // What they pay is seen in every block that is connected from here on.
        let mut seq = Cursor::lock(&mut tx, chain).await?.watch_seq;
        for (number, address, nonce) in derived {
            if let Some(owner) = accounts::owner(&mut tx, chain, &address).await? {
                error!(%chain, "{address} on {chain} cannot be sponsor {number}: it is an address of account {owner}");
                continue;
            }
            seq += u64::from(sponsors::derived(&mut tx, chain, number, &address, seq + 1).await?);
            sponsors::taken_up(&mut tx, chain, number, nonce).await?;
            info!(%chain, "sponsor {number} on {chain} is {address}; it pays as soon as it is funded");
        }
        Cursor::set_watch_seq(&mut tx, chain, seq).await?;
        Ok(self.commit(tx, now).await?)
    }

    pub(super) fn sponsor_path(&self, number: u32) -> KeyPath {
        KeyPath::of_sponsor(self.network.chain.family(), &self.network.chain_ref, number)
    }

    /// The sponsors of the chain by address, and how far the chain has come with each.
    pub(super) async fn ready_sponsors(&mut self, now: Timestamp) -> Result<Sponsors, SendError> {
        let chain = self.network.chain;
        let mut reader = self.db.read().await?;
        let known = sponsors::of_chain(&mut reader, chain).await?;
        let finalized = Cursor::load(&mut reader, chain).await?.finalized;
        drop(reader);
        let mut ready = BTreeMap::new();
        for Sponsor { number, address, state, first_nonce, journal_nonce, .. } in known {
            if let Some((address, first_nonce)) = address.zip(first_nonce) {
                let landed = match self.landed.get(&address) {
                    Some((landed, at)) if *at <= now && now.since(*at) < LANDED_FOR => *landed,
                    _ => {
                        let landed = self.chain.nonce_at(&address, None).await?;
                        self.landed.insert(address, (landed, now));
                        landed
                    }
                };
                let last = attempts::last_nonce(&mut self.db.read().await?, chain, &address).await?;
                let landed_final = match finalized.filter(|_| landed > after(last, first_nonce).max(journal_nonce)) {
                    Some(at) => self.chain.nonce_at(&address, Some(&at)).await?,
                    None => 0,
                };
                ready.insert(
                    address,
                    (Ready { number, address, first_nonce, journal_nonce, landed, landed_final }, state),
                );
            }
        }
        Ok(ready)
    }

    /// The sponsor with the fewest transactions under way, and its next nonce; `None` while none may carry more. Holds
    /// the turn in `tx`, so no other process gives a nonce. A nonce that nobody holds comes first: those behind it wait
    /// for it.
    pub(super) async fn next_nonce(
        &self,
        tx: &mut Tx,
        sponsors: &mut Sponsors,
        held: &Held,
        now: Timestamp,
    ) -> Result<Option<(Address, u64)>, StoreError> {
        let chain = self.network.chain;
        let mut best: Option<(u64, Address, u64)> = None;
        for (ready, state) in sponsors.values_mut() {
            if *state != SponsorState::Active || self.rests(Resting::Sponsor(ready.address), now) {
                continue;
            }
            let (number, address) = (ready.number, ready.address);
            let last = attempts::last_nonce(tx, chain, &address).await?;
            // What a store that is lost gave stays a gap until somebody lands there.
            let end = after(last, ready.first_nonce).max(ready.journal_nonce);
            if ready.landed > end {
                // What one endpoint reports of its newest block decides nothing for long.
                if ready.landed_final <= end {
                    continue;
                }
                error!(
                    %chain,
                    "sponsor {number} ({address}) on {chain} has sent {} transactions, and {end} are on record: somebody else \
                     uses its key, or the store is an old copy; it carries nothing more",
                    ready.landed_final
                );
                let quarantined = (SponsorState::Active, SponsorState::Quarantined);
                sponsors::set_state(tx, chain, number, quarantined).await?;
                *state = SponsorState::Quarantined;
                continue;
            }
            let (under_way, nonce) = match ready.gap(end, held) {
                Some(gap) => (0, gap),
                None => (1 + end - ready.landed, end),
            };
            if under_way <= self.network.sending.in_flight && best.is_none_or(|(fewest, ..)| under_way < fewest) {
                best = Some((under_way, address, nonce));
            }
        }
        Ok(best.map(|(_, address, nonce)| (address, nonce)))
    }
}

/// The nonce behind the last that was given.
fn after(last: Option<u64>, first_nonce: u64) -> u64 {
    last.map_or(first_nonce, |last| first_nonce.max(last + 1))
}

impl Ready {
    /// The lowest nonce below `end` that has not landed and that nobody holds.
    pub(super) fn gap(&self, end: u64, held: &Held) -> Option<u64> {
        (self.landed.max(self.first_nonce)..end).find(|nonce| !held.contains(&(self.address, *nonce)))
    }
}
