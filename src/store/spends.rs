//! What left wallets and sponsors, and no attempt on record explained when its block was recorded.
//!
//! A transaction is noted in the transaction that records its debits and fees, once for each spender. It is open until its
//! block is final and a sender has judged it, so these are few.

use landfall_chain::{Address, AssetId, BlockHash, BlockRef, Chain, Family, GUARD_RENT_MAX, TxId, U256};

use crate::store::deposits::{address, amount_of};
use crate::store::movements::tx_id;
use crate::store::sql::{execute, fetch_all, fetch_optional, statements};
use crate::store::wallets::name as family_name;
use crate::store::{Connection, StoreError, Tx, hash, int, parsed, uint};
use crate::transfer::TransferId;

/// A transaction by which something left an address of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spend {
    pub block: BlockRef,
    pub tx: TxId,
    pub spender: Address,
    /// Of the spender, where it paid for the transaction and its chain counts nonces.
    pub nonce: Option<u64>,
    pub is_canonical: bool,
}

/// What is on record of a spend.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Evidence {
    /// An attempt, a reclaim or an entry of the signer's journal is this very transaction.
    pub is_ours: bool,
    /// It uses the key of an intent of a wallet of ours, whoever's transfer it is.
    pub carries: bool,
    /// The spender paid for it.
    pub has_fee: bool,
    /// What left the spender, and what its intents paid of what their transfers are.
    pub left: Vec<(AssetId, U256)>,
    pub paid: Vec<(AssetId, U256)>,
    /// All that left came to sponsors of the chain. Where a block shows balances, all but the rent of a guard did.
    pub is_to_sponsors: bool,
}

statements! {
    NOTE = "INSERT INTO spends (chain, block_hash, block_number, tx_id, spender, nonce, is_open) SELECT $1, $2, $3, $4, $5, $6, true \
            WHERE (EXISTS (SELECT 1 FROM wallets WHERE family = $7 AND address = $5) \
            OR EXISTS (SELECT 1 FROM sponsors WHERE chain = $1 AND address = $5)) \
            AND NOT EXISTS (SELECT 1 FROM transfer_attempts WHERE chain = $1 AND tx_id = $4) \
            AND NOT EXISTS (SELECT 1 FROM reclaims WHERE chain = $1 AND tx_id = $4) \
            ON CONFLICT (chain, block_hash, tx_id, spender) DO UPDATE SET nonce = COALESCE(spends.nonce, excluded.nonce)";
    WAITING = "SELECT s.block_hash, s.block_number, s.tx_id, s.spender, s.nonce, b.canonical \
               FROM spends AS s JOIN blocks AS b ON b.chain = s.chain AND b.hash = s.block_hash \
               WHERE s.chain = $1 AND s.is_open AND s.block_number <= $2 ORDER BY s.block_number, s.tx_id LIMIT $3";
    JUDGED = "UPDATE spends SET is_open = false, is_foreign = $5 WHERE chain = $1 AND block_hash = $2 AND tx_id = $3 AND spender = $4";
    IS_OURS = "SELECT 1 WHERE EXISTS (SELECT 1 FROM transfer_attempts WHERE chain = $1 AND tx_id = $2) \
               OR EXISTS (SELECT 1 FROM reclaims WHERE chain = $1 AND tx_id = $2) \
               OR EXISTS (SELECT 1 FROM journal_txs WHERE chain = $1 AND tx_id = $2)";
    IS_ATTEMPT = "SELECT 1 WHERE EXISTS (SELECT 1 FROM transfer_attempts WHERE chain = $1 AND tx_id = $2) \
                  OR EXISTS (SELECT 1 FROM reclaims WHERE chain = $1 AND tx_id = $2)";
    CARRIES = "SELECT 1 WHERE EXISTS (SELECT 1 FROM marks AS m JOIN wallets AS w ON w.family = $4 AND w.address = m.payer \
               WHERE m.chain = $1 AND m.block_hash = $2 AND m.tx_id = $3)";
    HAS_FEE = "SELECT 1 FROM fees WHERE chain = $1 AND block_hash = $2 AND tx_id = $3 AND payer = $4";
    LEFT = "SELECT asset, amount FROM debits WHERE chain = $1 AND block_hash = $2 AND tx_id = $3 AND sender = $4 ORDER BY leg_hash";
    ELSEWHERE = "SELECT 1 FROM debits AS d WHERE d.chain = $1 AND d.block_hash = $2 AND d.tx_id = $3 AND d.sender = $4 \
                 AND NOT EXISTS (SELECT 1 FROM sponsors AS s WHERE s.chain = d.chain AND s.address = d.recipient) ORDER BY d.leg_hash LIMIT 1";
    // A key of a transfer on record explains that transfer only: whoever signed something else with it has the payer's key. What
    // arrives may be less where a token keeps a part.
    PAID = "SELECT m.asset, m.amount FROM marks AS m WHERE m.chain = $1 AND m.block_hash = $2 AND m.tx_id = $3 AND m.payer = $4 \
            AND m.effect = 'paid' AND NOT EXISTS (SELECT 1 FROM transfers AS t WHERE t.chain = m.chain AND t.source = m.payer \
            AND t.intent_key = m.intent_key AND (t.asset <> m.asset OR t.destination <> m.destination OR t.amount < m.amount)) \
            ORDER BY m.intent_key";
    JOURNALED = "INSERT INTO journal_txs (chain, tx_id, transfer_id) VALUES ($1, $2, $3) ON CONFLICT (chain, tx_id) DO NOTHING";
    COST = "SELECT amount, outlay FROM fees WHERE chain = $1 AND block_hash = $2 AND tx_id = $3 AND payer = $4";
    // What a treasury gave. Only what comes to sponsors is recorded here.
    GIVEN = "SELECT u.amount FROM sponsors AS t CROSS JOIN unattributed AS u CROSS JOIN sponsors AS s \
             WHERE t.chain = $1 AND t.address = $4 AND t.is_treasury AND u.chain = t.chain AND u.block_hash = $2 AND u.tx_id = $3 AND u.asset = $5 \
             AND s.chain = u.chain AND s.address = u.recipient AND s.address <> t.address ORDER BY u.leg_hash";
    TRANSFER_OF = "SELECT t.id FROM journal_txs AS j JOIN transfers AS t ON t.id = j.transfer_id WHERE j.chain = $1 AND j.tx_id = $2 \
                   UNION SELECT t.id FROM marks AS m CROSS JOIN transfers AS t WHERE m.chain = $1 AND m.block_hash = $3 AND m.tx_id = $2 \
                   AND t.chain = m.chain AND t.source = m.payer AND t.intent_key = m.intent_key ORDER BY id LIMIT 1";
}

