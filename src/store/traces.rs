//! What must still be traced, which deposits of traces wait for a second witness, and what the lane reports of itself.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use landfall_chain::{BlockHash, BlockRef, Chain, Proof, U256};

use crate::deposit::DepositId;
use crate::store::deposits::{Settleable, SettleableRow, amount_bytes};
use crate::store::error::expect_one;
use crate::store::sql::{execute, fetch_all, fetch_optional, statements};
use crate::store::{Connection, StoreError, Tx, hash, int, parsed, uint};
use crate::time::Timestamp;

/// So many failed tries, with growing pauses, take some five minutes.
const OFTEN: u32 = 5;

/// Where the lane of the traces stands on one chain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TraceStatus {
    pub chain: Chain,
    /// Every connected block up to this one is traced; `None` before the first.
    pub traced: Option<u64>,
    /// Why it makes no progress; empty if all is well.
    pub reason: String,
    /// When every connected block was last traced; the epoch if that never was.
    pub caught_up_at: Timestamp,
    /// How many deposits wait for a second witness after at least one failed search.
    pub unwitnessed: u64,
    /// For how many of these it was searched often since their blocks are final.
    pub unwitnessed_for_long: u64,
    /// The reason for one of them; empty if there is none.
    pub unwitnessed_reason: String,
    /// The newest block on record whose trace two endpoints reported.
    pub by_two: Option<u64>,
    /// The newest block on record whose trace one endpoint reported.
    pub by_one: Option<u64>,
    /// How many blocks are put off, because they could not be traced while others could.
    pub put_off: u64,
    /// The reason for one of them; empty if there is none.
    pub put_off_reason: String,
}

/// What is known of a block that could not be traced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceFailure {
    /// How often it failed while other blocks could be traced.
    pub tries: u32,
    pub tried_at: Timestamp,
}

/// The deposits of a chain for which the search for a second witness failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Doubts {
    pub chain: Chain,
    pub count: u64,
    /// For how many of them it was searched often since their blocks are final.
    pub for_long: u64,
    /// Why one of them has none.
    pub reason: String,
}

/// Where and when a search for a second witness failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tried {
    /// `None` for a deposit that is in no block of ours.
    pub block: Option<BlockHash>,
    /// Whether the block was final then.
    pub is_final: bool,
    pub at: Timestamp,
}

