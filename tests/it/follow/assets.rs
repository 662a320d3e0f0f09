//! A listed token is what the chain says it is: while it is not, nothing of it is CONFIRMED, and all else goes on.

use std::time::Duration;

use landfall::deposit::DepositStatus::{self, Confirmed, Pending};
use landfall::incident::{Incident, IncidentKind};
use landfall::store::asset_facts::{self, AssetRow};
use landfall::watcher::explain::explain;
use landfall::watcher::{AssetWatch, Backfill, Job, Scope};
use landfall_chain::{Address, Asset, AssetFacts, AssetId, ReadProof, Terms, U256};
use landfall_sim::{SimChain, SimLeg, SimTx};

use crate::harness::postgres::{ENGINES, Engine};
use crate::harness::world::{CHAIN, FINALITY_DEPTH, TOKEN, World, address};

const ALICE: u8 = 0xa1;
const PAYER: u8 = 0x01;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const OTHER: AssetId = AssetId::Token(Address::Evm([0x72; 20]));

/// What an EVM chain reports of a contract that says so many decimals, or none.
fn contract(decimals: Option<u8>) -> AssetFacts {
    let (extensions, risks) = (Vec::new(), Vec::new());
    let terms = |decimals| Terms {
        decimals,
        freeze_authority: None,
        permanent_delegate: None,
        transfer_fee: None,
        extensions,
        risks,
    };
    let contract = "contract".to_owned();
    AssetFacts { program: Some(contract.clone()), listed_programs: vec![contract], terms: decimals.map(terms) }
}

fn no_contract() -> AssetFacts {
    AssetFacts { program: None, ..contract(None) }
}

/// A world that lists two tokens of six decimals, and what asks for them, as a process has just started it.
struct Bench {
    world: World,
    watch: AssetWatch<SimChain>,
    nonce: u64,
}

impl Bench {
    /// Where Alice is watched, and some blocks are final.
    async fn on(engine: Engine) -> Self {
        let mut world = World::on(engine, 1).await;
        world.network.assets.push(Asset {
            id: OTHER,
            symbol: "OTHER".to_owned(),
            decimals: 6,
            from_block: 0,
            route: None,
        });
        world.restart();
        world.chain.report_asset(OTHER, Some(contract(Some(6))));
        world.watch("alice", address(ALICE)).await;
        let mut watch = watch(&world);
        watch.prepare().await.unwrap();
        world.chain.mine_empty(FINALITY_DEPTH + 1);
        world.catch_up().await;
        Bench { world, watch, nonce: 0 }
    }

    /// Asks for what is due.
    async fn ask(&mut self) {
        while self.watch.tick(self.world.now()).await.unwrap().is_some() {}
    }

    /// Asks for as long as what was never reported is held for.
    async fn ask_patiently(&mut self) {
        for _ in 0..20 {
            self.ask().await;
            self.world.pass(Duration::from_secs(15));
        }
    }

    async fn ask_tomorrow(&mut self) {
        self.world.pass(DAY);
        self.ask().await;
    }

    /// As after a restart with what the network lists now.
    async fn restart(&mut self) {
        self.world.restart();
        self.watch = watch(&self.world);
        self.watch.prepare().await.unwrap();
    }

    /// As after a restart that lists these decimals.
    async fn list(&mut self, decimals: u8) {
        let token = self.world.network.assets.iter_mut().find(|asset| asset.id == TOKEN).unwrap();
        token.decimals = decimals;
        self.restart().await;
    }

    /// Mines these legs, and follows until they are final.
    async fn pay(&mut self, legs: &[(AssetId, u64)]) {
        self.nonce += 1;
        let leg = |(asset, amount): &(AssetId, u64)| SimLeg {
            asset: *asset,
            ..SimLeg::native(address(PAYER), address(ALICE), *amount)
        };
        self.world.chain.mine(vec![SimTx::new(address(PAYER), self.nonce, legs.iter().map(leg).collect())]);
        self.settle().await;
    }

