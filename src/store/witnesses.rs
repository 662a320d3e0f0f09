//! The second witness of what traces show: kept with each sighting of a deposit, by the hash of the block.
//!
//! It includes what the guards of the sums need of the trace, so that the block need not be traced again when it is
//! final. Which witness replaces which is not decided here.

use landfall_chain::{Address, BlockHash, BlockRef, Chain, Payer, SenderRule, U256};
use sqlx_macros::FromRow;

use crate::deposit::{Deposit, DepositId};
use crate::store::deposits::{DepositRow, Fits, Settleable, SettleableRow, address, amount_bytes, amount_of};
use crate::store::error::expect_one;
use crate::store::sql::{execute, fetch_all, fetch_optional, statements};
use crate::store::{Connection, StoreError, Tx, hash, int, traces, uint};
use crate::time::Timestamp;

/// Who corroborates the trace's report of a leg.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WitnessedBy {
    /// Two endpoints of different engines reported the same trace of the block.
    TwoEngines,
    /// The recipient's balances before and after the block.
    Balances,
    /// A person decided what was doubtful.
    Person,
}

/// What is witnessed of a leg in one block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kept {
    pub by: WitnessedBy,
    /// Whether the leg is there.
    pub is_shown: bool,
    /// Who paid it, if it is there.
    pub sender: Address,
    /// What moved to its recipient inside of its transaction, and inside of all transactions of the block, in base
    /// units.
    pub paid_in_tx: U256,
    pub paid_in_block: U256,
}

impl Kept {
    /// Who paid it: a trace names it.
    pub fn payer(&self) -> Payer {
        Payer { sender: self.sender, rule: SenderRule::Reported }
    }
}

/// A deposit that a trace of a block reported, and what is witnessed of it there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SeenInTrace {
    pub deposit: Deposit,
    pub kept: Option<Kept>,
}

statements! {
    KEEP = "UPDATE inclusions SET witness = $4, witness_shows = $5, witness_sender = $6, paid_in_tx = $7, paid_in_tx_text = $8, \
            paid_in_block = $9, paid_in_block_text = $10 \
            WHERE deposit_id = $1 AND chain = $2 AND block_hash = $3 AND lane = 'traces'";
    FORGET = "UPDATE inclusions SET witness = NULL, witness_shows = NULL, witness_sender = NULL, paid_in_tx = NULL, \
              paid_in_tx_text = NULL, paid_in_block = NULL, paid_in_block_text = NULL \
              WHERE deposit_id = $1 AND chain = $2 AND block_hash = $3 AND lane = 'traces'";
    FORGET_DENIAL = "UPDATE inclusions SET witness = NULL, witness_shows = NULL, witness_sender = NULL, paid_in_tx = NULL, \
                     paid_in_tx_text = NULL, paid_in_block = NULL, paid_in_block_text = NULL \
                     WHERE deposit_id = $1 AND chain = $2 AND block_hash = $3 AND lane = 'traces' AND NOT witness_shows \
                     AND witness = 'two_engines'";
    IN_BLOCK = "SELECT deposits.*, witness, witness_shows, witness_sender, paid_in_tx, paid_in_block \
                FROM inclusions JOIN deposits ON deposits.id = inclusions.deposit_id \
                WHERE inclusions.chain = $1 AND inclusions.block_hash = $2 AND inclusions.lane = 'traces' ORDER BY deposits.id";
    // For a deposit that was tried in another block, or in a final one, this is the first try.
    DUE = "SELECT deposits.*, blocks.number AS block_number, blocks.hash AS block_hash \
           FROM deposits JOIN inclusions ON inclusions.deposit_id = deposits.id \
           JOIN blocks ON blocks.chain = inclusions.chain AND blocks.hash = inclusions.block_hash \
           LEFT JOIN unwitnessed ON unwitnessed.deposit_id = deposits.id \
           WHERE deposits.chain = $1 AND deposits.status = 'PENDING' AND inclusions.lane = 'traces' \
           AND inclusions.witness IS NULL AND blocks.canonical AND inclusions.block_number > $2 \
           AND (unwitnessed.next_us IS NULL OR unwitnessed.next_us <= $3 OR unwitnessed.is_final \
           OR unwitnessed.block_hash IS NULL OR unwitnessed.block_hash <> blocks.hash) \
           ORDER BY blocks.number, deposits.id LIMIT $4";
    // Like the deposits of the roots that fit a tier, but only those that their witness corroborates.
    BORNE_OUT = "SELECT deposits.*, blocks.number AS block_number, blocks.hash AS block_hash \
                 FROM deposits JOIN inclusions ON inclusions.deposit_id = deposits.id \
                 JOIN blocks ON blocks.chain = inclusions.chain AND blocks.hash = inclusions.block_hash \
                 WHERE deposits.chain = $1 AND deposits.status = 'PENDING' AND deposits.asset = $2 \
                 AND deposits.amount >= $3 AND deposits.amount <= $4 AND inclusions.lane = 'traces' AND inclusions.witness_shows \
                 AND blocks.canonical AND inclusions.block_number > $5 AND inclusions.block_number <= $6 \
                 AND NOT EXISTS (SELECT 1 FROM incidents WHERE incidents.deposit_id = deposits.id AND incidents.kind = 'over_credited' \
                 AND incidents.resolved_us IS NULL) ORDER BY blocks.number, deposits.id LIMIT $7";
    DOUBT_IN = "SELECT blocks.number, blocks.hash, inclusions.allowed FROM unwitnessed \
                JOIN inclusions ON inclusions.deposit_id = unwitnessed.deposit_id AND inclusions.block_hash = unwitnessed.block_hash \
                JOIN blocks ON blocks.chain = inclusions.chain AND blocks.hash = inclusions.block_hash \
                WHERE unwitnessed.deposit_id = $1 AND inclusions.lane = 'traces' AND inclusions.witness IS NULL AND blocks.canonical \
                ORDER BY blocks.number LIMIT 1";
    EXCLUDED = "SELECT 1 FROM inclusions JOIN blocks ON blocks.chain = inclusions.chain AND blocks.hash = inclusions.block_hash \
                WHERE inclusions.deposit_id = $1 AND inclusions.lane = 'traces' AND inclusions.witness = 'balances' \
                AND NOT inclusions.witness_shows AND blocks.canonical ORDER BY blocks.number LIMIT 1";
    DENIED_IN = "SELECT 1 FROM inclusions WHERE deposit_id = $1 AND chain = $2 AND block_hash = $3 AND lane = 'traces' \
                 AND NOT witness_shows AND witness <> 'two_engines' ORDER BY deposit_id LIMIT 1";
    LEFT = "SELECT 1 FROM deposits WHERE chain = $1 AND status = 'PENDING' AND EXISTS \
            (SELECT 1 FROM inclusions WHERE inclusions.deposit_id = deposits.id AND inclusions.lane = 'traces') ORDER BY id LIMIT 1";
}

