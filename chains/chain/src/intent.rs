//! The one-time key of a transfer's intent: what the chain itself takes once, whoever sends it and how often.
//!
//! Promise: the key follows from the chain and the transfer's id alone, so that every process, sponsor and replay, and a
//! store that was restored, uses the same one.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::hashing::hash_of;

/// 192 bits, so that a token which reads a nonce as a key and a 64-bit sequence takes it as the first of its sequence.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct IntentKey(pub [u8; 24]);

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

    /// The seed of the guard account on Solana: 32 characters, as many as a seed may have.
    pub fn solana_seed(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_the_vector_never_change() {
        let id: [u8; 16] = hex::decode("bac872c096568527b18ffc8f02a10278").unwrap().try_into().unwrap();
        let evm = IntentKey::of("eip155:84532", &id);
        let nonce = "3f02318683f95beade0fa5a35b28dac5b3be51b421eaa47c0000000000000000";
        assert_eq!(hex::encode(evm.evm_nonce()), nonce);
        let solana = IntentKey::of("solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1", &id);
        assert_eq!(solana.solana_seed(), "ubIo8TJMcOZxXEBs6tdNJgvk7bRv0ton");
    }
}
