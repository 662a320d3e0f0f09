//! Solana with real programs: deposits, and what only looks like one, through the real watcher.
//!
//! [`credits`] is the index; [`payments`] has what was sent; [`cluster`] says which node runs it.

mod cluster;
mod codes;
mod credits;
mod first_deposit;
mod follower;
mod payments;
mod programs;
