//! Wallets for which a delegate may act though nothing needs it any more, and the clearings that take it away.
//!
//! A clearing is an authorization of no code for one of the wallet's nonces. Several clearings share the attempts of
//! one transfer. The chain's state decides whether a wallet has a delegate, never a row.

use landfall_chain::{Address, Authorization, Chain};
use sqlx_macros::FromRow;

use crate::store::attempts::Attempt;
use crate::store::deposits::address;
use crate::store::sql::{execute, fetch_all, statements};
use crate::store::{Connection, StoreError, Tx, attempts, int, parsed, uint};
use crate::time::Timestamp;
use crate::transfer::TransferId;

/// A wallet that is to have no delegate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wanted {
    pub wallet: Address,
    /// Its transfer that ended last.
    pub transfer_id: TransferId,
    /// Where its key is derived.
    pub account_id: String,
    pub source_tag: String,
    pub since: Timestamp,
    /// Of what takes the delegate away; `None` until it is made.
    pub nonce: Option<u64>,
    /// A transfer that a delegate pays is not terminal.
    pub is_needed: bool,
}

/// What takes the delegates of several wallets away together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Clearing {
    /// The transfer whose attempts carry it: that of its first wallet.
    pub id: TransferId,
    pub tuples: Vec<Tuple>,
    /// By nonce.
    pub attempts: Vec<Attempt>,
}

/// What takes the delegate of one wallet away.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tuple {
    pub wallet: Address,
    pub nonce: u64,
    /// Where its key is derived.
    pub account_id: String,
    pub source_tag: String,
    /// `None` until it is signed.
    pub signature: Option<Vec<u8>>,
}

statements! {
    WANT = "INSERT INTO clearings (chain, wallet, transfer_id, since_us) VALUES ($1, $2, $3, $4) \
            ON CONFLICT (chain, wallet) DO UPDATE SET transfer_id = excluded.transfer_id, since_us = excluded.since_us, nonce = NULL";
    // Each was made after 1970, which leads SQLite to the index of those that are not terminal.
    WANTED = "SELECT c.wallet, c.transfer_id, t.account_id, t.source_tag, c.since_us, c.nonce, c.wallet IN (SELECT o.source FROM transfers AS o \
              WHERE o.chain = $1 AND o.status IN ('ACCEPTED', 'SUBMITTED') AND o.created_us > 0 AND o.route LIKE 'delegate%') AS is_needed \
              FROM clearings AS c JOIN transfers AS t ON t.id = c.transfer_id WHERE c.chain = $1 ORDER BY c.since_us, c.wallet LIMIT $2";
    MAKE = "UPDATE clearings SET nonce = $1 WHERE chain = $2 AND wallet = $3";
    REMOVE = "DELETE FROM clearings WHERE chain = $1 AND wallet = $2";
    // What is on record of a lost store's journal has no bearer yet.
    INTEND_CLEARING = "INSERT INTO authorizations (chain, wallet, nonce, implementation, recorded_us, transfer_id, carried_by) \
                       VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (chain, wallet, nonce) DO UPDATE \
                       SET transfer_id = excluded.transfer_id, carried_by = excluded.carried_by \
                       WHERE authorizations.carried_by IS NULL AND authorizations.implementation = excluded.implementation";
    // CROSS JOIN, so that SQLite begins with the few clearings.
    TUPLES = "SELECT a.carried_by, a.wallet, a.nonce, t.account_id, t.source_tag, a.signature \
              FROM clearings AS c CROSS JOIN authorizations AS a CROSS JOIN transfers AS t \
              WHERE c.chain = $1 AND a.chain = c.chain AND a.wallet = c.wallet AND a.nonce = c.nonce AND t.id = a.transfer_id \
              AND a.carried_by IS NOT NULL ORDER BY a.carried_by, a.wallet";
    BEARERS = "SELECT transfer_id FROM authorizations WHERE carried_by = $1 AND transfer_id IS NOT NULL \
               ORDER BY CASE WHEN transfer_id = carried_by THEN 0 ELSE 1 END, wallet";
}

