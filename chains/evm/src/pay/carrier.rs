//! The transaction of a sponsor that carries an intent to its token or delegate (EIP-1559), with the authorization that the
//! delegate needs, if so (EIP-7702).
//!
//! Promise: its bytes follow from the carrier alone, with any signature of the same key. It brings no value and no
//! access list, and calls nothing but the contract that takes the intent.

use alloy::primitives::keccak256;
use landfall_chain::{Carrier, TxId, U256};

use crate::pay::{PayError, SIGNATURE_LEN, V_EVEN, authorization, call, chain_id, evm, parts};
use crate::proof::rlp::Rlp;

/// The byte of its type in front of a transaction (EIP-2718).
const DYNAMIC_FEE: u8 = 0x02;
const SET_CODE: u8 = 0x04;

/// A carrier that the sponsor has not signed yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnsignedCarrier {
    kind: u8,
    /// Its fields, each encoded, without the signature.
    fields: Vec<u8>,
}

/// The transaction that `carrier` stands for.
///
/// # Errors
/// What no EVM chain can carry.
pub fn carrier(carrier: &Carrier) -> Result<UnsignedCarrier, PayError> {
    let intent = &carrier.carried.intent;
    evm(&carrier.sponsor)?;
    let (chain_id, (contract, data)) = (chain_id(&intent.chain_ref)?, call(&carrier.carried)?);
    let mut fields = Vec::with_capacity(512);
    let mut rlp = Rlp(&mut fields);
    rlp.number(chain_id);
    rlp.number(carrier.nonce);
    rlp.amount(U256::from(carrier.tip));
    rlp.amount(U256::from(carrier.max_fee));
    rlp.number(carrier.gas_limit);
    rlp.bytes(&contract);
    rlp.number(0);
    rlp.bytes(&data);
    rlp.list(|_| ());
    let Some(authorization) = &carrier.authorization else { return Ok(UnsignedCarrier { kind: DYNAMIC_FEE, fields }) };
    let mut tuple = Vec::with_capacity(128);
    authorization::write(&mut Rlp(&mut tuple), authorization)?;
    rlp.list(|rlp| rlp.encoded(&tuple));
    Ok(UnsignedCarrier { kind: SET_CODE, fields })
}

impl UnsignedCarrier {
    /// What the sponsor's key signs.
    pub fn digest(&self) -> [u8; 32] {
        keccak256(self.encoded(|_| ())).0
    }

    /// The transaction as it is sent, and its id. `signature` is r, s and v, which is 27 or 28.
    pub fn signed(self, signature: &[u8; SIGNATURE_LEN]) -> (Vec<u8>, TxId) {
        let (r, s, v) = parts(signature);
        let raw = self.encoded(|rlp| {
            rlp.number(u64::from(v != V_EVEN));
            rlp.amount(U256::from_be_bytes(r));
            rlp.amount(U256::from_be_bytes(s));
        });
        let id = TxId::Evm(keccak256(&raw).0);
        (raw, id)
    }

    fn encoded(&self, signature: impl FnOnce(&mut Rlp<'_>)) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.fields.len() + 80);
        let mut rlp = Rlp(&mut out);
        rlp.raw(self.kind);
        rlp.list(|rlp| {
            rlp.encoded(&self.fields);
            signature(rlp);
        });
        out
    }
}

#[cfg(test)]
mod tests {
    use alloy::consensus::transaction::SignerRecoverable;
    use alloy::consensus::{Transaction, TxEnvelope};
    use alloy::eips::Decodable2718;
    use alloy::primitives::{Address as Plain, Signature};
    use alloy::signers::k256::ecdsa::SigningKey;
    use landfall_chain::{Address, AssetId, Intent, Route, SignedIntent};

    use super::*;
    use crate::pay::{intent_digest, signer_of};

    fn signed_by(key: &SigningKey, digest: &[u8; 32]) -> [u8; 65] {
        Signature::from(key.sign_prehash_recoverable(digest).unwrap()).as_bytes()
    }

    fn carried(key: &SigningKey) -> SignedIntent {
        let intent = Intent {
            transfer_id: [7; 16],
            chain_ref: "eip155:8453".to_owned(),
            route: Route::Erc3009 { name: "USD Coin".to_owned(), version: "2".to_owned() },
            asset: AssetId::Token(Address::Evm([3; 20])),
            payer: Address::Evm(Plain::from_private_key(key).into()),
            destination: Address::Evm([2; 20]),
            amount: U256::from(5),
            deadline: 1_800_000_000,
        };
        let signature = signed_by(key, &intent_digest(&intent).unwrap()).to_vec();
        SignedIntent { intent, signature }
    }

    #[test]
    fn a_carrier_is_the_transaction_that_others_read_of_its_bytes() {
        let (payer, sponsor) = (SigningKey::from_slice(&[5; 32]).unwrap(), SigningKey::from_slice(&[6; 32]).unwrap());
        let address = Plain::from_private_key(&sponsor);
        for nonce in 0..40 {
            let wanted = Carrier {
                sponsor: Address::Evm(address.into()),
                carried: carried(&payer),
                authorization: None,
                nonce,
                gas_limit: 91_234,
                max_fee: 3 << 70,
                tip: 25_000_000_000,
            };
            let unsigned = carrier(&wanted).unwrap();
            let signature = signed_by(&sponsor, &unsigned.digest());
            assert_eq!(signer_of(&unsigned.digest(), &signature), Some(wanted.sponsor));
            let (raw, id) = unsigned.signed(&signature);
            let read = TxEnvelope::decode_2718_exact(&raw).unwrap();
            assert!(read.is_eip1559());
            assert_eq!(TxId::Evm(read.tx_hash().0), id);
            assert_eq!(read.recover_signer().unwrap(), address);
            assert_eq!((read.chain_id(), read.nonce(), read.gas_limit()), (Some(8453), nonce, 91_234));
            assert_eq!((read.max_fee_per_gas(), read.max_priority_fee_per_gas()), (3 << 70, Some(25_000_000_000)));
            assert_eq!((read.to(), read.value()), (Some(Plain::repeat_byte(3)), U256::ZERO));
            assert!(read.access_list().unwrap().is_empty());
            let data = read.input();
            assert_eq!(data.len(), 4 + 9 * 32);
            assert_eq!(data[4 + 12..4 + 32], wanted.carried.intent.payer.as_bytes()[..]);
            assert_eq!(data[4 + 5 * 32..4 + 6 * 32], wanted.carried.intent.key().evm_nonce());
            let v = data[4 + 7 * 32 - 1];
            assert_eq!(v, wanted.carried.signature[64]);
            assert_eq!(data[4 + 7 * 32..], wanted.carried.signature[..64]);
        }
    }

    #[test]
    fn equal_carriers_are_equal_bytes() {
        let key = SigningKey::from_slice(&[5; 32]).unwrap();
        let sponsor = Address::Evm([6; 20]);
        let wanted = Carrier {
            sponsor,
            carried: carried(&key),
            authorization: None,
            nonce: 1,
            gas_limit: 2,
            max_fee: 3,
            tip: 1,
        };
        assert_eq!(carrier(&wanted).unwrap(), carrier(&wanted.clone()).unwrap());
        let foreign = Carrier { sponsor: Address::Solana([1; 32]), ..wanted };
        assert_eq!(carrier(&foreign), Err(PayError::Foreign(foreign.sponsor)));
    }
}
