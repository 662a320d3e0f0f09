//! EIP-3009: a token that takes its owner's signed authorization from anybody, once for each nonce.
//!
//! The types that are signed are those of Circle's FiatToken (`contracts/v2/EIP3009.sol`). OpenZeppelin Contracts 5.7
//! has the same.
//! Promise: `validAfter` is 0 and `validBefore` is the deadline, so the intent alone decides what is signed.

use alloy::primitives::keccak256;
use landfall_chain::{Intent, SignedIntent};

use crate::pay::{PayError, SIGNATURE_LEN, address_word, chain_id, contract, evm, hashed, number_word, parts};

const DOMAIN: &str = "EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)";
const AUTHORIZATION: &str = "TransferWithAuthorization(address from,address to,uint256 value,uint256 validAfter,\
                             uint256 validBefore,bytes32 nonce)";
const CANCELLATION: &str = "CancelAuthorization(address authorizer,bytes32 nonce)";
/// `transferWithAuthorization(address,address,uint256,uint256,uint256,bytes32,uint8,bytes32,bytes32)`.
const TRANSFER_WITH_AUTHORIZATION: [u8; 4] = [0xe3, 0xee, 0x16, 0x0e];
/// `cancelAuthorization(address,bytes32,uint8,bytes32,bytes32)`.
const CANCEL_AUTHORIZATION: [u8; 4] = [0x5a, 0x04, 0x9a, 0x70];
/// `authorizationState(address,bytes32)`: whether the nonce was used or cancelled.
const AUTHORIZATION_STATE: [u8; 4] = [0xe9, 0x4a, 0x01, 0x02];
/// `DOMAIN_SEPARATOR()`.
pub(crate) const DOMAIN_SEPARATOR: [u8; 4] = [0x36, 0x44, 0xe5, 0x15];

/// What the payer's key signs (EIP-712), for a token whose domain has this name and version.
pub(super) fn digest(intent: &Intent, name: &str, version: &str) -> Result<[u8; 32], PayError> {
    Ok(of_words(&domain_separator(intent, name, version)?, AUTHORIZATION, &authorization(intent)?))
}

/// What the payer's key signs so that the intent's nonce pays nothing any more.
pub(super) fn cancellation_digest(intent: &Intent, name: &str, version: &str) -> Result<[u8; 32], PayError> {
    Ok(of_words(&domain_separator(intent, name, version)?, CANCELLATION, &used(intent)?))
}

/// What scopes the signature: the token, on its chain, under its own name.
pub(crate) fn domain_separator(intent: &Intent, name: &str, version: &str) -> Result<[u8; 32], PayError> {
    Ok(hashed(&[
        keccak256(DOMAIN).0,
        keccak256(name).0,
        keccak256(version).0,
        number_word(chain_id(&intent.chain_ref)?),
        address_word(contract(&intent.asset)?),
    ]))
}

/// The call that anybody may make with the payer's signature.
pub(crate) fn call_data(signed: &SignedIntent) -> Result<Vec<u8>, PayError> {
    signed_call(TRANSFER_WITH_AUTHORIZATION, &authorization(&signed.intent)?, &signed.signature)
}

/// The call that anybody may make with the payer's signature of a cancellation.
pub(crate) fn cancellation_data(signed: &SignedIntent) -> Result<Vec<u8>, PayError> {
    signed_call(CANCEL_AUTHORIZATION, &used(&signed.intent)?, &signed.signature)
}

fn signed_call(selector: [u8; 4], words: &[[u8; 32]], signature: &[u8]) -> Result<Vec<u8>, PayError> {
    let length = signature.len();
    let signature = <&[u8; SIGNATURE_LEN]>::try_from(signature).map_err(|_| PayError::SignatureLength(length))?;
    let (r, s, v) = parts(signature);
    let mut data = selector.to_vec();
    data.extend(words.as_flattened());
    data.extend([number_word(v.into()), r, s].as_flattened());
    Ok(data)
}

/// Asks the token whether the intent's nonce is used.
pub(crate) fn state_data(intent: &Intent) -> Result<Vec<u8>, PayError> {
    let mut data = AUTHORIZATION_STATE.to_vec();
    data.extend(used(intent)?.as_flattened());
    Ok(data)
}

/// What the token counts: whose, and the nonce.
fn used(intent: &Intent) -> Result<[[u8; 32]; 2], PayError> {
    Ok([address_word(evm(&intent.payer)?), intent.key().evm_nonce()])
}

