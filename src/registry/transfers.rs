//! Transfers, as clients ask for them by a request that they may send again.
//!
//! One transaction claims the request, reserves the money and records the transfer. A refusal records nothing: the same
//! request may come again as if it were new. Nothing is signed here.

use landfall_chain::{Address, Chain, U256};

use crate::account::AccountStatus;
use crate::balance::{AHEAD_MAX, Held, UNREAD_MAX};
use crate::request::Made;
use crate::store::requests::{self, Known};
use crate::store::{Db, ORGANIZATION, StoreError, Tx, account_pages, accounts, balances, status, transfers, wallets};
use crate::time::Timestamp;
use crate::transfer::{Order, State, Transfer, TransferId, TransferStatus, WINDOW};

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
    #[error("account {id} is {status:?}")]
    NotActive { id: String, status: AccountStatus },
    /// The account has no address on this chain, or one that was imported.
    #[error("account {id} has no address on {chain} whose key is held here")]
    NotManaged { id: String, chain: Chain },
    #[error("{available} base units are available, and {amount} are to be paid")]
    Insufficient { amount: U256, available: U256 },
    /// What the paying address holds is not known at the moment.
    #[error("what the account has on {0} is not known")]
    BalanceUnknown(Chain),
    /// There is no signer.
    #[error("no signer is configured")]
    NotConfigured,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Accepts the transfer that a request asks for, once. `can_sign`: a signer is configured.
///
/// # Errors
/// See [`AcceptError`]: nothing was changed then, and the request may come again.
pub async fn accept_transfer(
    db: &Db,
    order: &Order,
    can_sign: bool,
    now: Timestamp,
) -> Result<(Transfer, Made), AcceptError> {
    let mut tx = db.begin().await?;
    let id = TransferId::of(ORGANIZATION, order.request_id);
    // Before any other lock: who comes second waits here for the first one's end.
    match requests::claim(&mut tx, &order.request(), &id.to_string(), now).await? {
        Known::New => {}
        Known::Same { .. } => return accepted_before(&mut tx, id).await.map(|transfer| (transfer, Made::Before)),
        Known::Other { object_id } => return Err(AcceptError::Mismatch { transfer: object_id.parse().ok() }),
    }
    let transfer = allow(&mut tx, id, order, can_sign, now).await?;
    transfers::insert(&mut tx, &transfer).await?;
    tx.commit().await?;
    Ok((transfer, Made::Now))
}

async fn accepted_before(tx: &mut Tx, id: TransferId) -> Result<Transfer, AcceptError> {
    let transfer = transfers::by_id(tx, id).await?;
    let missing = || StoreError::Inconsistent { what: "transfer", reason: "its request is on record alone".to_owned() };
    let transfer = transfer.ok_or_else(missing)?;
    let status = transfer.state.status();
    if status.is_terminal() { Err(AcceptError::Duplicate { transfer: id, status }) } else { Ok(transfer) }
}

/// The transfer, if nothing on record speaks against it. Holds the lock of the paying address afterwards, so that two
/// requests cannot spend the same money.
async fn allow(
    tx: &mut Tx,
    id: TransferId,
    order: &Order,
    can_sign: bool,
    now: Timestamp,
) -> Result<Transfer, AcceptError> {
    let Order { request_id, account_id, chain, asset, amount, destination } = order;
    let account = account_pages::identity(tx, account_id).await?;
    let (identity_id, _) = account.ok_or_else(|| AcceptError::NoAccount(account_id.clone()))?;
    let source = wallets::lock_paying(tx, account_id, chain.family()).await?;
    if source == Some(*destination) {
        return Err(AcceptError::ToItself);
    }
    // Locked, so that no account is frozen, and announced as such, before it is seen here.
    let status = AccountStatus::of(accounts::lock_status(tx, &identity_id).await?);
    if status != AccountStatus::Active {
        return Err(AcceptError::NotActive { id: account_id.clone(), status });
    }
    let unmanaged = || AcceptError::NotManaged { id: account_id.clone(), chain: *chain };
    let source = source.ok_or_else(unmanaged)?;
    // One address is a wallet on every chain of its family, and watched only where the account asked for it.
    if accounts::owner(tx, *chain, &source).await?.as_ref() != Some(account_id) {
        return Err(unmanaged());
    }
    match available(tx, order, &source, now).await? {
        Some(available) if available < *amount => {
            return Err(AcceptError::Insufficient { amount: *amount, available });
        }
        Some(_) if can_sign => {}
        None if can_sign => return Err(AcceptError::BalanceUnknown(*chain)),
        Some(_) | None => return Err(AcceptError::NotConfigured),
    }
    Ok(Transfer {
        id,
        request_id: *request_id,
        account_id: account_id.clone(),
        identity_id,
        chain: *chain,
        asset: asset.id,
        symbol: asset.symbol.clone(),
        decimals: asset.decimals,
        amount: *amount,
        source,
        destination: *destination,
        destination_account_id: accounts::owner(tx, *chain, destination).await?,
        state: State::Accepted,
        reason: None,
        tx: None,
        created_at: now,
        updated_at: now,
        submitted_at: None,
        confirmed_at: None,
        deadline: now.plus(WINDOW),
    })
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
