//! What `landfall doctor` says of a chain and of its signer: each line, and each reason for which one fails.

use std::time::Duration;

use landfall::doctor::{self, Line, Verdict};
use landfall_chain::U256;
use landfall_sim::{Fault, SimLeg, SimTx, WEALTH};

use super::{Bench, PAYER};
use crate::harness::postgres::{ENGINES, Engine};
use crate::harness::world::{CHAIN, FINALITY_DEPTH, address};
use crate::past::rescan::execute;

const WEEK: Duration = Duration::from_secs(7 * 24 * 3_600);

impl Bench {
    async fn examined(&self) -> Vec<Line> {
        let world = &self.world;
        doctor::of_chain(world.db(), &world.chain, &world.network, world.now()).await.unwrap()
    }

    async fn assert_says(&self, kind: &str, verdict: Verdict, what: &str) {
        assert_says(&self.examined().await, kind, verdict, what);
    }

    async fn signer_says(&self, kind: &str, verdict: Verdict, what: &str) {
        assert_says(&doctor::of_signer(self.world.db(), &self.signer).await.unwrap(), kind, verdict, what);
    }

    async fn running_says(&self, verdict: Verdict, what: &str) {
        let line = doctor::of_running_signer(self.world.db(), &[CHAIN], self.world.now()).await.unwrap();
        assert_says(&[line], "signer", verdict, what);
    }
}

fn assert_says(lines: &[Line], kind: &str, verdict: Verdict, what: &str) {
    let is_it = |line: &&Line| line.kind == kind && line.verdict == verdict && line.what.contains(what);
    assert!(lines.iter().any(|line| is_it(&line)), "{kind} {verdict:?} {what}: {lines:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_all_is_there_each_line_is_ok() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine, 1).await;
        bench.settle().await;
        bench.set_price("3000").await;
        let lines = bench.examined().await;
        assert!(lines.iter().all(|line| line.verdict == Verdict::Ok && line.chain == Some(CHAIN)), "{lines:#?}");
        let kinds: Vec<&str> = lines.iter().map(|line| line.kind).collect();
        assert_eq!(kinds, ["price", "endpoints", "clock", "fees", "sponsor", "asset"]);
        bench.signer_says("signer", Verdict::Ok, "signer sim answers").await;
        bench.signer_says("wallets", Verdict::Ok, "1 addresses were derived again").await;
        bench.running_says(Verdict::Ok, "its signer answers").await;
        bench.close().await;
    }
}

#[tokio::test]
async fn a_price_that_is_missing_or_old_is_a_warning() {
    let mut bench = Bench::on(Engine::Sqlite, 1).await;
    bench.settle().await;
    bench.assert_says("price", Verdict::Warn, "there is none of ETH").await;
    bench.set_price("3000").await;
    bench.world.pass(WEEK);
    bench.assert_says("price", Verdict::Ok, "ETH is 3000 USD").await;
    bench.world.pass(Duration::from_secs(1));
    bench.assert_says("price", Verdict::Warn, "landfall gas price set ETH").await;
    bench.close().await;
}

#[tokio::test]
async fn what_endpoints_do_not_say_and_a_clock_that_differs_fail() {
    let mut bench = Bench::on(Engine::Sqlite, 1).await;
    bench.settle().await;
    bench.world.chain.script([Fault::Fail]);
    bench.assert_says("endpoints", Verdict::Fail, "no endpoint says where the chain ends").await;
    // The third question is what gas costs.
    bench.world.chain.script([Fault::Lag(0), Fault::Lag(0), Fault::Fail]);
    bench.assert_says("fees", Verdict::Fail, "no endpoint says what gas costs").await;
    let early = bench.world.now().minus(Duration::from_secs(90));
    let world = &bench.world;
    let lines = doctor::of_chain(world.db(), &world.chain, &world.network, early).await.unwrap();
    assert_says(&lines, "clock", Verdict::Fail, "in the future: set the clock");
    bench.world.pass(Duration::from_secs(90));
    bench.assert_says("clock", Verdict::Fail, "so nothing is signed").await;
    bench.close().await;
}

#[tokio::test]
async fn an_asset_that_would_not_be_signed_for_fails_with_the_reason() {
    let mut bench = Bench::on(Engine::Sqlite, 1).await;
    bench.settle().await;
    bench.world.chain.set_not_ready(Some("its domain is another"));
    bench.assert_says("asset", Verdict::Fail, "is not signed for by erc3009: its domain is another").await;
    bench.world.chain.set_not_ready(None);
    bench.assert_says("asset", Verdict::Ok, "can be sent by erc3009").await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sponsor_that_cannot_pay_or_is_not_ours_alone_fails_and_a_paused_one_is_a_warning() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine, 0).await;
        bench.assert_says("sponsor", Verdict::Warn, "it has none").await;
        bench.add_sponsors(5).await;
        bench.assert_says("sponsor", Verdict::Fail, "sponsor 0 has no address").await;
        bench.settle().await;
        let [poor, foreign, with_code, with_little] = [1, 2, 3, 4].map(|number| bench.sponsor(number));
        let all = SimLeg { amount: U256::from(WEALTH), ..SimLeg::native(poor, address(PAYER), 0) };
        let most = SimLeg { amount: U256::from(WEALTH - 1_000_000), ..SimLeg::native(with_little, address(PAYER), 0) };
        let gone = bench.by_hand(vec![all, most]);
        bench.world.chain.mine(vec![gone, SimTx::new(foreign, 0, Vec::new())]);
        bench.world.chain.put_code(with_code);
        // The sender does nothing meanwhile: it would quarantine them.
        bench.world.chain.mine_empty(FINALITY_DEPTH + 1);
        bench.world.keep_time();
        bench.world.catch_up().await;
        bench.assert_says("sponsor", Verdict::Ok, "sponsor 0 (").await;
        bench.assert_says("sponsor", Verdict::Fail, "less than one transfer costs: fund it").await;
        bench.assert_says("sponsor", Verdict::Warn, "less than its floor: fund it").await;
        bench.assert_says("sponsor", Verdict::Fail, "has sent 1 transactions, and 0 are on record").await;
        bench.assert_says("sponsor", Verdict::Fail, "has code").await;
        execute(bench.world.db(), "UPDATE sponsors SET state = 'quarantined' WHERE number = 2").await;
        bench.assert_says("sponsor", Verdict::Fail, "is quarantined").await;
        execute(bench.world.db(), "UPDATE sponsors SET state = 'paused' WHERE number = 0").await;
        bench.assert_says("sponsor", Verdict::Warn, "and is paused").await;
        bench.world.abandon();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signer_that_is_away_or_has_other_words_fails() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine, 1).await;
        bench.running_says(Verdict::Fail, "none has reported for 30 s that it sends").await;
        bench.signer.away(true);
        bench.sender.tick(&bench.world.clock()).await.ok();
        bench.signer_says("signer", Verdict::Fail, "start it").await;
        bench.running_says(Verdict::Fail, "it has not answered since").await;
        bench.world.pass(Duration::from_secs(31));
        bench.running_says(Verdict::Fail, "none has reported for 30 s that it sends").await;
        bench.signer.away(false);
        execute(bench.world.db(), "UPDATE wallets SET tag = 'another'").await;
        bench.signer_says("wallets", Verdict::Fail, "its words are not those of this store").await;
        bench.world.abandon();
    }
}
