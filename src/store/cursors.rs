//! Where each chain's watcher stands, and the blocks that it connected.
//!
//! The cursor moves by compare-and-set on its old block, in the transaction of its data. Its row is also the lock of
//! the chain's watch list: whoever adds an address or connects blocks takes it first.

use landfall_chain::{Block, BlockHash, BlockRef, Chain, Header, Proof};

use crate::store::error::expect_one;
use crate::store::sql::{execute, fetch_all, fetch_optional, statements};
use crate::store::{Connection, StoreError, Tx, hash, int, uint};
use crate::time::Timestamp;

/// A watcher's place on its chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cursor {
    /// The last connected block; `None` before the first.
    pub at: Option<BlockRef>,
    /// The newest connected block that was final when it was checked.
    pub finalized: Option<BlockRef>,
    /// Up to which number its blocks were cross-checked and may count as final; 0 before the first. It moves only on
    /// chains whose blocks are cross-checked.
    pub looked: u64,
    /// The number of the newest watched address.
    pub watch_seq: u64,
}

statements! {
    ENSURE = "INSERT INTO cursors (chain, watch_seq) VALUES ($1, 0) ON CONFLICT (chain) DO NOTHING";
    LOAD = "SELECT number, hash, final_number, final_hash, looked_number, watch_seq FROM cursors WHERE chain = $1";
    LOCK = "SELECT number, hash, final_number, final_hash, looked_number, watch_seq FROM cursors WHERE chain = $1" [" FOR UPDATE"] "";
    SET_WATCH_SEQ = "UPDATE cursors SET watch_seq = $1 WHERE chain = $2";
    PLACE = "UPDATE cursors SET number = $1, hash = $2, looked_number = $1 WHERE chain = $3 AND number IS NULL";
    // Blocks that replace disconnected ones are not cross-checked yet.
    MOVE = "UPDATE cursors SET number = $1, hash = $2, \
            looked_number = CASE WHEN looked_number > $1 THEN $1 ELSE looked_number END WHERE chain = $3 AND hash = $4";
    LOOK = "UPDATE cursors SET looked_number = $1 WHERE chain = $2";
    FINALIZE = "UPDATE cursors SET final_number = $1, final_hash = $2 \
                WHERE chain = $3 AND (final_number IS NULL OR final_number < $1)";
    REFINALIZE = "UPDATE cursors SET final_number = $1, final_hash = $2 WHERE chain = $3 AND final_number > $1";
    UNPLACE = "UPDATE cursors SET number = NULL, hash = NULL, looked_number = NULL WHERE chain = $1 AND hash = $2 AND final_number IS NULL \
               AND NOT EXISTS (SELECT 1 FROM blocks WHERE blocks.chain = $1 AND blocks.hash <> $2) \
               AND NOT EXISTS (SELECT 1 FROM inclusions WHERE inclusions.chain = $1)";
    FORGET_ANCHOR = "DELETE FROM blocks WHERE chain = $1 AND hash = $2";
    // A block that is connected again is traced again: otherwise its legs to addresses that were added meanwhile would
    // be missed.
    CONNECT = "INSERT INTO blocks (chain, hash, number, parent_hash, time_us, proof, canonical, traced) \
               VALUES ($1, $2, $3, $4, $5, $6, true, $7) \
               ON CONFLICT (chain, hash) DO UPDATE SET canonical = true, proof = excluded.proof, traced = excluded.traced";
    REPORTED_BY_ONE = "SELECT 1 FROM blocks WHERE chain = $1 AND hash = $2 AND proof = 'one_endpoint'";
    STRENGTHEN = "UPDATE blocks SET proof = $3 WHERE chain = $1 AND hash = $2 AND proof IN ('unread', 'bloom', 'one_endpoint')";
    // When the blocks are connected again, they are tried at once.
    FORGET_FAILURES = "DELETE FROM trace_failures WHERE chain = $1 AND block_number > $2";
    DISCONNECT = "UPDATE blocks SET canonical = false WHERE chain = $1 AND canonical AND number > $2";
    CANONICAL_AT = "SELECT hash FROM blocks WHERE chain = $1 AND number = $2 AND canonical";
    CANONICAL_IN = "SELECT number, hash FROM blocks \
                    WHERE chain = $1 AND canonical AND number >= $2 AND number <= $3 ORDER BY number DESC";
    CANONICAL_FROM = "SELECT number, hash FROM blocks \
                      WHERE chain = $1 AND canonical AND number >= $2 AND number <= $3 ORDER BY number LIMIT $4";
    CANONICAL_THROUGH = "SELECT number, hash FROM blocks \
                         WHERE chain = $1 AND canonical AND number <= $2 ORDER BY number DESC LIMIT 1";
    PASSED_OVER = "SELECT below.number, below.hash FROM blocks AS below WHERE below.chain = $1 AND below.canonical AND below.number < $2 \
                   AND below.hash = (SELECT above.parent_hash FROM blocks AS above \
                   WHERE above.chain = $1 AND above.canonical AND above.number > $2 ORDER BY above.number LIMIT 1)";
    STANDS_ON = "SELECT below.number, below.hash, above.number, above.hash FROM blocks AS below \
                 JOIN blocks AS above ON above.chain = below.chain AND above.parent_hash = below.hash \
                 WHERE below.chain = $1 AND below.canonical AND above.canonical \
                 AND below.number = (SELECT MAX(number) FROM blocks WHERE chain = $1 AND canonical AND number <= $2) \
                 AND above.number = (SELECT MIN(number) FROM blocks WHERE chain = $1 AND canonical AND number > $2)";
    TIME_OF = "SELECT time_us FROM blocks WHERE chain = $1 AND hash = $2";
    // Each block is one higher than its parent, so what is counted is how much higher the last one is, or less where blocks were pruned.
    // From the last one that is earlier on: one block whose time was reported wrongly makes it less, never more.
    HIGHER_THAN = "SELECT COUNT(*) FROM blocks WHERE chain = $1 AND canonical AND number <= $2 AND number > COALESCE(\
                   (SELECT MAX(number) FROM blocks WHERE chain = $1 AND canonical AND time_us < $3), -1)";
    HIGHER_BY = "SELECT COUNT(*) FROM blocks WHERE chain = $1 AND canonical AND number > $2 AND number <= $3";
    OLDEST_FROM = "SELECT MIN(number) FROM blocks WHERE chain = $1 AND canonical AND number >= $2";
    // These blocks are kept: evidence of deposits, blocks with movements (they are part of the books) or with marks, and
    // blocks that must still be traced. Also, for a reorg that waits for a person, its fork point and the block on top.
    PRUNE = "DELETE FROM blocks WHERE chain = $1 AND number >= $2 AND number < $3 AND (traced OR NOT canonical) AND NOT EXISTS \
             (SELECT 1 FROM inclusions WHERE inclusions.chain = blocks.chain AND inclusions.block_hash = blocks.hash) AND NOT EXISTS \
             (SELECT 1 FROM debits WHERE debits.chain = blocks.chain AND debits.block_hash = blocks.hash) AND NOT EXISTS \
             (SELECT 1 FROM fees WHERE fees.chain = blocks.chain AND fees.block_hash = blocks.hash) AND NOT EXISTS \
             (SELECT 1 FROM marks WHERE marks.chain = blocks.chain AND marks.block_hash = blocks.hash) AND NOT EXISTS \
             (SELECT 1 FROM unattributed WHERE unattributed.chain = blocks.chain AND unattributed.block_hash = blocks.hash) AND NOT EXISTS \
             (SELECT 1 FROM incidents JOIN blocks AS fork ON fork.chain = incidents.chain AND fork.number = incidents.block_number \
              WHERE incidents.chain = $1 AND incidents.kind = 'post_finality_reorg' AND incidents.resolved_us IS NULL \
              AND fork.canonical AND fork.hash IN (blocks.hash, blocks.parent_hash))";
}

