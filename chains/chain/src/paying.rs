//! What a sender asks of a chain: what sending costs, to take a transaction, and whether an intent was used.
//!
//! Invariant: no answer here is evidence that a transfer was paid, or never will be. Marks in proved blocks show that
//! it was paid. The state of a final block ([`PayingChain::key_report`]), with all blocks up to it, shows that it was not.

use std::sync::Arc;

use crate::{
    Acting, Address, BlockRef, Carried, Carrier, GuardTerms, HoldingSource, Intent, Mark, SourceError, TxId, U256,
};

/// What a unit of gas costs now, in base units of the native currency.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FeeMarket {
    /// The base fee of the next block.
    pub base_fee: u128,
    /// What is usually added for who makes the block; at least the network's floor.
    pub tip: u128,
}

/// Whether a token takes intents as the network's facts say, and the payment would go through now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Readiness {
    /// It does.
    Ready,
    /// It does not, and why: nothing may be signed.
    NotReady(String),
    /// The chain would refuse the payment now, and why: nothing may be signed. It is no evidence: it may be paid later.
    Unpayable(Unpayable, String),
}

/// What of a payment the chain would refuse now.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Unpayable {
    /// Payer or recipient would own too little.
    Funds,
    /// Nothing can be paid to this recipient.
    Destination,
    /// The token's owner has paused it.
    Paused,
    /// Something else.
    Refused,
}

/// What carrying something takes, tried with its own signatures.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Quote {
    /// The chain takes it.
    Gas {
        /// The limit to set.
        limit: u64,
        /// What a rollup takes on top of gas, at most.
        surcharge: U256,
    },
    /// The chain would refuse it now; the node's words, cleaned.
    Refused(String),
}

/// What a transaction that makes a guard is made of now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GuardQuote {
    /// These.
    Terms(GuardTerms),
    /// The chain does not know the blockhash: it, or our record, is behind, or on another branch.
    NotYet,
    /// The sponsor owns too little for the fee or the guard.
    Poor,
    /// The chain would refuse it now; the node's words, cleaned.
    Refused(String),
}

/// What a transaction that takes back guards is made of now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReclaimQuote {
    /// It would go through.
    Terms {
        /// What each guard holds.
        lamports: Vec<u64>,
        /// The compute units that it may use.
        compute_limit: u32,
    },
    /// An endpoint reports that these of them, counted from 0, are not there.
    Absent(Vec<usize>),
    /// The chain does not know the blockhash: it, or our record, is behind, or on another branch.
    NotYet,
    /// The sponsor owns too little for the fee.
    Poor,
    /// The chain would refuse it now; the node's words, cleaned.
    Refused(String),
}

/// The transaction that made a guard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Maker {
    /// It.
    pub tx: TxId,
    /// The payer's key signed it: it may have paid.
    pub is_payers: bool,
}

/// Whether a one-time key was used, as the state of a final block shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyReport {
    /// It was.
    pub is_used: bool,
    /// The endpoints that report so, as many as must agree. They are named by host and port.
    pub reported_by: Vec<String>,
}

/// What a node made of a transaction. None of it is evidence of what becomes of the transaction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BroadcastResponse {
    /// It is in the node's pool.
    Pooled,
    /// It was there already.
    Known,
    /// The sponsor's nonce is used.
    NonceUsed,
    /// It offers too little: less than the market, or too little more than what it would replace.
    Underpriced,
    /// The nonces before it are missing.
    Gapped,
    /// The sponsor owns too little.
    Poor,
    /// The sponsor has a delegation, so that the node takes one transaction at a time.
    Delegated,
    /// The payer's account has transactions of its own waiting.
    Reserved,
    /// The node refuses it for what it is.
    Refused,
    /// It is too old.
    Expired,
    /// Nobody knows: a timeout, a full pool, an answer that says nothing.
    Unknown,
}

/// A chain on which a sponsor carries intents, and that says what sponsors own. Every call is bounded in time and retries
/// nothing.
pub trait PayingChain: HoldingSource {
    /// What gas costs in the next block.
    fn fee_market(&self) -> impl Future<Output = Result<FeeMarket, SourceError>> + Send;

    /// Whether the route of this intent works as the network's facts say: the token's own domain, the payer's code. And
    /// whether the payment would go through now, which is tried without a signature.
    fn readiness(&self, intent: &Intent) -> impl Future<Output = Result<Readiness, SourceError>> + Send;

    /// Whether the delegate of this intent's route acts for its payer now.
    fn acting(&self, intent: &Intent) -> impl Future<Output = Result<Acting, SourceError>> + Send;

    /// The next nonce of `wallet` while listed code acts for it; `None` where none does.
    fn delegated(&self, wallet: &Address) -> impl Future<Output = Result<Option<u64>, SourceError>> + Send;

    /// Whether listed code acts for `wallet` after the final block `at`: as many endpoints as must agree report it.
    fn is_delegated(&self, wallet: &Address, at: &BlockRef) -> impl Future<Output = Result<bool, SourceError>> + Send;

