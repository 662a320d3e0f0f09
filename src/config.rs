//! The configuration: one tree, from a TOML file with `${ENV}` expanded in its values.
//!
//! Everything is checked before any socket opens. An error is one line that names the key, and never the value of a key
//! that may hold a secret. It does not know which networks exist nor what their facts are. It does know which keys a
//! family of chains has (`family`).

mod chain;
mod family;
mod nats;
mod prices;
mod token;
mod transfers;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU64;
use std::path::Path;
use std::time::Duration;

use landfall_chain::{Asset, Chain, Network, Route};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use url::Url;

use crate::api::{Limits, Settings};
use crate::config::chain::ChainSection;
use crate::config::nats::NatsSection;
use crate::config::token::TokenSection;
use crate::config::transfers::TransfersSection;
use crate::delivery::NatsOptions;
use crate::gas::OverCredit;
use crate::key::Environment;
use crate::prices::PriceFeed;
use crate::secrets::{WRITTEN, is_doubtful};
use crate::store::StoreUrl;

pub use chain::{
    AssetConfig, CapConfig, ChainConfig, DomainConfig, ProgramName, RpcConfig, SendingConfig, TierConfig, WrappedName,
    agreeing,
};
pub use token::TokenConfig;
pub use transfers::{Delegation, KeystoreConfig, SignerConfig};

/// With all other files of the process this stays below 1024, the usual limit of file descriptors.
const CONNECTIONS_DEFAULT: usize = 800;

/// What an operator sets.
#[derive(Clone, Debug)]
pub struct Config {
    pub store: StoreUrl,
    pub api_listen: SocketAddr,
    pub environment: Environment,
    /// The audience that signed requests must name; `None` takes the address at which the API listens.
    pub api_host: Option<String>,
    pub api_limits: Limits,
    /// How many connections may be open at the same time.
    pub api_connections: usize,
    /// How many of these from one address.
    pub api_ip_connections: usize,
    pub admin_listen: SocketAddr,
    /// A name under which the admin routes are served, beside addresses and `localhost`.
    pub admin_host: Option<String>,
    /// Where events are published beside the webhooks.
    pub nats: Option<NatsOptions>,
    /// Who holds the keys; without it nothing is sent.
    pub signer: Option<SignerConfig>,
    /// What has the keys of sponsors in place of the keystore that this process opens.
    pub token: Option<TokenConfig>,
    pub delegation: Delegation,
    /// What happens to a transfer that the gas credit does not cover.
    pub over_credit: OverCredit,
    /// To create a transfer takes a request that a paired key signed.
    pub require_signed_requests: bool,
    /// A payment of native currency to its recipient may take so much gas; `None`: as is usual.
    pub recipient_gas_max: Option<NonZeroU64>,
    /// Where prices of native currencies are read; without it a person sets them.
    pub prices: Option<PriceFeed>,
    pub chains: BTreeMap<Chain, ChainConfig>,
    /// Chains that were followed once and are given up for good.
    pub retired: BTreeSet<Chain>,
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

/// The configuration has no section for this chain.
#[derive(Debug, thiserror::Error)]
#[error("{0} is not configured; add a section [chains.{0}]")]
pub struct NotConfigured(Chain);

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
    #[serde(default)]
    transfers: Option<TransfersSection>,
    #[serde(default)]
    pkcs11: Option<TokenSection>,
    #[serde(default)]
    retired: Vec<String>,
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
    #[serde(deserialize_with = "socket")]
    listen: SocketAddr,
    environment: Environment,
    host: Option<String>,
    ip_requests_per_sec: u32,
    key_requests_per_sec: u32,
    concurrent_requests: u32,
    connections: usize,
    ip_connections: Option<usize>,
    request_timeout_secs: u64,
    body_bytes: usize,
    header_bytes: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct AdminSection {
    #[serde(deserialize_with = "socket")]
    listen: SocketAddr,
    host: Option<String>,
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
            connections: CONNECTIONS_DEFAULT,
            ip_connections: None,
            request_timeout_secs: limits.request_timeout.as_secs(),
            body_bytes: limits.body_bytes,
            header_bytes: limits.header_bytes,
        }
    }
}

