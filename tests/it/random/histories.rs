//! Seeded random histories (R11). The chain mines, reorganises to depth 12, and replaces, repeats and loses
//! transactions. Answers fail, lag, come late or empty. Processes restart and crash at any await, two run at once, and
//! addresses are added on the way. In every second history an endpoint lies, as far as proofs do not catch it; in every
//! third some deposits wait for less. In every second traced one an endpoint lies in its traces, alone or contradicted
//! by another. What is on record of failed tries is lost now and then: it decides when something is asked, never what is
//! believed.
//!
//! Nothing halts on the way. At the end the CONFIRMED deposits are the legs of the final chain, each once, and every id
//! follows from its content. A straight scan of the final chain into an empty store gives the same. A liar may have
//! hidden deposits where no other endpoint was asked. Those, and only those, are found by the rescan that operators are
//! advised to run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use landfall::deposit::DepositStatus;
use landfall::incident::IncidentKind;
use landfall::store::accounts;
use landfall::watcher::{BalanceWatch, Rescan, Ticked};
use landfall_chain::{Address, AssetId, Lane};
use landfall_sim::{Fault, Lie, SimChain, SimLeg, SimPool, SimTx};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::harness::books::{FinalLeg, assert_settled, events, final_legs, unsettled};
use crate::harness::lanes::{full, given_seed, on_every_processor};
use crate::harness::postgres::{Engine, TestStore};
use crate::harness::tally::Tally;
use crate::harness::world::{CHAIN, FAILED_GRACE, TOKEN, World, address};
use crate::past::rescan::execute;
use crate::past::unexplained::entries;

const REORG_DEPTH_MAX: u64 = 12;
/// As deep as the deepest reorg: what is final is never taken back.
const FINALITY_DEPTH: u64 = REORG_DEPTH_MAX;
/// Amounts are 1 to 3, so that some fit the first tier, some the second, and some none.
const TIERS: [(AssetId, u64, u64); 3] = [(TOKEN, 1, 2), (TOKEN, 2, 5), (AssetId::Native, 2, 3)];
const STEPS: u32 = 30;
const WATCHED: [u8; 3] = [0xa1, 0xa2, 0xa3];
const ADDED_LATER: [u8; 2] = [0xb1, 0xb2];
const PAYERS: u8 = 4;
/// After which what an address holds is read again without a reason.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// What decides when something is tried again, on record. What is in memory goes with each restart.
const RETRIES: [&str; 3] = [
    "DELETE FROM trace_failures",
    "DELETE FROM unwitnessed",
    "UPDATE balances_due SET unreported_us = NULL, unreported_assets = '', again_us = 0",
];

/// What a bounded run may have none of.
const RARE: [&str; 3] = ["found by a rescan", "reorgs 12 deep, taken back at once", "unexplained balances"];
/// All that has to happen in a full or bounded run, in the order of the alphabet. Faults are counted when a call met them,
/// lies when what was reported was not so.
const HAPPENS: [&str; 41] = [
    "balances read",
    "blocks",
    "by logs",
    "confirmed",
    "crashes",
    "executed again",
    "failed",
    "failed ticks",
    "fault in traces: empty",
    "fault in traces: fail",
    "fault in traces: lag",
    "fault in traces: late",
    "fault: empty",
    "fault: fail",
    "fault: lag",
    "fault: late",
    "forgotten tries",
    "found by a rescan",
    "lie: false fate",
    "lie: false final",
    "lie: forged tip",
    "lie: hidden leg",
    "lie: invented leg",
    "lie: left out",
    "lie: other fork",
    "lie: refused final",
    "lie: stale head",
    "lost",
    "moved while read",
    "reorgs",
    "reorgs 12 deep",
    "reorgs 12 deep, taken back at once",
    "replaced",
    "restarts",
    "steps",
    "straight scans",
    "unexplained balances",
    "with a liar",
    "with a liar of traces",
    "with a rival",
    "with tiers",
];

