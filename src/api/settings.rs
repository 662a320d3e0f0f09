//! What an operator sets for the API: its environment, its host, and its limits.
//!
//! The values are checked where the configuration is read; a rate of 0 means none.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use landfall_chain::{Address, Chain, Network, Signer};

use crate::gas::OverCredit;
use crate::key::Environment;

/// What an operator sets.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Keys of another environment are refused.
    pub environment: Environment,
    /// The audience that signed requests must name.
    pub host: String,
    pub limits: Limits,
    /// The chains that are followed.
    pub networks: Vec<Network>,
    /// Chains that were followed once and are given up for good: what an account has there is not reported.
    pub retired: BTreeSet<Chain>,
    /// The same of tokens of chains that are followed.
    pub retired_tokens: BTreeSet<(Chain, Address)>,
    /// Who holds the keys. With one, transfers are accepted and addresses derived.
    pub signer: Option<Arc<dyn Signer>>,
    /// What happens to a transfer that the gas credit does not cover.
    pub over_credit: OverCredit,
    /// To create a transfer takes a request that a paired key signed.
    pub require_signed_transfers: bool,
}

/// How much is accepted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Of one address (IPv6: of one /64), before its key is checked; twice as many at once. 0: no limit.
    pub ip_requests_per_sec: u32,
    /// Of one key; twice as many at once. 0: no limit.
    pub key_requests_per_sec: u32,
    /// Requests that are answered at the same time; more are refused at once.
    pub concurrent_requests: u32,
    /// For a body to arrive, and then for the request to be answered.
    pub request_timeout: Duration,
    pub body_bytes: usize,
    /// Of the URI and the headers together.
    pub header_bytes: usize,
}

impl Settings {
    /// Those of an environment where nothing was set.
    pub fn of(environment: Environment) -> Self {
        Settings {
            environment,
            host: "127.0.0.1:8080".to_owned(),
            limits: Limits::default(),
            networks: Vec::new(),
            retired: BTreeSet::new(),
            retired_tokens: BTreeSet::new(),
            signer: None,
            over_credit: OverCredit::default(),
            require_signed_transfers: false,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            ip_requests_per_sec: 200,
            key_requests_per_sec: 100,
            concurrent_requests: 512,
            request_timeout: Duration::from_secs(10),
            body_bytes: 1024 * 1024,
            header_bytes: 16 * 1024,
        }
    }
}
