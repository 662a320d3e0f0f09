//! The configuration: one tree, from a TOML file with `${ENV}` expanded in its values.
//!
//! Everything is checked before any socket opens. An error is one line that names the key and never the value of
//! one that may hold a secret. Which networks exist, and what a chain's own facts are, is not known here; which keys
//! a family of chains has, is (`family`).

mod family;
mod nats;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use landfall_chain::{BlockHash, Chain, FinalityRule, NativeSource, Network, ReadProof, RuleName, U256};
use reqwest::header::{HeaderName, HeaderValue};
use serde::{Deserialize, Deserializer};
use url::Url;

use crate::api::{Limits, Settings};
use crate::config::nats::NatsSection;
use crate::delivery::NatsOptions;
use crate::key::Environment;
use crate::store::StoreUrl;
use crate::watcher::Start;

const POLL_MS_MIN: u64 = 20;
const POLL_MS_MAX: u64 = 60_000;
/// Each address costs one light call for each listed asset, at as many endpoints as must agree.
const BALANCES_PER_SEC_DEFAULT: u32 = 20;
const BALANCES_PER_SEC_MAX: u32 = 1_000;
const FAILED_GRACE_SECS_DEFAULT: u64 = 3_600;
const FINALITY_STALL_SECS_MIN: u64 = 60;

/// What an operator sets.
#[derive(Clone, Debug)]
pub struct Config {
    pub store: StoreUrl,
    pub api_listen: SocketAddr,
    pub environment: Environment,
    /// What signed requests name as their audience; `None` leaves it to where the API listens.
    pub api_host: Option<String>,
    pub api_limits: Limits,
    pub admin_listen: SocketAddr,
    /// Where events are published beside the webhooks.
    pub nats: Option<NatsOptions>,
    pub chains: BTreeMap<Chain, ChainConfig>,
}

/// What an operator sets for one chain.
#[derive(Clone, Debug)]
pub struct ChainConfig {
    pub rpc: Vec<RpcConfig>,
    /// How many endpoints must agree on what is final; `None` leaves it to the adapter.
    pub agree: Option<usize>,
    pub start: Start,
    /// How strongly a block is proved before it is connected; `None` leaves it to what the endpoints allow.
    pub proof: Option<ReadProof>,
    /// `None` leaves it to the network's facts, tiers and all.
    pub finality: Option<FinalityRule>,
    pub tiers: Vec<TierConfig>,
    /// `None` leaves each to the network's facts.
    pub native: Option<NativeSource>,
    pub eip7708_from: Option<u64>,
    /// What the endpoints of a cluster of one's own name as its genesis hash; `None` leaves it to the network's facts.
    pub genesis: Option<BlockHash>,
    /// Up to which version transactions are asked for at first.
    pub max_transaction_version: Option<u8>,
    /// `None` leaves it to the network's facts.
    pub wrapped: Option<WrappedName>,
    /// `None` leaves it to the network's block time.
    pub poll_ms: Option<u64>,
    pub failed_grace_secs: u64,
    /// `None` leaves it to the network's rule.
    pub finality_stall_secs: Option<u64>,
    /// Of how many addresses at most the balances are read.
    pub balances_per_sec: u32,
    /// Added to the built-in ones.
    pub assets: Vec<AssetConfig>,
}

/// An endpoint. What is sent along, and parts of the URL, may be secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct RpcConfig {
    pub url: Url,
    pub headers: Vec<(String, String)>,
}

/// What deposits of an asset up to an amount wait for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TierConfig {
    pub symbol: String,
    /// In base units, inclusive.
    pub up_to: U256,
    pub rule: FinalityRule,
}

/// A token to credit beside the built-in ones.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AssetConfig {
    pub symbol: String,
    pub contract: String,
    pub decimals: u8,
    /// The first block in which the contract is this asset.
    #[serde(default)]
    pub from: u64,
    /// The token program of a mint; `None` takes either.
    #[serde(default)]
    pub program: Option<ProgramName>,
}

/// Whether wrapped SOL is a token like others, or SOL.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WrappedName {
    Token,
    Native,
}

