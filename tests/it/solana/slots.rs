//! Slots: the real Solana source and the watcher over nodes that miss slots, lag, fork and lie.
//!
//! - `follower`: a ledger, its nodes, and who follows them into a SQLite store; what the store makes of it
//! - `faults`: each fault of `landfall_cluster::Fault`, alone and in pairs
//! - `hidden`: what one endpoint keeps from us, and when it is found
//! - `live`: five blocks a second of mainnet's size
//! - `mistakes`: the rows P3, P5 and P6 of our catalogue, and what other programs get wrong
//! - `one_word`: what one endpoint reports alone, and what is left of it once two report the same block
//! - `soak`: many slots with everything that goes wrong, at once
//! - `stream`: a subscription to slots that is cut
//!
//! Real JSON-RPC is served over the loopback device, with small blocks but in `live`: the transport, the pool, the
//! reading and the watcher are those of the product. Only the time is set by a test, and that of the pool is the real
//! one.

mod faults;
mod follower;
mod hidden;
mod live;
mod mistakes;
mod one_word;
mod soak;
mod stream;
