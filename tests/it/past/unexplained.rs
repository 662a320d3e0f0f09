//! What addresses hold and nothing on record explains: it is reported once and is no deposit, and nothing else is
//! reported.

use std::time::Duration;

use landfall::balance::{Readings, Unexplained};
use landfall::deposit::DepositStatus::Confirmed;
use landfall::store::unexplained::{self, Entry};
use landfall::store::{Connection, Db, Engine as Connected};
use landfall::watcher::{Backfill, BalanceWatch, BalancesRead, Job, Scope};
use landfall_chain::{Address, AssetId, Native, NativeSource, ReadProof, U256};
use landfall_sim::{SimChain, SimLeg, SimTx};

use crate::harness::postgres::{ENGINES, Engine};
use crate::harness::world::{CHAIN, FINALITY_DEPTH, TOKEN, World, address};

const ALICE: u8 = 0xa1;
const BOB: u8 = 0xb0;
const PAYER: u8 = 0x01;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const MINUTE: Duration = Duration::from_secs(60);
const ETH: AssetId = AssetId::Native;
const NOTHING: [(u8, AssetId, i64); 0] = [];

/// A world whose balances are read.
pub(crate) struct Bench {
    pub(crate) world: World,
    pub(crate) watch: BalanceWatch<SimChain>,
    nonce: u64,
}

impl Bench {
    /// Where Alice is watched and was read, on a network that shows all that moves.
    pub(crate) async fn on(engine: Engine) -> Self {
        Bench::of(World::traced(engine, 1).await).await
    }

    pub(crate) async fn of(world: World) -> Self {
        let mut bench = Bench { watch: watch(&world, "one"), world, nonce: 0 };
        // The assets are followed from the first block on.
        assert_eq!(bench.watch.tick(bench.world.now(), 0).await.unwrap(), BalancesRead::default());
        bench.world.watch("alice", address(ALICE)).await;
        bench.follow(FINALITY_DEPTH + 1).await;
        bench.read_all().await;
        bench
    }

    /// As after a restart, with what the world's network says now.
    pub(crate) async fn restart(&mut self) {
        self.watch.release().await.unwrap();
        self.watch = watch(&self.world, "one");
        self.world.restart();
    }

    /// Mines empty blocks, and follows the chain to its end.
    pub(crate) async fn follow(&mut self, blocks: u64) {
        self.world.chain.mine_empty(blocks);
        self.world.catch_up().await;
    }

    /// Reads until nothing is due.
    pub(crate) async fn read_all(&mut self) {
        for _ in 0..100 {
            if self.watch.tick(self.world.now(), 0).await.unwrap() == BalancesRead::default() {
                return;
            }
        }
        panic!("there is always something due");
    }

    /// Mines these legs in a transaction of this payer's, and reads once they are final.
    pub(crate) async fn pay(&mut self, signer: u8, legs: Vec<SimLeg>) {
        self.mine(signer, legs);
        self.settle().await;
    }

    pub(crate) fn mine(&mut self, signer: u8, legs: Vec<SimLeg>) {
        self.nonce += 1;
        self.world.chain.mine(vec![SimTx::new(address(signer), self.nonce, legs)]);
    }

    pub(crate) async fn settle(&mut self) {
        self.follow(FINALITY_DEPTH).await;
        self.read_all().await;
    }

    /// A day passes, after which all are read again.
    pub(crate) async fn next_day(&mut self) {
        self.world.pass(DAY + MINUTE);
        self.settle().await;
    }

    /// What is not explained, oldest first: whose, of what, by how much.
    pub(crate) async fn reported(&self) -> Vec<(u8, AssetId, i64)> {
        let mut reported = open(self.world.db()).await;
        reported.reverse();
        let signed = reported.into_iter().map(|(readings, difference)| {
            let Address::Evm(bytes) = readings.address else { panic!("an address of EVM chains") };
            let size = |amount: U256| i64::try_from(amount).unwrap();
            let by = match difference {
                Unexplained::More(amount) => size(amount),
                Unexplained::Less(amount) => -size(amount),
            };
            (bytes[0], readings.asset, by)
        });
        signed.collect()
    }
}

