//! Accounts, as clients open them by a request that they may repeat, and lists of accounts, as operators give them.
//!
//! Before a request is answered the account exists, and the record has, for each of its addresses, the block from which
//! it is matched.

use std::collections::{BTreeSet, HashMap};

use landfall_chain::{Chain, Signer};

use crate::account::NewAccount;
use crate::identity::DEFAULT_IDENTITY;
use crate::overrides::Author;
use crate::registry::wallets::derive;
use crate::registry::{AddAccountsError, DeriveError, DerivedAddresses, ReplayError, record};
use crate::request::{Made, Request};
use crate::store::accounts::{self, AddAccountError, WatchLists};
use crate::store::requests::{self, Known};
use crate::store::{Db, ORGANIZATION, StoreError};
use crate::time::Timestamp;

/// How many accounts one transaction adds, and how many of their addresses (an address on two chains counts twice).
/// Each of their chains waits for it.
const PART_ACCOUNTS_MAX: usize = 10;
const PART_ADDRESSES_MAX: usize = 500;

/// Why no account was opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenAccountError {
    #[error(transparent)]
    Replay(#[from] ReplayError),
    #[error(transparent)]
    Derive(#[from] DeriveError),
    /// It contradicts the record.
    #[error(transparent)]
    Refused(AddAccountError),
}

/// The addresses that the account of a request gets from the signer on these chains. None if the request is on record:
/// then it is answered by what it made.
///
/// # Errors
/// See [`OpenAccountError`]: nothing was done.
pub async fn derive_for_account(
    db: &Db,
    signer: Option<&dyn Signer>,
    request: &Request,
    account: &NewAccount,
    chains: &BTreeSet<Chain>,
) -> Result<DerivedAddresses, OpenAccountError> {
    if chains.is_empty() {
        return Ok(DerivedAddresses::default());
    }
    let account = NewAccount { id: request.object_id("acc", ORGANIZATION), ..account.clone() };
    let mut reader = db.read().await?;
    if requests::is_known(&mut reader, request).await? {
        return Ok(DerivedAddresses::default());
    }
    // What can never be opened is refused as such, also while the signer is away.
    accounts::check(&mut reader, &account, 0).await?;
    drop(reader);
    Ok(derive(signer, &account.id, "", chains).await?)
}

/// Opens the account that a request asks for, once, with an entry in the audit. Returns its id, which follows from the
/// request and not from `account`. Its addresses are those that `account` has and those that were derived for it.
///
/// # Errors
/// See [`OpenAccountError`]: nothing was changed then, and the request may be repeated.
pub async fn open_account(
    db: &Db,
    request: &Request,
    account: &NewAccount,
    derived: &DerivedAddresses,
    by: &Author<'_>,
) -> Result<(String, Made), OpenAccountError> {
    let now = by.now;
    let id = request.object_id("acc", ORGANIZATION);
    let addresses: BTreeSet<_> = account.addresses.iter().copied().chain(derived.addresses()).collect();
    let chains = addresses.iter().map(|(chain, _)| *chain).collect();
    let mut tx = db.begin().await?;
    // Before any other lock: a second request with this id waits here for the end of the first, and holds nothing
    // meanwhile.
    match requests::claim(&mut tx, request, &id, now).await? {
        Known::New => {}
        Known::Same { object_id } => return Ok((object_id, Made::Before)),
        Known::Other { .. } => return Err(ReplayError::Mismatch.into()),
    }
    let identity = account.identity_id.as_deref().unwrap_or(DEFAULT_IDENTITY);
    record(&mut tx, by, "open_account", &format!("{id} of {identity}")).await?;
    let mut lists = WatchLists::lock(&mut tx, &chains).await?;
    let account = NewAccount { id: id.clone(), addresses, ..account.clone() };
    lists.open(&mut tx, &account, &request.id, now).await?;
    derived.add(&mut tx, now).await?;
    lists.publish(&mut tx).await?;
    tx.commit().await?;
    Ok((id, Made::Now))
}

/// Why an account of a list was not added.
pub(super) struct NotAdded {
    /// Its index in the list that was given.
    index: usize,
    error: AddAccountError,
}

impl NotAdded {
    /// The same for a longer list, of which the first `added` accounts are added. The shorter list begins in it after
    /// `before` accounts.
    pub(super) fn behind(self, before: usize, added: usize) -> AddAccountsError {
        match self.error {
            AddAccountError::Store(error) => AddAccountsError::Store { added, error },
            error => AddAccountsError::Refused { index: before + self.index, added, error },
        }
    }
}

impl From<StoreError> for NotAdded {
    fn from(error: StoreError) -> Self {
        NotAdded { index: 0, error: error.into() }
    }
}

/// A list in parts, each short enough for chains to wait for.
pub(super) fn parts(accounts: &[NewAccount]) -> Vec<&[NewAccount]> {
    let (mut parts, mut rest) = (Vec::new(), accounts);
    while !rest.is_empty() {
        let mut addresses = 0;
        let fits = rest.iter().take(PART_ACCOUNTS_MAX).take_while(|account| {
            addresses += account.addresses.len();
            addresses <= PART_ADDRESSES_MAX
        });
        let (part, behind) = rest.split_at(fits.count().max(1));
        parts.push(part);
        rest = behind;
    }
    parts
}

/// Searches for contradictions between a list and the record, or within the list, and writes nothing.
pub(super) async fn check(db: &Db, accounts: &[NewAccount]) -> Result<(), NotAdded> {
    let mut reader = db.read().await?;
    let (mut terms, mut owners) = (HashMap::new(), HashMap::new());
    for (index, account) in accounts.iter().enumerate() {
        let NewAccount { id, identity_id, kind, addresses } = account;
        let refused = |error| NotAdded { index, error };
        let (first_kind, identity, more) = terms.entry(id).or_insert((kind, identity_id.as_deref(), 0));
        if *first_kind != kind {
            let (recorded, given) = (**first_kind, *kind);
            return Err(refused(AddAccountError::OtherType { id: id.clone(), recorded, given }));
        }
        if let (Some(recorded), Some(given)) = (*identity, identity_id)
            && recorded != given
        {
            let (recorded, given) = (recorded.to_owned(), given.clone());
            return Err(refused(AddAccountError::OtherIdentity { id: id.clone(), recorded, given }));
        }
        let (identity_id, addresses_of_it) = (identity_id.clone(), BTreeSet::new());
        let mut further = NewAccount { id: id.clone(), identity_id, kind: *kind, addresses: addresses_of_it };
        for (chain, address) in addresses {
            match owners.insert((chain, address), id) {
                None => drop(further.addresses.insert((*chain, *address))),
                Some(owner) if owner == id => {}
                Some(owner) => {
                    let (address, chain, owner) = (*address, *chain, owner.clone());
                    return Err(refused(AddAccountError::OtherOwner { address, chain, owner }));
                }
            }
        }
        let (new, made) = accounts::check(&mut reader, &further, *more).await.map_err(refused)?;
        *more += new;
        if made == Made::Now && identity.is_none() {
            *identity = Some(DEFAULT_IDENTITY);
        }
    }
    Ok(())
}

/// Adds all accounts of a part, or none.
pub(super) async fn add_part(db: &Db, part: &[NewAccount], now: Timestamp) -> Result<(), NotAdded> {
    let chains: BTreeSet<_> = part.iter().flat_map(|account| &account.addresses).map(|(chain, _)| *chain).collect();
    let mut tx = db.begin().await?;
    let mut lists = WatchLists::lock(&mut tx, &chains).await?;
    for (index, account) in part.iter().enumerate() {
        lists.add(&mut tx, account, now).await.map_err(|error| NotAdded { index, error })?;
    }
    lists.publish(&mut tx).await?;
    Ok(tx.commit().await?)
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
