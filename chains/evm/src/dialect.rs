//! What the endpoint pool must know of EVM chains: what a poll asks for, what its answer makes final, how bad a
//! failure is for the endpoint, what the codes of EVM nodes mean.
//!
//! Promises: a failed proof and a wrong chain id put an endpoint into quarantine. One endpoint alone never decides
//! that an upgrade is needed, or that the native source is another one. Whether trying again is useless is decided in
//! `error`, not here.

use landfall_chain::{FinalityRule, Tag};
use landfall_rpc::{Codes, Dialect, Fault, Question, Subscription};
use serde::Deserialize;
use tokio::time::Instant;

use crate::error::EvmError;
use crate::headers::BY_NUMBER;
use crate::polygon::Foreseen;
use crate::tip::{Covered, Marks, final_number, read_head};

pub(crate) type Endpoint = landfall_rpc::Endpoint<Evm>;
pub(crate) type Pool = landfall_rpc::Pool<Evm>;
pub(crate) type HeadReport = landfall_rpc::HeadReport<Marks>;

/// One EVM network, as its endpoints are polled.
#[derive(Debug)]
pub(crate) struct Evm {
    pub(crate) chain_id: u64,
    /// That of the network, then those of its tiers.
    rules: Vec<FinalityRule>,
    /// What the rules need.
    pub(crate) tags: Vec<Tag>,
    pub(crate) l1_number: bool,
    pub(crate) foreseen: Foreseen,
}

impl Evm {
    pub(crate) fn new(chain_id: u64, rules: Vec<FinalityRule>) -> Self {
        let (mut tags, mut l1_number) = (Vec::new(), false);
        for rule in &rules {
            if let Some(tag) = rule.tag.filter(|tag| !tags.contains(tag)) {
                tags.push(tag);
            }
            l1_number |= rule.l1_blocks > 0;
        }
        Evm { chain_id, rules, tags, l1_number, foreseen: Foreseen::default() }
    }
}

impl Dialect for Evm {
    type Error = EvmError;
    type Marks = Marks;
    type Memory = Covered;

    /// jsonrpsee's (reth and many L2s) for a batch of too many calls, EIP-4444's for what is no longer kept,
    /// EIP-1474's for "limit exceeded".
    const CODES: &'static Codes = &Codes { batch_too_large: &[-32_010], pruned: &[4_444], limit_exceeded: &[-32_005] };
    /// geth's `--rpc.batch-request-limit`.
    const BATCH_MAX: usize = 1_000;
    const BLOCKS: &'static str = BY_NUMBER;
    const IDENTITY: &'static str = "chain id";
    const SOUND: &'static str = "a proved header and the right chain id";
    const SUBSCRIPTION: Subscription = Subscription {
        request: r#"{"jsonrpc":"2.0","id":1,"method":"eth_subscribe","params":["newHeads"]}"#,
        head: new_head,
    };

    fn fault(error: &EvmError) -> Fault {
        match error {
            EvmError::Rpc(error) => error.fault(),
            EvmError::WrongChain { .. } => Fault::WrongChain,
            EvmError::ProofFailed { .. } => Fault::Unsound,
            EvmError::UpgradeNeeded { block, what, kind, .. } => {
                Fault::TooNew { block: *block, what: format!("{what} of type {kind:#04x}") }
            }
            EvmError::NewHeader { block, field, .. } => Fault::TooNew { block: *block, what: field.clone() },
            EvmError::Unlogged { block, .. } => {
                Fault::TooNew { block: *block, what: "a payment that the chain did not log".to_owned() }
            }
            error if error.is_permanent() => Fault::Permanent,
            _ => Fault::Failing,
        }
    }

    async fn poll(&self, endpoint: &Endpoint, question: &Question) -> Result<HeadReport, EvmError> {
        read_head(self, endpoint, question).await
    }

    fn rules(&self) -> usize {
        self.rules.len()
    }

    fn finals(&self, word: &HeadReport, covered: &mut Covered) -> Vec<Option<u64>> {
        covered.note(&word.marks, Instant::now());
        self.rules.iter().map(|rule| final_number(word, rule, covered)).collect()
    }
}

#[derive(Deserialize)]
struct News<'a> {
    #[serde(borrow)]
    params: Params<'a>,
}

#[derive(Deserialize)]
struct Params<'a> {
    #[serde(borrow)]
    result: Head<'a>,
}

#[derive(Deserialize)]
struct Head<'a> {
    hash: &'a str,
}

/// The hash of the head that a message of `eth_subscribe` reports.
fn new_head(message: &str) -> Option<String> {
    let news: News<'_> = serde_json::from_str(message).ok()?;
    Some(news.params.result.hash.to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use landfall_rpc::Limit;

    use super::*;

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Fixture {
        provider: String,
        code: i64,
        message: String,
        kind: Option<String>,
        value: Option<u64>,
        source: String,
    }

    fn reported(limit: Option<Limit>) -> (Option<&'static str>, Option<u64>) {
        match limit {
            None => (None, None),
            Some(Limit::RangeTooWide { most }) => (Some("range_too_wide"), most),
            Some(Limit::TooManyResults { range }) => (Some("too_many_results"), range),
            Some(Limit::BatchTooLarge { most }) => (Some("batch_too_large"), most),
            Some(Limit::RateLimited { pause }) => (Some("rate_limited"), pause.map(|pause| pause.as_secs())),
            Some(Limit::NotThereYet) => (Some("not_there_yet"), None),
            Some(Limit::Pruned) => (Some("pruned"), None),
            Some(Limit::Unsupported) => (Some("unsupported"), None),
        }
    }

    #[test]
    fn the_words_of_thirty_providers_are_understood() {
        let fixtures: Vec<Fixture> = serde_json::from_str(include_str!("../testdata/limits.json")).unwrap();
        let mut wrong = Vec::new();
        for Fixture { provider, code, message, kind, value, source } in &fixtures {
            assert!(!source.is_empty());
            let reported = reported(Limit::of(*code, message, Evm::CODES));
            if reported != (kind.as_deref(), *value) {
                wrong.push(format!("{provider}: {message:?} ({code}) is {reported:?}, not {:?}", (kind, value)));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        let providers: BTreeSet<&str> = fixtures.iter().map(|fixture| fixture.provider.as_str()).collect();
        assert!(providers.len() >= 30, "{}", providers.len());
    }
}