/// A program that keeps tokens on Solana.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
pub enum ProgramName {
    #[serde(rename = "spl_token")]
    SplToken,
    #[serde(rename = "token_2022")]
    Token2022,
}

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read config {path}: {error}; --config names another file")]
    File { path: String, error: std::io::Error },
    #[error("config {path}: {what}")]
    Syntax { path: String, what: String },
    #[error("config key {key}: {what}")]
    Key { key: String, what: String },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    store: StoreSection,
    #[serde(default)]
    api: ApiSection,
    #[serde(default)]
    admin: AdminSection,
    #[serde(default)]
    nats: Option<NatsSection>,
    chains: BTreeMap<String, ChainSection>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct StoreSection {
    url: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ApiSection {
    listen: SocketAddr,
    environment: Environment,
    host: Option<String>,
    ip_requests_per_sec: u32,
    key_requests_per_sec: u32,
    concurrent_requests: u32,
    request_timeout_secs: u64,
    body_bytes: usize,
    header_bytes: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct AdminSection {
    listen: SocketAddr,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChainSection {
    rpc: Vec<RpcEntry>,
    #[serde(default)]
    agree: Option<usize>,
    #[serde(default, deserialize_with = "start")]
    start: Option<Start>,
    #[serde(default)]
    proof: Option<String>,
    #[serde(default)]
    native: Option<NativeName>,
    #[serde(default)]
    eip7708_from: Option<u64>,
    #[serde(default)]
    genesis: Option<String>,
    #[serde(default)]
    max_transaction_version: Option<u8>,
    #[serde(default)]
    wrapped: Option<WrappedName>,
    #[serde(default)]
    finality: Option<RuleName>,
    #[serde(default)]
    confirmations: Option<u64>,
    #[serde(default)]
    l1_blocks: Option<u64>,
    #[serde(default)]
    tiers: Vec<TierSection>,
    #[serde(default)]
    poll_ms: Option<u64>,
    #[serde(default)]
    failed_grace_secs: Option<u64>,
    #[serde(default)]
    finality_stall_secs: Option<u64>,
    #[serde(default)]
    balances_per_sec: Option<u32>,
    #[serde(default)]
    assets: Vec<AssetConfig>,
}

/// A URL, or a table with one.
struct RpcEntry {
    url: String,
    headers: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RpcTable {
    url: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TierSection {
    asset: String,
    up_to: String,
    finality: RuleName,
    #[serde(default)]
    confirmations: Option<u64>,
    #[serde(default)]
    l1_blocks: Option<u64>,
}

impl<'de> Deserialize<'de> for RpcEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match toml::Value::deserialize(deserializer)? {
            toml::Value::String(url) => Ok(RpcEntry { url, headers: BTreeMap::new() }),
            toml::Value::Table(table) => {
                let table: RpcTable = table
                    .try_into()
                    .map_err(|error: toml::de::Error| serde::de::Error::custom(without_values(error.message())))?;
                Ok(RpcEntry { url: table.url, headers: table.headers })
            }
            _ => Err(serde::de::Error::custom("expected a URL or a table with url and headers")),
        }
    }
}

impl std::fmt::Debug for RpcConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RpcConfig").field("host", &self.url.host_str()).finish_non_exhaustive()
    }
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum NativeName {
    TopLevel,
    Trace,
    LogTransfer,
}

impl Default for StoreSection {
    fn default() -> Self {
        StoreSection { url: "sqlite:landfall.db".to_owned() }
    }
}

impl Default for ApiSection {
    fn default() -> Self {
        let limits = Limits::default();
        ApiSection {
            listen: (Ipv4Addr::LOCALHOST, 8080).into(),
            environment: Environment::Live,
            host: None,
            ip_requests_per_sec: limits.ip_requests_per_sec,
            key_requests_per_sec: limits.key_requests_per_sec,
            concurrent_requests: limits.concurrent_requests,
            request_timeout_secs: limits.request_timeout.as_secs(),
            body_bytes: limits.body_bytes,
            header_bytes: limits.header_bytes,
        }
    }
}

impl Default for AdminSection {
    fn default() -> Self {
        AdminSection { listen: (Ipv4Addr::LOCALHOST, 8081).into() }
    }
}

impl Config {
    /// Reads a file; `variable` looks up what `${NAME}` stands for.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn load(path: &Path, variable: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| ConfigError::File { path: name.clone(), error })?;
        Config::parse(&name, &text, variable)
    }

    /// As [`Config::load`], of a text.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn parse(name: &str, text: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let mut value = toml::Value::Table(text.parse().map_err(|error| syntax(name, text, &error))?);
        expand(&mut value, "", &variable)?;
        let file: File = serde_path_to_error::deserialize(value).map_err(|error| {
            let what = without_values(error.inner().message());
            match error.path().to_string().as_str() {
                "." => ConfigError::Syntax { path: name.to_owned(), what },
                path => key(path, what),
            }
        })?;
        file.check()
    }
}

