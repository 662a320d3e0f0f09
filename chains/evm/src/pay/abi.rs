//! The ABI of contracts, as far as delegates need it: tuples and lists with parts of any length, written and read.
//!
//! Promise: what is read is bounded by what there is; a place outside of it is `None` and never a panic.

use crate::pay::number_word;

const WORD: usize = 32;

/// A part of a tuple.
pub(super) enum Part {
    /// It stands where it is.
    Word([u8; WORD]),
    /// Its place is written, and it stands behind the others.
    Behind(Vec<u8>),
}

/// Parts, one after the other.
pub(super) fn tuple(parts: Vec<Part>) -> Vec<u8> {
    let (mut head, mut tail) = (Vec::new(), Vec::new());
    let head_len = parts.len() * WORD;
    for part in parts {
        match part {
            Part::Word(word) => head.extend(word),
            Part::Behind(bytes) => {
                head.extend(length(head_len + tail.len()));
                tail.extend(bytes);
            }
        }
    }
    head.extend(tail);
    head
}

/// A list of parts that are of one kind.
pub(super) fn list(items: Vec<Part>) -> Vec<u8> {
    let mut list = length(items.len()).to_vec();
    list.extend(tuple(items));
    list
}

/// Bytes of any number.
pub(super) fn bytes(bytes: &[u8]) -> Vec<u8> {
    let mut padded = length(bytes.len()).to_vec();
    padded.extend(bytes);
    padded.resize(WORD + bytes.len().next_multiple_of(WORD), 0);
    padded
}

fn length(length: usize) -> [u8; WORD] {
    number_word(u64::try_from(length).expect("what is in memory has fewer bytes"))
}

/// A tuple or list that was written, from its first byte on.
#[derive(Clone, Copy)]
pub(super) struct Written<'w>(pub(super) &'w [u8]);

impl<'w> Written<'w> {
    /// The word of the part with this number.
    pub(super) fn word(self, part: usize) -> Option<[u8; WORD]> {
        let from = part.checked_mul(WORD)?;
        self.0.get(from..from.checked_add(WORD)?)?.try_into().ok()
    }

    /// What stands behind, of the part with this number.
    pub(super) fn behind(self, part: usize) -> Option<Written<'w>> {
        self.0.get(number(self.word(part)?)?..).map(Written)
    }

    /// The bytes of the part with this number.
    pub(super) fn bytes(self, part: usize) -> Option<&'w [u8]> {
        let bytes = self.behind(part)?;
        bytes.0.get(WORD..WORD.checked_add(number(bytes.word(0)?)?)?)
    }

    /// The items of a list, each of one word; at most `most`.
    pub(super) fn items(self, most: usize) -> Option<(usize, Written<'w>)> {
        let count = number(self.word(0)?).filter(|count| *count <= most)?;
        Some((count, Written(self.0.get(WORD..)?)))
    }
}

fn number(word: [u8; WORD]) -> Option<usize> {
    let (upper, lower) = word.split_last_chunk::<8>()?;
    if upper.iter().any(|byte| *byte != 0) {
        return None;
    }
    usize::try_from(u64::from_be_bytes(*lower)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_what_lies_outside_is_nothing() {
        let written = tuple(vec![
            Part::Word(number_word(7)),
            Part::Behind(bytes(b"abc")),
            Part::Behind(list(vec![Part::Behind(bytes(&[9; 40]))])),
        ]);
        let read = Written(&written);
        assert_eq!(read.word(0), Some(number_word(7)));
        assert_eq!(read.bytes(1), Some(b"abc".as_slice()));
        let (count, items) = read.behind(2).unwrap().items(1).unwrap();
        assert_eq!((count, items.bytes(0)), (1, Some([9; 40].as_slice())));
        assert!(read.behind(2).unwrap().items(0).is_none());
        for cut in 0..written.len() {
            let read = Written(&written[..cut]);
            let last = read.behind(2).and_then(|list| list.items(1)).and_then(|(_, items)| items.bytes(0));
            assert!(last.is_none() || cut >= written.len() - 24, "{cut}");
        }
        for wild in [[0xff; 32], number_word(u64::MAX), number_word(1_000)] {
            let mut other = written.clone();
            other[32..64].copy_from_slice(&wild);
            assert_eq!(Written(&other).bytes(1), None);
        }
        assert_eq!(read.word(usize::MAX), None);
    }
}
