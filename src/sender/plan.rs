//! Which attempts are due, and with which nonce:
//! - the first of a transfer, and one behind an attempt that cannot pay any more;
//! - one with higher fees, at the same nonce;
//! - one at a nonce that nobody sends any more while others wait behind it.
//!
//! Promise: however many attempts there are, each carries the transfer's one intent. It decides nothing about transfers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::future::join_all;
use landfall_chain::{
    Address, Authorization, Carrier, FeeMarket, PayingChain, Quote, SIGN_REQUESTS_MAX, SignRequest,
    SignedAuthorization, SignedIntent,
};
use tracing::warn;

use crate::sender::fees::Offer;
use crate::sender::open::{Open, OpenTransfer, secs};
use crate::sender::sponsors::{Held, Ready, Sponsors};
use crate::sender::{Resting, SendError, Sender};
use crate::store::attempts::{self, Attempt};
use crate::store::authorizations;
use crate::time::{Clock, Timestamp};
use crate::transfer::{Obstacle, SponsorState, State, TransferId};

/// How many attempts one nonce may have before its fees are not raised any more.
const ATTEMPTS_MAX: u32 = 10;
/// Behind an attempt that landed without paying, another one is made only after so long: our own blocks may be behind
/// the endpoint that reported it.
const LANDED_PAUSE: Duration = Duration::from_secs(30);

/// An attempt, with what its transaction is made of.
pub(super) struct Planned {
    pub(super) attempt: Attempt,
    pub(super) request: SignRequest,
}

/// What carrying a transfer takes.
struct Quoted<'o> {
    of: &'o OpenTransfer,
    due: Due,
    gas_limit: u64,
    /// What its carrier brings beside.
    beside: Option<SignedAuthorization>,
}

/// Why a transfer needs an attempt.
#[derive(Clone, Copy)]
enum Due {
    /// Nothing that was made can pay any more, or nothing was made.
    Anew,
    /// Its offer at this nonce is too low.
    Raise(Address, u64),
    /// Nobody sends this nonce, and others wait behind it.
    Fill(Address, u64),
}

/// What waits, and with which nonces.
struct Waiting<'o> {
    sponsors: &'o Sponsors,
    /// Of each nonce the last attempt, and whose it is.
    newest: BTreeMap<(Address, u64), (u32, TransferId)>,
    /// Attempts that carry what was signed last.
    current: BTreeSet<(Address, u64, u32)>,
    held: Held,
    raise_after: Duration,
    now: Timestamp,
}

impl<C: PayingChain> Sender<C> {
    /// Records the attempts that are due; what was recorded and not signed before comes first, as it stands.
    pub(super) async fn plan(
        &mut self,
        open: &Open,
        carried: &[&OpenTransfer],
        sponsors: &mut Sponsors,
        clock: &Clock,
    ) -> Result<Vec<Planned>, SendError> {
        let now = clock.now();
        let mut planned: Vec<Planned> = Vec::new();
        for of in carried {
            for attempt in of.attempts.iter().filter(|attempt| attempt.signed.is_none() && of.is_current(attempt)) {
                let beside = self.brought(of, attempt).await?;
                planned.extend(self.planned(of, attempt.clone(), beside, sponsors));
            }
        }
        let raise_after = Duration::from_millis(self.network.block_time_ms * self.network.sending.raise_after_blocks);
        let waiting = Waiting::of(open, carried, sponsors, (raise_after, now));
        let room = SIGN_REQUESTS_MAX.saturating_sub(planned.len());
        let due: Vec<(&OpenTransfer, Due)> = self.due(carried, &waiting).into_iter().take(room).collect();
        if due.is_empty() {
            return Ok(planned);
        }
        let mut held = waiting.held;
        let market = self.chain.fee_market().await?;
        let quoted = self.quote(&due, sponsors, clock).await?;
        let mut tx = self.begin_sending(now).await?;
        for Quoted { of, due, gas_limit, beside } in quoted {
            let place = match due {
                Due::Anew => self.next_nonce(&mut tx, sponsors, &held, now).await?,
                Due::Raise(sponsor, nonce) => Some((sponsor, nonce)),
                Due::Fill(sponsor, nonce) => Some((sponsor, nonce)).filter(|place| !held.contains(place)),
            };
            let Some((place, signed)) = place.zip(of.signed()) else { continue };
            let newest = attempts::newest(&mut tx, self.network.chain, &place.0, place.1).await?;
            let is_raise = matches!(due, Due::Raise(..));
            let Some((nth, Offer { max_fee, tip })) = offer(newest, market, (self.network.sending.max_fee, is_raise))
            else {
                let (sponsor, nonce) = place;
                warn!(transfer = %of.transfer.id, "nonce {nonce} of {sponsor} waits: more than max_fee_gwei would have to be offered");
                self.rest(Resting::Transfer(of.transfer.id), now);
                continue;
            };
            held.insert(place);
            let attempt = Attempt {
                sponsor: place.0,
                nonce: place.1,
                nth,
                transfer_id: of.transfer.id,
                deadline_secs: signed.deadline_secs,
                gas_limit,
                max_fee,
                tip,
                guarding: None,
                authorization_nonce: beside.as_ref().map(|beside| beside.authorization.nonce),
                recorded_at: now,
                signed: None,
                resent_at: None,
                response: None,
            };
            attempts::record(&mut tx, self.network.chain, &attempt).await?;
            planned.extend(self.planned(of, attempt, beside, sponsors));
        }
        self.commit(tx, now).await?;
        Ok(planned)
    }

