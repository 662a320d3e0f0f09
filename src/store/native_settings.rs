//! How native movements were seen on each chain, and from which block on.

use landfall_chain::{Chain, Native, NativeSource};

use crate::store::error::expect_one;
use crate::store::sql::{execute, fetch_all, fetch_optional, statements};
use crate::store::{Connection, StoreError, Tx, int, parsed, uint};

statements! {
    PUT = "INSERT INTO native_settings (chain, from_number, source, eip7708_from) VALUES ($1, $2, $3, $4)";
    FORGET = "DELETE FROM native_settings WHERE chain = $1";
    CUT = "DELETE FROM native_settings WHERE chain = $1 AND from_number >= $2";
    OF_CHAIN = "SELECT from_number, source, eip7708_from FROM native_settings WHERE chain = $1 ORDER BY from_number";
    NEWEST = "SELECT from_number, source, eip7708_from FROM native_settings WHERE chain = $1 ORDER BY from_number DESC LIMIT 1";
}

/// Records that a chain that was never watched is followed with this setting, from block `from` on.
pub async fn begin(tx: &mut Tx, chain: Chain, from: u64, native: &Native) -> Result<(), StoreError> {
    execute!(tx, FORGET, chain.name())?;
    put(tx, chain, from, native).await
}

/// Records that blocks from number `from` on are followed with this setting; replaces what was recorded from there on.
pub async fn put(tx: &mut Tx, chain: Chain, from: u64, native: &Native) -> Result<(), StoreError> {
    execute!(tx, CUT, chain.name(), int(from))?;
    let put = execute!(tx, PUT, chain.name(), int(from), native.source.name(), native.eip7708_from.map(int))?;
    expect_one("record how native movements are seen", put)
}

/// The settings that a chain was followed with, each with its first block, ascending.
pub async fn of_chain(connection: &mut impl Connection, chain: Chain) -> Result<Vec<(u64, Native)>, StoreError> {
    let rows = fetch_all!(connection, Row, OF_CHAIN, chain.name())?;
    rows.into_iter().map(setting).collect()
}

/// The setting that the newest blocks of a chain are followed with, and the first of them.
pub async fn newest(connection: &mut impl Connection, chain: Chain) -> Result<Option<(u64, Native)>, StoreError> {
    fetch_optional!(connection, Row, NEWEST, chain.name())?.map(setting).transpose()
}

/// Records that the blocks from number `from` on, which will be connected again, are followed with the newest setting.
pub async fn lower(tx: &mut Tx, chain: Chain, from: u64) -> Result<(), StoreError> {
    let Some((_, native)) = newest(tx, chain).await?.filter(|(first, _)| *first > from) else { return Ok(()) };
    put(tx, chain, from, &native).await
}

type Row = (i64, String, Option<i64>);

fn setting((from, source, eip7708_from): Row) -> Result<(u64, Native), StoreError> {
    let source: NativeSource = parsed("native source", &source)?;
    let eip7708_from = eip7708_from.map(|from| uint("eip7708_from", from)).transpose()?;
    Ok((uint("native setting's block", from)?, Native { source, eip7708_from }))
}
