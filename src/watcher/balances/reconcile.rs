//! Compares two readings of what an address holds with what is on record between them: what was held and what came is what left
//! and what is held.
//!
//! A difference is told to a person and is never a deposit: no block names it, so nothing proves whose it is. Coinbase tips and
//! genesis come without a transaction; a token that keeps a fee or rebases moves other amounts than its logs say; and an
//! endpoint may have left out what nobody else was asked for. Nothing halts for it.
//!
//! Promises: only such readings are compared between which all that moves is seen, so that honest endpoints and a plain token
//! make no entry. Tokens and Solana's SOL are compared always, whichever way blocks are proved: by logs, too, what a watched
//! address pays is read in full. The native currency of an EVM chain is compared with `trace` and `log_transfer`, and with
//! `top_level` from `eip7708_from` on only. Not compared is what has no older reading from behind whose block the address is
//! watched and the asset followed; a token, or wrapped SOL that counts as SOL, of an owner to whom some once came in another
//! account than the one that is read; blocks that were followed with other settings; and thousands of movements at once.

use landfall_chain::{AssetId, Network};

use crate::balance::{Readings, Unexplained};
use crate::store::{StoreError, Tx, traces, unexplained};

/// What came of a comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::watcher) enum Compared {
    /// There is nothing to report.
    Even,
    Uneven(Unexplained),
    /// A block between them is still to be traced: the older reading is kept for the next one.
    TooEarly,
}

/// From which block on all that moves of an asset is seen; `None` where it is not.
pub(in crate::watcher) fn seen_from(network: &Network, asset: &AssetId) -> Option<u64> {
    match asset {
        AssetId::Native if network.leaves_out_inner_value() => network.native.eip7708_from,
        AssetId::Token(_) if network.wrapped == Some(*asset) => None,
        AssetId::Native | AssetId::Token(_) => Some(0),
    }
}

/// Compares what was held with what is held. All blocks between are connected, and the older one is seen from behind.
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
