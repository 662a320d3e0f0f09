//! Reads an EVM chain: tip, headers, blocks with their content, the fate of a transaction.
//!
//! Each call goes to an endpoint of the pool, which judges it by how the call ends.
//! Deliberately not here: retries, and memory of what was read but the newest block's hash.

use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, PoisonError};

use landfall_chain::{
    Address, AddressSource, Block, BlockRef, BlockSource, Candidates, Endpoints, Family, Fate, Finality, Header, Lane,
    Network, Read, ReadProof, SourceError, Tip, TxRef, U256,
};
use url::Url;

use crate::balances::read_balances;
use crate::error::EvmError;
use crate::fate::read_fate;
use crate::headers::read_headers;
use crate::legs::Rules;
use crate::logs::Sources;
use crate::pool::Pool;
use crate::read::Reader;
use crate::scan::Scan;
use crate::tip::{read_final_at, read_tip};
use crate::traces::Tracer;

/// One EVM network, read over JSON-RPC.
#[derive(Debug)]
pub struct EvmSource {
    finality: Finality,
    reader: Reader,
    tracer: Tracer,
    scan: Scan,
    pool: Arc<Pool>,
    /// The newest block that a tip named: it can be asked for by hash.
    told: Mutex<Option<BlockRef>>,
}

impl EvmSource {
    /// A source over `rpc_urls`, of which the first is asked first. Touches no network.
    ///
    /// # Errors
    /// A network of another family or with facts that cannot be, and a URL that cannot be used.
    pub fn new(network: Network, rpc_urls: &[Url]) -> Result<Self, EvmError> {
        let chain = network.chain;
        if chain.family() != Family::Evm {
            return Err(EvmError::NotEvm { chain });
        }
        let chain_id = network.chain_ref.strip_prefix("eip155:").and_then(|id| id.parse().ok());
        let chain_id = chain_id.ok_or_else(|| EvmError::ChainRef { chain, chain_ref: network.chain_ref.clone() })?;
        let pool = Arc::new(Pool::new(chain, chain_id, rpc_urls)?);
        Ok(EvmSource {
            reader: Reader { rules: Rules::of(&network)?, sources: Sources::of(&network), pool: Arc::clone(&pool) },
            tracer: Tracer::new(network.native),
            scan: Scan::default(),
            finality: network.finality,
            pool,
            told: Mutex::new(None),
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
        let tip = self.pool.settle(endpoint, tip, |tip| Some(tip.latest.number))?;
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = Some(tip.latest);
        Ok(tip)
    }

    async fn headers(&self, range: RangeInclusive<u64>) -> Result<Vec<Header>, SourceError> {
        let endpoint = self.pool.pick().await?;
        let headers = read_headers(endpoint, range).await;
        self.pool.settle(endpoint, headers, |_| None)
    }

    async fn blocks(&self, range: RangeInclusive<u64>, read: Read) -> Result<Vec<Block>, SourceError> {
        let endpoint = self.pool.pick().await?;
        if read.lane == Lane::Traces {
            let blocks = self.reader.blocks_and_txs(endpoint, self.tracer.narrow(range)).await;
            let blocks = self.pool.settle(endpoint, blocks, |_| None)?;
            return Ok(self.tracer.blocks(&self.pool, endpoint, blocks, read).await?);
        }
        let told = *self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let blocks = match read.proof {
            ReadProof::Full => self.reader.blocks(endpoint, range, read.legs).await,
            ReadProof::Listed => self.reader.listed(endpoint, range, told).await,
        };
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
    async fn candidates(
        &self,
        range: RangeInclusive<u64>,
        watched: &(dyn Fn(&Address) -> bool + Sync),
    ) -> Result<Candidates, SourceError> {
        let endpoint = self.pool.pick().await?;
        let candidates = self.scan.candidates(&self.reader, endpoint, range, watched).await;
        self.pool.settle(endpoint, candidates, |_| None)
    }

    async fn balances(&self, addresses: &[Address], at: &BlockRef) -> Result<Vec<U256>, SourceError> {
        let endpoint = self.pool.pick().await?;
        let balances = read_balances(endpoint, addresses, at).await;
        self.pool.settle(endpoint, balances, |_| None)
    }
}
