//! Whether endpoints that reported the same block agree on it, and what is believed then. No root covers a block on
//! Solana: that two report it alike is all the proof there is.
//!
//! Promises: two that agree are believed, whatever a third one says; one that reports that very block otherwise is
//! wrong. Where several reported one block and no two of them alike, none is believed. One that shows another block in
//! the slot is on another branch, or lags: that is no lie, and no vote either. Pure: who is asked, and when, is
//! `source`'s.

use landfall_chain::{Block, BlockRef, Chain, Proof};

use crate::calls::Reading;
use crate::dialect::Endpoint;
use crate::digest::Digest;
use crate::error::SolanaError;

/// What an endpoint reported of the block in a slot.
pub(crate) type Reported<'p> = (&'p Endpoint, Witnessed);

/// A reading, or what is left of an earlier one.
#[derive(Debug)]
pub(crate) struct Witnessed {
    pub(crate) digest: Digest,
    pub(crate) block: Option<Block>,
}

/// What endpoints reported of the block in a slot, and why others did not. `all_lack`: all others whose vote would
/// count answered that they do not have it.
#[derive(Debug)]
pub(crate) struct Testimony<'p> {
    pub(crate) reported: Vec<Reported<'p>>,
    pub(crate) missing: Vec<String>,
    pub(crate) all_lack: bool,
}

/// A block that two reported, and those that reported it otherwise.
#[derive(Debug)]
pub(crate) struct Agreed<'p> {
    pub(crate) digest: Digest,
    pub(crate) block: Block,
    pub(crate) wrong: Vec<(&'p Endpoint, SolanaError)>,
}

impl From<Reading> for Witnessed {
    fn from(Reading { digest, block }: Reading) -> Self {
        Witnessed { digest, block: Some(block) }
    }
}

/// Whether two of them agree.
pub(crate) fn agree(reported: &[Reported<'_>]) -> bool {
    agreed(reported).is_some()
}

/// What is believed of a block.
///
/// # Errors
/// Two reported it differently; or only one reported it. `missing` says why others did not.
pub(crate) fn believed<'p>(
    chain: Chain,
    mut reported: Vec<Reported<'p>>,
    missing: &[String],
) -> Result<Agreed<'p>, SolanaError> {
    let Some(digest) = agreed(&reported) else { return Err(unagreed(chain, &reported, missing)) };
    let others = names(reported.iter().filter(|(_, one)| one.digest == digest).map(|(endpoint, _)| *endpoint));
    let wrong = reported.iter().filter(|(_, one)| one.digest.block == digest.block).filter_map(|(endpoint, one)| {
        let (what, others) = (digest.difference(&one.digest)?, others.clone());
        let (block, endpoint_id) = (digest.block, endpoint.id.clone());
        Some((*endpoint, SolanaError::Outvoted { chain, endpoint: endpoint_id, block, others, what }))
    });
    let wrong = wrong.collect();
    let reported = reported.iter_mut().filter(|(_, one)| one.digest == digest).find_map(|(_, one)| one.block.take());
    // One of those that agree was read just now: of a block only one earlier report is kept.
    let block =
        reported.ok_or_else(|| unwitnessed(chain, format!("block {} was told before", digest.block), missing))?;
    Ok(Agreed { digest, block: Block { proof: Proof::TwoEndpoints, ..block }, wrong })
}

/// What two report alike.
fn agreed(reported: &[Reported<'_>]) -> Option<Digest> {
    let is_reported_again =
        |at: usize, digest: &Digest| reported[at + 1..].iter().any(|(_, other)| other.digest == *digest);
    reported
        .iter()
        .enumerate()
        .map(|(at, (_, one))| (at, one.digest))
        .find(|(at, one)| is_reported_again(*at, one))
        .map(|it| it.1)
}

fn unagreed(chain: Chain, reported: &[Reported<'_>], missing: &[String]) -> SolanaError {
    for (at, (_, one)) in reported.iter().enumerate() {
        let block = one.digest.block;
        let others = reported[at + 1..].iter().filter(|(_, other)| other.digest.block == block);
        if let Some(what) = others.clone().find_map(|(_, other)| one.digest.difference(&other.digest)) {
            let endpoints =
                names(reported.iter().filter(|(_, it)| it.digest.block == block).map(|(endpoint, _)| *endpoint));
            return SolanaError::BlocksDiffer { chain, endpoints, block, what };
        }
    }
    let shows = |(endpoint, one): &Reported<'_>| format!("endpoint {} shows block {}", endpoint.id, one.digest.block);
    let reported = match reported {
        [(endpoint, one)] => alone(endpoint, &one.digest.block),
        reported => reported.iter().map(shows).collect::<Vec<_>>().join(", "),
    };
    unwitnessed(chain, reported, missing)
}

fn alone(endpoint: &Endpoint, block: &BlockRef) -> String {
    format!("block {block} is told by endpoint {} alone", endpoint.id)
}

fn unwitnessed(chain: Chain, reported: String, missing: &[String]) -> SolanaError {
    let missing = if missing.is_empty() { "no other is configured".to_owned() } else { missing.join("; ") };
    SolanaError::Unwitnessed { chain, reported, missing, all_lack: false }
}

/// Sorted: the order of asking says nothing of who lies.
pub(crate) fn names<'p>(endpoints: impl Iterator<Item = &'p Endpoint>) -> String {
    let mut names: Vec<&str> = endpoints.map(|endpoint| endpoint.id.as_str()).collect();
    names.sort_unstable();
    names.join(" and ")
}
