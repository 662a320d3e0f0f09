//! Intents: what a wallet's key signs for a transfer. Each has a one-time key: the chain takes it once, whoever sends
//! it and how often.
//!
//! Promise: the one-time key follows from the chain and the transfer's id alone. So every process and every sponsor
//! uses the same one, and so does a store that was restored.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::hashing::hash_of;
use crate::{Address, AssetId, Delegate, U256};

/// 192 bits, so that a token which reads a nonce as a key and a 64-bit sequence takes it as the first of its sequence.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct IntentKey(pub [u8; 24]);

/// How an asset is sent while somebody else pays for the transaction.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Route {
    /// The token takes the owner's signature from anybody, once for each nonce (EIP-3009, `transferWithAuthorization`).
    /// The names are those of the token's own EIP-712 domain.
    Erc3009 {
        /// `name` of the domain.
        name: String,
        /// `version` of the domain.
        version: String,
    },
    /// Each transaction that pays also makes an account whose address follows from the payer and the one-time key: the
    /// guard. It is made once, so a second transaction fails as a whole (Solana).
    Guard {
        /// The program that keeps the token; `None` for the native currency.
        program: Option<Address>,
        /// How many decimals the major unit has: the token's program compares them.
        decimals: u8,
    },
    /// A delegate acts for the wallet, and takes the wallet's signature from anybody, once for each id.
    Delegate(Delegate),
}

/// What a wallet's key signs for a transfer: everything that the signature covers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Intent {
    /// The transfer's id: its 16 bytes.
    pub transfer_id: [u8; 16],
    /// CAIP-2 of the chain, for example `eip155:8453`.
    pub chain_ref: String,
    /// How the asset is sent.
    pub route: Route,
    /// What is paid.
    pub asset: AssetId,
    /// Whose money it is, and whose key signs.
    pub payer: Address,
    /// Who is paid.
    pub destination: Address,
    /// Base units; more than 0.
    pub amount: U256,
    /// Seconds since 1970, by the clock of the chain: a block of this time, or of a later one, cannot pay it any more. On
    /// Solana no transaction is signed for it from then on, and what was signed before dies within 150 blocks.
    pub deadline: u64,
}

/// An intent with the signature of its payer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SignedIntent {
    /// What was signed.
    pub intent: Intent,
    /// 65 bytes on EVM: r, s, v. Nothing on Solana, where the payer signs each transaction that pays.
    pub signature: Vec<u8>,
}

impl Intent {
    /// What the chain takes once.
    pub fn key(&self) -> IntentKey {
        IntentKey::of(&self.chain_ref, &self.transfer_id)
    }

    /// The account that a payment of it makes; `None` where its route has none.
    pub fn guard(&self) -> Option<Address> {
        match (&self.route, &self.payer) {
            (Route::Guard { .. }, Address::Solana(payer)) => Some(Address::Solana(self.key().guard(payer))),
            (Route::Guard { .. }, Address::Evm(_)) | (Route::Erc3009 { .. } | Route::Delegate(_), _) => None,
        }
    }
}

impl Route {
    /// The name of [`Route::Guard`].
    pub const GUARD: &'static str = "guard";
    /// The name of [`Route::Erc3009`].
    pub const ERC3009: &'static str = "erc3009";
    /// The name of [`Route::Delegate`].
    pub const DELEGATE: &'static str = "delegate";

    /// Its kind.
    pub const fn name(&self) -> &'static str {
        match self {
            Route::Erc3009 { .. } => Route::ERC3009,
            Route::Delegate(_) => Route::DELEGATE,
            Route::Guard { .. } => Route::GUARD,
        }
    }
}

/// The name that is stored with a transfer and shown. It says which contracts count the one-time keys, beside the asset's
/// own.
impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Route::Erc3009 { .. } | Route::Guard { .. } => f.write_str(self.name()),
            Route::Delegate(delegate) => write!(f, "{} {delegate}", self.name()),
        }
    }
}

