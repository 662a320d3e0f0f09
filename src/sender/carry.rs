//! Makes the transactions of sponsors. Each is recorded, signed, recorded with its bytes, and only then sent.
//!
//! What an endpoint reports of a sponsor's nonce decides when another attempt is made, and nothing else. The chain
//! takes an intent once, however many attempts carry it.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use landfall_chain::{Address, BroadcastResponse, PayingChain, SIGN_REQUESTS_MAX, SignRequest, Signed};
use tracing::{debug, warn};

use crate::sender::load::Load;
use crate::sender::open::Open;
use crate::sender::plan::Planned;
use crate::sender::reclaim::makes_guards;
use crate::sender::settle::{Found, apply};
use crate::sender::sponsors::Sponsors;
use crate::sender::{Resting, SendError, Sender, Ticked};
use crate::store::attempts::{self, Attempt, Purpose};
use crate::store::refills;
use crate::time::{Clock, Timestamp};
use crate::transfer::Evidence;

/// How often the same bytes are sent again until a block shows them.
const RESEND: Duration = Duration::from_secs(10);

impl<C: PayingChain> Sender<C> {
    /// Sends again what was not seen yet; makes the attempts that are due, signs and sends them, where the signer `may_sign`.
    /// `open` is read again where this process has written since it was.
    pub(super) async fn carry(
        &mut self,
        (open, read_at): (&Open, u64),
        may_sign: bool,
        clock: &Clock,
    ) -> Result<Ticked, SendError> {
        let now = clock.now();
        let again = match self.writes == read_at {
            true => None,
            false => Some(Open::read(&mut self.db.read().await?, self.network.chain, now).await?),
        };
        let open = again.as_ref().unwrap_or(open);
        let guarded = self.carry_guarded(open, may_sign, clock).await?;
        let mut loads = open.loads(now);
        if makes_guards(&self.network) {
            loads.retain(|load| !matches!(load, Load::Refill(_)));
        }
        if loads.is_empty() {
            return Ok(guarded);
        }
        let sponsors = self.ready_sponsors(now).await?;
        // First, for nodes refuse a nonce while one before it is missing, and because it needs no signer.
        let sent = self.send(&unsent(&loads, &sponsors, now), clock).await?;
        if !may_sign {
            return Ok(Ticked { sent, ..guarded });
        }
        let planned = self.plan(open, &loads, &sponsors, clock).await?;
        let ticked = self.sign_and_send(open, planned, clock).await?;
        Ok(Ticked { sent: ticked.sent + sent, ..ticked })
    }

    /// Signs what is planned, records the bytes, and sends them. From the record of the bytes on, a node may have them.
    pub(super) async fn sign_and_send(
        &mut self,
        open: &Open,
        planned: Vec<Planned>,
        clock: &Clock,
    ) -> Result<Ticked, SendError> {
        let mut ticked = Ticked::default();
        if planned.is_empty() {
            return Ok(ticked);
        }
        let requests: Vec<SignRequest> = planned.iter().map(|planned| planned.request.clone()).collect();
        let mut answers = Vec::new();
        for part in requests.chunks(SIGN_REQUESTS_MAX) {
            answers.extend(self.signer.sign(part).await?);
        }
        let (now, chain) = (clock.now(), self.network.chain);
        let mut signed: Vec<Attempt> = Vec::new();
        let mut tx = self.begin_sending(now).await?;
        self.seen(&mut tx, &answers).await?;
        for (Planned { attempt, .. }, answer) in planned.into_iter().zip(answers) {
            let id = attempt.transfer_id;
            match answer {
                Ok(Signed { bytes, tx: Some(of), .. }) => {
                    attempts::sign(&mut tx, chain, &attempt, (&bytes, &of)).await?;
                    signed.push(Attempt { signed: Some((bytes, of)), ..attempt });
                }
                Ok(Signed { tx: None, .. }) => warn!(transfer = %id, "the signer gave an attempt no id"),
                Err(refusal) => {
                    warn!(transfer = %id, "an attempt of the {} of {id} is not signed: {refusal}", attempt.purpose.name());
                    // Nothing of it can have left: its nonce is free, and the next offer is made by the market.
                    attempts::forget_unsigned(&mut tx, chain, &attempt).await?;
                    if attempt.purpose == Purpose::Refill {
                        // Its journal may have another content for this nonce.
                        refills::forget(&mut tx, id).await?;
                        self.journal.forget_time();
                    }
                    self.rest(Resting::of(attempt.purpose, id), now);
                }
            }
        }
        for of in &open.transfers {
            let pays = |it: &Attempt| (it.transfer_id, it.purpose) == (of.transfer.id, Purpose::Payment);
            if signed.iter().any(pays) {
                let found = Found { evidence: Evidence::HandedOver, tx: None, block: None, reported_by: Vec::new() };
                ticked.changed += usize::from(apply(&mut tx, &of.transfer, &[found], now).await?.is_some());
            }
        }
        self.commit(tx, now).await?;
        ticked.sent = self.send(&signed.iter().collect::<Vec<_>>(), clock).await?;
        Ok(ticked)
    }

