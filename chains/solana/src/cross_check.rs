//! Looks once more at what blocks were connected on, before they count as final.
//!
//! That a slot holds no block is reported by the parent of the next one, and a parent is one endpoint's word: who leaves a block
//! out of its lists and ties the next one to the one before would hide it. So as many endpoints as must agree list the slots
//! without a block of ours, at `finalized`; where there are none, nothing is asked. And a block that was picked to be
//! compared may have been too new for a second endpoint then: it is compared now.
//! The only endpoint there is is held to its own word of which block is final.
//! Promises: a slot in which endpoints agree that there is a block is jumped over by nobody any more; an empty slot is borne out
//! only by a list that has our blocks beside it, for ledgers have holes; what was picked is owed until its slot is about to
//! count as final, at most as many blocks as [`Readings`] keeps.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use landfall_chain::{BlockRef, Header, Legs};
use landfall_rpc::{Need, Responses};

use crate::calls::{BLOCK, BLOCKS, Wanted, read_slots};
use crate::dialect::{Endpoint, is_not_found};
use crate::error::SolanaError;
use crate::quorum::names;
use crate::readings::{KeptReading, Readings};
use crate::source::{BoxRead, SolanaSource};

/// How many slots that were jumped over are remembered: until what was built over them is replaced.
const JUMPED_MAX: usize = 64;
/// At so many looks in a row something is lacked before it is not waited for any more. Looks are polls, or slots, apart: what is
/// on its way comes meanwhile, and what a node says that it lacks once it may have all the same.
const LOOKS_MAX: u32 = 10;

/// What is left to be looked at, and what was found.
#[derive(Debug, Default)]
pub(crate) struct CrossCheck {
    /// What was told of blocks that were picked, while nobody else could be asked.
    pub(crate) owed: Readings,
    /// Slots with a block that was left out.
    jumped: Mutex<BTreeSet<u64>>,
    /// At how many looks in a row something was lacked that may come.
    lacking: AtomicU32,
}

impl CrossCheck {
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
    /// The lowest slot of those up to the end of `range` in which endpoints agree on something else than `ours`, which
    /// stand on `below`.
    pub(crate) async fn look_at(
        &self,
        below: &BlockRef,
        range: &RangeInclusive<u64>,
        ours: &[BlockRef],
        may_come: bool,
    ) -> Result<Option<u64>, SolanaError> {
        let held = ours.iter().chain([below]).map(|block| block.number).collect();
        let one_is_enough = self.pool.must_agree() <= 1;
        let left_out = if one_is_enough {
            self.left_out_by_its_own_word(range, &held).await?
        } else {
            self.left_out(range, &held).await?
        };
        if let Some(slot) = left_out {
            self.cross_check.jumped(slot);
            return Ok(Some(slot));
        }
        if one_is_enough { Ok(None) } else { self.reported_otherwise(range, ours, may_come).await }
    }