    /// The transfers that need an attempt, the oldest first; behind them those that fill what others left.
    fn due<'o>(&self, carried: &[&'o OpenTransfer], waiting: &Waiting<'_>) -> Vec<(&'o OpenTransfer, Due)> {
        let now = waiting.now;
        let may = |of: &OpenTransfer| !self.rests(Resting::Transfer(of.transfer.id), now);
        let is_resting = |sponsor: &Address| self.rests(Resting::Sponsor(*sponsor), now);
        let mut due: Vec<(&OpenTransfer, Due)> = Vec::new();
        for of in carried.iter().copied().filter(|of| may(of)) {
            if of.attempts.iter().all(|attempt| waiting.is_over(attempt) || is_resting(&attempt.sponsor)) {
                due.push((of, Due::Anew));
            } else if let Some(stuck) = of.attempts.iter().find(|it| waiting.is_stuck(it) && !is_resting(&it.sponsor)) {
                due.push((of, Due::Raise(stuck.sponsor, stuck.nonce)));
            }
        }
        for (ready, state) in waiting.sponsors.values() {
            let address = ready.address;
            let Some((_, last)) = waiting.held.range((address, 0)..=(address, u64::MAX)).next_back() else { continue };
            let Some(gap) = ready.gap(*last, &waiting.held) else { continue };
            // Who has the last nonce: so the fewest others have one behind it.
            let holds = |of: &&&OpenTransfer| {
                of.attempts.iter().any(|it| (it.sponsor, it.nonce) == (address, *last) && waiting.may_land(it))
            };
            if *state == SponsorState::Active
                && !is_resting(&address)
                && let Some(of) = carried.iter().find(holds).filter(|of| may(of))
            {
                due.push((of, Due::Fill(address, gap)));
            }
        }
        due
    }

    /// What it takes to carry each. A node's refusal is no evidence: it is asked again later, up to the deadline.
    async fn quote<'o>(
        &mut self,
        due: &[(&'o OpenTransfer, Due)],
        sponsors: &Sponsors,
        clock: &Clock,
    ) -> Result<Vec<Quoted<'o>>, SendError> {
        let now = clock.now();
        let is_active = |(ready, state): &&(Ready, SponsorState)| {
            *state == SponsorState::Active && !self.rests(Resting::Sponsor(ready.address), now)
        };
        let Some((sponsor, _)) = sponsors.values().find(is_active) else {
            warn!(chain = %self.network.chain, "{} transfers wait: no sponsor may carry them now", due.len());
            return Ok(Vec::new());
        };
        let waiting: Vec<&OpenTransfer> = due.iter().map(|(of, _)| *of).collect();
        let brought = self.authorize(&waiting, clock).await?;
        let asked = due.iter().map(async |(of, _)| match (self.signed_intent(of), brought.get(&of.transfer.id)) {
            (Some(intent), Some(beside)) => Some(self.chain.quote(&sponsor.address, &intent, beside.as_ref()).await),
            (None, _) | (_, None) => None,
        });
        let answers = join_all(asked).await;
        let answers = due.iter().zip(answers).filter_map(|(due, answer)| Some((due, due.0.transfer.id, answer?)));
        let answers: Vec<_> = answers.collect();
        let (mut quoted, mut obstructed) = (Vec::new(), Vec::new());
        for ((of, due), quote) in self.answered(answers, now)? {
            let id = of.transfer.id;
            match quote {
                Quote::Gas(gas_limit) => {
                    let beside = brought.get(&id).cloned().flatten();
                    quoted.push(Quoted { of, due: *due, gas_limit, beside });
                }
                Quote::Refused(said) => {
                    warn!(transfer = %id, "transfer {id} cannot be carried now and will be tried again: {said}");
                    obstructed.push((id, Obstacle::SimulationFailed, said));
                }
            }
        }
        self.obstruct(&obstructed, now).await?;
        Ok(quoted)
    }

    /// The authorization that an attempt brings, as it is on record.
    async fn brought(&self, of: &OpenTransfer, attempt: &Attempt) -> Result<Option<SignedAuthorization>, SendError> {
        let Some(nonce) = attempt.authorization_nonce else { return Ok(None) };
        let wallet = of.transfer.source;
        let recorded = authorizations::find(&mut self.db.read().await?, self.network.chain, &wallet, nonce).await?;
        let signed = recorded.and_then(|recorded| Some((recorded.implementation, recorded.signature?)));
        Ok(signed.map(|(implementation, signature)| {
            let chain_ref = self.network.chain_ref.clone();
            SignedAuthorization { authorization: Authorization { chain_ref, wallet, implementation, nonce }, signature }
        }))
    }

    /// An attempt with the request that signs it; `None` where its intent cannot be made any more, and where its sponsor
    /// signs nothing.
    fn planned(
        &self,
        of: &OpenTransfer,
        attempt: Attempt,
        beside: Option<SignedAuthorization>,
        sponsors: &Sponsors,
    ) -> Option<Planned> {
        let (ready, _) = sponsors.get(&attempt.sponsor).filter(|(_, state)| *state != SponsorState::Quarantined)?;
        let carrier = Carrier {
            sponsor: attempt.sponsor,
            carried: self.signed_intent(of)?,
            authorization: beside.map(Box::new),
            nonce: attempt.nonce,
            gas_limit: attempt.gas_limit,
            max_fee: attempt.max_fee,
            tip: attempt.tip,
        };
        let path = self.sponsor_path(ready.number);
        Some(Planned { attempt, request: SignRequest::Carrier { path, carrier } })
    }

    pub(super) fn signed_intent(&self, of: &OpenTransfer) -> Option<SignedIntent> {
        let signed = of.signed()?;
        let intent = self.intent(&of.transfer, signed.deadline_secs)?;
        Some(SignedIntent { intent, signature: signed.signature.clone()? })
    }
}

