//! Makes our record of a block that stands on one endpoint's word what two tell of it.
//!
//! Where no roots prove a block, what one endpoint told of it while no other could be heard is on record. It may have left
//! something out, or made something up.
//! Promises: from the transaction on in which the record says that two reported a block, all that it shows of those who were
//! watched at it is on record, and what it does not show counts there no more; what is CONFIRMED stays, and so does what is
//! of an asset that is not listed (any more), which no block shows. Deliberately not here: CONFIRMED and FAILED. A deposit
//! that was taken out is looked for as any that is in no block.

use landfall_chain::{Block, BlockSource, Chain, Lane, Network, Proof};
use tracing::{error, warn};

use crate::deposit::DepositStatus;
use crate::store::{Connection, StoreError, Tx, accounts, cursors, deposits};
use crate::time::Timestamp;
use crate::watcher::books::leg::WatchedLeg;
use crate::watcher::books::movements::{self, Whose};
use crate::watcher::settle::evidence::shows;
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

/// Takes out of our record of `block` what it does not show.
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
    /// Makes our record of `block`, which is outweighed, what it shows; how many deposits became PENDING by it.
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
