//! What the treasury of a chain gives its sponsors: one content for each of its nonces, on record before it is signed first.
//!
//! What moved stands in `debits` and `fees`, as blocks show it.

use std::str::FromStr;

use landfall_chain::{Address, Chain, Refill, TxId, U256};
use sqlx_macros::FromRow;

use crate::store::attempts::{self, Attempt};
use crate::store::deposits::{address, amount_bytes, amount_of};
use crate::store::error::expect_one;
use crate::store::movements::tx_id;
use crate::store::sql::{execute, fetch_all, statements};
use crate::store::{Connection, StoreError, Tx, int, parsed, uint};
use crate::time::Timestamp;
use crate::transfer::TransferId;

/// What a treasury gives a sponsor with one of its nonces.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refilling {
    pub treasury: Address,
    pub nonce: u64,
    /// Its attempts have it in the place of a transfer's.
    pub id: TransferId,
    /// The sponsor's number, and its address.
    pub number: u32,
    pub recipient: Address,
    /// In base units of the native currency.
    pub amount: U256,
    pub recorded_at: Timestamp,
    pub state: RefillState,
    /// Of one that landed.
    pub tx: Option<TxId>,
    /// By number; of an open one.
    pub attempts: Vec<Attempt>,
}

/// How far a refill has come, by final blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RefillState {
    /// Its nonce is not used.
    Open,
    /// An attempt of it that is on record used its nonce.
    Landed,
    /// Its nonce is used, by none of its attempts on record.
    Passed,
}

statements! {
    RECORD = "INSERT INTO refills (chain, treasury, nonce, id, number, recipient, amount, amount_text, recorded_us, state) \
              VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 'open')";
    // What was signed here stays.
    PUT = "INSERT INTO refills (chain, treasury, nonce, id, number, recipient, amount, amount_text, recorded_us, state) \
           VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 'open') ON CONFLICT (chain, treasury, nonce) DO UPDATE \
           SET number = excluded.number, recipient = excluded.recipient, amount = excluded.amount, amount_text = excluded.amount_text \
           WHERE refills.state = 'open' AND NOT EXISTS (SELECT 1 FROM transfer_attempts WHERE transfer_id = refills.id AND raw IS NOT NULL)";
    FORGET = "DELETE FROM refills WHERE id = $1 AND NOT EXISTS (SELECT 1 FROM transfer_attempts WHERE transfer_id = refills.id)";
    OPEN = "SELECT treasury, nonce, id, number, recipient, amount, recorded_us, state, tx_id FROM refills \
            WHERE chain = $1 AND state = 'open' ORDER BY treasury, nonce";
    NEWEST = "SELECT treasury, nonce, id, number, recipient, amount, recorded_us, state, tx_id FROM refills \
              WHERE chain = $1 ORDER BY recorded_us DESC, treasury, nonce DESC LIMIT $2";
    IS_GIVEN = "SELECT 1 FROM refills WHERE chain = $1 AND treasury = $2 AND nonce = $3 AND number = $4 AND recipient = $5 AND amount = $6";
    LANDED = "UPDATE refills SET state = 'landed', tx_id = $1 WHERE id = $2";
    PASSED = "UPDATE refills SET state = 'passed' WHERE id = $1 AND state = 'open'";
    REOPEN = "UPDATE refills SET state = 'open', tx_id = NULL WHERE chain = $1 AND treasury = $2 AND nonce = $3 AND state <> 'open'";
}

#[derive(FromRow)]
struct Row {
    treasury: Vec<u8>,
    nonce: i64,
    id: String,
    number: i64,
    recipient: Vec<u8>,
    amount: Vec<u8>,
    recorded_us: i64,
    state: String,
    tx_id: Option<Vec<u8>>,
}

/// Records what is going to be signed. Its nonce must have no other content.
pub async fn record(tx: &mut Tx, chain: Chain, of: &Refilling) -> Result<(), StoreError> {
    let Refilling { treasury, nonce, id, number, recipient, amount, recorded_at, .. } = of;
    let (treasury, nonce, id, number) = (treasury.as_bytes(), int(*nonce), id.to_string(), i64::from(*number));
    let (to, bytes, text) = (recipient.as_bytes(), amount_bytes(amount), amount.to_string());
    let recorded = execute!(tx, RECORD, chain.name(), treasury, nonce, id, number, to, bytes, text, recorded_at.0)?;
    expect_one("record a refill", recorded)
}

