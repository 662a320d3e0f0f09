//! Which software an endpoint runs, as it reports together with the trace.
//!
//! Two programs that share the code that runs transactions share its mistakes, so the engine counts and not the name.
//! Promises: a program that is not in the table counts as no other engine than any. Deliberately not remembered as a
//! fact: backends behind one URL change, so each reading has its own.

use landfall_rpc::{Answer, Call};
use serde_json::json;

use crate::dialect::Endpoint;
use crate::error::EvmError;

const VERSION: &str = "web3_clientVersion";

/// The code that runs transactions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Engine {
    Geth,
    Revm,
    Nethermind,
    Besu,
    Unknown,
}

/// First words of `web3_clientVersion`, up to a slash: "Geth/v1.16.7-stable/linux-amd64/go1.24", "anvil/v1.7.1",
/// "bor/v2.2.9". erigon runs a copy of geth's EVM; reth, op-reth and anvil run revm.
const ENGINES: [(&str, Engine); 9] = [
    ("geth", Engine::Geth),
    ("op-geth", Engine::Geth),
    ("bor", Engine::Geth),
    ("erigon", Engine::Geth),
    ("reth", Engine::Revm),
    ("op-reth", Engine::Revm),
    ("anvil", Engine::Revm),
    ("nethermind", Engine::Nethermind),
    ("besu", Engine::Besu),
];

impl Engine {
    fn of(endpoint: &Endpoint, answer: Option<Answer>) -> Self {
        let reported = answer.and_then(Result::ok);
        let version = reported.as_ref().and_then(|reported| endpoint.parse::<String>(VERSION, reported).ok());
        version.map_or(Engine::Unknown, |version| Engine::named(&version))
    }

    fn named(version: &str) -> Self {
        let name = version.split('/').next().unwrap_or_default().trim().to_ascii_lowercase();
        ENGINES.iter().find(|(known, _)| *known == name).map_or(Engine::Unknown, |(_, engine)| *engine)
    }

    /// Whether a mistake of one is no mistake of the other, as far as we know.
    pub(crate) fn differs_from(self, other: Engine) -> bool {
        self != other && self != Engine::Unknown && other != Engine::Unknown
    }

    /// The engine of several readings that make up one.
    pub(crate) fn and(self, other: Engine) -> Self {
        if self == other { self } else { Engine::Unknown }
    }
}

/// The answers to `calls`, and the engine that gave them. It is asked for in the same request, before all calls that
/// may be too large.
pub(crate) async fn ask_with(endpoint: &Endpoint, calls: Vec<Call>) -> Result<(Engine, Vec<Answer>), EvmError> {
    let with: Vec<Call> = std::iter::once(Call { method: VERSION, params: json!([]) }).chain(calls).collect();
    let mut answers = endpoint.ask_aside(&with).await?;
    let version = (!answers.is_empty()).then(|| answers.remove(0));
    Ok((Engine::of(endpoint, version), answers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_is_known_by_the_first_word_of_its_version() {
        let cases = [
            ("Geth/v1.16.7-stable-b9f3a3d9/linux-amd64/go1.24.9", Engine::Geth),
            ("erigon/3.2.2/linux-amd64/go1.24.1", Engine::Geth),
            ("bor/v2.2.9/linux-amd64/go1.24.6", Engine::Geth),
            ("reth/v1.9.3-27a8c0f/x86_64-unknown-linux-gnu", Engine::Revm),
            ("anvil/v1.7.1", Engine::Revm),
            ("Nethermind/v1.35.2+2d8c7b1e/linux-x64/dotnet9.0.10", Engine::Nethermind),
            ("besu/v25.11.0/linux-x86_64/openjdk-java-21", Engine::Besu),
            ("Geth-like/v1", Engine::Unknown),
            ("", Engine::Unknown),
        ];
        for (version, engine) in cases {
            assert_eq!(Engine::named(version), engine, "{version}");
        }
    }

    #[test]
    fn an_engine_that_is_not_known_differs_from_none() {
        assert!(Engine::Geth.differs_from(Engine::Revm));
        assert!(!Engine::Geth.differs_from(Engine::Geth));
        assert!(!Engine::Geth.differs_from(Engine::Unknown));
        assert!(!Engine::Unknown.differs_from(Engine::Unknown));
    }
}
