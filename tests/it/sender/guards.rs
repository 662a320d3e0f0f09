//! Transfers whose every transaction makes a guard, as on Solana: attempts without nonces, of which one pays.

use std::time::Duration;

use landfall::registry;
use landfall::transfer::{FailureCode, Obstacle, Order, State, TransferId};
use landfall_chain::{Address, AssetId, Effect, Mark, Route, U256};
use landfall_sim::{ACCOUNT_RENT, GUARD_RENT, SendFault, WEALTH};

use super::gas::assert_sponsors_even;
use super::reclaims::{DEAD_BLOCKS, KEPT_BLOCKS};
use super::{BOB, Bench, STRANGER, USDC, alice, token};
use crate::harness::books::rows;
use crate::harness::lanes::{cuts, cuts_of};
use crate::harness::postgres::{ENGINES, Engine, TestStore};
use crate::harness::world::{FINALITY_DEPTH, TOKEN, address, report};
use crate::past::rescan::execute;

/// What a transaction costs.
const FEE: u64 = 21;
/// An attempt follows another one after so long.
const NEXT: Duration = Duration::from_secs(21);
/// More blocks than prove that nothing can land any more: those of a window and a minute, 150, and some to be final.
const PROOF_BLOCKS_MAX: u32 = 220;

impl Bench {
    /// With one sponsor.
    pub(super) async fn guarded(engine: Engine) -> Self {
        let route = Route::Guard { program: None, decimals: 6 };
        Bench::by_route(TestStore::fresh(engine).await, 1, 1, route).await
    }

