//! Records the other side of the books with a block: legs out of watched addresses, and the fees that they paid.
//!
//! Only listed assets count, as for deposits. Nothing is recorded twice; which blocks count is told by the blocks.

use landfall_chain::{Block, Lane, Network};

use crate::store::movements;
use crate::store::{Tx, accounts};
use crate::watcher::TickError;
use crate::watcher::connect::{leg_of, prove_signer};
use crate::watcher::watch_list::WatchList;

/// For whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Whose {
    /// Everyone on the watch list.
    WatchedNow,
    /// Those who were watched at the block: a trace is read after its block was connected, for a list that has grown.
    WatchedThen,
}

/// Records what left watched addresses by `block`, as `lane` shows it, and what they paid.
pub(super) async fn record(
    tx: &mut Tx,
    network: &Network,
    watch_list: &WatchList,
    block: &Block,
    lane: Lane,
    whose: Whose,
) -> Result<(), TickError> {
    let (chain, at) = (network.chain, &block.header.block);
    for transfer in block.transfers.iter().filter(|transfer| network.asset(&transfer.asset).is_some()) {
        if !watch_list.contains(&transfer.sender) {
            continue;
        }
        if whose == Whose::WatchedThen {
            let from = accounts::watched_from(tx, chain, &transfer.sender).await?;
            if from.is_none_or(|from| at.number < from) {
                continue;
            }
        }
        prove_signer(&block.signers, &transfer.tx)?;
        movements::debit(tx, chain, at, lane, &leg_of(&network.chain_ref, transfer).hash(), transfer).await?;
    }
    for fee in block.fees.iter().filter(|fee| watch_list.contains(&fee.payer)) {
        prove_signer(&block.signers, &fee.tx)?;
        movements::fee(tx, chain, at, fee).await?;
    }
    Ok(())
}
