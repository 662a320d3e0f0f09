//! Compares two readings of what an address holds with the record between them: what was held and what came must equal
//! what left and what is held.
//!
//! A difference is reported to a person and is never a deposit: no block names it, so nothing proves whose it is.
//! Coinbase tips and genesis come without a transaction. A token that keeps a fee or rebases moves other amounts than
//! its logs say. An endpoint may have left out what no other was asked for. Nothing halts for it.
//!
//! Promises: readings are compared only if every movement between them is seen, so that honest endpoints and a plain
//! token make no entry. Tokens and Solana's SOL are always compared, however blocks are proved: even by logs, what a
//! watched address pays is read in full. The native currency of an EVM chain is compared with `trace` and
//! `log_transfer`; with `top_level` only from `eip7708_from` on.
//! Not compared are:
//! - a first reading: the older one must be from after the address was watched and the asset followed;
//! - a token, or wrapped SOL that counts as SOL, whose owner once got some in another account than the one that is
//!   read;
//! - blocks that were followed with other settings;
//! - thousands of movements at once.

use landfall_chain::{AssetId, Network};

use crate::balance::{Readings, Unexplained};
use crate::store::{StoreError, Tx, traces, unexplained};

/// What came of a comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::watcher) enum Compared {
    /// Nothing to report.
    Even,
    Uneven(Unexplained),
    /// A block between them is not traced yet: the older reading is kept for the next comparison.
    TooEarly,
}

/// From which block on every movement of an asset is seen; `None` if not all are.
pub(in crate::watcher) fn seen_from(network: &Network, asset: &AssetId) -> Option<u64> {
    match asset {
        AssetId::Native if network.leaves_out_inner_value() => network.native.eip7708_from,
        AssetId::Token(_) if network.wrapped == Some(*asset) => None,
        AssetId::Native | AssetId::Token(_) => Some(0),
    }
}

/// Compares what was held with what is held. All blocks between are connected, and movements are seen from the block of
/// the older reading on.
pub(in crate::watcher) async fn compare(tx: &mut Tx, readings: &Readings) -> Result<Compared, StoreError> {
    let Readings { chain, asset, had, has, .. } = readings;
    if *asset == AssetId::Native && traces::are_untraced(tx, *chain, had.number + 1..=has.number).await? {
        return Ok(Compared::TooEarly);
    }
    let moved = unexplained::moved(tx, readings).await?;
    let Some(difference) = moved.and_then(|moved| readings.unexplained(&moved)) else { return Ok(Compared::Even) };
    let is_unseen = unexplained::is_unseen(tx, readings).await?;
    Ok(if is_unseen { Compared::Even } else { Compared::Uneven(difference) })
}
