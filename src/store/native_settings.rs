//! How native movements were seen on each chain, and from which block on.

use landfall_chain::{Chain, Native, NativeSource};

use crate::store::error::expect_one;
use crate::store::sql::{execute, fetch_all, statements};
use crate::store::{Connection, StoreError, Tx, int, parsed, uint};

statements! {
    PUT = "INSERT INTO native_settings (chain, from_number, source, eip7708_from) VALUES ($1, $2, $3, $4) \
           ON CONFLICT (chain, from_number) DO UPDATE SET source = excluded.source, eip7708_from = excluded.eip7708_from";
    FORGET = "DELETE FROM native_settings WHERE chain = $1";
    OF_CHAIN = "SELECT from_number, source, eip7708_from FROM native_settings WHERE chain = $1 ORDER BY from_number";
}

/// Records that a chain that was never watched is followed with this setting, from block `from` on.
pub async fn begin(tx: &mut Tx, chain: Chain, from: u64, native: &Native) -> Result<(), StoreError> {
    execute!(tx, FORGET, chain.name())?;
    put(tx, chain, from, native).await
}

/// Records that blocks from number `from` on are followed with this setting.
pub async fn put(tx: &mut Tx, chain: Chain, from: u64, native: &Native) -> Result<(), StoreError> {
    let put = execute!(tx, PUT, chain.name(), int(from), native.source.name(), native.eip7708_from.map(int))?;
    expect_one("record how native movements are seen", put)
}

/// The settings that a chain was followed with, each with the first block that was, ascending.
pub async fn of_chain(connection: &mut impl Connection, chain: Chain) -> Result<Vec<(u64, Native)>, StoreError> {
    let rows = fetch_all!(connection, (i64, String, Option<i64>), OF_CHAIN, chain.name())?;
    let settings = rows.into_iter().map(|(from, source, eip7708_from)| {
        let source: NativeSource = parsed("native source", &source)?;
        let eip7708_from = eip7708_from.map(|from| uint("eip7708_from", from)).transpose()?;
        Ok((uint("native setting's block", from)?, Native { source, eip7708_from }))
    });
    settings.collect()
}
