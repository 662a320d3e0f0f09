//! The chains that are built in, as one: every call goes to the source of the chain's own family.
//!
//! Promises: forwards, and decides nothing of what a chain says. A further family is a further arm.

use std::ops::RangeInclusive;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use landfall_chain::{
    Address, AddressSource, AssetFacts, AssetId, AssetSource, AssetTransfer, Block, BlockRef, BlockSource, Chain,
    Endpoints, Family, Fate, Found, Header, HoldingSource, Holdings, Network, Payer, Read, Search, SourceError, Tip,
    TxRef, U256, Watched,
};
use landfall_evm::{EndpointUrl, EvmSource};
use landfall_solana::{Options, Sample, SolanaSource};
use tokio::sync::Notify;

use crate::random;

/// A chain that can be read, of whatever family.
#[derive(Debug)]
pub enum AnyChain {
    Evm(EvmSource),
    Solana(SolanaSource),
}

/// The built-in facts of `chain`; `None` where this version has none.
pub(super) fn built_in(chain: Chain) -> Option<Network> {
    match chain.family() {
        Family::Evm => landfall_evm::network(chain),
        Family::Solana => landfall_solana::network(chain),
    }
}

impl AnyChain {
    /// The source of `network` over `urls`; `options` are Solana's. Touches no network.
    pub(super) fn over(network: &Network, urls: Vec<EndpointUrl>, options: &Options) -> Result<Self, SourceError> {
        Ok(match network.chain.family() {
            Family::Evm => AnyChain::Evm(EvmSource::at(network.clone(), urls)?),
            Family::Solana => {
                let sample = Sample { key: random::number(), ..Sample::default() };
                AnyChain::Solana(SolanaSource::at(network, urls, options)?.with_sample(sample))
            }
        })
    }

    pub(super) fn set_agree(&self, agree: usize) -> Result<(), SourceError> {
        match self {
            AnyChain::Evm(source) => Ok(source.set_agree(agree)?),
            AnyChain::Solana(source) => Ok(source.set_agree(agree)?),
        }
    }

    /// The states of the endpoints; clones share them.
    pub fn endpoints(&self) -> Endpoints {
        match self {
            AnyChain::Evm(source) => source.endpoints(),
            AnyChain::Solana(source) => source.endpoints(),
        }
    }

    pub(super) fn wake_up(&self) -> Arc<Notify> {
        match self {
            AnyChain::Evm(source) => source.wake_up(),
            AnyChain::Solana(source) => source.wake_up(),
        }
    }

    pub(super) fn listen(&self) -> BoxFuture<'static, ()> {
        match self {
            AnyChain::Evm(source) => source.listen().boxed(),
            AnyChain::Solana(source) => source.listen().boxed(),
        }
    }

    /// Whether it says what its assets are.
    pub(super) fn tells_assets(&self) -> bool {
        match self {
            AnyChain::Evm(_) => false,
            AnyChain::Solana(_) => true,
        }
    }

    pub(super) async fn check(&self) -> Result<(), SourceError> {
        match self {
            AnyChain::Evm(source) => source.check().await,
            AnyChain::Solana(source) => source.check().await,
        }
    }
}

impl BlockSource for AnyChain {
    async fn tip(&self) -> Result<Tip, SourceError> {
        match self {
            AnyChain::Evm(source) => source.tip().await,
            AnyChain::Solana(source) => source.tip().await,
        }
    }

    async fn headers(&self, range: RangeInclusive<u64>) -> Result<Vec<Header>, SourceError> {
        match self {
            AnyChain::Evm(source) => source.headers(range).await,
            AnyChain::Solana(source) => source.headers(range).await,
        }
    }

    async fn blocks(&self, range: RangeInclusive<u64>, read: Read) -> Result<Vec<Block>, SourceError> {
        match self {
            AnyChain::Evm(source) => source.blocks(range, read).await,
            AnyChain::Solana(source) => source.blocks(range, read).await,
        }
    }

    async fn final_at(&self, number: u64) -> Result<Option<BlockRef>, SourceError> {
        match self {
            AnyChain::Evm(source) => source.final_at(number).await,
            AnyChain::Solana(source) => source.final_at(number).await,
        }
    }

    async fn payers(&self, block: &BlockRef, transfers: &[AssetTransfer]) -> Result<Vec<Payer>, SourceError> {
        match self {
            AnyChain::Evm(source) => source.payers(block, transfers).await,
            AnyChain::Solana(source) => source.payers(block, transfers).await,
        }
    }

    async fn fate(&self, tx: &TxRef, at: &BlockRef) -> Result<Fate, SourceError> {
        match self {
            AnyChain::Evm(source) => source.fate(tx, at).await,
            AnyChain::Solana(source) => source.fate(tx, at).await,
        }
    }
}

impl AddressSource for AnyChain {
    fn search(&self) -> Search {
        match self {
            AnyChain::Evm(source) => source.search(),
            AnyChain::Solana(source) => source.search(),
        }
    }

    async fn candidates(&self, range: RangeInclusive<u64>, watched: Watched<'_>) -> Result<Found, SourceError> {
        match self {
            AnyChain::Evm(source) => source.candidates(range, watched).await,
            AnyChain::Solana(source) => source.candidates(range, watched).await,
        }
    }

    async fn balances(&self, addresses: &[Address], at: &BlockRef) -> Result<Vec<U256>, SourceError> {
        match self {
            AnyChain::Evm(source) => source.balances(addresses, at).await,
            AnyChain::Solana(source) => source.balances(addresses, at).await,
        }
    }
}

/// What a token on an EVM chain is stands in code that anybody may write: it has nothing to say of it.
impl AssetSource for AnyChain {
    async fn facts(&self, asset: &AssetId, reached: Option<u64>) -> Result<Option<AssetFacts>, SourceError> {
        match self {
            AnyChain::Evm(_) => Ok(None),
            AnyChain::Solana(source) => source.facts(asset, reached).await,
        }
    }
}

impl HoldingSource for AnyChain {
    async fn holdings(
        &self,
        addresses: &[Address],
        assets: &[AssetId],
        at: &BlockRef,
    ) -> Result<Holdings, SourceError> {
        match self {
            AnyChain::Evm(source) => source.holdings(addresses, assets, at).await,
            AnyChain::Solana(source) => source.holdings(addresses, assets, at).await,
        }
    }
}