    async fn settle(&mut self) {
        self.world.chain.mine_empty(FINALITY_DEPTH);
        self.world.catch_up().await;
    }

    async fn open(&self) -> Vec<Incident> {
        let mut all = self.world.incidents().await;
        all.retain(|incident| incident.resolved_at.is_none());
        all
    }

    async fn row(&self) -> AssetRow {
        asset_facts::of(&mut self.world.db().read().await.unwrap(), CHAIN, &TOKEN).await.unwrap().unwrap()
    }

    /// The status of the deposit with this amount, and how many decimals it is announced with.
    async fn deposit(&self, amount: u64) -> (DepositStatus, u8) {
        let all = self.world.deposits().await;
        let deposit = all.iter().find(|deposit| deposit.amount == U256::from(amount)).unwrap();
        (deposit.status, deposit.decimals)
    }
}

fn watch(world: &World) -> AssetWatch<SimChain> {
    AssetWatch::new(world.chain.clone(), world.db().clone(), &world.network)
}

#[tokio::test]
async fn a_token_with_other_decimals_stays_pending_until_it_is_listed_as_it_is_and_others_go_on() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine).await;
        bench.world.chain.report_asset(TOKEN, Some(contract(Some(18))));
        bench.ask().await;
        let [incident] = &bench.open().await[..] else { panic!("one incident") };
        assert_eq!(incident.kind, IncidentKind::AssetMismatch);
        let differs = format!("USDC ({TOKEN}): it has 18 decimals, and is listed with 6; until that is corrected");
        assert!(incident.what.contains(&differs), "{}", incident.what);
        bench.pay(&[(TOKEN, 5), (OTHER, 6), (AssetId::Native, 7)]).await;
        assert_eq!(bench.deposit(5).await, (Pending, 6));
        assert_eq!((bench.world.status_of(6).await, bench.world.status_of(7).await), (Confirmed, Confirmed));
        let tx = bench.world.deposits().await[0].tx.id;
        let World { chain, network, store, .. } = &bench.world;
        let explained = explain(chain, &store.db, network, tx).await.unwrap().unwrap();
        let held = explained.legs.iter().find(|leg| leg.transfer.asset == TOKEN).unwrap();
        assert!(held.why.contains("incident asset_mismatch"), "{}", held.why);

        // Neither does an override end it, nor a restart, nor a node that does not answer.
        bench.world.operator().resolve(bench.world.db(), &incident.id).await.unwrap();
        bench.world.chain.report_asset(TOKEN, None);
        bench.list(6).await;
        bench.ask_tomorrow().await;
        bench.settle().await;
        assert_eq!(bench.deposit(5).await, (Pending, 6));
        assert_eq!(bench.open().await, []);
        bench.world.chain.report_asset(TOKEN, Some(contract(Some(18))));
        bench.ask_tomorrow().await;
        assert_eq!(bench.open().await.len(), 1, "it is met again");

        // Listed as it is, it is CONFIRMED, and as what it is.
        bench.list(18).await;
        bench.settle().await;
        assert_eq!(bench.deposit(5).await, (Confirmed, 18));
        bench.ask().await;
        assert_eq!(bench.row().await.reported.unwrap().differs, "");
        assert_eq!(bench.open().await.len(), 1, "which a person resolves");
        bench.world.close().await;
    }
}

