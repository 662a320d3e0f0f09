//! Chooses the sponsor that carries a load, and its nonce. Also checks whether somebody else uses a sponsor's key.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::future::{join, join_all};
use landfall_chain::{Address, BlockRef, KeyPath, PayingChain, SourceError, U256};
use tracing::{error, info, warn};

use crate::sender::books::Readings;
use crate::sender::report::ASKED_TIME_MAX;
use crate::sender::{Resting, SendError, Sender};
use crate::store::cursors::Cursor;
use crate::store::sponsors::{self, Sponsor};
use crate::store::{Connection, StoreError, Tx, accounts, attempts, recoveries};
use crate::time::{Clock, Timestamp};
use crate::transfer::SponsorState;

/// For how long an answer about a sponsor's nonce is good enough.
const LANDED_FOR: Duration = Duration::from_secs(1);
/// How often it is checked whether somebody else uses a sponsor's key; and where an endpoint says so, or none answers.
pub(super) const CHECK_EVERY: Duration = Duration::from_secs(3_600);
const SUSPECT_EVERY: Duration = Duration::from_secs(10);

/// The sponsors of a chain by address.
pub(super) type Sponsors = BTreeMap<Address, (Ready, SponsorState)>;
/// Nonces with which something that waits may still land, and those that blocks show.
pub(super) type Held = BTreeSet<(Address, u64)>;
/// The last nonce that was given of each sponsor; `None` where none was.
pub(super) type LastNonces = BTreeMap<Address, Option<u64>>;

/// A sponsor that may carry something, and how far the chain has come with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ready {
    pub(super) number: u32,
    /// It carries nothing but refills.
    pub(super) is_treasury: bool,
    pub(super) address: Address,
    /// The first nonce that is ours.
    first_nonce: u64,
    /// The nonce behind the highest one that only the signer's journal knows.
    journal_nonce: u64,
    /// How many of its transactions the newest block shows, as an endpoint reports it.
    pub(super) landed: u64,
}

/// When it was last checked whether somebody else uses a sponsor's key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Keys {
    checked_at: Option<Timestamp>,
    is_suspected: bool,
}

/// A sponsor whose key somebody else uses.
struct Strange {
    sponsor: Sponsor,
    address: Address,
    what: String,
    /// How many transactions it has sent, where they are more than ours.
    sent: Option<u64>,
}

impl Keys {
    /// They are checked soon.
    pub(super) fn suspect(&mut self) {
        self.is_suspected = true;
    }

    fn are_due(&self, now: Timestamp) -> bool {
        let pause = if self.is_suspected { SUSPECT_EVERY } else { CHECK_EVERY };
        self.checked_at.is_none_or(|at| now < at || now.since(at) >= pause)
    }
}

impl<C: PayingChain> Sender<C> {
    /// Compares with a final block, at the start and every hour, how many transactions each sponsor has sent, and that none
    /// has code. What is below our record is sent again by `carry`; what is above it nobody here signed.
    pub(super) async fn check_keys(&mut self, recovers: bool, clock: &Clock) -> Result<(), SendError> {
        let (chain, now) = (self.network.chain, clock.now());
        // What lands until it has recovered is the lost store's.
        self.keys.is_suspected |= recovers;
        if !self.keys.are_due(now) {
            return Ok(());
        }
        let mut reader = self.db.read().await?;
        let known = sponsors::of_chain(&mut reader, chain).await?;
        let finalized = Cursor::load(&mut reader, chain).await?.finalized;
        drop(reader);
        let Some(at) = finalized else { return Ok(()) };
        let asked =
            known.iter().filter(|of| of.first_nonce.is_some()).filter_map(|of| of.address).map(async |address| {
                let answers =
                    async { join(self.chain.nonce_at(&address, Some(&at)), self.chain.has_code(&address, &at)).await };
                let late = |_| (Err(SourceError::transient("nobody answers in time")), Ok(false));
                let (nonce, has_code) = tokio::time::timeout(ASKED_TIME_MAX, answers).await.unwrap_or_else(late);
                (address, nonce.and_then(|nonce| Ok((nonce, has_code?))))
            });
        let answers = join_all(asked).await;
        self.keys = Keys { checked_at: Some(now), is_suspected: answers.iter().any(|(_, answer)| answer.is_err()) };
        let mut reported = BTreeMap::new();
        for (address, answer) in answers {
            match answer {
                Ok(answer) => drop(reported.insert(address, answer)),
                Err(error) => warn!(%chain, "whether somebody else uses sponsor {address} is not known: {error}"),
            }
        }
        if self.strange(&mut self.db.read().await?, &reported, &at).await?.is_empty() {
            return Ok(());
        }
        // Another store may have asked the same signer since.
        self.journal.forget_time();
        self.compare(clock).await?;
        if !self.journal.is_compared() {
            self.keys.suspect();
            return Ok(());
        }
        let now = clock.now();
        let mut tx = self.begin(now).await?;
        let recovers = recoveries::of_chain(&mut tx, chain).await?.is_some();
        for Strange { sponsor, address, what, sent } in self.strange(&mut tx, &reported, &at).await? {
            match sent.filter(|_| recovers) {
                // The store that was set back may have signed them.
                Some(sent) => sponsors::journaled(&mut tx, chain, &address, sent - 1).await?,
                None if recovers => {}
                None => self.quarantine_sponsor(&mut tx, &sponsor, (&what, at.number), now).await?,
            }
        }
        Ok(self.commit(tx, now).await?)
    }