/// Notes that something left `spender` by this transaction, if it is a wallet or a sponsor and no attempt is that
/// transaction. `nonce` is the spender's, where it paid for it.
pub(super) async fn note(
    tx: &mut Tx,
    chain: Chain,
    block: &BlockRef,
    (of, spender, nonce): (&TxId, &Address, Option<u64>),
) -> Result<(), StoreError> {
    let (family, nonce) = (family_name(spender.family()), nonce.map(int));
    let (hash, number) = (&block.hash.0[..], int(block.number));
    execute!(tx, NOTE, chain.name(), hash, number, of.as_bytes(), spender.as_bytes(), nonce, family).map(drop)
}

/// At most `limit` of those in blocks up to `through`, the lowest block first.
pub async fn waiting(
    connection: &mut impl Connection,
    chain: Chain,
    through: u64,
    limit: u32,
) -> Result<Vec<Spend>, StoreError> {
    type Row = (Vec<u8>, i64, Vec<u8>, Vec<u8>, Option<i64>, bool);
    let spend = |(bytes, number, tx, spender, nonce, is_canonical): Row| {
        let block = BlockRef { number: uint("block number", number)?, hash: BlockHash(hash("block hash", &bytes)?) };
        let nonce = nonce.map(|nonce| uint("nonce", nonce)).transpose()?;
        Ok(Spend { block, tx: tx_id(&tx)?, spender: address("spender", &spender)?, nonce, is_canonical })
    };
    let rows = fetch_all!(connection, Row, WAITING, chain.name(), int(through), i64::from(limit))?;
    rows.into_iter().map(spend).collect()
}

