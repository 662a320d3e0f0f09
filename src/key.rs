//! API keys: `lf_live_` or `lf_test_`, 8 characters of id, 43 of secret, 6 of checksum.
//!
//! Promises: the secret holds 256 random bits, so a plain SHA-256 of it may be stored. The prefix is not hashed, so the
//! environment is stored beside it. A typing error is found without the store. Checking a secret takes the same time
//! wherever it differs. `Debug` never shows it. Pure: randomness is an argument, and the caller reads the record.
//! `scope` says what a key may do, `public_key` what signs its requests, and `request_signature` what such a signature
//! must be.

mod public_key;
pub mod request_signature;
mod scope;

use std::fmt;
use std::str::FromStr;

use landfall_chain::U256;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

pub use public_key::{Algorithm, PublicKey, PublicKeyError};
pub use scope::{Scope, ScopeError, Scopes};

/// How many unrevoked keys an organization may have, as the interface says.
pub const KEYS_MAX: u64 = 50;

const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const ID_CHARS: usize = 8;
/// 62^43 is just more than 2^256.
const SECRET_CHARS: usize = 43;
/// 62^6 is more than 2^32.
const CHECKSUM_CHARS: usize = 6;

/// The purpose of a deployment. A key of the other one is refused, so that tests never touch money.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Environment {
    Live,
    Test,
}

/// A key as its owner holds it. It has no `==`: secrets are compared in constant time, see [`ApiKey::verify`].
#[derive(Clone)]
pub struct ApiKey {
    environment: Environment,
    id: String,
    secret: String,
}

/// Why a text is no key.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum KeyError {
    #[error("malformed API key: expected lf_live_ or lf_test_ and 57 letters and digits")]
    Malformed,
    #[error("wrong checksum in the API key; check it for a typing error")]
    WrongChecksum,
}

impl Environment {
    pub const ALL: [Environment; 2] = [Environment::Live, Environment::Test];

    pub const fn name(self) -> &'static str {
        match self {
            Environment::Live => "live",
            Environment::Test => "test",
        }
    }

    const fn prefix(self) -> &'static str {
        match self {
            Environment::Live => "lf_live_",
            Environment::Test => "lf_test_",
        }
    }
}

impl fmt::Display for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl ApiKey {
    /// 8 bytes for the id, 32 for the secret.
    pub const RANDOM_BYTES: usize = 40;

    /// The key that these random bytes make.
    pub fn generate(environment: Environment, random: &[u8; ApiKey::RANDOM_BYTES]) -> Self {
        let (id, secret) = random.split_at(8);
        ApiKey {
            environment,
            id: base62(U256::from_be_slice(id), ID_CHARS),
            secret: base62(U256::from_be_slice(secret), SECRET_CHARS),
        }
    }

    pub fn environment(&self) -> Environment {
        self.environment
    }

    /// The part that names the key and may be seen.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The whole key, to be shown once to whoever asked for it.
    pub fn reveal(&self) -> String {
        let body = self.body();
        let checksum = checksum(&body);
        format!("{body}{checksum}")
    }

    /// The SHA-256 of the secret's characters, which is stored.
    pub fn secret_hash(&self) -> [u8; 32] {
        Sha256::digest(&self.secret).into()
    }

    /// Whether `stored` is the hash of this key's secret.
    pub fn verify(&self, stored: &[u8]) -> bool {
        self.secret_hash().ct_eq(stored).into()
    }

    fn body(&self) -> String {
        format!("{}{}{}", self.environment.prefix(), self.id, self.secret)
    }
}

impl FromStr for ApiKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let mut environments = Environment::ALL.into_iter();
        let read = environments.find_map(|environment| Some((environment, text.strip_prefix(environment.prefix())?)));
        let (environment, rest) = read.ok_or(KeyError::Malformed)?;
        let plain = rest.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if !plain || rest.len() != ID_CHARS + SECRET_CHARS + CHECKSUM_CHARS {
            return Err(KeyError::Malformed);
        }
        let (id, rest) = rest.split_at(ID_CHARS);
        let (secret, given) = rest.split_at(SECRET_CHARS);
        let key = ApiKey { environment, id: id.to_owned(), secret: secret.to_owned() };
        if checksum(&key.body()) == given { Ok(key) } else { Err(KeyError::WrongChecksum) }
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApiKey({}{}..)", self.environment.prefix(), self.id)
    }
}

