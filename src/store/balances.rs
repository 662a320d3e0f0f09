//! What watched addresses held at final blocks, and whose holdings must be read.
//!
//! Promises: every recorded movement queues its address (`moved`), and so does an added address ([`first`]). A reading
//! never replaces one of a later block. No holding reads as zero because it was never read: what is not known is not in
//! [`Known::held`]. Each holding says from which block on every debit is seen.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use landfall_chain::{Address, AssetId, BlockHash, Chain, Proof, U256};
use sqlx_macros::FromRow;

use crate::balance::{Held, HeldAfter};
use crate::store::deposits::{amount_bytes, amount_of};
use crate::store::sql::{execute, fetch_all, fetch_optional, statements};
use crate::store::{Connection, Listed, StoreError, Tx, hash, int, parsed, sponsor_books, traces, uint, unexplained};
use crate::time::Timestamp;

/// How long an unreported address waits: as long as it has been unreported, within these bounds.
const REST_MIN: Duration = Duration::from_secs(30);
const REST_MAX: Duration = Duration::from_secs(60 * 60);

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Known {
    pub chain: Chain,
    pub address: Address,
    /// One entry for each asset that was ever read of it.
    pub held: Vec<Held>,
}

/// A watched address, and for each asset that is known of it, the block of the reading.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Watched {
    pub seq: u64,
    pub address: Address,
    pub assets: Vec<(AssetId, u64)>,
}

/// An asset whose balances are reported to clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Followed {
    pub asset: AssetId,
    /// The first block from which it is followed.
    pub from: u64,
    /// Since when no endpoint reports any balance of it.
    pub unreported_since: Option<Timestamp>,
    /// From which block on all that moves of it is seen; `None` where it is not.
    pub explained_from: Option<u64>,
}

/// An address that was not reported when it was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unreported {
    pub address: Address,
    /// The missing assets, as text.
    pub assets: String,
    pub since: Timestamp,
}

/// Why an address must be read at whichever block is final.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Reason {
    /// It was added to the watch list.
    Added,
    /// Its reading is of a block that is not final after all.
    TakenBack,
    /// A listed asset is not known of it.
    Listed,
}

/// What was read of one asset of an address.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'a> {
    pub address: &'a Address,
    pub asset: AssetId,
    pub amount: U256,
    pub number: u64,
    pub hash: Option<BlockHash>,
    pub proof: Proof,
}

