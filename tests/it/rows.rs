//! The index of what is promised and of the tests that hold it to that, kept by a test: the rows R1 to R12, P1 to P6 and S1
//! to S15 of our catalogue of failures, what is proved of an EVM block, and the mistakes of others that must not be made here.
//! What concerns Solana stands in `solana`.
//!
//! Each entry is (what, file, tests). A test of a row bears its number, unless others stand beside one that does. The
//! rows E1 to E24 have their index in `tests/live/credits.rs`. What names a test that is not there fails, and so does a
//! test with a row's number that no entry names.

mod solana;

use std::collections::BTreeSet;
use std::path::Path;

use self::solana::{MISTAKES, OF_ROWS, OF_SOLANA};

type Entry = (&'static str, &'static str, &'static [&'static str]);

const ROWS: [&str; 33] = [
    "R1", "R2", "R3", "R4", "R5", "R6", "R7", "R8", "R9", "R10", "R11", "R12", "P1", "P2", "P3", "P4", "P5", "P6",
    "S1", "S2", "S3", "S4", "S5", "S6", "S7", "S8", "S9", "S10", "S11", "S12", "S13", "S14", "S15",
];
const SIM: &str = "tests/it/reorgs.rs";
const ANVIL: &str = "tests/live/reorgs.rs";
const NODES: &str = "tests/it/nodes.rs";
const FINALITY: &str = "tests/it/finality.rs";
const DELIVERY: &str = "tests/it/delivery.rs";
const ENGINE: &str = "tests/it/delivery_engine.rs";
const INSTANCES: &str = "tests/it/delivery_instances.rs";
const FAILING: &str = "tests/it/delivery_failing.rs";
const CLOCKS: &str = "tests/it/delivery_clocks.rs";
const CUT_OFF: &str = "tests/it/delivery_crashes.rs";
const CLI_EVENTS: &str = "tests/it/cli_events.rs";
const IDENTITY_EVENTS: &str = "tests/it/identity_events.rs";
const DELIVERIES: &str = "tests/live/deliveries.rs";
const WATCHING: &str = "tests/it/watching.rs";
const PROOF: &str = "chains/evm/tests/it/proof.rs";
const RECORDED: &str = "chains/evm/tests/it/recorded.rs";
const LOGS: &str = "chains/evm/tests/it/logs.rs";
const READS: &str = "chains/evm/tests/it/reads.rs";
const POOL: &str = "chains/evm/tests/it/pool.rs";
const AGREEING: &str = "chains/evm/tests/it/agreeing.rs";
const TRACES: &str = "chains/evm/tests/it/traces.rs";
const NATIVE: &str = "chains/evm/tests/it/native.rs";
const OP: &str = "chains/evm/tests/it/op.rs";
const POLYGON: &str = "chains/evm/tests/it/polygon.rs";
const FUZZ: &str = "chains/evm/tests/it/fuzz";