statements! {
    OLDEST = "SELECT number, hash FROM blocks WHERE chain = $1 AND canonical AND NOT traced AND number >= $3 AND NOT EXISTS \
              (SELECT 1 FROM trace_failures WHERE trace_failures.chain = blocks.chain AND trace_failures.block_hash = blocks.hash) \
              ORDER BY number LIMIT $2";
    NEWEST = "SELECT number, hash FROM blocks WHERE chain = $1 AND canonical AND NOT traced AND number >= $3 AND NOT EXISTS \
              (SELECT 1 FROM trace_failures WHERE trace_failures.chain = blocks.chain AND trace_failures.block_hash = blocks.hash) \
              ORDER BY number DESC LIMIT $2";
    // Those tried least recently come first: a block that fails again delays no other.
    AGAIN = "SELECT blocks.number, blocks.hash FROM trace_failures JOIN blocks \
             ON blocks.chain = trace_failures.chain AND blocks.hash = trace_failures.block_hash \
             WHERE trace_failures.chain = $1 AND trace_failures.next_us <= $2 AND blocks.canonical AND NOT blocks.traced \
             AND blocks.number >= $4 ORDER BY trace_failures.tried_us, blocks.number LIMIT $3";
    FAILURE = "SELECT tries, tried_us FROM trace_failures WHERE chain = $1 AND block_hash = $2";
    PUT_OFF = "INSERT INTO trace_failures (chain, block_hash, block_number, tries, tried_us, next_us, reason) \
               VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (chain, block_hash) DO UPDATE \
               SET tries = excluded.tries, tried_us = excluded.tried_us, next_us = excluded.next_us, reason = excluded.reason";
    SUCCEEDED = "DELETE FROM trace_failures WHERE chain = $1 AND block_hash = $2";
    FAILURES = "SELECT trace_failures.chain, COUNT(*), MIN(trace_failures.reason) FROM trace_failures JOIN blocks \
                ON blocks.chain = trace_failures.chain AND blocks.hash = trace_failures.block_hash \
                WHERE trace_failures.tries > 0 AND blocks.canonical AND NOT blocks.traced GROUP BY trace_failures.chain";
    REPORTED_BY = "SELECT MAX(number) FROM blocks WHERE chain = $1 AND traced_by = $2 AND canonical";
    REPORTED_ALONE = "SELECT number, hash FROM blocks WHERE chain = $1 AND traced_by = 'one_endpoint' AND canonical AND number >= $2 \
                  ORDER BY number DESC LIMIT $3";
    LEVEL = "UPDATE blocks SET traced_by = $3 WHERE chain = $1 AND hash = $2 AND canonical AND traced \
             AND (traced_by IS NULL OR traced_by = 'one_endpoint')";
    UNTRACED_IN = "SELECT 1 FROM blocks WHERE chain = $1 AND canonical AND NOT traced AND number >= $2 AND number <= $3 ORDER BY number LIMIT 1";
    UNTRACED_SINCE = "SELECT cursors.chain, (SELECT blocks.number FROM blocks WHERE blocks.chain = cursors.chain AND blocks.canonical \
                      AND NOT blocks.traced AND blocks.time_us < $1 ORDER BY blocks.number DESC LIMIT 1) FROM cursors";
    MARK = "UPDATE blocks SET traced = true, traced_by = CASE WHEN traced AND traced_by = 'two_endpoints' THEN traced_by ELSE $3 END \
            WHERE chain = $1 AND hash = $2 AND canonical";
    SETTLEABLE = "SELECT deposits.*, blocks.number AS block_number, blocks.hash AS block_hash \
                  FROM deposits JOIN inclusions ON inclusions.deposit_id = deposits.id \
                  JOIN blocks ON blocks.chain = inclusions.chain AND blocks.hash = inclusions.block_hash \
                  LEFT JOIN unwitnessed ON unwitnessed.deposit_id = deposits.id \
                  WHERE deposits.chain = $1 AND deposits.status = 'PENDING' AND inclusions.lane = 'traces' \
                  AND blocks.canonical AND inclusions.block_number <= $2 AND (unwitnessed.next_us IS NULL OR unwitnessed.next_us <= $3 \
                  OR NOT unwitnessed.is_final OR unwitnessed.block_hash IS NULL OR unwitnessed.block_hash <> blocks.hash) \
                  AND NOT EXISTS (SELECT 1 FROM incidents WHERE incidents.deposit_id = deposits.id \
                  AND incidents.kind = 'over_credited' AND incidents.resolved_us IS NULL) \
                  ORDER BY blocks.number, deposits.id LIMIT $4";
    TRIES = "SELECT tries, block_hash, is_final FROM unwitnessed WHERE deposit_id = $1";
    DOUBT = "INSERT INTO unwitnessed (deposit_id, chain, tries, next_us, reason, block_hash, is_final) \
             VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (deposit_id) DO UPDATE SET tries = excluded.tries, \
             next_us = excluded.next_us, reason = excluded.reason, block_hash = excluded.block_hash, is_final = excluded.is_final";
    ALLOW = "UPDATE inclusions SET allowed = $4 WHERE deposit_id = $1 AND chain = $2 AND block_hash = $3 AND lane = 'traces'";
    // Not of a deposit that has come into a block of ours since it was doubtful.
    GIVE_UP = "UPDATE unwitnessed SET given_up = true WHERE deposit_id = $1 AND block_hash IS NULL AND NOT EXISTS \
               (SELECT 1 FROM inclusions JOIN blocks ON blocks.chain = inclusions.chain AND blocks.hash = inclusions.block_hash \
               WHERE inclusions.deposit_id = $1 AND blocks.canonical)";
    GIVEN_UP = "SELECT 1 FROM unwitnessed WHERE deposit_id = $1 AND given_up ORDER BY deposit_id LIMIT 1";
    REASON = "SELECT reason FROM unwitnessed WHERE deposit_id = $1";
    SETTLED = "DELETE FROM unwitnessed WHERE deposit_id = $1";
    SAY = "INSERT INTO trace_status (chain, reason, caught_up_us) VALUES ($1, $2, $3) ON CONFLICT (chain) DO UPDATE \
           SET reason = excluded.reason, caught_up_us = CASE WHEN $4 THEN excluded.caught_up_us ELSE trace_status.caught_up_us END";
    FORGET = "DELETE FROM trace_status WHERE chain = $1";
    STATUSES = "SELECT trace_status.chain, reason, caught_up_us, cursors.number AS cursor, \
                (SELECT MIN(blocks.number) FROM blocks WHERE blocks.chain = trace_status.chain AND canonical AND NOT traced) AS untraced \
                FROM trace_status LEFT JOIN cursors ON cursors.chain = trace_status.chain ORDER BY trace_status.chain";
    DOUBTS = "SELECT unwitnessed.chain, COUNT(*), COUNT(CASE WHEN unwitnessed.is_final AND unwitnessed.tries >= $1 THEN 1 END), \
              MIN('deposit ' || unwitnessed.deposit_id || ': ' || unwitnessed.reason) FROM unwitnessed \
              JOIN deposits ON deposits.id = unwitnessed.deposit_id WHERE deposits.status = 'PENDING' GROUP BY unwitnessed.chain";
}

