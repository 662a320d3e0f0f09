//! What came to watched owners and is no deposit. Examples: a payment into an account of theirs that is not the
//! associated one, or of a mint under another program; rent and wrapped SOL of their own that came back. And what came to
//! sponsors of the native currency.
//!
//! Each is recorded once for a block, however often it is read. It counts if its block is canonical. Together with
//! `deposits` and `movements` it makes the books: what an owner has is what came, less what went.

use std::ops::RangeInclusive;

use landfall_chain::{Address, AssetId, BlockHash, BlockRef, Chain, Rejected, SenderRule, TxId, U256};
use sqlx_macros::FromRow;

use crate::deposit::LegHash;
use crate::store::deposits::{address, amount_bytes, amount_of};
use crate::store::sql::{execute, fetch_all, statements};
use crate::store::{Connection, StoreError, Tx, balances, hash, int, parsed, uint};
use crate::time::Timestamp;

/// What arrived, as it is on record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Arrival {
    pub chain: Chain,
    pub block: BlockRef,
    pub at: Timestamp,
    pub is_final: bool,
    pub leg_hash: LegHash,
    /// The code of the verdict.
    pub reason: String,
    pub tx: TxId,
    pub asset: AssetId,
    pub sender: Address,
    pub sender_rule: SenderRule,
    pub recipient: Address,
    /// Base units.
    pub amount: U256,
    /// The account that owns the recipient.
    pub account_id: Option<String>,
}