#[derive(FromRow)]
struct SeenInTraceRow {
    #[sqlx(flatten)]
    deposit: DepositRow,
    witness: Option<String>,
    witness_shows: Option<bool>,
    witness_sender: Option<Vec<u8>>,
    paid_in_tx: Option<Vec<u8>>,
    paid_in_block: Option<Vec<u8>>,
}

/// Keeps what is witnessed of the deposit in this block, in place of what was kept before.
pub async fn keep(
    tx: &mut Tx,
    chain: Chain,
    id: DepositId,
    block: &BlockHash,
    Kept { by, is_shown, sender, paid_in_tx, paid_in_block }: &Kept,
) -> Result<(), StoreError> {
    let (in_tx, in_block) = (amount_bytes(paid_in_tx), amount_bytes(paid_in_block));
    let (in_tx_text, in_block_text) = (paid_in_tx.to_string(), paid_in_block.to_string());
    let kept = execute!(
        tx,
        KEEP,
        id.to_string(),
        chain.name(),
        &block.0[..],
        by.name(),
        *is_shown,
        sender.as_bytes(),
        in_tx,
        in_tx_text,
        in_block,
        in_block_text,
    )?;
    expect_one("keep a witness", kept)?;
    // It waits for no witness any more.
    traces::settled(tx, id).await
}

/// Forgets what was kept of the deposit in this block: it is doubtful again.
pub async fn forget(tx: &mut Tx, chain: Chain, id: DepositId, block: &BlockHash) -> Result<(), StoreError> {
    expect_one("forget a witness", execute!(tx, FORGET, id.to_string(), chain.name(), &block.0[..])?)
}

/// Whether balances, or a person, deny the deposit in this block: then no reading of it can overrule that.
pub async fn is_denied_in(
    connection: &mut impl Connection,
    chain: Chain,
    id: DepositId,
    block: &BlockHash,
) -> Result<bool, StoreError> {
    Ok(fetch_optional!(connection, (i32,), DENIED_IN, id.to_string(), chain.name(), &block.0[..])?.is_some())
}

/// Forgets that two engines denied the deposit in this block, if they did.
pub async fn forget_denial(tx: &mut Tx, chain: Chain, id: DepositId, block: &BlockHash) -> Result<(), StoreError> {
    execute!(tx, FORGET_DENIAL, id.to_string(), chain.name(), &block.0[..]).map(drop)
}