    /// What it takes to carry this as `sponsor`. Tried with the signatures, so only behind them.
    fn quote(&self, sponsor: &Address, carried: &Carried) -> impl Future<Output = Result<Quote, SourceError>> + Send;

    /// What a rollup takes of a usual transaction on top of gas now, at most; nothing where there is no rollup.
    fn surcharge(&self) -> impl Future<Output = Result<U256, SourceError>> + Send;

    /// What a transaction of `sponsor` that makes the guard of `intent` is made of, on the blockhash of `recent`, a block that
    /// we connected. Tried with everything but signatures. A chain that makes no guards has none.
    fn guard_quote(
        &self,
        sponsor: &Address,
        intent: &Intent,
        recent: &BlockRef,
    ) -> impl Future<Output = Result<GuardQuote, SourceError>> + Send;

    /// What a transaction of `sponsor` that takes back the guards of `intents` is made of, on the blockhash of `recent`. Tried
    /// with everything but signatures. A chain that makes no guards has none.
    fn reclaim_quote(
        &self,
        sponsor: &Address,
        intents: &[Intent],
        recent: &BlockRef,
    ) -> impl Future<Output = Result<ReclaimQuote, SourceError>> + Send;

    /// How many transactions `address` has sent, after `at`; without `at`, after the newest block. On Solana, where
    /// nobody counts them, it is always 0.
    fn nonce_at(
        &self,
        address: &Address,
        at: Option<&BlockRef>,
    ) -> impl Future<Output = Result<u64, SourceError>> + Send;

    /// Whether `address` has code at the final block `at`: as many endpoints as must agree report it. A sponsor must have
    /// none, for nodes take one transaction at a time of an address that delegates (EIP-7702). On Solana it never has.
    fn has_code(&self, address: &Address, at: &BlockRef) -> impl Future<Output = Result<bool, SourceError>> + Send;

    /// What `address` owns of the native currency after the newest block, as one endpoint reports it.
    fn owned(&self, address: &Address) -> impl Future<Output = Result<U256, SourceError>> + Send;

    /// Hands a transaction to two endpoints where there are two. The best that one of them said.
    fn broadcast(&self, tx: &TxId, raw: &[u8]) -> impl Future<Output = BroadcastResponse> + Send;

    /// Whether the final block `at` shows `mark`, by the report of as many endpoints as must agree. Asked for only where no
    /// root covers the block and one endpoint alone reported it.
    fn is_shown(&self, mark: &Mark, at: &BlockRef) -> impl Future<Output = Result<bool, SourceError>> + Send;

    /// Whether the one-time key of `intent` was used up to the final block `at`, by its state: as many endpoints as must
    /// agree report it, and which ones.
    fn key_report(&self, intent: &Intent, at: &BlockRef)
    -> impl Future<Output = Result<KeyReport, SourceError>> + Send;

    /// As [`PayingChain::key_report`], for who need not know which endpoints report it.
    fn is_used(&self, intent: &Intent, at: &BlockRef) -> impl Future<Output = Result<bool, SourceError>> + Send {
        let report = self.key_report(intent, at);
        async move { Ok(report.await?.is_used) }
    }

    /// Whether the guard of `intent` was there at any time between block `from` and the final block `at`: as many endpoints as
    /// must agree list what named it, each of which keeps all of that. One that keeps less says nothing.
    fn was_made(
        &self,
        intent: &Intent,
        from: u64,
        at: &BlockRef,
    ) -> impl Future<Output = Result<bool, SourceError>> + Send;

    /// Which final transaction made the guard of `intent`, which stands at the final block `at`: as many endpoints as must
    /// agree report it. `None` where they do not know, and where there is no guard.
    fn maker(&self, intent: &Intent, at: &BlockRef) -> impl Future<Output = Result<Option<Maker>, SourceError>> + Send;
}

impl<C: PayingChain> PayingChain for Arc<C> {
    async fn fee_market(&self) -> Result<FeeMarket, SourceError> {
        C::fee_market(self).await
    }

    async fn readiness(&self, intent: &Intent) -> Result<Readiness, SourceError> {
        C::readiness(self, intent).await
    }

    async fn acting(&self, intent: &Intent) -> Result<Acting, SourceError> {
        C::acting(self, intent).await
    }

    async fn delegated(&self, wallet: &Address) -> Result<Option<u64>, SourceError> {
        C::delegated(self, wallet).await
    }

    async fn is_delegated(&self, wallet: &Address, at: &BlockRef) -> Result<bool, SourceError> {
        C::is_delegated(self, wallet, at).await
    }

    async fn quote(&self, sponsor: &Address, carried: &Carried) -> Result<Quote, SourceError> {
        C::quote(self, sponsor, carried).await
    }

    async fn surcharge(&self) -> Result<U256, SourceError> {
        C::surcharge(self).await
    }