/// from, to, value, validAfter, validBefore, nonce.
fn authorization(intent: &Intent) -> Result<[[u8; 32]; 6], PayError> {
    Ok([
        address_word(evm(&intent.payer)?),
        address_word(evm(&intent.destination)?),
        intent.amount.to_be_bytes(),
        number_word(0),
        number_word(intent.deadline),
        intent.key().evm_nonce(),
    ])
}

fn of_words(domain: &[u8; 32], kind: &str, words: &[[u8; 32]]) -> [u8; 32] {
    let mut message = vec![0x19, 0x01];
    message.extend(domain);
    message.extend(hashed(&[&[keccak256(kind).0], words].concat()));
    keccak256(message).0
}

#[cfg(test)]
mod tests {
    use alloy::primitives::{address, b256, hex};
    use landfall_chain::{Address, AssetId, Route, U256};

    use super::*;
    use crate::pay::{intent_digest, signer_of};

    fn intent(chain_ref: &str, token: Address, name: &str, version: &str) -> Intent {
        Intent {
            transfer_id: [7; 16],
            chain_ref: chain_ref.to_owned(),
            route: Route::Erc3009 { name: name.to_owned(), version: version.to_owned() },
            asset: AssetId::Token(token),
            payer: Address::Evm([1; 20]),
            destination: Address::Evm([2; 20]),
            amount: U256::from(5),
            deadline: 1_800_000_000,
        }
    }

    /// The payment that the specification of x402 (v2, "exact") shows: signed by somebody else's code, for Circle's USDC
    /// on Base Sepolia, whose `DOMAIN_SEPARATOR()` is the one below.
    #[test]
    fn a_foreign_signature_of_an_authorization_is_its_payers() {
        let token = Address::Evm(address!("036CbD53842c5426634e7929541eC2318f3dCF7e").into());
        let domain = domain_separator(&intent("eip155:84532", token, "USDC", "2"), "USDC", "2").unwrap();
        assert_eq!(domain, b256!("71f17a3b2ff373b803d70a5a07c046c1a2bc8e89c09ef722fcb047abe94c9818").0);
        let payer = address!("857b06519E91e3A54538791bDbb0E22373e36b66");
        let words = [
            address_word(payer.into()),
            address_word(address!("209693Bc6afc0C5328bA36FaF03C514EF312287C").into()),
            number_word(10_000),
            number_word(1_740_672_089),
            number_word(1_740_672_154),
            b256!("f3746613c2d920b5fdabc0856f2aeb2d4f88ee6037b8cc5d04a71a4462f13480").0,
        ];
        let signature = hex!(
            "2d6a7588d6acca505cbf0d9a4a227e0c52c6c34008c8e8986a1283259764173608a2ce6496642e377d6da8dbbf5836e9bd15092f9ecab05ded3d6293af148b571c"
        );
        assert_eq!(signer_of(&of_words(&domain, AUTHORIZATION, &words), &signature), Some(Address::Evm(payer.into())));
    }

    #[test]
    fn the_selectors_are_those_of_the_functions() {
        let transfer =
            "transferWithAuthorization(address,address,uint256,uint256,uint256,bytes32,uint8,bytes32,bytes32)";
        let functions = [
            (transfer, TRANSFER_WITH_AUTHORIZATION),
            ("cancelAuthorization(address,bytes32,uint8,bytes32,bytes32)", CANCEL_AUTHORIZATION),
            ("authorizationState(address,bytes32)", AUTHORIZATION_STATE),
            ("DOMAIN_SEPARATOR()", DOMAIN_SEPARATOR),
        ];
        for (function, selector) in functions {
            assert_eq!(keccak256(function)[..4], selector, "{function}");
        }
        // `TRANSFER_WITH_AUTHORIZATION_TYPEHASH` of FiatToken.
        let kind = b256!("7c7c6cdb67a18743f49ec6fa9b35f50d52ed05cbed4cc592e13b44501c1a2267");
        assert_eq!(keccak256(AUTHORIZATION), kind);
        // `CANCEL_AUTHORIZATION_TYPEHASH` of the same contract.
        let kind = b256!("158b0a9edf7a828aad02f63cd515c68ef2f50ba807396f6d12842833a1597429");
        assert_eq!(keccak256(CANCELLATION), kind);
    }

