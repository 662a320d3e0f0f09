//! What one endpoint reports alone, left out, invented or with another amount: once two report that very block, our
//! record is what they report, whichever process reads it first.

use std::time::{Duration, Instant};

use landfall::watcher::TickError;
use landfall_chain::Address;
use landfall_cluster::{Block, Fault, Ledger, Tx, When};
use landfall_solana::Sample;

use super::follower::{FIRST_SLOT, Followed};
use super::soak::WATCHED;

const PAYER: Address = Address::Solana([1; 32]);
const STRANGER: Address = Address::Solana([0xee; 32]);
/// The slot that is reported in different ways.
const REPORTED: u64 = FIRST_SLOT + 5;
const FINAL: u64 = FIRST_SLOT + 18;
const LATEST: u64 = FIRST_SLOT + 21;
/// The ids of its transactions: what pays the first of ours, what pays the second, what the first one pays, and one
/// that never was.
const FIRST: u64 = 901;
const SECOND: u64 = 902;
const SPENT: u64 = 903;
const INVENTED: u64 = 904;

/// What a liar makes of the block.
type Lie = fn(&mut Block);

/// Who comes to the block first, once two report it.
#[derive(Clone, Copy, Debug)]
enum Then {
    TheSameProcess,
    Another,
    ABackfillOfTheFirst,
    ARepair,
}

fn take(block: &mut Block, id: u64) {
    let gone = Tx::sol(id, PAYER, STRANGER, 1).id();
    block.txs.retain(|tx| tx.id() != gone);
}

fn put(block: &mut Block, id: u64, sender: Address, recipient: Address, amount: u64) {
    take(block, id);
    block.txs.push(Tx::sol(id, sender, recipient, amount));
}

/// Two nodes whose slot holds these transactions by the ledger; of the first, what it makes of them. The second one
/// reports no block, but what is newest.
async fn reported_alone(held: &[u64], lie: Lie) -> Followed {
    let ledger = Ledger::of(FIRST_SLOT..=LATEST);
    ledger.amend(REPORTED, |block| {
        for id in held {
            match *id {
                FIRST => put(block, FIRST, PAYER, WATCHED[0], 1_000),
                SECOND => put(block, SECOND, PAYER, WATCHED[1], 2_000),
                _ => put(block, SPENT, WATCHED[0], STRANGER, 300),
            }
        }
    });
    let liar = ledger.branch_at(LATEST);
    liar.amend(REPORTED, lie);
    let mut follower = Followed::comparing(ledger, 2, &WATCHED, Sample { one_in: 0, key: 0 }).await;
    follower.nodes[0].show(&liar);
    follower.nodes[1].lag(1);
    follower.nodes[1].confine("getBlock");
    follower.nodes[1].misbehave(Fault::ServerError, When::Always);
    for _ in 0..4 {
        if let Err(error) = follower.tick().await {
            assert!(error.may_pass(), "{error}");
        }
    }
    assert_eq!(follower.cursor().await, Some(LATEST), "connecting waits for nobody");
    follower
}

/// Both report the truth now, and all is final.
async fn settled(mut follower: Followed, then: Then) -> Followed {
    follower.nodes[1].confine(None);
    follower.behave();
    follower.ledger.finalize(FINAL);
    match then {
        Then::TheSameProcess => {}
        Then::Another => follower.restart(),
        Then::ABackfillOfTheFirst => {
            follower.restart();
            follower.backfill(WATCHED[0]).await.unwrap();
        }
        Then::ARepair => {
            follower.restart();
            // What is final is on record as such behind a tick.
            follower.settle().await.unwrap();
            follower.repair(REPORTED..=REPORTED).await.unwrap();
        }
    }
    follower.settle().await.unwrap();
    follower.restart();
    follower.settle().await.unwrap();
    follower
}

async fn assert_made_good(held: &[u64], lie: Lie, then: Then, failed: usize) {
    let mut honest = settled(reported_alone(held, |_| ()).await, Then::TheSameProcess).await;
    let mut follower = settled(reported_alone(held, lie).await, then).await;
    let audit = follower.audit().await;
    assert!(audit.is_clean() && audit.failed == failed, "{then:?}: {audit:?}");
    assert_eq!(honest.audit().await.failed, 0);
    assert_eq!(follower.books().await, honest.books().await, "{then:?}");
}

const WHOEVER: [Then; 3] = [Then::TheSameProcess, Then::Another, Then::ABackfillOfTheFirst];

#[tokio::test]
async fn what_one_endpoint_left_out_of_a_block_with_a_deposit_is_recorded_once_two_report_it() {
    for then in WHOEVER {
        assert_made_good(&[FIRST, SECOND, SPENT], |block| take(block, SECOND), then, 0).await;
        assert_made_good(&[FIRST, SECOND, SPENT], |block| take(block, SPENT), then, 0).await;
    }
}

#[tokio::test]
async fn what_one_endpoint_left_out_of_a_block_with_no_deposit_is_recorded_once_two_report_it() {
    assert_made_good(&[SECOND, SPENT], |block| take(block, SECOND), Then::TheSameProcess, 0).await;
}

