//! The chains of the interface, and the facts of each: what a network's TOML holds.
//!
//! A family is a behaviour and therefore code; a network is a fact and therefore data.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{AssetId, Delegate, Finality, Route, U256};

/// A network of the interface's `Chain` enum. `CHAIN_UNSPECIFIED` is no chain and does not parse.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[expect(missing_docs, reason = "the names are the interface's own")]
pub enum Chain {
    EthereumMainnet,
    PolygonMainnet,
    EthereumTestnet,
    OptimismSepolia,
    BaseMainnet,
    BaseSepolia,
    OptimismMainnet,
    PolygonAmoy,
    SolanaMainnet,
    SolanaDevnet,
}

/// How a chain behaves: one crate each.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Family {
    /// Accounts of 20 bytes, receipts, a header that commits to both.
    Evm,
    /// Slots, owners of 32 bytes, signatures.
    Solana,
}

/// The text names no chain of the interface.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("unknown chain {0:?}; the chains are {names}", names = Chain::names())]
pub struct UnknownChain(pub String);

impl Chain {
    /// Every chain, in the order of the interface.
    pub const ALL: [Chain; 10] = [
        Chain::EthereumMainnet,
        Chain::PolygonMainnet,
        Chain::EthereumTestnet,
        Chain::OptimismSepolia,
        Chain::BaseMainnet,
        Chain::BaseSepolia,
        Chain::OptimismMainnet,
        Chain::PolygonAmoy,
        Chain::SolanaMainnet,
        Chain::SolanaDevnet,
    ];

    /// The name on the wire, for example `BASE_MAINNET`.
    pub const fn name(self) -> &'static str {
        match self {
            Chain::EthereumMainnet => "ETHEREUM_MAINNET",
            Chain::PolygonMainnet => "POLYGON_MAINNET",
            Chain::EthereumTestnet => "ETHEREUM_TESTNET",
            Chain::OptimismSepolia => "OPTIMISM_SEPOLIA",
            Chain::BaseMainnet => "BASE_MAINNET",
            Chain::BaseSepolia => "BASE_SEPOLIA",
            Chain::OptimismMainnet => "OPTIMISM_MAINNET",
            Chain::PolygonAmoy => "POLYGON_AMOY",
            Chain::SolanaMainnet => "SOLANA_MAINNET",
            Chain::SolanaDevnet => "SOLANA_DEVNET",
        }
    }

    /// The family the chain belongs to.
    pub const fn family(self) -> Family {
        match self {
            Chain::EthereumMainnet
            | Chain::PolygonMainnet
            | Chain::EthereumTestnet
            | Chain::OptimismSepolia
            | Chain::BaseMainnet
            | Chain::BaseSepolia
            | Chain::OptimismMainnet
            | Chain::PolygonAmoy => Family::Evm,
            Chain::SolanaMainnet | Chain::SolanaDevnet => Family::Solana,
        }
    }

    fn names() -> String {
        Chain::ALL.map(Chain::name).join(", ")
    }
}

impl Family {
    /// Whether a block's hash covers its parent's hash and all that is in it. Where it does not, both are only what
    /// the endpoint reported.
    pub const fn has_roots(self) -> bool {
        match self {
            Family::Evm => true,
            Family::Solana => false,
        }
    }

    /// What a [`crate::BlockRef::number`] counts.
    pub const fn number(self) -> &'static str {
        match self {
            Family::Evm => "block",
            Family::Solana => "slot",
        }
    }

    /// Several of them.
    pub const fn numbers(self) -> &'static str {
        match self {
            Family::Evm => "blocks",
            Family::Solana => "slots",
        }
    }
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Chain {
    type Err = UnknownChain;

    fn from_str(text: &str) -> Result<Self, UnknownChain> {
        Chain::ALL.into_iter().find(|chain| chain.name() == text).ok_or_else(|| UnknownChain(text.to_owned()))
    }
}

/// Where a network's native movements are seen. What the roots prove (a successful transaction's own value, mints,
/// withdrawals) is credited with every source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Native {
    /// What is beside it.
    pub source: NativeSource,
    /// From this block on, inclusive, the chain itself logs every movement of value (EIP-7708); from there on these
    /// logs are the one source, whatever `source` says.
    pub eip7708_from: Option<u64>,
}