statements! {
    INSERT = "INSERT INTO unattributed (chain, block_hash, block_number, leg_hash, reason, tx_id, asset, sender, sender_rule, \
              recipient, amount, amount_text) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) \
              ON CONFLICT (chain, block_hash, leg_hash, reason) DO NOTHING";
    IN_BLOCK = "SELECT leg_hash, reason, tx_id, asset, recipient FROM unattributed WHERE chain = $1 AND block_hash = $2 \
                ORDER BY leg_hash, reason";
    REMOVE = "DELETE FROM unattributed WHERE chain = $1 AND block_hash = $2 AND leg_hash = $3 AND reason = $4";
    ARRIVED = "SELECT unattributed.amount FROM unattributed \
               JOIN blocks ON blocks.chain = unattributed.chain AND blocks.hash = unattributed.block_hash \
               WHERE unattributed.chain = $1 AND unattributed.recipient = $2 AND unattributed.asset = $3 \
               AND unattributed.block_number >= $4 AND unattributed.block_number <= $5 AND blocks.canonical";
    // Own rent and own SOL that came back, and what came to sponsors, are for the books; nobody has to check them.
    LIST = "SELECT unattributed.*, blocks.time_us, watched_addresses.account_id, \
            COALESCE(cursors.final_number >= unattributed.block_number, false) AS is_final FROM unattributed \
            JOIN blocks ON blocks.chain = unattributed.chain AND blocks.hash = unattributed.block_hash \
            JOIN cursors ON cursors.chain = unattributed.chain \
            LEFT JOIN watched_addresses ON watched_addresses.chain = unattributed.chain \
            AND watched_addresses.address = unattributed.recipient \
            WHERE unattributed.chain = $1 AND blocks.canonical \
            AND ($2 OR unattributed.reason NOT IN ('rent_refund', 'self_transfer', 'own_gas_topup')) \
            AND (unattributed.block_number, unattributed.leg_hash, unattributed.reason) < ($3, $4, $5) \
            ORDER BY unattributed.block_number DESC, unattributed.leg_hash DESC, unattributed.reason DESC LIMIT $6";
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Arrived {
    pub leg: LegHash,
    /// The code of the verdict.
    pub reason: String,
    pub tx: TxId,
    pub asset: AssetId,
    pub recipient: Address,
}

#[derive(FromRow)]
struct ArrivalRow {
    block_hash: Vec<u8>,
    block_number: i64,
    time_us: i64,
    is_final: bool,
    leg_hash: Vec<u8>,
    reason: String,
    tx_id: Vec<u8>,
    asset: Vec<u8>,
    sender: Vec<u8>,
    sender_rule: String,
    recipient: Vec<u8>,
    amount: Vec<u8>,
    account_id: Option<String>,
}

/// Records that `rejected`, whose leg hashes to `leg`, came in this block; once for each block.
pub async fn insert(
    tx: &mut Tx,
    chain: Chain,
    block: &BlockRef,
    leg: &LegHash,
    rejected: &Rejected,
) -> Result<(), StoreError> {
    let transfer = &rejected.transfer;
    execute!(
        tx,
        INSERT,
        chain.name(),
        &block.hash.0[..],
        int(block.number),
        &leg.0[..],
        rejected.verdict.code(),
        transfer.tx.id.as_bytes(),
        transfer.asset.to_bytes(),
        transfer.sender.as_bytes(),
        transfer.sender_rule.name(),
        transfer.recipient.as_bytes(),
        amount_bytes(&transfer.amount),
        transfer.amount.to_string(),
    )?;
    balances::moved(tx, chain, &transfer.recipient, &transfer.asset, block.number).await
}

/// The arrivals on record of a block.
pub async fn in_block(
    connection: &mut impl Connection,
    chain: Chain,
    block: &BlockHash,
) -> Result<Vec<Arrived>, StoreError> {
    type Row = (Vec<u8>, String, Vec<u8>, Vec<u8>, Vec<u8>);
    let rows = fetch_all!(connection, Row, IN_BLOCK, chain.name(), &block.0[..])?;
    let arrived = |(leg, reason, tx, asset, recipient): Row| {
        let tx = TxId::from_bytes(&tx).map_err(|error| StoreError::inconsistent("transaction id", error))?;
        let asset = AssetId::from_bytes(&asset).map_err(|error| StoreError::inconsistent("asset", error))?;
        let (leg, recipient) = (LegHash(hash("leg hash", &leg)?), address("recipient", &recipient)?);
        Ok(Arrived { leg, reason, tx, asset, recipient })
    };
    rows.into_iter().map(arrived).collect()
}

/// Removes the record that something `arrived` in this block.
pub async fn remove(tx: &mut Tx, chain: Chain, block: &BlockRef, arrived: &Arrived) -> Result<(), StoreError> {
    let Arrived { leg, reason, asset, recipient, .. } = arrived;
    execute!(tx, REMOVE, chain.name(), &block.hash.0[..], &leg.0[..], reason)?;
    balances::moved(tx, chain, recipient, asset, block.number).await
}

/// How much of `asset` came to `address` without being a deposit, in the canonical blocks of `range`, both ends
/// inclusive.
pub async fn arrived(
    connection: &mut impl Connection,
    chain: Chain,
    address: &Address,
    asset: &AssetId,
    range: &RangeInclusive<u64>,
) -> Result<U256, StoreError> {
    let (from, to, who) = (int(*range.start()), int(*range.end()), address.as_bytes());
    let rows = fetch_all!(connection, (Vec<u8>,), ARRIVED, chain.name(), who, asset.to_bytes(), from, to)?;
    rows.into_iter().try_fold(U256::ZERO, |sum, (bytes,)| {
        sum.checked_add(amount_of(&bytes)?).ok_or_else(|| StoreError::inconsistent("unattributed", "more than 2^256"))
    })
}

/// At most `limit` arrivals of a chain, newest first, after `after`; with `all`, including what is their owner's own.
pub async fn list(
    connection: &mut impl Connection,
    chain: Chain,
    all: bool,
    after: Option<&Arrival>,
    limit: u32,
) -> Result<Vec<Arrival>, StoreError> {
    // No row has this number, so the other two columns are not compared.
    let (number, leg, reason) = after.map_or((i64::MAX, &[][..], ""), |after| {
        (int(after.block.number), &after.leg_hash.0[..], after.reason.as_str())
    });
    let limit = i64::from(limit);
    let rows = fetch_all!(connection, ArrivalRow, LIST, chain.name(), all, number, leg, reason, limit)?;
    rows.into_iter().map(|row| arrival(chain, row)).collect()
}

fn arrival(chain: Chain, row: ArrivalRow) -> Result<Arrival, StoreError> {
    let number = uint("block number", row.block_number)?;
    Ok(Arrival {
        chain,
        block: BlockRef { number, hash: BlockHash(hash("block hash", &row.block_hash)?) },
        at: Timestamp(row.time_us),
        is_final: row.is_final,
        leg_hash: LegHash(hash("leg hash", &row.leg_hash)?),
        reason: row.reason,
        tx: TxId::from_bytes(&row.tx_id).map_err(|error| StoreError::inconsistent("tx_id", error))?,
        asset: AssetId::from_bytes(&row.asset).map_err(|error| StoreError::inconsistent("asset", error))?,
        sender: address("sender", &row.sender)?,
        sender_rule: parsed("sender rule", &row.sender_rule)?,
        recipient: address("recipient", &row.recipient)?,
        amount: amount_of(&row.amount)?,
        account_id: row.account_id,
    })
}
