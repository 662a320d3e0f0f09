//! Who signed a transaction: recovered from its signature, which the transactions root covers.
//!
//! What is signed is a transaction's encoding without the signature; so only the place where the last three fields
//! begin is decoded. A legacy transaction since EIP-155 has the chain id and two empty fields in their place.
//! Promises: a signer who decides about a leg is proved at once. Every other one is proved on demand: for that the
//! encoded transactions, which the root needed anyway, are kept as long as the block. Not proved, because they have no
//! signature: 0x7e and 0x7f, and the transactions that OP Mainnet took from L1 before Bedrock (legacy, with a
//! signature of zeros). A high `s` is accepted: before Homestead it was valid.

use std::sync::Arc;

use alloy::primitives::{Address, B256, Signature, keccak256};
use alloy::rlp::Header;
use landfall_chain::{Address as ChainAddress, BlockRef, Signers, TxId, TxLife, TxRef, U256};

use crate::dialect::{Endpoint, Pool};
use crate::error::{Check, EvmError};
use crate::proof::rlp::Rlp;
use crate::proof::{Leaves, Refusal};
use crate::stack::Stack;
use crate::wire::{Kind, WireAuthorization, WireBlock, WireTx};

/// A legacy list begins here; a type's byte is below.
const LIST_MIN: u8 = 0xc0;
/// `v` of a legacy transaction: 27 or 28; with a chain id, 35 or 36 and twice the id (EIP-155).
const V_PLAIN: u64 = 27;
const V_WITH_CHAIN: u64 = 35;

/// What stands before the fields of a signed delegation (EIP-7702).
const DELEGATION: u8 = 0x05;

/// Who signed, as far as the encoding shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Signer {
    Is(Address),
    /// There is no signature, and the rules of its chain ask for none.
    Unsigned,
    /// The signature is nobody's.
    Invalid,
}

/// Proves that the stated signer signed where that decides about a leg: a payment to oneself is none, and value sent
/// with a creation goes to an address that follows from the signer.
pub(crate) fn prove_where_it_decides(
    stack: Stack,
    block: &WireBlock<'_, Vec<WireTx<'_>>>,
    leaves: &Leaves,
) -> Result<(), Refusal> {
    for (index, (tx, leaf)) in block.transactions.iter().zip(leaves.iter()).enumerate() {
        let decides = !tx.value.0.is_zero() && tx.to.is_none_or(|to| to == tx.from);
        if decides && Kind::parse(tx.kind, stack).is_ok_and(is_signed) && !is_signer(stack, leaf, tx.from) {
            return Err(Refusal::Unproved(Check::Signer(index)));
        }
    }
    Ok(())
}

/// Checks whether the node names a false payer, before a block counts as paying without a log. A payment to oneself is
/// logged nowhere, and a lie about one signer would look like one; it must not stop a chain.
pub(crate) fn prove_where_unlogged(
    stack: Stack,
    block: &WireBlock<'_, Vec<WireTx<'_>>>,
    leaves: &Leaves,
    refusal: Refusal,
) -> Refusal {
    let Refusal::Unlogged { index } = refusal else { return refusal };
    let lies =
        block.transactions.iter().zip(leaves.iter()).nth(index).is_some_and(|(tx, leaf)| {
            Kind::parse(tx.kind, stack).is_ok_and(is_signed) && !is_signer(stack, leaf, tx.from)
        });
    if lies { Refusal::Unproved(Check::Signer(index)) } else { refusal }
}

/// Proves signers of `block` on demand; `leaves` are its transactions, proved. A node that lied fails its proof in the
/// pool.
pub(crate) fn on_demand(
    pool: &Arc<Pool>,
    endpoint: &Endpoint,
    stack: Stack,
    block: BlockRef,
    ids: &[TxId],
    mut leaves: Leaves,
) -> Signers {
    leaves.shrink();
    let (pool, chain, endpoint, ids) = (Arc::clone(pool), endpoint.chain, endpoint.id.clone(), ids.to_vec());
    Signers::new(move |tx: &TxRef| {
        let TxLife::Nonce { signer: ChainAddress::Evm(signer), .. } = tx.life else { return Ok(()) };
        let leaf = ids.iter().zip(leaves.iter()).enumerate().find(|(_, (id, _))| **id == tx.id);
        let Some((index, (_, leaf))) = leaf else {
            return Err(EvmError::NotInBlock { chain, tx: tx.id, block }.into());
        };
        if is_signer(stack, leaf, signer.into()) {
            return Ok(());
        }
        let check = Check::Signer(index);
        let error = EvmError::ProofFailed { chain, endpoint: endpoint.clone(), block, check };
        pool.disprove(&endpoint, &error);
        Err(error.into())
    })
}

/// Who signed a delegation (EIP-7702); `None` where its signature is nobody's.
pub(crate) fn authority(delegation: &WireAuthorization) -> Option<Address> {
    let parity = delegation.y_parity.or(delegation.v).map_or(U256::ZERO, |parity| parity.0);
    let mut fields = Vec::new();
    let mut rlp = Rlp(&mut fields);
    rlp.amount(delegation.chain_id.0);
    rlp.bytes(delegation.address.as_slice());
    rlp.number(delegation.nonce.0);
    let mut message = vec![DELEGATION];
    message.extend_from_slice(&listed(&fields));
    let signature = Signature::new(delegation.r.0, delegation.s.0, parity == U256::ONE);
    let is_signature = parity <= U256::ONE;
    signature.recover_address_from_prehash(&keccak256(message)).ok().filter(|_| is_signature)
}

