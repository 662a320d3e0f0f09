//! What sponsors own, compared with the ledger every hour: all that a day brings leaves it even, what nobody booked is noticed
//! with its amount, and what a store that was set back had paid is booked again.

use std::time::Duration;

use landfall::incident::{Incident, IncidentKind};
use landfall::transfer::State;
use landfall::watcher::BalanceWatch;
use landfall_chain::{AssetId, Native, NativeSource, TxId, U256};
use landfall_sim::{GUARD_RENT, SimLeg, SimTx};

use super::{Bench, LEASE_OVER, PAYER, STRANGER, USDC, alice, token};
use crate::harness::books::rows;
use crate::harness::postgres::{ENGINES, Engine};
use crate::harness::world::{CHAIN, FINALITY_DEPTH, address};
use crate::past::rescan::execute;

/// Blocks of 12 seconds.
const HOUR_BLOCKS: u64 = 301;
/// What a transaction costs.
const FEE: u64 = 21;
/// The newest cost is as if it had never been booked.
const UNBOOK: [&str; 2] = [
    "DELETE FROM gas_unpriced WHERE entry IN (SELECT entry FROM gas_ledger WHERE kind = 'COST' ORDER BY block_number DESC, entry LIMIT 1)",
    "DELETE FROM gas_ledger WHERE entry IN (SELECT entry FROM gas_ledger WHERE kind = 'COST' ORDER BY block_number DESC, entry LIMIT 1)",
];

impl Bench {
    /// An hour in which nothing else happens.
    pub(super) async fn hour(&mut self) {
        self.world.chain.mine_empty(HOUR_BLOCKS);
        self.follow().await;
        // What was read waits until the reclaims of these blocks have ended.
        self.tick().await;
    }

    async fn unbook(&self) {
        for text in UNBOOK {
            execute(self.world.db(), text).await;
        }
    }

    /// What is open of sponsors that own otherwise than the ledger says.
    pub(super) async fn differing(&self) -> Vec<Incident> {
        let incidents = self.world.incidents().await.into_iter();
        incidents.filter(|it| it.kind == IncidentKind::LedgerDiffers && it.resolved_at.is_none()).collect()
    }

    /// Of each sponsor the block of its newest reading.
    async fn read_at(&self) -> Vec<i64> {
        let text =
            "SELECT b.number FROM sponsor_books AS b JOIN sponsors AS s ON s.address = b.sponsor ORDER BY s.number";
        rows(self.world.db(), text).await.into_iter().map(|(number,)| number).collect()
    }

    /// The books are even through the newest final block.
    pub(super) async fn assert_even(&self) {
        assert_eq!(self.differing().await, []);
        let through = i64::try_from(self.world.chain.finalized().unwrap().number).unwrap();
        let read_at = self.read_at().await;
        assert!(!read_at.is_empty() && read_at.iter().all(|number| through - number < 60), "{read_at:?} {through}");
    }

    /// Each cost of the ledger: transaction, transfer and who bears it.
    async fn costs(&self) -> Vec<(TxId, Option<String>, String)> {
        let text = "SELECT tx_id, transfer_id, bearer FROM gas_ledger WHERE kind = 'COST' ORDER BY block_number, entry";
        let costs: Vec<(Vec<u8>, Option<String>, String)> = rows(self.world.db(), text).await;
        costs.into_iter().map(|(tx, of, bearer)| (TxId::from_bytes(&tx).unwrap(), of, bearer)).collect()
    }

