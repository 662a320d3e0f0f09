//! What operators and clients register: identities, accounts with their addresses, API keys, webhooks. Each
//! registration is one transaction, with the same rules for both. Changes to keys and webhooks, and accounts that API
//! keys open, are in the audit.
//!
//! Time and randomness are arguments; ids are made here.

mod accounts;
mod gas;
mod identities;
mod limits;
mod sweeps;
mod transfers;
mod wallets;

use std::time::{Duration, Instant};

use crate::account::NewAccount;
use crate::event::TestEvent;
use crate::identity::{self, LabelError};
use crate::key::{ApiKey, Environment, KEYS_MAX, PublicKey, Scopes};
use crate::overrides::Author;
use crate::printable::is_control;
use crate::resolver::Resolver;
use crate::store::accounts::AddAccountError;
use crate::store::keys::{self, KeyRow};
use crate::store::webhooks::{self, Rotation, Webhook, WebhookRow};
use crate::store::{self, Db, StoreError, Tx, audit, events};
use crate::time::Timestamp;
use crate::webhook::{
    self, AllowedNetworks, PREVIOUS_KEY_TIME_MAX, PREVIOUS_ROTATIONS_MAX, WEBHOOKS_MAX, WebhookUrlError,
};

pub use accounts::{OpenAccountError, derive_for_account, open_account};
use accounts::{add_part, check, parts};
pub use identities::{AddIdentityError, add_identity, open_identity};
pub use sweeps::{SweepOrder, Swept, sweep};
pub use transfers::{AcceptError, Terms, accept_transfer, accept_transfer_by};
pub use wallets::{AddAddressesError, DeriveError, DerivedAddresses, add_addresses, derive_further};

/// Why a request made nothing.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error("another request had this id")]
    Mismatch,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a list of accounts was not added to its end. The first `added` of it were added; the same list may be given
/// again.
#[derive(Debug, thiserror::Error)]
pub enum AddAccountsError {
    /// The account at `index` of the list, from 0, contradicts the record, or an account before it.
    #[error("{error}")]
    Refused { index: usize, added: usize, error: AddAccountError },
    #[error("{error}")]
    Store { added: usize, error: StoreError },
}

