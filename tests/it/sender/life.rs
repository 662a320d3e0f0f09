//! From acceptance to the end: what blocks show, what reorgs take back, what time ends, and what is never signed.

use std::time::Duration;

use landfall::event::TransferData;
use landfall::identity::Change;
use landfall::store::transfers;
use landfall::transfer::{FailureCode, Obstacle, State};
use landfall_chain::{Effect, Mark, U256, Unpayable};
use landfall_sim::SimTx;

use super::{BOB, Bench, STRANGER, USDC, alice, token};
use crate::harness::books::rows;
use crate::harness::postgres::{ENGINES, Engine};
use crate::harness::world::{CHAIN, FINALITY_DEPTH, TOKEN, address};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t28_a_transfer_is_signed_carried_included_and_confirmed_and_its_money_is_taken_off_once() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine, 1).await;
        assert_eq!(bench.available().await, U256::from(USDC));
        let id = bench.accept(1, 2_500_000).await;
        let left = U256::from(USDC - 2_500_000);
        assert_eq!(bench.available().await, left);
        bench.settle().await;
        let carried = bench.shown(id).await;
        assert_eq!((carried.state, carried.tx), (State::Carried, None));
        assert!(carried.submitted_at.is_some());
        assert_eq!(bench.available().await, left);
        bench.block().await;
        let included = bench.shown(id).await;
        assert_eq!(included.state, State::Included);
        assert_eq!(bench.available().await, left);
        bench.blocks(FINALITY_DEPTH - 1).await;
        assert_eq!(bench.state(id).await, State::Included);
        assert_eq!(bench.available().await, left);
        bench.block().await;
        let confirmed = bench.shown(id).await;
        assert_eq!((confirmed.state, confirmed.tx), (State::Confirmed, included.tx));
        assert!(confirmed.confirmed_at.is_some());
        assert_eq!(bench.available().await, left);
        assert_eq!(bench.payments(id).len(), 1);
        assert_eq!(bench.history(id).await, ["accepted", "carried", "included", "confirmed"]);
        assert_eq!(bench.attempts().await.len(), 1);
        bench.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payment_that_a_reorg_takes_back_is_carried_again_and_confirmed_once() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine, 1).await;
        let id = bench.accept(1, 4_000_000).await;
        let left = U256::from(USDC - 4_000_000);
        bench.settle().await;
        bench.block().await;
        for _ in 0..2 {
            let latest = bench.world.chain.latest().number;
            bench.world.chain.fork_at(latest - 1);
            bench.world.chain.mine_empty(2);
            bench.follow().await;
            let displaced = bench.shown(id).await;
            assert_eq!((displaced.state, displaced.tx), (State::Carried, None));
            assert_eq!(bench.available().await, left);
            bench.block().await;
            assert_eq!(bench.state(id).await, State::Included);
            assert_eq!(bench.available().await, left);
        }
        assert_eq!(bench.until_ended(id).await, State::Confirmed);
        let expected = ["accepted", "carried", "included", "carried", "included", "carried", "included", "confirmed"];
        assert_eq!(bench.history(id).await, expected);
        bench.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_for_finality_takes_no_place_of_what_is_to_be_sent() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine, 1).await;
        for n in 0..3 {
            bench.accept(n, 1_000).await;
        }
        bench.settle().await;
        bench.block().await;
        let new = bench.accept(3, 1_000).await;
        let mut reader = bench.world.db().read().await.unwrap();
        let in_hand = transfers::unfinished(&mut reader, CHAIN, 1, bench.world.now()).await.unwrap();
        drop(reader);
        let states: Vec<State> = in_hand.iter().map(|transfer| transfer.state).collect();
        assert_eq!(states, [State::Included, State::Accepted]);
        assert_eq!(in_hand[1].id, new);
        bench.close().await;
    }
}

