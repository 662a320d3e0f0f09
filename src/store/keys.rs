//! API keys, by the hash of their secret.

use sqlx::FromRow;

use crate::store::error::expect_one;
use crate::store::sql::{execute, fetch_optional, statements};
use crate::store::{Connection, ORGANIZATION, StoreError, Tx, uint};
use crate::time::Timestamp;

/// A key as it is stored: enough to check one, too little to make one.
#[derive(Clone, PartialEq, Eq, Debug, FromRow)]
pub struct KeyRow {
    pub id: String,
    pub name: String,
    pub secret_hash: Vec<u8>,
}

statements! {
    INSERT = "INSERT INTO api_keys (id, organization_id, name, secret_hash, created_us) VALUES ($1, $2, $3, $4, $5)";
    COUNT = "SELECT COUNT(*) FROM api_keys WHERE organization_id = $1";
    BY_ID = "SELECT id, name, secret_hash FROM api_keys WHERE id = $1";
}

/// Records a key.
pub async fn insert(tx: &mut Tx, key: &KeyRow, now: Timestamp) -> Result<(), StoreError> {
    let inserted = execute!(tx, INSERT, &key.id, ORGANIZATION, &key.name, &key.secret_hash, now.0)?;
    expect_one("insert API key", inserted)
}

/// How many keys there are.
pub async fn count(connection: &mut impl Connection) -> Result<u64, StoreError> {
    let row = fetch_optional!(connection, (i64,), COUNT, ORGANIZATION)?;
    uint("count", row.map_or(0, |(count,)| count))
}

/// The key with this id.
pub async fn by_id(connection: &mut impl Connection, id: &str) -> Result<Option<KeyRow>, StoreError> {
    fetch_optional!(connection, KeyRow, BY_ID, id)
}
