//! The crate through its door: an `EvmSource` against a scripted node over real HTTP.
//!
//! - `node`: the scripted node; every lie a node can report is a closure
//! - `mint`: blocks made to measure, encoded by alloy's own types, so that ours are checked against them
//! - `forge`: the same for what alloy has no types for; such blocks are called synthetic
//! - `proof`: made blocks prove, tampered ones do not
//! - `recorded`: blocks of mainnet, Base, Optimism, Polygon and anvil prove, with the legs that they should have
//! - `tables`: those with many legs, held to tables of them; `recent`: those of 2023 to 2026, all of them
//! - `legs`: what is a creditable leg and what is not; `marks`: which intents were used
//! - `native`: native currency reported by the chain's own logs
//! - `explain`: what is no leg, and why
//! - `fees`, `signers`: what transactions cost, and who signed them
//! - `op`, `polygon`, `withdrawals`: what comes from outside of a chain
//! - `trace`: traces made to measure, in both forms that nodes tell them in
//! - `traces`: what moves inside of a transaction and what only looks like it; traces that cannot be true
//! - `tracers`: who is asked for traces and how; `heavy`: when a block is too much to be traced at once; `witnesses`:
//!   what it means when endpoints agree, differ or cannot say
//! - `traced`, `traced_blocks`: real traces, and anvil's, with the legs that they should have
//! - `accounts`: what is owned, proved by the state root
//! - `reads`: tip, headers, blocks, fate, and what an absent answer means
//! - `torn`: blocks and receipts that do not belong together
//! - `logs`, `scan`: blocks by their logs, and where in a range to look
//! - `pay`: what is asked of endpoints to carry intents; `surcharge`: what the OP stack takes on top of gas
//! - `pending`: what is in no block is never asked for
//! - `endpoints`: secrets, wrong chains, failures
//! - `pool`: several endpoints: whose word counts, who is asked next, who is left out and comes back
//! - `agreeing`: what is final, by each rule, and when endpoints disagree
//! - `rests`: who is left alone for how long, and why
//! - `lacking`: what an endpoint has not, and serves all else
//! - `hard_forks`: what only a newer version can prove, and heads below what was final
//! - `transport`: HTTP and JSON-RPC that go wrong
//! - `wake`: what wakes up, and what does not

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod accounts;
mod agreeing;
mod assets;
mod delegates;
mod endpoints;
mod explain;
mod fees;
mod forge;
mod fuzz;
mod hard_forks;
mod heavy;
mod holdings;
mod kept;
mod lacking;
mod legs;
mod logs;
mod marks;
mod mint;
mod native;
mod node;
mod op;
mod own_delegate;
mod pay;
mod pending;
mod polygon;
mod pool;
mod proof;
mod reads;
mod recent;
mod recorded;
mod rests;
mod scan;
mod signers;
mod surcharge;
mod tables;
mod torn;
mod trace;
mod traced;
mod traced_blocks;
mod tracers;
mod traces;
mod transport;
mod wake;
mod withdrawals;
mod witnesses;
