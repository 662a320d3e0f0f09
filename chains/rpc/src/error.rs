//! What can go wrong with endpoints, whatever family their chain is of, and whether it may pass.
//!
//! Promises: every error names its chain, and the endpoint where there is one. No text holds more of a URL than host
//! and port. A fault in what endpoints report (proofs, types) is the family's own error.

use landfall_chain::{BlockRef, Chain};

use crate::dialect::Fault;

/// A failure that every family knows.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RpcError {
    #[error("{chain}: no endpoint is configured; set chains.{chain}.rpc")]
    NoUrl { chain: Chain },
    /// `position` counts from 1, as people do. The URL itself is not shown: it may hold secrets.
    #[error("{chain}: rpc url {position} {reason}; check chains.{chain}.rpc")]
    Url { chain: Chain, position: usize, reason: &'static str },
    #[error("{chain}: rpc url {position} has a header that cannot be sent; check chains.{chain}.rpc")]
    Header { chain: Chain, position: usize },
    #[error("{chain}: the HTTP client cannot be built: {reason}")]
    Client { chain: Chain, reason: String },
    #[error("{chain}: {agree} endpoints must agree, but {endpoints} are configured; check chains.{chain}.agree")]
    Agree { chain: Chain, agree: usize, endpoints: usize },
    /// The reasons of all of them, as their statuses give them. Permanent when each serves another chain.
    #[error("{reasons}")]
    NoEndpoint { chain: Chain, reasons: String, permanent: bool },
    /// It lags, or it was set back, or what was final was replaced: this alone does not show which.
    #[error("{chain}: the newest block of endpoint {endpoint} is {latest}, but block {agreed} was agreed to be final")]
    BelowFinal { chain: Chain, endpoint: String, latest: BlockRef, agreed: BlockRef },
    #[error("{chain}: endpoint {endpoint} shows {says} as final, but others agree on {agreed}")]
    Contradicts { chain: Chain, endpoint: String, says: BlockRef, agreed: BlockRef },
    #[error("{chain}: endpoint {endpoint} failed {method}: {reason}")]
    Call { chain: Chain, endpoint: String, method: &'static str, reason: String },
    #[error("{chain}: endpoint {endpoint} gave an unusable answer to {method}: {reason}")]
    Answer { chain: Chain, endpoint: String, method: &'static str, reason: String },
    /// Another one may have it and is asked instead; the state of this one stays as it was.
    #[error("{chain}: endpoint {endpoint} {what}")]
    Lacks { chain: Chain, endpoint: String, what: String },
}

impl RpcError {
    /// What it says of the endpoint that was asked.
    pub fn fault(&self) -> Fault {
        match self {
            RpcError::NoUrl { .. }
            | RpcError::Url { .. }
            | RpcError::Header { .. }
            | RpcError::Client { .. }
            | RpcError::Agree { .. } => Fault::Permanent,
            RpcError::NoEndpoint { permanent: true, .. } => Fault::Permanent,
            RpcError::Contradicts { .. } => Fault::Unsound,
            RpcError::Lacks { .. } => Fault::NotFound,
            RpcError::NoEndpoint { permanent: false, .. }
            | RpcError::BelowFinal { .. }
            | RpcError::Call { .. }
            | RpcError::Answer { .. } => Fault::Failing,
        }
    }

    /// Whether trying again is useless until a person acts.
    pub fn is_permanent(&self) -> bool {
        self.fault() == Fault::Permanent
    }
}