/// How value that moves inside of transactions is seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NativeSource {
    /// Not at all.
    TopLevel,
    /// By traces, in a lane of their own.
    Trace,
    /// By the logs that the chain writes of every movement (Polygon, `0x1010`).
    LogTransfer,
}

/// One asset that is credited on a network.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Asset {
    /// What moves: the native currency or a token contract.
    pub id: AssetId,
    /// The ticker shown to clients, from our own registry and never from the chain.
    pub symbol: String,
    /// How many decimals the major unit has: 18 means that 10^18 base units are one.
    pub decimals: u8,
    /// The block from which it is credited, inclusive: what moved below was not this asset yet. 0 means always.
    pub from_block: u64,
    /// How it is sent with a sponsor paying; `None` where this version has no way. It never changes for an asset.
    pub route: Option<Route>,
}

/// How transfers are sent on a network. Amounts are in base units of the native currency.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sending {
    /// What carrying a transfer is taken to cost before one is final.
    pub first_cost: u64,
    /// A sponsor that owns less is reported, so that somebody funds it in time.
    pub floor: u128,
    /// What a sponsor below the floor owns behind a refill; no refill is more.
    pub refill_to: u128,
    /// After how many usual block times without inclusion an attempt's fees are raised.
    pub raise_after_blocks: u64,
    /// How many transactions of one sponsor wait at the same time.
    pub in_flight: u64,
    /// The most that one transaction may cost its sponsor, in millionths of a USD; `None`: no bound. On EVM.
    pub max_cost_micro_usd: Option<u64>,
    /// The most that is offered for a unit of gas; `None`: as much as the market asks for.
    pub max_fee: Option<u128>,
    /// For how many new accounts of tokens sponsors pay within a day, for each account of ours. On Solana; the recipient may
    /// take what such an account is made with.
    pub new_accounts_per_day: u32,
    /// For less no new account of a token is paid for; a decimal of that token with [`Sending::LEAST_DECIMALS`] digits behind
    /// the point. On Solana.
    pub new_account_least: u64,
    /// The code that acted for a wallet is taken away again when nothing needs it any more. On EVM.
    pub clears_delegates: bool,
    /// For how long the guard of a paid transfer is kept, by the time of blocks. On Solana; a store that was set back by more
    /// cannot see by the guard that the transfer was paid.
    pub guard_retention_hours: u32,
    /// Blocks show what each transaction of a sponsor cost: not those of an EVM chain that is read by its logs.
    pub shows_each_cost: bool,
}

/// The facts of one network.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Network {
    /// Its name in the interface.
    pub chain: Chain,
    /// CAIP-2, for example `eip155:8453`: part of every deposit's id, so it never changes.
    pub chain_ref: String,
    /// The usual time between two blocks, in milliseconds.
    pub block_time_ms: u64,
    /// What CONFIRMED waits for.
    pub finality: Finality,
    /// Where native movements are seen.
    pub native: Native,
    /// The token that an operator may count as the native currency: then what a transaction pays in both is one sum.
    /// `None` where there is none.
    pub wrapped: Option<AssetId>,
    /// How its transfers are sent.
    pub sending: Sending,
    /// What may act for wallets that pay, on EVM. Assets that a delegate pays have the first one in their route; an operator
    /// may take another.
    pub delegates: Vec<Delegate>,
    /// The native currency first, then the listed tokens.
    pub assets: Vec<Asset>,
}

impl Sending {
    /// So many transactions of one address every node keeps (geth: `accountslots`).
    pub const IN_FLIGHT_MAX: u64 = 16;
    /// How many transfers a sponsor can still pay for when it is reported.
    const FLOOR_TRANSFERS: u128 = 100;
    /// So many times the floor a refilled sponsor owns: it carries some hundred transfers before the next refill.
    pub const REFILL_TIMES: u128 = 5;
    /// More than an account that pays salaries needs on most days.
    const NEW_ACCOUNTS_PER_DAY: u32 = 20;
    /// So fine is [`Sending::new_account_least`].
    pub const LEAST_DECIMALS: u8 = 6;
    /// What a token is worth beside the account's rent only an operator knows.
    const NEW_ACCOUNT_LEAST: u64 = 0;
    /// Longer than a weekend: backups of Friday are restored on Monday.
    const GUARD_RETENTION_HOURS: u32 = 72;
    /// Enough that a block that comes late is no reason.
    const RAISE_AFTER_BLOCKS: u64 = 3;

