//! An EVM chain and Solana in one process, over one store: trouble on one leaves the other's lag as it is.
//!
//! Each is read from a server of its own, over HTTP, as in the product; both make a block every 50 ms and are followed
//! by running watchers. A lag is the median of what is seen while the healthy one goes on for some blocks, and is
//! compared with those before and after the trouble, so that a busy machine decides nothing. One of the tests goes on
//! for as long as the suite: `scripts/test` runs it beside all others, and says by a file when they have ended.
//! `tests/live/sandbox.rs` has both in one process with real nodes, and without trouble.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall::operator::Operator;
use landfall::store::cursors::Cursor;
use landfall::store::{Db, status};
use landfall::time::{Clock, Pulse};
use landfall::watcher::{Follower, Settings, Start};
use landfall_chain::{BlockSource, Chain, ReadProof};
use landfall_cluster::{Instead, Ledger, Node, Refusal};
use landfall_evm::EvmSource;
use landfall_node::{Chain as Mined, Fault, Server, When};
use landfall_solana::network;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::harness::follower::{self, Mode};
use crate::harness::postgres::{Engine, TestStore};
use crate::harness::solana_line::source;
use crate::harness::world::{self, FAILED_GRACE};

const SOLANA: Chain = Chain::SolanaMainnet;
const BLOCK: Duration = Duration::from_millis(50);
/// Beside all other tests.
const SLOW_BLOCK: Duration = Duration::from_millis(250);
/// Names the file that is there once all other tests have ended.
const SUITE_ENDED: &str = "LANDFALL_SUITE_ENDED";
/// For how many blocks a lag is looked at.
const BLOCKS: u64 = 40;
/// What a lag may differ by from one look to the next, in blocks.
const NOISE: u64 = 4;
/// How often a lag is looked at in a trouble: one that comes of it is there each time.
const ROUNDS_MAX: usize = 3;
/// How long a chain may stand still on the way to what is waited for: some calls may hang on the way, and the machine.
const PATIENCE: Duration = Duration::from_secs(180);
/// How many blocks it may go on for until then.
const WAIT_BLOCKS_MAX: u64 = 2_000;

/// What befalls a chain or its only endpoint.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    Silence,
    Errors,
    Halt,
}

struct Pair {
    mined: Mined,
    server: Server,
    node: Node,
    store: TestStore,
    block: Duration,
    stop: CancellationToken,
    running: JoinSet<()>,
}

fn settings(start: u64) -> Settings {
    let poll = Duration::from_millis(20);
    let start = Start::Number(start);
    Settings {
        start,
        proof: ReadProof::Full,
        poll,
        failed_grace: FAILED_GRACE,
        finality_stall: None,
        block_stall: None,
    }
}

impl Pair {
    async fn start() -> Self {
        Pair::every(BLOCK).await
    }

    /// With a block of each so often.
    async fn every(block: Duration) -> Self {
        let facts = follower::network(Mode::Receipts);
        let mined = Mined::of(&facts, 7);
        mined.set_finality_depth(Some(4));
        mined.mine_empty(3);
        let server = Server::start(mined.clone(), 7).await.unwrap();
        let (node, store) = (Node::start(&Ledger::of(10..=12)).await, TestStore::fresh(Engine::Sqlite).await);
        let (stop, running) = (CancellationToken::new(), JoinSet::new());
        let mut pair = Pair { mined, server, node, store, block, stop, running };
        let solana = source(&[&pair.node]);
        let endpoints = solana.endpoints();
        pair.follow(
            Follower::new(Arc::new(solana), endpoints, pair.db(), network(SOLANA).unwrap(), settings(11)),
            SOLANA,
        );
        let evm = EvmSource::new(facts.clone(), &[pair.server.url().parse().unwrap()]).unwrap();
        let endpoints = evm.endpoints();
        pair.follow(Follower::new(Arc::new(evm), endpoints, pair.db(), facts, settings(1)), world::CHAIN);
        let (mined, ledger, stop) = (pair.mined.clone(), pair.node.ledger(), pair.stop.clone());
        pair.running.spawn(async move {
            while !stop.is_cancelled() {
                mined.mine_empty(1);
                ledger.grow(Vec::new());
                tokio::time::sleep(block).await;
            }
        });
        pair
    }

