//! Solana: reads a chain slot by slot, and blocks by the balances that they report.
//!
//! - [`source`]: what a watcher reads; `dialect`: how endpoints are polled; `calls`: what one endpoint is asked for;
//!   `client`: the light calls, by solana-client; `poll_cache`: what an endpoint reported a moment ago
//! - `assets`: what a listed mint is, as the chain has it; [`mint`]: what its account says
//! - `holdings`: what owners hold of the listed assets, as endpoints report it alike
//! - `search`, `signatures`: in which slots single addresses were named
//! - `quorum`: blocks that two endpoints must report alike; [`digest`]: what of a block is compared
//! - `readings`: what one endpoint reported of blocks before; `second_wait`: how long the second is waited for
//! - [`sample`]: which blocks are compared although they concern nobody; `cross_check`: what is read again before it
//!   counts as final
//! - `walk`: slots are read in order, and linked by their parents
//! - [`mod@networks`]: the facts of each network, embedded from `networks/*.toml`
//! - [`rules`]: what is listed, and whether wrapped SOL counts as SOL; [`options`]: what an operator sets beside the
//!   facts
//! - [`read`]: from the bytes of a `getBlock` answer to a block
//! - [`sender`]: who paid, when balances alone do not show it: from a `getTransaction` answer
//! - [`links`], [`reaction`]: how slots are linked; what follows from a node's refusal
//! - `wire`, `tx`: the answers as borrowed structs; one transaction's balances, checked; `scan`: as `wire`, faster,
//!   for plain blocks
//! - `credit`: what each owner gained and lost, and which of it is a credit (`native`, `tokens`)
//! - `instructions`: the few instructions that move value, for naming a sender and nothing else
//! - [`pay`]: money out: the transaction that makes a guard and pays, and what blocks show of it
//! - `ata`, `base58`: where an owner's tokens belong; keys as text
//!
//! Promises: credits are net changes of balances, never instructions or logs; integers only; an answer that is not
//! whole is no block; bad input never panics.
#![deny(clippy::float_arithmetic)]

pub mod digest;
pub mod error;
pub mod links;
pub mod mint;
pub mod networks;
pub mod options;
pub mod pay;
pub mod reaction;
pub mod read;
pub mod rules;
pub mod sample;
pub mod sender;
pub mod source;

mod assets;
mod ata;
mod base58;
mod calls;
mod client;
mod credit;
mod cross_check;
mod dialect;
mod holdings;
mod instructions;
mod poll_cache;
mod quorum;
mod readings;
mod scan;
mod search;
mod second_wait;
mod signatures;
mod tx;
mod walk;
mod wire;

pub use ata::TokenProgram;
pub use digest::Digest;
pub use error::{SolanaError, Unusable};
pub use landfall_rpc::{EndpointUrl, Timings};
pub use networks::{genesis, network, networks};
pub use options::{HOLDINGS_PAUSE, Options, POLL};
pub use read::{Asked, Candidate, block};
pub use rules::{Rules, WRAPPED_SOL, Wrapped};
pub use sample::Sample;
pub use source::SolanaSource;