statements! {
    // $2 is $4 addresses of $3 bytes each, concatenated.
    FIRST = "INSERT INTO balances_due (chain, address, block_number, queued_us, reason) \
             WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < $4) \
             SELECT $1, substr(" ["CAST("] "$2" [" AS BYTEA)"] ", i * $3 + 1, $3), 0, $5, $6 FROM n WHERE TRUE ON CONFLICT (chain, address, block_number) DO NOTHING";
    // If the asset was read at this block or a later one, the reading includes the movement.
    MOVED = "INSERT INTO balances_due (chain, address, block_number, queued_us) SELECT w.chain, w.address, \
             CAST($3 AS BIGINT), 0 FROM watched_addresses AS w WHERE w.chain = $1 AND w.address = $2 AND NOT EXISTS \
             (SELECT 1 FROM balances AS b WHERE b.chain = $1 AND b.address = $2 AND b.asset = $4 AND b.block_number >= $3) \
             ON CONFLICT (chain, address, block_number) DO NOTHING";
    UNSEEN = "INSERT INTO balances_due (chain, address, block_number, queued_us) \
              WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < $4) \
              SELECT $1, substr(" ["CAST("] "$2" [" AS BYTEA)"] ", i * $3 + 1, $3), $5, 0 FROM n WHERE TRUE ON CONFLICT (chain, address, block_number) DO NOTHING";
    // An address that is due already stays as it is.
    KEEP = "INSERT INTO balances_due (chain, address, block_number, queued_us) SELECT w.chain, w.address, CAST($3 AS BIGINT), 0 \
            FROM watched_addresses AS w WHERE w.chain = $1 AND w.address = $2 AND NOT EXISTS (SELECT 1 FROM balances_due AS due \
            WHERE due.chain = $1 AND due.address = $2 AND due.block_number <= $3) \
            ON CONFLICT (chain, address, block_number) DO NOTHING";
    QUEUED = "SELECT address FROM balances_due WHERE chain = $1 AND reason = $2 AND again_us <= $3 \
              ORDER BY queued_us DESC LIMIT $4";
    MOVED_BY = "SELECT address FROM balances_due WHERE chain = $1 AND reason = 'moved' AND block_number <= $2 AND again_us <= $3 \
                ORDER BY block_number DESC LIMIT $4";
    MOVED_BETWEEN = "SELECT block_number FROM balances_due WHERE chain = $1 AND address = $2 AND block_number > $3 \
                     AND block_number <= $4 ORDER BY block_number LIMIT 1";
    OLDEST = "SELECT b.address FROM balances AS b WHERE b.chain = $1 AND b.read_us < $2 AND NOT EXISTS \
              (SELECT 1 FROM balances_due AS due WHERE due.chain = b.chain AND due.address = b.address) \
              ORDER BY b.read_us LIMIT $3";
    PAGE = "SELECT page.seq, page.address, b.asset, b.block_number FROM (SELECT chain, seq, address FROM watched_addresses \
            WHERE chain = $1 AND seq < $2 ORDER BY seq DESC LIMIT $3) AS page \
            LEFT JOIN balances AS b ON b.chain = page.chain AND b.address = page.address ORDER BY page.seq DESC";
    // The amount of a later block stays; for the same block, the report of two endpoints stays.
    SET = "INSERT INTO balances (chain, address, asset, amount, amount_text, block_number, block_hash, proof, read_us, \
           base_number, base_amount) \
           VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $6, $4) ON CONFLICT (chain, address, asset) DO UPDATE SET \
           amount = excluded.amount, amount_text = excluded.amount_text, block_number = excluded.block_number, \
           block_hash = excluded.block_hash, proof = excluded.proof, read_us = excluded.read_us, \
           base_number = CASE WHEN $10 THEN excluded.base_number ELSE balances.base_number END, \
           base_amount = CASE WHEN $10 THEN excluded.base_amount ELSE balances.base_amount END \
           WHERE balances.block_number < excluded.block_number OR balances.block_number = excluded.block_number \
           AND (balances.proof = excluded.proof OR balances.proof = 'one_endpoint')";
    DONE = "DELETE FROM balances_due WHERE chain = $1 AND address = $2 AND block_number <= $3";
    REST = "UPDATE balances_due SET unreported_us = COALESCE(unreported_us, $4), unreported_assets = $5, again_us = $4 + \
            CASE WHEN $4 - COALESCE(unreported_us, $4) < $6 THEN $6 WHEN $4 - unreported_us > $7 THEN $7 ELSE $4 - unreported_us END \
            WHERE chain = $1 AND address = $2 AND block_number <= $3";
    UNREPORTED = "SELECT address, unreported_assets, unreported_us FROM balances_due WHERE chain = $1 AND unreported_us IS NOT NULL \
              AND unreported_us <= $2 ORDER BY unreported_us, address, block_number LIMIT $3";
    QUEUE_ABOVE = "INSERT INTO balances_due (chain, address, block_number, queued_us, reason) \
                   SELECT DISTINCT chain, address, 0, CAST($3 AS BIGINT), 'taken_back' \
                   FROM balances WHERE chain = $1 AND block_number > $2 ON CONFLICT (chain, address, block_number) DO NOTHING";
    FORGET_ABOVE = "DELETE FROM balances WHERE chain = $1 AND block_number > $2";
    FOLLOWED = "SELECT asset, followed_from, unreported_us, explained_from FROM balance_assets WHERE chain = $1 ORDER BY asset";
    // An asset that was followed before stays as it is; under other settings `explained_from` starts anew.
    FOLLOW = "INSERT INTO balance_assets (chain, asset, followed_from, explained_from, explained_by) VALUES ($1, $2, $3, $4, $5) \
              ON CONFLICT (chain, asset) DO UPDATE SET explained_by = excluded.explained_by, explained_from = \
              CASE WHEN balance_assets.explained_by = excluded.explained_by THEN balance_assets.explained_from \
              ELSE excluded.explained_from END";
    // Only bases after which every movement of the address and the asset is seen.
    BASES = "SELECT b.asset, b.base_number, b.base_amount FROM watched_addresses AS w \
             JOIN balances AS b ON b.chain = w.chain AND b.address = w.address \
             JOIN balance_assets AS f ON f.chain = b.chain AND f.asset = b.asset WHERE w.chain = $1 AND w.address = $2 \
             AND b.base_number + 1 >= w.from_number AND b.base_number + 1 >= f.explained_from ORDER BY b.asset";
    UNFOLLOW = "DELETE FROM balance_assets WHERE chain = $1 AND asset = $2";
    SILENT = "UPDATE balance_assets SET unreported_us = COALESCE(unreported_us, $3) WHERE chain = $1 AND asset = $2";
    REPORTED = "UPDATE balance_assets SET unreported_us = NULL WHERE chain = $1 AND asset = $2 AND unreported_us IS NOT NULL";
    // One statement, so that spending is counted from the very block of the amount. CROSS JOIN, because SQLite's
    // planner would walk over everything that an address ever spent. OFFSET 0, because PostgreSQL without statistics reads
    // all marks and inclusions for each account.
    OF_ACCOUNT = "SELECT 'held' AS what, w.chain, w.address, b.asset, b.amount, b.block_number, b.block_hash, b.read_us, \
                  CASE WHEN f.followed_from > w.from_number THEN f.followed_from WHEN f.followed_from IS NOT NULL \
                  THEN w.from_number END AS seen_from \
                  FROM watched_addresses AS w LEFT JOIN balances AS b ON b.chain = w.chain AND b.address = w.address \
                  LEFT JOIN balance_assets AS f ON f.chain = b.chain AND f.asset = b.asset \
                  WHERE w.account_id = $1 \
                  UNION ALL SELECT 'spent', w.chain, w.address, b.asset, d.amount, b.block_number, b.block_hash, b.read_us, 0 \
                  FROM watched_addresses AS w CROSS JOIN balances AS b CROSS JOIN debits AS d CROSS JOIN blocks \
                  WHERE w.account_id = $1 AND b.chain = w.chain AND b.address = w.address \
                  AND d.chain = b.chain AND d.sender = b.address AND d.block_number > b.block_number AND d.asset = b.asset \
                  AND blocks.chain = d.chain AND blocks.hash = d.block_hash AND blocks.canonical \
                  UNION ALL SELECT 'spent', w.chain, w.address, b.asset, f.amount, b.block_number, b.block_hash, b.read_us, 0 \
                  FROM watched_addresses AS w CROSS JOIN balances AS b CROSS JOIN fees AS f CROSS JOIN blocks \
                  WHERE w.account_id = $1 AND b.chain = w.chain AND b.address = w.address AND b.asset = $2 \
                  AND f.chain = b.chain AND f.payer = b.address AND f.block_number > b.block_number \
                  AND blocks.chain = f.chain AND blocks.hash = f.block_hash AND blocks.canonical \
                  UNION ALL SELECT 'pending', p.chain, p.recipient, p.asset, p.amount, b.block_number, b.block_hash, b.read_us, 0 \
                  FROM deposits AS p JOIN balances AS b ON b.chain = p.chain AND b.address = p.recipient AND b.asset = p.asset \
                  WHERE p.account_id = $1 AND p.status = 'PENDING' AND EXISTS \
                  (SELECT 1 FROM inclusions AS i JOIN blocks ON blocks.chain = i.chain AND blocks.hash = i.block_hash \
                  WHERE i.deposit_id = p.id AND blocks.canonical AND i.block_number <= b.block_number" [" OFFSET 0"] ") \
                  UNION ALL SELECT 'reserved', t.chain, t.source, t.asset, t.amount, b.block_number, b.block_hash, b.read_us, 0 \
                  FROM transfers AS t JOIN balances AS b ON b.chain = t.chain AND b.address = t.source AND b.asset = t.asset \
                  WHERE t.account_id = $1 AND t.status IN ('ACCEPTED', 'SUBMITTED') AND NOT EXISTS \
                  (SELECT 1 FROM marks AS m JOIN blocks ON blocks.chain = m.chain AND blocks.hash = m.block_hash \
                  WHERE m.chain = t.chain AND m.payer = t.source AND m.intent_key = t.intent_key AND m.effect = 'paid' AND blocks.canonical" [" OFFSET 0"] ")";
}

