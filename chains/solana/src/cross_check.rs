//! Checks once more what blocks were connected on, before they count as final.
//!
//! Only the parent of the next block shows that a slot holds no block, and one endpoint reports that parent. An
//! endpoint could hide a block: it leaves it out of its lists and ties the next block to the one before. So as many
//! endpoints as must agree list the slots without a block of ours, at `finalized`; where there are none, nothing is
//! asked. A block that was picked for comparison may have been too new for a second endpoint then: it is compared now.
//! An endpoint that is the only one is held to its own report of which block is final.
//! Promises: once endpoints agree that a slot holds a block, no block may jump over it any more. Only a list that has
//! our blocks beside it corroborates an empty slot, for ledgers have holes. What was picked is owed until its slot is
//! about to count as final (`readings`).

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
use crate::readings::KeptReading;
use crate::source::{BoxRead, SolanaSource};

/// How many slots that were jumped over are remembered: until what was built over them is replaced.
const JUMPED_MAX: usize = 64;
/// How many checks in a row may miss a block; the last of them goes on without it. Checks are polls, or slots, apart:
/// a block that is on its way comes meanwhile, and a node that once did not have it may get it.
const LOOKS_MAX: u32 = 10;

/// What is left to check, and what was found.
#[derive(Debug, Default)]
pub(crate) struct CrossCheck {
    /// Slots with a block that was left out.
    jumped: Mutex<BTreeSet<u64>>,
    /// In how many checks in a row a block was missing that may come.
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
    /// The lowest slot up to the end of `range` in which endpoints agree on something else than `ours`, which stand on
    /// `below`.
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

    /// The newest final slot, if it is in `range` and not `held`, and the only endpoint shows its block: then its
    /// report of the next block was false. If it does not show it, either of its two reports may be wrong. With
    /// several endpoints, of which one is enough, another one may be right: `None`.
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
        // How far a list covers slots without a block shows in the blocks beside them.
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

    /// The first owed slot of `range` whose block two endpoints report otherwise than one did. A block that no other
    /// endpoint has, in a hole of ledgers, stays one endpoint's report, as do all that are not picked. Where it
    /// `may_come`, it is an error for some checks, and no longer, whatever else is missing meanwhile.
    async fn reported_otherwise(
        &self,
        range: &RangeInclusive<u64>,
        ours: &[BlockRef],
        may_come: bool,
    ) -> Result<Option<u64>, SolanaError> {
        let (readings, lacking) = (&self.readings, &self.cross_check.lacking);
        let mut lacked = Vec::new();
        for reading in readings.owed_within(range) {
            let slot = reading.digest.block.number;
            if !ours.contains(&reading.digest.block) {
                readings.forget(slot);
                continue;
            }
            match self.compared(&reading).await {
                Ok(true) => readings.forget(slot),
                // It is owed until it is read anew.
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
                lacked.iter().for_each(|(slot, _)| readings.forget(*slot));
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
            // The endpoint that reported it does not report it any more: that does not weaken what another one reports
            // against it.
            (Err(SolanaError::Unwitnessed { all_lack: true, .. }), Some((by, what))) if is_believed => {
                let endpoints = format!("{} and {by}", reading.endpoint);
                Err(SolanaError::BlocksDiffer {
                    chain: self.pool.chain(),
                    endpoints,
                    block: reading.digest.block,
                    what,
                })
            }
            // The endpoint that reported it is believed no more.
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
/// It does not list those `beside` them: then what else it leaves out says nothing.
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
