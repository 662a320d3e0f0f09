//! The endpoints of one network: which is asked, and what is known of each.
//!
//! Promises: an endpoint is asked for blocks only after it told the network's chain id; one that told another is
//! never asked again. A failure moves the choice to the next endpoint for the next call; nothing is retried.
//! Deliberately simple: heads, latencies and limits of each endpoint are for a later, wiser pool.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use landfall_chain::{Chain, EndpointState, Endpoints, SourceError};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use url::Url;

use crate::error::EvmError;
use crate::hex::Quantity;
use crate::rpc::{Answer, Call, NodeError, Rpc, http_client};

/// One endpoint and its place in the statuses.
pub(crate) struct Endpoint {
    pub(crate) chain: Chain,
    index: usize,
    /// Host and port; `#2` where two share them.
    pub(crate) id: String,
    rpc: Rpc,
    /// What it told as its chain id, once asked.
    served: OnceLock<u64>,
}

/// The endpoints of one network.
#[derive(Debug)]
pub(crate) struct Pool {
    chain: Chain,
    chain_id: u64,
    endpoints: Vec<Endpoint>,
    statuses: Endpoints,
    current: AtomicUsize,
}

impl Pool {
    pub(crate) fn new(chain: Chain, chain_id: u64, urls: &[Url]) -> Result<Self, EvmError> {
        if urls.is_empty() {
            return Err(EvmError::NoUrl { chain });
        }
        // A builder's error cannot hold a URL: it has seen none.
        let http = http_client().map_err(|error| EvmError::Client { chain, reason: error.to_string() })?;
        let mut endpoints: Vec<Endpoint> = Vec::with_capacity(urls.len());
        for (index, url) in urls.iter().enumerate() {
            let host = host(url).map_err(|reason| EvmError::Url { chain, position: index + 1, reason })?;
            let id = unused(host, &endpoints);
            endpoints.push(Endpoint { chain, index, id, rpc: Rpc::new(http.clone(), url), served: OnceLock::new() });
        }
        let statuses = Endpoints::new(endpoints.iter().map(|endpoint| endpoint.id.clone()));
        Ok(Pool { chain, chain_id, endpoints, statuses, current: AtomicUsize::new(0) })
    }

    pub(crate) fn statuses(&self) -> Endpoints {
        self.statuses.clone()
    }

    /// Asks every endpoint for its chain id that has not told it yet. A wrong one weighs more than an unreachable one.
    pub(crate) async fn check(&self) -> Result<(), EvmError> {
        let mut worst = Ok(());
        for endpoint in &self.endpoints {
            match self.verify(endpoint).await {
                Ok(()) => {}
                Err(error) if error.is_permanent() => return Err(error),
                Err(error) => worst = worst.and(Err(error)),
            }
        }
        worst
    }

    /// The endpoint for one call, its chain id verified.
    pub(crate) async fn pick(&self) -> Result<&Endpoint, EvmError> {
        // Each turn that does not return has quarantined one more.
        for _ in 0..self.endpoints.len() {
            let Some(endpoint) = self.usable() else { break };
            match self.verify(endpoint).await {
                Ok(()) => return Ok(endpoint),
                Err(error) if error.is_permanent() => {}
                Err(error) => return Err(error),
            }
        }
        let reasons = self.statuses.snapshot().into_iter().map(|status| status.reason).collect::<Vec<_>>().join("; ");
        Err(EvmError::AllQuarantined { chain: self.chain, reasons })
    }

    /// The endpoints beside `endpoint`, the next one first. Whether they serve this network is still to be verified.
    pub(crate) fn beside(&self, endpoint: &Endpoint) -> impl Iterator<Item = &Endpoint> {
        let count = self.endpoints.len();
        let index = endpoint.index;
        (1..count).filter_map(move |step| self.endpoints.get((index + step) % count))
    }

    /// Records how a call to `endpoint` ended, and hands the result on. `latest` is the newest block it told.
    pub(crate) fn settle<T>(
        &self,
        endpoint: &Endpoint,
        result: Result<T, EvmError>,
        latest: impl FnOnce(&T) -> Option<u64>,
    ) -> Result<T, SourceError> {
        match &result {
            Ok(value) => self.statuses.answered(endpoint.index, latest(value)),
            // The endpoint is not to blame for what this version does not know.
            Err(error) if error.is_permanent() => {}
            Err(error) => self.failed(endpoint, error),
        }
        result.map_err(SourceError::from)
    }

