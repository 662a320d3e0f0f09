//! What can go wrong with an EVM chain, and whether it may pass.
//!
//! Promises: every error names its chain, and endpoint and block where there are any; transient or permanent is
//! decided in [`EvmError::is_permanent`] and nowhere else; no text holds more of a URL than host and port.

use alloy::primitives::B256;
use landfall_chain::{Address, BlockRef, Chain, SourceError, TxId};
use landfall_rpc::RpcError;

use crate::pay::PayError;

/// A failure of this crate.
#[derive(Clone, Debug, thiserror::Error)]
pub enum EvmError {
    /// A failure that every family knows.
    #[error(transparent)]
    Rpc(#[from] RpcError),
    #[error("{chain} is no EVM chain")]
    NotEvm { chain: Chain },
    #[error("{chain}: chain_ref {chain_ref:?} has not the form eip155:<chain id>")]
    ChainRef { chain: Chain, chain_ref: String },
    #[error(
        "endpoint {endpoint} serves chain id {served}, but {chain} is chain id {expected}; check chains.{chain}.rpc"
    )]
    WrongChain { chain: Chain, endpoint: String, served: u64, expected: u64 },
    #[error(
        "{chain}: its finality counts L1 blocks, which only blocks called safe on the OP stack have behind \
        them; leave chains.{chain}.l1_blocks out"
    )]
    L1Blocks { chain: Chain },
    #[error("{chain}: endpoint {endpoint} gave block {block}, which is not proved: {check}")]
    ProofFailed { chain: Chain, endpoint: String, block: BlockRef, check: Check },
    #[error(
        "{chain}: block {block} holds {what} of type {kind:#04x}, which this version of landfall cannot prove; \
         an upgrade is needed"
    )]
    UpgradeNeeded { chain: Chain, block: BlockRef, what: &'static str, kind: u64 },
    #[error(
        "{chain}: block {block} has the header field {field:?}, which this version of landfall does not know, and its \
         hash does not hold without it; an upgrade is needed"
    )]
    NewHeader { chain: Chain, block: BlockRef, field: String },
    #[error(
        "{chain}: transaction {index} of block {block} pays, but the chain wrote no log of it: this block's native \
         source is another one; check chains.{chain}.native and chains.{chain}.eip7708_from, or upgrade"
    )]
    Unlogged { chain: Chain, block: BlockRef, index: usize },
    #[error("{chain}: native source log_transfer is Polygon's alone; check chains.{chain}.native")]
    NoTransferLogs { chain: Chain },
    #[error(
        "{chain}: {contract} cannot be listed as a token: there the chain itself logs movements of its native \
         currency; check chains.{chain}.assets"
    )]
    NoToken { chain: Chain, contract: Address },
    #[error("{chain}: transaction {tx} is not in block {block}")]
    NotInBlock { chain: Chain, tx: TxId, block: BlockRef },
    /// No two of them report the same: another endpoint, or the block's balances, can show which is right.
    #[error("{chain}: endpoints {endpoints} tell different traces of transaction {tx} in block {block}")]
    TracesDiffer { chain: Chain, endpoints: String, block: BlockRef, tx: B256 },
    #[error(
        "{chain}: no endpoint knows debug_traceBlockByHash or trace_block ({endpoints} asked), so value that moved \
         inside of transactions is not seen; add an endpoint that traces to chains.{chain}.rpc, or declare that it \
         is not seen with chains.{chain}.native = \"top_level\""
    )]
    NoTraces { chain: Chain, endpoints: String },
    #[error(
        "{chain}: what addresses hold at block {block} is told by endpoint {endpoint} alone, and {agree} endpoints must \
         tell it alike; {missing}"
    )]
    HoldingsUnreported { chain: Chain, block: BlockRef, agree: usize, endpoint: String, missing: String },
    #[error(
        "{chain}: no endpoint proves what addresses are at block {block} ({unproved}), and {agree} must report the same: of \
         {reports} reports no {agree} do"
    )]
    AccountsUnproved { chain: Chain, block: BlockRef, agree: usize, reports: usize, unproved: String },
    /// Every endpoint answered that it does not have it.
    #[error("{chain}: the state of block {block} is not served by {endpoints}, and nobody proves it ({unproved})")]
    StateGone { chain: Chain, block: BlockRef, endpoints: String, unproved: String },
    #[error(
        "{chain}: what contract {contract} is must be reported alike by {agree} endpoints; {endpoints} answered; {missing}"
    )]
    ContractUnreported { chain: Chain, contract: Address, agree: usize, endpoints: String, missing: String },
    #[error("{chain}: {what} is not of an EVM chain")]
    Foreign { chain: Chain, what: String },
    #[error("{chain}: an intent for {chain_ref} is for another chain")]
    OtherChain { chain: Chain, chain_ref: String },
    #[error("{chain}: {error}")]
    NoPayment { chain: Chain, error: PayError },
    #[error("{chain}: {what} by block {block} must be reported alike by {agree} endpoints; {reports}; {missing}")]
    Unagreed { chain: Chain, what: &'static str, block: BlockRef, agree: usize, reports: String, missing: String },
}

