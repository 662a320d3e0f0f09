//! What one endpoint told of blocks that nobody else has reported: when a block turns out to concern somebody, only a second
//! endpoint has to report it, and the first is not asked for its megabytes again.
//!
//! Promises: each word serves one comparison that came to an end; whoever reads the block once more, to judge by it, has it
//! reported anew by both. At most [`READINGS_MAX`] are kept, the newest; of a block without one, both are asked.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::{Mutex, PoisonError};

use crate::digest::Digest;

/// More than a watcher reads ahead of what it records.
const READINGS_MAX: usize = 256;

/// Who reported a block, and what it comes to.
#[derive(Clone, Debug)]
pub(crate) struct KeptReading {
    pub(crate) endpoint: String,
    pub(crate) digest: Digest,
}

/// The oldest first.
#[derive(Debug, Default)]
pub(crate) struct Readings(Mutex<VecDeque<KeptReading>>);

impl Readings {
    pub(crate) fn keep(&self, endpoint: &str, digest: Digest) {
        self.with(|readings| {
            readings.retain(|reading| reading.digest.block.number != digest.block.number);
            readings.push_back(KeptReading { endpoint: endpoint.to_owned(), digest });
            if readings.len() > READINGS_MAX {
                readings.pop_front();
            }
        });
    }

    /// What was told of the block in `slot`.
    pub(crate) fn of(&self, slot: u64) -> Option<KeptReading> {
        self.with(|readings| readings.iter().find(|reading| reading.digest.block.number == slot).cloned())
    }

    /// What was told of blocks in these slots; what was kept first comes first. What lies below is forgotten.
    pub(crate) fn within(&self, slots: &RangeInclusive<u64>) -> Vec<KeptReading> {
        self.with(|readings| {
            readings.retain(|reading| reading.digest.block.number >= *slots.start());
            readings.iter().filter(|reading| slots.contains(&reading.digest.block.number)).cloned().collect()
        })
    }

    pub(crate) fn forget(&self, slot: u64) {
        self.with(|readings| readings.retain(|reading| reading.digest.block.number != slot));
    }

    fn with<T>(&self, work: impl FnOnce(&mut VecDeque<KeptReading>) -> T) -> T {
        // Each change leaves it whole: a panic elsewhere says nothing of it.
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