pub(crate) fn watch(world: &World, owner: &str) -> BalanceWatch<SimChain> {
    BalanceWatch::new(world.chain.clone(), world.db().clone(), &world.network, 20, owner.to_owned())
}

/// All entries on record, also of what is explained by now, newest first.
pub(crate) async fn entries(db: &Db) -> Vec<Entry> {
    let (mut reader, mut all) = (db.read().await.unwrap(), Vec::<Entry>::new());
    loop {
        // In pages of two, so that there are several.
        let page = unexplained::list(&mut reader, CHAIN, all.last(), 2).await.unwrap();
        if page.is_empty() {
            return all;
        }
        all.extend(page);
    }
}

/// Those that are not explained.
async fn open(db: &Db) -> Vec<(Readings, Unexplained)> {
    let mut open = Vec::new();
    for Entry { readings, .. } in entries(db).await {
        let moved = unexplained::moved(&mut db.read().await.unwrap(), &readings).await.unwrap().unwrap();
        open.extend(readings.unexplained(&moved).map(|difference| (readings, difference)));
    }
    open
}

/// Forges the books.
async fn forge(db: &Db, text: &'static str) {
    let mut tx = db.begin().await.unwrap();
    match tx.engine() {
        Connected::Postgres(connection) => drop(sqlx::query(text).execute(connection).await.unwrap()),
        Connected::Sqlite(connection) => drop(sqlx::query(text).execute(connection).await.unwrap()),
    }
    tx.commit().await.unwrap();
}

pub(crate) fn leg(asset: AssetId, from: u8, to: u8, amount: u64) -> SimLeg {
    SimLeg { asset, ..SimLeg::native(address(from), address(to), amount) }
}

#[tokio::test]
async fn e9_a_balance_that_no_leg_explains_is_reported_once_and_is_no_deposit() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine).await;
        let since = bench.world.chain.finalized().unwrap().number;
        bench.world.watch("bob", address(BOB)).await;
        bench.settle().await;
        // As a coinbase tip, and as a token that rebases.
        bench.world.chain.shift_balance(address(ALICE), ETH, 7);
        bench.world.chain.shift_balance(address(ALICE), TOKEN, -5);
        bench.settle().await;
        assert_eq!(bench.reported().await, NOTHING, "nothing moved, so she was not read");
        bench.pay(PAYER, vec![leg(ETH, PAYER, ALICE, 5_000), leg(TOKEN, PAYER, BOB, 30)]).await;
        let all = [(ALICE, ETH, 7), (ALICE, TOKEN, -5)];
        assert_eq!(bench.reported().await, all);
        let deposits = bench.world.deposits().await;
        assert_eq!(deposits.iter().map(|deposit| deposit.status).collect::<Vec<_>>(), [Confirmed; 2]);
        assert_eq!(bench.world.status_of(5_000).await, Confirmed);
        for (readings, _) in open(bench.world.db()).await {
            let at = bench.world.chain.finalized().unwrap().number;
            assert_eq!((readings.had.number, readings.has.number), (since, at));
            let has = bench.world.chain.balance(&address(ALICE), &readings.asset, at);
            assert_eq!(readings.has.amount, has);
        }
        let entry = &entries(bench.world.db()).await[0];
        assert_eq!((entry.account_id.as_deref(), entry.found_at), (Some("alice"), bench.world.now()));
        // Once, however often she is read.
        bench.pay(PAYER, vec![leg(TOKEN, PAYER, ALICE, 40)]).await;
        bench.next_day().await;
        assert_eq!(bench.reported().await, all);
        // Without a movement it is found by the slow round.
        bench.world.chain.shift_balance(address(BOB), ETH, 9);
        bench.next_day().await;
        assert_eq!(bench.reported().await, [all[0], all[1], (BOB, ETH, 9)]);
        bench.world.abandon();
    }
}

