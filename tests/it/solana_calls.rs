//! What following Solana costs in calls: at most one `getBlock` of an endpoint for each block, also where it pays us, and 1.5
//! light calls a second, the same for one owner and for ten thousand. Where two endpoints must agree the second one tells the
//! blocks that pay us, too.

use std::time::{Duration, Instant};

use landfall::account::{AccountType, NewAccount};
use landfall::deposit::DepositStatus;
use landfall::registry;
use landfall::store::cursors::Cursor;
use landfall::store::deposits::{self, DepositFilter};
use landfall::time::{Clock, Pulse};
use landfall::watcher::{Settings, Start, Watcher};
use landfall_chain::{Address, Chain, ReadProof};
use landfall_cluster::{Ledger, Node, Tx};
use landfall_solana::{EndpointUrl, Options, Sample, SolanaSource, network};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::postgres::{Engine, TestStore};
use crate::world::FAILED_GRACE;

const CHAIN: Chain = Chain::SolanaMainnet;
const SLOT: Duration = Duration::from_millis(300);
const SLOTS: u64 = 40;
/// Each fourth block pays us.
const HIT_EVERY: u64 = 4;
const HITS: u64 = SLOTS / HIT_EVERY;
/// As `landfall run` polls.
const POLL: Duration = Duration::from_millis(900);
const PAYER: Address = Address::Solana([0x55; 32]);
/// Where a busy machine makes the second endpoint late, both are asked again: what it costs shows where none is.
const TRIES: u32 = 3;

#[tokio::test(flavor = "multi_thread")]
async fn at_most_one_get_block_a_block_and_one_and_a_half_light_calls_a_second_whoever_is_watched() {
    let (one, many, mut of_two) = tokio::join!(calls(1, 1), calls(10_000, 1), calls(1, 2));
    let ([one], [many]) = (one.as_slice(), many.as_slice()) else { panic!("one node each") };
    assert!(one.light.abs_diff(many.light) <= 2, "{one:?} for one owner, {many:?} for ten thousand");
    assert_eq!((one.blocks, many.blocks), (SLOTS, SLOTS), "each block is read once, also where it pays us");
    let is_each_told_once = |of_two: &[Asked]| {
        let blocks: u64 = of_two.iter().map(|node| node.blocks).sum();
        blocks == SLOTS + HITS && of_two.iter().all(|node| node.blocks <= SLOTS)
    };
    for _ in 1..TRIES {
        if !is_each_told_once(&of_two) {
            of_two = calls(1, 2).await;
        }
    }
    assert!(is_each_told_once(&of_two), "the second endpoint tells what pays us, once: {of_two:?}");
}

/// What a node was asked for.
#[derive(Debug)]
struct Asked {
    blocks: u64,
    light: u64,
}

fn owner(index: u32) -> Address {
    let mut key = [9; 32];
    key[..4].copy_from_slice(&index.to_be_bytes());
    Address::Solana(key)
}

/// What each of so many nodes was asked for while so many owners were watched for some slots, until all that was paid is
/// CONFIRMED.
async fn calls(owners: u32, nodes: usize) -> Vec<Asked> {
    let (ledger, store) = (Ledger::of(10..=12), TestStore::fresh(Engine::Sqlite).await);
    let mut started = Vec::new();
    for _ in 0..nodes {
        started.push(Node::start(&ledger).await);
    }
    let addresses = (0..owners).map(|index| (CHAIN, owner(index))).collect();
    let (id, kind) = ("ours".to_owned(), AccountType::Segregated);
    let account = NewAccount { id, identity_id: None, kind, addresses };
    registry::add_accounts(&store.db, &[account], Clock::system().now()).await.unwrap();
    let facts = network(CHAIN).unwrap();
    let urls = started.iter().map(|node| EndpointUrl::from(node.url().parse::<url::Url>().unwrap())).collect();
    let source = SolanaSource::at(&facts, urls, &Options { poll: POLL, ..Options::default() }).unwrap();
    let source = source.with_sample(Sample { one_in: 0, key: 0 });
    let (start, proof) = (Start::Number(11), ReadProof::Listed);
    let settings =
        Settings { start, proof, poll: POLL, failed_grace: FAILED_GRACE, finality_stall: None, block_stall: None };
    let endpoints = source.endpoints();
    let watcher = Watcher::new(source, endpoints, store.db.clone(), facts, settings);
    let (stop, pulse) = (CancellationToken::new(), Pulse::new("solana", Clock::system().now()));
    let mut running = JoinSet::new();
    running.spawn(watcher.run(Clock::system(), || 7, pulse, stop.clone()));
    until(async || reached(&store).await == Some(12)).await;
    // What it costs to begin is paid once: the genesis hash, a list, the block to stand on.
    started.iter().for_each(Node::forget_counts);
    let begun = Instant::now();
    let last = produce(&ledger).await;
    until(async || reached(&store).await == Some(last)).await;
    let light: Vec<u64> = started.iter().map(light_calls).collect();
    let took = begun.elapsed();
    until(async || confirmed(&store).await == HITS).await;
    stop.cancel();
    while running.join_next().await.is_some() {}
    started.iter().zip(light).map(|(node, light)| counted(node, light, owners, took)).collect()
}

async fn until(is_so: impl AsyncFn() -> bool) {
    let waited = async {
        while !is_so().await {
            tokio::time::sleep(SLOT / 10).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waited).await.unwrap();
}

async fn reached(store: &TestStore) -> Option<u64> {
    Cursor::load(&mut store.db.read().await.unwrap(), CHAIN).await.unwrap().at.map(|at| at.number)
}

async fn confirmed(store: &TestStore) -> u64 {
    let mut reader = store.db.read().await.unwrap();
    let all = deposits::list(&mut reader, &DepositFilter::default(), 1_000).await.unwrap();
    let confirmed = all.iter().filter(|deposit| deposit.status == DepositStatus::Confirmed);
    u64::try_from(confirmed.count()).unwrap()
}

/// A block in each slot, each fourth with a payment to the first owner; what is final follows, up to the newest, the last.
async fn produce(ledger: &Ledger) -> u64 {
    for slot in 1..=SLOTS {
        tokio::time::sleep(SLOT).await;
        let payment = slot.is_multiple_of(HIT_EVERY).then(|| Tx::sol(slot, PAYER, owner(0), 1_000 + slot));
        let last = ledger.grow(payment.into_iter().collect()).number;
        ledger.finalize(last.saturating_sub(3).max(10));
    }
    let last = ledger.latest().number;
    ledger.finalize(last);
    last
}

fn light_calls(node: &Node) -> u64 {
    node.counts().calls.values().sum::<u64>() - node.calls("getBlock", None)
}

fn counted(node: &Node, light: u64, owners: u32, took: Duration) -> Asked {
    let (blocks, millis) = (node.calls("getBlock", None), u64::try_from(took.as_millis()).unwrap());
    let hundredths = light * 100_000 / millis;
    let (whole, part, secs) = (hundredths / 100, hundredths % 100, took.as_secs());
    println!(
        "{owners} owners, slots of 300 ms, {secs} s, one of {}: {light} light calls, {whole}.{part:02} a second; {blocks} \
         getBlock for {SLOTS} blocks, {HITS} of them with a payment to us",
        node.id()
    );
    assert!(hundredths <= 150, "{light} light calls in {took:?}");
    Asked { blocks, light }
}
