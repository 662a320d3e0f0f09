//! What sponsors owned after final blocks, and what moved between them by our record: by the ledger where we sent a
//! transaction, by the block where somebody else did.
//!
//! Nothing here decides whether that is even.

use landfall_chain::{Address, AssetId, BlockHash, BlockRef, Chain, U256};

use crate::balance::Moved;
use crate::store::deposits::{amount_bytes, amount_of};
use crate::store::sql::{execute, fetch_all, fetch_optional, statements};
use crate::store::{Connection, StoreError, Tx, hash, int, parsed, uint};

/// Of how many blocks movements are read at once.
const BLOCKS_MAX: u64 = 1_000;

/// What a sponsor owned after a final block, in base units of the native currency.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owned {
    pub block: BlockRef,
    pub amount: U256,
}

/// What is on record of a sponsor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kept {
    pub newest: Owned,
    /// The reading from which on its incident counts, and what moved since.
    pub since: Option<(Owned, Moved)>,
}

statements! {
    KEPT = "SELECT number, hash, amount, since_number, since_hash, since_amount, came, gone FROM sponsor_books WHERE chain = $1 AND sponsor = $2";
    KEEP = "INSERT INTO sponsor_books (chain, sponsor, number, hash, amount, since_number, since_hash, since_amount, came, gone) \
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (chain, sponsor) DO UPDATE SET \
            number = excluded.number, hash = excluded.hash, amount = excluded.amount, since_number = excluded.since_number, \
            since_hash = excluded.since_hash, since_amount = excluded.since_amount, came = excluded.came, gone = excluded.gone";
    FORGET_ABOVE = "DELETE FROM sponsor_books WHERE chain = $1 AND number > $2";
    // CROSS JOIN, because SQLite's planner would begin with the blocks. What a treasury gives is in no ledger. What a foreign transaction took stands in no ledger.
    // Where blocks report balances, its outlay has that.
    MOVED = "SELECT 'gone' AS what, l.amount FROM fees AS f CROSS JOIN blocks AS b CROSS JOIN gas_ledger AS l \
             WHERE f.chain = $1 AND f.payer = $2 AND f.block_number > $4 AND f.block_number <= $5 \
             AND b.chain = f.chain AND b.hash = f.block_hash AND b.canonical \
             AND l.chain = f.chain AND l.tx_id = f.tx_id AND l.kind = 'COST' \
             UNION ALL SELECT 'gone', d.amount FROM debits AS d CROSS JOIN blocks AS b CROSS JOIN spends AS s \
             WHERE d.chain = $1 AND d.sender = $2 AND d.asset = $3 AND d.block_number > $4 AND d.block_number <= $5 \
             AND b.chain = d.chain AND b.hash = d.block_hash AND b.canonical \
             AND s.chain = d.chain AND s.block_hash = d.block_hash AND s.tx_id = d.tx_id AND s.spender = d.sender AND s.is_foreign \
             AND NOT EXISTS (SELECT 1 FROM fees AS f WHERE f.chain = d.chain AND f.block_hash = d.block_hash AND f.tx_id = d.tx_id \
             AND f.payer = d.sender AND f.outlay <> '0') \
             UNION ALL SELECT 'gone', d.amount FROM debits AS d CROSS JOIN blocks AS b CROSS JOIN sponsors AS t \
             LEFT JOIN spends AS s ON s.chain = d.chain AND s.block_hash = d.block_hash AND s.tx_id = d.tx_id AND s.spender = d.sender \
             WHERE d.chain = $1 AND d.sender = $2 AND d.asset = $3 AND d.block_number > $4 AND d.block_number <= $5 \
             AND b.chain = d.chain AND b.hash = d.block_hash AND b.canonical \
             AND t.chain = d.chain AND t.address = d.sender AND t.is_treasury AND (s.is_foreign IS NULL OR NOT s.is_foreign) \
             AND NOT EXISTS (SELECT 1 FROM fees AS f WHERE f.chain = d.chain AND f.block_hash = d.block_hash AND f.tx_id = d.tx_id \
             AND f.payer = d.sender AND f.outlay <> '0') \
             UNION ALL SELECT 'came', u.amount FROM unattributed AS u CROSS JOIN blocks AS b \
             WHERE u.chain = $1 AND u.recipient = $2 AND u.asset = $3 AND u.block_number > $4 AND u.block_number <= $5 \
             AND u.reason IN ('own_gas_topup', 'rent_refund', 'self_transfer') \
             AND b.chain = u.chain AND b.hash = u.block_hash AND b.canonical";
    PAID = "SELECT f.amount, f.outlay, s.is_foreign, a.guard_rent, g.lamports, r.number, \
            (SELECT CAST(SUM(t.reclaim_lamports) AS BIGINT) FROM guards AS t WHERE t.chain = r.chain AND t.sponsor = r.sponsor \
            AND t.reclaim = r.number AND t.state = 'reclaimed') AS brought, o.is_treasury, \
            (SELECT CAST(SUM(l.rent) AS BIGINT) FROM gas_ledger AS l WHERE l.chain = f.chain AND l.tx_id = f.tx_id AND l.kind = 'COST') AS booked \
            FROM sponsors AS o CROSS JOIN fees AS f CROSS JOIN blocks AS b \
            LEFT JOIN spends AS s ON s.chain = f.chain AND s.block_hash = f.block_hash AND s.tx_id = f.tx_id AND s.spender = f.payer \
            LEFT JOIN transfer_attempts AS a ON a.chain = f.chain AND a.tx_id = f.tx_id \
            LEFT JOIN guards AS g ON g.transfer_id = a.transfer_id \
            LEFT JOIN reclaims AS r ON r.chain = f.chain AND r.tx_id = f.tx_id \
            WHERE o.chain = $1 AND o.address = $2 AND f.chain = o.chain AND f.payer = o.address AND f.block_number > $3 AND f.block_number <= $4 \
            AND b.chain = f.chain AND b.hash = f.block_hash AND b.canonical";
}