fn checksum(body: &str) -> String {
    base62(U256::from(crc32(body.as_bytes())), CHECKSUM_CHARS)
}

/// The lowest `width` digits of `number` in base 62, highest first.
fn base62(mut number: U256, width: usize) -> String {
    let mut digits = vec![b'0'; width];
    for digit in digits.iter_mut().rev() {
        let (rest, lowest) = number.div_rem(U256::from(62));
        *digit = ALPHABET[usize::from(lowest.byte(0))];
        number = rest;
    }
    digits.into_iter().map(char::from).collect()
}

/// CRC-32 of ISO 3309, reflected, as zlib has it. Bit by bit: a key is 59 bytes.
fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(environment: Environment) -> ApiKey {
        ApiKey::generate(environment, &std::array::from_fn(|at| u8::try_from(at).unwrap()))
    }

    #[test]
    fn the_checksum_is_the_one_of_zlib() {
        // The check value that the catalogue of CRCs gives for CRC-32/ISO-HDLC.
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(b""), 0);
    }

    #[test]
    fn base_62_keeps_its_width() {
        assert_eq!(base62(U256::ZERO, 3), "000");
        assert_eq!(base62(U256::from(61 + 62), 3), "01z");
        assert_eq!(base62(U256::from(62 * 62 + 5), 2), "05", "only the lowest digits");
        assert_eq!(base62(U256::MAX, SECRET_CHARS + 1).find(|digit| digit != '0'), Some(1), "43 digits hold 256 bits");
    }

    #[test]
    fn the_form_of_a_key_never_changes() {
        let text = key(Environment::Live).reveal();
        assert_eq!(text.len(), 65);
        assert_eq!(text, "lf_live_IYT0XLWR1u8QmlquE1rQpeqoulx6MZVGVGgufeog3UsDEHmrG2p4MelTb");
        assert_eq!(
            hex::encode(key(Environment::Live).secret_hash()),
            "57b06df935926c80febc68bf9032d480d8fd48be1c126d9201b39587e9656d72"
        );
    }

    #[test]
    fn a_key_is_read_back_and_verifies_against_its_own_hash_only() {
        for environment in [Environment::Live, Environment::Test] {
            let key = key(environment);
            let read: ApiKey = key.reveal().parse().unwrap();
            assert_eq!(read.reveal(), key.reveal());
            assert_eq!(read.environment(), environment);
            assert!(read.verify(&key.secret_hash()));
            let other = ApiKey::generate(environment, &[7; ApiKey::RANDOM_BYTES]);
            for stored in [&other.secret_hash()[..], &key.secret_hash()[..31], &[], &[0; 32]] {
                assert!(!read.verify(stored));
            }
        }
    }

    #[test]
    fn every_typing_error_is_found() {
        let text = key(Environment::Test).reveal();
        for at in text.len() - 57..text.len() {
            let mut typed = text.clone().into_bytes();
            typed[at] = if typed[at] == b'x' { b'y' } else { b'x' };
            let typed = String::from_utf8(typed).unwrap();
            assert_eq!(typed.parse::<ApiKey>().unwrap_err(), KeyError::WrongChecksum, "{typed}");
        }
    }

    #[test]
    fn what_has_not_the_form_of_a_key_is_refused() {
        let text = key(Environment::Live).reveal();
        let (longer, blank) = (format!("{text}0"), text.replacen('0', " ", 1));
        let bad = [
            "",
            "lf_live_",
            "lf_prod_",
            &text[1..],
            &text[..64],
            &longer,
            &blank,
            &text.replace("lf", "LF"),
            "lf_live_é",
        ];
        for text in bad {
            assert_eq!(text.parse::<ApiKey>().unwrap_err(), KeyError::Malformed, "{text}");
        }
        let other_environment = text.replace("live", "test");
        assert_eq!(
            other_environment.parse::<ApiKey>().unwrap_err(),
            KeyError::WrongChecksum,
            "the checksum covers the prefix"
        );
    }

    #[test]
    fn debug_does_not_show_the_secret() {
        let key = key(Environment::Live);
        let shown = format!("{key:?}");
        assert_eq!(shown, format!("ApiKey(lf_live_{}..)", key.id()));
    }
}