#[tokio::test]
async fn after_a_reorg_another_attempt_may_be_the_one_that_pays() {
    let mut bench = Bench::on(Engine::Sqlite, 1).await;
    bench.world.chain.set_base_fee(10);
    let id = bench.accept(1, 1_000_000).await;
    bench.settle().await;
    bench.world.chain.set_base_fee(1_000_000_000_000);
    // Nobody takes the offer: it is raised.
    bench.blocks(4).await;
    assert_eq!(bench.attempts().await.len(), 2);
    bench.block().await;
    assert_eq!(bench.state(id).await, State::Included);
    let first = bench.shown(id).await.tx;
    // The branch that wins has the other one, and nobody looked in between.
    let latest = bench.world.chain.latest().number;
    bench.world.chain.fork_at(latest - 2);
    bench.world.chain.set_base_fee(10);
    bench.world.chain.forget_pool();
    let attempts = bench.attempts().await;
    let raw = attempts[0].4.clone().unwrap();
    let id_of_first = landfall_chain::TxId::from_bytes(&raw).unwrap();
    landfall_chain::PayingChain::broadcast(&bench.world.chain, &id_of_first, &raw).await;
    bench.world.chain.mine_pool();
    bench.world.chain.mine_empty(2);
    bench.follow().await;
    let second = bench.shown(id).await;
    assert_eq!(second.state, State::Included);
    assert_ne!(second.tx, first);
    assert_eq!(bench.until_ended(id).await, State::Confirmed);
    assert_eq!(bench.history(id).await, ["accepted", "carried", "included", "carried", "included", "confirmed"]);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_carries_is_dropped_by_a_final_block_and_never_by_the_clock() {
    for engine in ENGINES {
        // No sponsor is there; the signer is away, so that nobody knows what it did; or nothing may be signed.
        for (signs, code) in [
            (Some(true), FailureCode::WindowElapsed),
            (Some(false), FailureCode::WindowElapsed),
            (None, FailureCode::NeverSigned),
        ] {
            let mut bench = Bench::on(engine, 0).await;
            bench.settle().await;
            bench.signer.away(signs == Some(false));
            bench.world.chain.set_not_ready(signs.is_none().then_some("its domain is another"));
            let id = bench.accept(1, 1_000_000).await;
            let deadline = bench.shown(id).await.deadline;
            // An hour by the clock, while the chain stands still, proves nothing.
            bench.sender.tick(&bench.world.clock()).await.ok();
            bench.world.pass(Duration::from_secs(3_600));
            bench.settle().await;
            assert_eq!(bench.state(id).await, State::Accepted);
            assert_eq!(bench.available().await, U256::from(USDC - 1_000_000));
            assert_eq!(bench.until_ended(id).await, State::Dropped(code));
            assert_eq!(bench.expires_at(id).await.is_some(), signs == Some(true), "shown of what was signed");
            let at = bench.world.chain.finalized().unwrap().number;
            let time = |number: u64| {
                let blocks = bench.world.chain.blocks();
                blocks.iter().find(|block| block.header.block.number == number).unwrap().header.time_secs
            };
            // Whose journal cannot be asked may have signed for a copy of the store until this process began to send.
            let later = if signs == Some(false) { 60 } else { 0 };
            let over = u64::try_from(deadline.0 / 1_000_000).unwrap() + later;
            assert!(time(at) >= over && time(at - 1) < over, "{} {over}", time(at));
            assert_eq!(bench.available().await, U256::from(USDC));
            bench.close().await;
        }
    }
}

#[tokio::test]
async fn t3_what_was_carried_and_never_landed_waits_for_its_proof() {
    let mut bench = Bench::on(Engine::Sqlite, 1).await;
    let id = bench.accept(1, 1_000_000).await;
    bench.settle().await;
    bench.world.chain.forget_pool();
    bench.world.pass(Duration::from_secs(301));
    bench.settle().await;
    assert_eq!(bench.state(id).await, State::Expiring);
    assert_eq!(bench.world.chain.pooled(), [], "what is expiring sends nothing");
    // Nothing becomes final for now: no verdict.
    bench.world.chain.set_finality_depth(None);
    bench.blocks(40).await;
    assert_eq!(bench.state(id).await, State::Expiring);
    bench.world.chain.set_finality_depth(Some(FINALITY_DEPTH));
    assert_eq!(bench.until_ended(id).await, State::Dropped(FailureCode::WindowElapsed));
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_that_is_frozen_before_the_signature_pays_nothing() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine, 1).await;
        bench.settle().await;
        let [frozen, cancelled] = [bench.accept(1, 1_000_000).await, bench.accept(2, 1_000_000).await];
        let operator = bench.world.operator();
        operator.change_identity(bench.world.db(), "default", Change::Suspend).await.unwrap();
        bench.settle().await;
        bench.cancel(cancelled).await.unwrap();
        bench.settle().await;
        assert_eq!(bench.state(frozen).await, State::Accepted, "a copy of this store may have signed it");
        assert_eq!(bench.until_ended(frozen).await, State::Failed(FailureCode::AccountNotActive));
        assert_eq!(bench.until_ended(cancelled).await, State::Failed(FailureCode::Cancelled));
        assert_eq!(bench.available().await, U256::from(USDC));
        for id in [frozen, cancelled] {
            assert_eq!(bench.signer.deadline(id.0.as_bytes()), None);
        }
        bench.close().await;
    }
}

