//! Guards that payments made, and the sponsors' transactions that take back what they hold: each on record before it is
//! signed, and its bytes before they are sent.
//!
//! Promise: a guard is of one open reclaim at most.

use landfall_chain::{Address, BlockHash, BlockRef, Chain, TxId, U256};
use sqlx_macros::FromRow;

use crate::store::deposits::{address, amount_of};
use crate::store::error::expect_one;
use crate::store::gas_ledger::Landed;
use crate::store::movements::tx_id;
use crate::store::sql::{execute, fetch_all, fetch_optional, statements};
use crate::store::{Connection, StoreError, Tx, hash, int, parsed, uint};
use crate::time::Timestamp;
use crate::transfer::TransferId;

/// A guard that stands, as our blocks show.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Guard {
    pub transfer_id: TransferId,
    /// Who paid for it.
    pub sponsor: Address,
    /// The time of the block that made it.
    pub made_at: Timestamp,
}

/// A sponsor's transaction that takes back what guards hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reclaiming {
    pub sponsor: Address,
    /// Counts those of its sponsor.
    pub number: u64,
    /// The block whose hash it names.
    pub recent: BlockRef,
    pub compute_limit: u32,
    pub recorded_at: Timestamp,
    /// The whole transaction and its id; `None` until it is signed.
    pub signed: Option<(Vec<u8>, TxId)>,
    /// When it was last handed to a node.
    pub sent_at: Option<Timestamp>,
    /// Of which transfers the guards are, and what it takes of each, in lamports.
    pub guards: Vec<(TransferId, u64)>,
}

/// What a canonical block shows of a reclaim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shown {
    pub tx: TxId,
    pub block: BlockRef,
    pub fee: U256,
    /// What it brought the sponsor; 0 where it failed.
    pub brought: u64,
}

/// What became of a reclaim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// It brought back what its guards held.
    Landed,
    /// It landed and failed.
    Failed,
    /// It cannot land any more.
    Dead,
}

statements! {
    MADE = "INSERT INTO guards (transfer_id, chain, sponsor, lamports, made_us, state) VALUES ($1, $2, $3, $4, $5, 'standing') \
            ON CONFLICT (transfer_id) DO NOTHING";
    STANDING = "SELECT g.transfer_id, g.sponsor, g.made_us FROM guards AS g JOIN transfers AS t ON t.id = g.transfer_id \
                JOIN sponsors AS s ON s.chain = g.chain AND s.address = g.sponsor AND s.state = 'active' \
                WHERE g.chain = $1 AND g.state = 'standing' AND g.reclaim IS NULL AND g.made_us <= $2 AND t.status = 'CONFIRMED' \
                ORDER BY g.made_us, g.transfer_id LIMIT $3";
    LOCKED = "SELECT g.sponsor, CAST(SUM(g.lamports) AS BIGINT) FROM guards AS g WHERE g.chain = $1 AND g.state = 'standing' GROUP BY g.sponsor ORDER BY g.sponsor";
    OPEN = "SELECT sponsor, number, recent_number, recent_hash, compute_limit, recorded_us, raw, tx_id, sent_us FROM reclaims \
            WHERE chain = $1 AND state = 'open' ORDER BY recorded_us, sponsor, number";
    TAKEN = "SELECT transfer_id, reclaim_lamports FROM guards WHERE chain = $1 AND sponsor = $2 AND reclaim = $3 ORDER BY transfer_id";
    LAST_NUMBER = "SELECT MAX(number) FROM reclaims WHERE chain = $1 AND sponsor = $2";
    RECORD = "INSERT INTO reclaims (chain, sponsor, number, recent_number, recent_hash, compute_limit, recorded_us, state) \
              VALUES ($1, $2, $3, $4, $5, $6, $7, 'open')";
    TAKE = "UPDATE guards SET reclaim = $1, reclaim_lamports = $2 WHERE transfer_id = $3 AND state = 'standing' AND reclaim IS NULL";
    SIGN = "UPDATE reclaims SET raw = $1, tx_id = $2 WHERE chain = $3 AND sponsor = $4 AND number = $5 AND raw IS NULL";
    SENT = "UPDATE reclaims SET sent_us = $1 WHERE chain = $2 AND sponsor = $3 AND number = $4";
    END_RECLAIM = "UPDATE reclaims SET state = $1 WHERE chain = $2 AND sponsor = $3 AND number = $4 AND state = 'open'";
    RECLAIMED = "UPDATE guards SET state = 'reclaimed' WHERE chain = $1 AND sponsor = $2 AND reclaim = $3 AND state = 'standing'";
    RELEASE = "UPDATE guards SET reclaim = NULL, reclaim_lamports = NULL WHERE chain = $1 AND sponsor = $2 AND reclaim = $3 AND state = 'standing'";
    GONE = "UPDATE guards SET state = 'gone' WHERE transfer_id = $1 AND state = 'standing' AND reclaim IS NULL";
    SHOWN = "SELECT f.block_number, f.block_hash, f.amount, f.outlay FROM fees AS f \
             JOIN blocks AS b ON b.chain = f.chain AND b.hash = f.block_hash WHERE f.chain = $1 AND f.payer = $2 AND f.tx_id = $3 \
             AND f.block_number >= $4 AND f.block_number <= $5 AND b.canonical ORDER BY f.block_number LIMIT 1";
    IS_RECORDED = "SELECT 1 FROM reclaims WHERE chain = $1 AND sponsor = $2 AND recent_hash = $3 ORDER BY number LIMIT 1";
}

