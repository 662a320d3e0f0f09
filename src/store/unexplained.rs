//! Balances that the record does not explain: two readings, and what moved in the blocks between them.
//!
//! An entry holds readings that were not explained by the record of that time. [`moved`] shows whether they are by now,
//! because a block was read again since: nothing is deleted for it.

use landfall_chain::{AssetId, Chain};
use sqlx_macros::FromRow;

use crate::balance::{HeldAfter, Moved, Readings};
use crate::deposit::Deposit;
use crate::store::deposits::{DepositRow, address, amount_bytes, amount_of};
use crate::store::sql::{execute, fetch_all, fetch_optional, statements};
use crate::store::{Connection, StoreError, Tx, int, uint};
use crate::time::Timestamp;

/// How many movements of a kind between two readings are added up.
const MOVED_MAX: u64 = 10_000;

/// Readings that were not explained.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    pub readings: Readings,
    pub found_at: Timestamp,
    /// The account that owns the address.
    pub account_id: Option<String>,
}

statements! {
    // CROSS JOIN, because SQLite's planner would begin with the blocks. A FAILED deposit in a block of ours did not
    // come: a trace invented it. Other arrivals that are no deposits are in accounts that are not read, or of another
    // asset.
    MOVED = "SELECT CASE WHEN d.status = 'PENDING' THEN 'pending' ELSE 'came' END AS what, d.amount FROM inclusions AS i CROSS JOIN deposits AS d CROSS JOIN blocks AS b \
             WHERE i.chain = $1 AND i.recipient = $2 AND i.block_number > $4 AND i.block_number <= $5 \
             AND d.id = i.deposit_id AND d.asset = $3 AND d.status <> 'FAILED' \
             AND b.chain = i.chain AND b.hash = i.block_hash AND b.canonical \
             UNION ALL SELECT 'came', u.amount FROM unattributed AS u CROSS JOIN blocks AS b \
             WHERE u.chain = $1 AND u.recipient = $2 AND u.block_number > $4 AND u.block_number <= $5 \
             AND u.asset = $3 AND u.reason IN ('rent_refund', 'self_transfer') \
             AND b.chain = u.chain AND b.hash = u.block_hash AND b.canonical \
             UNION ALL SELECT 'left', o.amount FROM debits AS o CROSS JOIN blocks AS b \
             WHERE o.chain = $1 AND o.sender = $2 AND o.block_number > $4 AND o.block_number <= $5 AND o.asset = $3 \
             AND b.chain = o.chain AND b.hash = o.block_hash AND b.canonical \
             UNION ALL SELECT 'left', f.amount FROM fees AS f CROSS JOIN blocks AS b \
             WHERE f.chain = $1 AND f.payer = $2 AND f.block_number > $4 AND f.block_number <= $5 AND $6 \
             AND b.chain = f.chain AND b.hash = f.block_hash AND b.canonical";
    ARE_TOO_MANY = "SELECT 1 WHERE EXISTS (SELECT 1 FROM inclusions WHERE chain = $1 AND recipient = $2 \
                    AND block_number > $3 AND block_number <= $4 ORDER BY block_number LIMIT 1 OFFSET $5) \
                    OR EXISTS (SELECT 1 FROM unattributed WHERE chain = $1 AND recipient = $2 \
                    AND block_number > $3 AND block_number <= $4 ORDER BY block_number LIMIT 1 OFFSET $5) \
                    OR EXISTS (SELECT 1 FROM debits WHERE chain = $1 AND sender = $2 \
                    AND block_number > $3 AND block_number <= $4 ORDER BY block_number LIMIT 1 OFFSET $5) \
                    OR EXISTS (SELECT 1 FROM fees WHERE chain = $1 AND payer = $2 \
                    AND block_number > $3 AND block_number <= $4 ORDER BY block_number LIMIT 1 OFFSET $5)";
    IS_UNSEEN = "SELECT 1 WHERE EXISTS (SELECT 1 FROM unattributed WHERE chain = $1 AND recipient = $2 AND asset = $3 \
                 AND reason = 'ineligible_token_account')";
    CONFIRMED = "SELECT d.* FROM inclusions AS i CROSS JOIN deposits AS d CROSS JOIN blocks AS b \
                 WHERE i.chain = $1 AND i.recipient = $2 AND i.block_number > $4 AND i.block_number <= $5 \
                 AND d.id = i.deposit_id AND d.asset = $3 AND d.status = 'CONFIRMED' \
                 AND b.chain = i.chain AND b.hash = i.block_hash AND b.canonical ORDER BY i.block_number, d.id LIMIT $6";
    INSERT = "INSERT INTO unexplained (chain, address, asset, from_number, had, had_text, to_number, has, has_text, found_us) \
              VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (chain, to_number, address, asset) DO NOTHING";
    LIST = "SELECT e.address, e.asset, e.from_number, e.had, e.to_number, e.has, e.found_us, w.account_id FROM unexplained AS e \
            LEFT JOIN watched_addresses AS w ON w.chain = e.chain AND w.address = e.address \
            WHERE e.chain = $1 AND (e.to_number, e.address, e.asset) < ($2, $3, $4) \
            ORDER BY e.to_number DESC, e.address DESC, e.asset DESC LIMIT $5";
    ACROSS = "SELECT e.address, e.asset, e.from_number, e.had, e.to_number, e.has, e.found_us, CAST(NULL AS TEXT) AS account_id \
              FROM inclusions AS i CROSS JOIN blocks AS b CROSS JOIN unexplained AS e \
              WHERE i.deposit_id = $1 AND b.chain = i.chain AND b.hash = i.block_hash AND b.canonical \
              AND e.chain = i.chain AND e.address = $2 AND e.asset = $3 AND e.to_number >= i.block_number \
              AND e.from_number < i.block_number ORDER BY e.to_number";
    OF_INCIDENT = "SELECT address, asset, from_number, had, to_number, has, found_us, CAST(NULL AS TEXT) AS account_id \
                   FROM unexplained WHERE incident_id = $1 ORDER BY to_number DESC LIMIT $2";
    ASSIGN = "UPDATE unexplained SET incident_id = $1 WHERE chain = $2 AND to_number = $3 AND address = $4 AND asset = $5";
    FORGET_ABOVE = "DELETE FROM unexplained WHERE chain = $1 AND to_number > $2";
}

