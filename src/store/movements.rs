//! What left watched addresses, and what they paid for transactions: the other side of the books.
//!
//! Each leg and each fee of a block is recorded once, however often it is read. It counts if its block is canonical.
//! What came in is in `deposits`.

use std::ops::RangeInclusive;

use landfall_chain::{Address, AssetId, AssetTransfer, BlockHash, BlockRef, Chain, Fee, Lane, TxId, TxLife, U256};

use crate::deposit::LegHash;
use crate::store::deposits::{address, amount_bytes, amount_of};
use crate::store::sql::{execute, fetch_all, fetch_optional, statements};
use crate::store::{Connection, StoreError, Tx, balances, hash, int, parsed, spends};

/// What an address spent, in base units.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spent {
    /// What legs moved out.
    pub debits: U256,
    /// What its transactions cost; zero except for the native currency.
    pub fees: U256,
}

statements! {
    DEBIT = "INSERT INTO debits (chain, block_hash, block_number, lane, leg_hash, tx_id, asset, sender, recipient, amount, amount_text) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT (chain, block_hash, leg_hash) DO NOTHING";
    FEE = "INSERT INTO fees (chain, block_hash, block_number, tx_id, payer, amount, amount_text, outlay) \
           VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (chain, block_hash, tx_id) DO NOTHING";
    UNDEBIT = "DELETE FROM debits WHERE chain = $1 AND block_hash = $2 AND leg_hash = $3 AND lane = $4";
    UNDO_FEE = "DELETE FROM fees WHERE chain = $1 AND block_hash = $2 AND tx_id = $3";
    DEBITED = "SELECT debits.amount FROM debits JOIN blocks ON blocks.chain = debits.chain AND blocks.hash = debits.block_hash \
               WHERE debits.chain = $1 AND debits.sender = $2 AND debits.asset = $3 \
               AND debits.block_number >= $4 AND debits.block_number <= $5 AND blocks.canonical";
    LEFT_INSIDE = "SELECT 1 FROM debits WHERE chain = $1 AND sender = $2 AND block_number = $3 AND block_hash = $4 \
                   AND asset = $5 AND lane = 'traces' ORDER BY leg_hash LIMIT 1";
    DEBITS_IN = "SELECT lane, leg_hash, tx_id, asset, sender FROM debits WHERE chain = $1 AND block_hash = $2 ORDER BY leg_hash";
    FEES_IN = "SELECT tx_id, payer, amount, outlay FROM fees WHERE chain = $1 AND block_hash = $2 ORDER BY tx_id";
    PAID = "SELECT fees.amount FROM fees JOIN blocks ON blocks.chain = fees.chain AND blocks.hash = fees.block_hash \
            WHERE fees.chain = $1 AND fees.payer = $2 AND fees.block_number >= $3 AND fees.block_number <= $4 AND blocks.canonical";
}

/// Records that `leg`, the leg of `transfer`, moved value out of a watched address; once for each block.
pub async fn debit(
    tx: &mut Tx,
    chain: Chain,
    block: &BlockRef,
    lane: Lane,
    leg: &LegHash,
    transfer: &AssetTransfer,
) -> Result<(), StoreError> {
    let AssetTransfer { tx: of, asset, sender, recipient, amount, .. } = transfer;
    execute!(
        tx,
        DEBIT,
        chain.name(),
        &block.hash.0[..],
        int(block.number),
        lane.name(),
        &leg.0[..],
        of.id.as_bytes(),
        asset.to_bytes(),
        sender.as_bytes(),
        recipient.as_bytes(),
        amount_bytes(amount),
        amount.to_string(),
    )?;
    if !amount.is_zero() {
        spends::note(tx, chain, block, (&of.id, sender, None)).await?;
    }
    balances::moved(tx, chain, sender, asset, block.number).await
}

/// Records what a transaction cost a watched address; once for each block.
pub async fn fee(tx: &mut Tx, chain: Chain, block: &BlockRef, fee: &Fee) -> Result<(), StoreError> {
    let Fee { tx: of, payer, amount, outlay, .. } = fee;
    let (bytes, text, outlay) = (amount_bytes(amount), amount.to_string(), outlay.to_string());
    let (hash, number) = (&block.hash.0[..], int(block.number));
    execute!(tx, FEE, chain.name(), hash, number, of.id.as_bytes(), payer.as_bytes(), bytes, text, outlay)?;
    let nonce = match of.life {
        TxLife::Nonce { signer, nonce } => Some(nonce).filter(|_| signer == *payer),
        TxLife::Block => None,
    };
    spends::note(tx, chain, block, (&of.id, payer, nonce)).await?;
    balances::moved(tx, chain, payer, &AssetId::Native, block.number).await
}