    /// The slot of `range` that is not `held`, if the only endpoint calls its block final and shows it: what it said of the next
    /// one was not so. What it does not show may be a slip in either of its words; of several, of which one is enough, another
    /// may be right.
    async fn left_out_by_its_own_word(
        &self,
        range: &RangeInclusive<u64>,
        held: &BTreeSet<u64>,
    ) -> Result<Option<u64>, SolanaError> {
        if self.pool.of_this_chain() > 1 {
            return Ok(None);
        }
        let finalized = self.tip_reported().and_then(|tip| tip.finalized);
        let Some(finalized) = finalized.filter(|block| is_empty(range, held, block.number)) else { return Ok(None) };
        match self.header(Wanted { slot: finalized.number, hash: Some(finalized.hash) }).await {
            Ok(header) => Ok(Some(header.block.number)),
            Err(error) if is_not_found(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The lowest slot of `range` that holds a final block and is not `held`.
    async fn left_out(&self, range: &RangeInclusive<u64>, held: &BTreeSet<u64>) -> Result<Option<u64>, SolanaError> {
        let is_empty = |slot: u64| is_empty(range, held, slot);
        let agreed = self.tip_reported().and_then(|tip| tip.finalized).map(|block| block.number);
        if let Some(agreed) = agreed.filter(|slot| is_empty(*slot)) {
            return Ok(Some(agreed));
        }
        // What a list says of slots without a block shows in what it says of the blocks beside them.
        let beside: Vec<u64> =
            held.iter().copied().filter(|slot| is_empty(slot + 1) || is_empty(slot.saturating_sub(1))).collect();
        let Some(first) = beside.first().copied() else { return Ok(None) };
        let last = *range.end();
        let read =
            |endpoint| -> BoxRead<'_, Vec<u64>> { Box::pin(shown_in(endpoint, first..=last, &beside, &is_empty)) };
        let must = self.pool.must_agree();
        let corroborate =
            |reported: &[(&Endpoint, Vec<u64>)]| reported.iter().filter(|(_, more)| more.is_empty()).count();
        let need = Need { first, last, methods: &[BLOCKS] };
        let Responses { reported, missing, .. } =
            self.pool.call_each(need, Vec::new(), read, |reported| corroborate(reported) >= must).await?;
        if corroborate(&reported) >= must {
            return Ok(None);
        }
        let mut shown: BTreeMap<u64, Vec<&Endpoint>> = BTreeMap::new();
        for (endpoint, more) in &reported {
            more.iter().for_each(|slot| shown.entry(*slot).or_default().push(endpoint));
        }
        if let Some((slot, _)) = shown.iter().find(|(_, by)| by.len() >= must) {
            return Ok(Some(*slot));
        }
        let chain = self.pool.chain();
        Err(match shown.into_iter().next() {
            Some((slot, by)) => {
                let others =
                    reported.iter().map(|(endpoint, _)| *endpoint).filter(|one| !by.iter().any(|by| by.id == one.id));
                let (shown, hidden) = (names(by.iter().copied()), names(others));
                SolanaError::SlotsDiffer { chain, slot, shown, hidden }
            }
            None => {
                let (responses, missing) = (reported.len(), missing.join("; "));
                SolanaError::Unlisted { chain, first, last, must, responses, missing }
            }
        })
    }

    /// The first slot of those of `range` that are owed whose block two report otherwise than one did. What nobody else has, in a
    /// hole of ledgers, is one endpoint's word as all that is not picked; where it `may_come` that holds up what is final for
    /// some looks, and no longer, whatever else is lacked meanwhile.
    async fn reported_otherwise(
        &self,
        range: &RangeInclusive<u64>,
        ours: &[BlockRef],
        may_come: bool,
    ) -> Result<Option<u64>, SolanaError> {
        let CrossCheck { owed, lacking, .. } = &self.cross_check;
        let mut lacked = Vec::new();
        for reading in owed.within(range) {
            let slot = reading.digest.block.number;
            if !ours.contains(&reading.digest.block) {
                owed.forget(slot);
                continue;
            }
            match self.compared(&reading).await {
                Ok(true) => owed.forget(slot),
                // It stays until it is read anew.
                Ok(false) => return Ok(Some(slot)),
                Err(error @ SolanaError::Unwitnessed { all_lack: true, .. }) => lacked.push((slot, error)),
                Err(error) => return Err(error),
            }
        }
        let looks = if lacked.is_empty() { 0 } else { lacking.load(Relaxed) + 1 };
        let is_held_up = may_come && looks < LOOKS_MAX;
        lacking.store(if is_held_up { looks } else { 0 }, Relaxed);
        match lacked.first() {
            Some((_, error)) if is_held_up => Err(error.clone()),
            Some(_) | None => {
                lacked.iter().for_each(|(slot, _)| owed.forget(*slot));
                Ok(None)
            }
        }
    }

    /// Whether the block is reported now as it was reported before.
    async fn compared(&self, reading: &KeptReading) -> Result<bool, SolanaError> {
        let BlockRef { number, hash } = reading.digest.block;
        let (wanted, reported) = (Wanted { slot: number, hash: Some(hash) }, self.as_reported(reading).await);
        let is_believed = !reported.is_empty();
        let responses = self.hear_two(wanted, Legs::Creditable, reported, Duration::ZERO).await?;
        let denied = responses
            .reported
            .iter()
            .find_map(|(by, one)| Some((by.id.clone(), reading.digest.difference(&one.digest)?)));
        match (self.believed(responses), denied) {
            (Ok(agreed), _) => Ok(agreed.digest == reading.digest),
            // Who reported it does not report it any more: that takes nothing away from what another one says against it.
            (Err(SolanaError::Unwitnessed { all_lack: true, .. }), Some((by, what))) if is_believed => {
                let endpoints = format!("{} and {by}", reading.endpoint);
                Err(SolanaError::BlocksDiffer {
                    chain: self.pool.chain(),
                    endpoints,
                    block: reading.digest.block,
                    what,
                })
            }
            // Who reported it is believed no more.
            (Err(SolanaError::Unwitnessed { all_lack: true, .. }), Some(_)) => Ok(false),
            (Err(error), _) => Err(error),
        }
    }
}

fn is_empty(range: &RangeInclusive<u64>, held: &BTreeSet<u64>, slot: u64) -> bool {
    range.contains(&slot) && !held.contains(&slot)
}

/// The slots of `range` that hold a final block by the endpoint's list, of those that are empty on our record.
///
/// # Errors
/// It does not list those `beside` them: what else it leaves out says nothing.
async fn shown_in(
    endpoint: &Endpoint,
    range: RangeInclusive<u64>,
    beside: &[u64],
    is_empty: &(dyn Fn(u64) -> bool + Sync),
) -> Result<Vec<u64>, SolanaError> {
    let reached = *range.end();
    let mut slots = read_slots(endpoint, range, "finalized", Some(reached)).await?;
    if let Some(slot) = beside.iter().find(|slot| slots.binary_search(slot).is_err()) {
        return Err(endpoint.lacks(format!("does not list slot {slot}, which holds a final block")));
    }
    slots.retain(|slot| is_empty(*slot));
    Ok(slots)
}