    #[test]
    fn what_is_no_intent_of_an_evm_chain_is_refused_by_what_is_wrong() {
        let token = Address::Evm([3; 20]);
        let good = intent("eip155:8453", token, "USD Coin", "2");
        let solana = Address::Solana([3; 32]);
        let guard = Route::Guard { program: None, decimals: 6 };
        let cases = [
            (Intent { route: guard, ..good.clone() }, PayError::OtherRoute("guard")),
            (Intent { chain_ref: "solana:x".to_owned(), ..good.clone() }, PayError::ChainRef("solana:x".to_owned())),
            (Intent { chain_ref: "eip155:".to_owned(), ..good.clone() }, PayError::ChainRef("eip155:".to_owned())),
            (Intent { asset: AssetId::Native, ..good.clone() }, PayError::NoToken(AssetId::Native)),
            (Intent { asset: AssetId::Token(solana), ..good.clone() }, PayError::NoToken(AssetId::Token(solana))),
            (Intent { payer: solana, ..good.clone() }, PayError::Foreign(solana)),
            (Intent { destination: solana, ..good.clone() }, PayError::Foreign(solana)),
        ];
        for (intent, expected) in cases {
            assert_eq!(intent_digest(&intent), Err(expected));
        }
        let signed = SignedIntent { intent: good, signature: vec![0; 64] };
        assert_eq!(call_data(&signed), Err(PayError::SignatureLength(64)));
    }

    #[test]
    fn each_thing_that_is_paid_changes_what_is_signed() {
        let good = intent("eip155:8453", Address::Evm([3; 20]), "USD Coin", "2");
        let other = Address::Evm([9; 20]);
        let others = [
            Intent { transfer_id: [8; 16], ..good.clone() },
            Intent { chain_ref: "eip155:84532".to_owned(), ..good.clone() },
            Intent { asset: AssetId::Token(other), ..good.clone() },
            Intent { payer: other, ..good.clone() },
            Intent { destination: other, ..good.clone() },
            Intent { amount: U256::from(6), ..good.clone() },
            Intent { deadline: 1_800_000_001, ..good.clone() },
            intent("eip155:8453", Address::Evm([3; 20]), "USDC", "2"),
            intent("eip155:8453", Address::Evm([3; 20]), "USD Coin", "1"),
        ];
        let mut digests: Vec<_> = others.iter().map(|intent| intent_digest(intent).unwrap()).collect();
        digests.push(intent_digest(&good).unwrap());
        digests.sort_unstable();
        digests.dedup();
        assert_eq!(digests.len(), others.len() + 1);
    }

    /// What the contracts answer to `DOMAIN_SEPARATOR()`, as others published it.
    #[test]
    fn the_domains_of_the_networks_files_are_those_of_the_contracts() {
        let known = [
            (1, "USDC", "06c37168a7db5138defc7866392bb87a741f9b3d104deb5094588ce041cae335"),
            (1, "EURC", "99f188f447f0c6eaf68589359cd2ead8c2faaaaee984ab926fdb734d0040073b"),
            (10, "USDC", "26d9c34bb1a1c312f69c53b2d93b8be20faafba63af2438c6811713c9b1f933f"),
            (137, "USDC", "caa2ce1a5703ccbe253a34eb3166df60a705c561b44b192061e28f2a985be2ca"),
            (8_453, "USDC", "02fa7265e7c5d81118673727957699e4d68f74cd74b7db77da710fe8a2c7834f"),
            (8_453, "EURC", "ec4dcbded0afd42599589b79220899bbe000bb5ea66d6f1bc176e78d094203bb"),
            (80_002, "USDC", "5cddc98319864e897e4469bd1d13c2288c677047b54b8cca12bd342adb6be9eb"),
            (84_532, "USDC", "71f17a3b2ff373b803d70a5a07c046c1a2bc8e89c09ef722fcb047abe94c9818"),
            (11_155_111, "USDC", "b90e5057db141a932946e64d09ccb7ffc9b00bd79fec26f698d29af0c83320a6"),
            (11_155_420, "USDC", "09d038a3e46040fc37eb01174dbbcdb7981fbd8eafd9e1a857b1c67805dfb29e"),
        ];
        let networks = crate::networks();
        for (chain_id, symbol, separator) in known {
            let chain_ref = format!("eip155:{chain_id}");
            let network = networks.iter().find(|network| network.chain_ref == chain_ref).unwrap();
            let asset = network.assets.iter().find(|asset| asset.symbol == symbol).unwrap();
            let Some(Route::Erc3009 { name, version }) = &asset.route else { panic!("{chain_ref} {symbol}") };
            let of = intent(&chain_ref, Address::Evm([0; 20]), "", "");
            let domain = domain_separator(&Intent { asset: asset.id, ..of }, name, version).unwrap();
            assert_eq!(hex::encode(domain), separator, "{chain_ref} {symbol}");
        }
    }
}