impl Config {
    /// What the API is told, when it listens at `listening`.
    pub fn api_settings(&self, listening: SocketAddr, networks: Vec<Network>) -> Settings {
        let host = self.api_host.clone().unwrap_or_else(|| listening.to_string());
        Settings { environment: self.environment, host, limits: self.api_limits.clone(), networks }
    }
}

impl File {
    fn check(self) -> Result<Config, ConfigError> {
        let mut chains = BTreeMap::new();
        for (name, section) in self.chains {
            let chain: Chain = name.parse().map_err(|error| key(&format!("chains.{name}"), error))?;
            chains.insert(chain, section.check(chain, &format!("chains.{name}"))?);
        }
        if chains.is_empty() {
            return Err(key("chains", "no chain is configured; add a section such as [chains.BASE_MAINNET]"));
        }
        if self.api.host.as_deref().is_some_and(|host| host.is_empty() || !host.bytes().all(is_of_host)) {
            return Err(key("api.host", "expected a host name, with a port where it is not the usual one"));
        }
        Ok(Config {
            store: self
                .store
                .url
                .parse()
                .map_err(|_| key("store.url", "expected sqlite:PATH or postgres://USER@HOST/DATABASE"))?,
            api_listen: self.api.listen,
            environment: self.api.environment,
            api_limits: self.api.limits()?,
            api_host: self.api.host,
            admin_listen: self.admin.listen,
            nats: self.nats.map(NatsSection::check).transpose()?,
            chains,
        })
    }
}

impl ApiSection {
    fn limits(&self) -> Result<Limits, ConfigError> {
        let bounds = [
            ("concurrent_requests", u64::from(self.concurrent_requests), 1, 65_536),
            ("request_timeout_secs", self.request_timeout_secs, 1, 300),
            ("body_bytes", u64::try_from(self.body_bytes).unwrap_or(u64::MAX), 1_024, 16 * 1_024 * 1_024),
            ("header_bytes", u64::try_from(self.header_bytes).unwrap_or(u64::MAX), 1_024, 64 * 1_024),
        ];
        if let Some((name, _, least, most)) = bounds.iter().find(|(_, is, least, most)| !(least..=most).contains(&is)) {
            return Err(key(&format!("api.{name}"), format!("expected {least} to {most}")));
        }
        Ok(Limits {
            ip_requests_per_sec: self.ip_requests_per_sec,
            key_requests_per_sec: self.key_requests_per_sec,
            concurrent_requests: self.concurrent_requests,
            request_timeout: Duration::from_secs(self.request_timeout_secs),
            body_bytes: self.body_bytes,
            header_bytes: self.header_bytes,
        })
    }
}

/// What a host and its port are written with.
fn is_of_host(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte)
}

impl ChainSection {
    fn check(self, chain: Chain, at: &str) -> Result<ChainConfig, ConfigError> {
        if let Some((wrong, what)) = family::foreign_key(chain.family(), &self) {
            return Err(key(&format!("{at}.{wrong}"), what));
        }
        if self.rpc.is_empty() {
            return Err(key(&format!("{at}.rpc"), "at least one URL is needed"));
        }
        self.check_times(at)?;
        let rpc = self.rpc.into_iter().enumerate();
        let rpc =
            rpc.map(|(index, entry)| entry.check(&format!("{at}.rpc[{index}]"))).collect::<Result<Vec<_>, _>>()?;
        let readable = rpc.iter().filter(|entry| matches!(entry.url.scheme(), "http" | "https")).count();
        if readable == 0 {
            return Err(key(&format!("{at}.rpc"), "at least one http or https URL is needed; ws and wss only wake up"));
        }
        if self.agree.is_some_and(|agree| !(1..=readable).contains(&agree)) {
            let what = format!("expected 1 to {readable}: so many http or https endpoints are configured");
            return Err(key(&format!("{at}.agree"), what));
        }
        let poll_ms = self.poll_ms.unwrap_or(POLL_MS_MIN);
        if !(POLL_MS_MIN..=POLL_MS_MAX).contains(&poll_ms) {
            return Err(key(&format!("{at}.poll_ms"), "expected 20 to 60000"));
        }
        let balances_per_sec = self.balances_per_sec.unwrap_or(BALANCES_PER_SEC_DEFAULT);
        if !(1..=BALANCES_PER_SEC_MAX).contains(&balances_per_sec) {
            return Err(key(&format!("{at}.balances_per_sec"), "expected 1 to 1000"));
        }
        Ok(ChainConfig {
            rpc,
            start: self.start.unwrap_or(Start::Finalized),
            agree: self.agree,
            proof: proof(at, self.proof.as_deref())?,
            finality: finality(at, self.finality, self.confirmations, self.l1_blocks)?,
            tiers: tiers(at, self.tiers)?,
            native: self.native.map(|name| match name {
                NativeName::TopLevel => NativeSource::TopLevel,
                NativeName::Trace => NativeSource::Trace,
                NativeName::LogTransfer => NativeSource::LogTransfer,
            }),
            eip7708_from: self.eip7708_from,
            genesis: self
                .genesis
                .map(|text| family::genesis(&text).ok_or_else(|| key(&format!("{at}.genesis"), family::GENESIS)))
                .transpose()?,
            max_transaction_version: self.max_transaction_version,
            wrapped: self.wrapped,
            poll_ms: self.poll_ms,
            failed_grace_secs: self.failed_grace_secs.unwrap_or(FAILED_GRACE_SECS_DEFAULT),
            finality_stall_secs: self.finality_stall_secs,
            balances_per_sec,
            assets: self.assets,
        })
    }
}

