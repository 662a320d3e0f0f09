//! EVM chains: reads blocks over JSON-RPC and proves them.
//!
//! - [`mod@networks`]: the facts of each network, embedded from `networks/*.toml`
//! - [`source`]: [`EvmSource`], the crate's `BlockSource`
//! - `headers`, `read`, `fate`: its calls, each against one endpoint
//! - `dialect`, `tip`: what `landfall_rpc`, which asks the endpoints and chooses among them, must know of EVM nodes;
//!   where the chain ends, and what is final, by one endpoint's report
//! - `wire`, `hex`: the answers as borrowed structs that hold only what is needed
//! - `proof`: header hash, transactions root and receipts root, recomputed (`encode`, `rlp`, `trie`, `bloom`)
//! - `stack`, `polygon`: how a network differs from a plain EVM chain, and what Polygon puts into answers
//! - `byzantium`: what some nodes do not keep of the oldest receipts
//! - `legs`: the movements of a proved block, and which of them are credits (`native`, `withdrawals`); what its
//!   transactions cost (`fees`)
//! - `logs`: blocks by the logs of listed contracts, compared with the header's bloom; which blocks of a range to read
//!   (`scan`, `seen`)
//! - `traces`: what moved inside of transactions (`frames`), in the forms that nodes report it (`call_tracer`,
//!   `trace_block`); which reports agree (`witnesses`); blocks that are too heavy to be traced at once (`one_by_one`)
//! - `kept`: blocks that the roots have proved, until they are traced
//! - `accounts`, `signer`: what addresses own, proved by the state root; who signed a transaction
//! - `assets`: what the contracts of listed tokens are
//! - `holdings`: what addresses hold of the listed assets, as endpoints report it alike
//! - [`pay`]: money out: what intents sign, the transactions that carry them, what nodes say of these
//! - [`error`]: what can go wrong; transient or permanent is decided there and nowhere else
//!
//! Promises: no block leaves this crate unproved; no secret of a URL leaves it at all; bad input never panics.
#![deny(clippy::float_arithmetic)]

pub mod error;
pub mod networks;
pub mod pay;
pub mod source;

mod accounts;
mod assets;
mod byzantium;
mod dialect;
mod fate;
mod headers;
mod hex;
mod holdings;
mod kept;
mod legs;
mod logs;
mod polygon;
mod proof;
mod read;
mod signer;
mod stack;
mod tip;
mod traces;
mod wire;

pub use error::EvmError;
pub use landfall_rpc::{EndpointUrl, Timings};
pub use networks::{network, networks};
pub use source::EvmSource;
