//! Looks once more at what blocks were connected on, before they count as final.
//!
//! That a slot holds no block is told by the parent of the next one, and a parent is one endpoint's word: who leaves a block
//! out of its lists and ties the next one to the one before would hide it. So as many endpoints as must agree list the slots
//! without a block of ours, at `finalized`; where there are none, nothing is asked.
//! Promises: a slot in which endpoints agree that there is a block is jumped over by nobody any more. Deliberately not
//! here: that a list leaves out a slot of ours. Ledgers have holes, and what stands in them is told by others.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::{Mutex, PoisonError};

use landfall_chain::{BlockRef, Header};
use landfall_rpc::{Heard, Need};

use crate::calls::{BLOCK, BLOCKS, read_slots};
use crate::dialect::Endpoint;
use crate::error::SolanaError;
use crate::source::{BoxRead, SolanaSource};
use crate::witness::names;

/// How many slots that were jumped over are remembered: until what was built over them is replaced.
const JUMPED_MAX: usize = 64;

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct SecondLook {
    /// Slots with a block that was left out.
    jumped: Mutex<BTreeSet<u64>>,
}

impl SecondLook {
    /// That the block jumps over none that endpoints agree on. Its parent lies below it.
    pub(crate) fn check(&self, endpoint: &Endpoint, header: &Header) -> Result<(), SolanaError> {
        let (parent, block) = (header.parent.number, header.block.number);
        let jumped = self.jumped.lock().unwrap_or_else(PoisonError::into_inner);
        match jumped.range(parent + 1..block).next() {
            None => Ok(()),
            Some(slot) => {
                let reason = format!("block {block} is said to stand on {parent}, but slot {slot} holds a block");
                Err(endpoint.unusable(BLOCK, &reason))
            }
        }
    }

    fn jumped(&self, slot: u64) {
        let mut jumped = self.jumped.lock().unwrap_or_else(PoisonError::into_inner);
        jumped.insert(slot);
        if jumped.len() > JUMPED_MAX {
            jumped.pop_first();
        }
    }
}

impl SolanaSource {
    /// The lowest slot of `range` in which endpoints agree on something else than `ours`.
    pub(crate) async fn look_at(
        &self,
        range: &RangeInclusive<u64>,
        ours: &[BlockRef],
    ) -> Result<Option<u64>, SolanaError> {
        if self.pool.must_agree() <= 1 {
            return Ok(None);
        }
        let left_out = self.left_out(range, ours).await?;
        left_out.iter().for_each(|slot| self.second_look.jumped(*slot));
        Ok(left_out)
    }

    /// The lowest slot of `range` that holds a final block and none of ours.
    async fn left_out(&self, range: &RangeInclusive<u64>, ours: &[BlockRef]) -> Result<Option<u64>, SolanaError> {
        let held: BTreeSet<u64> = ours.iter().map(|block| block.number).collect();
        let is_empty = |slot: &u64| !held.contains(slot);
        let agreed = self.tip_told().and_then(|tip| tip.finalized).map(|block| block.number);
        if let Some(agreed) = agreed.filter(|slot| range.contains(slot) && is_empty(slot)) {
            return Ok(Some(agreed));
        }
        let mut empty = range.clone().filter(is_empty);
        let Some(first) = empty.next() else { return Ok(None) };
        let (last, reached) = (empty.next_back().unwrap_or(first), *range.end());
        let read = |endpoint| -> BoxRead<'_, Vec<u64>> {
            Box::pin(async move {
                let slots = read_slots(endpoint, first..=last, "finalized", Some(reached)).await?;
                Ok(slots.into_iter().filter(is_empty).collect())
            })
        };
        let must = self.pool.must_agree();
        let bear_out = |told: &[(&Endpoint, Vec<u64>)]| told.iter().filter(|(_, more)| more.is_empty()).count();
        let need = Need { first, last, methods: &[BLOCKS] };
        let Heard { told, missing, .. } =
            self.pool.call_each(need, Vec::new(), read, |told| bear_out(told) >= must).await?;
        if bear_out(&told) >= must {
            return Ok(None);
        }
        let mut shown: BTreeMap<u64, Vec<&Endpoint>> = BTreeMap::new();
        for (endpoint, more) in &told {
            more.iter().for_each(|slot| shown.entry(*slot).or_default().push(endpoint));
        }
        if let Some((slot, _)) = shown.iter().find(|(_, by)| by.len() >= must) {
            return Ok(Some(*slot));
        }
        let chain = self.pool.chain();
        Err(match shown.into_iter().next() {
            Some((slot, by)) => {
                let others =
                    told.iter().map(|(endpoint, _)| *endpoint).filter(|one| !by.iter().any(|by| by.id == one.id));
                let (shown, hidden) = (names(by.iter().copied()), names(others));
                SolanaError::SlotsDiffer { chain, slot, shown, hidden }
            }
            None => {
                let (heard, missing) = (told.len(), missing.join("; "));
                SolanaError::Unlisted { chain, first, last, must, heard, missing }
            }
        })
    }
}