impl<'o> Waiting<'o> {
    fn of(
        open: &Open,
        carried: &[&OpenTransfer],
        sponsors: &'o Sponsors,
        (raise_after, now): (Duration, Timestamp),
    ) -> Self {
        let mut newest: BTreeMap<(Address, u64), (u32, TransferId)> = BTreeMap::new();
        for attempt in open.transfers.iter().flat_map(|of| &of.attempts).chain(&open.others) {
            let last = newest.entry((attempt.sponsor, attempt.nonce)).or_insert((attempt.nth, attempt.transfer_id));
            *last = (*last).max((attempt.nth, attempt.transfer_id));
        }
        let of_current =
            open.transfers.iter().flat_map(|of| of.attempts.iter().filter(|attempt| of.is_current(attempt)));
        let current = of_current.map(|attempt| (attempt.sponsor, attempt.nonce, attempt.nth)).collect();
        let mut waiting = Waiting { sponsors, newest, current, held: Held::new(), raise_after, now };
        let of_carried = carried.iter().flat_map(|of| &of.attempts).filter(|attempt| waiting.may_land(attempt));
        // What a block shows has landed, whatever an endpoint that is behind reports.
        let shown = open.transfers.iter().flat_map(|of| {
            let is_shown = |attempt: &&Attempt| {
                attempt.signed.as_ref().is_some_and(|(_, id)| of.marks.iter().any(|mark| mark.tx == *id))
            };
            of.attempts.iter().filter(is_shown)
        });
        let held =
            of_carried.chain(shown).chain(&open.others).map(|attempt| (attempt.sponsor, attempt.nonce)).collect();
        waiting.held = held;
        waiting
    }