impl ChainSection {
    fn check_times(&self, at: &str) -> Result<(), ConfigError> {
        if self.failed_grace_secs == Some(0) {
            let what = "expected at least 1: a transaction that is in no block may still be mined";
            return Err(key(&format!("{at}.failed_grace_secs"), what));
        }
        if self.finality_stall_secs.is_some_and(|secs| secs < FINALITY_STALL_SECS_MIN) {
            let what =
                "expected at least 60: blocks take their time to be final; without the key the network's rule tells";
            return Err(key(&format!("{at}.finality_stall_secs"), what));
        }
        Ok(())
    }
}

fn finality(
    at: &str,
    name: Option<RuleName>,
    confirmations: Option<u64>,
    l1_blocks: Option<u64>,
) -> Result<Option<FinalityRule>, ConfigError> {
    match name {
        Some(name) => rule(at, name, confirmations, l1_blocks).map(Some),
        None => match (confirmations, l1_blocks) {
            (None, None) => Ok(None),
            (Some(_), _) => Err(key(&format!("{at}.confirmations"), "counts only together with finality")),
            (None, Some(_)) => Err(key(&format!("{at}.l1_blocks"), "counts only together with finality = \"safe\"")),
        },
    }
}

fn rule(
    at: &str,
    name: RuleName,
    confirmations: Option<u64>,
    l1_blocks: Option<u64>,
) -> Result<FinalityRule, ConfigError> {
    let rule = FinalityRule::of_keys(name, confirmations, l1_blocks);
    rule.map_err(|error| key(&format!("{at}.{}", error.key), error.what))
}

fn tiers(at: &str, sections: Vec<TierSection>) -> Result<Vec<TierConfig>, ConfigError> {
    let mut tiers: Vec<TierConfig> = Vec::new();
    for (index, section) in sections.into_iter().enumerate() {
        let tier = tier(&format!("{at}.tiers[{index}]"), section)?;
        let wrong = |what: String| Err(key(&format!("{at}.tiers[{index}].up_to"), what));
        if tier.up_to == U256::ZERO {
            return wrong("expected at least 1: nothing smaller is a deposit".to_owned());
        }
        let earlier = tiers.iter().filter(|earlier| earlier.symbol == tier.symbol).map(|earlier| earlier.up_to).max();
        if let Some(earlier) = earlier.filter(|earlier| *earlier >= tier.up_to) {
            return wrong(format!(
                "expected more than {earlier}: an earlier tier of {} takes all up to that; write smaller ones first",
                tier.symbol
            ));
        }
        tiers.push(tier);
    }
    Ok(tiers)
}

fn tier(at: &str, section: TierSection) -> Result<TierConfig, ConfigError> {
    let up_to = U256::from_str_radix(&section.up_to, 10).ok().filter(|_| !section.up_to.is_empty());
    let what = "expected a whole number of base units, such as \"1000000\"";
    Ok(TierConfig {
        symbol: section.asset,
        up_to: up_to.ok_or_else(|| key(&format!("{at}.up_to"), what))?,
        rule: rule(at, section.finality, section.confirmations, section.l1_blocks)?,
    })
}

impl RpcEntry {
    fn check(self, at: &str) -> Result<RpcConfig, ConfigError> {
        for (name, value) in &self.headers {
            if HeaderName::from_bytes(name.as_bytes()).is_err() || HeaderValue::from_str(value).is_err() {
                return Err(key(&format!("{at}.headers.{name}"), "no HTTP header can hold this"));
            }
        }
        Ok(RpcConfig { url: rpc_url(at, &self.url)?, headers: self.headers.into_iter().collect() })
    }
}

