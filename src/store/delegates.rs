//! Which delegate pays on each chain: the one that is in use, and all that ever were.
//!
//! Promise: what is on record stays. A delegate that was in use may have paid, so it is asked for ever.

use landfall_chain::{Chain, Delegate, Route};

use crate::store::error::expect_one;
use crate::store::sql::{execute, fetch_all, statements};
use crate::store::{Connection, StoreError, Tx, int, uint};
use crate::time::Timestamp;

/// A delegate that is in use, or was.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Taken {
    /// 0 for the first of the chain, which nobody had to take.
    pub number: u64,
    /// Its name and all its addresses.
    pub delegate: String,
    pub since: Timestamp,
}

statements! {
    TAKE = "INSERT INTO delegates (chain, number, delegate, since_us) VALUES ($1, $2, $3, $4) ON CONFLICT (chain, number) DO NOTHING";
    TAKEN = "SELECT number, delegate, since_us FROM delegates WHERE chain = $1 ORDER BY number";
}

/// All of the chain, the one in use last; none before the first transfer that a delegate pays.
pub async fn taken(connection: &mut impl Connection, chain: Chain) -> Result<Vec<Taken>, StoreError> {
    let rows = fetch_all!(connection, (i64, String, i64), TAKEN, chain.name())?;
    let taken = |(number, delegate, since): (i64, String, i64)| {
        Ok(Taken { number: uint("number of a delegate", number)?, delegate, since: Timestamp(since) })
    };
    rows.into_iter().map(taken).collect()
}

/// The route of a transfer that is accepted now, of an asset with this one. If a delegate pays it, it is the one in use; where
/// none is on record, the listed one is from now on.
pub async fn route(tx: &mut Tx, chain: Chain, listed: &Route, now: Timestamp) -> Result<String, StoreError> {
    let Route::Delegate(first) = listed else { return Ok(listed.to_string()) };
    let in_use = taken(tx, chain).await?.pop();
    if in_use.is_none() {
        begin(tx, chain, first, now).await?;
    }
    Ok(in_use.map_or_else(|| listed.to_string(), |taken| taken.route()))
}

/// The first delegate of a chain is in use; where one is on record, nothing changes.
pub async fn begin(tx: &mut Tx, chain: Chain, first: &Delegate, now: Timestamp) -> Result<(), StoreError> {
    execute!(tx, TAKE, chain.name(), 0_i64, first.to_string(), now.0).map(drop)
}

/// From now on `delegate` is in use, behind the one with the number `after`.
pub async fn take(
    tx: &mut Tx,
    chain: Chain,
    (delegate, after): (&Delegate, u64),
    now: Timestamp,
) -> Result<(), StoreError> {
    let taken = execute!(tx, TAKE, chain.name(), int(after.saturating_add(1)), delegate.to_string(), now.0)?;
    expect_one("take a delegate", taken)
}

impl Taken {
    /// The route of transfers that it pays.
    pub fn route(&self) -> String {
        format!("{} {}", Route::DELEGATE, self.delegate)
    }

    pub fn is(&self, delegate: &Delegate) -> bool {
        self.delegate == delegate.to_string()
    }
}
