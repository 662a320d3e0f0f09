//! Intents that payers sign, and the attempts: sponsors' transactions that carry them or something else. Each is on
//! record before it is signed, and its bytes before they are sent.
//!
//! Promise: the next nonce follows from the rows, which are its only counter. A nonce is given again only after an
//! attempt that nobody sends any more.

use std::str::FromStr;

use landfall_chain::{Address, BlockHash, BlockRef, BroadcastResponse, Chain, GuardTerms, TxId};
use sqlx_macros::FromRow;

use crate::store::deposits::address;
use crate::store::error::expect_one;
use crate::store::movements::tx_id;
use crate::store::sql::{execute, fetch_all, fetch_optional, statements};
use crate::store::{Connection, StoreError, Tx, hash, int, parsed, uint};
use crate::time::Timestamp;
use crate::transfer::{Transfer, TransferId};

/// What a payer's key signs for a transfer until a deadline.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IntentRow {
    pub transfer_id: TransferId,
    /// Seconds since 1970.
    pub deadline_secs: u64,
    /// `None` until it is signed; empty where the payer signs each transaction that pays it.
    pub signature: Option<Vec<u8>>,
}

/// A sponsor's transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attempt {
    pub sponsor: Address,
    pub nonce: u64,
    /// 0 for the first at this nonce.
    pub nth: u32,
    /// Or the id of a refill.
    pub transfer_id: TransferId,
    pub purpose: Purpose,
    pub deadline_secs: u64,
    pub gas_limit: u64,
    pub max_fee: u128,
    pub tip: u128,
    /// Of one that makes a guard.
    pub guarding: Option<Guarding>,
    /// Of the payer's authorization that it brings, if it brings one.
    pub authorization_nonce: Option<u64>,
    pub recorded_at: Timestamp,
    /// The whole transaction and its id; `None` until it is signed.
    pub signed: Option<(Vec<u8>, TxId)>,
    /// When it was last handed to a node.
    pub resent_at: Option<Timestamp>,
    /// What the node made of it then.
    pub response: Option<String>,
}

/// What a sponsor's transaction is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Purpose {
    /// It pays its transfer.
    Payment,
    /// It ends what was signed of its transfer.
    Cancellation,
    /// It takes the delegates of wallets away: first that of its transfer's.
    Clearing,
    /// It is of no transfer: the treasury gives a sponsor something.
    Refill,
}

/// What a transaction that makes a guard is made of beside limit and price.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Guarding {
    /// The block whose hash it names, as we connected it: its time is within the window.
    pub recent: BlockRef,
    /// In lamports.
    pub rent: u64,
    /// It has a memo.
    pub memo: bool,
    /// It pays for the recipient's account of the token, and makes it; else it makes none.
    pub makes_account: bool,
}