#[tokio::test]
async fn what_was_never_asked_for_waits_until_it_was_and_silence_says_nothing() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine).await;
        bench.pay(&[(TOKEN, 5), (OTHER, 6), (AssetId::Native, 7)]).await;
        let of = async |bench: &Bench| [bench.deposit(5).await.0, bench.deposit(6).await.0, bench.deposit(7).await.0];
        assert_eq!(of(&bench).await, [Pending, Pending, Confirmed]);
        // Nobody answers for one of them: it waits, also behind a restart, and not for good.
        bench.ask().await;
        bench.restart().await;
        bench.settle().await;
        assert_eq!(of(&bench).await, [Pending, Confirmed, Confirmed]);
        bench.ask_patiently().await;
        bench.settle().await;
        assert_eq!(of(&bench).await, [Confirmed; 3]);
        assert_eq!(bench.open().await, []);
        assert!(bench.row().await.reason.contains("nobody reports what"), "{:?}", bench.row().await);
        // Nor does a contract that has no `decimals()` say anything, or take back what it said.
        bench.world.chain.report_asset(TOKEN, Some(contract(None)));
        bench.ask_tomorrow().await;
        bench.pay(&[(TOKEN, 8)]).await;
        assert_eq!((bench.deposit(8).await.0, bench.open().await.len()), (Confirmed, 0));
        bench.world.chain.report_asset(TOKEN, Some(contract(Some(9))));
        bench.ask_tomorrow().await;
        bench.world.chain.report_asset(TOKEN, Some(contract(None)));
        bench.ask_tomorrow().await;
        bench.pay(&[(TOKEN, 10)]).await;
        assert_eq!((bench.deposit(10).await.0, bench.open().await.len()), (Pending, 1));
        // As it is listed.
        bench.world.chain.report_asset(TOKEN, Some(contract(Some(6))));
        bench.ask_tomorrow().await;
        bench.settle().await;
        assert_eq!(bench.deposit(10).await.0, Confirmed);
        bench.world.close().await;
    }
}

#[tokio::test]
async fn a_token_without_a_contract_is_an_incident_and_is_not_confirmed() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine).await;
        bench.world.chain.report_asset(TOKEN, Some(no_contract()));
        bench.ask().await;
        let [incident] = &bench.open().await[..] else { panic!("one incident") };
        assert!(
            incident.what.contains(&format!("USDC ({TOKEN}): there is no contract at its address")),
            "{}",
            incident.what
        );
        bench.pay(&[(TOKEN, 5)]).await;
        assert_eq!(bench.deposit(5).await.0, Pending);
        // It was deployed late, and has no `decimals()`.
        bench.world.chain.report_asset(TOKEN, Some(contract(None)));
        bench.ask_tomorrow().await;
        bench.settle().await;
        assert_eq!(bench.deposit(5).await.0, Confirmed);
        bench.world.close().await;
    }
}

#[tokio::test]
async fn a_listing_that_becomes_wrong_is_held_before_anybody_asks() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine).await;
        bench.world.chain.report_asset(TOKEN, Some(contract(Some(6))));
        bench.ask().await;
        bench.list(18).await;
        bench.pay(&[(TOKEN, 5)]).await;
        assert_eq!(bench.deposit(5).await, (Pending, 18));
        bench.ask().await;
        assert_eq!(bench.open().await.len(), 1);
        bench.list(6).await;
        bench.settle().await;
        assert_eq!(bench.deposit(5).await, (Confirmed, 6));
        bench.world.close().await;
    }
}

#[tokio::test]
async fn what_another_process_records_with_other_decimals_is_not_confirmed_before_it_has_those_of_the_chain() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine).await;
        bench.world.chain.report_asset(TOKEN, Some(contract(Some(6))));
        bench.ask().await;
        // Another process lists it with 18, follows, and never asks.
        let token = bench.world.network.assets.iter_mut().find(|asset| asset.id == TOKEN).unwrap();
        token.decimals = 18;
        bench.world.restart();
        bench.pay(&[(TOKEN, 5), (OTHER, 6)]).await;
        assert_eq!((bench.deposit(5).await, bench.deposit(6).await), ((Pending, 18), (Confirmed, 6)));
        bench.ask_tomorrow().await;
        bench.settle().await;
        assert_eq!(bench.deposit(5).await, (Confirmed, 6));
        bench.list(6).await;
        bench.world.close().await;
    }
}

