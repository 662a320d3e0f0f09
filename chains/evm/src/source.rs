//! Reads an EVM chain: tip, headers, blocks with their content, the fate of a transaction.
//!
//! Each call goes to the pool, which chooses an endpoint and asks another when one fails. Deliberately not here:
//! memory of what was read, except the newest block's hash, the blocks that wait to be traced, and for a moment what
//! payers and their tokens reported.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use landfall_chain::{
    AccountState, Address, AddressSource, AssetFacts, AssetId, AssetSource, AssetTransfer, Block, BlockRef,
    BlockSource, Candidates, Delegate, Endpoints, Family, Fate, Finality, FinalityRule, Found, Header, HoldingSource,
    Holdings, Lane, Legs, Network, Payer, Read, ReadProof, Search, SourceError, Tag, Tip, TxRef, Watched,
};
use landfall_rpc::{EndpointUrl, Need, Timings};
use tokio::sync::Notify;
use url::Url;

use crate::accounts::accounts;
use crate::assets::facts;
use crate::dialect::{Endpoint, Evm, Pool};
use crate::error::EvmError;
use crate::fate::read_fate;
use crate::headers::{HEADERS_MAX, read_headers};
use crate::holdings::holdings;
use crate::kept::{Kept, ProvedBlock};
use crate::legs::Rules;
use crate::logs::{LOGS, Sources};
use crate::networks;
use crate::pay::asking::LatelyRead;
use crate::pay::trial::RECIPIENT_GAS_MAX;
use crate::polygon::RAW_LAST;
use crate::read::{BLOCKS_MAX, RECEIPTS, Reader};
use crate::stack::Stack;
use crate::tip::L1_BLOCKS_MAX;
use crate::traces::Tracer;

/// One EVM network, read over JSON-RPC.
#[derive(Debug)]
pub struct EvmSource {
    reader: Reader,
    tracer: Tracer,
    /// The blocks that the roots have just proved, for the lane of the traces.
    kept: Kept,
    pool: Arc<Pool>,
    /// The newest block that a tip named: it can be asked for by hash.
    reported: Mutex<Option<BlockRef>>,
    /// A payment of native currency to its recipient may take so much gas.
    recipient_gas_max: AtomicU64,
    /// What tokens reported of their domains, and nodes of payers.
    lately: LatelyRead,
}

impl EvmSource {
    /// A source over `urls`. Touches no network.
    ///
    /// A network of another family or with impossible facts, a rule of finality that its chain cannot follow, and a
    /// URL that cannot be used.
    /// URL that cannot be used.
    pub fn new(network: Network, urls: &[Url]) -> Result<Self, EvmError> {
        EvmSource::at(network, urls.iter().cloned().map(EndpointUrl::from).collect(), Timings::PRODUCTION)
    }

    /// As [`EvmSource::new`], with headers, and with waits of its own.
    ///
    /// # Errors
    /// As [`EvmSource::new`], and a header that cannot be sent.
    pub fn at(network: Network, urls: Vec<EndpointUrl>, timings: Timings) -> Result<Self, EvmError> {
        let chain = network.chain;
        if chain.family() != Family::Evm {
            return Err(EvmError::NotEvm { chain });
        }
        let chain_id = network.chain_ref.strip_prefix("eip155:").and_then(|id| id.parse().ok());
        let chain_id = chain_id.ok_or_else(|| EvmError::ChainRef { chain, chain_ref: network.chain_ref.clone() })?;
        let stack = networks::stack(chain);
        let rules = rules(&network.finality);
        if rules.iter().any(|rule| !can_follow(rule, stack)) {
            return Err(EvmError::L1Blocks { chain });
        }
        let pool = Arc::new(Pool::over(Evm::new(chain_id, rules), chain, urls, timings)?);
        Ok(EvmSource {
            reader: Reader { rules: Rules::of(&network)?, sources: Sources::of(&network), pool: Arc::clone(&pool) },
            tracer: Tracer::new(network.native),
            kept: Kept::default(),
            pool,
            reported: Mutex::new(None),
            recipient_gas_max: AtomicU64::new(RECIPIENT_GAS_MAX),
            lately: LatelyRead::default(),
        })
    }

