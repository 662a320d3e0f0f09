//! Keys and addresses, derived of a seed: BIP-32 for EVM, SLIP-10 for Solana.
//!
//! Promise: an address is a function of the words and the path alone, so that no restored counter can give one
//! account's address to another. No parent's public key leaves this file: with one child's key it would give all.

use std::fmt;

use coins_bip32::BIP32_HARDEN;
use coins_bip32::ecdsa::SigningKey;
use coins_bip32::xkeys::{Parent, XPriv};
use landfall_chain::{Address, Family, KeyPath, Seed};
use sha3::{Digest, Keccak256};
use zeroize::Zeroizing;

use crate::Words;

const PURPOSE: u32 = 44;
/// SLIP-44's number of Ether.
const EVM: u32 = 60;
/// SLIP-44's number of SOL.
const SOLANA: u32 = 501;

/// The keys of both seeds.
pub(crate) struct Keys {
    wallets: Root,
    sponsors: Root,
}

/// What the keys of one seed are derived of.
struct Root {
    /// `m/44'/60'`.
    evm: XPriv,
    solana: Zeroizing<[u8; 64]>,
}

/// A number of the path is not below 2^31: it would be another path's.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("path {0} has a number that is not below 2^31")]
pub(crate) struct PathError(KeyPath);

impl Keys {
    pub(crate) fn new(wallets: &Words, sponsors: &Words) -> Self {
        Keys { wallets: Root::new(wallets), sponsors: Root::new(sponsors) }
    }

    /// The key of a path on EVM chains, whatever the path's family.
    pub(crate) fn evm(&self, path: &KeyPath) -> Result<SigningKey, PathError> {
        check(path)?;
        let key = derived(&self.root(path.seed).evm, &[path.account | BIP32_HARDEN, 0, path.index]);
        let key: &SigningKey = key.as_ref();
        Ok(key.clone())
    }

    pub(crate) fn address(&self, path: &KeyPath) -> Result<Address, PathError> {
        match path.family {
            Family::Evm => self.evm(path).map(|key| evm_address(&key)),
            Family::Solana => self.solana(path).map(|key| Address::Solana(key.verifying_key().to_bytes())),
        }
    }

    /// The key of a path on Solana, whatever the path's family.
    pub(crate) fn solana(&self, path: &KeyPath) -> Result<ed25519_dalek::SigningKey, PathError> {
        check(path)?;
        let seed = &self.root(path.seed).solana[..];
        // Every number of the path is hardened: Ed25519 has no other keys.
        let key = slip10_ed25519::derive_ed25519_private_key(seed, &[PURPOSE, SOLANA, path.account, path.index]);
        Ok(ed25519_dalek::SigningKey::from_bytes(&Zeroizing::new(key)))
    }

    fn root(&self, seed: Seed) -> &Root {
        match seed {
            Seed::Wallets => &self.wallets,
            Seed::Sponsors => &self.sponsors,
        }
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys(..)")
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

/// The address of a key: the last 20 bytes of the hash of its public point.
pub(crate) fn evm_address(key: &SigningKey) -> Address {
    let point = key.verifying_key().to_sec1_point(false);
    // The first byte says that both coordinates follow.
    let hash = Keccak256::digest(&point.as_bytes()[1..]);
    let (_, address) = hash.as_slice().split_last_chunk().expect("32 is more than 20");
    Address::Evm(*address)
}

fn check(path: &KeyPath) -> Result<(), PathError> {
    let is_in_range = [path.account, path.index].iter().all(|number| number & BIP32_HARDEN == 0);
    is_in_range.then_some(()).ok_or(PathError(*path))
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
            assert_eq!(keys().address(&path), Err(PathError(path)));
            let path = KeyPath { account: 0, index: u32::MAX, ..path };
            assert_eq!(keys().address(&path), Err(PathError(path)));
        }
    }

    #[test]
    fn keys_are_not_printed() {
        assert_eq!(format!("{:?}", keys()), "Keys(..)");
    }
}
