//! API keys, by the hash of their secret.

use sqlx::FromRow;

use crate::store::sql::{execute, fetch_optional, statements};
use crate::store::{Connection, ORGANIZATION, StoreError, Tx, int};
use crate::time::Timestamp;

/// A key as it is stored: enough to check one, too little to make one.
#[derive(Clone, PartialEq, Eq, Debug, FromRow)]
pub struct KeyRow {
    pub id: String,
    pub name: String,
    pub secret_hash: Vec<u8>,
}

statements! {
    INSERT = "INSERT INTO api_keys (id, organization_id, name, secret_hash, created_us) \
              SELECT $1, $2, $3, $4, $5 WHERE (SELECT COUNT(*) FROM api_keys WHERE organization_id = $2) < $6";
    BY_ID = "SELECT id, name, secret_hash FROM api_keys WHERE id = $1";
}

/// Records a key, unless there are `most` already; whether it did.
pub async fn insert(tx: &mut Tx, key: &KeyRow, most: u64, now: Timestamp) -> Result<bool, StoreError> {
    let KeyRow { id, name, secret_hash } = key;
    Ok(execute!(tx, INSERT, id, ORGANIZATION, name, secret_hash, now.0, int(most))? == 1)
}

/// The key with this id.
pub async fn by_id(connection: &mut impl Connection, id: &str) -> Result<Option<KeyRow>, StoreError> {
    fetch_optional!(connection, KeyRow, BY_ID, id)
}
