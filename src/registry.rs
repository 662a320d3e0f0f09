//! What operators and clients register: identities, accounts with their addresses, API keys, webhooks. Each in one transaction, with
//! the same rules whichever door it comes through.
//!
//! Time and randomness are arguments; ids are made here.

mod accounts;
mod identities;

use std::collections::BTreeSet;
use std::time::Duration;

use landfall_chain::Chain;

use crate::account::NewAccount;
use crate::key::{ApiKey, Environment, KEYS_MAX, PublicKey, Scopes};
use crate::store::accounts::{AddAccountError, WatchLists};
use crate::store::keys::{self, KeyRow};
use crate::store::webhooks::{self, WebhookRow};
use crate::store::{Db, StoreError};
use crate::time::Timestamp;
use crate::webhook::{self, WebhookUrlError};

pub use accounts::{OpenAccountError, open_account};
pub use identities::{AddIdentityError, add_identity, open_identity};

/// Why a request made nothing.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error("another request had this id")]
    Mismatch,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why nothing of a list of accounts was added.
#[derive(Debug, thiserror::Error)]
pub enum AddAccountsError {
    /// The account at `index` of the list, from 0, contradicts what is on record.
    #[error("{error}")]
    Refused { index: usize, error: AddAccountError },
    #[error(transparent)]
    Store(#[from] StoreError),
}

#[derive(Debug, thiserror::Error)]
pub enum CreateKeyError {
    #[error("a key needs a name that says what it is for")]
    Name,
    #[error("there are {KEYS_MAX} keys already, the most that are allowed")]
    TooMany,
    #[error(transparent)]
    Store(#[from] StoreError),
}

#[derive(Debug, thiserror::Error)]
pub enum ChangeKeyError {
    #[error("no API key has the id {0:?}; `landfall key list` shows them")]
    Unknown(String),
    #[error("the API key {0} is unknown or revoked")]
    Revoked(String),
    #[error("this public key is paired with the API key {0} already")]
    Paired(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

#[derive(Debug, thiserror::Error)]
pub enum AddWebhookError {
    #[error(transparent)]
    Url(#[from] WebhookUrlError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A webhook to be registered.
#[derive(Clone, Copy, Debug)]
pub struct NewWebhook<'a> {
    pub url: &'a str,
    pub label: &'a str,
    /// Take plain http and addresses of private networks.
    pub allow_private: bool,
}

/// Adds all accounts, or addresses to existing ones, or nothing. The next block of each chain is matched against them.
///
/// # Errors
/// The first account that contradicts what is on record.
pub async fn add_accounts(db: &Db, accounts: &[NewAccount], now: Timestamp) -> Result<(), AddAccountsError> {
    let chains: BTreeSet<Chain> =
        accounts.iter().flat_map(|account| &account.addresses).map(|(chain, _)| *chain).collect();
    let mut tx = db.begin().await?;
    let mut lists = WatchLists::lock(&mut tx, &chains).await?;
    for (index, account) in accounts.iter().enumerate() {
        lists.add(&mut tx, account, now).await.map_err(|error| match error {
            AddAccountError::Store(error) => AddAccountsError::Store(error),
            error => AddAccountsError::Refused { index, error },
        })?;
    }
    lists.publish(&mut tx).await?;
    Ok(tx.commit().await?)
}

/// Makes a key from random bytes and records its hash. It cannot be shown again.
///
/// # Errors
/// An empty name, and more keys than the interface allows.
pub async fn create_key(
    db: &Db,
    environment: Environment,
    (name, scopes): (&str, &Scopes),
    random: &[u8; ApiKey::RANDOM_BYTES],
    now: Timestamp,
) -> Result<ApiKey, CreateKeyError> {
    if name.trim().is_empty() {
        return Err(CreateKeyError::Name);
    }
    let key = ApiKey::generate(environment, random);
    let row = KeyRow {
        id: key.id().to_owned(),
        name: name.to_owned(),
        secret_hash: key.secret_hash().to_vec(),
        scopes: scopes.clone(),
    };
    let mut tx = db.begin().await?;
    if !keys::insert(&mut tx, &row, KEYS_MAX, now).await? {
        return Err(CreateKeyError::TooMany);
    }
    tx.commit().await?;
    Ok(key)
}

/// Revokes a key for good: the next request with it is refused. One that is revoked already stays as it is.
///
/// # Errors
/// An id that no key has.
pub async fn revoke_key(db: &Db, id: &str, now: Timestamp) -> Result<(), ChangeKeyError> {
    let mut tx = db.begin().await?;
    if !keys::revoke(&mut tx, id, now).await? {
        return Err(ChangeKeyError::Unknown(id.to_owned()));
    }
    Ok(tx.commit().await?)
}

/// Pairs a public key: from now on requests with this API key must be signed by it, or, for `previous_for` longer, by the
/// one before. Never more than two are valid.
///
/// # Errors
/// A key that is unknown or revoked, and a public key that was paired with it before.
pub async fn pair_key(
    db: &Db,
    id: &str,
    key: &PublicKey,
    previous_for: Duration,
    now: Timestamp,
) -> Result<(), ChangeKeyError> {
    let mut tx = db.begin().await?;
    if !keys::lock(&mut tx, id).await? {
        return Err(ChangeKeyError::Revoked(id.to_owned()));
    }
    if !keys::pair(&mut tx, id, key, now).await? {
        return Err(ChangeKeyError::Paired(id.to_owned()));
    }
    keys::end_others(&mut tx, id, key, (now, now.plus(previous_for))).await?;
    Ok(tx.commit().await?)
}

/// Registers a webhook with a signing key from random bytes; it gets the events that come from now on.
///
/// # Errors
/// A URL that is not taken.
pub async fn add_webhook(
    db: &Db,
    webhook: &NewWebhook<'_>,
    random: &[u8; 52],
    now: Timestamp,
) -> Result<WebhookRow, AddWebhookError> {
    let url = webhook::check_url(webhook.url, webhook.allow_private)?;
    let (secret, rest) = random.split_first_chunk::<32>().expect("52 is more than 32");
    let (id, key_id) = rest.split_at(12);
    let row = WebhookRow {
        id: format!("wh_{}", hex::encode(id)),
        url: url.into(),
        label: webhook.label.to_owned(),
        allow_private: webhook.allow_private,
        signing_key_id: format!("sk_{}", hex::encode(key_id)),
        signing_key: webhook::signing_key(*secret),
    };
    let mut tx = db.begin().await?;
    webhooks::insert(&mut tx, &row, now).await?;
    tx.commit().await?;
    Ok(row)
}
