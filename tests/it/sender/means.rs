//! What a carrier may cost: what a rollup takes on top of gas counts wherever money is held or must be there, and nothing
//! is signed that may cost more than an operator allows.

use landfall::transfer::{FailureCode, State, TransferId};
use landfall_chain::{AssetId, U256};
use landfall_sim::{SendFault, SimLeg};

use super::{Bench, LEASE_OVER, PAYER, gas};
use crate::harness::books::rows;
use crate::harness::postgres::{ENGINES, Engine};
use crate::harness::world::address;

/// More than the gas of a carrier costs at most, which is 0.00012006 ETH: 60,000 units at twice the base fee and the tip.
const SURCHARGE: u64 = 1_000_000_000_000_000;
const GAS_COST: u64 = 120_060_000_000_000;

impl Bench {
    /// The sponsor with this number owns so much from now on.
    async fn leave(&mut self, number: u32, wei: u64) {
        let of = self.sponsor(number);
        let owned = self.world.chain.balance(&of, &AssetId::Native, u64::MAX);
        let left = U256::from(wei);
        let leg = if owned > left {
            SimLeg { amount: owned - left, ..SimLeg::native(of, address(PAYER), 0) }
        } else {
            SimLeg { amount: left - owned, ..SimLeg::native(address(PAYER), of, 0) }
        };
        let tx = self.by_hand(vec![leg]);
        self.world.chain.mine(vec![tx]);
        self.follow().await;
    }

    /// A process that has just begun, and so asks what sponsors own.
    async fn begin_anew(&mut self) {
        self.restart();
        self.world.pass(LEASE_OVER);
        self.settle().await;
    }

    /// What is held for it, in wei.
    async fn held_wei(&self, id: TransferId) -> U256 {
        let listed = gas::ledger(&self.world).await;
        let mut holds =
            listed.iter().filter(|of| of.entry.kind.name() == "HOLD").filter_map(|of| of.entry.transfer.as_ref());
        holds.find(|of| of.id == Some(id)).unwrap().amount
    }

    /// The most that each attempt may cost for gas, in wei.
    async fn wei_of_costs(&self) -> Vec<u128> {
        let offers: Vec<(String, i64)> =
            rows(self.world.db(), "SELECT max_fee, gas_limit FROM transfer_attempts").await;
        offers.iter().map(|(max_fee, gas)| max_fee.parse::<u128>().unwrap() * u128::try_from(*gas).unwrap()).collect()
    }

    async fn poor(&self) -> Vec<i64> {
        let poor = "SELECT number FROM sponsors WHERE poor_since_us IS NOT NULL ORDER BY number";
        let poor: Vec<(i64,)> = rows(self.world.db(), poor).await;
        poor.into_iter().map(|(number,)| number).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t22_what_a_rollup_takes_on_top_of_gas_counts_into_holds_floors_and_who_can_pay() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine, 2).await;
        bench.settle().await;
        let before = bench.accept(1, 1_000).await;
        let held = bench.held_wei(before).await;
        assert_eq!(bench.until_ended(before).await, State::Confirmed);
        bench.leave(0, SURCHARGE + GAS_COST - 1).await;
        bench.world.network.sending.floor = 1;
        bench.begin_anew().await;
        assert_eq!(bench.poor().await, Vec::<i64>::new(), "it owns more than the floor");
        bench.world.chain.set_surcharge(SURCHARGE);
        bench.begin_anew().await;
        assert_eq!(bench.poor().await, [0], "not a hundred times what is taken on top");
        let mut ids = Vec::new();
        for n in 2..6 {
            ids.push(bench.accept(n, 1_000).await);
        }
        assert!(bench.held_wei(ids[0]).await >= U256::from(SURCHARGE) && held < U256::from(SURCHARGE));
        bench.settle().await;
        let by_poor = bench.sponsor(0);
        let first = bench.attempts().await.into_iter().filter(|(of, ..)| of == by_poor.as_bytes()).count();
        for id in ids {
            assert_eq!(bench.until_ended(id).await, State::Confirmed);
        }
        let attempts = bench.attempts().await;
        assert_eq!(attempts.iter().filter(|(of, ..)| of == by_poor.as_bytes()).count(), first, "{attempts:?}");
        assert!(first <= 1, "the transfer before: {attempts:?}");
        bench.close().await;
    }
}

