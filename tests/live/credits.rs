//! What is a credit and what only looks like one: the rows E1 to E24 of our catalogue of failures, on a real node where
//! a contract can show them.
//!
//! | row | test |
//! |---|---|
//! | E1 | `e1_a_payment_in_a_reverted_frame_is_no_credit` |
//! | E2 | `e2_a_failed_transaction_is_no_credit`; no receipt: chains/evm/tests/it/reads.rs `e2_missing_receipts_are_an_error_that_names_all` |
//! | E3 | `e3_a_listed_token_that_returns_false_and_logs_nothing_is_no_credit` |
//! | E4 | `e4_a_copy_of_a_token_at_another_address_is_an_unlisted_token` |
//! | E5 | `e5_a_fee_on_transfer_token_is_not_listed`; where it is listed: tests/it/past/unexplained.rs `e5_a_listed_token_that_keeps_a_fee_is_reported_when_it_pays`; on a node: tests/live/unexplained.rs `e5_a_listed_token_that_keeps_a_fee_is_reported` |
//! | E6 | `e6_zero_value_is_no_credit_and_no_poison` |
//! | E7 | `e7_value_that_moves_inside_of_a_transaction_is_a_credit`, `e7_value_that_moves_in_every_way_of_one_transaction_is_credited_leg_by_leg` |
//! | E8 | `e8_delegatecall_shows_a_value_that_did_not_move` |
//! | E9 | `e9_a_balance_without_a_transaction_is_no_deposit`; what is told of it: tests/it/past/unexplained.rs `e9_a_balance_that_no_leg_explains_is_reported_once_and_is_no_deposit`; on a node: tests/live/unexplained.rs `e9_a_balance_that_was_set_is_reported`; withdrawals: chains/evm/tests/it/withdrawals.rs `e9_synthetic_withdrawals_are_credited_in_wei_one_leg_each` |
//! | E10 | `e10_two_equal_payments_in_one_transaction_are_two_deposits` |
//! | E11 | `e11_a_transfer_to_oneself_is_no_credit` |
//! | E12 | `e12_a_mint_is_a_credit_from_the_zero_address`, `e12_a_balance_that_grows_without_a_transfer_is_no_credit` |
//! | E13 | `e13_a_payment_through_a_router_is_a_credit_of_the_token` |
//! | E14 | `e14_an_erc721_transfer_is_no_credit_though_its_contract_is_listed` |
//! | E15 | `e15_the_source_is_the_tokens_sender_and_not_the_transactions` |
//! | E16 | `e16_one_base_unit_and_the_greatest_amount_are_exact` |
//! | E17 | chains/evm/tests/it/native.rs `e17_a_transfer_log_of_polygon_is_a_leg_once_and_replaces_the_transactions_own_value`; recorded: chains/evm/tests/it/recorded.rs `e17_native_legs_of_polygon_are_those_of_its_transfer_logs`; POL's own contract: tests/live/polygon.rs `e17_what_pols_own_contract_logs_is_no_credit_beside_the_chains_log` |
//! | E18 | chains/evm/tests/it/polygon.rs `e18_a_recorded_pseudo_transaction_is_set_aside_wherever_a_node_shows_it`, `e18_a_synthetic_state_sync_is_proved_by_its_encoding_and_pays_by_its_logs`; searched: chains/evm/tests/it/recorded.rs `e18_a_search_reads_a_block_whose_state_sync_is_shown_and_in_no_bloom` |
//! | E19 | chains/evm/tests/it/op.rs `e19_a_synthetic_deposit_that_fails_keeps_its_mint_and_moves_nothing`; on a node: tests/live/op_stack.rs `e19_what_the_op_stack_mints_is_credited_also_when_the_transaction_fails` |
//! | E20 | chains/evm/tests/it/native.rs `e20_eip7708_is_the_one_source_from_its_block_on_and_nothing_before` |
//! | E21 | chains/evm/tests/it/explain.rs `e21_a_listed_contract_is_no_token_below_its_block`; chains/evm/src/networks.rs `e21_the_tokens_are_those_of_their_issuers` |
//! | E22 | `e22_dust_is_recorded_and_credited` |
//! | E23 | `e23_a_transfer_between_two_of_our_accounts_has_source_type_account` |
//! | E24 | `e24_a_mixed_case_address_is_the_same_address` |
//!
//! A test that stands behind a file's name stands in that file; `payments` has what was sent. What anvil cannot
//! show is shown by recorded and made answers, in chains/evm.

