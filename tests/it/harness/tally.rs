//! How often each kind of thing happened, over many random runs.

use std::collections::BTreeMap;
use std::fmt::{Display, Formatter, Result};

use super::lanes::full;

/// By what happened.
#[derive(Default, Debug)]
pub(crate) struct Tally(BTreeMap<String, u64>);

impl Tally {
    pub(crate) fn count(&mut self, what: &str) {
        self.add(what, 1);
    }

    pub(crate) fn add(&mut self, what: &str, times: u64) {
        *self.0.entry(what.to_owned()).or_default() += times;
    }

    pub(crate) fn sum(tallies: Vec<Tally>) -> Tally {
        let mut sum = Tally::default();
        for (what, times) in tallies.into_iter().flat_map(|tally| tally.0) {
            sum.add(&what, times);
        }
        sum
    }

    /// Asserts that each of these happened, but for what is `rare` where this run is a bounded one, and that nothing else
    /// is counted.
    pub(crate) fn assert_happened(&self, what: &[&str], rare: &[&str]) {
        let others: Vec<&String> = self.0.keys().filter(|name| !what.contains(&name.as_str())).collect();
        assert!(others.is_empty(), "{others:?} is counted, and not asked for");
        self.assert_happen(what.iter().copied().filter(|name| full() || !rare.contains(name)));
    }

    pub(crate) fn assert_happen<'w>(&self, what: impl IntoIterator<Item = &'w str>) {
        let missing: Vec<&str> = what.into_iter().filter(|name| !self.0.contains_key(*name)).collect();
        assert!(missing.is_empty(), "{missing:?} never happened");
    }
}

impl Display for Tally {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        self.0.iter().try_for_each(|(what, times)| write!(f, "\n  {times:>10} {what}"))
    }
}