/// Records what the signer's journal has. It takes the place of what was never signed here.
pub async fn put(
    tx: &mut Tx,
    chain: Chain,
    (treasury, nonce): (&Address, u64),
    refill: &Refill,
    now: Timestamp,
) -> Result<(), StoreError> {
    let Refill { chain_ref, number, recipient, amount } = refill;
    let id = TransferId::of_refill(chain_ref, treasury, nonce).to_string();
    let (treasury, nonce, number) = (treasury.as_bytes(), int(nonce), i64::from(*number));
    let (to, bytes, text) = (recipient.as_bytes(), amount_bytes(amount), amount.to_string());
    execute!(tx, PUT, chain.name(), treasury, nonce, id, number, to, bytes, text, now.0).map(drop)
}

/// Takes one off the record that has no attempt: the signer refused it.
pub async fn forget(tx: &mut Tx, id: TransferId) -> Result<(), StoreError> {
    execute!(tx, FORGET, id.to_string()).map(drop)
}

/// Those whose nonce is not used by final blocks, the lowest nonce first, with their attempts.
pub async fn open(connection: &mut impl Connection, chain: Chain) -> Result<Vec<Refilling>, StoreError> {
    let mut open = Vec::new();
    for row in fetch_all!(connection, Row, OPEN, chain.name())? {
        let mut refill = Refilling::try_from(row)?;
        refill.attempts = attempts::of_transfer(connection, refill.id).await?;
        open.push(refill);
    }
    Ok(open)
}

/// At most `limit` refills, the newest first, without their attempts.
pub async fn newest(connection: &mut impl Connection, chain: Chain, limit: u32) -> Result<Vec<Refilling>, StoreError> {
    let rows = fetch_all!(connection, Row, NEWEST, chain.name(), i64::from(limit))?;
    rows.into_iter().map(Refilling::try_from).collect()
}

/// Whether this very content is on record of this nonce.
pub async fn is_given(
    connection: &mut impl Connection,
    chain: Chain,
    (treasury, nonce): (&Address, u64),
    refill: &Refill,
) -> Result<bool, StoreError> {
    let (treasury, nonce, number) = (treasury.as_bytes(), int(nonce), i64::from(refill.number));
    let (to, amount) = (refill.recipient.as_bytes(), amount_bytes(&refill.amount));
    Ok(!fetch_all!(connection, (i32,), IS_GIVEN, chain.name(), treasury, nonce, number, to, amount)?.is_empty())
}

/// Records that a final block shows this attempt of it.
pub async fn landed(tx: &mut Tx, id: TransferId, by: &TxId) -> Result<(), StoreError> {
    let landed = execute!(tx, LANDED, by.as_bytes(), id.to_string())?;
    expect_one("end a refill", landed)
}

/// Records that its nonce is used by final blocks, and none of them shows an attempt of it.
pub async fn passed(tx: &mut Tx, id: TransferId) -> Result<(), StoreError> {
    execute!(tx, PASSED, id.to_string()).map(drop)
}

/// The final blocks that showed its nonce used were given up: it is carried again as it is.
pub async fn reopen(tx: &mut Tx, chain: Chain, (treasury, nonce): (&Address, u64)) -> Result<(), StoreError> {
    execute!(tx, REOPEN, chain.name(), treasury.as_bytes(), int(nonce)).map(drop)
}

impl Refilling {
    /// What it gives, on the chain with this CAIP-2 name.
    pub fn content(&self, chain_ref: &str) -> Refill {
        let Refilling { number, recipient, amount, .. } = *self;
        Refill { chain_ref: chain_ref.to_owned(), number, recipient, amount }
    }
}

impl TryFrom<Row> for Refilling {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self, StoreError> {
        Ok(Refilling {
            treasury: address("treasury", &row.treasury)?,
            nonce: uint("nonce", row.nonce)?,
            id: parsed("id of a refill", &row.id)?,
            number: uint("number", row.number)?,
            recipient: address("sponsor", &row.recipient)?,
            amount: amount_of(&row.amount)?,
            recorded_at: Timestamp(row.recorded_us),
            state: parsed("state of a refill", &row.state)?,
            tx: row.tx_id.map(|id| tx_id(&id)).transpose()?,
            attempts: Vec::new(),
        })
    }
}

impl RefillState {
    const ALL: [RefillState; 3] = [RefillState::Open, RefillState::Landed, RefillState::Passed];

    /// The name that is stored and shown.
    pub const fn name(self) -> &'static str {
        match self {
            RefillState::Open => "open",
            RefillState::Landed => "landed",
            RefillState::Passed => "passed",
        }
    }
}

impl FromStr for RefillState {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = RefillState::ALL.into_iter().find(|state| state.name() == text);
        known.ok_or_else(|| format!("unknown state of a refill {text:?}"))
    }
}
