//! What following Solana costs in calls: at most one `getBlock` for each block and 1.5 light calls a second, the same for
//! one owner and for ten thousand.

use std::time::{Duration, Instant};

use landfall::account::{AccountType, NewAccount};
use landfall::registry;
use landfall::store::cursors::Cursor;
use landfall::time::{Clock, Pulse};
use landfall::watcher::{Settings, Start, Watcher};
use landfall_chain::{Address, Chain, ReadProof};
use landfall_cluster::{Ledger, Node};
use landfall_solana::{EndpointUrl, Options, SolanaSource, network};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::postgres::{Engine, TestStore};
use crate::world::FAILED_GRACE;

const SLOT: Duration = Duration::from_millis(300);
const SLOTS: u64 = 40;
/// As `landfall run` polls.
const POLL: Duration = Duration::from_millis(900);

#[tokio::test(flavor = "multi_thread")]
async fn at_most_one_get_block_a_block_and_one_and_a_half_light_calls_a_second_whoever_is_watched() {
    let (one, many) = tokio::join!(calls(1), calls(10_000));
    assert!(one.abs_diff(many) <= 2, "{one} light calls for one owner, {many} for ten thousand");
}

/// How many light calls were made while so many owners were watched for some slots.
async fn calls(owners: u32) -> u64 {
    let node = Node::start(&Ledger::of(10..=12)).await;
    let store = TestStore::fresh(Engine::Sqlite).await;
    let owner = |index: u32| {
        let mut key = [9; 32];
        key[..4].copy_from_slice(&index.to_be_bytes());
        (Chain::SolanaMainnet, Address::Solana(key))
    };
    let addresses = (0..owners).map(owner).collect();
    let (id, kind) = ("ours".to_owned(), AccountType::Segregated);
    let account = NewAccount { id, identity_id: None, kind, addresses };
    registry::add_accounts(&store.db, &[account], Clock::system().now()).await.unwrap();
    let facts = network(Chain::SolanaMainnet).unwrap();
    let url = EndpointUrl::from(node.url().parse::<url::Url>().unwrap());
    let source = SolanaSource::at(&facts, vec![url], &Options { poll: POLL, ..Options::default() }).unwrap();
    let (start, proof) = (Start::Number(11), ReadProof::Listed);
    let settings = Settings { start, proof, poll: POLL, failed_grace: FAILED_GRACE, finality_stall: None };
    let endpoints = source.endpoints();
    let watcher = Watcher::new(source, endpoints, store.db.clone(), facts, settings);
    let (stop, pulse) = (CancellationToken::new(), Pulse::new("solana", Clock::system().now()));
    let mut running = JoinSet::new();
    running.spawn(watcher.run(Clock::system(), || 7, pulse, stop.clone()));
    until_connected(&store, 12).await;
    // What it costs to begin is paid once: the genesis hash, a list, the block to stand on.
    node.forget_counts();
    let begun = Instant::now();
    let last = produce(&node).await;
    until_connected(&store, last).await;
    let took = begun.elapsed();
    stop.cancel();
    while running.join_next().await.is_some() {}
    counted(&node, owners, last, took)
}

async fn until_connected(store: &TestStore, slot: u64) {
    let connected = async {
        loop {
            let cursor = Cursor::load(&mut store.db.read().await.unwrap(), Chain::SolanaMainnet).await.unwrap();
            if cursor.at.is_some_and(|at| at.number == slot) {
                return;
            }
            tokio::time::sleep(SLOT / 10).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), connected).await.unwrap();
}

/// A block in each slot, and what is final follows; the last of them.
async fn produce(node: &Node) -> u64 {
    let mut last = 0;
    for _ in 0..SLOTS {
        tokio::time::sleep(SLOT).await;
        last = node.ledger().grow(Vec::new()).number;
        node.call_final(last.saturating_sub(3).max(10));
    }
    last
}

fn counted(node: &Node, owners: u32, last: u64, took: Duration) -> u64 {
    let (blocks, all) = (node.calls("getBlock", None), node.counts().calls.values().sum::<u64>());
    let (light, millis) = (all - blocks, u64::try_from(took.as_millis()).unwrap());
    let hundredths = light * 100_000 / millis;
    let (whole, part, secs) = (hundredths / 100, hundredths % 100, took.as_secs());
    println!(
        "{owners} owners, slots of 300 ms, {secs} s: {light} light calls, {whole}.{part:02} a second; {blocks} getBlock for \
         {SLOTS} blocks up to {last}"
    );
    assert_eq!(blocks, SLOTS, "each block is read once");
    assert!(hundredths <= 150, "{light} light calls in {took:?}");
    light
}