/// Every deposit that a trace of the block reported.
pub async fn in_block(
    connection: &mut impl Connection,
    chain: Chain,
    block: &BlockHash,
) -> Result<Vec<SeenInTrace>, StoreError> {
    let rows = fetch_all!(connection, SeenInTraceRow, IN_BLOCK, chain.name(), &block.0[..])?;
    rows.into_iter().map(SeenInTrace::try_from).collect()
}

/// PENDING deposits without a witness in canonical blocks above `finalized`, and whose next try is due. At most
/// `limit`, lowest blocks first: nodes forget their states first.
pub async fn due(
    connection: &mut impl Connection,
    chain: Chain,
    finalized: Option<&BlockRef>,
    now: Timestamp,
    limit: u32,
) -> Result<Vec<Settleable>, StoreError> {
    let above = finalized.map_or(-1, |finalized| int(finalized.number));
    let rows = fetch_all!(connection, SettleableRow, DUE, chain.name(), above, now.0, i64::from(limit))?;
    rows.into_iter().map(Settleable::try_from).collect()
}

/// PENDING deposits that fit `tier` and that a witness corroborates, in canonical blocks above `above` up to `through`,
/// inclusive; at most `limit`, lowest blocks first.
pub async fn borne_out(
    connection: &mut impl Connection,
    chain: Chain,
    Fits { asset, least, most }: &Fits,
    (above, through): (u64, u64),
    limit: u32,
) -> Result<Vec<Settleable>, StoreError> {
    let (asset, least, most) = (asset.to_bytes(), amount_bytes(least), amount_bytes(most));
    let (above, through, limit) = (int(above), int(through), i64::from(limit));
    let rows =
        fetch_all!(connection, SettleableRow, BORNE_OUT, chain.name(), asset, least, most, above, through, limit)?;
    rows.into_iter().map(Settleable::try_from).collect()
}

/// Where a deposit is doubtful.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Doubt {
    pub block: BlockRef,
    /// How much the balances allow to have been paid to its recipient inside of the block's transactions, in base
    /// units; `None` if they cannot decide.
    pub allowed: Option<U256>,
}

/// The canonical block in which the deposit is doubtful; `None` if there is none.
pub async fn doubt_in(connection: &mut impl Connection, id: DepositId) -> Result<Option<Doubt>, StoreError> {
    let row = fetch_optional!(connection, (i64, Vec<u8>, Option<Vec<u8>>), DOUBT_IN, id.to_string())?;
    let doubt = |(number, bytes, allowed): (i64, Vec<u8>, Option<Vec<u8>>)| {
        let block = BlockRef { number: uint("block number", number)?, hash: BlockHash(hash("block hash", &bytes)?) };
        Ok(Doubt { block, allowed: allowed.map(|allowed| amount_of(&allowed)).transpose()? })
    };
    row.map(doubt).transpose()
}

/// Whether balances exclude the deposit in the canonical block that a trace reported it in.
pub async fn is_excluded(connection: &mut impl Connection, id: DepositId) -> Result<bool, StoreError> {
    Ok(fetch_optional!(connection, (i32,), EXCLUDED, id.to_string())?.is_some())
}

/// Whether any PENDING deposit of the chain was ever shown by a trace.
pub async fn are_left(connection: &mut impl Connection, chain: Chain) -> Result<bool, StoreError> {
    Ok(fetch_optional!(connection, (i32,), LEFT, chain.name())?.is_some())
}

impl WitnessedBy {
    const ALL: [WitnessedBy; 3] = [WitnessedBy::TwoEngines, WitnessedBy::Balances, WitnessedBy::Person];

    /// The name that is stored and shown.
    pub const fn name(self) -> &'static str {
        match self {
            WitnessedBy::TwoEngines => "two_engines",
            WitnessedBy::Balances => "balances",
            WitnessedBy::Person => "person",
        }
    }
}

impl TryFrom<SeenInTraceRow> for SeenInTrace {
    type Error = StoreError;

    fn try_from(row: SeenInTraceRow) -> Result<Self, StoreError> {
        let kept = match (row.witness, row.witness_shows, row.witness_sender, row.paid_in_tx, row.paid_in_block) {
            (None, ..) => None,
            (Some(name), Some(is_shown), Some(sender), Some(in_tx), Some(in_block)) => {
                let by = WitnessedBy::ALL.into_iter().find(|by| by.name() == name);
                Some(Kept {
                    by: by.ok_or_else(|| StoreError::inconsistent("witness", name))?,
                    is_shown,
                    sender: address("witness_sender", &sender)?,
                    paid_in_tx: amount_of(&in_tx)?,
                    paid_in_block: amount_of(&in_block)?,
                })
            }
            (Some(_), ..) => return Err(StoreError::inconsistent("witness", "it does not say of what")),
        };
        Ok(SeenInTrace { deposit: row.deposit.try_into()?, kept })
    }
}
