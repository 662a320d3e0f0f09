//! What a sponsor's transaction may carry: a payment, the cancellation of one, clearings, which take delegates away, or
//! what a treasury gives a sponsor.
//!
//! Promise: of a transfer one thing is carried at a time. Once it is cancelled on the chain, no further payment of it
//! is carried.

use landfall_chain::{Address, Route, U256};

use crate::sender::Resting;
use crate::sender::open::{Open, OpenTransfer, secs};
use crate::store::attempts::{Attempt, Purpose};
use crate::store::clearings::Clearing;
use crate::store::refills::Refilling;
use crate::time::Timestamp;
use crate::transfer::{State, TransferId};

#[derive(Clone, Copy, Debug)]
pub(super) enum Load<'o> {
    Payment(&'o OpenTransfer),
    Cancellation(&'o OpenTransfer),
    Clearing(&'o Clearing),
    Refill(&'o Refilling),
}

impl<'o> Load<'o> {
    /// The transfer whose attempts carry it, or its own id.
    pub(super) fn id(self) -> TransferId {
        match self {
            Load::Payment(of) | Load::Cancellation(of) => of.transfer.id,
            Load::Clearing(clearing) => clearing.id,
            Load::Refill(refill) => refill.id,
        }
    }

    /// What it brings of the sponsor's own money, in base units of the native currency.
    pub(super) fn given(self) -> U256 {
        match self {
            Load::Refill(refill) => refill.amount,
            Load::Payment(_) | Load::Cancellation(_) | Load::Clearing(_) => U256::ZERO,
        }
    }

    /// The transfer that it pays.
    pub(super) const fn paid(self) -> Option<&'o OpenTransfer> {
        match self {
            Load::Payment(of) => Some(of),
            Load::Cancellation(_) | Load::Clearing(_) | Load::Refill(_) => None,
        }
    }

    pub(super) const fn purpose(self) -> Purpose {
        match self {
            Load::Payment(_) => Purpose::Payment,
            Load::Cancellation(_) => Purpose::Cancellation,
            Load::Clearing(_) => Purpose::Clearing,
            Load::Refill(_) => Purpose::Refill,
        }
    }

    /// The treasury and its nonce, where nothing else may be carried with that; all else has any sponsor's next one.
    pub(super) const fn place(self) -> Option<(Address, u64)> {
        match self {
            Load::Refill(refill) => Some((refill.treasury, refill.nonce)),
            Load::Payment(_) | Load::Cancellation(_) | Load::Clearing(_) => None,
        }
    }

    /// What rests where it cannot be carried now.
    pub(super) fn resting(self) -> Resting {
        Resting::of(self.purpose(), self.id())
    }

    /// All attempts of it, also those that carried something else.
    pub(super) fn attempts(self) -> &'o [Attempt] {
        match self {
            Load::Payment(of) | Load::Cancellation(of) => &of.attempts,
            Load::Clearing(clearing) => &clearing.attempts,
            Load::Refill(refill) => &refill.attempts,
        }
    }

    /// Whether the attempt carries it as it was signed last: nothing else is signed or sent.
    pub(super) fn is_current(self, attempt: &Attempt) -> bool {
        attempt.purpose == self.purpose()
            && match self {
                Load::Payment(of) => of.is_current(attempt),
                Load::Cancellation(_) | Load::Clearing(_) | Load::Refill(_) => true,
            }
    }

    /// The intent that an attempt of it carries or ends, by its deadline.
    pub(super) fn deadline_secs(self) -> u64 {
        match self {
            Load::Payment(of) | Load::Cancellation(of) => of.signed().map_or(0, |signed| signed.deadline_secs),
            Load::Clearing(_) | Load::Refill(_) => 0,
        }
    }

    /// The wallet for which a delegate must act.
    pub(super) fn delegated(self) -> Option<Address> {
        match self {
            Load::Payment(of) if of.transfer.is_by_delegate() => Some(of.transfer.source),
            Load::Payment(_) | Load::Cancellation(_) | Load::Clearing(_) | Load::Refill(_) => None,
        }
    }
}

impl Open {
    /// What of each transfer may be carried, what takes delegates away, and refills: each thing that has an attempt, or may have one.
    pub(super) fn all(&self) -> impl Iterator<Item = Load<'_>> {
        let of_transfer = |of| if is_ended(of) { Load::Cancellation(of) } else { Load::Payment(of) };
        let beside = self.clearings.iter().map(Load::Clearing).chain(self.refills.iter().map(Load::Refill));
        self.transfers.iter().map(of_transfer).chain(beside)
    }

    /// What is to be carried now: refills and what was cancelled first, and what takes delegates away last.
    pub(super) fn loads(&self, now: Timestamp) -> Vec<Load<'_>> {
        let rank = |load: &Load<'_>| match load {
            Load::Cancellation(_) | Load::Refill(_) => 0,
            Load::Payment(_) => 1,
            Load::Clearing(_) => 2,
        };
        let is_carried = |load: &Load<'_>| match load {
            Load::Payment(of) => !of.is_guarded() && may_be_carried(of, self.head_time, now),
            Load::Cancellation(of) => of.cancellation.is_some() && may_be_ended(of, self.head_time),
            Load::Clearing(clearing) => clearing.tuples.iter().any(|tuple| tuple.signature.is_some()),
            Load::Refill(_) => true,
        };
        let mut loads: Vec<Load<'_>> = self.all().filter(is_carried).collect();
        loads.sort_by_key(rank);
        loads
    }
}

/// Whether something may be sent for it: it is signed, neither paid nor cancelled, and its window is open by both clocks.
pub(super) fn may_be_carried(of: &OpenTransfer, head_time: Option<Timestamp>, now: Timestamp) -> bool {
    let waits = matches!(of.transfer.state, State::Accepted | State::Carried) && of.transfer.cancelled_at.is_none();
    let Some(signed) = of.signed().filter(|_| waits && of.marks.is_empty()) else { return false };
    let is_open = |at: Timestamp| secs(at) < signed.deadline_secs;
    is_open(now) && head_time.is_none_or(is_open)
}

/// Whether the token may still be asked to refuse its payment: a person cancelled it, and an attempt may have left. No block
/// shows its key used, and by the chain's own clock it can be paid.
pub(super) fn may_be_ended(of: &OpenTransfer, head_time: Option<Timestamp>) -> bool {
    let Some(signed) = of.signed().filter(|_| is_ended(of) && of.marks.is_empty()) else { return false };
    head_time.is_none_or(|head| secs(head) < signed.deadline_secs)
}

/// Whether a person cancelled what may have left, and its token takes that from anybody.
fn is_ended(of: &OpenTransfer) -> bool {
    let has_left = matches!(of.transfer.state, State::Carried | State::Expiring);
    has_left && of.transfer.cancelled_at.is_some() && of.transfer.route == Route::ERC3009
}