/// Of each: what the chain would refuse before the signature, or behind it, the code, and the words that the client reads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_chain_would_refuse_is_not_sent_and_fails_with_its_code_on_proof() {
    let cases = [
        (Some(Unpayable::Funds), FailureCode::InsufficientFunds, "an address would own too little: why"),
        (Some(Unpayable::Destination), FailureCode::DestinationRefused, "the chain refuses this destination: why"),
        (Some(Unpayable::Paused), FailureCode::TokenPaused, "the token is paused: why"),
        (Some(Unpayable::Refused), FailureCode::SimulationFailed, "the chain would refuse it: why"),
        (None, FailureCode::SimulationFailed, "the chain would refuse it: the payment is refused"),
    ];
    for engine in ENGINES {
        for (unpayable, code, words) in cases {
            let mut bench = Bench::on(engine, 1).await;
            bench.world.chain.set_unpayable(unpayable.map(|what| (what, "why")));
            bench.world.chain.refuse_payments(unpayable.is_none());
            let id = bench.accept(1, 1_000_000).await;
            bench.settle().await;
            let waiting = bench.shown(id).await;
            assert_eq!((waiting.state, waiting.obstacle.map(Obstacle::code)), (State::Accepted, Some(code)));
            assert_eq!(bench.signer.deadline(id.0.as_bytes()).is_some(), unpayable.is_none(), "{code:?}");
            assert_eq!(bench.until_ended(id).await, State::Failed(code));
            let failed = bench.shown(id).await;
            assert_eq!(failed.reason, Some(format!("{words}; nothing was paid")));
            assert_eq!((bench.attempts().await.len(), bench.available().await), (0, U256::from(USDC)));
            bench.close().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_node_says_of_a_refusal_reaches_clients_without_urls_hosts_and_passwords() {
    let said = "http://user:pw@node.example:8545/v2/KEY?a=b says no: ask 10.0.0.7:8545 or node.example";
    let cases = [
        (Engine::Sqlite, Unpayable::Funds, "an address would own too little"),
        (Engine::Postgres, Unpayable::Refused, "the chain would refuse it"),
    ];
    for (engine, what, words) in cases {
        let mut bench = Bench::on(engine, 1).await;
        bench.world.chain.set_unpayable(Some((what, said)));
        let id = bench.accept(1, 1_000_000).await;
        assert!(matches!(bench.until_ended(id).await, State::Failed(_)), "{engine:?}");
        let failed = bench.shown(id).await;
        let expected = format!("{words}: *** says no: ask *** or ***; nothing was paid");
        assert_eq!(TransferData::of(&failed).failure_details.unwrap().reason, expected, "{engine:?}");
        let payloads = "SELECT payload FROM events WHERE aggregatetype = 'transfer' ORDER BY position";
        let payloads: Vec<(String,)> = rows(bench.world.db(), payloads).await;
        assert_eq!(payloads.len(), 1, "{engine:?}");
        let leaked = ["user", "pw@", "node.example", ":8545", "KEY", "10.0.0.7"]
            .map(|secret| payloads.iter().any(|(payload,)| payload.contains(secret)));
        assert_eq!(leaked, [false; 6], "{engine:?}: {payloads:?}");
        bench.close().await;
    }
}

#[tokio::test]
async fn what_the_chain_refused_for_a_while_is_sent_when_it_takes_it() {
    let mut bench = Bench::on(Engine::Sqlite, 1).await;
    bench.world.chain.set_unpayable(Some((Unpayable::Paused, "why")));
    let id = bench.accept(1, 1_000_000).await;
    bench.settle().await;
    bench.world.chain.set_unpayable(None);
    bench.world.pass(Duration::from_secs(11));
    bench.settle().await;
    assert_eq!(bench.state(id).await, State::Carried);
    assert_eq!(bench.until_ended(id).await, State::Confirmed);
    assert_eq!(bench.shown(id).await.reason, None);
    // What a person cancelled is CANCELLED, whatever the chain would say.
    bench.world.chain.set_unpayable(Some((Unpayable::Paused, "why")));
    let cancelled = bench.accept(2, 1_000_000).await;
    bench.settle().await;
    bench.cancel(cancelled).await.unwrap();
    bench.settle().await;
    assert_eq!(bench.until_ended(cancelled).await, State::Failed(FailureCode::Cancelled));
    let reason = bench.shown(cancelled).await.reason.unwrap();
    assert_eq!(reason, "an operator cancelled it; nothing was paid");
    bench.close().await;
}

#[tokio::test]
async fn a_key_that_was_used_for_something_else_fails_only_when_that_is_final() {
    for is_taken_back in [false, true] {
        let mut bench = Bench::on(Engine::Sqlite, 1).await;
        let id = bench.accept(1, 1_000_000).await;
        let key = bench.shown(id).await.intent_key;
        let leg = token(alice(), address(BOB), 5);
        let mut other: SimTx = bench.by_hand(vec![leg]);
        let effect = Effect::Paid { destination: leg.recipient, amount: leg.amount };
        other.marks = vec![Mark { tx: other.tx, payer: alice(), key, asset: TOKEN, effect }];
        let tx = other.tx.id;
        bench.world.chain.mine(vec![other]);
        bench.follow().await;
        assert!(!bench.state(id).await.status().is_terminal());
        if is_taken_back {
            let latest = bench.world.chain.latest().number;
            bench.world.chain.fork_at(latest - 1);
            bench.world.chain.mine_empty(2);
            bench.follow().await;
            assert_eq!(bench.until_ended(id).await, State::Confirmed);
        } else {
            bench.blocks(FINALITY_DEPTH - 1).await;
            assert!(!bench.state(id).await.status().is_terminal());
            bench.block().await;
            let failed = bench.shown(id).await;
            assert_eq!((failed.state, failed.tx), (State::Failed(FailureCode::IntentAlreadyUsed), Some(tx)));
            assert_eq!(bench.available().await, U256::from(USDC - 5));
        }
        bench.close().await;
    }
}

#[tokio::test]
async fn a_key_that_was_cancelled_or_used_up_says_so() {
    let cases = [
        (Effect::Cancelled, State::Dropped(FailureCode::Cancelled)),
        (Effect::Nothing, State::Failed(FailureCode::Reverted)),
    ];
    for (effect, expected) in cases {
        let mut bench = Bench::on(Engine::Sqlite, 1).await;
        let id = bench.accept(1, 1_000_000).await;
        let key = bench.shown(id).await.intent_key;
        let mut other: SimTx = bench.by_hand(Vec::new());
        other.marks = vec![Mark { tx: other.tx, payer: alice(), key, asset: TOKEN, effect }];
        bench.world.chain.mine(vec![other]);
        bench.follow().await;
        assert_eq!(bench.until_ended(id).await, expected);
        bench.close().await;
    }
}

#[tokio::test]
async fn a_chain_whose_time_is_not_known_signs_nothing() {
    let mut bench = Bench::on(Engine::Sqlite, 1).await;
    bench.world.pass(Duration::from_secs(61));
    let id = bench.accept(1, 1_000_000).await;
    bench.settle().await;
    assert_eq!((bench.state(id).await, bench.signer.seq()), (State::Accepted, 0));
    // Six blocks later it stands at the clock again.
    bench.blocks(6).await;
    assert!(bench.signer.seq() > 0);
    assert_eq!(bench.until_ended(id).await, State::Confirmed);
    assert_eq!(bench.payments(id)[0].destination, address(STRANGER));
    bench.close().await;
}
