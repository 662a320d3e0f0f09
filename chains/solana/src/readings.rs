//! What one endpoint reported of blocks that no other has reported. When a block turns out to concern somebody, only a
//! second endpoint has to report it; the first is not asked for its megabytes again. A block that was picked for
//! comparison while no second endpoint could be asked is owed: it is compared before it counts as final.
//!
//! Promises: a report serves until two endpoints agree on its block. A caller who reads the block once more, to judge
//! by it, gets both reports anew. One that they contradict stays owed until its block is read anew. Of those that are
//! owed, and of the others, the newest [`READINGS_MAX`] are kept: neither kind evicts the other.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::{Mutex, PoisonError};

use crate::digest::Digest;

/// More than a watcher reads ahead of what it records.
const READINGS_MAX: usize = 256;

/// Which endpoint reported a block, the digest of that, and whether it must be compared before it counts as final.
#[derive(Clone, Debug)]
pub(crate) struct KeptReading {
    pub(crate) endpoint: String,
    pub(crate) digest: Digest,
    pub(crate) owed: bool,
}

/// One for each slot, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Readings(Mutex<VecDeque<KeptReading>>);

impl KeptReading {
    fn slot(&self) -> u64 {
        self.digest.block.number
    }
}

impl Readings {
    /// Keeps it in place of an older one of the slot. What was owed stays so.
    pub(crate) fn keep(&self, mut reading: KeptReading) {
        self.with(|readings| {
            reading.owed |= readings.iter().any(|kept| kept.slot() == reading.slot() && kept.owed);
            let owed = reading.owed;
            readings.retain(|kept| kept.slot() != reading.slot());
            readings.push_back(reading);
            let mut alike = readings.iter().enumerate().filter(|(_, kept)| kept.owed == owed).map(|(at, _)| at);
            if let Some(oldest) = alike.next().filter(|_| alike.count() >= READINGS_MAX) {
                readings.remove(oldest);
            }
        });
    }

    /// What was reported of the block in `slot`.
    pub(crate) fn of(&self, slot: u64) -> Option<KeptReading> {
        self.with(|readings| readings.iter().find(|reading| reading.slot() == slot).cloned())
    }

    /// What is owed in these slots, in the order of keeping. What is owed below them is forgotten.
    pub(crate) fn owed_within(&self, slots: &RangeInclusive<u64>) -> Vec<KeptReading> {
        self.with(|readings| {
            readings.retain(|reading| !reading.owed || reading.slot() >= *slots.start());
            readings.iter().filter(|reading| reading.owed && slots.contains(&reading.slot())).cloned().collect()
        })
    }

    /// It may be out of date. What is owed stays so.
    pub(crate) fn doubt(&self, slot: u64) {
        self.with(|readings| readings.retain(|reading| reading.slot() != slot || reading.owed));
    }

    pub(crate) fn forget(&self, slot: u64) {
        self.with(|readings| readings.retain(|reading| reading.slot() != slot));
    }

    fn with<T>(&self, work: impl FnOnce(&mut VecDeque<KeptReading>) -> T) -> T {
        // Each change leaves it whole: a panic elsewhere says nothing of it.
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use landfall_chain::{BlockHash, BlockRef, Chain, Header};

    use super::*;
    use crate::digest::Digester;
    use crate::networks;
    use crate::rules::Rules;

    fn reading(slot: u64, owed: bool) -> KeptReading {
        let rules = Rules::of(&networks::network(Chain::SolanaMainnet).unwrap());
        let [parent, block] = [slot - 1, slot].map(|number| BlockRef { number, hash: BlockHash([7; 32]) });
        let digest = Digester::new(&rules).finish(&Header { block, parent, time_secs: 0 });
        KeptReading { endpoint: "one".to_owned(), digest, owed }
    }

    #[test]
    fn neither_kind_of_readings_evicts_the_other_and_each_keeps_its_newest() {
        let readings = Readings::default();
        let slots = |owed: bool| {
            let kept = readings.with(|readings| readings.iter().cloned().collect::<Vec<_>>());
            kept.iter().filter(|reading| reading.owed == owed).map(KeptReading::slot).collect::<Vec<_>>()
        };
        readings.keep(reading(1, true));
        (2..400).for_each(|slot| readings.keep(reading(slot, false)));
        assert_eq!((slots(true), slots(false)), (vec![1], (144..400).collect()));
        (400..700).for_each(|slot| readings.keep(reading(slot, true)));
        assert_eq!((slots(true), slots(false)), ((444..700).collect(), (144..400).collect()));
    }

    #[test]
    fn what_is_owed_stays_so_until_it_is_forgotten_or_a_check_has_passed_it() {
        let readings = Readings::default();
        let owed =
            |slots: RangeInclusive<u64>| readings.owed_within(&slots).iter().map(KeptReading::slot).collect::<Vec<_>>();
        for (slot, owed) in [(5, true), (6, false), (7, true)] {
            readings.keep(reading(slot, owed));
        }
        readings.keep(reading(5, false));
        readings.doubt(5);
        readings.doubt(6);
        assert_eq!(owed(5..=6), [5]);
        assert!(readings.of(5).is_some() && readings.of(6).is_none());
        readings.keep(reading(6, false));
        assert_eq!(owed(7..=9), [7]);
        assert!(readings.of(5).is_none() && readings.of(6).is_some(), "only what is owed is passed");
        readings.forget(7);
        assert_eq!(owed(7..=9), [0; 0]);
    }
}