type CursorRow = (Option<i64>, Option<Vec<u8>>, Option<i64>, Option<Vec<u8>>, Option<i64>, i64);

impl Cursor {
    /// The chain's cursor; `at` is `None` if the chain was never watched.
    pub async fn load(connection: &mut impl Connection, chain: Chain) -> Result<Self, StoreError> {
        Cursor::of(fetch_optional!(connection, CursorRow, LOAD, chain.name())?)
    }

    /// As [`Cursor::load`], and no other transaction changes it before the end of this one.
    pub async fn lock(tx: &mut Tx, chain: Chain) -> Result<Self, StoreError> {
        execute!(tx, ENSURE, chain.name())?;
        Cursor::of(fetch_optional!(tx, CursorRow, LOCK, chain.name())?)
    }

    /// Sets the anchor, below which nothing is read.
    pub async fn place(tx: &mut Tx, chain: Chain, at: &BlockRef) -> Result<(), StoreError> {
        let placed = execute!(tx, PLACE, int(at.number), &at.hash.0[..], chain.name())?;
        moved_unless(placed == 1, chain)
    }

    /// Moves the cursor from its block to another, forward or back.
    pub async fn shift(tx: &mut Tx, chain: Chain, from: &BlockRef, to: &BlockRef) -> Result<(), StoreError> {
        let moved = execute!(tx, MOVE, int(to.number), &to.hash.0[..], chain.name(), &from.hash.0[..])?;
        moved_unless(moved == 1, chain)
    }

