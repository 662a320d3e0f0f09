//! Addresses that pay for transactions.
//!
//! A sponsor is asked for by its number, and the signer says its address; a restored row gets the same one.

use landfall_chain::{Address, Chain};
use sqlx_macros::FromRow;

use crate::store::deposits::address;
use crate::store::error::expect_one;
use crate::store::sql::{execute, fetch_all, fetch_optional, statements};
use crate::store::{Connection, StoreError, Tx, int, uint};
use crate::time::Timestamp;
use crate::transfer::SponsorState;

/// An address that pays for transactions of one chain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sponsor {
    pub number: u32,
    /// It carries nothing, and refills the others.
    pub is_treasury: bool,
    /// `None` until a process with a signer has derived it.
    pub address: Option<Address>,
    pub state: SponsorState,
    /// The first nonce that is ours; `None` until it was asked for.
    pub first_nonce: Option<u64>,
    /// The nonce behind the highest one that only the signer's journal knows; 0 where it knows no more than the attempts.
    pub journal_nonce: u64,
    /// The first block that is matched against it; `None` without an address.
    pub seen_from: Option<u64>,
    /// Since when nodes have said that it owns too little; `None` while they take what it pays for.
    pub poor_since: Option<Timestamp>,
}

statements! {
    ADD = "INSERT INTO sponsors (chain, number, state, created_us, is_treasury) \
           SELECT $1, COALESCE(MAX(number), -1) + 1, 'active', $2, $3 FROM sponsors WHERE chain = $1";
    OF_CHAIN = "SELECT number, is_treasury, address, state, first_nonce, journal_nonce, seen_from, poor_since_us FROM sponsors \
                WHERE chain = $1 ORDER BY number";
    DERIVED = "UPDATE sponsors SET address = $1, watch_seq = $4, seen_from = $5 WHERE chain = $2 AND number = $3 AND address IS NULL";
    TAKEN_UP = "UPDATE sponsors SET first_nonce = $1 WHERE chain = $2 AND number = $3 AND first_nonce IS NULL";
    JOURNALED = "UPDATE sponsors SET journal_nonce = $1 WHERE chain = $2 AND address = $3 AND (journal_nonce IS NULL OR journal_nonce < $1)";
    RESTART = "UPDATE sponsors SET first_nonce = NULL WHERE chain = $1 AND number = $2";
    SET_STATE = "UPDATE sponsors SET state = $1 WHERE chain = $2 AND number = $3 AND state = $4";
    STATE = "SELECT state FROM sponsors WHERE chain = $1 AND number = $2";
    POOR = "UPDATE sponsors SET poor_since_us = $1 WHERE chain = $2 AND address = $3 AND poor_since_us IS NULL";
    FUNDED = "UPDATE sponsors SET poor_since_us = NULL WHERE chain = $1 AND address = $2 AND poor_since_us IS NOT NULL";
    SEEN_FROM = "SELECT seen_from FROM sponsors WHERE chain = $1 AND address = $2";
}

#[derive(FromRow)]
struct Row {
    number: i64,
    is_treasury: bool,
    address: Option<Vec<u8>>,
    state: String,
    first_nonce: Option<i64>,
    journal_nonce: Option<i64>,
    seen_from: Option<i64>,
    poor_since_us: Option<i64>,
}

/// Asks for one more sponsor of the chain, or for its treasury.
pub async fn add(tx: &mut Tx, chain: Chain, is_treasury: bool, now: Timestamp) -> Result<(), StoreError> {
    let added = execute!(tx, ADD, chain.name(), now.0, is_treasury)?;
    expect_one("add a sponsor", added)
}

