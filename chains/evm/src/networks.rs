//! The EVM networks, embedded: one file per network in `networks/`.
//!
//! Promises: every EVM chain of the interface has exactly one, and each file says only what is known to this
//! version (an unknown key is an error). Contracts are written in EIP-55 and refused otherwise.
//! A new token of Circle's, or a new network of the interface, is a change to these files and to no code.

use std::sync::LazyLock;

use landfall_chain::{
    Address, Asset, AssetId, Chain, Family, Finality, FinalityRule, Native, NativeSource, Network, RuleError, RuleName,
    Tier, U256,
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
    static STACKS: LazyLock<Vec<(Chain, Stack)>> =
        LazyLock::new(|| facts().map(|(network, stack)| (network.chain, stack)).collect());
    STACKS.iter().find(|(other, _)| *other == chain).map_or_else(Stack::default, |(_, stack)| *stack)
}

fn facts() -> impl Iterator<Item = (Network, Stack)> {
    FILES.into_iter().map(|text| parse(text).expect("embedded, and every file is parsed by a test"))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    chain: Chain,
    chain_id: u64,
    block_time_ms: u64,
    #[serde(default)]
    stack: Stack,
    finality: RuleName,
    confirmations: Option<u64>,
    l1_blocks: Option<u64>,
    #[serde(default)]
    tiers: Vec<TierKeys>,
    native: Currency,
    #[serde(default)]
    assets: Vec<Token>,
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
}

fn parse(text: &str) -> Result<(Network, Stack), FileError> {
    let file: File = toml::from_str(text)?;
    let rule = FinalityRule::of_keys(file.finality, file.confirmations, file.l1_blocks)?;
    let Currency { symbol, decimals, source, eip7708_from } = file.native;
    let mut assets = vec![Asset { id: AssetId::Native, symbol, decimals, from_block: 0 }];
    for Token { symbol, contract: text, decimals, from } in file.assets {
        assets.push(Asset { id: contract(&text)?, symbol, decimals, from_block: from });
    }
    let tiers = file.tiers.into_iter().map(|keys| tier(keys, &assets)).collect::<Result<_, _>>()?;
    let network = Network {
        chain: file.chain,
        chain_ref: format!("eip155:{}", file.chain_id),
        block_time_ms: file.block_time_ms,
        finality: Finality { rule, tiers },
        native: Native { source: source.into(), eip7708_from },
        wrapped: None,
        assets,
    };
    Ok((network, file.stack))
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
    let refused = |reason: String| FileError::Contract { contract: text.to_owned(), reason };
    let address = Address::parse(Family::Evm, text).map_err(|error| refused(error.to_string()))?;
    let canonical = address.to_string();
    if canonical == text { Ok(AssetId::Token(address)) } else { Err(refused(format!("write {canonical}"))) }
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
            assert_eq!(parse(&text).unwrap(), (network(chain).unwrap(), stack(chain)));
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
