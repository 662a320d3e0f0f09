//! `landfall account addresses`: what an account has, and a further address for it through the door of the API.

use serde_json::{Value, json};

use crate::cli::signer::{CONFIG, JUNK, TRANSFERS, desk, keystore};
use crate::cli::{ADDRESS, Desk, add, text};

const ADD: [&str; 5] = ["--add", "--request-id", "r-1", "--reason", "a customer's second till"];

fn addresses<'a>(account: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["account", "addresses", account, "--json"][..], more].concat()
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A keystore, and the accounts `pool` (OMNIBUS) and `one` (SEGREGATED), each with an imported address.
fn stocked() -> Desk {
    let desk = desk(&format!("{TRANSFERS}{CONFIG}"));
    keystore(&desk, JUNK);
    desk.ok(&add("pool", "OMNIBUS", &format!("ETHEREUM_TESTNET={ADDRESS}")));
    desk.ok(&add("one", "SEGREGATED", "ETHEREUM_TESTNET=0x2222222222222222222222222222222222222222"));
    desk
}

#[test]
fn a_pooled_account_gets_a_further_address_once_and_all_it_has_is_listed() {
    let desk = stocked();
    let imported = json!({ "address": ADDRESS, "chains": ["ETHEREUM_TESTNET"], "managed": false });
    assert_eq!(lines(&desk.ok(&addresses("pool", &[]))), std::slice::from_ref(&imported));
    let tried = desk.run(&addresses("pool", &[&ADD[..], &["--dry-run"]].concat()));
    assert!(text(&tried.stderr).contains("nothing was changed"), "{}", text(&tried.stderr));
    assert_eq!(lines(&desk.ok(&addresses("pool", &[]))), std::slice::from_ref(&imported));
    let added = lines(&desk.ok(&addresses("pool", &ADD)));
    assert_eq!(added, lines(&text(&tried.stdout)), "the one that was shown before");
    assert_eq!((added.len(), &added[0]["managed"]), (1, &json!(true)));
    let again = desk.run(&addresses("pool", &ADD));
    assert_eq!(lines(&text(&again.stdout)), added);
    assert!(text(&again.stderr).contains("asked for before"), "{}", text(&again.stderr));
    let mut listed = lines(&desk.ok(&addresses("pool", &["--chain", "ETHEREUM_TESTNET"])));
    listed.sort_by_key(|line| line["managed"].as_bool());
    assert_eq!(listed, [imported, added[0].clone()]);
    assert_eq!(desk.ok(&addresses("pool", &["--chain", "BASE_SEPOLIA"])), "");
    let opened =
        ["signer", "addresses", "keys", "--account", "pool", "--request", "r-1", "--passphrase-file", "passphrase"];
    assert!(desk.ok(&opened).contains(added[0]["address"].as_str().unwrap()), "as the signer derives it");
    let audit = desk.ok(&["audit", "list"]);
    assert_eq!(audit.matches("add_addresses").count(), 1, "{audit}");
    assert!(audit.contains("a customer's second till"), "{audit}");
}

#[test]
fn what_is_refused_names_the_code_of_the_api_and_changes_nothing() {
    let desk = stocked();
    let refused = desk.refused(&addresses("one", &ADD));
    assert!(refused.starts_with("landfall: ACCOUNT_SEGREGATED: "), "{refused}");
    assert!(desk.refused(&addresses("nobody", &ADD)).starts_with("landfall: NOT_FOUND: "));
    assert!(desk.refused(&addresses("nobody", &[])).starts_with("landfall: there is no account nobody"));
    desk.ok(&addresses("pool", &ADD));
    let other = desk.refused(&addresses("pool", &[&ADD[..], &["--chain", "BASE_SEPOLIA"]].concat()));
    assert!(other.starts_with("landfall: IDEMPOTENCY_MISMATCH: "), "{other}");
    for incomplete in [&["--add"][..], &["--add", "--request-id", "r-2"], &["--request-id", "r-2"], &["--dry-run"]] {
        assert_eq!(desk.run(&addresses("pool", incomplete)).status.code(), Some(2), "{incomplete:?}");
    }
    assert_eq!(lines(&desk.ok(&addresses("pool", &[]))).len(), 2);
}