#[tokio::test]
async fn an_amount_that_one_endpoint_reported_alone_fails_and_the_true_one_is_confirmed() {
    for then in WHOEVER {
        let lie: Lie = |block| put(block, SECOND, PAYER, WATCHED[1], 2_001);
        assert_made_good(&[FIRST, SECOND], lie, then, 1).await;
        let lie: Lie = |block| put(block, FIRST, PAYER, WATCHED[0], 9);
        assert_made_good(&[FIRST, SECOND], lie, then, 1).await;
    }
}

#[tokio::test]
async fn a_payment_that_one_endpoint_made_up_fails_and_halts_nothing() {
    for then in WHOEVER {
        let lie: Lie = |block| put(block, INVENTED, PAYER, WATCHED[0], 5);
        assert_made_good(&[FIRST], lie, then, 1).await;
    }
    // Nothing in the block is ours.
    for then in [Then::TheSameProcess, Then::Another] {
        assert_made_good(&[], |block| put(block, INVENTED, PAYER, WATCHED[0], 5), then, 1).await;
    }
}

#[tokio::test]
async fn what_one_endpoint_made_up_to_have_left_counts_no_more_once_two_report_it() {
    for then in WHOEVER {
        let lie: Lie = |block| put(block, INVENTED, WATCHED[1], STRANGER, 5);
        assert_made_good(&[FIRST, SPENT], lie, then, 0).await;
        let lie: Lie = |block| put(block, SPENT, WATCHED[0], STRANGER, 5);
        assert_made_good(&[FIRST, SPENT], lie, then, 0).await;
    }
    let lie: Lie = |block| put(block, INVENTED, WATCHED[1], STRANGER, 5);
    for then in [Then::TheSameProcess, Then::ARepair] {
        assert_made_good(&[], lie, then, 0).await;
    }
}

#[tokio::test]
async fn what_one_endpoint_reported_truly_is_recorded_once() {
    for then in WHOEVER {
        let follower = reported_alone(&[FIRST, SECOND, SPENT], |_| ()).await;
        let created = follower.created().await;
        let of = |books: Vec<(String, String, String, String)>| -> Vec<_> {
            books.into_iter().map(|(what, id, _, amount)| (what, id, amount)).collect()
        };
        let pending = of(follower.books().await);
        let mut follower = settled(follower, then).await;
        assert_eq!((of(follower.books().await), follower.created().await), (pending, created), "{then:?}");
        let audit = follower.audit().await;
        assert!(audit.is_clean() && (audit.legs, audit.failed) == (2, 0), "{then:?}: {audit:?}");
    }
}

#[tokio::test]
async fn a_second_endpoint_that_is_far_behind_delays_no_pending() {
    const BEHIND: u64 = 60;
    let ledger = Ledger::of(FIRST_SLOT..=FIRST_SLOT + BEHIND);
    for slot in FIRST_SLOT + 1..=FIRST_SLOT + BEHIND {
        ledger.put(slot, Tx::sol(slot, PAYER, WATCHED[0], slot));
    }
    let mut follower = Followed::comparing(ledger, 2, &WATCHED, Sample { one_in: 0, key: 0 }).await;
    follower.wait_as_in_production();
    follower.nodes[1].lag(BEHIND);
    let begun = Instant::now();
    while follower.cursor().await != Some(FIRST_SLOT + BEHIND) {
        if let Err(error) = follower.tick().await {
            assert!(error.may_pass(), "{error}");
        }
    }
    // It is waited for once, a second and a half. Once for each block it would be a minute and a half, and four at a
    // time 24 s.
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    assert_eq!(follower.books().await.len(), usize::try_from(BEHIND).unwrap());
    follower.settle().await.unwrap();
    let audit = follower.audit().await;
    assert!(audit.is_clean() && audit.legs == usize::try_from(BEHIND).unwrap(), "{audit:?}");
}

#[tokio::test]
async fn what_one_endpoint_reported_and_another_denied_is_confirmed_on_no_word_that_was_kept() {
    let mut follower = reported_alone(&[FIRST], |block| put(block, INVENTED, PAYER, WATCHED[0], 5)).await;
    let liar = follower.nodes[0].ledger();
    follower.nodes[1].confine(None);
    follower.behave();
    follower.nodes[0].show(&liar);
    follower.ledger.finalize(FINAL);
    liar.finalize(FINAL);
    let mut why = String::new();
    // A node that failed is left alone for a little.
    for _ in 0..200 {
        why = follower.tick().await.err().map(|error| error.to_string()).unwrap_or_default();
        if why.contains("differently") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(why.contains("differently"), "{why}");
    follower.behave();
    follower.override_agree(Some(1));
    let mut ended = None;
    for _ in 0..10 {
        match follower.tick().await {
            Err(error) if !error.may_pass() => ended = Some(error),
            _ => {}
        }
    }
    assert!(matches!(ended, Some(TickError::LegMissing { .. })), "{ended:?}");
    assert_eq!(follower.audit().await.phantom, 0);
    follower.override_agree(None);
    follower.settle().await.unwrap();
    let audit = follower.audit().await;
    assert!(audit.is_clean() && (audit.legs, audit.failed) == (1, 1), "{audit:?}");
}
