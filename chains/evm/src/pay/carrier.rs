//! The transaction of a sponsor that carries an intent, or its cancellation, to its token or delegate (EIP-1559). It
//! may also carry what wallets sign to allow a delegate or to take it away (EIP-7702). A treasury's refills a sponsor.
//!
//! Promises: its bytes follow from the carrier alone, with any signature of the same key. It has no access list. It calls
//! only the contract that takes the intent, or the sponsor itself. Only a refill brings value, and it calls nothing.

use alloy::primitives::keccak256;
use landfall_chain::{Carrier, TxId, U256};

use crate::pay::{PayError, SIGNATURE_LEN, V_EVEN, authorization, authorizations, call, chain_id, evm, parts, value};
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
    evm(&carrier.sponsor)?;
    let beside = authorizations(&carrier.carried)?;
    let chain_id = chain_id(carrier.carried.chain_ref().unwrap_or_default())?;
    let (contract, data) = call(&carrier.sponsor, &carrier.carried)?;
    let mut fields = Vec::with_capacity(512);
    let mut rlp = Rlp(&mut fields);
    rlp.number(chain_id);
    rlp.number(carrier.nonce);
    rlp.amount(U256::from(carrier.tip));
    rlp.amount(U256::from(carrier.max_fee));
    rlp.number(carrier.gas_limit);
    rlp.bytes(&contract);
    rlp.amount(value(&carrier.carried));
    rlp.bytes(&data);
    rlp.list(|_| ());
    if beside.is_empty() {
        return Ok(UnsignedCarrier { kind: DYNAMIC_FEE, fields });
    }
    let mut tuples = Vec::with_capacity(128 * beside.len());
    for authorization in beside {
        authorization::write(&mut Rlp(&mut tuples), authorization)?;
    }
    rlp.list(|rlp| rlp.encoded(&tuples));
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

    /// How many bytes it has.
    pub(super) fn unsigned_bytes(&self) -> u64 {
        u64::try_from(self.encoded(|_| ()).len()).unwrap_or(u64::MAX)
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
    use landfall_chain::{
        Address, AssetId, Authorization, Carried, Intent, Refill, Route, SignedAuthorization, SignedIntent,
    };

    use super::*;
    use crate::pay::{authorization_digest, cancellation_digest, intent_digest, signer_of};

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
                carried: Carried::Payment { signed: carried(&payer), authorization: None },
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
            let SignedIntent { intent, signature } = carried(&payer);
            assert_eq!(data[4 + 12..4 + 32], intent.payer.as_bytes()[..]);
            assert_eq!(data[4 + 5 * 32..4 + 6 * 32], intent.key().evm_nonce());
            let v = data[4 + 7 * 32 - 1];
            assert_eq!(v, signature[64]);
            assert_eq!(data[4 + 7 * 32..], signature[..64]);
        }
    }

    #[test]
    fn equal_carriers_are_equal_bytes() {
        let key = SigningKey::from_slice(&[5; 32]).unwrap();
        let sponsor = Address::Evm([6; 20]);
        let wanted = Carrier {
            sponsor,
            carried: Carried::Payment { signed: carried(&key), authorization: None },
            nonce: 1,
            gas_limit: 2,
            max_fee: 3,
            tip: 1,
        };
        assert_eq!(carrier(&wanted).unwrap(), carrier(&wanted.clone()).unwrap());
        let foreign = Carrier { sponsor: Address::Solana([1; 32]), ..wanted };
        assert_eq!(carrier(&foreign), Err(PayError::Foreign(foreign.sponsor)));
    }

    #[test]
    fn a_cancellation_is_a_call_of_the_token_that_names_the_payer_and_the_nonce() {
        let payer = SigningKey::from_slice(&[5; 32]).unwrap();
        let intent = carried(&payer).intent;
        let signature = signed_by(&payer, &cancellation_digest(&intent).unwrap()).to_vec();
        let carried = Carried::Cancellation(SignedIntent { intent: intent.clone(), signature: signature.clone() });
        let wanted = Carrier { sponsor: Address::Evm([6; 20]), carried, nonce: 1, gas_limit: 2, max_fee: 3, tip: 1 };
        let (raw, _) = carrier(&wanted).unwrap().signed(&[27; 65]);
        let read = TxEnvelope::decode_2718_exact(&raw).unwrap();
        assert!(read.is_eip1559());
        assert_eq!((read.to(), read.value()), (Some(Plain::repeat_byte(3)), U256::ZERO));
        let data = read.input();
        assert_eq!(data.len(), 4 + 5 * 32);
        assert_eq!(data[4 + 12..4 + 32], intent.payer.as_bytes()[..]);
        assert_eq!(data[4 + 32..4 + 2 * 32], intent.key().evm_nonce());
        assert_eq!((data[4 + 3 * 32 - 1], &data[4 + 3 * 32..]), (signature[64], &signature[..64]));
        assert_ne!(cancellation_digest(&intent).unwrap(), intent_digest(&intent).unwrap());
    }

    #[test]
    fn a_refill_is_a_plain_payment_of_the_native_currency() {
        let refill = Refill {
            chain_ref: "eip155:8453".to_owned(),
            number: 3,
            recipient: Address::Evm([9; 20]),
            amount: U256::from(5_u128 << 70),
        };
        let sponsor = Address::Evm([6; 20]);
        let of = |refill| Carrier {
            sponsor,
            carried: Carried::Refill(refill),
            nonce: 4,
            gas_limit: 25_200,
            max_fee: 3,
            tip: 1,
        };
        let (raw, _) = carrier(&of(refill.clone())).unwrap().signed(&[27; 65]);
        let read = TxEnvelope::decode_2718_exact(&raw).unwrap();
        assert!(read.is_eip1559());
        assert_eq!((read.chain_id(), read.nonce(), read.gas_limit()), (Some(8453), 4, 25_200));
        assert_eq!((read.to(), read.value()), (Some(Plain::repeat_byte(9)), U256::from(5_u128 << 70)));
        assert!(read.input().is_empty() && read.access_list().unwrap().is_empty());
        let foreign = Address::Solana([1; 32]);
        assert_eq!(carrier(&of(Refill { recipient: foreign, ..refill })), Err(PayError::Foreign(foreign)));
    }

    #[test]
    fn clearings_stand_beside_a_call_of_the_sponsor_itself_and_name_no_code() {
        let sponsor = Address::Evm([6; 20]);
        let clearing = |wallet: u8, nonce, chain_ref: &str| {
            let key = SigningKey::from_slice(&[wallet; 32]).unwrap();
            let wallet = Address::Evm(Plain::from_private_key(&key).into());
            let authorization = Authorization::clearing(chain_ref.to_owned(), wallet, nonce);
            let signature = signed_by(&key, &authorization_digest(&authorization).unwrap()).to_vec();
            SignedAuthorization { authorization, signature }
        };
        let of = |clearings: Vec<SignedAuthorization>| {
            let carried = Carried::Clearings(clearings);
            carrier(&Carrier { sponsor, carried, nonce: 1, gas_limit: 2, max_fee: 3, tip: 1 })
        };
        let clearings = vec![clearing(7, 3, "eip155:8453"), clearing(8, 0, "eip155:8453")];
        let (raw, _) = of(clearings.clone()).unwrap().signed(&[27; 65]);
        let read = TxEnvelope::decode_2718_exact(&raw).unwrap();
        assert_eq!((read.to(), read.value(), read.input().len()), (Some(Plain::repeat_byte(6)), U256::ZERO, 0));
        let tuples = read.authorization_list().unwrap();
        for (tuple, clearing) in tuples.iter().zip(&clearings) {
            let authority = tuple.recover_authority().unwrap();
            assert_eq!(
                (Address::Evm(authority.into()), tuple.nonce),
                (clearing.authorization.wallet, clearing.authorization.nonce)
            );
            assert_eq!((tuple.address, tuple.chain_id), (Plain::ZERO, U256::from(8453)));
        }
        assert_eq!(tuples.len(), 2);
        let (mut foreign, mut acting) = (clearings.clone(), clearings);
        foreign.push(clearing(9, 0, "eip155:1"));
        acting[0].authorization.implementation = Address::Evm([0x63; 20]);
        assert_eq!([of(Vec::new()), of(foreign), of(acting)], [const { Err(PayError::Clearings) }; 3]);
        assert_eq!(
            of(vec![SignedAuthorization {
                authorization: Authorization::clearing("eip155:0".to_owned(), sponsor, 0),
                signature: vec![27; 65]
            }]),
            Err(PayError::EveryChain)
        );
    }
}