impl Default for AdminSection {
    fn default() -> Self {
        AdminSection { listen: (Ipv4Addr::LOCALHOST, 8081).into(), host: None }
    }
}

impl Config {
    /// Reads a file; `variable` gives the value of `${NAME}`.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn load(path: &Path, variable: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| ConfigError::File { path: name.clone(), error })?;
        Config::parse(&name, &text, variable)
    }

    /// As [`Config::load`], for a text. `name` is the name of its file; relative paths start in the file's folder.
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
        file.check(Path::new(name).parent().unwrap_or(Path::new("")))
    }
}

impl Config {
    /// What is set for `chain`.
    ///
    /// # Errors
    /// When it has no section.
    pub fn chain(&self, chain: Chain) -> Result<&ChainConfig, NotConfigured> {
        self.chains.get(&chain).ok_or(NotConfigured(chain))
    }

    /// The settings of the API, if it listens at `listening`. Whoever opens the signer adds it.
    pub fn api_settings(&self, listening: SocketAddr, mut networks: Vec<Network>) -> Settings {
        self.restrict(&mut networks);
        let host = self.api_host.clone().unwrap_or_else(|| listening.to_string());
        let (limits, retired) = (self.api_limits.clone(), self.retired.clone());
        let tokens = self.chains.iter().flat_map(|(chain, config)| config.retired.iter().map(|token| (*chain, *token)));
        let retired_tokens = tokens.collect();
        let (over_credit, require_signed_transfers) = (self.over_credit, self.require_signed_requests);
        let settings = Settings::of(self.environment);
        Settings { host, limits, networks, retired, retired_tokens, over_credit, require_signed_transfers, ..settings }
    }

    /// Takes the routes out of what is not accepted any more. What was accepted before is carried to its end.
    pub fn restrict(&self, networks: &mut [Network]) {
        if self.delegation == Delegation::Never {
            for asset in networks.iter_mut().flat_map(|network| &mut network.assets) {
                asset.route.take_if(|route| matches!(route, Route::Delegate(_)));
            }
        }
        for network in networks {
            let refused = self.chains.get(&network.chain).map(|config| &config.transfers.refuse);
            let is_refused = |asset: &&mut Asset| refused.is_some_and(|refused| refused.contains(&asset.symbol));
            network.assets.iter_mut().filter(is_refused).for_each(|asset| asset.route = None);
        }
    }
}

