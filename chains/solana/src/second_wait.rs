//! How long a second endpoint is waited for that does not have a block yet.
//!
//! Nodes are some slots apart, so a short wait saves reading the block once more. But one that is far behind must not
//! cost each block that wait. Promises: after a wait in vain, an endpoint is waited for again once its head has
//! reached that slot; if it had, once it reports a block. Nothing final is waited for: an endpoint has it by now, or
//! not at all.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::dialect::{Endpoint, is_not_found};
use crate::error::SolanaError;

#[derive(Debug)]
pub(crate) struct Patience {
    pub(crate) most: Duration,
    /// The endpoints that were waited for in vain, by name: which slot each must reach before it is waited for again.
    in_vain: Mutex<BTreeMap<String, u64>>,
}

impl Patience {
    pub(crate) fn of(most: Duration) -> Self {
        Patience { most, in_vain: Mutex::default() }
    }

    /// Whether any of these may still get it.
    pub(crate) fn is_left(&self, lacked: &Lacked) -> bool {
        let (lacked, in_vain) = (lacked.all(), lock(&self.in_vain));
        lacked.iter().any(|(id, lack)| in_vain.get(id).is_none_or(|until| lack.head >= Some(*until)))
    }

    /// They were waited for with the block in `slot`, and did not get it.
    pub(crate) fn is_spent(&self, lacked: &Lacked, slot: u64) {
        let (lacked, mut in_vain) = (lacked.all(), lock(&self.in_vain));
        for (id, lack) in lacked.iter() {
            let until = if lack.is_behind { slot } else { u64::MAX };
            let known = in_vain.entry(id.clone()).or_default();
            *known = until.max(*known);
        }
    }

    /// The endpoint reported the block in `slot`. An older one says nothing of how far behind it is.
    pub(crate) fn reported(&self, endpoint: &Endpoint, slot: u64) {
        let mut in_vain = lock(&self.in_vain);
        if in_vain.get(&endpoint.id).is_some_and(|until| *until == u64::MAX || *until <= slot) {
            in_vain.remove(&endpoint.id);
        }
    }
}

/// The endpoints that were asked for one block and did not have it, by name.
#[derive(Default)]
pub(crate) struct Lacked(Mutex<BTreeMap<String, Lack>>);

struct Lack {
    /// Its own newest block then.
    head: Option<u64>,
    /// That was not as far as the block.
    is_behind: bool,
    error: SolanaError,
}

impl Lacked {
    /// That the endpoint is worth asking for the block in `slot`.
    pub(crate) fn check(&self, endpoint: &Endpoint, slot: u64) -> Result<(), SolanaError> {
        if let Some(head) = endpoint.head_below(slot) {
            let error = endpoint.lacks(format!("has not reached block {slot}: its newest one is {head}"));
            let lack = Lack { head: Some(head), is_behind: true, error: error.clone() };
            self.all().insert(endpoint.id.clone(), lack);
            return Err(error);
        }
        match self.all().get(&endpoint.id) {
            Some(Lack { head, is_behind: false, error }) if *head == endpoint.head() => Err(error.clone()),
            Some(_) | None => Ok(()),
        }
    }

    /// It failed when its newest block was `head`.
    pub(crate) fn note(&self, endpoint: &Endpoint, head: Option<u64>, error: &SolanaError) {
        if is_not_found(error) {
            let lack = Lack { head, is_behind: false, error: error.clone() };
            self.all().insert(endpoint.id.clone(), lack);
        }
    }

    /// It has it now.
    pub(crate) fn forget(&self, endpoint: &Endpoint) {
        self.all().remove(&endpoint.id);
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Lack>> {
        lock(&self.0)
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change leaves it whole: a panic elsewhere does not matter.
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
