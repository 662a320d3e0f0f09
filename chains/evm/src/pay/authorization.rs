//! The tuple with which a wallet lets a delegate act for it (EIP-7702).
//!
//! Promise: it names its chain. One for every chain (chain id 0) is never encoded.

use alloy::primitives::keccak256;
use landfall_chain::{Authorization, SignedAuthorization, U256};
use serde_json::{Value, json};

use crate::pay::{PayError, SIGNATURE_LEN, V_EVEN, chain_id, evm, parts};
use crate::proof::rlp::Rlp;

/// The byte in front of what is signed.
const MAGIC: u8 = 0x05;

/// What the wallet's key signs.
///
/// # Errors
/// What is no authorization on one EVM chain.
pub fn authorization_digest(authorization: &Authorization) -> Result<[u8; 32], PayError> {
    let (chain_id, implementation) = fields(authorization)?;
    let mut message = Vec::with_capacity(64);
    let mut rlp = Rlp(&mut message);
    rlp.raw(MAGIC);
    rlp.list(|rlp| {
        rlp.number(chain_id);
        rlp.bytes(&implementation);
        rlp.number(authorization.nonce);
    });
    Ok(keccak256(message).0)
}

/// As it stands in a transaction.
pub(super) fn write(rlp: &mut Rlp<'_>, signed: &SignedAuthorization) -> Result<(), PayError> {
    let (chain_id, implementation) = fields(&signed.authorization)?;
    let (r, s, v) = signature(signed)?;
    rlp.list(|rlp| {
        rlp.number(chain_id);
        rlp.bytes(&implementation);
        rlp.number(signed.authorization.nonce);
        rlp.number(u64::from(v != V_EVEN));
        rlp.amount(r);
        rlp.amount(s);
    });
    Ok(())
}

/// As a node wants it in a call.
pub(super) fn for_node(signed: &SignedAuthorization) -> Result<Value, PayError> {
    let (chain_id, _) = fields(&signed.authorization)?;
    let (r, s, v) = signature(signed)?;
    Ok(json!({
        "chainId": format!("{chain_id:#x}"),
        "address": signed.authorization.implementation.to_string(),
        "nonce": format!("{:#x}", signed.authorization.nonce),
        "yParity": format!("{:#x}", u8::from(v != V_EVEN)),
        "r": format!("{r:#x}"),
        "s": format!("{s:#x}"),
    }))
}

fn fields(authorization: &Authorization) -> Result<(u64, [u8; 20]), PayError> {
    evm(&authorization.wallet)?;
    match chain_id(&authorization.chain_ref)? {
        0 => Err(PayError::EveryChain),
        chain_id => Ok((chain_id, evm(&authorization.implementation)?)),
    }
}

fn signature(signed: &SignedAuthorization) -> Result<(U256, U256, u8), PayError> {
    let length = signed.signature.len();
    let signature = <&[u8; SIGNATURE_LEN]>::try_from(signed.signature.as_slice());
    let (r, s, v) = parts(signature.map_err(|_| PayError::SignatureLength(length))?);
    Ok((U256::from_be_bytes(r), U256::from_be_bytes(s), v))
}
