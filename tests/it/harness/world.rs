//! The harness: a simulated chain, a store and a watcher, driven tick by tick, with a clock of its own.
//!
//! A world is closed with [`World::close`], which asserts that the books balance (see `books`); one that is dropped
//! otherwise fails its test.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::Poll;
use std::time::Duration;

use landfall::account::{AccountType, NewAccount};
use landfall::deposit::{Deposit, DepositStatus};
use landfall::health::{ChainReport, Status};
use landfall::incident::Incident;
use landfall::operator::Operator;
use landfall::overrides::Author;
use landfall::registry;
use landfall::store::deposits::{self, DepositFilter};
use landfall::store::status::{self, ChainStatus};
use landfall::store::{Db, StoreError, incidents};
use landfall::time::{Clock, Pulse, Timestamp};
use landfall::watcher::{Follower, Settings, Start, TickError, Ticked, TraceLane, Traced};
use landfall_chain::{
    Address, Asset, AssetId, Chain, Endpoints, FinalityRule, Native, NativeSource, Network, ReadProof, Route, Sending,
    Tier, U256,
};
use landfall_sim::{SimChain, SimPool, SimTx};
use tokio_util::sync::CancellationToken;

use crate::harness::books;
use crate::harness::postgres::{Engine, TestStore};

/// The chain that the simulated one stands for.
pub(crate) const CHAIN: Chain = Chain::EthereumTestnet;
pub(crate) const TOKEN: AssetId = AssetId::Token(Address::Evm([0x70; 20]));
const NOT_LISTED: u8 = 0x71;
/// How many blocks must stand on one before it is final.
pub(crate) const FINALITY_DEPTH: u64 = 10;
pub(crate) const FAILED_GRACE: Duration = Duration::from_secs(3_600);

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) chain: SimChain,
    pub(crate) store: TestStore,
    pub(crate) network: Network,
    /// How the watchers see the chain: directly, unless a test spreads it over several views.
    pub(crate) pool: SimPool,
    watcher: Follower<SimPool>,
    /// Where the network is traced.
    lane: Option<TraceLane<SimPool>>,
    /// A second process on the same store.
    rival: Follower<SimPool>,
    start: Start,
    proof: ReadProof,
    now: Arc<AtomicI64>,
    closed: bool,
}

impl World {
    /// An empty chain, an empty SQLite store.
    pub(crate) async fn new(seed: u64) -> Self {
        World::on(Engine::Sqlite, seed).await
    }

    pub(crate) async fn on(engine: Engine, seed: u64) -> Self {
        let chain = SimChain::new(seed);
        chain.set_finality_depth(Some(FINALITY_DEPTH));
        World::of(chain, TestStore::fresh(engine).await)
    }

    /// A chain and a store that are there already, watched from the first block on.
    pub(crate) fn of(chain: SimChain, store: TestStore) -> Self {
        World::from(Start::Number(1), chain, store)
    }

    /// As [`World::of`], started elsewhere.
    pub(crate) fn from(start: Start, chain: SimChain, store: TestStore) -> Self {
        World::with(network(), start, chain, store)
    }

    /// A network that is traced.
    pub(crate) async fn traced(engine: Engine, seed: u64) -> Self {
        World::traced_on(TestStore::fresh(engine).await, seed)
    }

    /// As [`World::traced`], on a store that is there already.
    pub(crate) fn traced_on(store: TestStore, seed: u64) -> Self {
        let chain = SimChain::new(seed);
        chain.set_finality_depth(Some(FINALITY_DEPTH));
        World::of_traced(chain, store)
    }

    /// As [`World::of`], on a network that is traced.
    pub(crate) fn of_traced(chain: SimChain, store: TestStore) -> Self {
        let native = Native { source: NativeSource::Trace, eip7708_from: None };
        World::with(Network { native, ..network() }, Start::Number(1), chain, store)
    }

    /// An empty chain and this store, in the time of the chain.
    pub(crate) fn of_sending(seed: u64, store: TestStore, route: Route) -> Self {
        let chain = SimChain::new(seed);
        chain.set_finality_depth(Some(FINALITY_DEPTH));
        let mut network = network();
        sent_by(&mut network, route);
        let world = World::with(network, Start::Number(1), chain, store);
        world.now.store(world.chain_time().0, Ordering::Relaxed);
        world
    }

