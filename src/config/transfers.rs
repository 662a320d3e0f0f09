//! The section `[transfers]`: who holds the keys. Without it nothing is sent and no address derived.
//!
//! A passphrase never stands here. What is wrong with a value is reported without the value, which may be one all the
//! same.

use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use landfall_chain::GUARD_RETENTION_HOURS_MIN;
use serde::Deserialize;

use crate::config::prices::PricesSection;
use crate::config::{ConfigError, key};
use crate::gas::OverCredit;
use crate::key::Environment;
use crate::prices::PriceFeed;
use crate::store::StoreUrl;

/// Who holds the keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SignerConfig {
    /// A keystore that this process opens itself.
    Keystore(KeystoreConfig),
    /// A process of its own that listens at this socket: `landfall signer serve`.
    Socket(PathBuf),
}

/// A keystore with its passphrase.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeystoreConfig {
    pub folder: PathBuf,
    /// The file that holds its passphrase.
    pub passphrase_file: PathBuf,
}

/// Whether wallets may be given a delegate (EIP-7702).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delegation {
    /// The first payment that needs one gives it to its wallet, and it is taken away when no other payment waits.
    #[default]
    Ephemeral,
    /// The first payment that needs one gives it to its wallet, for good.
    Sticky,
    /// What needs one is not accepted.
    Never,
}

