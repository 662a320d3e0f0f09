//! The other harness: a chain with real hashes behind JSON-RPC servers, followed by the real EVM source into a real
//! SQLite store, tick by tick.
//!
//! `world` asks whether the watcher is right when its source is; this asks whether both are when the nodes are not.
//! The chain's own ledger says what is true; [`Followed::audit`] counts what the store makes of it.
//! The watcher's clock stands until [`Followed::settle`] moves it; that of the endpoint pool is the real one, so that
//! what rests or is in quarantine is waited for in real time.

mod audit;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall::account::{AccountType, NewAccount};
use landfall::registry;
use landfall::store::cursors::{self, Cursor};
use landfall::store::{Db, traces};
use landfall::time::{Clock, Pulse, Timestamp};
use landfall::watcher::{Backfill, Follower, Job, Settings, Start, TickError, Ticked, TraceLane, Traced};
use landfall_chain::{
    Address, AssetId, BlockRef, EndpointState, Endpoints, FinalityRule, Native, NativeSource, Network, ReadProof,
};
use landfall_evm::{EndpointUrl, EvmSource, Timings};
use landfall_node::{Chain, Server};
use tokio_util::sync::CancellationToken;

pub(crate) use audit::{Audit, Kinds};

use crate::harness::postgres::{Engine, TestStore};
use crate::harness::world::{CHAIN, FAILED_GRACE};

/// As many as networks want on top beside the tag, for chains this short: as many as a reorg takes away at most, and
/// fewer than a tag that is honest leaves.
const CONFIRMATIONS: u64 = 3;
/// How long nothing may be got on with once every server behaves: longer than the longest quarantine.
const REST_MAX: Duration = Duration::from_secs(120);
/// More than the longest pause of an endpoint, of five minutes.
const PAUSED_MAX: Duration = Duration::from_secs(360);
/// How long a harness that waits for an endpoint leaves it alone.
const PAUSE: Duration = Duration::from_millis(20);
/// How far the watcher's clock goes meanwhile.
const STEP: Duration = Duration::from_secs(1);
const UNTRACED_MAX: u32 = 1_000;

/// How a chain is read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Mode {
    /// Every block by its receipts. Value that moves inside of transactions is not seen.
    Receipts,
    /// Blocks by their logs, and by their receipts where they may concern us.
    Logs,
    /// As `Receipts`, and traces in a lane of their own.
    Traces,
}

/// One chain, its servers, and who follows them.
pub(crate) struct Followed {
    pub(crate) chain: Chain,
    pub(crate) servers: Vec<Server>,
    /// How often there was nothing to do although not all that is final was settled: whoever had stopped there would
    /// have missed it. With the reason that the source gave.
    pub(crate) waits: u64,
    pub(crate) waited_for: String,
    mode: Mode,
    store: TestStore,
    endpoints: Endpoints,
    watcher: Follower<Arc<EvmSource>>,
    lane: Option<TraceLane<Arc<EvmSource>>>,
    watched: BTreeSet<Address>,
    now: Timestamp,
}

impl Mode {
    pub(crate) const ALL: [Mode; 3] = [Mode::Receipts, Mode::Logs, Mode::Traces];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Mode::Receipts => "receipts",
            Mode::Logs => "logs",
            Mode::Traces => "traces",
        }
    }

    const fn proof(self) -> ReadProof {
        match self {
            Mode::Receipts | Mode::Traces => ReadProof::Full,
            Mode::Logs => ReadProof::Candidate,
        }
    }

    const fn native(self) -> Native {
        match self {
            Mode::Receipts | Mode::Logs => Native::TOP_LEVEL,
            Mode::Traces => Native { source: NativeSource::Trace, eip7708_from: None },
        }
    }
}

impl Followed {
    /// Follows `chain` through as many servers as there are seeds, from block 1 on.
    pub(crate) async fn new(chain: Chain, mode: Mode, seeds: &[u64], watched: Vec<Address>) -> Self {
        let store = TestStore::fresh(Engine::Sqlite).await;
        let mut servers = Vec::new();
        for seed in seeds {
            let server = Server::start(chain.clone(), *seed).await.unwrap();
            // Each runs another program than the one before it.
            server.call_itself(["Geth/v1.16.7", "reth/v1.9.3"][servers.len() % 2]);
            servers.push(server);
        }
        let now = Timestamp(1_800_000_000_000_000);
        let (watcher, endpoints) = watcher(&servers, &store, mode);
        let lane = watcher.trace_lane();
        let (nobody, waited_for) = (BTreeSet::new(), String::new());
        let mut follower = Followed {
            chain,
            servers,
            waits: 0,
            waited_for,
            mode,
            store,
            endpoints,
            watcher,
            lane,
            watched: nobody,
            now,
        };
        follower.watch(watched).await;
        follower
    }