    /// Another process of the same chain, network and clock, with another store.
    pub(crate) fn beside(&self, store: TestStore) -> Self {
        let mut world = self.again(store);
        world.now = Arc::clone(&self.now);
        world
    }

    /// What the newest block says of the time.
    pub(crate) fn chain_time(&self) -> Timestamp {
        let newest = self.chain.blocks().pop().expect("a chain has block 0");
        Timestamp::from_secs(newest.header.time_secs)
    }

    /// The clock goes on to the time of the newest block, if that is later.
    pub(crate) fn keep_time(&self) {
        self.now.fetch_max(self.chain_time().0, Ordering::Relaxed);
    }

    /// The clock is set, also to an earlier time.
    pub(crate) fn set_clock(&self, at: Timestamp) {
        self.now.store(at.0, Ordering::Relaxed);
    }

    /// The same chain and network, with another store; seen directly.
    pub(crate) fn again(&self, store: TestStore) -> Self {
        World::with(self.network.clone(), self.start, self.chain.clone(), store)
    }

    fn with(network: Network, start: Start, chain: SimChain, store: TestStore) -> Self {
        let (proof, pool) = (ReadProof::Full, SimPool::of(chain.clone()));
        let [rival, watcher] = [(); 2].map(|()| watcher(&pool, &store.db, start, proof, network.clone()));
        let lane = watcher.trace_lane();
        let now = Arc::new(AtomicI64::new(1_800_000_000_000_000));
        World { chain, store, network, pool, watcher, lane, rival, start, proof, now, closed: false }
    }

    /// As with `proof = "logs"`, from here on.
    pub(crate) fn read_by_logs(&mut self) {
        self.proof = ReadProof::Candidate;
        self.rival = self.another_watcher();
        self.restart();
    }

    /// A watcher of the same chain and store that nobody drives.
    pub(crate) fn another_watcher(&self) -> Follower<SimPool> {
        watcher(&self.pool, &self.store.db, self.start, self.proof, self.network.clone())
    }

    /// A lane of the traces that shares the watcher's list of addresses.
    pub(crate) fn lane_beside(&self) -> TraceLane<SimPool> {
        self.watcher.leftover_lane()
    }

    /// A watcher of another chain on the same store.
    pub(crate) fn watcher_of(&self, source: SimPool, network: Network) -> Follower<SimPool> {
        watcher(&source, &self.store.db, Start::Number(1), self.proof, network)
    }

    /// Restarts with these tiers: asset, amount, depth.
    pub(crate) fn set_tiers(&mut self, tiers: &[(AssetId, u64, u64)]) {
        self.chain.set_tier_depths(tiers.iter().map(|(.., depth)| Some(*depth)).collect());
        let tier = |(asset, up_to, depth): &(AssetId, u64, u64)| Tier {
            asset: *asset,
            up_to: U256::from(*up_to),
            rule: FinalityRule::confirmations(*depth),
        };
        self.network.finality.tiers = tiers.iter().map(tier).collect();
        self.restart();
        self.rival = self.another_watcher();
    }

    pub(crate) fn db(&self) -> &Db {
        &self.store.db
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp(self.now.load(Ordering::Relaxed))
    }

    pub(crate) fn clock(&self) -> Clock {
        let now = Arc::clone(&self.now);
        Clock::new(move || Timestamp(now.load(Ordering::Relaxed)))
    }

    pub(crate) fn pass(&self, time: Duration) {
        self.now.store(self.now().plus(time).0, Ordering::Relaxed);
    }

    /// Adds an account with one address.
    pub(crate) async fn watch(&self, account: &str, address: Address) {
        watch(self.db(), account, address, self.now()).await;
    }

    /// One tick, whatever comes of it.
    pub(crate) async fn try_tick(&mut self) -> Result<Ticked, TickError> {
        self.watcher.tick(self.now()).await
    }

