//! Landfall: watches chains for money that arrives at a custody service's accounts.
//!
//! The pipeline, once for all chains:
//!
//! ```text
//! tip -> fork point (disconnect what is stale) -> blocks(cursor+1 ..= last), fetched ahead in parallel
//!     -> match with the watch list -> ONE transaction { block, deposits, events, cursor by compare-and-set }
//!     -> settle what is final:        ONE transaction { re-derived evidence, status, events }
//! ```
//!
//! What each module is for, and which may name which: `ARCHITECTURE.md`; `tests/it/rules/layers.rs` keeps it so.

pub mod account;
pub mod amount;
pub mod api;
pub mod app;
pub mod balance;
pub mod cli;
pub mod config;
pub mod delivery;
pub mod deposit;
pub mod event;
pub mod feed;
pub mod health;
pub mod hosts;
pub mod identity;
pub mod incident;
pub mod key;
pub mod lease;
pub mod operator;
pub mod overrides;
pub mod printable;
pub mod random;
pub mod receiver;
pub mod registry;
pub mod request;
pub mod resolver;
pub mod sandbox;
pub mod secrets;
pub mod store;
pub mod telemetry;
pub mod time;
pub mod watcher;
pub mod webhook;
