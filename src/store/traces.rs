//! What is still to be traced, which deposits of traces wait for a second witness, and what the lane says of itself.

use std::time::Duration;

use landfall_chain::{BlockHash, BlockRef, Chain};
use sqlx::FromRow;

use crate::deposit::DepositId;
use crate::store::deposits::{DepositRow, Settleable};
use crate::store::error::expect_one;
use crate::store::sql::{execute, fetch_all, fetch_optional, statements};
use crate::store::{Connection, StoreError, Tx, hash, int, parsed, uint};
use crate::time::Timestamp;

/// Where the lane of the traces stands on one chain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TraceStatus {
    pub chain: Chain,
    /// Every connected block up to this one is traced; `None` before the first.
    pub traced: Option<u64>,
    /// Why it does not get on; empty when all is well.
    pub reason: String,
    /// When every connected block was last traced; the epoch when that never was.
    pub caught_up_at: Timestamp,
    /// How many deposits in final blocks wait for a second witness.
    pub unwitnessed: u64,
    /// Why one of them does; empty when there is none.
    pub unwitnessed_reason: String,
}

statements! {
    OLDEST = "SELECT number, hash FROM blocks WHERE chain = $1 AND canonical AND NOT traced ORDER BY number LIMIT $2";
    NEWEST = "SELECT number, hash FROM blocks WHERE chain = $1 AND canonical AND NOT traced ORDER BY number DESC LIMIT $2";
    UNTRACED_THROUGH = "SELECT 1 FROM blocks WHERE chain = $1 AND canonical AND NOT traced AND number <= $2 ORDER BY number LIMIT 1";
    MARK = "UPDATE blocks SET traced = true WHERE chain = $1 AND hash = $2 AND canonical";
    SETTLEABLE = "SELECT deposits.*, blocks.number AS block_number, blocks.hash AS block_hash \
                  FROM deposits JOIN inclusions ON inclusions.deposit_id = deposits.id \
                  JOIN blocks ON blocks.chain = inclusions.chain AND blocks.hash = inclusions.block_hash \
                  LEFT JOIN unwitnessed ON unwitnessed.deposit_id = deposits.id \
                  WHERE deposits.chain = $1 AND deposits.status = 'PENDING' AND inclusions.lane = 'traces' \
                  AND blocks.canonical AND blocks.number <= $2 AND (unwitnessed.next_us IS NULL OR unwitnessed.next_us <= $3) \
                  AND NOT EXISTS (SELECT 1 FROM incidents WHERE incidents.deposit_id = deposits.id \
                  AND incidents.kind = 'over_credited' AND incidents.resolved_us IS NULL) \
                  ORDER BY blocks.number, deposits.id LIMIT $4";
    TRIES = "SELECT tries FROM unwitnessed WHERE deposit_id = $1";
    DOUBT = "INSERT INTO unwitnessed (deposit_id, chain, tries, next_us, reason) VALUES ($1, $2, $3, $4, $5) \
             ON CONFLICT (deposit_id) DO UPDATE SET tries = excluded.tries, next_us = excluded.next_us, reason = excluded.reason";
    REASON = "SELECT reason FROM unwitnessed WHERE deposit_id = $1";
    SETTLED = "DELETE FROM unwitnessed WHERE deposit_id = $1";
    SAY = "INSERT INTO trace_status (chain, reason, caught_up_us) VALUES ($1, $2, $3) ON CONFLICT (chain) DO UPDATE \
           SET reason = excluded.reason, caught_up_us = CASE WHEN $4 THEN excluded.caught_up_us ELSE trace_status.caught_up_us END";
    HALTED = "SELECT 1 FROM chain_status WHERE chain = $1 AND state = 'halted'";
    FORGET = "DELETE FROM trace_status WHERE chain = $1";
    STATUSES = "SELECT trace_status.chain, reason, caught_up_us, cursors.number AS cursor, \
                (SELECT MIN(blocks.number) FROM blocks WHERE blocks.chain = trace_status.chain AND canonical AND NOT traced) AS untraced \
                FROM trace_status LEFT JOIN cursors ON cursors.chain = trace_status.chain ORDER BY trace_status.chain";
    DOUBTS = "SELECT unwitnessed.chain, COUNT(*), MIN(unwitnessed.reason) FROM unwitnessed \
              JOIN deposits ON deposits.id = unwitnessed.deposit_id WHERE deposits.status = 'PENDING' GROUP BY unwitnessed.chain";
}

/// Canonical blocks that have still to be traced: at most `limit` of the oldest and as many of the newest, ascending.
/// From both ends: what a node has forgotten must not keep it from what it still has.
pub async fn untraced(connection: &mut impl Connection, chain: Chain, limit: u32) -> Result<Vec<BlockRef>, StoreError> {
    let mut rows = fetch_all!(connection, (i64, Vec<u8>), OLDEST, chain.name(), i64::from(limit))?;
    rows.extend(fetch_all!(connection, (i64, Vec<u8>), NEWEST, chain.name(), i64::from(limit))?);
    rows.sort_unstable();
    rows.dedup();
    let blocks = rows.into_iter().map(|(number, bytes)| {
        Ok(BlockRef { number: uint("block number", number)?, hash: BlockHash(hash("block hash", &bytes)?) })
    });
    blocks.collect()
}

