//! `landfall sandbox --once`, as people run it: everything that was paid arrives, and what is sent is paid once, on EVM, and
//! on Solana where surfpool runs.

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
    let (transfers, books) = if surfpool.is_some() {
        (5, "sandbox: 19 deposits confirmed, 58 events delivered, 0 lost, 0 duplicated")
    } else {
        (3, "sandbox: 11 deposits confirmed, 36 events delivered, 0 lost, 0 duplicated")
    };
    let transfers =
        format!("transfers: {transfers} confirmed, 1 dropped with proof, 0 paid twice, ledger even to the wei");
    let mut last = shown.lines().rev();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((last.next(), last.next()), (Some(books), Some(transfers.as_str())), "{shown}{said}");
    assert_eq!(output.status.code(), Some(0));
    for shown_too in ["  proof ", "  DISPLACED ", "to bob from an ACCOUNT", "  credit "] {
        assert!(shown.contains(shown_too), "{shown_too}: {shown}");
    }
    println!("{transfers}\n{books}");
}