impl Delegation {
    /// Whether a delegate that nothing needs any more is taken away; also one that was given before it was forbidden.
    pub const fn clears(self) -> bool {
        match self {
            Delegation::Ephemeral | Delegation::Never => true,
            Delegation::Sticky => false,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TransfersSection {
    signer: String,
    #[serde(default)]
    passphrase_file: Option<String>,
    #[serde(default)]
    pub(super) delegation: Delegation,
    #[serde(default)]
    pub(super) over_credit: OverCredit,
    #[serde(default)]
    pub(super) require_signed_requests: bool,
    #[serde(default)]
    pub(super) recipient_gas_max: Option<NonZeroU64>,
    #[serde(default)]
    prices: Option<PricesSection>,
    #[serde(default)]
    guard_retention_hours: Option<u32>,
}

impl TransfersSection {
    /// For how long the guard of a paid transfer is kept, if not for as long as is usual.
    pub(super) fn guard_retention_hours(&self) -> Result<Option<u32>, ConfigError> {
        match self.guard_retention_hours {
            Some(hours) if hours < GUARD_RETENTION_HOURS_MIN => {
                let what = format!(
                    "expected at least {GUARD_RETENTION_HOURS_MIN}, and more than the age of the oldest backup that may be restored"
                );
                Err(key("transfers.guard_retention_hours", what))
            }
            hours => Ok(hours),
        }
    }

    /// The section, if its keys fit together and to the rest. Relative paths start in `folder`.
    pub(super) fn check(
        mut self,
        folder: &Path,
        store: &StoreUrl,
        environment: Environment,
    ) -> Result<(SignerConfig, Option<PriceFeed>), ConfigError> {
        let prices = self.prices.take().map(PricesSection::check).transpose()?;
        Ok((self.signer(folder, store, environment)?, prices))
    }

    fn signer(self, folder: &Path, store: &StoreUrl, environment: Environment) -> Result<SignerConfig, ConfigError> {
        if let Some(socket) = self.signer.strip_prefix("unix:") {
            if !is_path(socket) {
                return Err(key(
                    "transfers.signer",
                    "expected unix:PATH, the socket at which `landfall signer serve` listens",
                ));
            }
            if self.passphrase_file.is_some() {
                let what = "only the signer's own process needs it: leave it out here";
                return Err(key("transfers.passphrase_file", what));
            }
            return Ok(SignerConfig::Socket(folder.join(socket)));
        }
        let Some(keystore) = self.signer.strip_prefix("keystore:") else {
            return Err(key("transfers.signer", "expected keystore:DIR or unix:PATH"));
        };
        if !is_path(keystore) || keystore.contains(['?', '#', '@', ':']) {
            let what = "expected keystore:DIR, a path and nothing else; its passphrase is in the file that \
                        transfers.passphrase_file names";
            return Err(key("transfers.signer", what));
        }
        let passphrase_file = self.passphrase_file.filter(|path| is_path(path)).ok_or_else(|| {
            key("transfers.passphrase_file", "expected the path of the file that holds the keystore's passphrase")
        })?;
        if matches!((store, environment), (StoreUrl::Postgres(_), Environment::Live)) {
            let what = "a process on PostgreSQL opens no keystore itself, unless api.environment is \"test\": keys of \
                        money belong into a process of their own; start `landfall signer serve` and name its socket, unix:PATH";
            return Err(key("transfers.signer", what));
        }
        let keystore = KeystoreConfig { folder: folder.join(keystore), passphrase_file: folder.join(passphrase_file) };
        Ok(SignerConfig::Keystore(keystore))
    }
}

pub(super) fn is_path(text: &str) -> bool {
    !text.trim().is_empty() && !text.contains(char::is_control)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use landfall_chain::{
        Address, Asset, AssetId, Chain, Delegate, Finality, FinalityRule, Native, Network, Route, Sending,
    };

    use super::{KeystoreConfig, SignerConfig};
    use crate::config::Config;
    use crate::gas::OverCredit;

    const CHAIN: &str = "[chains.ETHEREUM_TESTNET]\nrpc = [\"http://a\"]\n";
    const FILE: &str = "passphrase_file = \"passphrase\"";

    fn parse(text: &str) -> Result<Config, String> {
        let variable = |name: &str| (name == "KEY").then(|| "canary".to_owned());
        let text = format!("{CHAIN}{text}\n");
        Config::parse("/etc/landfall/landfall.toml", &text, variable).map_err(|error| error.to_string())
    }

    fn keystore(text: &str) -> KeystoreConfig {
        match parse(text).unwrap().signer {
            Some(SignerConfig::Keystore(keystore)) => keystore,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_signer_at_a_socket_is_reached_beside_every_store_and_its_passphrase_stands_elsewhere() {
        for store in ["sqlite:a.db", "postgres://a/b?sslmode=disable"] {
            let text =
                format!("[store]\nurl = \"{store}\"\n[api]\nenvironment = \"live\"\n[transfers]\nsigner = \"unix:s\"");
            assert_eq!(parse(&text).unwrap().signer, Some(SignerConfig::Socket("/etc/landfall/s".into())));
        }
        let both = parse(&format!("[transfers]\nsigner = \"unix:/run/s\"\n{FILE}")).unwrap_err();
        assert_eq!(
            both,
            "config key transfers.passphrase_file: only the signer's own process needs it: leave it out here"
        );
    }

    #[test]
    fn paths_of_the_keystore_are_beside_the_file_and_without_the_section_there_is_no_signer() {
        assert_eq!(parse("").unwrap().signer, None);
        let keystore = keystore(&format!("[transfers]\nsigner = \"keystore:keys\"\n{FILE}"));
        let paths = [keystore.folder.as_path(), keystore.passphrase_file.as_path()];
        assert_eq!(paths, ["/etc/landfall/keys", "/etc/landfall/passphrase"].map(Path::new));
        let elsewhere = "[transfers]\nsigner = \"keystore:/var/keys\"\npassphrase_file = \"/dev/fd/3\"";
        let keystore = self::keystore(elsewhere);
        let paths = [keystore.folder.as_path(), keystore.passphrase_file.as_path()];
        assert_eq!(paths, ["/var/keys", "/dev/fd/3"].map(Path::new));
    }

    #[test]
    fn what_the_credit_does_not_cover_is_billed_unless_it_is_to_be_refused() {
        let with = |key: &str| parse(&format!("[transfers]\nsigner = \"keystore:keys\"\n{FILE}\n{key}"));
        assert_eq!(parse("").unwrap().over_credit, OverCredit::Bill);
        assert_eq!(with("").unwrap().over_credit, OverCredit::Bill);
        assert_eq!(with("over_credit = \"bill\"").unwrap().over_credit, OverCredit::Bill);
        assert_eq!(with("over_credit = \"refuse\"").unwrap().over_credit, OverCredit::Refuse);
        let refused = with("over_credit = \"wait\"").unwrap_err();
        assert_eq!(refused, "config key transfers.over_credit: unknown variant `wait`, expected `bill` or `refuse`");
    }

    #[test]
    fn transfers_are_created_without_signed_requests_unless_these_are_compulsory() {
        let with = |key: &str| parse(&format!("[transfers]\nsigner = \"keystore:keys\"\n{FILE}\n{key}"));
        for (text, expected) in
            [("", false), ("require_signed_requests = false", false), ("require_signed_requests = true", true)]
        {
            let config = with(text).unwrap();
            assert_eq!(config.require_signed_requests, expected, "{text}");
            let settings = config.api_settings(([127, 0, 0, 1], 80).into(), Vec::new());
            assert_eq!(settings.require_signed_transfers, expected, "{text}");
        }
        assert!(!parse("").unwrap().require_signed_requests);
        let refused = with("require_signed_requests = \"yes\"").unwrap_err();
        assert!(refused.starts_with("config key transfers.require_signed_requests: "), "{refused}");
    }

    #[test]
    fn how_many_token_accounts_are_paid_for_is_said_of_a_chain_of_solana_alone() {
        let of = |chain: &str| {
            let rpc = "rpc = [\"http://a\"]";
            let config =
                parse(&format!("[chains.{chain}]\n{rpc}\n[chains.{chain}.transfers]\nnew_accounts_per_day = 5"))?;
            Ok::<_, String>(config.chains[&chain.parse::<Chain>().unwrap()].transfers.new_accounts_per_day)
        };
        assert_eq!(of("SOLANA_DEVNET"), Ok(Some(5)));
        let refused = of("BASE_SEPOLIA").unwrap_err();
        assert!(refused.contains("chains.BASE_SEPOLIA.transfers.new_accounts_per_day: only on Solana"), "{refused}");
    }

    #[test]
    fn what_a_recipient_may_take_is_a_number_above_0() {
        let with = |key: &str| parse(&format!("[transfers]\nsigner = \"keystore:keys\"\n{FILE}\n{key}"));
        let gas = |key| with(key).unwrap().recipient_gas_max.map(std::num::NonZeroU64::get);
        assert_eq!([gas(""), gas("recipient_gas_max = 90000")], [None, Some(90_000)]);
        for key in ["recipient_gas_max = 0", "recipient_gas_max = -1", "recipient_gas_max = \"1\""] {
            assert!(with(key).unwrap_err().starts_with("config key transfers.recipient_gas_max: "), "{key}");
        }
    }

    #[test]
    fn guards_are_kept_for_a_day_at_least_and_for_three_if_nothing_else_is_said() {
        let hours = |keys: &str| {
            let text = format!("[transfers]\nsigner = \"keystore:keys\"\n{FILE}\n{keys}");
            let config = parse(&text)?;
            Ok::<_, String>(config.chains[&Chain::EthereumTestnet].transfers.guard_retention_hours)
        };
        assert_eq!([hours(""), hours("guard_retention_hours = 24")], [Ok(None), Ok(Some(24))]);
        assert_eq!(Sending::usual(1).guard_retention_hours, 72);
        for refused in [0, 23] {
            let why = hours(&format!("guard_retention_hours = {refused}")).unwrap_err();
            let expected =
                "config key transfers.guard_retention_hours: expected at least 24, and more than the age of the oldest";
            assert!(why.starts_with(expected), "{why}");
        }
    }

    #[test]
    fn a_signer_that_is_no_keystore_of_a_folder_is_refused_and_nothing_of_it_shown() {
        let only_path = "transfers.signer: expected keystore:DIR, a path and nothing else; its passphrase is in the file that \
                         transfers.passphrase_file names";
        let no_file = "transfers.passphrase_file: expected the path of the file that holds the keystore's passphrase";
        let cases = [
            (FILE.to_owned(), "transfers: missing field `signer`"),
            (format!("signer = \"${{KEY}}\"\n{FILE}"), "transfers.signer: expected keystore:DIR or unix:PATH"),
            (
                "signer = \"unix:\"".to_owned(),
                "transfers.signer: expected unix:PATH, the socket at which `landfall signer serve` listens",
            ),
            (format!("signer = \"keystore:\"\n{FILE}"), only_path),
            (format!("signer = \"keystore: \"\n{FILE}"), only_path),
            (format!("signer = \"keystore:keys?passphrase=${{KEY}}\"\n{FILE}"), only_path),
            (format!("signer = \"keystore:${{KEY}}@keys\"\n{FILE}"), only_path),
            (format!("signer = \"keystore:keys:${{KEY}}\"\n{FILE}"), only_path),
            ("signer = \"keystore:keys\"".to_owned(), no_file),
            ("signer = \"keystore:keys\"\npassphrase_file = \"\"".to_owned(), no_file),
            ("signer = \"keystore:keys\"\npassphrase_file = \"${KEY}\\n\"".to_owned(), no_file),
            (
                "signer = \"keystore:keys\"\npassphrase = \"${KEY}\"".to_owned(),
                "transfers.passphrase: unknown field `passphrase`, expected one of `signer`, `passphrase_file`, `delegation`, `over_credit`, `require_signed_requests`, `recipient_gas_max`, `prices`, `guard_retention_hours`",
            ),
        ];
        for (keys, expected) in cases {
            assert_eq!(parse(&format!("[transfers]\n{keys}")).unwrap_err(), format!("config key {expected}"));
        }
    }

    /// With the native currency by a delegate, a token by its own signatures, and one that is not sent.
    fn network() -> Network {
        let [implementation, manager, ids, times, executions] = [1, 2, 3, 4, 5].map(|byte| Address::Evm([byte; 20]));
        let delegate = Delegate::Metamask { implementation, manager, ids, times, executions };
        let erc3009 = Route::Erc3009 { name: "A".to_owned(), version: "1".to_owned() };
        let asset =
            |id, symbol: &str, route| Asset { id, symbol: symbol.to_owned(), decimals: 6, from_block: 0, route };
        let token = |byte| AssetId::Token(Address::Evm([byte; 20]));
        Network {
            chain: Chain::EthereumMainnet,
            chain_ref: "eip155:1".to_owned(),
            block_time_ms: 12_000,
            finality: Finality::from(FinalityRule::FINALIZED),
            native: Native::TOP_LEVEL,
            wrapped: None,
            delegates: vec![delegate],
            sending: Sending::usual(0),
            assets: vec![
                asset(AssetId::Native, "ETH", Some(Route::Delegate(delegate))),
                asset(token(6), "USDC", Some(erc3009)),
                asset(token(7), "OTHER", None),
            ],
        }
    }

    #[test]
    fn what_needs_a_delegate_is_offered_unless_wallets_may_have_none() {
        let offered = |more: &str| {
            let config = parse(&format!("[transfers]\nsigner = \"keystore:keys\"\n{FILE}\n{more}"))?;
            let settings = config.api_settings(([127, 0, 0, 1], 80).into(), vec![network()]);
            let assets = settings.networks[0].assets.iter().filter(|asset| asset.route.is_some());
            Ok::<_, String>(assets.map(|asset| asset.symbol.clone()).collect::<Vec<_>>())
        };
        assert_eq!(offered("").unwrap(), ["ETH", "USDC"]);
        assert_eq!(offered("delegation = \"ephemeral\"").unwrap(), ["ETH", "USDC"]);
        assert_eq!(offered("delegation = \"sticky\"").unwrap(), ["ETH", "USDC"]);
        assert_eq!(offered("delegation = \"never\"").unwrap(), ["USDC"]);
        let unknown = offered("delegation = \"once\"").unwrap_err();
        assert!(
            unknown.contains("unknown variant `once`, expected one of `ephemeral`, `sticky`, `never`"),
            "{unknown}"
        );
    }

    #[test]
    fn what_a_chain_refuses_to_send_is_not_offered_there_alone_and_is_listed_all_the_same() {
        let testnet = Network { chain: Chain::EthereumTestnet, ..network() };
        let with = |keys: &str| {
            let config = parse(&format!("[chains.ETHEREUM_TESTNET.transfers]\n{keys}")).unwrap();
            let settings = config.api_settings(([127, 0, 0, 1], 80).into(), vec![network(), testnet.clone()]);
            settings.networks.into_iter().map(|network| network.assets)
        };
        let symbols = |assets: &[Asset]| assets.iter().map(|asset| asset.symbol.clone()).collect::<Vec<_>>();
        // What is offered on the other chain, and on this one.
        let cases: [(&str, [&[&str]; 2]); 3] = [
            ("refuse = []", [&["ETH", "USDC"], &["ETH", "USDC"]]),
            ("refuse = [\"USDC\"]", [&["ETH", "USDC"], &["ETH"]]),
            ("refuse = [\"USDC\", \"ETH\", \"OTHER\"]", [&["ETH", "USDC"], &[]]),
        ];
        for (keys, offered) in cases {
            for (assets, offered) in with(keys).zip(offered) {
                assert_eq!(symbols(&assets), ["ETH", "USDC", "OTHER"], "{keys}");
                let sent: Vec<Asset> = assets.into_iter().filter(|asset| asset.route.is_some()).collect();
                assert_eq!(symbols(&sent), offered, "{keys}");
            }
        }
    }

    #[test]
    fn delegates_are_taken_away_again_unless_they_are_to_stay() {
        let clears = |more: &str| {
            parse(&format!("[transfers]\nsigner = \"keystore:keys\"\n{FILE}\n{more}")).unwrap().delegation.clears()
        };
        for (more, expected) in [
            ("", true),
            ("delegation = \"ephemeral\"", true),
            ("delegation = \"sticky\"", false),
            ("delegation = \"never\"", true),
        ] {
            assert_eq!(clears(more), expected, "{more}");
        }
    }

    #[test]
    fn a_keystore_is_opened_beside_postgresql_in_the_environment_test_alone() {
        let text = |environment: &str, url: &str| {
            format!(
                "[store]\nurl = \"{url}\"\n[api]\nenvironment = \"{environment}\"\n[transfers]\nsigner = \"keystore:keys\"\n{FILE}"
            )
        };
        let refused = parse(&text("live", "postgres://a/b?sslmode=disable")).unwrap_err();
        assert!(
            refused.starts_with("config key transfers.signer: a process on PostgreSQL opens no keystore"),
            "{refused}"
        );
        for (environment, url) in [("test", "postgres://a/b?sslmode=disable"), ("live", "sqlite:a.db")] {
            assert!(parse(&text(environment, url)).unwrap().signer.is_some());
        }
    }
}
