//! A token of PKCS#11, that is an HSM, which makes the keys of sponsors and never gives them away.
//!
//! [`Token`] and its keys are there with the feature `pkcs11` (`token/session.rs`). Without it no token opens
//! (`token/absent.rs`). Promise: no PIN is printed, and a wrong one is tried once.

#[cfg(not(feature = "pkcs11"))]
mod absent;
#[cfg(feature = "pkcs11")]
mod session;

use std::path::PathBuf;

#[cfg(not(feature = "pkcs11"))]
pub(crate) use absent::Held;
#[cfg(not(feature = "pkcs11"))]
pub use absent::Token;
#[cfg(feature = "pkcs11")]
pub(crate) use session::Held;
#[cfg(feature = "pkcs11")]
pub use session::Token;

use crate::Passphrase;

/// What opens a token.
#[derive(Clone, Debug)]
pub struct TokenPlace {
    /// The module of its maker: a library that is loaded into this process.
    pub module: PathBuf,
    /// Its label.
    pub label: String,
    /// The PIN of its user.
    pub pin: Passphrase,
}

/// Which kind of key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Curve {
    /// Of EVM chains.
    Secp256k1,
    /// Of Solana.
    Ed25519,
}

/// Why a token does not open, or a key of it does not sign.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TokenError {
    /// The feature is off.
    #[error("this program was built without PKCS#11: build it with `cargo build --release --features pkcs11`")]
    NotBuilt,
    /// It is no library, or no module of PKCS#11.
    #[error("the module {} cannot be used: {what}", module.display())]
    Module {
        /// Where it should be.
        module: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// None of the module's tokens has the label.
    #[error("no token has the label {label:?}; there are: {}", others.join(", "))]
    NoToken {
        /// The label.
        label: String,
        /// Those of the tokens that there are.
        others: Vec<String>,
    },
    /// Several tokens have the label.
    #[error("{count} tokens have the label {label:?}: each needs its own")]
    SameLabel {
        /// The label.
        label: String,
        /// How many.
        count: usize,
    },
    /// The PIN is wrong, or the token takes none any more. It is not tried again, for tokens count.
    #[error("the PIN does not open the token {label:?}: {what}; it is not tried again")]
    Pin {
        /// The token.
        label: String,
        /// What the token says.
        what: String,
    },
    /// It cannot make keys of this kind.
    #[error("the token makes no keys {curve}: no sponsor of these chains can pay")]
    NoMechanism {
        /// Of which curve.
        curve: &'static str,
    },
    /// It was never asked for the key's address.
    #[error("the token has no key {key:?}")]
    NoKey {
        /// The label of the key.
        key: String,
    },
    /// Nobody can know which one is meant.
    #[error("the token has {count} private keys {key:?}: a person must delete all but the one whose address is in use")]
    SameKey {
        /// The label of the keys.
        key: String,
        /// How many.
        count: usize,
    },
    /// The public key is missing, or of another kind.
    #[error("the token has no public key that fits to the private key {key:?}")]
    Point {
        /// The label of the keys.
        key: String,
    },
    /// It signed with something else.
    #[error("the token gave a signature that is not of its key {key:?}")]
    Signature {
        /// The label of the key.
        key: String,
    },
    /// Nothing was signed. It may answer later.
    #[error("the token {label:?} does not answer: {what}")]
    Away {
        /// The token.
        label: String,
        /// What the module says.
        what: String,
    },
}
