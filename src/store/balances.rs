//! What watched addresses held at final blocks, and whose holdings are to be read.
//!
//! Promises: whatever is recorded to have moved queues its address (`moved`), and an address that is added does
//! ([`first`]); what was read never takes the place of what is true of a later block. No line of an account reads as zero
//! because it was never read: what is not known is not in [`Known::held`].

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use landfall_chain::{Address, AssetId, BlockHash, Chain, Proof, U256};
use sqlx::FromRow;

use crate::balance::Held;
use crate::store::deposits::{amount_bytes, amount_of};
use crate::store::sql::{execute, fetch_all, statements};
use crate::store::{Connection, StoreError, Tx, hash, int, parsed, uint};
use crate::time::Timestamp;

/// What is known of one address of an account.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Known {
    pub chain: Chain,
    pub address: Address,
    /// For each asset that was ever read of it.
    pub held: Vec<Held>,
}

/// A watched address and the assets that are known of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Watched {
    pub seq: u64,
    pub address: Address,
    pub assets: Vec<AssetId>,
}

/// What was read of an address.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'a> {
    pub address: &'a Address,
    pub number: u64,
    pub hash: Option<BlockHash>,
    pub proof: Proof,
    pub amounts: &'a [(AssetId, U256)],
}

statements! {
    FIRST = "INSERT INTO balances_due (chain, address, block_number, queued_us) VALUES ($1, $2, 0, $3) \
             ON CONFLICT (chain, address, block_number) DO NOTHING";
    // Where the address was read at this block or a later one, what moved is in it already.
    MOVED = "INSERT INTO balances_due (chain, address, block_number, queued_us) SELECT w.chain, w.address, \
             CAST($3 AS BIGINT), 0 FROM watched_addresses AS w WHERE w.chain = $1 AND w.address = $2 AND NOT EXISTS \
             (SELECT 1 FROM balances AS b WHERE b.chain = $1 AND b.address = $2 AND b.block_number >= $3) \
             ON CONFLICT (chain, address, block_number) DO NOTHING";
    NEVER_READ = "SELECT address FROM balances_due WHERE chain = $1 AND block_number = 0 ORDER BY queued_us DESC LIMIT $2";
    MOVED_BY = "SELECT address FROM balances_due WHERE chain = $1 AND block_number > 0 AND block_number <= $2 \
                ORDER BY block_number DESC LIMIT $3";
    OLDEST = "SELECT b.address FROM balances AS b WHERE b.chain = $1 AND b.read_us < $2 AND NOT EXISTS \
              (SELECT 1 FROM balances_due AS due WHERE due.chain = b.chain AND due.address = b.address) \
              ORDER BY b.read_us LIMIT $3";
    PAGE = "SELECT page.seq, page.address, b.asset FROM (SELECT chain, seq, address FROM watched_addresses \
            WHERE chain = $1 AND seq < $2 ORDER BY seq DESC LIMIT $3) AS page \
            LEFT JOIN balances AS b ON b.chain = page.chain AND b.address = page.address ORDER BY page.seq DESC";
    // A later block's amount stays.
    SET = "INSERT INTO balances (chain, address, asset, amount, amount_text, block_number, block_hash, proof, read_us) \
           VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (chain, address, asset) DO UPDATE SET \
           amount = excluded.amount, amount_text = excluded.amount_text, block_number = excluded.block_number, \
           block_hash = excluded.block_hash, proof = excluded.proof, read_us = excluded.read_us \
           WHERE balances.block_number <= excluded.block_number";
    DONE = "DELETE FROM balances_due WHERE chain = $1 AND address = $2 AND block_number <= $3";
    QUEUE_ABOVE = "INSERT INTO balances_due (chain, address, block_number, queued_us) SELECT DISTINCT chain, address, 0, 0 \
                   FROM balances WHERE chain = $1 AND block_number > $2 ON CONFLICT (chain, address, block_number) DO NOTHING";
    FORGET_ABOVE = "DELETE FROM balances WHERE chain = $1 AND block_number > $2";
    // One statement, so that what was spent is counted from the very block that the amount is of. CROSS JOIN, because SQLite's
    // planner would walk over all that an address ever spent.
    OF_ACCOUNT = "SELECT 'held' AS what, w.chain, w.address, b.asset, b.amount, b.block_number, b.block_hash, b.read_us \
                  FROM watched_addresses AS w LEFT JOIN balances AS b ON b.chain = w.chain AND b.address = w.address \
                  WHERE w.account_id = $1 \
                  UNION ALL SELECT 'spent', w.chain, w.address, b.asset, d.amount, b.block_number, b.block_hash, b.read_us \
                  FROM watched_addresses AS w CROSS JOIN balances AS b CROSS JOIN debits AS d CROSS JOIN blocks \
                  WHERE w.account_id = $1 AND b.chain = w.chain AND b.address = w.address \
                  AND d.chain = b.chain AND d.sender = b.address AND d.block_number > b.block_number AND d.asset = b.asset \
                  AND blocks.chain = d.chain AND blocks.hash = d.block_hash AND blocks.canonical \
                  UNION ALL SELECT 'spent', w.chain, w.address, b.asset, f.amount, b.block_number, b.block_hash, b.read_us \
                  FROM watched_addresses AS w CROSS JOIN balances AS b CROSS JOIN fees AS f CROSS JOIN blocks \
                  WHERE w.account_id = $1 AND b.chain = w.chain AND b.address = w.address AND b.asset = $2 \
                  AND f.chain = b.chain AND f.payer = b.address AND f.block_number > b.block_number \
                  AND blocks.chain = f.chain AND blocks.hash = f.block_hash AND blocks.canonical \
                  UNION ALL SELECT 'pending', p.chain, p.recipient, p.asset, p.amount, b.block_number, b.block_hash, b.read_us \
                  FROM deposits AS p JOIN balances AS b ON b.chain = p.chain AND b.address = p.recipient AND b.asset = p.asset \
                  WHERE p.account_id = $1 AND p.status = 'PENDING' AND EXISTS \
                  (SELECT 1 FROM inclusions AS i JOIN blocks ON blocks.chain = i.chain AND blocks.hash = i.block_hash \
                  WHERE i.deposit_id = p.id AND blocks.canonical AND i.block_number <= b.block_number)";
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
}

