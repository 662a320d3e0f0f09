//! What can go wrong with a Solana network, and why an answer of a node cannot be used.
//!
//! Promises: transient or permanent is decided in [`SolanaError::is_permanent`] and nowhere else. No text holds more
//! of a URL than host and port. An unusable answer may pass: the same node later, or another one, may answer well; it
//! says nothing about the chain. Indexes count from 0 within the block. What is quoted of an answer is a key or a
//! number, never a text of the node.

use landfall_chain::{Address, BlockRef, Chain, SourceError, TxId};
use landfall_rpc::RpcError;

use crate::pay::PayError;

/// A failure of this crate.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SolanaError {
    /// A failure that every family knows.
    #[error(transparent)]
    Rpc(#[from] RpcError),
    #[error("{chain} is no Solana network that is known here")]
    NotSolana { chain: Chain },
    #[error(
        "endpoint {endpoint} serves the cluster with genesis hash {served}, but {chain} is {expected}; check \
         chains.{chain}.rpc"
    )]
    WrongChain { chain: Chain, endpoint: String, served: String, expected: String },
    #[error(
        "{chain}: block {block} holds transactions that nodes do not tell to this version of landfall, which asks up to \
         version {asked}; an upgrade is needed"
    )]
    UpgradeNeeded { chain: Chain, block: BlockRef, asked: u8 },
    /// From one endpoint it may be a lie, from all the list is wrong: an amount would be a thousandfold.
    #[error(
        "{chain}: mint {mint} has {reported} decimals in block {block}, but is listed with {listed}; correct decimals in \
         chains.{chain}.assets, and restart"
    )]
    Decimals { chain: Chain, block: BlockRef, mint: String, reported: u8, listed: u8 },
    #[error("{chain}: no endpoint tells when block {block} was made, nor any of the blocks before it")]
    NoTime { chain: Chain, block: BlockRef },
    /// `reported` says by whom. `all_lack`: all others whose vote would count do not have it; else one could not be
    /// asked.
    #[error("{chain}: {reported}, and two endpoints must tell a block alike before it counts; {missing}")]
    Unwitnessed { chain: Chain, reported: String, missing: String, all_lack: bool },
    #[error(
        "{chain}: what mint {mint} is must be reported alike by {agree} endpoints; {endpoints} answered; {missing}"
    )]
    MintUnreported { chain: Chain, mint: String, agree: usize, endpoints: String, missing: String },
    #[error(
        "{chain}: endpoints {endpoints} tell block {block} differently ({what}), and nothing says who is right; name a \
         third endpoint in chains.{chain}.rpc, or leave out the one that is wrong"
    )]
    BlocksDiffer { chain: Chain, endpoints: String, block: BlockRef, what: &'static str },
    #[error(
        "{chain}: slot {slot} holds a final block by the lists of {shown}, and none by those of {hidden}, nor on our record; \
         nothing says who is right: name a third endpoint in chains.{chain}.rpc, or leave out the one that is wrong"
    )]
    SlotsDiffer { chain: Chain, slot: u64, shown: String, hidden: String },
    /// Fewer than must agree list the slots.
    #[error(
        "{chain}: {must} endpoints must list the final slots {first} to {last} alike, and {responses} did; \
         `landfall chain override {chain} finality --agree 1` takes one's word for a time; {missing}"
    )]
    Unlisted { chain: Chain, first: u64, last: u64, must: usize, responses: usize, missing: String },
    #[error("{chain}: endpoint {endpoint} tells block {block} otherwise than {others} ({what})")]
    Outvoted { chain: Chain, endpoint: String, block: BlockRef, others: String, what: &'static str },
    #[error("{chain}: {tx} is no transaction of Solana")]
    Foreign { chain: Chain, tx: TxId },
    #[error("{chain}: signatures lead to single addresses only; which ones must be said")]
    NotListed { chain: Chain },
    #[error("{chain}: {address} is no address of Solana")]
    ForeignAddress { chain: Chain, address: Address },
    /// `first` is the oldest slot that any of them keeps.
    #[error(
        "{chain}: {whole} of the {must} endpoints that must agree keep what happened from slot {from} on; the next one \
         begins at slot {first}: add an endpoint that keeps more, or begin there"
    )]
    NoHistory { chain: Chain, from: u64, first: u64, whole: usize, must: usize },
    #[error(
        "{chain}: what an account holds cannot be proved: getBalance tells one node's word of now, and no block covers it"
    )]
    NoBalances { chain: Chain },
    #[error("{chain}: an intent for {chain_ref} is none of this chain")]
    OtherChain { chain: Chain, chain_ref: String },
    #[error("{chain}: {error}")]
    NoPayment { chain: Chain, error: PayError },
    #[error(
        "{chain}: whether guard {guard} is there at slot {slot}, and who made it, must be reported alike by {agree} endpoints; {reports}; {missing}"
    )]
    GuardUnreported { chain: Chain, guard: Address, slot: u64, agree: usize, reports: String, missing: String },
}

