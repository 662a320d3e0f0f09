//! Solana with real programs: deposits, and what only looks like one, through the real watcher.
//!
//! [`credits`] is the index; [`payments`] has what was sent; [`cluster`] says which node runs it. In [`service`] it is
//! the whole program that follows the cluster, on the [`stage`] of the other tests of this ring; in [`transfers`] it
//! pays, and in [`guard_taken`] it must not.

mod balances;
mod cluster;
mod codes;
mod credits;
mod first_deposit;
pub(crate) mod follower;
mod guard_taken;
mod payments;
pub(crate) mod programs;
mod refills;
mod service;
pub(crate) mod stage;
pub(crate) mod transfers;
