//! One network as it is configured: the built-in facts with what an operator adds, and how its watcher goes about it.
//!
//! Promises: adds to what is built in and never changes it. A key that contradicts it is refused, with what to write
//! instead.

use std::time::Duration;

use landfall_chain::{
    Address, Asset, AssetId, Chain, Delegate, Family, Finality, NativeSource, Network, ReadProof, Route, Sending, Tier,
};
use landfall_signer::Cap;

use crate::amount::{from_decimal, payable};
use crate::app::{StartError, any_chain, cluster};
use crate::config::{AssetConfig, CapConfig, ChainConfig, DomainConfig, TierConfig};
use crate::watcher::{Settings, block_stall};

/// A network's facts with what the configuration adds to them.
///
/// # Errors
/// A chain that is not built in, an asset that is there already.
pub fn network(chain: Chain, config: &ChainConfig) -> Result<Network, StartError> {
    let fault = |what: String| StartError::Chain { chain, what };
    let built_in = any_chain::built_in(chain);
    let mut network = built_in.ok_or_else(|| fault("this version does not follow this chain".to_owned()))?;
    network.delegates.extend(config.own_delegate.map(|implementation| Delegate::Own { implementation }));
    if config.own_delegate.is_some() && proof(chain, config) == ReadProof::Candidate {
        let what = "each wallet logs what it paid by it, and with proof = \"logs\" listed contracts alone are asked for; \
                    leave out one of the two";
        return Err(StartError::Key { chain, key: "own_delegate".to_owned(), what: what.to_owned() });
    }
    for asset in &config.assets {
        let contract = Address::parse(chain.family(), &asset.contract)
            .map_err(|error| StartError::AssetAddress { chain, error })?;
        let AssetConfig { symbol, decimals, from, program, .. } = asset.clone();
        let route = route(&network, asset).map_err(fault)?;
        let route = route.or_else(|| program.map(|program| cluster::route(program, decimals)));
        let asset = Asset { id: AssetId::Token(contract), symbol, decimals, from_block: from, route };
        // An asset that was added by hand may be built in by now, with a way to be sent that nobody had to write.
        if network.assets.iter().any(|known| is_built_in(known, &asset)) {
            continue;
        }
        if let Some(known) = network.assets.iter().find(|known| known.id == asset.id || known.symbol == asset.symbol) {
            return Err(fault(format!(
                "asset {} ({}) is there already; assets are added, never changed",
                known.symbol, known.id
            )));
        }
        network.assets.push(asset);
    }
    for (index, token) in config.retired.iter().enumerate() {
        if let Some(listed) = network.assets.iter().find(|asset| asset.id == AssetId::Token(*token)) {
            let what = format!("{} ({token}) is listed; take its entry in assets or this one out", listed.symbol);
            return Err(StartError::Key { chain, key: format!("retired[{index}]"), what });
        }
    }
    if let Some(rule) = config.finality {
        network.finality = Finality::from(rule);
    }
    if !config.tiers.is_empty() {
        network.finality.tiers = tiers(&network, config)?;
    }
    network.native.source = config.native.unwrap_or(network.native.source);
    network.native.eip7708_from = config.eip7708_from.or(network.native.eip7708_from);
    if network.native.source == NativeSource::LogTransfer && network.native.eip7708_from.is_some() {
        let what = "the native currency is read from the chain's log_transfer logs already; set native = \"trace\" or \
                    \"top_level\", or leave this out";
        return Err(StartError::Key { chain, key: "eip7708_from".to_owned(), what: what.to_owned() });
    }
    network.sending = sending(&network, config)?;
    caps(&network, config)?;
    Ok(network)
}

