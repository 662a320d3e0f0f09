//! EVM chains: reads blocks over JSON-RPC and proves them.
//!
//! - [`mod@networks`]: the facts of each network, embedded from `networks/*.toml`
//! - [`source`]: [`EvmSource`], the crate's `BlockSource`
//! - `tip`, `headers`, `read`, `fate`: its calls, each against one endpoint
//! - `logs`, `bloom`: blocks by the logs of listed contracts, compared with the header's bloom
//! - `scan`, `seen`: where in a range of blocks to look
//! - `pool`: which endpoint is asked, and which other when it fails
//! - `heads`: who leads among the endpoints, and what is lacked while some rest
//! - `poll`, `outcome`: how one poll and one read went
//! - `agree`: what endpoints agree on as final
//! - `endpoint`, `calls`: one endpoint, its own head, its state, and what it is asked; `learnt`, `limits`: what it serves, and how it says no
//! - `wake`: connections that say when to look, and nothing else
//! - `rpc`, `answer`, `envelope`: JSON-RPC batches over HTTP, and what of a failure may be told
//! - `wire`, `hex`: the answers as borrowed structs that hold only what is needed
//! - `proof`, `encode`, `rlp`, `trie`: header hash, transactions root and receipts root, recomputed
//! - `stack`, `polygon`: what a network is beside an EVM chain, and what Polygon puts into answers
//! - `legs`, `native`, `withdrawals`: the movements of a proved block, and which of them are credits
//! - `fees`, `signer`: what transactions cost, and who signed them
//! - `traces`, `frames`, `call_tracer`, `trace_block`: what moved inside of its transactions; `witnesses`: who agrees;
//!   `one_by_one`: blocks that are too heavy to be traced at once
//! - `kept`: blocks that the roots have proved, until they are traced
//! - `balances`: what addresses own, proved by the state root
//! - [`error`]: what can go wrong; transient or permanent is decided there and nowhere else
//!
//! Promises: no block leaves this crate unproved; no secret of a URL leaves it at all; bad input never panics.
#![deny(clippy::float_arithmetic)]

pub mod error;
pub mod networks;
pub mod source;

mod agree;
mod answer;
mod balances;
mod bloom;
mod call_tracer;
mod calls;
mod encode;
mod endpoint;
mod envelope;
mod fate;
mod fees;
mod frames;
mod headers;
mod heads;
mod hex;
mod kept;
mod learnt;
mod legs;
mod limits;
mod logs;
mod native;
mod one_by_one;
mod outcome;
mod poll;
mod polygon;
mod pool;
mod proof;
mod read;
mod rlp;
mod rpc;
mod scan;
mod seen;
mod signer;
mod stack;
mod tip;
mod trace_block;
mod traces;
mod trie;
mod wake;
mod wire;
mod withdrawals;
mod witnesses;

pub use error::EvmError;
pub use networks::{network, networks};
pub use source::{EndpointUrl, EvmSource};
