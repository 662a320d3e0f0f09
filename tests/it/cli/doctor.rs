//! `landfall doctor` on the command line: its exit codes, and what only files say of a signer.

use std::fs::OpenOptions;
use std::io::Write;

use serde_json::Value;

use crate::cli::signer::{CONFIG, JUNK, TRANSFERS, desk, keystore};
use crate::cli::{Desk, text};

/// What it prints, and its exit code.
fn examined(desk: &Desk) -> (Option<i32>, String) {
    let output = desk.run(&["doctor"]);
    (output.status.code(), text(&output.stdout))
}

#[test]
fn without_a_store_nothing_is_known_and_without_a_signer_nothing_is_wrong() {
    let desk = desk(CONFIG);
    assert!(desk.refused(&["doctor"]).starts_with("landfall: there is no store at"));
    desk.ok(&["migrate"]);
    let (code, lines) = examined(&desk);
    assert_eq!(code, Some(0), "{lines}");
    assert!(lines.starts_with("warn") && lines.contains("no signer is configured"), "{lines}");
    assert_eq!(lines.lines().count(), 1);
}

#[test]
fn a_chain_that_does_not_answer_fails_and_the_rest_is_said_all_the_same() {
    let desk = desk(&format!("{TRANSFERS}{CONFIG}"));
    keystore(&desk, JUNK);
    desk.ok(&["migrate"]);
    let output = desk.run(&["doctor", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let lines: Vec<Value> = text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of =
        |kind: &str| lines.iter().find(|line| line["kind"] == kind).unwrap_or_else(|| panic!("{kind}: {lines:#?}"));
    for (kind, chain, verdict) in [
        ("signer", Value::Null, "ok"),
        ("wallets", Value::Null, "ok"),
        ("journal", Value::Null, "ok"),
        ("requests", Value::Null, "ok"),
        ("price", "ETHEREUM_TESTNET".into(), "warn"),
        ("endpoints", "ETHEREUM_TESTNET".into(), "fail"),
        ("sponsor", "ETHEREUM_TESTNET".into(), "warn"),
    ] {
        assert_eq!((&of(kind)["chain"], &of(kind)["verdict"]), (&chain, &verdict.into()), "{lines:#?}");
    }
}

#[test]
fn a_key_that_creates_transfers_alone_is_a_warning_where_money_is_real() {
    let live = format!("{TRANSFERS}{}", CONFIG.replace("\"test\"", "\"live\""));
    for (config, verdict, what) in [
        (live.clone(), "warn", "set transfers.require_signed_requests"),
        (live.replace("[transfers]\n", "[transfers]\nrequire_signed_requests = true\n"), "ok", "signed requests only"),
    ] {
        let desk = desk(&config);
        keystore(&desk, JUNK);
        desk.ok(&["migrate"]);
        let (_, lines) = examined(&desk);
        let line = lines.lines().find(|line| line.contains("requests")).unwrap_or_else(|| panic!("{lines}"));
        assert!(line.starts_with(verdict) && line.contains(what), "{line}");
    }
}

#[test]
fn a_journal_that_is_not_whole_and_a_passphrase_that_cannot_be_read_fail() {
    let desk = desk(&format!("{TRANSFERS}{CONFIG}"));
    keystore(&desk, JUNK);
    desk.ok(&["migrate"]);
    let mut journal = OpenOptions::new().append(true).open(desk.path("keys").join("journal")).unwrap();
    journal.write_all(b"{}\n").unwrap();
    std::fs::remove_file(desk.path("passphrase")).unwrap();
    let (code, lines) = examined(&desk);
    assert_eq!(code, Some(1), "{lines}");
    let fails = |kind: &str| lines.lines().any(|line| line.starts_with("fail") && line.contains(kind));
    assert!(fails("journal") && fails("the passphrase cannot be read"), "{lines}");
}
