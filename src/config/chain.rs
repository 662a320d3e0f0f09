//! What an operator sets for one chain.

use std::collections::BTreeMap;

use landfall_chain::{
    Address, BlockHash, Chain, FinalityRule, NativeSource, ReadProof, RuleName, Sending, U256, UnknownProof,
};
use reqwest::header::{HeaderName, HeaderValue};
use serde::{Deserialize, Deserializer};
use url::Url;

use crate::config::{ConfigError, family, key, url, without_values};
use crate::gas::Usd;
use crate::watcher::Start;

const POLL_MS_MIN: u64 = 20;
const POLL_MS_MAX: u64 = 60_000;
const BALANCES_PER_SEC_MAX: u32 = 1_000;
const FAILED_GRACE_SECS_DEFAULT: u64 = 3_600;
const FINALITY_STALL_SECS_MIN: u64 = 60;
const BLOCK_STALL_SECS_MIN: u64 = 60;

/// One section `[chains.NAME]`.
#[derive(Clone, Debug)]
pub struct ChainConfig {
    pub rpc: Vec<RpcConfig>,
    /// How many endpoints must agree on what is final; `None`: the adapter's default.
    pub agree: Option<usize>,
    pub start: Start,
    /// How strongly a block is proved before it is connected; `None`: the default of the chain's family.
    pub proof: Option<ReadProof>,
    /// `None`: the network's facts, with its tiers.
    pub finality: Option<FinalityRule>,
    pub tiers: Vec<TierConfig>,
    /// `None`: the network's facts, for each of the two.
    pub native: Option<NativeSource>,
    pub eip7708_from: Option<u64>,
    /// The genesis hash that the endpoints of a private cluster report; `None`: the network's facts.
    pub genesis: Option<BlockHash>,
    /// The newest version of transactions to ask for at first.
    pub max_transaction_version: Option<u8>,
    /// `None`: the network's facts.
    pub wrapped: Option<WrappedName>,
    /// Where Landfall's own delegate stands on a private chain.
    pub own_delegate: Option<Address>,
    /// `None`: by the network's block time.
    pub poll_ms: Option<u64>,
    pub failed_grace_secs: u64,
    /// `None`: by the network's rule.
    pub finality_stall_secs: Option<u64>,
    /// `None`: by the network's block time; 0: never.
    pub block_stall_secs: Option<u64>,
    /// For how many addresses the balances are read in a second at most; `None`: by what calls cost on the network.
    pub balances_per_sec: Option<u32>,
    /// Added to the built-in ones.
    pub assets: Vec<AssetConfig>,
    /// Tokens that were listed once and are given up for good.
    pub retired: Vec<Address>,
    /// What differs in how transfers are sent.
    pub transfers: SendingConfig,
}

/// What an operator changes in how transfers are sent on a chain; `None`: the network's facts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SendingConfig {
    /// Symbols of assets that are not accepted any more. What was accepted is sent to its end.
    pub refuse: Vec<String>,
    pub in_flight: Option<u64>,
    /// In base units of the native currency for a unit of gas.
    pub max_fee: Option<u128>,
    pub max_cost: Option<Usd>,
    pub raise_after_blocks: Option<u64>,
    /// In the major unit of the native currency.
    pub floor: Option<String>,
    /// In the same.
    pub refill_to: Option<String>,
    pub new_accounts_per_day: Option<u32>,
    /// In the major unit of the token.
    pub new_account_least: Option<String>,
    /// How much the signer signs of assets, by symbol.
    pub caps: BTreeMap<String, CapConfig>,
    /// Of `[transfers]`: it is the same on all chains.
    pub guard_retention_hours: Option<u32>,
}

/// An endpoint. Its headers, and parts of the URL, may be secrets.
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
    /// The token program of a mint; `None`: either.
    #[serde(default)]
    pub program: Option<ProgramName>,
    /// The domain of a contract that takes signed authorizations; `None`: it takes none.
    #[serde(default)]
    pub erc3009: Option<DomainConfig>,
    /// Whether it is sent by the network's delegate, which acts for the wallet that pays (EIP-7702).
    #[serde(default)]
    pub delegate: bool,
}

/// The most that the signer signs of one asset, in its major unit.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CapConfig {
    /// By one transfer.
    #[serde(default)]
    pub transfer: Option<String>,
    /// Within 24 hours.
    #[serde(default)]
    pub day: Option<String>,
}

/// What the `DOMAIN_SEPARATOR()` of a contract is made of.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DomainConfig {
    pub name: String,
    pub version: String,
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

