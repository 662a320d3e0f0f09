//! A chain in memory for tests: mine, fork, skip, and make the next call fail, come late, come empty or lag.
//!
//! Everything is seeded: the same calls give the same hashes. The chain behind the source changes only by the
//! methods here, so a test knows what the truth is and asks whether the watcher found it.
//!
//! It proves nothing: roots are the real chains' business.
#![deny(clippy::float_arithmetic)]

mod fault;
mod ledger;
mod pay;
mod pool;
mod source;

pub use fault::Fault;
pub use ledger::{SimBlock, SimChain, SimLeg, SimTx, WEALTH};
pub use pay::{ACCOUNT_RENT, GUARD_RENT, Payment, SendFault, SimSigner};
pub use pool::{Lie, SimPool};