impl File {
    fn check(self, folder: &Path) -> Result<Config, ConfigError> {
        let mut chains = BTreeMap::new();
        for (name, section) in self.chains {
            let chain: Chain = name.parse().map_err(|error| key(&format!("chains.{name}"), error))?;
            chains.insert(chain, section.check(chain, &format!("chains.{name}"))?);
        }
        if chains.is_empty() {
            return Err(key("chains", "no chain is configured; add a section such as [chains.BASE_MAINNET]"));
        }
        let mut retired = BTreeSet::new();
        for (index, name) in self.retired.iter().enumerate() {
            let at = format!("retired[{index}]");
            let chain: Chain = name.parse().map_err(|error| key(&at, error))?;
            if chains.contains_key(&chain) {
                return Err(key(&at, format!("{chain} is followed; take its section or this entry out")));
            }
            retired.insert(chain);
        }
        for (at, host) in [("api.host", &self.api.host), ("admin.host", &self.admin.host)] {
            if host.as_deref().is_some_and(|host| host.is_empty() || !host.bytes().all(is_of_host)) {
                return Err(key(at, "expected a host name, with a port where it is not the usual one"));
            }
        }
        let (store, environment) = (store(&self.store.url, folder)?, self.api.environment);
        let delegation = self.transfers.as_ref().map(|section| section.delegation).unwrap_or_default();
        let over_credit = self.transfers.as_ref().map(|section| section.over_credit).unwrap_or_default();
        let require_signed_requests = self.transfers.as_ref().is_some_and(|section| section.require_signed_requests);
        let recipient_gas_max = self.transfers.as_ref().and_then(|section| section.recipient_gas_max);
        if let Some(hours) = self.transfers.as_ref().map(TransfersSection::guard_retention_hours).transpose()?.flatten()
        {
            chains.values_mut().for_each(|chain| chain.transfers.guard_retention_hours = Some(hours));
        }
        let (signer, prices) = match self.transfers {
            Some(section) => {
                let (signer, prices) = section.check(folder, &store, environment)?;
                (Some(signer), prices)
            }
            None => (None, None),
        };
        let token = self.pkcs11.map(|section| section.check(folder, signer.as_ref())).transpose()?;
        Ok(Config {
            store,
            api_listen: self.api.listen,
            environment,
            api_limits: self.api.limits()?,
            api_connections: self.api.connections,
            api_ip_connections: self.api.ip_connections(),
            api_host: self.api.host,
            admin_listen: self.admin.listen,
            admin_host: self.admin.host,
            nats: self.nats.map(|nats| nats.check(folder)).transpose()?,
            signer,
            token,
            delegation,
            over_credit,
            require_signed_requests,
            recipient_gas_max,
            prices,
            chains,
            retired,
        })
    }
}

/// A relative path starts in the configuration's folder, wherever a command is run. Otherwise each folder would have a
/// store of its own.
fn store(text: &str, folder: &Path) -> Result<StoreUrl, ConfigError> {
    match text.parse() {
        Ok(StoreUrl::Sqlite(path)) => Ok(StoreUrl::Sqlite(folder.join(path))),
        Ok(url) => Ok(url),
        Err(error) => Err(key("store.url", error.to_string().trim_start_matches("store.url: "))),
    }
}

impl ApiSection {
    /// A quarter unless it is set; 0 sets no limit.
    fn ip_connections(&self) -> usize {
        match self.ip_connections {
            None => (self.connections / 4).max(1),
            Some(0) => self.connections,
            Some(most) => most,
        }
    }

    fn limits(&self) -> Result<Limits, ConfigError> {
        let bounds = [
            ("concurrent_requests", u64::from(self.concurrent_requests), 1, 65_536),
            ("connections", u64::try_from(self.connections).unwrap_or(u64::MAX), 1, 65_536),
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

/// The characters of a host and its port.
fn is_of_host(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte)
}

/// An address and a port. A wrong value is shown only if it can be no secret that was put here by mistake.
fn socket<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(|_| {
        let found =
            if text.len() <= 64 && text.bytes().all(is_of_host) { format!(", found {text:?}") } else { String::new() };
        D::Error::custom(format!("expected an IP address and a port such as 127.0.0.1:8080{found}"))
    })
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
        let named = behind.split_once('}').filter(|(name, _)| is_variable(name));
        // The rest of the value may be part of a password.
        let what = "\"${\" without the name of an environment variable and \"}\"";
        let (name, after) = named.ok_or_else(|| key(at, what))?;
        let value = variable(name).ok_or_else(|| key(at, format!("environment variable {name} is not set")))?;
        result.push_str(before);
        result.push_str(&value);
        rest = after;
    }
    result.push_str(rest);
    Ok(result)
}

