//! The composition root: configuration -> store, chains, workers; supervision and shutdown. The only room that knows
//! which chains exist. Within it only `any_chain` and `cluster` treat their families differently.
//!
//! Promises: what is wrong with the configuration is reported before anything is written. If a worker ends unasked, the
//! process ends. A stop is done within 10 s.

mod any_chain;
mod chain;
mod cluster;
mod doctor;
mod network;
mod open;
mod serving;
mod signer;
mod workers;

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::try_join_all;
use landfall_chain::address::AddressError;
use landfall_chain::{Chain, Signer, SourceError};
use tokio::net::TcpListener;
use tracing::{info, warn};

use crate::api::{Api, Settings};
use crate::app::signer::Checked;
use crate::config::{Config, NotConfigured};
use crate::delivery::{Delivery, Nats};
use crate::feed::Numberer;
use crate::health::Started;
use crate::prices::PriceReader;
use crate::store::{Db, OpenError};
use crate::time::Clock;
use crate::{health, random};
use chain::Followed;
use workers::Workers;

pub use any_chain::AnyChain;
pub use chain::{follower, source};
pub use cluster::note_on;
pub use doctor::examine;
pub use network::network;
pub use open::{Migrate, open_once};
pub use serving::Serving;
pub use signer::{embedded, policy, signer_at_hand};
pub use workers::WorkerEnded;

const CLOSE_TIME_MAX: Duration = Duration::from_secs(1);
/// How many connections the admin routes may have.
const ADMIN_CONNECTIONS_MAX: usize = 64;

/// A running Landfall.
#[derive(Debug)]
pub struct App {
    db: Db,
    api: SocketAddr,
    workers: Workers,
}

/// Why Landfall did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("config key chains.{chain}: {what}")]
    Chain { chain: Chain, what: String },
    #[error("config key chains.{chain}.{key}: {what}")]
    Key { chain: Chain, key: String, what: String },
    #[error("config key chains.{chain}.assets: {error}")]
    AssetAddress { chain: Chain, error: AddressError },
    #[error(transparent)]
    NotConfigured(#[from] NotConfigured),
    #[error(transparent)]
    Source(SourceError),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("config key {key}: {what}")]
    Signer { key: &'static str, what: String },
    #[error("cannot listen on {address}: {error}; {key} sets another address")]
    Listen { address: SocketAddr, key: &'static str, error: std::io::Error },
    #[error("no HTTP client can be made: {0}")]
    Client(#[from] reqwest::Error),
}

impl App {
    /// Starts everything: opens the store (waiting for a server that is down), checks the chains, listens, watches.
    ///
    /// # Errors
    /// See [`StartError`]: each needs a person.
    pub async fn start(config: &Config, migrate: Migrate, clock: Clock) -> Result<Self, StartError> {
        let chains = config.chains.iter().map(|(chain, settings)| {
            Followed::configured(*chain, settings, (config.recipient_gas_max, config.delegation))
        });
        let chains = chains.collect::<Result<Vec<_>, _>>()?;
        let mut workers = Workers::new(clock.clone());
        let started = Arc::new(OnceLock::new());
        let admin = listen(config.admin_listen, "admin.listen").await?;
        if !config.admin_listen.ip().to_canonical().is_loopback() {
            let address = config.admin_listen;
            warn!(
                "admin.listen: {address} can be reached from other machines and asks for no key: let a firewall keep others out"
            );
        }
        let router = health::router(Arc::clone(&started), clock.clone(), config.admin_host.clone());
        workers.serve("admin", Serving::of(ADMIN_CONNECTIONS_MAX), admin, router);
        let networks: Vec<_> = chains.iter().map(|chain| chain.network.clone()).collect();
        // Held for as long as the process runs: no other one can open its keystore.
        let signer = signer::open(config, &networks, &clock).await?;
        try_join_all(chains.iter().map(Followed::check)).await?;

        let db = open::open(config, migrate).await?;
        let signer: Option<Arc<dyn Signer>> = match signer {
            Some(signer) => Some(Arc::new(Checked::check(signer, db.clone()).await?)),
            None => None,
        };
        let listener = listen(config.api_listen, "api.listen").await?;
        let api = listener.local_addr().unwrap_or(config.api_listen);
        let settings = Settings { signer: signer.clone(), ..config.api_settings(api, networks) };
        let stop = workers.stop();
        let served = Api::new(db.clone(), settings, clock.clone()).stopped_by(stop.clone());
        workers.serve("api", serving(config), listener, served.router());
        workers.spawn("api upkeep", served.run(stop));

        // The name of this process among the processes on the same store.
        let owner = format!("{:032x}", u128::from_ne_bytes(random::bytes()));
        deliver(config, &db, &clock, &owner, &mut workers).await?;
        if let Some(feed) = config.prices.clone() {
            let reader = PriceReader::new(feed, db.clone())?;
            workers.spawn_turning("prices", |clock, pulse, stop| reader.run(clock, pulse, stop));
        }
        let numberer = Numberer::new(db.clone(), owner.clone());
        workers.spawn_turning("feed", |clock, pulse, stop| numberer.run(clock, pulse, stop));
        for chain in chains {
            chain.start(&db, &owner, signer.clone(), &mut workers).await?;
        }
        let followed = config.chains.keys().copied().collect();
        started.get_or_init(|| Started { db: db.clone(), pulses: workers.pulses(), chains: followed });
        info!("listening on http://{api}");
        Ok(App { db, api, workers })
    }

    /// Where the API listens.
    pub fn api_address(&self) -> SocketAddr {
        self.api
    }

    /// The store, for a program that runs Landfall inside of it.
    pub fn db(&self) -> &Db {
        &self.db
    }

    /// Runs until `asked` is done, then stops.
    ///
    /// # Errors
    /// When a worker ended before.
    pub async fn run_until(self, asked: impl Future<Output = ()>) -> Result<(), WorkerEnded> {
        let ended = self.workers.run_until(asked).await;
        // A server that does not answer any more is not waited for.
        let _ = tokio::time::timeout(CLOSE_TIME_MAX, self.db.close()).await;
        ended
    }
}

/// Starts what sends events: to webhooks, and to NATS where it is configured.
async fn deliver(
    config: &Config,
    db: &Db,
    clock: &Clock,
    owner: &str,
    workers: &mut Workers,
) -> Result<(), StartError> {
    let mut delivery = Delivery::new(db.clone(), clock.clone(), random::number)?.by_the_shared_clock();
    if let Some(options) = config.nats.clone() {
        let nats = Arc::new(Nats::new(options, owner.to_owned()));
        nats.register(db, clock).await.map_err(OpenError::Store)?;
        delivery = delivery.publishing_to(Arc::clone(&nats));
        let db = db.clone();
        workers.spawn_turning("nats", |clock, pulse, stop| async move {
            nats.run(db, clock, random::number, pulse, stop).await;
        });
    }
    workers.spawn_turning("delivery", |_, pulse, stop| delivery.run(pulse, stop));
    Ok(())
}

/// How the API is served.
fn serving(config: &Config) -> Serving {
    Serving {
        address_connections_max: config.api_ip_connections,
        head_bytes_max: config.api_limits.header_bytes,
        ..Serving::of(config.api_connections)
    }
}

async fn listen(address: SocketAddr, key: &'static str) -> Result<TcpListener, StartError> {
    TcpListener::bind(address).await.map_err(|error| StartError::Listen { address, key, error })
}
