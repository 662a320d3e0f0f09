//! Keys and addresses: derived of a seed, BIP-32 for EVM and SLIP-10 for Solana; or, of sponsors, held by a token.
//!
//! Promises: a derived address is a function of the words and the path alone, so that no restored counter can give one
//! account's address to another. No parent's public key leaves this file: with one child's key it would give all. A
//! signature of a token leaves once it is found to be of its key, with s in the lower half.

use std::fmt;

use coins_bip32::BIP32_HARDEN;
use coins_bip32::ecdsa::{Signature, SigningKey, VerifyingKey};
use coins_bip32::xkeys::{Parent, XPriv};
use ed25519_dalek::Signer as _;
use landfall_chain::{Address, Family, KeyPath, Seed};
use landfall_evm::pay::signer_of;
use sha3::{Digest, Keccak256};
use zeroize::Zeroizing;

use crate::token::{Curve, Held};
use crate::{Token, TokenError, Words};

const PURPOSE: u32 = 44;
/// SLIP-44's number of Ether.
const EVM: u32 = 60;
/// SLIP-44's number of SOL.
const SOLANA: u32 = 501;
/// `v` of a signature whose point has an even y; one more where it is odd.
const V_EVEN: u8 = 27;

/// The keys of wallets and of sponsors.
pub(crate) struct Keys {
    wallets: Root,
    sponsors: Sponsors,
}

/// Who has the keys of sponsors.
enum Sponsors {
    Derived(Box<Root>),
    Token(Token),
}

/// A key that signs transactions.
pub(crate) enum Key<K> {
    Derived(K),
    /// It never leaves its token, whose signatures of one content may differ.
    Held(Held),
}

/// What the keys of one seed are derived of.
struct Root {
    /// `m/44'/60'`.
    evm: XPriv,
    solana: Zeroizing<[u8; 64]>,
}

/// Why there is no key, or no signature of it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum KeyError {
    /// It would be another path's.
    #[error("path {0} has a number that is not below 2^31")]
    Path(KeyPath),
    #[error("the key of path {0} is in a token, and signs transactions only")]
    InToken(KeyPath),
    #[error(transparent)]
    Token(#[from] TokenError),
}

impl Keys {
    pub(crate) fn new(wallets: &Words, sponsors: &Words) -> Self {
        Keys { wallets: Root::new(wallets), sponsors: Sponsors::Derived(Box::new(Root::new(sponsors))) }
    }

    /// The same wallets; the keys of sponsors are those of a token.
    pub(crate) fn with_token(self, token: Token) -> Self {
        Keys { sponsors: Sponsors::Token(token), ..self }
    }

    /// The address of a path. A token makes the key that it does not have yet.
    pub(crate) fn address(&self, path: &KeyPath) -> Result<Address, KeyError> {
        check(path)?;
        match (&self.sponsors, path.seed, path.family) {
            (Sponsors::Token(token), Seed::Sponsors, family) => of_held(&token.find_or_make(path, curve(family))?),
            (_, _, Family::Evm) => self.evm(path).map(|key| evm_address(key.verifying_key())),
            (_, _, Family::Solana) => self.solana(path).map(|key| solana_address(&key)),
        }
    }

    /// The address of a path whose key there is.
    pub(crate) fn known_address(&self, path: &KeyPath) -> Result<Address, KeyError> {
        match path.family {
            Family::Evm => self.evm_key(path)?.address(),
            Family::Solana => self.solana_key(path)?.address(),
        }
    }

    /// The key of a path on EVM chains, whatever the path's family.
    pub(crate) fn evm_key(&self, path: &KeyPath) -> Result<Key<SigningKey>, KeyError> {
        match self.held(path, Curve::Secp256k1)? {
            Some(held) => Ok(Key::Held(held)),
            None => self.evm(path).map(Key::Derived),
        }
    }

    /// The key of a path on Solana, whatever the path's family.
    pub(crate) fn solana_key(&self, path: &KeyPath) -> Result<Key<ed25519_dalek::SigningKey>, KeyError> {
        match self.held(path, Curve::Ed25519)? {
            Some(held) => Ok(Key::Held(held)),
            None => self.solana(path).map(Key::Derived),
        }
    }

    /// The derived key of a path on EVM chains, whatever the path's family.
    pub(crate) fn evm(&self, path: &KeyPath) -> Result<SigningKey, KeyError> {
        let key = derived(&self.root(path)?.evm, &[path.account | BIP32_HARDEN, 0, path.index]);
        let key: &SigningKey = key.as_ref();
        Ok(key.clone())
    }

