//! The EVM networks, embedded: one file per network in `networks/`.
//!
//! Promises: every EVM chain of the interface has exactly one file. A file has only keys that this version knows; an
//! unknown key is an error. Contracts are written in EIP-55 and refused otherwise.
//! A new token is a change to a file and to the list in the tests below. A new network also needs its `Chain`, and a
//! line in `FILES`.

use std::sync::LazyLock;

use alloy::primitives::B256;
use landfall_chain::{
    Address, Asset, AssetId, Chain, Delegate, Family, Finality, FinalityRule, Native, NativeSource, Network, Route,
    RuleError, RuleName, Sending, Tier, U256,
};
use serde::Deserialize;

use crate::stack::Stack;

const FILES: [&str; 8] = [
    include_str!("../networks/ethereum_mainnet.toml"),
    include_str!("../networks/polygon_mainnet.toml"),
    include_str!("../networks/ethereum_testnet.toml"),
    include_str!("../networks/optimism_sepolia.toml"),
    include_str!("../networks/base_mainnet.toml"),
    include_str!("../networks/base_sepolia.toml"),
    include_str!("../networks/optimism_mainnet.toml"),
    include_str!("../networks/polygon_amoy.toml"),
];

/// geth leaves transactions that offer less out of the blocks that it makes (`miner.DefaultConfig.GasPrice`).
const TIP_LEAST: u64 = 1_000_000;

/// The embedded networks, in the order of the interface.
pub fn networks() -> Vec<Network> {
    facts().map(|(network, _)| network).collect()
}

/// The embedded network of `chain`; `None` for a chain of another family.
pub fn network(chain: Chain) -> Option<Network> {
    networks().into_iter().find(|network| network.chain == chain)
}

/// How the embedded network of `chain` differs from a plain EVM chain.
pub(crate) fn stack(chain: Chain) -> Stack {
    own(chain).stack
}

/// The least that a transaction of the embedded network of `chain` offers who makes the block, in wei.
pub(crate) fn tip_least(chain: Chain) -> u64 {
    own(chain).tip_least
}

/// The hash of block 0 of the public network `chain`; `None` for a chain of another family.
pub(crate) fn genesis(chain: Chain) -> Option<B256> {
    own(chain).genesis
}

/// The facts of a network that this crate alone needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Own {
    stack: Stack,
    tip_least: u64,
    genesis: Option<B256>,
}

fn own(chain: Chain) -> Own {
    static OWN: LazyLock<Vec<(Chain, Own)>> =
        LazyLock::new(|| facts().map(|(network, own)| (network.chain, own)).collect());
    let plain = Own { stack: Stack::default(), tip_least: TIP_LEAST, genesis: None };
    OWN.iter().find(|(other, _)| *other == chain).map_or(plain, |(_, own)| *own)
}

fn facts() -> impl Iterator<Item = (Network, Own)> {
    FILES.into_iter().map(|text| parse(text).expect("embedded, and every file is parsed by a test"))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    chain: Chain,
    chain_id: u64,
    genesis: B256,
    block_time_ms: u64,
    #[serde(default)]
    stack: Stack,
    tip_least_wei: Option<u64>,
    raise_after_blocks: Option<u64>,
    finality: RuleName,
    confirmations: Option<u64>,
    l1_blocks: Option<u64>,
    #[serde(default)]
    tiers: Vec<TierKeys>,
    native: Currency,
    /// The first one is taken unless an operator takes another.
    #[serde(default)]
    delegates: Vec<Contracts>,
    #[serde(default)]
    assets: Vec<Token>,
}

/// A delegate of the closed list, and where it stands.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Contracts {
    name: DelegateName,
    implementation: String,
    manager: String,
    ids: String,
    times: String,
    executions: String,
}

