//! Delegates: code that acts for a wallet whose key allows it (EIP-7702). So somebody else can pay the gas of its
//! payments.
//!
//! Promise: the address of a delegate is part of what is signed, so it never changes for a transfer.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Address;

/// What EIP-7702 reads as no code at all.
const NO_CODE: Address = Address::Evm([0; 20]);
/// How many wallets share a transaction that takes delegates away.
pub const CLEARINGS_MAX: usize = 20;

/// A delegate of the closed list, and the contracts that it works with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Delegate {
    /// MetaMask's EIP7702StatelessDeleGator 1.3.0. Its manager carries out what a wallet signed, within its caveats.
    Metamask {
        /// The code that acts for the wallet.
        implementation: Address,
        /// `DelegationManager`: it alone may make that code pay.
        manager: Address,
        /// `IdEnforcer`: takes an id once for each manager and wallet.
        ids: Address,
        /// `TimestampEnforcer`: refuses what is late.
        times: Address,
        /// `ExactExecutionEnforcer`: refuses any payment but the one that was signed.
        executions: Address,
    },
    /// Landfall's own, which pays what a wallet signed and needs no other contract. Nobody has audited it: it is for private
    /// chains and tests.
    Own {
        /// The code that acts for the wallet. What it has paid is on record in the wallet.
        implementation: Address,
    },
}

/// What a wallet's key signs so that a delegate acts for it: the tuple of EIP-7702. A chain takes it once, since it names the
/// wallet's next nonce.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Authorization {
    /// CAIP-2 of the only chain on which it counts.
    pub chain_ref: String,
    /// Whose key signs.
    pub wallet: Address,
    /// The code that acts for it; the zero address takes away what does.
    pub implementation: Address,
    /// How many transactions and authorizations of the wallet the chain has taken.
    pub nonce: u64,
}

/// Whether the delegate of a route acts for the payer now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Acting {
    /// It does, or the route needs none.
    Already,
    /// It does as soon as the payer's key allows this.
    With(Authorization),
    /// Something else acts for the payer, and why nothing may be signed.
    Never(String),
}

/// An authorization with the signature of its wallet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SignedAuthorization {
    /// What was signed.
    pub authorization: Authorization,
    /// 65 bytes: r, s, v.
    pub signature: Vec<u8>,
}

impl Authorization {
    /// What takes away the code that acts for a wallet with this nonce: from then on it has none.
    pub const fn clearing(chain_ref: String, wallet: Address, nonce: u64) -> Self {
        Authorization { chain_ref, wallet, implementation: NO_CODE, nonce }
    }

    /// Whether it takes code away.
    pub fn is_clearing(&self) -> bool {
        self.implementation == NO_CODE
    }
}

impl Delegate {
    /// The code that acts for the wallet.
    pub const fn implementation(&self) -> Address {
        match self {
            Delegate::Metamask { implementation, .. } | Delegate::Own { implementation } => *implementation,
        }
    }

    /// Its name in the closed list.
    pub const fn name(&self) -> &'static str {
        match self {
            Delegate::Metamask { .. } => "metamask",
            Delegate::Own { .. } => "own",
        }
    }
}

/// Its name and all its addresses.
impl fmt::Display for Delegate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
        match self {
            Delegate::Metamask { implementation, manager, ids, times, executions } => {
                write!(f, "{name} {implementation} {manager} {ids} {times} {executions}")
            }
            Delegate::Own { implementation } => write!(f, "{name} {implementation}"),
        }
    }
}
