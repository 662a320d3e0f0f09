//! The keys that only one family of chains has.
//!
//! Promises: a key that would mean nothing on its chain is refused, in one line that says what to do instead. If it
//! were ignored, an operator would believe that it counts.

use landfall_chain::{Address, BlockHash, Family, RuleName};

use crate::config::chain::ChainSection;

/// What is wrong with a genesis hash.
pub(super) const GENESIS: &str = "expected 32 bytes in base58, as getGenesisHash returns them";
/// The message for every other rule of finality.
const ONE_RULE: &str =
    "on Solana every deposit waits for finalized, the cluster's own commitment, which takes seconds; leave it out";
const BALANCES: &str = "on Solana balances show every movement of SOL; leave it out";

/// The first key of `section` that chains of `family` do not have, and what to do.
pub(super) fn foreign_key(family: Family, section: &ChainSection) -> Option<(String, &'static str)> {
    match family {
        Family::Evm => foreign_to_evm(section).or_else(|| program(section)).or_else(|| new_accounts(section)),
        Family::Solana => foreign_to_solana(section).or_else(|| route(section)),
    }
}

fn foreign_to_evm(section: &ChainSection) -> Option<(String, &'static str)> {
    first([
        (
            "genesis",
            section.genesis.is_some(),
            "it identifies clusters of Solana only; an EVM chain has its chain id, which is built in; leave it out",
        ),
        (
            "max_transaction_version",
            section.max_transaction_version.is_some(),
            "only Solana's nodes are asked up to a version; leave it out",
        ),
        (
            "wrapped",
            section.wrapped.is_some(),
            "it is about wrapped SOL; to credit a wrapped currency on an EVM chain, add its contract to assets",
        ),
    ])
}

fn new_accounts(section: &ChainSection) -> Option<(String, &'static str)> {
    let transfers = &section.transfers;
    let key = match (transfers.new_accounts_per_day, &transfers.new_account_least) {
        (Some(_), _) => "transfers.new_accounts_per_day",
        (None, Some(_)) => "transfers.new_account_least",
        (None, None) => return None,
    };
    Some((key.to_owned(), "only on Solana does a sponsor pay for accounts of tokens; leave it out"))
}

fn program(section: &ChainSection) -> Option<(String, &'static str)> {
    let index = section.assets.iter().position(|asset| asset.program.is_some())?;
    Some((format!("assets[{index}].program"), "only Solana has token programs; leave it out"))
}

fn route(section: &ChainSection) -> Option<(String, &'static str)> {
    if let Some(index) = section.assets.iter().position(|asset| asset.delegate) {
        return Some((format!("assets[{index}].delegate"), "only wallets of EVM chains have delegates; leave it out"));
    }
    let index = section.assets.iter().position(|asset| asset.erc3009.is_some())?;
    Some((format!("assets[{index}].erc3009"), "only contracts of EVM chains take such signatures; leave it out"))
}

fn foreign_to_solana(section: &ChainSection) -> Option<(String, &'static str)> {
    first([
        (
            "transfers.in_flight",
            section.transfers.in_flight.is_some(),
            "transactions of Solana have no nonces that wait for each other; leave it out",
        ),
        (
            "transfers.max_fee_gwei",
            section.transfers.max_fee_gwei.is_some(),
            "gas is paid for on EVM chains only; leave it out",
        ),
        (
            "transfers.max_cost_usd",
            section.transfers.max_cost_usd.is_some(),
            "what an attempt costs on Solana is bounded by the program itself; leave it out",
        ),
        (
            "transfers.bump_after_blocks",
            section.transfers.bump_after_blocks.is_some(),
            "on Solana each attempt offers more than the one before; leave it out",
        ),
        (
            "proof",
            section.proof.is_some(),
            "Solana's blocks are read whole, and one that credits is compared between two endpoints where two are \
             configured; leave it out",
        ),
        ("own_delegate", section.own_delegate.is_some(), "only wallets of EVM chains have delegates; leave it out"),
        ("native", section.native.is_some(), BALANCES),
        ("eip7708_from", section.eip7708_from.is_some(), BALANCES),
        ("finality", section.finality.is_some_and(|name| name != RuleName::Finalized), ONE_RULE),
        ("confirmations", section.confirmations.is_some(), ONE_RULE),
        ("l1_blocks", section.l1_blocks.is_some(), ONE_RULE),
        ("tiers", !section.tiers.is_empty(), ONE_RULE),
    ])
}

