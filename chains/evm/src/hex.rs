//! Numbers and bytes as JSON-RPC writes them: text with 0x in front.
//!
//! Promises: what is not exactly hexadecimal, or does not fit, is an error and never a panic. Leading zeros are
//! accepted, because some nodes pad signatures; the hash of the block decides whether the value was right.
//! Bytes stay text until they are encoded: most of a block is not read otherwise.

use alloy::hex;
use landfall_chain::U256;
use serde::de::{Deserialize, Deserializer, Error};
use serde_json::value::RawValue;

/// A number up to 64 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Quantity(pub(crate) u64);

/// A number up to 256 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Amount(pub(crate) U256);

/// Bytes of any length, kept as their digits: an even number of them, all hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Data<'a>(&'a str);

/// A field that no root covers, and that decides nothing that a root proves: whatever a node writes there, the rest of
/// its answer counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Unproved<T> {
    /// Left out, or null.
    #[default]
    Absent,
    Read(T),
    /// Anything else. Which value was meant is not guessed.
    Unreadable,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum HexError {
    #[error("hexadecimal text without 0x")]
    Prefix,
    #[error("no hexadecimal number")]
    Digits,
    #[error("a number of more than {0} bits")]
    Range(usize),
}

impl Quantity {
    pub(crate) fn parse(text: &str) -> Result<Self, HexError> {
        let digits = digits(text)?;
        let (mut number, mut is_larger) = (0_u64, false);
        for digit in digits.bytes() {
            let digit = char::from(digit).to_digit(16).ok_or(HexError::Digits)?;
            is_larger |= number >> 60 != 0;
            number = (number << 4) | u64::from(digit);
        }
        if is_larger { Err(HexError::Range(64)) } else { Ok(Quantity(number)) }
    }
}

impl Amount {
    pub(crate) fn parse(text: &str) -> Result<Self, HexError> {
        // Most amounts are short: prices, and most of what is paid.
        if text.len() <= 18 {
            return Quantity::parse(text).map(|Quantity(number)| Amount(U256::from(number)));
        }
        let digits = digits(text)?.trim_start_matches('0');
        let mut padded = [b'0'; 64];
        let Some(start) = padded.len().checked_sub(digits.len()) else {
            return Err(if hex::check_raw(digits) { HexError::Range(256) } else { HexError::Digits });
        };
        padded[start..].copy_from_slice(digits.as_bytes());
        let mut bytes = [0; 32];
        hex::decode_to_slice(padded, &mut bytes).map_err(|_| HexError::Digits)?;
        Ok(Amount(U256::from_be_bytes(bytes)))
    }
}

impl<'a> Data<'a> {
    pub(crate) fn parse(text: &'a str) -> Result<Self, HexError> {
        let digits = text.strip_prefix("0x").ok_or(HexError::Prefix)?;
        let whole = digits.len().is_multiple_of(2);
        if whole && hex::check_raw(digits) { Ok(Data(digits)) } else { Err(HexError::Digits) }
    }

    /// How many bytes.
    pub(crate) fn len(&self) -> usize {
        self.0.len() / 2
    }

    pub(crate) fn first_byte(&self) -> Option<u8> {
        u8::from_str_radix(self.0.get(..2)?, 16).ok()
    }