const WEI_PER_GWEI: u128 = 1_000_000_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChainSection {
    pub(super) rpc: Vec<RpcEntry>,
    #[serde(default)]
    pub(super) agree: Option<usize>,
    #[serde(default, deserialize_with = "start")]
    pub(super) start: Option<Start>,
    #[serde(default)]
    pub(super) proof: Option<String>,
    #[serde(default)]
    pub(super) native: Option<NativeName>,
    #[serde(default)]
    pub(super) eip7708_from: Option<u64>,
    #[serde(default)]
    pub(super) genesis: Option<String>,
    #[serde(default)]
    pub(super) max_transaction_version: Option<u8>,
    #[serde(default)]
    pub(super) wrapped: Option<WrappedName>,
    #[serde(default)]
    pub(super) own_delegate: Option<String>,
    #[serde(default)]
    pub(super) finality: Option<RuleName>,
    #[serde(default)]
    pub(super) confirmations: Option<u64>,
    #[serde(default)]
    pub(super) l1_blocks: Option<u64>,
    #[serde(default)]
    pub(super) tiers: Vec<TierSection>,
    #[serde(default)]
    pub(super) poll_ms: Option<u64>,
    #[serde(default)]
    pub(super) failed_grace_secs: Option<u64>,
    #[serde(default)]
    pub(super) finality_stall_secs: Option<u64>,
    #[serde(default)]
    pub(super) block_stall_secs: Option<u64>,
    #[serde(default)]
    pub(super) balances_per_sec: Option<u32>,
    #[serde(default)]
    pub(super) assets: Vec<AssetConfig>,
    #[serde(default)]
    pub(super) retired: Vec<String>,
    #[serde(default)]
    pub(super) transfers: SendingSection,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct SendingSection {
    #[serde(default)]
    refuse: Vec<String>,
    #[serde(default)]
    pub(super) in_flight: Option<u64>,
    #[serde(default)]
    pub(super) max_fee_gwei: Option<u64>,
    #[serde(default)]
    pub(super) max_cost_usd: Option<String>,
    #[serde(default)]
    pub(super) bump_after_blocks: Option<u64>,
    #[serde(default)]
    floor: Option<String>,
    #[serde(default)]
    pub(super) refill_to: Option<String>,
    #[serde(default)]
    pub(super) new_accounts_per_day: Option<u32>,
    #[serde(default)]
    pub(super) new_account_least: Option<String>,
    #[serde(default)]
    caps: BTreeMap<String, CapConfig>,
}

/// A URL, or a table with one.
pub(super) struct RpcEntry {
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
pub(super) struct TierSection {
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
pub(super) enum NativeName {
    TopLevel,
    Trace,
    LogTransfer,
}

/// How many endpoints may have to agree, where so many can be asked.
pub fn agreeing(readable: usize) -> String {
    match readable {
        1 => "expected 1, for one endpoint (http or https) is configured".to_owned(),
        _ => format!("expected 1 to {readable}, for {readable} endpoints (http or https) are configured"),
    }
}

impl ChainSection {
    /// The section, if its keys fit together.
    pub(super) fn check(self, chain: Chain, at: &str) -> Result<ChainConfig, ConfigError> {
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
        let readable = readable(&rpc);
        if readable == 0 {
            return Err(key(&format!("{at}.rpc"), "at least one http or https URL is needed; ws and wss only wake up"));
        }
        if let Some((first, again)) = named_twice(&rpc) {
            let what = format!("the same endpoint as rpc[{first}]; name each once, for several endpoints must agree");
            return Err(key(&format!("{at}.rpc[{again}]"), what));
        }
        if self.agree.is_some_and(|agree| !(1..=readable).contains(&agree)) {
            return Err(key(&format!("{at}.agree"), agreeing(readable)));
        }
        let poll_ms = self.poll_ms.unwrap_or(POLL_MS_MIN);
        if !(POLL_MS_MIN..=POLL_MS_MAX).contains(&poll_ms) {
            return Err(key(&format!("{at}.poll_ms"), "expected 20 to 60000"));
        }
        if self.balances_per_sec.is_some_and(|most| !(1..=BALANCES_PER_SEC_MAX).contains(&most)) {
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
            own_delegate: self
                .own_delegate
                .map(|text| Address::parse(chain.family(), &text))
                .transpose()
                .map_err(|error| key(&format!("{at}.own_delegate"), error.to_string()))?,
            poll_ms: self.poll_ms,
            failed_grace_secs: self.failed_grace_secs.unwrap_or(FAILED_GRACE_SECS_DEFAULT),
            finality_stall_secs: self.finality_stall_secs,
            block_stall_secs: self.block_stall_secs,
            balances_per_sec: self.balances_per_sec,
            assets: self.assets,
            retired: retired(chain, at, &self.retired)?,
            transfers: self.transfers.check(&format!("{at}.transfers"))?,
        })
    }
}

impl SendingSection {
    fn check(self, at: &str) -> Result<SendingConfig, ConfigError> {
        let most = Sending::IN_FLIGHT_MAX;
        if self.in_flight.is_some_and(|count| !(1..=most).contains(&count)) {
            let what = format!("expected 1 to {most}: more transactions of one address a node need not keep");
            return Err(key(&format!("{at}.in_flight"), what));
        }
        if self.max_fee_gwei == Some(0) {
            return Err(key(
                &format!("{at}.max_fee_gwei"),
                "expected at least 1; leave it out for what the market asks",
            ));
        }
        let max_cost =
            self.max_cost_usd.as_deref().map(|text| max_cost(&format!("{at}.max_cost_usd"), text)).transpose()?;
        if self.bump_after_blocks == Some(0) {
            return Err(key(
                &format!("{at}.bump_after_blocks"),
                "expected at least 1: a block must have the time to come",
            ));
        }
        Ok(SendingConfig {
            refuse: self.refuse,
            in_flight: self.in_flight,
            max_fee: self.max_fee_gwei.map(|gwei| u128::from(gwei) * WEI_PER_GWEI),
            max_cost,
            raise_after_blocks: self.bump_after_blocks,
            floor: self.floor,
            refill_to: self.refill_to,
            new_accounts_per_day: self.new_accounts_per_day,
            new_account_least: self.new_account_least,
            caps: self.caps,
            guard_retention_hours: None,
        })
    }
}

/// The most that one transaction may cost.
fn max_cost(at: &str, text: &str) -> Result<Usd, ConfigError> {
    let most = text.parse().ok().filter(|most: &Usd| *most > Usd::default());
    most.ok_or_else(|| key(at, "expected an amount of USD above 0, as in \"2.50\""))
}

impl ChainSection {
    fn check_times(&self, at: &str) -> Result<(), ConfigError> {
        if self.failed_grace_secs == Some(0) {
            let what = "expected at least 1: a transaction that is in no block may still be mined";
            return Err(key(&format!("{at}.failed_grace_secs"), what));
        }
        if self.finality_stall_secs.is_some_and(|secs| secs < FINALITY_STALL_SECS_MIN) {
            let what =
                "expected at least 60: blocks take their time to be final; without the key the network's rule decides";
            return Err(key(&format!("{at}.finality_stall_secs"), what));
        }
        if self.block_stall_secs.is_some_and(|secs| secs > 0 && secs < BLOCK_STALL_SECS_MIN) {
            let what = "expected at least 60, or 0 for a chain whose blocks come on demand; without the key the network's block time decides";
            return Err(key(&format!("{at}.block_stall_secs"), what));
        }
        Ok(())
    }
}

fn retired(chain: Chain, at: &str, contracts: &[String]) -> Result<Vec<Address>, ConfigError> {
    let read = |(index, text): (usize, &String)| {
        Address::parse(chain.family(), text).map_err(|error| key(&format!("{at}.retired[{index}]"), error))
    };
    contracts.iter().enumerate().map(read).collect()
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

fn readable(rpc: &[RpcConfig]) -> usize {
    rpc.iter().filter(|entry| entry.is_read_from()).count()
}

/// The indices of the first two entries that are read from and lead to the same endpoint.
fn named_twice(rpc: &[RpcConfig]) -> Option<(usize, usize)> {
    rpc.iter().enumerate().filter(|(_, entry)| entry.is_read_from()).find_map(|(index, entry)| {
        let first = rpc[..index].iter().position(|other| other.is_read_from() && other.leads_to() == entry.leads_to());
        first.map(|first| (first, index))
    })
}

impl ChainConfig {
    /// How many endpoints are read from, and may agree.
    pub fn readable(&self) -> usize {
        readable(&self.rpc)
    }
}

impl RpcConfig {
    /// False for an entry that only wakes up.
    fn is_read_from(&self) -> bool {
        matches!(self.url.scheme(), "http" | "https")
    }

    /// What distinguishes endpoints, however their URLs are spelt: on one host another path or key may lead to another
    /// endpoint.
    fn leads_to(&self) -> impl PartialEq {
        let RpcConfig { url, headers } = self;
        let host = url.host_str().unwrap_or_default().trim_end_matches('.').to_lowercase();
        let path = url.path().trim_end_matches('/').to_owned();
        let query = url.query().unwrap_or_default().to_owned();
        let user = (url.username().to_owned(), url.password().map(str::to_owned));
        let headers = headers.iter().map(|(name, value)| (name.to_lowercase(), value.clone()));
        (host, url.port_or_known_default(), path, query, user, headers.collect::<BTreeMap<_, _>>())
    }
}

fn rpc_url(at: &str, text: &str) -> Result<Url, ConfigError> {
    let url = url(at, text, "https://USER:PASSWORD@HOST/PATH")?;
    match url.scheme() {
        "http" | "https" | "ws" | "wss" if url.has_host() => Ok(url),
        // What was written in place of a scheme may be a key.
        _ => Err(key(at, "expected a URL that begins with http, https, ws or wss, and has a host")),
    }
}

fn proof(at: &str, name: Option<&str>) -> Result<Option<ReadProof>, ConfigError> {
    name.map(str::parse).transpose().map_err(|error: UnknownProof| key(&format!("{at}.proof"), error))
}

fn start<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Start>, D::Error> {
    match toml::Value::deserialize(deserializer)? {
        toml::Value::String(text) if text == "finalized" => Ok(Some(Start::Finalized)),
        toml::Value::Integer(number) if number >= 0 => Ok(Some(Start::Number(number.unsigned_abs()))),
        _ => Err(serde::de::Error::custom("expected a block number or \"finalized\"")),
    }
}