/// What is on record of it now.
pub async fn evidence(connection: &mut impl Connection, chain: Chain, spend: &Spend) -> Result<Evidence, StoreError> {
    let (name, hash, of) = (chain.name(), &spend.block.hash.0[..], spend.tx.as_bytes());
    let (spender, family) = (spend.spender.as_bytes(), family_name(spend.spender.family()));
    let carries = fetch_optional!(connection, (i32,), CARRIES, name, hash, of, family)?.is_some();
    let has_fee = fetch_optional!(connection, (i32,), HAS_FEE, name, hash, of, spender)?.is_some();
    let left = fetch_all!(connection, (Vec<u8>, Vec<u8>), LEFT, name, hash, of, spender)?;
    let paid = fetch_all!(connection, (Vec<u8>, Vec<u8>), PAID, name, hash, of, spender)?;
    let amounts = |rows: Vec<(Vec<u8>, Vec<u8>)>| {
        let amount = |(asset, amount): (Vec<u8>, Vec<u8>)| {
            let asset = AssetId::from_bytes(&asset).map_err(|error| StoreError::inconsistent("asset", error))?;
            Ok((asset, amount_of(&amount)?))
        };
        rows.into_iter().map(amount).collect::<Result<Vec<_>, StoreError>>()
    };
    let is_ours = fetch_optional!(connection, (i32,), IS_OURS, name, of)?.is_some();
    let elsewhere = fetch_optional!(connection, (i32,), ELSEWHERE, name, hash, of, spender)?;
    let (left, paid) = (amounts(left)?, amounts(paid)?);
    let is_to_sponsors = match cost(connection, chain, spend).await? {
        // Where a block shows balances, one debit has all that left, whoever got it: sums decide.
        Some((_, outlay)) if outlay != 0 => {
            let given = given(connection, chain, spend).await?;
            let is_native = left.iter().all(|(asset, _)| *asset == AssetId::Native);
            is_native && given > 0 && outlay <= given.saturating_add(GUARD_RENT_MAX.into())
        }
        Some(_) | None => spend.spender.family() == Family::Evm && !left.is_empty() && elsewhere.is_none(),
    };
    Ok(Evidence { is_ours, carries, has_fee, left, paid, is_to_sponsors })
}

/// Records that it was judged: it is not judged again when its block is read again. `is_foreign`: nobody here signed it.
pub async fn judged(tx: &mut Tx, chain: Chain, spend: &Spend, is_foreign: bool) -> Result<(), StoreError> {
    let (hash, of, spender) = (&spend.block.hash.0[..], spend.tx.as_bytes(), spend.spender.as_bytes());
    execute!(tx, JUDGED, chain.name(), hash, of, spender, is_foreign).map(drop)
}

/// Whether an attempt or a reclaim on record is this transaction.
pub async fn is_attempt(connection: &mut impl Connection, chain: Chain, of: &TxId) -> Result<bool, StoreError> {
    Ok(fetch_optional!(connection, (i32,), IS_ATTEMPT, chain.name(), of.as_bytes())?.is_some())
}

/// Records that the signer's journal has this transaction of a sponsor, and for which transfer.
pub async fn journaled(
    tx: &mut Tx,
    chain: Chain,
    (of, transfer): (&TxId, Option<TransferId>),
) -> Result<(), StoreError> {
    let transfer = transfer.map(|id| id.to_string());
    execute!(tx, JOURNALED, chain.name(), of.as_bytes(), transfer).map(drop)
}

/// What it cost the spender, and what else it took of it; `None` where somebody else paid for it.
pub async fn cost(
    connection: &mut impl Connection,
    chain: Chain,
    spend: &Spend,
) -> Result<Option<(U256, i128)>, StoreError> {
    let (hash, of, spender) = (&spend.block.hash.0[..], spend.tx.as_bytes(), spend.spender.as_bytes());
    let row = fetch_optional!(connection, (Vec<u8>, String), COST, chain.name(), hash, of, spender)?;
    row.map(|(amount, outlay)| Ok((amount_of(&amount)?, parsed("outlay", &outlay)?))).transpose()
}

/// What it brought sponsors of the chain, if a treasury paid for it.
pub async fn given(connection: &mut impl Connection, chain: Chain, spend: &Spend) -> Result<i128, StoreError> {
    let (hash, of, spender) = (&spend.block.hash.0[..], spend.tx.as_bytes(), spend.spender.as_bytes());
    let rows = fetch_all!(connection, (Vec<u8>,), GIVEN, chain.name(), hash, of, spender, AssetId::Native.to_bytes())?;
    let mut given = U256::ZERO;
    for (amount,) in rows {
        given = given.saturating_add(amount_of(&amount)?);
    }
    i128::try_from(given).map_err(|error| StoreError::inconsistent("refill", error))
}

/// For which transfer on record it was made, by the signer's journal or by the intent that its block shows.
pub async fn transfer_of(
    connection: &mut impl Connection,
    chain: Chain,
    spend: &Spend,
) -> Result<Option<TransferId>, StoreError> {
    let (hash, of) = (&spend.block.hash.0[..], spend.tx.as_bytes());
    let row = fetch_optional!(connection, (String,), TRANSFER_OF, chain.name(), of, hash)?;
    row.map(|(id,)| parsed("transfer id", &id)).transpose()
}