/// By row: in the sim world, on nodes that lie, on anvil.
const BY_ROW: &[Entry] = &[
    ("R1", SIM, &["r1_a_transaction_mined_again_behind_another_keeps_its_ids_and_is_credited_once"]),
    ("R1", ANVIL, &["r1_a_transaction_mined_again_with_shifted_log_indexes_keeps_its_ids_and_is_credited_once"]),
    ("R2", SIM, &["r2_a_transaction_executed_again_with_another_amount_is_another_deposit"]),
    ("R2", ANVIL, &["r2_the_same_transaction_in_another_block_pays_another_amount"]),
    (
        "R3",
        SIM,
        &[
            "r3_an_orphaned_transaction_that_never_returns_fails_after_the_grace_and_not_before",
            "r3_an_orphaned_transaction_that_returns_is_confirmed",
            "a_failed_deposit_that_is_mined_after_all_is_pending_again_and_then_confirmed",
        ],
    ),
    ("R3", ANVIL, &["r3_an_orphaned_transaction_that_never_returns_fails_and_one_that_returns_is_confirmed"]),
    ("R4", SIM, &["r4_a_replaced_transaction_fails_when_the_winner_is_final"]),
    ("R4", ANVIL, &["r4_a_replaced_transaction_fails_when_the_winner_is_final"]),
    ("R5", SIM, &["r5_a_transaction_that_reverts_the_second_time_fails_at_finality"]),
    ("R5", ANVIL, &["r5_a_transaction_that_reverts_the_second_time_fails_at_finality"]),
    (
        "R6",
        SIM,
        &[
            "r6_a_reorg_below_the_final_block_changes_nothing_and_needs_a_person",
            "a_reorg_deeper_than_the_record_needs_a_person",
        ],
    ),
    (
        "R6",
        ANVIL,
        &[
            "r6_a_reorg_below_finalized_halts_the_chain_and_says_what_to_do",
            "r6_what_a_confirmed_transaction_pays_after_a_reorg_below_finalized_is_never_credited_beside_it",
        ],
    ),
    (
        "R6",
        FINALITY,
        &[
            "r6_a_reorg_deeper_than_the_record_halts_its_chain_only_and_says_what_to_do",
            "a_transaction_that_pays_otherwise_after_an_accepted_reorg_waits_until_a_person_took_the_first_credit_back",
            "a_reorg_deeper_than_the_one_that_a_person_accepted_is_refused_again",
        ],
    ),
    ("R7", FINALITY, &["r7_while_finality_stalls_deposits_wait_with_an_alarm_until_a_person_or_finality_decides"]),
    ("R7", NODES, &["r7_while_a_nodes_final_block_stands_still_deposits_wait_with_an_alarm"]),
    ("R8", FINALITY, &["r8_on_a_rollup_depth_is_no_finality_and_the_networks_say_so"]),
    (
        "R8",
        NODES,
        &[
            "r8_whatever_stands_on_a_deposit_of_a_rollup_it_waits_for_the_tag",
            "r8_under_each_delivered_rule_a_deposit_waits_for_its_last_block_on_top_however_early_the_tag",
        ],
    ),
    ("R8", AGREEING, &["on_the_op_stack_l1_blocks_must_pass_since_safe_first_covered_a_block"]),
    ("R9", DELIVERY, &["r9_a_later_event_is_not_sent_before_the_earlier_was_accepted_and_other_deposits_go_on"]),
    ("R10", DELIVERY, &["r10_what_was_sent_and_not_acknowledged_is_sent_again_with_the_same_bytes_and_id"]),
    (
        "R10",
        "tests/live/kills.rs",
        &[
            "kills_at_random_moments_lose_nothing_and_credit_nothing_twice_on_sqlite",
            "kills_at_random_moments_lose_nothing_and_credit_nothing_twice_on_postgresql",
        ],
    ),
    ("R11", SIM, &["r11_however_a_reorg_of_two_blocks_arrives_the_end_is_that_of_a_straight_scan"]),
    (
        "R11",
        "tests/it/histories.rs",
        &["random_histories_end_with_the_legs_of_the_final_chain_each_once", "random_histories_on_postgresql_too"],
    ),
    ("R11", ANVIL, &["r11_what_only_replaced_blocks_hold_is_reported_and_the_end_is_that_of_a_straight_scan"]),
    ("R12", SIM, &["r12_an_error_in_the_middle_of_a_range_and_a_long_stop_leave_no_block_unread"]),
    ("R12", NODES, &["r12_a_range_that_fails_anywhere_and_a_long_stop_leave_no_block_unread"]),
    ("R12", ANVIL, &["r12_a_stop_of_many_blocks_leaves_none_unread"]),
    (
        "P1",
        NODES,
        &[
            "p1_logs_that_a_node_leaves_out_are_found_by_the_bloom",
            "p1_an_endpoint_that_answers_with_nothing_is_refused_and_another_is_asked",
        ],
    ),
    ("P1", LOGS, &["logs_that_the_bloom_promises_and_nobody_shows_are_read_as_receipts"]),
    (
        "P2",
        NODES,
        &[
            "p2_a_node_of_another_network_is_left_out_and_confirms_nothing",
            "p2_two_nodes_on_two_forks_confirm_nothing_until_they_agree",
            "p2_of_three_nodes_the_one_on_another_fork_is_left_out_with_its_reason",
        ],
    ),
    (
        "P2",
        "tests/live/outages.rs",
        &["p2_two_nodes_on_two_forks_confirm_nothing", "a_node_of_another_chain_ends_the_start_with_one_clear_line"],
    ),
    ("P2", "chains/rpc/src/pool/endpoint.rs", &["the_chain_id_is_asked_for_at_first_and_each_hour"]),
];