/// Whether any canonical block up to `through` has still to be traced: then what no trace showed may yet be there.
pub async fn are_untraced(connection: &mut impl Connection, chain: Chain, through: u64) -> Result<bool, StoreError> {
    Ok(fetch_optional!(connection, (i32,), UNTRACED_THROUGH, chain.name(), int(through))?.is_some())
}

/// Records that what a trace shows of the canonical `block` is on record.
pub async fn mark(tx: &mut Tx, chain: Chain, block: &BlockRef) -> Result<(), StoreError> {
    expect_one("mark a block as traced", execute!(tx, MARK, chain.name(), &block.hash.0[..])?)
}

/// PENDING deposits that a trace showed in canonical blocks up to `through`, inclusive, and whose next try is due; at
/// most `limit`, lowest blocks first.
pub async fn settleable(
    connection: &mut impl Connection,
    chain: Chain,
    through: u64,
    now: Timestamp,
    limit: u32,
) -> Result<Vec<Settleable>, StoreError> {
    #[derive(FromRow)]
    struct Row {
        #[sqlx(flatten)]
        deposit: DepositRow,
        block_number: i64,
        block_hash: Vec<u8>,
    }
    let rows = fetch_all!(connection, Row, SETTLEABLE, chain.name(), int(through), now.0, i64::from(limit))?;
    let settleable = rows.into_iter().map(|row| {
        let number = uint("block number", row.block_number)?;
        let block = BlockRef { number, hash: BlockHash(hash("block hash", &row.block_hash)?) };
        Ok(Settleable { deposit: row.deposit.try_into()?, block })
    });
    settleable.collect()
}

/// Records that the deposit has no second witness, and that it is tried again after a pause that `pause` makes of the
/// number of tries before this one; that number.
pub async fn doubt(
    tx: &mut Tx,
    chain: Chain,
    id: DepositId,
    reason: &str,
    now: Timestamp,
    pause: impl FnOnce(u32) -> Duration + Send,
) -> Result<u32, StoreError> {
    let id = id.to_string();
    let row = fetch_optional!(tx, (i64,), TRIES, &id)?;
    let tries: u32 = row.map_or(Ok(0), |(tries,)| uint("tries", tries))?;
    let next = now.plus(pause(tries));
    execute!(tx, DOUBT, &id, chain.name(), i64::from(tries) + 1, next.0, reason)?;
    Ok(tries)
}

/// Why the deposit has no second witness yet, when that was looked for.
pub async fn doubt_of(connection: &mut impl Connection, id: DepositId) -> Result<Option<String>, StoreError> {
    Ok(fetch_optional!(connection, (String,), REASON, id.to_string())?.map(|(reason,)| reason))
}

/// The deposit waits for no witness any more.
pub async fn settled(tx: &mut Tx, id: DepositId) -> Result<(), StoreError> {
    execute!(tx, SETTLED, id.to_string()).map(drop)
}

/// Writes why the lane does not get on, and whether every connected block is traced at `now`.
pub async fn say(tx: &mut Tx, chain: Chain, reason: &str, now: Timestamp) -> Result<(), StoreError> {
    let caught_up = fetch_all!(tx, (i64, Vec<u8>), OLDEST, chain.name(), 1_i64)?.is_empty();
    let at = if caught_up { now } else { Timestamp::EPOCH };
    execute!(tx, SAY, chain.name(), reason, at.0, caught_up).map(drop)
}

/// Whether the chain's watcher last said that it is halted.
pub async fn is_halted(connection: &mut impl Connection, chain: Chain) -> Result<bool, StoreError> {
    Ok(fetch_optional!(connection, (i32,), HALTED, chain.name())?.is_some())
}

/// The network is not traced (any more).
pub async fn forget(tx: &mut Tx, chain: Chain) -> Result<(), StoreError> {
    execute!(tx, FORGET, chain.name()).map(drop)
}

/// Where the lane stands, for each chain that has one.
pub async fn statuses(connection: &mut impl Connection) -> Result<Vec<TraceStatus>, StoreError> {
    type Row = (String, String, i64, Option<i64>, Option<i64>);
    let mut statuses = Vec::new();
    for (chain, reason, caught_up_us, cursor, untraced) in fetch_all!(connection, Row, STATUSES)? {
        let traced = untraced.map(|number| number - 1).or(cursor).map(|number| uint("number", number)).transpose()?;
        statuses.push(TraceStatus {
            chain: parsed("chain", &chain)?,
            traced,
            reason,
            caught_up_at: Timestamp(caught_up_us),
            unwitnessed: 0,
            unwitnessed_reason: String::new(),
        });
    }
    for (chain, count, reason) in fetch_all!(connection, (String, i64, String), DOUBTS)? {
        if let Some(status) = statuses.iter_mut().find(|status| status.chain.name() == chain) {
            (status.unwitnessed, status.unwitnessed_reason) = (uint("count", count)?, reason);
        }
    }
    Ok(statuses)
}
