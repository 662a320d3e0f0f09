//! The rows P3, P5 and P6 of our catalogue of failures through the watcher, and what other programs get wrong on
//! Solana.
//!
//! Each mistake is set up as it was met, and the books must be right all the same; the index is
//! `tests/it/rules/rows.rs`. P4, the order of signatures, concerns who asks for them, and stands in
//! `tests/it/solana/past.rs`.

use std::time::{Duration, Instant};

use landfall_chain::{Address, AssetId};
use landfall_cluster::{Fault, Finality, Instead, Ledger, Node, Payment, Refusal, TIME, Tx, Version, When};

use super::follower::{FIRST_SLOT, Followed, usdc};
use super::soak::WATCHED;

const PAYER: Address = Address::Solana([1; 32]);
const LATEST: u64 = FIRST_SLOT + 20;
/// What refusals and silences others take for an empty slot.
const HINTS: [Instead; 5] = [
    Instead::Null,
    Instead::Refuse(Refusal::BlockNotAvailable),
    Instead::Refuse(Refusal::SlotSkipped),
    Instead::Refuse(Refusal::LongTermStorageSlotSkipped),
    Instead::Refuse(Refusal::BlockCleanedUp),
];

/// A payment in every slot but each fifth, which is skipped, with as many nodes as asked for.
async fn paid(nodes: usize) -> Followed {
    let ledger = Ledger::starting_at(FIRST_SLOT);
    ledger.set_finality(Finality::Behind(4));
    for slot in (FIRST_SLOT + 1..=LATEST).filter(|slot| slot % 5 != 0) {
        ledger.produce(slot, vec![Tx::sol(slot, PAYER, WATCHED[0], slot)]);
    }
    Followed::new(ledger, nodes, &WATCHED).await
}

/// Ticks that fail, until one does not or so many have.
async fn tick_in_vain(follower: &mut Followed, ticks: u32) -> Vec<String> {
    let mut reasons = Vec::new();
    for _ in 0..ticks {
        match follower.tick().await {
            Ok(_) => {}
            Err(error) => {
                assert!(error.may_pass(), "{error}");
                reasons.push(error.to_string());
            }
        }
    }
    reasons
}

/// All that was paid is CONFIRMED, once.
async fn is_right(mut follower: Followed) {
    follower.settle().await.unwrap();
    let audit = follower.audit().await;
    assert!(audit.is_clean() && audit.legs > 0, "{audit:?}");
}

fn all(nodes: &[Node], slot: u64, instead: Instead) {
    nodes.iter().for_each(|node| node.answer_instead(slot, instead));
}

#[tokio::test]
async fn p3_a_slot_that_is_said_to_be_skipped_is_open_until_a_parent_jumps_over_it() {
    for hint in HINTS {
        let mut follower = paid(1).await;
        all(&follower.nodes, FIRST_SLOT + 7, hint);
        follower.nodes[0].unlist([FIRST_SLOT + 7]);
        let reasons = tick_in_vain(&mut follower, 4).await;
        assert_eq!(follower.cursor().await, Some(FIRST_SLOT + 6), "{hint:?}");
        assert!(reasons.iter().any(|why| why.contains(&format!("block {}", FIRST_SLOT + 7))), "{hint:?}: {reasons:?}");
        is_right(follower).await;
    }
}

#[tokio::test]
async fn p3_hundreds_of_slots_in_a_hole_of_a_ledger_are_read_elsewhere_and_without_another_node_waited_for() {
    let latest = FIRST_SLOT + 500;
    for nodes in [1, 2] {
        let ledger = Ledger::starting_at(FIRST_SLOT);
        for slot in (FIRST_SLOT + 1..=latest).filter(|slot| slot % 5 != 0) {
            // What only one of two can report is waited for: some of it is enough.
            let paid = (slot % 50 == 1).then(|| Tx::sol(slot, PAYER, WATCHED[0], slot));
            ledger.produce(slot, paid.into_iter().collect());
        }
        let mut follower = Followed::new(ledger, nodes, &WATCHED).await;
        follower.nodes[0].lose(FIRST_SLOT + 3..=FIRST_SLOT + 402);
        let reached = if nodes == 2 { latest - 1 } else { FIRST_SLOT + 2 };
        for _ in 0..100 {
            tick_in_vain(&mut follower, 1).await;
            if nodes == 2 && follower.cursor().await == Some(reached) {
                break;
            }
        }
        assert_eq!(follower.cursor().await, Some(reached), "{nodes} nodes");
        is_right(follower).await;
    }
}

