//! Records the other side of the books with a block: what left watched addresses, the fees that they paid, and what came to
//! them without being a deposit.
//!
//! Debits and fees are of listed assets only, as deposits are. Nothing is recorded twice; which blocks count is told by the
//! blocks.

use std::fmt;

use landfall_chain::{Address, AssetId, Block, Lane, Network, TxId, U256};

use crate::deposit::LegHash;
use crate::store::{Connection, Tx, accounts, movements, unattributed};
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

/// What left a watched address, or what it paid for a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Movement {
    Debit,
    Fee,
}

impl fmt::Display for Movement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Movement::Debit => "debit",
            Movement::Fee => "fee",
        })
    }
}

/// One movement, as the block shows it or the record has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Booked {
    pub(super) movement: Movement,
    pub(super) of: Address,
    pub(super) tx: TxId,
    /// The leg, or the amount.
    what: [u8; 32],
}

/// Where the record of debits and fees differs from what `block` shows of those who were watched at it: what it lacks, and
/// what is not in the block.
pub(super) async fn compare(
    connection: &mut impl Connection,
    network: &Network,
    watch_list: &WatchList,
    block: &Block,
    lane: Lane,
) -> Result<(Vec<Booked>, Vec<Booked>), TickError> {
    let (chain, at) = (network.chain, &block.header.block);
    let counts = |asset: &AssetId, of: &Address| network.asset(asset).is_some() && watch_list.contains(of);
    let debit = |of, tx, leg: LegHash| Booked { movement: Movement::Debit, of, tx, what: leg.0 };
    let fee = |of, tx, amount: U256| Booked { movement: Movement::Fee, of, tx, what: amount.to_be_bytes() };

    let debits = block.debits().iter().filter(|debit| counts(&debit.asset, &debit.sender));
    let mut shown: Vec<Booked> =
        debits.map(|it| debit(it.sender, it.tx.id, leg_of(&network.chain_ref, it).hash())).collect();
    let debits = movements::debits_in(connection, chain, &at.hash, lane).await?;
    let debits = debits.into_iter().filter(|debit| counts(&debit.asset, &debit.sender));
    let mut recorded: Vec<Booked> = debits.map(|it| debit(it.sender, it.tx, it.leg)).collect();
    if lane == Lane::Roots {
        let fees = block.fees.iter().filter(|fee| watch_list.contains(&fee.payer));
        shown.extend(fees.map(|it| fee(it.payer, it.tx.id, it.amount)));
        let fees = movements::fees_in(connection, chain, &at.hash).await?;
        let fees = fees.into_iter().filter(|(_, payer, _)| watch_list.contains(payer));
        recorded.extend(fees.map(|(tx, payer, amount)| fee(payer, tx, amount)));
    }
    let mut missing = Vec::new();
    for booked in shown.iter().filter(|booked| !recorded.contains(booked)) {
        let from = accounts::watched_from(connection, chain, &booked.of).await?;
        if from.is_some_and(|from| from <= at.number) {
            missing.push(booked.clone());
        }
    }
    recorded.retain(|booked| !shown.contains(booked));
    Ok((missing, recorded))
}

/// Whether there is anything of this in `block` for an address that `is_ours`.
pub(super) fn concerns(block: &Block, is_ours: impl Fn(&Address) -> bool) -> bool {
    block.debits().iter().any(|debit| is_ours(&debit.sender))
        || block.fees.iter().any(|fee| is_ours(&fee.payer))
        || block.unattributed.iter().any(|rejected| is_ours(&rejected.transfer.recipient))
}