/// Canonical blocks from number `from` on that must be traced at `now`, ascending. At most `limit` each of: the oldest
/// that were not tried yet, the newest of these, and those that failed and are due again. Both ends are read, because
/// what a node has forgotten must not delay what it still has.
pub async fn untraced(
    connection: &mut impl Connection,
    chain: Chain,
    from: u64,
    now: Timestamp,
    limit: u32,
) -> Result<Vec<BlockRef>, StoreError> {
    let (from, limit) = (int(from), i64::from(limit));
    let mut rows = fetch_all!(connection, (i64, Vec<u8>), OLDEST, chain.name(), limit, from)?;
    rows.extend(fetch_all!(connection, (i64, Vec<u8>), NEWEST, chain.name(), limit, from)?);
    rows.extend(fetch_all!(connection, (i64, Vec<u8>), AGAIN, chain.name(), now.0, limit, from)?);
    rows.sort_unstable();
    rows.dedup();
    blocks_of(rows)
}

/// Canonical blocks from number `from` on whose trace one endpoint reported, the newest first; at most `limit`.
pub async fn reported_alone(
    connection: &mut impl Connection,
    chain: Chain,
    from: u64,
    limit: u32,
) -> Result<Vec<BlockRef>, StoreError> {
    let rows = fetch_all!(connection, (i64, Vec<u8>), REPORTED_ALONE, chain.name(), int(from), i64::from(limit))?;
    blocks_of(rows)
}

/// Whether any canonical block of `range` must still be traced: then what no trace showed may still be there.
pub async fn are_untraced(
    connection: &mut impl Connection,
    chain: Chain,
    range: RangeInclusive<u64>,
) -> Result<bool, StoreError> {
    let (from, through) = (int(*range.start()), int(*range.end()));
    Ok(fetch_optional!(connection, (i32,), UNTRACED_IN, chain.name(), from, through)?.is_some())
}

/// The newest block of each chain from before `since` that must still be traced; only chains that have one.
pub async fn untraced_since(
    connection: &mut impl Connection,
    since: Timestamp,
) -> Result<BTreeMap<Chain, u64>, StoreError> {
    let mut found = BTreeMap::new();
    for (chain, number) in fetch_all!(connection, (String, Option<i64>), UNTRACED_SINCE, since.0)? {
        let Some(number) = number else { continue };
        found.insert(parsed("chain", &chain)?, uint("block number", number)?);
    }
    Ok(found)
}