/// All sponsors of the chain, by number.
pub async fn of_chain(connection: &mut impl Connection, chain: Chain) -> Result<Vec<Sponsor>, StoreError> {
    let rows = fetch_all!(connection, Row, OF_CHAIN, chain.name())?;
    let sponsor = |row: Row| {
        let Row { number, is_treasury, address: bytes, state, first_nonce, journal_nonce, seen_from, poor_since_us } =
            row;
        Ok(Sponsor {
            number: uint("number", number)?,
            is_treasury,
            address: bytes.map(|bytes| address("sponsor", &bytes)).transpose()?,
            state: state.parse().map_err(|error| StoreError::inconsistent("state of a sponsor", error))?,
            first_nonce: first_nonce.map(|nonce| uint("nonce", nonce)).transpose()?,
            journal_nonce: uint("nonce", journal_nonce.unwrap_or_default())?,
            seen_from: seen_from.map(|number| uint("block number", number)).transpose()?,
            poor_since: poor_since_us.map(Timestamp),
        })
    };
    rows.into_iter().map(sponsor).collect()
}

/// The first block that is matched against the address, if it pays for transactions of the chain.
pub async fn seen_from(
    connection: &mut impl Connection,
    chain: Chain,
    of: &Address,
) -> Result<Option<u64>, StoreError> {
    let row = fetch_optional!(connection, (Option<i64>,), SEEN_FROM, chain.name(), of.as_bytes())?;
    row.and_then(|(from,)| from).map(|from| uint("block number", from)).transpose()
}

/// Records the address that the signer derived, its number on the chain's watch list, and the first block that is matched
/// against it; returns whether it was new. A sponsor that has one keeps it. The caller holds the lock of the chain's cursor,
/// and publishes the number.
pub async fn derived(
    tx: &mut Tx,
    chain: Chain,
    (number, address): (u32, &Address),
    (watch_seq, seen_from): (u64, u64),
) -> Result<bool, StoreError> {
    let (address, number) = (address.as_bytes(), i64::from(number));
    Ok(execute!(tx, DERIVED, address, chain.name(), number, int(watch_seq), int(seen_from))? == 1)
}

/// Records how many transactions it had sent before it was ours to use; it is recorded once.
pub async fn taken_up(tx: &mut Tx, chain: Chain, number: u32, nonce: u64) -> Result<(), StoreError> {
    execute!(tx, TAKEN_UP, int(nonce), chain.name(), i64::from(number)).map(drop)
}

/// Records that the signer's journal has an attempt at this nonce that is not on record here.
pub async fn journaled(tx: &mut Tx, chain: Chain, address: &Address, nonce: u64) -> Result<(), StoreError> {
    execute!(tx, JOURNALED, int(nonce.saturating_add(1)), chain.name(), address.as_bytes()).map(drop)
}

/// Its first nonce is asked for anew: what it has sent until then, somebody else has, or an older store.
pub async fn restart(tx: &mut Tx, chain: Chain, number: u32) -> Result<(), StoreError> {
    let restarted = execute!(tx, RESTART, chain.name(), i64::from(number))?;
    expect_one("restart a sponsor", restarted)
}

/// Moves it from a state to another.
pub async fn set_state(
    tx: &mut Tx,
    chain: Chain,
    number: u32,
    (from, to): (SponsorState, SponsorState),
) -> Result<(), StoreError> {
    let set = execute!(tx, SET_STATE, to.name(), chain.name(), i64::from(number), from.name())?;
    expect_one("change the state of a sponsor", set)
}

/// Its state at this moment.
pub async fn state(connection: &mut impl Connection, chain: Chain, number: u32) -> Result<SponsorState, StoreError> {
    let row = fetch_optional!(connection, (String,), STATE, chain.name(), i64::from(number))?;
    let (state,) = row.ok_or_else(|| StoreError::inconsistent("sponsor", "it is not there"))?;
    state.parse().map_err(|error| StoreError::inconsistent("state of a sponsor", error))
}

/// A node says that it owns too little. What is on record of an earlier time stays.
pub async fn poor(tx: &mut Tx, chain: Chain, of: &Address, now: Timestamp) -> Result<(), StoreError> {
    execute!(tx, POOR, now.0, chain.name(), of.as_bytes()).map(drop)
}

/// A node takes what it pays for.
pub async fn funded(tx: &mut Tx, chain: Chain, of: &Address) -> Result<(), StoreError> {
    execute!(tx, FUNDED, chain.name(), of.as_bytes()).map(drop)
}
