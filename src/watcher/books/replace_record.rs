//! Replaces our record of a block that one endpoint reported by what two report.
//!
//! Where no roots prove a block, we record what one endpoint reports while no other answers. It may have left something
//! out or made something up.
//! Promises: the transaction that records "two endpoints report this block" also does the following:
//! - it records everything that the block shows of those who were watched at it;
//! - it removes what the block does not show.
//!
//! What is CONFIRMED stays. So does what is of an asset that is not listed (any more), for no block shows it.
//! Deliberately not here: CONFIRMED and FAILED. A deposit that was removed is looked for like any that is in no block.

use landfall_chain::{Block, Chain, Lane, Network, Proof};
use tracing::{error, warn};

use crate::deposit::DepositStatus;
use crate::store::cursors::{self, Cursor};
use crate::store::{Connection, StoreError, Tx, deposits, marks};
use crate::time::Timestamp;
use crate::watcher::TickError;
use crate::watcher::books::Books;
use crate::watcher::books::leg::shows;
use crate::watcher::books::matched::Matched;
use crate::watcher::books::movements;
use crate::watcher::books::record::Whose;

/// Whether two report `block`, and only one endpoint reported our record of it.
pub(in crate::watcher) async fn is_weaker(
    connection: &mut impl Connection,
    chain: Chain,
    block: &Block,
) -> Result<bool, StoreError> {
    match block.proof {
        Proof::TwoEndpoints => cursors::is_reported_by_one(connection, chain, &block.header.block.hash).await,
        Proof::Roots | Proof::Bloom | Proof::OneEndpoint => Ok(false),
    }
}

/// Removes from our record of `block` what it does not show.
pub(in crate::watcher) async fn take_out(tx: &mut Tx, network: &Network, block: &Block) -> Result<(), StoreError> {
    let at = &block.header.block;
    for deposit in deposits::in_block(tx, network.chain, &at.hash, Lane::Block).await? {
        if network.asset(&deposit.asset).is_none() || shows(network, &block.transfers, &deposit) {
            continue;
        }
        let (chain, id, of) = (network.chain, deposit.id, deposit.tx.id);
        if deposit.status == DepositStatus::Confirmed {
            error!(%chain, tx = %of, "deposit {id} is CONFIRMED on one endpoint's word of block {at}, and two tell it without");
            continue;
        }
        warn!(%chain, tx = %of, "one endpoint told deposit {id} in block {at}, and two tell it without");
        deposits::exclude(tx, &deposit, at).await?;
    }
    marks::take_out(tx, network.chain, block).await?;
    movements::take_out(tx, network, block).await
}

impl<S> Books<S> {
    /// Replaces our record of `block` by what it shows, of which this is `matched`; returns how many deposits became
    /// PENDING by it. The caller has checked with `is_weaker`.
    pub(in crate::watcher) async fn replace_record(
        &self,
        tx: &mut Tx,
        cursor: &Cursor,
        block: &Block,
        matched: &Matched,
        now: Timestamp,
    ) -> Result<u64, TickError> {
        take_out(tx, &self.network, block).await?;
        let recorded = self.record_block(tx, cursor, matched, (Lane::Block, Whose::WatchedThen), now).await?;
        cursors::strengthen(tx, self.chain(), &block.header.block, block.proof).await?;
        Ok(recorded.pending)
    }
}
