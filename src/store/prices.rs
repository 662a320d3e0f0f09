//! Prices of native currencies as they were observed; insert only.

use sqlx_macros::FromRow;

use crate::gas::Observation;
use crate::store::error::expect_one;
use crate::store::sql::{execute, fetch_all, fetch_optional, statements};
use crate::store::{Connection, StoreError, Tx, parsed};
use crate::time::Timestamp;

statements! {
    // Of two in one microsecond the later row would not be the newer one: the second waits for the next moment.
    INSERT = "INSERT INTO prices (symbol, observed_us, usd, source, good_until_us) VALUES ($1, $2, $3, $4, $5)";
    LAST = "SELECT symbol, observed_us, usd, source FROM prices WHERE symbol = $1 AND observed_us <= $2 ORDER BY observed_us DESC LIMIT 1";
    NEXT = "SELECT symbol, observed_us, usd, source FROM prices WHERE symbol = $1 AND observed_us > $2 ORDER BY observed_us LIMIT 1";
    GOOD_UNTIL = "SELECT good_until_us FROM prices WHERE symbol = $1 ORDER BY observed_us DESC LIMIT 1";
    NEWEST = "SELECT symbol, observed_us, usd, source FROM prices AS p \
              WHERE observed_us = (SELECT MAX(n.observed_us) FROM prices AS n WHERE n.symbol = p.symbol) ORDER BY symbol";
}

#[derive(FromRow)]
struct Row {
    symbol: String,
    observed_us: i64,
    usd: String,
    source: String,
}

/// Records a price. `good_until` is when another one is expected, if any is.
pub async fn insert(tx: &mut Tx, observation: &Observation, good_until: Option<Timestamp>) -> Result<(), StoreError> {
    let Observation { symbol, price, source, at } = observation;
    let until = good_until.map(|until| until.0);
    let inserted = execute!(tx, INSERT, symbol, at.0, price.to_string(), source.name(), until)?;
    expect_one("record a price", inserted)
}

/// The price that counts for what was at `at`: the last one before, or else the first one since.
pub async fn of_moment(
    connection: &mut impl Connection,
    symbol: &str,
    at: Timestamp,
) -> Result<Option<Observation>, StoreError> {
    let row = match fetch_optional!(connection, Row, LAST, symbol, at.0)? {
        Some(row) => Some(row),
        None => fetch_optional!(connection, Row, NEXT, symbol, at.0)?,
    };
    row.map(Observation::try_from).transpose()
}

/// When another price than the newest one is expected, if any is.
pub async fn good_until(connection: &mut impl Connection, symbol: &str) -> Result<Option<Timestamp>, StoreError> {
    let row = fetch_optional!(connection, (Option<i64>,), GOOD_UNTIL, symbol)?;
    Ok(row.and_then(|(until,)| until).map(Timestamp))
}

/// The newest price of each currency.
pub async fn newest(connection: &mut impl Connection) -> Result<Vec<Observation>, StoreError> {
    fetch_all!(connection, Row, NEWEST)?.into_iter().map(Observation::try_from).collect()
}

impl TryFrom<Row> for Observation {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self, StoreError> {
        Ok(Observation {
            price: parsed("price", &row.usd)?,
            source: parsed("source of a price", &row.source)?,
            at: Timestamp(row.observed_us),
            symbol: row.symbol,
        })
    }
}