fn is_signed(kind: Kind) -> bool {
    match kind {
        Kind::Legacy | Kind::AccessList | Kind::DynamicFee | Kind::Blob | Kind::SetCode => true,
        Kind::Deposit | Kind::StateSync => false,
    }
}

fn is_signer(stack: Stack, leaf: &[u8], stated: Address) -> bool {
    match recover(leaf) {
        Signer::Is(signer) => signer == stated,
        Signer::Unsigned => stack == Stack::Op,
        Signer::Invalid => false,
    }
}

/// The signer of an encoded transaction of the types 0 to 4.
fn recover(leaf: &[u8]) -> Signer {
    let Some((unsigned, [v, r, s])) = split(leaf) else { return Signer::Invalid };
    let is_legacy = leaf.first().is_some_and(|first| *first >= LIST_MIN);
    if is_legacy && r.is_zero() && s.is_zero() {
        return Signer::Unsigned;
    }
    let signed = if is_legacy { legacy(unsigned, v) } else { typed(leaf, unsigned, v) };
    let signer = signed.and_then(|(hash, odd)| Signature::new(r, s, odd).recover_address_from_prehash(&hash).ok());
    signer.map_or(Signer::Invalid, Signer::Is)
}

/// The fields before the signature as they are encoded, and the signature.
fn split(leaf: &[u8]) -> Option<(&[u8], [U256; 3])> {
    let mut rest = match leaf.first()? {
        first if *first >= LIST_MIN => leaf,
        _ => &leaf[1..],
    };
    let list = Header::decode(&mut rest).ok().filter(|header| header.list && header.payload_length == rest.len())?;
    let fields = rest;
    let mut starts = Vec::with_capacity(list.payload_length.min(16));
    while !rest.is_empty() {
        starts.push(fields.len() - rest.len());
        let field = Header::decode(&mut rest).ok()?;
        rest = rest.get(field.payload_length..)?;
    }
    let [.., v, r, s] = *starts.as_slice() else { return None };
    Some((&fields[..v], [number(&fields[v..r])?, number(&fields[r..s])?, number(&fields[s..])?]))
}

fn number(mut field: &[u8]) -> Option<U256> {
    let bytes = Header::decode_bytes(&mut field, false).ok()?;
    U256::try_from_be_slice(bytes)
}

fn legacy(unsigned: &[u8], v: U256) -> Option<(B256, bool)> {
    // Chain ids beyond 64 bits are on no chain of ours.
    let v: u64 = v.try_into().ok()?;
    let chain_id = v.checked_sub(V_WITH_CHAIN).map(|rest| rest / 2);
    let parity = match chain_id {
        Some(_) => v - V_WITH_CHAIN,
        None => v.checked_sub(V_PLAIN).filter(|parity| *parity <= 1)?,
    };
    let mut payload = unsigned.to_vec();
    if let Some(chain_id) = chain_id {
        let mut rlp = Rlp(&mut payload);
        rlp.number(chain_id);
        rlp.number(0);
        rlp.number(0);
    }
    Some((keccak256(listed(&payload)), parity % 2 == 1))
}

fn typed(leaf: &[u8], unsigned: &[u8], parity: U256) -> Option<(B256, bool)> {
    let mut message = vec![*leaf.first()?];
    message.extend_from_slice(&listed(unsigned));
    (parity <= U256::ONE).then(|| (keccak256(message), parity == U256::ONE))
}

/// A list of fields that are encoded already.
fn listed(fields: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(fields.len() + 9);
    Header { list: true, payload_length: fields.len() }.encode(&mut out);
    out.extend_from_slice(fields);
    out
}

#[cfg(test)]
mod tests {
    use alloy::consensus::{SignableTransaction, TxEnvelope, TxLegacy};
    use alloy::eips::Encodable2718;
    use alloy::primitives::TxKind;
    use alloy::signers::k256::ecdsa::SigningKey;

    use super::*;

    /// The order of secp256k1's base point.
    const ORDER: [u64; 4] =
        [0xbfd2_5e8c_d036_4141, 0xbaae_dce6_af48_a03b, 0xffff_ffff_ffff_fffe, 0xffff_ffff_ffff_ffff];

    fn encoded(tx: TxLegacy, signature: Signature) -> Vec<u8> {
        TxEnvelope::from(tx.into_signed(signature)).encoded_2718()
    }

    #[test]
    fn a_high_s_names_the_same_signer_as_it_did_before_homestead() {
        let key = SigningKey::from_slice(&[7; 32]).unwrap();
        for chain_id in [None, Some(1), Some(u64::from(u32::MAX))] {
            let tx = TxLegacy { chain_id, nonce: 3, to: TxKind::Call(Address::repeat_byte(5)), ..TxLegacy::default() };
            let low = Signature::from(key.sign_prehash_recoverable(tx.signature_hash().as_slice()).unwrap());
            let high = Signature::new(low.r(), U256::from_limbs(ORDER) - low.s(), !low.v());
            let signer = Signer::Is(Address::from_private_key(&key));
            assert_eq!(recover(&encoded(tx.clone(), low)), signer);
            assert_eq!(recover(&encoded(tx.clone(), high)), signer);
            assert_ne!(recover(&encoded(tx, Signature::new(low.r(), low.s(), !low.v()))), signer);
        }
    }

    #[test]
    fn what_is_no_transaction_has_no_signer() {
        for leaf in [&[][..], &[2], &[0xc0], &[2, 0xc0], &[0xc3, 1, 2, 3], &[0xc4, 1, 2, 3], &[2, 0xc3, 1, 0xc1, 3]] {
            assert_eq!(recover(leaf), Signer::Invalid, "{leaf:?}");
        }
    }
}
