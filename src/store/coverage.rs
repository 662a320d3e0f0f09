//! Which blocks were matched against an address, as far as the record shows.
//!
//! Following leaves no gap: each block from the one that an address is watched from up to the cursor was matched. Below
//! that, only what backfills read for it counts. A backfill without an end is left out, because its end is not on
//! record.

use landfall_chain::{Address, Chain, Lane, Native, Proof, ReadProof};

use crate::store::sql::{fetch_all, statements};
use crate::store::{Connection, StoreError, accounts, backfills, int, native_settings, parsed, uint};

/// What is known of one address on one chain. Numbers are inclusive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AddressCoverage {
    pub chain: Chain,
    pub address: Address,
    /// The first block that is matched against it.
    pub watched_from: u64,
    /// The newest block that was matched; `None` before the first.
    pub complete_through: Option<u64>,
    /// The newest of these that is final.
    pub final_through: Option<u64>,
    /// The newest block up to which value inside of transactions was read from traces too. `None` if the chain is not
    /// traced, and before the first.
    pub traced_through: Option<u64>,
    pub backfilled: Vec<Backfilled>,
}

impl AddressCoverage {
    /// The first block from which on each was matched against it in full, backfills included, whatever traces show.
    pub fn matched_from(&self) -> u64 {
        let mut from = self.watched_from;
        let is_full = |part: &&Backfilled| part.lane == Lane::Block && part.proof == ReadProof::Full;
        while let Some(part) =
            self.backfilled.iter().filter(is_full).find(|part| part.from < from && part.to.saturating_add(1) >= from)
        {
            from = part.from;
        }
        from
    }
}

/// A part of the past that was read for an address, both ends inclusive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Backfilled {
    pub from: u64,
    pub to: u64,
    pub proof: ReadProof,
    /// The lane that was read.
    pub lane: Lane,
    /// The weakest proof of what was read, if that is on record.
    pub level: Option<Proof>,
}

statements! {
    OF_ACCOUNT = "SELECT watched.chain, watched.address, watched.seq, watched.from_number, cursors.number AS at, \
                  cursors.final_number, trace_status.chain IS NOT NULL AS is_traced, \
                  (SELECT MIN(blocks.number) FROM blocks WHERE blocks.chain = watched.chain AND blocks.canonical \
                   AND NOT blocks.traced AND blocks.number >= watched.from_number) AS untraced \
                  FROM watched_addresses AS watched JOIN cursors ON cursors.chain = watched.chain \
                  LEFT JOIN trace_status ON trace_status.chain = watched.chain \
                  WHERE watched.account_id = $1 ORDER BY watched.chain, watched.address";
    BACKFILLS = "SELECT from_number, to_number, proof, scope, basis, level, next_number FROM backfills \
                 WHERE chain = $1 AND next_number > from_number AND to_number < $2 ORDER BY from_number, to_number, proof";
}

/// The recorded end of a backfill that has none: no block has such a number.
const NO_END: i64 = i64::MAX - 1;

type Row = (String, Vec<u8>, i64, i64, Option<i64>, Option<i64>, bool, Option<i64>);
type BackfillRow = (i64, i64, String, String, String, Option<String>, i64);

struct OfChain {
    chain: Chain,
    backfills: Vec<BackfillRow>,
    /// The settings under which it was followed, each from a block on.
    settings: Vec<(u64, Native)>,
}

pub async fn of_account(
    connection: &mut impl Connection,
    account_id: &str,
) -> Result<Vec<AddressCoverage>, StoreError> {
    let rows = fetch_all!(connection, Row, OF_ACCOUNT, account_id)?;
    let mut found = Vec::with_capacity(rows.len());
    // The addresses of a chain are adjacent.
    let mut last: Option<OfChain> = None;
    for (chain, bytes, seq, from, at, final_at, is_traced, untraced) in rows {
        let address =
            Address::from_bytes(&bytes).map_err(|error| StoreError::inconsistent("watched address", error))?;
        let chain: Chain = parsed("chain", &chain)?;
        let of_chain = match last.take().filter(|last| last.chain == chain) {
            Some(known) => last.insert(known),
            None => {
                let backfills = fetch_all!(connection, BackfillRow, BACKFILLS, chain.name(), NO_END)?;
                let settings = native_settings::of_chain(connection, chain).await?;
                last.insert(OfChain { chain, backfills, settings })
            }
        };
        let OfChain { backfills, settings, .. } = of_chain;
        let first = settings.first().map(|(first, _)| int(*first));
        let (text, from) = (address.to_string(), accounts::matched_from(from, first)?);
        let read = backfills.iter().filter(|row| is_for(row, &text, seq)).map(backfilled);
        let read = read.collect::<Result<Vec<_>, StoreError>>()?;
        // Below the first block nothing is complete: if the cursor has not reached it, nothing is.
        let reached = |number: Option<i64>| {
            number.filter(|number| *number >= int(from)).map(|number| uint("block number", number)).transpose()
        };
        let unread = untraced.into_iter().chain(unshown(settings, from).map(int)).min();
        let traced = unread.map(|number| number - 1).or(at).filter(|_| is_traced);
        found.push(AddressCoverage {
            chain,
            address,
            watched_from: from,
            complete_through: reached(at)?,
            final_through: reached(final_at)?,
            traced_through: reached(traced)?,
            backfilled: read,
        });
    }
    Ok(found)
}

/// The first block from number `from` on that was followed with a setting that does not show what moves inside of
/// transactions.
fn unshown(settings: &[(u64, Native)], from: u64) -> Option<u64> {
    let ends = settings.iter().skip(1).map(|(first, _)| *first).chain([u64::MAX]);
    settings.iter().zip(ends).find_map(|((first, native), end)| {
        let first = from.max(*first);
        (first < end && !native.is_traced(first) && !native.is_logged(first)).then_some(first)
    })
}

/// Whether a backfill searched for the address: it was named, or all addresses that were watched then were searched
/// for.
fn is_for((.., scope, basis, _, _): &BackfillRow, address: &str, seq: i64) -> bool {
    if scope.is_empty() {
        let newest = basis.split('/').next().and_then(|newest| newest.parse::<i64>().ok());
        newest.is_some_and(|newest| seq <= newest)
    } else {
        scope.split(',').any(|named| named == address)
    }
}

fn backfilled((from, to, proof, _, _, level, next): &BackfillRow) -> Result<Backfilled, StoreError> {
    let (from, to) = (uint("from_number", *from)?, uint("to_number", (*to).min(next - 1))?);
    let (proof, lane) = backfills::read_proof(proof)?;
    Ok(Backfilled { from, to, proof, lane, level: backfills::read_level(level.clone())? })
}
