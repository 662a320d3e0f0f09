//! The payers: a few keys, the same in every run.
//!
//! Signatures are real ECDSA: every signer can be recovered. They are cheap, because each key uses one nonce for all of
//! its signatures, which would give a real key away and hurts nobody here: a chain with 100,000 transactions is signed
//! in a second. The nonce is taken from one signature that alloy made.

use std::sync::LazyLock;

use alloy::consensus::crypto::secp256k1::{recover_signer, sign_message};
use alloy::primitives::{Address, B256, Signature, U256, keccak256, uint};

/// How many payers there are. The last one is the liar, who pays on branches that never win.
pub const PAYERS: usize = 16;
pub(crate) const LIAR: usize = PAYERS - 1;

/// The order of secp256k1.
const ORDER: U256 = uint!(0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141_U256);

static WALLETS: LazyLock<Vec<Wallet>> = LazyLock::new(|| (0..PAYERS).map(Wallet::new).collect());

/// The address of payer `index`.
///
/// # Panics
/// There is no such payer.
pub fn payer(index: usize) -> Address {
    WALLETS[index].address
}

/// The signature of payer `index` under `hash`.
pub(crate) fn sign(index: usize, hash: B256) -> Signature {
    WALLETS[index].sign(hash)
}

struct Wallet {
    address: Address,
    secret: U256,
    /// Of the nonce's point: the x coordinate, and whether y is odd.
    r: U256,
    is_odd: bool,
    /// The inverse of the nonce.
    inverse: U256,
}

impl Wallet {
    fn new(index: usize) -> Self {
        let secret = keccak256(format!("landfall test payer {index}"));
        let hash = keccak256("the first signature");
        let first = sign_message(secret, hash).expect("a hash is a valid key, all but never");
        let address = recover_signer(&first, hash).expect("just signed");
        let (secret, r) = (U256::from_be_bytes(secret.0), first.r());
        // s = (hash + r * secret) / nonce
        let sum = message(hash, r, secret).inv_mod(ORDER).expect("a prime order, and not zero");
        Wallet { address, secret, r, is_odd: first.v(), inverse: first.s().mul_mod(sum, ORDER) }
    }

    fn sign(&self, hash: B256) -> Signature {
        let s = self.inverse.mul_mod(message(hash, self.r, self.secret), ORDER);
        // EIP-2: of s and its negative the lower one counts.
        let is_high = s > ORDER >> 1;
        Signature::new(self.r, if is_high { ORDER - s } else { s }, self.is_odd != is_high)
    }
}

fn message(hash: B256, r: U256, secret: U256) -> U256 {
    (U256::from_be_bytes(hash.0) % ORDER).add_mod(r.mul_mod(secret, ORDER), ORDER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_signature_names_its_payer_and_has_a_low_s() {
        for index in 0..PAYERS {
            for message in ["a", "b", "c", "d", "e", "f"].map(keccak256) {
                assert_eq!(recover_signer(&sign(index, message), message).ok(), Some(payer(index)));
            }
        }
    }
}