/// Where histories are kept: the one that is random, and the straight scan.
struct Shelf {
    stores: [TestStore; 2],
}

impl Shelf {
    async fn new(engine: Engine) -> Self {
        Shelf { stores: [TestStore::fresh(engine).await, TestStore::fresh(engine).await] }
    }

    async fn take(&self, index: usize) -> TestStore {
        self.stores[index].again().await
    }
}

/// How many run side by side, each with stores of its own.
const LANES: usize = 4;
const LANES_OF_PROCESSOR: usize = 2;
/// Seeds that once showed a fault: they are run always, beside those of the run.
const ONCE_FAILED: [u64; 1] = [9_096];
/// Histories between two words about how far it is.
const REPORT_EVERY: u64 = 1_000;

#[test]
fn random_histories_end_with_the_legs_of_the_final_chain_each_once() {
    let (count, mode) = if full() { (100_000, "full") } else { (600, "bounded") };
    let (begun, base) = (Instant::now(), given_seed());
    let seeds: Vec<u64> = ONCE_FAILED.into_iter().chain(base..base + count).collect();
    let done = AtomicU64::new(0);
    let tallies = on_every_processor((0..LANES).collect(), LANES_OF_PROCESSOR, async |lane| {
        let mut tally = Tally::default();
        let shelf = Shelf::new(Engine::Sqlite).await;
        for seed in seeds.iter().skip(lane).step_by(LANES) {
            history(&shelf, *seed, &mut tally).await;
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            if done.is_multiple_of(REPORT_EVERY) {
                println!("{done} of {count} histories in {} s", begun.elapsed().as_secs());
            }
        }
        tally
    });
    let tally = Tally::sum(tallies);
    println!("{mode}: {count} histories from seed {base} in {} s:{tally}", begun.elapsed().as_secs());
    tally.assert_happened(&HAPPENS, &RARE);
}

#[tokio::test]
async fn random_histories_on_postgresql_too() {
    let (count, mode) = if full() { (1_000, "full") } else { (8, "bounded") };
    let mut tally = Tally::default();
    let shelf = Shelf::new(Engine::Postgres).await;
    let base = given_seed();
    for seed in base..base + count {
        history(&shelf, seed, &mut tally).await;
    }
    println!("{mode}: {count} histories from seed {base} on PostgreSQL:{tally}");
}

/// The state of one history beside the world.
struct History {
    rng: StdRng,
    /// What reorgs threw out and nobody has mined again.
    mempool: Vec<SimTx>,
    nonces: [u64; PAYERS as usize],
    watched_from: BTreeMap<Address, u64>,
    /// The highest block that was ever final for a tier: what an operator's tiers risk is that it is taken back, and
    /// then a person decides (`finality.rs`).
    tier_floor: Arc<AtomicU64>,
    /// The highest number that a block ever had, also on a branch that is gone.
    highest: u64,
    lies: bool,
    /// Decides when tries are forgotten. Of its own, so that the rest of a history is the same without it.
    forgets: StdRng,
    liar_of_traces: Option<LiarOfTraces>,
    /// Value moves inside of transactions, too, and watched addresses pay.
    is_traced: bool,
    /// Where all that moves is seen.
    balances: Option<BalanceWatch<SimChain>>,
}

/// Beside whom an endpoint lies in its traces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LiarOfTraces {
    /// No other one traces: balances are the witness.
    Alone,
    /// Another one traces, too.
    Contradicted,
}

impl LiarOfTraces {
    fn of(seed: u64) -> Option<Self> {
        match seed / 4 % 4 {
            0 => Some(LiarOfTraces::Alone),
            1 => Some(LiarOfTraces::Contradicted),
            _ => None,
        }
    }
}

fn balance_watch(world: &World) -> BalanceWatch<SimChain> {
    BalanceWatch::new(world.chain.clone(), world.db().clone(), &world.network, 20, "one".to_owned())
}

/// Names the history that a failed assertion belongs to.
struct Name(u64);

