//! Uses of intents, as blocks show them.
//!
//! A mark is recorded in the transaction that connects its block, and counts while that block is canonical. It is kept
//! for ever, whether a transfer of ours is known for it or not. Only what one endpoint alone made up is removed.

use landfall_chain::{Address, AssetId, Block, BlockHash, BlockRef, Chain, Effect, IntentKey, Mark, Proof, TxId, U256};

use sqlx_macros::FromRow;

use crate::store::deposits::{address, amount_bytes, amount_of};
use crate::store::movements::tx_id;
use crate::store::sql::{execute, fetch_all, fetch_optional, statements};
use crate::store::wallets::name as family_name;
use crate::store::{Connection, StoreError, Tx, hash, int, parsed, uint};
use crate::transfer::{Transfer, TransferId, TransferStatus};

/// A mark in a canonical block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    pub tx: TxId,
    pub asset: AssetId,
    pub effect: Effect,
    pub block: BlockRef,
    /// One endpoint alone reported the block, and no root covers it.
    pub is_alone: bool,
    /// A tier, or an operator, calls its block final for this payment.
    pub is_granted: bool,
}

statements! {
    INSERT = "INSERT INTO marks (chain, block_hash, block_number, tx_id, payer, intent_key, asset, effect, destination, amount, is_granted, is_unknown) \
              VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, false, \
              EXISTS (SELECT 1 FROM wallets WHERE family = $11 AND address = $5) \
              AND NOT EXISTS (SELECT 1 FROM transfers WHERE chain = $1 AND source = $5 AND intent_key = $6)) \
              ON CONFLICT (chain, block_hash, tx_id, payer, intent_key, asset) DO NOTHING";
    // On Solana each account that came into being has a mark, so one of them may be the guard of a transfer.
    UNKNOWN = "SELECT m.tx_id, m.payer, m.block_number, m.block_hash, EXISTS (SELECT 1 FROM marks AS o \
               JOIN transfers AS t ON t.chain = o.chain AND t.source = o.payer AND t.intent_key = o.intent_key \
               WHERE o.chain = m.chain AND o.block_hash = m.block_hash AND o.tx_id = m.tx_id AND o.payer = m.payer) AS is_explained \
               FROM marks AS m JOIN blocks AS b ON b.chain = m.chain AND b.hash = m.block_hash \
               WHERE m.chain = $1 AND m.is_unknown AND b.canonical ORDER BY m.block_number LIMIT $2";
    NOTICED = "UPDATE marks SET is_unknown = false WHERE chain = $1 AND block_hash = $2 AND tx_id = $3 AND payer = $4 AND is_unknown";
    // From transfers to their marks: without statistics PostgreSQL compared each mark with each transfer.
    OF_UNFINISHED = "SELECT t.id, m.tx_id, m.asset, m.effect, m.destination, m.amount, m.block_number, m.block_hash, m.is_granted, b.proof \
                     FROM transfers AS t CROSS JOIN" [" LATERAL (SELECT * FROM"] " marks AS m" [" WHERE m.chain = t.chain \
                     AND m.payer = t.source AND m.intent_key = t.intent_key OFFSET 0) AS m"] " CROSS JOIN blocks AS b \
                     WHERE t.chain = $1 AND t.status IN ('ACCEPTED', 'SUBMITTED') AND t.created_us > 0 \
                     AND m.chain = t.chain AND m.payer = t.source AND m.intent_key = t.intent_key \
                     AND b.chain = m.chain AND b.hash = m.block_hash AND b.canonical ORDER BY m.block_number";
    GRANTABLE = "SELECT t.id, m.block_number, m.block_hash, m.tx_id, m.payer, m.intent_key, t.asset, t.amount \
                 FROM transfers AS t CROSS JOIN" [" LATERAL (SELECT * FROM"] " marks AS m" [" WHERE m.chain = t.chain \
                 AND m.payer = t.source AND m.intent_key = t.intent_key OFFSET 0) AS m"] " CROSS JOIN blocks AS b \
                 WHERE t.chain = $1 AND t.status IN ('ACCEPTED', 'SUBMITTED') AND t.created_us > 0 \
                 AND m.chain = t.chain AND m.payer = t.source AND m.intent_key = t.intent_key AND m.effect = 'paid' \
                 AND NOT m.is_granted AND b.chain = m.chain AND b.hash = m.block_hash AND b.canonical ORDER BY m.block_number";
    GRANT = "UPDATE marks SET is_granted = true WHERE chain = $1 AND block_hash = $2 AND tx_id = $3 AND payer = $4 AND intent_key = $5 \
             AND effect = 'paid'";
    // The hold of one that is CONFIRMED ends by its grant, when that number is final.
    WITHDRAW = "UPDATE marks SET is_granted = false WHERE chain = $1 AND is_granted AND block_number > $2 \
                AND NOT EXISTS (SELECT 1 FROM transfers AS t WHERE t.chain = marks.chain AND t.source = marks.payer \
                AND t.intent_key = marks.intent_key AND t.status = 'CONFIRMED')";
    GRANTED_THROUGH = "SELECT t.id, t.status FROM marks AS m CROSS JOIN transfers AS t WHERE m.chain = $1 AND m.is_granted \
                       AND m.block_number <= $2 AND t.chain = m.chain AND t.source = m.payer AND t.intent_key = m.intent_key";
    FULFIL = "UPDATE marks SET is_granted = false WHERE chain = $1 AND is_granted AND block_number <= $2";
    GRANTED_ABOVE = "SELECT COUNT(*), MAX(m.block_number) FROM marks AS m \
                     JOIN blocks AS b ON b.chain = m.chain AND b.hash = m.block_hash \
                     JOIN transfers AS t ON t.chain = m.chain AND t.source = m.payer AND t.intent_key = m.intent_key \
                     WHERE m.chain = $1 AND m.is_granted AND m.block_number > $2 AND b.canonical AND t.status = 'CONFIRMED'";
    IN_BLOCK = "SELECT tx_id, payer, intent_key, asset FROM marks WHERE chain = $1 AND block_hash = $2";
    REMOVE = "DELETE FROM marks WHERE chain = $1 AND block_hash = $2 AND tx_id = $3 AND payer = $4 AND intent_key = $5 AND asset = $6";
    OF_INTENT = "SELECT m.tx_id, m.asset, m.effect, m.destination, m.amount, m.block_number, m.block_hash, m.is_granted, b.proof, b.canonical \
                 FROM marks AS m JOIN blocks AS b ON b.chain = m.chain AND b.hash = m.block_hash \
                 WHERE m.chain = $1 AND m.payer = $2 AND m.intent_key = $3 ORDER BY m.block_number";
}

