//! When an address is read, by whom, and what becomes of a reading that fails or comes late.

use std::time::Duration;

use axum::http::StatusCode;
use landfall::account::{AccountType, NewAccount};
use landfall::registry;
use landfall::store::Db;
use landfall::store::balances::{self, Reading, Reason};
use landfall::store::cursors::{self, Cursor};
use landfall::store::leases;
use landfall::time::Timestamp;
use landfall::watcher::{BalanceWatch, BalancesRead};
use landfall_chain::{
    Address, AssetId, BlockHash, BlockRef, Header, HoldingSource, Holdings, Proof, SourceError, U256,
};
use landfall_sim::{SimChain, SimLeg, SimTx};

use super::{ALICE, BOB, Bench, DAY, MINUTE, PAYER, add, alarms, asset, pay, watch, watch_by};
use crate::harness::postgres::ENGINES;
use crate::harness::world::{CHAIN, FINALITY_DEPTH, TOKEN, address};

/// After which another process takes over.
const LEASE: Duration = MINUTE;
const LEASE_NAME: &str = "balances ETHEREUM_TESTNET";

#[tokio::test]
async fn what_is_listed_later_is_no_more_due_at_a_time_than_is_looked_through_at_once() {
    const ACCOUNTS: u16 = 2_500;
    for engine in ENGINES {
        let mut bench = Bench::on(engine).await;
        let accounts = (0..ACCOUNTS).map(|number| {
            let mut bytes = [0xcc; 20];
            bytes[..2].copy_from_slice(&number.to_be_bytes());
            let addresses = [(CHAIN, Address::Evm(bytes))].into();
            NewAccount { id: format!("many-{number}"), identity_id: None, kind: AccountType::Segregated, addresses }
        });
        registry::add_accounts(bench.world.db(), &accounts.collect::<Vec<_>>(), bench.world.now()).await.unwrap();
        bench.watch.release().await.unwrap();
        bench.watch = watch_by(&bench.world, "one", 500);
        bench.read_whole().await;
        bench.world.network.assets.push(asset(0x72, "EURC"));
        let mut bench = bench.restarted().await;
        bench.watch = watch_by(&bench.world, "one", 100);
        let (mut lacking, mut most_due) = (0, 0);
        loop {
            let read = bench.read().await;
            lacking += read.lacking;
            let mut reader = bench.world.db().read().await.unwrap();
            let due = balances::queued(&mut reader, CHAIN, Reason::Listed, bench.world.now(), u32::MAX).await.unwrap();
            most_due = most_due.max(due.len());
            if read.read == 0 {
                break;
            }
        }
        assert_eq!(lacking, usize::from(ACCOUNTS) + 1, "each of them, and Alice");
        assert!((1..=1_000).contains(&most_due), "{most_due} were due at once");
        bench.world.close().await;
    }
}

#[tokio::test]
async fn a_reading_that_fails_changes_nothing_and_is_tried_again() {
    let mut bench = Bench::new().await;
    bench.world.chain.withhold_holdings(true);
    assert_eq!(bench.read().await, BalancesRead { read: 0, unreported: 1, lacking: 0 });
    bench.assert_unknown("alice", "ETHEREUM_TESTNET").await;
    let asked = bench.world.chain.holdings_reported();
    bench.read().await;
    assert_eq!(bench.world.chain.holdings_reported(), asked, "it rests first");
    bench.world.pass(MINUTE);
    bench.world.chain.withhold_holdings(false);
    assert_eq!(bench.read().await.read, 1);
    let known = bench.line("alice", "ETH").await;

    // A payment came, and nobody reports: what was known stays, with its block.
    bench.world.chain.mine(vec![pay(PAYER, 0, ALICE, 5_000)]);
    bench.world.chain.withhold_holdings(true);
    bench.follow(FINALITY_DEPTH).await;
    assert_eq!(bench.read().await.unreported, 1);
    assert_eq!(bench.line("alice", "ETH").await, known);
    bench.world.pass(MINUTE);
    bench.world.chain.withhold_holdings(false);
    bench.read_all().await;
    assert_eq!(bench.line("alice", "ETH").await.0, known.0 + U256::from(5_000));
    bench.world.close().await;
}

