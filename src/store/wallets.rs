//! Addresses whose keys the signer holds, and of which account each is.
//!
//! A wallet follows from its account: to add it again changes nothing.

use landfall_chain::{Address, Family};

use crate::store::deposits::address;
use crate::store::sql::{execute, fetch_optional, statements};
use crate::store::{StoreError, Tx};
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
    // Who pays from it waits for others who do: what they reserved is then counted.
    LOCK_PAYING = "SELECT address FROM wallets WHERE account_id = $1 AND family = $2 AND tag = ''" [" FOR UPDATE"] "";
}

pub async fn add(tx: &mut Tx, wallet: &Wallet, now: Timestamp) -> Result<(), StoreError> {
    let Wallet { address, account_id, tag, path, key_id } = wallet;
    let family = name(address.family());
    execute!(tx, ADD, family, address.as_bytes(), account_id, tag, path, key_id, now.0).map(drop)
}

/// The address from which the account pays on chains of this family, locked for the transaction; `None` where we hold
/// no key.
pub async fn lock_paying(tx: &mut Tx, account_id: &str, family: Family) -> Result<Option<Address>, StoreError> {
    let row = fetch_optional!(tx, (Vec<u8>,), LOCK_PAYING, account_id, name(family))?;
    row.map(|(bytes,)| address("wallet", &bytes)).transpose()
}

/// The name that is stored.
const fn name(family: Family) -> &'static str {
    match family {
        Family::Evm => "evm",
        Family::Solana => "solana",
    }
}