/// How transfers are sent.
fn sending(network: &Network, config: &ChainConfig) -> Result<Sending, StartError> {
    let (chain, keys, usual) = (network.chain, &config.transfers, network.sending);
    let wrong = |key: String, what: String| StartError::Key { chain, key, what };
    for (index, symbol) in keys.refuse.iter().enumerate() {
        if !network.assets.iter().any(|asset| asset.symbol == *symbol) {
            return Err(wrong(format!("transfers.refuse[{index}]"), format!("{symbol:?} is not listed")));
        }
    }
    let native = network.asset(&AssetId::Native);
    let amount = |key: &str, text: &str| {
        let native =
            native.ok_or_else(|| wrong(format!("transfers.{key}"), "no native currency is listed".to_owned()))?;
        let units = from_decimal(text, native.decimals).ok().and_then(|units| u128::try_from(units).ok());
        let expected = || format!("expected an amount of {}, as in \"0.05\"", native.symbol);
        units.ok_or_else(|| wrong(format!("transfers.{key}"), expected()))
    };
    let floor = keys.floor.as_ref().map_or(Ok(usual.floor), |text| amount("floor", text))?;
    let refill_to = match &keys.refill_to {
        Some(text) => amount("refill_to", text)?,
        None => floor.saturating_mul(Sending::REFILL_TIMES),
    };
    if keys.refill_to.is_some() && refill_to <= floor {
        let what = "expected more than floor: else each refill is followed by another";
        return Err(wrong("transfers.refill_to".to_owned(), what.to_owned()));
    }
    let new_account_least = match &keys.new_account_least {
        Some(text) => from_decimal(text, Sending::LEAST_DECIMALS)
            .ok()
            .and_then(|least| u64::try_from(least).ok())
            .ok_or_else(|| {
                let what = format!("{text:?} is not an amount of a token as text, for example \"1\" or \"0.5\"");
                wrong("transfers.new_account_least".to_owned(), what)
            })?,
        None => usual.new_account_least,
    };
    Ok(Sending {
        first_cost: usual.first_cost,
        floor,
        refill_to,
        raise_after_blocks: keys.raise_after_blocks.unwrap_or(usual.raise_after_blocks),
        in_flight: keys.in_flight.unwrap_or(usual.in_flight),
        max_cost_micro_usd: keys.max_cost.map(|most| most.0).or(usual.max_cost_micro_usd),
        max_fee: keys.max_fee.or(usual.max_fee),
        new_accounts_per_day: keys.new_accounts_per_day.unwrap_or(usual.new_accounts_per_day),
        new_account_least,
        clears_delegates: usual.clears_delegates,
        guard_retention_hours: keys.guard_retention_hours.unwrap_or(usual.guard_retention_hours),
        shows_each_cost: chain.family() == Family::Solana || proof(chain, config) == ReadProof::Full,
    })
}

/// How much the signer signs of which assets.
///
/// # Errors
/// A symbol that is not listed, and what is no amount of its asset.
pub(super) fn caps(network: &Network, config: &ChainConfig) -> Result<Vec<(AssetId, Cap)>, StartError> {
    let of_key = |(symbol, keys): (&String, &CapConfig)| {
        let wrong = |key: String, what: String| StartError::Key { chain: network.chain, key, what };
        let at = format!("transfers.caps.{symbol}");
        let asset = network.assets.iter().find(|asset| asset.symbol == *symbol);
        let asset = asset.ok_or_else(|| wrong(at.clone(), "it is not listed".to_owned()))?;
        let most = |key: &str, text: &Option<String>| {
            let units = text.as_deref().map(|text| payable(text, asset.decimals)).transpose();
            let expected = format!("expected an amount of {symbol} above 0, as in \"2500\"");
            units.map_err(|_| wrong(format!("{at}.{key}"), expected))
        };
        Ok((asset.id, Cap { transfer: most("transfer", &keys.transfer)?, day: most("day", &keys.day)? }))
    };
    config.transfers.caps.iter().map(of_key).collect()
}

/// How an asset of the configuration is sent.
fn route(network: &Network, asset: &AssetConfig) -> Result<Option<Route>, String> {
    let AssetConfig { symbol, erc3009, delegate, .. } = asset;
    match (erc3009, delegate) {
        (Some(DomainConfig { name, version }), false) => {
            Ok(Some(Route::Erc3009 { name: name.clone(), version: version.clone() }))
        }
        (Some(_), true) => Err(format!("asset {symbol} is sent in one way: take out erc3009 or delegate")),
        (None, true) => match network.delegates.first() {
            Some(delegate) => Ok(Some(Route::Delegate(*delegate))),
            None => Err(format!("asset {symbol} cannot be sent by a delegate: none is listed for this network")),
        },
        (None, false) => Ok(None),
    }
}

/// Whether `added` is `known`. How it is sent never changes, but need not be said again.
fn is_built_in(known: &Asset, added: &Asset) -> bool {
    let route = added.route.clone().or_else(|| known.route.clone());
    *known == Asset { route, ..added.clone() }
}

