//! Changes the state of transfers by what our own blocks show. This is the only way to CONFIRMED.

use std::collections::HashSet;

use landfall_chain::{BlockRef, Effect, Mark, PayingChain, TxId, TxLife, TxRef};
use tracing::{error, info, warn};

use crate::event::TransferEvent;
use crate::sender::open::{Open, OpenTransfer};
use crate::sender::{Resting, SendError, Sender, gas};
use crate::store::cursors::Cursor;
use crate::store::marks::Seen;
use crate::store::{StoreError, Tx, clearings, events, gas_ledger, transfers};
use crate::time::Timestamp;
use crate::transfer::{Evidence, FailureCode, State, Transfer, TransferId, TransferKind, TransferStatus};

/// Of how many payments endpoints are asked in a tick: each costs a whole block.
const ASKED_MAX: usize = 20;

/// How many transfers are settled in one transaction: requests wait for its end.
const SETTLED_MAX: usize = 32;

/// Payments that others corroborate, each with its block.
type Corroborated = HashSet<(TransferId, BlockRef)>;

/// Evidence, and what it is evidence of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Found {
    pub(super) evidence: Evidence,
    /// The transaction that it shows.
    pub(super) tx: Option<TxId>,
    /// The block that shows it.
    pub(super) block: Option<BlockRef>,
    /// The endpoints that reported the state of the key in it; none where our own blocks show it.
    pub(super) reported_by: Vec<String>,
}

impl<C: PayingChain> Sender<C> {
    /// Settles all transfers of which blocks show something new; returns how many changed, and what is open behind it.
    pub(super) async fn settle(&mut self, now: Timestamp) -> Result<(usize, Open), SendError> {
        let chain = self.network.chain;
        let mut reader = self.db.read().await?;
        let mut open = Open::read(&mut reader, chain, now).await?;
        let mut booked = gas::booked_through(&mut reader, &self.network, open.finalized).await?;
        drop(reader);
        let (corroborated, asked) = self.corroborate(&open, now).await;
        let reached = Reached { finalized: open.finalized, booked, now };
        let is_new = |of: &&OpenTransfer| !found(of, reached, &corroborated).is_empty();
        let new: Vec<TransferId> = open.transfers.iter().filter(is_new).map(|of| of.transfer.id).collect();
        let mut changed = 0;
        for part in new.chunks(SETTLED_MAX) {
            let mut tx = self.begin(now).await?;
            // No block is connected or disconnected, and none becomes final, before the end of the transaction.
            let cursor = Cursor::lock(&mut tx, chain).await?;
            if (cursor.at, cursor.finalized) != (open.head, open.finalized.map(|(at, _)| at)) {
                open = Open::read(&mut tx, chain, now).await?;
                booked = gas::booked_through(&mut tx, &self.network, open.finalized).await?;
            }
            let reached = Reached { finalized: open.finalized, booked, now };
            for of in open.transfers.iter().filter(|of| part.contains(&of.transfer.id)) {
                let found = found(of, reached, &corroborated);
                changed += usize::from(apply(&mut tx, &of.transfer, &found, now).await?.is_some());
            }
            self.commit(tx, now).await?;
        }
        // While nodes were asked blocks may have come.
        if changed > 0 || asked > 0 {
            open = Open::read(&mut self.db.read().await?, chain, now).await?;
        }
        Ok((changed, open))
    }

    /// The payments in final blocks that one endpoint alone had reported, and that as many as must agree report by now.
    /// And how many were asked for.
    async fn corroborate(&mut self, open: &Open, now: Timestamp) -> (Corroborated, usize) {
        let (mut corroborated, mut asked) = (Corroborated::new(), 0);
        let Some((finalized, _)) = open.finalized else { return (corroborated, asked) };
        for of in &open.transfers {
            let transfer = &of.transfer;
            let is_alone = |payment: &&Seen| payment.is_alone && payment.block.number <= finalized.number;
            let Some(payment) = of.payment().filter(is_alone) else { continue };
            if asked == ASKED_MAX || self.rests(Resting::Transfer(transfer.id), now) {
                continue;
            }
            asked += 1;
            let mark = Mark {
                tx: TxRef { id: payment.tx, life: TxLife::Block },
                payer: transfer.source,
                key: transfer.intent_key,
                asset: payment.asset,
                effect: payment.effect,
            };
            let (id, block) = (transfer.id, payment.block);
            let why = match self.chain.is_shown(&mark, &block).await {
                Ok(true) => {
                    corroborated.insert((id, block));
                    continue;
                }
                Ok(false) => "others report that block without it".to_owned(),
                Err(error) => error.to_string(),
            };
            error!(transfer = %id, "one endpoint alone reported the payment of transfer {id} in block {block}: {why}");
            self.rest(Resting::Transfer(id), now);
        }
        (corroborated, asked)
    }
}