    /// Whether it is the one at its nonce that is sent: no transfer of another took the nonce, it carries what was signed
    /// last, and its sponsor signs.
    fn may_land(&self, attempt: &Attempt) -> bool {
        let is_newest =
            self.newest.get(&(attempt.sponsor, attempt.nonce)).is_some_and(|(_, of)| *of == attempt.transfer_id);
        let is_current = self.current.contains(&(attempt.sponsor, attempt.nonce, attempt.nth));
        is_newest
            && is_current
            && self.sponsors.get(&attempt.sponsor).is_some_and(|(_, state)| *state != SponsorState::Quarantined)
    }

    /// Whether it will not pay: it is not sent any more, or its nonce landed and no block of ours shows the payment.
    fn is_over(&self, attempt: &Attempt) -> bool {
        let landed = self.sponsors.get(&attempt.sponsor).map_or(0, |(ready, _)| ready.landed);
        let has_landed =
            attempt.nonce < landed && self.now.since(attempt.resent_at.unwrap_or(attempt.recorded_at)) >= LANDED_PAUSE;
        has_landed || !self.may_land(attempt)
    }

    /// Whether its nonce is the next one of its sponsor and it has waited for too long: then its fees are raised.
    fn is_stuck(&self, attempt: &Attempt) -> bool {
        let is_next = self.sponsors.get(&attempt.sponsor).is_some_and(|(ready, _)| ready.landed == attempt.nonce);
        let is_last = self.newest.get(&(attempt.sponsor, attempt.nonce)) == Some(&(attempt.nth, attempt.transfer_id));
        let has_waited = self.now.since(attempt.recorded_at) >= self.raise_after;
        is_next
            && is_last
            && has_waited
            && attempt.signed.is_some()
            && attempt.nth + 1 < ATTEMPTS_MAX
            && self.may_land(attempt)
    }
}

/// Whether something may be sent for it: it is signed, neither paid nor cancelled, and its window is open by both clocks.
pub(super) fn may_be_carried(of: &OpenTransfer, head_time: Option<Timestamp>, now: Timestamp) -> bool {
    let waits = matches!(of.transfer.state, State::Accepted | State::Carried) && of.transfer.cancelled_at.is_none();
    let Some(signed) = of.signed().filter(|_| waits && of.marks.is_empty()) else { return false };
    let is_open = |at: Timestamp| secs(at) < signed.deadline_secs;
    is_open(now) && head_time.is_none_or(is_open)
}

/// The number of the next attempt at a nonce, and what it offers: enough to replace the one before, and no more than
/// `most`. Where that is too little to replace one that is sent, there is none; a nonce that nobody sends is offered `most`,
/// for nodes may have forgotten the one before.
fn offer(
    newest: Option<(u32, u128, u128)>,
    market: FeeMarket,
    (most, is_raise): (Option<u128>, bool),
) -> Option<(u32, Offer)> {
    let limit = most.unwrap_or(u128::MAX);
    let Some((nth, max_fee, tip)) = newest else { return Some((0, Offer::first(market).within(limit))) };
    let before = Offer { max_fee, tip };
    let offer = before.raised(market, most).or_else(|| (!is_raise).then(|| before.within(limit)))?;
    Some((nth + 1, offer))
}