fn is_variable(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// The name of a key is shown only if it has the form of one: a URL, or a header with its value, may stand in its
/// place.
fn key(key: &str, what: impl ToString) -> ConfigError {
    let is_of_key = |c: char| c.is_ascii_alphanumeric() || "_-.[]".contains(c);
    let key = key.find(|c| !is_of_key(c)).map_or(key, |end| &key[..end]);
    ConfigError::Key { key: key.to_owned(), what: what.to_string() }
}

/// serde quotes the value that it did not expect, and the field that it does not know. Either may be a URL with a
/// secret, so only the expectation is reported.
fn without_values(message: &str) -> String {
    match message.rsplit_once(", expected ") {
        Some((found, expected)) if found.starts_with("invalid ") => {
            let kind = found.trim_start_matches("invalid type: ").trim_start_matches("invalid value: ");
            let kind = kind.split(['"', '`']).next().unwrap_or_default().trim();
            format!("expected {expected}, found {kind}")
        }
        Some((found, expected)) if found.starts_with("unknown field `") && !is_plain(found) => {
            format!("unknown field, expected {expected}")
        }
        Some(_) | None => message.to_owned(),
    }
}

/// Whether the text between backticks has the form of a key's name.
fn is_plain(text: &str) -> bool {
    let quoted = text.split('`').nth(1).unwrap_or_default();
    quoted.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}

/// Reads a URL whose host is certain. All else in it may be secret and is not reported. `form` says how to write it.
fn url(at: &str, text: &str, form: &str) -> Result<Url, ConfigError> {
    if is_doubtful(text) {
        return Err(key(at, format!("the URL cannot be taken apart: expected {form}, {WRITTEN}")));
    }
    Url::parse(text).map_err(|error| key(at, format!("malformed URL: {error}")))
}

fn syntax(name: &str, text: &str, error: &toml::de::Error) -> ConfigError {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    ConfigError::Syntax { path: name.to_owned(), what: format!("line {line}: {}", error.message().replace('\n', " ")) }
}

#[cfg(test)]
mod tests {
    use landfall_chain::{Address, Family, FinalityRule, NativeSource, ReadProof, U256};

    use super::*;
    use crate::gas::Usd;
    use crate::watcher::Start;

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
        let elsewhere = Config::parse("/etc/landfall/a.toml", CHAIN, |_| None).unwrap();
        assert_eq!(elsewhere.store.to_string(), "sqlite:/etc/landfall/landfall.db");
        let absolute = format!("[store]\nurl = \"sqlite:/var/lib/a.db\"\n{CHAIN}");
        let absolute = Config::parse("/etc/landfall/a.toml", &absolute, |_| None).unwrap();
        assert_eq!(absolute.store.to_string(), "sqlite:/var/lib/a.db");
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
        assert_eq!((config.api_connections, config.api_ip_connections), (800, 200));
    }

    #[test]
    fn every_key_is_read() {
        let config = parse(
            "retired = [\"OPTIMISM_MAINNET\"]\n[store]\nurl = \"postgres://me:pass@db/landfall?sslmode=require\"\n[api]\nlisten = \"0.0.0.0:1\"\nenvironment = \"test\"\n\
             host = \"api.example.com\"\nip_requests_per_sec = 1\nkey_requests_per_sec = 2\nconcurrent_requests = 3\nconnections = 9\nip_connections = 7\n\
             request_timeout_secs = 4\nbody_bytes = 5000\nheader_bytes = 6000\n\
             [admin]\nlisten = \"127.0.0.1:2\"\nhost = \"ops.example.com\"\n[chains.BASE_MAINNET]\nrpc = [\"https://node/${KEY}\", \"wss://other\", \
             { url = \"http://third\", headers = { Authorization = \"Bearer ${KEY}\" } }]\nagree = 2\n\
             start = 100\nproof = \"logs\"\nnative = \"trace\"\neip7708_from = 7\nfinality = \"confirmations\"\nconfirmations = 12\n\
             poll_ms = 250\nfailed_grace_secs = 5\nfinality_stall_secs = 900\nblock_stall_secs = 0\nbalances_per_sec = 500\n\
             retired = [\"0x1c7D4B196Cb0C7B01d743Fbc6116a902379C7238\"]\n[[chains.BASE_MAINNET.assets]]\nsymbol = \"EURC\"\ncontract = \"0x1\"\ndecimals = 6\nfrom = 9\n",
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
        assert_eq!(settings.retired, BTreeSet::from([Chain::OptimismMainnet]));
        let token = Address::parse(Family::Evm, "0x1c7D4B196Cb0C7B01d743Fbc6116a902379C7238").unwrap();
        assert_eq!(settings.retired_tokens, BTreeSet::from([(Chain::BaseMainnet, token)]));
        assert_eq!((config.api_connections, config.api_ip_connections), (9, 7));
        assert_eq!(config.admin_host.as_deref(), Some("ops.example.com"));
        let chain = &config.chains[&Chain::BaseMainnet];
        assert_eq!((chain.rpc.len(), chain.rpc[0].url.as_str()), (3, "https://node/canary"));
        let header = ("Authorization".to_owned(), "Bearer canary".to_owned());
        assert_eq!((chain.agree, &chain.rpc[2].headers), (Some(2), &vec![header]));
        assert!(!format!("{chain:?}").contains("canary"));
        assert_eq!(chain.proof, Some(ReadProof::Candidate));
        assert_eq!((chain.start, &chain.finality), (Start::Number(100), &Some(FinalityRule::confirmations(12))));
        assert_eq!((chain.poll_ms, chain.failed_grace_secs, chain.assets[0].from), (Some(250), 5, 9));
        assert_eq!(chain.balances_per_sec, Some(500));
        assert_eq!((chain.native, chain.eip7708_from), (Some(NativeSource::Trace), Some(7)));
        assert_eq!((chain.finality_stall_secs, chain.block_stall_secs), (Some(900), Some(0)));
    }

    #[test]
    fn an_address_has_a_quarter_of_the_connections_unless_it_is_set_and_with_0_all_of_them() {
        for (keys, expected) in [
            ("connections = 3", 1),
            ("connections = 9", 2),
            ("connections = 9\nip_connections = 0", 9),
            ("ip_connections = 1000", 1_000),
        ] {
            let config = parse(&format!("[api]\n{keys}\n{CHAIN}")).unwrap();
            assert_eq!(config.api_ip_connections, expected, "{keys}");
        }
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
    fn what_is_changed_of_sending_is_read_and_what_cannot_be_is_refused() {
        let keys = "[chains.ETHEREUM_TESTNET.transfers]\nrefuse = [\"ETH\"]\nin_flight = 4\nmax_fee_gwei = 50\nmax_cost_usd = \"2.5\"\n\
                    bump_after_blocks = 2\nfloor = \"0.05\"\nrefill_to = \"0.2\"\n";
        let config = parse(&format!("{CHAIN}{keys}")).unwrap();
        let transfers = &config.chain(Chain::EthereumTestnet).unwrap().transfers;
        assert_eq!((transfers.in_flight, transfers.max_fee), (Some(4), Some(50_000_000_000)));
        assert_eq!(transfers.max_cost, Some(Usd(2_500_000)));
        assert_eq!((transfers.raise_after_blocks, transfers.floor.as_deref()), (Some(2), Some("0.05")));
        assert_eq!(transfers.refuse, ["ETH"]);
        assert_eq!(transfers.refill_to.as_deref(), Some("0.2"));
        for (key, what) in [
            ("in_flight = 17", "in_flight: expected 1 to 16"),
            ("in_flight = 0", "in_flight: expected 1 to 16"),
            ("max_fee_gwei = 0", "max_fee_gwei: expected at least 1"),
            ("max_cost_usd = \"0\"", "max_cost_usd: expected an amount of USD above 0"),
            ("max_cost_usd = \"-1\"", "max_cost_usd: expected an amount of USD above 0"),
            ("max_cost_usd = \"0.0000001\"", "max_cost_usd: expected an amount of USD above 0"),
            ("max_cost_usd = \"1e3\"", "max_cost_usd: expected an amount of USD above 0"),
            ("bump_after_blocks = 0", "bump_after_blocks: expected at least 1"),
        ] {
            let error = parse(&format!("{CHAIN}[chains.ETHEREUM_TESTNET.transfers]\n{key}\n")).unwrap_err();
            assert!(error.contains(&format!("config key chains.ETHEREUM_TESTNET.transfers.{what}")), "{error}");
        }
        let of_solana =
            |key| format!("[chains.SOLANA_DEVNET]\nrpc = [\"http://a\"]\n[chains.SOLANA_DEVNET.transfers]\n{key}\n");
        assert!(parse(&of_solana("floor = \"0.5\"\nrefill_to = \"2\"")).is_ok());
        for key in ["in_flight = 4", "max_fee_gwei = 50", "max_cost_usd = \"1\"", "bump_after_blocks = 2"] {
            let error = parse(&of_solana(key)).unwrap_err();
            let name = key.split(' ').next().unwrap();
            assert!(error.contains(&format!("chains.SOLANA_DEVNET.transfers.{name}: ")), "{error}");
        }
    }

    #[test]
    fn times_and_tiers_that_make_no_sense_are_refused_with_the_key_and_what_to_write() {
        let tier = |up_to: &str| format!("{}finality = \"safe\"\n", TIER.replace("1000", up_to));
        let stall =
            "expected at least 60: blocks take their time to be final; without the key the network's rule decides";
        let cases = [
            ("finality_stall_secs = 0".to_owned(), "finality_stall_secs", stall),
            ("finality_stall_secs = 59".to_owned(), "finality_stall_secs", stall),
            (
                "block_stall_secs = 59".to_owned(),
                "block_stall_secs",
                "expected at least 60, or 0 for a chain whose blocks come on demand; without the key the network's block time decides",
            ),
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
                "config key chains.ETHEREUM_TESTNET.confirmatons: unknown field `confirmatons`, expected one of `rpc`, `agree`, `start`, `proof`, `native`, `eip7708_from`, `genesis`, `max_transaction_version`, `wrapped`, `own_delegate`, `finality`, `confirmations`, `l1_blocks`, `tiers`, `poll_ms`, `failed_grace_secs`, `finality_stall_secs`, `block_stall_secs`, `balances_per_sec`, `assets`, `retired`, `transfers`",
            ),
            (
                with("[stor]"),
                "config key stor: unknown field `stor`, expected one of `store`, `api`, `admin`, `nats`, `transfers`, `pkcs11`, `retired`, `chains`",
            ),
            (
                format!("retired = [\"POLYGON_MAINNET\", \"ETHEREUM_TESTNET\"]\n{CHAIN}"),
                "config key retired[1]: ETHEREUM_TESTNET is followed; take its section or this entry out",
            ),
            (
                with("retired = [\"0x1\"]"),
                "config key chains.ETHEREUM_TESTNET.retired[0]: malformed EVM address \"0x1\": expected 0x and 40 hexadecimal digits",
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
                "config key chains.ETHEREUM_TESTNET.proof: unknown proof \"headers\"; expected receipts or logs",
            ),
            (
                with("native = \"logs\""),
                "config key chains.ETHEREUM_TESTNET.native: unknown variant `logs`, expected one of `top_level`, `trace`, `log_transfer`",
            ),
            (
                with("[store]\nurl = \"mysql://x\""),
                "config key store.url: expected sqlite:PATH or postgres://USER@HOST/DATABASE",
            ),
            (
                with("[store]\nurl = \"postgres://me:12/${KEY}@db/landfall\""),
                "config key store.url: the URL cannot be taken apart: expected postgres://USER:PASSWORD@HOST/DATABASE, where @ : / ? # % in a \
                 name, a password or a value are written %40 %3A %2F %3F %23 %25 (percent-encoded)",
            ),
            (
                with("[store]\nurl = postgres://me:canary@db/landfall"),
                "config landfall.toml: line 4: string values must be quoted, expected literal string",
            ),
            (
                with("[store]\n\"postgres://me:canary@db\" = 1"),
                "config key store.postgres: unknown field, expected `url`",
            ),
            (
                with("[store]\nurl = \"postgres://me:a${canary b}@db/x\""),
                "config key store.url: \"${\" without the name of an environment variable and \"}\"",
            ),
            (
                with("[store]\nurl = \"postgres://me:canary@db/landfall\""),
                "config key store.url: db is another machine, and the URL does not say whether to encrypt: write ?sslmode=verify-full \
                 (with &sslrootcert=FILE where the certificate is of your own), or ?sslmode=disable on a network of your own",
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
                with("[api]\nlisten = \"localhost:8080\""),
                "config key api.listen: expected an IP address and a port such as 127.0.0.1:8080, found \"localhost:8080\"",
            ),
            (
                with("[admin]\nlisten = \"https://user:pass@host\""),
                "config key admin.listen: expected an IP address and a port such as 127.0.0.1:8080",
            ),
            (
                with("agree = 2"),
                "config key chains.ETHEREUM_TESTNET.agree: expected 1, for one endpoint (http or https) is configured",
            ),
            (
                with("agree = 0"),
                "config key chains.ETHEREUM_TESTNET.agree: expected 1, for one endpoint (http or https) is configured",
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
                "config key chains.BASE_MAINNET.rpc[0].headers.a: no HTTP header can hold this",
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
                "config key chains.BASE_MAINNET.rpc[0]: expected a URL that begins with http, https, ws or wss, and has a host",
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

    #[test]
    fn where_a_url_or_a_header_stands_in_a_place_of_something_else_nothing_of_it_is_reported() {
        let cases = [
            ("headers = { \"Authorization: canary\" = \"\" }", ".headers.Authorization: no HTTP header can hold this"),
            ("headers = {}, \"https://me:canary@b\" = 1", ": unknown field, expected `url` or `headers`"),
        ];
        for (more, expected) in cases {
            let error = parse(&format!("[chains.BASE_MAINNET]\nrpc = [{{ url = \"http://a\", {more} }}]")).unwrap_err();
            assert_eq!(error, format!("config key chains.BASE_MAINNET.rpc[0]{expected}"));
        }
        let cases = [
            ("${KEY}:8545", "expected a URL that begins with http, https, ws or wss, and has a host"),
            (
                "https://me:12/${KEY}@node/",
                "the URL cannot be taken apart: expected https://USER:PASSWORD@HOST/PATH, where @ : / ? # % in a name, a password or a \
                 value are written %40 %3A %2F %3F %23 %25 (percent-encoded)",
            ),
        ];
        for (url, expected) in cases {
            let error = parse(&format!("[chains.BASE_MAINNET]\nrpc = [\"{url}\"]")).unwrap_err();
            assert_eq!(error, format!("config key chains.BASE_MAINNET.rpc[0]: {expected}"));
        }
    }

    #[test]
    fn an_endpoint_that_is_named_twice_is_refused_however_it_is_spelt() {
        let with = |other: &str| parse(&format!("[chains.BASE_MAINNET]\nrpc = [\"https://a.b/${{KEY}}\", {other}]"));
        for same in [
            "\"https://a.b/${KEY}\"",
            "\"https://A.B:443/${KEY}/\"",
            "\"http://a.b.:443/${KEY}?\"",
            "{ url = \"https://a.b/${KEY}\" }",
        ] {
            let error = with(same).unwrap_err();
            let expected = "config key chains.BASE_MAINNET.rpc[1]: the same endpoint as rpc[0]; name each once, for several \
                            endpoints must agree";
            assert_eq!(error, expected, "{same}");
        }
        for other in [
            "\"https://a.b/another\"",
            "\"https://a.b/${KEY}?key=2\"",
            "\"https://a.b:444/${KEY}\"",
            "\"https://me@a.b/${KEY}\"",
            "{ url = \"https://a.b/${KEY}\", headers = { X-Key = \"2\" } }",
            "\"wss://a.b/${KEY}\"",
        ] {
            assert!(with(other).is_ok(), "{other}");
        }
    }
}
