//! The progress of each backfill. A row only saves work: without it the range is read again, with no harm.

use landfall_chain::{Chain, Lane, Proof, ReadProof};
use sha2::{Digest, Sha256};

use crate::store::error::expect_one;
use crate::store::sql::{execute, fetch_optional, statements};
use crate::store::{Connection, StoreError, Tx, int, parsed, uint};
use crate::time::Timestamp;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BackfillRow {
    /// Both inclusive.
    pub from: u64,
    pub to: u64,
    pub proof: ReadProof,
    /// What it reads of the blocks; each lane has a row of its own.
    pub lane: Lane,
    /// The addresses; empty for all.
    pub scope: String,
    /// What was searched for; the text differs if that does.
    pub basis: String,
    pub next: u64,
    /// How many deposits it has recorded.
    pub found: u64,
    /// The weakest proof of what was read; `None` if that is not on record.
    pub level: Option<Proof>,
}

/// Bytes. An entry of PostgreSQL's index can hold 2,704, including the other columns.
const SCOPE_IN_KEY_MAX: usize = 2_000;
/// The suffix of the proof in the row of the traces.
const TRACES: &str = "/traces";

statements! {
    LOAD = "SELECT basis, next_number, found, level FROM backfills \
            WHERE chain = $1 AND from_number = $2 AND to_number = $3 AND proof = $4 AND scope_key = $5";
    SAVE = "INSERT INTO backfills (chain, from_number, to_number, proof, scope, scope_key, basis, next_number, found, created_us, updated_us, level) \
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $10, $11) \
            ON CONFLICT (chain, from_number, to_number, proof, scope_key) DO UPDATE \
            SET basis = excluded.basis, next_number = excluded.next_number, found = excluded.found, updated_us = excluded.updated_us, \
            level = excluded.level";
}

/// The backfill on record with the range, proof, lane and scope of `wanted`.
pub async fn load(
    connection: &mut impl Connection,
    chain: Chain,
    wanted: &BackfillRow,
) -> Result<Option<BackfillRow>, StoreError> {
    let BackfillRow { from, to, proof, lane, scope, .. } = wanted;
    let proof = proof_text(*proof, *lane);
    type Row = (String, i64, i64, Option<String>);
    let row = fetch_optional!(connection, Row, LOAD, chain.name(), int(*from), int(*to), proof, scope_key(scope))?;
    let row = row.map(|(basis, next, found, level)| {
        let (next, found) = (uint("next_number", next)?, uint("found", found)?);
        Ok(BackfillRow { basis, next, found, level: read_level(level)?, ..wanted.clone() })
    });
    row.transpose()
}

pub async fn save(tx: &mut Tx, chain: Chain, row: &BackfillRow, now: Timestamp) -> Result<(), StoreError> {
    let BackfillRow { from, to, proof, lane, scope, basis, next, found, level } = row;
    let proof = proof_text(*proof, *lane);
    let (from, to, next, found) = (int(*from), int(*to), int(*next), int(*found));
    let (key, level) = (scope_key(scope), level.map(Proof::name));
    let saved = execute!(tx, SAVE, chain.name(), from, to, proof, scope, key, basis, next, found, now.0, level)?;
    expect_one("record backfill", saved)
}

/// The addresses as the key of a row holds them: themselves, or their hash if they are too long.
fn scope_key(scope: &str) -> String {
    if scope.len() <= SCOPE_IN_KEY_MAX { scope.to_owned() } else { hex::encode(Sha256::digest(scope)) }
}

/// The proof and the lane as the column `proof` holds them.
fn proof_text(proof: ReadProof, lane: Lane) -> String {
    match lane {
        Lane::Block => proof.name().to_owned(),
        Lane::Traces => format!("{}{TRACES}", proof.name()),
    }
}

/// The proof in the column `level`.
pub(super) fn read_level(text: Option<String>) -> Result<Option<Proof>, StoreError> {
    text.map(|text| parsed("level of a backfill", &text)).transpose()
}

/// The proof and the lane in the column `proof`.
pub(super) fn read_proof(text: &str) -> Result<(ReadProof, Lane), StoreError> {
    let (proof, lane) = match text.strip_suffix(TRACES) {
        Some(proof) => (proof, Lane::Traces),
        None => (text, Lane::Block),
    };
    Ok((parsed("proof of a backfill", proof)?, lane))
}
