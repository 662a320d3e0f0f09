//! Why an answer of a node cannot be used.
//!
//! Each may pass: the same node later, or another one, may answer well. None of them says anything about the chain.
//! Indexes count from 0 within the block; what is quoted of an answer is a key or a number, never a text of the node.

/// An answer that is no block, or no transaction.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unusable {
    #[error("it is null, which says nothing")]
    Null,
    /// Where the text stops making sense; the text itself is not told.
    #[error("it does not read as {what} (line {line}, column {column})")]
    Json { what: &'static str, line: usize, column: usize },
    #[error("{what} is not 32 bytes in base58")]
    Hash { what: &'static str },
    #[error("slot {slot} says that its parent is slot {parent}")]
    Parent { slot: u64, parent: u64 },
    #[error("transaction {index} has no signature of 64 bytes in base58")]
    Signature { index: usize },
    #[error("transaction {index} stands in the block twice")]
    Twice { index: usize },
    #[error("transaction {index} has no meta: the node does not know what became of it")]
    NoMeta { index: usize },
    #[error("transaction {index} has {keys} accounts, but {pre} balances before and {post} after")]
    Balances { index: usize, keys: usize, pre: usize, post: usize },
    #[error("transaction {index} has a token balance of account {account}, twice or without such an account")]
    TokenAccount { index: usize, account: usize },
    #[error("transaction {index} has a token balance that is no whole number below 2^64")]
    Amount { index: usize },
    #[error("transaction {index} does not tell who owns its tokens of mint {mint}")]
    Owner { index: usize, mint: String },
    #[error("transaction {index} tells {told} decimals of mint {mint}, which is listed with {listed}")]
    Decimals { index: usize, mint: String, told: u8, listed: u8 },
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
