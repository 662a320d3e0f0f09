//! What one endpoint reported of blocks that no other has reported. When a block turns out to concern somebody, only a
//! second endpoint has to report it; the first is not asked for its megabytes again.
//!
//! Promises: each report serves one finished comparison. A caller who reads the block once more, to judge by it, gets
//! both reports anew. At most [`READINGS_MAX`] are kept, the newest; for a block without one, both endpoints are
//! asked.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::{Mutex, PoisonError};

use crate::digest::Digest;

/// More than a watcher reads ahead of what it records.
const READINGS_MAX: usize = 256;

/// Which endpoint reported a block, and the digest of that.
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

    /// What was reported of the block in `slot`.
    pub(crate) fn of(&self, slot: u64) -> Option<KeptReading> {
        self.with(|readings| readings.iter().find(|reading| reading.digest.block.number == slot).cloned())
    }

    /// What was reported of blocks in these slots, in the order of keeping. What lies below is forgotten.
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
