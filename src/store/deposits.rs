//! Deposits and the blocks that they were seen in.
//!
//! A status changes only if the row still has the old one; CONFIRMED is never left.

use landfall_chain::{Address, AssetId, BlockHash, BlockRef, Chain, Lane, TxId, TxLife, TxRef, U256};
use sqlx_macros::FromRow;

use crate::deposit::{Deposit, DepositId, DepositStatus, LegHash};
use crate::store::error::expect_one;
use crate::store::sql::{execute, fetch_all, fetch_optional, statements};
use crate::store::{Connection, ORGANIZATION, StoreError, Tx, balances, deposit_pages, hash, int, parsed, uint};
use crate::time::Timestamp;

/// Which deposits a list shows, newest first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DepositFilter {
    pub account_id: Option<String>,
    pub chain: Option<Chain>,
    pub symbol: Option<String>,
    /// On `created_at`, inclusive.
    pub start: Option<Timestamp>,
    /// On `created_at`, inclusive.
    pub end: Option<Timestamp>,
    /// Only deposits after this one in the list.
    pub after: Option<(Timestamp, DepositId)>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settleable {
    pub deposit: Deposit,
    pub block: BlockRef,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fits {
    pub asset: AssetId,
    /// In base units, both inclusive.
    pub least: U256,
    pub most: U256,
}

/// A PENDING deposit in no canonical block, although the height at which it was seen is final.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Missing {
    pub deposit: Deposit,
    /// Since when it has been looked for.
    pub since: Option<Timestamp>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SeenIn {
    pub block: BlockRef,
    pub lane: Lane,
    pub canonical: bool,
    /// The proof of the block, by the name of its [`landfall_chain::Proof`].
    pub proof: String,
}

statements! {
    INSERT = "INSERT INTO deposits (id, leg_hash, organization_id, account_id, source_account_id, chain, tx_id, tx_life, \
              asset, sender, sender_rule, recipient, amount, amount_text, nth, symbol, decimals, status, created_us, is_self_transfer) \
              VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)";
    BY_LEG = "SELECT * FROM deposits WHERE leg_hash = $1";
    BY_ID = "SELECT * FROM deposits WHERE id = $1 AND organization_id = $2";
    SET_STATUS = "UPDATE deposits SET status = $1, confirmed_us = $2, missing_since_us = NULL, \
                  missing_number = NULL WHERE id = $3 AND status = $4 AND status <> 'CONFIRMED'";
    SET_SENDER = "UPDATE deposits SET sender = $1, sender_rule = $2, source_account_id = $3, is_self_transfer = $5 WHERE id = $4 AND status <> 'CONFIRMED'";
    INCLUDE = "INSERT INTO inclusions (deposit_id, chain, block_hash, block_number, lane, recipient) VALUES ($1, $2, $3, $4, $5, $6) \
               ON CONFLICT (deposit_id, block_hash) DO NOTHING";
    EXCLUDE = "DELETE FROM inclusions WHERE deposit_id = $1 AND block_hash = $2 AND lane = 'roots'";
    FOUND = "UPDATE deposits SET missing_since_us = NULL, missing_number = NULL WHERE id = $1 AND missing_number IS NOT NULL";
    MISS = "UPDATE deposits SET missing_since_us = COALESCE(missing_since_us, $1), missing_number = $2 WHERE id = $3";
    WITHHELD = "UPDATE deposits SET missing_since_us = NULL, missing_number = $1 WHERE id = $2";
    // Without those that wait for a person: their transaction would be credited with more than it paid. Also without
    // those of an asset that is held, or that have other decimals than the chain reported: a process with another list
    // may have recorded them. A block is found by its hash. By the range, which is also the inclusion's, PostgreSQL
    // would read all blocks for each deposit while it has no statistics.
    SETTLEABLE = "SELECT deposits.*, blocks.number AS block_number, blocks.hash AS block_hash \
                  FROM deposits JOIN inclusions ON inclusions.deposit_id = deposits.id \
                  JOIN blocks ON blocks.chain = inclusions.chain AND blocks.hash = inclusions.block_hash \
                  WHERE deposits.chain = $1 AND deposits.status = 'PENDING' AND inclusions.lane = 'roots' \
                  AND blocks.canonical AND inclusions.block_number >= $4 AND inclusions.block_number <= $2 \
                  AND NOT EXISTS (SELECT 1 FROM asset_facts AS f \
                  WHERE f.chain = deposits.chain AND f.asset = deposits.asset \
                  AND (f.is_held OR f.decimals <> deposits.decimals)) \
                  AND NOT EXISTS (SELECT 1 FROM incidents WHERE incidents.deposit_id = deposits.id AND incidents.kind = 'over_credited' \
                  AND incidents.resolved_us IS NULL) ORDER BY blocks.number, deposits.id LIMIT $3";
    // For a tier: one asset, from the least amount that fits to the highest, above what is final for all.
    SETTLEABLE_BY_TIER = "SELECT deposits.*, blocks.number AS block_number, blocks.hash AS block_hash \
                  FROM deposits JOIN inclusions ON inclusions.deposit_id = deposits.id \
                  JOIN blocks ON blocks.chain = inclusions.chain AND blocks.hash = inclusions.block_hash \
                  WHERE deposits.chain = $1 AND deposits.status = 'PENDING' AND deposits.asset = $2 \
                  AND deposits.amount >= $3 AND deposits.amount <= $4 AND inclusions.lane = 'roots' \
                  AND blocks.canonical AND inclusions.block_number > $5 AND inclusions.block_number <= $6 \
                  AND NOT EXISTS (SELECT 1 FROM asset_facts AS f \
                  WHERE f.chain = deposits.chain AND f.asset = deposits.asset \
                  AND (f.is_held OR f.decimals <> deposits.decimals)) \
                  AND NOT EXISTS (SELECT 1 FROM incidents WHERE incidents.deposit_id = deposits.id AND incidents.kind = 'over_credited' \
                  AND incidents.resolved_us IS NULL) ORDER BY blocks.number, deposits.id LIMIT $7";
    PENDING_OF = "SELECT 1 FROM deposits WHERE chain = $1 AND status = 'PENDING' AND asset = $2 ORDER BY id LIMIT 1";
    SET_DECIMALS = "UPDATE deposits SET decimals = $1 WHERE chain = $2 AND status = 'PENDING' AND asset = $3 AND decimals <> $1";
    MISSING = "SELECT * FROM deposits WHERE chain = $1 AND status = 'PENDING' \
               AND (missing_number IS NULL OR missing_number < $2) AND (CAST($3 AS TEXT) IS NULL OR id = $3) AND $5 = EXISTS \
               (SELECT 1 FROM inclusions WHERE inclusions.deposit_id = deposits.id AND inclusions.lane = 'traces') AND NOT EXISTS \
               (SELECT 1 FROM inclusions JOIN blocks ON blocks.chain = inclusions.chain AND blocks.hash = inclusions.block_hash \
                WHERE inclusions.deposit_id = deposits.id AND (blocks.canonical OR blocks.number > $2)) \
               ORDER BY COALESCE(missing_number, -1), COALESCE(missing_since_us, 0), id LIMIT $4";
    IN_BLOCK = "SELECT deposits.* FROM inclusions JOIN deposits ON deposits.id = inclusions.deposit_id \
                WHERE inclusions.chain = $1 AND inclusions.block_hash = $2 AND inclusions.lane = $3 ORDER BY deposits.id";
    // Without those in no canonical block whose incident is resolved: their credit was undone elsewhere.
    CONFIRMED_OF = "SELECT amount FROM deposits \
                    WHERE chain = $1 AND tx_id = $2 AND asset = $3 AND recipient = $4 AND status = 'CONFIRMED' \
                    AND ($5 OR NOT EXISTS (SELECT 1 FROM inclusions \
                    JOIN blocks ON blocks.chain = inclusions.chain AND blocks.hash = inclusions.block_hash \
                    WHERE inclusions.deposit_id = deposits.id AND inclusions.lane = 'traces' AND blocks.canonical)) \
                    AND (EXISTS (SELECT 1 FROM inclusions \
                    JOIN blocks ON blocks.chain = inclusions.chain AND blocks.hash = inclusions.block_hash \
                    WHERE inclusions.deposit_id = deposits.id AND blocks.canonical) \
                    OR NOT EXISTS (SELECT 1 FROM incidents WHERE incidents.deposit_id = deposits.id AND incidents.kind = 'over_credited') \
                    OR EXISTS (SELECT 1 FROM incidents WHERE incidents.deposit_id = deposits.id AND incidents.kind = 'over_credited' \
                    AND incidents.resolved_us IS NULL))";
    OF_TX = "SELECT * FROM deposits WHERE chain = $1 AND tx_id = $2 ORDER BY id";
    // The canonical block first, if there is one.
    SEEN_IN = "SELECT blocks.number, blocks.hash, inclusions.lane, blocks.canonical, blocks.proof FROM inclusions \
               JOIN blocks ON blocks.chain = inclusions.chain AND blocks.hash = inclusions.block_hash \
               WHERE inclusions.deposit_id = $1 ORDER BY blocks.canonical DESC, blocks.number DESC LIMIT 1";
    // Begins at the newest blocks: there are few above a fork point, but any number of CONFIRMED deposits. SQLite keeps
    // the order of a CROSS JOIN.
    CONFIRMED_ABOVE = "SELECT COUNT(DISTINCT deposits.id), MAX(blocks.number) FROM blocks CROSS JOIN inclusions \
                       JOIN deposits ON deposits.id = inclusions.deposit_id AND deposits.status = 'CONFIRMED' \
                       WHERE inclusions.chain = blocks.chain AND inclusions.block_hash = blocks.hash \
                       AND blocks.chain = $1 AND blocks.canonical AND blocks.number > $2";
    CONFIRMED_IN = "SELECT deposits.*, blocks.number AS block_number, blocks.hash AS block_hash FROM blocks CROSS JOIN inclusions \
                    JOIN deposits ON deposits.id = inclusions.deposit_id AND deposits.status = 'CONFIRMED' \
                    WHERE inclusions.chain = blocks.chain AND inclusions.block_hash = blocks.hash \
                    AND blocks.chain = $1 AND blocks.canonical AND blocks.number > $2 ORDER BY blocks.number, deposits.id";
    LIST = "SELECT * FROM deposits WHERE organization_id = $1 AND NOT is_self_transfer \
            AND (CAST($2 AS TEXT) IS NULL OR chain = $2) AND (CAST($3 AS TEXT) IS NULL OR symbol = $3) \
            AND created_us >= $4 AND (created_us, id" [" COLLATE \"C\""] ") < ($5, $6) \
            ORDER BY created_us DESC, id" [" COLLATE \"C\""] " DESC LIMIT $7";
}

#[derive(FromRow)]
pub(super) struct DepositRow {
    id: String,
    leg_hash: Vec<u8>,
    account_id: String,
    source_account_id: Option<String>,
    chain: String,
    tx_id: Vec<u8>,
    tx_life: Vec<u8>,
    asset: Vec<u8>,
    sender: Vec<u8>,
    sender_rule: String,
    recipient: Vec<u8>,
    amount: Vec<u8>,
    nth: i64,
    symbol: String,
    decimals: i64,
    status: String,
    created_us: i64,
    confirmed_us: Option<i64>,
    is_self_transfer: bool,
    missing_since_us: Option<i64>,
}

#[derive(FromRow)]
pub(super) struct SettleableRow {
    #[sqlx(flatten)]
    deposit: DepositRow,
    block_number: i64,
    block_hash: Vec<u8>,
}

pub async fn insert(tx: &mut Tx, deposit: &Deposit) -> Result<(), StoreError> {
    let Deposit { id, leg_hash, account_id, source_account_id, chain, tx: of, asset, .. } = deposit;
    let inserted = execute!(
        tx,
        INSERT,
        id.to_string(),
        &leg_hash.0[..],
        ORGANIZATION,
        account_id,
        source_account_id,
        chain.name(),
        of.id.as_bytes(),
        of.life.to_bytes(),
        asset.to_bytes(),
        deposit.sender.as_bytes(),
        deposit.sender_rule.name(),
        deposit.recipient.as_bytes(),
        amount_bytes(&deposit.amount),
        deposit.amount.to_string(),
        i64::from(deposit.nth),
        &deposit.symbol,
        i64::from(deposit.decimals),
        deposit.status.name(),
        deposit.created_at.0,
        deposit.is_self_transfer,
    )?;
    expect_one("insert deposit", inserted)
}

/// Writes the status and `confirmed_at` of `deposit`, which had the status `from`.
pub async fn set_status(tx: &mut Tx, deposit: &Deposit, from: DepositStatus) -> Result<(), StoreError> {
    let confirmed = deposit.confirmed_at.map(|at| at.0);
    let set = execute!(tx, SET_STATUS, deposit.status.name(), confirmed, deposit.id.to_string(), from.name())?;
    expect_one("set deposit status", set)
}

/// Writes who paid and whether that is one of our accounts, as the leg that counts now shows. A CONFIRMED deposit keeps
/// the sender that it was confirmed with.
pub async fn set_sender(tx: &mut Tx, deposit: &Deposit) -> Result<(), StoreError> {
    let Deposit { sender, sender_rule, source_account_id, id, is_self_transfer, .. } = deposit;
    let (sender, rule, id) = (sender.as_bytes(), sender_rule.name(), id.to_string());
    let set = execute!(tx, SET_SENDER, sender, rule, source_account_id, id, is_self_transfer)?;
    expect_one("set who paid a deposit", set)
}

/// Records that this lane saw the deposit in `block`, and that it is no longer missing.
pub async fn include(tx: &mut Tx, deposit: &Deposit, block: &BlockRef, lane: Lane) -> Result<(), StoreError> {
    let id = deposit.id.to_string();
    let (hash, number, to) = (&block.hash.0[..], int(block.number), deposit.recipient.as_bytes());
    execute!(tx, INCLUDE, &id, deposit.chain.name(), hash, number, lane.name(), to)?;
    balances::moved(tx, deposit.chain, &deposit.recipient, &deposit.asset, block.number).await?;
    execute!(tx, FOUND, &id).map(drop)
}

/// Removes the record that the roots' lane saw the deposit in `block`.
pub async fn exclude(tx: &mut Tx, deposit: &Deposit, block: &BlockRef) -> Result<(), StoreError> {
    execute!(tx, EXCLUDE, deposit.id.to_string(), &block.hash.0[..])?;
    balances::moved(tx, deposit.chain, &deposit.recipient, &deposit.asset, block.number).await
}

/// Records that the deposit was searched for at the final block `number`, and since when it has been missing; an
/// earlier time stays.
pub async fn miss(tx: &mut Tx, id: DepositId, number: u64, since: Timestamp) -> Result<(), StoreError> {
    let missed = execute!(tx, MISS, since.0, int(number), id.to_string())?;
    expect_one("record a missing deposit", missed)
}

/// Records that the deposit was searched for at the final block `number`, and that the block which may hold it could
/// not be read. This time does not count as missing.
pub async fn withhold(tx: &mut Tx, id: DepositId, number: u64) -> Result<(), StoreError> {
    let withheld = execute!(tx, WITHHELD, int(number), id.to_string())?;
    expect_one("record a withheld deposit", withheld)
}

pub async fn by_leg(connection: &mut impl Connection, leg: &LegHash) -> Result<Option<Deposit>, StoreError> {
    let row = fetch_optional!(connection, DepositRow, BY_LEG, &leg.0[..])?;
    row.map(Deposit::try_from).transpose()
}

/// The deposit with this id, of our organization.
pub async fn by_id(connection: &mut impl Connection, id: DepositId) -> Result<Option<Deposit>, StoreError> {
    let row = fetch_optional!(connection, DepositRow, BY_ID, id.to_string(), ORGANIZATION)?;
    row.map(Deposit::try_from).transpose()
}

/// PENDING deposits that the roots showed in canonical blocks `from` to `through`, both inclusive; at most `limit`,
/// lowest blocks first.
pub async fn settleable(
    connection: &mut impl Connection,
    chain: Chain,
    (from, through): (u64, u64),
    limit: u32,
) -> Result<Vec<Settleable>, StoreError> {
    let (through, limit) = (int(through), i64::from(limit));
    let rows = fetch_all!(connection, SettleableRow, SETTLEABLE, chain.name(), through, limit, int(from))?;
    rows.into_iter().map(Settleable::try_from).collect()
}

pub async fn is_any_pending(
    connection: &mut impl Connection,
    chain: Chain,
    asset: &AssetId,
) -> Result<bool, StoreError> {
    Ok(fetch_optional!(connection, (i32,), PENDING_OF, chain.name(), asset.to_bytes())?.is_some())
}

/// Corrects the recorded decimals of PENDING deposits of this asset.
pub async fn set_decimals(tx: &mut Tx, chain: Chain, asset: &AssetId, decimals: u8) -> Result<(), StoreError> {
    execute!(tx, SET_DECIMALS, i64::from(decimals), chain.name(), asset.to_bytes()).map(drop)
}

/// PENDING deposits that fit `tier`, in canonical blocks above `above` up to `through`, inclusive; at most `limit`,
/// lowest blocks first.
pub async fn settleable_by_tier(
    connection: &mut impl Connection,
    chain: Chain,
    tier: &Fits,
    (above, through): (u64, u64),
    limit: u32,
) -> Result<Vec<Settleable>, StoreError> {
    let Fits { asset, least, most } = tier;
    let rows = fetch_all!(
        connection,
        SettleableRow,
        SETTLEABLE_BY_TIER,
        chain.name(),
        asset.to_bytes(),
        amount_bytes(least),
        amount_bytes(most),
        int(above),
        int(through),
        i64::from(limit)
    )?;
    rows.into_iter().map(Settleable::try_from).collect()
}

/// PENDING deposits that are in no canonical block, were never seen above the final block `through`, and were not
/// searched for at it yet. The lane of the traces has those that a trace ever showed, the lane of the roots all others.
/// Returns at most `limit`, in this order:
/// 1. never searched for;
/// 2. not searched for longest;
/// 3. missing longest.
pub async fn missing(
    connection: &mut impl Connection,
    chain: Chain,
    lane: Lane,
    through: u64,
    limit: u32,
) -> Result<Vec<Missing>, StoreError> {
    missing_rows(connection, chain, lane, through, None, limit).await
}

/// Whether the deposit is still one of those.
pub async fn is_missing(
    connection: &mut impl Connection,
    deposit: &Deposit,
    lane: Lane,
    through: u64,
) -> Result<bool, StoreError> {
    let rows = missing_rows(connection, deposit.chain, lane, through, Some(deposit.id.to_string()), 1).await?;
    Ok(!rows.is_empty())
}

async fn missing_rows(
    connection: &mut impl Connection,
    chain: Chain,
    lane: Lane,
    through: u64,
    id: Option<String>,
    limit: u32,
) -> Result<Vec<Missing>, StoreError> {
    let (limit, of_traces) = (i64::from(limit), lane == Lane::Traces);
    let rows = fetch_all!(connection, DepositRow, MISSING, chain.name(), int(through), id, limit, of_traces)?;
    let missing = rows.into_iter().map(|row| {
        let since = row.missing_since_us.map(Timestamp);
        Ok(Missing { deposit: row.try_into()?, since })
    });
    missing.collect()
}

/// The deposits that a block showed in this lane.
pub async fn in_block(
    connection: &mut impl Connection,
    chain: Chain,
    block: &BlockHash,
    lane: Lane,
) -> Result<Vec<Deposit>, StoreError> {
    let rows = fetch_all!(connection, DepositRow, IN_BLOCK, chain.name(), &block.0[..], lane.name())?;
    rows.into_iter().map(Deposit::try_from).collect()
}

/// The CONFIRMED amounts among what `deposit`'s transaction paid to its recipient in its asset. For the lane of the
/// traces all count; for that of the roots, those that no trace shows.
pub async fn confirmed_of(tx: &mut Tx, deposit: &Deposit, lane: Lane) -> Result<Vec<U256>, StoreError> {
    let Deposit { chain, tx: of, asset, recipient, .. } = deposit;
    let rows = fetch_all!(
        tx,
        (Vec<u8>,),
        CONFIRMED_OF,
        chain.name(),
        of.id.as_bytes(),
        asset.to_bytes(),
        recipient.as_bytes(),
        lane == Lane::Traces
    )?;
    rows.into_iter().map(|(bytes,)| amount_of(&bytes)).collect()
}

pub async fn of_tx(connection: &mut impl Connection, chain: Chain, tx: &TxId) -> Result<Vec<Deposit>, StoreError> {
    let rows = fetch_all!(connection, DepositRow, OF_TX, chain.name(), tx.as_bytes())?;
    rows.into_iter().map(Deposit::try_from).collect()
}

/// The newest block on record that the deposit was seen in, and by which lane; a canonical block is preferred.
pub async fn seen_in(connection: &mut impl Connection, id: DepositId) -> Result<Option<SeenIn>, StoreError> {
    let row = fetch_optional!(connection, (i64, Vec<u8>, String, bool, String), SEEN_IN, id.to_string())?;
    row.map(|(number, bytes, lane, canonical, proof)| {
        let block = BlockRef { number: uint("block number", number)?, hash: BlockHash(hash("block hash", &bytes)?) };
        Ok(SeenIn { block, lane: self::lane(&lane)?, canonical, proof })
    })
    .transpose()
}

/// How many CONFIRMED deposits are in canonical blocks above `number`, and the highest of these blocks.
pub async fn confirmed_above(
    connection: &mut impl Connection,
    chain: Chain,
    number: u64,
) -> Result<(u64, Option<u64>), StoreError> {
    let row = fetch_optional!(connection, (i64, Option<i64>), CONFIRMED_ABOVE, chain.name(), int(number))?;
    let (count, highest) = row.unwrap_or_default();
    Ok((uint("count", count)?, highest.map(|number| uint("block number", number)).transpose()?))
}

/// The CONFIRMED deposits in canonical blocks above `number`, each with its block, lowest first.
pub async fn confirmed_in(
    connection: &mut impl Connection,
    chain: Chain,
    number: u64,
) -> Result<Vec<Settleable>, StoreError> {
    let rows = fetch_all!(connection, SettleableRow, CONFIRMED_IN, chain.name(), int(number))?;
    rows.into_iter().map(Settleable::try_from).collect()
}

/// At most `limit` deposits of our organization, newest first.
pub async fn list(
    connection: &mut impl Connection,
    filter: &DepositFilter,
    limit: u32,
) -> Result<Vec<Deposit>, StoreError> {
    if let Some(account) = filter.account_id.as_deref() {
        return deposit_pages::of_account(connection, account, filter, limit).await;
    }
    let (chain, symbol) = (filter.chain.map(Chain::name), filter.symbol.as_deref());
    let (start, (before, before_id), limit) = (filter.start(), filter.before(), i64::from(limit));
    let rows = fetch_all!(connection, DepositRow, LIST, ORGANIZATION, chain, symbol, start, before, before_id, limit)?;
    rows.into_iter().map(Deposit::try_from).collect()
}

impl DepositFilter {
    /// The first time, inclusive.
    pub(super) fn start(&self) -> i64 {
        self.start.map_or(i64::MIN, |at| at.0)
    }

    /// All deposits of the page are before this time and id: one bound for both the place in the list and the end time.
    /// With two bounds SQLite would begin at one and walk, even if the other is a million deposits below. By its byte
    /// "g" sorts after every hexadecimal digit.
    pub(super) fn before(&self) -> (i64, String) {
        let end = (self.end.map_or(i64::MAX, |at| at.0), "g".to_owned());
        match self.after {
            Some((at, id)) => end.min((at.0, id.to_string())),
            None => end,
        }
    }
}

impl TryFrom<DepositRow> for Deposit {
    type Error = StoreError;

    fn try_from(row: DepositRow) -> Result<Self, StoreError> {
        let id = TxId::from_bytes(&row.tx_id).map_err(|error| StoreError::inconsistent("tx_id", error))?;
        let life = TxLife::from_bytes(&row.tx_life).map_err(|error| StoreError::inconsistent("tx_life", error))?;
        let asset = AssetId::from_bytes(&row.asset).map_err(|error| StoreError::inconsistent("asset", error))?;
        Ok(Deposit {
            id: parsed("deposit id", &row.id)?,
            leg_hash: LegHash(hash("leg hash", &row.leg_hash)?),
            account_id: row.account_id,
            source_account_id: row.source_account_id,
            chain: parsed("chain", &row.chain)?,
            tx: TxRef { id, life },
            asset,
            sender: address("sender", &row.sender)?,
            sender_rule: parsed("sender rule", &row.sender_rule)?,
            recipient: address("recipient", &row.recipient)?,
            amount: amount_of(&row.amount)?,
            nth: uint("nth", row.nth)?,
            symbol: row.symbol,
            decimals: uint("decimals", row.decimals)?,
            status: parsed("status", &row.status)?,
            created_at: Timestamp(row.created_us),
            confirmed_at: row.confirmed_us.map(Timestamp),
            is_self_transfer: row.is_self_transfer,
        })
    }
}

fn lane(name: &str) -> Result<Lane, StoreError> {
    let known = [Lane::Block, Lane::Traces].into_iter().find(|lane| lane.name() == name);
    known.ok_or_else(|| StoreError::inconsistent("lane", name))
}

impl TryFrom<SettleableRow> for Settleable {
    type Error = StoreError;

    fn try_from(row: SettleableRow) -> Result<Self, StoreError> {
        let number = uint("block number", row.block_number)?;
        let block = BlockRef { number, hash: BlockHash(hash("block hash", &row.block_hash)?) };
        Ok(Settleable { deposit: row.deposit.try_into()?, block })
    }
}

pub(super) fn address(what: &'static str, bytes: &[u8]) -> Result<Address, StoreError> {
    Address::from_bytes(bytes).map_err(|error| StoreError::inconsistent(what, error))
}

pub(super) fn amount_bytes(amount: &U256) -> Vec<u8> {
    amount.to_be_bytes::<32>().to_vec()
}

pub(super) fn amount_of(bytes: &[u8]) -> Result<U256, StoreError> {
    hash("amount", bytes).map(U256::from_be_bytes)
}
