//! Runs a property on as many inputs as the run asks for, and says how many and what became of them.
//!
//! `LANDFALL_SEED` repeats a run. A failure prints the smallest input that still fails; nothing is kept in files.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Instant;

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestRunner};

/// How many inputs: in CI, and in the full run.
pub(super) struct Counts {
    pub(super) bounded: u32,
    pub(super) full: u32,
}

/// What became of an input, in words to count by.
pub(super) type Verdicts = Vec<String>;

/// How often each thing happened, of those that were reported by [`fuzz`].
pub(super) type Tally = BTreeMap<String, u64>;

/// Puts inputs of `strategy` to `check`, and panics with the smallest one that fails.
pub(super) fn fuzz<S: Strategy>(
    what: &str,
    counts: &Counts,
    strategy: &S,
    check: impl Fn(S::Value) -> Result<Verdicts, TestCaseError>,
) -> Tally {
    let (mode, cases) =
        if variable("LANDFALL_FULL") == Some(1) { ("full", counts.full) } else { ("bounded", counts.bounded) };
    let seed = variable("LANDFALL_SEED").unwrap_or(0);
    println!("{mode}: {cases} inputs of {what} with LANDFALL_SEED={seed}");
    let config = Config {
        cases,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(seed),
        max_shrink_iters: 4_000,
        ..Config::default()
    };
    let (tally, begun) = (RefCell::new(Tally::new()), Instant::now());
    let ran = TestRunner::new(config).run(strategy, |input| {
        let verdicts = check(input)?;
        let mut tally = tally.borrow_mut();
        verdicts.into_iter().for_each(|verdict| *tally.entry(verdict).or_default() += 1);
        Ok(())
    });
    if let Err(failure) = ran {
        panic!("{what}, LANDFALL_SEED={seed}: {failure}");
    }
    let tally = tally.into_inner();
    println!("{mode}: {cases} inputs of {what} in {:.1?}: {tally:?}", begun.elapsed());
    tally
}

fn variable(name: &str) -> Option<u64> {
    #[expect(clippy::disallowed_methods, reason = "the test's own environment")]
    let value = std::env::var(name);
    value.ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name} is no number: {value:?}")))
}