impl Drop for Name {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("this was seed {}", self.0);
        }
    }
}

async fn history(shelf: &Shelf, seed: u64, tally: &mut Tally) {
    let _name = Name(seed);
    let chain = SimChain::new(seed);
    chain.set_finality_depth(Some(FINALITY_DEPTH));
    // A part of them on a network that is traced.
    let is_traced = seed % 4 == 1;
    let store = shelf.take(0).await;
    let mut world = if is_traced { World::of_traced(chain, store) } else { World::of(chain, store) };
    // Some histories are followed by logs: the deposits must be the same.
    if seed % 5 == 2 {
        world.read_by_logs();
        tally.count("by logs");
    }
    if seed.is_multiple_of(3) {
        world.set_tiers(&TIERS);
        tally.count("with tiers");
    }
    let lies = (seed / 3).is_multiple_of(2);
    if lies {
        world.pool.spread(if seed.is_multiple_of(4) { 2 } else { 3 }, 2, seed);
        tally.count("with a liar");
    }
    let liar_of_traces = LiarOfTraces::of(seed).filter(|_| is_traced);
    if let Some(liar) = liar_of_traces {
        world.chain.trace_twice(liar == LiarOfTraces::Contradicted);
        tally.count("with a liar of traces");
    }
    let mut history = History {
        liar_of_traces,
        tier_floor: Arc::default(),
        highest: 0,
        lies,
        rng: StdRng::seed_from_u64(seed ^ 0x5eed),
        forgets: StdRng::seed_from_u64(seed ^ 0xf069e7),
        mempool: Vec::new(),
        nonces: [0; PAYERS as usize],
        watched_from: BTreeMap::new(),
        is_traced,
        balances: is_traced.then(|| balance_watch(&world)),
    };
    history.read_balances(&world, tally).await;
    for who in WATCHED {
        history.add(&world, who).await;
    }
    for _ in 0..STEPS {
        history.step(&mut world, tally).await;
        tally.count("steps");
        history.forget_tries(&world, tally).await;
    }
    history.come_to_rest(&mut world).await;
    history.read_balances(&world, tally).await;
    match liar_of_traces {
        None => assert_eq!(entries(world.db()).await, [], "seed {seed}: what honest endpoints tell is explained"),
        Some(LiarOfTraces::Contradicted) => {}
        Some(LiarOfTraces::Alone) => history.find_what_was_hidden(&mut world, tally).await,
    }
    assert_settled(&world, &history.watched_from).await;
    for deposit in world.deposits().await {
        match deposit.status {
            DepositStatus::Confirmed => tally.count("confirmed"),
            DepositStatus::Failed => tally.count("failed"),
            DepositStatus::Pending => panic!("seed {seed}: {} is settled", deposit.id),
        }
    }
    let mut incidents = world.incidents().await;
    // Who hides what left makes what is CONFIRMED seem not to be held: a person must look.
    incidents.retain(|incident| liar_of_traces.is_none() || incident.kind != IncidentKind::BalanceShort);
    assert_eq!(incidents, [], "seed {seed}: an endpoint's word halted the chain");
    assert_ids_are_those_of_a_straight_scan(&world, shelf, &history.watched_from).await;
    tally.count("straight scans");
    for (lie, count) in world.pool.reported() {
        tally.add(&format!("lie: {lie}"), count);
    }
    for ((lane, fault), count) in world.chain.struck() {
        let what = match (lane, fault) {
            (Lane::Traces, "hide") => "lie: hidden leg".to_owned(),
            (Lane::Traces, "invent") => "lie: invented leg".to_owned(),
            (Lane::Traces, _) => format!("fault in traces: {fault}"),
            (Lane::Block, _) => format!("fault: {fault}"),
        };
        tally.add(&what, count);
    }
    world.close().await;
}