/// An address was added: its holdings are to be read, at whichever block is final.
pub async fn first(tx: &mut Tx, chain: Chain, address: &Address, now: Timestamp) -> Result<(), StoreError> {
    execute!(tx, FIRST, chain.name(), address.as_bytes(), now.0).map(drop)
}

/// Something of `address`, if it is watched, moved in block `number`: its holdings are to be read once that is final.
pub(super) async fn moved(tx: &mut Tx, chain: Chain, address: &Address, number: u64) -> Result<(), StoreError> {
    execute!(tx, MOVED, chain.name(), address.as_bytes(), int(number)).map(drop)
}

/// At most `limit` addresses that were never read, those added last before others.
pub async fn never_read(
    connection: &mut impl Connection,
    chain: Chain,
    limit: u32,
) -> Result<Vec<Address>, StoreError> {
    addresses(fetch_all!(connection, (Vec<u8>,), NEVER_READ, chain.name(), i64::from(limit))?)
}

/// At most `limit` addresses that something moved of, up to the final block `number`, those of the newest blocks before
/// others. One may stand there several times.
pub async fn moved_by(
    connection: &mut impl Connection,
    chain: Chain,
    number: u64,
    limit: u32,
) -> Result<Vec<Address>, StoreError> {
    addresses(fetch_all!(connection, (Vec<u8>,), MOVED_BY, chain.name(), int(number), i64::from(limit))?)
}

/// At most `limit` lines that were read before `before` and are not due, the oldest before others: their addresses.
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
    let rows = fetch_all!(connection, (i64, Vec<u8>, Option<Vec<u8>>), PAGE, chain.name(), int(seq), i64::from(limit))?;
    let mut found: Vec<Watched> = Vec::new();
    for (seq, bytes, asset) in rows {
        let (seq, asset) = (uint("seq", seq)?, asset.map(|bytes| asset_of(&bytes)).transpose()?);
        match found.last_mut().filter(|last| last.seq == seq) {
            Some(last) => last.assets.extend(asset),
            None => found.push(Watched { seq, address: address(&bytes)?, assets: asset.into_iter().collect() }),
        }
    }
    Ok(found)
}

/// Records what was read of an address, all assets of it, and that it is no longer due. Where a later block was read
/// already, that stays.
pub async fn set(tx: &mut Tx, chain: Chain, reading: &Reading<'_>, now: Timestamp) -> Result<(), StoreError> {
    let (who, number) = (reading.address.as_bytes(), int(reading.number));
    for (asset, amount) in reading.amounts {
        execute!(
            tx,
            SET,
            chain.name(),
            who,
            asset.to_bytes(),
            amount_bytes(amount),
            amount.to_string(),
            number,
            reading.hash.as_ref().map(|hash| &hash.0[..]),
            reading.proof.name(),
            now.0,
        )?;
    }
    execute!(tx, DONE, chain.name(), who, number).map(drop)
}

/// An address that is due up to block `number` could not be read although others were: it comes after all others, and after
/// those that came to this before.
pub async fn postpone(
    tx: &mut Tx,
    chain: Chain,
    address: &Address,
    number: u64,
    now: Timestamp,
) -> Result<(), StoreError> {
    execute!(tx, DONE, chain.name(), address.as_bytes(), int(number))?;
    execute!(tx, FIRST, chain.name(), address.as_bytes(), now.0.saturating_neg()).map(drop)
}

/// What was read of blocks above `number`, which are not final after all, is forgotten, and read again.
pub async fn take_back(tx: &mut Tx, chain: Chain, number: u64) -> Result<(), StoreError> {
    execute!(tx, QUEUE_ABOVE, chain.name(), int(number))?;
    execute!(tx, FORGET_ABOVE, chain.name(), int(number)).map(drop)
}

/// What is known of each address of an account, by chain.
pub async fn of_account(connection: &mut impl Connection, account_id: &str) -> Result<Vec<Known>, StoreError> {
    let rows = fetch_all!(connection, Row, OF_ACCOUNT, account_id, AssetId::Native.to_bytes())?;
    let mut found: BTreeMap<(Chain, Address), BTreeMap<AssetId, Held>> = BTreeMap::new();
    let (held, others): (Vec<Row>, Vec<Row>) = rows.into_iter().partition(|row| row.what == "held");
    for row in held.into_iter().chain(others) {
        let known = found.entry((parsed("chain", &row.chain)?, address(&row.address)?)).or_default();
        let Some((asset, amount)) = row.asset.as_ref().zip(row.amount.as_ref()) else { continue };
        let (asset, amount) = (asset_of(asset)?, amount_of(amount)?);
        let held = match known.entry(asset) {
            Entry::Vacant(entry) => {
                entry.insert(row.held(asset, amount)?);
                continue;
            }
            Entry::Occupied(entry) => entry.into_mut(),
        };
        let sum = if row.what == "pending" { &mut held.pending } else { &mut held.spent };
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
        })
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