/// What is proved of an EVM block, clause by clause.
const PROVED: &[Entry] = &[
    ("header hash, transactions root, receipts root", PROOF, &["a_block_with_anything_changed_is_refused"]),
    (
        "the same of recorded blocks",
        RECORDED,
        &["recorded_blocks_prove", "recorded_blocks_of_ropsten_before_byzantium_prove_and_credit_nothing"],
    ),
    (
        "the legs of recorded blocks, written down",
        "chains/evm/tests/it/tables.rs",
        &[
            "blocks_of_ethereum_with_many_legs_have_those_of_their_tables",
            "a_block_of_ethereum_has_the_ninety_three_internal_legs_of_its_table",
            "a_block_of_polygon_has_the_legs_that_its_values_and_traces_show",
        ],
    ),
    ("every type of transaction", PROOF, &["every_type_of_transaction_proves"]),
    ("log indexes contiguous, the block hash of every log", PROOF, &["a_block_with_anything_changed_is_refused"]),
    ("as many receipts as transactions", PROOF, &["a_block_with_anything_changed_is_refused"]),
    (
        "withdrawals root recomputed, and not on the OP stack",
        "chains/evm/tests/it/withdrawals.rs",
        &["withdrawals_that_are_not_the_headers_are_refused", "on_the_op_stack_the_field_is_no_root_of_withdrawals"],
    ),
    (
        "receipts of the OP stack before and after Canyon",
        RECORDED,
        &[
            "a_deposit_of_before_canyon_has_its_nonce_in_the_receipt_and_not_in_the_root",
            "a_block_that_anvil_made_of_deposits_proves_as_canyon_encodes_it",
        ],
    ),
    (
        "Canyon on a running anvil",
        "tests/live/op_stack.rs",
        &["e19_what_the_op_stack_mints_is_credited_also_when_the_transaction_fails"],
    ),
    (
        "Polygon's state-syncs, recorded and synthetic",
        POLYGON,
        &[
            "e18_a_recorded_pseudo_transaction_is_set_aside_wherever_a_node_shows_it",
            "e18_a_synthetic_state_sync_is_proved_by_its_encoding_and_pays_by_its_logs",
        ],
    ),
    (
        "withdrawals, synthetic",
        "chains/evm/tests/it/withdrawals.rs",
        &["e9_synthetic_withdrawals_are_credited_in_wei_one_leg_each"],
    ),
    ("EIP-7708, synthetic", NATIVE, &["e20_eip7708_is_the_one_source_from_its_block_on_and_nothing_before"]),
    (
        "by logs: the bloom, and receipts for blocks with hits",
        LOGS,
        &[
            "logs_that_the_bloom_promises_and_nobody_shows_are_read_as_receipts",
            "a_log_that_the_bloom_excludes_is_a_lie",
        ],
    ),
    (
        "by logs: receipts before CONFIRMED",
        "tests/it/by_logs.rs",
        &["only_blocks_that_may_concern_us_are_read_in_full"],
    ),
    ("unknown types of transactions and receipts", PROOF, &["a_type_of_the_future_asks_for_an_upgrade"]),
    ("unknown types: by logs", LOGS, &["a_type_of_the_future_asks_for_an_upgrade_whatever_the_bloom_says"]),
    (
        "unknown types: in a search",
        "chains/evm/tests/it/scan.rs",
        &[
            "a_type_of_the_future_asks_for_an_upgrade_in_a_search_where_transactions_are_read",
            "where_the_chain_logs_what_moves_a_type_of_the_future_that_pays_us_is_found_and_asks_for_an_upgrade",
            "on_polygon_a_type_of_the_future_that_pays_us_is_found_by_the_chains_log",
        ],
    ),
    ("types of other stacks", OP, &["another_stacks_type_asks_for_an_upgrade"]),
    (
        "upgrade needed: when every endpoint says so",
        POOL,
        &["that_an_upgrade_is_needed_counts_only_when_every_endpoint_says_so"],
    ),
    (
        "upgrade needed: an incident",
        FINALITY,
        &["what_halts_a_chain_is_an_incident_of_its_kind_and_what_may_pass_is_none"],
    ),
    (
        "upgrade needed: a chain that halts",
        "tests/it/upgrade.rs",
        &["a_type_that_this_version_lacks_halts_its_chain_in_front_of_its_block"],
    ),
    (
        "a trace: two witnesses",
        "tests/it/traces.rs",
        &[
            "value_that_moves_inside_is_pending_by_its_trace_and_confirmed_with_the_balances_that_agree",
            "two_endpoints_that_agree_are_witness_enough",
        ],
    ),
    (
        "no lie is a credit: blocks, logs, searches, traces, balances, bodies",
        FUZZ,
        &[
            "a_changed_block_is_refused_or_has_exactly_its_legs",
            "exactly_the_logs_that_pay_are_legs",
            "exactly_the_movements_that_the_chain_logs_are_legs",
            "a_changed_block_with_the_chains_own_logs_is_refused_or_has_exactly_its_legs",
            "blocks_by_their_logs_are_refused_or_candidates",
            "a_search_is_refused_or_passes_over_nothing_that_was_shown",
            "a_changed_trace_is_refused_or_exactly_its_endpoints_word",
            "of_two_endpoints_no_lie_is_a_leg_while_one_reports_the_truth",
            "a_false_proof_is_refused_or_the_truth",
            "a_spoilt_body_is_an_error_or_the_truth",
        ],
    ),
];

