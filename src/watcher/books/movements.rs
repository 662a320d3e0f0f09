//! The other side of the books: what left watched addresses, the fees that they paid, and what came to them without
//! being a deposit. It compares our record with a block, and removes from it what a block does not show.
//!
//! Only debits and fees of listed assets count, as with deposits. Deliberately not here: writing them (`record`).

use std::collections::HashSet;
use std::fmt;

use landfall_chain::{Address, AssetId, AssetTransfer, Block, Fee, Lane, Network, Proof, Rejected, TxId, Verdict};

use crate::deposit::LegHash;
use crate::store::movements::Paid;
use crate::store::unattributed::Arrived;
use crate::store::{Connection, StoreError, Tx, accounts, movements, unattributed};
use crate::watcher::TickError;
use crate::watcher::books::leg::{leg_of, prove_signer};
use crate::watcher::books::watch_list::WatchList;

/// Removes from our record of `block` (of the lane of the roots) what it does not show.
pub(in crate::watcher) async fn take_out(tx: &mut Tx, network: &Network, block: &Block) -> Result<(), StoreError> {
    let (chain, at) = (network.chain, &block.header.block);
    let is_listed = |asset: &AssetId| network.asset(asset).is_some();
    let leg = |transfer: &AssetTransfer| leg_of(&network.chain_ref, transfer).hash();
    // Who paid is no part of a leg.
    let debits: HashSet<(LegHash, Address)> = block.debits().iter().map(|debit| (leg(debit), debit.sender)).collect();
    for debited in movements::debits_in(tx, chain, &at.hash).await? {
        if debited.lane == Lane::Block && is_listed(&debited.asset) && !debits.contains(&(debited.leg, debited.sender))
        {
            movements::undebit(tx, chain, at, &debited).await?;
        }
    }
    for paid in movements::fees_in(tx, chain, &at.hash).await? {
        let shown =
            |fee: &Fee| Paid { tx: fee.tx.id, payer: fee.payer, amount: fee.amount, outlay: fee.outlay } == paid;
        if !block.fees.iter().any(shown) {
            movements::undo_fee(tx, chain, at, &paid.tx, &paid.payer).await?;
        }
    }
    let came = block.unattributed.iter().map(|rejected| (leg(&rejected.transfer), rejected.verdict.code()));
    // What came to sponsors.
    let legs = block.transfers.iter().map(|transfer| (leg(transfer), Verdict::OwnGasTopup.code()));
    let came: HashSet<(LegHash, &str)> = came.chain(legs).collect();
    for arrived in unattributed::in_block(tx, chain, &at.hash).await? {
        if is_listed(&arrived.asset) && !came.contains(&(arrived.leg, arrived.reason.as_str())) {
            unattributed::remove(tx, chain, at, &arrived).await?;
        }
    }
    Ok(())
}

/// A debit of a watched address, a fee that it paid, or an arrival that is no deposit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Movement {
    Debit,
    Fee,
    Arrival,
}

impl fmt::Display for Movement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Movement::Debit => "debit",
            Movement::Fee => "fee",
            Movement::Arrival => "arrival",
        })
    }
}

/// A movement that only one of the two has: the block or our record.
#[derive(Debug)]
pub(in crate::watcher) struct Unmatched {
    pub(in crate::watcher) movement: Movement,
    pub(in crate::watcher) of: Address,
    pub(in crate::watcher) tx: TxId,
    pub(in crate::watcher) proof: Proof,
    pub(in crate::watcher) is_on_record: bool,
}