    /// One tick of the lane of the traces and of what works beside it, whatever comes of it.
    pub(crate) async fn try_trace(&self) -> Result<Traced, TickError> {
        let lane = self.lane.as_ref().expect("a world that is traced");
        let traced = lane.tick(self.now()).await?;
        let again = lane.trace_again(self.now()).await?;
        let (pending, witnessed) = (traced.pending + again.pending, traced.witnessed + again.witnessed);
        Ok(Traced { pending, witnessed, ..traced })
    }

    /// Another worker of the lane of the traces, beside the world's own.
    pub(crate) fn watcher_lane(&self) -> TraceLane<SimPool> {
        self.watcher.trace_lane().expect("a world that is traced")
    }

    /// One tick of the lane of the traces that must succeed.
    pub(crate) async fn trace(&self) -> Traced {
        self.try_trace().await.unwrap()
    }

    /// What the lane of the traces says of itself, with this reason.
    pub(crate) async fn say(&self, reason: &str) {
        self.lane.as_ref().expect("a world that is traced").say(reason, self.now()).await.unwrap();
    }

    /// A tick of each lane that may fail, but not for good.
    pub(crate) async fn tick_or_fail_for_now(&mut self) -> Option<Ticked> {
        let outcome = self.try_tick().await;
        if self.lane.is_some() {
            self.try_trace().await.inspect_err(|error| assert!(error.may_pass(), "{error}")).ok();
        }
        outcome.inspect_err(|error| assert!(error.may_pass(), "{error}")).ok()
    }

    /// A tick of each of two processes, at the same time; they may hinder each other, but not for good.
    pub(crate) async fn tick_with_rival(&mut self) {
        let now = self.now();
        let (ours, theirs) = tokio::join!(self.watcher.tick(now), self.rival.tick(now));
        for outcome in [ours, theirs] {
            outcome.inspect_err(|error| assert!(error.may_pass(), "{error}")).ok();
        }
    }

    /// A tick; while it is under way, what `meanwhile` does, and then a second process that follows it.
    pub(crate) async fn tick_while_the_rival_follows(&mut self, meanwhile: impl Future<Output = ()>) {
        let now = self.now();
        let World { watcher, rival, .. } = self;
        let follow = async {
            meanwhile.await;
            for _ in 0..3 {
                rival.tick(now).await.unwrap();
            }
        };
        let (ours, ()) = tokio::join!(watcher.tick(now), follow);
        ours.unwrap();
    }

    /// What the watcher warns of.
    pub(crate) fn alarms(&self) -> Vec<String> {
        self.watcher.alarms(self.now())
    }

    /// A watcher as a process runs it, until `stop`: on the world's store, chain and clock.
    pub(crate) fn run(&self, stop: CancellationToken) -> impl Future<Output = ()> + use<> {
        self.run_with(Pulse::new(CHAIN, self.now()), stop)
    }

    /// As [`World::run`], with this pulse.
    pub(crate) fn run_with(&self, pulse: Pulse, stop: CancellationToken) -> impl Future<Output = ()> + use<> {
        let watcher = self.another_watcher();
        watcher.run(self.clock(), || 0, pulse, stop)
    }

