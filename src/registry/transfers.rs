//! Transfers, as clients ask for them by a request that they may send again.
//!
//! One transaction claims the request, reserves the money and records the transfer. A refusal records nothing: the same
//! request may come again as if it were new. Nothing is signed here.

use landfall_chain::{Address, Chain, Effect, U256};

use crate::account::AccountStatus;
use crate::amount::to_decimal;
use crate::balance::{AHEAD_MAX, Held, UNREAD_MAX};
use crate::gas::{OverCredit, Usd};
use crate::overrides::Author;
use crate::policy::Exceeded;
use crate::registry::{gas, limits, record};
use crate::request::Made;
use crate::store::marks::Seen;
use crate::store::requests::{self, Known};
use crate::store::{
    Db, ORGANIZATION, StoreError, Tx, account_pages, accounts, balances, delegates, marks, status, transfers, wallets,
};
use crate::time::Timestamp;
use crate::transfer::{Order, State, Transfer, TransferId, TransferKind, TransferStatus, WINDOW};

/// Why no transfer was accepted.
#[derive(Debug, thiserror::Error)]
pub enum AcceptError {
    /// Another request, which made this transfer if it made one, had this id.
    #[error("another request had this id")]
    Mismatch { transfer: Option<TransferId> },
    /// The transfer of this very request has ended.
    #[error("this request was processed: transfer {transfer} is {status}")]
    Duplicate { transfer: TransferId, status: TransferStatus },
    #[error("there is no account {0}")]
    NoAccount(String),
    #[error("it is the address that pays")]
    ToItself,
    /// The destination pays for transactions of ours.
    #[error("it is an address that pays for transactions here")]
    ToSponsor,
    #[error("account {id} is {status:?}")]
    NotActive { id: String, status: AccountStatus },
    /// Something left its address that nobody here signed for.
    #[error("account {0} pays nothing before a person has checked what left its address")]
    Quarantined(String),
    /// This version has no way to send the asset while somebody else pays for the transaction.
    #[error("{symbol} cannot be sent on {chain}")]
    NotSendable { chain: Chain, symbol: String },
    /// The account has no address on this chain, or one that was imported.
    #[error("account {id} has no address on {chain} whose key is held here")]
    NotManaged { id: String, chain: Chain },
    #[error("{available} base units are available, and {amount} are to be paid")]
    Insufficient { amount: U256, available: U256 },
    /// An operator's policy leaves too little room for it.
    #[error(transparent)]
    OverLimit(#[from] Exceeded),
    /// The gas credit is used up or held, and nothing is to be billed beyond it. `needed` is `None` without a price.
    #[error("{remaining} USD are left of the gas credit")]
    CreditExhausted { needed: Option<Usd>, remaining: Usd },
    /// What the paying address holds is not known at the moment.
    #[error("what the account has on {0} is not known")]
    BalanceUnknown(Chain),
    /// A person has stopped the sending.
    #[error("the sending of transfers on {0} is stopped by an operator")]
    Halted(Chain),
    /// There is no signer.
    #[error("no signer is configured")]
    NotConfigured,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// On which terms transfers are accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    /// A signer is configured.
    pub can_sign: bool,
    /// What happens to a transfer that the gas credit does not cover.
    pub over_credit: OverCredit,
}

/// The usual terms, with a signer or without.
impl From<bool> for Terms {
    fn from(can_sign: bool) -> Self {
        Terms { can_sign, over_credit: OverCredit::default() }
    }
}

/// Accepts the transfer that a request asks for, once.
///
/// # Errors
/// See [`AcceptError`]: nothing was changed then, and the request may come again.
pub async fn accept_transfer(
    db: &Db,
    order: &Order,
    terms: impl Into<Terms>,
    now: Timestamp,
) -> Result<(Transfer, Made), AcceptError> {
    let mut tx = db.begin().await?;
    let (transfer, made) = accept(&mut tx, order, terms.into(), now).await?;
    if made == Made::Now {
        tx.commit().await?;
    }
    Ok((transfer, made))
}

/// As [`accept_transfer`], where a person asks for it: with an entry in the audit. `dry_run` changes nothing.
///
/// # Errors
/// See [`AcceptError`]: nothing was changed then, and the request may come again.
pub async fn accept_transfer_by(
    db: &Db,
    order: &Order,
    (terms, dry_run): (Terms, bool),
    by: &Author<'_>,
) -> Result<(Transfer, Made), AcceptError> {
    let mut tx = db.begin().await?;
    let (transfer, made) = accept(&mut tx, order, terms, by.now).await?;
    if made == Made::Now && !dry_run {
        let amount = to_decimal(transfer.amount, transfer.decimals);
        let Transfer { id, account_id, symbol, chain, destination, .. } = &transfer;
        let what = format!("{id}: {amount} {symbol} of {account_id} to {destination} on {chain}");
        record(&mut tx, by, "create_transfer", &what).await?;
        tx.commit().await?;
    }
    Ok((transfer, made))
}

/// The transfer of a request, made now or before, inside of a transaction that ends with the caller.
async fn accept(tx: &mut Tx, order: &Order, terms: Terms, now: Timestamp) -> Result<(Transfer, Made), AcceptError> {
    let id = TransferId::of(ORGANIZATION, order.request_id);
    // Before any other lock: who comes second waits here for the first one's end.
    match requests::claim(tx, &order.request(), &id.to_string(), now).await? {
        Known::New => {}
        Known::Same { .. } => return accepted_before(tx, id).await.map(|transfer| (transfer, Made::Before)),
        Known::Other { object_id } => return Err(AcceptError::Mismatch { transfer: object_id.parse().ok() }),
    }
    let (transfer, is_paid) = allow(tx, id, order, terms, now).await?;
    transfers::insert(tx, &transfer).await?;
    gas::hold(tx, &transfer, order, Some(terms.over_credit).filter(|_| !is_paid), now).await?;
    Ok((transfer, Made::Now))
}

async fn accepted_before(tx: &mut Tx, id: TransferId) -> Result<Transfer, AcceptError> {
    let transfer = transfers::by_id(tx, id).await?;
    let missing = || StoreError::Inconsistent { what: "transfer", reason: "its request is on record alone".to_owned() };
    let transfer = transfer.ok_or_else(missing)?;
    let status = transfer.state.status();
    if status.is_terminal() { Err(AcceptError::Duplicate { transfer: id, status }) } else { Ok(transfer) }
}

/// The transfer, if nothing on record speaks against it, and whether blocks show already that it paid. Holds the lock of
/// the paying address afterwards, so that two requests cannot spend the same money.
async fn allow(
    tx: &mut Tx,
    id: TransferId,
    order: &Order,
    Terms { can_sign, over_credit }: Terms,
    now: Timestamp,
) -> Result<(Transfer, bool), AcceptError> {
    let Order { request_id: _, account_id, chain, chain_ref, asset, amount, destination, gas: _ } = order;
    let account = account_pages::identity(tx, account_id).await?;
    let (identity_id, _) = account.ok_or_else(|| AcceptError::NoAccount(account_id.clone()))?;
    let (source, is_quarantined) = wallets::lock_paying(tx, account_id, chain.family()).await?.unzip();
    if source == Some(*destination) {
        return Err(AcceptError::ToItself);
    }
    // Locked, so that no account is frozen, and announced as such, before it is seen here.
    let status = AccountStatus::of(accounts::lock_status(tx, &identity_id).await?);
    let ends = transfers::ends(tx, *chain, (source.as_ref(), destination)).await?;
    if ends.is_to_sponsor {
        return Err(AcceptError::ToSponsor);
    }
    // A store that was set back may know nothing of a transfer that blocks show. It is recorded again, whatever the account
    // has now. Under its id nothing else can be asked for, not even another asset.
    let shown = match &source {
        Some(source) => marks::of_intent(tx, *chain, source, &id.intent_key(chain_ref, source)).await?,
        None => Vec::new(),
    };
    let is_paid = match shows(order, &shown) {
        Some(false) => return Err(AcceptError::Mismatch { transfer: Some(id) }),
        Some(true) => true,
        None => false,
    };
    if status != AccountStatus::Active && !is_paid {
        return Err(AcceptError::NotActive { id: account_id.clone(), status });
    }
    if !is_paid && is_quarantined == Some(true) {
        return Err(AcceptError::Quarantined(account_id.clone()));
    }
    let unmanaged = || AcceptError::NotManaged { id: account_id.clone(), chain: *chain };
    let source = source.ok_or_else(unmanaged)?;
    // One address is a wallet on every chain of its family, and watched only where the account asked for it.
    if ends.payer.as_ref() != Some(account_id) {
        return Err(unmanaged());
    }
    let unsendable = || AcceptError::NotSendable { chain: *chain, symbol: asset.symbol.clone() };
    let listed = asset.route.as_ref().ok_or_else(unsendable)?;
    if !is_paid && let Some(exceeded) = limits::exceeded(tx, order, &identity_id, now).await? {
        return Err(exceeded.into());
    }
    if !is_paid && over_credit == OverCredit::Refuse {
        gas::check(tx, order, listed.name(), now).await?;
    }
    match available(tx, order, &source, now).await? {
        _ if is_paid && can_sign => {}
        Some(available) if available < *amount => {
            return Err(AcceptError::Insufficient { amount: *amount, available });
        }
        Some(_) if can_sign => {}
        None if can_sign => return Err(AcceptError::BalanceUnknown(*chain)),
        Some(_) | None => return Err(AcceptError::NotConfigured),
    }
    if !is_paid && ends.is_halted {
        return Err(AcceptError::Halted(*chain));
    }
    let route = delegates::route(tx, *chain, listed, now).await?;
    let (kind, source) = (TransferKind::Payment, (source, String::new()));
    let accepted = Accepted { id, kind, order, identity_id, source, route, destination_account_id: ends.payee };
    Ok((accepted.transfer(now), is_paid))
}

/// What is known of a transfer when it is accepted.
pub(super) struct Accepted<'o> {
    pub(super) id: TransferId,
    pub(super) kind: TransferKind,
    pub(super) order: &'o Order,
    pub(super) identity_id: String,
    /// The wallet that pays, and its tag.
    pub(super) source: (Address, String),
    /// As the record has it.
    pub(super) route: String,
    pub(super) destination_account_id: Option<String>,
}