    /// The derived key of a path on Solana, whatever the path's family.
    pub(crate) fn solana(&self, path: &KeyPath) -> Result<ed25519_dalek::SigningKey, KeyError> {
        let seed = &self.root(path)?.solana[..];
        // Every number of the path is hardened: Ed25519 has no other keys.
        let key = slip10_ed25519::derive_ed25519_private_key(seed, &[PURPOSE, SOLANA, path.account, path.index]);
        Ok(ed25519_dalek::SigningKey::from_bytes(&Zeroizing::new(key)))
    }

    fn held(&self, path: &KeyPath, curve: Curve) -> Result<Option<Held>, KeyError> {
        check(path)?;
        match (&self.sponsors, path.seed) {
            (Sponsors::Token(token), Seed::Sponsors) => Ok(Some(token.find(path, curve)?)),
            (_, _) => Ok(None),
        }
    }

    fn root(&self, path: &KeyPath) -> Result<&Root, KeyError> {
        check(path)?;
        match (path.seed, &self.sponsors) {
            (Seed::Wallets, _) => Ok(&self.wallets),
            (Seed::Sponsors, Sponsors::Derived(root)) => Ok(root.as_ref()),
            (Seed::Sponsors, Sponsors::Token(_)) => Err(KeyError::InToken(*path)),
        }
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys(..)")
    }
}

impl KeyError {
    /// Nothing is wrong with what was asked: the same may be asked again.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self, KeyError::Token(TokenError::Away { .. }))
    }
}

impl<K> Key<K> {
    /// Whether two signatures of one content may differ.
    pub(crate) fn is_held(&self) -> bool {
        matches!(self, Key::Held(_))
    }
}

impl Key<SigningKey> {
    pub(crate) fn address(&self) -> Result<Address, KeyError> {
        match self {
            Key::Derived(key) => Ok(evm_address(key.verifying_key())),
            Key::Held(held) => of_held(held),
        }
    }

    /// r, s and v; s is in the lower half.
    pub(crate) fn sign(&self, digest: &[u8; 32]) -> Result<[u8; 65], KeyError> {
        let held = match self {
            Key::Derived(key) => return Ok(signature(key, digest)),
            Key::Held(held) => held,
        };
        let strange = || KeyError::Token(TokenError::Signature { key: held.label().to_owned() });
        let signature = Signature::from_slice(&held.sign(digest)?).map_err(|_| strange())?;
        let (lower, address) = (signature.normalize_s().to_bytes(), of_held(held)?);
        let with_v = |v: u8| {
            let mut bytes = [v; 65];
            bytes[..64].copy_from_slice(&lower);
            bytes
        };
        let mut possible = [V_EVEN, V_EVEN + 1].map(with_v).into_iter();
        possible.find(|signature| signer_of(digest, signature) == Some(address)).ok_or_else(strange)
    }
}

impl Key<ed25519_dalek::SigningKey> {
    pub(crate) fn address(&self) -> Result<Address, KeyError> {
        match self {
            Key::Derived(key) => Ok(solana_address(key)),
            Key::Held(held) => of_held(held),
        }
    }

    pub(crate) fn sign(&self, message: &[u8]) -> Result<[u8; 64], KeyError> {
        let held = match self {
            Key::Derived(key) => return Ok(key.sign(message).to_bytes()),
            Key::Held(held) => held,
        };
        let signature = held.sign(message)?;
        let of_key = <[u8; 32]>::try_from(held.public()).ok();
        let of_key = of_key.and_then(|key| ed25519_dalek::VerifyingKey::from_bytes(&key).ok());
        let is_of_key = of_key
            .is_some_and(|key| key.verify_strict(message, &ed25519_dalek::Signature::from_bytes(&signature)).is_ok());
        is_of_key.then_some(signature).ok_or_else(|| TokenError::Signature { key: held.label().to_owned() }.into())
    }
}

impl Root {
    fn new(words: &Words) -> Self {
        let seed = words.seed();
        let root = XPriv::root_from_seed(&seed[..], None).expect("64 bytes are enough for a seed");
        Root { evm: derived(&root, &[PURPOSE | BIP32_HARDEN, EVM | BIP32_HARDEN]), solana: seed }
    }
}

fn derived(parent: &XPriv, path: &[u32]) -> XPriv {
    let child = |key: XPriv, number: &u32| key.derive_child(*number).expect("one path in 2^127 has no key (BIP-32)");
    path.iter().fold(parent.clone(), child)
}

