//! The composition root: configuration -> store, chains, workers; supervision and shutdown. The only room that knows
//! which chains exist.
//!
//! Promises: what is wrong with the configuration is told before anything is written; a worker that ends unasked
//! ends the process; a stop is done within 10 s.

mod any_chain;
mod serving;

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::try_join_all;
use landfall_chain::address::AddressError;
use landfall_chain::{
    Address, Asset, AssetId, Chain, Family, Finality, NativeSource, Network, ReadProof, Retry, SourceError,
    SourceErrorKind, Tier,
};
use landfall_evm::EndpointUrl;
use landfall_solana::{Options, TokenProgram, WRAPPED_SOL, Wrapped};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::api::Api;
use crate::config::{AssetConfig, ChainConfig, Config, ProgramName, TierConfig, WrappedName};
use crate::delivery::{Delivery, Nats};
use crate::feed::Numberer;
use crate::health::Started;
use crate::store::{Db, OpenError, StoreUrl};
use crate::time::{Clock, Pulse};
use crate::watcher::{AssetWatch, BalanceWatch, Settings, Watcher, not_traced};
use crate::{health, random};

pub use any_chain::AnyChain;
pub use serving::Serving;

/// How long workers get to finish what they are at.
const STOP_TIME_MAX: Duration = Duration::from_secs(8);
const CLOSE_TIME_MAX: Duration = Duration::from_secs(1);
/// How often a block is looked for within its usual time, and the bounds of it.
const POLLS_PER_BLOCK: u64 = 4;
const POLL_USUAL_MS_MIN: u64 = 250;
const POLL_USUAL_MS_MAX: u64 = 1_000;
/// On Solana, whose blocks are parts of a second apart: providers count calls, and 1.5 light ones a second are the most.
const SOLANA_POLL_MS: u64 = 900;
/// Of those who ask how things are.
const ADMIN_CONNECTIONS_MAX: usize = 64;
const OPEN_RETRY_FIRST: Duration = Duration::from_millis(500);
const OPEN_RETRY_MAX: Duration = Duration::from_secs(5);

/// A running Landfall.
#[derive(Debug)]
pub struct App {
    db: Db,
    api: SocketAddr,
    workers: Workers,
    stop: CancellationToken,
}

/// Whether opening a store may change its schema.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Migrate {
    Always,
    /// Only a store that has no schema at all.
    IfEmpty,
    Never,
}

