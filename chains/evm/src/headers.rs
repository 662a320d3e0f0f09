//! Headers: asked for by number, proved by their hash.

use std::ops::RangeInclusive;

use landfall_chain::{BlockHash, BlockRef, Header};
use landfall_rpc::{Call, Dialect};
use serde::de::IgnoredAny;
use serde_json::json;

use crate::dialect::{Endpoint, Evm};
use crate::error::EvmError;
use crate::proof::{self, Refusal};
use crate::wire::WireBlock;

pub(crate) const BY_NUMBER: &str = "eth_getBlockByNumber";
/// What is asked for beyond it is not returned.
pub(crate) const HEADERS_MAX: usize = Evm::BATCH_MAX;

pub(crate) type HeaderOnly<'a> = WireBlock<'a, IgnoredAny>;

pub(crate) async fn read_headers(endpoint: &Endpoint, range: RangeInclusive<u64>) -> Result<Vec<Header>, EvmError> {
    let answers = endpoint.ask_all(&by_number(range.clone().take(HEADERS_MAX), false)).await?;
    let mut headers: Vec<Header> = Vec::with_capacity(answers.len());
    for (number, answer) in range.zip(&answers) {
        let Some(block) = endpoint.parse::<Option<HeaderOnly<'_>>>(BY_NUMBER, answer)? else { break };
        let header = proved_header(endpoint, number, &block)?;
        if headers.last().is_some_and(|parent| parent.block != header.parent) {
            break;
        }
        headers.push(header);
    }
    Ok(headers)
}

pub(crate) fn proved_header<T>(endpoint: &Endpoint, asked: u64, block: &WireBlock<'_, T>) -> Result<Header, EvmError> {
    let number = block.number.0;
    if number != asked {
        return Err(endpoint.unusable(BY_NUMBER, &format!("asked for block {asked}, but got block {number}")));
    }
    let named = BlockRef { number, hash: BlockHash(block.hash.0) };
    proof::header(endpoint.chain, block).map_err(|refusal| refused(endpoint, named, BY_NUMBER, &refusal))
}

pub(crate) fn refused(endpoint: &Endpoint, block: BlockRef, method: &'static str, refusal: &Refusal) -> EvmError {
    let chain = endpoint.chain;
    match *refusal {
        Refusal::Unproved(check) => EvmError::ProofFailed { chain, endpoint: endpoint.id.clone(), block, check },
        Refusal::Unlogged { index } => EvmError::Unlogged { chain, block, index },
        Refusal::Unknown { what, kind } => EvmError::UpgradeNeeded { chain, block, what, kind },
        Refusal::Incomplete { what, index, missing } => {
            endpoint.unusable(method, &format!("block {block}, {what} at index {index}: {missing}"))
        }
    }
}

pub(crate) fn by_number(numbers: impl Iterator<Item = u64>, full: bool) -> Vec<Call> {
    numbers.map(|number| Call { method: BY_NUMBER, params: json!([format!("{number:#x}"), full]) }).collect()
}