impl Accepted<'_> {
    pub(super) fn transfer(self, now: Timestamp) -> Transfer {
        let Accepted { id, kind, order, identity_id, source: (source, source_tag), .. } = self;
        Transfer {
            id,
            kind,
            request_id: order.request_id,
            account_id: order.account_id.clone(),
            identity_id,
            chain: order.chain,
            asset: order.asset.id,
            symbol: order.asset.symbol.clone(),
            decimals: order.asset.decimals,
            amount: order.amount,
            source,
            source_tag,
            destination: order.destination,
            destination_account_id: self.destination_account_id,
            state: State::Accepted,
            reason: None,
            tx: None,
            created_at: now,
            updated_at: now,
            submitted_at: None,
            confirmed_at: None,
            deadline: now.plus(WINDOW),
            is_signed: false,
            route: self.route,
            intent_key: id.intent_key(&order.chain_ref, &source),
            cancelled_at: None,
            obstacle: None,
            version: 0,
            network_fee: None,
        }
    }
}

/// Whether what canonical blocks show of the intent is what was asked for; `None` where they show nothing of it.
fn shows(order: &Order, shown: &[(Seen, bool)]) -> Option<bool> {
    let paid = Effect::Paid { destination: order.destination, amount: order.amount };
    let mut canonical = shown.iter().filter(|(_, canonical)| *canonical).map(|(seen, _)| seen).peekable();
    canonical.peek()?;
    Some(canonical.any(|seen| seen.asset == order.asset.id && seen.effect == paid))
}

