//! A watcher of the cluster over a store of its own, and what that store reports.
//!
//! It ticks only while somebody waits for something, and what is waited for comes within a minute or the test fails.
//! What may pass is tried again; what may not fails at once.

use std::time::{Duration, Instant};

use landfall::account::{AccountType, NewAccount};
use landfall::deposit::{Deposit, DepositStatus};
use landfall::registry;
use landfall::store::Db;
use landfall::store::cursors::Cursor;
use landfall::store::deposits::{self, DepositFilter};
use landfall::store::events::History;
use landfall::time::{Clock, Timestamp};
use landfall::watcher::{Follower, Settings, Start};
use landfall_chain::{Address, Chain, Network, ReadProof};
use landfall_solana::{Options, SolanaSource};
use solana_sdk::pubkey::Pubkey;
use tempfile::TempDir;
use url::Url;

use crate::postgres::fresh_database;
use crate::solana::cluster::Cluster;
use crate::stage::Engine;

/// What the cluster stands in for.
pub(crate) const CHAIN: Chain = Chain::SolanaDevnet;
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);
const DEPOSITS_MAX: u32 = 1_000;

pub(crate) struct Followed {
    watcher: Follower<SolanaSource>,
    db: Db,
    _folder: TempDir,
}

impl Followed {
    /// Watches an address of each of `people`, from the newest final block on.
    pub(crate) async fn start(engine: Engine, cluster: &Cluster, network: &Network, people: &[(&str, Pubkey)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = match engine {
            Engine::Sqlite => format!("sqlite:{}", folder.path().join("landfall.db").display()),
            Engine::Postgres => fresh_database().await,
        };
        let db = Db::open(&url.parse().unwrap()).await.unwrap();
        db.migrate().await.unwrap();
        for (id, key) in people {
            let addresses = [(CHAIN, Address::Solana(key.to_bytes()))].into();
            let account =
                NewAccount { id: (*id).to_owned(), identity_id: None, kind: AccountType::Segregated, addresses };
            registry::add_accounts(&db, &[account], now()).await.unwrap();
        }
        let source = source(cluster, network);
        let endpoints = source.endpoints();
        let settings = Settings {
            start: Start::Finalized,
            proof: ReadProof::Full,
            poll: POLL,
            failed_grace: Duration::from_secs(3_600),
            finality_stall: None,
            block_stall: None,
        };
        let watcher = Follower::new(source, endpoints, db.clone(), network.clone(), settings);
        let mut follower = Followed { watcher, db, _folder: folder };
        follower.follow(0).await;
        follower
    }

    /// One tick.
    pub(crate) async fn tick(&mut self) {
        if let Err(error) = self.watcher.tick(now()).await {
            assert!(error.may_pass(), "{error}");
            println!("what may pass: {error}");
        }
    }

    /// Ticks until the block of `slot`, or one above it, is connected.
    pub(crate) async fn follow(&mut self, slot: u64) {
        let begun = Instant::now();
        loop {
            self.tick().await;
            let at = self.cursor().await.at;
            if at.is_some_and(|at| at.number >= slot) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "slot {slot} is not reached: {at:?}");
            tokio::time::sleep(POLL).await;
        }
    }

    /// Ticks until the block of `slot` is final.
    pub(crate) async fn settle(&mut self, slot: u64) {
        let begun = Instant::now();
        while self.cursor().await.finalized.is_none_or(|at| at.number < slot) {
            assert!(begun.elapsed() < PATIENCE, "slot {slot} does not become final");
            tokio::time::sleep(POLL).await;
            self.tick().await;
        }
    }

    pub(crate) async fn cursor(&self) -> Cursor {
        Cursor::load(&mut self.db.read().await.unwrap(), CHAIN).await.unwrap()
    }

    /// Every deposit, oldest first.
    pub(crate) async fn deposits(&self) -> Vec<Deposit> {
        deposits::list(&mut self.db.read().await.unwrap(), &DepositFilter::default(), DEPOSITS_MAX).await.unwrap()
    }

    /// How often the deposit became PENDING and CONFIRMED, as its events report.
    pub(crate) async fn reported(&self, deposit: &Deposit) -> [u32; 2] {
        let history = History::of(&mut self.db.begin().await.unwrap(), deposit.id).await.unwrap();
        [DepositStatus::Pending, DepositStatus::Confirmed].map(|status| history.entries(status))
    }
}

/// Reads the cluster as if it were the network.
pub(crate) fn source(cluster: &Cluster, network: &Network) -> SolanaSource {
    source_of_version(None, cluster, network)
}

/// The same, which asks for transactions up to this version at first.
pub(crate) fn source_of_version(version: Option<u8>, cluster: &Cluster, network: &Network) -> SolanaSource {
    let url: Url = cluster.url.parse().unwrap();
    let options = Options { genesis: Some(cluster.genesis), max_transaction_version: version, ..Options::default() };
    SolanaSource::at(network, vec![url.into()], &options).unwrap()
}

pub(crate) fn now() -> Timestamp {
    Clock::system().now()
}