#[derive(FromRow)]
struct Row {
    sponsor: Vec<u8>,
    number: i64,
    recent_number: i64,
    recent_hash: Vec<u8>,
    compute_limit: i64,
    recorded_us: i64,
    raw: Option<Vec<u8>>,
    tx_id: Option<Vec<u8>>,
    sent_us: Option<i64>,
}

/// Records that a final block shows a guard, with how much, and when it was made.
pub async fn made(
    tx: &mut Tx,
    chain: Chain,
    by: &Landed,
    (lamports, made_at): (u64, Timestamp),
) -> Result<(), StoreError> {
    let (id, sponsor) = (by.transfer_id.to_string(), by.sponsor.as_bytes());
    execute!(tx, MADE, id, chain.name(), sponsor, int(lamports), made_at.0).map(drop)
}

/// At most `limit` guards of CONFIRMED transfers that were made until `until` and that no reclaim takes, the oldest first.
pub async fn standing(
    connection: &mut impl Connection,
    chain: Chain,
    until: Timestamp,
    limit: u32,
) -> Result<Vec<Guard>, StoreError> {
    let rows = fetch_all!(connection, (String, Vec<u8>, i64), STANDING, chain.name(), until.0, i64::from(limit))?;
    let guard = |(id, sponsor, made): (String, Vec<u8>, i64)| {
        let (transfer_id, sponsor) = (parsed("transfer id", &id)?, address("sponsor", &sponsor)?);
        Ok(Guard { transfer_id, sponsor, made_at: Timestamp(made) })
    };
    rows.into_iter().map(guard).collect()
}

/// What guards of each sponsor hold, in lamports, as far as final blocks show.
pub async fn locked(connection: &mut impl Connection, chain: Chain) -> Result<Vec<(Address, u64)>, StoreError> {
    let rows = fetch_all!(connection, (Vec<u8>, i64), LOCKED, chain.name())?;
    let locked = |(sponsor, lamports): (Vec<u8>, i64)| Ok((address("sponsor", &sponsor)?, uint("lamports", lamports)?));
    rows.into_iter().map(locked).collect()
}

/// The reclaims that have neither landed nor died, the oldest first.
pub async fn open(connection: &mut impl Connection, chain: Chain) -> Result<Vec<Reclaiming>, StoreError> {
    let mut open = Vec::new();
    for row in fetch_all!(connection, Row, OPEN, chain.name())? {
        let taken = fetch_all!(connection, (String, Option<i64>), TAKEN, chain.name(), &row.sponsor, row.number)?;
        let guard = |(id, lamports): (String, Option<i64>)| {
            Ok::<_, StoreError>((parsed("transfer id", &id)?, uint("lamports", lamports.unwrap_or_default())?))
        };
        let guards = taken.into_iter().map(guard).collect::<Result<_, _>>()?;
        let recent_hash = BlockHash(hash("blockhash", &row.recent_hash)?);
        let signed = row.raw.zip(row.tx_id).map(|(raw, id)| Ok::<_, StoreError>((raw, tx_id(&id)?)));
        open.push(Reclaiming {
            sponsor: address("sponsor", &row.sponsor)?,
            number: uint("number", row.number)?,
            recent: BlockRef { number: uint("block number", row.recent_number)?, hash: recent_hash },
            compute_limit: uint("compute limit", row.compute_limit)?,
            recorded_at: Timestamp(row.recorded_us),
            signed: signed.transpose()?,
            sent_at: row.sent_us.map(Timestamp),
            guards,
        });
    }
    Ok(open)
}

