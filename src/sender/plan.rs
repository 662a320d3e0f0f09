//! Plans which attempts are due, and with which nonce:
//! - the first attempt of a load, or one after an attempt that cannot pay any more;
//! - one with higher fees, at the same nonce;
//! - one at a nonce that nobody sends any more while later ones wait for it.
//!
//! Promises: every attempt of a transfer carries its one intent, its cancellation, or clearings. A refill has a nonce of
//! its own, and no attempt with another one. Nothing about transfers is decided here.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use futures_util::future::join_all;
use landfall_chain::{
    Address, Authorization, CLEARINGS_MAX, Carried, Carrier, FeeMarket, PayingChain, Quote, SIGN_REQUESTS_MAX,
    SignRequest, SignedAuthorization, SignedIntent, U256,
};
use tracing::warn;

use crate::sender::fees::Offer;
use crate::sender::load::Load;
use crate::sender::means::Bounds;
use crate::sender::open::{Open, OpenTransfer};
use crate::sender::sponsors::{Held, LastNonces, Ready, Sponsors};
use crate::sender::{Resting, SendError, Sender};
use crate::store::attempts::{self, Attempt};
use crate::store::clearings::Clearing;
use crate::store::refills::Refilling;
use crate::store::{StoreError, Tx, authorizations};
use crate::time::{Clock, Timestamp};
use crate::transfer::{Obstacle, SponsorState, TransferId};

/// How many attempts one nonce may have before its fees are not raised any more.
const ATTEMPTS_MAX: u32 = 10;
/// Behind an attempt that landed without paying, another one is made only after so long: our own blocks may be behind
/// the endpoint that reported it.
const LANDED_PAUSE: Duration = Duration::from_secs(30);
/// A payment waits so long at most while the delegate of its wallet is being taken away. Then it is carried all the same: if it
/// fails, another attempt brings the delegate again.
const CLEARING_WAIT: Duration = Duration::from_secs(60);

/// An attempt, with what its transaction is made of.
pub(super) struct Planned {
    pub(super) attempt: Attempt,
    pub(super) request: SignRequest,
}

/// What carrying something takes.
struct Quoted<'o> {
    load: Load<'o>,
    due: Due,
    gas_limit: u64,
    surcharge: U256,
    carried: Carried,
}

/// Why it needs an attempt.
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
    /// Wallets whose delegates may be taken away any moment.
    clearing: HashSet<Address>,
    held: Held,
    raise_after: Duration,
    now: Timestamp,
}

