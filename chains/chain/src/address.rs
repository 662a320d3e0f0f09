//! Addresses as bytes. Compared as bytes, printed in one canonical text per family.
//!
//! EVM addresses print in EIP-55; any case is read, but a wrong mixed-case checksum is refused, because it
//! is the only sign of a typing error that there is.

use std::fmt;

use sha3::{Digest, Keccak256};

use crate::Family;

/// An account on a chain.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Address {
    /// 20 bytes.
    Evm([u8; 20]),
    /// 32 bytes: the owner's wallet, never a token account.
    Solana([u8; 32]),
}

/// Why a text or a byte string is no address.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum AddressError {
    /// Not the shape of an EVM address.
    #[error("malformed EVM address {0:?}: expected 0x and 40 hexadecimal digits")]
    MalformedEvm(String),
    /// Not the shape of a Solana address.
    #[error("malformed Solana address {0:?}: expected 32 bytes in base58")]
    MalformedSolana(String),
    /// Mixed case whose EIP-55 checksum does not hold.
    #[error("wrong checksum in address {given}: its EIP-55 form is {expected}; check the address for a typing error")]
    WrongChecksum {
        /// The text as given.
        given: String,
        /// The same bytes with the right checksum.
        expected: String,
    },
    /// Neither 20 nor 32 bytes.
    #[error("an address of {0} bytes")]
    Length(usize),
}

impl Address {
    /// Reads the text form of a family.
    ///
    /// # Errors
    /// A text of another shape, and an EVM address in mixed case with a wrong checksum.
    pub fn parse(family: Family, text: &str) -> Result<Self, AddressError> {
        match family {
            Family::Evm => parse_evm(text),
            Family::Solana => parse_solana(text),
        }
    }

    /// The family whose form it has.
    pub const fn family(&self) -> Family {
        match self {
            Address::Evm(_) => Family::Evm,
            Address::Solana(_) => Family::Solana,
        }
    }

    /// The bytes: 20 for EVM, 32 for Solana.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Address::Evm(bytes) => bytes,
            Address::Solana(bytes) => bytes,
        }
    }

    /// From stored bytes; their length says the family.
    ///
    /// # Errors
    /// Any length but 20 and 32.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, AddressError> {
        if let Ok(bytes) = bytes.try_into() {
            Ok(Address::Evm(bytes))
        } else if let Ok(bytes) = bytes.try_into() {
            Ok(Address::Solana(bytes))
        } else {
            Err(AddressError::Length(bytes.len()))
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Evm(bytes) => f.write_str(&eip55(bytes)),
            Address::Solana(bytes) => f.write_str(&bs58::encode(bytes).into_string()),
        }
    }
}

fn parse_evm(text: &str) -> Result<Address, AddressError> {
    let malformed = || AddressError::MalformedEvm(text.to_owned());
    let digits = text.strip_prefix("0x").ok_or_else(malformed)?;
    let mut bytes = [0; 20];
    hex::decode_to_slice(digits.as_bytes(), &mut bytes).map_err(|_| malformed())?;
    // const-hex would take a second prefix for digits.
    if digits.len() != 40 {
        return Err(malformed());
    }
    let mixed = digits.bytes().any(|b| b.is_ascii_lowercase()) && digits.bytes().any(|b| b.is_ascii_uppercase());
    let expected = eip55(&bytes);
    if mixed && expected != text {
        return Err(AddressError::WrongChecksum { given: text.to_owned(), expected });
    }
    Ok(Address::Evm(bytes))
}

fn parse_solana(text: &str) -> Result<Address, AddressError> {
    let mut bytes = [0; 32];
    match bs58::decode(text).onto(&mut bytes) {
        Ok(32) => Ok(Address::Solana(bytes)),
        Ok(_) | Err(_) => Err(AddressError::MalformedSolana(text.to_owned())),
    }
}

/// EIP-55: a letter is a capital where the same digit of the keccak of the lower-case text is 8 or more.
fn eip55(bytes: &[u8; 20]) -> String {
    let lower = hex::encode(bytes);
    let hash = Keccak256::digest(lower.as_bytes());
    let mut text = String::with_capacity(42);
    text.push_str("0x");
    for (index, digit) in lower.chars().enumerate() {
        let nibble = if index % 2 == 0 { hash[index / 2] >> 4 } else { hash[index / 2] & 0x0f };
        text.push(if nibble >= 8 { digit.to_ascii_uppercase() } else { digit });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    // The examples of EIP-55 itself.
    const EIP55: [&str; 4] = [
        "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
        "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359",
        "0xdbF03B407c01E7cD3CBea99509d93f8DDDC8C6FB",
        "0xD1220A0cf47c7B9Be7A2E6BA89F429762e7b9aDb",
    ];

    #[test]
    fn an_evm_address_is_read_in_any_case_and_printed_in_eip55() {
        for text in EIP55 {
            let upper = format!("0x{}", text[2..].to_uppercase());
            for given in [text, &text.to_lowercase(), &upper] {
                assert_eq!(Address::parse(Family::Evm, given).unwrap().to_string(), text);
            }
        }
    }

    #[test]
    fn a_wrong_mixed_case_checksum_is_refused_and_the_right_one_is_named() {
        let error = Address::parse(Family::Evm, "0x5AAeb6053F3E94C9b9A09f33669435E7Ef1BeAed").unwrap_err();
        assert_eq!(
            error.to_string(),
            "wrong checksum in address 0x5AAeb6053F3E94C9b9A09f33669435E7Ef1BeAed: its EIP-55 form is \
             0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed; check the address for a typing error"
        );
    }

    #[test]
    fn a_malformed_address_is_refused() {
        for text in [
            "",
            "0x",
            "5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
            "0x5a",
            "0x0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAe",
            "0xzz",
        ] {
            assert!(matches!(Address::parse(Family::Evm, text), Err(AddressError::MalformedEvm(_))), "{text}");
        }
        for text in ["", "0OIl", "4uQeVj5tqViQh7yWWGStvkEG1Zmhx6uasJtWCJzi"] {
            assert!(matches!(Address::parse(Family::Solana, text), Err(AddressError::MalformedSolana(_))), "{text}");
        }
    }

    #[test]
    fn a_solana_address_prints_as_it_was_read() {
        let text = "EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v";
        assert_eq!(Address::parse(Family::Solana, text).unwrap().to_string(), text);
    }
}
