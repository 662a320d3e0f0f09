//! Makes the transactions that make a guard and pay. Each is recorded, signed by sponsor and payer, recorded with its
//! bytes, and only then sent.
//!
//! There is no nonce. Each attempt names the hash of our newest block, and dies within 150 blocks on top of it. The
//! time of that block is within the window, so the proof that nothing was paid can count from the window's end on.
//! While the window is open, a new attempt is made every 20 seconds, whatever became of the earlier ones. A refill has no
//! window: its attempts follow each other until a final block shows its guard.
//! Promise: every attempt makes the guard of the transfer's one intent, or of the refill's number, and a guard is made once.
//! A second attempt that lands fails as a whole and pays nothing.

use std::time::Duration;

use futures_util::future::join_all;
use landfall_chain::{
    Address, BlockRef, GuardQuote, GuardTerms, Guarded, GuardedRefill, Intent, KeyPath, PayingChain, SIGN_REQUESTS_MAX,
    SignRequest,
};
use tracing::warn;

use crate::sender::fees::compute_price;
use crate::sender::load::{Load, may_be_carried};
use crate::sender::open::Open;
use crate::sender::plan::Planned;
use crate::sender::reclaim::makes_guards;
use crate::sender::{Resting, SendError, Sender, Ticked, new_accounts};
use crate::store::attempts::{self, Attempt, Guarding};
use crate::store::refills::Refilling;
use crate::store::sponsors::{self, Sponsor};
use crate::store::{transfers, wallets};
use crate::time::{Clock, Timestamp};
use crate::transfer::{Obstacle, SponsorState};

/// How long after an attempt the next one is made.
const ATTEMPT_EVERY: Duration = Duration::from_secs(20);
/// How often the same bytes are sent again until a block shows them.
const RESEND: Duration = Duration::from_secs(2);
/// For how long: a blockhash lives 150 blocks, which is a minute at 400 ms. Sending for longer costs requests only.
const RESEND_FOR: Duration = Duration::from_secs(90);

/// A transfer or a refill that needs an attempt, and the sponsor that pays for it.
type Due<'o> = (Load<'o>, Sponsor);

/// What an attempt is made of.
struct Quoted<'o> {
    of: Load<'o>,
    sponsor: Sponsor,
    terms: GuardTerms,
}

impl<C: PayingChain> Sender<C> {
    /// Sends again what was not seen yet; makes the attempts that are due, signs and sends them, where the signer `may_sign`.
    pub(super) async fn carry_guarded(
        &mut self,
        open: &Open,
        may_sign: bool,
        clock: &Clock,
    ) -> Result<Ticked, SendError> {
        let now = clock.now();
        let payments = open.transfers.iter().filter(|of| of.is_guarded() && may_be_carried(of, open.head_time, now));
        let refills = open.refills.iter().filter(|_| makes_guards(&self.network));
        let carried: Vec<Load<'_>> = refills.map(Load::Refill).chain(payments.map(Load::Payment)).collect();
        if carried.is_empty() {
            return Ok(Ticked::default());
        }
        let sent = self.send(&unsent(&carried, now), clock).await?;
        let planned = match open.head.filter(|_| may_sign) {
            Some(recent) => self.plan_guarded(&carried, &recent, clock).await?,
            None => Vec::new(),
        };
        let ticked = self.sign_and_send(open, planned, clock).await?;
        Ok(Ticked { sent: ticked.sent + sent, ..ticked })
    }