#[tokio::test]
async fn an_address_that_endpoints_report_differently_waits_and_delays_no_other() {
    let mut bench = Bench::new().await;
    let disputed: Vec<Address> = (1..=30).map(|who| Address::Evm([who; 20])).collect();
    for (index, who) in disputed.iter().enumerate() {
        add(&bench.world, &format!("d-{index}"), &[(CHAIN, *who)]).await;
    }
    bench.world.chain.dispute_holdings(disputed);
    for _ in 0..10 {
        bench.read().await;
    }
    bench.assert_unknown("d-0", "ETHEREUM_TESTNET").await;
    assert_eq!(bench.balances("alice").await.0, StatusCode::OK, "she was added before them");
    bench.world.watch("bob", address(BOB)).await;
    bench.follow(FINALITY_DEPTH).await;
    bench.read().await;
    assert_eq!(bench.balances("bob").await.0, StatusCode::OK, "he was added after them");
    bench.world.chain.dispute_holdings([]);
    bench.world.pass(MINUTE);
    bench.read_all().await;
    assert_eq!(bench.balances("d-0").await.0, StatusCode::OK);
    bench.world.close().await;
}

#[tokio::test]
async fn many_accounts_are_read_few_at_a_time_the_newest_first_and_all_in_the_end() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine).await;
        let mut all = Vec::new();
        for index in 0..150_u8 {
            let mut who = [0xcc; 20];
            who[0] = index;
            all.push((format!("c-{index}"), Address::Evm(who)));
        }
        for (account, who) in &all {
            add(&bench.world, account, &[(CHAIN, *who)]).await;
            bench.world.pass(Duration::from_millis(1));
        }
        bench.follow(FINALITY_DEPTH).await;
        bench.read().await;
        assert!(bench.world.chain.holdings_reported() <= 20);
        assert_eq!(bench.balances("c-149").await.0, StatusCode::OK);
        let mut ticks = 1;
        while bench.read().await != BalancesRead::default() {
            ticks += 1;
            assert!(bench.world.chain.holdings_reported() <= 20 * ticks);
        }
        assert_eq!(bench.world.chain.holdings_reported(), 151, "nobody is read twice");
        assert_eq!(bench.balances("c-0").await.0, StatusCode::OK);
        // A day later all are read again, a few at a time.
        bench.world.pass(DAY + MINUTE);
        bench.follow(1).await;
        assert!((1..=5).contains(&bench.read().await.read));
        bench.read_all().await;
        let at = bench.final_number();
        for account in ["c-0", "c-77", "c-149", "alice"] {
            assert_eq!(bench.line(account, "ETH").await.2, at);
        }
        bench.world.close().await;
    }
}

#[tokio::test]
async fn what_moved_without_a_trace_is_found_by_the_slow_round() {
    let mut bench = Bench::new().await;
    bench.read_all().await;
    let (had, ..) = bench.line("alice", "ETH").await;
    // The network is not traced: nobody sees this.
    let leg = SimLeg::inner(address(PAYER), address(ALICE), 5_000);
    bench.world.chain.mine(vec![SimTx::new(address(PAYER), 0, vec![leg])]);
    bench.follow(FINALITY_DEPTH).await;
    assert_eq!(bench.read().await, BalancesRead::default());
    assert_eq!(bench.line("alice", "ETH").await.0, had);
    bench.world.pass(DAY + MINUTE);
    bench.read_all().await;
    assert_eq!(bench.line("alice", "ETH").await.0, had + U256::from(5_000));
    bench.world.abandon();
}

#[tokio::test]
async fn what_a_reorg_below_final_blocks_made_untrue_is_forgotten_and_read_again() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine).await;
        bench.world.chain.mine(vec![pay(PAYER, 0, ALICE, 5_000)]);
        bench.follow(FINALITY_DEPTH).await;
        bench.read_all().await;
        let at = bench.final_number();
        bench.world.chain.fork_at(2);
        bench.world.chain.mine_empty(at);
        bench.world.chain.claim_final(bench.world.chain.blocks()[3].header.block);
        bench.world.try_tick().await.unwrap_err();
        bench.world.chain.set_finality_depth(None);
        bench.world.chain.claim_final(bench.world.chain.blocks()[2].header.block);
        assert_eq!(bench.line("alice", "ETH").await.2, at, "until a person decides");
        bench.world.operator().accept_reorg(bench.world.db(), CHAIN).await.unwrap();
        for _ in 0..5 {
            bench.world.tick_or_fail_for_now().await;
        }
        bench.assert_unknown("alice", "ETHEREUM_TESTNET").await;
        bench.read_all().await;
        assert_eq!(bench.line("alice", "ETH").await.2, 2, "of the newest block that is final now");
        bench.world.chain.set_finality_depth(Some(FINALITY_DEPTH));
        bench.follow(FINALITY_DEPTH * 2).await;
        bench.read_all().await;
        let at = bench.final_number();
        assert_eq!(bench.line("alice", "ETH").await.0, bench.has(ALICE, &AssetId::Native, at));
        bench.world.abandon();
    }
}

/// Reports what is held after an operator had final blocks disconnected.
struct TakenBackMeanwhile {
    chain: SimChain,
    db: Db,
    to: BlockRef,
    /// Another block stands at its number, and is final already.
    another_is_final: bool,
}

