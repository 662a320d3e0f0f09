//! Money out on Solana: the transaction that makes a guard and pays, what blocks show of it, and what is asked of nodes.
//!
//! - `guard`: the whole transaction, as payer and sponsor sign it, or a treasury alone
//! - `reclaim`: the whole transaction that takes back what guards hold
//! - `token`: the instructions that pay, and which mints are not sent
//! - `fees`: compute limit and price
//! - `marks`: what a transaction of a block shows
//! - `maker`: who made a guard that no block of ours shows
//! - `standing`: how the accounts of a payment stand before it is signed
//! - `asking`: what is asked of endpoints; `responses`: what their words to a transaction mean
//!
//! Promises: who signs and who checks encode with the same code, and equal requests give equal bytes. No key is ever seen
//! here. Deliberately not here: when an attempt is made, and what becomes of it.

pub(crate) mod asking;
mod fees;
mod guard;
mod maker;
pub(crate) mod marks;
mod reclaim;
mod responses;
mod standing;
mod token;

pub use guard::{UnsignedGuarded, UnsignedRefill, guarded, refill};
pub use reclaim::{UnsignedReclaim, reclaim};

use landfall_chain::{Address, AssetId, U256};

/// Why something is no payment on Solana. It stays so: what was asked for is wrong.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PayError {
    /// It is sent in another way.
    #[error("route {0} is none of Solana")]
    OtherRoute(&'static str),
    /// The route names a program for the native currency, or none, or a wrong one, for a token.
    #[error("{0} is not kept by the program that its route names")]
    Program(AssetId),
    /// An address that Solana does not have.
    #[error("address {0} is not of Solana")]
    Foreign(Address),
    /// More than 64 bits hold.
    #[error("{0} base units are more than Solana can move")]
    Amount(U256),
    /// The owner has no account of this mint: each of the 256 addresses is a point on the curve.
    #[error("{owner} has no associated account of {asset}")]
    NoAccount { owner: Address, asset: AssetId },
    /// The message does not fit, or names too much.
    #[error("it is no message of Solana: {0}")]
    Message(String),
}

fn solana(address: &Address) -> Result<[u8; 32], PayError> {
    match address {
        Address::Solana(bytes) => Ok(*bytes),
        Address::Evm(_) => Err(PayError::Foreign(*address)),
    }
}
