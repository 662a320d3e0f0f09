//! The chains that are built in, as one: every call goes to the source of the chain's own family.
//!
//! Promises: forwards, and decides nothing about what a chain reports. Nothing else in `app` but `cluster`
//! distinguishes families. A new family is a new arm of each match here, and the compiler asks for it.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use landfall_chain::{
    AccountState, Acting, Address, AddressSource, AssetFacts, AssetId, AssetSource, AssetTransfer, Block, BlockRef,
    BlockSource, BroadcastResponse, Carried, Chain, Endpoints, Family, Fate, FeeMarket, Found, GuardQuote, Header,
    HoldingSource, Holdings, Intent, KeyReport, Maker, Mark, Network, Payer, PayingChain, Quote, Read, ReadProof,
    Readiness, ReclaimQuote, Search, Searching, SourceError, Tip, TxId, TxRef, U256, Watched,
};
use landfall_evm::{EndpointUrl, EvmSource};
use landfall_solana::{Options, Sample, SolanaSource};
use tokio::sync::Notify;

use crate::random;

/// How often the tip is polled within a block's usual time, and the bounds of the pause.
const POLLS_PER_BLOCK: u64 = 4;
const POLL_MS_MIN: u64 = 250;
const POLL_MS_MAX: u64 = 1_000;
/// For how many addresses on an EVM chain the balances are read in a second. Each costs one light call for each listed
/// asset.
const BALANCES_PER_SEC: u32 = 20;

/// A chain that can be read, of whatever family.
#[derive(Debug)]
pub enum AnyChain {
    Evm(Box<EvmSource>),
    Solana(Box<SolanaSource>),
}

/// The call on the source of whichever family.
macro_rules! each {
    ($chain:expr, $source:ident => $call:expr) => {
        match $chain {
            AnyChain::Evm($source) => $call,
            AnyChain::Solana($source) => $call,
        }
    };
}

/// The built-in facts of `chain`; `None` where this version has none.
pub(super) fn built_in(chain: Chain) -> Option<Network> {
    match chain.family() {
        Family::Evm => landfall_evm::network(chain),
        Family::Solana => landfall_solana::network(chain),
    }
}

/// How often the tip of `network` is polled if the configuration does not set it.
pub(super) fn usual_poll(network: &Network) -> Duration {
    match network.chain.family() {
        Family::Evm => Duration::from_millis((network.block_time_ms / POLLS_PER_BLOCK).clamp(POLL_MS_MIN, POLL_MS_MAX)),
        Family::Solana => landfall_solana::POLL,
    }
}

/// The strongest proof that a chain has. Where no root covers a block, a second endpoint for each block would double
/// the cost, so only blocks that may credit are read in full.
pub(super) fn usual_proof(family: Family) -> ReadProof {
    match family {
        Family::Evm => ReadProof::Full,
        Family::Solana => ReadProof::Candidate,
    }
}

impl AnyChain {
    /// The source of `network` over `urls`; `options` are Solana's. Touches no network.
    pub(super) fn over(network: &Network, urls: Vec<EndpointUrl>, options: &Options) -> Result<Self, SourceError> {
        Ok(match network.chain.family() {
            Family::Evm => AnyChain::Evm(Box::new(EvmSource::at(network.clone(), urls, options.timings)?)),
            Family::Solana => {
                let sample = Sample { key: random::number(), ..Sample::default() };
                AnyChain::Solana(Box::new(SolanaSource::at(network, urls, options)?.with_sample(sample)))
            }
        })
    }

    pub(super) fn set_agree(&self, agree: usize) -> Result<(), SourceError> {
        each!(self, source => Ok(source.set_agree(agree)?))
    }

    /// How much gas a payment of native currency to its recipient may take. Where that costs nothing it is no limit.
    pub(super) fn set_recipient_gas_max(&self, gas: u64) {
        match self {
            AnyChain::Evm(source) => source.set_recipient_gas_max(gas),
            AnyChain::Solana(_) => {}
        }
    }

    /// The states of the endpoints; clones share them.
    pub fn endpoints(&self) -> Endpoints {
        each!(self, source => source.endpoints())
    }

    pub(super) fn wake_up(&self) -> Arc<Notify> {
        each!(self, source => source.wake_up())
    }

    pub(super) fn listen(&self) -> BoxFuture<'static, ()> {
        each!(self, source => source.listen().boxed())
    }

    /// For how many addresses the balances of `network` are read at once, and how long after one reading the next is
    /// due, if the configuration does not set it.
    pub(super) fn usual_balances(&self, network: &Network) -> (u32, Duration) {
        match self {
            AnyChain::Evm(_) => (BALANCES_PER_SEC, Duration::ZERO),
            AnyChain::Solana(source) => {
                let assets: Vec<AssetId> = network.assets.iter().map(|asset| asset.id).collect();
                let owners = u32::try_from(source.owners_of_a_call(&assets)).unwrap_or(u32::MAX);
                (owners, landfall_solana::HOLDINGS_PAUSE)
            }
        }
    }

    /// Asks every endpoint that is due, and waits for all of them.
    ///
    /// # Errors
    /// Permanent when one serves another chain; transient when one cannot be asked.
    pub async fn check(&self) -> Result<(), SourceError> {
        each!(self, source => source.check().await)
    }
}

impl BlockSource for AnyChain {
    async fn tip(&self) -> Result<Tip, SourceError> {
        each!(self, source => source.tip().await)
    }

