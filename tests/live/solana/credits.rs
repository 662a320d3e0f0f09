//! What is a credit on Solana and what only looks like one: the rows S1 to S15 of our catalogue of failures, with real
//! programs where they can show a row.
//!
//! | row | test |
//! |---|---|
//! | S1 | `s1_tokens_come_to_an_owner_whom_the_transaction_does_not_name` |
//! | S2 | `s2_an_account_that_is_not_the_associated_one_is_not_eligible` |
//! | S3 | `s3_a_full_account_that_is_handed_over_is_not_eligible` |
//! | S4 | `s4_sol_of_a_closed_account_is_a_credit_without_a_transfer` |
//! | S5 | `s5_of_a_token_with_a_fee_what_arrived_is_credited` |
//! | S6 | `s6_in_and_out_in_one_transaction_is_one_credit_of_the_rest` |
//! | S7 | `s7_wrapped_sol_is_another_asset_and_wrapping_ones_own_is_no_deposit` |
//! | S8 | `s8_a_failed_transaction_is_no_credit` |
//! | S9 | `s9_the_fee_that_our_account_paid_is_added_back` |
//! | S10 | `s10_less_than_the_rent_to_a_fresh_account_fails` |
//! | S11 | `s11_an_account_from_a_lookup_table_is_credited`, `s11_a_transaction_of_version_1_is_credited` |
//! | S12 | `s12_what_a_permanent_delegate_takes_back_is_no_credit_of_anybody` |
//! | S13 | tests/live/solana/first_deposit.rs `s13_sol_is_pending_once_confirmed_and_confirmed_once_final_on_sqlite`, `s13_sol_is_pending_once_confirmed_and_confirmed_once_final_on_postgresql` |
//! | S14 | no program shows it: chains/solana/tests/it/rows.rs `s14_rewards_of_a_block_are_no_deposits` |
//! | S15 | no program shows it: tests/it/solana/books.rs `s15_slots_of_200_ms_and_of_400_ms_give_the_same_deposits` |
//!
//! `tests/it/rules/rows.rs` keeps that each row has a test. `payments` has what was sent. Amounts are in base units.

use landfall::deposit::DepositStatus;

use crate::solana::payments::{Reported, played, reported};

const NONE: [&str; 0] = [];
/// The rows that a test of this ring shows.
const SHOWN: u8 = 13;

fn grew(reported: &Reported, whose: &str) -> i128 {
    reported.grew.get(whose).copied().unwrap_or_default()
}

#[test]
fn every_row_is_a_test_that_bears_its_number() {
    let index = include_str!("credits.rs");
    for row in 1..=SHOWN {
        let prefix = format!("//! | S{row} | ");
        let line = index.lines().find_map(|line| line.strip_prefix(&prefix)).unwrap_or_default();
        let names: Vec<&str> = line.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "S{row} has no test");
        for name in names {
            assert!(name.starts_with(&format!("s{row}_")), "S{row}: {name}");
            let is_there =
                [index, include_str!("first_deposit.rs")].iter().any(|text| text.contains(&format!("fn {name}()")));
            assert!(is_there, "S{row}: {name} is not where the index says");
        }
    }
}

#[test]
fn every_deposit_is_pending_once_and_confirmed_once_on_both_engines() {
    let played = played();
    let deposits = || played.reported.values().flat_map(|reported| &reported.deposits);
    assert!(deposits().all(|deposit| deposit.status == DepositStatus::Confirmed));
    assert_eq!(played.events, vec![[1, 1]; 2 * deposits().count()]);
    let (count, slots, skipped) = (deposits().count(), played.slots, played.skipped);
    println!("{} transactions, {count} deposits, each PENDING and CONFIRMED once", played.reported.len());
    println!("{slots} slots were followed, {skipped} of them without a block");
}

