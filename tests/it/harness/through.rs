//! The simulated chain, read through what a test changes, counts or withholds on the way.
//!
//! One type for all such tests: the watcher is compiled once more for each type of source.

use std::ops::RangeInclusive;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use landfall_chain::{
    AccountState, Address, AddressSource, AssetTransfer, Block, BlockRef, BlockSource, Fate, Found, Header, Payer,
    Read, Search, SourceError, Tip, TxRef, Watched,
};
use landfall_sim::SimChain;

type Answer<'a, T> = BoxFuture<'a, Result<T, SourceError>>;

/// What becomes of an answer on its way: nothing, unless a test says otherwise.
pub(crate) trait OnTheWay: Send + Sync + 'static {
    fn headers<'a>(&'a self, chain: &'a SimChain, range: RangeInclusive<u64>) -> Answer<'a, Vec<Header>> {
        Box::pin(BlockSource::headers(chain, range))
    }

    fn blocks<'a>(&'a self, chain: &'a SimChain, range: RangeInclusive<u64>, read: Read) -> Answer<'a, Vec<Block>> {
        Box::pin(BlockSource::blocks(chain, range, read))
    }

    fn payers<'a>(
        &'a self,
        chain: &'a SimChain,
        block: &'a BlockRef,
        transfers: &'a [AssetTransfer],
    ) -> Answer<'a, Vec<Payer>> {
        Box::pin(BlockSource::payers(chain, block, transfers))
    }

    fn fate<'a>(&'a self, chain: &'a SimChain, tx: &'a TxRef, at: &'a BlockRef) -> Answer<'a, Fate> {
        Box::pin(BlockSource::fate(chain, tx, at))
    }
}

/// A source of blocks that are read through `on_the_way`.
#[derive(Clone)]
pub(crate) struct Through {
    chain: SimChain,
    on_the_way: Arc<dyn OnTheWay>,
}

impl Through {
    pub(crate) fn new(chain: &SimChain, on_the_way: Arc<dyn OnTheWay>) -> Self {
        Through { chain: chain.clone(), on_the_way }
    }
}

impl BlockSource for Through {
    async fn tip(&self) -> Result<Tip, SourceError> {
        self.chain.tip().await
    }

    async fn headers(&self, range: RangeInclusive<u64>) -> Result<Vec<Header>, SourceError> {
        self.on_the_way.headers(&self.chain, range).await
    }

    async fn blocks(&self, range: RangeInclusive<u64>, read: Read) -> Result<Vec<Block>, SourceError> {
        self.on_the_way.blocks(&self.chain, range, read).await
    }

    async fn final_at(&self, number: u64) -> Result<Option<BlockRef>, SourceError> {
        self.chain.final_at(number).await
    }

    async fn cross_check(
        &self,
        below: &BlockRef,
        range: RangeInclusive<u64>,
        ours: &[BlockRef],
        may_come: bool,
    ) -> Result<Option<u64>, SourceError> {
        self.chain.cross_check(below, range, ours, may_come).await
    }

    async fn payers(&self, block: &BlockRef, transfers: &[AssetTransfer]) -> Result<Vec<Payer>, SourceError> {
        self.on_the_way.payers(&self.chain, block, transfers).await
    }

    async fn fate(&self, tx: &TxRef, at: &BlockRef) -> Result<Fate, SourceError> {
        self.on_the_way.fate(&self.chain, tx, at).await
    }
}

impl AddressSource for Through {
    fn search(&self) -> Search {
        self.chain.search()
    }

    async fn candidates(&self, range: RangeInclusive<u64>, watched: Watched<'_>) -> Result<Found, SourceError> {
        self.chain.candidates(range, watched).await
    }

    async fn account_states(&self, addresses: &[Address], at: &BlockRef) -> Result<Vec<AccountState>, SourceError> {
        self.chain.account_states(addresses, at).await
    }
}
