//! The token that stands in for USDC: its code, and its calls as the bytes a transaction carries.
//!
//! Source and compiled code are in nodes/contracts. Pure; encodes these calls and nothing else.

use std::fmt::Write;

use landfall_chain::{Address, U256};
use serde_json::Value;

/// Where the token keeps its name; without one it is called "USD Coin".
pub(super) const NAME_SLOT: &str = "0x0";
const COMPILED: &str = include_str!("../../nodes/contracts/Token.json");

// The first four bytes of the Keccak-256 of each signature.
/// `mint(address,uint256)`
const MINT: &str = "40c10f19";
/// `transfer(address,uint256)`
const TRANSFER: &str = "a9059cbb";
/// `pay(address[],uint256[])`
const PAY: &str = "084ce708";
/// `balanceOf(address)`
const BALANCE_OF: &str = "70a08231";
/// `authorizationState(address,bytes32)`
const AUTHORIZATION_STATE: &str = "e94a0102";

/// The code that makes an address the token.
pub fn runtime_code() -> String {
    let compiled: Value = serde_json::from_str(COMPILED).expect("the compiler's output is JSON");
    compiled["runtime"].as_str().expect("the compiler's output has the code").to_owned()
}

/// What stands at [`NAME_SLOT`] for this name of at most 31 bytes: the name, and twice its length.
pub(super) fn name_word(name: &str) -> String {
    let mut word = [0; 32];
    let length = name.len().min(31);
    word[..length].copy_from_slice(&name.as_bytes()[..length]);
    word[31] = u8::try_from(2 * length).expect("at most 62");
    hex::encode_prefixed(word)
}

/// Makes `amount` base units and gives them to `to`. Anyone may.
pub fn mint(to: &Address, amount: U256) -> String {
    call(MINT, &[address_word(to), amount_word(amount)])
}

/// Moves `amount` base units from the sender to `to`.
pub fn transfer(to: &Address, amount: U256) -> String {
    call(TRANSFER, &[address_word(to), amount_word(amount)])
}

/// Several transfers from the sender in one transaction, in this order.
pub fn pay(legs: &[(Address, U256)]) -> String {
    let count = U256::from(legs.len());
    // Where each array begins, in bytes after the selector: after these two offsets, and after the first array.
    let (recipients_at, amounts_at) = (U256::from(64), U256::from(64 + 32 * (1 + legs.len())));
    let mut words = vec![amount_word(recipients_at), amount_word(amounts_at), amount_word(count)];
    words.extend(legs.iter().map(|(to, _)| address_word(to)));
    words.push(amount_word(count));
    words.extend(legs.iter().map(|(_, amount)| amount_word(*amount)));
    call(PAY, &words)
}

/// The call for the balance of `owner`.
pub fn balance_of(owner: &Address) -> String {
    call(BALANCE_OF, &[address_word(owner)])
}

/// The call for whether `owner`'s one-time key, which fills the front of the nonce, is used.
pub fn authorization_state(owner: &Address, key: &[u8; 24]) -> String {
    let mut nonce = [0; 32];
    nonce[..24].copy_from_slice(key);
    call(AUTHORIZATION_STATE, &[address_word(owner), nonce])
}

fn call(selector: &str, words: &[[u8; 32]]) -> String {
    let mut data = format!("0x{selector}");
    for word in words {
        write!(data, "{}", hex::encode(word)).expect("a String takes everything");
    }
    data
}

/// The ABI's uint256: 32 bytes big endian.
fn amount_word(amount: U256) -> [u8; 32] {
    amount.to_be_bytes()
}

/// The ABI's address: 32 bytes, the address at their end.
fn address_word(address: &Address) -> [u8; 32] {
    amount_word(U256::from_be_slice(address.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALICE: Address = Address::Evm([0xaa; 20]);
    const BOB: Address = Address::Evm([0xbb; 20]);

    fn words(data: &str) -> Vec<String> {
        let digits = &data.as_bytes()[2 + 8..];
        let words = digits.chunks(64).map(|word| String::from_utf8_lossy(word).trim_start_matches('0').to_owned());
        words.collect()
    }

    #[test]
    fn every_selector_is_one_that_the_code_knows() {
        let code = runtime_code();
        for selector in [MINT, TRANSFER, PAY, BALANCE_OF, AUTHORIZATION_STATE] {
            // PUSH4 selector, EQ: how the compiler's dispatcher compares.
            assert!(code.contains(&format!("63{selector}14")), "{selector}");
        }
    }

    #[test]
    fn a_transfer_is_encoded_as_the_abi_says() {
        assert_eq!(
            transfer(&ALICE, U256::from(255)),
            format!("0xa9059cbb{}{}{}{}", "0".repeat(24), "aa".repeat(20), "0".repeat(62), "ff")
        );
        assert_eq!(words(&mint(&BOB, U256::from(1))), ["bb".repeat(20), "1".to_owned()]);
        assert_eq!(words(&balance_of(&BOB)), ["bb".repeat(20)]);
    }

    #[test]
    fn arrays_stand_behind_their_offsets() {
        let (alice, bob) = ("aa".repeat(20), "bb".repeat(20));
        let data = pay(&[(ALICE, U256::from(5)), (BOB, U256::from(7))]);
        // 0x40 and 0xa0 are the offsets of the two arrays.
        assert_eq!(words(&data), ["40", "a0", "2", &alice, &bob, "2", "5", "7"]);
        assert_eq!(words(&pay(&[])), ["40", "60", "", ""], "two empty arrays");
    }
}