/// What runs, by name.
#[derive(Debug, Default)]
struct Workers(JoinSet<String>);

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
    Source(SourceError),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("cannot listen on {address}: {error}; {key} sets another address")]
    Listen { address: SocketAddr, key: &'static str, error: std::io::Error },
    #[error("no HTTP client can be made: {0}")]
    Client(#[from] reqwest::Error),
}

/// A worker ended although nobody had asked it to.
#[derive(Debug, thiserror::Error)]
#[error("{0} ended unasked")]
pub struct WorkerEnded(String);

impl App {
    /// Starts everything: opens the store (waiting for a server that is down), checks the chains, listens, watches.
    ///
    /// # Errors
    /// See [`StartError`]: each needs a person.
    pub async fn start(config: &Config, migrate: Migrate, clock: Clock) -> Result<Self, StartError> {
        let mut sources = Vec::new();
        for (chain, settings) in &config.chains {
            let (source, network) = source(*chain, settings)?;
            sources.push((Arc::new(source), network, settings));
        }
        let started = Arc::new(OnceLock::new());
        let (mut workers, stop) = (Workers::default(), CancellationToken::new());
        let admin = listen(config.admin_listen, "admin.listen").await?;
        let router = health::router(Arc::clone(&started), clock.clone());
        workers.serve("admin", Serving::of(ADMIN_CONNECTIONS_MAX), (admin, router), &stop);
        try_join_all(sources.iter().map(|(source, network, _)| check(source, network.chain))).await?;

        let db = open(&config.store, migrate).await?;
        let listener = listen(config.api_listen, "api.listen").await?;
        let api = listener.local_addr().unwrap_or(config.api_listen);
        let networks = sources.iter().map(|(_, network, _)| network.clone()).collect();
        let served = Api::new(db.clone(), config.api_settings(api, networks), clock.clone()).stopped_by(stop.clone());
        workers.serve("api", Serving::of(config.api_connections), (listener, served.router()), &stop);
        workers.spawn("api upkeep", served.run(stop.clone()));

        let mut pulses = vec![Pulse::new("delivery", clock.now())];
        let mut delivery = Delivery::new(db.clone(), clock.clone(), random::number)?.by_the_shared_clock();
        if let Some(options) = config.nats.clone() {
            let nats = Arc::new(Nats::new(options, new_owner()));
            nats.register(&db, &clock).await.map_err(OpenError::Store)?;
            delivery = delivery.publishing_to(Arc::clone(&nats));
            let (db, clock, pulse, stop) = (db.clone(), clock.clone(), Pulse::new("nats", clock.now()), stop.clone());
            pulses.push(pulse.clone());
            workers.spawn("nats", async move { nats.run(db, clock, random::number, pulse, stop).await });
        }
        workers.spawn("delivery", delivery.run(pulses[0].clone(), stop.clone()));
        let pulse = Pulse::new("feed", clock.now());
        let owner = new_owner();
        let numberer = Numberer::new(db.clone(), owner.clone());
        workers.spawn("feed", numberer.run(clock.clone(), pulse.clone(), stop.clone()));
        pulses.push(pulse);
        for (source, network, config) in sources {
            let chain = network.chain;
            let pulse = Pulse::new(chain, clock.now());
            let (endpoints, door) = (source.endpoints(), source.endpoints());
            let (listen, wake_up) = (source.listen(), source.wake_up());
            if source.tells_assets() {
                let pulse = Pulse::new(format!("{chain} assets"), clock.now());
                let watch = AssetWatch::new(Arc::clone(&source), db.clone(), &network);
                workers.spawn(pulse.name(), watch.run(clock.clone(), pulse.clone(), stop.clone()));
                pulses.push(pulse);
            }
            let pulse_of_balances = Pulse::new(format!("{chain} balances"), clock.now());
            let (most, owner) = (config.balances_per_sec, owner.clone());
            let balances = BalanceWatch::new(Arc::clone(&source), db.clone(), &network, most, owner);
            let work = balances.run(clock.clone(), random::number, pulse_of_balances.clone(), stop.clone());
            workers.spawn(pulse_of_balances.name(), work);
            pulses.push(pulse_of_balances);
            let watcher = Watcher::new(source, endpoints, db.clone(), network.clone(), settings(&network, config));
            let watcher = watcher
                .woken_by(wake_up)
                .with_agree(move |agree| door.override_agree(agree.and_then(|agree| usize::try_from(agree).ok())));
            workers.spawn("wake-ups", stop.clone().run_until_cancelled_owned(listen).map(drop));
            let lane = match watcher.trace_lane() {
                Some(lane) => Some(lane),
                None => not_traced(&db, &network).await.map_err(OpenError::Store)?.then(|| watcher.leftover_lane()),
            };
            if let Some(lane) = lane {
                let pulse = Pulse::new(format!("{chain} traces"), clock.now());
                let work = lane.run(clock.clone(), random::number, pulse.clone(), stop.clone());
                workers.spawn(pulse.name(), work);
                pulses.push(pulse);
            }
            workers.spawn(chain.name(), watcher.run(clock.clone(), random::number, pulse.clone(), stop.clone()));
            pulses.push(pulse);
        }
        started.get_or_init(|| Started { db: db.clone(), pulses });
        info!("listening on http://{api}");
        Ok(App { db, api, workers, stop })
    }

    /// Where the API listens.
    pub fn api_address(&self) -> SocketAddr {
        self.api
    }

    /// The store, for who runs Landfall inside another program.
    pub fn db(&self) -> &Db {
        &self.db
    }

    /// Runs until `asked` is done, then stops.
    ///
    /// # Errors
    /// When a worker ended before.
    pub async fn run_until(mut self, asked: impl Future<Output = ()>) -> Result<(), WorkerEnded> {
        let ended = tokio::select! {
            () = asked => None,
            ended = self.workers.0.join_next() => Some(ended.map_or_else(String::new, |ended| match ended {
                Ok(name) => name,
                Err(panic) => panic.to_string(),
            })),
        };
        self.stop.cancel();
        let finish = async { while self.workers.0.join_next().await.is_some() {} };
        if tokio::time::timeout(STOP_TIME_MAX, finish).await.is_err() {
            warn!("some work was cut off; it is taken up again at the next start");
            self.workers.0.shutdown().await;
        }
        // A server that has gone silent is not waited for.
        let _ = tokio::time::timeout(CLOSE_TIME_MAX, self.db.close()).await;
        match ended {
            None => Ok(()),
            Some(name) => {
                error!("{name} ended unasked");
                Err(WorkerEnded(name))
            }
        }
    }
}

impl Workers {
    fn spawn(&mut self, name: &str, work: impl Future<Output = ()> + Send + 'static) {
        let name = name.to_owned();
        self.0.spawn(async move {
            work.await;
            name
        });
    }

    fn serve(&mut self, name: &str, how: Serving, what: (TcpListener, axum::Router), stop: &CancellationToken) {
        let (stop, (listener, router)) = (stop.clone(), what);
        self.spawn(name, async move { how.serve(listener, router, &stop).await });
    }
}

/// Opens the store; waits for a server that is down.
///
/// # Errors
/// Those that do not pass by waiting.
async fn open(url: &StoreUrl, migrate: Migrate) -> Result<Db, OpenError> {
    let mut retry = Retry::new(OPEN_RETRY_FIRST, OPEN_RETRY_MAX);
    loop {
        match open_once(url, migrate).await {
            Err(error) if error.may_pass() => {
                warn!("{error}; trying again");
                tokio::time::sleep(retry.next_delay(random::number())).await;
            }
            opened => return opened,
        }
    }
}

/// Opens the store, once.
///
/// # Errors
/// See [`OpenError`].
pub async fn open_once(url: &StoreUrl, migrate: Migrate) -> Result<Db, OpenError> {
    let db = Db::open(url).await?;
    let may_migrate = match migrate {
        Migrate::Always => true,
        Migrate::IfEmpty => db.schema_version().await?.is_none(),
        Migrate::Never => false,
    };
    if may_migrate {
        db.migrate().await?;
    }
    db.check_schema().await?;
    Ok(db)
}

/// A watcher of one chain that nobody drives yet, for commands that read past blocks.
///
/// # Errors
/// When the chain is not configured or cannot be read at all.
pub async fn watcher(config: &Config, chain: Chain, db: Db) -> Result<Watcher<Arc<AnyChain>>, StartError> {
    let not_there = || StartError::Chain { chain, what: format!("not configured; add a section [chains.{chain}]") };
    let settings_of = config.chains.get(&chain).ok_or_else(not_there)?;
    let (source, network) = source(chain, settings_of)?;
    check(&source, chain).await?;
    let (endpoints, settings) = (source.endpoints(), settings(&network, settings_of));
    Ok(Watcher::new(Arc::new(source), endpoints, db, network, settings))
}

/// What an operator should know of an asset that is not listed on `chain`; nothing of most.
pub fn note_on(chain: Chain, asset: &AssetId) -> Option<String> {
    let is_wrapped_sol = matches!(asset, AssetId::Token(mint @ Address::Solana(_)) if mint.to_string() == WRAPPED_SOL);
    is_wrapped_sol.then(|| {
        format!("wrapped SOL: list its mint in chains.{chain}.assets, or set chains.{chain}.wrapped = \"native\"")
    })
}

/// A chain to read and its facts. Touches no network.
///
/// # Errors
/// See [`network`]; a URL that cannot be used.
pub fn source(chain: Chain, config: &ChainConfig) -> Result<(AnyChain, Network), StartError> {
    let network = network(chain, config)?;
    let options = options(&network, config)?;
    let urls = config.rpc.iter().map(|rpc| EndpointUrl { url: rpc.url.clone(), headers: rpc.headers.clone() });
    let source = AnyChain::over(&network, urls.collect(), &options).map_err(StartError::Source)?;
    config.agree.map_or(Ok(()), |agree| source.set_agree(agree)).map_err(StartError::Source)?;
    Ok((source, network))
}

/// What the configuration says of a cluster of Solana; nothing for chains of another family.
fn options(network: &Network, config: &ChainConfig) -> Result<Options, StartError> {
    let chain = network.chain;
    let wrong = |key: &str, what: String| StartError::Key { chain, key: key.to_owned(), what };
    let other = Chain::ALL.into_iter().find(|other| {
        *other != chain && config.genesis.is_some() && landfall_solana::genesis(*other) == config.genesis
    });
    if let Some(other) = other {
        let what = format!("this is the genesis hash of {other}; follow it as [chains.{other}]");
        return Err(wrong("genesis", what));
    }
    let is_wrapped_sol = |asset: &Asset| matches!(asset.id, AssetId::Token(mint) if mint.to_string() == WRAPPED_SOL);
    if config.wrapped == Some(WrappedName::Native) && network.assets.iter().any(is_wrapped_sol) {
        let what = "wrapped SOL cannot be SOL and an asset of its own; leave this out, or its mint out of assets";
        return Err(wrong("wrapped", what.to_owned()));
    }
    let program_of = |asset: &AssetConfig| {
        let mint = Address::parse(chain.family(), &asset.contract).ok()?;
        let program = match asset.program? {
            ProgramName::SplToken => TokenProgram::SplToken,
            ProgramName::Token2022 => TokenProgram::Token2022,
        };
        Some((AssetId::Token(mint), program))
    };
    Ok(Options {
        genesis: config.genesis,
        max_transaction_version: config.max_transaction_version,
        wrapped: config.wrapped.map(|name| match name {
            WrappedName::Token => Wrapped::Token,
            WrappedName::Native => Wrapped::Native,
        }),
        programs: config.assets.iter().filter_map(program_of).collect(),
        poll: poll(network, config),
    })
}

/// A network's facts with what the configuration adds to them.
///
/// # Errors
/// A chain that is not built in, an asset that is there already.
pub fn network(chain: Chain, config: &ChainConfig) -> Result<Network, StartError> {
    let fault = |what: String| StartError::Chain { chain, what };
    let built_in = any_chain::built_in(chain);
    let mut network = built_in.ok_or_else(|| fault("this version does not follow this chain".to_owned()))?;
    for asset in &config.assets {
        let contract = Address::parse(chain.family(), &asset.contract)
            .map_err(|error| StartError::AssetAddress { chain, error })?;
        let AssetConfig { symbol, decimals, from, .. } = asset.clone();
        let asset = Asset { id: AssetId::Token(contract), symbol, decimals, from_block: from };
        // What was added by hand may be built in since.
        if network.assets.contains(&asset) {
            continue;
        }
        if let Some(known) = network.assets.iter().find(|known| known.id == asset.id || known.symbol == asset.symbol) {
            return Err(fault(format!(
                "asset {} ({}) is there already; assets are added, never changed",
                known.symbol, known.id
            )));
        }
        network.assets.push(asset);
    }
    if let Some(rule) = config.finality {
        network.finality = Finality::from(rule);
    }
    if !config.tiers.is_empty() {
        network.finality.tiers = tiers(&network, config)?;
    }
    network.native.source = config.native.unwrap_or(network.native.source);
    network.native.eip7708_from = config.eip7708_from.or(network.native.eip7708_from);
    if network.native.source == NativeSource::LogTransfer && network.native.eip7708_from.is_some() {
        let what = "the native currency is read from the chain's log_transfer logs already; set native = \"trace\" or \
                    \"top_level\", or leave this out";
        return Err(StartError::Key { chain, key: "eip7708_from".to_owned(), what: what.to_owned() });
    }
    Ok(network)
}

/// The tiers of the configuration. One that waits for no less than everything does would never count.
fn tiers(network: &Network, config: &ChainConfig) -> Result<Vec<Tier>, StartError> {
    let of_key = |(index, tier): (usize, &TierConfig)| {
        let wrong = |key: &str, what: String| StartError::Key {
            chain: network.chain,
            key: format!("tiers[{index}].{key}"),
            what,
        };
        let asset = network.assets.iter().find(|asset| asset.symbol == tier.symbol).ok_or_else(|| {
            let listed: Vec<&str> = network.assets.iter().map(|asset| asset.symbol.as_str()).collect();
            wrong("asset", format!("{:?} is not listed; expected one of {}", tier.symbol, listed.join(", ")))
        })?;
        if tier.rule.implies(&network.finality.rule) {
            let what =
                "it waits for no less than every deposit does, so it would never count; ask for less, or leave it out";
            return Err(wrong("finality", what.to_owned()));
        }
        Ok(Tier { asset: asset.id, up_to: tier.up_to, rule: tier.rule })
    };
    config.tiers.iter().enumerate().map(of_key).collect()
}

fn settings(network: &Network, config: &ChainConfig) -> Settings {
    Settings {
        start: config.start,
        proof: config.proof.unwrap_or_else(|| usual_proof(network.chain.family())),
        poll: poll(network, config),
        failed_grace: Duration::from_secs(config.failed_grace_secs),
        finality_stall: config.finality_stall_secs.map(Duration::from_secs),
    }
}

fn poll(network: &Network, config: &ChainConfig) -> Duration {
    let usual = match network.chain.family() {
        Family::Evm => (network.block_time_ms / POLLS_PER_BLOCK).clamp(POLL_USUAL_MS_MIN, POLL_USUAL_MS_MAX),
        Family::Solana => SOLANA_POLL_MS,
    };
    Duration::from_millis(config.poll_ms.unwrap_or(usual))
}

/// All that a chain can prove. Where no root covers a block, asking a second endpoint for each would double the cost: what
/// credits is read again in full.
fn usual_proof(family: Family) -> ReadProof {
    match family {
        Family::Evm => ReadProof::Full,
        Family::Solana => ReadProof::Listed,
    }
}

/// A node of another chain ends the start; one that does not answer is the watcher's to wait for, and a chain that only a
/// newer version can read is its to halt: the others go on.
async fn check(source: &AnyChain, chain: Chain) -> Result<(), StartError> {
    match source.check().await {
        Ok(()) => Ok(()),
        Err(error) if error.kind == SourceErrorKind::Permanent && !error.needs_upgrade => {
            Err(StartError::Source(error))
        }
        Err(error) => {
            warn!(%chain, "{chain} cannot be read yet and will be tried again: {error}");
            Ok(())
        }
    }
}

/// A name of this process among those at the same store.
fn new_owner() -> String {
    format!("{:032x}", u128::from_ne_bytes(random::bytes()))
}

async fn listen(address: SocketAddr, key: &'static str) -> Result<TcpListener, StartError> {
    TcpListener::bind(address).await.map_err(|error| StartError::Listen { address, key, error })
}

#[cfg(test)]
mod tests {
    use landfall_chain::{FinalityRule, Native, U256};

    use super::*;
    use crate::config::RpcConfig;
    use crate::watcher::Start;

    const MINE: &str = "0x5fd84259d66Cd46123540766Be93DFE6D43130D7";

    /// A configuration with one asset of its own and a tier for it.
    fn config(symbol: &str, contract: &str) -> ChainConfig {
        let asset = AssetConfig {
            symbol: symbol.to_owned(),
            contract: contract.to_owned(),
            decimals: 6,
            from: 0,
            program: None,
        };
        let (rpc, assets) = (Vec::new(), vec![asset]);
        let start = Start::Finalized;
        let tier = TierConfig { symbol: symbol.to_owned(), up_to: U256::from(7), rule: FinalityRule::confirmations(1) };
        ChainConfig {
            rpc,
            agree: None,
            start,
            proof: None,
            finality: Some(FinalityRule::SAFE),
            tiers: vec![tier],
            native: Some(NativeSource::TopLevel),
            eip7708_from: Some(7),
            genesis: None,
            max_transaction_version: None,
            wrapped: None,
            poll_ms: None,
            failed_grace_secs: 1,
            finality_stall_secs: None,
            balances_per_sec: 1,
            assets,
        }
    }

    fn with_asset(chain: Chain, symbol: &str, contract: &str) -> Result<Network, String> {
        network(chain, &config(symbol, contract)).map_err(|error| error.to_string())
    }

    #[test]
    fn keys_that_contradict_the_network_or_each_other_are_refused_with_what_to_write() {
        let built_in = |config: ChainConfig| ChainConfig { assets: Vec::new(), finality: None, ..config };
        let tier = |symbol: &str, rule| TierConfig { symbol: symbol.to_owned(), up_to: U256::from(7), rule };
        let tiered = |tier| ChainConfig { tiers: vec![tier], ..built_in(config("MINE", MINE)) };
        let logs = |native| ChainConfig { native, tiers: Vec::new(), ..built_in(config("MINE", MINE)) };
        let no_less =
            "it waits for no less than every deposit does, so it would never count; ask for less, or leave it out";
        let one_source = "the native currency is read from the chain's log_transfer logs already; set native = \"trace\" or \
                          \"top_level\", or leave this out";
        let both = FinalityRule { confirmations: 5, ..FinalityRule::FINALIZED };
        let cases = [
            (
                Chain::EthereumTestnet,
                tiered(tier("DAI", FinalityRule::SAFE)),
                "tiers[0].asset: \"DAI\" is not listed; expected one of ETH, USDC, EURC".to_owned(),
            ),
            (
                Chain::EthereumTestnet,
                tiered(tier("USDC", FinalityRule::FINALIZED)),
                format!("tiers[0].finality: {no_less}"),
            ),
            (Chain::EthereumTestnet, tiered(tier("USDC", both)), format!("tiers[0].finality: {no_less}")),
            (Chain::PolygonMainnet, logs(None), format!("eip7708_from: {one_source}")),
            (Chain::EthereumTestnet, logs(Some(NativeSource::LogTransfer)), format!("eip7708_from: {one_source}")),
        ];
        for (chain, config, expected) in cases {
            let error = network(chain, &config).unwrap_err().to_string();
            assert_eq!(error, format!("config key chains.{chain}.{expected}"));
        }
        let l1_blocks = FinalityRule { l1_blocks: 12, ..FinalityRule::SAFE };
        let rollup_only = ChainConfig { finality: Some(l1_blocks), ..logs(None) };
        let refused = source(Chain::EthereumTestnet, &rollup_only).unwrap_err().to_string();
        assert!(refused.contains("counts L1 blocks"), "{refused}");
    }

    #[test]
    fn the_configuration_adds_assets_and_sets_the_finality_and_the_native_source() {
        let network = with_asset(Chain::EthereumTestnet, "MINE", MINE).unwrap();
        let symbols: Vec<&str> = network.assets.iter().map(|asset| asset.symbol.as_str()).collect();
        assert_eq!(symbols, ["ETH", "USDC", "EURC", "MINE"]);
        assert_eq!(network.finality.rule, FinalityRule::SAFE);
        let tier = Tier { asset: network.assets[3].id, up_to: U256::from(7), rule: FinalityRule::confirmations(1) };
        assert_eq!(network.finality.tiers, [tier]);
        assert_eq!(network.native, Native { source: NativeSource::TopLevel, eip7708_from: Some(7) });
    }

    #[test]
    fn an_asset_that_has_been_built_in_since_it_was_added_changes_nothing() {
        let built_in = landfall_evm::network(Chain::EthereumTestnet).unwrap().assets;
        let eurc = "0x08210F9170F89Ab7658F0B5E3fF39b0E03C594D4";
        assert_eq!(with_asset(Chain::EthereumTestnet, "EURC", eurc).unwrap().assets, built_in);
    }

    #[test]
    fn an_asset_that_is_there_already_is_refused_by_symbol_and_by_contract() {
        let usdc = "0x1c7D4B196Cb0C7B01d743Fbc6116a902379C7238";
        let there = "config key chains.ETHEREUM_TESTNET: asset USDC (0x1c7D4B196Cb0C7B01d743Fbc6116a902379C7238) is there already; \
                     assets are added, never changed";
        assert_eq!(with_asset(Chain::EthereumTestnet, "USDC", MINE).unwrap_err(), there);
        assert_eq!(with_asset(Chain::EthereumTestnet, "OTHER", usdc).unwrap_err(), there);
        let malformed = with_asset(Chain::EthereumTestnet, "MINE", "0x1").unwrap_err();
        assert_eq!(
            malformed,
            "config key chains.ETHEREUM_TESTNET.assets: malformed EVM address \"0x1\": expected 0x and 40 hexadecimal digits"
        );
    }

    #[test]
    fn every_chain_of_the_interface_is_built_in() {
        for chain in Chain::ALL {
            assert_eq!(any_chain::built_in(chain).map(|network| network.chain), Some(chain));
        }
    }

    /// A chain of Solana with these endpoints, and nothing that it does not have.
    fn solana(urls: &[&str]) -> ChainConfig {
        let rpc = |url: &&str| RpcConfig { url: url.parse().unwrap(), headers: Vec::new() };
        let rpc = urls.iter().map(rpc).collect();
        let plain = config("MINE", "9xQeWvG816bUx9EPjHmaT23yvVM2ZWbrrpZb9PusVFin");
        ChainConfig { rpc, finality: None, tiers: Vec::new(), native: None, eip7708_from: None, ..plain }
    }

    #[test]
    fn solana_is_read_by_one_endpoints_word_until_a_block_credits() {
        let config = solana(&["http://a", "https://b"]);
        let (source, network) = source(Chain::SolanaMainnet, &config).unwrap();
        assert!(matches!(source, AnyChain::Solana(_)));
        assert_eq!(network.assets.last().unwrap().symbol, "MINE");
        assert_eq!(settings(&network, &config).proof, ReadProof::Listed);
    }

    #[test]
    fn a_cluster_of_ones_own_has_a_genesis_hash_of_its_own_and_keeps_the_networks_name() {
        let chain = Chain::SolanaDevnet;
        let of = |chain| ChainConfig { genesis: landfall_solana::genesis(chain), ..solana(&["http://a"]) };
        let refused = source(chain, &of(Chain::SolanaMainnet)).unwrap_err().to_string();
        let expected = "config key chains.SOLANA_DEVNET.genesis: this is the genesis hash of SOLANA_MAINNET; follow it as \
                        [chains.SOLANA_MAINNET]";
        assert_eq!(refused, expected);
        let mine = landfall_chain::BlockHash([7; 32]);
        let config = ChainConfig { genesis: Some(mine), ..of(chain) };
        let (_, network) = source(chain, &config).unwrap();
        assert_eq!(network.chain_ref, landfall_solana::network(chain).unwrap().chain_ref);
        assert_eq!(options(&network, &config).unwrap().genesis, Some(mine));
    }

    #[test]
    fn wrapped_sol_is_sol_or_an_asset_and_never_both() {
        let listed = |wrapped| {
            let mut config = ChainConfig { wrapped, ..solana(&["http://a"]) };
            config.assets[0].contract = WRAPPED_SOL.to_owned();
            config.assets[0].program = Some(ProgramName::SplToken);
            let network = network(Chain::SolanaMainnet, &config).unwrap();
            options(&network, &config).map_err(|error| error.to_string())
        };
        let refused = listed(Some(WrappedName::Native)).unwrap_err();
        assert_eq!(
            refused,
            "config key chains.SOLANA_MAINNET.wrapped: wrapped SOL cannot be SOL and an asset of its own; leave this out, \
             or its mint out of assets"
        );
        let options = listed(Some(WrappedName::Token)).unwrap();
        assert_eq!((options.wrapped, options.programs.len()), (Some(Wrapped::Token), 1));
    }

    #[test]
    fn the_transaction_version_that_is_asked_for_is_the_configurations() {
        let asked = |version| {
            let config = ChainConfig { max_transaction_version: version, ..solana(&["http://a"]) };
            options(&network(Chain::SolanaMainnet, &config).unwrap(), &config).unwrap().max_transaction_version
        };
        assert_eq!((asked(None), asked(Some(0)), asked(Some(3))), (None, Some(0), Some(3)));
    }
}
