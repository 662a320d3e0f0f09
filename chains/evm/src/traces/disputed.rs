//! Blocks whose traces endpoints reported differently: for each of them, reads of one endpoint go to another one each
//! time.
//!
//! Promises: it only changes which endpoint is asked first. At most [`DISPUTED_MAX`] blocks are remembered; for one
//! that is forgotten, the usual endpoint is asked until it is disputed again. Which endpoint is right is not decided
//! here.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use landfall_chain::BlockHash;

use crate::traces::witnesses::Asked;

const DISPUTED_MAX: usize = 64;

/// How often one endpoint alone was asked for each block since it was disputed.
#[derive(Debug, Default)]
pub(crate) struct Disputed(Mutex<HashMap<BlockHash, usize>>);

impl Disputed {
    /// These blocks were reported differently.
    pub(crate) fn note(&self, asked: &[Asked]) {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if turns.len() + asked.len() > DISPUTED_MAX {
            turns.clear();
        }
        for block in asked.iter().take(DISPUTED_MAX) {
            turns.entry(block.at.hash).or_default();
        }
    }

    /// Puts another one of `endpoints` first each time, when a block was reported differently.
    pub(crate) fn take_turns<T>(&self, asked: &[Asked], endpoints: &mut [T]) {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let disputed = asked.iter().find(|block| turns.contains_key(&block.at.hash));
        if let Some(turn) = disputed.and_then(|block| turns.get_mut(&block.at.hash))
            && !endpoints.is_empty()
        {
            endpoints.rotate_left(*turn % endpoints.len());
            *turn = turn.wrapping_add(1);
        }
    }
}
