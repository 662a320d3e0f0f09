//! What one endpoint told of blocks that nobody else has told: when a block turns out to concern somebody, only a second
//! endpoint has to tell it, and the first is not asked for its megabytes again.
//!
//! Promises: each word serves one comparison that came to an end; whoever reads the block once more, to judge by it, has it
//! told anew by both. At most [`WORDS_MAX`] are kept, the newest; of a block without one, both are asked.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::{Mutex, PoisonError};

use crate::digest::Digest;

/// More than a watcher reads ahead of what it records.
const WORDS_MAX: usize = 256;

/// Who told a block, and what it comes to.
#[derive(Clone, Debug)]
pub(crate) struct Word {
    pub(crate) endpoint: String,
    pub(crate) digest: Digest,
}

/// The oldest first.
#[derive(Debug, Default)]
pub(crate) struct Words(Mutex<VecDeque<Word>>);

impl Words {
    pub(crate) fn keep(&self, endpoint: &str, digest: Digest) {
        self.with(|words| {
            words.retain(|word| word.digest.block.number != digest.block.number);
            words.push_back(Word { endpoint: endpoint.to_owned(), digest });
            if words.len() > WORDS_MAX {
                words.pop_front();
            }
        });
    }

    /// What was told of the block in `slot`.
    pub(crate) fn of(&self, slot: u64) -> Option<Word> {
        self.with(|words| words.iter().find(|word| word.digest.block.number == slot).cloned())
    }

    /// What was told of blocks in these slots; what was kept first comes first. What lies below is forgotten.
    pub(crate) fn within(&self, slots: &RangeInclusive<u64>) -> Vec<Word> {
        self.with(|words| {
            words.retain(|word| word.digest.block.number >= *slots.start());
            words.iter().filter(|word| slots.contains(&word.digest.block.number)).cloned().collect()
        })
    }

    pub(crate) fn forget(&self, slot: u64) {
        self.with(|words| words.retain(|word| word.digest.block.number != slot));
    }

    fn with<T>(&self, work: impl FnOnce(&mut VecDeque<Word>) -> T) -> T {
        // Each change leaves it whole: a panic elsewhere says nothing of it.
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