    /// Who decides in these tests, at this moment.
    pub(crate) fn operator(&self) -> Operator<'static> {
        Operator { actor: "olga", reason: "a test", now: self.now(), dry_run: false }
    }

    /// The incidents of every kind, oldest first.
    pub(crate) async fn incidents(&self) -> Vec<Incident> {
        incidents::all(&mut self.db().read().await.unwrap()).await.unwrap()
    }

    /// One tick that must succeed.
    pub(crate) async fn tick(&mut self) -> Ticked {
        self.try_tick().await.unwrap()
    }

    /// Ticks until there is nothing more to do.
    pub(crate) async fn catch_up(&mut self) {
        for _ in 0..1_000 {
            let ticked = match self.try_tick().await {
                // A commit that a crash left under way on the server may still arrive.
                Err(TickError::Store(StoreError::Moved { .. })) => continue,
                outcome => outcome.unwrap(),
            };
            let traced = if self.lane.is_some() { self.trace().await } else { Traced::default() };
            if traced != Traced::default() {
                continue;
            }
            if (Ticked { tip: None, caught_up: true, ..Ticked::default() }) == (Ticked { tip: None, ..ticked }) {
                return;
            }
        }
        panic!("the watcher does not come to rest");
    }

    /// A block with these transactions is mined and followed.
    pub(crate) async fn follow(&mut self, txs: Vec<SimTx>) {
        self.chain.mine(txs);
        self.catch_up().await;
    }

    /// So many empty blocks are mined and followed.
    pub(crate) async fn follow_empty(&mut self, count: u64) {
        self.chain.mine_empty(count);
        self.catch_up().await;
    }

    /// As many empty blocks are mined and followed as make all that is there final.
    pub(crate) async fn finalize(&mut self) {
        self.follow_empty(FINALITY_DEPTH).await;
    }

    /// A tick that is cut off after its `wakeups`-th await, as a crash would; nothing but the store survives. Whether
    /// it was cut off before it was over.
    pub(crate) async fn crash_within(&mut self, wakeups: u32) -> bool {
        let cut_off = cut_off(self.watcher.tick(self.now()), wakeups).await;
        self.restart();
        cut_off
    }

    /// As [`World::crash_within`], of a tick of the lane of the traces.
    pub(crate) async fn crash_trace_within(&mut self, wakeups: u32) -> bool {
        let cut_off = cut_off(self.try_trace(), wakeups).await;
        self.restart();
        cut_off
    }

    /// Sees only what these assets list from here on, as after a change of the configuration.
    pub(crate) fn restart_listing(&mut self, assets: Vec<Asset>) {
        let network = Network { assets, ..self.network.clone() };
        self.watcher = watcher(&self.pool, &self.store.db, self.start, self.proof, network);
        self.lane = self.watcher.trace_lane();
    }

    /// A new watcher on the same store: all it knows is what is on record.
    pub(crate) fn restart(&mut self) {
        self.watcher = self.another_watcher();
        self.lane = self.watcher.trace_lane();
    }

    /// Every deposit on record.
    pub(crate) async fn deposits(&self) -> Vec<Deposit> {
        deposits::list(&mut self.db().read().await.unwrap(), &DepositFilter::default(), 1_000_000).await.unwrap()
    }

    /// The status of the only deposit with this amount.
    pub(crate) async fn status_of(&self, amount: u64) -> DepositStatus {
        let deposits = self.deposits().await;
        let mut found = deposits.iter().filter(|deposit| deposit.amount == landfall_chain::U256::from(amount));
        let status = found.next().expect("a deposit with this amount").status;
        assert_eq!(found.next(), None, "a second deposit with this amount");
        status
    }

    /// Ends a world whose books were cooked on purpose, or are too long to check.
    pub(crate) fn abandon(mut self) {
        self.closed = true;
    }

    /// Ends the world; the books must balance.
    pub(crate) async fn close(mut self) {
        self.closed = true;
        books::assert_balanced(&self).await;
    }
}

impl Drop for World {
    fn drop(&mut self) {
        assert!(self.closed || std::thread::panicking(), "a world was not closed: its books were not checked");
    }
}

/// What `status` says of the chain, after its watcher has said something.
pub(crate) async fn report(world: &World) -> ChainReport {
    report_as(world, "following").await
}

/// As [`report`], after its watcher has said that it is in this state.
pub(crate) async fn report_as(world: &World, state: &str) -> ChainReport {
    report_by(world, state, &world.clock()).await
}

/// As [`report_as`], by the watcher's own clock.
pub(crate) async fn report_by(world: &World, state: &str, clock: &Clock) -> ChainReport {
    report_of(world, state, clock.now(), clock.now()).await
}

/// As [`report_by`], of one that had connected all that there was at `caught_up_at`.
pub(crate) async fn report_of(
    world: &World,
    state: &str,
    caught_up_at: Timestamp,
    heartbeat_at: Timestamp,
) -> ChainReport {
    let word = ChainStatus {
        chain: CHAIN,
        state: state.to_owned(),
        reason: String::new(),
        proof: "roots".to_owned(),
        latest: None,
        finalized: None,
        cursor: None,
        caught_up_at,
        heartbeat_at,
        endpoints: Vec::new(),
        finalized_at: Timestamp::EPOCH,
        alarms: Vec::new(),
    };
    let mut tx = world.db().begin().await.unwrap();
    status::record(&mut tx, &word, &[]).await.unwrap();
    tx.commit().await.unwrap();
    Status::read(world.db(), world.now()).await.unwrap().chains.remove(0)
}

