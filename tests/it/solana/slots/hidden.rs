//! What one of several endpoints keeps from us: a block that it leaves out and links over, transactions that it leaves
//! out of a block that is to be compared. It is found before anything that stands on it is CONFIRMED.

use std::time::{Duration, Instant};

use landfall::watcher::TickError;
use landfall_chain::Address;
use landfall_cluster::{Fault, Instead, Ledger, Refusal, Tx, When};
use landfall_solana::Sample;

use super::follower::{FIRST_SLOT, Followed};
use super::soak::WATCHED;

const PAYER: Address = Address::Solana([1; 32]);
/// A slot that [`Fault::LinkedOver`] hides, and one behind it that is reported as it is.
const HIDDEN: u64 = FIRST_SLOT + 5;
const SHOWN: u64 = FIRST_SLOT + 7;
/// What is final is in a slot that nobody hides.
const FINAL: u64 = FIRST_SLOT + 18;
const LATEST: u64 = FIRST_SLOT + 21;
/// How many blocks later nothing is left of what concerns nobody.
const FORGOTTEN_AFTER: u64 = 1_300;
/// More than a node, or half of what a block rests.
const REST_MAX: Duration = Duration::from_secs(30);
const NONE: Sample = Sample { one_in: 0, key: 0 };
const EVERY: Sample = Sample { one_in: 1, key: 0 };

/// The first of so many nodes is ahead of the others: it is asked first.
async fn scene(nodes: usize, sample: Sample) -> Followed {
    let ledger = Ledger::of(FIRST_SLOT..=LATEST);
    for slot in [HIDDEN, SHOWN] {
        ledger.put(slot, Tx::sol(slot, PAYER, WATCHED[0], slot));
    }
    let follower = Followed::comparing(ledger, nodes, &WATCHED, sample).await;
    follower.nodes[1..].iter().for_each(|node| node.lag(1));
    follower
}

/// So many ticks, and what the last one failed with.
async fn ticks(follower: &mut Followed, count: u32) -> Option<String> {
    let mut failure = None;
    for _ in 0..count {
        let error = follower.tick().await.err();
        assert!(error.as_ref().is_none_or(|error| error.may_pass()), "{error:?}");
        failure = error.map(|error| error.to_string());
    }
    failure
}

