//! On which chains the sender recovers, because this store may be an old copy.

use landfall_chain::Chain;

use crate::store::sql::{execute, fetch_optional, statements};
use crate::store::{Connection, StoreError, Tx, int, uint};
use crate::time::Timestamp;

/// A recovery that is under way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recovery {
    /// What was noticed first, or why a person asked for it.
    pub reason: String,
    pub since: Timestamp,
    /// A final block of this time, or of a later one, shows that all that may have been signed before is over.
    pub until: Timestamp,
}

statements! {
    BEGIN_RECOVERY = "INSERT INTO recoveries (chain, reason, since_us, until_us) VALUES ($1, $2, $3, $4) \
                      ON CONFLICT (chain) DO UPDATE SET until_us = excluded.until_us WHERE excluded.until_us > recoveries.until_us";
    SET_BACK = "INSERT INTO set_backs (chain, number) VALUES ($1, COALESCE((SELECT number FROM cursors WHERE chain = $1), 0)) \
                ON CONFLICT (chain) DO UPDATE SET number = excluded.number WHERE excluded.number < set_backs.number";
    SET_BACK_TO = "UPDATE set_backs SET number = $1 WHERE chain = $2 AND number > $1";
    SET_BACK_OF = "SELECT number FROM set_backs WHERE chain = $1";
    END_RECOVERY = "DELETE FROM recoveries WHERE chain = $1 AND until_us <= $2";
    RECOVERY_OF = "SELECT reason, since_us, until_us FROM recoveries WHERE chain = $1";
}

/// Begins a recovery. Where one is under way, it lasts as long as both need. From now on it is on record that the store may
/// have been set back.
pub async fn begin(
    tx: &mut Tx,
    chain: Chain,
    reason: &str,
    (now, until): (Timestamp, Timestamp),
) -> Result<(), StoreError> {
    execute!(tx, BEGIN_RECOVERY, chain.name(), reason, now.0, until.0)?;
    execute!(tx, SET_BACK, chain.name()).map(drop)
}

/// What was noticed lies behind this block: the store may not know what a lost one did from there on.
pub async fn set_back_to(tx: &mut Tx, chain: Chain, number: u64) -> Result<(), StoreError> {
    execute!(tx, SET_BACK_TO, int(number), chain.name()).map(drop)
}

/// The block up to which all is on record of the wallets that were watched then; `None` where the store was never set back,
/// as far as anybody noticed.
pub async fn set_back_of(connection: &mut impl Connection, chain: Chain) -> Result<Option<u64>, StoreError> {
    let row = fetch_optional!(connection, (i64,), SET_BACK_OF, chain.name())?;
    row.map(|(number,)| uint("block number", number)).transpose()
}

/// Ends the recovery of the chain that lasts until `until`, and none that was begun anew meanwhile.
pub async fn end(tx: &mut Tx, chain: Chain, until: Timestamp) -> Result<(), StoreError> {
    execute!(tx, END_RECOVERY, chain.name(), until.0).map(drop)
}

/// The recovery of the chain; `None` where there is none.
pub async fn of_chain(connection: &mut impl Connection, chain: Chain) -> Result<Option<Recovery>, StoreError> {
    let row = fetch_optional!(connection, (String, i64, i64), RECOVERY_OF, chain.name())?;
    let recovery = |(reason, since, until)| Recovery { reason, since: Timestamp(since), until: Timestamp(until) };
    Ok(row.map(recovery))
}
