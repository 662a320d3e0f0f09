//! Which blocks of a range of final ones to read: the logs of listed contracts by ranges, compared with every header.
//!
//! Promises: every block of the range has its header proved and linked to its parent. A block is reported in these
//! cases:
//! - a log of it names a watched address
//! - its bloom contradicts the logs that were shown, or says nothing
//! - a proved transaction names a watched address, or is a deposit that creates a contract, where native movements are
//!   not logged, and on the OP stack, whose mints never are
//! - a withdrawal names one
//!
//! So a block that is not reported holds nothing of ours, except logs that a node left out while it showed others of
//! the same contract and block: only receipts prove more. Where native movements are logged, it does not see the fees
//! of a watched address for a transaction that moved nothing. A request that fails ends the search there: what was
//! found before is reported. A lie is reported instead of all. How many blocks one call asks for is learnt of each
//! endpoint: fewer when it refuses or answers too much, else more.

use std::ops::RangeInclusive;

use alloy_trie::EMPTY_ROOT_HASH;
use futures_util::{StreamExt, stream};
use landfall_chain::{Address, Candidates, Header};
use landfall_rpc::{Dialect, Fault, Limit};
use serde_json::json;

use crate::dialect::{Endpoint, Evm};
use crate::error::{Check, EvmError};
use crate::headers::{BY_NUMBER, HeaderOnly, by_number, proved_header, refused};
use crate::legs::{self, withdrawals};
use crate::logs::seen::Seen;
use crate::logs::{LOGS, bloom, bloom_is_mute};
use crate::polygon;
use crate::proof::encode::created_contract;
use crate::proof::{self, Refusal};
use crate::read::{FullBlock, Reader};
use crate::stack::Stack;
use crate::wire::WireBlock;

/// How many ranges are read at once. Together with the limit on an endpoint's answers it bounds the memory.
const RANGES_AHEAD_MAX: usize = 3;
/// How many blocks one request asks for: headers, or blocks with their transactions.
const HEADERS_MAX: usize = 200;
const FULL_MAX: usize = 20;

impl Reader {
    /// The headers of `range` as far as they are linked, and the blocks that must be read.
    pub(crate) async fn candidates(
        &self,
        endpoint: &Endpoint,
        range: RangeInclusive<u64>,
        watched: &(dyn Fn(&Address) -> bool + Sync),
    ) -> Result<Candidates, EvmError> {
        let ranges = stream::iter(ranges(endpoint, range));
        let mut scans = ranges.map(|range| self.range(endpoint, range, watched)).buffered(RANGES_AHEAD_MAX);
        let mut all = Candidates::default();
        while let Some(part) = scans.next().await {
            let (asked, part) = match part {
                Ok(part) => part,
                Err(error) => {
                    self.ends(endpoint, &all, error)?;
                    break;
                }
            };
            let is_linked = match (all.headers.last(), part.headers.first()) {
                (Some(parent), Some(first)) => first.parent == parent.block,
                (None, _) | (_, None) => true,
            };
            let is_whole = part.headers.last().is_some_and(|last| last.block.number == *asked.end());
            if is_linked {
                all.headers.extend(part.headers);
                all.hits.extend(part.hits);
            }
            if !is_linked || !is_whole {
                break;
            }
        }
        Ok(all)
    }

