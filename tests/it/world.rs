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
use landfall::registry;
use landfall::store::deposits::{self, DepositFilter};
use landfall::store::{Db, StoreError};
use landfall::time::{Clock, Timestamp};
use landfall::watcher::{Settings, Start, TickError, Ticked, Watcher};
use landfall_chain::{Address, Asset, AssetId, Chain, Endpoints, FinalityRule, Native, Network, ReadProof};
use landfall_sim::SimChain;

use crate::books;
use crate::postgres::{Engine, TestStore};

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
    watcher: Watcher<SimChain>,
    /// A second process on the same store.
    rival: Watcher<SimChain>,
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

    /// As [`World::of`], taken up elsewhere.
    pub(crate) fn from(start: Start, chain: SimChain, store: TestStore) -> Self {
        let proof = ReadProof::Full;
        let of_world = || watcher(&chain, &store.db, start, proof, network());
        let (rival, watcher) = (of_world(), of_world());
        let now = Arc::new(AtomicI64::new(1_800_000_000_000_000));
        World { chain, store, watcher, rival, start, proof, now, closed: false }
    }

    /// As with `proof = "logs"`, from here on.
    pub(crate) fn read_by_logs(&mut self) {
        self.proof = ReadProof::Listed;
        self.rival = self.another_watcher();
        self.restart();
    }

    /// A watcher of the same chain and store that nobody drives.
    pub(crate) fn another_watcher(&self) -> Watcher<SimChain> {
        watcher(&self.chain, &self.store.db, self.start, self.proof, network())
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

    /// A tick that may fail, but not for good.
    pub(crate) async fn tick_or_fail_for_now(&mut self) -> Option<Ticked> {
        let outcome = self.try_tick().await;
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
            if (Ticked { tip: None, caught_up: true, ..Ticked::default() }) == (Ticked { tip: None, ..ticked }) {
                return;
            }
        }
        panic!("the watcher does not come to rest");
    }

    /// A tick that is cut off after its `wakeups`-th await, as a crash would; nothing but the store survives. Whether
    /// it was cut off before it was over.
    pub(crate) async fn crash_within(&mut self, wakeups: u32) -> bool {
        let now = self.now();
        let mut left = wakeups;
        let cut_off = {
            let mut tick = Box::pin(self.watcher.tick(now));
            std::future::poll_fn(|cx| match tick.as_mut().poll(cx) {
                Poll::Ready(outcome) => {
                    outcome.inspect_err(|error| assert!(error.may_pass(), "{error}")).ok();
                    Poll::Ready(false)
                }
                Poll::Pending if left == 0 => Poll::Ready(true),
                Poll::Pending => {
                    left -= 1;
                    Poll::Pending
                }
            })
            .await
        };
        self.restart();
        cut_off
    }

    /// Sees only what these assets list from here on, as after a change of the configuration.
    pub(crate) fn restart_listing(&mut self, assets: Vec<Asset>) {
        let network = Network { assets, ..network() };
        self.watcher = watcher(&self.chain, &self.store.db, self.start, self.proof, network);
    }

    /// A new watcher on the same store: all it knows is what is on record.
    pub(crate) fn restart(&mut self) {
        self.watcher = self.another_watcher();
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

    /// Ends a world whose books were cooked on purpose.
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

/// Adds an account with one address.
pub(crate) async fn watch(db: &Db, account: &str, address: Address, now: Timestamp) {
    let addresses = [(CHAIN, address)].into();
    let account = NewAccount { id: account.to_owned(), identity_id: None, kind: AccountType::Segregated, addresses };
    registry::add_accounts(db, &[account], now).await.unwrap();
}

/// An address of the test's cast.
pub(crate) fn address(who: u8) -> Address {
    Address::Evm([who; 20])
}

/// A token that no network lists.
pub(crate) fn unlisted_token() -> AssetId {
    AssetId::Token(address(NOT_LISTED))
}

pub(crate) fn network() -> Network {
    let native = Asset { id: AssetId::Native, symbol: "ETH".to_owned(), decimals: 18, from_block: 0 };
    let token = Asset { id: TOKEN, symbol: "USDC".to_owned(), decimals: 6, from_block: 0 };
    Network {
        chain: CHAIN,
        chain_ref: "eip155:11155111".to_owned(),
        block_time_ms: 12_000,
        finality: FinalityRule::FINALIZED.into(),
        native: Native::TOP_LEVEL,
        assets: vec![native, token],
    }
}

fn watcher(chain: &SimChain, db: &Db, start: Start, proof: ReadProof, network: Network) -> Watcher<SimChain> {
    let poll = Duration::from_millis(10);
    let settings = Settings { start, proof, poll, failed_grace: FAILED_GRACE };
    Watcher::new(chain.clone(), Endpoints::new(["sim".to_owned()]), db.clone(), network, settings)
}