impl History {
    async fn add(&mut self, world: &World, who: u8) {
        world.watch(&format!("account-{who:x}"), address(who)).await;
        // What was promised, and not where the cursor stood before: a commit of a crashed tick may arrive in between.
        let mut reader = world.db().read().await.unwrap();
        let from = accounts::watched_from(&mut reader, CHAIN, &address(who)).await.unwrap();
        self.watched_from.insert(address(who), from.unwrap());
    }

    async fn step(&mut self, world: &mut World, tally: &mut Tally) {
        match self.rng.random_range(0..100) {
            0..30 => {
                for _ in 0..self.rng.random_range(1..4) {
                    self.mine(world, tally);
                }
            }
            30..40 => self.reorganise(world, tally),
            40..50 => self.misbehave(world),
            50..53 => {
                world.restart();
                tally.count("restarts");
            }
            53..60 => {
                let wakeups = self.rng.random_range(0..60);
                world.crash_within(wakeups).await;
                if self.is_traced {
                    world.crash_trace_within(wakeups).await;
                }
                tally.count("crashes");
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
                tally.count("with a rival");
            }
            70..73 => world.pass(Duration::from_secs(self.rng.random_range(1..2_000))),
            73..78 if self.lies => self.lie(world),
            78..88 if self.balances.is_some() => self.read_balances(world, tally).await,
            88..95 if self.liar_of_traces.is_some() => self.lie_in_traces(world),
            _ => match world.tick_or_fail_for_now().await {
                Some(Ticked { disconnected: REORG_DEPTH_MAX, .. }) => {
                    tally.count(&format!("reorgs {REORG_DEPTH_MAX} deep, taken back at once"));
                }
                Some(_) => {}
                None => tally.count("failed ticks"),
            },
        }
        self.highest = self.highest.max(world.chain.latest().number);
        if let Some(newest) = world.chain.tiers().into_iter().flatten().map(|block| block.number).max() {
            self.tier_floor.fetch_max(newest, Ordering::Relaxed);
        }
    }

    /// Now and then, what is on record of tries that failed is lost.
    async fn forget_tries(&mut self, world: &World, tally: &mut Tally) {
        if self.forgets.random_bool(0.1) {
            for text in RETRIES {
                execute(world.db(), text).await;
            }
            tally.count("forgotten tries");
        }
    }

    /// Reads what is due of what addresses hold, which endpoints report truly; now and then by a process that has just
    /// taken over.
    async fn read_balances(&mut self, world: &World, tally: &mut Tally) {
        let Some(balances) = &mut self.balances else { return };
        if self.rng.random_bool(0.1) {
            balances.release().await.unwrap();
            *balances = balance_watch(world);
        }
        let read = balances.tick(world.now(), 0).await.unwrap();
        tally.add("balances read", u64::try_from(read.read).unwrap());
    }

    /// One endpoint begins to lie, or lies otherwise, or is honest again.
    fn lie(&mut self, world: &World) {
        let lie = match self.rng.random_range(0..8) {
            0 => Some(Lie::StaleHead(self.rng.random_range(1..20))),
            1 | 2 => Some(Lie::OtherFork),
            3 => Some(Lie::ForgedTip(self.rng.random_range(0..4))),
            4 => Some(Lie::FalseFinal),
            5 => Some(Lie::LeftOut),
            6 => Some(Lie::FalseFate),
            _ => None,
        };
        world.pool.lie(lie, self.rng.random_range(1..=10));
    }

    /// The next traces leave out what somebody was paid, or show more.
    fn lie_in_traces(&mut self, world: &World) {
        for _ in 0..self.rng.random_range(1..4) {
            let who = address(WATCHED[self.rng.random_range(0..WATCHED.len())]);
            let is_hidden = self.rng.random_bool(0.5);
            let invented = Fault::Invent(who, self.rng.random_range(1..4));
            world.chain.script_traces([if is_hidden { Fault::Hide(who) } else { invented }]);
        }
    }

