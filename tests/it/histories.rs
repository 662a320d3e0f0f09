//! Seeded random histories: mining, reorgs to depth 8, transactions replaced, executed again and lost, failed, late,
//! empty and lagging answers, restarts and crashes at any await, addresses added on the way.
//!
//! At the end the CONFIRMED deposits are the legs of the final chain, each once, and every id is that of a straight
//! scan of the final chain into an empty store.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use landfall::deposit::DepositStatus;
use landfall_chain::Address;
use landfall_sim::{Fault, SimLeg, SimTx};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::books::{assert_settled, events};
use crate::postgres::{Engine, TestStore};
use crate::world::{FAILED_GRACE, FINALITY_DEPTH, TOKEN, World, address};

const REORG_DEPTH_MAX: u64 = 8;
const STEPS: u32 = 60;
const WATCHED: [u8; 3] = [0xa1, 0xa2, 0xa3];
const ADDED_LATER: [u8; 2] = [0xb1, 0xb2];
const PAYERS: u8 = 4;

/// How often each kind of thing happened, over all histories.
#[derive(Default, Debug)]
struct Tally {
    steps: u64,
    blocks: u64,
    reorgs: u64,
    replaced: u64,
    executed_again: u64,
    lost: u64,
    faults: u64,
    failed_ticks: u64,
    restarts: u64,
    crashes: u64,
    moved_while_read: u64,
    with_rival: u64,
    confirmed: u64,
    failed: u64,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_histories_end_with_the_legs_of_the_final_chain_each_once() {
    let (count, mode) = if full() { (20_000, "full") } else { (1_000, "bounded") };
    let begun = Instant::now();
    let halves = (0..2).map(|half| {
        tokio::task::spawn_blocking(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let mut tally = Tally::default();
            for seed in (half..count).step_by(2) {
                runtime.block_on(history(Engine::Sqlite, seed, &mut tally));
            }
            tally
        })
    });
    for half in halves.collect::<Vec<_>>() {
        println!("{:?}", half.await.unwrap());
    }
    println!("{mode}: {count} histories in {} s", begun.elapsed().as_secs());
}

#[tokio::test]
async fn random_histories_on_postgresql_too() {
    let (count, mode) = if full() { (1_000, "full") } else { (20, "bounded") };
    let mut tally = Tally::default();
    for seed in 0..count {
        history(Engine::Postgres, seed, &mut tally).await;
    }
    println!("{mode}: {count} histories on PostgreSQL: {tally:?}");
}

fn full() -> bool {
    #[expect(clippy::disallowed_methods, reason = "the test's own environment")]
    let full = std::env::var("LANDFALL_FULL");
    full.is_ok_and(|value| value == "1")
}

/// The state of one history beside the world.
struct History {
    rng: StdRng,
    /// What reorgs threw out and nobody has mined again.
    mempool: Vec<SimTx>,
    nonces: [u64; PAYERS as usize],
    watched_from: BTreeMap<Address, u64>,
}

async fn history(engine: Engine, seed: u64, tally: &mut Tally) {
    let mut world = World::on(engine, seed).await;
    // Every third history is followed by logs: the deposits must be the same.
    if seed.is_multiple_of(3) {
        world.read_by_logs();
    }
    let mut history = History {
        rng: StdRng::seed_from_u64(seed ^ 0x5eed),
        mempool: Vec::new(),
        nonces: [0; PAYERS as usize],
        watched_from: BTreeMap::new(),
    };
    for who in WATCHED {
        history.add(&world, who).await;
    }
    for _ in 0..STEPS {
        history.step(&mut world, tally).await;
        tally.steps += 1;
    }
    history.come_to_rest(&mut world).await;
    assert_settled(&world, &history.watched_from).await;
    for deposit in world.deposits().await {
        tally.confirmed += u64::from(deposit.status == DepositStatus::Confirmed);
        tally.failed += u64::from(deposit.status == DepositStatus::Failed);
        assert_ne!(deposit.status, DepositStatus::Pending, "seed {seed}: {} is settled", deposit.id);
    }
    assert_ids_are_those_of_a_straight_scan(&world, engine, &history.watched_from).await;
    world.close().await;
}

impl History {
    async fn add(&mut self, world: &World, who: u8) {
        let mut reader = world.db().read().await.unwrap();
        let cursor = landfall::store::cursors::Cursor::load(&mut reader, crate::world::CHAIN).await.unwrap();
        drop(reader);
        self.watched_from.insert(address(who), cursor.at.map_or(0, |at| at.number + 1));
        world.watch(&format!("account-{who:x}"), address(who)).await;
    }

    async fn step(&mut self, world: &mut World, tally: &mut Tally) {
        match self.rng.random_range(0..100) {
            0..30 => self.mine(world, tally),
            30..40 => self.reorganise(world, tally),
            40..50 => self.misbehave(world, tally),
            50..53 => {
                world.restart();
                tally.restarts += 1;
            }
            53..60 => {
                let wakeups = self.rng.random_range(0..60);
                world.crash_within(wakeups).await;
                tally.crashes += 1;
            }
            60..62 => {
                let who = ADDED_LATER[self.rng.random_range(0..ADDED_LATER.len())];
                if !self.watched_from.contains_key(&address(who)) {
                    self.add(world, who).await;
                }
            }
            62..65 => self.move_while_read(world, tally),
            65..70 => {
                world.tick_with_rival().await;
                tally.with_rival += 1;
            }
            70..73 => world.pass(Duration::from_secs(self.rng.random_range(1..2_000))),
            _ => tally.failed_ticks += u64::from(world.tick_or_fail_for_now().await.is_none()),
        }
    }