    /// Records through which number connected blocks were cross-checked.
    pub async fn look(tx: &mut Tx, chain: Chain, through: u64) -> Result<(), StoreError> {
        let looked = execute!(tx, LOOK, int(through), chain.name())?;
        expect_one("look at connected blocks once more", looked)
    }

    /// Publishes that the chain's newest watched address is number `watch_seq`.
    pub async fn set_watch_seq(tx: &mut Tx, chain: Chain, watch_seq: u64) -> Result<(), StoreError> {
        let set = execute!(tx, SET_WATCH_SEQ, int(watch_seq), chain.name())?;
        expect_one("publish watch list", set)
    }

    /// Records a newer final block; an older one changes nothing.
    pub async fn finalize(tx: &mut Tx, chain: Chain, at: &BlockRef) -> Result<(), StoreError> {
        execute!(tx, FINALIZE, int(at.number), &at.hash.0[..], chain.name()).map(drop)
    }

    /// Moves the newest final block back to an older one, after an accepted reorg.
    pub async fn refinalize(tx: &mut Tx, chain: Chain, at: &BlockRef) -> Result<(), StoreError> {
        execute!(tx, REFINALIZE, int(at.number), &at.hash.0[..], chain.name()).map(drop)
    }

    /// Makes the chain one that was never watched, if `at` is its anchor and nothing was ever recorded above it;
    /// returns whether it did.
    pub async fn unplace(tx: &mut Tx, chain: Chain, at: &BlockRef) -> Result<bool, StoreError> {
        if execute!(tx, UNPLACE, chain.name(), &at.hash.0[..])? == 0 {
            return Ok(false);
        }
        let forgotten = execute!(tx, FORGET_ANCHOR, chain.name(), &at.hash.0[..])?;
        expect_one("forget the block a chain was taken up at", forgotten)?;
        Ok(true)
    }

    fn of(row: Option<CursorRow>) -> Result<Self, StoreError> {
        let (number, at_hash, final_number, final_hash, looked, watch_seq) = row.unwrap_or_default();
        Ok(Cursor {
            at: block_ref(number, at_hash)?,
            finalized: block_ref(final_number, final_hash)?,
            looked: uint("looked_number", looked.unwrap_or_default())?,
            watch_seq: uint("watch_seq", watch_seq)?,
        })
    }
}

/// Puts a block on the canonical chain. With `traced`, no trace of it will be read.
pub async fn connect(tx: &mut Tx, chain: Chain, block: &Block, traced: bool) -> Result<(), StoreError> {
    record(tx, chain, &block.header, block.proof.name(), traced).await
}