    /// Adds an account for each of these addresses.
    pub(crate) async fn watch(&mut self, addresses: Vec<Address>) {
        let account = |(number, address): (usize, &Address)| NewAccount {
            id: format!("account-{number}"),
            identity_id: None,
            kind: AccountType::Segregated,
            addresses: [(CHAIN, *address)].into(),
        };
        let accounts: Vec<NewAccount> = (self.watched.len()..).zip(&addresses).map(account).collect();
        registry::add_accounts(&self.store.db, &accounts, self.now).await.unwrap();
        self.watched.extend(addresses);
    }

    /// Begins a backfill, as a process beside this one.
    pub(crate) async fn backfill(&self, job: Job) -> Backfill<Arc<EvmSource>> {
        let (watcher, _) = watcher(&self.servers, &self.store, self.mode);
        Backfill::begin(watcher, job).await.unwrap()
    }

    pub(crate) async fn tick(&mut self) -> Result<Ticked, TickError> {
        self.watcher.tick(self.now).await
    }

    /// One step of the lane of the traces; nothing where there is none.
    pub(crate) async fn trace(&self) -> Result<Traced, TickError> {
        match &self.lane {
            Some(lane) => lane.tick(self.now).await,
            None => Ok(Traced::default()),
        }
    }

    pub(crate) fn db(&self) -> &Db {
        &self.store.db
    }

    /// Lets time pass by the watcher's clock.
    pub(crate) fn pass(&mut self, time: Duration) {
        self.now = self.now.plus(time);
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.now
    }

    /// Another watcher on the same servers and store, as a process runs it, until `stop`.
    pub(crate) fn run(&self, stop: CancellationToken) -> impl Future<Output = ()> + use<> {
        let (watcher, _) = watcher(&self.servers, &self.store, self.mode);
        let now = self.now;
        watcher.run(Clock::new(move || now), || 0, Pulse::new(CHAIN, now), stop)
    }

    /// A new process: all it knows is what is on record.
    pub(crate) fn restart(&mut self) {
        (self.watcher, self.endpoints) = watcher(&self.servers, &self.store, self.mode);
        self.lane = self.watcher.trace_lane();
    }

    /// The newest connected block; block 0 before the first tick.
    pub(crate) async fn cursor(&self) -> BlockRef {
        let cursor = Cursor::load(&mut self.store.db.read().await.unwrap(), CHAIN).await.unwrap();
        cursor.at.unwrap_or_else(|| self.chain.block(0).expect("mined").reference())
    }

    /// Whether the cursor is the chain's newest block.
    pub(crate) async fn is_there(&self) -> bool {
        self.cursor().await == self.chain.latest()
    }

    /// How many of the chain's newest blocks are not connected, whatever else is.
    pub(crate) async fn behind(&self) -> u64 {
        let latest = self.chain.latest().number;
        let mut reader = self.store.db.read().await.unwrap();
        let connected = cursors::canonical_in(&mut reader, CHAIN, 1, latest).await.unwrap();
        latest - connected.iter().find(|block| self.chain.has(block)).map_or(0, |block| block.number)
    }

    /// By how many numbers the cursor is behind the chain's newest block, on whatever branch it stands.
    pub(crate) async fn behind_in_height(&self) -> u64 {
        self.chain.latest().number.saturating_sub(self.cursor().await.number)
    }

    /// How many connected blocks have not been traced. Those of a branch that a liar shows do not count: nobody else
    /// can trace them.
    pub(crate) async fn untraced(&self) -> u64 {
        let mut reader = self.store.db.read().await.unwrap();
        let untraced = traces::untraced(&mut reader, CHAIN, 0, Timestamp(i64::MAX), UNTRACED_MAX).await.unwrap();
        untraced.iter().filter(|block| self.chain.has(block)).count().try_into().unwrap()
    }

    /// Of those, how many are not put off with a reason either, which `status` shows.
    pub(crate) async fn unreported(&self) -> usize {
        let mut reader = self.store.db.read().await.unwrap();
        let mut unreported = 0;
        for block in traces::untraced(&mut reader, CHAIN, 0, Timestamp(i64::MAX), UNTRACED_MAX).await.unwrap() {
            let failure = traces::failure(&mut reader, CHAIN, &block).await.unwrap();
            unreported += usize::from(self.chain.has(&block) && failure.is_none_or(|failure| failure.tries == 0));
        }
        unreported
    }

    /// The servers that the source holds to be of no use now, by their place.
    pub(crate) fn distrusted(&self) -> Vec<usize> {
        let is_out = |state| matches!(state, EndpointState::Failing | EndpointState::Quarantined);
        let states = self.endpoints.snapshot().into_iter().map(|endpoint| endpoint.state);
        states.enumerate().filter(|(_, state)| is_out(*state)).map(|(index, _)| index).collect()
    }

