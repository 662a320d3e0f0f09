//! What wallets' keys sign so that a delegate acts for them: each on record before it is signed.
//!
//! Promise: a wallet has one for each of its nonces, and what is on record stays.

use landfall_chain::{Address, Authorization, Chain};

use crate::store::deposits::address;
use crate::store::error::expect_one;
use crate::store::sql::{execute, fetch_optional, statements};
use crate::store::{Connection, StoreError, Tx, int};
use crate::time::Timestamp;

/// What was signed, or is going to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recorded {
    pub implementation: Address,
    /// `None` until it is signed.
    pub signature: Option<Vec<u8>>,
}

statements! {
    INTEND = "INSERT INTO authorizations (chain, wallet, nonce, implementation, recorded_us) VALUES ($1, $2, $3, $4, $5) \
              ON CONFLICT (chain, wallet, nonce) DO NOTHING";
    FIND = "SELECT implementation, signature FROM authorizations WHERE chain = $1 AND wallet = $2 AND nonce = $3";
    SIGN = "UPDATE authorizations SET signature = $1, signer_id = $2, signer_seq = $3, signed_us = $4 \
            WHERE chain = $5 AND wallet = $6 AND nonce = $7 AND signature IS NULL";
    FORGET_SIGNATURES = "UPDATE authorizations SET signature = NULL, signer_id = NULL, signer_seq = NULL, signed_us = NULL \
                         WHERE chain = $1 AND signature IS NOT NULL";
}

/// Another signer, or another journal, is asked from now on, and carries only what it has signed itself: each is signed again
/// when it is needed.
pub async fn forget_signatures(tx: &mut Tx, chain: Chain) -> Result<(), StoreError> {
    execute!(tx, FORGET_SIGNATURES, chain.name()).map(drop)
}

/// Records what is going to be signed; what is on record stays.
pub async fn intend(
    tx: &mut Tx,
    chain: Chain,
    authorization: &Authorization,
    now: Timestamp,
) -> Result<(), StoreError> {
    let Authorization { wallet, implementation, nonce, .. } = authorization;
    let (wallet, implementation) = (wallet.as_bytes(), implementation.as_bytes());
    execute!(tx, INTEND, chain.name(), wallet, int(*nonce), implementation, now.0).map(drop)
}

/// What is on record of a wallet's nonce.
pub async fn find(
    connection: &mut impl Connection,
    chain: Chain,
    wallet: &Address,
    nonce: u64,
) -> Result<Option<Recorded>, StoreError> {
    type Row = (Vec<u8>, Option<Vec<u8>>);
    let row = fetch_optional!(connection, Row, FIND, chain.name(), wallet.as_bytes(), int(nonce))?;
    let recorded = |(implementation, signature): Row| {
        Ok(Recorded { implementation: address("implementation", &implementation)?, signature })
    };
    row.map(recorded).transpose()
}

/// Records the signature, with the signer's name and the number of its entry in that signer's journal.
pub async fn sign(
    tx: &mut Tx,
    chain: Chain,
    (wallet, nonce): (Address, u64),
    signature: &[u8],
    (signer, seq): (&str, u64),
    now: Timestamp,
) -> Result<(), StoreError> {
    let wallet = wallet.as_bytes();
    let signed = execute!(tx, SIGN, signature, signer, int(seq), now.0, chain.name(), wallet, int(nonce))?;
    expect_one("record an authorization", signed)
}