/// A transaction of a canonical block that used a key of ours, and no transfer of that key was on record then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unknown {
    pub tx: TxId,
    pub payer: Address,
    pub block: BlockRef,
    /// Something else that it shows is of a transfer on record.
    pub is_explained: bool,
}

/// Transaction, payer, key and asset of a mark.
type Place = (Vec<u8>, Vec<u8>, Vec<u8>, Vec<u8>);

#[derive(FromRow)]
struct Row {
    tx_id: Vec<u8>,
    asset: Vec<u8>,
    effect: String,
    destination: Option<Vec<u8>>,
    amount: Option<Vec<u8>>,
    block_number: i64,
    block_hash: Vec<u8>,
    is_granted: bool,
    proof: String,
}

#[derive(FromRow)]
struct OfTransfer {
    id: String,
    #[sqlx(flatten)]
    row: Row,
}

#[derive(FromRow)]
struct OfIntent {
    canonical: bool,
    #[sqlx(flatten)]
    row: Row,
}

/// Records a mark of `block`; once for each block.
pub async fn insert(tx: &mut Tx, chain: Chain, block: &BlockRef, mark: &Mark) -> Result<(), StoreError> {
    let Mark { tx: of, payer, key, asset, effect } = mark;
    let paid = match effect {
        Effect::Paid { destination, amount } => Some((destination, amount)),
        Effect::Nothing | Effect::Cancelled => None,
    };
    execute!(
        tx,
        INSERT,
        chain.name(),
        &block.hash.0[..],
        int(block.number),
        of.id.as_bytes(),
        payer.as_bytes(),
        &key.0[..],
        asset.to_bytes(),
        effect.name(),
        paid.map(|(destination, _)| destination.as_bytes()),
        paid.map(|(_, amount)| amount_bytes(amount)),
        family_name(payer.family())
    )
    .map(drop)
}