    /// Mines empty blocks until the transfer has ended, or as many as a proof takes; how many it were.
    async fn until_proved(&mut self, id: TransferId) -> u32 {
        for mined in 0..PROOF_BLOCKS_MAX {
            if self.state(id).await.status().is_terminal() {
                return mined;
            }
            self.world.chain.mine_empty(1);
            self.follow().await;
        }
        PROOF_BLOCKS_MAX
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transfer_with_a_guard_is_carried_included_and_confirmed_once() {
    for engine in ENGINES {
        let mut bench = Bench::guarded(engine).await;
        let id = bench.accept(1, 2_500_000).await;
        bench.settle().await;
        assert_eq!(bench.state(id).await, State::Carried);
        assert_eq!(bench.until_ended(id).await, State::Confirmed);
        assert_eq!(bench.history(id).await, ["accepted", "carried", "included", "confirmed"]);
        assert_eq!((bench.attempts().await.len(), bench.world.chain.landed_guarded()), (1, (1, 0)));
        assert_eq!(bench.available().await, U256::from(USDC - 2_500_000));
        bench.close().await;
    }
}

#[tokio::test]
async fn a_second_attempt_that_lands_too_fails_and_pays_nothing() {
    let mut bench = Bench::guarded(Engine::Sqlite).await;
    let id = bench.accept(1, 1_000_000).await;
    bench.settle().await;
    for attempts in 2..=3 {
        bench.world.pass(Duration::from_secs(10));
        bench.settle().await;
        assert_eq!(bench.attempts().await.len(), attempts - 1, "not yet");
        bench.world.pass(Duration::from_secs(11));
        // Another blockhash, as it is 20 seconds later.
        bench.world.chain.mine_some(0);
        bench.follow().await;
        assert_eq!(bench.attempts().await.len(), attempts);
    }
    let waiting = bench.world.chain.pooled_guarded();
    let mut prices: Vec<u64> = waiting.iter().map(|guarded| guarded.terms.compute_price).collect();
    prices.sort_unstable();
    assert_eq!(prices, [1_000, 1_500, 2_250], "each offers more than the one before");
    bench.block().await;
    assert_eq!(bench.world.chain.landed_guarded(), (3, 2), "all three landed, and two of them failed");
    assert_eq!(bench.until_ended(id).await, State::Confirmed);
    assert_eq!(bench.payments(id).len(), 1);
    bench.close().await;
}

#[tokio::test]
async fn what_solana_would_refuse_is_never_handed_to_a_node_and_fails_on_proof() {
    let mut bench = Bench::guarded(Engine::Sqlite).await;
    bench.world.chain.refuse_payments(true);
    let id = bench.accept(1, 1_000_000).await;
    bench.settle().await;
    assert_eq!((bench.state(id).await, bench.attempts().await.len()), (State::Accepted, 0));
    bench.until_proved(id).await;
    assert_eq!(bench.state(id).await, State::Failed(FailureCode::SimulationFailed));
    assert_eq!(bench.available().await, U256::from(USDC));
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t25_so_many_new_accounts_of_tokens_are_paid_for_within_a_day_and_no_more() {
    for engine in ENGINES {
        let mut bench = Bench::guarded(engine).await;
        bench.world.chain.miss_accounts(true);
        bench.world.network.sending.new_accounts_per_day = 2;
        bench.sender = super::sender(&bench.world, &bench.signer, 9);
        let mut accepted = Vec::new();
        for n in 1..=3 {
            // Each to another, for one is paid for once.
            let order = Order { destination: Address::Evm([0x90 + n; 20]), ..bench.order(n.into(), u64::from(n) * 10) };
            report(&bench.world).await;
            let asked = registry::accept_transfer(bench.world.db(), &order, true, bench.world.now()).await;
            accepted.push(asked.unwrap().0.id);
            bench.world.pass(Duration::from_millis(10));
        }
        let [first, second, third] = accepted[..] else { panic!("{accepted:?}") };
        bench.settle().await;
        for (id, state) in [(first, State::Carried), (second, State::Carried), (third, State::Accepted)] {
            assert_eq!(bench.state(id).await, state);
        }
        let refused = bench.shown(third).await;
        assert_eq!(refused.obstacle, Some(Obstacle::DestinationRefused));
        assert!(refused.reason.unwrap().contains("2 new ones are paid for within a day"));
        // Further attempts of what is paid for already are no further accounts.
        bench.world.pass(NEXT);
        bench.settle().await;
        assert_eq!(bench.attempts().await.len(), 4);
        // A day later.
        execute(
            bench.world.db(),
            "UPDATE transfers SET created_us = created_us - 86400000000 WHERE amount_text <> '30'",
        )
        .await;
        bench.world.pass(NEXT);
        bench.settle().await;
        assert_eq!(bench.state(third).await, State::Carried);
        bench.world.close().await;
    }
}

#[tokio::test]
async fn with_less_than_an_operator_asks_for_no_account_of_a_token_is_paid_for() {
    let mut bench = Bench::guarded(Engine::Sqlite).await;
    bench.world.chain.miss_accounts(true);
    bench.world.network.sending.new_account_least = 20;
    bench.sender = super::sender(&bench.world, &bench.signer, 9);
    let mut accepted = Vec::new();
    for (n, amount) in [(1, 19), (2, 20)] {
        let order = Order { destination: Address::Evm([0x90 + n; 20]), ..bench.order(n.into(), amount) };
        report(&bench.world).await;
        let asked = registry::accept_transfer(bench.world.db(), &order, true, bench.world.now()).await;
        accepted.push(asked.unwrap().0.id);
    }
    bench.settle().await;
    assert_eq!(bench.state(accepted[1]).await, State::Carried);
    let refused = bench.shown(accepted[0]).await;
    assert_eq!((refused.state, refused.obstacle), (State::Accepted, Some(Obstacle::DestinationRefused)));
    assert!(refused.reason.unwrap().contains("none is paid for with less than 20 base units"));
    // One that is there already costs nobody anything.
    bench.world.chain.miss_accounts(false);
    bench.world.pass(NEXT);
    bench.settle().await;
    assert_eq!(bench.state(accepted[0]).await, State::Carried);
    bench.world.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_that_was_paid_for_and_closed_is_not_paid_for_again_within_30_days() {
    for engine in ENGINES {
        let mut bench = Bench::guarded(engine).await;
        bench.world.chain.miss_accounts(true);
        let first = bench.accept(1, 10).await;
        bench.settle().await;
        assert_eq!(bench.until_ended(first).await, State::Confirmed);
        let again = bench.accept(2, 20).await;
        bench.settle().await;
        assert_eq!(bench.state(again).await, State::Accepted);
        assert!(bench.until_proved(again).await < PROOF_BLOCKS_MAX);
        let failed = bench.shown(again).await;
        assert_eq!(failed.state, State::Failed(FailureCode::DestinationRefused));
        assert!(failed.reason.unwrap().contains("closed its account of the token"));
        // It has one again, which somebody else paid for.
        bench.world.chain.miss_accounts(false);
        let third = bench.accept(3, 30).await;
        bench.settle().await;
        assert_eq!(bench.state(third).await, State::Carried);
        assert_eq!(bench.until_ended(third).await, State::Confirmed);
        // A month later.
        bench.world.chain.miss_accounts(true);
        execute(bench.world.db(), "UPDATE transfers SET created_us = created_us - 2592000000000").await;
        let later = bench.accept(4, 40).await;
        bench.settle().await;
        assert_eq!(bench.state(later).await, State::Carried);
        assert_eq!(bench.until_ended(later).await, State::Confirmed);
        bench.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t25_an_account_that_is_closed_before_the_attempt_lands_is_made_only_by_another_one_and_within_the_limits() {
    for (engine, per_day) in ENGINES.into_iter().flat_map(|engine| [(engine, 1), (engine, 0)]) {
        let mut bench = Bench::guarded(engine).await;
        bench.world.network.sending.new_accounts_per_day = per_day;
        bench.sender = super::sender(&bench.world, &bench.signer, 0);
        let id = bench.accept(1, 1_000_000).await;
        bench.settle().await;
        // It stood when the attempt was made.
        bench.world.chain.miss_accounts(true);
        bench.block().await;
        assert_eq!(bench.world.chain.landed_guarded(), (1, 1), "the attempt makes none, and fails");
        assert_eq!(bench.state(id).await, State::Carried);
        bench.world.pass(NEXT);
        bench.world.chain.mine_some(0);
        bench.follow().await;
        let made: Vec<(i64,)> =
            rows(bench.world.db(), "SELECT guard_account FROM transfer_attempts ORDER BY nonce").await;
        if per_day == 0 {
            assert_eq!(made, [(0,)], "no new one is paid for");
            assert!(bench.until_proved(id).await < PROOF_BLOCKS_MAX);
            assert_eq!(bench.state(id).await, State::Failed(FailureCode::Reverted));
        } else {
            assert_eq!(made, [(0,), (1,)]);
            assert_eq!(bench.until_ended(id).await, State::Confirmed);
            assert_eq!(bench.world.chain.landed_guarded(), (2, 1));
            // The next one finds it again, and it is closed again: it is paid for no second time.
            bench.world.chain.miss_accounts(false);
            let next = bench.accept(2, 1_000_000).await;
            bench.settle().await;
            bench.world.chain.miss_accounts(true);
            bench.block().await;
            assert!(bench.until_proved(next).await < PROOF_BLOCKS_MAX);
            assert_eq!(bench.state(next).await, State::Failed(FailureCode::Reverted));
            assert_eq!(bench.world.chain.landed_guarded(), (3, 2), "one more that makes none");
        }
        bench.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rent_of_a_new_account_is_a_cost_of_the_transfer_that_gave_it_and_what_the_guard_holds_is_locked() {
    for engine in ENGINES {
        let mut bench = Bench::guarded(engine).await;
        bench.set_price("3000").await;
        bench.world.chain.miss_accounts(true);
        let first = bench.accept(1, 1_000_000).await;
        bench.settle().await;
        assert_eq!(bench.until_ended(first).await, State::Confirmed);
        bench.world.chain.miss_accounts(false);
        let second = bench.accept(2, 1_000_000).await;
        bench.settle().await;
        assert_eq!(bench.until_ended(second).await, State::Confirmed);
        let fee = async |id| bench.shown(id).await.network_fee.unwrap().amount;
        let fees = [fee(first).await, fee(second).await];
        let paid = bench.world.chain.payments().len();
        assert_eq!((paid, fees), (2, [U256::from(FEE + ACCOUNT_RENT), U256::from(FEE)]));
        let text = "SELECT kind, amount_text, rent FROM gas_ledger WHERE kind <> 'GRANT' ORDER BY at_us, entry";
        let entries: Vec<(String, String, i64)> = rows(bench.world.db(), text).await;
        let of = |kind: &str| -> Vec<(&str, i64)> {
            entries.iter().filter(|entry| entry.0 == kind).map(|(_, amount, rent)| (amount.as_str(), *rent)).collect()
        };
        let (with_rent, rent) = ((FEE + ACCOUNT_RENT).to_string(), i64::try_from(ACCOUNT_RENT).unwrap());
        assert_eq!(of("COST"), [(with_rent.as_str(), rent), ("21", 0)]);
        assert_eq!(of("HOLD")[1], ("32", 0), "the next one is not expected to make an account");
        assert_sponsors_even(&bench.world).await;
        bench.close().await;
    }
}

#[tokio::test]
async fn rent_that_falls_between_two_attempts_is_paid_once_as_the_second_has_it_and_comes_back_to_the_lamport() {
    const LESS: u64 = GUARD_RENT / 2;
    let mut bench = Bench::keeping(Engine::Sqlite).await;
    // No node gets the first attempt, neither now nor when it is sent again.
    bench.world.chain.script_sends([SendFault::Lost; 2]);
    let id = bench.accept(1, 1_000_000).await;
    bench.settle().await;
    bench.world.chain.set_guard_rent(LESS);
    bench.world.pass(NEXT);
    // Another blockhash, as it is 20 seconds later.
    bench.world.chain.mine_some(0);
    bench.follow().await;
    let text = "SELECT guard_rent FROM transfer_attempts ORDER BY nonce";
    let rents: Vec<(i64,)> = rows(bench.world.db(), text).await;
    let [before, less] = [GUARD_RENT, LESS].map(|rent| i64::try_from(rent).unwrap());
    assert_eq!(rents, [(before,), (less,)]);
    let waiting: Vec<u64> = bench.world.chain.pooled_guarded().iter().map(|guarded| guarded.terms.rent).collect();
    assert_eq!(waiting, [LESS], "the first is in no pool");
    bench.block().await;
    assert_eq!((bench.world.chain.landed_guarded(), bench.holds(id)), ((1, 0), U256::from(LESS)));
    // The dearer one lands behind it.
    bench.world.chain.pool_all();
    bench.block().await;
    assert_eq!(bench.world.chain.landed_guarded(), (2, 1), "and fails");
    assert_eq!(bench.until_ended(id).await, State::Confirmed);
    bench.empty(20).await;
    assert_eq!((bench.payments(id).len(), bench.holds(id)), (1, U256::from(LESS)));
    assert_sponsors_even(&bench.world).await;
    bench.empty(KEPT_BLOCKS + DEAD_BLOCKS + 60).await;
    bench.block().await;
    bench.empty(20).await;
    assert_eq!((bench.reclaims().await, bench.holds(id)), (vec!["landed".to_owned()], U256::ZERO));
    let text = "SELECT lamports, reclaim_lamports FROM guards ORDER BY transfer_id";
    let taken: Vec<(i64, i64)> = rows(bench.world.db(), text).await;
    assert_eq!(taken, [(less, less)]);
    let latest = bench.world.chain.latest().number;
    let owns = bench.world.chain.balance(&bench.sponsor(0), &AssetId::Native, latest);
    assert_eq!(owns, U256::from(WEALTH) - U256::from(3 * FEE), "two attempts and a reclaim cost their fees, no more");
    assert_sponsors_even(&bench.world).await;
    bench.close().await;
}

#[tokio::test]
async fn t5_whatever_nodes_make_of_attempts_the_transfer_is_paid_once() {
    for fault in [SendFault::Silent, SendFault::Lost, SendFault::Forgotten, SendFault::Refused, SendFault::NonceUsed] {
        let mut bench = Bench::guarded(Engine::Sqlite).await;
        bench.world.chain.script_sends([fault; 3]);
        let id = bench.accept(1, 1_000_000).await;
        for _ in 0..4 {
            bench.settle().await;
            bench.world.pass(Duration::from_secs(3));
        }
        bench.world.chain.take_sends();
        bench.world.pass(NEXT);
        bench.settle().await;
        assert_eq!(bench.until_ended(id).await, State::Confirmed, "{fault:?}");
        assert_eq!(bench.payments(id).len(), 1, "{fault:?}");
        bench.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payment_that_a_fork_takes_back_is_carried_again_and_confirmed_once() {
    for engine in ENGINES {
        let mut bench = Bench::guarded(engine).await;
        let id = bench.accept(1, 4_000_000).await;
        bench.settle().await;
        bench.block().await;
        assert_eq!(bench.state(id).await, State::Included);
        let latest = bench.world.chain.latest().number;
        bench.world.chain.fork_at(latest - 1);
        bench.world.chain.forget_pool();
        bench.world.chain.mine_empty(2);
        bench.follow().await;
        assert_eq!(bench.state(id).await, State::Carried);
        bench.world.pass(NEXT);
        bench.settle().await;
        assert_eq!(bench.until_ended(id).await, State::Confirmed);
        assert_eq!(bench.payments(id).len(), 1);
        bench.close().await;
    }
}

#[tokio::test]
async fn a_process_that_dies_anywhere_leaves_one_payment() {
    let mut cut = 0;
    for wakeups in cuts(60) {
        let mut bench = Bench::guarded(Engine::Sqlite).await;
        let id = bench.accept(1, 1_000_000).await;
        let is_cut = bench.crash_within(wakeups).await;
        cut += u32::from(is_cut);
        bench.world.pass(super::LEASE_OVER);
        bench.settle().await;
        bench.world.pass(NEXT);
        bench.settle().await;
        assert_eq!(bench.until_ended(id).await, State::Confirmed, "cut after {wakeups}");
        assert_eq!(bench.payments(id).len(), 1, "cut after {wakeups}");
        bench.close().await;
        if !is_cut {
            break;
        }
    }
    assert!(cut > cuts_of(5), "{cut}");
}

#[tokio::test]
async fn a_guard_that_somebody_else_made_proves_nothing_until_its_maker_is_found_and_not_the_payer() {
    for (hidden, are_payers) in [(true, false), (false, true)] {
        let mut bench = Bench::guarded(Engine::Sqlite).await;
        let id = bench.accept(1, 1_000_000).await;
        let key = bench.shown(id).await.intent_key;
        bench.settle().await;
        bench.world.chain.make_guard(key);
        bench.world.chain.makers(hidden, are_payers);
        assert_eq!(bench.until_proved(id).await, PROOF_BLOCKS_MAX, "no verdict");
        assert_eq!(bench.state(id).await, State::Expiring);
        assert_eq!(bench.available().await, U256::from(USDC - 1_000_000), "what may still be paid stays reserved");
        bench.world.chain.makers(false, false);
        bench.world.pass(Duration::from_secs(11));
        bench.settle().await;
        assert_eq!(bench.state(id).await, State::Failed(FailureCode::GuardTaken));
        assert_eq!(bench.available().await, U256::from(USDC));
        bench.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t26_a_guard_that_was_taken_before_or_behind_the_signature_is_guard_taken_and_never_confirmed() {
    for (engine, is_signed) in ENGINES.into_iter().flat_map(|engine| [(engine, true), (engine, false)]) {
        let mut bench = Bench::guarded(engine).await;
        let id = bench.accept(1, 1_000_000).await;
        if is_signed {
            bench.settle().await;
        }
        let key = bench.shown(id).await.intent_key;
        bench.world.chain.make_guard(key);
        bench.settle().await;
        assert!(bench.until_proved(id).await < PROOF_BLOCKS_MAX);
        let failed = bench.shown(id).await;
        assert_eq!(failed.state, State::Failed(FailureCode::GuardTaken));
        assert!(failed.tx.is_some(), "who took it");
        assert_eq!((bench.payments(id).len(), bench.available().await), (0, U256::from(USDC)));
        bench.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_that_landed_and_failed_is_reverted_when_no_other_can_land_and_there_is_no_guard() {
    for engine in ENGINES {
        let mut bench = Bench::guarded(engine).await;
        let id = bench.accept(1, 1_000_000).await;
        bench.settle().await;
        // What she has is gone in the very block of the attempt.
        let all = bench.by_hand(vec![token(alice(), address(BOB), USDC)]);
        bench.world.chain.mine(vec![all]);
        bench.block().await;
        assert_eq!(bench.world.chain.landed_guarded(), (1, 1));
        assert_eq!(bench.state(id).await, State::Carried, "that it landed is no verdict");
        bench.world.chain.forget_pool();
        assert!(bench.until_proved(id).await < PROOF_BLOCKS_MAX);
        let failed = bench.shown(id).await;
        assert_eq!(failed.state, State::Failed(FailureCode::Reverted));
        let attempts = bench.attempts().await;
        let ids: Vec<&[u8]> = attempts.iter().filter_map(|(.., tx)| tx.as_deref()).collect();
        assert!(ids.contains(&failed.tx.unwrap().as_bytes()), "the attempt that landed");
        bench.close().await;
    }
}

#[tokio::test]
async fn a_guard_that_was_made_with_another_payment_is_no_verdict() {
    let mut bench = Bench::guarded(Engine::Sqlite).await;
    let id = bench.accept(1, 1_000_000).await;
    let key = bench.shown(id).await.intent_key;
    let (bob, amount) = (address(BOB), 999_999);
    let mut other = bench.by_hand(vec![token(alice(), bob, amount)]);
    let effect = Effect::Paid { destination: bob, amount: U256::from(amount) };
    other.marks = vec![Mark { tx: other.tx, payer: alice(), key, asset: TOKEN, effect }];
    bench.world.chain.mine(vec![other]);
    bench.follow().await;
    assert_eq!(bench.until_proved(id).await, PROOF_BLOCKS_MAX, "no verdict");
    assert_eq!(bench.state(id).await, State::Accepted);
    assert_ne!(bob, address(STRANGER));
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t16_what_nobody_took_is_dropped_only_when_every_blockhash_of_its_window_is_dead() {
    for (engine, signs) in ENGINES.into_iter().flat_map(|engine| [(engine, true), (engine, false)]) {
        let mut bench = Bench::guarded(engine).await;
        bench.world.chain.set_not_ready((!signs).then_some("its mint is another"));
        let id = bench.accept(1, 1_000_000).await;
        let deadline = u64::try_from(bench.shown(id).await.deadline.0 / 1_000_000).unwrap();
        bench.settle().await;
        bench.world.chain.forget_pool();
        bench.world.pass(Duration::from_secs(301));
        bench.settle().await;
        bench.world.chain.script_sends([SendFault::Lost; 50]);
        // One endpoint reported the time of an early block wrongly: that brings the proof no nearer.
        let ahead = (deadline + 61) * 1_000_000;
        let text = format!("UPDATE blocks SET time_us = {ahead} WHERE number = 5");
        execute(bench.world.db(), text.leak()).await;
        assert!(bench.until_proved(id).await < PROOF_BLOCKS_MAX);
        let code = if signs { FailureCode::WindowElapsed } else { FailureCode::NeverSigned };
        assert_eq!(bench.state(id).await, State::Dropped(code));
        let blocks = bench.world.chain.blocks();
        let first = blocks.iter().find(|block| block.header.time_secs >= deadline + 60).unwrap().header.block.number;
        let at = bench.world.chain.finalized().unwrap().number;
        assert_eq!(at, first + 151, "at the first final block that proves it");
        assert_eq!(bench.available().await, U256::from(USDC));
        bench.close().await;
    }
}

#[tokio::test]
async fn t16_blocks_that_come_faster_or_slower_in_mid_run_change_no_count_of_those_that_prove_it() {
    // Twelve before.
    for secs in [1, 40] {
        let mut bench = Bench::guarded(Engine::Sqlite).await;
        let id = bench.accept(1, 1_000_000).await;
        let over = bench.shown(id).await.deadline.plus(Duration::from_secs(60));
        bench.settle().await;
        bench.world.chain.forget_pool();
        bench.world.pass(Duration::from_secs(301));
        bench.settle().await;
        bench.world.chain.script_sends([SendFault::Lost; 50]);
        while bench.world.chain_time() < over {
            bench.world.chain.mine_empty(1);
            bench.follow().await;
        }
        let first = bench.world.chain.latest().number;
        bench.world.chain.mine_empty(50);
        bench.world.chain.set_block_secs(secs);
        bench.follow().await;
        assert!(bench.until_proved(id).await < PROOF_BLOCKS_MAX, "{secs}");
        assert_eq!(bench.state(id).await, State::Dropped(FailureCode::WindowElapsed), "{secs}");
        let at = bench.world.chain.finalized().unwrap().number;
        assert_eq!(at, first + 151, "{secs}: as many final blocks as ever");
        // Those of twelve seconds would have taken 1,812.
        let took = bench.final_time().since(over).as_secs();
        assert!(if secs < 12 { took < 900 } else { took > 3_600 }, "{secs}: {took}");
        assert_eq!((bench.payments(id).len(), bench.available().await), (0, U256::from(USDC)), "{secs}");
        bench.close().await;
    }
}

#[tokio::test]
async fn a_payment_in_a_block_that_one_endpoint_alone_reported_waits_for_others() {
    let mut bench = Bench::guarded(Engine::Sqlite).await;
    let id = bench.accept(1, 1_000_000).await;
    bench.settle().await;
    bench.block().await;
    assert_eq!(bench.state(id).await, State::Included);
    execute(bench.world.db(), "UPDATE blocks SET proof = 'one_endpoint'").await;
    bench.world.chain.deny_marks(true);
    bench.blocks(FINALITY_DEPTH + 3).await;
    assert_eq!(bench.state(id).await, State::Included, "others report that block without it");
    bench.world.chain.deny_marks(false);
    bench.world.pass(Duration::from_secs(11));
    bench.settle().await;
    assert_eq!(bench.state(id).await, State::Confirmed);
    bench.close().await;
}