#[test]
fn every_credit_is_what_the_clusters_own_accounts_grew_by() {
    for (name, reported) in &played().reported {
        for who in ["alice", "bob", "carol", "dave"] {
            for asset in ["SOL", "TOK", "FEE", "PERM"] {
                let credited: i128 = of(&reported.credits(), who, asset, 1);
                // What came back to its owner is no deposit, and the account grew by it all the same.
                let back: Vec<String> = ["rent_refund", "self_transfer"]
                    .iter()
                    .flat_map(|verdict| reported.verdicts.iter().filter(move |line| line.contains(verdict)).cloned())
                    .collect();
                let back = of(&back, who, asset, 2);
                let fee = if (who, asset) == (reported.fee.0, "SOL") { i128::from(reported.fee.1) } else { 0 };
                let grew = grew(reported, &format!("{who} {asset}")) + fee;
                assert_eq!(credited + back, grew.max(0), "{name}: {who} {asset}: {:?}", reported.verdicts);
            }
        }
    }
}

/// The sum of the lines' amounts, which stand at `place`, of one person and asset.
fn of(lines: &[String], who: &str, asset: &str, place: usize) -> i128 {
    let words = lines.iter().map(|line| line.split(' ').collect::<Vec<_>>());
    let theirs = words.filter(|words| words[0] == who && words[words.len() - 1] == asset);
    theirs.map(|words| words[place].parse::<i128>().unwrap()).sum()
}

#[test]
fn who_only_receives_holds_what_was_credited() {
    for (who, asset) in [("alice", "SOL"), ("alice", "TOK"), ("alice", "FEE"), ("carol", "SOL"), ("carol", "TOK")] {
        let credited: i128 = played().reported.values().map(|reported| of(&reported.credits(), who, asset, 1)).sum();
        assert_eq!(credited, i128::from(played().holdings[&format!("{who} {asset}")]), "{who} {asset}");
        assert!(credited > 0, "{who} {asset}");
    }
}

#[test]
fn plain_payments_are_credits() {
    for (name, credits) in [
        ("SOL", vec!["alice 1250000000 SOL"]),
        ("SOL with a memo", vec!["alice 11000000 SOL"]),
        ("SOL twice", vec!["alice 12000000 SOL"]),
        ("new ATA", vec!["carol 2000000 TOK"]),
        ("minted", vec!["alice 7 TOK"]),
        ("both", vec!["alice 21 TOK", "alice 22 SOL"]),
    ] {
        assert_eq!(reported(name).credits(), credits, "{name}");
    }
    let ours = &reported("ours to ours").deposits;
    assert_eq!(ours[0].source_account_id.as_deref(), Some("bob"));
}

#[test]
fn a_token_that_is_not_listed_is_a_fake_one() {
    assert_eq!(reported("fake").credits(), NONE);
    assert_eq!(reported("fake").verdicts, ["alice unlisted_token 77 FAKE"]);
}

#[test]
fn rent_that_comes_back_is_no_deposit_and_what_a_closed_account_held_is_gone() {
    // Bob sends all of his tokens to Alice and closes his account, in one transaction.
    let (reported, [_, rent]) = (reported("closed"), played().rents);
    let held = grew(reported, "alice TOK");
    assert!(held > 0);
    assert_eq!(reported.credits(), [format!("alice {held} TOK")]);
    assert_eq!(grew(reported, "bob TOK"), -held);
    assert_eq!(reported.verdicts, [format!("bob rent_refund {rent} SOL")]);
}

#[test]
fn s1_tokens_come_to_an_owner_whom_the_transaction_does_not_name() {
    let reported = reported("S1");
    assert_eq!(reported.credits(), ["alice 1000000 TOK"]);
    let alice = reported.deposits[0].recipient;
    assert!(reported.keys.iter().all(|key| key.to_bytes() != alice.as_bytes()), "the owner is not among the accounts");
}

#[test]
fn s2_an_account_that_is_not_the_associated_one_is_not_eligible() {
    assert_eq!(reported("S2").credits(), NONE);
    assert_eq!(reported("S2").verdicts, ["alice ineligible_token_account 3000000 TOK"]);
}

#[test]
fn s3_a_full_account_that_is_handed_over_is_not_eligible() {
    // Nothing moves: the account holds as much as before, and is another's.
    assert_eq!(reported("S3").credits(), NONE);
    assert_eq!(reported("S3").verdicts, ["carol ineligible_token_account 9000000 TOK"]);
}

