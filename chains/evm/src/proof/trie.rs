//! The root of a list: the Merkle-Patricia trie whose keys are the RLP of 0, 1, 2, .. (yellow paper, appendix D), as
//! blocks commit to transactions, receipts and withdrawals.
//!
//! Each node is written behind the one it belongs to, into one buffer, and replaced by its hash: nothing else is kept.
//! Recurses once for each nibble of a key, of which there are at most ten.

use alloy::primitives::{B256, keccak256};
use alloy_trie::EMPTY_ROOT_HASH;

use crate::proof::rlp::Rlp;

/// 0x83 and three bytes, or 0x84 and four: no block has as many entries as that.
const NIBBLES_MAX: usize = 10;
/// A node that is shorter stands in its parent as it is.
const HASHED_MIN: usize = 32;
/// In front of a path's nibbles: that they end at a leaf, and that their number is odd.
const LEAF: u8 = 2;
const ODD: u8 = 1;

/// Where an entry stands.
struct Key {
    index: usize,
    nibbles: [u8; NIBBLES_MAX],
    length: usize,
}

/// The root over `count` entries, of which `entry` gives the bytes.
pub(crate) fn root<'e>(count: usize, entry: impl Fn(usize) -> &'e [u8]) -> B256 {
    // In the order of their keys: 1 to 127 are single bytes, 0 is 0x80, what comes behind begins with its length.
    let short = 1..count.min(128);
    let indexes = short.chain((count > 0).then_some(0)).chain(128..count);
    let keys: Vec<Key> = indexes.map(Key::of).collect();
    if keys.is_empty() {
        return EMPTY_ROOT_HASH;
    }
    let mut out = Vec::with_capacity(2_048);
    node(&keys, 0, &entry, &mut out);
    keccak256(&out)
}

impl Key {
    fn of(index: usize) -> Self {
        let bytes = index.to_be_bytes();
        let bytes = &bytes[bytes.iter().take_while(|byte| **byte == 0).count()..];
        let mut key = Key { index, nibbles: [0; NIBBLES_MAX], length: 0 };
        let mut push = |byte: u8| {
            key.nibbles[key.length..key.length + 2].copy_from_slice(&[byte >> 4, byte & 0xf]);
            key.length += 2;
        };
        match bytes {
            [] => push(0x80),
            [byte] if *byte < 0x80 => push(*byte),
            bytes => {
                push(0x80 + u8::try_from(bytes.len()).expect("an index has at most 8 bytes"));
                bytes.iter().copied().for_each(push);
            }
        }
        key
    }

    /// Behind the first `depth` nibbles.
    fn path(&self, depth: usize) -> &[u8] {
        &self.nibbles[depth..self.length]
    }
}

/// Writes the node that holds `keys`, which are sorted and begin with the same `depth` nibbles.
fn node<'e>(keys: &[Key], depth: usize, entry: &impl Fn(usize) -> &'e [u8], out: &mut Vec<u8>) {
    let [first, .., last] = keys else {
        return keys.iter().for_each(|key| leaf(key.path(depth), entry(key.index), out));
    };
    let shared = first.path(depth).iter().zip(last.path(depth)).take_while(|(one, other)| one == other).count();
    if shared > 0 {
        return Rlp(out).list(|rlp| {
            path(&first.path(depth)[..shared], 0, rlp);
            child(keys, depth + shared, entry, rlp);
        });
    }
    Rlp(out).list(|rlp| {
        let mut rest = keys;
        for nibble in 0..16 {
            let (here, behind) = rest.split_at(rest.partition_point(|key| key.nibbles[depth] <= nibble));
            rest = behind;
            match here {
                [] => rlp.bytes(&[]),
                keys => child(keys, depth + 1, entry, rlp),
            }
        }
        // No key ends here: none is the beginning of another.
        rlp.bytes(&[]);
    });
}

/// Writes what stands for the node in its parent.
fn child<'e>(keys: &[Key], depth: usize, entry: &impl Fn(usize) -> &'e [u8], rlp: &mut Rlp<'_>) {
    let out = &mut *rlp.0;
    let start = out.len();
    node(keys, depth, entry, out);
    if out.len() - start >= HASHED_MIN {
        let hash = keccak256(&out[start..]);
        out.truncate(start);
        Rlp(out).bytes(&hash.0);
    }
}

fn leaf(nibbles: &[u8], value: &[u8], out: &mut Vec<u8>) {
    Rlp(out).list(|rlp| {
        path(nibbles, LEAF, rlp);
        rlp.bytes(value);
    });
}

fn path(nibbles: &[u8], flags: u8, rlp: &mut Rlp<'_>) {
    let mut packed = [0; NIBBLES_MAX / 2 + 1];
    let (odd, pairs) = nibbles.split_at(nibbles.len() % 2);
    packed[0] = match odd {
        [nibble] => ((flags + ODD) << 4) | nibble,
        _ => flags << 4,
    };
    for (byte, pair) in packed[1..].iter_mut().zip(pairs.chunks_exact(2)) {
        *byte = (pair[0] << 4) | pair[1];
    }
    rlp.bytes(&packed[..=pairs.len() / 2]);
}

#[cfg(test)]
mod tests {
    use alloy::consensus::proofs::ordered_trie_root_with_encoder;
    use proptest::prelude::*;

    use super::*;

    fn agree(entries: &[Vec<u8>]) {
        let expected = ordered_trie_root_with_encoder(entries, |entry, out| out.extend_from_slice(entry));
        assert_eq!(root(entries.len(), |index| &entries[index]), expected, "{} entries", entries.len());
    }

    #[test]
    fn it_is_the_root_that_alloy_computes_whatever_the_number_of_entries() {
        let entry = |index: usize| vec![u8::try_from(index % 251).unwrap(); 1 + index * 7 % 90];
        for count in (0..=300).chain([511, 512, 4_095, 4_097, 65_535, 65_536, 65_537, 66_000]) {
            agree(&(0..count).map(entry).collect::<Vec<_>>());
        }
    }

    #[test]
    fn short_nodes_stand_in_their_parents() {
        for length in [0, 1, 2, 26, 27, 28, 29, 30, 31, 32, 33, 54, 55, 56, 57, 255, 256, 70_000] {
            for byte in [0, 1, 0x7f, 0x80, 0xff] {
                for count in [1, 2, 3, 16, 17, 18, 128, 129, 130, 200] {
                    agree(&vec![vec![byte; length]; if length > 1_000 { count.min(3) } else { count }]);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn it_is_the_root_that_alloy_computes_whatever_the_entries(
            entries in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 0..300),
        ) {
            agree(&entries);
        }
    }
}