    fn db(&self) -> Db {
        self.store.db.clone()
    }

    fn follow<S: BlockSource>(&mut self, watcher: Follower<S>, chain: Chain) {
        let clock = Clock::system();
        let pulse = Pulse::new(chain, clock.now());
        self.running.spawn(watcher.run(clock, || 7, pulse, self.stop.clone()));
    }

    fn latest(&self, chain: Chain) -> u64 {
        if chain == SOLANA { self.node.ledger().latest().number } else { self.mined.latest().number }
    }

    /// What the node of Solana answers in the place of its next blocks.
    fn answer_from_now_on(&self, instead: Instead) {
        let next = self.latest(SOLANA) + 1;
        (next..next + 5_000).for_each(|slot| self.node.answer_instead(slot, instead));
    }

    async fn cursor(&self, chain: Chain) -> u64 {
        let cursor = Cursor::load(&mut self.store.db.read().await.unwrap(), chain).await.unwrap();
        cursor.at.map_or(0, |at| at.number)
    }

    async fn state(&self, chain: Chain) -> String {
        let chains = status::chains(&mut self.store.db.read().await.unwrap()).await.unwrap();
        chains.into_iter().find(|status| status.chain == chain).map_or(String::new(), |status| status.state)
    }

    /// Until `is_there` of the cursor, for as long as the chain goes on: a slow one is waited for.
    async fn until(&self, chain: Chain, what: &str, mut is_there: impl AsyncFnMut(u64) -> bool) {
        let first = self.cursor(chain).await;
        let (mut at, mut since) = (first, Instant::now());
        while !is_there(at).await {
            assert!(since.elapsed() < PATIENCE, "never {what}: {chain} stands still at {at}");
            assert!(at < first + WAIT_BLOCKS_MAX, "never {what}: {chain} went on from {first} to {at}");
            tokio::time::sleep(self.block / 3).await;
            let cursor = self.cursor(chain).await;
            if cursor > at {
                (at, since) = (cursor, Instant::now());
            }
        }
    }

    /// How many blocks the chain is behind, usually, while it connects some.
    async fn lag(&self, chain: Chain) -> u64 {
        let (first, mut seen) = (self.cursor(chain).await, Vec::new());
        let goes_on = async |cursor: u64| {
            seen.push(self.latest(chain).saturating_sub(cursor));
            cursor >= first + BLOCKS
        };
        self.until(chain, "some blocks on", goes_on).await;
        seen.sort_unstable();
        seen[seen.len() / 2]
    }

    async fn until_state(&self, chain: Chain, state: &str) {
        // A tick that hangs leaves the last word standing: who follows has also connected what there is now.
        let newest = if state == "following" { self.latest(chain) } else { 0 };
        self.until(chain, state, async |cursor: u64| cursor >= newest && self.state(chain).await == state).await;
    }

    /// Until the trouble is felt; a tick that hangs says nothing of it.
    async fn begin(&self, trouble: Trouble, chain: Chain) {
        match trouble {
            Trouble::Silence if chain == SOLANA => self.node.set_silent(true),
            Trouble::Silence => self.server.set_latency(Duration::from_secs(3_600)),
            Trouble::Errors if chain == SOLANA => self.answer_from_now_on(Instead::Refuse(Refusal::Internal)),
            Trouble::Errors => self.server.misbehave(Fault::ServerError, When::Always),
            Trouble::Halt if chain == SOLANA => self.answer_from_now_on(Instead::NeverEnough),
            Trouble::Halt => operator().halt(&self.db(), chain).await.unwrap(),
        }
        match trouble {
            Trouble::Silence => {}
            Trouble::Errors => self.until_state(chain, "failing").await,
            Trouble::Halt => self.until_state(chain, "halted").await,
        }
    }