/// Whether the block is on record, canonical or not, as reported by one endpoint.
pub async fn is_reported_by_one(
    connection: &mut impl Connection,
    chain: Chain,
    block: &BlockHash,
) -> Result<bool, StoreError> {
    Ok(fetch_optional!(connection, (i32,), REPORTED_BY_ONE, chain.name(), &block.0[..])?.is_some())
}

/// Records that a block on record was read again with this proof, if its proof was weaker.
pub async fn strengthen(tx: &mut Tx, chain: Chain, block: &BlockRef, proof: Proof) -> Result<(), StoreError> {
    match proof {
        Proof::Roots | Proof::TwoEndpoints => {
            execute!(tx, STRENGTHEN, chain.name(), &block.hash.0[..], proof.name()).map(drop)
        }
        Proof::Bloom | Proof::OneEndpoint => Ok(()),
    }
}

/// Records the header that the cursor starts from; its content is unread.
pub async fn anchor(tx: &mut Tx, chain: Chain, header: &Header) -> Result<(), StoreError> {
    record(tx, chain, header, "unread", true).await
}

/// Removes every block above `fork_point` from the canonical chain; returns how many there were.
pub async fn disconnect(tx: &mut Tx, chain: Chain, fork_point: &BlockRef) -> Result<u64, StoreError> {
    execute!(tx, FORGET_FAILURES, chain.name(), int(fork_point.number))?;
    execute!(tx, DISCONNECT, chain.name(), int(fork_point.number))
}

/// The time of a block on record, as the chain says it.
pub async fn time_of(
    connection: &mut impl Connection,
    chain: Chain,
    block: &BlockRef,
) -> Result<Option<Timestamp>, StoreError> {
    let row = fetch_optional!(connection, (i64,), TIME_OF, chain.name(), &block.hash.0[..])?;
    Ok(row.map(|(time,)| Timestamp(time)))
}

/// By how much the canonical block `number` is higher than the first one whose time is not before `since`: what is on
/// record of that, which is never more than there is.
pub async fn higher_than(
    connection: &mut impl Connection,
    chain: Chain,
    number: u64,
    since: Timestamp,
) -> Result<u64, StoreError> {
    let row = fetch_optional!(connection, (i64,), HIGHER_THAN, chain.name(), int(number), since.0)?;
    // The first of them is no higher than itself.
    row.map_or(Ok(0), |(count,)| uint("count of blocks", (count - 1).max(0)))
}

/// By how much the canonical block `to` is higher than the block `from`: what is on record of that, which is never more than
/// there is.
pub async fn higher_by(
    connection: &mut impl Connection,
    chain: Chain,
    (from, to): (u64, u64),
) -> Result<u64, StoreError> {
    let row = fetch_optional!(connection, (i64,), HIGHER_BY, chain.name(), int(from), int(to))?;
    uint("count of blocks", row.map_or(0, |(count,)| count))
}

/// The hash of our canonical block at `number`, if it is on record.
pub async fn canonical_at(
    connection: &mut impl Connection,
    chain: Chain,
    number: u64,
) -> Result<Option<BlockHash>, StoreError> {
    let row = fetch_optional!(connection, (Vec<u8>,), CANONICAL_AT, chain.name(), int(number))?;
    row.map(|(bytes,)| hash("block hash", &bytes).map(BlockHash)).transpose()
}

/// Our canonical blocks with numbers `from..=to` that are on record, newest first.
pub async fn canonical_in(
    connection: &mut impl Connection,
    chain: Chain,
    from: u64,
    to: u64,
) -> Result<Vec<BlockRef>, StoreError> {
    refs(fetch_all!(connection, (i64, Vec<u8>), CANONICAL_IN, chain.name(), int(from), int(to))?)
}

