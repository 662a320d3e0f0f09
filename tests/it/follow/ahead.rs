//! Reading ahead: however far it is behind, the reads under way at once are bounded. Nobody waits for numbers that a
//! chain skipped. How much a node serves at once is learnt from its refusals.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use landfall::deposit::DepositStatus::Confirmed;
use landfall::store::cursors::Cursor;
use landfall::time::Timestamp;
use landfall::watcher::{Backfill, Follower, Job, Rescan, Scope, Settings, Start};
use landfall_chain::{Block, BlockSource, Endpoints, Lane, Network, Read, ReadProof, SourceError, U256};
use landfall_evm::EvmSource;
use landfall_node::{Chain, LogLimits, Server, Tx};
use landfall_sim::{Fault, SimChain, SimLeg, SimTx};

use crate::harness::follower::{self, Mode};
use crate::harness::postgres::{ENGINES, Engine, TestStore};
use crate::harness::through::{OnTheWay, Through};
use crate::harness::world::{CHAIN, FAILED_GRACE, World, address, network, watch};

const ALICE: u8 = 0xa1;
const PAYER: u8 = 0x01;
const PROOFS: [ReadProof; 2] = [ReadProof::Full, ReadProof::Candidate];
/// What is promised: reads under way, and blocks in them.
const READS_MAX: usize = 4;
const BLOCKS_MAX: u64 = 80;
const TRACED_MAX: u64 = 16;

fn payment(number: u64) -> SimTx {
    let leg = if number.is_multiple_of(2) { SimLeg::native } else { SimLeg::inner };
    SimTx::new(address(PAYER), number, vec![leg(address(PAYER), address(ALICE), number)])
}

/// Reads take a while, and are counted while they are under way.
#[derive(Default)]
struct Slow(Mutex<UnderWay>);

#[derive(Default)]
struct UnderWay {
    reads: usize,
    /// By lane: what is under way, and the most that ever was, with the most reads.
    blocks: [u64; 2],
    most: [u64; 2],
    most_reads: usize,
}

impl Slow {
    /// The most reads at once, and the most blocks of the roots and of the traces.
    fn most(&self) -> (usize, [u64; 2]) {
        let under_way = self.0.lock().unwrap();
        (under_way.most_reads, under_way.most)
    }

    async fn counted<T>(&self, range: &RangeInclusive<u64>, lane: Lane, read: impl Future<Output = T>) -> T {
        let (width, lane) = (range.end() - range.start() + 1, usize::from(lane == Lane::Traces));
        {
            let mut under_way = self.0.lock().unwrap();
            under_way.reads += 1;
            under_way.blocks[lane] += width;
            under_way.most_reads = under_way.most_reads.max(under_way.reads);
            under_way.most[lane] = under_way.most[lane].max(under_way.blocks[lane]);
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
        let read = read.await;
        let mut under_way = self.0.lock().unwrap();
        under_way.reads -= 1;
        under_way.blocks[lane] -= width;
        read
    }
}

impl OnTheWay for Slow {
    fn blocks<'a>(
        &'a self,
        chain: &'a SimChain,
        range: RangeInclusive<u64>,
        read: Read,
    ) -> BoxFuture<'a, Result<Vec<Block>, SourceError>> {
        Box::pin(async move { self.counted(&range, read.lane, BlockSource::blocks(chain, range.clone(), read)).await })
    }
}

fn watcher<S: BlockSource>(source: S, store: &TestStore, network: Network) -> Follower<S> {
    let (start, proof, poll) = (Start::Number(1), ReadProof::Full, Duration::from_millis(10));
    let settings = Settings { start, proof, poll, failed_grace: FAILED_GRACE, finality_stall: None, block_stall: None };
    Follower::new(source, Endpoints::new(["sim".to_owned()]), store.db.clone(), network, settings)
}

fn job(to: u64, proof: ReadProof) -> Job {
    Job { from: 1, to: Some(to), proof, scope: Scope::All, dry_run: false }
}