#[tokio::test]
async fn p3_a_slot_that_a_list_names_though_it_holds_no_block_stops_nobody() {
    for nodes in [1, 3] {
        let mut follower = paid(nodes).await;
        // It is the quickest, and asked first.
        follower.nodes[1..].iter().for_each(|node| node.set_latency(Duration::from_millis(40)));
        follower.nodes[0].misbehave(Fault::LongList, When::Always);
        // Behind an outage slots are read one by one.
        follower.nodes.iter().for_each(|node| node.lose(FIRST_SLOT + 1..=LATEST));
        let reasons = tick_in_vain(&mut follower, 6).await;
        assert_eq!((follower.cursor().await, reasons.len()), (Some(FIRST_SLOT), 6), "{nodes} nodes: {reasons:?}");
        follower.nodes.iter().for_each(Node::find_all);
        let reasons = tick_in_vain(&mut follower, 4).await;
        assert_eq!((follower.cursor().await, reasons), (Some(LATEST - 1), Vec::new()), "{nodes} nodes");
        assert!(follower.nodes[0].struck(Fault::LongList) > 0);
        follower.repair(FIRST_SLOT + 1..=FIRST_SLOT + 12).await.unwrap();
        follower.repair(FIRST_SLOT + 10..=FIRST_SLOT + 10).await.unwrap();
        is_right(follower).await;
    }
}

#[tokio::test]
async fn p5_a_version_that_is_asked_for_is_raised_and_one_that_is_never_enough_stops_and_pages() {
    let mut follower = paid(1).await;
    let next = follower.ledger.latest().number + 1;
    let newer = |id, version| Tx::sol(id, PAYER, WATCHED[1], id).with_version(Version::Number(version));
    follower.ledger.produce(next, vec![newer(next, 1)]);
    follower.ledger.produce(next + 1, vec![newer(next + 1, 2)]);
    tick_in_vain(&mut follower, 2).await;
    assert_eq!(follower.cursor().await, Some(next + 1), "version 1 is asked for, and 2 when a node names it");
    follower.ledger.produce(next + 2, vec![newer(next + 2, 3)]);
    all(&follower.nodes, next + 2, Instead::NeverEnough);
    let error = follower.tick().await.unwrap_err();
    assert!(!error.may_pass() && error.incident().is_some(), "{error}");
    assert!(error.to_string().contains("an upgrade is needed"), "{error}");
    assert_eq!(follower.cursor().await, Some(next + 1), "it is never skipped");
    is_right(follower).await;
}

#[tokio::test]
async fn endpoints_that_report_other_times_of_the_same_blocks_hold_nothing_up() {
    let mut follower = paid(2).await;
    let newest = follower.ledger.latest().number;
    let other = follower.ledger.branch_at(newest);
    for slot in (FIRST_SLOT + 1..=newest).filter(|slot| slot % 5 != 0) {
        other.amend(slot, |block| block.time = block.time.map(|secs| secs + 1));
    }
    follower.nodes[1].show(&other);
    let reasons = tick_in_vain(&mut follower, 4).await;
    assert_eq!((follower.cursor().await, reasons), (Some(newest), Vec::new()));
    is_right(follower).await;
}