/// A payment of an unfinished transfer in a canonical block, which nobody calls final yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grantable {
    pub transfer: TransferId,
    pub block: BlockRef,
    pub tx: TxId,
    pub payer: Address,
    pub key: IntentKey,
    /// What the transfer pays.
    pub asset: AssetId,
    /// In base units.
    pub amount: U256,
}

/// The payments in canonical blocks of transfers that are not terminal, and that are not granted; the lowest block first.
pub async fn grantable(connection: &mut impl Connection, chain: Chain) -> Result<Vec<Grantable>, StoreError> {
    type Row = (String, i64, Vec<u8>, Vec<u8>, Vec<u8>, Vec<u8>, Vec<u8>, Vec<u8>);
    let grantable = |(id, number, bytes, tx, payer, key, asset, amount): Row| {
        Ok(Grantable {
            transfer: parsed("transfer id", &id)?,
            block: BlockRef { number: uint("block number", number)?, hash: BlockHash(hash("block hash", &bytes)?) },
            tx: tx_id(&tx)?,
            payer: address("payer", &payer)?,
            key: intent_key(&key)?,
            asset: AssetId::from_bytes(&asset).map_err(|error| StoreError::inconsistent("asset", error))?,
            amount: amount_of(&amount)?,
        })
    };
    fetch_all!(connection, Row, GRANTABLE, chain.name())?.into_iter().map(grantable).collect()
}

/// Records that the payment's block is final for it.
pub async fn grant(tx: &mut Tx, chain: Chain, of: &Grantable) -> Result<(), StoreError> {
    let Grantable { block, tx: id, payer, key, .. } = of;
    execute!(tx, GRANT, chain.name(), &block.hash.0[..], id.as_bytes(), payer.as_bytes(), &key.0[..]).map(drop)
}

/// Takes back what was granted above block `number` and has confirmed nothing: what is connected there next is granted anew.
pub async fn withdraw(tx: &mut Tx, chain: Chain, number: u64) -> Result<(), StoreError> {
    execute!(tx, WITHDRAW, chain.name(), int(number)).map(drop)
}

/// The CONFIRMED transfers whose payment was granted, in blocks up to the final block `number`; `None` if nothing was.
pub async fn granted_through(
    connection: &mut impl Connection,
    chain: Chain,
    number: u64,
) -> Result<Option<Vec<TransferId>>, StoreError> {
    let rows = fetch_all!(connection, (String, String), GRANTED_THROUGH, chain.name(), int(number))?;
    let is_any = !rows.is_empty();
    let confirmed = rows.into_iter().filter(|(_, status)| status == TransferStatus::Confirmed.name());
    let ids: Result<_, StoreError> = confirmed.map(|(id, _)| parsed("transfer id", &id)).collect();
    ids.map(|ids| is_any.then_some(ids))
}

/// Ends what was granted up to the final block `number`: it is final for all.
pub async fn fulfil(tx: &mut Tx, chain: Chain, number: u64) -> Result<(), StoreError> {
    execute!(tx, FULFIL, chain.name(), int(number)).map(drop)
}

/// How many CONFIRMED transfers are paid in canonical blocks above `number` that are final for them alone, and the highest
/// of these blocks.
pub async fn granted_above(
    connection: &mut impl Connection,
    chain: Chain,
    number: u64,
) -> Result<(u64, Option<u64>), StoreError> {
    let row = fetch_optional!(connection, (i64, Option<i64>), GRANTED_ABOVE, chain.name(), int(number))?;
    let (count, highest) = row.unwrap_or_default();
    Ok((uint("count", count)?, highest.map(|number| uint("block number", number)).transpose()?))
}

/// At most `limit` marks of keys of ours that no transfer on record explained, and that nobody has noticed; the lowest
/// block first.
pub async fn unknown(connection: &mut impl Connection, chain: Chain, limit: u32) -> Result<Vec<Unknown>, StoreError> {
    type Row = (Vec<u8>, Vec<u8>, i64, Vec<u8>, bool);
    let unknown = |(tx, payer, number, bytes, is_explained): Row| {
        let hash = BlockHash(hash("block hash", &bytes)?);
        let block = BlockRef { number: uint("block number", number)?, hash };
        Ok(Unknown { tx: tx_id(&tx)?, payer: address("payer", &payer)?, block, is_explained })
    };
    fetch_all!(connection, Row, UNKNOWN, chain.name(), i64::from(limit))?.into_iter().map(unknown).collect()
}

