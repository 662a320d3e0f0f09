//! The `it` ring: everything that needs no real node. One binary.
//!
//! `world` is the harness: a simulated chain, a real store, a watcher driven tick by tick. Tests go through the doors
//! of the product. `scripts/test --full` runs the full counts, otherwise a bounded share; the output says which.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed, and says where")]

mod api;
mod cli;
mod delivery;
mod follow;
mod harness;
mod past;
mod random;
mod rules;
mod sender;
mod solana;
mod store;
mod traces;