#[tokio::test]
async fn what_an_owner_lost_or_got_without_credit_is_reported_by_two_before_it_is_recorded() {
    let [other, nobody] = [Address::Solana([7; 32]), Address::Solana([8; 32])];
    let ledger = Ledger::starting_at(FIRST_SLOT);
    for slot in FIRST_SLOT + 1..=FIRST_SLOT + 9 {
        ledger.produce(slot, vec![Tx::sol(slot, PAYER, nobody, slot)]);
    }
    // Two pay at once and a third pays the fee: that one of the two is ours stands among the debits alone.
    let pays = |sender| Payment { asset: AssetId::Native, sender, recipient: nobody, amount: 5 };
    ledger.put(FIRST_SLOT + 3, Tx::paying(100, PAYER, &[pays(WATCHED[0]), pays(other)]));
    let astray = Tx::token(101, usdc(), PAYER, WATCHED[1], 5).changed(|tx| {
        let held = tx["meta"]["postTokenBalances"].as_array().unwrap();
        let ours = held.iter().find(|held| held["owner"] == WATCHED[1].to_string()).unwrap()["accountIndex"].as_u64();
        let at = usize::try_from(ours.unwrap()).unwrap();
        tx["transaction"]["accountKeys"][at]["pubkey"] = nobody.to_string().into();
    });
    ledger.put(FIRST_SLOT + 6, astray);
    let mut follower = Followed::new(ledger, 2, &WATCHED).await;
    tick_in_vain(&mut follower, 3).await;
    assert_eq!(follower.cursor().await, Some(FIRST_SLOT + 9));
    assert_eq!(follower.reported_by_two().await, [FIRST_SLOT + 3, FIRST_SLOT + 6]);
}

#[tokio::test]
async fn p6_a_block_without_a_time_has_that_of_the_one_before_and_no_time_is_made_up() {
    let mut follower = paid(1).await;
    for slot in [FIRST_SLOT + 3, FIRST_SLOT + 4] {
        follower.ledger.amend(slot, |block| block.time = if slot.is_multiple_of(2) { None } else { Some(-7) });
    }
    tick_in_vain(&mut follower, 2).await;
    let times = follower.created().await;
    assert_eq!(times[..4], [1, 2, 2, 2].map(|at| TIME + FIRST_SLOT + at), "a false time counts as none");
    is_right(follower).await;
}

#[tokio::test]
async fn p6_a_time_in_another_unit_counts_as_none() {
    let mut follower = paid(1).await;
    let now = i64::try_from(TIME).unwrap();
    for (slot, time) in [(FIRST_SLOT + 3, now / 1_000), (FIRST_SLOT + 4, now * 1_000)] {
        follower.ledger.amend(slot, |block| block.time = Some(time));
    }
    tick_in_vain(&mut follower, 2).await;
    let times = follower.created().await;
    assert_eq!(times[..4], [1, 2, 2, 2].map(|at| TIME + FIRST_SLOT + at), "milliseconds, and thousands of seconds");
    is_right(follower).await;
}

#[tokio::test]
async fn carbon_a_head_block_that_is_not_available_yet_is_not_skipped() {
    let mut follower = paid(2).await;
    let head = follower.ledger.latest().number;
    all(&follower.nodes, head, Instead::Refuse(Refusal::BlockNotAvailable));
    tick_in_vain(&mut follower, 3).await;
    assert_eq!(follower.cursor().await, Some(head - 1));
    is_right(follower).await;
}

#[tokio::test]
async fn carbon_no_error_of_a_block_loses_its_slot() {
    let faults = [
        Fault::TooManyRequests { retry_after_secs: None },
        Fault::ServerError,
        Fault::Reset,
        Fault::Truncated,
        Fault::Refuse(Refusal::Internal),
        Fault::Refuse(Refusal::BlockStatusNotAvailableYet),
    ];
    for fault in faults {
        let mut follower = paid(1).await;
        tick_in_vain(&mut follower, 1).await;
        let slot = follower.ledger.latest().number + 1;
        follower.ledger.produce(slot, vec![Tx::sol(slot, PAYER, WATCHED[1], 5)]);
        follower.nodes[0].confine("getBlock");
        follower.nodes[0].misbehave(fault, When::Always);
        let reasons = tick_in_vain(&mut follower, 2).await;
        assert!(follower.nodes[0].struck(fault) > 0, "{fault:?} is met");
        assert_eq!(follower.cursor().await, Some(slot - 1), "{fault:?}");
        assert!(!reasons.is_empty(), "{fault:?} is told");
        is_right(follower).await;
    }
}

