//! A chain's transfers that are not terminal, and what else is carried, as they are on record at one moment.

use std::collections::HashMap;

use landfall_chain::{BlockRef, Chain, Effect, Route};

use crate::sender::{HEAD_AGE_SECS, IN_HAND_MAX, LEFT_MIN_SECS};
use crate::store::attempts::{self, Attempt, IntentRow};
use crate::store::clearings::{self, Clearing};
use crate::store::cursors::{self, Cursor};
use crate::store::marks::{self, Seen};
use crate::store::refills::{self, Refilling};
use crate::store::{Connection, StoreError, cancellations, transfers};
use crate::time::Timestamp;
use crate::transfer::{Obstacle, State, Transfer, TransferId, WINDOW};

#[derive(Debug)]
pub(super) struct Open {
    /// The newest connected block.
    pub(super) head: Option<BlockRef>,
    /// Its time, as the chain says it.
    pub(super) head_time: Option<Timestamp>,
    /// The newest final block, and its time.
    pub(super) finalized: Option<(BlockRef, Timestamp)>,
    /// The oldest first.
    pub(super) transfers: Vec<OpenTransfer>,
    /// What takes delegates away.
    pub(super) clearings: Vec<Clearing>,
    /// What the treasury gives sponsors, as far as final blocks do not show its nonce used.
    pub(super) refills: Vec<Refilling>,
    /// Attempts of transfers that are not terminal, and not in hand: their nonces are taken.
    pub(super) others: Vec<Attempt>,
}

/// A transfer that is not terminal.
#[derive(Debug)]
pub(super) struct OpenTransfer {
    pub(super) transfer: Transfer,
    /// What was signed, or is going to be; the latest deadline last.
    pub(super) intents: Vec<IntentRow>,
    /// By nonce.
    pub(super) attempts: Vec<Attempt>,
    /// Uses of its intent in canonical blocks, at the contract that pays it.
    pub(super) marks: Vec<Seen>,
    /// How often a reorg took back the block that included it.
    pub(super) displaced: usize,
    /// The payer's signature that ends it.
    pub(super) cancellation: Option<Vec<u8>>,
}

/// How often a transfer that a reorg took back is signed again with a later deadline.
const HEALS_MAX: usize = 3;

impl Open {
    pub(super) async fn read(
        connection: &mut impl Connection,
        chain: Chain,
        now: Timestamp,
    ) -> Result<Open, StoreError> {
        let cursor = Cursor::load(connection, chain).await?;
        let transfers = transfers::unfinished(connection, chain, IN_HAND_MAX, now).await?;
        let mut open: HashMap<TransferId, OpenTransfer> = HashMap::new();
        let order: Vec<TransferId> = transfers.iter().map(|transfer| transfer.id).collect();
        let mut others = Vec::new();
        if !order.is_empty() {
            let empty = |transfer: Transfer| {
                let (intents, attempts, marks) = (Vec::new(), Vec::new(), Vec::new());
                let of = OpenTransfer { intents, attempts, marks, displaced: 0, cancellation: None, transfer };
                (of.transfer.id, of)
            };
            open = transfers.into_iter().map(empty).collect();
            for intent in attempts::intents(connection, chain).await? {
                if let Some(of) = open.get_mut(&intent.transfer_id) {
                    of.intents.push(intent);
                }
            }
            for attempt in attempts::of_unfinished(connection, chain).await? {
                match open.get_mut(&attempt.transfer_id) {
                    Some(of) => of.attempts.push(attempt),
                    None => others.push(attempt),
                }
            }
            for (id, mark) in marks::of_unfinished(connection, chain).await? {
                // The same key at another contract is another one-time key.
                if let Some(of) = open.get_mut(&id).filter(|of| of.transfer.asset == mark.asset) {
                    of.marks.push(mark);
                }
            }
        }
        for (id, signature) in cancellations::of_unfinished(connection, chain).await? {
            if let Some(of) = open.get_mut(&id) {
                of.cancellation = Some(signature);
            }
        }
        for (id, times) in transfers::displaced(connection, chain).await? {
            if let Some(of) = open.get_mut(&id) {
                of.displaced = times;
            }
        }
        let time_of = async |connection: &mut _, block: Option<BlockRef>| match block {
            Some(block) => cursors::time_of(connection, chain, &block).await,
            None => Ok(None),
        };
        let head_time = time_of(connection, cursor.at).await?;
        let final_time = time_of(connection, cursor.finalized).await?;
        Ok(Open {
            head: cursor.at,
            head_time,
            finalized: cursor.finalized.zip(final_time),
            transfers: order.iter().filter_map(|id| open.remove(id)).collect(),
            clearings: clearings::under_way(connection, chain).await?,
            refills: refills::open(connection, chain).await?,
            others,
        })
    }
}