impl HoldingSource for TakenBackMeanwhile {
    async fn holdings(
        &self,
        addresses: &[Address],
        assets: &[AssetId],
        at: &BlockRef,
    ) -> Result<Holdings, SourceError> {
        let held = self.chain.holdings(addresses, assets, at).await;
        let mut tx = self.db.begin().await.unwrap();
        Cursor::refinalize(&mut tx, CHAIN, &self.to).await.unwrap();
        if self.another_is_final {
            cursors::disconnect(&mut tx, CHAIN, &self.to).await.unwrap();
            let block = BlockRef { hash: BlockHash([9; 32]), ..*at };
            let header = Header { block, parent: self.to, time_secs: 0 };
            cursors::anchor(&mut tx, CHAIN, &header).await.unwrap();
            Cursor::finalize(&mut tx, CHAIN, &block).await.unwrap();
        }
        tx.commit().await.unwrap();
        held
    }
}

#[tokio::test]
async fn a_reading_of_a_block_that_was_taken_back_meanwhile_is_not_recorded() {
    for engine in ENGINES {
        for another_is_final in [false, true] {
            let mut bench = Bench::on(engine).await;
            bench.watch.release().await.unwrap();
            let (chain, db) = (bench.world.chain.clone(), bench.world.db().clone());
            let to = bench.world.chain.blocks()[0].header.block;
            let source = TakenBackMeanwhile { chain, db: db.clone(), to, another_is_final };
            let mut watch = BalanceWatch::new(source, db, &bench.world.network, 20, "two".to_owned());
            assert_eq!(watch.tick(bench.world.now(), 0).await.unwrap().read, 0);
            bench.assert_unknown("alice", "ETHEREUM_TESTNET").await;
            bench.world.abandon();
        }
    }
}

#[tokio::test]
async fn an_older_reading_never_takes_the_place_of_a_newer_one() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine).await;
        bench.read_all().await;
        let known = bench.line("alice", "ETH").await;
        let who = address(ALICE);
        // Nor does one endpoint's report of the same block replace what two reported.
        for (number, proof, counts) in [
            (known.2 - 1, Proof::TwoEndpoints, false),
            (known.2, Proof::OneEndpoint, false),
            (known.2, Proof::TwoEndpoints, true),
        ] {
            let (asset, amount) = (AssetId::Native, U256::from(7));
            let reading = Reading { address: &who, asset, amount, number, hash: None, proof };
            let mut tx = bench.world.db().begin().await.unwrap();
            assert_eq!(balances::set(&mut tx, CHAIN, &reading, true, bench.world.now()).await.unwrap(), counts);
            tx.commit().await.unwrap();
            let expected = if counts { (U256::from(7), U256::from(7), known.2) } else { known };
            assert_eq!(bench.line("alice", "ETH").await, expected);
        }
        bench.world.close().await;
    }
}

#[tokio::test]
async fn a_token_that_nobody_reports_keeps_no_other_unknown_and_is_not_asked_for_again_and_again() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine).await;
        for who in 1..=4 {
            add(&bench.world, &format!("c-{who}"), &[(CHAIN, Address::Evm([who; 20]))]).await;
        }
        bench.world.chain.leave_unreported([TOKEN]);
        let since = bench.world.now();
        bench.read_whole().await;
        assert_eq!(bench.world.chain.holdings_reported(), 5, "nobody is read again for the token");
        for account in ["alice", "c-1", "c-4"] {
            bench.assert_unknown(account, "ETHEREUM_TESTNET (USDC)").await;
            let (status, body) = bench.get(&format!("/v2/accounts/{account}/balances?symbol=ETH")).await;
            assert_eq!(status, StatusCode::OK, "{body}");
        }
        assert_eq!(alarms(&bench).await, [""; 0]);
        bench.world.pass(MINUTE * 30);
        let alarm = format!("balances: since {since} no endpoint reports who holds how much of {TOKEN}");
        assert_eq!(alarms(&bench).await, [alarm]);
        bench.world.chain.leave_unreported([]);
        bench.world.pass(MINUTE * 31);
        bench.read_all().await;
        assert_eq!(alarms(&bench).await, [""; 0]);
        let has = bench.has(1, &TOKEN, bench.final_number());
        assert_eq!(bench.line("c-1", "USDC").await, (has, has, bench.final_number()));
        bench.world.close().await;
    }
}

