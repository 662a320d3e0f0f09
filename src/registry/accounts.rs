//! Accounts, as clients open them by a request that they may send again.
//!
//! The account is there, and each of its addresses has the block from which it is matched on record, before a request is
//! answered.

use std::collections::BTreeSet;

use landfall_chain::what_of_nobody;

use crate::account::NewAccount;
use crate::registry::ReplayError;
use crate::request::{Made, Request};
use crate::store::accounts::{AddAccountError, WatchLists};
use crate::store::requests::{self, Known};
use crate::store::{Db, ORGANIZATION, StoreError};
use crate::time::Timestamp;

/// Why no account was opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenAccountError {
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// It contradicts what is on record.
    #[error(transparent)]
    Refused(AddAccountError),
}

/// Opens the account that a request asks for; its id, which follows from the request and not from `account`.
///
/// # Errors
/// See [`OpenAccountError`]: nothing was changed then, and the request may come again.
pub async fn open_account(
    db: &Db,
    request: &Request,
    account: &NewAccount,
    now: Timestamp,
) -> Result<(String, Made), OpenAccountError> {
    let id = request.object_id("acc", ORGANIZATION);
    let chains: BTreeSet<_> = account.addresses.iter().map(|(chain, _)| *chain).collect();
    let mut tx = db.begin().await?;
    // Before any other lock: who comes second waits here for the first one's end, and holds nothing meanwhile.
    match requests::claim(&mut tx, request, &id, now).await? {
        Known::New => {}
        Known::Same { object_id } => return Ok((object_id, Made::Before)),
        Known::Other => return Err(ReplayError::Mismatch.into()),
    }
    check_owner(account)?;
    let mut lists = WatchLists::lock(&mut tx, &chains).await?;
    let account = NewAccount { id: id.clone(), ..account.clone() };
    lists.open(&mut tx, &account, &request.id, now).await?;
    lists.publish(&mut tx).await?;
    tx.commit().await?;
    Ok((id, Made::Now))
}

/// That each address may be somebody's. One that is on record already goes on.
pub(super) fn check_owner(account: &NewAccount) -> Result<(), AddAccountError> {
    let mut nobodys = account.addresses.iter().filter_map(|(chain, address)| {
        let what = what_of_nobody(*chain, address)?;
        Some(AddAccountError::Nobodys { address: *address, chain: *chain, what })
    });
    nobodys.next().map_or(Ok(()), Err)
}

impl From<StoreError> for OpenAccountError {
    fn from(error: StoreError) -> Self {
        ReplayError::from(error).into()
    }
}

impl From<AddAccountError> for OpenAccountError {
    fn from(error: AddAccountError) -> Self {
        match error {
            AddAccountError::Store(error) => error.into(),
            error => OpenAccountError::Refused(error),
        }
    }
}
