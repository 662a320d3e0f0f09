//! What `status` and `health` say of sending, and each thing for which a chain is unhealthy.

use std::collections::BTreeSet;
use std::time::Duration;

use landfall::health::{ChainReport, Status};
use landfall::transfer::{FailureCode, SponsorState, State};
use landfall_chain::U256;
use landfall_sim::{SimLeg, WEALTH};

use super::{Bench, PAYER};
use crate::harness::postgres::{ENGINES, Engine};
use crate::harness::world::{CHAIN, FINALITY_DEPTH, World, address, report};

/// Longer than a process waits between two reports.
const REPORTED: Duration = Duration::from_secs(11);
const LAG_MAX: Duration = Duration::from_secs(60);

async fn shown(world: &World) -> ChainReport {
    report(world).await
}

/// What `health` says of the chain's sending.
async fn complaints(world: &World) -> Vec<String> {
    report(world).await;
    let status = Status::read(world.db(), world.now()).await.unwrap();
    let mut complaints = status.complaints(&BTreeSet::from([CHAIN]), LAG_MAX);
    complaints.retain(|complaint| complaint.starts_with(CHAIN.name()));
    complaints
}

impl Bench {
    /// Time goes on, and the sender with it.
    pub(super) async fn pass(&mut self, secs: u64) {
        self.world.pass(Duration::from_secs(secs));
        self.settle().await;
    }

    pub(super) async fn assert_unhealthy(&self, why: &str) {
        let complaints = complaints(&self.world).await;
        assert!(complaints.len() == 1 && complaints[0].contains(why), "{why}: {complaints:?}");
    }

    pub(super) async fn assert_healthy(&self) {
        assert_eq!(complaints(&self.world).await, Vec::<String>::new());
    }

    /// Whether it is unhealthy, for nothing was proved of a transfer for long.
    async fn is_unproved(&self) -> bool {
        let complaints = complaints(&self.world).await;
        complaints.iter().any(|complaint| complaint.contains("10 minutes behind finality nothing is proved of them"))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_nobody_sends_nothing_is_shown_of_it_and_where_somebody_does_all_is() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine, 0).await;
        bench.settle().await;
        let report = shown(&bench.world).await;
        assert_eq!((report.sender, report.signer, report.gas), (None, None, None));
        bench.world.pass(Duration::from_secs(20));
        bench.assert_healthy().await;
        bench.add_sponsors(2).await;
        bench.pass(REPORTED.as_secs()).await;
        let id = bench.accept(1, 1_000).await;
        bench.settle().await;
        let report = shown(&bench.world).await;
        let sender = report.sender.unwrap();
        assert_eq!((sender.state, sender.leader.as_deref()), ("sending", Some("process 0")));
        assert_eq!((sender.waiting, sender.in_flight, sender.expiring), (0, 1, 0));
        let sponsors: Vec<_> = sender.sponsors.iter().map(|it| (it.number, it.state, it.poor_secs)).collect();
        assert_eq!(sponsors, [(0, "active", None), (1, "active", None)]);
        assert_eq!(report.signer.unwrap().state, "ready");
        let gas = report.gas.unwrap();
        assert_eq!((gas.symbol.as_str(), gas.usd, gas.unpriced), ("ETH", None, 0));
        bench.assert_healthy().await;
        assert_eq!(bench.until_ended(id).await, State::Confirmed);
        bench.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chain_on_which_no_process_sends_for_thirty_seconds_is_unhealthy_until_another_does() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine, 1).await;
        bench.settle().await;
        bench.world.pass(Duration::from_secs(30));
        assert_eq!(shown(&bench.world).await.sender.unwrap().state, "leaderless");
        bench.assert_healthy().await;
        bench.world.pass(Duration::from_secs(1));
        bench.assert_unhealthy("no process sends its transfers").await;
        bench.restart();
        bench.settle().await;
        bench.assert_healthy().await;
        bench.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signer_that_is_away_for_five_minutes_makes_unhealthy_until_it_answers() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine, 1).await;
        bench.settle().await;
        bench.signer.away(true);
        bench.pass(REPORTED.as_secs()).await;
        let signer = shown(&bench.world).await.signer.unwrap();
        assert_eq!((signer.state, signer.away_secs), ("away", Some(0)));
        assert!(signer.reason.contains("the sim was told to be away"), "{signer:?}");
        bench.pass(300).await;
        bench.assert_healthy().await;
        bench.pass(REPORTED.as_secs()).await;
        bench.assert_unhealthy("the signer does not answer").await;
        bench.signer.away(false);
        bench.pass(REPORTED.as_secs()).await;
        bench.assert_healthy().await;
        bench.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t22_a_sponsor_that_owns_too_little_for_five_minutes_makes_unhealthy_until_nodes_take_what_it_pays_for() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine, 1).await;
        bench.settle().await;
        let sponsor = bench.sponsor(0);
        let all = |from, to| SimLeg { amount: U256::from(WEALTH), ..SimLeg::native(from, to, 0) };
        let gone = bench.by_hand(vec![all(sponsor, address(PAYER))]);
        bench.world.chain.mine(vec![gone]);
        bench.follow().await;
        bench.accept(1, 1_000).await;
        bench.settle().await;
        assert_eq!(shown(&bench.world).await.sender.unwrap().sponsors[0].poor_secs, Some(0));
        bench.pass(250).await;
        bench.assert_healthy().await;
        let back = bench.by_hand(vec![all(address(PAYER), sponsor)]);
        bench.world.chain.mine(vec![back]);
        bench.pass(61).await;
        assert_eq!(shown(&bench.world).await.sender.unwrap().sponsors[0].poor_secs, None);
        let gone = bench.by_hand(vec![all(sponsor, address(PAYER))]);
        bench.world.chain.mine(vec![gone]);
        bench.world.chain.forget_pool();
        bench.pass(61).await;
        bench.world.pass(Duration::from_secs(301));
        let sender = shown(&bench.world).await.sender.unwrap();
        assert_eq!(sender.sponsors[0].poor_secs, Some(301));
        let complaints = complaints(&bench.world).await;
        let poor = "sponsor 0 owns too little to pay for transactions: fund 0x";
        assert!(complaints.iter().any(|complaint| complaint.contains(poor)), "{complaints:?}");
        bench.world.abandon();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cost_that_waits_for_its_price_for_five_minutes_makes_unhealthy_until_there_is_one() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine, 1).await;
        let id = bench.accept(1, 1_000).await;
        assert_eq!(bench.until_ended(id).await, State::Confirmed);
        bench.pass(300).await;
        assert_eq!(shown(&bench.world).await.gas.unwrap().unpriced, 1);
        bench.assert_healthy().await;
        bench.pass(REPORTED.as_secs()).await;
        bench.assert_unhealthy("wait for a price: `landfall gas price set ETH`").await;
        bench.set_price("3000").await;
        bench.settle().await;
        bench.assert_healthy().await;
        let gas = shown(&bench.world).await.gas.unwrap();
        assert_eq!((gas.usd.as_deref(), gas.price_secs, gas.unpriced), (Some("3000"), Some(0), 0));
        bench.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_accepted_and_is_not_sent_within_sixty_seconds_makes_unhealthy_until_it_is() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine, 1).await;
        bench.settle().await;
        bench.world.chain.set_not_ready(Some("its domain is another"));
        let id = bench.accept(1, 1_000).await;
        bench.pass(60).await;
        assert_eq!(bench.state(id).await, State::Accepted, "{engine:?}");
        bench.assert_healthy().await;
        bench.pass(1).await;
        bench.assert_unhealthy("1 transfers were not sent within 60 s").await;
        bench.world.chain.set_not_ready(None);
        // Until the newest block is as late as the clock.
        bench.blocks(6).await;
        assert!(bench.shown(id).await.submitted_at.is_some(), "{engine:?}");
        bench.assert_healthy().await;
        assert_eq!(bench.until_ended(id).await, State::Confirmed, "{engine:?}");
        bench.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sponsor_that_is_quarantined_makes_unhealthy_at_once_until_a_person_releases_it() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine, 2).await;
        bench.settle().await;
        let operator = bench.world.operator();
        operator.quarantine_sponsor(bench.world.db(), CHAIN, 1).await.unwrap();
        let sponsors = shown(&bench.world).await.sender.unwrap().sponsors;
        assert_eq!(sponsors.iter().map(|it| it.state).collect::<Vec<_>>(), ["active", "quarantined"], "{engine:?}");
        bench.assert_unhealthy("sponsor 1 is quarantined").await;
        let released = (SponsorState::Quarantined, SponsorState::Active);
        operator.set_sponsor(bench.world.db(), CHAIN, 1, released).await.unwrap();
        bench.assert_healthy().await;
        bench.close().await;
    }
}

