//! Incidents: at most one of a kind is open for a chain, for a deposit, or for an address and an asset.

use landfall_chain::{Address, AssetId, Chain};
use sqlx_macros::FromRow;

use crate::deposit::{Deposit, DepositId};
use crate::incident::{Incident, IncidentKind};
use crate::store::sql::{execute, fetch_all, fetch_optional, statements};
use crate::store::{Connection, StoreError, Tx, deposits, int, parsed, uint};
use crate::time::Timestamp;

statements! {
    OPEN = "INSERT INTO incidents (id, chain, kind, what, block_number, opened_us, seen_us, resolution, deposit_id, address, asset) \
            VALUES ($1, $2, $3, $4, $5, $6, $6, '', $7, $8, $9) ON CONFLICT DO NOTHING";
    MEET = "UPDATE incidents SET seen_us = $1, what = $2, block_number = $3 \
            WHERE chain = $4 AND kind = $5 AND deposit_id = $6 AND address IS NOT DISTINCT FROM $7 \
            AND asset IS NOT DISTINCT FROM $8 AND resolved_us IS NULL";
    RESOLVE = "UPDATE incidents SET resolved_us = $1, resolution = $2 WHERE id = $3 AND resolved_us IS NULL";
    BY_ID = "SELECT * FROM incidents WHERE id = $1";
    OPEN_ONES = "SELECT * FROM incidents WHERE resolved_us IS NULL ORDER BY opened_us, id";
    ALL = "SELECT * FROM incidents ORDER BY opened_us, id";
    OF_DEPOSITS = "SELECT * FROM incidents WHERE chain = $1 AND kind = $2 AND deposit_id <> '' AND resolved_us IS NULL \
                   ORDER BY opened_us, id";
    OF_BALANCE = "SELECT * FROM incidents WHERE chain = $1 AND kind = $2 AND address = $3 AND asset = $4 AND resolved_us IS NULL";
    RESOLVE_OF = "UPDATE incidents SET resolved_us = $1, resolution = $2 WHERE kind = $3 AND address = $4 AND resolved_us IS NULL";
    OF_TX = "SELECT incidents.* FROM incidents JOIN deposits ON deposits.id = incidents.deposit_id \
             WHERE deposits.chain = $1 AND deposits.tx_id = $2 AND incidents.kind = $3 AND resolved_us IS NULL ORDER BY opened_us, incidents.id";
}

#[derive(FromRow)]
struct Row {
    id: String,
    chain: String,
    kind: String,
    what: String,
    block_number: Option<i64>,
    opened_us: i64,
    seen_us: i64,
    resolved_us: Option<i64>,
    resolution: String,
    deposit_id: String,
    address: Option<Vec<u8>>,
    asset: Option<Vec<u8>>,
}

/// Records that `incident` was met: as a new one, or on the open one of its kind; returns whether it is new.
pub async fn meet(tx: &mut Tx, incident: &Incident) -> Result<bool, StoreError> {
    let Incident { id, chain, kind, what, block_number, deposit, holding, seen_at, .. } = incident;
    let (number, deposit) = (block_number.map(int), deposit.map_or_else(String::new, |deposit| deposit.to_string()));
    let (address, asset) =
        (holding.map(|(address, _)| address.as_bytes().to_vec()), holding.map(|(_, asset)| asset.to_bytes()));
    let (chain, kind) = (chain.name(), kind.name());
    let renewed = execute!(tx, MEET, seen_at.0, what, number, chain, kind, &deposit, &address, &asset)?;
    if renewed > 0 {
        return Ok(false);
    }
    Ok(execute!(tx, OPEN, id, chain, kind, what, number, seen_at.0, &deposit, address, asset)? > 0)
}

/// Resolves an open incident; returns whether it was open.
pub async fn resolve(tx: &mut Tx, id: &str, resolution: &str, at: Timestamp) -> Result<bool, StoreError> {
    Ok(execute!(tx, RESOLVE, at.0, resolution, id)? > 0)
}

/// Resolves what is open of this kind about an address, whatever the chain and the asset.
pub async fn resolve_of(
    tx: &mut Tx,
    (kind, address): (IncidentKind, &Address),
    resolution: &str,
    at: Timestamp,
) -> Result<(), StoreError> {
    execute!(tx, RESOLVE_OF, at.0, resolution, kind.name(), address.as_bytes()).map(drop)
}

pub async fn by_id(connection: &mut impl Connection, id: &str) -> Result<Option<Incident>, StoreError> {
    fetch_optional!(connection, Row, BY_ID, id)?.map(Incident::try_from).transpose()
}

/// The open incidents of every chain, oldest first.
pub async fn open(connection: &mut impl Connection) -> Result<Vec<Incident>, StoreError> {
    fetch_all!(connection, Row, OPEN_ONES)?.into_iter().map(Incident::try_from).collect()
}

/// The open incidents of this kind that name a deposit of the chain, oldest first.
pub async fn of_deposits(
    connection: &mut impl Connection,
    chain: Chain,
    kind: IncidentKind,
) -> Result<Vec<Incident>, StoreError> {
    let rows = fetch_all!(connection, Row, OF_DEPOSITS, chain.name(), kind.name())?;
    rows.into_iter().map(Incident::try_from).collect()
}

/// The open incident of this kind about what `address` holds of `asset`.
pub async fn of_balance(
    connection: &mut impl Connection,
    chain: Chain,
    kind: IncidentKind,
    address: &Address,
    asset: &AssetId,
) -> Result<Option<Incident>, StoreError> {
    let (address, asset) = (address.as_bytes(), asset.to_bytes());
    let row = fetch_optional!(connection, Row, OF_BALANCE, chain.name(), kind.name(), address, asset)?;
    row.map(Incident::try_from).transpose()
}

/// The open incidents of this kind that name a deposit of `deposit`'s transaction, oldest first.
pub async fn of_tx(
    connection: &mut impl Connection,
    deposit: &Deposit,
    kind: IncidentKind,
) -> Result<Vec<Incident>, StoreError> {
    let rows = fetch_all!(connection, Row, OF_TX, deposit.chain.name(), deposit.tx.id.as_bytes(), kind.name())?;
    rows.into_iter().map(Incident::try_from).collect()
}

/// Every incident, oldest first. There are few: each needed a person.
pub async fn all(connection: &mut impl Connection) -> Result<Vec<Incident>, StoreError> {
    fetch_all!(connection, Row, ALL)?.into_iter().map(Incident::try_from).collect()
}

impl TryFrom<Row> for Incident {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self, StoreError> {
        Ok(Incident {
            id: row.id,
            chain: parsed::<Chain>("chain", &row.chain)?,
            kind: parsed("kind of incident", &row.kind)?,
            what: row.what,
            block_number: row.block_number.map(|number| uint("block number", number)).transpose()?,
            deposit: deposit(&row.deposit_id)?,
            holding: row.address.zip(row.asset).map(|(address, asset)| holding(&address, &asset)).transpose()?,
            opened_at: Timestamp(row.opened_us),
            seen_at: Timestamp(row.seen_us),
            resolved_at: row.resolved_us.map(Timestamp),
            resolution: row.resolution,
        })
    }
}

fn deposit(id: &str) -> Result<Option<DepositId>, StoreError> {
    if id.is_empty() { Ok(None) } else { parsed("deposit id", id).map(Some) }
}

fn holding(address: &[u8], asset: &[u8]) -> Result<(Address, AssetId), StoreError> {
    let address = deposits::address("watched address", address)?;
    Ok((address, AssetId::from_bytes(asset).map_err(|error| StoreError::inconsistent("asset", error))?))
}