impl SolanaError {
    /// Whether trying again is useless until a person acts.
    pub fn is_permanent(&self) -> bool {
        match self {
            SolanaError::Rpc(error) => error.is_permanent(),
            SolanaError::NoTime { .. }
            | SolanaError::Unwitnessed { .. }
            | SolanaError::MintUnreported { .. }
            | SolanaError::BlocksDiffer { .. }
            | SolanaError::SlotsDiffer { .. }
            | SolanaError::Unlisted { .. }
            | SolanaError::Outvoted { .. }
            | SolanaError::GuardUnreported { .. } => false,
            SolanaError::NotSolana { .. }
            | SolanaError::WrongChain { .. }
            | SolanaError::UpgradeNeeded { .. }
            | SolanaError::Decimals { .. }
            | SolanaError::Foreign { .. }
            | SolanaError::NotListed { .. }
            | SolanaError::ForeignAddress { .. }
            | SolanaError::NoHistory { .. }
            | SolanaError::NoBalances { .. }
            | SolanaError::OtherChain { .. }
            | SolanaError::NoPayment { .. } => true,
        }
    }
}

impl From<SolanaError> for SourceError {
    fn from(error: SolanaError) -> Self {
        if matches!(error, SolanaError::UpgradeNeeded { .. }) {
            SourceError::upgrade_needed(error)
        } else if matches!(error, SolanaError::BlocksDiffer { .. } | SolanaError::SlotsDiffer { .. }) {
            SourceError::disputed(error)
        } else if matches!(error, SolanaError::Unwitnessed { .. }) {
            SourceError::unwitnessed(error)
        } else if error.is_permanent() {
            SourceError::permanent(error)
        } else {
            SourceError::transient(error)
        }
    }
}

/// An answer that is no block, or no transaction.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unusable {
    #[error("it is null, which says nothing")]
    Null,
    /// Where the text stops making sense; the text itself is not shown.
    #[error("it does not read as {what} (line {line}, column {column})")]
    Json { what: &'static str, line: usize, column: usize },
    #[error("{what} is not 32 bytes in base58")]
    Hash { what: &'static str },
    #[error("slot {slot} says that its parent is slot {parent}")]
    Parent { slot: u64, parent: u64 },
    #[error("transaction {index} has no signature of 64 bytes in base58")]
    Signature { index: usize },
    #[error("transaction {index} stood in the block before, and succeeded both times or was paid for by somebody else")]
    Twice { index: usize },
    #[error("transaction {index} has no meta: the node does not know what became of it")]
    NoMeta { index: usize },
    #[error("transaction {index} has {keys} accounts, but {pre} balances before and {post} after")]
    Balances { index: usize, keys: usize, pre: usize, post: usize },
    #[error("transaction {index} has a token balance of account {account}, twice or without such an account")]
    TokenAccount { index: usize, account: usize },
    #[error("transaction {index} has a token balance that is no whole number below 2^64")]
    Amount { index: usize },
    #[error("transaction {index} does not tell who owns its tokens of mint {mint}, as in blocks of before 2022")]
    Owner { index: usize, mint: String },
    #[error("transaction {index} tells {reported} decimals of mint {mint}, which is listed with {listed}")]
    Decimals { index: usize, mint: String, reported: u8, listed: u8 },
    #[error("transaction {index} names an account that is not 32 bytes in base58")]
    Key { index: usize },
    #[error("it is another transaction than the one that was asked for")]
    OtherTransaction,
    #[error("an instruction names an account that the transaction does not have, or holds data that is not base58")]
    Instruction,
}

impl Unusable {
    pub(crate) fn json(what: &'static str, error: &serde_json::Error) -> Self {
        Unusable::Json { what, line: error.line(), column: error.column() }
    }
}
