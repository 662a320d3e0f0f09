//! Each row of our catalogue of failures has a test that bears its number: R1 to R12 (reorgs, finality, delivery), P1
//! to P6 (endpoints), S1 to S15 (Solana), E1 to E24 (what is a credit), T1 to T28 (mistakes that others have made with
//! money that goes out). A test of row R3 is called `r3_..`.

use std::collections::BTreeSet;

use crate::rules::layers::all_sources;

const ROWS: [(char, u32); 5] = [('r', 12), ('p', 6), ('s', 15), ('e', 24), ('t', 28)];

/// The row whose number leads a test's name: `r3` of `r3_an_orphaned_transaction_..`.
fn row_of(name: &str) -> Option<&str> {
    let row = name.split('_').next()?;
    let number = row.strip_prefix(ROWS.map(|(letter, _)| letter))?;
    number.parse::<u32>().is_ok().then_some(row)
}

/// The functions behind an attribute that makes them tests.
fn tests(text: &str) -> impl Iterator<Item = &str> {
    let attributes = text.match_indices("#[test]").chain(text.match_indices("#[tokio::test"));
    attributes.filter_map(|(at, _)| {
        let declared = text[at..].split_once("fn ")?.1;
        Some(declared.split(['(', '<']).next().unwrap_or_default())
    })
}

#[test]
fn every_row_has_a_test_that_bears_its_number_and_no_test_bears_another() {
    assert_eq!(row_of("r3_an_orphan"), Some("r3"));
    assert_eq!(row_of("reorgs_3"), None);
    assert_eq!(tests("#[test]\nfn one() {}\nfn helper() {}").collect::<Vec<_>>(), ["one"]);
    let wanted: BTreeSet<String> =
        ROWS.into_iter().flat_map(|(letter, last)| (1..=last).map(move |number| format!("{letter}{number}"))).collect();
    let sources = all_sources();
    let shown: BTreeSet<String> =
        sources.iter().flat_map(|(_, text)| tests(text).filter_map(row_of)).map(str::to_owned).collect();
    assert_eq!(shown, wanted, "left: rows that tests bear; right: rows that there are");
}
