//! `landfall sandbox --once`, as people run it: everything that was paid arrives, on EVM, and on Solana where surfpool
//! runs.

use std::process::Command;

use crate::stage::{binary, variable};

#[test]
fn the_sandbox_plays_both_families_and_its_books_balance() {
    // Where solana-test-validator is found, no surfpool is installed for the tests, and the play has no Solana.
    #[expect(clippy::disallowed_methods, reason = "the test's own environment, set by scripts/test")]
    let surfpool = std::env::var_os("LANDFALL_SURFPOOL").filter(|path| !path.is_empty());
    let output = Command::new(binary())
        .args(["sandbox", "--once"])
        .env("LANDFALL_ANVIL", variable("LANDFALL_ANVIL"))
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    let books = if surfpool.is_some() {
        "sandbox: 12 deposits confirmed, 26 events delivered, 0 lost, 0 duplicated"
    } else {
        "sandbox: 8 deposits confirmed, 18 events delivered, 0 lost, 0 duplicated"
    };
    assert_eq!(shown.lines().last(), Some(books), "{shown}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0));
    println!("{books}");
}
