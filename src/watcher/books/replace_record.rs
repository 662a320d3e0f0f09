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

use landfall_chain::{Block, BlockSource, Chain, Lane, Network, Proof};
use tracing::{error, warn};

use crate::deposit::DepositStatus;
use crate::store::{Connection, StoreError, Tx, accounts, cursors, deposits};
use crate::time::Timestamp;
use crate::watcher::books::leg::WatchedLeg;
use crate::watcher::books::leg::shows;
use crate::watcher::books::movements::{self, Whose};
use crate::watcher::{TickError, Watcher};

/// Whether two report `block`, and our record of it stands on one endpoint's word.
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
    movements::take_out(tx, network, block).await
}

impl<S: BlockSource> Watcher<S> {
    /// Replaces our record of `block` by what it shows; returns how many deposits became PENDING by it. The caller has
    /// checked with `is_outweighed`.
    pub(in crate::watcher) async fn replace_record(
        &self,
        tx: &mut Tx,
        block: &Block,
        now: Timestamp,
    ) -> Result<u64, TickError> {
        let Watcher { network, watch_list, .. } = self;
        let (chain, at) = (network.chain, &block.header.block);
        take_out(tx, network, block).await?;
        let mut pending = 0;
        for leg in WatchedLeg::among(&block.transfers, network, watch_list) {
            let from = accounts::watched_from(tx, chain, leg.recipient()).await?;
            if from.is_some_and(|from| from <= at.number) {
                pending += u64::from(leg.record(tx, block, Lane::Block, now).await?);
            }
        }
        movements::record(tx, network, watch_list, block, Lane::Block, Whose::WatchedThen).await?;
        cursors::strengthen(tx, chain, at, block.proof).await?;
        Ok(pending)
    }
}
