//! Refills: what the treasury of a chain gives sponsors that own less than the floor.
//!
//! A treasury is a sponsor that carries nothing else. What it gives is planned here, and carried like all else (`plan`, `carry`).
//! Promises:
//! - One refill of a chain is open at a time, until a final block shows its nonce used.
//! - A nonce of the treasury has one content, on record before it is signed, and in the signer's journal with it. To raise the
//!   fees changes nothing of it. What a journal has that this store has not is put on record, and carried on (`compare`).
//! - Where both are lost, the treasury's next nonce follows the chain. Then a sponsor of ours may be refilled once more.

use std::cmp::Ordering;

use landfall_chain::{BlockRef, PayingChain, U256};
use tracing::{info, warn};

use crate::sender::open::Open;
use crate::sender::sponsors::Ready;
use crate::sender::{Resting, SendError, Sender, gas};
use crate::store::cursors::Cursor;
use crate::store::refills::{self, RefillState, Refilling};
use crate::store::sponsors::{self, Sponsor};
use crate::store::{attempts, halts};
use crate::time::{Clock, Timestamp};
use crate::transfer::{SponsorState, TransferId};

/// What a treasury does next.
enum Next {
    /// It gives something with this nonce.
    Give(u64),
    /// It carries again what it gave with this nonce.
    Again(u64),
    Wait,
}

impl<C: PayingChain> Sender<C> {
    /// Ends refills whose nonce is used, and plans the next one where the signer `may_sign`; returns whether it did.
    pub(super) async fn refill(&mut self, open: &Open, may_sign: bool, clock: &Clock) -> Result<bool, SendError> {
        self.end_refills(open, clock.now()).await?;
        // What was reported while nothing could be signed is too old later.
        let is_new = std::mem::take(&mut self.owned_is_new);
        if !may_sign || !is_new || halts::is_halted(&mut self.db.read().await?, self.network.chain).await? {
            return Ok(false);
        }
        self.plan_refill(clock.now()).await
    }

    /// One of which final blocks show an attempt ends with its cost (`gas`). Of the others it is asked, by as many endpoints as
    /// must agree, whether their nonce is used: a copy of this store, or one that is lost, may have had it.
    async fn end_refills(&mut self, open: &Open, now: Timestamp) -> Result<(), SendError> {
        let chain = self.network.chain;
        let Some((finalized, _)) = open.finalized.filter(|_| !open.refills.is_empty()) else { return Ok(()) };
        if open.refills.iter().all(|refill| self.rests(Resting::Refill(refill.id), now)) {
            return Ok(());
        }
        let sponsors = self.ready_sponsors(now).await?;
        let mut passed = Vec::new();
        for refill in &open.refills {
            let landed = sponsors.get(&refill.treasury).map_or(0, |(ready, _)| ready.landed);
            let rest = Resting::Refill(refill.id);
            if refill.nonce >= landed || self.rests(rest, now) {
                continue;
            }
            self.rest(rest, now);
            if refill.nonce < self.chain.nonce_at(&refill.treasury, Some(&finalized)).await? {
                passed.push(refill.id);
            }
        }
        if passed.is_empty() {
            return Ok(());
        }
        let mut tx = self.begin(now).await?;
        // None is disconnected, and none becomes final, before the end of the transaction.
        let finalized = Cursor::lock(&mut tx, chain).await?.finalized;
        // First what landed: that is no other's.
        gas::book(&mut tx, &self.network, finalized.map(|at| at.number), now).await?;
        for id in passed {
            refills::passed(&mut tx, id).await?;
        }
        Ok(self.commit(tx, now).await?)
    }

    /// Records what the poorest sponsor below the floor is given, by what was reported of all of them in this tick.
    async fn plan_refill(&mut self, now: Timestamp) -> Result<bool, SendError> {
        let chain = self.network.chain;
        let refill_to = U256::from(self.network.sending.refill_to);
        let floor = U256::from(self.network.sending.floor);
        let mut reader = self.db.read().await?;
        let known = sponsors::of_chain(&mut reader, chain).await?;
        let is_open = !refills::open(&mut reader, chain).await?.is_empty();
        let finalized = Cursor::load(&mut reader, chain).await?.finalized;
        drop(reader);
        let active = known.iter().filter(|of| of.state == SponsorState::Active);
        let owning = active.filter_map(|of| Some((of, *self.owned.get(&of.address?)?)));
        let Some((treasury, has)) = owning.clone().find(|(of, _)| of.is_treasury) else { return Ok(false) };
        let poor = owning.filter(|(of, owned)| !of.is_treasury && *owned < floor);
        let Some((sponsor, owned)) = poor.min_by_key(|(_, owned)| *owned).filter(|_| !is_open) else {
            return Ok(false);
        };
        let amount = refill_to.saturating_sub(owned);
        let first_cost = U256::from(self.network.sending.first_cost);
        if has < amount.saturating_add(first_cost) {
            let Sponsor { number, .. } = sponsor;
            warn!(%chain, "sponsor {number} on {chain} is not refilled: the treasury owns too little; fund it");
            return Ok(false);
        }
        let all = self.ready_sponsors(now).await?;
        let ready_of = |of: &Sponsor| of.address.and_then(|address| all.get(&address).map(|(ready, _)| *ready));
        let (Some(ready), Some(poor), Some(finalized)) = (ready_of(treasury), ready_of(sponsor), finalized) else {
            return Ok(false);
        };
        let recipient = poor.address;
        let last = attempts::last_nonce(&mut self.db.read().await?, chain, &recipient).await?;
        if poor.landed > poor.end(last) {
            // Somebody else may spend what it is given.
            self.keys.suspect();
            return Ok(false);
        }
        let last = attempts::last_nonce(&mut self.db.read().await?, chain, &ready.address).await?;
        let nonce = match self.next_refill(&ready, last, &finalized).await? {
            Next::Give(nonce) => nonce,
            Next::Again(nonce) => {
                let mut tx = self.begin_sending(now).await?;
                refills::reopen(&mut tx, chain, (&ready.address, nonce)).await?;
                self.commit(tx, now).await?;
                return Ok(true);
            }
            Next::Wait => return Ok(false),
        };
        let refill = Refilling {
            treasury: ready.address,
            nonce,
            id: TransferId::of_refill(&self.network.chain_ref, &ready.address, nonce),
            number: sponsor.number,
            recipient,
            amount,
            recorded_at: now,
            state: RefillState::Open,
            tx: None,
            attempts: Vec::new(),
        };
        let mut tx = self.begin_sending(now).await?;
        refills::record(&mut tx, chain, &refill).await?;
        self.commit(tx, now).await?;
        info!(%chain, "sponsor {} on {chain} is refilled with {amount} by the treasury, nonce {nonce}", sponsor.number);
        Ok(true)
    }

    /// Which nonce of the treasury comes next while nothing is open, `last` being the last one of our attempts.
    async fn next_refill(&mut self, ready: &Ready, last: Option<u64>, finalized: &BlockRef) -> Result<Next, SendError> {
        let (end, landed) = (ready.end(last), ready.landed);
        match landed.cmp(&end) {
            Ordering::Equal => Ok(Next::Give(end)),
            Ordering::Greater => {
                // What one endpoint reports of its newest block is no evidence.
                self.keys.suspect();
                Ok(Next::Wait)
            }
            // The endpoint is behind; or final blocks were given up.
            Ordering::Less => {
                let is_given_up = self.chain.nonce_at(&ready.address, Some(finalized)).await? == landed;
                Ok(if is_given_up { Next::Again(landed) } else { Next::Wait })
            }
        }
    }
}
