//! The section `[pkcs11]`: the token of an HSM that has the keys of sponsors. Who opens the keystore opens it.
//!
//! The PIN never stands here. What is wrong with a value is reported without the value, which may be one all the same.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::config::transfers::{SignerConfig, is_path};
use crate::config::{ConfigError, key};

/// Whether this program can use a token.
const IS_BUILT_IN: bool = cfg!(feature = "pkcs11");
/// The most bytes of a label, by PKCS#11.
const LABEL_BYTES_MAX: usize = 32;

/// The token that has the keys of sponsors.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TokenConfig {
    /// The library of its maker.
    pub module: PathBuf,
    pub label: String,
    /// The file that holds its user's PIN.
    pub pin_file: PathBuf,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TokenSection {
    module: String,
    token: String,
    pin_file: String,
}

impl TokenSection {
    /// The section, if this program can use a token and opens a keystore itself. Relative paths start in `folder`.
    pub(super) fn check(self, folder: &Path, signer: Option<&SignerConfig>) -> Result<TokenConfig, ConfigError> {
        if !IS_BUILT_IN {
            let what = "this program was built without it: build it with `cargo build --release --features pkcs11`";
            return Err(key("pkcs11", what));
        }
        if let Some(SignerConfig::Socket(_)) = signer {
            return Err(key("pkcs11", "only the signer's own process opens the token: leave it out here"));
        }
        if !is_path(&self.module) {
            return Err(key("pkcs11.module", "expected the path of the PKCS#11 library of the HSM's maker"));
        }
        if !is_path(&self.token) || self.token.len() > LABEL_BYTES_MAX {
            return Err(key("pkcs11.token", format!("expected the token's label, at most {LABEL_BYTES_MAX} bytes")));
        }
        if !is_path(&self.pin_file) {
            return Err(key("pkcs11.pin_file", "expected the path of the file that holds the PIN of the token's user"));
        }
        let (module, pin_file) = (folder.join(self.module), folder.join(self.pin_file));
        Ok(TokenConfig { module, label: self.token, pin_file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn parse(text: &str) -> Result<Config, String> {
        let text = format!("[chains.ETHEREUM_TESTNET]\nrpc = [\"http://a\"]\n{text}\n");
        Config::parse("/etc/landfall/landfall.toml", &text, |_| None).map_err(|error| error.to_string())
    }

    const SECTION: &str = "[pkcs11]\nmodule = \"/usr/lib/hsm.so\"\ntoken = \"landfall\"\npin_file = \"pin\"";

    #[test]
    fn a_token_is_refused_with_how_to_build_where_it_is_not_built_in_and_else_read() {
        let parsed = parse(SECTION).map(|config| config.token);
        if !IS_BUILT_IN {
            let expected = "config key pkcs11: this program was built without it: build it with \
                            `cargo build --release --features pkcs11`";
            return assert_eq!(parsed, Err(expected.to_owned()));
        }
        let (module, pin_file) = ("/usr/lib/hsm.so".into(), "/etc/landfall/pin".into());
        assert_eq!(parsed, Ok(Some(TokenConfig { module, label: "landfall".to_owned(), pin_file })));
    }

    #[test]
    fn a_token_that_cannot_be_meant_is_refused_and_the_place_of_the_pin_is_not_shown() {
        let with = |module: &str, token: &str, pin_file: &str| TokenSection {
            module: module.to_owned(),
            token: token.to_owned(),
            pin_file: pin_file.to_owned(),
        };
        let socket = SignerConfig::Socket("s".into());
        let long = "a".repeat(33);
        let cases = [
            (with("m", "t", "p"), Some(&socket), "pkcs11: only the signer's own process opens the token"),
            (with("", "t", "p"), None, "pkcs11.module: expected the path of"),
            (with("m", " ", "p"), None, "pkcs11.token: expected the token's label, at most 32 bytes"),
            (with("m", &long, "p"), None, "pkcs11.token: expected the token's label, at most 32 bytes"),
            (with("m", "t", "12\n34"), None, "pkcs11.pin_file: expected the path of the file that holds the PIN"),
        ];
        for (section, signer, expected) in cases {
            let error = section.check(Path::new("/etc"), signer).unwrap_err().to_string();
            let expected = if IS_BUILT_IN { expected } else { "pkcs11: this program was built without" };
            assert!(error.starts_with(&format!("config key {expected}")), "{error}");
            assert!(!error.contains("34"), "{error}");
        }
    }
}