    /// Sets how many endpoints must agree on what is final. Without this call it is two, or one where there is only
    /// one. An operator may override it at run time: [`Endpoints::override_agree`].
    ///
    /// # Errors
    /// More than are configured, and zero.
    pub fn set_agree(&self, agree: usize) -> Result<(), EvmError> {
        Ok(self.pool.set_agree(agree)?)
    }

    /// Sets how much gas a payment of native currency to its recipient may take; what takes more is not signed.
    pub fn set_recipient_gas_max(&self, gas: u64) {
        self.recipient_gas_max.store(gas, Ordering::Relaxed);
    }

    /// The states of the endpoints; clones share them.
    pub fn endpoints(&self) -> Endpoints {
        self.pool.endpoints()
    }

    /// Notified when there may be a new block, if a `ws` URL says so while [`EvmSource::listen`] runs.
    pub fn wake_up(&self) -> Arc<Notify> {
        self.pool.wake_up()
    }

    /// Listens for wake-ups, for ever. Without a `ws` URL it does nothing.
    pub fn listen(&self) -> impl Future<Output = ()> + Send + 'static {
        self.pool.listen()
    }

    /// For the start: asks every endpoint for its chain id that has not reported it yet.
    ///
    /// # Errors
    /// Permanent when an endpoint serves another chain; transient when one cannot be asked.
    pub async fn check(&self) -> Result<(), SourceError> {
        Ok(self.pool.check().await?)
    }
}

impl BlockSource for EvmSource {
    async fn tip(&self) -> Result<Tip, SourceError> {
        let tip = self.pool.tip().await?;
        *self.reported.lock().unwrap_or_else(PoisonError::into_inner) = Some(tip.latest);
        Ok(tip)
    }

    async fn headers(&self, range: RangeInclusive<u64>) -> Result<Vec<Header>, SourceError> {
        let need = Need { first: *range.start(), last: *range.end(), methods: &[] };
        let read = |endpoint| -> BoxRead<'_, _> { Box::pin(read_headers(endpoint, range.clone())) };
        Ok(self.pool.call_range(need, HEADERS_MAX, read).await?)
    }

    async fn blocks(&self, range: RangeInclusive<u64>, read: Read) -> Result<Vec<Block>, SourceError> {
        if read.lane == Lane::Traces {
            return Ok(self.traced(self.tracer.narrow(range), read).await?);
        }
        let (first, last) = (*range.start(), *range.end());
        self.kept.forget(&range);
        // The lane of the traces comes next and needs the receipts: a list of logs would save nothing, and prove less.
        if read.legs == Legs::Creditable && self.tracer.traces(first) {
            return Ok(self.kept.keep(self.proved(range).await?));
        }
        let blocks = match read.proof {
            ReadProof::Full => {
                let need = Need { first, last, methods: self.whole_blocks() };
                let full =
                    |endpoint| -> BoxRead<'_, _> { Box::pin(self.reader.blocks(endpoint, range.clone(), read.legs)) };
                self.pool.call_range(need, BLOCKS_MAX, full).await
            }
            ReadProof::Candidate => {
                let need = Need { first, last, methods: &[LOGS] };
                let reported = *self.reported.lock().unwrap_or_else(PoisonError::into_inner);
                let listed =
                    |endpoint| -> BoxRead<'_, _> { Box::pin(self.reader.listed(endpoint, range.clone(), reported)) };
                self.pool.call_range(need, BLOCKS_MAX, listed).await
            }
        };
        Ok(blocks?)
    }

    async fn final_at(&self, number: u64) -> Result<Option<BlockRef>, SourceError> {
        Ok(self.pool.final_at(number).await?)
    }

    /// Roots prove the content and the parent.
    async fn cross_check(
        &self,
        _: &BlockRef,
        _: RangeInclusive<u64>,
        _: &[BlockRef],
        _: bool,
    ) -> Result<Option<u64>, SourceError> {
        Ok(None)
    }

    /// Each leg names it.
    async fn payers(&self, _: &BlockRef, transfers: &[AssetTransfer]) -> Result<Vec<Payer>, SourceError> {
        Ok(transfers.iter().map(AssetTransfer::payer).collect())
    }

    async fn fate(&self, tx: &TxRef, at: &BlockRef) -> Result<Fate, SourceError> {
        let read = |endpoint| -> BoxRead<'_, _> { Box::pin(read_fate(endpoint, tx, at)) };
        Ok(self.pool.fate(at, read).await?)
    }
}

