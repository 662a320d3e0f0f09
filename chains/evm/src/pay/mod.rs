//! Money out: what an intent's signature covers, the transaction that carries it, and what nodes are asked for that.
//!
//! - `erc3009`: intents of tokens that take the owner's signature from anybody (EIP-3009)
//! - `delegate`, `metamask`, `own`, `abi`: intents of wallets for which a delegate acts; what proves them, and the delegate's
//!   code
//! - `authorization`: what lets a delegate act for a wallet (EIP-7702)
//! - `carrier`: the sponsor's transaction
//! - `marks`: what blocks show of intents
//! - `asking`: what gas costs, whether a token is ready, nonces, used keys; hands transactions to endpoints
//! - `acting`: whether a delegate is ready, and what acts for a wallet
//! - `surcharge`: what the OP stack takes on top of gas
//! - `trial`: whether the payment would succeed, before anything is signed
//! - `responses`: what a node's answer to a transaction means
//!
//! Promises: signing and checking encode with the same code. Equal intents and carriers give equal bytes. No key is
//! ever seen here. Deliberately not here: nonces, attempts, and what becomes of them.

mod abi;
mod acting;
pub(crate) mod asking;
mod authorization;
mod carrier;
pub(crate) mod delegate;
mod erc3009;
pub(crate) mod marks;
mod metamask;
mod own;
mod responses;
mod surcharge;
pub(crate) mod trial;

pub use authorization::authorization_digest;
pub use carrier::{UnsignedCarrier, carrier};

use alloy::primitives::{Signature, keccak256};
use landfall_chain::{Address, AssetId, Carried, Intent, Route, SignedAuthorization, U256};

use crate::pay::delegate::{CallOf, UsedAt};

/// Bytes of a signature: r, s, v.
const SIGNATURE_LEN: usize = 65;
/// `v` of a signature whose point has an even y; one more where it is odd.
const V_EVEN: u8 = 27;

