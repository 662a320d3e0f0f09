//! Following a chain: blocks, reorgs, finality, crashes, endpoints.

pub(crate) mod ahead;
pub(crate) mod assets;
pub(crate) mod by_logs;
pub(crate) mod changed;
pub(crate) mod corners;
pub(crate) mod crashes;
pub(crate) mod endpoints;
pub(crate) mod finality;
pub(crate) mod forgetful;
pub(crate) mod nodes;
pub(crate) mod reorgs;
pub(crate) mod signers;
pub(crate) mod unanswered;
pub(crate) mod upgrade;
pub(crate) mod watching;