statements! {
    INTEND = "INSERT INTO intents (transfer_id, deadline_secs, recorded_us) VALUES ($1, $2, $3) ON CONFLICT (transfer_id, deadline_secs) DO NOTHING";
    MOVE_DEADLINE = "UPDATE transfers SET deadline_us = $1 WHERE id = $2 AND deadline_us < $1";
    SIGN_INTENT = "UPDATE intents SET signature = $1, signer_id = $2, signer_seq = $3, signed_us = $4 \
                   WHERE transfer_id = $5 AND deadline_secs = $6 AND signature IS NULL";
    MARK_SIGNED = "UPDATE transfers SET is_signed = true WHERE id = $1 AND NOT is_signed";
    INTENTS = "SELECT i.transfer_id, i.deadline_secs, i.signature FROM intents AS i JOIN transfers AS t ON t.id = i.transfer_id \
               WHERE t.chain = $1 AND t.status IN ('ACCEPTED', 'SUBMITTED') ORDER BY i.deadline_secs";
    INTENTS_OF = "SELECT transfer_id, deadline_secs, signature FROM intents WHERE transfer_id = $1 ORDER BY deadline_secs";
    IS_INTENDED = "SELECT 1 FROM intents WHERE transfer_id = $1 AND deadline_secs = $2";
    IS_RECORDED = "SELECT 1 FROM transfer_attempts WHERE transfer_id = $1 AND chain = $2 AND sponsor = $3 AND nonce = COALESCE($4, nonce)";
    IS_GIVEN = "SELECT 1 FROM transfer_attempts WHERE chain = $1 AND sponsor = $2 AND nonce = $3";
    LAST_NONCE = "SELECT MAX(nonce) FROM transfer_attempts WHERE chain = $1 AND sponsor = $2";
    NEWEST = "SELECT try, max_fee, tip FROM transfer_attempts WHERE chain = $1 AND sponsor = $2 AND nonce = $3 ORDER BY try DESC LIMIT 1";
    RECORD = "INSERT INTO transfer_attempts (chain, sponsor, nonce, try, transfer_id, deadline_secs, gas_limit, max_fee, tip, \
              authorization_nonce, recorded_us, recent_hash, recent_number, guard_rent, guard_memo, guard_account, purpose) \
              VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)";
    SIGN = "UPDATE transfer_attempts SET raw = $1, tx_id = $2 WHERE chain = $3 AND sponsor = $4 AND nonce = $5 AND try = $6 AND raw IS NULL";
    FORGET_UNSIGNED = "DELETE FROM transfer_attempts WHERE chain = $1 AND sponsor = $2 AND nonce = $3 AND try = $4 AND raw IS NULL";
    SENT = "UPDATE transfer_attempts SET sent_us = COALESCE(sent_us, $1), resent_us = $1, response = $2 \
            WHERE chain = $3 AND sponsor = $4 AND nonce = $5 AND try = $6";
    OF_TRANSFER = "SELECT sponsor, nonce, try, transfer_id, deadline_secs, gas_limit, max_fee, tip, authorization_nonce, \
                   recorded_us, raw, tx_id, resent_us, response, recent_hash, recent_number, guard_rent, guard_memo, guard_account, purpose \
                   FROM transfer_attempts WHERE transfer_id = $1 ORDER BY recorded_us, nonce, try";
    OF_CLEARING = "SELECT sponsor, nonce, try, transfer_id, deadline_secs, gas_limit, max_fee, tip, authorization_nonce, \
                   recorded_us, raw, tx_id, resent_us, response, recent_hash, recent_number, guard_rent, guard_memo, guard_account, purpose \
                   FROM transfer_attempts WHERE transfer_id = $1 AND purpose = 'clearing' ORDER BY nonce, try";
    OF_UNFINISHED = "SELECT a.sponsor, a.nonce, a.try, a.transfer_id, a.deadline_secs, a.gas_limit, a.max_fee, a.tip, \
                     a.authorization_nonce, a.recorded_us, a.raw, a.tx_id, a.resent_us, a.response, a.recent_hash, \
                     a.recent_number, a.guard_rent, a.guard_memo, a.guard_account, a.purpose FROM transfer_attempts AS a JOIN transfers AS t ON t.id = a.transfer_id \
                     WHERE t.chain = $1 AND t.status IN ('ACCEPTED', 'SUBMITTED') ORDER BY a.nonce, a.try";
    // Of what is not known to have paid for none.
    ACCOUNTS_OF_PAYER = "SELECT COUNT(DISTINCT t.id) FROM transfers AS t JOIN transfer_attempts AS a ON a.transfer_id = t.id \
                         WHERE t.account_id = $1 AND t.created_us > $2 AND t.chain = $3 AND t.status NOT IN ('FAILED', 'DROPPED') \
                         AND a.guard_account = 1";
    ACCOUNTS_OF_RECIPIENT = "SELECT COUNT(*) FROM transfers AS t JOIN transfer_attempts AS a ON a.transfer_id = t.id \
                             WHERE t.chain = $1 AND t.destination = $2 AND t.created_us > $3 AND t.asset = $4 \
                             AND t.status NOT IN ('FAILED', 'DROPPED') AND t.id <> $5 AND a.guard_account = 1";
}

type Intent = (String, i64, Option<Vec<u8>>);

#[derive(FromRow)]
struct Row {
    sponsor: Vec<u8>,
    nonce: i64,
    r#try: i64,
    transfer_id: String,
    deadline_secs: i64,
    gas_limit: i64,
    max_fee: String,
    tip: String,
    authorization_nonce: Option<i64>,
    recorded_us: i64,
    raw: Option<Vec<u8>>,
    tx_id: Option<Vec<u8>>,
    resent_us: Option<i64>,
    response: Option<String>,
    recent_hash: Option<Vec<u8>>,
    recent_number: Option<i64>,
    guard_rent: Option<i64>,
    guard_memo: Option<i64>,
    guard_account: Option<i64>,
    purpose: String,
}