#[derive(FromRow)]
struct Row {
    what: String,
    chain: String,
    address: Vec<u8>,
    asset: Option<Vec<u8>>,
    amount: Option<Vec<u8>>,
    block_number: Option<i64>,
    block_hash: Option<Vec<u8>>,
    read_us: Option<i64>,
    seen_from: Option<i64>,
}

/// Queues addresses of one chain to be read at whichever block is final. If that is below `seen_from`, they are read
/// again once the block before `seen_from` is final: from there on every debit is seen.
pub async fn first(
    tx: &mut Tx,
    chain: Chain,
    addresses: &[Address],
    (reason, seen_from): (Reason, u64),
    now: Timestamp,
) -> Result<(), StoreError> {
    let Listed { bytes, width, len } = Listed::of(addresses);
    execute!(tx, FIRST, chain.name(), &bytes, width, len, now.0, reason.name())?;
    match seen_from.checked_sub(1) {
        Some(unseen) if unseen > 0 => execute!(tx, UNSEEN, chain.name(), bytes, width, len, int(unseen)).map(drop),
        _ => Ok(()),
    }
}

/// Some of `asset` moved from or to `address` in block `number`. Queues the address, if it is watched, to be read once
/// that block is final.
pub(super) async fn moved(
    tx: &mut Tx,
    chain: Chain,
    address: &Address,
    asset: &AssetId,
    number: u64,
) -> Result<(), StoreError> {
    execute!(tx, MOVED, chain.name(), address.as_bytes(), int(number), asset.to_bytes()).map(drop)
}

