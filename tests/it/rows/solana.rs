//! The part of the index that concerns Solana: the rows P3 to P6 and S1 to S15, and the mistakes of others.

use super::Entry;

pub(super) const MISTAKES: &str = "tests/it/slots/mistakes.rs";
const ROWS: &str = "chains/solana/tests/it/rows.rs";
const BOOKS: &str = "tests/it/solana_books.rs";
const PAST: &str = "tests/it/solana_past.rs";
const CREDITS: &str = "tests/live/solana/credits.rs";
const SERVICE: &str = "tests/live/solana/service.rs";

/// By row: of what blocks say, through the watcher, with real programs.
pub(super) const OF_ROWS: &[Entry] = &[
    (
        "P3",
        MISTAKES,
        &[
            "p3_a_slot_that_is_said_to_be_skipped_is_open_until_a_parent_jumps_over_it",
            "p3_a_slot_that_a_list_names_though_it_holds_no_block_stops_nobody",
            "p3_hundreds_of_slots_in_a_hole_of_a_ledger_are_read_elsewhere_and_without_another_node_waited_for",
        ],
    ),
    (
        "P4",
        PAST,
        &[
            "p4_an_order_that_changes_within_a_slot_from_page_to_page_hides_no_slot",
            "p4_a_short_page_is_no_end",
            "p4_a_node_that_does_not_know_where_a_page_begins_is_left_and_the_filter_is_never_dropped",
            "p4_an_empty_page_of_a_node_that_does_not_know_where_it_begins_is_no_end",
            "p4_a_list_of_hundreds_of_pages_goes_on_behind_each_call_that_fails",
            "p4_lists_that_fail_again_and_again_are_asked_for_until_they_come",
        ],
    ),
    ("P5", MISTAKES, &["p5_a_version_that_is_asked_for_is_raised_and_one_that_is_never_enough_stops_and_pages"]),
    (
        "P6",
        MISTAKES,
        &[
            "p6_a_block_without_a_time_has_that_of_the_one_before_and_no_time_is_made_up",
            "p6_a_time_in_another_unit_counts_as_none",
        ],
    ),
    ("S1", ROWS, &["s1_a_transfer_to_an_existing_token_account_is_seen_though_the_owner_is_not_named"]),
    ("S1", CREDITS, &["s1_tokens_come_to_an_owner_whom_the_transaction_does_not_name"]),
    (
        "S2",
        ROWS,
        &[
            "s2_what_lands_in_another_token_account_of_the_owner_is_not_credited_and_reported",
            "s2_only_the_part_that_lands_elsewhere_is_ineligible",
        ],
    ),
    ("S2", CREDITS, &["s2_an_account_that_is_not_the_associated_one_is_not_eligible"]),
    ("S3", ROWS, &["s3_a_funded_account_that_is_handed_over_is_seen_by_its_owner_and_is_ineligible"]),
    ("S3", CREDITS, &["s3_a_full_account_that_is_handed_over_is_not_eligible"]),
    ("S4", ROWS, &["s4_sol_that_no_transfer_instruction_moved_is_credited"]),
    ("S4", CREDITS, &["s4_sol_of_a_closed_account_is_a_credit_without_a_transfer"]),
    ("S5", ROWS, &["s5_what_a_transfer_fee_withholds_is_not_credited"]),
    ("S5", CREDITS, &["s5_of_a_token_with_a_fee_what_arrived_is_credited"]),
    ("S6", ROWS, &["s6_in_and_out_in_one_transaction_is_one_net_credit"]),
    ("S6", CREDITS, &["s6_in_and_out_in_one_transaction_is_one_credit_of_the_rest"]),
    ("S7", ROWS, &["s7_wrapped_sol_is_no_sol_and_off_by_default"]),
    ("S7", CREDITS, &["s7_wrapped_sol_is_another_asset_and_wrapping_ones_own_is_no_deposit"]),
    ("S7", BOOKS, &["s7_wrapped_sol_is_a_deposit_where_it_is_listed_and_in_the_inbox_where_it_is_not"]),
    ("S8", ROWS, &["s8_a_failed_transaction_credits_nothing_and_costs_its_fee"]),
    ("S8", CREDITS, &["s8_a_failed_transaction_is_no_credit"]),
    (
        "S9",
        ROWS,
        &[
            "s9_the_fee_that_our_own_wallet_paid_is_added_back",
            "s9_what_an_owner_swaps_under_its_own_signature_is_a_debit_and_a_credit",
        ],
    ),
    ("S9", CREDITS, &["s9_the_fee_that_our_account_paid_is_added_back"]),
    ("S9", BOOKS, &["s9_what_we_pay_the_fee_of_is_credited_in_full_and_the_fee_is_on_record_also_of_what_failed"]),
    ("S10", ROWS, &["s10_a_transfer_below_the_rent_of_a_fresh_account_failed_and_is_no_credit"]),
    ("S10", CREDITS, &["s10_less_than_the_rent_to_a_fresh_account_fails"]),
    ("S11", ROWS, &["s11_accounts_from_lookup_tables_are_seen"]),
    ("S11", CREDITS, &["s11_an_account_from_a_lookup_table_is_credited", "s11_a_transaction_of_version_1_is_credited"]),
    (
        "S12",
        ROWS,
        &["s12_a_clawback_without_our_signature_is_a_debit", "s12_a_mint_counts_under_its_listed_program_only"],
    ),
    (
        "S12",
        "chains/solana/tests/it/assets.rs",
        &["s12_a_mint_is_asked_for_at_what_is_final_and_reported_with_its_program_and_its_extensions"],
    ),
    (
        "S12",
        "chains/solana/tests/it/mints.rs",
        &[
            "s12_extensions_are_reported_in_their_order_and_the_risks_among_them",
            "s12_an_account_that_is_not_whole_is_an_error_and_never_a_part_of_the_list",
            "s12_of_a_fee_the_one_that_was_set_last_is_reported_and_of_a_delegate_who_it_is",
        ],
    ),
    ("S12", CREDITS, &["s12_what_a_permanent_delegate_takes_back_is_no_credit_of_anybody"]),
    ("S12", SERVICE, &["s12_what_listed_mints_are_is_shown_and_what_the_configuration_has_wrong_is_an_incident"]),
    ("S13", ROWS, &["s13_what_confirmed_waits_for_is_the_nodes_finalized"]),
    ("S13", BOOKS, &["s13_what_is_confirmed_only_is_pending_and_what_is_finalized_is_confirmed"]),
    (
        "S13",
        "tests/live/solana/first_deposit.rs",
        &[
            "s13_sol_is_pending_once_confirmed_and_confirmed_once_final_on_sqlite",
            "s13_sol_is_pending_once_confirmed_and_confirmed_once_final_on_postgresql",
        ],
    ),
    ("S14", ROWS, &["s14_rewards_of_a_block_are_no_deposits"]),
    ("S14", BOOKS, &["s14_lamports_that_came_by_no_transaction_are_reported_once_and_are_no_deposit"]),
    ("S15", BOOKS, &["s15_slots_of_200_ms_and_of_400_ms_give_the_same_deposits"]),
];

