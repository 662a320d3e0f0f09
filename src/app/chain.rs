//! One chain as it is configured: the source that reads it, and the workers that follow it.
//!
//! All of them share the source and meet in the store. Of whatever family it is, the same workers run.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use landfall_chain::{BlockSource, Chain, Network, Signer, SourceErrorKind};
use landfall_evm::EndpointUrl;
use tracing::warn;

use crate::app::open::patiently;
use crate::app::workers::Workers;
use crate::app::{AnyChain, StartError, cluster, network};
use crate::config::{ChainConfig, Config, Delegation};
use crate::random;
use crate::sender::Sender;
use crate::store::{Db, OpenError};
use crate::time::Clock;
use crate::watcher::{AssetWatch, BalanceWatch, Follower, not_traced};

/// A chain that is to be followed.
pub(super) struct Followed<'c> {
    source: Arc<AnyChain>,
    pub(super) network: Network,
    config: &'c ChainConfig,
}

impl<'c> Followed<'c> {
    /// `recipient_gas_max` is how much gas a payment of native currency to its recipient may take, if not what is usual.
    pub(super) fn configured(
        chain: Chain,
        config: &'c ChainConfig,
        (recipient_gas_max, delegation): (Option<NonZeroU64>, Delegation),
    ) -> Result<Self, StartError> {
        let (source, mut network) = source(chain, config)?;
        network.sending.clears_delegates = delegation.clears();
        if let Some(gas) = recipient_gas_max {
            source.set_recipient_gas_max(gas.get());
        }
        Ok(Followed { source: Arc::new(source), network, config })
    }

    pub(super) async fn check(&self) -> Result<(), StartError> {
        check(&self.source, self.network.chain).await
    }

    /// Starts all workers that follow the chain; `owner` names this process among the processes on the same store.
    /// With a `signer`, transfers are sent too.
    pub(super) async fn start(
        self,
        db: &Db,
        owner: &str,
        signer: Option<Arc<dyn Signer>>,
        workers: &mut Workers,
    ) -> Result<(), StartError> {
        let Followed { source, network, config } = self;
        let chain = network.chain;
        let (endpoints, door) = (source.endpoints(), source.endpoints());
        let (listen, wake_up) = (source.listen(), source.wake_up());
        workers.spawn("wake-ups", workers.stop().run_until_cancelled_owned(listen).map(drop));
        let mut assets = AssetWatch::new(Arc::clone(&source), db.clone(), &network);
        patiently(async || assets.prepare().await.map_err(OpenError::Store)).await?;
        workers.spawn_turning(format!("{chain} assets"), |clock, pulse, stop| assets.run(clock, pulse, stop));
        let (most, pause) = pace_of_balances(&source, &network, config);
        let balances = BalanceWatch::new(Arc::clone(&source), db.clone(), &network, most, owner.to_owned());
        let balances = balances.by_rules(source.rules()).pausing(pause);
        workers.spawn_turning(format!("{chain} balances"), |clock, pulse, stop| {
            balances.run(clock, random::number, pulse, stop)
        });
        if let Some(signer) = signer {
            let sender = Sender::new(Arc::clone(&source), db.clone(), network.clone(), signer, owner.to_owned());
            workers.spawn_turning(format!("{chain} sender"), |clock, pulse, stop| sender.run(clock, pulse, stop));
        }
        let settings = network::settings(&network, config);
        let follower = Follower::new(source, endpoints, db.clone(), network.clone(), settings)
            .woken_by(wake_up)
            .with_agree(move |agree| door.override_agree(agree.and_then(|agree| usize::try_from(agree).ok())));
        let lane = match follower.trace_lane() {
            Some(lane) => Some(lane),
            None => not_traced(db, &network).await.map_err(OpenError::Store)?.then(|| follower.leftover_lane()),
        };
        if let Some(lane) = lane {
            workers.spawn_turning(format!("{chain} traces"), |clock, pulse, stop| {
                lane.run(clock, random::number, pulse, stop)
            });
        }
        workers.spawn_turning(chain, |clock, pulse, stop| follower.run(clock, random::number, pulse, stop));
        Ok(())
    }
}

/// For how many addresses the balances are read at once, and how long after one reading the next is due. With
/// `balances_per_sec` that many each second, else as is usual.
fn pace_of_balances(source: &AnyChain, network: &Network, config: &ChainConfig) -> (u32, Duration) {
    let said = config.balances_per_sec.map(|most| (most, Duration::ZERO));
    said.unwrap_or_else(|| source.usual_balances(network))
}

/// A chain to read and its facts. Touches no network.
///
/// # Errors
/// See [`network::network`]; a URL that cannot be used.
pub fn source(chain: Chain, config: &ChainConfig) -> Result<(AnyChain, Network), StartError> {
    let network = network::network(chain, config)?;
    let options = cluster::options(&network, config)?;
    let urls = config.rpc.iter().map(|rpc| EndpointUrl { url: rpc.url.clone(), headers: rpc.headers.clone() });
    let source = AnyChain::over(&network, urls.collect(), &options).map_err(StartError::Source)?;
    config.agree.map_or(Ok(()), |agree| source.set_agree(agree)).map_err(StartError::Source)?;
    Ok((source, network))
}

/// A follower of one chain that is not running, for commands that read past blocks.
///
/// # Errors
/// When the chain is not configured or cannot be read at all.
pub async fn follower(config: &Config, chain: Chain, db: Db) -> Result<Follower<Arc<AnyChain>>, StartError> {
    let config = config.chain(chain)?;
    let (source, network) = source(chain, config)?;
    check(&source, chain).await?;
    let (endpoints, settings) = (source.endpoints(), network::settings(&network, config));
    let source = Arc::new(source);
    let mut assets = AssetWatch::new(Arc::clone(&source), db.clone(), &network);
    assets.ask_unknown(Clock::system().now()).await.map_err(OpenError::Store)?;
    Ok(Follower::new(source, endpoints, db, network, settings))
}

/// If a node serves another chain, the start ends. If a node does not answer, the watcher waits for it. A chain that
/// only a newer version can read is halted by its watcher. In both cases the other chains go on.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(chain: Chain, keys: &str) -> (u32, Duration) {
        let text = format!("[chains.{chain}]\nrpc = [\"https://a\", \"https://b\"]\n{keys}\n");
        let config = Config::parse("landfall.toml", &text, |_| None).unwrap();
        let config = &config.chains[&chain];
        let (source, network) = source(chain, config).unwrap();
        pace_of_balances(&source, &network, config)
    }

    #[test]
    fn balances_are_read_each_second_of_as_many_as_the_configuration_says_or_as_is_usual() {
        let said = "balances_per_sec = 7";
        for chain in [Chain::EthereumTestnet, Chain::SolanaDevnet] {
            assert_eq!(pace(chain, said), (7, Duration::ZERO), "{chain}");
        }
        assert_eq!(pace(Chain::EthereumTestnet, ""), (20, Duration::ZERO));
        // SOL and one token: two accounts each, and a hundred to a call.
        assert_eq!(pace(Chain::SolanaDevnet, ""), (50, landfall_solana::HOLDINGS_PAUSE));
    }
}
