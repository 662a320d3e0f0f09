//! Landfall's own delegate (`nodes/contracts/OwnDelegate.sol`): a wallet signs a payment that anybody may carry, once,
//! before its deadline. It is for private chains and tests, and nobody has audited it.
//!
//! What the contract does:
//! - `pay` checks the signature of the wallet's own key over the whole payment, uses the nonce up, and makes one call.
//! - behind the call the wallet itself logs `Settled`, with what was to be paid and whether the call succeeded. A call that
//!   failed is undone, so it paid nothing.
//! - what is used stands in the wallet's storage, where it stays when the wallet has no code any more.
//!
//! So a `Settled` counts as a use of the key of the address that logged it. That rests on the wallet's code, which only the
//! wallet's key sets: no other listed code logs what a caller likes.

use alloy::primitives::{B256, b256, keccak256};
use landfall_chain::{Address, AssetId, Intent, IntentKey, U256};

use crate::legs::address_of;
use crate::pay::delegate::{Code, Use};
use crate::pay::{PayError, SIGNATURE_LEN, address_word, chain_id, contract, evm, hashed, number_word, parts};
use crate::wire::WireLog;

const DOMAIN: &str = "EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)";
const NAME: &str = "Landfall delegate";
const VERSION: &str = "1";
const PAYMENT: &str =
    "Payment(address token,address destination,uint256 amount,bytes32 nonce,uint256 deadline,address executor)";
/// In place of the token's address, the native currency; in place of the executor's, anybody.
const NOBODY: [u8; 20] = [0; 20];

/// `pay((address,address,uint256,bytes32,uint256,address),uint8,bytes32,bytes32)`
const PAY: [u8; 4] = [0x69, 0x1e, 0x57, 0x88];
/// keccak256("Settled(bytes32,bool,address,address,uint256)")
pub(crate) const SETTLED: B256 = b256!("33a7357a56ed2a01c48a9376ea07d0993571fd02d29dbfdeac26e96588adc616");
/// EIP-7201's slot of "landfall.delegate": there begins the mapping of used nonces.
const USED: B256 = b256!("5667e0d389c222d6da0c9b91687fae778b1778b9aae280c59d26dd15f27a4100");
/// Of the code that `nodes/compile.mjs` makes, which has no metadata.
const HASH: B256 = b256!("f191183f1c5d89faa3024caaad7edaa16c68ef9992e6c85afe1b2a619d5e3da5");

/// What the payer's key signs (EIP-712).
pub(super) fn digest(intent: &Intent) -> Result<[u8; 32], PayError> {
    let domain = hashed(&[
        keccak256(DOMAIN).0,
        keccak256(NAME).0,
        keccak256(VERSION).0,
        number_word(chain_id(&intent.chain_ref)?),
        address_word(evm(&intent.payer)?),
    ]);
    let payment = hashed(&[&[keccak256(PAYMENT).0], payment(intent)?.as_slice()].concat());
    let mut message = vec![0x19, 0x01];
    message.extend([domain, payment].as_flattened());
    Ok(keccak256(message).0)
}

/// The call of the wallet that anybody may make with the payer's signature.
pub(super) fn call_data(intent: &Intent, signature: &[u8; SIGNATURE_LEN]) -> Result<Vec<u8>, PayError> {
    let (r, s, v) = parts(signature);
    let mut data = PAY.to_vec();
    data.extend(payment(intent)?.as_flattened());
    data.extend([number_word(v.into()), r, s].as_flattened());
    Ok(data)
}

/// token, destination, amount, nonce, deadline, executor.
fn payment(intent: &Intent) -> Result<[[u8; 32]; 6], PayError> {
    let token = match intent.asset {
        AssetId::Native => NOBODY,
        AssetId::Token(_) => contract(&intent.asset)?,
    };
    Ok([
        address_word(token),
        address_word(evm(&intent.destination)?),
        intent.amount.to_be_bytes(),
        intent.key().evm_nonce(),
        number_word(intent.deadline),
        address_word(NOBODY),
    ])
}

/// Where the wallet's storage says whether the intent's nonce is used.
pub(super) fn slot(intent: &Intent) -> [u8; 32] {
    hashed(&[intent.key().evm_nonce(), USED.0])
}

pub(super) fn code(implementation: &Address) -> Result<Code, PayError> {
    let address = evm(implementation)?;
    Ok(Code { name: "implementation", address, has_metadata: false, trusted: Vec::new(), own: &[], hash: HASH })
}