/// Where our record of debits, fees and arrivals differs from what `block` shows of those who were watched at it. All
/// endpoints may report different amounts for a part of a fee that no root proves. There it is enough that a fee is on
/// record.
///
/// A debit that a trace showed once and shows no longer is no difference: both readings of a dispute are on record.
pub(in crate::watcher) async fn compare(
    connection: &mut impl Connection,
    network: &Network,
    watch_list: &WatchList,
    block: &Block,
    lane: Lane,
) -> Result<Vec<Unmatched>, TickError> {
    let (chain, at) = (network.chain, &block.header.block);
    let counts = |asset: &AssetId, of: &Address| network.asset(asset).is_some() && watch_list.contains(of);
    let on_record = movements::debits_in(connection, chain, &at.hash).await?;
    let (mut missing, mut unmatched) = (Vec::new(), Vec::new());
    let mut shown = HashSet::new();
    for debit in block.debits().iter().filter(|debit| counts(&debit.asset, &debit.sender)) {
        let leg = leg_of(&network.chain_ref, debit).hash();
        shown.insert(leg);
        // In any lane: under another setting a trace may have shown it.
        if !on_record.iter().any(|debited| debited.leg == leg) {
            missing.push((Movement::Debit, debit.sender, &debit.tx, block.proof));
        }
    }
    if lane == Lane::Block {
        let of_roots =
            on_record.iter().filter(|debited| debited.lane == lane && counts(&debited.asset, &debited.sender));
        for debited in of_roots.filter(|debited| !shown.contains(&debited.leg)) {
            let (of, tx, proof) = (debited.sender, debited.tx, block.proof);
            unmatched.push(Unmatched { movement: Movement::Debit, of, tx, proof, is_on_record: true });
        }
        let fees = movements::fees_in(connection, chain, &at.hash).await?;
        let is_same = |fee: &Fee, Paid { tx, payer, amount, .. }: &Paid| {
            fee.tx.id == *tx && fee.payer == *payer && (fee.amount == *amount || !fee.proved)
        };
        for fee in block.fees.iter().filter(|fee| watch_list.contains(&fee.payer)) {
            if !fees.iter().any(|recorded| is_same(fee, recorded)) {
                let proof = if fee.proved { block.proof } else { Proof::OneEndpoint };
                missing.push((Movement::Fee, fee.payer, &fee.tx, proof));
            }
        }
        // Where a part of the fees is in no root, a fee that is not wholly reported is left out of the block.
        let proof = if block.fees.iter().any(|fee| fee.proved) { block.proof } else { Proof::OneEndpoint };
        let gone = fees.into_iter().filter(|fee| !block.fees.iter().any(|shown| is_same(shown, fee)));
        unmatched.extend(gone.filter(|paid| watch_list.contains(&paid.payer)).map(|paid| Unmatched {
            movement: Movement::Fee,
            of: paid.payer,
            tx: paid.tx,
            proof,
            is_on_record: true,
        }));
        let came = unattributed::in_block(connection, chain, &at.hash).await?;
        let is_same = |rejected: &Rejected, arrived: &Arrived| {
            let leg = leg_of(&network.chain_ref, &rejected.transfer).hash();
            (arrived.leg, arrived.reason.as_str()) == (leg, rejected.verdict.code())
        };
        for rejected in block.unattributed.iter().filter(|it| watch_list.contains(&it.transfer.recipient)) {
            if !came.iter().any(|arrived| is_same(rejected, arrived)) {
                let Rejected { transfer, .. } = rejected;
                missing.push((Movement::Arrival, transfer.recipient, &transfer.tx, block.proof));
            }
        }
        let gone = came.into_iter().filter(|it| !block.unattributed.iter().any(|rejected| is_same(rejected, it)));
        unmatched.extend(gone.filter(|arrived| counts(&arrived.asset, &arrived.recipient)).map(|arrived| Unmatched {
            movement: Movement::Arrival,
            of: arrived.recipient,
            tx: arrived.tx,
            proof: block.proof,
            is_on_record: true,
        }));
    }
    // Without this proof a false signer would make a difference.
    let gone: HashSet<TxId> = unmatched.iter().map(|unmatched| unmatched.tx).collect();
    let of_gone = block.debits().iter().map(|debit| &debit.tx).chain(block.fees.iter().map(|fee| &fee.tx));
    let of_gone = of_gone.chain(block.unattributed.iter().map(|rejected| &rejected.transfer.tx));
    for tx in of_gone.filter(|tx| gone.contains(&tx.id)).chain(missing.iter().map(|(_, _, tx, _)| *tx)) {
        prove_signer(&block.signers, tx)?;
    }
    for (movement, of, tx, proof) in missing {
        let from = accounts::watched_from(connection, chain, &of).await?;
        if from.is_some_and(|from| from <= at.number) {
            unmatched.push(Unmatched { movement, of, tx: tx.id, proof, is_on_record: false });
        }
    }
    Ok(unmatched)
}
