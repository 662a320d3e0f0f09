//! The bloom filter of a header: which contracts and topics its block's logs may hold.
//!
//! Under a proved header it proves absence: what it does not hold has no log. What it holds may still have none. 2048
//! bits, three for each address and topic (yellow paper, 4.4.1).

use alloy::primitives::keccak256;

use crate::hex::Data;

/// The filter of one block.
pub(crate) struct Bloom([u8; 256]);

/// The three bits of an address or topic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Bits([u16; 3]);

impl Bits {
    pub(crate) fn of(item: &[u8]) -> Self {
        let hash = keccak256(item);
        Bits([0, 2, 4].map(|at| u16::from_be_bytes([hash[at], hash[at + 1]]) & 0x7ff))
    }
}

impl Bloom {
    /// `None` when it does not have the length of one.
    pub(crate) fn read(data: Data<'_>) -> Option<Self> {
        data.to_array().map(Bloom)
    }

    pub(crate) fn may_hold(&self, Bits(bits): Bits) -> bool {
        bits.into_iter().all(|bit| self.0[255 - usize::from(bit / 8)] & (1 << (bit % 8)) != 0)
    }

    /// Nothing has a log in such a block, or its chain fills in no filters.
    pub(crate) fn is_zero(&self) -> bool {
        self.0.iter().all(|byte| *byte == 0)
    }
}

#[cfg(test)]
mod tests {
    use alloy::primitives::{Address, B256, Bloom as Other, BloomInput};

    use super::*;

    #[test]
    fn it_holds_what_alloy_put_in_and_little_else() {
        let mut other = Other::ZERO;
        let inside: Vec<Address> = (1..=20).map(Address::repeat_byte).collect();
        inside.iter().for_each(|address| other.accrue(BloomInput::Raw(address.as_slice())));
        let topic = B256::repeat_byte(0x55);
        other.accrue(BloomInput::Raw(topic.as_slice()));
        let bloom = Bloom(other.0.0);
        assert!(inside.iter().all(|address| bloom.may_hold(Bits::of(address.as_slice()))));
        assert!(bloom.may_hold(Bits::of(topic.as_slice())));
        let outside = (100..=200).filter(|who| bloom.may_hold(Bits::of(Address::repeat_byte(*who).as_slice())));
        assert_eq!(outside.count(), 0, "61 of 2048 bits");
        assert!(!bloom.is_zero() && Bloom(Other::ZERO.0.0).is_zero());
    }
}