    async fn range(
        &self,
        endpoint: &Endpoint,
        range: RangeInclusive<u64>,
        watched: &(dyn Fn(&Address) -> bool + Sync),
    ) -> Result<(RangeInclusive<u64>, Candidates), EvmError> {
        let mut seen = Seen::new(&self.sources, watched);
        self.logs(endpoint, range.clone(), &mut seen).await?;
        let mut found = Candidates::default();
        let mut first = *range.start();
        while first <= *range.end() {
            // The mints of the OP stack are in no log.
            let is_reported = |at| self.sources.log_native(at) && self.rules.stack != Stack::Op;
            let is_logged = is_reported(first);
            let many = if is_logged { HEADERS_MAX } else { FULL_MAX };
            let numbers = (first..=*range.end()).take(many).take_while(|at| is_reported(*at) == is_logged);
            let numbers: Vec<u64> = numbers.collect();
            let answers = match endpoint.ask_all(&by_number(numbers.iter().copied(), !is_logged)).await {
                Ok(answers) => answers,
                Err(error) => {
                    self.ends(endpoint, &found, error)?;
                    return Ok((range, found));
                }
            };
            for (number, answer) in numbers.iter().zip(&answers) {
                let reported = if is_logged {
                    let block: Option<HeaderOnly<'_>> = endpoint.parse(BY_NUMBER, answer)?;
                    block.map(|block| reported(self, endpoint, *number, &block, &seen)).transpose()?
                } else {
                    let found = self.next(endpoint, *number, answer, None)?;
                    let reported = |block: &FullBlock<'_>| -> Result<(Header, bool), EvmError> {
                        let (header, is_hit) = reported(self, endpoint, *number, block, &seen)?;
                        Ok((header, is_hit || pays_watched(self, endpoint, &header, block, &seen)?))
                    };
                    found.map(|found| reported(&found.block)).transpose()?
                };
                let Some((header, is_hit)) = reported else { return Ok((range, found)) };
                if found.headers.last().is_some_and(|parent| parent.block != header.parent) {
                    return Ok((range, found));
                }
                found.headers.push(header);
                found.hits.extend(is_hit.then_some(header.block));
            }
            first += u64::try_from(numbers.len()).unwrap_or(u64::MAX);
            // Proving is work for the processor: others may run.
            tokio::task::yield_now().await;
        }
        Ok((range, found))
    }

    /// Ends a search that has `found` so much with an error. It is returned when nothing was found, and when it says
    /// more than that the endpoint did not serve: an endpoint that lied once may have withheld logs before.
    fn ends(&self, endpoint: &Endpoint, found: &Candidates, error: EvmError) -> Result<(), EvmError> {
        if found.headers.is_empty() || Evm::fault(&error) != Fault::Failing {
            return Err(error);
        }
        // Others are asked first for the rest of the range.
        self.pool.noted(endpoint, &error);
        Ok(())
    }

    /// Reads the logs of `range`, in as many calls as the node wants.
    async fn logs(&self, endpoint: &Endpoint, range: RangeInclusive<u64>, seen: &mut Seen<'_>) -> Result<(), EvmError> {
        // The next to ask for is the last.
        let mut left = vec![range];
        while let Some(range) = left.pop() {
            let (first, last) = (*range.start(), *range.end());
            let filter = json!({ "fromBlock": format!("{first:#x}"), "toBlock": format!("{last:#x}") });
            let Some(call) = self.sources.call(filter) else { return Ok(()) };
            let width = last - first + 1;
            // A failed try may have been too much, whatever the error says: the next try is narrower.
            let narrow = || endpoint.range_refused(Limit::TooManyResults { range: None }, width);
            let answer = endpoint.ask(&[call]).await.inspect_err(|_| _ = narrow())?;
            match answer.into_iter().next().ok_or_else(|| endpoint.unusable(LOGS, "no answer"))? {
                Ok(answer) => {
                    let unusable = |error: crate::logs::seen::BadLogs| endpoint.unusable(LOGS, &error.to_string());
                    seen.add(answer.get()).map_err(unusable)?;
                    endpoint.range_served(width, answer.get().len());
                }
                Err(error) if error.limit.is_some_and(|limit| endpoint.range_refused(limit, width)) => {
                    let middle = first + (last - first) / 2;
                    left.extend([middle + 1..=last, first..=middle]);
                }
                Err(error) => {
                    narrow();
                    return Err(endpoint.refused(LOGS, &error));
                }
            }
        }
        Ok(())
    }
}

/// The range in parts, each as wide as is known to be served when it begins.
fn ranges(endpoint: &Endpoint, range: RangeInclusive<u64>) -> impl Iterator<Item = RangeInclusive<u64>> {
    let (mut first, last) = range.into_inner();
    std::iter::from_fn(move || {
        let part = first..=last.min(first.saturating_add(endpoint.range_width() - 1));
        first = part.end().saturating_add(1);
        (!part.is_empty()).then_some(part)
    })
}

/// The header, and whether its bloom and its logs say that the block must be read.
fn reported<T>(
    reader: &Reader,
    endpoint: &Endpoint,
    number: u64,
    block: &WireBlock<'_, T>,
    seen: &Seen<'_>,
) -> Result<(Header, bool), EvmError> {
    let header = proved_header(endpoint, number, block)?;
    let bloom = bloom(endpoint, block)?;
    let refused = |refusal| refused(endpoint, header.block, BY_NUMBER, &refusal);
    proof::withdrawals(reader.rules.stack, block).map_err(refused)?;
    let mut withdrawals = withdrawals::of_block(reader.rules.stack, block).iter();
    let is_withdrawn = withdrawals.any(|withdrawal| seen.is_watched(withdrawal.address.into()));
    let seen = seen.block(number);
    if seen.is_some_and(|seen| seen.hash != block.hash) {
        return Err(endpoint.unusable(LOGS, &format!("logs of another block {number} than {}", header.block)));
    }
    let is_empty = block.transactions_root == EMPTY_ROOT_HASH;
    let is_mute = bloom_is_mute(reader.rules.stack, block, is_empty, &bloom);
    let fit = reader.sources.compare(number, &bloom, seen.map_or(&[], |seen| &seen.shown));
    // A mute bloom makes the block a hit, and contradicts nothing: state-syncs are shown, and were in no bloom.
    if fit.excludes && !is_mute {
        return Err(contradicted(endpoint, &header));
    }
    Ok((header, is_withdrawn || is_mute || fit.misses || seen.is_some_and(|seen| seen.is_hit)))
}

/// Whether a transaction of the block names a watched address, as its root proves.
fn pays_watched(
    reader: &Reader,
    endpoint: &Endpoint,
    header: &Header,
    block: &FullBlock<'_>,
    seen: &Seen<'_>,
) -> Result<bool, EvmError> {
    // Proved only together with an encoding that needs a call of its own: the block is read in full.
    if polygon::state_sync(reader.rules.stack, header.block, block).is_some() {
        return Ok(true);
    }
    // Their hashes are not checked here: the full read of the block proves them.
    proof::unnamed_transactions(reader.rules.stack, block)
        .map_err(|refusal| refused(endpoint, header.block, BY_NUMBER, &refusal))?;
    Ok(block.transactions.iter().any(|tx| {
        if legs::creates_by_deposit(reader.rules.stack, tx) {
            return true;
        }
        let to = tx.to.map_or_else(|| created_contract(&tx.from, tx.nonce.0), Into::into);
        seen.is_watched(to) || seen.is_watched(tx.from.into())
    }))
}

fn contradicted(endpoint: &Endpoint, header: &Header) -> EvmError {
    refused(endpoint, header.block, LOGS, &Refusal::Unproved(Check::Bloom))
}