    /// What the only endpoint that traced hid when it was read first is in no deposit, and is found by a rescan.
    /// Balances show it where the address was read before it and after it.
    async fn find_what_was_hidden(&mut self, world: &mut World, tally: &mut Tally) {
        world.pass(DAY);
        self.read_balances(world, tally).await;
        tally.add("unexplained balances", u64::try_from(entries(world.db()).await.len()).unwrap());
        let hidden = unsettled(world, &self.watched_from).await;
        for FinalLeg { transfer, number } in &hidden {
            let block = world.chain.blocks().into_iter().find(|block| block.header.block.number == *number).unwrap();
            let is_inner = block.to_block(Lane::Traces).transfers.contains(transfer);
            assert!(is_inner, "a leg that the roots show is missing: {transfer:?} in block {number}");
        }
        tally.add("found by a rescan", u64::try_from(hidden.len()).unwrap());
        let to = world.chain.finalized().unwrap().number;
        let mut rescan = Rescan::<SimPool>::begin(world.another_watcher(), 1, to, true).await.unwrap();
        while !rescan.is_done() {
            rescan.step(world.now()).await.unwrap();
        }
        world.catch_up().await;
    }

    fn mine(&mut self, world: &World, tally: &mut Tally) {
        let mut txs = Vec::new();
        for tx in std::mem::take(&mut self.mempool) {
            match self.rng.random_range(0..10) {
                0..5 => txs.push(tx),
                5 => {
                    txs.push(tx.replaced_by(self.legs()));
                    tally.count("replaced");
                }
                6 => {
                    let legs = match self.rng.random_range(0..3) {
                        0 => self.legs(),
                        1 => Vec::new(),
                        _ => tx.legs.iter().map(|leg| self.paid_by_another(*leg)).collect(),
                    };
                    txs.push(SimTx { legs, ..tx });
                    tally.count("executed again");
                }
                7 => tally.count("lost"),
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
        self.highest = self.highest.max(world.chain.mine(txs).number);
        tally.count("blocks");
    }

    fn legs(&mut self) -> Vec<SimLeg> {
        let mut legs = Vec::new();
        for _ in 0..self.rng.random_range(0..4) {
            let everybody = [WATCHED.as_slice(), ADDED_LATER.as_slice(), &[0xee]].concat();
            let to = everybody[self.rng.random_range(0..everybody.len())];
            let leg = SimLeg::native(address(0x99), address(to), self.rng.random_range(1..4));
            let leg = self.paid_by_another(leg);
            if self.is_traced && self.rng.random_bool(0.4) {
                legs.push(SimLeg { lane: Lane::Traces, ..leg });
                continue;
            }
            legs.push(if self.rng.random_bool(0.5) { SimLeg { asset: TOKEN, ..leg } } else { leg });
        }
        legs
    }

    /// The same leg from another: who pays is no part of its identity. Who is watched pays too.
    fn paid_by_another(&mut self, leg: SimLeg) -> SimLeg {
        let payers = [WATCHED.as_slice(), &[0x98, 0x99]].concat();
        let payers: Vec<u8> = payers.into_iter().filter(|payer| address(*payer) != leg.recipient).collect();
        SimLeg { sender: address(payers[self.rng.random_range(0..payers.len())]), ..leg }
    }

    fn reorganise(&mut self, world: &World, tally: &mut Tally) {
        let latest = world.chain.latest().number;
        let final_number = world.chain.finalized().map_or(0, |finalized| finalized.number);
        let depth = self.rng.random_range(0..=REORG_DEPTH_MAX);
        let keep = latest.saturating_sub(depth).max(final_number).max(self.tier_floor.load(Ordering::Relaxed));
        if keep < latest {
            let before = world.chain.blocks().len();
            self.mempool.extend(world.chain.fork_at(keep));
            tally.count("reorgs");
            // In blocks: numbers may be skipped.
            if u64::try_from(before - world.chain.blocks().len()) == Ok(REORG_DEPTH_MAX) {
                tally.count(&format!("reorgs {REORG_DEPTH_MAX} deep"));
            }
            for _ in 0..self.rng.random_range(0..4) {
                self.mine(world, tally);
            }
        }
    }

    fn misbehave(&mut self, world: &World) {
        for _ in 0..self.rng.random_range(1..5) {
            let fault = match self.rng.random_range(0..6) {
                0 => Fault::Fail,
                1 => Fault::Empty,
                2 => Fault::Lag(self.rng.random_range(1..12)),
                _ => Fault::Late(Duration::ZERO),
            };
            world.chain.script([fault]);
            if self.is_traced {
                world.chain.script_traces([fault]);
            }
        }
    }

    /// At one of the next calls the chain loses its newest block and gets two others.
    fn move_while_read(&mut self, world: &World, tally: &mut Tally) {
        let mut calls_left: u32 = self.rng.random_range(1..5);
        let tier_floor = Arc::clone(&self.tier_floor);
        world.chain.before_each_call(move |chain| {
            let is_due = calls_left == 1;
            calls_left = calls_left.saturating_sub(1);
            let latest = chain.latest().number;
            let tier_floor = tier_floor.load(Ordering::Relaxed);
            let floor = chain.finalized().map_or(tier_floor, |finalized| finalized.number.max(tier_floor));
            if is_due && latest > floor {
                let txs = chain.fork_at(latest - 1);
                chain.mine_empty(1);
                chain.mine(txs);
            }
        });
        tally.count("moved while read");
    }

    /// The chain goes on quietly until every height that ever was is final and every grace has passed.
    async fn come_to_rest(&mut self, world: &mut World) {
        world.chain.behave();
        // Who is paid and pays inside of one block is witnessed by a second trace only.
        world.chain.trace_twice(true);
        world.pool.lie(None, 0);
        let highest = self.highest.max(world.chain.latest().number);
        while world.chain.finalized().is_none_or(|finalized| finalized.number < highest) {
            world.chain.mine_empty(1);
        }
        world.catch_up().await;
        world.pass(FAILED_GRACE);
        world.chain.mine_empty(1);
        world.catch_up().await;
    }
}

/// The rebuild: the same chain into an empty store, everything watched from the start.
async fn assert_ids_are_those_of_a_straight_scan(world: &World, shelf: &Shelf, watched: &BTreeMap<Address, u64>) {
    let mut straight = world.again(shelf.take(1).await);
    for who in WATCHED.iter().chain(&ADDED_LATER) {
        straight.watch(&format!("account-{who:x}"), address(*who)).await;
    }
    straight.catch_up().await;
    let confirmed = |deposits: Vec<landfall::deposit::Deposit>| -> BTreeSet<String> {
        let confirmed = deposits.into_iter().filter(|deposit| deposit.status == DepositStatus::Confirmed);
        confirmed.map(|deposit| deposit.id.to_string()).collect()
    };
    let (ours, theirs) = (confirmed(world.deposits().await), confirmed(straight.deposits().await));
    // It has watched everybody from the start: we have all of its deposits from where we were to watch. And others only
    // if they were seen above that, and mined again below.
    let is_ours = |leg: &FinalLeg| watched.get(&leg.transfer.recipient).is_some_and(|from| leg.number >= *from);
    let since = final_legs(world).into_iter().filter(|(_, leg)| is_ours(leg));
    let since: BTreeSet<String> = since.map(|(leg, _)| leg.deposit_id().to_string()).collect();
    assert!(ours.is_subset(&theirs), "a confirmed deposit that a straight scan does not find");
    assert!((&theirs & &since).is_subset(&ours), "a straight scan finds what is missing here");
    let reported: BTreeMap<String, String> = events(world.db())
        .await
        .into_iter()
        .map(|event| (format!("{} {}/{}", event.aggregateid, event.status, event.nth_entry), event.id))
        .collect();
    for event in events(straight.db()).await.into_iter().filter(|event| ours.contains(&event.aggregateid)) {
        let name = format!("{} {}/{}", event.aggregateid, event.status, event.nth_entry);
        assert_eq!(reported.get(&name), Some(&event.id), "{name}");
    }
    straight.close().await;
}