    /// Hands signed attempts to nodes, and records what they made of them; returns how many.
    pub(super) async fn send(&mut self, attempts: &[&Attempt], clock: &Clock) -> Result<usize, SendError> {
        if attempts.is_empty() {
            return Ok(0);
        }
        let chain = self.network.chain;
        // In the order of nonces: a node that has not seen the one before may refuse the next. Where there are none, all at
        // once: a node that hangs holds up none but its own.
        let mut in_order: BTreeMap<(Address, Option<u64>), Vec<&Attempt>> = BTreeMap::new();
        for attempt in attempts {
            let alone = attempt.guarding.map(|_| attempt.nonce);
            in_order.entry((attempt.sponsor, alone)).or_default().push(attempt);
        }
        let sending = in_order.values().map(async |of| {
            let mut responses = Vec::new();
            for attempt in of {
                if let Some((raw, id)) = &attempt.signed {
                    responses.push((*attempt, self.chain.broadcast(id, raw).await));
                }
            }
            responses
        });
        let responses: Vec<(&Attempt, BroadcastResponse)> = join_all(sending).await.into_iter().flatten().collect();
        let now = clock.now();
        let mut tx = self.begin(now).await?;
        for (attempt, response) in &responses {
            attempts::sent(&mut tx, chain, attempt, *response, now).await?;
            self.note_means(&mut tx, &attempt.sponsor, *response, now).await?;
        }
        self.commit(tx, now).await?;
        for (attempt, response) in &responses {
            self.react(attempt, *response, now);
        }
        Ok(responses.len())
    }

    /// A sponsor that nodes do not serve carries nothing new for a while. What it carries already is sent again.
    fn react(&mut self, attempt: &Attempt, response: BroadcastResponse, now: Timestamp) {
        let Attempt { sponsor, nonce, transfer_id, .. } = attempt;
        let name = response.name();
        match response {
            BroadcastResponse::Pooled | BroadcastResponse::Known => {
                debug!(transfer = %transfer_id, "nonce {nonce} of {sponsor} is with a node: {name}");
            }
            BroadcastResponse::Poor | BroadcastResponse::Delegated => {
                warn!("sponsor {sponsor} on {} carries nothing new for now: {name}", self.network.chain);
                self.rest(Resting::Sponsor(*sponsor), now);
                if response == BroadcastResponse::Delegated {
                    // One that has code is quarantined, which final blocks decide and not a node.
                    self.keys.suspect();
                }
            }
            BroadcastResponse::NonceUsed
            | BroadcastResponse::Underpriced
            | BroadcastResponse::Gapped
            | BroadcastResponse::Reserved
            | BroadcastResponse::Refused
            | BroadcastResponse::Expired
            | BroadcastResponse::Unknown => {
                warn!(transfer = %transfer_id, "nonce {nonce} of {sponsor} was not taken: {name}; it is sent again");
            }
        }
    }
}

/// What was signed, has not landed, and was not handed to a node lately; by nonce.
fn unsent<'o>(loads: &[Load<'o>], sponsors: &Sponsors, now: Timestamp) -> Vec<&'o Attempt> {
    let is_unsent = |attempt: &&Attempt| {
        let landed = sponsors.get(&attempt.sponsor).map_or(0, |(ready, _)| ready.landed);
        let is_due = attempt.resent_at.is_none_or(|at| now.since(at) >= RESEND || now < at);
        attempt.signed.is_some() && attempt.nonce >= landed && is_due
    };
    let current = loads.iter().flat_map(|load| load.attempts().iter().filter(|attempt| load.is_current(attempt)));
    let mut unsent: Vec<&Attempt> = current.filter(is_unsent).collect();
    unsent.sort_by_key(|attempt| (attempt.nonce, attempt.nth));
    unsent
}
