//! Solana with real programs: deposits, and what only looks like one, through the real watcher.
//!

mod cluster;
mod first_deposit;
mod follower;
mod programs;
