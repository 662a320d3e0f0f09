//! The Solana networks, embedded: one file per network in `networks/`.
//!
//! Promises: every Solana chain of the interface has exactly one file. A file has only keys that this version knows; an
//! unknown key is an error. The CAIP-2 reference follows from the genesis hash: its first 32 characters.
//! A new token is a change to a file, and to no code beside tests.

use landfall_chain::{
    Address, Asset, AssetId, BlockHash, Chain, Family, Finality, FinalityRule, Native, Network, Route, RuleError,
    RuleName, Sending,
};
use serde::Deserialize;

use crate::ata::TokenProgram;
use crate::base58;
use crate::rules::{WRAPPED_SOL, Wrapped};

const FILES: [&str; 2] =
    [include_str!("../networks/solana_mainnet.toml"), include_str!("../networks/solana_devnet.toml")];
/// CAIP-2 allows a reference of 32 characters.
const REFERENCE_CHARS: usize = 32;

/// The embedded networks, in the order of the interface.
pub fn networks() -> Vec<Network> {
    facts().map(|facts| facts.network).collect()
}

/// The embedded network of `chain`; `None` for a chain of another family.
pub fn network(chain: Chain) -> Option<Network> {
    networks().into_iter().find(|network| network.chain == chain)
}

/// What an endpoint of `chain` must name as its genesis hash; `None` for a chain of another family.
pub fn genesis(chain: Chain) -> Option<BlockHash> {
    of(chain).map(|facts| facts.genesis)
}

/// What a network's file says beside what every chain has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Facts {
    pub(crate) network: Network,
    pub(crate) genesis: BlockHash,
    pub(crate) wrapped: Wrapped,
    /// The program of each listed mint.
    pub(crate) programs: Vec<(AssetId, TokenProgram)>,
}

/// The embedded facts of `chain`.
pub(crate) fn of(chain: Chain) -> Option<Facts> {
    facts().find(|facts| facts.network.chain == chain)
}

fn facts() -> impl Iterator<Item = Facts> {
    FILES.into_iter().map(|text| parse(text).expect("embedded, and every file is parsed by a test"))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    chain: Chain,
    genesis: String,
    block_time_ms: u64,
    finality: RuleName,
    native: Currency,
    #[serde(default)]
    assets: Vec<Token>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Currency {
    symbol: String,
    decimals: u8,
    wrapped: Wrapped,
    route: Option<RouteName>,
    first_cost: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum RouteName {
    Guard,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Token {
    symbol: String,
    mint: String,
    program: TokenProgram,
    decimals: u8,
    /// The first slot in which the mint is this asset.
    #[serde(default)]
    from: u64,
    route: Option<RouteName>,
}

#[derive(Debug, thiserror::Error)]
enum FileError {
    #[error(transparent)]
    Toml(#[from] toml::de::Error),
    #[error(transparent)]
    Rule(#[from] RuleError),
    #[error("{0:?} is not 32 bytes in base58")]
    Key(String),
}

fn parse(text: &str) -> Result<Facts, FileError> {
    let file: File = toml::from_str(text)?;
    let genesis = base58::key(&file.genesis).ok_or_else(|| FileError::Key(file.genesis.clone()))?;
    let reference: String = file.genesis.chars().take(REFERENCE_CHARS).collect();
    let Currency { symbol, decimals, wrapped, route, first_cost } = file.native;
    let route = route.map(|RouteName::Guard| Route::Guard { program: None, decimals });
    let mut assets = vec![Asset { id: AssetId::Native, symbol, decimals, from_block: 0, route }];
    let mut programs = Vec::with_capacity(file.assets.len());
    for Token { symbol, mint, program, decimals, from, route } in file.assets {
        let mint = Address::parse(Family::Solana, &mint).map_err(|_| FileError::Key(mint))?;
        let id = AssetId::Token(mint);
        let route = route.map(|RouteName::Guard| program.route(decimals));
        assets.push(Asset { id, symbol, decimals, from_block: from, route });
        programs.push((id, program));
    }
    let network = Network {
        chain: file.chain,
        chain_ref: format!("solana:{reference}"),
        block_time_ms: file.block_time_ms,
        finality: Finality::from(FinalityRule::of_keys(file.finality, None, None)?),
        // Balances show all of it: there is nothing to trace.
        native: Native::TOP_LEVEL,
        wrapped: Address::parse(Family::Solana, WRAPPED_SOL).ok().map(AssetId::Token),
        sending: Sending::usual(first_cost),
        delegates: Vec::new(),
        assets,
    };
    Ok(Facts { network, genesis: BlockHash(genesis), wrapped, programs })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_solana_chain_of_the_interface_has_one_network_under_its_name() {
        let solana: Vec<Chain> = Chain::ALL.into_iter().filter(|chain| chain.family() == Family::Solana).collect();
        assert_eq!(networks().iter().map(|network| network.chain).collect::<Vec<_>>(), solana);
        for chain in solana {
            let path = format!("{}/networks/{}.toml", env!("CARGO_MANIFEST_DIR"), chain.name().to_lowercase());
            assert_eq!(Some(parse(&std::fs::read_to_string(path).unwrap()).unwrap()), of(chain));
        }
        assert_eq!(network(Chain::BaseMainnet), None);
        assert_eq!(genesis(Chain::BaseMainnet), None);
    }

    #[test]
    fn the_facts_are_those_of_the_networks() {
        let cases = [
            (
                Chain::SolanaMainnet,
                "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp",
                "5eykt4UsFv8P8NJdTREpY1vzqKqZKvdpKuc147dw2N9d",
                "EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v",
            ),
            (
                Chain::SolanaDevnet,
                "solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1",
                "EtWTRABZaYq6iMfeYKouRu166VU2xqa1wcaWoxPkrZBG",
                "4zMMC9srt5Ri5X14GAgXhaHii3GnPAEERYPJgZJDncDU",
            ),
        ];
        for (chain, chain_ref, hash, usdc) in cases {
            let Facts { network, genesis, wrapped, programs } = of(chain).unwrap();
            assert_eq!((network.chain_ref.as_str(), Some(genesis.0)), (chain_ref, base58::key(hash)), "{chain}");
            assert_eq!(Some(genesis), super::genesis(chain));
            assert_eq!((network.finality.rule, wrapped), (FinalityRule::FINALIZED, Wrapped::Token));
            assert!(!network.native.is_traced(1), "{chain}");
            let assets: Vec<String> = network
                .assets
                .iter()
                .map(|asset| format!("{} {} {}", asset.symbol, asset.id, asset.decimals))
                .collect();
            assert_eq!(assets, ["SOL native 9".to_owned(), format!("USDC {usdc} 6")]);
            assert_eq!(programs, [(network.assets[1].id, TokenProgram::SplToken)]);
        }
    }

    #[test]
    fn a_file_with_a_doubtful_fact_is_refused() {
        for (from, to) in [
            ("wrapped = \"token\"", "wrapped = \"both\""),
            ("program = \"spl_token\"", "program = \"spl\""),
            ("program = \"spl_token\"\n", ""),
            ("finality =", "confirmations = 3\nfinality ="),
            ("finality = \"finalized\"", "finality = \"confirmations\""),
            ("genesis = \"5", "genesis = \"0"),
            ("mint = \"E", "mint = \"0"),
        ] {
            let wrong = FILES[0].replace(from, to);
            assert_ne!(wrong, FILES[0], "{from}");
            assert!(parse(&wrong).is_err(), "{to}");
        }
    }
}