#[derive(FromRow)]
struct EntryRow {
    address: Vec<u8>,
    asset: Vec<u8>,
    from_number: i64,
    had: Vec<u8>,
    to_number: i64,
    has: Vec<u8>,
    found_us: i64,
    account_id: Option<String>,
}

/// What came to the address and left it, by our record, in the canonical blocks between the readings: above the older
/// one's, up to the newer one's. `None` if there are thousands: to add them up would delay all others.
pub async fn moved(connection: &mut impl Connection, readings: &Readings) -> Result<Option<Moved>, StoreError> {
    let Readings { chain, address, asset, had, has } = readings;
    let (who, what, is_native) = (address.as_bytes(), asset.to_bytes(), *asset == AssetId::Native);
    let (from, to) = (int(had.number), int(has.number));
    let too_many = fetch_optional!(connection, (i32,), ARE_TOO_MANY, chain.name(), who, from, to, int(MOVED_MAX))?;
    if too_many.is_some() {
        return Ok(None);
    }
    let mut moved = Moved::default();
    for (what, amount) in
        fetch_all!(connection, (String, Vec<u8>), MOVED, chain.name(), who, what, from, to, is_native)?
    {
        let amount = amount_of(&amount)?;
        if what == "pending" {
            moved.pending = moved.pending.saturating_add(amount);
        }
        let sum = if what == "left" { &mut moved.left } else { &mut moved.came };
        *sum = sum.saturating_add(amount);
    }
    Ok(Some(moved))
}

/// Whether more may have moved than [`moved`] returns: the owner once received something in another token account than
/// the one that is read.
pub async fn is_unseen(connection: &mut impl Connection, readings: &Readings) -> Result<bool, StoreError> {
    let Readings { chain, address, asset, .. } = readings;
    Ok(fetch_optional!(connection, (i32,), IS_UNSEEN, chain.name(), address.as_bytes(), asset.to_bytes())?.is_some())
}