/// The tiers of the configuration. A tier that waits for no less than every deposit does would never count.
fn tiers(network: &Network, config: &ChainConfig) -> Result<Vec<Tier>, StartError> {
    let of_key = |(index, tier): (usize, &TierConfig)| {
        let wrong = |key: &str, what: String| StartError::Key {
            chain: network.chain,
            key: format!("tiers[{index}].{key}"),
            what,
        };
        let asset = network.assets.iter().find(|asset| asset.symbol == tier.symbol).ok_or_else(|| {
            let listed: Vec<&str> = network.assets.iter().map(|asset| asset.symbol.as_str()).collect();
            wrong("asset", format!("{:?} is not listed; expected one of {}", tier.symbol, listed.join(", ")))
        })?;
        if tier.rule.implies(&network.finality.rule) {
            let what =
                "it waits for no less than every deposit does, so it would never count; ask for less, or leave it out";
            return Err(wrong("finality", what.to_owned()));
        }
        Ok(Tier { asset: asset.id, up_to: tier.up_to, rule: tier.rule })
    };
    config.tiers.iter().enumerate().map(of_key).collect()
}

fn proof(chain: Chain, config: &ChainConfig) -> ReadProof {
    config.proof.unwrap_or_else(|| any_chain::usual_proof(chain.family()))
}

pub(super) fn settings(network: &Network, config: &ChainConfig) -> Settings {
    Settings {
        start: config.start,
        proof: proof(network.chain, config),
        poll: poll(network, config),
        failed_grace: Duration::from_secs(config.failed_grace_secs),
        finality_stall: config.finality_stall_secs.map(Duration::from_secs),
        block_stall: match config.block_stall_secs {
            Some(0) => None,
            Some(secs) => Some(Duration::from_secs(secs)),
            None => Some(block_stall(network)),
        },
    }
}