/// At most `limit` addresses that are due for this reason, the last queued first, without those that are paused.
pub async fn queued(
    connection: &mut impl Connection,
    chain: Chain,
    reason: Reason,
    now: Timestamp,
    limit: u32,
) -> Result<Vec<Address>, StoreError> {
    addresses(fetch_all!(connection, (Vec<u8>,), QUEUED, chain.name(), reason.name(), now.0, i64::from(limit))?)
}

/// At most `limit` addresses that had a movement up to the final block `number`, those of the newest blocks first,
/// without those that are paused. One address may be in the list several times.
pub async fn moved_by(
    connection: &mut impl Connection,
    chain: Chain,
    number: u64,
    now: Timestamp,
    limit: u32,
) -> Result<Vec<Address>, StoreError> {
    addresses(fetch_all!(connection, (Vec<u8>,), MOVED_BY, chain.name(), int(number), now.0, i64::from(limit))?)
}

/// Whether a queued movement of `address` is in a block above `from`, up to `to`; queued movements are not yet in any
/// reading.
pub async fn moved_between(
    connection: &mut impl Connection,
    chain: Chain,
    address: &Address,
    (from, to): (u64, u64),
) -> Result<bool, StoreError> {
    let row = fetch_optional!(connection, (i64,), MOVED_BETWEEN, chain.name(), address.as_bytes(), int(from), int(to))?;
    Ok(row.is_some())
}

/// The addresses of at most `limit` readings from before `before`, oldest first, without addresses that are due.
pub async fn oldest(
    connection: &mut impl Connection,
    chain: Chain,
    before: Timestamp,
    limit: u32,
) -> Result<Vec<Address>, StoreError> {
    addresses(fetch_all!(connection, (Vec<u8>,), OLDEST, chain.name(), before.0, i64::from(limit))?)
}

/// At most `limit` watched addresses with numbers below `seq`, the highest first, and what is known of each.
pub async fn watched_below(
    connection: &mut impl Connection,
    chain: Chain,
    seq: u64,
    limit: u32,
) -> Result<Vec<Watched>, StoreError> {
    type PageRow = (i64, Vec<u8>, Option<Vec<u8>>, Option<i64>);
    let mut found: Vec<Watched> = Vec::new();
    for (seq, bytes, asset, number) in fetch_all!(connection, PageRow, PAGE, chain.name(), int(seq), i64::from(limit))?
    {
        let seq = uint("seq", seq)?;
        let known = asset.zip(number).map(|(asset, number)| Ok((asset_of(&asset)?, uint("block number", number)?)));
        let known = known.transpose()?;
        match found.last_mut().filter(|last| last.seq == seq) {
            Some(last) => last.assets.extend(known),
            None => found.push(Watched { seq, address: address(&bytes)?, assets: known.into_iter().collect() }),
        }
    }
    Ok(found)
}

/// For each asset of an address, the reading to compare the next one with; none if something may have moved since then
/// unseen.
pub async fn bases(
    connection: &mut impl Connection,
    chain: Chain,
    address: &Address,
) -> Result<BTreeMap<AssetId, HeldAfter>, StoreError> {
    let rows = fetch_all!(connection, (Vec<u8>, i64, Vec<u8>), BASES, chain.name(), address.as_bytes())?;
    let bases = rows.into_iter().map(|(asset, number, amount)| {
        let base = HeldAfter { number: uint("base_number", number)?, amount: amount_of(&amount)? };
        Ok((asset_of(&asset)?, base))
    });
    bases.collect()
}

