//! What an operator says of one network beside the facts in its file.
//!
//! Promises: what is left out is what the network's file says. Nothing here is read from a chain.

use std::time::Duration;

use landfall_chain::{AssetId, BlockHash};

use crate::ata::TokenProgram;
use crate::rules::Wrapped;

/// How often a tip is asked for where nobody says otherwise. With what is kept between polls (`reported`), and with what owners
/// hold asked for no more often than [`HOLDINGS_PAUSE`], an endpoint is asked for 1.5 light calls a second at most.
pub const POLL: Duration = Duration::from_millis(1_250);
/// How long after one call for what owners hold the next one is due, where nobody says otherwise.
pub const HOLDINGS_PAUSE: Duration = Duration::from_secs(5);

/// What an operator says; the default says nothing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// What endpoints must name as their genesis hash: for a cluster of one's own, which keeps the network's name.
    pub genesis: Option<BlockHash>,
    /// Up to which transaction version blocks are asked for at first; nodes raise it by what they refuse.
    pub max_transaction_version: Option<u8>,
    pub wrapped: Option<Wrapped>,
    /// The token program of mints that the operator listed; the others count under either.
    pub programs: Vec<(AssetId, TokenProgram)>,
    /// How often its tip is to be asked for. What endpoints say is kept for parts and multiples of that; 0 keeps nothing.
    pub poll: Duration,
}