/// Removes a debit from our record of `block`.
pub async fn undebit(tx: &mut Tx, chain: Chain, block: &BlockRef, debited: &Debited) -> Result<(), StoreError> {
    execute!(tx, UNDEBIT, chain.name(), &block.hash.0[..], &debited.leg.0[..], debited.lane.name())?;
    balances::moved(tx, chain, &debited.sender, &debited.asset, block.number).await
}

/// Removes the record of what `of` cost `payer` in `block`.
pub async fn undo_fee(
    tx: &mut Tx,
    chain: Chain,
    block: &BlockRef,
    of: &TxId,
    payer: &Address,
) -> Result<(), StoreError> {
    execute!(tx, UNDO_FEE, chain.name(), &block.hash.0[..], of.as_bytes())?;
    balances::moved(tx, chain, payer, &AssetId::Native, block.number).await
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Debited {
    pub lane: Lane,
    pub leg: LegHash,
    pub tx: TxId,
    pub asset: AssetId,
    pub sender: Address,
}

/// The debits of a block, of both lanes.
pub async fn debits_in(
    connection: &mut impl Connection,
    chain: Chain,
    block: &BlockHash,
) -> Result<Vec<Debited>, StoreError> {
    type Row = (String, Vec<u8>, Vec<u8>, Vec<u8>, Vec<u8>);
    let rows = fetch_all!(connection, Row, DEBITS_IN, chain.name(), &block.0[..])?;
    let debited = |(lane, leg, tx, asset, sender): Row| {
        let lane = if lane == Lane::Traces.name() { Lane::Traces } else { Lane::Block };
        let (leg, tx, sender) = (LegHash(hash("leg hash", &leg)?), tx_id(&tx)?, address("sender", &sender)?);
        let asset = AssetId::from_bytes(&asset).map_err(|error| StoreError::inconsistent("asset", error))?;
        Ok(Debited { lane, leg, tx, asset, sender })
    };
    rows.into_iter().map(debited).collect()
}

/// What a transaction cost a watched address, and what else it took of it, in base units of the native currency.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Paid {
    pub tx: TxId,
    pub payer: Address,
    pub amount: U256,
    pub outlay: i128,
}

/// The fees of a block.
pub async fn fees_in(
    connection: &mut impl Connection,
    chain: Chain,
    block: &BlockHash,
) -> Result<Vec<Paid>, StoreError> {
    type Row = (Vec<u8>, Vec<u8>, Vec<u8>, String);
    let rows = fetch_all!(connection, Row, FEES_IN, chain.name(), &block.0[..])?;
    let paid = |(tx, payer, amount, outlay): Row| {
        let (tx, payer, amount) = (tx_id(&tx)?, address("payer", &payer)?, amount_of(&amount)?);
        Ok(Paid { tx, payer, amount, outlay: parsed("outlay", &outlay)? })
    };
    rows.into_iter().map(paid).collect()
}

pub(super) fn tx_id(bytes: &[u8]) -> Result<TxId, StoreError> {
    TxId::from_bytes(bytes).map_err(|error| StoreError::inconsistent("tx_id", error))
}

/// Whether any reading of the block's traces showed native value leave `address`.
pub async fn left_inside(
    connection: &mut impl Connection,
    chain: Chain,
    block: &BlockRef,
    address: &Address,
) -> Result<bool, StoreError> {
    let (who, native) = (address.as_bytes(), AssetId::Native.to_bytes());
    let (number, hash) = (int(block.number), &block.hash.0[..]);
    Ok(fetch_optional!(connection, (i32,), LEFT_INSIDE, chain.name(), who, number, hash, native)?.is_some())
}

/// What `address` spent of `asset` in the canonical blocks of `range`, both ends inclusive.
pub async fn spent(
    connection: &mut impl Connection,
    chain: Chain,
    address: &Address,
    asset: &AssetId,
    range: &RangeInclusive<u64>,
) -> Result<Spent, StoreError> {
    let (from, to, who) = (int(*range.start()), int(*range.end()), address.as_bytes());
    let debits = fetch_all!(connection, (Vec<u8>,), DEBITED, chain.name(), who, asset.to_bytes(), from, to)?;
    let fees = match asset {
        AssetId::Native => fetch_all!(connection, (Vec<u8>,), PAID, chain.name(), who, from, to)?,
        AssetId::Token(_) => Vec::new(),
    };
    Ok(Spent { debits: sum("debits", debits)?, fees: sum("fees", fees)? })
}

fn sum(what: &'static str, rows: Vec<(Vec<u8>,)>) -> Result<U256, StoreError> {
    rows.into_iter().try_fold(U256::ZERO, |sum, (bytes,)| {
        sum.checked_add(amount_of(&bytes)?).ok_or_else(|| StoreError::inconsistent(what, "more than 2^256"))
    })
}