/// Why something is no payment on an EVM chain. It stays so: what was asked for is wrong.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PayError {
    /// It is sent in another way.
    #[error("route {0} is none of EVM chains")]
    OtherRoute(&'static str),
    /// It is paid by another delegate.
    #[error("delegate {0} pays in another way")]
    OtherDelegate(&'static str),
    /// The CAIP-2 name is of another kind of chain.
    #[error("chain {0:?} has not the form eip155:<chain id>")]
    ChainRef(String),
    /// The native currency has no contract, and a mint is of another family.
    #[error("{0} is no token of an EVM chain")]
    NoToken(AssetId),
    /// An address that no EVM chain has.
    #[error("address {0} is not of an EVM chain")]
    Foreign(Address),
    /// The signature of the payer has another length.
    #[error("a signature of {0} bytes; r, s and v are 65")]
    SignatureLength(usize),
    /// The contracts of a delegate read 0 as no deadline at all.
    #[error("an intent without a deadline")]
    NoDeadline,
    /// Only its deadline ends it.
    #[error("route {0} has no cancellation that anybody may carry")]
    NoCancellation(&'static str),
    /// A transaction that takes away no delegate, or those of two chains.
    #[error("clearings of no wallet, or of two chains")]
    Clearings,
    /// A chain id of 0.
    #[error("an authorization for every chain")]
    EveryChain,
}

/// What the payer's key signs.
///
/// # Errors
/// What is no intent on an EVM chain.
pub fn intent_digest(intent: &Intent) -> Result<[u8; 32], PayError> {
    match &intent.route {
        Route::Erc3009 { name, version } => erc3009::digest(intent, name, version),
        Route::Delegate(delegate) => delegate::digest(delegate, intent),
        Route::Guard { .. } => Err(PayError::OtherRoute(intent.route.name())),
    }
}

/// What the payer's key signs so that an intent is never paid. A delegate is stopped by a call of the wallet itself alone
/// (`DelegationManager.disableDelegation`).
///
/// # Errors
/// What only its deadline ends.
pub fn cancellation_digest(intent: &Intent) -> Result<[u8; 32], PayError> {
    match &intent.route {
        Route::Erc3009 { name, version } => erc3009::cancellation_digest(intent, name, version),
        Route::Delegate(_) | Route::Guard { .. } => Err(PayError::NoCancellation(intent.route.name())),
    }
}

/// The call of a sponsor that carries something.
fn call(sponsor: &Address, carried: &Carried) -> Result<CallOf, PayError> {
    match carried {
        Carried::Payment { signed, .. } => match &signed.intent.route {
            Route::Erc3009 { .. } => Ok((contract(&signed.intent.asset)?, erc3009::call_data(signed)?)),
            Route::Delegate(delegate) => delegate::call(delegate, signed),
            Route::Guard { .. } => Err(PayError::OtherRoute(signed.intent.route.name())),
        },
        Carried::Cancellation(signed) => match &signed.intent.route {
            Route::Erc3009 { .. } => Ok((contract(&signed.intent.asset)?, erc3009::cancellation_data(signed)?)),
            Route::Delegate(_) | Route::Guard { .. } => Err(PayError::NoCancellation(signed.intent.route.name())),
        },
        // What stands beside does it all.
        Carried::Clearings(_) => Ok((evm(sponsor)?, Vec::new())),
        Carried::Refill(refill) => Ok((evm(&refill.recipient)?, Vec::new())),
    }
}

/// What the call brings of the native currency.
fn value(carried: &Carried) -> U256 {
    match carried {
        Carried::Payment { .. } | Carried::Cancellation(_) | Carried::Clearings(_) => U256::ZERO,
        Carried::Refill(refill) => refill.amount,
    }
}

/// What stands beside the call.
fn authorizations(carried: &Carried) -> Result<Vec<&SignedAuthorization>, PayError> {
    match carried {
        Carried::Payment { authorization, .. } => Ok(authorization.as_deref().into_iter().collect()),
        Carried::Cancellation(_) | Carried::Refill(_) => Ok(Vec::new()),
        Carried::Clearings(clearings) => {
            let of = |it: &SignedAuthorization| it.authorization.is_clearing();
            let is_one_chain =
                |it: &SignedAuthorization| Some(it.authorization.chain_ref.as_str()) == carried.chain_ref();
            let are_good = !clearings.is_empty() && clearings.iter().all(|it| of(it) && is_one_chain(it));
            are_good.then(|| clearings.iter().collect()).ok_or(PayError::Clearings)
        }
    }
}

/// Where it stands whether the one-time key of an intent is used.
fn used_at(intent: &Intent) -> Result<UsedAt, PayError> {
    match &intent.route {
        Route::Erc3009 { .. } => Ok(UsedAt::Call((contract(&intent.asset)?, erc3009::state_data(intent)?))),
        Route::Delegate(delegate) => delegate::used_at(delegate, intent),
        Route::Guard { .. } => Err(PayError::OtherRoute(intent.route.name())),
    }
}

/// Who made `signature`, which is r, s and v. `None` where nobody did, where v is neither 27 nor 28, and where s is in
/// the upper half: tokens take such a signature from nobody (OpenZeppelin's `ECDSA`, FiatToken's `ECRecover`).
pub fn signer_of(digest: &[u8; 32], signature: &[u8; SIGNATURE_LEN]) -> Option<Address> {
    let (r, s, v) = parts(signature);
    let parity = v.checked_sub(V_EVEN).filter(|parity| *parity <= 1)?;
    let signature = Signature::new(U256::from_be_bytes(r), U256::from_be_bytes(s), parity == 1);
    let signature = Some(signature).filter(|signature| signature.normalize_s().is_none())?;
    let signer = signature.recover_address_from_prehash(&(*digest).into()).ok()?;
    Some(Address::Evm(signer.into()))
}

/// r, s and v.
fn parts(signature: &[u8; SIGNATURE_LEN]) -> ([u8; 32], [u8; 32], u8) {
    let (r, rest) = signature.split_first_chunk().expect("65 is more than 32");
    let (s, rest) = rest.split_first_chunk().expect("33 is more than 32");
    (*r, *s, rest[0])
}

fn chain_id(chain_ref: &str) -> Result<u64, PayError> {
    let id = chain_ref.strip_prefix("eip155:").and_then(|id| id.parse().ok());
    id.ok_or_else(|| PayError::ChainRef(chain_ref.to_owned()))
}

fn contract(asset: &AssetId) -> Result<[u8; 20], PayError> {
    match asset {
        AssetId::Token(Address::Evm(contract)) => Ok(*contract),
        AssetId::Token(Address::Solana(_)) | AssetId::Native => Err(PayError::NoToken(*asset)),
    }
}

fn evm(address: &Address) -> Result<[u8; 20], PayError> {
    match address {
        Address::Evm(bytes) => Ok(*bytes),
        Address::Solana(_) => Err(PayError::Foreign(*address)),
    }
}

/// Of words, one after the other.
fn hashed(words: &[[u8; 32]]) -> [u8; 32] {
    keccak256(words.as_flattened()).0
}

/// An address as a word of the ABI.
fn address_word(address: [u8; 20]) -> [u8; 32] {
    let mut word = [0; 32];
    word[12..].copy_from_slice(&address);
    word
}

/// A number as a word of the ABI.
fn number_word(number: u64) -> [u8; 32] {
    U256::from(number).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use alloy::primitives::{Address as Plain, B256};
    use alloy::signers::k256::ecdsa::SigningKey;

    use super::*;

    #[test]
    fn a_signature_names_its_signer_and_a_malleable_one_names_nobody() {
        let key = SigningKey::from_slice(&[7; 32]).unwrap();
        let digest = B256::repeat_byte(9);
        let signature = Signature::from(key.sign_prehash_recoverable(digest.as_slice()).unwrap());
        let bytes = signature.as_bytes();
        let signer = Address::Evm(Plain::from_private_key(&key).into());
        assert_eq!(signer_of(&digest.0, &bytes), Some(signer));
        assert_ne!(signer_of(&[8; 32], &bytes), Some(signer));
        for v in [0, 1, 26, 29, 37, 255] {
            let mut other = bytes;
            other[64] = v;
            assert_eq!(signer_of(&digest.0, &other), None, "{v}");
        }
        let order = alloy::primitives::uint!(
            0xffff_ffff_ffff_ffff_ffff_ffff_ffff_fffe_baae_dce6_af48_a03b_bfd2_5e8c_d036_4141_U256
        );
        let high = Signature::new(signature.r(), order - signature.s(), !signature.v());
        assert_eq!(high.recover_address_from_prehash(&digest).unwrap(), Plain::from_private_key(&key));
        assert_eq!(signer_of(&digest.0, &high.as_bytes()), None);
        assert_eq!(signer_of(&digest.0, &[0; 65]), None);
    }
}