/// Ticks until the newest block is connected: a node that was refuted rests before it is asked for that again.
async fn reach_latest(follower: &mut Followed) {
    let begun = Instant::now();
    while follower.cursor().await != Some(follower.ledger.latest().number) {
        assert!(begun.elapsed() < REST_MAX, "{:?}", follower.cursor().await);
        ticks(follower, 1).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Everything is connected: that waits for nobody.
async fn connect_all(follower: &mut Followed) {
    assert_eq!(ticks(follower, 3).await, None);
    assert_eq!(follower.cursor().await, Some(LATEST), "connecting waits for nobody");
}

/// What is true and what is shown by the liar is final up to this slot.
fn finalize(follower: &Followed, liar: &Ledger, slot: u64) {
    follower.ledger.finalize(slot);
    liar.finalize(slot);
}

/// Everything is connected, by the report of the first of so many nodes, which left out what the hidden slot pays while the
/// others were so far behind. Now they have it.
async fn left_out(nodes: usize, behind: u64) -> (Followed, Ledger) {
    let mut follower = scene(nodes, EVERY).await;
    let liar = follower.ledger.branch_at(LATEST);
    liar.amend(HIDDEN, |block| block.txs.clear());
    follower.nodes[0].show(&liar);
    follower.nodes[1..].iter().for_each(|node| node.lag(behind));
    connect_all(&mut follower).await;
    follower.nodes.iter().for_each(|node| node.lag(0));
    (follower, liar)
}

/// Legs that are final, and how many of them are not CONFIRMED.
async fn missing(follower: &mut Followed) -> (usize, usize) {
    let audit = follower.audit().await;
    assert_eq!((audit.phantom, audit.twice, audit.early), (0, 0, 0), "{audit:?}");
    (audit.legs, audit.missing)
}

#[tokio::test]
async fn a_block_that_one_of_two_links_over_holds_up_whatever_is_above_it_until_they_agree() {
    let mut follower = scene(2, NONE).await;
    follower.nodes[0].misbehave(Fault::LinkedOver, When::Always);
    connect_all(&mut follower).await;
    follower.ledger.finalize(FINAL);
    let why = ticks(&mut follower, 3).await.expect("it is told");
    let [liar, honest] = [0, 1].map(|at| follower.nodes[at].id().to_owned());
    let shown =
        format!("slot {} holds a final block by the lists of {honest}, and none by those of {liar}", FIRST_SLOT + 2);
    assert!(why.contains(&shown), "{why}");
    assert_eq!(missing(&mut follower).await, (2, 2), "nothing is CONFIRMED above what may be missing");
    follower.settle().await.unwrap();
    assert_eq!(missing(&mut follower).await, (2, 0));
}

#[tokio::test]
async fn an_endpoint_that_reports_an_end_far_above_and_lists_nothing_up_there_leads_nobody_away_from_what_is_there() {
    let mut follower = scene(2, NONE).await;
    let far = 1_000_000_000;
    follower.nodes[0].misbehave(Fault::HeadAhead(far), When::Always);
    follower.nodes[0].misbehave(Fault::AnyContext, When::Always);
    for round in 0..10 {
        // Neither knows more now than was connected: so it is reported that there is nothing above.
        reach_latest(&mut follower).await;
        ticks(&mut follower, 7).await;
        let slot = follower.ledger.latest().number + 1;
        follower.ledger.produce(slot, vec![Tx::sol(slot, PAYER, WATCHED[0], slot)]);
        let ticked = follower.tick().await.unwrap();
        assert!(ticked.behind >= far - 100, "{round}: it leads: {}", ticked.behind);
    }
    reach_latest(&mut follower).await;
    follower.settle().await.unwrap();
    assert_eq!(missing(&mut follower).await, (12, 0));
}

#[tokio::test]
async fn a_lone_node_that_linked_over_a_block_which_it_calls_final_and_shows_is_read_again() {
    let mut follower = scene(1, NONE).await;
    follower.nodes[0].misbehave(Fault::LinkedOver, When::Always);
    connect_all(&mut follower).await;
    follower.nodes[0].behave();
    follower.ledger.finalize(HIDDEN);
    for _ in 0..20 {
        ticks(&mut follower, 1).await;
    }
    assert_eq!((follower.cursor().await, missing(&mut follower).await), (Some(LATEST), (1, 0)));
}

#[tokio::test]
async fn a_block_that_one_of_three_links_over_is_read_elsewhere_while_it_lies() {
    let mut follower = scene(3, NONE).await;
    follower.nodes[0].misbehave(Fault::LinkedOver, When::Always);
    connect_all(&mut follower).await;
    follower.ledger.finalize(FINAL);
    for _ in 0..20 {
        ticks(&mut follower, 1).await;
    }
    assert_eq!(missing(&mut follower).await, (2, 0));
}

#[tokio::test]
async fn a_block_that_is_agreed_to_be_final_in_a_slot_that_we_jumped_over_takes_the_chain_back() {
    let mut follower = scene(2, NONE).await;
    let liar = hiding_one(&follower);
    connect_all(&mut follower).await;
    finalize(&follower, &liar, HIDDEN);
    ticks(&mut follower, 8).await;
    reach_latest(&mut follower).await;
    assert_eq!(follower.audit().await.undecided, 2, "what was hidden is PENDING: one alone tells it");
    follower.nodes[0].find_all();
    // A block that was asked for in vain rests.
    follower.pass(REST_MAX * 2);
    for _ in 0..20 {
        ticks(&mut follower, 1).await;
    }
    assert_eq!(missing(&mut follower).await, (1, 0));
}

#[tokio::test]
async fn what_jumped_over_a_final_block_and_counted_as_final_needs_a_person() {
    let mut follower = scene(2, NONE).await;
    follower.nodes[0].misbehave(Fault::LinkedOver, When::Always);
    follower.override_agree(Some(1));
    follower.ledger.finalize(FINAL);
    assert_eq!(ticks(&mut follower, 3).await, None);
    assert_eq!(missing(&mut follower).await, (2, 1), "one endpoint's word was enough");
    follower.override_agree(None);
    follower.restart();
    // What they agree on now is below.
    follower.nodes.iter().for_each(|node| node.call_final(HIDDEN));
    let error = follower.tick().await.unwrap_err();
    let TickError::PostFinalityReorg { fork_point, confirmed: 1, .. } = error else { panic!("{error}") };
    assert_eq!(fork_point.number, HIDDEN - 1);
}

/// The first node lost a block and ties the next one to the one before; what it shows.
fn hiding_one(follower: &Followed) -> Ledger {
    let liar = follower.ledger.branch_at(follower.ledger.latest().number);
    let below = liar.block(HIDDEN - 1).unwrap().reference();
    liar.amend(HIDDEN + 1, |block| block.parent = below);
    follower.nodes[0].show(&liar);
    follower.nodes[0].lose([HIDDEN]);
    liar
}

#[tokio::test]
async fn what_was_connected_during_a_long_outage_is_looked_at_to_its_beginning() {
    let mut follower = scene(2, NONE).await;
    for _ in 0..1_500 {
        follower.ledger.grow(Vec::new());
    }
    let liar = hiding_one(&follower);
    let latest = follower.ledger.latest().number;
    follower.nodes[1].lag(latest - FIRST_SLOT);
    assert_eq!(ticks(&mut follower, 20).await, None);
    assert_eq!(follower.cursor().await, Some(latest), "connecting waits for nobody");
    follower.nodes[1].lag(0);
    finalize(&follower, &liar, latest - 3);
    let why = ticks(&mut follower, 4).await.expect("it is told");
    assert!(why.contains(&format!("slot {HIDDEN} holds a final block by the lists of")), "{why}");
    assert_eq!(missing(&mut follower).await, (2, 2), "nothing is CONFIRMED above what may be missing");
}

#[tokio::test]
async fn a_list_with_a_hole_bears_out_no_empty_slot_in_it() {
    let mut follower = scene(2, NONE).await;
    let liar = hiding_one(&follower);
    connect_all(&mut follower).await;
    follower.nodes[1].lose(HIDDEN - 2..HIDDEN + 2);
    finalize(&follower, &liar, FINAL);
    assert_eq!(ticks(&mut follower, 4).await, None, "who says nothing is no liar");
    assert_eq!(missing(&mut follower).await, (2, 2), "one endpoint's word is not enough");
    follower.nodes[1].find_all();
    let why = ticks(&mut follower, 4).await.expect("it is told");
    assert!(why.contains(&format!("slot {HIDDEN} holds a final block by the lists of")), "{why}");
}

#[tokio::test]
async fn catching_up_waits_for_no_list_and_what_nobody_else_lists_waits_for_a_person() {
    let mut follower = scene(2, NONE).await;
    for slot in (LATEST + 2..LATEST + 600).step_by(2) {
        follower.ledger.produce(slot, Vec::new());
    }
    let latest = follower.ledger.latest().number;
    follower.ledger.finalize(latest);
    follower.nodes[1].lag(0);
    follower.nodes[1].misbehave(Fault::Pruned(50), When::Always);
    for _ in 0..12 {
        assert_eq!(ticks(&mut follower, 1).await, None);
    }
    assert_eq!(follower.cursor().await, Some(latest));
    assert_eq!(missing(&mut follower).await, (2, 2));
    follower.override_agree(Some(1));
    assert_eq!(ticks(&mut follower, 3).await, None);
    assert_eq!(missing(&mut follower).await, (2, 0));
}

#[tokio::test]
async fn a_restart_in_a_long_catch_up_takes_nothing_back() {
    let mut follower = scene(2, NONE).await;
    for slot in LATEST + 1..LATEST + 3_000 {
        if !slot.is_multiple_of(10) {
            follower.ledger.produce(slot, Vec::new());
        }
    }
    let latest = follower.ledger.latest().number;
    follower.ledger.finalize(latest);
    follower.nodes[1].lag(0);
    assert_eq!(ticks(&mut follower, 20).await, None);
    let before = follower.cursor().await.unwrap();
    assert!(before > LATEST + 1_500, "more than is kept of what is final");
    follower.restart();
    assert_eq!(ticks(&mut follower, 1).await, None);
    assert!(follower.cursor().await.unwrap() > before);
    assert_eq!(ticks(&mut follower, 20).await, None);
    assert_eq!((follower.cursor().await, missing(&mut follower).await), (Some(latest), (2, 0)));
}

#[tokio::test]
async fn a_block_that_was_to_be_compared_is_compared_once_a_second_endpoint_has_it() {
    for nodes in [2, 3] {
        let (mut follower, liar) = left_out(nodes, LATEST - HIDDEN + 1).await;
        finalize(&follower, &liar, FINAL);
        let mut why = None;
        for _ in 0..20 {
            why = ticks(&mut follower, 1).await;
        }
        if nodes == 2 {
            let why = why.expect("it is told");
            assert!(why.contains(&format!("tell block {HIDDEN} ")) && why.contains("(its transactions)"), "{why}");
            assert_eq!(missing(&mut follower).await, (2, 2), "nothing is CONFIRMED while they differ");
            follower.settle().await.unwrap();
        }
        assert_eq!(missing(&mut follower).await, (2, 0), "{nodes}");
    }
}

#[tokio::test]
async fn honest_endpoints_are_asked_for_lists_only_where_slots_are_empty() {
    let mut follower = scene(2, NONE).await;
    follower.ledger.finalize(FINAL);
    assert_eq!(ticks(&mut follower, 4).await, None);
    assert_eq!(missing(&mut follower).await, (2, 0));
    assert_eq!(follower.nodes[1].calls("getBlocks", None), 0);
    follower.ledger.produce(LATEST + 4, Vec::new());
    follower.ledger.finalize(LATEST + 4);
    follower.nodes[1].lag(0);
    assert_eq!(ticks(&mut follower, 4).await, None);
    assert_eq!(follower.nodes.iter().map(|node| node.calls("getBlocks", None)).min(), Some(1));
}

#[tokio::test]
async fn what_one_endpoint_was_enough_for_ends_with_the_persons_word() {
    for restarts in [false, true] {
        let mut follower = scene(2, NONE).await;
        let liar = hiding_one(&follower);
        follower.override_agree(Some(1));
        finalize(&follower, &liar, HIDDEN - 2);
        assert_eq!(ticks(&mut follower, 3).await, None);
        assert_eq!(follower.cursor().await, Some(LATEST), "it was connected on one endpoint's word");
        follower.override_agree(None);
        if restarts {
            follower.restart();
        }
        finalize(&follower, &liar, FINAL);
        let why = ticks(&mut follower, 4).await.expect("it is told");
        assert!(why.contains(&format!("slot {HIDDEN} holds a final block by the lists of")), "{why}");
        assert_eq!(missing(&mut follower).await, (2, 2), "nothing above it is CONFIRMED");
        follower.settle().await.unwrap();
        assert_eq!(missing(&mut follower).await, (2, 0));
    }
}

/// What jumped over a final block counted as final by an override; now they agree on that block, and the chain is
/// halted.
async fn replaced() -> (Followed, Ledger) {
    let mut follower = scene(2, NONE).await;
    let liar = replaced_in(&mut follower).await;
    assert_eq!(missing(&mut follower).await, (2, 1), "one endpoint's word was enough");
    (follower, liar)
}

async fn replaced_in(follower: &mut Followed) -> Ledger {
    let liar = hiding_one(follower);
    follower.override_agree(Some(1));
    finalize(follower, &liar, FINAL);
    assert_eq!(ticks(follower, 3).await, None);
    follower.override_agree(None);
    follower.restart();
    follower.nodes.iter().for_each(|node| node.call_final(HIDDEN));
    let error = follower.tick().await.unwrap_err();
    assert!(matches!(error, TickError::PostFinalityReorg { confirmed: 1, .. }), "{error}");
    assert_eq!(follower.reorgs().await, 1);
    liar
}

#[tokio::test]
async fn what_a_person_accepts_is_taken_back_although_more_is_final_by_then() {
    let (mut follower, _) = replaced().await;
    // The one that was wrong was mended, and the chain went on.
    follower.nodes.iter().for_each(|node| node.call_final(None));
    follower.behave();
    assert_eq!(follower.accept_reorg().await, HIDDEN - 1);
    assert_eq!(ticks(&mut follower, 8).await, None);
    assert_eq!(missing(&mut follower).await, (2, 0));
    assert_eq!(follower.reorgs().await, 0, "nothing is left to be decided, and no word to be used for something else");
    assert!(follower.overrides().await.is_empty());
}

#[tokio::test]
async fn what_a_person_accepts_long_after_it_was_met_is_taken_back() {
    let (mut follower, _) = replaced().await;
    follower.nodes.iter().for_each(|node| node.call_final(None));
    follower.behave();
    for _ in 0..FORGOTTEN_AFTER {
        follower.ledger.grow(Vec::new());
    }
    let latest = follower.ledger.latest().number;
    follower.ledger.finalize(latest);
    assert_eq!(ticks(&mut follower, 30).await, None);
    assert_eq!((follower.cursor().await, missing(&mut follower).await), (Some(latest), (2, 1)));
    assert!(!follower.has(HIDDEN - 2).await && !follower.has(HIDDEN + 3).await, "what is beside them is forgotten");
    assert_eq!(follower.accept_reorg().await, HIDDEN - 1);
    assert_eq!(ticks(&mut follower, 40).await, None);
    assert_eq!((follower.cursor().await, missing(&mut follower).await), (Some(latest), (2, 0)));
    assert_eq!(follower.reorgs().await, 0);
}

#[tokio::test]
async fn what_a_person_accepts_is_not_built_anew_over_the_block_that_was_left_out() {
    let (mut follower, _liar) = replaced().await;
    follower.accept_reorg().await;
    for _ in 0..20 {
        ticks(&mut follower, 1).await;
    }
    assert_eq!(follower.reorgs().await, 0);
    follower.nodes.iter().for_each(|node| node.call_final(None));
    ticks(&mut follower, 10).await;
    reach_latest(&mut follower).await;
    assert_eq!(follower.reorgs().await, 0);
    assert_eq!(missing(&mut follower).await, (2, 1), "what was hidden is told by one alone");
    follower.settle().await.unwrap();
    assert_eq!(missing(&mut follower).await, (2, 0));
}

#[tokio::test]
async fn an_accepted_reorg_that_finds_nothing_takes_nothing_back() {
    for evidence_below in [true, false] {
        let mut follower = scene(2, NONE).await;
        if evidence_below {
            follower.ledger.put(HIDDEN - 3, Tx::sol(1, PAYER, WATCHED[0], 1));
        }
        let truth = replaced_in(&mut follower).await;
        // They were wrong: that slot holds no block.
        for node in &follower.nodes {
            node.show(&truth);
            node.lose([HIDDEN]);
            node.call_final(None);
        }
        follower.accept_reorg().await;
        for _ in 0..FORGOTTEN_AFTER {
            truth.grow(Vec::new());
        }
        let latest = truth.latest().number;
        truth.finalize(latest);
        follower.nodes.iter().for_each(|node| node.lag(0));
        let mut disconnected = 0;
        for _ in 0..30 {
            disconnected += follower.tick().await.unwrap().disconnected;
        }
        assert_eq!((follower.cursor().await, disconnected), (Some(latest), 0));
        assert!(!follower.overrides().await.is_empty(), "it is in force still");
        assert!(!follower.has(HIDDEN + 3).await, "what is behind it is forgotten");
        assert!(follower.has(HIDDEN + 1).await, "what stands on its fork point is not");
    }
}

#[tokio::test]
async fn what_was_looked_at_in_one_long_window_is_forgotten_to_its_beginning() {
    let mut follower = scene(2, NONE).await;
    for slot in (LATEST + 1..LATEST + 6_500).step_by(10) {
        follower.ledger.produce(slot, Vec::new());
    }
    follower.nodes[1].lag(0);
    assert_eq!(ticks(&mut follower, 70).await, None);
    let latest = follower.ledger.latest().number;
    assert_eq!(follower.cursor().await, Some(latest));
    follower.ledger.finalize(latest);
    for _ in 0..3 {
        follower.ledger.grow(Vec::new());
        assert_eq!(ticks(&mut follower, 1).await, None);
    }
    assert_eq!(missing(&mut follower).await, (2, 0));
    assert!(follower.has(SHOWN).await && !follower.has(SHOWN + 1).await, "evidence alone is kept");
    assert!(!follower.has(LATEST + 1).await);
}

#[tokio::test]
async fn a_backfill_ends_no_dispute_about_a_slot() {
    let mut follower = scene(2, NONE).await;
    follower.ledger.put(HIDDEN, Tx::sol(1, PAYER, WATCHED[1], 1));
    let liar = hiding_one(&follower);
    assert_eq!(ticks(&mut follower, 3).await, None);
    finalize(&follower, &liar, FINAL);
    let disputed = format!("slot {HIDDEN} holds a final block by the lists of");
    let why = ticks(&mut follower, 4).await.expect("it is told");
    assert!(why.contains(&disputed), "{why}");
    follower.nodes[0].show(&follower.ledger);
    follower.nodes[0].find_all();
    let why = follower.backfill(WATCHED[0]).await.expect_err("our chain passes over that slot");
    assert!(why.may_pass(), "{why}");
    follower.nodes[0].show(&liar);
    follower.nodes[0].lose([HIDDEN]);
    let why = ticks(&mut follower, 4).await.expect("it is told still");
    assert!(why.contains(&disputed), "{why}");
    assert_eq!(missing(&mut follower).await, (3, 3), "nothing is CONFIRMED above what may be missing");
    follower.settle().await.unwrap();
    assert_eq!(missing(&mut follower).await, (3, 0), "whoever it pays");
    follower.backfill(WATCHED[0]).await.unwrap();
}

#[tokio::test]
async fn a_backfill_confirms_nothing_above_a_slot_in_dispute() {
    let mut follower = scene(2, NONE).await;
    follower.ledger.put(SHOWN + 1, Tx::sol(1, PAYER, WATCHED[1], 1));
    let liar = hiding_one(&follower);
    assert_eq!(ticks(&mut follower, 3).await, None);
    finalize(&follower, &liar, FINAL);
    assert!(ticks(&mut follower, 4).await.is_some(), "it is in dispute");
    follower.nodes[0].show(&follower.ledger);
    follower.nodes[0].find_all();
    follower.backfill(WATCHED[1]).await.unwrap();
    assert_eq!(missing(&mut follower).await, (3, 3), "what lies below may be taken back");
    follower.settle().await.unwrap();
    assert_eq!(missing(&mut follower).await, (3, 0), "nothing was final that was taken back");
}

#[tokio::test]
async fn a_look_counts_although_another_process_connects_meanwhile() {
    let mut follower = scene(2, NONE).await;
    let slot = LATEST + 4;
    follower.ledger.produce(slot, vec![Tx::sol(slot, PAYER, WATCHED[0], slot)]);
    follower.nodes[1].lag(0);
    assert_eq!(ticks(&mut follower, 3).await, None);
    assert_eq!(follower.cursor().await, Some(slot));
    follower.ledger.finalize(slot);
    let ledger = follower.ledger.clone();
    let ticked = follower.tick_around_another("getBlocks", || ledger.grow(Vec::new())).await.unwrap();
    assert_eq!(follower.cursor().await, Some(slot + 1));
    assert_eq!((ticked.connected, ticked.confirmed), (0, 3));
}

#[tokio::test]
async fn a_block_that_was_left_out_behind_a_long_silence_of_the_cluster_takes_the_chain_back() {
    let mut follower = scene(2, NONE).await;
    let (first, latest) = (LATEST + 1_090, LATEST + 1_105);
    for slot in first..=latest {
        follower.ledger.produce(slot, vec![Tx::sol(slot, PAYER, WATCHED[0], slot)]);
    }
    let liar = follower.ledger.branch_at(latest);
    let below = liar.block(LATEST).unwrap().reference();
    liar.amend(first + 1, |block| block.parent = below);
    follower.nodes[0].show(&liar);
    follower.nodes[0].lose([first]);
    follower.nodes[1].lag(latest - LATEST);
    let mut why = Vec::new();
    for _ in 0..40 {
        why.extend(ticks(&mut follower, 1).await);
    }
    assert_eq!(follower.cursor().await, Some(latest), "connecting waits for nobody: {why:?}");
    follower.nodes[1].lag(0);
    finalize(&follower, &liar, first);
    for _ in 0..30 {
        ticks(&mut follower, 1).await;
    }
    assert_eq!(follower.cursor().await, Some(latest));
    assert_eq!(missing(&mut follower).await.0, 3);
    assert_eq!(follower.pays_in(first).await, 1, "what was left out is on record");
}

#[tokio::test]
async fn a_block_that_was_to_be_compared_is_owed_until_the_other_endpoint_can_be_answered() {
    let (mut follower, liar) = left_out(2, LATEST - HIDDEN + 1).await;
    follower.nodes[1].confine("getBlock");
    follower.nodes[1].misbehave(Fault::ServerError, When::Always);
    finalize(&follower, &liar, FINAL);
    for _ in 0..5 {
        ticks(&mut follower, 1).await;
    }
    assert_eq!(missing(&mut follower).await, (2, 2), "who cannot be heard does not lack it");
    follower.nodes[1].behave();
    let mut why = None;
    for _ in 0..20 {
        why = ticks(&mut follower, 1).await;
    }
    let why = why.expect("it is told");
    assert!(why.contains(&format!("tell block {HIDDEN} ")), "{why}");
    assert_eq!(missing(&mut follower).await, (2, 2));
}

#[tokio::test]
async fn a_block_that_one_lacks_is_owed_while_a_third_endpoint_cannot_be_answered() {
    let (mut follower, liar) = left_out(3, LATEST - HIDDEN + 1).await;
    follower.nodes[1].confine("getBlock");
    follower.nodes[1].misbehave(Fault::ServerError, When::Always);
    follower.nodes[2].prune(HIDDEN + 1);
    finalize(&follower, &liar, FINAL);
    for _ in 0..5 {
        ticks(&mut follower, 1).await;
    }
    assert_eq!(missing(&mut follower).await, (2, 2), "who cannot be heard does not lack it");
    follower.settle().await.unwrap();
    assert_eq!(missing(&mut follower).await, (2, 0));
}

#[tokio::test]
async fn a_block_that_the_other_endpoint_lacks_for_a_moment_is_compared_when_it_has_it() {
    for lack in [Fault::Null, Fault::Refuse(Refusal::BlockStatusNotAvailableYet)] {
        let (mut follower, liar) = left_out(2, LATEST - FIRST_SLOT).await;
        follower.nodes[1].confine("getBlock");
        follower.nodes[1].misbehave(lack, When::Always);
        finalize(&follower, &liar, FINAL);
        ticks(&mut follower, 3).await;
        assert!(follower.nodes[1].struck(lack) > 0);
        assert_eq!(missing(&mut follower).await, (2, 2), "what it lacks at a look it may have at the next");
        follower.nodes[1].behave();
        let why = ticks(&mut follower, 5).await.expect("it is told");
        assert!(why.contains(&format!("tell block {HIDDEN} ")), "{why}");
        assert_eq!(missing(&mut follower).await, (2, 2), "{lack:?}");
    }
}

#[tokio::test]
async fn a_block_that_every_other_endpoint_has_lost_is_waited_for_some_looks_and_no_longer() {
    let mut follower = scene(2, EVERY).await;
    follower.nodes[1].lag(LATEST - FIRST_SLOT);
    assert_eq!(ticks(&mut follower, 3).await, None);
    follower.nodes.iter().for_each(|node| node.lag(0));
    follower.nodes[1].prune(HIDDEN + 1);
    follower.ledger.finalize(FINAL);
    ticks(&mut follower, 5).await;
    assert_eq!(missing(&mut follower).await, (2, 2));
    ticks(&mut follower, 10).await;
    let audit = follower.audit().await;
    assert_eq!((audit.legs, audit.missing), (2, 1), "what lies above is not held up by it: {audit:?}");
}

#[tokio::test]
async fn a_block_that_its_teller_lacks_once_it_is_contradicted_is_in_dispute() {
    let (mut follower, liar) = left_out(2, LATEST - FIRST_SLOT).await;
    follower.nodes[0].answer_instead(HIDDEN, Instead::Null);
    finalize(&follower, &liar, FINAL);
    let why = ticks(&mut follower, 15).await.expect("it is told");
    assert!(why.contains(&format!("tell block {HIDDEN} ")), "{why}");
    assert_eq!(missing(&mut follower).await, (2, 2));
    follower.nodes[0].show(&follower.ledger);
    follower.nodes[0].behave();
    follower.settle().await.unwrap();
    assert_eq!(missing(&mut follower).await, (2, 0));
}

/// Each newly final block is missing, too: what is final goes on all the same.
#[tokio::test]
async fn what_one_endpoint_never_reports_holds_up_what_is_final_for_some_looks_at_a_time() {
    let mut follower = scene(2, EVERY).await;
    // A deposit would wait for a second word of its own.
    [HIDDEN, SHOWN].iter().for_each(|slot| follower.ledger.amend(*slot, |block| block.txs.clear()));
    follower.nodes[1].confine("getBlock");
    follower.nodes[1].misbehave(Fault::Null, When::Always);
    follower.nodes[1].lag(0);
    for slot in LATEST + 1..LATEST + 40 {
        follower.ledger.produce(slot, Vec::new());
        follower.ledger.finalize(slot - 4);
        follower.tick().await.unwrap();
    }
    let (cursor, finalized) = (follower.cursor().await, follower.finalized().await);
    assert!(cursor >= Some(LATEST + 30) && finalized >= Some(LATEST + 10), "{cursor:?} {finalized:?}");
}

#[tokio::test]
async fn a_block_whose_teller_is_convicted_meanwhile_is_read_anew_where_another_reports_it_otherwise() {
    let (mut follower, liar) = left_out(3, LATEST - FIRST_SLOT).await;
    assert_eq!((follower.cursor().await, follower.pays_in(HIDDEN).await), (Some(LATEST), 0));
    follower.nodes[2].prune(HIDDEN + 1);
    follower.nodes[0].misbehave(Fault::FinalOnFork, When::Always);
    finalize(&follower, &liar, FINAL);
    for _ in 0..20 {
        ticks(&mut follower, 1).await;
    }
    assert_eq!(follower.pays_in(HIDDEN).await, 1, "what the convicted one left out is on record");
}

#[tokio::test]
async fn a_second_endpoint_that_is_silent_is_waited_for_once_and_holds_up_no_pending() {
    let mut follower = scene(2, NONE).await;
    assert_eq!(ticks(&mut follower, 3).await, None);
    follower.nodes[1].confine("getBlock");
    follower.nodes[1].set_silent(true);
    let slots = LATEST + 1..=LATEST + 4;
    for slot in slots.clone() {
        follower.ledger.produce(slot, vec![Tx::sol(slot, PAYER, WATCHED[0], slot)]);
        assert_eq!(ticks(&mut follower, 1).await, None);
        follower.nodes[1].lag(0);
    }
    assert_eq!((follower.cursor().await, follower.audit().await.undecided), (Some(LATEST + 4), 6));
    let asked: u64 = slots.map(|slot| follower.nodes[1].calls("getBlock", Some(slot))).sum();
    assert_eq!(asked, 1, "who let one wait is not waited for again");
    follower.nodes[1].set_silent(false);
    follower.restart();
    follower.settle().await.unwrap();
    assert_eq!(missing(&mut follower).await, (6, 0));
}
