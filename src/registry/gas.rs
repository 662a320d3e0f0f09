//! Holds a part of the gas credit for a transfer that is accepted.
//!
//! No node is asked. The hold is one and a half times what the last transfer of the same route on the same chain cost,
//! or, before there is one, a figure of the network's file. On top comes what the chain takes beside gas, as the sender
//! last asked.

use landfall_chain::U256;

use crate::gas::{Credit, EntryKind, Observation, OverCredit, Split, Usd, hold_of};
use crate::registry::AcceptError;
use crate::store::gas_ledger::{self, Entry, OfTransfer, Pricing};
use crate::store::{StoreError, Tx, prices, sender_reports};
use crate::time::Timestamp;
use crate::transfer::{Order, Transfer};

/// What a transfer may cost.
struct Need {
    amount: U256,
    priced: Option<(Usd, Observation)>,
}

/// Whether the credit covers the transfer, as it is now. Nothing is locked: [`hold`] decides.
pub(super) async fn check(tx: &mut Tx, order: &Order, route: &str, now: Timestamp) -> Result<(), AcceptError> {
    let need = Need::of(tx, order, route, now).await?;
    need.covered(gas_ledger::credit(tx).await?)
}

/// Holds what the transfer may cost, until it ends. `limit`: what happens where the credit does not cover it; one that
/// blocks show already has none.
pub(super) async fn hold(
    tx: &mut Tx,
    transfer: &Transfer,
    order: &Order,
    limit: Option<OverCredit>,
    now: Timestamp,
) -> Result<(), AcceptError> {
    let need = Need::of(tx, order, &transfer.route, now).await?;
    if limit == Some(OverCredit::Refuse) {
        // Who holds at the same time waits here: what they hold is counted.
        need.covered(gas_ledger::lock(tx, now).await?)?;
    } else {
        gas_ledger::give(tx, now).await?;
    }
    let of = OfTransfer::new(Some(transfer.id), transfer.chain, &transfer.route, need.amount, &order.gas);
    let pricing = |(usd, by)| Pricing { usd, split: Split::default(), by: Some(by), at: now };
    let entry = Entry {
        kind: EntryKind::Hold,
        transfer: Some(of),
        landed: None,
        bearer: None,
        at: now,
        pricing: need.priced.map(pricing),
    };
    gas_ledger::append(tx, &entry).await?;
    if entry.pricing.is_none() && limit == Some(OverCredit::Refuse) {
        gas_ledger::wait(tx, transfer.chain, &entry).await?;
    }
    Ok(())
}

impl Need {
    async fn of(tx: &mut Tx, order: &Order, route: &str, now: Timestamp) -> Result<Self, StoreError> {
        let last = gas_ledger::last_cost(tx, order.chain, route).await?;
        let surcharge = sender_reports::surcharge(tx, order.chain).await?;
        let amount = hold_of(last.unwrap_or(order.gas.first_cost)).saturating_add(surcharge);
        let by = prices::of_moment(tx, &order.gas.symbol, now).await?;
        let priced = by.map(|by| (by.price.of(amount, order.gas.decimals), by));
        Ok(Need { amount, priced })
    }

    /// Where there is no price, anything that is left covers it: the transfer waits until there is one.
    fn covered(&self, credit: Credit) -> Result<(), AcceptError> {
        let remaining = credit.remaining();
        match &self.priced {
            Some((usd, _)) if *usd > remaining => Err(AcceptError::CreditExhausted { needed: Some(*usd), remaining }),
            None if remaining == Usd::default() => Err(AcceptError::CreditExhausted { needed: None, remaining }),
            Some(_) | None => Ok(()),
        }
    }
}