#[tokio::test]
async fn whatever_moves_by_legs_and_fees_is_explained() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine).await;
        bench.world.watch("bob", address(BOB)).await;
        bench.settle().await;
        bench.pay(PAYER, vec![leg(ETH, PAYER, ALICE, 500), leg(TOKEN, PAYER, ALICE, 50)]).await;
        bench.pay(ALICE, vec![leg(ETH, ALICE, BOB, 20), leg(TOKEN, ALICE, PAYER, 3), leg(TOKEN, ALICE, BOB, 3)]).await;
        let inner = |from, to, amount| SimLeg::inner(address(from), address(to), amount);
        bench.pay(PAYER, vec![inner(PAYER, ALICE, 11), inner(ALICE, BOB, 7), inner(BOB, PAYER, 2)]).await;
        // What is in an orphaned block does not count, and what was mined again counts once.
        bench.mine(PAYER, vec![leg(ETH, PAYER, ALICE, 900), leg(TOKEN, ALICE, PAYER, 9)]);
        bench.world.catch_up().await;
        let txs = bench.world.chain.fork_at(bench.world.chain.latest().number - 1);
        bench.world.chain.mine_empty(1);
        bench.world.chain.mine(txs);
        bench.settle().await;
        bench.next_day().await;
        assert_eq!(bench.world.deposits().await.len(), 7);
        assert_eq!(entries(bench.world.db()).await, []);
        bench.world.close().await;
    }
}

#[tokio::test]
async fn e5_a_listed_token_that_keeps_a_fee_is_reported_when_it_pays() {
    for engine in ENGINES {
        let mut bench = Bench::of(World::on(engine, 1).await).await;
        // Its log says 1,000, and 990 arrive.
        bench.mine(PAYER, vec![leg(TOKEN, PAYER, ALICE, 1_000)]);
        bench.world.chain.shift_balance(address(ALICE), TOKEN, -10);
        bench.settle().await;
        assert_eq!(bench.world.status_of(1_000).await, Confirmed);
        assert_eq!(bench.reported().await, [(ALICE, TOKEN, -10)]);
        bench.world.abandon();
    }
}

#[tokio::test]
async fn where_inner_value_is_not_seen_the_native_currency_is_not_compared_and_tokens_are() {
    for engine in ENGINES {
        let mut bench = Bench::of(World::on(engine, 1).await).await;
        let unseen = |to| SimLeg::inner(address(PAYER), address(to), 100);
        bench.pay(PAYER, vec![unseen(ALICE), leg(ETH, PAYER, ALICE, 500), leg(TOKEN, PAYER, ALICE, 50)]).await;
        assert_eq!(entries(bench.world.db()).await, []);
        bench.world.chain.shift_balance(address(ALICE), TOKEN, 5);
        bench.pay(ALICE, vec![leg(ETH, ALICE, PAYER, 20)]).await;
        assert_eq!(bench.reported().await, [(ALICE, TOKEN, 5)]);

        // Traced from here on: what came before is nobody's to explain.
        bench.mine(PAYER, vec![unseen(ALICE)]);
        bench.world.catch_up().await;
        bench.world.network.native = Native { source: NativeSource::Trace, eip7708_from: None };
        bench.restart().await;
        bench.settle().await;
        bench.pay(PAYER, vec![unseen(ALICE)]).await;
        assert_eq!(bench.reported().await, [(ALICE, TOKEN, 5)]);
        bench.world.chain.shift_balance(address(ALICE), ETH, 6);
        bench.pay(PAYER, vec![unseen(ALICE)]).await;
        assert_eq!(bench.reported().await, [(ALICE, TOKEN, 5), (ALICE, ETH, 6)]);
        bench.world.abandon();
    }
}

