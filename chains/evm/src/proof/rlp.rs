//! RLP, writing only, into one buffer.
//!
//! A list is written first and gets its header afterwards, by moving its payload a few bytes: nobody computes
//! lengths in advance. Promises: the shortest form of every number, as consensus wants it.
//! The caller says whether it writes a number or bytes: an address or a hash keeps its leading zeros, a number has
//! none.

use landfall_chain::U256;

use crate::hex::Data;

const STRING: u8 = 0x80;
const LIST: u8 = 0xc0;
/// Above this payload the header holds the length of the length.
const SHORT_MAX: usize = 55;

/// Writes at the end of a buffer.
pub(crate) struct Rlp<'o>(pub(crate) &'o mut Vec<u8>);

impl Rlp<'_> {
    /// A byte as it stands, for the type in front of an EIP-2718 envelope.
    pub(crate) fn raw(&mut self, byte: u8) {
        self.0.push(byte);
    }

    /// What is RLP already.
    pub(crate) fn encoded(&mut self, rlp: &[u8]) {
        self.0.extend_from_slice(rlp);
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        match bytes {
            [byte] if *byte < STRING => self.0.push(*byte),
            bytes => {
                self.head(STRING, bytes.len());
                self.0.extend_from_slice(bytes);
            }
        }
    }

    pub(crate) fn data(&mut self, data: &Data<'_>) {
        match data.to_array::<1>() {
            Some(byte) => self.bytes(&byte),
            None => {
                self.head(STRING, data.len());
                data.append_to(self.0);
            }
        }
    }

    pub(crate) fn number(&mut self, number: u64) {
        self.bytes(without_zeros(&number.to_be_bytes()));
    }

    pub(crate) fn amount(&mut self, amount: U256) {
        self.bytes(without_zeros(&amount.to_be_bytes::<32>()));
    }

    pub(crate) fn list(&mut self, write: impl FnOnce(&mut Rlp<'_>)) {
        let start = self.0.len();
        write(&mut Rlp(&mut *self.0));
        let end = self.0.len();
        self.head(LIST, end - start);
        // The header was written behind the payload; it belongs in front.
        self.0[start..].rotate_left(end - start);
    }

    fn head(&mut self, base: u8, length: usize) {
        if let Ok(short) = u8::try_from(length)
            && length <= SHORT_MAX
        {
            self.0.push(base + short);
        } else {
            let bytes = length.to_be_bytes();
            let bytes = without_zeros(&bytes);
            let count = u8::try_from(bytes.len()).expect("a usize has at most 8 bytes");
            self.0.push(base + 55 + count);
            self.0.extend_from_slice(bytes);
        }
    }
}

fn without_zeros(bytes: &[u8]) -> &[u8] {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    &bytes[zeros..]
}

#[cfg(test)]
mod tests {
    use alloy::rlp::Encodable;

    use super::*;

    fn written(write: impl FnOnce(&mut Rlp<'_>)) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut Rlp(&mut out));
        out
    }

    #[test]
    fn it_writes_what_alloy_writes() {
        for number in [0, 1, 0x7f, 0x80, 0xff, 0x100, u64::from(u32::MAX), u64::MAX] {
            assert_eq!(written(|rlp| rlp.number(number)), alloy::rlp::encode(number));
            assert_eq!(written(|rlp| rlp.amount(U256::from(number))), alloy::rlp::encode(number));
        }
        assert_eq!(written(|rlp| rlp.amount(U256::MAX)), alloy::rlp::encode(U256::MAX));
        for length in [0, 1, 2, 55, 56, 255, 256, 70_000] {
            for byte in [0, 0x7f, 0x80] {
                let bytes = vec![byte; length];
                let text = alloy::hex::encode_prefixed(&bytes);
                assert_eq!(written(|rlp| rlp.bytes(&bytes)), alloy::rlp::encode(bytes.as_slice()), "{length} {byte}");
                assert_eq!(written(|rlp| rlp.data(&Data::parse(&text).unwrap())), alloy::rlp::encode(bytes.as_slice()));
            }
            let numbers = vec![7_u64; length];
            let mut expected = Vec::new();
            numbers.encode(&mut expected);
            let list = |rlp: &mut Rlp<'_>| rlp.list(|rlp| numbers.iter().for_each(|number| rlp.number(*number)));
            assert_eq!(written(list), expected, "{length}");
        }
    }
}