/// What other programs get wrong on Solana, by the program; a test of `MISTAKES` names it first.
pub(super) const OF_SOLANA: &[Entry] = &[
    (
        "carbon: -32004 taken for skipped, slots lost by any error, blocks in any order, no look at parents",
        MISTAKES,
        &[
            "carbon_a_head_block_that_is_not_available_yet_is_not_skipped",
            "carbon_no_error_of_a_block_loses_its_slot",
            "carbon_blocks_that_arrive_in_any_order_are_consumed_in_the_order_of_slots",
            "carbon_a_block_that_does_not_stand_on_the_last_one_is_not_connected",
        ],
    ),
    (
        "carbon: a block that is waited for too long taken for skipped",
        MISTAKES,
        &["carbon_a_block_that_a_node_never_answers_for_is_not_passed_over"],
    ),
    (
        "carbon: transactions dropped when a queue is full",
        "tests/it/slots/live.rs",
        &["five_blocks_a_second_of_mainnets_size_are_followed_and_none_is_missed"],
    ),
    (
        "carbon: transactions dropped when a queue is full",
        PAST,
        &["blocks_of_three_megabytes_are_read_ahead_in_bounded_memory"],
    ),
    (
        "carbon's crawler of signatures: gives up after some tries; pages that break inside of a slot",
        PAST,
        &[
            "p4_lists_that_fail_again_and_again_are_asked_for_until_they_come",
            "p4_an_order_that_changes_within_a_slot_from_page_to_page_hides_no_slot",
            "an_owner_with_2500_signatures_on_three_pages_and_a_burst_in_one_slot_is_found_whole",
        ],
    ),
    (
        "yellowstone: a stream that was cut begins at the newest slot, and those between are counted at best",
        "tests/it/slots/stream.rs",
        &["yellowstone_what_was_paid_while_a_slot_subscription_was_cut_is_credited"],
    ),
    (
        "yellowstone: what comes by a stream is taken for all there is",
        SERVICE,
        &["a_slot_subscription_wakes_up_long_before_the_next_poll_and_is_never_read_from"],
    ),
    (
        "squid: transactions up to version 0 only",
        MISTAKES,
        &["squid_a_transaction_of_version_1_does_not_take_its_block_away"],
    ),
    (
        "firehose: what a lagging node lacks taken for skipped; asked again without a pause; false links in old history",
        MISTAKES,
        &[
            "firehose_what_a_lagging_node_lacks_below_the_confirmed_tip_is_not_skipped",
            "firehose_a_node_that_fails_is_asked_again_only_after_pauses",
            "firehose_a_false_previous_blockhash_in_old_history_stops_the_chain_with_a_clear_message",
        ],
    ),
    (
        "carbon: no cursor, so that what comes while it stands still is read by nobody",
        MISTAKES,
        &["private_channels_the_tail_of_a_stop_is_read_also_when_the_chain_moves_meanwhile"],
    ),
    (
        "private-channels: slots complete by their head, the cursor moved over failures and gaps, a tail lost, a signature \
         as identity",
        MISTAKES,
        &[
            "private_channels_a_head_that_is_reported_completes_no_slot",
            "private_channels_the_cursor_stays_where_a_block_failed_although_later_ones_are_there",
            "private_channels_the_tail_of_a_stop_is_read_also_when_the_chain_moves_meanwhile",
            "private_channels_a_signature_that_failed_first_and_pays_two_of_us_later_is_two_deposits",
            "private_channels_two_readers_of_one_store_pass_over_no_gap",
        ],
    ),
    (
        "private-channels: the amount of an instruction instead of what arrived",
        ROWS,
        &["s5_what_a_transfer_fee_withholds_is_not_credited"],
    ),
    (
        "private-channels: a search of the past that moves the cursor",
        PAST,
        &[
            "slots_are_scanned_whatever_is_skipped_at_their_ends_or_lost_at_one_endpoint",
            "beside_run_what_came_before_the_account_is_found_and_nothing_twice",
        ],
    ),
];