#[tokio::test]
async fn who_only_reads_past_blocks_asks_for_a_token_first_that_nobody_asked_for() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine).await;
        let new = AssetId::Token(Address::Evm([0x73; 20]));
        let asset = Asset { id: new, symbol: "NEW".to_owned(), decimals: 18, from_block: 0, route: None };
        bench.world.network.assets.push(asset);
        bench.world.restart();
        let now = bench.world.now();
        watch(&bench.world).ask_unknown(now).await.unwrap();
        bench.pay(&[(new, 5)]).await;
        assert_eq!(bench.world.status_of(5).await, Pending, "nobody answered");
        bench.world.chain.report_asset(new, Some(contract(Some(6))));
        bench.restart().await;
        bench.ask().await;
        bench.settle().await;
        assert_eq!((bench.world.status_of(5).await, bench.open().await.len()), (Pending, 1));
        // What was reported already is not asked for again.
        bench.world.chain.report_asset(new, Some(contract(Some(18))));
        watch(&bench.world).ask_unknown(now).await.unwrap();
        assert_eq!(bench.world.status_of(5).await, Pending);
        bench.world.abandon();
    }
}

#[tokio::test]
async fn a_token_that_differs_and_is_listed_no_more_halts_nothing_while_deposits_of_it_are_pending() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine).await;
        bench.world.chain.report_asset(TOKEN, Some(contract(Some(18))));
        bench.ask().await;
        bench.pay(&[(TOKEN, 5)]).await;
        let assets = bench.world.network.assets.clone();
        bench.world.network.assets.retain(|asset| asset.id != TOKEN);
        bench.restart().await;
        bench.pay(&[(AssetId::Native, 7)]).await;
        assert_eq!((bench.world.status_of(5).await, bench.world.status_of(7).await), (Pending, Confirmed));
        assert_eq!(bench.open().await.len(), 1, "nothing halts");
        // Listed again, as it is.
        bench.world.network.assets = assets;
        bench.list(18).await;
        bench.settle().await;
        assert_eq!(bench.deposit(5).await, (Confirmed, 18));
        // What is not held is forgotten with its listing.
        bench.ask().await;
        bench.world.network.assets.retain(|asset| asset.id != TOKEN);
        bench.restart().await;
        let all = asset_facts::all(&mut bench.world.db().read().await.unwrap()).await.unwrap();
        assert_eq!(all.iter().map(|row| row.asset).collect::<Vec<_>>(), [OTHER]);
        bench.world.abandon();
    }
}

#[tokio::test]
async fn neither_a_tier_nor_an_operator_nor_a_backfill_confirms_what_is_held() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine).await;
        bench.world.chain.report_asset(TOKEN, Some(contract(Some(18))));
        bench.ask().await;
        bench.world.set_tiers(&[(TOKEN, 1_000, 2), (OTHER, 1_000, 2)]);
        bench.pay(&[(TOKEN, 5), (OTHER, 6)]).await;
        let backfilled = bench.world.chain.finalized().unwrap().number;
        let job = Job { from: 1, to: Some(backfilled), proof: ReadProof::Full, scope: Scope::All, dry_run: false };
        let mut backfill = Backfill::begin(bench.world.another_watcher(), job).await.unwrap();
        while !backfill.is_done() {
            backfill.step(bench.world.now()).await.unwrap();
        }
        assert_eq!((bench.world.status_of(5).await, bench.world.status_of(6).await), (Pending, Confirmed));
        bench.world.abandon();
    }
}

#[tokio::test]
async fn more_deposits_of_a_token_that_is_held_than_a_tick_settles_hold_up_no_other() {
    let mut bench = Bench::on(Engine::Sqlite).await;
    bench.world.chain.report_asset(TOKEN, Some(contract(Some(18))));
    bench.ask().await;
    let held: Vec<(AssetId, u64)> = (100..700).map(|amount| (TOKEN, amount)).collect();
    bench.pay(&held).await;
    bench.pay(&[(OTHER, 6)]).await;
    assert_eq!(bench.world.status_of(6).await, Confirmed);
    assert_eq!(bench.world.status_of(699).await, Pending);
    bench.world.abandon();
}