#[tokio::test]
async fn what_expires_while_the_chain_stands_still_makes_unhealthy_half_an_hour_behind_its_deadline() {
    let mut bench = Bench::on(Engine::Sqlite, 1).await;
    let id = bench.accept(1, 1_000).await;
    bench.settle().await;
    bench.world.chain.forget_pool();
    let deadline = bench.shown(id).await.deadline;
    bench.world.set_clock(deadline);
    bench.settle().await;
    assert_eq!(bench.state(id).await, State::Expiring);
    assert_eq!(shown(&bench.world).await.sender.unwrap().expiring, 1);
    bench.world.set_clock(deadline.plus(Duration::from_secs(30 * 60)));
    assert!(!bench.is_unproved().await);
    bench.world.pass(Duration::from_secs(1));
    assert!(bench.is_unproved().await);
    // A final block is behind the deadline.
    bench.world.chain.mine_empty(40);
    bench.follow().await;
    assert_eq!(bench.state(id).await, State::Dropped(FailureCode::WindowElapsed));
    assert!(!bench.is_unproved().await);
    bench.close().await;
}

#[tokio::test]
async fn what_ran_out_of_time_and_is_not_proved_ten_minutes_behind_finality_makes_unhealthy() {
    let mut bench = Bench::on(Engine::Sqlite, 0).await;
    let id = bench.accept(1, 1_000).await;
    let deadline = bench.shown(id).await.deadline;
    // Nobody ticks the sender, so nothing is proved however far the blocks get.
    let limit = deadline.plus(Duration::from_secs(600));
    while bench.world.chain_time() < limit {
        assert!(!bench.is_unproved().await);
        bench.world.chain.mine_empty(1);
        bench.world.keep_time();
        bench.world.catch_up().await;
    }
    bench.world.chain.mine_empty(FINALITY_DEPTH + 1);
    bench.world.keep_time();
    bench.world.catch_up().await;
    assert!(bench.is_unproved().await);
    bench.settle().await;
    assert!(bench.state(id).await.status().is_terminal());
    assert!(!bench.is_unproved().await);
    bench.close().await;
}
