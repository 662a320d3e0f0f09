//! Which blocks two endpoints are compared on although nothing in them concerns anybody: one in 32.
//!
//! An endpoint that leaves transactions out shows no hit, so nobody would ask another one for the block. One in 32
//! costs a second endpoint 3% of what reading costs the first. It finds one that spoils every block within some ten
//! seconds, and one that spoils each hundredth within half an hour. Which blocks these are follows from their hash and
//! a key. They are the same ones however often they are read. An endpoint that does not know the key cannot leave them
//! out while it lies.

use std::hash::{DefaultHasher, Hash, Hasher};

use landfall_chain::BlockHash;

/// What picks blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// Of so many blocks one; 1 is all of them, 0 none.
    pub one_in: u64,
    /// What endpoints do not know.
    pub key: u64,
}

impl Default for Sample {
    fn default() -> Self {
        Sample { one_in: 32, key: 0 }
    }
}

impl Sample {
    /// Whether the block is compared.
    pub fn picks(&self, block: &BlockHash) -> bool {
        let mut hasher = DefaultHasher::new();
        (self.key, block.0).hash(&mut hasher);
        self.one_in != 0 && hasher.finish().is_multiple_of(self.one_in)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picked(sample: Sample) -> Vec<u64> {
        let block = |number: u64| BlockHash([number.to_be_bytes(); 4].concat().try_into().unwrap_or_default());
        (0..32_000).filter(|number| sample.picks(&block(*number))).collect()
    }

    #[test]
    fn about_one_block_in_32_is_picked_always_the_same_and_others_under_another_key() {
        let one = picked(Sample::default());
        assert!((900..1_100).contains(&one.len()), "{}", one.len());
        assert_eq!(one, picked(Sample::default()));
        let other = picked(Sample { key: 1, ..Sample::default() });
        let both = other.iter().filter(|number| one.contains(number)).count();
        assert!((900..1_100).contains(&other.len()) && both < 100, "{} {both}", other.len());
        assert_eq!(picked(Sample { one_in: 1, key: 0 }).len(), 32_000);
        assert_eq!(picked(Sample { one_in: 0, key: 0 }).len(), 0);
    }
}