    /// The sponsors whose keys somebody else uses, by what is reported of the final block `at`.
    async fn strange(
        &self,
        connection: &mut impl Connection,
        reported: &BTreeMap<Address, (u64, bool)>,
        at: &BlockRef,
    ) -> Result<Vec<Strange>, StoreError> {
        let chain = self.network.chain;
        let mut strange = Vec::new();
        for sponsor in sponsors::of_chain(connection, chain).await? {
            let Sponsor { number, address, state, first_nonce, journal_nonce, .. } = sponsor;
            let Some((address, first_nonce)) = address.zip(first_nonce) else { continue };
            let Some((sent, has_code)) = reported.get(&address).filter(|_| state != SponsorState::Quarantined) else {
                continue;
            };
            let last = attempts::last_nonce(connection, chain, &address).await?;
            let ours = after(last, first_nonce).max(journal_nonce);
            let who = format!("sponsor {number} ({address}) on {chain}");
            if *sent > ours {
                let what = format!(
                    "{who} has sent {sent} transactions up to block {at}, and nobody here signed one with nonce {ours}"
                );
                strange.push(Strange { sponsor, address, what, sent: Some(*sent) });
            } else if *has_code {
                let what = format!("{who} has code in block {at}, so that nodes take one transaction at a time");
                strange.push(Strange { sponsor, address, what, sent: None });
            }
        }
        Ok(strange)
    }

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
        let path = |sponsor: &&Sponsor| self.path_of(sponsor.is_treasury, sponsor.number);
        let paths: Vec<KeyPath> = new.iter().map(path).collect();
        let addresses = self.signer.addresses(&paths).await?;
        let mut derived = Vec::new();
        for (sponsor, address) in new.iter().zip(addresses) {
            derived.push((sponsor.number, address, self.chain.nonce_at(&address, finalized.as_ref()).await?));
        }
        let mut tx = self.begin(now).await?;
        // What they pay is seen in every block that is connected from here on.
        let Cursor { at, watch_seq: mut seq, .. } = Cursor::lock(&mut tx, chain).await?;
        let seen_from = at.map_or(0, |at| at.number + 1);
        for (number, address, nonce) in derived {
            if let Some(owner) = accounts::owner(&mut tx, chain, &address).await? {
                error!(%chain, "{address} on {chain} cannot be sponsor {number}: it is an address of account {owner}");
                continue;
            }
            let derived = sponsors::derived(&mut tx, chain, (number, &address), (seq + 1, seen_from)).await?;
            seq += u64::from(derived);
            sponsors::taken_up(&mut tx, chain, number, nonce).await?;
            info!(%chain, "sponsor {number} on {chain} is {address}; it pays as soon as it is funded");
        }
        Cursor::set_watch_seq(&mut tx, chain, seq).await?;
        self.commit(tx, now).await?;
        (self.keys, self.readings) = (Keys::default(), Readings::default());
        Ok(())
    }

    pub(super) fn sponsor_path(&self, number: u32) -> KeyPath {
        KeyPath::of_sponsor(self.network.chain.family(), &self.network.chain_ref, number)
    }

    pub(super) fn path_of(&self, is_treasury: bool, number: u32) -> KeyPath {
        if is_treasury {
            return KeyPath::of_treasury(self.network.chain.family(), &self.network.chain_ref);
        }
        self.sponsor_path(number)
    }

    /// The sponsors of the chain by address, and how far the chain has come with each.
    pub(super) async fn ready_sponsors(&mut self, now: Timestamp) -> Result<Sponsors, SendError> {
        let chain = self.network.chain;
        let mut reader = self.db.read().await?;
        let known = sponsors::of_chain(&mut reader, chain).await?;
        drop(reader);
        let is_known = |address: &Address| {
            self.landed.get(address).is_some_and(|(_, at)| *at <= now && now.since(*at) < LANDED_FOR)
        };
        let addresses = known.iter().filter(|of| of.first_nonce.is_some()).filter_map(|of| of.address);
        let asked = addresses.filter(|address| !is_known(address));
        let asked = asked.map(async |address| Ok((address, self.chain.nonce_at(&address, None).await?)));
        for answer in join_all(asked).await {
            let (address, landed) = answer.map_err(|error: SourceError| error)?;
            self.landed.insert(address, (landed, now));
        }
        let mut ready = BTreeMap::new();
        for Sponsor { number, is_treasury, address, state, first_nonce, journal_nonce, .. } in known {
            let Some((address, first_nonce)) = address.zip(first_nonce) else { continue };
            let Some((landed, _)) = self.landed.get(&address) else { continue };
            let of = Ready { number, is_treasury, address, first_nonce, journal_nonce, landed: *landed };
            ready.insert(address, (of, state));
        }
        Ok(ready)
    }

    /// The last nonce that was given of each sponsor.
    pub(super) async fn last_nonces(&self, tx: &mut Tx, sponsors: &Sponsors) -> Result<LastNonces, StoreError> {
        let mut last = LastNonces::new();
        for address in sponsors.keys() {
            last.insert(*address, attempts::last_nonce(tx, self.network.chain, address).await?);
        }
        Ok(last)
    }

    /// The sponsor that owns `cost` and has the fewest transactions under way, and its next nonce; `None` while none may
    /// carry more. The caller holds the turn, so no other process gives a nonce. A nonce that nobody holds comes first: those
    /// behind it wait for it.
    pub(super) fn next_nonce(
        &mut self,
        sponsors: &Sponsors,
        last: &LastNonces,
        held: &Held,
        (cost, now): (U256, Timestamp),
    ) -> Option<(Address, u64)> {
        let mut best: Option<(u64, Address, u64)> = None;
        for (ready, state) in sponsors.values().filter(|(ready, _)| !ready.is_treasury) {
            let is_resting = self.rests(Resting::Sponsor(ready.address), now);
            if *state != SponsorState::Active || is_resting || !self.owns(&ready.address, cost) {
                continue;
            }
            let address = ready.address;
            // What a store that is lost gave stays a gap until somebody lands there.
            let end = ready.end(last.get(&address).copied().flatten());
            if ready.landed > end {
                // What one endpoint reports of its newest block is no evidence.
                self.keys.suspect();
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
        best.map(|(_, address, nonce)| (address, nonce))
    }
}

/// The nonce behind the last that was given.
fn after(last: Option<u64>, first_nonce: u64) -> u64 {
    last.map_or(first_nonce, |last| first_nonce.max(last + 1))
}

impl Ready {
    /// The nonce behind all that were given, where `last` is the last one of our attempts.
    pub(super) fn end(&self, last: Option<u64>) -> u64 {
        after(last, self.first_nonce).max(self.journal_nonce)
    }

    /// The lowest nonce below `end` that has not landed and that nobody holds.
    pub(super) fn gap(&self, end: u64, held: &Held) -> Option<u64> {
        (self.landed.max(self.first_nonce)..end).find(|nonce| !held.contains(&(self.address, *nonce)))
    }
}
