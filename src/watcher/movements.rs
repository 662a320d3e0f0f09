//! Records the other side of the books with a block: what left watched addresses, the fees that they paid, and what came to
//! them without being a deposit.
//!
//! Debits and fees are of listed assets only, as deposits are. Nothing is recorded twice; which blocks count is told by the
//! blocks.

use landfall_chain::{Address, Block, Lane, Network};

use crate::store::{Tx, accounts, movements, unattributed};
use crate::watcher::TickError;
use crate::watcher::leg::{leg_of, prove_signer};
use crate::watcher::watch_list::WatchList;

/// For whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Whose {
    /// Everyone on the watch list.
    WatchedNow,
    /// Those who were watched at the block: a trace is read after its block was connected, for a list that has grown.
    WatchedThen,
}

/// Records what left watched addresses by `block`, as `lane` shows it, what they paid, and what else came to them.
pub(super) async fn record(
    tx: &mut Tx,
    network: &Network,
    watch_list: &WatchList,
    block: &Block,
    lane: Lane,
    whose: Whose,
) -> Result<(), TickError> {
    let (chain, at) = (network.chain, &block.header.block);
    for transfer in block.debits().iter().filter(|transfer| network.asset(&transfer.asset).is_some()) {
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
    for rejected in block.unattributed.iter().filter(|rejected| watch_list.contains(&rejected.transfer.recipient)) {
        let leg = leg_of(&network.chain_ref, &rejected.transfer).hash();
        unattributed::insert(tx, chain, at, &leg, rejected).await?;
    }
    Ok(())
}

/// Whether there is anything of this in `block` for an address that `is_ours`.
pub(super) fn concerns(block: &Block, is_ours: impl Fn(&Address) -> bool) -> bool {
    block.debits().iter().any(|debit| is_ours(&debit.sender))
        || block.fees.iter().any(|fee| is_ours(&fee.payer))
        || block.unattributed.iter().any(|rejected| is_ours(&rejected.transfer.recipient))
}
