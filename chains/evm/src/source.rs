//! Reads an EVM chain: tip, headers, blocks with their content, the fate of a transaction.
//!
//! Each call goes to an endpoint of the pool, which judges it by how the call ends.
//! Deliberately not here: retries, and memory of what was read.

use std::ops::RangeInclusive;

use landfall_chain::{
    Address, AddressSource, Block, BlockRef, BlockSource, Endpoints, Family, Fate, Finality, Header, Network, Read,
    SourceError, Tip, TxRef, U256,
};
use url::Url;

use crate::error::EvmError;
use crate::fate::read_fate;
use crate::headers::read_headers;
use crate::legs::Listed;
use crate::networks;
use crate::pool::Pool;
use crate::read::Reader;
use crate::tip::{read_final_at, read_tip};

/// One EVM network, read over JSON-RPC.
#[derive(Debug)]
pub struct EvmSource {
    finality: Finality,
    reader: Reader,
    pool: Pool,
}

impl EvmSource {
    /// A source over `rpc_urls`, of which the first is asked first. Touches no network.
    ///
    /// # Errors
    /// A network of another family, and a URL that cannot be used.
    pub fn new(network: Network, rpc_urls: &[Url]) -> Result<Self, EvmError> {
        let chain = network.chain;
        if chain.family() != Family::Evm {
            return Err(EvmError::NotEvm { chain });
        }
        let chain_id = network.chain_ref.strip_prefix("eip155:").and_then(|id| id.parse().ok());
        let chain_id = chain_id.ok_or_else(|| EvmError::ChainRef { chain, chain_ref: network.chain_ref.clone() })?;
        Ok(EvmSource {
            reader: Reader { stack: networks::stack(chain), listed: Listed::of(&network) },
            finality: network.finality,
            pool: Pool::new(chain, chain_id, rpc_urls)?,
        })
    }

    /// The states of the endpoints; clones share them.
    pub fn endpoints(&self) -> Endpoints {
        self.pool.statuses()
    }

    /// For the start: asks every endpoint for its chain id that has not told it yet.
    ///
    /// # Errors
    /// Permanent when an endpoint serves another chain; transient when one cannot be asked.
    pub async fn check(&self) -> Result<(), SourceError> {
        Ok(self.pool.check().await?)
    }
}

impl BlockSource for EvmSource {
    async fn tip(&self) -> Result<Tip, SourceError> {
        let endpoint = self.pool.pick().await?;
        let tip = read_tip(endpoint, &self.finality).await;
        self.pool.settle(endpoint, tip, |tip| Some(tip.latest.number))
    }

    async fn headers(&self, range: RangeInclusive<u64>) -> Result<Vec<Header>, SourceError> {
        let endpoint = self.pool.pick().await?;
        let headers = read_headers(endpoint, range).await;
        self.pool.settle(endpoint, headers, |_| None)
    }

    async fn blocks(&self, range: RangeInclusive<u64>, _read: Read) -> Result<Vec<Block>, SourceError> {
        let endpoint = self.pool.pick().await?;
        let blocks = self.reader.blocks(endpoint, range).await;
        self.pool.settle(endpoint, blocks, |_| None)
    }

    async fn final_at(&self, number: u64) -> Result<Option<BlockRef>, SourceError> {
        let endpoint = self.pool.pick().await?;
        let block = read_final_at(endpoint, &self.finality, number).await;
        self.pool.settle(endpoint, block, |_| None)
    }

    async fn fate(&self, tx: &TxRef, at: &BlockRef) -> Result<Fate, SourceError> {
        let endpoint = self.pool.pick().await?;
        let fate = read_fate(endpoint, tx, at).await;
        self.pool.settle(endpoint, fate, |_| None)
    }
}

impl AddressSource for EvmSource {
    async fn balances(&self, _: &[Address], _: &BlockRef) -> Result<Vec<U256>, SourceError> {
        Err(SourceError::transient("this version proves no balances"))
    }
}