impl IntentKey {
    /// The key of the transfer with this id on the chain with this CAIP-2 name, for example `eip155:8453`.
    pub fn of(chain_ref: &str, transfer_id: &[u8; 16]) -> Self {
        let hash = hash_of([b"intent/v1".as_slice(), chain_ref.as_bytes(), transfer_id]);
        let (key, _) = hash.split_first_chunk().expect("32 is more than 24");
        IntentKey(*key)
    }

    /// EIP-3009's nonce, and the id of a delegate's execution: the key, then 8 zero bytes.
    ///
    /// OpenZeppelin Contracts 5.7 (`ERC20TransferAuthorization`) and Calibur read the last 8 bytes as a sequence, and
    /// refuse any but the next one of the key.
    pub fn evm_nonce(&self) -> [u8; 32] {
        let mut nonce = [0; 32];
        nonce[..24].copy_from_slice(&self.0);
        nonce
    }

    /// Reads [`IntentKey::evm_nonce`]; `None` of a nonce that no intent of ours has.
    pub fn of_evm_nonce(nonce: &[u8; 32]) -> Option<Self> {
        let (key, rest) = nonce.split_first_chunk()?;
        (rest == [0; 8]).then_some(IntentKey(*key))
    }

    /// The seed of the guard account on Solana: 32 characters, as many as a seed may have.
    pub fn solana_seed(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.0)
    }

    /// The address of the guard account on Solana, as `create_account_with_seed` of its system program has it: base is
    /// the payer, and the owner is the system program, whose address is zeros.
    pub fn guard(&self, payer: &[u8; 32]) -> [u8; 32] {
        Sha256::new().chain_update(payer).chain_update(self.solana_seed()).chain_update([0; 32]).finalize().into()
    }

    /// The key as blocks of Solana show it, which name accounts and no seeds: the first 24 bytes of an address. Two
    /// addresses with the same 24 bytes cannot be made.
    pub fn of_account(account: &[u8; 32]) -> Self {
        let (key, _) = account.split_first_chunk().expect("32 is more than 24");
        IntentKey(*key)
    }

    /// The key as the chain's blocks show that `payer` used it.
    pub fn shown(&self, payer: &Address) -> Self {
        match payer {
            Address::Evm(_) => *self,
            Address::Solana(payer) => IntentKey::of_account(&self.guard(payer)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_keys_of_the_vector_never_change() {
        let id: [u8; 16] = hex::decode("bac872c096568527b18ffc8f02a10278").unwrap().try_into().unwrap();
        let evm = IntentKey::of("eip155:84532", &id);
        let nonce = "3f02318683f95beade0fa5a35b28dac5b3be51b421eaa47c0000000000000000";
        assert_eq!(hex::encode(evm.evm_nonce()), nonce);
        assert_eq!(IntentKey::of_evm_nonce(&evm.evm_nonce()), Some(evm));
        assert_eq!(IntentKey::of_evm_nonce(&[1; 32]), None);
        let solana = IntentKey::of("solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1", &id);
        assert_eq!(solana.solana_seed(), "ubIo8TJMcOZxXEBs6tdNJgvk7bRv0ton");
    }

    #[test]
    fn the_keys_of_a_million_transfers_are_distinct_and_each_bit_of_an_id_counts() {
        // From bit 20 on: those below are in the first 1,000,000.
        let ids = (0..1_000_000_u128).chain((20..128).map(|bit| 1_u128 << bit));
        let keys: HashSet<IntentKey> = ids.clone().map(|id| IntentKey::of("eip155:8453", &id.to_be_bytes())).collect();
        assert_eq!(keys.len(), ids.count());
    }

    #[test]
    fn only_a_guard_is_shown_under_another_key_and_follows_from_the_payer() {
        let key = IntentKey([7; 24]);
        assert_eq!(key.shown(&Address::Evm([1; 20])), key);
        let guard = key.guard(&[1; 32]);
        assert_ne!(guard, key.guard(&[2; 32]));
        assert_eq!(key.shown(&Address::Solana([1; 32])).0, guard[..24]);
        assert_eq!(IntentKey::of_account(&guard), key.shown(&Address::Solana([1; 32])));
    }
}