/// Mistakes that others made, and traps of chains and nodes.
const TRAPS: &[Entry] = &[
    (
        "empty answers, reorgs, and both at once",
        "tests/it/integrity.rs",
        &[
            "backfill_with_30_percent_of_the_answers_empty",
            "live_with_2_reorgs",
            "live_with_20_percent_of_the_answers_empty_and_2_reorgs",
            "accounts_added_late_by_a_backfill_with_30_percent_of_the_answers_empty",
        ],
    ),
    ("an empty answer moves the cursor", WATCHING, &["an_empty_or_failed_answer_moves_nothing_and_loses_nothing"]),
    ("null blocks are filtered out of a batch", READS, &["a_missing_block_ends_the_answer"]),
    ("a batch torn by a reorg", READS, &["a_batch_torn_by_a_reorg_ends_at_the_tear"]),
    ("null receipts, or [] for a block with transactions", READS, &["e2_missing_receipts_are_an_error_that_names_all"]),
    ("a head that goes back is taken for a reorg", WATCHING, &["a_lagging_endpoint_is_no_reorg"]),
    (
        "the newest block goes back behind a balancer",
        POOL,
        &["the_highest_head_counts_and_one_that_lags_takes_nothing_back"],
    ),
    ("a fork point with a hole", SIM, &["a_short_answer_in_the_search_for_the_fork_point_is_no_deeper_fork"]),
    ("final by number and not by hash", WATCHING, &["a_final_block_that_is_not_ours_settles_nothing_and_is_reported"]),
    (
        "`finalized` goes back or vanishes",
        "chains/rpc/src/pool/agree.rs",
        &["what_was_reported_is_never_taken_back_or_lowered"],
    ),
    ("no `finalized` tag at all", READS, &["a_node_without_a_final_block_has_none_and_any_other_refusal_is_an_error"]),
    ("logs that were removed", LOGS, &["removed_logs_are_no_logs"]),
    ("logs twice, of another block or transaction", LOGS, &["logs_of_another_block_or_transaction_are_refused"]),
    (
        "a bloom of zeros",
        LOGS,
        &["a_hidden_transaction_is_found_out_and_a_value_is_a_candidate_though_it_may_have_failed"],
    ),
    ("blooms of Polygon before PIP-74", LOGS, &["a_sprint_block_of_polygon_is_read_with_receipts"]),
    (
        "failed transactions, by the log of another one",
        "chains/evm/tests/it/legs.rs",
        &["e2_a_failed_transaction_moves_nothing"],
    ),
    (
        "value of failed frames, borrowed code, nothing",
        TRACES,
        &["what_only_looks_like_a_movement_is_rejected_with_its_reason"],
    ),
    ("a payment below a failed frame", TRACES, &["a_payment_below_a_failed_frame_is_none_and_its_neighbours_stay"]),
    (
        "no traces for a block with transactions",
        TRACES,
        &["a_trace_that_contradicts_the_proved_block_is_refused_in_both_forms"],
    ),
    (
        "what the only tracing endpoint that is up leaves out",
        "tests/it/trace_again.rs",
        &["a_leg_that_the_only_endpoint_up_hides_is_found_when_a_second_one_is_back"],
    ),
    ("traces that hold up tokens", "tests/it/traces.rs", &["slow_and_failing_traces_delay_no_token_by_one_tick"]),
    (
        "before Byzantium",
        "chains/evm/tests/it/explain.rs",
        &["recorded_receipts_of_before_byzantium_prove_and_credit_nothing"],
    ),
    (
        "fees of Polygon in the logs of 0x1010",
        NATIVE,
        &["e17_what_only_looks_like_a_transfer_log_of_polygon_is_no_leg"],
    ),
    ("EIP-7708 and traces together", NATIVE, &["e20_eip7708_is_the_one_source_from_its_block_on_and_nothing_before"]),
    ("tokens by symbol", "chains/evm/src/networks.rs", &["e21_the_tokens_are_those_of_their_issuers"]),
    ("messages of 30 providers", "chains/evm/src/dialect.rs", &["the_words_of_thirty_providers_are_understood"]),
    (
        "ranges and batches that are too large",
        "chains/evm/tests/it/scan.rs",
        &["a_range_that_is_too_wide_is_asked_for_in_parts", "an_error_of_another_kind_is_no_answer"],
    ),
    (
        "batches",
        "chains/evm/tests/it/transport.rs",
        &["a_batch_that_is_too_large_is_asked_in_parts_and_the_size_is_remembered"],
    ),
    (
        "an endpoint that failed once is never asked again",
        POOL,
        &["a_failing_endpoint_is_asked_again_only_after_growing_pauses"],
    ),
    ("sockets that wake up as data", "chains/evm/tests/it/wake.rs", &["a_new_head_wakes_up_once_and_is_never_data"]),
    ("`pending` and flash blocks", "chains/evm/tests/it/pending.rs", &["what_is_not_in_a_block_is_never_asked_for"]),
    (
        "a watch list that changes while a block is read",
        WATCHING,
        &["an_address_added_while_the_tick_reads_is_matched_in_that_very_block"],
    ),
    (
        "a provider without a method, or a node without old data, stops a chain or looks like a liar",
        "chains/evm/tests/it/lacking.rs",
        &[
            "a_block_of_before_byzantium_is_left_to_an_endpoint_that_keeps_state_roots",
            "e18_a_synthetic_state_sync_is_left_to_an_endpoint_that_gives_its_encoding",
            "where_nobody_gives_the_encoding_of_a_state_sync_the_error_names_endpoint_and_methods",
        ],
    ),
    (
        "a search that says nothing of what it does not look at",
        "tests/it/traced_past.rs",
        &["blocks_whose_own_logs_report_every_movement_are_not_traced"],
    ),
    ("gaps found afterwards", "tests/it/rescan.rs", &["a_missing_deposit_is_reported_and_mended"]),
    ("the cost of many addresses", LOGS, &["a_live_block_by_its_logs_costs_two_requests_the_tip_included"]),
    (
        "delivery: the event in one system and its queue in another",
        "tests/it/store/events.rs",
        &["a_rolled_back_event_leaves_no_delivery"],
    ),
    (
        "delivery: a transaction that is held while a receiver is waited for",
        ENGINE,
        &["no_transaction_is_open_while_a_receiver_is_waited_for"],
    ),
    (
        "delivery: an answer without an end",
        DELIVERY,
        &[
            "an_answer_that_is_not_complete_within_15_s_counts_as_failed_and_holds_up_nobody",
            "of_an_endless_answer_no_more_than_16_kib_are_read_and_1_kib_is_kept",
        ],
    ),
    (
        "delivery: sent twice at once when the connection fails",
        ENGINE,
        &["a_connection_that_ends_behind_the_request_is_one_attempt_and_not_posted_again_at_once"],
    ),
    (
        "delivery: one receiver that takes all slots",
        ENGINE,
        &["a_dead_and_a_dripping_endpoint_keep_back_nobody_else", "an_endpoint_has_eight_attempts_under_way_at_most"],
    ),
    (
        "delivery: one receiver that takes all slots",
        FAILING,
        &[
            "what_failed_leaves_a_quarter_of_all_slots_to_what_is_new",
            "what_a_dead_process_left_leaves_a_quarter_of_all_slots_to_what_is_new",
        ],
    ),
    ("delivery: one event that takes an endpoint", ENGINE, &["events_that_are_refused_for_ever_keep_back_no_others"]),
    (
        "delivery: one event that takes an endpoint",
        FAILING,
        &[
            "three_refused_events_in_a_quiet_hour_keep_back_no_others",
            "a_new_event_waits_ten_minutes_at_most_for_the_probe_of_an_endpoint_that_fails",
            "an_endpoint_that_fails_again_behind_its_probe_costs_what_was_let_go_two_attempts",
        ],
    ),
    (
        "delivery: sent again in another order",
        CLI_EVENTS,
        &["a_later_event_that_is_under_way_is_called_off_by_a_replay_and_sent_behind_the_earlier_one"],
    ),
    (
        "delivery: put off or taken away by a clock that is wrong",
        CLOCKS,
        &[
            "what_a_clock_that_was_ahead_has_put_off_is_due_at_once",
            "a_lease_that_ends_too_far_ahead_is_left_to_its_holder_for_as_long_as_an_attempt_may_take",
            "a_process_whose_clock_is_wrong_goes_by_the_databases_and_takes_no_lease_of_others",
        ],
    ),
    (
        "delivery: held back, and nobody is told",
        FAILING,
        &["whoever_asks_how_things_are_is_reported_of_webhooks_that_hold_events_back"],
    ),
    (
        "delivery: a shared secret in clear, and no time in what is signed",
        DELIVERY,
        &[
            "each_attempt_is_signed_with_its_own_time_over_the_same_bytes",
            "the_signing_key_appears_nowhere_but_in_its_row",
        ],
    ),
    (
        "delivery: given up after some tries, and dropped",
        ENGINE,
        &[
            "a_receiver_that_is_dark_for_eight_days_gets_every_event_in_order_per_deposit",
            "what_fails_for_seven_days_is_held_and_the_first_that_arrives_lets_all_go",
            "a_410_and_a_pause_wait_for_a_person_and_keep_every_event",
        ],
    ),
    (
        "delivery: sent by two, or by one who had stood still",
        INSTANCES,
        &[
            "instances_on_one_database_send_each_event_once_and_in_order",
            "who_stood_still_between_its_claim_and_its_attempt_sends_nothing",
        ],
    ),
    (
        "delivery: sent by two, or by one who had stood still",
        DELIVERIES,
        &["two_instances_send_each_event_once_and_one_that_was_stopped_writes_nothing_when_it_goes_on"],
    ),
    (
        "delivery: lost by kill -9 or with the database",
        CUT_OFF,
        &["a_crash_at_any_await_of_a_delivery_loses_nothing_and_keeps_the_order"],
    ),
    (
        "delivery: lost by kill -9 or with the database",
        DELIVERIES,
        &[
            "kill_9_in_the_middle_of_attempts_loses_no_event_on_sqlite",
            "kill_9_in_the_middle_of_attempts_loses_no_event_on_postgresql",
            "a_database_that_crashes_in_the_middle_of_attempts_loses_no_event",
        ],
    ),
    (
        "delivery: a name that leads inside once it was vetted",
        "tests/it/delivery_dns.rs",
        &["a_name_server_that_rebinds_a_name_leads_to_no_machine_inside"],
    ),
    (
        "delivery: a name that leads inside once it was vetted",
        "tests/it/delivery_guard.rs",
        &["a_name_that_turns_to_a_machine_inside_after_its_registration_is_not_connected_to"],
    ),
    (
        "nodes that freeze or are restored, and look followed",
        FINALITY,
        &[
            "a_newest_block_that_stays_the_same_is_an_alarm_also_over_a_restart_and_no_balance_is_reported_by_it",
            "a_source_that_was_set_back_below_what_is_final_here_is_a_failure_that_may_pass",
        ],
    ),
    (
        "delivery: events shared out among two streams",
        "tests/it/nats.rs",
        &["a_process_that_names_another_stream_than_the_last_that_was_started_leaves_it_the_events"],
    ),
    (
        "an operator's command that makes a second store",
        "tests/it/cli.rs",
        &["the_store_is_beside_the_configuration_and_one_that_is_new_is_reported"],
    ),
    (
        "delivery: by a proxy of the environment",
        "tests/live/first_deposit.rs",
        &["no_proxy_of_the_environment_hears_of_an_event_or_of_a_node"],
    ),
    (
        "delivery: a stream that refuses, asked again and again",
        "tests/it/nats.rs",
        &["a_stream_that_refuses_event_after_event_is_probed_by_one_and_then_gets_all_in_order"],
    ),
    (
        "slow and silent clients, and too many of them",
        "tests/it/serving.rs",
        &[
            "a_client_that_never_ends_its_request_is_left_and_so_is_one_that_asks_no_more",
            "one_client_too_many_is_served_when_another_has_gone",
        ],
    ),
    (
        "a page that reads all that an account has",
        "tests/it/store/statements.rs",
        &["a_page_of_an_account_reads_what_it_shows_whatever_it_is_filtered_by"],
    ),
    (
        "a change that is told of twice, or whose event is lost with a crash",
        IDENTITY_EVENTS,
        &[
            "each_change_is_reported_once_with_the_fields_of_the_interface",
            "a_change_and_its_event_are_there_both_or_neither",
            "a_crash_at_any_await_of_a_change_leaves_it_reported_or_undone",
            "events_of_an_identity_arrive_signed_in_their_order_and_no_muted_status_keeps_them",
            "who_opens_an_account_meanwhile_is_reported_of_or_waits_for_the_change",
        ],
    ),
    (
        "a person's doing that nobody can tell of afterwards",
        CLI_EVENTS,
        &["what_a_person_does_about_deliveries_needs_a_reason_and_stands_in_the_audit"],
    ),
    (
        "idempotency that is a cache, and does not know the body",
        "tests/it/api_accounts.rs",
        &[
            "an_account_is_opened_once_however_often_its_request_comes",
            "requests_with_one_id_that_come_at_once_open_one_account_and_all_get_its_id",
        ],
    ),
    (
        "a scan of bytes that reads otherwise than a parser",
        "chains/evm/src/logs/seen.rs",
        &["the_scan_and_the_parse_find_the_same_whatever_the_shape_of_the_answer"],
    ),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The text of a file, or of all files of a folder.
fn text(path: &str) -> String {
    let path = root().join(path);
    if path.is_file() {
        return std::fs::read_to_string(path).unwrap();
    }
    let files = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|file| file.is_file()).map(|file| std::fs::read_to_string(file).unwrap()).collect()
}