    async fn end(&self, trouble: Trouble, chain: Chain) {
        match trouble {
            Trouble::Silence if chain == SOLANA => self.node.set_silent(false),
            Trouble::Silence => self.server.set_latency(Duration::ZERO),
            Trouble::Errors if chain == SOLANA => self.node.behave(),
            Trouble::Errors => self.server.behave(),
            Trouble::Halt => {
                self.node.behave();
                operator().resume(&self.db(), chain).await.unwrap();
            }
        }
    }

    /// The healthy one's lag is no more while the other is in trouble than before or after it. Where only the machine
    /// was slow meanwhile, it is not again and again.
    async fn endure(&self, trouble: Trouble, troubled: Chain, healthy: Chain) {
        for _ in 0..ROUNDS_MAX {
            self.until_state(troubled, "following").await;
            self.until_state(healthy, "following").await;
            let mut quiet = self.lag(healthy).await;
            self.begin(trouble, troubled).await;
            let stood_at = self.cursor(troubled).await;
            let lag = self.lag(healthy).await;
            let moved = self.cursor(troubled).await - stood_at;
            self.end(trouble, troubled).await;
            if lag > quiet + NOISE {
                self.until_state(troubled, "following").await;
                quiet = quiet.max(self.lag(healthy).await);
            }
            println!("{trouble:?}: {healthy} is {lag} blocks behind, {quiet} without it; {troubled} connected {moved}");
            assert!(moved < BLOCKS / 2, "{trouble:?}: {troubled} went on");
            if lag <= quiet + NOISE {
                return;
            }
        }
        panic!("{trouble:?} of {troubled}: {healthy} was behind {ROUNDS_MAX} times");
    }

    async fn stop(mut self) {
        self.stop.cancel();
        while self.running.join_next().await.is_some() {}
    }
}

fn operator() -> Operator<'static> {
    Operator { actor: "olga", reason: "a test", now: Clock::system().now(), dry_run: false }
}

#[tokio::test(flavor = "multi_thread")]
async fn trouble_on_solana_leaves_the_lag_of_an_evm_chain_as_it_is() {
    let pair = Pair::start().await;
    for trouble in [Trouble::Silence, Trouble::Halt, Trouble::Errors] {
        pair.endure(trouble, SOLANA, world::CHAIN).await;
    }
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn trouble_on_an_evm_chain_leaves_the_lag_of_solana_as_it_is() {
    let pair = Pair::start().await;
    for trouble in [Trouble::Silence, Trouble::Halt, Trouble::Errors] {
        pair.endure(trouble, world::CHAIN, SOLANA).await;
    }
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn both_are_followed_for_as_long_as_the_suite_and_trouble_stays_with_its_own() {
    #[expect(clippy::disallowed_methods, reason = "the test's own environment")]
    let ended = std::env::var(SUITE_ENDED).map(PathBuf::from).ok();
    let pair = Pair::every(if ended.is_some() { SLOW_BLOCK } else { BLOCK }).await;
    let (begun, mut rounds) = (Instant::now(), 0);
    loop {
        for (troubled, healthy) in [(SOLANA, world::CHAIN), (world::CHAIN, SOLANA)] {
            pair.endure(Trouble::Errors, troubled, healthy).await;
        }
        rounds += 1;
        if ended.as_ref().is_none_or(|ended| ended.exists()) {
            break;
        }
    }
    let (slots, blocks) = (pair.cursor(SOLANA).await, pair.cursor(world::CHAIN).await);
    println!("side by side for {} s: {rounds} rounds, {blocks} blocks, {slots} slots", begun.elapsed().as_secs());
    pair.stop().await;
}