/// Records what was read; returns whether it did. A reading of a later block stays, and so does one of the same block
/// that more endpoints reported. If it `is_base`, the next reading is compared with this one, otherwise with the
/// earlier base.
pub async fn set(
    tx: &mut Tx,
    chain: Chain,
    reading: &Reading<'_>,
    is_base: bool,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let Reading { address, asset, amount, number, hash, proof } = reading;
    let set = execute!(
        tx,
        SET,
        chain.name(),
        address.as_bytes(),
        asset.to_bytes(),
        amount_bytes(amount),
        amount.to_string(),
        int(*number),
        hash.as_ref().map(|hash| &hash.0[..]),
        proof.name(),
        now.0,
        is_base,
    )?;
    Ok(set > 0)
}

/// An address is no longer due: everything was read at block `number` or later.
pub async fn done(tx: &mut Tx, chain: Chain, address: &Address, number: u64) -> Result<(), StoreError> {
    execute!(tx, DONE, chain.name(), address.as_bytes(), int(number)).map(drop)
}

/// An address that was asked for at block `number` has no report of `assets`. It stays due, and waits as long as it has
/// been unreported, from half a minute to an hour.
pub async fn rest(
    tx: &mut Tx,
    chain: Chain,
    address: &Address,
    (number, assets): (u64, &str),
    now: Timestamp,
) -> Result<(), StoreError> {
    let (who, number) = (address.as_bytes(), int(number));
    // An address that was only read in its turn is due from now on.
    execute!(tx, KEEP, chain.name(), who, number)?;
    let [least, most] = [REST_MIN, REST_MAX].map(|time| Timestamp::EPOCH.plus(time).0);
    execute!(tx, REST, chain.name(), who, number, now.0, assets, least, most).map(drop)
}

/// At most `limit` of the addresses of a chain that have been unreported since `before` or longer, the longest first.
pub async fn unreported(
    connection: &mut impl Connection,
    chain: Chain,
    before: Timestamp,
    limit: u32,
) -> Result<Vec<Unreported>, StoreError> {
    let rows = fetch_all!(connection, (Vec<u8>, String, i64), UNREPORTED, chain.name(), before.0, i64::from(limit))?;
    let unreported = rows
        .into_iter()
        .map(|(bytes, assets, since)| Ok(Unreported { address: address(&bytes)?, assets, since: Timestamp(since) }));
    unreported.collect()
}

/// Forgets what was read of blocks above `number`, also of sponsors: they are not final after all. Queues its addresses.
pub async fn disconnect_to(tx: &mut Tx, chain: Chain, number: u64, now: Timestamp) -> Result<(), StoreError> {
    execute!(tx, QUEUE_ABOVE, chain.name(), int(number), now.0)?;
    unexplained::disconnect_to(tx, chain, number).await?;
    sponsor_books::disconnect_to(tx, chain, number).await?;
    execute!(tx, FORGET_ABOVE, chain.name(), int(number)).map(drop)
}

pub async fn followed(connection: &mut impl Connection, chain: Chain) -> Result<Vec<Followed>, StoreError> {
    type Row = (Vec<u8>, i64, Option<i64>, Option<i64>);
    let rows = fetch_all!(connection, Row, FOLLOWED, chain.name())?;
    let followed = rows.into_iter().map(|(asset, from, unreported, explained)| {
        let (asset, from) = (asset_of(&asset)?, uint("followed_from", from)?);
        let explained_from = explained.map(|number| uint("explained_from", number)).transpose()?;
        Ok(Followed { asset, from, unreported_since: unreported.map(Timestamp), explained_from })
    });
    followed.collect()
}

/// `asset` is followed from block `from` on, unless it is followed already. From `explained_from` on every movement of
/// it is seen under these settings, unless that is on record for the same ones; `None` if movements are not seen.
pub async fn follow(
    tx: &mut Tx,
    chain: Chain,
    asset: &AssetId,
    from: u64,
    (explained_from, settings): (Option<u64>, &str),
) -> Result<(), StoreError> {
    execute!(tx, FOLLOW, chain.name(), asset.to_bytes(), int(from), explained_from.map(int), settings).map(drop)
}

