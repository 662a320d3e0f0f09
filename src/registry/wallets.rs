//! Addresses that the signer derives: the one that an account is opened with, and further ones to receive at.
//!
//! Promises: the signer is asked before the transaction, never inside of it, and for no request that is on record. An
//! address follows from the account, so a store that was set back gets the same one again.

use std::collections::BTreeSet;
use std::time::Duration;

use landfall_chain::{Address, Chain, Family, KeyPath, Signer, SignerUnavailable};
use tokio::time::timeout;

use crate::account::{AccountStatus, AccountType, NewAccount};
use crate::overrides::Author;
use crate::registry::{ReplayError, record};
use crate::request::{Made, Request};
use crate::store::accounts::{self, AddAccountError, WatchLists};
use crate::store::requests::{self, Known};
use crate::store::wallets::{self, Wallet};
use crate::store::{Connection, Db, StoreError, Tx, account_pages};
use crate::time::Timestamp;

/// How long the signer is waited for: a client waits meanwhile.
const SIGNER_TIME_MAX: Duration = Duration::from_secs(5);

/// Why no address was derived.
#[derive(Debug, thiserror::Error)]
pub enum DeriveError {
    #[error("no signer is configured")]
    NoSigner,
    #[error(transparent)]
    Away(#[from] SignerUnavailable),
}

/// Why an account got no further address.
#[derive(Debug, thiserror::Error)]
pub enum AddAddressesError {
    #[error(transparent)]
    Replay(#[from] ReplayError),
    #[error("there is no account {0}")]
    NoAccount(String),
    /// It has one address on each family for everything.
    #[error("account {0} is SEGREGATED")]
    Segregated(String),
    #[error("account {id} is {status:?}")]
    NotActive { id: String, status: AccountStatus },
    #[error(transparent)]
    Derive(#[from] DeriveError),
    /// It contradicts the record.
    #[error(transparent)]
    Refused(AddAccountError),
}

/// What the signer derived for an account: one address for each family of these chains.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DerivedAddresses {
    chains: BTreeSet<Chain>,
    wallets: Vec<Wallet>,
}

impl DerivedAddresses {
    /// Each chain with its address.
    pub fn addresses(&self) -> impl Iterator<Item = (Chain, Address)> {
        let of = |chain: Chain| self.wallets.iter().find(|wallet| wallet.address.family() == chain.family());
        self.chains.iter().filter_map(move |chain| Some((*chain, of(*chain)?.address)))
    }

    /// Records that their keys are held.
    pub(super) async fn add(&self, tx: &mut Tx, now: Timestamp) -> Result<(), StoreError> {
        for wallet in &self.wallets {
            wallets::add(tx, wallet, now).await?;
        }
        Ok(())
    }
}

/// Asks the signer for an account's addresses on these chains. `tag` is as in [`KeyPath::of_wallet`].
pub(super) async fn derive(
    signer: Option<&dyn Signer>,
    account_id: &str,
    tag: &str,
    chains: &BTreeSet<Chain>,
) -> Result<DerivedAddresses, DeriveError> {
    let signer = signer.ok_or(DeriveError::NoSigner)?;
    let families: BTreeSet<Family> = chains.iter().map(|chain| chain.family()).collect();
    let paths: Vec<_> = families.iter().map(|family| KeyPath::of_wallet(*family, account_id, tag)).collect();
    let asked = timeout(SIGNER_TIME_MAX, signer.addresses(&paths)).await;
    let addresses = asked.unwrap_or_else(|_| Err(SignerUnavailable("it does not answer".to_owned())))?;
    let fits = addresses.len() == paths.len()
        && addresses.iter().zip(&paths).all(|(address, path)| address.family() == path.family);
    if !fits {
        return Err(SignerUnavailable("it answers something else than what was asked".to_owned()).into());
    }
    let wallet = |(address, path): (Address, &KeyPath)| Wallet {
        address,
        account_id: account_id.to_owned(),
        tag: tag.to_owned(),
        path: path.to_string(),
        key_id: signer.id().to_owned(),
    };
    let wallets = addresses.into_iter().zip(&paths).map(wallet).collect();
    Ok(DerivedAddresses { chains: chains.clone(), wallets })
}

/// The further addresses that a request asks for. None if it is on record: then it is answered by what it made.
///
/// # Errors
/// See [`AddAddressesError`]: nothing was done.
pub async fn derive_further(
    db: &Db,
    signer: Option<&dyn Signer>,
    request: &Request,
    account_id: &str,
    chains: &BTreeSet<Chain>,
) -> Result<DerivedAddresses, AddAddressesError> {
    let mut reader = db.read().await?;
    if requests::is_known(&mut reader, request).await? {
        return Ok(DerivedAddresses::default());
    }
    // What can never be done is refused as such, also while the signer is away.
    check(&mut reader, account_id).await?;
    drop(reader);
    Ok(derive(signer, account_id, &request.id, chains).await?)
}

/// Gives an account the further addresses that a request asked for, once, with an entry in the audit. Returns the
/// addresses of this request, of each family one.
///
/// # Errors
/// See [`AddAddressesError`]: nothing was changed then, and the request may be repeated.
pub async fn add_addresses(
    db: &Db,
    request: &Request,
    account_id: &str,
    derived: &DerivedAddresses,
    by: &Author<'_>,
) -> Result<(Vec<Address>, Made), AddAddressesError> {
    let mut tx = db.begin().await?;
    match requests::claim(&mut tx, request, account_id, by.now).await? {
        Known::New => {}
        Known::Same { .. } => return Ok((wallets::of_tag(&mut tx, account_id, &request.id).await?, Made::Before)),
        Known::Other { .. } => return Err(ReplayError::Mismatch.into()),
    }
    check(&mut tx, account_id).await?;
    record(&mut tx, by, "add_addresses", &format!("{account_id}, request {}", request.id)).await?;
    let mut lists = WatchLists::lock(&mut tx, &derived.chains).await?;
    let account = NewAccount { addresses: derived.addresses().collect(), ..omnibus(account_id) };
    lists.add(&mut tx, &account, by.now).await?;
    derived.add(&mut tx, by.now).await?;
    lists.publish(&mut tx).await?;
    tx.commit().await?;
    Ok((derived.wallets.iter().map(|wallet| wallet.address).collect(), Made::Now))
}

/// Whether the account may have further addresses.
async fn check(connection: &mut impl Connection, id: &str) -> Result<(), AddAddressesError> {
    let account = account_pages::identity(connection, id).await?;
    let (identity_id, _) = account.ok_or_else(|| AddAddressesError::NoAccount(id.to_owned()))?;
    accounts::check(connection, &omnibus(id), 0).await?;
    let status = accounts::lock_status(connection, &identity_id).await?;
    if status.may_open_accounts() {
        return Ok(());
    }
    Err(AddAddressesError::NotActive { id: id.to_owned(), status: AccountStatus::of(status) })
}

/// An account that may have any number of addresses, and no more is known of it.
fn omnibus(id: &str) -> NewAccount {
    NewAccount { id: id.to_owned(), identity_id: None, kind: AccountType::Omnibus, addresses: BTreeSet::new() }
}

impl From<StoreError> for AddAddressesError {
    fn from(error: StoreError) -> Self {
        ReplayError::from(error).into()
    }
}

impl From<AddAccountError> for AddAddressesError {
    fn from(error: AddAccountError) -> Self {
        match error {
            AddAccountError::Store(error) => error.into(),
            AddAccountError::OtherType { id, .. } => AddAddressesError::Segregated(id),
            error => AddAddressesError::Refused(error),
        }
    }
}