#[tokio::test]
async fn words_of_two_blocks_are_one_when_nothing_moved_between_and_none_is_of_a_block_that_was_not_read() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine).await;
        let at = bench.final_number();
        let newest = bench.world.chain.latest().number;
        // It may have come by deposits that nobody has seen.
        bench.world.chain.report_holdings_of(Some((newest + 1, newest + 1)));
        assert_eq!(bench.read().await, BalancesRead { read: 0, unreported: 1, lacking: 0 });
        bench.assert_unknown("alice", "ETHEREUM_TESTNET").await;
        // What is older than what was asked for is no answer either.
        for reported_of in [(at + 1, newest + 1), (at - 1, at)] {
            bench.world.pass(MINUTE * 60);
            bench.world.chain.report_holdings_of(Some(reported_of));
            assert_eq!(bench.read().await, BalancesRead { read: 0, unreported: 1, lacking: 0 }, "{reported_of:?}");
        }
        bench.world.pass(MINUTE * 60);
        bench.world.chain.report_holdings_of(Some((at + 1, newest)));
        assert_eq!(bench.read().await.read, 1);
        assert_eq!(bench.line("alice", "ETH").await.2, at + 1);

        bench.world.chain.mine(vec![pay(ALICE, 0, BOB, 700)]);
        let first = bench.world.chain.latest().number;
        bench.world.chain.mine_empty(2);
        bench.world.chain.mine(vec![pay(ALICE, 1, BOB, 700)]);
        bench.follow(FINALITY_DEPTH - 3).await;
        assert_eq!(bench.final_number(), first);
        bench.world.chain.report_holdings_of(Some((first, first + 3)));
        assert_eq!(
            bench.read().await,
            BalancesRead { read: 0, unreported: 1, lacking: 0 },
            "the second payment is in one"
        );
        assert_eq!(bench.line("alice", "ETH").await.2, at + 1);
        bench.world.pass(MINUTE * 60);
        bench.world.chain.report_holdings_of(Some((first, first + 2)));
        assert_eq!(bench.read().await.read, 1);
        assert_eq!(bench.line("alice", "ETH").await.2, first);
        bench.world.close().await;
    }
}

#[tokio::test]
async fn one_of_two_processes_reads_and_the_other_takes_over_when_it_says_nothing() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine).await;
        let mut other = watch(&bench.world, "two");
        assert_eq!(other.tick(bench.world.now(), 0).await.unwrap(), BalancesRead::default());
        assert_eq!(bench.world.chain.holdings_reported(), 0);
        assert_eq!(bench.read().await.read, 1);
        bench.world.pass(LEASE - Duration::from_secs(1));
        assert_eq!(other.tick(bench.world.now(), 0).await.unwrap(), BalancesRead::default());
        bench.read().await;
        bench.world.pass(LEASE - Duration::from_secs(1));
        bench.world.watch("bob", address(BOB)).await;
        assert_eq!(other.tick(bench.world.now(), 0).await.unwrap(), BalancesRead::default(), "it was said again");
        bench.world.pass(LEASE);
        assert_eq!(other.tick(bench.world.now(), 0).await.unwrap().read, 1);
        assert_eq!(bench.read().await, BalancesRead::default());
        assert_eq!(bench.world.chain.holdings_reported(), 2);
        other.release().await.unwrap();
        bench.follow(FINALITY_DEPTH).await;
        assert_eq!(bench.read().await.read, 1, "at once");
        bench.world.close().await;
    }
}

/// Reports what is held after another process has taken over.
struct TakenOverMeanwhile {
    chain: SimChain,
    world: Db,
    now: Timestamp,
}

impl HoldingSource for TakenOverMeanwhile {
    async fn holdings(
        &self,
        addresses: &[Address],
        assets: &[AssetId],
        at: &BlockRef,
    ) -> Result<Holdings, SourceError> {
        let mut tx = self.world.begin().await.unwrap();
        let later = self.now.plus(LEASE * 2);
        leases::take(&mut tx, LEASE_NAME, "two", later, LEASE).await.unwrap().unwrap();
        tx.commit().await.unwrap();
        self.chain.holdings(addresses, assets, at).await
    }
}

#[tokio::test]
async fn who_was_taken_over_from_while_it_read_writes_nothing() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine).await;
        bench.watch.release().await.unwrap();
        let (chain, db, now) = (bench.world.chain.clone(), bench.world.db().clone(), bench.world.now());
        let source = TakenOverMeanwhile { chain, world: db.clone(), now };
        let mut watch = BalanceWatch::new(source, db, &bench.world.network, 20, "one".to_owned());
        assert_eq!(watch.tick(now, 0).await.unwrap(), BalancesRead { lacking: 1, ..BalancesRead::default() });
        assert_eq!(bench.world.chain.holdings_reported(), 1);
        bench.assert_unknown("alice", "ETHEREUM_TESTNET").await;
        bench.world.close().await;
    }
}