/// Records a reclaim that is going to be signed, as the next one of its sponsor: its number is not looked at.
pub async fn record(tx: &mut Tx, chain: Chain, reclaim: &Reclaiming) -> Result<(), StoreError> {
    let Reclaiming { sponsor, recent, compute_limit, recorded_at, guards, .. } = reclaim;
    let sponsor = sponsor.as_bytes();
    let last = fetch_optional!(tx, (Option<i64>,), LAST_NUMBER, chain.name(), sponsor)?.and_then(|(last,)| last);
    let number = last.map_or(0, |last| last + 1);
    let (at, of, limit) = (int(recent.number), &recent.hash.0[..], i64::from(*compute_limit));
    let recorded = execute!(tx, RECORD, chain.name(), sponsor, number, at, of, limit, recorded_at.0)?;
    expect_one("record a reclaim", recorded)?;
    for (id, lamports) in guards {
        let taken = execute!(tx, TAKE, number, int(*lamports), id.to_string())?;
        expect_one("take a guard back", taken)?;
    }
    Ok(())
}

/// Whether a reclaim of this sponsor that names this blockhash is on record.
pub async fn is_recorded(
    connection: &mut impl Connection,
    chain: Chain,
    (sponsor, recent): (&Address, &BlockHash),
) -> Result<bool, StoreError> {
    let found = fetch_optional!(connection, (i32,), IS_RECORDED, chain.name(), sponsor.as_bytes(), &recent.0[..])?;
    Ok(found.is_some())
}

/// Records its bytes, before they are sent.
pub async fn sign(tx: &mut Tx, chain: Chain, of: &Reclaiming, (raw, id): (&[u8], &TxId)) -> Result<(), StoreError> {
    let (sponsor, number) = (of.sponsor.as_bytes(), int(of.number));
    let signed = execute!(tx, SIGN, raw, id.as_bytes(), chain.name(), sponsor, number)?;
    expect_one("record a signed reclaim", signed)
}

/// Records that it was handed to a node.
pub async fn sent(tx: &mut Tx, chain: Chain, of: &Reclaiming, now: Timestamp) -> Result<(), StoreError> {
    let sent = execute!(tx, SENT, now.0, chain.name(), of.sponsor.as_bytes(), int(of.number))?;
    expect_one("record that a reclaim was sent", sent)
}

/// Records what became of it: its guards are reclaimed, or wait for another one.
pub async fn end(tx: &mut Tx, chain: Chain, of: &Reclaiming, end: End) -> Result<(), StoreError> {
    let (sponsor, number) = (of.sponsor.as_bytes(), int(of.number));
    let ended = execute!(tx, END_RECLAIM, end.name(), chain.name(), sponsor, number)?;
    expect_one("end a reclaim", ended)?;
    match end {
        End::Landed => execute!(tx, RECLAIMED, chain.name(), sponsor, number).map(drop),
        End::Failed | End::Dead => execute!(tx, RELEASE, chain.name(), sponsor, number).map(drop),
    }
}

/// Records that a guard is there no more, and no block of ours says how.
pub async fn gone(tx: &mut Tx, id: TransferId) -> Result<(), StoreError> {
    execute!(tx, GONE, id.to_string()).map(drop)
}

/// What a canonical block up to `through` shows of it; `None` where none does.
pub async fn shown(
    connection: &mut impl Connection,
    chain: Chain,
    of: &Reclaiming,
    through: u64,
) -> Result<Option<Shown>, StoreError> {
    type Row = (i64, Vec<u8>, Vec<u8>, String);
    let Some((_, id)) = &of.signed else { return Ok(None) };
    let (sponsor, from) = (of.sponsor.as_bytes(), int(of.recent.number));
    let row = fetch_optional!(connection, Row, SHOWN, chain.name(), sponsor, id.as_bytes(), from, int(through))?;
    let shown = |(number, block, fee, outlay): Row| {
        let block = BlockRef { number: uint("block number", number)?, hash: BlockHash(hash("block hash", &block)?) };
        let brought = (-parsed::<i128>("outlay", &outlay)?).max(0);
        let brought = u64::try_from(brought).map_err(|error| StoreError::inconsistent("outlay", error))?;
        Ok(Shown { tx: *id, block, fee: amount_of(&fee)?, brought })
    };
    row.map(shown).transpose()
}

impl End {
    /// The name that is stored.
    const fn name(self) -> &'static str {
        match self {
            End::Landed => "landed",
            End::Failed => "failed",
            End::Dead => "dead",
        }
    }
}