    /// Every server behaves, until the source trusts all of them again.
    pub(crate) async fn regain_trust(&mut self) {
        self.servers.iter().for_each(Server::behave);
        let begun = Instant::now();
        while !self.distrusted().is_empty() && begun.elapsed() < REST_MAX {
            // How it ends is not asked here: what is wrong for long is seen when the chain is to come to rest.
            self.tick().await.ok();
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Ticks until the newest block is connected and traced, and everything that the chain calls final is settled.
    /// Errors that may pass are let pass.
    pub(crate) async fn rest(&mut self) -> Result<(), String> {
        let (mut begun, mut why) = (Instant::now(), String::new());
        while begun.elapsed() < REST_MAX {
            let (ticked, traced) = (self.tick().await, self.trace().await);
            let gets_on = ticked.as_ref().is_ok_and(does_something) || traced.as_ref().is_ok_and(traces_something);
            match (ticked, traced) {
                (Err(error), _) if !error.may_pass() => return Err(format!("does not come to rest: {error}")),
                // What a node says of a trace is never the end of the lane.
                (_, Err(error)) if !error.may_pass() && !matches!(error, TickError::Source(_)) => {
                    return Err(format!("the traces do not come to rest: {error}"));
                }
                (Err(error), _) | (_, Err(error)) => why = error.to_string(),
                (Ok(ticked), Ok(_)) if !gets_on && self.is_there().await => {
                    if self.is_settled().await {
                        return Ok(());
                    }
                    self.waits += 1;
                    why = ticked.tip.and_then(|tip| tip.waiting).unwrap_or_default();
                    self.waited_for.clone_from(&why);
                }
                (Ok(_), Ok(_)) => {}
            }
            if gets_on {
                begun = Instant::now();
            } else {
                // What was put off waits for the watcher's clock.
                self.now = self.now.plus(STEP);
                tokio::time::sleep(PAUSE).await;
            }
        }
        Err(format!("does not come to rest: {why}"))
    }

    /// Every server behaves, and the chain goes on until all that ever was is final and every grace has passed.
    pub(crate) async fn settle(&mut self, finality_depth: u64) -> Result<(), String> {
        self.servers.iter().for_each(Server::behave);
        for _ in 0..3 {
            self.chain.mine_empty(finality_depth + 1);
            self.rest().await?;
            self.now = self.now.plus(FAILED_GRACE);
        }
        // What the last grace decided.
        self.rest().await?;
        // Nothing is FAILED while an endpoint that may know is on a pause of its own. What is missing is looked for once at each
        // final block.
        let begun = Instant::now();
        while self.audit().await.undecided > 0 && begun.elapsed() < PAUSED_MAX {
            self.chain.mine_empty(1);
            self.now = self.now.plus(STEP);
            tokio::time::sleep(Duration::from_secs(1)).await;
            self.tick().await.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Whether what the chain calls final is final on record too, and every connected block is traced.
    async fn is_settled(&self) -> bool {
        let cursor = Cursor::load(&mut self.store.db.read().await.unwrap(), CHAIN).await.unwrap();
        cursor.finalized == self.chain.finalized() && self.untraced().await == 0
    }
}

fn does_something(ticked: &Ticked) -> bool {
    ticked.connected + ticked.disconnected + ticked.confirmed + ticked.failed > 0 || ticked.more_to_settle
}

/// What was put off is no progress: it waits for the watcher's clock.
fn traces_something(traced: &Traced) -> bool {
    traced.traced + traced.confirmed + traced.failed > 0 || traced.more
}

/// Sepolia, by its `finalized` tag.
pub(crate) fn network(mode: Mode) -> Network {
    let network = landfall_evm::network(CHAIN).expect("an EVM chain");
    let rule = FinalityRule { confirmations: CONFIRMATIONS, ..FinalityRule::FINALIZED };
    Network { native: mode.native(), finality: rule.into(), ..network }
}

/// The listed token.
pub(crate) fn usdc() -> landfall_node::Address {
    let token = network(Mode::Receipts).assets.iter().find_map(|asset| match asset.id {
        AssetId::Token(Address::Evm(contract)) => Some(contract),
        AssetId::Token(Address::Solana(_)) | AssetId::Native => None,
    });
    token.expect("Sepolia lists USDC").into()
}

fn watcher(servers: &[Server], store: &TestStore, mode: Mode) -> (Follower<Arc<EvmSource>>, Endpoints) {
    let urls = servers.iter().map(|server| EndpointUrl::from(server.url().parse::<url::Url>().unwrap())).collect();
    let source = EvmSource::at(network(mode), urls, Timings::PRODUCTION).unwrap();
    let endpoints = source.endpoints();
    let (poll, proof, start) = (Duration::from_millis(10), mode.proof(), Start::Number(1));
    let settings = Settings { start, proof, poll, failed_grace: FAILED_GRACE, finality_stall: None, block_stall: None };
    let source = Arc::new(source);
    (Follower::new(source, endpoints.clone(), store.db.clone(), network(mode), settings), endpoints)
}