/// The first key that is set.
fn first<const N: usize>(keys: [(&str, bool, &'static str); N]) -> Option<(String, &'static str)> {
    keys.into_iter().find(|(_, is_set, _)| *is_set).map(|(key, _, what)| (key.to_owned(), what))
}

/// Reads a genesis hash.
pub(super) fn genesis(text: &str) -> Option<BlockHash> {
    match Address::parse(Family::Solana, text) {
        Ok(Address::Solana(bytes)) => Some(BlockHash(bytes)),
        Ok(Address::Evm(_)) | Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use landfall_chain::Chain;

    use super::*;
    use crate::config::{Config, DomainConfig, ProgramName, WrappedName};

    const MINE: &str = "9xQeWvG816bUx9EPjHmaT23yvVM2ZWbrrpZb9PusVFin";

    fn parse(chain: &str, keys: &str) -> Result<Config, String> {
        let text = format!("[chains.{chain}]\nrpc = [\"http://127.0.0.1:8899\"]\n{keys}\n");
        Config::parse("landfall.toml", &text, |_| None).map_err(|error| error.to_string())
    }

    #[test]
    fn the_keys_of_solana_are_read() {
        let asset = "[[chains.SOLANA_DEVNET.assets]]\nsymbol = \"PYUSD\"\ncontract = \"x\"\ndecimals = 6\nprogram = \"token_2022\"";
        let keys = format!(
            "genesis = \"{MINE}\"\nmax_transaction_version = 2\nwrapped = \"native\"\nfinality = \"finalized\"\n{asset}"
        );
        let config = parse("SOLANA_DEVNET", &keys).unwrap();
        let chain = &config.chains[&Chain::SolanaDevnet];
        assert_eq!(Address::Solana(chain.genesis.unwrap().0).to_string(), MINE);
        assert_eq!((chain.max_transaction_version, chain.wrapped), (Some(2), Some(WrappedName::Native)));
        assert_eq!(chain.assets[0].program, Some(ProgramName::Token2022));
        assert!(parse("SOLANA_MAINNET", "start = 7\nagree = 1\npoll_ms = 900").is_ok());
    }

    #[test]
    fn a_domain_of_signed_authorizations_is_read_whole_or_refused() {
        let read = |domain: &str| {
            let asset = "[[chains.BASE_MAINNET.assets]]\nsymbol = \"A\"\ncontract = \"x\"\ndecimals = 6";
            parse("BASE_MAINNET", &format!("{asset}\nerc3009 = {domain}"))
        };
        let config = read("{ name = \"A Coin\", version = \"1\" }").unwrap();
        let domain = DomainConfig { name: "A Coin".to_owned(), version: "1".to_owned() };
        assert_eq!(config.chains[&Chain::BaseMainnet].assets[0].erc3009, Some(domain));
        for domain in ["{ name = \"A\" }", "{ name = \"A\", version = \"1\", salt = \"x\" }", "true"] {
            assert!(read(domain).is_err(), "{domain}");
        }
    }

    #[test]
    fn a_genesis_hash_that_is_no_hash_is_refused() {
        let hex = format!("0x{}", "ab".repeat(32));
        for text in ["", "mainnet-beta", &MINE[2..], "0OIl", &hex] {
            let error = parse("SOLANA_MAINNET", &format!("genesis = \"{text}\"")).unwrap_err();
            assert_eq!(error, format!("config key chains.SOLANA_MAINNET.genesis: {GENESIS}"));
        }
    }

    #[test]
    fn a_key_of_another_family_is_refused_with_what_to_do_instead() {
        let tier = "[[chains.SOLANA_MAINNET.tiers]]\nasset = \"SOL\"\nup_to = \"7\"\nfinality = \"safe\"";
        let program =
            "[[chains.BASE_MAINNET.assets]]\nsymbol = \"A\"\ncontract = \"0x1\"\ndecimals = 6\nprogram = \"spl_token\"";
        let erc3009 = "[[chains.SOLANA_MAINNET.assets]]\nsymbol = \"A\"\ncontract = \"x\"\ndecimals = 6\n\
                       erc3009 = { name = \"A\", version = \"1\" }";
        let delegate =
            "[[chains.SOLANA_MAINNET.assets]]\nsymbol = \"A\"\ncontract = \"x\"\ndecimals = 6\ndelegate = true";
        let genesis = format!("genesis = \"{MINE}\"");
        let cases = [
            ("SOLANA_MAINNET", "proof = \"receipts\"", "proof", "compared between two endpoints"),
            ("SOLANA_MAINNET", "native = \"trace\"", "native", BALANCES),
            ("SOLANA_MAINNET", "eip7708_from = 7", "eip7708_from", BALANCES),
            ("SOLANA_MAINNET", "finality = \"safe\"", "finality", ONE_RULE),
            ("SOLANA_MAINNET", "finality = \"finalized\"\nconfirmations = 3", "confirmations", ONE_RULE),
            ("SOLANA_MAINNET", "l1_blocks = 3", "l1_blocks", ONE_RULE),
            ("SOLANA_MAINNET", tier, "tiers", ONE_RULE),
            ("SOLANA_MAINNET", delegate, "assets[0].delegate", "only wallets of EVM chains have delegates"),
            ("SOLANA_MAINNET", "own_delegate = \"x\"", "own_delegate", "only wallets of EVM chains have delegates"),
            ("BASE_MAINNET", "own_delegate = \"0x1\"", "own_delegate", "expected 0x and 40 hexadecimal digits"),
            ("SOLANA_MAINNET", erc3009, "assets[0].erc3009", "only contracts of EVM chains take such signatures"),
            ("BASE_MAINNET", &genesis, "genesis", "an EVM chain has its chain id, which is built in; leave it out"),
            ("BASE_MAINNET", "max_transaction_version = 1", "max_transaction_version", "leave it out"),
            ("BASE_MAINNET", "wrapped = \"token\"", "wrapped", "add its contract to assets"),
            ("BASE_MAINNET", program, "assets[0].program", "only Solana has token programs; leave it out"),
        ];
        for (chain, keys, key, what) in cases {
            let error = parse(chain, keys).unwrap_err();
            assert!(error.starts_with(&format!("config key chains.{chain}.{key}: ")), "{error}");
            assert!(error.contains(what) && !error.contains('\n'), "{error}");
        }
    }
}
