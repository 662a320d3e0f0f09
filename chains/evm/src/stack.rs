//! How a network differs from a plain EVM chain: the types of transaction that only it has, and what its header means.
//!
//! A fact of the network's TOML, kept inside this crate: outside of it these networks do not differ.

use serde::Deserialize;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Stack {
    #[default]
    Ethereum,
    /// Transactions of type 0x7e; `withdrawalsRoot` is no root of withdrawals, of which there are none (Isthmus).
    Op,
    /// Transactions of type 0x7f; before them, a pseudo transaction that is in no root.
    Polygon,
}
