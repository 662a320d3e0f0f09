//! Changed answers: whatever a node changes in a block, its receipts or its headers, they are refused or the truth.

use std::cell::RefCell;

use proptest::collection::vec;
use proptest::prelude::*;

use super::ask::{Ask, Case, TRUE};
use super::corpus::Corpus;
use super::mutate::{CHANGES, Change};
use super::node::Door;
use super::run::{Counts, Tally, fuzz};

/// Another number of the same dice does something else.
fn change() -> impl Strategy<Value = Change> {
    (0..CHANGES.len(), any::<u64>()).prop_map(|(kind, dice)| Change { kind, dice })
}

/// One fixture in 200 is a large recorded block.
fn fixture(corpus: &Corpus) -> impl Strategy<Value = usize> + use<> {
    prop_oneof![199 => 0..corpus.small, 1 => corpus.small..corpus.fixtures.len()]
}

fn run(what: &str, counts: &Counts, asks: &'static [Ask]) -> Tally {
    let corpus = Corpus::new();
    let door = RefCell::new(Door::open());
    let input = (fixture(&corpus), proptest::sample::select(asks), vec(change(), 1..=4));
    fuzz(what, counts, &input, |(fixture, ask, changes)| {
        let mut case = Case::true_one(&corpus, &corpus.fixtures[fixture], ask);
        changes.iter().for_each(|change| change.apply(&mut case.shown, &corpus));
        let outcome = case.put(&mut door.borrow_mut(), &case.texts(), || None)?;
        let outcome = std::iter::once(format!("{ask:?} {outcome}"));
        Ok(outcome.chain(changes.iter().map(|change| format!("by {}", change.name()))).collect())
    })
}

#[test]
fn a_changed_block_is_refused_or_has_exactly_its_legs() {
    let tally = run("changed blocks", &Counts { bounded: 1_500, full: 600_000 }, &[Ask::Blocks]);
    // Of 3000 some hundred change nothing that counts; were none accepted, nothing would have been tested.
    assert!(tally[&format!("Blocks {TRUE}")] > 100, "{tally:?}");
    let hit = |name: &&str| tally.contains_key(&format!("by {name}"));
    let missed: Vec<&str> = CHANGES.iter().map(|(name, _)| *name).filter(|name| !hit(name)).collect();
    assert!(missed.is_empty(), "{missed:?} never happened");
}

#[test]
fn a_changed_header_is_refused_or_true() {
    let tally =
        run("changed headers", &Counts { bounded: 1_000, full: 100_000 }, &[Ask::Headers, Ask::Tip, Ask::FinalAt]);
    for ask in [Ask::Headers, Ask::Tip, Ask::FinalAt] {
        assert!(tally[&format!("{ask:?} {TRUE}")] > 10, "{tally:?}");
    }
}

#[test]
fn what_is_not_changed_is_the_truth() {
    let (corpus, mut door) = (Corpus::new(), Door::open());
    for fixture in &corpus.fixtures {
        for ask in [Ask::Blocks, Ask::Headers, Ask::Tip, Ask::FinalAt] {
            let case = Case::true_one(&corpus, fixture, ask);
            let outcome = case.put(&mut door, &case.texts(), || None);
            assert_eq!(outcome.unwrap(), TRUE, "{ask:?} of {}", fixture.name);
        }
    }
}
