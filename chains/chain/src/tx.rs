//! Transactions: their id, and what keeps one from landing twice.

use std::fmt;

use crate::{Address, Family};

/// A transaction's identity on its chain.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum TxId {
    /// An EVM transaction hash.
    Evm([u8; 32]),
    /// The first signature of a Solana transaction.
    Solana([u8; 64]),
}

/// What a transaction uses up when it lands. Stored at first sight: an orphaned transaction cannot be asked for later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TxLife {
    /// EVM: the signer's account and its nonce. Exactly one transaction with this pair ever lands.
    Nonce {
        /// The signer (not the sender of a token inside the transaction).
        signer: Address,
        /// Its nonce.
        nonce: u64,
    },
    /// It uses up nothing: it lives and dies with its block, and only its block can show its fate. A deposit that an
    /// OP-stack chain derives from L1, a state-sync of Polygon, a beacon withdrawal.
    Block,
}

/// A transaction and what is needed to learn its fate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TxRef {
    /// Its id.
    pub id: TxId,
    /// What it uses up.
    pub life: TxLife,
}

/// A stored transaction id or life that cannot be read back.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum TxError {
    /// Neither 32 nor 64 bytes.
    #[error("a transaction id of {0} bytes")]
    IdLength(usize),
    /// A tag or length that no version wrote.
    #[error("a stored transaction life of {0} bytes with an unknown form")]
    Life(usize),
}

/// The text is no transaction's of that family.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("malformed transaction {text:?}: expected {expected}")]
pub struct TxTextError {
    text: String,
    expected: &'static str,
}

impl TxId {
    /// From its text form on chains of `family`: `0x` and 64 hexadecimal digits, or a signature in base58.
    ///
    /// # Errors
    /// Any other text.
    pub fn parse(family: Family, text: &str) -> Result<Self, TxTextError> {
        let (id, expected) = match family {
            Family::Evm => (evm_hash(text).map(TxId::Evm), "0x and 64 hexadecimal digits"),
            Family::Solana => (signature(text).map(TxId::Solana), "a signature of 64 bytes in base58"),
        };
        id.ok_or_else(|| TxTextError { text: text.to_owned(), expected })
    }

    /// The bytes: 32 for EVM, 64 for Solana.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            TxId::Evm(hash) => hash,
            TxId::Solana(signature) => signature,
        }
    }

    /// From stored bytes; their length says the family.
    ///
    /// # Errors
    /// Any length but 32 and 64.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, TxError> {
        if let Ok(hash) = bytes.try_into() {
            Ok(TxId::Evm(hash))
        } else if let Ok(signature) = bytes.try_into() {
            Ok(TxId::Solana(signature))
        } else {
            Err(TxError::IdLength(bytes.len()))
        }
    }
}

fn evm_hash(text: &str) -> Option<[u8; 32]> {
    let digits = text.strip_prefix("0x").filter(|digits| digits.len() == 64)?;
    let mut hash = [0; 32];
    hex::decode_to_slice(digits, &mut hash).ok()?;
    Some(hash)
}

fn signature(text: &str) -> Option<[u8; 64]> {
    let mut bytes = [0; 64];
    let length = bs58::decode(text).onto(&mut bytes).ok()?;
    (length == bytes.len()).then_some(bytes)
}

impl fmt::Display for TxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TxId::Evm(hash) => f.write_str(&hex::encode_prefixed(hash)),
            TxId::Solana(signature) => f.write_str(&bs58::encode(signature).into_string()),
        }
    }
}

impl TxLife {
    const NONCE: u8 = 1;
    const BLOCK: u8 = 2;

    /// The stored form: a tag, then for `Nonce` 8 bytes of nonce (big endian) and the signer's bytes; for `Block`
    /// nothing.
    pub fn to_bytes(self) -> Vec<u8> {
        match self {
            TxLife::Nonce { signer, nonce } => {
                [&[TxLife::NONCE], nonce.to_be_bytes().as_slice(), signer.as_bytes()].concat()
            }
            TxLife::Block => vec![TxLife::BLOCK],
        }
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// A tag or length that no version wrote.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, TxError> {
        let unknown = || TxError::Life(bytes.len());
        let (tag, rest) = bytes.split_first().ok_or_else(unknown)?;
        if *tag == TxLife::BLOCK && rest.is_empty() {
            return Ok(TxLife::Block);
        }
        let (nonce, signer) = rest.split_first_chunk::<8>().ok_or_else(unknown)?;
        if *tag != TxLife::NONCE {
            return Err(unknown());
        }
        let signer = Address::from_bytes(signer).map_err(|_| unknown())?;
        Ok(TxLife::Nonce { signer, nonce: u64::from_be_bytes(*nonce) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_from_its_own_text_and_from_no_others() {
        for (family, id) in [(Family::Evm, TxId::Evm([0xab; 32])), (Family::Solana, TxId::Solana([7; 64]))] {
            assert_eq!(TxId::parse(family, &id.to_string()), Ok(id));
        }
        let hash = TxId::Evm([0xab; 32]).to_string();
        let signature = TxId::Solana([7; 64]).to_string();
        let key = Address::Solana([7; 32]).to_string();
        for text in ["", "0xab", &hash[2..], &signature] {
            assert!(TxId::parse(Family::Evm, text).is_err(), "{text}");
        }
        let (longer, zero) = (format!("{signature}1"), format!("0{}", &signature[1..]));
        for text in ["", &hash, &key, &signature[2..], &longer, &zero] {
            assert!(TxId::parse(Family::Solana, text).is_err(), "{text}");
        }
        let error = TxId::parse(Family::Solana, "0xab").unwrap_err().to_string();
        assert_eq!(error, "malformed transaction \"0xab\": expected a signature of 64 bytes in base58");
    }

    #[test]
    fn ids_and_lives_survive_storage() {
        for id in [TxId::Evm([7; 32]), TxId::Solana([9; 64])] {
            assert_eq!(TxId::from_bytes(id.as_bytes()), Ok(id));
        }
        for life in [TxLife::Nonce { signer: Address::Evm([3; 20]), nonce: u64::MAX - 1 }, TxLife::Block] {
            assert_eq!(TxLife::from_bytes(&life.to_bytes()), Ok(life));
        }
        assert_eq!(TxLife::from_bytes(&[TxLife::BLOCK, 0]), Err(TxError::Life(2)));
        assert_eq!(TxId::from_bytes(&[1; 31]), Err(TxError::IdLength(31)));
        assert_eq!(TxLife::from_bytes(&[9; 29]), Err(TxError::Life(29)));
    }

    #[test]
    fn a_hash_prints_in_lower_case_hex() {
        assert_eq!(TxId::Evm([0xab; 32]).to_string(), format!("0x{}", "ab".repeat(32)));
    }
}
