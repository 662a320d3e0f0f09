//! Five blocks a second of mainnet's size: 1,228 transactions in 2.9 MB each, compressed as providers do it, followed
//! as `landfall run` follows a chain. Nothing is missed, and each poll of the chain reads several blocks. The lag and
//! the share of a processor depend on the machine, and are printed, without optimisation (`benches/figures` has those
//! of a release).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall::account::{AccountType, NewAccount};
use landfall::registry;
use landfall::store::cursors::Cursor;
use landfall::store::deposits::{self, DepositFilter};
use landfall::time::{Clock, Pulse};
use landfall::watcher::{Follower, Settings, Start};
use landfall_chain::{Address, ReadProof};
use landfall_cluster::{Finality, Ledger, Node, Tx, recorded};
use landfall_solana::{EndpointUrl, Options, POLL, SolanaSource, network};
use tokio_util::sync::CancellationToken;

use super::follower::{CHAIN, FIRST_SLOT};
use crate::harness::postgres::{Engine, TestStore};
use crate::harness::world::FAILED_GRACE;

const SLOT: Duration = Duration::from_millis(200);
const BLOCKS: u64 = 40;
/// Some six blocks come between two polls. A machine with other work to do looks less often, and takes more at a time.
const POLLS_MAX: u64 = BLOCKS / 2;
/// For one more block, on any machine.
const PATIENCE: Duration = Duration::from_secs(60);
const OURS: Address = Address::Solana([0xa1; 32]);
const PAYER: Address = Address::Solana([0x01; 32]);

#[tokio::test(flavor = "multi_thread")]
async fn five_blocks_a_second_of_mainnets_size_are_followed_and_none_is_missed() {
    let ledger = Ledger::starting_at(FIRST_SLOT);
    ledger.set_finality(Finality::Behind(31));
    let node = Node::start(&ledger).await;
    node.set_gzip(true);
    let store = TestStore::fresh(Engine::Sqlite).await;
    let (id, addresses) = ("ours".to_owned(), [(CHAIN, OURS)].into());
    let account = NewAccount { id, identity_id: None, kind: AccountType::Segregated, addresses };
    registry::add_accounts(&store.db, &[account], Clock::system().now()).await.unwrap();
    let txs = recorded::mainnet_like(1);
    let stop = CancellationToken::new();
    let following = follow(&node, &store, stop.clone());
    let (mut most, begun) = (0, Instant::now());
    let mut slots = tokio::time::interval(SLOT);
    for number in 1..=BLOCKS {
        slots.tick().await;
        let slot = FIRST_SLOT + number;
        // One more than those that were recorded, and ours.
        ledger.produce(slot, txs.iter().cloned().chain([Tx::sol(slot, PAYER, OURS, slot)]).collect());
        most = most.max(slot - cursor(&store).await);
    }
    let last = FIRST_SLOT + BLOCKS;
    let mut at = FIRST_SLOT;
    while at < last {
        at = tokio::time::timeout(PATIENCE, beyond(&store, at)).await.unwrap_or_else(|_| panic!("it stays at {at}"));
    }
    let polls = node.calls("getLatestBlockhash", None);
    let took = begun.elapsed();
    stop.cancel();
    let used = following.join().unwrap();
    let bytes = node.counts().bytes["getBlock"] / node.calls("getBlock", None);
    println!(
        "{BLOCKS} blocks of {} KB packed in {} ms and {polls} polls: at most {most} behind, {}% of a processor",
        bytes / 1_000,
        took.as_millis(),
        used.as_millis() * 100 / took.as_millis()
    );
    assert!(polls <= POLLS_MAX, "{polls} polls for {BLOCKS} blocks: they were taken one by one");
    assert!((100_000..1_000_000).contains(&bytes), "{bytes} bytes: whole blocks, compressed");
    let all = deposits::list(&mut store.db.read().await.unwrap(), &DepositFilter::default(), 1_000).await.unwrap();
    let amounts: BTreeSet<String> = all.iter().map(|deposit| deposit.amount.to_string()).collect();
    assert_eq!((all.len(), amounts), (40, (FIRST_SLOT + 1..=last).map(|slot| slot.to_string()).collect()));
}

/// Runs the watcher on a thread of its own until `stop`; the processor time of that thread.
fn follow(node: &Node, store: &TestStore, stop: CancellationToken) -> std::thread::JoinHandle<Duration> {
    let facts = network(CHAIN).unwrap();
    let url = EndpointUrl::from(node.url().parse::<url::Url>().unwrap());
    let source = SolanaSource::at(&facts, vec![url], &Options { poll: POLL, ..Options::default() }).unwrap();
    let (start, proof) = (Start::Number(FIRST_SLOT + 1), ReadProof::Candidate);
    let settings =
        Settings { start, proof, poll: POLL, failed_grace: FAILED_GRACE, finality_stall: None, block_stall: None };
    let endpoints = source.endpoints();
    let watcher = Follower::new(Arc::new(source), endpoints, store.db.clone(), facts, settings);
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (clock, pulse) = (Clock::system(), Pulse::new("solana", Clock::system().now()));
        runtime.block_on(watcher.run(clock, || 7, pulse, stop));
        used()
    })
}

/// How long this thread has run, as Linux counts it.
fn used() -> Duration {
    let reported = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(reported.split(' ').next().unwrap().parse().unwrap())
}

/// Waits for the cursor to pass `at`; where it stands then.
async fn beyond(store: &TestStore, at: u64) -> u64 {
    loop {
        let cursor = cursor(store).await;
        if cursor > at {
            return cursor;
        }
        tokio::time::sleep(SLOT).await;
    }
}

async fn cursor(store: &TestStore) -> u64 {
    let cursor = Cursor::load(&mut store.db.read().await.unwrap(), CHAIN).await.unwrap();
    cursor.at.map_or(FIRST_SLOT, |at| at.number)
}