/// Records what is going to be signed; what is on record stays. A deadline that heals becomes the transfer's.
pub async fn intend(tx: &mut Tx, id: TransferId, deadline_secs: u64, now: Timestamp) -> Result<(), StoreError> {
    let id = id.to_string();
    execute!(tx, INTEND, &id, int(deadline_secs), now.0)?;
    execute!(tx, MOVE_DEADLINE, Timestamp::from_secs(deadline_secs).0, &id).map(drop)
}

/// Records the signature, with the signer's name and the number of its entry in that signer's journal.
pub async fn sign_intent(
    tx: &mut Tx,
    (id, deadline_secs): (TransferId, u64),
    signature: &[u8],
    (signer, seq): (&str, u64),
    now: Timestamp,
) -> Result<(), StoreError> {
    let id = id.to_string();
    let signed = execute!(tx, SIGN_INTENT, signature, signer, int(seq), now.0, &id, int(deadline_secs))?;
    expect_one("record a signature", signed)?;
    execute!(tx, MARK_SIGNED, &id).map(drop)
}

/// Whether it is on record that this was signed, or was going to be.
pub async fn is_intended(
    connection: &mut impl Connection,
    id: TransferId,
    deadline_secs: u64,
) -> Result<bool, StoreError> {
    Ok(fetch_optional!(connection, (i32,), IS_INTENDED, id.to_string(), int(deadline_secs))?.is_some())
}

/// Whether an attempt of this sponsor at this nonce is on record, whatever it is for.
pub async fn is_given(
    connection: &mut impl Connection,
    chain: Chain,
    (sponsor, nonce): (&Address, u64),
) -> Result<bool, StoreError> {
    Ok(!fetch_all!(connection, (i32,), IS_GIVEN, chain.name(), sponsor.as_bytes(), int(nonce))?.is_empty())
}

/// Whether an attempt of the transfer by this sponsor is on record; at this nonce, if there is one.
pub async fn is_recorded(
    connection: &mut impl Connection,
    chain: Chain,
    id: TransferId,
    (sponsor, nonce): (&Address, Option<u64>),
) -> Result<bool, StoreError> {
    let (id, nonce) = (id.to_string(), nonce.map(int));
    let found = fetch_all!(connection, (i32,), IS_RECORDED, id, chain.name(), sponsor.as_bytes(), nonce)?;
    Ok(!found.is_empty())
}

/// The intents of all transfers of the chain that are not terminal, of each the earliest deadline first.
pub async fn intents(connection: &mut impl Connection, chain: Chain) -> Result<Vec<IntentRow>, StoreError> {
    fetch_all!(connection, Intent, INTENTS, chain.name())?.into_iter().map(intent).collect()
}

/// The intents of one transfer, the earliest deadline first.
pub async fn intents_of(connection: &mut impl Connection, id: TransferId) -> Result<Vec<IntentRow>, StoreError> {
    fetch_all!(connection, Intent, INTENTS_OF, id.to_string())?.into_iter().map(intent).collect()
}

fn intent((id, deadline, signature): Intent) -> Result<IntentRow, StoreError> {
    let (transfer_id, deadline_secs) = (parsed("transfer id", &id)?, uint("deadline", deadline)?);
    Ok(IntentRow { transfer_id, deadline_secs, signature })
}

/// The highest nonce that was given of this sponsor.
pub async fn last_nonce(
    connection: &mut impl Connection,
    chain: Chain,
    sponsor: &Address,
) -> Result<Option<u64>, StoreError> {
    let row = fetch_optional!(connection, (Option<i64>,), LAST_NONCE, chain.name(), sponsor.as_bytes())?;
    row.and_then(|(nonce,)| nonce).map(|nonce| uint("nonce", nonce)).transpose()
}

