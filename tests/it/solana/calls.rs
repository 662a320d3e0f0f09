//! What following Solana costs in calls, balances and all. At most one `getBlock` of an endpoint for each block, also
//! where it pays us, and 1.5 light calls a second, for one owner as for ten thousand. Where two endpoints must agree,
//! the second one reports the blocks that pay us, too (twice if they were picked before it had them). It also reports
//! one in 32 of the others, though it is some slots behind; and there each slot wakes us up. A header is a light call,
//! whatever its method is called.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall::account::{AccountType, NewAccount};
use landfall::deposit::DepositStatus;
use landfall::registry;
use landfall::store::cursors::Cursor;
use landfall::store::deposits::{self, DepositFilter};
use landfall::time::{Clock, Pulse};
use landfall::watcher::{BalanceWatch, Follower, Settings, Start};
use landfall_chain::{Address, AssetId, Chain, ReadProof};
use landfall_cluster::{Ledger, Node, Tx, hash};
use landfall_solana::{EndpointUrl, HOLDINGS_PAUSE, Options, POLL, Sample, SolanaSource, Timings, network};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::harness::postgres::{Engine, TestStore};
use crate::harness::world::FAILED_GRACE;

const CHAIN: Chain = Chain::SolanaMainnet;
/// All happens so many times as fast as on mainnet, slots, polls and balances alike.
const FASTER: u32 = 4;
const SLOT: Duration = Duration::from_millis(300);
const SLOTS: u64 = 240;
/// The newest slot of before.
const BEFORE: u64 = 15;
/// One slot in so many is skipped.
const SKIPPED_EVERY: u64 = 20;
/// Each fourth slot pays us, as far as it holds a block.
const HIT_EVERY: u64 = 4;
/// How far what is final is behind the newest block, and how far the second endpoint is behind the first, in both.
const FINALITY: u64 = 3;
const BEHIND: u64 = 2;
/// How often it is looked whether balances are due.
const BALANCES_TICK: Duration = Duration::from_secs(1);
const PAYER: Address = Address::Solana([0x55; 32]);
/// In hundredths of a second, of the chain's time.
const LIGHT_MAX: u64 = 150;
/// How long a second endpoint is waited for: who gives up asks for the block once more, and a slow machine would have
/// him give up.
const PATIENCE: Duration = Duration::from_secs(60);
/// A slot that is later than this says that the machine stood still, and calls may have met their limit of 15 s: they
/// are made again then.
const LATE_MAX: Duration = Duration::from_secs(10);
/// How often a case is run at most, until no slot was so late.
const RUNS_MAX: usize = 3;

#[tokio::test(flavor = "multi_thread")]
async fn at_most_one_get_block_a_block_and_one_and_a_half_light_calls_a_second_whoever_is_watched() {
    let (one, many, of_two, many_of_two) = tokio::join!(calls(1, 1), calls(10_000, 1), calls(1, 2), calls(10_000, 2));
    let of_three = calls(10_000, 3).await;
    // The newest one comes behind all of them.
    let blocks = (1..=SLOTS).filter(is_produced).count() + 1;
    let hits = (1..=SLOTS).filter(pays).count();
    // What is compared, whomever it pays; the newest one is not of these.
    let is_sampled = |slot: &u64| is_produced(slot) && Sample::default().picks(&hash(BEFORE + slot, 0));
    let sampled = (1..=SLOTS).filter(is_sampled).count();
    let sampled_hits = (1..=SLOTS).filter(|slot| is_sampled(slot) && pays(slot)).count();
    let counts = [blocks, hits, sampled, sampled_hits].map(|count| u64::try_from(count).unwrap());
    let [blocks, hits, sampled, sampled_hits] = counts;
    assert!(sampled > 0, "some are compared");
    // Who asked for each hundred owners would pass it at once with the 10,000. By how much less it is depends on how
    // busy the machine is.
    for asked in [&one, &many, &of_two, &many_of_two, &of_three].into_iter().flatten() {
        assert!(asked.light_a_second <= LIGHT_MAX, "{asked:?}");
    }
    assert!(
        many.iter().chain(&many_of_two).all(|node| node.balances >= 4),
        "balances are read beside it: {many:?}, {many_of_two:?}"
    );
    assert!(of_three.iter().map(|node| node.balances).sum::<u64>() >= 8, "two of three tell each: {of_three:?}");
    for alone in [&one, &many] {
        assert_eq!(alone[0].blocks, blocks, "each block is read once, also where it pays us");
    }
    for two in [&of_two, &many_of_two] {
        // In the end both are there, and either may lead.
        let reported: u64 = two.iter().map(|node| node.blocks).sum();
        // A block that was picked for comparison, and pays us, is reported by the second endpoint when it is recorded,
        // and once more before it counts as final. If it was there in time, it is reported once in all.
        let most = blocks + hits + sampled;
        let is_once = (most - sampled_hits..=most).contains(&reported) && two.iter().all(|node| node.blocks <= blocks);
        assert!(is_once, "the second endpoint tells what pays us and {sampled} others, once: {two:?}");
    }
}