fn rpc_url(at: &str, text: &str) -> Result<Url, ConfigError> {
    let url = Url::parse(text).map_err(|error| key(at, format!("malformed URL: {error}")))?;
    match url.scheme() {
        "http" | "https" | "ws" | "wss" if url.has_host() => Ok(url),
        other => Err(key(at, format!("scheme {other:?}; expected http, https, ws or wss"))),
    }
}

fn proof(at: &str, name: Option<&str>) -> Result<Option<ReadProof>, ConfigError> {
    match name {
        None => Ok(None),
        Some("receipts") => Ok(Some(ReadProof::Full)),
        Some("logs") => Ok(Some(ReadProof::Listed)),
        Some(name) => Err(key(&format!("{at}.proof"), format!("{name:?}; expected \"receipts\" or \"logs\""))),
    }
}

fn start<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Start>, D::Error> {
    match toml::Value::deserialize(deserializer)? {
        toml::Value::String(text) if text == "finalized" => Ok(Some(Start::Finalized)),
        toml::Value::Integer(number) if number >= 0 => Ok(Some(Start::Number(number.unsigned_abs()))),
        _ => Err(serde::de::Error::custom("expected a block number or \"finalized\"")),
    }
}

/// Replaces every `${NAME}` in the strings below `value`, which stands at key `at`.
fn expand(value: &mut toml::Value, at: &str, variable: &impl Fn(&str) -> Option<String>) -> Result<(), ConfigError> {
    match value {
        toml::Value::String(text) => *text = expanded(text, at, variable)?,
        toml::Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                expand(item, &format!("{at}[{index}]"), variable)?;
            }
        }
        toml::Value::Table(table) => {
            for (name, item) in table.iter_mut() {
                let at = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
                expand(item, &at, variable)?;
            }
        }
        toml::Value::Integer(_) | toml::Value::Float(_) | toml::Value::Boolean(_) | toml::Value::Datetime(_) => {}
    }
    Ok(())
}

fn expanded(text: &str, at: &str, variable: &impl Fn(&str) -> Option<String>) -> Result<String, ConfigError> {
    let mut result = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once("${") {
        let (name, after) = behind.split_once('}').ok_or_else(|| key(at, "\"${\" without \"}\""))?;
        let value = variable(name).ok_or_else(|| key(at, format!("environment variable {name} is not set")))?;
        result.push_str(before);
        result.push_str(&value);
        rest = after;
    }
    result.push_str(rest);
    Ok(result)
}

fn key(key: &str, what: impl ToString) -> ConfigError {
    ConfigError::Key { key: key.to_owned(), what: what.to_string() }
}

/// serde quotes the value it did not expect, which may be a URL with a secret: only what was expected is told.
fn without_values(message: &str) -> String {
    match message.rsplit_once(", expected ") {
        Some((found, expected)) if found.starts_with("invalid ") => {
            let kind = found.trim_start_matches("invalid type: ").trim_start_matches("invalid value: ");
            let kind = kind.split(['"', '`']).next().unwrap_or_default().trim();
            format!("expected {expected}, found {kind}")
        }
        Some(_) | None => message.to_owned(),
    }
}

