//! Sweeps: when an operator asks for it, what an account holds at its further addresses is sent to its paying address.
//!
//! A sweep is a transfer like any other, with a key that the chain takes once. It is no payment: no client sees it, and
//! no limit counts it. What arrives is no deposit.

use landfall_chain::{Address, Asset, Chain, U256};

use std::collections::HashMap;

use crate::account::AccountStatus;
use crate::balance::{AHEAD_MAX, UNREAD_MAX};
use crate::gas::GasCurrency;
use crate::overrides::Author;
use crate::registry::record;
use crate::registry::transfers::{AcceptError, Accepted};
use crate::request::Made;
use crate::store::balances::Known;
use crate::store::{Db, ORGANIZATION, account_pages, accounts, balances, delegates, halts, status, transfers, wallets};
use crate::transfer::{Order, RequestId, Transfer, TransferId, TransferKind};

/// How many addresses one request empties.
const SWEPT_MAX: usize = 100;

/// What is to be brought together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SweepOrder {
    pub request_id: RequestId,
    pub account_id: String,
    pub chain: Chain,
    /// CAIP-2 of the chain.
    pub chain_ref: String,
    pub asset: Asset,
    /// What the chain's transactions are paid in.
    pub gas: GasCurrency,
}

/// What a request brings together.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Swept {
    /// One for each address that has something, or had it when this request first came.
    pub transfers: Vec<(Transfer, Made)>,
    /// Addresses of which it is not known what they hold.
    pub unknown: Vec<Address>,
    /// More addresses have something.
    pub is_more: bool,
}

/// Accepts a transfer of all that each further address of the account has, with an entry in the audit. `dry_run` changes
/// nothing.
///
/// # Errors
/// See [`AcceptError`]: nothing was changed then.
pub async fn sweep(
    db: &Db,
    order: &SweepOrder,
    (can_sign, dry_run): (bool, bool),
    by: &Author<'_>,
) -> Result<Swept, AcceptError> {
    let (SweepOrder { account_id, chain, asset, .. }, now) = (order, by.now);
    let mut tx = db.begin().await?;
    let account = account_pages::identity(&mut tx, account_id).await?;
    let (identity_id, _) = account.ok_or_else(|| AcceptError::NoAccount(account_id.clone()))?;
    let unmanaged = || AcceptError::NotManaged { id: account_id.clone(), chain: *chain };
    // Locked first, as by whoever pays from it.
    let locked = wallets::lock_paying(&mut tx, account_id, chain.family()).await?;
    let (paying, is_quarantined) = locked.ok_or_else(unmanaged)?;
    let further = wallets::lock_further(&mut tx, account_id, chain.family()).await?;
    let status = AccountStatus::of(accounts::lock_status(&mut tx, &identity_id).await?);
    if status != AccountStatus::Active {
        return Err(AcceptError::NotActive { id: account_id.clone(), status });
    }
    if is_quarantined {
        return Err(AcceptError::Quarantined(account_id.clone()));
    }
    // What arrived where nobody watches would be nobody's.
    if accounts::owner(&mut tx, *chain, &paying).await?.as_ref() != Some(account_id) {
        return Err(unmanaged());
    }
    let unsendable = || AcceptError::NotSendable { chain: *chain, symbol: asset.symbol.clone() };
    let listed = asset.route.as_ref().ok_or_else(unsendable)?;
    if !can_sign {
        return Err(AcceptError::NotConfigured);
    }
    if halts::is_halted(&mut tx, *chain).await? {
        return Err(AcceptError::Halted(*chain));
    }
    let unread_since = now.minus(UNREAD_MAX);
    // Before what left is read: what is connected in between is in that.
    if !status::followed_since(&mut tx, unread_since, now.plus(AHEAD_MAX)).await?.contains(chain) {
        return Err(AcceptError::BalanceUnknown(*chain));
    }
    let known = balances::of_account(&mut tx, account_id, unread_since).await?;
    let known: HashMap<Address, Known> =
        known.into_iter().filter(|known| known.chain == *chain).map(|known| (known.address, known)).collect();
    let route = delegates::route(&mut tx, *chain, listed, now).await?;
    let mut swept = Swept::default();
    for (source, source_tag) in further {
        let Some(known) = known.get(&source) else { continue };
        let id = TransferId::of_sweep(ORGANIZATION, order.request_id, &source);
        if let Some(before) = transfers::by_id(&mut tx, id).await? {
            if (before.chain, before.asset) != (*chain, asset.id) {
                return Err(AcceptError::Mismatch { transfer: Some(id) });
            }
            swept.transfers.push((before, Made::Before));
            continue;
        }
        let Some(held) = known.held.iter().find(|held| held.asset == asset.id) else { continue };
        let Some(amount) = held.available() else {
            swept.unknown.push(source);
            continue;
        };
        if amount.is_zero() {
            continue;
        }
        if swept.transfers.len() >= SWEPT_MAX {
            swept.is_more = true;
            break;
        }
        let order = order.of(paying, amount);
        let (kind, source) = (TransferKind::Sweep, (source, source_tag));
        let destination_account_id = Some(account_id.clone());
        let (identity_id, route) = (identity_id.clone(), route.clone());
        let accepted = Accepted { id, kind, order: &order, identity_id, source, route, destination_account_id };
        let transfer = accepted.transfer(now);
        transfers::insert(&mut tx, &transfer).await?;
        swept.transfers.push((transfer, Made::Now));
    }
    if !dry_run {
        let what = format!("{account_id}, {} on {chain}, request {}", asset.symbol, order.request_id);
        record(&mut tx, by, "sweep_account", &what).await?;
        tx.commit().await?;
    }
    Ok(swept)
}

impl SweepOrder {
    fn of(&self, destination: Address, amount: U256) -> Order {
        let SweepOrder { request_id, account_id, chain, chain_ref, asset, gas } = self.clone();
        Order { request_id, account_id, chain, chain_ref, asset, amount, destination, gas }
    }
}