#[tokio::test]
async fn carbon_a_block_that_a_node_never_answers_for_is_not_passed_over() {
    let mut follower = paid(1).await;
    tick_in_vain(&mut follower, 1).await;
    let slot = follower.ledger.latest().number + 1;
    follower.ledger.produce(slot, vec![Tx::sol(slot, PAYER, WATCHED[1], 5)]);
    follower.nodes[0].confine("getBlock");
    follower.nodes[0].set_silent(true);
    let reasons = tick_in_vain(&mut follower, 1).await;
    assert_eq!(follower.cursor().await, Some(slot - 1), "a silence is no empty slot");
    assert!(!reasons.is_empty(), "it is told");
    follower.nodes[0].set_silent(false);
    is_right(follower).await;
}

#[tokio::test]
async fn carbon_blocks_that_arrive_in_any_order_are_consumed_in_the_order_of_slots() {
    let mut follower = paid(1).await;
    // Two are asked for at once; some of the answers are slow.
    follower.nodes[0].misbehave(Fault::Drip(Duration::from_millis(40)), When::Percent(30));
    tick_in_vain(&mut follower, 2).await;
    assert_eq!(follower.cursor().await, Some(LATEST - 1));
    let times = follower.created().await;
    assert!(times.is_sorted() && times.len() == 16, "{times:?}");
    is_right(follower).await;
}

#[tokio::test]
async fn carbon_a_block_that_does_not_stand_on_the_last_one_is_not_connected() {
    let mut follower = paid(1).await;
    tick_in_vain(&mut follower, 1).await;
    let slot = follower.ledger.latest().number + 1;
    follower.ledger.produce(slot, vec![Tx::sol(slot, PAYER, WATCHED[1], 5)]);
    follower.nodes[0].misbehave(Fault::WrongParent, When::Always);
    let reasons = tick_in_vain(&mut follower, 3).await;
    assert_eq!(follower.cursor().await, Some(slot - 1));
    assert!(!reasons.is_empty());
    is_right(follower).await;
}

#[tokio::test]
async fn squid_a_transaction_of_version_1_does_not_take_its_block_away() {
    let mut follower = paid(1).await;
    let slot = follower.ledger.latest().number + 1;
    let tx = Tx::token(slot, usdc(), PAYER, WATCHED[2], 5).with_version(Version::Number(1));
    follower.ledger.produce(slot, vec![tx]);
    tick_in_vain(&mut follower, 1).await;
    assert_eq!(follower.cursor().await, Some(slot));
    let asked = follower.nodes[0].counts().last["getBlock"][1].clone();
    assert_eq!(asked["maxSupportedTransactionVersion"], 1, "{asked}");
    assert_eq!((&asked["transactionDetails"], &asked["rewards"]), (&"accounts".into(), &false.into()));
    is_right(follower).await;
}

#[tokio::test]
async fn firehose_what_a_lagging_node_lacks_below_the_confirmed_tip_is_not_skipped() {
    let mut follower = paid(2).await;
    follower.nodes[0].lag(10);
    tick_in_vain(&mut follower, 3).await;
    assert_eq!(follower.cursor().await, Some(LATEST - 1), "the other one has it");
    // Behind one address now one node answers and now another.
    let mut follower = paid(1).await;
    follower.nodes[0].misbehave(Fault::HeadBack(10), When::Always);
    tick_in_vain(&mut follower, 12).await;
    is_right(follower).await;
}

#[tokio::test]
async fn firehose_a_node_that_fails_is_asked_again_only_after_pauses() {
    let mut follower = paid(1).await;
    follower.wait_as_in_production();
    tick_in_vain(&mut follower, 1).await;
    follower.ledger.grow(vec![Tx::sol(9, PAYER, WATCHED[1], 5)]);
    // Where its heads fail no block is asked for; then blocks fail alone.
    for confined in [false, true] {
        if confined {
            follower.nodes[0].behave();
            follower.settle().await.unwrap();
            follower.ledger.grow(vec![Tx::sol(10, PAYER, WATCHED[1], 5)]);
            follower.nodes[0].confine("getBlock");
        }
        follower.nodes[0].misbehave(Fault::ServerError, When::Always);
        follower.nodes[0].forget_counts();
        let begun = Instant::now();
        follower.run_for(Duration::from_secs(1)).await;
        let (counts, took) = (follower.nodes[0].counts(), begun.elapsed());
        let of_kind = |method: &str| !confined || method == "getBlock";
        let failed: u64 = counts.calls.iter().filter(|((method, _), _)| of_kind(method)).map(|(_, calls)| calls).sum();
        // Ticks that fail are 10 ms apart at first, and twice as far each time; both heads are asked for at once.
        assert!(failed > 1 && u128::from(failed) <= 40 + took.as_millis() / 50, "{failed} calls in {took:?}");
    }
    is_right(follower).await;
}

