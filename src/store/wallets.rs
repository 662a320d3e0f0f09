//! Addresses whose keys the signer holds, and of which account each is.
//!
//! A wallet follows from its account: to add it again changes nothing.

use std::collections::HashSet;

use landfall_chain::{Address, Family};

use crate::store::deposits::address;
use crate::store::sql::{execute, fetch_all, fetch_optional, statements};
use crate::store::{Connection, StoreError, Tx};
use crate::time::Timestamp;

/// An address that the signer derived for an account.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wallet {
    pub address: Address,
    pub account_id: String,
    /// Empty for the address that pays.
    pub tag: String,
    pub path: String,
    pub key_id: String,
}

statements! {
    ADD = "INSERT INTO wallets (family, address, account_id, tag, path, key_id, created_us) VALUES ($1, $2, $3, $4, $5, $6, $7) \
           ON CONFLICT (family, address) DO NOTHING";
    OF_TAG = "SELECT address FROM wallets WHERE account_id = $1 AND tag = $2 ORDER BY family";
    // Addresses are spread evenly, so the lowest of them are a fair sample.
    SAMPLE = "SELECT address, account_id, tag, path, key_id FROM wallets WHERE family = $1 ORDER BY address LIMIT $2";
    // Who pays from it waits for others who do: what they reserved is then counted.
    LOCK_FURTHER = "SELECT address, tag FROM wallets WHERE account_id = $1 AND family = $2 AND tag <> '' ORDER BY tag" [" FOR UPDATE"] "";
    OF_ONE = "SELECT 1 FROM wallets AS a JOIN wallets AS b ON b.account_id = a.account_id AND b.family = a.family \
              WHERE a.family = $1 AND a.address = $2 AND b.address = $3 AND a.address <> b.address";
    QUARANTINE = "UPDATE wallets SET quarantined_us = $1 WHERE family = $2 AND address = $3 AND quarantined_us IS NULL";
    QUARANTINED = "SELECT address FROM wallets WHERE family = $1 AND quarantined_us IS NOT NULL";
    QUARANTINED_OF = "SELECT address FROM wallets WHERE account_id = $1 AND quarantined_us IS NOT NULL ORDER BY family, tag";
    RELEASE = "UPDATE wallets SET quarantined_us = NULL WHERE account_id = $1";
    IS_ONE = "SELECT 1 FROM wallets WHERE family = $1 AND address = $2";
    LOCK_PAYING = "SELECT address, quarantined_us IS NOT NULL FROM wallets WHERE account_id = $1 AND family = $2 AND tag = ''" [" FOR UPDATE"] "";
}

pub async fn add(tx: &mut Tx, wallet: &Wallet, now: Timestamp) -> Result<(), StoreError> {
    let Wallet { address, account_id, tag, path, key_id } = wallet;
    let family = name(address.family());
    execute!(tx, ADD, family, address.as_bytes(), account_id, tag, path, key_id, now.0).map(drop)
}

/// The addresses that the account has under a tag, of each family at most one.
pub async fn of_tag(connection: &mut impl Connection, account_id: &str, tag: &str) -> Result<Vec<Address>, StoreError> {
    let rows = fetch_all!(connection, (Vec<u8>,), OF_TAG, account_id, tag)?;
    rows.iter().map(|(bytes,)| address("wallet", bytes)).collect()
}

/// Some wallets of a family.
pub async fn sample(connection: &mut impl Connection, family: Family, limit: u32) -> Result<Vec<Wallet>, StoreError> {
    type Row = (Vec<u8>, String, String, String, String);
    let rows = fetch_all!(connection, Row, SAMPLE, name(family), i64::from(limit))?;
    let wallet = |(bytes, account_id, tag, path, key_id): Row| {
        Ok(Wallet { address: address("wallet", &bytes)?, account_id, tag, path, key_id })
    };
    rows.into_iter().map(wallet).collect()
}

/// The address from which the account pays on chains of this family, and whether it is quarantined. It is locked for the
/// transaction; `None` where we hold no key.
pub async fn lock_paying(tx: &mut Tx, account_id: &str, family: Family) -> Result<Option<(Address, bool)>, StoreError> {
    let row = fetch_optional!(tx, (Vec<u8>, bool), LOCK_PAYING, account_id, name(family))?;
    row.map(|(bytes, is_quarantined)| Ok((address("wallet", &bytes)?, is_quarantined))).transpose()
}

/// The account's further addresses on chains of this family, each with its tag, locked for the transaction.
pub async fn lock_further(tx: &mut Tx, account_id: &str, family: Family) -> Result<Vec<(Address, String)>, StoreError> {
    let rows = fetch_all!(tx, (Vec<u8>, String), LOCK_FURTHER, account_id, name(family))?;
    rows.into_iter().map(|(bytes, tag)| Ok((address("wallet", &bytes)?, tag))).collect()
}

/// Whether these are two addresses of one account, and the keys of both are held.
pub async fn are_of_one(connection: &mut impl Connection, one: &Address, other: &Address) -> Result<bool, StoreError> {
    let found = fetch_optional!(connection, (i32,), OF_ONE, name(one.family()), one.as_bytes(), other.as_bytes())?;
    Ok(found.is_some())
}

/// Whether we hold the key of the address.
pub async fn is_one(connection: &mut impl Connection, of: &Address) -> Result<bool, StoreError> {
    Ok(fetch_optional!(connection, (i32,), IS_ONE, name(of.family()), of.as_bytes())?.is_some())
}

/// The wallet signs nothing more. What is on record of an earlier time stays.
pub async fn quarantine(tx: &mut Tx, of: &Address, now: Timestamp) -> Result<(), StoreError> {
    execute!(tx, QUARANTINE, now.0, name(of.family()), of.as_bytes()).map(drop)
}

/// The wallets of a family that sign nothing. There are few: each needs a person.
pub async fn quarantined(connection: &mut impl Connection, family: Family) -> Result<HashSet<Address>, StoreError> {
    let rows = fetch_all!(connection, (Vec<u8>,), QUARANTINED, name(family))?;
    rows.iter().map(|(bytes,)| address("wallet", bytes)).collect()
}

/// The wallets of an account that sign nothing.
pub async fn quarantined_of(connection: &mut impl Connection, account_id: &str) -> Result<Vec<Address>, StoreError> {
    let rows = fetch_all!(connection, (Vec<u8>,), QUARANTINED_OF, account_id)?;
    rows.iter().map(|(bytes,)| address("wallet", bytes)).collect()
}

/// The wallets of an account sign again.
pub async fn release(tx: &mut Tx, account_id: &str) -> Result<(), StoreError> {
    execute!(tx, RELEASE, account_id).map(drop)
}

/// The name that is stored.
pub(super) const fn name(family: Family) -> &'static str {
    match family {
        Family::Evm => "evm",
        Family::Solana => "solana",
    }
}