use crate::contracts::{INSIDE, ROUTER};
use crate::payments::{ALICE, CAROL, SHOP, STORE, played, reported};

const NONE: [&str; 0] = [];

/// So many wei in ETH, as the interface writes it.
fn wei(amount: u64) -> String {
    assert_ne!(amount % 10, 0, "the interface writes no zeros at the end");
    format!("0.{amount:018} ETH")
}

/// The tests that this file's header names for a row, each with the text of the file that it stands in.
fn tests_of(row: u8) -> Vec<(&'static str, String)> {
    const THIS: &str = "tests/live/credits.rs";
    let prefix = format!("//! | E{row} | ");
    let text = |file: &str| std::fs::read_to_string(format!("{}/{file}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let named = include_str!("credits.rs").lines().find_map(|line| line.strip_prefix(&prefix)).unwrap_or_default();
    let mut file = THIS;
    let mut tests = Vec::new();
    for word in named.split([' ', ',', ';']) {
        if word.ends_with(".rs") {
            file = word;
        } else if let Some(name) = word.strip_prefix('`') {
            tests.push((name.trim_end_matches('`'), text(file)));
        }
    }
    tests
}

#[test]
fn every_row_is_a_test_that_bears_its_number() {
    for row in 1..=24 {
        let tests = tests_of(row);
        assert!(!tests.is_empty(), "E{row} has no test");
        for (name, file) in tests {
            assert!(name.starts_with(&format!("e{row}_")), "E{row}: {name}");
            assert!(file.contains(&format!("fn {name}()")), "E{row}: {name} is not where the index says");
        }
    }
}

#[test]
fn e1_a_payment_in_a_reverted_frame_is_no_credit() {
    // The frame that pays succeeds, the one around it is undone, and so does the transaction around both.
    let reported = reported("E1");
    assert_eq!(reported.credits(), NONE);
    assert_eq!(reported.verdicts(&ALICE), ["reverted_frame 21"]);
}

#[test]
fn e2_a_failed_transaction_is_no_credit() {
    let by_a_contract = reported("E2 by a contract");
    assert_eq!(by_a_contract.credits(), NONE);
    assert_eq!(by_a_contract.verdicts(&ALICE), ["reverted_tx 22"]);
    assert_eq!(by_a_contract.verdicts(&ROUTER), ["reverted_tx 22"]);
    // It has no logs: that it was to move tokens stands in its calldata only, which says nothing.
    let tokens = reported("E2 tokens");
    assert_eq!(tokens.credits(), NONE);
    assert_eq!(tokens.legs.iter().map(|leg| &leg["verdict"]).collect::<Vec<_>>(), ["reverted_tx"]);
}

#[test]
fn e3_a_listed_token_that_returns_false_and_logs_nothing_is_no_credit() {
    let reported = reported("E3");
    assert_eq!(reported.credits(), NONE);
    assert_eq!(reported.verdicts(&ALICE), NONE, "calldata of a transfer claims nothing");
}

#[test]
fn e4_a_copy_of_a_token_at_another_address_is_an_unlisted_token() {
    let reported = reported("E4");
    assert_eq!(reported.credits(), NONE);
    assert_eq!(reported.verdicts(&ALICE), ["unlisted_token 4"]);
    assert!(reported.legs[0]["currency_symbol"].is_null(), "what it calls itself is not repeated");
}

#[test]
fn e5_a_fee_on_transfer_token_is_not_listed() {
    // Its log says 1,000 and the balance grew by 990. A listed token is credited as its log says, so that one that
    // keeps a fee, or rebases, must not be listed; one that is shows at its first payment (`unexplained`). To list one,
    // we would need to credit what its `balanceOf` proves at the final block (`eth_getProof` of its storage), and to
    // know the place of its balances there.
    let reported = reported("E5");
    assert_eq!(reported.credits(), NONE);
    assert_eq!(reported.verdicts(&ALICE), ["unlisted_token 1000"]);
}

#[test]
fn e6_zero_value_is_no_credit_and_no_poison() {
    // Anybody may move nothing from anybody: here from Bob, who has signed nothing.
    for name in ["E6 poisoning", "E6 native"] {
        assert_eq!(reported(name).credits(), NONE, "{name}");
        assert_eq!(reported(name).verdicts(&ALICE), ["zero_value 0"], "{name}");
    }
}

#[test]
fn e7_value_that_moves_inside_of_a_transaction_is_a_credit() {
    // Below 13 calls; with calldata, to somebody who has no code; by a contract.
    for (name, amount, source) in
        [("E7 deep", 71, ROUTER), ("E7 with calldata", 72, played().payer), ("E7 by a contract", 73, ROUTER)]
    {
        let reported = reported(name);
        assert_eq!(reported.credits(), [format!("alice {}", wei(amount))], "{name}");
        assert_eq!(reported.verdicts(&ALICE), [format!("credited {amount}")], "{name}");
        assert_eq!(reported.each("source_address"), [source.to_string()], "{name}");
    }
}

#[test]
fn e7_value_that_moves_in_every_way_of_one_transaction_is_credited_leg_by_leg() {
    // 5 twice, 7 and 9 by borrowed code, 6 below 40 calls, 11 and 12 by destroyed contracts. What moves nothing beside
    // them: [E1] 3 in a frame that is undone, [E8] 4 by a callcode (which is for the caller itself), [E6] nothing.
    let reported = reported("E7 every way");
    let amounts = [5, 5, 6, 7, 9, 11, 12];
    let expected: Vec<String> = amounts.iter().map(|amount| format!("alice {}", wei(*amount))).collect();
    assert_eq!(reported.credits(), expected);
    let credited = [5, 5, 7, 9, 6, 11, 12].map(|amount| format!("credited {amount}"));
    let (verdicts, others): (Vec<String>, Vec<String>) =
        reported.verdicts(&ALICE).into_iter().partition(|reported| reported.starts_with("credited"));
    assert_eq!(verdicts, credited, "in the order in which they ran");
    assert_eq!(others, ["reverted_frame 3", "delegatecall 4", "zero_value 0"]);
    assert_eq!(reported.verdicts(&INSIDE)[0], "not_watched 100");
}

#[test]
fn e8_delegatecall_shows_a_value_that_did_not_move() {
    let reported = reported("E8");
    assert_eq!(reported.credits(), NONE);
    assert_eq!(reported.verdicts(&ALICE), ["delegatecall 81"]);
}

#[test]
fn e9_a_balance_without_a_transaction_is_no_deposit() {
    // Tips of the blocks that she is said to have made, and a balance that was set, as a genesis does.
    // That no deposit is of a transaction without a name is seen to while the payments are played.
    assert_eq!(played().of(&CAROL).count(), 0);
}

#[test]
fn e10_two_equal_payments_in_one_transaction_are_two_deposits() {
    for (name, credit, verdict) in [
        ("E10 tokens", "alice 0.000005 USDC".to_owned(), "credited 5"),
        ("E10 native", format!("alice {}", wei(51)), "credited 51"),
    ] {
        let reported = reported(name);
        assert_eq!(reported.credits(), [credit.clone(), credit], "{name}");
        assert_eq!(reported.verdicts(&ALICE), [verdict, verdict], "{name}");
        let ids = reported.each("id");
        assert_ne!(ids[0], ids[1], "{name}");
    }
}

#[test]
fn e11_a_transfer_to_oneself_is_no_credit() {
    for (name, verdict) in [("E11 native", "self_transfer 111"), ("E11 tokens", "self_transfer 11")] {
        assert_eq!(reported(name).credits(), NONE, "{name}");
        assert_eq!(reported(name).verdicts(&played().bob), [verdict], "{name}");
    }
}

#[test]
fn e12_a_mint_is_a_credit_from_the_zero_address() {
    let reported = reported("E12");
    assert_eq!(reported.credits(), ["alice 0.000012 USDC"]);
    assert_eq!(reported.verdicts(&ALICE), ["credited 12"]);
    assert_eq!(reported.each("source_address"), [format!("0x{}", "0".repeat(40))]);
}

#[test]
fn e12_a_balance_that_grows_without_a_transfer_is_no_credit() {
    // The contract is listed and what it gave to Alice is hers; only a Transfer counts, so WETH is listed nowhere.
    for name in ["E12 issued", "E12 paid in"] {
        assert_eq!((reported(name).credits(), reported(name).verdicts(&ALICE)), (vec![], vec![]), "{name}");
    }
    assert!(landfall_evm::networks().iter().all(|network| network.assets.iter().all(|asset| asset.symbol != "WETH")));
}

#[test]
fn e13_a_payment_through_a_router_is_a_credit_of_the_token() {
    // The transaction is sent to the router; only the log names the token.
    let reported = reported("E13");
    assert_eq!(reported.credits(), ["alice 0.000013 USDC"]);
    assert_eq!(reported.verdicts(&ALICE), ["credited 13"]);
    assert_eq!(reported.each("source_address"), [played().payer.to_string()]);
}

#[test]
fn e14_an_erc721_transfer_is_no_credit_though_its_contract_is_listed() {
    let collectible = reported("E14");
    assert_eq!(collectible.credits(), NONE);
    assert_eq!(collectible.verdicts(&ALICE), ["unlisted_token 1"]);
    assert_eq!(collectible.legs[0]["reason"], "its contract is listed, but this Transfer tells no amount (ERC-721)");
    // 31 bytes of data are no amount.
    assert_eq!((reported("E14 short").credits(), reported("E14 short").verdicts(&ALICE)), (vec![], vec![]));
    // The contract is listed: its proper log is believed.
    assert_eq!(reported("E14 honest").credits(), ["alice 0.00014 ODD"]);
    assert_eq!(reported("E14 honest").verdicts(&ALICE), ["credited 140"]);
}

#[test]
fn e15_the_source_is_the_tokens_sender_and_not_the_transactions() {
    // The payer signs and pays the gas; the tokens are the outsider's.
    let reported = reported("E15");
    assert_eq!(reported.credits(), ["alice 0.000015 USDC"]);
    assert_eq!(reported.each("source_address"), [played().outsider.to_string()]);
    assert_eq!(reported.each("source_type"), ["ON_CHAIN"]);
}

#[test]
fn e16_one_base_unit_and_the_greatest_amount_are_exact() {
    assert_eq!(reported("E16 least").credits(), ["alice 0.000001 USDC"]);
    // 2^256 - 1, with 18 decimals.
    let greatest = "115792089237316195423570985008687907853269984665640564039457584007913129639935";
    let (whole, part) = greatest.split_at(greatest.len() - 6);
    assert_eq!(reported("E16 greatest").credits(), [format!("alice {whole}.{part} BIG")]);
    assert_eq!(reported("E16 greatest").verdicts(&ALICE), [format!("credited {greatest}")]);
}

#[test]
fn e22_dust_is_recorded_and_credited() {
    // There is no minimum: one wei is a deposit like any other, so that nothing can be lost below one.
    let reported = reported("E22");
    assert_eq!(reported.credits(), ["alice 0.000000000000000001 ETH"]);
    assert_eq!(reported.verdicts(&ALICE), ["credited 1"]);
}

#[test]
fn e23_a_transfer_between_two_of_our_accounts_has_source_type_account() {
    // Also where another sends the transaction and pays for it.
    let cases = [
        ("E23 native", format!("alice {}", wei(231))),
        ("E23 tokens", "alice 0.000232 USDC".to_owned()),
        ("E23 sponsored", "alice 0.000234 USDC".to_owned()),
    ];
    for (name, credit) in cases {
        let reported = reported(name);
        assert_eq!(reported.credits(), [credit], "{name}");
        assert_eq!(
            (reported.each("source_type"), reported.each("source_account_id")),
            (vec!["ACCOUNT"], vec!["bob"]),
            "{name}"
        );
        assert_eq!(reported.each("source_address"), [played().bob.to_string()], "{name}");
    }
    // A contract that Bob calls is not Bob.
    let reported = reported("E23 by a contract");
    assert_eq!(
        (reported.credits(), reported.each("source_type")),
        (vec![format!("alice {}", wei(233))], vec!["ON_CHAIN"])
    );
}

#[test]
fn e24_a_mixed_case_address_is_the_same_address() {
    // The shop was registered in EIP-55, the store in small letters; the node writes small letters for both.
    let cases = [
        ("E24 shop", format!("shop {}", wei(241)), SHOP),
        ("E24 store", format!("store {}", wei(242)), STORE),
        ("E24 tokens", "shop 0.000243 USDC".to_owned(), SHOP),
    ];
    for (name, credit, address) in cases {
        let written = address.to_string();
        assert_ne!(written, written.to_lowercase(), "it has both");
        assert_eq!(reported(name).credits(), [credit], "{name}");
        assert_eq!(reported(name).each("account_address"), [written], "{name}");
    }
}
