//! What tests stand on: a world of a simulated chain, a store and a watcher; real stores; lines of Solana; many runs at
//! once.

pub(crate) mod books;
pub(crate) mod follower;
pub(crate) mod lanes;
pub(crate) mod nats_double;
pub(crate) mod postgres;
pub(crate) mod signer;
pub(crate) mod solana_ledger;
pub(crate) mod solana_line;
pub(crate) mod tally;
pub(crate) mod through;
pub(crate) mod world;