/// r, s and v. The same for equal digests (RFC 6979); s is in the lower half.
pub(crate) fn signature(key: &SigningKey, digest: &[u8; 32]) -> [u8; 65] {
    let (signature, recovery) = key.sign_prehash_recoverable(digest);
    let mut bytes = [0; 65];
    bytes[..64].copy_from_slice(&signature.to_bytes());
    bytes[64] = V_EVEN + u8::from(recovery.is_y_odd());
    bytes
}

/// The address of a key: the last 20 bytes of the hash of its public point.
pub(crate) fn evm_address(key: &VerifyingKey) -> Address {
    let point = key.to_sec1_point(false);
    // The first byte says that both coordinates follow.
    let hash = Keccak256::digest(&point.as_bytes()[1..]);
    let (_, address) = hash.as_slice().split_last_chunk().expect("32 is more than 20");
    Address::Evm(*address)
}

pub(crate) fn solana_address(key: &ed25519_dalek::SigningKey) -> Address {
    Address::Solana(key.verifying_key().to_bytes())
}

fn of_held(held: &Held) -> Result<Address, KeyError> {
    let address = match held.curve() {
        Curve::Secp256k1 => VerifyingKey::from_sec1_bytes(held.public()).ok().map(|key| evm_address(&key)),
        Curve::Ed25519 => held.public().try_into().ok().map(Address::Solana),
    };
    address.ok_or_else(|| TokenError::Point { key: held.label().to_owned() }.into())
}

fn curve(family: Family) -> Curve {
    match family {
        Family::Evm => Curve::Secp256k1,
        Family::Solana => Curve::Ed25519,
    }
}

fn check(path: &KeyPath) -> Result<(), KeyError> {
    let is_in_range = [path.account, path.index].iter().all(|number| number & BIP32_HARDEN == 0);
    is_in_range.then_some(()).ok_or(KeyError::Path(*path))
}

#[cfg(test)]
mod tests {
    use super::*;

    const JUNK: &str = "test test test test test test test test test test test junk";
    const OTHER: &str = "legal winner thank year wave sausage worth useful legal winner thank yellow";

    fn keys() -> Keys {
        Keys::new(&JUNK.parse().unwrap(), &OTHER.parse().unwrap())
    }

    #[test]
    fn the_addresses_of_the_vectors_never_change() {
        let vectors = [
            (Family::Evm, "", "0x3938bbC3dF0e431A1d5CB2d801B84e51163cB51e"),
            (Family::Solana, "", "H1WzkjCHNvGD2fKsM5Cee54W3kryZRLsFHYFPxgfH3fN"),
            (Family::Evm, "r-1", "0x11ee8670498AB34227d05a29Bf2c40f813bEd70D"),
            (Family::Solana, "r-1", "CkE9R8E3mgR4HJ4DfiPDQog3WFqZSafvoxqoFhBqgC3d"),
        ];
        for (family, tag, address) in vectors {
            let path = KeyPath::of_wallet(family, "alice", tag);
            assert_eq!(keys().address(&path).unwrap().to_string(), address);
        }
    }

    /// anvil's first account: that others derive the same from the same path.
    #[test]
    fn a_path_gives_the_address_that_others_give_it() {
        let path = KeyPath { seed: Seed::Wallets, family: Family::Evm, account: 0, index: 0 };
        assert_eq!(keys().address(&path).unwrap().to_string(), "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266");
        let second = KeyPath { index: 1, ..path };
        assert_eq!(keys().address(&second).unwrap().to_string(), "0x70997970C51812dc3A010C7d01b50e0d17dc79C8");
    }

    #[test]
    fn the_seeds_have_different_keys_for_one_path() {
        let wallet = KeyPath::of_wallet(Family::Evm, "alice", "");
        let sponsor = KeyPath { seed: Seed::Sponsors, ..wallet };
        assert_ne!(keys().address(&wallet), keys().address(&sponsor));
    }

    #[test]
    fn a_path_out_of_range_is_refused_and_wraps_to_no_other() {
        for family in [Family::Evm, Family::Solana] {
            let path = KeyPath { seed: Seed::Wallets, family, account: 1 << 31, index: 0 };
            assert_eq!(keys().address(&path), Err(KeyError::Path(path)));
            let path = KeyPath { account: 0, index: u32::MAX, ..path };
            assert_eq!(keys().address(&path), Err(KeyError::Path(path)));
        }
    }

    #[test]
    fn keys_are_not_printed() {
        assert_eq!(format!("{:?}", keys()), "Keys(..)");
    }
}