/// The use that a log shows.
pub(super) fn settled(log: &WireLog<'_>) -> Option<Use> {
    let [SETTLED, nonce] = log.topics.as_slice() else { return None };
    let data = log.data.to_array::<128>()?;
    let ([ok, token, destination, amount], []) = data.as_chunks::<32>() else { return None };
    let is_paid = match U256::from_be_bytes(*ok) {
        U256::ZERO => false,
        U256::ONE => true,
        _ => return None,
    };
    let token = address_of(&B256::from(*token))?;
    Some(Use {
        payer: log.address.into(),
        key: IntentKey::of_evm_nonce(nonce)?,
        token: (token != NOBODY).then_some(token),
        destination: address_of(&B256::from(*destination))?,
        amount: U256::from_be_bytes(*amount),
        is_paid,
    })
}

#[cfg(test)]
mod tests {
    use alloy::hex;
    use landfall_chain::{Delegate, Route};
    use serde_json::Value;

    use super::*;
    use crate::pay::{intent_digest, signer_of};

    const COMPILED: &str = include_str!("../../../../nodes/contracts/OwnDelegate.json");

    /// What anvil signed by its own EIP-712, and the contract took: see `testdata/SOURCES.md`.
    fn fixture() -> Value {
        serde_json::from_str(include_str!("../../testdata/own_delegate.json")).unwrap()
    }

    fn bytes_of(value: &Value) -> Vec<u8> {
        hex::decode(value.as_str().unwrap()).unwrap()
    }

    fn intent(asset: AssetId) -> Intent {
        let fixture = fixture();
        Intent {
            transfer_id: hex!("bac872c096568527b18ffc8f02a10278"),
            chain_ref: format!("eip155:{}", fixture["chain_id"]),
            route: Route::Delegate(Delegate::Own { implementation: Address::Evm([0x5a; 20]) }),
            asset,
            payer: Address::Evm(bytes_of(&fixture["payer"]).try_into().unwrap()),
            destination: Address::Evm([2; 20]),
            amount: U256::from(5),
            deadline: 1_800_000_000,
        }
    }

    #[test]
    fn a_payment_is_signed_and_carried_in_the_bytes_that_the_contract_took() {
        let assets = [AssetId::Native, AssetId::Token(Address::Evm([3; 20]))];
        for (case, asset) in fixture()["cases"].as_array().unwrap().iter().zip(assets) {
            let intent = intent(asset);
            let signature: [u8; 65] = bytes_of(&case["signature"]).try_into().unwrap();
            assert_eq!(signer_of(&intent_digest(&intent).unwrap(), &signature), Some(intent.payer), "{asset}");
            assert_eq!(call_data(&intent, &signature).unwrap(), bytes_of(&case["data"]), "{asset}");
            assert_eq!((slot(&intent).to_vec(), &case["status"]), (bytes_of(&case["slot"]), &Value::from("0x1")));
        }
    }

    #[test]
    fn each_thing_that_is_paid_changes_what_is_signed() {
        let (good, other) = (intent(AssetId::Native), Address::Evm([9; 20]));
        let all = [
            Intent { transfer_id: [8; 16], ..good.clone() },
            Intent { chain_ref: "eip155:8453".to_owned(), ..good.clone() },
            Intent { asset: AssetId::Token(other), ..good.clone() },
            Intent { payer: other, ..good.clone() },
            Intent { destination: other, ..good.clone() },
            Intent { amount: U256::from(6), ..good.clone() },
            Intent { deadline: 1_800_000_001, ..good.clone() },
            good,
        ];
        let mut digests: Vec<_> = all.iter().map(|intent| intent_digest(intent).unwrap()).collect();
        digests.sort_unstable();
        digests.dedup();
        assert_eq!(digests.len(), all.len());
    }

    #[test]
    fn the_names_and_the_code_are_those_of_the_contract() {
        let function = "pay((address,address,uint256,bytes32,uint256,address),uint8,bytes32,bytes32)";
        assert_eq!(keccak256(function)[..4], PAY);
        assert_eq!(SETTLED, keccak256("Settled(bytes32,bool,address,address,uint256)"));
        let namespace = U256::from_be_bytes(keccak256("landfall.delegate").0) - U256::ONE;
        let mut slot = keccak256(namespace.to_be_bytes::<32>());
        slot[31] = 0;
        assert_eq!(USED, slot);
        let compiled: Value = serde_json::from_str(COMPILED).unwrap();
        let code = bytes_of(&compiled["runtime"]);
        let listed = super::code(&Address::Evm([1; 20])).unwrap();
        assert_eq!((keccak256(&code), listed.defect(&code)), (HASH, None));
        assert!(listed.defect(&[code, vec![0]].concat()).is_some());
    }
}