/// Waits, up to a minute, until `calls` were made of the chain: the last of them is under way then.
pub(crate) async fn until_called(chain: &SimChain, calls: u64) {
    for _ in 0..12_000 {
        if chain.calls() >= calls {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{} of {calls} calls were made", chain.calls());
}

/// Adds an account with one address.
pub(crate) async fn watch(db: &Db, account: &str, address: Address, now: Timestamp) {
    let addresses = [(CHAIN, address)].into();
    let account = NewAccount { id: account.to_owned(), identity_id: None, kind: AccountType::Segregated, addresses };
    registry::add_accounts(db, &[account], now).await.unwrap();
}

/// Who registers what a test needs.
pub(crate) fn tester(now: Timestamp) -> Author<'static> {
    Author { actor: "test", reason: "", now }
}

/// An address of the test's cast.
pub(crate) fn address(who: u8) -> Address {
    Address::Evm([who; 20])
}

/// A token that no network lists.
pub(crate) fn unlisted_token() -> AssetId {
    AssetId::Token(address(NOT_LISTED))
}

/// How the token is sent.
pub(crate) fn erc3009() -> Route {
    Route::Erc3009 { name: "USDC".to_owned(), version: "2".to_owned() }
}

/// The token is sent so, and of delegates that one alone is listed.
pub(crate) fn sent_by(network: &mut Network, route: Route) {
    network.delegates = if let Route::Delegate(delegate) = &route { vec![*delegate] } else { Vec::new() };
    network.assets.iter_mut().filter(|asset| asset.id == TOKEN).for_each(|asset| asset.route = Some(route.clone()));
}

pub(crate) fn network() -> Network {
    let native = Asset { id: AssetId::Native, symbol: "ETH".to_owned(), decimals: 18, from_block: 0, route: None };
    let route = Some(erc3009());
    let token = Asset { id: TOKEN, symbol: "USDC".to_owned(), decimals: 6, from_block: 0, route };
    Network {
        chain: CHAIN,
        chain_ref: "eip155:11155111".to_owned(),
        block_time_ms: 12_000,
        finality: FinalityRule::FINALIZED.into(),
        native: Native::TOP_LEVEL,
        wrapped: None,
        delegates: Vec::new(),
        sending: Sending::usual(30_000),
        assets: vec![native, token],
    }
}

/// Polls `tick` until it is over or has been woken so often; whether it was cut off.
pub(crate) async fn cut_off<T: std::fmt::Debug>(
    tick: impl Future<Output = Result<T, TickError>>,
    wakeups: u32,
) -> bool {
    match poll_for(tick, wakeups).await {
        Some(outcome) => {
            outcome.inspect_err(|error| assert!(error.may_pass(), "{error}")).ok();
            false
        }
        None => true,
    }
}

/// Polls until it is over or has been woken so often: `None` then.
pub(crate) async fn poll_for<T>(future: impl Future<Output = T>, wakeups: u32) -> Option<T> {
    let mut left = wakeups;
    let mut future = Box::pin(future);
    std::future::poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if left == 0 => Poll::Ready(None),
        Poll::Pending => {
            left -= 1;
            Poll::Pending
        }
    })
    .await
}

fn watcher(pool: &SimPool, db: &Db, start: Start, proof: ReadProof, network: Network) -> Follower<SimPool> {
    let poll = Duration::from_millis(10);
    let settings = Settings { start, proof, poll, failed_grace: FAILED_GRACE, finality_stall: None, block_stall: None };
    let source = pool.clone();
    Follower::new(pool.clone(), Endpoints::new(["sim".to_owned()]), db.clone(), network, settings)
        .with_agree(move |agree| source.override_agree(agree.and_then(|agree| usize::try_from(agree).ok())))
}