    fn mine(&mut self, world: &World, tally: &mut Tally) {
        let mut txs = Vec::new();
        for tx in std::mem::take(&mut self.mempool) {
            match self.rng.random_range(0..10) {
                0..5 => txs.push(tx),
                5 => {
                    txs.push(tx.replaced_by(self.legs()));
                    tally.replaced += 1;
                }
                6 => {
                    let legs = if self.rng.random_bool(0.5) { self.legs() } else { Vec::new() };
                    txs.push(SimTx { legs, ..tx });
                    tally.executed_again += 1;
                }
                7 => tally.lost += 1,
                _ => self.mempool.push(tx),
            }
        }
        for _ in 0..self.rng.random_range(0..3) {
            let payer = self.rng.random_range(0..PAYERS);
            let nonce = &mut self.nonces[usize::from(payer)];
            *nonce += 1;
            let (payer, nonce) = (address(payer + 1), *nonce);
            txs.push(SimTx::new(payer, nonce, self.legs()));
        }
        if self.rng.random_bool(0.05) {
            world.chain.skip(self.rng.random_range(1..4));
        }
        world.chain.mine(txs);
        tally.blocks += 1;
    }

    fn legs(&mut self) -> Vec<SimLeg> {
        let mut legs = Vec::new();
        for _ in 0..self.rng.random_range(0..4) {
            let everybody = [WATCHED.as_slice(), ADDED_LATER.as_slice(), &[0xee]].concat();
            let to = everybody[self.rng.random_range(0..everybody.len())];
            let leg = SimLeg::native(address(0x99), address(to), self.rng.random_range(1..4));
            legs.push(if self.rng.random_bool(0.5) { SimLeg { asset: TOKEN, ..leg } } else { leg });
        }
        legs
    }

    fn reorganise(&mut self, world: &World, tally: &mut Tally) {
        let latest = world.chain.latest().number;
        let final_number = world.chain.finalized().map_or(0, |finalized| finalized.number);
        let depth = self.rng.random_range(1..=REORG_DEPTH_MAX);
        let keep = latest.saturating_sub(depth).max(final_number);
        if keep < latest {
            self.mempool.extend(world.chain.fork_at(keep));
            tally.reorgs += 1;
            for _ in 0..self.rng.random_range(0..4) {
                self.mine(world, tally);
            }
        }
    }

    fn misbehave(&mut self, world: &World, tally: &mut Tally) {
        for _ in 0..self.rng.random_range(1..5) {
            let fault = match self.rng.random_range(0..6) {
                0 => Fault::Fail,
                1 => Fault::Empty,
                2 => Fault::Lag(self.rng.random_range(1..12)),
                _ => Fault::Late(Duration::ZERO),
            };
            tally.faults += u64::from(!matches!(fault, Fault::Late(_)));
            world.chain.script([fault]);
        }
    }

    /// At one of the next calls the chain loses its newest block and gets two others.
    fn move_while_read(&mut self, world: &World, tally: &mut Tally) {
        let mut calls_left: u32 = self.rng.random_range(1..5);
        world.chain.before_each_call(move |chain| {
            let is_due = calls_left == 1;
            calls_left = calls_left.saturating_sub(1);
            let latest = chain.latest().number;
            if is_due && latest > 0 && chain.finalized().is_none_or(|finalized| finalized.number < latest) {
                let txs = chain.fork_at(latest - 1);
                chain.mine_empty(1);
                chain.mine(txs);
            }
        });
        tally.moved_while_read += 1;
    }

    /// The chain goes on quietly until every height that ever was is final and every grace has passed.
    async fn come_to_rest(&mut self, world: &mut World) {
        world.chain.behave();
        for _ in 0..4 {
            world.chain.mine_empty(FINALITY_DEPTH + 1);
            world.catch_up().await;
            world.pass(FAILED_GRACE);
        }
        world.chain.mine_empty(1);
        world.catch_up().await;
    }
}

/// The rebuild: the same chain into an empty store, everything watched from the start.
async fn assert_ids_are_those_of_a_straight_scan(world: &World, engine: Engine, watched: &BTreeMap<Address, u64>) {
    let store = TestStore::fresh(engine).await;
    let mut straight = World::of(world.chain.clone(), store);
    for who in WATCHED.iter().chain(&ADDED_LATER) {
        straight.watch(&format!("account-{who:x}"), address(*who)).await;
    }
    straight.catch_up().await;
    let confirmed = |deposits: Vec<landfall::deposit::Deposit>| -> BTreeSet<String> {
        let confirmed = deposits.into_iter().filter(|deposit| deposit.status == DepositStatus::Confirmed);
        confirmed.map(|deposit| deposit.id.to_string()).collect()
    };
    let (ours, theirs) = (confirmed(world.deposits().await), confirmed(straight.deposits().await));
    assert!(ours.is_subset(&theirs), "a confirmed deposit that a straight scan does not find");
    if watched.len() == WATCHED.len() + ADDED_LATER.len() && watched.values().all(|from| *from == 0) {
        assert_eq!(ours, theirs);
    }
    let told: BTreeMap<String, String> = events(world.db())
        .await
        .into_iter()
        .map(|event| (format!("{} {}/{}", event.aggregateid, event.status, event.nth_entry), event.id))
        .collect();
    for event in events(straight.db()).await.into_iter().filter(|event| ours.contains(&event.aggregateid)) {
        let name = format!("{} {}/{}", event.aggregateid, event.status, event.nth_entry);
        assert_eq!(told.get(&name), Some(&event.id), "{name}");
    }
    straight.close().await;
}