#[derive(FromRow)]
struct WantedRow {
    wallet: Vec<u8>,
    transfer_id: String,
    account_id: String,
    source_tag: String,
    since_us: i64,
    nonce: Option<i64>,
    is_needed: bool,
}

/// Notes that nothing needs the wallet's delegate any more, if it has one, since this transfer has ended.
pub async fn want(
    tx: &mut Tx,
    chain: Chain,
    wallet: &Address,
    id: TransferId,
    now: Timestamp,
) -> Result<(), StoreError> {
    execute!(tx, WANT, chain.name(), wallet.as_bytes(), id.to_string(), now.0).map(drop)
}

/// At most `limit` wallets of the chain, the oldest first.
pub async fn wanted(connection: &mut impl Connection, chain: Chain, limit: u32) -> Result<Vec<Wanted>, StoreError> {
    let rows = fetch_all!(connection, WantedRow, WANTED, chain.name(), i64::from(limit))?;
    let wanted = |row: WantedRow| {
        Ok(Wanted {
            wallet: address("wallet", &row.wallet)?,
            transfer_id: parsed("transfer id", &row.transfer_id)?,
            account_id: row.account_id,
            source_tag: row.source_tag,
            since: Timestamp(row.since_us),
            nonce: row.nonce.map(|nonce| uint("nonce", nonce)).transpose()?,
            is_needed: row.is_needed,
        })
    };
    rows.into_iter().map(wanted).collect()
}

/// Records what is going to be signed to take a wallet's delegate away, which `carried_by` carries with others; what is on
/// record stays.
pub async fn make(
    tx: &mut Tx,
    chain: Chain,
    clearing: &Authorization,
    (id, carried_by): (TransferId, TransferId),
    now: Timestamp,
) -> Result<(), StoreError> {
    let Authorization { wallet, implementation, nonce, .. } = clearing;
    let (wallet, code, nonce) = (wallet.as_bytes(), implementation.as_bytes(), int(*nonce));
    let (id, carried_by) = (id.to_string(), carried_by.to_string());
    execute!(tx, INTEND_CLEARING, chain.name(), wallet, nonce, code, now.0, id, carried_by)?;
    execute!(tx, MAKE, Some(nonce), chain.name(), wallet).map(drop)
}

/// The wallet's nonce has moved on, and its delegate acts still: another is to be made.
pub async fn renew(tx: &mut Tx, chain: Chain, wallet: &Address) -> Result<(), StoreError> {
    execute!(tx, MAKE, None::<i64>, chain.name(), wallet.as_bytes()).map(drop)
}

/// No delegate acts for the wallet any more.
pub async fn remove(tx: &mut Tx, chain: Chain, wallet: &Address) -> Result<(), StoreError> {
    execute!(tx, REMOVE, chain.name(), wallet.as_bytes()).map(drop)
}

/// All that take delegates away and are under way on the chain.
pub async fn under_way(connection: &mut impl Connection, chain: Chain) -> Result<Vec<Clearing>, StoreError> {
    type Row = (String, Vec<u8>, i64, String, String, Option<Vec<u8>>);
    let mut clearings: Vec<Clearing> = Vec::new();
    for (id, wallet, nonce, account_id, source_tag, signature) in fetch_all!(connection, Row, TUPLES, chain.name())? {
        let id = parsed("transfer id", &id)?;
        let (wallet, nonce) = (address("wallet", &wallet)?, uint("nonce", nonce)?);
        let tuple = Tuple { wallet, nonce, account_id, source_tag, signature };
        match clearings.last_mut().filter(|last| last.id == id) {
            Some(last) => last.tuples.push(tuple),
            None => clearings.push(Clearing { id, tuples: vec![tuple], attempts: Vec::new() }),
        }
    }
    for clearing in &mut clearings {
        clearing.attempts = attempts::of_clearing(connection, clearing.id).await?;
    }
    Ok(clearings)
}

/// The transfers that bear what this costs, the one whose attempts carry it first.
pub async fn bearers(connection: &mut impl Connection, carried_by: TransferId) -> Result<Vec<TransferId>, StoreError> {
    let rows = fetch_all!(connection, (String,), BEARERS, carried_by.to_string())?;
    rows.iter().map(|(id,)| parsed("transfer id", id)).collect()
}