/// The CONFIRMED deposits to the address in the canonical blocks between the readings, in the order of the blocks.
pub async fn confirmed(connection: &mut impl Connection, readings: &Readings) -> Result<Vec<Deposit>, StoreError> {
    let Readings { chain, address, asset, had, has } = readings;
    let (who, what, most) = (address.as_bytes(), asset.to_bytes(), int(MOVED_MAX));
    let (from, to) = (int(had.number), int(has.number));
    let rows = fetch_all!(connection, DepositRow, CONFIRMED, chain.name(), who, what, from, to, most)?;
    rows.into_iter().map(Deposit::try_from).collect()
}

/// The entries whose readings are on both sides of `deposit`'s block.
pub async fn across(connection: &mut impl Connection, deposit: &Deposit) -> Result<Vec<Readings>, StoreError> {
    let Deposit { id, chain, recipient, asset, .. } = deposit;
    let rows = fetch_all!(connection, EntryRow, ACROSS, id.to_string(), recipient.as_bytes(), asset.to_bytes())?;
    rows.into_iter().map(|row| Ok(entry(*chain, row)?.readings)).collect()
}

/// At most `limit` of the entries that are part of an incident, newest first.
pub async fn of_incident(
    connection: &mut impl Connection,
    chain: Chain,
    incident: &str,
    limit: u32,
) -> Result<Vec<Readings>, StoreError> {
    let rows = fetch_all!(connection, EntryRow, OF_INCIDENT, incident, i64::from(limit))?;
    rows.into_iter().map(|row| Ok(entry(chain, row)?.readings)).collect()
}

/// Makes the entry of these readings part of an incident.
pub async fn assign(tx: &mut Tx, readings: &Readings, incident: &str) -> Result<(), StoreError> {
    let Readings { chain, address, asset, has, .. } = readings;
    let (who, what) = (address.as_bytes(), asset.to_bytes());
    execute!(tx, ASSIGN, incident, chain.name(), int(has.number), who, what).map(drop)
}

/// At most `limit` entries of a chain, newest first, after `after`.
pub async fn list(
    connection: &mut impl Connection,
    chain: Chain,
    after: Option<&Entry>,
    limit: u32,
) -> Result<Vec<Entry>, StoreError> {
    // No row has this number, so the other two columns are not compared.
    let (number, who, what) = after.map_or((i64::MAX, &[][..], Vec::new()), |after| {
        let Readings { address, asset, has, .. } = &after.readings;
        (int(has.number), address.as_bytes(), asset.to_bytes())
    });
    let rows = fetch_all!(connection, EntryRow, LIST, chain.name(), number, who, what, i64::from(limit))?;
    rows.into_iter().map(|row| entry(chain, row)).collect()
}

/// Records that the readings are not explained.
pub async fn insert(tx: &mut Tx, readings: &Readings, now: Timestamp) -> Result<(), StoreError> {
    let Readings { chain, address, asset, had, has } = readings;
    execute!(
        tx,
        INSERT,
        chain.name(),
        address.as_bytes(),
        asset.to_bytes(),
        int(had.number),
        amount_bytes(&had.amount),
        had.amount.to_string(),
        int(has.number),
        amount_bytes(&has.amount),
        has.amount.to_string(),
        now.0,
    )
    .map(drop)
}

/// Forgets entries whose newer reading is of a block above `number`: these blocks are not final after all.
pub(super) async fn disconnect_to(tx: &mut Tx, chain: Chain, number: u64) -> Result<(), StoreError> {
    execute!(tx, FORGET_ABOVE, chain.name(), int(number)).map(drop)
}

fn entry(chain: Chain, row: EntryRow) -> Result<Entry, StoreError> {
    let held = |number, amount: &[u8]| {
        Ok::<_, StoreError>(HeldAfter { number: uint("block number", number)?, amount: amount_of(amount)? })
    };
    let readings = Readings {
        chain,
        address: address("watched address", &row.address)?,
        asset: AssetId::from_bytes(&row.asset).map_err(|error| StoreError::inconsistent("asset", error))?,
        had: held(row.from_number, &row.had)?,
        has: held(row.to_number, &row.has)?,
    };
    Ok(Entry { readings, found_at: Timestamp(row.found_us), account_id: row.account_id })
}