/// At most `limit` canonical blocks numbered `from..=to`, ascending.
pub async fn canonical_from(
    connection: &mut impl Connection,
    chain: Chain,
    (from, to): (u64, u64),
    limit: u32,
) -> Result<Vec<BlockRef>, StoreError> {
    let limit = i64::from(limit);
    refs(fetch_all!(connection, (i64, Vec<u8>), CANONICAL_FROM, chain.name(), int(from), int(to), limit)?)
}

fn refs(rows: Vec<(i64, Vec<u8>)>) -> Result<Vec<BlockRef>, StoreError> {
    let refs = rows.into_iter().map(|(number, bytes)| {
        Ok(BlockRef { number: uint("block number", number)?, hash: BlockHash(hash("block hash", &bytes)?) })
    });
    refs.collect()
}

/// Our newest canonical block on record with number `through` or below.
pub async fn canonical_through(
    connection: &mut impl Connection,
    chain: Chain,
    through: u64,
) -> Result<Option<BlockRef>, StoreError> {
    one(fetch_optional!(connection, (i64, Vec<u8>), CANONICAL_THROUGH, chain.name(), int(through))?)
}

/// The block below `number` that the next one above it stands on: by that link our chain has no block at `number`.
/// `None` if it has one, or if one of the two is not on record.
pub async fn passed_over(
    connection: &mut impl Connection,
    chain: Chain,
    number: u64,
) -> Result<Option<BlockRef>, StoreError> {
    one(fetch_optional!(connection, (i64, Vec<u8>), PASSED_OVER, chain.name(), int(number))?)
}

/// Our newest block with number `number` or below, and the next one above that number, if its parent is the former.
/// `None` if one of the two is not on record, or another block was between them.
pub async fn stands_on(
    connection: &mut impl Connection,
    chain: Chain,
    number: u64,
) -> Result<Option<(BlockRef, BlockRef)>, StoreError> {
    type Row = (i64, Vec<u8>, i64, Vec<u8>);
    let Some((below, below_hash, above, above_hash)) =
        fetch_optional!(connection, Row, STANDS_ON, chain.name(), int(number))?
    else {
        return Ok(None);
    };
    Ok(one(Some((below, below_hash)))?.zip(one(Some((above, above_hash)))?))
}

fn one(row: Option<(i64, Vec<u8>)>) -> Result<Option<BlockRef>, StoreError> {
    Ok(refs(row.into_iter().collect())?.pop())
}

/// The number of the oldest canonical block on record, from `from` on.
pub async fn oldest_from(connection: &mut impl Connection, chain: Chain, from: u64) -> Result<Option<u64>, StoreError> {
    let row = fetch_optional!(connection, (Option<i64>,), OLDEST_FROM, chain.name(), int(from))?;
    row.and_then(|(number,)| number).map(|number| uint("block number", number)).transpose()
}

/// Forgets the blocks with numbers `from..below` that nothing needs any more. Without a lower end, each call would walk
/// over all the evidence that is kept.
pub async fn prune(tx: &mut Tx, chain: Chain, from: u64, below: u64) -> Result<u64, StoreError> {
    execute!(tx, PRUNE, chain.name(), int(from), int(below))
}

async fn record(tx: &mut Tx, chain: Chain, header: &Header, proof: &str, traced: bool) -> Result<(), StoreError> {
    let Header { block, parent, time_secs } = header;
    let (number, time) = (int(block.number), Timestamp::from_secs(*time_secs).0);
    let (hash, parent) = (&block.hash.0[..], &parent.hash.0[..]);
    let recorded = execute!(tx, CONNECT, chain.name(), hash, number, parent, time, proof, traced)?;
    expect_one("connect block", recorded)
}

fn block_ref(number: Option<i64>, bytes: Option<Vec<u8>>) -> Result<Option<BlockRef>, StoreError> {
    let (Some(number), Some(bytes)) = (number, bytes) else { return Ok(None) };
    Ok(Some(BlockRef { number: uint("cursor", number)?, hash: BlockHash(hash("cursor", &bytes)?) }))
}

fn moved_unless(held: bool, chain: Chain) -> Result<(), StoreError> {
    if held { Ok(()) } else { Err(StoreError::Moved { chain }) }
}