/// Records that the trace of the canonical `block` is on record, and its proof. A later reading of one endpoint does
/// not replace "two endpoints".
pub async fn mark(tx: &mut Tx, chain: Chain, block: &BlockRef, proof: Proof) -> Result<(), StoreError> {
    let hash = &block.hash.0[..];
    expect_one("mark a block as traced", execute!(tx, MARK, chain.name(), hash, proof.name())?)?;
    execute!(tx, SUCCEEDED, chain.name(), hash).map(drop)
}

/// Records the proof of a reading of a past block, if that is on record and needs no trace any more.
pub async fn level(tx: &mut Tx, chain: Chain, block: &BlockRef, proof: Proof) -> Result<(), StoreError> {
    execute!(tx, LEVEL, chain.name(), &block.hash.0[..], proof.name()).map(drop)
}

/// The block's earlier failures; `None` if it has none.
pub async fn failure(
    connection: &mut impl Connection,
    chain: Chain,
    block: &BlockRef,
) -> Result<Option<TraceFailure>, StoreError> {
    let row = fetch_optional!(connection, (i64, i64), FAILURE, chain.name(), &block.hash.0[..])?;
    row.map(|(tries, tried_us)| Ok(TraceFailure { tries: uint("tries", tries)?, tried_at: Timestamp(tried_us) }))
        .transpose()
}

/// Records that the block could not be traced, and when the next try is due.
pub async fn put_off(
    tx: &mut Tx,
    chain: Chain,
    block: &BlockRef,
    TraceFailure { tries, tried_at }: TraceFailure,
    next: Timestamp,
    reason: &str,
) -> Result<(), StoreError> {
    let (hash, number, tries) = (&block.hash.0[..], int(block.number), i64::from(tries));
    execute!(tx, PUT_OFF, chain.name(), hash, number, tries, tried_at.0, next.0, reason).map(drop)
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
    let rows = fetch_all!(connection, SettleableRow, SETTLEABLE, chain.name(), int(through), now.0, i64::from(limit))?;
    rows.into_iter().map(Settleable::try_from).collect()
}

/// Records that the deposit has no second witness, and when it is tried again. Returns how many tries came before, in
/// the same block and on the same side of its finality; `pause` makes the pause of that number. `allowed` is how much
/// balances allow to have been paid to its recipient inside of the block's transactions. If it is `None`, what was
/// recorded of that block stays.
pub async fn doubt(
    tx: &mut Tx,
    chain: Chain,
    id: DepositId,
    reason: &str,
    Tried { block, is_final, at }: Tried,
    allowed: Option<&U256>,
    pause: impl FnOnce(u32) -> Duration + Send,
) -> Result<u32, StoreError> {
    let (id, block) = (id.to_string(), block.map(|block| block.0.to_vec()));
    let row = fetch_optional!(tx, (i64, Option<Vec<u8>>, bool), TRIES, &id)?;
    let row = row.filter(|(_, tried_in, was_final)| (tried_in, *was_final) == (&block, is_final));
    let tries: u32 = row.map_or(Ok(0), |(tries, ..)| uint("tries", tries))?;
    let next = at.plus(pause(tries));
    if let (Some(block), Some(allowed)) = (&block, allowed) {
        execute!(tx, ALLOW, &id, chain.name(), &block[..], amount_bytes(allowed))?;
    }
    execute!(tx, DOUBT, &id, chain.name(), i64::from(tries) + 1, next.0, reason, block, is_final)?;
    Ok(tries)
}

/// Records that a person decided that the deposit was not paid. It must be doubtful and in no block of ours; returns
/// whether it is.
pub async fn give_up(tx: &mut Tx, id: DepositId) -> Result<bool, StoreError> {
    Ok(execute!(tx, GIVE_UP, id.to_string())? > 0)
}