/// A transaction that a sponsor paid for: fee, outlay, and whether it is foreign. Then the rent of the guard that it was to
/// make, and what the guard of its transfer was made with; its number where it is a reclaim, and what that took back. Last
/// whether the sponsor is a treasury, and the rent that the ledger has of it.
type PaidRow = (Vec<u8>, String, Option<bool>, Option<i64>, Option<i64>, Option<i64>, Option<i64>, bool, Option<i64>);

/// The books of a sponsor; `None` before its first reading.
pub async fn of_sponsor(
    connection: &mut impl Connection,
    chain: Chain,
    sponsor: &Address,
) -> Result<Option<Kept>, StoreError> {
    type Bytes = Option<Vec<u8>>;
    type Row = (i64, Vec<u8>, Vec<u8>, Option<i64>, Bytes, Bytes, Bytes, Bytes);
    let row = fetch_optional!(connection, Row, KEPT, chain.name(), sponsor.as_bytes())?;
    let kept = |(number, hash, amount, since_number, since_hash, since_amount, came, gone): Row| {
        let since = match (since_number, since_hash, since_amount, came, gone) {
            (Some(number), Some(hash), Some(amount), Some(came), Some(gone)) => {
                let (came, left) = (amount_of(&came)?, amount_of(&gone)?);
                Some((owned(number, &hash, &amount)?, Moved { came, left, ..Moved::default() }))
            }
            _ => None,
        };
        Ok(Kept { newest: owned(number, &hash, &amount)?, since })
    };
    row.map(kept).transpose()
}

/// Records the books of a sponsor.
pub async fn keep(tx: &mut Tx, chain: Chain, sponsor: &Address, kept: &Kept) -> Result<(), StoreError> {
    let Kept { newest: Owned { block, amount }, since } = kept;
    let (since, moved) = since.unzip();
    let kept = execute!(
        tx,
        KEEP,
        chain.name(),
        sponsor.as_bytes(),
        int(block.number),
        &block.hash.0[..],
        amount_bytes(amount),
        since.map(|since| int(since.block.number)),
        since.map(|since| since.block.hash.0.to_vec()),
        since.map(|since| amount_bytes(&since.amount)),
        moved.map(|moved| amount_bytes(&moved.came)),
        moved.map(|moved| amount_bytes(&moved.left))
    );
    kept.map(drop)
}

/// Forgets readings of blocks above `number`: these are not final after all.
pub(super) async fn disconnect_to(tx: &mut Tx, chain: Chain, number: u64) -> Result<(), StoreError> {
    execute!(tx, FORGET_ABOVE, chain.name(), int(number)).map(drop)
}

/// What came to a sponsor and left it, by our record, in the canonical blocks above `above` and up to `through`.
///
/// Of a transaction that it paid for, what the ledger has of it left, and what its guard locked; what a reclaim took back came.
/// Where it is foreign, what its block shows left.
pub async fn moved(
    connection: &mut impl Connection,
    chain: Chain,
    sponsor: &Address,
    (above, through): (u64, u64),
) -> Result<Moved, StoreError> {
    let (who, native) = (sponsor.as_bytes(), AssetId::Native.to_bytes());
    let (mut moved, mut from) = (Moved::default(), above);
    while from < through {
        let to = from.saturating_add(BLOCKS_MAX).min(through);
        let (low, high) = (int(from), int(to));
        for (what, amount) in fetch_all!(connection, (String, Vec<u8>), MOVED, chain.name(), who, &native, low, high)? {
            let amount = amount_of(&amount)?;
            let sum = if what == "gone" { &mut moved.left } else { &mut moved.came };
            *sum = sum.saturating_add(amount);
        }
        for row in fetch_all!(connection, PaidRow, PAID, chain.name(), who, low, high)? {
            let (came, left) = paid(row)?;
            moved.came = moved.came.saturating_add(came);
            moved.left = moved.left.saturating_add(left);
        }
        from = to;
    }
    Ok(moved)
}

/// What came and left by a transaction that the sponsor paid for, beside its costs in the ledger.
fn paid(row: PaidRow) -> Result<(U256, U256), StoreError> {
    let (fee, outlay, is_foreign, rent, locked, reclaim, brought, is_treasury, booked) = row;
    let (fee, outlay) = (amount_of(&fee)?, parsed::<i128>("outlay", &outlay)?);
    let (spent, gained) = (U256::from(outlay.max(0).unsigned_abs()), U256::from(outlay.min(0).unsigned_abs()));
    let lamports = |lamports: Option<i64>| uint::<u64>("lamports", lamports.unwrap_or_default()).map(U256::from);
    let came = if reclaim.is_some() { lamports(brought)? } else { gained };
    if is_foreign == Some(true) {
        return Ok((came, fee.saturating_add(spent)));
    }
    if is_treasury {
        // What is no rent was given, and is in no ledger.
        return Ok((came, spent.saturating_sub(lamports(booked)?)));
    }
    // What failed has made no guard, and took nothing but its fee.
    let has_made = rent.is_some_and(|rent| outlay >= i128::from(rent));
    Ok((came, if has_made { lamports(locked)? } else { U256::ZERO }))
}

fn owned(number: i64, bytes: &[u8], amount: &[u8]) -> Result<Owned, StoreError> {
    let block = BlockRef { number: uint("block number", number)?, hash: BlockHash(hash("block hash", bytes)?) };
    Ok(Owned { block, amount: amount_of(amount)? })
}
