//! Past blocks read again, and what balances say of them.

pub(crate) mod backfill;
pub(crate) mod balance_short;
pub(crate) mod explain;
pub(crate) mod long_lists;
pub(crate) mod rescan;
pub(crate) mod unexplained;