#[test]
fn s4_sol_of_a_closed_account_is_a_credit_without_a_transfer() {
    let [_, rent] = played().rents;
    assert_eq!(reported("S4").credits(), [format!("alice {rent} SOL")]);
}

#[test]
fn s5_of_a_token_with_a_fee_what_arrived_is_credited() {
    assert_eq!(reported("S5").credits(), ["alice 9900000 FEE"]);
    assert_eq!(reported("S5 new ATA").credits(), ["carol 99 FEE"]);
}

#[test]
fn s6_in_and_out_in_one_transaction_is_one_credit_of_the_rest() {
    assert_eq!(reported("S6").credits(), ["bob 15000000 SOL"]);
    assert_eq!(reported("S6 tokens").credits(), ["bob 15 TOK"]);
    assert_eq!(reported("S6 nothing").credits(), NONE);
}

#[test]
fn s7_wrapped_sol_is_another_asset_and_wrapping_ones_own_is_no_deposit() {
    // It is not listed here. Her own SOL stays as it was.
    assert_eq!(reported("S7").credits(), NONE);
    assert_eq!(reported("S7").verdicts, ["alice unlisted_token 70000000 wSOL"]);
    assert_eq!(grew(reported("S7"), "alice SOL"), 0);
    let [_, rent] = played().rents;
    assert_eq!(reported("S7 own").credits(), NONE);
    assert_eq!(grew(reported("S7 own"), "bob SOL"), -20_000_000 - i128::from(rent));
    assert_eq!(reported("S7 own back").credits(), NONE);
    assert_eq!(grew(reported("S7 own back"), "bob SOL"), 20_000_000 + i128::from(rent));
    assert_eq!(
        reported("S7 own back").verdicts,
        [format!("bob rent_refund {rent} SOL"), "bob self_transfer 20000000 SOL".to_owned()]
    );
}

#[test]
fn s8_a_failed_transaction_is_no_credit() {
    for name in ["S8", "S8 tokens"] {
        let reported = reported(name);
        assert!(reported.failed, "{name}");
        assert_eq!((reported.credits(), reported.grew.len()), (vec![], 0), "{name}");
        assert_eq!(reported.verdicts, ["payer reverted_tx 0 SOL"], "{name}");
    }
}

#[test]
fn s9_the_fee_that_our_account_paid_is_added_back() {
    let reported = reported("S9");
    assert_eq!(reported.credits(), ["bob 30000000 SOL"]);
    assert_eq!(grew(reported, "bob SOL"), 30_000_000 - i128::from(reported.fee.1));
}

#[test]
fn s10_less_than_the_rent_to_a_fresh_account_fails() {
    assert!(reported("S10").failed);
    assert_eq!((reported("S10").credits(), reported("S10").grew.len()), (vec![], 0));
    assert_eq!(reported("S10 enough").credits(), [format!("carol {} SOL", played().rents[0])]);
}

#[test]
fn s11_an_account_from_a_lookup_table_is_credited() {
    let reported = reported("S11");
    assert_eq!(reported.credits(), ["alice 110000000 SOL", "alice 111 TOK"]);
    let alice = reported.deposits[0].recipient;
    assert!(
        reported.keys.iter().all(|key| key.to_bytes() != alice.as_bytes()),
        "the message names her by the table only"
    );
}

#[test]
fn s11_a_transaction_of_version_1_is_credited() {
    assert_eq!(reported("v1").credits(), ["alice 112000000 SOL", "alice 113 TOK"]);
    let [from_version_0, usual] = &played().at_versions;
    assert_eq!(from_version_0, usual, "the node names the version that it needs, and is asked again");
}

#[test]
fn s12_what_a_permanent_delegate_takes_back_is_no_credit_of_anybody() {
    assert_eq!(reported("S12").credits(), ["alice 5000000 PERM"]);
    assert_eq!(reported("S12 taken back").credits(), NONE);
    assert_eq!(grew(reported("S12 taken back"), "alice PERM"), -2_000_000, "without her signature");
}
