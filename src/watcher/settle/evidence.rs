//! Whether more would be credited than a block shows to be paid.

use landfall_chain::{AssetTransfer, Lane, Network, U256};

use crate::deposit::Deposit;
use crate::store::{StoreError, Tx, deposits};

/// What a transaction would be credited with beyond what it paid.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::watcher) struct Excess {
    pub(in crate::watcher) credited: String,
    pub(in crate::watcher) paid: String,
    /// Where it was paid: names the transaction or the block.
    pub(in crate::watcher) of: String,
}

impl Excess {
    /// `None` if the credit is at most `paid`. `credited` is `None` beyond 2^256.
    pub(in crate::watcher) fn unless_paid(credited: Option<U256>, paid: U256, of: String) -> Option<Self> {
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

/// What would be credited in excess if the deposit became CONFIRMED; `None` if nothing. Per transaction, asset and
/// recipient, never more is CONFIRMED than was `paid`. The lane decides what a deposit is compared with: the roots know
/// the legs that they show and what they confirmed; the traces know everything.
pub(in crate::watcher) async fn guard_sum(
    tx: &mut Tx,
    lane: Lane,
    paid: U256,
    deposit: &Deposit,
) -> Result<Option<Excess>, StoreError> {
    let confirmed = deposits::confirmed_of(tx, deposit, lane).await?;
    Ok(too_much(&confirmed, paid, deposit))
}

/// The same for both forms of the native currency together, which `transfers` pay. What is one form now was the other
/// under another setting, and is the same money.
pub(in crate::watcher) async fn guard_both_forms(
    tx: &mut Tx,
    network: &Network,
    transfers: &[AssetTransfer],
    deposit: &Deposit,
) -> Result<Option<Excess>, StoreError> {
    let Some(asset) = network.other_form(&deposit.asset) else { return Ok(None) };
    let other = Deposit { asset, ..deposit.clone() };
    let paid = paid_in_tx(transfers, deposit).saturating_add(paid_in_tx(transfers, &other));
    let mut confirmed = deposits::confirmed_of(tx, deposit, Lane::Block).await?;
    confirmed.extend(deposits::confirmed_of(tx, &other, Lane::Block).await?);
    Ok(too_much(&confirmed, paid, deposit))
}

fn too_much(confirmed: &[U256], paid: U256, deposit: &Deposit) -> Option<Excess> {
    let credited = confirmed.iter().try_fold(deposit.amount, |sum, amount| sum.checked_add(*amount));
    Excess::unless_paid(credited, paid, format!("transaction {}", deposit.tx.id))
}