/// What a node was asked for.
#[derive(Debug)]
#[expect(dead_code, reason = "whose counts these are stands in what a failure tells")]
struct Asked {
    id: String,
    blocks: u64,
    light: u64,
    /// How many of these were for balances.
    balances: u64,
    /// In hundredths, of the chain's time.
    light_a_second: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "a filter")]
fn is_produced(slot: &u64) -> bool {
    !slot.is_multiple_of(SKIPPED_EVERY)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "a filter")]
fn pays(slot: &u64) -> bool {
    is_produced(slot) && slot.is_multiple_of(HIT_EVERY)
}

fn owner(index: u32) -> Address {
    let mut key = [9; 32];
    key[..4].copy_from_slice(&index.to_be_bytes());
    Address::Solana(key)
}

/// What each of so many nodes was asked for, where the machine let it; the last run counts in any case.
async fn calls(owners: u32, nodes: usize) -> Vec<Asked> {
    for _ in 1..RUNS_MAX {
        let (asked, late) = run(owners, nodes).await;
        if late <= LATE_MAX {
            return asked;
        }
        println!("{owners} owners, {nodes} nodes: a slot was {late:?} late, once more");
    }
    run(owners, nodes).await.0
}

/// What each of so many nodes was asked for while so many owners were watched for some slots, until all that was paid
/// is CONFIRMED; and how late a slot began at most.
async fn run(owners: u32, nodes: usize) -> (Vec<Asked>, Duration) {
    let (ledger, store) = (Ledger::of(10..=BEFORE), TestStore::fresh(Engine::Sqlite).await);
    let mut started = Vec::new();
    for _ in 0..nodes {
        started.push(Node::start(&ledger).await);
    }
    lag(&started, &ledger);
    let addresses = (0..owners).map(|index| (CHAIN, owner(index))).collect();
    let (id, kind) = ("ours".to_owned(), AccountType::Segregated);
    let account = NewAccount { id, identity_id: None, kind, addresses };
    registry::add_accounts(&store.db, &[account], Clock::system().now()).await.unwrap();
    let mut running = JoinSet::new();
    let stop = follow(&started, &store, &mut running);
    until(async || reached(&store).await == Some(BEFORE)).await;
    // What it costs to begin is paid once: the genesis hash, a list, the block to stand on.
    let begun = Instant::now();
    started.iter().for_each(Node::forget_counts);
    let (last, late) = produce(&ledger, &started).await;
    until(async || reached(&store).await == Some(last)).await;
    let light: Vec<_> = started.iter().map(|node| (node.blocks_and_light_calls().1, balances(node))).collect();
    // Counted within this time: standing still between the two makes no rate higher.
    let took = begun.elapsed() * FASTER;
    let hits = (1..=SLOTS).filter(pays).count();
    until(async || confirmed(&store).await == hits).await;
    stop.cancel();
    while running.join_next().await.is_some() {}
    (started.iter().zip(light).map(|(node, light)| counted(node, light, owners, took)).collect(), late)
}

