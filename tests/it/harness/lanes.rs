//! Many random runs: how many, from which seed, on all processors.

use core_affinity::CoreId;
use futures_util::StreamExt;
use futures_util::stream;

/// Does `work` for each of `items`, up to `at_once` of them at a time on each processor; what came of each, in no
/// order.
///
/// A thread stays on its processor, and so do the threads of the stores that it opens: waking one on another processor
/// for each statement would cost as much as the statements.
pub(crate) fn on_every_processor<I: Send, T: Send>(
    items: Vec<I>,
    at_once: usize,
    work: impl AsyncFn(I) -> T + Sync,
) -> Vec<T> {
    let processors = core_affinity::get_core_ids().expect("the system tells its processors");
    let mut shares: Vec<Vec<I>> = processors.iter().map(|_| Vec::new()).collect();
    for (index, item) in items.into_iter().enumerate() {
        shares[index % processors.len()].push(item);
    }
    let run = |processor: CoreId, share: Vec<I>| {
        assert!(core_affinity::set_for_current(processor), "the thread can be kept on {processor:?}");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(stream::iter(share).map(|item| work(item)).buffer_unordered(at_once).collect::<Vec<T>>())
    };
    std::thread::scope(|scope| {
        let threads =
            processors.into_iter().zip(shares).map(|(processor, share)| scope.spawn(move || run(processor, share)));
        let threads: Vec<_> = threads.collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}

/// Whether this run makes the full counts of the random tests: `scripts/test --full`.
pub(crate) fn full() -> bool {
    variable("LANDFALL_FULL").is_some_and(|value| value == "1")
}

/// The first seed of this run: `LANDFALL_SEED`, which `scripts/test` takes from the commit; else 0.
pub(crate) fn given_seed() -> u64 {
    variable("LANDFALL_SEED").map_or(0, |seed| seed.parse().unwrap())
}

/// After which awaits below `end` something is cut off: after each in a full run, after every third from a new one on
/// otherwise.
pub(crate) fn cuts(end: u32) -> impl Iterator<Item = u32> {
    let (first, step) = if full() { (0, 1) } else { (u32::try_from(given_seed() % 3).unwrap(), 3) };
    (first..end).step_by(step)
}

/// How many of `count` awaits [`cuts`] takes at least.
pub(crate) fn cuts_of(count: u32) -> u32 {
    if full() { count } else { count / 3 }
}

fn variable(name: &str) -> Option<String> {
    #[expect(clippy::disallowed_methods, reason = "the test's own environment")]
    std::env::var(name).ok()
}
