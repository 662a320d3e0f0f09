//! The crate through its door: an `EvmSource` against a scripted node over real HTTP.
//!
//! - `node`: the scripted node; every lie a node can tell is a closure
//! - `mint`: blocks made to measure, encoded by alloy's own types, so that ours are checked against them
//! - `forge`: the same for what alloy has no types for; such blocks are called synthetic
//! - `proof`: made blocks prove, tampered ones do not
//! - `recorded`: blocks of mainnet, Base, Optimism, Polygon and anvil prove, with the legs that they should have
//! - `legs`: what is a creditable leg and what is not
//! - `op`, `polygon`, `withdrawals`: what comes from outside of a chain
//! - `reads`: tip, headers, blocks, fate, and what an absent answer means
//! - `endpoints`: secrets, wrong chains, failures
//! - `pool`: several endpoints: whose word counts, who is asked next, who is left out and comes back
//! - `agreeing`: what is final, by each rule, and when endpoints disagree
//! - `transport`: HTTP and JSON-RPC that go wrong
//! - `wake`: what wakes up, and what does not

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod agreeing;
mod endpoints;
mod forge;
mod legs;
mod mint;
mod node;
mod op;
mod polygon;
mod pool;
mod proof;
mod reads;
mod recorded;
mod transport;
mod wake;
mod withdrawals;
