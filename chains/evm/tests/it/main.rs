//! The crate through its door: an `EvmSource` against a scripted node over real HTTP.
//!
//! - `node`: the scripted node; every lie a node can tell is a closure
//! - `mint`: blocks made to measure, encoded by alloy's own types, so that ours are checked against them
//! - `proof`: recorded and made blocks prove, tampered ones do not
//! - `legs`: what is a creditable leg and what is not
//! - `reads`: tip, headers, blocks, fate, and what an absent answer means
//! - `endpoints`: secrets, wrong chains, failures

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod endpoints;
mod legs;
mod mint;
mod node;
mod proof;
mod reads;