#[tokio::test]
async fn with_other_settings_what_is_compared_begins_anew() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine).await;
        let traced = bench.world.network.native;
        assert_eq!(traced.source, NativeSource::Trace);
        // From a block that is far off still, all would be seen without traces.
        let far = bench.world.chain.latest().number + 100;
        bench.world.network.native = Native { source: NativeSource::TopLevel, eip7708_from: Some(far) };
        bench.restart().await;
        bench.settle().await;
        let unseen = || vec![SimLeg::inner(address(PAYER), address(ALICE), 100), leg(ETH, PAYER, ALICE, 500)];
        bench.pay(PAYER, unseen()).await;
        bench.pay(PAYER, unseen()).await;
        assert_eq!(entries(bench.world.db()).await, []);
        // Another place for the same token, with the same block to follow it from.
        bench.world.network.native = traced;
        bench.restart().await;
        bench.watch.release().await.unwrap();
        bench.watch = watch(&bench.world, "one").by_rules("other accounts".to_owned());
        bench.settle().await;
        bench.world.chain.shift_balance(address(ALICE), TOKEN, 5);
        bench.pay(PAYER, vec![leg(TOKEN, PAYER, ALICE, 50)]).await;
        assert_eq!(entries(bench.world.db()).await, []);
        bench.world.chain.shift_balance(address(ALICE), TOKEN, 6);
        bench.pay(PAYER, vec![leg(TOKEN, PAYER, ALICE, 50)]).await;
        assert_eq!(bench.reported().await, [(ALICE, TOKEN, 6)]);
        bench.world.abandon();
    }
}

#[tokio::test]
async fn what_a_trace_may_still_show_is_compared_when_it_has() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine).await;
        let paid_at = bench.world.chain.latest().number + 1;
        bench.world.chain.withhold_traces([paid_at]);
        bench.mine(PAYER, vec![SimLeg::inner(address(PAYER), address(ALICE), 100), leg(ETH, PAYER, ALICE, 500)]);
        bench.world.chain.mine_empty(FINALITY_DEPTH);
        for _ in 0..20 {
            bench.world.tick_or_fail_for_now().await;
        }
        bench.read_all().await;
        // In the meantime a tip comes.
        bench.world.chain.shift_balance(address(ALICE), ETH, 7);
        bench.world.pass(DAY + MINUTE);
        bench.world.chain.mine_empty(FINALITY_DEPTH);
        for _ in 0..20 {
            bench.world.tick_or_fail_for_now().await;
        }
        bench.read_all().await;
        assert_eq!(entries(bench.world.db()).await, []);
        bench.world.chain.withhold_traces([]);
        bench.next_day().await;
        assert_eq!(bench.reported().await, [(ALICE, ETH, 7)]);
        bench.world.abandon();
    }
}

#[tokio::test]
async fn what_moved_before_an_address_was_watched_or_while_its_asset_was_not_listed_is_nobodys_to_explain() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine).await;
        // Bob is read below the block from which on he is watched.
        bench.mine(BOB, vec![leg(ETH, BOB, PAYER, 70), leg(TOKEN, PAYER, BOB, 7)]);
        bench.world.catch_up().await;
        bench.world.watch("bob", address(BOB)).await;
        bench.read_all().await;
        for _ in 0..=FINALITY_DEPTH {
            bench.follow(1).await;
            bench.read_all().await;
        }
        assert_eq!(entries(bench.world.db()).await, []);
        // What a backfill finds of it is below what is compared.
        let until = bench.world.chain.finalized().unwrap().number - FINALITY_DEPTH;
        backfill(&bench.world, (1, until)).await;
        bench.pay(PAYER, vec![leg(ETH, PAYER, BOB, 30)]).await;
        assert_eq!(entries(bench.world.db()).await, []);

        let with = bench.world.network.assets.clone();
        bench.world.network.assets = with[..1].to_vec();
        bench.restart().await;
        bench.pay(PAYER, vec![leg(TOKEN, PAYER, ALICE, 30), leg(TOKEN, BOB, PAYER, 3)]).await;
        bench.world.network.assets = with;
        bench.restart().await;
        bench.read_all().await;
        bench.settle().await;
        bench.next_day().await;
        assert_eq!(entries(bench.world.db()).await, []);
        bench.world.chain.shift_balance(address(BOB), TOKEN, 4);
        bench.next_day().await;
        assert_eq!(bench.reported().await, [(BOB, TOKEN, 4)]);
        bench.world.abandon();
    }
}