#[tokio::test]
async fn a_long_stop_is_caught_up_with_a_bounded_number_of_blocks_at_once_in_every_kind_of_reading() {
    let world = World::traced(Engine::Sqlite, 1).await;
    world.watch("alice", address(ALICE)).await;
    (1..=700).for_each(|number| {
        world.chain.mine(vec![payment(number)]);
    });
    world.chain.mine_empty(10);
    let slow = Arc::new(Slow::default());
    let source = Through::new(&world.chain, slow.clone());
    let new = || watcher(source.clone(), &world.store, world.network.clone());
    let (mut following, mut ticks) = (new(), 0);
    while !following.tick(world.now()).await.unwrap().caught_up {
        ticks += 1;
    }
    assert_eq!(ticks, 7, "100 blocks at a time");
    assert_eq!(slow.most(), (READS_MAX, [BLOCKS_MAX, 0]));
    let lane = following.trace_lane().unwrap();
    while lane.tick(world.now()).await.unwrap().more {}
    assert!(slow.most().1[1] <= TRACED_MAX);

    for proof in PROOFS {
        let store = TestStore::fresh(Engine::Sqlite).await;
        watch(&store.db, "alice", address(ALICE), world.now()).await;
        let slow = Arc::new(Slow::default());
        let source = Through::new(&world.chain, slow.clone());
        let past = watcher(source.clone(), &store, world.network.clone());
        let mut backfill = Backfill::begin(past, job(700, proof)).await.unwrap();
        while !backfill.is_done() {
            backfill.step(world.now()).await.unwrap();
        }
        assert_eq!((backfill.progress().found, backfill.progress().confirmed), (700, 700));
        let (reads, [roots, traced]) = slow.most();
        assert!(reads <= READS_MAX && roots <= BLOCKS_MAX && traced == TRACED_MAX, "{reads} {roots} {traced}");

        let mut rescan =
            Rescan::begin(watcher(source.clone(), &store, world.network.clone()), 1, 700, false).await.unwrap();
        while !rescan.is_done() {
            rescan.step(world.now()).await.unwrap();
        }
        assert_eq!(rescan.take_differences(), []);
        let (reads, [roots, traced]) = slow.most();
        assert!(reads <= READS_MAX && roots <= BLOCKS_MAX && traced == TRACED_MAX, "{reads} {roots} {traced}");
    }
    world.abandon();
}

#[tokio::test]
async fn numbers_that_a_chain_skipped_hold_up_neither_the_watcher_nor_a_backfill() {
    for engine in ENGINES {
        let mut world = World::on(engine, 1).await;
        world.watch("alice", address(ALICE)).await;
        world.chain.mine(vec![payment(2)]);
        for skipped in [99, 100, 101, 350] {
            world.chain.skip(skipped);
            world.chain.mine(vec![payment(skipped * 2)]);
            world.catch_up().await;
            assert!(
                world.deposits().await.iter().any(|deposit| deposit.amount == U256::from(skipped * 2)),
                "{skipped}"
            );
        }
        world.chain.mine_empty(20);
        world.catch_up().await;
        assert_eq!(world.deposits().await.len(), 5);

        let store = TestStore::fresh(engine).await;
        watch(&store.db, "alice", address(ALICE), world.now()).await;
        let to = world.chain.finalized().unwrap().number;
        let past = watcher(world.pool.clone(), &store, network());
        let mut backfill = Backfill::begin(past, job(to, ReadProof::Full)).await;
        let backfill = backfill.as_mut().unwrap();
        while !backfill.is_done() {
            backfill.step(world.now()).await.unwrap();
        }
        assert_eq!(backfill.progress().found, 5, "{engine:?}");
        world.close().await;
    }
}

#[tokio::test]
async fn numbers_that_a_node_merely_does_not_show_are_not_taken_for_skipped() {
    let mut world = World::new(1).await;
    world.watch("alice", address(ALICE)).await;
    world.chain.mine(vec![payment(2)]);
    world.catch_up().await;
    (2..=300).for_each(|number| {
        world.chain.mine(vec![payment(number * 2)]);
    });
    // At two looks every read of the first hundred numbers shows nothing; at the second the next hundred is shown.
    let look = || [Fault::Late(Duration::ZERO)].into_iter().chain(std::iter::repeat_n(Fault::Empty, 5));
    world.chain.script(look().chain(look()));
    let looked = world.tick().await;
    assert_eq!((looked.connected, looked.disconnected, looked.caught_up), (0, 0, false));
    let error = world.try_tick().await.unwrap_err();
    assert!(error.may_pass() && error.to_string().contains("no block on top of"), "{error}");
    world.catch_up().await;
    world.chain.mine_empty(20);
    world.catch_up().await;
    assert_eq!(world.deposits().await.len(), 300);
    assert!(world.deposits().await.iter().all(|deposit| deposit.status == Confirmed));
    world.close().await;
}