    /// Records the attempts that are due; what was recorded and not signed before comes first, as it stands.
    async fn plan_guarded(
        &mut self,
        carried: &[Load<'_>],
        recent: &BlockRef,
        clock: &Clock,
    ) -> Result<Vec<Planned>, SendError> {
        let now = clock.now();
        let mut reader = self.db.read().await?;
        let known = sponsors::of_chain(&mut reader, self.network.chain).await?;
        let quarantined = wallets::quarantined(&mut reader, self.network.chain.family()).await?;
        drop(reader);
        // The payer signs each attempt.
        let may_sign = |of: &&Load<'_>| of.paid().is_none_or(|of| !quarantined.contains(&of.transfer.source));
        let carried: Vec<Load<'_>> = carried.iter().filter(may_sign).copied().collect();
        let mut planned: Vec<Planned> = Vec::new();
        for of in &carried {
            for attempt in of.attempts().iter().filter(|attempt| attempt.signed.is_none()) {
                planned.extend(self.planned_guarded(*of, attempt.clone(), &known));
            }
        }
        let room = SIGN_REQUESTS_MAX.saturating_sub(planned.len());
        let due = self.due_guarded(&carried, known.clone(), (room, now));
        if due.is_empty() {
            return Ok(planned);
        }
        let quoted = self.quote_guarded(due, recent, now).await?;
        let now = clock.now();
        let mut tx = self.begin_sending(now).await?;
        for Quoted { of, sponsor, terms } in quoted {
            if terms.makes_account
                && let Some(of) = of.paid()
                && let Some(why) = new_accounts::refused(&mut tx, of, &self.network.sending, now).await?
            {
                let id = of.transfer.id;
                warn!(transfer = %id, "transfer {id} cannot be carried now: {why}");
                transfers::obstruct(&mut tx, id, Obstacle::DestinationRefused, Some(&why)).await?;
                self.rest(Resting::Transfer(id), now);
                continue;
            }
            let Some(address) = sponsor.address else { continue };
            let (nonce, nth) = match of.place() {
                Some((_, nonce)) => {
                    let newest = attempts::newest(&mut tx, self.network.chain, &address, nonce).await?;
                    (nonce, newest.map_or(0, |(nth, ..)| nth + 1))
                }
                None => {
                    let last = attempts::last_nonce(&mut tx, self.network.chain, &address).await?;
                    (last.map_or(0, |last| last + 1), 0)
                }
            };
            let before = of.attempts().iter().map(|attempt| attempt.max_fee).max();
            let GuardTerms { rent, compute_limit, compute_price: market, memo, makes_account, .. } = terms;
            let attempt = Attempt {
                sponsor: address,
                nonce,
                nth,
                transfer_id: of.id(),
                purpose: of.purpose(),
                deadline_secs: of.deadline_secs(),
                gas_limit: compute_limit.into(),
                max_fee: compute_price(market.into(), before, compute_limit),
                tip: 0,
                authorization_nonce: None,
                guarding: Some(Guarding { recent: *recent, rent, memo, makes_account }),
                recorded_at: now,
                signed: None,
                resent_at: None,
                response: None,
            };
            attempts::record(&mut tx, self.network.chain, &attempt).await?;
            planned.extend(self.planned_guarded(of, attempt, &known));
        }
        self.commit(tx, now).await?;
        Ok(planned)
    }

    /// What has no young attempt: refills of active sponsors, with the treasury; and transfers, the oldest first, each with the
    /// sponsor that has the fewest attempts.
    fn due_guarded<'o>(
        &self,
        carried: &[Load<'o>],
        known: Vec<Sponsor>,
        (room, now): (usize, Timestamp),
    ) -> Vec<Due<'o>> {
        let is_old = |attempt: &Attempt| now.since(attempt.recorded_at) >= ATTEMPT_EVERY || now < attempt.recorded_at;
        let is_due = |of: &&Load<'_>| !self.rests(of.resting(), now) && of.attempts().iter().all(is_old);
        let due: Vec<Load<'o>> = carried.iter().filter(is_due).take(room).copied().collect();
        let is_ready = |sponsor: &Sponsor| {
            let rests = sponsor.address.is_none_or(|address| self.rests(Resting::Sponsor(address), now));
            sponsor.state == SponsorState::Active && !rests
        };
        let has = |sponsor: &Sponsor| {
            let attempts = carried.iter().flat_map(|of| of.attempts());
            attempts.filter(|attempt| Some(attempt.sponsor) == sponsor.address && !is_old(attempt)).count()
        };
        let is_at = |sponsor: &&Sponsor, address: &Address| sponsor.address.as_ref() == Some(address);
        let active: Vec<Address> =
            known.iter().filter(|of| of.state == SponsorState::Active).filter_map(|of| of.address).collect();
        let ready: Vec<Sponsor> = known.into_iter().filter(is_ready).collect();
        let mut with_sponsor: Vec<Due<'o>> = Vec::new();
        for of in &due {
            if let Load::Refill(Refilling { treasury, recipient, .. }) = of
                // It rests because it is poor: that is what ends by this.
                && active.contains(recipient)
                && let Some(treasury) = ready.iter().find(|sponsor| is_at(sponsor, treasury))
            {
                with_sponsor.push((*of, treasury.clone()));
            }
        }
        let carrying = ready.iter().filter(|sponsor| !sponsor.is_treasury);
        let mut ready: Vec<(usize, Sponsor)> = carrying.map(|sponsor| (has(sponsor), sponsor.clone())).collect();
        let payments: Vec<Load<'o>> = due.into_iter().filter(|of| of.paid().is_some()).collect();
        if ready.is_empty() && !payments.is_empty() {
            warn!(chain = %self.network.chain, "{} transfers wait: no sponsor may carry them now", payments.len());
        }
        for of in payments {
            let Some((count, sponsor)) = ready.iter_mut().min_by_key(|(count, sponsor)| (*count, sponsor.number))
            else {
                break;
            };
            *count += 1;
            with_sponsor.push((of, sponsor.clone()));
        }
        with_sponsor
    }

