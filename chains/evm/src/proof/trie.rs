//! The root of a list: the Merkle-Patricia trie whose keys are the RLP of 0, 1, 2, .. (yellow paper, appendix D), as
//! blocks commit to transactions, receipts and withdrawals.
//!
//! The nodes are laid out level by level from the root, and encoded level by level towards it, so that all nodes of a
//! level, most of which are leaves, are hashed together. There are at most as many levels as a key has nibbles.

use alloy::primitives::{B256, keccak256};
use alloy_trie::EMPTY_ROOT_HASH;

use crate::proof::keccak::keccak256_of_each;
use crate::proof::pieces::Pieces;
use crate::proof::rlp::Rlp;

/// 0x83 and three bytes, or 0x84 and four: no block has as many entries as that.
const NIBBLES_MAX: usize = 10;
/// A node that is shorter stands in its parent as it is.
const HASHED_MIN: usize = 32;
/// What stands where a branch has no child, and no value: an empty string, encoded.
const EMPTY: &[u8] = &[0x80];
/// In front of a path's nibbles: that they end at a leaf, and that their number is odd.
const LEAF: u8 = 2;
const ODD: u8 = 1;

/// Where an entry stands.
struct Key {
    index: usize,
    nibbles: [u8; NIBBLES_MAX],
    length: usize,
}

/// A node. Its children stand in the next level, in the order of nodes and nibbles.
enum Node<'k> {
    /// Of one key.
    Leaf {
        keys: &'k [Key],
        depth: usize,
    },
    Extension {
        path: &'k [u8],
    },
    /// Whether there is a child at each nibble. No key ends here: none is the beginning of another.
    Branch {
        children: [bool; 16],
    },
}

/// The root over `entries`.
pub(crate) fn root(entries: &Pieces) -> B256 {
    let count = entries.len();
    // In the order of their keys: 1 to 127 are single bytes, 0 is 0x80, what comes behind begins with its length.
    let short = 1..count.min(128);
    let indexes = short.chain((count > 0).then_some(0)).chain(128..count);
    let keys: Vec<Key> = indexes.map(Key::of).collect();
    let mut levels = levels(&keys);
    let mut below = Pieces::default();
    while let Some(level) = levels.pop() {
        let encoded = encoded(&level, &below, entries);
        if levels.is_empty() {
            return encoded.iter().next().map_or(EMPTY_ROOT_HASH, keccak256);
        }
        below = in_parents(&encoded);
    }
    EMPTY_ROOT_HASH
}

/// The nodes over `keys`, which are sorted; the root alone is the first level.
fn levels(keys: &[Key]) -> Vec<Vec<Node<'_>>> {
    let mut levels = Vec::new();
    // The keys below a node, and the number of nibbles that they begin with in common.
    let mut parts: Vec<(&[Key], usize)> = if keys.is_empty() { Vec::new() } else { vec![(keys, 0)] };
    while !parts.is_empty() {
        let mut below = Vec::with_capacity(parts.len());
        levels.push(parts.iter().map(|(keys, depth)| Node::of(keys, *depth, &mut below)).collect());
        parts = below;
    }
    levels
}

impl<'k> Node<'k> {
    /// The node that holds `keys`, which begin with the same `depth` nibbles; what is below it is added to `below`.
    fn of(keys: &'k [Key], depth: usize, below: &mut Vec<(&'k [Key], usize)>) -> Self {
        let [first, .., last] = keys else { return Node::Leaf { keys, depth } };
        let shared = first.path(depth).iter().zip(last.path(depth)).take_while(|(one, other)| one == other).count();
        if shared > 0 {
            below.push((keys, depth + shared));
            return Node::Extension { path: &first.path(depth)[..shared] };
        }
        let mut rest = keys;
        let mut children = [false; 16];
        for (nibble, is_there) in (0..).zip(&mut children) {
            let (here, behind) = rest.split_at(rest.partition_point(|key| key.nibbles[depth] <= nibble));
            rest = behind;
            *is_there = !here.is_empty();
            below.extend(is_there.then_some((here, depth + 1)));
        }
        Node::Branch { children }
    }
}

/// The nodes of a level, where `below` is what stands in them for those of the next.
fn encoded(level: &[Node<'_>], below: &Pieces, entries: &Pieces) -> Pieces {
    let mut below = below.iter();
    let mut nodes = Pieces::default();
    for node in level {
        nodes.push(|out| {
            Rlp(out).list(|rlp| match node {
                Node::Leaf { keys, depth } => {
                    for key in *keys {
                        path(key.path(*depth), LEAF, rlp);
                        rlp.bytes(entries.get(key.index));
                    }
                }
                Node::Extension { path: nibbles } => {
                    path(nibbles, 0, rlp);
                    below.next().into_iter().for_each(|child| rlp.encoded(child));
                }
                Node::Branch { children } => {
                    for is_there in children {
                        let child = if *is_there { below.next() } else { None };
                        rlp.encoded(child.unwrap_or(EMPTY));
                    }
                    rlp.encoded(EMPTY);
                }
            });
        });
    }
    nodes
}

/// What stands for each of `nodes` in its parent.
fn in_parents(nodes: &Pieces) -> Pieces {
    let long: Vec<&[u8]> = nodes.iter().filter(|node| node.len() >= HASHED_MIN).collect();
    let mut hashes = keccak256_of_each(&long).into_iter();
    let mut children = Pieces::default();
    for node in nodes.iter() {
        let hash = if node.len() >= HASHED_MIN { hashes.next() } else { None };
        children.push(|out| match hash {
            Some(hash) => Rlp(out).bytes(&hash.0),
            None => Rlp(out).encoded(node),
        });
    }
    children
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
        let mut pieces = Pieces::default();
        entries.iter().for_each(|entry| pieces.push(|out| out.extend_from_slice(entry)));
        assert_eq!(root(&pieces), expected, "{} entries", entries.len());
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