#[tokio::test]
async fn t22_no_nonce_is_given_to_what_no_sponsor_can_pay_until_somebody_funds_one() {
    let mut bench = Bench::on(Engine::Sqlite, 1).await;
    bench.world.chain.set_surcharge(SURCHARGE);
    bench.settle().await;
    bench.leave(0, SURCHARGE + GAS_COST - 1).await;
    bench.begin_anew().await;
    let id = bench.accept(1, 1_000).await;
    bench.blocks(3).await;
    assert_eq!((bench.state(id).await, bench.attempts().await), (State::Accepted, Vec::new()));
    bench.leave(0, SURCHARGE + GAS_COST).await;
    assert_eq!(bench.until_ended(id).await, State::Confirmed);
    bench.close().await;
}

/// 0.5 USD at 3,000 USD for one ETH, in wei.
const HALF_A_USD: u128 = 166_666_666_666_666;
const DEAR: u128 = 1_000_000_000_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_signed_that_may_cost_more_than_is_allowed_and_what_waits_is_paid_when_fees_fall() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine, 1).await;
        bench.world.network.sending.max_cost_micro_usd = Some(500_000);
        bench.begin_anew().await;
        bench.set_price("3000").await;
        let early = bench.accept(1, 1_000).await;
        bench.settle().await;
        bench.world.chain.set_base_fee(DEAR);
        let waiting = [bench.accept(2, 1_000).await, bench.accept(3, 1_000).await];
        bench.blocks(8).await;
        let costs = bench.wei_of_costs().await;
        assert!(costs.len() > 1 && costs.iter().all(|cost| *cost <= HALF_A_USD), "raised within bounds: {costs:?}");
        for id in waiting {
            assert_eq!(bench.state(id).await, State::Accepted);
        }
        let nonces: Vec<i64> = bench.attempts().await.into_iter().map(|(_, nonce, ..)| nonce).collect();
        assert!(nonces.iter().all(|nonce| *nonce == 0), "what waits has no nonce: {nonces:?}");
        bench.world.chain.set_base_fee(1_000_000_000);
        for id in [early, waiting[0], waiting[1]] {
            assert_eq!(bench.until_ended(id).await, State::Confirmed);
        }
        bench.close().await;
    }
}

#[tokio::test]
async fn without_a_price_no_cost_is_too_much_and_what_a_rollup_takes_is_a_part_of_it() {
    let mut bench = Bench::on(Engine::Sqlite, 1).await;
    bench.world.network.sending.max_cost_micro_usd = Some(500_000);
    bench.begin_anew().await;
    bench.world.chain.set_base_fee(DEAR);
    let unpriced = bench.accept(1, 1_000).await;
    bench.settle().await;
    assert_eq!(bench.state(unpriced).await, State::Carried);
    assert_eq!(bench.until_ended(unpriced).await, State::Confirmed);
    bench.world.chain.set_base_fee(1_000_000_000);
    bench.set_price("3000").await;
    bench.world.chain.set_surcharge(SURCHARGE);
    let dear = bench.accept(2, 1_000).await;
    bench.blocks(3).await;
    assert_eq!(bench.state(dear).await, State::Accepted, "3 USD are taken on top of gas");
    bench.world.chain.set_surcharge(0);
    assert_eq!(bench.until_ended(dear).await, State::Confirmed);
    bench.close().await;
}

#[tokio::test]
async fn a_nonce_whose_offer_cost_all_that_is_allowed_and_is_forgotten_jams_nothing() {
    let mut bench = Bench::on(Engine::Sqlite, 1).await;
    // As much as a first attempt costs at most, at 3,000 USD for one ETH.
    bench.world.network.sending.max_cost_micro_usd = Some(360_180);
    bench.begin_anew().await;
    bench.set_price("3000").await;
    let lost = bench.accept(1, 1_000).await;
    bench.world.chain.script_sends([SendFault::Lost; 400]);
    bench.settle().await;
    while bench.state(lost).await == State::Carried {
        bench.block().await;
    }
    bench.world.chain.take_sends();
    let next = bench.accept(2, 1_000).await;
    bench.settle().await;
    assert_eq!(bench.until_ended(next).await, State::Confirmed);
    assert_eq!(bench.until_ended(lost).await, State::Dropped(FailureCode::WindowElapsed));
    assert!(bench.wei_of_costs().await.iter().all(|cost| *cost <= u128::from(GAS_COST)));
    bench.close().await;
}
