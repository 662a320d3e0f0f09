//! Cancellations: what payers' keys sign so that transfers are never paid. Each is on record before it is signed.

use landfall_chain::Chain;

use crate::store::error::expect_one;
use crate::store::sql::{execute, fetch_all, fetch_optional, statements};
use crate::store::{Connection, StoreError, Tx, int, parsed};
use crate::time::Timestamp;
use crate::transfer::TransferId;

statements! {
    INTEND = "INSERT INTO cancellations (transfer_id, recorded_us) VALUES ($1, $2) ON CONFLICT (transfer_id) DO NOTHING";
    IS_INTENDED = "SELECT 1 FROM cancellations WHERE transfer_id = $1";
    SIGN = "UPDATE cancellations SET signature = $1, signer_id = $2, signer_seq = $3, signed_us = $4 \
            WHERE transfer_id = $5 AND signature IS NULL";
    FORGET_SIGNATURES = "UPDATE cancellations SET signature = NULL, signer_id = NULL, signer_seq = NULL, signed_us = NULL \
                         WHERE signature IS NOT NULL AND transfer_id IN (SELECT id FROM transfers WHERE chain = $1)";
    OF_UNFINISHED = "SELECT c.transfer_id, c.signature FROM transfers AS t JOIN cancellations AS c ON c.transfer_id = t.id \
                     WHERE t.chain = $1 AND t.status IN ('ACCEPTED', 'SUBMITTED') AND c.signature IS NOT NULL";
}

/// Records what is going to be signed; what is on record stays.
pub async fn intend(tx: &mut Tx, id: TransferId, now: Timestamp) -> Result<(), StoreError> {
    execute!(tx, INTEND, id.to_string(), now.0).map(drop)
}

/// As [`authorizations::forget_signatures`](crate::store::authorizations::forget_signatures).
pub async fn forget_signatures(tx: &mut Tx, chain: Chain) -> Result<(), StoreError> {
    execute!(tx, FORGET_SIGNATURES, chain.name()).map(drop)
}

/// Whether it is on record that this was signed, or was going to be.
pub async fn is_intended(connection: &mut impl Connection, id: TransferId) -> Result<bool, StoreError> {
    Ok(fetch_optional!(connection, (i32,), IS_INTENDED, id.to_string())?.is_some())
}

/// Records the signature, with the signer's name and the number of its entry in that signer's journal.
pub async fn sign(
    tx: &mut Tx,
    id: TransferId,
    signature: &[u8],
    (signer, seq): (&str, u64),
    now: Timestamp,
) -> Result<(), StoreError> {
    let signed = execute!(tx, SIGN, signature, signer, int(seq), now.0, id.to_string())?;
    expect_one("record a cancellation", signed)
}

/// The signatures of all transfers of the chain that are not terminal.
pub async fn of_unfinished(
    connection: &mut impl Connection,
    chain: Chain,
) -> Result<Vec<(TransferId, Vec<u8>)>, StoreError> {
    let rows = fetch_all!(connection, (String, Vec<u8>), OF_UNFINISHED, chain.name())?;
    rows.into_iter().map(|(id, signature)| Ok((parsed("transfer id", &id)?, signature))).collect()
}