    async fn headers(&self, range: RangeInclusive<u64>) -> Result<Vec<Header>, SourceError> {
        each!(self, source => source.headers(range).await)
    }

    async fn blocks(&self, range: RangeInclusive<u64>, read: Read) -> Result<Vec<Block>, SourceError> {
        each!(self, source => source.blocks(range, read).await)
    }

    async fn final_at(&self, number: u64) -> Result<Option<BlockRef>, SourceError> {
        each!(self, source => source.final_at(number).await)
    }

    async fn cross_check(
        &self,
        below: &BlockRef,
        range: RangeInclusive<u64>,
        ours: &[BlockRef],
        may_come: bool,
    ) -> Result<Option<u64>, SourceError> {
        each!(self, source => source.cross_check(below, range, ours, may_come).await)
    }

    async fn payers(&self, block: &BlockRef, transfers: &[AssetTransfer]) -> Result<Vec<Payer>, SourceError> {
        each!(self, source => source.payers(block, transfers).await)
    }

    async fn fate(&self, tx: &TxRef, at: &BlockRef) -> Result<Fate, SourceError> {
        each!(self, source => source.fate(tx, at).await)
    }

    fn rules(&self) -> String {
        each!(self, source => source.rules())
    }
}

impl AddressSource for AnyChain {
    fn search(&self) -> Search {
        each!(self, source => source.search())
    }

    async fn candidates(&self, range: RangeInclusive<u64>, watched: Watched<'_>) -> Result<Found, SourceError> {
        each!(self, source => source.candidates(range, watched).await)
    }

    fn searching(&self) -> Option<Searching> {
        each!(self, source => source.searching())
    }

    async fn account_states(&self, addresses: &[Address], at: &BlockRef) -> Result<Vec<AccountState>, SourceError> {
        each!(self, source => source.account_states(addresses, at).await)
    }
}

impl AssetSource for AnyChain {
    async fn facts(&self, asset: &AssetId, reached: u64) -> Result<Option<AssetFacts>, SourceError> {
        each!(self, source => source.facts(asset, reached).await)
    }
}

impl HoldingSource for AnyChain {
    async fn holdings(
        &self,
        addresses: &[Address],
        assets: &[AssetId],
        at: &BlockRef,
    ) -> Result<Holdings, SourceError> {
        each!(self, source => source.holdings(addresses, assets, at).await)
    }
}

impl PayingChain for AnyChain {
    async fn fee_market(&self) -> Result<FeeMarket, SourceError> {
        each!(self, source => source.fee_market().await)
    }

    async fn readiness(&self, intent: &Intent) -> Result<Readiness, SourceError> {
        each!(self, source => source.readiness(intent).await)
    }

    async fn acting(&self, intent: &Intent) -> Result<Acting, SourceError> {
        each!(self, source => source.acting(intent).await)
    }

    async fn delegated(&self, wallet: &Address) -> Result<Option<u64>, SourceError> {
        each!(self, source => source.delegated(wallet).await)
    }

    async fn is_delegated(&self, wallet: &Address, at: &BlockRef) -> Result<bool, SourceError> {
        each!(self, source => source.is_delegated(wallet, at).await)
    }

    async fn quote(&self, sponsor: &Address, carried: &Carried) -> Result<Quote, SourceError> {
        each!(self, source => source.quote(sponsor, carried).await)
    }

    async fn surcharge(&self) -> Result<U256, SourceError> {
        each!(self, source => source.surcharge().await)
    }

    async fn guard_quote(
        &self,
        sponsor: &Address,
        intent: &Intent,
        recent: &BlockRef,
    ) -> Result<GuardQuote, SourceError> {
        each!(self, source => source.guard_quote(sponsor, intent, recent).await)
    }

    async fn reclaim_quote(
        &self,
        sponsor: &Address,
        intents: &[Intent],
        recent: &BlockRef,
    ) -> Result<ReclaimQuote, SourceError> {
        each!(self, source => source.reclaim_quote(sponsor, intents, recent).await)
    }

    async fn nonce_at(&self, address: &Address, at: Option<&BlockRef>) -> Result<u64, SourceError> {
        each!(self, source => source.nonce_at(address, at).await)
    }

    async fn has_code(&self, address: &Address, at: &BlockRef) -> Result<bool, SourceError> {
        each!(self, source => source.has_code(address, at).await)
    }

    async fn owned(&self, address: &Address) -> Result<U256, SourceError> {
        each!(self, source => source.owned(address).await)
    }

    async fn broadcast(&self, tx: &TxId, raw: &[u8]) -> BroadcastResponse {
        each!(self, source => source.broadcast(tx, raw).await)
    }

    async fn is_shown(&self, mark: &Mark, at: &BlockRef) -> Result<bool, SourceError> {
        each!(self, source => source.is_shown(mark, at).await)
    }

    async fn key_report(&self, intent: &Intent, at: &BlockRef) -> Result<KeyReport, SourceError> {
        each!(self, source => source.key_report(intent, at).await)
    }

    async fn was_made(&self, intent: &Intent, from: u64, at: &BlockRef) -> Result<bool, SourceError> {
        each!(self, source => source.was_made(intent, from, at).await)
    }

    async fn maker(&self, intent: &Intent, at: &BlockRef) -> Result<Option<Maker>, SourceError> {
        each!(self, source => source.maker(intent, at).await)
    }
}
