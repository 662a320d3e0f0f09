//! What an operator sets for one network beside the facts in its file.
//!
//! Promises: what is left out comes from the network's file. Nothing here is read from a chain.

use std::time::Duration;

use landfall_chain::{AssetId, BlockHash};
use landfall_rpc::Timings;

use crate::ata::TokenProgram;
use crate::rules::Wrapped;

/// How often a tip is asked for by default. Reports are kept between polls (`poll_cache`), and what owners hold is
/// asked for no more often than [`HOLDINGS_PAUSE`]. So an endpoint is asked for 1.5 light calls a second at most.
pub const POLL: Duration = Duration::from_millis(1_250);
/// How long after one call for what owners hold the next one is due, by default.
pub const HOLDINGS_PAUSE: Duration = Duration::from_secs(5);

/// An operator's settings; the default sets nothing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// What endpoints must name as their genesis hash: for a cluster of one's own, which keeps the network's name.
    pub genesis: Option<BlockHash>,
    /// Up to which transaction version blocks are asked for at first; refusals of nodes raise it.
    pub max_transaction_version: Option<u8>,
    pub wrapped: Option<Wrapped>,
    /// The token program of mints that the operator listed; the others count under either.
    pub programs: Vec<(AssetId, TokenProgram)>,
    /// How often its tip is to be asked for. Reports of endpoints are kept for parts and multiples of that; 0 keeps
    /// nothing.
    pub poll: Duration,
    /// How long its endpoints are waited for and left alone.
    pub timings: Timings,
}