/// One check of a block's content against its header. Indexes count from 0 within the block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Check {
    #[error(
        "the header does not hash to it; the endpoint lies, or the chain has a header field that this version of \
         landfall does not know"
    )]
    HeaderHash,
    #[error("transaction {0} does not hash to its stated hash")]
    TransactionHash(usize),
    #[error("the transactions do not make up the header's transactionsRoot")]
    TransactionsRoot,
    #[error("{transactions} transactions, but {receipts} receipts")]
    ReceiptCount { transactions: usize, receipts: usize },
    #[error("receipt {0} belongs to another transaction or block")]
    ReceiptPlace(usize),
    #[error("the receipts do not make up the header's receiptsRoot")]
    ReceiptsRoot,
    #[error("the header's logsBloom excludes a log that was shown")]
    Bloom,
    #[error("the withdrawals do not make up the header's withdrawalsRoot")]
    WithdrawalsRoot,
    #[error("transaction {0} was not signed by its stated sender")]
    Signer(usize),
    #[error("the account proof of {0} does not lead from the header's stateRoot to what is claimed")]
    Account(Address),
}

impl EvmError {
    /// Whether trying again is useless until a person acts.
    pub fn is_permanent(&self) -> bool {
        match self {
            EvmError::NotEvm { .. }
            | EvmError::ChainRef { .. }
            | EvmError::WrongChain { .. }
            | EvmError::L1Blocks { .. }
            | EvmError::UpgradeNeeded { .. }
            | EvmError::NewHeader { .. }
            | EvmError::Unlogged { .. }
            | EvmError::NoTransferLogs { .. }
            | EvmError::NoToken { .. }
            | EvmError::NotInBlock { .. }
            | EvmError::NoTraces { .. }
            | EvmError::Foreign { .. }
            | EvmError::OtherChain { .. }
            | EvmError::NoPayment { .. } => true,
            EvmError::Rpc(error) => error.is_permanent(),
            EvmError::ProofFailed { .. }
            | EvmError::TracesDiffer { .. }
            | EvmError::HoldingsUnreported { .. }
            | EvmError::AccountsUnproved { .. }
            | EvmError::StateGone { .. }
            | EvmError::ContractUnreported { .. }
            | EvmError::Unagreed { .. } => false,
        }
    }
}

impl From<EvmError> for SourceError {
    fn from(error: EvmError) -> Self {
        if matches!(error, EvmError::UpgradeNeeded { .. } | EvmError::NewHeader { .. }) {
            SourceError::upgrade_needed(error)
        } else if matches!(error, EvmError::TracesDiffer { .. }) {
            SourceError::disputed(error)
        } else if matches!(error, EvmError::StateGone { .. }) {
            SourceError::state_gone(error)
        } else if error.is_permanent() {
            SourceError::permanent(error)
        } else {
            SourceError::transient(error)
        }
    }
}