/// For all.
pub(crate) async fn backfill(world: &World, (from, to): (u64, u64)) {
    let job = Job { from, to: Some(to), proof: ReadProof::Full, scope: Scope::All, dry_run: false };
    let mut backfill = Backfill::begin(world.another_watcher(), job).await.unwrap();
    while !backfill.is_done() {
        backfill.step(world.now()).await.unwrap();
    }
}

#[tokio::test]
async fn what_is_found_in_its_blocks_later_explains_an_entry() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine).await;
        bench.mine(PAYER, vec![leg(TOKEN, PAYER, ALICE, 40)]);
        bench.follow(FINALITY_DEPTH).await;
        // As if nobody had shown us.
        forge(bench.world.db(), "DELETE FROM inclusions").await;
        bench.read_all().await;
        assert_eq!(bench.reported().await, [(ALICE, TOKEN, 40)]);
        backfill(&bench.world, (1, bench.world.chain.finalized().unwrap().number)).await;
        assert_eq!(bench.reported().await, NOTHING);
        assert_eq!(entries(bench.world.db()).await.len(), 1, "it stays on record");
        assert_eq!(bench.world.status_of(40).await, Confirmed);
        bench.world.close().await;
    }
}

#[tokio::test]
async fn what_was_reported_of_a_block_that_is_taken_back_is_not_reported_any_more() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine).await;
        let fork = bench.world.chain.finalized().unwrap().number;
        bench.world.chain.shift_balance(address(ALICE), TOKEN, 4);
        bench.pay(PAYER, vec![leg(TOKEN, PAYER, ALICE, 40)]).await;
        assert_eq!(bench.reported().await, [(ALICE, TOKEN, 4)]);
        let at = bench.world.chain.finalized().unwrap().number;
        bench.world.chain.fork_at(fork);
        bench.world.chain.mine_empty(at);
        bench.world.chain.claim_final(bench.world.chain.blocks()[usize::try_from(fork).unwrap() + 1].header.block);
        bench.world.try_tick().await.unwrap_err();
        bench.world.operator().accept_reorg(bench.world.db(), CHAIN).await.unwrap();
        for _ in 0..5 {
            bench.world.tick_or_fail_for_now().await;
        }
        assert_eq!(entries(bench.world.db()).await, []);
        bench.world.chain.set_finality_depth(Some(FINALITY_DEPTH));
        bench.settle().await;
        bench.next_day().await;
        assert_eq!(entries(bench.world.db()).await, []);
        bench.world.abandon();
    }
}

#[tokio::test]
async fn another_process_goes_on_where_the_first_one_stopped() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine).await;
        let mut other = watch(&bench.world, "two");
        bench.world.chain.shift_balance(address(ALICE), TOKEN, 4);
        bench.mine(PAYER, vec![leg(TOKEN, PAYER, ALICE, 40)]);
        bench.follow(FINALITY_DEPTH).await;
        assert_eq!(other.tick(bench.world.now(), 0).await.unwrap(), BalancesRead::default());
        bench.world.pass(MINUTE * 2);
        assert_eq!(other.tick(bench.world.now(), 0).await.unwrap().read, 1);
        bench.read_all().await;
        assert_eq!(bench.reported().await, [(ALICE, TOKEN, 4)]);
        other.release().await.unwrap();
        bench.pay(ALICE, vec![leg(TOKEN, ALICE, PAYER, 4)]).await;
        assert_eq!(bench.reported().await, [(ALICE, TOKEN, 4)]);
        bench.world.abandon();
    }
}