/// What may be spent of the asset at the paying address; `None` while that is not known.
async fn available(tx: &mut Tx, order: &Order, source: &Address, now: Timestamp) -> Result<Option<U256>, StoreError> {
    let unread_since = now.minus(UNREAD_MAX);
    // Before what left is read: what is connected in between is in that.
    if !status::followed_since(tx, unread_since, now.plus(AHEAD_MAX)).await?.contains(&order.chain) {
        return Ok(None);
    }
    let known = balances::of_account(tx, &order.account_id, unread_since).await?;
    let known = known.iter().find(|known| known.chain == order.chain && known.address == *source);
    let held = known.and_then(|known| known.held.iter().find(|held| held.asset == order.asset.id));
    Ok(held.and_then(Held::available))
}

#[cfg(test)]
mod tests {
    use landfall_chain::{Asset, AssetId, BlockHash, BlockRef, TxId};

    use super::*;
    use crate::gas::GasCurrency;

    const TOKEN: AssetId = AssetId::Token(Address::Evm([7; 20]));

    #[test]
    fn only_the_very_payment_in_a_canonical_block_is_the_one_that_was_asked_for() {
        let (destination, amount) = (Address::Evm([1; 20]), U256::from(5));
        let asset = Asset { id: TOKEN, symbol: "USDC".to_owned(), decimals: 6, from_block: 0, route: None };
        let order = Order {
            request_id: "00000000-0000-4000-8000-000000000001".parse().unwrap(),
            account_id: "alice".to_owned(),
            chain: Chain::BaseSepolia,
            chain_ref: "eip155:84532".to_owned(),
            asset,
            amount,
            destination,
            gas: GasCurrency { symbol: "ETH".to_owned(), decimals: 18, first_cost: U256::ONE },
        };
        let block = BlockRef { number: 1, hash: BlockHash([1; 32]) };
        let seen =
            |asset, effect| Seen { tx: TxId::Evm([2; 32]), asset, effect, block, is_alone: false, is_granted: false };
        let paid = Effect::Paid { destination, amount };
        let other = AssetId::Token(Address::Evm([8; 20]));
        assert_eq!(shows(&order, &[]), None);
        assert_eq!(shows(&order, &[(seen(TOKEN, paid), false)]), None, "a reorg took it back");
        assert_eq!(shows(&order, &[(seen(TOKEN, paid), true)]), Some(true));
        let more = Effect::Paid { destination, amount: U256::from(6) };
        for effect in
            [seen(other, paid), seen(TOKEN, more), seen(TOKEN, Effect::Nothing), seen(TOKEN, Effect::Cancelled)]
        {
            assert_eq!(shows(&order, &[(effect, true)]), Some(false), "{effect:?}");
        }
    }
}