    /// Native currency from a stranger to a sponsor.
    fn fund(&mut self, number: u32, amount: u64) {
        let leg = SimLeg::native(address(PAYER), self.sponsor(number), amount);
        let funding = self.by_hand(vec![leg]);
        self.world.chain.mine(vec![funding]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hours_of_payments_failures_cancellations_and_clearings_leave_the_books_even() {
    for engine in ENGINES {
        let mut bench = Bench::delegated(engine, 2).await;
        bench.settle().await;
        bench.hour().await;
        bench.assert_even().await;
        let first = bench.read_at().await;
        for n in 0..3 {
            bench.pay(n).await;
        }
        // Its delegate is taken away meanwhile.
        bench.blocks(10).await;
        bench.hour().await;
        assert!(!bench.world.chain.clearings().is_empty());
        let failed = bench.accept(4, 9_000_000).await;
        bench.settle().await;
        let gone = bench.by_hand(vec![token(alice(), address(PAYER), USDC - 3_000)]);
        bench.world.chain.mine(vec![gone]);
        assert!(matches!(bench.until_ended(failed).await, State::Failed(_) | State::Dropped(_)));
        bench.world.operator().release_wallets(bench.world.db(), "alice").await.unwrap();
        bench.fund(0, 5_000_000);
        bench.hour().await;
        bench.assert_even().await;
        assert!(bench.read_at().await.iter().zip(first).all(|(newest, first)| *newest >= first + 500));
        bench.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_treasury_gives_is_no_difference_of_either() {
    for engine in ENGINES {
        let mut bench = Bench::refilling(engine, 1).await;
        bench.world.chain.set_carrier_fee(FEE);
        // Both are read, and the refill is in the pool.
        bench.hour().await;
        assert_eq!((bench.read_at().await.len(), bench.world.chain.refills().len()), (2, 0));
        bench.blocks(FINALITY_DEPTH + 2).await;
        bench.hour().await;
        assert_eq!(bench.world.chain.refills().len(), 1);
        bench.assert_even().await;
        bench.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cost_that_is_not_booked_is_an_incident_within_the_hour_with_blocks_balances_and_difference() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine, 2).await;
        bench.settle().await;
        bench.hour().await;
        let had: Vec<i64> = bench.read_at().await;
        bench.pay(1).await;
        bench.unbook().await;
        // What came is no difference, and hides none.
        bench.fund(0, 1_000);
        bench.blocks(FINALITY_DEPTH).await;
        assert_eq!(bench.differing().await, [], "they are not read yet");
        bench.hour().await;
        let [incident] = &bench.differing().await[..] else { panic!("one incident") };
        let has = bench.read_at().await;
        assert_eq!(incident.block_number, u64::try_from(has[0]).ok());
        let (sponsor, asset) = incident.holding.unwrap();
        let number = u32::from(sponsor != bench.sponsor(0));
        assert_eq!((sponsor, asset), (bench.sponsor(number), AssetId::Native));
        let [owned, owns] =
            [had[0], has[0]].map(|at| bench.world.chain.balance(&sponsor, &asset, u64::try_from(at).unwrap()));
        let should = owns + U256::from(FEE);
        for said in [
            format!("sponsor {number} ({sponsor})"),
            format!("owns {FEE} base units of ETH less than the ledger says"),
            format!("after block {} (", had[0]),
            format!("it owned {owned}"),
            format!("it should own {should}, and after block {} (", has[0]),
            format!("it owns {owns}"),
        ] {
            assert!(incident.what.contains(&said), "{said}: {}", incident.what);
        }
        // Nothing is held up, and what is even later changes nothing of it.
        bench.pay(2).await;
        bench.hour().await;
        assert_eq!(bench.differing().await, std::slice::from_ref(incident));
        bench.close_uneven().await;
    }
}

impl Bench {
    /// The ledger was forged, and nothing else is wrong.
    async fn close_uneven(self) {
        super::assert_truthful(&self.world).await;
        self.world.close().await;
    }
}

#[tokio::test]
async fn the_open_incident_counts_from_its_first_reading_and_a_resolved_one_from_the_newest() {
    let mut bench = Bench::on(Engine::Sqlite, 1).await;
    bench.settle().await;
    bench.hour().await;
    let mut opened = Vec::new();
    for (n, by) in [(1, FEE), (2, 2 * FEE)] {
        bench.pay(n).await;
        bench.unbook().await;
        bench.hour().await;
        let [incident] = &bench.differing().await[..] else { panic!("one incident") };
        assert!(incident.what.contains(&format!("owns {by} base units of ETH less")), "{}", incident.what);
        opened.push(incident.id.clone());
    }
    assert_eq!(opened[0], opened[1]);
    bench.world.operator().resolve(bench.world.db(), &opened[0]).await.unwrap();
    bench.hour().await;
    bench.assert_even().await;
    bench.pay(3).await;
    bench.unbook().await;
    bench.hour().await;
    let [incident] = &bench.differing().await[..] else { panic!("one incident") };
    assert!(incident.what.contains(&format!("owns {FEE} base units of ETH less")), "{}", incident.what);
    assert_ne!(incident.id, opened[0]);
    bench.close_uneven().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_guards_lock_and_what_comes_back_of_them_is_in_the_books() {
    for engine in ENGINES {
        let mut bench = Bench::guarded(engine).await;
        bench.world.network.sending.guard_retention_hours = 1;
        bench.sender = super::sender(&bench.world, &bench.signer, 0);
        bench.settle().await;
        bench.hour().await;
        bench.assert_even().await;
        // The first one makes an account of the token, too.
        bench.world.chain.miss_accounts(true);
        bench.pay(1).await;
        bench.world.chain.miss_accounts(false);
        bench.pay(2).await;
        bench.fund(0, 1_000);
        bench.hour().await;
        bench.assert_even().await;
        for _ in 0..2 {
            bench.hour().await;
            bench.block().await;
        }
        bench.hour().await;
        assert_eq!(bench.world.chain.landed_reclaims(), (1, 0));
        bench.assert_even().await;
        bench.pay(3).await;
        execute(bench.world.db(), "DELETE FROM guards WHERE state = 'standing'").await;
        bench.hour().await;
        let [incident] = &bench.differing().await[..] else { panic!("one incident") };
        assert!(incident.what.contains(&format!("owns {GUARD_RENT} base units of ETH less")), "{}", incident.what);
        bench.close_uneven().await;
    }
}

#[tokio::test]
async fn what_nobody_here_signed_is_one_incident_and_the_books_take_it_for_explained() {
    let mut bench = Bench::on(Engine::Sqlite, 2).await;
    bench.settle().await;
    bench.hour().await;
    let stolen = SimLeg::native(bench.sponsor(0), address(STRANGER), 77_000);
    bench.world.chain.mine(vec![SimTx::new(bench.sponsor(0), 0, vec![stolen])]);
    bench.hour().await;
    assert_eq!(bench.foreign().await.len(), 1);
    bench.assert_even().await;
    // Sent by hand before a person released it, and final after that.
    bench.world.chain.mine(vec![SimTx::new(bench.sponsor(0), 1, Vec::new())]);
    bench.follow().await;
    bench.hour().await;
    assert_eq!(bench.foreign().await.len(), 1);
    bench.assert_even().await;
    bench.close().await;
}

#[tokio::test]
async fn more_than_there_should_be_counts_only_where_all_that_comes_is_seen() {
    for is_seen in [false, true] {
        let mut bench = Bench::on(Engine::Sqlite, 1).await;
        bench.settle().await;
        if is_seen {
            bench.world.pass(Duration::from_secs(120));
            let mut network = bench.world.network.clone();
            network.native = Native { source: NativeSource::TopLevel, eip7708_from: Some(0) };
            let owner = "two".to_owned();
            let mut watch = BalanceWatch::new(bench.world.chain.clone(), bench.world.db().clone(), &network, 20, owner);
            watch.tick(bench.world.now(), 0).await.unwrap();
        }
        bench.hour().await;
        // The fees of a block, as no leg shows them.
        bench.world.chain.mine_empty(1);
        bench.world.chain.shift_balance(bench.sponsor(0), AssetId::Native, 7);
        bench.hour().await;
        let differing = bench.differing().await;
        assert_eq!(differing.len(), usize::from(is_seen), "{differing:?}");
        assert!(differing.iter().all(|it| it.what.contains("owns 7 base units of ETH more")), "{differing:?}");
        // Less than there should be counts everywhere.
        bench.world.chain.mine_empty(1);
        bench.world.chain.shift_balance(bench.sponsor(0), AssetId::Native, -9);
        bench.hour().await;
        let [incident] = &bench.differing().await[..] else { panic!("one incident") };
        let by = if is_seen { 2 } else { 9 };
        assert!(incident.what.contains(&format!("owns {by} base units of ETH less")), "{}", incident.what);
        bench.close_uneven().await;
    }
}

#[tokio::test]
async fn what_cannot_be_read_or_is_of_no_sponsor_yet_is_asked_for_again() {
    let mut bench = Bench::on(Engine::Sqlite, 2).await;
    bench.settle().await;
    bench.blocks(FINALITY_DEPTH).await;
    assert_eq!(bench.read_at().await, Vec::<i64>::new(), "what came before they were watched is not seen");
    bench.world.chain.dispute_holdings([bench.sponsor(1)]);
    bench.blocks(6).await;
    assert_eq!(bench.read_at().await.len(), 1, "endpoints do not agree about the other one");
    bench.world.chain.dispute_holdings([]);
    bench.world.chain.withhold_holdings(true);
    bench.blocks(6).await;
    assert_eq!(bench.read_at().await.len(), 1);
    bench.world.chain.withhold_holdings(false);
    bench.blocks(6).await;
    assert_eq!(bench.read_at().await.len(), 2);
    bench.close().await;
}

#[tokio::test]
async fn a_reading_of_a_later_block_waits_until_that_is_final_here() {
    let mut bench = Bench::on(Engine::Sqlite, 1).await;
    bench.settle().await;
    bench.hour().await;
    let first = bench.read_at().await;
    bench.pay(1).await;
    // As nodes of Solana, which report what is final for them.
    let ahead = bench.world.chain.latest().number + HOUR_BLOCKS;
    bench.world.chain.report_holdings_of(Some((ahead, ahead)));
    bench.hour().await;
    assert_eq!(bench.read_at().await, first);
    bench.blocks(FINALITY_DEPTH).await;
    assert_eq!(bench.read_at().await, [i64::try_from(ahead).unwrap()]);
    assert_eq!(bench.differing().await, []);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_store_that_was_set_back_had_paid_is_booked_again_for_the_platform() {
    for (engine, with_journal) in [(Engine::Sqlite, true), (Engine::Sqlite, false), (Engine::Postgres, true)] {
        let mut bench = Bench::on(engine, 1).await;
        bench.settle().await;
        bench.hour().await;
        let known = bench.accept(1, 1_000).await;
        let backup = bench.world.store.back_up().await;
        assert_eq!(bench.until_ended(known).await, State::Confirmed);
        let lost = bench.pay(2).await;
        let [of_known, of_lost] = [known, lost].map(|id| bench.payments(id)[0].tx);
        let journal =
            if with_journal { bench.signer.clone() } else { landfall_sim::SimSigner::of(bench.world.chain.clone()) };
        let restored = bench.world.store.restored(&backup).await;
        let world = bench.world.beside(restored);
        std::mem::replace(&mut bench.world, world).abandon();
        bench.signer = journal;
        bench.world.operator().recover_sending(bench.world.db(), &[CHAIN]).await.unwrap();
        bench.world.pass(LEASE_OVER);
        bench.sender = super::sender(&bench.world, &bench.signer, 1_000);
        bench.follow().await;
        assert_eq!(bench.state(known).await, State::Confirmed);
        let platform = || "PLATFORM".to_owned();
        // The request for the other one was not made again when its cost was booked.
        let booked = [(of_known, Some(known.to_string()), platform()), (of_lost, None, platform())];
        assert_eq!(bench.costs().await, booked, "with its journal: {with_journal}");
        bench.until_recovered().await;
        assert_eq!(bench.accept(2, 1_000).await, lost);
        bench.hour().await;
        assert_eq!((bench.state(lost).await, bench.costs().await.len()), (State::Confirmed, 2));
        assert_eq!(bench.foreign().await, []);
        bench.assert_even().await;
        bench.close().await;
    }
}