    async fn guard_quote(
        &self,
        sponsor: &Address,
        intent: &Intent,
        recent: &BlockRef,
    ) -> Result<GuardQuote, SourceError> {
        C::guard_quote(self, sponsor, intent, recent).await
    }

    async fn reclaim_quote(
        &self,
        sponsor: &Address,
        intents: &[Intent],
        recent: &BlockRef,
    ) -> Result<ReclaimQuote, SourceError> {
        C::reclaim_quote(self, sponsor, intents, recent).await
    }

    async fn nonce_at(&self, address: &Address, at: Option<&BlockRef>) -> Result<u64, SourceError> {
        C::nonce_at(self, address, at).await
    }

    async fn has_code(&self, address: &Address, at: &BlockRef) -> Result<bool, SourceError> {
        C::has_code(self, address, at).await
    }

    async fn owned(&self, address: &Address) -> Result<U256, SourceError> {
        C::owned(self, address).await
    }

    async fn broadcast(&self, tx: &TxId, raw: &[u8]) -> BroadcastResponse {
        C::broadcast(self, tx, raw).await
    }

    async fn is_shown(&self, mark: &Mark, at: &BlockRef) -> Result<bool, SourceError> {
        C::is_shown(self, mark, at).await
    }

    async fn key_report(&self, intent: &Intent, at: &BlockRef) -> Result<KeyReport, SourceError> {
        C::key_report(self, intent, at).await
    }

    async fn was_made(&self, intent: &Intent, from: u64, at: &BlockRef) -> Result<bool, SourceError> {
        C::was_made(self, intent, from, at).await
    }

    async fn maker(&self, intent: &Intent, at: &BlockRef) -> Result<Option<Maker>, SourceError> {
        C::maker(self, intent, at).await
    }
}

impl Carried {
    /// CAIP-2 of its chain; `None` of no clearings at all.
    pub fn chain_ref(&self) -> Option<&str> {
        match self {
            Carried::Payment { signed, .. } | Carried::Cancellation(signed) => Some(&signed.intent.chain_ref),
            Carried::Clearings(clearings) => clearings.first().map(|it| it.authorization.chain_ref.as_str()),
            Carried::Refill(refill) => Some(&refill.chain_ref),
        }
    }

    /// The intent that it pays or ends.
    pub const fn intent(&self) -> Option<&Intent> {
        match self {
            Carried::Payment { signed, .. } | Carried::Cancellation(signed) => Some(&signed.intent),
            Carried::Clearings(_) | Carried::Refill(_) => None,
        }
    }
}

impl Carrier {
    /// The most that it may cost its sponsor, in base units of the native currency; what a refill gives comes on top. What a
    /// rollup takes on top is in [`Quote::Gas`].
    pub fn cost_max(&self) -> u128 {
        self.max_fee.saturating_mul(u128::from(self.gas_limit))
    }
}

impl GuardTerms {
    /// The most that it may cost its sponsor, in lamports, beside its signatures and the rent of a new token account.
    pub fn cost_max(&self) -> u128 {
        let GuardTerms { rent, compute_limit, compute_price, .. } = *self;
        let compute = u128::from(compute_price).saturating_mul(u128::from(compute_limit)).div_ceil(1_000_000);
        compute.saturating_add(u128::from(rent))
    }
}

impl BroadcastResponse {
    /// All, the best first: what a node has is worth more than what another one refuses, and any answer more than none.
    pub const BEST_FIRST: [BroadcastResponse; 11] = [
        BroadcastResponse::Pooled,
        BroadcastResponse::Known,
        BroadcastResponse::NonceUsed,
        BroadcastResponse::Underpriced,
        BroadcastResponse::Gapped,
        BroadcastResponse::Poor,
        BroadcastResponse::Delegated,
        BroadcastResponse::Reserved,
        BroadcastResponse::Refused,
        BroadcastResponse::Expired,
        BroadcastResponse::Unknown,
    ];

    /// The best of what several nodes said; nothing is known where none was asked.
    pub fn best(responses: &[BroadcastResponse]) -> BroadcastResponse {
        let best = BroadcastResponse::BEST_FIRST.into_iter().find(|response| responses.contains(response));
        best.unwrap_or(BroadcastResponse::Unknown)
    }

    /// The name that is stored and shown.
    pub const fn name(self) -> &'static str {
        match self {
            BroadcastResponse::Pooled => "pooled",
            BroadcastResponse::Known => "known",
            BroadcastResponse::NonceUsed => "nonce_used",
            BroadcastResponse::Underpriced => "underpriced",
            BroadcastResponse::Gapped => "gapped",
            BroadcastResponse::Poor => "poor",
            BroadcastResponse::Delegated => "delegated",
            BroadcastResponse::Reserved => "reserved",
            BroadcastResponse::Refused => "refused",
            BroadcastResponse::Expired => "expired",
            BroadcastResponse::Unknown => "unknown",
        }
    }
}
