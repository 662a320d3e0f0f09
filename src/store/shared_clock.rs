//! The time of a database that several machines share.

use crate::store::sql::{fetch_optional, statements};
use crate::store::{Connection, StoreError};
use crate::time::Timestamp;

statements! {
    NOW = "SELECT " ["CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT) + 0 * "] "0";
}

/// `None` on SQLite, whose clock is this machine's.
pub async fn now(connection: &mut impl Connection) -> Result<Option<Timestamp>, StoreError> {
    let row = fetch_optional!(connection, (i64,), NOW)?;
    Ok(row.map(|(now,)| Timestamp(now)).filter(|now| *now != Timestamp::EPOCH))
}
