//! The keys that only Solana has in the configuration of a chain. `config` refuses them for chains of another family.

use landfall_chain::{Address, Asset, AssetId, Chain, Network, Route};
use landfall_solana::{Options, Timings, TokenProgram, WRAPPED_SOL, Wrapped};

use crate::app::{StartError, network};
use crate::config::{AssetConfig, ChainConfig, ProgramName, WrappedName};

/// What an operator should know of an asset that is not listed on `chain`; nothing of most.
pub fn note_on(chain: Chain, asset: &AssetId) -> Option<String> {
    let is_wrapped_sol = matches!(asset, AssetId::Token(mint @ Address::Solana(_)) if mint.to_string() == WRAPPED_SOL);
    is_wrapped_sol.then(|| {
        format!("wrapped SOL: list its mint in chains.{chain}.assets, or set chains.{chain}.wrapped = \"native\"")
    })
}

/// The options of a Solana cluster from the configuration; the default for chains of another family.
pub(super) fn options(network: &Network, config: &ChainConfig) -> Result<Options, StartError> {
    let chain = network.chain;
    let wrong = |key: &str, what: String| StartError::Key { chain, key: key.to_owned(), what };
    let other = Chain::ALL.into_iter().find(|other| {
        *other != chain && config.genesis.is_some() && landfall_solana::genesis(*other) == config.genesis
    });
    if let Some(other) = other {
        let what = format!("this is the genesis hash of {other}; follow it as [chains.{other}]");
        return Err(wrong("genesis", what));
    }
    let is_wrapped_sol = |asset: &Asset| matches!(asset.id, AssetId::Token(mint) if mint.to_string() == WRAPPED_SOL);
    if config.wrapped == Some(WrappedName::Native) && network.assets.iter().any(is_wrapped_sol) {
        let what = "wrapped SOL cannot be SOL and an asset of its own; leave this out, or its mint out of assets";
        return Err(wrong("wrapped", what.to_owned()));
    }
    let program_of = |asset: &AssetConfig| {
        let mint = Address::parse(chain.family(), &asset.contract).ok()?;
        Some((AssetId::Token(mint), program(asset.program?)))
    };
    Ok(Options {
        genesis: config.genesis,
        max_transaction_version: config.max_transaction_version,
        wrapped: config.wrapped.map(|name| match name {
            WrappedName::Token => Wrapped::Token,
            WrappedName::Native => Wrapped::Native,
        }),
        programs: config.assets.iter().filter_map(program_of).collect(),
        poll: network::poll(network, config),
        timings: Timings::PRODUCTION,
    })
}

/// How a mint that this program keeps is sent.
pub(super) fn route(name: ProgramName, decimals: u8) -> Route {
    program(name).route(decimals)
}

fn program(name: ProgramName) -> TokenProgram {
    match name {
        ProgramName::SplToken => TokenProgram::SplToken,
        ProgramName::Token2022 => TokenProgram::Token2022,
    }
}

#[cfg(test)]
mod tests {
    use landfall_chain::{BlockHash, Family, ReadProof};

    use super::*;
    use crate::app::source;
    use crate::app::{AnyChain, network::network};
    use crate::config::Config;

    const DEVNET: Chain = Chain::SolanaDevnet;

    /// A chain of Solana with an endpoint and these keys.
    fn config(keys: &str) -> ChainConfig {
        let text = format!("[chains.SOLANA_DEVNET]\nrpc = [\"http://a\", \"https://b\"]\n{keys}\n");
        let mut config = Config::parse("landfall.toml", &text, |_| None).unwrap();
        config.chains.remove(&DEVNET).unwrap()
    }

    fn options_of(keys: &str) -> Result<Options, String> {
        let config = config(keys);
        options(&network(DEVNET, &config).unwrap(), &config).map_err(|error| error.to_string())
    }

    #[test]
    fn solana_is_read_by_one_endpoints_word_until_a_block_credits() {
        let mine = "[[chains.SOLANA_DEVNET.assets]]\nsymbol = \"MINE\"\ndecimals = 6\n\
                    contract = \"9xQeWvG816bUx9EPjHmaT23yvVM2ZWbrrpZb9PusVFin\"";
        let config = config(mine);
        let (source, network) = source(DEVNET, &config).unwrap();
        assert!(matches!(source, AnyChain::Solana(_)));
        assert_eq!(network.assets.last().unwrap().symbol, "MINE");
        assert_eq!(network::settings(&network, &config).proof, ReadProof::Candidate);
    }

    #[test]
    fn a_cluster_of_ones_own_has_a_genesis_hash_of_its_own_and_keeps_the_networks_name() {
        let of = |genesis: BlockHash| config(&format!("genesis = {:?}", genesis.text(Family::Solana)));
        let theirs = landfall_solana::genesis(Chain::SolanaMainnet).unwrap();
        let refused = source(DEVNET, &of(theirs)).unwrap_err().to_string();
        let expected = "config key chains.SOLANA_DEVNET.genesis: this is the genesis hash of SOLANA_MAINNET; follow it as \
                        [chains.SOLANA_MAINNET]";
        assert_eq!(refused, expected);
        let mine = BlockHash([7; 32]);
        let config = of(mine);
        let (_, network) = source(DEVNET, &config).unwrap();
        assert_eq!(network.chain_ref, landfall_solana::network(DEVNET).unwrap().chain_ref);
        assert_eq!(options(&network, &config).unwrap().genesis, Some(mine));
    }

    #[test]
    fn wrapped_sol_is_sol_or_an_asset_and_never_both() {
        let listed = format!(
            "[[chains.SOLANA_DEVNET.assets]]\nsymbol = \"WSOL\"\ndecimals = 9\ncontract = \"{WRAPPED_SOL}\"\n\
             program = \"spl_token\""
        );
        assert_eq!(
            options_of(&format!("wrapped = \"native\"\n{listed}")).unwrap_err(),
            "config key chains.SOLANA_DEVNET.wrapped: wrapped SOL cannot be SOL and an asset of its own; leave this out, or its \
             mint out of assets"
        );
        let options = options_of(&format!("wrapped = \"token\"\n{listed}")).unwrap();
        assert_eq!((options.wrapped, options.programs.len()), (Some(Wrapped::Token), 1));
    }

    #[test]
    fn the_transaction_version_that_is_asked_for_is_the_configurations() {
        let asked = |keys| options_of(keys).unwrap().max_transaction_version;
        let asked = ["", "max_transaction_version = 0", "max_transaction_version = 3"].map(asked);
        assert_eq!(asked, [None, Some(0), Some(3)]);
    }
}