#[tokio::test]
async fn firehose_a_false_previous_blockhash_in_old_history_stops_the_chain_with_a_clear_message() {
    let mut follower = paid(1).await;
    let wrong = FIRST_SLOT + 8;
    let parent = follower.ledger.block(wrong).unwrap().parent;
    follower.ledger.amend(wrong, |block| block.parent.hash.0[9] ^= 1);
    let reasons = tick_in_vain(&mut follower, 4).await;
    assert_eq!(follower.cursor().await, Some(wrong - 1), "nothing is connected over it");
    let why = reasons.last().expect("it is told");
    let [next, on] = [format!("block {wrong} ("), format!("is shown next, and stands on {} (", wrong - 1)];
    assert!(why.contains(&next) && why.contains(&on), "{why}");
    follower.ledger.amend(wrong, |block| block.parent = parent);
    is_right(follower).await;
}

#[tokio::test]
async fn private_channels_a_head_that_is_reported_completes_no_slot() {
    let mut follower = paid(1).await;
    tick_in_vain(&mut follower, 1).await;
    let slot = follower.ledger.latest().number + 1;
    follower.ledger.produce(slot, vec![Tx::sol(slot, PAYER, WATCHED[1], 5)]);
    // The node reports slot and hash of it, and not yet what stands in it.
    all(&follower.nodes, slot, Instead::Refuse(Refusal::BlockStatusNotAvailableYet));
    tick_in_vain(&mut follower, 3).await;
    assert_eq!(follower.cursor().await, Some(slot - 1));
    is_right(follower).await;
}

#[tokio::test]
async fn private_channels_the_cursor_stays_where_a_block_failed_although_later_ones_are_there() {
    for hint in HINTS.into_iter().chain([Instead::Refuse(Refusal::Internal)]) {
        let mut follower = paid(2).await;
        all(&follower.nodes, FIRST_SLOT + 4, hint);
        tick_in_vain(&mut follower, 4).await;
        assert_eq!(follower.cursor().await, Some(FIRST_SLOT + 3), "{hint:?}");
        is_right(follower).await;
    }
}

#[tokio::test]
async fn private_channels_the_tail_of_a_stop_is_read_also_when_the_chain_moves_meanwhile() {
    let mut follower = paid(1).await;
    tick_in_vain(&mut follower, 1).await;
    for round in 0..5 {
        let first = follower.ledger.latest().number + 1;
        for slot in first..first + 150 {
            follower.ledger.produce(slot, vec![Tx::sol(slot, PAYER, WATCHED[round % 3], slot)]);
        }
        follower.restart();
        tick_in_vain(&mut follower, 1).await;
    }
    is_right(follower).await;
}

#[tokio::test]
async fn private_channels_a_signature_that_failed_first_and_pays_two_of_us_later_is_two_deposits() {
    let mut follower = paid(1).await;
    let slot = follower.ledger.latest().number + 1;
    let [one, other] = [WATCHED[0], WATCHED[1]].map(|to| Tx::sol(9, PAYER, to, 5).payments[0]);
    follower.ledger.produce(slot, vec![Tx::failing(9, PAYER, &[one, other])]);
    follower.ledger.produce(slot + 1, vec![Tx::paying(9, PAYER, &[one, other])]);
    tick_in_vain(&mut follower, 2).await;
    follower.settle().await.unwrap();
    let audit = follower.audit().await;
    assert!(audit.is_clean() && audit.legs == 16 + 2, "{audit:?}");
}

#[tokio::test]
async fn private_channels_two_readers_of_one_store_pass_over_no_gap() {
    let mut follower = paid(1).await;
    all(&follower.nodes, FIRST_SLOT + 9, Instead::Refuse(Refusal::SlotSkipped));
    for _ in 0..4 {
        follower.tick_beside_another().await;
    }
    assert_eq!(follower.cursor().await, Some(FIRST_SLOT + 8));
    is_right(follower).await;
}