    /// The usual ones, where carrying a transfer costs about `first_cost`.
    pub const fn usual(first_cost: u64) -> Self {
        Sending {
            first_cost,
            floor: first_cost as u128 * Sending::FLOOR_TRANSFERS,
            refill_to: first_cost as u128 * Sending::FLOOR_TRANSFERS * Sending::REFILL_TIMES,
            raise_after_blocks: Sending::RAISE_AFTER_BLOCKS,
            in_flight: Sending::IN_FLIGHT_MAX,
            max_cost_micro_usd: None,
            max_fee: None,
            new_accounts_per_day: Sending::NEW_ACCOUNTS_PER_DAY,
            new_account_least: Sending::NEW_ACCOUNT_LEAST,
            clears_delegates: true,
            guard_retention_hours: Sending::GUARD_RETENTION_HOURS,
            shows_each_cost: true,
        }
    }

    /// The floor where the chain takes `surcharge` of a transaction on top of gas: as many times as the usual floor pays for.
    pub fn floor_with(&self, surcharge: U256) -> U256 {
        U256::from(self.floor).saturating_add(surcharge.saturating_mul(U256::from(Sending::FLOOR_TRANSFERS)))
    }
}

impl NativeSource {
    const ALL: [NativeSource; 3] = [NativeSource::TopLevel, NativeSource::Trace, NativeSource::LogTransfer];

    /// The name that is stored.
    pub const fn name(self) -> &'static str {
        match self {
            NativeSource::TopLevel => "top_level",
            NativeSource::Trace => "trace",
            NativeSource::LogTransfer => "log_transfer",
        }
    }
}

impl FromStr for NativeSource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = NativeSource::ALL.into_iter().find(|source| source.name() == text);
        known.ok_or_else(|| format!("unknown source of native movements {text:?}"))
    }
}

impl Native {
    /// Nothing but what the roots prove.
    pub const TOP_LEVEL: Native = Native { source: NativeSource::TopLevel, eip7708_from: None };

    /// Whether block `number` has to be traced.
    pub fn is_traced(&self, number: u64) -> bool {
        self.source == NativeSource::Trace && self.eip7708_from.is_none_or(|from| number < from)
    }

    /// Whether the chain's own logs, which roots prove, report what moves inside of the transactions of block `number`.
    pub fn is_logged(&self, number: u64) -> bool {
        self.source == NativeSource::LogTransfer || self.eip7708_from.is_some_and(|from| number >= from)
    }
}

impl Network {
    /// Whether value that moves inside of transactions is not read. Solana's balances show all of it.
    pub fn leaves_out_inner_value(&self) -> bool {
        match self.chain.family() {
            Family::Evm => self.native.source == NativeSource::TopLevel,
            Family::Solana => false,
        }
    }

    /// The asset of the same money under another setting: the wrapped token of the native currency, and the reverse.
    pub fn other_form(&self, asset: &AssetId) -> Option<AssetId> {
        match asset {
            AssetId::Native => self.wrapped,
            AssetId::Token(_) => self.wrapped.filter(|wrapped| wrapped == asset).map(|_| AssetId::Native),
        }
    }

    /// Each route by which an asset may be sent here: where a delegate pays it, that of each delegate.
    pub fn routes<'n>(&'n self, asset: &'n Asset) -> impl Iterator<Item = Route> + 'n {
        let by_delegate = matches!(asset.route, Some(Route::Delegate(_)));
        let delegates = self.delegates.iter().filter(move |_| by_delegate).copied().map(Route::Delegate);
        asset.route.iter().filter(move |_| !by_delegate).cloned().chain(delegates)
    }

    /// The listed asset with this id, if there is one.
    pub fn asset(&self, id: &AssetId) -> Option<&Asset> {
        self.assets.iter().find(|asset| asset.id == *id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_chain_parses_from_its_name_and_unspecified_does_not() {
        for chain in Chain::ALL {
            assert_eq!(chain.name().parse(), Ok(chain));
        }
        let error = "CHAIN_UNSPECIFIED".parse::<Chain>().unwrap_err().to_string();
        assert!(error.starts_with("unknown chain \"CHAIN_UNSPECIFIED\"; the chains are ETHEREUM_MAINNET, "));
        assert!("base_mainnet".parse::<Chain>().is_err());
    }
}
