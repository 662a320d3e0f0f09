//! Records what a block holds of watched addresses: the one way by which legs and movements come into the books,
//! whoever has read the block.
//!
//! Promises:
//! - A block is recorded only with what was selected from the newest watch list, under the lock of the chain's cursor.
//! - Nothing is recorded twice.
//! - Whoever a reference to a transaction names as its signer has signed it.
//!
//! Which movements count depends on which blocks are canonical. Deliberately not here: that, and the block itself.

use landfall_chain::{Address, Lane, Network};

use crate::deposit::{Deposit, DepositStatus};
use crate::store::cursors::Cursor;
use crate::store::{StoreError, Tx, accounts, marks, movements, sponsors, unattributed};
use crate::time::Timestamp;
use crate::watcher::TickError;
use crate::watcher::books::Books;
use crate::watcher::books::leg::{leg_of, prove_signer};
use crate::watcher::books::matched::Matched;

/// Whose legs and movements are recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::watcher) enum Whose {
    /// Everyone on the watch list.
    WatchedNow,
    /// Everyone who was watched at the block: it was connected before, and the list may have grown.
    WatchedThen,
}

#[derive(Debug, Default)]
pub(in crate::watcher) struct Recorded {
    /// How many deposits became PENDING by it, including those that became so again.
    pub(in crate::watcher) pending: u64,
    /// The deposits of its legs that are PENDING now.
    pub(in crate::watcher) deposits: Vec<Deposit>,
    /// Whether the block pays any of them, or moves away what is theirs.
    pub(in crate::watcher) concerns_us: bool,
}

impl<S> Books<S> {
    /// Records what is `matched` of a block, as `lane` shows it. `cursor` is the chain's, locked in this transaction.
    pub(in crate::watcher) async fn record_block(
        &self,
        tx: &mut Tx,
        cursor: &Cursor,
        matched: &Matched,
        (lane, whose): (Lane, Whose),
        now: Timestamp,
    ) -> Result<Recorded, TickError> {
        let (network, chain, at) = (&self.network, self.chain(), &matched.header.block);
        if !matched.is_current(cursor) {
            let reason = format!("block {at} is matched with addresses up to {}", matched.watch_seq);
            return Err(StoreError::Inconsistent { what: "watch list", reason }.into());
        }
        let counted = Counted { network, number: at.number, whose };
        let mut recorded = Recorded::default();
        for leg in matched.watched_legs(network) {
            if !counted.has(tx, leg.recipient()).await? {
                continue;
            }
            prove_signer(&matched.signers, &leg.transfer.tx)?;
            recorded.concerns_us = true;
            if let Some((deposit, became_pending)) = leg.record(tx, &matched.header, lane, now).await? {
                recorded.pending += u64::from(became_pending);
                recorded.deposits.extend(Some(deposit).filter(|deposit| deposit.status == DepositStatus::Pending));
            }
        }
        for debit in &matched.debits {
            if counted.has(tx, &debit.sender).await? {
                prove_signer(&matched.signers, &debit.tx)?;
                recorded.concerns_us = true;
                movements::debit(tx, chain, at, lane, &leg_of(&network.chain_ref, debit).hash(), debit).await?;
            }
        }
        for fee in &matched.fees {
            if counted.has(tx, &fee.payer).await? {
                prove_signer(&matched.signers, &fee.tx)?;
                movements::fee(tx, chain, at, fee).await?;
            }
        }
        for mark in &matched.marks {
            if counted.has(tx, &mark.payer).await? {
                marks::insert(tx, chain, at, mark).await?;
            }
        }
        for rejected in &matched.arrivals {
            if counted.has(tx, &rejected.transfer.recipient).await? {
                let leg = leg_of(&network.chain_ref, &rejected.transfer).hash();
                unattributed::insert(tx, chain, at, &leg, rejected).await?;
            }
        }
        Ok(recorded)
    }
}

/// Whose movements count in a block.
struct Counted<'n> {
    network: &'n Network,
    number: u64,
    whose: Whose,
}

impl Counted<'_> {
    /// Whether what is of `address`, which is on the watch list, is recorded.
    async fn has(&self, tx: &mut Tx, address: &Address) -> Result<bool, StoreError> {
        match self.whose {
            Whose::WatchedNow => Ok(true),
            Whose::WatchedThen => {
                let chain = self.network.chain;
                let from = match accounts::watched_from(tx, chain, address).await? {
                    Some(from) => Some(from),
                    None => sponsors::seen_from(tx, chain, address).await?,
                };
                Ok(from.is_some_and(|from| from <= self.number))
            }
        }
    }
}