fn syntax(name: &str, text: &str, error: &toml::de::Error) -> ConfigError {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    ConfigError::Syntax { path: name.to_owned(), what: format!("line {line}: {}", error.message().replace('\n', " ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIER: &str = "[[chains.ETHEREUM_TESTNET.tiers]]\nasset = \"USDC\"\nup_to = \"1000\"\n";
    const CHAIN: &str = "[chains.ETHEREUM_TESTNET]\nrpc = [\"http://127.0.0.1:8545\"]\n";

    fn parse(text: &str) -> Result<Config, String> {
        let variable = |name: &str| (name == "KEY").then(|| "canary".to_owned());
        Config::parse("landfall.toml", text, variable).map_err(|error| error.to_string())
    }

    #[test]
    fn all_keys_but_the_chains_have_defaults() {
        let config = parse(CHAIN).unwrap();
        assert_eq!(config.store.to_string(), "sqlite:landfall.db");
        assert_eq!(config.api_listen.to_string(), "127.0.0.1:8080");
        assert_eq!(config.admin_listen.to_string(), "127.0.0.1:8081");
        assert_eq!(config.environment, Environment::Live);
        let chain = &config.chains[&Chain::EthereumTestnet];
        assert_eq!((chain.start, &chain.finality, chain.failed_grace_secs), (Start::Finalized, &None, 3_600));
        assert_eq!((chain.native, chain.eip7708_from, chain.proof), (None, None, None));
        assert_eq!((chain.genesis, chain.max_transaction_version, chain.wrapped), (None, None, None));
        let limits = Limits {
            ip_requests_per_sec: 200,
            key_requests_per_sec: 100,
            concurrent_requests: 512,
            request_timeout: Duration::from_secs(10),
            body_bytes: 1_048_576,
            header_bytes: 16_384,
        };
        assert_eq!(config.api_settings(config.api_listen, Vec::new()).limits, limits);
    }

    #[test]
    fn every_key_is_read() {
        let config = parse(
            "[store]\nurl = \"postgres://me:pass@db/landfall\"\n[api]\nlisten = \"0.0.0.0:1\"\nenvironment = \"test\"\n\
             host = \"api.example.com\"\nip_requests_per_sec = 1\nkey_requests_per_sec = 2\nconcurrent_requests = 3\n\
             request_timeout_secs = 4\nbody_bytes = 5000\nheader_bytes = 6000\n\
             [admin]\nlisten = \"127.0.0.1:2\"\n[chains.BASE_MAINNET]\nrpc = [\"https://node/${KEY}\", \"wss://other\", \
             { url = \"http://third\", headers = { Authorization = \"Bearer ${KEY}\" } }]\nagree = 2\n\
             start = 100\nproof = \"logs\"\nnative = \"trace\"\neip7708_from = 7\nfinality = \"confirmations\"\nconfirmations = 12\n\
             poll_ms = 250\nfailed_grace_secs = 5\nfinality_stall_secs = 900\nbalances_per_sec = 500\n[[chains.BASE_MAINNET.assets]]\nsymbol = \"EURC\"\ncontract = \"0x1\"\ndecimals = 6\nfrom = 9\n",
        );
        let config = config.unwrap();
        assert_eq!(config.store.to_string(), "postgres://db:5432/landfall");
        let limits = Limits {
            ip_requests_per_sec: 1,
            key_requests_per_sec: 2,
            concurrent_requests: 3,
            request_timeout: Duration::from_secs(4),
            body_bytes: 5_000,
            header_bytes: 6_000,
        };
        let settings = config.api_settings(config.api_listen, Vec::new());
        assert_eq!((settings.host.as_str(), settings.limits), ("api.example.com", limits));
        let chain = &config.chains[&Chain::BaseMainnet];
        assert_eq!((chain.rpc.len(), chain.rpc[0].url.as_str()), (3, "https://node/canary"));
        let header = ("Authorization".to_owned(), "Bearer canary".to_owned());
        assert_eq!((chain.agree, &chain.rpc[2].headers), (Some(2), &vec![header]));
        assert!(!format!("{chain:?}").contains("canary"));
        assert_eq!(chain.proof, Some(ReadProof::Listed));
        assert_eq!((chain.start, &chain.finality), (Start::Number(100), &Some(FinalityRule::confirmations(12))));
        assert_eq!((chain.poll_ms, chain.failed_grace_secs, chain.assets[0].from), (Some(250), 5, 9));
        assert_eq!(chain.balances_per_sec, 500);
        assert_eq!((chain.native, chain.eip7708_from), (Some(NativeSource::Trace), Some(7)));
        assert_eq!(chain.finality_stall_secs, Some(900));
    }

    #[test]
    fn a_rule_of_finality_may_have_several_parts_and_tiers() {
        let keys = "finality = \"safe\"\nconfirmations = 5\nl1_blocks = 12\n";
        let chains =
            parse(&format!("{CHAIN}{keys}{TIER}finality = \"confirmations\"\nconfirmations = 3\n")).unwrap().chains;
        let chain = &chains[&Chain::EthereumTestnet];
        let rule = FinalityRule { confirmations: 5, l1_blocks: 12, ..FinalityRule::SAFE };
        assert_eq!(chain.finality, Some(rule));
        let tier =
            TierConfig { symbol: "USDC".to_owned(), up_to: U256::from(1_000), rule: FinalityRule::confirmations(3) };
        assert_eq!(chain.tiers, [tier]);
    }

    #[test]
    fn times_and_tiers_that_make_no_sense_are_refused_with_the_key_and_what_to_write() {
        let tier = |up_to: &str| format!("{}finality = \"safe\"\n", TIER.replace("1000", up_to));
        let stall =
            "expected at least 60: blocks take their time to be final; without the key the network's rule tells";
        let cases = [
            ("finality_stall_secs = 0".to_owned(), "finality_stall_secs", stall),
            ("finality_stall_secs = 59".to_owned(), "finality_stall_secs", stall),
            (
                "failed_grace_secs = 0".to_owned(),
                "failed_grace_secs",
                "expected at least 1: a transaction that is in no block may still be mined",
            ),
            (tier("0"), "tiers[0].up_to", "expected at least 1: nothing smaller is a deposit"),
            (
                tier("1000") + &tier("10"),
                "tiers[1].up_to",
                "expected more than 1000: an earlier tier of USDC takes all up to that; write smaller ones first",
            ),
            (
                tier("7") + &tier("7"),
                "tiers[1].up_to",
                "expected more than 7: an earlier tier of USDC takes all up to that; write smaller ones first",
            ),
        ];
        for (keys, at, what) in cases {
            let error = parse(&format!("{CHAIN}{keys}\n")).unwrap_err();
            assert_eq!(error, format!("config key chains.ETHEREUM_TESTNET.{at}: {what}"));
        }
        let other = TIER.replace("USDC", "ETH");
        assert!(parse(&format!("{CHAIN}{}{other}finality = \"safe\"\n{}", tier("7"), tier("8"))).is_ok());
    }

    #[test]
    fn bad_input_is_one_line_that_names_the_key() {
        let with = |line: &str| format!("{CHAIN}{line}\n");
        let cases = [
            (
                with("confirmatons = 3"),
                "config key chains.ETHEREUM_TESTNET.confirmatons: unknown field `confirmatons`, expected one of `rpc`, `agree`, `start`, `proof`, `native`, `eip7708_from`, `genesis`, `max_transaction_version`, `wrapped`, `finality`, `confirmations`, `l1_blocks`, `tiers`, `poll_ms`, `failed_grace_secs`, `finality_stall_secs`, `balances_per_sec`, `assets`",
            ),
            (
                with("[stor]"),
                "config key stor: unknown field `stor`, expected one of `store`, `api`, `admin`, `nats`, `chains`",
            ),
            (with("poll_ms = \"fast\""), "config key chains.ETHEREUM_TESTNET.poll_ms: expected u64, found string"),
            (with("poll_ms = 1"), "config key chains.ETHEREUM_TESTNET.poll_ms: expected 20 to 60000"),
            (with("balances_per_sec = 0"), "config key chains.ETHEREUM_TESTNET.balances_per_sec: expected 1 to 1000"),
            (
                with("balances_per_sec = 1001"),
                "config key chains.ETHEREUM_TESTNET.balances_per_sec: expected 1 to 1000",
            ),
            (
                with("start = \"latest\""),
                "config key chains.ETHEREUM_TESTNET.start: expected a block number or \"finalized\"",
            ),
            (
                with("proof = \"headers\""),
                "config key chains.ETHEREUM_TESTNET.proof: \"headers\"; expected \"receipts\" or \"logs\"",
            ),
            (
                with("native = \"logs\""),
                "config key chains.ETHEREUM_TESTNET.native: unknown variant `logs`, expected one of `top_level`, `trace`, `log_transfer`",
            ),
            (
                with("[store]\nurl = \"mysql://x\""),
                "config key store.url: expected sqlite:PATH or postgres://USER@HOST/DATABASE",
            ),
            (with("[store]\nurl = \"${NOPE}\""), "config key store.url: environment variable NOPE is not set"),
            (
                "[chains]".to_owned(),
                "config key chains: no chain is configured; add a section such as [chains.BASE_MAINNET]",
            ),
            (String::new(), "config landfall.toml: missing field `chains`"),
            ("[chains\n".to_owned(), "config landfall.toml: line 1: unclosed table, expected `]`"),
        ];
        for (text, expected) in cases {
            let error = parse(&text).unwrap_err();
            assert_eq!(error, expected);
            assert!(!error.contains("canary"), "{error}");
        }
    }

    #[test]
    fn a_bad_endpoint_or_rule_of_finality_is_one_line_that_names_the_key() {
        let with = |line: &str| format!("{CHAIN}{line}\n");
        let cases = [
            (
                with("finality = \"confirmations\""),
                "config key chains.ETHEREUM_TESTNET.confirmations: finality = \"confirmations\" needs this number",
            ),
            (
                with("finality = \"confirmations\"\nconfirmations = 0"),
                "config key chains.ETHEREUM_TESTNET.confirmations: expected at least 1: the newest block is never final",
            ),
            (
                with("confirmations = 2"),
                "config key chains.ETHEREUM_TESTNET.confirmations: counts only together with finality",
            ),
            (
                with("finality = \"finalized\"\nconfirmations = 0"),
                "config key chains.ETHEREUM_TESTNET.confirmations: expected at least 1: the newest block is never final",
            ),
            (
                with("l1_blocks = 12"),
                "config key chains.ETHEREUM_TESTNET.l1_blocks: counts only together with finality = \"safe\"",
            ),
            (
                with("finality = \"finalized\"\nl1_blocks = 12"),
                "config key chains.ETHEREUM_TESTNET.l1_blocks: counts only together with finality = \"safe\"",
            ),
            (
                with("finality = \"safe\"\nl1_blocks = 0"),
                "config key chains.ETHEREUM_TESTNET.l1_blocks: expected at least 1",
            ),
            (
                with("agree = 2"),
                "config key chains.ETHEREUM_TESTNET.agree: expected 1 to 1: so many http or https endpoints are configured",
            ),
            (
                with("agree = 0"),
                "config key chains.ETHEREUM_TESTNET.agree: expected 1 to 1: so many http or https endpoints are configured",
            ),
            (
                with(&format!("{TIER}finality = \"confirmations\"")),
                "config key chains.ETHEREUM_TESTNET.tiers[0].confirmations: finality = \"confirmations\" needs this number",
            ),
            (
                with(&format!("{TIER}finality = \"safe\"").replace("1000", "10.00")),
                "config key chains.ETHEREUM_TESTNET.tiers[0].up_to: expected a whole number of base units, such as \"1000000\"",
            ),
            (with(TIER), "config key chains.ETHEREUM_TESTNET.tiers[0]: missing field `finality`"),
            (
                "[chains.BASE_MAINNET]\nrpc = [{ url = \"http://a\", headers = { \"a b\" = \"${KEY}\" } }]".to_owned(),
                "config key chains.BASE_MAINNET.rpc[0].headers.a b: no HTTP header can hold this",
            ),
            (
                "[chains.BASE_MAINNET]\nrpc = [{ url = \"http://a\", headers = { X = \"${KEY}\\n\" } }]".to_owned(),
                "config key chains.BASE_MAINNET.rpc[0].headers.X: no HTTP header can hold this",
            ),
            (
                "[chains.BASE_MAINNET]\nrpc = [{ uri = \"http://${KEY}\" }]".to_owned(),
                "config key chains.BASE_MAINNET.rpc[0]: unknown field `uri`, expected `url` or `headers`",
            ),
            (
                "[chains.BASE_MAINNET]\nrpc = [7]".to_owned(),
                "config key chains.BASE_MAINNET.rpc[0]: expected a URL or a table with url and headers",
            ),
            (
                "[chains.ETHEREUM]\nrpc = [\"http://x\"]".to_owned(),
                "config key chains.ETHEREUM: unknown chain \"ETHEREUM\"; the chains are ETHEREUM_MAINNET, POLYGON_MAINNET, ETHEREUM_TESTNET, OPTIMISM_SEPOLIA, BASE_MAINNET, BASE_SEPOLIA, OPTIMISM_MAINNET, POLYGON_AMOY, SOLANA_MAINNET, SOLANA_DEVNET",
            ),
            (
                "[chains.BASE_MAINNET]\nrpc = \"https://node/${KEY}\"".to_owned(),
                "config key chains.BASE_MAINNET.rpc: expected a sequence, found string",
            ),
            (
                "[chains.BASE_MAINNET]\nrpc = [\"node/${KEY}\"]".to_owned(),
                "config key chains.BASE_MAINNET.rpc[0]: malformed URL: relative URL without a base",
            ),
            (
                "[chains.BASE_MAINNET]\nrpc = [\"ftp://node/${KEY}\"]".to_owned(),
                "config key chains.BASE_MAINNET.rpc[0]: scheme \"ftp\"; expected http, https, ws or wss",
            ),
            (
                "[chains.BASE_MAINNET]\nrpc = [\"wss://node/${KEY}\"]".to_owned(),
                "config key chains.BASE_MAINNET.rpc: at least one http or https URL is needed; ws and wss only wake up",
            ),
        ];
        for (text, expected) in cases {
            let error = parse(&text).unwrap_err();
            assert_eq!(error, expected);
            assert!(!error.contains("canary"), "{error}");
        }
    }
}