/// Follows the nodes, and reads balances, as `landfall run` does.
fn follow(nodes: &[Node], store: &TestStore, running: &mut JoinSet<()>) -> CancellationToken {
    let facts = network(CHAIN).unwrap();
    let urls = nodes.iter().map(|node| EndpointUrl::from(node.url().parse::<url::Url>().unwrap())).collect();
    let poll = POLL / FASTER;
    // It compares one block in 32, as `landfall run` does under a key of its own.
    let timings = Timings { second_wait: PATIENCE, ..Timings::PRODUCTION };
    let source = SolanaSource::at(&facts, urls, &Options { poll, timings, ..Options::default() }).unwrap();
    let source = Arc::new(source);
    let (start, proof) = (Start::Number(11), ReadProof::Candidate);
    let settings = Settings { start, proof, poll, failed_grace: FAILED_GRACE, finality_stall: None, block_stall: None };
    let assets: Vec<AssetId> = facts.assets.iter().map(|asset| asset.id).collect();
    let most = u32::try_from(source.owners_of_a_call(&assets)).unwrap();
    let balances = BalanceWatch::new(Arc::clone(&source), store.db.clone(), &facts, most, "us".to_owned());
    let mut balances = balances.pausing(HOLDINGS_PAUSE / FASTER);
    let endpoints = source.endpoints();
    let wake_up = Arc::new(Notify::new());
    let watcher = Follower::new(source, endpoints, store.db.clone(), facts, settings).woken_by(Arc::clone(&wake_up));
    let (stop, pulse) = (CancellationToken::new(), Pulse::new("solana", Clock::system().now()));
    running.spawn(watcher.run(Clock::system(), || 7, pulse, stop.clone()));
    if nodes.len() > 1 {
        // A wake-up comes for each slot, as over WebSocket.
        let stopped = stop.clone();
        running.spawn(async move {
            while !stopped.is_cancelled() {
                wake_up.notify_one();
                tokio::time::sleep(SLOT / FASTER).await;
            }
        });
    }
    let stopped = stop.clone();
    running.spawn(async move {
        while !stopped.is_cancelled() {
            balances.tick(Clock::system().now(), 0).await.unwrap();
            tokio::time::sleep(BALANCES_TICK / FASTER).await;
        }
    });
    stop
}

async fn until(is_so: impl AsyncFn() -> bool) {
    let waited = async {
        while !is_so().await {
            tokio::time::sleep(SLOT / 10).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), waited).await.unwrap();
}

async fn reached(store: &TestStore) -> Option<u64> {
    Cursor::load(&mut store.db.read().await.unwrap(), CHAIN).await.unwrap().at.map(|at| at.number)
}

async fn confirmed(store: &TestStore) -> usize {
    let mut reader = store.db.read().await.unwrap();
    let all = deposits::list(&mut reader, &DepositFilter::default(), 1_000).await.unwrap();
    all.iter().filter(|deposit| deposit.status == DepositStatus::Confirmed).count()
}

/// A block in each slot that is not skipped, some with a payment to the first owner; what is final follows, in the end
/// up to the newest, the last, of which all endpoints know. It, and how late a slot began at most.
async fn produce(ledger: &Ledger, nodes: &[Node]) -> (u64, Duration) {
    let (mut slots, mut late) = (tokio::time::interval(SLOT / FASTER), Duration::ZERO);
    // Behind one that was late the others do not hurry.
    slots.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let first = ledger.latest().number;
    for slot in 1..=SLOTS {
        late = late.max(slots.tick().await.elapsed());
        if is_produced(&slot) {
            let payment = pays(&slot).then(|| Tx::sol(slot, PAYER, owner(0), 1_000 + slot));
            ledger.produce(first + slot, payment.into_iter().collect());
            ledger.finalize(first + slot - FINALITY);
            lag(nodes, ledger);
        }
    }
    let last = ledger.grow(Vec::new()).number;
    ledger.finalize(last);
    for node in nodes {
        node.lag(0);
        node.call_final(None);
    }
    (last, late)
}

/// The second endpoint is behind the first, in what is newest and in what is final.
fn lag(nodes: &[Node], ledger: &Ledger) {
    if let Some(second) = nodes.get(1) {
        second.lag(BEHIND);
        second.call_final(ledger.finalized().number.saturating_sub(BEHIND).max(10));
    }
}

fn balances(node: &Node) -> u64 {
    node.calls("getMultipleAccounts", None)
}

fn counted(node: &Node, (light, balances): (u64, u64), owners: u32, took: Duration) -> Asked {
    let blocks = node.blocks_and_light_calls().0;
    let light_a_second = light * 100_000 / u64::try_from(took.as_millis()).unwrap();
    let (whole, part, secs) = (light_a_second / 100, light_a_second % 100, took.as_secs());
    println!(
        "{owners} owners, slots of 300 ms of which one in {SKIPPED_EVERY} is skipped, {secs} s of the chain's time, node {}: {light} \
         light calls, {balances} of them for balances, {whole}.{part:02} a second; {blocks} getBlock for {SLOTS} slots: {:?}",
        node.id(),
        by_method(node)
    );
    Asked { id: node.id().to_owned(), blocks, light, balances, light_a_second }
}

fn by_method(node: &Node) -> BTreeMap<String, u64> {
    let mut calls = BTreeMap::new();
    for ((method, _), times) in node.counts().calls {
        *calls.entry(method).or_default() += times;
    }
    calls
}
