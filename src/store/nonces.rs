//! The nonces of signed requests that change something: each is taken once, whichever instance asks.

use crate::store::sql::{execute, statements};
use crate::store::{StoreError, Tx};
use crate::time::Timestamp;

statements! {
    TAKE = "INSERT INTO request_nonces (nonce, expires_us) VALUES ($1, $2) ON CONFLICT DO NOTHING";
    FORGET = "DELETE FROM request_nonces WHERE expires_us < $1";
}

/// Takes a nonce; false if it is taken already.
pub async fn take(tx: &mut Tx, hash: &[u8; 32], expires: Timestamp) -> Result<bool, StoreError> {
    Ok(execute!(tx, TAKE, hash.as_slice(), expires.0)? == 1)
}

/// Forgets those that expired before this time; returns how many.
pub async fn forget(tx: &mut Tx, before: Timestamp) -> Result<u64, StoreError> {
    execute!(tx, FORGET, before.0)
}
