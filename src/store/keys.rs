//! API keys by the hash of their secret, and the public keys that sign for them.

use sqlx_macros::FromRow;

use crate::key::{Environment, PublicKey, Scopes};
use crate::store::sql::{execute, fetch_all, statements};
use crate::store::{Connection, ORGANIZATION, StoreError, Tx, int, parsed};
use crate::time::Timestamp;

/// A key as it is stored: enough to check one, too little to make one.
#[derive(Clone, Debug)]
pub struct KeyRow {
    pub id: String,
    pub name: String,
    pub secret_hash: Vec<u8>,
    /// What it was made for.
    pub environment: Environment,
    pub scopes: Scopes,
}

/// What is known of a key when a request names it.
#[derive(Clone, Debug)]
pub struct KnownKey {
    pub key: KeyRow,
    pub is_revoked: bool,
    /// Signing is required from the first public key on, even when none is valid any more.
    pub is_paired: bool,
    /// Each with the time until which it signs.
    pub public_keys: Vec<(PublicKey, Option<Timestamp>)>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedKey {
    pub id: String,
    pub name: String,
    pub environment: Environment,
    pub scopes: Scopes,
    pub created_at: Timestamp,
    pub last_used_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
    pub is_signed: bool,
}

#[derive(FromRow)]
struct KnownRow {
    id: String,
    name: String,
    secret_hash: Vec<u8>,
    environment: String,
    scopes: String,
    revoked_us: Option<i64>,
    spki: Option<Vec<u8>>,
    valid_until_us: Option<i64>,
}

#[derive(FromRow)]
struct ListedRow {
    id: String,
    name: String,
    environment: String,
    scopes: String,
    created_us: i64,
    last_used_us: Option<i64>,
    revoked_us: Option<i64>,
    public_keys: i64,
}

statements! {
    INSERT = "INSERT INTO api_keys (id, organization_id, name, secret_hash, environment, scopes, created_us) \
              SELECT $1, $2, $3, $4, $5, $6, $7 \
              WHERE (SELECT COUNT(*) FROM api_keys WHERE organization_id = $2 AND revoked_us IS NULL) < $8";
    KNOWN = "SELECT k.id, k.name, k.secret_hash, k.environment, k.scopes, k.revoked_us, p.spki, p.valid_until_us FROM api_keys k \
             LEFT JOIN public_keys p ON p.key_id = k.id WHERE k.id = $1 ORDER BY p.created_us, p.spki";
    LIST = "SELECT id, name, environment, scopes, created_us, last_used_us, revoked_us, \
            (SELECT COUNT(*) FROM public_keys p WHERE p.key_id = k.id) AS public_keys \
            FROM api_keys k WHERE organization_id = $1 ORDER BY created_us, id";
    /// A key is revoked once: the first time stays.
    REVOKE = "UPDATE api_keys SET revoked_us = $2 WHERE id = $1 AND revoked_us IS NULL";
    USED = "UPDATE api_keys SET last_used_us = $2 WHERE id = $1 AND (last_used_us IS NULL OR last_used_us < $2)";
    /// Locks the row, so that pairings come one after another.
    LOCK = "UPDATE api_keys SET revoked_us = NULL WHERE id = $1 AND revoked_us IS NULL";
    PAIR = "INSERT INTO public_keys (key_id, spki, created_us) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
    END = "UPDATE public_keys SET valid_until_us = $2 WHERE key_id = $1 AND spki <> $3 AND valid_until_us > $2";
    END_LATER = "UPDATE public_keys SET valid_until_us = $2 WHERE key_id = $1 AND spki <> $3 AND valid_until_us IS NULL";
}

/// Records a key, unless there are `most` already that are not revoked; returns whether it did.
pub async fn insert(tx: &mut Tx, key: &KeyRow, most: u64, now: Timestamp) -> Result<bool, StoreError> {
    let KeyRow { id, name, secret_hash, environment, scopes } = key;
    let (environment, scopes) = (environment.name(), scopes.to_string());
    Ok(execute!(tx, INSERT, id, ORGANIZATION, name, secret_hash, environment, scopes, now.0, int(most))? == 1)
}

/// The key with this id, revoked or not.
pub async fn known(connection: &mut impl Connection, id: &str) -> Result<Option<KnownKey>, StoreError> {
    let mut found: Option<KnownKey> = None;
    for row in fetch_all!(connection, KnownRow, KNOWN, id)? {
        let known = match &mut found {
            Some(known) => known,
            None => found.insert(KnownKey {
                key: KeyRow {
                    id: row.id,
                    name: row.name,
                    secret_hash: row.secret_hash,
                    environment: environment(&row.environment)?,
                    scopes: parsed("scopes of an API key", &row.scopes)?,
                },
                is_revoked: row.revoked_us.is_some(),
                is_paired: row.spki.is_some(),
                public_keys: Vec::new(),
            }),
        };
        if let Some(spki) = row.spki {
            let key = PublicKey::from_spki(spki).map_err(|error| StoreError::inconsistent("public key", error))?;
            known.public_keys.push((key, row.valid_until_us.map(Timestamp)));
        }
    }
    Ok(found)
}

/// Every key, oldest first.
pub async fn list(connection: &mut impl Connection) -> Result<Vec<ListedKey>, StoreError> {
    let rows = fetch_all!(connection, ListedRow, LIST, ORGANIZATION)?;
    let listed = rows.into_iter().map(|row| {
        Ok(ListedKey {
            id: row.id,
            name: row.name,
            environment: environment(&row.environment)?,
            scopes: parsed("scopes of an API key", &row.scopes)?,
            created_at: Timestamp(row.created_us),
            last_used_at: row.last_used_us.map(Timestamp),
            revoked_at: row.revoked_us.map(Timestamp),
            is_signed: row.public_keys > 0,
        })
    });
    listed.collect()
}

/// Revokes a key for good; returns whether there was one that was not revoked.
pub async fn revoke(tx: &mut Tx, id: &str, now: Timestamp) -> Result<bool, StoreError> {
    Ok(execute!(tx, REVOKE, id, now.0)? == 1)
}

/// Records when a key was used, unless a later time is on record.
pub async fn used(tx: &mut Tx, id: &str, at: Timestamp) -> Result<(), StoreError> {
    execute!(tx, USED, id, at.0).map(drop)
}

/// Locks a key that is not revoked until the transaction ends; returns whether there is one.
pub async fn lock(tx: &mut Tx, id: &str) -> Result<bool, StoreError> {
    Ok(execute!(tx, LOCK, id)? == 1)
}

/// Records a public key that signs without an end; returns whether it is new.
pub async fn pair(tx: &mut Tx, id: &str, key: &PublicKey, now: Timestamp) -> Result<bool, StoreError> {
    Ok(execute!(tx, PAIR, id, key.spki(), now.0)? == 1)
}

/// Ends the earlier public keys: those that had an end already end at `now`, the last one at `until`.
pub async fn end_others(
    tx: &mut Tx,
    id: &str,
    newest: &PublicKey,
    (now, until): (Timestamp, Timestamp),
) -> Result<(), StoreError> {
    execute!(tx, END, id, now.0, newest.spki())?;
    execute!(tx, END_LATER, id, until.0, newest.spki()).map(drop)
}

fn environment(text: &str) -> Result<Environment, StoreError> {
    let named = Environment::ALL.into_iter().find(|environment| environment.name() == text);
    named.ok_or_else(|| StoreError::inconsistent("environment of an API key", text))
}