impl OpenTransfer {
    /// The mark that pays exactly what was accepted.
    pub(super) fn payment(&self) -> Option<&Seen> {
        let Transfer { destination, amount, .. } = self.transfer;
        self.marks.iter().find(|mark| mark.effect == Effect::Paid { destination, amount })
    }

    /// What it fails with once it is proved that nobody paid it: what kept it from being signed, or the chain's refusal of
    /// what would have carried it, where nothing was handed to a node.
    pub(super) fn obstacle(&self) -> Option<Obstacle> {
        let is_of_the_chain = |obstacle: &Obstacle| match obstacle {
            Obstacle::Cancelled | Obstacle::AccountNotActive => false,
            Obstacle::SimulationFailed
            | Obstacle::InsufficientFunds
            | Obstacle::DestinationRefused
            | Obstacle::TokenPaused => true,
        };
        let is_it = |obstacle: &Obstacle| self.intents.is_empty() || is_of_the_chain(obstacle);
        // What a copy of the store has carried is none of ours to explain.
        self.transfer.obstacle.filter(is_it).filter(|_| self.transfer.state == State::Accepted)
    }

    /// The last second of its window by the chain's clock: no block of this time, or of a later one, can pay it.
    pub(super) fn deadline_secs(&self) -> u64 {
        let accepted = secs(self.transfer.deadline);
        self.intents.last().map_or(accepted, |intent| intent.deadline_secs.max(accepted))
    }

    /// Whether its window is over, and it is signed again with a later deadline all the same: a reorg took it back since
    /// it was last signed. No longer once a final block, `final_time` being that of the newest, proves that nothing was
    /// paid: a copy of the store may have said so. What such a copy has connected may be ahead of us.
    pub(super) fn is_healed(&self, final_time: Option<Timestamp>, now: Timestamp) -> bool {
        let heals = self.intents.len().saturating_sub(1);
        // One that was asked for, and whose signature is not on record.
        let is_asked = self.intents.last().is_some_and(|intent| intent.signature.is_none());
        let may = if is_asked {
            heals > 0 && secs(now) + LEFT_MIN_SECS <= self.deadline_secs()
        } else {
            let is_proved = final_time.is_some_and(|time| secs(time) + HEAD_AGE_SECS >= self.deadline_secs());
            heals < HEALS_MAX && self.displaced > heals && secs(now) >= self.deadline_secs() && !is_proved
        };
        // On Solana the deadline stands in no transaction, and a copy of the store that knows of the first alone counts from that.
        may && !self.is_guarded()
            && self.transfer.state == State::Carried
            && self.marks.is_empty()
            && self.transfer.cancelled_at.is_none()
    }

    /// The deadline of its next signature. Those that heal stand a whole number of windows behind the first, so that a
    /// copy of the store asks for the same ones.
    pub(super) fn next_deadline_secs(&self, now: Timestamp) -> u64 {
        let last = self.deadline_secs();
        if self.intents.last().is_none_or(|intent| intent.signature.is_none()) {
            return last;
        }
        let windows = (secs(now) + LEFT_MIN_SECS).saturating_sub(last).div_ceil(WINDOW.as_secs());
        last + windows * WINDOW.as_secs()
    }

    /// Whether the attempt carries what was signed last.
    pub(super) fn is_current(&self, attempt: &Attempt) -> bool {
        self.signed().is_some_and(|signed| signed.deadline_secs == attempt.deadline_secs)
    }

    /// Whether each transaction that pays it makes its guard.
    pub(super) fn is_guarded(&self) -> bool {
        self.transfer.route == Route::GUARD
    }

    /// What was signed last.
    pub(super) fn signed(&self) -> Option<&IntentRow> {
        self.intents.iter().rfind(|intent| intent.signature.is_some())
    }
}

/// Whole seconds since 1970, rounded down.
pub(super) fn secs(at: Timestamp) -> u64 {
    u64::try_from(at.0 / 1_000_000).unwrap_or(0)
}
