//! An EVM chain in memory and JSON-RPC servers that show it, each with faults of its own.
//!
//! - [`chain`], `branch`: the chain and its verbs: mine, fork, restore, finalize; branches that never win, for lies
//! - [`tx`], [`wallet`]: what is mined, and who signs it
//! - [`block`], `mint`, `accounts`: how a block is made: hashes, roots, the account trie
//! - `text`, `traces`, [`recorded`]: blocks as nodes write them, also such as real nodes wrote
//! - [`busy`]: big chains at once, for benchmarks
//! - [`fault`], [`strikes`]: how a node misbehaves, and when; `view`: which blocks it shows while it does; `spoil`:
//!   what it makes of an answer
//! - [`pool`]: what a pool takes of those who hand it transactions, and its words
//! - [`mistake`]: what its tracer gets wrong, each time
//! - `answer`, [`logs`]: the methods; [`mod@http`], [`server`]: the sockets, the counts
//!
//! `http` and `strikes` know nothing of EVM chains: the servers of other families stand on them too.
//!
//! Promises: everything is encoded, hashed and signed by alloy's own types and tries, none of it by landfall-evm, so
//! that a block that proves there shows that both encode alike. The same calls give the same bytes.
//! Deliberately not here: an EVM. A test decides what a transaction does (its logs, its frames, its success).

pub mod block;
pub mod busy;
pub mod chain;
pub mod fault;
pub mod http;
pub mod logs;
pub mod mistake;
pub mod pool;
pub mod recorded;
pub mod server;
pub mod strikes;
pub mod tx;
pub mod wallet;

mod accounts;
mod answer;
mod branch;
mod mint;
mod spoil;
mod text;
mod traces;
mod view;

pub use alloy::primitives::{Address, B256, Bytes, Log, U256};
pub use block::{Block, LedgerLeg};
pub use branch::BAIT;
pub use chain::Chain;
pub use fault::{Fault, NO_BATCHES};
pub use logs::{LogLimits, Provider};
pub use mistake::Mistake;
pub use server::{Counts, Server};
pub use strikes::When;
pub use tx::{Frame, FrameKind, Kind, TRANSFER, Tx};
pub use wallet::{PAYERS, payer};
