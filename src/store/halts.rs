//! On which chains a person has stopped the sending of transfers.

use landfall_chain::Chain;

use crate::store::sql::{execute, fetch_all, fetch_optional, statements};
use crate::store::{Connection, StoreError, Tx, parsed};
use crate::time::Timestamp;

/// A stop that is in force.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Halt {
    pub chain: Chain,
    pub actor: String,
    pub reason: String,
    pub since: Timestamp,
}

statements! {
    PUT = "INSERT INTO sending_halts (chain, actor, reason, since_us) VALUES ($1, $2, $3, $4) ON CONFLICT (chain) DO NOTHING";
    REMOVE = "DELETE FROM sending_halts WHERE chain = $1";
    IS_HALTED = "SELECT 1 FROM sending_halts WHERE chain = $1";
    ALL = "SELECT chain, actor, reason, since_us FROM sending_halts ORDER BY chain";
}

/// Stops the sending; where it is stopped already, that stays as it is.
pub async fn put(tx: &mut Tx, chain: Chain, (actor, reason): (&str, &str), now: Timestamp) -> Result<(), StoreError> {
    execute!(tx, PUT, chain.name(), actor, reason, now.0).map(drop)
}

/// Ends a stop; returns whether there was one.
pub async fn remove(tx: &mut Tx, chain: Chain) -> Result<bool, StoreError> {
    Ok(execute!(tx, REMOVE, chain.name())? > 0)
}

pub async fn is_halted(connection: &mut impl Connection, chain: Chain) -> Result<bool, StoreError> {
    Ok(fetch_optional!(connection, (i32,), IS_HALTED, chain.name())?.is_some())
}

/// All that are in force.
pub async fn all(connection: &mut impl Connection) -> Result<Vec<Halt>, StoreError> {
    let rows = fetch_all!(connection, (String, String, String, i64), ALL)?;
    let halt = |(chain, actor, reason, since): (String, String, String, i64)| {
        Ok(Halt { chain: parsed("chain", &chain)?, actor, reason, since: Timestamp(since) })
    };
    rows.into_iter().map(halt).collect()
}