impl<C: PayingChain> Sender<C> {
    /// Records the attempts that are due; what was recorded and not signed before comes first, as it stands.
    pub(super) async fn plan(
        &mut self,
        open: &Open,
        loads: &[Load<'_>],
        sponsors: &Sponsors,
        clock: &Clock,
    ) -> Result<Vec<Planned>, SendError> {
        let now = clock.now();
        let mut planned: Vec<Planned> = Vec::new();
        for load in loads {
            let unsigned = |attempt: &&Attempt| attempt.signed.is_none() && load.is_current(attempt);
            for attempt in load.attempts().iter().filter(unsigned) {
                let beside = self.brought(*load, attempt).await?;
                let carried = self.carried(*load, beside);
                planned.extend(carried.and_then(|carried| self.planned(attempt.clone(), carried, sponsors)));
            }
        }
        let raise_after = Duration::from_millis(self.network.block_time_ms * self.network.sending.raise_after_blocks);
        let waiting = Waiting::of(open, loads, sponsors, (raise_after, now));
        let room = SIGN_REQUESTS_MAX.saturating_sub(planned.len());
        let due: Vec<(Load<'_>, Due)> = self.due(loads, &waiting).into_iter().take(room).collect();
        if due.is_empty() {
            return Ok(planned);
        }
        let mut held = waiting.held;
        let market = self.chain.fee_market().await?;
        let quoted = self.quote(&due, sponsors, clock).await?;
        let max_fee = self.network.sending.max_fee;
        let bounded = |of: &Quoted<'_>, budget| {
            let Quoted { gas_limit, surcharge, .. } = *of;
            Bounds { gas_limit, surcharge, max_fee, budget }
        };
        let firsts = quoted.iter().map(|of| bounded(of, None)).map(|bounds| bounds.cost(bounds.first(market)));
        if let Some(dearest) = firsts.max() {
            self.ask_means(sponsors, dearest).await;
        }
        let mut tx = self.begin_sending(now).await?;
        let budget = self.budget(&mut tx, now).await?;
        let mut last = self.last_nonces(&mut tx, sponsors).await?;
        for of in quoted {
            let bounds = bounded(&of, budget);
            let Quoted { load, due, gas_limit, carried, .. } = of;
            if let Some(why) = self.keeps_waiting((load, due), &bounds, market, sponsors) {
                warn!(transfer = %load.id(), "the {} of {} waits: {why}", load.purpose().name(), load.id());
                self.rest(load.resting(), now);
                continue;
            }
            let first = bounds.cost(bounds.first(market));
            let place = match due {
                Due::Anew => match load.place() {
                    Some(place) => Some(place),
                    None => self.next_nonce(sponsors, &last, &held, (first, now)),
                },
                Due::Raise(sponsor, nonce) => Some((sponsor, nonce)),
                Due::Fill(sponsor, nonce) => Some((sponsor, nonce)).filter(|place| !held.contains(place)),
            };
            let (Some(place), id) = (place, load.id()) else { continue };
            let newest = self.newest_at(&mut tx, place, &last).await?;
            let is_raise = matches!(due, Due::Raise(..));
            let offered = offer(newest, market, (bounds.most(), is_raise)).filter(|(_, offer)| offer.max_fee > 0);
            let Some((nth, Offer { max_fee, tip })) = offered else {
                let (sponsor, nonce) = place;
                warn!(
                    transfer = %id,
                    "nonce {nonce} of {sponsor} waits: more than max_fee_gwei or max_cost_usd would have to be offered"
                );
                self.rest(load.resting(), now);
                continue;
            };
            let cost = bounds.cost(Offer { max_fee, tip }).saturating_add(load.given());
            if !self.owns(&place.0, cost) {
                let (sponsor, nonce) = place;
                warn!(transfer = %id, "nonce {nonce} of {sponsor} waits, and others carry: it owns less than {cost}");
                self.rest(Resting::Sponsor(sponsor), now);
                continue;
            }
            held.insert(place);
            let authorization_nonce = match &carried {
                Carried::Payment { authorization, .. } => authorization.as_ref().map(|it| it.authorization.nonce),
                Carried::Cancellation(_) | Carried::Clearings(_) | Carried::Refill(_) => None,
            };
            let attempt = Attempt {
                sponsor: place.0,
                nonce: place.1,
                nth,
                transfer_id: id,
                purpose: load.purpose(),
                deadline_secs: load.deadline_secs(),
                gas_limit,
                max_fee,
                tip,
                guarding: None,
                authorization_nonce,
                recorded_at: now,
                signed: None,
                resent_at: None,
                response: None,
            };
            attempts::record(&mut tx, self.network.chain, &attempt).await?;
            last.entry(place.0).and_modify(|last| *last = (*last).max(Some(place.1)));
            planned.extend(self.planned(attempt, carried, sponsors));
        }
        self.commit(tx, now).await?;
        Ok(planned)
    }

    /// The last attempt at a nonce: its number, and what it offers. What is behind the `last` nonces has none.
    async fn newest_at(
        &self,
        tx: &mut Tx,
        (sponsor, nonce): (Address, u64),
        last: &LastNonces,
    ) -> Result<Option<(u32, u128, u128)>, StoreError> {
        if last.get(&sponsor).is_some_and(|last| last.is_none_or(|last| last < nonce)) {
            return Ok(None);
        }
        attempts::newest(tx, self.network.chain, &sponsor, nonce).await
    }

    /// Why nothing may be signed for it now. At a nonce that others wait behind it is tried all the same, with less.
    fn keeps_waiting(
        &self,
        (load, due): (Load<'_>, Due),
        bounds: &Bounds,
        market: FeeMarket,
        sponsors: &Sponsors,
    ) -> Option<&'static str> {
        let first = bounds.first(market);
        let cost = bounds.cost(first);
        let is_able = match load {
            Load::Refill(Refilling { treasury, amount, recipient, .. }) => {
                let is_active = sponsors.get(recipient).is_some_and(|(_, state)| *state == SponsorState::Active);
                is_active && self.owns(treasury, cost.saturating_add(*amount))
            }
            Load::Payment(_) | Load::Cancellation(_) | Load::Clearing(_) => self.is_any_able(sponsors, cost),
        };
        match due {
            Due::Anew if !bounds.allows(first) => Some("to carry it may cost more than max_cost_usd"),
            // A cancellation replaces what is pooled, so it is offered all that may be.
            Due::Anew if first.max_fee < market.base_fee && !matches!(load, Load::Cancellation(_)) => {
                Some("the base fee is more than max_fee_gwei")
            }
            Due::Anew if !is_able => {
                Some("who would pay for it owns less than it may cost, or is not to pay now: fund it")
            }
            Due::Anew | Due::Raise(..) | Due::Fill(..) => None,
        }
    }

    /// What needs an attempt, in its order; behind it what fills what others left.
    fn due<'o>(&self, loads: &[Load<'o>], waiting: &Waiting<'_>) -> Vec<(Load<'o>, Due)> {
        let now = waiting.now;
        let may = |load: &Load<'_>| !self.rests(load.resting(), now);
        let is_resting = |sponsor: &Address| self.rests(Resting::Sponsor(*sponsor), now);
        let mut due: Vec<(Load<'_>, Due)> = Vec::new();
        for load in loads.iter().copied().filter(may) {
            let mut attempts = load.attempts().iter();
            let is_anew = match load.place() {
                // One attempt is enough until it is stuck: no other nonce may have it.
                Some((treasury, nonce)) => {
                    load.attempts().is_empty() && !is_resting(&treasury) && waiting.is_free(&treasury, nonce)
                }
                None => attempts.clone().all(|attempt| waiting.is_over(attempt) || is_resting(&attempt.sponsor)),
            };
            if is_anew {
                // Carried now, it would fail behind what takes its delegate away.
                if load.delegated().is_none_or(|wallet| !waiting.clearing.contains(&wallet)) {
                    due.push((load, Due::Anew));
                }
            } else if let Some(stuck) = attempts.find(|it| waiting.is_stuck(it) && !is_resting(&it.sponsor)) {
                due.push((load, Due::Raise(stuck.sponsor, stuck.nonce)));
            }
        }
        for (ready, state) in waiting.sponsors.values().filter(|(ready, _)| !ready.is_treasury) {
            let address = ready.address;
            let Some((_, last)) = waiting.held.range((address, 0)..=(address, u64::MAX)).next_back() else { continue };
            let Some(gap) = ready.gap(*last, &waiting.held) else { continue };
            // Who has the last nonce: so the fewest others have one behind it.
            let holds = |load: &&Load<'_>| {
                load.attempts().iter().any(|it| (it.sponsor, it.nonce) == (address, *last) && waiting.may_land(it))
            };
            if *state == SponsorState::Active
                && !is_resting(&address)
                && let Some(load) = loads.iter().find(holds).filter(|load| may(load))
            {
                due.push((*load, Due::Fill(address, gap)));
            }
        }
        due
    }

    /// What it takes to carry each. A node's refusal is no evidence: it is asked again later, up to the deadline.
    async fn quote<'o>(
        &mut self,
        due: &[(Load<'o>, Due)],
        sponsors: &Sponsors,
        clock: &Clock,
    ) -> Result<Vec<Quoted<'o>>, SendError> {
        let now = clock.now();
        let is_active = |(ready, state): &&(Ready, SponsorState)| {
            *state == SponsorState::Active && !ready.is_treasury && !self.rests(Resting::Sponsor(ready.address), now)
        };
        let carrying = sponsors.values().find(is_active).map(|(ready, _)| ready.address);
        let waiting = due.iter().filter(|(load, _)| load.place().is_none()).count();
        if carrying.is_none() && waiting > 0 {
            warn!(chain = %self.network.chain, "{waiting} transfers wait: no sponsor may carry them now");
        }
        let by = |load: &Load<'_>| load.place().map(|(treasury, _)| treasury).or(carrying);
        let due: Vec<_> = due.iter().filter_map(|(load, due)| Some((*load, *due, by(load)?))).collect();
        let paying: Vec<&OpenTransfer> = due.iter().filter_map(|(load, ..)| load.paid()).collect();
        let mut brought = self.authorize(&paying, clock).await?;
        let mut ready = Vec::new();
        for (load, due, sponsor) in due {
            let beside = match load {
                Load::Payment(of) => brought.remove(&of.transfer.id),
                Load::Cancellation(_) | Load::Refill(_) => Some(None),
                Load::Clearing(clearing) => self.is_any_live(clearing, now).await.then_some(None),
            };
            let carried = beside.and_then(|beside| self.carried(load, beside));
            ready.extend(carried.map(|carried| (load, due, sponsor, carried)));
        }
        let asked = ready.iter().map(async |(_, _, sponsor, carried)| self.chain.quote(sponsor, carried).await);
        let answers = join_all(asked).await;
        let mut asked = Vec::new();
        for (of, answer) in ready.into_iter().zip(answers) {
            match (of.0, answer) {
                // Nobody waits for it, so it keeps nobody from his turn.
                (load @ (Load::Clearing(_) | Load::Refill(_)), Err(error)) => {
                    let what = load.purpose().name();
                    warn!(chain = %self.network.chain, "a {what} waits and will be tried again: {error}");
                    self.rest(load.resting(), now);
                }
                (load, answer) => asked.push((of, load.id(), answer)),
            }
        }
        let (mut quoted, mut obstructed) = (Vec::new(), Vec::new());
        for ((load, due, _, carried), quote) in self.answered(asked, now)? {
            let id = load.id();
            match quote {
                Quote::Gas { limit: gas_limit, surcharge } => {
                    quoted.push(Quoted { load, due, gas_limit, surcharge, carried });
                }
                Quote::Refused(said) => {
                    let what = load.purpose().name();
                    warn!(transfer = %id, "the {what} of {id} cannot be carried now and will be tried again: {said}");
                    match load {
                        Load::Payment(_) => obstructed.push((id, Obstacle::SimulationFailed, said)),
                        Load::Cancellation(_) | Load::Clearing(_) | Load::Refill(_) => self.rest(load.resting(), now),
                    }
                }
            }
        }
        self.obstruct(&obstructed, now).await?;
        Ok(quoted)
    }

    /// Whether a delegate would still be taken away by it. If not, it waits for final blocks.
    async fn is_any_live(&mut self, clearing: &Clearing, now: Timestamp) -> bool {
        for tuple in &clearing.tuples {
            match self.is_live(tuple).await {
                Ok(true) => return true,
                Ok(false) => {}
                Err(error) => {
                    warn!("the delegate of {} on {} is taken away later: {error}", tuple.wallet, self.network.chain);
                    break;
                }
            }
        }
        self.rest(Resting::Clearing(clearing.id), now);
        false
    }

    /// What an attempt carries of it, with what the payer's account needs `beside`; `None` where it cannot be made any more.
    fn carried(&self, load: Load<'_>, beside: Option<SignedAuthorization>) -> Option<Carried> {
        match load {
            Load::Payment(of) => {
                let signed = self.signed_intent(of)?;
                Some(Carried::Payment { signed, authorization: beside.map(Box::new) })
            }
            Load::Cancellation(of) => {
                let intent = self.intent(&of.transfer, load.deadline_secs())?;
                Some(Carried::Cancellation(SignedIntent { intent, signature: of.cancellation.clone()? }))
            }
            Load::Clearing(clearing) => {
                let signed = clearing.tuples.iter().filter_map(|tuple| {
                    let authorization = self.clearing(tuple.wallet, tuple.nonce);
                    Some(SignedAuthorization { authorization, signature: tuple.signature.clone()? })
                });
                Some(Carried::Clearings(signed.take(CLEARINGS_MAX).collect()))
            }
            Load::Refill(refill) => Some(Carried::Refill(refill.content(&self.network.chain_ref))),
        }
    }

    /// The authorization that an attempt brings, as it is on record.
    async fn brought(&self, load: Load<'_>, attempt: &Attempt) -> Result<Option<SignedAuthorization>, SendError> {
        let (Some(nonce), Some(of)) = (attempt.authorization_nonce, load.paid()) else { return Ok(None) };
        let wallet = of.transfer.source;
        let recorded = authorizations::find(&mut self.db.read().await?, self.network.chain, &wallet, nonce).await?;
        let signed = recorded.and_then(|recorded| Some((recorded.implementation, recorded.signature?)));
        Ok(signed.map(|(implementation, signature)| {
            let chain_ref = self.network.chain_ref.clone();
            SignedAuthorization { authorization: Authorization { chain_ref, wallet, implementation, nonce }, signature }
        }))
    }

    /// An attempt with the request that signs it; `None` where its sponsor signs nothing.
    fn planned(&self, attempt: Attempt, carried: Carried, sponsors: &Sponsors) -> Option<Planned> {
        let unless_quarantined =
            |of: &Address| sponsors.get(of).filter(|(_, state)| *state != SponsorState::Quarantined);
        let (ready, _) = unless_quarantined(&attempt.sponsor)?;
        if let Carried::Refill(refill) = &carried {
            unless_quarantined(&refill.recipient)?;
        }
        let carrier = Carrier {
            sponsor: attempt.sponsor,
            carried,
            nonce: attempt.nonce,
            gas_limit: attempt.gas_limit,
            max_fee: attempt.max_fee,
            tip: attempt.tip,
        };
        let path = self.path_of(ready.is_treasury, ready.number);
        Some(Planned { attempt, request: SignRequest::Carrier { path, carrier } })
    }

    pub(super) fn signed_intent(&self, of: &OpenTransfer) -> Option<SignedIntent> {
        let signed = of.signed()?;
        let intent = self.intent(&of.transfer, signed.deadline_secs)?;
        Some(SignedIntent { intent, signature: signed.signature.clone()? })
    }
}