pub(super) fn poll(network: &Network, config: &ChainConfig) -> Duration {
    config.poll_ms.map_or_else(|| any_chain::usual_poll(network), Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use landfall_chain::{FinalityRule, Native, U256};

    use super::*;
    use crate::app::source;
    use crate::config::SendingConfig;
    use crate::watcher::Start;

    const MINE: &str = "0x5fd84259d66Cd46123540766Be93DFE6D43130D7";

    /// A configuration with one asset of its own and a tier for it.
    fn config(symbol: &str, contract: &str) -> ChainConfig {
        let asset = AssetConfig {
            symbol: symbol.to_owned(),
            contract: contract.to_owned(),
            decimals: 6,
            from: 0,
            program: None,
            erc3009: None,
            delegate: false,
        };
        let (rpc, assets) = (Vec::new(), vec![asset]);
        let start = Start::Finalized;
        let tier = TierConfig { symbol: symbol.to_owned(), up_to: U256::from(7), rule: FinalityRule::confirmations(1) };
        ChainConfig {
            rpc,
            agree: None,
            start,
            proof: None,
            finality: Some(FinalityRule::SAFE),
            tiers: vec![tier],
            native: Some(NativeSource::TopLevel),
            eip7708_from: Some(7),
            genesis: None,
            max_transaction_version: None,
            wrapped: None,
            own_delegate: None,
            poll_ms: None,
            failed_grace_secs: 1,
            finality_stall_secs: None,
            block_stall_secs: None,
            balances_per_sec: None,
            assets,
            retired: Vec::new(),
            transfers: SendingConfig::default(),
        }
    }

    fn with_asset(chain: Chain, symbol: &str, contract: &str) -> Result<Network, String> {
        network(chain, &config(symbol, contract)).map_err(|error| error.to_string())
    }

    #[test]
    fn how_transfers_are_sent_is_the_networks_but_for_what_an_operator_changes() {
        let with = |transfers| network(Chain::BaseMainnet, &ChainConfig { transfers, ..config("MINE", MINE) });
        let usual = Sending::usual(5_000_000_000_000);
        let usual = Sending { raise_after_blocks: 8, max_cost_micro_usd: Some(5_000_000), ..usual };
        assert_eq!(with(SendingConfig::default()).unwrap().sending, usual);
        assert_eq!(usual.floor, 500_000_000_000_000, "a hundred transfers");
        assert_eq!(
            usual.floor_with(U256::from(7)),
            U256::from(500_000_000_000_700_u64),
            "and what a rollup takes of them"
        );
        let changed = SendingConfig {
            refuse: vec!["ETH".to_owned()],
            in_flight: Some(4),
            max_fee: Some(50_000_000_000),
            max_cost: Some("0.7".parse().unwrap()),
            raise_after_blocks: Some(2),
            floor: Some("0.05".to_owned()),
            refill_to: Some("0.2".to_owned()),
            new_accounts_per_day: None,
            new_account_least: Some("0.5".to_owned()),
            caps: BTreeMap::new(),
            guard_retention_hours: Some(30),
        };
        let sending = with(changed).unwrap().sending;
        let floor = 50_000_000_000_000_000;
        let (max_fee, guard_retention_hours) = (Some(50_000_000_000), 30);
        let max_cost_micro_usd = Some(700_000);
        let changed = Sending { floor, refill_to: 4 * floor, raise_after_blocks: 2, in_flight: 4, max_fee, ..usual };
        let new_account_least = 500_000;
        let expected = Sending { max_cost_micro_usd, guard_retention_hours, new_account_least, ..changed };
        assert_eq!(sending, expected);
        let higher = SendingConfig { floor: Some("0.05".to_owned()), ..Default::default() };
        assert_eq!(with(higher).unwrap().sending.refill_to, 5 * floor, "five times the floor");
        for (transfers, key, what) in [
            (
                SendingConfig { refuse: vec!["DOGE".to_owned()], ..Default::default() },
                "transfers.refuse[0]",
                "not listed",
            ),
            (
                SendingConfig { new_account_least: Some("-1".to_owned()), ..Default::default() },
                "transfers.new_account_least",
                "is not an amount of a token",
            ),
            (
                SendingConfig { floor: Some("much".to_owned()), ..Default::default() },
                "transfers.floor",
                "an amount of ETH",
            ),
            (
                SendingConfig { refill_to: Some("1e3".to_owned()), ..Default::default() },
                "transfers.refill_to",
                "an amount of ETH",
            ),
            (
                SendingConfig { floor: Some("1".to_owned()), refill_to: Some("1".to_owned()), ..Default::default() },
                "transfers.refill_to",
                "more than floor",
            ),
        ] {
            let refused = with(transfers).unwrap_err().to_string();
            assert!(refused.contains(key) && refused.contains(what), "{refused}");
        }
    }

    #[test]
    fn what_is_not_to_be_sent_is_followed_and_what_was_accepted_is_carried_all_the_same() {
        let with = |transfers| network(Chain::BaseMainnet, &ChainConfig { transfers, ..config("MINE", MINE) });
        let refusing = SendingConfig { refuse: vec!["USDC".to_owned(), "MINE".to_owned()], ..Default::default() };
        let refused = with(refusing).unwrap();
        assert_eq!(refused.assets, with(SendingConfig::default()).unwrap().assets);
        let usdc = refused.assets.iter().find(|asset| asset.symbol == "USDC").unwrap();
        assert!(usdc.route.is_some(), "a sender finds how it is sent");
    }

    #[test]
    fn caps_are_amounts_of_listed_assets() {
        let with = |symbol: &str, transfer: Option<&str>, day: Option<&str>| {
            let cap = CapConfig { transfer: transfer.map(str::to_owned), day: day.map(str::to_owned) };
            let transfers = SendingConfig { caps: BTreeMap::from([(symbol.to_owned(), cap)]), ..Default::default() };
            let config = ChainConfig { transfers, ..config("MINE", MINE) };
            let network = network(Chain::BaseMainnet, &config).map_err(|error| error.to_string())?;
            caps(&network, &config).map_err(|error| error.to_string())
        };
        let cap = Cap { transfer: Some(U256::from(2_500_000)), day: Some(U256::from(7_000_000)) };
        let [(AssetId::Token(_), found)] = with("USDC", Some("2.5"), Some("7")).unwrap()[..] else { panic!("one") };
        assert_eq!(found, cap);
        assert_eq!(with("ETH", None, None).unwrap(), [(AssetId::Native, Cap::default())]);
        for (symbol, transfer, day, expected) in [
            ("DOGE", None, None, "chains.BASE_MAINNET.transfers.caps.DOGE: it is not listed"),
            ("USDC", Some("0"), None, "chains.BASE_MAINNET.transfers.caps.USDC.transfer: expected an amount of USDC"),
            ("USDC", None, Some("1e3"), "chains.BASE_MAINNET.transfers.caps.USDC.day: expected an amount of USDC"),
            ("USDC", None, Some("0.0000001"), "chains.BASE_MAINNET.transfers.caps.USDC.day: expected an amount"),
        ] {
            let refused = with(symbol, transfer, day).unwrap_err();
            assert!(refused.contains(expected), "{refused}");
        }
    }

    #[test]
    fn keys_that_contradict_the_network_or_each_other_are_refused_with_what_to_write() {
        let built_in = |config: ChainConfig| ChainConfig { assets: Vec::new(), finality: None, ..config };
        let tier = |symbol: &str, rule| TierConfig { symbol: symbol.to_owned(), up_to: U256::from(7), rule };
        let tiered = |tier| ChainConfig { tiers: vec![tier], ..built_in(config("MINE", MINE)) };
        let logs = |native| ChainConfig { native, tiers: Vec::new(), ..built_in(config("MINE", MINE)) };
        let no_less =
            "it waits for no less than every deposit does, so it would never count; ask for less, or leave it out";
        let one_source = "the native currency is read from the chain's log_transfer logs already; set native = \"trace\" or \
                          \"top_level\", or leave this out";
        let as_all = FinalityRule { confirmations: 32, ..FinalityRule::FINALIZED };
        let more = FinalityRule { confirmations: 50, ..FinalityRule::FINALIZED };
        let cases = [
            (
                Chain::EthereumTestnet,
                tiered(tier("DAI", FinalityRule::SAFE)),
                "tiers[0].asset: \"DAI\" is not listed; expected one of ETH, USDC, EURC".to_owned(),
            ),
            (Chain::EthereumTestnet, tiered(tier("USDC", as_all)), format!("tiers[0].finality: {no_less}")),
            (Chain::EthereumTestnet, tiered(tier("USDC", more)), format!("tiers[0].finality: {no_less}")),
            (Chain::PolygonMainnet, logs(None), format!("eip7708_from: {one_source}")),
            (Chain::EthereumTestnet, logs(Some(NativeSource::LogTransfer)), format!("eip7708_from: {one_source}")),
        ];
        for (chain, config, expected) in cases {
            let error = network(chain, &config).unwrap_err().to_string();
            assert_eq!(error, format!("config key chains.{chain}.{expected}"));
        }
        let l1_blocks = FinalityRule { l1_blocks: 12, ..FinalityRule::SAFE };
        let rollup_only = ChainConfig { finality: Some(l1_blocks), ..logs(None) };
        let refused = source(Chain::EthereumTestnet, &rollup_only).unwrap_err().to_string();
        assert!(refused.contains("counts L1 blocks"), "{refused}");
    }

    #[test]
    fn the_configuration_adds_assets_and_sets_the_finality_and_the_native_source() {
        let network = with_asset(Chain::EthereumTestnet, "MINE", MINE).unwrap();
        let symbols: Vec<&str> = network.assets.iter().map(|asset| asset.symbol.as_str()).collect();
        assert_eq!(symbols, ["ETH", "USDC", "EURC", "MINE"]);
        assert_eq!(network.finality.rule, FinalityRule::SAFE);
        let tier = Tier { asset: network.assets[3].id, up_to: U256::from(7), rule: FinalityRule::confirmations(1) };
        assert_eq!(network.finality.tiers, [tier]);
        assert_eq!(network.native, Native { source: NativeSource::TopLevel, eip7708_from: Some(7) });
    }

    #[test]
    fn the_own_delegate_stands_behind_what_the_network_lists_and_needs_whole_blocks() {
        let chain = Chain::EthereumTestnet;
        let implementation = Address::parse(chain.family(), MINE).unwrap();
        let own = |proof| ChainConfig { own_delegate: Some(implementation), proof, ..config("MINE", MINE) };
        let built_in = landfall_evm::network(chain).unwrap();
        let network_of_own = network(chain, &own(None)).unwrap();
        let own_delegate = Delegate::Own { implementation };
        assert_eq!(network_of_own.delegates, [built_in.delegates[0], own_delegate]);
        assert_eq!(network_of_own.assets[0], built_in.assets[0], "the listed one is the first");
        let routes: Vec<Route> = network_of_own.routes(&network_of_own.assets[0]).collect();
        assert_eq!(routes, network_of_own.delegates.iter().copied().map(Route::Delegate).collect::<Vec<_>>());
        assert_eq!(network_of_own.routes(&network_of_own.assets[1]).count(), 1, "its own");
        let refused = network(chain, &own(Some(ReadProof::Candidate))).unwrap_err().to_string();
        assert!(refused.starts_with("config key chains.ETHEREUM_TESTNET.own_delegate: each wallet logs"), "{refused}");
    }

    #[test]
    fn an_asset_that_has_been_built_in_since_it_was_added_changes_nothing() {
        let built_in = landfall_evm::network(Chain::EthereumTestnet).unwrap().assets;
        let eurc = "0x08210F9170F89Ab7658F0B5E3fF39b0E03C594D4";
        assert_eq!(with_asset(Chain::EthereumTestnet, "EURC", eurc).unwrap().assets, built_in);
    }

    #[test]
    fn the_way_an_added_asset_is_sent_is_its_own_and_that_of_a_built_in_one_never_changes() {
        let usdc = "0x1c7D4B196Cb0C7B01d743Fbc6116a902379C7238";
        let of = |symbol: &str, contract: &str, name: &str| {
            let mut config = config(symbol, contract);
            config.assets[0].erc3009 = Some(DomainConfig { name: name.to_owned(), version: "2".to_owned() });
            network(Chain::EthereumTestnet, &config).map_err(|error| error.to_string())
        };
        let route = |name: &str| Some(Route::Erc3009 { name: name.to_owned(), version: "2".to_owned() });
        assert_eq!(of("MINE", MINE, "My Coin").unwrap().assets[3].route, route("My Coin"));
        let built_in = landfall_evm::network(Chain::EthereumTestnet).unwrap().assets;
        assert_eq!(built_in[1].route, route("USDC"));
        assert_eq!(with_asset(Chain::EthereumTestnet, "USDC", usdc).unwrap().assets, built_in, "it need not be said");
        assert_eq!(of("USDC", usdc, "USDC").unwrap().assets, built_in);
        let there =
            "asset USDC (0x1c7D4B196Cb0C7B01d743Fbc6116a902379C7238) is there already; assets are added, never changed";
        assert!(of("USDC", usdc, "USD Coin").unwrap_err().ends_with(there));
    }

    #[test]
    fn an_asset_that_is_there_already_is_refused_by_symbol_and_by_contract() {
        let usdc = "0x1c7D4B196Cb0C7B01d743Fbc6116a902379C7238";
        let there = "config key chains.ETHEREUM_TESTNET: asset USDC (0x1c7D4B196Cb0C7B01d743Fbc6116a902379C7238) is there already; \
                     assets are added, never changed";
        assert_eq!(with_asset(Chain::EthereumTestnet, "USDC", MINE).unwrap_err(), there);
        assert_eq!(with_asset(Chain::EthereumTestnet, "OTHER", usdc).unwrap_err(), there);
        let malformed = with_asset(Chain::EthereumTestnet, "MINE", "0x1").unwrap_err();
        assert_eq!(
            malformed,
            "config key chains.ETHEREUM_TESTNET.assets: malformed EVM address \"0x1\": expected 0x and 40 hexadecimal digits"
        );
    }

    #[test]
    fn a_token_that_is_listed_is_not_given_up() {
        let mine = Address::parse(Chain::EthereumTestnet.family(), MINE).unwrap();
        let usdc =
            Address::parse(Chain::EthereumTestnet.family(), "0x1c7D4B196Cb0C7B01d743Fbc6116a902379C7238").unwrap();
        let of = |assets, retired| {
            let config = ChainConfig { assets, retired, tiers: Vec::new(), ..config("MINE", MINE) };
            network(Chain::EthereumTestnet, &config).map_err(|error| error.to_string())
        };
        let listed = |symbol: &str, token| {
            format!(
                "config key chains.ETHEREUM_TESTNET.retired[0]: {symbol} ({token}) is listed; take its entry in assets or \
                 this one out"
            )
        };
        assert_eq!(of(config("MINE", MINE).assets, vec![mine]).unwrap_err(), listed("MINE", mine));
        assert_eq!(of(Vec::new(), vec![usdc]).unwrap_err(), listed("USDC", usdc));
        assert!(of(Vec::new(), vec![mine]).is_ok());
    }

    #[test]
    fn every_chain_of_the_interface_is_built_in() {
        for chain in Chain::ALL {
            assert_eq!(any_chain::built_in(chain).map(|network| network.chain), Some(chain));
        }
    }
}
