//! Marks: the uses of intents that a block shows, whoever sent them.
//!
//! A mark is recorded with its block, and counts while that block is canonical. Nothing else is evidence that a
//! transfer was paid.

use crate::{Address, AssetId, IntentKey, TxRef, U256};

/// One use of an intent's one-time key in a block. On Solana: an account that came into being in a transaction that
/// succeeded and that the payer signed; whether it is the guard of an intent, who knows the intent can say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    /// The transaction.
    pub tx: TxRef,
    /// Whose key it was.
    pub payer: Address,
    /// The one-time key, as [`IntentKey::shown`] has it: on Solana that of an account that came into being.
    pub key: IntentKey,
    /// What the route pays: on EVM the contract that counted the key. On Solana what moved while the account was made.
    pub asset: AssetId,
    /// What the use did.
    pub effect: Effect,
}

/// What the use of an intent did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// It paid exactly this, out of the payer.
    Paid {
        /// Who was paid.
        destination: Address,
        /// Base units.
        amount: U256,
    },
    /// It used the key up, and no payment stands behind it.
    Nothing,
    /// The payer's own signature cancelled it.
    Cancelled,
}

impl Effect {
    /// The name that is stored and shown.
    pub const fn name(&self) -> &'static str {
        match self {
            Effect::Paid { .. } => "paid",
            Effect::Nothing => "nothing",
            Effect::Cancelled => "cancelled",
        }
    }
}