/// `asset` is not listed any more: if it is listed again later, movements in between were not seen.
pub async fn unfollow(tx: &mut Tx, chain: Chain, asset: &AssetId) -> Result<(), StoreError> {
    execute!(tx, UNFOLLOW, chain.name(), asset.to_bytes()).map(drop)
}

/// Records whether any endpoint reports balances of `asset`.
pub async fn report(
    tx: &mut Tx,
    chain: Chain,
    asset: &AssetId,
    is_reported: bool,
    now: Timestamp,
) -> Result<(), StoreError> {
    if is_reported {
        execute!(tx, REPORTED, chain.name(), asset.to_bytes()).map(drop)
    } else {
        execute!(tx, SILENT, chain.name(), asset.to_bytes(), now.0).map(drop)
    }
}

/// What is known of each address of an account, by chain. A block from before `untraced_since` that is not traced yet
/// may have moved the native currency; `Held::unsearched` names the newest.
pub async fn of_account(
    connection: &mut impl Connection,
    account_id: &str,
    untraced_since: Timestamp,
) -> Result<Vec<Known>, StoreError> {
    // Must come before the spending is read, which then includes what is traced in between.
    let untraced = traces::untraced_since(connection, untraced_since).await?;
    let rows = fetch_all!(connection, Row, OF_ACCOUNT, account_id, AssetId::Native.to_bytes())?;
    let mut found: BTreeMap<(Chain, Address), BTreeMap<AssetId, Held>> = BTreeMap::new();
    let (held, others): (Vec<Row>, Vec<Row>) = rows.into_iter().partition(|row| row.what == "held");
    for row in held.into_iter().chain(others) {
        let chain: Chain = parsed("chain", &row.chain)?;
        let known = found.entry((chain, address(&row.address)?)).or_default();
        let Some((asset, amount)) = row.asset.as_ref().zip(row.amount.as_ref()) else { continue };
        let (asset, amount) = (asset_of(asset)?, amount_of(amount)?);
        let held = match known.entry(asset) {
            Entry::Vacant(entry) => {
                let held = row.held(asset, amount)?;
                let unsearched = untraced.get(&chain).copied().filter(|_| asset == AssetId::Native);
                entry.insert(Held { unsearched, ..held });
                continue;
            }
            Entry::Occupied(entry) => entry.into_mut(),
        };
        let sum = match row.what.as_str() {
            "pending" => &mut held.pending,
            "reserved" => &mut held.reserved,
            _ => &mut held.spent,
        };
        *sum = sum.saturating_add(amount);
    }
    let known = found.into_iter();
    Ok(known.map(|((chain, address), held)| Known { chain, address, held: held.into_values().collect() }).collect())
}

impl Row {
    fn held(&self, asset: AssetId, amount: U256) -> Result<Held, StoreError> {
        let (Some(number), Some(read_us)) = (self.block_number, self.read_us) else {
            return Err(StoreError::inconsistent("balance", "no block is told"));
        };
        Ok(Held {
            asset,
            amount,
            number: uint("block number", number)?,
            hash: self.block_hash.as_ref().map(|bytes| hash("block hash", bytes).map(BlockHash)).transpose()?,
            read_at: Timestamp(read_us),
            pending: U256::ZERO,
            spent: U256::ZERO,
            reserved: U256::ZERO,
            seen_from: self.seen_from.map(|from| uint("block number", from)).transpose()?,
            unsearched: None,
        })
    }
}

impl Reason {
    /// All, in the order in which they are read.
    pub const ALL: [Reason; 3] = [Reason::Added, Reason::TakenBack, Reason::Listed];

    const fn name(self) -> &'static str {
        match self {
            Reason::Added => "added",
            Reason::TakenBack => "taken_back",
            Reason::Listed => "listed",
        }
    }
}

fn address(bytes: &[u8]) -> Result<Address, StoreError> {
    Address::from_bytes(bytes).map_err(|error| StoreError::inconsistent("watched address", error))
}

fn asset_of(bytes: &[u8]) -> Result<AssetId, StoreError> {
    AssetId::from_bytes(bytes).map_err(|error| StoreError::inconsistent("asset", error))
}

fn addresses(rows: Vec<(Vec<u8>,)>) -> Result<Vec<Address>, StoreError> {
    rows.iter().map(|(bytes,)| address(bytes)).collect()
}