/// Landfall's own is for private chains, so no network lists it.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum DelegateName {
    Metamask,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TierKeys {
    asset: String,
    /// In base units, as text: TOML's integers are too small.
    up_to: String,
    finality: RuleName,
    confirmations: Option<u64>,
    l1_blocks: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Currency {
    symbol: String,
    decimals: u8,
    source: Source,
    eip7708_from: Option<u64>,
    route: Option<RouteName>,
    first_cost: u64,
    max_cost_usd: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Source {
    TopLevel,
    Trace,
    LogTransfer,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Token {
    symbol: String,
    contract: String,
    decimals: u8,
    /// The first block in which the contract is this asset.
    #[serde(default)]
    from: u64,
    route: Option<RouteName>,
    domain: Option<Domain>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum RouteName {
    Erc3009,
    Delegate,
}

/// What `DOMAIN_SEPARATOR()` of the contract is made of.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Domain {
    name: String,
    version: String,
}

impl From<Source> for NativeSource {
    fn from(source: Source) -> Self {
        match source {
            Source::TopLevel => NativeSource::TopLevel,
            Source::Trace => NativeSource::Trace,
            Source::LogTransfer => NativeSource::LogTransfer,
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum FileError {
    #[error(transparent)]
    Toml(#[from] toml::de::Error),
    #[error(transparent)]
    Rule(#[from] RuleError),
    #[error("tier of {asset:?} up to {up_to:?}: no such asset, or no number of base units")]
    Tier { asset: String, up_to: String },
    #[error("{contract} is not in EIP-55: {reason}")]
    Contract { contract: String, reason: String },
    #[error("{contract}: a route needs its domain, and a domain its route")]
    Route { contract: String },
    #[error("{asset}: this route needs the network's delegate, and no domain")]
    NoDelegate { asset: String },
    #[error("delegate {0} is listed twice")]
    DelegateTwice(&'static str),
    #[error("the native currency takes no authorization")]
    NativeRoute,
}

fn parse(text: &str) -> Result<(Network, Own), FileError> {
    let file: File = toml::from_str(text)?;
    let rule = FinalityRule::of_keys(file.finality, file.confirmations, file.l1_blocks)?;
    let Currency { symbol, decimals, source, eip7708_from, route, first_cost, max_cost_usd } = file.native;
    let delegates = file.delegates.into_iter().map(contracts).collect::<Result<Vec<_>, _>>()?;
    let names: Vec<&'static str> = delegates.iter().map(Delegate::name).collect();
    if let Some(name) = (1..names.len()).find_map(|at| names[..at].contains(&names[at]).then_some(names[at])) {
        return Err(FileError::DelegateTwice(name));
    }
    let first = delegates.first().copied();
    let by_delegate =
        |asset: &str| first.map(Route::Delegate).ok_or_else(|| FileError::NoDelegate { asset: asset.to_owned() });
    let route = match route {
        Some(RouteName::Delegate) => Some(by_delegate(&symbol)?),
        Some(RouteName::Erc3009) => return Err(FileError::NativeRoute),
        None => None,
    };
    let mut assets = vec![Asset { id: AssetId::Native, symbol, decimals, from_block: 0, route }];
    for Token { symbol, contract: text, decimals, from, route, domain } in file.assets {
        let id = contract(&text)?;
        let route = match (route, domain) {
            (Some(RouteName::Erc3009), Some(Domain { name, version })) => Some(Route::Erc3009 { name, version }),
            (Some(RouteName::Delegate), None) => Some(by_delegate(&text)?),
            (Some(RouteName::Delegate), Some(_)) => return Err(FileError::NoDelegate { asset: text }),
            (None, None) => None,
            (Some(RouteName::Erc3009), None) | (None, Some(_)) => return Err(FileError::Route { contract: text }),
        };
        assets.push(Asset { id, symbol, decimals, from_block: from, route });
    }
    let tiers = file.tiers.into_iter().map(|keys| tier(keys, &assets)).collect::<Result<_, _>>()?;
    let mut sending = Sending::usual(first_cost);
    sending.max_cost_micro_usd = Some(max_cost_usd * 1_000_000);
    sending.raise_after_blocks = file.raise_after_blocks.unwrap_or(sending.raise_after_blocks);
    let network = Network {
        chain: file.chain,
        chain_ref: format!("eip155:{}", file.chain_id),
        block_time_ms: file.block_time_ms,
        finality: Finality { rule, tiers },
        native: Native { source: source.into(), eip7708_from },
        wrapped: None,
        sending,
        delegates,
        assets,
    };
    let tip_least = file.tip_least_wei.unwrap_or(TIP_LEAST);
    Ok((network, Own { stack: file.stack, tip_least, genesis: Some(file.genesis) }))
}

fn contracts(of: Contracts) -> Result<Delegate, FileError> {
    let Contracts { name: DelegateName::Metamask, implementation, manager, ids, times, executions } = of;
    Ok(Delegate::Metamask {
        implementation: address(&implementation)?,
        manager: address(&manager)?,
        ids: address(&ids)?,
        times: address(&times)?,
        executions: address(&executions)?,
    })
}

fn tier(keys: TierKeys, assets: &[Asset]) -> Result<Tier, FileError> {
    let TierKeys { asset, up_to, finality, confirmations, l1_blocks } = keys;
    let listed = assets.iter().find(|listed| listed.symbol == asset).map(|listed| listed.id);
    match (listed, U256::from_str_radix(&up_to, 10)) {
        (Some(asset), Ok(up_to)) => {
            Ok(Tier { asset, up_to, rule: FinalityRule::of_keys(finality, confirmations, l1_blocks)? })
        }
        (None, _) | (_, Err(_)) => Err(FileError::Tier { asset, up_to }),
    }
}

fn contract(text: &str) -> Result<AssetId, FileError> {
    address(text).map(AssetId::Token)
}

fn address(text: &str) -> Result<Address, FileError> {
    let refused = |reason: String| FileError::Contract { contract: text.to_owned(), reason };
    let address = Address::parse(Family::Evm, text).map_err(|error| refused(error.to_string()))?;
    let canonical = address.to_string();
    if canonical == text { Ok(address) } else { Err(refused(format!("write {canonical}"))) }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use landfall_chain::Tag;

    use super::*;

    #[test]
    fn every_evm_chain_of_the_interface_has_one_network_and_its_facts_agree() {
        for text in FILES {
            parse(text).unwrap();
        }
        let evm: Vec<Chain> = Chain::ALL.into_iter().filter(|chain| chain.family() == Family::Evm).collect();
        let networks = networks();
        assert_eq!(networks.iter().map(|network| network.chain).collect::<Vec<_>>(), evm);
        let refs: HashSet<_> = networks.iter().map(|network| &network.chain_ref).collect();
        assert_eq!(refs.len(), networks.len(), "two networks share a chain id");
        for network in &networks {
            let name = network.chain;
            assert!((1..=60_000).contains(&network.block_time_ms), "{name}");
            assert_eq!(network.assets[0].id, AssetId::Native, "{name}");
            assert_eq!(network.assets[0].decimals, 18, "{name}");
            let symbols: HashSet<_> = network.assets.iter().map(|asset| &asset.symbol).collect();
            let ids: HashSet<_> = network.assets.iter().map(|asset| asset.id).collect();
            assert_eq!((symbols.len(), ids.len()), (network.assets.len(), network.assets.len()), "{name}");
            assert!(network.assets[1..].iter().all(|token| token.decimals == 6), "{name}");
        }
    }

    #[test]
    fn a_file_stands_under_the_name_of_its_chain() {
        for chain in Chain::ALL.into_iter().filter(|chain| chain.family() == Family::Evm) {
            let path = format!("{}/networks/{}.toml", env!("CARGO_MANIFEST_DIR"), chain.name().to_lowercase());
            let text = std::fs::read_to_string(path).unwrap();
            assert_eq!(parse(&text).unwrap(), (network(chain).unwrap(), own(chain)));
        }
    }

    #[test]
    fn the_chain_ids_are_those_of_the_networks() {
        let refs: Vec<String> = networks().into_iter().map(|network| network.chain_ref).collect();
        let ids = [1, 137, 11_155_111, 11_155_420, 8453, 84_532, 10, 80_002];
        assert_eq!(refs, ids.map(|id| format!("eip155:{id}")));
        assert_eq!(network(Chain::SolanaDevnet), None);
    }

    #[test]
    fn e21_the_tokens_are_those_of_their_issuers() {
        let listed = |chain| {
            let tokens = network(chain).unwrap().assets.into_iter().skip(1);
            tokens.map(|token| format!("{} {}", token.symbol, token.id)).collect::<Vec<_>>()
        };
        let cases: [(Chain, &[&str]); 8] = [
            (
                Chain::EthereumMainnet,
                &[
                    "USDC 0xA0b86991c6218b36c1d19D4a2e9Eb0cE3606eB48",
                    "USDT 0xdAC17F958D2ee523a2206206994597C13D831ec7",
                    "EURC 0x1aBaEA1f7C830bD89Acc67eC4af516284b1bC33c",
                ],
            ),
            (Chain::PolygonMainnet, &["USDC 0x3c499c542cEF5E3811e1192ce70d8cC03d5c3359"]),
            (
                Chain::EthereumTestnet,
                &["USDC 0x1c7D4B196Cb0C7B01d743Fbc6116a902379C7238", "EURC 0x08210F9170F89Ab7658F0B5E3fF39b0E03C594D4"],
            ),
            (Chain::OptimismSepolia, &["USDC 0x5fd84259d66Cd46123540766Be93DFE6D43130D7"]),
            (
                Chain::BaseMainnet,
                &["USDC 0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913", "EURC 0x60a3E35Cc302bFA44Cb288Bc5a4F316Fdb1adb42"],
            ),
            (
                Chain::BaseSepolia,
                &["USDC 0x036CbD53842c5426634e7929541eC2318f3dCF7e", "EURC 0x808456652fdb597867f38412077A9182bf77359F"],
            ),
            (Chain::OptimismMainnet, &["USDC 0x0b2C639c533813f4Aa9D7837CAf62653d097Ff85"]),
            (Chain::PolygonAmoy, &["USDC 0x41E94Eb019C0762f9Bfcf9Fb1E58725BfB0e7582"]),
        ];
        for (chain, expected) in cases {
            assert_eq!(listed(chain), expected, "{chain}");
        }
    }

    #[test]
    fn native_movements_are_seen_by_logs_on_polygon_and_by_traces_elsewhere() {
        for network in networks() {
            let logs = stack(network.chain) == Stack::Polygon;
            let source = if logs { NativeSource::LogTransfer } else { NativeSource::Trace };
            assert_eq!(network.native, Native { source, eip7708_from: None }, "{}", network.chain);
        }
        let later = FILES[0].replace("source = \"trace\"", "source = \"top_level\"\neip7708_from = 7");
        let (later, _) = parse(&later).unwrap();
        assert_eq!(later.native, Native { source: NativeSource::TopLevel, eip7708_from: Some(7) });
        assert!(parse(&FILES[0].replace("\"trace\"", "\"traces\"")).is_err());
    }

    #[test]
    fn what_is_final_is_the_networks_tag_and_never_near_the_newest_block() {
        for network in networks() {
            // Below what an honest tag leaves, except Polygon's, whose milestones are seconds behind.
            let confirmations = match stack(network.chain) {
                Stack::Ethereum => 32,
                Stack::Op => 150,
                Stack::Polygon => 50,
            };
            let rule = FinalityRule { confirmations, ..FinalityRule::FINALIZED };
            assert_eq!(network.finality, Finality { rule, tiers: Vec::new() }, "{}", network.chain);
        }
    }

    #[test]
    fn a_token_may_begin_at_a_block() {
        let text = FILES[0].replacen("decimals = 6", "decimals = 6\nfrom = 6082465", 1);
        let from = parse(&text).unwrap().0.assets.into_iter().map(|asset| asset.from_block);
        assert_eq!(from.collect::<Vec<_>>(), [0, 6_082_465, 0, 0]);
    }

    #[test]
    fn a_token_is_sent_by_the_route_that_its_file_names_with_the_domain_of_its_contract() {
        let route = |text: &str| parse(text).map(|(network, _)| network.assets[1].route.clone());
        let erc3009 = Route::Erc3009 { name: "USD Coin".to_owned(), version: "2".to_owned() };
        assert_eq!(route(FILES[0]).unwrap(), Some(erc3009));
        let (key, domain) = ("route = \"erc3009\"\n", "domain = { name = \"USD Coin\", version = \"2\" }\n");
        let without = |left_out: &str| FILES[0].replacen(left_out, "", 1);
        assert_eq!(route(&without(&format!("{key}{domain}"))).unwrap(), None);
        for half in [without(key), without(domain)] {
            let error = route(&half).unwrap_err().to_string();
            assert_eq!(
                error,
                "0xA0b86991c6218b36c1d19D4a2e9Eb0cE3606eB48: a route needs its domain, and a domain its route"
            );
        }
        assert!(route(&FILES[0].replacen("erc3009", "permit", 1)).is_err());
        assert!(route(&FILES[0].replacen(", version = \"2\"", "", 1)).is_err());
    }

    #[test]
    fn the_native_currency_and_usdt_are_sent_by_the_delegate_that_is_published_for_the_network() {
        let published = "metamask 0x63c0c19a282a1B52b07dD5a65b58948A07DAE32B \
                         0xdb9B1e94B5b69Df7e401DDbedE43491141047dB3 0xC8B5D93463c893401094cc70e66A206fb5987997 \
                         0x1046bb45C8d673d4ea75321280DB34899413c069 0x146713078D39eCC1F5338309c28405ccf85Abfbb";
        for network in networks() {
            let route = network.assets[0].route.clone().unwrap();
            assert_eq!(route.to_string(), format!("delegate {published}"), "{}", network.chain);
            assert_eq!(network.delegates.iter().copied().map(Route::Delegate).collect::<Vec<_>>(), [route]);
        }
        let usdt = networks()[0].assets.iter().find(|asset| asset.symbol == "USDT").unwrap().route.clone();
        assert_eq!(usdt, networks()[0].assets[0].route);
        let twice = &FILES[0][FILES[0].find("[[delegates]]").unwrap()..FILES[0].find("# Circle's and").unwrap()];
        let error = parse(&format!("{}\n{twice}", FILES[0])).unwrap_err().to_string();
        assert_eq!(error, "delegate metamask is listed twice");
    }

    #[test]
    fn a_route_by_a_delegate_needs_the_delegate_of_the_file() {
        let usdt = "decimals = 6\nroute = \"delegate\"";
        let start = FILES[0].find("[[delegates]]").unwrap();
        let end = FILES[0].find("# Circle's and Tether's").unwrap();
        let without = FILES[0].replace(&FILES[0][start..end], "");
        for (text, expected) in [
            (without.clone(), "ETH: this route needs the network's delegate, and no domain"),
            (
                without.replacen("route = \"delegate\"\n", "", 1),
                "0xdAC17F958D2ee523a2206206994597C13D831ec7: this route needs",
            ),
            (
                FILES[0].replacen(usdt, &format!("{usdt}\ndomain = {{ name = \"A\", version = \"1\" }}"), 1),
                "0xdAC17F958D2ee523a2206206994597C13D831ec7: this route needs",
            ),
            (FILES[0].replacen("route = \"delegate\"", "route = \"erc3009\"", 1), "the native currency takes no"),
            (FILES[0].replacen("0xdb9B1e", "0xdB9B1e", 1), "is not in EIP-55"),
            (FILES[0].replacen("\"metamask\"", "\"calibur\"", 1), "unknown variant"),
        ] {
            assert_ne!(text, FILES[0], "{expected}");
            let error = parse(&text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn who_makes_a_block_is_offered_what_the_nodes_of_the_network_ask_for() {
        assert_eq!(tip_least(Chain::PolygonMainnet), 25_000_000_000);
        assert_eq!(tip_least(Chain::PolygonAmoy), 25_000_000_000);
        assert_eq!(tip_least(Chain::BaseMainnet), TIP_LEAST);
    }

    #[test]
    fn the_stacks_are_those_of_the_networks() {
        use Stack::{Ethereum, Op, Polygon};
        let stacks: Vec<Stack> = networks().into_iter().map(|network| stack(network.chain)).collect();
        assert_eq!(stacks, [Ethereum, Polygon, Ethereum, Op, Op, Op, Op, Polygon]);
        let unknown = FILES[0].replace("finality =", "stack = \"arbitrum\"\nfinality =");
        assert!(parse(&unknown).is_err());
    }

    #[test]
    fn a_file_with_a_doubtful_fact_is_refused() {
        let good = FILES[0].replace("confirmations = 32\n", "");
        let finality = "finality = \"finalized\"";
        let confirmations = good.replace(finality, "finality = \"confirmations\"\nconfirmations = 12");
        assert_eq!(parse(&confirmations).unwrap().0.finality.rule, FinalityRule::confirmations(12));
        assert_eq!(parse(&good.replace(finality, "finality = \"safe\"")).unwrap().0.finality.rule, FinalityRule::SAFE);
        let both = good.replace(finality, "finality = \"finalized\"\nconfirmations = 12");
        let rule = parse(&both).unwrap().0.finality.rule;
        assert_eq!(rule, FinalityRule { tag: Some(Tag::Finalized), confirmations: 12, l1_blocks: 0 });
        let l1 = good.replace(finality, "finality = \"safe\"\nl1_blocks = 12");
        assert_eq!(parse(&l1).unwrap().0.finality.rule, FinalityRule { l1_blocks: 12, ..FinalityRule::SAFE });
        let tiers =
            "\n[[tiers]]\nasset = \"USDC\"\nup_to = \"1000000000\"\nfinality = \"confirmations\"\nconfirmations = 3\n";
        let tier = parse(&format!("{good}{tiers}")).unwrap().0.finality.tiers.remove(0);
        assert_eq!((tier.up_to, tier.rule), (U256::from(1_000_000_000), FinalityRule::confirmations(3)));
        for (from, to) in [
            (finality, "finality = \"confirmations\""),
            (finality, "finality = \"finalized\"\nconfirmations = 0"),
            (finality, "finality = \"finalized\"\nl1_blocks = 12"),
            (finality, "finality = \"finalized\"\n[[tiers]]\nasset = \"X\"\nup_to = \"1\"\nfinality = \"safe\""),
            (finality, "finality = \"finalized\"\n[[tiers]]\nasset = \"ETH\"\nup_to = \"1.5\"\nfinality = \"safe\""),
            (finality, "finality = \"latest\""),
            ("chain_id = 1", "chain_id = 1\nsymbol = \"X\""),
            ("chain_id = 1", "chain_id = -1"),
            ("genesis = \"0xd4", "genesis = \"0x"),
            ("0xA0b8", "0xa0b8"),
        ] {
            let text = good.replace(from, to);
            assert_ne!(text, good, "{from}");
            assert!(parse(&text).is_err(), "{to}");
        }
        let lower =
            good.replace("0xA0b86991c6218b36c1d19D4a2e9Eb0cE3606eB48", "0xa0b86991c6218b36c1d19d4a2e9eb0ce3606eb48");
        assert!(parse(&lower).unwrap_err().to_string().contains("write 0xA0b86991c6218b36c1d19D4a2e9Eb0cE3606eB48"));
    }
}