fn traced_network() -> Network {
    follower::network(Mode::Traces)
}

/// In 240 final blocks Alice is paid a token in every third and by a contract in every fifth.
fn paid_inside_too() -> Chain {
    let chain = Chain::of(&traced_network(), 7);
    chain.set_finality_depth(Some(10));
    let alice = landfall_node::Address::from([ALICE; 20]);
    let contract = landfall_node::Address::from([0xc0; 20]);
    for nonce in 0..250_u64 {
        let number = nonce + 1;
        let stranger = landfall_node::Address::from([9; 20]);
        let to = if number.is_multiple_of(3) { alice } else { stranger };
        let inside = number.is_multiple_of(5).then(|| Tx::forward(1, nonce / 5, contract, alice, number));
        let token = Tx::token(0, nonce, follower::usdc(), to, number);
        chain.mine([Some(token), inside].into_iter().flatten().collect());
    }
    chain
}

async fn past(server: &Server, store: &TestStore, proof: ReadProof) -> Backfill<Arc<EvmSource>> {
    let now = Timestamp(1_800_000_000_000_000);
    watch(&store.db, "alice", address(ALICE), now).await;
    let source = Arc::new(EvmSource::new(traced_network(), &[server.url().parse().unwrap()]).unwrap());
    Backfill::begin(watcher(source, store, traced_network()), job(240, proof)).await.unwrap()
}

#[tokio::test]
async fn a_backfill_learns_what_a_node_serves_at_once_and_misses_nothing() {
    for proof in PROOFS {
        let chain = paid_inside_too();
        let server = Server::start(chain, 1).await.unwrap();
        server.set_batch_max(7);
        server.set_log_limits(LogLimits { blocks_max: 13, ..LogLimits::default() });
        let store = TestStore::fresh(Engine::Sqlite).await;
        let mut past = past(&server, &store, proof).await;
        for _ in 0..400 {
            if past.is_done() {
                break;
            }
            let stepped = past.step(Timestamp(1_800_000_000_000_000)).await;
            stepped.inspect_err(|error| assert!(error.may_pass(), "{error}")).ok();
        }
        assert!(past.is_done(), "{proof:?}: {:?}", past.progress());
        let reported = past.progress();
        assert_eq!((reported.found, reported.confirmed, reported.doubted), (80 + 48, 80 + 48, 0), "{proof:?}");
        assert_eq!(Cursor::load(&mut store.db.read().await.unwrap(), CHAIN).await.unwrap().at, None);
        let asked: BTreeSet<String> = server.counts().calls.into_keys().collect();
        assert_eq!(asked.contains("eth_getLogs"), proof == ReadProof::Candidate, "{asked:?}");
    }
}

#[tokio::test]
async fn where_no_node_traces_a_backfill_credits_what_the_roots_prove_and_ends_with_one_clear_error() {
    let server = Server::start(paid_inside_too(), 1).await.unwrap();
    server.set_missing(&["debug_traceBlockByHash", "trace_block"]);
    let store = TestStore::fresh(Engine::Sqlite).await;
    let mut past = past(&server, &store, ReadProof::Full).await;
    let refused = loop {
        match past.step(Timestamp(1_800_000_000_000_000)).await {
            Ok(()) => assert!(!past.is_done(), "nothing was traced"),
            Err(error) => break error,
        }
    };
    assert!(!refused.may_pass(), "{refused}");
    let reported = refused.to_string();
    assert!(
        reported.contains("value that moved inside of transactions is not seen; add an endpoint that traces"),
        "{reported}"
    );
    let progress = past.progress();
    assert_eq!((progress.found, progress.confirmed, progress.next), (80, 80, 241));
    assert_eq!(progress.untraced().map(|span| (span.next, span.until)), Some((1, 240)));
}