#[derive(Debug, thiserror::Error)]
pub enum CreateKeyError {
    #[error("a key needs a name that says what it is for")]
    Name,
    #[error("a key's name has no control characters")]
    NameText,
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
pub enum WebhookError {
    #[error(transparent)]
    Url(#[from] WebhookUrlError),
    #[error(transparent)]
    Label(#[from] LabelError),
    #[error("there are {WEBHOOKS_MAX} webhooks already, the most that are allowed")]
    TooMany,
    #[error("no webhook has this id")]
    Unknown,
    /// Another rotation would end a key before the time that was reported for it.
    #[error(
        "the keys of the last {PREVIOUS_ROTATIONS_MAX} rotations still sign, until {until}: rotate after that, or with a time of 0, which \
         ends all of them at once"
    )]
    PreviousKeys { until: Timestamp },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A webhook to be registered.
#[derive(Clone, Copy, Debug)]
pub struct NewWebhook<'a> {
    pub url: &'a str,
    pub label: &'a str,
    /// Internal networks that it may reach. Only operators may name any.
    pub allowed_networks: &'a AllowedNetworks,
    /// Sign with Ed25519 too.
    pub ed25519: bool,
}

/// Adds accounts, or addresses to existing ones. A short list is added all or nothing. A long list is checked first and
/// then added in parts, between which the chains go on. The next block of each chain is matched against what was added.
///
/// # Errors
/// The first account that contradicts the record or the list. Nothing was added then, unless the contradiction was
/// recorded after the check.
pub async fn add_accounts(db: &Db, accounts: &[NewAccount], now: Timestamp) -> Result<(), AddAccountsError> {
    let parts = parts(accounts);
    if parts.len() > 1 {
        check(db, accounts).await.map_err(|error| error.behind(0, 0))?;
    }
    let mut added = 0;
    for part in parts {
        let begun = Instant::now();
        add_part(db, part, now).await.map_err(|error| error.behind(added, added))?;
        added += part.len();
        if added < accounts.len() {
            // The others get as much time as we took.
            tokio::time::sleep(begun.elapsed()).await;
        }
    }
    Ok(())
}

/// Makes a key from random bytes and records its hash. The key cannot be shown again.
///
/// # Errors
/// A name that is empty or has control characters, and more keys than the interface allows.
pub async fn create_key(
    db: &Db,
    environment: Environment,
    (name, scopes): (&str, &Scopes),
    random: &[u8; ApiKey::RANDOM_BYTES],
    by: &Author<'_>,
) -> Result<ApiKey, CreateKeyError> {
    if name.trim().is_empty() {
        return Err(CreateKeyError::Name);
    }
    if name.contains(is_control) {
        return Err(CreateKeyError::NameText);
    }
    let key = ApiKey::generate(environment, random);
    let row = KeyRow {
        id: key.id().to_owned(),
        name: name.to_owned(),
        secret_hash: key.secret_hash().to_vec(),
        environment,
        scopes: scopes.clone(),
    };
    let mut tx = db.begin().await?;
    store::identities::lock_organization(&mut tx).await?;
    if !keys::insert(&mut tx, &row, KEYS_MAX, by.now).await? {
        return Err(CreateKeyError::TooMany);
    }
    record(&mut tx, by, "create_key", &format!("{} with {scopes}", key.id())).await?;
    tx.commit().await?;
    Ok(key)
}

/// Revokes a key for good: the next request with it is refused. A revoked key stays as it is, and only the first
/// revocation is in the audit.
///
/// # Errors
/// An id that no key has.
pub async fn revoke_key(db: &Db, id: &str, by: &Author<'_>) -> Result<(), ChangeKeyError> {
    let mut tx = db.begin().await?;
    if !keys::revoke(&mut tx, id, by.now).await? {
        let known = keys::known(&mut tx, id).await?;
        return known.map(drop).ok_or_else(|| ChangeKeyError::Unknown(id.to_owned()));
    }
    record(&mut tx, by, "revoke_key", id).await?;
    Ok(tx.commit().await?)
}

/// Pairs a public key. From now on requests with this API key must be signed by it, or, for `previous_for` longer, by
/// the one before. Never more than two are valid.
///
/// # Errors
/// A key that is unknown or revoked, and a public key that was paired with it before.
pub async fn pair_key(
    db: &Db,
    id: &str,
    key: &PublicKey,
    previous_for: Duration,
    by: &Author<'_>,
) -> Result<(), ChangeKeyError> {
    let now = by.now;
    let mut tx = db.begin().await?;
    if !keys::lock(&mut tx, id).await? {
        return Err(ChangeKeyError::Revoked(id.to_owned()));
    }
    if !keys::pair(&mut tx, id, key, now).await? {
        return Err(ChangeKeyError::Paired(id.to_owned()));
    }
    keys::end_others(&mut tx, id, key, (now, now.plus(previous_for))).await?;
    record(&mut tx, by, "pair_key", &format!("{id} with {}", key.fingerprint())).await?;
    Ok(tx.commit().await?)
}

/// Registers a webhook with signing keys from random bytes; it gets the events that come from now on. It is recorded in
/// the audit, as every change of where events go. With `resolver`, a name is refused now if it has an address that the
/// webhook must not reach. Only operators may learn that. Each connection is vetted in any case.
///
/// # Errors
/// A URL that is refused, and more webhooks than are allowed.
pub async fn add_webhook(
    db: &Db,
    resolver: Option<&Resolver>,
    webhook: &NewWebhook<'_>,
    random: &[u8; 84],
    by: &Author<'_>,
) -> Result<Webhook, WebhookError> {
    let NewWebhook { url, label, allowed_networks, ed25519 } = webhook;
    identity::check_label(label)?;
    let url = webhook::check_url(url, allowed_networks)?;
    if let Some(resolver) = resolver {
        resolver.vet(&url, allowed_networks).await?;
    }
    let (id, random) = random.split_first_chunk::<12>().expect("84 is more than 12");
    let (signing_key_id, signing_key) = new_keys(random.first_chunk().expect("84 is 12 and 72"), *ed25519);
    let row = WebhookRow {
        id: format!("wh_{}", hex::encode(id)),
        url: url.into(),
        label: (*label).to_owned(),
        allowed_networks: (*allowed_networks).clone(),
        signing_key_id,
        signing_key,
    };
    let mut tx = db.begin().await?;
    store::identities::lock_organization(&mut tx).await?;
    if webhooks::count(&mut tx).await? >= WEBHOOKS_MAX {
        return Err(WebhookError::TooMany);
    }
    webhooks::insert(&mut tx, &row, by.now).await?;
    let added = webhooks::by_id(&mut tx, &row.id).await?.ok_or(WebhookError::Unknown)?;
    record(&mut tx, by, "add_webhook", &row.id).await?;
    tx.commit().await?;
    Ok(added)
}

/// Gives a webhook other keys, of the same kinds. For `previous_for` the keys in use until now sign too. So do earlier
/// keys that still sign, up to the later of both times: if a request is repeated because its answer was lost, the
/// receiver knows the first of them. With 0 only the new keys sign, at once.
///
/// # Errors
/// A webhook that does not exist. Unless `previous_for` is 0, also one with as many signing keys as allowed.
pub async fn rotate_webhook_key(
    db: &Db,
    id: &str,
    previous_for: Duration,
    random: &[u8; 72],
    by: &Author<'_>,
) -> Result<Webhook, WebhookError> {
    let now = by.now;
    let mut tx = db.begin().await?;
    let webhook = webhooks::lock(&mut tx, id).await?.ok_or(WebhookError::Unknown)?;
    let (key_id, keys) = new_keys(random, webhook::verification_key(&webhook.signing_key).is_some());
    let (previous, previous_expires_at) = previous_keys(&webhook, previous_for.min(PREVIOUS_KEY_TIME_MAX), now)?;
    let rotation = Rotation {
        id,
        signing_key_id: &key_id,
        signing_key: &keys,
        previous_signing_key: &previous,
        previous_expires_at,
    };
    if !webhooks::rotate(&mut tx, &rotation, now).await? {
        return Err(WebhookError::Unknown);
    }
    let rotated = webhooks::by_id(&mut tx, id).await?.ok_or(WebhookError::Unknown)?;
    record(&mut tx, by, "rotate_webhook_key", &format!("{id} to {key_id}")).await?;
    tx.commit().await?;
    Ok(rotated)
}

/// Sends nothing more to a webhook. Its undelivered events are held until a person decides about them.
///
/// # Errors
/// A webhook that is not there.
pub async fn remove_webhook(db: &Db, id: &str, by: &Author<'_>) -> Result<(), WebhookError> {
    let mut tx = db.begin().await?;
    if !webhooks::delete(&mut tx, id, by.now).await? {
        return Err(WebhookError::Unknown);
    }
    record(&mut tx, by, "remove_webhook", id).await?;
    Ok(tx.commit().await?)
}

/// Queues an event whose only purpose is to show that the webhook works.
///
/// # Errors
/// A webhook that is not there.
pub async fn test_webhook(db: &Db, id: &str, random: &[u8; 32], now: Timestamp) -> Result<TestEvent, WebhookError> {
    let event = TestEvent::new(id, random, now);
    let mut tx = db.begin().await?;
    if webhooks::by_id(&mut tx, id).await?.is_none() {
        return Err(WebhookError::Unknown);
    }
    events::append_test(&mut tx, &event, now).await?;
    tx.commit().await?;
    Ok(event)
}

/// The keys that sign beside the new ones for `time`, and until when.
fn previous_keys(webhook: &Webhook, time: Duration, now: Timestamp) -> Result<(String, Timestamp), WebhookError> {
    let until = now.plus(time);
    if time.is_zero() {
        return Ok((String::new(), until));
    }
    let Webhook { signing_key, previous_signing_key, previous_key_expires_at, .. } = webhook;
    let before = previous_signing_key.split(' ').filter(|key| !key.is_empty() && *previous_key_expires_at > now);
    let mut keys: Vec<&str> = signing_key.split(' ').collect();
    let most = keys.len() * PREVIOUS_ROTATIONS_MAX;
    keys.extend(before);
    if keys.len() > most {
        return Err(WebhookError::PreviousKeys { until: *previous_key_expires_at });
    }
    Ok((keys.join(" "), until.max(*previous_key_expires_at)))
}

async fn record(tx: &mut Tx, by: &Author<'_>, action: &str, what: &str) -> Result<(), StoreError> {
    audit::append(tx, &by.entry(None, action, what)).await
}

/// The id and the text of new keys.
fn new_keys(random: &[u8; 72], ed25519: bool) -> (String, String) {
    let (symmetric, rest) = random.split_first_chunk().expect("72 is more than 32");
    let (private, id) = rest.split_first_chunk().expect("40 is more than 32");
    let mut keys = webhook::signing_key(*symmetric);
    if ed25519 {
        keys = format!("{keys} {}", webhook::ed25519_key(*private));
    }
    (format!("sk_{}", hex::encode(id)), keys)
}