impl<'o> Waiting<'o> {
    fn of(open: &Open, loads: &[Load<'_>], sponsors: &'o Sponsors, (raise_after, now): (Duration, Timestamp)) -> Self {
        let mut newest: BTreeMap<(Address, u64), (u32, TransferId)> = BTreeMap::new();
        for attempt in open.all().flat_map(Load::attempts).chain(&open.others) {
            let last = newest.entry((attempt.sponsor, attempt.nonce)).or_insert((attempt.nth, attempt.transfer_id));
            *last = (*last).max((attempt.nth, attempt.transfer_id));
        }
        let of_current =
            open.all().flat_map(|load| load.attempts().iter().filter(move |attempt| load.is_current(attempt)));
        let current = of_current.map(|attempt| (attempt.sponsor, attempt.nonce, attempt.nth)).collect();
        let mut waiting =
            Waiting { sponsors, newest, current, clearing: HashSet::new(), held: Held::new(), raise_after, now };
        let clears = |clearing: &&Clearing| waiting.is_under_way(clearing);
        let cleared = open.clearings.iter().filter(clears).flat_map(|clearing| &clearing.tuples);
        waiting.clearing = cleared.map(|tuple| tuple.wallet).collect();
        let of_carried = loads.iter().flat_map(|load| load.attempts()).filter(|attempt| waiting.may_land(attempt));
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

    /// Whether it may land any moment: it was first sent lately, and has not landed.
    fn is_under_way(&self, clearing: &Clearing) -> bool {
        let waits = |attempt: &Attempt| {
            let landed = self.sponsors.get(&attempt.sponsor).map_or(0, |(ready, _)| ready.landed);
            attempt.nonce >= landed && self.may_land(attempt)
        };
        let first = clearing.attempts.iter().map(|attempt| attempt.recorded_at).min();
        first.is_some_and(|at| self.now.since(at) < CLEARING_WAIT) && clearing.attempts.iter().any(waits)
    }

    /// Whether the treasury may carry something with this nonce: nobody has used it.
    fn is_free(&self, treasury: &Address, nonce: u64) -> bool {
        let known = self.sponsors.get(treasury);
        known.is_some_and(|(ready, state)| *state == SponsorState::Active && ready.landed <= nonce)
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