/// How far the chain has come, and when.
#[derive(Clone, Copy)]
struct Reached {
    /// The newest final block, and its time.
    finalized: Option<(BlockRef, Timestamp)>,
    /// Up to which of its final blocks costs are booked.
    booked: Option<u64>,
    now: Timestamp,
}

/// What our canonical blocks, and the clock, say of a transfer that it does not show yet.
fn found(of: &OpenTransfer, Reached { finalized, booked, now }: Reached, corroborated: &Corroborated) -> Vec<Found> {
    let (state, mut found) = (of.transfer.state, Vec::new());
    let is_final = |number: u64| booked.is_some_and(|booked| number <= booked);
    let bare = |evidence| Found { evidence, tx: None, block: None, reported_by: Vec::new() };
    if let Some(payment) = of.payment() {
        let seen = |evidence| Found { tx: Some(payment.tx), block: Some(payment.block), ..bare(evidence) };
        let is_shown = state == State::Included && of.transfer.tx == Some(payment.tx);
        if state == State::Accepted {
            found.push(bare(Evidence::HandedOver));
        }
        if state == State::Included && !is_shown {
            found.push(bare(Evidence::Displaced));
        }
        if !is_shown {
            found.push(seen(Evidence::Included));
        }
        let is_believed = !payment.is_alone || corroborated.contains(&(of.transfer.id, payment.block));
        if (payment.is_granted || is_final(payment.block.number)) && is_believed {
            found.push(seen(Evidence::Final));
        }
        return found;
    }
    if state == State::Included {
        found.push(bare(Evidence::Displaced));
    }
    // A token that keeps a part of each payment: the money has left, and nobody can say that it was not paid.
    let is_doubtful =
        |effect: &Effect| matches!(effect, Effect::Paid { destination, .. } if *destination == of.transfer.destination);
    let other = of.marks.iter().find(|mark| is_final(mark.block.number));
    // A guard that came into being with another payment by our key: what else may land is not known from that alone.
    if other.is_some_and(|other| of.is_guarded() || is_doubtful(&other.effect)) {
        return found;
    }
    if let Some(other) = other {
        if state == State::Accepted {
            found.push(bare(Evidence::HandedOver));
        }
        let evidence = match other.effect {
            Effect::Paid { .. } => Evidence::UsedByAnother,
            Effect::Nothing => Evidence::UsedUp,
            Effect::Cancelled => Evidence::CancelledOnChain,
        };
        let (tx, block) = (Some(other.tx), Some(other.block));
        found.push(Found { tx, block, ..bare(evidence) });
        return found;
    }
    let is_over = now >= Timestamp::from_secs(of.deadline_secs());
    // What was displaced just now is looked at again first: it may be healed.
    if state == State::Carried && is_over && !of.is_healed(finalized.map(|(_, time)| time), now) {
        found.push(bare(Evidence::WindowOver));
    }
    found
}