    /// What each attempt is made of. A node's refusal is no evidence: it is asked again later, up to the deadline.
    async fn quote_guarded<'o>(
        &mut self,
        due: Vec<Due<'o>>,
        recent: &BlockRef,
        now: Timestamp,
    ) -> Result<Vec<Quoted<'o>>, SendError> {
        let asked = due.iter().map(async |(of, sponsor)| {
            let intent = self.guarded_intent(*of, of.deadline_secs());
            match intent.zip(sponsor.address) {
                Some((intent, address)) => Some(self.chain.guard_quote(&address, &intent, recent).await),
                None => None,
            }
        });
        let answers = join_all(asked).await;
        let mut asked = Vec::new();
        for (due, answer) in due.into_iter().zip(answers) {
            match (due.0, answer) {
                // Nobody waits for it, so it keeps nobody from his turn.
                (load @ Load::Refill(_), Some(Err(error))) => {
                    warn!(chain = %self.network.chain, "a refill waits and will be tried again: {error}");
                    self.rest(load.resting(), now);
                }
                (load, Some(answer)) => asked.push((due, load.id(), answer)),
                (_, None) => {}
            }
        }
        let (mut quoted, mut obstructed) = (Vec::new(), Vec::new());
        for ((of, sponsor), quote) in self.answered(asked, now)? {
            let id = of.id();
            match quote {
                GuardQuote::Terms(terms) => quoted.push(Quoted { of, sponsor, terms }),
                // Its guard may stand: final blocks will show it.
                GuardQuote::Refused(said) if of.paid().is_none() => {
                    warn!(chain = %self.network.chain, "refill {id} cannot be given now and will be tried again: {said}");
                    self.rest(of.resting(), now);
                }
                GuardQuote::Refused(said) => {
                    warn!(transfer = %id, "transfer {id} cannot be carried now and will be tried again: {said}");
                    obstructed.push((id, Obstacle::SimulationFailed, said));
                }
                GuardQuote::Poor => {
                    let number = sponsor.number;
                    warn!(chain = %self.network.chain, "sponsor {number} owns too little, and carries nothing new for now");
                    if let Some(address) = sponsor.address {
                        self.rest_poor(&address, now).await?;
                    }
                }
                GuardQuote::NotYet => {}
            }
        }
        self.obstruct(&obstructed, now).await?;
        Ok(quoted)
    }

    /// An attempt with the request that signs it; `None` where its intent cannot be made any more, and where its sponsor
    /// signs nothing.
    fn planned_guarded(&self, of: Load<'_>, attempt: Attempt, known: &[Sponsor]) -> Option<Planned> {
        let unless_quarantined = |of: Address| {
            let sponsor = known.iter().find(|sponsor| sponsor.address == Some(of));
            sponsor.filter(|sponsor| sponsor.state != SponsorState::Quarantined)
        };
        let sponsor = unless_quarantined(attempt.sponsor)?;
        if let Load::Refill(refill) = of {
            unless_quarantined(refill.recipient)?;
        }
        let (path, terms) = (self.path_of(sponsor.is_treasury, sponsor.number), attempt.terms()?);
        let request = match of {
            Load::Refill(of) => {
                let (treasury, refill, nonce) = (of.treasury, of.content(&self.network.chain_ref), of.nonce);
                SignRequest::Refill { path, refill: GuardedRefill { treasury, refill, nonce, terms } }
            }
            Load::Payment(_) | Load::Cancellation(_) | Load::Clearing(_) => {
                let transfer = &of.paid()?.transfer;
                let intent = self.intent(transfer, attempt.deadline_secs)?;
                let guarded = Guarded { sponsor: attempt.sponsor, intent, terms };
                let payer = KeyPath::of_wallet(transfer.chain.family(), &transfer.account_id, &transfer.source_tag);
                SignRequest::Guarded { path, payer, guarded }
            }
        };
        Some(Planned { attempt, request })
    }

    /// What makes its guard.
    fn guarded_intent(&self, of: Load<'_>, deadline_secs: u64) -> Option<Intent> {
        match of {
            Load::Refill(of) => Some(of.content(&self.network.chain_ref).intent(&of.treasury, of.nonce)),
            Load::Payment(_) | Load::Cancellation(_) | Load::Clearing(_) => {
                self.intent(&of.paid()?.transfer, deadline_secs)
            }
        }
    }
}

/// What was signed, may live still, and was not handed to a node lately; the oldest first.
fn unsent<'o>(carried: &[Load<'o>], now: Timestamp) -> Vec<&'o Attempt> {
    let is_unsent = |attempt: &&Attempt| {
        let is_due = attempt.resent_at.is_none_or(|at| now.since(at) >= RESEND || now < at);
        attempt.signed.is_some() && now.since(attempt.recorded_at) < RESEND_FOR && is_due
    };
    let mut unsent: Vec<&Attempt> = carried.iter().flat_map(|of| of.attempts()).filter(is_unsent).collect();
    unsent.sort_by_key(|attempt| attempt.recorded_at);
    unsent
}
