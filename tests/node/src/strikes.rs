//! When faults strike, and how often each has: whatever the family of the chain, and whatever the faults are.
//!
//! Promises: a fault is counted when it strikes and at no other time. What fits a call, and what a strike does to it,
//! is for each server to know.

use std::collections::BTreeMap;
use std::fmt::Debug;

use rand::RngExt;
use rand::rngs::StdRng;

/// A fault with a word for it.
pub trait Named: Copy + PartialEq + Debug {
    /// The same for all sizes of a fault.
    fn name(&self) -> &'static str;
}

/// When a fault strikes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// At the next so many calls that it fits.
    Next(u64),
    /// At every one, until reported otherwise.
    Always,
    /// At so many of 100, by chance, until reported otherwise.
    Percent(u32),
}

/// The faults of one server, and how often each has struck.
#[derive(Debug)]
pub struct Strikes<F> {
    active: Vec<(F, When)>,
    struck: BTreeMap<&'static str, u64>,
}

impl<F> Default for Strikes<F> {
    fn default() -> Self {
        Strikes { active: Vec::new(), struck: BTreeMap::new() }
    }
}

impl<F: Named> Strikes<F> {
    pub fn add(&mut self, fault: F, when: When) {
        self.active.push((fault, when));
    }

    pub fn clear(&mut self) {
        self.active.clear();
    }

    pub fn struck(&self, fault: &F) -> u64 {
        self.struck.get(fault.name()).copied().unwrap_or_default()
    }

    pub fn active(&self) -> Vec<F> {
        self.active.iter().map(|(fault, _)| *fault).collect()
    }

    /// Whether `fault`, which fits here, strikes.
    pub fn hits(&mut self, fault: F, rng: &mut StdRng) -> bool {
        let Some((_, when)) = self.active.iter_mut().find(|(active, _)| *active == fault) else { return false };
        let hits = match when {
            When::Next(left) => {
                let hits = *left > 0;
                *left = left.saturating_sub(1);
                hits
            }
            When::Always => true,
            When::Percent(percent) => rng.random_range(0..100) < *percent,
        };
        self.active.retain(|(_, when)| *when != When::Next(0));
        if hits {
            *self.struck.entry(fault.name()).or_default() += 1;
        }
        hits
    }
}