/// The last attempt at a nonce, whichever transfer it carries: its number, and what it offers (`max_fee` and `tip`).
pub async fn newest(
    tx: &mut Tx,
    chain: Chain,
    sponsor: &Address,
    nonce: u64,
) -> Result<Option<(u32, u128, u128)>, StoreError> {
    let row = fetch_optional!(tx, (i64, String, String), NEWEST, chain.name(), sponsor.as_bytes(), int(nonce))?;
    let newest = |(nth, max_fee, tip): (i64, String, String)| {
        Ok((uint("number of an attempt", nth)?, wei("max_fee", &max_fee)?, wei("tip", &tip)?))
    };
    row.map(newest).transpose()
}

/// Records a transaction that is going to be signed. Its nonce and number must be free.
pub async fn record(tx: &mut Tx, chain: Chain, attempt: &Attempt) -> Result<(), StoreError> {
    let recorded = execute!(
        tx,
        RECORD,
        chain.name(),
        attempt.sponsor.as_bytes(),
        int(attempt.nonce),
        i64::from(attempt.nth),
        attempt.transfer_id.to_string(),
        int(attempt.deadline_secs),
        int(attempt.gas_limit),
        attempt.max_fee.to_string(),
        attempt.tip.to_string(),
        attempt.authorization_nonce.map(int),
        attempt.recorded_at.0,
        attempt.guarding.as_ref().map(|guarding| &guarding.recent.hash.0[..]),
        attempt.guarding.map(|guarding| int(guarding.recent.number)),
        attempt.guarding.map(|guarding| int(guarding.rent)),
        attempt.guarding.map(|guarding| i64::from(guarding.memo)),
        attempt.guarding.map(|guarding| i64::from(guarding.makes_account)),
        attempt.purpose.name()
    )?;
    expect_one("record an attempt", recorded)
}

/// Takes back an attempt that the signer refused; its nonce may be given again.
pub async fn forget_unsigned(tx: &mut Tx, chain: Chain, attempt: &Attempt) -> Result<(), StoreError> {
    let Attempt { sponsor, nonce, nth, .. } = attempt;
    let (nonce, nth) = (int(*nonce), i64::from(*nth));
    let forgotten = execute!(tx, FORGET_UNSIGNED, chain.name(), sponsor.as_bytes(), nonce, nth)?;
    expect_one("take back an attempt", forgotten)
}

/// Records its bytes, before they are sent.
pub async fn sign(tx: &mut Tx, chain: Chain, attempt: &Attempt, (raw, id): (&[u8], &TxId)) -> Result<(), StoreError> {
    let Attempt { sponsor, nonce, nth, .. } = attempt;
    let (nonce, nth) = (int(*nonce), i64::from(*nth));
    let signed = execute!(tx, SIGN, raw, id.as_bytes(), chain.name(), sponsor.as_bytes(), nonce, nth)?;
    expect_one("record a signed attempt", signed)
}

/// Records that it was handed to a node, and what the node made of it.
pub async fn sent(
    tx: &mut Tx,
    chain: Chain,
    attempt: &Attempt,
    response: BroadcastResponse,
    now: Timestamp,
) -> Result<(), StoreError> {
    let Attempt { sponsor, nonce, nth, .. } = attempt;
    let (nonce, nth) = (int(*nonce), i64::from(*nth));
    let sent = execute!(tx, SENT, now.0, response.name(), chain.name(), sponsor.as_bytes(), nonce, nth)?;
    expect_one("record what a node made of an attempt", sent)
}

/// The attempts of one transfer, or of a refill, the oldest first.
pub async fn of_transfer(connection: &mut impl Connection, id: TransferId) -> Result<Vec<Attempt>, StoreError> {
    fetch_all!(connection, Row, OF_TRANSFER, id.to_string())?.into_iter().map(Attempt::try_from).collect()
}

/// The attempts that carry what takes delegates away, of this transfer's wallet first; by nonce.
pub async fn of_clearing(connection: &mut impl Connection, id: TransferId) -> Result<Vec<Attempt>, StoreError> {
    fetch_all!(connection, Row, OF_CLEARING, id.to_string())?.into_iter().map(Attempt::try_from).collect()
}

/// The attempts of all transfers of the chain that are not terminal, by nonce.
pub async fn of_unfinished(connection: &mut impl Connection, chain: Chain) -> Result<Vec<Attempt>, StoreError> {
    let rows = fetch_all!(connection, Row, OF_UNFINISHED, chain.name())?;
    rows.into_iter().map(Attempt::try_from).collect()
}