/// Whether a person decided so.
pub async fn is_given_up(connection: &mut impl Connection, id: DepositId) -> Result<bool, StoreError> {
    Ok(fetch_optional!(connection, (i32,), GIVEN_UP, id.to_string())?.is_some())
}

/// Why the deposit has no second witness yet; `None` if none was searched for.
pub async fn doubt_of(connection: &mut impl Connection, id: DepositId) -> Result<Option<String>, StoreError> {
    Ok(fetch_optional!(connection, (String,), REASON, id.to_string())?.map(|(reason,)| reason))
}

/// The deposit no longer waits for a witness.
pub async fn settled(tx: &mut Tx, id: DepositId) -> Result<(), StoreError> {
    execute!(tx, SETTLED, id.to_string()).map(drop)
}

/// Writes why the lane makes no progress, and whether every connected block is traced at `now`.
pub async fn say(tx: &mut Tx, chain: Chain, reason: &str, now: Timestamp) -> Result<(), StoreError> {
    let caught_up = !are_untraced(tx, chain, 0..=u64::MAX).await?;
    let at = if caught_up { now } else { Timestamp::EPOCH };
    execute!(tx, SAY, chain.name(), reason, at.0, caught_up).map(drop)
}

/// The network is not traced (any more).
pub async fn forget(tx: &mut Tx, chain: Chain) -> Result<(), StoreError> {
    execute!(tx, FORGET, chain.name()).map(drop)
}

/// The state of the lane, for each chain that has one.
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
            unwitnessed_for_long: 0,
            unwitnessed_reason: String::new(),
            by_two: None,
            by_one: None,
            put_off: 0,
            put_off_reason: String::new(),
        });
    }
    for status in &mut statuses {
        status.by_two = reported_by(connection, status.chain, Proof::TwoEndpoints).await?;
        status.by_one = reported_by(connection, status.chain, Proof::OneEndpoint).await?;
    }
    for (chain, count, reason) in fetch_all!(connection, (String, i64, String), FAILURES)? {
        if let Some(status) = statuses.iter_mut().find(|status| status.chain.name() == chain) {
            (status.put_off, status.put_off_reason) = (uint("count", count)?, reason);
        }
    }
    for Doubts { chain, count, for_long, reason } in doubts(connection).await? {
        if let Some(status) = statuses.iter_mut().find(|status| status.chain == chain) {
            (status.unwitnessed, status.unwitnessed_for_long) = (count, for_long);
            status.unwitnessed_reason = reason;
        }
    }
    Ok(statuses)
}

/// For each chain that has any: the PENDING deposits for which the search for a second witness failed. Includes chains
/// that have no lane of the traces any more.
pub async fn doubts(connection: &mut impl Connection) -> Result<Vec<Doubts>, StoreError> {
    let rows = fetch_all!(connection, (String, i64, i64, String), DOUBTS, i64::from(OFTEN))?;
    let doubts = rows.into_iter().map(|(chain, count, for_long, reason)| {
        let (count, for_long) = (uint("count", count)?, uint("count", for_long)?);
        Ok(Doubts { chain: parsed("chain", &chain)?, count, for_long, reason })
    });
    doubts.collect()
}

/// The newest canonical block whose trace has this `proof`.
pub async fn reported_by(
    connection: &mut impl Connection,
    chain: Chain,
    proof: Proof,
) -> Result<Option<u64>, StoreError> {
    let row = fetch_optional!(connection, (Option<i64>,), REPORTED_BY, chain.name(), proof.name())?;
    row.and_then(|(number,)| number).map(|number| uint("number", number)).transpose()
}

fn blocks_of(rows: Vec<(i64, Vec<u8>)>) -> Result<Vec<BlockRef>, StoreError> {
    let block = |(number, bytes): (i64, Vec<u8>)| {
        Ok(BlockRef { number: uint("block number", number)?, hash: BlockHash(hash("block hash", &bytes)?) })
    };
    rows.into_iter().map(block).collect()
}