    /// Records that an answer of the endpoint named `id` was found to be a lie, after the call had ended well.
    pub(crate) fn disprove(&self, id: &str, error: &EvmError) {
        if let Some(endpoint) = self.endpoints.iter().find(|endpoint| endpoint.id == id) {
            self.failed(endpoint, error);
        }
    }

    /// Once: that `endpoint` serves this network.
    pub(crate) async fn verify(&self, endpoint: &Endpoint) -> Result<(), EvmError> {
        let served = match endpoint.served.get() {
            Some(served) => *served,
            None => {
                let served = endpoint.chain_id().await.inspect_err(|error| self.failed(endpoint, error))?;
                self.statuses.answered(endpoint.index, None);
                *endpoint.served.get_or_init(|| served)
            }
        };
        if served == self.chain_id {
            return Ok(());
        }
        let id = endpoint.id.clone();
        let error = EvmError::WrongChain { chain: self.chain, endpoint: id, served, expected: self.chain_id };
        self.statuses.failed(endpoint.index, EndpointState::Quarantined, &error.to_string());
        Err(error)
    }

    /// The current endpoint, or the next one behind it that is not of another chain.
    fn usable(&self) -> Option<&Endpoint> {
        let current = self.current.load(Ordering::Relaxed);
        let (before, from) = self.endpoints.split_at_checked(current)?;
        from.iter().chain(before).find(|endpoint| endpoint.served.get().is_none_or(|served| *served == self.chain_id))
    }

    fn failed(&self, endpoint: &Endpoint, error: &EvmError) {
        self.statuses.failed(endpoint.index, EndpointState::Failing, &error.to_string());
        // A call that ends late must not take the choice away from an endpoint that was chosen since.
        if self.usable().is_some_and(|usable| usable.index == endpoint.index) {
            self.current.store((endpoint.index + 1) % self.endpoints.len(), Ordering::Relaxed);
        }
    }
}

impl Endpoint {
    /// Sends all calls in one request; the answers stand in their order.
    pub(crate) async fn ask(&self, calls: &[Call]) -> Result<Vec<Answer>, EvmError> {
        let Some(Call { method, .. }) = calls.first() else { return Ok(Vec::new()) };
        self.rpc.batch(calls).await.map_err(|failure| self.call_error(method, failure.0))
    }

    /// The answers, when the node refused none of the calls.
    pub(crate) async fn ask_all(&self, calls: &[Call]) -> Result<Vec<Box<RawValue>>, EvmError> {
        let answers = self.ask(calls).await?.into_iter().zip(calls);
        answers.map(|(answer, call)| answer.map_err(|error| self.refused(call.method, &error))).collect()
    }

    pub(crate) fn parse<'a, T: Deserialize<'a>>(
        &self,
        method: &'static str,
        answer: &'a RawValue,
    ) -> Result<T, EvmError> {
        serde_json::from_str(answer.get()).map_err(|error| self.unusable(method, &error.to_string()))
    }

    /// The node said no to a call.
    pub(crate) fn refused(&self, method: &'static str, error: &NodeError) -> EvmError {
        self.call_error(method, error.to_string())
    }

    /// The node answered, but not with what was asked for.
    pub(crate) fn unusable(&self, method: &'static str, reason: &str) -> EvmError {
        EvmError::Answer { chain: self.chain, endpoint: self.id.clone(), method, reason: self.rpc.clean(reason) }
    }

    fn call_error(&self, method: &'static str, reason: String) -> EvmError {
        EvmError::Call { chain: self.chain, endpoint: self.id.clone(), method, reason }
    }

    async fn chain_id(&self) -> Result<u64, EvmError> {
        const METHOD: &str = "eth_chainId";
        let answers = self.ask_all(&[Call { method: METHOD, params: json!([]) }]).await?;
        let answer = answers.first().ok_or_else(|| self.unusable(METHOD, "no answer"))?;
        Ok(self.parse::<Quantity>(METHOD, answer)?.0)
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("chain", &self.chain).field("id", &self.id).finish_non_exhaustive()
    }
}

/// Host and port: all of a URL that may be shown.
fn host(url: &Url) -> Result<String, &'static str> {
    if !matches!(url.scheme(), "http" | "https") {
        return Err("is neither http nor https");
    }
    match (url.host_str(), url.port_or_known_default()) {
        (Some(host), Some(port)) => Ok(format!("{host}:{port}")),
        _ => Err("has no host"),
    }
}

/// `host`, or `host#2` and so on where it is taken.
fn unused(host: String, endpoints: &[Endpoint]) -> String {
    let taken = endpoints.iter().filter(|endpoint| endpoint.id.split('#').next() == Some(&host)).count();
    if taken == 0 { host } else { format!("{host}#{}", taken + 1) }
}