/// How many transfers of the payer's account on its chain pay for an account of a token, of those made since.
pub async fn accounts_of_payer(tx: &mut Tx, transfer: &Transfer, since: Timestamp) -> Result<u64, StoreError> {
    let chain = transfer.chain.name();
    let row = fetch_optional!(tx, (i64,), ACCOUNTS_OF_PAYER, &transfer.account_id, since.0, chain)?;
    uint("count", row.map_or(0, |(count,)| count))
}

/// Whether another transfer that was made since, and has paid or may, paid for this recipient's account of this token.
pub async fn is_account_paid_for(tx: &mut Tx, transfer: &Transfer, since: Timestamp) -> Result<bool, StoreError> {
    let (chain, to, asset) = (transfer.chain.name(), transfer.destination.as_bytes(), transfer.asset.to_bytes());
    let row = fetch_optional!(tx, (i64,), ACCOUNTS_OF_RECIPIENT, chain, to, since.0, asset, transfer.id.to_string())?;
    Ok(row.is_some_and(|(count,)| count > 0))
}

impl Purpose {
    const ALL: [Purpose; 4] = [Purpose::Payment, Purpose::Cancellation, Purpose::Clearing, Purpose::Refill];

    /// The name that is stored and shown.
    pub const fn name(self) -> &'static str {
        match self {
            Purpose::Payment => "payment",
            Purpose::Cancellation => "cancellation",
            Purpose::Clearing => "clearing",
            Purpose::Refill => "refill",
        }
    }
}

impl FromStr for Purpose {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Purpose::ALL.into_iter().find(|purpose| purpose.name() == text);
        known.ok_or_else(|| format!("unknown purpose of an attempt {text:?}"))
    }
}

impl Attempt {
    /// What a transaction that makes a guard is made of; `None` of any other one.
    pub fn terms(&self) -> Option<GuardTerms> {
        let Guarding { recent, rent, memo, makes_account } = self.guarding?;
        let blockhash = recent.hash;
        let compute_limit = u32::try_from(self.gas_limit).ok()?;
        let compute_price = u64::try_from(self.max_fee).ok()?;
        Some(GuardTerms { blockhash, rent, compute_limit, compute_price, memo, makes_account })
    }
}

impl TryFrom<Row> for Attempt {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self, StoreError> {
        let signed = row.raw.zip(row.tx_id);
        let guarding = row.recent_hash.zip(row.recent_number).zip(row.guard_rent);
        let [memo, makes_account] = [row.guard_memo, row.guard_account].map(|flag| flag.is_some_and(|flag| flag != 0));
        let guarding = guarding.map(|((bytes, number), rent)| {
            let hash = BlockHash(hash("blockhash", &bytes)?);
            let recent = BlockRef { number: uint("block number", number)?, hash };
            Ok::<_, StoreError>(Guarding { recent, rent: uint("rent", rent)?, memo, makes_account })
        });
        Ok(Attempt {
            sponsor: address("sponsor", &row.sponsor)?,
            nonce: uint("nonce", row.nonce)?,
            nth: uint("number of an attempt", row.r#try)?,
            transfer_id: parsed("transfer id", &row.transfer_id)?,
            purpose: parsed("purpose", &row.purpose)?,
            deadline_secs: uint("deadline", row.deadline_secs)?,
            gas_limit: uint("gas limit", row.gas_limit)?,
            max_fee: wei("max_fee", &row.max_fee)?,
            tip: wei("tip", &row.tip)?,
            guarding: guarding.transpose()?,
            authorization_nonce: row.authorization_nonce.map(|nonce| uint("nonce", nonce)).transpose()?,
            recorded_at: Timestamp(row.recorded_us),
            signed: signed.map(|(raw, id)| Ok::<_, StoreError>((raw, tx_id(&id)?))).transpose()?,
            resent_at: row.resent_us.map(Timestamp),
            response: row.response,
        })
    }
}

fn wei(what: &'static str, text: &str) -> Result<u128, StoreError> {
    text.parse().map_err(|error| StoreError::inconsistent(what, error))
}