/// The names of functions in a text.
fn functions(text: &str) -> impl Iterator<Item = &str> {
    text.split("fn ").skip(1).filter_map(|rest| rest.split_once('(').map(|(name, _)| name))
}

/// The row that a name bears, if any: `r7_..` is R7.
fn row_of(name: &str) -> Option<String> {
    let row = name.split_once('_')?.0.to_uppercase();
    ROWS.contains(&row.as_str()).then_some(row)
}

/// Files and tests of a row.
fn indexed(row: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let of_row = BY_ROW.iter().chain(OF_ROWS).filter(move |(of, ..)| *of == row);
    of_row.flat_map(|(_, file, tests)| tests.iter().map(move |test| (*file, *test)))
}

#[test]
fn every_promise_has_a_test_where_the_index_says() {
    for (what, file, tests) in BY_ROW.iter().chain(OF_ROWS).chain(PROVED).chain(TRAPS).chain(OF_SOLANA) {
        let text = text(file);
        let known: BTreeSet<&str> = functions(&text).collect();
        assert!(!tests.is_empty(), "{what}");
        for test in *tests {
            assert!(known.contains(test), "{what}: {file} has no {test}");
        }
    }
}

#[test]
fn every_row_has_a_test_that_bears_its_number_and_every_such_test_is_in_the_index() {
    for row in ROWS {
        assert!(indexed(row).any(|(_, test)| row_of(test).as_deref() == Some(row)), "{row} has no test");
    }
    let folders = [
        "tests/it",
        "tests/it/slots",
        "tests/live",
        "tests/live/solana",
        "chains/evm/tests/it",
        "chains/evm/src",
        "chains/solana/tests/it",
    ];
    for folder in folders {
        for entry in std::fs::read_dir(root().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "rs") {
                continue;
            }
            let (text, file) = (std::fs::read_to_string(&path).unwrap(), path.strip_prefix(root()).unwrap().to_owned());
            for name in functions(&text) {
                let Some(row) = row_of(name) else { continue };
                let is_indexed = indexed(&row).any(|entry| entry == (file.to_str().unwrap(), name));
                assert!(is_indexed, "{name} in {} is not in the index", file.display());
            }
        }
    }
}

#[test]
fn every_mistake_of_others_on_solana_is_in_the_index() {
    let text = text(MISTAKES);
    let indexed: BTreeSet<&str> = OF_SOLANA.iter().flat_map(|(.., tests)| tests.iter().copied()).collect();
    for name in functions(&text) {
        let names_a_program =
            ["carbon_", "squid_", "firehose_", "private_channels_"].iter().any(|of| name.starts_with(of));
        assert!(!names_a_program || indexed.contains(name), "{name} is not in the index");
    }
}
