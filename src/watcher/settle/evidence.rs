//! Whether more would be credited than a block shows to be paid: what is CONFIRMED already is read, and the rest is
//! pure.
//!
//! Promises, for each transaction, asset and recipient: never more is CONFIRMED than was paid. What traces CONFIRM for an
//! address in one block is never more than was paid to it inside of its transactions, whichever reading shows it.

use landfall_chain::{AssetId, AssetTransfer, Block, BlockRef, Lane, Network, U256};

use crate::deposit::{Deposit, DepositStatus};
use crate::store::{StoreError, Tx, deposits, witnesses};
use crate::watcher::books::leg::shows;

/// What would be credited beyond what was paid.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::watcher) struct Excess {
    pub(in crate::watcher) credited: String,
    pub(in crate::watcher) paid: String,
    /// Where it was paid: names the transaction or the block.
    pub(in crate::watcher) of: String,
}

/// What is CONFIRMED and counts against a deposit.
#[derive(Clone, Debug, Default)]
pub(in crate::watcher) struct Credited {
    /// What its transaction paid to its recipient in its asset. The lane decides what is compared: the roots know the
    /// legs that they show and what they confirmed; the traces know everything.
    pub(in crate::watcher) in_tx: Vec<U256>,
    /// The same in the other form of the native currency.
    pub(in crate::watcher) in_other_form: Vec<U256>,
    /// What traces of the block reported to its recipient in its asset; empty where only roots show such legs.
    pub(in crate::watcher) by_traces: Vec<Deposit>,
}

/// What the reading that counts pays to a deposit's recipient in its asset.
#[derive(Clone, Copy, Debug)]
pub(in crate::watcher) struct Paid {
    /// By its transaction, inside and outside.
    pub(in crate::watcher) in_tx: U256,
    /// Inside of all transactions of the block.
    pub(in crate::watcher) in_block: U256,
}

impl Credited {
    pub(in crate::watcher) async fn of(
        tx: &mut Tx,
        network: &Network,
        block: &BlockRef,
        lane: Lane,
        deposit: &Deposit,
    ) -> Result<Self, StoreError> {
        let mut credited = Credited { in_tx: deposits::confirmed_of(tx, deposit, lane).await?, ..Credited::default() };
        if lane == Lane::Block
            && let Some(asset) = network.other_form(&deposit.asset)
        {
            let other = Deposit { asset, ..deposit.clone() };
            credited.in_other_form = deposits::confirmed_of(tx, &other, lane).await?;
        }
        if lane == Lane::Traces || is_logged(network, block, deposit) {
            let seen = witnesses::in_block(tx, network.chain, &block.hash).await?.into_iter().map(|seen| seen.deposit);
            let is_same = |it: &Deposit| (it.recipient, it.asset) == (deposit.recipient, deposit.asset);
            credited.by_traces = seen.filter(|it| is_same(it) && it.status == DepositStatus::Confirmed).collect();
        }
        Ok(credited)
    }

    /// What would be credited in excess if the deposit, which the proved `roots` show, became CONFIRMED; `None` if
    /// nothing.
    pub(in crate::watcher) fn excess_by_roots(
        &self,
        network: &Network,
        roots: &Block,
        deposit: &Deposit,
    ) -> Option<Excess> {
        let paid = paid_in_tx(&roots.transfers, deposit);
        let in_tx = Excess::unless_paid(sum(deposit.amount, &self.in_tx), paid, of_tx(deposit));
        // What is one form of the native currency now was the other under another setting, and is the same money.
        let in_both_forms = || {
            let other = Deposit { asset: network.other_form(&deposit.asset)?, ..deposit.clone() };
            let paid = paid.saturating_add(paid_in_tx(&roots.transfers, &other));
            let credited = sum(deposit.amount, self.in_tx.iter().chain(&self.in_other_form));
            Excess::unless_paid(credited, paid, of_tx(deposit))
        };
        // A trace may have reported the block before. If what was CONFIRMED by it is not among the logs, the same value
        // would be credited twice.
        let beside_traces = || {
            let denied = self.by_traces.iter().filter(|it| !shows(network, &roots.transfers, it));
            let paid = paid_in_block(&roots.transfers, deposit);
            let of = format!("block {}", roots.header.block.number);
            Excess::unless_paid(sum(paid, denied.map(|it| &it.amount)), paid, of)
        };
        in_tx.or_else(in_both_forms).or_else(beside_traces)
    }

    /// The same for a deposit that a trace of `block` shows, by a reading that paid `paid`.
    pub(in crate::watcher) fn excess_by_trace(
        &self,
        block: &BlockRef,
        paid: Paid,
        deposit: &Deposit,
    ) -> Option<Excess> {
        // Otherwise two readings that report the same value in different transactions would credit it twice.
        let in_block = || {
            let credited = sum(deposit.amount, self.by_traces.iter().map(|it| &it.amount));
            let of = format!("the inside of the transactions of block {}", block.number);
            Excess::unless_paid(credited, paid.in_block, of)
        };
        Excess::unless_paid(sum(deposit.amount, &self.in_tx), paid.in_tx, of_tx(deposit)).or_else(in_block)
    }
}

impl Excess {
    /// `None` if the credit is at most `paid`. `credited` is `None` beyond 2^256.
    fn unless_paid(credited: Option<U256>, paid: U256, of: String) -> Option<Self> {
        if credited.is_some_and(|credited| credited <= paid) {
            return None;
        }
        let credited = credited.map_or("more than 2^256".to_owned(), |credited| credited.to_string());
        Some(Excess { credited, paid: paid.to_string(), of })
    }
}

/// What `transfers` pay to the deposit's recipient in its transaction and asset.
pub(in crate::watcher) fn paid_in_tx<'t>(
    transfers: impl IntoIterator<Item = &'t AssetTransfer>,
    deposit: &Deposit,
) -> U256 {
    let same = transfers.into_iter().filter(|transfer| {
        (transfer.tx.id, transfer.asset, transfer.recipient) == (deposit.tx.id, deposit.asset, deposit.recipient)
    });
    same.fold(U256::ZERO, |sum, transfer| sum.saturating_add(transfer.amount))
}

/// What `transfers` of a block pay to the deposit's recipient in its asset.
pub(in crate::watcher) fn paid_in_block(transfers: &[AssetTransfer], deposit: &Deposit) -> U256 {
    let is_same = |leg: &&AssetTransfer| (leg.asset, leg.recipient) == (deposit.asset, deposit.recipient);
    transfers.iter().filter(is_same).fold(U256::ZERO, |sum, leg| sum.saturating_add(leg.amount))
}

/// Whether the chain's own logs show a deposit of this asset that moved inside of a transaction of `block`.
fn is_logged(network: &Network, block: &BlockRef, deposit: &Deposit) -> bool {
    deposit.asset == AssetId::Native && network.native.is_logged(block.number)
}

/// `None` beyond 2^256.
fn sum<'a>(first: U256, others: impl IntoIterator<Item = &'a U256>) -> Option<U256> {
    others.into_iter().try_fold(first, |sum, amount| sum.checked_add(*amount))
}

fn of_tx(deposit: &Deposit) -> String {
    format!("transaction {}", deposit.tx.id)
}
