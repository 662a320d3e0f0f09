//! Refills: what the treasury of a chain gives sponsors that own less than the floor.
//!
//! A treasury is a sponsor that carries nothing else. What it gives is planned here, and carried like all else (`plan`, `carry`;
//! `guarded` where transactions have no nonces). There a refill has a number in the place of a nonce, and the number a guard,
//! which is never taken back: it is used once that stands.
//! Promises:
//! - One refill of a chain is open at a time, until a final block shows its nonce used.
//! - A nonce of the treasury has one content, on record before it is signed, and in the signer's journal with it. To raise the
//!   fees changes nothing of it. What a journal has that this store has not is put on record, and carried on (`compare`).
//! - Where both are lost, the treasury's next nonce follows the chain. Then a sponsor of ours may be refilled once more.
//! - A guard of a later number is made only where a final block shows that of the number before.

use std::cmp::Ordering;

use landfall_chain::{Address, BlockRef, PayingChain, Refill, U256};
use tracing::{info, warn};

use crate::sender::open::Open;
use crate::sender::reclaim::makes_guards;
use crate::sender::sponsors::Ready;
use crate::sender::{Resting, SendError, Sender, WALLET_PAUSE, gas};
use crate::store::cursors::Cursor;
use crate::store::refills::{self, RefillState, Refilling};
use crate::store::sponsors::{self, Sponsor};
use crate::store::{attempts, halts};
use crate::time::{Clock, Timestamp};
use crate::transfer::{SponsorState, TransferId};

/// How many guards that stand and are not on record are passed over at a time. They are those of a store and a journal that
/// are lost, and those that somebody else made by sending lamports there.
const PASSED_OVER_MAX: u64 = 32;

/// What a treasury does next.
enum Next {
    /// It gives something with this nonce.
    Give(u64),
    /// It carries again what it gave with this nonce.
    Again(u64),
    /// All nonces below this one are used, and it is asked for more of them.
    PassOver(u64),
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
        if open.refills.iter().all(|refill| self.rests(Resting::RefillEnd(refill.id), now)) {
            return Ok(());
        }
        let sponsors = self.ready_sponsors(now).await?;
        let mut passed = Vec::new();
        for refill in &open.refills {
            let landed = sponsors.get(&refill.treasury).map_or(0, |(ready, _)| ready.landed);
            let rest = Resting::RefillEnd(refill.id);
            let may_be_used = if makes_guards(&self.network) {
                // What was sent since has shown itself by then.
                now.since(refill.recorded_at) >= WALLET_PAUSE
            } else {
                refill.nonce < landed
            };
            if !may_be_used || self.rests(rest, now) {
                continue;
            }
            self.rest(rest, now);
            if self.is_nonce_used(&refill.treasury, refill.nonce, &finalized).await? {
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

    /// Whether this nonce of the treasury is used after the final block `at`, by as many endpoints as must agree.
    async fn is_nonce_used(&self, treasury: &Address, nonce: u64, at: &BlockRef) -> Result<bool, SendError> {
        if !makes_guards(&self.network) {
            return Ok(nonce < self.chain.nonce_at(treasury, Some(at)).await?);
        }
        // The guard follows from the nonce, whatever is given.
        let (chain_ref, recipient) = (self.network.chain_ref.clone(), *treasury);
        let refill = Refill { chain_ref, number: 0, recipient, amount: U256::ZERO };
        Ok(self.chain.is_used(&refill.intent(treasury, nonce), at).await?)
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
        let end = ready.end(last);
        let nonce = match self.next_refill(&ready, end, &finalized).await? {
            Next::Give(nonce) => nonce,
            Next::PassOver(next) => {
                let mut tx = self.begin_sending(now).await?;
                sponsors::journaled(&mut tx, chain, &ready.address, next - 1).await?;
                self.commit(tx, now).await?;
                self.owned_is_new = true;
                return Ok(false);
            }
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
        if nonce > end {
            sponsors::journaled(&mut tx, chain, &ready.address, nonce - 1).await?;
        }
        refills::record(&mut tx, chain, &refill).await?;
        self.commit(tx, now).await?;
        info!(%chain, "sponsor {} on {chain} is refilled with {amount} by the treasury, nonce {nonce}", sponsor.number);
        Ok(true)
    }

    /// Which nonce of the treasury comes next while nothing is open, `end` being the one behind all that are known.
    async fn next_refill(&mut self, ready: &Ready, end: u64, finalized: &BlockRef) -> Result<Next, SendError> {
        if makes_guards(&self.network) {
            return self.next_guarded(&ready.address, end, finalized).await;
        }
        let landed = ready.landed;
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

    async fn next_guarded(&self, treasury: &Address, end: u64, finalized: &BlockRef) -> Result<Next, SendError> {
        if let Some(last) = end.checked_sub(1)
            && !self.is_nonce_used(treasury, last, finalized).await?
        {
            // Final blocks were given up.
            return Ok(Next::Again(last));
        }
        for nonce in end..end.saturating_add(PASSED_OVER_MAX) {
            if !self.is_nonce_used(treasury, nonce, finalized).await? {
                return Ok(Next::Give(nonce));
            }
        }
        Ok(Next::PassOver(end.saturating_add(PASSED_OVER_MAX)))
    }
}