/// Applies evidence in its order, in the caller's transaction, and announces what it means; returns the transfer as it
/// stands then, if it changed.
pub(super) async fn apply(
    tx: &mut Tx,
    transfer: &Transfer,
    found: &[Found],
    now: Timestamp,
) -> Result<Option<Transfer>, StoreError> {
    let mut before = transfer.clone();
    for Found { evidence, tx: shown, block, reported_by } in found {
        let (state, announced) = before.state.after(*evidence).map_err(|error| StoreError::Inconsistent {
            what: "transfer",
            reason: format!("{}: {error}", transfer.id),
        })?;
        if state == before.state {
            continue;
        }
        let mut after = Transfer { state, updated_at: now, version: before.version + 1, ..before.clone() };
        after.tx = match state {
            State::Included | State::Confirmed | State::Failed(_) | State::Dropped(_) => shown.or(before.tx),
            State::Accepted | State::Carried | State::Expiring => None,
        };
        match state.status() {
            TransferStatus::Submitted => after.submitted_at = before.submitted_at.or(Some(now)),
            TransferStatus::Confirmed => after.confirmed_at = Some(now),
            TransferStatus::Accepted | TransferStatus::Failed | TransferStatus::Dropped => {}
        }
        after.reason = state.failure().map(|code| reason(code, *evidence, before.reason.as_deref()));
        let shown_in = match evidence {
            Evidence::Displaced => included_in(tx, transfer.id).await?,
            _ => *block,
        };
        transfers::change(tx, &before, &after, (evidence.name(), *block, reported_by)).await?;
        if state.status().is_terminal() {
            if !is_early(tx, &after, *block).await? {
                gas_ledger::release(tx, after.id, now).await?;
            }
            if after.is_by_delegate() {
                clearings::want(tx, after.chain, &after.source, after.id, now).await?;
            }
        }
        // What an operator asked for is announced to nobody.
        if let Some(announcement) = announced.filter(|_| after.kind == TransferKind::Payment) {
            let (position, earlier) = events::place(tx, after.id, announcement).await?;
            let number = shown_in.map(|block| block.number);
            let event = TransferEvent::announced(&after, announcement, earlier, number);
            events::append_transfer(tx, &event, position, now).await?;
        }
        log(&after, announced.is_some());
        before = after;
    }
    Ok((before.version != transfer.version).then_some(before))
}

/// Whether it is CONFIRMED in a block that is not final for all: its hold stands for its cost until that is booked
/// (`Sender::keep_books`).
async fn is_early(tx: &mut Tx, transfer: &Transfer, block: Option<BlockRef>) -> Result<bool, StoreError> {
    let Some(block) = block.filter(|_| transfer.state == State::Confirmed) else { return Ok(false) };
    let finalized = Cursor::load(tx, transfer.chain).await?.finalized;
    Ok(finalized.is_none_or(|finalized| finalized.number < block.number))
}

/// The block that included it last.
async fn included_in(tx: &mut Tx, id: TransferId) -> Result<Option<BlockRef>, StoreError> {
    let history = transfers::history(tx, id).await?;
    Ok(history.iter().rfind(|change| change.evidence == Evidence::Included.name()).and_then(|change| change.block))
}

/// What a client reads of a failure, in words; `why` is what was found of its obstacle.
fn reason(code: FailureCode, evidence: Evidence, why: Option<&str>) -> String {
    let code = match code {
        FailureCode::WindowElapsed => "no block up to the end of the window included it, and none can any more",
        FailureCode::NeverSigned => "it was not signed before the end of the window, and cannot be included any more",
        FailureCode::SenderStopped => "an operator had stopped the sending until the end of the window",
        FailureCode::Cancelled => "an operator cancelled it",
        FailureCode::Reverted => "its transaction is final and failed",
        FailureCode::SimulationFailed => "the chain would refuse it",
        FailureCode::InsufficientFunds => "an address would own too little",
        FailureCode::AccountNotActive => "the account is not active any more",
        FailureCode::DestinationRefused => "the chain refuses this destination",
        FailureCode::TokenPaused => "the token is paused",
        FailureCode::IntentAlreadyUsed => "the signature's one-time key was used for something else",
        FailureCode::GuardTaken => "the guard of this transfer was made by somebody else",
    };
    match (evidence, why) {
        (Evidence::Impossible(_), Some(why)) => format!("{code}: {why}; nothing was paid"),
        (Evidence::Impossible(_), None) => format!("{code}; nothing was paid"),
        (_, _) => code.to_owned(),
    }
}

fn log(transfer: &Transfer, is_announced: bool) {
    let Transfer { id, chain, state, .. } = transfer;
    let name = state.name();
    match state {
        State::Failed(code) | State::Dropped(code) => {
            warn!(%chain, transfer = %id, "transfer {id} is {name}: {}", code.name());
        }
        State::Accepted | State::Carried | State::Included | State::Expiring | State::Confirmed => {
            if is_announced {
                info!(%chain, transfer = %id, "transfer {id} is {name}");
            }
        }
    }
}