    /// Adds the bytes to `out`.
    pub(crate) fn append_to(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + self.len(), 0);
        hex::decode_to_slice(self.0, &mut out[start..]).expect("the digits were checked when they were read");
    }

    /// The bytes, when there are exactly `N`.
    pub(crate) fn to_array<const N: usize>(self) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        (self.len() == N).then(|| hex::decode_to_slice(self.0, &mut bytes).ok())??;
        Some(bytes)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Quantity::parse(<&str>::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Amount::parse(<&str>::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Data<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Data::parse(<&str>::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Unproved<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <&RawValue>::deserialize(deserializer)?.get();
        Ok(serde_json::from_str(text).map_or(Unproved::Unreadable, |read: Option<T>| read.into()))
    }
}

impl<T> From<Option<T>> for Unproved<T> {
    fn from(read: Option<T>) -> Self {
        read.map_or(Unproved::Absent, Unproved::Read)
    }
}

/// What stands behind 0x, which must be something.
fn digits(text: &str) -> Result<&str, HexError> {
    let digits = text.strip_prefix("0x").ok_or(HexError::Prefix)?;
    if digits.is_empty() { Err(HexError::Digits) } else { Ok(digits) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantity_is_read_or_refused() {
        let cases = [
            ("0x0", Ok(0)),
            ("0x1", Ok(1)),
            ("0x0001", Ok(1)),
            ("0xFf", Ok(255)),
            ("0xffffffffffffffff", Ok(u64::MAX)),
            ("0x00000000000000000000ffffffffffffffff", Ok(u64::MAX)),
            ("0x10000000000000000", Err(HexError::Range(64))),
            ("0x", Err(HexError::Digits)),
            ("0x+1", Err(HexError::Digits)),
            ("0x-1", Err(HexError::Digits)),
            ("0x1g", Err(HexError::Digits)),
            ("0x0x1", Err(HexError::Digits)),
            ("0x1 ", Err(HexError::Digits)),
            ("0xé", Err(HexError::Digits)),
            ("1", Err(HexError::Prefix)),
            ("", Err(HexError::Prefix)),
            ("0X1", Err(HexError::Prefix)),
        ];
        for (text, expected) in cases {
            assert_eq!(Quantity::parse(text), expected.map(Quantity), "{text}");
        }
    }

    #[test]
    fn an_amount_is_read_or_refused() {
        let most = format!("0x{}", "f".repeat(64));
        assert_eq!(Amount::parse(&most), Ok(Amount(U256::MAX)));
        assert_eq!(Amount::parse(&format!("0x0{}", "f".repeat(64))), Ok(Amount(U256::MAX)));
        assert_eq!(Amount::parse("0x0"), Ok(Amount(U256::ZERO)));
        assert_eq!(Amount::parse("0xabc"), Ok(Amount(U256::from(0xabc))));
        assert_eq!(Amount::parse("0xffffffffffffffff"), Ok(Amount(U256::from(u64::MAX))));
        assert_eq!(Amount::parse("0x1ffffffffffffffff"), Ok(Amount(U256::from(0x1_ffff_ffff_ffff_ffff_u128))));
        assert_eq!(Amount::parse(&format!("0x{}", "0".repeat(70))), Ok(Amount(U256::ZERO)));
        assert_eq!(Amount::parse(&format!("0x{}", "g".repeat(70))), Err(HexError::Digits));
        assert_eq!(Amount::parse(&format!("0x{}", "g".repeat(40))), Err(HexError::Digits));
        assert_eq!(Amount::parse(&format!("0x1{}", "0".repeat(64))), Err(HexError::Range(256)));
        assert_eq!(Amount::parse("0x"), Err(HexError::Digits));
        assert_eq!(Amount::parse("0xzz"), Err(HexError::Digits));
        assert_eq!(Amount::parse("ff"), Err(HexError::Prefix));
    }

    #[test]
    fn data_is_read_or_refused_and_gives_its_bytes() {
        for text in ["0x0", "0xabc", "0xzz", "0x0x12"] {
            assert_eq!(Data::parse(text), Err(HexError::Digits), "{text}");
        }
        assert_eq!(Data::parse("12"), Err(HexError::Prefix));
        let mut out = vec![9];
        Data::parse("0x01fF").unwrap().append_to(&mut out);
        Data::parse("0x").unwrap().append_to(&mut out);
        assert_eq!(out, [9, 1, 255]);
        assert_eq!(Data::parse("0x01fF").unwrap().to_array(), Some([1, 255]));
        assert_eq!(Data::parse("0x01fF").unwrap().to_array::<3>(), None);
    }
}