/// Records that what this transaction shows was noticed.
pub async fn notice(tx: &mut Tx, chain: Chain, of: &Unknown) -> Result<(), StoreError> {
    let (hash, payer) = (&of.block.hash.0[..], of.payer.as_bytes());
    execute!(tx, NOTICED, chain.name(), hash, of.tx.as_bytes(), payer).map(drop)
}

/// Removes the marks of a block that it does not show, by what is known of it now.
pub async fn take_out(tx: &mut Tx, chain: Chain, block: &Block) -> Result<(), StoreError> {
    let hash = &block.header.block.hash.0[..];
    for (id, payer, key, asset) in fetch_all!(tx, Place, IN_BLOCK, chain.name(), hash)? {
        let is_it = |mark: &&Mark| {
            (mark.tx.id.as_bytes(), mark.payer.as_bytes(), &mark.key.0[..], mark.asset.to_bytes().as_slice())
                == (id.as_slice(), payer.as_slice(), key.as_slice(), asset.as_slice())
        };
        if block.marks.iter().find(is_it).is_none() {
            execute!(tx, REMOVE, chain.name(), hash, &id, &payer, &key, &asset)?;
        }
    }
    Ok(())
}

/// The marks in canonical blocks of transfers that are not terminal, the lowest block first.
pub async fn of_unfinished(
    connection: &mut impl Connection,
    chain: Chain,
) -> Result<Vec<(TransferId, Seen)>, StoreError> {
    let rows = fetch_all!(connection, OfTransfer, OF_UNFINISHED, chain.name())?;
    rows.into_iter().map(|OfTransfer { id, row }| Ok((parsed("transfer id", &id)?, row.seen()?))).collect()
}

/// Every mark of the transfer's intent, and whether its block is canonical; the lowest block first.
pub async fn of_transfer(
    connection: &mut impl Connection,
    transfer: &Transfer,
) -> Result<Vec<(Seen, bool)>, StoreError> {
    of_intent(connection, transfer.chain, &transfer.source, &transfer.intent_key).await
}

/// As [`of_transfer`], of the intent of this payer with this key.
pub async fn of_intent(
    connection: &mut impl Connection,
    chain: Chain,
    payer: &Address,
    key: &IntentKey,
) -> Result<Vec<(Seen, bool)>, StoreError> {
    let rows = fetch_all!(connection, OfIntent, OF_INTENT, chain.name(), payer.as_bytes(), &key.0[..])?;
    rows.into_iter().map(|OfIntent { canonical, row }| Ok((row.seen()?, canonical))).collect()
}

impl Row {
    fn seen(self) -> Result<Seen, StoreError> {
        let hash = BlockHash(hash("block hash", &self.block_hash)?);
        let block = BlockRef { number: uint("block number", self.block_number)?, hash };
        let asset = AssetId::from_bytes(&self.asset).map_err(|error| StoreError::inconsistent("asset", error))?;
        let effect = effect_of(&self.effect, self.destination, self.amount)?;
        let is_alone = self.proof == Proof::OneEndpoint.name();
        let is_granted = self.is_granted;
        Ok(Seen { tx: tx_id(&self.tx_id)?, asset, effect, block, is_alone, is_granted })
    }
}

fn effect_of(name: &str, destination: Option<Vec<u8>>, amount: Option<Vec<u8>>) -> Result<Effect, StoreError> {
    let paid: Option<(Address, U256)> = match (destination, amount) {
        (Some(destination), Some(amount)) => Some((address("destination", &destination)?, amount_of(&amount)?)),
        _ => None,
    };
    match (name, paid) {
        ("paid", Some((destination, amount))) => Ok(Effect::Paid { destination, amount }),
        ("nothing", None) => Ok(Effect::Nothing),
        ("cancelled", None) => Ok(Effect::Cancelled),
        (other, _) => Err(StoreError::inconsistent("effect of a mark", other)),
    }
}

/// An intent's key from its 24 bytes.
pub(super) fn intent_key(bytes: &[u8]) -> Result<IntentKey, StoreError> {
    let key = bytes.try_into().map(IntentKey);
    key.map_err(|_| StoreError::inconsistent("intent key", format!("{} bytes", bytes.len())))
}