impl AddressSource for EvmSource {
    fn search(&self) -> Search {
        Search::ByRange
    }

    async fn candidates(&self, range: RangeInclusive<u64>, watched: Watched<'_>) -> Result<Found, SourceError> {
        let need = Need { first: *range.start(), last: *range.end(), methods: &[LOGS] };
        let watched = |address: &Address| watched.contains(address);
        let scan = |endpoint| -> BoxRead<'_, _> { Box::pin(self.scanned(endpoint, need, &watched)) };
        Ok(Found::Linked(self.pool.call(need, scan).await?))
    }

    async fn account_states(&self, addresses: &[Address], at: &BlockRef) -> Result<Vec<AccountState>, SourceError> {
        Ok(accounts(&self.pool, addresses, at).await?)
    }
}

impl AssetSource for EvmSource {
    async fn facts(&self, asset: &AssetId, reached: u64) -> Result<Option<AssetFacts>, SourceError> {
        Ok(facts(&self.pool, asset, reached).await?)
    }
}

impl HoldingSource for EvmSource {
    async fn holdings(
        &self,
        addresses: &[Address],
        assets: &[AssetId],
        at: &BlockRef,
    ) -> Result<Holdings, SourceError> {
        Ok(holdings(&self.pool, addresses, assets, at).await?)
    }
}

impl EvmSource {
    pub(crate) fn delegates(&self) -> &[Delegate] {
        &self.reader.rules.delegates
    }

    pub(crate) fn lately(&self) -> &LatelyRead {
        &self.lately
    }

    pub(crate) fn recipient_gas_max(&self) -> u64 {
        self.recipient_gas_max.load(Ordering::Relaxed)
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// What an endpoint should serve to have whole blocks read from it.
    fn whole_blocks(&self) -> &'static [&'static str] {
        match self.reader.rules.stack {
            Stack::Polygon => &[RECEIPTS, RAW_LAST],
            Stack::Ethereum | Stack::Op => &[RECEIPTS],
        }
    }

    /// The lane of the traces. Blocks and traces may come from different endpoints: the blocks are proved, and a trace
    /// that contradicts them is not believed.
    async fn traced(&self, range: RangeInclusive<u64>, read: Read) -> Result<Vec<Block>, EvmError> {
        // Each is used once: whoever comes back, or asks for more, has a reason to have it proved again.
        let kept = if read.legs == Legs::Creditable { self.kept.take(range.clone()) } else { None };
        let blocks = match kept {
            Some(kept) => kept,
            None => self.proved(range).await?,
        };
        self.tracer.blocks(&self.pool, blocks, read).await
    }

    /// Blocks as their roots prove them, with what traces must agree with.
    async fn proved(&self, range: RangeInclusive<u64>) -> Result<Vec<ProvedBlock>, EvmError> {
        let need = Need { first: *range.start(), last: *range.end(), methods: self.whole_blocks() };
        let proved = |endpoint| -> BoxRead<'_, _> { Box::pin(self.reader.blocks_and_txs(endpoint, range.clone())) };
        self.pool.call_range(need, BLOCKS_MAX, proved).await
    }

    /// What `endpoint` finds in the range. An empty result is a failure when its own newest block says that it has
    /// more.
    async fn scanned(
        &self,
        endpoint: &Endpoint,
        need: Need,
        watched: &(dyn Fn(&Address) -> bool + Sync),
    ) -> Result<Candidates, EvmError> {
        let candidates = self.reader.candidates(endpoint, need.first..=need.last, watched).await?;
        if candidates.headers.is_empty() && endpoint.head().is_some_and(|head| head >= need.first) {
            return Err(endpoint.shows_too_little(need, 0));
        }
        Ok(candidates)
    }
}

type BoxRead<'a, T> = futures_util::future::BoxFuture<'a, Result<T, EvmError>>;

/// The rule of the network, then those of its tiers.
fn rules(finality: &Finality) -> Vec<FinalityRule> {
    std::iter::once(finality.rule).chain(finality.tiers.iter().map(|tier| tier.rule)).collect()
}

/// L1 blocks are counted from when a block was called safe, which means that it is on L1.
fn can_follow(rule: &FinalityRule, stack: Stack) -> bool {
    rule.l1_blocks == 0 || stack == Stack::Op && rule.tag == Some(Tag::Safe) && rule.l1_blocks < L1_BLOCKS_MAX
}
